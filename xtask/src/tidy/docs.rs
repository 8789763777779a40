//! Rules for doc comments: which items need one, and which ones say nothing.
//!
//! A public type says what it is in words of its own. Fields, variants and accessors need no doc
//! when name and type say all: a line that repeats them hides the next one, which tells a unit.
//! Files that use `clap` are left out, because their docs are what users read as `--help`.

use super::{Finding, Repo};

/// A doc of more words is taken to say something.
const WORDS_MAX: usize = 3;

/// Words that say nothing beside a name.
const FILLERS: [&str; 13] =
    ["a", "an", "the", "of", "its", "it", "is", "this", "that", "their", "one", "number", "all"];

/// What may stand between the start of a line and the name of its item.
const KEYWORDS: [&str; 16] = [
    "pub", "crate", "super", "in", "async", "const", "unsafe", "extern", "static", "mut", "fn",
    "struct", "enum", "trait", "type", "union",
];

/// Reports public types without a doc, and short docs that only repeat a name.
pub fn check(repo: &Repo, findings: &mut Vec<Finding>) {
    for (path, text) in repo.with_suffix(".rs").filter(|(_, text)| !text.contains("clap")) {
        let lines: Vec<&str> = text.lines().collect();
        for at in 0..lines.len() {
            if path.contains("/src/") && is_public_type(lines[at]) && !has_doc(&lines, at) {
                let advice = "say above it what it is, in words of its own";
                findings.push(Finding::new(path, at + 1, "public type without a doc", advice));
            }
            if let Some(doc) = single_doc(&lines, at)
                && name_below(&lines, at).is_some_and(|name| repeats(doc, name))
            {
                let advice = "remove it, or write what the name does not say: unit, range, errors";
                findings.push(Finding::new(path, at + 1, "doc that repeats a name", advice));
            }
        }
    }
}

fn is_public_type(line: &str) -> bool {
    ["struct ", "enum ", "trait ", "union "].iter().any(|kind| {
        line.strip_prefix("pub ")
            .is_some_and(|item| item.strip_prefix("unsafe ").unwrap_or(item).starts_with(kind))
    })
}

/// True when the lines that touch an item from above hold a doc.
fn has_doc(lines: &[&str], at: usize) -> bool {
    let above =
        lines[..at].iter().rev().take_while(|line| !line.is_empty() && !line.starts_with('}'));
    above.into_iter().any(|line| line.starts_with("///"))
}

fn doc(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("///")
}

/// The text of a doc of one line.
fn single_doc<'a>(lines: &[&'a str], at: usize) -> Option<&'a str> {
    let beside = [at.checked_sub(1), Some(at + 1)];
    let more =
        beside.iter().flatten().filter_map(|at| lines.get(*at)).any(|line| doc(line).is_some());
    doc(lines[at]).filter(|_| !more)
}

/// The name of the item that the doc at `at` is about; `None` where it has none.
fn name_below<'a>(lines: &[&'a str], at: usize) -> Option<&'a str> {
    let mut below = lines[at + 1..].iter().map(|line| line.trim());
    let mut item = below.next()?;
    while item.starts_with("#[") || item.starts_with("//") {
        if item.starts_with("#[") && !item.ends_with(']') {
            below.find(|line| line.ends_with(']'))?;
        }
        item = below.next()?;
    }
    if !item.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        return None;
    }
    identifiers(item).find(|word| !KEYWORDS.contains(word))
}

fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// True when a doc has no word that is not in the name.
fn repeats(doc: &str, name: &str) -> bool {
    let count = doc.split_whitespace().count();
    let name = parts(name);
    (1..=WORDS_MAX).contains(&count)
        && parts(doc).iter().all(|word| {
            FILLERS.contains(&word.as_str()) || name.iter().any(|part| same(part, word))
        })
}

/// Lower-case words of a text or of a name in either case: `DkeyMax`, `dkey_max`, `DKEY_MAX`.
fn parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_lower = false;
    for c in text.chars() {
        if !c.is_alphanumeric() || (was_lower && c.is_uppercase()) {
            parts.push(String::new());
        }
        if c.is_alphanumeric() {
            parts.last_mut().expect("there is always one").extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase();
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// One word, but for the ending of a plural or a verb.
fn same(one: &str, other: &str) -> bool {
    let stem = |word: &str| word.strip_suffix('s').unwrap_or(word).to_string();
    stem(one) == stem(other)
}

#[cfg(test)]
mod tests {
    use super::super::findings_of;
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        findings_of(check, &[(path, text)])
    }

    #[test]
    fn docs_that_repeat_a_name_are_reported() {
        for bad in [
            "/// The object.\npub object: Oid,",
            "    /// Number of dkeys.\n    pub dkeys: u64,",
            "/// Opens a pool.\npub async fn pool_open(&self) {}",
            "/// An event queue.\n#[derive(Clone)]\nstruct EventQueue;",
            "/// All pools.\n#[expect(\n    dead_code,\n    reason = \"none\"\n)]\npub(crate) fn pools() {}",
            "/// `mkdir`.\nfn mkdir(&mut self);",
            "/// No space.\nNoSpace = 4,",
            "/// Longest name.\nconst NAME_LONGEST: usize = 255;",
            "/// It.\nfn run();",
        ] {
            let found = findings("crates/a/src/b.rs", bad);
            assert_eq!(found.len(), 1, "{bad}: {found:?}");
            assert!(found[0].contains(":1: doc that repeats a name"), "{found:?}");
        }
    }

    #[test]
    fn docs_that_tell_a_fact_pass() {
        for good in [
            "/// Bytes of those let in.\nbytes: u64,",
            "/// From 0.\nnumber: u32,",
            "/// Targets, by id.\ntargets: Vec<Target>,",
            "/// `HOST:PORT`.\ntcp: String,",
            "/// The object.\n/// `None` at the end.\nobject: Option<Oid>,",
            "/// The dkey.\n#[serde(borrow)]\n&'a [u8],",
            "/// Nanoseconds since 1970.\nwall_ns: u64,",
            "/// [`Op::Stat`].\nStat(Stat),",
            "use clap::Args;\n/// Pools\nPools(Pool),",
        ] {
            assert_eq!(findings("crates/a/src/b.rs", good), Vec::<String>::new(), "{good}");
        }
    }

    #[test]
    fn public_types_have_a_doc() {
        let path = "crates/a/src/b.rs";
        for good in [
            "/// Says what it is, at length.\n#[derive(\n    Clone\n)]\npub struct Pool;",
            "struct Pool;",
            "pub(crate) enum Pool {}",
            "pub fn pool() {}",
            "mod a {\n    pub struct Pool;\n}",
        ] {
            assert_eq!(findings(path, good), Vec::<String>::new(), "{good}");
        }
        for bad in [
            "pub struct Pool;",
            "/// Of another.\nstruct Other;\n\n#[derive(Clone)]\npub enum Pool {}",
            "/// Of another.\nstruct Other {\n}\npub trait Pool {}",
        ] {
            let found = findings(path, bad);
            assert_eq!(found.len(), 1, "{bad}: {found:?}");
            assert!(found[0].contains("public type without a doc"), "{found:?}");
        }
        assert!(findings("crates/a/tests/b.rs", "pub struct Pool;").is_empty());
    }

    #[test]
    fn names_come_apart_in_every_case() {
        for name in ["DkeyMax", "dkey_max", "DKEY_MAX"] {
            assert_eq!(parts(name), ["dkey", "max"]);
        }
        assert_eq!(parts("[`FooBar`], 16 KiB."), ["foo", "bar", "16", "ki", "b"]);
    }
}
