//! Room kept ahead on the file system of index and log, so that a pool goes on when others have filled
//! it.
//!
//! What is kept:
//! - one segment of the log. It is for the next checkpoint, which begins a segment and gives back those
//!   before; who needs one otherwise and gets none waits for that checkpoint;
//! - in the page area, what the next checkpoint may write and a little more;
//! - two files for the head of the log that take turns (see `wal`).
//!
//! All of it is blocks that files hold already: nothing is given back to the file system to be taken
//! again. As long as there is room it is refilled in the background. When there is none,
//! checkpoints come early, for each gives back the segments before it and the pages it replaces, and
//! updates are refused while too little is left. Removing is not refused; it waits for such a checkpoint
//! where need be.
//!
//! A raw device is ours alone and keeps nothing ahead. A file system that cannot set space aside
//! (`File::allocate`) makes no promise.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use env::{Disk, File, OpenOptions};
use types::{Code, Error, Result};
use wire::obj::Op;

use crate::shard::PoolShard;
use crate::wal::{SEGMENT_BYTES, fill_segment, segment_options, segment_path};

/// Segments kept for the next checkpoint.
pub(crate) const SPARES_KEPT: usize = 1;
/// Emptied segments kept at most.
const EMPTIED_COUNT_MAX: usize = 4;
/// Room for pages kept beside what the next checkpoint may need: this share of the pool, within these
/// bounds, bytes. It is what requests under way may make dirty, and what removing goes on with.
const PAGES_SHARE: u64 = 32;
const PAGES_BYTES_MIN: u64 = 1 << 20;
const PAGES_BYTES_MAX: u64 = 8 << 20;
/// What one operation may make dirty, bytes: a page a little over its greatest size, and one more.
const OP_BYTES: u64 = 32 << 10;
/// What a table may take at least, bytes.
const TABLE_BYTES: u64 = 128 << 10;
/// Less dirty than this is worth no early checkpoint, bytes.
const DIRTY_BYTES_MIN: u64 = 64 << 10;
/// So often a full file system is asked again, and a checkpoint that failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Segments that the log can begin at any time.
pub(crate) struct Spares {
    disk: Rc<dyn Disk>,
    dir: PathBuf,
    /// Numbers of segments that a checkpoint has emptied.
    emptied: RefCell<VecDeque<u64>>,
    /// Numbers of files that have their space and no zeros yet.
    set_aside: RefCell<VecDeque<u64>>,
    next: Cell<u64>,
}

fn spare_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("spare.{number}"))
}

impl Spares {
    /// What is ready in the directory of a log that begins with segment `first`. `strays` are
    /// segments that are not part of it.
    pub(crate) async fn open(
        disk: &Rc<dyn Disk>,
        dir: &Path,
        strays: &[u64],
        first: u64,
    ) -> Result<Spares> {
        let spares = Spares {
            disk: disk.clone(),
            dir: dir.to_path_buf(),
            emptied: RefCell::default(),
            set_aside: RefCell::default(),
            next: Cell::new(0),
        };
        for entry in disk.list(dir).await? {
            let number = entry.name.strip_prefix("spare.").and_then(|n| n.parse::<u64>().ok());
            let Some(number) = number else { continue };
            spares.next.set(spares.next.get().max(number.saturating_add(1)));
            spares.keep_or_remove(number).await?;
        }
        for &number in strays {
            if number < first {
                spares.put_back(number).await?;
                continue;
            }
            // Later ones are in the way of the log.
            let spare = spares.next.replace(spares.next.get() + 1);
            disk.rename(&segment_path(dir, number), &spare_path(dir, spare)).await?;
            spares.keep_or_remove(spare).await?;
        }
        Ok(spares)
    }

    /// A crash may have left less than was to be set aside.
    async fn keep_or_remove(&self, number: u64) -> Result<()> {
        let path = spare_path(&self.dir, number);
        let bytes = self.disk.open(&path, OpenOptions::default()).await?.len()?;
        if bytes != SEGMENT_BYTES || self.count() >= EMPTIED_COUNT_MAX {
            return self.disk.remove(&path).await;
        }
        self.set_aside.borrow_mut().push_back(number);
        Ok(())
    }

    /// Segments ready.
    pub(crate) fn count(&self) -> usize {
        self.emptied.borrow().len() + self.set_aside.borrow().len()
    }

    /// Sets segments aside until `count` are ready. `NoSpace` when there is no room for that.
    pub(crate) async fn set_aside(&self, count: usize) -> Result<()> {
        while self.count() < count {
            let number = self.next.replace(self.next.get() + 1);
            let path = spare_path(&self.dir, number);
            let made = async {
                let options = OpenOptions { create: true, ..OpenOptions::default() };
                let file = self.disk.open(&path, options).await?;
                file.allocate(0, SEGMENT_BYTES).await?;
                file.sync().await?;
                self.disk.sync_dir(&self.dir).await
            };
            if let Err(error) = made.await {
                // It may not be there at all.
                let _ = self.disk.remove(&path).await;
                return Err(error.context("setting room aside for the log"));
            }
            self.set_aside.borrow_mut().push_back(number);
        }
        Ok(())
    }

    /// Makes one that is ready the segment at `path`, which is durable when the directory is synced.
    /// `NoSpace` when none is.
    pub(crate) async fn take(&self, path: &Path) -> Result<Rc<dyn File>> {
        let emptied = self.emptied.borrow_mut().pop_front();
        if let Some(number) = emptied {
            self.disk.rename(&segment_path(&self.dir, number), path).await?;
            return self.disk.open(path, segment_options()).await;
        }
        let spare = self.set_aside.borrow_mut().pop_front();
        let number = spare.ok_or_else(|| Error::bare(Code::NoSpace))?;
        let from = spare_path(&self.dir, number);
        let filled = fill_segment(&self.disk, &from, path, SEGMENT_BYTES).await;
        if filled.as_ref().is_err_and(|error| error.code == Code::NoSpace) {
            self.set_aside.borrow_mut().push_back(number);
        }
        filled
    }

    /// Keeps a segment that a checkpoint has emptied, or removes it.
    pub(crate) async fn put_back(&self, number: u64) -> Result<()> {
        let path = segment_path(&self.dir, number);
        let bytes = self.disk.open(&path, OpenOptions::default()).await?.len()?;
        if bytes == SEGMENT_BYTES && self.emptied.borrow().len() < EMPTIED_COUNT_MAX {
            self.emptied.borrow_mut().push_back(number);
            return Ok(());
        }
        self.disk.remove(&path).await
    }
}

/// What a shard knows of the room around it.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Room is kept ahead at all.
    pub keeps: bool,
    /// Less is kept than should be, for want of room.
    short: Cell<bool>,
    growing: Cell<bool>,
    /// When it was last asked for more, and got less.
    refused: Cell<Option<Duration>>,
    /// When the last checkpoint failed.
    failed: Cell<Option<Duration>>,
    /// Length of the last table, bytes.
    pub table_bytes: Cell<u64>,
    /// What the checkpoint that runs may still write for pages, bytes.
    pub checkpoint_bytes: Cell<u64>,
}

impl Room {
    /// Something is being set aside.
    pub(crate) fn is_growing(&self) -> bool {
        self.growing.get()
    }

    /// Less is kept than should be.
    pub(crate) fn is_short(&self) -> bool {
        self.short.get()
    }

    /// The checkpoint that runs has written this much for a page.
    pub(crate) fn wrote(&self, bytes: u64) {
        self.checkpoint_bytes.set(self.checkpoint_bytes.get().saturating_sub(bytes));
    }
}

fn needs_space(ops: &[Op<'_>]) -> bool {
    ops.iter().any(|op| op.footprint().takes_room())
}

fn full(dir: &Path) -> Error {
    Error::new(
        Code::NoSpace,
        format!(
            "the file system of {} is full, and what this pool keeps ahead there is used up; make \
             room on it. Removing files works",
            dir.display()
        ),
    )
}

impl PoolShard {
    /// What the checkpoint that runs may still write for pages, and the next one, bytes.
    fn image_bytes_max(&self) -> u64 {
        let next = self.state.borrow().index.ledger.image_bytes_max();
        next.saturating_add(self.room.checkpoint_bytes.get())
    }

    /// What a table may take, bytes, about: sums of blocks are nearly all of a large one.
    fn table_bytes_max(&self) -> u64 {
        let sums = self.core.space.borrow().sums.bytes();
        let table = self.room.table_bytes.get().max(sums);
        TABLE_BYTES.saturating_add(table).saturating_add(table / 4)
    }

    /// Room for pages kept beside that, bytes.
    fn kept_bytes(&self) -> u64 {
        let config = self.config();
        let pool = config.scm_bytes.saturating_add(config.nvme_bytes);
        (pool / PAGES_SHARE).clamp(PAGES_BYTES_MIN, PAGES_BYTES_MAX)
    }

    /// True when what should be kept ahead is. For tests.
    pub fn keeps_reserve(&self) -> bool {
        let (Some(wal), Some(pages)) = (&self.wal, &self.pages) else { return false };
        let want = self.image_bytes_max() + self.table_bytes_max() + self.kept_bytes();
        self.room.keeps && wal.spares.count() >= SPARES_KEPT && pages.headroom() >= want
    }

    /// `NoSpace` when `ops` need space and there is none but what is kept for checkpoints, even after
    /// the next one.
    pub(crate) fn check_room(&self, ops: &[Op<'_>]) -> Result<()> {
        let (Some(wal), Some(pages)) = (&self.wal, &self.pages) else { return Ok(()) };
        if !wal.is_stuck() && !self.room.is_short() || !needs_space(ops) {
            return Ok(());
        }
        let log_short = wal.spares.count() == 0 && wal.room_left() < SEGMENT_BYTES / 4;
        let pages_short = pages.headroom() < self.table_bytes_max() + self.kept_bytes() / 2;
        if wal.is_stuck() || log_short || pages_short {
            if self.checkpoint_gives_room() {
                self.begin_checkpoint();
            }
            return Err(full(wal.dir()));
        }
        Ok(())
    }

    /// Waits for a checkpoint when what `ops` make dirty may be more than the next one has room for.
    /// `NoSpace` when there is still too little and they need space.
    pub(crate) async fn wait_for_reserve(&self, ops: &[Op<'_>]) -> Result<()> {
        let (Some(wal), Some(pages)) = (&self.wal, &self.pages) else { return Ok(()) };
        let kept = if needs_space(ops) { self.kept_bytes() / 2 } else { 0 };
        let more = kept + ops.len() as u64 * OP_BYTES;
        let lacks = || {
            let need = self.image_bytes_max() + self.table_bytes_max() + more;
            self.room.is_short() && pages.headroom() < need
        };
        let is_dirty = || self.state.borrow().index.ledger.dirty_bytes > DIRTY_BYTES_MIN;
        // One checkpoint may run already, and not hold what is dirty now.
        for _ in 0..2 {
            if lacks() && (self.checkpointing.get() || is_dirty()) && self.begin_checkpoint() {
                self.wait_for_checkpoint(&lacks).await;
            }
        }
        if lacks() && needs_space(ops) {
            return Err(full(wal.dir()));
        }
        Ok(())
    }

    /// Sets aside in the background what the next checkpoint may need.
    pub(crate) fn keep_reserve(&self) {
        if !self.room.keeps || self.is_closed() || self.room.growing.get() {
            return;
        }
        if self.keeps_reserve() {
            self.room.short.set(false);
            return;
        }
        let want = self.image_bytes_max() + self.table_bytes_max() + self.kept_bytes();
        let pause = |refused: Duration| self.core.env.now() < refused + RETRY_PAUSE;
        if self.room.refused.get().is_some_and(pause) {
            self.room.short.set(true);
            return;
        }
        let Some(me) = self.me.upgrade() else { return };
        self.room.growing.set(true);
        self.core.env.spawn(async move {
            if let (Some(wal), Some(pages)) = (&me.wal, &me.pages) {
                let outcome = pages.set_aside(want).await.and(wal.spares.set_aside(SPARES_KEPT).await);
                me.room.refused.set(outcome.is_err().then(|| me.core.env.now()));
                let short = outcome.as_ref().is_err_and(|error| error.code == Code::NoSpace);
                let was_short = me.room.short.replace(short);
                if let Err(error) = outcome
                    && !was_short
                {
                    tracing::warn!(pool = %me.pool, %error, "less room is kept ahead than should be");
                }
            }
            me.room.growing.set(false);
        });
    }

    /// True when a checkpoint gives back what is short.
    pub(crate) fn checkpoint_gives_room(&self) -> bool {
        let (Some(wal), Some(pages)) = (&self.wal, &self.pages) else { return false };
        if !self.room.is_short() || self.checkpoint_failed_lately() {
            return false;
        }
        let log = wal.spares.count() <= SPARES_KEPT && wal.room_left() < SEGMENT_BYTES / 2;
        let room = pages.headroom().saturating_sub(self.table_bytes_max());
        let dirty = self.state.borrow().index.ledger.dirty_bytes;
        log || dirty > DIRTY_BYTES_MIN && self.image_bytes_max() > room / 2
    }

    pub(crate) fn checkpoint_failed_lately(&self) -> bool {
        let pause = |failed: Duration| self.core.env.now() < failed + RETRY_PAUSE;
        self.room.failed.get().is_some_and(pause)
    }

    /// A checkpoint has ended well, or not.
    pub(crate) fn note_checkpoint(&self, failed: bool) {
        self.room.failed.set(failed.then(|| self.core.env.now()));
    }

    /// Has the log ask for a checkpoint when it cannot go on without.
    pub(crate) fn watch_log(&self) {
        let Some(wal) = &self.wal else { return };
        let me = self.me.clone();
        wal.when_stuck(Box::new(move || {
            me.upgrade().is_some_and(|shard| shard.begin_checkpoint())
        }));
    }
}
