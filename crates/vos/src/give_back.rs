//! Memory of a pool in memory that nothing is in goes back to the kernel.
//!
//! A busy pool is left alone: what it freed it will fill again, and memory that was given back
//! has to be cleared anew. In a virtual machine it may even go back to the host, and the next touch
//! takes a millisecond a MiB. When little was written for half a minute, all that is free goes back,
//! what was touched in advance and never used, too.

use std::rc::Weak;
use std::time::Duration;

use crate::blocks::Run;
use crate::data_area::Medium;
use crate::shard::PoolShard;

/// How often it is looked at.
const TICK: Duration = Duration::from_secs(1);
/// More than this written in a tick is a busy pool, bytes.
const BUSY_BYTES_MIN: u64 = 16 << 20;
/// Ticks that a pool must not be busy before what is free goes back.
const QUIET_TICKS: u32 = 30;
/// Most bytes given back before others get their turn.
const STEP_BYTES_MAX: u64 = 64 << 20;

impl PoolShard {
    /// Just opened: what a pool in memory will use first is touched.
    pub(crate) fn touch_ahead(&self) {
        if let Medium::Arena(arena) = &self.core.medium {
            arena.begin(&self.core.env);
            self.give_back_in_background();
        }
    }

    /// Something was written or freed: some time later memory may go back.
    pub(crate) fn give_back_in_background(&self) {
        let in_memory = matches!(self.core.medium, Medium::Arena(_));
        if in_memory && !self.is_closed() && self.discarding.begin() {
            self.core.env.spawn(run(self.me.clone()));
        }
    }
}

/// The background task: ends when all that is free was given back.
async fn run(shard: Weak<PoolShard>) {
    let mut quiet_ticks = 0;
    let mut before = None;
    loop {
        let Some(env) = shard.upgrade().map(|shard| shard.core.env.clone()) else { return };
        // timer: memory goes back when a pool was quiet for some ticks.
        env.sleep(TICK).await;
        let Some(shard) = shard.upgrade().filter(|shard| !shard.is_closed()) else { return };
        let Medium::Arena(arena) = &shard.core.medium else { return };
        let reserved = arena.reserved_bytes();
        let is_busy = before.is_some_and(|before| reserved - before > BUSY_BYTES_MIN);
        before = Some(reserved);
        quiet_ticks = if is_busy { 0 } else { quiet_ticks + 1 };
        if quiet_ticks < QUIET_TICKS {
            continue;
        }
        // What is freed from now on is for the next task.
        shard.discarding.end();
        give_back(&shard).await;
        return;
    }
}

/// Gives back all that is free.
async fn give_back(shard: &PoolShard) {
    let Medium::Arena(arena) = &shard.core.medium else { return };
    let mut from = 0;
    loop {
        // Free when looked at, and given back before anybody else runs.
        let next = shard.core.space.borrow().next_free(from);
        let Some(run) = next.filter(|run| run.at < arena.touched_to()) else { break };
        let part = Run { at: run.at, bytes: run.bytes.min(STEP_BYTES_MAX) };
        shard.figures.count(|stat| stat.discarded_bytes += arena.give_back(part));
        from = part.at + part.bytes;
        shard.core.env.yield_now().await;
        if shard.is_closed() {
            return;
        }
    }
    let next = shard.core.space.borrow().longest_free();
    arena.gave_back(next.map_or(u64::MAX, |run| run.at));
}
