//! Stand-ins for what the service works with: targets that remember their orders, and a catalog
//! that lets other requests in between and breaks when told to.

use control::{
    Catalog, CatalogImage, Change, Compare, EmbeddedCatalog, Service, SessionId, Targets, Versioned,
};
use futures_executor::block_on;
use futures_util::future::LocalBoxFuture;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use types::{
    Code, ContId, ContProps, Durability, Epoch, Error, PoolId, Rank, Result, TargetId, hash,
};
use uuid::Uuid;
use wire::admission::Admission;
use wire::cache::DataCache;
use wire::control::{ContInfo, ControlReply, ControlRequest, JoinInfo, Name, PoolInfo};
use wire::map::{EngineInfo, PoolMap, TargetInfo};
use wire::measure::{Measures, Speed, Standing};
use wire::obj::{AdminOp, AdminReply};
use wire::scrub::Scrub;
use wire::versions::{ContStage, ContVersions};

pub const TARGETS_PER_ENGINE: u32 = 2;
pub const GIB: u64 = 1 << 30;

/// Lets every other future run once.
pub struct Yield(pub u32);

impl Future for Yield {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.0 == 0 {
            return Poll::Ready(());
        }
        self.0 -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// A shard as a target knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FakePoolShard {
    pub durability: Durability,
    pub scm_bytes: u64,
    pub nvme_bytes: u64,
    pub incarnation: u64,
    pub map: Option<PoolMap>,
    pub conts: BTreeSet<ContId>,
}

/// All targets of a system.
#[derive(Default)]
pub struct FakeTargets {
    /// What the clock shows; it goes on when somebody waits for it.
    pub now: Cell<Duration>,
    /// Who was asked to give back what it leads of which pool.
    pub given_back: RefCell<Vec<(TargetId, PoolId)>>,
    pub shards: RefCell<BTreeMap<(TargetId, PoolId), FakePoolShard>>,
    /// What they were told of admission since they started.
    pub admissions: RefCell<BTreeMap<(TargetId, PoolId), Admission>>,
    pub scrubs: RefCell<BTreeMap<(TargetId, PoolId), Scrub>>,
    pub caches: RefCell<BTreeMap<(TargetId, PoolId), DataCache>>,
    /// Engines that are believed to be away.
    pub away: RefCell<BTreeSet<Rank>>,
    /// Targets that fail every order.
    pub broken: RefCell<BTreeSet<TargetId>>,
    /// Targets that hear nothing of versions.
    pub deaf: RefCell<BTreeSet<TargetId>>,
    /// Orders until all targets fall silent.
    pub orders_left: Cell<Option<u32>>,
    pub order_count: Cell<u32>,
    made_count: Cell<u64>,
    /// Which making a part is, which is on the disk even where nothing else is.
    incarnations: RefCell<BTreeMap<(TargetId, PoolId), u64>>,
    /// What was told of versions.
    pub versions: RefCell<BTreeMap<(TargetId, PoolId, ContId), ContVersions>>,
    /// How targets stand.
    pub standings: RefCell<BTreeMap<TargetId, Standing>>,
    /// Which targets have all that a target with damaged pages can tell, itself included.
    pub have_all: RefCell<BTreeMap<TargetId, BTreeSet<TargetId>>>,
    /// Targets that were opened again.
    pub unsure: RefCell<BTreeSet<TargetId>>,
    /// Versions of the maps that were followed in what targets kept.
    pub kept_maps: RefCell<BTreeMap<TargetId, u32>>,
    looks: Cell<u32>,
    /// Maps that were taken as changes of earlier ones.
    pub changes: Cell<u32>,
    /// Seed of how long answers take; `None`: at once.
    pub jitter: Cell<Option<u64>>,
    /// A target whose next answer comes this many turns late.
    pub late: Cell<Option<(TargetId, u32)>>,
}

impl FakeTargets {
    fn rank_of(target: TargetId) -> Rank {
        Rank(target.0 / TARGETS_PER_ENGINE)
    }

    /// What a target says of its part of a pool.
    fn held(&self, target: TargetId, incarnation: u64) -> AdminReply {
        let is_unsure = self.unsure.borrow().contains(&target);
        let kept_map = self.kept_maps.borrow().get(&target).copied().unwrap_or(0);
        AdminReply { number: kept_map.into(), incarnation, is_unsure, ..AdminReply::default() }
    }

    fn apply(&self, target: TargetId, op: AdminOp) -> Result<AdminReply> {
        let mut shards = self.shards.borrow_mut();
        let no_shard = || Error::new(Code::NonExist, "no shard of that pool here");
        match op {
            AdminOp::CreateShard { pool, durability, scm_bytes, nvme_bytes } => {
                let mut incarnations = self.incarnations.borrow_mut();
                let made = *incarnations.entry((target, pool)).or_insert_with(|| {
                    self.made_count.set(self.made_count.get() + 1);
                    self.made_count.get()
                });
                let shard = shards.entry((target, pool)).or_insert(FakePoolShard {
                    incarnation: made,
                    durability,
                    scm_bytes,
                    nvme_bytes,
                    map: None,
                    conts: BTreeSet::new(),
                });
                if (shard.durability, shard.scm_bytes, shard.nvme_bytes)
                    != (durability, scm_bytes, nvme_bytes)
                {
                    return Err(Error::new(Code::Exist, "a shard with other settings is here"));
                }
                let incarnation = shard.incarnation;
                return Ok(self.held(target, incarnation));
            }
            AdminOp::ServeShard { pool, incarnation: meant } => {
                let held = shards.get_mut(&(target, pool));
                let incarnation = held.as_ref().map_or(0, |shard| shard.incarnation);
                if let Some(shard) = held
                    && incarnation != meant
                {
                    // It is there, and not served.
                    shard.map = None;
                }
                return Ok(self.held(target, incarnation));
            }
            AdminOp::Introduced => {}
            AdminOp::GiveLeadBack { pool } => self.given_back.borrow_mut().push((target, pool)),
            AdminOp::HasAllOf { pool, target: of, map_version } => {
                let shard = shards.get(&(target, pool)).ok_or_else(no_shard)?;
                let is_newest = shard.map.as_ref().is_some_and(|map| map.version == map_version);
                let have_all = self.have_all.borrow();
                if !is_newest || !have_all.get(&of).is_some_and(|all| all.contains(&target)) {
                    return Err(Error::new(Code::Busy, "it is not so far"));
                }
            }
            AdminOp::Measure { ask, .. } => {
                let mut standings = self.standings.borrow_mut();
                let standing = standings.entry(target).or_default();
                if let Some(ask) = ask
                    && !(ask.once && standing.measures.is_some())
                {
                    // The first target is twelve times as fast as the others.
                    let kb_s = if target.0 == 0 { 2_400_000 } else { 200_000 };
                    let speed = Speed { kb_s, kb_s_min: kb_s, kb_s_max: kb_s };
                    let memory = Speed { kb_s: 1, ..speed };
                    let made =
                        Measures { read: speed, write: speed, memory, ..Measures::default() };
                    standing.measures = Some(made);
                }
                return Ok(AdminReply { standing: Some(*standing), ..AdminReply::default() });
            }
            AdminOp::DestroyShard { pool } => {
                shards.remove(&(target, pool));
                self.incarnations.borrow_mut().remove(&(target, pool));
                self.admissions.borrow_mut().remove(&(target, pool));
                self.scrubs.borrow_mut().remove(&(target, pool));
                self.caches.borrow_mut().remove(&(target, pool));
            }
            AdminOp::CreateCont { pool, cont, .. } => {
                shards.get_mut(&(target, pool)).ok_or_else(no_shard)?.conts.insert(cont);
            }
            AdminOp::DestroyCont { pool, cont } => {
                if let Some(shard) = shards.get_mut(&(target, pool)) {
                    shard.conts.remove(&cont);
                }
            }
            AdminOp::SetMap(map) => {
                let shard = shards.get_mut(&(target, map.pool)).ok_or_else(no_shard)?;
                let meant = map.target(target).map_or(0, |target| target.incarnation);
                if meant != shard.incarnation {
                    return Err(Error::new(Code::Unreach, "another shard is meant"));
                }
                if shard.map.as_ref().is_none_or(|held| held.version < map.version) {
                    shard.map = Some(map);
                }
            }
            AdminOp::ChangeMap(change) => {
                let shard = shards.get_mut(&(target, change.pool)).ok_or_else(no_shard)?;
                let held = shard.map.as_ref().ok_or_else(|| Error::bare(Code::Stale))?;
                if held.version < change.version {
                    let newer = held.changed(&change).ok_or_else(|| Error::bare(Code::Stale))?;
                    let meant = newer.target(target).map_or(0, |target| target.incarnation);
                    if meant != shard.incarnation {
                        return Err(Error::new(Code::Unreach, "another shard is meant"));
                    }
                    shard.map = Some(newer);
                    self.changes.set(self.changes.get() + 1);
                }
            }
            AdminOp::SetAdmission { pool, admission } => {
                shards.get(&(target, pool)).ok_or_else(no_shard)?;
                let mut admissions = self.admissions.borrow_mut();
                let held = admissions.entry((target, pool)).or_default();
                if held.version <= admission.version {
                    *held = admission;
                }
            }
            AdminOp::SetScrub { pool, scrub } => {
                shards.get(&(target, pool)).ok_or_else(no_shard)?;
                let mut scrubs = self.scrubs.borrow_mut();
                let held = scrubs.entry((target, pool)).or_default();
                if held.version <= scrub.version {
                    *held = scrub;
                }
            }
            AdminOp::SetCache { pool, cache } => {
                shards.get(&(target, pool)).ok_or_else(no_shard)?;
                let mut caches = self.caches.borrow_mut();
                let held = caches.entry((target, pool)).or_default();
                if held.version <= cache.version {
                    *held = cache;
                }
            }
            AdminOp::SetVersions { pool, cont, versions } => {
                if self.deaf.borrow().contains(&target) {
                    return Err(Error::new(Code::Closed, "the connection broke"));
                }
                let shard = shards.get(&(target, pool)).ok_or_else(no_shard)?;
                if !shard.conts.contains(&cont) {
                    return Err(Error::new(Code::NonExist, "no such container here"));
                }
                let mut all = self.versions.borrow_mut();
                let held = all.entry((target, pool, cont)).or_default();
                if held.revision <= versions.revision {
                    *held = versions;
                }
                // Freezing and rolling back take some looks.
                let looks = self.looks.replace(self.looks.get() + 1);
                let under_way = held.stage != ContStage::Open && looks.is_multiple_of(5);
                let epoch = Epoch(1000 + u64::from(target.0));
                return Ok(AdminReply { number: epoch.0, under_way, ..AdminReply::default() });
            }
        }
        Ok(AdminReply::default())
    }

    /// The store of a target is exchanged for an empty one.
    pub fn wipe(&self, target: TargetId) {
        self.shards.borrow_mut().retain(|(of, _), _| *of != target);
        self.incarnations.borrow_mut().retain(|(of, _), _| *of != target);
    }

    /// An engine starts again: what was only in memory is gone.
    pub fn restart(&self, rank: Rank) {
        self.admissions.borrow_mut().retain(|(target, _), _| Self::rank_of(*target) != rank);
        self.scrubs.borrow_mut().retain(|(target, _), _| Self::rank_of(*target) != rank);
        self.caches.borrow_mut().retain(|(target, _), _| Self::rank_of(*target) != rank);
        self.shards.borrow_mut().retain(|(target, _), shard| {
            Self::rank_of(*target) != rank || shard.durability != Durability::Memory
        });
    }
}

impl Targets for FakeTargets {
    fn order(&self, target: TargetId, op: AdminOp) -> LocalBoxFuture<'_, Result<AdminReply>> {
        let count = self.order_count.get();
        self.order_count.set(count + 1);
        let delay = self.jitter.get().map_or(0, |seed| hash::mix2(seed, count as u64) % 4);
        Box::pin(async move {
            Yield(delay as u32).await;
            if self.late.get().is_some_and(|(late, _)| late == target)
                && let Some((_, turns)) = self.late.take()
            {
                Yield(turns).await;
            }
            if let Some(left) = self.orders_left.get() {
                self.orders_left.set(Some(left.saturating_sub(1)));
                if left == 0 {
                    return Err(Error::new(Code::TimedOut, "no answer"));
                }
            }
            if self.away.borrow().contains(&Self::rank_of(target)) {
                return Err(Error::new(Code::Unreach, "engine is away"));
            }
            if self.broken.borrow().contains(&target) {
                return Err(Error::new(Code::Io, "disk failed"));
            }
            self.apply(target, op)
        })
    }

    fn pause(&self) -> LocalBoxFuture<'_, ()> {
        Box::pin(Yield(1))
    }

    fn now(&self) -> Duration {
        self.now.get()
    }

    fn until(&self, at: Duration) -> LocalBoxFuture<'_, ()> {
        Box::pin(async move {
            // Others are faster.
            Yield(8).await;
            self.now.set(self.now.get().max(at));
        })
    }

    fn here(&self) -> Option<Rank> {
        None
    }

    fn reachable(&self, rank: Rank) -> bool {
        !self.away.borrow().contains(&rank)
    }
}

/// A catalog that takes its time and can be made to fail.
pub struct FakeCatalog {
    pub inner: Rc<EmbeddedCatalog>,
    pub jitter: Option<u64>,
    pub calls: Cell<u64>,
    /// Commits until every call fails.
    pub commits_left: Rc<Cell<Option<u32>>>,
    /// Whether the commit that fails has happened all the same.
    pub last_lands: bool,
}

impl FakeCatalog {
    async fn pause(&self) {
        let call = self.calls.replace(self.calls.get() + 1);
        Yield(self.jitter.map_or(0, |seed| hash::mix2(seed, call) % 3) as u32).await;
    }

    fn check(&self) -> Result<()> {
        match self.commits_left.get() {
            Some(0) => Err(Error::new(Code::Io, "catalog broke")),
            _ => Ok(()),
        }
    }
}

impl Catalog for FakeCatalog {
    fn get<'a>(&'a self, key: &'a str) -> LocalBoxFuture<'a, Result<Option<Versioned>>> {
        Box::pin(async move {
            self.check()?;
            self.pause().await;
            let found = self.inner.get(key).await;
            self.pause().await;
            found
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> LocalBoxFuture<'a, Result<Vec<(String, Versioned)>>> {
        Box::pin(async move {
            self.check()?;
            self.pause().await;
            let found = self.inner.list(prefix).await;
            self.pause().await;
            found
        })
    }

    fn commit<'a>(
        &'a self,
        compares: &'a [Compare],
        changes: &'a [Change],
    ) -> LocalBoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            self.check()?;
            self.pause().await;
            if let Some(left) = self.commits_left.get() {
                self.commits_left.set(Some(left - 1));
                if left == 1 {
                    if self.last_lands {
                        self.inner.commit(compares, changes).await?;
                    }
                    return self.check().map(|()| false);
                }
            }
            let done = self.inner.commit(compares, changes).await;
            self.pause().await;
            done
        })
    }
}

/// What the clock on the wall shows, seconds since 1970.
pub const WALL_S: u64 = 1_700_000_000;

/// The first object number given out then.
pub const OID_FIRST: u64 = WALL_S << 20;

/// A catalog that holds what an image has.
pub fn catalog_of(image: &CatalogImage) -> EmbeddedCatalog {
    let catalog = EmbeddedCatalog::in_memory().unwrap();
    let put = |(key, bytes): (&String, &Vec<u8>)| Change::Put(key.clone(), bytes.clone());
    let changes: Vec<Change> = image.entries.iter().map(put).collect();
    assert!(block_on(catalog.commit(&[], &changes)).unwrap());
    catalog
}

/// A system: a service, its catalog, its targets.
pub struct System {
    pub catalog: Rc<EmbeddedCatalog>,
    pub service: Service,
    pub targets: Rc<FakeTargets>,
    pub commits_left: Rc<Cell<Option<u32>>>,
    pub wall_s: Rc<Cell<u64>>,
    words: Rc<Cell<u64>>,
}

impl System {
    /// Engines of two targets each, none of them slow.
    pub fn new(engine_count: u32) -> System {
        let system = System::empty(None);
        for engine in 0..engine_count {
            system.join(engine).unwrap();
        }
        system
    }

    pub fn empty(jitter: Option<u64>) -> System {
        let catalog = Rc::new(EmbeddedCatalog::in_memory().unwrap());
        let targets = Rc::new(FakeTargets::default());
        targets.jitter.set(jitter);
        Self::over(catalog, targets, jitter, Rc::new(Cell::new(1)), false)
    }

    fn over(
        catalog: Rc<EmbeddedCatalog>,
        targets: Rc<FakeTargets>,
        jitter: Option<u64>,
        words: Rc<Cell<u64>>,
        last_lands: bool,
    ) -> System {
        let commits_left = Rc::new(Cell::new(None));
        let slow = FakeCatalog {
            inner: catalog.clone(),
            jitter,
            calls: Cell::new(0),
            commits_left: commits_left.clone(),
            last_lands,
        };
        let next = words.clone();
        let random = Rc::new(move || hash::mix(next.replace(next.get() + 1)));
        let wall_s = Rc::new(Cell::new(WALL_S));
        let shown = wall_s.clone();
        let wall_ns = Rc::new(move || shown.get() * 1_000_000_000);
        let service = Service::new(Box::new(slow), wall_ns, random);
        System { catalog, service, targets, commits_left, wall_s, words }
    }

    /// All that the catalog holds.
    pub fn image(&self) -> CatalogImage {
        let all = block_on(self.catalog.list("")).unwrap();
        CatalogImage { entries: all.into_iter().map(|(key, held)| (key, held.bytes)).collect() }
    }

    /// The service starts again over the same catalog and targets, in good health.
    pub fn restarted(self) -> System {
        self.restarted_with(false)
    }

    pub fn restarted_with(self, last_lands: bool) -> System {
        self.targets.orders_left.set(None);
        Self::over(self.catalog, self.targets, None, self.words, last_lands)
    }

    pub async fn ask(&self, request: ControlRequest) -> Result<ControlReply> {
        self.service.handle(SessionId(1), request, &*self.targets).await
    }

    pub fn run(&self, request: ControlRequest) -> Result<ControlReply> {
        futures_executor::block_on(self.ask(request))
    }

    pub fn run_as(&self, session: u64, request: ControlRequest) -> Result<ControlReply> {
        let asked = self.service.handle(SessionId(session), request, &*self.targets);
        futures_executor::block_on(asked)
    }

    /// The code of a request that must fail, after a look at its sentence.
    #[track_caller]
    pub fn fails(&self, request: ControlRequest, words: &str) -> Code {
        let error = self.run(request).unwrap_err();
        assert!(error.text.contains(words), "no '{words}' in: {error}");
        error.code
    }

    pub fn join(&self, engine: u32) -> Result<ControlReply> {
        self.run(ControlRequest::Join(engine_info(engine)))
    }

    #[track_caller]
    pub fn pool(&self, label: &str) -> PoolInfo {
        match self.run(create_pool(label)).unwrap() {
            ControlReply::Pool(info) => info,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub fn cont(&self, pool: &str, label: &str) -> ContInfo {
        match self.run(create_cont(pool, label)).unwrap() {
            ControlReply::Cont(info) => info,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub fn props(&self, pool: &str) -> BTreeMap<String, String> {
        let subject = wire::control::Subject::Pool(label(pool));
        match self.run(ControlRequest::GetProps { subject }).unwrap() {
            ControlReply::Props(props) => props,
            other => panic!("{other:?}"),
        }
    }

    pub fn pools(&self) -> Vec<PoolInfo> {
        match self.run(ControlRequest::PoolList).unwrap() {
            ControlReply::Pools(pools) => pools,
            other => panic!("{other:?}"),
        }
    }

    pub fn conts(&self, pool: &Name) -> Vec<ContInfo> {
        match self.run(ControlRequest::ContList(pool.clone())).unwrap() {
            ControlReply::Conts(conts) => conts,
            other => panic!("{other:?}"),
        }
    }

    /// Keys of the catalog that begin so.
    pub fn keys_of(&self, prefix: &str) -> Vec<String> {
        let entries = futures_executor::block_on(self.catalog.list(prefix)).unwrap();
        entries.into_iter().map(|(key, _)| key).collect()
    }

    /// Targets hold exactly what the catalog says, and nothing in it is half-done or left over.
    #[track_caller]
    pub fn assert_in_step(&self) {
        let mut expected = BTreeMap::new();
        let pools = self.pools();
        for pool in &pools {
            let name = Name::Uuid(pool.uuid);
            let conts: BTreeSet<ContId> =
                self.conts(&name).into_iter().map(|cont| cont.id).collect();
            assert_eq!(conts.len() as u64, pool.cont_count);
            let count = pool.map.targets.len() as u64;
            let is_up = |target: &&TargetInfo| target.holds_its_part();
            for target in pool.map.targets.iter().filter(is_up) {
                let shard = FakePoolShard {
                    incarnation: target.incarnation,
                    durability: pool.durability,
                    scm_bytes: pool.scm_bytes / count,
                    nvme_bytes: pool.nvme_bytes / count,
                    map: Some(pool.map.clone()),
                    conts: conts.clone(),
                };
                expected.insert((target.id, pool.id), shard);
            }
            let wanted = self.props(&pool.label);
            for target in pool.map.targets.iter().filter(is_up) {
                let admissions = self.targets.admissions.borrow();
                let held = admissions.get(&(target.id, pool.id)).cloned().unwrap_or_default();
                assert_eq!(wanted["ioc_max_writers"], held.max_writers.to_string());
                assert_eq!(wanted["ioc_max_readers"], held.max_readers.to_string());
                assert_eq!(wanted["ioc_weights"], held.weights.to_string());
                let scrubs = self.targets.scrubs.borrow();
                let held = scrubs.get(&(target.id, pool.id)).copied().unwrap_or_default();
                assert_eq!(wanted["scrub"], held.rate.to_string());
                let caches = self.targets.caches.borrow();
                let held = caches.get(&(target.id, pool.id)).copied().unwrap_or_default();
                assert_eq!(wanted["cache_max"], held.bytes_max.to_string());
                assert_eq!(wanted["cache_file_max"], held.object_bytes_max.to_string());
            }
        }
        assert_eq!(*self.targets.shards.borrow(), expected);
        self.assert_no_litter(&pools);
    }

    /// Every key of the catalog belongs to something that is listed.
    #[track_caller]
    fn assert_no_litter(&self, pools: &[PoolInfo]) {
        let entries = futures_executor::block_on(self.catalog.list("")).unwrap();
        let mut keys: BTreeSet<String> = entries.into_iter().map(|(key, _)| key).collect();
        keys.retain(|key| key != "system" && !key.starts_with("engine/"));
        for pool in pools {
            let id = pool.id.0;
            assert!(keys.remove(&format!("pool/{id:08x}")));
            assert!(keys.remove(&format!("pool-uuid/{}", pool.uuid)));
            keys.remove(&format!("pool-ioc/{id:08x}"));
            assert!(keys.remove(&format!("pool-label/{}", pool.label)));
            keys.retain(|key| !key.starts_with(&format!("attr/pool/{id:08x}/")));
            for cont in self.conts(&Name::Uuid(pool.uuid)) {
                let at = format!("{id:08x}/{:016x}", cont.id.0);
                assert!(keys.remove(&format!("cont/{at}")));
                assert!(keys.remove(&format!("oids/{at}")));
                keys.remove(&format!("times/{at}"));
                keys.remove(&format!("snaps/{at}"));
                assert!(keys.remove(&format!("cont-uuid/{id:08x}/{}", cont.uuid)));
                if !cont.label.is_empty() {
                    assert!(keys.remove(&format!("cont-label/{id:08x}/{}", cont.label)));
                }
                keys.retain(|key| !key.starts_with(&format!("attr/cont/{at}/")));
            }
        }
        assert_eq!(keys, BTreeSet::new(), "left over in the catalog");
    }
}

pub fn engine_info(engine: u32) -> JoinInfo {
    JoinInfo {
        engine: Uuid::from_u128(1000 + engine as u128),
        info: EngineInfo {
            rank: Rank(u32::MAX),
            tcp: format!("node{engine}:10301"),
            unix: format!("/run/azekura{engine}.sock"),
            host: format!("boot{engine}"),
            domain: vec![format!("rack{}", engine / 2)],
        },
        target_count: TARGETS_PER_ENGINE,
        start: 1,
        system: None,
    }
}

pub fn label(text: &str) -> Name {
    Name::Label(text.to_string())
}

pub fn create_pool(label: &str) -> ControlRequest {
    ControlRequest::PoolCreate {
        placement: types::PlacementRule::default(),
        label: label.to_string(),
        bytes: GIB,
        scm_percent: 10,
        durability: Durability::Wal,
        targets: Vec::new(),
    }
}

pub fn destroy_pool(pool: &str, force: bool) -> ControlRequest {
    ControlRequest::PoolDestroy { pool: label(pool), force }
}

pub fn create_cont(pool: &str, cont: &str) -> ControlRequest {
    ControlRequest::ContCreate {
        pool: label(pool),
        label: cont.to_string(),
        uuid: Uuid::nil(),
        props: ContProps::default(),
        attrs: BTreeMap::new(),
    }
}

pub fn destroy_cont(pool: &str, cont: &str, force: bool) -> ControlRequest {
    ControlRequest::ContDestroy { pool: label(pool), cont: label(cont), force }
}
