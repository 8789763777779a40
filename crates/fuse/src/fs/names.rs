//! Requests about names: lookup, making, removing, renaming, linking.
//!
//! Invariant: a change of a directory's names is noted before it begins and after it ended, so
//! that a listing read in between never brings a removed name back.

use super::ahead::{Known, LIFE, Look};
use super::fault::{Answer, Fault};
use super::table::Inode;
use super::volume::VolumeOptions;
use super::worker::Worker;
use dfs::{Dfs, FileKind, NodeKind, Obj, RenameFlags};
use fuselow::{Entry, NewNode, NodeId, Rename, Request};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{Code, Key, Oid, Result};

impl Worker {
    /// Finds a name. `.` and `..` are asked for on behalf of a server of other protocols that
    /// knows the node by its number only.
    pub async fn lookup(
        self: &Rc<Self>,
        req: &Request,
        parent: NodeId,
        name: &[u8],
    ) -> Answer<Entry> {
        let dir = self.inode(parent)?;
        if name == b"." {
            return self.lookup_known(&dir).await;
        }
        if name == b".." {
            let above = dir.shared().parent_oid();
            return self.lookup_known(&*self.inode(NodeId(above.lo))?).await;
        }
        let as_of = self.volume.table.now();
        if self.was_replaced(req, dir.number(), name) {
            let (obj, stat) = Box::pin(self.lookup_held(req, &self.named(&dir), name)).await?;
            return Ok(self.looked_up(&obj.share(), as_of, &stat));
        }
        if let Some(life) = self.life_ahead() {
            let (table, now_ns) = (&self.volume.table, self.now_ns());
            let known = match self.volume.ahead.look(&dir, name, table, (now_ns, life)) {
                Look::Known(known) => Some(*known),
                Look::Together(names) => Box::pin(self.look_up_together(req, &dir, &names)).await,
                Look::Alone => None,
            };
            if let Some(known) = known {
                return Ok(self.told_ahead(&known));
            }
        }
        match self.dfs_for(req).lookup_stat(&self.named(&dir), name).await {
            Ok((obj, stat)) => Ok(self.looked_up(&obj.share(), as_of, &stat)),
            Err(error) if error.code == Code::NonExist => {
                let ttl = self.volume.options.policy.negative_ttl;
                if ttl.is_zero() { Err(error.into()) } else { Ok(Entry::negative(ttl)) }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// How long what was looked up ahead is good; `None`: nothing is. Where the kernel may keep names and attributes, and checks permissions itself, it
    /// does not matter who asked for them, nor when, within that.
    fn life_ahead(&self) -> Option<Duration> {
        let VolumeOptions { policy, kernel_checks, .. } = &self.volume.options;
        let life = policy.entry_ttl.min(policy.attr_ttl).min(LIFE);
        (*kernel_checks && !life.is_zero()).then_some(life)
    }

    /// Asks for names that are likely to be looked up next, together with the first of them; what that is. What goes wrong goes wrong again
    /// when it is asked for alone.
    async fn look_up_together(&self, req: &Request, dir: &Inode, names: &[Key]) -> Option<Known> {
        let begun = (self.volume.table.now(), self.now_ns());
        let (dfs, at) = (self.dfs_for(req), self.named(dir));
        let found = dfs.lookup_together(&at, names).await.ok()?;
        self.volume.ahead.found(dir.number(), names.first()?, found, begun)
    }

    /// What was looked up a moment ago, for the kernel; it may keep it for less by that.
    fn told_ahead(&self, known: &Known) -> Entry {
        let table = &self.volume.table;
        let found = table.looked_up(&known.shared, known.as_of, known.asked_ns);
        let age = Duration::from_nanos(self.now_ns().saturating_sub(known.asked_ns));
        let entry = self.entry(found, &known.stat, known.as_of);
        let (attr_ttl, entry_ttl) =
            (entry.attr_ttl.saturating_sub(age), entry.entry_ttl.saturating_sub(age));
        Entry { attr_ttl, entry_ttl, ..entry }
    }

    async fn lookup_known(&self, inode: &Inode) -> Answer<Entry> {
        let as_of = self.volume.table.now();
        let obj = self.named(inode);
        let stat = self.dfs.stat_named(&obj).await.map_err(Fault::of_node)?;
        Ok(self.looked_up(&obj.share(), as_of, &stat))
    }

    /// Runs a change of the names in a directory. `when` says when it was, if that is known.
    pub(super) fn change_names<T>(
        &self,
        dir: &Inode,
        change: impl Future<Output = Result<T>>,
        when: impl FnOnce(&T) -> Option<i64>,
    ) -> impl Future<Output = Answer<T>> {
        // As an argument and as a local it would be there twice.
        let change = Box::pin(change);
        async move {
            let before = dir.touch_names(&self.volume.table);
            let done = change.await;
            let changed_ns = done.as_ref().ok().and_then(when);
            dir.names_changed(&self.volume.table, before, changed_ns);
            Ok(done?)
        }
    }

    /// Makes something that is not opened, and tells the kernel of it.
    async fn make(
        &self,
        dir: Arc<Inode>,
        dfs: &Dfs,
        made: impl Future<Output = Result<Obj>>,
    ) -> Answer<Entry> {
        let as_of = self.volume.table.now();
        let (obj, stat) = self
            .change_names(
                &dir,
                async {
                    let obj = made.await?;
                    let stat = dfs.ostat(&obj).await?;
                    Ok((obj, stat))
                },
                |_| None,
            )
            .await?;
        Ok(self.looked_up(&obj.share(), as_of, &stat))
    }

    pub async fn mkdir(
        &self,
        req: &Request,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
    ) -> Answer<Entry> {
        let dir = self.inode(parent)?;
        let (dfs, at) = (self.dfs_with_umask(req, new.umask), self.named(&dir));
        self.make(dir, &dfs, dfs.mkdir(&at, name, new.mode, None)).await
    }

    /// Makes a file, pipe, socket or device.
    pub async fn mknod(
        &self,
        req: &Request,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
    ) -> Answer<Entry> {
        let dir = self.inode(parent)?;
        // No type bits mean a regular file.
        let kind = match new.mode & 0o170000 {
            0 => Some(FileKind::Regular),
            _ => FileKind::from_mode(new.mode),
        };
        let kind = kind.ok_or(Fault::Os(libc::EINVAL))?;
        let (dfs, at) = (self.dfs_with_umask(req, new.umask), self.named(&dir));
        let node = NodeKind { kind, rdev: new.rdev.into() };
        self.make(dir, &dfs, dfs.mknod(&at, name, new.mode & 0o7777, node)).await
    }

    /// Makes a symbolic link.
    pub async fn symlink(
        &self,
        req: &Request,
        parent: NodeId,
        name: &[u8],
        target: &[u8],
    ) -> Answer<Entry> {
        let dir = self.inode(parent)?;
        let (dfs, at) = (self.dfs_for(req), self.named(&dir));
        self.make(dir, &dfs, dfs.symlink(&at, name, target)).await
    }

    /// The target of a symbolic link.
    pub async fn readlink(&self, node: NodeId) -> Answer<Vec<u8>> {
        let inode = self.inode(node)?;
        self.dfs.readlink(&self.named(&inode)).await.map_err(Fault::of_node)
    }

    /// Removes a name of a file.
    pub async fn unlink(&self, req: &Request, parent: NodeId, name: &[u8]) -> Answer {
        let dir = self.inode(parent)?;
        let (dfs, at) = (self.dfs_for(req), self.named(&dir));
        let gone =
            self.change_names(&dir, dfs.unlink_told(&at, name), |gone| gone.changed_ns).await?;
        self.lost_name(gone.oid, gone.nlink);
        Ok(())
    }

    /// Removes an empty directory.
    pub async fn rmdir(&self, req: &Request, parent: NodeId, name: &[u8]) -> Answer {
        let dir = self.inode(parent)?;
        let (dfs, at) = (self.dfs_for(req), self.named(&dir));
        let gone =
            self.change_names(&dir, dfs.rmdir_told(&at, name), |gone| gone.changed_ns).await?;
        self.lost_name(gone.oid, gone.nlink);
        Ok(())
    }

    /// Notes that an object lost a name through this mount.
    fn lost_name(&self, oid: Oid, nlink: u32) {
        if let Some(inode) = self.volume.table.of_object(oid.lo) {
            inode.change(&self.volume.table, |shared| {
                if nlink == 0 {
                    shared.set_unlinked();
                }
            });
        }
    }

    /// Renames or exchanges.
    pub async fn rename(&self, req: &Request, rename: Rename<'_>) -> Answer {
        let flags = RenameFlags(rename.flags);
        if flags.without(RenameFlags::NOREPLACE | RenameFlags::EXCHANGE) != RenameFlags::NONE {
            return Err(Fault::Os(libc::EINVAL));
        }
        let (dir, new_dir) = (self.inode(rename.parent)?, self.inode(rename.new_parent)?);
        let (at, to) = (self.named(&dir), self.named(&new_dir));
        let (name, new_name) = (rename.name, rename.new_name);
        let dfs = self.dfs_for(req);
        let renamed = self
            .change_names(
                &dir,
                async {
                    new_dir.touch_names(&self.volume.table);
                    dfs.rename_told(&at, name, &to, new_name, flags).await
                },
                |_| None,
            )
            .await;
        new_dir.touch_names(&self.volume.table);
        let renamed = renamed?;
        self.moved(renamed.moved, to.oid(), new_name);
        if let Some(swapped) = renamed.swapped {
            self.moved(swapped, at.oid(), name);
        }
        if let Some(gone) = renamed.replaced {
            self.lost_name(gone.oid, gone.nlink);
        }
        Ok(())
    }

    /// Notes where an object is named now.
    fn moved(&self, oid: Oid, parent: Oid, name: &[u8]) {
        if let Some(inode) = self.volume.table.of_object(oid.lo) {
            inode.change(&self.volume.table, |shared| *shared = shared.clone().at(parent, name));
        }
    }

    /// Gives a file one more name.
    pub async fn link(
        &self,
        req: &Request,
        node: NodeId,
        new_parent: NodeId,
        new_name: &[u8],
    ) -> Answer<Entry> {
        let (inode, dir) = (self.inode(node)?, self.inode(new_parent)?);
        let as_of = self.volume.table.now();
        let (obj, to, dfs) = (self.named(&inode), self.named(&dir), self.dfs_for(req));
        let stat = self
            .change_names(
                &dir,
                async {
                    dfs.link_obj(&obj, &to, new_name).await?;
                    dfs.ostat(&obj).await
                },
                |_| None,
            )
            .await
            .map_err(Fault::at_node)?;
        // Where a file that had no name is now is known here only.
        let linked = obj.share();
        let before = inode.shared();
        if !before.is_hard() {
            self.forget_name(&inode, &(before.parent_oid().lo, before.name().clone()));
        }
        inode.change(&self.volume.table, |shared| *shared = linked.clone());
        let found = self.learn_of(&linked, self.volume.table.now());
        Ok(self.entry(found, &stat, as_of))
    }
}
