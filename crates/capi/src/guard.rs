//! The edge between C and us: no panic crosses it, every error becomes a number.

use crate::errno::Sign;
use crate::gurt::log;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use types::{Code, Error, Result};

/// Runs the body of a `daos_*` function: 0 or a negative DAOS error.
#[track_caller]
pub fn daos(body: impl FnOnce() -> Result<()>) -> i32 {
    number(Sign::Der, body)
}

/// Runs the body of a `dfs_*` or `duns_*` function: 0 or an `errno`.
#[track_caller]
pub fn posix(body: impl FnOnce() -> Result<()>) -> i32 {
    number(Sign::Errno, body)
}

/// Runs a body whose error is told as `sign` says.
#[track_caller]
pub fn number(sign: Sign, body: impl FnOnce() -> Result<()>) -> i32 {
    match catch(body) {
        Ok(()) => 0,
        Err(error) => told(sign, &error),
    }
}

/// Runs a `daos_*` body that returns a count.
#[track_caller]
pub fn count(body: impl FnOnce() -> Result<i32>) -> i32 {
    match catch(body) {
        Ok(count) => count,
        Err(error) => told(Sign::Der, &error),
    }
}

/// The number for an error. Its sentence goes to the log of C programs, which is standard error
/// unless they say otherwise, once for each function of the API and kind of error.
#[track_caller]
pub fn told(sign: Sign, error: &Error) -> i32 {
    told_at(Location::caller(), sign, error)
}

/// [`told`] for the function at `place`.
pub fn told_at(place: &Location<'_>, sign: Sign, error: &Error) -> i32 {
    if !error.text.is_empty() {
        tracing::debug!("{error}");
        if !is_an_answer(error.code) && log::is_enabled(log::ERR) && is_first(place, error.code) {
            log::line(log::ERR, &error.to_string());
        }
    }
    sign.number(error.code)
}

/// Errors that programs ask for: what they look for is not there, or is; what they race for is lost.
fn is_an_answer(code: Code) -> bool {
    use Code::{
        Canceled, Deadlock, Exist, NoAttr, NoData, NonExist, NotEmpty, Range, RecordTooBig,
        TxRestart, WouldBlock,
    };
    let answers = [
        Canceled,
        Deadlock,
        Exist,
        NoAttr,
        NoData,
        NonExist,
        NotEmpty,
        Range,
        RecordTooBig,
        TxRestart,
        WouldBlock,
    ];
    answers.contains(&code)
}

/// True the first time. Two that share a bit are taken for one. No lock: see [`log`].
fn is_first(place: &Location<'_>, code: Code) -> bool {
    static SEEN: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];
    let mut hasher = DefaultHasher::new();
    (place.file(), place.line(), code as u64).hash(&mut hasher);
    let hash = hasher.finish();
    let bit = 1 << (hash & 63);
    SEEN[(hash >> 6) as usize % SEEN.len()].fetch_or(bit, Ordering::Relaxed) & bit == 0
}

/// Runs `body`; a panic becomes an error.
pub fn catch<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| Err(panicked(&*panic)))
}

/// What a caught panic is told as.
pub fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    tracing::error!("internal error: {text}");
    Error::new(Code::Io, format!("internal error: {text}"))
}

/// The reference behind a pointer from C; `Inval` for NULL.
///
/// # Safety
/// A pointer that is not NULL must point to a live value that nobody changes meanwhile.
pub unsafe fn get<'a, T>(pointer: *const T) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(null)
}

/// Writes a result through a pointer from C; `Inval` for NULL.
///
/// # Safety
/// A pointer that is not NULL must be good for writing a `T`.
pub unsafe fn put<T>(pointer: *mut T, value: T) -> Result<()> {
    if pointer.is_null() {
        return Err(null());
    }
    // SAFETY: not NULL, and the caller's promise.
    unsafe { pointer.write(value) };
    Ok(())
}

/// The bytes of a C string; `Inval` for NULL.
///
/// # Safety
/// A pointer that is not NULL must point to a string that ends with NUL and outlives `'a`.
pub unsafe fn text<'a>(pointer: *const libc::c_char) -> Result<&'a [u8]> {
    if pointer.is_null() {
        return Err(null());
    }
    // SAFETY: not NULL, and the caller's promise.
    Ok(unsafe { std::ffi::CStr::from_ptr(pointer) }.to_bytes())
}

/// A C string as UTF-8; `Inval` for NULL and for other bytes.
///
/// # Safety
/// As for [`text`].
pub unsafe fn utf8<'a>(pointer: *const libc::c_char) -> Result<&'a str> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { text(pointer) }?;
    std::str::from_utf8(bytes).map_err(|_| Error::inval("the text is not UTF-8"))
}

/// The error for a NULL where there must be something.
pub fn null() -> Error {
    Error::inval("a pointer that must not be NULL is")
}

/// A pointer from C that an operation writes to or reads from when it runs.
///
/// Invariant: the caller of the C function keeps the memory until the operation completes, as
/// the API demands; an operation touches it on whichever thread completes it, one at a time.
pub struct User<T>(pub *mut T);

impl<T> Clone for User<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for User<T> {}

// SAFETY: see the invariant of the type.
unsafe impl<T> Send for User<T> {}

impl<T> User<T> {
    /// Writes a result; NULL means nobody wants it.
    pub fn set(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the invariant of the type.
            unsafe { self.0.write(value) };
        }
    }
}
