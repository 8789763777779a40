//! The table of rules of POSIX, one case per rule, on a mount in each cache mode.

use crate::system::systems;
use posix_suite::{LibcSystem, run};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use types::Durability;

/// Runs the suite. What a mount `lacks` is in docs/mount.md.
fn holds_on_a_mount(options: &str, lacks: &[&str]) {
    for system in systems(Durability::Memory) {
        let mounted = system.mount(options);
        let top = mounted.path("top");
        fs::create_dir(&top).unwrap();
        // Others must be able to come here.
        fs::set_permissions(mounted.dir(), Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&top, Permissions::from_mode(0o755)).unwrap();
        let report = run(&mut LibcSystem::new(top.to_str().unwrap(), lacks), "");
        report.demand(&format!("a mount with {options}"));
        assert!(report.passed > 150, "{} cases", report.passed);
        mounted.unmount();
    }
}

#[test]
fn without_caching() {
    holds_on_a_mount("cache=none", &[]);
}

#[test]
fn with_cached_metadata() {
    holds_on_a_mount("cache=metadata", &[]);
}

#[test]
fn with_write_back() {
    // What is written but not yet written back only the kernel has: it takes all for data.
    holds_on_a_mount("cache=full", &["holes", "exact-blocks"]);
}

/// Where the mode bits are checked by the mount's server.
#[test]
fn with_permissions_checked_here() {
    holds_on_a_mount("cache=none,no_default_permissions", &[]);
}
