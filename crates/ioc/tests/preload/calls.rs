//! Which calls ask, and that all do what they do without the library.

use crate::harness::{BYTES, Coordinator, c_command, data, run, run_c};
use coordinate::message::IoKind;

/// Files that `calls large` writes, in this order, one call each.
const FILES: [&str; 10] = [
    "write",
    "pwrite",
    "pwrite64",
    "writev",
    "pwritev",
    "pwritev64",
    "pwritev2",
    "pwritev64v2",
    "copy_file_range",
    "sendfile",
];

#[test]
fn every_large_write_asks_and_reports() {
    let coordinator = Coordinator::granting(1);
    run_c(&coordinator, "calls", "large");
    for name in FILES {
        assert!(coordinator.file(name) == data(BYTES), "{name} has other bytes");
    }
    assert_eq!(coordinator.writes(), [BYTES as u64; FILES.len()]);
    coordinator.wait_until("completions", |seen| seen.done.len() == FILES.len());
    let seen = coordinator.seen();
    assert!(seen.done.iter().all(|bytes| *bytes == BYTES as u64), "{:?}", seen.done);
    assert_eq!(seen.hellos.len(), 1, "one connection serves all");
}

#[test]
fn small_calls_and_what_is_no_file_do_not_even_connect() {
    let coordinator = Coordinator::granting(1);
    run_c(&coordinator, "calls", "others");
    // A write to a descriptor that is only for reading is a regular file's all the same.
    assert_eq!(coordinator.writes(), [BYTES as u64]);
    let mut command = c_command(&coordinator, "calls", "others");
    command.env("AZEKURA_IOC_MIN_SIZE", (BYTES + 1).to_string());
    run(command);
    assert_eq!(coordinator.seen().hellos.len(), 1);
}

#[test]
fn all_calls_ask_when_the_least_size_is_nothing() {
    let coordinator = Coordinator::granting(1);
    let mut command = c_command(&coordinator, "calls", "others");
    command.env("AZEKURA_IOC_MIN_SIZE", "0");
    run(command);
    assert_eq!(coordinator.writes(), [10, BYTES as u64], "and a call on no bytes does not");
}

#[test]
fn errors_and_short_writes_are_the_systems() {
    let coordinator = Coordinator::granting(1);
    run_c(&coordinator, "calls", "limits");
    coordinator.wait_until("completions", |seen| seen.done.len() == 2);
    assert_eq!(coordinator.seen().done, [BYTES as u64 / 2, 0]);
}

#[test]
fn reads_ask_when_the_settings_say_so_and_by_what_the_file_has() {
    let coordinator = Coordinator::granting(1);
    run_c(&coordinator, "calls", "reads");
    assert!(coordinator.seen().asked.iter().all(|one| one.kind == IoKind::Write));

    let coordinator = Coordinator::granting(1);
    let mut command = c_command(&coordinator, "calls", "reads");
    command.env("AZEKURA_IOC_READS", "1");
    run(command);
    let seen = coordinator.seen();
    let reads = seen.asked.iter().filter(|one| one.kind == IoKind::Read);
    let reads: Vec<u64> = reads.map(|one| one.bytes).collect();
    assert_eq!(reads, [BYTES as u64; 9]);
}

#[test]
fn streams_ask_when_they_write_that_much() {
    let coordinator = Coordinator::granting(1);
    run_c(&coordinator, "stdio", "writes");
    let data = data(BYTES);
    for name in ["fwrite", "fwrite_unlocked", "fflush", "fclose", "small"] {
        assert!(coordinator.file(name) == data, "{name} has other bytes");
    }
    assert!(coordinator.file("overflow") == [&data[..], &data].concat());
    assert!(coordinator.file("fputs").iter().all(|byte| *byte == b'a'));
    // fwrite, fwrite_unlocked, fflush, fclose; a full buffer and the rest of "overflow"; fputs.
    let writes = coordinator.writes();
    assert_eq!(writes.len(), 7, "{writes:?}");
    assert!(writes.iter().all(|bytes| *bytes >= 65_536), "{writes:?}");
}

#[test]
fn streams_ask_for_reads() {
    let coordinator = Coordinator::granting(1);
    let mut command = c_command(&coordinator, "stdio", "reads");
    command.env("AZEKURA_IOC_READS", "1");
    run(command);
    let seen = coordinator.seen();
    assert_eq!(seen.asked.iter().filter(|one| one.kind == IoKind::Read).count(), 2);
}

/// A thread that holds a stream and one that holds the only permission must not wait for each
/// other: with the time-out of a minute this test would not end in time.
#[test]
fn who_holds_a_stream_does_not_wait_for_who_waits_for_it() {
    let coordinator = Coordinator::granting(1);
    let mut command = c_command(&coordinator, "stdio", "lock");
    command.env("AZEKURA_IOC_WAIT_MAX", "1h").env("AZEKURA_IOC_TIMEOUT", "1h");
    run(command);
    assert!(coordinator.file("shared") == data(BYTES).repeat(80));
    assert_eq!(coordinator.writes().len(), 80);
}
