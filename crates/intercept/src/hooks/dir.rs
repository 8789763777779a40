//! Directory streams.
//!
//! A stream of ours is told from one of the C library's by its first word: theirs begins with a
//! descriptor, which is never negative.

use super::open::open_spot;
use crate::act::{self, Answer};
use crate::listing::{Entry, Listing};
use crate::open::Open;
use crate::path;
use crate::report::Family;
use crate::{errno, real, table};
use dfs::FileKind;
use libc::{AT_FDCWD, DIR, c_char, c_int, c_long, c_void, dirent, size_t, ssize_t};
use parking_lot::Mutex;
use preload::hook;
use std::sync::Arc;

/// The lower half is a negative descriptor.
const MAGIC: u64 = 0x617a_6469_f5a2_b6e1;

#[repr(C)]
struct Stream {
    magic: u64,
    fd: c_int,
    inner: Mutex<Inner>,
}

struct Inner {
    listing: Listing,
    entry: dirent,
}

/// The stream behind a pointer, if it is one of ours.
///
/// # Safety
/// Null or a stream.
unsafe fn ours<'a>(dir: *mut DIR) -> Option<&'a Stream> {
    let stream = dir.cast::<Stream>();
    // SAFETY: streams of either kind are longer than a word and aligned to one.
    if dir.is_null() || unsafe { (*stream).magic } != MAGIC {
        return None;
    }
    // SAFETY: the word says that it is ours; it lives until it is closed.
    Some(unsafe { &*stream })
}

fn make(fd: c_int) -> *mut DIR {
    // SAFETY: all zeros are a valid entry.
    let entry = unsafe { std::mem::zeroed() };
    let inner = Mutex::new(Inner { listing: Listing::new(), entry });
    Box::into_raw(Box::new(Stream { magic: MAGIC, fd, inner })).cast()
}

hook!([opendir](path: *const c_char) -> *mut DIR {
    let Some(spot) = path::locate_end(AT_FDCWD, path, true) else { return real::opendir(path) };
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    match open_spot(&spot, flags, 0) {
        Ok(Answer::Done(fd)) => make(fd),
        Ok(Answer::Outside(path)) => real::opendir(path.as_ptr()),
        Err(error) => {
            errno::set(error);
            std::ptr::null_mut()
        }
    }
});

hook!([fdopendir](fd: c_int) -> *mut DIR {
    let Some(open) = table::get(fd) else { return real::fdopendir(fd) };
    if open.kind() != FileKind::Directory {
        errno::set(libc::ENOTDIR);
        return std::ptr::null_mut();
    }
    make(fd)
});

hook!([closedir](dir: *mut DIR) -> c_int {
    let Some(stream) = ours(dir) else { return real::closedir(dir) };
    let fd = stream.fd;
    let stream = dir.cast::<Stream>();
    (*stream).magic = 0;
    drop(Box::from_raw(stream));
    super::descriptor::close(fd)
});

hook!([dirfd](dir: *mut DIR) -> c_int {
    match ours(dir) {
        None => real::dirfd(dir),
        Some(stream) => stream.fd,
    }
});

hook!([readdir readdir64](dir: *mut DIR) -> *mut dirent {
    let Some(stream) = ours(dir) else { return real::readdir64(dir) };
    let mut inner = stream.inner.lock();
    let Inner { listing, entry } = &mut *inner;
    match next(stream, listing) {
        Ok(Some(found)) => {
            fill(entry, &found);
            std::ptr::from_mut(entry)
        }
        Ok(None) => std::ptr::null_mut(),
        Err(error) => {
            errno::set(error);
            std::ptr::null_mut()
        }
    }
});

hook!([readdir_r readdir64_r](
    dir: *mut DIR, entry: *mut dirent, out: *mut *mut dirent
) -> c_int {
    let Some(stream) = ours(dir) else { return real::readdir64_r(dir, entry, out) };
    let mut inner = stream.inner.lock();
    *out = std::ptr::null_mut();
    match next(stream, &mut inner.listing) {
        Ok(Some(found)) => {
            fill(&mut *entry, &found);
            *out = entry;
            0
        }
        Ok(None) => 0,
        Err(error) => error,
    }
});

hook!([rewinddir](dir: *mut DIR) -> () {
    match ours(dir) {
        None => real::rewinddir(dir),
        Some(stream) => stream.inner.lock().listing = Listing::new(),
    }
});

hook!([telldir](dir: *mut DIR) -> c_long {
    match ours(dir) {
        None => real::telldir(dir),
        Some(stream) => stream.inner.lock().listing.place() as c_long,
    }
});

hook!([seekdir](dir: *mut DIR, place: c_long) -> () {
    let Some(stream) = ours(dir) else { return real::seekdir(dir, place) };
    let mut inner = stream.inner.lock();
    if let (Some(open), Ok(place)) = (table::get(stream.fd), u64::try_from(place)) {
        // The function cannot fail; the next read tells.
        let _ = act::run(Family::Dir, &open, async |fs, obj| {
            inner.listing.seek(fs, obj, place).await
        });
    }
});

hook!([getdents64](fd: c_int, out: *mut c_void, bytes: size_t) -> ssize_t {
    match table::get(fd) {
        None => real::getdents64(fd, out, bytes),
        Some(open) => errno::number(records(&open, out.cast(), bytes).map(|n| n as ssize_t)),
    }
});

fn next(stream: &Stream, listing: &mut Listing) -> Result<Option<Entry>, c_int> {
    let open = table::get(stream.fd).ok_or(libc::EBADF)?;
    act::run(Family::Dir, &open, async |fs, obj| listing.next(fs, obj).await)
}

/// Bytes of an entry before its name.
const HEAD_BYTES: usize = std::mem::offset_of!(dirent, d_name);

/// Bytes of an entry, aligned.
fn record_bytes(name: &[u8]) -> usize {
    (HEAD_BYTES + name.len() + 1).next_multiple_of(align_of::<dirent>())
}

fn fill(out: &mut dirent, found: &Entry) {
    out.d_ino = found.ino;
    out.d_off = found.place as i64 + 1;
    out.d_reclen = record_bytes(&found.name) as u16;
    out.d_type = found.kind;
    // Names are limited to what has room.
    for (place, byte) in out.d_name.iter_mut().zip(found.name.iter().chain([&0])) {
        *place = *byte as c_char;
    }
}

/// As many entries as have room.
fn records(open: &Arc<Open>, out: *mut u8, bytes: usize) -> Result<usize, c_int> {
    if open.kind() != FileKind::Directory {
        return Err(libc::ENOTDIR);
    }
    let mut listing = open.listing.lock();
    let used = act::run(Family::Dir, open, async |fs, obj| {
        let listing = listing.get_or_insert_with(Listing::new);
        let mut used = 0;
        while let Some(found) = listing.next(fs, obj).await? {
            let needed = record_bytes(&found.name);
            if used + needed > bytes {
                listing.back();
                return Ok(if used == 0 { None } else { Some(used) });
            }
            // SAFETY: all zeros are a valid entry.
            let mut entry: dirent = unsafe { std::mem::zeroed() };
            fill(&mut entry, &found);
            // SAFETY: there is room for the record, which is no longer than an entry.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    std::ptr::from_ref(&entry).cast::<u8>(),
                    out.add(used),
                    needed.min(size_of::<dirent>()),
                );
            }
            used += needed;
        }
        Ok(Some(used))
    })?;
    used.ok_or(libc::EINVAL)
}
