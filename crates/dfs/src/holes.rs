//! What of some data is worth writing: zeros are kept as holes.

use std::ops::Range;

/// Zeros are kept as holes by blocks of so many bytes: what each of them costs is a request more for what is around it.
const HOLE_BYTES: usize = 64 << 10;

/// Stretches of `memory` between blocks of zeros, in order.
pub fn runs_of_data(memory: &[u8]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (at, block) in memory.chunks(HOLE_BYTES).enumerate() {
        let start = at * HOLE_BYTES;
        let end = start + block.len();
        match runs.last_mut() {
            _ if is_zero(block) => {}
            Some(run) if run.end == start => run.end = end,
            _ => runs.push(start..end),
        }
    }
    runs
}

fn is_zero(memory: &[u8]) -> bool {
    // By words, where the bytes allow; data that are not zero say so at once.
    let (words, rest) = memory.as_chunks::<16>();
    rest.iter().all(|&byte| byte == 0) && words.iter().all(|word| u128::from_ne_bytes(*word) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_left_out_by_blocks() {
        let runs = |memory: &[u8]| -> Vec<(usize, usize)> {
            runs_of_data(memory).into_iter().map(|run| (run.start, run.end)).collect()
        };
        let block = HOLE_BYTES;
        assert!(runs(&[]).is_empty());
        assert!(runs(&vec![0; 3 * block + 5]).is_empty());
        let mut memory = vec![0; 5 * block + 7];
        memory[block] = 1;
        memory[3 * block - 1] = 1;
        assert_eq!(runs(&memory), [(block, 3 * block)]);
        memory[5 * block + 6] = 1;
        assert_eq!(runs(&memory), [(block, 3 * block), (5 * block, 5 * block + 7)]);
    }

    #[test]
    fn zeros_are_told_from_nearly_zeros() {
        assert!(is_zero(&[]));
        for length in [1, 15, 16, 17, 4096, 4099] {
            let mut memory = vec![0; length];
            assert!(is_zero(&memory));
            for at in [0, length / 2, length - 1] {
                memory[at] = 1;
                assert!(!is_zero(&memory), "{length} {at}");
                memory[at] = 0;
            }
        }
    }
}
