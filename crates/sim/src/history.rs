//! What clients asked, what they were told, and in which order.
//!
//! Moments are numbers that count up with every event, so that "returned before it was invoked" has
//! no ties. A call without an answer (its time was up, or its connection was lost for good) is
//! *pending*: it may take effect at any time after it was invoked, or never.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A place in the order of all events of a run.
pub type Moment = u64;

/// Counts the events of a run. Clones are the same one.
#[derive(Clone, Default)]
pub struct Moments(Rc<Cell<Moment>>);

impl Moments {
    /// The moment of a new event.
    pub fn next(&self) -> Moment {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }

    /// The moment of the last event.
    pub fn last(&self) -> Moment {
        self.0.get()
    }
}

/// One call of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call<O, R> {
    /// Who called.
    pub client: u32,
    /// What was asked.
    pub op: O,
    /// When.
    pub invoked: Moment,
    /// When the answer came, and what it was; `None` for a pending call.
    pub returned: Option<(Moment, R)>,
}

/// Names a call of a [`History`].
#[derive(Clone, Copy, Debug)]
pub struct CallId(usize);

/// All calls of a run. Clones are the same one.
pub struct History<O, R> {
    moments: Moments,
    calls: Rc<RefCell<Vec<Call<O, R>>>>,
}

impl<O, R> Clone for History<O, R> {
    fn clone(&self) -> History<O, R> {
        History { moments: self.moments.clone(), calls: self.calls.clone() }
    }
}

impl<O: Clone, R: Clone> History<O, R> {
    /// An empty one; histories with the same moments can be compared.
    pub fn new(moments: Moments) -> History<O, R> {
        History { moments, calls: Rc::default() }
    }

    /// Notes that a client asks.
    pub fn invoke(&self, client: u32, op: O) -> CallId {
        let mut calls = self.calls.borrow_mut();
        calls.push(Call { client, op, invoked: self.moments.next(), returned: None });
        CallId(calls.len() - 1)
    }

    /// Notes the answer of a call.
    pub fn answer(&self, call: CallId, answer: R) {
        self.calls.borrow_mut()[call.0].returned = Some((self.moments.next(), answer));
    }

    /// Notes a call whose answer was learned in another way.
    pub fn note(&self, call: Call<O, R>) {
        self.calls.borrow_mut().push(call);
    }

    /// All calls so far, in the order they were noted.
    pub fn calls(&self) -> Vec<Call<O, R>> {
        self.calls.borrow().clone()
    }
}
