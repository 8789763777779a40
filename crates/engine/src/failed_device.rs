//! A target whose device takes no more writes, while its engine goes on and answers.
//!
//! Who follows with such a device holds up those who lead, and who leads refuses its clients. Where others have what it holds it is said to be
//! away ([`ControlRequest::TargetFailed`]): they lead, and stand in for it like for a lost engine. It comes back when its engine is started again. Where nobody else
//! is there it stays: nobody could lead in its place.

use crate::target::{Target, TargetPool};
use env::Env;
use std::cell::Cell;
use std::rc::{Rc, Weak};
use std::time::Duration;
use wire::control::ControlRequest;
use wire::map::{DownReason, TargetInfo, TargetState};

/// Between two looks.
const LOOK_PAUSE: Duration = Duration::from_secs(2);
/// A device that fails at one write may take the next one; a log that has failed takes none.
const REFUSING_LOOKS: u32 = 5;

/// What was seen of the writes of a pool's part.
#[derive(Default)]
pub(crate) struct WritesSeen {
    /// At so many looks, one after the other, the last write had failed.
    refusing_looks: Cell<u32>,
}

impl Target {
    /// Looks at all pools again and again, until the target is gone.
    pub(crate) async fn watch_writes(env: Env, target: Weak<Target>) {
        loop {
            // timer: of a device that fails nobody tells who has nothing to write.
            env.sleep(LOOK_PAUSE).await;
            let Some(target) = target.upgrade() else { return };
            if target.is_draining() {
                return;
            }
            for (_, ctx) in target.pools.all() {
                let looks = match ctx.shard.refuses_writes() {
                    true => ctx.writes_seen.refusing_looks.get().saturating_add(1),
                    false => 0,
                };
                ctx.writes_seen.refusing_looks.set(looks);
                let has_lost_log = ctx.shard.log_stat().is_some_and(|log| log.failed);
                if has_lost_log || looks >= REFUSING_LOOKS {
                    target.tell_of_failure(&ctx).await;
                }
            }
        }
    }

    async fn tell_of_failure(self: &Rc<Self>, ctx: &TargetPool) {
        let Ok(map) = ctx.map() else { return };
        let counts = |info: &TargetInfo| {
            info.state == TargetState::Up || info.reason == Some(DownReason::Behind)
        };
        if !map.target(self.id).is_some_and(counts) {
            return;
        }
        let (pool, id, map_version) = (map.pool, self.id, map.version);
        let failed = ControlRequest::TargetFailed { pool, target: id, map_version };
        if let Err(error) = self.tell_control(&map, &failed).await {
            tracing::warn!("target {id}: pool {pool}: its device takes no more writes: {error}");
        }
    }
}
