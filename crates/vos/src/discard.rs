//! Telling the devices which blocks hold nothing any more.
//!
//! Large freed runs are collected by the allocator ([`crate::space::Space::note_freed`]). Some time
//! later, what is still free of them is taken like the space of an update, discarded, and given
//! back: nothing can be written there meanwhile.
//!
//! On block devices it is on by itself: it is what they ask for to stay fast. In files it is off
//! unless asked for: a hole gives the space back to the file system, so the reservation that a
//! pool was made with is gone, and what comes later is in pieces.

use std::rc::Weak;
use std::time::Duration;

use types::{Code, Result};

use crate::data_area::Medium;
use crate::payload::Payload;
use crate::shard::PoolShard;

/// How long freed runs gather.
const DELAY: Duration = Duration::from_secs(1);
/// Most bytes of one discard: devices do nothing else meanwhile.
const DISCARD_BYTES_MAX: u64 = 64 << 20;

impl PoolShard {
    /// Blocks were freed: some time later the devices are told, if that is worth it.
    pub(crate) fn discard_if_due(&self) {
        let is_due = self.core.space.borrow().collects_freed() && !self.is_closed();
        if is_due && self.discarding.begin() {
            self.core.env.spawn(run(self.me.clone()));
        }
    }
}

/// The background task: discards until nothing is left that is worth it.
async fn run(shard: Weak<PoolShard>) {
    loop {
        let Some(env) = shard.upgrade().map(|shard| shard.core.env.clone()) else { return };
        // timer: freed runs gather.
        env.sleep(DELAY).await;
        let Some(shard) = shard.upgrade() else { return };
        match step(&shard).await {
            Ok(true) => {}
            Ok(false) => {
                shard.discarding.end();
                return;
            }
            Err(error) => {
                // Its right stays taken: it is not tried again before the next start.
                tracing::warn!(pool = %shard.pool, %error, "freed space is not discarded");
                shard.core.space.borrow_mut().collect_freed(false);
                return;
            }
        }
    }
}

/// Discards what has gathered; false when there is nothing.
async fn step(shard: &PoolShard) -> Result<bool> {
    let mut any = false;
    loop {
        if shard.is_closed() {
            return Ok(false);
        }
        let Medium::File(file) = &shard.core.medium else { return Ok(false) };
        let run = shard.core.space.borrow_mut().next_freed(DISCARD_BYTES_MAX);
        let Some(run) = run else { return Ok(any) };
        any = true;
        let Some(taken) = Payload::exact(&shard.core, run) else { continue };
        match file.discard(run.at, run.bytes).await {
            Ok(()) => {
                shard.figures.count(|stat| stat.discarded_bytes += run.bytes);
            }
            Err(error) if error.code == Code::NotSupported => return Err(error),
            // A discard is a hint: an error of it says nothing about the data.
            Err(error) => tracing::debug!(pool = %shard.pool, %error, "a discard failed"),
        }
        drop(taken);
        shard.core.env.yield_now().await;
    }
}
