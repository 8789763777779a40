//! One device of a target and the shards on it.
//!
//! In a directory:
//!
//! | name | what |
//! |---|---|
//! | `lock` | held while a store is open; says by whom |
//! | `superblock` | identity and format version |
//! | `pool.N/shard` | settings of a shard; written last, so without it there is no shard |
//! | `pool.N/data` | the data area |
//! | `pool.N/wal.*`, `pool.N/head` | the log |
//!
//! A raw device holds the same names in a table of its own (see `volume`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use env::{AlignedBuf, Disk, Env, Lock, OpenOptions};
use serde::{Deserialize, Serialize};
use types::{Code, Durability, Error, PoolId, Result};

use crate::Lsn;
use crate::arena::Arena;
use crate::payload::{Core, Medium};
use crate::sealed;
use crate::shard::{Shard, ShardConfig};
use crate::space::Space;
use crate::state::State;
use crate::volume;
use crate::wal::Wal;

const SUPERBLOCK_MAGIC: [u8; 8] = *b"AZKSTORE";
/// Version of the superblock and the layout of a store. 1: first release.
const SUPERBLOCK_VERSION: u16 = 1;
const SHARD_MAGIC: [u8; 8] = *b"AZKSHARD";
/// Version of the shard settings. 1: first release.
const SHARD_VERSION: u16 = 1;

/// Identity of a store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SuperblockDf {
    /// Random identity of the target.
    pub target: [u8; 16],
}

/// Settings of a shard.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ShardDf {
    pub pool: PoolId,
    pub durability: Durability,
    pub scm_bytes: u64,
    pub nvme_bytes: u64,
    /// Random identity of the shard, in every batch of its log.
    pub shard: [u8; 16],
}

/// Decodes a superblock.
pub(crate) fn decode_superblock(raw: &[u8]) -> Result<SuperblockDf> {
    sealed::unseal(SUPERBLOCK_MAGIC, SUPERBLOCK_VERSION, raw)
}

/// Decodes shard settings.
pub(crate) fn decode_shard(raw: &[u8]) -> Result<ShardDf> {
    sealed::unseal(SHARD_MAGIC, SHARD_VERSION, raw)
}

/// Reads a file of one sealed block.
pub(crate) async fn read_sealed(disk: &Rc<dyn Disk>, path: &Path) -> Result<Vec<u8>> {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let file = disk.open(path, options).await?;
    let (buf, result) = file.read_at(0, AlignedBuf::try_zeroed(sealed::SEALED_BYTES)?).await;
    let count = result.map_err(|error| error.context(path.display()))?;
    Ok(buf[..count.min(buf.len())].to_vec())
}

/// Writes a file of one sealed block so that after a crash there is the old or the new one.
pub(crate) async fn write_sealed(
    disk: &Rc<dyn Disk>,
    dir: &Path,
    name: &str,
    raw: &[u8],
) -> Result<()> {
    let path = dir.join(name);
    let new = dir.join(format!("{name}.new"));
    let options = OpenOptions { create: true, ..OpenOptions::default() };
    let file = disk.open(&new, options).await?;
    let (_, result) = file.write_at(0, AlignedBuf::copy_of(raw)).await;
    result.map_err(|error| error.context(path.display()))?;
    file.sync().await?;
    disk.rename(&new, &path).await?;
    disk.sync_dir(dir).await
}

/// See the module.
pub struct Store {
    env: Env,
    disk: Rc<dyn Disk>,
    root: PathBuf,
    target: [u8; 16],
    /// Shards on the device; with the handle when open.
    shards: RefCell<BTreeMap<PoolId, Option<Rc<Shard>>>>,
    /// One change of the set of shards at a time.
    changing: Cell<bool>,
    _lock: Box<dyn Lock>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({})", self.root.display())
    }
}

fn random_id(env: &Env) -> [u8; 16] {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&env.random_u64().to_le_bytes());
    id[8..].copy_from_slice(&env.random_u64().to_le_bytes());
    id
}

impl Store {
    /// Opens the store in a directory (made if missing) or on a raw device or file.
    ///
    /// `Busy` when it is open already; `Version` or `Csum` when the superblock cannot be used.
    pub async fn open(env: &Env, path: &Path) -> Result<Rc<Store>> {
        let disk = env.disk();
        let note = format!("pid {} on {}", std::process::id(), env::host_identity());
        match volume::open_raw(&disk, path, &note).await? {
            Some((disk, lock)) => Store::open_on(env, disk, PathBuf::from("/"), lock).await,
            None => {
                match disk.create_dir(path).await {
                    Err(error) if error.code != Code::Exist => {
                        return Err(error.context(format!("making {}", path.display())));
                    }
                    Err(_) => {}
                    Ok(()) => {
                        let parent = path.parent().filter(|parent| *parent != Path::new(""));
                        disk.sync_dir(parent.unwrap_or(Path::new("."))).await?;
                    }
                }
                let lock = disk.lock(&path.join("lock"), &note).await.map_err(|error| {
                    error.context(format!("{} is in use by another engine", path.display()))
                })?;
                Store::open_on(env, disk, path.to_path_buf(), lock).await
            }
        }
    }

    async fn open_on(
        env: &Env,
        disk: Rc<dyn Disk>,
        root: PathBuf,
        lock: Box<dyn Lock>,
    ) -> Result<Rc<Store>> {
        let target = match read_sealed(&disk, &root.join("superblock")).await {
            Ok(raw) => decode_superblock(&raw)?.target,
            Err(error) if error.code == Code::NonExist => {
                let target = random_id(env);
                let raw =
                    sealed::seal(SUPERBLOCK_MAGIC, SUPERBLOCK_VERSION, &SuperblockDf { target });
                write_sealed(&disk, &root, "superblock", &raw).await?;
                target
            }
            Err(error) => return Err(error),
        };
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
            target,
            shards: RefCell::new(shards),
            changing: Cell::new(false),
            _lock: lock,
        }))
    }

    /// Random identity of the target, made with the store.
    pub fn target_id(&self) -> [u8; 16] {
        self.target
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
        while self.changing.replace(true) {
            self.env.sleep(std::time::Duration::from_millis(1)).await;
        }
        Changing(&self.changing)
    }

    /// Makes a shard and opens it; opens it if it is there with the same settings.
    /// `Exist` with other settings; `NoSpace` or `NoMem` when the device cannot hold it.
    pub async fn create_shard(&self, pool: PoolId, config: &ShardConfig) -> Result<Rc<Shard>> {
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
        match self.disk.create_dir(&dir).await {
            // What an interrupted creation or destruction left behind.
            Err(error) if error.code == Code::Exist => self.empty(&dir).await?,
            other => other?,
        }
        if config.durability != Durability::Memory {
            let options = OpenOptions { create: true, direct: true, ..OpenOptions::default() };
            let made = async {
                let data = self.disk.open(&dir.join("data"), options).await?;
                data.allocate(0, config.nvme_bytes.next_multiple_of(4096)).await?;
                data.sync().await
            };
            if let Err(error) = made.await {
                self.empty(&dir).await?;
                self.disk.remove(&dir).await?;
                return Err(error.context(format!("making the data area of pool {pool}")));
            }
        }
        let settings = ShardDf {
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
    pub async fn open_shard(&self, pool: PoolId) -> Result<Rc<Shard>> {
        let _changing = self.exclusive().await;
        self.open_inner(pool).await
    }

    async fn open_inner(&self, pool: PoolId) -> Result<Rc<Shard>> {
        match self.shards.borrow().get(&pool) {
            None => {
                return Err(Error::new(
                    Code::NonExist,
                    format!("pool {pool} has no shard on {}", self.root.display()),
                ));
            }
            Some(Some(shard)) if !shard.is_closed() => return Ok(shard.clone()),
            Some(_) => {}
        }
        let dir = self.dir(pool);
        let raw = read_sealed(&self.disk, &dir.join("shard")).await?;
        let settings = decode_shard(&raw)?;
        let config = ShardConfig {
            durability: settings.durability,
            scm_bytes: settings.scm_bytes,
            nvme_bytes: settings.nvme_bytes,
        };
        let shard = match config.durability {
            Durability::Memory => self.open_memory(pool, config)?,
            _ => self.open_durable(pool, config, settings.shard, &dir).await?,
        };
        self.shards.borrow_mut().insert(pool, Some(shard.clone()));
        shard.opened();
        Ok(shard)
    }

    fn open_memory(&self, pool: PoolId, config: ShardConfig) -> Result<Rc<Shard>> {
        let mut space = Space::new(config.nvme_bytes);
        space.set_durable(Lsn(u64::MAX));
        let core = Rc::new(Core {
            env: self.env.clone(),
            medium: Medium::Arena(Arena::map(config.nvme_bytes)?),
            space: Rc::new(RefCell::new(space)),
            scm_bytes: config.scm_bytes,
            scm_reserved: Cell::new(0),
        });
        Ok(Shard::new(pool, config, core, State::default(), None))
    }

    async fn open_durable(
        &self,
        pool: PoolId,
        config: ShardConfig,
        identity: [u8; 16],
        dir: &Path,
    ) -> Result<Rc<Shard>> {
        let relaxed = config.durability == Durability::Relaxed;
        let options = OpenOptions { direct: true, dsync: !relaxed, ..OpenOptions::default() };
        let data = self.disk.open(&dir.join("data"), options).await?;
        let space = Rc::new(RefCell::new(Space::new(config.nvme_bytes)));
        let core = Rc::new(Core {
            env: self.env.clone(),
            medium: Medium::File(data.clone()),
            space: space.clone(),
            scm_bytes: config.scm_bytes,
            scm_reserved: Cell::new(0),
        });
        let mut state = State::default();
        let wal = Wal::open(
            &self.env,
            &self.disk,
            dir,
            identity,
            relaxed.then_some(data),
            space.clone(),
            |body, count| state.replay_batch(body, count),
        )
        .await?;
        state.claim_space(&mut space.borrow_mut())?;
        Ok(Shard::new(pool, config, core, state, Some(wal)))
    }

    /// Removes a shard and all it holds; succeeds when there is none. A handle still around
    /// refuses everything from then on.
    pub async fn destroy_shard(&self, pool: PoolId) -> Result<()> {
        let _changing = self.exclusive().await;
        let Some(open) = self.shards.borrow_mut().remove(&pool) else { return Ok(()) };
        if let Some(shard) = open {
            // Let a write in flight end: it must not meet a new file of the same name.
            shard.close().await.or_else(|error| match error.code {
                Code::Io | Code::Closed => Ok(()),
                _ => Err(error),
            })?;
            shard.abandon();
        }
        let dir = self.dir(pool);
        self.disk.remove(&dir.join("shard")).await?;
        self.disk.sync_dir(&dir).await?;
        self.empty(&dir).await?;
        self.disk.remove(&dir).await?;
        self.disk.sync_dir(&self.root).await
    }

    /// Removes all files of a directory.
    async fn empty(&self, dir: &Path) -> Result<()> {
        for entry in self.disk.list(dir).await? {
            self.disk.remove(&dir.join(&entry.name)).await?;
        }
        Ok(())
    }
}

/// See [`Store::exclusive`].
struct Changing<'a>(&'a Cell<bool>);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
