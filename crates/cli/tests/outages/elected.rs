//! The control service goes from engine to engine: three processes, one etcd.

use crate::etcd_server::EtcdServer;
use crate::harness::{all_text, azekura};
use crate::trio::{ENGINES, Trio, config};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The targets of all engines but one, as an argument.
fn targets_without(trio: &Trio, leader: usize) -> String {
    let mut targets = trio.targets();
    targets.remove(leader);
    targets.join(",")
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).output().unwrap();
    assert!(copied.status.success(), "{}", all_text(&copied));
    for mark in ["engine.pid", "engine.sock"] {
        fs::remove_file(to.join(mark)).unwrap();
    }
}

/// Starts an engine that must not run; what it says.
fn refused(dir: &Path) -> String {
    let mut engine = azekura();
    engine.args(["engine", "--config"]).arg(dir.join("engine.toml"));
    let output = engine.output().unwrap();
    assert!(!output.status.success(), "{}", all_text(&output));
    all_text(&output)
}

/// An engine's directory that was copied took the place of the one it was copied from, with the same rank. One that was of
/// another system was taken in with its data; and one found an empty place, and began a system there.
fn impostors_are_refused(trio: &Trio, etcd: &EtcdServer) {
    let endpoints = [etcd.endpoint()];
    let double = trio.scratch.path().join("double");
    copy(&trio.dir(1), &double);
    fs::write(double.join("engine.toml"), config(&double, &endpoints, "azekura")).unwrap();
    let said = refused(&double);
    assert!(said.contains("runs already") && said.contains("copied"), "{said}");

    // The same engine, and so the same store, with its catalog looked for where another system has its own, and where there is none.
    let other = trio.scratch.path().join("other");
    fs::create_dir_all(other.join("t")).unwrap();
    fs::write(other.join("engine.toml"), config(&other, &endpoints, "second")).unwrap();
    let mut engine = azekura();
    let mut engine =
        engine.args(["engine", "--config"]).arg(other.join("engine.toml")).spawn().unwrap();
    while !other.join("engine.system").exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    for prefix in ["second", "third"] {
        fs::write(double.join("engine.toml"), config(&double, &endpoints, prefix)).unwrap();
        let said = refused(&double);
        assert!(said.contains("is one of system"), "{said}");
    }
    kill_process(Pid::from_child(&engine), Signal::TERM).unwrap();
    assert!(engine.wait().unwrap().success());
    // A store of one engine in the configuration of another.
    fs::remove_dir_all(other.join("t")).unwrap();
    let moved = Command::new("mv").args([double.join("t"), other.join("t")]).status().unwrap();
    assert!(moved.success());
    let said = refused(&other);
    assert!(said.contains("of engine"), "{said}");
    let status = trio.status_at(0);
    assert_eq!(status["engines"].as_array().unwrap().len(), ENGINES, "{status}");
}

#[test]
fn another_engine_takes_over_from_one_that_is_killed() {
    let Some(etcd) = EtcdServer::start() else { return };
    let trio = Trio::start(&etcd);
    impostors_are_refused(&trio, &etcd);
    trio.make(|| trio.command(&["pool", "create", "all", "--size", "192MiB"]));
    let leader = trio.leader_at(0);
    for at in 0..ENGINES {
        assert_eq!(trio.leader_at(at), leader, "all say the same");
    }
    let others = targets_without(&trio, leader);
    trio.kill(leader);
    let create = ["pool", "create", "two", "--size", "128MiB", "--targets", &others];
    trio.make(|| trio.command(&create));
    trio.make(|| trio.command(&["cont", "create", "two", "home"]));
    assert_ne!(trio.leader_at((leader + 1) % ENGINES), leader);
    // Back, it is one like the others.
    trio.spawn(leader);
    trio.wait(leader);
    trio.make(|| trio.command(&["pool", "create", "again", "--size", "192MiB"]));
    trio.make(|| trio.command_at(leader, &["cont", "create", "again", "home"]));
    // Each has kept that it held the control service, the one that was killed, too.
    let text = trio.ok(&["system", "events", "--code", "service-taken", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    let by = |at: usize| told[at]["by"].as_u64().unwrap();
    assert!(told.as_array().unwrap().len() >= 2 && by(0) != by(1), "{told}");
}

/// An engine that stood still came back believing that it held the control service: it went on
/// answering until its first commit was refused, and had to be restarted then.
#[test]
fn an_engine_that_stood_still_steps_down() {
    let Some(etcd) = EtcdServer::start() else { return };
    let trio = Trio::start(&etcd);
    trio.make(|| trio.command(&["pool", "create", "all", "--size", "192MiB"]));
    let leader = trio.leader_at(0);
    let others = targets_without(&trio, leader);
    let pid = Pid::from_raw(trio.pid(leader) as i32).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let other = (leader + 1) % ENGINES;
    let create = ["pool", "create", "two", "--size", "128MiB", "--targets", &others];
    trio.make(|| trio.command_at(other, &create));
    kill_process(pid, Signal::CONT).unwrap();
    // It knows what was made meanwhile, and who made it.
    let status = trio.status_at(leader);
    let labels: Vec<&str> =
        status["pools"].as_array().unwrap().iter().map(|p| p["label"].as_str().unwrap()).collect();
    assert_eq!(labels, ["all", "two"]);
    trio.make(|| trio.command_at(leader, &["cont", "create", "two", "home"]));
    trio.make(|| trio.command_at(leader, &["cont", "create", "all", "home"]));
    assert!(trio.log(leader).contains("another engine has taken the control service over"));
}
