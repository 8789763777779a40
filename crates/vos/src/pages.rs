//! The page area: images of pages of the index and the tables that list them.
//!
//! An image is written to blocks that nothing durable names, and never changed. It begins with a
//! header of 32 bytes, then says which page it is, then holds the page's records:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `AZKP` |
//! | 4 | 2 | version of pages and tables |
//! | 6 | 2 | zero |
//! | 8 | 16 | uuid of the shard |
//! | 24 | 4 | bytes after the header |
//! | 28 | 4 | CRC-32C of all of it, with this field zero |
//!
//! Whoever names an image knows its checksum too, so an old image in its place is not taken for
//! it. What makes an image durable is one sync of the area before a table is.
//!
//! The area is a file of its own beside the data, thin: it grows as pages need it, up to room for
//! three times what the index tier may count, which is more than two copies of all of it take.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use env::{AlignedBuf, Env, File};
use futures_util::future::join_all;
use futures_util::lock::Mutex;
use serde::{Deserialize, Serialize};
use types::{Code, ContId, Error, Result, Unit};
use wire::header::crc;

use crate::blocks::{BLOCK_BYTES, Run};
use crate::index::page::{PageId, PagePlace};
use crate::log::table_ref::PlaceDf;
use crate::space::{ReadGuard, Space};

const MAGIC: [u8; 4] = *b"AZKP";
/// Version of pages and tables. 1: first release with checkpoints (0.2).
pub(crate) const PAGE_VERSION: u16 = 2;
const HEADER_BYTES: usize = 32;
/// Room of the area beside three times the index tier, bytes.
const ROOM_BYTES: u64 = 256 << 20;
/// The file grows by an eighth of itself, at least and at most this, bytes.
const GROWTH_BYTES_MIN: u64 = 1 << 20;
const GROWTH_BYTES_MAX: u64 = 64 << 20;

/// What an image says it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum PageIdDf<'a> {
    /// A bucket of small objects.
    Bucket { cont: ContId, prefix: u64, depth: u8 },
    /// A part of a large one.
    Part {
        cont: ContId,
        unit: Unit,
        #[serde(with = "serde_bytes", borrow)]
        start: &'a [u8],
    },
    /// A piece of a table.
    Table { number: u32 },
    /// The past of a large object.
    Past { cont: ContId, unit: Unit },
}

impl<'a> From<&'a PageId> for PageIdDf<'a> {
    fn from(id: &'a PageId) -> PageIdDf<'a> {
        match id {
            PageId::Bucket { cont, prefix, depth } => {
                PageIdDf::Bucket { cont: *cont, prefix: *prefix, depth: *depth }
            }
            PageId::Part { cont, unit, start } => {
                PageIdDf::Part { cont: *cont, unit: *unit, start }
            }
            PageId::Past { cont, unit } => PageIdDf::Past { cont: *cont, unit: *unit },
        }
    }
}

impl From<&PagePlace> for PlaceDf {
    fn from(place: &PagePlace) -> PlaceDf {
        let runs = place.runs.iter().map(|run| (run.at / BLOCK_BYTES, run.bytes / BLOCK_BYTES));
        PlaceDf { runs: runs.collect(), bytes: place.bytes, crc: place.crc }
    }
}

impl PlaceDf {
    /// Checked form. `Csum` when it makes no sense.
    pub(crate) fn place(&self) -> Result<PagePlace> {
        let bad = || Error::new(Code::Csum, "a table names an impossible place of a page");
        let mut blocks = 0u64;
        let mut place =
            PagePlace { bytes: self.bytes, crc: self.crc, runs: smallvec::SmallVec::new() };
        for &(first, count) in &self.runs {
            let at = first.checked_mul(BLOCK_BYTES).ok_or_else(bad)?;
            let bytes = count.checked_mul(BLOCK_BYTES).ok_or_else(bad)?;
            at.checked_add(bytes).filter(|_| count > 0).ok_or_else(bad)?;
            blocks = blocks.checked_add(count).ok_or_else(bad)?;
            place.runs.push(Run { at, bytes });
        }
        if blocks != (self.bytes as u64).div_ceil(BLOCK_BYTES) || self.bytes == 0 {
            return Err(bad());
        }
        Ok(place)
    }
}

/// Encodes an image.
pub(crate) fn encode(shard: &[u8; 16], id: &PageIdDf<'_>, body: &[u8]) -> Result<AlignedBuf> {
    let name = wire::encode(id);
    let bytes = name.len() + body.len();
    let length = u32::try_from(bytes)
        .ok()
        .filter(|&bytes| bytes <= u32::MAX - BLOCK_BYTES as u32)
        .ok_or_else(|| Error::new(Code::Io, "a page of the index is over 4 GiB"))?;
    let mut raw = AlignedBuf::try_zeroed(HEADER_BYTES + bytes)?;
    raw[..4].copy_from_slice(&MAGIC);
    raw[4..6].copy_from_slice(&PAGE_VERSION.to_le_bytes());
    raw[8..24].copy_from_slice(shard);
    raw[24..28].copy_from_slice(&length.to_le_bytes());
    raw[HEADER_BYTES..HEADER_BYTES + name.len()].copy_from_slice(&name);
    raw[HEADER_BYTES + name.len()..].copy_from_slice(body);
    let sum = crc(&raw);
    raw[28..32].copy_from_slice(&sum.to_le_bytes());
    Ok(raw)
}

/// Decodes an image: what it is, and its body. `Csum` when it is damaged or of another shard,
/// `Version` when it is of another version.
pub(crate) fn decode<'a>(shard: &[u8; 16], raw: &'a [u8]) -> Result<(PageIdDf<'a>, &'a [u8])> {
    let bad = |why: &str| Error::new(Code::Csum, format!("index page: {why}"));
    let head: &[u8; HEADER_BYTES] = raw.first_chunk().ok_or_else(|| bad("cut short"))?;
    if head[..4] != MAGIC {
        return Err(bad("not found where it should be"));
    }
    if sum_of(raw) != stored_sum(raw) {
        return Err(bad("checksum mismatch"));
    }
    let version = u16::from_le_bytes([head[4], head[5]]);
    if version != PAGE_VERSION {
        return Err(crate::sealed::other_version("index page", version, PAGE_VERSION));
    }
    let length = u32::from_le_bytes([head[24], head[25], head[26], head[27]]) as usize;
    if head[8..24] != *shard || length != raw.len() - HEADER_BYTES {
        return Err(bad("of another shard or length"));
    }
    postcard::take_from_bytes(&raw[HEADER_BYTES..]).map_err(|error| bad(&error.to_string()))
}

fn stored_sum(raw: &[u8]) -> u32 {
    u32::from_le_bytes([raw[28], raw[29], raw[30], raw[31]])
}

fn sum_of(raw: &[u8]) -> u32 {
    let mut covered = raw.to_vec();
    covered[28..32].fill(0);
    crc(&covered)
}

pub(crate) struct PageStore {
    env: Env,
    file: Rc<dyn File>,
    pub space: Rc<RefCell<Space>>,
    pub shard: [u8; 16],
    /// Length of the file, bytes; grown under `growing`.
    bytes: Cell<u64>,
    growing: Mutex<()>,
}

impl PageStore {
    /// The area of a shard whose index tier holds `scm_bytes`.
    pub(crate) fn new(
        env: &Env,
        file: Rc<dyn File>,
        scm_bytes: u64,
        shard: [u8; 16],
    ) -> Result<PageStore> {
        let room = scm_bytes.saturating_mul(3).saturating_add(ROOM_BYTES).min(1 << 56);
        let bytes = Cell::new(file.len()?);
        Ok(PageStore {
            env: env.clone(),
            file,
            space: Rc::new(RefCell::new(Space::new(room))),
            shard,
            bytes,
            growing: Mutex::new(()),
        })
    }

    /// Bytes of pages and tables now.
    pub(crate) fn used_bytes(&self) -> u64 {
        let space = self.space.borrow();
        space.bytes() - space.free_bytes()
    }

    /// Bytes that pages can take without more room on the file system.
    pub(crate) fn headroom(&self) -> u64 {
        self.bytes.get().saturating_sub(self.used_bytes())
    }

    /// Sets aside room for this many bytes of pages. `NoSpace` when there is none.
    pub(crate) async fn set_aside(&self, bytes: u64) -> Result<()> {
        let room = self.space.borrow().bytes();
        self.grow(self.used_bytes().saturating_add(bytes).min(room)).await
    }

    /// Writes an image to blocks of its own; it is durable after [`PageStore::sync`]. `NoSpace`
    /// when the device is full.
    pub(crate) async fn write(&self, mut raw: AlignedBuf) -> Result<PagePlace> {
        let mut place = PagePlace {
            bytes: raw.len() as u32,
            crc: stored_sum(&raw),
            runs: smallvec::SmallVec::new(),
        };
        raw.set_len(raw.capacity());
        let taken = self.take(raw.len() as u64, &mut place).await;
        let written = match taken {
            Ok(()) => self.write_runs(&place, raw).await,
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            self.free(&place.runs);
            return Err(error.context("writing a page of the index"));
        }
        Ok(place)
    }

    /// Takes blocks, in the file as it is when it cannot grow.
    async fn take(&self, bytes: u64, place: &mut PagePlace) -> Result<()> {
        self.take_below(bytes, u64::MAX, place)?;
        let end = place.runs.iter().map(|run| run.at + run.bytes).max().unwrap_or(0);
        match self.grow(end).await {
            Err(error) if error.code == Code::NoSpace => {
                for run in place.runs.drain(..) {
                    self.space.borrow_mut().give_back(run);
                }
                self.take_below(bytes, self.bytes.get(), place).map_err(|_| error)
            }
            other => other,
        }
    }

    fn take_below(&self, bytes: u64, limit: u64, place: &mut PagePlace) -> Result<()> {
        let mut left = bytes;
        while left > 0 {
            let run = match limit {
                u64::MAX => self.space.borrow_mut().take(left)?,
                _ => self.space.borrow_mut().take_below(left, limit)?,
            };
            left -= run.bytes;
            place.runs.push(run);
        }
        Ok(())
    }

    async fn write_runs(&self, place: &PagePlace, raw: AlignedBuf) -> Result<()> {
        if let [run] = place.runs[..] {
            return self.file.write_at(run.at, raw).await.1;
        }
        let mut at = 0;
        for run in &place.runs {
            let part = AlignedBuf::copy_of(&raw[at..at + run.bytes as usize]);
            self.file.write_at(run.at, part).await.1?;
            at += run.bytes as usize;
        }
        Ok(())
    }

    /// Makes the file reach to `end`.
    async fn grow(&self, end: u64) -> Result<()> {
        if end <= self.bytes.get() {
            return Ok(());
        }
        let _growing = self.growing.lock().await;
        let have = self.bytes.get();
        if end > have {
            let more = (have / 8).clamp(GROWTH_BYTES_MIN, GROWTH_BYTES_MAX);
            let large = end.max(have + more).next_multiple_of(GROWTH_BYTES_MIN);
            // Where there is no room for more, what is needed may still fit.
            let grown = match self.file.allocate(have, large - have).await {
                Ok(()) => large,
                Err(_) => {
                    self.file.allocate(have, end - have).await?;
                    end
                }
            };
            self.bytes.set(grown);
        }
        Ok(())
    }

    /// Reads an image that must be what `place` says. `Csum` when it is not, `Io` when it cannot
    /// be read.
    pub(crate) async fn read(&self, place: &PagePlace) -> Result<AlignedBuf> {
        // What lies there is not used again before the read has ended.
        let _guard = ReadGuard::new(&self.space);
        let reads = place.runs.iter().map(|run| async move {
            let buf = AlignedBuf::try_zeroed(run.bytes as usize)?;
            let (buf, result) = self.file.read_at(run.at, buf).await;
            match result {
                Ok(count) if count as u64 == run.bytes => Ok(buf),
                Ok(_) => Err(Error::new(Code::Csum, "the page area ends before a page does")),
                Err(error) => Err(error.context("reading a page of the index")),
            }
        });
        let mut parts = join_all(reads).await.into_iter().collect::<Result<Vec<_>>>()?;
        let mut raw = match parts.len() {
            1 => parts.remove(0),
            _ => AlignedBuf::copy_of(
                &parts.iter().flat_map(|part| &part[..]).copied().collect::<Vec<u8>>(),
            ),
        };
        raw.set_len(place.bytes as usize);
        if raw.len() < HEADER_BYTES || stored_sum(&raw) != place.crc {
            let at = place.runs.first().map_or(0, |run| run.at);
            return Err(Error::new(
                Code::Csum,
                format!("index page at byte {at} of the page area: not the one that belongs there"),
            ));
        }
        Ok(raw)
    }

    /// Makes all images written so far durable.
    pub(crate) async fn sync(&self) -> Result<()> {
        self.file.sync().await.map_err(|error| error.context("making pages durable"))
    }

    /// Marks a place as used when a table is read. `Csum` when it cannot be.
    pub(crate) fn claim(&self, place: &PagePlace) -> Result<()> {
        let mut space = self.space.borrow_mut();
        place.runs.iter().try_for_each(|run| space.claim_free(*run))
    }

    /// Gives back blocks that nothing durable names, once nobody reads them.
    pub(crate) fn free(&self, runs: &[Run]) {
        let mut space = self.space.borrow_mut();
        for run in runs {
            let (first, end) = (run.first_block(), run.end_block());
            let change = crate::space::BlockChange::Unref { first, count: end - first };
            space.follow(change, crate::Lsn(0));
        }
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARD: [u8; 16] = *b"0123456789abcdef";

    #[test]
    fn golden_bytes_of_an_image() {
        // A change here is a change of format: bump PAGE_VERSION.
        let unit = Unit { object: types::Oid { hi: 1, lo: 2 }, group: 3, cell: 4 };
        let id = PageIdDf::Part { cont: ContId(7), unit, start: b"d" };
        let raw = encode(&SHARD, &id, b"body").unwrap();
        assert_eq!(&raw[..28], b"AZKP\x02\0\0\x000123456789abcdef\x0c\0\0\0");
        assert_eq!(&raw[32..], b"\x01\x07\x01\x02\x03\x04\x01dbody");
        assert_eq!(decode(&SHARD, &raw).unwrap(), (id, &b"body"[..]));
        let bucket = PageIdDf::Bucket { cont: ContId(7), prefix: 1 << 63, depth: 1 };
        let raw = encode(&SHARD, &bucket, b"").unwrap();
        assert_eq!(&raw[32..], b"\0\x07\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01\x01");
        let table = encode(&SHARD, &PageIdDf::Table { number: 3 }, b"").unwrap();
        assert_eq!(&table[32..], b"\x02\x03");
        let past = PageIdDf::Past { cont: ContId(7), unit };
        assert_eq!(&encode(&SHARD, &past, b"").unwrap()[32..], b"\x03\x07\x01\x02\x03\x04");
    }

    #[test]
    fn every_flipped_bit_of_an_image_is_noticed() {
        let raw = encode(&SHARD, &PageIdDf::Table { number: 3 }, b"some body").unwrap();
        for bit in 0..raw.len() * 8 {
            let mut damaged = raw.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&SHARD, &damaged).unwrap_err().code, Code::Csum, "bit {bit}");
        }
        let other = decode(b"another shard...", &raw).unwrap_err();
        assert_eq!(other.code, Code::Csum);
    }
}
