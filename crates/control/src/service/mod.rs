//! The control service: one request in, one answer out.
//!
//! [`Service::handle`] runs many requests interleaved on one thread. Nothing is locked across a
//! wait: decisions are made on records as read, and committed on the condition that they are
//! still so. What is in memory only (handles, creations under way) is checked and changed
//! without waiting in between.

mod admission;
mod aims;
mod attrs;
mod cont;
mod copy;
mod drain;
mod extend;
mod grace;
mod grants;
mod handles;
mod join;
mod leads;
mod lost_ends;
mod members;
mod moves;
mod news;
mod orders;
mod pool;
mod props;
mod resume;
mod reweigh;
mod room;
mod slow;
mod snaps;
mod stores;
mod times;
mod told;
mod weights;

pub use grants::LEAD_TERM;
pub(crate) use join::not_of;
pub use news::Teller;
pub use orders::Targets;

use crate::catalog::Catalog;
use crate::keys;
use crate::records::{ContDf, EngineDf, PoolDf, StageDf, SystemDf};
use crate::store::{Attempts, Loaded, Store, Tx};
use async_recursion::async_recursion as boxed;
use handles::{Handles, Owner};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use types::map::{HashMap, HashSet};
use types::{Code, Error, PoolId, Rank, Result, TargetId};
use uuid::Uuid;
use wire::control::{ControlReply, ControlRequest, Name, SystemInfo};
use wire::map::{EngineInfo, PoolMap};

/// One caller's connection, numbered by the engine and never the same again; handles end with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SessionId(pub u64);

/// The control service. See the module for how requests may overlap.
pub struct Service {
    store: Store,
    wall_ns: Rc<dyn Fn() -> u64>,
    random: Rc<dyn Fn() -> u64>,
    handles: Handles,
    made: grace::Made,
    /// What is being created by a request that is still running.
    under_way: Rc<RefCell<HashSet<Owner>>>,
    /// Containers whose snapshots are being changed.
    turns: snaps::Turns,
    returning: stores::Returning,
    times: times::TimesTable,
    starts: RefCell<members::Starts>,
    missing: moves::Missing,
    last_look: moves::LastLook,
    /// The map of each pool that targets were told last.
    told_last: RefCell<HashMap<PoolId, Rc<PoolMap>>>,
    grants: grants::Grants,
    newest: reweigh::Newest,
    room: room::Looks,
    slow: slow::Slow,
    /// Engines whose targets were not told what they hold, and that nobody has taken up yet.
    untold: RefCell<BTreeSet<Rank>>,
    /// Who keeps what happens.
    teller: RefCell<Option<Teller>>,
}

/// Marks a creation as under way until dropped.
struct UnderWay {
    set: Rc<RefCell<HashSet<Owner>>>,
    owner: Owner,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.set.borrow_mut().remove(&self.owner);
    }
}

impl Service {
    /// A service over a catalog. `wall_ns` tells nanoseconds since 1970, `random` gives random
    /// words. Only one service may work on a catalog at a time.
    pub fn new(
        catalog: Box<dyn Catalog>,
        wall_ns: Rc<dyn Fn() -> u64>,
        random: Rc<dyn Fn() -> u64>,
    ) -> Service {
        let handles = Handles::new(random());
        Service {
            store: Store::new(catalog, random()),
            wall_ns,
            random,
            handles,
            made: grace::Made::default(),
            under_way: Rc::default(),
            turns: snaps::Turns::default(),
            returning: stores::Returning::default(),
            times: times::TimesTable::default(),
            starts: RefCell::default(),
            missing: RefCell::default(),
            last_look: moves::LastLook::default(),
            told_last: RefCell::default(),
            grants: grants::Grants::default(),
            newest: RefCell::default(),
            room: room::Looks::default(),
            slow: slow::Slow::default(),
            untold: RefCell::default(),
            teller: RefCell::default(),
        }
    }

    /// Another number after each change of the catalog that this service has made, times of use excepted.
    pub fn catalog_generation(&self) -> u64 {
        self.store.generation()
    }

    /// False when another may hold the catalog by now, for it did not say in time that this one still does.
    pub fn holds_catalog(&self) -> bool {
        self.store.is_held()
    }

    /// How often the catalog was asked, since this service began.
    pub fn catalog_call_count(&self) -> u64 {
        self.store.call_count()
    }

    /// Answers one request. `orders` reaches the targets.
    ///
    /// Run it to its end even when the caller has gone: a creation that is dropped half-way keeps
    /// its label until the next [`Service::resume`] undoes it.
    #[boxed(?Send)]
    pub async fn handle(
        &self,
        session: SessionId,
        request: ControlRequest,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        use ControlRequest as R;
        match request {
            R::Join(info) => self.join(info, orders).await,
            R::SystemExclude { rank, why } => self.exclude(rank, &why, orders).await,
            R::SystemClearExclude { rank } => self.clear_exclude(rank, orders).await,
            R::SystemDrain { rank, drains } => self.drain(rank, drains, orders).await,
            R::PoolAim { pool, targets, aim } => self.aim(&pool, &targets, aim, orders).await,
            R::PoolExtend { pool, targets } => self.pool_extend(&pool, &targets, orders).await,
            R::PoolBalance { pool } => {
                self.require_room_for_shares(&pool, orders).await?;
                self.balance(&pool, true).await
            }
            R::PoolReweigh { pool, is_trial } => self.reweigh(&pool, is_trial, orders).await,
            R::PoolRebuild { pool, runs } => self.rebuild(&pool, runs).await,
            R::TargetCaughtUp { pool, target, map_version } => {
                self.target_caught_up(pool, target, map_version, orders).await
            }
            R::TargetLacks { pool, target, map_version } => {
                self.target_lacks(pool, target, map_version, orders).await
            }
            R::TargetDamaged { pool, target, map_version } => {
                self.target_damaged(pool, target, map_version, orders).await
            }
            R::TargetFailed { pool, target, map_version } => {
                self.target_failed(pool, target, map_version, orders).await
            }
            R::TargetFull { pool, target, map_version } => {
                self.target_full(pool, target, map_version, orders).await
            }
            R::TargetJoined { pool, target, map_version } => {
                self.target_joined(pool, target, map_version, orders).await
            }
            R::Leave { engine, start, fails_over } => {
                self.engine_leaves(engine, start, fails_over, orders).await
            }
            R::SystemQuery => self.system_query(orders).await,
            R::CatalogCopy { generation, after } => self.catalog_copy(generation, &after).await,
            R::LeadGrant { targets, known } => self.lead_grant(&targets, known, orders),
            R::EngineQuery
            | R::EngineStop { .. }
            | R::EngineJobs { .. }
            | R::EngineMaps { .. }
            | R::EngineRefuses { .. }
            | R::EngineEvents { .. } => Err(Error::inval("an engine answers for itself")),
            R::TargetMeasure { target, ask } => weights::measure(target, ask, orders).await,
            R::PoolCreate { label, bytes, scm_percent, durability, placement, targets } => {
                let wanted =
                    pool::Wanted { label, bytes, scm_percent, durability, placement, targets };
                self.pool_create(wanted, orders).await
            }
            R::PoolList => self.pool_list().await,
            R::PoolQuery(pool) => self.pool_query(&pool).await,
            R::PoolDestroy { pool, force } => self.pool_destroy(&pool, force, orders).await,
            R::PoolOpen { pool, mode } => self.pool_open(session, &pool, mode, orders).await,
            R::PoolClose { handle } => self.close(session, handle, true),
            R::PoolMap(pool) => self.pool_map(pool).await,
            R::PoolResetTarget { pool, target } => {
                self.pool_reset_target(&pool, target, orders).await
            }
            R::ContCreate { pool, label, uuid, props, attrs } => {
                let wanted = cont::Wanted { label, uuid, props, attrs };
                self.cont_create(&pool, wanted, orders).await
            }
            R::ContList(pool) => self.cont_list(&pool).await,
            R::ContQuery(pool, cont) => self.cont_query(&pool, &cont).await,
            R::ContDestroy { pool, cont, force } => {
                self.cont_destroy(&pool, &cont, force, orders).await
            }
            R::ContOpen { pool, cont, ask } => {
                self.cont_open(session, &pool, &cont, ask, orders).await
            }
            R::ContClose { handle } => self.close(session, handle, false),
            R::AllocOids { pool, cont, count } => self.alloc_oids(pool, cont, count).await,
            R::SetProps { subject, props } => self.set_props(&subject, &props, orders).await,
            R::GetProps { subject } => self.get_props(&subject).await,
            R::SetAttrs { subject, attrs } => self.set_attrs(&subject, attrs).await,
            R::GetAttrs { subject } => self.get_attrs(&subject).await,
            R::SnapCreate { pool, cont, name } => {
                self.snap_create(&pool, &cont, &name, orders).await
            }
            R::SnapList(pool, cont) => self.snap_list(&pool, &cont).await,
            R::SnapDestroy { pool, cont, snap } => {
                self.snap_destroy(&pool, &cont, &snap, orders).await
            }
            R::Rollback { pool, cont, snap, force } => {
                self.roll_back(&pool, &cont, &snap, force, orders).await
            }
        }
    }

    /// Grows with each service that takes over from another; orders carry it, so that a target
    /// obeys none of an earlier one.
    pub fn term(&self) -> u64 {
        self.store.term()
    }

    /// Frees the handles of a caller that has gone. Requests of it that are still running open no
    /// more.
    pub fn session_closed(&self, session: SessionId) {
        for owner in self.handles.drop_session(session) {
            self.note_closed(owner);
        }
    }

    /// All engines with their targets, by rank: whom orders may have to reach.
    #[boxed(?Send)]
    pub async fn engines(&self) -> Result<Vec<(EngineInfo, Vec<TargetId>)>> {
        let engines = self.store.engines().await?;
        Ok(engines.into_iter().map(|engine| (engine.info(), engine.targets)).collect())
    }

    /// Identity of the system, chosen now if it has none yet.
    #[boxed(?Send)]
    pub async fn system_uuid(&self) -> Result<Uuid> {
        Ok(self.system().await?.record.uuid)
    }

    fn close(&self, session: SessionId, handle: u64, is_pool: bool) -> Result<ControlReply> {
        let (owner, is_used) = self.handles.close(session, handle, is_pool)?;
        if is_used {
            self.note_closed(owner);
        }
        Ok(ControlReply::Done)
    }

    async fn system(&self) -> Result<Loaded<SystemDf>> {
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            if let Some(system) = self.store.system().await? {
                return Ok(system);
            }
            let fresh = SystemDf::new(self.random_uuid());
            let tx = Tx::new().expect_absent(keys::SYSTEM).put(keys::SYSTEM, &fresh);
            self.store.commit(tx).await?;
        }
    }

    async fn system_query(&self, orders: &dyn Targets) -> Result<ControlReply> {
        let SystemDf { uuid, members_version, .. } = self.system().await?.record;
        let engines = self.store.engines().await?;
        let pools = self.store.pools().await?;
        Ok(ControlReply::System(SystemInfo {
            uuid,
            version: env!("CARGO_PKG_VERSION").to_string(),
            members: engines.iter().map(EngineDf::member).collect(),
            members_version,
            engines: engines
                .into_iter()
                .map(|engine| (engine.info(), orders.reachable(engine.rank), engine.targets))
                .map(|(info, reachable, targets)| (info, targets, reachable))
                .collect(),
            pool_count: pools.iter().filter(|pool| self.is_listed(&pool.record)).count() as u64,
            leader: orders.here(),
        }))
    }

    /// The map of a pool as read.
    ///
    /// Invariant: engines are read after the pool. So a map of some version has no older
    /// addresses than that version stands for; newer ones do no harm, their version follows.
    async fn map(&self, pool: &PoolDf) -> Result<PoolMap> {
        Ok(pool.map(&self.store.engines().await?))
    }

    fn random_uuid(&self) -> Uuid {
        let mut raw = [0; 16];
        raw[..8].copy_from_slice(&(self.random)().to_le_bytes());
        raw[8..].copy_from_slice(&(self.random)().to_le_bytes());
        uuid::Builder::from_random_bytes(raw).into_uuid()
    }

    fn begin(&self, owner: Owner) -> UnderWay {
        self.under_way.borrow_mut().insert(owner);
        self.note_made(owner);
        UnderWay { set: self.under_way.clone(), owner }
    }

    fn is_under_way(&self, owner: Owner) -> bool {
        self.under_way.borrow().contains(&owner)
    }

    /// A pool that is being made right now does not exist yet for others; one that was destroyed does not exist, though somebody who is away has
    /// not been told.
    fn is_listed(&self, pool: &PoolDf) -> bool {
        match pool.stage {
            StageDf::Creating => !self.is_under_way(Owner::Pool(pool.id)),
            StageDf::Ready => true,
            StageDf::Destroying => false,
        }
    }

    /// The pool by that name, in whatever stage. `NonExist` when there is none.
    async fn find_pool(&self, name: &Name) -> Result<Loaded<PoolDf>> {
        let key = match name {
            Name::Label(label) => keys::pool_label(label),
            Name::Uuid(uuid) => keys::pool_uuid(*uuid),
        };
        let mut found = None;
        if let Some(number) = self.store.number(&key).await? {
            found = self.store.pool(PoolId(number as u32)).await?;
        }
        found.ok_or_else(|| {
            Error::new(
                Code::NonExist,
                format!("there is no pool '{name}'; list the pools to see their names"),
            )
        })
    }

    /// The container by that name, in whatever stage. `NonExist` when there is none.
    async fn find_cont(&self, pool: &PoolDf, name: &Name) -> Result<Loaded<ContDf>> {
        let key = match name {
            Name::Label(label) => keys::cont_label(pool.id, label),
            Name::Uuid(uuid) => keys::cont_uuid(pool.id, *uuid),
        };
        let mut found = None;
        if let Some(number) = self.store.number(&key).await? {
            found = self.store.cont(pool.id, types::ContId(number)).await?;
        }
        found.ok_or_else(|| {
            Error::new(
                Code::NonExist,
                format!(
                    "there is no container '{name}' in pool '{}'; list its containers to see \
                     their names",
                    pool.name()
                ),
            )
        })
    }

    async fn ready_pool(&self, name: &Name) -> Result<Loaded<PoolDf>> {
        let pool = self.find_pool(name).await?;
        check_stage(pool.record.stage, "pool", &pool.record.name())?;
        Ok(pool)
    }

    async fn ready_cont(&self, pool: &PoolDf, name: &Name) -> Result<Loaded<ContDf>> {
        let cont = self.find_cont(pool, name).await?;
        check_stage(cont.record.stage, "container", &cont.record.name())?;
        Ok(cont)
    }
}

/// `Busy` unless ready.
fn check_stage(stage: StageDf, noun: &str, name: &str) -> Result<()> {
    let why = match stage {
        StageDf::Ready => return Ok(()),
        StageDf::Creating => "is still being created; try again in a moment",
        StageDf::Destroying => "is being destroyed",
    };
    Err(Error::new(Code::Busy, format!("{noun} '{name}' {why}")))
}

/// The engine that owns a target.
fn engine_of(target: TargetId, engines: &[EngineDf]) -> Option<&EngineDf> {
    engines.iter().find(|engine| engine.targets.contains(&target))
}
