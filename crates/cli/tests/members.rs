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

    // What happened is told afterwards, in its order, by the engine that noticed it.
    let events = |args: &[&str]| {
        let told = system.json(&[&["system", "events"], args].concat());
        told.as_array().unwrap().clone()
    };
    let all = events(&[]);
    let of_engine = |event: &&Value| event["engine"] == 1 && event["by"] == 0;
    let codes: Vec<&str> =
        all.iter().filter(of_engine).map(|event| event["code"].as_str().unwrap()).collect();
    let wanted = ["engine-joined", "engine-down", "engine-up", "engine-excluded", "engine-up"];
    let mut rest = codes.iter();
    assert!(wanted.iter().all(|code| rest.any(|told| told == code)), "{all:?}");
    let excluded = all.iter().find(|event| event["code"] == "engine-excluded").unwrap();
    assert!(excluded["what"].as_str().unwrap().contains("a bad fan"), "{excluded}");
    assert!(excluded["to_do"].as_str().unwrap().contains("clear-exclude"), "{excluded}");
    // One that was killed goes on with what it had noticed before.
    let own = events(&["--engine", "1", "--code", "engine-started"]);
    let numbers: Vec<u64> = own.iter().map(|event| event["number"].as_u64().unwrap()).collect();
    assert!(numbers.len() == 2 && numbers[0] < numbers[1], "{own:?}");
    let down = events(&["--severity", "error", "--since", "1h"]);
    assert!(down.iter().any(|event| event["code"] == "engine-down"), "{down:?}");
    assert!(down.iter().all(|event| event["severity"] == "error"), "{down:?}");
    assert_eq!(events(&["--since", "2099-01-01T00:00:00Z"]).len(), 0);
    // Who comes with a wrong secret is seen.
    let token = system.path("token");
    std::fs::write(&token, "guessed").unwrap();
    let address = system.json(&["system", "list-engines"])[0]["tcp"].as_str().unwrap().to_string();
    let mut stranger = harness::azekura();
    stranger.args(["--system", &format!("tcp://{address}"), "pool", "list"]);
    let output = stranger.env("AZEKURA_TOKEN_FILE", &token).output().unwrap();
    assert_eq!(output.status.code(), Some(8), "{}", harness::all_text(&output));
    let refused = events(&["--code", "caller-refused"]);
    assert_eq!(refused[0]["object"], "127.0.0.1", "{refused:?}");
    let text = system.ok(&["system", "events", "--code", "caller-refused"]);
    assert!(text.contains("warning") && text.contains("-> If it should be let in"), "{text}");
    system.fails(2, &["there are engine-started"], &["system", "events", "--code", "nonsense"]);
    system.fails(3, &["list-engines"], &["system", "events", "--engine", "9"]);

    // An engine that does not run has left them in its directory.
    system.ok(&["down"]);
    let dir = system.dir().join("engine0").display().to_string();
    let kept = events(&["--from-dir", &dir]);
    let last = kept.last().unwrap();
    assert_eq!(last["code"], "engine-stopping", "{last}");
    assert!(kept.iter().any(|event| event["code"] == "engine-down"), "{kept:?}");
}
