//! `system measure`, placement by what was measured, and what is shown of it.

use crate::harness::{System, all_text};
use serde_json::Value;

fn measured(of: &Value) -> &Value {
    let measures = &of["measures"];
    assert!(measures["read"]["kb_s"].as_u64().unwrap() > 0, "{of}");
    assert!(measures["write"]["kb_s"].as_u64().unwrap() > 0, "{of}");
    assert!(of["score"].as_u64().unwrap() > 0 && of["free_bytes"].as_u64().unwrap() > 0, "{of}");
    measures
}

#[test]
fn what_is_measured_is_kept_shown_and_used() {
    let system = System::up(1, 2);
    system.fails(2, &["--size"], &["system", "measure", "--size", "0"]);
    system.fails(3, &["engine 7"], &["system", "measure", "--rank", "7"]);
    let first = system.json(&["system", "measure", "--size", "8MiB"]);
    assert_eq!(first.as_array().unwrap().len(), 2);
    // From here to each target.
    for of in first.as_array().unwrap() {
        let clients = &of["clients"];
        assert_eq!(clients["links"], 1, "{of}");
        assert!(clients["speed"]["kb_s_min"].as_u64().unwrap() > 0, "{of}");
        assert!(clients["age_s"].is_u64(), "{of}");
    }
    let before: Vec<Value> = first.as_array().unwrap().iter().map(measured).cloned().collect();
    // Not again, without --now, and not forgotten by a restart.
    system.ok(&["down"]);
    system.ok(&["up"]);
    let second = system.json(&["system", "measure"]);
    for (before, now) in before.iter().zip(second.as_array().unwrap()) {
        assert_eq!(
            (&before["read"], &before["at"]),
            (&now["measures"]["read"], &now["measures"]["at"])
        );
    }
    let again = system.json(&["system", "measure", "--now", "--size", "16MiB"]);
    for now in again.as_array().unwrap() {
        assert_eq!(now["measures"]["bytes"], 16 << 20, "{now}");
    }
    let table = system.ok(&["system", "measure"]);
    assert!(
        table.contains("SCORE") && table.contains("no speed of the network is known"),
        "{table}"
    );

    let made = system.json(&["pool", "create", "tank", "--size", "256MiB", "--placement", "score"]);
    assert_eq!(made["placement"], "score");
    let weights = |pool: &Value| -> Vec<u64> {
        let targets = pool["targets"].as_array().unwrap().iter();
        targets.map(|target| target["weight"].as_u64().unwrap()).collect()
    };
    let of = weights(&made);
    assert!(of.iter().all(|weight| *weight > 0) && of.iter().sum::<u64>().abs_diff(131_072) < 3);
    let pool = system.json(&["pool", "query", "tank", "--verbose"]);
    assert_eq!(weights(&pool), of);
    for of in pool["measures"].as_array().unwrap() {
        measured(of);
        // Each command is a client of its own.
        assert!(of["clients"]["links"].as_u64().unwrap() >= 1, "{of}");
    }
    assert_eq!(system.ok(&["pool", "get-prop", "tank", "placement"]), "score\n");
    system.fails(2, &["fixed"], &["pool", "set-prop", "tank", "durability=memory"]);
    system.fails(2, &["placement"], &["pool", "create", "x", "--size", "1GiB", "--placement", "y"]);
    let plain = system.json(&["pool", "create", "plain", "--size", "256MiB"]);
    assert_eq!((&plain["placement"], weights(&plain)), (&"equal".into(), vec![65_536; 2]));
}

/// Engines of one machine reach each other, too. What is known is told with its age and its spread, and counts.
#[test]
fn links_between_engines_are_probed_and_count() {
    let system = System::up(2, 1);
    let none = system.json(&["system", "measure", "--size", "8MiB"]);
    assert!(none.as_array().unwrap().iter().all(|of| of["network"].is_null()), "{none}");
    system.ok(&["pool", "create", "tank", "--size", "256MiB"]);
    let all = system.json(&["system", "measure", "--now", "--size", "8MiB"]);
    for of in all.as_array().unwrap() {
        let (network, measures) = (&of["network"], measured(of));
        assert_eq!(network["links"], 1, "{of}");
        let part = |name: &str| network["speed"][name].as_u64().unwrap();
        assert!(0 < part("kb_s_min") && part("kb_s_min") <= part("kb_s"), "{of}");
        assert!(part("kb_s") <= part("kb_s_max") && network["age_s"].is_u64(), "{of}");
        let of_device = |name: &str| measures[name]["kb_s"].as_u64().unwrap() as f64;
        let devices = (of_device("read") * 1.02 + of_device("write")) / 2.01;
        let free_kb = of["free_bytes"].as_u64().unwrap() as f64 / 1000.0;
        let score = free_kb * devices.min(part("kb_s") as f64);
        assert!((of["score"].as_u64().unwrap() as f64 / score - 1.0).abs() < 0.001, "{of}");
    }
    assert!(system.ok(&["system", "measure"]).contains("NETWORK MB/s"));
    let pool = system.json(&["pool", "query", "tank", "--verbose"]);
    assert!(pool["measures"].as_array().unwrap().iter().all(|of| of["network"].is_object()));
}

/// With an engine away, what '--json' printed was an array and then an error: no program could read it.
#[test]
fn what_could_not_be_measured_is_told_in_the_one_document() {
    let system = System::up(2, 1);
    system.ok(&["system", "stop", "--engine", "1"]);
    let output = system.run(&["--timeout", "5", "system", "measure", "--size", "8MiB", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", all_text(&output));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told.as_array().unwrap().len(), 2, "{told}");
    assert!(told[0]["error"].is_null() && told[1]["error"].is_string(), "{told}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("1 of 2 targets were not measured"), "{said}");
}
