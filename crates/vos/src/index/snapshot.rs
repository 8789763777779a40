//! Parts of an object as records, for log compaction, and their replay.
//!
//! A part covers the dkeys after one position up to another. Replay first removes what is in
//! that range, so a part is right whatever came before it: with the whole log it changes
//! nothing, without it makes the state.

use std::ops::Bound;

use types::{ContId, Epoch, Key, Oid};

use super::extent::Place;
use super::object::{Object, Position};
use super::past::{Facts, Kept, Life, Order, Past, PastDkey, PastValue, drop_if_empty};
use super::slot::{AkeyRef, NewValue, Single};
use super::{Container, Effects, Index, cost};
use crate::record::{ChangeDf, FactsDf, PartDf, PlaceDf, RecordDf, RunDf, TouchDf};
use crate::space::Run;

/// A part may grow a little beyond this, bytes.
const PART_BYTES: usize = 64 << 10;

/// Where a walk over the parts of an object goes on.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartAt {
    /// The life it is in, by its end; [`Epoch::MAX`]: the present one.
    life: Epoch,
    /// After this dkey.
    from: Option<Vec<u8>>,
    /// The last of the earlier lives when the walk came to the present one.
    lives_until: Epoch,
    is_later: bool,
}

/// One part of an object, ready to be logged.
pub(crate) struct Part {
    /// Where the next begins; `None` when the object ends here.
    pub next: Option<PartAt>,
    /// The encoded record.
    pub record: Vec<u8>,
}

impl Container {
    /// The part of an object at `at`; an absent object gives an empty part. The walk begins at the
    /// default, and may be continued whatever became of the object meanwhile.
    pub(crate) fn part(&self, cont: ContId, oid: Oid, at: &PartAt) -> Part {
        let whole = self.objects.get(&oid);
        let lives = whole.and_then(|object| object.past.as_ref()).map_or(&[][..], |p| &p.lives);
        let mut at = at.clone();
        if at.life == Epoch::MAX
            && let Some(ended) = lives.iter().find(|life| life.until > at.lives_until)
        {
            // It was punched since: what was the present is a life now.
            at = PartAt { life: ended.until, is_later: true, ..PartAt::default() };
        }
        let life = lives.iter().find(|life| life.until >= at.life);
        let until = life.map_or(Epoch::MAX, |life| life.until);
        if until != at.life {
            at = PartAt { life: until, from: None, ..at };
        }
        let object = life.map(|life| &*life.object).or(whole.map(|object| &**object));
        let from = at.from.as_deref();
        let Some(object) = object else {
            let part = PartDf::new(cont, oid, &at, &[], &[]);
            return Part { next: None, record: encoded(part) };
        };
        let (range, to) = range_of(object, from);
        let mut changes = Vec::new();
        let mut touches = Vec::new();
        let mut past = Vec::new();
        for (dkey, head, old) in &range {
            if let Some(head) = head {
                let mut last = Epoch::ZERO;
                for (akey, value) in head.akeys() {
                    last = add_value(oid, dkey, akey, value, &mut changes, &mut touches);
                }
                if head.epoch() != last {
                    touches.push(TouchDf::Dkey(dkey, head.epoch()));
                }
            }
            if let Some(old) = old {
                add_past(oid, dkey, old, &mut past);
            }
        }
        let (from, to_tagged) =
            (from.map(tagged).unwrap_or_default(), to.as_deref().map(tagged).unwrap_or_default());
        let mut part = PartDf::new(cont, oid, &at, &from, &to_tagged);
        part.changes = changes;
        part.touches = touches;
        part.past = past;
        part.epochs = (object.epoch, object.keys_epoch, object.born);
        let facts = object.past.iter().flat_map(|past| &past.facts);
        part.facts = facts.map(|facts| facts.durable()).collect();
        let record = encoded(part);
        let next = match (to, life) {
            (Some(to), _) => Some(PartAt { from: Some(to), is_later: true, ..at }),
            (None, None) => None,
            (None, Some(life)) => {
                let after = Epoch(life.until.0.saturating_add(1));
                let more = lives.iter().any(|other| other.until >= after);
                let next = if more { after } else { Epoch::MAX };
                let lives_until = lives.last().map_or(Epoch::ZERO, |life| life.until);
                Some(PartAt { life: next, from: None, lives_until, is_later: true })
            }
        };
        let next = next.map(|next| match next.life {
            Epoch::MAX if at.life != Epoch::MAX => next,
            Epoch::MAX => PartAt { lives_until: at.lives_until, ..next },
            _ => next,
        });
        Part { next, record }
    }
}

impl<'a> PartDf<'a> {
    fn new(cont: ContId, oid: Oid, at: &PartAt, from: &'a [u8], to: &'a [u8]) -> PartDf<'a> {
        PartDf {
            cont,
            oid,
            life: at.life,
            is_first: !at.is_later,
            from,
            to,
            changes: Vec::new(),
            touches: Vec::new(),
            epochs: (Epoch::ZERO, Epoch::ZERO, Epoch::MAX),
            facts: Vec::new(),
            past: Vec::new(),
        }
    }
}

fn encoded(part: PartDf<'_>) -> Vec<u8> {
    let mut encoded = Vec::new();
    crate::record::encode_into(&RecordDf::Part(part), &mut encoded);
    encoded
}

/// A dkey, what the head holds of it, and what the past does.
type Ranged<'a> = (Vec<u8>, Option<super::slot::DkeyRef<'a>>, Option<&'a PastDkey>);

/// The dkeys after `from` that make one part, and the last of them unless they are all.
fn range_of<'a>(object: &'a Object, from: Option<&[u8]>) -> (Vec<Ranged<'a>>, Option<Vec<u8>>) {
    let position = from.map_or(Position::Start, Position::After);
    let mut head = object.dkeys_after(position, (0, u64::MAX)).peekable();
    let after = from.map(|from| object.order_key(from));
    let bound = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
    let mut past = object.past.iter().flat_map(|past| past.dkeys_from(bound)).peekable();
    let (mut taken, mut bytes) = (Vec::new(), 0);
    loop {
        let order = match (head.peek(), past.peek()) {
            (None, None) => return (taken, None),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some((name, _)), Some((other, _))) => {
                object.order_of(*name).cmp(&(other.0, &other.1[..]))
            }
        };
        let now = if order.is_le() { head.next() } else { None };
        let old = if order.is_ge() { past.next() } else { None };
        let name = match (&now, &old) {
            (Some((name, _)), _) => name.with_bytes(<[u8]>::to_vec),
            (None, Some((order, _))) => object.name_of(order).with_bytes(<[u8]>::to_vec),
            (None, None) => return (taken, None),
        };
        bytes += name.len()
            + now.as_ref().map_or(0, |(_, dkey)| weight(*dkey))
            + old.map_or(0, |(_, dkey)| dkey.scm_bytes() as usize);
        taken.push((name.clone(), now.map(|(_, dkey)| dkey), old.map(|(_, dkey)| dkey)));
        if bytes >= PART_BYTES && (head.peek().is_some() || past.peek().is_some()) {
            return (taken, Some(name));
        }
    }
}

/// A dkey with one byte in front, so that the empty dkey differs from "no dkey".
fn tagged(dkey: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(dkey.len() + 1);
    out.push(1);
    out.extend_from_slice(dkey);
    out
}

/// Bytes a dkey adds to a part, about.
fn weight(dkey: super::slot::DkeyRef<'_>) -> usize {
    dkey.akeys()
        .map(|(akey, value)| {
            akey.len()
                + 40
                + match value {
                    AkeyRef::Inline(_, bytes) => bytes.len(),
                    AkeyRef::Runs(_, runs) => runs.len() * 12,
                    AkeyRef::Array(array) => array.scm_bytes() as usize,
                    AkeyRef::Old(_) => 0,
                }
        })
        .sum()
}

/// Adds the changes that make one value; returns the dkey epoch they leave behind.
fn add_value<'a>(
    oid: Oid,
    dkey: &'a [u8],
    akey: &'a [u8],
    value: AkeyRef<'a>,
    changes: &mut Vec<(Epoch, ChangeDf<'a>)>,
    touches: &mut Vec<TouchDf<'a>>,
) -> Epoch {
    match value {
        AkeyRef::Inline(epoch, value) => {
            changes.push((epoch, ChangeDf::Single { oid, dkey, akey, value }));
            epoch
        }
        AkeyRef::Runs(epoch, runs) => {
            let runs = runs.iter().map(|run| RunDf { at: run.at, bytes: run.bytes }).collect();
            changes.push((epoch, ChangeDf::SingleRuns { oid, dkey, akey, runs }));
            epoch
        }
        AkeyRef::Array(array) => {
            let mut last = Epoch::ZERO;
            for (index, extent) in array.iter() {
                let place = match &extent.place {
                    Place::Inline(bytes) => PlaceDf::Inline(bytes),
                    Place::Blocks(at) => PlaceDf::Blocks(*at),
                    Place::Zero => PlaceDf::Zero,
                };
                let record_bytes = array.record_bytes;
                let count = extent.count;
                let change =
                    ChangeDf::Records { oid, dkey, akey, record_bytes, index, count, place };
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
fn add_past<'a>(
    oid: Oid,
    dkey: &'a [u8],
    past: &'a PastDkey,
    out: &mut Vec<(Epoch, Epoch, ChangeDf<'a>)>,
) {
    for (akey, values) in past.akeys.iter() {
        for piece in &values.singles {
            let change = match &piece.value {
                Single::Inline(value) => ChangeDf::Single { oid, dkey, akey, value },
                Single::Runs(runs) => {
                    let runs = runs.iter().map(|run| RunDf { at: run.at, bytes: run.bytes });
                    ChangeDf::SingleRuns { oid, dkey, akey, runs: runs.collect() }
                }
            };
            out.push((piece.created, piece.destroyed, change));
        }
        for (&(index, created), piece) in &values.extents {
            let place = match &piece.place {
                Place::Inline(bytes) => PlaceDf::Inline(bytes),
                Place::Blocks(at) => PlaceDf::Blocks(*at),
                Place::Zero => PlaceDf::Zero,
            };
            let (record_bytes, count) = (piece.record_bytes, piece.count);
            let change = ChangeDf::Records { oid, dkey, akey, record_bytes, index, count, place };
            out.push((created, piece.destroyed, change));
        }
    }
}

fn place_of(place: PlaceDf<'_>) -> Place {
    match place {
        PlaceDf::Inline(bytes) => Place::Inline(bytes.into()),
        PlaceDf::Blocks(at) => Place::Blocks(at),
        PlaceDf::Zero => Place::Zero,
    }
}

fn runs_of(runs: &[RunDf]) -> Box<[Run]> {
    runs.iter().map(|run| Run { at: run.at, bytes: run.bytes }).collect()
}

impl Object {
    /// Makes the part's range exactly what the part says.
    fn replay(&mut self, part: &PartDf<'_>, effects: &mut Effects) {
        let bytes_before = effects.bytes;
        let position = part.from.get(1..).map_or(Position::Start, Position::After);
        let to = part.to.get(1..).map(|to| self.order_key(to));
        let mut gone = Vec::new();
        for (name, _) in self.dkeys_after(position, (0, u64::MAX)) {
            let name = name.with_bytes(<[u8]>::to_vec);
            if to.as_ref().is_some_and(|to| self.order_key(&name) > *to) {
                break;
            }
            gone.push(name);
        }
        for dkey in &gone {
            self.punch_dkey(dkey, Epoch::ZERO, effects);
        }
        let from = part.from.get(1..).map(|from| self.order_key(from));
        if let Some(past) = &mut self.past {
            let bound = from.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let gone: Vec<Order> = past
                .dkeys_from(bound)
                .map(|(order, _)| order.clone())
                .take_while(|order| to.as_ref().is_none_or(|to| order <= to))
                .collect();
            gone.iter().for_each(|order| past.remove_dkey(order, effects));
        }
        for (epoch, change) in &part.changes {
            let (dkey, akey, value) = match *change {
                ChangeDf::Single { dkey, akey, value, .. } => {
                    (dkey, akey, NewValue::Single(Single::Inline(value)))
                }
                ChangeDf::SingleRuns { dkey, akey, ref runs, .. } => {
                    (dkey, akey, NewValue::Single(Single::Runs(runs_of(runs))))
                }
                ChangeDf::Records { dkey, akey, record_bytes, index, count, place, .. } => {
                    let place = place_of(place);
                    (dkey, akey, NewValue::Records { record_bytes, index, count, place })
                }
                // No part holds removals.
                _ => continue,
            };
            self.set(dkey, akey, value, *epoch, effects);
        }
        for (created, destroyed, change) in &part.past {
            let (dkey, akey, value) = match *change {
                ChangeDf::Single { dkey, akey, value, .. } => {
                    (dkey, akey, PastValue::Single(Single::Inline(value.into())))
                }
                ChangeDf::SingleRuns { dkey, akey, ref runs, .. } => {
                    (dkey, akey, PastValue::Single(Single::Runs(runs_of(runs))))
                }
                ChangeDf::Records { dkey, akey, record_bytes, index, count, place, .. } => {
                    let place = place_of(place);
                    (dkey, akey, PastValue::Extent { record_bytes, index, count, place })
                }
                _ => continue,
            };
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
        if !part.facts.is_empty() || self.past.is_some() {
            let past = Past::of(&mut self.past, effects);
            let facts_before = past.facts.len();
            past.facts = part.facts.iter().map(Facts::from_durable).collect();
            effects.scm += cost::FACTS as i64 * (past.facts.len() as i64 - facts_before as i64);
        }
        drop_if_empty(&mut self.past, effects);
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

    fn drop_lives(&mut self, effects: &mut Effects) {
        if let Some(past) = &mut self.past {
            for life in past.lives.drain(..) {
                effects.scm -= cost::OBJECT as i64;
                life.object.release(effects);
            }
        }
        drop_if_empty(&mut self.past, effects);
    }
}

impl Facts {
    fn durable(&self) -> FactsDf {
        FactsDf {
            until: self.until,
            epoch: self.epoch,
            keys_epoch: self.keys_epoch,
            bytes_used: self.bytes_used,
            dkey_count: self.dkey_count,
        }
    }

    fn from_durable(df: &FactsDf) -> Facts {
        Facts {
            until: df.until,
            epoch: df.epoch,
            keys_epoch: df.keys_epoch,
            bytes_used: df.bytes_used,
            dkey_count: df.dkey_count,
        }
    }
}

impl Index {
    /// Replays a part. What it changes is of the part's object, which the caller has checked.
    pub(crate) fn replay_part(&mut self, part: &PartDf<'_>) {
        let mut effects = Effects { keep_apart: true, ..Effects::default() };
        let Some(container) = self.conts.get_mut(&part.cont) else { return };
        let object = container.objects.entry(part.oid).or_insert_with(|| {
            effects.scm += cost::OBJECT as i64;
            Box::new(Object::new(part.oid.dkey_kind()))
        });
        let dkeys_before = object.dkey_count;
        if part.is_first {
            object.drop_lives(&mut effects);
        }
        if part.life == Epoch::MAX {
            object.replay(part, &mut effects);
        } else {
            object.life_mut(part.life, &mut effects).replay(part, &mut effects);
        }
        self.dkey_count = self.dkey_count - dkeys_before + object.dkey_count;
        self.object_count =
            self.object_count + (object.dkey_count > 0) as u64 - (dkeys_before > 0) as u64;
        if object.is_gone() {
            object.forget_facts(&mut effects);
            container.objects.remove(&part.oid);
            effects.scm -= cost::OBJECT as i64;
        }
        if part.life < Epoch::MAX {
            // Whether it was swept is not told; looking costs little.
            container.unswept.insert(part.oid);
        }
        container.note_past(part.oid);
        self.count_scm(effects.scm);
    }

    /// Counts the memory of all content anew; tests compare it with the running count.
    pub(crate) fn scm_bytes_recounted(&self) -> u64 {
        let mut effects = Effects::default();
        for object in self.conts.values().flat_map(|cont| cont.objects.values()) {
            effects.scm -= cost::OBJECT as i64;
            object.release(&mut effects);
        }
        effects.scm.unsigned_abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{ObjClass, ObjType};

    /// A big object was punched and the log compacted before its space had come back: without
    /// the record of the punch, nobody knew that it was to be swept.
    #[test]
    fn a_life_that_is_replayed_is_swept() {
        let (cont, mut effects) = (ContId(1), Effects::default());
        let oid = Oid::generate(0, 1, ObjType::MultiHashed, ObjClass::S1, 0);
        let mut index = Index::default();
        index.conts.entry(cont).or_default();
        for n in 0..2000u64 {
            let dkey = n.to_be_bytes();
            let change = ChangeDf::Single { oid, dkey: &dkey, akey: b"a", value: b"value" };
            index.apply(cont, Epoch(n + 1), &change, &mut effects);
        }
        index.apply(cont, Epoch(3000), &ChangeDf::PunchObj { oid }, &mut effects);
        assert!(index.conts[&cont].object(oid).is_none());
        assert!(index.conts[&cont].is_unswept());

        let mut replayed = Index::default();
        replayed.conts.entry(cont).or_default();
        let mut at = Some(PartAt::default());
        let mut count = 0;
        while let Some(now) = at {
            let part = index.conts[&cont].part(cont, oid, &now);
            let mut record = &part.record[..];
            match crate::record::decode_first(&mut record).unwrap() {
                RecordDf::Part(part) => replayed.replay_part(&part),
                other => panic!("{other:?}"),
            }
            (at, count) = (part.next, count + 1);
        }
        assert!(count > 2, "{count} parts");
        assert_eq!(replayed.scm_bytes, index.scm_bytes);
        for index in [&mut index, &mut replayed] {
            assert!(index.conts[&cont].is_unswept());
            let mut at = Some(super::super::past::SweepAt::start());
            while let Some(now) = at {
                at = index.sweep(cont, oid, &now, 100, &mut Effects::default());
            }
            assert_eq!((index.scm_bytes, index.object_count, index.dkey_count), (0, 0, 0));
            assert!(!index.conts[&cont].is_unswept());
        }
    }
}
