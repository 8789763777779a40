//! What people meet first: help, manual pages, names they know, and what their machine lacks.

use crate::harness::{System, all_text, azekura};
use serde_json::Value;
use std::process::Command;

#[test]
fn every_command_has_a_manual_page() {
    let system = System::none();
    let dir = system.path("man");
    system.ok(&["help", "--man", "--out", dir.to_str().unwrap()]);
    let page = |name: &str| {
        std::fs::read_to_string(dir.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    for (name, words) in [
        ("azekura.1", "azekura\\-pool"),
        ("azekura-pool.1", "create"),
        ("azekura-pool-create.1", "scm\\-percent"),
        ("azekura-cont-snapshot-rollback.1", "rollback"),
        ("azekura-mount.1", "cache"),
        ("azekura-doctor.1", "lacks"),
    ] {
        let text = page(name);
        assert!(text.contains(".TH") && text.contains(words), "{name}: {text}");
        assert!(text.contains("\"Azekura ") && !text.contains(".SH EXTRA"), "{name}: {text}");
    }
    assert!(page("azekura-pool-create.1").contains(".SH EXAMPLES\n"));
    // One alone, on standard output, is the same page.
    let alone = system.ok(&["help", "--man", "pool", "create"]);
    assert!(alone.contains(".TH") && alone.contains("scm\\-percent"), "{alone}");
    // Readers of manual pages have nothing to complain about.
    match Command::new("groff")
        .args(["-man", "-Tutf8", "-ww", "-z"])
        .arg(dir.join("azekura.1"))
        .output()
    {
        Ok(output) => {
            assert!(output.status.success() && output.stderr.is_empty(), "{}", all_text(&output))
        }
        Err(_) => eprintln!("SKIPPED: groff is not installed"),
    }
}

/// Completions offered an option that only the names of `daos` and `dmg` use.
#[test]
fn completions_offer_what_help_shows() {
    let system = System::none();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = system.ok(&["completion", shell]);
        assert!(script.contains("scm-percent") && script.contains("timeout"), "{shell}");
        let offers = script.lines().filter(|line| line.contains("answer-as"));
        // In bash the word is offered in lists of words only.
        let offers: Vec<_> = offers.filter(|line| !line.trim().ends_with("--answer-as)")).collect();
        assert!(offers.is_empty(), "{shell}: {offers:?}");
    }
}

#[test]
fn help_is_printed_for_any_command() {
    let system = System::none();
    let text = system.ok(&["help", "cont", "create"]);
    assert!(text.contains("Create a container") && text.contains("--file-oclass"), "{text}");
    assert!(system.ok(&["help"]).contains("azekura fs cp -r"));
    system.fails(2, &["no command 'creat'"], &["help", "cont", "creat"]);
}

#[test]
fn the_doctor_says_what_mends_each_finding() {
    let output = azekura().args(["doctor", "--json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.len() >= 7, "{report}");
    for finding in findings {
        let is_ok = finding["state"] == "ok";
        assert_eq!(is_ok, finding.get("mend").is_none(), "{finding}");
    }
    let is_broken = report["state"] == "broken";
    assert_eq!(output.status.code(), Some(i32::from(is_broken)));
    let text = azekura().arg("doctor").output().unwrap();
    assert!(all_text(&text).contains("kernel"), "{}", all_text(&text));
}

/// The program by another name.
fn named(system: &System, name: &str, words: &str) -> std::process::Output {
    let link = system.path(name);
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_azekura"), &link).unwrap();
    }
    Command::new(&link)
        .env("AZEKURA_SYSTEM", system.dir())
        .args(words.split_whitespace())
        .output()
        .unwrap()
}

/// A script written for DAOS, as its manual shows it.
#[test]
fn a_script_written_for_daos_works() {
    let system = System::up(1, 2);
    let run = |name: &str, words: &str| {
        let output = named(&system, name, words);
        assert!(output.status.success(), "{name} {words}: {}", all_text(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let json = |name: &str, words: &str| -> Value {
        let text = run(name, words);
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["status"], 0, "{text}");
        assert!(answer["error"].is_null(), "{text}");
        answer["response"].clone()
    };
    assert_eq!(json("dmg", "-j system query")["members"][0]["state"], "joined");
    let pool = json("dmg", "-j -i pool create --size=1G tank");
    assert_eq!(pool["tier_stats"].as_array().unwrap().len(), 2);
    let bytes = |tier: usize| pool["tier_stats"][tier]["total"].as_u64().unwrap();
    let total = bytes(0) + bytes(1);
    assert!((990_000_000..=1_000_000_000).contains(&total), "decimal: {total}");
    assert_eq!(json("dmg", "pool list --json")["pools"][0]["label"], "tank");
    let made = json("daos", "container create tank home --type POSIX --json");
    assert_eq!(made["container_label"], "home");
    assert_eq!(made["container_type"], "POSIX");
    assert_eq!(json("daos", "cont list tank -j")[0]["uuid"], made["container_uuid"]);
    run("daos", "cont set-attr tank home owner:climate");
    assert!(run("daos", "cont get-attr tank home owner").contains("climate"));
    assert_eq!(json("daos", "-j pool query tank")["active_targets"], 2);
    let source = system.path("file");
    std::fs::write(&source, "data").unwrap();
    run("daos", &format!("fs copy --src {} --dst daos://tank/home/file", source.display()));
    assert_eq!(system.ok(&["fs", "cat", "azk://tank/home/file"]), "data");
    // Failures have the envelope, too.
    let output = named(&system, "daos", "-j cont query tank away");
    assert!(!output.status.success());
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(answer["response"].is_null() && answer["status"] != 0, "{answer}");
    assert!(answer["error"].as_str().unwrap().contains("away"), "{answer}");
    run("daos", "container destroy tank home --force");
    run("dmg", "pool destroy tank");
}

#[test]
fn dfuse_mounts_where_it_is_told() {
    if let Err(error) = std::fs::File::options().read(true).write(true).open("/dev/fuse") {
        eprintln!("SKIPPED: nothing is mounted in this test: /dev/fuse: {error}");
        return;
    }
    let system = System::with_home();
    let dir = system.path("mnt");
    std::fs::create_dir(&dir).unwrap();
    let at = dir.to_str().unwrap();
    let output = named(&system, "dfuse", &format!("-m {at} tank home --disable-caching"));
    assert!(output.status.success(), "{}", all_text(&output));
    std::fs::write(dir.join("x"), "through the mount").unwrap();
    let read = system.ok(&["fs", "cat", "azk://tank/home/x"]);
    system.ok(&["umount", at]);
    assert_eq!(read, "through the mount");
}
