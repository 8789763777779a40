//! Pools, containers, objects, arrays, key-value stores and transactions as a C program sees
//! them, against a live system.

use crate::harness;
#[test]
fn objects() {
    harness::System::start().run("obj", &[]);
}

#[test]
fn memory_of_what_is_not_there() {
    harness::System::start().run("sparse", &[]);
}

#[test]
fn answers_that_programs_count_on() {
    harness::System::start().run("answers", &[]);
}

#[test]
fn tasks() {
    harness::System::start().run("tse", &[]);
}

#[test]
fn arrays() {
    harness::System::start().run("array", &[]);
}

#[test]
fn key_value_stores() {
    harness::System::start().run("kv", &[]);
}

#[test]
fn transactions() {
    harness::System::start().run("tx", &[]);
}

#[test]
fn containers_and_pools() {
    harness::System::start().run("cont", &[]);
}

#[test]
fn snapshots() {
    harness::System::start().run("snap", &[]);
}
