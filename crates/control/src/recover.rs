//! A lost catalog, made anew from the copies that engines keep.
//!
//! A copy is a few seconds old, and may lack what was made, changed or removed just before the loss. So that nothing is
//! mistaken for something else:
//! - numbers of pools, containers, engines and targets go on well beyond what the copy knows, and so do versions of pool
//!   maps and settings: what targets have been told since is older than what they are told from now on;
//! - object numbers, which copies do not hold, go on in a range of their own for each recovery;
//! - states of targets are those of the newest map that any engine that still runs has: a target that was down there has missed
//!   updates.

use crate::image::CatalogImage;
use crate::keys;
use crate::records::{
    self, AdmissionDf, OidsDf, OutDf, PassedDf, PlacementDf, PoolDf, RECORD_VERSION, SnapsDf,
    StageDf,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use types::{Code, Error, PoolId, Result};
use wire::control::TargetAim;
use wire::map::{DownReason, PoolMap};

/// How far numbers and versions go on beyond those of the copy: more than the seconds that it may be old bring.
const LEAP: u32 = 1000;
/// Containers are made faster.
const CONT_LEAP: u64 = 1 << 20;
/// Object numbers of a recovery begin at its count times this. Numbers with the highest bit are those that engines give out by
/// themselves.
pub(crate) const OIDS_PER_RECOVERY: u64 = 1 << 56;
const RECOVERIES_MAX: u64 = 127;

/// How often the catalog was made anew.
#[derive(Serialize, Deserialize)]
struct RecoveredDf {
    /// Layout of this struct.
    version: u32,
    count: u64,
}

/// A catalog made anew, and what is known to be missing or doubtful.
#[derive(Debug)]
pub struct Recovered {
    pub entries: BTreeMap<String, Vec<u8>>,
    /// One thing each, for people.
    pub notes: Vec<String>,
}

/// How new a copy is: counters that only grow.
fn age(image: &CatalogImage) -> Result<(u32, u32, u64)> {
    let system = image.system()?;
    let pools = image.pools()?;
    let of_pools: u64 = pools.iter().map(|pool| u64::from(pool.map_version) + pool.cont_next).sum();
    Ok(system.map_or((0, 0, 0), |system| (system.members_version, system.pool_next, of_pools)))
}

/// Which of some copies is the newest.
///
/// `NonExist` when none holds a system; `Inval` when they are of different systems.
pub fn newest(images: &[CatalogImage]) -> Result<usize> {
    let mut best: Option<(usize, (u32, u32, u64))> = None;
    let mut of = None;
    for (at, image) in images.iter().enumerate() {
        let Some(system) = image.system()? else { continue };
        if *of.get_or_insert(system.uuid) != system.uuid {
            return Err(Error::inval("the copies are of different systems; give those of one"));
        }
        let age = age(image)?;
        if best.is_none_or(|(_, other)| age > other) {
            best = Some((at, age));
        }
    }
    let none = || Error::new(Code::NonExist, "none of the copies holds a system");
    best.map(|(at, _)| at).ok_or_else(none)
}

/// What another copy has that the chosen one has not.
fn only_in(other: &CatalogImage, chosen: &CatalogImage) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    for pool in other.pools()? {
        if !chosen.entries.contains_key(&keys::pool(pool.id)) {
            missing.push(format!("pool '{}'", pool.name()));
        }
        for cont in other.conts(&pool)? {
            if !chosen.entries.contains_key(&keys::cont(pool.id, cont.id)) {
                missing.push(format!("container '{}' of pool '{}'", cont.name(), pool.name()));
            }
        }
    }
    Ok(missing)
}

fn change<T: Serialize + DeserializeOwned>(
    entries: &mut BTreeMap<String, Vec<u8>>,
    prefix: &str,
    mut change: impl FnMut(&mut T),
) -> Result<()> {
    let found = entries.range_mut(prefix.to_string()..);
    for (key, bytes) in found.take_while(|(key, _)| key.starts_with(prefix)) {
        let mut record: T = records::decode(key, bytes)?;
        change(&mut record);
        *bytes = records::encode(&record);
    }
    Ok(())
}

/// Takes what a newer map than the record's says of the targets.
fn take_map(pool: &mut PoolDf, map: &PoolMap, notes: &mut Vec<String>) {
    notes.push(format!(
        "pool '{}': an engine has a newer map ({}) than the copy ({}): taken from there",
        pool.name(),
        map.version,
        pool.map_version
    ));
    for info in &map.targets {
        match pool.targets.iter_mut().find(|target| target.id == info.id) {
            Some(target) => {
                target.state = info.state;
                target.since = info.since;
                target.reason = info.reason;
                target.left = info.left;
                target.incarnation = info.incarnation;
                // What an administrator wanted after the copy was made shows in what followed from it.
                let is_drained =
                    |out: &wire::map::OutTarget| out.target == info.id && out.is_drained;
                if map.outs.iter().chain(map.next.iter().flatten()).any(is_drained) {
                    target.aim = TargetAim::Drain;
                } else if info.reason == Some(DownReason::Excluded) {
                    target.aim = TargetAim::Exclude;
                }
            }
            None => notes.push(format!(
                "pool '{}': target {} has come to it after the copy was made, and is left out",
                pool.name(),
                info.id
            )),
        }
    }
    let placement = |set: &wire::map::PlacementSet| PlacementDf {
        epoch: set.epoch,
        weights: set.weights.clone(),
    };
    let is_known =
        map.targets.iter().all(|info| pool.targets.iter().any(|held| held.id == info.id));
    if is_known {
        let out = |out: &wire::map::OutTarget| OutDf {
            target: out.target,
            round: out.round,
            epoch: out.epoch,
            is_drained: out.is_drained,
        };
        pool.placements = map.placements.iter().map(placement).collect();
        pool.outs = map.outs.iter().map(out).collect();
        pool.next = map.next.as_ref().map(|next| next.iter().map(out).collect());
        let passed = |of: &wire::map::PassedSpare| PassedDf { round: of.round, target: of.target };
        pool.passed = map.passed.iter().map(passed).collect();
        pool.next_passed = map.next_passed.iter().map(passed).collect();
        (pool.balanced, pool.next_balanced) = (map.balanced, map.next_balanced);
        pool.balance_wanted = match pool.balance.is_stopped {
            true => pool.balanced,
            false => pool.balance_wanted.max(map.next_balanced),
        };
    }
    pool.map_version = map.version;
}

/// Makes a catalog of a copy. `others` are further copies of the same system, with their names; `maps` what engines that run
/// have.
pub fn recover(
    image: &CatalogImage,
    others: &[(String, CatalogImage)],
    maps: &[PoolMap],
) -> Result<Recovered> {
    let mut entries = image.entries.clone();
    let mut notes = Vec::new();
    let mut count = match entries.get(keys::RECOVERED) {
        Some(bytes) => records::decode::<RecoveredDf>(keys::RECOVERED, bytes)?.count,
        None => 0,
    };
    count += 1;
    if count > RECOVERIES_MAX {
        let text = "this system was recovered too often: there are no object numbers left that are certainly new";
        return Err(Error::new(Code::NoSpace, text));
    }
    let recovered = RecoveredDf { version: RECORD_VERSION, count };
    entries.insert(keys::RECOVERED.into(), records::encode(&recovered));
    change(&mut entries, keys::SYSTEM, |system: &mut crate::SystemDf| {
        system.pool_next = system.pool_next.saturating_add(LEAP);
        system.target_next = system.target_next.saturating_add(LEAP);
        system.rank_next = system.rank_next.saturating_add(LEAP);
        system.members_version = system.members_version.saturating_add(LEAP);
    })?;
    let newest_map =
        |pool: PoolId| maps.iter().filter(|map| map.pool == pool).max_by_key(|map| map.version);
    change(&mut entries, keys::POOLS, |pool: &mut PoolDf| {
        if let Some(map) = newest_map(pool.id).filter(|map| map.version > pool.map_version) {
            take_map(pool, map, &mut notes);
        }
        pool.map_version = pool.map_version.saturating_add(LEAP);
        pool.cont_next = pool.cont_next.saturating_add(CONT_LEAP);
        if pool.scrub.revision > 0 {
            pool.scrub.revision += u64::from(LEAP);
        }
        if pool.cache.revision > 0 {
            pool.cache.revision += u64::from(LEAP);
        }
        if pool.stage != StageDf::Ready {
            notes.push(format!("pool '{}' was being made or removed, and goes", pool.name()));
        }
    })?;
    let leap = u64::from(LEAP);
    change(&mut entries, keys::ADMISSIONS, |of: &mut AdmissionDf| of.revision += leap)?;
    change(&mut entries, keys::SNAPS, |snaps: &mut SnapsDf| snaps.revision += leap)?;
    for pool in image.pools()? {
        for cont in image.conts(&pool)? {
            let oids = OidsDf { version: RECORD_VERSION, next: count * OIDS_PER_RECOVERY };
            entries.insert(keys::oids(pool.id, cont.id), records::encode(&oids));
        }
    }
    for (name, other) in others {
        let missing = only_in(other, image)?;
        if !missing.is_empty() {
            notes.push(format!(
                "removed before the loss, or made after the copy was: in {name} only are {}",
                missing.join(", ")
            ));
        }
    }
    Ok(Recovered { entries, notes })
}
