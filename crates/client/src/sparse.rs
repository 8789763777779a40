//! Reads of arrays that leave the memory of what was never written as it is.

use crate::array::{ArrayObj, DATA, Load, Memory, runs};
use crate::tx::Tx;
use async_recursion::async_recursion as boxed;
use futures_util::future::try_join_all;
use smallvec::SmallVec;
use types::{Code, Error, Result};
use wire::obj::{Cond, FetchIod, FetchWant, Fetched, Op, OpReply, ReadScope, Recx};

/// Pieces of at most so many bytes share requests, and are copied. A larger one is asked for alone,
/// straight into the caller's memory, and once more if it turns out to have a hole.
const COPIED_BYTES_MAX: usize = 64 << 10;

/// A run of records that were never written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hole {
    /// Its first record.
    pub index: u64,
    pub count: u64,
    /// Where its bytes begin in the memory of the transfer.
    pub at: usize,
}

/// What a read found.
#[derive(Debug, Default)]
pub struct Present {
    /// A lower bound of the array's size in records, as [`ArrayObj::read`] tells it.
    pub size_min: u64,
    /// What was not there, in the order of memory.
    pub holes: Vec<Hole>,
    record_bytes: usize,
}

impl ArrayObj {
    /// Reads what there is of `ranges` into `memory`; memory of holes, and of what lies beyond the
    /// end, keeps its bytes.
    #[boxed(?Send)]
    pub async fn read_present(
        &self,
        tx: Option<&Tx>,
        ranges: &[Recx],
        memory: &mut [&mut [u8]],
    ) -> Result<Present> {
        self.cont.learn(self.oid).await;
        let memory = memory.iter_mut().map(|piece| &mut **piece);
        let loads = self.loads(ranges, memory, COPIED_BYTES_MAX)?;
        let reads =
            loads.into_iter().map(|(load, slices)| self.read_load_present(tx, load, slices));
        let mut all = Present { record_bytes: self.record_bytes as usize, ..Present::default() };
        for (size_min, holes) in try_join_all(reads).await? {
            all.size_min = all.size_min.max(size_min);
            all.holes.extend(holes);
        }
        all.holes.sort_by_key(|hole| hole.at);
        Ok(all)
    }

    async fn read_load_present(
        &self,
        tx: Option<&Tx>,
        load: Load,
        mut slices: Memory<&mut [u8]>,
    ) -> Result<(u64, Vec<Hole>)> {
        if load.pieces.len() == 1 && load.bytes > COPIED_BYTES_MAX {
            let (size_min, found) = self.ask_present(tx, &load, &mut slices, false).await?;
            let missing: u64 = found.iter().map(|(_, hole)| hole.count).sum();
            if missing == 0 || missing == load.pieces[0].recx.count {
                return Ok((size_min, found.into_iter().map(|(_, hole)| hole).collect()));
            }
        }
        let mut scratch = vec![0; load.bytes];
        let (size_min, found) = self.ask_present(tx, &load, &mut [&mut scratch[..]], true).await?;
        let mut walk = Walk::over(&mut slices);
        let mut at = 0;
        for (start, hole) in &found {
            walk.copy(&scratch[at..*start]);
            let bytes = hole.count as usize * self.record_bytes as usize;
            walk.skip(bytes);
            at = start + bytes;
        }
        walk.copy(&scratch[at..]);
        Ok((size_min, found.into_iter().map(|(_, hole)| hole).collect()))
    }

    /// Asks for a load. Returns a lower bound of the size, and the holes with where they begin in the
    /// memory of the load, in that order.
    async fn ask_present(
        &self,
        tx: Option<&Tx>,
        load: &Load,
        room: &mut [&mut [u8]],
        with_holes: bool,
    ) -> Result<(u64, Vec<(usize, Hole)>)> {
        let keys: SmallVec<[[u8; 8]; 2]> =
            load.pieces.iter().map(|piece| piece.dkey.to_le_bytes()).collect();
        let mut batch = self.cont.batch();
        for run in runs(&load.pieces) {
            let recxs = load.pieces[run.clone()].iter().map(|piece| piece.recx).collect();
            let want = FetchWant::Sparse { record_bytes: self.record_bytes, recxs, with_holes };
            let iods = vec![FetchIod { akey: DATA, want }];
            let dkey = &keys[run.start];
            batch.op_of_unit(Op::Fetch { unit: load.unit, dkey, cond: Cond::NONE, iods });
        }
        for piece in room.iter_mut() {
            batch.bulk_in(piece);
        }
        let result = batch.run().await?;
        let (mut size_min, mut start, mut found) = (0, 0, Vec::new());
        let mut replies = result.replies()?.into_iter();
        for run in runs(&load.pieces) {
            let pieces = &load.pieces[run];
            let Some(OpReply::Fetched(iods)) = replies.next() else { return Err(wrong_answer()) };
            let iod = iods.first().ok_or_else(wrong_answer)?;
            let dkey = pieces[0].dkey;
            if let Some(tx) = tx {
                let scope = dkey.to_le_bytes();
                tx.saw(load.unit, ReadScope::Akey(&scope, DATA), iod.epoch);
            }
            let base = (dkey - 1) * self.chunk_records;
            let told = match &iod.value {
                Fetched::Absent => None,
                Fetched::Sparse { end, holes, .. } => {
                    if *end > 0 {
                        size_min = size_min.max(base.saturating_add(*end));
                    }
                    Some(holes)
                }
                _ => return Err(wrong_answer()),
            };
            let mut told = told.map(|holes| holes.iter().peekable());
            for piece in pieces {
                let (recx, record) = (piece.recx, self.record_bytes as usize);
                let (mut at, end) = (recx.index, recx.index + recx.count);
                let mut hole_at = |index: u64, count: u64| {
                    let bytes = (index - recx.index) as usize * record;
                    let hole = Hole { index: base + index, count, at: piece.at + bytes };
                    found.push((start + bytes, hole));
                };
                match &mut told {
                    None => hole_at(recx.index, recx.count),
                    Some(told) => {
                        // They are in the order of the ranges.
                        while let Some(hole) = told.next_if(|h| h.index >= at && h.index < end) {
                            let count = hole.count.min(end - hole.index);
                            hole_at(hole.index, count);
                            at = hole.index + count;
                        }
                    }
                }
                start += piece.bytes;
            }
            if told.is_some_and(|mut told| told.next().is_some()) {
                return Err(wrong_answer());
            }
        }
        Ok((size_min, found))
    }
}

impl Present {
    /// Fills the memory of holes with zeros, as far as they are records below `size`. `memory` is that
    /// of the read.
    pub fn zero_below(&self, size: u64, memory: &mut [&mut [u8]]) {
        let mut walk = Walk::over(memory);
        let mut at = 0;
        for hole in &self.holes {
            let count = size.saturating_sub(hole.index).min(hole.count);
            let bytes = count as usize * self.record_bytes;
            walk.skip(hole.at - at);
            walk.each(bytes, |piece| piece.fill(0));
            at = hole.at + bytes;
        }
    }
}

/// Goes once through memory in pieces.
struct Walk<'a, 'm> {
    piece: &'a mut [u8],
    left: std::slice::IterMut<'a, &'m mut [u8]>,
}

impl<'a, 'm> Walk<'a, 'm> {
    fn over(memory: &'a mut [&'m mut [u8]]) -> Walk<'a, 'm> {
        Walk { piece: &mut [], left: memory.iter_mut() }
    }

    /// The next bytes, as many as asked for and there are.
    fn each(&mut self, mut bytes: usize, mut act: impl FnMut(&mut [u8])) {
        while bytes > 0 {
            if self.piece.is_empty() {
                let Some(next) = self.left.next() else { return };
                self.piece = next;
                continue;
            }
            let count = bytes.min(self.piece.len());
            let (now, rest) = std::mem::take(&mut self.piece).split_at_mut(count);
            act(now);
            self.piece = rest;
            bytes -= count;
        }
    }

    fn skip(&mut self, bytes: usize) {
        self.each(bytes, |_| {});
    }

    fn copy(&mut self, data: &[u8]) {
        let mut data = data;
        self.each(data.len(), |room| {
            let (now, rest) = data.split_at(room.len());
            room.copy_from_slice(now);
            data = rest;
        });
    }
}

fn wrong_answer() -> Error {
    Error::new(Code::Proto, "an answer names other records than were asked for")
}
