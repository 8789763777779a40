//! The scripts of `bench/daos-evaluation`, at the smallest scale: every point is measured and the JSON is
//! whole. Figures are not looked at.

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

fn script(name: &str, arguments: &[&str]) -> Output {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(root.join("bench/daos-evaluation").join(name));
    command.env_remove("AZEKURA_SYSTEM").args(arguments).output().unwrap()
}

fn text_of(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).into_owned()
}

fn rows_of(name: &str) -> Vec<Value> {
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results.json");
    let ran = script(
        name,
        &[
            "--tool",
            "azekura",
            "--azekura",
            env!("CARGO_BIN_EXE_azekura"),
            "--scale",
            "0.0001",
            "--output",
            results.to_str().unwrap(),
        ],
    );
    assert!(ran.status.success(), "{name}: {}", text_of(&ran));
    let results: Value = serde_json::from_str(&std::fs::read_to_string(results).unwrap()).unwrap();
    assert_eq!(results["tool"], "azekura");
    results["rows"].as_array().unwrap().clone()
}

#[test]
fn bandwidth_is_measured_at_every_transfer_size_in_both_layouts() {
    let rows = rows_of("1a.sh");
    assert_eq!(rows.len(), 10);
    for row in &rows {
        assert!(row["write_mib_s"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["read_mib_s"].as_f64().unwrap() > 0.0, "{row}");
    }
    assert_eq!(rows[0]["layout"], "N-N");
    assert_eq!(rows[9]["layout"], "N-1");
    assert_eq!(rows[9]["transfer_bytes"], 4 << 20);
}

#[test]
fn metadata_rates_are_measured_for_every_number_of_processes() {
    let rows = rows_of("3.sh");
    let processes: Vec<u64> = rows.iter().map(|row| row["processes"].as_u64().unwrap()).collect();
    assert_eq!(processes, [2, 4, 8, 16, 32, 64]);
    for row in &rows {
        for rate in ["create_per_s", "stat_per_s", "read_per_s", "remove_per_s"] {
            assert!(row[rate].as_f64().unwrap() > 0.0, "{row}");
        }
    }
}

#[test]
fn every_script_explains_itself_and_refuses_nonsense() {
    for name in ["1a.sh", "1b.sh", "1c.sh", "2.sh", "3.sh"] {
        let help = script(name, &["--help"]);
        assert!(help.status.success(), "{name}: {}", text_of(&help));
        assert!(text_of(&help).contains("--scale"), "{name}");
        assert_eq!(script(name, &["--nonsense"]).status.code(), Some(2), "{name}");
    }
}
