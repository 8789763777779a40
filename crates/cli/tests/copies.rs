//! A container whose objects have copies, while engines are killed: everything goes on, and nothing is missed.

mod harness;

use harness::{System, noise};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::thread;
use std::time::Duration;

fn kill(system: &System, engine: u32) {
    let path = system.dir().join(format!("engine{engine}/engine.pid"));
    let text = std::fs::read_to_string(path).unwrap();
    let pid: i32 = text.split_whitespace().next().unwrap().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

/// Starts what was killed, and waits until all targets are whole.
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

fn tree(dir: &Path, seed: u64) {
    for below in ["a", "a/b", "c"] {
        std::fs::create_dir_all(dir.join(below)).unwrap();
        for number in 0..12u64 {
            let bytes = [0, 10, 700, 5_000, 70_000, 1_300_000][number as usize % 6];
            let name = dir.join(below).join(format!("f{number}"));
            std::fs::write(name, noise(seed * 100 + number, bytes)).unwrap();
        }
    }
}

fn same(a: &Path, b: &Path) {
    let diff = std::process::Command::new("diff").arg("-r").args([a, b]).output().unwrap();
    assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
}

#[test]
fn files_with_copies_outlive_engines_that_are_killed() {
    let system = System::up(3, 1);
    system.ok(&["pool", "create", "tank", "--size", "900MiB"]);
    let weaker = ["cont", "create", "tank", "bad", "--rd-fac", "1", "--oclass", "S1"];
    system.fails(2, &["S1", "rd_fac"], &weaker);
    system.ok(&["cont", "create", "tank", "home", "--rd-fac", "1"]);
    let (first, second) = (system.path("first"), system.path("second"));
    tree(&first, 1);
    tree(&second, 2);
    let url = |name: &str| format!("azk://tank/home/{name}");
    let put = |from: &Path, to: &str| {
        system.ok(&["fs", "cp", "-rT", "--verify", from.to_str().unwrap(), &url(to)]);
    };
    let get = |from: &str, expected: &Path| {
        let back = system.path("back");
        system.ok(&["fs", "cp", "-rT", &url(from), back.to_str().unwrap()]);
        same(&back, expected);
        std::fs::remove_dir_all(back).unwrap();
    };
    put(&first, "one");
    put(&first, "gone");
    kill(&system, 2);
    get("one", &first);
    put(&second, "two");
    system.ok(&["fs", "rm", "-r", &url("gone")]);
    heal(&system);
    // What was written while it was away has its second copy with the one that was away.
    kill(&system, 1);
    get("one", &first);
    get("two", &second);
    put(&second, "one");
    heal(&system);
    kill(&system, 2);
    get("two", &second);
    heal(&system);
    get("two", &second);
    let listed = system.ok(&["fs", "ls", "azk://tank/home"]);
    assert!(!listed.contains("gone"), "{listed}");
    let check = system.json(&["fs", "check", "azk://tank/home"]);
    assert_eq!(check["clean"], true, "{check}");
}
