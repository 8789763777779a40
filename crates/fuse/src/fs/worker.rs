//! One thread's side of a mount.

use super::caller::credentials;
use super::convert;
use super::fault::{Answer, Fault};
use super::files::OpenFile;
use super::table::{ClosingMark, Found, Inode, Place, Version};
use super::volume::Volume;
use client::Client;
use dfs::{Dfs, FileKind, Obj, OpenFlags, SharedObj, Stat};
use env::Env;
use foldhash::HashMap;
use fuselow::{
    Attr, Entry, Fh, NodeId, Notifier, OpenFlags as OpenBits, Request, Stat as Told, WorkerSeat,
};
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use types::Result;

/// Handles are closed at the engines this much later at the latest.
const RELEASE_DELAY: Duration = Duration::from_millis(100);

/// A thread's client, and what it holds open.
pub struct Worker {
    pub(super) volume: Arc<Volume>,
    pub(super) thread: usize,
    pub(super) dfs: Dfs,
    env: Env,
    /// Files opened by this thread: the engines count these handles.
    pub(super) handles: RefCell<HashMap<u64, Obj>>,
    flush_due: Cell<bool>,
    /// Tells the kernel what to forget.
    pub(super) notifier: Notifier,
}

impl Worker {
    /// Connects a thread and starts to read its letters.
    pub fn start(volume: Arc<Volume>, seat: &WorkerSeat) -> Result<Rc<Worker>> {
        let (thread, env) = (seat.index, &seat.env);
        let letters = volume.take_letters(thread)?;
        let worker = Rc::new(Worker {
            dfs: volume.attach(env)?,
            volume,
            thread,
            env: env.clone(),
            handles: RefCell::default(),
            flush_due: Cell::new(false),
            notifier: seat.notifier.clone(),
        });
        env.spawn(letters.read(worker.clone()));
        Ok(worker)
    }

    pub fn env(&self) -> &Env {
        &self.env
    }

    /// By the clock that all threads of the mount share and nobody sets: how old something is that is kept. By the one on the wall it was never too
    /// old once that had been put back.
    pub fn now_ns(&self) -> u64 {
        self.env.now().as_nanos() as u64
    }

    pub fn client(&self) -> &Client {
        self.dfs.container().client()
    }

    /// The file system as the caller of a request sees it.
    pub fn dfs_for(&self, req: &Request) -> Dfs {
        self.dfs_with_umask(req, 0)
    }

    /// The same for what is about to be made.
    pub fn dfs_with_umask(&self, req: &Request, umask: u32) -> Dfs {
        let options = &self.volume.options;
        let umask = if options.posix_acl { umask } else { 0 };
        self.dfs.with_credentials(credentials(req, options.kernel_checks, umask))
    }

    /// A node the kernel names.
    pub fn inode(&self, node: NodeId) -> Answer<Arc<Inode>> {
        self.volume.table.get(node.0).ok_or(Fault::Gone)
    }

    /// An open file or directory the kernel names.
    pub fn file(&self, fh: Fh) -> Answer<Arc<OpenFile>> {
        self.volume.files.get(fh.0).ok_or(Fault::Os(libc::EBADF))
    }

    /// A node as an object of this thread's client, up to date as far as the mount knows.
    pub fn obj(&self, inode: &Inode, flags: OpenFlags) -> Obj {
        let shared = inode.shared().with_flags(flags);
        let obj = self.dfs.attach(&shared);
        self.dfs.refresh(&obj, &shared);
        obj
    }

    /// A node to be named only.
    pub fn named(&self, inode: &Inode) -> Obj {
        self.obj(inode, OpenFlags::PATH)
    }

    /// Attributes for the kernel, which may rely on them for the policy's time. It asked without a
    /// name; those of directories it wants to check the permissions of a whole path.
    pub fn told(&self, inode: &Inode, stat: &Stat) -> Told {
        let attr_ttl = self.volume.options.policy.attr_ttl_of(!stat.is_dir());
        Told { attr: self.attr(inode, stat), attr_ttl }
    }

    /// An entry for the kernel of what was looked up, by somebody who began at `as_of`.
    pub fn entry(&self, found: Found, stat: &Stat, as_of: u64) -> Entry {
        let policy = &self.volume.options.policy;
        let found = self.renewed(found, stat, as_of);
        let Found { inode, node, was_at } = found;
        if let Some(place) = was_at {
            self.forget_name(&inode, &place);
        }
        // Of several names an `open` does not tell which one it came by: others may have given that to another file, so each operation asks.
        let is_hard = inode.shared().is_hard();
        Entry {
            node: NodeId(node),
            generation: 0,
            attr: self.attr(&inode, stat),
            attr_ttl: policy.attr_ttl_of(!stat.is_dir() && inode.is_open()),
            entry_ttl: if is_hard { Duration::ZERO } else { policy.entry_ttl },
        }
    }

    /// Has the kernel look up a name again that it may keep, and that an object it is known by was known by before: an `open` does not tell
    /// which name it came by. Until the kernel has done so, who opens the object is sent to look the path up.
    pub fn forget_name(&self, inode: &Arc<Inode>, (dir, name): &Place) {
        if self.volume.options.policy.entry_ttl.is_zero() {
            return;
        }
        inode.leaves_name();
        self.notifier.expire_entry(NodeId(*dir), name);
        let inode = inode.clone();
        self.notifier.taken(move || inode.has_left_name());
    }

    /// What was looked up, by another node where the kernel has to take it anew.
    fn renewed(&self, found: Found, stat: &Stat, as_of: u64) -> Found {
        if !self.is_outdated(&found.inode, stat, as_of) {
            return found;
        }
        let table = &self.volume.table;
        table.renew(&found.inode, version_of(stat), as_of);
        let again = table.looked_up(&found.inode.shared(), as_of, self.now_ns());
        table.forget(found.node, 1);
        Found { was_at: found.was_at, ..again }
    }

    /// True when the kernel, which writes back, has a file otherwise than others have made it meanwhile.
    pub(super) fn is_outdated(&self, inode: &Inode, stat: &Stat, as_of: u64) -> bool {
        self.keeps_size(stat) && inode.is_outdated(version_of(stat), as_of)
    }

    /// The kernel keeps the size itself once it knows it.
    fn keeps_size(&self, stat: &Stat) -> bool {
        self.volume.options.policy.writes_back() && stat.kind() == FileKind::Regular
    }

    /// Notes what the kernel gets of a file; true when it has the same.
    pub(super) fn tell(&self, inode: &Inode, stat: &Stat) -> bool {
        match self.keeps_size(stat) {
            true => inode.tell_first(version_of(stat)),
            false => inode.tell(version_of(stat)),
        }
    }

    fn attr(&self, inode: &Inode, stat: &Stat) -> Attr {
        self.tell(inode, stat);
        if !self.volume.options.policy.writes_back() {
            return convert::attr(stat, convert::BLOCK_BYTES);
        }
        // With write-back the kernel cuts pages at block borders, so blocks are pages there.
        let attr = convert::attr(stat, 4096);
        if stat.kind() != FileKind::Regular || !inode.is_open() {
            return attr;
        }
        // The kernel may have data that is nowhere else; who saw no blocks would take the file for
        // a hole (tar does).
        Attr { blocks: attr.blocks.max(attr.size.div_ceil(512)).max(1), ..attr }
    }

    /// The kernel holds one lookup more of an object.
    pub fn looked_up(&self, shared: &SharedObj, as_of: u64, stat: &Stat) -> Entry {
        self.entry(self.learn_of(shared, as_of), stat, as_of)
    }

    /// The node of what was looked up; the kernel holds one lookup more.
    pub fn learn_of(&self, shared: &SharedObj, as_of: u64) -> Found {
        self.volume.table.looked_up(shared, as_of, self.now_ns())
    }

    /// Takes what was read of a node by somebody who began at `as_of`.
    pub fn learn(&self, inode: &Inode, obj: &Obj, as_of: u64) {
        inode.learn(&obj.share(), as_of, self.now_ns());
    }

    /// Keeps an opened object, whose node has counted the handle, until the kernel releases it.
    pub fn keep(&self, inode: Arc<Inode>, obj: Obj, stat: &Stat, bits: OpenBits) -> Fh {
        let due = self.volume.options.keeps_atime && stat.is_atime_due(self.env.wall_ns() as i64);
        let atime_due = AtomicBool::new(due);
        let append = bits.has(libc::O_APPEND);
        let thread = self.thread;
        let file = OpenFile {
            inode,
            thread,
            append,
            lockers: Mutex::default(),
            closing: ClosingMark::default(),
            atime_due,
            listing: None,
        };
        let fh = self.volume.files.add(file);
        self.handles.borrow_mut().insert(fh, obj);
        Fh(fh)
    }

    /// Gives an open handle back; on the thread that opened it.
    pub fn let_go(self: &Rc<Self>, fh: u64, at_once: bool) {
        let obj = self.handles.borrow_mut().remove(&fh);
        drop(obj);
        if at_once {
            self.client().flush();
            return;
        }
        if self.flush_due.replace(true) {
            return;
        }
        // Handles go back with the next request; when there is none, soon.
        let worker = self.clone();
        self.env.spawn(async move {
            worker.env.sleep(RELEASE_DELAY).await;
            worker.flush_due.set(false);
            worker.client().flush();
        });
    }

    /// The object of an open file for reading and writing data. The kernel has checked what the
    /// file was opened for.
    pub fn data_obj(&self, fh: Fh, file: &OpenFile, flags: OpenFlags) -> Obj {
        let flags = flags | OpenFlags::READ_WRITE;
        if file.thread == self.thread
            && let Some(obj) = self.handles.borrow().get(&fh.0)
        {
            return obj.dup(flags);
        }
        self.dfs.attach(&file.inode.shared().with_flags(flags))
    }

    /// Everything is over: what is held open goes back.
    pub fn end(&self) {
        let handles = self.handles.take();
        drop(handles);
        self.client().flush();
    }
}

/// What the kernel is told of a file's state.
pub(super) fn version_of(stat: &Stat) -> Version {
    Version { size: stat.size, mtime_ns: stat.mtime_ns }
}
