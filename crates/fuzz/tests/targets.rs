//! Every target passes a short run, and every canary fails one.

use fuzz::driver::{self, Limit};
use fuzz::target;

const SEED: u64 = 20_261_121;

#[test]
fn every_target_survives_a_short_run() {
    for target in target::all() {
        if let Err(failure) = driver::run(&target, SEED, Limit::Iterations(4_000)) {
            panic!("{failure}");
        }
    }
}

#[test]
fn canaries_are_caught_for_the_right_reason() {
    let expected = [("canary-panic", "out of range"), ("canary-memory", "allowed")];
    for (canary, (name, reason)) in target::canaries().iter().zip(expected) {
        assert_eq!(canary.name, name);
        let failure = driver::run(canary, SEED, Limit::Iterations(10_000))
            .expect_err("a canary that passes means the harness sees nothing");
        assert!(failure.what.contains(reason), "{failure}");
        // The input was made small and still fails.
        assert!(failure.input.len() <= 8, "{failure}");
        assert!(driver::run_one(canary, &failure.input).is_err());
    }
}

#[test]
fn the_same_seed_finds_the_same_failure() {
    let canary = &target::canaries()[0];
    let run = || driver::run(canary, SEED, Limit::Iterations(10_000)).expect_err("it must fail");
    assert_eq!(run(), run());
}

#[test]
fn seeds_of_message_targets_are_accepted() {
    // Story: after a change of format the corpus may silently turn into garbage that every
    // decoder rejects at the first byte, and the fuzzer would go on reporting success.
    for seed in fuzz::corpus::messages(&["request"]) {
        wire::decode::<wire::obj::Request<'_>>(&seed).unwrap();
    }
    for seed in fuzz::corpus::messages(&["control."]) {
        wire::decode::<wire::control::ControlRequest>(&seed).unwrap();
    }
    for seed in fuzz::corpus::messages(&["header"]) {
        wire::Header::decode(seed.as_slice().try_into().unwrap()).unwrap();
    }
    let layout = target::all().into_iter().find(|target| target.name == "layout").unwrap();
    for seed in (layout.seeds)() {
        let (oid, map) = seed.split_first_chunk::<16>().unwrap();
        let map = wire::decode::<wire::map::PoolMap>(map).unwrap();
        placement::layout(types::Oid::from_bytes(*oid), &map).unwrap();
    }
}

#[test]
fn names_of_targets_differ() {
    let mut names: Vec<_> = target::all().iter().map(|target| target.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
