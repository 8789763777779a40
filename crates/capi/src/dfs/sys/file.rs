//! Files by path: open, read, write, punch.

use super::{SysHandle, dfs_sys_t};
use crate::ctypes::daos_event_t;
use crate::dfs::lookup::{Wanted, open};
use crate::dfs::obj::{ObjHandle, release};
use crate::dfs::{dfs_obj_t, dfs_t, io, now, open_flags, pointer_of};
use crate::errno::Sign;
use crate::guard::{self, User};
use ::dfs::{FileKind, OpenFlags, Recx};
use libc::{c_char, c_void, mode_t};
use std::sync::Arc;
use types::{Error, Result};

/// Opens, or with `O_CREAT` makes, what a path names; `mode`'s type bits say what (0: a file), as
/// for `dfs_open`. Without `O_CREAT` symbolic links are followed unless `O_NOFOLLOW`.
///
/// # Safety
/// `path` is a C string, `value` too or NULL; `obj` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_open(
    dfs_sys: *mut dfs_sys_t,
    path: *const c_char,
    mode: mode_t,
    flags: i32,
    cid: u32,
    chunk_size: u64,
    value: *const c_char,
    obj: *mut *mut dfs_obj_t,
) -> i32 {
    now(async |local| {
        if obj.is_null() {
            return Err(guard::null());
        }
        // SAFETY: the caller's promise.
        let path = unsafe { guard::text(path) }?;
        // SAFETY: the caller's promise.
        let value = if value.is_null() { None } else { Some(unsafe { guard::text(value) }?) };
        let here = SysHandle::here(dfs_sys, local)?;
        let mode = if mode & libc::S_IFMT == 0 { mode | libc::S_IFREG } else { mode };
        let flags = open_flags(flags)?;
        let kind = FileKind::from_mode(mode).ok_or_else(|| Error::inval("the mode has no type"))?;
        let exact = flags.has(OpenFlags::CREATE) || flags.has(OpenFlags::NOFOLLOW);
        let what = Wanted { mode, flags, cid, chunk_size, value };
        let fs = here.fs().clone();
        let opened = here
            .at(path, async |dir, name| {
                if exact {
                    return open(&fs, dir, name, &what).await;
                }
                let opened = fs.lookup_rel(dir, name, flags.without(OpenFlags::TRUNC)).await?;
                if flags.has(OpenFlags::TRUNC) && opened.kind() == FileKind::Regular {
                    fs.truncate(&opened, 0).await?;
                }
                Ok(opened)
            })
            .await?;
        let opened = match opened {
            Some(opened) => opened,
            None if flags.has(OpenFlags::CREATE | OpenFlags::EXCL) => {
                return Err(types::Code::Exist.into());
            }
            None => fs.lookup(path, flags.without(OpenFlags::CREATE)).await?,
        };
        if opened.kind() != kind {
            return Err(Error::inval("the path names something else than asked for"));
        }
        ObjHandle::give(local, &here.mount, opened, obj)
    })
}

/// `dfs_release`.
///
/// # Safety
/// None is needed: `obj` is a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_close(obj: *mut dfs_obj_t) -> i32 {
    guard::posix(|| release(obj))
}

/// A regular file opened in the mount below.
fn file_of(dfs_sys: *const dfs_sys_t, obj: *const dfs_obj_t) -> Result<Arc<ObjHandle>> {
    let base: *mut dfs_t = pointer_of(SysHandle::of(dfs_sys)?.mount.cookie);
    io::file_of(base, obj)
}

/// What to transfer: the file, the range, the memory.
fn transfer(
    dfs_sys: *const dfs_sys_t,
    obj: *const dfs_obj_t,
    memory: *mut u8,
    off: u64,
    size: *const u64,
) -> Result<(Arc<ObjHandle>, Vec<Recx>, io::Pieces)> {
    // SAFETY: the caller of the C function promised it.
    let count = *unsafe { guard::get(size) }?;
    let bytes = usize::try_from(count).map_err(|_| Error::inval("more than fits the memory"))?;
    let pieces = io::Pieces::one(memory, bytes)?;
    Ok((file_of(dfs_sys, obj)?, vec![Recx { index: off, count }], pieces))
}

/// Reads up to `*size` bytes from `off`; `*size` gets how many there were.
///
/// # Safety
/// `buf` has room for `*size` bytes and stays until completion, as `size` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_read(
    dfs_sys: *mut dfs_sys_t,
    obj: *mut dfs_obj_t,
    buf: *mut c_void,
    off: u64,
    size: *mut u64,
    ev: *mut daos_event_t,
) -> i32 {
    match guard::catch(|| transfer(dfs_sys, obj, buf.cast(), off, size)) {
        Ok((file, ranges, memory)) => io::read(file, ranges, memory, User(size), ev),
        Err(error) => guard::told(Sign::Errno, &error),
    }
}

/// Writes `*size` bytes at `off`.
///
/// # Safety
/// `buf` holds `*size` bytes and stays as it is until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_write(
    dfs_sys: *mut dfs_sys_t,
    obj: *mut dfs_obj_t,
    buf: *const c_void,
    off: u64,
    size: *mut u64,
    ev: *mut daos_event_t,
) -> i32 {
    match guard::catch(|| transfer(dfs_sys, obj, buf.cast_mut().cast(), off, size)) {
        Ok((file, ranges, memory)) => io::write(file, ranges, memory, ev),
        Err(error) => guard::told(Sign::Errno, &error),
    }
}

/// Makes a hole in, or cuts, a file by path; as `dfs_punch`.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_punch(
    dfs_sys: *mut dfs_sys_t,
    path: *const c_char,
    offset: u64,
    len: u64,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let path = unsafe { guard::text(path) }?;
        let here = SysHandle::here(dfs_sys, local)?;
        let file = here.lookup(path, true).await?.dup(OpenFlags::READ_WRITE);
        if file.kind() != FileKind::Regular {
            return Err(Error::inval("only regular files have data"));
        }
        here.fs().punch(&file, offset, len).await
    })
}
