//! `read` and its kin, which ask when the settings say so. What counts is not the room the
//! caller offers but what the file has left: readers often offer much for little.

use super::{AT_ONCE, bytes_of};
use crate::call::Permit;
use crate::{call, file, gate, real};
use coordinate::message::IoKind::Read;
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};
use preload::hook;
use rustix::fd::BorrowedFd;

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

/// Reads at an offset, none for the current position; asks before if it may be that much.
#[inline]
fn read_by(
    real: impl FnOnce() -> ssize_t,
    fd: c_int,
    room: usize,
    offset: Option<off_t>,
) -> ssize_t {
    if room < gate::read_bytes_min() {
        return real();
    }
    let permit = begin(fd, room, offset);
    let got = real();
    call::end(permit, got);
    got
}

hook!([read](fd: c_int, data: *mut c_void, bytes: size_t) -> ssize_t {
    read_by(|| real::read(fd, data, bytes), fd, bytes, None)
});

hook!([pread pread64](fd: c_int, data: *mut c_void, bytes: size_t, offset: off_t) -> ssize_t {
    read_by(|| real::pread(fd, data, bytes, offset), fd, bytes, Some(offset))
});

hook!([readv](fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    read_by(|| real::readv(fd, pieces, count), fd, bytes_of(pieces, count), None)
});

hook!([preadv preadv64](
    fd: c_int, pieces: *const iovec, count: c_int, offset: off_t
) -> ssize_t {
    let real = || real::preadv(fd, pieces, count, offset);
    read_by(real, fd, bytes_of(pieces, count), Some(offset))
});

hook!([preadv2 preadv64v2](
    fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int
) -> ssize_t {
    let real = || real::preadv2(fd, pieces, count, offset, flags);
    if flags & AT_ONCE != 0 {
        return real();
    }
    // An offset of -1 is the current position here.
    read_by(real, fd, bytes_of(pieces, count), (offset != -1).then_some(offset))
});

// What the calls are in programs compiled with checks of buffer sizes.
hook!([__read_chk](fd: c_int, data: *mut c_void, bytes: size_t, room: size_t) -> ssize_t {
    read_by(|| real::__read_chk(fd, data, bytes, room), fd, bytes, None)
});

hook!([__pread_chk __pread64_chk](
    fd: c_int, data: *mut c_void, bytes: size_t, offset: off_t, room: size_t
) -> ssize_t {
    read_by(|| real::__pread_chk(fd, data, bytes, offset, room), fd, bytes, Some(offset))
});
