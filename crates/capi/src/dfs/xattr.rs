//! Extended attributes.

use super::obj::ObjHandle;
use super::{dfs_obj_t, dfs_t, now};
use crate::guard;
use ::dfs::XattrMode;
use libc::{c_char, c_void};
use types::{Code, Error, Result};

/// The mode in flags of `setxattr(2)`.
pub(crate) fn mode_of(flags: i32) -> Result<XattrMode> {
    match flags {
        0 => Ok(XattrMode::Set),
        libc::XATTR_CREATE => Ok(XattrMode::Create),
        libc::XATTR_REPLACE => Ok(XattrMode::Replace),
        _ => Err(Error::inval(format!("{flags:#x} is neither XATTR_CREATE nor XATTR_REPLACE"))),
    }
}

/// The bytes of a value from C.
///
/// # Safety
/// `value` is NULL or `size` bytes that outlive `'a`.
pub(crate) unsafe fn value_of<'a>(value: *const c_void, size: u64) -> Result<&'a [u8]> {
    if size == 0 {
        return Ok(&[]);
    }
    let bytes = usize::try_from(size).ok().filter(|bytes| *bytes <= isize::MAX as usize);
    match bytes {
        Some(bytes) if !value.is_null() => {
            // SAFETY: not NULL, and the caller's promise.
            Ok(unsafe { std::slice::from_raw_parts(value.cast(), bytes) })
        }
        _ => Err(guard::null()),
    }
}

/// Gives a value to C; `*size` is the room and gets the length. With room 0 (or no buffer) only
/// the length is told; `Range` when the value does not fit.
///
/// # Safety
/// `value` is NULL or has room for `*size` bytes; `size` is good for reading and writing.
pub(crate) unsafe fn put_value(found: &[u8], value: *mut c_void, size: *mut u64) -> Result<()> {
    // SAFETY: the caller's promise.
    let size = unsafe { size.as_mut() }.ok_or_else(guard::null)?;
    let room = if value.is_null() { 0 } else { *size };
    *size = found.len() as u64;
    if room == 0 {
        return Ok(());
    }
    if room < found.len() as u64 {
        return Err(Error::bare(Code::Range));
    }
    // SAFETY: the caller's promise; it fits.
    unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), value.cast(), found.len()) };
    Ok(())
}

/// Sets an extended attribute. `flags`: 0, `XATTR_CREATE` (`EEXIST`), `XATTR_REPLACE` (`ENODATA`).
///
/// # Safety
/// `name` is a C string, `value` `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_setxattr(
    dfs: *mut dfs_t,
    obj: *mut dfs_obj_t,
    name: *const c_char,
    value: *const c_void,
    size: u64,
    flags: i32,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let (name, value) = unsafe { (guard::text(name)?, value_of(value, size)?) };
        let here = ObjHandle::of_mount(dfs, obj)?.here(local)?;
        here.fs.setxattr(&here.obj, name, value, mode_of(flags)?).await
    })
}

/// The value of an extended attribute. `*size` is the room in `value` and gets the length; room 0
/// only asks for it. `ENODATA`; `ERANGE` when it does not fit.
///
/// # Safety
/// `name` is a C string; `value` is NULL or has room for `*size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_getxattr(
    dfs: *mut dfs_t,
    obj: *mut dfs_obj_t,
    name: *const c_char,
    value: *mut c_void,
    size: *mut u64,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let name = unsafe { guard::text(name) }?;
        let here = ObjHandle::of_mount(dfs, obj)?.here(local)?;
        let found = here.fs.getxattr(&here.obj, name).await?;
        // SAFETY: the caller's promise.
        unsafe { put_value(&found, value, size) }
    })
}

/// Removes an extended attribute. `ENODATA`.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_removexattr(
    dfs: *mut dfs_t,
    obj: *mut dfs_obj_t,
    name: *const c_char,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let name = unsafe { guard::text(name) }?;
        let here = ObjHandle::of_mount(dfs, obj)?.here(local)?;
        here.fs.removexattr(&here.obj, name).await
    })
}

/// Names of all extended attributes, each with its NUL. `*size` is the room in `list` and gets the
/// bytes of all names; room 0 only asks for them. `ERANGE` when they do not fit.
///
/// # Safety
/// `list` is NULL or has room for `*size` bytes; `size` is good for reading and writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_listxattr(
    dfs: *mut dfs_t,
    obj: *mut dfs_obj_t,
    list: *mut c_char,
    size: *mut u64,
) -> i32 {
    now(async |local| {
        let here = ObjHandle::of_mount(dfs, obj)?.here(local)?;
        let names = here.fs.listxattr(&here.obj).await?;
        // SAFETY: the caller's promise.
        unsafe { put_value(&joined(names), list.cast(), size) }
    })
}

/// Names one after the other, each with a NUL.
pub(crate) fn joined(names: Vec<Vec<u8>>) -> Vec<u8> {
    let mut all = Vec::new();
    for name in names {
        all.extend_from_slice(&name);
        all.push(0);
    }
    all
}
