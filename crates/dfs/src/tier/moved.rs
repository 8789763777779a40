//! A file's copy when the file gets another object: its record and its stubs go with it.
//!
//! What is in the tier only stays there: the new object has the same stubs. But for one chunk: where the first part of a progressive class ends within it two
//! units have a piece each, and a stub is in one; it comes back before.
//!
//! Invariants:
//! - The record of the new object is written in the transaction that puts it in the old one's place, after a look at what the old one was copied as; so
//!   nobody ever finds a stub without a record of its copy.
//! - The new record says that the copy has what the pool has only if that was so of all of the old object. Else what the pool has counts as changed.

use super::{DATA, RECORD, TierRecord, dkey_of, split_chunk};
use crate::entry::Place;
use crate::fs::{Dfs, inline};
use crate::layout::xattr_akey;
use crate::node::Obj;
use client::ArrayObj;
use types::{Code, Epoch, Error, Result, Unit};
use wire::obj::{Cond, Op, Recx, Tail};

/// Stubs that are written in one batch.
const STUBS_PER_BATCH: usize = 64;

impl Dfs {
    /// Brings back the chunk that would be in two units of another object.
    pub(crate) async fn fetch_what_is_split(&self, file: &Obj, sink: &ArrayObj) -> Result<()> {
        let Some((chunk, _)) = split_chunk(sink, self.size(file).await?).await? else {
            return Ok(());
        };
        let count = sink.chunk_records;
        let range = Recx { index: chunk * count, count };
        self.recall(file, &[range], false, &|_| {}).await.map(|_| ())
    }

    /// Puts the stubs among some chunks of a file into another object; returns where in the file their chunks begin, and their epochs.
    ///
    /// Errors: `TxRestart` where a stub cannot be.
    pub(crate) async fn put_stubs_into(
        &self,
        file: &Obj,
        chunks: &[u64],
        sink: &ArrayObj,
    ) -> Result<Vec<(u64, Epoch)>> {
        let stubs = self.stubs(file, chunks).await?;
        if stubs.is_empty() {
            return Ok(Vec::new());
        }
        let split = split_chunk(sink, self.size(file).await?).await?.map(|(chunk, _)| chunk);
        let mut work = Vec::with_capacity(stubs.len());
        for seen in &stubs {
            if split == Some(seen.chunk) {
                // It was given up after it had come back.
                return Err(Error::bare(Code::TxRestart));
            }
            let unit = sink.unit_of(seen.chunk + 1, 0).await?;
            work.push((unit, dkey_of(seen.chunk), seen.stub.encode()));
        }
        work.sort_by_key(|(unit, _, _)| *unit);
        for of_unit in work.chunk_by(|a, b| a.0 == b.0) {
            for some in of_unit.chunks(STUBS_PER_BATCH) {
                let mut batch = self.shared.cont.batch();
                for (unit, dkey, stub) in some {
                    let (unit, iods) = (*unit, vec![inline(DATA, stub)]);
                    batch.op_of_unit(Op::Update { unit, dkey, cond: Cond::NONE, iods });
                }
                batch.run().await?;
            }
        }
        let begins = stubs.iter().map(|seen| (seen.chunk * sink.chunk_records, seen.epoch));
        Ok(begins.collect())
    }

    /// The attribute that is to be the record of a file's copy with its new object; `None` for one without a copy. `seen` and `made` are the units of the old object
    /// and of the new one, when they were equal.
    ///
    /// Errors: `TxRestart` when the old object has changed since; `RecordTooBig` when the new one has more groups than a record can name.
    pub(crate) async fn record_with_new_object(
        &self,
        place: Place<'_>,
        file: &Obj,
        seen: &[(Unit, Tail)],
        (new, made): (&ArrayObj, &[(Unit, Tail)]),
    ) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let record = self.record_of(place, file.oid()).await?;
        let Some(record) = record.filter(|record| record.version > 0) else { return Ok(None) };
        let is_all_clean = match self.survey_now(file).await {
            Ok(survey) => {
                let epoch = |unit: Unit| survey.group_epochs.get(unit.group as usize).copied();
                if seen.iter().any(|(unit, tail)| epoch(*unit) != Some(tail.epoch)) {
                    return Err(Error::bare(Code::TxRestart));
                }
                survey.is_all_clean(&record)
            }
            // It has grown since it was copied.
            Err(error) if error.code == Code::FileTooBig => false,
            Err(error) => return Err(error),
        };
        let groups = made.iter().map(|(unit, _)| unit.group as usize + 1).max().unwrap_or(1);
        let mut synced = vec![if is_all_clean { Epoch::ZERO } else { BEFORE_ALL }; groups];
        if is_all_clean {
            made.iter().for_each(|(unit, tail)| synced[unit.group as usize] = tail.epoch);
        }
        let moved = TierRecord { oid: new.oid, upload: None, synced, ..record };
        Ok(Some((xattr_akey(RECORD), moved.checked()?)))
    }
}

/// When nothing had been written yet; it is not [`Epoch::ZERO`], which says that there was nothing.
const BEFORE_ALL: Epoch = Epoch(1);
