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

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use types::{Code, Error, Result};

use crate::blocks::Run;
use crate::log::spares::SPARES_KEPT;
use crate::log::wal::SEGMENT_BYTES;
use crate::shard::PoolShard;

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
    table_bytes: Cell<u64>,
    /// What the checkpoint that runs may still write for pages, bytes.
    checkpoint_bytes: Cell<u64>,
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

    /// There is a table there from now on.
    pub(crate) fn note_table(&self, runs: &[Run]) {
        self.table_bytes.set(runs.iter().map(|run| run.bytes).sum());
    }

    /// A checkpoint runs that writes so much for pages at most; 0: it has ended.
    pub(crate) fn note_checkpoint(&self, bytes: u64) {
        self.checkpoint_bytes.set(bytes);
    }

    /// The checkpoint that runs has written this much for a page.
    pub(crate) fn wrote(&self, bytes: u64) {
        self.checkpoint_bytes.set(self.checkpoint_bytes.get().saturating_sub(bytes));
    }
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

    /// `NoSpace` for what needs space when there is none but what is kept for checkpoints, even after
    /// the next one.
    pub(crate) fn check_room(&self, takes_room: bool) -> Result<()> {
        let (Some(wal), Some(pages)) = (&self.wal, &self.pages) else { return Ok(()) };
        if !wal.is_stuck() && !self.room.is_short() || !takes_room {
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

    /// Waits for a checkpoint when what so many operations make dirty may be more than the next one has room for.
    /// `NoSpace` when there is still too little and they need space.
    pub(crate) async fn wait_for_reserve(&self, op_count: usize, takes_room: bool) -> Result<()> {
        let (Some(wal), Some(pages)) = (&self.wal, &self.pages) else { return Ok(()) };
        let kept = if takes_room { self.kept_bytes() / 2 } else { 0 };
        let more = kept + op_count as u64 * OP_BYTES;
        let lacks = || {
            let need = self.image_bytes_max() + self.table_bytes_max() + more;
            self.room.is_short() && pages.headroom() < need
        };
        let is_dirty = || self.state.borrow().index.ledger.dirty_bytes > DIRTY_BYTES_MIN;
        // One checkpoint may run already, and not hold what is dirty now.
        for _ in 0..2 {
            if lacks() && (self.checkpointing.is_on() || is_dirty()) && self.begin_checkpoint() {
                self.wait_for_checkpoint(&lacks).await;
            }
        }
        if lacks() && takes_room {
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
            me.progress.notify();
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
