//! CRC-32C of bytes of which chunks have been summed before: those are not looked at again.

use crc_fast::{CrcAlgorithm, Digest, checksum_combine};
use std::sync::LazyLock;
use types::sums::SUM_CHUNK_BYTES;

/// What a whole chunk behind them makes of the bits of a sum, each alone: joining sums is linear (Adler's `crc32_combine`). To find it takes a library a
/// millisecond, to use it 32 steps.
static MOVED_BITS: LazyLock<[u32; 32]> = LazyLock::new(|| {
    let moved = |bit| {
        checksum_combine(CrcAlgorithm::Crc32Iscsi, 1_u64 << bit, 0, SUM_CHUNK_BYTES as u64) as u32
    };
    std::array::from_fn(moved)
});

/// The sum of what was added so far.
#[derive(Clone, Copy, Default)]
pub struct JoinedSum(u32);

impl JoinedSum {
    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            let mut digest =
                Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!self.0));
            digest.update(bytes);
            self.0 = digest.finalize() as u32;
        }
    }

    /// Adds a whole chunk ([`SUM_CHUNK_BYTES`]) of which this is the CRC-32C.
    pub fn add_chunk(&mut self, sum: [u8; 4]) {
        let bits = MOVED_BITS.iter().enumerate();
        let moved = bits.map(|(bit, moved)| moved & (self.0 >> bit & 1).wrapping_neg());
        self.0 = moved.fold(u32::from_le_bytes(sum), |sum, part| sum ^ part);
    }

    /// As [`crate::sum`] writes it.
    pub fn to_bytes(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::CsumKind;

    fn whole(bytes: &[u8]) -> [u8; 4] {
        let mut sum = [0; 4];
        crate::sum(CsumKind::Crc32c, bytes, &mut sum);
        sum
    }

    #[test]
    fn what_is_joined_has_the_sum_of_the_whole() {
        let bytes: Vec<u8> = (0..9 * SUM_CHUNK_BYTES).map(|n| (n * n / 13) as u8).collect();
        assert_eq!(JoinedSum::default().to_bytes(), whole(b""));
        // Pieces as they come: some chunks, and what lies between them.
        let cuts = [(0, 1), (7, 2), (0, 3), (SUM_CHUNK_BYTES - 1, 1), (301, 0), (0, 0)];
        let (mut joined, mut at) = (JoinedSum::default(), 0);
        for (between, chunks) in cuts {
            joined.add(&bytes[at..at + between]);
            at += between;
            for chunk in bytes[at..].chunks(SUM_CHUNK_BYTES).take(chunks) {
                joined.add_chunk(whole(chunk));
                at += chunk.len();
            }
            assert_eq!(joined.to_bytes(), whole(&bytes[..at]), "{at} bytes");
        }
        assert!(at > 7 * SUM_CHUNK_BYTES);
    }

    #[test]
    fn each_chunk_counts_in_its_place() {
        let [a, b] = [whole(&[1; SUM_CHUNK_BYTES]), whole(&[2; SUM_CHUNK_BYTES])];
        let joined = |sums: &[[u8; 4]]| {
            let mut joined = JoinedSum::default();
            sums.iter().for_each(|sum| joined.add_chunk(*sum));
            joined.to_bytes()
        };
        assert_ne!(joined(&[a, b]), joined(&[b, a]));
        assert_ne!(joined(&[a]), joined(&[a, a]));
    }
}
