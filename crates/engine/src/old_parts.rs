//! Parts of transactions from before leaders changed that were committed afterwards.
//!
//! Members compare units by the epoch of what is newest ([`crate::catch_up`], [`crate::alike`]): who has that has all that its leader had then, as changes wait until what lost leaders
//! left is settled ([`crate::takeover`]). Decisions of parts that are prepared do not wait. Each member carries them out at the same epoch, over whatever it has: a change that a lost leader had ordered here alone
//! is beneath, and the unit as new as there.
//!
//! Invariant: a unit in which such a part was committed is noted here until all who have a part of the pool are whole. The log says from which epoch on there may be such units
//! ([`vos::PoolShard::lacks_since`]), before the decision: who is opened again takes all that is newer for different.

use crate::target::{Target, TargetPool};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use types::{ContId, Epoch, Result, TargetId, Unit};
use wire::map::PoolMap;
use wire::obj::TxId;

/// Such parts of a pool, and what they changed.
#[derive(Default)]
pub(crate) struct OldParts {
    /// Not decided when leaders may have changed last.
    parts: RefCell<BTreeSet<TxId>>,
    /// What those changed that were committed since, with the first epoch.
    changed: RefCell<BTreeMap<(ContId, Unit), Epoch>>,
}

impl OldParts {
    /// Leaders may have changed: all parts that are held are of before.
    pub fn begin(&self, ctx: &TargetPool) {
        self.parts.replace(ctx.shard.prepared().into_iter().map(|(tx, _)| tx).collect());
    }

    /// A part is about to be committed.
    ///
    /// Errors: those of writing it down.
    pub fn note_commit(&self, ctx: &TargetPool, tx: TxId, epoch: Epoch) -> Result<()> {
        let is_old = self.parts.borrow_mut().remove(&tx);
        if !is_old && ctx.suspects.is_empty() {
            return Ok(());
        }
        let Some((cont, part)) = ctx.shard.prepared_batch(tx) else { return Ok(()) };
        let mut changed = self.changed.borrow_mut();
        let mut has_any = false;
        vos::changed_places(&part.batch().ops, &mut |unit, _| {
            if is_old || ctx.suspects.has_any_of(cont, unit) {
                let since = changed.entry((cont, unit)).or_insert(epoch);
                *since = epoch.min(*since);
                has_any = true;
            }
        });
        match has_any {
            true => ctx.shard.begin_lacking(epoch),
            false => Ok(()),
        }
    }

    /// Since when what is in a unit may lie over what others do not have.
    pub fn since(&self, cont: ContId, unit: Unit) -> Option<Epoch> {
        self.changed.borrow().get(&(cont, unit)).copied()
    }
}

impl Target {
    /// True when nobody may come to compare itself with this target, or to lead after it, that has something else beneath what is newest here.
    pub(crate) fn are_old_parts_settled(&self, ctx: &TargetPool, map: &PoolMap) -> bool {
        if ctx.old_parts.changed.borrow().is_empty() && !ctx.joining.is_doubtful() {
            return true;
        }
        let is_out = |target: TargetId| map.outs.iter().any(|out| out.target == target);
        let mut parts = map.targets.iter().filter(|info| info.holds_its_part());
        let are_all_back = parts.all(|info| placement::is_live(info.id, map) || is_out(info.id));
        let are_settled = are_all_back && ctx.suspects.is_empty();
        if are_settled {
            ctx.old_parts.changed.borrow_mut().clear();
        }
        are_settled
    }
}
