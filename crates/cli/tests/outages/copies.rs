//! A container whose objects have copies, while engines are killed: everything goes on, and nothing is missed.

use crate::harness::{System, noise, until_health};
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
    let check = system.json(&["fs", "check", "azk://tank/home"]);
    assert_eq!(check["clean"], true, "{check}");
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

/// Runs a command until it prints all this.
fn until_said(system: &System, args: &[&str], parts: &[&str]) {
    while !parts.iter().all(|part| system.ok(args).contains(part)) {
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn what_is_lost_is_said_with_what_to_do() {
    let system = System::up(3, 2);
    system.ok(&["pool", "create", "tank", "--size", "900MiB"]);
    let class = ["--rd-fac", "1", "--oclass", "RP_2G1"];
    system.ok(&[&["cont", "create", "tank", "home"], &class[..]].concat());
    std::fs::write(system.path("file"), noise(1, 3_000_000)).unwrap();
    // A small file is where its name is. Engine 0 holds the catalog: it is another one that dies.
    let mut dirs = (0..).map(|number| format!("azk://tank/home/dir{number}"));
    let dir = dirs.find(|dir| {
        system.ok(&["fs", "mkdir", dir]);
        let stat = &system.json(&["fs", "stat", dir])[0];
        stat["groups"][0]["members"][0]["rank"] != 0
    });
    let url = &format!("{}/file", dir.unwrap());
    system.ok(&["fs", "cp", system.path("file").to_str().unwrap(), url]);
    system.ok(&["fs", "set-attr", "azk://tank/home/", "--oclass", "RP_3GX"]);
    system.ok(&["fs", "cp", system.path("file").to_str().unwrap(), "azk://tank/home/wide"]);

    assert_eq!(until_health(&system, &["HEALTHY: all 6 targets are up"]), Some(0));
    let stat = &system.json(&["fs", "stat", url])[0];
    assert_eq!((&stat["oclass"], &stat["copies"]), (&"RP_2G1".into(), &2.into()), "{stat}");
    let members = stat["groups"][0]["members"].as_array().unwrap();
    assert_eq!(members.len(), 2, "{stat}");
    assert_ne!(members[0]["rank"], members[1]["rank"], "{stat}");
    assert!(members.iter().all(|member| member["state"] == "up"), "{stat}");
    assert_eq!((&members[0]["leads"], &members[1]["leads"]), (&true.into(), &false.into()));
    let query = system.json(&["pool", "query", "tank", "--verbose"]);
    let home = &query["health"]["containers"][0];
    assert_eq!((&home["rd_fac"], &home["copies_left"]), (&1.into(), &2.into()), "{query}");
    assert!(query["members"].as_array().unwrap().len() == 6, "{query}");

    // The engine of the file's leader: another member leads then.
    let lost = members[0]["rank"].as_u64().unwrap();
    // Engines join in any order: ranks are not numbers of directories.
    let status = system.json(&["status"]);
    let mut engines = status["engines"].as_array().unwrap().iter();
    let pid = engines.find(|engine| engine["rank"] == lost).unwrap()["pid"].as_u64().unwrap();
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
    let who = format!("engine {lost} gives no answer");
    let what = format!("start engine {lost} again");
    let left = "some objects of home have one copy left";
    let parts = ["AT RISK: 2 of 6 targets are not whole", &who, left, &what];
    assert_eq!(until_health(&system, &parts), Some(1));
    // Once it is down in the map, and not only silent.
    let parts = ["2; 1 left", "down, gives no answer", "up, leads"];
    until_said(&system, &["fs", "stat", url], &parts);
    let parts = ["3 in each of 2 groups, on 6 targets; 2 groups have 2 copies left"];
    until_said(&system, &["fs", "stat", "--verbose", "azk://tank/home/wide"], &parts);
    until_said(&system, &["pool", "query", "tank"], &["Health", "AT RISK"]);

    // Of what has no copies, some is gone with the engine.
    system.ok(&["cont", "create", "tank", "bare", "--type", "plain", "--oclass", "S1"]);
    let parts = ["DATA UNAVAILABLE", "some objects of bare cannot be reached"];
    assert_eq!(until_health(&system, &parts), Some(6));
    heal(&system);
    assert_eq!(until_health(&system, &["HEALTHY"]), Some(0));
    system.fails(3, &["no pool 'else'"], &["pool", "health", "else"]);
}
