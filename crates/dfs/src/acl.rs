//! The access ACL as an extended attribute (`system.posix_acl_access`): setting it sets the
//! permission bits too, and one that says no more than permission bits is nothing else. Tools that
//! copy files set modes so. What is made in a directory with a default ACL
//! (`system.posix_acl_default`) gets its ACLs from there, and the umask is left out.
//!
//! The rules are those of the withdrawn POSIX 1003.1e draft 17 as `acl(5)` has them. Evaluated are ACLs by
//! kernels only, on a mount with the option `acl`; the checks of this crate know permission bits.

use crate::flags::SetAttr;
use crate::fs::Dfs;
use crate::inode::{FileKind, Inode};
use crate::layout::xattr_akey;
use crate::node::Obj;
use crate::walk::Step;
use crate::xattr::XattrMode;
use async_recursion::async_recursion as boxed;
use types::{Code, Error, Result};

/// Name of the attribute.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the attribute of a directory that says what new entries get.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// True for the names of ACLs.
pub fn is_acl(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

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

/// Every entry's tag and permission bits, to be changed in place. `raw` is a valid ACL.
fn entries(raw: &mut [u8]) -> impl Iterator<Item = (u16, &mut u8)> {
    raw[4..].chunks_exact_mut(8).map(|entry| {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        (tag, &mut entry[2])
    })
}

/// Whether `tag` is the entry that stands for the group bits of the mode.
fn is_group_class(tag: u16, is_plain: bool) -> bool {
    tag == if is_plain { GROUP_OBJ } else { MASK }
}

/// An access ACL after the permission bits of its object were set to those of `mode`; none for bytes
/// that are no valid ACL.
pub fn with_mode(raw: &[u8], mode: u32) -> Option<Vec<u8>> {
    let is_plain = meaning(raw)?.is_plain;
    let mut changed = raw.to_vec();
    for (tag, bits) in entries(&mut changed) {
        match tag {
            USER_OBJ => *bits = (mode >> 6 & 7) as u8,
            OTHER => *bits = (mode & 7) as u8,
            tag if is_group_class(tag, is_plain) => *bits = (mode >> 3 & 7) as u8,
            _ => {}
        }
    }
    Some(changed)
}

/// What something new gets from the default ACL of its directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Inherited {
    /// Permission bits: those asked for, as far as the ACL grants them.
    pub permissions: u32,
    /// Permission bits of one that cannot keep an ACL: its group gets what the ACL grants the owning
    /// group, instead of the most that it grants anybody named.
    pub permissions_alone: u32,
    /// The access ACL, when it says more than the bits.
    pub access: Option<Vec<u8>>,
}

/// What something made with `mode` gets from a default ACL; none for bytes that are no valid ACL.
pub fn inherited(default: &[u8], mode: u32) -> Option<Inherited> {
    let is_plain = meaning(default)?.is_plain;
    let mut access = default.to_vec();
    let (mut owning_group, mut most) = (0, 7);
    for (tag, bits) in entries(&mut access) {
        match tag {
            USER_OBJ => *bits &= (mode >> 6) as u8,
            OTHER => *bits &= mode as u8,
            tag if is_group_class(tag, is_plain) => *bits &= (mode >> 3) as u8,
            _ => {}
        }
        match tag {
            GROUP_OBJ => owning_group = u32::from(*bits),
            MASK => most = u32::from(*bits),
            _ => {}
        }
    }
    let permissions = meaning(&access)?.mode;
    let permissions_alone = permissions & !0o070 | (owning_group & most) << 3;
    Some(Inherited { permissions, permissions_alone, access: (!is_plain).then_some(access) })
}

/// Akeys and values of attributes that something has from the start.
pub(crate) type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

impl Dfs {
    /// Gives a new inode, made with `mode`, what the default ACL of its directory says. Returns the
    /// attributes it gets. One request more, for directories that have attributes.
    pub(crate) async fn inherit(
        &self,
        at: &Step,
        mode: u32,
        inode: &mut Inode,
    ) -> Result<Attributes> {
        let mut attributes = Attributes::new();
        let Some((default, inherited)) = self.default_of(at, mode, inode.kind()).await? else {
            return Ok(attributes);
        };
        inode.mode = inode.mode & !0o777 | inherited.permissions;
        attributes.extend(inherited.access.map(|access| (xattr_akey(ACCESS), access)));
        if inode.is_dir() {
            attributes.push((xattr_akey(DEFAULT), default));
        }
        inode.has_xattrs = !attributes.is_empty();
        Ok(attributes)
    }

    /// The same for a file without a name, which has no place for attributes.
    pub(crate) async fn inherit_alone(
        &self,
        at: &Step,
        mode: u32,
        inode: &mut Inode,
    ) -> Result<()> {
        if let Some((_, inherited)) = self.default_of(at, mode, inode.kind()).await? {
            inode.mode = inode.mode & !0o777 | inherited.permissions_alone;
        }
        Ok(())
    }

    async fn default_of(
        &self,
        at: &Step,
        mode: u32,
        kind: FileKind,
    ) -> Result<Option<(Vec<u8>, Inherited)>> {
        if !at.inode.has_xattrs || kind == FileKind::Symlink {
            return Ok(None);
        }
        let place = self.shared.place_of(at.location.parent, &at.location.name, &at.inode);
        let default = Box::pin(self.shared.fetch_xattr(place, &xattr_akey(DEFAULT))).await?;
        Ok(default.and_then(|raw| inherited(&raw, mode).map(|inherited| (raw, inherited))))
    }

    /// Has the access ACL of an object follow its permission bits, which are about to be set to those of
    /// `mode`; false: there is none.
    pub(crate) async fn acl_follows(&self, obj: &Obj, mode: u32) -> Result<bool> {
        let old = match self.getxattr(obj, ACCESS).await {
            Err(error) if error.code == Code::NoAttr => return Ok(false),
            old => old?,
        };
        match with_mode(&old, mode) {
            Some(new) if new != old => {
                self.setxattr(obj, ACCESS, &new, XattrMode::Set).await.map(|()| true)
            }
            _ => Ok(false),
        }
    }

    /// Sets the access ACL of an object, and its permission bits. `mode` is that of the object
    /// before: the bits beyond read, write and execute stay.
    ///
    /// Errors: `Inval` for bytes that are no ACL; `NoPerm` for who is not the owner; those of
    /// [`Dfs::setxattr`].
    #[boxed(?Send)]
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
    fn what_is_new_gets_what_was_asked_for_and_the_default_grants() {
        let named = [(USER_OBJ, 7), (USER, 7), (GROUP_OBJ, 1), (GROUP, 6), (MASK, 7), (OTHER, 5)];
        let got = inherited(&acl(&named), 0o640).unwrap();
        assert_eq!((got.permissions, got.permissions_alone), (0o640, 0o600));
        let want = [(USER_OBJ, 6), (USER, 7), (GROUP_OBJ, 1), (GROUP, 6), (MASK, 4), (OTHER, 0)];
        assert_eq!(got.access, Some(acl(&want)));
        let plain = inherited(&acl(&[(USER_OBJ, 7), (GROUP_OBJ, 5), (OTHER, 0)]), 0o666).unwrap();
        assert_eq!((plain.permissions, plain.permissions_alone), (0o640, 0o640));
        assert_eq!(plain.access, None);
        assert_eq!(inherited(b"no acl", 0o777), None);
    }

    #[test]
    fn the_mask_follows_the_group_bits() {
        let named = [(USER_OBJ, 7), (USER, 7), (GROUP_OBJ, 1), (MASK, 7), (OTHER, 5)];
        let want = [(USER_OBJ, 6), (USER, 7), (GROUP_OBJ, 1), (MASK, 4), (OTHER, 1)];
        assert_eq!(with_mode(&acl(&named), 0o641), Some(acl(&want)));
        let plain = [(USER_OBJ, 7), (GROUP_OBJ, 1), (OTHER, 5)];
        let want = [(USER_OBJ, 6), (GROUP_OBJ, 4), (OTHER, 1)];
        assert_eq!(with_mode(&acl(&plain), 0o100_641), Some(acl(&want)));
        assert_eq!(with_mode(b"", 0), None);
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
