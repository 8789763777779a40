//! Names: mkdir, remove, move, exchange.

use super::obj::{ObjHandle, parent_of};
use super::{bad_handle, class, cookie_of, dfs_obj_t, dfs_t, now};
use crate::ctypes::daos_obj_id_t;
use crate::guard;
use crate::handle;
use ::dfs::{Dfs, Obj, RenameFlags};
use libc::{c_char, mode_t};
use types::{Code, Error, Oid, Result};

/// An object id as C has it.
pub(crate) fn id_of(oid: Oid) -> daos_obj_id_t {
    daos_obj_id_t { lo: oid.lo, hi: oid.hi }
}

/// Makes a directory in another (NULL: the root). `cid` of 0: the class the parent says.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_mkdir(
    dfs: *mut dfs_t,
    parent: *mut dfs_obj_t,
    name: *const c_char,
    mode: mode_t,
    cid: u32,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let name = unsafe { guard::text(name) }?;
        let (_, fs, dir) = parent_of(local, dfs, parent)?;
        let class = class::of_id(cid, fs.container().pool())?;
        fs.mkdir(&dir, name, mode & 0o7777, class).await.map(|_| ())
    })
}

/// Removes a name: of a file or symbolic link, or of an empty directory; with `force` of a
/// directory with all below it. `*oid` (or NULL) gets what was removed. `ENOTEMPTY`.
///
/// # Safety
/// `name` is a C string; `oid` is NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_remove(
    dfs: *mut dfs_t,
    parent: *mut dfs_obj_t,
    name: *const c_char,
    force: bool,
    oid: *mut daos_obj_id_t,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let name = unsafe { guard::text(name) }?;
        let (_, fs, dir) = parent_of(local, dfs, parent)?;
        let was = if oid.is_null() { None } else { Some(fs.stat(&dir, name).await?.oid) };
        fs.remove(&dir, name, force).await?;
        tell(was, oid)
    })
}

/// Gives an entry another name, in place of what has it now; `*oid` (or NULL) gets what that was,
/// or 0. Always atomic; a move onto itself does nothing.
///
/// Errors are those of `rename(2)`: `EISDIR`, `ENOTDIR`, `ENOTEMPTY`, `EINVAL`.
///
/// # Safety
/// Names are C strings; `oid` is NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_move(
    dfs: *mut dfs_t,
    parent: *mut dfs_obj_t,
    name: *const c_char,
    new_parent: *mut dfs_obj_t,
    new_name: *const c_char,
    oid: *mut daos_obj_id_t,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let (name, new_name) = unsafe { (guard::text(name)?, guard::text(new_name)?) };
        let (_, fs, dir) = parent_of(local, dfs, parent)?;
        let (_, _, new_dir) = parent_of(local, dfs, new_parent)?;
        let replaced = if oid.is_null() {
            None
        } else {
            Some(replaced_by(&fs, &dir, name, &new_dir, new_name).await?)
        };
        fs.rename(&dir, name, &new_dir, new_name, RenameFlags::NONE).await?;
        tell(replaced, oid)
    })
}

/// What a rename will take the name from.
async fn replaced_by(
    fs: &Dfs,
    dir: &Obj,
    name: &[u8],
    new_dir: &Obj,
    new_name: &[u8],
) -> Result<Oid> {
    if dir.oid() == new_dir.oid() && name == new_name {
        return Ok(Oid::NIL);
    }
    match fs.stat(new_dir, new_name).await {
        Ok(stat) => Ok(stat.oid),
        Err(error) if error.code == Code::NonExist => Ok(Oid::NIL),
        Err(error) => Err(error),
    }
}

fn tell(what: Option<Oid>, oid: *mut daos_obj_id_t) -> Result<()> {
    match what {
        // SAFETY: the caller of the C function promised it.
        Some(what) => unsafe { guard::put(oid, id_of(what)) },
        None => Ok(()),
    }
}

/// Swaps two entries, atomically.
///
/// # Safety
/// Names are C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_exchange(
    dfs: *mut dfs_t,
    parent1: *mut dfs_obj_t,
    name1: *const c_char,
    parent2: *mut dfs_obj_t,
    name2: *const c_char,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let (name1, name2) = unsafe { (guard::text(name1)?, guard::text(name2)?) };
        let (_, fs, dir1) = parent_of(local, dfs, parent1)?;
        let (_, _, dir2) = parent_of(local, dfs, parent2)?;
        fs.rename(&dir1, name1, &dir2, name2, RenameFlags::EXCHANGE).await
    })
}

/// Tells an open object that its entry is now `name` in the directory that `src_obj`'s entry is
/// in: for callers that learn of a rename by other means.
///
/// # Safety
/// `name` is NULL (the name stays) or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_update_parent(
    obj: *mut dfs_obj_t,
    src_obj: *mut dfs_obj_t,
    name: *const c_char,
) -> i32 {
    now(async |local| {
        let from = ObjHandle::of(src_obj)?.shared();
        let here = ObjHandle::of(obj)?.here(local)?;
        let known = here.obj.share();
        let name = match name.is_null() {
            true => from.name().to_vec(),
            // SAFETY: the caller's promise.
            false => unsafe { guard::text(name) }?.to_vec(),
        };
        types::limits::check_name(&name)?;
        here.fs.refresh(&here.obj, &known.at(from.parent_oid(), &name));
        here.publish();
        Ok(())
    })
}

/// The object's id.
///
/// # Safety
/// `oid` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_obj2id(obj: *mut dfs_obj_t, oid: *mut daos_obj_id_t) -> i32 {
    guard::posix(|| {
        let found = handle::get::<ObjHandle>(cookie_of(obj)).map_err(bad_handle)?;
        if oid.is_null() {
            return Err(Error::inval("there is no place for the id"));
        }
        // SAFETY: the caller's promise.
        unsafe { guard::put(oid, id_of(found.shared().oid())) }
    })
}
