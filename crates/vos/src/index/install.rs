//! A dkey becoming what it is at another member of its group, and what is needed to tell members apart.
//!
//! An image of a dkey says all about it: its present and what snapshots see of its past, whatever lives of the
//! object that was in. Installing it replaces what is here. Members put objects aside as lives when they like, and a
//! snapshot looks into one of them only: lives are taken apart first.
//!
//! Numbers about the whole object ([`Timeline`]) are installed apart: no dkey tells them.

use std::ops::Bound;

use types::{ContId, Epoch, Key, Unit};

use super::at::ArrayRef;
use super::bucket::Scope;
use super::extent::Place;
use super::object::{Object, Position};
use super::past::{Facts, Kept, Life, Order, Past, PastDkey, PastValue, drop_if_empty};
use super::slot::{AkeyRef, DkeyRef, Single};
use super::{Container, Effects, Index, cost, is_record, new_value, places_blocks};
use crate::blocks::Run;
use crate::change_df::each_fresh_run;
use crate::index::versions::Versions;
use crate::record::{InstallDf, TouchDf};

/// Marks the epoch of a dkey that is not there now. Epochs are nanoseconds since 1970, and have this bit from 2262 on.
const GONE: u64 = 1 << 63;

/// Numbers about an object, now and at the times that snapshots see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Timeline {
    /// Last change, last change of the set of dkeys, first change.
    pub epochs: (Epoch, Epoch, Epoch),
    /// Ascending.
    pub facts: Vec<Facts>,
}

/// All of a dkey.
#[derive(Debug, Default)]
pub(crate) struct DkeyContents {
    /// Last change; zero: it is not there now.
    pub epoch: Epoch,
    /// Values that are there now end at [`Epoch::MAX`].
    pub values: Vec<Kept>,
    /// Last changes of arrays that are there now.
    pub arrays: Vec<(Key, Epoch)>,
}

impl Index {
    /// Makes a dkey what an image says; it must be in memory. No effect when the container is not there.
    pub(crate) fn install(&mut self, install: &InstallDf<'_>, effects: &mut Effects) {
        self.note_copies(install.unit);
        let Some(container) = self.conts.get_mut(&install.cont) else { return };
        let is_empty = install.changes.is_empty() && install.past.is_empty();
        if is_empty && container.whole(install.unit).is_none() {
            return;
        }
        effects.places_blocks = install.values().any(places_blocks);
        effects.is_record = is_record(install.unit, Some(install.dkey));
        effects.versions = container.versions.any();
        let versions = container.versions.clone();
        let (ledger, scope) = (&mut self.ledger, Scope::Dkey(install.dkey));
        let delta =
            container.change(install.unit, scope, true, None, ledger, effects, |object, fx| {
                // What goes is not kept: the image says what snapshots see.
                let kept = fx.versions.take();
                fx.keep_apart = true;
                object.install(install, &versions, fx);
                fx.keep_apart = false;
                fx.versions = kept;
            });
        self.count(&delta);
    }

    /// Sets what is known of an object as a whole; no effect when it is not there.
    pub(crate) fn install_timeline(
        &mut self,
        cont: ContId,
        unit: Unit,
        timeline: &Timeline,
        effects: &mut Effects,
    ) {
        let Some(container) = self.conts.get_mut(&cont) else { return };
        effects.versions = container.versions.any();
        let versions = container.versions.clone();
        let ledger = &mut self.ledger;
        let delta = container.change(unit, Scope::Past, false, None, ledger, effects, |o, fx| {
            o.install_timeline(timeline, &versions, fx);
        });
        self.count(&delta);
    }
}

impl Container {
    /// The newest epoch of anything in an object; `None` when nobody sees anything of it.
    pub(crate) fn newest(&self, unit: Unit) -> Option<Epoch> {
        let object = self.whole(unit)?;
        let seen = |at: &Epoch| self.object_at(unit, *at).is_some();
        // While the container is held, a snapshot may yet be made that sees what is gone.
        let kept = self.versions.held && object.past.is_some();
        let is_there = object.dkey_count > 0 || kept || self.versions.snapshots.iter().any(seen);
        is_there.then(|| object.timeline().epochs.0)
    }
}

impl Object {
    fn lives(&self) -> &[Life] {
        self.past.as_ref().map_or(&[], |past| &past.lives)
    }

    /// Numbers about the object, whatever lives it has.
    pub(crate) fn timeline(&self) -> Timeline {
        let mut facts: Vec<Facts> = Vec::new();
        let mut born = Epoch::MAX;
        let ended = self.lives().iter().map(|life| (&*life.object, life.until));
        for (object, until) in ended.chain([(self, Epoch::MAX)]) {
            if object.born < Epoch::MAX {
                match facts.last() {
                    // Between two lives there was nothing.
                    Some(last) if last.until < object.born => facts.push(Facts::none(object.born)),
                    _ => {}
                }
                born = born.min(object.born);
            }
            facts.extend(object.past.iter().flat_map(|past| &past.facts));
            if until < Epoch::MAX {
                facts.push(object.facts_now(until));
            }
        }
        let punched = self.lives().last().map_or(Epoch::ZERO, |life| life.until);
        Timeline { epochs: (self.epoch.max(punched), self.keys_epoch.max(punched), born), facts }
    }

    fn facts_now(&self, until: Epoch) -> Facts {
        Facts {
            until,
            epoch: self.epoch,
            keys_epoch: self.keys_epoch,
            bytes_used: self.bytes_used,
            dkey_count: self.dkey_count,
            counted_links: self.counted_links,
        }
    }

    fn install_timeline(
        &mut self,
        timeline: &Timeline,
        versions: &Versions,
        effects: &mut Effects,
    ) {
        self.dissolve_lives(versions, effects);
        self.set_timeline(timeline, versions, effects);
    }

    /// Takes the numbers of another one, as far as a snapshot sees them.
    fn set_timeline(&mut self, timeline: &Timeline, versions: &Versions, effects: &mut Effects) {
        (self.epoch, self.keys_epoch, self.born) = timeline.epochs;
        let mut start = self.born;
        let was = self.past.as_mut().map(|past| std::mem::take(&mut past.facts));
        let seen: Vec<Facts> = timeline
            .facts
            .iter()
            .filter(|facts| versions.sees(std::mem::replace(&mut start, facts.until), facts.until))
            .copied()
            .collect();
        let was = was.map_or(0, |facts| facts.len());
        effects.scm += cost::FACTS as i64 * (seen.len() as i64 - was as i64);
        if !seen.is_empty() {
            Past::of(&mut self.past, effects).facts = seen;
        }
        drop_if_empty(&mut self.past, effects);
    }

    /// Takes lives that were put aside apart: what snapshots see of them goes to the object's own past. Nothing that
    /// is shown changes, but there is one place for all that is installed.
    fn dissolve_lives(&mut self, versions: &Versions, effects: &mut Effects) {
        if self.lives().is_empty() {
            return;
        }
        let timeline = self.timeline();
        let lives = self.past.as_mut().map(|past| std::mem::take(&mut past.lives));
        for life in lives.into_iter().flatten() {
            let mut values: Vec<(Order, Kept)> = Vec::new();
            let mut add = |order: Order, found: Vec<Kept>| {
                values.extend(found.into_iter().map(|kept| (order.clone(), kept)));
            };
            for (name, dkey) in life.object.dkeys() {
                let mut found = Vec::new();
                add_values(dkey, life.until, &|_| true, &mut found);
                add(name.with_bytes(|bytes| self.order_key(bytes)), found);
            }
            for (order, _) in life.object.past.iter().flat_map(|past| past.dkeys.iter()) {
                let mut found = Vec::new();
                life.object.add_past_values(order, &|_, _| true, &mut found);
                add(order.clone(), found);
            }
            // Its memory; its blocks stay where they are seen.
            let mut gone = Effects::default();
            life.object.release(&mut gone);
            effects.scm += gone.scm - cost::OBJECT as i64;
            for (order, kept) in values {
                if versions.sees(kept.created, kept.destroyed) {
                    Past::of(&mut self.past, effects).insert(&order, kept, effects);
                } else {
                    each_run(&kept.value, |run| effects.release(run));
                }
            }
        }
        self.set_timeline(&timeline, versions, effects);
    }

    fn install(&mut self, install: &InstallDf<'_>, versions: &Versions, effects: &mut Effects) {
        self.dissolve_lives(versions, effects);
        let dkey = install.dkey;
        let order = self.order_key(dkey);
        let (epoch, keys_epoch) = (self.epoch, self.keys_epoch);
        let was_there = self.dkey(dkey).is_some();
        self.punch_dkey(dkey, Epoch::ZERO, effects);
        if let Some(past) = &mut self.past {
            past.forget_dkey(&order, effects);
        }
        for (created, change) in &install.changes {
            if let Some((_, dkey, akey, value)) = new_value(change) {
                self.set(dkey, akey, value, *created, effects);
            }
        }
        for touch in &install.touches {
            if let TouchDf::Akey(dkey, akey, epoch) = touch {
                self.touch(dkey, Some(akey), *epoch);
            }
        }
        if self.dkey(dkey).is_some_and(|found| found.epoch() != install.epoch) {
            self.touch(dkey, None, install.epoch);
        }
        for (created, destroyed, change) in &install.past {
            let Some((_, _, akey, value)) = new_value(change) else { continue };
            if versions.sees(*created, *destroyed) {
                let (created, destroyed, value) = (*created, *destroyed, value.into_past());
                let piece = Kept { akey: Key::new(akey), created, destroyed, value };
                Past::of(&mut self.past, effects).insert(&order, piece, effects);
            } else {
                each_fresh_run(change, |run| effects.release(run));
            }
        }
        let past = install.past.iter().map(|(created, ..)| *created);
        let made = install.changes.iter().map(|(created, _)| *created).chain(past);
        self.born = made.fold(self.born, Epoch::min);
        let is_there = self.dkey(dkey).is_some();
        let newest = if effects.is_record { Epoch::ZERO } else { install.newest() };
        self.epoch = epoch.max(newest);
        self.keys_epoch = match was_there == is_there {
            true => keys_epoch,
            false => keys_epoch.max(newest),
        };
        drop_if_empty(&mut self.past, effects);
    }

    /// All of a dkey that can be seen.
    pub(crate) fn contents_of(&self, dkey: &[u8], versions: &Versions) -> DkeyContents {
        let order = self.order_key(dkey);
        let mut out = DkeyContents::default();
        if let Some(found) = self.dkey(dkey) {
            out.epoch = found.epoch();
            for (akey, value) in found.akeys() {
                if let AkeyRef::Array(array) = value {
                    out.arrays.push((Key::new(akey), array.epoch));
                }
            }
            add_values(found, Epoch::MAX, &|_| true, &mut out.values);
        }
        let seen = |created, destroyed| versions.sees(created, destroyed);
        for life in self.lives() {
            if let Some(found) = life.object.dkey(dkey) {
                add_values(found, life.until, &|made| seen(made, life.until), &mut out.values);
            }
            life.object.add_past_values(&order, &seen, &mut out.values);
        }
        self.add_past_values(&order, &seen, &mut out.values);
        out
    }

    fn past_of(&self, order: &Order) -> Option<&PastDkey> {
        self.past.as_ref()?.dkeys.get(order)
    }

    fn add_past_values(
        &self,
        order: &Order,
        wanted: &dyn Fn(Epoch, Epoch) -> bool,
        out: &mut Vec<Kept>,
    ) {
        for (akey, values) in self.past_of(order).iter().flat_map(|past| past.akeys.iter()) {
            for piece in &values.singles {
                let (created, destroyed) = (piece.created, piece.destroyed);
                if wanted(created, destroyed) {
                    let value = PastValue::Single(piece.value.clone());
                    out.push(Kept { akey: akey.clone(), created, destroyed, value });
                }
            }
            for (&(index, created), piece) in &values.extents {
                if wanted(created, piece.destroyed) {
                    let (record_bytes, count) = (piece.record_bytes, piece.count);
                    let place = piece.place.clone();
                    let value = PastValue::Extent { record_bytes, index, count, place };
                    let (akey, destroyed) = (akey.clone(), piece.destroyed);
                    out.push(Kept { akey, created, destroyed, value });
                }
            }
        }
    }

    /// When a snapshot last lost something of a dkey of the past; zero: none sees anything.
    fn newest_past(&self, order: &Order, versions: &Versions) -> Epoch {
        let akeys = self.past_of(order).into_iter().flat_map(|past| past.akeys.iter());
        let ends = akeys.flat_map(|(_, values)| {
            let singles = values.singles.iter().map(|piece| (piece.created, piece.destroyed));
            singles.chain(values.extents.iter().map(|(&(_, made), piece)| (made, piece.destroyed)))
        });
        let seen = ends.filter(|(created, destroyed)| versions.sees(*created, *destroyed));
        seen.map(|(_, destroyed)| destroyed).max().unwrap_or(Epoch::ZERO)
    }

    /// The newest epoch of anything of a dkey that can be seen; zero when there is nothing. Of one that only snapshots see it is marked ([`GONE`]): the
    /// newest that these see may have given way to a value that went, too, and at its epoch another member may have that still.
    fn newest_of(&self, dkey: &[u8], versions: &Versions) -> Epoch {
        let order = self.order_key(dkey);
        let lives = self.lives().iter().map(|life| life.newest_of(dkey, &order, versions));
        let past = lives.fold(self.newest_past(&order, versions), Epoch::max);
        match self.dkey(dkey) {
            Some(found) => found.epoch().max(past),
            None if past > Epoch::ZERO => Epoch(past.0 | GONE),
            None => Epoch::ZERO,
        }
    }

    /// Up to `max` dkeys after one, in order, each with the newest epoch of what can be seen of it; whether
    /// these are all.
    pub(crate) fn keys_after(
        &self,
        after: Option<&[u8]>,
        max: usize,
        versions: &Versions,
    ) -> (Vec<(Vec<u8>, Epoch)>, bool) {
        let position = after.map_or(Position::Start, Position::After);
        let from = after.map(|dkey| self.order_key(dkey));
        let more = max.saturating_add(1);
        let mut names: Vec<(Order, Vec<u8>)> = Vec::new();
        let mut add = |object: &Object, only: &dyn Fn(&[u8], DkeyRef<'_>) -> bool| {
            let dkeys = object.dkeys_after(position, (0, u64::MAX));
            let dkeys = dkeys.map(|(name, dkey)| (name.with_bytes(<[u8]>::to_vec), dkey));
            let found = dkeys.filter(|(name, dkey)| only(name, *dkey)).take(more);
            names.extend(found.map(|(name, _)| (self.order_key(&name), name)));
            let bound = from.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let past = object.past.iter().flat_map(|past| past.dkeys_from(bound));
            let seen = past.filter(|(order, _)| object.newest_past(order, versions) > Epoch::ZERO);
            names.extend(
                seen.take(more).map(|(order, _)| {
                    (order.clone(), self.name_of(order).with_bytes(<[u8]>::to_vec))
                }),
            );
        };
        add(self, &|_, _| true);
        for life in self.lives() {
            add(&life.object, &|_, dkey| sees_any(dkey, life.until, versions));
        }
        names.sort();
        names.dedup();
        let complete = names.len() <= max;
        names.truncate(max);
        let newest = |(_, name): (Order, Vec<u8>)| {
            let newest = self.newest_of(&name, versions);
            (name, newest)
        };
        (names.into_iter().map(newest).collect(), complete)
    }
}

impl Life {
    fn newest_of(&self, dkey: &[u8], order: &Order, versions: &Versions) -> Epoch {
        let found = self.object.dkey(dkey);
        let seen = found.is_some_and(|found| sees_any(found, self.until, versions));
        let head = if seen { self.until } else { Epoch::ZERO };
        head.max(self.object.newest_past(order, versions))
    }
}

impl Facts {
    /// Nothing was there until then.
    fn none(until: Epoch) -> Facts {
        let (epoch, keys_epoch) = (Epoch::ZERO, Epoch::ZERO);
        Facts { until, epoch, keys_epoch, bytes_used: 0, dkey_count: 0, counted_links: 0 }
    }
}

/// True when a snapshot sees something of a dkey that went away at `until`.
fn sees_any(dkey: DkeyRef<'_>, until: Epoch, versions: &Versions) -> bool {
    dkey.akeys().any(|(_, value)| match value.array() {
        Some(array) => array.from(0).any(|shown| versions.sees(shown.epoch, until)),
        None => versions.sees(value.epoch(), until),
    })
}

/// Adds the values of a dkey that are there until `destroyed`, if `wanted` by their creation.
fn add_values(
    dkey: DkeyRef<'_>,
    destroyed: Epoch,
    wanted: &dyn Fn(Epoch) -> bool,
    out: &mut Vec<Kept>,
) {
    for (akey, value) in dkey.akeys() {
        let kept = |created: Epoch, value: PastValue| {
            wanted(created).then(|| Kept { akey: Key::new(akey), created, destroyed, value })
        };
        match value {
            AkeyRef::Inline(created, bytes) => {
                out.extend(kept(created, PastValue::Single(Single::Inline(bytes.into()))));
            }
            AkeyRef::Runs(created, runs) => {
                out.extend(kept(created, PastValue::Single(Single::Runs(runs.into()))));
            }
            AkeyRef::Array(array) => {
                out.extend(ArrayRef::Head(array).from(0).filter_map(|shown| {
                    let (record_bytes, index) = (shown.record_bytes, shown.index);
                    let (count, place): (u64, Place) = (shown.count, shown.place.clone());
                    kept(shown.epoch, PastValue::Extent { record_bytes, index, count, place })
                }));
            }
            // Neither head nor life holds such values.
            AkeyRef::Old(_) => {}
        }
    }
}

/// Where a value lies in the data area.
pub(crate) fn each_run(value: &PastValue, mut each: impl FnMut(Run)) {
    match value {
        PastValue::Single(Single::Runs(runs)) => runs.iter().for_each(|run| each(*run)),
        &PastValue::Extent { record_bytes, count, place: Place::Blocks(at), .. } => {
            each(Run { at, bytes: count * record_bytes as u64 });
        }
        _ => {}
    }
}
