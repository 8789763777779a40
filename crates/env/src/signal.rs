//! [`Signal`]: waiting for a state that other tasks of the thread change.
//!
//! Invariant: no wake-up is lost. Who waits looks first and is among the waiting from that look on, in one step; nothing else runs in between,
//! for a thread does one thing at a time. So whoever changes the state only has to notify after the change, before it awaits anything.
//!
//! Not a condition variable: there is no lock, and a notification reaches all who wait. Each looks for itself; who finds that it
//! is not so yet waits on. Where most would, wait by key.

use std::cell::RefCell;
use std::task::{Poll, Waker};

/// Tells tasks of one thread that a state has changed.
#[derive(Debug, Default)]
pub struct Signal {
    waiting: RefCell<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    last_number: u64,
    /// In the order in which they came, with a number each.
    wakers: Vec<(u64, Waker)>,
}

/// One that waits: it is forgotten when it does so no more.
struct Place<'a> {
    signal: &'a Signal,
    number: Option<u64>,
}

impl Place<'_> {
    fn take(&mut self, waker: &Waker) {
        let mut waiting = self.signal.waiting.borrow_mut();
        let own = waiting.wakers.iter_mut().find(|(number, _)| Some(*number) == self.number);
        if let Some((_, known)) = own {
            known.clone_from(waker);
            return;
        }
        waiting.last_number += 1;
        let number = waiting.last_number;
        waiting.wakers.push((number, waker.clone()));
        self.number = Some(number);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(own) = self.number {
            self.signal.waiting.borrow_mut().wakers.retain(|(number, _)| *number != own);
        }
    }
}

impl Signal {
    /// Has all who wait look again, those who came first first.
    pub fn notify(&self) {
        let wakers = std::mem::take(&mut self.waiting.borrow_mut().wakers);
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Ends when `is_so` says so: looks at once, and again after each notification.
    pub async fn until(&self, mut is_so: impl FnMut() -> bool) {
        self.until_some(|| is_so().then_some(())).await
    }

    /// Ends with what `look` finds: looks at once, and again after each notification.
    pub async fn until_some<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        let mut place = Place { signal: self, number: None };
        std::future::poll_fn(|cx| match look() {
            Some(found) => Poll::Ready(found),
            None => {
                place.take(cx.waker());
                Poll::Pending
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimWorld;
    use std::cell::Cell;
    use std::pin::pin;
    use std::rc::Rc;
    use std::task::Context;
    use std::time::Duration;

    /// Loops looked each few milliseconds whether a state was another one. What replaces them must not miss the change: neither one that
    /// comes before the first look, nor one between a look and the next, nor the second of two that come together.
    #[test]
    fn no_change_is_missed() {
        let world = SimWorld::new(1);
        let env = world.node("a");
        world.block_on(async {
            let (state, changed): (Rc<Cell<u32>>, Rc<Signal>) = Default::default();
            state.set(1);
            changed.notify();
            changed.until(|| state.get() == 1).await;
            for wanted in [2, 3, 3, 4] {
                let (own, told, by) = (state.clone(), changed.clone(), env.clone());
                env.spawn(async move {
                    // Others have their turn between two notifications, or not.
                    for next in [own.get().max(wanted - 1), wanted] {
                        own.set(next);
                        told.notify();
                        if next != wanted {
                            by.yield_now().await;
                        }
                    }
                });
                changed.until(|| state.get() >= wanted).await;
                assert_eq!(state.get(), wanted);
            }
        });
        // A simulated world in which a wake-up is lost would have panicked: nothing could ever happen again.
        world.clear();
    }

    #[test]
    fn who_finds_it_not_so_waits_on_and_who_gives_up_is_forgotten() {
        let world = SimWorld::new(1);
        let env = world.node("a");
        world.block_on(async {
            let (state, changed): (Cell<u32>, Signal) = Default::default();
            let mut one = pin!(changed.until(|| state.get() == 1));
            let mut cx = Context::from_waker(Waker::noop());
            let count = || changed.waiting.borrow().wakers.len();
            for _ in 0..3 {
                assert!(one.as_mut().poll(&mut cx).is_pending());
                assert_eq!(count(), 1, "polled again, it is there once");
            }
            changed.notify();
            assert_eq!(count(), 0);
            assert!(one.as_mut().poll(&mut cx).is_pending());
            assert_eq!(count(), 1, "it was not so yet");
            let limit = Duration::from_millis(1);
            assert_eq!(env.timeout(limit, changed.until(|| state.get() == 2)).await, None);
            assert_eq!(count(), 1, "the other one gave up");
            let found = changed.until_some(|| (state.get() == 0).then_some("at once"));
            assert_eq!(env.timeout(limit, found).await, Some("at once"));
            state.set(1);
            changed.notify();
            assert!(one.as_mut().poll(&mut cx).is_ready());
            assert_eq!(count(), 0);
        });
        world.clear();
    }

    #[test]
    fn who_came_first_looks_first() {
        let world = SimWorld::new(1);
        let env = world.node("a");
        world.block_on(async {
            let (free, changed): (Rc<Cell<bool>>, Rc<Signal>) = Default::default();
            let order: Rc<RefCell<Vec<u32>>> = Rc::default();
            for number in 0..4 {
                let (free, changed, order) = (free.clone(), changed.clone(), order.clone());
                let own = env.clone();
                env.spawn(async move {
                    changed.until(|| free.replace(false)).await;
                    order.borrow_mut().push(number);
                    own.sleep(Duration::from_millis(1)).await;
                    free.set(true);
                    changed.notify();
                });
            }
            env.yield_now().await;
            free.set(true);
            changed.notify();
            env.sleep(Duration::from_secs(1)).await;
            let mut all = order.take();
            assert_eq!(all[0], 0);
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2, 3]);
        });
        world.clear();
    }
}
