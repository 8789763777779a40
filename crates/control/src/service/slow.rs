//! Targets whose devices stay slow are drained, where their pool says so.
//!
//! A target that has become slow has lost most of its share already, if the pool's shares follow (`reweigh`); what it keeps is read and written at
//! its pace. One at a time is drained, as an administrator would do it, and like then it stays so until somebody has it serve again. Nobody is drained while another is missing or
//! moves, where the others have no room for it, or when most are slow: then it is not the device.

use super::Service;
use super::orders::{Targets, order_each};
use crate::records::{PoolDf, StageDf};
use async_recursion::async_recursion as boxed;
use placement::{Filled, room_without};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Code, Error, PoolId, Result, TargetId};
use wire::control::{Name, TargetAim};
use wire::map::{PoolMap, TargetState};
use wire::obj::{AdminOp, AdminReply};

/// What is known of targets that are slow.
#[derive(Default)]
pub(super) struct Slow {
    /// Since when each has been seen to be, by the clock of whoever looks.
    since: RefCell<BTreeMap<(PoolId, TargetId), Duration>>,
    /// Those that could not be drained, and people were told.
    told: RefCell<BTreeSet<(PoolId, TargetId)>>,
}

impl Slow {
    /// Takes a look: of the targets that answered these are slow. What others were stays.
    fn note(
        &self,
        now: Duration,
        pool: PoolId,
        answered: &BTreeSet<TargetId>,
        slow: &BTreeSet<TargetId>,
    ) {
        let is_well = |of: PoolId, target: &TargetId| {
            of == pool && answered.contains(target) && !slow.contains(target)
        };
        let mut since = self.since.borrow_mut();
        since.retain(|(of, target), _| !is_well(*of, target));
        self.told.borrow_mut().retain(|(of, target)| !is_well(*of, target));
        for target in slow {
            since.entry((pool, *target)).or_insert(now);
        }
    }

    fn forget(&self, pool: PoolId) {
        self.since.borrow_mut().retain(|(of, _), _| *of != pool);
        self.told.borrow_mut().retain(|(of, _)| *of != pool);
    }

    /// The target of a pool that has been slow for longest, if that is as long as `after`.
    fn due(&self, now: Duration, pool: PoolId, after: Duration) -> Option<TargetId> {
        let since = self.since.borrow();
        let of_pool = since.iter().filter(|((of, _), _)| *of == pool);
        let longest = of_pool.min_by_key(|(_, since)| **since);
        longest.filter(|(_, since)| now.saturating_sub(**since) >= after).map(|((_, of), _)| *of)
    }
}

impl Service {
    /// Looks which targets are slow, and drains one that has been for as long as its pool says. `now` is a clock that only ever grows; with
    /// another holder of the service the time begins anew.
    ///
    /// Errors: those of the catalog.
    #[boxed(?Send)]
    pub async fn drain_slow(&self, now: Duration, orders: &dyn Targets) -> Result<()> {
        for pool in self.store.pools().await? {
            let pool = pool.record;
            let after = Duration::from_secs(pool.balance.drain_slow_after_s.into());
            if pool.stage != StageDf::Ready || after.is_zero() {
                self.slow.forget(pool.id);
                continue;
            }
            let serving: Vec<TargetId> = pool
                .targets
                .iter()
                .filter(|held| held.aim == TargetAim::Serve)
                .map(|held| held.id)
                .collect();
            let order = || AdminOp::Measure { ask: None, pool: Some(pool.id) };
            let (replies, failures) = order_each(orders, serving.iter().copied(), order).await;
            let answered: BTreeSet<TargetId> = replies.iter().map(|(target, _)| *target).collect();
            let is_slow = |standing: Option<wire::measure::Standing>| {
                standing.and_then(|of| of.measures).is_some_and(|measures| measures.past.is_some())
            };
            let slow = replies.iter().filter(|(_, reply)| is_slow(reply.standing));
            let slow: BTreeSet<TargetId> = slow.map(|(target, _)| *target).collect();
            self.slow.note(now, pool.id, &answered, &slow);
            let most_are = slow.len() * 2 > serving.len();
            if most_are || !failures.is_empty() || !is_at_rest(&pool) {
                continue;
            }
            let Some(target) = self.slow.due(now, pool.id, after) else { continue };
            let used = |reply: &AdminReply| reply.standing.map_or(0, |of| of.used_bytes);
            let bytes = pool.shard_bytes();
            let filled =
                |(of, reply): &(TargetId, AdminReply)| Filled::of_sum(*of, used(reply), bytes);
            let filled: Vec<Filled> = replies.iter().map(filled).collect();
            self.drain_one(&pool, target, &filled, orders).await;
        }
        Ok(())
    }

    async fn drain_one(
        &self,
        pool: &PoolDf,
        target: TargetId,
        filled: &[Filled],
        orders: &dyn Targets,
    ) {
        let name = Name::Uuid(pool.uuid);
        let is_news = || self.slow.told.borrow_mut().insert((pool.id, target));
        let drained = async {
            check_room(&self.map(pool).await?, target, filled)?;
            self.aim(&name, &[target], TargetAim::Drain, orders).await
        };
        match drained.await {
            Ok(_) => tracing::warn!(
                pool = %pool.name(), %target,
                "its devices have stayed slow: it is drained; when they are well again, 'azekura pool reintegrate'"
            ),
            Err(error) if is_news() => tracing::warn!(
                pool = %pool.name(), %target, "its devices have stayed slow, and it cannot be drained: {error}"
            ),
            Err(error) => tracing::debug!(pool = %pool.name(), %target, "not drained: {error}"),
        }
    }
}

/// `NoSpace` when other targets that serve have no room for what one of them holds.
fn check_room(map: &PoolMap, target: TargetId, filled: &[Filled]) -> Result<()> {
    let room = room_without(map, &[target], filled);
    if room.lacking == 0 {
        return Ok(());
    }
    let text =
        format!("it holds {} bytes, and the others have room for {}", room.moving, room.free);
    Err(Error::new(Code::NoSpace, text))
}

/// Nothing of a pool is missing, and nothing moves.
fn is_at_rest(pool: &PoolDf) -> bool {
    let is_out = |target: TargetId| pool.outs.iter().any(|out| out.target == target);
    let rests = pool.targets.iter().all(|held| match held.aim {
        TargetAim::Serve => held.state == TargetState::Up,
        TargetAim::Drain | TargetAim::Exclude => is_out(held.id),
    });
    pool.next.is_none() && rests && pool.balanced >= pool.balance_wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(of: &[u32]) -> BTreeSet<TargetId> {
        of.iter().copied().map(TargetId).collect()
    }

    #[test]
    fn who_is_slow_without_a_break_is_due() {
        let (slow, pool, all) = (Slow::default(), PoolId(7), ids(&[1, 2, 3]));
        let at = Duration::from_secs;
        slow.note(at(10), pool, &all, &ids(&[2]));
        slow.note(at(20), pool, &all, &ids(&[1, 2]));
        assert_eq!(slow.due(at(109), pool, at(100)), None);
        assert_eq!(slow.due(at(110), pool, at(100)), Some(TargetId(2)));
        assert_eq!(slow.due(at(110), PoolId(8), at(100)), None);
        // It was well for a moment; one that gives no answer is what it was.
        slow.note(at(111), pool, &ids(&[2, 3]), &ids(&[]));
        assert_eq!(slow.due(at(112), pool, at(100)), None);
        slow.note(at(113), pool, &all, &ids(&[1, 2]));
        assert_eq!(slow.due(at(120), pool, at(100)), Some(TargetId(1)));
        slow.forget(pool);
        assert_eq!(slow.due(at(900), pool, at(1)), None);
    }
}
