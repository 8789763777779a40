//! Attributes by path.

use super::{SysHandle, dfs_sys_t};
use crate::dfs::attr::{access_of, ns_of, real_user, set_of, stat_of};
use crate::dfs::mount::credentials;
use crate::dfs::now;
use crate::dfs::xattr::{joined, mode_of, put_value, value_of};
use crate::guard;
use ::dfs::{SetAttr, SetTime};
use libc::{c_char, c_void, gid_t, mode_t, timespec, uid_t};
use types::{Code, Error, Result};

/// True when the last symbolic link of a path is to be followed.
fn follows(flags: i32) -> bool {
    flags & libc::O_NOFOLLOW == 0
}

/// Whether the real user (with `AT_EACCESS` the effective one) may do all of `mask`, by mode bits.
/// `EACCES` when not.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_access(
    dfs_sys: *mut dfs_sys_t,
    path: *const c_char,
    mask: i32,
    flags: i32,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let path = unsafe { guard::text(path) }?;
        let want = access_of(mask)?;
        let here = SysHandle::here(dfs_sys, local)?;
        let obj = here.lookup(path, follows(flags)).await?;
        let mut who = real_user();
        if flags & libc::AT_EACCESS != 0 {
            let effective = credentials();
            (who.uid, who.gid) = (effective.uid, effective.gid);
        }
        here.fs().oaccess_as(&obj, want, &who)
    })
}

/// Changes permission bits; symbolic links are followed.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_chmod(
    dfs_sys: *mut dfs_sys_t,
    path: *const c_char,
    mode: mode_t,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let path = unsafe { guard::text(path) }?;
        SysHandle::here(dfs_sys, local)?.chmod(path, mode).await
    })
}

/// Changes owner and group; -1 leaves one alone.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_chown(
    dfs_sys: *mut dfs_sys_t,
    path: *const c_char,
    uid: uid_t,
    gid: gid_t,
    flags: i32,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let path = unsafe { guard::text(path) }?;
        let kept = |id: u32| Some(id).filter(|id| *id != u32::MAX);
        let here = SysHandle::here(dfs_sys, local)?;
        here.chown(path, kept(uid), kept(gid), follows(flags)).await
    })
}

/// Changes the attributes that `flags` (`DFS_SET_ATTR_*`) name; `stbuf` gets what all are now.
///
/// # Safety
/// `path` is a C string; `stbuf` is good for reading and writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_setattr(
    dfs_sys: *mut dfs_sys_t,
    path: *const c_char,
    stbuf: *mut libc::stat,
    flags: i32,
    sflags: i32,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let (path, stat) = unsafe { (guard::text(path)?, stbuf.as_mut()) };
        let stat = stat.ok_or_else(guard::null)?;
        let set = set_of(stat, flags)?;
        let here = SysHandle::here(dfs_sys, local)?;
        *stat = stat_of(&here.setattr(path, &set, follows(sflags)).await?);
        Ok(())
    })
}

/// Changes access and modification time; `times` of NULL: both to the present. `UTIME_NOW` and
/// `UTIME_OMIT` are understood.
///
/// # Safety
/// `path` is a C string; `times` is NULL or two times.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_utimens(
    dfs_sys: *mut dfs_sys_t,
    path: *const c_char,
    times: *const timespec,
    flags: i32,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let path = unsafe { guard::text(path) }?;
        let (atime, mtime) = if times.is_null() {
            (Some(SetTime::Now), Some(SetTime::Now))
        } else {
            // SAFETY: the caller's promise.
            unsafe { (time_of(&*times)?, time_of(&*times.add(1))?) }
        };
        let set = SetAttr { atime, mtime, ..SetAttr::default() };
        let here = SysHandle::here(dfs_sys, local)?;
        here.setattr(path, &set, follows(flags)).await.map(|_| ())
    })
}

fn time_of(time: &timespec) -> Result<Option<SetTime>> {
    match time.tv_nsec {
        libc::UTIME_NOW => Ok(Some(SetTime::Now)),
        libc::UTIME_OMIT => Ok(None),
        ns => Ok(Some(SetTime::At(ns_of(time.tv_sec, ns)?))),
    }
}

/// Attributes of what a path names.
///
/// # Safety
/// `path` is a C string; `stbuf` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_stat(
    dfs_sys: *mut dfs_sys_t,
    path: *const c_char,
    flags: i32,
    stbuf: *mut libc::stat,
) -> i32 {
    now(async |local| {
        if stbuf.is_null() {
            return Err(guard::null());
        }
        // SAFETY: the caller's promise.
        let path = unsafe { guard::text(path) }?;
        let here = SysHandle::here(dfs_sys, local)?;
        let stat = if follows(flags) { here.stat(path).await? } else { here.lstat(path).await? };
        // SAFETY: the caller's promise.
        unsafe { guard::put(stbuf, stat_of(&stat)) }
    })
}

/// As [`put_value`], and `Range` for a room of 0 that is too small.
///
/// # Safety
/// As there.
unsafe fn fill(found: &[u8], value: *mut c_void, size: *mut u64) -> Result<()> {
    // SAFETY: the caller's promise.
    let room = unsafe { guard::get(size) }?;
    let is_short = *room < found.len() as u64;
    // SAFETY: the caller's promise.
    unsafe { put_value(found, value, size) }?;
    if is_short { Err(Error::bare(Code::Range)) } else { Ok(()) }
}

/// Names of all extended attributes; as `dfs_listxattr`, but `ERANGE` also when there is no room at
/// all for something.
///
/// # Safety
/// `path` is a C string; `list` is NULL or has room for `*size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_listxattr(
    dfs_sys: *mut dfs_sys_t,
    path: *const c_char,
    list: *mut c_char,
    size: *mut u64,
    flags: i32,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let path = unsafe { guard::text(path) }?;
        let names = SysHandle::here(dfs_sys, local)?.listxattr(path, follows(flags)).await?;
        // SAFETY: the caller's promise.
        unsafe { fill(&joined(names), list.cast(), size) }
    })
}

/// The value of an extended attribute; as `dfs_getxattr`, but `ERANGE` also when there is no room at all
/// for something.
///
/// # Safety
/// `path` and `name` are C strings; `value` is NULL or has room for `*size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_getxattr(
    dfs_sys: *mut dfs_sys_t,
    path: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    size: *mut u64,
    flags: i32,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let (path, name) = unsafe { (guard::text(path)?, guard::text(name)?) };
        let here = SysHandle::here(dfs_sys, local)?;
        let found = here.getxattr(path, name, follows(flags)).await?;
        // SAFETY: the caller's promise.
        unsafe { fill(&found, value, size) }
    })
}

/// Sets an extended attribute; `flags` as for `dfs_setxattr`, `sflags`: `O_NOFOLLOW`.
///
/// # Safety
/// `path` and `name` are C strings, `value` `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_setxattr(
    dfs_sys: *mut dfs_sys_t,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    size: u64,
    flags: i32,
    sflags: i32,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let (path, name, value) =
            unsafe { (guard::text(path)?, guard::text(name)?, value_of(value, size)?) };
        let here = SysHandle::here(dfs_sys, local)?;
        here.setxattr(path, name, value, mode_of(flags)?, follows(sflags)).await
    })
}

/// Removes an extended attribute.
///
/// # Safety
/// `path` and `name` are C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_removexattr(
    dfs_sys: *mut dfs_sys_t,
    path: *const c_char,
    name: *const c_char,
    flags: i32,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let (path, name) = unsafe { (guard::text(path)?, guard::text(name)?) };
        SysHandle::here(dfs_sys, local)?.removexattr(path, name, follows(flags)).await
    })
}
