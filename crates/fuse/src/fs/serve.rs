//! The kernel's requests, handed to a [`Worker`].
//!
//! A request that waits for an engine that does not answer ends when its time is over. A program
//! that was told to stop meanwhile is not made to wait that long: a request that was interrupted
//! is given up after [`PATIENCE`]. It is not given up at once, because programs do not expect a
//! signal to interrupt a file system that works.

use super::fault::Answer;
use super::jobs;
use super::volume::Volume;
use super::worker::Worker;
use fuselow::{
    CopyRange, DirSink, Entry, Errno, Fallocate, Fh, FileSystem, Lock, LockOwner, LockRequest,
    NewNode, NodeId, OpenFlags, Opened, Release, Rename, Request, SetAttr, SetXattr, Stat, StatFs,
    Transfer, WorkerSeat,
};
use futures_util::future::{Either, select};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a request goes on after its program got a signal.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// The file system of one thread of a mount.
pub struct MountedFs {
    worker: Rc<Worker>,
}

impl MountedFs {
    /// Begins to serve on a thread of a session.
    pub fn start(volume: Arc<Volume>, seat: &WorkerSeat) -> types::Result<MountedFs> {
        Ok(MountedFs { worker: Worker::start(volume, seat)? })
    }

    /// The work has a place of its own: futures of many kilobytes inside those that every request
    /// is served with would be copied for each.
    fn run<T>(
        &self,
        req: &Request,
        work: impl Future<Output = Answer<T>>,
    ) -> impl Future<Output = Result<T, Errno>> {
        let job = jobs::of_callers().and_then(|jobs| jobs.of(req.pid()));
        let job = job.map(|job| Rc::from(&*job));
        let work = Box::pin(client::for_job(job, work));
        async move {
            let given_up = async {
                req.interrupted().await;
                self.worker.env().sleep(PATIENCE).await;
            };
            let answer = match select(work, pin!(given_up)).await {
                Either::Left((done, _)) => done.map_err(super::fault::Fault::errno),
                Either::Right(_) => Err(Errno::INTR),
            };
            let asked = self.worker.client().request_count();
            self.worker.volume.requests[self.worker.thread].store(asked, Ordering::Relaxed);
            answer
        }
    }
}

impl FileSystem for MountedFs {
    async fn lookup(&self, req: &Request, parent: NodeId, name: &[u8]) -> Result<Entry, Errno> {
        self.run(req, self.worker.lookup(req, parent, name)).await
    }

    fn forget(&self, node: NodeId, lookup_count: u64) {
        self.worker.volume.table.forget(node.0, lookup_count);
    }

    async fn getattr(&self, req: &Request, node: NodeId, fh: Option<Fh>) -> Result<Stat, Errno> {
        self.run(req, self.worker.getattr_open(req, node, fh)).await
    }

    async fn setattr(&self, req: &Request, node: NodeId, set: &SetAttr) -> Result<Stat, Errno> {
        self.run(req, self.worker.setattr(req, node, set)).await
    }

    async fn readlink(&self, req: &Request, node: NodeId) -> Result<Vec<u8>, Errno> {
        self.run(req, self.worker.readlink(node)).await
    }

    async fn symlink(
        &self,
        req: &Request,
        parent: NodeId,
        name: &[u8],
        target: &[u8],
    ) -> Result<Entry, Errno> {
        self.run(req, self.worker.symlink(req, parent, name, target)).await
    }

    async fn mknod(
        &self,
        req: &Request,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
    ) -> Result<Entry, Errno> {
        self.run(req, self.worker.mknod(req, parent, name, new)).await
    }

    async fn mkdir(
        &self,
        req: &Request,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
    ) -> Result<Entry, Errno> {
        self.run(req, self.worker.mkdir(req, parent, name, new)).await
    }

    async fn unlink(&self, req: &Request, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        self.run(req, self.worker.unlink(req, parent, name)).await
    }

    async fn rmdir(&self, req: &Request, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        self.run(req, self.worker.rmdir(req, parent, name)).await
    }

    async fn rename(&self, req: &Request, rename: Rename<'_>) -> Result<(), Errno> {
        self.run(req, self.worker.rename(req, rename)).await
    }

    async fn link(
        &self,
        req: &Request,
        node: NodeId,
        new_parent: NodeId,
        new_name: &[u8],
    ) -> Result<Entry, Errno> {
        self.run(req, self.worker.link(req, node, new_parent, new_name)).await
    }

    async fn open(&self, req: &Request, node: NodeId, flags: OpenFlags) -> Result<Opened, Errno> {
        self.run(req, self.worker.open(req, node, flags)).await
    }

    async fn create(
        &self,
        req: &Request,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened), Errno> {
        self.run(req, self.worker.create(req, parent, name, new, flags)).await
    }

    async fn read(
        &self,
        req: &Request,
        _node: NodeId,
        fh: Fh,
        at: Transfer,
        memory: &mut [u8],
    ) -> Result<usize, Errno> {
        self.run(req, self.worker.read(fh, at, memory)).await
    }

    async fn write(
        &self,
        req: &Request,
        _node: NodeId,
        fh: Fh,
        at: Transfer,
        data: &[u8],
    ) -> Result<usize, Errno> {
        self.run(req, self.worker.write(fh, at, data)).await
    }

    async fn statfs(&self, req: &Request, _node: NodeId) -> Result<StatFs, Errno> {
        self.run(req, self.worker.statfs()).await
    }

    async fn flush(
        &self,
        req: &Request,
        _node: NodeId,
        fh: Fh,
        owner: LockOwner,
    ) -> Result<(), Errno> {
        // Data were written when the writes returned; what is left are locks.
        self.run(req, self.worker.close_locks(fh, owner)).await
    }

    async fn release(&self, _req: &Request, _node: NodeId, fh: Fh, release: Release) {
        self.worker.release(fh, release).await;
    }

    async fn getlk(
        &self,
        req: &Request,
        _node: NodeId,
        fh: Fh,
        lock: LockRequest,
    ) -> Result<Lock, Errno> {
        self.run(req, self.worker.getlk(fh, lock)).await
    }

    async fn setlk(
        &self,
        req: &Request,
        _node: NodeId,
        fh: Fh,
        lock: LockRequest,
    ) -> Result<(), Errno> {
        // Many kilobytes; see `run`.
        Box::pin(self.worker.setlk(req, fh, lock)).await.map_err(super::fault::Fault::errno)
    }

    async fn fallocate(
        &self,
        req: &Request,
        _node: NodeId,
        fh: Fh,
        range: Fallocate,
    ) -> Result<(), Errno> {
        self.run(req, self.worker.fallocate(req, fh, range)).await
    }

    async fn lseek(
        &self,
        req: &Request,
        _node: NodeId,
        fh: Fh,
        offset: u64,
        whence: u32,
    ) -> Result<u64, Errno> {
        self.run(req, self.worker.lseek(fh, offset, whence)).await
    }

    async fn copy_range(
        &self,
        req: &Request,
        _node: NodeId,
        copy: CopyRange,
    ) -> Result<u64, Errno> {
        self.run(req, self.worker.copy_range(req, copy)).await
    }

    async fn tmpfile(
        &self,
        req: &Request,
        parent: NodeId,
        new: NewNode,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened), Errno> {
        self.run(req, self.worker.tmpfile(req, parent, new, flags)).await
    }

    async fn fsync(
        &self,
        req: &Request,
        _node: NodeId,
        fh: Fh,
        _data_only: bool,
    ) -> Result<(), Errno> {
        // What the kernel has written is as durable as the pool promises when the write has
        // returned; it writes its pages before it asks this. A tier may have to have it, too.
        self.run(req, self.worker.fsync(fh)).await
    }

    async fn opendir(
        &self,
        req: &Request,
        node: NodeId,
        _flags: OpenFlags,
    ) -> Result<Opened, Errno> {
        self.run(req, self.worker.opendir(req, node)).await
    }

    async fn readdir(
        &self,
        req: &Request,
        _node: NodeId,
        fh: Fh,
        offset: u64,
        entries: &mut DirSink<'_>,
    ) -> Result<(), Errno> {
        self.run(req, self.worker.readdir(req, fh, offset, entries)).await
    }

    async fn releasedir(&self, _req: &Request, _node: NodeId, fh: Fh, _release: Release) {
        self.worker.releasedir(fh);
    }

    async fn fsyncdir(
        &self,
        _req: &Request,
        _node: NodeId,
        _fh: Fh,
        _data_only: bool,
    ) -> Result<(), Errno> {
        Ok(())
    }

    async fn setxattr(&self, req: &Request, node: NodeId, set: SetXattr<'_>) -> Result<(), Errno> {
        self.run(req, self.worker.setxattr(req, node, set)).await
    }

    async fn getxattr(&self, req: &Request, node: NodeId, name: &[u8]) -> Result<Vec<u8>, Errno> {
        self.run(req, self.worker.getxattr(req, node, name)).await
    }

    async fn listxattr(&self, req: &Request, node: NodeId) -> Result<Vec<u8>, Errno> {
        self.run(req, self.worker.listxattr(req, node)).await
    }

    async fn removexattr(&self, req: &Request, node: NodeId, name: &[u8]) -> Result<(), Errno> {
        self.run(req, self.worker.removexattr(req, node, name)).await
    }

    async fn access(&self, req: &Request, node: NodeId, mask: u32) -> Result<(), Errno> {
        self.run(req, self.worker.access(req, node, mask)).await
    }

    async fn shutdown(&self) {
        self.worker.end();
    }
}
