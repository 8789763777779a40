//! Timers: a binary heap of deadlines over a slab of slots.
//!
//! Invariants: a slot belongs to one [`Sleep`] until that is dropped; a heap entry whose
//! generation differs from its slot's is stale and is skipped. Dropping a sleep is O(1); stale
//! entries are swept when they outnumber the live ones. Timers that are due at the same moment
//! fire in the order they were set, so a simulated run is repeatable.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Stale heap entries tolerated beside the live ones.
const STALE_COUNT_MAX: usize = 64;

#[derive(Default)]
struct Slot {
    generation: u64,
    fired: bool,
    waker: Option<Waker>,
}

#[derive(Default)]
struct Wheel {
    heap: BinaryHeap<Reverse<(Duration, u64, usize)>>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    generation: u64,
}

/// The timers of one executor.
#[derive(Default)]
pub(crate) struct Timers {
    wheel: RefCell<Wheel>,
    /// Heap entries, stale ones included; lets the run loop skip reading the clock.
    count: Cell<usize>,
}

impl Timers {
    /// True when nothing is set: there is no need to look at the clock.
    pub fn is_empty(&self) -> bool {
        self.count.get() == 0
    }

    /// When the next timer is due; `None` when none is set.
    pub fn next(&self) -> Option<Duration> {
        let mut wheel = self.wheel.borrow_mut();
        while let Some(&Reverse((deadline, generation, index))) = wheel.heap.peek() {
            if wheel.slots[index].generation == generation {
                self.count.set(wheel.heap.len());
                return Some(deadline);
            }
            wheel.heap.pop();
        }
        self.count.set(0);
        None
    }

    /// Fires what is due at `now`; true if anything was.
    pub fn fire(&self, now: Duration) -> bool {
        let mut fired = false;
        loop {
            let mut wheel = self.wheel.borrow_mut();
            let Some(&Reverse((deadline, generation, index))) = wheel.heap.peek() else { break };
            let live = wheel.slots[index].generation == generation;
            if live && deadline > now {
                break;
            }
            wheel.heap.pop();
            if live {
                fired = true;
                let slot = &mut wheel.slots[index];
                slot.fired = true;
                let waker = slot.waker.take();
                drop(wheel);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
        }
        self.count.set(self.wheel.borrow().heap.len());
        fired
    }

    fn insert(&self, deadline: Duration, waker: Waker) -> usize {
        let mut wheel = self.wheel.borrow_mut();
        let wheel = &mut *wheel;
        wheel.generation += 1;
        let generation = wheel.generation;
        let slot = Slot { generation, fired: false, waker: Some(waker) };
        let index = match wheel.free.pop() {
            Some(index) => {
                wheel.slots[index] = slot;
                index
            }
            None => {
                wheel.slots.push(slot);
                wheel.slots.len() - 1
            }
        };
        wheel.heap.push(Reverse((deadline, generation, index)));
        self.count.set(wheel.heap.len());
        index
    }

    fn remove(&self, index: usize) {
        let mut wheel = self.wheel.borrow_mut();
        let wheel = &mut *wheel;
        wheel.slots[index] = Slot::default();
        wheel.free.push(index);
        let live_count = wheel.slots.len() - wheel.free.len();
        if wheel.heap.len() > 2 * live_count + STALE_COUNT_MAX {
            let slots = &wheel.slots;
            wheel
                .heap
                .retain(|&Reverse((_, generation, index))| slots[index].generation == generation);
        }
        self.count.set(wheel.heap.len());
    }
}

/// A future that is ready at its deadline; dropping it cancels it.
pub struct Sleep {
    timers: Rc<Timers>,
    deadline: Duration,
    slot: Option<usize>,
}

impl Sleep {
    pub(crate) fn new(timers: Rc<Timers>, deadline: Duration) -> Sleep {
        Sleep { timers, deadline, slot: None }
    }
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(index) = self.slot else {
            self.slot = Some(self.timers.insert(self.deadline, cx.waker().clone()));
            return Poll::Pending;
        };
        let mut wheel = self.timers.wheel.borrow_mut();
        let slot = &mut wheel.slots[index];
        if slot.fired {
            return Poll::Ready(());
        }
        match &mut slot.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(index) = self.slot {
            self.timers.remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn poll(sleep: &mut Sleep) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        Pin::new(sleep).poll(&mut cx).is_ready()
    }

    proptest! {
        /// Set, cancel, advance: the same timers are due as in a plain map of deadlines.
        #[test]
        fn like_a_map_of_deadlines(steps in prop::collection::vec((0u8..3, 0u64..50), 1..200)) {
            let timers = Rc::new(Timers::default());
            let mut model: BTreeMap<usize, u64> = BTreeMap::new();
            let mut sleeps: BTreeMap<usize, Sleep> = BTreeMap::new();
            let mut now = 0;
            for (count, (step, value)) in steps.into_iter().enumerate() {
                match step {
                    0 => {
                        let deadline = now + value;
                        let mut sleep = Sleep::new(timers.clone(), Duration::from_nanos(deadline));
                        prop_assert!(!poll(&mut sleep));
                        model.insert(count, deadline);
                        sleeps.insert(count, sleep);
                    }
                    1 => {
                        let victim = model.keys().nth(value as usize).copied();
                        if let Some(victim) = victim {
                            model.remove(&victim);
                            sleeps.remove(&victim);
                        }
                    }
                    _ => {
                        now += value;
                        timers.fire(Duration::from_nanos(now));
                        let due: Vec<usize> = model.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).collect();
                        let fired: Vec<usize> = sleeps.iter_mut().filter_map(|(id, sleep)| poll(sleep).then_some(*id)).collect();
                        prop_assert_eq!(&due, &fired);
                        for id in due {
                            model.remove(&id);
                            sleeps.remove(&id);
                        }
                    }
                }
                prop_assert_eq!(timers.next(), model.values().min().map(|at| Duration::from_nanos(*at)));
                prop_assert!(timers.count.get() <= 2 * model.len() + STALE_COUNT_MAX + 1);
            }
        }
    }
}
