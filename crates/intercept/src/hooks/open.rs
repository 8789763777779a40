//! `open` and its kin.

use super::finish;
use crate::act::{self, Answer, Step};
use crate::open::Open;
use crate::path::{self, Spot};
use crate::report::{self, Family, Why};
use crate::walk::{self, End};
use crate::{errno, head, inside, numbered, real, table};
use dfs::{CreateOptions, FileKind, Obj, OpenFlags, Unnamed};
use libc::{AT_FDCWD, c_char, c_int, mode_t};
use preload::hook;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use types::{Code, Error};

hook!([open open64](path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    inside::cancellation_point();
    match path::locate_end(AT_FDCWD, path, follows(flags)) {
        None => {
            let fd = real::open(path, flags, mode);
            if fd < 0 { again(AT_FDCWD, path, flags, mode) } else { fd }
        }
        Some(spot) => open_at(&spot, flags, mode),
    }
});

hook!([openat openat64](dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    inside::cancellation_point();
    match path::locate_end(dir, path, follows(flags)) {
        None => {
            let fd = real::openat(dir, path, flags, mode);
            if fd < 0 { again(dir, path, flags, mode) } else { fd }
        }
        Some(spot) => open_at(&spot, flags, mode),
    }
});

hook!([__open_2 __open64_2](path: *const c_char, flags: c_int) -> c_int {
    open(path, flags, 0)
});

hook!([__openat_2 __openat64_2](dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    openat(dir, path, flags, 0)
});

hook!([creat creat64](path: *const c_char, mode: mode_t) -> c_int {
    open(path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode)
});

/// True when a symbolic link at the end of a path is followed.
pub fn follows(flags: c_int) -> bool {
    let exclusive = libc::O_CREAT | libc::O_EXCL;
    flags & libc::O_NOFOLLOW == 0 && flags & exclusive != exclusive
}

/// What the kernel could not open may be a descriptor of ours behind symbolic links.
///
/// # Safety
/// `path` is null or a string.
unsafe fn again(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let error = errno::get();
    if error == libc::ENXIO && follows(flags) {
        // SAFETY: by the caller's promise.
        if let Some(spot) = unsafe { numbered::behind_links(dir, path) } {
            return open_at(&spot, flags, mode);
        }
        errno::set(error);
    }
    -1
}

fn open_at(spot: &Spot, flags: c_int, mode: mode_t) -> c_int {
    finish(open_spot(spot, flags, mode), |path| {
        // SAFETY: the path is a string.
        unsafe { real::open(path, flags, mode) }
    })
}

/// Opens a path of ours and gives it a descriptor.
pub fn open_spot(spot: &Spot, flags: c_int, mode: mode_t) -> Result<Answer<c_int>, c_int> {
    let both = libc::O_CREAT | libc::O_DIRECTORY;
    if flags & both == both && flags & libc::O_PATH == 0 {
        return Err(libc::EINVAL);
    }
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        return nameless(spot, flags, mode);
    }
    let exclusive = flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0;
    let follow = follows(flags);
    let name_only = flags & libc::O_PATH != 0;
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY && !name_only;
    let mut wanted = OpenFlags::from_posix(flags) | OpenFlags::NOFOLLOW;
    if name_only {
        wanted = wanted.without(OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::TRUNC);
    }
    let creates = wanted.has(OpenFlags::CREATE);
    let opened = act::at(Family::Open, spot, async |scene, end| {
        let mut unlinked = 0;
        let (obj, path) = match end {
            End::Dir(_) if exclusive => return Err(Error::bare(Code::Exist)),
            End::Dir(_) if creates || writes => return Err(Error::bare(Code::IsDir)),
            End::Dir(dir) => (scene.fs.lookup_rel(&dir.obj, b".", wanted).await?, dir.path.clone()),
            End::Open(open, obj) => {
                if flags & libc::O_DIRECTORY != 0 {
                    return Err(Error::bare(Code::NotDir));
                }
                if open.kind() == FileKind::Symlink && !name_only {
                    return Err(Error::bare(Code::TooManyLinks));
                }
                // The same file, whatever name it has by now, and a description of its own.
                let wanted = wanted.without(OpenFlags::CREATE | OpenFlags::EXCL);
                let (obj, _) = scene.fs.open_obj(obj, wanted, Unnamed::Held).await?;
                unlinked = open.head().marks.load(Relaxed) & head::UNLINKED;
                (obj, open.path())
            }
            End::Name { wants_dir: true, .. } if creates => return Err(Error::bare(Code::IsDir)),
            End::Name { dir, name, wants_dir } => {
                let wanted = if *wants_dir { wanted | OpenFlags::DIRECTORY } else { wanted };
                let options = CreateOptions::default();
                let mode = mode & 0o7777;
                match scene.fs.open(&dir.obj, name, wanted, mode, &options).await {
                    Err(error) if error.code == Code::TooManyLinks && (follow || *wants_dir) => {
                        let target = scene.fs.readlink_at(&dir.obj, name).await?;
                        return Ok(Step::Link(target));
                    }
                    Ok(obj) if name_only && obj.kind() == FileKind::Symlink && follow => {
                        return scene.fs.readlink(&obj).await.map(Step::Link);
                    }
                    other => (other?, walk::below(&dir.path, name)),
                }
            }
            End::Outside(_) => return Err(Error::bare(Code::Inval)),
        };
        match obj.kind() {
            FileKind::Directory if writes => return Err(Error::bare(Code::IsDir)),
            FileKind::Directory | FileKind::Regular => {}
            FileKind::Symlink if name_only => {}
            _ if name_only => {}
            // What is behind a device or a pipe is not in the container.
            _ => return Ok(Step::Done(None)),
        }
        let open = enter(scene, path, obj, flags);
        open.head().marks.fetch_or(unlinked, Relaxed);
        Ok(Step::Done(Some(open)))
    });
    match opened? {
        Answer::Done(Some(open)) => give(Answer::Done(open), flags),
        Answer::Done(None) => special(spot),
        Answer::Outside(path) => Ok(Answer::Outside(path)),
    }
}

/// Opens a pipe, socket or device: what that means the kernel knows, if there is a mount.
fn special(spot: &Spot) -> Result<Answer<c_int>, c_int> {
    let path = spot.full();
    let why = if spot.prefix.is_mount { Why::Mount } else { Why::Refused };
    report::passed(Family::Open, why, format_args!("special file {}", path.escape_ascii()));
    if !spot.prefix.is_mount {
        return Err(libc::EOPNOTSUPP);
    }
    CString::new(path).map(Answer::Outside).map_err(|_| libc::ENOENT)
}

/// Opens a new file without a name (`O_TMPFILE`).
fn nameless(spot: &Spot, flags: c_int, mode: mode_t) -> Result<Answer<c_int>, c_int> {
    let wanted = OpenFlags::from_posix(flags).without(OpenFlags::DIRECTORY);
    let opened = act::at(Family::Open, spot, async |scene, end| {
        let dir = match act::object(scene, end, true).await? {
            Step::Link(target) => return Ok(Step::Link(target)),
            Step::Done(dir) => dir,
        };
        let options = CreateOptions::default();
        let obj = scene.fs.tmpfile(&dir, wanted, mode & 0o7777, &options).await?;
        let open = enter(scene, b"/(no name)".to_vec(), obj, flags & !libc::O_TMPFILE);
        open.head().marks.fetch_or(head::UNLINKED, Relaxed);
        Ok(Step::Done(open))
    });
    give(opened?, flags)
}

/// An open file for an object just opened.
fn enter(scene: &act::Scene<'_>, path: Vec<u8>, obj: Obj, flags: c_int) -> Arc<Open> {
    let kept = libc::O_ACCMODE
        | libc::O_APPEND
        | libc::O_NONBLOCK
        | libc::O_DIRECT
        | libc::O_SYNC
        | libc::O_NOATIME
        | libc::O_DIRECTORY
        | libc::O_PATH;
    let open = Open::new(scene.mount, path, &obj, (flags & kept) as u32);
    open.settle(scene.ctx.clone(), scene.local, scene.mount, obj);
    open
}

fn give(opened: Answer<Arc<Open>>, flags: c_int) -> Result<Answer<c_int>, c_int> {
    match opened {
        Answer::Outside(path) => Ok(Answer::Outside(path)),
        Answer::Done(open) => {
            let close_on_exec = flags & libc::O_CLOEXEC != 0;
            let fd = inside::run(|| table::give(open, close_on_exec))?;
            Ok(Answer::Done(fd))
        }
    }
}
