//! What a shard does beside what it is asked for, and when.
//!
//! The shard itself knows none of it: it is made with [`BESIDE`], and calls that after each change.

use crate::checkpoint;
use crate::shard::{Beside, PoolShard};

/// What goes on beside the operations of a shard.
pub(crate) const BESIDE: Beside =
    Beside { after_change, checkpoint: |shard| Box::pin(checkpoint::run_beside(shard)) };

/// Does, or begins, what a change may have made due; `freed`: blocks came back.
fn after_change(shard: &PoolShard, freed: bool) {
    if freed {
        shard.discard_if_due();
        shard.give_back_in_background();
    }
    shard.reclaim_in_background();
    shard.make_room();
    shard.return_if_due();
    shard.aggregate_if_due();
}

impl PoolShard {
    /// After opening: goes on with what a crash interrupted.
    pub(crate) fn opened(&self) {
        self.touch_ahead();
        self.watch_log();
        self.reclaim_in_background();
        self.make_room();
        self.return_if_due();
        self.aggregate_if_due();
        self.sweep_in_background();
    }
}
