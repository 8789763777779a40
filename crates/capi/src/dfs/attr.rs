//! Attributes: stat, access, chmod, chown, osetattr.

use super::obj::{Here, ObjHandle, parent_of};
use super::{dfs_obj_t, dfs_t, now};
use crate::ctx::Local;
use crate::guard;
use ::dfs::{Access, Credentials, Dfs, Obj, OpenFlags, SetAttr, SetTime, Stat};
use libc::{c_char, gid_t, mode_t, uid_t};
use types::{Code, Error, Result};

const NS_PER_S: i64 = 1_000_000_000;

/// `DFS_SET_ATTR_*`.
const SET_MODE: i32 = 1;
const SET_ATIME: i32 = 1 << 1;
const SET_MTIME: i32 = 1 << 2;
const SET_SIZE: i32 = 1 << 3;
const SET_UID: i32 = 1 << 4;
const SET_GID: i32 = 1 << 5;

/// Attributes as C has them.
pub(crate) fn stat_of(stat: &Stat) -> libc::stat {
    // SAFETY: all of its members are integers.
    let mut out: libc::stat = unsafe { std::mem::zeroed() };
    out.st_ino = stat.ino;
    out.st_mode = stat.mode;
    out.st_nlink = stat.nlink as _;
    out.st_uid = stat.uid;
    out.st_gid = stat.gid;
    out.st_rdev = stat.rdev;
    out.st_size = stat.size as i64;
    out.st_blksize = stat.chunk_bytes.max(4096) as _;
    out.st_blocks = stat.stored_bytes.div_ceil(512) as i64;
    let split = |ns: i64| (ns.div_euclid(NS_PER_S), ns.rem_euclid(NS_PER_S));
    (out.st_atime, out.st_atime_nsec) = split(stat.atime_ns);
    (out.st_mtime, out.st_mtime_nsec) = split(stat.mtime_ns);
    (out.st_ctime, out.st_ctime_nsec) = split(stat.ctime_ns);
    out
}

/// A time of C's, nanoseconds since 1970. `Inval` beyond what fits.
pub(crate) fn ns_of(seconds: i64, nanoseconds: i64) -> Result<i64> {
    let ns = seconds.checked_mul(NS_PER_S).and_then(|ns| ns.checked_add(nanoseconds));
    ns.filter(|_| (0..NS_PER_S).contains(&nanoseconds))
        .ok_or_else(|| Error::inval("the time is out of range"))
}

/// What to change, from a `struct stat` and `DFS_SET_ATTR_*`.
pub(crate) fn set_of(stat: &libc::stat, flags: i32) -> Result<SetAttr> {
    let known = SET_MODE | SET_ATIME | SET_MTIME | SET_SIZE | SET_UID | SET_GID;
    if flags & !known != 0 {
        return Err(Error::inval(format!("unknown bits in the flags {flags:#x}")));
    }
    let has = |bit: i32| flags & bit != 0;
    let mut set = SetAttr {
        mode: has(SET_MODE).then_some(stat.st_mode),
        uid: has(SET_UID).then_some(stat.st_uid),
        gid: has(SET_GID).then_some(stat.st_gid),
        ..SetAttr::default()
    };
    if has(SET_SIZE) {
        let size = u64::try_from(stat.st_size);
        set.size = Some(size.map_err(|_| Error::inval("the size is negative"))?);
    }
    if has(SET_ATIME) {
        set.atime = Some(SetTime::At(ns_of(stat.st_atime, stat.st_atime_nsec)?));
    }
    if has(SET_MTIME) {
        set.mtime = Some(SetTime::At(ns_of(stat.st_mtime, stat.st_mtime_nsec)?));
    }
    Ok(set)
}

/// What a (directory, name) of C's means.
pub(crate) enum Entry<'a> {
    /// No name: the directory, which must be the root, itself.
    Root(Obj),
    /// A name in a directory.
    Named(Obj, &'a [u8]),
}

/// The file system and what (directory, name) means in it.
///
/// # Safety
/// `name` is NULL or a C string that outlives `'a`.
pub(crate) unsafe fn entry_of<'a>(
    local: &Local,
    dfs: *const dfs_t,
    parent: *const dfs_obj_t,
    name: *const c_char,
) -> Result<(Dfs, Entry<'a>)> {
    let (_, fs, dir) = parent_of(local, dfs, parent)?;
    if !name.is_null() {
        // SAFETY: the caller's promise.
        let name = unsafe { guard::text(name) }?;
        return Ok((fs, Entry::Named(dir, name)));
    }
    if dir.oid() != fs.superblock().root {
        return Err(Error::inval("without a name only the root can be meant"));
    }
    Ok((fs, Entry::Root(dir)))
}

/// An entry opened to be named, symbolic links followed or not.
async fn object_of(fs: &Dfs, entry: &Entry<'_>, follow: bool) -> Result<Obj> {
    match entry {
        Entry::Root(root) => Ok(root.clone()),
        Entry::Named(dir, name) => {
            types::limits::check_name(name)?;
            let nofollow = if follow { OpenFlags::NONE } else { OpenFlags::NOFOLLOW };
            fs.lookup_rel(dir, name, OpenFlags::PATH | nofollow).await
        }
    }
}

/// Attributes of an entry; symbolic links are not followed. NULL for `name` means the root.
///
/// # Safety
/// `name` is NULL or a C string; `stbuf` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_stat(
    dfs: *mut dfs_t,
    parent: *mut dfs_obj_t,
    name: *const c_char,
    stbuf: *mut libc::stat,
) -> i32 {
    now(async |local| {
        if stbuf.is_null() {
            return Err(guard::null());
        }
        // SAFETY: the caller's promise.
        let stat = match unsafe { entry_of(local, dfs, parent, name) }? {
            (fs, Entry::Root(root)) => fs.ostat(&root).await?,
            (fs, Entry::Named(dir, name)) => fs.stat(&dir, name).await?,
        };
        // SAFETY: the caller's promise.
        unsafe { guard::put(stbuf, stat_of(&stat)) }
    })
}

/// Attributes of an open object.
///
/// # Safety
/// `stbuf` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_ostat(
    dfs: *mut dfs_t,
    obj: *mut dfs_obj_t,
    stbuf: *mut libc::stat,
) -> i32 {
    now(async |local| {
        if stbuf.is_null() {
            return Err(guard::null());
        }
        let Here { fs, obj, .. } = ObjHandle::of_mount(dfs, obj)?.here(local)?;
        let stat = fs.ostat(&obj).await?;
        // SAFETY: the caller's promise.
        unsafe { guard::put(stbuf, stat_of(&stat)) }
    })
}

/// Changes those attributes of an open object that `flags` (`DFS_SET_ATTR_*`) name, and fills
/// `stbuf` with what all are now. A size needs an object opened for writing (`EPERM`); an mtime
/// given with it stays.
///
/// # Safety
/// `stbuf` is good for reading and writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_osetattr(
    dfs: *mut dfs_t,
    obj: *mut dfs_obj_t,
    stbuf: *mut libc::stat,
    flags: i32,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let stat = unsafe { stbuf.as_mut() }.ok_or_else(guard::null)?;
        let set = set_of(stat, flags)?;
        let here = ObjHandle::of_mount(dfs, obj)?.here(local)?;
        if set.size.is_some() && !here.obj.flags().has(OpenFlags::WRITE) {
            return Err(Error::new(Code::NoPerm, "the object is not open for writing"));
        }
        let now = here.fs.setattr(&here.obj, &set).await?;
        here.publish();
        *stat = stat_of(&now);
        Ok(())
    })
}

/// Whether the process's real user may do all of `mask` (`R_OK`, `W_OK`, `X_OK`, or `F_OK`) with
/// an entry, by its mode bits; symbolic links are followed. `EACCES` when not.
///
/// # Safety
/// `name` is NULL (for the root) or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_access(
    dfs: *mut dfs_t,
    parent: *mut dfs_obj_t,
    name: *const c_char,
    mask: i32,
) -> i32 {
    now(async |local| {
        let want = access_of(mask)?;
        // SAFETY: the caller's promise.
        let (fs, entry) = unsafe { entry_of(local, dfs, parent, name) }?;
        let obj = object_of(&fs, &entry, true).await?;
        fs.oaccess_as(&obj, want, &real_user())
    })
}

/// The bits of `access(2)`.
pub(crate) fn access_of(mask: i32) -> Result<Access> {
    if mask & !(libc::R_OK | libc::W_OK | libc::X_OK) != 0 {
        return Err(Error::inval(format!("{mask:#x} is no access mask")));
    }
    Ok(Access(mask as u32))
}

/// The real user of the process, with all groups.
pub(crate) fn real_user() -> Credentials {
    // SAFETY: these calls cannot fail and touch no memory.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    let mut credentials = Credentials::new(uid, gid);
    // SAFETY: a count of 0 asks only for the number.
    let count = unsafe { libc::getgroups(0, std::ptr::null_mut()) };
    let mut groups = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: the list has room for as many.
    let count = unsafe { libc::getgroups(groups.len() as i32, groups.as_mut_ptr()) };
    groups.truncate(usize::try_from(count).unwrap_or(0));
    credentials.groups = groups;
    credentials
}

/// Changes permission bits; symbolic links are followed.
///
/// # Safety
/// `name` is NULL (for the root) or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_chmod(
    dfs: *mut dfs_t,
    parent: *mut dfs_obj_t,
    name: *const c_char,
    mode: mode_t,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let (fs, entry) = unsafe { entry_of(local, dfs, parent, name) }?;
        let obj = object_of(&fs, &entry, true).await?;
        fs.setattr(&obj, &SetAttr { mode: Some(mode), ..SetAttr::default() }).await.map(|_| ())
    })
}

/// Changes owner and group; -1 leaves one alone. Symbolic links are followed unless `flags` has
/// `O_NOFOLLOW`.
///
/// # Safety
/// `name` is NULL (for the root) or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_chown(
    dfs: *mut dfs_t,
    parent: *mut dfs_obj_t,
    name: *const c_char,
    uid: uid_t,
    gid: gid_t,
    flags: i32,
) -> i32 {
    now(async |local| {
        let kept = |id: u32| Some(id).filter(|id| *id != u32::MAX);
        // SAFETY: the caller's promise.
        let (fs, entry) = unsafe { entry_of(local, dfs, parent, name) }?;
        let obj = object_of(&fs, &entry, flags & libc::O_NOFOLLOW == 0).await?;
        let set = SetAttr { uid: kept(uid), gid: kept(gid), ..SetAttr::default() };
        fs.setattr(&obj, &set).await.map(|_| ())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_split_and_join_before_1970_too() {
        for ns in [0, 1, -1, 1_500_000_000, -1_500_000_000, i64::MAX, i64::MIN + NS_PER_S] {
            let (seconds, rest) = (ns.div_euclid(NS_PER_S), ns.rem_euclid(NS_PER_S));
            if ns > i64::MIN + NS_PER_S {
                assert_eq!(ns_of(seconds, rest).unwrap(), ns);
            }
        }
        assert!(ns_of(i64::MAX, 0).is_err());
        assert!(ns_of(0, -1).is_err());
        assert!(ns_of(0, NS_PER_S).is_err());
    }

    #[test]
    fn only_named_attributes_change() {
        // SAFETY: all members are integers.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        stat.st_size = -1;
        stat.st_mode = 0o644;
        let set = set_of(&stat, SET_MODE).unwrap();
        assert_eq!((set.mode, set.uid, set.size), (Some(0o644), None, None));
        assert!(set_of(&stat, SET_SIZE).is_err());
        assert!(set_of(&stat, 1 << 20).is_err());
    }
}
