//! Locks on files of ours, which hold between all clients of the container.
//!
//! Record locks belong to the process, the others to the open file description
//! ([`crate::locks`]). A request that
//! waits is asked again and again with pauses in which signals are handled, so that it ends with
//! `EINTR` as the kernel's does; who waits so long is not served in turn, and a circle of waiting
//! processes is not noticed.

use crate::act;
use crate::locks;
use crate::open::Open;
use crate::report::Family;
use crate::{errno, real, table};
use dfs::{Code, LockAsk, LockKind, LockMode, LockRange};
use libc::{c_int, c_ulong, off_t};
use preload::hook;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

hook!([flock](fd: c_int, operation: c_int) -> c_int {
    let Some(open) = table::get(fd) else { return real::flock(fd, operation) };
    let wait = operation & libc::LOCK_NB == 0;
    let mode = match operation & !libc::LOCK_NB {
        libc::LOCK_SH => Some(LockMode::Shared),
        libc::LOCK_EX => Some(LockMode::Exclusive),
        libc::LOCK_UN => None,
        _ => return errno::zero(Err(libc::EINVAL)),
    };
    errno::zero(set(&open, LockKind::Flock, LockRange::WHOLE, mode, wait))
});

hook!([lockf lockf64](fd: c_int, command: c_int, bytes: off_t) -> c_int {
    if !table::is_ours(fd) {
        return real::lockf64(fd, command, bytes);
    }
    let mut range: libc::flock = std::mem::zeroed();
    (range.l_whence, range.l_len) = (libc::SEEK_CUR as _, bytes);
    range.l_type = if command == libc::F_ULOCK { libc::F_UNLCK } else { libc::F_WRLCK } as _;
    let with = |command, range: &mut libc::flock| {
        super::descriptor::fcntl(fd, command, std::ptr::from_mut(range) as c_ulong)
    };
    match command {
        libc::F_ULOCK | libc::F_TLOCK => with(libc::F_SETLK, &mut range),
        libc::F_LOCK => with(libc::F_SETLKW, &mut range),
        libc::F_TEST => {
            let asked = with(libc::F_GETLK, &mut range);
            if asked == 0 && c_int::from(range.l_type) != libc::F_UNLCK {
                return errno::zero(Err(libc::EACCES));
            }
            asked
        }
        _ => errno::zero(Err(libc::EINVAL)),
    }
});

/// First and longest pause between two questions, nanoseconds.
const PAUSE_NS_MIN: i64 = 500_000;
const PAUSE_NS_MAX: i64 = 20_000_000;

/// Locks, or unlocks.
fn set(
    open: &Arc<Open>,
    kind: LockKind,
    range: LockRange,
    mode: Option<LockMode>,
    wait: bool,
) -> Result<(), c_int> {
    let Some(mode) = mode else {
        return act::run(Family::Lock, open, async |fs, obj| {
            locks::unset(open, fs, obj, kind, range).await
        });
    };
    let owner = locks::owner(open, kind);
    let ask = LockAsk { kind, owner, range, mode, pid: std::process::id(), wait: false };
    let mut pause_ns = PAUSE_NS_MIN;
    loop {
        let asked = act::run(Family::Lock, open, async |fs, obj| {
            match locks::set(open, fs, obj, &ask).await {
                Err(error) if error.code == Code::WouldBlock => Ok(false),
                other => other.map(|()| true),
            }
        })?;
        match asked {
            true => return Ok(()),
            false if !wait => return Err(libc::EAGAIN),
            false => {}
        }
        let time = libc::timespec { tv_sec: 0, tv_nsec: pause_ns };
        // SAFETY: the time is valid; nobody wants to know what was left of it.
        if unsafe { libc::nanosleep(&time, std::ptr::null_mut()) } != 0 {
            return Err(errno::get());
        }
        pause_ns = (pause_ns * 2).min(PAUSE_NS_MAX);
    }
}

/// Record locks.
///
/// # Safety
/// Null or a valid lock.
pub unsafe fn record(open: &Arc<Open>, command: c_int, lock: *mut libc::flock) -> c_int {
    // SAFETY: by the caller's promise.
    let Some(wanted) = (unsafe { lock.as_mut() }) else {
        return errno::zero(Err(libc::EFAULT));
    };
    errno::zero(range_of(open, wanted).and_then(|range| {
        let is_ofd = matches!(command, libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW);
        let kind = if is_ofd { LockKind::Ofd } else { LockKind::Posix };
        let mode = match c_int::from(wanted.l_type) {
            libc::F_RDLCK => Some(LockMode::Shared),
            libc::F_WRLCK => Some(LockMode::Exclusive),
            libc::F_UNLCK => None,
            _ => return Err(libc::EINVAL),
        };
        if !matches!(command, libc::F_GETLK | libc::F_OFD_GETLK) {
            let wait = matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW);
            return set(open, kind, range, mode, wait);
        }
        let mode = mode.ok_or(libc::EINVAL)?;
        let owner = locks::owner(open, kind);
        let ask = LockAsk { kind, owner, range, mode, pid: std::process::id(), wait: false };
        let holder = act::run(Family::Lock, open, async |fs, obj| {
            if is_ofd {
                fs.share_lock_owner(owner);
            }
            fs.test_lock(obj, &ask).await
        })?;
        match holder {
            None => wanted.l_type = libc::F_UNLCK as _,
            Some(holder) => {
                let is_shared = holder.mode == LockMode::Shared;
                wanted.l_type = if is_shared { libc::F_RDLCK } else { libc::F_WRLCK } as _;
                wanted.l_whence = libc::SEEK_SET as _;
                wanted.l_start = holder.range.first as off_t;
                let bytes = (holder.range.last - holder.range.first).saturating_add(1);
                wanted.l_len = if holder.range.last == u64::MAX { 0 } else { bytes as off_t };
                wanted.l_pid = if is_ofd { -1 } else { holder.pid as _ };
            }
        }
        Ok(())
    }))
}

/// The bytes a lock is about, from the start of the file.
fn range_of(open: &Arc<Open>, lock: &libc::flock) -> Result<LockRange, c_int> {
    let base = match c_int::from(lock.l_whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => open.head().offset.load(Relaxed),
        libc::SEEK_END => {
            act::run(Family::Lock, open, async |fs, obj| fs.size(obj).await)? as off_t
        }
        _ => return Err(libc::EINVAL),
    };
    let start = base.checked_add(lock.l_start).ok_or(libc::EOVERFLOW)?;
    // A negative length means the bytes before.
    let (first, end) = match lock.l_len {
        0 => (start, None),
        bytes if bytes > 0 => (start, Some(start.checked_add(bytes).ok_or(libc::EOVERFLOW)?)),
        bytes => (start.checked_add(bytes).ok_or(libc::EINVAL)?, Some(start)),
    };
    let first = u64::try_from(first).map_err(|_| libc::EINVAL)?;
    let last = end.map_or(u64::MAX, |end| (end - 1) as u64);
    Ok(LockRange { first, last })
}
