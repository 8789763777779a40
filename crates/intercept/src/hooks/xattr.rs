//! Extended attributes.

use super::finish;
use crate::act::{self, Answer};
use crate::path::{self, Spot};
use crate::report::Family;
use crate::{errno, real, table};
use dfs::{Dfs, Obj, OpenFlags, XattrMode, acl};
use libc::{AT_FDCWD, c_char, c_int, c_void, size_t, ssize_t};
use preload::hook;
use types::{Code, Error, Result};

hook!([setxattr](
    path: *const c_char, name: *const c_char, value: *const c_void, bytes: size_t, flags: c_int
) -> c_int {
    match path::locate_end(AT_FDCWD, path, true) {
        None => real::setxattr(path, name, value, bytes, flags),
        Some(spot) => finish(set_at(&spot, true, name, value, bytes, flags), |path| {
            real::setxattr(path, name, value, bytes, flags)
        }),
    }
});

hook!([lsetxattr](
    path: *const c_char, name: *const c_char, value: *const c_void, bytes: size_t, flags: c_int
) -> c_int {
    match path::locate(AT_FDCWD, path) {
        None => real::lsetxattr(path, name, value, bytes, flags),
        Some(spot) => finish(set_at(&spot, false, name, value, bytes, flags), |path| {
            real::lsetxattr(path, name, value, bytes, flags)
        }),
    }
});

hook!([fsetxattr](
    fd: c_int, name: *const c_char, value: *const c_void, bytes: size_t, flags: c_int
) -> c_int {
    let Some(open) = table::get(fd) else {
        return real::fsetxattr(fd, name, value, bytes, flags);
    };
    let set = match arguments(name, value, bytes, flags) {
        Err(error) => Err(error),
        Ok((name, value, mode)) => act::run(Family::Xattr, &open, async |fs, obj| {
            usable(obj)?;
            set(fs, obj, name, value, mode).await
        }),
    };
    errno::zero(set)
});

hook!([getxattr](
    path: *const c_char, name: *const c_char, out: *mut c_void, bytes: size_t
) -> ssize_t {
    match path::locate_end(AT_FDCWD, path, true) {
        None => real::getxattr(path, name, out, bytes),
        Some(spot) => finish(get_at(&spot, true, name, out, bytes), |path| {
            real::getxattr(path, name, out, bytes)
        }),
    }
});

hook!([lgetxattr](
    path: *const c_char, name: *const c_char, out: *mut c_void, bytes: size_t
) -> ssize_t {
    match path::locate(AT_FDCWD, path) {
        None => real::lgetxattr(path, name, out, bytes),
        Some(spot) => finish(get_at(&spot, false, name, out, bytes), |path| {
            real::lgetxattr(path, name, out, bytes)
        }),
    }
});

hook!([fgetxattr](fd: c_int, name: *const c_char, out: *mut c_void, bytes: size_t) -> ssize_t {
    let Some(open) = table::get(fd) else { return real::fgetxattr(fd, name, out, bytes) };
    let Some(name) = path::bytes(name) else { return errno::number(Err(libc::EFAULT)) };
    let got = act::run(Family::Xattr, &open, async |fs, obj| {
        usable(obj)?;
        fs.getxattr(obj, name).await
    });
    errno::number(got.and_then(|value| hand_over(&value, out, bytes)))
});

hook!([listxattr](path: *const c_char, out: *mut c_char, bytes: size_t) -> ssize_t {
    match path::locate_end(AT_FDCWD, path, true) {
        None => real::listxattr(path, out, bytes),
        Some(spot) => finish(list_at(&spot, true, out, bytes), |path| {
            real::listxattr(path, out, bytes)
        }),
    }
});

hook!([llistxattr](path: *const c_char, out: *mut c_char, bytes: size_t) -> ssize_t {
    match path::locate(AT_FDCWD, path) {
        None => real::llistxattr(path, out, bytes),
        Some(spot) => finish(list_at(&spot, false, out, bytes), |path| {
            real::llistxattr(path, out, bytes)
        }),
    }
});

hook!([flistxattr](fd: c_int, out: *mut c_char, bytes: size_t) -> ssize_t {
    let Some(open) = table::get(fd) else { return real::flistxattr(fd, out, bytes) };
    let names = act::run(Family::Xattr, &open, async |fs, obj| {
        usable(obj)?;
        names(fs, obj).await
    });
    errno::number(names.and_then(|names| hand_over(&names, out.cast(), bytes)))
});

hook!([removexattr](path: *const c_char, name: *const c_char) -> c_int {
    match path::locate_end(AT_FDCWD, path, true) {
        None => real::removexattr(path, name),
        Some(spot) => {
            finish(remove_at(&spot, true, name), |path| real::removexattr(path, name))
        }
    }
});

hook!([lremovexattr](path: *const c_char, name: *const c_char) -> c_int {
    match path::locate(AT_FDCWD, path) {
        None => real::lremovexattr(path, name),
        Some(spot) => {
            finish(remove_at(&spot, false, name), |path| real::lremovexattr(path, name))
        }
    }
});

hook!([fremovexattr](fd: c_int, name: *const c_char) -> c_int {
    let Some(open) = table::get(fd) else { return real::fremovexattr(fd, name) };
    let Some(name) = path::bytes(name) else { return errno::zero(Err(libc::EFAULT)) };
    let removed = act::run(Family::Xattr, &open, async |fs, obj| {
        usable(obj)?;
        fs.removexattr(obj, name).await
    });
    errno::zero(removed)
});

/// A descriptor that only names a file does not reach its attributes.
fn usable(obj: &Obj) -> Result<()> {
    if obj.flags().has(OpenFlags::PATH) { Err(Error::bare(Code::BadHandle)) } else { Ok(()) }
}

/// What a call that sets was given.
///
/// # Safety
/// A string, and so many bytes.
unsafe fn arguments<'a>(
    name: *const c_char,
    value: *const c_void,
    bytes: size_t,
    flags: c_int,
) -> std::result::Result<(&'a [u8], &'a [u8], XattrMode), c_int> {
    // SAFETY: by the caller's promise.
    let name = unsafe { path::bytes(name) }.ok_or(libc::EFAULT)?;
    let value = match bytes {
        0 => &[][..],
        _ if value.is_null() => return Err(libc::EFAULT),
        // SAFETY: by the caller's promise.
        bytes => unsafe { std::slice::from_raw_parts(value.cast(), bytes) },
    };
    let mode = match flags {
        0 => XattrMode::Set,
        libc::XATTR_CREATE => XattrMode::Create,
        libc::XATTR_REPLACE => XattrMode::Replace,
        _ => return Err(libc::EINVAL),
    };
    Ok((name, value, mode))
}

/// Sets an attribute, and what goes with it.
async fn set(fs: &Dfs, obj: &Obj, name: &[u8], value: &[u8], how: XattrMode) -> Result<()> {
    if name == acl::ACCESS {
        return fs.set_access_acl(obj, obj.mode(), value, how).await;
    }
    fs.setxattr(obj, name, value, how).await
}

/// # Safety
/// As for [`arguments`].
unsafe fn set_at(
    spot: &Spot,
    follow: bool,
    name: *const c_char,
    value: *const c_void,
    bytes: size_t,
    flags: c_int,
) -> std::result::Result<Answer<c_int>, c_int> {
    // SAFETY: by the caller's promise.
    let (name, value, mode) = unsafe { arguments(name, value, bytes, flags) }?;
    act::on(Family::Xattr, spot, follow, async |scene, obj| {
        set(&scene.fs, obj, name, value, mode).await.map(|()| 0)
    })
}

/// Copies a value into the caller's room, or tells how much it needs.
fn hand_over(value: &[u8], out: *mut c_void, bytes: size_t) -> std::result::Result<ssize_t, c_int> {
    if bytes == 0 {
        return Ok(value.len() as ssize_t);
    }
    if value.len() > bytes {
        return Err(libc::ERANGE);
    }
    // SAFETY: the C function's caller gives room for so many bytes.
    unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), out.cast(), value.len()) };
    Ok(value.len() as ssize_t)
}

fn handed(
    answer: std::result::Result<Answer<Vec<u8>>, c_int>,
    out: *mut c_void,
    bytes: size_t,
) -> std::result::Result<Answer<ssize_t>, c_int> {
    Ok(match answer? {
        Answer::Done(value) => Answer::Done(hand_over(&value, out, bytes)?),
        Answer::Outside(path) => Answer::Outside(path),
    })
}

/// # Safety
/// A string, and room.
unsafe fn get_at(
    spot: &Spot,
    follow: bool,
    name: *const c_char,
    out: *mut c_void,
    bytes: size_t,
) -> std::result::Result<Answer<ssize_t>, c_int> {
    // SAFETY: by the caller's promise.
    let name = unsafe { path::bytes(name) }.ok_or(libc::EFAULT)?;
    let got =
        act::on(Family::Xattr, spot, follow, async |scene, obj| scene.fs.getxattr(obj, name).await);
    handed(got, out, bytes)
}

/// Names, each with a zero at its end.
async fn names(fs: &Dfs, obj: &Obj) -> Result<Vec<u8>> {
    let names = fs.listxattr(obj).await?;
    Ok(names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect())
}

fn list_at(
    spot: &Spot,
    follow: bool,
    out: *mut c_char,
    bytes: size_t,
) -> std::result::Result<Answer<ssize_t>, c_int> {
    let list = act::on(Family::Xattr, spot, follow, async |scene, obj| names(&scene.fs, obj).await);
    handed(list, out.cast(), bytes)
}

/// # Safety
/// A string.
unsafe fn remove_at(
    spot: &Spot,
    follow: bool,
    name: *const c_char,
) -> std::result::Result<Answer<c_int>, c_int> {
    // SAFETY: by the caller's promise.
    let name = unsafe { path::bytes(name) }.ok_or(libc::EFAULT)?;
    act::on(Family::Xattr, spot, follow, async |scene, obj| {
        scene.fs.removexattr(obj, name).await.map(|()| 0)
    })
}
