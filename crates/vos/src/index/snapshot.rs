//! Objects and ranges of their dkeys as records, as they lie in pages.
//!
//! A record says all about its range; pages hold nothing else. The object is named once, so
//! changes inside name the nil object. An object with a past takes several: one for each life
//! that was put aside, then one for the present with what it has lost.

use types::{Code, ContId, Epoch, Error, Key, Result, Unit};

use super::extent::Place;
use super::object::{DkeyName, Object};
use super::past::{Facts, Kept, Life, Past, PastDkey, PastValue};
use super::slot::{AkeyRef, NewValue, Single};
use super::{Effects, Index, cost};
use crate::record::{ChangeDf, FactsDf, PartDf, PlaceDf, RecordDf, RunDf, TouchDf};

/// Appends the record of an object's dkeys from `start` on and before `end`, without its past.
pub(crate) fn encode_range(
    cont: ContId,
    unit: Unit,
    object: &Object,
    start: &[u8],
    end: Option<&[u8]>,
    out: &mut Vec<u8>,
) {
    let of = Of { cont, unit, life: Epoch::MAX, is_first: true };
    encode_part(of, object, Some((start, end)), false, out);
}

/// Appends the records of an object, all of which is in memory; without `head` only its past.
pub(crate) fn encode_object(
    cont: ContId,
    unit: Unit,
    object: &Object,
    head: bool,
    out: &mut Vec<u8>,
) {
    let mut is_first = true;
    for life in object.past.iter().flat_map(|past| &past.lives) {
        let of = Of { cont, unit, life: life.until, is_first };
        encode_part(of, &life.object, Some((b"", None)), true, out);
        is_first = false;
    }
    let of = Of { cont, unit, life: Epoch::MAX, is_first };
    encode_part(of, object, head.then_some((b"", None)), true, out);
}

/// What a part is of.
struct Of {
    cont: ContId,
    unit: Unit,
    life: Epoch,
    is_first: bool,
}

fn encode_part(
    of: Of,
    object: &Object,
    range: Option<(&[u8], Option<&[u8]>)>,
    with_past: bool,
    out: &mut Vec<u8>,
) {
    let taken: Vec<_> = range.map_or(Vec::new(), |(start, end)| object.range(start, end).collect());
    let past = object.past.as_ref().filter(|_| with_past);
    let bytes_of = |name: &DkeyName<'_>| match name {
        DkeyName::Number(number) => Some(number.to_le_bytes()),
        DkeyName::Bytes(_) => None,
    };
    let numbers: Vec<[u8; 8]> = taken.iter().filter_map(|(name, _)| bytes_of(name)).collect();
    let old_names: Vec<_> =
        past.iter().flat_map(|past| past.dkeys.iter()).map(|(o, _)| object.name_of(o)).collect();
    let old_numbers: Vec<[u8; 8]> = old_names.iter().filter_map(bytes_of).collect();
    let mut changes = Vec::with_capacity(taken.len());
    let mut touches = Vec::new();
    for (n, (name, dkey)) in taken.iter().enumerate() {
        let key: &[u8] = match name {
            DkeyName::Bytes(bytes) => bytes,
            DkeyName::Number(_) => &numbers[n],
        };
        let mut last = Epoch::ZERO;
        for (akey, value) in dkey.akeys() {
            last = add_value(key, akey, value, &mut changes, &mut touches);
        }
        if dkey.epoch() != last {
            touches.push(TouchDf::Dkey(key, dkey.epoch()));
        }
    }
    let mut removed = Vec::new();
    let old = past.iter().flat_map(|past| past.dkeys.iter());
    for (n, ((_, dkey), name)) in old.zip(&old_names).enumerate() {
        let key: &[u8] = match name {
            DkeyName::Bytes(bytes) => bytes,
            DkeyName::Number(_) => &old_numbers[n],
        };
        add_past(key, dkey, &mut removed);
    }
    let facts = past.iter().flat_map(|past| &past.facts).map(Facts::durable).collect();
    let Of { cont, unit, life, is_first } = of;
    let part = PartDf {
        cont,
        unit,
        life,
        is_first,
        changes,
        touches,
        epochs: (object.epoch, object.keys_epoch, object.born),
        facts,
        past: removed,
    };
    crate::record::encode_into(&RecordDf::Part(part), out);
}

/// Adds the changes that make one value; returns the dkey epoch they leave behind.
fn add_value<'a>(
    dkey: &'a [u8],
    akey: &'a [u8],
    value: AkeyRef<'a>,
    changes: &mut Vec<(Epoch, ChangeDf<'a>)>,
    touches: &mut Vec<TouchDf<'a>>,
) -> Epoch {
    match value {
        AkeyRef::Inline(epoch, value) => {
            changes.push((epoch, ChangeDf::Single { unit: Unit::NIL, dkey, akey, value }));
            epoch
        }
        AkeyRef::Runs(epoch, runs) => {
            let runs = runs.iter().map(|run| RunDf { at: run.at, bytes: run.bytes }).collect();
            changes.push((epoch, ChangeDf::SingleRuns { unit: Unit::NIL, dkey, akey, runs }));
            epoch
        }
        AkeyRef::Array(array) => {
            let mut last = Epoch::ZERO;
            for (index, extent) in array.iter() {
                let place = match &extent.place {
                    Place::Inline(bytes) => PlaceDf::Inline(bytes),
                    Place::Blocks(at) => PlaceDf::Blocks(*at),
                    Place::Zero => PlaceDf::Zero,
                    Place::Coded(stripe) => PlaceDf::Coded(*stripe),
                };
                let record_bytes = array.record_bytes;
                let count = extent.count;
                let unit = Unit::NIL;
                let change =
                    ChangeDf::Records { unit, dkey, akey, record_bytes, index, count, place };
                changes.push((extent.epoch, change));
                last = extent.epoch;
            }
            if array.epoch != last {
                touches.push(TouchDf::Akey(dkey, akey, array.epoch));
            }
            last
        }
        // The head holds no such values.
        AkeyRef::Old(_) => Epoch::ZERO,
    }
}

/// Adds the removed values of a dkey.
fn add_past<'a>(dkey: &'a [u8], past: &'a PastDkey, out: &mut Vec<(Epoch, Epoch, ChangeDf<'a>)>) {
    let unit = Unit::NIL;
    for (akey, values) in past.akeys.iter() {
        for piece in &values.singles {
            let change = match &piece.value {
                Single::Inline(value) => ChangeDf::Single { unit, dkey, akey, value },
                Single::Runs(runs) => {
                    let runs = runs.iter().map(|run| RunDf { at: run.at, bytes: run.bytes });
                    ChangeDf::SingleRuns { unit, dkey, akey, runs: runs.collect() }
                }
            };
            out.push((piece.created, piece.destroyed, change));
        }
        for (&(index, created), piece) in &values.extents {
            let place = match &piece.place {
                Place::Inline(bytes) => PlaceDf::Inline(bytes),
                Place::Blocks(at) => PlaceDf::Blocks(*at),
                Place::Zero => PlaceDf::Zero,
                Place::Coded(stripe) => PlaceDf::Coded(*stripe),
            };
            let (record_bytes, count) = (piece.record_bytes, piece.count);
            let change = ChangeDf::Records { unit, dkey, akey, record_bytes, index, count, place };
            out.push((created, piece.destroyed, change));
        }
    }
}

impl Object {
    /// Takes in a record, into an object that holds nothing of its range yet. `Csum` when it is
    /// not one of this object.
    pub(crate) fn absorb(&mut self, unit: Unit, part: &PartDf<'_>) -> Result<()> {
        let bad =
            || Error::new(Code::Csum, format!("a page of object {unit} holds what it cannot"));
        let past = part.past.iter().map(|(_, _, change)| change);
        for change in part.changes.iter().map(|(_, change)| change).chain(past) {
            crate::change_df::check_change(change)?;
            match change {
                ChangeDf::Single { dkey, .. }
                | ChangeDf::SingleRuns { dkey, .. }
                | ChangeDf::Records { dkey, .. } => crate::keys::check_dkey(unit, dkey)?,
                _ => return Err(bad()),
            }
        }
        let mut effects = Effects { keep_apart: true, ..Effects::default() };
        let object = match part.life {
            Epoch::MAX => &mut *self,
            until => self.life_mut(until, &mut effects),
        };
        object.absorb_own(part, &mut effects);
        // Nothing in a page may replace something else in it.
        if effects.blocks.is_empty() { Ok(()) } else { Err(bad()) }
    }

    fn absorb_own(&mut self, part: &PartDf<'_>, effects: &mut Effects) {
        let bytes_before = effects.bytes;
        for (epoch, change) in &part.changes {
            if let Some((_, dkey, akey, value)) = super::new_value(change) {
                self.set(dkey, akey, value, *epoch, effects);
            }
        }
        for (created, destroyed, change) in &part.past {
            let Some((_, dkey, akey, value)) = super::new_value(change) else { continue };
            let value = value.into_past();
            let order = self.order_key(dkey);
            let (created, destroyed) = (*created, *destroyed);
            let piece = Kept { akey: Key::new(akey), created, destroyed, value };
            Past::of(&mut self.past, effects).insert(&order, piece, effects);
        }
        for touch in &part.touches {
            match touch {
                TouchDf::Akey(dkey, akey, epoch) => self.touch(dkey, Some(akey), *epoch),
                TouchDf::Dkey(dkey, epoch) => self.touch(dkey, None, *epoch),
            }
        }
        (self.epoch, self.keys_epoch, self.born) = part.epochs;
        if !part.facts.is_empty() {
            let past = Past::of(&mut self.past, effects);
            past.facts = part.facts.iter().map(Facts::from_durable).collect();
        }
        self.count_bytes(effects.bytes - bytes_before);
    }

    /// The life that ended at `until`, made if it is not there.
    fn life_mut(&mut self, until: Epoch, effects: &mut Effects) -> &mut Object {
        let kind = self.kind();
        let past = Past::of(&mut self.past, effects);
        let at = past.lives.partition_point(|life| life.until < until);
        if past.lives.get(at).is_none_or(|life| life.until != until) {
            effects.scm += cost::OBJECT as i64;
            past.lives.insert(at, Life { until, object: Box::new(Object::new(kind)) });
        }
        &mut past.lives[at].object
    }
}

impl NewValue<'_> {
    /// The value as the past keeps it.
    pub(crate) fn into_past(self) -> PastValue {
        match self {
            NewValue::Single(Single::Inline(bytes)) => {
                PastValue::Single(Single::Inline(bytes.into()))
            }
            NewValue::Single(Single::Runs(runs)) => PastValue::Single(Single::Runs(runs)),
            NewValue::Records { record_bytes, index, count, place } => {
                PastValue::Extent { record_bytes, index, count, place }
            }
        }
    }
}

impl Facts {
    pub(crate) fn durable(&self) -> FactsDf {
        FactsDf {
            until: self.until,
            epoch: self.epoch,
            keys_epoch: self.keys_epoch,
            bytes_used: self.bytes_used,
            dkey_count: self.dkey_count,
            counted_links: self.counted_links,
        }
    }

    pub(crate) fn from_durable(df: &FactsDf) -> Facts {
        Facts {
            until: df.until,
            epoch: df.epoch,
            keys_epoch: df.keys_epoch,
            bytes_used: df.bytes_used,
            dkey_count: df.dkey_count,
            counted_links: df.counted_links,
        }
    }
}

impl Index {
    /// Counts the memory of all content anew, taking the word of pages that are not in memory;
    /// tests compare it with the running count.
    pub(crate) fn scm_bytes_recounted(&self) -> u64 {
        let mut scm = 0;
        for container in self.conts.values() {
            for bucket in container.buckets() {
                if bucket.page.absent {
                    scm += bucket.page.counts.scm;
                }
                scm += bucket.objects.values().map(|object| object.scm_bytes()).sum::<u64>();
            }
            for object in container.large.values() {
                scm += object.scm_bytes();
                let parts = object.parts.iter().flat_map(|parts| parts.pages.iter());
                scm +=
                    parts.filter(|(_, page)| page.absent).map(|(_, p)| p.counts.scm).sum::<u64>();
            }
        }
        scm
    }
}
