//! A container whose files have an erasure code, while engines are killed and others take their place.

use crate::harness::{System, noise};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::thread;
use std::time::Duration;

fn kill(system: &System, rank: u32) {
    // It fails where an engine is gone already.
    let output = system.run(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut engines = status["engines"].as_array().unwrap().iter();
    let engine = engines.find(|engine| engine["rank"] == rank).unwrap();
    let pid = engine["pid"].as_u64().unwrap() as i32;
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

fn tree(dir: &Path, seed: u64) {
    std::fs::create_dir_all(dir.join("a/b")).unwrap();
    for number in 0..12u64 {
        let bytes = [0, 10, 5_000, 131_072, 1_300_000, 3_000_000][number as usize % 6];
        std::fs::write(dir.join("a/b").join(format!("f{number}")), noise(seed + number, bytes))
            .unwrap();
    }
}

fn free(system: &System) -> u64 {
    let pool = system.json(&["pool", "query", "tank"]);
    pool["space"]["nvme_free_bytes"].as_u64().unwrap_or_else(|| panic!("{pool}"))
}

#[test]
fn coded_files_take_less_room_and_outlive_engines() {
    let system = System::up(4, 1);
    system.ok(&["pool", "create", "tank", "--size", "900MiB"]);
    let create = ["cont", "create", "tank", "home", "--rd-fac", "1", "--file-oclass", "EC_2P1GX"];
    system.ok(&create);
    let (first, second) = (system.path("first"), system.path("second"));
    tree(&first, 1);
    tree(&second, 100);
    let url = |name: &str| format!("azk://tank/home/{name}");
    let put = |from: &Path, to: &str| {
        system.ok(&["fs", "cp", "-rT", "--verify", from.to_str().unwrap(), &url(to)]);
    };
    let get = |from: &str, expected: &Path| {
        let back = system.path("back");
        system.ok(&["fs", "cp", "-rT", &url(from), back.to_str().unwrap()]);
        let diff = std::process::Command::new("diff").arg("-r").args([&back, expected]).output();
        let diff = diff.unwrap();
        assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
        std::fs::remove_dir_all(back).unwrap();
    };
    let before = free(&system);
    std::fs::write(system.path("big"), noise(7, 32 << 20)).unwrap();
    system.ok(&["fs", "cp", system.path("big").to_str().unwrap(), &url("big")]);
    // Two copies first, then cells: half as much as the file beside it.
    while before - free(&system) > (50 << 20) {
        thread::sleep(Duration::from_millis(100));
    }
    // What would it take in other classes?
    let advice = system.json(&["fs", "advise", "azk://tank/home"]);
    assert_eq!(advice["data_bytes"], 32 << 20, "{advice}");
    assert_eq!(advice["now_bytes"], 48 << 20, "{advice}");
    assert_eq!(advice["now"]["EC_2P1GX"], 1, "{advice}");
    let row = |class: &str| {
        let rows = advice["classes"].as_array().unwrap();
        rows.iter().find(|row| row["class"] == class).unwrap().clone()
    };
    assert_eq!(row("EC_2P1GX")["bytes"], 48 << 20, "{advice}");
    assert_eq!(row("RP_3GX")["bytes"], 96 << 20, "{advice}");
    assert_eq!(row("RP_3GX")["refused"], serde_json::Value::Null, "{advice}");
    // Weaker than the container demands; wider than the pool.
    assert!(row("SX")["refused"].as_str().unwrap().contains("rd_fac"), "{advice}");
    assert!(row("EC_4P1GX")["refused"].as_str().unwrap().contains("needs 5 targets"), "{advice}");
    assert!(system.ok(&["fs", "advise", "azk://tank/home"]).contains("1 files in 1 directories"));
    put(&first, "one");
    let stat = &system.json(&["fs", "stat", &url("big")])[0];
    assert_eq!(stat["oclass"], "EC_2P1GX", "{stat}");
    let group = &stat["groups"][0];
    assert_eq!(group["members"].as_array().unwrap().len(), 2, "{stat}");
    assert_eq!(group["cells"].as_array().unwrap().len(), 3, "{stat}");
    let shown = system.ok(&["fs", "stat", &url("big")]);
    assert!(shown.contains("3 cells of each stripe") && shown.contains("cell 2"), "{shown}");
    kill(&system, 2);
    get("one", &first);
    put(&second, "two");
    get("two", &second);
    system.ok(&["fs", "cp", &url("big"), system.path("again").to_str().unwrap()]);
    assert_eq!(std::fs::read(system.path("again")).unwrap(), noise(7, 32 << 20));
    // Others take the place of the one that is gone, so that another one may go.
    system.ok(&["pool", "exclude", "tank", "--rank", "2"]);
    system.ok(&["pool", "rebuild", "status", "tank", "--wait"]);
    kill(&system, 3);
    get("one", &first);
    get("two", &second);
    system.ok(&["fs", "cp", &url("big"), system.path("later").to_str().unwrap()]);
    assert_eq!(std::fs::read(system.path("later")).unwrap(), noise(7, 32 << 20));
    system.ok(&["up"]);
    let check = system.json(&["fs", "check", "azk://tank/home"]);
    assert_eq!(check["clean"], true, "{check}");
}
