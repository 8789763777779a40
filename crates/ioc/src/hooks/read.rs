//! `read` and its kin, which ask when the settings say so. What counts is not the room the
//! caller offers but what the file has left: readers often offer much for little.

use super::bytes_of;
use crate::call::Permit;
use crate::{call, file, gate, real};
use coordinate::message::IoKind::Read;
use libc::{c_int, c_long, c_void, iovec, off_t, size_t, ssize_t, syscall};
use rustix::fd::BorrowedFd;

/// The caller wants an answer at once, so it must not wait for a coordinator.
const AT_ONCE: c_int = libc::RWF_NOWAIT;

/// Asks if as much will be read; `offset` is none for the current position.
pub(super) fn begin(fd: c_int, room: size_t, offset: Option<off_t>) -> Option<Permit> {
    if fd < 0 {
        return None;
    }
    // A negative offset makes the call fail by itself.
    let offset = offset.map(u64::try_from).transpose().ok()?;
    // SAFETY: looked at only; when it stands for nothing the look fails.
    let left = file::bytes_left(unsafe { BorrowedFd::borrow_raw(fd) }, offset);
    let bytes = left.min(room as u64);
    if bytes < gate::read_bytes_min() as u64 {
        return None;
    }
    call::begin(fd, Read, bytes)
}

/// Stands in for `read`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn read(fd: c_int, data: *mut c_void, bytes: size_t) -> ssize_t {
    // SAFETY: by the caller's promise, here and below.
    let real = || unsafe {
        match real::READ.get() {
            Some(read) => read(fd, data, bytes),
            None => syscall(libc::SYS_read, fd, data, bytes) as ssize_t,
        }
    };
    if bytes < gate::read_bytes_min() {
        return real();
    }
    let permit = begin(fd, bytes, None);
    let got = real();
    call::end(permit, got);
    got
}

/// Stands in for `pread`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pread(
    fd: c_int,
    data: *mut c_void,
    bytes: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: by the caller's promise, here and below.
    let real = || unsafe {
        match real::PREAD.get() {
            Some(pread) => pread(fd, data, bytes, offset),
            None => syscall(libc::SYS_pread64, fd, data, bytes, offset) as ssize_t,
        }
    };
    if bytes < gate::read_bytes_min() {
        return real();
    }
    let permit = begin(fd, bytes, Some(offset));
    let got = real();
    call::end(permit, got);
    got
}

/// Stands in for `pread64`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pread64(
    fd: c_int,
    data: *mut c_void,
    bytes: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the same function on this machine.
    unsafe { pread(fd, data, bytes, offset) }
}

/// Stands in for `readv`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn readv(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: by the caller's promise, here and below.
    let real = || unsafe {
        match real::READV.get() {
            Some(readv) => readv(fd, pieces, count),
            None => syscall(libc::SYS_readv, fd, pieces, count) as ssize_t,
        }
    };
    // SAFETY: by the caller's promise.
    let bytes = unsafe { bytes_of(pieces, count) };
    if bytes < gate::read_bytes_min() {
        return real();
    }
    let permit = begin(fd, bytes, None);
    let got = real();
    call::end(permit, got);
    got
}

/// Stands in for `preadv`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn preadv(
    fd: c_int,
    pieces: *const iovec,
    count: c_int,
    offset: off_t,
) -> ssize_t {
    // SAFETY: by the caller's promise, here and below.
    let real = || unsafe {
        match real::PREADV.get() {
            Some(preadv) => preadv(fd, pieces, count, offset),
            None => syscall(libc::SYS_preadv, fd, pieces, count, offset, 0 as c_long) as ssize_t,
        }
    };
    // SAFETY: by the caller's promise.
    let bytes = unsafe { bytes_of(pieces, count) };
    if bytes < gate::read_bytes_min() {
        return real();
    }
    let permit = begin(fd, bytes, Some(offset));
    let got = real();
    call::end(permit, got);
    got
}

/// Stands in for `preadv64`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn preadv64(
    fd: c_int,
    pieces: *const iovec,
    count: c_int,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the same function on this machine.
    unsafe { preadv(fd, pieces, count, offset) }
}

/// Stands in for `preadv2`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn preadv2(
    fd: c_int,
    pieces: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: by the caller's promise, here and below.
    let real = || unsafe {
        match real::PREADV2.get() {
            Some(preadv2) => preadv2(fd, pieces, count, offset, flags),
            None => {
                let high = 0 as c_long;
                syscall(libc::SYS_preadv2, fd, pieces, count, offset, high, flags) as ssize_t
            }
        }
    };
    // SAFETY: by the caller's promise.
    let bytes = unsafe { bytes_of(pieces, count) };
    if bytes < gate::read_bytes_min() || flags & AT_ONCE != 0 {
        return real();
    }
    // An offset of -1 is the current position here.
    let permit = begin(fd, bytes, (offset != -1).then_some(offset));
    let got = real();
    call::end(permit, got);
    got
}

/// Stands in for `preadv64v2`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn preadv64v2(
    fd: c_int,
    pieces: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the same function on this machine.
    unsafe { preadv2(fd, pieces, count, offset, flags) }
}

/// Stands in for `__read_chk`: what `read` is in programs compiled with checks of buffer sizes.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    data: *mut c_void,
    bytes: size_t,
    room: size_t,
) -> ssize_t {
    let asks = bytes >= gate::read_bytes_min();
    let permit = if asks { begin(fd, bytes, None) } else { None };
    // SAFETY: by the caller's promise; without the checking function the call is checked here.
    let got = unsafe {
        match real::READ_CHK.find() {
            Some(read_chk) => read_chk(fd, data, bytes, room),
            None if bytes <= room => syscall(libc::SYS_read, fd, data, bytes) as ssize_t,
            None => libc::abort(),
        }
    };
    call::end(permit, got);
    got
}

/// Stands in for `__pread_chk`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __pread_chk(
    fd: c_int,
    data: *mut c_void,
    bytes: size_t,
    offset: off_t,
    room: size_t,
) -> ssize_t {
    let asks = bytes >= gate::read_bytes_min();
    let permit = if asks { begin(fd, bytes, Some(offset)) } else { None };
    // SAFETY: by the caller's promise; without the checking function the call is checked here.
    let got = unsafe {
        match real::PREAD_CHK.find() {
            Some(pread_chk) => pread_chk(fd, data, bytes, offset, room),
            None if bytes <= room => syscall(libc::SYS_pread64, fd, data, bytes, offset) as ssize_t,
            None => libc::abort(),
        }
    };
    call::end(permit, got);
    got
}

/// Stands in for `__pread64_chk`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __pread64_chk(
    fd: c_int,
    data: *mut c_void,
    bytes: size_t,
    offset: off_t,
    room: size_t,
) -> ssize_t {
    // SAFETY: the same function on this machine.
    unsafe { __pread_chk(fd, data, bytes, offset, room) }
}
