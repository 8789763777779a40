//! Golden bytes: every message must encode exactly as the released format says.
//!
//! `golden/messages.hex` holds the wire version and one line per sample, `name = hex`. The test
//! fails when an encoding differs, when a sample is missing, or when the file holds one that
//! nobody makes. Every variant, and something in every list and optional field, must be in a sample, so that no change of a form goes unnoticed. Story: two builds that disagree by one field order read each other's garbage
//! without an error, because the serializer writes no names.
//!
//! After an intended change: bump `WIRE_VERSION`, then run with `AZEKURA_GOLDEN=write`. Writing
//! over changed bytes is refused while the version is the one in the file; new samples may be
//! added at any time.

#[path = "golden/footprint.rs"]
mod footprint;
mod samples;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

const VERSION_NAME: &str = "wire_version";

fn golden_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/messages.hex")
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

/// Version and samples of a golden file.
fn parse(text: &str) -> (u16, BTreeMap<String, Vec<u8>>) {
    let mut version = 0;
    let mut entries = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (name, value) = line.split_once(" = ").expect("a line is `name = value`");
        if name == VERSION_NAME {
            version = value.parse().expect("the version is a number");
        } else {
            let bytes = from_hex(value).unwrap_or_else(|| panic!("{name}: not hex"));
            assert!(entries.insert(name.to_string(), bytes).is_none(), "{name} is there twice");
        }
    }
    (version, entries)
}

fn render(entries: &BTreeMap<String, Vec<u8>>) -> String {
    let mut text = String::from(
        "# Released encodings, one sample per line. Made by tests/golden.rs; do not edit by hand.\n",
    );
    text += &format!("{VERSION_NAME} = {}\n", wire::WIRE_VERSION);
    for (name, bytes) in entries {
        text += &format!("{name} = {}\n", to_hex(bytes));
    }
    text
}

/// What changed between the file and the code, one line each. Empty: nothing.
fn differences(
    golden: &BTreeMap<String, Vec<u8>>,
    made: &BTreeMap<String, Vec<u8>>,
) -> (Vec<String>, Vec<String>) {
    let mut changed = Vec::new();
    let mut added = Vec::new();
    for (name, bytes) in made {
        match golden.get(name) {
            None => added.push(name.clone()),
            Some(old) if old != bytes => {
                changed.push(format!("{name}: was {}, is {}", to_hex(old), to_hex(bytes)));
            }
            Some(_) => {}
        }
    }
    for name in golden.keys().filter(|name| !made.contains_key(*name)) {
        changed.push(format!("{name}: no longer made"));
    }
    (changed, added)
}

#[test]
fn encodings_are_those_of_the_released_format() {
    let made = samples::encoded();
    let text = std::fs::read_to_string(golden_path()).unwrap_or_default();
    let (version, golden) = parse(&text);
    let (changed, added) = differences(&golden, &made);
    let bumped = version != wire::WIRE_VERSION;
    if std::env::var_os("AZEKURA_GOLDEN").is_some_and(|value| value == "write") {
        assert!(
            changed.is_empty() || bumped,
            "the format changed; bump WIRE_VERSION ({version}) first:\n{}",
            changed.join("\n")
        );
        std::fs::write(golden_path(), render(&made)).expect("write the golden file");
        return;
    }
    assert!(
        changed.is_empty() && added.is_empty() && !bumped,
        "the wire format is not the one in {} (version {version} there, {} here).\n\
         If that is intended: bump WIRE_VERSION for any change of an old message, then run\n\
         AZEKURA_GOLDEN=write cargo test -p wire --test golden\nchanged:\n{}\nadded:\n{}",
        golden_path().display(),
        wire::WIRE_VERSION,
        changed.join("\n"),
        added.join("\n")
    );
}

#[test]
fn golden_bytes_decode_to_the_samples_they_came_from() {
    let text = std::fs::read_to_string(golden_path()).expect("the golden file is in the tree");
    let (_, golden) = parse(&text);
    samples::check_decodes(&golden);
}

#[test]
fn a_change_of_one_byte_is_noticed() {
    let made = samples::encoded();
    for name in made.keys() {
        let mut altered = made.clone();
        let bytes = altered.get_mut(name).expect("the name is from the map");
        match bytes.last_mut() {
            Some(last) => *last ^= 1,
            None => bytes.push(0),
        }
        assert_eq!(differences(&altered, &made).0.len(), 1, "{name}");
    }
    assert_eq!(differences(&made, &made), (Vec::new(), Vec::new()));
    let (_, parsed) = parse(&render(&made));
    assert_eq!(parsed, made);
}

/// Types of the crate that are in no message.
const NOT_SENT: &[&str] = &["Severity"];

#[test]
fn every_form_has_a_sample() {
    let seen = samples::seen();
    let mut missing = seen.missing();
    let unseen = sent_types().into_iter().filter(|name| !seen.types.contains(name.as_str()));
    missing.extend(unseen.filter(|name| !NOT_SENT.contains(&name.as_str())));
    assert!(
        missing.is_empty(),
        "no sample in tests/samples has these, so golden bytes would not notice when their form changes:\n{}",
        missing.join("\n")
    );
}

/// Names of the structs and enums of this crate that can be decoded. Those that are `transparent` have no form of their own.
fn sent_types() -> BTreeSet<String> {
    let sources = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap();
    let mut found = BTreeSet::new();
    for source in sources {
        let text = std::fs::read_to_string(source.unwrap().path()).unwrap();
        let mut attributes = String::new();
        for line in text.lines() {
            let declared = ["pub struct ", "pub enum ", "struct ", "enum "];
            if let Some(rest) = declared.iter().find_map(|word| line.strip_prefix(word)) {
                let name = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
                if attributes.contains("Deserialize") && !attributes.contains("transparent") {
                    found.insert(name.to_string());
                }
            }
            match line.starts_with("#[") || (line.starts_with(' ') && !attributes.is_empty()) {
                true => attributes.push_str(line),
                false if line.starts_with(")]") || line.starts_with("///") => {}
                false => attributes.clear(),
            }
        }
    }
    assert!(found.len() > 100, "the declarations were not found: {found:?}");
    found
}
