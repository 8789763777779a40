//! Event queues: operations that run while the caller does other things.
//!
//! An operation is any future of this client. It makes progress whenever its thread polls the
//! queue (or waits for anything else on the same client); there is no helper thread.

use crate::client::Client;
use futures_util::future::{AbortHandle, Abortable};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::rc::{Rc, Weak};
use std::time::Duration;
use types::{Code, Error, Result};

/// A queue of operations whose results are of type `T`.
pub struct EventQueue<T: 'static> {
    client: Client,
    shared: Rc<Shared<T>>,
}

struct Shared<T> {
    done: RefCell<VecDeque<(u64, Result<T>)>>,
    in_flight: Cell<usize>,
    next: Cell<u64>,
}

/// Names a launched operation.
#[derive(Clone)]
pub struct Event {
    id: u64,
    abort: AbortHandle,
}

impl Event {
    /// Its number in the queue, as polling returns it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Cancels the operation if it still runs; it then completes with `Canceled`. What it had
    /// already asked of targets may or may not take effect.
    pub fn abort(&self) {
        self.abort.abort();
    }
}

impl<T: 'static> EventQueue<T> {
    pub fn new(client: &Client) -> EventQueue<T> {
        let shared = Shared {
            done: RefCell::new(VecDeque::new()),
            in_flight: Cell::new(0),
            next: Cell::new(1),
        };
        EventQueue { client: client.clone(), shared: Rc::new(shared) }
    }

    /// Starts an operation; its result stays in the queue until it is polled.
    pub fn launch(&self, operation: impl Future<Output = Result<T>> + 'static) -> Event {
        let id = self.shared.next.get();
        self.shared.next.set(id + 1);
        self.shared.in_flight.set(self.shared.in_flight.get() + 1);
        let (abort, registration) = AbortHandle::new_pair();
        let operation = Abortable::new(operation, registration);
        let shared: Weak<Shared<T>> = Rc::downgrade(&self.shared);
        self.client.env().spawn(async move {
            let outcome = match operation.await {
                Ok(outcome) => outcome,
                Err(_) => Err(Error::new(Code::Canceled, "the operation was aborted")),
            };
            if let Some(shared) = shared.upgrade() {
                shared.in_flight.set(shared.in_flight.get() - 1);
                shared.done.borrow_mut().push_back((id, outcome));
            }
        });
        Event { id, abort }
    }

    /// Operations still running, and operations done but not yet polled.
    pub fn query(&self) -> (usize, usize) {
        (self.shared.in_flight.get(), self.shared.done.borrow().len())
    }

    /// Takes up to `count_max` results, waiting at most `wait` (`None`: as long as it takes) for
    /// the first. Empty when nothing is running or the time is over.
    pub fn poll(&self, count_max: usize, wait: Option<Duration>) -> Vec<(u64, Result<T>)> {
        let env = self.client.env();
        let deadline = wait.map(|wait| env.now() + wait);
        // One round without waiting, so that polling alone moves operations on.
        env.turn(Some(Duration::ZERO));
        loop {
            let mut done = self.shared.done.borrow_mut();
            if !done.is_empty() || self.shared.in_flight.get() == 0 {
                let count = done.len().min(count_max);
                return done.drain(..count).collect();
            }
            drop(done);
            let left = deadline.map(|deadline| deadline.saturating_sub(env.now()));
            if left == Some(Duration::ZERO) {
                return Vec::new();
            }
            env.turn(left);
        }
    }
}
