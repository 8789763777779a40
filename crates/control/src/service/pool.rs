//! Pools: making, finding, opening, removing.

use super::handles::{Opener, Owner};
use super::orders::{Failures, failure, order_all, order_each, order_present};
use super::weights::weigh;
use super::{Service, SessionId, Targets, check_stage, engine_of};
use crate::keys;
use crate::records::{
    BalanceDf, CacheDf, EngineDf, PlacementDf, PoolDf, RECORD_VERSION, ScrubDf, StageDf, TargetDf,
};
use crate::store::{Attempts, Loaded, Tx};
use std::collections::BTreeSet;
use types::{Code, Durability, Error, PlacementRule, PoolId, Result, TargetId, limits, size};
use wire::control::{ControlReply, Evict, MemberState, Name, OpenMode, PoolInfo, TargetAim};
use wire::obj::{AdminOp, AdminReply};

/// Shares of targets are multiples of this, bytes: what disks and pages are made of.
const SHARE_UNIT: u64 = 4096;

/// A pool as asked for.
pub(super) struct Wanted {
    pub label: String,
    pub bytes: u64,
    pub scm_percent: u8,
    pub durability: Durability,
    pub placement: PlacementRule,
    pub targets: Vec<TargetId>,
}

/// What a pool is made of.
struct Parts {
    targets: Vec<TargetDf>,
    weights: Vec<(TargetId, u32)>,
    /// Index and log of each target, bytes.
    scm: u64,
    /// Data of each target, bytes.
    nvme: u64,
}

impl Service {
    pub(super) async fn pool_create(
        &self,
        wanted: Wanted,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        limits::check_label(&wanted.label)?;
        self.check_pool_label_free(&wanted.label).await?;
        let engines = self.store.engines().await?;
        let targets = choose_targets(&wanted, &engines, orders)?;
        let (scm, nvme) = split(&wanted, targets.len() as u64)?;
        let ids: Vec<TargetId> = targets.iter().map(|target| target.id).collect();
        let weighed = weigh(wanted.placement, wanted.durability, &ids, None, orders).await;
        let weights = weighed.map_err(|error| error.context(format!("pool '{}'", wanted.label)))?;
        let parts = Parts { targets, weights, scm, nvme };

        let (mut pool, _under_way) = self.claim_pool(&wanted, parts).await?;
        let name = pool.record.name();
        let id = pool.record.id;
        let all: Vec<TargetId> = target_ids(&pool.record);
        let (made, mut failures) =
            order_each(orders, all.iter().copied(), || shard_order(&pool.record)).await;
        note_incarnations(&mut pool.record, &made);
        let map = self.map(&pool.record).await?;
        if failures.is_empty() {
            failures =
                order_all(orders, all.iter().copied(), || AdminOp::SetMap(map.clone())).await;
        }
        if !failures.is_empty() {
            self.undo_pool(&mut pool, orders).await?;
            return Err(failure(
                &format!("pool '{name}' was not created"),
                &failures,
                "mend that or leave those targets out, then try again",
            ));
        }
        self.note_told(&map);
        self.pool_becomes_ready(id, &made).await?;
        tracing::info!(pool = %id, label = %name, "pool created");
        let ready = self.ready_pool(&Name::Uuid(pool.record.uuid)).await?.record;
        if ready.map_version != map.version {
            // An engine got a new address meanwhile; that map found no shards to go to.
            self.push_maps(std::slice::from_ref(&ready), None, orders).await?;
        }
        Ok(ControlReply::Pool(self.pool_info(&ready).await?))
    }

    /// Records the intent to make a pool and takes its label.
    async fn claim_pool(
        &self,
        wanted: &Wanted,
        parts: Parts,
    ) -> Result<(Loaded<PoolDf>, super::UnderWay)> {
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            let label_key = keys::pool_label(&wanted.label);
            self.check_pool_label_free(&wanted.label).await?;
            let mut system = self.system().await?;
            let id = PoolId(system.record.pool_next);
            system.record.pool_next = id.0.checked_add(1).ok_or_else(|| {
                Error::new(Code::NoSpace, "the system has no pool numbers left; make a new system")
            })?;
            let pool = PoolDf {
                scrub: ScrubDf::default(),
                cache: CacheDf::default(),
                version: RECORD_VERSION,
                id,
                uuid: self.random_uuid(),
                label: wanted.label.clone(),
                stage: StageDf::Creating,
                durability: wanted.durability,
                placement: wanted.placement,
                shard_scm_bytes: parts.scm,
                shard_nvme_bytes: parts.nvme,
                cont_next: 1,
                map_version: 1,
                targets: parts.targets.clone(),
                placements: vec![PlacementDf { epoch: 0, weights: parts.weights.clone() }],
                outs: Vec::new(),
                is_rebuild_stopped: false,
                next: None,
                balanced: 0,
                next_balanced: 0,
                passed: Vec::new(),
                next_passed: Vec::new(),
                tries_spares_again: false,
                balance_wanted: 0,
                balance: BalanceDf::default(),
            };
            let under_way = self.begin(Owner::Pool(id));
            let (key, uuid_key) = (keys::pool(id), keys::pool_uuid(pool.uuid));
            let tx = Tx::new()
                .replace(&system)
                .expect_absent(&label_key)
                .expect_absent(&uuid_key)
                .expect_absent(&key)
                .put_number(&label_key, id.0.into())
                .put_number(&uuid_key, id.0.into())
                .put(&key, &pool);
            if self.store.commit(tx).await?
                && let Some(loaded) = self.store.pool(id).await?
            {
                return Ok((loaded, under_way));
            }
        }
    }

    /// `Exist` when a pool has the label.
    pub(super) async fn check_pool_label_free(&self, label: &str) -> Result<()> {
        if self.store.number(&keys::pool_label(label)).await?.is_some() {
            return Err(Error::new(
                Code::Exist,
                format!("there is a pool '{label}' already; choose another label"),
            ));
        }
        Ok(())
    }

    async fn pool_becomes_ready(&self, id: PoolId, made: &[(TargetId, AdminReply)]) -> Result<()> {
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            // Read again: an engine's new address may have changed the map's version meanwhile.
            let Some(mut pool) = self.store.pool(id).await? else {
                return Err(Error::new(
                    Code::NonExist,
                    format!("pool {id} was removed while it was being created"),
                ));
            };
            note_incarnations(&mut pool.record, made);
            pool.record.stage = StageDf::Ready;
            if self.store.commit(Tx::new().replace(&pool)).await? {
                return Ok(());
            }
        }
    }

    /// Removes what a failed creation has left. Where a target cannot be reached now, the pool
    /// stays without its label, to be removed by the next [`Service::resume`].
    async fn undo_pool(&self, pool: &mut Loaded<PoolDf>, orders: &dyn Targets) -> Result<()> {
        let id = pool.record.id;
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            let Some(mut now) = self.store.pool(id).await? else { return Ok(()) };
            let label_key = keys::pool_label(&now.record.label);
            now.record.stage = StageDf::Destroying;
            now.record.label.clear();
            if self.store.commit(Tx::new().replace(&now).delete(label_key)).await? {
                break;
            }
        }
        let failures = self.finish_pool_destroy(id, orders).await?;
        self.note_failed(&pool.record, &failures);
        Ok(())
    }

    /// The pools that nobody has destroyed: who leads what in the others does not matter, and nobody there knows any more.
    pub(super) async fn pools_left(&self) -> Result<Vec<Loaded<PoolDf>>> {
        let mut pools = self.store.pools().await?;
        pools.retain(|pool| pool.record.stage != StageDf::Destroying);
        Ok(pools)
    }

    pub(super) async fn pool_list(&self) -> Result<ControlReply> {
        let mut infos = Vec::new();
        for pool in self.store.pools().await? {
            if self.is_listed(&pool.record) {
                infos.push(self.pool_info(&pool.record).await?);
            }
        }
        Ok(ControlReply::Pools(infos))
    }

    pub(super) async fn pool_query(&self, name: &Name) -> Result<ControlReply> {
        let pool = self.find_pool(name).await?.record;
        if pool.stage == StageDf::Creating {
            check_stage(pool.stage, "pool", &pool.name())?;
        }
        Ok(ControlReply::Pool(self.pool_info(&pool).await?))
    }

    pub(super) async fn pool_map(&self, id: PoolId) -> Result<ControlReply> {
        let pool = self.store.pool(id).await?.ok_or_else(|| {
            Error::new(Code::NonExist, format!("there is no pool number {id}; it may be destroyed"))
        })?;
        Ok(ControlReply::Map(self.map(&pool.record).await?))
    }

    pub(super) async fn pool_open(
        &self,
        session: SessionId,
        name: &Name,
        mode: OpenMode,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        let pool = self.ready_pool(name).await?.record;
        if mode == OpenMode::Exclusive {
            self.until_alone(Owner::Pool(pool.id), orders).await;
        }
        let who = Opener { session, user: 0, evict: Evict::Nobody, is_quiet: true };
        let handle = self.handles.open(who, Owner::Pool(pool.id), mode, &pool.name())?;
        // Registered first, looked at second: see `handles`.
        let opened = async {
            let pool = self.ready_pool(&Name::Uuid(pool.uuid)).await?.record;
            self.pool_info(&pool).await
        };
        match opened.await {
            Ok(pool) => Ok(ControlReply::PoolOpened { handle, pool }),
            Err(error) => {
                self.handles.revoke(handle);
                Err(error)
            }
        }
    }

    pub(super) async fn pool_destroy(
        &self,
        name: &Name,
        force: bool,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        let mut attempts = Attempts::new();
        let (pool, label) = loop {
            attempts.next()?;
            let mut pool = self.find_pool(name).await?;
            let (id, label) = (pool.record.id, pool.record.name());
            if self.is_under_way(Owner::Pool(id)) {
                check_stage(StageDf::Creating, "pool", &label)?;
            }
            if pool.record.stage == StageDf::Destroying {
                break (pool.record, label);
            }
            if !force {
                self.until_alone(Owner::Pool(id), orders).await;
            }
            let _closing = self.handles.begin_close(Owner::Pool(id), force, &label, "destroyed")?;
            let cont_count = self.cont_count(id).await?;
            if cont_count > 0 && !force {
                return Err(Error::new(
                    Code::Busy,
                    format!(
                        "pool '{label}' holds {cont_count} containers; destroy them or use --force"
                    ),
                ));
            }
            pool.record.stage = StageDf::Destroying;
            let mut tx = Tx::new();
            if !pool.record.label.is_empty() {
                tx = tx.delete(keys::pool_label(&pool.record.label));
                pool.record.label.clear();
            }
            if self.store.commit(tx.replace(&pool)).await? {
                self.handles.drop_owner(Owner::Pool(id));
                tracing::info!(pool = %id, %label, "pool is destroyed");
                break (pool.record, label);
            }
        };
        let failures = self.finish_pool_destroy(pool.id, orders).await?;
        self.left_behind(&pool, failures, &format!("pool '{label}'"))
    }

    /// Removes a pool that is marked as being destroyed, from targets and catalog; says which targets could not be told, and why. While there are
    /// some the mark stays. A pool without it is left alone.
    pub(super) async fn finish_pool_destroy(
        &self,
        id: PoolId,
        orders: &dyn Targets,
    ) -> Result<Failures> {
        let Some(pool) = self.store.pool(id).await? else { return Ok(Failures::new()) };
        if pool.record.stage != StageDf::Destroying {
            return Ok(Failures::new());
        }
        let order = || AdminOp::DestroyShard { pool: id };
        let failures = order_present(orders, &pool.record, order).await;
        if !failures.is_empty() {
            return Ok(failures);
        }
        self.told_last.borrow_mut().remove(&id);
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            let Some(pool) = self.store.pool(id).await? else { return Ok(failures) };
            let mut tx = Tx::new().expect(&pool).delete(&pool.key);
            tx = tx.delete(keys::pool_uuid(pool.record.uuid)).delete(keys::pool_admission(id));
            if !pool.record.label.is_empty() {
                tx = tx.delete(keys::pool_label(&pool.record.label));
            }
            for prefix in [
                keys::conts(id),
                keys::cont_labels(id),
                keys::cont_uuids(id),
                keys::oids_of_pool(id),
                keys::snaps_of_pool(id),
                keys::times_of_pool(id),
                keys::pool_attrs(id),
                keys::conts_attrs(id),
            ] {
                tx = tx.delete_prefix(prefix);
            }
            if self.store.commit(tx).await? {
                self.times.forget_pool(id);
                tracing::info!(pool = %id, "nobody has anything of the pool any more");
                return Ok(failures);
            }
        }
    }

    pub(super) async fn pool_info(&self, pool: &PoolDf) -> Result<PoolInfo> {
        let target_count = pool.targets.len() as u64;
        let aims = pool.targets.iter().filter(|target| target.aim != TargetAim::Serve);
        Ok(PoolInfo {
            id: pool.id,
            uuid: pool.uuid,
            label: pool.label.clone(),
            durability: pool.durability,
            placement: pool.placement,
            scm_bytes: pool.shard_scm_bytes * target_count,
            nvme_bytes: pool.shard_nvme_bytes * target_count,
            cont_count: self.cont_count(pool.id).await?,
            handle_count: self.handles.count(Owner::Pool(pool.id)),
            map: self.map(pool).await?,
            aims: aims.map(|target| (target.id, target.aim)).collect(),
            is_rebuild_stopped: pool.is_rebuild_stopped,
            balance_wanted: pool.balance_wanted,
            is_move_due: self.is_move_due(pool),
        })
    }
}

/// The order that makes a pool's shard.
pub(super) fn shard_order(pool: &PoolDf) -> AdminOp {
    AdminOp::CreateShard {
        pool: pool.id,
        durability: pool.durability,
        scm_bytes: pool.shard_scm_bytes,
        nvme_bytes: pool.shard_nvme_bytes,
    }
}

/// Notes which making of the pool's parts the targets hold.
fn note_incarnations(pool: &mut PoolDf, made: &[(TargetId, AdminReply)]) {
    for (id, reply) in made {
        if let Some(target) = pool.targets.iter_mut().find(|target| target.id == *id) {
            target.incarnation = reply.incarnation;
        }
    }
}

/// All targets of a pool.
pub(super) fn target_ids(pool: &PoolDf) -> Vec<TargetId> {
    pool.targets.iter().map(|target| target.id).collect()
}

/// The targets of a new pool by id; all must exist and be reachable.
fn choose_targets(
    wanted: &Wanted,
    engines: &[EngineDf],
    orders: &dyn Targets,
) -> Result<Vec<TargetDf>> {
    let label = &wanted.label;
    let mut ids: BTreeSet<TargetId> = wanted.targets.iter().copied().collect();
    if ids.is_empty() {
        // Those that are down or excluded are known to be so; others must answer.
        let is_meant =
            |engine: &&EngineDf| engine.member.state == MemberState::Up && !engine.member.drains;
        let up = engines.iter().filter(is_meant);
        ids = up.flat_map(|engine| engine.targets.iter().copied()).collect();
    }
    if ids.is_empty() {
        return Err(Error::new(
            Code::NonExist,
            format!("pool '{label}' needs targets, but no engine is up; start one"),
        ));
    }
    let mut targets = Vec::with_capacity(ids.len());
    for id in ids {
        let engine = engine_of(id, engines).ok_or_else(|| {
            Error::new(
                Code::NonExist,
                format!("pool '{label}': there is no target {id}; query the system to see them"),
            )
        })?;
        if engine.member.drains {
            return Err(Service::is_emptied(engine.rank));
        }
        if engine.member.state == MemberState::Excluded {
            return Err(Error::new(
                Code::Busy,
                format!(
                    "pool '{label}' needs target {id}, but engine {} is excluded; take that back or \
                     name other targets",
                    engine.rank
                ),
            ));
        }
        if !orders.reachable(engine.rank) {
            return Err(Error::new(
                Code::Unreach,
                format!(
                    "pool '{label}' needs target {id}, but engine {} does not answer; start it or \
                     name other targets",
                    engine.rank
                ),
            ));
        }
        targets.push(TargetDf::new(id, engine.rank));
    }
    Ok(targets)
}

/// Index-and-log and data bytes of each target's share.
fn split(wanted: &Wanted, target_count: u64) -> Result<(u64, u64)> {
    let Wanted { label, bytes, scm_percent, .. } = wanted;
    if !(1..=99).contains(scm_percent) {
        return Err(Error::inval(format!(
            "pool '{label}': {scm_percent} percent for the index tier; give 1 to 99"
        )));
    }
    let share = bytes / target_count;
    if share < limits::SHARD_BYTES_MIN {
        return Err(Error::inval(format!(
            "pool '{label}' of {} over {target_count} targets is too small: each needs {}, so ask \
             for {} or more, or name fewer targets",
            size::format(*bytes),
            size::format(limits::SHARD_BYTES_MIN),
            size::format(limits::SHARD_BYTES_MIN * target_count),
        )));
    }
    let share = share / SHARE_UNIT * SHARE_UNIT;
    // 128 bits: a share times a percentage need not fit 64.
    let scm = (share as u128 * *scm_percent as u128 / 100) as u64 / SHARE_UNIT * SHARE_UNIT;
    Ok((scm, share - scm))
}
