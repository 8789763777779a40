//! The modelled file system as the kernel sees it through FUSE.
//!
//! Reads and writes take the model's time; names and attributes take none. Files bypass the page
//! cache, so each call reaches the model. An open file is one client of its target. Data are
//! stored when they come; only the answer waits.

use super::clockwork::{Ask, Targets};
use super::model::Kind;
use super::tree::{Change, Maker, NAME_BYTES_MAX, Tree, errno, kind_of, now};
use fuselow::{
    Attr, DirSink, Entry, Errno, Fh, FileSystem, LockOwner, NewNode, NodeId, OpenFlags, Opened,
    Release, Rename, Request, SetAttr, SetTime, Stat, StatFs, Transfer, open_reply,
};
use futures_channel::oneshot;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the kernel may believe names and attributes: nobody else changes them.
const BELIEVED: Duration = Duration::from_secs(60);
/// What `df` shows of each kind of room, blocks or files: more than anybody fills.
const ROOM: u64 = 1 << 40;

/// The file system; clones are the same one.
#[derive(Clone)]
pub struct ModelFs {
    targets: Arc<Targets>,
    tree: Arc<Mutex<Tree>>,
    /// Open files, counted: the next client's number.
    next_client: Arc<AtomicU64>,
}

impl ModelFs {
    /// A file system over running targets.
    pub fn new(targets: Arc<Targets>, tree: Tree) -> ModelFs {
        let next_client = Arc::new(AtomicU64::new(1));
        ModelFs { targets, tree: Arc::new(Mutex::new(tree)), next_client }
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self) -> Opened {
        Opened {
            fh: Fh(self.next_client.fetch_add(1, Ordering::Relaxed)),
            flags: open_reply::DIRECT_IO | open_reply::PARALLEL_DIRECT_WRITES,
        }
    }

    /// Waits until the target's model has done this.
    async fn ask(&self, target: u32, ask: Ask) -> Result<(), Errno> {
        let (done, answered) = oneshot::channel();
        let reply = move || {
            // Whoever asked may have gone.
            let _ = done.send(());
        };
        self.targets.ask(target, ask, Box::new(reply));
        answered.await.map_err(|_| Errno::IO)
    }

    /// Waits until the client has nothing on its way.
    async fn settle(&self, node: NodeId, fh: Fh) -> Result<(), Errno> {
        let (target, _) = self.tree().data(node.0)?;
        let ask = Ask { client: fh.0, kind: Kind::Flush, file: node.0, offset: 0, bytes: 0 };
        self.ask(target, ask).await
    }
}

fn maker(request: &Request, new: NewNode) -> Maker {
    Maker { uid: request.uid(), gid: request.gid(), mode: new.mode & !new.umask }
}

fn time_of(time: SetTime) -> (u64, u32) {
    match time {
        SetTime::At { secs, ns } => (secs as u64, ns),
        SetTime::Now => now(),
    }
}

fn stat(attr: Attr) -> Stat {
    Stat { attr, attr_ttl: BELIEVED }
}

fn entry(attr: Attr) -> Entry {
    let node = NodeId(attr.ino);
    Entry { node, generation: 0, attr, attr_ttl: BELIEVED, entry_ttl: BELIEVED }
}

impl FileSystem for ModelFs {
    async fn lookup(&self, _req: &Request, parent: NodeId, name: &[u8]) -> Result<Entry, Errno> {
        Ok(entry(self.tree().lookup(parent.0, OsStr::from_bytes(name))?))
    }

    /// What has a name or is open stays; nothing else does.
    fn forget(&self, _node: NodeId, _lookup_count: u64) {}

    async fn getattr(&self, _req: &Request, node: NodeId, _fh: Option<Fh>) -> Result<Stat, Errno> {
        Ok(stat(self.tree().attr(node.0)?))
    }

    async fn setattr(&self, _req: &Request, node: NodeId, set: &SetAttr) -> Result<Stat, Errno> {
        let SetAttr { mode, uid, gid, size, .. } = *set;
        let (atime, mtime) = (set.atime.map(time_of), set.mtime.map(time_of));
        Ok(stat(self.tree().change(node.0, Change { mode, uid, gid, size, atime, mtime })?))
    }

    async fn mkdir(
        &self,
        req: &Request,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
    ) -> Result<Entry, Errno> {
        Ok(entry(self.tree().make_dir(parent.0, OsStr::from_bytes(name), maker(req, new))?))
    }

    async fn unlink(&self, _req: &Request, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        self.tree().unlink(parent.0, OsStr::from_bytes(name))
    }

    async fn rmdir(&self, _req: &Request, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        self.tree().remove_dir(parent.0, OsStr::from_bytes(name))
    }

    async fn rename(&self, _req: &Request, rename: Rename<'_>) -> Result<(), Errno> {
        if rename.flags & !libc::RENAME_NOREPLACE != 0 {
            return Err(Errno::INVAL);
        }
        let from = (rename.parent.0, OsStr::from_bytes(rename.name));
        let to = (rename.new_parent.0, OsStr::from_bytes(rename.new_name));
        self.tree().rename(from, to, rename.flags == 0)
    }

    async fn create(
        &self,
        req: &Request,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
        _flags: OpenFlags,
    ) -> Result<(Entry, Opened), Errno> {
        let made = self.tree().create(parent.0, OsStr::from_bytes(name), maker(req, new))?;
        Ok((entry(made), self.opened()))
    }

    async fn open(&self, _req: &Request, node: NodeId, _flags: OpenFlags) -> Result<Opened, Errno> {
        self.tree().open(node.0)?;
        Ok(self.opened())
    }

    async fn read(
        &self,
        _req: &Request,
        node: NodeId,
        fh: Fh,
        at: Transfer,
        memory: &mut [u8],
    ) -> Result<usize, Errno> {
        let (target, data, file_bytes) = {
            let tree = self.tree();
            let (target, data) = tree.data(node.0)?;
            (target, data, tree.attr(node.0)?.size)
        };
        let offset = at.offset;
        let bytes = (memory.len() as u64).min(file_bytes.saturating_sub(offset));
        if bytes == 0 {
            return Ok(0);
        }
        let ask = Ask { client: fh.0, kind: Kind::Read, file: node.0, offset, bytes };
        self.ask(target, ask).await?;
        data.read_exact_at(&mut memory[..bytes as usize], offset)?;
        Ok(bytes as usize)
    }

    async fn write(
        &self,
        _req: &Request,
        node: NodeId,
        fh: Fh,
        at: Transfer,
        data: &[u8],
    ) -> Result<usize, Errno> {
        let (target, file) = self.tree().data(node.0)?;
        let (offset, bytes) = (at.offset, data.len() as u64);
        let end = offset.checked_add(bytes).ok_or(errno::FBIG)?;
        file.write_all_at(data, offset)?;
        self.tree().wrote(node.0, end);
        if bytes > 0 {
            let ask = Ask { client: fh.0, kind: Kind::Write, file: node.0, offset, bytes };
            self.ask(target, ask).await?;
        }
        Ok(data.len())
    }

    async fn statfs(&self, _req: &Request, _node: NodeId) -> Result<StatFs, Errno> {
        Ok(StatFs {
            blocks: ROOM,
            blocks_free: ROOM,
            blocks_available: ROOM,
            files: self.tree().len() as u64 + ROOM,
            files_free: ROOM,
            block_bytes: 4096,
            name_bytes_max: NAME_BYTES_MAX as u32,
        })
    }

    async fn flush(
        &self,
        _req: &Request,
        node: NodeId,
        fh: Fh,
        _owner: LockOwner,
    ) -> Result<(), Errno> {
        self.settle(node, fh).await
    }

    async fn release(&self, _req: &Request, node: NodeId, fh: Fh, _release: Release) {
        let mut tree = self.tree();
        if let Ok((target, _)) = tree.data(node.0) {
            self.targets.close(target, fh.0);
        }
        tree.close(node.0);
    }

    async fn fsync(
        &self,
        _req: &Request,
        node: NodeId,
        fh: Fh,
        _data_only: bool,
    ) -> Result<(), Errno> {
        self.settle(node, fh).await
    }

    async fn readdir(
        &self,
        _req: &Request,
        node: NodeId,
        _fh: Fh,
        offset: u64,
        entries: &mut DirSink<'_>,
    ) -> Result<(), Errno> {
        let list = self.tree().list(node.0)?;
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, (name, attr)) in list.into_iter().enumerate().skip(from) {
            if !entries.push(attr.ino, kind_of(&attr), at as u64 + 1, name.as_bytes()) {
                break;
            }
        }
        Ok(())
    }
}
