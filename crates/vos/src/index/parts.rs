//! The parts of a large object: which ranges of its dkeys are in memory.
//!
//! A part begins at a place in the object's order and ends where the next one begins; the first
//! begins at the start. Hashed dkeys are placed by hash alone, so equal hashes share a part.
//!
//! Invariant: the counts of an object are the sums over its parts, present or not.

use std::ops::Bound;
use std::rc::Rc;

use types::{ContId, Key, Unit};

use super::object::Object;
use super::page::{Page, PageId, Probe};
use super::snapshot::encode_range;
use crate::index::ordered::OrdMap;

#[derive(Debug)]
pub(crate) struct Parts {
    pub cont: ContId,
    pub unit: Unit,
    /// By where they begin.
    pub pages: OrdMap<Key, Page>,
    /// Of what snapshots see of the object's past; always in memory.
    pub past: Page,
    probe: Rc<Probe>,
}

impl Parts {
    /// One part that is all.
    pub(crate) fn new(cont: ContId, unit: Unit, page: Page, probe: &Rc<Probe>) -> Parts {
        let mut pages = OrdMap::default();
        pages.insert_new(Key::default(), page);
        Parts { cont, unit, pages, past: Page::default(), probe: probe.clone() }
    }

    /// From a table; parts are added by the caller.
    pub(crate) fn empty(cont: ContId, unit: Unit, probe: &Rc<Probe>) -> Parts {
        Parts { cont, unit, pages: OrdMap::default(), past: Page::default(), probe: probe.clone() }
    }

    pub(crate) fn id(&self, start: &Key) -> PageId {
        PageId::Part { cont: self.cont, unit: self.unit, start: start.clone() }
    }

    /// Where the part begins that a place in the order belongs to.
    pub(crate) fn start_of(&self, place: &[u8]) -> Key {
        let found = self.pages.range::<[u8]>(Bound::Unbounded, Bound::Included(place)).next_back();
        found.map_or_else(Key::default, |(start, _)| start.clone())
    }

    /// Where the part after this one begins.
    pub(crate) fn end_of(&self, start: &[u8]) -> Option<Key> {
        let next = self.pages.range::<[u8]>(Bound::Excluded(start), Bound::Unbounded).next();
        next.map(|(start, _)| start.clone())
    }

    /// A place in the order is used; true when its part is in memory.
    pub(crate) fn reach(&self, place: &[u8]) -> bool {
        let found = self.pages.range::<[u8]>(Bound::Unbounded, Bound::Included(place)).next_back();
        found.is_none_or(|(start, page)| self.probe.reach(page, || self.id(start)))
    }

    /// Parts from the one that holds `place` upwards, as long as they are in memory: where each
    /// begins and ends.
    pub(crate) fn present_from<'a>(
        &'a self,
        place: &[u8],
    ) -> impl Iterator<Item = (&'a Key, Option<&'a Key>)> + use<'a> {
        let first = self.start_of(place);
        let all = self.pages.range::<[u8]>(Bound::Included(&first), Bound::Unbounded);
        let mut next = self.pages.range::<[u8]>(Bound::Excluded(&first), Bound::Unbounded);
        all.map(move |(start, page)| (start, page, next.next().map(|(end, _)| end))).map_while(
            |(start, page, end)| self.probe.reach(page, || self.id(start)).then_some((start, end)),
        )
    }

    /// Parts from the last one downwards, as long as they are in memory.
    pub(crate) fn present_down(&self) -> impl Iterator<Item = (&Key, Option<&Key>)> {
        let mut end = None;
        self.pages.iter().rev().map_while(move |(start, page)| {
            let of = (start, end.replace(start));
            self.probe.reach(page, || self.id(start)).then_some(of)
        })
    }
}

/// Content of one part, encoded.
pub(crate) fn encode_part(object: &Object, parts: &Parts, start: &Key) -> Vec<u8> {
    let mut out = Vec::new();
    let end = parts.end_of(start);
    encode_range(parts.cont, parts.unit, object, start, end.as_deref(), &mut out);
    out
}
