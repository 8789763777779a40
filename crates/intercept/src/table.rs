//! Which descriptors are ours.
//!
//! One byte per number says whether a descriptor is a file of ours, or belongs to this library's
//! own connections, or is none of our business; most calls look at nothing else.
//!
//! Invariant: a number is marked before the program can know it, and unmarked before the kernel
//! may give it to somebody else.

use crate::head;
use crate::open::{self, Open};
use crate::{config, errno, inside, real};
use foldhash::fast::FixedState;
use libc::c_int;
use parking_lot::RwLock;
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};

/// Numbers with a byte of their own; nothing of ours has a higher one.
pub const NUMBERS: usize = 1 << 16;
const OURS: u8 = 1;
const INTERNAL: u8 = 2;
/// Connections' numbers begin at three quarters of what the process may have, or of this.
const INTERNAL_FROM: u64 = 4096;

static MARKS: [AtomicU8; NUMBERS] = [const { AtomicU8::new(0) }; NUMBERS];
static TABLE: RwLock<Option<HashMap<c_int, Arc<Open>, FixedState>>> = RwLock::new(None);
/// A descriptor that can be duplicated for files that only this process has; -1: not made yet.
static PLACEHOLDER: AtomicI32 = AtomicI32::new(-1);
/// The process was made by `fork` and may be about to execute a program in ways that are not seen.
static HANDS_ON: AtomicBool = AtomicBool::new(false);

#[inline]
fn mark(fd: c_int) -> u8 {
    match MARKS.get(fd as usize) {
        Some(mark) => mark.load(Ordering::Acquire),
        None => 0,
    }
}

/// True for files of ours, seen from the program.
#[inline]
pub fn is_ours(fd: c_int) -> bool {
    mark(fd) == OURS && !inside::is_inside()
}

/// True for descriptors of this library's own.
#[inline]
pub fn is_internal(fd: c_int) -> bool {
    mark(fd) == INTERNAL
}

/// The open file behind a descriptor of the program's.
#[inline]
pub fn get(fd: c_int) -> Option<Arc<Open>> {
    if !is_ours(fd) {
        return None;
    }
    find(fd)
}

/// The same, whether the thread is inside or not.
pub fn find(fd: c_int) -> Option<Arc<Open>> {
    TABLE.read().as_ref()?.get(&fd).cloned()
}

/// All open files, one descriptor of each.
pub fn all() -> Vec<(c_int, Arc<Open>)> {
    let table = TABLE.read();
    let mut seen = std::collections::HashSet::new();
    let all = table.iter().flatten().filter(|(_, open)| seen.insert(open.id));
    all.map(|(fd, open)| (*fd, open.clone())).collect()
}

/// All descriptors of an open file.
pub fn numbers_of(open: &Open) -> Vec<c_int> {
    let table = TABLE.read();
    table.iter().flatten().filter(|(_, other)| other.id == open.id).map(|(fd, _)| *fd).collect()
}

/// All descriptors of ours at or above a number.
pub fn numbers_from(first: c_int) -> Vec<c_int> {
    let table = TABLE.read();
    table.iter().flatten().map(|(fd, _)| *fd).filter(|fd| *fd >= first).collect()
}

/// True while an open file has this number.
pub fn is_live(id: u64) -> bool {
    id < open::FIRST || TABLE.read().iter().flatten().any(|(_, open)| open.id == id)
}

fn set_mark(fd: c_int, value: u8) {
    if let Some(mark) = MARKS.get(fd as usize) {
        mark.store(value, Ordering::Release);
    }
}

/// Lets a descriptor that exists in the kernel stand for an open file.
pub fn put(fd: c_int, open: Arc<Open>) {
    let old = TABLE.write().get_or_insert_default().insert(fd, open);
    set_mark(fd, OURS);
    drop(old);
}

/// Takes a descriptor out; the caller closes or replaces it in the kernel.
pub fn take(fd: c_int) -> Option<Arc<Open>> {
    let mut table = TABLE.write();
    let taken = table.as_mut()?.remove(&fd);
    if taken.is_some() {
        set_mark(fd, 0);
    }
    taken
}

/// A new descriptor, the lowest free number, for an open file. The thread must be inside.
pub fn give(open: Arc<Open>, close_on_exec: bool) -> Result<c_int, c_int> {
    let command = if close_on_exec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    let page = if HANDS_ON.load(Ordering::Relaxed) && !close_on_exec {
        open.publish().map_err(|error| error.errno())?
    } else {
        None
    };
    let model = match &page {
        Some(page) => page.as_raw_fd(),
        None => placeholder()?,
    };
    // SAFETY: plain numbers.
    let fd = unsafe { real::fcntl64(model, command, 0) };
    if fd < 0 {
        return Err(errno::get());
    }
    if fd as usize >= NUMBERS {
        // SAFETY: just made, and known to nobody.
        unsafe { real::close(fd) };
        return Err(libc::EMFILE);
    }
    put(fd, open);
    Ok(fd)
}

fn placeholder() -> Result<c_int, c_int> {
    let known = PLACEHOLDER.load(Ordering::Acquire);
    if known >= 0 {
        return Ok(known);
    }
    let made = keep(head::placeholder().map_err(|error| error.errno())?).into_raw_fd();
    match PLACEHOLDER.compare_exchange(-1, made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(made),
        Err(other) => {
            // SAFETY: just made, and known to nobody.
            drop(unsafe { OwnedFd::from_raw_fd(made) });
            Ok(other)
        }
    }
}

/// Puts the descriptor of a page in the place of one that only this process understood.
pub fn replace_kernel_file(fd: c_int, page: &OwnedFd) {
    // SAFETY: plain numbers.
    unsafe {
        let flags = real::fcntl64(fd, libc::F_GETFD, 0);
        let flags = if flags & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
        real::dup3(page.as_raw_fd(), fd, flags);
    }
}

/// Moves a descriptor of this library's own out of the program's way and marks it.
pub fn keep(fd: OwnedFd) -> OwnedFd {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let from = limit.unwrap_or(INTERNAL_FROM).min(INTERNAL_FROM) * 3 / 4;
    let moved = rustix::io::fcntl_dupfd_cloexec(&fd, from as c_int).unwrap_or(fd);
    set_mark(moved.as_raw_fd(), INTERNAL);
    moved
}

/// A descriptor of this library's own is closed.
pub fn unkeep(fd: c_int) {
    set_mark(fd, 0);
}

/// Files of ours among the descriptors that the process has inherited. Called when the library is
/// loaded.
pub fn adopt_inherited() {
    let Ok(list) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers = list.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    for fd in numbers.collect::<Vec<c_int>>() {
        adopt(fd);
    }
}

/// Takes a descriptor that came from another process into the table if it is ours.
pub fn adopt(fd: c_int) {
    if fd < 0 || fd as usize >= NUMBERS || mark(fd) == INTERNAL {
        return;
    }
    // SAFETY: looked at only; when it is closed meanwhile the look fails.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let Ok(link) = rustix::fs::readlink(format!("/proc/self/fd/{fd}"), Vec::new()) else { return };
    if !head::is_name(link.as_bytes()) {
        return;
    }
    match open::adopt(borrowed) {
        Some(open) => {
            // Two descriptors of one description: the kernel knows whether they are.
            let twin = all().into_iter().find(|(_, other)| same_page(other, &open));
            put(fd, twin.map_or(open, |(_, twin)| twin));
        }
        None => crate::report::log(
            crate::report::Level::Warn,
            format_args!("descriptor {fd} is of a file system that is not configured here"),
        ),
    }
}

fn same_page(one: &Open, other: &Open) -> bool {
    one.is_shared() && one.known().oid() == other.known().oid() && {
        // The offset is shared memory: a change through one is seen through the other.
        let (one, other) = (one.head(), other.head());
        let was = one.marks.fetch_xor(1 << 31, Ordering::SeqCst);
        let same = other.marks.load(Ordering::SeqCst) >> 31 != was >> 31;
        one.marks.fetch_xor(1 << 31, Ordering::SeqCst);
        same && !std::ptr::eq(one, other)
    }
}

/// Holds inherited files that have no name any more: their object lasts only a moment longer
/// than whoever held it before.
pub fn hold_unlinked() {
    for (_, open) in all() {
        if open.is_shared() && open.head().marks.load(Ordering::Relaxed) & head::UNLINKED != 0 {
            let _ = crate::act::run(crate::report::Family::Open, &open, async |_, _| Ok(()));
        }
    }
}

/// Before a fork.
pub fn fork_lock() {
    std::mem::forget(TABLE.write());
}

/// After it, on both sides.
///
/// # Safety
/// By the thread that called [`fork_lock`], or its copy.
pub unsafe fn fork_unlock() {
    // SAFETY: by the caller's promise.
    unsafe { TABLE.force_unlock_write() };
}

/// In a child made by `fork`: closes the parent's connections and makes its open files anew from
/// their pages, for their locks may be held by threads that are not here.
pub fn in_child() {
    HANDS_ON.store(true, Ordering::Relaxed);
    PLACEHOLDER.store(-1, Ordering::Release);
    for (fd, mark) in MARKS.iter().enumerate() {
        if mark.load(Ordering::Relaxed) == INTERNAL {
            mark.store(0, Ordering::Relaxed);
            // SAFETY: of the parent's connections nothing is used any more.
            unsafe { real::close(fd as c_int) };
        }
    }
    let old = TABLE.write().take();
    let Some(old) = old else { return };
    if config::get().is_some() {
        let mut fresh: HashMap<u64, Arc<Open>> = HashMap::new();
        for (fd, open) in &old {
            let again = fresh.get(&open.id).cloned().or_else(|| {
                // SAFETY: the table's descriptors exist.
                let made = open::adopt(unsafe { BorrowedFd::borrow_raw(*fd) })?;
                fresh.insert(open.id, made.clone());
                Some(made)
            });
            match again {
                Some(again) => put(*fd, again),
                None => set_mark(*fd, 0),
            }
        }
    }
    // What the parent's threads may hold is left where it is.
    std::mem::forget(old);
}
