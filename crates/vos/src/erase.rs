//! Taking a target off its devices, so that they may serve another engine or something else.
//!
//! What the store has made is removed by name; blocks are not written over. On a device of its own the table of names
//! goes, too, so that the device counts as empty.
//!
//! Invariant: the settings of all pools go first, the superblock of index and log last. So one that was cut off is done again
//! to the end, and until then no engine takes what is left for a target that is whole: its pools are missing, or its data
//! devices.

use std::path::PathBuf;
use std::rc::Rc;

use env::{Disk, Env};
use serde::Serialize;
use types::{Code, Result};

use crate::store::empty;
use crate::volume::tier::{DataDevice, Devices, Place, RoleDf, SuperblockDf, open_place, wrong};
use crate::volume::{self, Part};

/// What was taken off a device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ErasedDevice {
    pub device: String,
    /// Numbers of the pools that had a part here.
    pub pools: Vec<u32>,
    /// It held nothing.
    pub was_empty: bool,
}

/// One device of the target, with the lock on it.
struct Held {
    place: Place,
    device: DataDevice,
    superblock: Option<SuperblockDf>,
}

/// Removes a target. `engine`: it must be that engine's; `None`: whoever's, damaged or not.
///
/// Errors: `Busy` when an engine has it open; `Inval` when it is another engine's; `Csum` or `Version` when it does not tell
/// whose it is; `Exist` when a device holds something that is not ours, whoever was named. Then nothing was removed. A
/// device that is not there is passed over.
pub async fn erase(
    env: &Env,
    devices: &Devices,
    engine: Option<[u8; 16]>,
) -> Result<Vec<ErasedDevice>> {
    let disk = env.disk();
    let index = DataDevice::whole(&devices.scm);
    let mut held = Vec::new();
    for device in std::iter::once(&index).chain(&devices.nvme) {
        match hold(&disk, device, engine).await {
            Ok(place) => held.push(place),
            Err(error) if error.code == Code::NonExist => {}
            Err(error) => return Err(error),
        }
    }
    let is_alone = |held: &Held| {
        matches!(&held.superblock, Some(SuperblockDf { role: RoleDf::Nvme { .. }, .. }))
    };
    let has_index = held.iter().any(|held| held.superblock.is_some() && !is_alone(held));
    if engine.is_some()
        && !has_index
        && let Some(orphan) = held.iter().find(|held| is_alone(held))
    {
        let text = "is data of a target whose device of index and log holds nothing: whose it is cannot be told";
        return Err(wrong(&orphan.place, text.into()));
    }
    let is_same = |of: &Held, target: &[u8; 16]| {
        of.superblock.as_ref().is_none_or(|superblock| superblock.target == *target)
    };
    let known = held.iter().find_map(|held| held.superblock.as_ref()).map(|found| found.target);
    if engine.is_some()
        && let Some(target) = known
        && let Some(stranger) = held.iter().find(|held| !is_same(held, &target))
    {
        return Err(wrong(&stranger.place, "belongs to another target".into()));
    }
    // From here on no pool can be opened in part.
    for held in &held {
        for (_, dir) in pools(&held.place).await? {
            match held.place.disk.remove(&dir.join("shard")).await {
                Err(error) if error.code != Code::NonExist => return Err(error),
                _ => held.place.disk.sync_dir(&dir).await?,
            }
        }
    }
    let mut erased = Vec::new();
    for held in held.iter().rev() {
        erased.push(clear(held).await?);
    }
    for held in held.iter().rev() {
        forget(&disk, held).await?;
    }
    erased.reverse();
    Ok(erased)
}

/// Pools with a directory on a device: number and path.
async fn pools(place: &Place) -> Result<Vec<(u32, PathBuf)>> {
    let entries = place.disk.list(&place.root).await?;
    let pools = entries.iter().filter_map(|entry| {
        let number = entry.name.strip_prefix("pool.")?.parse().ok()?;
        Some((number, place.root.join(&entry.name)))
    });
    Ok(pools.collect())
}

async fn hold(disk: &Rc<dyn Disk>, device: &DataDevice, engine: Option<[u8; 16]>) -> Result<Held> {
    let part = Part { number: device.part, count: device.part_count.max(1) };
    let place = open_place(disk, &device.path, part, false).await?;
    let superblock = match place.superblock().await {
        Err(error) if engine.is_none() && matches!(error.code, Code::Csum | Code::Version) => None,
        other => other?,
    };
    if let (Some(engine), Some(found)) = (engine, &superblock)
        && let Some(owner) = found.owner
        && owner.engine != engine
    {
        return Err(wrong(&place, "holds a target of another engine".into()));
    }
    Ok(Held { place, device: device.clone(), superblock })
}

/// Removes what a device has of pools.
async fn clear(held: &Held) -> Result<ErasedDevice> {
    let place = &held.place;
    let mut numbers = Vec::new();
    for (number, dir) in pools(place).await? {
        empty(&place.disk, &dir).await?;
        place.disk.remove(&dir).await?;
        numbers.push(number);
    }
    place.disk.sync_dir(&place.root).await?;
    numbers.sort_unstable();
    let was_empty = numbers.is_empty() && held.superblock.is_none();
    Ok(ErasedDevice { device: place.name.clone(), pools: numbers, was_empty })
}

/// Removes what makes a device one of a target.
async fn forget(disk: &Rc<dyn Disk>, held: &Held) -> Result<()> {
    let place = &held.place;
    for name in crate::measure::NAMES.into_iter().chain(["superblock.new", "superblock"]) {
        match place.disk.remove(&place.root.join(name)).await {
            Err(error) if error.code != Code::NonExist => return Err(error),
            _ => {}
        }
    }
    place.disk.sync_dir(&place.root).await?;
    if !place.is_raw {
        return Ok(());
    }
    let DataDevice { path, part, part_count } = &held.device;
    volume::wipe(disk, path, Part { number: *part, count: (*part_count).max(1) }).await
}
