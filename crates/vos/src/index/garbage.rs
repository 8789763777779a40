//! What has been punched or destroyed and still holds memory, pages or blocks.
//!
//! Nobody can see it; it is given back in slices in the background. A page that is not in memory
//! matters only if values of it lie in the data area: then it is loaded once more, to know which
//! blocks come back. Until that has happened it is part of every checkpoint.
//!
//! Blocks come back without a record of their own: a restart finds the same garbage and loads it again.

use types::{ContId, Result};

use super::bucket::{Container, Objects};
use super::object::Object;
use super::page::{Ledger, Page, PageId, PagePlace};
use super::parts::{Parts, encode_part};
use super::snapshot::encode_object;
use super::{Effects, cost};
use crate::space::Space;

#[derive(Debug, Default)]
pub(crate) struct Garbage {
    /// Small objects of destroyed containers.
    small: Vec<Objects>,
    /// Objects being released, with memory counted beside their dkeys.
    objects: Vec<(Box<Object>, u64)>,
    /// Pages not in memory that refer to the data area.
    pub pages: Vec<(PageId, PagePlace)>,
}

impl Garbage {
    /// True when nothing in memory is left to release.
    pub(crate) fn is_bare(&self) -> bool {
        self.small.is_empty() && self.objects.is_empty()
    }

    /// Takes the content of an object in memory.
    pub(crate) fn take_object(&mut self, object: Box<Object>, head_scm: u64) {
        if head_scm > 0 || !object.is_bare() {
            self.objects.push((object, head_scm));
        }
    }

    /// Takes parts of an object; returns the memory that absent ones counted.
    pub(crate) fn take_parts(
        &mut self,
        object: &Object,
        mut parts: Parts,
        ledger: &mut Ledger,
    ) -> u64 {
        let frozen: Vec<_> = parts
            .pages
            .iter()
            .filter(|(_, page)| page.frozen)
            .map(|(start, _)| (start.clone(), encode_part(object, &parts, start)))
            .collect();
        for (start, raw) in frozen {
            let id = parts.id(&start);
            if let Some(page) = parts.pages.get_mut::<[u8]>(&start) {
                ledger.will_change(page, || (id, raw));
            }
        }
        let mut scm = 0;
        while let Some((start, page)) = parts.pages.pop_first() {
            let id = parts.id(&start);
            scm += self.take_page(id, page, ledger);
        }
        // Empty, or the container is destroyed and it was taken before.
        ledger.drop_page(parts.past);
        scm
    }

    /// Takes a page that is not frozen; returns the memory it counted if it is absent.
    fn take_page(&mut self, id: PageId, mut page: Page, ledger: &mut Ledger) -> u64 {
        let absent_scm = if page.absent { page.counts.scm } else { 0 };
        if page.absent
            && page.has_blocks
            && let Some(place) = page.place.take()
        {
            self.pages.push((id, place));
        }
        ledger.drop_page(page);
        absent_scm
    }

    /// Takes a whole container; returns the memory that absent pages counted.
    pub(crate) fn take_container(&mut self, mut container: Container, ledger: &mut Ledger) -> u64 {
        let cont: ContId = container.id;
        let mut scm = 0;
        for bucket in container.buckets_mut() {
            let id = bucket.id(cont);
            if bucket.page.frozen {
                let raw = bucket.encode(cont);
                ledger.will_change(&mut bucket.page, || (id.clone(), raw));
            }
            scm += self.take_page(id, std::mem::take(&mut bucket.page), ledger);
            let objects = std::mem::take(&mut bucket.objects);
            if !objects.is_empty() {
                self.small.push(objects);
            }
        }
        while let Some((_, mut object)) = container.large.pop_first() {
            if let Some(mut parts) = object.parts.take() {
                let id = PageId::Past { cont, unit: parts.unit };
                if parts.past.frozen {
                    let mut raw = Vec::new();
                    encode_object(cont, parts.unit, &object, false, &mut raw);
                    ledger.will_change(&mut parts.past, || (id.clone(), raw));
                }
                self.take_page(id, std::mem::take(&mut parts.past), ledger);
                scm += self.take_parts(&object, *parts, ledger);
            }
            self.take_object(object, cost::OBJECT);
        }
        scm
    }

    /// Marks what is in memory and still to be released in an allocator.
    pub(crate) fn claim(&self, space: &mut Space) -> Result<()> {
        let small = self.small.iter().flat_map(|objects| objects.values());
        small
            .chain(self.objects.iter().map(|(object, _)| object))
            .try_for_each(|object| object.claim_all(space))
    }

    /// Releases up to `dkeys_max` dkeys (an object counts as one more); false when none are left.
    pub(crate) fn reclaim(&mut self, dkeys_max: usize, effects: &mut Effects) -> bool {
        let mut left = dkeys_max;
        while left > 0 {
            if let Some((object, head_scm)) = self.objects.last_mut() {
                left -= object.wither(left, effects).min(left);
                if object.is_bare() {
                    object.wither_past(effects);
                    effects.scm -= *head_scm as i64;
                    self.objects.pop();
                    left = left.saturating_sub(1);
                }
                continue;
            }
            let Some(objects) = self.small.last_mut() else { break };
            let unit = objects.keys().next().copied();
            match unit.and_then(|unit| objects.remove(&unit)) {
                Some(object) => self.objects.push((object, cost::OBJECT)),
                None => {
                    self.small.pop();
                }
            }
        }
        !self.is_bare()
    }
}
