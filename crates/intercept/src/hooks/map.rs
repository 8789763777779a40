//! `mmap`.
//!
//! Pages of a file of ours are not the kernel's. With a mount the file is opened there and mapped;
//! if what has the path there by now is another file, or nothing, it is as without a mount.
//! Without one a private mapping is memory with the file's bytes in it; so is a shared one
//! of a file opened for reading, as long as nobody wants to see changes made meanwhile. A shared
//! mapping that writes is refused with `ENODEV`, which programs know from file systems that cannot.

use super::data::pread;
use crate::open::Open;
use crate::report::{self, Family, Why};
use crate::{errno, real, table};
use libc::{c_int, c_void, off_t, size_t};
use preload::hook;
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
    let mapped = match open_on_mount(&open) {
        Some(mounted) => {
            let mapped = real::mmap64(address, bytes, access, flags, mounted, offset);
            let error = errno::get();
            real::close(mounted);
            if mapped == libc::MAP_FAILED { Err(error) } else { Ok(mapped) }
        }
        None => map_copy(&open, fd, address, bytes, access, flags, offset),
    };
    mapped.unwrap_or_else(|error| {
        errno::set(error);
        libc::MAP_FAILED
    })
});

/// Opens the same file on the mount; none when there is no mount, or the file is not to be
/// found there.
fn open_on_mount(open: &Open) -> Option<c_int> {
    if !open.prefix.is_mount {
        return None;
    }
    let path = [&open.prefix.path[..], &open.path()].concat();
    let mode = open.head().status.load(Relaxed) as c_int & libc::O_ACCMODE;
    // Not to wait for anybody if it is a pipe by now.
    let how = mode | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let name = CString::new(&path[..]).ok()?;
    // SAFETY: the path is a string.
    let fd = unsafe { real::open(name.as_ptr(), how, 0) };
    if fd < 0 {
        return None;
    }
    // SAFETY: just opened, and closed by this function or its caller.
    let stat = rustix::fs::fstat(unsafe { rustix::fd::BorrowedFd::borrow_raw(fd) });
    let (device, number) = (open.prefix.device, open.known().oid().lo);
    if stat.is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (device, number)) {
        report::passed(Family::Map, Why::Mount, format_args!("{}", path.escape_ascii()));
        return Some(fd);
    }
    // SAFETY: opened above.
    unsafe { real::close(fd) };
    None
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
