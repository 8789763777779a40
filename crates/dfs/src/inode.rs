//! The inode record: the value of akey `i`.
//!
//! It sits in the directory entry, or, once a file has a second name, in dkey 0 of the file's
//! object; the root's is in the superblock object. It begins with a [`Link`], so the target
//! that holds the entry can follow and free the file without knowing what a directory is.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 24 | link; byte 0 = record version, byte 3 = flags: 1 hard-linked, 2 may have extended attributes, 4 quiet, 4..8 = mode |
//! | 24 | 4, 4, 4, 4 | uid, gid, link count, chunk size in bytes |
//! | 40 | 8, 8, 8 | atime, mtime, ctime: nanoseconds since 1970, signed |
//! | 64 | 8 | epoch of the newest data known when mtime was last set |
//! | 72 | 8 | device number of device nodes |
//! | 80 | 2, 2 | file class, directory class for what is made in here (scheme, groups) |
//! | 84 | 2 | length of the symbolic link's target |
//! | 86 | – | the target |
//! | – | 8 | of an entry that an engine has moved ([`wire::link`]): when it was written |
//!
//! Invariants: numbers are little-endian; a record of any other version is refused, never
//! guessed at. Servers update no inode when data are written: mtime is the newest data epoch
//! if that is newer than `mtime_epoch`, else the stored mtime. So an explicit mtime lasts until
//! the next write, without a clock that clients and servers would have to share.

use types::{Epoch, Error, GroupCount, ObjClass, Oid, Result, Scheme};
use wire::link::{LINK_BYTES, Link, LinkKind};

/// Version of the record. 1: first release.
const INODE_VERSION: u8 = 1;
/// Bytes before the symbolic link's target.
pub const INODE_BYTES: usize = TARGET_LEN_AT + 2;
/// Longest record: the target has at most `PATH_BYTES_MAX - 1` bytes.
pub const INODE_BYTES_MAX: usize = INODE_BYTES + types::limits::PATH_BYTES_MAX + 8;

const FLAGS_AT: usize = 3;
const MODE_AT: usize = 4;
const UID_AT: usize = LINK_BYTES;
const GID_AT: usize = UID_AT + 4;
const NLINK_AT: usize = GID_AT + 4;
const CHUNK_AT: usize = NLINK_AT + 4;
const ATIME_AT: usize = CHUNK_AT + 4;
const MTIME_AT: usize = ATIME_AT + 8;
const CTIME_AT: usize = MTIME_AT + 8;
const MTIME_EPOCH_AT: usize = CTIME_AT + 8;
const RDEV_AT: usize = MTIME_EPOCH_AT + 8;
const FILE_CLASS_AT: usize = RDEV_AT + 8;
const DIR_CLASS_AT: usize = FILE_CLASS_AT + 2;
const TARGET_LEN_AT: usize = DIR_CLASS_AT + 2;

const FLAG_HARD: u8 = 1;
const FLAG_XATTRS: u8 = 2;
const FLAG_QUIET: u8 = 4;
/// Class bytes that mean "none set": no scheme and no group count have this code together.
const NO_CLASS: [u8; 2] = [0xff, 0xff];

/// `S_IFMT` of the mode: the type bits.
pub const S_IFMT: u32 = 0o170000;
/// Type bits of a directory.
pub const S_IFDIR: u32 = 0o040000;
/// Type bits of a regular file.
pub const S_IFREG: u32 = 0o100000;
/// Type bits of a symbolic link.
pub const S_IFLNK: u32 = 0o120000;
/// Type bits of a fifo.
pub const S_IFIFO: u32 = 0o010000;
/// Type bits of a socket.
pub const S_IFSOCK: u32 = 0o140000;
/// Type bits of a character device.
pub const S_IFCHR: u32 = 0o020000;
/// Type bits of a block device.
pub const S_IFBLK: u32 = 0o060000;
/// Set-user-id bit.
pub const S_ISUID: u32 = 0o4000;
/// Set-group-id bit.
pub const S_ISGID: u32 = 0o2000;
/// Sticky bit.
pub const S_ISVTX: u32 = 0o1000;

/// What a directory entry can be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileKind {
    Regular,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
}

impl FileKind {
    /// The kind in the type bits of a mode; `None` for bits that mean nothing.
    pub fn from_mode(mode: u32) -> Option<FileKind> {
        Some(match mode & S_IFMT {
            S_IFREG => FileKind::Regular,
            S_IFDIR => FileKind::Directory,
            S_IFLNK => FileKind::Symlink,
            S_IFIFO => FileKind::Fifo,
            S_IFSOCK => FileKind::Socket,
            S_IFCHR => FileKind::CharDevice,
            S_IFBLK => FileKind::BlockDevice,
            _ => return None,
        })
    }

    /// The type bits of a mode.
    pub fn mode_bits(self) -> u32 {
        match self {
            FileKind::Regular => S_IFREG,
            FileKind::Directory => S_IFDIR,
            FileKind::Symlink => S_IFLNK,
            FileKind::Fifo => S_IFIFO,
            FileKind::Socket => S_IFSOCK,
            FileKind::CharDevice => S_IFCHR,
            FileKind::BlockDevice => S_IFBLK,
        }
    }
}

/// A decoded inode, without the symbolic link's target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inode {
    /// The directory's or file's object. Symbolic links and the like have an id but no object.
    pub oid: Oid,
    /// The entry is one of several names: the rest of the inode is in the file's object.
    pub hard: bool,
    /// It may have extended attributes; set with the first one and never cleared, so that those
    /// who are asked for attributes of files that never had any need not look.
    pub has_xattrs: bool,
    /// The record was written last for something that is no change of the inode, as setting the
    /// access time by a read: its epoch does not count for the change time.
    pub quiet: bool,
    /// Type and permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Names of the file; 1 for directories, whose link count follows from what is in them.
    pub nlink: u32,
    /// Chunk of the file, or for files made in the directory, bytes; 0 in a directory: inherit.
    pub chunk_bytes: u32,
    /// Access time, nanoseconds since 1970.
    pub atime_ns: i64,
    /// Modification time, as far as the inode knows.
    pub mtime_ns: i64,
    /// Change time, as far as the inode knows.
    pub ctime_ns: i64,
    /// Newest data epoch when mtime was set.
    pub mtime_epoch: Epoch,
    /// Device number of device nodes.
    pub rdev: u64,
    /// Class of files made in the directory.
    pub file_class: Option<ObjClass>,
    /// Class of directories made in the directory.
    pub dir_class: Option<ObjClass>,
}

impl Inode {
    /// What the entry is. The decoder and all makers check the mode, so it always has a kind.
    pub fn kind(&self) -> FileKind {
        FileKind::from_mode(self.mode).unwrap_or(FileKind::Regular)
    }

    /// True for a directory.
    pub fn is_dir(&self) -> bool {
        self.mode & S_IFMT == S_IFDIR
    }

    /// True for a regular file.
    pub fn is_regular(&self) -> bool {
        self.mode & S_IFMT == S_IFREG
    }

    /// True for a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.mode & S_IFMT == S_IFLNK
    }

    /// Modification time given the newest epoch of the data (or of a directory's key set).
    pub fn mtime_with(&self, data: Epoch) -> i64 {
        if data > self.mtime_epoch { epoch_ns(data) } else { self.mtime_ns }
    }

    /// Change time given the epoch of the record itself and that of the data.
    pub fn ctime_with(&self, record: Epoch, data: Epoch) -> i64 {
        let record = if self.quiet { Epoch::ZERO } else { record };
        self.ctime_ns.max(epoch_ns(record.max(data)))
    }

    /// The record. `target` is the symbolic link's target, empty for all else.
    ///
    /// The link is protected, so that a plain remove leaves it alone, for directories and for
    /// entries of hard-linked files. That of a directory is counted: the link count of the directory
    /// it is in follows from it.
    pub fn encode(&self, target: &[u8]) -> Vec<u8> {
        let mut raw = vec![0; INODE_BYTES + target.len()];
        let kind = if self.is_regular() { LinkKind::Array } else { LinkKind::None };
        let (protected, counted) = (self.hard || self.is_dir(), self.is_dir());
        Link { kind, protected, counted, oid: self.oid }.encode_into(&mut raw);
        raw[0] = INODE_VERSION;
        if self.hard {
            raw[FLAGS_AT] |= FLAG_HARD;
        }
        if self.has_xattrs {
            raw[FLAGS_AT] |= FLAG_XATTRS;
        }
        if self.quiet {
            raw[FLAGS_AT] |= FLAG_QUIET;
        }
        let mut put = |at: usize, bytes: &[u8]| raw[at..at + bytes.len()].copy_from_slice(bytes);
        put(MODE_AT, &self.mode.to_le_bytes());
        put(UID_AT, &self.uid.to_le_bytes());
        put(GID_AT, &self.gid.to_le_bytes());
        put(NLINK_AT, &self.nlink.to_le_bytes());
        put(CHUNK_AT, &self.chunk_bytes.to_le_bytes());
        put(ATIME_AT, &self.atime_ns.to_le_bytes());
        put(MTIME_AT, &self.mtime_ns.to_le_bytes());
        put(CTIME_AT, &self.ctime_ns.to_le_bytes());
        put(MTIME_EPOCH_AT, &self.mtime_epoch.0.to_le_bytes());
        put(RDEV_AT, &self.rdev.to_le_bytes());
        put(FILE_CLASS_AT, &class_bytes(self.file_class));
        put(DIR_CLASS_AT, &class_bytes(self.dir_class));
        put(TARGET_LEN_AT, &(target.len() as u16).to_le_bytes());
        put(INODE_BYTES, target);
        raw
    }

    /// Reads a record; gives the symbolic link's target beside it. `Io` when the bytes are not
    /// an inode of a known version.
    pub fn decode(raw: &[u8]) -> Result<(Inode, &[u8])> {
        decode(raw).ok_or_else(|| {
            Error::new(
                types::Code::Io,
                "a directory entry holds no inode this version can read; run the checker",
            )
        })
    }
}

fn decode(raw: &[u8]) -> Option<(Inode, &[u8])> {
    let link = Link::decode(raw)?;
    let head: &[u8; INODE_BYTES] = raw.get(..INODE_BYTES)?.try_into().ok()?;
    if head[0] != INODE_VERSION {
        return None;
    }
    let u16_at = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let u32_at =
        |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let u64_at = |at: usize| u32_at(at) as u64 | (u32_at(at + 4) as u64) << 32;
    let mode = u32_at(MODE_AT);
    FileKind::from_mode(mode)?;
    let inode = Inode {
        oid: link.oid,
        hard: head[FLAGS_AT] & FLAG_HARD != 0,
        has_xattrs: head[FLAGS_AT] & FLAG_XATTRS != 0,
        quiet: head[FLAGS_AT] & FLAG_QUIET != 0,
        mode,
        uid: u32_at(UID_AT),
        gid: u32_at(GID_AT),
        nlink: u32_at(NLINK_AT),
        chunk_bytes: u32_at(CHUNK_AT),
        atime_ns: u64_at(ATIME_AT) as i64,
        mtime_ns: u64_at(MTIME_AT) as i64,
        ctime_ns: u64_at(CTIME_AT) as i64,
        mtime_epoch: Epoch(u64_at(MTIME_EPOCH_AT)),
        rdev: u64_at(RDEV_AT),
        file_class: class_from([head[FILE_CLASS_AT], head[FILE_CLASS_AT + 1]])?,
        dir_class: class_from([head[DIR_CLASS_AT], head[DIR_CLASS_AT + 1]])?,
    };
    let target = raw.get(INODE_BYTES..INODE_BYTES + u16_at(TARGET_LEN_AT) as usize)?;
    Some((inode, target))
}

/// A class as two bytes; also used in the superblock.
pub(crate) fn class_bytes(class: Option<ObjClass>) -> [u8; 2] {
    class.map_or(NO_CLASS, |class| [class.scheme.code(), class.groups.code()])
}

/// The inverse of [`class_bytes`]; the outer `None` is for bytes that mean nothing.
pub(crate) fn class_from(raw: [u8; 2]) -> Option<Option<ObjClass>> {
    if raw == NO_CLASS {
        return Some(None);
    }
    let scheme = Scheme::from_code(raw[0])?;
    let groups = GroupCount::from_code(raw[1])?;
    Some(Some(ObjClass { scheme, groups }))
}

/// When an epoch was, nanoseconds since 1970.
pub(crate) fn epoch_ns(epoch: Epoch) -> i64 {
    i64::try_from(epoch.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Inode {
        Inode {
            oid: Oid { hi: 0x0d00_0000_0000_0001, lo: 77 },
            hard: false,
            has_xattrs: false,
            quiet: false,
            mode: S_IFREG | 0o644,
            uid: 1000,
            gid: 100,
            nlink: 1,
            chunk_bytes: 1 << 20,
            atime_ns: 1,
            mtime_ns: -2,
            ctime_ns: 3,
            mtime_epoch: Epoch(4),
            rdev: 0x0501,
            file_class: Some(ObjClass::SX),
            dir_class: None,
        }
    }

    #[test]
    fn golden_bytes_of_version_1() {
        // Stored in every directory: a change here needs a new version and a reader of this one.
        let hex: String = sample().encode(b"ab").iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            concat!(
                "01010000a4810000",                 // version, array link, not protected, mode
                "010000000000000d4d00000000000000", // object
                "e80300006400000001000000",         // uid, gid, link count
                "00001000",                         // chunk
                "0100000000000000feffffffffffffff0300000000000000", // times
                "0400000000000000",                 // mtime epoch
                "0105000000000000",                 // device
                "00ffffff",                         // classes
                "02006162",                         // target
            )
        );
        assert_eq!(hex.len() / 2, INODE_BYTES + 2);
    }

    #[test]
    fn directories_and_hard_links_are_protected_from_a_plain_remove() {
        let protected = |inode: Inode| Link::decode(&inode.encode(b"")).map(|link| link.protected);
        assert_eq!(protected(sample()), Some(false));
        assert_eq!(protected(Inode { hard: true, ..sample() }), Some(true));
        assert_eq!(protected(Inode { mode: S_IFDIR | 0o755, ..sample() }), Some(true));
    }

    #[test]
    fn entries_of_directories_are_counted() {
        let counted = |mode| wire::link::is_counted(&Inode { mode, ..sample() }.encode(b""));
        assert!(counted(S_IFDIR | 0o755));
        assert!(!counted(S_IFREG | 0o644) && !counted(S_IFLNK | 0o777));
    }

    #[test]
    fn an_explicit_mtime_lasts_until_newer_data() {
        let inode = Inode { mtime_ns: 5, mtime_epoch: Epoch(1000), ..sample() };
        assert_eq!(inode.mtime_with(Epoch::ZERO), 5);
        assert_eq!(inode.mtime_with(Epoch(1000)), 5);
        assert_eq!(inode.mtime_with(Epoch(1001)), 1001);
    }

    proptest! {
        #[test]
        fn records_round_trip(
            kind in 0usize..7, perm in 0u32..0o10000, words in prop::array::uniform8(any::<u64>()),
            hard: bool, has_xattrs: bool, target in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let kinds = [S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK];
            let inode = Inode {
                oid: Oid { hi: words[0], lo: words[1] },
                hard,
                has_xattrs,
                quiet: !hard,
                mode: kinds[kind] | perm,
                uid: words[2] as u32,
                gid: (words[2] >> 32) as u32,
                nlink: words[3] as u32,
                chunk_bytes: (words[3] >> 32) as u32,
                atime_ns: words[4] as i64,
                mtime_ns: words[5] as i64,
                ctime_ns: words[6] as i64,
                mtime_epoch: Epoch(words[7]),
                rdev: words[0] ^ words[7],
                file_class: None,
                dir_class: Some(ObjClass::S1),
            };
            let raw = inode.encode(&target);
            prop_assert_eq!(Inode::decode(&raw).unwrap(), (inode, &target[..]));
            for cut in [0, 1, 23, 24, INODE_BYTES - 1] {
                prop_assert!(Inode::decode(&raw[..cut.min(raw.len() - 1)]).is_err());
            }
        }

        #[test]
        fn any_bytes_decode_or_err(raw in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Inode::decode(&raw);
        }
    }
}
