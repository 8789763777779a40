//! Where this process's own descriptors live.
//!
//! In a program that is not ours (a preload library's) descriptors of connections must not be in
//! the way: the program may expect the lowest free number, or close numbers it never opened. So
//! whoever loads us may say what is done with each descriptor that the crates make for a client.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;

static KEEPER: OnceLock<fn(OwnedFd) -> OwnedFd> = OnceLock::new();

/// Has every descriptor that is made from now on pass through `keeper`, which may move it. The
/// first caller decides for the process.
pub fn set_keeper(keeper: fn(OwnedFd) -> OwnedFd) {
    KEEPER.get_or_init(|| keeper);
}

/// A descriptor just made, on its way into use.
pub fn keep(fd: OwnedFd) -> OwnedFd {
    match KEEPER.get() {
        Some(keeper) => keeper(fd),
        None => fd,
    }
}
