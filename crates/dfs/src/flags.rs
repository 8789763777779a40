//! Flags of mounting, opening, renaming, setting attributes.

use crate::inode::FileKind;
use types::{ObjClass, Result};

macro_rules! flag_set {
    ($(#[$doc:meta])* $name:ident($raw:ty) { $($(#[$bit_doc:meta])* $bit:ident = $value:expr;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
        pub struct $name(pub $raw);

        impl $name {
            pub const NONE: $name = $name(0);
            $($(#[$bit_doc])* pub const $bit: $name = $name($value);)+

            /// True when all bits of `other` are set.
            pub const fn has(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }

            /// The bits of both.
            pub const fn and(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }

            /// The bits that `other` lacks.
            pub const fn without(self, other: $name) -> $name {
                $name(self.0 & !other.0)
            }
        }

        impl std::ops::BitOr for $name {
            type Output = $name;
            fn bitor(self, other: $name) -> $name {
                self.and(other)
            }
        }
    };
}

flag_set! {
    /// How a file system is mounted.
    MountFlags(u32) {
        /// Every change fails with `ReadOnly`.
        READ_ONLY = 1;
        /// Mode bits are stored but not enforced: for callers that have checked already (the
        /// kernel in front of a mount) or promise not to check (DAOS's dfs calls).
        NO_PERM_CHECK = 2;
        /// The first read through an open file sets its access time, if that is older than the
        /// last change or a day old.
        RELATIME = 4;
    }
}

flag_set! {
    /// How an object is opened; like `open(2)`.
    OpenFlags(u32) {
        READ = 1;
        WRITE = 2;
        /// Make it if it is not there.
        CREATE = 4;
        /// With `CREATE`: fail with `Exist` if it is there.
        EXCL = 8;
        /// Cut a regular file to nothing.
        TRUNC = 16;
        /// Every write goes to the end.
        APPEND = 32;
        /// `NotDir` if it is something else.
        DIRECTORY = 64;
        /// Do not follow a symbolic link in the last place.
        NOFOLLOW = 128;
        /// Only to name it: neither reads nor writes, needs no permission on it.
        PATH = 256;
        /// With `NOFOLLOW`: a symbolic link in the last place is opened itself, as with `PATH`.
        LINK = 512;
    }
}

impl OpenFlags {
    /// For reading and writing.
    pub const READ_WRITE: OpenFlags = OpenFlags(3);

    /// From the `O_*` bits of Linux on x86-64 and most others. Bits without a meaning here
    /// (`O_CLOEXEC`, `O_DIRECT` and the like) are ignored.
    pub fn from_posix(bits: i32) -> OpenFlags {
        const O_ACCMODE: i32 = 3;
        const O_WRONLY: i32 = 1;
        const O_RDWR: i32 = 2;
        let mut flags = match bits & O_ACCMODE {
            O_WRONLY => OpenFlags::WRITE,
            O_RDWR => OpenFlags::READ_WRITE,
            _ => OpenFlags::READ,
        };
        for (bit, flag) in [
            (0o100, OpenFlags::CREATE),
            (0o200, OpenFlags::EXCL),
            (0o1000, OpenFlags::TRUNC),
            (0o2000, OpenFlags::APPEND),
            (0o200_000, OpenFlags::DIRECTORY),
            (0o400_000, OpenFlags::NOFOLLOW),
            (0o10_000_000, OpenFlags::PATH),
        ] {
            if bits & bit != 0 {
                flags = flags | flag;
            }
        }
        if flags.has(OpenFlags::PATH) {
            flags = flags.without(OpenFlags::READ_WRITE);
        }
        flags
    }
}

flag_set! {
    /// Variants of rename, with the numbers of `renameat2(2)`.
    RenameFlags(u32) {
        /// Fail with `Exist` when the new name is taken.
        NOREPLACE = 1;
        /// Swap the two.
        EXCHANGE = 2;
    }
}

flag_set! {
    /// What [`crate::Dfs::fallocate`] does, with the numbers of `fallocate(2)`.
    AllocateFlags(u32) {
        /// The size stays.
        KEEP_SIZE = 1;
        PUNCH_HOLE = 2;
        /// Make the range read as zero.
        ZERO_RANGE = 16;
    }
}

flag_set! {
    /// What [`crate::Dfs::access`] asks for, with the numbers of `access(2)`.
    Access(u32) {
        /// May it be executed (searched, if a directory)?
        EXECUTE = 1;
        /// May it be written?
        WRITE = 2;
        /// May it be read?
        READ = 4;
    }
}

/// What a new object shall be, beside its name.
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateOptions {
    /// Class of the file's object; `None`: the directory's, then the container's.
    pub class: Option<ObjClass>,
    /// Chunk size in bytes; 0: the directory's, then the container's.
    pub chunk_bytes: u64,
}

/// What a new entry made by `mknod` shall be.
#[derive(Clone, Copy, Debug)]
pub struct NodeKind {
    /// Regular files and special files; directories and symbolic links have their own calls.
    pub kind: FileKind,
    /// Device number, for device nodes.
    pub rdev: u64,
}

/// A new time stamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The present. Whoever may write the file may ask for it.
    Now,
    /// This time, nanoseconds since 1970. Only the owner may ask for it.
    At(i64),
}

/// Attributes to change; `None` leaves one alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr {
    /// Permission bits; type bits, if given, must be those the object has.
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Size of a regular file, bytes.
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    /// Clear set-user-id, and set-group-id where the group may execute: what a kernel asks for
    /// after it has checked the caller.
    pub drop_privileges: bool,
}

/// Checks a chunk size: 0 for "inherit", or what [`types::props::check_chunk_bytes`] allows.
pub(crate) fn check_chunk_bytes(bytes: u64) -> Result<u32> {
    if bytes != 0 {
        types::props::check_chunk_bytes(bytes)?;
    }
    Ok(bytes as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posix_open_bits_translate() {
        assert_eq!(OpenFlags::from_posix(0), OpenFlags::READ);
        assert_eq!(
            OpenFlags::from_posix(0o1 | 0o100 | 0o200),
            OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCL
        );
        assert_eq!(OpenFlags::from_posix(0o2 | 0o2000), OpenFlags::READ_WRITE | OpenFlags::APPEND);
        assert_eq!(OpenFlags::from_posix(0o10_000_000), OpenFlags::PATH);
    }
}
