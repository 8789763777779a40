//! What targets hold of a pool, and whether it is what they held before.
//!
//! The part of a pool on a target has an *incarnation*, drawn when it is made. The catalog knows it, and
//! so do the maps. A target whose store was wiped, or exchanged for another one, holds none or a
//! different one: it is down in the map and serves nothing of the pool, for an empty store served as if
//! it were whole would show files without data and directories without names. It is up again when the
//! right store is back, or when somebody gives up what was lost ([`Service::pool_reset_target`]).
//! A target that is behind, with damaged pages of its index and nobody whole to tell what was in them, is passed by in the same way: others
//! that have all else from it lead, though they left earlier, and it gets what they have.
//!
//! Parts of `memory` pools are excepted: that they are empty after a restart is what was promised.

use super::Service;
use super::lost_ends::note_lost_end;
use super::orders::{Failures, Targets, failure, order_each};
use super::pool::shard_order;
use crate::records::{EngineDf, LEFT_EMPTY, PoolDf, StageDf, TargetDf};
use crate::store::{Attempts, Tx};
use futures_util::future::join_all;
use std::cell::RefCell;
use std::rc::Rc;
use types::{Code, Durability, Error, PoolId, Result, TargetId, limits};
use wire::control::{ControlReply, MemberState, Name, TargetAim};
use wire::event::{EventCode, Happened};
use wire::map::{DownReason, LEFT_UNSURE, TargetState};
use wire::obj::{AdminOp, AdminReply};
use wire::versions::ALL_IS_HERE;

/// Targets that are being put back into a map. Nobody passes over them: what they were told of may be out of date before the map says
/// that they are back.
#[derive(Clone, Default)]
pub(super) struct Returning(Rc<RefCell<Vec<(PoolId, TargetId)>>>);

/// Marks targets of a pool as coming back until dropped.
struct Returns {
    all: Returning,
    pool: PoolId,
    targets: Vec<TargetId>,
}

impl Returning {
    fn begin(&self, pool: PoolId, targets: &[TargetId]) -> Returns {
        let targets = targets.to_vec();
        self.0.borrow_mut().extend(targets.iter().map(|target| (pool, *target)));
        Returns { all: self.clone(), pool, targets }
    }

    pub(super) fn has(&self, pool: PoolId, target: TargetId) -> bool {
        self.0.borrow().contains(&(pool, target))
    }
}

impl Drop for Returns {
    fn drop(&mut self) {
        let mut all = self.all.0.borrow_mut();
        for target in &self.targets {
            // Another request may be at the same target.
            if let Some(at) = all.iter().position(|each| *each == (self.pool, *target)) {
                all.swap_remove(at);
            }
        }
    }
}

/// What a target that answered says of its part.
struct Found {
    target: TargetId,
    /// Which making of the part it was asked for.
    asked: u64,
    /// Which one it holds, 0 for none.
    incarnation: u64,
    /// Whether it was opened again.
    is_unsure: bool,
    /// See [`AdminReply::kept_map_version`].
    kept_map_version: u32,
}

impl Service {
    /// Has targets serve what they hold of a pool, and notes which have lost it and which have it back. Answers
    /// with the pool as it is then, those that hold what they should, and those that gave no answer;
    /// with `None` when the pool is gone meanwhile.
    pub(super) async fn take_stock(
        &self,
        pool: &PoolDf,
        targets: &[TargetId],
        orders: &dyn Targets,
    ) -> Result<Option<(PoolDf, Vec<TargetId>, Failures)>> {
        let asked = pool.targets.iter().filter(|target| targets.contains(&target.id));
        let asked: Vec<&TargetDf> = asked.collect();
        let sent = asked.iter().map(|target| orders.order(target.id, serve_order(pool, target)));
        let (mut found, mut failures): (Vec<Found>, Failures) = (Vec::new(), Failures::new());
        for (target, answer) in asked.iter().zip(join_all(sent).await) {
            match answer {
                Ok(reply) => {
                    let AdminReply { incarnation, is_unsure, .. } = reply;
                    let kept_map_version = reply.kept_map_version();
                    let (target, asked) = (target.id, target.incarnation);
                    found.push(Found { target, asked, incarnation, is_unsure, kept_map_version });
                }
                Err(error) => failures.push((target.id, error)),
            }
        }
        // From the first order on that they follow they keep what the others do.
        let back = found.iter().filter(|found| {
            found.incarnation == found.asked
                && asked.iter().any(|target| target.id == found.target && is_away(target))
        });
        let back: Vec<TargetId> = back.map(|found| found.target).collect();
        // Until the map is there: a snapshot that is begun after they were told is told to them, too.
        let _returns = self.returning.begin(pool.id, &back);
        if !back.is_empty() {
            let untold = self.tell_of_snapshots(pool.id, &back, orders).await?;
            found.retain(|found| untold.iter().all(|(target, _)| *target != found.target));
            failures.extend(untold);
        }
        let Some(now) = self.note_stock(pool.id, &found, orders).await? else { return Ok(None) };
        let is_whole = |id: &TargetId| {
            now.targets.iter().any(|target| target.id == *id && target.info().holds_its_part())
        };
        let whole = found.iter().map(|found| found.target).filter(is_whole).collect();
        Ok(Some((now, whole, failures)))
    }

    /// Has targets that come back know which snapshots there are of what they hold; those that could not be told.
    async fn tell_of_snapshots(
        &self,
        pool: PoolId,
        targets: &[TargetId],
        orders: &dyn Targets,
    ) -> Result<Failures> {
        let (mut failures, mut left) = (Failures::new(), targets.to_vec());
        for cont in self.store.conts(pool).await? {
            let cont = cont.record.id;
            let Some(versions) = self.resumed_versions(pool, cont).await? else { continue };
            let order = || AdminOp::SetVersions { pool, cont, versions: versions.clone() };
            let (_, mut failed) = order_each(orders, left.iter().copied(), order).await;
            // Of what was made while it was away it has nothing.
            failed.retain(|(_, error)| error.code != Code::NonExist);
            left.retain(|target| failed.iter().all(|(id, _)| id != target));
            failures.extend(failed);
        }
        Ok(failures)
    }

    /// Writes down what was found, with a new map where anything changed.
    async fn note_stock(
        &self,
        id: PoolId,
        found: &[Found],
        orders: &dyn Targets,
    ) -> Result<Option<PoolDf>> {
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            let Some(mut pool) = self.store.pool(id).await? else { return Ok(None) };
            if pool.record.stage != StageDf::Ready {
                return Ok(None);
            }
            let before = pool.record.clone();
            let (durability, version) = (before.durability, before.map_version + 1);
            // Read after the pool, which is written with the state of an engine: see `members`.
            let engines = self.store.engines().await?;
            let (mut has_changed, mut lost) = (false, Vec::new());
            let is_alone = pool.record.targets.len() == 1;
            for Found { target, asked, incarnation, is_unsure, kept_map_version } in found {
                let held = pool.record.targets.iter_mut().find(|held| held.id == *target);
                let Some(held) = held else { continue };
                // It was given up and made anew after it was asked; who did that has it served.
                if durability != Durability::Memory && held.incarnation != *asked {
                    continue;
                }
                let was_whole = held.info().holds_its_part();
                let was_behind = held.reason == Some(DownReason::Behind);
                let out = why_out(held, &engines);
                has_changed |= note_one(held, *incarnation, durability, out, version);
                if *is_unsure && !is_alone {
                    let has_all = durability == Durability::Wal || *kept_map_version == ALL_IS_HERE;
                    has_changed |= note_opened_again(held, has_all, version);
                }
                if was_whole && !held.info().holds_its_part() {
                    lost.push(held.id);
                }
                let is_behind = held.reason == Some(DownReason::Behind);
                if is_behind && !was_behind && durability == Durability::Relaxed {
                    note_lost_end(&mut pool.record.targets, *target, *kept_map_version);
                }
            }
            if !has_changed {
                return Ok(Some(pool.record));
            }
            pool.record.map_version = version;
            let tx = Tx::new().replace(&pool);
            if self.commit_map(tx, (&before, &pool.record), orders).await? {
                for target in lost {
                    tracing::error!(
                        pool = %pool.record.name(), %target,
                        "a target does not hold its part of the pool any more: its store was wiped or \
                         exchanged. Bring the store back and restart the engine, or give up what was \
                         lost with 'azekura pool reset-target'"
                    );
                }
                self.push_maps(std::slice::from_ref(&pool.record), None, orders).await?;
                return Ok(Some(pool.record));
            }
        }
    }

    /// Makes the part of a target that is down anew, empty; of one that is behind, what was in damaged pages of its index becomes what
    /// others have of it.
    pub(super) async fn pool_reset_target(
        &self,
        name: &Name,
        id: TargetId,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        let pool = self.ready_pool(name).await?.record;
        let label = pool.name();
        let Some(target) = pool.targets.iter().find(|target| target.id == id) else {
            return Err(Error::new(
                Code::NonExist,
                format!("pool '{label}' is not on target {id}; query the pool to see its targets"),
            ));
        };
        if target.state != TargetState::Down {
            return Err(Error::new(
                Code::Busy,
                format!("target {id} of pool '{label}' is not down: nothing there is lost"),
            ));
        }
        if target.reason == Some(DownReason::Behind) {
            return self.pass_by(&pool, id, orders).await;
        }
        let serves_what_is_there = || serve_order(&pool, target);
        if target.info().holds_its_part() && target.reason == Some(DownReason::Excluded) {
            // Its store may have been exchanged since it is out: then it is made anew like others, and is out still.
            let (found, _) = order_each(orders, [id], serves_what_is_there).await;
            if found.iter().all(|(_, reply)| reply.incarnation == target.incarnation) {
                return self.give_up(&pool, id, orders).await;
            }
        } else if target.info().holds_its_part() {
            let rank = target.rank;
            return Err(Error::new(
                Code::Busy,
                format!(
                    "target {id} of pool '{label}' is down because its engine {rank} gives no answer: nothing there is known \
                     to be lost. If that engine never comes back, exclude it first: 'azekura system exclude {rank}'"
                ),
            ));
        }
        // It may be back, and nobody has looked yet.
        let (found, _) = order_each(orders, [id], serves_what_is_there).await;
        if found.iter().any(|(_, reply)| reply.incarnation == target.incarnation) {
            return Err(Error::new(
                Code::Busy,
                format!(
                    "target {id} of pool '{label}' holds again what was lost; restart its engine to \
                     have it served"
                ),
            ));
        }
        // What is there is not what was lost, and what was made here before this was cut off holds nothing.
        let mut made = Vec::new();
        for op in [AdminOp::DestroyShard { pool: pool.id }, shard_order(&pool)] {
            let (replies, failures) = order_each(orders, [id], || op.clone()).await;
            if !failures.is_empty() {
                let doing = format!("target {id} of pool '{label}' was not reset");
                return Err(failure(&doing, &failures, "try again when it answers"));
            }
            made = replies;
        }
        let incarnation = made.first().map_or(0, |(_, reply)| reply.incarnation);
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            let mut now = self.ready_pool(&Name::Uuid(pool.uuid)).await?;
            // Read after the pool, which is written with the state of an engine: see `members`.
            let engines = self.store.engines().await?;
            let before = now.record.clone();
            now.record.map_version += 1;
            let version = now.record.map_version;
            if let Some(target) = now.record.targets.iter_mut().find(|target| target.id == id) {
                target.incarnation = incarnation;
                // Of what has copies it gets back what others have.
                let out = why_out(target, &engines).filter(|why| *why == DownReason::Excluded);
                let reason = out.unwrap_or(DownReason::Behind);
                target.turn(TargetState::Down, Some(reason), version);
                target.left = LEFT_EMPTY;
            }
            let tx = Tx::new().replace(&now);
            if self.commit_map(tx, (&before, &now.record), orders).await? {
                tracing::warn!(pool = %label, target = %id, "what a target held was given up");
                self.push_maps(std::slice::from_ref(&now.record), None, orders).await?;
                let failures = self.resume_or_note(&now.record, &[id], orders).await?;
                if !failures.is_empty() {
                    let doing =
                        format!("target {id} of pool '{label}' is reset, but not served yet");
                    return Err(failure(&doing, &failures, "it is as soon as its engine answers"));
                }
                return Ok(ControlReply::Done);
            }
        }
    }
}

impl Service {
    /// Nobody waits any more for what an excluded target may have alone: its part of the pool counts as lost. If its engine is back one day, what it holds is
    /// not what is meant, and is not served.
    async fn give_up(
        &self,
        pool: &PoolDf,
        id: TargetId,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        let (label, map_version) = (pool.name(), pool.map_version);
        let change = async |record: &mut PoolDf| {
            record.map_version += 1;
            let version = record.map_version;
            if let Some(held) = record.targets.iter_mut().find(|held| held.id == id) {
                held.turn(TargetState::Down, Some(DownReason::Lost), version);
                held.left = LEFT_EMPTY;
                // No making of it that there is has this one.
                held.incarnation = !held.incarnation;
            }
            Ok(Some(format!("what excluded target {id} holds is given up")))
        };
        let done = self.change_under(pool.id, map_version, orders, change).await?;
        let what = format!(
            "what excluded target {id} of pool '{label}' holds was given up: others go on with what they have"
        );
        tracing::warn!("{what}");
        let happened = Happened::new(EventCode::DamageStays, what);
        self.tell(happened.of_target(id).of_pool(pool.id));
        Ok(done)
    }

    /// Has others lead before a target that left later, but has damaged pages of its index, where these have all that it can tell.
    ///
    /// Errors: `Busy` when one of them has not, or of some groups nobody else is there.
    async fn pass_by(
        &self,
        pool: &PoolDf,
        id: TargetId,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        let (label, map_version) = (pool.name(), pool.map_version);
        let refused = |text: String| Err(Error::new(Code::Busy, text));
        let has_all = || AdminOp::HasAllOf { pool: pool.id, target: id, map_version };
        let (_, failures) = order_each(orders, [id], has_all).await;
        if let Some((_, error)) = failures.first() {
            return refused(format!(
                "target {id} of pool '{label}' is behind, and nothing there is known to be lost: {error}"
            ));
        }
        let is_behind = |held: &TargetDf| held.id != id && held.reason == Some(DownReason::Behind);
        let others: Vec<&TargetDf> = pool.targets.iter().filter(|held| is_behind(held)).collect();
        if let Some(empty) = others.iter().find(|held| held.left <= LEFT_EMPTY) {
            return refused(format!(
                "target {} was made anew itself: it has nothing of what was in the damaged pages of target {id}",
                empty.id
            ));
        }
        let asked = others.iter().map(|held| held.id);
        let (_, failures) = order_each(orders, asked, has_all).await;
        if !failures.is_empty() {
            let doing = format!("not all others have what target {id} can tell");
            let error = failure(&doing, &failures, "try again when they have");
            return refused(error.to_string());
        }
        let change = async |record: &mut PoolDf| {
            let mut without = self.map(record).await?;
            for target in without.targets.iter_mut().filter(|target| target.id == id) {
                (target.state, target.reason) = (TargetState::Down, Some(DownReason::Lost));
            }
            let is_lost = |copies| placement::losses(copies, &without, |_| true).is_unavailable;
            if (2..=limits::COPIES_MAX).any(is_lost) {
                let text = format!(
                    "of some objects in pool '{label}' nobody but target {id} has anything and is there: start the \
                     engines that are away, and wait until their targets have what it can tell"
                );
                return Err(Error::new(Code::Busy, text));
            }
            record.map_version += 1;
            let version = record.map_version;
            if let Some(held) = record.targets.iter_mut().find(|held| held.id == id) {
                (held.left, held.since) = (LEFT_EMPTY, version);
            }
            Ok(Some(format!("target {id} is passed by: others lead")))
        };
        match self.change_under(pool.id, map_version, orders, change).await {
            Err(error) if error.code == Code::Stale => {
                refused(format!("{error}; try again when its targets have seen that"))
            }
            Ok(done) => {
                let what = format!(
                    "what was in damaged pages of the index of target {id} of pool '{label}' was given up: of that it gets \
                     what others have, which is as old as when these left"
                );
                tracing::warn!("{what}");
                let happened = Happened::new(EventCode::DamageStays, what);
                self.tell(happened.of_target(id).of_pool(pool.id));
                Ok(done)
            }
            Err(error) => Err(error),
        }
    }
}

/// Why a target is down that holds what it should, if it or its engine is out.
fn why_out(target: &TargetDf, engines: &[EngineDf]) -> Option<DownReason> {
    if target.aim == TargetAim::Exclude {
        return Some(DownReason::Excluded);
    }
    let engine = engines.iter().find(|engine| engine.rank == target.rank)?;
    match engine.member.state {
        MemberState::Excluded => Some(DownReason::Excluded),
        MemberState::Stopped => Some(DownReason::Stopped),
        MemberState::Up | MemberState::Down | MemberState::Joining => None,
    }
}

/// True for targets that are down and do not do what the others do, as who is behind does: commands pass over them.
pub(super) fn is_away(target: &TargetDf) -> bool {
    target.state == TargetState::Down && target.reason != Some(DownReason::Behind)
}

/// The order by which a target serves what it should hold, and tells what it holds.
pub(super) fn serve_order(pool: &PoolDf, target: &TargetDf) -> AdminOp {
    match (pool.durability, target.incarnation) {
        (Durability::Memory, _) | (_, 0) => shard_order(pool),
        (_, incarnation) => AdminOp::ServeShard { pool: pool.id, incarnation },
    }
}

/// Notes that a target was opened again, with the map of this version; true when that is news. Where acknowledged updates
/// are on stable storage, or it was ended in good order, it lacks nothing that anybody was told of.
fn note_opened_again(target: &mut TargetDf, has_all: bool, version: u32) -> bool {
    let is_behind = target.reason == Some(DownReason::Behind);
    if target.state != TargetState::Up && !is_behind {
        return false;
    }
    if !is_behind {
        target.turn(TargetState::Down, Some(DownReason::Behind), version);
        if has_all {
            target.left = LEFT_UNSURE;
        }
    }
    // Who was behind may have told a moment ago that it has caught up.
    target.since = version;
    true
}

/// Notes what a target holds, with the map of this version; true when that is news.
fn note_one(
    target: &mut TargetDf,
    incarnation: u64,
    durability: Durability,
    out: Option<DownReason>,
    version: u32,
) -> bool {
    let before = target.clone();
    let is_memory = durability == Durability::Memory;
    let is_emptied = is_memory && target.incarnation != 0 && target.incarnation != incarnation;
    if is_memory || target.incarnation == 0 {
        target.incarnation = incarnation;
    }
    let is_whole = target.incarnation == incarnation;
    if matches!(target.state, TargetState::Up | TargetState::Down) {
        let (state, reason) = match (is_whole, out) {
            (false, _) => (TargetState::Down, Some(DownReason::Lost)),
            (true, Some(DownReason::Stopped)) if target.reason.is_none() => (TargetState::Up, None),
            (true, Some(reason)) => (TargetState::Down, Some(reason)),
            // What it has missed is not known here.
            (true, None) if is_emptied => (TargetState::Down, Some(DownReason::Behind)),
            (true, None) => match target.reason {
                Some(_) => (TargetState::Down, Some(DownReason::Behind)),
                None => (TargetState::Up, None),
            },
        };
        target.turn(state, reason, version);
        if is_emptied {
            target.left = LEFT_EMPTY;
        }
    }
    *target != before
}
