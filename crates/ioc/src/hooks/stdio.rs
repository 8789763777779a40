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
    // SAFETY: by the caller's promise. It may set `errno` for a stream without a file.
    let permit = unsafe {
        let errno = *libc::__errno_location();
        let fd = fileno(stream);
        *libc::__errno_location() = errno;
        ask(fd)
    };
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

/// Stands in for `fwrite`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fwrite(
    data: *const c_void,
    size: size_t,
    count: size_t,
    stream: Stream,
) -> size_t {
    let Some(fwrite) = real::FWRITE.find() else { return 0 };
    // SAFETY: by the caller's promise, here and below.
    let real = || unsafe { fwrite(data, size, count, stream) };
    // SAFETY: by the caller's promise.
    unsafe { put(stream, true, size.saturating_mul(count), real, |done| done * size) }
}

/// Stands in for `fwrite_unlocked`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fwrite_unlocked(
    data: *const c_void,
    size: size_t,
    count: size_t,
    stream: Stream,
) -> size_t {
    let Some(fwrite) = real::FWRITE_UNLOCKED.find() else { return 0 };
    // SAFETY: by the caller's promise, here and below.
    let real = || unsafe { fwrite(data, size, count, stream) };
    // SAFETY: by the caller's promise.
    unsafe { put(stream, false, size.saturating_mul(count), real, |done| done * size) }
}

/// Stands in for `fputs`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fputs(text: *const c_char, stream: Stream) -> c_int {
    let Some(fputs) = real::FPUTS.find() else { return libc::EOF };
    // SAFETY: by the caller's promise, here and below.
    let real = || unsafe { fputs(text, stream) };
    // SAFETY: by the caller's promise.
    let bytes = unsafe { libc::strlen(text) };
    // SAFETY: by the caller's promise.
    unsafe { put(stream, true, bytes, real, |done| if done < 0 { 0 } else { bytes }) }
}

/// Stands in for `fputs_unlocked`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fputs_unlocked(text: *const c_char, stream: Stream) -> c_int {
    let Some(fputs) = real::FPUTS_UNLOCKED.find() else { return libc::EOF };
    // SAFETY: by the caller's promise, here and below.
    let real = || unsafe { fputs(text, stream) };
    // SAFETY: by the caller's promise.
    let bytes = unsafe { libc::strlen(text) };
    // SAFETY: by the caller's promise.
    unsafe { put(stream, false, bytes, real, |done| if done < 0 { 0 } else { bytes }) }
}

/// Empties a stream's buffer, if that much is in it that it has to ask.
///
/// # Safety
///
/// As for [`coordinated`].
unsafe fn flush(stream: Stream, lock: bool, real: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: by the caller's promise.
    let pending = unsafe { __fpending(stream) };
    if pending < gate::write_bytes_min() {
        return real();
    }
    let ask = |fd| call::begin(fd, Write, pending as u64);
    // SAFETY: by the caller's promise.
    unsafe { coordinated(stream, lock, ask, real, |result| if result == 0 { pending } else { 0 }) }
}

/// Stands in for `fflush`. Flushing all streams at once does not ask.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fflush(stream: Stream) -> c_int {
    let Some(fflush) = real::FFLUSH.find() else { return libc::EOF };
    // SAFETY: by the caller's promise, here and below.
    let real = || unsafe { fflush(stream) };
    if stream.is_null() {
        return real();
    }
    // SAFETY: by the caller's promise.
    unsafe { flush(stream, true, real) }
}

/// Stands in for `fflush_unlocked`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fflush_unlocked(stream: Stream) -> c_int {
    let Some(fflush) = real::FFLUSH_UNLOCKED.find() else { return libc::EOF };
    // SAFETY: by the caller's promise, here and below.
    let real = || unsafe { fflush(stream) };
    if stream.is_null() {
        return real();
    }
    // SAFETY: by the caller's promise.
    unsafe { flush(stream, false, real) }
}

/// Stands in for `fclose`: what is pending is flushed first, which may ask. If that fails, closing
/// tries again and reports it.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fclose(stream: Stream) -> c_int {
    let Some(fclose) = real::FCLOSE.find() else { return libc::EOF };
    if let Some(fflush) = real::FFLUSH.find()
        && !stream.is_null()
        // SAFETY: by the caller's promise.
        && unsafe { __fpending(stream) } >= gate::write_bytes_min()
    {
        // SAFETY: by the caller's promise.
        unsafe { flush(stream, true, || fflush(stream)) };
    }
    // SAFETY: by the caller's promise.
    unsafe { fclose(stream) }
}

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

/// Stands in for `fread`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fread(
    data: *mut c_void,
    size: size_t,
    count: size_t,
    stream: Stream,
) -> size_t {
    let Some(fread) = real::FREAD.find() else { return 0 };
    // SAFETY: by the caller's promise, here and below.
    let real = || unsafe { fread(data, size, count, stream) };
    // SAFETY: by the caller's promise.
    unsafe { get(stream, true, size, count, real) }
}

/// Stands in for `fread_unlocked`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fread_unlocked(
    data: *mut c_void,
    size: size_t,
    count: size_t,
    stream: Stream,
) -> size_t {
    let Some(fread) = real::FREAD_UNLOCKED.find() else { return 0 };
    // SAFETY: by the caller's promise, here and below.
    let real = || unsafe { fread(data, size, count, stream) };
    // SAFETY: by the caller's promise.
    unsafe { get(stream, false, size, count, real) }
}

/// Stands in for `__fread_chk`: what `fread` is in programs compiled with checks of buffer sizes.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __fread_chk(
    data: *mut c_void,
    room: size_t,
    size: size_t,
    count: size_t,
    stream: Stream,
) -> size_t {
    let Some(fread) = real::FREAD_CHK.find() else { return 0 };
    // SAFETY: by the caller's promise, here and below.
    let real = || unsafe { fread(data, room, size, count, stream) };
    // SAFETY: by the caller's promise.
    unsafe { get(stream, true, size, count, real) }
}

/// Stands in for `__fread_unlocked_chk`.
///
/// # Safety
///
/// As for the function it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __fread_unlocked_chk(
    data: *mut c_void,
    room: size_t,
    size: size_t,
    count: size_t,
    stream: Stream,
) -> size_t {
    let Some(fread) = real::FREAD_UNLOCKED_CHK.find() else { return 0 };
    // SAFETY: by the caller's promise, here and below.
    let real = || unsafe { fread(data, room, size, count, stream) };
    // SAFETY: by the caller's promise.
    unsafe { get(stream, false, size, count, real) }
}
