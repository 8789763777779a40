//! Open files and directories, process-wide: handle number → what was opened.

use super::listing::Listing;
use super::table::{ClosingMark, Inode};
use foldhash::HashMap;
use fuselow::LockOwner;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Independent parts of the table.
const SHARDS: usize = 64;

/// An open file or directory.
pub struct OpenFile {
    pub inode: Arc<Inode>,
    /// The thread whose client registered the open handle with the engines.
    pub thread: usize,
    /// It was opened to append: the kernel keeps no pages of what it writes.
    pub append: bool,
    /// Owners that took `fcntl` locks through it.
    pub lockers: Mutex<Vec<LockOwner>>,
    /// A descriptor of it was closed and no lock asked for through it since, so it may be about to
    /// be released; see [`Inode::may_close`].
    pub closing: ClosingMark,
    /// The first read sets the access time.
    pub atime_due: AtomicBool,
    /// Of a directory: where its listing stands.
    pub listing: Option<futures_util::lock::Mutex<Listing>>,
}

/// All open files.
pub struct Files {
    shards: [Mutex<HashMap<u64, Arc<OpenFile>>>; SHARDS],
    next: AtomicU64,
}

impl Default for Files {
    fn default() -> Files {
        Files { shards: std::array::from_fn(|_| Mutex::default()), next: AtomicU64::new(1) }
    }
}

impl Files {
    fn shard(&self, fh: u64) -> &Mutex<HashMap<u64, Arc<OpenFile>>> {
        &self.shards[fh as usize % SHARDS]
    }

    /// Adds an open file, which its inode has counted; returns its number.
    pub fn add(&self, file: OpenFile) -> u64 {
        let fh = self.next.fetch_add(1, Ordering::Relaxed);
        self.shard(fh).lock().insert(fh, Arc::new(file));
        fh
    }

    pub fn get(&self, fh: u64) -> Option<Arc<OpenFile>> {
        self.shard(fh).lock().get(&fh).cloned()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Takes a file out that was closed.
    pub fn remove(&self, fh: u64) -> Option<Arc<OpenFile>> {
        let file = self.shard(fh).lock().remove(&fh)?;
        file.inode.closed();
        Some(file)
    }
}
