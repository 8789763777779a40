//! When parts of arrays were changed last: what has to be copied again.

use crate::array::{ArrayObj, DATA};
use async_recursion::async_recursion as boxed;
use futures_util::future::try_join_all;
use std::collections::BTreeMap;
use types::{Code, Epoch, Error, Result, Unit};
use wire::obj::{Cond, FetchIod, FetchWant, Op, OpReply, Recx};

/// Chunks that are asked about in one request.
const CHUNKS_PER_REQUEST: usize = 256;

/// A range of an array that one unit holds, inside one chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkPart {
    pub range: Recx,
    pub unit: Unit,
    /// When anything of the chunk was changed last, as far as that unit holds it; [`Epoch::ZERO`]: it holds nothing.
    pub epoch: Epoch,
}

impl ArrayObj {
    /// Cuts ranges so that each part is in one chunk and on one unit, in order, and tells when each was changed last. A change
    /// that comes later has a greater epoch.
    ///
    /// Errors: `FileTooBig` for ranges beyond the largest offset.
    #[boxed(?Send)]
    pub async fn part_epochs(&self, ranges: &[Recx]) -> Result<Vec<ChunkPart>> {
        self.cont.learn(self.oid).await;
        let mut parts = Vec::new();
        let mut by_unit = BTreeMap::<Unit, Vec<(u64, Vec<usize>)>>::new();
        for piece in self.pieces(ranges)? {
            let unit = self.unit_at(piece.dkey, piece.recx.index)?;
            let of_unit = by_unit.entry(unit).or_default();
            match of_unit.last_mut() {
                Some((dkey, at)) if *dkey == piece.dkey => at.push(parts.len()),
                _ => of_unit.push((piece.dkey, vec![parts.len()])),
            }
            let index = (piece.dkey - 1) * self.chunk_records + piece.recx.index;
            let range = Recx { index, count: piece.recx.count };
            parts.push(ChunkPart { range, unit, epoch: Epoch::ZERO });
        }
        let lots = by_unit.iter().flat_map(|(unit, chunks)| {
            chunks.chunks(CHUNKS_PER_REQUEST).map(move |some| (*unit, some))
        });
        let asked = lots.map(|(unit, some)| async move {
            let epochs = self.epochs_of(unit, some.iter().map(|(dkey, _)| *dkey)).await?;
            Ok::<_, Error>((some, epochs))
        });
        for (some, epochs) in try_join_all(asked).await? {
            for ((_, at), epoch) in some.iter().zip(epochs) {
                at.iter().for_each(|&at| parts[at].epoch = epoch);
            }
        }
        Ok(parts)
    }

    async fn epochs_of(&self, unit: Unit, dkeys: impl Iterator<Item = u64>) -> Result<Vec<Epoch>> {
        let keys: Vec<[u8; 8]> = dkeys.map(u64::to_le_bytes).collect();
        let mut batch = self.cont.batch();
        for dkey in &keys {
            let iods = vec![FetchIod { akey: DATA, want: FetchWant::Probe }];
            batch.op_of_unit(Op::Fetch { unit, dkey, cond: Cond::NONE, iods });
        }
        let result = batch.run().await?;
        let epoch = |reply: OpReply<'_>| match reply {
            OpReply::Fetched(iods) if iods.len() == 1 => Ok(iods[0].epoch),
            _ => Err(Error::new(Code::Proto, "a fetch got an answer of another kind")),
        };
        result.replies()?.into_iter().map(epoch).collect()
    }
}
