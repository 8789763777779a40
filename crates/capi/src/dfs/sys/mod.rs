//! Files by path: `dfs_sys_*`.
//!
//! A `dfs_sys_t *` is a mount and a way to use it. Each context keeps directories open that were
//! used last; what this process renames or removes through other calls, or another process does,
//! is noticed after a second at the latest, or at once with `DFS_SYS_NO_CACHE`. `DFS_SYS_NO_LOCK`
//! changes nothing: there is no lock to leave out.

pub mod attr;
pub mod dir;
pub mod file;
pub mod names;

use super::mount::{MountHandle, MountMirror};
use super::{bad_handle, cookie_of, dfs_t, pointer_of};
use crate::ctx::Local;
use crate::ctypes::{d_iov_t, daos_handle_t, dfs_attr_t};
use crate::{guard, handle};
use ::dfs::sys::Sys;
use libc::c_char;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{Error, Result};

/// A mounted file system by path, as C names it.
#[allow(non_camel_case_types)]
pub enum dfs_sys_t {}

/// `DFS_SYS_NO_CACHE`, `DFS_SYS_NO_LOCK`.
const NO_CACHE: i32 = 1;
const NO_LOCK: i32 = 2;

/// A mount by path.
pub struct SysHandle {
    cookie: u64,
    pub mount: Arc<MountHandle>,
    caches: bool,
}

/// A mount by path as a context sees it.
struct SysMirror {
    sys: Sys,
    mount: Rc<MountMirror>,
}

/// A mount by path in a context.
pub(crate) struct Here {
    mirror: Rc<SysMirror>,
    pub mount: Arc<MountHandle>,
}

impl std::ops::Deref for Here {
    type Target = Sys;
    fn deref(&self) -> &Sys {
        &self.mirror.sys
    }
}

impl SysHandle {
    /// The mount behind a pointer of C's. `Inval` when it is none, or not any more.
    pub fn of(pointer: *const dfs_sys_t) -> Result<Arc<SysHandle>> {
        let found: Arc<SysHandle> = handle::get(cookie_of(pointer)).map_err(bad_handle)?;
        if !handle::is_live(found.mount.cookie) {
            return Err(Error::inval("the mount below was ended"));
        }
        Ok(found)
    }

    /// The same in a context.
    pub(crate) fn here(pointer: *const dfs_sys_t, local: &Local) -> Result<Here> {
        let found = SysHandle::of(pointer)?;
        let mount = found.mount.mirror(local)?;
        let mirror = local.mirror(found.cookie, || {
            let sys = Sys::new(mount.fs.clone());
            if !found.caches {
                sys.set_cache_lifetime(Duration::ZERO);
            }
            Ok(SysMirror { sys, mount: mount.clone() })
        })?;
        debug_assert!(Rc::ptr_eq(&mirror.mount, &mount), "a context has one mirror of a mount");
        Ok(Here { mirror, mount: found.mount.clone() })
    }
}

/// Makes a mount usable by path.
fn give(dfs: *mut dfs_t, sflags: i32, out: *mut *mut dfs_sys_t) -> Result<()> {
    let mount = MountHandle::of(dfs)?;
    let caches = sflags & NO_CACHE == 0;
    let (cookie, _) = handle::add_with(|cookie| Arc::new(SysHandle { cookie, mount, caches }))?;
    // SAFETY: the caller of the C function promised it.
    unsafe { guard::put(out, pointer_of(cookie)) }
}

/// Mounts with `mount`, and makes the result usable by path; ends the mount when that fails.
fn mounted(
    sflags: i32,
    out: *mut *mut dfs_sys_t,
    mount: impl FnOnce(*mut *mut dfs_t) -> i32,
    end: unsafe extern "C" fn(*mut dfs_t) -> i32,
) -> i32 {
    if out.is_null() || sflags & !(NO_CACHE | NO_LOCK) != 0 {
        return libc::EINVAL;
    }
    let mut dfs = std::ptr::null_mut();
    match mount(&mut dfs) {
        0 => {}
        error => return error,
    }
    let given = guard::posix(|| give(dfs, sflags, out));
    if given != 0 {
        // SAFETY: a number.
        unsafe { end(dfs) };
    }
    given
}

/// Ends the mount below with `end`, then this.
fn ended(dfs_sys: *mut dfs_sys_t, end: unsafe extern "C" fn(*mut dfs_t) -> i32) -> i32 {
    let mut below = 0;
    let done = guard::posix(|| {
        let sys = SysHandle::of(dfs_sys)?;
        // SAFETY: a number.
        below = unsafe { end(pointer_of(sys.mount.cookie)) };
        if below == 0 {
            handle::remove::<SysHandle>(sys.cookie).map_err(bad_handle)?;
            super::wait(async |local| {
                local.forget(sys.cookie);
                Ok(())
            })?;
        }
        Ok(())
    });
    if done == 0 { below } else { done }
}

/// `dfs_connect` by path. `sflags`: `DFS_SYS_NO_CACHE`, `DFS_SYS_NO_LOCK`.
///
/// # Safety
/// As for [`super::cont::dfs_connect`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_connect(
    pool: *const c_char,
    sys: *const c_char,
    cont: *const c_char,
    mflags: i32,
    sflags: i32,
    attr: *mut dfs_attr_t,
    dfs_sys: *mut *mut dfs_sys_t,
) -> i32 {
    // SAFETY: the caller's promise.
    let mount = |dfs| unsafe { super::cont::dfs_connect(pool, sys, cont, mflags, attr, dfs) };
    mounted(sflags, dfs_sys, mount, super::cont::dfs_disconnect)
}

/// Ends what `dfs_sys_connect` or `dfs_sys_global2local_all` began.
///
/// # Safety
/// None is needed: `dfs_sys` is a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_disconnect(dfs_sys: *mut dfs_sys_t) -> i32 {
    ended(dfs_sys, super::cont::dfs_disconnect)
}

/// `dfs_mount` by path.
///
/// # Safety
/// `dfs_sys` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_mount(
    poh: daos_handle_t,
    coh: daos_handle_t,
    mflags: i32,
    sflags: i32,
    dfs_sys: *mut *mut dfs_sys_t,
) -> i32 {
    // SAFETY: the caller's promise.
    let mount = |dfs| unsafe { super::mount::dfs_mount(poh, coh, mflags, dfs) };
    mounted(sflags, dfs_sys, mount, super::mount::dfs_umount)
}

/// Ends what `dfs_sys_mount` or `dfs_sys_global2local` began.
///
/// # Safety
/// None is needed: `dfs_sys` is a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_umount(dfs_sys: *mut dfs_sys_t) -> i32 {
    ended(dfs_sys, super::mount::dfs_umount)
}

/// Paths lose this prefix first. NULL: none.
///
/// # Safety
/// `prefix` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_set_prefix(dfs_sys: *mut dfs_sys_t, prefix: *const c_char) -> i32 {
    with_base(dfs_sys, |dfs| {
        // SAFETY: the caller's promise.
        unsafe { super::mount::dfs_set_prefix(dfs, prefix) }
    })
}

/// Runs a function on the mount below.
fn with_base(dfs_sys: *mut dfs_sys_t, run: impl FnOnce(*mut dfs_t) -> i32) -> i32 {
    match guard::catch(|| SysHandle::of(dfs_sys)) {
        Ok(sys) => run(pointer_of(sys.mount.cookie)),
        Err(error) => guard::told(crate::errno::Sign::Errno, &error),
    }
}

/// `dfs_local2global_all` of the mount below.
///
/// # Safety
/// `glob` points to an iov whose buffer is as long as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_local2global_all(
    dfs_sys: *mut dfs_sys_t,
    glob: *mut d_iov_t,
) -> i32 {
    with_base(dfs_sys, |dfs| {
        // SAFETY: the caller's promise.
        unsafe { super::global::dfs_local2global_all(dfs, glob) }
    })
}

/// `dfs_global2local_all` by path.
///
/// # Safety
/// The buffer of `glob` is as long as it says; `dfs_sys` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_global2local_all(
    mflags: i32,
    sflags: i32,
    glob: d_iov_t,
    dfs_sys: *mut *mut dfs_sys_t,
) -> i32 {
    // SAFETY: the caller's promise.
    let mount = |dfs| unsafe { super::global::dfs_global2local_all(mflags, glob, dfs) };
    mounted(sflags, dfs_sys, mount, super::cont::dfs_disconnect)
}

/// `dfs_local2global` of the mount below.
///
/// # Safety
/// `glob` points to an iov whose buffer is as long as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_local2global(dfs_sys: *mut dfs_sys_t, glob: *mut d_iov_t) -> i32 {
    with_base(dfs_sys, |dfs| {
        // SAFETY: the caller's promise.
        unsafe { super::global::dfs_local2global(dfs, glob) }
    })
}

/// `dfs_global2local` by path.
///
/// # Safety
/// The buffer of `glob` is as long as it says; `dfs_sys` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_global2local(
    poh: daos_handle_t,
    coh: daos_handle_t,
    mflags: i32,
    sflags: i32,
    glob: d_iov_t,
    dfs_sys: *mut *mut dfs_sys_t,
) -> i32 {
    // SAFETY: the caller's promise.
    let mount = |dfs| unsafe { super::global::dfs_global2local(poh, coh, mflags, glob, dfs) };
    mounted(sflags, dfs_sys, mount, super::mount::dfs_umount)
}

/// The mount below; it stays this one's.
///
/// # Safety
/// `dfs` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys2base(dfs_sys: *mut dfs_sys_t, dfs: *mut *mut dfs_t) -> i32 {
    guard::posix(|| {
        let cookie = SysHandle::of(dfs_sys)?.mount.cookie;
        // SAFETY: the caller's promise.
        unsafe { guard::put(dfs, pointer_of(cookie)) }
    })
}
