//! Syncing, allocating, advice.

use crate::act;
use crate::open::Open;
use crate::report::{self, Family, Why};
use crate::size::Guard;
use crate::{errno, inside, real, table};
use dfs::{AllocateFlags, OpenFlags};
use libc::{c_int, c_uint, off_t, size_t, ssize_t};
use preload::hook;
use std::sync::Arc;
use types::{Code, Error};

hook!([fsync](fd: c_int) -> c_int {
    inside::cancellation_point();
    match table::get(fd) {
        None => real::fsync(fd),
        Some(open) => errno::zero(sync(&open)),
    }
});

hook!([fdatasync](fd: c_int) -> c_int {
    inside::cancellation_point();
    match table::get(fd) {
        None => real::fdatasync(fd),
        Some(open) => errno::zero(sync(&open)),
    }
});

hook!([syncfs](fd: c_int) -> c_int {
    match table::get(fd) {
        None => real::syncfs(fd),
        Some(open) => errno::zero(sync(&open)),
    }
});

hook!([sync_file_range](fd: c_int, offset: off_t, bytes: off_t, flags: c_uint) -> c_int {
    match table::get(fd) {
        None => real::sync_file_range(fd, offset, bytes, flags),
        Some(open) => errno::zero(sync(&open)),
    }
});

hook!([fallocate fallocate64](fd: c_int, mode: c_int, offset: off_t, bytes: off_t) -> c_int {
    match table::get(fd) {
        None => real::fallocate64(fd, mode, offset, bytes),
        Some(open) => errno::zero(allocate(&open, mode, offset, bytes)),
    }
});

hook!([posix_fallocate posix_fallocate64](fd: c_int, offset: off_t, bytes: off_t) -> c_int {
    match table::get(fd) {
        None => real::posix_fallocate64(fd, offset, bytes),
        // This one returns the error.
        Some(open) => allocate(&open, 0, offset, bytes).err().unwrap_or(0),
    }
});

hook!([posix_fadvise posix_fadvise64](
    fd: c_int, offset: off_t, bytes: off_t, advice: c_int
) -> c_int {
    if !table::is_ours(fd) {
        return real::posix_fadvise64(fd, offset, bytes, advice);
    }
    // Nothing is cached here that advice could be about.
    if (libc::POSIX_FADV_NORMAL..=libc::POSIX_FADV_NOREUSE).contains(&advice) {
        0
    } else {
        libc::EINVAL
    }
});

hook!([readahead](fd: c_int, offset: off_t, bytes: size_t) -> ssize_t {
    if table::is_ours(fd) { 0 } else { real::readahead(fd, offset, bytes) }
});

/// A write that has returned is as durable as the pool promises; what is left are releases, and tiers that are to have the
/// data, too.
fn sync(open: &Arc<Open>) -> Result<(), c_int> {
    act::run(Family::Space, open, async |fs, obj| {
        if obj.flags().has(OpenFlags::PATH) {
            return Err(Error::bare(Code::BadHandle));
        }
        fs.fsync(obj).await
    })
}

fn allocate(open: &Arc<Open>, mode: c_int, offset: off_t, bytes: off_t) -> Result<(), c_int> {
    let (Ok(offset), Ok(bytes)) = (u64::try_from(offset), u64::try_from(bytes)) else {
        return Err(libc::EINVAL);
    };
    let known = AllocateFlags::KEEP_SIZE | AllocateFlags::PUNCH_HOLE | AllocateFlags::ZERO_RANGE;
    let flags = AllocateFlags(mode as u32);
    if !known.has(flags) {
        report::passed(Family::Space, Why::Refused, format_args!("fallocate mode {mode:#x}"));
        return Err(libc::EOPNOTSUPP);
    }
    let guard = Guard::new();
    let done = act::run(Family::Space, open, async |fs, obj| {
        let grows = !flags.has(AllocateFlags::KEEP_SIZE);
        if guard.is_set() && grows {
            guard.check_growth(fs.size(obj).await?, offset.saturating_add(bytes))?;
        }
        fs.fallocate(obj, flags, offset, bytes).await
    });
    guard.tell(done)
}
