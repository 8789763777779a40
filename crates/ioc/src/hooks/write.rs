//! `write` and its kin.

use super::bytes_of;
use crate::{call, gate, real};
use coordinate::message::IoKind::Write;
use libc::{c_int, c_long, c_void, iovec, off_t, size_t, ssize_t, syscall};

/// The caller wants an answer at once, so it must not wait for a coordinator.
const AT_ONCE: c_int = libc::RWF_NOWAIT;

/// Stands in for `write`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn write(fd: c_int, data: *const c_void, bytes: size_t) -> ssize_t {
    // SAFETY: by the caller's promise, here and below.
    let real = || unsafe {
        match real::WRITE.get() {
            Some(write) => write(fd, data, bytes),
            None => syscall(libc::SYS_write, fd, data, bytes) as ssize_t,
        }
    };
    if bytes < gate::write_bytes_min() {
        return real();
    }
    let permit = call::begin(fd, Write, bytes as u64);
    let written = real();
    call::end(permit, written);
    written
}

/// Stands in for `pwrite`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pwrite(
    fd: c_int,
    data: *const c_void,
    bytes: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: by the caller's promise, here and below.
    let real = || unsafe {
        match real::PWRITE.get() {
            Some(pwrite) => pwrite(fd, data, bytes, offset),
            None => syscall(libc::SYS_pwrite64, fd, data, bytes, offset) as ssize_t,
        }
    };
    if bytes < gate::write_bytes_min() {
        return real();
    }
    let permit = call::begin(fd, Write, bytes as u64);
    let written = real();
    call::end(permit, written);
    written
}

/// Stands in for `pwrite64`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pwrite64(
    fd: c_int,
    data: *const c_void,
    bytes: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the same function on this machine.
    unsafe { pwrite(fd, data, bytes, offset) }
}

/// Stands in for `writev`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn writev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: by the caller's promise, here and below.
    let real = || unsafe {
        match real::WRITEV.get() {
            Some(writev) => writev(fd, pieces, count),
            None => syscall(libc::SYS_writev, fd, pieces, count) as ssize_t,
        }
    };
    // SAFETY: by the caller's promise.
    let bytes = unsafe { bytes_of(pieces, count) };
    if bytes < gate::write_bytes_min() {
        return real();
    }
    let permit = call::begin(fd, Write, bytes as u64);
    let written = real();
    call::end(permit, written);
    written
}

/// Stands in for `pwritev`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pwritev(
    fd: c_int,
    pieces: *const iovec,
    count: c_int,
    offset: off_t,
) -> ssize_t {
    // SAFETY: by the caller's promise, here and below.
    let real = || unsafe {
        match real::PWRITEV.get() {
            Some(pwritev) => pwritev(fd, pieces, count, offset),
            None => syscall(libc::SYS_pwritev, fd, pieces, count, offset, 0 as c_long) as ssize_t,
        }
    };
    // SAFETY: by the caller's promise.
    let bytes = unsafe { bytes_of(pieces, count) };
    if bytes < gate::write_bytes_min() {
        return real();
    }
    let permit = call::begin(fd, Write, bytes as u64);
    let written = real();
    call::end(permit, written);
    written
}

/// Stands in for `pwritev64`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pwritev64(
    fd: c_int,
    pieces: *const iovec,
    count: c_int,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the same function on this machine.
    unsafe { pwritev(fd, pieces, count, offset) }
}

/// Stands in for `pwritev2`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pwritev2(
    fd: c_int,
    pieces: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: by the caller's promise, here and below.
    let real = || unsafe {
        match real::PWRITEV2.get() {
            Some(pwritev2) => pwritev2(fd, pieces, count, offset, flags),
            None => {
                let high = 0 as c_long;
                syscall(libc::SYS_pwritev2, fd, pieces, count, offset, high, flags) as ssize_t
            }
        }
    };
    // SAFETY: by the caller's promise.
    let bytes = unsafe { bytes_of(pieces, count) };
    if bytes < gate::write_bytes_min() || flags & AT_ONCE != 0 {
        return real();
    }
    let permit = call::begin(fd, Write, bytes as u64);
    let written = real();
    call::end(permit, written);
    written
}

/// Stands in for `pwritev64v2`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pwritev64v2(
    fd: c_int,
    pieces: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the same function on this machine.
    unsafe { pwritev2(fd, pieces, count, offset, flags) }
}
