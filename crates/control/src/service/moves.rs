//! Other targets stand in for those that stay away, until they are back.
//!
//! A target that is down for long, or excluded, or drained, is *out*: in its groups others take its place
//! ([`wire::map::OutTarget`]). First they join ([`wire::map::PoolMap::next`]): leaders have them follow, and they get what the
//! members have. When all targets have said that they have all of it, one commit makes them members. When a target that
//! was out is up again, it goes the same way back. Whatever the map is to become, the way there is the same, and may be changed
//! at any time: who has joined for nothing drops what it got.
//!
//! Targets that were added to a pool come to their share of what is there in the same way, when an administrator wants it
//! ([`wire::map::PoolMap::balanced`]), while none is missing for long.
//!
//! Invariants:
//! - What is to be out goes in one round, so no group all of whose members are lost is given to others.
//! - A target is drained while it is up: it gives what it has. When it is lost meanwhile, it is out as any other, with what nobody else has.
//!   One that was drained comes back while no target is missing: what it gave away may be on that one alone, and newer.
//! - Who has no room is passed over, and only for those that are about to go: where a target stands in already, it stays.
//! - Who is drained from now on is passed over itself, so that it keeps nothing: somebody nearer to the other members has its place where nobody else can.
//! - Nobody becomes a member while a target that is to stay is not whole: a group may have had all it knows there.

use super::Service;
use super::orders::Targets;
use crate::records::{OutDf, PassedDf, PoolDf, StageDf, TargetDf};
use crate::store::{Loaded, Tx};
use async_recursion::async_recursion as boxed;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{PoolId, Rank, Result, TargetId};
use wire::control::TargetAim;
use wire::event::{EventCode, Happened};
use wire::map::{DownReason, TargetState};

/// Since when targets are down, by the clock of whoever looks.
pub(super) type Missing = RefCell<BTreeMap<(PoolId, TargetId), Duration>>;

/// The last look of [`Service::stand_in`]: when it was, and for whom others stand in by themselves.
pub(super) type LastLook = Cell<(Duration, Option<Duration>)>;

impl Service {
    /// Has others stand in for targets that are down for at least `after`, or excluded, or to be drained, and sends back those that
    /// are up again. Without `after` only for those that an administrator named. `now` is a clock that only ever grows.
    ///
    /// Errors: those of the catalog.
    #[boxed(?Send)]
    pub async fn stand_in(
        &self,
        now: Duration,
        after: Option<Duration>,
        orders: &dyn Targets,
    ) -> Result<()> {
        self.last_look.set((now, after));
        for pool in self.store.pools().await? {
            if pool.record.stage != StageDf::Ready {
                continue;
            }
            self.note_missing(&pool.record, now);
            if let Some(plan) = planned(&pool.record, &self.long_missing(&pool.record)) {
                self.plan_moves(pool, plan, orders).await?;
            }
        }
        Ok(())
    }

    /// True when the next look has something move that does not yet, or nothing more of what does.
    pub(super) fn is_move_due(&self, pool: &PoolDf) -> bool {
        pool.stage == StageDf::Ready && planned(pool, &self.long_missing(pool)).is_some()
    }

    /// Notes which targets of a pool are missing, and since when.
    fn note_missing(&self, pool: &PoolDf, now: Duration) {
        let mut missing = self.missing.borrow_mut();
        for target in &pool.targets {
            let key = (pool.id, target.id);
            match target.reason {
                None | Some(DownReason::Behind) => {
                    missing.remove(&key);
                }
                Some(DownReason::Excluded) => {}
                Some(DownReason::Silent | DownReason::Stopped | DownReason::Lost) => {
                    missing.entry(key).or_insert(now);
                }
            }
        }
    }

    /// Targets of a pool that were missing for so long at the last look that others are to stand in for them.
    fn long_missing(&self, pool: &PoolDf) -> BTreeSet<TargetId> {
        let ((now, after), missing) = (self.last_look.get(), self.missing.borrow());
        // By a look of whoever held the service before, perhaps.
        let was_long = |target: &TargetDf| {
            pool.next.iter().flatten().any(|out| out.target == target.id && !out.is_drained)
        };
        let is_long = |target: &&TargetDf| match target.reason {
            None | Some(DownReason::Behind) => false,
            Some(DownReason::Excluded) => after.is_some() || target.aim == TargetAim::Exclude,
            Some(DownReason::Silent | DownReason::Stopped | DownReason::Lost) => {
                let since = missing.get(&(pool.id, target.id));
                was_long(target)
                    || since
                        .zip(after)
                        .is_some_and(|(since, after)| now.saturating_sub(*since) >= after)
            }
        };
        pool.targets.iter().filter(is_long).map(|target| target.id).collect()
    }

    /// Has a pool become what is planned; another try comes when it was changed meanwhile.
    async fn plan_moves(
        &self,
        mut pool: Loaded<PoolDf>,
        plan: Plan,
        orders: &dyn Targets,
    ) -> Result<()> {
        let before = pool.record.clone();
        pool.record.map_version += 1;
        let Plan { outs: next, passed, balanced } = plan;
        let ids = |outs: &[OutDf]| outs.iter().map(|out| out.target.0).collect::<Vec<_>>();
        let (now, then) = (ids(&pool.record.outs), ids(&next));
        let is_same = pool.record.outs == next
            && pool.record.balanced == balanced
            && pool.record.passed == passed;
        pool.record.next_passed = if is_same { Vec::new() } else { passed };
        pool.record.next = if is_same { None } else { Some(next) };
        pool.record.next_balanced = balanced;
        let tx = Tx::new().replace(&pool);
        if self.commit_map(tx, (&before, &pool.record), orders).await? {
            let name = pool.record.name();
            let (code, what) = match is_same {
                false => (
                    EventCode::RebuildBegun,
                    format!("data of pool '{name}' move: {}", move_text(&then, &now)),
                ),
                true => (
                    EventCode::RebuildEnded,
                    format!("moves of data of pool '{name}' were given up"),
                ),
            };
            self.tell(Happened::new(code, what).of_pool(pool.record.id));
            if pool.record.balanced != balanced {
                tracing::warn!(
                    pool = %pool.record.name(),
                    "targets that were added come to take over their share of what is there"
                );
            }
            tracing::warn!(
                pool = %pool.record.name(),
                "others stand in for targets {then:?} from when they have what those had; up to now for {now:?}"
            );
            self.push_maps(std::slice::from_ref(&pool.record), None, orders).await?;
            self.look_at_room(&pool.record, orders).await;
        }
        Ok(())
    }
}

/// What a pool is to become.
struct Plan {
    outs: Vec<OutDf>,
    /// Who stands in for nobody of those, as far as it is known already.
    passed: Vec<PassedDf>,
    /// See [`wire::map::PoolMap::balanced`].
    balanced: u8,
}

/// What a pool is to become, if that is news; as it is: nothing is to move. `long`: targets that are missing for long.
fn planned(pool: &PoolDf, long: &BTreeSet<TargetId>) -> Option<Plan> {
    let (known, known_balanced) = match &pool.next {
        Some(next) => (next, pool.next_balanced),
        None => (&pool.outs, pool.balanced),
    };
    let before = |id: TargetId| pool.outs.iter().find(|out| out.target == id).copied();
    if pool.is_rebuild_stopped {
        let (outs, passed) = (pool.outs.clone(), pool.passed.clone());
        return pool.next.is_some().then_some(Plan { outs, passed, balanced: pool.balanced });
    }
    // What is alone on a target that is missing may have come from one that was drained: that one must not serve what it had.
    let is_missing = |target: &TargetDf| {
        target.state != TargetState::Up && !before(target.id).is_some_and(|out| out.is_drained)
    };
    let misses_any = pool.targets.iter().any(is_missing);
    // Whether a target is to be out, and whether as one that was drained.
    let goes = |target: &TargetDf| {
        let (is_up, drains) = (target.state == TargetState::Up, target.aim == TargetAim::Drain);
        match before(target.id) {
            Some(out) if out.is_drained => {
                let stays = drains || !is_up || target.aim == TargetAim::Exclude || misses_any;
                stays.then_some(true)
            }
            // One that catches up is not back yet.
            Some(_) if !is_up => Some(false),
            None if !drains || !is_up => long.contains(&target.id).then_some(false),
            Some(_) | None => drains.then_some(true),
        }
    };
    let gone: Vec<(&TargetDf, bool)> =
        pool.targets.iter().filter_map(|target| Some((target, goes(target)?))).collect();
    let is_left = |target: &&TargetDf| !gone.iter().any(|(gone, _)| gone.id == target.id);
    let left: BTreeSet<Rank> = pool.targets.iter().filter(is_left).map(|t| t.rank).collect();
    // On one engine nobody can stand in for another one's targets: two copies are to be apart.
    let may_go = |target: &TargetDf, is_drained: bool| {
        before(target.id).is_some() || left.len() > 1 || (is_drained && !left.is_empty())
    };
    let (round, epoch) = (pool.map_version + 1, pool.placements.last().map_or(0, |set| set.epoch));
    // Some had no room to stand in: they may have some now, or targets were added.
    let is_retried = |out: &OutDf| {
        let lacked_room =
            |passed: &PassedDf| passed.round == out.round && !is_own(passed, &pool.outs);
        pool.passed.iter().any(lacked_room)
            && !out.is_drained
            && (pool.tries_spares_again || out.epoch < epoch)
    };
    let out = |target: TargetId, is_drained: bool| match before(target) {
        None => OutDf { target, round, epoch, is_drained },
        // In its round as before: who was replaced first stays so.
        Some(before) if before.is_drained != is_drained || is_retried(&before) => {
            OutDf { epoch, is_drained, ..before }
        }
        Some(before) => before,
    };
    let going = gone.iter().filter(|(target, is_drained)| may_go(target, *is_drained));
    let mut next: Vec<OutDf> =
        going.map(|(target, is_drained)| out(target.id, *is_drained)).collect();
    next.sort_unstable_by_key(|out| (out.round, out.target));
    let kinds = |outs: &[OutDf]| {
        outs.iter().map(|out| (out.target, out.is_drained)).collect::<BTreeSet<_>>()
    };
    // What is alone on a target that is missing cannot be given by it.
    let balanced = match next.iter().all(|out| out.is_drained) {
        true => pool.balance_wanted.max(pool.balanced),
        false => pool.balanced,
    };
    let retried: BTreeSet<u32> =
        pool.outs.iter().filter(|out| is_retried(out)).map(|out| out.round).collect();
    let begins = |out: &&OutDf| !pool.outs.contains(out);
    let is_passed = |round: u32| pool.next_passed.iter().any(|passed| passed.round == round);
    let was_extended = match &pool.next {
        None => !retried.is_empty(),
        // Those who are about to go, and may find too few who have room, or nobody.
        Some(known) => {
            known.iter().filter(begins).any(|out| out.epoch < epoch && is_passed(out.round))
        }
    };
    let passed = pool.passed.iter().filter(|passed| {
        !retried.contains(&passed.round) && next.iter().any(|out| out.round == passed.round)
    });
    let drained = next.iter().filter(begins).filter(|out| out.is_drained);
    let drained = drained.map(|out| PassedDf { round: out.round, target: out.target });
    let mut passed: Vec<PassedDf> = passed.copied().chain(drained).collect();
    passed.sort_unstable();
    passed.dedup();
    let is_news = kinds(&next) != kinds(known) || balanced != known_balanced || was_extended;
    is_news.then_some(Plan { outs: next, passed, balanced })
}

/// True when a target is passed over because it is drained itself.
fn is_own(passed: &PassedDf, outs: &[OutDf]) -> bool {
    outs.iter().any(|out| out.round == passed.round && out.target == passed.target)
}

/// What is to become of data that move, for the targets that others are to stand in for then, and do now.
fn move_text(then: &[u32], now: &[u32]) -> String {
    let named = |ids: &[u32]| {
        let list: Vec<String> = ids.iter().map(u32::to_string).collect();
        format!("{} {}", if ids.len() == 1 { "target" } else { "targets" }, list.join(", "))
    };
    match (then, now) {
        ([], []) => "targets come to their share of what is there".into(),
        ([], now) => format!("{} get back what others stood in for", named(now)),
        (then, []) => format!("others are to stand in for {}", named(then)),
        (then, now) => {
            format!("others are to stand in for {}, up to now for {}", named(then), named(now))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The event of a way back named "targets []".
    #[test]
    fn moves_are_told_in_words_for_any_number_of_targets() {
        assert_eq!(move_text(&[3], &[]), "others are to stand in for target 3");
        assert_eq!(move_text(&[], &[4, 5]), "targets 4, 5 get back what others stood in for");
        assert_eq!(
            move_text(&[3], &[3, 4]),
            "others are to stand in for target 3, up to now for targets 3, 4"
        );
        assert_eq!(move_text(&[], &[]), "targets come to their share of what is there");
    }
}
