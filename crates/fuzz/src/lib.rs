//! Fuzzing of every decoder of outside bytes, without tools beyond cargo.
//!
//! A [`target::Target`] is a plain function over bytes. The [`driver`] feeds it mutations of
//! released encodings and reports the first input that makes it panic or allocate out of
//! proportion. Runs are deterministic: the same seed and number of iterations give the same
//! inputs, so a failure in one place can be repeated in another.
//!
//! Invariants: a target returns normally for every input, whatever the bytes; rejecting is
//! normal, panicking is not. The canary targets break this on purpose, and a test demands
//! that the driver finds them: a harness that cannot fail proves nothing.
//!
//! The driver has no coverage feedback; in exchange it runs for seconds in every build. Long runs have it:
//! `scripts/fuzz-guided.sh` gives the same targets to libFuzzer, with the stable compiler.

pub mod allocation;
mod capi_targets;
mod coordinate_targets;
pub mod corpus;
pub mod driver;
mod engine_targets;
mod fuse_targets;
mod intercept_targets;
pub mod mutate;
mod placement_targets;
pub mod rng;
pub mod target;
mod tier_targets;
mod upper_targets;
mod vos_targets;
mod wire_targets;
