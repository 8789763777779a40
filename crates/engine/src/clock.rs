//! The clock that gives the epochs of a pool's part on a target.

use std::cell::RefCell;
use types::{Epoch, Hlc};

/// A hybrid logical clock. Invariant: it never gives an epoch that it has given or observed.
#[derive(Default)]
pub(crate) struct Clock(RefCell<Hlc>);

impl Clock {
    /// One that begins behind what is stored.
    pub fn after(epoch: Epoch) -> Clock {
        let clock = Clock::default();
        clock.observe(epoch);
        clock
    }

    /// A new epoch, at this time of the wall.
    pub fn tick(&self, wall_ns: u64) -> Epoch {
        self.0.borrow_mut().tick(wall_ns)
    }

    /// Somebody else gave this one: what is given from now on is behind it.
    pub fn observe(&self, epoch: Epoch) {
        self.0.borrow_mut().observe(epoch);
    }

    /// The newest that was given or observed.
    pub fn last(&self) -> Epoch {
        self.0.borrow().last()
    }
}
