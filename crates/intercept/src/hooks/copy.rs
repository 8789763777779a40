//! Copies that the kernel makes otherwise: `sendfile`, `copy_file_range`, `splice`.

use super::data::{pread, pwrite, read, write};
use crate::{errno, inside, real, table};
use libc::{c_int, c_uint, off_t, size_t, ssize_t};
use preload::hook;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes copied at a time.
const STEP_BYTES: usize = 1 << 20;
/// Most bytes of one call; callers go on from there.
const CALL_BYTES_MAX: usize = 64 << 20;

hook!([sendfile sendfile64](
    to: c_int, from: c_int, offset: *mut off_t, bytes: size_t
) -> ssize_t {
    inside::cancellation_point();
    if !table::is_ours(to) && !table::is_ours(from) {
        return real::sendfile64(to, from, offset, bytes);
    }
    copy(from, offset, to, std::ptr::null_mut(), bytes)
});

hook!([copy_file_range](
    from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, bytes: size_t,
    flags: c_uint
) -> ssize_t {
    inside::cancellation_point();
    if !table::is_ours(to) && !table::is_ours(from) {
        return real::copy_file_range(from, from_offset, to, to_offset, bytes, flags);
    }
    if table::get(to).is_some_and(|open| open.head().status.load(Relaxed) & APPENDS != 0) {
        return errno::number(Err(libc::EBADF));
    }
    if flags != 0 || overlaps(from, from_offset, to, to_offset, bytes) {
        return errno::number(Err(libc::EINVAL));
    }
    copy(from, from_offset, to, to_offset, bytes)
});

hook!([splice](
    from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, bytes: size_t,
    flags: c_uint
) -> ssize_t {
    inside::cancellation_point();
    if table::is_ours(to) || table::is_ours(from) {
        return errno::number(splice_ours(from, from_offset, to, to_offset, bytes, flags));
    }
    real::splice(from, from_offset, to, to_offset, bytes, flags)
});

/// A file opened in this way has no place to write to.
const APPENDS: u32 = libc::O_APPEND as u32;
/// Bytes that a pipe takes whole when it says that it takes something.
const PIPE_STEP_BYTES: usize = libc::PIPE_BUF;
/// Bytes of one splice: what a pipe holds, as pipes are made.
const SPLICE_BYTES: usize = 64 << 10;

/// Splices between a pipe and a file of ours.
///
/// # Safety
/// Offsets are null or valid.
unsafe fn splice_ours(
    from: c_int,
    from_offset: *mut off_t,
    to: c_int,
    to_offset: *mut off_t,
    bytes: size_t,
    flags: c_uint,
) -> Result<ssize_t, c_int> {
    let known = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE;
    if flags & !(known | libc::SPLICE_F_GIFT) != 0 {
        return Err(libc::EINVAL);
    }
    if bytes == 0 {
        return Ok(0);
    }
    let ours = table::get(from).or_else(|| table::get(to)).ok_or(libc::EBADF)?;
    let at_once = flags & libc::SPLICE_F_NONBLOCK != 0;
    let is_from_pipe = table::is_ours(to);
    let (pipe, pipe_offset) = if is_from_pipe { (from, from_offset) } else { (to, to_offset) };
    if !is_pipe(pipe)? || ours.kind() != dfs::FileKind::Regular {
        return Err(libc::EINVAL);
    }
    if !pipe_offset.is_null() {
        return Err(libc::ESPIPE);
    }
    let status = ours.head().status.load(Relaxed);
    let (needed, wrong) = match is_from_pipe {
        true => (libc::O_WRONLY, libc::O_RDONLY),
        false => (libc::O_RDONLY, libc::O_WRONLY),
    };
    let mode = status as c_int & libc::O_ACCMODE;
    if mode == wrong || (mode != needed && mode != libc::O_RDWR) {
        return Err(libc::EBADF);
    }
    let mut room = vec![0u8; bytes.min(SPLICE_BYTES)];
    // SAFETY: the room is as long; offsets by the caller's promise.
    unsafe {
        if is_from_pipe {
            if status & APPENDS != 0 {
                return Err(libc::EINVAL);
            }
            if at_once && !is_ready(pipe, libc::POLLIN) {
                return Err(libc::EAGAIN);
            }
            let got = usize::try_from(read(pipe, room.as_mut_ptr().cast(), room.len()));
            let got = got.map_err(|_| errno::get())?;
            return put(to, to_offset, &room[..got]);
        }
        let first = match from_offset.as_ref() {
            Some(at) => *at,
            None => super::seek::lseek(from, 0, libc::SEEK_CUR),
        };
        let got = usize::try_from(pread(from, room.as_mut_ptr().cast(), room.len(), first));
        let got = got.map_err(|_| errno::get())?;
        let mut done = 0;
        while done < got {
            // What does not fit any more is for the next call.
            if (done > 0 || at_once) && !is_ready(pipe, libc::POLLOUT) {
                break;
            }
            let step = &room[done..got.min(done + PIPE_STEP_BYTES)];
            match write(pipe, step.as_ptr().cast(), step.len()) {
                wrote if wrote > 0 => done += wrote as usize,
                _ if done > 0 => break,
                _ => return Err(errno::get()),
            }
        }
        if done == 0 && got > 0 {
            return Err(libc::EAGAIN);
        }
        match from_offset.as_mut() {
            Some(at) => *at += done as off_t,
            None => {
                super::seek::lseek(from, first + done as off_t, libc::SEEK_SET);
            }
        }
        Ok(done as ssize_t)
    }
}

/// Writes all of it, or as much as can be written.
///
/// # Safety
/// The offset is null or valid.
unsafe fn put(to: c_int, to_offset: *mut off_t, bytes: &[u8]) -> Result<ssize_t, c_int> {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &bytes[done..];
        // SAFETY: so many bytes; the offset by the caller's promise.
        let wrote = unsafe {
            match to_offset.as_mut() {
                Some(at) => pwrite(to, rest.as_ptr().cast(), rest.len(), *at),
                None => write(to, rest.as_ptr().cast(), rest.len()),
            }
        };
        if wrote <= 0 {
            return if done > 0 { Ok(done as ssize_t) } else { Err(errno::get()) };
        }
        done += wrote as usize;
        // SAFETY: by the caller's promise.
        if let Some(at) = unsafe { to_offset.as_mut() } {
            *at += wrote as off_t;
        }
    }
    Ok(done as ssize_t)
}

fn is_pipe(fd: c_int) -> Result<bool, c_int> {
    if table::is_ours(fd) {
        return Ok(false);
    }
    // SAFETY: only borrowed; when nothing is open there the call fails.
    let stat = rustix::fs::fstat(unsafe { rustix::fd::BorrowedFd::borrow_raw(fd) });
    let stat = stat.map_err(|error| error.raw_os_error())?;
    Ok(stat.st_mode & libc::S_IFMT == libc::S_IFIFO)
}

/// True when a pipe has something, or takes something, now.
fn is_ready(fd: c_int, events: i16) -> bool {
    let mut one = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one element.
    unsafe { real::poll(&mut one, 1, 0) > 0 }
}

/// True when what is to be copied and where it is to go are one part of one file.
///
/// # Safety
/// Offsets are null or valid.
unsafe fn overlaps(
    from: c_int,
    from_offset: *const off_t,
    to: c_int,
    to_offset: *const off_t,
    bytes: size_t,
) -> bool {
    let (Some(source), Some(target)) = (table::get(from), table::get(to)) else { return false };
    if (source.cont, source.known().oid()) != (target.cont, target.known().oid()) {
        return false;
    }
    // SAFETY: valid places; offsets by the caller's promise.
    unsafe {
        let place = |fd: c_int, offset: *const off_t| {
            offset.as_ref().copied().unwrap_or_else(|| super::seek::lseek(fd, 0, libc::SEEK_CUR))
        };
        let mut stat: libc::stat = std::mem::zeroed();
        if super::stat::fstat(from, &mut stat) != 0 {
            return false;
        }
        let (at, to_at) = (place(from, from_offset), place(to, to_offset));
        let left = u64::try_from(stat.st_size.saturating_sub(at)).unwrap_or(0);
        at.abs_diff(to_at) < left.min(bytes as u64)
    }
}

/// Copies by reading and writing.
///
/// # Safety
/// Offsets are null or valid.
unsafe fn copy(
    from: c_int,
    from_offset: *mut off_t,
    to: c_int,
    to_offset: *mut off_t,
    bytes: size_t,
) -> ssize_t {
    let mut room = vec![0u8; bytes.clamp(1, STEP_BYTES)];
    let mut done = 0;
    while done < bytes.min(CALL_BYTES_MAX) {
        let want = room.len().min(bytes - done);
        // SAFETY: the room is as long; offsets by the caller's promise.
        let got = unsafe {
            match from_offset.as_mut() {
                Some(at) => pread(from, room.as_mut_ptr().cast(), want, *at),
                None => read(from, room.as_mut_ptr().cast(), want),
            }
        };
        if got <= 0 {
            return if done > 0 { done as ssize_t } else { got };
        }
        let mut put = 0;
        while put < got as usize {
            let rest = &room[put..got as usize];
            // SAFETY: as above.
            let wrote = unsafe {
                match to_offset.as_mut() {
                    Some(at) => pwrite(to, rest.as_ptr().cast(), rest.len(), *at),
                    None => write(to, rest.as_ptr().cast(), rest.len()),
                }
            };
            if wrote <= 0 {
                // What was read and not written has not been copied.
                let lost = (got as usize - put) as off_t;
                if from_offset.is_null() {
                    // SAFETY: plain numbers.
                    unsafe { super::seek::lseek(from, -lost, libc::SEEK_CUR) };
                }
                return if done > 0 { done as ssize_t } else { wrote };
            }
            put += wrote as usize;
            done += wrote as usize;
            // SAFETY: as above.
            unsafe {
                if let Some(at) = from_offset.as_mut() {
                    *at += wrote as off_t;
                }
                if let Some(at) = to_offset.as_mut() {
                    *at += wrote as off_t;
                }
            }
        }
    }
    done as ssize_t
}
