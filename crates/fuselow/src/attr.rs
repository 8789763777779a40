//! What the kernel gets of a file: attributes, entries with their time-outs, errors.

use super::NodeId;
use super::abi::{AttrOut, EntryOut, Pod, StatfsOut};
use std::time::Duration;

/// An error number for the program that asked; positive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Errno(pub i32);

impl Errno {
    /// The kernel may remember, and not ask again for this operation.
    pub const NOSYS: Errno = Errno(libc::ENOSYS);
    pub const IO: Errno = Errno(libc::EIO);
    /// Interrupted by a signal.
    pub const INTR: Errno = Errno(libc::EINTR);
    /// No such file or directory.
    pub const NOENT: Errno = Errno(libc::ENOENT);
    /// An argument has no meaning.
    pub const INVAL: Errno = Errno(libc::EINVAL);
    pub const OPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);

    /// As in a reply: negative, and in the range that the kernel takes.
    pub(crate) fn for_kernel(self) -> i32 {
        // The kernel refuses a whole reply with an error outside 1..512.
        if (1..512).contains(&self.0) { -self.0 } else { -libc::EIO }
    }
}

impl From<types::Error> for Errno {
    fn from(error: types::Error) -> Errno {
        Errno(error.errno())
    }
}

impl From<types::Code> for Errno {
    fn from(code: types::Code) -> Errno {
        Errno(code.errno())
    }
}

impl From<std::io::Error> for Errno {
    /// The system's number; `EIO` when it has none.
    fn from(error: std::io::Error) -> Errno {
        error.raw_os_error().map_or(Errno::IO, Errno)
    }
}

/// What kind of file: the upper bits of its mode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum FileKind {
    Fifo = 0o010000,
    CharDevice = 0o020000,
    Directory = 0o040000,
    BlockDevice = 0o060000,
    Regular = 0o100000,
    Symlink = 0o120000,
    Socket = 0o140000,
}

impl FileKind {
    /// The kind in a mode, if it has one.
    pub fn of_mode(mode: u32) -> Option<FileKind> {
        Some(match mode & 0o170000 {
            0o010000 => FileKind::Fifo,
            0o020000 => FileKind::CharDevice,
            0o040000 => FileKind::Directory,
            0o060000 => FileKind::BlockDevice,
            0o100000 => FileKind::Regular,
            0o120000 => FileKind::Symlink,
            0o140000 => FileKind::Socket,
            _ => return None,
        })
    }

    /// As in a directory entry (`DT_…`).
    pub(crate) fn dirent(self) -> u32 {
        self as u32 >> 12
    }
}

/// Attributes of a file, laid out as the kernel takes them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// Inode number that programs see.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Allocated, in units of 512 bytes.
    pub blocks: u64,
    /// Last access, seconds since 1970; negative times as two's complement.
    pub atime: u64,
    /// Last change of the data, seconds.
    pub mtime: u64,
    /// Last change of the attributes, seconds.
    pub ctime: u64,
    /// Nanoseconds of `atime`.
    pub atime_ns: u32,
    /// Nanoseconds of `mtime`.
    pub mtime_ns: u32,
    /// Nanoseconds of `ctime`.
    pub ctime_ns: u32,
    /// Kind and permissions.
    pub mode: u32,
    /// Names of the file.
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Device number of a device file.
    pub rdev: u32,
    /// Preferred transfer size, bytes.
    pub blksize: u32,
    /// Zero: neither a submount nor DAX.
    pub flags: u32,
}
const _: () = assert!(size_of::<Attr>() == 88);
// SAFETY: 6 x 8 + 10 x 4 bytes are all 88: integers without padding.
unsafe impl Pod for Attr {}

/// Attributes and how long the kernel may believe them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    pub attr: Attr,
    /// How long they are good.
    pub attr_ttl: Duration,
}

impl Stat {
    pub(crate) fn for_kernel(&self) -> AttrOut {
        AttrOut {
            attr_valid: self.attr_ttl.as_secs(),
            attr_valid_nsec: self.attr_ttl.subsec_nanos(),
            dummy: 0,
            attr: self.attr,
        }
    }
}

/// A name looked up. Handing one out raises the node's lookup count by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The node; 0 in a negative entry.
    pub node: NodeId,
    /// Tells apart nodes that have the same number one after the other.
    pub generation: u64,
    pub attr: Attr,
    /// How long the attributes are good.
    pub attr_ttl: Duration,
    /// How long the name leads to this node (or to none).
    pub entry_ttl: Duration,
}

impl Entry {
    /// There is no such name, and for `ttl` the kernel need not ask again. With a zero `ttl`
    /// answer [`Errno::NOENT`] instead.
    pub fn negative(ttl: Duration) -> Entry {
        Entry {
            node: NodeId(0),
            generation: 0,
            attr: Attr::default(),
            attr_ttl: Duration::ZERO,
            entry_ttl: ttl,
        }
    }

    pub(crate) fn for_kernel(&self) -> EntryOut {
        EntryOut {
            nodeid: self.node.0,
            generation: self.generation,
            entry_valid: self.entry_ttl.as_secs(),
            attr_valid: self.attr_ttl.as_secs(),
            entry_valid_nsec: self.entry_ttl.subsec_nanos(),
            attr_valid_nsec: self.attr_ttl.subsec_nanos(),
            attr: self.attr,
        }
    }
}

/// What `statfs` tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// All blocks, of `block_bytes`.
    pub blocks: u64,
    pub blocks_free: u64,
    /// Free blocks for those who are not root.
    pub blocks_available: u64,
    /// All inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Unit of the block counts, bytes.
    pub block_bytes: u32,
    pub name_bytes_max: u32,
}

impl StatFs {
    pub(crate) fn for_kernel(&self) -> StatfsOut {
        StatfsOut {
            blocks: self.blocks,
            bfree: self.blocks_free,
            bavail: self.blocks_available,
            files: self.files,
            ffree: self.files_free,
            bsize: self.block_bytes,
            namelen: self.name_bytes_max,
            frsize: self.block_bytes,
            ..StatfsOut::default()
        }
    }
}
