//! Bringing targets and catalog together after a restart, of the service or of an engine.
//!
//! Targets of `memory` pools come back empty, a target may have missed an order while it was
//! away, and a creation or destruction may have been cut off anywhere. All orders are
//! idempotent, so everything that should be is ordered again, and everything half-done is
//! undone (creations) or done to the end (destructions).

use super::cont::cont_order;
use super::handles::Owner;
use super::orders::{Failures, Targets, failure, is_unheard};
use super::{Service, check_stage};
use crate::records::{ContDf, PoolDf, StageDf, TargetDf};
use crate::store::{Attempts, Tx};
use async_recursion::async_recursion as boxed;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use types::{ContId, Error, PoolId, Rank, Result, TargetId};
use wire::control::ControlReply;
use wire::obj::AdminOp;

impl Service {
    /// For the start of the service: finishes what was cut off and orders all reachable targets
    /// to hold what they should.
    ///
    /// Answers which targets failed, and how; they are resumed when their engine joins
    /// again. Fails only when the catalog does.
    #[boxed(?Send)]
    pub async fn resume(&self, orders: &dyn Targets) -> Result<Vec<(TargetId, Error)>> {
        self.resume_where(orders, |rank| orders.reachable(rank)).await
    }

    /// For an engine that has joined, *after* it got its answer and can take orders: as
    /// [`Service::resume`], for its targets.
    #[boxed(?Send)]
    pub async fn resume_engine(
        &self,
        rank: Rank,
        orders: &dyn Targets,
    ) -> Result<Vec<(TargetId, Error)>> {
        let mut failures = self.resume_where(orders, |other| other == rank).await?;
        let engines = self.store.engines().await?;
        let Some(own) = engines.into_iter().find(|engine| engine.rank == rank) else {
            return Ok(failures);
        };
        // Where an order has failed it may be told more; a part that is damaged stays so.
        let is_unheard = |failures: &[(TargetId, Error)], target: TargetId| {
            failures.iter().any(|(of, error)| *of == target && is_unheard(error))
        };
        let has_answered = own.targets.iter().any(|target| !is_unheard(&failures, *target));
        if own.member.state.is_to_be_told() && has_answered && orders.reachable(rank) {
            self.engine_is_back(rank, orders).await?;
            // What is made from now on is told to it as to others. What was made up to now, and was not ready a
            // moment ago, is told now.
            failures = self.resume_where(orders, |other| other == rank).await?;
        }
        for target in own.targets {
            if !is_unheard(&failures, target)
                && let Err(error) = orders.order(target, AdminOp::Introduced).await
            {
                failures.push((target, error));
            }
        }
        Ok(failures)
    }

    /// As [`Service::resume_pool`] for a command that does not try again: whoever looks at engines has those told that did not hear it
    /// ([`Service::take_untold`]).
    pub(super) async fn resume_or_note(
        &self,
        pool: &PoolDf,
        targets: &[TargetId],
        orders: &dyn Targets,
    ) -> Result<Vec<(TargetId, Error)>> {
        let failures = self.resume_pool(pool, targets, orders).await?;
        self.note_failed(pool, &failures);
        Ok(failures)
    }

    /// Has those told soon that did not hear an order.
    pub(super) fn note_failed(&self, pool: &PoolDf, failures: &[(TargetId, Error)]) {
        let has_failed = |target: &&TargetDf| failures.iter().any(|(id, _)| *id == target.id);
        let ranks = pool.targets.iter().filter(has_failed).map(|target| target.rank);
        self.untold.borrow_mut().extend(ranks);
    }

    /// What was destroyed is: whoever is away is told later. Where a target is there and cannot do it, somebody has to know.
    pub(super) fn left_behind(
        &self,
        pool: &PoolDf,
        failures: Failures,
        what: &str,
    ) -> Result<ControlReply> {
        self.note_failed(pool, &failures);
        if failures.iter().all(|(_, error)| is_unheard(error)) {
            return Ok(ControlReply::Done);
        }
        let doing = format!("{what} is destroyed, but not everybody could remove what they have");
        Err(failure(&doing, &failures, "it is tried again by itself"))
    }

    /// Takes the engines that are to be told what their targets hold, as [`Service::resume_engine`] does: a command could not.
    pub fn take_untold(&self) -> BTreeSet<Rank> {
        self.untold.take()
    }

    /// Notes one of them again.
    pub fn note_untold(&self, rank: Rank) {
        self.untold.borrow_mut().insert(rank);
    }

    async fn resume_where(
        &self,
        orders: &dyn Targets,
        is_meant: impl Fn(Rank) -> bool,
    ) -> Result<Vec<(TargetId, Error)>> {
        let mut failures = Vec::new();
        for pool in self.store.pools().await? {
            let (id, stage) = (pool.record.id, pool.record.stage);
            if self.is_under_way(Owner::Pool(id)) {
                continue;
            }
            let meant_of = |mut failures: Failures| {
                failures.retain(|(of, _)| {
                    let targets = &pool.record.targets;
                    targets.iter().any(|target| target.id == *of && is_meant(target.rank))
                });
                failures
            };
            if stage == StageDf::Ready {
                let meant: Vec<TargetId> = pool
                    .record
                    .targets
                    .iter()
                    .filter(|target| is_meant(target.rank))
                    .map(|target| target.id)
                    .collect();
                failures.extend(meant_of(self.finish_conts(id, orders).await?));
                failures.extend(self.resume_pool(&pool.record, &meant, orders).await?);
                self.resume_rollbacks(&pool.record, orders).await?;
                continue;
            }
            if stage == StageDf::Creating {
                self.mark_pool(id).await?;
            }
            failures.extend(meant_of(self.finish_pool_destroy(id, orders).await?));
        }
        Ok(failures)
    }

    /// Undoes cut-off creations and finishes cut-off destructions of containers.
    async fn finish_conts(&self, pool: PoolId, orders: &dyn Targets) -> Result<Failures> {
        let mut failures = Failures::new();
        for cont in self.store.conts(pool).await? {
            let id = cont.record.id;
            if cont.record.stage == StageDf::Ready || self.is_under_way(Owner::Cont(pool, id)) {
                continue;
            }
            if cont.record.stage == StageDf::Creating {
                self.mark_cont(pool, id).await?;
            }
            failures.extend(self.finish_cont_destroy(pool, id, orders).await?);
        }
        Ok(failures)
    }

    pub(super) async fn resume_pool(
        &self,
        pool: &PoolDf,
        targets: &[TargetId],
        orders: &dyn Targets,
    ) -> Result<Vec<(TargetId, Error)>> {
        let id = pool.id;
        let Some((pool, whole, mut failures)) = self.take_stock(pool, targets, orders).await?
        else {
            return Ok(Vec::new());
        };
        let pool = &pool;
        let conts = self.store.conts(id).await?;
        let ready: Vec<&ContDf> = conts
            .iter()
            .map(|cont| &cont.record)
            .filter(|cont| cont.stage == StageDf::Ready)
            .collect();
        let map = self.map(pool).await?;
        self.note_told(&map);
        let admission = self.admission(id).await?;
        let mut versions = Vec::new();
        for cont in &ready {
            versions.push((*cont, self.resumed_versions(id, cont.id).await?));
        }
        let one = |target: TargetId| {
            let (versions, map, admission) = (&versions, map.clone(), admission.clone());
            async move {
                orders.order(target, AdminOp::SetMap(map)).await?;
                if let Some(admission) = admission {
                    orders.order(target, AdminOp::SetAdmission { pool: id, admission }).await?;
                }
                if pool.scrub.revision > 0 {
                    let scrub = pool.scrub.settings();
                    orders.order(target, AdminOp::SetScrub { pool: id, scrub }).await?;
                }
                if pool.cache.revision > 0 {
                    let cache = pool.cache.settings();
                    orders.order(target, AdminOp::SetCache { pool: id, cache }).await?;
                }
                for (cont, versions) in versions {
                    orders.order(target, cont_order(pool, cont)).await?;
                    if let Some(versions) = versions.clone() {
                        let order = AdminOp::SetVersions { pool: id, cont: cont.id, versions };
                        orders.order(target, order).await?;
                    }
                }
                Ok(())
            }
        };
        let answers = join_all(whole.iter().map(|&target| one(target))).await;
        // What was destroyed meanwhile may have been made again by the orders above.
        if self.is_gone(id).await? {
            for &target in targets {
                self.unmake(target, AdminOp::DestroyShard { pool: id }, orders).await;
            }
            return Ok(Vec::new());
        }
        for cont in &ready {
            let now = self.store.cont(id, cont.id).await?;
            if now.is_none_or(|now| now.record.stage != StageDf::Ready) {
                for &target in targets {
                    let order = AdminOp::DestroyCont { pool: id, cont: cont.id };
                    self.unmake(target, order, orders).await;
                }
            }
        }
        let failed = whole.iter().zip(answers);
        failures.extend(failed.filter_map(|(&target, answer)| Some((target, answer.err()?))));
        Ok(failures)
    }

    async fn unmake(&self, target: TargetId, order: AdminOp, orders: &dyn Targets) {
        if let Err(error) = orders.order(target, order).await {
            tracing::warn!(%target, %error, "could not remove what was destroyed during a resume");
        }
    }

    async fn is_gone(&self, pool: PoolId) -> Result<bool> {
        let now = self.store.pool(pool).await?;
        Ok(now.is_none_or(|now| check_stage(now.record.stage, "pool", "").is_err()))
    }

    /// Turns a cut-off creation into a destruction; one that has ended well meanwhile stays.
    async fn mark_pool(&self, id: PoolId) -> Result<()> {
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            let Some(mut pool) = self.store.pool(id).await? else { return Ok(()) };
            if pool.record.stage != StageDf::Creating {
                return Ok(());
            }
            pool.record.stage = StageDf::Destroying;
            if self.store.commit(Tx::new().replace(&pool)).await? {
                return Ok(());
            }
        }
    }

    /// As `mark_pool`.
    async fn mark_cont(&self, pool: PoolId, id: ContId) -> Result<()> {
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            let Some(mut cont) = self.store.cont(pool, id).await? else { return Ok(()) };
            if cont.record.stage != StageDf::Creating {
                return Ok(());
            }
            cont.record.stage = StageDf::Destroying;
            if self.store.commit(Tx::new().replace(&cont)).await? {
                return Ok(());
            }
        }
    }
}
