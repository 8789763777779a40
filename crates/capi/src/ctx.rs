//! Contexts as the C API has them: one per thread that calls and one per event queue.

use crate::handle;
pub use perthread::{Afterwards, Ctx, Local};
pub(crate) use perthread::{close, is_open, start_anew};

static USER: perthread::User = perthread::User {
    is_live: handle::is_live,
    before_fork: handle::fork_lock,
    after_fork: || {
        // SAFETY: contexts call this on the thread, or the copy of it, that took the lock.
        unsafe { handle::fork_unlock() };
    },
    as_own_thread: |body| body(),
};

/// Learns how to connect and lets threads make contexts.
pub(crate) fn open(system: client::SystemAddress) {
    perthread::open(system, &USER);
}
