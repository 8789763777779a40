//! Appending to arrays, atomically whoever else appends.
//!
//! An array that one target holds is appended to in one round trip: the target finds the end. Of a
//! striped one nobody knows the end, so its appenders take turns, by a lock on the object; inside
//! the turn the data are one transaction, which also fails if anything else was written meanwhile
//! to the shards it touches. So an appender that was away for so long that its turn is another's
//! does no harm. A progressive array is of the first kind until an append would go beyond its first part, which its target
//! refuses, and of the second from then on.

use crate::array::{ArrayObj, DATA};
use crate::lock::LockAsk;
use async_recursion::async_recursion as boxed;
use std::time::Duration;
use types::{Code, Epoch, Error, Result, Unit, limits};
use wire::lock::{LockKind, LockMode, LockRange};
use wire::obj::{Cond, Op, OpReply, ReadCheck, ReadScope, Recx, UpdateIod, UpdateValue};

/// First pause before an append that lost to other writers runs again; doubles up to the second.
const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(10);

impl ArrayObj {
    /// Writes `memory` behind the last record of an array of one-byte records; returns where it
    /// went. Up to [`limits::BULK_BYTES_MAX`] are one piece that no other append divides.
    #[boxed(?Send)]
    pub async fn append(&self, memory: &[&[u8]]) -> Result<u64> {
        self.cont.learn(self.oid).await;
        if self.record_bytes != 1 {
            return Err(Error::inval("appends are to arrays of one-byte records"));
        }
        let mut first = None;
        for piece in cut(memory) {
            let is_here = !self.cont.may_reach_beyond(self.oid)
                || self.cont.layout(self.oid)?.group_count() == 1;
            let here = if is_here { self.append_here(&piece).await } else { Err(beyond()) };
            let index = match here {
                Err(error) if error.code == Code::TxRestart => {
                    if !self.cont.may_reach_beyond(self.oid) {
                        self.mark().await?;
                    }
                    self.append_in_turn(&piece).await?
                }
                here => here?,
            };
            first.get_or_insert(index);
        }
        match first {
            Some(index) => Ok(index),
            None => self.size().await,
        }
    }

    async fn append_here(&self, memory: &[&[u8]]) -> Result<u64> {
        let count = memory.iter().map(|piece| piece.len() as u64).sum();
        let mut batch = self.cont.batch();
        let (unit, chunk_records) = (self.oid.first_unit(), self.chunk_records);
        batch.op(Op::Append { unit, chunk_records, count });
        for piece in memory {
            batch.bulk_out(piece);
        }
        match batch.run().await?.replies()?.first() {
            Some(&OpReply::Appended { index }) => Ok(index),
            _ => Err(Error::new(Code::Proto, "an append got an answer of another kind")),
        }
    }

    async fn append_in_turn(&self, memory: &[&[u8]]) -> Result<u64> {
        let client = self.cont.client();
        let range = LockRange::WHOLE;
        let ask = LockAsk {
            kind: LockKind::Append,
            owner: client.env().random_u64(),
            range,
            mode: LockMode::Exclusive,
            pid: 0,
            wait: true,
        };
        let mut pause = PAUSE_MIN;
        let deadline = client.env().now() + client.options().timeout;
        loop {
            self.cont.lock(self.oid, &ask, None).await?;
            let turn = Turn { array: self, owner: ask.owner };
            let outcome = self.append_at_end(memory).await;
            drop(turn);
            match outcome {
                Err(error) if error.code == Code::TxRestart && client.env().now() < deadline => {
                    client.env().sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                other => return other,
            }
        }
    }

    /// Writes behind the end as it is now, all or nothing; `TxRestart` when a shard that is
    /// written to changed since the end was looked for.
    async fn append_at_end(&self, memory: &[&[u8]]) -> Result<u64> {
        let shards = self.stat_shards().await?;
        let end = shards.iter().map(|(_, tail)| self.size_from_tail(tail)).max().unwrap_or(0);
        let count: u64 = memory.iter().map(|piece| piece.len() as u64).sum();
        let pieces = self.pieces(&[Recx { index: end, count }])?;
        let keys: Vec<[u8; 8]> = pieces.iter().map(|piece| piece.dkey.to_le_bytes()).collect();
        let mut batch = self.cont.batch();
        let mut checked: Vec<Unit> = Vec::new();
        let mut slices = memory.iter().copied();
        let mut rest: &[u8] = &[];
        for (piece, dkey) in pieces.iter().zip(&keys) {
            let unit = self.unit_at(piece.dkey, piece.recx.index)?;
            if !checked.contains(&unit) {
                checked.push(unit);
                let known = shards.iter().find(|(of, _)| *of == unit);
                let seen = known.map_or(Epoch::ZERO, |(_, tail)| tail.epoch);
                batch.check_of_unit(ReadCheck { unit, of: ReadScope::Object, seen });
            }
            let value = UpdateValue::Array { record_bytes: 1, recxs: vec![piece.recx] };
            let iods = vec![UpdateIod { akey: DATA, cond: Cond::NONE, value }];
            batch.op_of_unit(Op::Update { unit, dkey, cond: Cond::NONE, iods });
            let mut wanted = piece.recx.count as usize;
            while wanted > 0 {
                if rest.is_empty() {
                    rest = slices.next().ok_or_else(|| Error::inval("too little memory"))?;
                    continue;
                }
                let (mine, others) = rest.split_at(wanted.min(rest.len()));
                batch.bulk_out(mine);
                (wanted, rest) = (wanted - mine.len(), others);
            }
        }
        batch.run().await?;
        Ok(end)
    }
}

/// The refusal of a target that does not hold all of the array.
fn beyond() -> Error {
    Error::bare(Code::TxRestart)
}

/// An appender's turn; over when dropped.
struct Turn<'a> {
    array: &'a ArrayObj,
    owner: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let ArrayObj { cont, oid, .. } = self.array;
        cont.unlock_later(*oid, LockKind::Append, self.owner, LockRange::WHOLE);
    }
}

/// Cuts memory into pieces that one request can carry.
fn cut<'a>(memory: &[&'a [u8]]) -> Vec<Vec<&'a [u8]>> {
    let mut pieces: Vec<Vec<&[u8]>> = Vec::new();
    let mut room = 0;
    for &slice in memory {
        let mut slice = slice;
        while !slice.is_empty() {
            if room == 0 {
                pieces.push(Vec::new());
                room = limits::BULK_BYTES_MAX;
            }
            let (head, tail) = slice.split_at(room.min(slice.len()));
            room -= head.len();
            slice = tail;
            if let Some(piece) = pieces.last_mut() {
                piece.push(head);
            }
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_cut_where_a_request_is_full() {
        let (small, large) = (vec![1; 10], vec![2; limits::BULK_BYTES_MAX]);
        let pieces = cut(&[&small, &[], &large, &small]);
        let lengths: Vec<Vec<usize>> =
            pieces.iter().map(|piece| piece.iter().map(|slice| slice.len()).collect()).collect();
        assert_eq!(lengths, [vec![10, limits::BULK_BYTES_MAX - 10], vec![10, 10]]);
        assert!(cut(&[&[], &[]]).is_empty());
    }
}
