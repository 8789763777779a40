//! The current directory, and `realpath`.

use crate::act::{self, Answer};
use crate::path::{self, Spot};
use crate::report::Family;
use crate::walk::{self, End};
use crate::{act::Step, config, cwd, errno, inside, real, table};
use dfs::{Access, FileKind};
use libc::{AT_FDCWD, c_char, c_int, size_t};
use preload::hook;
use types::{Code, Error};

hook!([chdir](path: *const c_char) -> c_int {
    let Some(spot) = path::locate_end(AT_FDCWD, path, true) else {
        let done = real::chdir(path);
        if done == 0 {
            moved();
        }
        return done;
    };
    match directory(&spot) {
        Ok(Answer::Done(physical)) => {
            errno::zero(inside::run(|| cwd::enter(spot.prefix, physical)))
        }
        Ok(Answer::Outside(path)) => chdir(path.as_ptr()),
        Err(error) => errno::zero(Err(error)),
    }
});

hook!([fchdir](fd: c_int) -> c_int {
    let Some(open) = table::get(fd) else {
        let done = real::fchdir(fd);
        if done == 0 {
            moved();
        }
        return done;
    };
    if open.kind() != FileKind::Directory {
        return errno::zero(Err(libc::ENOTDIR));
    }
    let allowed = act::run(Family::Cwd, &open, async |fs, obj| fs.oaccess(obj, Access::EXECUTE));
    let physical = || [&open.prefix.path[..], &open.path()].concat();
    errno::zero(allowed.and_then(|()| {
        inside::run(|| cwd::enter(open.prefix, or_root(physical())))
    }))
});

hook!([getcwd](out: *mut c_char, bytes: size_t) -> *mut c_char {
    let Some(path) = virtual_cwd() else { return real::getcwd(out, bytes) };
    let needed = path.len() + 1;
    let room = if out.is_null() {
        if bytes != 0 && bytes < needed {
            errno::set(libc::ERANGE);
            return std::ptr::null_mut();
        }
        let room = libc::malloc(bytes.max(needed)).cast::<c_char>();
        if room.is_null() {
            return room;
        }
        room
    } else if bytes == 0 {
        errno::set(libc::EINVAL);
        return std::ptr::null_mut();
    } else if bytes < needed {
        errno::set(libc::ERANGE);
        return std::ptr::null_mut();
    } else {
        out
    };
    std::ptr::copy_nonoverlapping(path.as_ptr().cast(), room, path.len());
    *room.add(path.len()) = 0;
    room
});

hook!([__getcwd_chk](out: *mut c_char, bytes: size_t, room: size_t) -> *mut c_char {
    getcwd(out, bytes.min(room))
});

hook!([get_current_dir_name]() -> *mut c_char {
    getcwd(std::ptr::null_mut(), 0)
});

hook!([realpath](path: *const c_char, out: *mut c_char) -> *mut c_char {
    let Some(spot) = path::locate_end(AT_FDCWD, path, true) else { return real::realpath(path, out) };
    let found = match physical(&spot) {
        Ok(Answer::Done(found)) => found,
        Ok(Answer::Outside(path)) => return realpath(path.as_ptr(), out),
        Err(error) => {
            errno::set(error);
            return std::ptr::null_mut();
        }
    };
    if found.len() >= libc::PATH_MAX as usize {
        errno::set(libc::ENAMETOOLONG);
        return std::ptr::null_mut();
    }
    let room = if out.is_null() { libc::malloc(found.len() + 1).cast() } else { out };
    if !room.is_null() {
        std::ptr::copy_nonoverlapping(found.as_ptr().cast(), room, found.len());
        *room.add(found.len()) = 0;
    }
    room
});

hook!([canonicalize_file_name](path: *const c_char) -> *mut c_char {
    realpath(path, std::ptr::null_mut())
});

hook!([__realpath_chk](path: *const c_char, out: *mut c_char, room: size_t) -> *mut c_char {
    // Less room than the longest path is what the check is for.
    if room < libc::PATH_MAX as usize {
        libc::abort();
    }
    realpath(path, out)
});

fn virtual_cwd() -> Option<Vec<u8>> {
    (config::get().is_some() && !inside::is_inside() && cwd::is_virtual()).then(cwd::ours)?
}

/// The kernel's current directory has changed.
fn moved() {
    if let Some(config) = config::get().filter(|_| !inside::is_inside()) {
        let _ = inside::run(|| {
            cwd::changed(config);
            Ok(())
        });
    }
}

fn or_root(path: Vec<u8>) -> Vec<u8> {
    if path.is_empty() { b"/".to_vec() } else { path }
}

/// The full path, without symbolic links, of a directory that may be searched.
fn directory(spot: &Spot) -> Result<Answer<Vec<u8>>, c_int> {
    act::at(Family::Cwd, spot, async |scene, end| {
        let obj = match act::object(scene, end, true).await? {
            Step::Link(target) => return Ok(Step::Link(target)),
            Step::Done(obj) => obj,
        };
        if !obj.is_dir() {
            return Err(Error::bare(Code::NotDir));
        }
        scene.fs.oaccess(&obj, Access::EXECUTE)?;
        Ok(Step::Done(full(spot, end)))
    })
}

fn full(spot: &Spot, end: &End) -> Vec<u8> {
    let below = match end {
        End::Dir(dir) => dir.path.clone(),
        End::Name { dir, name, .. } => walk::below(&dir.path, name),
        End::Open(open, _) => open.path(),
        End::Outside(path) => return path.clone(),
    };
    or_root([&spot.prefix.path[..], &below].concat())
}

/// The full path of what exists, without symbolic links.
fn physical(spot: &Spot) -> Result<Answer<Vec<u8>>, c_int> {
    act::at(Family::Cwd, spot, async |scene, end| match act::object(scene, end, true).await? {
        Step::Link(target) => Ok(Step::Link(target)),
        Step::Done(_) => Ok(Step::Done(full(spot, end))),
    })
}
