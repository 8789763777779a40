//! Listing directories.
//!
//! An anchor of C's holds a listing's whole position, so any thread or process may go on with it.
//! Entries come in hash order, without `.` and `..`; the end may come with entries or without.

use super::attr::stat_of;
use super::obj::{Here, ObjHandle};
use super::{dfs_obj_t, dfs_t, now, wait};
use crate::ctypes::{
    DAOS_ANCHOR_TYPE_EOF, DAOS_ANCHOR_TYPE_HKEY, DAOS_ANCHOR_TYPE_ZERO, daos_anchor_t,
};
use crate::guard;
use ::dfs::{DirAnchor, DirEntry, FileKind};
use libc::{c_char, c_int, c_void};
use std::sync::atomic::Ordering;
use types::limits::NAME_BYTES_MAX;
use types::{Error, Result};

/// Entries asked for at a time at most.
const ENTRIES_MAX: u32 = 4096;

/// Where a listing stands. `Inval` for an anchor that was not zeroed, nor made by us.
pub(crate) fn anchor_of(anchor: &daos_anchor_t) -> Result<DirAnchor> {
    match anchor.da_type {
        DAOS_ANCHOR_TYPE_ZERO => Ok(DirAnchor::start()),
        DAOS_ANCHOR_TYPE_HKEY => {
            let bytes = anchor.da_buf[0] as usize;
            let raw = anchor.da_buf.get(1..1 + bytes);
            DirAnchor::from_short(raw.ok_or_else(|| Error::inval("this is no anchor"))?)
        }
        _ => Err(Error::inval("the listing is at its end, or the anchor is of another kind")),
    }
}

/// Writes down where a listing stands.
pub(crate) fn set_anchor(anchor: &mut daos_anchor_t, at: &DirAnchor) {
    let raw = at.to_short();
    anchor.da_type = if at.is_end() { DAOS_ANCHOR_TYPE_EOF } else { DAOS_ANCHOR_TYPE_HKEY };
    anchor.da_buf.fill(0);
    anchor.da_buf[0] = raw.len() as u8;
    anchor.da_buf[1..][..raw.len()].copy_from_slice(&raw);
}

/// Fills in an entry of a listing: name, number and type.
///
/// # Safety
/// `out` is good for writing.
pub(crate) unsafe fn put_entry(out: *mut libc::dirent, entry: &DirEntry) {
    let kind = match entry.kind {
        FileKind::Regular => libc::DT_REG,
        FileKind::Directory => libc::DT_DIR,
        FileKind::Symlink => libc::DT_LNK,
        FileKind::Fifo => libc::DT_FIFO,
        FileKind::Socket => libc::DT_SOCK,
        FileKind::CharDevice => libc::DT_CHR,
        FileKind::BlockDevice => libc::DT_BLK,
    };
    let name = &entry.name[..entry.name.len().min(NAME_BYTES_MAX)];
    // SAFETY: the caller's promise; the name and its NUL fit.
    unsafe {
        (*out).d_ino = entry.ino;
        (*out).d_off = 0;
        (*out).d_reclen = size_of::<libc::dirent>() as u16;
        (*out).d_type = kind;
        let to = (&raw mut (*out).d_name).cast::<u8>();
        std::ptr::copy_nonoverlapping(name.as_ptr(), to, name.len());
        to.add(name.len()).write(0);
    }
}

/// Lists up to `*nr` entries into `dirs`; `*nr` gets how many. `anchor` is zeroed by the caller
/// before the first call; `daos_anchor_is_eof` tells the end.
///
/// # Safety
/// `dirs` has room for `*nr` entries; `anchor` and `nr` are good for reading and writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_readdir(
    dfs: *mut dfs_t,
    obj: *mut dfs_obj_t,
    anchor: *mut daos_anchor_t,
    nr: *mut u32,
    dirs: *mut libc::dirent,
) -> i32 {
    // SAFETY: the caller's promise.
    now(async |local| {
        let here = ObjHandle::of_mount(dfs, obj)?.here(local)?;
        // SAFETY: the caller's promise.
        let (anchor, nr) = unsafe { listing_of(anchor, nr) }?;
        if *nr == 0 {
            return Ok(());
        }
        if dirs.is_null() {
            return Err(guard::null());
        }
        let mut count = 0;
        let mut at = anchor_of(anchor)?;
        while count < *nr && !at.is_end() {
            let room = (*nr - count).min(ENTRIES_MAX);
            for entry in here.fs.readdir(&here.obj, &mut at, room).await? {
                // SAFETY: a page has no more entries than were asked for.
                unsafe { put_entry(dirs.add(count as usize), &entry) };
                count += 1;
            }
        }
        set_anchor(anchor, &at);
        *nr = count;
        Ok(())
    })
}

/// [`dfs_readdir`] with the attributes of each entry in `stbufs`. Entries that vanish meanwhile
/// are left out.
///
/// # Safety
/// As for [`dfs_readdir`]; `stbufs` has room for as many as `dirs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_readdirplus(
    dfs: *mut dfs_t,
    obj: *mut dfs_obj_t,
    anchor: *mut daos_anchor_t,
    nr: *mut u32,
    dirs: *mut libc::dirent,
    stbufs: *mut libc::stat,
) -> i32 {
    now(async |local| {
        let here = ObjHandle::of_mount(dfs, obj)?.here(local)?;
        // SAFETY: the caller's promise.
        let (anchor, nr) = unsafe { listing_of(anchor, nr) }?;
        if *nr == 0 {
            return Ok(());
        }
        if dirs.is_null() || stbufs.is_null() {
            return Err(guard::null());
        }
        let mut count = 0;
        let mut at = anchor_of(anchor)?;
        while count < *nr && !at.is_end() {
            let room = (*nr - count).min(ENTRIES_MAX);
            for (entry, stat) in here.fs.readdirplus(&here.obj, &mut at, room).await? {
                // SAFETY: a page has no more entries than were asked for.
                unsafe {
                    put_entry(dirs.add(count as usize), &entry);
                    stbufs.add(count as usize).write(stat_of(&stat));
                }
                count += 1;
            }
        }
        set_anchor(anchor, &at);
        *nr = count;
        Ok(())
    })
}

/// The anchor and the count of a listing. A listing at its end stays there, with no entries.
///
/// # Safety
/// Both are NULL or good for reading and writing.
pub(crate) unsafe fn listing_of<'a>(
    anchor: *mut daos_anchor_t,
    nr: *mut u32,
) -> Result<(&'a mut daos_anchor_t, &'a mut u32)> {
    // SAFETY: the caller's promise.
    let (anchor, nr) = unsafe { (anchor.as_mut(), nr.as_mut()) };
    let (anchor, nr) = (anchor.ok_or_else(guard::null)?, nr.ok_or_else(guard::null)?);
    if anchor.da_type == DAOS_ANCHOR_TYPE_EOF {
        *nr = 0;
    }
    Ok((anchor, nr))
}

/// What `dfs_iterate` calls for an entry.
pub type Filler =
    unsafe extern "C" fn(*mut dfs_t, *mut dfs_obj_t, *const c_char, *mut c_void) -> c_int;

/// Calls `op(dfs, obj, name, arg)` for up to `*nr` entries, and for no more than have names of
/// `size` bytes together, NULs counted; `*nr` gets how many there were. An error of `op` ends it
/// and is returned. `op` may use the API.
///
/// # Safety
/// `anchor` and `nr` are good for reading and writing; `op` may be called with `arg`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_iterate(
    dfs: *mut dfs_t,
    obj: *mut dfs_obj_t,
    anchor: *mut daos_anchor_t,
    nr: *mut u32,
    size: usize,
    op: Option<Filler>,
    arg: *mut c_void,
) -> i32 {
    let mut told = 0;
    let done = guard::posix(|| {
        let op = op.ok_or_else(guard::null)?;
        // SAFETY: the caller's promise.
        let (anchor, nr) = unsafe { listing_of(anchor, nr) }?;
        if *nr == 0 {
            return Ok(());
        }
        if size <= NAME_BYTES_MAX {
            return Err(Error::inval("there must be room for one name of 255 bytes"));
        }
        let mut at = anchor_of(anchor)?;
        let (mut count, mut room) = (0, size);
        // Names are as long as they are; a page of as many as surely fit is asked for.
        while count < *nr && room > NAME_BYTES_MAX && !at.is_end() && told == 0 {
            let sure = (room / (NAME_BYTES_MAX + 1)) as u32;
            let want = (*nr - count).min(sure).min(ENTRIES_MAX);
            let page = wait(async |local| {
                let Here { fs, obj, .. } = ObjHandle::of_mount(dfs, obj)?.here(local)?;
                fs.readdir(&obj, &mut at, want).await
            })?;
            for entry in page {
                let mut name = entry.name.to_vec();
                name.push(0);
                room -= name.len();
                count += 1;
                // SAFETY: the caller's promise. No lock of ours is held.
                told = unsafe { op(dfs, obj, name.as_ptr().cast(), arg) };
                if told != 0 {
                    break;
                }
            }
        }
        set_anchor(anchor, &at);
        *nr = count;
        Ok(())
    });
    if done == 0 { told } else { done }
}

/// Makes a listing begin with an entry, or where it would be.
///
/// # Safety
/// `name` is a C string; `anchor` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_dir_anchor_set(
    obj: *mut dfs_obj_t,
    name: *const c_char,
    anchor: *mut daos_anchor_t,
) -> i32 {
    now(async |local| {
        let here = ObjHandle::of(obj)?.here(local)?;
        // SAFETY: the caller's promise.
        let name = unsafe { guard::text(name) }?;
        // SAFETY: the caller's promise.
        let anchor = unsafe { anchor.as_mut() }.ok_or_else(guard::null)?;
        set_anchor(anchor, &here.fs.anchor_at(&here.obj, name).await?);
        Ok(())
    })
}

/// Cuts a directory into `*nr` listings (0: as many as it has shards, and `*nr` gets how many)
/// that together give every entry once. With `anchors` NULL only tells the number; else they are
/// filled in.
///
/// # Safety
/// `nr` is good for reading and writing; `anchors` is NULL or has room for `*nr`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_obj_anchor_split(
    obj: *mut dfs_obj_t,
    nr: *mut u32,
    anchors: *mut daos_anchor_t,
) -> i32 {
    now(async |local| {
        let here = ObjHandle::of(obj)?.here(local)?;
        // SAFETY: the caller's promise.
        let nr = unsafe { nr.as_mut() }.ok_or_else(guard::null)?;
        if *nr == 0 && !anchors.is_null() {
            return Err(Error::inval("no anchors are to be filled in"));
        }
        let shards = here.fs.shard_count(&here.obj).await?;
        if *nr == 0 {
            *nr = shards;
        }
        here.handle.parts.store(*nr, Ordering::Relaxed);
        if anchors.is_null() {
            return Ok(());
        }
        for (at, part) in here.fs.split(&here.obj, *nr).await?.iter().enumerate() {
            // SAFETY: the caller's promise; there are `*nr` parts.
            unsafe {
                anchors.add(at).write(std::mem::zeroed());
                set_anchor(&mut *anchors.add(at), part);
            }
        }
        Ok(())
    })
}

/// Makes a listing that of one part of a directory, as [`dfs_obj_anchor_split`] of this object
/// cut it (or would: into its shards). `EINVAL` when there are not as many parts.
///
/// # Safety
/// `anchor` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_obj_anchor_set(
    obj: *mut dfs_obj_t,
    index: u32,
    anchor: *mut daos_anchor_t,
) -> i32 {
    now(async |local| {
        let here = ObjHandle::of(obj)?.here(local)?;
        // SAFETY: the caller's promise.
        let anchor = unsafe { anchor.as_mut() }.ok_or_else(guard::null)?;
        let parts = match here.handle.parts.load(Ordering::Relaxed) {
            0 => here.fs.shard_count(&here.obj).await?,
            parts => parts,
        };
        let split = here.fs.split(&here.obj, parts).await?;
        let part = split
            .get(index as usize)
            .ok_or_else(|| Error::inval(format!("part {index} of a directory cut into {parts}")))?;
        set_anchor(anchor, part);
        Ok(())
    })
}
