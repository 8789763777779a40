//! Being inside this library.
//!
//! A thread that is inside calls the C library as everybody does, and must get the real functions
//! then. A signal handler that interrupted it would find locks held by its own thread. So:
//! signals for which the program has a handler wait while a thread is inside, as they wait while
//! the kernel works on a regular file. Signals that would end the process are not held up.
//! Nor is a thread cancelled in here.
//!
//! Invariant: code that runs inside never waits for another thread that is outside.

use crate::errno;
use libc::c_int;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Signals that have a handler; bit 0 is signal 1.
static HANDLED: AtomicU64 = AtomicU64::new(0);

/// Signals that a fault raises: held back they would end the process.
const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT];

/// True while the thread is inside: its calls are this library's own.
#[inline]
pub fn is_inside() -> bool {
    INSIDE.get()
}

/// Whether the program handles a signal changed.
pub fn handled(signal: c_int, has_handler: bool) {
    if !(1..=64).contains(&signal) || FAULTS.contains(&signal) {
        return;
    }
    let bit = 1u64 << (signal - 1);
    if has_handler {
        HANDLED.fetch_or(bit, Relaxed);
    } else {
        HANDLED.fetch_and(!bit, Relaxed);
    }
}

// SAFETY: the form is that of the C library.
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// As `<pthread.h>` has it.
const CANCEL_DISABLE: c_int = 1;

/// Runs `body` inside; `EIO` when it panics, which would be a mistake of ours, or when the
/// thread is inside already.
pub fn run<T>(body: impl FnOnce() -> Result<T, c_int>) -> Result<T, c_int> {
    if INSIDE.get() {
        return Err(libc::EIO);
    }
    let before = errno::get();
    let held = hold_signals();
    let mut cancelling = 0;
    // SAFETY: the place is valid.
    unsafe { pthread_setcancelstate(CANCEL_DISABLE, &mut cancelling) };
    INSIDE.set(true);
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(libc::EIO));
    INSIDE.set(false);
    // SAFETY: as above.
    unsafe { pthread_setcancelstate(cancelling, &mut cancelling) };
    if let Some(mask) = held {
        // SAFETY: the mask is the one the thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut()) };
    }
    errno::set(before);
    result
}

/// Holds back what has a handler; returns the mask before.
fn hold_signals() -> Option<libc::sigset_t> {
    let handled = HANDLED.load(Relaxed);
    if handled == 0 {
        return None;
    }
    // SAFETY: all zeros is the empty set.
    let (mut wanted, mut before): (libc::sigset_t, libc::sigset_t) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: the first 64 bits of the set are the signals from 1 on.
    unsafe { (&raw mut wanted).cast::<u64>().write(handled) };
    // SAFETY: both places are valid.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &wanted, &mut before) };
    Some(before)
}

/// A place where libc would look whether the thread has been cancelled. Nothing on the caller's
/// stack may need dropping.
#[inline]
pub fn cancellation_point() {
    // SAFETY: the form is that of the C library.
    unsafe extern "C-unwind" {
        fn pthread_testcancel();
    }
    if !is_inside() {
        // SAFETY: unwinds through frames without destructors only.
        unsafe { pthread_testcancel() };
    }
}
