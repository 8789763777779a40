//! The disk seam: files and directories, real or simulated.
//!
//! What is assumed of a disk: a write with `dsync`, or followed by `sync`, survives a crash once
//! acknowledged; a write in flight at a crash may be torn at sector borders; a name made,
//! renamed or removed survives once its directory is synced. Buffers travel by value, so that a
//! caller may drop the future of an operation in flight: the buffer stays with the operation.

use crate::AlignedBuf;
use futures_util::future::LocalBoxFuture;
use std::path::Path;
use std::rc::Rc;
use types::Result;

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenOptions {
    /// Make the file if it is missing.
    pub create: bool,
    /// With `create`: fail with `Exist` if it is there.
    pub exclusive: bool,
    /// Bypass the page cache where the file system can. Offsets and lengths must then be
    /// multiples of [`crate::ALIGN_BYTES`].
    pub direct: bool,
    /// A write is durable when acknowledged.
    pub dsync: bool,
    pub read_only: bool,
}

/// An open file.
pub trait File {
    /// Fills `buf` from `offset`. The count is less than the buffer's length only at the end of
    /// the file.
    fn read_at(
        &self,
        offset: u64,
        buf: AlignedBuf,
    ) -> LocalBoxFuture<'static, (AlignedBuf, Result<usize>)>;
    /// Writes all of `buf` at `offset`. After an error any part may have been written.
    fn write_at(
        &self,
        offset: u64,
        buf: AlignedBuf,
    ) -> LocalBoxFuture<'static, (AlignedBuf, Result<()>)>;
    /// Makes all acknowledged writes, and the length, durable.
    fn sync(&self) -> LocalBoxFuture<'static, Result<()>>;
    /// Length, bytes. For a block device its size.
    fn len(&self) -> Result<u64>;
    /// True when the length is 0.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
    /// True for a block device.
    fn is_device(&self) -> bool {
        false
    }
    /// True when transfers bypass the page cache.
    fn is_direct(&self) -> bool {
        false
    }
    /// Cuts or extends the file (with zeros).
    fn set_len(&self, bytes: u64) -> LocalBoxFuture<'static, Result<()>>;
    /// Reserves space for a range and extends the file over it. Where the file system cannot
    /// reserve, the file is only extended.
    fn allocate(&self, offset: u64, bytes: u64) -> LocalBoxFuture<'static, Result<()>>;
    /// Tells the device that the content of a range is no longer needed; the length stays. The
    /// range then reads as anything until it is written again. `NotSupported` when the device
    /// or file system has no such thing.
    fn discard(&self, offset: u64, bytes: u64) -> LocalBoxFuture<'static, Result<()>>;
}

/// Room of a file system or device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Room {
    pub total_bytes: u64,
    /// Bytes that files can still take.
    pub free_bytes: u64,
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DirEntry {
    pub name: String,
    /// It is a directory.
    pub is_dir: bool,
}

/// An exclusive lock on a file, held until dropped or until the process ends.
pub trait Lock {}

/// A file system.
pub trait Disk {
    /// Opens a file or block device. `NonExist`, `Exist` and `Access` are told apart.
    fn open(
        &self,
        path: &Path,
        options: OpenOptions,
    ) -> LocalBoxFuture<'static, Result<Rc<dyn File>>>;
    /// Makes a directory; its parent must exist. `Exist` when the name is taken.
    fn create_dir(&self, path: &Path) -> LocalBoxFuture<'static, Result<()>>;
    /// The entries of a directory, by name.
    fn list(&self, path: &Path) -> LocalBoxFuture<'static, Result<Vec<DirEntry>>>;
    /// Moves `from` to `to`, replacing a file that is there.
    fn rename(&self, from: &Path, to: &Path) -> LocalBoxFuture<'static, Result<()>>;
    /// Removes a file, or an empty directory (`NotEmpty` otherwise).
    fn remove(&self, path: &Path) -> LocalBoxFuture<'static, Result<()>>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> LocalBoxFuture<'static, Result<()>>;
    /// Room of the file system that `path` is on.
    fn room(&self, path: &Path) -> LocalBoxFuture<'static, Result<Room>>;
    /// Takes the lock of a file, making the file if needed; `Busy` when somebody holds it. The
    /// holder's `note` is kept in the file, and is part of the error's text for the next.
    fn lock(&self, path: &Path, note: &str) -> LocalBoxFuture<'static, Result<Box<dyn Lock>>>;
}
