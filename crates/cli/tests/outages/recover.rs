//! The directory of the engine with the catalog is lost: the catalog is made anew from what the others keep.

use crate::harness::System;
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
    let system = System::none();
    system.ok(&["up", "--engines", "3", "--targets", "2", "--rate-max", "400MiB,20MiB"]);
    let dirs: Vec<PathBuf> = (0..3).map(|at| system.dir().join(format!("engine{at}"))).collect();
    let create = ["pool", "create", "tank", "--size", "256MiB", "--targets", "0,1,2,3"];
    system.ok(&[&create[..], &["--placement", "score"]].concat());
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
    // Weights by speed, shares that have moved to a second epoch, and further ones that have not: placing an object by other ones than it
    // was placed by would be losing it.
    system.ok(&["pool", "extend", "tank"]);
    system.ok(&["pool", "balance", "start", "tank", "--keep-weights"]);
    assert_eq!(system.json(&["pool", "balance", "status", "tank", "--wait"])["state"], "even");
    system.ok(&["pool", "set-prop", "tank", "placement=equal"]);
    system.ok(&["pool", "rebuild", "stop", "tank"]);
    system.ok(&["pool", "balance", "start", "tank"]);
    system.ok(&["pool", "balance", "stop", "tank"]);
    system.ok(&["pool", "rebuild", "start", "tank"]);
    (10..14).for_each(put);
    let shares = || {
        let status = system.json(&["pool", "balance", "status", "tank"]);
        let of = |name: &str| {
            let targets = status["targets"].as_array().unwrap();
            targets.iter().map(|target| target[name].clone()).collect::<Vec<_>>()
        };
        let epochs = ["balanced_epoch", "newest_epoch", "is_stopped"].map(|of| status[of].clone());
        (epochs, of("share_percent"), of("share_percent_then"))
    };
    let placed = shares();
    assert_eq!(serde_json::json!(placed.0), serde_json::json!([1, 2, true]), "{placed:?}");
    assert_ne!(placed.1, placed.2, "devices differ");
    system.ok(&["cont", "create", "tank", "last"]);
    let uuid = system.json(&["system", "query"])["uuid"].clone();
    dirs[1..].iter().for_each(|dir| wait_for_copy(dir, "last"));

    // All that is left of engine 0 is its targets and its configuration.
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
    assert_eq!((&report["pools"], &report["containers"]), (&1.into(), &2.into()), "{report}");
    assert!(report["notes"].to_string().contains("gave no answer"), "{report}");
    system.fails(4, &["holds a system already"], &recover(&["--force"]));

    system.ok(&["up", "--wait", "600"]);
    let query = system.json(&["system", "query"]);
    assert_eq!((&query["uuid"], query["engines"].as_array().unwrap().len()), (&uuid, 3), "{query}");
    check(0..14);
    // No number of an object is given out twice.
    (14..24).for_each(put);
    check(0..24);
    system.ok(&["cont", "create", "tank", "more"]);
    let is_up = |target: &serde_json::Value| target["state"] == "up";
    while !system.json(&["pool", "query", "tank"])["targets"].as_array().unwrap().iter().all(is_up)
    {
        thread::sleep(Duration::from_millis(200));
    }
    assert!(system.ok(&["fs", "check", "azk://tank/home"]).contains("no problems"));
    // Weights, epochs, and how far data have moved to them are what they were; they move on when somebody wants it.
    assert_eq!(shares(), placed);
    system.ok(&["pool", "balance", "start", "tank", "--keep-weights"]);
    let even = system.json(&["pool", "balance", "status", "tank", "--wait"]);
    assert_eq!((&even["state"], &even["balanced_epoch"]), (&"even".into(), &2.into()), "{even}");
    check(0..24);
}
