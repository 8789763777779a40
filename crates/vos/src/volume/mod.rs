//! A raw block device (or a regular file used raw) as a tiny file system.
//!
//! It gives the few names a store needs in units of 1 MiB: the same code then runs on a
//! directory and on a device. The first unit holds the table of names twice; a change writes one copy
//! after the other, so a torn write leaves the other, and damage of one never shows an older table: who
//! opens the volume makes the copies equal again. Each copy is:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `AZKVOLUM` |
//! | 8 | 2 | version |
//! | 10 | 2 | zero |
//! | 12 | 4 | body bytes |
//! | 16 | 8 | sequence number; the greater whole copy counts, if a crash came between them |
//! | 24 | 4 | CRC-32C of the body |
//! | 28 | 4 | CRC-32C of bytes 0..28 |
//! | 32 | … | body (postcard) |
//!
//! A device may be shared by several targets: it is cut into equal *parts*, each a volume of its
//! own with its table in its first unit. The cut depends on the size of the device when its
//! first part was made, which every table records.
//!
//! Invariants: the table is durable before an operation that changed it returns, one table write
//! is in flight at a time, and units of a removed file are used again only after that. A device
//! that is neither a volume nor all zeros at its start is refused: it may hold somebody's data.
//! File contents have no ordering of their own; the store's log and `dsync` give it.

pub(crate) mod paced;
pub(crate) mod stripe;
pub(crate) mod tier;
pub(crate) mod traffic;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use env::{AlignedBuf, DirEntry, Disk, File, Lock, OpenOptions, Room};
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, ready};
use futures_util::lock::Mutex;
use serde::{Deserialize, Serialize};
use types::{Code, Error, Result};
use wire::header::crc;

use crate::blocks::{BLOCK_BYTES, Run};
use crate::sealed;
use crate::space::Space;

/// Unit of allocation of a volume, bytes.
const UNIT_BYTES: u64 = 1 << 20;
/// Room of one copy of the table, bytes.
const TABLE_BYTES: usize = 512 << 10;
const HEAD_BYTES: usize = 32;
const MAGIC: [u8; 8] = *b"AZKVOLUM";
/// Version of the table. 2: parts; 1, of a whole device, is refused.
pub(crate) const VERSION: u16 = 2;

/// A name on the volume.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct EntryDf {
    is_dir: bool,
    bytes: u64,
    /// First unit and number of units, in the order of the content.
    runs: Vec<(u64, u64)>,
}

/// The body of a table.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TableDf {
    /// Which part of how many it is, from 0.
    part: u32,
    part_count: u32,
    /// Units of the whole device when it was cut.
    device_units: u64,
    entries: BTreeMap<String, EntryDf>,
}

/// Decodes one copy of the table and its sequence number. `Csum` when it is damaged or something
/// else, `Version` when it is of another version.
pub(crate) fn decode_table(raw: &[u8]) -> Result<(u64, TableDf)> {
    let bad = |why: &str| Error::new(Code::Csum, format!("volume table: {why}"));
    let head: &[u8; HEAD_BYTES] = raw.first_chunk().ok_or_else(|| bad("cut short"))?;
    let u32_at =
        |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if head[..8] != MAGIC || u32_at(28) != crc(&head[..28]) {
        return Err(bad("not found where it should be"));
    }
    let version = u16::from_le_bytes([head[8], head[9]]);
    if version != VERSION {
        return Err(sealed::other_version("volume table", version, VERSION));
    }
    let end = HEAD_BYTES.saturating_add(u32_at(12) as usize);
    let body = raw.get(HEAD_BYTES..end).ok_or_else(|| bad("cut short"))?;
    if crc(body) != u32_at(24) {
        return Err(bad("checksum mismatch"));
    }
    let sequence = u32_at(16) as u64 | (u32_at(20) as u64) << 32;
    let table = wire::decode(body).map_err(|error| bad(&error.to_string()))?;
    Ok((sequence, table))
}

fn encode_table(sequence: u64, table: &TableDf) -> Result<AlignedBuf> {
    let body = wire::encode(table);
    if HEAD_BYTES + body.len() > TABLE_BYTES {
        return Err(Error::new(Code::NoSpace, "the volume's table of names is full"));
    }
    let padded = (HEAD_BYTES + body.len()).next_multiple_of(BLOCK_BYTES as usize);
    let mut raw = AlignedBuf::try_zeroed(padded)?;
    raw[..8].copy_from_slice(&MAGIC);
    raw[8..10].copy_from_slice(&VERSION.to_le_bytes());
    raw[12..16].copy_from_slice(&(body.len() as u32).to_le_bytes());
    raw[16..24].copy_from_slice(&sequence.to_le_bytes());
    raw[24..28].copy_from_slice(&crc(&body).to_le_bytes());
    let sum = crc(&raw[..28]);
    raw[28..32].copy_from_slice(&sum.to_le_bytes());
    raw[HEAD_BYTES..HEAD_BYTES + body.len()].copy_from_slice(&body);
    Ok(raw)
}

/// One of the equal parts of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    /// From 0.
    pub number: u32,
    /// At least 1.
    pub count: u32,
}

/// A part of a device, opened.
pub(crate) struct Raw {
    pub disk: Rc<dyn Disk>,
    pub lock: Box<dyn Lock>,
}

/// Opens a part of `path` as a volume when it is a device or a regular file; `None` when it is a
/// directory or missing. `Busy` when it is in use; `Exist` when it holds something else, or is
/// cut in another way.
pub(crate) async fn open_raw(
    disk: &Rc<dyn Disk>,
    path: &Path,
    part: Part,
    note: &str,
) -> Result<Option<Raw>> {
    let options = OpenOptions { direct: true, ..OpenOptions::default() };
    let plain = match disk.open(path, options).await {
        Ok(plain) => plain,
        Err(error) if matches!(error.code, Code::IsDir | Code::NonExist) => return Ok(None),
        Err(error) => return Err(error),
    };
    // Beside the device, never in it.
    let mut beside = path.as_os_str().to_os_string();
    beside.push(if part.count == 1 { ".lock".into() } else { format!(".{}.lock", part.number) });
    let lock = disk.lock(Path::new(&beside), note).await.map_err(|error| {
        error.context(format!("{} is in use by another engine", path.display()))
    })?;
    let synced = disk.open(path, OpenOptions { dsync: true, ..options }).await?;
    let volume = Volume::open(plain, synced, part)
        .await
        .map_err(|error| error.context(format!("volume {}", path.display())))?;
    Ok(Some(Raw { disk: Rc::new(VolumeDisk(Rc::new(volume))), lock }))
}

/// Makes a part of a device look as if it had never been a volume. Its lock must be held; its names must be gone.
pub(crate) async fn wipe(disk: &Rc<dyn Disk>, path: &Path, part: Part) -> Result<()> {
    let options = OpenOptions { direct: true, ..OpenOptions::default() };
    let plain = disk.open(path, options).await?;
    let synced = disk.open(path, OpenOptions { dsync: true, ..options }).await?;
    let volume = Volume::open(plain, synced, part).await?;
    let zeros = AlignedBuf::try_zeroed(UNIT_BYTES as usize)?;
    volume.synced.write_at(volume.base, zeros).await.1
}

struct Volume {
    plain: Rc<dyn File>,
    synced: Rc<dyn File>,
    /// Where the part begins on the device, bytes.
    base: u64,
    table: RefCell<TableDf>,
    /// Units, each standing for one block of the allocator.
    units: RefCell<Space>,
    sequence: Cell<u64>,
    /// The copy of the table that is written first: not the only one that is whole and new.
    first_written: Cell<usize>,
    writing: Mutex<()>,
}

/// A table as it was found.
struct Found {
    sequence: u64,
    table: TableDf,
    /// The other copy, when it is older, or damaged.
    unlike: Option<usize>,
}

fn run_of(first: u64, count: u64) -> Result<Run> {
    let bad = || Error::new(Code::Csum, "volume table: impossible range of units");
    let at = first.checked_mul(BLOCK_BYTES).ok_or_else(bad)?;
    let bytes = count.checked_mul(BLOCK_BYTES).ok_or_else(bad)?;
    Ok(Run { at, bytes })
}

/// The newer whole copy of the table that begins at a byte of the device; `None` where there are
/// only zeros.
async fn read_table(plain: &Rc<dyn File>, at: u64) -> Result<Option<Found>> {
    let (head, result) = plain.read_at(at, AlignedBuf::try_zeroed(UNIT_BYTES as usize)?).await;
    if (result? as u64) < UNIT_BYTES {
        return Err(Error::new(Code::NoSpace, "the device ends too early for a volume"));
    }
    let found = |(sequence, table), unlike| Ok(Some(Found { sequence, table, unlike }));
    match [decode_table(&head[..TABLE_BYTES]), decode_table(&head[TABLE_BYTES..])] {
        [Ok(a), Ok(b)] if a.0 > b.0 => found(a, Some(1)),
        [Ok(a), Ok(b)] => {
            let unlike = (a.0 < b.0).then_some(0);
            found(b, unlike)
        }
        [Ok(a), Err(error)] if error.code == Code::Csum => found(a, Some(1)),
        [Err(error), Ok(b)] if error.code == Code::Csum => found(b, Some(0)),
        [Err(error), _] | [_, Err(error)] if error.code == Code::Version => Err(error),
        _ if head.iter().all(|&byte| byte == 0) => Ok(None),
        _ if head[..8] == MAGIC || head[TABLE_BYTES..][..8] == MAGIC => {
            Err(Error::new(Code::Csum, "both copies of its table are damaged"))
        }
        _ => Err(Error::new(
            Code::Exist,
            "it is not empty and not ours; clear its first MiB if its data may go",
        )),
    }
}

/// Checks that a table is of this part of a device that still has its size.
fn check_cut(table: &TableDf, part: Part, present_units: u64) -> Result<()> {
    if (table.part, table.part_count) != (part.number, part.count) {
        return Err(Error::new(
            Code::Exist,
            format!(
                "it is cut into {} parts and this is number {}, but number {} of {} was expected; \
                 correct the list of devices",
                table.part_count, table.part, part.number, part.count
            ),
        ));
    }
    if table.device_units > present_units {
        return Err(Error::new(
            Code::Io,
            format!(
                "it is smaller than it was: {present_units} MiB instead of {}",
                table.device_units
            ),
        ));
    }
    Ok(())
}

impl Volume {
    async fn open(plain: Rc<dyn File>, synced: Rc<dyn File>, part: Part) -> Result<Volume> {
        let present = plain.len()? / UNIT_BYTES;
        let first = read_table(&plain, 0).await?;
        if let Some(found) = &first {
            check_cut(&found.table, Part { number: 0, ..part }, present)?;
        }
        // A device that has grown since is cut as it was.
        let device_units = match &first {
            Some(found) if part.count > 1 => found.table.device_units,
            _ => present,
        };
        let units = device_units / part.count as u64;
        if units < 2 {
            return Err(Error::new(Code::NoSpace, "each part of a volume needs at least 2 MiB"));
        }
        let base = units * UNIT_BYTES * part.number as u64;
        let found = if part.number == 0 { first } else { read_table(&plain, base).await? };
        let Found { sequence, table, unlike } = match found {
            Some(found) => {
                check_cut(&found.table, part, present)?;
                found
            }
            None => {
                let (number, part_count) = (part.number, part.count);
                let entries = BTreeMap::new();
                let table = TableDf { part: number, part_count, device_units, entries };
                Found { sequence: 0, table, unlike: None }
            }
        };
        let mut space = Space::new(units * BLOCK_BYTES);
        space.claim(run_of(0, 1)?)?;
        for entry in table.entries.values() {
            for &(first, count) in &entry.runs {
                space.claim(run_of(first, count)?)?;
            }
        }
        let volume = Volume {
            plain,
            synced,
            base,
            table: RefCell::new(table),
            units: RefCell::new(space),
            sequence: Cell::new(sequence),
            first_written: Cell::new(unlike.unwrap_or(0)),
            writing: Mutex::new(()),
        };
        // A table that is not there yet is written with the first change.
        if let Some(copy) = unlike {
            let raw = encode_table(sequence, &volume.table.borrow())?;
            volume.write_copy(copy, raw).await.1?;
        }
        Ok(volume)
    }

    /// Writes one of the two copies of the table.
    async fn write_copy(&self, copy: usize, raw: AlignedBuf) -> (AlignedBuf, Result<()>) {
        let (raw, result) =
            self.synced.write_at(self.base + (copy * TABLE_BYTES) as u64, raw).await;
        (raw, result.map_err(|error| error.context("writing the volume's table")))
    }

    /// Makes the table as it is now durable.
    async fn commit(&self) -> Result<()> {
        let _writing = self.writing.lock().await;
        let sequence = self.sequence.get() + 1;
        let raw = encode_table(sequence, &self.table.borrow())?;
        let first = self.first_written.get();
        let (raw, result) = self.write_copy(first, raw).await;
        result?;
        // Only now: a failed write must not make the next one overwrite the good copy.
        self.sequence.set(sequence);
        self.first_written.set(1 - first);
        // What is durable in one copy holds; the next change, or who opens it next, writes the other.
        if let (_, Err(error)) = self.write_copy(1 - first, raw).await {
            tracing::warn!("the second copy: {error}");
        }
        Ok(())
    }

    fn give_back(&self, runs: &[(u64, u64)]) -> Result<()> {
        for &(first, count) in runs {
            self.units.borrow_mut().give_back(run_of(first, count)?);
        }
        Ok(())
    }

    /// Makes a file `bytes` long; new units hold whatever they held.
    async fn resize(&self, name: &str, bytes: u64) -> Result<()> {
        let mut gone = Vec::new();
        {
            let mut table = self.table.borrow_mut();
            let entry = table.entries.get_mut(name).ok_or(Code::NonExist)?;
            let have: u64 = entry.runs.iter().map(|(_, count)| count).sum();
            let want = bytes.div_ceil(UNIT_BYTES);
            let mut missing = want.saturating_sub(have);
            let mut added = Vec::new();
            while missing > 0 {
                match self.units.borrow_mut().take(missing * BLOCK_BYTES) {
                    Ok(run) => {
                        let count = run.end_block() - run.first_block();
                        added.push((run.first_block(), count));
                        missing -= count;
                    }
                    Err(_) => break,
                }
            }
            if missing > 0 {
                drop(table);
                self.give_back(&added)?;
                return Err(Error::new(Code::NoSpace, "the volume is full"));
            }
            entry.runs.extend(added);
            let mut excess = have.saturating_sub(want);
            while excess > 0
                && let Some((first, count)) = entry.runs.pop()
            {
                let cut = count.min(excess);
                if count > cut {
                    entry.runs.push((first, count - cut));
                }
                gone.push((first + count - cut, cut));
                excess -= cut;
            }
            entry.bytes = bytes;
        }
        self.commit().await?;
        self.give_back(&gone)
    }

    /// Device offset and length of the contiguous part of a file at `offset`, at most `bytes`.
    fn map(&self, name: &str, offset: u64, bytes: u64) -> Result<(u64, u64)> {
        let table = self.table.borrow();
        let entry = table.entries.get(name).ok_or(Code::NonExist)?;
        let mut before = 0;
        for &(first, count) in &entry.runs {
            let length = count * UNIT_BYTES;
            if offset < before + length {
                let skip = offset - before;
                let at = self.base + first * UNIT_BYTES + skip;
                return Ok((at, bytes.min(length - skip)));
            }
            before += length;
        }
        Err(Error::new(Code::Io, "beyond the end of a file of the volume"))
    }
}

struct VolumeFile {
    volume: Rc<Volume>,
    name: String,
    dsync: bool,
}

impl VolumeFile {
    fn device(&self) -> Rc<dyn File> {
        if self.dsync { self.volume.synced.clone() } else { self.volume.plain.clone() }
    }
}

fn check_aligned(offset: u64, bytes: usize) -> Result<()> {
    if !offset.is_multiple_of(BLOCK_BYTES) || !(bytes as u64).is_multiple_of(BLOCK_BYTES) {
        return Err(Error::inval("I/O on a volume goes in whole blocks of 4096 bytes"));
    }
    Ok(())
}

impl File for VolumeFile {
    fn read_at(
        &self,
        offset: u64,
        buf: AlignedBuf,
    ) -> LocalBoxFuture<'static, (AlignedBuf, Result<usize>)> {
        let (volume, device, name) = (self.volume.clone(), self.device(), self.name.clone());
        let length = self.len();
        async move {
            let mut buf = buf;
            let run = async {
                check_aligned(offset, buf.len())?;
                let want = length?.saturating_sub(offset).min(buf.len() as u64);
                let mut done = 0;
                while done < want {
                    let (at, bytes) = volume.map(&name, offset + done, want - done)?;
                    let padded = bytes.next_multiple_of(BLOCK_BYTES);
                    let part = AlignedBuf::try_zeroed(padded as usize)?;
                    let (part, result) = device.read_at(at, part).await;
                    if (result? as u64) < bytes {
                        return Err(Error::new(Code::Io, "the device ends early"));
                    }
                    buf[done as usize..(done + bytes) as usize]
                        .copy_from_slice(&part[..bytes as usize]);
                    done += bytes;
                }
                Ok(done as usize)
            };
            let outcome = run.await;
            (buf, outcome)
        }
        .boxed_local()
    }

    fn write_at(
        &self,
        offset: u64,
        buf: AlignedBuf,
    ) -> LocalBoxFuture<'static, (AlignedBuf, Result<()>)> {
        let (volume, device, name) = (self.volume.clone(), self.device(), self.name.clone());
        let length = self.len();
        async move {
            if let Err(error) = check_aligned(offset, buf.len()) {
                return (buf, Err(error));
            }
            let end = offset + buf.len() as u64;
            let grown = match length {
                Ok(length) if length < end => volume.resize(&name, end).await,
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = grown {
                return (buf, Err(error));
            }
            // Nearly always one piece, written as it is.
            match volume.map(&name, offset, buf.len() as u64) {
                Ok((at, bytes)) if bytes == buf.len() as u64 => {
                    return device.write_at(at, buf).await;
                }
                Err(error) => return (buf, Err(error)),
                Ok(_) => {}
            }
            let run = async {
                let mut done = 0;
                while done < buf.len() {
                    let left = (buf.len() - done) as u64;
                    let (at, bytes) = volume.map(&name, offset + done as u64, left)?;
                    let part = AlignedBuf::copy_of(&buf[done..done + bytes as usize]);
                    device.write_at(at, part).await.1?;
                    done += bytes as usize;
                }
                Ok(())
            };
            let outcome = run.await;
            (buf, outcome)
        }
        .boxed_local()
    }

    fn sync(&self) -> LocalBoxFuture<'static, Result<()>> {
        self.volume.plain.sync()
    }

    fn len(&self) -> Result<u64> {
        let table = self.volume.table.borrow();
        Ok(table.entries.get(&self.name).ok_or(Code::NonExist)?.bytes)
    }

    fn is_device(&self) -> bool {
        self.volume.plain.is_device()
    }

    fn is_direct(&self) -> bool {
        self.volume.plain.is_direct()
    }

    fn set_len(&self, bytes: u64) -> LocalBoxFuture<'static, Result<()>> {
        let (volume, name) = (self.volume.clone(), self.name.clone());
        async move { volume.resize(&name, bytes).await }.boxed_local()
    }

    fn allocate(&self, offset: u64, bytes: u64) -> LocalBoxFuture<'static, Result<()>> {
        let (volume, name, length) = (self.volume.clone(), self.name.clone(), self.len());
        async move {
            let end = offset.checked_add(bytes).ok_or(Code::Inval)?;
            if length? < end { volume.resize(&name, end).await } else { Ok(()) }
        }
        .boxed_local()
    }

    fn discard(&self, offset: u64, bytes: u64) -> LocalBoxFuture<'static, Result<()>> {
        let (volume, device, name) = (self.volume.clone(), self.device(), self.name.clone());
        async move {
            check_aligned(offset, bytes as usize)?;
            let mut done = 0;
            while done < bytes {
                let (at, part) = volume.map(&name, offset + done, bytes - done)?;
                device.discard(at, part).await?;
                done += part;
            }
            Ok(())
        }
        .boxed_local()
    }
}

struct VolumeDisk(Rc<Volume>);

fn name_of(path: &Path) -> Result<String> {
    let text = path.to_str().ok_or_else(|| Error::inval("a volume's names are UTF-8"))?;
    Ok(text.to_string())
}

impl Disk for VolumeDisk {
    fn open(
        &self,
        path: &Path,
        options: OpenOptions,
    ) -> LocalBoxFuture<'static, Result<Rc<dyn File>>> {
        let (volume, name) = (self.0.clone(), name_of(path));
        async move {
            let name = name?;
            let found = volume.table.borrow().entries.get(&name).map(|entry| entry.is_dir);
            match found {
                Some(true) => return Err(Code::IsDir.into()),
                Some(false) if options.create && options.exclusive => {
                    return Err(Code::Exist.into());
                }
                Some(false) => {}
                None if !options.create => {
                    return Err(Error::new(Code::NonExist, format!("{name}: not on the volume")));
                }
                None => {
                    volume.table.borrow_mut().entries.insert(name.clone(), EntryDf::default());
                    volume.commit().await?;
                }
            }
            Ok(Rc::new(VolumeFile { volume, name, dsync: options.dsync }) as Rc<dyn File>)
        }
        .boxed_local()
    }

    fn create_dir(&self, path: &Path) -> LocalBoxFuture<'static, Result<()>> {
        let (volume, name) = (self.0.clone(), name_of(path));
        async move {
            let name = name?;
            if volume.table.borrow().entries.contains_key(&name) {
                return Err(Code::Exist.into());
            }
            let entry = EntryDf { is_dir: true, ..EntryDf::default() };
            volume.table.borrow_mut().entries.insert(name, entry);
            volume.commit().await
        }
        .boxed_local()
    }

    fn list(&self, path: &Path) -> LocalBoxFuture<'static, Result<Vec<DirEntry>>> {
        let table = self.0.table.borrow();
        let inside = table.entries.iter().filter_map(|(name, entry)| {
            let full = PathBuf::from(name);
            (full.parent() == Some(path)).then(|| DirEntry {
                name: full.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                is_dir: entry.is_dir,
            })
        });
        ready(Ok(inside.collect())).boxed_local()
    }

    fn rename(&self, from: &Path, to: &Path) -> LocalBoxFuture<'static, Result<()>> {
        let (volume, from, to) = (self.0.clone(), name_of(from), name_of(to));
        async move {
            let replaced = {
                let mut table = volume.table.borrow_mut();
                let entry = table.entries.remove(&from?).ok_or(Code::NonExist)?;
                table.entries.insert(to?, entry)
            };
            volume.commit().await?;
            volume.give_back(&replaced.unwrap_or_default().runs)
        }
        .boxed_local()
    }

    fn remove(&self, path: &Path) -> LocalBoxFuture<'static, Result<()>> {
        let (volume, name) = (self.0.clone(), name_of(path));
        let occupied = {
            let table = self.0.table.borrow();
            table.entries.keys().any(|inner| Path::new(inner).parent() == Some(path))
        };
        async move {
            if occupied {
                return Err(Code::NotEmpty.into());
            }
            let gone = volume.table.borrow_mut().entries.remove(&name?).ok_or(Code::NonExist)?;
            volume.commit().await?;
            volume.give_back(&gone.runs)
        }
        .boxed_local()
    }

    fn sync_dir(&self, _path: &Path) -> LocalBoxFuture<'static, Result<()>> {
        // Names are durable when the operation that changed them returns.
        ready(Ok(())).boxed_local()
    }

    fn room(&self, _path: &Path) -> LocalBoxFuture<'static, Result<Room>> {
        let units = self.0.units.borrow();
        let in_bytes = |bytes: u64| bytes / BLOCK_BYTES * UNIT_BYTES;
        let (total_bytes, free_bytes) = (in_bytes(units.bytes()), in_bytes(units.free_bytes()));
        ready(Ok(Room { total_bytes, free_bytes })).boxed_local()
    }

    fn lock(&self, _path: &Path, _note: &str) -> LocalBoxFuture<'static, Result<Box<dyn Lock>>> {
        let refused = Error::new(Code::NotSupported, "a volume is locked as a whole");
        ready(Err(refused)).boxed_local()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_the_table() {
        // A change here is a change of format: bump VERSION and keep reading the old one.
        let entry = EntryDf { is_dir: false, bytes: 300, runs: vec![(1, 2)] };
        let entries = BTreeMap::from([("/a".to_string(), entry)]);
        let table = TableDf { part: 1, part_count: 3, device_units: 9, entries };
        let raw = encode_table(5, &table).unwrap();
        assert_eq!(raw.len(), 4096);
        assert_eq!(&raw[..24], b"AZKVOLUM\x02\0\0\0\x0d\0\0\0\x05\0\0\0\0\0\0\0");
        assert_eq!(&raw[32..46], b"\x01\x03\x09\x01\x02/a\0\xac\x02\x01\x01\x02\0");
        assert_eq!(decode_table(&raw).unwrap(), (5, table));
    }
}
