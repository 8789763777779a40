//! What the kernel asks for, decoded: one variant per kind of request, borrowing its buffer.

use super::abi::OpenOut;
use super::{Fh, LockOwner, NodeId};

/// Flags of `open(2)` and `create(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenFlags {
    /// `O_…` as the program gave them; without those that the kernel has dealt with.
    pub bits: u32,
    /// With `O_TRUNC`: set-user-id and set-group-id are to be cleared.
    pub kill_suidgid: bool,
}

impl OpenFlags {
    /// Whether all of these `O_…` bits are set.
    pub fn has(self, bits: i32) -> bool {
        self.bits & bits as u32 == bits as u32
    }

    pub fn reads(self) -> bool {
        self.bits as i32 & libc::O_ACCMODE != libc::O_WRONLY
    }

    pub fn writes(self) -> bool {
        self.bits as i32 & libc::O_ACCMODE != libc::O_RDONLY
    }
}

/// A file or directory that was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    /// Its number in later requests.
    pub fh: Fh,
    /// Flags of [`open_reply`].
    pub flags: u32,
}

impl Opened {
    pub(crate) fn for_kernel(&self) -> OpenOut {
        OpenOut { fh: self.fh.0, open_flags: self.flags, backing_id: 0 }
    }
}

/// How the kernel shall treat what was opened: flags of [`Opened`].
pub mod open_reply {
    /// Reads and writes go past the page cache.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// What the page cache has of the file is still good.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// It cannot be seeked.
    pub const NONSEEKABLE: u32 = 1 << 2;
    /// The kernel may cache this directory's entries.
    pub const CACHE_DIR: u32 = 1 << 3;
    /// It has no file position at all.
    pub const STREAM: u32 = 1 << 4;
    /// `close` needs no `flush`.
    pub const NOFLUSH: u32 = 1 << 5;
    /// Direct writes of one file may run at the same time (unless they extend it).
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// What to make a new file with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NewNode {
    /// Kind and permissions; the kernel has applied the umask, unless POSIX ACLs were asked for.
    pub mode: u32,
    pub umask: u32,
    /// Device number of a device file.
    pub rdev: u32,
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The server's present time.
    Now,
    At {
        /// Seconds since 1970; before it negative.
        secs: i64,
        /// Nanoseconds, below a thousand million.
        ns: u32,
    },
}

/// Which attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// Permissions (`chmod`).
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Size, bytes (`truncate`).
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    /// Last change of the data.
    pub mtime: Option<SetTime>,
    /// Last change of the attributes; given with the writeback cache only.
    pub ctime: Option<SetTime>,
    /// The open file, for `ftruncate` and its like.
    pub fh: Option<Fh>,
    /// Who truncates, where mandatory locks matter.
    pub lock_owner: Option<LockOwner>,
    /// Clear set-user-id and set-group-id: with `size`, and the caller may not keep them.
    pub kill_suidgid: bool,
}

/// `renameat2(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rename<'a> {
    /// Directory of the old name.
    pub parent: NodeId,
    pub name: &'a [u8],
    /// Directory of the new name.
    pub new_parent: NodeId,
    pub new_name: &'a [u8],
    /// `RENAME_NOREPLACE`, `RENAME_EXCHANGE`, `RENAME_WHITEOUT`.
    pub flags: u32,
}

/// A read or a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Transfer {
    /// Where in the file, bytes.
    pub offset: u64,
    /// Flags the file is open with (they may have changed since: `O_APPEND`, `O_DIRECT`).
    pub flags: OpenFlags,
    /// Who transfers, where mandatory locks matter.
    pub lock_owner: Option<LockOwner>,
    /// A write of pages that the kernel had cached: at a time of its own, and the open file is a
    /// guess.
    pub from_page_cache: bool,
    /// A write that clears set-user-id and set-group-id.
    pub kill_suidgid: bool,
}

/// The last close of an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Release {
    /// Flags it was open with.
    pub flags: OpenFlags,
    /// Do what `flush` does, too.
    pub flush: bool,
    /// Let go of `flock` locks of `lock_owner`.
    pub flock_unlock: bool,
    /// Owner of `flock` locks, when `flock_unlock`.
    pub lock_owner: Option<LockOwner>,
}

/// Kind of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockKind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// None: in a request lets go of locks, in an answer says there are none.
    Unlock,
}

impl LockKind {
    pub(crate) fn of_kernel(kind: u32) -> Option<LockKind> {
        match kind as i32 {
            libc::F_RDLCK => Some(LockKind::Read),
            libc::F_WRLCK => Some(LockKind::Write),
            libc::F_UNLCK => Some(LockKind::Unlock),
            _ => None,
        }
    }

    pub(crate) fn for_kernel(self) -> u32 {
        (match self {
            LockKind::Read => libc::F_RDLCK,
            LockKind::Write => libc::F_WRLCK,
            LockKind::Unlock => libc::F_UNLCK,
        }) as u32
    }
}

/// A lock on a range of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lock {
    pub start: u64,
    /// Last byte; `i64::MAX` for all that may come.
    pub end: u64,
    pub kind: LockKind,
    /// Process, as the kernel of the caller numbers it.
    pub pid: u32,
}

/// `fcntl(F_SETLK…)` or `flock`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LockRequest {
    pub owner: LockOwner,
    pub lock: Lock,
    /// From `flock(2)`: the whole file, and in another name space than `fcntl` locks.
    pub flock: bool,
    /// Wait for it; watch [`super::Request::interrupted`] meanwhile. Otherwise answer `EAGAIN`
    /// when it is taken.
    pub wait: bool,
}

/// `fallocate(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fallocate {
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// `FALLOC_FL_…`.
    pub mode: u32,
}

/// `copy_file_range(2)`, from the request's node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CopyRange {
    /// Open file to read.
    pub fh_in: Fh,
    pub offset_in: u64,
    pub node_out: NodeId,
    /// Open file to write.
    pub fh_out: Fh,
    pub offset_out: u64,
    /// Bytes.
    pub len: u64,
    /// No flags are defined.
    pub flags: u64,
}

/// `setxattr(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetXattr<'a> {
    /// Name with its name space, for example `user.a`.
    pub name: &'a [u8],
    pub value: &'a [u8],
    /// `XATTR_CREATE`, `XATTR_REPLACE`.
    pub flags: u32,
    /// The name is `system.posix_acl_access`, and set-group-id is to be cleared.
    pub acl_kill_sgid: bool,
}

/// `ioctl(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ioctl<'a> {
    pub cmd: u32,
    /// `FUSE_IOCTL_…`: bit 3 for a 32-bit program, bit 4 for a directory.
    pub flags: u32,
    /// Argument, an address in the program.
    pub arg: u64,
    /// What the command carries in.
    pub data: &'a [u8],
    /// How many bytes the answer may have.
    pub out_bytes_max: u32,
}

/// Everything the kernel asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation<'a> {
    Lookup {
        name: &'a [u8],
    },
    Forget {
        lookup_count: u64,
    },
    BatchForget(Forgets<'a>),
    Getattr {
        fh: Option<Fh>,
    },
    Setattr(SetAttr),
    Readlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    Mknod {
        name: &'a [u8],
        new: NewNode,
    },
    Mkdir {
        name: &'a [u8],
        new: NewNode,
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename(Rename<'a>),
    Link {
        node: NodeId,
        name: &'a [u8],
    },
    Open {
        flags: OpenFlags,
    },
    Opendir {
        flags: OpenFlags,
    },
    Create {
        name: &'a [u8],
        new: NewNode,
        flags: OpenFlags,
    },
    Tmpfile {
        new: NewNode,
        flags: OpenFlags,
    },
    Read {
        fh: Fh,
        transfer: Transfer,
        bytes: u32,
    },
    Write {
        fh: Fh,
        transfer: Transfer,
        data: &'a [u8],
    },
    Statfs,
    Release {
        fh: Fh,
        release: Release,
    },
    Releasedir {
        fh: Fh,
        release: Release,
    },
    Flush {
        fh: Fh,
        owner: LockOwner,
    },
    Fsync {
        fh: Fh,
        data_only: bool,
    },
    Fsyncdir {
        fh: Fh,
        data_only: bool,
    },
    Setxattr(SetXattr<'a>),
    Getxattr {
        name: &'a [u8],
        bytes: u32,
    },
    Listxattr {
        bytes: u32,
    },
    Removexattr {
        name: &'a [u8],
    },
    Readdir {
        fh: Fh,
        offset: u64,
        bytes: u32,
        plus: bool,
    },
    Getlk {
        fh: Fh,
        request: LockRequest,
    },
    Setlk {
        fh: Fh,
        request: LockRequest,
    },
    Access {
        mask: u32,
    },
    Fallocate {
        fh: Fh,
        range: Fallocate,
    },
    Lseek {
        fh: Fh,
        offset: u64,
        whence: u32,
    },
    CopyRange {
        copy: CopyRange,
        wide: bool,
    },
    Syncfs,
    Ioctl {
        fh: Fh,
        ioctl: Ioctl<'a>,
    },
    Poll {
        fh: Fh,
        events: u32,
    },
    /// Bmap, statx, DAX mappings and whatever a newer kernel may know: answered with `ENOSYS`.
    Unknown,
    Init,
    Interrupt {
        unique: u64,
    },
    Destroy,
    /// Answer to a notification that we never send.
    NotifyReply,
}

/// The pairs of a BATCH_FORGET.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Forgets<'a>(pub &'a [u8]);

impl Iterator for Forgets<'_> {
    type Item = (NodeId, u64);
    fn next(&mut self) -> Option<(NodeId, u64)> {
        let (one, rest) = super::abi::take::<super::abi::ForgetOne>(self.0)?;
        self.0 = rest;
        Some((NodeId(one.nodeid), one.lookup_count))
    }
}
