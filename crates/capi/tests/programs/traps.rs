//! The 20 semantics that are easy to get wrong, one function of C each, against a live system.

use crate::harness;
#[test]
fn errors_events_handles_pools_and_processes() {
    harness::System::start().run("traps_api", &[]);
}

#[test]
fn files() {
    harness::System::start().run("traps_fs", &[]);
}
