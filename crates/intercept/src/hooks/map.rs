//! `mmap`.
//!
//! Pages of a file of ours are not the kernel's. With a mount the file is opened there and mapped.
//! Without one a private mapping is memory with the file's bytes in it; so is a shared one
//! of a file opened for reading, as long as nobody wants to see changes made meanwhile. A shared
//! mapping that writes is refused with `ENODEV`, which programs know from file systems that cannot.

use super::data::pread;
use crate::open::Open;
use crate::report::{self, Family, Why};
use crate::{errno, real, table};
use libc::{c_int, c_void, off_t, size_t};
use std::ffi::CString;
use std::sync::atomic::Ordering::Relaxed;

hook!([mmap mmap64](
    address: *mut c_void, bytes: size_t, access: c_int, flags: c_int, fd: c_int, offset: off_t
) -> *mut c_void {
    if flags & libc::MAP_ANONYMOUS != 0 {
        return real::mmap64(address, bytes, access, flags, fd, offset);
    }
    let Some(open) = table::get(fd) else {
        return real::mmap64(address, bytes, access, flags, fd, offset);
    };
    let mapped = if open.prefix.is_mount {
        map_on_mount(&open, address, bytes, access, flags, offset)
    } else {
        map_copy(&open, fd, address, bytes, access, flags, offset)
    };
    mapped.unwrap_or_else(|error| {
        errno::set(error);
        libc::MAP_FAILED
    })
});

/// Maps the same file on the mount.
///
/// # Safety
/// As for `mmap`.
unsafe fn map_on_mount(
    open: &Open,
    address: *mut c_void,
    bytes: size_t,
    access: c_int,
    flags: c_int,
    offset: off_t,
) -> Result<*mut c_void, c_int> {
    let path = [&open.prefix.path[..], &open.path()].concat();
    report::passed(Family::Map, Why::Mount, format_args!("{}", path.escape_ascii()));
    let path = CString::new(path).map_err(|_| libc::ENOENT)?;
    let how = open.head().status.load(Relaxed) as c_int & libc::O_ACCMODE | libc::O_CLOEXEC;
    // SAFETY: the path is a string.
    let fd = unsafe { real::open(path.as_ptr(), how, 0) };
    if fd < 0 {
        return Err(errno::get());
    }
    // SAFETY: by the caller's promise.
    let mapped = unsafe { real::mmap64(address, bytes, access, flags, fd, offset) };
    let error = errno::get();
    // SAFETY: opened above.
    unsafe { real::close(fd) };
    if mapped == libc::MAP_FAILED { Err(error) } else { Ok(mapped) }
}

/// Maps memory with the file's bytes in it.
///
/// # Safety
/// As for `mmap`.
unsafe fn map_copy(
    open: &Open,
    fd: c_int,
    address: *mut c_void,
    bytes: size_t,
    access: c_int,
    flags: c_int,
    offset: off_t,
) -> Result<*mut c_void, c_int> {
    let mode = open.head().status.load(Relaxed) as c_int & libc::O_ACCMODE;
    let kind = flags & libc::MAP_TYPE;
    if bytes == 0 || offset < 0 || offset % 4096 != 0 {
        return Err(libc::EINVAL);
    }
    if mode == libc::O_WRONLY {
        return Err(libc::EACCES);
    }
    let is_private = kind == libc::MAP_PRIVATE;
    if !is_private && (access & libc::PROT_WRITE != 0 || mode != libc::O_RDONLY) {
        let path = open.path();
        report::passed(
            Family::Map,
            Why::Refused,
            format_args!("a shared mapping of {} needs a mount", path.escape_ascii()),
        );
        return Err(if access & libc::PROT_WRITE != 0 && mode == libc::O_RDONLY {
            libc::EACCES
        } else {
            libc::ENODEV
        });
    }
    report::taken(Family::Map);
    let placing = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE);
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | placing;
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: by the caller's promise.
    let start = unsafe { real::mmap64(address, bytes, writable, anonymous, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(errno::get());
    }
    let mut done = 0;
    while done < bytes {
        // SAFETY: the mapping is as long.
        let got = unsafe { pread(fd, start.byte_add(done), bytes - done, offset + done as off_t) };
        match got {
            0 => break,
            got if got > 0 => done += got as usize,
            _ => {
                let error = errno::get();
                // SAFETY: mapped above.
                unsafe { libc::munmap(start, bytes) };
                return Err(error);
            }
        }
    }
    // SAFETY: mapped above.
    if access != writable && unsafe { libc::mprotect(start, bytes, access) } != 0 {
        return Err(errno::get());
    }
    Ok(start)
}
