//! Of which groups other targets may know what clients have open and locked.
//!
//! Open handles and locks are in the memory of who leads a group. After a change of the map that may have brought groups here,
//! nobody knows for a while what there was: clients register again what they have, and until then whatever is removed stays,
//! and nobody gets a lock that he had not. A target that led a group before the change, too, has known all along, and waits for nobody.
//!
//! Invariants:
//! - A change is forgotten no sooner than [`RETURN_TIME_MAX`] after it; of changes that are too many to be told apart the older
//!   ones count for all groups.

use crate::group::leader_by;
use crate::openers::RETURN_TIME_MAX;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use types::{TargetId, Unit};
use wire::map::PoolMap;

/// More changes in half a minute are not told apart. Each keeps a map in memory.
const CHANGES_MAX: usize = 8;

/// A change of the map.
struct Change {
    /// The target's clock.
    at: Duration,
    /// The map before it, whose leaders led until it; `None` when others may have led any group.
    before: Option<Rc<PoolMap>>,
}

/// The changes of a pool's map that may have brought groups to a target.
#[derive(Default)]
pub(crate) struct Inherited {
    /// The oldest first.
    changes: RefCell<VecDeque<Change>>,
}

impl Inherited {
    /// Groups that this target did not lead by the map `before` may have come here; any group, without one.
    pub fn note(&self, now: Duration, before: Option<Rc<PoolMap>>) {
        let mut changes = self.changes.borrow_mut();
        while changes.front().is_some_and(|oldest| oldest.at + RETURN_TIME_MAX <= now) {
            changes.pop_front();
        }
        changes.push_back(Change { at: now, before });
        if changes.len() > CHANGES_MAX {
            changes.pop_front();
            if let Some(oldest) = changes.front_mut() {
                oldest.before = None;
            }
        }
    }

    /// How long it is since a unit's group may have come to `target`, if that has happened within a time.
    pub fn since(
        &self,
        target: TargetId,
        unit: Unit,
        now: Duration,
        within: Duration,
    ) -> Option<Duration> {
        // What the map before knows nothing of was made since.
        let led = |before: &PoolMap| {
            !placement::knows_epoch(unit.object, before) || leader_by(unit, before) == Some(target)
        };
        let changes = self.changes.borrow();
        let newest = changes
            .iter()
            .rev()
            .take_while(|change| now < change.at + within)
            .find(|change| !change.before.as_deref().is_some_and(led))?;
        Some(now - newest.at)
    }
}
