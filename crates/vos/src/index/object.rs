//! One object's shard: its dkeys in their order.
//!
//! Order: hashed dkeys by (hash, bytes); integer dkeys by value; lexical dkeys by bytes. A
//! [`Position`] names a place in that order that stays meaningful whatever is inserted or
//! removed, which is what makes listings stable.
//!
//! Invariants: `dkey_count`, `array_dkeys`, `counted_links` and `bytes_used` match the content; an object in a
//! container has at least one dkey between changes, or is a *tombstone*: it has a past only, and
//! nobody but snapshots sees it.

pub(crate) mod ranges;

use std::ops::Bound;

use types::{DkeyKind, Epoch, Key, hash};

use super::Effects;
use super::parts::Parts;
use super::past::{Order, Past};
use super::slot::{DkeyRef, NewValue, Rest, Slot};
use crate::index::ordered::OrdMap;

/// An object's shard.
#[derive(Debug)]
pub(crate) struct Object {
    /// Last change, of an array's record ([`super::is_record`]) aside.
    pub epoch: Epoch,
    /// Last change of the set of dkeys, that aside.
    pub keys_epoch: Epoch,
    /// Bytes of user data.
    pub bytes_used: u64,
    pub dkey_count: u64,
    /// First change; [`Epoch::MAX`] before it.
    pub born: Epoch,
    /// What it was, as far as snapshots see it.
    pub past: Option<Box<Past>>,
    /// Dkeys with an array under the empty akey.
    array_dkeys: u64,
    /// Links that ask to be counted; see [`wire::link`].
    pub counted_links: u64,
    dkeys: Dkeys,
    /// Which of them are in memory, when the object is large; else all are.
    pub parts: Option<Box<Parts>>,
}

#[derive(Debug)]
enum Dkeys {
    /// By hash; the slots hold the keys.
    Hashed(OrdMap<u64, Slot>),
    /// By value; the slots hold no keys.
    Number(OrdMap<u64, Slot>),
    /// By bytes; the slots hold no keys.
    Lexical(OrdMap<Key, Slot>),
}

/// The name of a dkey as it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DkeyName<'a> {
    Bytes(&'a [u8]),
    /// An integer; its bytes are little-endian.
    Number(u64),
}

impl DkeyName<'_> {
    /// Calls `with` with the bytes.
    pub(crate) fn with_bytes<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            DkeyName::Bytes(bytes) => with(bytes),
            DkeyName::Number(number) => with(&number.to_le_bytes()),
        }
    }
}

/// A place between dkeys: before all, or right after one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Position<'a> {
    Start,
    /// After this key, which need not be there (any more).
    After(&'a [u8]),
}

/// Dkeys with their names.
pub(crate) type DkeyIter<'a> = Box<dyn Iterator<Item = (DkeyName<'a>, DkeyRef<'a>)> + 'a>;

/// An integer dkey's value; `None` when it has not eight bytes.
pub(crate) fn number_of(dkey: &[u8]) -> Option<u64> {
    dkey.try_into().ok().map(u64::from_le_bytes)
}

/// Test builds can make all hashes collide in one byte's worth of values.
fn hash_of(dkey: &[u8]) -> u64 {
    #[cfg(test)]
    if tests::COLLIDE.get() {
        return hash::bytes(dkey) & 3;
    }
    hash::bytes(dkey)
}

impl Object {
    pub(crate) fn new(kind: DkeyKind) -> Object {
        let dkeys = match kind {
            DkeyKind::Hashed => Dkeys::Hashed(OrdMap::default()),
            DkeyKind::U64 => Dkeys::Number(OrdMap::default()),
            DkeyKind::Lexical => Dkeys::Lexical(OrdMap::default()),
        };
        Object {
            epoch: Epoch::ZERO,
            keys_epoch: Epoch::ZERO,
            bytes_used: 0,
            dkey_count: 0,
            born: Epoch::MAX,
            past: None,
            array_dkeys: 0,
            counted_links: 0,
            dkeys,
            parts: None,
        }
    }

    /// How its dkeys are ordered.
    pub(crate) fn kind(&self) -> DkeyKind {
        match &self.dkeys {
            Dkeys::Hashed(_) => DkeyKind::Hashed,
            Dkeys::Number(_) => DkeyKind::U64,
            Dkeys::Lexical(_) => DkeyKind::Lexical,
        }
    }

    /// Where a dkey is in the order of dkeys.
    pub(crate) fn order_key(&self, dkey: &[u8]) -> Order {
        match &self.dkeys {
            Dkeys::Hashed(_) => (hash_of(dkey), Key::new(dkey)),
            Dkeys::Number(_) => (number_of(dkey).unwrap_or(0), Key::default()),
            Dkeys::Lexical(_) => (0, Key::new(dkey)),
        }
    }

    /// The dkey at a place in the order.
    pub(crate) fn name_of<'a>(&self, order: &'a Order) -> DkeyName<'a> {
        match &self.dkeys {
            Dkeys::Number(_) => DkeyName::Number(order.0),
            _ => DkeyName::Bytes(&order.1),
        }
    }

    /// Takes what a change of a dkey has removed, and a snapshot sees, to the past.
    fn keep(&mut self, dkey: &[u8], effects: &mut Effects) {
        if !effects.kept.is_empty() {
            let order = self.order_key(dkey);
            Past::of(&mut self.past, effects).take_kept(order, effects);
        }
    }

    /// Something has changed.
    fn note_change(&mut self, epoch: Epoch, effects: &Effects) {
        if !effects.is_record {
            self.epoch = epoch;
        }
    }

    /// The set of dkeys has changed, unless they only move between units of the object.
    fn note_keys(&mut self, epoch: Epoch, effects: &Effects) {
        if !effects.is_move && !effects.is_record {
            self.keys_epoch = epoch;
        }
    }

    pub(crate) fn count_bytes(&mut self, delta: i64) {
        self.bytes_used = self
            .bytes_used
            .checked_add_signed(delta)
            .expect("more bytes released than were ever stored");
    }

    /// The dkey, if it is there.
    pub(crate) fn dkey(&self, dkey: &[u8]) -> Option<DkeyRef<'_>> {
        if !self.reach(dkey) {
            return None;
        }
        match &self.dkeys {
            Dkeys::Hashed(map) => match map.get(&hash_of(dkey))? {
                Slot::One(one) => (one.key() == dkey).then_some(DkeyRef::One(one)),
                slot => slot.dkeys().find(|found| found.key() == dkey),
            },
            Dkeys::Number(map) => map.get(&number_of(dkey)?).map(Slot::only),
            Dkeys::Lexical(map) => map.get(dkey).map(Slot::only),
        }
    }

    /// Sets a value, making the dkey if need be.
    pub(crate) fn set(
        &mut self,
        dkey: &[u8],
        akey: &[u8],
        value: NewValue<'_>,
        epoch: Epoch,
        effects: &mut Effects,
    ) {
        self.note_change(epoch, effects);
        let mut value = Some(value);
        let make = |key: &[u8], effects: &mut Effects, value: &mut Option<NewValue<'_>>| {
            effects.scm += dkey.len() as i64;
            let value = value.take().expect("a value is set once");
            Slot::new(key, akey, value, epoch, effects)
        };
        let array_akey = akey.is_empty();
        let (slot, new) = match &mut self.dkeys {
            Dkeys::Hashed(map) => {
                let (slot, new) =
                    map.get_or_insert_with(hash_of(dkey), || make(dkey, effects, &mut value));
                if new {
                    (slot, true)
                } else {
                    member(slot, dkey, || make(dkey, effects, &mut value))
                }
            }
            Dkeys::Number(map) => {
                let number = number_of(dkey).expect("integer dkeys are checked before");
                map.get_or_insert_with(number, || make(b"", effects, &mut value))
            }
            Dkeys::Lexical(map) => {
                map.get_or_insert_with(Key::new(dkey), || make(b"", effects, &mut value))
            }
        };
        let had_array = !new && array_akey && slot.only().has_array();
        let had_link = !new && slot.only().counts_link(akey);
        if let Some(value) = value {
            slot.set(akey, value, epoch, effects);
        }
        let has_array = array_akey && slot.only().has_array();
        let has_link = slot.only().counts_link(akey);
        if new {
            self.dkey_count += 1;
            self.note_keys(epoch, effects);
        }
        self.array_dkeys = self.array_dkeys + has_array as u64 - had_array as u64;
        self.counted_links = self.counted_links + has_link as u64 - had_link as u64;
        self.keep(dkey, effects);
    }

    /// Removes a dkey; no effect when it is not there.
    pub(crate) fn punch_dkey(&mut self, dkey: &[u8], epoch: Epoch, effects: &mut Effects) {
        let removed = match &mut self.dkeys {
            Dkeys::Hashed(map) => {
                let hash = hash_of(dkey);
                let Some(slot) = map.get_mut(&hash) else { return };
                if let Some(members) = slot.bucket() {
                    let at = members.iter().position(|slot| slot.only().key() == dkey);
                    let Some(at) = at else { return };
                    let gone = members.remove(at);
                    if members.len() == 1
                        && let Some(last) = members.pop()
                    {
                        *slot = last;
                    }
                    Some(gone)
                } else if slot.only().key() == dkey {
                    map.remove(&hash)
                } else {
                    None
                }
            }
            Dkeys::Number(map) => number_of(dkey).and_then(|number| map.remove(&number)),
            Dkeys::Lexical(map) => map.remove(dkey),
        };
        if let Some(slot) = removed {
            self.removed(&slot, dkey, epoch, effects);
        }
    }

    /// Removes integer dkeys from `from` upwards.
    pub(crate) fn punch_from(&mut self, from: u64, epoch: Epoch, effects: &mut Effects) {
        loop {
            let Dkeys::Number(map) = &mut self.dkeys else { return };
            let Some(last) = map.last().map(|(&last, _)| last).filter(|&last| last >= from) else {
                return;
            };
            let Some(slot) = map.remove(&last) else { return };
            self.removed(&slot, &last.to_le_bytes(), epoch, effects);
        }
    }

    fn removed(&mut self, slot: &Slot, dkey: &[u8], epoch: Epoch, effects: &mut Effects) {
        let gone = slot.only();
        self.note_change(epoch, effects);
        self.note_keys(epoch, effects);
        self.dkey_count -= 1;
        self.array_dkeys -= gone.has_array() as u64;
        self.counted_links -= gone.counted_links();
        gone.remove(dkey.len(), epoch, effects);
        self.keep(dkey, effects);
    }

    /// Removes an akey, and the dkey with its last one; no effect when it is not there.
    pub(crate) fn punch_akey(
        &mut self,
        dkey: &[u8],
        akey: &[u8],
        epoch: Epoch,
        effects: &mut Effects,
    ) {
        self.shrink_dkey(dkey, akey, epoch, effects, |full, effects| {
            full.remove_akey(akey, epoch, effects)
        });
    }

    /// Removes records; an array left empty goes away, and the dkey with its last akey.
    pub(crate) fn punch_records(
        &mut self,
        dkey: &[u8],
        akey: &[u8],
        index: u64,
        count: u64,
        epoch: Epoch,
        effects: &mut Effects,
    ) {
        self.shrink_dkey(dkey, akey, epoch, effects, |full, effects| {
            full.punch_records(akey, index, count, epoch, effects)
        });
    }

    fn shrink_dkey(
        &mut self,
        dkey: &[u8],
        akey: &[u8],
        epoch: Epoch,
        effects: &mut Effects,
        run: impl FnOnce(&mut super::slot::Dkey, &mut Effects) -> bool,
    ) {
        let Some(slot) = self.slot_mut(dkey) else { return };
        if slot.only().akey(akey).is_none() {
            return;
        }
        let had_array = akey.is_empty() && slot.only().has_array();
        let had_link = slot.only().counts_link(akey);
        if !run(slot.full(), effects) {
            return;
        }
        let has_array = akey.is_empty() && slot.only().has_array();
        let has_link = slot.only().counts_link(akey);
        let empty = slot.only().akeys().next().is_none();
        self.array_dkeys -= (had_array && !has_array) as u64;
        self.counted_links -= (had_link && !has_link) as u64;
        self.note_change(epoch, effects);
        self.keep(dkey, effects);
        if empty {
            self.punch_dkey(dkey, epoch, effects);
        }
    }

    /// The slot of a dkey that is there; never a bucket.
    pub(super) fn slot_mut(&mut self, dkey: &[u8]) -> Option<&mut Slot> {
        match &mut self.dkeys {
            Dkeys::Hashed(map) => {
                let slot = map.get_mut(&hash_of(dkey))?;
                let at = slot.dkeys().position(|found| found.key() == dkey)?;
                if slot.bucket().is_some() {
                    return slot.bucket().map(|members| &mut members[at]);
                }
                Some(slot)
            }
            Dkeys::Number(map) => map.get_mut(&number_of(dkey)?),
            Dkeys::Lexical(map) => map.get_mut(dkey),
        }
    }

    /// Sets a dkey's epoch (and an array's), while a snapshot is replayed.
    pub(crate) fn touch(&mut self, dkey: &[u8], akey: Option<&[u8]>, epoch: Epoch) {
        let Some(slot) = self.slot_mut(dkey) else { return };
        let full = slot.full();
        match akey {
            None => full.epoch = epoch,
            Some(akey) => {
                if let Some(super::slot::Akey::Array(array)) = full.akeys.get_mut(akey) {
                    array.epoch = epoch;
                }
            }
        }
    }

    /// Dkeys after a position, in order. For hashed dkeys only those whose hash is in
    /// `hash_range` (both ends inclusive).
    pub(crate) fn dkeys_after<'a>(
        &'a self,
        position: Position<'_>,
        hash_range: (u64, u64),
    ) -> DkeyIter<'a> {
        match &self.parts {
            None => self.all_after(position, hash_range),
            Some(_) => self.present_after(position, hash_range),
        }
    }

    /// The same among what is in memory.
    fn all_after<'a>(&'a self, position: Position<'_>, hash_range: (u64, u64)) -> DkeyIter<'a> {
        match &self.dkeys {
            Dkeys::Hashed(map) => {
                let (first, skip) = match position {
                    Position::Start => (0, None),
                    Position::After(key) => (hash_of(key), Some(key.to_vec())),
                };
                let from = first.max(hash_range.0);
                let skip = skip.filter(|_| first == from);
                Box::new(
                    map.range(Bound::Included(&from), Bound::Included(&hash_range.1))
                        .flat_map(|(&hash, slot)| slot.dkeys().map(move |dkey| (hash, dkey)))
                        .skip_while(move |(hash, dkey)| {
                            skip.as_ref()
                                .is_some_and(|key| *hash == first && dkey.key() <= &key[..])
                        })
                        .map(|(_, dkey)| (DkeyName::Bytes(dkey.key()), dkey)),
                )
            }
            Dkeys::Number(map) => {
                let from = match position {
                    Position::After(key) => number_of(key),
                    Position::Start => None,
                };
                let bound = from.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
                Box::new(
                    map.range(bound, Bound::Unbounded)
                        .map(|(&number, slot)| (DkeyName::Number(number), slot.only())),
                )
            }
            Dkeys::Lexical(map) => {
                let bound = match position {
                    Position::After(key) => Bound::Excluded(key),
                    Position::Start => Bound::Unbounded,
                };
                Box::new(
                    map.range::<[u8]>(bound, Bound::Unbounded)
                        .map(|(key, slot)| (DkeyName::Bytes(key), slot.only())),
                )
            }
        }
    }

    /// All dkeys, in order.
    pub(crate) fn dkeys(&self) -> DkeyIter<'_> {
        self.dkeys_after(Position::Start, (0, u64::MAX))
    }

    /// All dkeys, from the greatest down; `None` for hashed dkeys, which have no greatest.
    pub(crate) fn dkeys_down(&self) -> Option<DkeyIter<'_>> {
        match &self.dkeys {
            Dkeys::Hashed(_) => None,
            _ if self.parts.is_some() => Some(self.present_down()),
            Dkeys::Number(map) => Some(Box::new(
                map.iter().rev().map(|(&number, slot)| (DkeyName::Number(number), slot.only())),
            )),
            Dkeys::Lexical(map) => Some(Box::new(
                map.iter().rev().map(|(key, slot)| (DkeyName::Bytes(key), slot.only())),
            )),
        }
    }

    /// The greatest integer dkey that has an array under the empty akey, and the array's end.
    pub(crate) fn tail(&self) -> Option<(u64, u64)> {
        if self.array_dkeys == 0 {
            return None;
        }
        let Dkeys::Number(map) = &self.dkeys else { return None };
        let end = |dkey: DkeyRef<'_>| match dkey.akey(b"") {
            Some(super::slot::AkeyRef::Array(array)) => Some(array.end()),
            _ => None,
        };
        if self.parts.is_some() {
            return self.present_down().find_map(|(name, dkey)| match name {
                DkeyName::Number(number) => Some((number, end(dkey)?)),
                DkeyName::Bytes(_) => None,
            });
        }
        map.iter().rev().find_map(|(&number, slot)| Some((number, end(slot.only())?)))
    }

    /// What orders a dkey in this object: a number, then bytes.
    pub(crate) fn order_of<'a>(&self, name: DkeyName<'a>) -> (u64, &'a [u8]) {
        match (&self.dkeys, name) {
            (Dkeys::Hashed(_), DkeyName::Bytes(bytes)) => (hash_of(bytes), bytes),
            (_, DkeyName::Bytes(bytes)) => (0, bytes),
            (_, DkeyName::Number(number)) => (number, b""),
        }
    }

    /// Reports all content, its past included, as released.
    pub(crate) fn release(&self, effects: &mut Effects) {
        for (name, dkey) in self.dkeys() {
            // Nothing is seen of what was removed before all time.
            dkey.remove(name.with_bytes(<[u8]>::len), Epoch::ZERO, effects);
        }
        if let Some(past) = &self.past {
            past.release(effects);
        }
    }

    /// Every run of the data area it touches, its past included.
    pub(crate) fn runs(&self, each: &mut impl FnMut(crate::blocks::Run)) {
        for (_, dkey) in self.dkeys() {
            for (_, value) in dkey.akeys() {
                value.runs(&mut *each);
            }
        }
        if let Some(past) = &self.past {
            past.runs(each);
        }
    }
}

/// Finds or makes the member for `dkey` in a slot that holds another dkey or a bucket.
fn member<'a>(
    slot: &'a mut Slot,
    dkey: &[u8],
    make: impl FnOnce() -> Slot,
) -> (&'a mut Slot, bool) {
    if slot.bucket().is_none() {
        if slot.only().key() == dkey {
            return (slot, false);
        }
        let first = std::mem::replace(slot, Slot::Rest(Box::new(Rest::Bucket(Vec::new()))));
        if let Some(members) = slot.bucket() {
            members.push(first);
        }
    }
    let members = slot.bucket().expect("made a bucket above");
    match members.binary_search_by(|slot| slot.only().key().cmp(dkey)) {
        Ok(at) => (&mut members[at], false),
        Err(at) => {
            members.insert(at, make());
            (&mut members[at], true)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::slot::Single;
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::collections::BTreeMap;

    thread_local! {
        /// Makes [`hash_of`] give four values only.
        pub(super) static COLLIDE: Cell<bool> = const { Cell::new(false) };
    }

    proptest! {
        #[test]
        fn dkeys_of_equal_hash_are_told_apart(
            steps in prop::collection::vec((0u8..4, 0u8..30, 0u8..2, any::<u8>()), 1..150),
        ) {
            COLLIDE.set(true);
            let mut object = Object::new(DkeyKind::Hashed);
            let mut model: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>> = BTreeMap::new();
            let mut effects = Effects::default();
            for (n, (kind, dkey, akey, value)) in steps.into_iter().enumerate() {
                let (dkey, akey, value) = (vec![dkey; 3], vec![akey], vec![value; 2]);
                let epoch = Epoch(n as u64 + 1);
                match kind {
                    0 | 1 => {
                        let new = NewValue::Single(Single::Inline(&value));
                        object.set(&dkey, &akey, new, epoch, &mut effects);
                        model.entry(dkey).or_default().insert(akey, value);
                    }
                    2 => {
                        object.punch_dkey(&dkey, epoch, &mut effects);
                        model.remove(&dkey);
                    }
                    _ => {
                        object.punch_akey(&dkey, &akey, epoch, &mut effects);
                        if let Some(akeys) = model.get_mut(&dkey) {
                            akeys.remove(&akey);
                            if akeys.is_empty() {
                                model.remove(&dkey);
                            }
                        }
                    }
                }
                prop_assert_eq!(object.dkey_count as usize, model.len());
            }
            for (dkey, akeys) in &model {
                let found = object.dkey(dkey).unwrap();
                let got: BTreeMap<Vec<u8>, Vec<u8>> = found
                    .akeys()
                    .map(|(akey, value)| match value {
                        super::super::slot::AkeyRef::Inline(_, bytes) => (akey.to_vec(), bytes.to_vec()),
                        other => panic!("{other:?}"),
                    })
                    .collect();
                prop_assert_eq!(&got, akeys);
            }
            // A walk resumed after every key sees each dkey once.
            let mut seen = Vec::new();
            let mut position = None::<Vec<u8>>;
            loop {
                let from = position.as_deref().map_or(Position::Start, Position::After);
                let Some((DkeyName::Bytes(key), _)) = object.dkeys_after(from, (0, u64::MAX)).next()
                else { break };
                seen.push(key.to_vec());
                position = Some(key.to_vec());
            }
            seen.sort();
            prop_assert_eq!(seen, model.keys().cloned().collect::<Vec<_>>());
            object.release(&mut effects);
            prop_assert_eq!((effects.scm, effects.bytes), (0, 0));
            COLLIDE.set(false);
        }
    }
}
