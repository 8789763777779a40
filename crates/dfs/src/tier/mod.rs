//! Files that have a copy in a tier, and chunks of them that are there only.
//!
//! A *copy* is all of a file as it was at some time, in an object store; how it got there and how it is read is for
//! a [`TierSource`] and the crate that makes it. Here is what the pool knows of it.
//!
//! Invariants:
//! - Whether the copy has a chunk as it is now is told by epochs: no write has to mark anything. A chunk is *clean* when its
//!   array is not newer than what the copy has, or was brought back from it in one batch with [`CLEAN`].
//! - A chunk is given up only by a batch that checks that it still is the chunk that was found clean, and that puts a
//!   [`Stub`] in its place. An operation on a stub fails, whoever asks and however old the program is; nobody
//!   ever takes it for a hole.
//! - The chunk with the file's last byte stays in the pool, so the size needs no care. So does one that is in two units, because a
//!   progressive file's first part ends in it.
//! - Bytes from a tier are compared with the stub's checksum before anybody sees them.

pub mod agent;
mod evict;
mod marks;
mod moved;
mod notice;
mod recall;
mod record;
mod returns;
mod uses;

pub use evict::Evicted;
pub use marks::{MARK_BYTES_MAX, Mark, Marks, SyncPolicy};
pub(crate) use notice::Known;
pub use notice::{Slowdown, TierNotice};
use recall::Proved;
pub(crate) use recall::Returning;
pub use record::{Stub, TierRecord, Upload};
pub use returns::Returns;
pub use uses::{USES_DAYS, Uses, day_of};

use crate::entry::{Place, reply_kind};
use crate::flags::Access;
use crate::fs::Dfs;
use crate::inode::FileKind;
use crate::layout::xattr_akey;
use crate::node::Obj;
use crate::xattr::Change;
use async_recursion::async_recursion as boxed;
use client::ArrayObj;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, LocalBoxFuture, try_join_all};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use types::{Code, ContId, Epoch, Error, Oid, Result, Unit};
use wire::obj::{Cond, FetchIod, FetchWant, Fetched, Op, OpReply, Recx};

/// The attribute that tells a file's state; to be read only, and not listed.
pub const STATE: &str = "user.azekura.tier";
/// The attribute that is the record. Belongs to no namespace that programs see.
pub(crate) const RECORD: &[u8] = b"azekura.tier";
/// The attribute that is what is known of a file's uses; likewise.
const USES: &[u8] = b"azekura.uses";
/// Akey of a chunk's array.
const DATA: &[u8] = b"";
/// Akey beside it: written in one batch with data that came back from the copy.
const CLEAN: &[u8] = b"tier";
/// Chunks that are looked at in one request.
const CHUNKS_PER_REQUEST: usize = 256;
/// Chunks of the largest file that goes to a tier: 4 TiB in chunks of 1 MiB.
const CHUNKS_MAX: u64 = 4 << 20;
/// An upload of which nothing was heard for so long has ended with its program, nanoseconds.
const UPLOAD_SILENCE_NS: u64 = 60_000_000_000;

/// A range of a file's copy that is wanted.
#[derive(Clone, Debug)]
pub struct TierAsk {
    pub cont: ContId,
    pub record: TierRecord,
    /// Within a part: it does not go over a multiple of the record's part size.
    pub range: Recx,
}

impl TierAsk {
    /// The range of the part that the range is in.
    fn whole_part(&self) -> Recx {
        let index = self.range.index / self.record.part_bytes * self.record.part_bytes;
        let count = self.record.part_bytes.min(self.record.size.saturating_sub(index));
        Recx { index, count }
    }
}

/// Bytes of a file's copy.
#[derive(Clone, Debug)]
pub struct CopyPiece {
    /// Where in the file they begin.
    pub from: u64,
    pub bytes: Arc<Vec<u8>>,
    proved: Proved,
}

impl CopyPiece {
    pub fn new(from: u64, bytes: Arc<Vec<u8>>) -> CopyPiece {
        CopyPiece { from, bytes, proved: Proved::default() }
    }

    /// Their range in the file.
    fn range(&self) -> Range<u64> {
        self.from..self.from.saturating_add(self.bytes.len() as u64)
    }

    /// True when it has all of a range of the file.
    fn covers(&self, range: &Range<u64>) -> bool {
        let mine = self.range();
        mine.start <= range.start && range.end <= mine.end
    }
}

/// Whoever reads copies: the way from this library to object stores.
pub trait TierSource: Send + Sync {
    /// The bytes of a whole part, whose range is asked for; `Csum` when they are not those that were put there.
    fn read(&self, ask: TierAsk) -> BoxFuture<'static, Result<Vec<u8>>>;

    /// Bytes of the part that a range is in, at least those of the range. Whoever asks compares them with what the pool knows of
    /// them, and asks for the whole part when they differ.
    fn read_around(&self, ask: TierAsk) -> BoxFuture<'static, Result<CopyPiece>> {
        let part = ask.whole_part();
        let read = self.read(TierAsk { range: part, ..ask });
        async move { Ok(CopyPiece::new(part.index, Arc::new(read.await?))) }.boxed()
    }

    /// The same for a job that gives way to users: no more than the range, and nothing ahead of it.
    fn read_alone(&self, ask: TierAsk) -> BoxFuture<'static, Result<CopyPiece>> {
        self.read_around(ask)
    }

    /// Says that all of a file's copy is going to be asked for in order, from a place on.
    fn announce(&self, record: &TierRecord, from: u64) {
        let _ = (record, from);
    }

    /// Has the tier, given by its name, take all of a file that it does not have; `file` is open for reading and writing.
    ///
    /// Errors: `Unreach` for a way in that only reads.
    fn sync<'a>(
        &'a self,
        fs: &'a Dfs,
        file: &'a Obj,
        tier: &'a str,
    ) -> LocalBoxFuture<'a, Result<()>> {
        let _ = (fs, file, tier);
        async { Err(notice::reaches_none()) }.boxed_local()
    }
}

static SOURCE: OnceLock<Arc<dyn TierSource>> = OnceLock::new();

/// Says who reads copies in this process, for all its mounts. The first call counts, if it comes before the first read of
/// what is in a tier only: without one an [agent] is asked.
pub fn set_tier_source(source: Arc<dyn TierSource>) {
    let _ = SOURCE.set(source);
}

/// Who reads copies here: whoever was said to, else an agent of this machine.
fn source() -> &'static Arc<dyn TierSource> {
    SOURCE.get_or_init(|| Arc::new(agent::AgentSource::from_env()))
}

/// Where a file's data are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TierState {
    /// In the pool; there is no copy.
    Local,
    /// What is in the pool has not all reached the copy.
    Dirty,
    /// The same, and an upload runs.
    Uploading { percent: u8 },
    /// All in the pool and all in the copy.
    Both,
    /// All in the copy; some of it there only.
    Cloud,
}

impl TierState {
    /// One word, for programs.
    pub fn word(self) -> &'static str {
        match self {
            TierState::Local => "local",
            TierState::Dirty => "dirty",
            TierState::Uploading { .. } => "uploading",
            TierState::Both => "both",
            TierState::Cloud => "cloud",
        }
    }
}

impl fmt::Display for TierState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TierState::Uploading { percent } => write!(f, "uploading {percent} %"),
            other => f.write_str(other.word()),
        }
    }
}

/// A chunk as the pool has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chunk {
    /// Nothing: it reads as zeros. `emptied`: it came back from the copy once, and was removed since.
    Absent { emptied: bool },
    /// Its bytes, as of this epoch; `back`: they came back from the copy and have not changed since.
    Data { epoch: Epoch, back: bool },
    /// A stub, since this epoch.
    Stub { epoch: Epoch },
}

/// A file as the pool had it, chunk by chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Survey {
    pub size: u64,
    pub chunk_bytes: u64,
    pub mtime_ns: i64,
    pub chunks: Vec<Chunk>,
    /// The group of each chunk; of one that is split the group that holds its end.
    groups: Vec<u32>,
    /// Of a progressive file the chunk in which the first part ends, and what of it the first unit has.
    split: Option<(usize, Chunk)>,
    /// Newest epoch of each group, before the chunks were looked at. Of a progressive file that has nothing beyond its first part
    /// the first group's alone.
    pub group_epochs: Vec<Epoch>,
    /// The same of what chunks there are.
    keys_epochs: Vec<Epoch>,
}

impl Survey {
    /// True when the copy that `record` tells of has the chunk as it is.
    pub fn is_clean(&self, record: &TierRecord, chunk: usize) -> bool {
        let is_clean = self.is_piece_clean(record, self.groups[chunk], self.chunks[chunk]);
        match self.split {
            Some((split, first)) if split == chunk => {
                is_clean && self.is_piece_clean(record, 0, first)
            }
            _ => is_clean,
        }
    }

    /// True when there is nothing of the chunk: it reads as zeros.
    pub fn is_absent(&self, chunk: usize) -> bool {
        let is_absent = |piece: Chunk| matches!(piece, Chunk::Absent { .. });
        let first = self.split.filter(|(split, _)| *split == chunk);
        is_absent(self.chunks[chunk]) && first.is_none_or(|(_, first)| is_absent(first))
    }

    fn is_piece_clean(&self, record: &TierRecord, group: u32, piece: Chunk) -> bool {
        match piece {
            Chunk::Stub { .. } => true,
            Chunk::Data { epoch, back } => back || record.has(group, epoch),
            // What was here may have been removed. With that the keys change, unless the mark beside it stayed.
            Chunk::Absent { emptied: false } => match self.keys_epochs[group as usize] {
                // Nothing is left in the unit, nor of when it went: the copy has it if there was nothing then.
                Epoch::ZERO => record.has_nothing(group),
                epoch => record.has(group, epoch),
            },
            Chunk::Absent { emptied: true } => record.has(group, self.group_epochs[group as usize]),
        }
    }

    /// True when the copy has the whole file.
    pub fn is_all_clean(&self, record: &TierRecord) -> bool {
        let mut chunks = 0..self.chunks.len();
        record.size == self.size && chunks.all(|chunk| self.is_clean(record, chunk))
    }

    /// True when the pool may give the chunk up once the copy has it. The one that holds the end of the file stays, and so does one of which two
    /// units have a piece each: it cannot go in one step.
    pub fn may_go(&self, chunk: usize) -> bool {
        let is_split = self.split.is_some_and(|(split, _)| split == chunk);
        chunk + 1 < self.chunks.len() && !is_split
    }

    /// Chunks that are in the tier only.
    pub fn stub_count(&self) -> usize {
        self.chunks.iter().filter(|chunk| matches!(chunk, Chunk::Stub { .. })).count()
    }

    /// Bytes that the pool could give up, and bytes that the copy does not have as they are.
    pub fn evictable(&self, record: &TierRecord) -> (u64, u64) {
        let (mut may, mut dirty) = (0, 0);
        for (chunk, state) in self.chunks.iter().enumerate() {
            match (self.is_clean(record, chunk), state) {
                (false, _) => dirty += self.chunk_bytes,
                (true, Chunk::Data { .. }) if self.may_go(chunk) => may += self.chunk_bytes,
                _ => {}
            }
        }
        (may, dirty)
    }

    /// Bytes that the copy, if there is one, does not have as they are, and when the oldest of them were written, nanoseconds since
    /// 1970, as far as the pool knows.
    pub fn dirty(&self, record: Option<&TierRecord>) -> (u64, Option<u64>) {
        let record = record.filter(|record| record.version > 0);
        let (mut bytes, mut oldest_ns) = (0, None);
        for (chunk, state) in self.chunks.iter().enumerate() {
            if record.is_some_and(|record| self.is_clean(record, chunk)) {
                continue;
            }
            let from = chunk as u64 * self.chunk_bytes;
            bytes += self.chunk_bytes.min(self.size - from);
            let at_ns = match state {
                Chunk::Data { epoch, .. } => epoch.0,
                // Nobody knows when a hole was made.
                Chunk::Absent { .. } | Chunk::Stub { .. } => self.mtime_ns.max(0) as u64,
            };
            oldest_ns = Some(oldest_ns.map_or(at_ns, |oldest: u64| oldest.min(at_ns)));
        }
        // A file that was cut, or is empty, has nothing that could be dirty but its size.
        if record.is_none_or(|record| record.size != self.size) && oldest_ns.is_none() {
            oldest_ns = Some(self.mtime_ns.max(0) as u64);
        }
        (bytes, oldest_ns)
    }

    /// When something last came back from the copy, nanoseconds since 1970: somebody used it.
    pub fn back_ns(&self) -> u64 {
        let back = self.chunks.iter().filter_map(|chunk| match chunk {
            Chunk::Data { epoch, back: true } => Some(epoch.0),
            _ => None,
        });
        back.max().unwrap_or(0)
    }

    /// True when nothing of the content changed from this survey to a later one, if no other copy was made in between: what came back
    /// from the copy is what was there.
    pub fn is_same_content(&self, later: &Survey) -> bool {
        let mut chunks = self.chunks.iter().zip(&later.chunks);
        let came_back = |before: &Chunk, after: &Chunk| {
            matches!((before, after), (Chunk::Stub { .. }, Chunk::Data { back: true, .. }))
        };
        let is_same = |(a, b): (&Chunk, &Chunk)| a == b || came_back(a, b);
        self.size == later.size && self.split == later.split && chunks.all(is_same)
    }
}

impl Dfs {
    /// What is known of the file's copy; `None` when it has none.
    #[boxed(?Send)]
    pub async fn tier_record(&self, file: &Obj) -> Result<Option<TierRecord>> {
        if file.kind() != FileKind::Regular {
            return Ok(None);
        }
        let shared = &self.shared;
        let Some((location, found)) = shared.fetch_node(&file.node).await? else {
            return Ok(None);
        };
        if !found.inode.has_xattrs {
            return Ok(None);
        }
        let place = shared.place_of(location.parent, &location.name, &found.inode);
        self.record_of(place, file.oid()).await
    }

    async fn record_of(&self, place: Place<'_>, oid: Oid) -> Result<Option<TierRecord>> {
        let Some(raw) = self.shared.fetch_xattr(place, &xattr_akey(RECORD)).await? else {
            return Ok(None);
        };
        let record = TierRecord::decode(&raw)?;
        // A program that copies attributes has given it to another file.
        Ok((record.oid == oid).then_some(record))
    }

    /// True when the file whose inode is at a place has a copy, or one is being made.
    pub(crate) async fn has_tier_record(&self, place: Place<'_>, oid: Oid) -> Result<bool> {
        Ok(self.record_of(place, oid).await?.is_some())
    }

    /// Notes what is known of the file's copy. Errors: as for extended attributes; `Inval` for another file's record.
    #[boxed(?Send)]
    pub async fn set_tier_record(&self, file: &Obj, record: &TierRecord) -> Result<()> {
        file.require_regular()?;
        if record.oid != file.oid() {
            return Err(Error::inval("the record is another file's"));
        }
        let value = record.checked()?;
        self.change_xattr(file, RECORD, Change::Set { value: &value, cond: Cond::NONE }).await
    }

    /// Where the file's data are.
    #[boxed(?Send)]
    pub async fn tier_state(&self, file: &Obj) -> Result<TierState> {
        let Some(record) = self.tier_record(file).await? else { return Ok(TierState::Local) };
        let now = self.shared.now_ns() as u64;
        if let Some(upload) = record.upload
            && now.abs_diff(upload.at_ns) < UPLOAD_SILENCE_NS
        {
            let percent = (upload.done_bytes as u128 * 100 / upload.total_bytes as u128).min(100);
            return Ok(TierState::Uploading { percent: percent as u8 });
        }
        if record.version == 0 {
            return Ok(TierState::Dirty);
        }
        let survey = match self.tier_survey(file).await {
            // It has grown since it was copied.
            Err(error) if error.code == Code::FileTooBig => return Ok(TierState::Dirty),
            survey => survey?,
        };
        Ok(match (survey.is_all_clean(&record), survey.stub_count()) {
            (false, _) => TierState::Dirty,
            (true, 0) => TierState::Both,
            (true, _) => TierState::Cloud,
        })
    }

    /// The value of [`STATE`]. Errors: `NoAttr` for what is no regular file, `Access`.
    pub(crate) async fn tier_state_attr(&self, obj: &Obj) -> Result<Vec<u8>> {
        if obj.kind() != FileKind::Regular {
            return Err(Error::bare(Code::NoAttr));
        }
        self.check_access(&obj.node.inode(), Access::READ)?;
        Ok(self.tier_state(obj).await?.to_string().into_bytes())
    }

    /// How many chunks the file has when it is of that size.
    ///
    /// Errors: `FileTooBig` for more than 4 Mi: there is no copy of such a file.
    pub fn tier_chunks(&self, file: &Obj, size: u64) -> Result<u64> {
        match size.div_ceil(file.node.array().chunk_records) {
            count if count <= CHUNKS_MAX => Ok(count),
            count => Err(Error::new(
                Code::FileTooBig,
                format!(
                    "a file of {count} chunks; at most {CHUNKS_MAX} go to a tier: give it larger chunks"
                ),
            )),
        }
    }

    /// Looks at all chunks of a file, when those that this mount's readers have brought are back in the pool. Not one moment's view: two that
    /// are equal are.
    ///
    /// Errors: `FileTooBig` for a file of more than 4 Mi chunks.
    #[boxed(?Send)]
    pub async fn tier_survey(&self, file: &Obj) -> Result<Survey> {
        file.require_regular()?;
        self.tier_settled(file.oid()).await;
        self.survey_now(file).await
    }

    /// The same without waiting.
    async fn survey_now(&self, file: &Obj) -> Result<Survey> {
        let array = file.node.array();
        let (oid, chunk_bytes) = (array.oid, array.chunk_records);
        // Before it is asked whether there is anything beyond a first part: what is there is marked first.
        let stat = self.ostat_now(file).await?;
        let (group_epochs, keys_epochs) = self.group_epochs(&array).await?;
        let count = self.tier_chunks(file, stat.size)?;
        let mut groups = Vec::with_capacity(count as usize);
        let mut by_unit: Vec<Vec<u64>> = vec![Vec::new(); group_epochs.len()];
        let split = split_chunk(&array, stat.size).await?;
        for chunk in 0..count {
            let unit = match split {
                Some((split, end)) if split == chunk => end,
                _ => array.unit_of(chunk + 1, 0).await?,
            };
            let of_unit = by_unit.get_mut(unit.group as usize).ok_or_else(reply_kind)?;
            of_unit.push(chunk);
            groups.push(unit.group);
        }
        let mut chunks = vec![Chunk::Absent { emptied: false }; count as usize];
        for (group, of_unit) in by_unit.iter().enumerate() {
            for some in of_unit.chunks(CHUNKS_PER_REQUEST) {
                let found = self.probe_chunks(oid.unit(group as u32), some).await?;
                for (chunk, state) in some.iter().zip(found) {
                    chunks[*chunk as usize] = state;
                }
            }
        }
        let split = match split {
            Some((chunk, _)) => {
                let first = self.probe_chunks(oid.first_unit(), &[chunk]).await?;
                first.first().map(|first| (chunk as usize, *first))
            }
            None => None,
        };
        Ok(Survey {
            size: stat.size,
            chunk_bytes,
            mtime_ns: stat.mtime_ns,
            chunks,
            groups,
            split,
            group_epochs,
            keys_epochs,
        })
    }

    /// Newest epochs of all groups that may hold something, and of what keys they have.
    async fn group_epochs(&self, array: &ArrayObj) -> Result<(Vec<Epoch>, Vec<Epoch>)> {
        let stats = array.units_in_use().await?.into_iter().map(async |unit| {
            let mut batch = self.shared.cont.batch();
            batch.op_of_unit(Op::Stat { unit });
            match batch.run().await?.replies()?.first() {
                Some(OpReply::Stat(stat)) => Ok((stat.tail.epoch, stat.keys_epoch)),
                _ => Err(reply_kind()),
            }
        });
        Ok(try_join_all(stats).await?.into_iter().unzip())
    }

    async fn probe_chunks(&self, unit: Unit, chunks: &[u64]) -> Result<Vec<Chunk>> {
        let keys: Vec<[u8; 8]> = chunks.iter().map(|&chunk| dkey_of(chunk)).collect();
        let mut batch = self.shared.cont.batch();
        for dkey in &keys {
            let probe = |akey| FetchIod { akey, want: FetchWant::Probe };
            let iods = vec![probe(DATA), probe(CLEAN)];
            batch.op_of_unit(Op::Fetch { unit, dkey, cond: Cond::NONE, iods });
        }
        let result = batch.run().await?;
        let chunk_of = |reply: OpReply<'_>| {
            let OpReply::Fetched(iods) = reply else { return Err(reply_kind()) };
            let [data, clean] = &iods[..] else { return Err(reply_kind()) };
            let epoch = data.epoch;
            Ok(match data.value {
                Fetched::Absent => Chunk::Absent { emptied: clean.value != Fetched::Absent },
                Fetched::Array { .. } => {
                    let back = clean.value != Fetched::Absent && clean.epoch == epoch;
                    Chunk::Data { epoch, back }
                }
                _ => Chunk::Stub { epoch },
            })
        };
        result.replies()?.into_iter().map(chunk_of).collect()
    }
}

/// True for the attributes that this module tells or keeps.
pub(crate) fn is_tier_attr(name: &[u8]) -> bool {
    [STATE.as_bytes(), RECORD, USES, marks::FILE_PIN].contains(&name)
}

/// Answer to who would set or remove one of them.
pub(crate) fn told_only() -> Error {
    Error::new(
        Code::NotSupported,
        format!("{STATE} is told only; azekura fs tier sync, evict, fetch and pin change it"),
    )
}

/// The chunk in which the first part of a progressive file ends, and the unit that has the rest of it, if the file goes on there and that is another
/// unit.
async fn split_chunk(array: &ArrayObj, size: u64) -> Result<Option<(u64, Unit)>> {
    let Some(first_bytes) = array.oid.first_part_bytes().filter(|bytes| size > *bytes) else {
        return Ok(None);
    };
    let (chunk, within) = (first_bytes / array.chunk_records, first_bytes % array.chunk_records);
    let end = array.unit_of(chunk + 1, within).await?;
    Ok((within > 0 && end != array.oid.first_unit()).then_some((chunk, end)))
}

fn dkey_of(chunk: u64) -> [u8; 8] {
    (chunk + 1).to_le_bytes()
}
