//! Stamps in the sectors of a log batch, which tell a torn write from damage.
//!
//! A batch is cut into pieces of 504 bytes; each lies in a sector of 512 with a stamp behind it:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 504 | header and records, then zeros |
//! | 504 | 4 | stamp: checksum of the header of the batch (see `batch`) |
//! | 508 | 4 | CRC-32C of bytes 0..508 |
//!
//! A device writes a sector whole or not at all, so what a cut-off write leaves is made of sectors that
//! fit their own checksum: some of the batch, the others of whatever lay there before, or zeros
//! of a segment that was never used. A sector that fits no checksum was written whole, perhaps acknowledged,
//! and has changed since: that is damage, and no end of a log. The header's checksum covers that of the records,
//! so a stamp belongs to one content, also when the same batch number was begun in an earlier life.

use std::ops::Range;

use types::Result;
use wire::header::crc;

use crate::log::batch::{BATCH_HEADER_BYTES, BatchHeader};

/// What a device writes whole, bytes.
pub(crate) const SECTOR_BYTES: usize = 512;
/// Of that, for content.
const ROOM_BYTES: usize = SECTOR_BYTES - 8;
/// Batches begin and end at multiples of this, bytes.
const BLOCK_BYTES: u64 = 4096;

/// Bytes that a batch of so many takes in a segment.
pub(crate) fn padded_bytes(content: u64) -> u64 {
    (content.div_ceil(ROOM_BYTES as u64) * SECTOR_BYTES as u64).next_multiple_of(BLOCK_BYTES)
}

/// Fills `out`, of whole sectors, with a header and the records behind it.
pub(crate) fn spread(
    header: &[u8; BATCH_HEADER_BYTES],
    records: &[u8],
    stamp: u32,
    out: &mut [u8],
) {
    let (first, mut rest) = records.split_at(records.len().min(ROOM_BYTES - BATCH_HEADER_BYTES));
    for (number, sector) in out.chunks_exact_mut(SECTOR_BYTES).enumerate() {
        let used = if number == 0 {
            sector[..BATCH_HEADER_BYTES].copy_from_slice(header);
            sector[BATCH_HEADER_BYTES..][..first.len()].copy_from_slice(first);
            BATCH_HEADER_BYTES + first.len()
        } else {
            let (piece, more) = rest.split_at(rest.len().min(ROOM_BYTES));
            sector[..piece.len()].copy_from_slice(piece);
            rest = more;
            piece.len()
        };
        sector[used..ROOM_BYTES].fill(0);
        sector[ROOM_BYTES..ROOM_BYTES + 4].copy_from_slice(&stamp.to_le_bytes());
        let sum = crc(&sector[..ROOM_BYTES + 4]);
        sector[ROOM_BYTES + 4..].copy_from_slice(&sum.to_le_bytes());
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sector {
    /// Of the batch with this stamp.
    Of(u32),
    Zero,
    Damaged,
}

fn look(sector: &[u8]) -> Sector {
    let word = |at: usize| {
        u32::from_le_bytes([sector[at], sector[at + 1], sector[at + 2], sector[at + 3]])
    };
    if word(ROOM_BYTES + 4) == crc(&sector[..ROOM_BYTES + 4]) {
        Sector::Of(word(ROOM_BYTES))
    } else if sector.iter().all(|byte| *byte == 0) {
        Sector::Zero
    } else {
        Sector::Damaged
    }
}

/// The batch that continues a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    pub shard: &'a [u8; 16],
    pub sequence: u64,
    pub chain: u32,
    /// Lsn of its first record.
    pub lsn: u64,
}

/// What lies where a log might go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    Batch {
        header: BatchHeader,
        /// Chain value for the one after it.
        sum: u32,
        /// Where its records are now: without stamps.
        records: Range<usize>,
        end: usize,
    },
    /// Nothing that was acknowledged. `torn`: the batch expected was begun.
    End { torn: bool },
    /// What no writing left behind, at this byte: the sector has changed since.
    Damaged { at: usize },
}

/// Looks at `raw`, a segment, from `at` on; takes the stamps out of a batch found there.
///
/// `Version` when a batch of another version begins there.
pub(crate) fn next(raw: &mut [u8], at: usize, expected: Expected<'_>) -> Result<Next> {
    let Some(part) = raw.get_mut(at..).filter(|part| part.len() >= SECTOR_BYTES) else {
        return Ok(Next::End { torn: false });
    };
    let Some((header, sum)) = BatchHeader::decode(part)? else {
        return Ok(match look(&part[..SECTOR_BYTES]) {
            Sector::Damaged => Next::Damaged { at },
            _ => Next::End { torn: false },
        });
    };
    let continues = header.shard == *expected.shard
        && header.sequence == expected.sequence
        && header.chain == expected.chain
        && header.first_lsn.0 == expected.lsn;
    if !continues {
        return Ok(Next::End { torn: false });
    }
    let padded = header.padded_bytes();
    let Some(part) = usize::try_from(padded).ok().and_then(|padded| part.get_mut(..padded)) else {
        // A batch never goes beyond its segment.
        return Ok(Next::Damaged { at });
    };
    let mut torn = false;
    for (number, sector) in part.chunks_exact(SECTOR_BYTES).enumerate() {
        match look(sector) {
            Sector::Of(stamp) => torn |= stamp != sum,
            Sector::Zero => torn = true,
            Sector::Damaged => return Ok(Next::Damaged { at: at + number * SECTOR_BYTES }),
        }
    }
    if torn {
        return Ok(Next::End { torn });
    }
    for number in 1..part.len() / SECTOR_BYTES {
        let from = number * SECTOR_BYTES;
        part.copy_within(from..from + ROOM_BYTES, number * ROOM_BYTES);
    }
    let records = BATCH_HEADER_BYTES..BATCH_HEADER_BYTES + header.body_bytes as usize;
    if crc(&part[records.clone()]) != header.body_crc {
        return Ok(Next::Damaged { at });
    }
    let (records, end) = (at + records.start..at + records.end, at + part.len());
    Ok(Next::Batch { header, sum, records, end })
}

/// Number of a whole batch of this shard in `raw` from `from` on that should come later than
/// `expected`.
///
/// `Version` when a batch of another version is found on the way.
pub(crate) fn later_batch(
    raw: &[u8],
    from: usize,
    shard: &[u8; 16],
    expected: u64,
) -> Result<Option<u64>> {
    let mut at = from;
    while let Some(part) = raw.get(at..) {
        if part.len() < SECTOR_BYTES {
            break;
        }
        if let Some((header, sum)) = BatchHeader::decode(part)?
            && header.shard == *shard
            && header.sequence > expected
            && let Some(batch) = part.get(..header.padded_bytes() as usize)
            && batch.chunks_exact(SECTOR_BYTES).all(|sector| look(sector) == Sector::Of(sum))
        {
            return Ok(Some(header.sequence));
        }
        at += BLOCK_BYTES as usize;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lsn;
    use proptest::prelude::*;

    const SHARD: [u8; 16] = *b"0123456789abcdef";

    fn batch(sequence: u64, records: &[u8]) -> (Vec<u8>, u32) {
        let header = BatchHeader {
            shard: SHARD,
            sequence,
            first_lsn: Lsn(sequence),
            record_count: 1,
            body_bytes: records.len() as u32,
            chain: 0,
            body_crc: crc(records),
        };
        let (raw, sum) = header.encode();
        let mut out = vec![0xee; header.padded_bytes() as usize];
        spread(&raw, records, sum, &mut out);
        (out, sum)
    }

    fn look_for(raw: &[u8], sequence: u64) -> (Next, Vec<u8>) {
        let mut raw = raw.to_vec();
        let expected = Expected { shard: &SHARD, sequence, chain: 0, lsn: sequence };
        let next = next(&mut raw, 0, expected).unwrap();
        let records = match &next {
            Next::Batch { records, .. } => raw[records.clone()].to_vec(),
            _ => Vec::new(),
        };
        (next, records)
    }

    #[test]
    fn golden_bytes_of_sectors() {
        // A change here is a change of format: bump RECORD_VERSION.
        let records: Vec<u8> = (0..600u32).map(|n| n as u8).collect();
        let (raw, sum) = batch(2, &records);
        assert_eq!(raw.len(), 4096);
        assert_eq!(raw[64..504], records[..440]);
        assert_eq!(raw[512..672], records[440..]);
        assert!(raw[672..1016].iter().all(|byte| *byte == 0));
        for sector in raw.chunks(512) {
            assert_eq!(sector[504..508], sum.to_le_bytes());
            assert_eq!(sector[508..], crc(&sector[..508]).to_le_bytes());
        }
        assert_eq!(padded_bytes(8 * 504), 4096);
        assert_eq!(padded_bytes(8 * 504 + 1), 8192);
    }

    proptest! {
        /// A batch torn in any way over any older batch is an end; with any bit of it flipped, whole or
        /// torn, it is damaged or was not going to be there anyway.
        #[test]
        fn a_torn_batch_is_an_end_and_a_flipped_bit_is_damage(
            old in 0usize..9000,
            new in 0usize..9000,
            written in any::<u64>(),
            bit in any::<u32>(),
        ) {
            let content = |count: usize, salt: u8| -> Vec<u8> {
                (0..count).map(|n| (n as u8).wrapping_mul(7) ^ salt).collect()
            };
            let (whole, _) = batch(9, &content(new, 1));
            let (next, records) = look_for(&whole, 9);
            let is_batch = matches!(next, Next::Batch { .. });
            prop_assert!(is_batch);
            prop_assert_eq!(records, content(new, 1));
            let mut flipped = whole.clone();
            let at = bit as usize % (flipped.len() * 8);
            flipped[at / 8] ^= 1 << (at % 8);
            let sector = at / 8 / 512 * 512;
            prop_assert_eq!(look_for(&flipped, 9).0, Next::Damaged { at: sector });
            // Over an older batch: of an earlier lap, or begun under the same number.
            for sequence in [3, 9] {
                let (mut torn, _) = batch(sequence, &content(old, 2));
                torn.resize(whole.len().max(torn.len()), 0);
                let mut all = true;
                for (n, sector) in whole.chunks(512).enumerate() {
                    if written >> (n % 64) & 1 == 1 {
                        torn[n * 512..][..512].copy_from_slice(sector);
                    } else {
                        all = false;
                    }
                }
                match look_for(&torn, 9) {
                    (Next::Batch { .. }, records) if sequence == 9 => {
                        prop_assert!(records == content(new, 1) || records == content(old, 2));
                    }
                    (Next::Batch { .. }, records) => {
                        prop_assert!(all && records == content(new, 1));
                    }
                    (Next::End { .. }, _) => prop_assert!(!all),
                    (Next::Damaged { at }, _) => prop_assert!(false, "damaged at {}", at),
                }
            }
        }
    }
}
