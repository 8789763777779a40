//! Ranges of an object's dkeys as they go to pages and come back.
//!
//! Everything here works on what is in memory and asks nothing of [`super::super::parts`].

use std::ops::Bound;

use smallvec::SmallVec;
use types::{Epoch, Key};

use super::{DkeyIter, DkeyName, Dkeys, Object, Position, hash_of, number_of};
use crate::index::ordered::OrdMap;
use crate::index::page::Counts;
use crate::index::slot::{DkeyRef, Slot};
use crate::index::{Effects, cost};
use crate::space::Space;

/// A place in an object's order, as bytes that compare like it.
pub(crate) type Place = SmallVec<[u8; 24]>;

/// A number as a place.
fn number_place(number: u64) -> Place {
    SmallVec::from_slice(&number.to_be_bytes())
}

/// A place as a number; the empty place is before all.
fn place_number(place: &[u8]) -> u64 {
    place.try_into().map_or(0, u64::from_be_bytes)
}

impl Object {
    /// Where a dkey belongs.
    pub(crate) fn place_of(&self, dkey: &[u8]) -> Place {
        match &self.dkeys {
            Dkeys::Hashed(_) => number_place(hash_of(dkey)),
            Dkeys::Number(_) => number_place(number_of(dkey).unwrap_or(0)),
            Dkeys::Lexical(_) => SmallVec::from_slice(dkey),
        }
    }

    fn place_of_name(&self, name: DkeyName<'_>) -> Place {
        match name {
            DkeyName::Bytes(bytes) => self.place_of(bytes),
            DkeyName::Number(number) => number_place(number),
        }
    }

    /// True when a dkey may be looked for: what it belongs to is in memory.
    pub(super) fn reach(&self, dkey: &[u8]) -> bool {
        self.parts.as_ref().is_none_or(|parts| parts.reach(&self.place_of(dkey)))
    }

    /// What an object counts, all of it; memory is left out.
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            objects: (self.dkey_count > 0) as u64,
            dkeys: self.dkey_count,
            arrays: self.array_dkeys,
            links: self.counted_links,
            bytes: self.bytes_used,
            scm: 0,
        }
    }

    /// Sets the counts of dkeys and bytes.
    pub(crate) fn set_counts(&mut self, counts: &Counts) {
        self.dkey_count = counts.dkeys;
        self.array_dkeys = counts.arrays;
        self.counted_links = counts.links;
        self.bytes_used = counts.bytes;
    }

    /// Dkeys in memory from `start` on and before `end`.
    pub(crate) fn range<'a>(&'a self, start: &[u8], end: Option<&[u8]>) -> DkeyIter<'a> {
        match &self.dkeys {
            Dkeys::Hashed(map) => {
                let (from, to) = number_bounds(start, end);
                Box::new(
                    map.range(from.as_ref(), to.as_ref())
                        .flat_map(|(_, slot)| slot.dkeys())
                        .map(|dkey| (DkeyName::Bytes(dkey.key()), dkey)),
                )
            }
            Dkeys::Number(map) => {
                let (from, to) = number_bounds(start, end);
                Box::new(
                    map.range(from.as_ref(), to.as_ref())
                        .map(|(&number, slot)| (DkeyName::Number(number), slot.only())),
                )
            }
            Dkeys::Lexical(map) => Box::new(
                map.range::<[u8]>(
                    Bound::Included(start),
                    end.map_or(Bound::Unbounded, Bound::Excluded),
                )
                .map(|(key, slot)| (DkeyName::Bytes(key), slot.only())),
            ),
        }
    }

    /// As [`Object::range`], downwards; nothing for hashed dkeys.
    fn range_down<'a>(&'a self, start: &[u8], end: Option<&[u8]>) -> DkeyIter<'a> {
        match &self.dkeys {
            Dkeys::Hashed(_) => Box::new(std::iter::empty()),
            Dkeys::Number(map) => {
                let (from, to) = number_bounds(start, end);
                Box::new(
                    map.range(from.as_ref(), to.as_ref())
                        .rev()
                        .map(|(&number, slot)| (DkeyName::Number(number), slot.only())),
                )
            }
            Dkeys::Lexical(map) => Box::new(
                map.range::<[u8]>(
                    Bound::Included(start),
                    end.map_or(Bound::Unbounded, Bound::Excluded),
                )
                .rev()
                .map(|(key, slot)| (DkeyName::Bytes(key), slot.only())),
            ),
        }
    }

    /// Dkeys after a position, up to the first part that is not in memory.
    pub(super) fn present_after<'a>(
        &'a self,
        position: Position<'_>,
        hash_range: (u64, u64),
    ) -> DkeyIter<'a> {
        let Some(parts) = &self.parts else { return Box::new(std::iter::empty()) };
        let hashed = matches!(self.dkeys, Dkeys::Hashed(_));
        let mut from = match position {
            Position::Start => Place::new(),
            Position::After(key) => self.place_of(key),
        };
        if hashed {
            from = from.max(number_place(hash_range.0));
        }
        let mut after = match position {
            Position::Start => None,
            Position::After(key) => Some(key.to_vec()),
        };
        Box::new(
            parts
                .present_from(&from)
                .map(move |(start, end)| (start, end, after.take()))
                .take_while(move |(start, ..)| !hashed || place_number(start) <= hash_range.1)
                .flat_map(move |(start, end, after)| -> DkeyIter<'a> {
                    if hashed {
                        let low = hash_range.0.max(place_number(start));
                        let high = end.map_or(u64::MAX, |end| place_number(end) - 1);
                        let position = after.as_deref().map_or(Position::Start, Position::After);
                        return self.all_after(position, (low, high.min(hash_range.1)));
                    }
                    match after {
                        None => self.range(start, end.map(|end| &end[..])),
                        Some(after) => {
                            let end = end.cloned();
                            let inside = move |name: &DkeyName<'_>| match &end {
                                Some(end) => self.place_of_name(*name)[..] < end[..],
                                None => true,
                            };
                            Box::new(
                                self.all_after(Position::After(&after), (0, u64::MAX))
                                    .take_while(move |(name, _)| inside(name)),
                            )
                        }
                    }
                }),
        )
    }

    /// Dkeys from the greatest down to the first part that is not in memory.
    pub(super) fn present_down(&self) -> DkeyIter<'_> {
        let Some(parts) = &self.parts else { return Box::new(std::iter::empty()) };
        Box::new(
            parts
                .present_down()
                .flat_map(|(start, end)| self.range_down(start, end.map(|end| &end[..]))),
        )
    }

    /// True when no integer dkey in memory is below `from`.
    pub(crate) fn has_none_below(&self, from: u64) -> bool {
        match &self.dkeys {
            Dkeys::Number(map) => map.iter().next().is_none_or(|(&first, _)| first >= from),
            _ => false,
        }
    }

    /// Marks the places of dkeys in memory in an allocator.
    pub(crate) fn claim(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        space: &mut Space,
    ) -> types::Result<()> {
        let mut outcome = Ok(());
        for (_, dkey) in self.range(start, end) {
            for (_, value) in dkey.akeys() {
                value.runs(|run| {
                    if outcome.is_ok() {
                        outcome = space.claim(run);
                    }
                });
            }
        }
        outcome
    }

    /// Marks the places of its past in an allocator.
    pub(crate) fn claim_past(&self, space: &mut Space) -> types::Result<()> {
        let mut outcome = Ok(());
        if let Some(past) = &self.past {
            past.runs(&mut |run| {
                if outcome.is_ok() {
                    outcome = space.claim(run);
                }
            });
        }
        outcome
    }

    /// Marks the places of all that is in memory in an allocator.
    pub(crate) fn claim_all(&self, space: &mut Space) -> types::Result<()> {
        self.claim(b"", None, space)?;
        self.claim_past(space)
    }

    /// What dkeys in memory count.
    pub(crate) fn weigh(&self, start: &[u8], end: Option<&[u8]>) -> Counts {
        let mut counts = Counts::default();
        for (name, dkey) in self.range(start, end) {
            add_weight(&mut counts, name, dkey);
        }
        counts
    }

    /// Where to cut a range so that at least `half` lies before, or as much as can be, and what
    /// does; `None` when all of it is at one place.
    pub(crate) fn middle(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        half: u64,
    ) -> Option<(Key, Counts)> {
        let mut counts = Counts::default();
        let mut last: Option<Place> = None;
        let mut cut = None;
        for (name, dkey) in self.range(start, end) {
            let place = self.place_of_name(name);
            if last.as_ref().is_some_and(|last| *last != place) {
                cut = Some((Key::new(&place), counts));
                if counts.scm >= half {
                    break;
                }
            }
            add_weight(&mut counts, name, dkey);
            last = Some(place);
        }
        cut
    }

    /// Takes over the dkeys of another object of the same kind, none of which are here; counts
    /// stay.
    pub(crate) fn join(&mut self, other: &mut Object) {
        match (&mut self.dkeys, &mut other.dkeys) {
            (Dkeys::Hashed(to), Dkeys::Hashed(from)) | (Dkeys::Number(to), Dkeys::Number(from)) => {
                while let Some((key, slot)) = from.pop_first() {
                    to.insert_new(key, slot);
                }
            }
            (Dkeys::Lexical(to), Dkeys::Lexical(from)) => {
                while let Some((key, slot)) = from.pop_first() {
                    to.insert_new(key, slot);
                }
            }
            _ => unreachable!("an object has one kind of dkeys"),
        }
    }

    /// Forgets dkeys; counts stay.
    pub(crate) fn forget(&mut self, start: &[u8], end: Option<&[u8]>) {
        match &mut self.dkeys {
            Dkeys::Hashed(map) | Dkeys::Number(map) => {
                let (from, to) = number_bounds(start, end);
                let gone: Vec<u64> =
                    map.range(from.as_ref(), to.as_ref()).map(|(&key, _)| key).collect();
                for key in gone {
                    map.remove(&key);
                }
            }
            Dkeys::Lexical(map) => {
                let to = end.map_or(Bound::Unbounded, Bound::Excluded);
                let gone: Vec<Key> = map
                    .range::<[u8]>(Bound::Included(start), to)
                    .map(|(key, _)| key.clone())
                    .collect();
                for key in gone {
                    map.remove::<[u8]>(&key);
                }
            }
        }
    }

    /// Takes all dkeys in memory from `start` on out; counts stay.
    pub(crate) fn split_off(&mut self, start: &[u8]) -> Object {
        let dkeys = match &mut self.dkeys {
            Dkeys::Hashed(map) => Dkeys::Hashed(map.split_off(&place_number(start))),
            Dkeys::Number(map) => Dkeys::Number(map.split_off(&place_number(start))),
            Dkeys::Lexical(map) => Dkeys::Lexical(map.split_off::<[u8]>(start)),
        };
        Object {
            epoch: self.epoch,
            keys_epoch: self.keys_epoch,
            bytes_used: 0,
            dkey_count: 0,
            born: self.born,
            past: None,
            array_dkeys: 0,
            counted_links: 0,
            dkeys,
            parts: None,
        }
    }

    /// Releases up to `max` dkeys in memory for good; returns how many are gone.
    pub(crate) fn wither(&mut self, max: usize, effects: &mut Effects) -> usize {
        let mut gone = 0;
        while gone < max {
            let slot: Option<(Place, Slot)> = match &mut self.dkeys {
                Dkeys::Hashed(map) => map.pop_first().map(|(_, slot)| (Place::new(), slot)),
                Dkeys::Number(map) => {
                    map.pop_first().map(|(number, slot)| (number_place(number), slot))
                }
                Dkeys::Lexical(map) => {
                    map.pop_first().map(|(key, slot)| (SmallVec::from_slice(&key), slot))
                }
            };
            let Some((place, slot)) = slot else { break };
            for dkey in slot.dkeys() {
                let key = dkey.key().len().max(if dkey.key().is_empty() { place.len() } else { 0 });
                dkey.remove(key, Epoch::ZERO, effects);
                gone += 1;
            }
        }
        gone
    }

    /// Memory that what is in memory counts, its past and itself included.
    pub(crate) fn scm_bytes(&self) -> u64 {
        cost::OBJECT + self.weigh(b"", None).scm + self.past_scm_bytes()
    }

    /// Memory that its past counts.
    pub(crate) fn past_scm_bytes(&self) -> u64 {
        let mut effects = Effects::default();
        if let Some(past) = &self.past {
            past.release(&mut effects);
        }
        effects.scm.unsigned_abs()
    }

    /// True when nothing is in memory.
    pub(crate) fn is_bare(&self) -> bool {
        match &self.dkeys {
            Dkeys::Hashed(map) | Dkeys::Number(map) => map.is_empty(),
            Dkeys::Lexical(map) => map.is_empty(),
        }
    }

    /// Releases its past; for an object whose dkeys are gone.
    pub(crate) fn wither_past(&mut self, effects: &mut Effects) {
        if let Some(past) = self.past.take() {
            past.release(effects);
        }
    }

    /// True for what can be a place in this object's order, or the start.
    pub(crate) fn is_place(&self, place: &[u8]) -> bool {
        match &self.dkeys {
            _ if place.is_empty() => true,
            Dkeys::Hashed(_) | Dkeys::Number(_) => place.len() == 8 && place_number(place) > 0,
            Dkeys::Lexical(_) => place.len() <= types::limits::KEY_BYTES_MAX,
        }
    }

    /// Sets the epochs of the last change, of the last change of the set of dkeys, and of the first.
    pub(crate) fn set_epochs(&mut self, epochs: (Epoch, Epoch, Epoch)) {
        (self.epoch, self.keys_epoch, self.born) = epochs;
    }
}

fn number_bounds(start: &[u8], end: Option<&[u8]>) -> (Bound<u64>, Bound<u64>) {
    let to = end.map_or(Bound::Unbounded, |end| Bound::Excluded(place_number(end)));
    (Bound::Included(place_number(start)), to)
}

fn add_weight(counts: &mut Counts, name: DkeyName<'_>, dkey: DkeyRef<'_>) {
    let mut effects = Effects::default();
    // Nothing is seen of what was removed before all time.
    dkey.remove(name.with_bytes(<[u8]>::len), Epoch::ZERO, &mut effects);
    counts.dkeys += 1;
    counts.arrays += dkey.has_array() as u64;
    counts.links += dkey.counted_links();
    counts.bytes += effects.bytes.unsigned_abs();
    counts.scm += effects.scm.unsigned_abs();
}

impl<K: Ord, V> OrdMap<K, V> {
    /// Takes the least entry.
    pub(crate) fn pop_first(&mut self) -> Option<(K, V)> {
        match self {
            OrdMap::Few(few) if few.is_empty() => None,
            OrdMap::Few(few) => Some(few.remove(0)),
            OrdMap::Many(many) => many.pop_first(),
        }
    }

    /// Takes all entries from `from` on.
    pub(crate) fn split_off<Q: Ord + ?Sized>(&mut self, from: &Q) -> OrdMap<K, V>
    where
        K: std::borrow::Borrow<Q>,
    {
        match self {
            OrdMap::Few(few) => {
                let at = few.partition_point(|(key, _)| key.borrow() < from);
                OrdMap::Few(few.split_off(at))
            }
            OrdMap::Many(many) => OrdMap::Many(many.split_off(from)),
        }
    }

    /// Calls `each` with every entry, in order.
    pub(crate) fn for_each_mut(&mut self, mut each: impl FnMut(&K, &mut V)) {
        match self {
            OrdMap::Few(few) => few.iter_mut().for_each(|(key, value)| each(key, value)),
            OrdMap::Many(many) => many.iter_mut().for_each(|(key, value)| each(key, value)),
        }
    }
}
