//! Functions of the C library that list directories by themselves: `scandir`, `glob`, `ftw`.

use super::descriptor::close;
use super::dir::{closedir, fdopendir, opendir, readdir};
use super::stat::{lstat, stat};
use crate::report::{self, Family};
use crate::{config, errno, inside, path, real, walk};
use libc::{AT_FDCWD, DIR, c_char, c_int, c_void, dirent};
use preload::hook;
use real::Callback;

type Select = unsafe extern "C-unwind" fn(*const dirent) -> c_int;
type Compare = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;

hook!([scandir scandir64](
    path: *const c_char, out: *mut *mut *mut dirent, select: Callback, compare: Callback
) -> c_int {
    scandirat(AT_FDCWD, path, out, select, compare)
});

hook!([scandirat scandirat64](
    dir: c_int, path: *const c_char, out: *mut *mut *mut dirent, select: Callback,
    compare: Callback
) -> c_int {
    if path::locate_end(dir, path, true).is_none() {
        return real::scandirat64(dir, path, out, select, compare);
    }
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let fd = super::open::openat(dir, path, flags, 0);
    if fd < 0 {
        return -1;
    }
    let stream = fdopendir(fd);
    if stream.is_null() {
        close(fd);
        return -1;
    }
    let chosen = entries(stream, select);
    closedir(stream);
    match chosen {
        Ok(list) => hand_over(list, out, compare),
        Err(error) => errno::zero(Err(error)),
    }
});

/// Copies of the entries that are selected, in memory of `malloc`'s.
///
/// # Safety
/// A stream; null or a function.
unsafe fn entries(stream: *mut DIR, select: Callback) -> Result<Vec<*mut dirent>, c_int> {
    let mut list: Vec<*mut dirent> = Vec::new();
    // SAFETY: a function of this form by the caller's promise.
    let select =
        (!select.is_null()).then(|| unsafe { std::mem::transmute::<Callback, Select>(select) });
    loop {
        errno::set(0);
        // SAFETY: the stream is open.
        let entry = unsafe { readdir(stream) };
        if entry.is_null() {
            break match errno::get() {
                0 => Ok(list),
                error => {
                    // SAFETY: made below.
                    list.into_iter().for_each(|one| unsafe { libc::free(one.cast()) });
                    Err(error)
                }
            };
        }
        // SAFETY: the entry is valid until the next one.
        unsafe {
            if select.is_some_and(|select| select(entry) == 0) {
                continue;
            }
            let bytes = usize::from((*entry).d_reclen);
            let copy = libc::malloc(bytes).cast::<dirent>();
            if copy.is_null() {
                list.into_iter().for_each(|one| libc::free(one.cast()));
                return Err(libc::ENOMEM);
            }
            std::ptr::copy_nonoverlapping(entry.cast::<u8>(), copy.cast::<u8>(), bytes);
            list.push(copy);
        }
    }
}

/// Sorts entries and gives them to the caller.
///
/// # Safety
/// A place for the list; null or a function.
unsafe fn hand_over(
    list: Vec<*mut dirent>,
    out: *mut *mut *mut dirent,
    compare: Callback,
) -> c_int {
    let bytes = list.len().max(1) * size_of::<*mut dirent>();
    // SAFETY: room for all of them is asked for and checked; the function has this form by the
    // caller's promise.
    unsafe {
        let room = libc::malloc(bytes).cast::<*mut dirent>();
        if room.is_null() {
            list.into_iter().for_each(|one| libc::free(one.cast()));
            return errno::zero(Err(libc::ENOMEM));
        }
        std::ptr::copy_nonoverlapping(list.as_ptr(), room, list.len());
        if !compare.is_null() {
            let compare = std::mem::transmute::<Callback, Compare>(compare);
            libc::qsort(room.cast(), list.len(), size_of::<*mut dirent>(), Some(compare));
        }
        *out = room;
    }
    list.len() as c_int
}

/// `glob_t`, with the functions that `GLOB_ALTDIRFUNC` asks for.
#[repr(C)]
struct Glob {
    count: usize,
    paths: *mut *mut c_char,
    offset: usize,
    flags: c_int,
    close: Callback,
    read: Callback,
    open: Callback,
    lstat: Callback,
    stat: Callback,
}

const GLOB_ALTDIRFUNC: c_int = 1 << 9;

hook!([glob glob64](
    pattern: *const c_char, flags: c_int, error: Callback, out: *mut libc::glob_t
) -> c_int {
    let is_plain = flags & GLOB_ALTDIRFUNC == 0 && config::get().is_some();
    if !is_plain || inside::is_inside() {
        return real::glob64(pattern, flags, error, out);
    }
    let glob = out.cast::<Glob>();
    (*glob).close = closedir as *const () as Callback;
    (*glob).read = readdir as *const () as Callback;
    (*glob).open = opendir as *const () as Callback;
    (*glob).lstat = lstat as *const () as Callback;
    (*glob).stat = stat as *const () as Callback;
    real::glob64(pattern, flags | GLOB_ALTDIRFUNC, error, out)
});

/// `struct FTW`.
#[repr(C)]
struct Place {
    base: c_int,
    level: c_int,
}

type Each =
    unsafe extern "C-unwind" fn(*const c_char, *const libc::stat, c_int, *mut Place) -> c_int;
type EachShort = unsafe extern "C-unwind" fn(*const c_char, *const libc::stat, c_int) -> c_int;

// From `<ftw.h>`: what an object is, flags, and what the function may answer.
const FTW_F: c_int = 0;
const FTW_D: c_int = 1;
const FTW_DNR: c_int = 2;
const FTW_NS: c_int = 3;
const FTW_SL: c_int = 4;
const FTW_DP: c_int = 5;
const FTW_SLN: c_int = 6;
const FTW_PHYS: c_int = 1;
const FTW_MOUNT: c_int = 2;
const FTW_CHDIR: c_int = 4;
const FTW_DEPTH: c_int = 8;
const FTW_ACTIONRETVAL: c_int = 16;
const FTW_SKIP_SUBTREE: c_int = 2;
const FTW_SKIP_SIBLINGS: c_int = 3;

hook!([nftw nftw64](path: *const c_char, each: Callback, depth: c_int, flags: c_int) -> c_int {
    if path::locate_end(AT_FDCWD, path, true).is_none() {
        return real::nftw64(path, each, depth, flags);
    }
    let each = std::mem::transmute::<Callback, Each>(each);
    walk_tree(path, flags, &mut |path, stat, kind, place| each(path, stat, kind, place))
});

hook!([ftw ftw64](path: *const c_char, each: Callback, depth: c_int) -> c_int {
    if path::locate_end(AT_FDCWD, path, true).is_none() {
        return real::ftw64(path, each, depth);
    }
    let each = std::mem::transmute::<Callback, EachShort>(each);
    walk_tree(path, 0, &mut |path, stat, kind, _| each(path, stat, kind))
});

type Visit<'a> = &'a mut dyn FnMut(*const c_char, *const libc::stat, c_int, *mut Place) -> c_int;

/// Walks a tree.
///
/// # Safety
/// A string.
unsafe fn walk_tree(start: *const c_char, flags: c_int, visit: Visit<'_>) -> c_int {
    report::taken(Family::Dir);
    if flags & FTW_CHDIR != 0 {
        return errno::zero(Err(libc::EOPNOTSUPP));
    }
    // SAFETY: by the caller's promise.
    let Some(path) = (unsafe { path::bytes(start) }) else {
        return errno::zero(Err(libc::EFAULT));
    };
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(path.len().min(1), |at| at + 1);
    let mut tree = Tree { flags, visit, device: None, above: Vec::new() };
    tree.at(path[..end].to_vec(), 0)
}

struct Tree<'a> {
    flags: c_int,
    visit: Visit<'a>,
    device: Option<u64>,
    /// Directories on the way, to see a link that leads back.
    above: Vec<(u64, u64)>,
}

impl Tree<'_> {
    /// Visits a path and what is below it; not 0: stop.
    fn at(&mut self, path: Vec<u8>, level: c_int) -> c_int {
        let base = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let mut text = path.clone();
        text.push(0);
        let text = text.as_ptr().cast::<c_char>();
        // SAFETY: all zeros are a valid value.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: a string and room.
        let physical = unsafe { lstat(text, &mut found) } == 0;
        if !physical && level == 0 {
            return -1;
        }
        let mut place = Place { base: base as c_int, level };
        let is_link = physical && found.st_mode & libc::S_IFMT == libc::S_IFLNK;
        let mut dangling = false;
        if is_link && self.flags & FTW_PHYS == 0 {
            let link = found;
            // SAFETY: as above.
            dangling = unsafe { stat(text, &mut found) } != 0;
            if dangling {
                found = link;
            }
        }
        let kind = match found.st_mode & libc::S_IFMT {
            _ if !physical => FTW_NS,
            _ if dangling => FTW_SLN,
            libc::S_IFLNK => FTW_SL,
            libc::S_IFDIR => FTW_D,
            _ => FTW_F,
        };
        if self.flags & FTW_MOUNT != 0 && *self.device.get_or_insert(found.st_dev) != found.st_dev {
            return 0;
        }
        let answer = |answer: c_int, actions: bool| match answer {
            FTW_SKIP_SIBLINGS if actions => FTW_SKIP_SIBLINGS,
            FTW_SKIP_SUBTREE if actions => 0,
            other => other,
        };
        let actions = self.flags & FTW_ACTIONRETVAL != 0;
        if kind != FTW_D {
            return answer((self.visit)(text, &found, kind, &mut place), actions);
        }
        let own = (found.st_dev, found.st_ino);
        if self.above.contains(&own) {
            return 0;
        }
        let before = self.flags & FTW_DEPTH == 0;
        // SAFETY: a string.
        let stream = unsafe { opendir(text) };
        if stream.is_null() {
            return answer((self.visit)(text, &found, FTW_DNR, &mut place), actions);
        }
        let mut names: Vec<Vec<u8>> = Vec::new();
        loop {
            // SAFETY: the stream is open, an entry valid until the next.
            let entry = unsafe { readdir(stream) };
            if entry.is_null() {
                break;
            }
            // SAFETY: as above.
            let name = unsafe { std::ffi::CStr::from_ptr((*entry).d_name.as_ptr()) };
            if !matches!(name.to_bytes(), b"." | b"..") {
                names.push(name.to_bytes().to_vec());
            }
        }
        // SAFETY: opened above.
        unsafe { closedir(stream) };
        if before {
            let said = (self.visit)(text, &found, FTW_D, &mut place);
            if said != 0 {
                return answer(said, actions);
            }
        }
        self.above.push(own);
        for name in names {
            let parent = path.strip_suffix(b"/").unwrap_or(&path);
            match self.at(walk::below(parent, &name), level + 1) {
                0 => {}
                FTW_SKIP_SIBLINGS if actions => break,
                stop => {
                    self.above.pop();
                    return stop;
                }
            }
        }
        self.above.pop();
        if before { 0 } else { answer((self.visit)(text, &found, FTW_DP, &mut place), actions) }
    }
}
