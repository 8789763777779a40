//! Who is calling: user, groups and file mode mask of the process, and when they change.

use dfs::Credentials;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

static VERSION: AtomicU64 = AtomicU64::new(1);
/// The file mode mask; above 0o777: not known yet.
static MASK: AtomicU32 = AtomicU32::new(u32::MAX);

/// Changes when [`credentials`] does.
pub fn version() -> u64 {
    VERSION.load(Relaxed)
}

/// User or groups changed.
pub fn changed() {
    VERSION.fetch_add(1, Relaxed);
}

/// The process has set its file mode mask.
pub fn set_mask(mask: u32) {
    MASK.store(mask & 0o777, Relaxed);
    changed();
}

/// The file mode mask; the kernel is asked where it is not known yet.
pub fn mask() -> u32 {
    let known = MASK.load(Relaxed);
    if known <= 0o777 {
        return known;
    }
    let mask = told_mask().unwrap_or(0o022);
    MASK.store(mask, Relaxed);
    mask
}

/// What the kernel says; asking by setting it would show to other threads.
fn told_mask() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}

/// Effective user and groups, as the process is now.
pub fn credentials() -> Credentials {
    make(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// Real user and group, for `access`.
pub fn real_credentials() -> Credentials {
    make(rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
}

fn make(uid: u32, gid: u32) -> Credentials {
    let groups = rustix::process::getgroups().unwrap_or_default();
    let groups = groups.into_iter().map(|group| group.as_raw()).collect();
    Credentials { uid, gid, groups, umask: mask() }
}
