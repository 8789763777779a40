//! Comparing stored data with their sums, and what is done about damage.
//!
//! The engine decides when and how fast; here is one step. A step holds a [`ReadGuard`] while it
//! reads, so that no block is used again under it.

use std::collections::BTreeSet;

use env::AlignedBuf;
use types::{Code, ContId, CsumKind, Error, Key, Result, Unit};

use crate::Lsn;
use crate::blocks::{BLOCK_BYTES, Run};
use crate::data_area::{Core, Medium};
use crate::index::extent::Place;
use crate::index::object::{DkeyName, Object};
use crate::index::slot::{AkeyRef, Single};
use crate::record::RecordDf;
use crate::scrub_progress::ScrubProgress;
use crate::shard::PoolShard;
use crate::space::ReadGuard;
use crate::sums::{BadMark, differing};
use crate::volume::stripe::STRIPE_BYTES;

/// What a step found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scrubbed {
    /// Where the next step begins.
    pub next_block: u64,
    /// Bytes compared.
    pub bytes: u64,
    /// Damaged blocks, whether known before or not.
    pub bad: Vec<u64>,
}

/// The value that a block belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    pub block: u64,
    pub cont: ContId,
    pub unit: Unit,
    pub dkey: Vec<u8>,
    pub akey: Vec<u8>,
    /// First byte of the value in the block.
    pub offset: u64,
    /// Bytes of the value in the block.
    pub bytes: u64,
    /// Only snapshots see it.
    pub is_past: bool,
}

impl PoolShard {
    /// Where the scrubber is.
    pub fn scrub_progress(&self) -> ScrubProgress {
        self.state.borrow().scrub
    }

    /// Remembers where the scrubber is, also over a restart.
    pub fn set_scrub_progress(&self, progress: ScrubProgress) -> Lsn {
        self.state.borrow_mut().scrub = progress;
        self.log(|out| crate::record::encode_into(&RecordDf::Scrub { progress }, out))
    }

    /// Remembers where the scrubber is, until a restart.
    pub fn note_scrub_progress(&self, progress: ScrubProgress) {
        self.state.borrow_mut().scrub = progress;
    }

    /// Compares the next blocks with sums, from `from` on and at most `count_max` in one stretch.
    /// `None` when there are no more.
    ///
    /// `Io` when the device gives nothing at all, here and around. A block that alone cannot be read counts as
    /// damaged.
    pub async fn scrub(&self, from: u64, count_max: u64) -> Result<Option<Scrubbed>> {
        self.still_open()?;
        let core = self.core.clone();
        let _guard = ReadGuard::new(&core.space);
        let (kind, first, sums) = {
            let space = core.space.borrow();
            let Some((kind, first, count)) = space.sums.next_stretch(from, count_max.max(1)) else {
                return Ok(None);
            };
            let mut sums = Vec::with_capacity(count as usize * kind.width());
            space.sums.stretches(kind, first, count, |_, part| {
                sums.extend_from_slice(part.unwrap_or_default());
            });
            (kind, first, sums)
        };
        let count = (sums.len() / kind.width()) as u64;
        let run = Run { at: first * BLOCK_BYTES, bytes: count * BLOCK_BYTES };
        let bad = match &core.medium {
            Medium::Arena(_) => differing(kind, first, arena_data(&core, run), &sums),
            Medium::File(_) => match read(&core, run).await {
                Ok(data) => differing(kind, first, &data, &sums),
                Err(error) => one_by_one(&core, kind, first, &sums, error).await?,
            },
        };
        Ok(Some(Scrubbed { next_block: first + count, bytes: run.bytes, bad }))
    }

    /// Of these blocks, those that differ from their sums when they are read once more, each alone.
    pub async fn differing_again(&self, blocks: &[u64]) -> Vec<u64> {
        let core = self.core.clone();
        let _guard = ReadGuard::new(&core.space);
        let mut bad = Vec::new();
        for &block in blocks {
            // It may be memory that is damaged.
            core.cache.forget(block, 1);
            let Some((kind, sum)) =
                core.space.borrow().sums.of(block).map(|(kind, sum)| (kind, sum.to_vec()))
            else {
                continue;
            };
            let run = Run { at: block * BLOCK_BYTES, bytes: BLOCK_BYTES };
            let differs = match &core.medium {
                Medium::Arena(_) => {
                    !differing(kind, block, arena_data(&core, run), &sum).is_empty()
                }
                Medium::File(_) => match read(&core, run).await {
                    Ok(data) => !differing(kind, block, &data, &sum).is_empty(),
                    Err(_) => true,
                },
            };
            if differs {
                bad.push(block);
            }
        }
        bad
    }

    /// Notes that blocks are damaged: from now on, also after a restart, what touches them is
    /// refused to readers, until it is overwritten or punched. Returns those that were not known.
    pub fn mark_bad(&self, blocks: &[u64], mark: BadMark) -> Vec<u64> {
        let mut fresh = blocks.to_vec();
        fresh.retain(|block| self.core.space.borrow_mut().sums.mark_bad(*block, mark));
        if !fresh.is_empty() {
            let blocks = fresh.iter().map(|block| (*block, mark)).collect();
            self.log(|out| crate::record::encode_into(&RecordDf::BadBlocks { blocks }, out));
        }
        fresh
    }

    /// Blocks known to be damaged, in order.
    pub fn bad_blocks(&self) -> Vec<(u64, BadMark)> {
        self.core.space.borrow().sums.bad().collect()
    }

    /// Number of blocks known to be damaged.
    pub fn bad_count(&self) -> u64 {
        self.core.space.borrow().sums.bad_count()
    }

    /// Bytes of data that have sums, in blocks from `from` on.
    pub fn summed_bytes(&self, from: u64) -> u64 {
        let sums = &self.core.space.borrow().sums;
        let count = if from == 0 { sums.block_count() } else { sums.count_from(from) };
        count * BLOCK_BYTES
    }

    /// Searches all values for those that touch the blocks, first those of the present, then those
    /// that only snapshots see. Goes in slices; what is written meanwhile may be missed.
    pub async fn holders(&self, blocks: &[u64]) -> Vec<Holder> {
        let mut search = Search { wanted: blocks.iter().copied().collect(), found: Vec::new() };
        for cont in self.conts() {
            let mut at = Some(0);
            while let Some(hash) = at {
                // What cannot be loaded holds nothing that can be told.
                let Ok((units, next)) = self.units_at(cont, hash).await else { break };
                for unit in units {
                    self.search_object(cont, unit, &mut search).await;
                }
                at = next;
                self.core.env.yield_now().await;
            }
        }
        let mut found = search.found;
        found.sort_by_key(|holder| (holder.block, holder.is_past));
        found
    }

    async fn search_object(&self, cont: ContId, unit: Unit, search: &mut Search) {
        // Part by part.
        let mut start = Some(Key::default());
        while let Some(from) = start.take() {
            let whole = self.ready_bucket(cont, unit.list_order().0).await;
            if whole.is_err() || self.ready_part(cont, unit, &from).await.is_err() {
                return;
            }
            let Ok(container) = self.look(cont) else { return };
            let Some(object) = container.whole(unit) else { return };
            let end = object.parts.as_ref().and_then(|parts| parts.end_of(&from));
            search.range((cont, unit), object, (&from, end.as_deref()), false);
            if from.is_empty() {
                search.past((cont, unit), object);
            }
            start = end;
        }
    }
}

/// A search for what touches some blocks.
struct Search {
    wanted: BTreeSet<u64>,
    found: Vec<Holder>,
}

impl Search {
    /// Dkeys of an object that are in memory.
    fn range(
        &mut self,
        whose: (ContId, Unit),
        object: &Object,
        (from, end): (&[u8], Option<&[u8]>),
        is_past: bool,
    ) {
        for (name, dkey) in object.range(from, end) {
            for (akey, value) in dkey.akeys() {
                let mut each = |offset: u64, run: Run| {
                    self.run(whose, name, akey, (offset, run), is_past);
                };
                match value {
                    AkeyRef::Inline(..) | AkeyRef::Old(_) => {}
                    AkeyRef::Runs(_, runs) => each_of(runs, each),
                    AkeyRef::Array(array) => {
                        let record = array.record_bytes as u64;
                        for (index, extent) in array.iter() {
                            if let Place::Blocks(at) = extent.place {
                                let run = Run { at, bytes: extent.count * record };
                                each(index.saturating_mul(record), run);
                            }
                        }
                    }
                }
            }
        }
    }

    /// What an object has lost, and the lives it had.
    fn past(&mut self, whose: (ContId, Unit), object: &Object) {
        let Some(past) = &object.past else { return };
        for (order, dkey) in past.dkeys.iter() {
            let name = object.name_of(order);
            for (akey, values) in dkey.akeys.iter() {
                let mut each =
                    |offset: u64, run: Run| self.run(whose, name, akey, (offset, run), true);
                for piece in &values.singles {
                    if let Single::Runs(runs) = &piece.value {
                        each_of(runs, &mut each);
                    }
                }
                for (&(index, _), piece) in &values.extents {
                    if let Place::Blocks(at) = piece.place {
                        let record = piece.record_bytes as u64;
                        let run = Run { at, bytes: piece.count * record };
                        each(index.saturating_mul(record), run);
                    }
                }
            }
        }
        for life in &past.lives {
            self.range(whose, &life.object, (b"", None), true);
            self.past(whose, &life.object);
        }
    }

    /// A run of a value, and where it begins in it.
    fn run(
        &mut self,
        (cont, unit): (ContId, Unit),
        name: DkeyName<'_>,
        akey: &[u8],
        (offset, run): (u64, Run),
        is_past: bool,
    ) {
        for &block in self.wanted.range(run.first_block()..run.end_block()) {
            let start = run.at.max(block * BLOCK_BYTES);
            let end = (run.at + run.bytes).min((block + 1) * BLOCK_BYTES);
            self.found.push(Holder {
                block,
                cont,
                unit,
                dkey: name.with_bytes(<[u8]>::to_vec),
                akey: akey.to_vec(),
                offset: offset + (start - run.at),
                bytes: end - start,
                is_past,
            });
        }
    }
}

/// The runs of a single value, with where each begins in it.
fn each_of(runs: &[Run], mut each: impl FnMut(u64, Run)) {
    let mut offset = 0;
    for &run in runs {
        each(offset, run);
        offset += run.bytes;
    }
}

/// Blocks in the arena that have sums; the caller holds a [`ReadGuard`].
fn arena_data(core: &Core, run: Run) -> &[u8] {
    let Medium::Arena(arena) = &core.medium else { return &[] };
    let start = arena.address(run);
    // SAFETY: the run is inside the arena that `core` keeps mapped; its blocks have sums, so they
    // are in use and were written whole, and the caller's guard keeps them so (see `arena`).
    unsafe { std::slice::from_raw_parts(start.as_ptr(), run.bytes as usize) }
}

/// Reads whole blocks from the device.
async fn read(core: &Core, run: Run) -> Result<AlignedBuf> {
    let Medium::File(file) = &core.medium else {
        return Err(Error::inval("the data area is in memory"));
    };
    let (buf, result) = file.read_at(run.at, AlignedBuf::try_scratch(run.bytes as usize)?).await;
    if (result? as u64) < run.bytes {
        return Err(Error::new(Code::Io, "the data file is shorter than its index says"));
    }
    Ok(buf)
}

/// A device that gives nothing of so much around a block is not one with a lost sector: it is gone. Data devices take turns in units of this size.
const AROUND_BYTES: u64 = STRIPE_BYTES;

/// Whether the device gives something near a block.
async fn gives_something_near(core: &Core, block: u64) -> bool {
    let Medium::File(file) = &core.medium else { return true };
    let start = block * BLOCK_BYTES / AROUND_BYTES * AROUND_BYTES;
    let end = (start + AROUND_BYTES).min(file.len().unwrap_or(0) / BLOCK_BYTES * BLOCK_BYTES);
    let step = (AROUND_BYTES / 8) as usize;
    for at in (start..end).step_by(step).chain(end.checked_sub(BLOCK_BYTES)) {
        if read(core, Run { at, bytes: BLOCK_BYTES }).await.is_ok() {
            return true;
        }
    }
    false
}

/// After a failed read: which blocks are to blame. `Io` when the device is.
async fn one_by_one(
    core: &Core,
    kind: CsumKind,
    first: u64,
    sums: &[u8],
    error: Error,
) -> Result<Vec<u64>> {
    let mut bad = Vec::new();
    let mut read_count = 0;
    for (at, sum) in sums.chunks(kind.width()).enumerate() {
        let block = first + at as u64;
        match read(core, Run { at: block * BLOCK_BYTES, bytes: BLOCK_BYTES }).await {
            Ok(data) => {
                read_count += 1;
                bad.extend(differing(kind, block, &data, sum));
            }
            Err(_) => bad.push(block),
        }
    }
    if read_count == 0 && !gives_something_near(core, first).await {
        return Err(error.context("reading data to check them"));
    }
    Ok(bad)
}
