//! What an object was: pieces that the head has lost and a snapshot still sees.
//!
//! The index is the *head*, the present. What a change removes while a snapshot of the container
//! can see it goes here, with its validity `[created, destroyed)`: single values, and parts of
//! extents with their references to blocks. An object that was punched whole while it was big is
//! kept whole, as a [`Life`]; so is one that nobody sees any more, until its space has come back
//! in slices ([`Object::sweep`]).
//!
//! Numbers about a whole object (epoch, keys, bytes) are kept as [`Facts`] of the times between
//! changes that a snapshot fell into, so that a snapshot's `stat` needs no walk.
//!
//! Invariants: a piece is here iff a snapshot sees it, or a sweep that is bound to come has not
//! passed yet. Pieces of one akey that one snapshot sees do not overlap. Facts and lives are
//! ordered by their end. Lives hold no lives.
//!
//! Why not versions in the head's own tree: reads of the head, nearly all reads, would step over
//! dead versions; and without snapshots this costs eight bytes per object.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;

use types::{Epoch, Key};

use super::extent::Place;
use super::object::{Object, Position};
use super::slot::Single;
use super::{Effects, cost};
use crate::blocks::Run;
use crate::index::ordered::{OrdMap, Range};
use crate::index::versions::Versions;
use crate::record::SweepAtDf;

/// Place of a dkey in its object's order: hash or number, then bytes.
pub(crate) type Order = (u64, Key);

/// A value, or part of one, that was removed.
#[derive(Debug)]
pub(crate) enum PastValue {
    Single(Single<Box<[u8]>>),
    /// Records of an array.
    Extent {
        record_bytes: u32,
        index: u64,
        count: u64,
        place: Place,
    },
}

/// A removed piece on its way from the head to the past.
#[derive(Debug)]
pub(crate) struct Kept {
    pub akey: Key,
    pub created: Epoch,
    pub destroyed: Epoch,
    pub value: PastValue,
}

/// Numbers about an object up to an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Facts {
    /// The change that ended them.
    pub until: Epoch,
    /// Last change before, as [`Object::epoch`] tells it.
    pub epoch: Epoch,
    /// Last change of the set of dkeys before.
    pub keys_epoch: Epoch,
    pub bytes_used: u64,
    pub dkey_count: u64,
    pub counted_links: u64,
}

/// An object as it was when it was punched.
#[derive(Debug)]
pub(crate) struct Life {
    /// The punch.
    pub until: Epoch,
    pub object: Box<Object>,
}

#[derive(Debug, Default)]
pub(crate) struct Past {
    pub facts: Vec<Facts>,
    pub dkeys: OrdMap<Order, PastDkey>,
    pub lives: Vec<Life>,
}

/// Removed values of a dkey, by akey.
#[derive(Debug, Default)]
pub(crate) struct PastDkey {
    pub akeys: OrdMap<Key, PastAkey>,
}

/// Removed values of an akey.
#[derive(Debug, Default)]
pub(crate) struct PastAkey {
    /// Single values, by creation.
    pub singles: Vec<PastSingle>,
    /// Parts of extents, by first record and creation.
    pub extents: BTreeMap<(u64, Epoch), PastExtent>,
    /// No extent is longer, records.
    pub count_max: u64,
}

/// A removed single value.
#[derive(Debug)]
pub(crate) struct PastSingle {
    pub created: Epoch,
    pub destroyed: Epoch,
    pub value: Single<Box<[u8]>>,
}

/// A removed part of an extent.
#[derive(Debug)]
pub(crate) struct PastExtent {
    pub destroyed: Epoch,
    pub record_bytes: u32,
    pub count: u64,
    pub place: Place,
}

impl PastSingle {
    fn scm_bytes(&self) -> u64 {
        cost::PAST_PIECE
            + match &self.value {
                Single::Inline(bytes) => bytes.len() as u64,
                Single::Runs(runs) => cost::RUN * runs.len() as u64,
            }
    }

    fn runs(&self) -> &[Run] {
        match &self.value {
            Single::Inline(_) => &[],
            Single::Runs(runs) => runs,
        }
    }

    fn release(&self, effects: &mut Effects) {
        effects.scm -= self.scm_bytes() as i64;
        self.runs().iter().for_each(|&run| effects.release(run));
    }
}

impl PastExtent {
    fn scm_bytes(&self) -> u64 {
        cost::PAST_PIECE
            + match &self.place {
                Place::Inline(bytes) => bytes.len() as u64,
                _ => 0,
            }
    }

    fn run(&self) -> Option<Run> {
        match self.place {
            Place::Blocks(at) => Some(Run { at, bytes: self.count * self.record_bytes as u64 }),
            _ => None,
        }
    }

    fn release(&self, effects: &mut Effects) {
        effects.scm -= self.scm_bytes() as i64;
        if let Some(run) = self.run() {
            effects.release(run);
        }
    }
}

fn dkey_cost(order: &Order) -> i64 {
    (cost::PAST_DKEY + order.1.len() as u64) as i64
}

fn akey_cost(akey: &Key) -> i64 {
    (cost::PAST_AKEY + akey.len() as u64) as i64
}

impl PastAkey {
    fn is_empty(&self) -> bool {
        self.singles.is_empty() && self.extents.is_empty()
    }

    /// Drops what no snapshot sees.
    fn sweep(&mut self, versions: &Versions, effects: &mut Effects) {
        self.singles.retain(|piece| {
            let seen = versions.sees(piece.created, piece.destroyed);
            if !seen {
                piece.release(effects);
            }
            seen
        });
        self.extents.retain(|&(_, created), piece| {
            let seen = versions.sees(created, piece.destroyed);
            if !seen {
                piece.release(effects);
            }
            seen
        });
    }

    /// Extents that may overlap records from `from` on, by first record.
    pub(crate) fn extents_from(
        &self,
        from: u64,
    ) -> impl DoubleEndedIterator<Item = (u64, Epoch, &PastExtent)> {
        let first = from.saturating_sub(self.count_max);
        self.extents
            .range((first, Epoch::ZERO)..)
            .map(|(&(index, created), piece)| (index, created, piece))
    }
}

impl Past {
    /// The past of an object, made if there is none.
    pub(crate) fn of<'a>(past: &'a mut Option<Box<Past>>, effects: &mut Effects) -> &'a mut Past {
        past.get_or_insert_with(|| {
            effects.scm += cost::PAST as i64;
            Box::default()
        })
    }

    fn is_empty(&self) -> bool {
        self.facts.is_empty() && self.dkeys.is_empty() && self.lives.is_empty()
    }

    /// Takes over what a change of one dkey removed.
    pub(crate) fn take_kept(&mut self, order: Order, effects: &mut Effects) {
        let mut kept = std::mem::take(&mut effects.kept);
        for piece in kept.drain(..) {
            self.insert(&order, piece, effects);
        }
        effects.kept = kept;
    }

    pub(crate) fn insert(&mut self, order: &Order, piece: Kept, effects: &mut Effects) {
        let Kept { akey, created, destroyed, value } = piece;
        let (dkey, new) = self.dkeys.get_or_insert_with(order.clone(), PastDkey::default);
        if new {
            effects.scm += dkey_cost(order);
        }
        if dkey.akeys.get(&*akey).is_none() {
            effects.scm += akey_cost(&akey);
        }
        let (values, _) = dkey.akeys.get_or_insert_with(akey, PastAkey::default);
        match value {
            PastValue::Single(value) => {
                let piece = PastSingle { created, destroyed, value };
                effects.scm += piece.scm_bytes() as i64;
                let at = values.singles.partition_point(|other| other.created <= created);
                values.singles.insert(at, piece);
            }
            PastValue::Extent { record_bytes, index, count, place } => {
                let piece = PastExtent { destroyed, record_bytes, count, place };
                effects.scm += piece.scm_bytes() as i64;
                values.count_max = values.count_max.max(count);
                if let Some(twice) = values.extents.insert((index, created), piece) {
                    // Only damage brings the same piece twice.
                    twice.release(effects);
                }
            }
        }
    }

    /// Lets go of all that is kept of a dkey.
    pub(crate) fn forget_dkey(&mut self, order: &Order, effects: &mut Effects) {
        if let Some(dkey) = self.dkeys.remove(order) {
            release_dkey(order, &dkey, effects);
        }
    }

    /// Reports all content as released.
    pub(crate) fn release(&self, effects: &mut Effects) {
        effects.scm -= (cost::PAST + cost::FACTS * self.facts.len() as u64) as i64;
        for (order, dkey) in self.dkeys.iter() {
            release_dkey(order, dkey, effects);
        }
        for life in &self.lives {
            effects.scm -= cost::OBJECT as i64;
            life.object.release(effects);
        }
    }

    /// Every run of the data area it touches.
    pub(crate) fn runs(&self, each: &mut impl FnMut(Run)) {
        for (_, dkey) in self.dkeys.iter() {
            for (_, values) in dkey.akeys.iter() {
                values.singles.iter().flat_map(PastSingle::runs).for_each(|&run| each(run));
                values.extents.values().filter_map(PastExtent::run).for_each(&mut *each);
            }
        }
        for life in &self.lives {
            life.object.runs(each);
        }
    }

    /// Dkeys from a bound on.
    pub(crate) fn dkeys_from(&self, from: Bound<&Order>) -> Range<'_, Order, PastDkey> {
        self.dkeys.range::<Order>(from, Bound::Unbounded)
    }

    /// Drops what no snapshot sees of up to `count` dkeys after `after`; where to go on, or `None`
    /// at the end.
    fn sweep_dkeys(
        &mut self,
        after: Option<&Order>,
        count: usize,
        versions: &Versions,
        effects: &mut Effects,
    ) -> Option<Order> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let orders: Vec<Order> =
            self.dkeys_from(from).take(count).map(|(order, _)| order.clone()).collect();
        for order in &orders {
            let Some(dkey) = self.dkeys.get_mut(order) else { continue };
            let akeys: Vec<Key> = dkey.akeys.iter().map(|(akey, _)| akey.clone()).collect();
            for akey in akeys {
                let Some(values) = dkey.akeys.get_mut(&akey) else { continue };
                values.sweep(versions, effects);
                if values.is_empty() {
                    dkey.akeys.remove(&akey);
                    effects.scm -= akey_cost(&akey);
                }
            }
            if dkey.akeys.is_empty() {
                self.dkeys.remove(order);
                effects.scm -= dkey_cost(order);
            }
        }
        if orders.len() < count { None } else { orders.last().cloned() }
    }

    /// Drops facts of times that no snapshot falls into. `born` is the start of the first.
    fn sweep_facts(&mut self, born: Epoch, versions: &Versions, effects: &mut Effects) {
        let (before, mut start) = (self.facts.len(), born);
        self.facts.retain(|facts| {
            let needed = versions.sees(start, facts.until);
            start = facts.until;
            needed
        });
        effects.scm -= (cost::FACTS * (before - self.facts.len()) as u64) as i64;
    }
}

fn release_dkey(order: &Order, dkey: &PastDkey, effects: &mut Effects) {
    effects.scm -= dkey_cost(order);
    for (akey, values) in dkey.akeys.iter() {
        effects.scm -= akey_cost(akey);
        values.singles.iter().for_each(|piece| piece.release(effects));
        values.extents.values().for_each(|piece| piece.release(effects));
    }
}

/// Where a sweep of an object goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SweepAt {
    /// The life being swept, by its end; [`Epoch::MAX`]: the object itself.
    pub life: Epoch,
    /// True: its own dkeys are done (or it is the object itself), now its past.
    pub in_past: bool,
    pub after: Option<Vec<u8>>,
}

impl SweepAt {
    /// The form in the log.
    pub(crate) fn durable(&self) -> SweepAtDf<'_> {
        SweepAtDf { life: self.life, in_past: self.in_past, after: self.after.as_deref() }
    }

    /// From the form in the log.
    pub(crate) fn from_durable(df: &SweepAtDf<'_>) -> SweepAt {
        SweepAt { life: df.life, in_past: df.in_past, after: df.after.map(<[u8]>::to_vec) }
    }

    pub(crate) fn start() -> SweepAt {
        SweepAt { life: Epoch::ZERO, in_past: false, after: None }
    }
}

/// How far a sweep of an object got.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Swept {
    More(SweepAt),
    /// Nothing more to do.
    Done,
}

impl Object {
    /// Notes the numbers that a change at `epoch` is about to end, if a snapshot falls into their
    /// time. To be called before each change.
    pub(crate) fn note(&mut self, epoch: Epoch, effects: &mut Effects) {
        let facts = self.past.as_ref().map_or(&[][..], |past| &past.facts);
        let at = facts.partition_point(|facts| facts.until <= epoch);
        let start = if at > 0 { facts[at - 1].until } else { self.born };
        if epoch < self.born {
            // The first change, or a transaction that was decided late.
            let is_noted = facts.first().is_some_and(|facts| facts.until <= self.born);
            if self.born < Epoch::MAX && effects.sees(epoch, self.born) && !is_noted {
                let absent = Facts {
                    until: self.born,
                    epoch: Epoch::ZERO,
                    keys_epoch: Epoch::ZERO,
                    bytes_used: 0,
                    dkey_count: 0,
                    counted_links: 0,
                };
                self.put_facts(0, absent, effects);
            }
            self.born = epoch;
        } else if effects.sees(start, epoch) {
            let was = facts.get(at).copied().unwrap_or(Facts {
                until: epoch,
                epoch: self.epoch,
                keys_epoch: self.keys_epoch,
                bytes_used: self.bytes_used,
                dkey_count: self.dkey_count,
                counted_links: self.counted_links,
            });
            self.put_facts(at, Facts { until: epoch, ..was }, effects);
        }
    }

    fn put_facts(&mut self, at: usize, facts: Facts, effects: &mut Effects) {
        let past = Past::of(&mut self.past, effects);
        past.facts.insert(at, facts);
        effects.scm += cost::FACTS as i64;
    }

    /// A change at `epoch` has added these to the head: so it did to all that came after it. For
    /// transactions that were decided late.
    pub(crate) fn note_late(
        &mut self,
        epoch: Epoch,
        bytes: i64,
        dkeys: i64,
        links: i64,
        effects: &Effects,
    ) {
        let Some(past) = &mut self.past else { return };
        for facts in past.facts.iter_mut().filter(|facts| facts.until > epoch) {
            facts.bytes_used = facts.bytes_used.saturating_add_signed(bytes);
            facts.dkey_count = facts.dkey_count.saturating_add_signed(dkeys);
            facts.counted_links = facts.counted_links.saturating_add_signed(links);
            if !effects.is_record {
                facts.epoch = facts.epoch.max(epoch);
            }
            if dkeys != 0 && !effects.is_move && !effects.is_record {
                facts.keys_epoch = facts.keys_epoch.max(epoch);
            }
        }
    }

    /// The object as punched at `epoch`: a tombstone with this one as its last life.
    pub(crate) fn end_life(&mut self, epoch: Epoch, effects: &mut Effects) {
        let mut old = std::mem::replace(self, Object::new(self.kind()));
        let lives = old.past.as_mut().map(|past| std::mem::take(&mut past.lives));
        let past = Past::of(&mut self.past, effects);
        past.lives = lives.unwrap_or_default();
        drop_if_empty(&mut old.past, effects);
        effects.scm += cost::OBJECT as i64;
        let past = Past::of(&mut self.past, effects);
        past.lives.push(Life { until: epoch, object: Box::new(old) });
    }

    /// Removes every dkey.
    pub(crate) fn clear(&mut self, epoch: Epoch, effects: &mut Effects) {
        let names: Vec<Vec<u8>> =
            self.dkeys().map(|(name, _)| name.with_bytes(<[u8]>::to_vec)).collect();
        for name in names {
            self.punch_dkey(&name, epoch, effects);
        }
    }

    /// True when nothing is left, not even a past.
    pub(crate) fn is_gone(&self) -> bool {
        self.dkey_count == 0
            && self.past.as_ref().is_none_or(|past| past.dkeys.is_empty() && past.lives.is_empty())
    }

    /// Gives up facts of an object that is gone.
    pub(crate) fn forget_facts(&mut self, effects: &mut Effects) {
        if let Some(past) = self.past.take() {
            past.release(effects);
        }
    }

    /// Drops what no snapshot sees: looks at `count` dkeys from `at` on.
    pub(crate) fn sweep(
        &mut self,
        at: &SweepAt,
        count: usize,
        versions: &Rc<Versions>,
        effects: &mut Effects,
    ) -> Swept {
        let Some(past) = &mut self.past else { return Swept::Done };
        let found = past.lives.iter().position(|life| life.until >= at.life);
        if let Some(found) = found {
            let life = &mut past.lives[found];
            let at = if life.until == at.life {
                at.clone()
            } else {
                SweepAt { life: life.until, ..SweepAt::start() }
            };
            let more = life.sweep(at, count, versions, effects);
            if let Swept::More(next) = more {
                return Swept::More(next);
            }
            let until = life.until;
            if life.object.is_gone() {
                let mut life = past.lives.remove(found);
                life.object.forget_facts(effects);
                effects.scm -= cost::OBJECT as i64;
            }
            let life = Epoch(until.0.saturating_add(1));
            return Swept::More(SweepAt { life, in_past: false, after: None });
        }
        let after = if at.life == Epoch::MAX { at.after.as_deref() } else { None };
        let after = after.map(|dkey| self.order_key(dkey));
        let born = self.born;
        let Some(past) = &mut self.past else { return Swept::Done };
        if let Some(order) = past.sweep_dkeys(after.as_ref(), count, versions, effects) {
            let after = self.name_of(&order).with_bytes(<[u8]>::to_vec);
            return Swept::More(SweepAt { life: Epoch::MAX, in_past: true, after: Some(after) });
        }
        past.sweep_facts(born, versions, effects);
        drop_if_empty(&mut self.past, effects);
        Swept::Done
    }
}

/// Lets go of a past that holds nothing.
pub(crate) fn drop_if_empty(past: &mut Option<Box<Past>>, effects: &mut Effects) {
    if past.as_ref().is_some_and(|past| past.is_empty()) {
        *past = None;
        effects.scm -= cost::PAST as i64;
    }
}

impl Life {
    fn sweep(
        &mut self,
        at: SweepAt,
        count: usize,
        versions: &Rc<Versions>,
        effects: &mut Effects,
    ) -> Swept {
        let object = &mut self.object;
        let more = |in_past: bool, after: Option<Vec<u8>>| {
            Swept::More(SweepAt { life: at.life, in_past, after })
        };
        if !at.in_past {
            let position = at.after.as_deref().map_or(Position::Start, Position::After);
            let names: Vec<Vec<u8>> = object
                .dkeys_after(position, (0, u64::MAX))
                .take(count)
                .map(|(name, _)| name.with_bytes(<[u8]>::to_vec))
                .collect();
            let bytes_before = effects.bytes;
            for name in &names {
                object.drop_unseen(name, self.until, versions, effects);
            }
            object.count_bytes(effects.bytes - bytes_before);
            return match names.last() {
                Some(last) if names.len() == count => more(false, Some(last.clone())),
                _ => more(true, None),
            };
        }
        let after = at.after.as_deref().map(|dkey| object.order_key(dkey));
        let born = object.born;
        if let Some(past) = &mut object.past {
            if let Some(order) = past.sweep_dkeys(after.as_ref(), count, versions, effects) {
                let after = object.name_of(&order).with_bytes(<[u8]>::to_vec);
                return more(true, Some(after));
            }
            past.sweep_facts(born, versions, effects);
        }
        drop_if_empty(&mut object.past, effects);
        Swept::Done
    }
}

impl Object {
    /// Drops what no snapshot sees of a dkey that went away at `until`.
    fn drop_unseen(
        &mut self,
        dkey: &[u8],
        until: Epoch,
        versions: &Versions,
        effects: &mut Effects,
    ) {
        let Some(found) = self.dkey(dkey) else { return };
        let dkey_epoch = found.epoch();
        let mut akeys = Vec::new();
        let mut ranges = Vec::new();
        let mut arrays = Vec::new();
        for (akey, value) in found.akeys() {
            match value.array() {
                Some(array) => {
                    let unseen = array.from(0).filter(|shown| !versions.sees(shown.epoch, until));
                    let before = ranges.len();
                    ranges.extend(unseen.map(|shown| (Key::new(akey), shown.index, shown.count)));
                    if ranges.len() > before {
                        arrays.push((Key::new(akey), array.epoch()));
                    }
                }
                None if !versions.sees(value.epoch(), until) => akeys.push(Key::new(akey)),
                None => {}
            }
        }
        if akeys.is_empty() && ranges.is_empty() {
            return;
        }
        let (epoch, keys_epoch) = (self.epoch, self.keys_epoch);
        // Nothing is kept of what is removed before all time.
        for akey in akeys {
            self.punch_akey(dkey, &akey, Epoch::ZERO, effects);
        }
        for (akey, index, count) in ranges {
            self.punch_records(dkey, &akey, index, count, Epoch::ZERO, effects);
        }
        // What is left is as old as it was.
        self.touch(dkey, None, dkey_epoch);
        for (akey, epoch) in arrays {
            self.touch(dkey, Some(&akey), epoch);
        }
        (self.epoch, self.keys_epoch) = (epoch, keys_epoch);
    }
}
