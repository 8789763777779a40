//! What descriptions of one open file share beyond this process: the offset and status flags.
//!
//! POSIX makes both properties of the *open file description*, which `dup`, `fork` and `exec`
//! hand on. Within a process they are in ordinary memory. Before another process can get the
//! descriptor they move into a page of shared memory, which *is* the kernel's descriptor: a memory
//! file opened so that it can neither be read nor written (`O_PATH`), with all that a program
//! needs to go on with it:
//!
//! | bytes | what |
//! |---|---|
//! | 64 | the [`Head`] |
//! | rest | [`About`] |
//!
//! Who reaches the descriptor without this library gets `EBADF`, never other data.

use crate::about::About;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use types::{Code, Error, Result};

const MAGIC: u64 = 0x0150_4143_4b5a_4101;
/// Size of the memory file; no description is longer.
const PAGE_BYTES: usize = 16 << 10;
/// Name of the memory file, as `/proc/self/fd` shows it.
const NAME: &str = "azekura-open-file";
/// How long a lock may be waited for before its holder is looked for.
const PATIENCE: Duration = Duration::from_millis(20);

/// The file has no name any more.
pub const UNLINKED: u32 = 1;

/// The shared state.
#[repr(C)]
pub struct Head {
    magic: AtomicU64,
    /// Thread that works with it; 0: none.
    lock: AtomicU32,
    /// `O_APPEND`, `O_NONBLOCK` and the access mode.
    pub status: AtomicU32,
    /// Where the next read or write is.
    pub offset: AtomicI64,
    /// [`UNLINKED`].
    pub marks: AtomicU32,
    spare: [AtomicU32; 7],
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
            spare: Default::default(),
        }
    }

    fn copy_from(&self, other: &Head) {
        let order = Ordering::Relaxed;
        self.status.store(other.status.load(order), order);
        self.offset.store(other.offset.load(order), order);
        self.marks.store(other.marks.load(order), order);
        self.lock.store(0, order);
        self.magic.store(MAGIC, Ordering::Release);
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

/// A held lock.
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
        if self.0.spare[0].load(Ordering::Relaxed) > 0 {
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
    unsafe { &(*head.cast::<Head>()).spare[0] }
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
}

// SAFETY: a head is made of atomics.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// A new one that begins as `head` is; with the descriptor that stands for it.
    pub fn create(head: &Head, about: &About) -> Result<(Page, OwnedFd)> {
        let failed = |errno: rustix::io::Errno| Error::io("making a descriptor", errno.into());
        let raw = about.encode();
        if raw.len() > PAGE_BYTES - HEAD_BYTES {
            return Err(Error::bare(Code::NameTooLong));
        }
        let memory = rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC).map_err(failed)?;
        rustix::fs::ftruncate(&memory, PAGE_BYTES as u64).map_err(failed)?;
        rustix::io::pwrite(&memory, &raw, HEAD_BYTES as u64).map_err(failed)?;
        let page = Page::map(memory.as_fd()).map_err(failed)?;
        page.head().copy_from(head);
        let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
        let fd = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        Ok((page, fd.map_err(failed)?))
    }

    /// The page that a descriptor stands for; none when it stands for something else.
    pub fn of(fd: BorrowedFd<'_>) -> Option<(Page, About)> {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let name = rustix::fs::readlink(&*path, Vec::new()).ok()?;
        if !is_name(name.as_bytes()) {
            return None;
        }
        let memory =
            rustix::fs::open(&*path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
        if rustix::fs::fstat(&memory).ok()?.st_size != PAGE_BYTES as i64 {
            return None;
        }
        let mut raw = vec![0; PAGE_BYTES - HEAD_BYTES];
        let got = rustix::io::pread(&memory, &mut raw, HEAD_BYTES as u64).ok()?;
        let about = About::decode(raw.get(..got)?)?;
        let page = Page::map(memory.as_fd()).ok()?;
        (page.head().magic.load(Ordering::Acquire) == MAGIC).then_some((page, about))
    }

    fn map(memory: BorrowedFd<'_>) -> rustix::io::Result<Page> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let null = std::ptr::null_mut();
        // SAFETY: a new mapping at no particular address overlaps nothing. The file has at least
        // this size and nobody who has it can make it smaller by accident.
        let start =
            unsafe { rustix::mm::mmap(null, HEAD_BYTES, access, MapFlags::SHARED, memory, 0) };
        let start = std::ptr::NonNull::new(start?.cast()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Page { start })
    }

    /// The head.
    pub fn head(&self) -> &Head {
        // SAFETY: mapped as long as the page lives; a head is valid whatever bytes it is made of.
        unsafe { self.start.as_ref() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this size and nobody uses it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), HEAD_BYTES) };
    }
}

/// True for the name that the kernel shows for a page's descriptor.
pub fn is_name(link: &[u8]) -> bool {
    link.strip_prefix(b"/memfd:").is_some_and(|name| name.starts_with(NAME.as_bytes()))
}

/// A descriptor that stands for an open file of this process only.
pub fn placeholder() -> Result<OwnedFd> {
    let failed = |errno: rustix::io::Errno| Error::io("making a descriptor", errno.into());
    let memory = rustix::fs::memfd_create("azekura-file-of-one-process", MemfdFlags::CLOEXEC);
    let memory = memory.map_err(failed)?;
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(failed)
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
        let (page, fd) = Page::create(&head, &about()).unwrap();
        let (other, found) = Page::of(fd.as_fd()).unwrap();
        assert_eq!(found, about());
        assert_eq!(other.head().offset.load(Ordering::Relaxed), 77);
        page.head().offset.store(78, Ordering::Relaxed);
        assert_eq!(other.head().offset.load(Ordering::Relaxed), 78);
        // Nobody else reads or writes it.
        assert!(rustix::io::read(&fd, &mut [0; 8]).is_err());
        assert!(rustix::io::write(&fd, b"x").is_err());
        assert!(Page::of(std::io::stdin().as_fd()).is_none());
        assert!(Page::of(placeholder().unwrap().as_fd()).is_none());
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
