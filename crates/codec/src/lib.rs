//! Checksums over stored data, by well-kept libraries: CRC-32C (`crc-fast` or `crc32c`) and CRC-64/NVME (`crc-fast`), XXH3
//! (`twox-hash`), SHA-256 (`sha2`).
//!
//! Pure functions over memory. Knows nothing of messages, blocks or devices; how data is cut in
//! chunks is told by [`types::sums`]. A sum is stored with its least significant byte first
//! (SHA-256: as it is printed).
//!
//! Sums find accidents: bits that flip on a device, on a wire, in memory. None of the kinds but
//! SHA-256 finds what somebody forged.

mod chunks;
mod crc32c;
mod joined;
mod xor;

pub use chunks::{Checking, Fault, check, value_sums};
pub use joined::JoinedSum;
pub use xor::xor_sums;

use sha2::Digest;
use types::CsumKind;
use types::sums::SUM_CHUNK_BYTES;

/// A chunk of zeros.
static ZEROS: [u8; SUM_CHUNK_BYTES] = [0; SUM_CHUNK_BYTES];

/// Sums `data` into `out`, which has exactly [`CsumKind::width`] bytes; else it panics.
pub fn sum(kind: CsumKind, data: &[u8], out: &mut [u8]) {
    use crc_fast::{CrcAlgorithm, checksum};
    match kind {
        CsumKind::Off => out.copy_from_slice(&[]),
        CsumKind::Crc32c => {
            out.copy_from_slice(&crc32c::crc32c(data).to_le_bytes());
        }
        CsumKind::Crc64 => {
            out.copy_from_slice(&checksum(CrcAlgorithm::Crc64Nvme, data).to_le_bytes());
        }
        CsumKind::Xxh3 => {
            let sum = twox_hash::XxHash3_64::oneshot(data);
            out.copy_from_slice(&sum.to_le_bytes());
        }
        CsumKind::Sha256 => out.copy_from_slice(&sha2::Sha256::digest(data)),
    }
}

/// Appends the sum of `data` to `out`.
pub fn push_sum(kind: CsumKind, data: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + kind.width(), 0);
    sum(kind, data, &mut out[start..]);
}

/// Appends the sum of `data`, at most a chunk, followed by zeros up to a whole chunk.
pub fn push_padded_sum(kind: CsumKind, data: &[u8], out: &mut Vec<u8>) {
    if data.len() == SUM_CHUNK_BYTES {
        return push_sum(kind, data, out);
    }
    let mut padded = [0; SUM_CHUNK_BYTES];
    padded[..data.len()].copy_from_slice(data);
    push_sum(kind, &padded, out);
}

/// True when `sum` is the sum of `data`.
pub fn matches(kind: CsumKind, data: &[u8], sum: &[u8]) -> bool {
    let mut made = [0; types::sums::SUM_BYTES_MAX];
    let made = &mut made[..kind.width()];
    self::sum(kind, data, made);
    made == sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(kind: CsumKind, data: &[u8]) -> String {
        let mut out = Vec::new();
        push_sum(kind, data, &mut out);
        assert_eq!(out.len(), kind.width());
        assert!(matches(kind, data, &out));
        out.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn sums_are_those_that_their_definitions_give() {
        // Check values of the CRC catalogue; xxHash's and NIST's own examples.
        assert_eq!(hex(CsumKind::Crc32c, b"123456789"), "839206e3");
        assert_eq!(hex(CsumKind::Crc64, b"123456789"), "8898790a86148bae");
        assert_eq!(hex(CsumKind::Xxh3, b""), "c294d3380580062d");
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hex(CsumKind::Sha256, b"abc"), abc);
        assert_eq!(hex(CsumKind::Off, b"abc"), "");
    }

    #[test]
    fn every_bit_of_a_chunk_counts() {
        let mut chunk: Vec<u8> = (0..SUM_CHUNK_BYTES).map(|n| (n * 31 / 7) as u8).collect();
        for kind in &CsumKind::ALL[1..] {
            let mut sum = Vec::new();
            push_sum(*kind, &chunk, &mut sum);
            for bit in (0..chunk.len() * 8).step_by(61) {
                chunk[bit / 8] ^= 1 << (bit % 8);
                assert!(!matches(*kind, &chunk, &sum), "{kind} bit {bit}");
                chunk[bit / 8] ^= 1 << (bit % 8);
            }
            let mut padded = Vec::new();
            push_padded_sum(*kind, &chunk[..100], &mut padded);
            let mut by_hand = chunk.clone();
            by_hand[100..].fill(0);
            assert!(matches(*kind, &by_hand, &padded));
        }
    }
}
