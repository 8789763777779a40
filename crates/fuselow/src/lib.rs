//! A FUSE server, without libfuse: the kernel's protocol, its two transports, workers, mounting.
//!
//! A [`Session`] mounts a directory and serves it with N worker threads. Each worker has its own
//! [`env::Env`] and its own `!Send` [`FileSystem`], made on that thread by a factory. A request
//! becomes a task of the thread it came to, so one that waits (for a lock, for a slow engine)
//! holds up nobody. State that all workers share (inodes, open files) is the file system's
//! business: the kernel sends any request to any worker.
//!
//! Two transports: `/dev/fuse`, one descriptor per worker, read when ready; and FUSE over
//! io_uring (Linux 6.14), where requests arrive and replies leave by one system call through
//! memory that the kernel knows. Which one is used is negotiated.
//!
//! Invariants:
//! - Each request is answered exactly once: also when its task is dropped or panics (`EIO`).
//! - A lookup count that the kernel did not get is given back ([`FileSystem::forget`]), and
//!   so is an open file ([`FileSystem::release`]).
//! - Nothing of a request outlives its reply: names and data are borrowed from its buffer.

mod abi;
mod attr;
pub mod background;
mod carrier;
mod config;
mod decode;
mod dispatch;
mod file_system;
mod init;
mod mount;
mod notify;
mod operation;
mod request;
mod session;
mod signals;
mod sink;
mod uring;
mod worker;

pub use attr::{Attr, Entry, Errno, FileKind, Stat, StatFs};
pub use config::{Config, MountOptions, Negotiated, Transport};
pub use decode::decode_bytes;
pub use file_system::FileSystem;
pub use mount::{check_mount_point, unmount};
pub use notify::Notifier;
pub use operation::{
    CopyRange, Fallocate, Ioctl, Lock, LockKind, LockRequest, NewNode, OpenFlags, Opened, Release,
    Rename, SetAttr, SetTime, SetXattr, Transfer, open_reply,
};
pub use request::Request;
pub use session::{Session, WorkerSeat};
pub use signals::Signals;
pub use sink::DirSink;
pub use worker::End;

/// A file, directory or other object as the kernel knows it; it has one as long as its lookup
/// count is not zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root of the mount.
    pub const ROOT: NodeId = NodeId(1);
}

/// An open file or directory, as the file system numbered it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Fh(pub u64);

/// Who holds a lock: an opaque number of the kernel, one per process or open file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LockOwner(pub u64);
