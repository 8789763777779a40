//! Objects that are unlinked and still open, or may be: they are freed when the last handle goes.

use crate::shard::PoolShard;
use std::ops::Bound;
use types::{ContId, Unit};

impl PoolShard {
    /// True when the object is to be freed as soon as nobody holds it open.
    pub fn is_orphan(&self, cont: ContId, unit: Unit) -> bool {
        self.state.borrow().orphans.contains(&(cont, unit))
    }

    /// Objects unlinked while open, to be punched.
    pub fn orphans(&self) -> Vec<(ContId, Unit)> {
        self.state.borrow().orphans.iter().copied().collect()
    }

    /// The first `max` of those of a container after `after` that `is_meant`, ascending.
    pub fn orphans_after(
        &self,
        cont: ContId,
        after: Option<Unit>,
        max: usize,
        is_meant: impl Fn(&Unit) -> bool,
    ) -> Vec<Unit> {
        let state = self.state.borrow();
        let from = match after {
            Some(unit) => Bound::Excluded((cont, unit)),
            None => Bound::Included((cont, Unit::NIL)),
        };
        let rest = state.orphans.range((from, Bound::Unbounded));
        let of_cont = rest.take_while(|(of, _)| *of == cont).map(|(_, unit)| *unit);
        of_cont.filter(is_meant).take(max).collect()
    }

    /// How many objects are unlinked and still open, or may be.
    pub fn orphan_count(&self) -> usize {
        self.state.borrow().orphans.len()
    }
}
