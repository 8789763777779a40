//! The `stat` family, `statfs`, and `access`.

use super::finish;
use crate::act::{self, Answer, Step};
use crate::config::Prefix;
use crate::path::{self, Spot};
use crate::report::Family;
use crate::walk::End;
use crate::{caller, errno, real, table};
use dfs::{Access, FileKind, Stat};
use libc::{AT_FDCWD, c_char, c_int, c_uint};
use preload::hook;
use types::{Code, Error};

hook!([stat stat64](path: *const c_char, out: *mut libc::stat) -> c_int {
    match path::locate_end(AT_FDCWD, path, true) {
        None => real::stat64(path, out),
        Some(spot) => put(&spot, true, out, |path| real::stat64(path, out)),
    }
});

hook!([lstat lstat64](path: *const c_char, out: *mut libc::stat) -> c_int {
    match path::locate(AT_FDCWD, path) {
        None => real::lstat64(path, out),
        Some(spot) => put(&spot, false, out, |path| real::lstat64(path, out)),
    }
});

hook!([fstat fstat64](fd: c_int, out: *mut libc::stat) -> c_int {
    match table::get(fd) {
        None => real::fstat64(fd, out),
        Some(open) => {
            let found = of_open(&open).map(|found| *out = posix(open.prefix, &found));
            errno::zero(found)
        }
    }
});

hook!([fstatat fstatat64](
    dir: c_int, path: *const c_char, out: *mut libc::stat, flags: c_int
) -> c_int {
    if table::is_ours(dir) && is_empty(path) && flags & libc::AT_EMPTY_PATH != 0 {
        return fstat(dir, out);
    }
    let follows = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    match path::locate_end(dir, path, follows) {
        None => real::fstatat64(dir, path, out, flags),
        Some(spot) => put(&spot, follows, out, |path| {
            real::fstatat64(AT_FDCWD, path, out, flags)
        }),
    }
});

hook!([__xstat __xstat64](version: c_int, path: *const c_char, out: *mut libc::stat) -> c_int {
    match path::locate_end(AT_FDCWD, path, true) {
        None => real::__xstat64(version, path, out),
        Some(_) => stat(path, out),
    }
});

hook!([__lxstat __lxstat64](version: c_int, path: *const c_char, out: *mut libc::stat) -> c_int {
    match path::locate(AT_FDCWD, path) {
        None => real::__lxstat64(version, path, out),
        Some(_) => lstat(path, out),
    }
});

hook!([__fxstat __fxstat64](version: c_int, fd: c_int, out: *mut libc::stat) -> c_int {
    if table::is_ours(fd) { fstat(fd, out) } else { real::__fxstat64(version, fd, out) }
});

hook!([__fxstatat __fxstatat64](
    version: c_int, dir: c_int, path: *const c_char, out: *mut libc::stat, flags: c_int
) -> c_int {
    if table::is_ours(dir) || path::locate_end(dir, path, flags & libc::AT_SYMLINK_NOFOLLOW == 0).is_some() {
        return fstatat(dir, path, out, flags);
    }
    real::__fxstatat64(version, dir, path, out, flags)
});

hook!([statx](
    dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, out: *mut libc::statx
) -> c_int {
    if let Some(open) = table::get(dir)
        && is_empty(path)
        && flags & libc::AT_EMPTY_PATH != 0
    {
        let found = of_open(&open).map(|found| *out = extended(open.prefix, &found));
        return errno::zero(found);
    }
    let follows = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    match path::locate_end(dir, path, follows) {
        None => real::statx(dir, path, flags, mask, out),
        Some(spot) => {
            let found = find(&spot, follows);
            let found = done(found, |found| *out = extended(spot.prefix, &found));
            finish(found, |path| real::statx(AT_FDCWD, path, flags, mask, out))
        }
    }
});

hook!([statfs statfs64](path: *const c_char, out: *mut libc::statfs) -> c_int {
    match path::locate_end(AT_FDCWD, path, true) {
        None => real::statfs64(path, out),
        Some(spot) => finish(done(space_at(&spot), |found| *out = found), |path| {
            real::statfs64(path, out)
        }),
    }
});

hook!([fstatfs fstatfs64](fd: c_int, out: *mut libc::statfs) -> c_int {
    match table::get(fd) {
        None => real::fstatfs64(fd, out),
        Some(open) => errno::zero(space_of(&open).map(|found| *out = found)),
    }
});

hook!([statvfs statvfs64](path: *const c_char, out: *mut libc::statvfs) -> c_int {
    match path::locate_end(AT_FDCWD, path, true) {
        None => real::statvfs64(path, out),
        Some(spot) => finish(done(space_at(&spot), |found| *out = volume(&found)), |path| {
            real::statvfs64(path, out)
        }),
    }
});

hook!([fstatvfs fstatvfs64](fd: c_int, out: *mut libc::statvfs) -> c_int {
    match table::get(fd) {
        None => real::fstatvfs64(fd, out),
        Some(open) => errno::zero(space_of(&open).map(|found| *out = volume(&found))),
    }
});

hook!([access](path: *const c_char, mode: c_int) -> c_int {
    match path::locate_end(AT_FDCWD, path, true) {
        None => real::access(path, mode),
        Some(spot) => finish(permitted(&spot, mode, 0), |path| real::access(path, mode)),
    }
});

hook!([faccessat](dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    let follows = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    match path::locate_end(dir, path, follows) {
        None => real::faccessat(dir, path, mode, flags),
        Some(spot) => finish(permitted(&spot, mode, flags), |path| {
            real::faccessat(AT_FDCWD, path, mode, flags)
        }),
    }
});

hook!([euidaccess eaccess](path: *const c_char, mode: c_int) -> c_int {
    match path::locate_end(AT_FDCWD, path, true) {
        None => real::euidaccess(path, mode),
        Some(spot) => finish(permitted(&spot, mode, libc::AT_EACCESS), |path| {
            real::euidaccess(path, mode)
        }),
    }
});

/// True for the empty path.
///
/// # Safety
/// Null or a string.
unsafe fn is_empty(path: *const c_char) -> bool {
    // SAFETY: by the caller's promise.
    unsafe { path::bytes(path) }.is_some_and(<[u8]>::is_empty)
}

/// The answer of a call that returns 0.
fn done<T>(answer: Result<Answer<T>, c_int>, put: impl FnOnce(T)) -> Result<Answer<c_int>, c_int> {
    answer.map(|answer| match answer {
        Answer::Done(value) => {
            put(value);
            Answer::Done(0)
        }
        Answer::Outside(path) => Answer::Outside(path),
    })
}

fn put(
    spot: &Spot,
    follow: bool,
    out: *mut libc::stat,
    outside: impl FnOnce(*const c_char) -> c_int,
) -> c_int {
    let found = done(find(spot, follow), |found| {
        // SAFETY: the C function's caller gives room for it.
        unsafe { *out = posix(spot.prefix, &found) };
    });
    finish(found, outside)
}

/// Attributes of what a path names, in one request when its directory was used before.
pub fn find(spot: &Spot, follow: bool) -> Result<Answer<Stat>, c_int> {
    act::at(Family::Stat, spot, async |scene, end| match end {
        End::Dir(dir) => scene.fs.ostat(&dir.obj).await.map(Step::Done),
        End::Open(_, obj) => scene.fs.ostat(obj).await.map(Step::Done),
        End::Name { dir, name, wants_dir } => {
            let found = scene.fs.stat(&dir.obj, name).await?;
            match found.kind() {
                FileKind::Symlink if follow || *wants_dir => {
                    scene.fs.readlink_at(&dir.obj, name).await.map(Step::Link)
                }
                kind if *wants_dir && kind != FileKind::Directory => Err(Error::bare(Code::NotDir)),
                _ => Ok(Step::Done(found)),
            }
        }
        End::Outside(_) => Err(Error::bare(Code::Inval)),
    })
}

fn of_open(open: &std::sync::Arc<crate::open::Open>) -> Result<Stat, c_int> {
    act::run(Family::Stat, open, async |fs, obj| fs.ostat(obj).await)
}

/// Preferred size of transfers, bytes.
fn block_bytes(found: &Stat) -> i64 {
    match found.chunk_bytes {
        0 => 4096,
        chunk => chunk.clamp(4096, 4 << 20) as i64,
    }
}

fn posix(prefix: &Prefix, found: &Stat) -> libc::stat {
    // SAFETY: all zeros are a valid value.
    let mut out: libc::stat = unsafe { std::mem::zeroed() };
    out.st_dev = prefix.device;
    out.st_ino = found.ino;
    out.st_mode = found.mode;
    out.st_nlink = found.nlink as _;
    out.st_uid = found.uid;
    out.st_gid = found.gid;
    out.st_rdev = found.rdev;
    out.st_size = found.size as i64;
    out.st_blksize = block_bytes(found) as _;
    out.st_blocks = found.stored_bytes.div_ceil(512) as i64;
    (out.st_atime, out.st_atime_nsec) = seconds(found.atime_ns);
    (out.st_mtime, out.st_mtime_nsec) = seconds(found.mtime_ns);
    (out.st_ctime, out.st_ctime_nsec) = seconds(found.ctime_ns);
    out
}

fn seconds(ns: i64) -> (i64, i64) {
    (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000))
}

fn extended(prefix: &Prefix, found: &Stat) -> libc::statx {
    // SAFETY: all zeros are a valid value.
    let mut out: libc::statx = unsafe { std::mem::zeroed() };
    let time = |ns: i64| {
        let (tv_sec, tv_nsec) = seconds(ns);
        // SAFETY: as above.
        let mut time: libc::statx_timestamp = unsafe { std::mem::zeroed() };
        (time.tv_sec, time.tv_nsec) = (tv_sec, tv_nsec as u32);
        time
    };
    out.stx_mask = libc::STATX_BASIC_STATS;
    out.stx_blksize = block_bytes(found) as u32;
    out.stx_nlink = found.nlink;
    out.stx_uid = found.uid;
    out.stx_gid = found.gid;
    out.stx_mode = found.mode as u16;
    out.stx_ino = found.ino;
    out.stx_size = found.size;
    out.stx_blocks = found.stored_bytes.div_ceil(512);
    out.stx_atime = time(found.atime_ns);
    out.stx_mtime = time(found.mtime_ns);
    out.stx_ctime = time(found.ctime_ns);
    (out.stx_rdev_major, out.stx_rdev_minor) =
        (libc::major(found.rdev) as u32, libc::minor(found.rdev) as u32);
    (out.stx_dev_major, out.stx_dev_minor) =
        (libc::major(prefix.device) as u32, libc::minor(prefix.device) as u32);
    out
}

/// What FUSE file systems say, so that a mount and no mount look alike.
const MAGIC: libc::c_long = 0x6573_5546;
const BLOCK_BYTES: u64 = 4096;

fn space(prefix: &Prefix, found: &dfs::StatFs) -> libc::statfs {
    // SAFETY: all zeros are a valid value.
    let mut out: libc::statfs = unsafe { std::mem::zeroed() };
    out.f_type = MAGIC as _;
    out.f_bsize = BLOCK_BYTES as _;
    out.f_frsize = BLOCK_BYTES as _;
    out.f_blocks = found.total_bytes / BLOCK_BYTES;
    out.f_bfree = found.free_bytes / BLOCK_BYTES;
    out.f_bavail = found.available_bytes / BLOCK_BYTES;
    // There is no table of inodes: as many fit as there is space.
    out.f_files = found.object_count.saturating_add(found.free_bytes / 256);
    out.f_ffree = found.free_bytes / 256;
    out.f_namelen = found.name_bytes_max as _;
    let id = [prefix.device as u32, (prefix.device >> 32) as u32];
    // SAFETY: the id is two numbers of 32 bits.
    out.f_fsid = unsafe { std::mem::transmute::<[u32; 2], libc::fsid_t>(id) };
    out
}

fn volume(found: &libc::statfs) -> libc::statvfs {
    // SAFETY: all zeros are a valid value.
    let mut out: libc::statvfs = unsafe { std::mem::zeroed() };
    out.f_bsize = found.f_bsize as _;
    out.f_frsize = found.f_frsize as _;
    out.f_blocks = found.f_blocks;
    out.f_bfree = found.f_bfree;
    out.f_bavail = found.f_bavail;
    out.f_files = found.f_files;
    out.f_ffree = found.f_ffree;
    out.f_favail = found.f_ffree;
    out.f_namemax = found.f_namelen as _;
    out
}

fn space_at(spot: &Spot) -> Result<Answer<libc::statfs>, c_int> {
    act::on(Family::Stat, spot, true, async |scene, _| {
        scene.fs.statfs().await.map(|found| space(spot.prefix, &found))
    })
}

fn space_of(open: &std::sync::Arc<crate::open::Open>) -> Result<libc::statfs, c_int> {
    let prefix = open.prefix;
    act::run(Family::Stat, open, async |fs, _| fs.statfs().await.map(|found| space(prefix, &found)))
}

fn permitted(spot: &Spot, mode: c_int, flags: c_int) -> Result<Answer<c_int>, c_int> {
    if mode & !7 != 0 {
        return Err(libc::EINVAL);
    }
    let want = Access(mode as u32);
    let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    act::on(Family::Stat, spot, follow, async |scene, obj| {
        let effective = scene.fs.credentials().clone();
        let who = match flags & libc::AT_EACCESS {
            0 => caller::real_credentials(),
            _ => effective.clone(),
        };
        if (who.uid, who.gid) == (effective.uid, effective.gid) {
            scene.fs.oaccess(obj, want)?;
        } else {
            scene.fs.with_credentials(who).oaccess(obj, want)?;
        }
        Ok(0)
    })
}
