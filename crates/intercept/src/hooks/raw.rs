//! `syscall`: calls that programs make by number, because their C library had no function for them
//! when they were written. Those that can concern a file of ours go the way of the function.

use super::attr::fchmodat;
use super::copy::{copy_file_range, sendfile, splice};
use super::descriptor::close_range;
use super::dir::getdents64;
use super::names::renameat2;
use super::open::openat;
use super::stat::{faccessat, statx};
use crate::{config, errno, inside, path, real};
use libc::{c_int, c_long, c_uint, mode_t, size_t};
use preload::hook;

/// `struct open_how`.
#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// `fchmodat2`, the same number on all machines; the binding does not have it everywhere.
const SYS_FCHMODAT2: c_long = 452;

fn pointer<T>(argument: c_long) -> *mut T {
    std::ptr::with_exposed_provenance_mut(argument as usize)
}

hook!([syscall](
    number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long
) -> c_long {
    if config::get().is_none() || inside::is_inside() {
        return real::syscall(number, a, b, c, d, e, f);
    }
    match number {
        libc::SYS_copy_file_range => copy_file_range(
            a as c_int, pointer(b), c as c_int, pointer(d), e as size_t, f as c_uint,
        ) as c_long,
        libc::SYS_splice => splice(
            a as c_int, pointer(b), c as c_int, pointer(d), e as size_t, f as c_uint,
        ) as c_long,
        libc::SYS_sendfile => {
            sendfile(a as c_int, b as c_int, pointer(c), d as size_t) as c_long
        }
        libc::SYS_getdents64 => getdents64(a as c_int, pointer(b), c as size_t) as c_long,
        libc::SYS_openat => openat(a as c_int, pointer(b), c as c_int, d as mode_t).into(),
        libc::SYS_openat2 => openat2(a as c_int, b, c, d),
        libc::SYS_statx => {
            statx(a as c_int, pointer(b), c as c_int, d as c_uint, pointer(e)).into()
        }
        libc::SYS_faccessat2 => faccessat(a as c_int, pointer(b), c as c_int, d as c_int).into(),
        SYS_FCHMODAT2 => fchmodat(a as c_int, pointer(b), c as mode_t, d as c_int).into(),
        libc::SYS_renameat2 => {
            renameat2(a as c_int, pointer(b), c as c_int, pointer(d), e as c_uint).into()
        }
        libc::SYS_close_range => close_range(a as c_uint, b as c_uint, c as c_int).into(),
        _ => real::syscall(number, a, b, c, d, e, f),
    }
});

/// # Safety
/// As for the call.
unsafe fn openat2(dir: c_int, name: c_long, how: c_long, bytes: c_long) -> c_long {
    // SAFETY: by the caller's promise, as far as the size says.
    let wanted = unsafe { pointer::<OpenHow>(how).as_ref() };
    let wanted = wanted.filter(|_| bytes as usize >= size_of::<OpenHow>());
    let flags = wanted.map_or(0, |how| how.flags as c_int);
    // SAFETY: by the caller's promise.
    let found = unsafe { path::locate_end(dir, pointer(name), super::open::follows(flags)) };
    match (found, wanted) {
        // Nobody walks a path of ours under rules of this kind; callers know kernels that do not.
        (Some(_), Some(how)) if how.resolve != 0 => errno::number(Err(libc::ENOSYS)),
        (Some(_), Some(how)) => {
            // SAFETY: by the caller's promise.
            let fd = unsafe { openat(dir, pointer(name), flags, how.mode as mode_t) };
            fd.into()
        }
        // SAFETY: by the caller's promise.
        _ => unsafe { real::syscall(libc::SYS_openat2, dir.into(), name, how, bytes, 0, 0) },
    }
}
