//! Events, threads and forks as a C program sees them, against a live system.

use crate::harness;
#[test]
fn events_queues_threads_and_forks() {
    harness::System::start().run("event", &[]);
}
