//! What descriptions of one open file share beyond this process: the offset and status flags.
//!
//! POSIX makes both properties of the *open file description*, which `dup`, `fork` and `exec`
//! hand on. Within a process they are in ordinary memory. Before another process can get the
//! descriptor they move into a page of shared memory, a memory file with all that a program needs
//! to go on with it:
//!
//! | bytes | what |
//! |---|---|
//! | 64 | the [`Head`] |
//! | rest | [`About`] |
//!
//! The program's descriptor is a *door*: the name of a socket that was never connected to anything.
//! It can neither be read nor written, and unlike a file's cannot be opened once more by
//! its path in `/proc`, by nobody. The page has a descriptor of its own with a high number, which
//! programs inherit beside the door; it knows its doors by their inode numbers.
//!
//! Who reaches the door without this library gets an error, never other data. Only where a process has
//! no number left for the page, and on the way through a socket to another process, the program's
//! descriptor is that of the page itself, opened as a name (`O_PATH`) and sealed in its size.

use crate::about::About;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{FlockOperation, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use types::{Code, Error, Result};

const MAGIC: u64 = 0x0250_4143_4b5a_4101;
/// Most bytes of the memory file; no description is longer.
const PAGE_BYTES_MAX: usize = 16 << 10;
/// Doors that a page can have: one, and one for each process that got it through a socket.
const DOORS: usize = 3;
/// Name of the memory file, as `/proc/self/fd` shows it.
const NAME: &str = "azekura-open-file";
/// How long a lock may be waited for before its holder is looked for.
const PATIENCE: Duration = Duration::from_millis(20);

/// The file has no name any more.
pub const UNLINKED: u32 = 1;
/// The description is locked by `flock`, for sharing or not.
pub const FLOCK_SHARED: u32 = 2;
/// As above, exclusively.
pub const FLOCK_EXCLUSIVE: u32 = 4;
/// Ranges are locked for the description.
pub const RANGES: u32 = 8;
/// Something is locked for the description.
pub const LOCKED: u32 = FLOCK_SHARED | FLOCK_EXCLUSIVE | RANGES;
/// Marks from here on count how often the description came to be locked.
pub const TIMES: u32 = 1 << 8;

/// What descriptions of one open file share, in its page of memory.
#[repr(C)]
pub struct Head {
    magic: AtomicU64,
    /// Thread that works with it; 0: none.
    lock: AtomicU32,
    /// `O_APPEND`, `O_NONBLOCK` and the access mode.
    pub status: AtomicU32,
    /// Where the next read or write is.
    pub offset: AtomicI64,
    /// [`UNLINKED`] and what is [`LOCKED`].
    pub marks: AtomicU32,
    waiters: AtomicU32,
    /// Inode numbers of the doors; 0: none.
    doors: [AtomicU64; DOORS],
    /// Owner of its locks; 0: none yet.
    owner: AtomicU64,
}

const HEAD_BYTES: usize = size_of::<Head>();

impl Head {
    /// For a file just opened.
    pub fn new(status: u32) -> Head {
        Head {
            magic: AtomicU64::new(MAGIC),
            lock: AtomicU32::new(0),
            status: AtomicU32::new(status),
            offset: AtomicI64::new(0),
            marks: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
            doors: Default::default(),
            owner: AtomicU64::new(0),
        }
    }

    fn copy_from(&self, other: &Head) {
        let order = Ordering::Relaxed;
        self.status.store(other.status.load(order), order);
        self.offset.store(other.offset.load(order), order);
        self.marks.store(other.marks.load(order), order);
        self.owner.store(other.owner.load(order), order);
        self.lock.store(0, order);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// Who locks for the description, the same in all processes that have it.
    pub fn owner(&self) -> u64 {
        let known = self.owner.load(Ordering::SeqCst);
        if known != 0 {
            return known;
        }
        // Above the numbers of processes.
        let made = crate::temporary::random() | 1 << 63;
        match self.owner.compare_exchange(0, made, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => made,
            Err(other) => other,
        }
    }

    /// Enters a door. False when there is no place for one more.
    fn add_door(&self, inode: u64) -> bool {
        let order = Ordering::SeqCst;
        self.doors.iter().any(|door| door.compare_exchange(0, inode, order, order).is_ok())
    }

    /// True for the inode number of a door.
    pub fn has_door(&self, inode: u64) -> bool {
        inode != 0 && self.doors.iter().any(|door| door.load(Ordering::SeqCst) == inode)
    }

    /// Waits until no other thread, of whatever process, works with it. A holder that has died
    /// holds nothing.
    pub fn lock(&self) -> Locked<'_> {
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let mut spins = 0u32;
        loop {
            match self.lock.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Locked(self),
                Err(holder) => {
                    spins += 1;
                    if spins < 100 {
                        std::hint::spin_loop();
                        continue;
                    }
                    wait(&self.lock, holder);
                    if is_dead(holder) {
                        let taken = self.lock.compare_exchange(
                            holder,
                            own,
                            Ordering::Acquire,
                            Ordering::Relaxed,
                        );
                        if taken.is_ok() {
                            return Locked(self);
                        }
                    }
                }
            }
        }
    }
}

/// The lock of a [`Head`], free again when this is dropped.
pub struct Locked<'a>(&'a Head);

impl std::ops::Deref for Locked<'_> {
    type Target = Head;
    fn deref(&self) -> &Head {
        self.0
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.lock.store(0, Ordering::Release);
        // Waking costs a system call; who waits looks again after a while by itself, so it is
        // done only where somebody may: the word in a page of many processes cannot tell.
        if self.0.waiters.load(Ordering::Relaxed) > 0 {
            wake(&self.0.lock);
        }
    }
}

fn wait(word: &AtomicU32, holder: u32) {
    let head_spare = waiters_of(word);
    head_spare.fetch_add(1, Ordering::SeqCst);
    let time = libc::timespec { tv_sec: 0, tv_nsec: PATIENCE.as_nanos() as i64 };
    // SAFETY: the word outlives the call; the other arguments are as the call wants them.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, holder, &time) };
    head_spare.fetch_sub(1, Ordering::SeqCst);
}

/// The count of threads that wait for the lock of a head.
fn waiters_of(word: &AtomicU32) -> &AtomicU32 {
    let head = word.as_ptr().cast::<u8>().wrapping_sub(std::mem::offset_of!(Head, lock));
    // SAFETY: the word is the lock of a head, by the only caller.
    unsafe { &(*head.cast::<Head>()).waiters }
}

fn wake(word: &AtomicU32) {
    // SAFETY: the word is valid.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

fn is_dead(thread: u32) -> bool {
    // SAFETY: signal 0 asks only.
    let asked = unsafe { libc::syscall(libc::SYS_tkill, thread as libc::c_long, 0) };
    asked == -1 && crate::errno::get() == libc::ESRCH
}

/// A head in shared memory.
pub struct Page {
    start: std::ptr::NonNull<Head>,
    /// Inode number of the memory file: the same in all processes.
    inode: u64,
    /// The descriptor of the memory file; none when the program's descriptor is that.
    file: Option<OwnedFd>,
}

// SAFETY: a head is made of atomics.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// A new one that begins as `head` is; with the descriptor that stands for it. `keep` finds
    /// a place for the page's own descriptor, which programs inherit.
    pub fn create(
        head: &Head,
        about: &About,
        keep: impl FnOnce(&OwnedFd) -> Option<OwnedFd>,
    ) -> Result<(Page, OwnedFd)> {
        let failed = |errno: rustix::io::Errno| Error::io("making a descriptor", errno.into());
        let raw = about.encode();
        let bytes = HEAD_BYTES + raw.len();
        if bytes > PAGE_BYTES_MAX {
            return Err(Error::bare(Code::NameTooLong));
        }
        if !crate::size::fits(bytes as u64) {
            return Err(Error::new(Code::FileTooBig, "the limit of file sizes (`ulimit -f`)"));
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create(NAME, flags).map_err(failed)?;
        rustix::fs::ftruncate(&memory, bytes as u64).map_err(failed)?;
        rustix::io::pwrite(&memory, &raw, HEAD_BYTES as u64).map_err(failed)?;
        let size = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW;
        rustix::fs::fcntl_add_seals(&memory, size).map_err(failed)?;
        let mut page = Page::map(memory.as_fd()).map_err(failed)?;
        page.head().copy_from(head);
        let made = page.own(&memory, keep);
        Ok((page, made.map_or_else(|| name_of(&memory), Ok).map_err(failed)?))
    }

    /// Gives the page a descriptor of its own and a door. None when one of them is not to be had.
    pub fn own(
        &mut self,
        memory: &OwnedFd,
        keep: impl FnOnce(&OwnedFd) -> Option<OwnedFd>,
    ) -> Option<OwnedFd> {
        let door = door().ok()?;
        let inode = rustix::fs::fstat(&door).ok()?.st_ino;
        // Held by all who inherit the description of the page, until the last has closed it.
        rustix::fs::flock(memory, FlockOperation::NonBlockingLockShared).ok()?;
        let file = keep(memory)?;
        if !self.head().add_door(inode) {
            return None;
        }
        self.file = Some(file);
        Some(door)
    }

    /// The page that a program's descriptor is itself, and the page's file opened; none when it is
    /// something else.
    pub fn of(fd: BorrowedFd<'_>) -> Option<(Page, About, OwnedFd)> {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let name = rustix::fs::readlink(&*path, Vec::new()).ok()?;
        if !is_name(name.as_bytes()) {
            return None;
        }
        let memory =
            rustix::fs::open(&*path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let (page, about) = Page::read(memory.as_fd())?;
        Some((page, about, memory))
    }

    /// The page that a descriptor of the memory file leads to.
    pub fn read(memory: BorrowedFd<'_>) -> Option<(Page, About)> {
        let bytes = usize::try_from(rustix::fs::fstat(memory).ok()?.st_size).ok()?;
        if !(HEAD_BYTES..=PAGE_BYTES_MAX).contains(&bytes) {
            return None;
        }
        let mut raw = vec![0; bytes - HEAD_BYTES];
        let got = rustix::io::pread(memory, &mut raw, HEAD_BYTES as u64).ok()?;
        let about = About::decode(raw.get(..got)?)?;
        let page = Page::map(memory).ok()?;
        (page.head().magic.load(Ordering::Acquire) == MAGIC).then_some((page, about))
    }

    /// The same page for the process that a fork has made, which has inherited the descriptor.
    pub fn again(file: OwnedFd) -> Option<(Page, About)> {
        let (page, about) = Page::read(file.as_fd())?;
        Some((page.with_file(file), about))
    }

    fn with_file(mut self, file: OwnedFd) -> Page {
        self.file = Some(file);
        self
    }

    /// A descriptor of the page itself that can only be handed on.
    pub fn name(&self) -> Option<OwnedFd> {
        name_of(self.file.as_ref()?).ok()
    }

    /// The page's own descriptor.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(OwnedFd::as_fd)
    }

    /// Closes the page's own descriptor. True when no other process has it: the description ends.
    pub fn leave(&mut self) -> bool {
        let Some(file) = self.file.take() else { return false };
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let own = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        crate::table::let_go(file);
        own.is_ok_and(|own| {
            rustix::fs::flock(own, FlockOperation::NonBlockingLockExclusive).is_ok()
        })
    }

    /// Inode number of the memory file, by which two processes' pages are told apart.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    fn map(memory: BorrowedFd<'_>) -> rustix::io::Result<Page> {
        // Not by the same description: a mapping holds on to it, and its end is to be noticed.
        let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
        let own = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let null = std::ptr::null_mut();
        // SAFETY: a new mapping at no particular address overlaps nothing. The file has at least
        // this size and nobody who has it can make it smaller by accident.
        let start =
            unsafe { rustix::mm::mmap(null, HEAD_BYTES, access, MapFlags::SHARED, &own, 0) };
        let start = std::ptr::NonNull::new(start?.cast()).ok_or(rustix::io::Errno::NOMEM)?;
        let inode = rustix::fs::fstat(memory)?.st_ino;
        Ok(Page { start, inode, file: None })
    }

    pub fn head(&self) -> &Head {
        // SAFETY: mapped as long as the page lives; a head is valid whatever bytes it is made of.
        unsafe { self.start.as_ref() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            crate::table::let_go(file);
        }
        // SAFETY: it was mapped with this size and nobody uses it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), HEAD_BYTES) };
    }
}

/// True for the name that the kernel shows for a page's descriptor.
pub fn is_name(link: &[u8]) -> bool {
    link.strip_prefix(b"/memfd:").is_some_and(|name| name.starts_with(NAME.as_bytes()))
}

/// A descriptor that stands for an open file and is nothing that could be read, written or opened.
pub fn door() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    name_of(&socket)
}

/// A descriptor for the same that only names it.
fn name_of(fd: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about() -> About {
        About {
            url: b"azk://p/c".to_vec(),
            path: b"/a/b".to_vec(),
            cont: [7; 16],
            object: vec![1, 2, 3],
        }
    }

    #[test]
    fn a_page_is_found_again_through_its_descriptor() {
        let head = Head::new(2);
        head.offset.store(77, Ordering::Relaxed);
        let keep = |memory: &OwnedFd| memory.try_clone().ok();
        let (page, fd) = Page::create(&head, &about(), keep).unwrap();
        assert!(page.head().has_door(rustix::fs::fstat(&fd).unwrap().st_ino));
        let (other, found) = Page::read(page.file().unwrap()).unwrap();
        assert_eq!((found, other.inode()), (about(), page.inode()));
        assert_eq!(other.head().offset.load(Ordering::Relaxed), 77);
        page.head().offset.store(78, Ordering::Relaxed);
        assert_eq!(other.head().offset.load(Ordering::Relaxed), 78);
        let (sent, found, _) = Page::of(page.name().unwrap().as_fd()).unwrap();
        assert_eq!((found, sent.inode()), (about(), page.inode()));
        assert!(Page::of(std::io::stdin().as_fd()).is_none());
        // Without a place for the page its descriptor is the program's.
        let (page, fd) = Page::create(&head, &about(), |_| None).unwrap();
        assert_eq!(Page::of(fd.as_fd()).unwrap().0.inode(), page.inode());
        assert!(page.file().is_none());
    }

    /// The descriptor was a memory file's name once, and `/dev/stdout` opened that file: programs
    /// wrote their output there with success, and read nothing where there was something.
    #[test]
    fn a_door_takes_and_gives_nothing_in_whatever_way_it_is_reached() {
        let keep = |memory: &OwnedFd| memory.try_clone().ok();
        let (page, fd) = Page::create(&Head::new(2), &about(), keep).unwrap();
        for door in [&fd, &door().unwrap()] {
            assert!(rustix::io::read(door, &mut [0; 8]).is_err());
            assert!(rustix::io::write(door, b"x").is_err());
            let path = format!("/proc/self/fd/{}", door.as_raw_fd());
            let create = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
            for how in [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR, create] {
                assert!(rustix::fs::open(&*path, how, Mode::RUSR).is_err(), "{how:?}");
            }
        }
        // The page itself, as it is sent, keeps its size.
        let path = format!("/proc/self/fd/{}", page.name().unwrap().as_raw_fd());
        let file = page.file().unwrap();
        assert!(rustix::fs::open(path, OFlags::WRONLY | OFlags::TRUNC, Mode::empty()).is_err());
        assert!(rustix::fs::ftruncate(file, 0).is_err());
        assert!(rustix::io::pwrite(file, b"x", PAGE_BYTES_MAX as u64).is_err());
    }

    #[test]
    fn the_last_process_that_has_a_page_knows_it() {
        let keep = |memory: &OwnedFd| memory.try_clone().ok();
        let (mut page, _) = Page::create(&Head::new(2), &about(), keep).unwrap();
        // A descriptor of the same description is what a child inherits.
        let (mut child, _) =
            Page::again(page.file().unwrap().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(child.head().owner(), page.head().owner());
        assert!(!page.leave());
        assert!(child.leave());
        assert!(!child.leave(), "it has left");
    }

    #[test]
    fn a_lock_lets_one_in_at_a_time_and_outlives_a_dead_holder() {
        let head = Head::new(0);
        let count = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let held = head.lock();
                        assert_eq!(count.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        count.fetch_sub(1, Ordering::SeqCst);
                        drop(held);
                    }
                });
            }
        });
        // A thread that has ended without letting go.
        let gone = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get());
        head.lock.store(gone.join().unwrap() as u32, Ordering::SeqCst);
        drop(head.lock());
    }
}
