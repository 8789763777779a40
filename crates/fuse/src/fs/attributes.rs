//! Requests about attributes and space.

use super::convert;
use super::fault::{Answer, Fault};
use super::table::Inode;
use super::worker::{Worker, version_of};
use dfs::{Access, OpenFlags, Stat};
use fuselow::{Fh, NodeId, Request, SetAttr, Stat as Told, StatFs};
use std::time::Duration;

impl Worker {
    /// Attributes of a node.
    pub async fn getattr(&self, req: &Request, node: NodeId) -> Answer<Told> {
        let inode = self.inode(node)?;
        // After each change of a directory's names the kernel asks for its attributes, to check
        // permissions, although it was told them a moment ago.
        let ttl = self.volume.options.policy.attr_ttl;
        let now_ns = self.now_ns();
        if let Some((stat, asked_ns)) =
            inode.remembered(now_ns.saturating_sub(ttl.as_nanos() as u64))
        {
            let age = Duration::from_nanos(now_ns.saturating_sub(asked_ns));
            let told = self.told(&inode, &stat);
            return Ok(Told { attr_ttl: ttl.saturating_sub(age), ..told });
        }
        let stat = match self.has_hold(req, &inode) {
            true => self.dfs.ostat(&self.named(&inode)).await.map_err(Fault::of_node),
            false => self.stat(&inode).await,
        };
        if ttl.is_zero() && matches!(stat, Err(Fault::Gone)) {
            // The kernel may ask before it opens the file.
            self.note_replaced(req, &self.named(&inode));
        }
        Ok(self.told(&inode, &stat?))
    }

    /// Attributes of a node as the engines know them. What is open, or was removed through this
    /// mount, has attributes without a name; anything else that lost its name is gone.
    pub(super) async fn stat(&self, inode: &Inode) -> Answer<Stat> {
        let as_of = self.volume.table.now();
        let obj = self.named(inode);
        let nameless = inode.shared().is_unlinked() || inode.is_open();
        let stat =
            if nameless { self.dfs.ostat(&obj).await } else { self.dfs.stat_named(&obj).await };
        let stat = stat.map_err(Fault::of_node)?;
        self.learn(inode, &obj, as_of);
        inode.remember(&stat, as_of, self.now_ns());
        Ok(stat)
    }

    pub async fn setattr(&self, req: &Request, node: NodeId, set: &SetAttr) -> Answer<Told> {
        let inode = self.inode(node)?;
        // Who has the file open for writing may cut it, whatever its mode says by now.
        let flags = if set.fh.is_some() { OpenFlags::WRITE } else { OpenFlags::PATH };
        let obj = self.obj(&inode, flags);
        let is_dir = obj.is_dir();
        // The kernel leaves to us what a change of the owner does to set-user-id.
        let chowned = self.volume.options.kernel_checks
            && !is_dir
            && set.mode.is_none()
            && (set.uid.is_some() || set.gid.is_some());
        let change = dfs::SetAttr {
            mode: set.mode,
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            atime: set.atime.map(convert::set_time),
            mtime: set.mtime.map(convert::set_time),
            drop_privileges: chowned || (set.kill_suidgid && has_privileges(obj.mode())),
        };
        inode.touch(&self.volume.table);
        let stat = self.dfs_for(req).setattr(&obj, &change).await;
        let made = obj.share();
        inode.change(&self.volume.table, |shared| {
            if stat.is_ok() {
                shared.take_attributes(&made);
            }
        });
        let stat = stat.map_err(Fault::of_node)?;
        // It is the kernel's own change.
        if inode.node() == node.0 {
            inode.tell(version_of(&stat));
        }
        Ok(self.told(&inode, &stat))
    }

    /// Clears set-user-id and set-group-id after a write by one who may not keep them.
    pub(super) async fn drop_privileges(&self, inode: &Inode) -> Answer {
        let obj = self.named(inode);
        if !has_privileges(obj.mode()) {
            return Ok(());
        }
        let change = dfs::SetAttr { drop_privileges: true, ..dfs::SetAttr::default() };
        self.dfs.setattr(&obj, &change).await?;
        let made = obj.share();
        inode.change(&self.volume.table, |shared| shared.take_attributes(&made));
        if !self.volume.options.policy.attr_ttl.is_zero() {
            // It would show the bits, and run the file with them, for as long as it keeps attributes.
            self.notifier.inval_attributes_now(NodeId(inode.node()));
        }
        Ok(())
    }

    /// The same after a change of the data that the kernel says nothing with: who may keep the bits is told by who asks.
    pub(super) async fn drop_privileges_of_others(&self, req: &Request, inode: &Inode) -> Answer {
        match req.uid() {
            0 => Ok(()),
            _ => self.drop_privileges(inode).await,
        }
    }

    /// May the caller do this? Asked only where the kernel does not check itself.
    pub async fn access(&self, req: &Request, node: NodeId, mask: u32) -> Answer {
        let inode = self.inode(node)?;
        let as_of = self.volume.table.now();
        let obj = self.named(&inode);
        // By what the mode is now.
        self.dfs.stat_named(&obj).await.map_err(Fault::of_node)?;
        self.learn(&inode, &obj, as_of);
        Ok(self.dfs_for(req).oaccess(&obj, Access(mask & 7))?)
    }

    /// Space of the pool.
    pub async fn statfs(&self) -> Answer<StatFs> {
        Ok(convert::space(&self.dfs.statfs().await?))
    }

    /// Attributes of an open file, for those who ask by its number.
    pub async fn getattr_open(&self, req: &Request, node: NodeId, fh: Option<Fh>) -> Answer<Told> {
        match fh.map(|fh| self.file(fh)) {
            Some(Ok(file)) => {
                let stat = self.stat(&file.inode).await?;
                Ok(self.told(&file.inode, &stat))
            }
            _ => self.getattr(req, node).await,
        }
    }
}

/// True when mode bits make whoever runs the file somebody else.
fn has_privileges(mode: u32) -> bool {
    mode & 0o6000 != 0
}
