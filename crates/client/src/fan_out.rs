//! Requests to several units of an array at once, and what becomes of a write of which one was refused.
//!
//! A write over several units is a request to each, and one of them may have no room. What the others have done is then taken
//! back as far as it lies beyond the end that the array had: who is told that there is no room finds no longer array. Below that
//! end bytes may be those of the write, for what was there is gone. So that the end is known, each request of such a write is
//! answered with where its unit ended before.
//!
//! Invariants:
//! - The call is over when all its requests are: nothing takes effect after it.
//! - What is taken back was written by this call, where its unit held nothing before, in chunks that nobody has written to since.

use crate::array::{ArrayObj, Load, Loads, runs};
use crate::batch::BatchResult;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use types::{Code, Result, Unit};
use wire::obj::{Cond, Op, OpReply, ReadCheck, ReadScope, Recx, UpdateValue};

/// Waits for all, also when one fails; then the first error.
pub(crate) async fn all_done<T>(
    asked: impl IntoIterator<Item = impl Future<Output = Result<T>>>,
) -> Result<Vec<T>> {
    join_all(asked).await.into_iter().collect()
}

impl ArrayObj {
    /// Writes several loads at once.
    ///
    /// Errors: `NoSpace`, and the array is no longer than it was, unless what has been written can be reached no more.
    pub(crate) async fn write_loads(&self, loads: &Loads<&[u8]>) -> Result<()> {
        let writes = loads.iter().map(async |(load, slices)| {
            match self.write_load(None, load, slices, true).await {
                // Where pages of the index are lost a unit cannot tell its end, and may be written to all the same.
                Err(error) if error.code == Code::Csum => {
                    self.write_load(None, load, slices, false).await
                }
                outcome => outcome,
            }
        });
        let (mut done, mut errors) = (Vec::new(), Vec::new());
        for ((load, _), outcome) in loads.iter().zip(join_all(writes).await) {
            match outcome {
                Ok(result) => done.push((load, result)),
                Err(error) => errors.push(error),
            }
        }
        // Of what failed otherwise it is not known whether it has taken effect.
        let are_refused = errors.iter().all(|error| error.code == Code::NoSpace);
        if !errors.is_empty()
            && !done.is_empty()
            && are_refused
            && let Err(error) = Box::pin(self.take_back(&done)).await
        {
            tracing::warn!("object {}: part of a refused write stays: {error}", self.oid);
        }
        errors.into_iter().next().map_or(Ok(()), Err)
    }

    /// Takes back what loads have written beyond the end that the array had before.
    async fn take_back(&self, done: &[(&Load, BatchResult)]) -> Result<()> {
        let mut ends: BTreeMap<Unit, u64> = BTreeMap::new();
        let mut before = Vec::with_capacity(done.len());
        for (load, result) in done {
            let Some(OpReply::Stat(stat)) = result.replies()?.pop() else { return Ok(()) };
            let end = self.size_from_tail(&stat.tail);
            // Of two requests to a unit the later one is told of what the earlier one did.
            ends.entry(load.unit).and_modify(|known| *known = end.min(*known)).or_insert(end);
            before.push(end);
        }
        for (unit, tail) in self.stat_shards().await? {
            ends.entry(unit).or_insert_with(|| self.size_from_tail(&tail));
        }
        let end = ends.values().copied().max().unwrap_or(0);
        let cuts = done.iter().zip(before).map(async |((load, result), before)| {
            // What its unit held then may be somebody else's.
            match self.take_back_load(load, result, end.max(before)).await {
                // Somebody has written there since, and the array is as long as he thinks.
                Err(error) if error.code == Code::TxRestart => Ok(()),
                outcome => outcome,
            }
        });
        all_done(cuts).await.map(|_| ())
    }

    /// Removes what a load has written from a record on, if its chunks are as it left them.
    async fn take_back_load(&self, load: &Load, result: &BatchResult, from: u64) -> Result<()> {
        let keys: Vec<[u8; 8]> = load.pieces.iter().map(|piece| piece.dkey.to_le_bytes()).collect();
        let (unit, seen) = (load.unit, result.epoch);
        let mut batch = self.cont.batch();
        for run in runs(&load.pieces) {
            let base = (load.pieces[run.start].dkey - 1).saturating_mul(self.chunk_records);
            let from = from.saturating_sub(base);
            let beyond = load.pieces[run.clone()].iter().filter_map(|piece| {
                let (index, end) = (piece.recx.index.max(from), piece.recx.end()?);
                (index < end).then(|| Recx { index, count: end - index })
            });
            let beyond: Vec<Recx> = beyond.collect();
            if beyond.is_empty() {
                continue;
            }
            let dkey = &keys[run.start][..];
            batch.check_of_unit(ReadCheck { unit, of: ReadScope::Dkey(dkey), seen });
            if from == 0 {
                // All that is there is of this load. Needs no room.
                let dkeys = vec![dkey.into()];
                batch.op_of_unit(Op::PunchDkeys { unit, cond: Cond::NONE, dkeys });
            } else {
                let iods =
                    vec![crate::array::data_iod(UpdateValue::PunchRecords { recxs: beyond })];
                batch.op_of_unit(Op::Update { unit, dkey, cond: Cond::NONE, iods });
            }
        }
        if batch.is_empty() { Ok(()) } else { batch.run().await.map(|_| ()) }
    }
}
