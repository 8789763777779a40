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

use std::path::Path;

use types::{Code, Error, Result};

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
        next.saturating_add(self.room.checkpoint_bytes())
    }

    /// What a table may take, bytes, about: sums of blocks are nearly all of a large one.
    fn table_bytes_max(&self) -> u64 {
        let sums = self.core.space.borrow().sums.bytes();
        let table = self.room.table_bytes().max(sums);
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
            // Where all that is asked for needs room, nothing else asks again.
            self.keep_reserve();
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
            // Others may have made room meanwhile, and where all that is asked for needs some, nothing else looks.
            self.keep_reserve();
            self.progress.until(|| !self.room.is_growing()).await;
        }
        if lacks() && takes_room {
            return Err(full(wal.dir()));
        }
        Ok(())
    }

    /// Sets aside in the background what the next checkpoint may need.
    pub(crate) fn keep_reserve(&self) {
        if !self.room.keeps || self.is_closed() || self.room.is_growing() {
            return;
        }
        if self.keeps_reserve() {
            self.room.note_enough();
            return;
        }
        let want = self.image_bytes_max() + self.table_bytes_max() + self.kept_bytes();
        if self.room.refused_lately(self.core.env.now()) {
            return;
        }
        let Some(me) = self.me.upgrade() else { return };
        self.room.begin_growing();
        self.core.env.spawn(async move {
            if let (Some(wal), Some(pages)) = (&me.wal, &me.pages) {
                let outcome = pages.set_aside(want).await.and(wal.spares.set_aside(SPARES_KEPT).await);
                let is_news = me.room.note_asked(&outcome, me.core.env.now());
                if let Err(error) = outcome
                    && is_news
                {
                    tracing::warn!(pool = %me.pool, %error, "less room is kept ahead than should be");
                }
            }
            me.room.end_growing();
            me.progress.notify();
        });
    }

    /// True when a checkpoint gives back what is short.
    pub(crate) fn checkpoint_gives_room(&self) -> bool {
        let (Some(wal), Some(pages)) = (&self.wal, &self.pages) else { return false };
        if !self.room.is_short() || self.room.failed_lately(self.core.env.now()) {
            return false;
        }
        let log = wal.spares.count() <= SPARES_KEPT && wal.room_left() < SEGMENT_BYTES / 2;
        let room = pages.headroom().saturating_sub(self.table_bytes_max());
        let dirty = self.state.borrow().index.ledger.dirty_bytes;
        log || dirty > DIRTY_BYTES_MIN && self.image_bytes_max() > room / 2
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
