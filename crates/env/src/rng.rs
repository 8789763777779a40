//! A small seeded generator: SplitMix64.
//!
//! Not for secrets. The whole state is one word, so equal seeds give equal runs.

use std::cell::Cell;
use types::hash;

/// A SplitMix64 generator.
#[derive(Debug)]
pub struct Rng(Cell<u64>);

impl Rng {
    /// A generator whose output depends on the seed alone.
    pub fn new(seed: u64) -> Rng {
        Rng(Cell::new(seed))
    }

    /// The next 64 bits.
    pub fn next_u64(&self) -> u64 {
        let state = self.0.get();
        self.0.set(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
        hash::mix(state)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// True with a probability of `ppm` in a million.
    pub fn chance_ppm(&self, ppm: u32) -> bool {
        ppm > 0 && self.below(1_000_000) < ppm as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_numbers_within_bounds() {
        let (a, b, other) = (Rng::new(7), Rng::new(7), Rng::new(8));
        let drawn: Vec<u64> = (0..100).map(|_| a.next_u64()).collect();
        assert!(drawn.iter().all(|&word| word == b.next_u64()));
        assert!(drawn.iter().any(|&word| word != other.next_u64()));
        let mut seen = [false; 5];
        (0..200).for_each(|_| seen[a.below(5) as usize] = true);
        assert_eq!(seen, [true; 5]);
        assert!(!a.chance_ppm(0));
        assert!(a.chance_ppm(1_000_000));
    }
}
