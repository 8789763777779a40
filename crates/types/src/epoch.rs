//! Epochs: hybrid logical clock timestamps.
//!
//! An epoch is nanoseconds since 1970 as the stamping engine saw them, bumped by one where
//! two events would tie (Kulkarni et al., "Logical Physical Clocks", OPODIS 2014, with the
//! logical part folded into the low nanoseconds). So an epoch also serves as an mtime.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A point in the version history of a container; 0 is "before everything".
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug, Default,
)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Before every event; as "epoch seen" it means "absent".
    pub const ZERO: Epoch = Epoch(0);
    /// After every event.
    pub const MAX: Epoch = Epoch(u64::MAX);
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The clock of one target: strictly increasing, never behind anything it has seen.
#[derive(Debug, Default)]
pub struct Hlc {
    last: u64,
}

impl Hlc {
    /// A new, unique epoch given the wall clock in nanoseconds since 1970.
    pub fn tick(&mut self, wall_ns: u64) -> Epoch {
        self.last = wall_ns.max(self.last.saturating_add(1));
        Epoch(self.last)
    }

    /// Takes note of an epoch made elsewhere, so that later ticks come after it.
    pub fn observe(&mut self, seen: Epoch) {
        self.last = self.last.max(seen.0);
    }

    /// The last epoch made or seen.
    pub fn last(&self) -> Epoch {
        Epoch(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_increase_even_when_the_wall_clock_steps_back() {
        let mut clock = Hlc::default();
        let a = clock.tick(1_000);
        let b = clock.tick(400);
        assert!(b > a);
        clock.observe(Epoch(9_000));
        assert!(clock.tick(2_000) > Epoch(9_000));
    }
}
