//! The directory of the engine with the catalog is lost: the catalog is made anew from what the others keep.

mod harness;

use harness::System;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Waits until an engine's copy of the catalog, which is text inside, has a container of this name.
fn wait_for_copy(dir: &Path, label: &str) {
    let wanted = format!("\"label\":\"{label}\"");
    loop {
        let raw = fs::read(dir.join("catalog-copy.0")).unwrap_or_default();
        if raw.windows(wanted.len()).any(|part| part == wanted.as_bytes()) {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn kill(dir: &Path) {
    let text = fs::read_to_string(dir.join("engine.pid")).unwrap();
    let pid: i32 = text.split_whitespace().next().unwrap().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    while Path::new(&format!("/proc/{pid}/exe")).exists() {
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_system_goes_on_after_its_catalog_was_lost() {
    let system = System::up(3, 1);
    let dirs: Vec<PathBuf> = (0..3).map(|at| system.dir().join(format!("engine{at}"))).collect();
    system.ok(&["pool", "create", "tank", "--size", "384MiB"]);
    system.ok(&["cont", "create", "tank", "home", "--rd-fac", "1"]);
    let put = |round: usize| {
        let file = system.path("file");
        fs::write(&file, format!("round {round}")).unwrap();
        let name = format!("azk://tank/home/{round}");
        system.ok(&["fs", "put", file.to_str().unwrap(), &name]);
    };
    let check = |rounds: std::ops::Range<usize>| {
        for round in rounds {
            let text = system.ok(&["fs", "cat", &format!("azk://tank/home/{round}")]);
            assert_eq!(text, format!("round {round}"));
        }
    };
    (0..10).for_each(put);
    let uuid = system.json(&["system", "query"])["uuid"].clone();
    dirs[1..].iter().for_each(|dir| wait_for_copy(dir, "home"));

    // All that is left of engine 0 is its target and its configuration.
    kill(&dirs[0]);
    for entry in fs::read_dir(&dirs[0]).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() && path.file_name().unwrap() != "engine.toml" {
            fs::remove_file(path).unwrap();
        }
    }
    let config = dirs[0].join("engine.toml");
    let recover = |more: &[&str]| -> Vec<String> {
        let args = ["system", "recover", "--config", config.to_str().unwrap()];
        let from = ["--from", dirs[1].to_str().unwrap(), "--from", dirs[2].to_str().unwrap()];
        args.iter().chain(&from).chain(more).map(ToString::to_string).collect()
    };
    let nothing = system.scratch.path().to_str().unwrap();
    system.fails(3, &["no catalog-copy"], &recover(&["--from", nothing]));
    system.fails(3, &["no engine 7"], &recover(&["--rank", "7"]));
    system.fails(2, &["engine 0"], &recover(&["--rank", "1"]));
    kill(&dirs[2]);
    system.fails(6, &["is to say what", "--force"], &recover(&[]));
    assert!(!dirs[0].join("catalog.0").exists() && !dirs[0].join("engine.id").exists());
    let args = recover(&["--force"]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let report = system.json(&args);
    assert_eq!((&report["rank"], &report["system"]), (&0.into(), &uuid), "{report}");
    assert_eq!((&report["pools"], &report["containers"]), (&1.into(), &1.into()), "{report}");
    assert!(report["notes"].to_string().contains("gave no answer"), "{report}");
    system.fails(4, &["holds a system already"], &recover(&["--force"]));

    system.ok(&["up", "--wait", "600"]);
    let query = system.json(&["system", "query"]);
    assert_eq!((&query["uuid"], query["engines"].as_array().unwrap().len()), (&uuid, 3), "{query}");
    check(0..10);
    // No number of an object is given out twice.
    (10..20).for_each(put);
    check(0..20);
    system.ok(&["cont", "create", "tank", "more"]);
    let is_up = |target: &serde_json::Value| target["state"] == "up";
    while !system.json(&["pool", "query", "tank"])["targets"].as_array().unwrap().iter().all(is_up)
    {
        thread::sleep(Duration::from_millis(200));
    }
    assert!(system.ok(&["fs", "check", "azk://tank/home"]).contains("no problems"));
}
