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
use types::{Code, Error, Unit};
use wire::control::ControlRequest;
use wire::map::{DownReason, TargetInfo, TargetState};

/// Between two looks.
const LOOK_PAUSE: Duration = Duration::from_secs(2);
/// A device that fails at one write may take the next one: it has to fail at others from look to look. A log that has failed takes none.
const REFUSING_LOOKS: u32 = 5;

/// What was seen of the writes of a pool's part.
#[derive(Default)]
pub(crate) struct WritesSeen {
    /// Writes refused since the last one that was not, at the last look.
    refused: Cell<u64>,
    /// At so many looks more of them were, and none was taken in between.
    refusing_looks: Cell<u32>,
}

impl WritesSeen {
    /// Takes what is seen now; true when the device has refused all that it was given for some time.
    fn look(&self, refused: u64) -> bool {
        let looks = self.refusing_looks.get();
        self.refusing_looks.set(match refused {
            0 => 0,
            _ if refused > self.refused.get() => looks.saturating_add(1),
            // One that was taken, and others after it.
            _ if refused < self.refused.get() => 1,
            // Nobody had anything to write.
            _ => looks,
        });
        self.refused.set(refused);
        self.refusing_looks.get() >= REFUSING_LOOKS
    }
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
                let refuses = ctx.writes_seen.look(ctx.shard.refused_writes());
                let has_lost_log = ctx.shard.log_stat().is_some_and(|log| log.failed);
                if has_lost_log || refuses {
                    target.tell_of_failure(&ctx).await;
                }
            }
        }
    }

    /// What a caller is told whose request has met a device that takes no more writes: where others have all that it is about they lead in a moment, and it is asked for again
    /// there, under the same number, as after a crash.
    pub(crate) fn without_failed_device(
        &self,
        ctx: &TargetPool,
        (mut units, writes): (impl Iterator<Item = Unit>, bool),
        error: Error,
    ) -> Error {
        // What cannot be read is no write that was refused before.
        let refuses = writes && ctx.shard.refused_writes() > 0;
        let fails = || refuses || ctx.shard.log_stat().is_some_and(|log| log.failed);
        if error.code != Code::Io || !fails() {
            return error;
        }
        let Ok(map) = ctx.map() else { return error };
        let others_have = |unit| !ctx.is_of_one(unit) && !self.whole_members(&map, unit).is_empty();
        match units.all(others_have) {
            true => Error::new(Code::Closed, format!("others lead in a moment: {error}")),
            false => error,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_failed_once_is_given_more_to_write() {
        let seen = WritesSeen::default();
        // One write failed, and nobody has written since.
        assert!((0..20).all(|_| !seen.look(1)));
        // All fail.
        assert_eq!((2..9).map(|refused| seen.look(refused)).position(|refuses| refuses), Some(3));
        // It takes one, and fails again.
        assert!(!seen.look(0));
        assert!(!seen.look(3) && !seen.look(1));
        assert_eq!((2..9).map(|refused| seen.look(refused)).position(|refuses| refuses), Some(3));
    }
}
