//! How files and directories are laid out: classes, chunk sizes, links' values.

use super::mount::MountHandle;
use super::names::id_of as oid_of;
use super::obj::ObjHandle;
use super::{class, dfs_obj_t, dfs_t, now};
use crate::ctypes::{daos_handle_t, daos_oclass_id_t, dfs_obj_info_t};
use crate::guard;
use ::dfs::LayoutChange;
use libc::{c_char, mode_t};
use types::{Code, Error, GroupCount, ObjClass, Result, Scheme};

/// How far something spreads, by a hint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hint {
    /// One target.
    Single,
    /// All targets.
    Max,
}

/// Hints for what is made in a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Hints {
    pub file: Option<Hint>,
    pub dir: Option<Hint>,
}

/// Reads "type:hint", several separated by commas: types `file`, `dir`, `directory`; hints
/// `single`, `max`. `Inval` for anything else.
pub(crate) fn hints_of(text: &str) -> Result<Hints> {
    let mut hints = Hints::default();
    let bad = || Error::inval(format!("'{text}' is no hint (example: file:max,dir:single)"));
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (kind, hint) = part.split_once(':').ok_or_else(bad)?;
        let hint = match hint.trim().to_ascii_lowercase().as_str() {
            "single" => Hint::Single,
            "max" => Hint::Max,
            _ => return Err(bad()),
        };
        match kind.trim().to_ascii_lowercase().as_str() {
            "file" => hints.file = Some(hint),
            "dir" | "directory" => hints.dir = Some(hint),
            _ => return Err(bad()),
        }
    }
    Ok(hints)
}

/// The class a hint leads to in a container of this redundancy factor.
pub(crate) fn class_of_hint(hint: Hint, rd_fac: u8) -> ObjClass {
    let groups = match hint {
        Hint::Single => GroupCount::Count(1),
        Hint::Max => GroupCount::All,
    };
    ObjClass { scheme: Scheme::Striped, groups }.at_least(rd_fac)
}

/// The class a hint ("file:max", "dir:single") leads to in this file system; with an empty hint
/// the one of new files.
///
/// # Safety
/// `hint` is a C string; `cid` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_suggest_oclass(
    dfs: *mut dfs_t,
    hint: *const c_char,
    cid: *mut daos_oclass_id_t,
) -> i32 {
    now(async |local| {
        let mount = MountHandle::of(dfs)?;
        // SAFETY: the caller's promise.
        let hints = hints_of(unsafe { guard::utf8(hint) }?)?;
        let rd_fac = mount.cont.info.props.rd_fac;
        let class = match hints.file.or(hints.dir) {
            Some(hint) => class_of_hint(hint, rd_fac),
            None => mount.mirror(local)?.fs.superblock().file_class,
        };
        // SAFETY: the caller's promise.
        unsafe { guard::put(cid, class::id_of(class)) }
    })
}

/// Class, chunk size and id of an open object; of a directory also the classes of what is made in
/// it.
///
/// # Safety
/// `info` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_obj_get_info(
    dfs: *mut dfs_t,
    obj: *mut dfs_obj_t,
    info: *mut dfs_obj_info_t,
) -> i32 {
    now(async |local| {
        let here = ObjHandle::of_mount(dfs, obj)?.here(local)?;
        let (known, superblock) = (here.obj.share(), *here.fs.superblock());
        let mut told = dfs_obj_info_t {
            doi_oclass_id: class::id_of(here.obj.class()?),
            doi_chunk_size: here.obj.chunk_bytes(),
            doi_dir_oclass_id: 0,
            doi_file_oclass_id: 0,
            doi_oid: oid_of(here.obj.oid()),
        };
        if here.obj.is_dir() {
            told.doi_dir_oclass_id =
                class::id_of(known.dir_class().unwrap_or(superblock.dir_class));
            told.doi_file_oclass_id =
                class::id_of(known.file_class().unwrap_or(superblock.file_class));
        }
        // SAFETY: the caller's promise.
        unsafe { guard::put(info, told) }
    })
}

/// Sets the class of the files and directories made in a directory from now on; 0 goes back to the
/// container's. `ENOTSUP` for anything but a directory.
///
/// # Safety
/// None is needed: handles are numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_obj_set_oclass(
    dfs: *mut dfs_t,
    obj: *mut dfs_obj_t,
    _flags: i32,
    cid: daos_oclass_id_t,
) -> i32 {
    now(async |local| {
        let here = ObjHandle::of_mount(dfs, obj)?.here(local)?;
        let class = class::of_id(cid, here.fs.container().pool())?;
        if !here.obj.is_dir() {
            return Err(Error::new(
                Code::NotSupported,
                "the class of a file is fixed when it is made",
            ));
        }
        let change = LayoutChange {
            file_class: Some(class),
            dir_class: Some(class),
            ..LayoutChange::default()
        };
        here.fs.change_layout(&here.obj, change).await?;
        here.publish();
        Ok(())
    })
}

/// Sets the chunk size, bytes, of files made in a directory from now on; 0 goes back to the
/// container's.
///
/// # Safety
/// None is needed: handles are numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_obj_set_chunk_size(
    dfs: *mut dfs_t,
    obj: *mut dfs_obj_t,
    _flags: i32,
    csize: u64,
) -> i32 {
    now(async |local| {
        let here = ObjHandle::of_mount(dfs, obj)?.here(local)?;
        if !here.obj.is_dir() {
            let text = "the chunk size of a file is fixed when it is made";
            return Err(Error::new(Code::NotSupported, text));
        }
        let change =
            LayoutChange { chunk_bytes: Some(super::chunk_of(csize)?), ..LayoutChange::default() };
        here.fs.change_layout(&here.obj, change).await?;
        here.publish();
        Ok(())
    })
}

/// Type and permission bits of an open object, as last read.
///
/// # Safety
/// `mode` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_get_mode(obj: *mut dfs_obj_t, mode: *mut mode_t) -> i32 {
    guard::posix(|| {
        let found = ObjHandle::of(obj)?.shared().mode();
        // SAFETY: the caller's promise.
        unsafe { guard::put(mode, found) }
    })
}

/// Chunk size of a regular file, bytes. `EINVAL` for anything else.
///
/// # Safety
/// `chunk_size` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_get_chunk_size(obj: *mut dfs_obj_t, chunk_size: *mut u64) -> i32 {
    now(async |local| {
        let here = ObjHandle::of(obj)?.here(local)?;
        if here.obj.kind() != ::dfs::FileKind::Regular {
            return Err(Error::inval("only regular files have a chunk size"));
        }
        // SAFETY: the caller's promise.
        unsafe { guard::put(chunk_size, here.obj.chunk_bytes()) }
    })
}

/// Where a symbolic link leads. `*size` is the room in `buf` and gets the length with the NUL;
/// a value that does not fit is cut. With `buf` NULL only the length is told.
///
/// # Safety
/// `buf` is NULL or has room for `*size` bytes; `size` is good for reading and writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_get_symlink_value(
    obj: *mut dfs_obj_t,
    buf: *mut c_char,
    size: *mut u64,
) -> i32 {
    now(async |local| {
        let here = ObjHandle::of(obj)?.here(local)?;
        let value = here.fs.readlink(&here.obj).await?;
        // SAFETY: the caller's promise.
        unsafe { put_text(&value, buf, size) }
    })
}

/// Gives a text to C, cut where it does not fit, with a NUL; `*size` gets the whole length with
/// the NUL.
///
/// # Safety
/// As for [`dfs_get_symlink_value`].
pub(crate) unsafe fn put_text(value: &[u8], buf: *mut c_char, size: *mut u64) -> Result<()> {
    // SAFETY: the caller's promise.
    let size = unsafe { size.as_mut() }.ok_or_else(guard::null)?;
    let room = usize::try_from(*size).unwrap_or(usize::MAX);
    *size = value.len() as u64 + 1;
    if !buf.is_null() && room > 0 {
        let count = value.len().min(room - 1);
        // SAFETY: the caller's promise: `count` and the NUL fit.
        unsafe {
            std::ptr::copy_nonoverlapping(value.as_ptr().cast(), buf, count);
            buf.add(count).write(0);
        }
    }
    Ok(())
}

/// The size of a file by its id, bytes, given its chunk size (0: the container's).
///
/// # Safety
/// `size` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_get_size_by_oid(
    dfs: *mut dfs_t,
    oid: crate::ctypes::daos_obj_id_t,
    chunk_size: u64,
    size: *mut u64,
) -> i32 {
    now(async |local| {
        if size.is_null() {
            return Err(guard::null());
        }
        let fs = MountHandle::of(dfs)?.mirror(local)?.fs.clone();
        let oid = types::Oid { hi: oid.hi, lo: oid.lo };
        let bytes = fs.size_of(oid, super::chunk_of(chunk_size)?).await?;
        // SAFETY: the caller's promise.
        unsafe { guard::put(size, bytes) }
    })
}

/// Files have no array handle of their own here: `ENOTSUP`.
///
/// # Safety
/// None is needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_get_file_oh(_obj: *mut dfs_obj_t, _oh: *mut daos_handle_t) -> i32 {
    libc::ENOTSUP
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_read_and_nonsense_is_refused() {
        let hints = hints_of("file:single,dir:max").unwrap();
        assert_eq!((hints.file, hints.dir), (Some(Hint::Single), Some(Hint::Max)));
        assert_eq!(hints_of("directory:single").unwrap().dir, Some(Hint::Single));
        assert_eq!(hints_of("").unwrap(), Hints::default());
        for bad in ["file", "file:", "file:huge", "tree:max"] {
            assert!(hints_of(bad).is_err(), "{bad}");
        }
        assert_eq!(class_of_hint(Hint::Max, 0), ObjClass::SX);
        assert_eq!(class_of_hint(Hint::Single, 2).to_string(), "RP_3G1");
    }

    #[test]
    fn texts_are_cut_to_their_room_and_their_length_is_told() {
        let mut room = [1 as c_char; 4];
        let mut size = 4;
        // SAFETY: the room is as large as said.
        unsafe {
            put_text(b"abcdef", room.as_mut_ptr(), &mut size).unwrap();
            assert_eq!((size, room[2], room[3]), (7, b'c' as c_char, 0));
            size = 0;
            put_text(b"abcdef", room.as_mut_ptr(), &mut size).unwrap();
            assert_eq!((size, room[0]), (7, b'a' as c_char));
            assert!(put_text(b"", room.as_mut_ptr(), std::ptr::null_mut()).is_err());
        }
    }
}
