//! Standard I/O.
//!
//! The C library's streams read and write by a way of their own that nobody can stand in front
//! of. A stream on a file of ours is therefore one with functions of ours in it (`fopencookie`),
//! which everything that works on streams works on. When descriptor 0, 1 or 2 becomes a file of
//! ours, `stdin`, `stdout` or `stderr` becomes such a stream, for good: its functions serve other
//! files as well.

use super::data::{read, write};
use super::open::{self, open_spot};
use super::seek::lseek;
use crate::act::Answer;
use crate::report::{self, Family, Why};
use crate::{config, errno, inside, real, table};
use crate::{path, pending};
use libc::{AT_FDCWD, FILE, c_char, c_int, c_void, off64_t, size_t, ssize_t};
use perthread::ForkRwLock;
use preload::hook;
use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// What a stream's functions work with.
struct Cookie {
    fd: AtomicI32,
}

/// `cookie_io_functions_t`.
#[repr(C)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

// SAFETY: the forms are those of the C library.
unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
    fn __fpurge(stream: *mut FILE);
    fn mbrtowc(
        out: *mut libc::wchar_t,
        text: *const c_char,
        bytes: size_t,
        state: *mut c_void,
    ) -> size_t;
    fn wcrtomb(out: *mut c_char, wide: libc::wchar_t, state: *mut c_void) -> size_t;
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
}

use crate::real::wint_t;

/// What functions of wide characters return at the end and for errors.
const WEOF: wint_t = wint_t::MAX;
/// What conversions return for bytes that are no character, and for too few.
const INVALID: size_t = size_t::MAX;
const INCOMPLETE: size_t = size_t::MAX - 1;
/// Streams of ours and their cookies, by address.
static STREAMS: ForkRwLock<Option<HashMap<usize, usize>>> = ForkRwLock::new(None);
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Bytes of a stream's buffer: a file of ours is asked over a network.
const BUFFER_BYTES: usize = 64 << 10;

/// The cookie of a stream of ours.
fn cookie_of(stream: *mut FILE) -> Option<&'static Cookie> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let address = *STREAMS.read().as_ref()?.get(&stream.addr())?;
    // SAFETY: cookies are freed when their stream is closed, and a stream that is being closed
    // may not be used.
    Some(unsafe { &*std::ptr::with_exposed_provenance::<Cookie>(address) })
}

fn remember(stream: *mut FILE, cookie: *mut Cookie) {
    STREAMS.write().get_or_insert_default().insert(stream.addr(), cookie.expose_provenance());
    COUNT.fetch_add(1, Ordering::AcqRel);
}

fn forget(stream: *mut FILE) {
    if COUNT.load(Ordering::Acquire) > 0
        && let Some(streams) = STREAMS.write().as_mut()
        && streams.remove(&stream.addr()).is_some()
    {
        COUNT.fetch_sub(1, Ordering::AcqRel);
    }
}

// SAFETY: called by the C library with a cookie of ours and room of this size.
unsafe extern "C" fn cookie_read(cookie: *mut c_void, data: *mut c_char, bytes: size_t) -> ssize_t {
    // SAFETY: see above.
    unsafe { read((*cookie.cast::<Cookie>()).fd.load(Ordering::Relaxed), data.cast(), bytes) }
}

// SAFETY: called by the C library with a cookie of ours and so many bytes.
unsafe extern "C" fn cookie_write(
    cookie: *mut c_void,
    data: *const c_char,
    bytes: size_t,
) -> ssize_t {
    // SAFETY: see above.
    let fd = unsafe { (*cookie.cast::<Cookie>()).fd.load(Ordering::Relaxed) };
    let mut done = 0;
    while done < bytes {
        // SAFETY: see above.
        let wrote = unsafe { write(fd, data.add(done).cast(), bytes - done) };
        if wrote <= 0 {
            // Such functions say 0 for an error.
            return done as ssize_t;
        }
        done += wrote as usize;
    }
    done as ssize_t
}

// SAFETY: called by the C library with a cookie of ours and a valid place.
unsafe extern "C" fn cookie_seek(cookie: *mut c_void, place: *mut off64_t, whence: c_int) -> c_int {
    // SAFETY: see above.
    unsafe {
        let fd = (*cookie.cast::<Cookie>()).fd.load(Ordering::Relaxed);
        let to = lseek(fd, *place, whence);
        if to < 0 {
            return -1;
        }
        *place = to;
    }
    0
}

// SAFETY: called by the C library with a cookie of ours, once.
unsafe extern "C" fn cookie_close(cookie: *mut c_void) -> c_int {
    // SAFETY: see above.
    let cookie = unsafe { Box::from_raw(cookie.cast::<Cookie>()) };
    // SAFETY: plain number.
    unsafe { super::descriptor::close(cookie.fd.load(Ordering::Relaxed)) }
}

/// A stream with our functions on a descriptor.
fn make(fd: c_int, mode: *const c_char) -> *mut FILE {
    let functions = Functions {
        read: cookie_read,
        write: cookie_write,
        seek: cookie_seek,
        close: cookie_close,
    };
    let cookie = Box::into_raw(Box::new(Cookie { fd: AtomicI32::new(fd) }));
    // SAFETY: the mode is a string; the functions fit the cookie.
    let stream = unsafe { fopencookie(cookie.cast(), mode, functions) };
    if stream.is_null() {
        // SAFETY: nobody has it.
        drop(unsafe { Box::from_raw(cookie) });
        return stream;
    }
    // SAFETY: a stream just made.
    unsafe { libc::setvbuf(stream, std::ptr::null_mut(), libc::_IOFBF, BUFFER_BYTES) };
    remember(stream, cookie);
    report::taken(Family::Stream);
    stream
}

/// Flags of `open` for a mode of `fopen`.
fn flags_of(mode: &[u8]) -> Option<c_int> {
    // What follows a comma is about character sets.
    let mode = mode.split(|byte| *byte == b',').next()?;
    let both = mode.contains(&b'+');
    let access = |one| if both { libc::O_RDWR } else { one };
    let mut flags = match mode.first()? {
        b'r' => access(libc::O_RDONLY),
        b'w' => access(libc::O_WRONLY) | libc::O_CREAT | libc::O_TRUNC,
        b'a' => access(libc::O_WRONLY) | libc::O_CREAT | libc::O_APPEND,
        _ => return None,
    };
    if mode.contains(&b'x') {
        flags |= libc::O_EXCL;
    }
    if mode.contains(&b'e') {
        flags |= libc::O_CLOEXEC;
    }
    Some(flags)
}

fn failed(error: c_int) -> *mut FILE {
    errno::set(error);
    std::ptr::null_mut()
}

hook!([fopen fopen64](path: *const c_char, mode: *const c_char) -> *mut FILE {
    let flags = path::bytes(mode).and_then(flags_of);
    let follows = flags.is_none_or(open::follows);
    let Some(spot) = path::locate_end(AT_FDCWD, path, follows) else {
        let stream = real::fopen64(path, mode);
        if !stream.is_null() || errno::get() != libc::ENXIO || flags.is_none() {
            return stream;
        }
        // A link of the kernel's to a descriptor of ours, perhaps.
        let made = open::open(path, flags.unwrap_or(0), 0o666);
        return if made < 0 { std::ptr::null_mut() } else { make(made, mode) };
    };
    let Some(flags) = flags else { return failed(libc::EINVAL) };
    match open_spot(&spot, flags, 0o666) {
        Ok(Answer::Done(fd)) => {
            let stream = make(fd, mode);
            if stream.is_null() {
                super::descriptor::close(fd);
            } else if flags & libc::O_APPEND != 0 {
                // `ftell` of a stream that appends begins at the end.
                lseek(fd, 0, libc::SEEK_END);
            }
            stream
        }
        Ok(Answer::Outside(path)) => real::fopen64(path.as_ptr(), mode),
        Err(error) => failed(error),
    }
});

hook!([fdopen](fd: c_int, mode: *const c_char) -> *mut FILE {
    let Some(open) = table::get(fd) else { return real::fdopen(fd, mode) };
    let Some(flags) = path::bytes(mode).and_then(flags_of) else { return failed(libc::EINVAL) };
    let status = &open.head().status;
    let has = status.load(Ordering::Relaxed) as c_int & libc::O_ACCMODE;
    let wants = flags & libc::O_ACCMODE;
    if has != libc::O_RDWR && has != wants {
        return failed(libc::EINVAL);
    }
    if flags & libc::O_APPEND != 0 {
        status.fetch_or(libc::O_APPEND as u32, Ordering::Relaxed);
    }
    make(fd, mode)
});

hook!([freopen freopen64](
    path: *const c_char, mode: *const c_char, stream: *mut FILE
) -> *mut FILE {
    let is_ours = path::locate_end(AT_FDCWD, path, true).is_some();
    let cookie = cookie_of(stream);
    if !is_ours && cookie.is_none() {
        return real::freopen64(path, mode, stream);
    }
    if path.is_null() {
        // Another mode for the same file; the stream keeps the one it has.
        return failed(libc::EBADF);
    }
    let standard = [&raw mut stdin, &raw mut stdout, &raw mut stderr];
    let number = standard.iter().position(|variable| **variable == stream);
    let Some(flags) = path::bytes(mode).and_then(flags_of) else { return failed(libc::EINVAL) };
    if cookie.is_none() && number.is_none() {
        // The program goes on with the same address, which must stay a stream of the other kind.
        report::passed(Family::Stream, Why::Refused, format_args!("freopen of a plain stream"));
        return failed(libc::EOPNOTSUPP);
    }
    libc::fflush(stream);
    __fpurge(stream);
    libc::clearerr(stream);
    let old = match cookie {
        Some(cookie) => cookie.fd.load(Ordering::Relaxed),
        None => real::fileno(stream),
    };
    let made = super::open::open(path, flags, 0o666);
    if made < 0 {
        return std::ptr::null_mut();
    }
    if made != old {
        let moved = super::descriptor::dup2(made, old);
        super::descriptor::close(made);
        if moved < 0 {
            return std::ptr::null_mut();
        }
    }
    match number {
        Some(number) => *standard[number],
        None => stream,
    }
});

hook!([fclose](stream: *mut FILE) -> c_int {
    if cookie_of(stream).is_some() {
        forget(stream);
    }
    real::fclose(stream)
});

hook!([fileno fileno_unlocked](stream: *mut FILE) -> c_int {
    match cookie_of(stream) {
        Some(cookie) => cookie.fd.load(Ordering::Relaxed),
        None => real::fileno(stream),
    }
});

hook!([fgetwc getwc fgetwc_unlocked getwc_unlocked](stream: *mut FILE) -> wint_t {
    if cookie_of(stream).is_none() {
        return real::fgetwc(stream);
    }
    let mut state = [0u64; 4];
    loop {
        let byte = libc::fgetc(stream);
        if byte == libc::EOF {
            return WEOF;
        }
        let (mut wide, byte) = (0 as libc::wchar_t, byte as c_char);
        match mbrtowc(&mut wide, &byte, 1, state.as_mut_ptr().cast()) {
            INCOMPLETE => {}
            INVALID => return WEOF,
            _ => return wide as wint_t,
        }
    }
});

hook!([getwchar getwchar_unlocked]() -> wint_t {
    fgetwc(stdin)
});

hook!([fgetws fgetws_unlocked](
    out: *mut libc::wchar_t, count: c_int, stream: *mut FILE
) -> *mut libc::wchar_t {
    if cookie_of(stream).is_none() {
        return real::fgetws(out, count, stream);
    }
    let mut used = 0;
    while used + 1 < count as isize {
        let wide = fgetwc(stream);
        if wide == WEOF {
            break;
        }
        *out.offset(used) = wide as libc::wchar_t;
        used += 1;
        if wide == wint_t::from(b'\n') {
            break;
        }
    }
    if used == 0 {
        return std::ptr::null_mut();
    }
    *out.offset(used) = 0;
    out
});

hook!([__fgetws_chk __fgetws_unlocked_chk](
    out: *mut libc::wchar_t, room: size_t, count: c_int, stream: *mut FILE
) -> *mut libc::wchar_t {
    if count > 0 && count as usize > room {
        libc::abort();
    }
    fgetws(out, count, stream)
});

hook!([fputwc putwc fputwc_unlocked putwc_unlocked](
    wide: libc::wchar_t, stream: *mut FILE
) -> wint_t {
    if cookie_of(stream).is_none() {
        return real::fputwc(wide, stream);
    }
    let mut bytes = [0 as c_char; 16];
    let mut state = [0u64; 4];
    let count = wcrtomb(bytes.as_mut_ptr(), wide, state.as_mut_ptr().cast());
    if count == INVALID || libc::fwrite(bytes.as_ptr().cast(), 1, count, stream) != count {
        return WEOF;
    }
    wide as wint_t
});

hook!([putwchar putwchar_unlocked](wide: libc::wchar_t) -> wint_t {
    fputwc(wide, stdout)
});

hook!([fputws fputws_unlocked](text: *const libc::wchar_t, stream: *mut FILE) -> c_int {
    if cookie_of(stream).is_none() {
        return real::fputws(text, stream);
    }
    let mut at = text;
    while *at != 0 {
        if fputwc(*at, stream) == WEOF {
            return -1;
        }
        at = at.add(1);
    }
    1
});

/// A descriptor stands for another file now. The standard streams of the first three follow.
pub fn descriptor_changed(fd: c_int) {
    if !(0..=2).contains(&fd) || !table::is_ours(fd) || config::get().is_none() {
        return;
    }
    // SAFETY: the variables are the C library's. They are changed by the thread that changes the
    // descriptor, as programs do with one thread.
    unsafe {
        let (variable, mode, buffered) = match fd {
            0 => (&raw mut stdin, c"r", libc::_IOFBF),
            1 => (&raw mut stdout, c"w", libc::_IOFBF),
            _ => (&raw mut stderr, c"w", libc::_IONBF),
        };
        let old = *variable;
        if old.is_null() || cookie_of(old).is_some() {
            return;
        }
        let made = make(fd, mode.as_ptr());
        if made.is_null() {
            return;
        }
        if buffered == libc::_IONBF {
            libc::setvbuf(made, std::ptr::null_mut(), libc::_IONBF, 0);
        }
        if fd != 0 {
            // What was printed and not written yet goes where the descriptor leads now.
            match pending::of(old) {
                Some([]) => {}
                Some(bytes) => {
                    libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), made);
                    __fpurge(old);
                }
                None => {
                    let what = format_args!("what was printed before {fd} was redirected is lost");
                    report::passed(Family::Stream, Why::Refused, what);
                }
            }
        }
        *variable = made;
    }
}

/// Before a fork.
pub fn fork_lock() {
    STREAMS.hold();
}

/// After it, on both sides.
///
/// # Safety
/// By the thread that called [`fork_lock`], or its copy.
pub unsafe fn fork_unlock() {
    // SAFETY: by the caller's promise.
    unsafe { STREAMS.release() };
}

/// Streams of descriptors that were inherited. Called when the library is loaded.
pub fn load() {
    debug_assert!(!inside::is_inside());
    (0..=2).for_each(descriptor_changed);
}
