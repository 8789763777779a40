//! The current directory.
//!
//! Below a prefix without a mount the kernel cannot have it. The process's own idea of it is kept
//! here then, and the kernel is put into a directory that has been removed: a relative path
//! that reaches the kernel by another way finds nothing there, instead of something else.
//!
//! A program that is executed learns of it from `AZEKURA_INTERCEPT_CWD`, which counts only while
//! the kernel's current directory is a removed one.

use crate::config::{self, Config};
use crate::path::{self, Spot, Start};
use crate::{errno, inside, real};
use libc::c_int;
use perthread::ForkRwLock;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Name of the variable.
pub const VARIABLE: &std::ffi::CStr = c"AZEKURA_INTERCEPT_CWD";

/// Absolute path of the current directory, ours or not; empty when it is not known.
static CWD: ForkRwLock<Vec<u8>> = ForkRwLock::new(Vec::new());
/// It is below a prefix.
static OURS: AtomicBool = AtomicBool::new(false);
/// A prefix is below it.
static ABOVE: AtomicBool = AtomicBool::new(false);
/// The kernel's current directory is the removed one, in place of ours.
static VIRTUAL: AtomicBool = AtomicBool::new(false);

/// True when a relative path may be ours.
pub fn concerns(path: &[u8]) -> bool {
    OURS.load(Relaxed) || ABOVE.load(Relaxed) || path::has_dot_dot(path)
}

/// True when the kernel does not know the current directory.
pub fn is_virtual() -> bool {
    VIRTUAL.load(Relaxed)
}

/// A relative path of ours.
pub fn locate(config: &'static Config, relative: &[u8]) -> Option<Spot> {
    let full = {
        let cwd = CWD.read();
        if cwd.is_empty() {
            return None;
        }
        path::join(&cwd, relative)
    };
    if OURS.load(Relaxed) {
        // `..` is the walk's to take: a name before it may be a symbolic link.
        let cwd = CWD.read();
        let at = path::below_any(config, &cwd)?;
        let text = path::join(&at.text, relative);
        return Some(Spot { prefix: at.prefix, start: Start::Prefix, text });
    }
    path::below_any(config, &full)
}

/// The current directory, if it is ours.
pub fn ours() -> Option<Vec<u8>> {
    OURS.load(Relaxed).then(|| CWD.read().clone())
}

/// Learns where the process is. Called once, when the library is loaded.
pub fn load(config: &'static Config) {
    let inherited = std::env::var_os("AZEKURA_INTERCEPT_CWD");
    let inherited = inherited.map(std::os::unix::ffi::OsStringExt::into_vec).unwrap_or_default();
    let told = rustix::process::getcwd(Vec::new()).map(CString::into_bytes).unwrap_or_default();
    let is_gone = rustix::fs::stat(c".").is_ok_and(|stat| stat.st_nlink == 0);
    if is_gone && !inherited.is_empty() && path::below_any(config, &inherited).is_some() {
        VIRTUAL.store(true, Relaxed);
        set(config, inherited);
    } else {
        // A path that the kernel calls unreachable does not begin with a slash.
        set(config, if told.first() == Some(&b'/') { told } else { Vec::new() });
    }
}

/// What the kernel's current directory is now, after a change of it.
pub fn changed(config: &'static Config) {
    VIRTUAL.store(false, Relaxed);
    let told = rustix::process::getcwd(Vec::new()).map(CString::into_bytes).unwrap_or_default();
    set(config, if told.first() == Some(&b'/') { told } else { Vec::new() });
    publish();
}

/// Makes a directory of ours the current one. `physical` has no symbolic links.
pub fn enter(prefix: &'static config::Prefix, physical: Vec<u8>) -> Result<(), c_int> {
    let Some(config) = config::get() else { return Err(libc::ENOENT) };
    if prefix.is_mount {
        let path = CString::new(physical).map_err(|_| libc::ENOENT)?;
        // SAFETY: the path is a string.
        if unsafe { real::chdir(path.as_ptr()) } != 0 {
            return Err(errno::get());
        }
        changed(config);
        return Ok(());
    }
    if !is_virtual() {
        leave_the_kernel_nowhere()?;
    }
    VIRTUAL.store(true, Relaxed);
    set(config, physical);
    publish();
    Ok(())
}

fn set(config: &'static Config, path: Vec<u8>) {
    let is_ours = path::below_any(config, &path).is_some();
    let is_above = !is_ours
        && !path.is_empty()
        && config.prefixes.iter().any(|prefix| {
            let rest = prefix.path.strip_prefix(path.strip_suffix(b"/").unwrap_or(&path));
            rest.is_some_and(|rest| rest.first() == Some(&b'/'))
        });
    let mut cwd = CWD.write();
    *cwd = path;
    OURS.store(is_ours, Relaxed);
    ABOVE.store(is_above, Relaxed);
}

/// Programs that the C library starts by itself get the environment as it is.
fn publish() {
    let value = is_virtual().then(|| CString::new(CWD.read().clone()).unwrap_or_default());
    // SAFETY: name and value are strings. The environment is the program's, and not safe against
    // its own use by other threads; changing directories is not either.
    unsafe {
        match value {
            Some(value) => libc::setenv(VARIABLE.as_ptr(), value.as_ptr(), 1),
            None => libc::unsetenv(VARIABLE.as_ptr()),
        };
    }
}

fn leave_the_kernel_nowhere() -> Result<(), c_int> {
    debug_assert!(inside::is_inside());
    let mut template = *b"/tmp/azekura-cwd-XXXXXX\0";
    // SAFETY: the template is a string with room.
    let made = unsafe { real::mkdtemp(template.as_mut_ptr().cast()) };
    if made.is_null() {
        return Err(errno::get());
    }
    // SAFETY: `mkdtemp` has left a string there.
    let entered = unsafe { real::chdir(made) };
    let error = errno::get();
    // SAFETY: as above.
    unsafe { real::rmdir(made) };
    if entered == 0 { Ok(()) } else { Err(error) }
}

/// Before a fork.
pub fn fork_lock() {
    CWD.hold();
}

/// After it, on both sides.
///
/// # Safety
/// By the thread that called [`fork_lock`], or its copy.
pub unsafe fn fork_unlock() {
    // SAFETY: by the caller's promise.
    unsafe { CWD.release() };
}
