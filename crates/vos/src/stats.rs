//! What a shard tells of itself: space, index, log, caches; and the same counted anew.

use types::Result;
use wire::cache::{CacheStat, DataCache};
use wire::obj::PoolShardStat;
use wire::store::{AggregationStat, LogStat};

use crate::figures::IndexStat;
use crate::shard::PoolShard;
use crate::space::Space;

impl PoolShard {
    /// Space of both tiers, and how much there is of what.
    pub fn stat(&self) -> PoolShardStat {
        let state = self.state.borrow();
        let space = self.core.space.borrow();
        let used = state.index.scm_bytes + self.core.promised.bytes();
        PoolShardStat {
            scm_bytes: self.core.scm_limit(),
            scm_free_bytes: self.core.scm_limit().saturating_sub(used),
            nvme_bytes: space.bytes() - self.core.loans.bytes(),
            nvme_free_bytes: space.free_bytes(),
            tiers_share_room: self.core.loans.are_possible(),
            object_count: state.index.object_count,
            dkey_count: state.index.dkey_count,
        }
    }

    /// What of the index is in memory, and what its pages take.
    pub fn index_stat(&self) -> IndexStat {
        let state = self.state.borrow();
        let ledger = &state.index.ledger;
        IndexStat {
            resident_bytes: ledger.resident_bytes,
            dirty_bytes: ledger.dirty_bytes,
            absent_pages: ledger.absent_count,
            loaded_pages: self.figures.loaded_pages(),
            area_bytes: self.pages.as_ref().map_or(0, |pages| pages.used_bytes()),
            sums_bytes: self.core.space.borrow().sums.bytes(),
        }
    }

    /// What the log has done since the shard was opened; `None` for `memory`.
    pub fn log_stat(&self) -> Option<LogStat> {
        let (checkpoints, checkpoint_ns, checkpoint_time_us) = self.figures.checkpoints();
        let stat = self.wal.as_ref()?.stat();
        Some(LogStat { checkpoints, checkpoint_ns, checkpoint_time_us, ..stat })
    }

    /// Writes of data that the device has refused since the last one that it took; for want of room none is.
    pub fn refused_writes(&self) -> u64 {
        self.core.last_writes.failed()
    }

    /// What aggregation has done since the shard was opened.
    pub fn aggregation_stat(&self) -> AggregationStat {
        self.figures.aggregation()
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

    /// Memory counted for the index now, and counted anew; they are equal. For tests and checkers.
    pub fn scm_audit(&self) -> (u64, u64) {
        let state = self.state.borrow();
        (state.index.scm_bytes, state.index.scm_bytes_recounted())
    }

    /// Bytes free in the data area, as followed and as counted anew; they are equal while no update
    /// is staged. `None` when not all of the index is in memory. For tests and checkers.
    pub fn space_audit(&self) -> Result<Option<(u64, u64)>> {
        let state = self.state.borrow();
        let garbage = &state.index.garbage;
        if state.index.ledger.absent_count > 0 || !garbage.is_bare() || !garbage.pages.is_empty() {
            return Ok(None);
        }
        let space = self.core.space.borrow();
        let mut counted = Space::new(space.bytes());
        state.claim_space(&mut counted)?;
        self.core.loans.claim(&mut counted)?;
        Ok(Some((space.free_bytes(), counted.free_bytes())))
    }
}
