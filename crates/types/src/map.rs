//! Hash maps whose order is that of what was done with them: a simulation that runs twice goes through
//! them in the same order.
//!
//! Keys come from clients, too, so the hash has a seed of each process's own; a simulation fixes
//! it.

use foldhash::fast::{FixedState, FoldHasher};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

/// A map of keys that need not be in order.
pub type HashMap<K, V> = std::collections::HashMap<K, V, SeededState>;
/// A set of the same kind.
pub type HashSet<T> = std::collections::HashSet<T, SeededState>;

static SEED: OnceLock<u64> = OnceLock::new();

/// From now on the order of maps is the same in every process, unless there was a map before.
pub fn fix_seed() {
    // Set already: then runs in this process are equal all the same.
    let _ = SEED.set(0);
}

/// Hashes with the seed of the process.
#[derive(Clone, Debug)]
pub struct SeededState(FixedState);

impl Default for SeededState {
    fn default() -> SeededState {
        let seed = SEED.get_or_init(|| RandomState::new().build_hasher().finish());
        SeededState(FixedState::with_seed(*seed))
    }
}

impl BuildHasher for SeededState {
    type Hasher = FoldHasher<'static>;

    fn build_hasher(&self) -> FoldHasher<'static> {
        self.0.build_hasher()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_histories_have_equal_orders() {
        let order = || {
            let mut map = HashMap::default();
            for key in 0..1000u64 {
                map.insert(key * 7919 % 1009, key);
            }
            map.retain(|key, _| key % 3 != 0);
            map.into_keys().collect::<Vec<_>>()
        };
        assert_eq!(order(), order());
    }
}
