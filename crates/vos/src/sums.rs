//! Sums of the blocks of the data area, and which blocks are known to be damaged.
//!
//! Data are never overwritten in place and a run begins with a fresh block, so the sum of a block
//! is made once, when it is filled, and holds until the block is free again, whatever becomes
//! of the extents that touch it. So sums belong to blocks and not to extents: overwrites, punches, snapshots
//! and transactions need not know of them.
//!
//! Invariants:
//! - A block has sums of at most one kind. Only blocks in use have any: [`crate::space::Space`]
//!   clears those it takes back.
//! - A sum covers the whole block; where a run ends inside it, the rest is zeros.
//! - A damaged block has a sum.
//!
//! Kept in regions of [`REGION_BLOCKS`] blocks: 4 MiB of data, and with CRC-32C 4.2 KiB of memory.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use types::CsumKind;
use types::sums::SUM_CHUNK_BYTES;

use crate::blocks::{BLOCK_BYTES, Run};

/// Blocks of a region.
pub(crate) const REGION_BLOCKS: u64 = 1024;
const WORDS: usize = REGION_BLOCKS as usize / 64;
/// What a region takes beside its sums, bytes.
const REGION_OVERHEAD_BYTES: u64 = 192;

const _: () = assert!(BLOCK_BYTES as usize == SUM_CHUNK_BYTES);

/// Sums over the data of a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SumPolicy {
    pub kind: CsumKind,
    /// Compare data with them on arrival.
    pub verify: bool,
}

impl SumPolicy {
    pub const OFF: SumPolicy = SumPolicy { kind: CsumKind::Off, verify: false };
}

impl Default for SumPolicy {
    fn default() -> SumPolicy {
        SumPolicy::OFF
    }
}

/// Damage that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BadMark {
    /// When, nanoseconds since 1970.
    pub found_ns: u64,
    /// By the scrubber; else on behalf of a reader.
    pub by_scrubber: bool,
}

#[derive(Debug)]
struct Region {
    present: [u64; WORDS],
    count: u32,
    /// Of [`REGION_BLOCKS`] blocks; what is not present is stale.
    sums: Box<[u8]>,
}

impl Region {
    fn new(width: usize) -> Region {
        let sums = vec![0; REGION_BLOCKS as usize * width].into_boxed_slice();
        Region { present: [0; WORDS], count: 0, sums }
    }

    fn has(&self, at: usize) -> bool {
        self.present[at / 64] >> (at % 64) & 1 == 1
    }

    /// Marks `[from, to)` as present or absent; the change of the count.
    fn mark(&mut self, from: usize, to: usize, present: bool) -> i64 {
        let before = self.count;
        let mut at = from;
        while at < to {
            let word = at / 64;
            let part = (to - at).min(64 - at % 64);
            let mask = (u64::MAX >> (64 - part)) << (at % 64);
            let old = self.present[word];
            let new = if present { old | mask } else { old & !mask };
            self.present[word] = new;
            self.count = self.count + new.count_ones() - old.count_ones();
            at += part;
        }
        self.count as i64 - before as i64
    }

    /// End of the stretch from `from` on, at most `to`, in which all blocks are present or all absent.
    fn stretch(&self, from: usize, to: usize) -> usize {
        let wanted = self.has(from);
        let mut at = from;
        while at < to {
            let word = self.present[at / 64] >> (at % 64);
            let same = if wanted { (!word).trailing_zeros() } else { word.trailing_zeros() };
            let room = 64 - at % 64;
            at += (same as usize).min(room);
            if (same as usize) < room {
                break;
            }
        }
        at.min(to)
    }
}

/// A region as it is saved: sums of the blocks that have one, in order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct RegionDf<'a> {
    pub kind: CsumKind,
    pub region: u64,
    /// Bits of the blocks, the first in the lowest bit of the first byte.
    #[serde(with = "serde_bytes", borrow)]
    pub present: std::borrow::Cow<'a, [u8]>,
    #[serde(with = "serde_bytes", borrow)]
    pub sums: std::borrow::Cow<'a, [u8]>,
}

#[derive(Debug, Default)]
pub(crate) struct SumTable {
    /// By kind, [`CsumKind::Off`] left out.
    regions: [BTreeMap<u64, Region>; 4],
    block_count: u64,
    bad: BTreeMap<u64, BadMark>,
}

fn table_of(kind: CsumKind) -> Option<usize> {
    CsumKind::ALL[1..].iter().position(|known| *known == kind)
}

fn kind_of(table: usize) -> CsumKind {
    CsumKind::ALL[table + 1]
}

/// Cuts `[first, first + count)` at region borders: region, and first and end block in it.
fn by_region(first: u64, count: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = first + count;
    let mut at = first;
    std::iter::from_fn(move || {
        let region = at / REGION_BLOCKS;
        let stop = end.min((region + 1) * REGION_BLOCKS);
        let from = (at % REGION_BLOCKS) as usize;
        let part = stop.checked_sub(at).filter(|part| *part > 0)? as usize;
        at = stop;
        Some((region, from, from + part))
    })
}

impl SumTable {
    /// Blocks from `first` on get these sums, and are whole again if they were damaged.
    /// `sums` is a multiple of the kind's width.
    pub(crate) fn set(&mut self, kind: CsumKind, first: u64, mut sums: &[u8]) {
        let Some(table) = table_of(kind) else { return };
        let width = kind.width();
        let count = (sums.len() / width) as u64;
        self.clear_others(Some(table), first, count);
        for (region, from, to) in by_region(first, count) {
            let region = self.regions[table].entry(region).or_insert_with(|| Region::new(width));
            let (mine, rest) = sums.split_at((to - from) * width);
            region.sums[from * width..to * width].copy_from_slice(mine);
            sums = rest;
            self.block_count = self.block_count.wrapping_add_signed(region.mark(from, to, true));
        }
    }

    /// Blocks from `first` on have no sums any more.
    pub(crate) fn clear(&mut self, first: u64, count: u64) {
        self.clear_others(None, first, count);
    }

    /// As [`SumTable::clear`], for all blocks a run touches.
    pub(crate) fn clear_run(&mut self, run: Run) {
        self.clear(run.first_block(), run.end_block() - run.first_block());
    }

    fn clear_others(&mut self, spared: Option<usize>, first: u64, count: u64) {
        if count == 0 {
            return;
        }
        self.forget_bad(first, count);
        let last = (first + count - 1) / REGION_BLOCKS;
        for (table, regions) in self.regions.iter_mut().enumerate() {
            if Some(table) == spared || regions.is_empty() {
                continue;
            }
            let mut emptied = Vec::new();
            for (&number, region) in regions.range_mut(first / REGION_BLOCKS..=last) {
                let base = number * REGION_BLOCKS;
                let from = first.saturating_sub(base) as usize;
                let to = (first + count - base).min(REGION_BLOCKS) as usize;
                self.block_count =
                    self.block_count.wrapping_add_signed(region.mark(from, to, false));
                if region.count == 0 {
                    emptied.push(number);
                }
            }
            emptied.iter().for_each(|number| {
                regions.remove(number);
            });
        }
    }

    /// Blocks that have a sum.
    pub(crate) fn block_count(&self) -> u64 {
        self.block_count
    }

    /// Memory it takes, about.
    pub(crate) fn bytes(&self) -> u64 {
        let of = |(table, regions): (usize, &BTreeMap<u64, Region>)| {
            let region = REGION_OVERHEAD_BYTES + REGION_BLOCKS * kind_of(table).width() as u64;
            regions.len() as u64 * region
        };
        self.regions.iter().enumerate().map(of).sum()
    }

    /// Gives the sums of `count` blocks from `first` on, in order: the sums of a stretch of blocks
    /// that have one, or `None` and the number of blocks that have none.
    pub(crate) fn stretches(
        &self,
        kind: CsumKind,
        first: u64,
        count: u64,
        mut each: impl FnMut(u64, Option<&[u8]>),
    ) {
        let regions = table_of(kind).map(|table| &self.regions[table]);
        let width = kind.width();
        for (number, from, to) in by_region(first, count) {
            let Some(region) = regions.and_then(|regions| regions.get(&number)) else {
                each((to - from) as u64, None);
                continue;
            };
            let mut at = from;
            while at < to {
                let stop = region.stretch(at, to);
                let sums = region.has(at).then(|| &region.sums[at * width..stop * width]);
                each((stop - at) as u64, sums);
                at = stop;
            }
        }
    }

    /// The sum of a block, whatever its kind.
    pub(crate) fn of(&self, block: u64) -> Option<(CsumKind, &[u8])> {
        let (number, at) = (block / REGION_BLOCKS, (block % REGION_BLOCKS) as usize);
        self.regions.iter().enumerate().find_map(|(table, regions)| {
            let region = regions.get(&number).filter(|region| region.has(at))?;
            let width = kind_of(table).width();
            Some((kind_of(table), &region.sums[at * width..(at + 1) * width]))
        })
    }

    /// The first stretch of blocks with sums at or after `from`: its first block, and its length up to
    /// `count_max`. All have sums of one kind. Stretches end at region borders.
    pub(crate) fn next_stretch(&self, from: u64, count_max: u64) -> Option<(CsumKind, u64, u64)> {
        let in_table = |(table, regions): (usize, &BTreeMap<u64, Region>)| {
            regions.range(from / REGION_BLOCKS..).find_map(|(&number, region)| {
                let base = number * REGION_BLOCKS;
                let start = from.saturating_sub(base) as usize;
                let end = REGION_BLOCKS as usize;
                let first = match region.has(start) {
                    true => start,
                    false => region.stretch(start, end),
                };
                let stop = (first < end).then(|| region.stretch(first, end))?;
                Some((base + first as u64, (stop - first) as u64, table))
            })
        };
        let found = self.regions.iter().enumerate().filter_map(in_table).min();
        found.map(|(first, count, table)| (kind_of(table), first, count.min(count_max)))
    }

    /// Blocks with sums at or after `from`.
    pub(crate) fn count_from(&self, from: u64) -> u64 {
        let start = from / REGION_BLOCKS;
        let of = |(&number, region): (&u64, &Region)| match number * REGION_BLOCKS < from {
            true => {
                let at = (from - number * REGION_BLOCKS) as usize;
                (at..REGION_BLOCKS as usize).filter(|at| region.has(*at)).count() as u64
            }
            false => region.count as u64,
        };
        self.regions.iter().flat_map(|regions| regions.range(start..).map(of)).sum()
    }

    /// Marks a block as damaged; false when it was already, or has no sum any more.
    pub(crate) fn mark_bad(&mut self, block: u64, mark: BadMark) -> bool {
        if self.bad.contains_key(&block) || self.of(block).is_none() {
            return false;
        }
        self.bad.insert(block, mark);
        true
    }

    /// Forgets that blocks are damaged; their sums stay.
    pub(crate) fn forget_bad(&mut self, first: u64, count: u64) {
        if !self.bad.is_empty() {
            let healed: Vec<u64> = self.bad.range(first..first + count).map(|(b, _)| *b).collect();
            healed.iter().for_each(|block| {
                self.bad.remove(block);
            });
        }
    }

    /// Damaged blocks, in order.
    pub(crate) fn bad(&self) -> impl Iterator<Item = (u64, BadMark)> {
        self.bad.iter().map(|(block, mark)| (*block, *mark))
    }

    pub(crate) fn bad_count(&self) -> u64 {
        self.bad.len() as u64
    }

    /// True when a block of these is known to be damaged.
    pub(crate) fn is_bad(&self, first: u64, end: u64) -> bool {
        !self.bad.is_empty() && self.bad.range(first..end).next().is_some()
    }

    /// Names of all regions, for saving them one by one.
    pub(crate) fn region_names(&self) -> Vec<(CsumKind, u64)> {
        let of = |(table, regions): (usize, &BTreeMap<u64, Region>)| {
            regions.keys().map(move |number| (kind_of(table), *number)).collect::<Vec<_>>()
        };
        self.regions.iter().enumerate().flat_map(of).collect()
    }

    /// A region for saving; one that is gone has no sums.
    pub(crate) fn save(&self, kind: CsumKind, number: u64) -> RegionDf<'static> {
        let width = kind.width();
        let mut present = Vec::with_capacity(WORDS * 8);
        let mut sums = Vec::new();
        let found = table_of(kind).and_then(|table| self.regions[table].get(&number));
        if let Some(region) = found {
            present.extend(region.present.iter().flat_map(|word| word.to_le_bytes()));
            sums.reserve(region.count as usize * width);
            for at in (0..REGION_BLOCKS as usize).filter(|at| region.has(*at)) {
                sums.extend_from_slice(&region.sums[at * width..(at + 1) * width]);
            }
        }
        RegionDf { kind, region: number, present: present.into(), sums: sums.into() }
    }

    /// Makes a region what was saved, whatever it was. False when the saved form makes no sense.
    #[must_use]
    pub(crate) fn restore(&mut self, saved: &RegionDf<'_>) -> bool {
        let Some(table) = table_of(saved.kind) else { return false };
        let Some(first) = saved.region.checked_mul(REGION_BLOCKS) else { return false };
        if first.checked_add(REGION_BLOCKS).is_none()
            || !(saved.present.is_empty() || saved.present.len() == WORDS * 8)
        {
            return false;
        }
        let width = saved.kind.width();
        let bits: u32 = saved.present.iter().map(|byte| byte.count_ones()).sum();
        if saved.sums.len() != bits as usize * width {
            return false;
        }
        let bad: Vec<(u64, BadMark)> =
            self.bad.range(first..first + REGION_BLOCKS).map(|(b, mark)| (*b, *mark)).collect();
        if let Some(region) = self.regions[table].remove(&saved.region) {
            self.block_count -= region.count as u64;
        }
        let mut sums = saved.sums.chunks_exact(width);
        for at in 0..REGION_BLOCKS {
            let byte = saved.present.get(at as usize / 8).copied().unwrap_or(0);
            if byte >> (at % 8) & 1 == 1
                && let Some(sum) = sums.next()
            {
                self.set(saved.kind, first + at, sum);
            }
        }
        // A saved region says nothing of damage.
        for (block, mark) in bad {
            self.mark_bad(block, mark);
        }
        true
    }
}

/// Blocks of `data` that differ from their sums.
pub(crate) fn differing(kind: CsumKind, first: u64, data: &[u8], sums: &[u8]) -> Vec<u64> {
    data.chunks(BLOCK_BYTES as usize)
        .zip(sums.chunks(kind.width()))
        .enumerate()
        .filter(|(_, (block, sum))| !codec::matches(kind, block, sum))
        .map(|(at, _)| first + at as u64)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const MARK: BadMark = BadMark { found_ns: 5, by_scrubber: true };

    fn sum_of(kind: CsumKind, seed: u64) -> Vec<u8> {
        (0..kind.width()).map(|n| types::hash::mix(seed ^ (n as u64) << 32) as u8).collect()
    }

    proptest! {
        /// The model is a map from block to kind and sum, and a set of damaged blocks.
        #[test]
        fn agrees_with_a_map_of_blocks(
            steps in prop::collection::vec((0u8..8, 0u64..3000, 1u64..1500, 1usize..5), 1..40),
        ) {
            let mut table = SumTable::default();
            let mut model: BTreeMap<u64, (CsumKind, Vec<u8>)> = BTreeMap::new();
            let mut bad: BTreeMap<u64, BadMark> = BTreeMap::new();
            for (n, (step, first, count, kind)) in steps.into_iter().enumerate() {
                let kind = CsumKind::ALL[kind];
                match step {
                    0..=3 => {
                        let mut sums = Vec::new();
                        for block in first..first + count {
                            let sum = sum_of(kind, block ^ (n as u64) << 40);
                            sums.extend_from_slice(&sum);
                            model.insert(block, (kind, sum));
                            bad.remove(&block);
                        }
                        table.set(kind, first, &sums);
                    }
                    4 => {
                        table.clear(first, count);
                        model.retain(|block, _| !(first..first + count).contains(block));
                        bad.retain(|block, _| !(first..first + count).contains(block));
                    }
                    5 => {
                        let fresh = model.contains_key(&first) && !bad.contains_key(&first);
                        prop_assert_eq!(table.mark_bad(first, MARK), fresh);
                        if fresh {
                            bad.insert(first, MARK);
                        }
                    }
                    _ => {
                        let mut other = SumTable::default();
                        for (kind, region) in table.region_names() {
                            prop_assert!(other.restore(&table.save(kind, region)));
                        }
                        for (block, mark) in table.bad() {
                            other.mark_bad(block, mark);
                        }
                        // Again over what is there: nothing changes.
                        for (kind, region) in table.region_names() {
                            prop_assert!(other.restore(&table.save(kind, region)));
                        }
                        table = other;
                    }
                }
                prop_assert_eq!(table.block_count(), model.len() as u64);
                prop_assert_eq!(table.bad().collect::<Vec<_>>(), Vec::from_iter(bad.clone()));
                prop_assert_eq!(table.is_bad(first, first + count),
                    bad.range(first..first + count).next().is_some());
                prop_assert_eq!(table.count_from(first), model.range(first..).count() as u64);
                let mut at = first;
                table.stretches(kind, first, count, |blocks, sums| {
                    for n in 0..blocks {
                        let want = model.get(&at).filter(|(k, _)| *k == kind).map(|(_, sum)| &sum[..]);
                        let width = kind.width();
                        let got = sums.map(|all| &all[n as usize * width..(n as usize + 1) * width]);
                        assert_eq!(got, want, "block {at}");
                        at += 1;
                    }
                });
                prop_assert_eq!(at, first + count);
            }
            // A walk over stretches meets every block once.
            let mut walked = Vec::new();
            let mut from = 0;
            while let Some((_, first, count)) = table.next_stretch(from, 100) {
                prop_assert!(first >= from && (1..=100).contains(&count));
                walked.extend(first..first + count);
                from = first + count;
            }
            prop_assert_eq!(walked, model.keys().copied().collect::<Vec<_>>());
            for (block, (kind, sum)) in &model {
                prop_assert_eq!(table.of(*block), Some((*kind, &sum[..])));
            }
            table.clear(0, 10_000);
            prop_assert_eq!((table.block_count(), table.bytes(), table.bad_count()), (0, 0, 0));
        }
    }

    #[test]
    fn a_region_that_makes_no_sense_is_refused() {
        let mut table = SumTable::default();
        table.set(CsumKind::Crc32c, 5, &[1; 8]);
        let good = table.save(CsumKind::Crc32c, 0);
        let refused = |change: &dyn Fn(&mut RegionDf<'_>)| {
            let mut saved = good.clone();
            change(&mut saved);
            assert!(!SumTable::default().restore(&saved));
        };
        refused(&|saved| saved.kind = CsumKind::Off);
        refused(&|saved| saved.region = u64::MAX / REGION_BLOCKS);
        refused(&|saved| saved.present.to_mut().push(0));
        refused(&|saved| saved.present.to_mut()[0] ^= 1);
        refused(&|saved| saved.sums.to_mut().push(0));
        assert!(SumTable::default().restore(&good));
    }

    #[test]
    fn memory_per_tebibyte_is_what_the_manual_says() {
        let mut table = SumTable::default();
        table.set(CsumKind::Crc32c, 0, &[0; 4 * 4096]);
        let per_tib = table.bytes() * ((1 << 40) / (4096 * BLOCK_BYTES));
        assert!(per_tib < 1100 << 20, "{per_tib}");
    }
}
