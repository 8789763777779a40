//! Data that can be checked: each 8-byte word is a function of a seed and of its offset.
//!
//! So a reader needs no copy of what was written, and data that land at a wrong offset, in a
//! wrong file, or are left from an earlier run are told from the right ones.

use types::hash;

/// Bytes of a word.
pub const WORD_BYTES: usize = 8;

/// The first word that is not what it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// Offset of the word in the file.
    pub offset: u64,
    /// What should be there.
    pub expected: u64,
    pub found: u64,
}

/// Seed of one file of a benchmark.
pub fn file_seed(seed: u64, file: u64) -> u64 {
    hash::mix2(seed, file)
}

/// Fills `buf` with the data of the file `seed` at `offset`, a multiple of 8.
pub fn fill(seed: u64, offset: u64, buf: &mut [u8]) {
    let mut at = offset;
    let mut words = buf.chunks_exact_mut(WORD_BYTES);
    for word in &mut words {
        word.copy_from_slice(&hash::mix2(seed, at).to_le_bytes());
        at += WORD_BYTES as u64;
    }
    let rest = words.into_remainder();
    let last = hash::mix2(seed, at).to_le_bytes();
    rest.copy_from_slice(&last[..rest.len()]);
}

/// Compares `buf` with the data of the file `seed` at `offset`, a multiple of 8.
pub fn check(seed: u64, offset: u64, buf: &[u8]) -> Option<Mismatch> {
    let mut at = offset;
    for chunk in buf.chunks(WORD_BYTES) {
        let mut expected = [0; WORD_BYTES];
        let mut found = [0; WORD_BYTES];
        expected[..chunk.len()].copy_from_slice(&hash::mix2(seed, at).to_le_bytes()[..chunk.len()]);
        found[..chunk.len()].copy_from_slice(chunk);
        if expected != found {
            return Some(Mismatch {
                offset: at,
                expected: u64::from_le_bytes(expected),
                found: u64::from_le_bytes(found),
            });
        }
        at += WORD_BYTES as u64;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_flipped_bit_is_found_at_its_word(
            seed: u64,
            words in 0u64..1 << 40,
            bytes in 1usize..300,
            at in 0usize..300,
            bit in 0u32..8,
        ) {
            let offset = words * WORD_BYTES as u64;
            let mut buf = vec![0; bytes];
            fill(seed, offset, &mut buf);
            prop_assert_eq!(check(seed, offset, &buf), None);
            let at = at % bytes;
            buf[at] ^= 1 << bit;
            let word = offset + (at / WORD_BYTES * WORD_BYTES) as u64;
            prop_assert_eq!(check(seed, offset, &buf).map(|m| m.offset), Some(word));
        }

        #[test]
        fn pieces_make_the_same_data_as_the_whole(seed: u64, cut in 0usize..20, bytes in 160usize..200) {
            let mut whole = vec![0; bytes];
            fill(seed, 64, &mut whole);
            let mut pieces = vec![0; bytes];
            let (left, right) = pieces.split_at_mut(cut * WORD_BYTES);
            fill(seed, 64, left);
            fill(seed, 64 + (cut * WORD_BYTES) as u64, right);
            prop_assert_eq!(whole, pieces);
        }
    }

    #[test]
    fn data_of_another_file_or_offset_do_not_pass() {
        let mut buf = [0; 64];
        fill(file_seed(1, 0), 0, &mut buf);
        assert!(check(file_seed(1, 1), 0, &buf).is_some());
        assert!(check(file_seed(2, 0), 0, &buf).is_some());
        assert!(check(file_seed(1, 0), 64, &buf).is_some());
    }
}
