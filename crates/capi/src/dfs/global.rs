//! Mounts and open objects as bytes for another process.
//!
//! They hold no state of any server. Importing a mount, also with its pool and container, asks
//! nobody, so that any number of processes can do it at once; importing a file registers an open
//! handle for this process.

use super::mount::{MountHandle, Origin, credentials, mount_flags};
use super::obj::ObjHandle;
use super::{bad_handle, dfs_obj_t, dfs_t, now, open_flags};
use crate::cont::ContHandle;
use crate::ctx::Local;
use crate::ctypes::{d_iov_t, daos_handle_t};
use crate::global::{Kind, decode, encode, export, import};
use crate::pool::PoolHandle;
use crate::{guard, handle};
use ::dfs::Dfs;
use serde::{Deserialize, Serialize};
use std::rc::Rc;
use std::sync::Arc;
use types::{Code, Error, Result};
use wire::control::{ContInfo, OpenMode, PoolInfo};

/// What another process needs to have the same mount.
#[derive(Serialize, Deserialize)]
pub(crate) struct Mount {
    raw: Vec<u8>,
    root: Vec<u8>,
    mode: i32,
    /// With `*_all`: its pool and container.
    opened: Option<(PoolInfo, OpenMode, ContInfo, OpenMode)>,
}

/// Gives bytes to C; `ENOBUFS` when they do not fit.
///
/// # Safety
/// As for [`export`].
unsafe fn give(raw: Result<Vec<u8>>, glob: *mut d_iov_t) -> i32 {
    let mut too_small = false;
    let told = guard::posix(|| {
        // SAFETY: the caller's promise.
        unsafe { export(&raw?, glob, Code::Range) }.inspect_err(|error| {
            too_small = error.code == Code::Range;
        })
    });
    if too_small { libc::ENOBUFS } else { told }
}

fn describe(dfs: *const dfs_t, all: bool) -> Result<Vec<u8>> {
    super::wait(async |local| {
        let mount = MountHandle::of(dfs)?;
        let mirror = mount.mirror(local)?;
        let cont = &mount.cont;
        let opened =
            all.then(|| (cont.pool.info.clone(), cont.pool.mode, cont.info.clone(), cont.mode));
        let root = mirror.fs.obj_to_global(&mount.root(&mirror));
        let value = Mount { raw: mount.raw.clone(), root, mode: mount.mode, opened };
        encode(Kind::Mount, &value)
    })
}

/// Makes a mount of what another process described.
async fn take(
    local: &Rc<Local>,
    cont: Arc<ContHandle>,
    sent: &Mount,
    flags: i32,
    origin: Origin,
) -> Result<*mut dfs_t> {
    let mirror = cont.mirror(local)?;
    let fs = Dfs::from_global(&mirror, &sent.raw, credentials())?;
    // No flags, as MPI programs give: mounted as the exporter has it.
    let how = if flags == 0 { fs.flags() } else { mount_flags(flags, &cont)? };
    let fs = if how == fs.flags() { fs } else { fs.with_flags(how) };
    let root = fs.obj_from_global(&sent.root, None).await?;
    MountHandle::give_known(local, cont, fs, root, sent.mode, origin)
}

/// Writes a mount as bytes; with `iov_buf` NULL only says how many. `ENOBUFS` when the buffer is
/// too small.
///
/// # Safety
/// `glob` points to an iov whose buffer is as long as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_local2global(dfs: *mut dfs_t, glob: *mut d_iov_t) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { give(describe(dfs, false), glob) }
}

/// Makes a mount from bytes of [`dfs_local2global`], on the same pool and container opened here.
/// `flags` as for `dfs_mount`.
///
/// # Safety
/// The buffer of `glob` is as long as it says; `dfs` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_global2local(
    poh: daos_handle_t,
    coh: daos_handle_t,
    flags: i32,
    glob: d_iov_t,
    dfs: *mut *mut dfs_t,
) -> i32 {
    now(async |local| {
        if dfs.is_null() {
            return Err(guard::null());
        }
        PoolHandle::of(poh).map_err(bad_handle)?;
        let cont = ContHandle::of(coh).map_err(bad_handle)?;
        // SAFETY: the caller's promise.
        let sent: Mount = decode(Kind::Mount, unsafe { import(&glob) }?)?;
        let mount = take(local, cont, &sent, flags, Origin::Mounted).await?;
        // SAFETY: the caller's promise.
        unsafe { guard::put(dfs, mount) }
    })
}

/// [`dfs_local2global`] together with the pool and the container.
///
/// # Safety
/// `glob` points to an iov whose buffer is as long as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_local2global_all(dfs: *mut dfs_t, glob: *mut d_iov_t) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { give(describe(dfs, true), glob) }
}

/// Makes a mount from bytes of [`dfs_local2global_all`]; nothing need be open. Ends with
/// `dfs_disconnect`.
///
/// # Safety
/// The buffer of `glob` is as long as it says; `dfs` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_global2local_all(
    flags: i32,
    glob: d_iov_t,
    dfs: *mut *mut dfs_t,
) -> i32 {
    now(async |local| {
        if dfs.is_null() {
            return Err(guard::null());
        }
        // SAFETY: the caller's promise.
        let mut sent: Mount = decode(Kind::Mount, unsafe { import(&glob) }?)?;
        let Some((info, mode, cont, cont_mode)) = sent.opened.take() else {
            return Err(Error::inval("these bytes are of dfs_local2global, without a pool"));
        };
        let (_, pool) =
            handle::add_with(|cookie| Arc::new(PoolHandle { cookie, info, mode, home: None }))?;
        let (_, cont) = handle::add_with(|cookie| {
            let (pool, info) = (pool.clone(), cont);
            Arc::new(ContHandle {
                cookie,
                pool,
                info,
                mode: cont_mode,
                at: types::Epoch::ZERO,
                home: None,
            })
        })?;
        match take(local, cont.clone(), &sent, flags, Origin::Connected).await {
            // SAFETY: the caller's promise.
            Ok(mount) => unsafe { guard::put(dfs, mount) },
            Err(error) => {
                let _ = handle::remove::<ContHandle>(cont.cookie);
                let _ = handle::remove::<PoolHandle>(pool.cookie);
                Err(error)
            }
        }
    })
}

/// Writes an open object as bytes; as [`dfs_local2global`].
///
/// # Safety
/// `glob` points to an iov whose buffer is as long as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_obj_local2global(
    dfs: *mut dfs_t,
    obj: *mut dfs_obj_t,
    glob: *mut d_iov_t,
) -> i32 {
    let raw = super::wait(async |local| {
        let here = ObjHandle::of_mount(dfs, obj)?.here(local)?;
        encode(Kind::File, &here.fs.obj_to_global(&here.obj))
    });
    // SAFETY: the caller's promise.
    unsafe { give(raw, glob) }
}

/// Opens an object from bytes of [`dfs_obj_local2global`], in a mount of the same container.
/// `flags` of 0: those it was opened with.
///
/// # Safety
/// The buffer of `glob` is as long as it says; `obj` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_obj_global2local(
    dfs: *mut dfs_t,
    flags: i32,
    glob: d_iov_t,
    obj: *mut *mut dfs_obj_t,
) -> i32 {
    now(async |local| {
        if obj.is_null() {
            return Err(guard::null());
        }
        let mount = MountHandle::of(dfs)?;
        // SAFETY: the caller's promise.
        let raw: Vec<u8> = decode(Kind::File, unsafe { import(&glob) }?)?;
        let flags = match flags {
            0 => None,
            flags => Some(open_flags(flags)?),
        };
        let opened = mount.mirror(local)?.fs.obj_from_global(&raw, flags).await?;
        ObjHandle::give(local, &mount, opened, obj)
    })
}
