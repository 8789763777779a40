//! Who is calling, and what mode bits allow.
//!
//! Rules are those of POSIX and Linux: exactly one of owner, group and other bits applies; uid
//! 0 may do everything, except execute a file that nobody may execute. The checks run in the
//! client, so they guard against mistakes, not against a hostile client; pools are what keep
//! people apart.

use crate::flags::Access;
use crate::inode::{Inode, S_ISVTX};
use types::{Code, Error, Result};

/// Who calls: user, groups and umask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credentials {
    pub uid: u32,
    /// First group; group of what the user makes.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// Permission bits that are taken from the mode of whatever is made; 0: none.
    pub umask: u32,
}

impl Credentials {
    /// A user with one group and no umask.
    pub fn new(uid: u32, gid: u32) -> Credentials {
        Credentials { uid, gid, groups: Vec::new(), umask: 0 }
    }

    pub fn root() -> Credentials {
        Credentials::new(0, 0)
    }

    /// True when the user is in the group.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// True when the user owns the inode or is the superuser.
    pub fn owns(&self, inode: &Inode) -> bool {
        self.uid == 0 || self.uid == inode.uid
    }

    /// `Access` unless the mode bits allow all that is asked for.
    pub fn check(&self, inode: &Inode, want: Access) -> Result<()> {
        if self.uid == 0 {
            let executable = inode.is_dir() || inode.mode & 0o111 != 0;
            return if want.has(Access::EXECUTE) && !executable { Err(denied()) } else { Ok(()) };
        }
        let shift = if self.uid == inode.uid {
            6
        } else if self.in_group(inode.gid) {
            3
        } else {
            0
        };
        if (inode.mode >> shift) & 7 & want.0 == want.0 { Ok(()) } else { Err(denied()) }
    }

    /// `NoPerm` when the directory is sticky and the user owns neither it nor the entry.
    pub fn check_sticky(&self, dir: &Inode, entry: &Inode) -> Result<()> {
        if dir.mode & S_ISVTX == 0 || self.owns(dir) || self.uid == entry.uid {
            return Ok(());
        }
        Err(Error::bare(Code::NoPerm))
    }
}

fn denied() -> Error {
    Error::bare(Code::Access)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::{S_IFDIR, S_IFREG};
    use types::{Epoch, Oid};

    fn inode(mode: u32, uid: u32, gid: u32) -> Inode {
        Inode {
            oid: Oid::NIL,
            hard: false,
            has_xattrs: false,
            quiet: false,
            mode,
            uid,
            gid,
            nlink: 1,
            chunk_bytes: 0,
            atime_ns: 0,
            mtime_ns: 0,
            ctime_ns: 0,
            mtime_epoch: Epoch::ZERO,
            rdev: 0,
            file_class: None,
            dir_class: None,
        }
    }

    #[test]
    fn exactly_one_class_of_bits_applies() {
        let owner = Credentials::new(1, 9);
        let member = Credentials { groups: vec![5], ..Credentials::new(2, 9) };
        let other = Credentials::new(3, 9);
        // The owner is refused although everybody else may read.
        let file = inode(S_IFREG | 0o047, 1, 5);
        assert!(owner.check(&file, Access::READ).is_err());
        assert!(member.check(&file, Access::READ).is_ok());
        assert!(member.check(&file, Access::WRITE).is_err());
        assert!(other.check(&file, Access::READ | Access::WRITE | Access::EXECUTE).is_ok());
    }

    #[test]
    fn the_superuser_executes_only_what_somebody_may() {
        let root = Credentials::root();
        assert!(root.check(&inode(S_IFREG, 1, 1), Access::READ | Access::WRITE).is_ok());
        assert!(root.check(&inode(S_IFREG | 0o600, 1, 1), Access::EXECUTE).is_err());
        assert!(root.check(&inode(S_IFREG | 0o001, 1, 1), Access::EXECUTE).is_ok());
        assert!(root.check(&inode(S_IFDIR, 1, 1), Access::EXECUTE).is_ok());
    }

    #[test]
    fn sticky_directories_let_only_owners_delete() {
        let dir = inode(S_IFDIR | S_ISVTX | 0o777, 1, 1);
        let file = inode(S_IFREG, 2, 2);
        for (uid, allowed) in [(0, true), (1, true), (2, true), (3, false)] {
            assert_eq!(Credentials::new(uid, 9).check_sticky(&dir, &file).is_ok(), allowed);
        }
        let plain = inode(S_IFDIR | 0o777, 1, 1);
        assert!(Credentials::new(3, 9).check_sticky(&plain, &file).is_ok());
    }
}
