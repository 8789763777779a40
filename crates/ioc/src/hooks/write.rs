//! `write` and its kin.

use super::{AT_ONCE, bytes_of};
use crate::{call, gate, real};
use coordinate::message::IoKind::Write;
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};
use preload::hook;

/// Writes; asks before if it is that much.
#[inline]
fn write_by(real: impl FnOnce() -> ssize_t, fd: c_int, bytes: usize) -> ssize_t {
    if bytes < gate::write_bytes_min() {
        return real();
    }
    let permit = call::begin(fd, Write, bytes as u64);
    let written = real();
    call::end(permit, written);
    written
}

hook!([write](fd: c_int, data: *const c_void, bytes: size_t) -> ssize_t {
    write_by(|| real::write(fd, data, bytes), fd, bytes)
});

hook!([pwrite pwrite64](
    fd: c_int, data: *const c_void, bytes: size_t, offset: off_t
) -> ssize_t {
    write_by(|| real::pwrite(fd, data, bytes, offset), fd, bytes)
});

hook!([writev](fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    write_by(|| real::writev(fd, pieces, count), fd, bytes_of(pieces, count))
});

hook!([pwritev pwritev64](
    fd: c_int, pieces: *const iovec, count: c_int, offset: off_t
) -> ssize_t {
    write_by(|| real::pwritev(fd, pieces, count, offset), fd, bytes_of(pieces, count))
});

hook!([pwritev2 pwritev64v2](
    fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int
) -> ssize_t {
    let real = || real::pwritev2(fd, pieces, count, offset, flags);
    if flags & AT_ONCE != 0 { real() } else { write_by(real, fd, bytes_of(pieces, count)) }
});
