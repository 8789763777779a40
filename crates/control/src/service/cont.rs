//! Containers: making, finding, opening, removing, and their object numbers.

use super::handles::{Opener, Owner};
use super::orders::{Failures, failure, is_unheard, order_all, order_present};
use super::{Service, SessionId, Targets, UnderWay, attrs, check_stage};
use crate::keys;
use crate::records::{
    ContDf, ContPropsDf, EngineDf, OidsDf, PoolDf, RECORD_VERSION, StageDf, TargetDf,
};
use crate::recover::OIDS_PER_RECOVERY;
use crate::store::{Attempts, Loaded, Tx};
use futures_util::future::try_join_all;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Code, ContId, ContProps, Epoch, Error, PoolId, Result, TargetId, limits, props};
use uuid::Uuid;
use wire::control::{ContAsk, ContInfo, ControlReply, Evict, MemberState, Name, OpenMode};
use wire::map::PoolMap;
use wire::obj::AdminOp;

/// Greatest redundancy factor a container may demand.
const RD_FAC_MAX: u8 = 5;
/// How long a new container waits for those who are up and give no answer: somewhat longer than it takes to call them down; and how long before they are
/// asked again.
const UNHEARD_TIME_MAX: Duration = Duration::from_secs(15);
const UNHEARD_PAUSE: Duration = Duration::from_millis(500);
/// First object number given out; 0 stays free for "none".
const OID_FIRST: u64 = 1;
/// Numbers go on from the time of day, so many for each second since 1970: a catalog of some time ago, that a backup was put in place of, gives none out
/// again but in containers that have used more than so many a second on the average since.
const OIDS_PER_S_LOG2: u32 = 20;

/// A container as asked for.
pub(super) struct Wanted {
    pub label: String,
    pub uuid: Uuid,
    pub props: ContProps,
    pub attrs: BTreeMap<String, Vec<u8>>,
}

impl Service {
    pub(super) async fn cont_create(
        &self,
        pool: &Name,
        wanted: Wanted,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        if !wanted.label.is_empty() {
            limits::check_label(&wanted.label)?;
        }
        attrs::check_new(&wanted.attrs)?;
        let (pool, cont, _under_way) = self.claim_cont(pool, &wanted).await?;
        let name = cont.name();
        let order = || cont_order(&pool, &cont);
        let begun = orders.now();
        let untold = loop {
            let engines = self.store.engines().await?;
            let (meant, untold): (Vec<&TargetDf>, Vec<&TargetDf>) =
                pool.targets.iter().partition(|target| may_answer(target, &engines, orders));
            // Also those who have been told: one that was started again meanwhile may know nothing of it.
            let failures = order_all(orders, meant.iter().map(|target| target.id), order).await;
            if failures.is_empty() {
                break untold;
            }
            // One that gives no answer is called down soon, and then nobody needs it.
            let may_go = failures.iter().all(|(_, error)| is_unheard(error));
            if !may_go || orders.now() >= begun + UNHEARD_TIME_MAX {
                self.undo_cont(&pool, cont.id, orders).await?;
                return Err(failure(
                    &format!("container '{name}' was not created in pool '{}'", pool.name()),
                    &failures,
                    "mend that, then try again",
                ));
            }
            orders.until(orders.now() + UNHEARD_PAUSE).await;
        };
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            let Some(mut now) = self.store.cont(pool.id, cont.id).await? else {
                return Err(Error::new(
                    Code::NonExist,
                    format!(
                        "pool '{}' was destroyed while '{name}' was being created",
                        pool.name()
                    ),
                ));
            };
            now.record.stage = StageDf::Ready;
            if self.store.commit(Tx::new().replace(&now)).await? {
                tracing::info!(pool = %pool.id, cont = %cont.id, label = %name, "container created");
                self.tell_late(&now.record, &pool, &untold, orders).await?;
                return Ok(ControlReply::Cont(self.cont_info(pool.id, &now.record).await?));
            }
        }
    }

    /// Tells those of a new container that were down when it was made, and are not any more: they may have been told
    /// of their pools while it was not ready. All others that were down hear of it when they are.
    async fn tell_late(
        &self,
        cont: &ContDf,
        pool: &PoolDf,
        untold: &[&TargetDf],
        orders: &dyn Targets,
    ) -> Result<()> {
        if untold.is_empty() {
            return Ok(());
        }
        let Some(now) = self.store.pool(pool.id).await? else { return Ok(()) };
        let engines = self.store.engines().await?;
        let is_back = |target: &&TargetDf| {
            untold.iter().any(|of| of.id == target.id) && may_answer(target, &engines, orders)
        };
        let back: Vec<TargetId> =
            now.record.targets.iter().filter(is_back).map(|target| target.id).collect();
        for (target, error) in order_all(orders, back, || cont_order(pool, cont)).await {
            tracing::warn!(%target, cont = %cont.id, "told when its engine joins again: {error}");
        }
        Ok(())
    }

    /// Records the intent to make a container and takes its label and UUID.
    async fn claim_cont(&self, pool: &Name, wanted: &Wanted) -> Result<(PoolDf, ContDf, UnderWay)> {
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            let mut pool = self.ready_pool(pool).await?;
            let map = self.map(&pool.record).await?;
            check_props(&wanted.props, &map)?;
            let uuid = if wanted.uuid.is_nil() { self.random_uuid() } else { wanted.uuid };
            let pool_id = pool.record.id;
            let uuid_key = keys::cont_uuid(pool_id, uuid);
            let label_key = keys::cont_label(pool_id, &wanted.label);
            let exists = |what: String| {
                let text = format!(
                    "pool '{}' has a container {what} already; choose another",
                    pool.record.name()
                );
                Err(Error::new(Code::Exist, text))
            };
            if !wanted.label.is_empty() && self.store.number(&label_key).await?.is_some() {
                return exists(format!("'{}'", wanted.label));
            }
            if self.store.number(&uuid_key).await?.is_some() {
                return exists(uuid.to_string());
            }
            let id = ContId(pool.record.cont_next);
            pool.record.cont_next += 1;
            let cont = ContDf {
                version: RECORD_VERSION,
                id,
                uuid,
                label: wanted.label.clone(),
                stage: StageDf::Creating,
                props: (&wanted.props).into(),
                created_ns: (self.wall_ns)(),
                placement_epoch: map.placement_epoch(),
            };
            let under_way = self.begin(Owner::Cont(pool_id, id));
            let key = keys::cont(pool_id, id);
            let mut tx = Tx::new()
                .replace(&pool)
                .expect_absent(&uuid_key)
                .expect_absent(&key)
                .put_number(&uuid_key, id.0)
                .put(&key, &cont)
                .put(keys::oids(pool_id, id), &OidsDf { version: RECORD_VERSION, next: OID_FIRST });
            if !wanted.label.is_empty() {
                tx = tx.expect_absent(&label_key).put_number(&label_key, id.0);
            }
            for (name, value) in &wanted.attrs {
                let key = keys::cont_attrs(pool_id, id) + name;
                tx = tx.put_raw(key, value.clone());
            }
            if self.store.commit(tx).await? {
                return Ok((pool.record, cont, under_way));
            }
        }
    }

    /// Removes what a failed creation has left; see `undo_pool`.
    async fn undo_cont(&self, pool: &PoolDf, id: ContId, orders: &dyn Targets) -> Result<()> {
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            let Some(mut now) = self.store.cont(pool.id, id).await? else { return Ok(()) };
            let mut tx = Tx::new();
            if !now.record.label.is_empty() {
                tx = tx.delete(keys::cont_label(pool.id, &now.record.label));
            }
            now.record.stage = StageDf::Destroying;
            now.record.label.clear();
            if self.store.commit(tx.replace(&now)).await? {
                break;
            }
        }
        let failures = self.finish_cont_destroy(pool.id, id, orders).await?;
        self.note_failed(pool, &failures);
        Ok(())
    }

    /// The containers of a pool that nobody has destroyed.
    pub(super) async fn conts_left(&self, pool: PoolId) -> Result<Vec<Loaded<ContDf>>> {
        let mut conts = self.store.conts(pool).await?;
        conts.retain(|cont| cont.record.stage != StageDf::Destroying);
        Ok(conts)
    }

    /// How many these are.
    pub(super) async fn cont_count(&self, pool: PoolId) -> Result<u64> {
        Ok(self.conts_left(pool).await?.len() as u64)
    }

    pub(super) async fn cont_list(&self, pool: &Name) -> Result<ControlReply> {
        let pool = self.ready_pool(pool).await?.record;
        let conts = self.conts_left(pool.id).await?;
        let is_listed = |cont: &ContDf| {
            !(cont.stage == StageDf::Creating && self.is_under_way(Owner::Cont(pool.id, cont.id)))
        };
        let listed = conts.iter().map(|cont| &cont.record).filter(|cont| is_listed(cont));
        let listed = try_join_all(listed.map(|cont| self.cont_info(pool.id, cont))).await?;
        Ok(ControlReply::Conts(listed))
    }

    pub(super) async fn cont_query(&self, pool: &Name, cont: &Name) -> Result<ControlReply> {
        let pool = self.ready_pool(pool).await?.record;
        let cont = self.find_cont(&pool, cont).await?.record;
        if cont.stage == StageDf::Creating {
            check_stage(cont.stage, "container", &cont.name())?;
        }
        Ok(ControlReply::Cont(self.cont_info(pool.id, &cont).await?))
    }

    pub(super) async fn cont_open(
        &self,
        session: SessionId,
        pool: &Name,
        cont: &Name,
        ask: ContAsk,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        let pool = self.ready_pool(pool).await?.record;
        let cont = self.ready_cont(&pool, cont).await?.record;
        let owner = Owner::Cont(pool.id, cont.id);
        if ask.mode == OpenMode::Exclusive && ask.evict == Evict::Nobody {
            self.until_alone(owner, orders).await;
        }
        let ContAsk { mode, evict, user, leaves_times } = ask;
        let is_quiet = leaves_times && mode == OpenMode::ReadOnly;
        let who = Opener { session, user, evict, is_quiet };
        let handle = self.handles.open(who, owner, mode, &cont.name())?;
        // Registered first, looked at second: see `handles`.
        let still_there = async {
            let pool = self.ready_pool(&Name::Uuid(pool.uuid)).await?.record;
            let cont = self.ready_cont(&pool, &Name::Uuid(cont.uuid)).await?.record;
            let closed = evict != Evict::Nobody;
            self.note_times(pool.id, &cont, !is_quiet, closed).await;
            self.cont_info(pool.id, &cont).await
        };
        match still_there.await {
            Ok(cont) => Ok(ControlReply::ContOpened { handle, pool: pool.id, cont }),
            Err(error) => {
                self.handles.revoke(handle);
                Err(error)
            }
        }
    }

    pub(super) async fn cont_destroy(
        &self,
        pool: &Name,
        name: &Name,
        force: bool,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        let mut attempts = Attempts::new();
        let (pool, id, label) = loop {
            attempts.next()?;
            let pool = self.ready_pool(pool).await?.record;
            let mut cont = self.find_cont(&pool, name).await?;
            let owner = Owner::Cont(pool.id, cont.record.id);
            let label = cont.record.name();
            if self.is_under_way(owner) {
                check_stage(StageDf::Creating, "container", &label)?;
            }
            if cont.record.stage == StageDf::Destroying {
                break (pool, cont.record.id, label);
            }
            if !force {
                self.until_alone(owner, orders).await;
            }
            let _closing = self.handles.begin_close(owner, force, &label, "destroyed")?;
            cont.record.stage = StageDf::Destroying;
            let mut tx = Tx::new();
            if !cont.record.label.is_empty() {
                tx = tx.delete(keys::cont_label(pool.id, &cont.record.label));
                cont.record.label.clear();
            }
            if self.store.commit(tx.replace(&cont)).await? {
                self.handles.drop_owner(owner);
                tracing::info!(pool = %pool.id, cont = %cont.record.id, %label, "container is destroyed");
                break (pool, cont.record.id, label);
            }
        };
        let failures = self.finish_cont_destroy(pool.id, id, orders).await?;
        self.left_behind(&pool, failures, &format!("container '{label}' of pool '{}'", pool.name()))
    }

    /// Removes a container that is marked as being destroyed, from targets and catalog; says which targets could not be told, and why. While there
    /// are some the mark stays. A container without it is left alone.
    pub(super) async fn finish_cont_destroy(
        &self,
        pool_id: PoolId,
        id: ContId,
        orders: &dyn Targets,
    ) -> Result<Failures> {
        let Some(pool) = self.store.pool(pool_id).await? else { return Ok(Failures::new()) };
        let Some(cont) = self.store.cont(pool_id, id).await? else { return Ok(Failures::new()) };
        if cont.record.stage != StageDf::Destroying {
            return Ok(Failures::new());
        }
        let order = || AdminOp::DestroyCont { pool: pool_id, cont: id };
        let failures = order_present(orders, &pool.record, order).await;
        if !failures.is_empty() {
            return Ok(failures);
        }
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            let Some(cont) = self.store.cont(pool_id, id).await? else { return Ok(failures) };
            let mut tx = Tx::new()
                .expect(&cont)
                .delete(&cont.key)
                .delete(keys::cont_uuid(pool_id, cont.record.uuid))
                .delete(keys::oids(pool_id, id))
                .delete(keys::snaps(pool_id, id))
                .delete(keys::times(pool_id, id));
            if !cont.record.label.is_empty() {
                tx = tx.delete(keys::cont_label(pool_id, &cont.record.label));
            }
            tx = tx.delete_prefix(keys::cont_attrs(pool_id, id));
            if self.store.commit(tx).await? {
                self.times.forget((pool_id, id));
                tracing::info!(pool = %pool_id, cont = %id, "nobody has anything of the container any more");
                return Ok(failures);
            }
        }
    }

    pub(super) async fn alloc_oids(
        &self,
        pool: PoolId,
        id: ContId,
        count: u64,
    ) -> Result<ControlReply> {
        if count == 0 {
            return Err(Error::inval("a range of 0 object numbers; ask for 1 or more"));
        }
        let missing = || {
            let text = format!("there is no container {id} in pool {pool}; it may be destroyed");
            Error::new(Code::NonExist, text)
        };
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            let cont = self.store.cont(pool, id).await?.ok_or_else(missing)?;
            check_stage(cont.record.stage, "container", &cont.record.name())?;
            let mut oids = self.store.oids(pool, id).await?.ok_or_else(missing)?;
            let range = oids.record.next & !(OIDS_PER_RECOVERY - 1);
            let now_s = (self.wall_ns)() / 1_000_000_000;
            let by_time = (now_s << OIDS_PER_S_LOG2) % OIDS_PER_RECOVERY;
            let first = oids.record.next.max(range + by_time);
            oids.record.next = first.checked_add(count).ok_or_else(|| {
                let text = format!(
                    "container '{}' has {} object numbers left, {count} were asked for",
                    cont.record.name(),
                    u64::MAX - first
                );
                Error::new(Code::NoSpace, text)
            })?;
            if self.store.commit(Tx::new().expect(&cont).replace(&oids)).await? {
                return Ok(ControlReply::Oids(first));
            }
        }
    }

    pub(super) async fn cont_info(&self, pool: PoolId, cont: &ContDf) -> Result<ContInfo> {
        let snaps = self.snaps(pool, cont.id).await?.snapshots;
        let times = self.times(pool, cont).await?;
        Ok(ContInfo {
            id: cont.id,
            uuid: cont.uuid,
            label: cont.label.clone(),
            props: (&cont.props).into(),
            handle_count: self.handles.count(Owner::Cont(pool, cont.id)),
            created_ns: cont.created_ns,
            placement_epoch: cont.placement_epoch,
            opened_ns: times.opened_ns,
            changed_ns: times.changed_ns,
            snapshot_count: snaps.len() as u64,
            snapshot_last: snaps.last().map_or(Epoch::ZERO, |snap| snap.epoch),
        })
    }
}

/// True unless a target is known to be away, or to hold nothing of its pool.
fn may_answer(target: &TargetDf, engines: &[EngineDf], orders: &dyn Targets) -> bool {
    let engine = engines.iter().find(|engine| engine.rank == target.rank);
    let is_there = match engine.map(|engine| engine.member.state) {
        Some(MemberState::Up) => true,
        Some(MemberState::Excluded) => orders.reachable(target.rank),
        Some(MemberState::Down | MemberState::Stopped | MemberState::Joining) | None => false,
    };
    is_there && target.info().holds_its_part()
}

/// The order that makes a container known.
pub(super) fn cont_order(pool: &PoolDf, cont: &ContDf) -> AdminOp {
    let ContPropsDf { csum, server_verify, .. } = cont.props;
    AdminOp::CreateCont { pool: pool.id, cont: cont.id, csum, server_verify }
}

/// Checks properties as a whole against the pool's map.
pub(super) fn check_props(wanted: &ContProps, map: &PoolMap) -> Result<()> {
    props::check_chunk_bytes(wanted.chunk_bytes)?;
    props::check_cell_bytes(wanted.cell_bytes.into())?;
    if wanted.rd_fac > RD_FAC_MAX {
        return Err(Error::inval(format!(
            "redundancy factor {} (rd_fac); give 0 to {RD_FAC_MAX}",
            wanted.rd_fac
        )));
    }
    for (name, class) in [
        ("oclass", wanted.oclass),
        ("dir_oclass", wanted.dir_oclass),
        ("file_oclass", wanted.file_oclass),
    ] {
        placement::check_class(class, wanted, map)
            .map_err(|error| error.context(format!("property '{name}'")))?;
        if name != "dir_oclass" && class.small_keys_max().is_some() {
            return Err(Error::inval(format!(
                "property '{name}': class {class} is one of directories only"
            )));
        }
    }
    Ok(())
}
