//! What is counted of a shard's work.

use std::cell::Cell;
use std::time::Duration;

use env::Env;
use wire::store::AggregationStat;

/// What of an index is in memory; see [`PoolShard::index_stat`](crate::PoolShard::index_stat).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexStat {
    /// Memory counted of what is in memory, bytes.
    pub resident_bytes: u64,
    /// Of that, what no page on the device holds yet, bytes.
    pub dirty_bytes: u64,
    /// Pages that are not in memory.
    pub absent_pages: u64,
    /// Pages read back since the shard was opened.
    pub loaded_pages: u64,
    /// Pages and tables on the device, bytes.
    pub area_bytes: u64,
    /// Memory of the sums of blocks, which are all in memory, bytes.
    pub sums_bytes: u64,
}

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

    /// Pages of the index read so far.
    pub(crate) fn loaded_pages(&self) -> u64 {
        self.loaded_pages.get()
    }

    /// A checkpoint that began then is complete now.
    pub(crate) fn count_checkpoint(&self, env: &Env, began: Duration) {
        let taken = env.now().saturating_sub(began).as_micros() as u64;
        self.checkpoints.set((self.checkpoints.get().0 + 1, env.wall_ns(), taken));
    }

    /// Checkpoints completed; when the last one was, nanoseconds since 1970; how long it took, us.
    pub(crate) fn checkpoints(&self) -> (u64, u64, u64) {
        self.checkpoints.get()
    }

    /// What aggregation has done.
    pub(crate) fn aggregation(&self) -> AggregationStat {
        self.aggregation.get()
    }

    /// Space was put in order.
    pub(crate) fn count(&self, change: impl FnOnce(&mut AggregationStat)) {
        let mut stat = self.aggregation.get();
        change(&mut stat);
        self.aggregation.set(stat);
    }
}
