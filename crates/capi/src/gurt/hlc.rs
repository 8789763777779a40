//! Values of the hybrid logical clock, as C programs see them: nanoseconds since 1970, the same
//! numbers as [`types::Epoch`]. So a value converts to a time as it is.
//!
//! The clock that stamps updates is the engines'; this one is for programs that want to make
//! values themselves.

use crate::errno::{DER_HLC_SYNC, DER_INVAL};
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

const NS: u64 = 1_000_000_000;

static LAST: AtomicU64 = AtomicU64::new(0);
static EPSILON_NS: AtomicU64 = AtomicU64::new(NS);

fn wall_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

fn tick(least: u64) -> u64 {
    let step = |last: u64| least.max(last.saturating_add(1));
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(step(last)));
    step(last.unwrap_or(0))
}

/// A value above all that this process has made or seen.
#[unsafe(no_mangle)]
pub extern "C" fn d_hlc_get() -> u64 {
    tick(wall_ns())
}

/// Takes note of a value made elsewhere, and makes one above it. `-DER_HLC_SYNC` when it is further
/// ahead of the local clock than clocks are believed to differ.
///
/// # Safety
/// The caller gives NULL or room for a number, twice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hlc_get_msg(msg: u64, hlc_out: *mut u64, offset: *mut u64) -> c_int {
    let wall = wall_ns();
    let ahead = msg.saturating_sub(wall);
    // SAFETY: the caller gives NULL or room for a number, twice.
    unsafe {
        if !offset.is_null() {
            *offset = ahead;
        }
        if ahead > EPSILON_NS.load(Ordering::Relaxed) {
            return -DER_HLC_SYNC;
        }
        let made = tick(wall.max(msg.saturating_add(1)));
        if !hlc_out.is_null() {
            *hlc_out = made;
        }
    }
    0
}

/// Nanoseconds of a difference of values.
#[unsafe(no_mangle)]
pub extern "C" fn d_hlc2nsec(hlc: u64) -> u64 {
    hlc
}

/// The inverse of `d_hlc2nsec`.
#[unsafe(no_mangle)]
pub extern "C" fn d_nsec2hlc(nsec: u64) -> u64 {
    nsec
}

/// Nanoseconds since 1970.
#[unsafe(no_mangle)]
pub extern "C" fn d_hlc2unixnsec(hlc: u64) -> u64 {
    hlc
}

/// The inverse of `d_hlc2unixnsec`.
#[unsafe(no_mangle)]
pub extern "C" fn d_unixnsec2hlc(unixnsec: u64) -> u64 {
    unixnsec
}

/// The time of a value.
///
/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hlc2timespec(hlc: u64, ts: *mut libc::timespec) -> c_int {
    if ts.is_null() {
        return -DER_INVAL;
    }
    let time = libc::timespec { tv_sec: (hlc / NS) as i64, tv_nsec: (hlc % NS) as i64 };
    // SAFETY: not NULL; the caller wants the time there.
    unsafe { ts.write(time) };
    0
}

/// The value of a time; `-DER_INVAL` for one before 1970 or after 2554.
///
/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_timespec2hlc(ts: libc::timespec, hlc: *mut u64) -> c_int {
    let value = u64::try_from(ts.tv_sec).ok().and_then(|s| s.checked_mul(NS));
    let value = u64::try_from(ts.tv_nsec).ok().and_then(|ns| value?.checked_add(ns));
    match value {
        Some(value) if !hlc.is_null() => {
            // SAFETY: not NULL; the caller wants the value there.
            unsafe { hlc.write(value) };
            0
        }
        _ => -DER_INVAL,
    }
}

/// The time of a value, for instance of `ci_md_mtime`.
///
/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_hlc2timespec(hlc: u64, ts: *mut libc::timespec) -> c_int {
    // SAFETY: as for the function below.
    unsafe { d_hlc2timespec(hlc, ts) }
}

/// Seconds since 1970 of a value.
///
/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_hlc2timestamp(hlc: u64, ts: *mut libc::time_t) -> c_int {
    if ts.is_null() {
        return -DER_INVAL;
    }
    // SAFETY: not NULL; the caller wants the time there.
    unsafe { ts.write((hlc / NS) as libc::time_t) };
    0
}

/// Sets how far clocks are believed to differ, in nanoseconds.
#[unsafe(no_mangle)]
pub extern "C" fn d_hlc_epsilon_set(epsilon: u64) {
    EPSILON_NS.store(epsilon, Ordering::Relaxed);
}

/// How far clocks are believed to differ, in nanoseconds.
#[unsafe(no_mangle)]
pub extern "C" fn d_hlc_epsilon_get() -> u64 {
    EPSILON_NS.load(Ordering::Relaxed)
}

/// No event before the one stamped `hlc` has a higher stamp than this.
#[unsafe(no_mangle)]
pub extern "C" fn d_hlc_epsilon_get_bound(hlc: u64) -> u64 {
    hlc.saturating_add(d_hlc_epsilon_get())
}

/// Seconds since the event stamped `hlc`; 0 for a future one.
#[unsafe(no_mangle)]
pub extern "C" fn d_hlc_age2sec(hlc: u64) -> u64 {
    wall_ns().saturating_sub(hlc) / NS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_grow_and_are_times() {
        let first = d_hlc_get();
        let (mut made, mut offset) = (0, 0);
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let mut seconds = 0;
        let mut back = 0;
        // SAFETY: the pointers are to variables of this test, or NULL.
        unsafe {
            let ahead = wall_ns() + NS / 2;
            assert_eq!(d_hlc_get_msg(ahead, &mut made, &mut offset), 0);
            assert!(made > ahead && made > first && d_hlc_get() > made);
            assert_eq!(d_hlc_get_msg(ahead * 2, &mut made, &mut offset), -DER_HLC_SYNC);
            assert!(offset > NS);
            assert_eq!(daos_hlc2timespec(7 * NS + 9, &mut time), 0);
            assert_eq!((time.tv_sec, time.tv_nsec), (7, 9));
            assert_eq!(d_timespec2hlc(time, &mut back), 0);
            assert_eq!(back, 7 * NS + 9);
            time.tv_sec = -1;
            assert_eq!(d_timespec2hlc(time, &mut back), -DER_INVAL);
            assert_eq!(daos_hlc2timestamp(7 * NS + 9, &mut seconds), 0);
            assert_eq!(seconds, 7);
            assert_eq!(daos_hlc2timespec(1, std::ptr::null_mut()), -DER_INVAL);
            assert_eq!(daos_hlc2timestamp(1, std::ptr::null_mut()), -DER_INVAL);
        }
        assert_eq!(d_hlc_age2sec(u64::MAX), 0);
    }
}
