//! Arrays: records addressed by index, cut into chunks, one chunk per integer dkey.
//!
//! Chunk `i` is dkey `i + 1` under the empty akey (DAOS's array layout; dkey 0 is left for
//! attributes). Chunks go round-robin over the object's groups, so one long transfer asks all
//! targets at once. Ranges of records and pieces of memory are cut independently.

use crate::batch::{Batch, BatchResult};
use crate::cells::{Whole, parts_of};
use crate::cont::Container;
use crate::fan_out::all_done;
use crate::first_part::{end_of, fetch_mark, is_marked};
use crate::read_from::ReadFrom;
use crate::tx::Tx;
use async_recursion::async_recursion as boxed;
use futures_util::future::{try_join, try_join_all};
use smallvec::SmallVec;
use types::{Code, Error, Oid, Result, Unit, limits};
use wire::obj::{
    Cond, FetchIod, FetchWant, Fetched, Op, OpReply, ReadScope, Recx, Tail, UpdateIod, UpdateValue,
};

/// Akey of array data.
pub(crate) const DATA: &[u8] = b"";

/// An array object with known shape.
#[derive(Clone)]
pub struct ArrayObj {
    pub cont: Container,
    /// The object; its type orders dkeys as integers.
    pub oid: Oid,
    /// Size of a record, bytes; not 0.
    pub record_bytes: u32,
    /// Records in a chunk; not 0.
    pub chunk_records: u64,
}

/// A run of records inside one chunk.
pub(crate) struct Piece {
    pub dkey: u64,
    pub recx: Recx,
    pub bytes: usize,
    /// Where its bytes begin in the memory of the whole transfer.
    pub at: usize,
}

/// Pieces that one request carries.
pub(crate) struct Load {
    pub unit: Unit,
    pub pieces: SmallVec<[Piece; 2]>,
    pub bytes: usize,
}

/// Memory of a load, cut to its pieces' lengths but not at their borders.
pub(crate) type Memory<T> = SmallVec<[T; 4]>;

/// Requests to be sent, each with the memory it fills or empties.
pub(crate) type Loads<T> = SmallVec<[(Load, Memory<T>); 1]>;

pub(crate) fn dkey_of(chunk: u64) -> u64 {
    chunk + 1
}

impl ArrayObj {
    /// Bytes of `count` records.
    fn bytes(&self, count: u64) -> Result<usize> {
        count
            .checked_mul(self.record_bytes as u64)
            .and_then(|bytes| usize::try_from(bytes).ok())
            .ok_or_else(|| Error::new(Code::FileTooBig, format!("{count} records are too many")))
    }

    /// Cuts ranges at chunk borders, in order.
    pub(crate) fn pieces(&self, ranges: &[Recx]) -> Result<SmallVec<[Piece; 2]>> {
        let mut pieces = SmallVec::new();
        let mut memory_at = 0usize;
        for range in ranges {
            let end = range.end().filter(|end| *end <= i64::MAX as u64).ok_or_else(|| {
                Error::new(
                    Code::FileTooBig,
                    format!("range {}+{} is beyond the largest offset", range.index, range.count),
                )
            })?;
            let mut at = range.index;
            while at < end {
                let (chunk, within) = (at / self.chunk_records, at % self.chunk_records);
                let left_bytes_max = limits::BULK_BYTES_MAX as u64 / self.record_bytes as u64;
                let count = (end - at).min(self.chunk_records - within).min(left_bytes_max.max(1));
                // A chunk in which the first part ends is on two units.
                let count = match self.first_records().checked_sub(at) {
                    Some(first @ 1..) => count.min(first),
                    _ => count,
                };
                let recx = Recx { index: within, count };
                let bytes = self.bytes(count)?;
                pieces.push(Piece { dkey: dkey_of(chunk), recx, bytes, at: memory_at });
                memory_at = memory_at.saturating_add(bytes);
                at += count;
            }
        }
        Ok(pieces)
    }

    /// Spreads pieces and the memory they fill or empty over requests: one per unit and
    /// [`limits::BULK_BYTES_MAX`]. A piece of more than `alone_bytes` has one for itself.
    pub(crate) fn loads<T: Cut>(
        &self,
        ranges: &[Recx],
        memory: impl Iterator<Item = T>,
        alone_bytes: usize,
    ) -> Result<Loads<T>> {
        let mut memory = memory.filter(|piece| piece.length() > 0);
        let mut current: Option<T> = None;
        let mut loads = Loads::new();
        for piece in self.pieces(ranges)? {
            let unit = self.unit_at(piece.dkey, piece.recx.index)?;
            let fits = |(load, _): &(Load, Memory<T>)| {
                let is_full = load.pieces.len() == 1 && load.bytes > alone_bytes;
                load.unit == unit
                    && load.bytes + piece.bytes <= limits::BULK_BYTES_MAX
                    && piece.bytes <= alone_bytes
                    && !is_full
            };
            let at = loads.iter().rposition(fits).unwrap_or_else(|| {
                loads.push((Load { unit, pieces: SmallVec::new(), bytes: 0 }, Memory::new()));
                loads.len() - 1
            });
            let (load, slices) = &mut loads[at];
            let mut wanted = piece.bytes;
            while wanted > 0 {
                let slice = match current.take() {
                    Some(slice) => slice,
                    None => memory.next().ok_or_else(too_little_memory)?,
                };
                let (taken, rest) = slice.cut(wanted);
                wanted -= taken.length();
                slices.push(taken);
                current = rest;
            }
            load.bytes += piece.bytes;
            load.pieces.push(piece);
        }
        Ok(loads)
    }

    /// Writes `ranges` from `memory`; both are cut independently and have equal total length.
    #[boxed(?Send)]
    pub async fn write(&self, ranges: &[Recx], memory: &[&[u8]]) -> Result<()> {
        match self.write_in(None, ranges, memory).await {
            Err(error) if error.code == Code::NoSpace && self.oid.cells().is_some() => {
                Box::pin(self.write_when_there_is_room(error, ranges, memory)).await
            }
            outcome => outcome,
        }
    }

    /// The same inside a transaction.
    #[boxed(?Send)]
    pub async fn write_in(&self, tx: Option<&Tx>, ranges: &[Recx], memory: &[&[u8]]) -> Result<()> {
        self.cont.learn(self.oid).await;
        let loads = self.loads(ranges, memory.iter().copied(), usize::MAX)?;
        self.mark_if_beyond(end_of(ranges)).await?;
        match &loads[..] {
            [(load, slices)] => self.write_load(tx, load, slices, false).await.map(|_| ()),
            _ if tx.is_none() => self.write_loads(&loads).await,
            _ => {
                for (load, slices) in &loads {
                    self.write_load(tx, load, slices, false).await?;
                }
                Ok(())
            }
        }
    }

    /// Writes one load, or adds it to a transaction. If `tells_end`, the last reply is what the unit was before.
    pub(crate) async fn write_load(
        &self,
        tx: Option<&Tx>,
        load: &Load,
        slices: &[&[u8]],
        tells_end: bool,
    ) -> Result<BatchResult> {
        if tx.is_none()
            && let Some(whole) = self.whole_stripes(load)
            && self.keep_cells(load, &whole, slices).await
        {
            match self.name_cells(load, &whole, slices, tells_end).await {
                // A member has gone meanwhile, or it took too long.
                Err(error) if error.code == Code::Busy => {
                    self.cont.cells_known().count(|traffic| traffic.given_up += 1);
                }
                outcome => {
                    self.cont.cells_known().count(|traffic| traffic.written += 1);
                    return outcome;
                }
            }
        }
        let keys: SmallVec<[[u8; 8]; 2]> =
            load.pieces.iter().map(|piece| piece.dkey.to_le_bytes()).collect();
        let mut batch = self.cont.batch();
        for run in runs(&load.pieces) {
            let recxs = load.pieces[run.clone()].iter().map(|piece| piece.recx).collect();
            let value = UpdateValue::Array { record_bytes: self.record_bytes, recxs };
            let iods = vec![UpdateIod { akey: DATA, cond: Cond::NONE, value }];
            let dkey = &keys[run.start];
            let op = Op::Update { unit: load.unit, dkey, cond: Cond::NONE, iods };
            match tx {
                // The ops of a load are neighbours in the transaction, so the first may carry
                // the data of all.
                Some(tx) if run.start == 0 => tx.add(&op, slices)?,
                Some(tx) => tx.add(&op, &[])?,
                None => {
                    batch.op_of_unit(op);
                }
            }
        }
        for slice in slices {
            batch.bulk_out(slice);
        }
        if tells_end {
            batch.op_of_unit(Op::Stat { unit: load.unit });
        }
        batch.run().await
    }

    /// Writes a load of which the members keep the cells of whole stripes.
    ///
    /// Errors: `Busy`, and no effect, when the leader cannot rely on that.
    async fn name_cells(
        &self,
        load: &Load,
        whole: &Whole,
        memory: &[&[u8]],
        tells_end: bool,
    ) -> Result<BatchResult> {
        let keys: SmallVec<[[u8; 8]; 2]> =
            load.pieces.iter().map(|piece| piece.dkey.to_le_bytes()).collect();
        let mut batch = self.cont.batch();
        let record_bytes = self.record_bytes;
        let mut before = 0;
        for (at, piece) in load.pieces.iter().enumerate() {
            let rest = whole.rest(at, piece.recx).into_iter().filter(|rest| rest.count > 0);
            let recxs: Vec<Recx> = rest.collect();
            let update = |value| {
                let iods = vec![UpdateIod { akey: DATA, cond: Cond::NONE, value }];
                Op::Update { unit: load.unit, dkey: &keys[at], cond: Cond::NONE, iods }
            };
            if !recxs.is_empty() {
                batch.op_of_unit(update(UpdateValue::Array { record_bytes, recxs: recxs.clone() }));
            }
            for recx in recxs {
                let from = before + self.bytes(recx.index - piece.recx.index)?;
                for part in parts_of(memory, from, self.bytes(recx.count)?) {
                    batch.bulk_out(part);
                }
            }
            if let Some(value) = whole.value(at, record_bytes) {
                batch.op_of_unit(update(value));
            }
            before += piece.bytes;
        }
        if tells_end {
            batch.op_of_unit(Op::Stat { unit: load.unit });
        }
        batch.run().await
    }

    /// Reads `ranges` into `memory`; holes and everything beyond the end read as zero.
    ///
    /// Returns a lower bound of the array's size in records: when it is at least the end of the
    /// ranges all of them lie inside the array; otherwise [`ArrayObj::size`] tells.
    #[boxed(?Send)]
    pub async fn read(&self, ranges: &[Recx], memory: &mut [&mut [u8]]) -> Result<u64> {
        self.read_in(None, ranges, memory).await
    }

    /// [`ArrayObj::read`], and the array's size; in one request where one target has all there is
    /// to know, as it has of most small files.
    #[boxed(?Send)]
    pub async fn read_and_size(&self, ranges: &[Recx], memory: &mut [&mut [u8]]) -> Result<u64> {
        self.cont.learn(self.oid).await;
        let memory = memory.iter_mut().map(|piece| &mut **piece);
        let mut loads = self.loads(ranges, memory, usize::MAX)?;
        if !self.cont.may_reach_beyond(self.oid) {
            let (size_min, size) = self.read_first(loads).await?;
            return match size {
                Some(size) => Ok(size),
                None => Ok(self.size().await?.max(size_min)),
            };
        }
        if self.cont.layout(self.oid)?.group_count() == 1
            && loads.len() == 1
            && let Some((load, slices)) = loads.pop()
        {
            let (size_min, tail) = self.read_load(None, load, slices, true).await?;
            return Ok(tail.map_or(0, |tail| self.size_from_tail(&tail)).max(size_min));
        }
        let reads =
            loads.into_iter().map(|(load, slices)| self.read_load(None, load, slices, false));
        let (reads, size) = try_join(try_join_all(reads), self.size()).await?;
        Ok(reads.into_iter().map(|(size_min, _)| size_min).max().unwrap_or(0).max(size))
    }

    /// The same as [`ArrayObj::read`] inside a transaction.
    pub async fn read_in(
        &self,
        tx: Option<&Tx>,
        ranges: &[Recx],
        memory: &mut [&mut [u8]],
    ) -> Result<u64> {
        self.cont.learn(self.oid).await;
        let memory = memory.iter_mut().map(|piece| &mut **piece);
        let mut loads = self.loads(ranges, memory, usize::MAX)?;
        if tx.is_none() && self.may_be_small(end_of(ranges)) {
            return Ok(self.read_first(loads).await?.0);
        }
        if loads.len() == 1
            && let Some((load, slices)) = loads.pop()
        {
            return Ok(self.read_load(tx, load, slices, false).await?.0);
        }
        let reads = loads.into_iter().map(|(load, slices)| self.read_load(tx, load, slices, false));
        let reads = try_join_all(reads).await?;
        Ok(reads.into_iter().map(|(size_min, _)| size_min).max().unwrap_or(0))
    }

    /// Returns a lower bound of the size, and with `stat` what the target's shard says.
    pub(crate) async fn read_load(
        &self,
        tx: Option<&Tx>,
        load: Load,
        slices: Memory<&mut [u8]>,
        stat: bool,
    ) -> Result<(u64, Option<Tail>)> {
        let (size_min, tail, _) = self.read_load_of(tx, load, slices, stat, false).await?;
        Ok((size_min, tail))
    }

    /// Reads from the first unit of a progressive array. Returns a lower bound of the size, and what the unit says,
    /// unless there is a mark.
    pub(crate) async fn read_load_marked(
        &self,
        load: Load,
        slices: Memory<&mut [u8]>,
    ) -> Result<(u64, Option<Tail>)> {
        let (size_min, tail, marked) = self.read_load_of(None, load, slices, true, true).await?;
        if marked {
            self.cont.note_mark(self.oid);
        }
        Ok((size_min, tail.filter(|_| !marked)))
    }

    async fn read_load_of(
        &self,
        tx: Option<&Tx>,
        load: Load,
        slices: Memory<&mut [u8]>,
        stat: bool,
        mark: bool,
    ) -> Result<(u64, Option<Tail>, bool)> {
        let keys: SmallVec<[[u8; 8]; 2]> =
            load.pieces.iter().map(|piece| piece.dkey.to_le_bytes()).collect();
        let mut takes_cells = tx.is_none() && self.may_read_cells(&load);
        let mut room: Vec<&mut [u8]> = slices.into_iter().collect();
        let (result, dkeys) = loop {
            let (mut batch, dkeys) = self.read_batch(&load, &keys, mark, stat);
            room.into_iter().for_each(|slice| batch.bulk_in(slice));
            if takes_cells {
                batch.may_be_told_cells();
            }
            if tx.is_none() {
                batch.may_ask_members();
            }
            let (result, mut filled) = batch.run_with_room().await?;
            let named = result.cells()?;
            if named.is_empty() || self.read_cells(&load, &named, &mut filled).await {
                break (result, dkeys);
            }
            (takes_cells, room) = (false, filled);
        };
        let replies = result.replies()?;
        let tail = match replies.last() {
            Some(OpReply::Stat(stat)) => Some(stat.tail),
            _ => None,
        };
        let marked = mark && is_marked(replies.get(dkeys.len()))?;
        let mut size_min = 0;
        for (reply, dkey) in replies.iter().zip(dkeys) {
            let OpReply::Fetched(iods) = reply else {
                return Err(Error::new(Code::Proto, "a fetch got an answer of another kind"));
            };
            if let (Some(tx), Some(iod)) = (tx, iods.first()) {
                let scope = dkey.to_le_bytes();
                tx.saw(load.unit, ReadScope::Akey(&scope, DATA), iod.epoch);
            }
            if let Some(Fetched::Array { end, .. }) = iods.first().map(|iod| &iod.value)
                && *end > 0
            {
                size_min = size_min.max((dkey - 1) * self.chunk_records + end);
            }
        }
        Ok((size_min, tail, marked))
    }

    /// What reads a load, and the dkeys of its fetches.
    fn read_batch<'a>(
        &self,
        load: &Load,
        keys: &'a [[u8; 8]],
        mark: bool,
        stat: bool,
    ) -> (Batch<'a>, SmallVec<[u64; 2]>) {
        let mut batch = self.cont.batch();
        let mut dkeys: SmallVec<[u64; 2]> = SmallVec::new();
        for run in runs(&load.pieces) {
            let recxs = load.pieces[run.clone()].iter().map(|piece| piece.recx).collect();
            let want = FetchWant::Array { record_bytes: self.record_bytes, recxs };
            let iods = vec![FetchIod { akey: DATA, want }];
            let dkey = &keys[run.start];
            dkeys.push(load.pieces[run.start].dkey);
            batch.op_of_unit(Op::Fetch { unit: load.unit, dkey, cond: Cond::NONE, iods });
        }
        if mark {
            batch.op_of_unit(fetch_mark(self.oid));
        }
        if stat {
            batch.op_of_unit(Op::Stat { unit: load.unit });
        }
        (batch, dkeys)
    }

    /// Size in records as one shard's [`Tail`] tells it.
    pub fn size_from_tail(&self, tail: &Tail) -> u64 {
        match tail.dkey_max {
            Some(dkey) if dkey > 0 => (dkey - 1).saturating_mul(self.chunk_records) + tail.end,
            _ => 0,
        }
    }

    /// Asks all shards that may hold something; returns their tails merged (size in `end`, `dkey_max` unused).
    #[boxed(?Send)]
    pub async fn stat(&self) -> Result<Tail> {
        self.cont.learn(self.oid).await;
        let mut merged = Tail::default();
        for (_, tail) in self.stat_shards_of(ReadFrom::Members).await? {
            merged.end = merged.end.max(self.size_from_tail(&tail));
            merged.epoch = merged.epoch.max(tail.epoch);
            merged.bytes_used += tail.bytes_used;
        }
        Ok(merged)
    }

    /// Size: one past the last written record.
    #[boxed(?Send)]
    pub async fn size(&self) -> Result<u64> {
        Ok(self.stat().await?.end)
    }

    /// Cuts or extends the array to `size` records. New records read as zero.
    ///
    /// Errors: `NoSpace`, and nothing has changed: the new end takes room, and it is seen to first. (So may, after it, what is left of a
    /// chunk in which a first part ends.)
    #[boxed(?Send)]
    pub async fn set_size(&self, size: u64) -> Result<()> {
        self.cont.learn(self.oid).await;
        if size > i64::MAX as u64 {
            return Err(Error::new(Code::FileTooBig, format!("size {size} is too large")));
        }
        self.mark_if_beyond(size).await?;
        let mut done = None;
        if !self.cont.may_reach_beyond(self.oid) {
            if !self.cut_first(size).await? {
                return Ok(());
            }
            done = Some(self.oid.first_unit());
        }
        let others =
            self.cont.known_units(self.oid)?.into_iter().filter(|unit| Some(*unit) != done);
        let edge = self.edge(size);
        let of_edge = match edge {
            Some(dkey) => {
                Some(self.unit_at(u64::from_le_bytes(dkey), (size - 1) % self.chunk_records)?)
            }
            None => None,
        };
        let (first, then): (Vec<Unit>, Vec<Unit>) = others.partition(|unit| Some(*unit) == of_edge);
        for units in [first, then] {
            let asked = units.into_iter().map(async |unit| {
                let mut batch = self.cont.batch();
                self.cut_unit(&mut batch, unit, size, &edge)?;
                batch.run().await.map(|_| ())
            });
            all_done(asked).await?;
        }
        Ok(())
    }

    /// The chunk that holds the last record of an array of `size`, if it holds any.
    pub(crate) fn edge(&self, size: u64) -> Option<[u8; 8]> {
        (size > 0).then(|| dkey_of((size - 1) / self.chunk_records).to_le_bytes())
    }

    /// What cuts or extends one unit so that the array has `size` records; `edge` is [`ArrayObj::edge`].
    pub(crate) fn cut_unit<'a>(
        &self,
        batch: &mut Batch<'a>,
        unit: Unit,
        size: u64,
        edge: &'a Option<[u8; 8]>,
    ) -> Result<()> {
        let (last_chunk, within) = (size / self.chunk_records, size % self.chunk_records);
        // Never dkey 0: attributes live there.
        let first_gone = if within == 0 { dkey_of(last_chunk) } else { dkey_of(last_chunk) + 1 };
        batch.op_of_unit(Op::PunchDkeysFrom { unit, from: first_gone });
        let Some(dkey) = edge else { return Ok(()) };
        let number = u64::from_le_bytes(*dkey);
        let mut iods = Vec::with_capacity(2);
        // A chunk in which a first part ends has its end on another unit than its beginning.
        let ends_here = within > 0 && self.unit_at(number, self.chunk_records - 1)? == unit;
        let last = (size - 1) % self.chunk_records;
        let last_here = self.unit_at(number, last)? == unit;
        if within > 0 && (ends_here || last_here) {
            let gone = Recx { index: within, count: self.chunk_records - within };
            iods.push(data_iod(UpdateValue::PunchRecords { recxs: vec![gone] }));
        }
        if last_here {
            let recxs = vec![Recx { index: last, count: 1 }];
            iods.push(data_iod(UpdateValue::Zero { record_bytes: self.record_bytes, recxs }));
        }
        if !iods.is_empty() {
            batch.op_of_unit(Op::Update { unit, dkey, cond: Cond::NONE, iods });
        }
        Ok(())
    }

    /// Removes the object from all its shards.
    #[boxed(?Send)]
    pub async fn destroy(&self) -> Result<()> {
        self.cont.learn(self.oid).await;
        self.cont.object(self.oid).punch(Cond::NONE).await
    }
}

pub(crate) fn data_iod(value: UpdateValue<'static>) -> UpdateIod<'static> {
    UpdateIod { akey: DATA, cond: Cond::NONE, value }
}

/// Runs of neighbouring pieces with one dkey.
pub(crate) fn runs(pieces: &[Piece]) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
    let mut at = 0;
    pieces.chunk_by(|a, b| a.dkey == b.dkey).map(move |run| {
        let range = at..at + run.len();
        at = range.end;
        range
    })
}

fn too_little_memory() -> Error {
    Error::inval("the memory given is smaller than the ranges")
}

/// Memory that can be cut in two.
pub(crate) trait Cut: Sized {
    fn length(&self) -> usize;
    /// The first `wanted` bytes (or all, if fewer), and the rest if any.
    fn cut(self, wanted: usize) -> (Self, Option<Self>);
}

impl Cut for &[u8] {
    fn length(&self) -> usize {
        self.len()
    }
    fn cut(self, wanted: usize) -> (Self, Option<Self>) {
        if wanted >= self.len() {
            return (self, None);
        }
        let (taken, rest) = self.split_at(wanted);
        (taken, Some(rest))
    }
}

impl Cut for &mut [u8] {
    fn length(&self) -> usize {
        self.len()
    }
    fn cut(self, wanted: usize) -> (Self, Option<Self>) {
        if wanted >= self.len() {
            return (self, None);
        }
        let (taken, rest) = self.split_at_mut(wanted);
        (taken, Some(rest))
    }
}
