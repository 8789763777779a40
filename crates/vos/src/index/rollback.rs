//! Rolling an object back: its head becomes what a snapshot sees.
//!
//! What came after the snapshot is removed at the epoch of the rollback and kept for the snapshots
//! that see it; what was there comes back as new values of that epoch that share the blocks of
//! the old ones. Values that have not changed since stay as they are. The walk goes dkey by dkey,
//! and what it does depends on the state only, so a slice of it can be a log record.

use types::{ContId, Epoch, Key, Unit};

use super::at::ObjectAt;
use super::bucket::Scope;
use super::extent::Place;
use super::object::{Object, Position};
use super::past::Order;
use super::slot::{AkeyRef, DkeyRef, NewValue, Single};
use super::{Container, Effects, Index};
use crate::blocks::Run;
use crate::space::BlockChange;

/// What one slice of a rollback came to.
pub(crate) struct Step {
    pub is_change: bool,
    /// The last dkey looked at; `None` at the end.
    pub next: Option<Vec<u8>>,
}

/// A value to be set, owned.
enum Owned {
    Single(Single<Box<[u8]>>),
    Records { record_bytes: u32, index: u64, count: u64, place: Place },
}

/// What is to be done to one dkey.
#[derive(Default)]
struct Plan {
    /// Akeys that go away.
    akeys: Vec<Key>,
    /// Records that go away.
    ranges: Vec<(Key, u64, u64)>,
    /// Values that come back.
    values: Vec<(Key, Owned)>,
}

impl Index {
    /// Rolls up to `count` dkeys of an object after `after` back to the snapshot `to`, at `epoch`.
    pub(crate) fn roll_back(
        &mut self,
        cont: ContId,
        unit: Unit,
        (to, epoch): (Epoch, Epoch),
        after: Option<&[u8]>,
        count: usize,
        effects: &mut Effects,
    ) -> Step {
        let done = Step { is_change: false, next: None };
        let Some(container) = self.conts.get(&cont) else { return done };
        let Some(object) = container.whole(unit) else { return done };
        let old = container.object_at(unit, to);
        let names = next_names(object, old, after, count);
        let Some(last) = names.last().cloned() else { return done };
        let next = (names.len() >= count).then_some(last);
        // What an earlier life of the object held is not in its head, changed or not.
        let in_head = old.is_some_and(|old| old.is_life(object));
        let mut plans: Vec<(Vec<u8>, Plan)> = Vec::new();
        for dkey in names {
            let then = old.and_then(|old| old.dkey(&dkey));
            let plan = plan(object.dkey(&dkey), then, to, in_head);
            if !plan.is_empty() {
                plans.push((dkey, plan));
            }
        }
        if plans.is_empty() {
            return Step { is_change: false, next };
        }
        let Some(container) = self.conts.get_mut(&cont) else { return done };
        effects.versions = container.versions.any();
        // What comes back may lie in the data area.
        effects.places_blocks = true;
        effects.is_record = false;
        let names: Vec<Vec<u8>> = plans.iter().map(|(dkey, _)| dkey.clone()).collect();
        let (ledger, scope) = (&mut self.ledger, Scope::Dkeys(&names));
        let delta =
            container.change(unit, scope, true, Some(epoch), ledger, effects, |o, effects| {
                for (dkey, plan) in plans {
                    o.carry_out(&dkey, plan, epoch, effects);
                }
            });
        self.count(&delta);
        Step { is_change: true, next }
    }
}

/// Goes the way that a slice of a rollback will go.
pub(crate) fn touch(
    container: &Container,
    unit: Unit,
    to: Epoch,
    after: Option<&[u8]>,
    count: usize,
) {
    container.touch_home(unit);
    let Some(object) = container.whole(unit) else { return };
    let old = container.object_at(unit, to);
    for dkey in next_names(object, old, after, count) {
        object.dkey(&dkey);
        old.and_then(|old| old.dkey(&dkey));
    }
}

/// The next dkeys after a position, of the head and of the snapshot together, in order.
fn next_names(
    object: &Object,
    old: Option<ObjectAt<'_>>,
    after: Option<&[u8]>,
    count: usize,
) -> Vec<Vec<u8>> {
    let position = after.map_or(Position::Start, Position::After);
    let all = (0, u64::MAX);
    let head = object.dkeys_after(position, all).take(count);
    let then = old.into_iter().flat_map(|old| old.dkeys_after(position, all).take(count));
    let mut names: Vec<(Order, Vec<u8>)> = head
        .chain(then)
        .map(|(name, _)| {
            let name = name.with_bytes(<[u8]>::to_vec);
            (object.order_key(&name), name)
        })
        .collect();
    names.sort();
    names.dedup();
    names.truncate(count);
    names.into_iter().map(|(_, name)| name).collect()
}

/// What turns a dkey into what it was then.
fn plan(now: Option<DkeyRef<'_>>, then: Option<DkeyRef<'_>>, to: Epoch, in_head: bool) -> Plan {
    let mut plan = Plan::default();
    if now.is_some_and(|now| now.epoch() <= to) {
        return plan;
    }
    let size = |value: Option<AkeyRef<'_>>| value.and_then(|v| v.array()).map(|a| a.record_bytes());
    for (akey, value) in now.into_iter().flat_map(|now| now.akeys()) {
        let was = then.and_then(|then| then.akey(akey));
        if value.epoch() <= to {
            continue;
        }
        match value.array() {
            _ if was.is_none() => plan.akeys.push(Key::new(akey)),
            Some(array) if size(was) == Some(array.record_bytes()) => {
                let newer = array.from(0).filter(|shown| shown.epoch > to);
                plan.ranges.extend(newer.map(|shown| (Key::new(akey), shown.index, shown.count)));
            }
            // Setting the first value replaces it.
            _ => {}
        }
    }
    for (akey, was) in then.into_iter().flat_map(|then| then.akeys()) {
        if now.and_then(|now| now.akey(akey)).is_some_and(|value| value.epoch() <= to) {
            continue;
        }
        let mut add = |value: Owned| plan.values.push((Key::new(akey), value));
        match was {
            AkeyRef::Inline(_, bytes) => add(Owned::Single(Single::Inline(bytes.into()))),
            AkeyRef::Runs(_, runs) => add(Owned::Single(Single::Runs(runs.into()))),
            AkeyRef::Array(_) | AkeyRef::Old(_) => {
                let extents = was.array().into_iter().flat_map(|array| array.from(0));
                for shown in extents.filter(|shown| shown.is_past || !in_head) {
                    let (record_bytes, index, count) =
                        (shown.record_bytes, shown.index, shown.count);
                    let place = shown.place.clone();
                    add(Owned::Records { record_bytes, index, count, place });
                }
            }
        }
    }
    plan
}

impl Plan {
    fn is_empty(&self) -> bool {
        self.akeys.is_empty() && self.ranges.is_empty() && self.values.is_empty()
    }
}

impl Object {
    fn carry_out(&mut self, dkey: &[u8], plan: Plan, epoch: Epoch, effects: &mut Effects) {
        for akey in &plan.akeys {
            self.punch_akey(dkey, akey, epoch, effects);
        }
        for (akey, index, count) in &plan.ranges {
            self.punch_records(dkey, akey, *index, *count, epoch, effects);
        }
        for (akey, value) in plan.values {
            match value {
                Owned::Single(Single::Inline(bytes)) => {
                    let value = NewValue::Single(Single::Inline(&bytes));
                    self.set(dkey, &akey, value, epoch, effects);
                }
                Owned::Single(Single::Runs(runs)) => {
                    runs.iter().for_each(|run| share(*run, effects));
                    let value = NewValue::Single(Single::Runs(runs));
                    self.set(dkey, &akey, value, epoch, effects);
                }
                Owned::Records { record_bytes, index, count, place } => {
                    if let Place::Blocks(at) = place {
                        share(Run { at, bytes: count * record_bytes as u64 }, effects);
                    }
                    let value = NewValue::Records { record_bytes, index, count, place };
                    self.set(dkey, &akey, value, epoch, effects);
                }
            }
        }
    }
}

/// One more value touches these blocks.
fn share(run: Run, effects: &mut Effects) {
    let (first, end) = (run.first_block(), run.end_block());
    if first < end {
        effects.blocks.push(BlockChange::RefRun { first, count: end - first });
    }
}
