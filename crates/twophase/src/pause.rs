//! Pauses between attempts.

use std::time::Duration;

/// The first pause between two attempts, and where doubling ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pauses {
    pub min: Duration,
    pub max: Duration,
}

/// How long to wait next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Pause(Duration);

impl Pauses {
    pub(crate) fn begin(self) -> Pause {
        Pause(self.min)
    }
}

impl Pause {
    /// This pause; the next one is twice as long.
    pub fn take(&mut self, pauses: Pauses) -> Duration {
        let pause = self.0;
        self.0 = pause.saturating_mul(2).min(pauses.max);
        pause
    }
}
