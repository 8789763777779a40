//! An engine that stays away: others come to stand in for it, a second one may die then, and nothing is left over when they are back.

use crate::harness::{System, noise, until_health};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Rank and process of each engine.
fn engines(system: &System) -> Vec<(u64, Pid)> {
    let status = system.json(&["status"]);
    let engine = |engine: &serde_json::Value| {
        let pid = engine["pid"].as_u64().unwrap() as i32;
        (engine["rank"].as_u64().unwrap(), Pid::from_raw(pid).unwrap())
    };
    status["engines"].as_array().unwrap().iter().map(engine).collect()
}

fn until_rebuild(system: &System, what: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
    loop {
        let report = system.json(&["pool", "rebuild", "status", "tank"]);
        if what(&report) {
            return report;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

fn objects(system: &System) -> u64 {
    system.json(&["pool", "query", "tank"])["space"]["objects"].as_u64().unwrap()
}

fn tree(dir: &Path) {
    for below in ["a", "a/b", "c"] {
        std::fs::create_dir_all(dir.join(below)).unwrap();
        for number in 0..8u64 {
            let bytes = [0, 10, 700, 5_000, 70_000, 1_300_000][number as usize % 6];
            std::fs::write(dir.join(below).join(format!("f{number}")), noise(number, bytes))
                .unwrap();
        }
    }
}

#[test]
fn others_stand_in_for_engines_that_stay_away_and_give_it_back() {
    let system = System::up(4, 1);
    // Those that start from now on wait two seconds, not a minute.
    system.ok(&["down"]);
    for engine in 0..4 {
        let path = system.dir().join(format!("engine{engine}/engine.toml"));
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.insert_str(0, "rebuild_after_s = 2\n");
        std::fs::write(&path, text).unwrap();
    }
    system.ok(&["up"]);
    system.ok(&["pool", "create", "tank", "--size", "1GiB"]);
    system.ok(&["cont", "create", "tank", "home", "--rd-fac", "1"]);
    let (first, url) = (system.path("first"), "azk://tank/home/one");
    tree(&first);
    system.ok(&["fs", "cp", "-rT", "--verify", first.to_str().unwrap(), url]);
    let get = || {
        let back = system.path("back");
        system.ok(&["fs", "cp", "-rT", url, back.to_str().unwrap()]);
        let diff =
            std::process::Command::new("diff").arg("-r").args([&first, &back]).output().unwrap();
        assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
        std::fs::remove_dir_all(back).unwrap();
    };
    let before = objects(&system);
    assert_eq!(until_rebuild(&system, |_| true)["state"], "idle");

    // The one with the catalog stays; of the others two die, one after the other.
    let mut engines = engines(&system).into_iter().filter(|(rank, _)| *rank != 0);
    let mut kill_one = || kill_process(engines.next().unwrap().1, Signal::KILL).unwrap();
    kill_one();
    let done = until_rebuild(&system, |report| report["state"] == "done");
    assert_eq!(done["out"].as_array().unwrap().len(), 1, "{done}");
    let parts = [
        "HEALTHY: all objects have all copies; 1 of 4 targets is away",
        "others stand in for target",
    ];
    assert_eq!(until_health(&system, &parts), Some(0));
    get();
    // Written while it is away, also what replaces older files.
    std::fs::write(first.join("a/f1"), noise(77, 300_000)).unwrap();
    std::fs::write(first.join("new"), noise(78, 40_000)).unwrap();
    std::fs::remove_file(first.join("c/f4")).unwrap();
    system.ok(&["fs", "rm", "azk://tank/home/one/c/f4"]);
    system.ok(&["fs", "cp", "-rT", "--verify", first.to_str().unwrap(), url]);
    kill_one();
    until_rebuild(&system, |report| {
        report["state"] == "done" && report["out"].as_array().unwrap().len() == 2
    });
    get();

    // Back: they take their places again, and those that stood in drop what they held for them.
    system.ok(&["up"]);
    system.ok(&["pool", "rebuild", "status", "tank", "--wait"]);
    until_rebuild(&system, |report| report["state"] == "idle");
    assert_eq!(until_health(&system, &["HEALTHY: all 4 targets are up"]), Some(0));
    get();
    let check = system.json(&["fs", "check", "azk://tank/home"]);
    assert_eq!(check["clean"], true, "{check}");
    let moves = ["system", "events", "--code", "rebuild-begun", "--code", "rebuild-ended"];
    let told = system.json(&moves);
    let codes: Vec<&str> =
        told.as_array().unwrap().iter().map(|event| event["code"].as_str().unwrap()).collect();
    assert_eq!((codes[0], codes[codes.len() - 1]), ("rebuild-begun", "rebuild-ended"), "{told}");
    assert!(codes.iter().filter(|code| **code == "rebuild-ended").count() >= 2, "{told}");
    // One object went with a small file, one came with another.
    let mut looks = 0;
    while objects(&system) != before {
        looks += 1;
        assert!(looks < 1200, "{} objects, not {before} as before", objects(&system));
        thread::sleep(Duration::from_millis(100));
    }
}
