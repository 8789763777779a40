//! The real disk: io_uring where the kernel offers it, plain system calls where not.
//!
//! Opening, listing and renaming block the thread; they happen at start and at rare changes of
//! generation. Reads, writes, syncs and allocations go through the ring. A file system that
//! refuses O_DIRECT is used through the page cache.

use crate::AlignedBuf;
use crate::buf::ALIGN_BYTES;
use crate::disk::{DirEntry, Disk, File, Lock, OpenOptions, Room};
use crate::ring::{Keep, Ring};
use futures_util::future::{FutureExt, LocalBoxFuture, ready};
use io_uring::{opcode, types as uring};
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fmt::Display;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use types::{Code, Error, Result};

/// Longest transfer handed to the kernel at once, bytes (it would cut longer ones anyway).
const TRANSFER_BYTES_MAX: usize = 1 << 30;

pub(crate) struct RealDisk {
    pub ring: Option<Rc<Ring>>,
}

static FALLBACK_LOGGED: AtomicBool = AtomicBool::new(false);

impl RealDisk {
    pub fn new() -> RealDisk {
        match Ring::new() {
            Ok(ring) => RealDisk { ring: Some(Rc::new(ring)) },
            Err(error) => {
                if !FALLBACK_LOGGED.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "io_uring is not available ({error}); disk I/O uses blocking system calls, \
                         which is slower. Check the sysctl kernel.io_uring_disabled and seccomp."
                    );
                }
                RealDisk { ring: None }
            }
        }
    }

    /// A disk that uses plain system calls.
    #[cfg(test)]
    fn without_ring() -> RealDisk {
        RealDisk { ring: None }
    }
}

/// Maps an operating system error to the codes that callers branch on.
fn os_error(doing: impl Display, errno: Errno) -> Error {
    let code = match errno {
        Errno::NOENT => Code::NonExist,
        Errno::EXIST => Code::Exist,
        Errno::ACCESS => Code::Access,
        Errno::PERM => Code::NoPerm,
        Errno::NOTEMPTY => Code::NotEmpty,
        Errno::NOTDIR => Code::NotDir,
        Errno::ISDIR => Code::IsDir,
        Errno::ROFS => Code::ReadOnly,
        Errno::NOSPC | Errno::DQUOT => Code::NoSpace,
        Errno::NOMEM => Code::NoMem,
        Errno::FBIG => Code::FileTooBig,
        _ => Code::Io,
    };
    Error::new(code, format!("{doing}: {errno}"))
}

struct RealFile {
    fd: Rc<OwnedFd>,
    ring: Option<Rc<Ring>>,
    direct: bool,
    name: Rc<str>,
}

#[derive(Clone)]
struct Io {
    fd: Rc<OwnedFd>,
    ring: Option<Rc<Ring>>,
}

impl Io {
    /// One read or write of `buf[from..]` at `offset + from`.
    async fn transfer(
        &self,
        write: bool,
        offset: u64,
        mut buf: AlignedBuf,
        from: usize,
    ) -> (AlignedBuf, Result<usize, Errno>) {
        let at = offset + from as u64;
        let Some(ring) = &self.ring else {
            let outcome = if write {
                rustix::io::pwrite(&self.fd, &buf[from..], at)
            } else {
                rustix::io::pread(&self.fd, &mut buf[from..], at)
            };
            return (buf, outcome);
        };
        let bytes = (buf.len() - from).min(TRANSFER_BYTES_MAX) as u32;
        let start = buf[from..].as_mut_ptr();
        let fd = uring::Fd(self.fd.as_raw_fd());
        let entry = if write {
            opcode::Write::new(fd, start, bytes).offset(at).build()
        } else {
            opcode::Read::new(fd, start, bytes).offset(at).build()
        };
        let keep = Keep { _fd: self.fd.clone(), buf: Some(buf) };
        // SAFETY: the entry refers to the buffer and the descriptor in `keep`; moving the buffer
        // struct does not move its memory.
        let (keep, result) = unsafe { ring.start(entry, keep) }.await;
        let buf = keep.buf.expect("the ring returns what it was given");
        (buf, outcome_of(result).map(|count| count as usize))
    }

    /// An operation without a buffer.
    async fn plain(&self, entry: io_uring::squeue::Entry) -> Option<Result<(), Errno>> {
        let ring = self.ring.as_ref()?;
        let keep = Keep { _fd: self.fd.clone(), buf: None };
        // SAFETY: the entry refers to the descriptor in `keep` only.
        let (_, result) = unsafe { ring.start(entry, keep) }.await;
        Some(outcome_of(result).map(|_| ()))
    }
}

fn outcome_of(result: i32) -> Result<u32, Errno> {
    u32::try_from(result).map_err(|_| Errno::from_raw_os_error(-result))
}

impl RealFile {
    fn io(&self) -> Io {
        Io { fd: self.fd.clone(), ring: self.ring.clone() }
    }
}

impl File for RealFile {
    fn read_at(
        &self,
        offset: u64,
        mut buf: AlignedBuf,
    ) -> LocalBoxFuture<'static, (AlignedBuf, Result<usize>)> {
        let (io, direct, name) = (self.io(), self.direct, self.name.clone());
        async move {
            let mut done = 0;
            while done < buf.len() {
                let outcome;
                (buf, outcome) = io.transfer(false, offset, buf, done).await;
                match outcome {
                    Ok(0) => break,
                    Ok(count) => done += count,
                    Err(Errno::INTR | Errno::AGAIN) => continue,
                    Err(errno) => {
                        let doing = format!("reading {name} at {}", offset + done as u64);
                        return (buf, Err(os_error(doing, errno)));
                    }
                }
                // Direct reads stop short of a block border at the end of the file only.
                if direct && !done.is_multiple_of(ALIGN_BYTES) {
                    break;
                }
            }
            (buf, Ok(done))
        }
        .boxed_local()
    }

    fn write_at(
        &self,
        offset: u64,
        mut buf: AlignedBuf,
    ) -> LocalBoxFuture<'static, (AlignedBuf, Result<()>)> {
        let (io, name) = (self.io(), self.name.clone());
        async move {
            let mut done = 0;
            while done < buf.len() {
                let outcome;
                (buf, outcome) = io.transfer(true, offset, buf, done).await;
                let errno = match outcome {
                    Ok(0) => Errno::IO,
                    Ok(count) => {
                        done += count;
                        continue;
                    }
                    Err(Errno::INTR | Errno::AGAIN) => continue,
                    Err(errno) => errno,
                };
                let doing = format!("writing {name} at {}", offset + done as u64);
                return (buf, Err(os_error(doing, errno)));
            }
            (buf, Ok(()))
        }
        .boxed_local()
    }

    fn sync(&self) -> LocalBoxFuture<'static, Result<()>> {
        let (io, name) = (self.io(), self.name.clone());
        async move {
            let fd = uring::Fd(io.fd.as_raw_fd());
            let entry = opcode::Fsync::new(fd).flags(uring::FsyncFlags::DATASYNC).build();
            let outcome = match io.plain(entry).await {
                Some(outcome) => outcome,
                None => rustix::fs::fdatasync(&io.fd),
            };
            outcome.map_err(|errno| os_error(format!("syncing {name}"), errno))
        }
        .boxed_local()
    }

    fn len(&self) -> Result<u64> {
        // Seeking to the end works for block devices too; nobody uses the position.
        rustix::fs::seek(&self.fd, rustix::fs::SeekFrom::End(0))
            .map_err(|errno| os_error(format!("asking for the length of {}", self.name), errno))
    }

    fn is_device(&self) -> bool {
        rustix::fs::fstat(&self.fd)
            .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_block_device())
    }

    fn is_direct(&self) -> bool {
        self.direct
    }

    fn set_len(&self, bytes: u64) -> LocalBoxFuture<'static, Result<()>> {
        let outcome = rustix::fs::ftruncate(&self.fd, bytes)
            .map_err(|errno| os_error(format!("resizing {} to {bytes} bytes", self.name), errno));
        ready(outcome).boxed_local()
    }

    fn allocate(&self, offset: u64, bytes: u64) -> LocalBoxFuture<'static, Result<()>> {
        let (io, name, len) = (self.io(), self.name.clone(), self.len());
        async move {
            let fd = uring::Fd(io.fd.as_raw_fd());
            let entry = opcode::Fallocate::new(fd, bytes).offset(offset).build();
            let mut outcome = io.plain(entry).await.unwrap_or_else(|| {
                rustix::fs::fallocate(&io.fd, FallocateFlags::empty(), offset, bytes)
            });
            if matches!(outcome, Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)) {
                outcome = match len {
                    Ok(len) if len < offset + bytes => {
                        rustix::fs::ftruncate(&io.fd, offset + bytes)
                    }
                    _ => Ok(()),
                };
            }
            let doing = || format!("reserving {bytes} bytes at {offset} of {name}");
            outcome.map_err(|errno| os_error(doing(), errno))
        }
        .boxed_local()
    }

    fn discard(&self, offset: u64, bytes: u64) -> LocalBoxFuture<'static, Result<()>> {
        let (io, name) = (self.io(), self.name.clone());
        async move {
            // On a block device the kernel makes a discard of it.
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let fd = uring::Fd(io.fd.as_raw_fd());
            let mode = flags.bits() as i32;
            let entry = opcode::Fallocate::new(fd, bytes).offset(offset).mode(mode).build();
            let outcome = match io.plain(entry).await {
                Some(outcome) => outcome,
                None => rustix::fs::fallocate(&io.fd, flags, offset, bytes),
            };
            outcome.map_err(|errno| {
                let error = os_error(format!("discarding {bytes} bytes of {name}"), errno);
                match errno {
                    Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::NODEV => {
                        Error::new(Code::NotSupported, error.text)
                    }
                    _ => error,
                }
            })
        }
        .boxed_local()
    }
}

fn open_file(path: &Path, options: OpenOptions) -> Result<(OwnedFd, bool)> {
    let mut flags = OFlags::CLOEXEC;
    flags |= if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    if options.create {
        flags |= OFlags::CREATE;
    }
    if options.create && options.exclusive {
        flags |= OFlags::EXCL;
    }
    if options.dsync {
        flags |= OFlags::DSYNC;
    }
    let mode = Mode::RUSR | Mode::WUSR;
    let failed = |errno| os_error(format!("opening {}", path.display()), errno);
    if options.direct {
        match rustix::fs::open(path, flags | OFlags::DIRECT, mode) {
            Ok(fd) => return Ok((fd, true)),
            Err(Errno::INVAL) => {
                // The refused open may have made the file; it is ours then.
                flags.remove(OFlags::EXCL);
            }
            Err(errno) => return Err(failed(errno)),
        }
    }
    rustix::fs::open(path, flags, mode).map(|fd| (fd, false)).map_err(failed)
}

fn list_dir(path: &Path) -> Result<Vec<DirEntry>> {
    let failed = |error: std::io::Error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        os_error(format!("listing {}", path.display()), errno)
    };
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let is_dir = entry.file_type().map_err(failed)?.is_dir();
        // A name that is not text is not one of ours.
        if let Ok(name) = entry.file_name().into_string() {
            entries.push(DirEntry { name, is_dir });
        }
    }
    entries.sort();
    Ok(entries)
}

struct RealLock {
    /// Closing it releases the lock.
    _fd: OwnedFd,
}

impl Lock for RealLock {}

fn lock_file(path: &Path, note: &str) -> Result<Box<dyn Lock>> {
    let failed = |errno| os_error(format!("locking {}", path.display()), errno);
    let flags = OFlags::CLOEXEC | OFlags::RDWR | OFlags::CREATE;
    let fd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
    let lock = || rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive);
    let mut locked = lock();
    // A holder that was killed a moment ago may not be quite gone.
    let patience = Instant::now() + Duration::from_secs(1);
    while locked == Err(Errno::WOULDBLOCK) && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(10));
        locked = lock();
    }
    match locked {
        Ok(()) => {
            // Over the last holder's note, whose block is there: a full disk has no other. The lock is
            // what counts; a note that cannot be written only leaves unsaid who has it.
            let noted = rustix::io::pwrite(&fd, note.as_bytes(), 0);
            if let Err(errno) = &noted {
                let path = path.display();
                tracing::warn!("{path} is locked; by whom cannot be noted in it: {errno}");
            }
            let _ = rustix::fs::ftruncate(&fd, noted.unwrap_or(0) as u64);
            Ok(Box::new(RealLock { _fd: fd }))
        }
        Err(Errno::WOULDBLOCK) => {
            let mut raw = [0; 256];
            let count = rustix::io::pread(&fd, &mut raw, 0).unwrap_or(0);
            let holder = String::from_utf8_lossy(&raw[..count]);
            Err(Error::new(
                Code::Busy,
                format!("{} is locked by {}", path.display(), holder.trim()),
            ))
        }
        Err(errno) => Err(failed(errno)),
    }
}

impl Disk for RealDisk {
    fn open(
        &self,
        path: &Path,
        options: OpenOptions,
    ) -> LocalBoxFuture<'static, Result<Rc<dyn File>>> {
        let opened = open_file(path, options).map(|(fd, direct)| -> Rc<dyn File> {
            Rc::new(RealFile {
                fd: Rc::new(fd),
                ring: self.ring.clone(),
                direct,
                name: path.to_string_lossy().into(),
            })
        });
        ready(opened).boxed_local()
    }

    fn create_dir(&self, path: &Path) -> LocalBoxFuture<'static, Result<()>> {
        let made = rustix::fs::mkdir(path, Mode::RWXU)
            .map_err(|errno| os_error(format!("making {}", path.display()), errno));
        ready(made).boxed_local()
    }

    fn list(&self, path: &Path) -> LocalBoxFuture<'static, Result<Vec<DirEntry>>> {
        ready(list_dir(path)).boxed_local()
    }

    fn rename(&self, from: &Path, to: &Path) -> LocalBoxFuture<'static, Result<()>> {
        let doing = || format!("renaming {} to {}", from.display(), to.display());
        let moved = rustix::fs::rename(from, to).map_err(|errno| os_error(doing(), errno));
        ready(moved).boxed_local()
    }

    fn remove(&self, path: &Path) -> LocalBoxFuture<'static, Result<()>> {
        let gone = match rustix::fs::unlink(path) {
            Err(Errno::ISDIR | Errno::PERM) => rustix::fs::rmdir(path),
            other => other,
        };
        let gone = gone.map_err(|errno| os_error(format!("removing {}", path.display()), errno));
        ready(gone).boxed_local()
    }

    fn sync_dir(&self, path: &Path) -> LocalBoxFuture<'static, Result<()>> {
        let synced = rustix::fs::open(path, OFlags::CLOEXEC | OFlags::RDONLY, Mode::empty())
            .and_then(rustix::fs::fsync)
            .map_err(|errno| os_error(format!("syncing {}", path.display()), errno));
        ready(synced).boxed_local()
    }

    fn room(&self, path: &Path) -> LocalBoxFuture<'static, Result<Room>> {
        let found = rustix::fs::statvfs(path)
            .map(|stat| Room {
                total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
                free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
            })
            .map_err(|errno| os_error(format!("asking for the room of {}", path.display()), errno));
        ready(found).boxed_local()
    }

    fn lock(&self, path: &Path, note: &str) -> LocalBoxFuture<'static, Result<Box<dyn Lock>>> {
        ready(lock_file(path, note)).boxed_local()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_io_uring_the_same_operations_work() {
        let dir = tempfile::tempdir().unwrap();
        let disk = RealDisk::without_ring();
        let options = OpenOptions { create: true, ..OpenOptions::default() };
        let now = |fut: LocalBoxFuture<'static, Result<()>>| fut.now_or_never().unwrap();
        let file = disk.open(&dir.path().join("f"), options).now_or_never().unwrap().unwrap();
        now(file.allocate(0, 8192)).unwrap();
        let written = file.write_at(100, AlignedBuf::copy_of(b"abc")).now_or_never().unwrap();
        written.1.unwrap();
        now(file.sync()).unwrap();
        let (buf, count) = file.read_at(99, AlignedBuf::zeroed(5)).now_or_never().unwrap();
        assert_eq!((&*buf, count.unwrap()), (&b"\0abc\0"[..], 5));
        let room = disk.room(dir.path()).now_or_never().unwrap().unwrap();
        assert!(room.free_bytes > 0 && room.free_bytes <= room.total_bytes);
        match now(file.discard(4096, 4096)) {
            Ok(()) => {}
            Err(error) => assert_eq!(error.code, Code::NotSupported),
        }
        assert_eq!(file.len().unwrap(), 8192);
        now(file.set_len(101)).unwrap();
        assert_eq!(file.len().unwrap(), 101);
    }
}
