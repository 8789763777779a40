//! The control service goes from engine to engine: three processes, one etcd.

#[path = "../../control/tests/control/etcd_server.rs"]
#[allow(dead_code)]
mod etcd_server;
mod harness;
#[path = "harness/trio.rs"]
mod trio;

use etcd_server::EtcdServer;
use rustix::process::{Pid, Signal, kill_process};
use trio::{ENGINES, Trio};

/// The targets of all engines but one, as an argument.
fn targets_without(trio: &Trio, leader: usize) -> String {
    let mut targets = trio.targets();
    targets.remove(leader);
    targets.join(",")
}

#[test]
fn another_engine_takes_over_from_one_that_is_killed() {
    let Some(etcd) = EtcdServer::start() else { return };
    let trio = Trio::start(&etcd);
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
