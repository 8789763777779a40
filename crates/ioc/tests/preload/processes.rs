//! Threads, children, daemons, and programs that close what is not theirs.

use crate::harness::{BYTES, Coordinator, c_command, data, finish, run_c, start};

#[test]
fn threads_take_turns() {
    let coordinator = Coordinator::granting(2);
    run_c(&coordinator, "threads", "threads");
    for thread in 0..8 {
        assert!(coordinator.file(&format!("thread{thread}")) == data(BYTES).repeat(5));
    }
    assert_eq!(coordinator.writes(), [BYTES as u64; 40]);
    coordinator.wait_until("completions", |seen| seen.done.len() == 40);
    let seen = coordinator.seen();
    assert!(seen.inside_max <= 2);
    assert!(seen.hellos.len() <= 8, "no more connections than calls at a time");
}

#[test]
fn children_have_their_own_connections() {
    let coordinator = Coordinator::granting(1);
    run_c(&coordinator, "threads", "forks");
    for name in ["parent", "child", "grandchild", "parent2"] {
        assert!(coordinator.file(name) == data(BYTES));
    }
    let seen = coordinator.seen();
    let pids: Vec<u32> = seen.asked.iter().map(|one| one.pid).collect();
    assert_eq!(pids.len(), 4);
    assert_eq!(pids[0], pids[3]);
    let distinct: std::collections::BTreeSet<u32> = pids.into_iter().collect();
    assert_eq!((distinct.len(), seen.hellos.len()), (3, 3));
}

/// A child inherited the connection of its parent; while it lived, the permission of its dead
/// parent was not free. Only the end of the last copy ends a connection.
#[test]
fn a_child_does_not_keep_the_permission_of_its_dead_parent() {
    let coordinator = Coordinator::granting(1);
    let orphan = |judge| {
        let mut child = start(c_command(&coordinator, "threads", judge));
        let stdin = child.stdin.take();
        (child, stdin)
    };
    let (mut child, stdin) = orphan("orphan");
    assert!(child.wait().unwrap().success());
    coordinator
        .wait_until("the parent's connection ends", |seen| seen.asked.len() == 2 && seen.open == 0);
    drop(stdin);
}

#[test]
fn a_cancelled_thread_gives_its_permission_back() {
    let coordinator = Coordinator::granting(1);
    run_c(&coordinator, "threads", "cancel");
    assert!(coordinator.file("main") == data(BYTES));
    let last = coordinator.writes().len();
    coordinator.wait_until("the last call is done", |seen| {
        seen.open == 0 && seen.asked.len() == last && !seen.done.is_empty()
    });
}

#[test]
fn programs_may_close_everything() {
    let coordinator = Coordinator::granting(1);
    run_c(&coordinator, "descriptors", "close-all");
    for name in ["one", "two", "three"] {
        assert!(coordinator.file(name) == data(BYTES));
    }
    assert_eq!(coordinator.writes(), [BYTES as u64; 3]);
    assert_eq!(coordinator.seen().hellos.len(), 3);
}

#[test]
fn programs_may_use_the_number_of_the_connection() {
    let coordinator = Coordinator::granting(1);
    run_c(&coordinator, "descriptors", "reuse");
    assert_eq!(coordinator.file("mine"), b"still mine");
    for name in ["one", "two", "three"] {
        assert!(coordinator.file(name) == data(BYTES));
    }
    assert_eq!(coordinator.writes(), [BYTES as u64; 3]);
}

#[test]
fn a_daemon_is_coordinated_like_anyone() {
    let coordinator = Coordinator::granting(1);
    let child = start(c_command(&coordinator, "descriptors", "daemonize"));
    finish(child);
    assert!(coordinator.file("two") == data(BYTES));
    assert_eq!(coordinator.writes(), [BYTES as u64; 2]);
}
