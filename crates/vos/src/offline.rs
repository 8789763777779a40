//! Tools for a target that no engine serves: what is on it, is it whole, put right what can be.
//!
//! Looking runs the store's own opening and reading on an [`Overlay`], so that not a byte of the
//! devices changes, and what an engine would say is what the tool says. Repair runs on the
//! devices, or on an overlay for a dry run: the same steps either way.

mod dump;
mod scan;

use std::cell::RefCell;
use std::rc::Rc;

use env::{Disk, Env};
use serde::Serialize;
use types::{Code, Durability, Error, PoolId, Result};
use wire::store::DeviceStat;

use crate::overlay::Overlay;
use crate::sealed::read_sealed;
use crate::shard::PoolShard;
use crate::store::{Store, decode_shard};
use crate::volume::tier::{Devices, Owner};

pub use dump::{DumpFilter, DumpItem, Place};
pub use scan::LogScan;

/// A target opened by a tool.
pub struct Offline {
    store: Rc<Store>,
    writes: bool,
}

/// What is on a target.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TargetReport {
    /// Its random identity, hexadecimal.
    pub target: String,
    pub owner: Option<OwnerReport>,
    /// Versions of the formats that this release reads and writes.
    pub versions: Versions,
    /// Its devices, that of index and log first.
    pub devices: Vec<DeviceStat>,
    /// Pools that have a shard here.
    pub pools: Vec<PoolReport>,
    /// What a creation or destruction that was cut off has left: device and directory.
    pub remains: Vec<String>,
}

/// Whose a target is.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct OwnerReport {
    /// Identity of the engine, hexadecimal.
    pub engine: String,
    /// Number of the target in its configuration, from 0.
    pub number: u32,
}

/// Versions of the formats on a device.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Versions {
    /// Superblock and layout.
    pub superblock: u16,
    /// Settings of a shard.
    pub shard: u16,
    /// Records of the log.
    pub record: u16,
    /// Pages of the index, and tables of them.
    pub page: u16,
    /// Table of a raw device.
    pub volume: u16,
}

/// A pool's shard.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PoolReport {
    pub pool: u32,
    /// When updates are acknowledged.
    pub durability: Option<Durability>,
    /// Index and log tier, bytes promised.
    pub scm_bytes: u64,
    pub scm_used_bytes: u64,
    /// Data tier, bytes reserved.
    pub nvme_bytes: u64,
    pub nvme_used_bytes: u64,
    pub containers: usize,
    pub objects: u64,
    pub dkeys: u64,
    /// Transactions in doubt.
    pub prepared: usize,
    /// Objects that live until nobody has them open.
    pub orphans: usize,
    /// The log; `None` for durability `memory`.
    pub log: Option<LogScan>,
    /// Why the shard cannot be opened.
    pub error: Option<String>,
}

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; nothing is lost.
    Note,
    Damage,
}

/// What a check has found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The pool, where it concerns one.
    pub pool: Option<u32>,
    /// What is wrong, where, and what to do.
    pub text: String,
}

/// What a repair may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Consent {
    /// Cut a damaged log before the damage. What was acknowledged after it is lost.
    pub drop_tail: bool,
    /// Remove directories of shards without settings, with the data in them.
    pub remove_remains: bool,
}

/// What a repair did, and what it could not do.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Repair {
    pub done: Vec<String>,
    /// What is wrong still, and what would help.
    pub left: Vec<String>,
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Offline {
    /// Opens the devices of a target that no engine serves. Without `writes`, nothing on them
    /// changes whatever is called.
    ///
    /// `Busy` when an engine has it; errors as [`Store::open_with`] when it is not a whole target.
    pub async fn open(env: &Env, devices: &Devices, writes: bool) -> Result<Offline> {
        let disk: Rc<dyn Disk> = match writes {
            true => env.disk(),
            false => Rc::new(Overlay::new(env.disk())),
        };
        let store = Store::inspect(env, disk, devices).await?;
        Ok(Offline { store, writes })
    }

    /// The engine whose target it is; `None`: nobody's yet.
    pub fn engine(&self) -> Option<[u8; 16]> {
        self.store.owner().map(|owner| owner.engine)
    }

    /// What is on the target.
    pub async fn stat(&self) -> Result<TargetReport> {
        let mut pools = Vec::new();
        for pool in self.store.shards() {
            pools.push(self.pool_report(pool).await);
        }
        let owner = |owner: Owner| OwnerReport { engine: hex(&owner.engine), number: owner.number };
        let remains = self.store.remains().await?;
        Ok(TargetReport {
            target: hex(&self.store.target_id()),
            owner: self.store.owner().map(owner),
            versions: Versions {
                superblock: crate::volume::tier::SUPERBLOCK_VERSION,
                shard: crate::store::SHARD_VERSION,
                record: crate::record::RECORD_VERSION,
                page: crate::pages::PAGE_VERSION,
                volume: crate::volume::VERSION,
            },
            devices: self.store.device_stats().await?,
            pools,
            remains: remains
                .iter()
                .map(|(name, dir)| format!("{name}: {}", dir.display()))
                .collect(),
        })
    }

    async fn pool_report(&self, pool: PoolId) -> PoolReport {
        let mut report = PoolReport {
            pool: pool.0,
            durability: None,
            scm_bytes: 0,
            scm_used_bytes: 0,
            nvme_bytes: 0,
            nvme_used_bytes: 0,
            containers: 0,
            objects: 0,
            dkeys: 0,
            prepared: 0,
            orphans: 0,
            log: None,
            error: None,
        };
        let filled = async {
            let (disk, dir) = self.store.home(pool);
            let settings = decode_shard(&read_sealed(disk, &dir.join("shard")).await?)?;
            report.durability = Some(settings.durability);
            (report.scm_bytes, report.nvme_bytes) = (settings.scm_bytes, settings.nvme_bytes);
            if settings.durability != Durability::Memory {
                report.log = Some(scan::scan(disk, &dir, &settings.shard).await?);
            }
            let shard = self.store.open_shard(pool).await?;
            let stat = shard.stat();
            report.scm_used_bytes = stat.scm_bytes - stat.scm_free_bytes;
            report.nvme_used_bytes = stat.nvme_bytes - stat.nvme_free_bytes;
            report.containers = shard.conts().len();
            (report.objects, report.dkeys) = (stat.object_count, stat.dkey_count);
            report.prepared = shard.prepared().len();
            report.orphans = shard.orphans().len();
            Ok::<(), Error>(())
        };
        if let Err(error) = filled.await {
            report.error = Some(error.to_string());
        }
        report
    }

    /// Gives everything that passes the filter to `each`: containers, their objects, the values
    /// in them with their places. Stops at the first error.
    pub async fn dump(
        &self,
        filter: &DumpFilter,
        each: &mut dyn FnMut(DumpItem) -> Result<()>,
    ) -> Result<()> {
        for pool in self.store.shards() {
            if filter.pool.is_none_or(|wanted| wanted == pool) {
                let shard = self.store.open_shard(pool).await?;
                dump::dump(&shard, filter, each).await?;
            }
        }
        Ok(())
    }

    /// Checks everything that can be checked; with `data`, also reads every byte of the data area
    /// that is in use. An empty list, or only notes: the target is whole.
    pub async fn check(&self, data: bool) -> Result<Vec<Finding>> {
        let found = RefCell::new(Vec::new());
        for pool in self.store.shards() {
            let add = |severity, text: String| {
                found.borrow_mut().push(Finding { severity, pool: Some(pool.0), text });
            };
            if let Err(error) = self.check_pool(pool, data, &add).await {
                add(Severity::Damage, error.to_string());
            }
        }
        for (name, dir) in self.store.remains().await? {
            let text = format!(
                "{name}: {} has no settings: a creation or destruction was cut off; 'repair \
                 --remove-remains' gives its space back",
                dir.display()
            );
            found.borrow_mut().push(Finding { severity: Severity::Note, pool: None, text });
        }
        Ok(found.into_inner())
    }

    async fn check_pool(
        &self,
        pool: PoolId,
        data: bool,
        add: &dyn Fn(Severity, String),
    ) -> Result<()> {
        let (disk, dir) = self.store.home(pool);
        let settings = decode_shard(&read_sealed(disk, &dir.join("shard")).await?)?;
        if settings.pool != pool {
            let text = format!("settings of pool {} lie in {}", settings.pool, dir.display());
            add(Severity::Damage, text);
        }
        if settings.durability != Durability::Memory {
            let log = scan::scan(disk, &dir, &settings.shard).await?;
            if let Some(damage) = log.damage {
                add(Severity::Damage, format!("log: {damage}"));
            } else if log.torn {
                let text = format!("log: batch {} was cut off by a crash", log.next_batch);
                add(Severity::Note, text);
            }
        }
        let shard = self.store.open_shard(pool).await?;
        let (counted, recounted) = shard.scm_audit();
        if counted != recounted {
            let text = format!("index memory is counted as {counted} bytes, but is {recounted}");
            add(Severity::Damage, text);
        }
        check_space(&shard, add).await?;
        dump::check_values(&shard, data, add).await
    }

    /// Puts right what can be, as far as `consent` goes; says what was done, or with an overlay
    /// what would be, and what is not right after it.
    pub async fn repair(&self, consent: Consent) -> Result<Repair> {
        let mut repair = Repair::default();
        for (name, dir) in self.store.remains().await? {
            let what = format!("{name}: {}", dir.display());
            if consent.remove_remains {
                self.store.remove_remains(&name, &dir).await?;
                repair.done.push(format!("{what}: removed"));
            } else {
                repair.left.push(format!("{what}: left alone; --remove-remains removes it"));
            }
        }
        for pool in self.store.shards() {
            if let Err(error) = self.repair_pool(pool, consent, &mut repair.done).await {
                repair.left.push(format!("pool {pool}: {error}"));
            }
        }
        Ok(repair)
    }

    async fn repair_pool(
        &self,
        pool: PoolId,
        consent: Consent,
        done: &mut Vec<String>,
    ) -> Result<()> {
        let (disk, dir) = self.store.home(pool);
        let nothing = |error: Error| error.context("nothing can be done here");
        let raw = read_sealed(disk, &dir.join("shard")).await.map_err(nothing)?;
        let settings = decode_shard(&raw).map_err(nothing)?;
        if settings.durability == Durability::Memory {
            return Ok(());
        }
        let log = scan::scan(disk, &dir, &settings.shard).await?;
        if let Some(damage) = &log.damage {
            if !consent.drop_tail {
                return Err(Error::new(Code::Csum, format!("{damage}, acknowledged or not")));
            }
            let bytes = scan::cut(disk, &dir, &log).await?;
            done.push(format!(
                "pool {pool}: log cut before batch {}; {bytes} bytes of log given up",
                log.next_batch
            ));
        }
        let opened = self.store.open_shard(pool).await;
        let shard = opened.map_err(|error| error.context("does not open"))?;
        let counted = shard.counted_space().await?;
        let (has, should) = (shard.core.space.borrow().free_bytes(), counted.free_bytes());
        if has != should {
            // What a checkpoint keeps is what was counted.
            shard.core.space.replace(counted);
            done.push(format!("pool {pool}: {should} bytes are free, not {has}"));
        }
        shard.checkpoint().await?;
        shard.close().await?;
        done.push(format!("pool {pool}: opens; a checkpoint is written"));
        Ok(())
    }

    /// True when repairs change the devices.
    pub fn writes(&self) -> bool {
        self.writes
    }
}

/// Compares the allocator with what refers to its blocks.
async fn check_space(shard: &PoolShard, add: &dyn Fn(Severity, String)) -> Result<()> {
    let should = match shard.counted_space().await {
        Ok(counted) => counted.free_bytes(),
        Err(error) => {
            add(Severity::Damage, error.to_string());
            return Ok(());
        }
    };
    let has = shard.core.space.borrow().free_bytes();
    if has < should {
        let text = format!("{} bytes of the data area are in use by nothing", should - has);
        add(Severity::Damage, text);
    } else if has > should {
        let text = format!("{} bytes of the data area are in use and free at once", has - should);
        add(Severity::Damage, text);
    }
    Ok(())
}
