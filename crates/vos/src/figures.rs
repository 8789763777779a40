//! What a shard tells of itself, beside its space.

use std::cell::Cell;
use std::time::Duration;

use wire::cache::{CacheStat, DataCache};
use wire::store::{AggregationStat, LogStat};

use crate::shard::{IndexStat, PoolShard};

/// What is counted.
#[derive(Default)]
pub(crate) struct Figures {
    /// Pages of the index read since the shard was opened.
    loaded_pages: Cell<u64>,
    /// Checkpoints completed; when the last one was, nanoseconds since 1970; how long it took, us.
    checkpoints: Cell<(u64, u64, u64)>,
    aggregation: Cell<AggregationStat>,
}

impl Figures {
    /// A page of the index has been read.
    pub(crate) fn count_page(&self) {
        self.loaded_pages.set(self.loaded_pages.get() + 1);
    }

    /// Space was put in order.
    pub(crate) fn count(&self, change: impl FnOnce(&mut AggregationStat)) {
        let mut stat = self.aggregation.get();
        change(&mut stat);
        self.aggregation.set(stat);
    }
}

impl PoolShard {
    /// What of the index is in memory, and what its pages take.
    pub fn index_stat(&self) -> IndexStat {
        let state = self.state.borrow();
        let ledger = &state.index.ledger;
        IndexStat {
            resident_bytes: ledger.resident_bytes,
            dirty_bytes: ledger.dirty_bytes,
            absent_pages: ledger.absent_count,
            loaded_pages: self.figures.loaded_pages.get(),
            area_bytes: self.pages.as_ref().map_or(0, |pages| pages.used_bytes()),
            sums_bytes: self.core.space.borrow().sums.bytes(),
        }
    }

    /// What the log has done since the shard was opened; `None` for `memory`.
    pub fn log_stat(&self) -> Option<LogStat> {
        let (checkpoints, checkpoint_ns, checkpoint_time_us) = self.figures.checkpoints.get();
        let stat = self.wal.as_ref()?.stat();
        Some(LogStat { checkpoints, checkpoint_ns, checkpoint_time_us, ..stat })
    }

    /// Counts a checkpoint that began then and is complete now.
    pub(crate) fn count_checkpoint(&self, began: Duration) {
        let env = &self.core.env;
        let taken = env.now().saturating_sub(began).as_micros() as u64;
        let checkpoints = &self.figures.checkpoints;
        checkpoints.set((checkpoints.get().0 + 1, env.wall_ns(), taken));
    }

    /// What aggregation has done since the shard was opened.
    pub fn aggregation_stat(&self) -> AggregationStat {
        self.figures.aggregation.get()
    }

    /// What of the data is in memory.
    pub fn cache_stat(&self) -> CacheStat {
        self.core.cache.stat()
    }

    /// Takes settings of the data cache unless they are older than those in force.
    pub fn set_cache(&self, settings: &DataCache) {
        self.core.cache.set(settings);
    }

    /// Bytes the log takes on the device; 0 for `memory`.
    pub fn log_bytes(&self) -> u64 {
        self.wal.as_ref().map_or(0, |wal| wal.bytes())
    }
}
