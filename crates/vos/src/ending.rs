//! The end of a shard: written out, or given up.

use types::Result;

use crate::checkpoint::checkpoint;
use crate::shard::PoolShard;

impl PoolShard {
    /// Writes out everything and refuses further use. Ends with a checkpoint, so that the next
    /// start has no log to replay.
    pub async fn close(&self) -> Result<()> {
        let was_closed = self.refuse();
        let Some(wal) = &self.wal else { return Ok(()) };
        self.take_back_end();
        wal.begin_close();
        let mut flushed = wal.written(wal.last()).await;
        self.progress.until(|| self.is_quiet() || self.is_abandoned()).await;
        if flushed.is_ok()
            && !was_closed
            && !self.is_abandoned()
            && let Some(me) = self.me.upgrade()
        {
            let _ = self.checkpointing.begin();
            if let Err(error) = checkpoint(&me).await {
                tracing::warn!(pool = %self.pool, %error, "no checkpoint at the end; the log will be replayed");
                flushed = wal.written(wal.last()).await;
            }
            self.checkpoint_ended();
        }
        wal.close();
        self.core.cache.close();
        flushed
    }

    /// Refuses further use without writing anything out.
    fn abandon(&self) {
        self.give_up();
        self.core.cache.close();
        if let Some(wal) = &self.wal {
            wal.close();
        }
    }

    /// Neither a checkpoint runs nor is room being set aside.
    fn is_quiet(&self) -> bool {
        !self.checkpointing.is_on() && !self.room.is_growing()
    }

    /// Ends what is under way on the devices and refuses further use; nothing is kept.
    pub(crate) async fn end(&self) -> Result<()> {
        self.give_up();
        self.progress.notify();
        if let Some(wal) = &self.wal {
            wal.begin_close();
        }
        self.progress.until(|| self.is_quiet()).await;
        let flushed = match &self.wal {
            Some(wal) => wal.written(wal.last()).await,
            None => Ok(()),
        };
        self.abandon();
        flushed
    }
}
