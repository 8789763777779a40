//! What the first units of arrays hold that were made beside a dkey of an object that spreads ([`crate::spread`]): few dkeys with much
//! beside them are as good a reason to spread as many dkeys.
//!
//! Who makes a file names the directory's unit and the file's in one batch, if both are here. That is remembered while the file is open;
//! when it is closed, what it holds is added to what the directory has got. This is a hint, in memory only: files are removed, cut, opened
//! again. Where it comes to enough, what the directory's links lead to is added up ([`Target::holds_much`]), and only that decides.

use crate::opens::Handle;
use crate::target::{Target, TargetPool};
use std::cell::RefCell;
use std::rc::Rc;
use types::map::HashMap;
use types::{ContId, Result, Unit, hash};
use wire::obj::{ListScope, Listed, Op};
use wire::spread::LINK;

/// With so many bytes for each group beside its dkeys an object spreads.
const BYTES_PER_GROUP: u64 = 512 << 10;
/// Objects for which bytes are counted; a small direct-mapped table. One that is counted no more spreads later.
const COUNTED: usize = 1024;
/// Dkeys looked at in one step.
const DKEYS_AT_ONCE: u32 = 256;

/// What has got how much.
#[derive(Default)]
pub(crate) struct FirstParts {
    /// Arrays that are open since they were made, and beside what.
    made: RefCell<HashMap<Handle, Unit>>,
    counts: RefCell<Vec<Option<Count>>>,
}

struct Count {
    of: Handle,
    bytes: u64,
    bytes_max: u64,
}

impl FirstParts {
    /// Adds to what something has got. True when that may be enough to spread it; `bytes_max` tells what is enough.
    fn add(&self, of: Handle, bytes: u64, bytes_max: impl FnOnce() -> Option<u64>) -> bool {
        let mut counts = self.counts.borrow_mut();
        counts.resize_with(COUNTED, || None);
        let slot = &mut counts[slot_of(of)];
        if slot.as_ref().is_none_or(|count| count.of != of) {
            let Some(bytes_max) = bytes_max() else { return false };
            *slot = Some(Count { of, bytes: 0, bytes_max });
        }
        let Some(count) = slot else { return false };
        count.bytes = count.bytes.saturating_add(bytes);
        count.bytes >= count.bytes_max
    }

    /// It has been added up.
    fn set(&self, of: Handle, bytes: u64) {
        let mut counts = self.counts.borrow_mut();
        if let Some(Some(count)) = counts.get_mut(slot_of(of))
            && count.of == of
        {
            count.bytes = bytes;
        }
    }
}

fn slot_of((cont, unit): Handle) -> usize {
    hash::mix2(unit.list_order().0, cont.0) as usize % COUNTED
}

impl Target {
    /// A batch has taken effect that registers these handles: remembers what was made beside a dkey that may move.
    pub(crate) fn note_made(
        &self,
        ctx: &TargetPool,
        cont: ContId,
        ops: &[Op<'_>],
        opens: &[Handle],
    ) {
        let Some(Op::Update { unit, .. }) = ops.first() else { return };
        if opens.is_empty() || unit.group > 0 || !unit.object.spreads() {
            return;
        }
        if ctx.shard.view(cont).is_ok_and(|view| view.spread(*unit).is_none()) {
            let made = opens.iter().map(|made| (*made, *unit));
            ctx.first_parts.made.borrow_mut().extend(made);
        }
    }

    /// Nobody holds an object open any more.
    pub(crate) fn closed(self: &Rc<Self>, ctx: &Rc<TargetPool>, handle: Handle) {
        self.count_first_part(ctx, handle);
        self.reap_if_orphan(ctx, handle);
    }

    fn count_first_part(self: &Rc<Self>, ctx: &Rc<TargetPool>, (cont, unit): Handle) {
        let Some(beside) = ctx.first_parts.made.borrow_mut().remove(&(cont, unit)) else { return };
        if !ctx.shard.is_resident(cont, &[], &[Op::Stat { unit }]) {
            return;
        }
        let Ok(view) = ctx.shard.view(cont) else { return };
        let bytes = view.tail(unit).map_or(0, |tail| tail.bytes_used);
        drop(view);
        let bytes_max = || {
            let layout = placement::layout(beside.object, &*ctx.map().ok()?).ok()?;
            Some(layout.group_count() as u64 * BYTES_PER_GROUP)
        };
        if bytes > 0 && ctx.first_parts.add((cont, beside), bytes, bytes_max) {
            self.spread_noting(ctx.shard.pool(), ctx, [(cont, beside)]);
        }
    }

    /// True when what the links of an object's dkeys lead to here is enough to spread it over so many groups.
    pub(crate) async fn holds_much(
        &self,
        ctx: &TargetPool,
        cont: ContId,
        unit: Unit,
        group_count: usize,
    ) -> Result<bool> {
        let (mut bytes, mut anchor) = (0u64, Vec::new());
        loop {
            let hash_range = (0, u64::MAX);
            let scope = ListScope::Dkeys { value_of: Some(LINK), follow: true, hash_range };
            let list = |anchor| {
                let (count_max, bytes_max) = (DKEYS_AT_ONCE, u32::MAX);
                [Op::List { unit, scope, anchor, count_max, bytes_max }]
            };
            ctx.shard.ready(cont, &[], &list(&anchor)).await?;
            let found = {
                let view = ctx.shard.view(cont)?;
                view.list(unit, scope, &anchor, DKEYS_AT_ONCE, u32::MAX)?
            };
            for item in found.items() {
                if let Listed::Entry { tail: Some(tail), .. } = item {
                    bytes = bytes.saturating_add(tail.bytes_used);
                }
            }
            anchor.clone_from(&found.anchor);
            if anchor.is_empty() {
                break;
            }
        }
        ctx.first_parts.set((cont, unit), bytes);
        Ok(bytes >= group_count as u64 * BYTES_PER_GROUP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Oid;

    #[test]
    fn bytes_are_counted_by_object_until_they_are_enough() {
        let parts = FirstParts::default();
        let of = |lo| (ContId(1), Oid { hi: 1, lo }.first_unit());
        let max = || Some(100);
        assert!(!parts.add(of(1), 60, max));
        assert!(parts.add(of(1), 40, || panic!("that is known")));
        parts.set(of(1), 30);
        assert!(!parts.add(of(1), 69, max));
        assert!(parts.add(of(1), 1, max));
        // What shares its place begins anew, and so does it afterwards.
        let other = (2..).map(of).find(|other| slot_of(*other) == slot_of(of(1))).unwrap();
        assert!(!parts.add(other, 99, || None));
        assert!(parts.add(of(1), 1, || panic!("that is known")));
        assert!(!parts.add(other, 99, max));
        parts.set(of(1), 100);
        assert!(!parts.add(of(1), 99, max));
    }
}
