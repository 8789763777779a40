//! Coordinators that are not there, die, come back, say nothing, or refuse.

use std::time::Instant;

use preload::harness::RUN_TIME_MAX;

use crate::harness::{BYTES, Coordinator, c_command, data, finish, run, start};

/// Ten writes of a block by `dd`, which says at its end how much it wrote.
fn dd(coordinator: &Coordinator, name: &str) -> std::process::Command {
    std::fs::write(coordinator.dir().join("input"), data(10 * BYTES)).unwrap();
    let mut command = coordinator.command("dd");
    command.args(["if=input", &format!("of={name}"), &format!("bs={BYTES}")]);
    command.args(["conv=notrunc", "oflag=append"]);
    command
}

#[test]
fn without_a_coordinator_everything_goes_on() {
    let coordinator = Coordinator::absent_until_started(1, |_| true);
    let log = coordinator.dir().join("log");
    let mut command = dd(&coordinator, "output");
    command.env("AZEKURA_IOC_LOG", &log).env("AZEKURA_IOC_SUMMARY", "1");
    run(command);
    assert!(coordinator.file("output") == data(10 * BYTES));
    let log = String::from_utf8(coordinator.file("log")).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert!(lines[0].contains("\"event\":\"failed\"") && lines[0].contains("connecting"), "{log}");
    assert_eq!(lines.len(), 2, "one attempt, then a pause; {log}");
    assert!(lines[1].contains("\"failed\":1") && lines[1].contains("\"pausing\":9"), "{log}");
}

#[test]
fn a_coordinator_that_comes_later_is_found() {
    let coordinator = Coordinator::absent_until_started(1, |_| true);
    let mut command = c_command(&coordinator, "threads", "threads");
    command.env("AZEKURA_IOC_BACKOFF", "0").env("AZEKURA_IOC_BACKOFF_MAX", "0");
    run(command);
    assert_eq!(coordinator.writes().len(), 0);
    coordinator.start();
    run(c_command(&coordinator, "threads", "threads"));
    assert_eq!(coordinator.writes().len(), 40);
}

/// A coordinator that takes requests and never answers costs each program one time-out.
#[test]
fn a_stuck_coordinator_costs_one_time_out() {
    let coordinator = Coordinator::judging(1, |_| {
        loop {
            std::thread::park();
        }
    });
    let mut command = dd(&coordinator, "output");
    command.env("AZEKURA_IOC_TIMEOUT", "50ms").env("AZEKURA_IOC_BACKOFF", "1h");
    command.env("AZEKURA_IOC_BACKOFF_MAX", "1h");
    run(command);
    assert!(coordinator.file("output") == data(10 * BYTES));
    assert_eq!(coordinator.writes().len(), 1, "asked once, then left alone");
}

/// One that is alive and never grants costs the longest wait each time, and stays connected.
#[test]
fn an_endless_queue_is_left_after_the_longest_wait() {
    let coordinator = Coordinator::judging(1, |_| false);
    let mut command = dd(&coordinator, "output");
    command.env("AZEKURA_IOC_WAIT_MAX", "10ms");
    run(command);
    assert!(coordinator.file("output") == data(10 * BYTES));
    let seen = coordinator.seen();
    assert_eq!((seen.asked.len(), seen.hellos.len()), (10, 1));
}

#[test]
fn a_coordinator_that_dies_and_comes_back_loses_nothing() {
    let coordinator = Coordinator::granting(1);
    // A writer that takes as long as the test likes: it copies what it is given.
    let mut command = coordinator.command("dd");
    command.args(["of=output", &format!("bs={BYTES}"), "iflag=fullblock"]);
    command.env("AZEKURA_IOC_BACKOFF", "1ms").env("AZEKURA_IOC_BACKOFF_MAX", "1ms");
    let mut child = start(command);
    let mut stdin = child.stdin.take().unwrap();
    let block = data(BYTES);
    let mut put = || std::io::Write::write_all(&mut stdin, &block).unwrap();
    for round in 0..4 {
        // A call may go by: the coordinator is looked for, or the machine stood still for longer
        // than the library waits. Blocks come until one has asked, however many that takes.
        let deadline = Instant::now() + RUN_TIME_MAX;
        let before = coordinator.seen().done.len();
        while coordinator.seen().done.len() == before {
            assert!(Instant::now() < deadline, "no call asks the coordinator in round {round}");
            put();
        }
        if round < 3 {
            coordinator.stop();
            (0..3).for_each(|_| put());
            coordinator.start();
        }
    }
    drop(stdin);
    finish(child);
    let output = coordinator.file("output");
    assert_eq!(output.len() % BYTES, 0);
    assert!(output.chunks(BYTES).all(|chunk| chunk == block), "a block is damaged");
}

#[test]
fn a_dead_coordinator_wakes_those_who_wait() {
    let coordinator = Coordinator::judging(1, |_| false);
    let mut command = c_command(&coordinator, "threads", "threads");
    command.env("AZEKURA_IOC_TIMEOUT", "1h").env("AZEKURA_IOC_WAIT_MAX", "1h");
    let child = start(command);
    coordinator.wait_until("all threads wait", |seen| seen.asked.len() == 8);
    coordinator.stop();
    finish(child);
    for thread in 0..8 {
        assert!(coordinator.file(&format!("thread{thread}")) == data(BYTES).repeat(5));
    }
}
