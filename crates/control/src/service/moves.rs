//! Other targets stand in for those that stay away, until they are back.
//!
//! A target that is down for long, or whose engine is excluded, is *out*: in its groups others take its place
//! ([`wire::map::OutTarget`]). First they join ([`wire::map::PoolMap::next`]): leaders have them follow, and they get what the
//! members have. When all targets have said that they have all of it, one commit makes them members. When a target that
//! was out is up again, it goes the same way back. Whatever the map is to become, the way there is the same, and may be changed
//! at any time: who has joined for nothing drops what it got.
//!
//! Invariants:
//! - What is to be out goes in one round, so no group all of whose members are lost is given to others.
//! - Nobody becomes a member while a target that is to stay is not whole: a group may have had all it knows there.

use super::Service;
use super::orders::Targets;
use crate::records::{OutDf, PoolDf, StageDf, TargetDf};
use crate::store::{Loaded, Tx};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{PoolId, Rank, Result, TargetId};
use wire::map::{DownReason, TargetState};

/// Since when targets are down, by the clock of whoever looks.
pub(super) type Missing = RefCell<BTreeMap<(PoolId, TargetId), Duration>>;

impl Service {
    /// Has others stand in for targets that are down for at least `after`, or excluded, and sends back those that are up again.
    /// `now` is a clock that only ever grows.
    ///
    /// Errors: those of the catalog.
    pub async fn stand_in(
        &self,
        now: Duration,
        after: Duration,
        orders: &dyn Targets,
    ) -> Result<()> {
        for pool in self.store.pools().await? {
            if pool.record.stage != StageDf::Ready {
                continue;
            }
            let long = self.long_missing(&pool.record, now, after);
            if let Some(next) = planned(&pool.record, &long) {
                self.plan_moves(pool, next, orders).await?;
            }
        }
        Ok(())
    }

    /// Targets of a pool that are missing for so long that others are to stand in for them.
    fn long_missing(&self, pool: &PoolDf, now: Duration, after: Duration) -> BTreeSet<TargetId> {
        let mut missing = self.missing.borrow_mut();
        let mut long = BTreeSet::new();
        for target in &pool.targets {
            let key = (pool.id, target.id);
            match target.reason {
                None | Some(DownReason::Behind) => {
                    missing.remove(&key);
                }
                Some(DownReason::Excluded) => {
                    long.insert(target.id);
                }
                Some(DownReason::Silent | DownReason::Stopped | DownReason::Lost) => {
                    let since = *missing.entry(key).or_insert(now);
                    if now.saturating_sub(since) >= after {
                        long.insert(target.id);
                    }
                }
            }
        }
        long
    }

    /// Has a pool become what is planned; another try comes when it was changed meanwhile.
    async fn plan_moves(
        &self,
        mut pool: Loaded<PoolDf>,
        next: Vec<OutDf>,
        orders: &dyn Targets,
    ) -> Result<()> {
        pool.record.map_version += 1;
        let ids = |outs: &[OutDf]| outs.iter().map(|out| out.target.0).collect::<Vec<_>>();
        let (now, then) = (ids(&pool.record.outs), ids(&next));
        pool.record.next = if now == then { None } else { Some(next) };
        if self.store.commit(Tx::new().replace(&pool)).await? {
            tracing::warn!(
                pool = %pool.record.name(),
                "others stand in for targets {then:?} from when they have what those had; up to now for {now:?}"
            );
            self.push_maps(std::slice::from_ref(&pool.record), None, orders).await?;
        }
        Ok(())
    }
}

/// What a pool's `next` is to be, if that is news; as `outs`: nothing is to move. `long`: targets that are missing for long.
fn planned(pool: &PoolDf, long: &BTreeSet<TargetId>) -> Option<Vec<OutDf>> {
    let is_out = |target: &TargetDf| pool.outs.iter().any(|out| out.target == target.id);
    let to_go = |target: &&TargetDf| match is_out(target) {
        // One that catches up is not back yet.
        true => target.state != TargetState::Up,
        false => long.contains(&target.id),
    };
    let gone: Vec<&TargetDf> = pool.targets.iter().filter(to_go).collect();
    let is_left = |target: &&TargetDf| !gone.iter().any(|gone| gone.id == target.id);
    let left: BTreeSet<Rank> = pool.targets.iter().filter(is_left).map(|t| t.rank).collect();
    // On one engine nobody can stand in for another one's targets: two copies are to be apart.
    let may_go = |target: &TargetDf| is_out(target) || left.len() > 1;
    let known = pool.next.as_ref().unwrap_or(&pool.outs);
    let (round, epoch) = (pool.map_version + 1, pool.placements.last().map_or(0, |set| set.epoch));
    let out = |target: &&TargetDf| {
        let id = target.id;
        let before = pool.outs.iter().find(|out| out.target == id).copied();
        before.unwrap_or(OutDf { target: id, round, epoch })
    };
    let mut next: Vec<OutDf> = gone.iter().filter(|target| may_go(target)).map(out).collect();
    next.sort_unstable_by_key(|out| (out.round, out.target));
    let ids = |outs: &[OutDf]| outs.iter().map(|out| out.target).collect::<BTreeSet<_>>();
    (ids(&next) != ids(known)).then_some(next)
}
