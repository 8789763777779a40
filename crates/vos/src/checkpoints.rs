//! When a checkpoint begins, and who waits for its end. What one does is in [`crate::checkpoint`].

use crate::shard::PoolShard;

impl PoolShard {
    /// Begins a checkpoint unless one runs; false when there will be none now.
    pub(crate) fn begin_checkpoint(&self) -> bool {
        if self.checkpointing.is_on() {
            return true;
        }
        let usable = self.wal.as_ref().is_some_and(|wal| wal.usable().is_ok());
        if !usable || self.is_abandoned() || self.room.failed_lately(self.core.env.now()) {
            return false;
        }
        let Some(me) = self.me.upgrade() else { return false };
        let _ = self.checkpointing.begin();
        self.core.env.spawn((self.beside.checkpoint)(me));
        true
    }

    pub(crate) fn checkpoint_ended(&self) {
        self.checkpointing.end();
        self.progress.notify();
    }

    /// Waits for a checkpoint that runs, as long as `wanted`.
    pub(crate) async fn wait_for_checkpoint(&self, wanted: &dyn Fn() -> bool) {
        self.progress.until(|| !wanted() || !self.checkpointing.is_on()).await;
    }
}
