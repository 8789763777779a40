//! The calls as system calls below a directory.
//!
//! Users are changed for the calling thread alone, by raw system calls (the library's own change
//! all threads), and only when the process is the superuser's; a preload library does not see raw
//! calls, so for those there is [`LibcSystem::of_process`]. Invariant: the thread that uses a
//! [`LibcSystem`] does nothing else in between; umask and credentials are back to the superuser's
//! whenever a call of [`System::be`] said so.

use crate::system::{
    Attrs, Errno, Fd, LockAsked, LockWanted, NewTime, OpenHow, Outcome, System, Times, User,
};
use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A directory of some file system.
pub struct LibcSystem {
    top: String,
    files: Vec<Option<OwnedFd>>,
    lacks: Vec<String>,
    user: User,
    /// The whole process becomes another user, by calls that a preload library sees.
    changes_process: bool,
}

fn errno() -> Errno {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

fn done(result: i64) -> Outcome<i64> {
    if result < 0 { Err(errno()) } else { Ok(result) }
}

impl LibcSystem {
    /// The file system that `top`, an absolute path, is on; it should be empty. `lacks` adds to what
    /// is found out: whether users can be changed and devices made.
    pub fn new(top: &str, lacks: &[&str]) -> LibcSystem {
        let mut lacks: Vec<String> = lacks.iter().map(|what| what.to_string()).collect();
        // SAFETY: asks for a number.
        if unsafe { libc::geteuid() } != 0 {
            lacks.extend(["users", "dev", "trusted"].map(String::from));
        }
        // The umask is then this thread's own. SAFETY: no memory is passed.
        if unsafe { libc::unshare(libc::CLONE_FS) } != 0 {
            lacks.push("umask".into());
        }
        let top = top.trim_end_matches('/').to_string();
        let (user, changes_process) = (User::ROOT, false);
        let mut system = LibcSystem { top, files: Vec::new(), lacks, user, changes_process };
        system.umask(0);
        system.find_out();
        system
    }

    /// The same for a process that does nothing else: all of it becomes another user, by calls of
    /// the C library.
    pub fn of_process(top: &str, lacks: &[&str]) -> LibcSystem {
        let mut system = LibcSystem::new(top, lacks);
        system.changes_process = true;
        system
    }

    /// What depends on the machine: device nodes in containers, attributes of users on old tmpfs.
    fn find_out(&mut self) {
        let probe = "/probe";
        if self.mknod(probe, libc::S_IFCHR | 0o600, 0x0103).is_err() {
            self.lacks.push("dev".into());
        }
        // It may not be there.
        let _ = self.unlink(probe);
        if self.mknod(probe, libc::S_IFREG | 0o600, 0).is_ok() {
            for (name, what) in [("user.probe", "xattr-user"), ("trusted.probe", "trusted")] {
                if self.setxattr(probe, name, b"x", 0).is_err() {
                    self.lacks.push(what.into());
                }
            }
            let _ = self.unlink(probe);
        }
    }

    fn path(&self, path: &str) -> Outcome<CString> {
        let full = if path.is_empty() { String::new() } else { format!("{}{path}", self.top) };
        CString::new(full).map_err(|_| libc::EINVAL)
    }

    fn fd(&self, fd: Fd) -> Outcome<RawFd> {
        let file = self.files.get(fd).and_then(Option::as_ref).ok_or(libc::EBADF)?;
        Ok(file.as_raw_fd())
    }

    fn keep(&mut self, fd: i32) -> Outcome<Fd> {
        done(fd as i64)?;
        // SAFETY: the descriptor was just opened and is nobody else's.
        self.files.push(Some(unsafe { OwnedFd::from_raw_fd(fd) }));
        Ok(self.files.len() - 1)
    }
}

fn attrs(stat: &libc::stat) -> Attrs {
    let ns = |s: i64, ns: i64| s * 1_000_000_000 + ns;
    Attrs {
        ino: stat.st_ino,
        mode: stat.st_mode,
        nlink: stat.st_nlink,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev,
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        times: Times {
            atime: ns(stat.st_atime, stat.st_atime_nsec),
            mtime: ns(stat.st_mtime, stat.st_mtime_nsec),
            ctime: ns(stat.st_ctime, stat.st_ctime_nsec),
        },
    }
}

fn timespec(time: NewTime) -> libc::timespec {
    let (tv_sec, tv_nsec) = match time {
        NewTime::Now => (0, libc::UTIME_NOW),
        NewTime::Omit => (0, libc::UTIME_OMIT),
        NewTime::At(ns) => (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000)),
    };
    libc::timespec { tv_sec, tv_nsec }
}

fn now(clock: libc::clockid_t) -> (i64, i64) {
    // SAFETY: the kernel fills the struct; all zero is a value of it.
    unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(clock, &mut now);
        (now.tv_sec, now.tv_nsec)
    }
}

// SAFETY of all system calls below: paths are NUL-terminated strings and buffers slices that live
// through the call; lengths passed are theirs.
impl System for LibcSystem {
    fn be(&mut self, user: User) {
        if user == self.user || self.lacks("users") {
            return;
        }
        let groups: Vec<libc::gid_t> = [Some(user.id), user.group].into_iter().flatten().collect();
        // Back to the superuser first, who may change. SAFETY: the list lives through the call.
        let changed = unsafe {
            if self.changes_process {
                libc::seteuid(0) == 0
                    && libc::setgroups(groups.len(), groups.as_ptr()) == 0
                    && libc::setegid(user.id) == 0
                    && libc::seteuid(user.id) == 0
            } else {
                libc::syscall(libc::SYS_setresuid, -1i64, 0i64, -1i64) == 0
                    && libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) == 0
                    && libc::syscall(libc::SYS_setresgid, -1i64, user.id as i64, -1i64) == 0
                    && libc::syscall(libc::SYS_setresuid, -1i64, user.id as i64, -1i64) == 0
            }
        };
        assert!(changed, "becoming user {}: {}", user.id, std::io::Error::last_os_error());
        self.user = user;
    }

    fn umask(&mut self, bits: u32) {
        // SAFETY: takes and gives numbers.
        unsafe { libc::umask(bits) };
    }

    fn lacks(&self, what: &str) -> bool {
        self.lacks.iter().any(|lack| lack == what)
    }

    fn tick(&mut self) {
        // A server may take times from the fine clock, the kernel takes them from the coarse one,
        // which may stand for a time that is over when it moves.
        let before = now(libc::CLOCK_REALTIME);
        while now(libc::CLOCK_REALTIME_COARSE) <= before {
            std::thread::yield_now();
        }
    }

    fn mkdir(&mut self, path: &str, mode: u32) -> Outcome<()> {
        let path = self.path(path)?;
        // SAFETY: see above.
        done(unsafe { libc::mkdir(path.as_ptr(), mode) } as i64).map(|_| ())
    }

    fn mknod(&mut self, path: &str, mode: u32, rdev: u64) -> Outcome<()> {
        let path = self.path(path)?;
        // SAFETY: see above.
        done(unsafe { libc::mknod(path.as_ptr(), mode, rdev) } as i64).map(|_| ())
    }

    fn symlink(&mut self, target: &str, path: &str) -> Outcome<()> {
        // Absolute targets lead into the tested directory.
        let target = if target.starts_with('/') {
            self.path(target)?
        } else {
            CString::new(target).map_err(|_| libc::EINVAL)?
        };
        let path = self.path(path)?;
        // SAFETY: see above.
        done(unsafe { libc::symlink(target.as_ptr(), path.as_ptr()) } as i64).map(|_| ())
    }

    fn link(&mut self, path: &str, new_path: &str) -> Outcome<()> {
        let (path, new) = (self.path(path)?, self.path(new_path)?);
        // SAFETY: see above.
        done(unsafe { libc::link(path.as_ptr(), new.as_ptr()) } as i64).map(|_| ())
    }

    fn unlink(&mut self, path: &str) -> Outcome<()> {
        let path = self.path(path)?;
        // SAFETY: see above.
        done(unsafe { libc::unlink(path.as_ptr()) } as i64).map(|_| ())
    }

    fn rmdir(&mut self, path: &str) -> Outcome<()> {
        let path = self.path(path)?;
        // SAFETY: see above.
        done(unsafe { libc::rmdir(path.as_ptr()) } as i64).map(|_| ())
    }

    fn rename(&mut self, path: &str, new_path: &str, flags: u32) -> Outcome<()> {
        let (path, new) = (self.path(path)?, self.path(new_path)?);
        let at = libc::AT_FDCWD;
        // Plain renames by the plain call. SAFETY: see above.
        let result = unsafe {
            match flags {
                0 => libc::rename(path.as_ptr(), new.as_ptr()),
                flags => libc::renameat2(at, path.as_ptr(), at, new.as_ptr(), flags),
            }
        };
        done(result as i64).map(|_| ())
    }

    fn readlink(&mut self, path: &str) -> Outcome<String> {
        let path = self.path(path)?;
        let mut room = vec![0u8; 8192];
        // SAFETY: see above.
        let bytes =
            done(unsafe { libc::readlink(path.as_ptr(), room.as_mut_ptr().cast(), room.len()) }
                as i64)?;
        let target = String::from_utf8_lossy(&room[..bytes as usize]).into_owned();
        Ok(target.strip_prefix(&self.top).map_or(target.clone(), String::from))
    }

    fn list(&mut self, path: &str) -> Outcome<Vec<String>> {
        let path = self.path(path)?;
        // SAFETY: see above; the stream is closed once and used by nobody else.
        unsafe {
            let stream = libc::opendir(path.as_ptr());
            if stream.is_null() {
                return Err(errno());
            }
            let mut names = Vec::new();
            loop {
                let entry = libc::readdir(stream);
                if entry.is_null() {
                    break;
                }
                let name = std::ffi::CStr::from_ptr((*entry).d_name.as_ptr());
                names.push(name.to_string_lossy().into_owned());
            }
            libc::closedir(stream);
            names.retain(|name| name != "." && name != "..");
            Ok(names)
        }
    }

    fn stat(&mut self, path: &str, follow: bool) -> Outcome<Attrs> {
        let path = self.path(path)?;
        // SAFETY: see above; all zero is a value of the struct.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            let result = match follow {
                true => libc::stat(path.as_ptr(), &mut stat),
                false => libc::lstat(path.as_ptr(), &mut stat),
            };
            done(result as i64).map(|_| attrs(&stat))
        }
    }

    fn access(&mut self, path: &str, bits: u32) -> Outcome<()> {
        let path = self.path(path)?;
        // SAFETY: see above.
        let result = unsafe {
            libc::faccessat(libc::AT_FDCWD, path.as_ptr(), bits as i32, libc::AT_EACCESS)
        };
        done(result as i64).map(|_| ())
    }

    fn chmod(&mut self, path: &str, mode: u32) -> Outcome<()> {
        let path = self.path(path)?;
        // SAFETY: see above.
        done(unsafe { libc::chmod(path.as_ptr(), mode) } as i64).map(|_| ())
    }

    fn chown(
        &mut self,
        path: &str,
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    ) -> Outcome<()> {
        let path = self.path(path)?;
        let (uid, gid) = (uid.unwrap_or(u32::MAX), gid.unwrap_or(u32::MAX));
        // SAFETY: see above.
        let result = unsafe {
            match follow {
                true => libc::chown(path.as_ptr(), uid, gid),
                false => libc::lchown(path.as_ptr(), uid, gid),
            }
        };
        done(result as i64).map(|_| ())
    }

    fn utimens(&mut self, path: &str, times: [NewTime; 2], follow: bool) -> Outcome<()> {
        let path = self.path(path)?;
        let times = times.map(timespec);
        let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
        // SAFETY: see above.
        let result =
            unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), flags) };
        done(result as i64).map(|_| ())
    }

    fn truncate(&mut self, path: &str, size: i64) -> Outcome<()> {
        let path = self.path(path)?;
        // SAFETY: see above.
        done(unsafe { libc::truncate(path.as_ptr(), size) } as i64).map(|_| ())
    }

    fn setxattr(&mut self, path: &str, name: &str, value: &[u8], flags: u32) -> Outcome<()> {
        let (path, name) = (self.path(path)?, CString::new(name).map_err(|_| libc::EINVAL)?);
        let (value, bytes) = (value.as_ptr().cast(), value.len());
        // SAFETY: see above.
        let result =
            unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value, bytes, flags as i32) };
        done(result as i64).map(|_| ())
    }

    fn getxattr(&mut self, path: &str, name: &str) -> Outcome<Vec<u8>> {
        let (path, name) = (self.path(path)?, CString::new(name).map_err(|_| libc::EINVAL)?);
        let mut room = vec![0u8; 65_536];
        // SAFETY: see above.
        let bytes = done(unsafe {
            libc::getxattr(path.as_ptr(), name.as_ptr(), room.as_mut_ptr().cast(), room.len())
        } as i64)?;
        room.truncate(bytes as usize);
        Ok(room)
    }

    fn listxattr(&mut self, path: &str) -> Outcome<Vec<String>> {
        let path = self.path(path)?;
        let mut room = vec![0u8; 65_536];
        // SAFETY: see above.
        let bytes =
            done(unsafe { libc::listxattr(path.as_ptr(), room.as_mut_ptr().cast(), room.len()) }
                as i64)?;
        let names = room[..bytes as usize].split(|&byte| byte == 0);
        Ok(names
            .filter(|name| !name.is_empty())
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect())
    }

    fn removexattr(&mut self, path: &str, name: &str) -> Outcome<()> {
        let (path, name) = (self.path(path)?, CString::new(name).map_err(|_| libc::EINVAL)?);
        // SAFETY: see above.
        done(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) } as i64).map(|_| ())
    }

    fn open(&mut self, path: &str, how: OpenHow) -> Outcome<Fd> {
        let path = self.path(path)?;
        // SAFETY: see above.
        let fd = unsafe { libc::open(path.as_ptr(), how.flags | libc::O_CLOEXEC, how.mode) };
        self.keep(fd)
    }

    fn tmpfile(&mut self, path: &str, how: OpenHow) -> Outcome<Fd> {
        let flags = how.flags | libc::O_TMPFILE;
        self.open(path, OpenHow { flags, ..how })
    }

    fn link_fd(&mut self, fd: Fd, path: &str) -> Outcome<()> {
        let (fd, new) = (self.fd(fd)?, self.path(path)?);
        let old = CString::new(format!("/proc/self/fd/{fd}")).map_err(|_| libc::EINVAL)?;
        let (at, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
        // SAFETY: see above.
        done(unsafe { libc::linkat(at, old.as_ptr(), at, new.as_ptr(), follow) } as i64).map(|_| ())
    }

    fn close(&mut self, fd: Fd) -> Outcome<()> {
        let file = self.files.get_mut(fd).and_then(Option::take).ok_or(libc::EBADF)?;
        drop(file);
        Ok(())
    }

    fn fstat(&mut self, fd: Fd) -> Outcome<Attrs> {
        let fd = self.fd(fd)?;
        // SAFETY: see above; all zero is a value of the struct.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            done(libc::fstat(fd, &mut stat) as i64).map(|_| attrs(&stat))
        }
    }

    fn read(&mut self, fd: Fd, offset: u64, bytes: usize) -> Outcome<Vec<u8>> {
        let fd = self.fd(fd)?;
        let mut room = vec![0u8; bytes];
        // SAFETY: see above.
        let read = done(
            unsafe { libc::pread(fd, room.as_mut_ptr().cast(), bytes, offset as i64) } as i64,
        )?;
        room.truncate(read as usize);
        Ok(room)
    }

    fn write(&mut self, fd: Fd, offset: Option<u64>, data: &[u8]) -> Outcome<usize> {
        let fd = self.fd(fd)?;
        let (start, bytes) = (data.as_ptr().cast(), data.len());
        // SAFETY: see above.
        let written = unsafe {
            match offset {
                Some(offset) => libc::pwrite(fd, start, bytes, offset as i64),
                None => libc::write(fd, start, bytes),
            }
        };
        done(written as i64).map(|written| written as usize)
    }

    fn ftruncate(&mut self, fd: Fd, size: i64) -> Outcome<()> {
        let fd = self.fd(fd)?;
        // SAFETY: see above.
        done(unsafe { libc::ftruncate(fd, size) } as i64).map(|_| ())
    }

    fn fchmod(&mut self, fd: Fd, mode: u32) -> Outcome<()> {
        let fd = self.fd(fd)?;
        // SAFETY: see above.
        done(unsafe { libc::fchmod(fd, mode) } as i64).map(|_| ())
    }

    fn fsync(&mut self, fd: Fd) -> Outcome<()> {
        let fd = self.fd(fd)?;
        // SAFETY: see above.
        done(unsafe { libc::fsync(fd) } as i64).map(|_| ())
    }

    fn fallocate(&mut self, fd: Fd, flags: u32, offset: i64, bytes: i64) -> Outcome<()> {
        let fd = self.fd(fd)?;
        // SAFETY: see above.
        done(unsafe { libc::fallocate(fd, flags as i32, offset, bytes) } as i64).map(|_| ())
    }

    fn seek(&mut self, fd: Fd, hole: bool, offset: u64) -> Outcome<u64> {
        let fd = self.fd(fd)?;
        let whence = if hole { libc::SEEK_HOLE } else { libc::SEEK_DATA };
        // SAFETY: see above.
        done(unsafe { libc::lseek(fd, offset as i64, whence) }).map(|at| at as u64)
    }

    fn copy(&mut self, from: Fd, at: u64, to: Fd, to_at: u64, bytes: usize) -> Outcome<usize> {
        let (from, to) = (self.fd(from)?, self.fd(to)?);
        let (mut at, mut to_at) = (at as i64, to_at as i64);
        // SAFETY: see above.
        let copied = unsafe { libc::copy_file_range(from, &mut at, to, &mut to_at, bytes, 0) };
        done(copied as i64).map(|copied| copied as usize)
    }

    fn lock(&mut self, fd: Fd, asked: LockAsked, wanted: LockWanted) -> Outcome<()> {
        let fd = self.fd(fd)?;
        let result = match asked {
            LockAsked::Whole => {
                let how = match wanted {
                    LockWanted::Shared => libc::LOCK_SH,
                    LockWanted::Exclusive => libc::LOCK_EX,
                    LockWanted::Unlock => libc::LOCK_UN,
                };
                // SAFETY: see above.
                unsafe { libc::flock(fd, how | libc::LOCK_NB) }
            }
            LockAsked::Range(first, bytes) => {
                let lock = range_lock((first, bytes), wanted);
                // SAFETY: see above.
                unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &lock) }
            }
        };
        done(result as i64).map(|_| ())
    }

    fn test_lock(
        &mut self,
        fd: Fd,
        range: (u64, u64),
        wanted: LockWanted,
    ) -> Outcome<Option<LockWanted>> {
        let fd = self.fd(fd)?;
        let mut lock = range_lock(range, wanted);
        // SAFETY: see above.
        done(unsafe { libc::fcntl(fd, libc::F_OFD_GETLK, &mut lock) } as i64)?;
        Ok(match lock.l_type as i32 {
            libc::F_RDLCK => Some(LockWanted::Shared),
            libc::F_WRLCK => Some(LockWanted::Exclusive),
            _ => None,
        })
    }
}

fn range_lock((first, bytes): (u64, u64), wanted: LockWanted) -> libc::flock {
    let how = match wanted {
        LockWanted::Shared => libc::F_RDLCK,
        LockWanted::Exclusive => libc::F_WRLCK,
        LockWanted::Unlock => libc::F_UNLCK,
    };
    // SAFETY: all zero is a value of the struct.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = how as _;
    lock.l_whence = libc::SEEK_SET as _;
    lock.l_start = first as i64;
    lock.l_len = bytes as i64;
    lock
}

impl Drop for LibcSystem {
    fn drop(&mut self) {
        self.be(User::ROOT);
    }
}
