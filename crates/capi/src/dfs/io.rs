//! Reading and writing.
//!
//! Memory goes to and from the store as it is: the pieces of the caller's list are what the
//! request is made of. Any number of ranges and pieces is one vectored call below.

use super::obj::ObjHandle;
use super::{as_daos, dfs_obj_t, dfs_t, now};
use crate::ctypes::{d_sg_list_t, daos_event_t, daos_range_t, dfs_iod_t};
use crate::errno::Sign;
use crate::event::launch;
use crate::guard::{self, User};
use ::dfs::{FileKind, Recx};
use std::sync::Arc;
use types::{Error, Result};

/// Pieces of the caller's memory. The list itself is copied at launch; the memory stays.
pub(crate) struct Pieces(Vec<(User<u8>, usize)>);

impl Pieces {
    /// Copies the list. `Inval` for a missing list or a missing piece that is not empty.
    ///
    /// # Safety
    /// `sgl` is NULL or a list whose pieces are as long as it says.
    pub unsafe fn of(sgl: *const d_sg_list_t) -> Result<Pieces> {
        // SAFETY: the caller's promise.
        let sgl = unsafe { guard::get(sgl) }?;
        if sgl.sg_nr == 0 {
            return Ok(Pieces(Vec::new()));
        }
        if sgl.sg_iovs.is_null() {
            return Err(guard::null());
        }
        // SAFETY: the caller's promise.
        let iovs = unsafe { std::slice::from_raw_parts(sgl.sg_iovs, sgl.sg_nr as usize) };
        let mut pieces = Vec::with_capacity(iovs.len());
        for iov in iovs.iter().filter(|iov| iov.iov_len > 0) {
            if iov.iov_buf.is_null() || iov.iov_len > isize::MAX as usize {
                return Err(guard::null());
            }
            pieces.push((User(iov.iov_buf.cast()), iov.iov_len));
        }
        let add = |sum: usize, (_, bytes): &(User<u8>, usize)| sum.checked_add(*bytes);
        match pieces.iter().try_fold(0, add) {
            Some(total) if total <= isize::MAX as usize => Ok(Pieces(pieces)),
            _ => Err(Error::inval("a list of memory names more than there can be")),
        }
    }

    pub fn one(memory: *mut u8, bytes: usize) -> Result<Pieces> {
        match bytes {
            0 => Ok(Pieces(Vec::new())),
            _ if memory.is_null() || bytes > isize::MAX as usize => Err(guard::null()),
            _ => Ok(Pieces(vec![(User(memory), bytes)])),
        }
    }

    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, bytes)| *bytes as u64).sum()
    }

    /// # Safety
    /// The memory is there, and nobody else touches it while the result lives.
    unsafe fn writable<'a>(&self) -> Vec<&'a mut [u8]> {
        let piece = |(memory, bytes): &(User<u8>, usize)| {
            // SAFETY: the caller's promise.
            unsafe { std::slice::from_raw_parts_mut(memory.0, *bytes) }
        };
        self.0.iter().map(piece).collect()
    }

    /// # Safety
    /// The memory is there, and nobody changes it while the result lives.
    unsafe fn readable<'a>(&self) -> Vec<&'a [u8]> {
        let piece = |(memory, bytes): &(User<u8>, usize)| {
            // SAFETY: the caller's promise.
            unsafe { std::slice::from_raw_parts(memory.0, *bytes) }
        };
        self.0.iter().map(piece).collect()
    }
}

/// Copies the ranges of a file.
///
/// # Safety
/// `iod` is NULL or holds as many ranges as it says.
unsafe fn ranges_of(iod: *const dfs_iod_t) -> Result<Vec<Recx>> {
    // SAFETY: the caller's promise.
    let iod = unsafe { guard::get(iod) }?;
    if iod.iod_nr == 0 {
        return Ok(Vec::new());
    }
    if iod.iod_rgs.is_null() {
        return Err(guard::null());
    }
    let count = usize::try_from(iod.iod_nr)
        .ok()
        .filter(|count| *count <= isize::MAX as usize / size_of::<daos_range_t>())
        .ok_or_else(|| Error::inval("too many ranges"))?;
    // SAFETY: the caller's promise.
    let ranges = unsafe { std::slice::from_raw_parts(iod.iod_rgs, count) };
    let range = |range: &daos_range_t| Recx { index: range.rg_idx, count: range.rg_len };
    Ok(ranges.iter().map(range).collect())
}

pub(crate) fn file_of(dfs: *const dfs_t, obj: *const dfs_obj_t) -> Result<Arc<ObjHandle>> {
    let file = ObjHandle::of_mount(dfs, obj)?;
    match file.kind() {
        FileKind::Regular => Ok(file),
        _ => Err(Error::inval("only regular files are read and written")),
    }
}

/// Launches a read of checked arguments.
pub(crate) fn read(
    file: Arc<ObjHandle>,
    ranges: Vec<Recx>,
    memory: Pieces,
    read_size: User<u64>,
    ev: *mut daos_event_t,
) -> i32 {
    launch(ev, Sign::Errno, move |local| async move {
        let here = file.here(&local)?;
        // SAFETY: the API keeps the memory for us until completion.
        let mut pieces = unsafe { memory.writable() };
        let read = here.fs.readv(&here.obj, &ranges, &mut pieces).await.map_err(as_daos)?;
        read_size.set(read as u64);
        Ok(())
    })
}

/// Launches a write of checked arguments.
pub(crate) fn write(
    file: Arc<ObjHandle>,
    ranges: Vec<Recx>,
    memory: Pieces,
    ev: *mut daos_event_t,
) -> i32 {
    launch(ev, Sign::Errno, move |local| async move {
        let here = file.here(&local)?;
        // SAFETY: the API keeps the memory for us until completion.
        let pieces = unsafe { memory.readable() };
        here.fs.writev(&here.obj, &ranges, &pieces).await.map_err(as_daos)?;
        Ok(())
    })
}

/// Reads from `off` into the pieces of `sgl`. `*read_size` gets the bytes there were: fewer than
/// asked for only at the end of the file. Holes read as zeros.
///
/// # Safety
/// `sgl` is a list of memory that stays until completion, as `read_size` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_read(
    dfs: *mut dfs_t,
    obj: *mut dfs_obj_t,
    sgl: *mut d_sg_list_t,
    off: u64,
    read_size: *mut u64,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        if read_size.is_null() {
            return Err(guard::null());
        }
        // SAFETY: the caller's promise.
        Ok((file_of(dfs, obj)?, unsafe { Pieces::of(sgl) }?))
    });
    match arguments {
        Ok((file, memory)) => {
            let ranges = vec![Recx { index: off, count: memory.bytes() }];
            read(file, ranges, memory, User(read_size), ev)
        }
        Err(error) => guard::told(Sign::Errno, &error),
    }
}

/// Reads the ranges of `iod`, in order, into the pieces of `sgl`, in order; total lengths are
/// equal. `*read_size` gets how many of the bytes lie inside the file.
///
/// # Safety
/// As for [`dfs_read`]; `iod` holds as many ranges as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_readx(
    dfs: *mut dfs_t,
    obj: *mut dfs_obj_t,
    iod: *mut dfs_iod_t,
    sgl: *mut d_sg_list_t,
    read_size: *mut u64,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        if read_size.is_null() {
            return Err(guard::null());
        }
        // SAFETY: the caller's promise.
        Ok((file_of(dfs, obj)?, unsafe { ranges_of(iod) }?, unsafe { pieces_for(sgl, iod) }?))
    });
    match arguments {
        Ok((file, ranges, memory)) => read(file, ranges, memory, User(read_size), ev),
        Err(error) => guard::told(Sign::Errno, &error),
    }
}

/// Writes the pieces of `sgl` at `off`.
///
/// # Safety
/// `sgl` is a list of memory that stays as it is until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_write(
    dfs: *mut dfs_t,
    obj: *mut dfs_obj_t,
    sgl: *mut d_sg_list_t,
    off: u64,
    ev: *mut daos_event_t,
) -> i32 {
    // SAFETY: the caller's promise.
    let arguments = guard::catch(|| Ok((file_of(dfs, obj)?, unsafe { Pieces::of(sgl) }?)));
    match arguments {
        Ok((file, memory)) => {
            let ranges = vec![Recx { index: off, count: memory.bytes() }];
            write(file, ranges, memory, ev)
        }
        Err(error) => guard::told(Sign::Errno, &error),
    }
}

/// Writes the pieces of `sgl`, in order, to the ranges of `iod`, in order; total lengths are
/// equal.
///
/// # Safety
/// As for [`dfs_write`]; `iod` holds as many ranges as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_writex(
    dfs: *mut dfs_t,
    obj: *mut dfs_obj_t,
    iod: *mut dfs_iod_t,
    sgl: *mut d_sg_list_t,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        // SAFETY: the caller's promise.
        Ok((file_of(dfs, obj)?, unsafe { ranges_of(iod) }?, unsafe { pieces_for(sgl, iod) }?))
    });
    match arguments {
        Ok((file, ranges, memory)) => write(file, ranges, memory, ev),
        Err(error) => guard::told(Sign::Errno, &error),
    }
}

/// The pieces for some ranges; no list is needed when there are no ranges.
///
/// # Safety
/// As for [`Pieces::of`] and [`ranges_of`].
unsafe fn pieces_for(sgl: *const d_sg_list_t, iod: *const dfs_iod_t) -> Result<Pieces> {
    // SAFETY: the caller's promise.
    if sgl.is_null() && unsafe { guard::get(iod) }?.iod_nr == 0 {
        return Ok(Pieces(Vec::new()));
    }
    // SAFETY: the caller's promise.
    unsafe { Pieces::of(sgl) }
}

/// Size of an open file, bytes.
///
/// # Safety
/// `size` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_get_size(dfs: *mut dfs_t, obj: *mut dfs_obj_t, size: *mut u64) -> i32 {
    now(async |local| {
        let here = file_of(dfs, obj)?.here(local)?;
        if size.is_null() {
            return Err(guard::null());
        }
        let bytes = here.fs.size(&here.obj).await?;
        // SAFETY: the caller's promise.
        unsafe { guard::put(size, bytes) }
    })
}

/// Makes `len` bytes from `offset` a hole; one that reaches the end of the file cuts the file at
/// `offset`. `DFS_MAX_FSIZE` for `len` means: truncate to `offset`, in either direction.
///
/// # Safety
/// None is needed: handles are numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_punch(
    dfs: *mut dfs_t,
    obj: *mut dfs_obj_t,
    offset: u64,
    len: u64,
) -> i32 {
    now(async |local| {
        let here = file_of(dfs, obj)?.here(local)?;
        here.fs.punch(&here.obj, offset, len).await
    })
}
