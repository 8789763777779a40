//! How many pieces of a file are fetched ahead at the same time.
//!
//! So many that some of them bring bytes while others wait for their first one: where requests take long before they bring anything there are more of
//! them on their way. The shortest wait that was seen is what the way takes; longer ones may be those of a store that has too much to do, which more
//! requests would not help.

use crate::store::Took;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Pieces that bring bytes at the same time. The others wait, so that the one that is wanted first need not share the way with all.
pub(super) const LANES: usize = 8;
/// Beyond that there is no room in memory for them in most cases.
const LANES_MAX: usize = 32;

/// What pieces of a file that are fetched ahead wait for.
pub(super) struct Lanes {
    free: Semaphore,
    pace: Mutex<Pace>,
}

struct Pace {
    lanes: usize,
    /// Somebody has said how many there are.
    is_fixed: bool,
    /// The shortest wait for the first byte of a piece.
    first_min: Duration,
    /// What a piece takes in all, the last ones more than those before.
    all_mean: Duration,
}

impl Lanes {
    /// As many as somebody has said, or as it takes.
    pub fn new(said: Option<usize>) -> Lanes {
        let lanes = said.unwrap_or(LANES).max(1);
        let pace = Pace {
            lanes,
            is_fixed: said.is_some(),
            first_min: Duration::MAX,
            all_mean: Duration::ZERO,
        };
        Lanes { free: Semaphore::new(lanes), pace: Mutex::new(pace) }
    }

    /// Waits for one. `None`: there is nothing to wait for.
    pub async fn enter(&self) -> Option<SemaphorePermit<'_>> {
        self.free.acquire().await.ok()
    }

    /// Gives one back after a piece has come, which took so long if it came as part of a part.
    pub fn leave(&self, lane: Option<SemaphorePermit<'_>>, took: Option<Took>) {
        let mut pace = self.pace();
        let Some(took) = took.filter(|_| !pace.is_fixed) else { return };
        let wanted = pace.wanted(took);
        if wanted > pace.lanes {
            self.free.add_permits(wanted - pace.lanes);
            pace.lanes = wanted;
        } else if wanted < pace.lanes
            && let Some(lane) = lane
        {
            // One at a time: the others are in use.
            lane.forget();
            pace.lanes -= 1;
        }
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pace {
    /// How many there should be after a piece that took so long.
    fn wanted(&mut self, took: Took) -> usize {
        self.first_min = self.first_min.min(took.first);
        self.all_mean = match self.all_mean {
            Duration::ZERO => took.all,
            mean => (mean * 7 + took.all) / 8,
        };
        lanes_for(self.first_min, self.all_mean)
    }
}

/// How many are on their way where a piece waits so long for its first byte, and takes so long in all.
fn lanes_for(first: Duration, all: Duration) -> usize {
    let (first, all) = (first.as_secs_f64(), all.as_secs_f64());
    let bringing = ((all - first) / all.max(f64::MIN_POSITIVE)).clamp(1e-3, 1.0);
    ((LANES as f64 / bringing).round() as usize).clamp(LANES, LANES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_executor::block_on;

    fn took(first_ms: u64, all_ms: u64) -> Took {
        Took { first: Duration::from_millis(first_ms), all: Duration::from_millis(all_ms) }
    }

    #[test]
    fn the_longer_the_wait_the_more_are_on_their_way() {
        let lanes =
            |first, all| lanes_for(Duration::from_millis(first), Duration::from_millis(all));
        assert_eq!([lanes(0, 60), lanes(5, 100), lanes(50, 100)], [LANES, LANES, 2 * LANES]);
        assert_eq!([lanes(100, 100), lanes(100, 0), lanes(0, 0)], [LANES_MAX; 3]);
    }

    #[test]
    fn lanes_come_and_go_with_what_pieces_take() {
        let lanes = Lanes::new(None);
        let pass = |first, all| {
            let lane = block_on(lanes.enter());
            lanes.leave(lane, Some(took(first, all)));
            lanes.free.available_permits()
        };
        assert_eq!(pass(50, 100), 2 * LANES);
        // A store that has too much to do is not asked for more.
        assert_eq!(pass(90, 100), 2 * LANES);
        // A way that got shorter.
        assert_eq!(pass(0, 100), 2 * LANES - 1);
        let left: Vec<usize> = (0..100).map(|_| pass(0, 100)).collect();
        assert_eq!(left.last(), Some(&LANES));
        // Nothing is learned from what came in one go.
        lanes.leave(block_on(lanes.enter()), None);
        assert_eq!(lanes.free.available_permits(), LANES);
        let said = Lanes::new(Some(3));
        let lane = block_on(said.enter());
        said.leave(lane, Some(took(50, 100)));
        assert_eq!(said.free.available_permits(), 3);
    }
}
