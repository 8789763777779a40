//! Holes in arrays: making them, and finding them.

use crate::array::{ArrayObj, data_iod, dkey_of};
use crate::fan_out::all_done;
use crate::read_from::ReadFrom;
use async_recursion::async_recursion as boxed;
use futures_util::future::try_join_all;
use std::collections::BTreeMap;
use types::{Code, Error, Result, Unit};
use wire::obj::{Cond, ListScope, Listed, Op, OpReply, Recx, Tail, UpdateValue};

/// Ops of one request that makes a hole.
const OPS_PER_REQUEST: usize = 256;
/// A hole over more chunks than this is made by looking which of them there are.
const CHUNKS_GUESSED_MAX: u64 = 1024;
/// Ranges or keys in one answer.
const PAGE: u32 = 8192;

impl ArrayObj {
    /// Makes a hole. The size stays unless the hole reaches the end.
    #[boxed(?Send)]
    pub async fn punch(&self, ranges: &[Recx]) -> Result<()> {
        self.cont.learn(self.oid).await;
        // What of which chunk; 0 records: all of it.
        let mut work: Vec<(u64, Recx)> = Vec::new();
        for range in ranges {
            let Some(end) = range.end().filter(|_| range.count > 0) else { continue };
            let first = range.index / self.chunk_records;
            let last = (end - 1) / self.chunk_records;
            if last - first < CHUNKS_GUESSED_MAX {
                let pieces = self.pieces(&[*range])?;
                work.extend(pieces.iter().map(|piece| (piece.dkey, piece.recx)));
                continue;
            }
            for dkey in self.chunks_within(dkey_of(first), dkey_of(last)).await? {
                let base = (dkey - 1) * self.chunk_records;
                let from = range.index.max(base) - base;
                let to = (end - base).min(self.chunk_records);
                let pieces = self.pieces(&[Recx { index: base + from, count: to - from }])?;
                work.extend(pieces.iter().map(|piece| (piece.dkey, piece.recx)));
            }
        }
        let mut by_unit: BTreeMap<Unit, Vec<(u64, Recx)>> = BTreeMap::new();
        for (dkey, recx) in work {
            let unit = self.unit_at(dkey, recx.index)?;
            let of_unit = by_unit.entry(unit).or_default();
            match of_unit.last_mut() {
                // Pieces of one chunk: it goes whole where all of it does, whatever is in it.
                Some((known, to))
                    if *known == dkey
                        && to.end() == Some(recx.index)
                        && (to.index, recx.end()) == (0, Some(self.chunk_records)) =>
                {
                    to.count += recx.count;
                }
                _ => of_unit.push((dkey, recx)),
            }
        }
        let asked = by_unit.iter().flat_map(|(unit, work)| {
            work.chunks(OPS_PER_REQUEST).map(|work| self.punch_at(*unit, work))
        });
        all_done(asked).await?;
        Ok(())
    }

    /// Makes a hole from a record to the end of an array of `size` records, which stays as long.
    ///
    /// What says where the array ends takes room, so it is seen to first, in one step with the hole before it: `NoSpace` leaves the size as it is.
    #[boxed(?Send)]
    pub async fn punch_to_end(&self, from: u64, size: u64) -> Result<()> {
        self.cont.learn(self.oid).await;
        let Some(last) = size.checked_sub(1).filter(|last| *last >= from) else { return Ok(()) };
        let within = last % self.chunk_records;
        let index = from.max(last - within);
        let pieces = self.pieces(&[Recx { index, count: size - index }])?;
        let Some(tail) = pieces.last() else { return Ok(()) };
        let unit = self.unit_at(tail.dkey, tail.recx.index)?;
        let end = vec![Recx { index: within, count: 1 }];
        let zero = UpdateValue::Zero { record_bytes: self.record_bytes, recxs: end };
        let hole = UpdateValue::PunchRecords { recxs: vec![tail.recx] };
        let (dkey, iods) = (tail.dkey.to_le_bytes(), vec![data_iod(hole), data_iod(zero)]);
        let mut batch = self.cont.batch();
        batch.op_of_unit(Op::Update { unit, dkey: &dkey, cond: Cond::NONE, iods });
        batch.run().await?;
        self.punch(&[Recx { index: from, count: size - tail.recx.count - from }]).await
    }

    async fn punch_at(&self, unit: Unit, work: &[(u64, Recx)]) -> Result<()> {
        let keys: Vec<[u8; 8]> = work.iter().map(|(dkey, _)| dkey.to_le_bytes()).collect();
        let mut batch = self.cont.batch();
        for ((_, recx), dkey) in work.iter().zip(&keys) {
            if recx.index == 0 && recx.count == self.chunk_records {
                let dkeys = vec![dkey[..].into()];
                batch.op_of_unit(Op::PunchDkeys { unit, cond: Cond::NONE, dkeys });
            } else {
                let iods = vec![data_iod(UpdateValue::PunchRecords { recxs: vec![*recx] })];
                batch.op_of_unit(Op::Update { unit, dkey, cond: Cond::NONE, iods });
            }
        }
        batch.run().await.map(|_| ())
    }

    /// The chunks that exist, by dkey, both ends included.
    async fn chunks_within(&self, first: u64, last: u64) -> Result<Vec<u64>> {
        let asked = self.units_in_use().await?.into_iter().map(|unit| async move {
            let (mut anchor, mut found) = (Vec::new(), Vec::new());
            loop {
                let (count_max, bytes_max) = (PAGE, 1 << 20);
                let scope =
                    ListScope::Dkeys { value_of: None, follow: false, hash_range: (0, u64::MAX) };
                let mut batch = self.cont.batch();
                batch.op_of_unit(Op::List { unit, scope, anchor: &anchor, count_max, bytes_max });
                let result = batch.run().await?;
                let replies = result.replies()?;
                let Some(OpReply::Listed { items, anchor: next, .. }) = replies.first() else {
                    return Err(wrong_answer());
                };
                for item in items {
                    let Listed::Key { key } = item else { return Err(wrong_answer()) };
                    let dkey = u64::from_le_bytes((*key).try_into().map_err(|_| wrong_answer())?);
                    if (first..=last).contains(&dkey) {
                        found.push(dkey);
                    }
                }
                if next.is_empty() {
                    return Ok(found);
                }
                let next = next.to_vec();
                drop(replies);
                anchor = next;
            }
        });
        Ok(try_join_all(asked).await?.concat())
    }

    /// The first written record at or after `from`, and the end of the written range around it;
    /// `None` when there is none. Filled records count as unwritten.
    #[boxed(?Send)]
    pub async fn next_run(&self, from: u64) -> Result<Option<Recx>> {
        self.cont.learn(self.oid).await;
        let mut at = from;
        let mut run: Option<Recx> = None;
        loop {
            let (runs, to) = self.runs(Recx { index: at, count: i64::MAX as u64 - at }).await?;
            for next in runs {
                match &mut run {
                    None => run = Some(next),
                    Some(run) if run.index + run.count == next.index => run.count += next.count,
                    Some(run) => return Ok(Some(*run)),
                }
            }
            if to >= i64::MAX as u64 || run.is_some_and(|run| run.index + run.count < to) {
                return Ok(run);
            }
            at = to;
        }
    }

    /// Written ranges from the start of `within` up to the position returned beside them, which is
    /// its end unless there are very many. Asks all shards that may hold something once.
    #[boxed(?Send)]
    pub async fn runs(&self, within: Recx) -> Result<(Vec<Recx>, u64)> {
        self.cont.learn(self.oid).await;
        let chunk_records = self.chunk_records;
        let asked = self.units_in_use().await?.into_iter().map(|unit| async move {
            let mut batch = self.cont.batch();
            batch.op_of_unit(Op::ListRuns { unit, chunk_records, within, count_max: PAGE });
            match batch.run().await?.replies()?.first() {
                Some(OpReply::Runs { runs, to }) => Ok((runs.clone(), *to)),
                _ => Err(wrong_answer()),
            }
        });
        let shards = try_join_all(asked).await?;
        let to = shards.iter().map(|(_, to)| *to).min().unwrap_or(within.index + within.count);
        let mut all: Vec<Recx> = shards
            .into_iter()
            .flat_map(|(runs, _)| runs)
            .filter(|run| run.index < to)
            .map(|run| Recx { count: run.count.min(to - run.index), ..run })
            .collect();
        all.sort_unstable_by_key(|run| run.index);
        all.dedup_by(|next, last| {
            let joins = last.index + last.count == next.index;
            if joins {
                last.count += next.count;
            }
            joins
        });
        Ok((all, to))
    }

    /// What each shard that may hold something knows of the array's end.
    #[boxed(?Send)]
    pub async fn stat_shards(&self) -> Result<Vec<(Unit, Tail)>> {
        self.stat_shards_of(ReadFrom::Leaders).await
    }

    /// The same, from leaders or from any members.
    pub(crate) async fn stat_shards_of(&self, from: ReadFrom) -> Result<Vec<(Unit, Tail)>> {
        if !self.cont.may_reach_beyond(self.oid)
            && let Some(tail) = self.tail_of_first(from).await?
        {
            return Ok(vec![(self.oid.first_unit(), tail)]);
        }
        let asked = self.cont.known_units(self.oid)?.into_iter().map(|unit| async move {
            let mut batch = self.cont.batch();
            batch.op_of_unit(Op::Stat { unit });
            if from == ReadFrom::Members {
                batch.may_ask_members();
            }
            match batch.run().await?.replies()?.first() {
                Some(OpReply::Stat(stat)) => Ok((unit, stat.tail)),
                _ => Err(wrong_answer()),
            }
        });
        try_join_all(asked).await
    }

    /// Makes the array end at `size` at least. Unlike [`ArrayObj::set_size`] it takes nothing away
    /// that somebody appends meanwhile.
    #[boxed(?Send)]
    pub async fn extend(&self, size: u64) -> Result<()> {
        self.cont.learn(self.oid).await;
        let Some(last) = size.checked_sub(1) else { return Ok(()) };
        self.mark_if_beyond(size).await?;
        let chunk = dkey_of(last / self.chunk_records);
        let unit = self.unit_at(chunk, last % self.chunk_records)?;
        let dkey = chunk.to_le_bytes();
        let recxs = vec![Recx { index: last % self.chunk_records, count: 1 }];
        let value = UpdateValue::Zero { record_bytes: self.record_bytes, recxs };
        let mut batch = self.cont.batch();
        let iods = vec![data_iod(value)];
        batch.op_of_unit(Op::Update { unit, dkey: &dkey, cond: Cond::NONE, iods });
        batch.run().await.map(|_| ())
    }
}

fn wrong_answer() -> Error {
    Error::new(Code::Proto, "a target gave an answer of the wrong kind")
}
