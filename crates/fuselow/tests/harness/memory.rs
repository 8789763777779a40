//! An in-memory file system: one tree, which the instances of all workers share.
//!
//! Special names behave in special ways: to read the extended attribute `user.hang` waits for an
//! interrupt, to read the file `panic` panics.

use super::node::{Data, Directory, Node, Nodes, now};
use fuselow::*;
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::time::Duration;

const HOLE_BYTES: usize = 4096;

#[derive(Default)]
pub struct Files {
    pub nodes: Nodes,
    next_node: u64,
    next_fh: u64,
    pub open: HashMap<Fh, NodeId>,
    waiting: Vec<Waker>,
    /// Time-out of names, also of missing ones, and of attributes; files keep their pages.
    ttl: Duration,
}

/// What all workers share.
#[derive(Default)]
pub struct Tree {
    state: Mutex<Files>,
    /// Requests that wait for a lock or for ever.
    pub waiting: AtomicUsize,
    /// Largest write request, bytes.
    pub largest_write: AtomicUsize,
    /// Workers that were told of the end.
    pub shutdowns: AtomicUsize,
    /// Which workers have answered a request.
    pub workers_seen: Mutex<std::collections::BTreeSet<usize>>,
}

impl Tree {
    pub fn new() -> Tree {
        let tree = Tree::default();
        {
            let mut state = tree.state();
            let root = Data::Directory(Directory::default());
            let (uid, gid) = (rustix_uid(), rustix_gid());
            state.nodes.insert(NodeId::ROOT, Node::new(1, 0o040755, uid, gid, root));
            state.next_node = 1;
        }
        tree
    }

    pub fn state(&self) -> MutexGuard<'_, Files> {
        self.state.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Nodes that have neither name nor lookups nor open files but are still there: leaks.
    pub fn node_count(&self) -> usize {
        self.state().nodes.len()
    }

    pub fn file(&self, name: &str) -> Vec<u8> {
        let mut state = self.state();
        let node = state.node(NodeId::ROOT).unwrap().directory().unwrap().get(name.as_bytes());
        state.node(node.unwrap()).unwrap().file().unwrap().clone()
    }

    /// Changes a file behind the kernel's back.
    pub fn set_file(&self, name: &str, data: &[u8]) -> NodeId {
        let mut state = self.state();
        let root = state.node(NodeId::ROOT).unwrap().directory().unwrap();
        let node = root.get(name.as_bytes()).unwrap();
        *state.node(node).unwrap().file().unwrap() = data.to_vec();
        node
    }

    /// From now on the kernel may keep what it is told.
    pub fn cache_for_ever(&self) {
        self.state().ttl = Duration::from_secs(1_000_000);
    }

    /// Makes one file behind the kernel's back.
    pub fn fill_one(&self, name: &str) {
        let new = Node::new(0, 0o100644, 0, 0, Data::File(Vec::new()));
        self.state().add(NodeId::ROOT, name.as_bytes(), new).unwrap();
    }

    /// Removes a name behind the kernel's back.
    pub fn take_name(&self, name: &str) {
        let mut state = self.state();
        let node = state.node(NodeId::ROOT).unwrap().directory().unwrap().remove(name.as_bytes());
        state.unlinked(node.unwrap());
    }

    /// Makes many empty files.
    pub fn fill(&self, count: usize) {
        let mut state = self.state();
        for at in 0..count {
            let new = Node::new(0, 0o100644, 0, 0, Data::File(Vec::new()));
            state.add(NodeId::ROOT, format!("file-{at:06}").as_bytes(), new).unwrap();
        }
    }
}

fn rustix_uid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::getuid() }
}

fn rustix_gid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::getgid() }
}

impl Files {
    pub fn node(&mut self, node: NodeId) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&node).ok_or(Errno(libc::ESTALE))
    }

    fn find(&mut self, parent: NodeId, name: &[u8]) -> Result<NodeId, Errno> {
        self.node(parent)?.directory()?.get(name).ok_or(Errno::NOENT)
    }

    fn add(&mut self, parent: NodeId, name: &[u8], mut new: Node) -> Result<NodeId, Errno> {
        if name.len() > 255 {
            return Err(Errno(libc::ENAMETOOLONG));
        }
        if self.node(parent)?.directory()?.get(name).is_some() {
            return Err(Errno(libc::EEXIST));
        }
        self.next_node += 1;
        let id = NodeId(self.next_node);
        new.attr.ino = id.0;
        let is_dir = matches!(new.data, Data::Directory(_));
        self.nodes.insert(id, new);
        let parent = self.node(parent)?;
        parent.directory()?.insert(name, id);
        parent.attr.nlink += u32::from(is_dir);
        parent.modified();
        Ok(id)
    }

    /// One more lookup of a node.
    fn entry(&mut self, node: NodeId) -> Result<Entry, Errno> {
        let found = self.node(node)?;
        found.lookups += 1;
        Ok(Entry {
            node,
            generation: 0,
            attr: found.attr(),
            attr_ttl: self.ttl,
            entry_ttl: self.ttl,
        })
    }

    fn open(&mut self, node: NodeId) -> Result<Opened, Errno> {
        self.node(node)?.opens += 1;
        self.next_fh += 1;
        self.open.insert(Fh(self.next_fh), node);
        let keep = if self.ttl.is_zero() { 0 } else { open_reply::KEEP_CACHE };
        Ok(Opened { fh: Fh(self.next_fh), flags: open_reply::PARALLEL_DIRECT_WRITES | keep })
    }

    fn drop_if_unused(&mut self, node: NodeId) {
        let unused = self
            .nodes
            .get(&node)
            .is_some_and(|found| found.attr.nlink == 0 && found.lookups == 0 && found.opens == 0);
        if unused {
            self.nodes.remove(&node);
        }
    }

    fn unlinked(&mut self, node: NodeId) {
        if let Ok(found) = self.node(node) {
            found.attr.nlink = match found.data {
                Data::Directory(_) => 0,
                _ => found.attr.nlink.saturating_sub(1),
            };
            (found.attr.ctime, found.attr.ctime_ns) = now();
        }
        self.drop_if_unused(node);
    }

    fn wake(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
    }
}

/// One worker's instance.
pub struct MemoryFs {
    pub tree: std::sync::Arc<Tree>,
    pub seat: WorkerSeat,
}

impl MemoryFs {
    fn state(&self) -> MutexGuard<'_, Files> {
        self.tree.state()
    }

    fn make(
        &self,
        req: &Request,
        parent: NodeId,
        name: &[u8],
        mode: u32,
        data: Data,
    ) -> Result<Entry, Errno> {
        let mut state = self.state();
        let node = Node::new(0, mode, req.uid(), req.gid(), data);
        let id = state.add(parent, name, node)?;
        state.entry(id)
    }

    fn is_named(&self, node: NodeId, name: &str) -> bool {
        self.state().find(NodeId::ROOT, name.as_bytes()) == Ok(node)
    }
}

impl FileSystem for MemoryFs {
    async fn lookup(&self, _: &Request, parent: NodeId, name: &[u8]) -> Result<Entry, Errno> {
        self.tree.workers_seen.lock().unwrap().insert(self.seat.index);
        let mut state = self.state();
        match state.find(parent, name) {
            Ok(node) => state.entry(node),
            Err(Errno::NOENT) if !state.ttl.is_zero() => Ok(Entry::negative(state.ttl)),
            Err(error) => Err(error),
        }
    }

    fn forget(&self, node: NodeId, lookup_count: u64) {
        let mut state = self.state();
        if node == NodeId::ROOT {
            return;
        }
        let found = state.node(node).expect("forgotten more often than looked up");
        assert!(found.lookups >= lookup_count, "{node:?} is forgotten too often");
        found.lookups -= lookup_count;
        state.drop_if_unused(node);
    }

    async fn getattr(&self, _: &Request, node: NodeId, _: Option<Fh>) -> Result<Stat, Errno> {
        let mut state = self.state();
        let attr = state.node(node)?.attr();
        Ok(Stat { attr, attr_ttl: state.ttl })
    }

    async fn setattr(&self, _: &Request, node: NodeId, set: &SetAttr) -> Result<Stat, Errno> {
        let mut state = self.state();
        let found = state.node(node)?;
        found.set(set)?;
        Ok(Stat { attr: found.attr(), attr_ttl: Duration::ZERO })
    }

    async fn readlink(&self, _: &Request, node: NodeId) -> Result<Vec<u8>, Errno> {
        match &self.state().node(node)?.data {
            Data::Symlink(target) => Ok(target.clone()),
            _ => Err(Errno::INVAL),
        }
    }

    async fn symlink(
        &self,
        req: &Request,
        parent: NodeId,
        name: &[u8],
        target: &[u8],
    ) -> Result<Entry, Errno> {
        self.make(req, parent, name, 0o120777, Data::Symlink(target.to_vec()))
    }

    async fn mknod(
        &self,
        req: &Request,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
    ) -> Result<Entry, Errno> {
        let data = match FileKind::of_mode(new.mode) {
            Some(FileKind::Regular) => Data::File(Vec::new()),
            _ => Data::Other,
        };
        let mut entry = self.make(req, parent, name, new.mode, data)?;
        self.state().node(entry.node)?.attr.rdev = new.rdev;
        entry.attr.rdev = new.rdev;
        Ok(entry)
    }

    async fn mkdir(
        &self,
        req: &Request,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
    ) -> Result<Entry, Errno> {
        let mode = 0o040000 | new.mode & 0o7777;
        self.make(req, parent, name, mode, Data::Directory(Directory::default()))
    }

    async fn unlink(&self, _: &Request, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        let mut state = self.state();
        let node = state.find(parent, name)?;
        if state.node(node)?.directory().is_ok() {
            return Err(Errno(libc::EISDIR));
        }
        let dir = state.node(parent)?;
        dir.directory()?.remove(name);
        dir.modified();
        state.unlinked(node);
        Ok(())
    }

    async fn rmdir(&self, _: &Request, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        let mut state = self.state();
        let node = state.find(parent, name)?;
        if !state.node(node)?.directory()?.entries.is_empty() {
            return Err(Errno(libc::ENOTEMPTY));
        }
        let dir = state.node(parent)?;
        dir.directory()?.remove(name);
        dir.attr.nlink -= 1;
        dir.modified();
        state.unlinked(node);
        Ok(())
    }

    async fn rename(&self, _: &Request, rename: Rename<'_>) -> Result<(), Errno> {
        let mut state = self.state();
        let node = state.find(rename.parent, rename.name)?;
        let old = state.find(rename.new_parent, rename.new_name).ok();
        match (rename.flags, old) {
            (0, _) | (libc::RENAME_NOREPLACE, None) => {}
            (libc::RENAME_NOREPLACE, Some(_)) => return Err(Errno(libc::EEXIST)),
            (libc::RENAME_EXCHANGE, Some(old)) => {
                state.node(rename.parent)?.directory()?.insert(rename.name, old);
                state.node(rename.new_parent)?.directory()?.insert(rename.new_name, node);
                return Ok(());
            }
            (libc::RENAME_EXCHANGE, None) => return Err(Errno::NOENT),
            _ => return Err(Errno::INVAL),
        }
        if let Some(old) = old
            && let Ok(directory) = state.node(old)?.directory()
            && !directory.entries.is_empty()
        {
            return Err(Errno(libc::ENOTEMPTY));
        }
        if old == Some(node) {
            return Ok(());
        }
        state.node(rename.parent)?.directory()?.remove(rename.name);
        state.node(rename.new_parent)?.directory()?.insert(rename.new_name, node);
        if let Some(old) = old {
            state.unlinked(old);
        }
        Ok(())
    }

    async fn link(
        &self,
        _: &Request,
        node: NodeId,
        new_parent: NodeId,
        new_name: &[u8],
    ) -> Result<Entry, Errno> {
        let mut state = self.state();
        if state.find(new_parent, new_name).is_ok() {
            return Err(Errno(libc::EEXIST));
        }
        state.node(new_parent)?.directory()?.insert(new_name, node);
        state.node(node)?.attr.nlink += 1;
        state.entry(node)
    }

    async fn open(&self, _: &Request, node: NodeId, flags: OpenFlags) -> Result<Opened, Errno> {
        let mut state = self.state();
        if flags.has(libc::O_TRUNC) {
            let found = state.node(node)?;
            found.file()?.clear();
            found.modified();
        }
        state.open(node)
    }

    async fn create(
        &self,
        req: &Request,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened), Errno> {
        let existing = self.state().find(parent, name);
        let entry = match existing {
            Ok(_) if flags.has(libc::O_EXCL) => return Err(Errno(libc::EEXIST)),
            Ok(node) => self.state().entry(node)?,
            Err(_) => self.make(req, parent, name, new.mode, Data::File(Vec::new()))?,
        };
        let opened = self.open(req, entry.node, flags).await?;
        Ok((entry, opened))
    }

    async fn tmpfile(
        &self,
        req: &Request,
        _: NodeId,
        new: NewNode,
        _: OpenFlags,
    ) -> Result<(Entry, Opened), Errno> {
        let mut state = self.state();
        state.next_node += 1;
        let id = NodeId(state.next_node);
        let data = Data::File(Vec::new());
        let mut node = Node::new(id.0, new.mode, req.uid(), req.gid(), data);
        node.attr.nlink = 0;
        state.nodes.insert(id, node);
        let opened = state.open(id)?;
        Ok((state.entry(id)?, opened))
    }

    async fn read(
        &self,
        _: &Request,
        node: NodeId,
        _: Fh,
        at: Transfer,
        memory: &mut [u8],
    ) -> Result<usize, Errno> {
        assert!(!self.is_named(node, "panic"), "as the test wants it");
        let mut state = self.state();
        let data = state.node(node)?.file()?;
        let from = data.len().min(at.offset as usize);
        let count = memory.len().min(data.len() - from);
        memory[..count].copy_from_slice(&data[from..from + count]);
        Ok(count)
    }

    async fn write(
        &self,
        _: &Request,
        node: NodeId,
        _: Fh,
        at: Transfer,
        data: &[u8],
    ) -> Result<usize, Errno> {
        self.tree.largest_write.fetch_max(data.len(), Ordering::SeqCst);
        let mut state = self.state();
        let found = state.node(node)?;
        let file = found.file()?;
        let start = match at.flags.has(libc::O_APPEND) && !at.from_page_cache {
            true => file.len(),
            false => at.offset as usize,
        };
        let end = start + data.len();
        if file.len() < end {
            file.resize(end, 0);
        }
        file[start..end].copy_from_slice(data);
        found.modified();
        Ok(data.len())
    }

    async fn statfs(&self, _: &Request, _: NodeId) -> Result<StatFs, Errno> {
        Ok(StatFs {
            blocks: 1000,
            blocks_free: 600,
            blocks_available: 500,
            files: 100,
            files_free: 50,
            block_bytes: 4096,
            name_bytes_max: 255,
        })
    }

    async fn flush(&self, _: &Request, node: NodeId, _: Fh, owner: LockOwner) -> Result<(), Errno> {
        let mut state = self.state();
        state.node(node)?.unlock_all(owner, false);
        state.wake();
        Ok(())
    }

    async fn release(&self, _: &Request, node: NodeId, fh: Fh, release: Release) {
        let mut state = self.state();
        assert_eq!(state.open.remove(&fh), Some(node), "released twice");
        if let Ok(found) = state.node(node) {
            found.opens -= 1;
            if let Some(owner) = release.lock_owner {
                found.unlock_all(owner, true);
            }
        }
        state.wake();
        state.drop_if_unused(node);
    }

    async fn fsync(&self, _: &Request, node: NodeId, _: Fh, _: bool) -> Result<(), Errno> {
        self.state().node(node).map(drop)
    }

    async fn opendir(&self, _: &Request, node: NodeId, _: OpenFlags) -> Result<Opened, Errno> {
        let mut state = self.state();
        state.node(node)?.directory()?;
        state.open(node)
    }

    async fn readdir(
        &self,
        _: &Request,
        node: NodeId,
        _: Fh,
        offset: u64,
        entries: &mut DirSink<'_>,
    ) -> Result<(), Errno> {
        let mut state = self.state();
        for (place, name) in [(1u64, &b"."[..]), (2, b"..")] {
            if offset < place && !push(&mut state, entries, node, place, name, false)? {
                return Ok(());
            }
        }
        let rest: Vec<(u64, Vec<u8>, NodeId)> = {
            let directory = state.node(node)?.directory()?;
            let after = directory.places.range(offset.max(2) + 1..);
            let room = entries.entries_left(1);
            after
                .take(room)
                .map(|(&place, name)| (place, name.clone(), directory.entries[name].1))
                .collect()
        };
        for (place, name, child) in rest {
            if !push(&mut state, entries, child, place, &name, true)? {
                break;
            }
        }
        Ok(())
    }

    async fn releasedir(&self, req: &Request, node: NodeId, fh: Fh, release: Release) {
        self.release(req, node, fh, release).await;
    }

    async fn fsyncdir(&self, _: &Request, node: NodeId, _: Fh, _: bool) -> Result<(), Errno> {
        self.state().node(node)?.directory().map(drop)
    }

    async fn setxattr(&self, _: &Request, node: NodeId, set: SetXattr<'_>) -> Result<(), Errno> {
        let mut state = self.state();
        let xattrs = &mut state.node(node)?.xattrs;
        let there = xattrs.contains_key(set.name);
        if there && set.flags as i32 & libc::XATTR_CREATE != 0 {
            return Err(Errno(libc::EEXIST));
        }
        if !there && set.flags as i32 & libc::XATTR_REPLACE != 0 {
            return Err(Errno(libc::ENODATA));
        }
        xattrs.insert(set.name.to_vec(), set.value.to_vec());
        Ok(())
    }

    async fn getxattr(&self, req: &Request, node: NodeId, name: &[u8]) -> Result<Vec<u8>, Errno> {
        if name == b"user.hang" {
            self.tree.waiting.fetch_add(1, Ordering::SeqCst);
            req.interrupted().await;
            self.tree.waiting.fetch_sub(1, Ordering::SeqCst);
            return Err(Errno::INTR);
        }
        self.state().node(node)?.xattrs.get(name).cloned().ok_or(Errno(libc::ENODATA))
    }

    async fn listxattr(&self, _: &Request, node: NodeId) -> Result<Vec<u8>, Errno> {
        let mut state = self.state();
        let names = state.node(node)?.xattrs.keys();
        Ok(names.flat_map(|name| [&name[..], b"\0"].concat()).collect())
    }

    async fn removexattr(&self, _: &Request, node: NodeId, name: &[u8]) -> Result<(), Errno> {
        self.state().node(node)?.xattrs.remove(name).map(drop).ok_or(Errno(libc::ENODATA))
    }

    async fn access(&self, _: &Request, node: NodeId, mask: u32) -> Result<(), Errno> {
        let mode = self.state().node(node)?.attr.mode;
        let allowed = mask == 0 || mode >> 6 & mask == mask;
        if allowed { Ok(()) } else { Err(Errno(libc::EACCES)) }
    }

    async fn getlk(
        &self,
        _: &Request,
        node: NodeId,
        _: Fh,
        lock: LockRequest,
    ) -> Result<Lock, Errno> {
        let free = Lock { kind: LockKind::Unlock, ..lock.lock };
        Ok(self.state().node(node)?.conflict(&lock).map_or(free, |held| held.lock))
    }

    async fn setlk(
        &self,
        req: &Request,
        node: NodeId,
        _: Fh,
        lock: LockRequest,
    ) -> Result<(), Errno> {
        let attempt = |state: &mut Files| -> Result<bool, Errno> {
            let found = state.node(node)?;
            if lock.lock.kind != LockKind::Unlock && found.conflict(&lock).is_some() {
                return Ok(false);
            }
            found.lock(lock);
            state.wake();
            Ok(true)
        };
        if attempt(&mut self.state())? {
            return Ok(());
        }
        if !lock.wait {
            return Err(Errno(libc::EAGAIN));
        }
        self.tree.waiting.fetch_add(1, Ordering::SeqCst);
        let granted = poll_fn(|cx| {
            let mut state = self.state();
            let done = attempt(&mut state);
            if done != Ok(false) {
                return Poll::Ready(done.map(drop));
            }
            state.waiting.push(cx.waker().clone());
            Poll::Pending
        });
        let mut granted = std::pin::pin!(granted);
        let mut interrupted = std::pin::pin!(req.interrupted());
        let outcome = poll_fn(|cx| {
            if let Poll::Ready(done) = granted.as_mut().poll(cx) {
                return Poll::Ready(done);
            }
            interrupted.as_mut().poll(cx).map(|()| Err(Errno::INTR))
        })
        .await;
        self.tree.waiting.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    async fn fallocate(
        &self,
        _: &Request,
        node: NodeId,
        _: Fh,
        range: Fallocate,
    ) -> Result<(), Errno> {
        let mut state = self.state();
        let data = state.node(node)?.file()?;
        let (start, end) = (range.offset as usize, (range.offset + range.len) as usize);
        let mode = range.mode as i32;
        if mode & libc::FALLOC_FL_PUNCH_HOLE != 0 {
            let (start, end) = (start.min(data.len()), end.min(data.len()));
            data[start..end].fill(0);
        } else if mode & libc::FALLOC_FL_KEEP_SIZE == 0 && data.len() < end {
            data.resize(end, 0);
        }
        Ok(())
    }

    async fn lseek(
        &self,
        _: &Request,
        node: NodeId,
        _: Fh,
        offset: u64,
        whence: u32,
    ) -> Result<u64, Errno> {
        let mut state = self.state();
        let data = state.node(node)?.file()?;
        let mut at = offset as usize;
        if at >= data.len() {
            return Err(Errno(libc::ENXIO));
        }
        let want_data = whence as i32 == libc::SEEK_DATA;
        while at < data.len() {
            let end = (at / HOLE_BYTES + 1).saturating_mul(HOLE_BYTES).min(data.len());
            let has_data = data[at..end].iter().any(|&byte| byte != 0);
            if has_data == want_data {
                return Ok(at as u64);
            }
            at = end;
        }
        if want_data { Err(Errno(libc::ENXIO)) } else { Ok(data.len() as u64) }
    }

    async fn copy_range(&self, _: &Request, node: NodeId, copy: CopyRange) -> Result<u64, Errno> {
        let mut state = self.state();
        let source = state.node(node)?.file()?;
        let from = source.len().min(copy.offset_in as usize);
        let count = (copy.len as usize).min(source.len() - from);
        let piece = source[from..from + count].to_vec();
        let target = state.node(copy.node_out)?.file()?;
        let (start, end) = (copy.offset_out as usize, copy.offset_out as usize + count);
        if target.len() < end {
            target.resize(end, 0);
        }
        target[start..end].copy_from_slice(&piece);
        Ok(count as u64)
    }

    async fn ioctl(
        &self,
        _: &Request,
        _: NodeId,
        _: Fh,
        ioctl: Ioctl<'_>,
    ) -> Result<(i32, Vec<u8>), Errno> {
        // _IOWR('A', 1, u32): twice the number.
        if ioctl.cmd != 0xc004_4101 {
            return Err(Errno(libc::ENOTTY));
        }
        let number = u32::from_ne_bytes(ioctl.data.try_into().map_err(|_| Errno::INVAL)?);
        Ok((7, (number * 2).to_ne_bytes().to_vec()))
    }

    async fn shutdown(&self) {
        self.tree.shutdowns.fetch_add(1, Ordering::SeqCst);
    }
}

fn push(
    state: &mut Files,
    entries: &mut DirSink<'_>,
    node: NodeId,
    place: u64,
    name: &[u8],
    counted: bool,
) -> Result<bool, Errno> {
    let found = state.node(node)?;
    if !entries.is_plus() {
        return Ok(entries.push(found.attr.ino, found.kind(), place, name));
    }
    let mut entry = Entry::negative(Duration::ZERO);
    entry.attr = found.attr();
    if counted {
        entry.node = node;
    }
    let taken = entries.push_plus(&entry, found.kind(), place, name);
    if taken && counted {
        found.lookups += 1;
    }
    Ok(taken)
}
