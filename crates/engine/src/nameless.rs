//! Objects without a name (orphans) that a member has marked and its leader may have freed, or given a name, meanwhile.
//!
//! A leader that is asked for its notes tells of all it has, among the orders. What it does not tell of has a mark here no longer.
//!
//! Invariant: a mark goes only when the leader has answered. One dropped before was in nobody's hands when the leader died at that moment: the
//! object stayed for good, with no name.

use crate::target::{Target, TargetPool};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};
use types::{ContId, Result, Unit};
use vos::OrphanChange;

/// Objects marked here that a leader has not told of yet.
type Untold = RefCell<BTreeSet<(ContId, Unit)>>;

/// Questions for notes under way, each with what it has not heard of.
#[derive(Default)]
pub(crate) struct Nameless(RefCell<Vec<Weak<Untold>>>);

impl Nameless {
    /// Begins to listen for what is told of these.
    fn begin(&self, marked: BTreeSet<(ContId, Unit)>) -> Rc<Untold> {
        let untold = Rc::new(RefCell::new(marked));
        let mut under_way = self.0.borrow_mut();
        under_way.retain(|other| other.strong_count() > 0);
        under_way.push(Rc::downgrade(&untold));
        untold
    }

    /// A leader tells that these have no name.
    pub fn are_told(&self, cont: ContId, units: &[Unit]) {
        if units.is_empty() {
            return;
        }
        for untold in self.0.borrow().iter().filter_map(Weak::upgrade) {
            let mut untold = untold.borrow_mut();
            for unit in units {
                untold.remove(&(cont, *unit));
            }
        }
    }
}

impl Target {
    /// What is marked here of units that are meant, before their leader is asked for its notes.
    pub(crate) fn listen_for_nameless(
        &self,
        ctx: &TargetPool,
        is_meant: impl Fn(Unit) -> bool,
    ) -> Rc<Untold> {
        let marked = ctx.shard.orphans().into_iter().filter(|(_, unit)| is_meant(*unit));
        ctx.nameless.begin(marked.collect())
    }

    /// Drops the marks of what the leader did not tell of, once it has answered.
    pub(crate) fn drop_untold(&self, ctx: &TargetPool, untold: &Untold) -> Result<()> {
        for (cont, unit) in untold.take() {
            if ctx.shard.is_orphan(cont, unit) {
                let payload = self.stage(ctx, &[])?;
                let change = [OrphanChange::Remove(unit)];
                ctx.shard.apply(cont, ctx.shard.last_epoch(), &[], payload, None, &change)?;
            }
        }
        Ok(())
    }
}
