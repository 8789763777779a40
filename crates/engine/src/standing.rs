//! How an engine stands to the control service: who holds it as far as is known, and what came of asking for it.
//!
//! Invariant: whoever waits for another holder is told of each change.

use crate::office::Role;
use control::{Candidate, Service};
use env::Signal;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use types::{Error, Rank};

pub(crate) struct Standing {
    role: RefCell<Role>,
    changed: Signal,
    /// The engine's part in the election, where there is one.
    candidate: RefCell<Option<Candidate>>,
    /// It has given the control service up, because it hears too few, and nobody is known to have taken it since.
    has_given_up: Cell<bool>,
    /// Who holds it elsewhere, and since when that one has been asked and has not answered.
    asking: Cell<Option<(Rank, Duration)>>,
    /// Why the catalog cannot be looked at, if it is so.
    away: RefCell<Option<Error>>,
}

impl Standing {
    pub fn begin(role: Role, candidate: Option<Candidate>) -> Standing {
        Standing {
            role: RefCell::new(role),
            changed: Signal::default(),
            candidate: RefCell::new(candidate),
            has_given_up: Cell::new(false),
            asking: Cell::new(None),
            away: RefCell::new(None),
        }
    }

    pub fn role(&self) -> Role {
        self.role.borrow().clone()
    }

    pub fn set_role(&self, role: Role) {
        self.role.replace(role);
        self.changed.notify();
    }

    /// The control service, while the engine holds it.
    pub fn held(&self) -> Option<Rc<Service>> {
        match &*self.role.borrow() {
            Role::Holder(service) => Some(service.clone()),
            Role::Member(_) | Role::Follower(_) => None,
        }
    }

    /// Ends when the engine is in another role than such a one.
    pub async fn until_not(&self, is_such: impl Fn(&Role) -> bool) {
        self.changed.until(|| !is_such(&self.role.borrow())).await;
    }

    /// Lets others take the control service for so long; false where it cannot be elsewhere.
    pub fn give_up(&self, term: u64, time: Duration) -> bool {
        let candidate = self.candidate.borrow();
        let Some(candidate) = candidate.as_ref() else { return false };
        self.has_given_up.set(true);
        candidate.give_up(term, time);
        true
    }

    /// True where engines elect who holds the control service: the catalog is elsewhere, and may be silent.
    pub fn is_elected(&self) -> bool {
        self.candidate.borrow().is_some()
    }

    pub fn has_given_up(&self) -> bool {
        self.has_given_up.get()
    }

    /// Somebody has taken it, nobody can, or this engine hears enough.
    pub fn forget_giving_up(&self) {
        self.has_given_up.set(false);
    }

    /// The engine stands for election no more. Its part, until now.
    pub fn withdraw(&self) -> Option<Candidate> {
        self.candidate.take()
    }

    /// The holder is asked, until [`Standing::answered`].
    pub fn ask(&self, holder: Rank, now: Duration) {
        let asking = self.asking.get().filter(|(rank, _)| *rank == holder);
        self.asking.set(asking.or(Some((holder, now))));
    }

    /// Who was asked last and gave no answer, and since when; it is known from now on.
    pub fn answered(&self) -> Option<(Rank, Duration)> {
        self.asking.take()
    }

    /// The catalog cannot be looked at. True when it could before.
    pub fn note_away(&self, error: Error) -> bool {
        self.away.replace(Some(error)).is_none()
    }

    /// The catalog can be looked at. True when it could not before.
    pub fn note_back(&self) -> bool {
        self.away.take().is_some()
    }

    /// Why the catalog cannot be looked at.
    pub fn away(&self) -> Option<Error> {
        self.away.borrow().clone()
    }
}
