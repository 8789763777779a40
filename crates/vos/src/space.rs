//! Space of the data area: blocks of 4 KiB, who may use them and when they come back.
//!
//! Invariants:
//! - A block is free, deferred, or referenced; a referenced block has one reference per extent
//!   that touches it. Few have more than one (an overwrite inside a block leaves two extents in
//!   it; a rollback shares blocks with a snapshot), so only counts above one are kept.
//! - A freed block is handed out again only when (a) the log record that freed it is durable,
//!   or a crash would bring back an extent whose bytes are gone, and (b) no reader that could
//!   have seen the old extent is still sending it.
//! - Free runs are maximal: neighbours are joined.
//!
//! A checkpoint keeps which blocks are in use ([`Space::encode`]); replay follows from there. Blocks
//! that only a staged update holds are *reserved* and free in a checkpoint, so a crash leaks
//! nothing. Best fit over an ordered set of lengths keeps large runs whole and reuses memory that the
//! process has touched already; every call is O(log n) in the number of free runs.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use types::{Code, Error, Result};

use crate::Lsn;
use crate::blocks::{BLOCK_BYTES, Run};
use crate::data_cache::DataCache;
use crate::sums::SumTable;

/// What a change of the index does to block references.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockChange {
    /// One more extent touches this block.
    Ref(u64),
    /// One more extent touches each of these blocks: it shares them.
    RefRun {
        /// First block.
        first: u64,
        count: u64,
    },
    /// One extent less touches each of these blocks.
    Unref {
        /// First block.
        first: u64,
        count: u64,
    },
}

/// Blocks waiting to become free.
#[derive(Debug)]
struct Deferred {
    generation: u64,
    lsn: Lsn,
    first: u64,
    count: u64,
}

#[derive(Serialize, Deserialize)]
struct SpaceDf {
    blocks: u64,
    /// Free runs in order: blocks in use before each, and its length.
    free: Vec<(u64, u64)>,
    /// Blocks of more than one reference in order: distance from the one before, and how many.
    shared: Vec<(u64, u32)>,
}

/// The allocator; see the module.
#[derive(Debug, Default)]
pub(crate) struct Space {
    block_count: u64,
    free_blocks: u64,
    deferred_blocks: u64,
    by_start: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
    shared: BTreeMap<u64, u32>,
    /// Runs taken for updates that are not logged yet: first block and count.
    reserved: BTreeMap<u64, u64>,
    deferred: VecDeque<Deferred>,
    /// Readers by the generation they began in.
    readers: BTreeMap<u64, u32>,
    generation: u64,
    durable: Lsn,
    /// Freed runs are collected for the device to be told.
    collects: bool,
    /// Freed runs, joined; parts of them may be in use again.
    freed: BTreeMap<u64, u64>,
    /// While blocks are counted: those whose references may have changed since, joined.
    changed: Option<BTreeMap<u64, u64>>,
    /// Sums of the blocks in use.
    pub sums: SumTable,
    /// What was read of them; it is to forget those that become free.
    pub cache: Option<Rc<DataCache>>,
}

/// Least freed run that a device is told of, blocks.
const FREED_BLOCKS_MIN: u64 = 256;
/// Freed runs collected at most.
const FREED_COUNT_MAX: usize = 4096;

impl Space {
    /// All of `bytes` free; a last part smaller than a block is not used.
    pub(crate) fn new(bytes: u64) -> Space {
        let mut space = Space { block_count: bytes / BLOCK_BYTES, ..Space::default() };
        space.put(0, space.block_count);
        space
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.block_count * BLOCK_BYTES
    }

    /// Bytes free or about to be.
    pub(crate) fn free_bytes(&self) -> u64 {
        (self.free_blocks + self.deferred_blocks) * BLOCK_BYTES
    }

    /// Takes blocks for `bytes`: one run if there is one long enough, else the longest one and
    /// the caller asks again for the rest. `NoSpace` when nothing is free.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<Run> {
        let want = bytes.div_ceil(BLOCK_BYTES);
        let (length, start) = match self.by_length.range((want, 0)..).next() {
            Some(&found) => found,
            None => match self.by_length.last() {
                Some(&longest) => longest,
                None => return Err(Error::bare(Code::NoSpace)),
            },
        };
        let count = want.min(length);
        self.remove(start, length);
        if length > count {
            self.insert(start + count, length - count);
        }
        Ok(Run { at: start * BLOCK_BYTES, bytes: bytes.min(count * BLOCK_BYTES) })
    }

    /// As [`Space::take`], of blocks before byte `limit` only. Looks at all free runs there.
    pub(crate) fn take_below(&mut self, bytes: u64, limit: u64) -> Result<Run> {
        let (want, limit) = (bytes.div_ceil(BLOCK_BYTES), limit / BLOCK_BYTES);
        let below = self.by_start.range(..limit);
        let most = below.max_by_key(|&(&start, &length)| length.min(limit - start).min(want));
        let (start, length) = match most {
            Some((&start, &length)) => (start, length),
            None => return Err(Error::bare(Code::NoSpace)),
        };
        let count = want.min(length).min(limit - start);
        self.remove(start, length);
        if length > count {
            self.insert(start + count, length - count);
        }
        Ok(Run { at: start * BLOCK_BYTES, bytes: bytes.min(count * BLOCK_BYTES) })
    }

    /// Gives back blocks that no record and no reader knows.
    pub(crate) fn give_back(&mut self, run: Run) {
        self.keep(run);
        self.put(run.first_block(), run.end_block() - run.first_block());
    }

    /// As [`Space::take`], for an update that is not logged yet: until [`Space::keep`] or
    /// [`Space::give_back`] a checkpoint takes the blocks for free.
    pub(crate) fn reserve(&mut self, bytes: u64) -> Result<Run> {
        let run = self.take(bytes)?;
        self.reserved.insert(run.first_block(), run.end_block() - run.first_block());
        Ok(run)
    }

    /// A run in use: a checkpoint takes it for free from now on, until [`Space::give_back`].
    pub(crate) fn free_in_tables(&mut self, run: Run) {
        self.reserved.insert(run.first_block(), run.end_block() - run.first_block());
    }

    /// The record of an update that reserved the run is being logged.
    pub(crate) fn keep(&mut self, run: Run) {
        let (from, to) = (run.first_block(), run.end_block());
        while let Some((&first, &count)) = self.reserved.range(..to).next_back()
            && first + count > from
        {
            self.reserved.remove(&first);
            if first < from {
                self.reserved.insert(first, from - first);
            }
            if first + count > to {
                self.reserved.insert(to, first + count - to);
            }
        }
    }

    /// As [`Space::claim`], but `Csum` when a block of the run is in use already.
    pub(crate) fn claim_free(&mut self, run: Run) -> Result<()> {
        let before = self.free_blocks;
        self.claim(run)?;
        if before - self.free_blocks != run.end_block() - run.first_block() {
            return Err(Error::new(
                Code::Csum,
                format!("the block at byte {} belongs to two things", run.at),
            ));
        }
        Ok(())
    }

    /// Follows a change while the log is replayed. `Csum` when the change cannot be.
    pub(crate) fn replay(&mut self, change: BlockChange) -> Result<()> {
        let (first, count) = match change {
            BlockChange::Ref(block) => (block, 1),
            BlockChange::Unref { first, count } | BlockChange::RefRun { first, count } => {
                (first, count)
            }
        };
        let end = first.checked_add(count).filter(|end| *end <= self.block_count);
        let free = end.and_then(|end| self.by_start.range(..end).next_back());
        if end.is_none() || free.is_some_and(|(start, length)| start + length > first) {
            return Err(Error::new(
                Code::Csum,
                format!("the log releases block {first}, which is not in use"),
            ));
        }
        self.follow(change, Lsn(0));
        Ok(())
    }

    /// Which blocks are in use, as a table of pages keeps it: reserved and released ones are not.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut runs: Vec<(u64, u64)> = self.by_start.iter().map(|(&s, &l)| (s, l)).collect();
        runs.extend(self.deferred.iter().map(|gone| (gone.first, gone.count)));
        runs.extend(self.reserved.iter().map(|(&s, &l)| (s, l)));
        runs.sort_unstable();
        let mut free: Vec<(u64, u64)> = Vec::with_capacity(runs.len());
        let mut end = 0;
        for (first, count) in runs {
            match free.last_mut() {
                Some((_, length)) if end == first => *length += count,
                _ => free.push((first - end, count)),
            }
            end = first + count;
        }
        let mut last = 0;
        let shared = self.shared.iter().map(|(&block, &count)| {
            let gap = block - last;
            last = block;
            (gap, count)
        });
        wire::encode(&SpaceDf { blocks: self.block_count, free, shared: shared.collect() })
    }

    /// The space that [`Space::encode`] described. `Csum` when it makes no sense.
    pub(crate) fn decode(raw: &[u8]) -> Result<Space> {
        let bad = |why: &str| Error::new(Code::Csum, format!("list of free blocks: {why}"));
        let stored: SpaceDf = wire::decode(raw).map_err(|error| bad(&error.to_string()))?;
        let mut space = Space { block_count: stored.blocks, ..Space::default() };
        let mut end = 0u64;
        for (gap, count) in stored.free {
            let first = end.checked_add(gap).ok_or_else(|| bad("impossible run"))?;
            end = first.checked_add(count).ok_or_else(|| bad("impossible run"))?;
            if count == 0 || end > stored.blocks {
                return Err(bad("impossible run"));
            }
            space.put(first, count);
        }
        let mut block = 0u64;
        for (gap, count) in stored.shared {
            block = block.checked_add(gap).ok_or_else(|| bad("impossible block"))?;
            let free = space.by_start.range(..=block).next_back();
            let is_free = free.is_some_and(|(start, length)| start + length > block);
            if count < 2 || block >= stored.blocks || is_free {
                return Err(bad("impossible block"));
            }
            space.shared.insert(block, count);
        }
        Ok(space)
    }

    /// Marks a run as used while the state is rebuilt; blocks may be claimed by two extents.
    /// `Csum` when the run is outside the area, which means a damaged index.
    pub(crate) fn claim(&mut self, run: Run) -> Result<()> {
        if run.at.checked_add(run.bytes).is_none_or(|end| end > self.bytes()) {
            return Err(Error::new(
                Code::Csum,
                format!("an extent at byte {} lies outside the data area", run.at),
            ));
        }
        let (mut block, end) = (run.first_block(), run.end_block());
        while block < end {
            let free = self.by_start.range(..=block).next_back().map(|(&s, &l)| (s, l));
            match free {
                Some((start, length)) if start + length > block => {
                    let stop = end.min(start + length);
                    self.remove(start, length);
                    if start < block {
                        self.insert(start, block - start);
                    }
                    if stop < start + length {
                        self.insert(stop, start + length - stop);
                    }
                    block = stop;
                }
                _ => {
                    *self.shared.entry(block).or_insert(1) += 1;
                    block += 1;
                }
            }
        }
        Ok(())
    }

    /// Drops sums of blocks that are free; after a rebuild.
    pub(crate) fn clear_free_sums(&mut self) {
        for (&first, &count) in &self.by_start {
            self.sums.clear(first, count);
        }
    }

    /// Follows a change of the index made by the record at `lsn`.
    pub(crate) fn follow(&mut self, change: BlockChange, lsn: Lsn) {
        match change {
            BlockChange::Ref(block) => self.note_changed(block, 1),
            BlockChange::RefRun { first, count } | BlockChange::Unref { first, count } => {
                self.note_changed(first, count);
            }
        }
        match change {
            BlockChange::Ref(block) => *self.shared.entry(block).or_insert(1) += 1,
            BlockChange::RefRun { first, count } => {
                for block in first..first + count {
                    *self.shared.entry(block).or_insert(1) += 1;
                }
            }
            BlockChange::Unref { first, count } => {
                let (mut from, end) = (first, first + count);
                // Blocks with more than one reference cut the range.
                while let Some(&block) = self.shared.range(from..end).next().map(|(b, _)| b) {
                    if from < block {
                        self.free_later(from, block - from, lsn);
                    }
                    self.unshare(block);
                    from = block + 1;
                }
                if from < end {
                    self.free_later(from, end - from, lsn);
                }
            }
        }
    }

    /// The references of all blocks are being counted: notes from now on which change, those among them that no index knows
    /// though they are not free.
    pub(crate) fn begin_count(&mut self) {
        let mut changed = BTreeMap::new();
        let deferred = self.deferred.iter().map(|gone| (gone.first, gone.count));
        for (first, count) in deferred.chain(self.reserved.iter().map(|(&f, &c)| (f, c))) {
            add_joined(&mut changed, first, count);
        }
        self.changed = Some(changed);
    }

    pub(crate) fn end_count(&mut self) {
        self.changed = None;
    }

    fn note_changed(&mut self, first: u64, count: u64) {
        if let Some(changed) = &mut self.changed {
            add_joined(changed, first, count);
        }
    }

    /// Blocks that have more references than were counted since [`Space::begin_count`]: runs of one reference each, first block
    /// and count. Those that changed meanwhile are not among them.
    pub(crate) fn unnamed(&self, counted: &Space) -> Vec<(u64, u64)> {
        let Some(changed) = &self.changed else { return Vec::new() };
        let mut found = Vec::new();
        let mut add = |first: u64, end: u64| {
            each_outside(changed, first, end, &mut |first, end| found.push((first, end - first)));
        };
        for (&first, &count) in &counted.by_start {
            each_outside(&self.by_start, first, first + count, &mut add);
        }
        for (&block, &has) in &self.shared {
            for _ in counted.shared.get(&block).copied().unwrap_or(1)..has {
                add(block, block + 1);
            }
        }
        found
    }

    /// Drops one reference of those blocks that are in use, while the log is replayed.
    pub(crate) fn release(&mut self, first: u64, count: u64) {
        let end = first.saturating_add(count).min(self.block_count);
        let mut used = Vec::new();
        each_outside(&self.by_start, first, end, &mut |first, end| used.push((first, end - first)));
        for (first, count) in used {
            self.follow(BlockChange::Unref { first, count }, Lsn(0));
        }
    }

    /// Drops one of several references.
    fn unshare(&mut self, block: u64) {
        if let Some(count) = self.shared.get_mut(&block) {
            *count -= 1;
            if *count == 1 {
                self.shared.remove(&block);
            }
        }
    }

    fn free_later(&mut self, first: u64, count: u64, lsn: Lsn) {
        if lsn <= self.durable && self.readers.is_empty() && self.deferred.is_empty() {
            self.note_freed(first, count);
            return self.put(first, count);
        }
        self.forget_cached(first, count);
        // Nothing shows them any more, so that they are nobody's damage.
        self.sums.forget_bad(first, count);
        self.deferred_blocks += count;
        self.deferred.push_back(Deferred { generation: self.generation, lsn, first, count });
    }

    /// Records up to `lsn` are durable.
    pub(crate) fn set_durable(&mut self, lsn: Lsn) {
        self.durable = self.durable.max(lsn);
        self.settle();
    }

    fn settle(&mut self) {
        let oldest_reader = self.readers.keys().next().copied().unwrap_or(u64::MAX);
        while let Some(front) = self.deferred.front() {
            if front.lsn > self.durable || front.generation >= oldest_reader {
                break;
            }
            let Some(Deferred { first, count, .. }) = self.deferred.pop_front() else { break };
            self.deferred_blocks -= count;
            self.note_freed(first, count);
            self.put(first, count);
        }
    }

    /// From now on, or no longer, collects freed runs.
    pub(crate) fn collect_freed(&mut self, collects: bool) {
        self.collects = collects;
        self.freed.clear();
    }

    /// True when freed runs are collected.
    pub(crate) fn collects_freed(&self) -> bool {
        self.collects
    }

    fn note_freed(&mut self, first: u64, count: u64) {
        if !self.collects {
            return;
        }
        // A block used again since may be there twice.
        add_joined(&mut self.freed, first, count);
        if self.freed.len() > FREED_COUNT_MAX {
            self.freed.retain(|_, length| *length >= FREED_BLOCKS_MIN);
            if self.freed.len() > FREED_COUNT_MAX {
                self.freed.clear();
            }
        }
    }

    /// The first free run at or behind `at`, or the part of one that begins there.
    pub(crate) fn next_free(&self, at: u64) -> Option<Run> {
        let block = at.div_ceil(BLOCK_BYTES);
        let around = self.by_start.range(..block).next_back().map(|(&s, &l)| (block, s + l));
        let around = around.filter(|(from, to)| from < to);
        let behind = || self.by_start.range(block..).next().map(|(&s, &l)| (s, s + l));
        let (from, to) = around.or_else(behind)?;
        Some(Run { at: from * BLOCK_BYTES, bytes: (to - from) * BLOCK_BYTES })
    }

    /// The longest free run.
    pub(crate) fn longest_free(&self) -> Option<Run> {
        let &(length, start) = self.by_length.last()?;
        Some(Run { at: start * BLOCK_BYTES, bytes: length * BLOCK_BYTES })
    }

    /// Takes the next freed run that is large enough off the list, at most `bytes_max` of it.
    pub(crate) fn next_freed(&mut self, bytes_max: u64) -> Option<Run> {
        let large = |entry: &(&u64, &u64)| *entry.1 >= FREED_BLOCKS_MIN;
        let (first, count) = self.freed.iter().find(large).map(|(&f, &c)| (f, c))?;
        self.freed.remove(&first);
        let part = count.min((bytes_max / BLOCK_BYTES).max(1));
        if part < count {
            self.freed.insert(first + part, count - part);
        }
        Some(Run { at: first * BLOCK_BYTES, bytes: part * BLOCK_BYTES })
    }

    /// Reserves exactly these blocks; false when one of them is in use.
    pub(crate) fn take_exact(&mut self, run: Run) -> bool {
        let (first, end) = (run.first_block(), run.end_block());
        let around = self.by_start.range(..=first).next_back().map(|(&s, &l)| (s, l));
        let Some((start, length)) = around.filter(|(start, length)| start + length >= end) else {
            return false;
        };
        self.remove(start, length);
        if start < first {
            self.insert(start, first - start);
        }
        if end < start + length {
            self.insert(end, start + length - end);
        }
        self.reserved.insert(first, end - first);
        true
    }

    /// Adds a free run, joined with its neighbours.
    fn put(&mut self, first: u64, count: u64) {
        if count == 0 {
            return;
        }
        self.note_changed(first, count);
        self.sums.clear(first, count);
        // A reader that was under way when they were released may have put them back.
        self.forget_cached(first, count);
        let (mut start, mut length) = (first, count);
        if let Some((&before, &before_length)) = self.by_start.range(..first).next_back() {
            assert!(before + before_length <= first, "block {first} freed twice");
            if before + before_length == first {
                self.remove(before, before_length);
                start = before;
                length += before_length;
            }
        }
        if let Some((&after, &after_length)) = self.by_start.range(first..).next() {
            assert!(first + count <= after, "block {after} freed twice");
            if first + count == after {
                self.remove(after, after_length);
                length += after_length;
            }
        }
        self.insert(start, length);
    }

    fn forget_cached(&self, first: u64, count: u64) {
        if let Some(cache) = &self.cache {
            cache.forget(first, count);
        }
    }

    fn insert(&mut self, start: u64, length: u64) {
        self.by_start.insert(start, length);
        self.by_length.insert((length, start));
        self.free_blocks += length;
    }

    fn remove(&mut self, start: u64, length: u64) {
        self.note_changed(start, length);
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
        self.free_blocks -= length;
    }
}

/// Adds a run to others, joined with what it touches.
fn add_joined(runs: &mut BTreeMap<u64, u64>, first: u64, count: u64) {
    let (mut start, mut end) = (first, first + count);
    while let Some((&at, &length)) = runs.range(..=end).next_back()
        && at + length >= start
    {
        runs.remove(&at);
        start = start.min(at);
        end = end.max(at + length);
    }
    runs.insert(start, end - start);
}

/// Calls `each` with the parts of a range that are in none of the runs: first block and one past the last.
fn each_outside(runs: &BTreeMap<u64, u64>, first: u64, end: u64, each: &mut dyn FnMut(u64, u64)) {
    let mut at = runs.range(..=first).next_back().map_or(first, |(&s, &l)| first.max(s + l));
    while at < end {
        let next = runs.range(at..end).next();
        let stop = next.map_or(end, |(&start, _)| start);
        if at < stop {
            each(at, stop);
        }
        at = next.map_or(end, |(&start, &length)| start + length);
    }
}

/// Keeps every extent that can be seen now from being reused, until dropped.
#[derive(Debug)]
pub(crate) struct ReadGuard {
    space: Rc<RefCell<Space>>,
    generation: u64,
}

impl ReadGuard {
    pub(crate) fn new(space: &Rc<RefCell<Space>>) -> ReadGuard {
        let mut state = space.borrow_mut();
        // Frees from here on carry a greater or equal generation and wait for this reader.
        state.generation += 1;
        let generation = state.generation;
        *state.readers.entry(generation).or_insert(0) += 1;
        drop(state);
        ReadGuard { space: space.clone(), generation }
    }
}

impl Drop for ReadGuard {
    fn drop(&mut self) {
        let mut state = self.space.borrow_mut();
        if let Some(count) = state.readers.get_mut(&self.generation) {
            *count -= 1;
            if *count == 0 {
                state.readers.remove(&self.generation);
                state.settle();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lsn(n: u64) -> Lsn {
        Lsn(n)
    }

    #[test]
    fn a_freed_block_waits_for_its_record_and_for_readers() {
        let space = Rc::new(RefCell::new(Space::new(4 * BLOCK_BYTES)));
        let run = space.borrow_mut().take(4 * BLOCK_BYTES).unwrap();
        let reader = ReadGuard::new(&space);
        space.borrow_mut().follow(BlockChange::Unref { first: 0, count: 4 }, lsn(7));
        assert_eq!(space.borrow_mut().take(1).unwrap_err().code, Code::NoSpace);
        drop(reader);
        assert_eq!(space.borrow_mut().take(1).unwrap_err().code, Code::NoSpace);
        space.borrow_mut().set_durable(lsn(7));
        assert_eq!(space.borrow_mut().take(run.bytes).unwrap(), run);
    }

    #[test]
    fn a_later_reader_does_not_hold_up_earlier_frees() {
        let space = Rc::new(RefCell::new(Space::new(2 * BLOCK_BYTES)));
        space.borrow_mut().take(2 * BLOCK_BYTES).unwrap();
        let early = ReadGuard::new(&space);
        space.borrow_mut().follow(BlockChange::Unref { first: 0, count: 1 }, lsn(0));
        let late = ReadGuard::new(&space);
        space.borrow_mut().follow(BlockChange::Unref { first: 1, count: 1 }, lsn(0));
        drop(early);
        assert_eq!(space.borrow_mut().take(2 * BLOCK_BYTES).unwrap().bytes, BLOCK_BYTES);
        drop(late);
        assert_eq!(space.borrow_mut().take(1).unwrap().at, BLOCK_BYTES);
    }

    proptest! {
        /// The model is one reference count per block.
        #[test]
        fn agrees_with_a_count_per_block(
            steps in prop::collection::vec((0u8..5, 1u64..9, any::<u16>()), 1..200),
        ) {
            const BLOCKS: u64 = 48;
            let mut space = Space::new(BLOCKS * BLOCK_BYTES);
            let mut model = vec![0u32; BLOCKS as usize];
            let mut held: Vec<Run> = Vec::new();
            for (kind, blocks, pick) in steps {
                match kind {
                    0 | 1 => match space.take(blocks * BLOCK_BYTES - 7) {
                        Ok(run) => {
                            for block in run.first_block()..run.end_block() {
                                prop_assert_eq!(model[block as usize], 0);
                                model[block as usize] = 1;
                            }
                            held.push(run);
                        }
                        Err(_) => prop_assert!(model.iter().all(|&count| count > 0)),
                    },
                    2 if !held.is_empty() => {
                        // Cut a run inside one of its blocks: both halves touch that block.
                        let slot = pick as usize % held.len();
                        let run = held.swap_remove(slot);
                        let cut = run.bytes / 2;
                        if cut == 0 || (run.at + cut).is_multiple_of(BLOCK_BYTES) {
                            held.push(run);
                        } else {
                            let block = (run.at + cut) / BLOCK_BYTES;
                            space.follow(BlockChange::Ref(block), Lsn(0));
                            model[block as usize] += 1;
                            held.push(Run { at: run.at, bytes: cut });
                            held.push(Run { at: run.at + cut, bytes: run.bytes - cut });
                        }
                    }
                    _ if !held.is_empty() => {
                        let run = held.swap_remove(pick as usize % held.len());
                        let (first, end) = (run.first_block(), run.end_block());
                        space.follow(BlockChange::Unref { first, count: end - first }, Lsn(0));
                        (first..end).for_each(|block| model[block as usize] -= 1);
                    }
                    _ => {}
                }
                let free = model.iter().filter(|&&count| count == 0).count() as u64;
                prop_assert_eq!(space.free_bytes(), free * BLOCK_BYTES);
                let mut rebuilt = Space::new(BLOCKS * BLOCK_BYTES);
                for run in &held {
                    rebuilt.claim(*run).unwrap();
                }
                let decoded = Space::decode(&space.encode()).unwrap();
                prop_assert_eq!(&decoded.by_start, &space.by_start);
                prop_assert_eq!(&decoded.shared, &space.shared);
                prop_assert_eq!(&rebuilt.by_start, &space.by_start);
                prop_assert_eq!(&rebuilt.shared, &space.shared);
            }
        }

        /// Some runs are forgotten without a word, as by a page that is given up; then all are counted while others change.
        #[test]
        fn what_is_counted_finds_what_nothing_names(
            steps in prop::collection::vec((0u8..8, 1u64..9, any::<u16>()), 1..300),
        ) {
            const BLOCKS: u64 = 64;
            let mut space = Space::new(BLOCKS * BLOCK_BYTES);
            let mut held: Vec<Run> = Vec::new();
            let mut leaked: Vec<Run> = Vec::new();
            let mut count: Option<Space> = None;
            let unref = |space: &mut Space, (first, count): (u64, u64)| {
                space.follow(BlockChange::Unref { first, count }, Lsn(0));
            };
            for (kind, blocks, pick) in steps {
                match kind {
                    0..=2 => {
                        if let Ok(run) = space.take(blocks * BLOCK_BYTES) {
                            held.push(run);
                        }
                    }
                    // Another reference to all of a run.
                    3 if !held.is_empty() => {
                        let run = held[pick as usize % held.len()];
                        let (first, count) = (run.first_block(), run.end_block() - run.first_block());
                        space.follow(BlockChange::RefRun { first, count }, Lsn(0));
                        held.push(run);
                    }
                    4 | 5 if !held.is_empty() => {
                        let run = held.swap_remove(pick as usize % held.len());
                        unref(&mut space, (run.first_block(), run.end_block() - run.first_block()));
                    }
                    6 if count.is_none() && !held.is_empty() => {
                        leaked.push(held.swap_remove(pick as usize % held.len()));
                    }
                    7 => match count.take() {
                        None => {
                            space.begin_count();
                            let mut counted = Space::new(BLOCKS * BLOCK_BYTES);
                            held.iter().try_for_each(|run| counted.claim(*run)).unwrap();
                            count = Some(counted);
                        }
                        Some(counted) => {
                            let found = space.unnamed(&counted);
                            space.end_count();
                            found.into_iter().for_each(|run| unref(&mut space, run));
                            // What others referred to, too, and changed meanwhile is found the next time.
                            space.begin_count();
                            let mut counted = Space::new(BLOCKS * BLOCK_BYTES);
                            held.iter().try_for_each(|run| counted.claim(*run)).unwrap();
                            let found = space.unnamed(&counted);
                            space.end_count();
                            found.into_iter().for_each(|run| unref(&mut space, run));
                            leaked.clear();
                            prop_assert_eq!(&counted.by_start, &space.by_start);
                            prop_assert_eq!(&counted.shared, &space.shared);
                        }
                    },
                    _ => {}
                }
                let mut all = Space::new(BLOCKS * BLOCK_BYTES);
                held.iter().chain(&leaked).try_for_each(|run| all.claim(*run)).unwrap();
                prop_assert_eq!(&all.by_start, &space.by_start, "nothing in use is given back");
                prop_assert_eq!(&all.shared, &space.shared);
            }
        }
    }
}
