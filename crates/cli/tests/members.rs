//! Engines that are killed, back, excluded: what the system says of them.

mod harness;

use harness::System;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::thread;
use std::time::Duration;

/// Waits until engine 1 has this state; what the system says of it then.
fn until(system: &System, state: &str) -> Value {
    loop {
        let engine = system.json(&["system", "list-engines"])[1].clone();
        if engine["state"] == state {
            return engine;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// With one engine of two dead, no pool could be made without naming targets, and nothing but the silence said why.
#[test]
fn an_engine_that_is_killed_is_down_until_it_is_back() {
    let system = System::up(2, 1);
    system.ok(&["pool", "create", "tank", "--size", "128MiB"]);
    let joined = until(&system, "up");
    let text = std::fs::read_to_string(system.dir().join("engine1/engine.pid")).unwrap();
    let pid = text.split_whitespace().next().unwrap().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let down = until(&system, "down");
    assert!(down["why"].as_str().unwrap().contains("no answer for"), "{down}");
    assert!(down["since_version"].as_u64() > joined["since_version"].as_u64(), "{down}");
    let told = system.ok(&["pool", "create", "small", "--size", "128MiB"]);
    assert!(told.contains("over 1 targets") && told.contains("Engine 1 left out"), "{told}");
    assert!(system.ok(&["system", "query"]).contains("Engine 1 is down since change"));
    system.ok(&["up"]);
    until(&system, "up");
    let told = system.ok(&["pool", "create", "large", "--size", "128MiB"]);
    assert!(told.contains("over 2 targets") && !told.contains("left out"), "{told}");

    system.ok(&["system", "exclude", "1", "--why", "a bad fan"]);
    let excluded = until(&system, "excluded");
    assert_eq!(excluded["why"], "a bad fan");
    let pool = system.json(&["pool", "query", "large"]);
    assert_eq!(pool["targets"][1]["reason"], "excluded");
    assert_eq!(pool["targets"][1]["since_map_version"], pool["map_version"]);
    let target = || system.json(&["pool", "query", "large"])["targets"][1].clone();
    system.ok(&["system", "clear-exclude", "1"]);
    until(&system, "up");
    // By itself, once it has caught up.
    while target()["state"] != "up" {
        thread::sleep(Duration::from_millis(100));
    }
    system.fails(3, &["no engine 9"], &["system", "exclude", "9"]);
}
