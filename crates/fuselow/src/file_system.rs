//! The trait a file system implements.

use super::{
    CopyRange, DirSink, Entry, Errno, Fallocate, Fh, Ioctl, Lock, LockOwner, LockRequest, NewNode,
    NodeId, OpenFlags, Opened, Release, Rename, Request, SetAttr, SetXattr, Stat, StatFs, Transfer,
};

/// What answers the kernel. One instance per worker thread, so it is not `Send`; state that all
/// workers must agree on is shared between the instances.
///
/// Each method is one kind of request, called as a task of the worker: it may wait as long as it
/// likes, and others run meanwhile, also on the same file. Names are single components without
/// `/` and NUL. What is not implemented is answered with `ENOSYS`, which the kernel remembers for
/// most operations and does not ask again: access control without `default_permissions`
/// (`access`), `flush`, `fsync` then cost nothing.
///
/// A node handed out in an [`Entry`] (by `lookup`, `mknod`, `mkdir`, `symlink`, `link`, `create`,
/// `tmpfile`, [`DirSink::push_plus`]) has its lookup count raised by one; [`FileSystem::forget`]
/// lowers it.
#[allow(async_fn_in_trait, reason = "a worker polls it on its own thread only")]
#[allow(unused_variables, reason = "the defaults need no arguments")]
pub trait FileSystem: 'static {
    async fn lookup(&self, req: &Request, parent: NodeId, name: &[u8]) -> Result<Entry, Errno>;

    /// Lowers a lookup count. At zero the kernel knows the node no more (it may still be named).
    fn forget(&self, node: NodeId, lookup_count: u64);

    /// Attributes; `fh` when the program asked through an open file.
    async fn getattr(&self, req: &Request, node: NodeId, fh: Option<Fh>) -> Result<Stat, Errno>;

    /// Changes attributes and returns the new ones.
    async fn setattr(&self, req: &Request, node: NodeId, set: &SetAttr) -> Result<Stat, Errno> {
        Err(Errno::NOSYS)
    }

    /// Target of a symbolic link.
    async fn readlink(&self, req: &Request, node: NodeId) -> Result<Vec<u8>, Errno> {
        Err(Errno::NOSYS)
    }

    /// Makes a symbolic link.
    async fn symlink(
        &self,
        req: &Request,
        parent: NodeId,
        name: &[u8],
        target: &[u8],
    ) -> Result<Entry, Errno> {
        Err(Errno::NOSYS)
    }

    /// Makes a file, pipe, socket or device.
    async fn mknod(
        &self,
        req: &Request,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
    ) -> Result<Entry, Errno> {
        Err(Errno::NOSYS)
    }

    async fn mkdir(
        &self,
        req: &Request,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
    ) -> Result<Entry, Errno> {
        Err(Errno::NOSYS)
    }

    /// Removes a name of a file.
    async fn unlink(&self, req: &Request, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Removes an empty directory.
    async fn rmdir(&self, req: &Request, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Renames or exchanges.
    async fn rename(&self, req: &Request, rename: Rename<'_>) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Gives a file one more name.
    async fn link(
        &self,
        req: &Request,
        node: NodeId,
        new_parent: NodeId,
        new_name: &[u8],
    ) -> Result<Entry, Errno> {
        Err(Errno::NOSYS)
    }

    /// Opens a file. `ENOSYS` means: open and release need no request, ever.
    async fn open(&self, req: &Request, node: NodeId, flags: OpenFlags) -> Result<Opened, Errno> {
        Err(Errno::NOSYS)
    }

    /// Makes a file and opens it. Without `O_EXCL` it may exist: then it is opened.
    async fn create(
        &self,
        req: &Request,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened), Errno> {
        Err(Errno::NOSYS)
    }

    /// Makes and opens a file without a name (`O_TMPFILE`); `link` may name it, unless the flags
    /// have `O_EXCL`.
    async fn tmpfile(
        &self,
        req: &Request,
        parent: NodeId,
        new: NewNode,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Reads into `memory`, which goes to the program; returns how many bytes there were. Fewer
    /// than asked for means the end of the file.
    async fn read(
        &self,
        req: &Request,
        node: NodeId,
        fh: Fh,
        at: Transfer,
        memory: &mut [u8],
    ) -> Result<usize, Errno> {
        Err(Errno::NOSYS)
    }

    /// Writes; returns how many bytes were taken.
    async fn write(
        &self,
        req: &Request,
        node: NodeId,
        fh: Fh,
        at: Transfer,
        data: &[u8],
    ) -> Result<usize, Errno> {
        Err(Errno::NOSYS)
    }

    /// Space and limits.
    async fn statfs(&self, req: &Request, node: NodeId) -> Result<StatFs, Errno> {
        Err(Errno::NOSYS)
    }

    /// One descriptor of an open file is closed (there may be others): report write errors, let
    /// go of the owner's `fcntl` locks.
    async fn flush(
        &self,
        req: &Request,
        node: NodeId,
        fh: Fh,
        owner: LockOwner,
    ) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// The last descriptor of an open file is closed. Nobody sees an error.
    async fn release(&self, req: &Request, node: NodeId, fh: Fh, release: Release) {}

    /// Makes written data durable, and without `data_only` the attributes too.
    async fn fsync(
        &self,
        req: &Request,
        node: NodeId,
        fh: Fh,
        data_only: bool,
    ) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Opens a directory. `ENOSYS` means: opendir and releasedir need no request, ever.
    async fn opendir(
        &self,
        req: &Request,
        node: NodeId,
        flags: OpenFlags,
    ) -> Result<Opened, Errno> {
        Err(Errno::NOSYS)
    }

    /// Entries after the one with this offset (0: from the start), as many as fit. None means the
    /// end. [`DirSink::is_plus`] says whether with attributes.
    async fn readdir(
        &self,
        req: &Request,
        node: NodeId,
        fh: Fh,
        offset: u64,
        entries: &mut DirSink<'_>,
    ) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// The last descriptor of an open directory is closed. Nobody sees an error.
    async fn releasedir(&self, req: &Request, node: NodeId, fh: Fh, release: Release) {}

    /// Makes changes of a directory durable.
    async fn fsyncdir(
        &self,
        req: &Request,
        node: NodeId,
        fh: Fh,
        data_only: bool,
    ) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Sets an extended attribute.
    async fn setxattr(&self, req: &Request, node: NodeId, set: SetXattr<'_>) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Value of an extended attribute, whole. Sizes and `ERANGE` are seen to.
    async fn getxattr(&self, req: &Request, node: NodeId, name: &[u8]) -> Result<Vec<u8>, Errno> {
        Err(Errno::NOSYS)
    }

    /// Names of the extended attributes, each ended by a NUL. Sizes and `ERANGE` are seen to.
    async fn listxattr(&self, req: &Request, node: NodeId) -> Result<Vec<u8>, Errno> {
        Err(Errno::NOSYS)
    }

    /// Removes an extended attribute.
    async fn removexattr(&self, req: &Request, node: NodeId, name: &[u8]) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// May the caller do this (`R_OK`, `W_OK`, `X_OK`)? Asked for `access(2)` and `chdir(2)`, and
    /// never with `default_permissions`.
    async fn access(&self, req: &Request, node: NodeId, mask: u32) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// A lock that stands in the way of the one asked about, or one of kind `Unlock`.
    async fn getlk(
        &self,
        req: &Request,
        node: NodeId,
        fh: Fh,
        lock: LockRequest,
    ) -> Result<Lock, Errno> {
        Err(Errno::NOSYS)
    }

    /// Takes, changes or lets go of a lock.
    async fn setlk(
        &self,
        req: &Request,
        node: NodeId,
        fh: Fh,
        lock: LockRequest,
    ) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Allocates, punches, zeroes.
    async fn fallocate(
        &self,
        req: &Request,
        node: NodeId,
        fh: Fh,
        range: Fallocate,
    ) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Finds data or a hole (`SEEK_DATA`, `SEEK_HOLE`) from `offset`.
    async fn lseek(
        &self,
        req: &Request,
        node: NodeId,
        fh: Fh,
        offset: u64,
        whence: u32,
    ) -> Result<u64, Errno> {
        Err(Errno::NOSYS)
    }

    /// Copies within the file system; returns how many bytes. `ENOSYS` lets the kernel copy.
    async fn copy_range(&self, req: &Request, node: NodeId, copy: CopyRange) -> Result<u64, Errno> {
        Err(Errno::NOSYS)
    }

    /// `syncfs(2)`. The kernel sends it to mounts of its own kind only.
    async fn syncfs(&self, req: &Request, node: NodeId) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// A device control; the result is what `ioctl` returns and what it carries out.
    async fn ioctl(
        &self,
        req: &Request,
        node: NodeId,
        fh: Fh,
        ioctl: Ioctl<'_>,
    ) -> Result<(i32, Vec<u8>), Errno> {
        Err(Errno(libc::ENOTTY))
    }

    /// The session is over: no request will come. Called once on each worker. Files may still be
    /// open and nodes looked up: the kernel gives back in the background, and no more once it
    /// unmounts.
    async fn shutdown(&self) {}
}
