//! What the kernel and a FUSE server exchange, byte for byte: structs, operation codes, flags.
//!
//! Written from the interface that the kernel documents for protocol 7.31 to 7.45. All numbers
//! are native-endian; names and data follow the fixed structs. The sizes are checked when this is
//! compiled, and that no struct has padding, so that any bytes are a value and no stale memory
//! leaves the process.

/// Major version of the protocol; the kernel and we must have the same.
pub(crate) const MAJOR: u32 = 7;
/// The newest minor version we speak; the older of the kernel's and ours is used.
pub(crate) const MINOR: u32 = 45;
/// The oldest minor version we accept (Linux 5.4).
pub(crate) const MINOR_MIN: u32 = 31;
/// Reads of the device want at least this much room, bytes.
pub(crate) const READ_BUFFER_MIN: usize = 8192;
/// Bit of a request's number that marks a request sent once more.
pub(crate) const UNIQUE_RESEND: u64 = 1 << 63;

/// Data without padding of which every bit pattern is a value.
///
/// # Safety
/// Exactly that: no padding bytes, no invalid patterns, no references.
pub(crate) unsafe trait Pod: Copy + 'static {}

macro_rules! pods {
    ($($ty:ty),*) => {
        // SAFETY: integers and arrays of bytes have neither padding nor invalid patterns.
        $(unsafe impl Pod for $ty {})*
    };
}
pods!(u8, u16, u32, u64, i32, i64);
// SAFETY: an array has no padding that its element does not have.
unsafe impl<T: Pod, const N: usize> Pod for [T; N] {}

/// The bytes of a value, as they go to the kernel.
pub(crate) fn bytes_of<T: Pod>(value: &T) -> &[u8] {
    // SAFETY: `Pod`: all bytes are initialised, and the borrow keeps the value alive.
    unsafe { std::slice::from_raw_parts((value as *const T).cast(), size_of::<T>()) }
}

/// The value at the start of `raw`, and what follows it; `None` when there are too few bytes.
pub(crate) fn take<T: Pod>(raw: &[u8]) -> Option<(T, &[u8])> {
    let (head, tail) = raw.split_at_checked(size_of::<T>())?;
    // SAFETY: there are enough bytes, every pattern is a value, and alignment is not assumed.
    Some((unsafe { head.as_ptr().cast::<T>().read_unaligned() }, tail))
}

macro_rules! abi {
    ($($(#[$meta:meta])* $name:ident = $bytes:literal { $($field:ident: $ty:ty),* $(,)? })*) => {$(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct $name { $(pub $field: $ty),* }
        const _: () = {
            const fn pod<T: Pod>() -> usize { size_of::<T>() }
            assert!(size_of::<$name>() == $bytes);
            assert!(0 $(+ pod::<$ty>())* == $bytes);
        };
        // SAFETY: all fields are `Pod` and their sizes add up to the struct's: no padding.
        unsafe impl Pod for $name {}
    )*};
}

abi! {
    /// Starts every request.
    InHeader = 40 {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        extension_words: u16, padding: u16,
    }
    /// Starts every reply (`unique` not 0, `error` 0 or negative) and notification (`unique` 0).
    OutHeader = 16 { len: u32, error: i32, unique: u64 }

    InitIn = 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11],
    }
    InitOut = 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16,
        map_alignment: u16, flags2: u32, max_stack_depth: u32, request_timeout: u16,
        unused: [u16; 11],
    }
    ForgetIn = 8 { lookup_count: u64 }
    ForgetOne = 16 { nodeid: u64, lookup_count: u64 }
    BatchForgetIn = 8 { count: u32, dummy: u32 }
    GetattrIn = 16 { flags: u32, dummy: u32, fh: u64 }
    MknodIn = 16 { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn = 8 { mode: u32, umask: u32 }
    RenameIn = 8 { newdir: u64 }
    Rename2In = 16 { newdir: u64, flags: u32, padding: u32 }
    LinkIn = 8 { oldnodeid: u64 }
    SetattrIn = 88 {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64,
        ctime: u64, atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32,
        uid: u32, gid: u32, unused5: u32,
    }
    OpenIn = 8 { flags: u32, open_flags: u32 }
    CreateIn = 16 { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    ReleaseIn = 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FlushIn = 24 { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    ReadIn = 40 {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    WriteIn = 40 {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    FsyncIn = 16 { fh: u64, fsync_flags: u32, padding: u32 }
    /// As before `SETXATTR_EXT`.
    SetxattrInShort = 8 { size: u32, flags: u32 }
    SetxattrIn = 16 { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    GetxattrIn = 8 { size: u32, padding: u32 }
    FileLock = 24 { start: u64, end: u64, kind: u32, pid: u32 }
    LkIn = 48 { fh: u64, owner: u64, lk: FileLock, lk_flags: u32, padding: u32 }
    AccessIn = 8 { mask: u32, padding: u32 }
    InterruptIn = 8 { unique: u64 }
    IoctlIn = 32 { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    PollIn = 24 { fh: u64, kh: u64, flags: u32, events: u32 }
    FallocateIn = 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    LseekIn = 24 { fh: u64, offset: u64, whence: u32, padding: u32 }
    CopyFileRangeIn = 56 {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64,
        flags: u64,
    }
    SyncfsIn = 8 { padding: u64 }
    ExtHeader = 8 { size: u32, kind: u32 }

    AttrOut = 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: super::Attr }
    EntryOut = 128 {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: super::Attr,
    }
    OpenOut = 16 { fh: u64, open_flags: u32, backing_id: u32 }
    CreateOut = 144 { entry: EntryOut, open: OpenOut }
    WriteOut = 8 { size: u32, padding: u32 }
    StatfsOut = 80 {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32,
        frsize: u32, padding: u32, spare: [u32; 6],
    }
    GetxattrOut = 8 { size: u32, padding: u32 }
    LkOut = 24 { lk: FileLock }
    LseekOut = 8 { offset: u64 }
    CopyFileRangeOut = 8 { bytes_copied: u64 }
    IoctlOut = 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    /// Before the name, which is padded to 8 bytes.
    Dirent = 24 { ino: u64, off: u64, namelen: u32, kind: u32 }

    InvalInodeOut = 24 { ino: u64, off: i64, len: i64 }
    InvalEntryOut = 16 { parent: u64, namelen: u32, flags: u32 }
    DeleteOut = 24 { parent: u64, child: u64, namelen: u32, padding: u32 }

    /// Of an entry of an io_uring queue, in its header buffer.
    UringEntInOut = 32 {
        flags: u64, commit_id: u64, payload_size: u32, padding: u32, reserved: u64,
    }
    /// The header buffer of an entry: `in_out` has an `InHeader`, then an `OutHeader`.
    UringReqHeader = 288 { in_out: Block128, op_in: Block128, ent: UringEntInOut }
    /// In the command area of a submission.
    UringCmdReq = 24 { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6] }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block128(pub [u8; 128]);
// SAFETY: an array of bytes.
unsafe impl Pod for Block128 {}
impl Default for Block128 {
    fn default() -> Block128 {
        Block128([0; 128])
    }
}

/// Operation codes, but for those that are answered with `ENOSYS` (bmap, DAX, statx).
pub(crate) mod op {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const GETLK: u32 = 31;
    pub const SETLK: u32 = 32;
    pub const SETLKW: u32 = 33;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const POLL: u32 = 40;
    pub const NOTIFY_REPLY: u32 = 41;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const COPY_FILE_RANGE_64: u32 = 53;
}

/// Flags of INIT; those from bit 32 on travel in `flags2`.
pub(crate) mod init {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const POSIX_LOCKS: u64 = 1 << 1;
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const ABORT_ERROR: u64 = 1 << 21;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const CREATE_SUPP_GROUP: u64 = 1 << 34;
    pub const HAS_EXPIRE_ONLY: u64 = 1 << 35;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// Which fields SETATTR changes.
pub(crate) mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const LOCKOWNER: u32 = 1 << 9;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// Codes of notifications, in the place of an error.
pub(crate) mod notify {
    pub const INVAL_INODE: i32 = 2;
    pub const INVAL_ENTRY: i32 = 3;
    pub const DELETE: i32 = 6;
    /// Flag of INVAL_ENTRY: let the entry expire instead of removing it.
    pub const EXPIRE_ONLY: u32 = 1;
}

/// Smaller flags.
pub(crate) mod flag {
    pub const GETATTR_FH: u32 = 1 << 0;
    pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;
    pub const RELEASE_FLUSH: u32 = 1 << 0;
    pub const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
    pub const LK_FLOCK: u32 = 1 << 0;
    pub const WRITE_CACHE: u32 = 1 << 0;
    pub const WRITE_LOCKOWNER: u32 = 1 << 1;
    pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
    pub const READ_LOCKOWNER: u32 = 1 << 1;
    pub const FSYNC_DATA_ONLY: u32 = 1 << 0;
    pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
    /// Kind of the extension that lists supplementary groups.
    pub const EXT_GROUPS: u32 = 32;
}

/// Operations of the io_uring command on the device.
pub(crate) mod uring {
    pub const REGISTER: u32 = 1;
    pub const COMMIT_AND_FETCH: u32 = 2;
}

/// Argument of `ioctl` on a fresh descriptor of the device: share the session of another one,
/// whose number it is given: `_IOR(229, 0, u32)`.
pub(crate) const DEV_IOC_CLONE: libc::Ioctl = 0x8004_e500u32 as libc::Ioctl;

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn fields_are_where_the_kernel_puts_them() {
        // Offsets taken from the interface; the sizes are asserted above.
        assert_eq!(offset_of!(InHeader, uid), 24);
        assert_eq!(offset_of!(InHeader, extension_words), 36);
        assert_eq!(offset_of!(InitOut, max_background), 16);
        assert_eq!(offset_of!(InitOut, max_write), 20);
        assert_eq!(offset_of!(InitOut, max_pages), 28);
        assert_eq!(offset_of!(InitOut, flags2), 32);
        assert_eq!(offset_of!(InitOut, request_timeout), 40);
        assert_eq!(offset_of!(SetattrIn, mode), 68);
        assert_eq!(offset_of!(SetattrIn, uid), 76);
        assert_eq!(offset_of!(WriteIn, lock_owner), 24);
        assert_eq!(offset_of!(ReleaseIn, lock_owner), 16);
        assert_eq!(offset_of!(LkIn, lk_flags), 40);
        assert_eq!(offset_of!(EntryOut, attr), 40);
        assert_eq!(offset_of!(AttrOut, attr), 16);
        assert_eq!(offset_of!(super::super::Attr, mode), 60);
        assert_eq!(offset_of!(super::super::Attr, blksize), 80);
        assert_eq!(offset_of!(UringReqHeader, op_in), 128);
        assert_eq!(offset_of!(UringReqHeader, ent), 256);
        assert_eq!(offset_of!(UringEntInOut, commit_id), 8);
        assert_eq!(offset_of!(UringCmdReq, qid), 16);
    }

    #[test]
    fn values_survive_their_bytes() {
        let lock = FileLock { start: 1, end: u64::MAX, kind: 2, pid: 3 };
        let raw = [bytes_of(&lock), b"tail"].concat();
        assert_eq!(take::<FileLock>(&raw), Some((lock, &b"tail"[..])));
        assert_eq!(take::<FileLock>(&raw[..23]), None);
    }
}
