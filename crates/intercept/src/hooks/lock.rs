//! Locks on files of ours.
//!
//! They are taken in the kernel, on an empty file beside the file's object number: so they hold
//! among all processes of this machine that use this library, behave exactly as the kernel's,
//! and end with the process. Processes elsewhere and on the mount do not see them.

use crate::act;
use crate::open::Open;
use crate::report::Family;
use crate::{errno, inside, real, table};
use libc::{c_int, c_ulong, off_t};
use parking_lot::Mutex;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

hook!([flock](fd: c_int, operation: c_int) -> c_int {
    let Some(open) = table::get(fd) else { return real::flock(fd, operation) };
    let done = side_file(&open, true).and_then(|side| {
        if real::flock(side, operation) == 0 { Ok(()) } else { Err(errno::get()) }
    });
    errno::zero(done)
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

/// Side files that are open: of a process for its record locks, by object; of an open file
/// description for `flock`, by its number.
static SIDES: Mutex<Option<HashMap<(u64, bool), OwnedFd>>> = Mutex::new(None);

/// Record locks.
///
/// # Safety
/// A valid lock.
pub unsafe fn record(
    open: &Arc<Open>,
    _fd: c_int,
    command: c_int,
    lock: *mut libc::flock,
) -> c_int {
    // SAFETY: by the caller's promise.
    let Some(wanted) = (unsafe { lock.as_mut() }) else {
        return errno::zero(Err(libc::EFAULT));
    };
    let is_ofd = matches!(command, libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW);
    let done = absolute(open, wanted).and_then(|mut range| {
        let access = open.head().status.load(Relaxed) as c_int & libc::O_ACCMODE;
        let asks = matches!(command, libc::F_GETLK | libc::F_OFD_GETLK);
        let refused = match c_int::from(range.l_type) {
            libc::F_RDLCK => access == libc::O_WRONLY,
            libc::F_WRLCK => access == libc::O_RDONLY,
            _ => false,
        };
        if refused && !asks {
            return Err(libc::EBADF);
        }
        let side = side_file(open, is_ofd)?;
        // SAFETY: the lock is valid. Nothing on the stack needs dropping while it waits.
        if unsafe { real::fcntl64(side, command, std::ptr::from_mut(&mut range) as c_ulong) } != 0 {
            return Err(errno::get());
        }
        if asks {
            *wanted = range;
        }
        Ok(())
    });
    errno::zero(done)
}

/// A range that counts from the start of the file.
fn absolute(open: &Arc<Open>, lock: &libc::flock) -> Result<libc::flock, c_int> {
    let mut range = *lock;
    let base = match c_int::from(lock.l_whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => act::run(Family::Lock, open, async |fs, obj| {
            let head = open.lock();
            super::data::offset_of(fs, obj, &head).await
        })? as off_t,
        libc::SEEK_END => {
            act::run(Family::Lock, open, async |fs, obj| fs.size(obj).await)? as off_t
        }
        _ => return Err(libc::EINVAL),
    };
    range.l_start = base.checked_add(lock.l_start).ok_or(libc::EOVERFLOW)?;
    range.l_whence = libc::SEEK_SET as _;
    Ok(range)
}

/// The descriptor to lock on; `of_description` for locks that belong to it and not to the process.
fn side_file(open: &Arc<Open>, of_description: bool) -> Result<c_int, c_int> {
    crate::report::taken(Family::Lock);
    inside::run(|| {
        let object = open.known().oid().lo;
        let key = if of_description { (open.id, true) } else { (object, false) };
        let mut sides = SIDES.lock();
        let sides = sides.get_or_insert_default();
        if let Some(known) = sides.get(&key) {
            return Ok(known.as_raw_fd());
        }
        let uuid: String = open.cont.iter().map(|byte| format!("{byte:02x}")).collect();
        let dir = "/dev/shm/azekura-locks";
        let all = Mode::from_raw_mode(0o1777);
        if rustix::fs::mkdir(dir, all).is_ok() {
            // Against the mask: users share it.
            let _ = rustix::fs::chmod(dir, all);
        }
        let path = format!("{dir}/{uuid}-{object:x}");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let made = rustix::fs::open(&*path, flags, Mode::from_raw_mode(0o666));
        let made = made.map_err(|_| libc::ENOLCK)?;
        let made = table::keep(made);
        let number = made.as_raw_fd();
        sides.insert(key, made);
        Ok(number)
    })
}

/// A descriptor of a file was closed: POSIX ends all record locks of the process on it then.
pub fn closed(open: &Arc<Open>) {
    if SIDES.lock().is_none() {
        return;
    }
    let _ = inside::run(|| {
        let object = open.known().oid().lo;
        let mut sides = SIDES.lock();
        let Some(sides) = sides.as_mut() else { return Ok(()) };
        let mut gone = vec![sides.remove(&(object, false))];
        if table::numbers_of(open).is_empty() {
            gone.push(sides.remove(&(open.id, true)));
        }
        drop(gone);
        Ok(())
    });
}

/// Before a fork.
pub fn fork_lock() {
    std::mem::forget(SIDES.lock());
}

/// After it, on both sides.
///
/// # Safety
/// By the thread that called [`fork_lock`], or its copy.
pub unsafe fn fork_unlock() {
    // SAFETY: by the caller's promise.
    unsafe { SIDES.force_unlock() };
}

/// In a child, which holds no record lock of its parent's. The descriptors are closed elsewhere.
pub fn in_child() {
    std::mem::forget(SIDES.lock().take());
}
