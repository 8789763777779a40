//! Weighted draws: each target draws a lot for an object, and the smallest lot wins.
//!
//! A target of weight `w` draws `-log2(u) / w`, with `u` uniform in (0, 1] from a hash of the
//! object's key and the target's id. The smallest of such exponential variables falls on each
//! target in proportion to its weight, independently of which other targets there are. So a
//! target that is added takes its share from all others and moves nothing between them.
//!
//! Invariant: draws never change. The logarithm is fixed-point from a table that the compiler
//! builds with integers; floating point would depend on the machine's math library.

use types::{TargetId, hash};
use wire::map::PlacementSet;

/// Fractional bits of the fixed-point logarithm.
const FRACTION_BITS: u32 = 40;
/// The table holds the logarithm at this many intervals of [1, 2), as a power of two. Linear
/// interpolation over 1,024 of them errs by less than 2e-7, far below any weight's meaning.
const INDEX_BITS: u32 = 10;
const INTERVALS: usize = 1 << INDEX_BITS;

static LOG2: [u64; INTERVALS + 1] = log2_table();

/// log2 of `x / 2^62` for `x` in [2^62, 2^63), one bit per squaring.
const fn log2_of_mantissa(mut x: u64) -> u64 {
    let mut log = 0;
    let mut bit = FRACTION_BITS;
    while bit > 0 {
        bit -= 1;
        let square = (x as u128 * x as u128) >> 62;
        if square >> 63 != 0 {
            log |= 1 << bit;
            x = (square >> 1) as u64;
        } else {
            x = square as u64;
        }
    }
    log
}

const fn log2_table() -> [u64; INTERVALS + 1] {
    let mut table = [0; INTERVALS + 1];
    let mut at = 0;
    while at < INTERVALS {
        table[at] = log2_of_mantissa((1 << 62) + ((at as u64) << (62 - INDEX_BITS)));
        at += 1;
    }
    table[INTERVALS] = 1 << FRACTION_BITS;
    table
}

/// `-log2(word / 2^64)` with 40 fractional bits; `word` 0 counts as 1. In 1..=2^46.
fn negative_log2(word: u64) -> u64 {
    let word = word.max(1);
    let zeros = word.leading_zeros();
    let mantissa = word << zeros;
    let at = ((mantissa >> (63 - INDEX_BITS)) as usize) & (INTERVALS - 1);
    let between = (mantissa >> (63 - INDEX_BITS - 32)) & 0xffff_ffff;
    let (low, high) = (LOG2[at], LOG2[at + 1]);
    let fraction = low + (((high - low) * between) >> 32);
    ((zeros as u64 + 1) << FRACTION_BITS) - fraction
}

/// One target's lot; ordered, the smallest wins. Ties go to the lower target id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Lot {
    scaled: u64,
    pub target: TargetId,
}

/// The lots of all targets of positive weight, in the order of the set.
pub fn lots(placement_key: u64, set: &PlacementSet) -> impl Iterator<Item = Lot> + '_ {
    let key = hash::mix(placement_key);
    set.weights.iter().filter(|(_, weight)| *weight > 0).map(move |&(target, weight)| {
        let log = negative_log2(hash::mix(key ^ target.0 as u64));
        // 46 bits of logarithm leave room for 16 more, so that great weights do not tie.
        Lot { scaled: (log << 16) / weight as u64, target }
    })
}

/// The target with the smallest lot; `None` when no target has weight.
pub fn winner(placement_key: u64, set: &PlacementSet) -> Option<TargetId> {
    lots(placement_key, set).min().map(|lot| lot.target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_close_to_the_real_one_and_falls_with_its_argument() {
        let mut words: Vec<u64> = (0..64).map(|bit| 1 << bit).collect();
        words.extend((0..2_000).map(hash::mix));
        words.extend([0, u64::MAX, u64::MAX - 1]);
        for &word in &words {
            let exact = 64.0 - (word.max(1) as f64).log2();
            let ours = negative_log2(word) as f64 / (1u64 << FRACTION_BITS) as f64;
            assert!((ours - exact).abs() < 3e-7, "{word}: {ours} against {exact}");
        }
        words.sort_unstable();
        for pair in words.windows(2) {
            assert!(negative_log2(pair[0]) >= negative_log2(pair[1]));
        }
        assert!(negative_log2(u64::MAX) >= 1);
        assert_eq!(negative_log2(0), 64 << FRACTION_BITS);
    }

    #[test]
    fn the_table_is_frozen() {
        // Placement of stored objects depends on it.
        let sum = LOG2.iter().fold(0, |sum, &entry| hash::mix2(sum, entry));
        assert_eq!(LOG2[512], 643_173_071_355, "log2(1.5) * 2^40");
        assert_eq!(sum, 15_202_958_868_920_748_474);
    }
}
