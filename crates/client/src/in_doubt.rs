//! How many updates are in doubt at once, in the lane of the target that they were sent to first.
//!
//! A target keeps its answers to the last [`UNANSWERED_MAX`] updates of a lane, by the client's own
//! count, and gives them again to who asks again. So an update is begun only when fewer than that
//! have been begun since the oldest that has no answer yet; else that one, sent again after
//! a lost answer, might be applied twice. How many have been begun since then each update says
//! ([`wire::request_id`]): answers to earlier ones are kept no more. It stays in doubt wherever it is sent.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};
use wire::request_id::UNANSWERED_MAX;

/// Updates of a lane, from the oldest in doubt on.
pub(crate) struct Window {
    /// So many at most.
    most: usize,
    /// One for each request begun since the oldest in doubt: whether it still is.
    doubts: RefCell<VecDeque<bool>>,
    /// Number of the first of them.
    first: Cell<u64>,
    /// Who waits to begin, and whether they still do.
    waiting: RefCell<VecDeque<(Weak<Cell<bool>>, Waker)>>,
}

/// A request in doubt, until it is dropped.
pub(crate) struct Doubt {
    window: Rc<Window>,
    number: u64,
    begun: usize,
}

impl Doubt {
    /// How many had been begun since the oldest in doubt when this one was, itself included.
    pub fn begun(&self) -> usize {
        self.begun
    }
}

/// Who waits to begin.
struct Waiter<'a> {
    window: &'a Window,
    /// It stands in the queue.
    queued: Rc<Cell<bool>>,
    is_over: bool,
}

impl Window {
    /// An empty one for so many at most; for [`UNANSWERED_MAX`], if that is less.
    pub fn new(most: usize) -> Window {
        let most = most.clamp(1, UNANSWERED_MAX);
        Window {
            most,
            doubts: RefCell::default(),
            first: Cell::default(),
            waiting: RefCell::default(),
        }
    }

    /// Begins a request, as soon as it may.
    pub async fn begin(self: &Rc<Self>) -> Doubt {
        if let Some(doubt) = self.try_begin() {
            return doubt;
        }
        let mut waiter = Waiter { window: self, queued: Rc::default(), is_over: false };
        poll_fn(|cx| {
            if let Some(doubt) = self.try_begin() {
                waiter.is_over = true;
                return Poll::Ready(doubt);
            }
            if !waiter.queued.replace(true) {
                let entry = (Rc::downgrade(&waiter.queued), cx.waker().clone());
                self.waiting.borrow_mut().push_back(entry);
            }
            Poll::Pending
        })
        .await
    }

    fn try_begin(self: &Rc<Self>) -> Option<Doubt> {
        let mut doubts = self.doubts.borrow_mut();
        if doubts.len() >= self.most {
            return None;
        }
        doubts.push_back(true);
        let begun = doubts.len();
        let number = self.first.get() + begun as u64 - 1;
        Some(Doubt { window: self.clone(), number, begun })
    }

    fn end(&self, number: u64) {
        let mut doubts = self.doubts.borrow_mut();
        doubts[(number - self.first.get()) as usize] = false;
        let over = doubts.iter().take_while(|in_doubt| !**in_doubt).count();
        doubts.drain(..over);
        self.first.set(self.first.get() + over as u64);
        drop(doubts);
        self.wake(over);
    }

    fn wake(&self, count: usize) {
        for _ in 0..count {
            let next = loop {
                let Some((queued, waker)) = self.waiting.borrow_mut().pop_front() else { return };
                if let Some(queued) = queued.upgrade() {
                    queued.set(false);
                    break waker;
                }
            };
            next.wake();
        }
    }
}

impl Drop for Doubt {
    fn drop(&mut self) {
        self.window.end(self.number);
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        // It may have been woken for a place that it does not take.
        if !self.is_over && !self.queued.get() {
            self.window.wake(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::Context;

    #[test]
    fn nobody_begins_too_far_beyond_the_oldest_in_doubt() {
        let window = Rc::new(Window::new(UNANSWERED_MAX));
        let mut cx = Context::from_waker(Waker::noop());
        let mut begin = || match pin!(window.begin()).poll(&mut cx) {
            Poll::Ready(doubt) => Some(doubt),
            Poll::Pending => None,
        };
        let oldest = begin().unwrap();
        for _ in 1..UNANSWERED_MAX {
            drop(begin().unwrap());
        }
        assert!(begin().is_none(), "the answer of the oldest would be gone");
        drop(oldest);
        assert!(window.doubts.borrow().is_empty());
        let all: Vec<_> = (0..UNANSWERED_MAX).map(|_| begin().unwrap()).collect();
        let begun: Vec<usize> = all.iter().map(Doubt::begun).collect();
        assert!(begun.iter().copied().eq(1..=UNANSWERED_MAX));
        assert!(begin().is_none());
        drop(all);
        assert!(begin().is_some());
    }

    /// Who gives up waiting takes no place with it, woken or not.
    #[test]
    fn places_go_to_those_who_still_wait() {
        let window = Rc::new(Window::new(UNANSWERED_MAX));
        let env = env::Env::real().unwrap();
        env.block_on(async {
            let mut held: VecDeque<_> = VecDeque::new();
            for _ in 0..UNANSWERED_MAX {
                held.push_back(window.begin().await);
            }
            let mut cx = Context::from_waker(Waker::noop());
            let mut gone = Box::pin(window.begin());
            assert!(gone.as_mut().poll(&mut cx).is_pending());
            let mut woken = Box::pin(window.begin());
            assert!(woken.as_mut().poll(&mut cx).is_pending());
            let stays = async {
                drop(window.begin().await);
            };
            let trouble = async {
                drop(gone);
                held.pop_front();
                drop(woken);
            };
            futures_util::future::join(stays, trouble).await;
        });
    }
}
