//! The calls of a file system, as the suite makes them.

/// A number of `errno`.
pub type Errno = i32;

/// Result of a call.
pub type Outcome<T> = Result<T, Errno>;

/// An open file, by a number the system chose.
pub type Fd = usize;

/// Who calls: a user whose groups are its own and perhaps one more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct User {
    /// User and first group; 0 is the superuser.
    pub id: u32,
    /// A further group.
    pub group: Option<u32>,
}

impl User {
    pub const ROOT: User = User { id: 0, group: None };
}

/// Times, nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
}

/// What `stat` tells of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attrs {
    /// Number of the object.
    pub ino: u64,
    /// Type and permission bits.
    pub mode: u32,
    pub nlink: u64,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    pub size: u64,
    /// Space, in units of 512 bytes.
    pub blocks: u64,
    pub times: Times,
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewTime {
    Now,
    Omit,
    /// Nanoseconds since 1970.
    At(i64),
}

/// Flags of an open: the `O_*` bits of Linux, and permission bits for what it makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenHow {
    /// `O_*`.
    pub flags: i32,
    /// Permission bits, before the umask.
    pub mode: u32,
}

/// What a lock call wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockWanted {
    Shared,
    Exclusive,
    Unlock,
}

/// A lock of an open file: of all of it (`flock`), or of a range (`F_OFD_SETLK`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockAsked {
    /// `flock`.
    Whole,
    /// First byte and length; 0: to the end, wherever it comes to be.
    Range(u64, u64),
}

/// A file system. Paths are absolute; `/` is the top of what is tested. Nothing blocks: locks are
/// tried.
pub trait System {
    /// Says who calls from now on.
    fn be(&mut self, user: User);
    /// Permission bits that are taken from what is made from now on.
    fn umask(&mut self, bits: u32);
    /// True when cases that need this cannot run: `users` (to be somebody else), `dev` (making
    /// device nodes), `dir-nlink` (2 + subdirectories), `xattr-user`, `trusted`, `tmpfile`, `ofd`,
    /// `special-open` (opening fifos and sockets means something), `zero-range`, `exchange`, `holes`
    /// (`SEEK_DATA` and `SEEK_HOLE` find them), `exact-blocks` (also of open files).
    fn lacks(&self, what: &str) -> bool;
    /// Waits until the clock of the file system has moved on.
    fn tick(&mut self);

    fn mkdir(&mut self, path: &str, mode: u32) -> Outcome<()>;
    /// `mknod`, all kinds but sockets' binding: type and permission bits, device number.
    fn mknod(&mut self, path: &str, mode: u32, rdev: u64) -> Outcome<()>;
    fn symlink(&mut self, target: &str, path: &str) -> Outcome<()>;
    fn link(&mut self, path: &str, new_path: &str) -> Outcome<()>;
    fn unlink(&mut self, path: &str) -> Outcome<()>;
    fn rmdir(&mut self, path: &str) -> Outcome<()>;
    /// `renameat2`; flags 1 NOREPLACE, 2 EXCHANGE.
    fn rename(&mut self, path: &str, new_path: &str, flags: u32) -> Outcome<()>;
    fn readlink(&mut self, path: &str) -> Outcome<String>;
    /// Names in a directory, without `.` and `..`, in any order.
    fn list(&mut self, path: &str) -> Outcome<Vec<String>>;
    /// `stat` or `lstat`.
    fn stat(&mut self, path: &str, follow: bool) -> Outcome<Attrs>;
    /// `access` for who calls: bits 4 read, 2 write, 1 execute.
    fn access(&mut self, path: &str, bits: u32) -> Outcome<()>;
    fn chmod(&mut self, path: &str, mode: u32) -> Outcome<()>;
    /// `chown` or `lchown`; `None` leaves one alone.
    fn chown(
        &mut self,
        path: &str,
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    ) -> Outcome<()>;
    /// `utimensat`: access and modification time.
    fn utimens(&mut self, path: &str, times: [NewTime; 2], follow: bool) -> Outcome<()>;
    fn truncate(&mut self, path: &str, size: i64) -> Outcome<()>;
    /// `setxattr`; flags 1 CREATE, 2 REPLACE.
    fn setxattr(&mut self, path: &str, name: &str, value: &[u8], flags: u32) -> Outcome<()>;
    fn getxattr(&mut self, path: &str, name: &str) -> Outcome<Vec<u8>>;
    fn listxattr(&mut self, path: &str) -> Outcome<Vec<String>>;
    fn removexattr(&mut self, path: &str, name: &str) -> Outcome<()>;

    fn open(&mut self, path: &str, how: OpenHow) -> Outcome<Fd>;
    /// `open` with `O_TMPFILE` in a directory.
    fn tmpfile(&mut self, path: &str, how: OpenHow) -> Outcome<Fd>;
    /// `linkat` of an open file.
    fn link_fd(&mut self, fd: Fd, path: &str) -> Outcome<()>;
    fn close(&mut self, fd: Fd) -> Outcome<()>;
    fn fstat(&mut self, fd: Fd) -> Outcome<Attrs>;
    /// `pread`.
    fn read(&mut self, fd: Fd, offset: u64, bytes: usize) -> Outcome<Vec<u8>>;
    /// `pwrite`, or with `None` `write` at the descriptor's own offset.
    fn write(&mut self, fd: Fd, offset: Option<u64>, data: &[u8]) -> Outcome<usize>;
    fn ftruncate(&mut self, fd: Fd, size: i64) -> Outcome<()>;
    fn fchmod(&mut self, fd: Fd, mode: u32) -> Outcome<()>;
    fn fsync(&mut self, fd: Fd) -> Outcome<()>;
    /// `fallocate` with Linux's flags.
    fn fallocate(&mut self, fd: Fd, flags: u32, offset: i64, bytes: i64) -> Outcome<()>;
    /// `lseek` with `SEEK_HOLE` or `SEEK_DATA`.
    fn seek(&mut self, fd: Fd, hole: bool, offset: u64) -> Outcome<u64>;
    /// `copy_file_range`.
    fn copy(&mut self, from: Fd, at: u64, to: Fd, to_at: u64, bytes: usize) -> Outcome<usize>;
    /// Locks or unlocks; who holds the descriptor is the owner.
    fn lock(&mut self, fd: Fd, asked: LockAsked, wanted: LockWanted) -> Outcome<()>;
    /// `F_OFD_GETLK`: the mode of the lock in the way.
    fn test_lock(
        &mut self,
        fd: Fd,
        range: (u64, u64),
        wanted: LockWanted,
    ) -> Outcome<Option<LockWanted>>;
}
