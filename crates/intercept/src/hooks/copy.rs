//! Copies that the kernel makes otherwise: `sendfile`, `copy_file_range`, `splice`.

use super::data::{pread, pwrite, read, write};
use crate::{errno, inside, real, table};
use libc::{c_int, c_uint, off_t, size_t, ssize_t};

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
    if flags != 0 || overlaps(from, from_offset, to, to_offset, bytes) {
        return errno::number(Err(libc::EINVAL));
    }
    copy(from, from_offset, to, to_offset, bytes)
});

hook!([splice](
    from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, bytes: size_t,
    flags: c_uint
) -> ssize_t {
    if table::is_ours(to) || table::is_ours(from) {
        // Callers know that not all files can be spliced, and read and write instead.
        return errno::number(Err(libc::EINVAL));
    }
    real::splice(from, from_offset, to, to_offset, bytes, flags)
});

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
