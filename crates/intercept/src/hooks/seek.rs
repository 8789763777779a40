//! `lseek`.

use crate::act;
use crate::report::Family;
use crate::{errno, real, table};
use dfs::FileKind;
use libc::{c_int, off_t};
use preload::hook;
use std::sync::atomic::Ordering::Relaxed;
use types::{Code, Error};

hook!([lseek lseek64](fd: c_int, offset: off_t, whence: c_int) -> off_t {
    match table::get(fd) {
        None => real::lseek64(fd, offset, whence),
        Some(open) => errno::number(seek(&open, offset, whence)),
    }
});

fn seek(
    open: &std::sync::Arc<crate::open::Open>,
    offset: off_t,
    whence: c_int,
) -> Result<off_t, c_int> {
    if open.kind() == FileKind::Directory {
        return seek_directory(open, offset, whence);
    }
    if open.head().status.load(Relaxed) & libc::O_PATH as u32 != 0 {
        return Err(libc::EBADF);
    }
    // Moves that need to ask nobody.
    if whence == libc::SEEK_SET || whence == libc::SEEK_CUR {
        crate::report::taken(Family::Seek);
        return crate::inside::run(|| {
            let head = open.lock();
            let base = if whence == libc::SEEK_SET { 0 } else { head.offset.load(Relaxed) };
            let to = sum(base, offset)?;
            head.offset.store(to, Relaxed);
            Ok(to)
        });
    }
    act::run(Family::Seek, open, async |fs, obj| {
        let head = open.lock();
        let to = match whence {
            libc::SEEK_END => sum(fs.size(obj).await? as off_t, offset),
            libc::SEEK_DATA | libc::SEEK_HOLE => {
                let from = u64::try_from(offset).map_err(|_| Error::bare(Code::NoData))?;
                let found = match whence {
                    libc::SEEK_DATA => fs.seek_data(obj, from).await?,
                    _ => fs.seek_hole(obj, from).await?,
                };
                Ok(found as off_t)
            }
            _ => return Err(Error::bare(Code::Inval)),
        };
        if let Ok(to) = to {
            head.offset.store(to, Relaxed);
        }
        Ok(to)
    })?
}

fn sum(base: off_t, offset: off_t) -> Result<off_t, c_int> {
    let to = base.checked_add(offset).ok_or(libc::EOVERFLOW)?;
    if to < 0 { Err(libc::EINVAL) } else { Ok(to) }
}

/// The place of `getdents64`.
fn seek_directory(
    open: &std::sync::Arc<crate::open::Open>,
    offset: off_t,
    whence: c_int,
) -> Result<off_t, c_int> {
    let mut listing = open.listing.lock();
    act::run(Family::Seek, open, async |fs, obj| {
        let place = listing.as_ref().map_or(0, |listing| listing.place());
        let to = match whence {
            libc::SEEK_SET => offset,
            libc::SEEK_CUR => place as off_t + offset,
            _ => return Err(Error::bare(Code::Inval)),
        };
        let to = u64::try_from(to).map_err(|_| Error::bare(Code::Inval))?;
        if to == 0 {
            *listing = None;
        } else if let Some(listing) = listing.as_mut() {
            listing.seek(fs, obj, to).await?;
        }
        Ok(to as off_t)
    })
}
