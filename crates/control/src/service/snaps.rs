//! Snapshots of containers, and rolling back to one.
//!
//! A snapshot is an epoch. To make one that all targets agree on:
//!
//! 1. the intent goes to the catalog, and every target is told to *hold*: to keep everything that
//!    is removed from now on. Each answers the greatest epoch it has given out;
//! 2. the snapshot's epoch is the greatest of these and of now. Every target is told it, and gives
//!    out greater epochs only from then on. Still all of them hold;
//! 3. the snapshot goes to the catalog: it is made. The holds end, and what no snapshot sees goes.
//!
//! So everything acknowledged before the request began is in the snapshot, nothing that began after
//! its answer is, and a transaction, which has one epoch on all targets, is in it whole or not at
//! all. If the service is cut off before 3, [`Service::resume`] ends the holds.
//!
//! A rollback first freezes the container on every target (no change begins, and none is half-way
//! through its commit, or on its way to a member), then has each make its present what the snapshot shows, then opens it
//! again. The intent is in the catalog until that is done; a resume goes on with it.
//!
//! Targets that are down are not waited for where others have all that the container's redundancy promises: nobody was told anything by these since,
//! and what they lack they are sent when they are back. They hear of snapshots before anybody counts on them to follow ([`super::stores`]).

use super::handles::Owner;
use super::orders::{Failures, failure, is_unheard, order_each};
use super::pool::target_ids;
use super::stores::is_away;
use super::{Service, Targets};
use crate::keys;
use crate::records::{
    ContDf, PoolDf, RECORD_VERSION, RollbackDf, RollbackStageDf, SnapDf, SnapsDf,
};
use crate::store::{Attempts, Loaded, Tx};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use types::map::HashMap;
use types::{Code, ContId, Epoch, Error, PoolId, Result, TargetId, limits};
use wire::control::{ControlReply, Name, SnapInfo, SnapName};
use wire::obj::AdminOp;
use wire::versions::{ContStage, ContVersions};

/// How long who does not hear of a snapshot, or of a rollback, is told again: one that has gone is called down within some seconds.
const SNAPSHOT_TIME_MAX: Duration = Duration::from_secs(8);
const ROLLBACK_TIME_MAX: Duration = Duration::from_secs(30);
const AGAIN_PAUSE: Duration = Duration::from_millis(100);

/// Most snapshots of a container.
const SNAPSHOTS_MAX: usize = 4096;

/// Containers whose versions are being changed, and the rollback that it is.
type Taken = HashMap<(PoolId, ContId), Option<Rc<Rolling>>>;

/// One change of a container's versions at a time.
#[derive(Clone, Default)]
pub(super) struct Turns(Rc<RefCell<Taken>>);

/// A rollback.
pub(super) struct Rolling {
    to: Epoch,
    is_done: Cell<bool>,
}

impl Rolling {
    fn to(to: Epoch) -> Rc<Rolling> {
        Rc::new(Rolling { to, is_done: Cell::new(false) })
    }
}

/// The turn, until dropped.
pub(super) struct Turn {
    turns: Turns,
    of: (PoolId, ContId),
}

impl Turns {
    fn take(&self, of: (PoolId, ContId), name: &str, rolling: Option<Rc<Rolling>>) -> Result<Turn> {
        if self.is_taken(of) {
            return Err(Error::new(
                Code::Busy,
                format!(
                    "another snapshot or rollback of container '{name}' is under way; try again \
                     when it is done"
                ),
            ));
        }
        self.0.borrow_mut().insert(of, rolling);
        Ok(Turn { turns: self.clone(), of })
    }

    fn is_taken(&self, of: (PoolId, ContId)) -> bool {
        self.0.borrow().contains_key(&of)
    }

    /// The rollback to `to`, if that is under way.
    fn rolling_to(&self, of: (PoolId, ContId), to: Epoch) -> Option<Rc<Rolling>> {
        let all = self.0.borrow();
        all.get(&of)?.as_ref().filter(|rolling| rolling.to == to).cloned()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.0.borrow_mut().remove(&self.of);
    }
}

impl SnapsDf {
    fn empty() -> SnapsDf {
        SnapsDf {
            version: RECORD_VERSION,
            revision: 0,
            snapshots: Vec::new(),
            making: false,
            rollback: None,
        }
    }

    /// The order for targets.
    pub(super) fn versions(&self) -> ContVersions {
        ContVersions {
            revision: self.revision,
            snapshots: self.snapshots.iter().map(|snap| snap.epoch).collect(),
            held: self.making,
            stage: match &self.rollback {
                None => ContStage::Open,
                Some(RollbackDf { stage: RollbackStageDf::Freezing, .. }) => ContStage::Frozen,
                Some(RollbackDf { stage: RollbackStageDf::Rolling, to, epoch }) => match *epoch {
                    None => ContStage::RollingBack(*to),
                    Some(epoch) => ContStage::RollingTo { to: *to, epoch },
                },
            },
        }
    }

    fn find(&self, which: &SnapName, cont: &str) -> Result<usize> {
        let found = self.snapshots.iter().position(|snap| match which {
            SnapName::Epoch(epoch) => snap.epoch == *epoch,
            SnapName::Name(name) => snap.name == *name,
        });
        found.ok_or_else(|| {
            Error::new(
                Code::NonExist,
                format!(
                    "container '{cont}' has no snapshot '{which}'; list them to see which it has"
                ),
            )
        })
    }
}

impl SnapDf {
    fn info(&self) -> SnapInfo {
        SnapInfo { epoch: self.epoch, name: self.name.clone(), created_ns: self.created_ns }
    }
}

impl Service {
    /// The snapshots of a container as stored; an empty record when it never had one.
    pub(super) async fn snaps(&self, pool: PoolId, cont: ContId) -> Result<SnapsDf> {
        let found = self.store.snaps(pool, cont).await?;
        Ok(found.map_or_else(SnapsDf::empty, |found| found.record))
    }

    /// Changes the record of a container's snapshots, and its revision.
    async fn change_snaps(
        &self,
        pool: PoolId,
        cont: ContId,
        change: impl Fn(&mut SnapsDf) -> Result<()>,
    ) -> Result<SnapsDf> {
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            let owner = self.store.cont(pool, cont).await?.ok_or_else(|| {
                Error::new(Code::NonExist, format!("container {cont} was destroyed meanwhile"))
            })?;
            let key = keys::snaps(pool, cont);
            let found: Option<Loaded<SnapsDf>> = self.store.snaps(pool, cont).await?;
            let mut tx = Tx::new().expect(&owner);
            tx = match &found {
                Some(found) => tx.expect(found),
                None => tx.expect_absent(&key),
            };
            let mut record = found.map_or_else(SnapsDf::empty, |found| found.record);
            change(&mut record)?;
            // Two, for an order in between: see `snap_create`.
            record.revision += 2;
            if self.store.commit(tx.put(&key, &record)).await? {
                return Ok(record);
            }
        }
    }

    /// Targets of a pool that are not passed over: others do not have all of a container that they may have.
    async fn to_tell(&self, pool: &PoolDf, cont: &ContDf) -> Result<Vec<TargetId>> {
        let Some(now) = self.store.pool(pool.id).await? else { return Ok(target_ids(pool)) };
        let map = self.map(&now.record).await?;
        let copies = 1 + usize::from(cont.props.rd_fac);
        let is_lost = |copies| placement::losses(copies, &map, |_| true).is_unavailable;
        let can_go_on = copies > 1 && !(2..=copies).any(is_lost);
        let targets = now.record.targets.iter();
        Ok(targets
            .filter(|target| {
                let is_spare = can_go_on || placement::has_given_all(target.id, &map);
                !is_spare || !is_away(target) || self.returning.has(pool.id, target.id)
            })
            .map(|target| target.id)
            .collect())
    }

    /// Tells all targets of a pool but those that are away; the greatest epoch of their answers, and whether some are still
    /// at it.
    async fn tell_versions(
        &self,
        pool: &PoolDf,
        cont: &ContDf,
        versions: &ContVersions,
        orders: &dyn Targets,
    ) -> (Epoch, bool, Failures) {
        // Where it is not known who is away nobody is passed over: what is begun is gone through with.
        let targets = self.to_tell(pool, cont).await.unwrap_or_else(|_| target_ids(pool));
        let cont = cont.id;
        let order = || AdminOp::SetVersions { pool: pool.id, cont, versions: versions.clone() };
        let (replies, failures) = order_each(orders, targets, order).await;
        let epoch = replies.iter().map(|(_, reply)| reply.epoch()).max().unwrap_or(Epoch::ZERO);
        let under_way = replies.iter().any(|(_, reply)| reply.under_way);
        (epoch, under_way, failures)
    }

    /// The same; who does not hear is told again for a while, as it may be called down, and passed over, a moment later.
    async fn tell_until_heard(
        &self,
        pool: &PoolDf,
        cont: &ContDf,
        versions: &ContVersions,
        orders: &dyn Targets,
        time_max: Duration,
    ) -> (Epoch, bool, Failures) {
        let end = orders.now() + time_max;
        loop {
            let told = self.tell_versions(pool, cont, versions, orders).await;
            let is_unheard =
                !told.2.is_empty() && told.2.iter().all(|(_, error)| is_unheard(error));
            if !is_unheard || orders.now() >= end {
                return told;
            }
            orders.until(end.min(orders.now() + AGAIN_PAUSE)).await;
        }
    }

    async fn find_both(&self, pool: &Name, cont: &Name) -> Result<(PoolDf, ContDf)> {
        let pool = self.ready_pool(pool).await?.record;
        let cont = self.ready_cont(&pool, cont).await?.record;
        Ok((pool, cont))
    }

    pub(super) async fn snap_create(
        &self,
        pool: &Name,
        cont: &Name,
        name: &str,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        if !name.is_empty() {
            limits::check_label(name)?;
            if name.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(Error::inval(format!(
                    "'{name}' would be taken for an epoch; a snapshot's name has a letter in it"
                )));
            }
        }
        let (pool, cont) = self.find_both(pool, cont).await?;
        let (pool_id, id, label) = (pool.id, cont.id, cont.name());
        let _turn = self.turns.take((pool_id, id), &label, None)?;
        let held = self
            .change_snaps(pool_id, id, |snaps| {
                require_idle(snaps, &label)?;
                if snaps.snapshots.len() >= SNAPSHOTS_MAX {
                    let text =
                        format!("container '{label}' has {SNAPSHOTS_MAX} snapshots; destroy one");
                    return Err(Error::new(Code::NoSpace, text));
                }
                if !name.is_empty() && snaps.snapshots.iter().any(|snap| snap.name == name) {
                    return Err(Error::new(
                        Code::Exist,
                        format!("container '{label}' has a snapshot '{name}' already"),
                    ));
                }
                snaps.making = true;
                Ok(())
            })
            .await?;
        let mut versions = held.versions();
        let (epoch, _, mut failures) =
            self.tell_until_heard(&pool, &cont, &versions, orders, SNAPSHOT_TIME_MAX).await;
        let created_ns = (self.wall_ns)();
        // No two snapshots are of one epoch, even if nothing has happened and no time has passed.
        let after_last = versions.snapshots.last().map_or(0, |last| last.0.saturating_add(1));
        let epoch = epoch.max(Epoch(created_ns)).max(Epoch(after_last));
        if failures.is_empty() {
            versions.revision += 1;
            versions.snapshots.push(epoch);
            (_, _, failures) =
                self.tell_until_heard(&pool, &cont, &versions, orders, SNAPSHOT_TIME_MAX).await;
        }
        let snap = SnapDf { epoch, name: name.to_string(), created_ns };
        let is_made = failures.is_empty();
        let done = self
            .change_snaps(pool_id, id, |snaps| {
                snaps.making = false;
                if is_made {
                    snaps.snapshots.push(snap.clone());
                }
                Ok(())
            })
            .await?;
        let (_, _, late) = self.tell_versions(&pool, &cont, &done.versions(), orders).await;
        self.note_failed(&pool, &late);
        for (target, error) in &late {
            tracing::warn!(pool = %pool_id, cont = %id, %target, %error,
                "a target goes on keeping all that is removed until it is told of the snapshot");
        }
        if !is_made {
            return Err(failure(
                &format!("no snapshot was made of container '{label}'"),
                &failures,
                "mend that, then try again",
            ));
        }
        self.note_times(pool_id, &cont, false, true).await;
        tracing::info!(pool = %pool_id, cont = %id, %epoch, name, "snapshot made");
        Ok(ControlReply::Snap(snap.info()))
    }

    pub(super) async fn snap_list(&self, pool: &Name, cont: &Name) -> Result<ControlReply> {
        let (pool, cont) = self.find_both(pool, cont).await?;
        let snaps = self.snaps(pool.id, cont.id).await?;
        Ok(ControlReply::Snaps {
            snaps: snaps.snapshots.iter().map(SnapDf::info).collect(),
            rolling_back: snaps.rollback.map(|rollback| rollback.to),
        })
    }

    pub(super) async fn snap_destroy(
        &self,
        pool: &Name,
        cont: &Name,
        which: &SnapName,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        let (pool, cont) = self.find_both(pool, cont).await?;
        let (pool_id, id, label) = (pool.id, cont.id, cont.name());
        let _turn = self.turns.take((pool_id, id), &label, None)?;
        let left = self
            .change_snaps(pool_id, id, |snaps| {
                require_idle(snaps, &label)?;
                let at = snaps.find(which, &label)?;
                snaps.snapshots.remove(at);
                Ok(())
            })
            .await?;
        let (_, _, late) = self.tell_versions(&pool, &cont, &left.versions(), orders).await;
        self.note_failed(&pool, &late);
        for (target, error) in &late {
            tracing::warn!(pool = %pool_id, cont = %id, %target, %error,
                "a target keeps a destroyed snapshot until it is told of it");
        }
        self.note_times(pool_id, &cont, false, true).await;
        tracing::info!(pool = %pool_id, cont = %id, snapshot = %which, "snapshot destroyed");
        Ok(ControlReply::Done)
    }

    pub(super) async fn roll_back(
        &self,
        pool: &Name,
        cont: &Name,
        which: &SnapName,
        force: bool,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        let (pool, cont) = self.find_both(pool, cont).await?;
        let (pool_id, id, label) = (pool.id, cont.id, cont.name());
        // Who has it open need not close it for a snapshot that there is not.
        let snaps = self.snaps(pool_id, id).await?;
        let rolling = Rolling::to(snaps.snapshots[snaps.find(which, &label)?].epoch);
        let _turn = loop {
            // The same again is asked for by who got no answer: a new holder of the service goes on with it by itself.
            let Some(other) = self.turns.rolling_to((pool_id, id), rolling.to) else {
                break self.turns.take((pool_id, id), &label, Some(rolling.clone()))?;
            };
            let is_at_it = || self.turns.rolling_to((pool_id, id), other.to);
            while is_at_it().is_some_and(|now| Rc::ptr_eq(&now, &other)) {
                orders.pause().await;
            }
            if other.is_done.get() {
                return Ok(ControlReply::Done);
            }
        };
        if !force {
            self.until_alone(Owner::Cont(pool_id, id), orders).await;
        }
        let _closing =
            self.handles.begin_close(Owner::Cont(pool_id, id), force, &label, "rolled back")?;
        self.change_snaps(pool_id, id, |snaps| {
            let to = snaps.snapshots[snaps.find(which, &label)?].epoch;
            match &snaps.rollback {
                // One that was cut off is gone on with.
                Some(rollback) if rollback.to == to => {}
                Some(rollback) => {
                    let text = format!(
                        "container '{label}' is being rolled back to {}; roll it back to that \
                         again to finish",
                        rollback.to
                    );
                    return Err(Error::new(Code::Busy, text));
                }
                None => {
                    let stage = RollbackStageDf::Freezing;
                    snaps.rollback = Some(RollbackDf { to, stage, epoch: None });
                }
            }
            Ok(())
        })
        .await?;
        self.finish_rollback(&pool, &cont, orders).await?;
        rolling.is_done.set(true);
        self.note_times(pool_id, &cont, false, true).await;
        Ok(ControlReply::Done)
    }

    /// Goes through the stages of a rollback that the catalog knows of.
    async fn finish_rollback(
        &self,
        pool: &PoolDf,
        cont: &ContDf,
        orders: &dyn Targets,
    ) -> Result<()> {
        let (id, label) = (cont.id, cont.name());
        let mut snaps = self.snaps(pool.id, id).await?;
        while let Some(rollback) = snaps.rollback.clone() {
            let versions = snaps.versions();
            let newest = loop {
                let (newest, under_way, failures) =
                    self.tell_until_heard(pool, cont, &versions, orders, ROLLBACK_TIME_MAX).await;
                if !failures.is_empty() {
                    return Err(failure(
                        &format!("container '{label}' is not rolled back everywhere yet"),
                        &failures,
                        "it goes on when they answer; or roll it back again",
                    ));
                }
                if !under_way {
                    break newest;
                }
                orders.pause().await;
            };
            let epoch = Some(Epoch(newest.0.saturating_add(1)));
            snaps = self
                .change_snaps(pool.id, id, |snaps| {
                    snaps.rollback = match &snaps.rollback {
                        Some(RollbackDf { stage: RollbackStageDf::Freezing, to, .. }) => {
                            Some(RollbackDf { to: *to, stage: RollbackStageDf::Rolling, epoch })
                        }
                        _ => None,
                    };
                    Ok(())
                })
                .await?;
            if snaps.rollback.is_none() {
                tracing::info!(pool = %pool.id, cont = %id, to = %rollback.to, "rolled back");
            }
        }
        let (_, _, failures) = self.tell_versions(pool, cont, &snaps.versions(), orders).await;
        for (target, error) in &failures {
            tracing::warn!(pool = %pool.id, cont = %id, %target, %error,
                "a target refuses changes until it is told that the rollback is over");
        }
        Ok(())
    }

    /// After a restart: the order for one target about a container. A creation that was cut off
    /// is undone first. `None`: nothing.
    pub(super) async fn resumed_versions(
        &self,
        pool: PoolId,
        cont: ContId,
    ) -> Result<Option<ContVersions>> {
        let Some(found) = self.store.snaps(pool, cont).await? else { return Ok(None) };
        if !found.record.making || self.turns.is_taken((pool, cont)) {
            return Ok(Some(found.record.versions()));
        }
        let undone = self.change_snaps(pool, cont, |snaps| {
            snaps.making = false;
            Ok(())
        });
        Ok(Some(undone.await?.versions()))
    }

    /// After a restart: goes on with rollbacks that were cut off.
    pub(super) async fn resume_rollbacks(&self, pool: &PoolDf, orders: &dyn Targets) -> Result<()> {
        for cont in self.conts_left(pool.id).await? {
            let (id, label) = (cont.record.id, cont.record.name());
            let Some(rollback) = self.snaps(pool.id, id).await?.rollback else { continue };
            let rolling = Rolling::to(rollback.to);
            // A request that is at it goes on by itself.
            let turn = self.turns.take((pool.id, id), &label, Some(rolling.clone()));
            let Ok(_turn) = turn else { continue };
            match self.finish_rollback(pool, &cont.record, orders).await {
                Ok(()) => rolling.is_done.set(true),
                Err(error) => {
                    tracing::warn!(pool = %pool.id, cont = %id, %error, "a rollback still waits");
                }
            }
        }
        Ok(())
    }
}

/// `Busy` while the container is being rolled back.
fn require_idle(snaps: &SnapsDf, label: &str) -> Result<()> {
    match &snaps.rollback {
        None => Ok(()),
        Some(rollback) => Err(Error::new(
            Code::Busy,
            format!(
                "container '{label}' is being rolled back to {}; wait, or roll it back to that again",
                rollback.to
            ),
        )),
    }
}
