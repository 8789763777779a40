//! What of the index is in memory: pages found by name, forgotten in turn, taken in again.
//!
//! Pages are forgotten in the order in which they became clean; who was used since it was last
//! looked at gets another round (second chance, F. Corbató, "A paging experiment with the Multics
//! system", 1968). Only pages in memory that were clean stand in that queue: what is absent, most
//! of all when it matters, and what is dirty cost nothing.

use std::collections::BTreeSet;

use types::{Code, Error, Result, Unit};

use super::bucket::Objects;
use super::object::Object;
use super::page::{Counts, Delta, IMAGE_BYTES_MORE, Page, PageId, PagePlace};
use super::parts::encode_part;
use super::snapshot::encode_object;
use super::{Effects, Index};
use crate::record::{RecordDf, decode_first};
use crate::space::Space;

/// Names in the queue of clean pages, for which it is not worth the while to look for stale ones.
const QUEUE_MIN: usize = 1024;

impl Index {
    /// The page of this name, if it is there.
    pub(crate) fn page_mut(&mut self, id: &PageId) -> Option<&mut Page> {
        match id {
            PageId::Bucket { cont, prefix, depth } => {
                let container = self.conts.get_mut(cont)?;
                Some(&mut container.bucket_of(*prefix, *depth)?.page)
            }
            PageId::Part { cont, unit, start } => {
                let object = self.conts.get_mut(cont)?.large.get_mut(&unit.list_order())?;
                object.parts.as_mut()?.pages.get_mut::<[u8]>(start)
            }
            PageId::Past { cont, unit } => {
                let object = self.conts.get_mut(cont)?.large.get_mut(&unit.list_order())?;
                Some(&mut object.parts.as_mut()?.past)
            }
        }
    }

    /// Encodes a page of the checkpoint whose turn it is; `None` when that has been done.
    pub(crate) fn encode_frozen(&mut self, id: &PageId, slot: u32) -> Option<Vec<u8>> {
        let page = self.page_mut(id)?;
        if !page.frozen || page.slot != slot {
            return None;
        }
        page.frozen = false;
        page.writing = true;
        let bytes_max = page.counts.scm + IMAGE_BYTES_MORE;
        let raw = match id {
            PageId::Bucket { cont, prefix, depth } => {
                self.conts.get_mut(cont)?.bucket_of(*prefix, *depth)?.encode(*cont)
            }
            PageId::Part { cont, unit, start } => {
                let object = self.conts.get(cont)?.large.get(&unit.list_order())?;
                encode_part(object, object.parts.as_ref()?, start)
            }
            PageId::Past { cont, unit } => {
                let object = self.conts.get(cont)?.large.get(&unit.list_order())?;
                let mut out = Vec::new();
                encode_object(*cont, *unit, object, false, &mut out);
                out
            }
        };
        debug_assert!(raw.len() as u64 <= bytes_max, "{id}: {} of {bytes_max} bytes", raw.len());
        Some(raw)
    }

    /// Makes dirty what a checkpoint that failed has not written.
    pub(crate) fn thaw(&mut self) {
        let ledger = &mut self.ledger;
        let mut thaw = |page: &mut Page| {
            if std::mem::take(&mut page.frozen) | std::mem::take(&mut page.writing) {
                ledger.mark_dirty(page);
            }
        };
        for container in self.conts.values_mut() {
            container.buckets_mut().iter_mut().for_each(|bucket| thaw(&mut bucket.page));
            for parts in container.large.values_mut().filter_map(|object| object.parts.as_mut()) {
                parts.pages.for_each_mut(|_, page| thaw(page));
                thaw(&mut parts.past);
            }
        }
    }

    /// Forgets pages until no more than `resident_bytes` are in memory. Pages that a load since
    /// `pinned` needs stay. Looks at `look_max` pages at most.
    pub(crate) fn evict(&mut self, resident_bytes: u64, pinned: u64, look_max: usize) {
        // Twice round: the first may take nothing but second chances.
        let mut left = look_max.min(2 * self.ledger.clean.len());
        while self.ledger.resident_bytes > resident_bytes {
            let next = if left > 0 { self.ledger.clean.pop_front() } else { None };
            let Some(id) = next else { return };
            left -= 1;
            let Some(page) = self.page_mut(&id) else { continue };
            // A page that had this name before stood here, or one that is dirty again: it comes
            // back when it is written.
            if !std::mem::take(&mut page.queued) || !page.is_evictable() {
                continue;
            }
            if page.needs.were_lately() || page.needs.are_of(pinned) {
                page.queued = true;
                self.ledger.clean.push_back(id);
            } else {
                self.forget(&id);
            }
        }
    }

    /// A page is in memory as it is in its place, so it may be forgotten.
    pub(crate) fn now_clean(&mut self, id: &PageId) {
        let Some(page) = self.page_mut(id) else { return };
        // Pasts stay.
        if !page.is_evictable() || page.queued || matches!(id, PageId::Past { .. }) {
            return;
        }
        page.queued = true;
        let clean = &mut self.ledger.clean;
        clean.push_back(id.clone());
        if clean.len() == clean.capacity() && clean.len() >= QUEUE_MIN {
            self.drop_stale();
        }
    }

    /// Drops names of pages that are gone from the queue, before it grows.
    fn drop_stale(&mut self) {
        let mut clean = std::mem::take(&mut self.ledger.clean);
        clean.retain(|id| self.page_mut(id).is_some_and(|page| std::mem::take(&mut page.queued)));
        for id in &clean {
            if let Some(page) = self.page_mut(id) {
                page.queued = true;
            }
        }
        self.ledger.clean = clean;
    }

    fn forget(&mut self, id: &PageId) {
        let ledger = &mut self.ledger;
        match id {
            PageId::Bucket { cont, prefix, depth } => {
                let container = self.conts.get_mut(cont);
                if let Some(bucket) = container.and_then(|cont| cont.bucket_of(*prefix, *depth)) {
                    bucket.objects = Objects::default();
                    ledger.forgotten(&mut bucket.page);
                }
            }
            PageId::Part { cont, unit, start } => {
                let container = self.conts.get_mut(cont);
                let Some(object) = container.and_then(|c| c.large.get_mut(&unit.list_order()))
                else {
                    return;
                };
                let Some(mut parts) = object.parts.take() else { return };
                let end = parts.end_of(start);
                if let Some(page) = parts.pages.get_mut::<[u8]>(start) {
                    object.forget(start, end.as_deref());
                    ledger.forgotten(page);
                }
                object.parts = Some(parts);
            }
            PageId::Past { .. } => {}
        }
    }

    /// Pages of pasts that are not in memory, as right after a table was read.
    pub(crate) fn absent_pasts(&self) -> BTreeSet<PageId> {
        let containers = self.conts.values();
        let objects = containers.flat_map(|cont| cont.large.values());
        let parts = objects.filter_map(|object| object.parts.as_ref());
        let absent = parts.filter(|parts| parts.past.absent);
        absent.map(|parts| PageId::Past { cont: parts.cont, unit: parts.unit }).collect()
    }

    /// Number of pages, in memory or not.
    pub(crate) fn page_count(&self) -> usize {
        let containers = self.conts.values();
        containers
            .map(|container| {
                let objects = container.large.values();
                let parts = objects.filter_map(|object| object.parts.as_ref());
                container.buckets().len() + parts.map(|parts| parts.pages.len() + 1).sum::<usize>()
            })
            .sum()
    }

    /// All pages that are not in memory, and what they would take there.
    pub(crate) fn absent_pages(&self) -> (BTreeSet<PageId>, u64) {
        let mut absent = BTreeSet::new();
        let mut bytes = 0;
        let mut look = |page: &Page, id: &dyn Fn() -> PageId| {
            if page.absent {
                bytes += page.counts.scm;
                absent.insert(id());
            }
        };
        for container in self.conts.values() {
            for bucket in container.buckets() {
                look(&bucket.page, &|| bucket.id(container.id));
            }
            for parts in container.large.values().filter_map(|object| object.parts.as_ref()) {
                let (cont, unit) = (parts.cont, parts.unit);
                for (start, page) in parts.pages.iter() {
                    look(page, &|| PageId::Part { cont, unit, start: start.clone() });
                }
                look(&parts.past, &|| PageId::Past { cont, unit });
            }
        }
        (absent, bytes)
    }

    /// Where an absent page lies; `None` when it is in memory or gone.
    pub(crate) fn place_of(&mut self, id: &PageId) -> Option<PagePlace> {
        let page = self.page_mut(id)?;
        if page.absent { page.place.clone() } else { None }
    }

    /// Takes in the records of a page that was read from `place`; no effect when it has changed
    /// since. `Csum` when they are not what the page must hold.
    pub(crate) fn take_in(&mut self, id: &PageId, place: &PagePlace, body: &[u8]) -> Result<()> {
        if self.place_of(id).as_ref() != Some(place) {
            return Ok(());
        }
        let wrong = || {
            let at = place.runs.first().map_or(0, |run| run.at);
            Error::new(
                Code::Csum,
                format!(
                    "page at byte {at} of the page area ({id}): its content is not what the table says"
                ),
            )
        };
        let counts = self.page_mut(id).map(|page| page.counts).unwrap_or_default();
        match id {
            PageId::Bucket { cont, prefix, depth } => {
                let (objects, found) = decode_objects(body)?;
                let container = self.conts.get_mut(cont).ok_or_else(wrong)?;
                let inside = |unit: Unit| match depth {
                    0 => true,
                    bits => (super::bucket::hash_of(unit) ^ prefix) >> (64 - bits) == 0,
                };
                if found != counts || !objects.keys().all(|&unit| inside(unit)) {
                    return Err(wrong());
                }
                container.bucket_of(*prefix, *depth).ok_or_else(wrong)?.objects = objects;
            }
            PageId::Part { cont, unit, start } => {
                let container = self.conts.get_mut(cont).ok_or_else(wrong)?;
                let object = container.large.get_mut(&unit.list_order()).ok_or_else(wrong)?;
                // Read apart first: what is damaged must not get into the object.
                let (mut part, found) = decode_part(*unit, body)?;
                let parts = object.parts.as_ref().ok_or_else(wrong)?;
                let end = parts.end_of(start);
                let whole = part.weigh(b"", None);
                let inside = part.weigh(start, end.as_deref());
                if found != counts || inside != whole {
                    return Err(wrong());
                }
                object.join(&mut part);
            }
            PageId::Past { cont, unit } => {
                let container = self.conts.get_mut(cont).ok_or_else(wrong)?;
                let object = container.large.get_mut(&unit.list_order()).ok_or_else(wrong)?;
                let (mut past, _) = decode_part(*unit, body)?;
                if past.dkey_count > 0 || past.past_scm_bytes() != counts.scm {
                    return Err(wrong());
                }
                object.past = past.past.take();
            }
        }
        let ledger = &mut self.ledger;
        ledger.absent_count -= 1;
        ledger.resident_bytes += counts.scm;
        if let Some(page) = self.page_mut(id) {
            page.absent = false;
            page.needs.note();
        }
        self.now_clean(id);
        Ok(())
    }

    /// Reclaims a page of garbage: reports the blocks its content held. No effect when it is gone.
    pub(crate) fn reclaim_page(
        &mut self,
        id: &PageId,
        place: &PagePlace,
        body: &[u8],
        effects: &mut Effects,
    ) -> Result<()> {
        let garbage = &mut self.garbage.pages;
        let Some(at) = garbage.iter().rposition(|(found, of)| found == id && of == place) else {
            return Ok(());
        };
        let mut scratch = Effects::default();
        match id {
            PageId::Bucket { .. } => {
                for object in decode_objects(body)?.0.values_mut() {
                    object.wither(usize::MAX, &mut scratch);
                    object.wither_past(&mut scratch);
                }
            }
            PageId::Part { unit, .. } | PageId::Past { unit, .. } => {
                let (mut object, _) = decode_part(*unit, body)?;
                object.wither(usize::MAX, &mut scratch);
                object.wither_past(&mut scratch);
            }
        }
        // Memory was given back when it was made garbage.
        effects.blocks.append(&mut scratch.blocks);
        let (_, place) = garbage.swap_remove(at);
        self.ledger.retire(Some(place));
        Ok(())
    }
}

/// Marks what a page of garbage still holds of the data area.
pub(crate) fn claim_garbage(id: &PageId, body: &[u8], space: &mut Space) -> Result<()> {
    match id {
        PageId::Bucket { .. } => {
            decode_objects(body)?.0.values().try_for_each(|object| object.claim_all(space))
        }
        PageId::Part { unit, .. } | PageId::Past { unit, .. } => {
            decode_part(*unit, body)?.0.claim_all(space)
        }
    }
}

/// The objects of a bucket's page, and what they count.
fn decode_objects(mut body: &[u8]) -> Result<(Objects, Counts)> {
    let mut objects = Objects::default();
    while !body.is_empty() {
        let RecordDf::Part(part) = decode_first(&mut body)? else { return Err(foreign()) };
        let new = || Box::new(Object::new(part.unit.dkey_kind()));
        objects.entry(part.unit).or_insert_with(new).absorb(part.unit, &part)?;
    }
    let mut counts = Counts::default();
    for object in objects.values() {
        if object.is_gone() {
            return Err(foreign());
        }
        counts.follow(&Delta::adding(&Counts { scm: object.scm_bytes(), ..object.counts() }));
    }
    Ok((objects, counts))
}

/// The dkeys or the past of a large object in a page, as an object of its own, and what they
/// count.
fn decode_part(unit: Unit, mut body: &[u8]) -> Result<(Object, Counts)> {
    let mut object = Object::new(unit.dkey_kind());
    while !body.is_empty() {
        let RecordDf::Part(part) = decode_first(&mut body)? else { return Err(foreign()) };
        if part.unit != unit {
            return Err(foreign());
        }
        object.absorb(unit, &part)?;
    }
    let counts = Counts { objects: 0, scm: object.weigh(b"", None).scm, ..object.counts() };
    Ok((object, counts))
}

fn foreign() -> Error {
    Error::new(Code::Csum, "a page of the index holds what does not belong there")
}
