//! When a coordinator that failed is tried again: after a pause that doubles with each failure, up
//! to a bound, and is shortened by up to a quarter at random so that the processes of a job do
//! not all come back at once.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use types::hash;

/// The pause of this process; all its threads keep it.
pub struct Retry {
    /// Microseconds of the monotonic clock; 0: no pause.
    until_us: AtomicU64,
    failures: AtomicU32,
}

impl Retry {
    pub const fn new() -> Self {
        Self { until_us: AtomicU64::new(0), failures: AtomicU32::new(0) }
    }

    /// True while the pause lasts.
    pub fn pausing(&self, now: impl FnOnce() -> Duration) -> bool {
        let until_us = self.until_us.load(Relaxed);
        until_us != 0 && (now().as_micros() as u64) < until_us
    }

    /// A failure: begins a pause and returns its length. Threads that fail during one pause count
    /// as one failure.
    pub fn failed(&self, now: Duration, first: Duration, max: Duration, seed: u64) -> Duration {
        let now_us = now.as_micros() as u64;
        let until_us = self.until_us.load(Relaxed);
        if now_us < until_us {
            return Duration::from_micros(until_us - now_us);
        }
        let failures = self.failures.load(Relaxed);
        let full = first.saturating_mul(1 << failures.min(20)).min(max);
        let pause = full - full / 4 / 256 * (hash::mix2(seed, now_us) % 256) as u32;
        let next_us = now_us.saturating_add(pause.as_micros() as u64).max(1);
        if self.until_us.compare_exchange(until_us, next_us, Relaxed, Relaxed).is_ok() {
            self.failures.store(failures.saturating_add(1), Relaxed);
        }
        pause
    }

    /// The coordinator answered.
    pub fn succeeded(&self) {
        self.failures.store(0, Relaxed);
        self.until_us.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn pauses_double_up_to_the_bound_and_end_with_success() {
        let retry = Retry::new();
        let mut now = SECOND;
        assert!(!retry.pausing(|| now));
        for full in [1, 2, 4, 8, 10, 10] {
            let full = full * SECOND;
            let pause = retry.failed(now, SECOND, 10 * SECOND, 7);
            assert!(pause <= full && pause >= full * 3 / 4, "{pause:?} of {full:?}");
            assert!(retry.pausing(|| now));
            now += pause;
            assert!(!retry.pausing(|| now), "over");
        }
        retry.succeeded();
        assert!(retry.failed(now, SECOND, 10 * SECOND, 7) <= SECOND);
        retry.succeeded();
        assert!(!retry.pausing(|| now));
    }

    #[test]
    fn failures_during_a_pause_are_one() {
        let retry = Retry::new();
        retry.failed(SECOND, SECOND, 60 * SECOND, 1);
        for _ in 0..10 {
            let left = retry.failed(SECOND + SECOND / 2, SECOND, 60 * SECOND, 1);
            assert!(left <= SECOND / 2);
        }
        let next = retry.failed(3 * SECOND, SECOND, 60 * SECOND, 1);
        assert!(next <= 2 * SECOND && next > SECOND, "the second failure: {next:?}");
    }

    #[test]
    fn a_pause_of_nothing_is_none() {
        let retry = Retry::new();
        retry.failed(SECOND, Duration::ZERO, Duration::ZERO, 1);
        assert!(!retry.pausing(|| SECOND));
    }
}
