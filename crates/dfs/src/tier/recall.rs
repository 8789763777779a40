//! Bringing chunks back from the copy before anybody reads or changes them.
//!
//! Whoever reads copies hands out a part, or a range of one; of these bytes each stub takes its own, if they are those of its checksum, in a
//! batch that checks that the stub is still the one that was seen. Where nothing can be written (a snapshot, a mount to
//! read only) the bytes go to the reader and no further.

use super::{CLEAN, Chunk, DATA, Stub, TierAsk, TierRecord, dkey_of, source};
use crate::entry::reply_kind;
use crate::flags::MountFlags;
use crate::fs::{Dfs, inline};
use crate::node::Obj;
use futures_util::stream::{FuturesUnordered, StreamExt};
use types::{Code, Epoch, Error, Result, Unit};
use wire::obj::{
    Cond, FetchIod, FetchWant, Fetched, Op, OpReply, ReadCheck, ReadScope, Recx, UpdateIod,
    UpdateValue,
};

/// Times that an operation is run again after chunks were brought back: somebody may take them away just as often.
const TRIES_MAX: usize = 16;

/// Chunks that are put back at the same time.
const RESTORES_MAX: usize = 8;

/// A stub that was found.
struct Seen {
    chunk: u64,
    unit: Unit,
    epoch: Epoch,
    stub: Stub,
}

impl Dfs {
    /// Runs an operation on ranges of a file's data; where it meets chunks that are in a tier only, these are brought
    /// back first.
    pub(crate) async fn with_data<T>(
        &self,
        file: &Obj,
        ranges: &[Recx],
        mut run: impl AsyncFnMut() -> Result<T>,
    ) -> Result<T> {
        let mut tries = 0;
        loop {
            match run().await {
                // What every operation on a stub gets.
                Err(error) if error.code == Code::Inval && tries < TRIES_MAX => {
                    tries += 1;
                    // None left: somebody else was faster, or it was about something else.
                    if self.recall(file, ranges).await? == 0 && tries > 1 {
                        return Err(error);
                    }
                }
                outcome => return outcome,
            }
        }
    }

    /// After a read met a stub: reads with what is missing brought back, or, where nothing can be written or the pool is full, with the
    /// missing bytes from the tier. Returns what [`client::ArrayObj::read`] does.
    pub(crate) async fn read_tiered(
        &self,
        file: &Obj,
        ranges: &[Recx],
        memory: &mut [&mut [u8]],
    ) -> Result<u64> {
        let array = file.node.array();
        if self.may_restore() {
            match self.with_data(file, ranges, async || array.read(ranges, memory).await).await {
                // Where there is no room for them the bytes can be read all the same.
                Err(error) if error.code == Code::NoSpace => {}
                outcome => return outcome,
            }
        }
        let record = self.require_record(file).await?;
        let mut all = Vec::new();
        let mut around: Option<(u64, Vec<u8>)> = None;
        for piece in self.cut_at_chunks(file, ranges) {
            let mut bytes = vec![0; piece.count as usize];
            match array.read(&[piece], &mut [&mut bytes]).await {
                Err(error) if error.code == Code::Inval => {}
                outcome => {
                    outcome?;
                    all.extend_from_slice(&bytes);
                    continue;
                }
            }
            let chunk = piece.index / array.chunk_records;
            let seen = self.stubs(file, &[chunk]).await?;
            let Some(seen) = seen.first() else {
                // It came back just now.
                array.read(&[piece], &mut [&mut bytes]).await?;
                all.extend_from_slice(&bytes);
                continue;
            };
            let start = chunk * array.chunk_records;
            let range = Recx { index: start, count: seen.stub.bytes as u64 };
            let (from, bytes) = match around.take().filter(|around| covers(around, range)) {
                Some(around) => around,
                None => self.read_around(&record, range).await?,
            };
            let whole = verified(seen, &bytes, start - from, &record)?;
            let within = (piece.index - start) as usize;
            let end = within + piece.count as usize;
            all.extend_from_slice(whole.get(within..end).ok_or_else(|| damaged(&record))?);
            around = Some((from, bytes));
        }
        let mut rest = &all[..];
        for room in memory {
            let (mine, others) = rest.split_at_checked(room.len()).ok_or_else(reply_kind)?;
            room.copy_from_slice(mine);
            rest = others;
        }
        array.size().await
    }

    /// Brings all of the file back; returns how many bytes that were.
    ///
    /// Errors: `Unreach` when nobody in this process reads tiers; `Csum` when the copy is damaged; `ReadOnly`; `NoSpace`.
    pub async fn tier_fetch(&self, file: &Obj) -> Result<u64> {
        file.require_regular()?;
        self.require_writable()?;
        if self.tier_record(file).await?.is_none() {
            return Ok(0);
        }
        let size = self.size(file).await?;
        let count = self.recall(file, &[Recx { index: 0, count: size }]).await?;
        Ok(count as u64 * file.node.array().chunk_records)
    }

    fn may_restore(&self) -> bool {
        let cont = &self.shared.cont;
        !self.shared.flags.has(MountFlags::READ_ONLY)
            && !cont.is_read_only()
            && cont.at() == Epoch::ZERO
    }

    async fn require_record(&self, file: &Obj) -> Result<TierRecord> {
        let record = self.tier_record(file).await?.filter(|record| record.version > 0);
        record.ok_or_else(|| {
            Error::new(
                Code::Io,
                "the file's data are in a tier, but which copy has them is not known any more: the file was removed while \
                 it is open, or its attributes are damaged",
            )
        })
    }

    /// Brings back what of the ranges is in the tier only; returns how many chunks that were.
    async fn recall(&self, file: &Obj, ranges: &[Recx]) -> Result<usize> {
        let chunk_bytes = file.node.array().chunk_records;
        let count: u64 = ranges.iter().map(|range| range.count.div_ceil(chunk_bytes) + 1).sum();
        if count > super::CHUNKS_MAX {
            return Err(Error::new(Code::FileTooBig, "so many chunks do not come back at once"));
        }
        let mut chunks: Vec<u64> = Vec::new();
        for range in ranges.iter().filter(|range| range.count > 0) {
            let last = (range.index + (range.count - 1)) / chunk_bytes;
            chunks.extend(range.index / chunk_bytes..=last);
        }
        chunks.sort_unstable();
        chunks.dedup();
        let mut wanted = self.stubs(file, &chunks).await?;
        if wanted.is_empty() {
            return Ok(0);
        }
        let record = self.require_record(file).await?;
        if !self.may_restore() {
            return Err(Error::bare(Code::ReadOnly));
        }
        let mtime_ns = self.ostat(file).await?.mtime_ns;
        let (mut count, mut newest) = (0, Epoch::ZERO);
        let outcome = loop {
            let Some(first) = wanted.first() else { break Ok(count) };
            let to = (first.chunk * chunk_bytes / record.part_bytes + 1) * record.part_bytes;
            let index = first.chunk * chunk_bytes;
            let mut of_part = wanted.iter().filter(|seen| (seen.chunk + 1) * chunk_bytes <= to);
            let last = of_part.next_back().map_or(first.chunk, |seen| seen.chunk);
            let range = Recx { index, count: (last + 1) * chunk_bytes - index };
            match self.restore_around(file, &record, range, &mut newest).await {
                Ok((restored, end)) => {
                    count += restored;
                    wanted.retain(|seen| seen.chunk * chunk_bytes >= end);
                }
                Err(error) => break Err(error),
            }
        };
        self.tier_keep_mtime(file, mtime_ns, newest).await?;
        outcome
    }

    /// Brings back the chunks of a range within a part, and those beside it whose bytes come along; returns how many, and where
    /// in the file the bytes ended.
    async fn restore_around(
        &self,
        file: &Obj,
        record: &TierRecord,
        range: Recx,
        newest: &mut Epoch,
    ) -> Result<(usize, u64)> {
        let chunk_bytes = file.node.array().chunk_records;
        let (from, bytes) = self.read_around(record, range).await?;
        let end = from + bytes.len() as u64;
        let chunks: Vec<u64> = (from.div_ceil(chunk_bytes)..end / chunk_bytes).collect();
        let stubs = self.stubs(file, &chunks).await?;
        let mut going = FuturesUnordered::new();
        let (mut count, mut rest) = (0, stubs.into_iter());
        // After a failure those that are on their way come to their end: the file's time of modification is put back for them.
        let mut failed = Ok(());
        loop {
            while going.len() < RESTORES_MAX
                && failed.is_ok()
                && let Some(seen) = rest.next()
            {
                match verified(&seen, &bytes, seen.chunk * chunk_bytes - from, record) {
                    Ok(whole) => going.push(self.restore_chunk(seen, whole)),
                    Err(error) => failed = Err(error),
                }
            }
            match going.next().await {
                None => break,
                Some(Ok(epoch)) => {
                    *newest = epoch.max(*newest);
                    count += 1;
                }
                Some(Err(error)) => failed = Err(error),
            }
        }
        failed.map(|()| (count, end))
    }

    /// Puts a chunk's bytes where its stub is; returns the epoch, or [`Epoch::ZERO`] when there was no need.
    async fn restore_chunk(&self, seen: Seen, bytes: &[u8]) -> Result<Epoch> {
        let (unit, key) = (seen.unit, dkey_of(seen.chunk));
        let dkey = &key[..];
        let mut batch = self.shared.cont.batch();
        let of = ReadScope::Akey(dkey, DATA);
        batch.check_of_unit(ReadCheck { unit, of, seen: seen.epoch });
        let akeys = vec![DATA.into()];
        batch.op_of_unit(Op::PunchAkeys { unit, dkey, cond: Cond::NONE, akeys });
        let recxs = vec![Recx { index: 0, count: bytes.len() as u64 }];
        let value = UpdateValue::Array { record_bytes: 1, recxs };
        let data = UpdateIod { akey: DATA, cond: Cond::NONE, value };
        let iods = vec![data, inline(CLEAN, b"1")];
        batch.op_of_unit(Op::Update { unit, dkey, cond: Cond::NONE, iods });
        batch.bulk_out(bytes);
        match batch.run().await {
            Ok(result) => Ok(result.epoch),
            // Somebody else has brought it back, or removed it.
            Err(error) if error.code == Code::TxRestart => Ok(Epoch::ZERO),
            Err(error) => Err(error),
        }
    }

    /// Bytes of the copy, at least those of a range within a part; and where in the file they begin.
    async fn read_around(&self, record: &TierRecord, range: Recx) -> Result<(u64, Vec<u8>)> {
        let cont = self.shared.cont.id();
        let ask = TierAsk { cont, record: record.clone(), range };
        let around = source().read_around(ask).await?;
        match covers(&around, range) {
            true => Ok(around),
            false => Err(damaged(record)),
        }
    }

    /// The stubs among some chunks.
    async fn stubs(&self, file: &Obj, chunks: &[u64]) -> Result<Vec<Seen>> {
        let array = file.node.array();
        let mut by_unit = std::collections::BTreeMap::<Unit, Vec<u64>>::new();
        for &chunk in chunks {
            // A chunk with a stub is in one unit.
            let unit = array.unit_of(chunk + 1, 0).await?;
            by_unit.entry(unit).or_default().push(chunk);
        }
        let mut found = Vec::new();
        for (unit, of_unit) in by_unit {
            for some in of_unit.chunks(super::CHUNKS_PER_REQUEST) {
                for (chunk, state) in some.iter().zip(self.probe_chunks(unit, some).await?) {
                    if matches!(state, Chunk::Stub { .. })
                        && let Some(seen) = self.fetch_stub(unit, *chunk).await?
                    {
                        found.push(seen);
                    }
                }
            }
        }
        found.sort_by_key(|seen| seen.chunk);
        Ok(found)
    }

    /// A chunk's stub; `None` when its bytes are back. `Io` when it is something else.
    async fn fetch_stub(&self, unit: Unit, chunk: u64) -> Result<Option<Seen>> {
        let key = dkey_of(chunk);
        let mut batch = self.shared.cont.batch();
        let want = FetchWant::Single { bytes_max: 64, inline_bytes_max: 64 };
        let iods = vec![FetchIod { akey: DATA, want }];
        batch.op_of_unit(Op::Fetch { unit, dkey: &key, cond: Cond::NONE, iods });
        let result = match batch.run().await {
            Err(error) if error.code == Code::Inval => return Ok(None),
            outcome => outcome?,
        };
        let replies = result.replies()?;
        let Some(OpReply::Fetched(iods)) = replies.first() else { return Err(reply_kind()) };
        let Some(iod) = iods.first() else { return Err(reply_kind()) };
        match iod.value {
            Fetched::Absent => Ok(None),
            Fetched::Inline(raw) => match Stub::decode(raw) {
                Some(stub) => Ok(Some(Seen { chunk, unit, epoch: iod.epoch, stub })),
                None => Err(Error::new(Code::Io, "a chunk of a file holds what is no data of it")),
            },
            _ => Err(reply_kind()),
        }
    }

    /// Ranges cut where chunks begin.
    fn cut_at_chunks(&self, file: &Obj, ranges: &[Recx]) -> Vec<Recx> {
        let chunk_bytes = file.node.array().chunk_records;
        let mut pieces = Vec::new();
        for range in ranges {
            let (mut at, end) = (range.index, range.index + range.count);
            while at < end {
                let count = (end - at).min(chunk_bytes - at % chunk_bytes);
                pieces.push(Recx { index: at, count });
                at += count;
            }
        }
        pieces
    }
}

/// True when bytes from somewhere in a file on have all of a range.
fn covers((from, bytes): &(u64, Vec<u8>), range: Recx) -> bool {
    let end = range.index.saturating_add(range.count);
    *from <= range.index && end <= from.saturating_add(bytes.len() as u64)
}

/// The bytes of a part that belong to a stub, if they are those that were given up.
fn verified<'a>(seen: &Seen, part: &'a [u8], at: u64, record: &TierRecord) -> Result<&'a [u8]> {
    let at = at as usize;
    let bytes = part.get(at..).and_then(|rest| rest.get(..seen.stub.bytes as usize));
    let bytes = bytes.filter(|bytes| Stub::of(bytes) == seen.stub);
    bytes.ok_or_else(|| damaged(record))
}

fn damaged(record: &TierRecord) -> Error {
    Error::new(
        Code::Csum,
        format!("tier '{}' does not give back the bytes that were put there", record.tier),
    )
}
