//! A directory that shows what a store describes, read-only: a file system without a pool.

use fuselow::{
    Attr, DirSink, Entry, Errno, Fh, FileKind, FileSystem, NodeId, OpenFlags, Opened, Release,
    Request, Stat, StatFs, Transfer, open_reply,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tier::manifest::EntryKind;
use tier::{Node, OpenFile, Shown, Source};
use types::Error;

/// Nothing changes, so the kernel need not ask again.
const TTL: Duration = Duration::from_secs(86_400);
const BLOCK_BYTES: u32 = 4096;

/// What all workers share.
pub struct Browsed {
    pub shown: Shown,
    pub source: Source,
    /// Name of the tier to the source.
    pub tier: String,
    files: Mutex<HashMap<u64, Arc<OpenFile>>>,
    next: AtomicU64,
}

impl Browsed {
    pub fn new(shown: Shown, source: Source, tier: String) -> Browsed {
        Browsed { shown, source, tier, files: Mutex::default(), next: AtomicU64::new(1) }
    }

    fn files(&self) -> MutexGuard<'_, HashMap<u64, Arc<OpenFile>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One worker's view.
pub struct Browser(pub Arc<Browsed>);

impl Browser {
    fn node(&self, id: NodeId) -> Result<(usize, &Node), Errno> {
        let at = (id.0 as usize).wrapping_sub(1);
        self.0.shown.node(at).map(|node| (at, node)).ok_or(Errno(libc::ESTALE))
    }

    fn entry(&self, at: usize) -> Result<Entry, Errno> {
        let node = self.0.shown.node(at).ok_or(Errno::NOENT)?;
        let mut entry = Entry::negative(TTL);
        (entry.node, entry.attr, entry.attr_ttl) = (id_of(at), attr_of(at, node), TTL);
        Ok(entry)
    }
}

fn id_of(at: usize) -> NodeId {
    NodeId(at as u64 + 1)
}

fn kind_of(node: &Node) -> FileKind {
    match node.kind {
        EntryKind::Directory => FileKind::Directory,
        EntryKind::File => FileKind::Regular,
        EntryKind::Symlink => FileKind::Symlink,
    }
}

fn attr_of(at: usize, node: &Node) -> Attr {
    let seconds = node.mtime_ns.div_euclid(1_000_000_000) as u64;
    let nanos = node.mtime_ns.rem_euclid(1_000_000_000) as u32;
    let mode = match node.kind {
        EntryKind::Symlink => 0o777,
        EntryKind::Directory | EntryKind::File => node.mode,
    };
    Attr {
        ino: id_of(at).0,
        size: node.size,
        blocks: node.size.div_ceil(512),
        atime: seconds,
        mtime: seconds,
        ctime: seconds,
        atime_ns: nanos,
        mtime_ns: nanos,
        ctime_ns: nanos,
        mode: kind_of(node) as u32 | mode,
        nlink: node.nlink,
        uid: node.uid,
        gid: node.gid,
        blksize: BLOCK_BYTES,
        ..Attr::default()
    }
}

/// What a program gets; whoever looks after the mount finds the reason in its log.
fn told(error: Error) -> Errno {
    tracing::warn!("request failed: {error}");
    match error.code {
        types::Code::Access | types::Code::NonExist => Errno::IO,
        _ => error.into(),
    }
}

impl FileSystem for Browser {
    async fn lookup(&self, _: &Request, parent: NodeId, name: &[u8]) -> Result<Entry, Errno> {
        let (dir, _) = self.node(parent)?;
        match self.0.shown.lookup(dir, name) {
            Some(at) => self.entry(at),
            None => Ok(Entry::negative(TTL)),
        }
    }

    fn forget(&self, _: NodeId, _: u64) {}

    async fn getattr(&self, _: &Request, node: NodeId, _: Option<Fh>) -> Result<Stat, Errno> {
        let (at, node) = self.node(node)?;
        Ok(Stat { attr: attr_of(at, node), attr_ttl: TTL })
    }

    async fn readlink(&self, _: &Request, node: NodeId) -> Result<Vec<u8>, Errno> {
        Ok(self.node(node)?.1.target.clone())
    }

    async fn open(&self, _: &Request, node: NodeId, _: OpenFlags) -> Result<Opened, Errno> {
        let (at, _) = self.node(node)?;
        let file = self.0.shown.open(&self.0.source, &self.0.tier, at).await.map_err(told)?;
        let fh = self.0.next.fetch_add(1, Ordering::Relaxed);
        self.0.files().insert(fh, Arc::new(file));
        Ok(Opened { fh: Fh(fh), flags: open_reply::KEEP_CACHE })
    }

    async fn release(&self, _: &Request, _: NodeId, fh: Fh, _: Release) {
        self.0.files().remove(&fh.0);
    }

    async fn read(
        &self,
        _: &Request,
        _: NodeId,
        fh: Fh,
        at: Transfer,
        memory: &mut [u8],
    ) -> Result<usize, Errno> {
        let file = self.0.files().get(&fh.0).cloned().ok_or(Errno(libc::EBADF))?;
        file.read(&self.0.source, at.offset, memory).await.map_err(told)
    }

    async fn readdir(
        &self,
        _: &Request,
        node: NodeId,
        _: Fh,
        offset: u64,
        entries: &mut DirSink<'_>,
    ) -> Result<(), Errno> {
        let (dir, node) = self.node(node)?;
        let own = [(&b"."[..], dir), (&b".."[..], node.parent)].into_iter();
        let children = self.0.shown.children(dir).iter().map(|(name, at)| (&name[..], *at));
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (number, (name, at)) in own.chain(children).enumerate().skip(from) {
            let mut entry = self.entry(at)?;
            let kind = FileKind::of_mode(entry.attr.mode).ok_or(Errno::IO)?;
            let next = number as u64 + 1;
            if number < 2 {
                entry.node = NodeId(0);
            }
            let taken = match entries.is_plus() {
                true => entries.push_plus(&entry, kind, next, name),
                false => entries.push(entry.attr.ino, kind, next, name),
            };
            if !taken {
                break;
            }
        }
        Ok(())
    }

    async fn getxattr(&self, _: &Request, node: NodeId, name: &[u8]) -> Result<Vec<u8>, Errno> {
        self.node(node)?.1.xattrs.get(name).cloned().ok_or(Errno(libc::ENODATA))
    }

    async fn listxattr(&self, _: &Request, node: NodeId) -> Result<Vec<u8>, Errno> {
        let names = self.node(node)?.1.xattrs.keys();
        Ok(names.flat_map(|name| [&name[..], b"\0"].concat()).collect())
    }

    async fn statfs(&self, _: &Request, _: NodeId) -> Result<StatFs, Errno> {
        let shown = &self.0.shown;
        Ok(StatFs {
            blocks: shown.bytes().div_ceil(BLOCK_BYTES as u64),
            files: shown.node_count(),
            block_bytes: BLOCK_BYTES,
            name_bytes_max: 255,
            ..StatFs::default()
        })
    }
}
