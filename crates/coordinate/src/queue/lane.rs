//! One target in one direction: its limit, who is in, and the order of those who wait.

use super::stats::Totals;
use admit::{FairQueue, LimitFinder};
use std::collections::BTreeSet;

/// What a request costs beside its bytes, bytes: one without any is not free.
const REQUEST_BYTES: u64 = 64 << 10;
/// Least time in which a limit is judged, microseconds: short bursts into some cache say nothing
/// of the device.
const WINDOW_US_MIN: u64 = 100_000;

/// How many may be in a lane at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Any number.
    Off,
    /// So many; at least 1.
    Fixed(u32),
    /// What is found to be best, up to this many.
    Auto {
        /// Upper bound of the search, at least 1.
        max: u32,
    },
}

/// Limits of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `max_writers`.
    pub write: Limit,
    /// `max_readers`.
    pub read: Limit,
}

impl Default for Limits {
    /// Two writers, as was best in the paper; reads are free.
    fn default() -> Limits {
        Limits { write: Limit::Fixed(2), read: Limit::Off }
    }
}

/// A waiting request, as its lanes need to know it.
#[derive(Clone, Copy)]
pub(super) struct Waiter {
    pub arrival: u64,
    pub job: usize,
    pub priority: u8,
    /// Its turn among those that reserve.
    pub reserves: Option<u64>,
}

#[derive(Clone)]
enum Gate {
    Off,
    Fixed(u32),
    Auto(Box<LimitFinder>),
}

#[derive(Clone)]
pub(super) struct Lane {
    gate: Gate,
    active: u32,
    waiting: FairQueue<usize, ()>,
    /// The same requests by arrival.
    by_age: BTreeSet<u64>,
    /// Those that reserve, by turn.
    reserving: BTreeSet<(u64, u64)>,
    /// Requests that went while the present oldest waited.
    overtakes: u32,
    /// Being put into a request; not to be forgotten meanwhile.
    pinned: bool,
    pub(super) totals: Totals,
}

impl Lane {
    pub fn new(limit: Limit) -> Lane {
        let gate = match limit {
            Limit::Off => Gate::Off,
            Limit::Fixed(limit) => Gate::Fixed(limit.max(1)),
            Limit::Auto { max } => Gate::Auto(Box::new(LimitFinder::new(max, WINDOW_US_MIN))),
        };
        Lane {
            gate,
            active: 0,
            waiting: FairQueue::default(),
            by_age: BTreeSet::new(),
            reserving: BTreeSet::new(),
            overtakes: 0,
            pinned: false,
            totals: Totals::default(),
        }
    }

    /// The present limit; `None`: any number.
    pub fn limit(&self) -> Option<u32> {
        match &self.gate {
            Gate::Off => None,
            Gate::Fixed(limit) => Some(*limit),
            Gate::Auto(finder) => Some(finder.limit()),
        }
    }

    pub fn is_auto(&self) -> bool {
        matches!(self.gate, Gate::Auto(_))
    }

    pub fn active(&self) -> u32 {
        self.active
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The request that waits longest.
    pub fn oldest(&self) -> Option<u64> {
        self.by_age.first().copied()
    }

    /// Nobody is in, waits, or is about to.
    pub fn is_idle(&self) -> bool {
        self.active == 0 && self.waiting.is_empty() && !self.pinned
    }

    /// Keeps the lane from being forgotten until [`Lane::enqueue`].
    pub fn pin(&mut self) {
        self.pinned = true;
    }

    /// No room for one more, when `reserved` slots are not to be used.
    pub fn is_full(&self, reserved: u32) -> bool {
        self.limit().is_some_and(|limit| self.active.saturating_add(reserved) >= limit)
    }

    /// Slots kept for requests whose turn to reserve came before `turn` (`None`: for all that
    /// reserve); counted no further than the limit.
    pub fn reserved_before(&self, turn: Option<u64>) -> u32 {
        let enough = self.limit().unwrap_or(0) as usize;
        let end = turn.map_or((u64::MAX, u64::MAX), |turn| (turn, 0));
        self.reserving.range(..end).take(enough).count() as u32
    }

    /// A request begins to wait.
    pub fn enqueue(&mut self, now_us: u64, waiter: Waiter, weight: u16, bytes: u64) {
        self.pinned = false;
        if self.active == 0 && self.waiting.is_empty() {
            self.waiting.forget();
        }
        if let Gate::Auto(finder) = &mut self.gate {
            finder.pass_time(now_us, self.active);
        }
        let Waiter { arrival, job, priority, .. } = waiter;
        let cost = admit::cost(bytes.saturating_add(REQUEST_BYTES), weight);
        self.waiting.push(arrival, job, priority, cost, ());
        if self.by_age.is_empty() {
            self.overtakes = 0;
        }
        self.by_age.insert(arrival);
    }

    /// The first of [`Lane::candidates`].
    pub fn first(&self) -> Option<u64> {
        self.reserving.first().map(|(_, arrival)| *arrival).or_else(|| self.waiting.first())
    }

    /// Waiting requests in the order in which they should go.
    pub fn candidates(&self) -> impl Iterator<Item = u64> + '_ {
        let reserving = self.reserving.iter().map(|(_, arrival)| *arrival);
        let others = self.waiting.iter();
        // One that reserves comes up again in its old place; whoever asks stops before or finds
        // it still not free to go.
        reserving.chain(others)
    }

    pub fn reserve(&mut self, turn: u64, arrival: u64) {
        self.reserving.insert((turn, arrival));
    }

    fn remove(&mut self, waiter: Waiter, goes: bool) {
        let Waiter { arrival, reserves, .. } = waiter;
        if goes {
            self.waiting.take(arrival);
        } else {
            self.waiting.withdraw(arrival);
        }
        if self.by_age.first() == Some(&arrival) {
            self.overtakes = 0;
        }
        self.by_age.remove(&arrival);
        if let Some(turn) = reserves {
            self.reserving.remove(&(turn, arrival));
        }
    }

    /// A waiting request goes in.
    pub fn admit(&mut self, now_us: u64, waiter: Waiter, waited_us: u64) {
        if self.by_age.first() != Some(&waiter.arrival) {
            self.overtakes = self.overtakes.saturating_add(1);
        }
        self.remove(waiter, true);
        if let Gate::Auto(finder) = &mut self.gate {
            finder.pass_time(now_us, self.active);
        }
        self.active += 1;
        self.totals.grant(waited_us);
    }

    /// The oldest waiting request, when it has been overtaken as often as it may.
    pub fn overtaken(&self, overtakes_max: u32) -> Option<u64> {
        self.by_age.first().copied().filter(|_| self.overtakes >= overtakes_max)
    }

    /// A waiting request will never go in.
    pub fn give_up(&mut self, waiter: Waiter) {
        self.remove(waiter, false);
    }

    /// A request goes out, with its share of bytes if it was completed.
    pub fn release(&mut self, now_us: u64, held_us: u64, bytes: Option<u64>) {
        debug_assert!(self.active > 0, "who goes out was in");
        if let Gate::Auto(finder) = &mut self.gate {
            finder.pass_time(now_us, self.active);
            match bytes {
                Some(bytes) => finder.completed(now_us, bytes, self.active),
                None => finder.disturbed(),
            }
        }
        self.active -= 1;
        self.totals.end(held_us, bytes);
    }

    /// True when the waiting request is in all the lists it belongs to.
    pub fn holds(&self, waiter: Waiter) -> bool {
        let Waiter { arrival, reserves, .. } = waiter;
        self.waiting.contains(arrival)
            && self.by_age.contains(&arrival)
            && reserves.is_none_or(|turn| self.reserving.contains(&(turn, arrival)))
    }

    /// Asserts that it counts right.
    pub fn check(&self, granted: u32, waiting: usize) {
        assert_eq!(self.active, granted, "a slot is lost or was given twice");
        assert_eq!((self.waiting.len(), self.by_age.len()), (waiting, waiting));
        assert!(self.reserving.len() <= waiting, "only who waits reserves");
        if let Gate::Fixed(limit) = self.gate {
            assert!(self.active <= limit, "{} are in, {limit} may be", self.active);
        }
    }

    /// What decides the future, without absolute numbers: for comparing states in tests.
    #[cfg(test)]
    pub fn signature(&self, overtakes_max: u32, number_of: &dyn Fn(u64) -> usize) -> String {
        if self.is_idle() {
            return String::new();
        }
        let waiting = self.waiting.signature(number_of);
        let ages: Vec<_> = self.by_age.iter().map(|arrival| number_of(*arrival)).collect();
        let reserving: Vec<_> = self.reserving.iter().map(|(_, one)| number_of(*one)).collect();
        let overtakes = if ages.is_empty() { 0 } else { self.overtakes.min(overtakes_max) };
        format!("{} {overtakes} {waiting} {ages:?} {reserving:?}", self.active)
    }
}
