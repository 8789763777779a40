//! What targets tell of themselves under a map: that they miss nothing any more, that they miss something, that they have joined.
//!
//! Invariant: what a target tells counts only under the pool's newest map. Under another one its leaders may be others.

use super::Service;
use super::orders::Targets;
use crate::records::{OutDf, PassedDf, PoolDf, TargetDf};
use crate::store::{Attempts, Tx};
use std::collections::BTreeSet;
use types::{Code, Error, PoolId, Rank, Result, TargetId};
use wire::control::ControlReply;
use wire::event::{EventCode, Happened};
use wire::map::{DownReason, LEFT_UNSURE, TargetState};

impl Service {
    /// A target that was behind under a map lacks nothing any more that leaders had. It is up from the next one on.
    ///
    /// Errors: `Stale` when that is not the newest map: another target may have come to lead since. `Busy` when one that
    /// left later is away: it may have what nobody else has.
    pub(super) async fn target_caught_up(
        &self,
        id: PoolId,
        target: TargetId,
        map_version: u32,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        let change = async |pool: &mut PoolDf| {
            let map = self.map(pool).await?;
            let left = behind(pool, target)?.left;
            let is_missed = |other: &&TargetDf| {
                matches!(
                    other.reason,
                    Some(DownReason::Silent | DownReason::Stopped | DownReason::Excluded)
                ) && other.left > left
            };
            // Where each group has somebody who is whole, nobody has what those have not.
            let is_lost = |copies| placement::losses(copies, &map, |_| true).is_unavailable;
            let may_be_missed = || (2..=types::limits::COPIES_MAX).any(is_lost);
            let missed = pool.targets.iter().find(is_missed);
            if let Some(other) = missed.filter(|_| may_be_missed()) {
                let text = format!(
                    "target {} left pool {id} after target {target} did, and is away: it may have what nobody \
                     else has",
                    other.id
                );
                return Err(Error::new(Code::Busy, text));
            }
            pool.map_version += 1;
            behind(pool, target)?.turn(TargetState::Up, None, map_version + 1);
            Ok(Some(format!("target {target} has caught up")))
        };
        self.change_under(id, map_version, orders, change).await
    }

    /// A target that is behind is about to miss something that others are told of.
    ///
    /// Errors: `Stale` when its state is another one under the newest map.
    pub(super) async fn target_lacks(
        &self,
        id: PoolId,
        target: TargetId,
        map_version: u32,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        let change = async |pool: &mut PoolDf| {
            let behind = behind(pool, target)?;
            if behind.left != LEFT_UNSURE {
                return Ok(None);
            }
            behind.left = map_version + 1;
            pool.map_version += 1;
            Ok(Some(format!("target {target}, which is behind, may lack what others are told of")))
        };
        self.change_under(id, map_version, orders, change).await
    }

    /// A target has lost part of what it held, or cannot tell what a lost leader did last. It may lack what was acknowledged, so it is
    /// behind, and others lead.
    ///
    /// Errors: `Stale` when it is not in the pool under the newest map.
    pub(super) async fn target_damaged(
        &self,
        id: PoolId,
        target: TargetId,
        map_version: u32,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        let change = async |pool: &mut PoolDf| {
            let Some(held) = pool.targets.iter_mut().find(|held| held.id == target) else {
                return Err(Error::new(
                    Code::Stale,
                    format!("target {target} is not in pool {id}"),
                ));
            };
            let is_behind = held.reason == Some(DownReason::Behind);
            if held.state != TargetState::Up && !is_behind {
                return Ok(None);
            }
            let version = map_version + 1;
            held.turn(TargetState::Down, Some(DownReason::Behind), version);
            if held.left == LEFT_UNSURE {
                held.left = version;
            }
            // Who was behind may have told a moment ago that it has caught up.
            held.since = version;
            pool.map_version += 1;
            Ok(Some(format!(
                "target {target} has damage that others are to put right, and is behind"
            )))
        };
        self.change_under(id, map_version, orders, change).await
    }

    /// The device of a target takes no more writes. Where others have what it holds, it is away until its engine is started again; where not, it stays.
    ///
    /// Errors: `Stale` when it is not in the pool under the newest map, `Busy` when of some objects nobody else is there.
    pub(super) async fn target_failed(
        &self,
        id: PoolId,
        target: TargetId,
        map_version: u32,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        let change = async |pool: &mut PoolDf| {
            let mut without = self.map(pool).await?;
            let copies = self.copies_wanted(id).await?;
            let Some(held) = pool.targets.iter_mut().find(|held| held.id == target) else {
                let text = format!("target {target} is not in pool {id}");
                return Err(Error::new(Code::Stale, text));
            };
            if held.state != TargetState::Up && held.reason != Some(DownReason::Behind) {
                return Ok(None);
            }
            let version = map_version + 1;
            held.turn(TargetState::Down, Some(DownReason::Silent), version);
            if let Some(info) = without.targets.iter_mut().find(|info| info.id == target) {
                *info = held.info();
            }
            let is_lost = |copies| placement::losses(copies, &without, |_| true).is_unavailable;
            if copies < 2 || (2..=copies).any(is_lost) {
                let text = format!(
                    "the device of target {target} takes no more writes, and of some objects in pool '{}' nobody else is there",
                    pool.name()
                );
                return Err(Error::new(Code::Busy, text));
            }
            pool.map_version += 1;
            Ok(Some(format!(
                "the device of target {target} takes no more writes: it is away until its engine is started again"
            )))
        };
        self.change_under(id, map_version, orders, change).await
    }

    /// A target has all that the groups have that it is to join.
    ///
    /// Errors: `Stale` when nothing moves under the newest map.
    pub(super) async fn target_joined(
        &self,
        id: PoolId,
        target: TargetId,
        map_version: u32,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        let change = async |pool: &mut PoolDf| {
            let joins = pool.targets.iter_mut().find(|held| held.id == target);
            let Some(joins) = joins.filter(|_| pool.next.is_some()) else {
                let text = format!("nothing moves in pool {id} under map {map_version}");
                return Err(Error::new(Code::Stale, text));
            };
            joins.joined = map_version;
            if !have_all_joined(pool) {
                return Ok(Some(format!("target {target} has what it is to have")));
            }
            pool.outs = pool.next.take().unwrap_or_default();
            pool.balanced = pool.next_balanced;
            pool.passed = std::mem::take(&mut pool.next_passed);
            pool.tries_spares_again = false;
            pool.map_version += 1;
            let outs: Vec<u32> = pool.outs.iter().map(|out| out.target.0).collect();
            Ok(Some(format!("others stand in for targets {outs:?} now")))
        };
        self.change_under(id, map_version, orders, change).await
    }

    /// A target has no room for what it is to have: the next ones are tried for those that it is about to stand in for. When it is
    /// its own place, or it comes to its share, there is nobody else, and the move waits.
    ///
    /// Errors: `Stale` when its state is another one under the newest map.
    pub(super) async fn target_full(
        &self,
        id: PoolId,
        target: TargetId,
        map_version: u32,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        let change = async |pool: &mut PoolDf| {
            let rounds = self.rounds_to_pass(pool, target).await?;
            let name = pool.name();
            let (outcome, what) = match rounds.is_empty() {
                true => (None, "what it is to have has to wait for room"),
                false => (Some(()), "the next ones are tried"),
            };
            let what = format!(
                "target {target} has no room for more of what moves in pool '{name}': {what}"
            );
            self.tell(
                Happened::new(EventCode::SpareFull, what.clone()).of_target(target).of_pool(id),
            );
            pool.next_passed.extend(rounds.into_iter().map(|round| PassedDf { round, target }));
            pool.next_passed.sort_unstable();
            Ok(outcome.map(|()| {
                pool.map_version += 1;
                what
            }))
        };
        self.change_under(id, map_version, orders, change).await
    }

    /// In which rounds a target is not to stand in any more.
    async fn rounds_to_pass(&self, pool: &PoolDf, target: TargetId) -> Result<Vec<u32>> {
        let Some(next) = &pool.next else { return Ok(Vec::new()) };
        // Where it stands in already it has what it needs.
        let begins = |out: &&OutDf| {
            let passed = PassedDf { round: out.round, target };
            !pool.outs.contains(out) || (pool.tries_spares_again && pool.passed.contains(&passed))
        };
        let mut rounds: Vec<u32> = next.iter().filter(begins).map(|out| out.round).collect();
        rounds.dedup();
        let is_passed =
            |round: u32, of: TargetId| pool.next_passed.contains(&PassedDf { round, target: of });
        rounds.retain(|round| !is_passed(*round, target));
        let gives = |round: u32| next.iter().any(|out| out.round == round && out.is_drained);
        if !rounds.iter().any(|round| gives(*round)) {
            return Ok(rounds);
        }
        // What is drained is taken away: somebody must get it.
        let wanted = self.copies_wanted(pool.id).await?;
        rounds.retain(|round| {
            let is_roomy = |held: &&TargetDf| {
                held.id != target
                    && held.state == TargetState::Up
                    && !next.iter().any(|out| out.target == held.id)
                    && !is_passed(*round, held.id)
            };
            let ranks: BTreeSet<Rank> =
                pool.targets.iter().filter(is_roomy).map(|held| held.rank).collect();
            !gives(*round) || ranks.len() >= wanted
        });
        Ok(rounds)
    }

    /// Changes a pool's record while its newest map is the named one, and tells targets of a newer map that comes of it.
    /// `change` says what is new, if anything is; it is called again when others changed the record meanwhile.
    ///
    /// Errors: `NonExist`, `Stale`, those of `change` and of the catalog.
    pub(super) async fn change_under(
        &self,
        id: PoolId,
        map_version: u32,
        orders: &dyn Targets,
        change: impl AsyncFn(&mut PoolDf) -> Result<Option<String>>,
    ) -> Result<ControlReply> {
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            let Some(mut pool) = self.store.pool(id).await? else {
                return Err(Error::new(Code::NonExist, format!("there is no pool number {id}")));
            };
            if pool.record.map_version != map_version {
                let newest = pool.record.map_version;
                let text = format!("pool {id} has map {newest}, not {map_version} any more");
                return Err(Error::new(Code::Stale, text));
            }
            let before = pool.record.clone();
            let moved = before.next.is_some();
            let Some(news) = change(&mut pool.record).await? else {
                return Ok(ControlReply::Done);
            };
            let tx = Tx::new().replace(&pool);
            if self.commit_map(tx, (&before, &pool.record), orders).await? {
                tracing::info!(pool = %pool.record.name(), "{news}");
                if moved && pool.record.next.is_none() {
                    let what = format!("data of pool '{}' have moved: {news}", pool.record.name());
                    self.tell(Happened::new(EventCode::RebuildEnded, what).of_pool(id));
                }
                if pool.record.map_version != map_version {
                    self.push_maps(std::slice::from_ref(&pool.record), None, orders).await?;
                }
                return Ok(ControlReply::Done);
            }
        }
    }
}

/// A target of a pool that is behind.
///
/// Errors: `Stale` when it is not.
fn behind(pool: &mut PoolDf, target: TargetId) -> Result<&mut TargetDf> {
    let (id, version) = (pool.id, pool.map_version);
    let mut targets = pool.targets.iter_mut();
    targets.find(|held| held.id == target && held.reason == Some(DownReason::Behind)).ok_or_else(
        || {
            let text = format!("target {target} of pool {id} is not behind in map {version}");
            Error::new(Code::Stale, text)
        },
    )
}

/// True when nobody is missing that is to stay, and all have what they are to have.
fn have_all_joined(pool: &PoolDf) -> bool {
    let Some(next) = &pool.next else { return false };
    let is_up = |id: TargetId| {
        pool.targets.iter().any(|target| target.id == id && target.state == TargetState::Up)
    };
    // What is to be given away by a target is with that one alone, and it says when there is somebody for all of it.
    let has_given_all =
        |target: &TargetDf| target.state == TargetState::Up && target.joined == pool.map_version;
    let gives = |id: TargetId| {
        next.iter().any(|out| out.target == id && out.is_drained && !pool.outs.contains(out))
    };
    if !pool.targets.iter().filter(|target| gives(target.id)).all(has_given_all) {
        return false;
    }
    // Whoever gives a share of what is alone on it; but one that was drained has given all.
    let has_given = |id: TargetId| pool.outs.iter().any(|out| out.target == id && out.is_drained);
    if pool.next_balanced != pool.balanced
        && !pool.targets.iter().all(|target| is_up(target.id) || has_given(target.id))
    {
        return false;
    }
    let stays = |target: &&TargetDf| !next.iter().any(|out| out.target == target.id);
    pool.targets
        .iter()
        .filter(stays)
        .all(|target| target.state == TargetState::Up && target.joined == pool.map_version)
}
