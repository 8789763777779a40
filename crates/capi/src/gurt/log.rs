//! The log of C programs (`D_ERROR`, `D_DEBUG`, ... write here) and of the library itself.
//!
//! Environment: `D_LOG_FILE` names a file to append to (default: standard error), to which the
//! process id is added when `D_LOG_FILE_APPEND_PID` is set and not 0; `D_LOG_TRUNCATE=1` empties
//! it first. `D_LOG_MASK` is the least level written (default `ERR`): `DEBUG`, `INFO`, `NOTE`,
//! `WARN`, `ERR`, `CRIT`, `ALERT`, `EMERG`. Parts such as `mem=DEBUG` are for single facilities,
//! which there are none of here, and say nothing. `DD_STDERR` is the least level that goes to
//! standard error as well when there is a file (default `EMERG`).
//!
//! There is no lock, so that a forked child of a busy process may log: settings are atomics, and
//! a line is one `write` to a descriptor in append mode.

use crate::gurt::{shielded, status};
use std::ffi::{CStr, CString, OsString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering::Relaxed};

/// Levels in masks of C are shifted; macros that call [`azk_log_line`] give them plain.
const SHIFT: u32 = 24;
/// Messages for developers.
pub const DEBUG: c_int = 0;
/// Something failed.
pub const ERR: c_int = 4;
const EMERG: c_int = 7;
const OFF: c_int = c_int::MAX;

/// Names of levels from `INFO` up, with their older spellings.
const NAMES: [&[&str]; 8] = [
    &["INFO"],
    &["NOTE"],
    &["WARN"],
    &["ERR", "ERROR"],
    &["CRIT"],
    &["ALERT", "ALRT"],
    &["EMERG", "EMRG", "FATAL"],
    &["EMIT"],
];

/// A line is cut here, bytes.
const LINE_BYTES_MAX: usize = 4096;

/// Not read from the environment yet.
const UNREAD: c_int = -1;
static MASK: AtomicI32 = AtomicI32::new(UNREAD);
static STDERR_MASK: AtomicI32 = AtomicI32::new(EMERG);
static FILE: AtomicI32 = AtomicI32::new(UNREAD);
static USERS: AtomicI32 = AtomicI32::new(0);

/// What `D_ASSERT` calls before it aborts, when a program registered something; NULL if not.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static d_alt_assert: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

fn level_of(name: &str) -> Option<c_int> {
    let is = |known: &&str| known.eq_ignore_ascii_case(name);
    if ["DEBUG", "DBUG"].iter().any(&is) {
        return Some(0);
    }
    let at = NAMES.iter().position(|names| names.iter().any(&is))?;
    Some(at as c_int + 1)
}

/// 0 (debug) to 8, of a plain or a shifted level.
fn plain(level: c_int) -> c_int {
    if level >> 8 == 0 { level } else { level >> SHIFT & 15 }
}

fn name_of(level: c_int) -> &'static str {
    match usize::try_from(level - 1) {
        Ok(at) => NAMES.get(at).map_or("EMIT", |names| names[0]),
        Err(_) => "DBUG",
    }
}

/// The level that a mask such as `WARN,mem=DEBUG` gives to all facilities.
fn default_level(mask: &str) -> Option<c_int> {
    mask.split(',').map(str::trim).filter(|part| !part.contains('=')).find_map(level_of)
}

fn setting(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn is_on(name: &str) -> bool {
    setting(name).is_some_and(|value| value != "0")
}

/// Reads the environment and opens the file.
fn open() {
    let level = |name| setting(name).and_then(|mask| default_level(&mask.to_string_lossy()));
    let path = setting("D_LOG_FILE").map(|path| {
        let mut path = path.into_vec();
        if is_on("D_LOG_FILE_APPEND_PID") {
            path.extend(format!(".{}", std::process::id()).bytes());
        }
        path
    });
    let file = path.and_then(|path| {
        let path = CString::new(path).ok()?;
        let truncate = if is_on("D_LOG_TRUNCATE") { libc::O_TRUNC } else { 0 };
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC | truncate;
        // SAFETY: the path is a string.
        let file = unsafe { libc::open(path.as_ptr(), flags, 0o644 as c_uint) };
        if file < 0 {
            let error = std::io::Error::last_os_error();
            let path = path.to_string_lossy();
            send(libc::STDERR_FILENO, &format!("cannot open the log file {path}: {error}\n"));
        }
        (file >= 0).then_some(file)
    });
    STDERR_MASK.store(level("DD_STDERR").unwrap_or(EMERG), Relaxed);
    let file = file.unwrap_or(libc::STDERR_FILENO);
    if FILE.compare_exchange(UNREAD, file, Relaxed, Relaxed).is_err() && file != libc::STDERR_FILENO
    {
        // Another thread was faster.
        // SAFETY: the descriptor is ours, and nobody else knows it.
        unsafe { libc::close(file) };
    }
    let mask = level("D_LOG_MASK").unwrap_or(ERR);
    // A mask that the program set meanwhile stays.
    let _ = MASK.compare_exchange(UNREAD, mask, Relaxed, Relaxed);
}

fn send(file: c_int, line: &str) {
    // SAFETY: the bytes are there. What cannot be written is lost; there is nobody to tell.
    unsafe { libc::write(file, line.as_ptr().cast(), line.len()) };
}

/// True when a message of this level would be written.
pub fn is_enabled(level: c_int) -> bool {
    match MASK.load(Relaxed) {
        UNREAD => {
            open();
            plain(level) >= MASK.load(Relaxed)
        }
        mask => plain(level) >= mask,
    }
}

/// Writes a message of the library.
pub fn line(level: c_int, text: &str) {
    if is_enabled(level) {
        write(level, "", text);
    }
}

fn write(level: c_int, place: &str, text: &str) {
    let level = plain(level);
    let mut text = text.trim_end_matches('\n');
    while text.len() > LINE_BYTES_MAX {
        let cut = (0..=LINE_BYTES_MAX).rev().find(|&at| text.is_char_boundary(at));
        text = &text[..cut.unwrap_or(0)];
    }
    let line =
        format!("{} azekura[{}] {:5}{place} {text}\n", now(), std::process::id(), name_of(level));
    // Another thread may have closed the file meanwhile.
    let file = FILE.load(Relaxed).max(libc::STDERR_FILENO);
    send(file, &line);
    if file != libc::STDERR_FILENO && level >= STDERR_MASK.load(Relaxed) {
        send(libc::STDERR_FILENO, &line);
    }
}

/// Local time with microseconds.
fn now() -> String {
    // SAFETY: both structs are plain numbers; the calls fill them.
    let (time, day) = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        let mut day: libc::tm = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_REALTIME, &mut time);
        libc::localtime_r(&time.tv_sec, &mut day);
        (time, day)
    };
    let (year, month) = (day.tm_year + 1900, day.tm_mon + 1);
    let (hour, minute, second) = (day.tm_hour, day.tm_min, day.tm_sec);
    let micros = time.tv_nsec / 1000;
    format!("{year}/{month:02}/{:02}-{hour:02}:{minute:02}:{second:02}.{micros:06}", day.tm_mday)
}

/// # Safety
/// The caller gives a string.
unsafe fn text_of<'a>(text: *const c_char) -> std::borrow::Cow<'a, str> {
    if text.is_null() {
        return "".into();
    }
    // SAFETY: the caller gives a string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy()
}

/// Writes a message that a C program formatted, if its level is to be written.
///
/// # Safety
/// The caller gives NULL or strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn azk_log_line(
    level: c_int,
    file: *const c_char,
    line: c_int,
    func: *const c_char,
    text: *const c_char,
) {
    if !is_enabled(level) {
        return;
    }
    shielded((), || {
        // SAFETY: the caller gives NULL or strings.
        let (file, func, text) = unsafe { (text_of(file), text_of(func), text_of(text)) };
        write(level, &format!(" {file}:{line} {func}()"), &text);
    });
}

/// Not 0 when a message of this level would be written; macros ask before they format.
#[unsafe(no_mangle)]
pub extern "C" fn azk_log_enabled(level: c_int) -> c_int {
    is_enabled(level) as c_int
}

/// Opens the log; each user closes it with `d_log_fini`. The first one has the environment read
/// anew, because lines may have been written before.
#[unsafe(no_mangle)]
pub extern "C" fn d_log_init() -> c_int {
    if USERS.fetch_add(1, Relaxed) == 0 {
        d_log_close();
    }
    is_enabled(EMERG);
    0
}

/// Opens the log. A file given here counts when `D_LOG_FILE` names none; a mask (a level) when
/// `D_LOG_MASK` gives none.
///
/// # Safety
/// The caller gives a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_log_init_adv(
    _log_tag: *mut c_char,
    log_file: *mut c_char,
    _flavor: c_uint,
    def_mask: u64,
    err_mask: u64,
    _id_cb: Option<unsafe extern "C" fn(*mut u32, *mut u64)>,
) -> c_int {
    status(|| {
        if USERS.fetch_add(1, Relaxed) == 0 {
            if !log_file.is_null() && setting("D_LOG_FILE").is_none() {
                // SAFETY: the caller gives a string.
                let path = unsafe { CStr::from_ptr(log_file) };
                let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
                // SAFETY: the path is a string.
                let file = unsafe { libc::open(path.as_ptr(), flags, 0o644 as c_uint) };
                if file < 0 {
                    USERS.fetch_sub(1, Relaxed);
                    return Err(crate::errno::DER_UNINIT);
                }
                close_file();
                FILE.store(file, Relaxed);
            }
            is_enabled(EMERG);
            if setting("D_LOG_MASK").is_none() {
                MASK.store(plain(c_int::try_from(def_mask).unwrap_or(0)), Relaxed);
            }
            if setting("DD_STDERR").is_none() && err_mask != 0 {
                STDERR_MASK.store(plain(c_int::try_from(err_mask).unwrap_or(0)), Relaxed);
            }
        }
        Ok(())
    })
}

/// One user less; the last one closes the file. Later messages open it again.
#[unsafe(no_mangle)]
pub extern "C" fn d_log_fini() {
    let less = |users: c_int| (users > 0).then_some(users - 1);
    if USERS.fetch_update(Relaxed, Relaxed, less) == Ok(1) {
        d_log_close();
    }
}

/// Closes the file. Later messages read the environment again.
#[unsafe(no_mangle)]
pub extern "C" fn d_log_close() {
    close_file();
    // Once disabled, always disabled.
    let _ = MASK.fetch_update(Relaxed, Relaxed, |mask| (mask != OFF).then_some(UNREAD));
}

fn close_file() {
    let file = FILE.swap(UNREAD, Relaxed);
    if file > libc::STDERR_FILENO {
        // SAFETY: the descriptor is ours.
        unsafe { libc::close(file) };
    }
}

/// Reads `D_LOG_MASK` again.
#[unsafe(no_mangle)]
pub extern "C" fn d_log_sync_mask() {
    let _ = MASK.fetch_update(Relaxed, Relaxed, |mask| (mask != OFF).then_some(UNREAD));
    is_enabled(EMERG);
}

/// Takes another mask; NULL reads `D_LOG_MASK` again.
///
/// # Safety
/// The caller gives a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_log_sync_mask_ex(log_mask: *const c_char, _dd_mask: *const c_char) {
    if log_mask.is_null() {
        return d_log_sync_mask();
    }
    // SAFETY: the caller gives a string.
    unsafe { d_log_setmasks(log_mask, -1) };
}

/// Sets the level from the first `mlen` bytes of a mask, or from all when negative: 0, or -1 when
/// it has no meaning.
///
/// # Safety
/// The caller gives a string, or `mlen` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_log_setmasks(mstr: *const c_char, mlen: c_int) -> c_int {
    if mstr.is_null() {
        return -1;
    }
    shielded(-1, || {
        // SAFETY: the caller gives a string, or `mlen` bytes.
        let bytes = unsafe {
            match usize::try_from(mlen) {
                Ok(len) => std::slice::from_raw_parts(mstr.cast(), len),
                Err(_) => CStr::from_ptr(mstr).to_bytes(),
            }
        };
        match default_level(&std::ffi::OsStr::from_bytes(bytes).to_string_lossy()) {
            Some(level) => {
                is_enabled(EMERG);
                let set = |mask| (mask != OFF).then_some(level);
                let _ = MASK.fetch_update(Relaxed, Relaxed, set);
                0
            }
            None => -1,
        }
    })
}

/// Lines are written at once; there is nothing to wait for.
#[unsafe(no_mangle)]
pub extern "C" fn d_log_sync() {}

/// No messages from now on.
#[unsafe(no_mangle)]
pub extern "C" fn d_log_disable_logging() {
    MASK.store(OFF, Relaxed);
    close_file();
}

/// Writes memory in hexadecimal, 16 bytes a line.
///
/// # Safety
/// The caller gives `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_log_memory(ptr: *const u8, size: usize) {
    shielded((), || {
        line(EMERG, &format!("memory at {ptr:p}, {size} bytes"));
        if ptr.is_null() {
            return;
        }
        // SAFETY: the caller gives `size` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(ptr, size) };
        for (at, row) in bytes.chunks(16).enumerate() {
            let row: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
            line(EMERG, &format!("{:p}: {}", ptr.wrapping_add(at * 16), row.join(" ")));
        }
    });
}

/// Sets what `D_ASSERT` calls before it aborts.
#[unsafe(no_mangle)]
pub extern "C" fn d_register_alt_assert(
    alt_assert: Option<unsafe extern "C" fn(c_int, *const c_char, *const c_char, c_int)>,
) -> c_int {
    match alt_assert {
        Some(function) => {
            d_alt_assert.store(function as *mut c_void, Relaxed);
            0
        }
        None => -crate::errno::DER_INVAL,
    }
}

/// Handlers that print a stack are for DAOS's own programs; this process keeps its own.
#[unsafe(no_mangle)]
pub extern "C" fn d_signal_stack_enable(_enabled: bool) {}

/// See [`d_signal_stack_enable`].
#[unsafe(no_mangle)]
pub extern "C" fn d_signal_register() {}

/// Opens the log.
///
/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_debug_init(_logfile: *mut c_char) -> c_int {
    d_log_init()
}

/// Closes what `daos_debug_init` opened.
#[unsafe(no_mangle)]
pub extern "C" fn daos_debug_fini() {
    d_log_fini();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_give_levels() {
        assert_eq!(default_level("ERR"), Some(ERR));
        assert_eq!(default_level("mem=DEBUG, warn"), Some(3));
        assert_eq!(default_level("DEBUG,mem=ERR"), Some(0));
        assert_eq!(default_level("mem=DEBUG"), None);
        assert_eq!(default_level(""), None);
        assert_eq!(default_level("loud"), None);
        for (name, level) in [("emrg", EMERG), ("EMERG", EMERG), ("info", 1), ("DBUG", 0)] {
            assert_eq!(level_of(name), Some(level));
        }
        assert_eq!([name_of(DEBUG), name_of(ERR), name_of(EMERG)], ["DBUG", "ERR", "EMERG"]);
        for (shifted, level) in [(0x00ff_ff00, 0), (0x0400_0000, 4), (0x0800_0000, 8), (5, 5)] {
            assert_eq!(plain(shifted), level);
        }
    }
}
