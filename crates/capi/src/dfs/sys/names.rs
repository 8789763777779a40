//! Names by path: mknod, mkdir, symlink, readlink, remove.

use super::{SysHandle, dfs_sys_t};
use crate::ctypes::daos_obj_id_t;
use crate::dfs::info::put_text;
use crate::dfs::names::id_of;
use crate::dfs::{class, create_options, now};
use crate::guard;
use ::dfs::{FileKind, NodeKind, OpenFlags};
use libc::{c_char, mode_t};
use types::{Code, Error};

/// Makes an empty file (or a fifo, a socket, a directory, as the type bits say) without opening it.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_mknod(
    dfs_sys: *mut dfs_sys_t,
    path: *const c_char,
    mode: mode_t,
    cid: u32,
    chunk_size: u64,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let path = unsafe { guard::text(path) }?;
        let here = SysHandle::here(dfs_sys, local)?;
        let kind = match mode & libc::S_IFMT {
            0 => FileKind::Regular,
            _ => FileKind::from_mode(mode).ok_or_else(|| Error::inval("the mode has no type"))?,
        };
        let bits = mode & 0o7777;
        match kind {
            FileKind::Regular => {
                let options = create_options(here.fs(), cid, chunk_size)?;
                let flags = OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::PATH;
                here.open(path, flags, bits, &options).await.map(|_| ())
            }
            FileKind::Directory => {
                let class = class::of_id(cid, here.fs().container().pool())?;
                here.mkdir_of(path, bits, class).await
            }
            FileKind::Symlink => Err(Error::inval("a symbolic link is made by dfs_sys_symlink")),
            kind => here.mknod(path, bits, NodeKind { kind, rdev: 0 }).await,
        }
    })
}

/// Makes a directory. `cid` of 0: the class the parent says.
///
/// # Safety
/// `dir` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_mkdir(
    dfs_sys: *mut dfs_sys_t,
    dir: *const c_char,
    mode: mode_t,
    cid: u32,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let path = unsafe { guard::text(dir) }?;
        let here = SysHandle::here(dfs_sys, local)?;
        let class = class::of_id(cid, here.fs().container().pool())?;
        here.mkdir_of(path, mode & 0o7777, class).await
    })
}

/// Makes a directory and all that are missing above it; what is there already is fine if it is
/// a directory.
///
/// # Safety
/// `dir_path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_mkdir_p(
    dfs_sys: *mut dfs_sys_t,
    dir_path: *const c_char,
    mode: mode_t,
    cid: u32,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let path = unsafe { guard::text(dir_path) }?;
        let here = SysHandle::here(dfs_sys, local)?;
        let class = class::of_id(cid, here.fs().container().pool())?;
        here.mkdir_p_of(path, mode & 0o7777, class).await
    })
}

/// Makes a symbolic link at `path` that leads to `target`.
///
/// # Safety
/// Both are C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_symlink(
    dfs_sys: *mut dfs_sys_t,
    target: *const c_char,
    path: *const c_char,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let (target, path) = unsafe { (guard::text(target)?, guard::text(path)?) };
        SysHandle::here(dfs_sys, local)?.symlink(target, path).await
    })
}

/// Where a symbolic link leads; as `dfs_get_symlink_value`.
///
/// # Safety
/// `path` is a C string; `buf` is NULL or has room for `*size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_readlink(
    dfs_sys: *mut dfs_sys_t,
    path: *const c_char,
    buf: *mut c_char,
    size: *mut u64,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let path = unsafe { guard::text(path) }?;
        let value = SysHandle::here(dfs_sys, local)?.readlink(path).await?;
        // SAFETY: the caller's promise.
        unsafe { put_text(&value, buf, size) }
    })
}

/// Removes a file, a symbolic link or a directory; as `dfs_remove`.
///
/// # Safety
/// `path` is a C string; `oid` is NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_remove(
    dfs_sys: *mut dfs_sys_t,
    path: *const c_char,
    force: bool,
    oid: *mut daos_obj_id_t,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { dfs_sys_remove_type(dfs_sys, path, force, 0, oid) }
}

/// [`dfs_sys_remove`] of something of this type (`S_IFREG`, `S_IFDIR`, `S_IFLNK`; 0: any).
/// `EINVAL` when it is something else.
///
/// # Safety
/// As for [`dfs_sys_remove`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_remove_type(
    dfs_sys: *mut dfs_sys_t,
    path: *const c_char,
    force: bool,
    mode: mode_t,
    oid: *mut daos_obj_id_t,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let path = unsafe { guard::text(path) }?;
        let wanted = mode & libc::S_IFMT;
        if ![0, libc::S_IFREG, libc::S_IFDIR, libc::S_IFLNK].contains(&wanted) {
            return Err(Error::new(Code::NotSupported, "only files, directories and links"));
        }
        let here = SysHandle::here(dfs_sys, local)?;
        let mut removed = None;
        if wanted != 0 || !oid.is_null() {
            let stat = here.lstat(path).await?;
            if wanted != 0 && stat.mode & libc::S_IFMT != wanted {
                return Err(Error::inval("the path names something of another type"));
            }
            removed = Some(stat.oid);
        }
        here.remove(path, force).await?;
        if let Some(removed) = removed {
            guard::User(oid).set(id_of(removed));
        }
        Ok(())
    })
}
