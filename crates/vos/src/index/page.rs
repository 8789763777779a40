//! Pages of the index: what is known of each, in memory or not.
//!
//! A page is a part of a container that is written, forgotten and read back as a whole: a bucket
//! of small objects, or a range of the dkeys of a large one. Its state stays in memory always.
//!
//! Invariants:
//! - What is absent is clean, and its place holds exactly its content.
//! - A page that is *frozen* (part of a checkpoint that has not seen its content yet) is encoded
//!   before anything in it changes, so that a checkpoint is the state of one moment.
//! - A place that a durable table may still name is not used again before the next one is
//!   durable: it is *retired* meanwhile.
//! - Nobody uses what is absent. Looking for what must be loaded goes the same ways with
//!   [`Probe`] on, which takes notes; with it off, such a use is a broken invariant and stops us.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use smallvec::SmallVec;
use types::{ContId, Key, Unit};

use crate::blocks::{BLOCK_BYTES, Run};

/// What a page holds, counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    /// Small objects; 0 in a part of a large one.
    pub objects: u64,
    pub dkeys: u64,
    /// Dkeys with an array under the empty akey.
    pub arrays: u64,
    /// Links that ask to be counted; see [`wire::link`].
    pub links: u64,
    /// Bytes of user data.
    pub bytes: u64,
    /// Memory counted; see [`super::cost`].
    pub scm: u64,
}

impl Counts {
    pub(crate) fn follow(&mut self, delta: &Delta) {
        let add = |to: &mut u64, delta: i64| {
            *to = to.checked_add_signed(delta).expect("a page loses what it never held");
        };
        add(&mut self.objects, delta.objects);
        add(&mut self.dkeys, delta.dkeys);
        add(&mut self.arrays, delta.arrays);
        add(&mut self.links, delta.links);
        add(&mut self.bytes, delta.bytes);
        add(&mut self.scm, delta.scm);
    }
}

/// What a change added to a page, or took from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Delta {
    pub objects: i64,
    pub dkeys: i64,
    pub arrays: i64,
    pub links: i64,
    pub bytes: i64,
    pub scm: i64,
}

impl Delta {
    pub(crate) fn adding(counts: &Counts) -> Delta {
        Delta {
            objects: counts.objects as i64,
            dkeys: counts.dkeys as i64,
            arrays: counts.arrays as i64,
            links: counts.links as i64,
            bytes: counts.bytes as i64,
            scm: counts.scm as i64,
        }
    }

    /// Both changes.
    pub(crate) fn and(&self, other: &Delta) -> Delta {
        Delta {
            objects: self.objects + other.objects,
            dkeys: self.dkeys + other.dkeys,
            arrays: self.arrays + other.arrays,
            links: self.links + other.links,
            bytes: self.bytes + other.bytes,
            scm: self.scm + other.scm,
        }
    }

    /// None of it any more.
    pub(crate) fn removing(counts: &Counts) -> Delta {
        let Delta { objects, dkeys, arrays, links, bytes, scm } = Delta::adding(counts);
        Delta {
            objects: -objects,
            dkeys: -dkeys,
            arrays: -arrays,
            links: -links,
            bytes: -bytes,
            scm: -scm,
        }
    }
}

/// Where the image of a page lies in the page area, and what it must be.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PagePlace {
    /// In order; nearly always one.
    pub runs: SmallVec<[Run; 1]>,
    /// Length of the image, bytes; the rest of the last block is zeros.
    pub bytes: u32,
    /// CRC-32C of the image.
    pub crc: u32,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum PageId {
    /// The small objects of a container whose hash begins with the `depth` bits of `prefix`.
    Bucket { cont: ContId, prefix: u64, depth: u8 },
    /// Dkeys of a large object from `start` on, in the object's order, up to the next part.
    Part { cont: ContId, unit: Unit, start: Key },
    /// What snapshots see of the past of a large object. Always in memory.
    Past { cont: ContId, unit: Unit },
}

impl std::fmt::Display for PageId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PageId::Bucket { cont, prefix, depth } => {
                write!(f, "container {cont}, objects of hash {prefix:016x}/{depth}")
            }
            PageId::Part { cont, unit, start } => {
                write!(f, "container {cont}, object {unit}, dkeys from {start:?}")
            }
            PageId::Past { cont, unit } => {
                write!(f, "container {cont}, object {unit}, its past")
            }
        }
    }
}

/// State of one page.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub counts: Counts,
    /// Newest image; `None` when there is none yet.
    pub place: Option<PagePlace>,
    /// Not in memory.
    pub absent: bool,
    /// Changed since its image, or without one.
    pub dirty: bool,
    /// Of the checkpoint that runs, and not encoded yet.
    pub frozen: bool,
    /// Its image is on its way to the device and is still what it holds.
    pub writing: bool,
    /// Some value in it may lie in the data area.
    pub has_blocks: bool,
    /// Its number in the checkpoint that runs, while frozen.
    pub slot: u32,
    /// Memory counted when a part was last found to be as small as can be.
    pub settled_bytes: u64,
    /// It stands in [`Ledger::clean`].
    pub queued: bool,
    pub needs: Needs,
}

/// When a page was needed.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// Since it was last looked at in the queue of those that may be forgotten.
    lately: Cell<bool>,
    /// By this load, the last one.
    by: Cell<u64>,
}

impl Needs {
    /// It is needed now.
    pub(crate) fn note(&self) {
        self.lately.set(true);
    }

    /// It is needed by a load.
    pub(crate) fn pin(&self, load: u64) {
        self.by.set(load);
    }

    /// True when it was since somebody asked last.
    pub(crate) fn were_lately(&self) -> bool {
        self.lately.replace(false)
    }

    /// True when it is by this load, or a later one.
    pub(crate) fn are_of(&self, load: u64) -> bool {
        self.by.get() >= load
    }
}

impl Page {
    /// One that may be forgotten.
    pub(crate) fn is_evictable(&self) -> bool {
        !(self.absent || self.dirty || self.frozen || self.writing) && self.place.is_some()
    }
}

/// Looks for what is not in memory; see the module.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    /// On: absences are noted in `missed`.
    on: Cell<bool>,
    /// What was needed and absent.
    missed: RefCell<Vec<PageId>>,
    /// What was needed and may have been in a page that was given up.
    refused: Cell<Option<Unit>>,
    /// Number of the load that looks.
    ticket: Cell<u64>,
}

impl Probe {
    /// Looks from now on, for the load of this number; 0: for none that keeps pages in memory.
    pub(crate) fn begin(&self, load: u64) {
        self.ticket.set(load);
        self.refused.set(None);
        self.on.set(true);
    }

    /// Ends that. What was needed and absent, and what may have been in a page that was given up.
    pub(crate) fn end(&self) -> (Vec<PageId>, Option<Unit>) {
        self.on.set(false);
        (self.missed.take(), self.refused.take())
    }

    /// True while somebody looks.
    pub(crate) fn is_on(&self) -> bool {
        self.on.get()
    }

    /// What is needed may have been in a page that was given up.
    pub(crate) fn refuse(&self, unit: Unit) {
        self.refused.set(Some(unit));
    }

    /// A page is used: true when it is there.
    pub(crate) fn reach(&self, page: &Page, id: impl FnOnce() -> PageId) -> bool {
        page.needs.note();
        if self.on.get() {
            page.needs.pin(self.ticket.get());
        }
        if page.absent {
            self.miss(id());
        }
        !page.absent
    }

    /// Something absent is needed.
    pub(crate) fn miss(&self, id: PageId) {
        assert!(self.on.get(), "{id}: used while it is not in memory");
        self.missed.borrow_mut().push(id);
    }
}

/// An encoded page that waits to be written.
#[derive(Debug)]
pub(crate) struct Image {
    /// Its number in the checkpoint.
    pub slot: u32,
    pub id: PageId,
    pub raw: Vec<u8>,
}

/// Sums over all pages, and what they leave behind for the checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Pages are kept at all; false in `memory` durability.
    pub paged: bool,
    /// Memory counted of what is in memory.
    pub resident_bytes: u64,
    /// Memory counted of what is dirty.
    pub dirty_bytes: u64,
    /// Pages that became dirty since the last checkpoint began, at least as many as are.
    pub dirtied_count: u64,
    /// Pages not in memory.
    pub absent_count: u64,
    /// Pages that were clean when they were put here, to be looked at in turn when there is too
    /// much; some may be dirty again, or gone.
    pub clean: VecDeque<PageId>,
    /// Places that a durable table may name, and nothing else.
    pub retired: Vec<Run>,
    /// Pages that had to be encoded early, because they changed.
    pub images: Vec<Image>,
}

/// An image is at most this much longer than what is counted of its page: name and header, bytes.
pub(crate) const IMAGE_BYTES_MORE: u64 = 1024;

impl Ledger {
    /// What images of all that is dirty take in the page area at most, whole blocks each, bytes.
    pub(crate) fn image_bytes_max(&self) -> u64 {
        self.dirty_bytes.saturating_add(self.dirtied_count * (BLOCK_BYTES + IMAGE_BYTES_MORE))
    }

    /// Before a page changes. `encode` gives its id and image as it is now.
    pub(crate) fn will_change(
        &mut self,
        page: &mut Page,
        encode: impl FnOnce() -> (PageId, Vec<u8>),
    ) {
        if page.frozen {
            let (id, raw) = encode();
            self.images.push(Image { slot: page.slot, id, raw });
            page.frozen = false;
        }
        self.will_change_thawed(page);
    }

    /// The same of one that the checkpoint does not wait for.
    pub(crate) fn will_change_thawed(&mut self, page: &mut Page) {
        assert!(!page.absent && !page.frozen, "a page is changed that is not there, or frozen");
        page.writing = false;
        page.needs.note();
        self.mark_dirty(page);
    }

    /// A page differs from its image.
    pub(crate) fn mark_dirty(&mut self, page: &mut Page) {
        if !page.dirty {
            page.dirty = true;
            self.dirtied_count += 1;
            self.dirty_bytes += page.counts.scm;
        }
    }

    /// A page, dirty and in memory, has changed.
    pub(crate) fn changed(&mut self, page: &mut Page, delta: &Delta) {
        page.counts.follow(delta);
        self.count(delta.scm, page.dirty);
    }

    /// Memory in use has changed.
    pub(crate) fn count(&mut self, delta: i64, dirty: bool) {
        let add = |to: &mut u64| {
            *to = to.checked_add_signed(delta).expect("more released than was resident");
        };
        add(&mut self.resident_bytes);
        if dirty {
            add(&mut self.dirty_bytes);
        }
    }

    /// A page that may be forgotten has been.
    pub(crate) fn forgotten(&mut self, page: &mut Page) {
        page.absent = true;
        self.absent_count += 1;
        self.resident_bytes -= page.counts.scm;
    }

    /// A place is no longer needed by what is in memory.
    pub(crate) fn retire(&mut self, place: Option<PagePlace>) {
        self.retired.extend(place.into_iter().flat_map(|place| place.runs));
    }

    /// A page goes for good. What it held in memory stays counted until it is released.
    pub(crate) fn drop_page(&mut self, page: Page) {
        if page.absent {
            self.absent_count -= 1;
        }
        if page.dirty {
            self.dirty_bytes -= page.counts.scm;
        }
        self.retire(page.place);
    }
}
