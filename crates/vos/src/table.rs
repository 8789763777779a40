//! The table of a checkpoint: everything a shard knew at one moment, with pages in place of
//! their content.
//!
//! It is encoded as one message, cut into pieces that lie in the page area like pages; the head of
//! the log names the pieces. When there are too many to name there, the list of places is
//! itself kept like a table, as often as it takes.

use std::rc::Rc;

use serde::{Deserialize, Serialize};
use types::{Code, ContId, Epoch, Error, Key, Result, Unit};

use crate::blocks::Run;
use crate::contents::Contents;
use crate::index::bucket::Bucket;
use crate::index::object::Object;
use crate::index::page::{Counts, Page, PageId, PagePlace};
use crate::index::parts::Parts;
use crate::index::versions::Versions;
use crate::index::{Container, Index};
use crate::loans;
use crate::log::table_ref::{PlaceDf, TableRefDf};
use crate::pages::{PageIdDf, PageStore, decode, encode};
use crate::record::VersionsDf;
use crate::space::Space;
use crate::sums::SumPolicy;

/// Size of a piece, bytes.
const PIECE_BYTES: usize = 512 << 10;
/// Encoded size of a page and its bucket, bytes, about; what is not used is never touched.
const PAGE_BYTES: usize = 56;
/// Most bytes that are reserved because a list of places is long.
const RESERVED_BYTES_MAX: usize = 256 << 20;
/// Places are named in the head up to this encoded size, bytes.
const NAMED_BYTES_MAX: usize = 3000;
/// No list of lists of places is deeper.
const LEVEL_MAX: u8 = 4;

/// A page in a table.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PageDf {
    /// Objects, dkeys, dkeys with an array, links that are counted, bytes of user data, memory counted.
    pub counts: (u64, u64, u64, u64, u64, u64),
    pub has_blocks: bool,
    /// `None`: it holds nothing.
    pub place: Option<PlaceDf>,
}

/// An object with pages of its own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct LargeDf {
    pub unit: Unit,
    /// Of the last change, of the last change of the set of dkeys, and of the first.
    pub epochs: (Epoch, Epoch, Epoch),
    /// Where its parts begin, in order; the first is empty.
    pub starts: Vec<serde_bytes::ByteBuf>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ContDf {
    pub cont: ContId,
    /// Sums over its data.
    pub sums: SumPolicy,
    /// Depth and prefix of each bucket.
    pub buckets: Vec<(u8, u64)>,
    pub large: Vec<LargeDf>,
    /// Which versions are kept.
    pub versions: VersionsDf,
    /// What they do not see may still be there.
    pub unswept: bool,
    /// Objects that have a past.
    pub pasts: Vec<Unit>,
}

/// A page that is to be read once more before it is given back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum GarbageDf {
    Bucket { cont: ContId, prefix: u64, depth: u8, place: PlaceDf },
    Part { cont: ContId, unit: Unit, start: serde_bytes::ByteBuf, place: PlaceDf },
    Past { cont: ContId, unit: Unit, place: PlaceDf },
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TableDf {
    pub conts: Vec<ContDf>,
    /// Pages of all containers in the order of `conts`: of each, buckets, then of each large object
    /// its parts and its past.
    pub pages: Vec<PageDf>,
    pub garbage: Vec<GarbageDf>,
    /// Records that make all else: epochs, prepared transactions, decisions, replies, orphans, sums
    /// of blocks.
    #[serde(with = "serde_bytes")]
    pub records: Vec<u8>,
    pub record_count: u32,
    /// Which blocks of the data area are in use; see [`Space::encode`].
    #[serde(with = "serde_bytes")]
    pub space: Vec<u8>,
    /// Sections of other parts of the store, by kind.
    pub sections: Vec<(u32, serde_bytes::ByteBuf)>,
}

fn bad(why: &str) -> Error {
    Error::new(Code::Csum, format!("table of pages: {why}"))
}

/// Writes a table; `taken` gets every run it lies in.
pub(crate) async fn write(
    pages: &PageStore,
    table: &TableDf,
    taken: &mut Vec<Run>,
) -> Result<TableRefDf> {
    // Room at once: growing would take twice the memory for the moment.
    let mut raw = Vec::with_capacity(table.pages.len() * PAGE_BYTES + table.records.len());
    wire::encode_into(table, &mut raw);
    let mut level = 0;
    loop {
        let mut places = Vec::new();
        for (number, piece) in raw.chunks(PIECE_BYTES).enumerate() {
            let id = PageIdDf::Table { number: number as u32 };
            let place = pages.write(encode(&pages.shard, &id, piece)?).await?;
            taken.extend_from_slice(&place.runs);
            places.push(PlaceDf::from(&place));
        }
        let named = wire::encode(&places);
        if named.len() <= NAMED_BYTES_MAX {
            return Ok(TableRefDf { level, places });
        }
        raw = named;
        level += 1;
    }
}

/// Reads a table and marks where it lies; also returns the runs.
pub(crate) async fn read(pages: &PageStore, at: &TableRefDf) -> Result<(TableDf, Vec<Run>)> {
    let mut taken = Vec::new();
    let mut places = at.places.clone();
    if at.level > LEVEL_MAX {
        return Err(bad("impossible depth"));
    }
    for level in (0..=at.level).rev() {
        // Pieces are full but for the last; what is not used is never touched.
        let mut raw = Vec::with_capacity((places.len() * PIECE_BYTES).min(RESERVED_BYTES_MAX));
        for (number, place) in places.iter().enumerate() {
            let place = place.place()?;
            pages.claim(&place)?;
            taken.extend_from_slice(&place.runs);
            let image = pages.read(&place).await?;
            let (id, piece) = decode(&pages.shard, &image)?;
            if id != (PageIdDf::Table { number: number as u32 }) {
                return Err(bad("a piece of it is something else"));
            }
            raw.extend_from_slice(piece);
        }
        if level == 0 {
            return Ok((decode_table(&raw)?, taken));
        }
        places = wire::decode(&raw).map_err(|error| bad(&error.to_string()))?;
    }
    Err(bad("impossible depth"))
}

/// Decodes a whole table.
pub(crate) fn decode_table(raw: &[u8]) -> Result<TableDf> {
    wire::decode(raw).map_err(|error| bad(&error.to_string()))
}

impl PageDf {
    /// The state of a page as a table has it; `place` is its image of the moment.
    pub(crate) fn of(page: &Page, place: Option<&PagePlace>) -> PageDf {
        let Counts { objects, dkeys, arrays, links, bytes, scm } = page.counts;
        PageDf {
            counts: (objects, dkeys, arrays, links, bytes, scm),
            has_blocks: page.has_blocks,
            place: place.map(PlaceDf::from),
        }
    }

    fn page(&self) -> Result<Page> {
        let (objects, dkeys, arrays, links, bytes, scm) = self.counts;
        let counts = Counts { objects, dkeys, arrays, links, bytes, scm };
        let place = self.place.as_ref().map(PlaceDf::place).transpose()?;
        if place.is_none() && counts != Counts::default() || arrays > dkeys {
            return Err(bad("a page without a place, or impossible counts"));
        }
        Ok(Page {
            counts,
            absent: place.is_some(),
            place,
            has_blocks: self.has_blocks,
            ..Page::default()
        })
    }
}

impl GarbageDf {
    pub(crate) fn of(id: &PageId, place: &PagePlace) -> GarbageDf {
        let place = PlaceDf::from(place);
        match id {
            PageId::Bucket { cont, prefix, depth } => {
                GarbageDf::Bucket { cont: *cont, prefix: *prefix, depth: *depth, place }
            }
            PageId::Part { cont, unit, start } => GarbageDf::Part {
                cont: *cont,
                unit: *unit,
                start: serde_bytes::ByteBuf::from(start.to_vec()),
                place,
            },
            PageId::Past { cont, unit } => GarbageDf::Past { cont: *cont, unit: *unit, place },
        }
    }

    fn page(&self) -> Result<(PageId, PagePlace)> {
        Ok(match self {
            GarbageDf::Bucket { cont, prefix, depth, place } => {
                (PageId::Bucket { cont: *cont, prefix: *prefix, depth: *depth }, place.place()?)
            }
            GarbageDf::Part { cont, unit, start, place } => {
                let start = Key::new(start);
                (PageId::Part { cont: *cont, unit: *unit, start }, place.place()?)
            }
            GarbageDf::Past { cont, unit, place } => {
                (PageId::Past { cont: *cont, unit: *unit }, place.place()?)
            }
        })
    }
}

/// The state a table describes, with every page absent, the data area's space, and which runs of it
/// the index has on loan.
pub(crate) fn restore(
    table: &TableDf,
    claim: &mut dyn FnMut(&PagePlace) -> Result<()>,
) -> Result<(Contents, Space, Vec<Run>)> {
    let mut state = Contents::default();
    state.index.ledger.paged = true;
    // Any, as long as nothing else is said.
    state.index.copies_seen = u32::MAX;
    let mut pages = table.pages.iter();
    let mut next = |claim: &mut dyn FnMut(&PagePlace) -> Result<()>| -> Result<Page> {
        let page = pages.next().ok_or_else(|| bad("it lacks pages"))?.page()?;
        if let Some(place) = &page.place {
            claim(place)?;
        }
        Ok(page)
    };
    for cont in &table.conts {
        let mut container = restore_cont(&mut state.index, cont, &mut || next(claim))?;
        let versions = Versions::from_durable(cont.versions.clone())?;
        state.saw_epoch(versions.snapshots.last().copied().unwrap_or_default());
        container.versions = Rc::new(versions);
        container.sweep_from = cont.unswept.then_some(Unit::NIL);
        container.pasts = cont.pasts.iter().copied().collect();
        if state.index.conts.insert(cont.cont, container).is_some() {
            return Err(bad("a container is there twice"));
        }
    }
    if pages.next().is_some() {
        return Err(bad("it has pages of nothing"));
    }
    for page in &table.garbage {
        let page = page.page()?;
        claim(&page.1)?;
        state.index.garbage.pages.push(page);
    }
    let mut records = &table.records[..];
    let mut space = Space::decode(&table.space)?;
    for _ in 0..table.record_count {
        let record = crate::record::decode_first(&mut records)?;
        state.restore(record)?;
    }
    if !records.is_empty() {
        return Err(bad("stray bytes after its records"));
    }
    space.set_durable(crate::Lsn(0));
    let section = table.sections.iter().find(|(kind, _)| *kind == loans::SECTION);
    let loans = section.map_or(Ok(Vec::new()), |(_, raw)| loans::decode(raw, &space))?;
    Ok((state, space, loans))
}

fn restore_cont(
    index: &mut Index,
    cont: &ContDf,
    next: &mut dyn FnMut() -> Result<Page>,
) -> Result<Container> {
    let count = |index: &mut Index, page: &Page, head_scm: u64| -> Result<()> {
        let add = |to: &mut u64, more: u64| {
            *to = to.checked_add(more).filter(|sum| *sum < 1 << 60).ok_or(())?;
            Ok::<(), ()>(())
        };
        let sums = add(&mut index.object_count, page.counts.objects)
            .and(add(&mut index.dkey_count, page.counts.dkeys))
            .and(add(&mut index.scm_bytes, page.counts.scm))
            .and(add(&mut index.scm_bytes, head_scm))
            .and(add(&mut index.ledger.resident_bytes, head_scm));
        index.ledger.absent_count += page.absent as u64;
        sums.map_err(|()| bad("impossible counts"))
    };
    let mut buckets = Vec::with_capacity(cont.buckets.len());
    for &(depth, prefix) in &cont.buckets {
        let page = next()?;
        count(index, &page, 0)?;
        buckets.push(Bucket { depth, prefix, page, ..Bucket::default() });
    }
    let probe = index.probe.clone();
    let mut container = Container::of_buckets(cont.cont, &probe, buckets)
        .ok_or_else(|| bad("buckets that do not fit together"))?;
    container.sums = cont.sums;
    for large in &cont.large {
        let mut object = Object::new(large.unit.dkey_kind());
        object.set_epochs(large.epochs);
        let mut parts = Parts::empty(cont.cont, large.unit, &probe);
        let mut sums = Counts::default();
        let mut last: Option<&[u8]> = None;
        for start in &large.starts {
            if !object.is_place(start)
                || last.is_none_or(|last| last >= &start[..]) != last.is_none()
            {
                return Err(bad("parts of an object out of order"));
            }
            if last.is_none() != start.is_empty() {
                return Err(bad("an object without a first part"));
            }
            last = Some(start);
            let page = next()?;
            count(index, &page, 0)?;
            sums.dkeys += page.counts.dkeys;
            sums.arrays += page.counts.arrays;
            let add =
                |sum: u64, more| sum.checked_add(more).ok_or_else(|| bad("impossible counts"));
            sums.links = add(sums.links, page.counts.links)?;
            sums.bytes = add(sums.bytes, page.counts.bytes)?;
            parts.pages.insert_new(Key::new(start), page);
        }
        if last.is_none() {
            return Err(bad("an object without parts"));
        }
        parts.past = next()?;
        count(index, &parts.past, 0)?;
        if sums.dkeys == 0 && parts.past.place.is_none() {
            return Err(bad("an object that holds nothing"));
        }
        let objects = (sums.dkeys > 0) as u64;
        let head = Page { counts: Counts { objects, ..Counts::default() }, ..Page::default() };
        count(index, &head, crate::index::cost::OBJECT)?;
        object.set_counts(&sums);
        object.parts = Some(Box::new(parts));
        if container.large.insert(large.unit.list_order(), Box::new(object)).is_some() {
            return Err(bad("an object is there twice"));
        }
    }
    Ok(container)
}

/// The containers of an index as a table has them, and the pages that have no image of the
/// moment, with their numbers.
pub(crate) fn describe(index: &mut Index, table: &mut TableDf) -> Vec<(PageId, u32)> {
    let mut todo = Vec::new();
    table.pages.reserve_exact(index.page_count());
    let ledger = &mut index.ledger;
    ledger.dirtied_count = 0;
    let mut retired = Vec::new();
    let mut add = |page: &mut Page, id: &mut dyn FnMut() -> PageId, pages: &mut Vec<PageDf>| {
        if page.dirty {
            page.dirty = false;
            ledger.dirty_bytes -= page.counts.scm;
            if page.counts == Counts::default() {
                retired.extend(page.place.take());
                page.has_blocks = false;
            } else {
                page.frozen = true;
                page.slot = pages.len() as u32;
                todo.push((id(), page.slot));
            }
        }
        let place = if page.frozen { None } else { page.place.as_ref() };
        pages.push(PageDf::of(page, place));
    };
    for (&cont, container) in &mut index.conts {
        let sums = container.sums;
        let mut described = ContDf {
            cont,
            sums,
            buckets: Vec::with_capacity(container.buckets().len()),
            large: Vec::with_capacity(container.large.len()),
            versions: container.versions.durable(),
            unswept: container.is_unswept(),
            pasts: container.pasts.iter().copied().collect(),
        };
        for bucket in container.buckets_mut() {
            described.buckets.push((bucket.depth, bucket.prefix));
            let (prefix, depth) = (bucket.prefix, bucket.depth);
            add(&mut bucket.page, &mut || PageId::Bucket { cont, prefix, depth }, &mut table.pages);
        }
        for (&(_, unit), object) in &mut container.large {
            let epochs = (object.epoch, object.keys_epoch, object.born);
            let mut large = LargeDf { unit, epochs, starts: Vec::new() };
            if let Some(parts) = &mut object.parts {
                parts.pages.for_each_mut(|start, page| {
                    large.starts.push(serde_bytes::ByteBuf::from(start.to_vec()));
                    let mut id = || PageId::Part { cont, unit, start: start.clone() };
                    add(page, &mut id, &mut table.pages);
                });
                add(&mut parts.past, &mut || PageId::Past { cont, unit }, &mut table.pages);
            }
            described.large.push(large);
        }
        table.conts.push(described);
    }
    for place in retired {
        index.ledger.retire(Some(place));
    }
    table.garbage =
        index.garbage.pages.iter().map(|(id, place)| GarbageDf::of(id, place)).collect();
    todo
}
