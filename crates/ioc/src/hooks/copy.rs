//! Copies made by the kernel: `copy_file_range` (what `cp` uses) and `sendfile`. They are writes
//! of the file they go to. What counts is what the source has left: callers offer to copy
//! gigabytes and mean "to the end".

use super::read;
use crate::call::Permit;
use crate::{call, file, gate, real};
use coordinate::message::IoKind::Write;
use libc::{c_int, c_uint, off_t, size_t, ssize_t};
use preload::hook;
use rustix::fd::BorrowedFd;

/// Asks for a copy of at most `most` bytes from one file to another.
///
/// # Safety
///
/// `offset` is null or points to a valid offset.
unsafe fn begin(from: c_int, offset: *const off_t, to: c_int, most: size_t) -> Option<Permit> {
    if from < 0 {
        return None;
    }
    // SAFETY: by the caller's promise.
    let offset = unsafe { offset.as_ref() }.copied();
    let offset = offset.map(u64::try_from).transpose().ok()?;
    // SAFETY: looked at only; when it stands for nothing the look fails.
    let left = file::bytes_left(unsafe { BorrowedFd::borrow_raw(from) }, offset);
    let bytes = left.min(most as u64);
    if bytes < gate::write_bytes_min() as u64 {
        return None;
    }
    call::begin(to, Write, bytes)
}

hook!([copy_file_range](
    from: c_int,
    from_offset: *mut off_t,
    to: c_int,
    to_offset: *mut off_t,
    bytes: size_t,
    flags: c_uint,
) -> ssize_t {
    let asks = bytes >= gate::write_bytes_min();
    let permit = if asks { begin(from, from_offset, to, bytes) } else { None };
    let copied = real::copy_file_range(from, from_offset, to, to_offset, bytes, flags);
    call::end(permit, copied);
    copied
});

// To anything but a regular file it is a read of the source.
hook!([sendfile sendfile64](
    to: c_int, from: c_int, offset: *mut off_t, bytes: size_t
) -> ssize_t {
    let mut permit = None;
    if bytes >= gate::write_bytes_min() {
        permit = begin(from, offset, to, bytes);
    }
    if permit.is_none() && bytes >= gate::read_bytes_min() && !is_regular(to) {
        permit = read::begin(from, bytes, offset.as_ref().copied());
    }
    let sent = real::sendfile(to, from, offset, bytes);
    call::end(permit, sent);
    sent
});

fn is_regular(fd: c_int) -> bool {
    // SAFETY: looked at only; when it stands for nothing the look fails.
    fd >= 0 && file::regular(unsafe { BorrowedFd::borrow_raw(fd) }).is_some()
}
