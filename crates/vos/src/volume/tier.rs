//! The devices of a target: where its index and log are (*scm*), where its large values are
//! (*nvme*).
//!
//! A target has one device for both, or one for the first and one or several for the second.
//! The superblocks name each other, so a device that is missing, swapped or of another target is
//! refused before anything is written to any of them.
//!
//! Making a target on several devices is not atomic: the scm superblock is written first, as
//! *unfinished*, then those of the data devices, then the scm one again. Until then nothing is
//! stored, and the next open goes on where this one stopped.
//!
//! Several targets may share a data device. A raw one is cut into equal parts when the first of them is made, and stays so. In a
//! directory each has a sub-directory, and further targets may come later: one that was alone there stays where it was.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use env::{Disk, Env, Lock, Room};
use serde::{Deserialize, Serialize};
use types::{Code, Error, Result};

use crate::sealed::{self, read_sealed, write_sealed};
use crate::volume::{self, Part};

const SUPERBLOCK_MAGIC: [u8; 8] = *b"AZKSTORE";
/// Version of the superblock and of what a store keeps: pages, images and records have versions of their own, and this one is
/// counted up with what all of them share. 4: facts of units count links; older ones are refused.
pub(crate) const SUPERBLOCK_VERSION: u16 = 4;
/// Most data devices of one target.
pub const DATA_DEVICES_MAX: usize = 16;
/// Bytes of a path kept in a superblock, for messages.
const PATH_BYTES_MAX: usize = 160;

/// The devices of a target. Each is a directory, a block device, or a file used as one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Devices {
    /// Index and log; and the data when `nvme` is empty.
    pub scm: PathBuf,
    /// Data, striped over all of them; at most [`DATA_DEVICES_MAX`].
    pub nvme: Vec<DataDevice>,
}

/// A data device, or a part of one that several targets share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataDevice {
    /// A directory, a block device, or a file used as one.
    pub path: PathBuf,
    /// Which of the equal parts of the device, from 0. In a directory: which sub-directory.
    pub part: u32,
    /// Number of parts, at least 1; 1: the whole device.
    pub part_count: u32,
}

impl Devices {
    /// One device for both tiers.
    pub fn one(path: &Path) -> Devices {
        Devices { scm: path.to_path_buf(), nvme: Vec::new() }
    }
}

impl DataDevice {
    pub fn whole(path: &Path) -> DataDevice {
        DataDevice { path: path.to_path_buf(), part: 0, part_count: 1 }
    }

    /// Further targets can have parts of it while others are served from theirs: it is a directory. Errors: those of the device.
    pub async fn takes_further_parts(&self, env: &Env) -> Result<bool> {
        match env.disk().list(&self.path).await {
            Ok(_) => Ok(true),
            Err(error) if error.code == Code::NotDir => Ok(false),
            Err(error) => Err(error.context(format!("data device {}", self.path.display()))),
        }
    }
}

/// Whose target it is, so that targets of an engine cannot be mixed up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Owner {
    /// Identity of the engine.
    pub engine: [u8; 16],
    /// Number of the target in the engine's configuration, from 0.
    pub number: u32,
}

/// Identity of a device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SuperblockDf {
    /// Random identity of the target.
    pub target: [u8; 16],
    pub owner: Option<Owner>,
    pub role: RoleDf,
}

/// What a device is to its target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum RoleDf {
    /// It holds everything.
    Whole,
    /// It holds index and log; the data is on these, in this order.
    Scm { nvme: Vec<DeviceDf>, finished: bool },
    /// It is one of the data devices.
    Nvme {
        device: [u8; 16],
        number: u32,
        /// Where index and log were when the target was made.
        scm: String,
    },
}

/// A data device as its target knows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct DeviceDf {
    /// Random identity.
    pub device: [u8; 16],
    /// Where it was when the target was made.
    pub path: String,
}

pub(crate) fn decode_superblock(raw: &[u8]) -> Result<SuperblockDf> {
    sealed::unseal(SUPERBLOCK_MAGIC, SUPERBLOCK_VERSION, raw)
}

/// An open device: names on a disk, and the right to use them.
pub(crate) struct Place {
    pub disk: Rc<dyn Disk>,
    pub root: PathBuf,
    /// What the user calls it.
    pub name: String,
    /// A device of its own.
    pub is_raw: bool,
    /// Targets that have the room of one directory together.
    sharing: Cell<u32>,
    _lock: Box<dyn Lock>,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Place({})", self.name)
    }
}

impl Place {
    /// Room of the device, or of the file system it is on.
    pub(crate) async fn room(&self) -> Result<Room> {
        self.disk.room(&self.root).await
    }

    /// Its part of that, where targets share a directory: together they have the room once.
    pub(crate) async fn own_room(&self) -> Result<Room> {
        let (room, sharing) = (self.room().await?, u64::from(self.sharing.get().max(1)));
        let Room { total_bytes, free_bytes } = room;
        Ok(Room { total_bytes: total_bytes / sharing, free_bytes: free_bytes / sharing })
    }

    /// What it says of itself; `None` when it holds nothing.
    pub(crate) async fn superblock(&self) -> Result<Option<SuperblockDf>> {
        match read_sealed(&self.disk, &self.root.join("superblock")).await {
            Ok(raw) => decode_superblock(&raw)
                .map(Some)
                .map_err(|error| error.context(format!("superblock of {}", self.name))),
            Err(error) if error.code == Code::NonExist => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn write_superblock(&self, superblock: &SuperblockDf) -> Result<()> {
        let raw = sealed::seal(SUPERBLOCK_MAGIC, SUPERBLOCK_VERSION, superblock);
        write_sealed(&self.disk, &self.root, "superblock", &raw).await
    }
}

/// The devices of a target, open and checked.
#[derive(Debug)]
pub(crate) struct Places {
    pub target: [u8; 16],
    pub owner: Option<Owner>,
    pub scm: Place,
    /// Empty: the data is on `scm`.
    pub nvme: Vec<Place>,
    /// Others may fill what index and log are on, so room is kept ahead.
    pub keeps_room: bool,
}

impl Places {
    /// Both tiers are on one file system, which takes back room of either.
    pub(crate) fn tiers_share_room(&self) -> bool {
        self.nvme.is_empty() && !self.scm.is_raw
    }

    /// So many targets have parts of each of the data devices from now on.
    pub(crate) fn share(&self, counts: &[u32]) {
        let dirs = self.nvme.iter().zip(counts).filter(|(place, _)| !place.is_raw);
        dirs.for_each(|(place, count)| place.sharing.set(*count));
    }
}

/// How devices are opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// A target that is not there is made.
    Serve(Option<Owner>),
    /// A target must be there, whoever owns it.
    Inspect,
}

/// A directory under `/dev` that is no device is a device that is missing.
fn may_make(path: &Path) -> bool {
    !path.starts_with("/dev") || path.starts_with("/dev/shm")
}

async fn make_dir(disk: &Rc<dyn Disk>, path: &Path) -> Result<()> {
    match disk.create_dir(path).await {
        Ok(()) => {
            let parent = path.parent().filter(|parent| *parent != Path::new(""));
            disk.sync_dir(parent.unwrap_or(Path::new("."))).await
        }
        Err(error) if error.code == Code::Exist => Ok(()),
        Err(error) => Err(error.context(format!("making {}", path.display()))),
    }
}

/// Where a part of a directory is: the first one in the directory itself, where its target was there before others came.
async fn part_root(disk: &Rc<dyn Disk>, path: &Path, part: Part) -> Result<PathBuf> {
    if part.count == 1 {
        return Ok(path.to_path_buf());
    }
    let below = path.join(format!("part.{}", part.number));
    if part.number > 0 || holds_superblock(disk, &below).await? {
        return Ok(below);
    }
    Ok(if holds_superblock(disk, path).await? { path.to_path_buf() } else { below })
}

async fn holds_superblock(disk: &Rc<dyn Disk>, dir: &Path) -> Result<bool> {
    match disk.list(dir).await {
        Ok(entries) => Ok(entries.iter().any(|entry| entry.name == "superblock")),
        Err(error) if error.code == Code::NonExist => Ok(false),
        Err(error) => Err(error),
    }
}

/// Opens one device; a directory is made if it is missing and `make` says so.
pub(crate) async fn open_place(
    disk: &Rc<dyn Disk>,
    path: &Path,
    part: Part,
    make: bool,
) -> Result<Place> {
    let note = format!("pid {} on {}", std::process::id(), env::host_identity());
    let mut name = path.display().to_string();
    if part.count > 1 {
        name = format!("{name} (part {} of {})", part.number, part.count);
    }
    if let Some(raw) = volume::open_raw(disk, path, part, &note).await? {
        return Ok(Place {
            disk: raw.disk,
            root: PathBuf::from("/"),
            name,
            is_raw: true,
            sharing: Cell::new(1),
            _lock: raw.lock,
        });
    }
    if disk.list(path).await.is_err_and(|error| error.code == Code::NonExist) {
        if !make || !may_make(path) {
            return Err(Error::new(
                Code::NonExist,
                format!("{name} is not there; is the device attached and mounted?"),
            ));
        }
        make_dir(disk, path).await?;
    }
    let root = part_root(disk, path, part).await?;
    if make && root != path {
        make_dir(disk, &root).await?;
    }
    let lock = disk
        .lock(&root.join("lock"), &note)
        .await
        .map_err(|error| error.context(format!("{name} is in use by another engine")))?;
    let sharing = Cell::new(part.count);
    Ok(Place { disk: disk.clone(), root, name, is_raw: false, sharing, _lock: lock })
}

const WHOLE: Part = Part { number: 0, count: 1 };

async fn open_data_devices(
    disk: &Rc<dyn Disk>,
    devices: &Devices,
    make: bool,
) -> Result<Vec<Place>> {
    let mut places = Vec::new();
    for device in &devices.nvme {
        let part = Part { number: device.part, count: device.part_count.max(1) };
        let opened = open_place(disk, &device.path, part, make).await;
        places.push(opened.map_err(|error| error.context("data device"))?);
    }
    Ok(places)
}

fn short(id: &[u8; 16]) -> String {
    id[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A path for a message, its end if it is long.
fn remembered(name: &str) -> String {
    let cut = name.len().saturating_sub(PATH_BYTES_MAX);
    let start = (cut..=name.len()).find(|&at| name.is_char_boundary(at)).unwrap_or(0);
    name[start..].to_string()
}

fn describe(superblock: &SuperblockDf) -> String {
    let target = short(&superblock.target);
    match &superblock.role {
        RoleDf::Whole => format!("holds target {target} whole"),
        RoleDf::Scm { .. } => format!("holds index and log of target {target}"),
        RoleDf::Nvme { number, scm, .. } => {
            format!("is data device {number} of target {target}, whose index was at {scm}")
        }
    }
}

pub(crate) fn wrong(place: &Place, text: String) -> Error {
    Error::new(Code::Inval, format!("wrong device: {} {text}", place.name))
}

/// Opens the devices of a target and checks that they are its own; makes the target when all of
/// them are empty.
///
/// `Busy` when one is in use; `Inval` when one is another device than it should be; `NonExist`
/// when one is missing; `Version` or `Csum` when a superblock cannot be used.
pub(crate) async fn open(
    env: &Env,
    disk: &Rc<dyn Disk>,
    devices: &Devices,
    mode: Mode,
) -> Result<Places> {
    if devices.nvme.len() > DATA_DEVICES_MAX {
        return Err(Error::inval(format!("a target has at most {DATA_DEVICES_MAX} data devices")));
    }
    let scm = open_place(disk, &devices.scm, WHOLE, mode != Mode::Inspect).await?;
    let found = scm.superblock().await?;
    if mode == Mode::Inspect && found.is_none() {
        return Err(wrong(&scm, "holds no target".into()));
    }
    if let Some(superblock) = &found {
        check_role(&scm, superblock, devices)?;
        check_owner(&scm, superblock, mode)?;
    }
    // Once a target is finished, a directory that is missing is a device that is missing.
    let finished = match &found {
        Some(SuperblockDf { role: RoleDf::Scm { finished, .. }, .. }) => *finished,
        other => other.is_some(),
    };
    let nvme = open_data_devices(disk, devices, !finished && mode != Mode::Inspect).await?;
    for (at, place) in nvme.iter().enumerate() {
        let there = place.superblock().await?;
        check_data_device(place, at, there.as_ref(), found.as_ref(), finished)?;
    }
    let owner = match mode {
        Mode::Serve(owner) => owner,
        Mode::Inspect => None,
    };
    let mut superblock = found.clone().unwrap_or_else(|| {
        let named =
            |place: &Place| DeviceDf { device: random_id(env), path: remembered(&place.name) };
        let role = match &nvme[..] {
            [] => RoleDf::Whole,
            places => RoleDf::Scm { nvme: places.iter().map(named).collect(), finished: false },
        };
        SuperblockDf { target: random_id(env), owner, role }
    });
    superblock.owner = superblock.owner.or(owner);
    if mode != Mode::Inspect && found.as_ref() != Some(&superblock) {
        scm.write_superblock(&superblock).await?;
    }
    if let RoleDf::Scm { nvme: known, finished } = &mut superblock.role
        && !*finished
        && mode != Mode::Inspect
    {
        for (number, (place, device)) in nvme.iter().zip(known.iter()).enumerate() {
            let role = RoleDf::Nvme {
                device: device.device,
                number: number as u32,
                scm: remembered(&scm.name),
            };
            let target = superblock.target;
            place.write_superblock(&SuperblockDf { target, owner: None, role }).await?;
        }
        *finished = true;
        scm.write_superblock(&superblock).await?;
    }
    let keeps_room = mode != Mode::Inspect && !scm.is_raw;
    Ok(Places { target: superblock.target, owner: superblock.owner, scm, nvme, keeps_room })
}

/// Checks that what is on the first device goes with the number of data devices given.
fn check_role(scm: &Place, superblock: &SuperblockDf, devices: &Devices) -> Result<()> {
    match &superblock.role {
        RoleDf::Whole if devices.nvme.is_empty() => Ok(()),
        RoleDf::Whole => Err(wrong(
            scm,
            format!(
                "{}, but data devices are given; a target cannot be split later",
                describe(superblock)
            ),
        )),
        RoleDf::Scm { nvme, .. } if nvme.len() == devices.nvme.len() => Ok(()),
        RoleDf::Scm { nvme, .. } => {
            let paths: Vec<&str> = nvme.iter().map(|device| &device.path[..]).collect();
            Err(wrong(
                scm,
                format!(
                    "{}, whose data is on {} device(s) ({}), but {} are given",
                    describe(superblock),
                    nvme.len(),
                    paths.join(", "),
                    devices.nvme.len()
                ),
            ))
        }
        RoleDf::Nvme { .. } => Err(wrong(
            scm,
            format!("{}; it cannot be used for index and log", describe(superblock)),
        )),
    }
}

fn check_owner(scm: &Place, superblock: &SuperblockDf, mode: Mode) -> Result<()> {
    let (Mode::Serve(Some(owner)), Some(known)) = (mode, superblock.owner) else { return Ok(()) };
    if known == owner {
        return Ok(());
    }
    let of = if known.engine == owner.engine {
        "of this engine".to_string()
    } else {
        format!("of engine {}, this one is {}", short(&known.engine), short(&owner.engine))
    };
    Err(wrong(
        scm,
        format!(
            "holds target number {} {of}, but is given as number {}",
            known.number, owner.number
        ),
    ))
}

/// Checks what is on data device `at` against what the index says, if there is one.
fn check_data_device(
    place: &Place,
    at: usize,
    there: Option<&SuperblockDf>,
    scm: Option<&SuperblockDf>,
    finished: bool,
) -> Result<()> {
    let known = match scm {
        Some(SuperblockDf { role: RoleDf::Scm { nvme, .. }, target, .. }) => Some((*target, nvme)),
        _ => None,
    };
    match (there, known) {
        (None, Some((target, nvme))) if finished => Err(Error::new(
            Code::NonExist,
            format!(
                "missing device: {} holds nothing, but data device {at} of target {} (made as {}) \
                 should be there",
                place.name,
                short(&target),
                nvme[at].path
            ),
        )),
        (None, _) => Ok(()),
        (Some(superblock), None) => Err(wrong(
            place,
            format!(
                "{}, but the device for index and log is empty. Is that one not mounted, or was \
                 it memory that went with a restart? To begin anew, clear both",
                describe(superblock)
            ),
        )),
        (Some(superblock), Some((target, nvme))) => match &superblock.role {
            RoleDf::Nvme { device, .. }
                if superblock.target == target && *device == nvme[at].device =>
            {
                Ok(())
            }
            _ => Err(wrong(
                place,
                format!(
                    "{}, but data device {at} of target {} (made as {}) should be there",
                    describe(superblock),
                    short(&target),
                    nvme[at].path
                ),
            )),
        },
    }
}

/// A random identity.
pub(crate) fn random_id(env: &Env) -> [u8; 16] {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&env.random_u64().to_le_bytes());
    id[8..].copy_from_slice(&env.random_u64().to_le_bytes());
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_superblocks() {
        // A change here is a change of format: bump SUPERBLOCK_VERSION.
        let body = |superblock: &SuperblockDf| {
            let raw = sealed::seal(SUPERBLOCK_MAGIC, SUPERBLOCK_VERSION, superblock);
            assert_eq!(decode_superblock(&raw).unwrap(), *superblock);
            assert_eq!(&raw[..10], b"AZKSTORE\x04\0");
            raw[16..16 + raw[10] as usize].to_vec()
        };
        let owner = Some(Owner { engine: *b"EEEEEEEEEEEEEEEE", number: 3 });
        let target = *b"TTTTTTTTTTTTTTTT";
        let whole = SuperblockDf { target, owner: None, role: RoleDf::Whole };
        assert_eq!(body(&whole), b"TTTTTTTTTTTTTTTT\0\0");
        let nvme = vec![DeviceDf { device: *b"DDDDDDDDDDDDDDDD", path: "/n".into() }];
        let scm = SuperblockDf { target, owner, role: RoleDf::Scm { nvme, finished: true } };
        let want = b"TTTTTTTTTTTTTTTT\x01EEEEEEEEEEEEEEEE\x03\x01\x01DDDDDDDDDDDDDDDD\x02/n\x01";
        assert_eq!(body(&scm), want);
        let role = RoleDf::Nvme { device: *b"DDDDDDDDDDDDDDDD", number: 2, scm: "/s".into() };
        let data = SuperblockDf { target, owner: None, role };
        assert_eq!(body(&data), b"TTTTTTTTTTTTTTTT\0\x02DDDDDDDDDDDDDDDD\x02\x02/s");
    }

    /// Before units (2), a target's index named whole objects: two groups of one object would have become one. Before links
    /// were counted (3), what is kept of a unit had a number less. Such a store is refused as a whole, at its door, in words that say what
    /// to do, and not by the first page that cannot be decoded.
    #[test]
    fn stores_of_older_formats_are_refused() {
        let target = *b"TTTTTTTTTTTTTTTT";
        let superblock = SuperblockDf { target, owner: None, role: RoleDf::Whole };
        for version in [2, 3] {
            let sealed = sealed::seal(SUPERBLOCK_MAGIC, version, &superblock);
            let refused = decode_superblock(&sealed).unwrap_err();
            assert_eq!(refused.code, Code::Version);
            let told = format!("format version {version}, this program reads 4");
            assert!(refused.text.contains(&told), "{refused}");
            assert!(refused.text.contains("copy the data out with that"), "{refused}");
        }
    }

    #[test]
    fn a_full_list_of_long_paths_fits_the_superblock() {
        let path = remembered(&"ü".repeat(3000));
        assert!(path.len() <= PATH_BYTES_MAX);
        let nvme = vec![DeviceDf { device: [1; 16], path }; DATA_DEVICES_MAX];
        let owner = Some(Owner { engine: [2; 16], number: u32::MAX });
        let role = RoleDf::Scm { nvme, finished: true };
        sealed::seal(
            SUPERBLOCK_MAGIC,
            SUPERBLOCK_VERSION,
            &SuperblockDf { target: [3; 16], owner, role },
        );
    }
}
