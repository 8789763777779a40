//! Callers that have not said who they are yet, limited.
//!
//! Invariants:
//! - Each listener has limits of its own: what happens over TCP does not concern the Unix socket.
//! - A new caller is read at once. Where there are too many, the one that has been silent longest
//!   goes: of the new one's own user or host, if that has its share already, else of the one that has
//!   most. So who opens connections and says nothing takes them from itself.
//! - Nobody stays silent beyond the deadline, which the listener sets.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::{Poll, Waker};
use types::map::HashMap;

/// Callers of one listener that are greeted at once. A caller needs a fraction of a millisecond, so
/// this many are a flood.
const COUNT_MAX: usize = 2048;
/// Of these, callers of one user or one host: a job may start a thousand processes at once.
const COUNT_MAX_PER_ORIGIN: usize = 1024;

/// Where a caller comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Origin {
    /// A user of this host.
    User(u32),
    Host(IpAddr),
    /// The kernel does not tell.
    Unknown,
}

/// The callers that one listener greets.
#[derive(Default)]
pub(crate) struct Greetings {
    /// By the order of their coming, with what wakes the task of one that has to go.
    callers: RefCell<BTreeMap<u64, (Origin, Option<Waker>)>>,
    count_by_origin: RefCell<HashMap<Origin, usize>>,
    number_last: Cell<u64>,
}

impl Greetings {
    /// Makes room for a caller, and a place for it.
    pub fn admit(self: &Rc<Self>, origin: Origin) -> Place {
        let own = self.count_by_origin.borrow().get(&origin).copied().unwrap_or(0);
        if own >= COUNT_MAX_PER_ORIGIN {
            self.dismiss_oldest_of(origin);
        } else if self.callers.borrow().len() >= COUNT_MAX {
            self.dismiss_one();
        }
        let number = self.number_last.get() + 1;
        self.number_last.set(number);
        self.callers.borrow_mut().insert(number, (origin, None));
        *self.count_by_origin.borrow_mut().entry(origin).or_insert(0) += 1;
        Place { greetings: self.clone(), number }
    }

    /// Dismisses the one that has been silent longest, of those who come from where most come from.
    pub fn dismiss_one(&self) {
        let counts = self.count_by_origin.borrow();
        let most = counts.iter().max_by_key(|(_, count)| **count).map(|(origin, _)| *origin);
        drop(counts);
        if let Some(origin) = most {
            self.dismiss_oldest_of(origin);
        }
    }

    fn dismiss_oldest_of(&self, origin: Origin) {
        let callers = self.callers.borrow();
        let oldest = callers.iter().find(|(_, (of, _))| *of == origin).map(|(number, _)| *number);
        drop(callers);
        if let Some(waker) = oldest.and_then(|number| self.remove(number)) {
            waker.wake();
        }
    }

    /// Takes a caller out; what wakes its task.
    fn remove(&self, number: u64) -> Option<Waker> {
        let (origin, waker) = self.callers.borrow_mut().remove(&number)?;
        let mut counts = self.count_by_origin.borrow_mut();
        if let Some(count) = counts.get_mut(&origin) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&origin);
            }
        }
        waker
    }
}

/// A caller among those that are greeted; it leaves when this is dropped.
pub(crate) struct Place {
    greetings: Rc<Greetings>,
    number: u64,
}

impl Place {
    /// Waits until the caller has to go.
    pub async fn dismissed(&self) {
        std::future::poll_fn(|cx| {
            match self.greetings.callers.borrow_mut().get_mut(&self.number) {
                Some((_, waker)) => {
                    *waker = Some(cx.waker().clone());
                    Poll::Pending
                }
                None => Poll::Ready(()),
            }
        })
        .await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.greetings.remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn host(number: u8) -> Origin {
        Origin::Host([10, 0, 0, number].into())
    }

    /// 256 callers that said nothing once kept everybody else out, local programs too.
    #[test]
    fn who_floods_loses_its_own_oldest_and_nobody_elses() {
        let greetings = Rc::<Greetings>::default();
        let good = greetings.admit(host(1));
        let flood: Vec<Place> = (0..2000).map(|_| greetings.admit(host(2))).collect();
        let waits = |place: &Place| place.dismissed().now_or_never().is_none();
        assert!(waits(&good));
        let kept = flood.iter().filter(|place| waits(place)).count();
        assert_eq!(kept, COUNT_MAX_PER_ORIGIN);
        assert!(flood[2000 - kept..].iter().all(waits), "the newest stay");
        // From many hosts: each loses, but the one that has one only.
        let more: Vec<Place> =
            (0..2000).map(|at| greetings.admit(host(3 + at as u8 % 4))).collect();
        assert!(waits(&good));
        let all = flood.iter().chain(&more);
        assert_eq!(all.filter(|place| waits(place)).count(), COUNT_MAX - 1);
        drop((flood, more, good));
        assert!(greetings.callers.borrow().is_empty());
        assert!(greetings.count_by_origin.borrow().is_empty());
    }

    #[test]
    fn who_waits_to_be_dismissed_is_told() {
        let greetings = Rc::<Greetings>::default();
        let place = greetings.admit(Origin::User(5));
        let told = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        struct Told(std::sync::Arc<std::sync::atomic::AtomicBool>);
        impl std::task::Wake for Told {
            fn wake(self: std::sync::Arc<Self>) {
                self.0.store(true, std::sync::atomic::Ordering::SeqCst);
            }
        }
        let waker = Waker::from(std::sync::Arc::new(Told(told.clone())));
        let mut cx = std::task::Context::from_waker(&waker);
        let mut waiting = std::pin::pin!(place.dismissed());
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
        greetings.dismiss_one();
        assert!(told.load(std::sync::atomic::Ordering::SeqCst));
        assert!(waiting.poll(&mut cx).is_ready());
    }
}
