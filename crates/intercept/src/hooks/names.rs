//! Making, removing and renaming names; links; temporary names.

use super::finish;
use crate::act::{self, Answer, Step, Two};
use crate::mount;
use crate::open::Open;
use crate::path::{self, Spot};
use crate::report::Family;
use crate::walk::{self, End};
use crate::{errno, head, numbered, real, table, temporary};
use dfs::{FileKind, NodeKind, Removed, RenameFlags};
use libc::{AT_FDCWD, c_char, c_int, c_uint, dev_t, mode_t, size_t, ssize_t};
use preload::hook;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use types::{Code, Error, Oid};

hook!([mkdir](path: *const c_char, mode: mode_t) -> c_int {
    match path::locate(AT_FDCWD, path) {
        None => real::mkdir(path, mode),
        Some(spot) => finish(make_dir(&spot, mode), |path| real::mkdir(path, mode)),
    }
});

hook!([mkdirat](dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
    match path::locate(dir, path) {
        None => real::mkdirat(dir, path, mode),
        Some(spot) => finish(make_dir(&spot, mode), |path| real::mkdir(path, mode)),
    }
});

hook!([rmdir](path: *const c_char) -> c_int {
    match path::locate(AT_FDCWD, path) {
        None => real::rmdir(path),
        Some(spot) => finish(remove_dir(&spot), |path| real::rmdir(path)),
    }
});

hook!([unlink](path: *const c_char) -> c_int {
    match path::locate(AT_FDCWD, path) {
        None => real::unlink(path),
        Some(spot) => finish(remove_file(&spot), |path| real::unlink(path)),
    }
});

hook!([unlinkat](dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    match path::locate(dir, path) {
        None => real::unlinkat(dir, path, flags),
        Some(spot) if flags & libc::AT_REMOVEDIR != 0 => {
            finish(remove_dir(&spot), |path| real::rmdir(path))
        }
        Some(spot) => finish(remove_file(&spot), |path| real::unlink(path)),
    }
});

hook!([remove](path: *const c_char) -> c_int {
    match path::locate(AT_FDCWD, path) {
        None => real::remove(path),
        Some(spot) => match remove_file(&spot) {
            Err(libc::EISDIR) => finish(remove_dir(&spot), |path| real::rmdir(path)),
            other => finish(other, |path| real::remove(path)),
        },
    }
});

hook!([rename](from: *const c_char, to: *const c_char) -> c_int {
    move_name(AT_FDCWD, from, AT_FDCWD, to, 0, || real::rename(from, to))
});

hook!([renameat](
    from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char
) -> c_int {
    move_name(from_dir, from, to_dir, to, 0, || real::renameat2(from_dir, from, to_dir, to, 0))
});

hook!([renameat2](
    from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_uint
) -> c_int {
    move_name(from_dir, from, to_dir, to, flags, || {
        real::renameat2(from_dir, from, to_dir, to, flags)
    })
});

hook!([link](from: *const c_char, to: *const c_char) -> c_int {
    linkat(AT_FDCWD, from, AT_FDCWD, to, 0)
});

hook!([linkat](
    from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_int
) -> c_int {
    let by_number = if flags & libc::AT_EMPTY_PATH != 0 && *from == 0 {
        table::get(from_dir)
    } else {
        numbered::link(from_dir, from).filter(|_| flags & libc::AT_SYMLINK_FOLLOW != 0)
    };
    if let Some(open) = by_number {
        let Some(spot) = path::locate(to_dir, to) else { return across(&[to]) };
        return errno::zero(link_open(&open, &spot));
    }
    match (path::locate(from_dir, from), path::locate(to_dir, to)) {
        (None, None) => real::linkat(from_dir, from, to_dir, to, flags),
        (Some(one), Some(two)) => {
            let follow = flags & libc::AT_SYMLINK_FOLLOW != 0;
            let done = act::at_two(Family::Names, &one, &two, follow, async |scene, one, two| {
                let (dir, name) = named(one, Code::NoPerm)?;
                let (new_dir, new_name) = named(two, Code::Exist)?;
                scene.fs.link(&dir.obj, name, &new_dir.obj, new_name).await
            });
            two_done(done, |one, two| real::linkat(AT_FDCWD, one, AT_FDCWD, two, flags))
        }
        _ if flags & libc::AT_EMPTY_PATH != 0 => across(&[to]),
        _ => across(&[from, to]),
    }
});

hook!([symlink](target: *const c_char, path: *const c_char) -> c_int {
    symlinkat(target, AT_FDCWD, path)
});

hook!([symlinkat](target: *const c_char, dir: c_int, path: *const c_char) -> c_int {
    let Some(spot) = path::locate(dir, path) else {
        return real::symlinkat(target, dir, path);
    };
    let Some(text) = path::bytes(target) else {
        errno::set(libc::EFAULT);
        return -1;
    };
    let made = act::at(Family::Names, &spot, async |scene, end| {
        let (dir, name) = named(end, Code::Exist)?;
        scene.fs.symlink(&dir.obj, name, text).await?;
        Ok(Step::Done(0))
    });
    finish(made, |path| real::symlinkat(target, AT_FDCWD, path))
});

hook!([readlink](path: *const c_char, out: *mut c_char, bytes: size_t) -> ssize_t {
    readlinkat(AT_FDCWD, path, out, bytes)
});

hook!([readlinkat](
    dir: c_int, path: *const c_char, out: *mut c_char, bytes: size_t
) -> ssize_t {
    if let Some(open) = numbered::link(dir, path) {
        return errno::number(put_target(&name_of(&open), out, bytes));
    }
    match path::locate(dir, path) {
        None => real::readlinkat(dir, path, out, bytes),
        Some(spot) => target_of(&spot, out, bytes),
    }
});

hook!([__readlink_chk](
    path: *const c_char, out: *mut c_char, bytes: size_t, room: size_t
) -> ssize_t {
    readlink(path, out, bytes.min(room))
});

hook!([__readlinkat_chk](
    dir: c_int, path: *const c_char, out: *mut c_char, bytes: size_t, room: size_t
) -> ssize_t {
    readlinkat(dir, path, out, bytes.min(room))
});

hook!([mknod](path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
    mknodat(AT_FDCWD, path, mode, device)
});

hook!([mknodat](dir: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
    match path::locate(dir, path) {
        None => real::mknodat(dir, path, mode, device),
        Some(spot) => finish(make_node(&spot, mode, device), |path| {
            real::mknodat(AT_FDCWD, path, mode, device)
        }),
    }
});

hook!([mkfifo](path: *const c_char, mode: mode_t) -> c_int {
    mknodat(AT_FDCWD, path, mode | libc::S_IFIFO, 0)
});

hook!([mkfifoat](dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
    mknodat(dir, path, mode | libc::S_IFIFO, 0)
});

hook!([mkstemp mkstemp64](template: *mut c_char) -> c_int {
    mkostemps(template, 0, 0)
});

hook!([mkostemp mkostemp64](template: *mut c_char, flags: c_int) -> c_int {
    mkostemps(template, 0, flags)
});

hook!([mkstemps mkstemps64](template: *mut c_char, suffix: c_int) -> c_int {
    mkostemps(template, suffix, 0)
});

hook!([mkostemps mkostemps64](template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
    if path::locate(AT_FDCWD, template).is_none() {
        return real::mkostemps64(template, suffix, flags);
    }
    let flags = flags & !libc::O_ACCMODE | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    let made = temporary_name(template, suffix, |path| super::open::open(path, flags, 0o600));
    errno::number(made)
});

hook!([mkdtemp](template: *mut c_char) -> *mut c_char {
    if path::locate(AT_FDCWD, template).is_none() {
        return real::mkdtemp(template);
    }
    match temporary_name(template, 0, |path| mkdir(path, 0o700)) {
        Ok(_) => template,
        Err(error) => {
            errno::set(error);
            std::ptr::null_mut()
        }
    }
});

/// Fills a template until nothing has the name.
///
/// # Safety
/// A string that may be written.
unsafe fn temporary_name(
    template: *mut c_char,
    suffix: c_int,
    make: impl Fn(*const c_char) -> c_int,
) -> Result<c_int, c_int> {
    let suffix = usize::try_from(suffix).map_err(|_| libc::EINVAL)?;
    // SAFETY: by the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts_mut(template.cast(), libc::strlen(template)) };
    for attempt in 0..temporary::ATTEMPTS {
        temporary::fill(bytes, suffix, attempt > 0, temporary::random())?;
        let made = make(template);
        if made >= 0 {
            return Ok(made);
        }
        if errno::get() != libc::EEXIST {
            return Err(errno::get());
        }
    }
    Err(libc::EEXIST)
}

/// The directory and the name of an end; paths without a name are `refused`.
fn named(end: &End, refused: Code) -> types::Result<(&mount::Dir, &[u8])> {
    match end {
        End::Name { dir, name, .. } => Ok((dir, name)),
        _ => Err(Error::bare(refused)),
    }
}

/// Gives an open file a name.
fn link_open(open: &Arc<Open>, spot: &Spot) -> Result<(), c_int> {
    if !std::ptr::eq(open.prefix, spot.prefix) {
        return Err(libc::EXDEV);
    }
    // What was inherited is made known to this thread, which asks the servers.
    act::run(Family::Names, open, async |_, _| Ok(()))?;
    let linked = act::at(Family::Names, spot, async |scene, end| {
        let (dir, name) = named(end, Code::Exist)?;
        let obj = open.object(scene.local)?;
        scene.fs.link_open(&obj, &dir.obj, name).await?;
        open.learn(&obj);
        open.head().marks.fetch_and(!head::UNLINKED, Relaxed);
        Ok(Step::Done(()))
    })?;
    match linked {
        Answer::Done(()) => Ok(()),
        Answer::Outside(_) => Err(libc::EXDEV),
    }
}

fn make_dir(spot: &Spot, mode: mode_t) -> Result<Answer<c_int>, c_int> {
    act::at(Family::Names, spot, async |scene, end| {
        let (dir, name) = named(end, Code::Exist)?;
        // As Linux has it: of the special bits only the sticky one counts.
        scene.fs.mkdir(&dir.obj, name, mode & 0o1777, None).await?;
        Ok(Step::Done(0))
    })
}

fn remove_dir(spot: &Spot) -> Result<Answer<c_int>, c_int> {
    let last = spot.text.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty());
    let refused = match last {
        Some(b".") => Code::Inval,
        Some(b"..") => Code::NotEmpty,
        _ => Code::Busy,
    };
    act::at(Family::Names, spot, async |scene, end| {
        let (dir, name) = named(end, refused)?;
        scene.fs.rmdir(&dir.obj, name).await?;
        mount::changed(spot.prefix);
        Ok(Step::Done(0))
    })
}

fn remove_file(spot: &Spot) -> Result<Answer<c_int>, c_int> {
    act::at(Family::Names, spot, async |scene, end| {
        let End::Name { dir, name, wants_dir } = end else {
            return Err(Error::bare(Code::IsDir));
        };
        if *wants_dir {
            let is_dir = scene.fs.stat(&dir.obj, name).await?.is_dir();
            return Err(Error::bare(if is_dir { Code::IsDir } else { Code::NotDir }));
        }
        let removed = scene.fs.unlink_told(&dir.obj, name).await?;
        if removed.kind == FileKind::Symlink {
            mount::changed(spot.prefix);
        }
        lost_name(&removed);
        Ok(Step::Done(0))
    })
}

/// Open files of this process that are an object.
fn opened(oid: Oid) -> impl Iterator<Item = Arc<Open>> {
    table::all().into_iter().map(|(_, open)| open).filter(move |open| open.known().oid() == oid)
}

/// An object has lost a name, perhaps its last.
fn lost_name(removed: &Removed) {
    if removed.nlink > 0 {
        return;
    }
    for open in opened(removed.oid) {
        open.head().marks.fetch_or(head::UNLINKED, Relaxed);
        let mut known = open.known();
        known.set_unlinked();
        open.set_known(known);
    }
}

/// Why a name cannot be given across file systems: that a path can be none comes first.
///
/// # Safety
/// Null or strings.
unsafe fn across(paths: &[*const c_char]) -> c_int {
    let wrong = paths.iter().find_map(|path| {
        // SAFETY: by the caller's promise.
        match unsafe { path::bytes(*path) } {
            None => Some(libc::EFAULT),
            Some([]) => Some(libc::ENOENT),
            Some(path) => (path.len() >= path::PATH_BYTES).then_some(libc::ENAMETOOLONG),
        }
    });
    errno::zero(Err(wrong.unwrap_or(libc::EXDEV)))
}

/// Renames.
///
/// # Safety
/// Null or strings.
unsafe fn move_name(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_uint,
    real: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: by the caller's promise.
    let (one, two) = unsafe { (path::locate(from_dir, from), path::locate(to_dir, to)) };
    let (one, two) = match (one, two) {
        (None, None) => return real(),
        (Some(one), Some(two)) => (one, two),
        // SAFETY: by the caller's promise.
        _ => return unsafe { across(&[from, to]) },
    };
    if flags & !(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE) != 0 {
        errno::set(libc::EINVAL);
        return -1;
    }
    let done = act::at_two(Family::Names, &one, &two, false, async |scene, from, to| {
        let (
            End::Name { dir, name, wants_dir },
            End::Name { dir: new_dir, name: new_name, wants_dir: wants_new },
        ) = (from, to)
        else {
            return Err(Error::bare(Code::Busy));
        };
        // A trailing slash on either side says that a directory moves.
        if (*wants_dir || *wants_new) && !scene.fs.stat(&dir.obj, name).await?.is_dir() {
            return Err(Error::bare(Code::NotDir));
        }
        let flags = RenameFlags(flags);
        let renamed = scene.fs.rename_told(&dir.obj, name, &new_dir.obj, new_name, flags).await?;
        if !renamed.only_files {
            mount::changed(one.prefix);
        }
        // Those that knew it by the name it had know it by the new one.
        let follow = |oid: Oid, from: (&mount::Dir, &[u8]), to: (&mount::Dir, &[u8])| {
            for open in opened(oid) {
                let known = open.known();
                if known.parent_oid() == from.0.obj.oid() && &**known.name() == from.1 {
                    open.set_known(known.at(to.0.obj.oid(), to.1));
                    open.set_path(walk::below(&to.0.path, to.1));
                }
            }
        };
        let (old, new) = ((&**dir, &name[..]), (&**new_dir, &new_name[..]));
        if let Some(swapped) = renamed.swapped {
            follow(swapped, new, old);
        }
        follow(renamed.moved, old, new);
        renamed.replaced.iter().for_each(lost_name);
        Ok(())
    });
    // SAFETY: the paths are strings.
    two_done(done, |one, two| unsafe { real::renameat2(AT_FDCWD, one, AT_FDCWD, two, flags) })
}

fn two_done(
    done: Result<Two<()>, c_int>,
    outside: impl FnOnce(*const c_char, *const c_char) -> c_int,
) -> c_int {
    match done {
        Ok(Two::Done(())) => 0,
        Ok(Two::Outside(one, two)) => outside(one.as_ptr(), two.as_ptr()),
        Err(error) => {
            errno::set(error);
            -1
        }
    }
}

/// Puts a link's target into the caller's room, cut to it.
///
/// # Safety
/// Room for so many bytes.
unsafe fn target_of(spot: &Spot, out: *mut c_char, bytes: size_t) -> ssize_t {
    if bytes == 0 {
        errno::set(libc::EINVAL);
        return -1;
    }
    let found = read_target(spot).and_then(|answer| match answer {
        Answer::Outside(path) => Ok(Answer::Outside(path)),
        // SAFETY: by the caller's promise.
        Answer::Done(target) => unsafe { put_target(&target, out, bytes) }.map(Answer::Done),
    });
    // SAFETY: as above.
    finish(found, |path| unsafe { real::readlinkat(AT_FDCWD, path, out, bytes) })
}

/// # Safety
/// Room for so many bytes.
unsafe fn put_target(target: &[u8], out: *mut c_char, bytes: size_t) -> Result<ssize_t, c_int> {
    if bytes == 0 {
        return Err(libc::EINVAL);
    }
    let count = target.len().min(bytes);
    // SAFETY: by the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(target.as_ptr().cast(), out, count) };
    Ok(count as ssize_t)
}

/// Path of an open file as the kernel would show it in `/proc/self/fd`.
fn name_of(open: &Open) -> Vec<u8> {
    let is_gone = open.head().marks.load(Relaxed) & head::UNLINKED != 0;
    let tail: &[u8] = if is_gone { b" (deleted)" } else { b"" };
    [&open.prefix.path[..], &open.path(), tail].concat()
}

/// The target of a symbolic link. `EINVAL` for anything else.
pub fn read_target(spot: &Spot) -> Result<Answer<Vec<u8>>, c_int> {
    act::at(Family::Names, spot, async |scene, end| match end {
        End::Name { dir, name, wants_dir: false } => {
            scene.fs.readlink_at(&dir.obj, name).await.map(Step::Done)
        }
        End::Name { .. } => act::object(scene, end, true).await.and_then(|found| match found {
            Step::Link(target) => Ok(Step::Link(target)),
            Step::Done(_) => Err(Error::bare(Code::Inval)),
        }),
        _ => Err(Error::bare(Code::Inval)),
    })
}

fn make_node(spot: &Spot, mode: mode_t, device: dev_t) -> Result<Answer<c_int>, c_int> {
    let kind = match mode & libc::S_IFMT {
        0 | libc::S_IFREG => FileKind::Regular,
        libc::S_IFIFO => FileKind::Fifo,
        libc::S_IFSOCK => FileKind::Socket,
        libc::S_IFCHR => FileKind::CharDevice,
        libc::S_IFBLK => FileKind::BlockDevice,
        libc::S_IFDIR => return Err(libc::EPERM),
        _ => return Err(libc::EINVAL),
    };
    act::at(Family::Names, spot, async |scene, end| {
        let (dir, name) = named(end, Code::Exist)?;
        let node = NodeKind { kind, rdev: device };
        scene.fs.mknod(&dir.obj, name, mode & 0o7777, node).await?;
        Ok(Step::Done(0))
    })
}
