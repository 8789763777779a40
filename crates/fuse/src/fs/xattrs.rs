//! Requests about extended attributes.

use super::fault::{Answer, Fault};
use super::table::Inode;
use super::worker::Worker;
use dfs::inode::S_ISGID;
use dfs::{XattrMode, acl, layout_attr};
use fuselow::{NodeId, Request, SetXattr};

/// Namespaces that the kernel lets through, each by its own rules.
const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

/// Refuses names that no file system of Linux takes; what reads them back to write them elsewhere would fail there.
fn check_namespace(name: &[u8]) -> Answer {
    if acl::is_acl(name) {
        return Ok(());
    }
    match NAMESPACES.iter().find_map(|prefix| name.strip_prefix(*prefix)) {
        None => Err(Fault::Os(libc::EOPNOTSUPP)),
        Some(b"") => Err(Fault::Os(libc::EINVAL)),
        Some(_) => Ok(()),
    }
}

impl Worker {
    /// True when the node had no attributes a moment ago. Programs ask for ACLs and capabilities
    /// of every file they list or run, and next to none has any.
    fn knows_no_xattrs(&self, inode: &Inode) -> bool {
        let ttl = self.volume.options.policy.attr_ttl;
        inode.is_known_since(self.now_ns().saturating_sub(ttl.as_nanos() as u64))
            && !inode.shared().may_have_xattrs()
    }

    pub async fn setxattr(&self, req: &Request, node: NodeId, set: SetXattr<'_>) -> Answer {
        let mode = match set.flags as i32 {
            0 => XattrMode::Set,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Fault::Os(libc::EINVAL)),
        };
        check_namespace(set.name)?;
        let inode = self.inode(node)?;
        let obj = self.named(&inode);
        inode.touch(&self.volume.table);
        let dfs = self.dfs_for(req);
        let is_acl = set.name == acl::ACCESS;
        let done = if is_acl {
            // The kernel leaves to us what the ACL means for the permission bits.
            let kept = if set.acl_kill_sgid { obj.mode() & !S_ISGID } else { obj.mode() };
            dfs.set_access_acl(&obj, kept, set.value, mode).await
        } else {
            dfs.setxattr(&obj, set.name, set.value, mode).await
        };
        let made = obj.share();
        inode.change(&self.volume.table, |shared| {
            if done.is_ok() {
                shared.take_attributes(&made);
            }
        });
        if done.is_ok() && is_acl && !self.volume.options.policy.attr_ttl.is_zero() {
            // It does not expect its idea of the permission bits to be wrong now.
            self.notifier.inval_inode(node, -1, 0);
            self.notifier.flushed().await;
        }
        done.map_err(Fault::of_node)
    }

    /// The value of an attribute.
    pub async fn getxattr(&self, req: &Request, node: NodeId, name: &[u8]) -> Answer<Vec<u8>> {
        let inode = self.inode(node)?;
        if self.knows_no_xattrs(&inode) && !layout_attr::is_layout(name) {
            return Err(types::Code::NoAttr.into());
        }
        let obj = self.named(&inode);
        self.dfs_for(req).getxattr(&obj, name).await.map_err(Fault::of_node)
    }

    /// The names of all attributes, each ended by a NUL.
    pub async fn listxattr(&self, req: &Request, node: NodeId) -> Answer<Vec<u8>> {
        let inode = self.inode(node)?;
        if self.knows_no_xattrs(&inode) {
            return Ok(Vec::new());
        }
        let obj = self.named(&inode);
        let names = self.dfs_for(req).listxattr(&obj).await.map_err(Fault::of_node)?;
        let mut all = Vec::new();
        // The kernel refuses others the values, but shows what names it is told.
        let is_shown = |name: &&Vec<u8>| req.uid() == 0 || !name.starts_with(b"trusted.");
        for name in names.iter().filter(is_shown) {
            all.extend_from_slice(name);
            all.push(0);
        }
        Ok(all)
    }

    pub async fn removexattr(&self, req: &Request, node: NodeId, name: &[u8]) -> Answer {
        let inode = self.inode(node)?;
        let obj = self.named(&inode);
        inode.touch(&self.volume.table);
        let done = self.dfs_for(req).removexattr(&obj, name).await;
        let made = obj.share();
        inode.change(&self.volume.table, |shared| {
            if done.is_ok() {
                shared.take_attributes(&made);
            }
        });
        done.map_err(Fault::of_node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_a_namespace_of_linux() {
        for name in [
            "user.a",
            "trusted.overlay.opaque",
            "security.capability",
            "system.posix_acl_access",
            "system.posix_acl_default",
        ] {
            assert!(check_namespace(name.as_bytes()).is_ok(), "{name}");
        }
        for (name, wanted) in [
            ("foo", libc::EOPNOTSUPP),
            ("system.foo", libc::EOPNOTSUPP),
            ("system.posix_acl_xyz", libc::EOPNOTSUPP),
            ("user", libc::EOPNOTSUPP),
            ("user.", libc::EINVAL),
        ] {
            let refused = check_namespace(name.as_bytes()).unwrap_err();
            assert!(matches!(refused, Fault::Os(errno) if errno == wanted), "{name}");
        }
    }
}
