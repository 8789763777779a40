//! Engines that stop in order: where there are copies nobody waits, where there are none everybody does, as before.

use crate::harness::{System, all_text, noise};
use std::fs;
use std::thread;
use std::time::Duration;

/// Starts what has stopped, and waits until all targets are whole.
fn heal(system: &System) {
    system.ok(&["up"]);
    loop {
        let pool = system.json(&["pool", "query", "tank"]);
        if pool["targets"].as_array().unwrap().iter().all(|target| target["state"] == "up") {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// An engine that was stopped for an upgrade found that out by its silence: for five seconds clients waited for
/// what it led. Here silence tells nothing: it would take an hour.
#[test]
fn nobody_waits_for_an_engine_that_has_stopped_where_there_are_copies() {
    let system = System::up(3, 1);
    system.ok(&["down"]);
    for engine in 0..3 {
        let path = system.dir().join(format!("engine{engine}/engine.toml"));
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, format!("down_after_s = 3600\n{text}")).unwrap();
    }
    system.ok(&["up"]);
    system.ok(&["pool", "create", "tank", "--size", "900MiB"]);
    system.ok(&["cont", "create", "tank", "home", "--rd-fac", "1"]);
    let (file, back) = (system.path("file"), system.path("back"));
    let patient = |args: &[&str]| system.ok(&[&["--timeout", "3600"], args].concat());
    let put = |round: u64| {
        for number in 0..10 {
            fs::write(&file, noise(round * 10 + number, 1000 + 70_000 * number as usize)).unwrap();
            let url = format!("azk://tank/home/{round}-{number}");
            patient(&["fs", "put", file.to_str().unwrap(), &url]);
        }
    };
    let check = |rounds: u64| {
        let _ = fs::remove_dir_all(&back);
        patient(&["fs", "cp", "-rT", "azk://tank/home", back.to_str().unwrap()]);
        for (round, number) in (0..rounds).flat_map(|round| (0..10).map(move |n| (round, n))) {
            let found = fs::read(back.join(format!("{round}-{number}"))).unwrap();
            assert!(found == noise(round * 10 + number, 1000 + 70_000 * number as usize));
        }
    };
    put(0);
    for (round, engine) in [(1, 2), (2, 1)] {
        let told = system.ok(&["system", "stop", "--engine", &engine.to_string()]);
        assert_eq!(told, format!("Engine {engine} is stopped.\n"));
        // It has gone on without an answer if that took long; its word is heard all the same.
        loop {
            let pool = system.json(&["pool", "query", "tank"]);
            let target = &pool["targets"][engine];
            if target["reason"] == "stopped" {
                assert_eq!(target["state"], "down");
                break;
            }
            thread::sleep(Duration::from_millis(100));
        }
        let member = system.json(&["system", "list-engines"])[engine].clone();
        assert_eq!((&member["state"], &member["why"]), (&"stopped".into(), &"stopped".into()));
        put(round);
        check(round + 1);
        heal(&system);
        check(round + 1);
    }
    // With the one that has the catalog nobody is left to ask what is so now; what was told before is enough.
    system.ok(&["system", "stop", "--engine", "0"]);
    put(3);
    check(4);
    heal(&system);
    check(4);
    let clean = system.json(&["fs", "check", "azk://tank/home"]);
    assert_eq!(clean["clean"], true, "{clean}");

    // Where all stop nobody is told; who starts compares what it has with the others.
    let stopped = system.json(&["system", "stop", "--all"]);
    assert_eq!(stopped["stopped"].as_array().unwrap().len(), 3, "{stopped}");
    heal(&system);
    check(4);
    system.fails(3, &["no engine 9"], &["system", "stop", "--engine", "9"]);
    system.fails(2, &["--engine"], &["system", "stop"]);
}

/// What has no copy nobody else can serve: its clients wait, and go on when the engine is back.
#[test]
fn clients_wait_for_an_engine_that_has_stopped_where_there_are_no_copies() {
    let system = System::with_home();
    let file = system.path("file");
    fs::write(&file, noise(7, 3 << 20)).unwrap();
    for round in 0..2 {
        system.ok(&["system", "stop", "--engine", "1"]);
        let put = |number: u32| {
            let url = format!("azk://tank/home/{round}-{number}");
            let put = ["--timeout", "3600", "fs", "put", file.to_str().unwrap(), &url];
            system.command(&put).stdout(std::process::Stdio::piped()).spawn().unwrap()
        };
        let puts: Vec<_> = (0..4).map(put).collect();
        heal(&system);
        for put in puts {
            let output = put.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", all_text(&output));
        }
    }
    let back = system.path("back");
    system.ok(&["fs", "cp", "-rT", "azk://tank/home", back.to_str().unwrap()]);
    for entry in fs::read_dir(&back).unwrap() {
        assert!(fs::read(entry.unwrap().path()).unwrap() == noise(7, 3 << 20));
    }
    assert_eq!(fs::read_dir(&back).unwrap().count(), 8);
}
