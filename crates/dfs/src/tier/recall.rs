//! Bringing chunks back from the copy.
//!
//! Whoever reads copies hands out pieces of them; of a piece each stub takes its own bytes, if they are those of its checksum.
//! A reader has them then, and a task behind it ([`Returns`](super::Returns)) puts all that came along into the pool; a writer waits until the pool has what it changes.
//! Each chunk goes back in a batch that checks that the stub is still the one that was seen. Where nothing can be written (a snapshot, a mount to
//! read only) the bytes go to the reader and no further.

use super::returns::Next;
use super::{CLEAN, Chunk, CopyPiece, DATA, Stub, TierAsk, TierRecord, dkey_of, source};
use crate::entry::reply_kind;
use crate::flags::MountFlags;
use crate::fs::{Dfs, inline};
use crate::holes::runs_of_data;
use crate::node::Obj;
use crate::share::SharedObj;
use async_recursion::async_recursion as boxed;
use futures_util::future::{Either, join, select, try_join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use types::{Code, Epoch, Error, Oid, Result, Unit};
use wire::obj::{
    Cond, FetchIod, FetchWant, Fetched, Op, OpReply, ReadCheck, ReadScope, Recx, UpdateIod,
    UpdateValue,
};

/// Times that an operation is run again after chunks were brought back: somebody may take them away just as often.
const TRIES_MAX: usize = 16;

/// Chunks of a piece that are put back at the same time.
const CHUNKS_GOING_MAX: usize = 4;

/// Pieces that are put back at the same time, while the next one is fetched.
const PIECES_GOING_MAX: usize = 4;

/// What of a copy comes in one request beside users: requests cost a store more than what they carry when they are small.
const BESIDE_BYTES: u64 = 4 << 20;

/// A piece of which nothing was read for so long is put back though it is the newest: longer than a reader in order is with a chunk, and short for
/// whoever looks at the file next.
const READ_PAUSE: Duration = Duration::from_millis(20);

/// Whether what a reader gets from a tier goes into the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Returning {
    /// Behind the reader, where that can be.
    Behind,
    /// The reader is one that passes it on.
    Never,
}

/// A stub that was found.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Seen {
    pub chunk: u64,
    unit: Unit,
    pub epoch: Epoch,
    pub stub: Stub,
}

impl Seen {
    /// The chunk's bytes in a piece of the copy, if they are those that were given up.
    fn of<'a>(&self, piece: &'a CopyPiece, chunk_bytes: u64) -> Option<&'a [u8]> {
        let at = usize::try_from((self.chunk * chunk_bytes).checked_sub(piece.from)?).ok()?;
        let bytes = piece.bytes.get(at..)?.get(..self.stub.bytes as usize)?;
        piece.proved.fits(self, bytes).then_some(bytes)
    }
}

/// Chunks of a piece whose bytes were compared with the stub that was seen last, for the piece and all its clones: a chunk that is read in small blocks, and put
/// back, is compared once.
#[derive(Clone, Debug, Default)]
pub(super) struct Proved(Arc<Mutex<HashMap<u64, Seen>>>);

impl Proved {
    /// True when these, the piece's bytes of the stub's chunk, are those that were given up.
    fn fits(&self, seen: &Seen, bytes: &[u8]) -> bool {
        let known = self.lock().get(&seen.chunk).copied();
        let fits =
            known.is_some_and(|known| known.stub == seen.stub) || Stub::of(bytes) == seen.stub;
        if fits && known != Some(*seen) {
            self.lock().insert(seen.chunk, *seen);
        }
        fits
    }

    /// The stub of a chunk that fits, as it was seen last.
    fn of(&self, chunk: u64) -> Option<Seen> {
        self.lock().get(&chunk).copied()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A copy, or a part of it, that is not in its tier: data are lost, and the file is there. Programs would take it for a file that is not.
fn not_there(error: Error) -> Error {
    match error.code {
        Code::NonExist => Error::new(
            Code::Io,
            format!("what the file's copy consists of is missing in its tier: {error}"),
        ),
        _ => error,
    }
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
                    if self.recall(file, ranges, false, &|_| {}).await? == 0 && tries > 1 {
                        return Err(error);
                    }
                }
                outcome => return outcome,
            }
        }
    }

    /// After a read met a stub: reads with what is missing from the tier, which goes back into the pool behind the reader where that can be.
    /// Returns what [`client::ArrayObj::read`] does.
    pub(crate) async fn read_tiered(
        &self,
        file: &Obj,
        ranges: &[Recx],
        memory: &mut [&mut [u8]],
        returning: Returning,
    ) -> Result<u64> {
        let chunk_bytes = file.node.array().chunk_records;
        let pieces = self.cut_at_chunks(file, ranges);
        let mut chunks: Vec<u64> = pieces.iter().map(|piece| piece.index / chunk_bytes).collect();
        chunks.sort_unstable();
        chunks.dedup();
        // Who waits for the first bytes does not wait for one answer after the other. The record is asked for again where it is missed.
        let (stubs, _) = join(self.stubs(file, &chunks), self.known_record(file)).await;
        let stubs: HashMap<u64, Seen> = stubs?.into_iter().map(|seen| (seen.chunk, seen)).collect();
        file.node.set_meets_stubs(!stubs.is_empty());
        let mut size_min = 0;
        for (piece, mut room) in pieces.iter().zip(cut_memory(&pieces, memory)?) {
            let seen = stubs.get(&(piece.index / chunk_bytes)).copied();
            size_min =
                size_min.max(self.read_piece(file, *piece, seen, &mut room, returning).await?);
        }
        Ok(size_min)
    }

    /// Reads a range within a chunk, of which a stub may have been seen.
    async fn read_piece(
        &self,
        file: &Obj,
        range: Recx,
        mut seen: Option<Seen>,
        room: &mut [&mut [u8]],
        returning: Returning,
    ) -> Result<u64> {
        let array = file.node.array();
        let chunk = range.index / array.chunk_records;
        let mut tries = 0;
        let seen = loop {
            if let Some(seen) = seen {
                break seen;
            }
            match array.read(&[range], room).await {
                Err(error) if error.code == Code::Inval && tries < TRIES_MAX => {
                    tries += 1;
                    let unit = array.unit_of(chunk + 1, 0).await?;
                    seen = self.fetch_stub(unit, chunk).await?;
                    // None: it came back just now, or it was about something else.
                    if seen.is_none() && tries > 1 {
                        return Err(error);
                    }
                }
                outcome => return outcome,
            }
        };
        let piece = self.piece_of(file, &seen).await?;
        let bytes = seen.of(&piece, array.chunk_records);
        let within = (range.index % array.chunk_records) as usize;
        let bytes = bytes.and_then(|bytes| bytes.get(within..)?.get(..range.count as usize));
        let mut rest = bytes.ok_or_else(reply_kind)?;
        for room in room {
            let (mine, others) = rest.split_at_checked(room.len()).ok_or_else(reply_kind)?;
            room.copy_from_slice(mine);
            rest = others;
        }
        if returning == Returning::Behind && self.may_restore() {
            self.return_behind(file, piece).await;
        }
        // The chunk with the end of the file has no stub.
        Ok((chunk + 1) * array.chunk_records)
    }

    /// Has a piece put back into the pool behind the caller, who waits only where too much is on its way already.
    async fn return_behind(&self, file: &Obj, piece: CopyPiece) {
        let added = self.shared.returns.borrow().add(file.share(), piece);
        if let Some(mut run) = added.run {
            let (fs, file) = (self.clone(), file.clone());
            self.shared.cont.client().env().spawn(async move {
                let env = fs.shared.cont.client().env();
                loop {
                    match run.next() {
                        // What cannot be put back (there is no room, an engine is away) stays where it is. Who needs it there is told.
                        Next::Pieces(pieces) => drop(fs.put_all_back(&file, &pieces).await),
                        Next::Pause(nudge) => drop(env.timeout(READ_PAUSE, nudge).await),
                        Next::Over => break,
                    }
                }
            });
        }
        if let Some(wait) = added.wait {
            // Given up is as good as done.
            let _ = wait.await;
        }
    }

    /// Waits until what this mount's readers have brought of a file is in the pool; returns how the file is known if there was something.
    pub(crate) async fn tier_settled(&self, oid: Oid) -> Option<Obj> {
        let pending = self.shared.returns.borrow().pending(oid);
        let (file, done): (SharedObj, _) = pending?;
        let file = self.attach(&file);
        // Given up is as good as done.
        let _ = done.await;
        Some(file)
    }

    /// Has this mount and another one, which serve the same callers, know of each other's chunks that come back.
    pub fn share_tier_returns(&self, returns: &super::Returns) {
        self.shared.returns.replace(returns.clone());
    }

    /// Brings all of the file back; returns how many bytes that were. `progress` is told bytes as they are back.
    ///
    /// Errors: `Unreach` when nobody in this process reads tiers; `Csum` when the copy is damaged; `ReadOnly`; `NoSpace`.
    #[boxed(?Send)]
    pub async fn tier_fetch(&self, file: &Obj, progress: &dyn Fn(u64)) -> Result<u64> {
        file.require_regular()?;
        self.require_writable()?;
        if self.tier_record(file).await?.is_none() {
            return Ok(0);
        }
        let size = self.size(file).await?;
        let all = [Recx { index: 0, count: size }];
        let count = self.recall(file, &all, true, progress).await?;
        Ok(count as u64 * file.node.array().chunk_records)
    }

    fn may_restore(&self) -> bool {
        let cont = &self.shared.cont;
        !self.shared.flags.has(MountFlags::READ_ONLY)
            && !cont.is_read_only()
            && cont.at() == Epoch::ZERO
    }

    async fn require_record(&self, file: &Obj) -> Result<Arc<TierRecord>> {
        let record = self.tier_record(file).await?.filter(|record| record.version > 0);
        let record = record.map(Arc::new).ok_or_else(|| {
            Error::new(
                Code::Io,
                "the file's data are in a tier, but which copy has them is not known any more: the file was removed while \
                 it is open, or its attributes are damaged",
            )
        })?;
        self.shared.returns.borrow().keep_record(&record);
        Ok(record)
    }

    /// The file's record, or an older one.
    async fn known_record(&self, file: &Obj) -> Result<Arc<TierRecord>> {
        let known = self.shared.returns.borrow().record(file.oid());
        match known {
            Some(record) => Ok(record),
            None => self.require_record(file).await,
        }
    }

    /// A piece of the copy in which the chunk of a stub is as it was given up.
    async fn piece_of(&self, file: &Obj, seen: &Seen) -> Result<CopyPiece> {
        let chunk_bytes = file.node.array().chunk_records;
        let index = seen.chunk * chunk_bytes;
        let end = index.checked_add(seen.stub.bytes as u64).ok_or_else(reply_kind)?;
        let here = self.shared.returns.borrow().find(file.oid(), &(index..end));
        if let Some(piece) = here.filter(|piece| seen.of(piece, chunk_bytes).is_some()) {
            return Ok(piece);
        }
        let ask = |record: &Arc<TierRecord>| TierAsk {
            cont: self.shared.cont.id(),
            record: (**record).clone(),
            range: Recx { index, count: end - index },
        };
        let fits = |piece: &CopyPiece| seen.of(piece, chunk_bytes).is_some();
        let mut record = self.known_record(file).await?;
        let client = self.shared.cont.client();
        let read = async |asked: TierAsk| match client.gives_way() {
            true => client.beside_users(source().read_alone(beside(asked, chunk_bytes))).await,
            false => source().read_around(asked).await,
        };
        let mut found = read(ask(&record)).await;
        if !found.as_ref().is_ok_and(fits) {
            // That may have been the record of an older copy.
            let now = self.require_record(file).await?;
            if now != record {
                record = now;
                found = read(ask(&record)).await;
            }
        }
        let piece = found.map_err(not_there)?;
        if fits(&piece) {
            return Ok(piece);
        }
        // Bytes that were damaged on their way: the whole part has a checksum of its own.
        let ask = ask(&record);
        let part = ask.whole_part();
        let bytes = source().read(TierAsk { range: part, ..ask }).await.map_err(not_there)?;
        let piece = CopyPiece::new(part.index, Arc::new(bytes));
        if fits(&piece) { Ok(piece) } else { Err(damaged(&record)) }
    }

    /// Brings back what of the ranges, which are all of the file or some of it, is in the tier only; returns how many chunks that were.
    pub(super) async fn recall(
        &self,
        file: &Obj,
        ranges: &[Recx],
        is_all: bool,
        progress: &dyn Fn(u64),
    ) -> Result<usize> {
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
        if !self.may_restore() {
            return Err(Error::bare(Code::ReadOnly));
        }
        // What readers have brought already; and their times are put back.
        if self.tier_settled(file.oid()).await.is_some() {
            wanted = self.stubs(file, &chunks).await?;
        }
        let is_ahead = is_all && !self.shared.cont.client().gives_way();
        if let Some(first) = wanted.first().filter(|_| is_ahead) {
            source().announce(&*self.known_record(file).await?, first.chunk * chunk_bytes);
        }
        let times = self.times(file).await?;
        let (mut count, newest) = (0, Cell::new(Epoch::ZERO));
        let mut going = FuturesUnordered::new();
        let mut outcome = Ok(());
        // In order: a piece has those at the front.
        let mut wanted = VecDeque::from(wanted);
        let mut done = |restored: Result<usize>, outcome: &mut Result<()>| match restored {
            Ok(restored) => {
                count += restored;
                progress(restored as u64 * chunk_bytes);
            }
            Err(error) => *outcome = Err(error),
        };
        // After a failure those that are on their way come to their end: the file's time of modification is put back for them.
        loop {
            let next = wanted.front().copied().filter(|_| outcome.is_ok());
            let Some(first) = next.filter(|_| going.len() < PIECES_GOING_MAX) else {
                match going.next().await {
                    Some(restored) => done(restored, &mut outcome),
                    None => break,
                }
                continue;
            };
            // What came goes back while the next piece is waited for.
            let mut piece = pin!(self.piece_of(file, &first));
            let piece = loop {
                if going.is_empty() {
                    break piece.await;
                }
                match select(piece.as_mut(), going.next()).await {
                    Either::Left((piece, _)) => break piece,
                    Either::Right((restored, _)) => {
                        restored.into_iter().for_each(|restored| done(restored, &mut outcome));
                    }
                }
            };
            match piece {
                Ok(piece) => {
                    let mut others = Vec::new();
                    while let Some(seen) = wanted.front().copied()
                        && seen.chunk * chunk_bytes < piece.range().end
                    {
                        wanted.pop_front();
                        // One that does not fit is asked for by itself.
                        if seen.of(&piece, chunk_bytes).is_none() {
                            others.push(seen);
                        }
                    }
                    others.into_iter().rev().for_each(|seen| wanted.push_front(seen));
                    going.push(self.put_back(file, piece, &newest));
                }
                Err(error) => outcome = Err(error),
            }
        }
        self.keep_times(file, &times, newest.get()).await?;
        outcome.map(|()| count)
    }

    /// Puts pieces back into the pool, and the file's time of modification.
    async fn put_all_back(&self, file: &Obj, pieces: &[CopyPiece]) -> Result<()> {
        let times = self.times(file).await?;
        let (mut outcome, newest) = (Ok(()), Cell::new(Epoch::ZERO));
        let (mut going, mut rest) = (FuturesUnordered::new(), pieces.iter());
        loop {
            while going.len() < PIECES_GOING_MAX
                && outcome.is_ok()
                && let Some(piece) = rest.next()
            {
                going.push(self.put_back(file, piece.clone(), &newest));
            }
            match going.next().await {
                None => break,
                Some(restored) => outcome = outcome.and(restored.map(drop)),
            }
        }
        self.keep_times(file, &times, newest.get()).await?;
        outcome
    }

    /// Puts those chunks of a piece back that have stubs which it fits; returns how many.
    async fn put_back(&self, file: &Obj, piece: CopyPiece, newest: &Cell<Epoch>) -> Result<usize> {
        let chunk_bytes = file.node.array().chunk_records;
        let whole = piece.range();
        let chunks = whole.start.div_ceil(chunk_bytes)..whole.end / chunk_bytes;
        // A stub that a reader has seen there and is another one by now stays: what is put back is checked.
        let (known, unknown): (Vec<_>, Vec<_>) = chunks
            .map(|chunk| (chunk, piece.proved.of(chunk)))
            .partition(|(_, seen)| seen.is_some());
        let unknown: Vec<u64> = unknown.into_iter().map(|(chunk, _)| chunk).collect();
        let mut stubs = self.stubs(file, &unknown).await?;
        stubs.extend(known.into_iter().filter_map(|(_, seen)| seen));
        let mut going = FuturesUnordered::new();
        let (mut count, mut rest) = (0, stubs.into_iter());
        let mut failed = Ok(());
        loop {
            while going.len() < CHUNKS_GOING_MAX
                && failed.is_ok()
                && let Some(seen) = rest.next()
            {
                if let Some(bytes) = seen.of(&piece, chunk_bytes) {
                    going.push(self.restore_chunk(seen, bytes));
                }
            }
            match going.next().await {
                None => break,
                Some(Ok(epoch)) => {
                    newest.set(epoch.max(newest.get()));
                    count += 1;
                }
                Some(Err(error)) => failed = Err(error),
            }
        }
        failed.map(|()| count)
    }

    /// Puts a chunk's bytes where its stub is; returns the epoch, or [`Epoch::ZERO`] when there was no need. What is zero takes no room: a sparse file
    /// comes back as one.
    async fn restore_chunk(&self, seen: Seen, bytes: &[u8]) -> Result<Epoch> {
        let (unit, key) = (seen.unit, dkey_of(seen.chunk));
        let dkey = &key[..];
        let mut batch = self.shared.cont.batch();
        let of = ReadScope::Akey(dkey, DATA);
        batch.check_of_unit(ReadCheck { unit, of, seen: seen.epoch });
        let akeys = vec![DATA.into()];
        batch.op_of_unit(Op::PunchAkeys { unit, dkey, cond: Cond::NONE, akeys });
        let mut runs = runs_of_data(bytes);
        if runs.is_empty() {
            // There is something where a chunk came back.
            runs.push(0..bytes.len().min(1));
        }
        let recx = |run: &Range<usize>| Recx { index: run.start as u64, count: run.len() as u64 };
        let recxs = runs.iter().map(recx).collect();
        let value = UpdateValue::Array { record_bytes: 1, recxs };
        let data = UpdateIod { akey: DATA, cond: Cond::NONE, value };
        let iods = vec![data, inline(CLEAN, b"1")];
        batch.op_of_unit(Op::Update { unit, dkey, cond: Cond::NONE, iods });
        for run in runs {
            batch.bulk_out(bytes.get(run).ok_or_else(reply_kind)?);
        }
        match batch.run().await {
            Ok(result) => Ok(result.epoch),
            // Somebody else has brought it back, or removed it.
            Err(error) if error.code == Code::TxRestart => Ok(Epoch::ZERO),
            Err(error) => Err(error),
        }
    }

    /// The stubs among some chunks.
    pub(super) async fn stubs(&self, file: &Obj, chunks: &[u64]) -> Result<Vec<Seen>> {
        let array = file.node.array();
        let mut by_unit = std::collections::BTreeMap::<Unit, Vec<u64>>::new();
        for &chunk in chunks {
            // A chunk with a stub is in one unit.
            let unit = array.unit_of(chunk + 1, 0).await?;
            by_unit.entry(unit).or_default().push(chunk);
        }
        let of_units = by_unit.iter().map(|(&unit, chunks)| self.stubs_of_unit(unit, chunks));
        let mut found = try_join_all(of_units).await?.concat();
        found.sort_by_key(|seen| seen.chunk);
        Ok(found)
    }

    async fn stubs_of_unit(&self, unit: Unit, chunks: &[u64]) -> Result<Vec<Seen>> {
        if let &[chunk] = chunks {
            return Ok(self.fetch_stub(unit, chunk).await?.into_iter().collect());
        }
        let mut found = Vec::new();
        for some in chunks.chunks(super::CHUNKS_PER_REQUEST) {
            let states = self.probe_chunks(unit, some).await?;
            let are_stubs = some.iter().zip(states);
            let stubs = are_stubs.filter(|(_, state)| matches!(state, Chunk::Stub { .. }));
            let stubs: Vec<u64> = stubs.map(|(chunk, _)| *chunk).collect();
            match self.fetch_stubs(unit, &stubs).await {
                // One of them came back just now.
                Err(error) if error.code == Code::Inval => {
                    for chunk in stubs {
                        found.extend(self.fetch_stub(unit, chunk).await?);
                    }
                }
                outcome => found.extend(outcome?),
            }
        }
        Ok(found)
    }

    /// A chunk's stub; `None` when its bytes are back. `Io` when it is something else.
    async fn fetch_stub(&self, unit: Unit, chunk: u64) -> Result<Option<Seen>> {
        match self.fetch_stubs(unit, &[chunk]).await {
            Err(error) if error.code == Code::Inval => Ok(None),
            outcome => Ok(outcome?.pop()),
        }
    }

    /// Stubs of chunks of a unit, without those of which there is nothing. `Inval` when one of them is back, `Io` when one is something else.
    async fn fetch_stubs(&self, unit: Unit, chunks: &[u64]) -> Result<Vec<Seen>> {
        if chunks.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<[u8; 8]> = chunks.iter().map(|&chunk| dkey_of(chunk)).collect();
        let mut batch = self.shared.cont.batch();
        for dkey in &keys {
            let want = FetchWant::Single { bytes_max: 64, inline_bytes_max: 64 };
            let iods = vec![FetchIod { akey: DATA, want }];
            batch.op_of_unit(Op::Fetch { unit, dkey, cond: Cond::NONE, iods });
        }
        let result = batch.run().await?;
        let mut found = Vec::with_capacity(chunks.len());
        for (&chunk, reply) in chunks.iter().zip(result.replies()?) {
            let OpReply::Fetched(iods) = reply else { return Err(reply_kind()) };
            let Some(iod) = iods.first() else { return Err(reply_kind()) };
            match iod.value {
                Fetched::Absent => {}
                Fetched::Inline(raw) => match Stub::decode(raw) {
                    Some(stub) => found.push(Seen { chunk, unit, epoch: iod.epoch, stub }),
                    None => {
                        let text = "a chunk of a file holds what is no data of it";
                        return Err(Error::new(Code::Io, text));
                    }
                },
                _ => return Err(reply_kind()),
            }
        }
        Ok(found)
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

/// What a job that gives way to users asks for at a time: some chunks of the part, from that of the range on.
fn beside(ask: TierAsk, chunk_bytes: u64) -> TierAsk {
    let Recx { index, count } = ask.range;
    let part = ask.whole_part();
    let whole_chunks = BESIDE_BYTES / chunk_bytes * chunk_bytes;
    let most = (part.index + part.count).saturating_sub(index);
    TierAsk { range: Recx { index, count: whole_chunks.min(most).max(count) }, ..ask }
}

/// Memory cut as ranges are, which it has room for together.
fn cut_memory<'a>(ranges: &[Recx], memory: &'a mut [&mut [u8]]) -> Result<Vec<Vec<&'a mut [u8]>>> {
    let mut rest = memory.iter_mut().map(|piece| &mut **piece);
    let mut now: &mut [u8] = &mut [];
    let mut cut = Vec::with_capacity(ranges.len());
    for range in ranges {
        let (mut left, mut rooms) = (range.count as usize, Vec::with_capacity(1));
        while left > 0 {
            if now.is_empty() {
                now = rest.next().ok_or_else(reply_kind)?;
                continue;
            }
            let count = left.min(now.len());
            let (mine, others) = std::mem::take(&mut now).split_at_mut(count);
            rooms.push(mine);
            (now, left) = (others, left - count);
        }
        cut.push(rooms);
    }
    Ok(cut)
}

fn damaged(record: &TierRecord) -> Error {
    Error::new(
        Code::Csum,
        format!("tier '{}' does not give back the bytes that were put there", record.tier),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chunk that is read in blocks of 4 KiB was compared with its stub 256 times.
    #[test]
    fn a_chunk_of_a_piece_is_compared_with_its_stub_once() {
        let bytes = b"some bytes of a chunk";
        let unit = types::Oid { hi: 1, lo: 2 }.first_unit();
        let seen = Seen { chunk: 3, unit, epoch: Epoch(4), stub: Stub::of(bytes) };
        let piece = CopyPiece::new(0, Arc::new(Vec::new()));
        assert!(!piece.proved.fits(&seen, b"other bytes") && piece.proved.of(3).is_none());
        assert!(piece.proved.fits(&seen, bytes));
        // It is known by now, to those who have the same piece, whatever is shown.
        let same = piece.clone();
        assert!(same.proved.fits(&seen, b"not looked at"));
        // As it was seen last.
        assert!(same.proved.fits(&Seen { epoch: Epoch(5), ..seen }, b"not looked at"));
        assert_eq!(piece.proved.of(3).map(|seen| seen.epoch), Some(Epoch(5)));
        // Another stub is about other bytes.
        let other = Seen { stub: Stub::of(b"other bytes"), ..seen };
        assert!(!piece.proved.fits(&other, bytes) && piece.proved.fits(&other, b"other bytes"));
    }

    #[test]
    fn memory_is_cut_where_ranges_end() {
        let (mut a, mut b, mut c) = ([1, 2, 3], [], [4, 5]);
        let mut memory: Vec<&mut [u8]> = vec![&mut a, &mut b, &mut c];
        let range = |count| Recx { index: 0, count };
        let ranges = [range(1), range(3), range(0), range(1)];
        let cut = cut_memory(&ranges, &mut memory).unwrap();
        let told: Vec<Vec<Vec<u8>>> =
            cut.iter().map(|rooms| rooms.iter().map(|room| room.to_vec()).collect()).collect();
        assert_eq!(told, [vec![vec![1]], vec![vec![2, 3], vec![4]], vec![], vec![vec![5]]]);
        assert!(cut_memory(&[range(6)], &mut memory).is_err());
    }
}
