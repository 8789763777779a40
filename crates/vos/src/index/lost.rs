//! Giving up pages that cannot be read any more.
//!
//! A page whose image is damaged stays absent, and what it holds is refused to everybody. Where other targets may have the same,
//! it is *given up*: it is empty from then on, and they bring back what they have. The *place* that it left is noted, for
//! what is not there may have been there:
//!
//! - While the place is open nobody has compared it with others yet.
//! - Objects of one copy that belong into a bucket that was given up are refused for good: nobody else has them. Those that
//!   have pages of their own were not in it.
//!
//! Blocks of the data area that the page named stay in use: which ones they were only it knew.

use types::{ContId, Key, Unit};

use super::bucket::{Container, hash_of};
use super::page::{Counts, Delta, Ledger, Page, PageId};
use super::{Effects, Index};
use crate::record::{LostPlaceDf, LostWhatDf};

/// Where a page was that was given up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LostPlace {
    pub what: LostWhat,
    /// What others have of it was not compared yet.
    pub is_open: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum LostWhat {
    /// Small objects, by their hashes.
    Bucket { prefix: u64, depth: u8 },
    /// Dkeys of a large object, by their places in its order.
    Part { unit: Unit, start: Key, end: Option<Key> },
}

impl LostPlace {
    pub(crate) fn durable(&self) -> LostPlaceDf<'_> {
        let what = match &self.what {
            &LostWhat::Bucket { prefix, depth } => LostWhatDf::Bucket { prefix, depth },
            LostWhat::Part { unit, start, end } => {
                LostWhatDf::Part { unit: *unit, start, end: end.as_deref() }
            }
        };
        LostPlaceDf { what, is_open: self.is_open }
    }

    pub(crate) fn from_durable(raw: &LostPlaceDf<'_>) -> LostPlace {
        let what = match raw.what {
            LostWhatDf::Bucket { prefix, depth } => LostWhat::Bucket { prefix, depth },
            LostWhatDf::Part { unit, start, end } => {
                LostWhat::Part { unit, start: Key::new(start), end: end.map(Key::new) }
            }
        };
        LostPlace { what, is_open: raw.is_open }
    }

    /// The page that left it.
    fn page(&self, cont: ContId) -> PageId {
        match &self.what {
            &LostWhat::Bucket { prefix, depth } => PageId::Bucket { cont, prefix, depth },
            LostWhat::Part { unit, start, .. } => {
                PageId::Part { cont, unit: *unit, start: start.clone() }
            }
        }
    }

    fn has_hash_of(&self, unit: Unit) -> bool {
        match self.what {
            LostWhat::Bucket { prefix, depth } => is_inside(unit, prefix, depth),
            LostWhat::Part { .. } => false,
        }
    }
}

fn is_inside(unit: Unit, prefix: u64, depth: u8) -> bool {
    depth == 0
        || (hash_of(unit) ^ prefix).checked_shr(64u32.saturating_sub(depth.into())).unwrap_or(1)
            == 0
}

pub(crate) fn copies_bit(copies: usize) -> u32 {
    1 << copies.min(31)
}

/// True for units that no other target has.
pub(crate) fn is_of_one_copy(unit: Unit) -> bool {
    !unit.is_cell() && unit.object.is_alone()
}

impl Container {
    /// True when nobody knows what there is of an object of one copy: it may have been in a page that was given up.
    pub(crate) fn is_refused(&self, unit: Unit) -> bool {
        !self.lost.is_empty()
            && is_of_one_copy(unit)
            && !self.large.contains_key(&unit.list_order())
            && self.lost.iter().any(|place| place.has_hash_of(unit))
    }

    /// Notes that what is looked for may have been lost, while somebody looks what must be loaded.
    pub(crate) fn note_refused(&self, unit: Unit) {
        if self.probe.is_on() && self.is_refused(unit) {
            self.probe.refuse(unit);
        }
    }

    /// True when something of a unit that others may have was in a page that was given up, and they were not asked yet. With a
    /// dkey: something of that.
    pub(crate) fn is_lost(&self, unit: Unit, dkey: Option<&[u8]>) -> bool {
        self.lost.iter().filter(|place| place.is_open).any(|place| match &place.what {
            LostWhat::Bucket { .. } => place.has_hash_of(unit),
            LostWhat::Part { unit: of, start, end } => {
                let place_of = |dkey: &[u8]| {
                    let object = self.large.get(&unit.list_order())?;
                    Some(Key::new(&object.place_of(dkey)))
                };
                *of == unit
                    && dkey.and_then(place_of).is_none_or(|at| {
                        at[..] >= start[..] && end.as_ref().is_none_or(|end| at[..] < end[..])
                    })
            }
        })
    }
}

impl Index {
    /// The place that a page leaves when it is given up; `None` when it is not there, or nobody else can have what it holds.
    pub(crate) fn place_left_by(&self, id: &PageId) -> Option<(ContId, LostPlace)> {
        let what = match id {
            &PageId::Bucket { cont, prefix, depth } => {
                let (bucket, _) = self.conts.get(&cont)?.bucket_at(prefix);
                let is_there = (bucket.prefix, bucket.depth) == (prefix, depth);
                (is_there && bucket.page.absent).then_some(LostWhat::Bucket { prefix, depth })?
            }
            PageId::Part { cont, unit, start } => {
                let object = self.conts.get(cont)?.large.get(&unit.list_order())?;
                let parts = object.parts.as_ref()?;
                let page = parts.pages.get::<[u8]>(start)?;
                let is_told = page.absent && !is_of_one_copy(*unit);
                let (unit, start, end) = (*unit, start.clone(), parts.end_of(start));
                is_told.then_some(LostWhat::Part { unit, start, end })?
            }
            PageId::Past { .. } => return None,
        };
        let (PageId::Bucket { cont, .. } | PageId::Part { cont, .. } | PageId::Past { cont, .. }) =
            id;
        Some((*cont, LostPlace { what, is_open: true }))
    }

    /// Gives a page up. No effect when it is not there. In memory it is only in replay, where the device may have been able to
    /// read it once more; what it named in the data area stays in use then, too.
    pub(crate) fn give_up(&mut self, cont: ContId, place: LostPlace, effects: &mut Effects) {
        let id = place.page(cont);
        self.lost.remove(&id);
        let Some(container) = self.conts.get_mut(&cont) else { return };
        let ledger = &mut self.ledger;
        let mut delta = Delta::default();
        match &place.what {
            &LostWhat::Bucket { prefix, depth } => {
                let Some(bucket) = container.bucket_of(prefix, depth) else { return };
                delta = Delta::removing(&bucket.page.counts);
                bucket.objects.clear();
                ledger.emptied(&mut bucket.page);
                let is_kept = |unit: &Unit, large: &dyn Fn(&Unit) -> bool| {
                    !is_inside(*unit, prefix, depth) || large(unit)
                };
                let Container { large, pasts, unswept, .. } = container;
                let is_large = |unit: &Unit| large.contains_key(&unit.list_order());
                pasts.retain(|unit| is_kept(unit, &is_large));
                unswept.retain(|unit| is_kept(unit, &is_large));
            }
            LostWhat::Part { unit, start, end } => {
                let Some(object) = container.large.get_mut(&unit.list_order()) else { return };
                let Some(mut parts) = object.parts.take() else { return };
                if let Some(page) = parts.pages.get_mut::<[u8]>(start) {
                    let (all, gone) = (object.counts(), page.counts);
                    delta = Delta::removing(&gone);
                    object.forget(start, end.as_deref());
                    ledger.emptied(page);
                    object.set_counts(&Counts {
                        dkeys: all.dkeys.saturating_sub(gone.dkeys),
                        arrays: all.arrays.saturating_sub(gone.arrays),
                        links: all.links.saturating_sub(gone.links),
                        bytes: all.bytes.saturating_sub(gone.bytes),
                        ..all
                    });
                    delta.objects = object.counts().objects as i64 - all.objects as i64;
                }
                object.parts = Some(parts);
                if object.is_gone() {
                    delta.scm += container.drop_large(*unit, ledger, effects);
                }
            }
        }
        self.count(&delta);
        self.note_lost(cont, place);
    }

    /// Notes of how many copies a unit is one.
    pub(crate) fn note_copies(&mut self, unit: Unit) {
        if !unit.object.is_alone()
            && let Ok(class) = unit.object.class()
        {
            self.copies_seen |= copies_bit(class.scheme.copies());
        }
    }

    /// The image of a page in memory is damaged: the next checkpoint is to write another one.
    pub(crate) fn write_anew(&mut self, id: &PageId) {
        let Some(page) = self.page_mut(id).filter(|page| !page.absent && !page.frozen) else {
            return;
        };
        if !std::mem::replace(&mut page.dirty, true) {
            let bytes = page.counts.scm;
            self.ledger.dirtied_count += 1;
            self.ledger.dirty_bytes += bytes;
        }
    }

    /// Notes where a page was that was given up.
    pub(crate) fn note_lost(&mut self, cont: ContId, place: LostPlace) {
        let Some(container) = self.conts.get_mut(&cont) else { return };
        container.lost.retain(|known| known.what != place.what);
        container.lost.push(place);
        self.has_given_up = true;
    }

    /// What others have of places that were open is here now.
    pub(crate) fn close_lost(&mut self) {
        for container in self.conts.values_mut() {
            for place in &mut container.lost {
                place.is_open = false;
            }
            container.lost.retain(|place| matches!(place.what, LostWhat::Bucket { .. }));
        }
    }

    /// True when there are such places.
    pub(crate) fn has_lost(&self) -> bool {
        self.has_given_up && self.conts.values().any(|container| !container.lost.is_empty())
    }
}

impl Ledger {
    /// A page is there and holds nothing.
    fn emptied(&mut self, page: &mut Page) {
        if page.absent {
            page.absent = false;
            self.absent_count -= 1;
        } else {
            self.resident_bytes -= page.counts.scm;
            self.dirty_bytes -= if page.dirty { page.counts.scm } else { 0 };
        }
        page.counts = Counts::default();
        page.has_blocks = false;
        page.settled_bytes = 0;
        self.retire(page.place.take());
        self.mark_dirty(page);
    }
}
