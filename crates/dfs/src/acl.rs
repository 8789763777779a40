//! The access ACL as an extended attribute (`system.posix_acl_access`): setting it sets the
//! permission bits too, and one that says no more than permission bits is nothing else. Tools that
//! copy files set modes so.
//!
//! ACLs are stored, and handed on by tools that copy files; only permission bits are enforced.

use crate::flags::SetAttr;
use crate::fs::Dfs;
use crate::node::Obj;
use crate::xattr::XattrMode;
use types::{Code, Error, Result};

/// Name of the attribute.
pub const ACCESS: &[u8] = b"system.posix_acl_access";

const VERSION: u32 = 2;
const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;

/// What an ACL means for the permission bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meaning {
    /// Bits of owner, group (or mask) and others.
    pub mode: u32,
    /// It says no more.
    pub is_plain: bool,
}

/// Reads an ACL as the kernel takes it; none for bytes that are no valid one.
pub fn meaning(raw: &[u8]) -> Option<Meaning> {
    let (version, entries) = raw.split_at_checked(4)?;
    if u32::from_le_bytes(version.try_into().ok()?) != VERSION || entries.len() % 8 != 0 {
        return None;
    }
    let (mut owner, mut group, mut other, mut mask) = (None, None, None, None);
    let mut is_plain = true;
    for entry in entries.chunks_exact(8) {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        let bits = u32::from(u16::from_le_bytes([entry[2], entry[3]]));
        if bits > 7 {
            return None;
        }
        let place = match tag {
            USER_OBJ => &mut owner,
            GROUP_OBJ => &mut group,
            OTHER => &mut other,
            MASK => {
                is_plain = false;
                &mut mask
            }
            USER | GROUP => {
                is_plain = false;
                continue;
            }
            _ => return None,
        };
        if place.replace(bits).is_some() {
            return None;
        }
    }
    if !is_plain && mask.is_none() {
        return None;
    }
    let mode = owner? << 6 | mask.or(group)? << 3 | other?;
    group.map(|_| Meaning { mode, is_plain })
}

impl Dfs {
    /// Sets the access ACL of an object, and its permission bits. `mode` is that of the object
    /// before: the bits beyond read, write and execute stay.
    ///
    /// Errors: `Inval` for bytes that are no ACL; `NoPerm` for who is not the owner; those of
    /// [`Dfs::setxattr`].
    pub async fn set_access_acl(
        &self,
        obj: &Obj,
        mode: u32,
        value: &[u8],
        how: XattrMode,
    ) -> Result<()> {
        let meaning = meaning(value).ok_or_else(|| Error::bare(Code::Inval))?;
        let mode = Some(mode & 0o7000 | meaning.mode);
        self.setattr(obj, &SetAttr { mode, ..SetAttr::default() }).await?;
        if !meaning.is_plain {
            return self.setxattr(obj, ACCESS, value, how).await;
        }
        if !obj.node.inode().has_xattrs {
            return Ok(());
        }
        match self.removexattr(obj, ACCESS).await {
            Err(error) if error.code != Code::NoAttr => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16)]) -> Vec<u8> {
        let mut raw = VERSION.to_le_bytes().to_vec();
        for (tag, bits) in entries {
            raw.extend_from_slice(&tag.to_le_bytes());
            raw.extend_from_slice(&bits.to_le_bytes());
            raw.extend_from_slice(&u32::MAX.to_le_bytes());
        }
        raw
    }

    #[test]
    fn permission_bits_follow() {
        let plain = acl(&[(USER_OBJ, 6), (GROUP_OBJ, 4), (OTHER, 0)]);
        assert_eq!(meaning(&plain), Some(Meaning { mode: 0o640, is_plain: true }));
        let named = acl(&[(USER_OBJ, 7), (USER, 7), (GROUP_OBJ, 5), (MASK, 1), (OTHER, 4)]);
        assert_eq!(meaning(&named), Some(Meaning { mode: 0o714, is_plain: false }));
        for end in 0..named.len() {
            let _ = meaning(&named[..end]);
        }
        let bad = [
            acl(&[(USER_OBJ, 6), (GROUP_OBJ, 4)]),
            acl(&[(USER_OBJ, 6), (USER, 4), (GROUP_OBJ, 4), (OTHER, 0)]),
            acl(&[(USER_OBJ, 9), (GROUP_OBJ, 4), (OTHER, 0)]),
            acl(&[(USER_OBJ, 6), (USER_OBJ, 6), (GROUP_OBJ, 4), (OTHER, 0)]),
            acl(&[(64, 6), (USER_OBJ, 6), (GROUP_OBJ, 4), (OTHER, 0)]),
        ];
        assert!(bad.iter().all(|raw| meaning(raw).is_none()));
    }
}
