//! Times in which clients come and go: whoever wants a pool or a container for himself waits for both.
//!
//! Handles are in memory. A service that begins knows of none, and the clients that have some ask for theirs again as soon as they notice
//! (`client`'s `held` module). Those who have gone are noticed a moment later: `umount` is over before the process behind it has ended.
//!
//! Not proof against a client that is cut off for longer, or that stands still: it is as if it had gone.

use super::Service;
use super::handles::Owner;
use super::orders::Targets;
use std::cell::RefCell;
use std::time::Duration;
use types::map::HashSet;

/// How long clients may take: the engines that they ask look each two seconds whether the catalog is back, and they ask again after up to two; on a machine with
/// more to do five in all were too few once.
const GRACE_TIME: Duration = Duration::from_secs(10);

/// How long those who have it open may take to be gone.
const LEAVE_TIME: Duration = Duration::from_secs(2);

/// How often it is looked whether somebody has it open.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// More than are made in that time. Who is forgotten waits.
const MADE_MAX: usize = 4096;

/// What the service has made itself: nobody can have had that open before.
#[derive(Default)]
pub(super) struct Made(RefCell<HashSet<Owner>>);

impl Service {
    fn grace_end(&self) -> Option<Duration> {
        Some(self.grants.begun()? + GRACE_TIME)
    }

    /// Something is being made.
    pub(super) fn note_made(&self, owner: Owner) {
        let mut made = self.made.0.borrow_mut();
        if made.len() == MADE_MAX {
            made.clear();
        }
        made.insert(owner);
    }

    /// Ends when those who have it open would have said so, and those who are about to go have gone.
    pub(super) async fn until_alone(&self, owner: Owner, orders: &dyn Targets) {
        self.until_handles_are_back(owner, orders).await;
        let end = orders.now() + LEAVE_TIME;
        while self.handles.are_on(owner) && orders.now() < end {
            orders.until(end.min(orders.now() + LOOK_PAUSE)).await;
        }
    }

    async fn until_handles_are_back(&self, owner: Owner, orders: &dyn Targets) {
        let Some(end) = self.grace_end() else { return };
        let is_made_here = self.made.0.borrow().contains(&owner);
        while !is_made_here && !self.handles.are_on(owner) && orders.now() < end {
            orders.until(end.min(orders.now() + LOOK_PAUSE)).await;
        }
        if orders.now() >= end {
            self.made.0.take();
        }
    }
}
