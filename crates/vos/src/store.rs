//! The devices of a target and the shards on them.
//!
//! In a directory:
//!
//! | name | where | what |
//! |---|---|---|
//! | `lock` | each device | held while a store is open; says by whom |
//! | `superblock` | each device | identity and format version (see `tier`) |
//! | `pool.N/shard` | scm | settings of a shard; written last, so without it there is no shard |
//! | `pool.N/wal.*`, `pool.N/head` | scm | the log |
//! | `pool.N/pages` | scm | pages of the index, and the table of the last checkpoint |
//! | `pool.N/data` | nvme | the data area, or its share on this device |
//!
//! A raw device holds the same names in a table of its own (see `volume`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use env::{Disk, Env, File, OpenOptions, Room, Signal};
use serde::{Deserialize, Serialize};
use types::{Code, Durability, Error, PoolId, Result, limits};

use wire::measure::Measures;
use wire::store::{DeviceRole, DeviceStat};

use crate::Lsn;
use crate::arena::Arena;
use crate::contents::Contents;
use crate::data_area::{Activity, Core, LastWrites, Medium, Promised};
use crate::data_cache::{CacheRoom, DataCache};
use crate::index_memory::{Cache, METADATA_CACHE_DEFAULT};
use crate::loans::Lending;
use crate::log::wal::{self, DataSync, Wal};
use crate::pages::PageStore;
use crate::recovery::Recovery;
use crate::sealed::{self, read_sealed, write_sealed};
use crate::shard::{Durables, PoolShard, PoolShardConfig};
use crate::space::Space;
use crate::unsynced::Unsynced;
use crate::upkeep::BESIDE;
use crate::volume::paced::Pace;
use crate::volume::stripe::{Striped, share_bytes};
use crate::volume::tier::{self, Devices, Mode, Owner, Place, Places, random_id};
use crate::volume::traffic::{self, Meter, Traffic};
use crate::write_queue::{Limit, WriteQueue};

const SHARD_MAGIC: [u8; 8] = *b"AZKSHARD";
/// Version of the shard settings. 2: data on devices of its own, a log
/// with sums of blocks; 1 is refused.
pub(crate) const SHARD_VERSION: u16 = 2;

/// Room a shard needs on the tier of index and log to begin with, bytes: one log segment. More is set
/// aside where there is room (see `reserve`).
const LOG_BYTES: u64 = 16 << 20;

/// Settings of a shard.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct PoolShardDf {
    pub pool: PoolId,
    pub durability: Durability,
    pub scm_bytes: u64,
    pub nvme_bytes: u64,
    /// Random identity of the shard, in every batch of its log.
    pub shard: [u8; 16],
}

/// The short form of a shard's identity that goes over the wire; zero stands for none there.
fn incarnation_of(identity: &[u8; 16]) -> u64 {
    let (short, _) = identity.split_at(8);
    short.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)).max(1)
}

/// Decodes shard settings.
pub(crate) fn decode_shard(raw: &[u8]) -> Result<PoolShardDf> {
    sealed::unseal(SHARD_MAGIC, SHARD_VERSION, raw)
}

/// Settings of a store that may differ from one opening to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreOptions {
    /// Whose target it is; `None` does not check.
    pub owner: Option<Owner>,
    /// Values smaller than this go to the index and the log, larger ones to the data area;
    /// [`INLINE_BYTES_MIN`] to [`INLINE_BYTES_LIMIT`]. Memory shards keep to
    /// [`limits::INLINE_BYTES_MAX`].
    pub inline_bytes_max: u32,
    /// Small extents are joined in the background.
    pub aggregate: bool,
    /// The devices are told of large freed runs; `None`: if the data is on block devices.
    pub discard: Option<bool>,
    /// Memory for the index of all durable shards together, bytes as the index tier counts them:
    /// what is more is forgotten and read back when it is used. Memory shards are all in memory.
    pub metadata_cache: u64,
    /// Most that is read and written of the devices, bytes a second; `None`: as much as they do.
    pub bytes_per_s_max: Option<u64>,
    /// The devices are given no more data at a time than they write in so long; zero: as much as there is.
    pub write_queue: Duration,
    /// Memory for data that were read from the devices, of all pools together, bytes.
    pub data_cache: u64,
    /// Targets of the engine: they share what a pool wants of an engine's data cache.
    pub target_count: u32,
}

/// [`StoreOptions::write_queue`] where nobody says anything: long enough that a device has the next write when one is done.
pub const WRITE_QUEUE_DEFAULT: Duration = Duration::from_millis(10);
/// Least [`StoreOptions::inline_bytes_max`].
pub const INLINE_BYTES_MIN: u32 = 512;
/// Most [`StoreOptions::inline_bytes_max`]: the index is memory, and a log record is whole.
pub const INLINE_BYTES_LIMIT: u32 = 64 << 10;

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions {
            owner: None,
            inline_bytes_max: limits::INLINE_BYTES_MAX as u32,
            aggregate: true,
            discard: None,
            metadata_cache: METADATA_CACHE_DEFAULT,
            bytes_per_s_max: None,
            write_queue: WRITE_QUEUE_DEFAULT,
            data_cache: 0,
            target_count: 1,
        }
    }
}

/// The store of a target: its devices, and the pool shards on them.
pub struct Store {
    env: Env,
    /// Of index and log.
    disk: Rc<dyn Disk>,
    root: PathBuf,
    places: Places,
    options: StoreOptions,
    cache: Rc<Cache<PoolShard>>,
    cache_room: Rc<CacheRoom>,
    /// Shards on the devices; with the handle when open.
    shards: RefCell<BTreeMap<PoolId, Option<Rc<PoolShard>>>>,
    meter: Option<Rc<Meter>>,
    writes: WriteQueue,
    /// One change of the set of shards at a time.
    changing: Cell<bool>,
    /// One is over.
    changed: Signal,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({})", self.places.scm.name)
    }
}

impl Store {
    /// Opens a store with both tiers in one directory (made if missing) or on one raw device or
    /// file; see [`Store::open_with`].
    pub async fn open(env: &Env, path: &Path) -> Result<Rc<Store>> {
        Store::open_with(env, &Devices::one(path), StoreOptions::default()).await
    }

    /// Opens the store on these devices; makes it when all are empty.
    ///
    /// `Busy` when one is in use; `Inval` when one is another device than it should be or an
    /// option is out of bounds; `NonExist` when one is missing; `Version` or `Csum` when a
    /// superblock cannot be used.
    pub async fn open_with(
        env: &Env,
        devices: &Devices,
        options: StoreOptions,
    ) -> Result<Rc<Store>> {
        if !(INLINE_BYTES_MIN..=INLINE_BYTES_LIMIT).contains(&options.inline_bytes_max) {
            return Err(Error::inval(format!(
                "inline_bytes_max is {}; it must be {INLINE_BYTES_MIN} to {INLINE_BYTES_LIMIT}",
                options.inline_bytes_max
            )));
        }
        let meter = Meter::new(env);
        let pace = options.bytes_per_s_max.map(|rate| Pace::new(env, rate));
        let disk = traffic::metered(env.disk(), &meter, pace);
        let places = tier::open(env, &disk, devices, Mode::Serve(options.owner)).await?;
        let store = Store::open_on(env, places, Some(meter), options).await?;
        store.limit_writes(store.measures().await.as_ref());
        Ok(store)
    }

    /// Looks whether anybody else uses the devices of a target, and changes nothing; whatever else is wrong with them is told by who opens them.
    ///
    /// Errors: `Busy` with the device that is in use.
    pub async fn may_open(env: &Env, devices: &Devices) -> Result<()> {
        match tier::open(env, &env.disk(), devices, Mode::Inspect).await {
            Err(error) if error.code == Code::Busy => Err(error),
            _ => Ok(()),
        }
    }

    /// From now on the devices are known to be so fast.
    pub(crate) fn limit_writes(&self, known: Option<&Measures>) {
        let StoreOptions { write_queue, bytes_per_s_max, .. } = self.options;
        self.writes.set_limit(Limit::of(write_queue, bytes_per_s_max, known));
    }

    /// Opens a store for a tool, on a disk of the tool's choice: it must be there, whoever owns
    /// it, and no background work changes it.
    pub(crate) async fn inspect(
        env: &Env,
        disk: Rc<dyn Disk>,
        devices: &Devices,
    ) -> Result<Rc<Store>> {
        let places = tier::open(env, &disk, devices, Mode::Inspect).await?;
        let (aggregate, discard) = (false, Some(false));
        let options = StoreOptions { aggregate, discard, ..StoreOptions::default() };
        Store::open_on(env, places, None, options).await
    }

    async fn open_on(
        env: &Env,
        places: Places,
        meter: Option<Rc<Meter>>,
        options: StoreOptions,
    ) -> Result<Rc<Store>> {
        let (disk, root) = (places.scm.disk.clone(), places.scm.root.clone());
        let mut shards = BTreeMap::new();
        for entry in disk.list(&root).await? {
            let Some(pool) = entry.name.strip_prefix("pool.").and_then(|n| n.parse().ok()) else {
                continue;
            };
            let names = disk.list(&root.join(&entry.name)).await?;
            if names.iter().any(|entry| entry.name == "shard") {
                shards.insert(PoolId(pool), None);
            }
        }
        Ok(Rc::new(Store {
            env: env.clone(),
            disk,
            root,
            places,
            cache: Cache::new(options.metadata_cache),
            cache_room: CacheRoom::new(options.data_cache, options.target_count),
            options,
            shards: RefCell::new(shards),
            meter,
            writes: WriteQueue::new(env),
            changing: Cell::new(false),
            changed: Signal::default(),
        }))
    }

    /// What the devices have done since the store was opened.
    pub fn traffic(&self) -> Traffic {
        self.meter.as_ref().map(|meter| meter.traffic()).unwrap_or_default()
    }

    /// Random identity of the target, made with the store.
    pub fn target_id(&self) -> [u8; 16] {
        self.places.target
    }

    /// So many targets have parts of each of its data devices from now on: others have come.
    pub fn share_data_devices(&self, counts: &[u32]) {
        self.places.share(counts);
    }

    /// The device of index and log.
    pub(crate) fn index_place(&self) -> &Place {
        &self.places.scm
    }

    /// The devices of data: that of index and log where there are no others.
    pub(crate) fn data_places(&self) -> impl Iterator<Item = &Place> {
        let both = self.places.nvme.is_empty().then_some(&self.places.scm);
        both.into_iter().chain(&self.places.nvme)
    }

    /// Whose target it is.
    pub(crate) fn owner(&self) -> Option<Owner> {
        self.places.owner
    }

    /// Where index and log of a shard are.
    pub(crate) fn home(&self, pool: PoolId) -> (&Rc<dyn Disk>, PathBuf) {
        (&self.disk, self.dir(pool))
    }

    /// Directories of shards that have no settings, with the names of their devices.
    pub(crate) async fn remains(&self) -> Result<Vec<(String, PathBuf)>> {
        let known: Vec<String> = self.shards().iter().map(|pool| format!("pool.{pool}")).collect();
        let mut remains = Vec::new();
        for place in std::iter::once(&self.places.scm).chain(&self.places.nvme) {
            for entry in place.disk.list(&place.root).await? {
                if entry.is_dir && entry.name.starts_with("pool.") && !known.contains(&entry.name) {
                    remains.push((place.name.clone(), place.root.join(&entry.name)));
                }
            }
        }
        Ok(remains)
    }

    /// Removes one of [`Store::remains`].
    pub(crate) async fn remove_remains(&self, name: &str, dir: &Path) -> Result<()> {
        let mut places = std::iter::once(&self.places.scm).chain(&self.places.nvme);
        if let Some(place) = places.find(|place| place.name == name) {
            empty(&place.disk, dir).await?;
            place.disk.remove(dir).await?;
            place.disk.sync_dir(&place.root).await?;
        }
        Ok(())
    }

    /// The devices with their room, that of index and log first. Of a directory that targets share each has its part.
    pub async fn device_stats(&self) -> Result<Vec<DeviceStat>> {
        let first = if self.places.nvme.is_empty() { DeviceRole::Both } else { DeviceRole::Scm };
        let data = self.places.nvme.iter().map(|place| (place, DeviceRole::Nvme));
        let mut stats = Vec::new();
        for (place, role) in std::iter::once((&self.places.scm, first)).chain(data) {
            let Room { total_bytes, free_bytes } = place.own_room().await?;
            stats.push(DeviceStat { name: place.name.clone(), role, total_bytes, free_bytes });
        }
        Ok(stats)
    }

    /// Pools that have a shard here, open or not.
    pub fn shards(&self) -> Vec<PoolId> {
        self.shards.borrow().keys().copied().collect()
    }

    fn dir(&self, pool: PoolId) -> PathBuf {
        self.root.join(format!("pool.{pool}"))
    }

    /// Takes the right to change the set of shards, until the result is dropped.
    async fn exclusive(&self) -> Changing<'_> {
        self.changed.until(|| !self.changing.replace(true)).await;
        Changing(self)
    }

    /// Makes a shard and opens it; opens it if it is there with the same settings.
    /// `Exist` with other settings; `NoSpace` or `NoMem` when the device cannot hold it.
    pub async fn create_shard(
        &self,
        pool: PoolId,
        config: &PoolShardConfig,
    ) -> Result<Rc<PoolShard>> {
        let changing = self.exclusive().await;
        if self.shards.borrow().contains_key(&pool) {
            let shard = self.open_inner(pool).await?;
            if shard.config() != config {
                return Err(Error::new(
                    Code::Exist,
                    format!("pool {pool} has a shard here with other settings"),
                ));
            }
            return Ok(shard);
        }
        let dir = self.dir(pool);
        self.clear_remains(pool).await?;
        if config.durability != Durability::Memory {
            if let Err(error) = self.check_room(config).await {
                self.remove_dirs(pool).await?;
                return Err(error);
            }
            let options = OpenOptions { create: true, direct: true, ..OpenOptions::default() };
            let made = async {
                let data = self.open_data(pool, options).await?;
                data.allocate(0, config.nvme_bytes.next_multiple_of(4096)).await?;
                data.sync().await?;
                self.sync_data_dirs(pool).await?;
                wal::make(&self.disk, &dir).await
            };
            if let Err(error) = made.await {
                self.remove_dirs(pool).await?;
                return Err(error.context(format!("making data area and log of pool {pool}")));
            }
        }
        let settings = PoolShardDf {
            pool,
            durability: config.durability,
            scm_bytes: config.scm_bytes,
            nvme_bytes: config.nvme_bytes,
            shard: random_id(&self.env),
        };
        let raw = sealed::seal(SHARD_MAGIC, SHARD_VERSION, &settings);
        write_sealed(&self.disk, &dir, "shard", &raw).await?;
        self.disk.sync_dir(&self.root).await?;
        self.shards.borrow_mut().insert(pool, None);
        let shard = self.open_inner(pool).await;
        drop(changing);
        shard
    }

    /// Opens a shard: replays its log. The same handle if it is open. `NonExist` when there is
    /// none; `Csum` when it is damaged.
    pub async fn open_shard(&self, pool: PoolId) -> Result<Rc<PoolShard>> {
        let _changing = self.exclusive().await;
        self.open_inner(pool).await
    }

    async fn open_inner(&self, pool: PoolId) -> Result<Rc<PoolShard>> {
        match self.shards.borrow().get(&pool) {
            None => {
                return Err(Error::new(
                    Code::NonExist,
                    format!("pool {pool} has no shard on {}", self.places.scm.name),
                ));
            }
            Some(Some(shard)) if !shard.is_closed() => return Ok(shard.clone()),
            Some(_) => {}
        }
        let dir = self.dir(pool);
        let raw = read_sealed(&self.disk, &dir.join("shard")).await?;
        let settings = decode_shard(&raw)?;
        let config = PoolShardConfig {
            durability: settings.durability,
            scm_bytes: settings.scm_bytes,
            nvme_bytes: settings.nvme_bytes,
        };
        let shard = match config.durability {
            Durability::Memory => self.open_memory(pool, config, settings.shard)?,
            _ => self.open_durable(pool, config, settings.shard, &dir).await?,
        };
        self.shards.borrow_mut().insert(pool, Some(shard.clone()));
        shard.opened();
        Ok(shard)
    }

    fn open_memory(
        &self,
        pool: PoolId,
        config: PoolShardConfig,
        identity: [u8; 16],
    ) -> Result<Rc<PoolShard>> {
        let mut space = Space::new(config.nvme_bytes);
        space.set_durable(Lsn(u64::MAX));
        let core = Rc::new(Core {
            env: self.env.clone(),
            medium: Medium::Arena(Arena::map(config.nvme_bytes)?),
            space: Rc::new(RefCell::new(space)),
            cache: DataCache::new(&CacheRoom::none()),
            scm_bytes: config.scm_bytes,
            loans: Lending::new(true, Vec::new()),
            promised: Promised::default(),
            inline_bytes_max: limits::INLINE_BYTES_MAX as u64,
            aggregate: self.options.aggregate,
            activity: Activity::default(),
            unsynced: Unsynced::default(),
            writes: self.writes.clone(),
            last_writes: LastWrites::default(),
        });
        let made = incarnation_of(&identity);
        Ok(PoolShard::new(
            pool,
            config,
            made,
            core,
            Contents::default(),
            (&self.cache, BESIDE),
            None,
        ))
    }

    async fn open_durable(
        &self,
        pool: PoolId,
        config: PoolShardConfig,
        identity: [u8; 16],
        dir: &Path,
    ) -> Result<Rc<PoolShard>> {
        let relaxed = config.durability == Durability::Relaxed;
        let options = OpenOptions { direct: true, ..OpenOptions::default() };
        let data = self.open_data(pool, options).await?;
        if data.len()? < config.nvme_bytes / 4096 * 4096 {
            return Err(Error::new(
                Code::Csum,
                format!("the data of pool {pool} is shorter than it was made: a device was cut"),
            ));
        }
        let is_device = data.is_device();
        let options = OpenOptions { create: true, direct: true, ..OpenOptions::default() };
        let area = self.disk.open(&dir.join("pages"), options).await?;
        self.disk.sync_dir(dir).await?;
        let lends = self.places.tiers_share_room();
        let index_bytes_max = config.scm_bytes + if lends { config.nvme_bytes } else { 0 };
        let pages = Rc::new(PageStore::new(&self.env, area, index_bytes_max, identity)?);
        let head = wal::read_head(&self.disk, dir).await?;
        let limit = self.options.metadata_cache;
        let mut recovery = Recovery::begin(&pages, &head, config.nvme_bytes, limit).await?;
        let space = recovery.space.clone();
        let data_cache = DataCache::new(&self.cache_room);
        let core = Rc::new(Core {
            env: self.env.clone(),
            medium: Medium::File(data.clone()),
            space: space.clone(),
            cache: data_cache.clone(),
            scm_bytes: config.scm_bytes,
            loans: Lending::new(lends, recovery.loans.clone()),
            promised: Promised::default(),
            inline_bytes_max: self.options.inline_bytes_max as u64,
            aggregate: self.options.aggregate,
            activity: Activity::default(),
            unsynced: Unsynced::default(),
            writes: self.writes.clone(),
            last_writes: LastWrites::default(),
        });
        let wal = Wal::open(
            &self.env,
            &self.disk,
            dir,
            identity,
            relaxed,
            DataSync { file: data, unsynced: core.unsynced.clone() },
            space,
            &head,
            self.places.keeps_room,
            async |batches| recovery.replay(batches).await,
        )
        .await?;
        recovery.state.hand_over_sums(&mut recovery.space.borrow_mut());
        recovery.space.borrow_mut().collect_freed(self.options.discard.unwrap_or(is_device));
        recovery.space.borrow_mut().cache = Some(data_cache);
        let Recovery { state, table_runs, .. } = recovery;
        let durables = Durables { wal, pages, table_runs, keeps: self.places.keeps_room };
        let made = incarnation_of(&identity);
        let beside = (&self.cache, BESIDE);
        let shard = PoolShard::new(pool, config, made, core, state, beside, Some(durables));
        shard.begin_maps().await?;
        Ok(shard)
    }

    /// Removes a shard and all it holds; succeeds when there is none. A handle still around
    /// refuses everything from then on.
    pub async fn destroy_shard(&self, pool: PoolId) -> Result<()> {
        let _changing = self.exclusive().await;
        let Some(open) = self.shards.borrow_mut().remove(&pool) else { return Ok(()) };
        if let Some(shard) = open {
            // Let a write in flight end: it must not meet a new file of the same name.
            shard.end().await.or_else(|error| match error.code {
                Code::Io | Code::Closed => Ok(()),
                _ => Err(error),
            })?;
        }
        let dir = self.dir(pool);
        self.disk.remove(&dir.join("shard")).await?;
        self.disk.sync_dir(&dir).await?;
        self.remove_dirs(pool).await
    }

    /// The directories of a shard: index and log first, then those of its data.
    fn dirs(&self, pool: PoolId) -> Vec<(&Rc<dyn Disk>, PathBuf)> {
        let places = std::iter::once(&self.places.scm).chain(&self.places.nvme);
        places.map(|place| (&place.disk, place.root.join(format!("pool.{pool}")))).collect()
    }

    /// Makes the directories of a shard, empty of what an interrupted creation or destruction
    /// left behind.
    async fn clear_remains(&self, pool: PoolId) -> Result<()> {
        for (disk, dir) in self.dirs(pool) {
            match disk.create_dir(&dir).await {
                Err(error) if error.code == Code::Exist => empty(disk, &dir).await?,
                other => other?,
            }
        }
        Ok(())
    }

    /// Removes the directories of a shard with what is in them, that of the index last: it
    /// tells that there may be others.
    async fn remove_dirs(&self, pool: PoolId) -> Result<()> {
        for (disk, dir) in self.dirs(pool).into_iter().rev() {
            empty(disk, &dir).await?;
            disk.remove(&dir).await?;
            disk.sync_dir(dir.parent().unwrap_or(Path::new("/"))).await?;
        }
        Ok(())
    }

    /// Makes the names of a shard's data durable.
    async fn sync_data_dirs(&self, pool: PoolId) -> Result<()> {
        for (disk, dir) in self.dirs(pool).into_iter().skip(1) {
            disk.sync_dir(&dir).await?;
            disk.sync_dir(dir.parent().unwrap_or(Path::new("/"))).await?;
        }
        Ok(())
    }

    /// The data area of a shard, over all devices that hold a share of it.
    async fn open_data(&self, pool: PoolId, options: OpenOptions) -> Result<Rc<dyn File>> {
        let dirs = self.dirs(pool);
        let holders = if dirs.len() > 1 { &dirs[1..] } else { &dirs[..] };
        let mut files = Vec::new();
        for (at, (disk, dir)) in holders.iter().enumerate() {
            let file = disk.open(&dir.join("data"), options).await.map_err(|error| {
                let place = self.places.nvme.get(at).unwrap_or(&self.places.scm);
                error.context(format!("data of pool {pool} on {}", place.name))
            })?;
            files.push(file);
        }
        Ok(Striped::over(files))
    }

    /// Fails when a tier has no room for a new shard, before anything is made.
    async fn check_room(&self, config: &PoolShardConfig) -> Result<()> {
        let scm = self.places.scm.room().await?;
        let refuse = |tier: &str, name: &str, want: u64, room: Room| {
            Error::new(
                Code::NoSpace,
                format!(
                    "the {tier} tier at {name} has {} free; {} are needed",
                    types::size::format(room.free_bytes),
                    types::size::format(want)
                ),
            )
        };
        let both = self.places.nvme.is_empty();
        let want =
            if both { config.nvme_bytes + LOG_BYTES } else { config.scm_bytes.max(LOG_BYTES) };
        if scm.free_bytes < want {
            let tier = if both { "data" } else { "index and log" };
            return Err(refuse(tier, &self.places.scm.name, want, scm));
        }
        let share = share_bytes(self.places.nvme.len().max(1), config.nvme_bytes);
        for place in &self.places.nvme {
            let room = place.room().await?;
            if room.free_bytes < share {
                return Err(refuse("data", &place.name, share, room));
            }
        }
        Ok(())
    }
}

/// Removes all files of a directory.
pub(crate) async fn empty(disk: &Rc<dyn Disk>, dir: &Path) -> Result<()> {
    for entry in disk.list(dir).await? {
        disk.remove(&dir.join(&entry.name)).await?;
    }
    Ok(())
}

/// See [`Store::exclusive`].
struct Changing<'a>(&'a Store);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.changing.set(false);
        self.0.changed.notify();
    }
}
