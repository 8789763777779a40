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
use perthread::ForkRwLock;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicUsize, Ordering};

/// Numbers with a byte of their own; nothing of ours has a higher one.
pub const NUMBERS: usize = 1 << 16;
const OURS: u8 = 1;
const INTERNAL: u8 = 2;
/// As internal, but inherited: the page of an open file.
const PAGE: u8 = 3;
/// Connections' numbers begin at three quarters of what the process may have, or of this.
const INTERNAL_FROM: u64 = 4096;

static MARKS: [AtomicU8; NUMBERS] = [const { AtomicU8::new(0) }; NUMBERS];
static TABLE: ForkRwLock<Option<HashMap<c_int, Arc<Open>, FixedState>>> = ForkRwLock::new(None);
/// How many are ours.
static COUNT: AtomicUsize = AtomicUsize::new(0);
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
    matches!(mark(fd), INTERNAL | PAGE)
}

/// False when no descriptor of the process is ours.
#[inline]
pub fn any() -> bool {
    COUNT.load(Ordering::Acquire) > 0
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
    if old.is_none() {
        COUNT.fetch_add(1, Ordering::AcqRel);
    }
    drop(old);
}

/// Takes a descriptor out; the caller closes or replaces it in the kernel.
pub fn take(fd: c_int) -> Option<Arc<Open>> {
    let mut table = TABLE.write();
    let taken = table.as_mut()?.remove(&fd);
    if taken.is_some() {
        set_mark(fd, 0);
        COUNT.fetch_sub(1, Ordering::AcqRel);
    }
    taken
}

/// A new descriptor, the lowest free number, for an open file. The thread must be inside.
pub fn give(open: Arc<Open>, close_on_exec: bool) -> Result<c_int, c_int> {
    let command = if close_on_exec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    let door = if HANDS_ON.load(Ordering::Relaxed) && !close_on_exec {
        open.publish().map_err(|error| error.errno())?
    } else {
        None
    };
    let model = match &door {
        Some(door) => door.as_raw_fd(),
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
    let made = keep(head::door().map_err(|error| error.raw_os_error())?).into_raw_fd();
    match PLACEHOLDER.compare_exchange(-1, made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(made),
        Err(other) => {
            // SAFETY: just made, and known to nobody.
            drop(unsafe { OwnedFd::from_raw_fd(made) });
            Ok(other)
        }
    }
}

/// Puts a door, or the descriptor of a page, in the place of what stood for an open file.
pub fn replace_kernel_file(fd: c_int, door: BorrowedFd<'_>) {
    // SAFETY: plain numbers.
    unsafe {
        let flags = real::fcntl64(fd, libc::F_GETFD, 0);
        let flags = if flags & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
        real::dup3(door.as_raw_fd(), fd, flags);
    }
}

/// Moves a descriptor of this library's own out of the program's way and marks it.
pub fn keep(fd: OwnedFd) -> OwnedFd {
    let moved = rustix::io::fcntl_dupfd_cloexec(&fd, first_internal()).unwrap_or(fd);
    set_mark(moved.as_raw_fd(), INTERNAL);
    moved
}

fn first_internal() -> c_int {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    (limit.unwrap_or(INTERNAL_FROM).min(INTERNAL_FROM) * 3 / 4) as c_int
}

/// A duplicate of a page's descriptor that programs inherit, out of the program's way and marked.
/// None when there is no number for it.
pub fn keep_for_children(page: &OwnedFd) -> Option<OwnedFd> {
    // SAFETY: plain numbers.
    let fd = unsafe { real::fcntl64(page.as_raw_fd(), libc::F_DUPFD, first_internal() as u64) };
    if fd < 0 {
        return None;
    }
    // SAFETY: just made, and known to nobody.
    let kept = unsafe { OwnedFd::from_raw_fd(fd) };
    set_mark(fd, PAGE);
    Some(kept)
}

/// Closes a descriptor of this library's own, whether the thread is inside or not.
pub fn let_go(fd: OwnedFd) {
    let fd = fd.into_raw_fd();
    set_mark(fd, 0);
    // SAFETY: it was owned.
    unsafe { real::close(fd) };
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
    let (mut pages, mut doors) = (Vec::new(), Vec::new());
    for fd in numbers.collect::<Vec<c_int>>() {
        let Some(link) = link_of(fd) else { continue };
        // SAFETY: plain numbers.
        let is_path = || unsafe { real::fcntl64(fd, libc::F_GETFL, 0) } & libc::O_PATH != 0;
        match socket_inode(&link) {
            Some(inode) => doors.push((fd, inode)),
            None if !head::is_name(&link) => {}
            None if is_path() => adopt(fd),
            None => pages.push(fd),
        }
    }
    for fd in pages {
        set_mark(fd, PAGE);
        // SAFETY: inherited for this, and known to nobody else.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        let Some((page, about)) = head::Page::again(file) else { continue };
        let own: Vec<c_int> = doors
            .iter()
            .filter(|(_, inode)| page.head().has_door(*inode))
            .map(|(fd, _)| *fd)
            .collect();
        // One whose doors were all closed is closed here.
        if own.is_empty() {
            continue;
        }
        match Open::adopt(page, &about) {
            Some(open) => own.into_iter().for_each(|fd| put(fd, open.clone())),
            None => stranger(own[0]),
        }
    }
}

/// What `/proc/self/fd` shows for a descriptor that may be ours.
fn link_of(fd: c_int) -> Option<Vec<u8>> {
    if fd < 0 || fd as usize >= NUMBERS || is_internal(fd) {
        return None;
    }
    let link = rustix::fs::readlink(format!("/proc/self/fd/{fd}"), Vec::new()).ok()?;
    Some(link.into_bytes())
}

fn socket_inode(link: &[u8]) -> Option<u64> {
    let number = link.strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

fn stranger(fd: c_int) {
    crate::report::log(
        crate::report::Level::Warn,
        format_args!("descriptor {fd} is of a file system that is not configured here"),
    );
}

/// Takes a descriptor that came from another process through a socket into the table if it is ours.
pub fn adopt(fd: c_int) {
    if !link_of(fd).is_some_and(|link| head::is_name(&link)) {
        return;
    }
    // SAFETY: looked at only; when it is closed meanwhile the look fails.
    let Some((open, door)) = open::adopt(unsafe { BorrowedFd::borrow_raw(fd) }) else {
        return stranger(fd);
    };
    // A description that the process has already: its door is.
    let twin = numbers_of(&open).first().copied();
    put(fd, open);
    if let Some(door) = door {
        replace_kernel_file(fd, door.as_fd());
    } else if let Some(twin) = twin {
        // SAFETY: a descriptor of the table's.
        replace_kernel_file(fd, unsafe { BorrowedFd::borrow_raw(twin) });
    }
}

/// Holds inherited files that have no name any more, and locks: the servers keep them only a moment
/// longer than whoever held them before.
pub fn hold_inherited() {
    for (_, open) in all() {
        let marks = open.head().marks.load(Ordering::Relaxed);
        if open.is_shared() && marks & head::UNLINKED != 0 {
            let _ = crate::act::run(crate::report::Family::Open, &open, async |_, _| Ok(()));
        }
        crate::locks::join(&open);
    }
}

/// Before a fork.
pub fn fork_lock() {
    TABLE.hold();
}

/// After it, on both sides.
///
/// # Safety
/// By the thread that called [`fork_lock`], or its copy.
pub unsafe fn fork_unlock() {
    // SAFETY: by the caller's promise.
    unsafe { TABLE.release() };
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
    COUNT.store(0, Ordering::Release);
    let Some(old) = old else { return };
    if config::get().is_some() {
        let mut fresh: HashMap<u64, Arc<Open>> = HashMap::new();
        for (fd, open) in &old {
            let again = fresh.get(&open.id).cloned().or_else(|| {
                let made = inherited(*fd, open)?;
                fresh.insert(open.id, made.clone());
                Some(made)
            });
            match again {
                Some(again) => put(*fd, again),
                None => set_mark(*fd, 0),
            }
        }
        // Pages of files that the parent was just closing.
        let known: Vec<c_int> = fresh.values().map(|open| open.page_fd()).collect();
        for (fd, mark) in MARKS.iter().enumerate() {
            let fd = fd as c_int;
            if mark.load(Ordering::Relaxed) == PAGE && !known.contains(&fd) {
                // SAFETY: nobody here uses it.
                let_go(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
    }
    // What the parent's threads may hold is left where it is.
    std::mem::forget(old);
}

/// What an open file of the parent's is in this process.
fn inherited(fd: c_int, open: &Open) -> Option<Arc<Open>> {
    match open.page_fd() {
        page if page >= 0 => {
            // SAFETY: the parent's copy of the owner is never dropped here.
            let (page, about) = head::Page::again(unsafe { OwnedFd::from_raw_fd(page) })?;
            Open::adopt(page, &about)
        }
        _ => {
            // SAFETY: the table's descriptors exist.
            let (open, door) = open::adopt(unsafe { BorrowedFd::borrow_raw(fd) })?;
            if let Some(door) = door {
                replace_kernel_file(fd, door.as_fd());
            }
            Some(open)
        }
    }
}
