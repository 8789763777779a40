//! Where a file system keeps its things: fixed keys, the superblock, directory markers.
//!
//! - Superblock object: its id is computed, not stored. Dkey `sb`, akey `s` holds the record
//!   below; dkey `root`, akey `i` the root's inode.
//! - Directory object: one dkey per entry, akey `i` the inode, akeys `x:NAME` extended
//!   attributes. Dkey `/`, which no file can be called, is the *marker*: akey `p` holds the
//!   parent directory. Every shard has a marker from birth to removal, so "does the directory
//!   exist" can be asked of each shard alone; the one on the shard that dkey `/` hashes to is
//!   the true one.
//! - File object: chunk n is dkey n + 1, akey empty. Dkey 0 holds inode and extended
//!   attributes once the file has had a second name.
//!
//! | offset | bytes | field of the superblock record |
//! |---|---|---|
//! | 0 | 4 | magic `AZFS` |
//! | 4 | 2 | layout version |
//! | 6 | 2, 2 | file class, directory class (scheme, groups) |
//! | 10 | 4 | chunk size, bytes |
//! | 14 | 16 | root directory |

use crate::inode::{class_bytes, class_from};
use types::{Code, ContProps, Error, ObjClass, ObjType, Oid, Result, Scheme};

/// Akey of an inode.
pub(crate) const INODE: &[u8] = wire::spread::LINK;
/// Akey prefix of extended attributes.
pub(crate) const XATTR_PREFIX: &[u8] = b"x:";
/// Dkey of a directory's marker.
pub(crate) const MARKER: &[u8] = wire::spread::MARKER;
/// Akey of the parent's id in the marker.
pub(crate) const PARENT: &[u8] = b"p";
/// Dkey of a file object with its inode, if it has had a second name.
pub(crate) const RECORD: &[u8] = &[0; 8];
/// Dkey of the superblock record.
pub(crate) const SUPERBLOCK: &[u8] = b"sb";
/// Akey of the superblock record.
pub(crate) const SUPERBLOCK_RECORD: &[u8] = b"s";
/// Dkey of the root's inode in the superblock object.
pub(crate) const ROOT: &[u8] = b"root";

/// Version of the layout. 1: first release. 2: the superblock survives what the root directory does; only where that is more than the container's `rd_fac`.
pub const LAYOUT_VERSION: u16 = 2;
const LAYOUT_VERSION_FIRST: u16 = 1;
/// The greatest `rd_fac`.
const RD_FAC_MAX: u8 = 5;

const MAGIC: &[u8; 4] = b"AZFS";
const SUPERBLOCK_BYTES: usize = 30;

/// Number of the root directory's object.
const ROOT_NUMBER: u64 = 1;
/// Number of the superblock object.
const SUPERBLOCK_NUMBER: u64 = 2;
/// Added to numbers the container hands out, to keep clear of the fixed ones.
pub(crate) const NUMBER_FIRST: u64 = 16;

/// What is fixed when a file system is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// Version of the layout.
    pub version: u16,
    /// Class of files where the directory names none.
    pub file_class: ObjClass,
    /// Class of directories where the parent names none.
    pub dir_class: ObjClass,
    /// Chunk of files where the directory names none, bytes.
    pub chunk_bytes: u32,
    pub root: Oid,
}

impl Superblock {
    /// One of a new file system, with the version by which others find it.
    pub(crate) fn versioned(self, rd_fac: u8) -> Superblock {
        let version = match self.root_losses() > rd_fac {
            true => LAYOUT_VERSION,
            false => LAYOUT_VERSION_FIRST,
        };
        Superblock { version, ..self }
    }

    /// The object it is in, of a container with this `rd_fac`.
    pub(crate) fn oid(&self, rd_fac: u8) -> Oid {
        superblock_oid(match self.version {
            LAYOUT_VERSION_FIRST => rd_fac,
            _ => self.root_losses().max(rd_fac),
        })
    }

    /// How many losses the root directory survives.
    fn root_losses(&self) -> u8 {
        self.root.class().map_or(0, |class| class.scheme.redundancy_factor())
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut raw = Vec::with_capacity(SUPERBLOCK_BYTES);
        raw.extend_from_slice(MAGIC);
        raw.extend_from_slice(&self.version.to_le_bytes());
        raw.extend_from_slice(&class_bytes(Some(self.file_class)));
        raw.extend_from_slice(&class_bytes(Some(self.dir_class)));
        raw.extend_from_slice(&self.chunk_bytes.to_le_bytes());
        raw.extend_from_slice(&self.root.to_bytes());
        raw
    }

    /// Reads a record: `Inval` when it is none, `Version` when it is too new.
    pub fn decode(raw: &[u8]) -> Result<Superblock> {
        let none = || Error::inval("the container's superblock is not one of a file system");
        if raw.get(..4) != Some(MAGIC) {
            return Err(none());
        }
        let version = raw.get(4..6).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]));
        if !(LAYOUT_VERSION_FIRST..=LAYOUT_VERSION).contains(&version) {
            return Err(Error::new(
                Code::Version,
                format!("file system layout {version}; this version reads up to {LAYOUT_VERSION}"),
            ));
        }
        let raw: &[u8; SUPERBLOCK_BYTES] = raw.try_into().map_err(|_| none())?;
        let class = |at: usize| class_from([raw[at], raw[at + 1]]).flatten().ok_or_else(none);
        let mut root = [0; 16];
        root.copy_from_slice(&raw[14..30]);
        Ok(Superblock {
            version,
            file_class: class(6)?,
            dir_class: class(8)?,
            chunk_bytes: u32::from_le_bytes([raw[10], raw[11], raw[12], raw[13]]),
            root: Oid::from_bytes(root),
        })
    }
}

/// The superblock's object where it survives so many losses. Its placement epoch is the first, which always stays resolvable.
pub(crate) fn superblock_oid(losses: u8) -> Oid {
    let scheme = match losses {
        0 => Scheme::Striped,
        losses => Scheme::Replicated { copies: losses.saturating_add(1).min(6) },
    };
    let class = ObjClass { scheme, ..ObjClass::S1 };
    Oid::generate(0, SUPERBLOCK_NUMBER, ObjType::MultiHashed, class, 0)
}

/// Where the superblock of a file system may be, the likeliest first. What it survives follows from the container's `rd_fac`, which never changes, and the class of
/// the root directory, which was that of directories when the file system was made.
pub(crate) fn superblock_places(props: &ContProps) -> impl Iterator<Item = Oid> {
    let now = props.dir_oclass.scheme.redundancy_factor().max(props.rd_fac);
    let others = (props.rd_fac..=RD_FAC_MAX).filter(move |losses| *losses != now);
    std::iter::once(now).chain(others).map(superblock_oid)
}

/// The user's part of the root directory's id.
pub(crate) fn root_number() -> u64 {
    ROOT_NUMBER
}

/// The akey of an extended attribute.
pub(crate) fn xattr_akey(name: &[u8]) -> Vec<u8> {
    [XATTR_PREFIX, name].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_the_superblock() {
        // Stored once per container: a change needs a new version and a reader of this one.
        let superblock = Superblock {
            version: LAYOUT_VERSION_FIRST,
            file_class: ObjClass::S1,
            dir_class: ObjClass::SX,
            chunk_bytes: 1 << 20,
            root: Oid { hi: 0x0102, lo: 1 },
        };
        let raw = superblock.encode();
        assert_eq!(raw, b"AZFS\x01\0\0\0\0\xff\0\0\x10\0\x02\x01\0\0\0\0\0\0\x01\0\0\0\0\0\0\0",);
        assert_eq!(Superblock::decode(&raw).unwrap(), superblock);
        assert_eq!(Superblock::decode(&raw[..29]).unwrap_err().code, Code::Inval);
        assert_eq!(Superblock::decode(b"AZFS\x03\0").unwrap_err().code, Code::Version);
        assert_eq!(Superblock::decode(b"").unwrap_err().code, Code::Inval);
    }

    /// Directories and files of a container made with `--oclass RP_2GX` had two copies, and its superblock one: with that engine's store the whole file system was gone.
    #[test]
    fn a_superblock_survives_what_the_root_directory_does() {
        let of = |dir_class: &str, rd_fac: u8| {
            let dir_class: ObjClass = dir_class.parse().unwrap();
            let root = Oid::generate(0, ROOT_NUMBER, ObjType::MultiHashed, dir_class, 0);
            let made = Superblock {
                version: 0,
                file_class: ObjClass::S1,
                dir_class,
                chunk_bytes: 1 << 20,
                root,
            }
            .versioned(rd_fac);
            let oid = made.oid(rd_fac);
            assert_eq!(Superblock::decode(&made.encode()).unwrap().oid(rd_fac), oid);
            // It is found by who knows the container only, also when directories are to be of another class by now.
            for dir_oclass in [dir_class, ObjClass::SX] {
                let props = ContProps { dir_oclass, rd_fac, ..ContProps::posix(rd_fac) };
                assert!(superblock_places(&props).any(|place| place == oid));
            }
            (made.version, oid.class().unwrap().scheme.redundancy_factor())
        };
        assert_eq!(of("SX@8192", 0), (1, 0));
        assert_eq!(of("RP_2GX@8192", 0), (2, 1));
        assert_eq!(of("RP_2GX@8192", 1), (1, 1));
        assert_eq!(of("RP_3GX", 1), (2, 2));
        assert_eq!(of("EC_2P1GX", 0), (2, 1));
        assert_eq!(of("S1", 2), (1, 2));
    }

    #[test]
    fn no_file_can_be_called_like_the_marker() {
        assert!(types::limits::check_name(MARKER).is_err());
    }
}
