//! Listing by path: opendir, readdir, closedir.

use super::{SysHandle, dfs_sys_t};
use crate::dfs::dir::put_entry;
use crate::dfs::{bad_handle, cookie_of, now, pointer_of};
use crate::{guard, handle};
use ::dfs::{DirAnchor, DirEntry, SharedObj};
use libc::{DIR, c_char, dirent};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use types::{Code, Error};

/// Entries listed at a time.
const PAGE_ENTRIES: u32 = 1024;

struct Listing {
    sys: u64,
    dir: SharedObj,
    state: Mutex<Cursor>,
}

struct Cursor {
    anchor: DirAnchor,
    page: VecDeque<DirEntry>,
    /// What the caller looks at until the next call.
    entry: Box<dirent>,
}

/// Opens a directory for listing; the result is for these functions only.
///
/// # Safety
/// `dir` is a C string; `dirp` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_opendir(
    dfs_sys: *mut dfs_sys_t,
    dir: *const c_char,
    flags: i32,
    dirp: *mut *mut DIR,
) -> i32 {
    now(async |local| {
        if dirp.is_null() {
            return Err(guard::null());
        }
        // SAFETY: the caller's promise.
        let path = unsafe { guard::text(dir) }?;
        let here = SysHandle::here(dfs_sys, local)?;
        let found = here.lookup(path, flags & libc::O_NOFOLLOW == 0).await?;
        if !found.is_dir() {
            return Err(Error::bare(Code::NotDir));
        }
        let state = Cursor {
            anchor: DirAnchor::start(),
            page: VecDeque::new(),
            // SAFETY: all of its members are integers.
            entry: Box::new(unsafe { std::mem::zeroed() }),
        };
        let sys = cookie_of(dfs_sys);
        let listing = Listing { sys, dir: found.share(), state: Mutex::new(state) };
        let cookie = handle::add(Arc::new(listing))?;
        // SAFETY: the caller's promise.
        unsafe { guard::put(dirp, pointer_of(cookie)) }
    })
}

/// Ends a listing.
///
/// # Safety
/// None is needed: `dirp` is a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_closedir(dirp: *mut DIR) -> i32 {
    guard::posix(|| handle::remove::<Listing>(cookie_of(dirp)).map(|_| ()).map_err(bad_handle))
}

/// The next entry; NULL at the end. What `*entry` points to stays until the next call.
///
/// # Safety
/// `entry` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sys_readdir(
    dfs_sys: *mut dfs_sys_t,
    dirp: *mut DIR,
    entry: *mut *mut dirent,
) -> i32 {
    now(async |local| {
        let listing = handle::get::<Listing>(cookie_of(dirp)).map_err(bad_handle)?;
        if listing.sys != cookie_of(dfs_sys) {
            return Err(Error::inval("the directory was opened in another mount"));
        }
        let mut anchor = {
            let state = listing.state.lock();
            // What is left of the last page needs no asking.
            state.page.is_empty().then(|| state.anchor.clone())
        };
        while let Some(at) = anchor.as_mut().filter(|at| !at.is_end()) {
            let here = SysHandle::here(dfs_sys, local)?;
            let dir = here.fs().attach(&listing.dir);
            let page = here.fs().readdir(&dir, at, PAGE_ENTRIES).await?;
            if page.is_empty() {
                continue;
            }
            let mut state = listing.state.lock();
            state.page.extend(page);
            state.anchor = at.clone();
            break;
        }
        let mut state = listing.state.lock();
        let Cursor { anchor: kept, page, entry: room } = &mut *state;
        if let Some(at) = anchor.filter(DirAnchor::is_end) {
            *kept = at;
        }
        let next = match page.pop_front() {
            Some(next) => {
                // SAFETY: the room is ours.
                unsafe { put_entry(&mut **room, &next) };
                &raw mut **room
            }
            None => std::ptr::null_mut(),
        };
        // SAFETY: the caller's promise.
        unsafe { guard::put(entry, next) }
    })
}
