//! What a target looks at now and then, because nobody tells: whether its pools have room, and whether their logs are written.

use crate::target::{Target, TargetPool};
use env::Env;
use std::cell::Cell;
use std::rc::Weak;
use std::time::Duration;
use types::{PoolId, TargetId};
use wire::event::{EventCode, Happened};

/// Between two looks.
const LOOK_PAUSE: Duration = Duration::from_secs(2);
/// Shares of the fuller tier that are free, in 65,536ths: less is nearly full, somewhat before leaders refuse what such a member is to keep a copy of
/// ([`wire::reply::PoolShardStat::is_short`]), ...
const NEAR_SHARE: u64 = 65_536 * 15 / 100;
/// ... and as long as it is not this much again, it stays so.
const ROOM_SHARE: u64 = 65_536 * 18 / 100;
/// One that was full is not, once this much is free.
const FULL_SHARE: u64 = 65_536 / 20;

/// A member that had no room is told of again when nothing was refused for that in so many looks.
const QUIET_LOOKS: u32 = 30;

/// How much room a pool's part has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
enum Room {
    #[default]
    Enough,
    NearFull,
    /// Something was refused for want of room.
    Full,
}

impl Room {
    /// How it is by what is free and whether something was refused since the last look.
    fn next(self, free_share: u64, was_refused: bool) -> Room {
        if was_refused {
            return Room::Full;
        }
        match self {
            Room::Full if free_share < FULL_SHARE => Room::Full,
            Room::Enough if free_share >= NEAR_SHARE => Room::Enough,
            Room::NearFull | Room::Full if free_share >= ROOM_SHARE => Room::Enough,
            Room::Enough | Room::NearFull | Room::Full => Room::NearFull,
        }
    }
}

/// What was seen of a pool's part last.
#[derive(Default)]
pub(crate) struct Condition {
    room: Cell<Room>,
    log_failed: Cell<bool>,
    /// Something was refused for want of room since the last look.
    was_refused: Cell<bool>,
    /// The same for want of room at another target, which is to keep a copy, ...
    refused_for: Cell<Option<TargetId>>,
    /// ... and for which one that was told, and how many looks ago it was so last.
    told_for: Cell<Option<(TargetId, u32)>>,
}

impl Condition {
    /// Something is refused for want of room.
    pub fn note_refusal(&self) {
        self.was_refused.set(true);
    }

    /// Something is refused because another target, which is to keep a copy, has no room for it.
    pub fn note_refusal_for(&self, member: TargetId) {
        self.refused_for.set(Some(member));
    }

    /// The target for which something was refused since the last look, if that is news.
    fn news_of_member(&self) -> Option<TargetId> {
        let (now, told) = (self.refused_for.take(), self.told_for.get());
        let is_told = |member| told.is_some_and(|(of, _)| of == member);
        self.told_for.set(match (now, told) {
            (Some(member), _) => Some((member, 0)),
            (None, Some((member, looks))) if looks < QUIET_LOOKS => Some((member, looks + 1)),
            (None, _) => None,
        });
        now.filter(|member| !is_told(*member))
    }
}

impl Target {
    /// Looks at all pools again and again, until the target is gone.
    pub(crate) async fn watch_condition(env: Env, target: Weak<Target>) {
        loop {
            // timer: the state of a pool is looked at in intervals.
            env.sleep(LOOK_PAUSE).await;
            let Some(target) = target.upgrade() else { return };
            if target.is_draining() {
                return;
            }
            for (pool, ctx) in target.pools.all() {
                target.look_at(pool, &ctx);
            }
        }
    }

    fn look_at(&self, pool: PoolId, ctx: &TargetPool) {
        let condition = &ctx.condition;
        let tell = |code: EventCode, what: String| {
            let what = format!("target {}: pool {pool}: {what}", self.id);
            self.events.tell(Happened::new(code, what).of_target(self.id).of_pool(pool));
        };
        let space = ctx.shard.stat();
        let before = condition.room.get();
        let now = before.next(space.free_share(), condition.was_refused.take());
        condition.room.set(now);
        let free = space.free_share() * 100 / 65_536;
        match now {
            _ if now == before => {}
            Room::Full => tell(EventCode::PoolFull, "there is no room for what is written".into()),
            Room::NearFull if before == Room::Enough => {
                tell(EventCode::PoolNearFull, format!("{free} % of the fuller tier are free"));
            }
            Room::NearFull | Room::Enough => {
                tell(EventCode::PoolRoom, format!("{free} % of the fuller tier are free again"));
            }
        }
        if let Some(member) = condition.news_of_member() {
            let what = format!("target {member}, which is to keep copies, has no room for them");
            tell(EventCode::PoolFull, what);
        }
        let failed = ctx.shard.log_stat().is_some_and(|log| log.failed);
        if failed && !condition.log_failed.replace(failed) {
            tell(EventCode::LogFailed, "a write of the log has failed".into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writers of a pool with copies were told that there is no room, and no event said so.
    #[test]
    fn a_member_without_room_is_told_of_once() {
        let (one, other) = (TargetId(1), TargetId(2));
        let condition = Condition::default();
        assert_eq!(condition.news_of_member(), None);
        for _ in 0..3 {
            condition.note_refusal_for(one);
            assert_eq!(condition.news_of_member(), Some(one));
            condition.note_refusal_for(one);
            assert_eq!(condition.news_of_member(), None);
            for _ in 0..QUIET_LOOKS {
                assert_eq!(condition.news_of_member(), None);
            }
            condition.note_refusal_for(one);
            assert_eq!(condition.news_of_member(), None);
            for _ in 0..=QUIET_LOOKS {
                assert_eq!(condition.news_of_member(), None);
            }
        }
        condition.note_refusal_for(one);
        assert_eq!(condition.news_of_member(), Some(one));
        condition.note_refusal_for(other);
        assert_eq!(condition.news_of_member(), Some(other));
    }

    #[test]
    fn one_that_is_full_has_room_again_only_with_some_to_spare() {
        let percent = |share: u64| share * 65_536 / 100;
        let mut room = Room::default();
        for (free, was_refused, expected) in [
            (50, false, Room::Enough),
            (15, false, Room::Enough),
            (14, false, Room::NearFull),
            (17, false, Room::NearFull),
            (18, false, Room::Enough),
            (0, false, Room::NearFull),
            (1, true, Room::Full),
            (3, false, Room::Full),
            (6, false, Room::NearFull),
            (60, true, Room::Full),
            (60, false, Room::Enough),
        ] {
            room = room.next(percent(free) + 1, was_refused);
            assert_eq!(room, expected, "{free} % free");
        }
    }
}
