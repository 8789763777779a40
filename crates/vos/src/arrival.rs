//! Sums that come with the bulk of an update: compared where nothing behind can tell any more, and turned
//! into sums of blocks.
//!
//! Values kept in the index are compared always: from there on the log's own checksums cover
//! them. Those that go to the data area keep the sender's sums, block by block, so that nothing but the
//! sender has ever touched them; with [`SumPolicy::verify`] they are compared as well.
//! Where a value was cut inside one of its chunks (records of an odd size in fragmented space)
//! the sender's sums fit no block: they are compared and new ones made.

use types::sums::SUM_CHUNK_BYTES;
use types::{Code, ContId, CsumKind, Error, Result};
use wire::obj::Sums;

use crate::payload::{BlockSums, Payload, Piece};
use crate::shard::PoolShard;
use crate::sums::SumPolicy;

impl PoolShard {
    /// Sums of values of these lengths that lie one after the other in `data`, of which the sender knew
    /// only the whole. Compared with the sender's, unless they stay the same.
    ///
    /// `Inval` when what is given are not sums of `data`; `Csum` when `data` differ from them.
    pub fn cut_sums(
        &self,
        cont: ContId,
        given: &Sums<'_>,
        data: &[u8],
        lengths: &[u64],
    ) -> Result<Vec<u8>> {
        let kind = self.sum_policy(cont)?.kind;
        if lengths.len() < 2 {
            return Ok(given.bytes.to_vec());
        }
        if given.kind != kind {
            return Err(Error::inval(format!(
                "the container has {kind} checksums, not {}",
                given.kind
            )));
        }
        let made = codec::value_sums(kind, std::iter::once(data.len() as u64), &[data]);
        if made.as_deref() != Some(given.bytes) {
            return Err(damaged_on_arrival());
        }
        codec::value_sums(kind, lengths.iter().copied(), &[data])
            .ok_or_else(|| Error::inval("the data are shorter than what is to be written"))
    }
}

fn damaged_on_arrival() -> Error {
    Error::new(Code::Csum, "data differ from their checksum on arrival; nothing was written")
}

impl Payload {
    /// Takes the sums that came with the bulk, which has been received.
    ///
    /// `Inval` when they are not those of the bulk; `Csum` when the bulk was damaged on its way.
    pub(crate) fn take_sums(&mut self, policy: SumPolicy, given: &Sums<'_>) -> Result<()> {
        let kind = policy.kind;
        let width = kind.width();
        let wanted: u64 = self.values.iter().map(|(_, bytes)| kind.sum_count(*bytes)).sum();
        if self.values.is_empty() {
            return Ok(());
        }
        if given.kind != kind || given.bytes.len() as u64 != wanted * width as u64 {
            return Err(Error::inval(format!(
                "the container has {kind} checksums; the update carries {} bytes of {} for {wanted} \
                 chunks",
                given.bytes.len(),
                given.kind
            )));
        }
        if width == 0 {
            return Ok(());
        }
        let values = std::mem::take(&mut self.values);
        let whole_blocks = |piece: &Piece| matches!(piece, Piece::Run { run, .. } if run.bytes.is_multiple_of(SUM_CHUNK_BYTES as u64));
        let mut fits = Vec::with_capacity(values.len());
        let mut rest = self.pieces();
        for (count, bytes) in &values {
            let (mine, more) = rest.split_at(*count);
            rest = more;
            let in_area = mine.iter().all(|piece| matches!(piece, Piece::Run { .. }));
            let aligned = mine[..count - 1].iter().all(whole_blocks);
            fits.push(in_area && aligned && *bytes >= SUM_CHUNK_BYTES as u64);
        }
        let in_area: Vec<bool> =
            self.pieces().iter().map(|piece| matches!(piece, Piece::Run { .. })).collect();
        let mut sums = BlockSums { kind, bytes: Vec::with_capacity(given.bytes.len()) };
        let (mut at, mut left) = (0, given.bytes);
        let buffers: Vec<&mut [u8]> = self.buffers().collect();
        for ((count, bytes), fits) in values.iter().zip(fits) {
            let pieces = at..at + count;
            at += count;
            let (mine, more) = left.split_at(kind.sum_count(*bytes) as usize * width);
            left = more;
            if policy.verify || !fits {
                let made =
                    codec::value_sums(kind, std::iter::once(*bytes), &buffers[pieces.clone()]);
                if made.as_deref() != Some(mine) {
                    return Err(damaged_on_arrival());
                }
            }
            if fits {
                sums.bytes.extend_from_slice(mine);
                continue;
            }
            for piece in pieces.filter(|piece| in_area[*piece]) {
                for chunk in buffers[piece].chunks(SUM_CHUNK_BYTES) {
                    codec::push_padded_sum(kind, chunk, &mut sums.bytes);
                }
            }
        }
        drop(buffers);
        self.values = values;
        self.sums = sums;
        Ok(())
    }

    /// Makes sums of what has been put into the payload here.
    pub(crate) fn make_sums(&mut self, kind: CsumKind) {
        if kind == CsumKind::Off {
            return;
        }
        let mut sums = BlockSums { kind, bytes: Vec::new() };
        let in_area: Vec<bool> =
            self.pieces().iter().map(|piece| matches!(piece, Piece::Run { .. })).collect();
        for (buffer, _) in self.buffers().zip(in_area).filter(|(_, in_area)| *in_area) {
            for chunk in buffer.chunks(SUM_CHUNK_BYTES) {
                codec::push_padded_sum(kind, chunk, &mut sums.bytes);
            }
        }
        self.sums = sums;
    }

    /// True when blocks are filled without sums although there should be some.
    pub(crate) fn lacks_sums(&self, policy: SumPolicy) -> bool {
        self.sums.kind != policy.kind
            && self.pieces().iter().any(|piece| matches!(piece, Piece::Run { .. }))
    }
}
