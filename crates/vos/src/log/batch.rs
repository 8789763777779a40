//! A batch of records of the log: a header of 64 bytes, then the records. In a segment it lies with
//! a stamp in each sector, up to a multiple of 4 KiB (see `sectors`).
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `AZKW` |
//! | 4 | 2 | version of the batch and its records |
//! | 6 | 2 | zero |
//! | 8 | 16 | uuid of the shard |
//! | 24 | 8 | sequence number of the batch |
//! | 32 | 8 | lsn of the first record |
//! | 40 | 4 | number of records |
//! | 44 | 4 | bytes of records |
//! | 48 | 4 | chain: checksum of the header of the batch before |
//! | 52 | 4 | CRC-32C of the records |
//! | 56 | 4 | zero |
//! | 60 | 4 | CRC-32C of bytes 0..60 |
//!
//! Uuid, sequence and chain together keep what lay in a recycled segment, or in the torn end
//! of an earlier life, from being taken for a continuation.

use types::Result;
use wire::header::crc;

use crate::Lsn;
use crate::record::RECORD_VERSION;

/// Size of an encoded [`BatchHeader`].
pub(crate) const BATCH_HEADER_BYTES: usize = 64;
const MAGIC: [u8; 4] = *b"AZKW";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BatchHeader {
    pub shard: [u8; 16],
    pub sequence: u64,
    pub first_lsn: Lsn,
    pub record_count: u32,
    pub body_bytes: u32,
    pub chain: u32,
    pub body_crc: u32,
}

impl BatchHeader {
    /// The durable form and the chain value for the next batch.
    pub(crate) fn encode(&self) -> ([u8; BATCH_HEADER_BYTES], u32) {
        let mut raw = [0; BATCH_HEADER_BYTES];
        raw[0..4].copy_from_slice(&MAGIC);
        raw[4..6].copy_from_slice(&RECORD_VERSION.to_le_bytes());
        raw[8..24].copy_from_slice(&self.shard);
        raw[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        raw[32..40].copy_from_slice(&self.first_lsn.0.to_le_bytes());
        raw[40..44].copy_from_slice(&self.record_count.to_le_bytes());
        raw[44..48].copy_from_slice(&self.body_bytes.to_le_bytes());
        raw[48..52].copy_from_slice(&self.chain.to_le_bytes());
        raw[52..56].copy_from_slice(&self.body_crc.to_le_bytes());
        let sum = crc(&raw[..60]);
        raw[60..64].copy_from_slice(&sum.to_le_bytes());
        (raw, sum)
    }

    /// Decodes a header and gives the chain value for the next batch. `Ok(None)` when the bytes
    /// are not a header; `Version` when they are one of another version.
    pub(crate) fn decode(raw: &[u8]) -> Result<Option<(BatchHeader, u32)>> {
        let Some(raw) = raw.first_chunk::<BATCH_HEADER_BYTES>() else { return Ok(None) };
        let u32_at =
            |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        let u64_at = |at: usize| u32_at(at) as u64 | (u32_at(at + 4) as u64) << 32;
        let sum = u32_at(60);
        if raw[..4] != MAGIC || sum != crc(&raw[..60]) {
            return Ok(None);
        }
        let version = u16::from_le_bytes([raw[4], raw[5]]);
        if version != RECORD_VERSION {
            return Err(crate::sealed::other_version("log", version, RECORD_VERSION));
        }
        let mut shard = [0; 16];
        shard.copy_from_slice(&raw[8..24]);
        let header = BatchHeader {
            shard,
            sequence: u64_at(24),
            first_lsn: Lsn(u64_at(32)),
            record_count: u32_at(40),
            body_bytes: u32_at(44),
            chain: u32_at(48),
            body_crc: u32_at(52),
        };
        Ok(Some((header, sum)))
    }

    /// Bytes the batch takes in a segment.
    pub(crate) fn padded_bytes(&self) -> u64 {
        crate::log::sectors::padded_bytes(BATCH_HEADER_BYTES as u64 + self.body_bytes as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_a_header() {
        let header = BatchHeader {
            shard: *b"0123456789abcdef",
            sequence: 2,
            first_lsn: Lsn(3),
            record_count: 4,
            body_bytes: 5,
            chain: 6,
            body_crc: 7,
        };
        let (raw, sum) = header.encode();
        // A change here is a change of format: bump RECORD_VERSION.
        let want = b"AZKW\x04\x00\x00\x000123456789abcdef\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\
            \x04\0\0\0\x05\0\0\0\x06\0\0\0\x07\0\0\0\0\0\0\0";
        assert_eq!(&raw[..60], want);
        assert_eq!(BatchHeader::decode(&raw).unwrap(), Some((header, sum)));
        for at in 0..64 {
            let mut damaged = raw;
            damaged[at] ^= 1;
            assert_eq!(BatchHeader::decode(&damaged).unwrap(), None, "byte {at}");
        }
        // A log of a release before: refused as such, not called damaged.
        let mut older = raw;
        older[4] = 3;
        let sum = crc(&older[..60]);
        older[60..].copy_from_slice(&sum.to_le_bytes());
        let refused = BatchHeader::decode(&older).unwrap_err();
        assert_eq!(refused.code, types::Code::Version);
        assert!(refused.text.contains("format version 3, this program reads 4"), "{refused}");
    }
}
