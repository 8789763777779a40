//! Changing attributes: permission bits, owners, times, size.

use super::finish;
use crate::act::{self, Answer};
use crate::mount;
use crate::path::{self, Spot};
use crate::report::Family;
use crate::size::Guard;
use crate::{errno, real, table};
use dfs::{OpenFlags, SetAttr, SetTime};
use libc::{AT_FDCWD, c_char, c_int, gid_t, mode_t, off_t, timespec, timeval, uid_t, utimbuf};
use preload::hook;
use types::{Code, Error};

hook!([chmod](path: *const c_char, mode: mode_t) -> c_int {
    fchmodat(AT_FDCWD, path, mode, 0)
});

hook!([lchmod](path: *const c_char, mode: mode_t) -> c_int {
    fchmodat(AT_FDCWD, path, mode, libc::AT_SYMLINK_NOFOLLOW)
});

hook!([fchmodat](dir: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int {
    match path::locate_end(dir, path, flags & libc::AT_SYMLINK_NOFOLLOW == 0) {
        None => real::fchmodat(dir, path, mode, flags),
        Some(spot) => {
            let set = SetAttr { mode: Some(mode & 0o7777), ..SetAttr::default() };
            finish(change(&spot, flags, &set), |path| real::fchmodat(AT_FDCWD, path, mode, flags))
        }
    }
});

hook!([fchmod](fd: c_int, mode: mode_t) -> c_int {
    if !table::is_ours(fd) {
        return real::fchmod(fd, mode);
    }
    change_open(fd, &SetAttr { mode: Some(mode & 0o7777), ..SetAttr::default() })
});

hook!([chown](path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
    fchownat(AT_FDCWD, path, uid, gid, 0)
});

hook!([lchown](path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
    fchownat(AT_FDCWD, path, uid, gid, libc::AT_SYMLINK_NOFOLLOW)
});

hook!([fchownat](
    dir: c_int, path: *const c_char, uid: uid_t, gid: gid_t, flags: c_int
) -> c_int {
    if table::is_ours(dir) && flags & libc::AT_EMPTY_PATH != 0 && *path == 0 {
        return fchown(dir, uid, gid);
    }
    match path::locate_end(dir, path, flags & libc::AT_SYMLINK_NOFOLLOW == 0) {
        None => real::fchownat(dir, path, uid, gid, flags),
        Some(spot) => finish(change(&spot, flags, &owners(uid, gid)), |path| {
            real::fchownat(AT_FDCWD, path, uid, gid, flags)
        }),
    }
});

hook!([fchown](fd: c_int, uid: uid_t, gid: gid_t) -> c_int {
    if table::is_ours(fd) { change_open(fd, &owners(uid, gid)) } else { real::fchown(fd, uid, gid) }
});

hook!([utimensat](
    dir: c_int, path: *const c_char, times: *const timespec, flags: c_int
) -> c_int {
    if path.is_null() && table::is_ours(dir) {
        return futimens(dir, times);
    }
    match path::locate_end(dir, path, flags & libc::AT_SYMLINK_NOFOLLOW == 0) {
        None => real::utimensat(dir, path, times, flags),
        Some(spot) => {
            let changed = nanoseconds(times).and_then(|set| change(&spot, flags, &set));
            finish(changed, |path| real::utimensat(AT_FDCWD, path, times, flags))
        }
    }
});

hook!([futimens](fd: c_int, times: *const timespec) -> c_int {
    if !table::is_ours(fd) {
        return real::futimens(fd, times);
    }
    match nanoseconds(times) {
        Ok(set) => change_open(fd, &set),
        Err(error) => errno::zero(Err(error)),
    }
});

hook!([utime](path: *const c_char, times: *const utimbuf) -> c_int {
    match path::locate_end(AT_FDCWD, path, true) {
        None => real::utime(path, times),
        Some(spot) => {
            let set = match times.as_ref() {
                None => now(),
                Some(times) => at(times.actime * 1_000_000_000, times.modtime * 1_000_000_000),
            };
            finish(change(&spot, 0, &set), |path| real::utime(path, times))
        }
    }
});

hook!([utimes](path: *const c_char, times: *const timeval) -> c_int {
    match path::locate_end(AT_FDCWD, path, true) {
        None => real::utimes(path, times),
        Some(spot) => {
            let changed = microseconds(times).and_then(|set| change(&spot, 0, &set));
            finish(changed, |path| real::utimes(path, times))
        }
    }
});

hook!([lutimes](path: *const c_char, times: *const timeval) -> c_int {
    match path::locate(AT_FDCWD, path) {
        None => real::lutimes(path, times),
        Some(spot) => {
            let flags = libc::AT_SYMLINK_NOFOLLOW;
            let changed = microseconds(times).and_then(|set| change(&spot, flags, &set));
            finish(changed, |path| real::lutimes(path, times))
        }
    }
});

hook!([futimes](fd: c_int, times: *const timeval) -> c_int {
    if !table::is_ours(fd) {
        return real::futimes(fd, times);
    }
    match microseconds(times) {
        Ok(set) => change_open(fd, &set),
        Err(error) => errno::zero(Err(error)),
    }
});

hook!([futimesat](dir: c_int, path: *const c_char, times: *const timeval) -> c_int {
    match path::locate_end(dir, path, true) {
        None => real::futimesat(dir, path, times),
        Some(spot) => {
            let changed = microseconds(times).and_then(|set| change(&spot, 0, &set));
            finish(changed, |path| real::utimes(path, times))
        }
    }
});

hook!([truncate truncate64](path: *const c_char, size: off_t) -> c_int {
    match path::locate_end(AT_FDCWD, path, true) {
        None => real::truncate64(path, size),
        Some(_) if size < 0 => errno::zero(Err(libc::EINVAL)),
        Some(spot) => {
            let guard = Guard::new();
            let cut = act::on(Family::Attr, &spot, true, async |scene, obj| {
                if guard.is_set() {
                    guard.check_growth(scene.fs.size(obj).await?, size as u64)?;
                }
                scene.fs.truncate(obj, size as u64).await.map(|()| 0)
            });
            finish(guard.tell(cut), |path| real::truncate64(path, size))
        }
    }
});

hook!([ftruncate ftruncate64](fd: c_int, size: off_t) -> c_int {
    let Some(open) = table::get(fd) else { return real::ftruncate64(fd, size) };
    let Ok(size) = u64::try_from(size) else { return errno::zero(Err(libc::EINVAL)) };
    let guard = Guard::new();
    let cut = act::run(Family::Attr, &open, async |fs, obj| {
        if !obj.flags().has(OpenFlags::WRITE) {
            let is_name = obj.flags().has(OpenFlags::PATH);
            return Err(Error::bare(if is_name { Code::BadHandle } else { Code::Inval }));
        }
        if guard.is_set() {
            guard.check_growth(fs.size(obj).await?, size)?;
        }
        fs.truncate(obj, size).await
    });
    errno::zero(guard.tell(cut))
});

fn owners(uid: uid_t, gid: gid_t) -> SetAttr {
    let some = |id: u32| (id != u32::MAX).then_some(id);
    SetAttr { uid: some(uid), gid: some(gid), ..SetAttr::default() }
}

fn now() -> SetAttr {
    let (atime, mtime) = (Some(SetTime::Now), Some(SetTime::Now));
    SetAttr { atime, mtime, ..SetAttr::default() }
}

fn at(atime_ns: i64, mtime_ns: i64) -> SetAttr {
    let (atime, mtime) = (Some(SetTime::At(atime_ns)), Some(SetTime::At(mtime_ns)));
    SetAttr { atime, mtime, ..SetAttr::default() }
}

/// Times as `utimensat` wants them.
///
/// # Safety
/// Null or two times.
unsafe fn nanoseconds(times: *const timespec) -> Result<SetAttr, c_int> {
    if times.is_null() {
        return Ok(now());
    }
    let one = |time: timespec| match time.tv_nsec {
        libc::UTIME_OMIT => Ok(None),
        libc::UTIME_NOW => Ok(Some(SetTime::Now)),
        nanoseconds @ 0..1_000_000_000 => {
            let whole = time.tv_sec.checked_mul(1_000_000_000).ok_or(libc::EINVAL)?;
            Ok(Some(SetTime::At(whole.checked_add(nanoseconds).ok_or(libc::EINVAL)?)))
        }
        _ => Err(libc::EINVAL),
    };
    // SAFETY: by the caller's promise.
    let (atime, mtime) = unsafe { (one(*times)?, one(*times.add(1))?) };
    Ok(SetAttr { atime, mtime, ..SetAttr::default() })
}

/// Times as `utimes` wants them.
///
/// # Safety
/// Null or two times.
unsafe fn microseconds(times: *const timeval) -> Result<SetAttr, c_int> {
    if times.is_null() {
        return Ok(now());
    }
    let one = |time: timeval| {
        if !(0..1_000_000).contains(&time.tv_usec) {
            return Err(libc::EINVAL);
        }
        let whole = time.tv_sec.checked_mul(1_000_000_000).ok_or(libc::EINVAL)?;
        whole.checked_add(time.tv_usec * 1000).ok_or(libc::EINVAL)
    };
    // SAFETY: by the caller's promise.
    unsafe { Ok(at(one(*times)?, one(*times.add(1))?)) }
}

fn is_nothing(set: &SetAttr) -> bool {
    set.mode.is_none()
        && set.uid.is_none()
        && set.gid.is_none()
        && set.atime.is_none()
        && set.mtime.is_none()
}

fn change(spot: &Spot, flags: c_int, set: &SetAttr) -> Result<Answer<c_int>, c_int> {
    let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    act::on(Family::Attr, spot, follow, async |scene, obj| {
        if !is_nothing(set) {
            scene.fs.setattr(obj, set).await?;
        }
        if obj.is_dir() && (set.mode.is_some() || set.uid.is_some() || set.gid.is_some()) {
            // Who may search it is known with it.
            mount::changed(spot.prefix);
        }
        Ok(0)
    })
}

fn change_open(fd: c_int, set: &SetAttr) -> c_int {
    let Some(open) = table::get(fd) else { return errno::zero(Err(libc::EBADF)) };
    let changed = act::run(Family::Attr, &open, async |fs, obj| {
        if obj.flags().has(OpenFlags::PATH) {
            return Err(Error::bare(Code::BadHandle));
        }
        if !is_nothing(set) {
            fs.setattr(obj, set).await?;
            open.learn(obj);
        }
        if obj.is_dir() {
            mount::changed(open.prefix);
        }
        Ok(())
    });
    errno::zero(changed)
}
