//! Opening: by path, by name, again, by bytes from elsewhere.

use super::obj::{ObjHandle, parent_of};
use super::{attr, class, create_options, dfs_obj_t, dfs_t, now, open_flags};
use crate::guard;
use ::dfs::{Dfs, FileKind, Obj, OpenFlags};
use libc::{c_char, mode_t};
use types::{Code, Error, Result};

/// Opens what an absolute path names. Symbolic links are followed, with `O_NOFOLLOW` all but the
/// last. `mode` and `stbuf` may be NULL.
///
/// # Safety
/// `path` is a C string; results that are not NULL are good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_lookup(
    dfs: *mut dfs_t,
    path: *const c_char,
    flags: i32,
    obj: *mut *mut dfs_obj_t,
    mode: *mut mode_t,
    stbuf: *mut libc::stat,
) -> i32 {
    now(async |local| {
        if obj.is_null() {
            return Err(guard::null());
        }
        // SAFETY: the caller's promise.
        let path = unsafe { guard::text(path) }?;
        let (mount, fs, _) = parent_of(local, dfs, std::ptr::null())?;
        let found = fs.lookup(path, lookup_flags(flags)?).await?;
        empty_if_asked(&fs, &found, flags).await?;
        // SAFETY: the caller's promise.
        unsafe { tell(&fs, &found, mode, stbuf) }.await?;
        ObjHandle::give(local, &mount, found, obj)
    })
}

/// Opens what is called `name` in a directory; else as [`dfs_lookup`].
///
/// # Safety
/// `name` is a C string; results that are not NULL are good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_lookup_rel(
    dfs: *mut dfs_t,
    parent: *mut dfs_obj_t,
    name: *const c_char,
    flags: i32,
    obj: *mut *mut dfs_obj_t,
    mode: *mut mode_t,
    stbuf: *mut libc::stat,
) -> i32 {
    now(async |local| {
        if obj.is_null() {
            return Err(guard::null());
        }
        // SAFETY: the caller's promise.
        let name = unsafe { guard::text(name) }?;
        let (mount, fs, dir) = parent_of(local, dfs, parent)?;
        types::limits::check_name(name)?;
        let found = fs.lookup_rel(&dir, name, lookup_flags(flags)?).await?;
        empty_if_asked(&fs, &found, flags).await?;
        // SAFETY: the caller's promise.
        unsafe { tell(&fs, &found, mode, stbuf) }.await?;
        ObjHandle::give(local, &mount, found, obj)
    })
}

/// `O_TRUNC` with `O_RDWR` empties a file that was looked up.
async fn empty_if_asked(fs: &Dfs, found: &Obj, bits: i32) -> Result<()> {
    let writes = bits & libc::O_ACCMODE != libc::O_RDONLY;
    if bits & libc::O_TRUNC != 0 && writes && found.kind() == FileKind::Regular {
        fs.punch(found, 0, u64::MAX).await?;
    }
    Ok(())
}

/// A lookup makes nothing, and opens a symbolic link it does not follow.
fn lookup_flags(bits: i32) -> Result<OpenFlags> {
    let changing = OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::TRUNC;
    Ok(open_flags(bits)?.without(changing) | OpenFlags::LINK)
}

/// # Safety
/// Pointers that are not NULL are good for writing.
async unsafe fn tell(fs: &Dfs, obj: &Obj, mode: *mut mode_t, stbuf: *mut libc::stat) -> Result<()> {
    if !mode.is_null() {
        // SAFETY: the caller's promise.
        unsafe { mode.write(obj.mode()) };
    }
    if !stbuf.is_null() {
        let stat = attr::stat_of(&fs.ostat(obj).await?);
        // SAFETY: the caller's promise.
        unsafe { stbuf.write(stat) };
    }
    Ok(())
}

/// Opens, or with `O_CREAT` makes, what is called `name` in a directory (NULL: the root). The type
/// bits of `mode` say what: a file, a directory, or a symbolic link to `value`. Class and chunk
/// size (0: the directory's, then the container's) matter only for what is new.
///
/// Errors: `EEXIST` with `O_EXCL`; `EINVAL` when what is there is something else; `ENOENT`.
///
/// # Safety
/// `name` is a C string, `value` too or NULL; `obj` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_open(
    dfs: *mut dfs_t,
    parent: *mut dfs_obj_t,
    name: *const c_char,
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
        let name = unsafe { guard::text(name) }?;
        // SAFETY: the caller's promise.
        let value = if value.is_null() { None } else { Some(unsafe { guard::text(value) }?) };
        let (mount, fs, dir) = parent_of(local, dfs, parent)?;
        let what = Wanted { mode, flags: open_flags(flags)?, cid, chunk_size, value };
        let opened = open(&fs, &dir, name, &what).await?;
        ObjHandle::give(local, &mount, opened, obj)
    })
}

/// What `dfs_open` is asked for.
pub(crate) struct Wanted<'a> {
    pub mode: mode_t,
    pub flags: OpenFlags,
    pub cid: u32,
    pub chunk_size: u64,
    pub value: Option<&'a [u8]>,
}

/// [`dfs_open`].
pub(crate) async fn open(fs: &Dfs, dir: &Obj, name: &[u8], what: &Wanted<'_>) -> Result<Obj> {
    let kind = FileKind::from_mode(what.mode)
        .ok_or_else(|| Error::inval(format!("mode {:#o} says no type", what.mode)))?;
    let (creates, excl) = (what.flags.has(OpenFlags::CREATE), what.flags.has(OpenFlags::EXCL));
    let existing = what.flags.without(OpenFlags::CREATE | OpenFlags::EXCL)
        | OpenFlags::NOFOLLOW
        | OpenFlags::LINK;
    let opened = match kind {
        FileKind::Regular => {
            let options = create_options(fs, what.cid, what.chunk_size)?;
            let flags = what.flags | OpenFlags::NOFOLLOW | OpenFlags::LINK;
            let opened = fs.open(dir, name, flags, what.mode & 0o7777, &options).await;
            opened.map_err(|error| match error.code {
                Code::IsDir => Error::inval("the name is a directory's"),
                _ => error,
            })?
        }
        FileKind::Directory | FileKind::Symlink => {
            let made = match kind {
                _ if !creates => None,
                FileKind::Directory => {
                    let class = class::of_id(what.cid, fs.container().pool())?;
                    Some(fs.mkdir(dir, name, what.mode & 0o7777, class).await)
                }
                _ => {
                    let target = what.value.ok_or_else(guard::null)?;
                    Some(fs.symlink(dir, name, target).await)
                }
            };
            match made {
                Some(Err(error)) if error.code == Code::Exist && !excl => {
                    fs.lookup_rel(dir, name, existing.without(OpenFlags::TRUNC)).await?
                }
                Some(made) => made?,
                None => {
                    types::limits::check_name(name)?;
                    fs.lookup_rel(dir, name, existing.without(OpenFlags::TRUNC)).await?
                }
            }
        }
        _ => return Err(Error::new(Code::NotSupported, "special files are made with mknod")),
    };
    if opened.kind() != kind {
        return Err(Error::inval("the name is that of something else than asked for"));
    }
    Ok(opened)
}

/// Opens an open object once more, with flags of its own.
///
/// # Safety
/// `new_obj` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_dup(
    dfs: *mut dfs_t,
    obj: *mut dfs_obj_t,
    flags: i32,
    new_obj: *mut *mut dfs_obj_t,
) -> i32 {
    now(async |local| {
        if new_obj.is_null() {
            return Err(guard::null());
        }
        let flags = lookup_flags(flags)?;
        let handle = ObjHandle::of_mount(dfs, obj)?;
        let (mount, is_home) = (handle.mount.clone(), handle.is_home(local));
        let here = handle.here(local)?;
        let again = if is_home {
            here.obj.dup(flags)
        } else {
            // The servers count handles by client: this one needs its own.
            here.fs.obj_from_global(&here.fs.obj_to_global(&here.obj), Some(flags)).await?
        };
        ObjHandle::give(local, &mount, again, new_obj)
    })
}
