//! `read`, `write` and their kin.

use crate::act;
use crate::open::Open;
use crate::report::Family;
use crate::size::Guard;
use crate::{errno, inside, real, table};
use dfs::{Dfs, FILE_BYTES_MAX, Obj, OpenFlags, Recx};
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};
use preload::hook;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use types::Result;

/// Most bytes of one call, as Linux has it.
const BYTES_MAX: usize = 0x7fff_f000;
/// Most pieces of a vectored call.
const PIECES_MAX: usize = 1024;

hook!([read](fd: c_int, data: *mut c_void, bytes: size_t) -> ssize_t {
    inside::cancellation_point();
    match table::get(fd) {
        None => real::read(fd, data, bytes),
        Some(open) => returned(read_into(&open, &[piece(data, bytes)], None)),
    }
});

hook!([pread pread64](fd: c_int, data: *mut c_void, bytes: size_t, offset: off_t) -> ssize_t {
    inside::cancellation_point();
    match table::get(fd) {
        None => real::pread64(fd, data, bytes, offset),
        Some(open) => returned(read_into(&open, &[piece(data, bytes)], Some(offset))),
    }
});

hook!([__read_chk](fd: c_int, data: *mut c_void, bytes: size_t, room: size_t) -> ssize_t {
    if table::is_ours(fd) && bytes <= room {
        return read(fd, data, bytes);
    }
    real::__read_chk(fd, data, bytes, room)
});

hook!([__pread_chk __pread64_chk](
    fd: c_int, data: *mut c_void, bytes: size_t, offset: off_t, room: size_t
) -> ssize_t {
    if table::is_ours(fd) && bytes <= room {
        return pread(fd, data, bytes, offset);
    }
    real::__pread64_chk(fd, data, bytes, offset, room)
});

hook!([readv](fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    inside::cancellation_point();
    match table::get(fd) {
        None => real::readv(fd, pieces, count),
        Some(open) => returned(list(pieces, count).and_then(|p| read_into(&open, p, None))),
    }
});

hook!([preadv preadv64](
    fd: c_int, pieces: *const iovec, count: c_int, offset: off_t
) -> ssize_t {
    inside::cancellation_point();
    match table::get(fd) {
        None => real::preadv64(fd, pieces, count, offset),
        Some(open) => returned(list(pieces, count).and_then(|p| read_into(&open, p, Some(offset)))),
    }
});

hook!([preadv2 preadv64v2](
    fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int
) -> ssize_t {
    inside::cancellation_point();
    match table::get(fd) {
        None => real::preadv64v2(fd, pieces, count, offset, flags),
        Some(open) => returned(
            flags_allowed(flags, libc::RWF_HIPRI)
                .and_then(|()| list(pieces, count))
                .and_then(|p| read_into(&open, p, position(offset))),
        ),
    }
});

hook!([write](fd: c_int, data: *const c_void, bytes: size_t) -> ssize_t {
    inside::cancellation_point();
    match table::get(fd) {
        None => real::write(fd, data, bytes),
        Some(open) => returned(write_from(&open, &[piece(data.cast_mut(), bytes)], None, 0)),
    }
});

hook!([pwrite pwrite64](
    fd: c_int, data: *const c_void, bytes: size_t, offset: off_t
) -> ssize_t {
    inside::cancellation_point();
    match table::get(fd) {
        None => real::pwrite64(fd, data, bytes, offset),
        Some(open) => {
            returned(write_from(&open, &[piece(data.cast_mut(), bytes)], Some(offset), 0))
        }
    }
});

hook!([writev](fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    inside::cancellation_point();
    match table::get(fd) {
        None => real::writev(fd, pieces, count),
        Some(open) => returned(list(pieces, count).and_then(|p| write_from(&open, p, None, 0))),
    }
});

hook!([pwritev pwritev64](
    fd: c_int, pieces: *const iovec, count: c_int, offset: off_t
) -> ssize_t {
    inside::cancellation_point();
    match table::get(fd) {
        None => real::pwritev64(fd, pieces, count, offset),
        Some(open) => {
            returned(list(pieces, count).and_then(|p| write_from(&open, p, Some(offset), 0)))
        }
    }
});

hook!([pwritev2 pwritev64v2](
    fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int
) -> ssize_t {
    inside::cancellation_point();
    match table::get(fd) {
        None => real::pwritev64v2(fd, pieces, count, offset, flags),
        Some(open) => returned(
            flags_allowed(flags, libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_APPEND)
                .and_then(|()| list(pieces, count))
                .and_then(|p| write_from(&open, p, position(offset), flags)),
        ),
    }
});

fn returned(result: std::result::Result<usize, c_int>) -> ssize_t {
    errno::number(result.map(|bytes| bytes as ssize_t))
}

fn piece(data: *mut c_void, bytes: size_t) -> iovec {
    iovec { iov_base: data, iov_len: bytes }
}

/// An offset of -1 is the current position in calls with flags.
fn position(offset: off_t) -> Option<off_t> {
    (offset != -1).then_some(offset)
}

fn flags_allowed(flags: c_int, allowed: c_int) -> std::result::Result<(), c_int> {
    if flags & !allowed == 0 { Ok(()) } else { Err(libc::EOPNOTSUPP) }
}

/// Pieces of a vectored call.
///
/// # Safety
/// `count` valid elements at `pieces`.
unsafe fn list<'a>(pieces: *const iovec, count: c_int) -> std::result::Result<&'a [iovec], c_int> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(count) if count <= PIECES_MAX => {
            if pieces.is_null() {
                return Err(libc::EFAULT);
            }
            // SAFETY: by the caller's promise.
            Ok(unsafe { std::slice::from_raw_parts(pieces, count) })
        }
        _ => Err(libc::EINVAL),
    }
}

/// The pieces that one call takes, and their bytes. `EINVAL` when they are more than can be
/// counted, `EFAULT` for a null pointer.
fn taken(pieces: &[iovec]) -> std::result::Result<(Vec<iovec>, usize), c_int> {
    let mut all = Vec::with_capacity(pieces.len());
    let mut sum = 0usize;
    for one in pieces {
        let total = sum.checked_add(one.iov_len).filter(|sum| isize::try_from(*sum).is_ok());
        total.ok_or(libc::EINVAL)?;
        let bytes = one.iov_len.min(BYTES_MAX - sum);
        if bytes > 0 {
            if one.iov_base.is_null() {
                return Err(libc::EFAULT);
            }
            all.push(piece(one.iov_base, bytes));
        }
        sum += bytes;
    }
    Ok((all, sum))
}

/// Reads at an offset, or where the file stands.
fn read_into(
    open: &Arc<Open>,
    pieces: &[iovec],
    offset: Option<off_t>,
) -> std::result::Result<usize, c_int> {
    let (pieces, bytes) = taken(pieces)?;
    let given = offset.map(u64::try_from).transpose().map_err(|_| libc::EINVAL)?;
    act::run(Family::Read, open, async |fs, obj| {
        let mut memory: Vec<&mut [u8]> = pieces
            .iter()
            // SAFETY: the caller of the C function promises room of this size, which nobody else
            // uses meanwhile.
            .map(|p| unsafe { std::slice::from_raw_parts_mut(p.iov_base.cast(), p.iov_len) })
            .collect();
        if let Some(offset) = given {
            return read_at(fs, obj, offset, bytes, &mut memory).await;
        }
        let head = open.lock();
        let offset = head.offset.load(Relaxed) as u64;
        let got = read_at(fs, obj, offset, bytes, &mut memory).await?;
        head.offset.store((offset + got as u64) as i64, Relaxed);
        Ok(got)
    })
}

async fn read_at(
    fs: &Dfs,
    obj: &Obj,
    offset: u64,
    bytes: usize,
    memory: &mut [&mut [u8]],
) -> Result<usize> {
    if offset >= FILE_BYTES_MAX {
        return Ok(0);
    }
    let fits = FILE_BYTES_MAX - offset;
    if bytes as u64 > fits {
        // Nothing is there: a file cannot reach that far.
        return Ok(0);
    }
    fs.readv(obj, &[Recx { index: offset, count: bytes as u64 }], memory).await
}

/// Writes at an offset, or where the file stands.
fn write_from(
    open: &Arc<Open>,
    pieces: &[iovec],
    offset: Option<off_t>,
    flags: c_int,
) -> std::result::Result<usize, c_int> {
    let (pieces, bytes) = taken(pieces)?;
    let given = offset.map(u64::try_from).transpose().map_err(|_| libc::EINVAL)?;
    let guard = Guard::new();
    let written = act::run(Family::Write, open, async |fs, obj| {
        let mut memory: Vec<&[u8]> = pieces
            .iter()
            // SAFETY: the caller of the C function promises so many bytes there.
            .map(|p| unsafe {
                std::slice::from_raw_parts(p.iov_base.cast_const().cast(), p.iov_len)
            })
            .collect();
        let mut how = open.flags();
        if flags & libc::RWF_APPEND != 0 {
            how = how | OpenFlags::APPEND;
        }
        let appends = how.has(OpenFlags::APPEND);
        let obj = &obj.dup(how);
        let end = if appends && guard.is_set() { Some(fs.size(obj).await?) } else { None };
        if let Some(offset) = given {
            let bytes = cut(&guard, end.unwrap_or(offset), bytes, &mut memory)?;
            let range = [Recx { index: offset, count: bytes as u64 }];
            return fs.writev(obj, &range, &memory).await;
        }
        let head = open.lock();
        if appends && bytes > 0 {
            let bytes = cut(&guard, end.unwrap_or(0), bytes, &mut memory)?;
            let offset = fs.append(obj, &memory).await?;
            head.offset.store((offset + bytes as u64) as i64, Relaxed);
            return Ok(bytes);
        }
        let offset = head.offset.load(Relaxed) as u64;
        let bytes = cut(&guard, offset, bytes, &mut memory)?;
        let range = [Recx { index: offset, count: bytes as u64 }];
        let done = fs.writev(obj, &range, &memory).await?;
        head.offset.store((offset + done as u64) as i64, Relaxed);
        Ok(done)
    });
    guard.tell(written)
}

/// Leaves what the limit of file sizes lets through; how many bytes that is.
fn cut(guard: &Guard, offset: u64, bytes: usize, memory: &mut Vec<&[u8]>) -> Result<usize> {
    let mut left = guard.cut(offset, bytes)?;
    if left == bytes {
        return Ok(bytes);
    }
    let allowed = left;
    memory.retain_mut(|piece| {
        *piece = &piece[..piece.len().min(left)];
        left -= piece.len();
        !piece.is_empty()
    });
    Ok(allowed)
}
