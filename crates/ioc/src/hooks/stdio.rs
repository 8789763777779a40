//! Standard I/O. The C library's streams write by a way of their own that nobody can stand in
//! front of, so it is the calls on streams that ask, when they are about to make the stream write
//! (or read) that much: `fwrite` and `fputs` of large pieces or onto a full large buffer, `fflush`
//! and `fclose` with a large buffer's worth pending, `fread` of large pieces.
//!
//! A stream is locked before its call asks. The other way round, a thread that holds the stream
//! (`flockfile`) and waits for permission would wait for one that has permission and waits for the
//! stream. Such a call is not to be cancelled half-way, which would leave the stream locked;
//! standard I/O need not be a place for that.

use crate::call::{self, Permit};
use crate::{gate, real};
use coordinate::message::IoKind::Write;
use libc::{c_char, c_int, c_void, size_t};
use preload::{errno, hook};
use real::Stream;

/// Buffer of a stream that has not made one yet.
const USUAL_BUFFER_BYTES: usize = 4096;

unsafe extern "C" {
    /// Bytes in the stream's buffer that have not been written.
    fn __fpending(stream: Stream) -> size_t;
    /// Size of its buffer, 0 before there is one.
    fn __fbufsize(stream: Stream) -> size_t;
    fn flockfile(stream: Stream);
    fn funlockfile(stream: Stream);
    fn fileno(stream: Stream) -> c_int;
}

/// True when putting so many bytes into the stream makes it write enough to ask. Short for the
/// most frequent case: few bytes and a small buffer.
///
/// # Safety
///
/// The stream is valid.
#[inline]
unsafe fn put_asks(stream: Stream, bytes: usize) -> bool {
    let least = gate::write_bytes_min();
    // SAFETY: by the caller's promise. Read without the stream's lock, which only those may do
    // who need no exact answer.
    let pending = unsafe { __fpending(stream) };
    if bytes.saturating_add(pending) < least {
        return false;
    }
    // SAFETY: as above.
    let buffer = match unsafe { __fbufsize(stream) } {
        0 => USUAL_BUFFER_BYTES,
        buffer => buffer,
    };
    bytes.saturating_add(pending) > buffer
}

/// Runs a call on a stream between asking and reporting. `bytes_done` says how much of the result
/// was transferred.
///
/// # Safety
///
/// The stream is valid and, unless `lock`, locked by the caller or used by no other thread.
unsafe fn coordinated<T: Copy>(
    stream: Stream,
    lock: bool,
    ask: impl FnOnce(c_int) -> Option<Permit>,
    real: impl FnOnce() -> T,
    bytes_done: impl FnOnce(T) -> usize,
) -> T {
    let cancelling = call::cancel_state(call::CANCEL_DISABLE);
    if lock {
        // SAFETY: by the caller's promise.
        unsafe { flockfile(stream) };
    }
    let before = errno::get();
    // SAFETY: by the caller's promise. It may set `errno` for a stream without a file.
    let fd = unsafe { fileno(stream) };
    errno::set(before);
    let permit = ask(fd);
    let result = real();
    call::end(permit, isize::try_from(bytes_done(result)).unwrap_or(isize::MAX));
    if lock {
        // SAFETY: locked above.
        unsafe { funlockfile(stream) };
    }
    call::cancel_state(cancelling);
    result
}

/// Puts bytes into a stream.
///
/// # Safety
///
/// As for [`coordinated`].
unsafe fn put<T: Copy>(
    stream: Stream,
    lock: bool,
    bytes: usize,
    real: impl FnOnce() -> T,
    bytes_done: impl FnOnce(T) -> usize,
) -> T {
    // SAFETY: by the caller's promise.
    if !unsafe { put_asks(stream, bytes) } {
        return real();
    }
    // SAFETY: by the caller's promise.
    let pending = unsafe { __fpending(stream) };
    let ask = |fd| call::begin(fd, Write, bytes.saturating_add(pending) as u64);
    // SAFETY: by the caller's promise.
    unsafe { coordinated(stream, lock, ask, real, |result| bytes_done(result) + pending) }
}

hook!([fwrite](
    data: *const c_void, size: size_t, count: size_t, stream: Stream
) -> size_t {
    let real = || real::fwrite(data, size, count, stream);
    put(stream, true, size.saturating_mul(count), real, |done| done * size)
});

hook!([fwrite_unlocked](
    data: *const c_void, size: size_t, count: size_t, stream: Stream
) -> size_t {
    let real = || real::fwrite_unlocked(data, size, count, stream);
    put(stream, false, size.saturating_mul(count), real, |done| done * size)
});

hook!([fputs](text: *const c_char, stream: Stream) -> c_int {
    let bytes = libc::strlen(text);
    let real = || real::fputs(text, stream);
    put(stream, true, bytes, real, |done| if done < 0 { 0 } else { bytes })
});

hook!([fputs_unlocked](text: *const c_char, stream: Stream) -> c_int {
    let bytes = libc::strlen(text);
    let real = || real::fputs_unlocked(text, stream);
    put(stream, false, bytes, real, |done| if done < 0 { 0 } else { bytes })
});

/// Empties a stream's buffer; asks before if that much is in it. All streams at once, by a null
/// pointer, do not ask.
///
/// # Safety
///
/// As for [`coordinated`], or null.
unsafe fn flush(stream: Stream, lock: bool, real: impl FnOnce() -> c_int) -> c_int {
    if stream.is_null() {
        return real();
    }
    // SAFETY: by the caller's promise.
    let pending = unsafe { __fpending(stream) };
    if pending < gate::write_bytes_min() {
        return real();
    }
    let ask = |fd| call::begin(fd, Write, pending as u64);
    // SAFETY: by the caller's promise.
    unsafe { coordinated(stream, lock, ask, real, |result| if result == 0 { pending } else { 0 }) }
}

hook!([fflush](stream: Stream) -> c_int {
    flush(stream, true, || real::fflush(stream))
});

hook!([fflush_unlocked](stream: Stream) -> c_int {
    flush(stream, false, || real::fflush_unlocked(stream))
});

// What is pending is flushed first, which may ask. If that fails, closing tries again and reports
// it.
hook!([fclose](stream: Stream) -> c_int {
    if !stream.is_null() && __fpending(stream) >= gate::write_bytes_min() {
        flush(stream, true, || real::fflush(stream));
    }
    real::fclose(stream)
});

/// Takes bytes from a stream. What is in its buffer already is not told apart.
///
/// # Safety
///
/// As for [`coordinated`].
unsafe fn get(
    stream: Stream,
    lock: bool,
    size: usize,
    count: usize,
    real: impl FnOnce() -> size_t,
) -> size_t {
    let bytes = size.saturating_mul(count);
    if bytes < gate::read_bytes_min() {
        return real();
    }
    let ask = |fd| super::read::begin(fd, bytes, None);
    // SAFETY: by the caller's promise.
    unsafe { coordinated(stream, lock, ask, real, |done| done * size) }
}

hook!([fread](data: *mut c_void, size: size_t, count: size_t, stream: Stream) -> size_t {
    get(stream, true, size, count, || real::fread(data, size, count, stream))
});

hook!([fread_unlocked](
    data: *mut c_void, size: size_t, count: size_t, stream: Stream
) -> size_t {
    get(stream, false, size, count, || real::fread_unlocked(data, size, count, stream))
});

// What the calls are in programs compiled with checks of buffer sizes.
hook!([__fread_chk](
    data: *mut c_void, room: size_t, size: size_t, count: size_t, stream: Stream
) -> size_t {
    get(stream, true, size, count, || real::__fread_chk(data, room, size, count, stream))
});

hook!([__fread_unlocked_chk](
    data: *mut c_void, room: size_t, size: size_t, count: size_t, stream: Stream
) -> size_t {
    let real = || real::__fread_unlocked_chk(data, room, size, count, stream);
    get(stream, false, size, count, real)
});
