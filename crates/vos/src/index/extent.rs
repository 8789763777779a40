//! The records of one array value: an extent per written range, none overlapping.
//!
//! Invariants: extents are ordered by first record, do not overlap and are not empty; the
//! bytes of an inline extent are exactly `count * record_bytes`. A later write replaces what it
//! covers at once: covered extents are cut, and every block they no longer touch is reported.
//! Small neighbours are joined so that a file written in tiny appends stays small.

use std::ops::Bound;

use types::Epoch;
use wire::cell::Stripe;

use super::past::PastValue;
use super::{Effects, cost};
use crate::blocks::Run;
use crate::index::ordered::OrdMap;
use crate::index::versions::Versions;
use crate::space::BlockChange;

/// Inline neighbours are joined up to this size, bytes.
const JOINED_BYTES_MAX: usize = 2048;

/// Where the bytes of an extent are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Inline(Box<[u8]>),
    /// In the data area, from this byte offset.
    Blocks(u64),
    /// Nowhere: they read as zero.
    Zero,
    /// In cells of other targets, under this name.
    Coded(Stripe),
}

/// A written range of records.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub count: u64,
    /// When they were written.
    pub epoch: Epoch,
    pub place: Place,
}

impl Extent {
    fn inline_bytes(&self) -> u64 {
        match &self.place {
            Place::Inline(bytes) => bytes.len() as u64,
            _ => 0,
        }
    }

    fn stored_bytes(&self, record_bytes: u32) -> u64 {
        match &self.place {
            Place::Zero => 0,
            _ => self.count * record_bytes as u64,
        }
    }
}

/// An array under one akey: its written extents.
#[derive(Debug)]
pub(crate) struct ArrayValue {
    /// Newest change.
    pub epoch: Epoch,
    /// Size of a record; at least 1.
    pub record_bytes: u32,
    /// By first record.
    extents: OrdMap<u64, Extent>,
}

/// A part of an array as it is read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadPart<'a> {
    Inline(&'a [u8]),
    /// Bytes of the data area.
    Blocks(Run),
    /// Bytes of a stripe, from this one of it on.
    Coded(Stripe, Run),
    /// This many bytes of zero.
    Zero(u64),
    /// This many bytes that were never written; they read as zero.
    Hole(u64),
}

impl ArrayValue {
    pub(crate) fn new(record_bytes: u32) -> ArrayValue {
        ArrayValue { epoch: Epoch::ZERO, record_bytes, extents: OrdMap::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// One past the last record.
    pub(crate) fn end(&self) -> u64 {
        self.extents.last().map_or(0, |(&index, extent)| index + extent.count)
    }

    pub(crate) fn first(&self) -> Option<(u64, &Extent)> {
        self.extents.first().map(|(&index, extent)| (index, extent))
    }

    pub(crate) fn last(&self) -> Option<(u64, &Extent)> {
        self.extents.last().map(|(&index, extent)| (index, extent))
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &Extent)> {
        self.extents.iter().map(|(&index, extent)| (index, extent))
    }

    /// Extents that end after `from`, upwards.
    pub(crate) fn from(&self, from: u64) -> impl Iterator<Item = (u64, &Extent)> {
        let head = self
            .extents
            .range(Bound::Unbounded, Bound::Excluded(&from))
            .next_back()
            .filter(|(index, extent)| *index + extent.count > from);
        head.into_iter()
            .chain(self.extents.range(Bound::Included(&from), Bound::Unbounded))
            .map(|(&index, extent)| (index, extent))
    }

    /// Extents that begin before `to`, downwards.
    pub(crate) fn below(&self, to: u64) -> impl Iterator<Item = (u64, &Extent)> {
        self.extents
            .range(Bound::Unbounded, Bound::Excluded(&to))
            .rev()
            .map(|(&index, extent)| (index, extent))
    }

    /// Memory this value counts for.
    pub(crate) fn scm_bytes(&self) -> u64 {
        self.extents.iter().map(|(_, extent)| cost::EXTENT + extent.inline_bytes()).sum()
    }

    /// Bytes of user data.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.extents.iter().map(|(_, extent)| extent.stored_bytes(self.record_bytes)).sum()
    }

    /// Writes `count` records at `index`; the caller has checked that the end does not overflow.
    pub(crate) fn write(
        &mut self,
        index: u64,
        count: u64,
        place: Place,
        epoch: Epoch,
        effects: &mut Effects,
    ) {
        if count == 0 {
            return;
        }
        self.epoch = epoch;
        if place == Place::Zero {
            return self.fill_with_zeros(index, index + count, epoch, effects);
        }
        self.carve(index, index + count, epoch, effects);
        let extent = Extent { count, epoch, place };
        effects.scm += (cost::EXTENT + extent.inline_bytes()) as i64;
        effects.bytes += extent.stored_bytes(self.record_bytes) as i64;
        if effects.keep_apart || !self.join(index, &extent, effects) {
            self.extents.insert_new(index, extent);
        }
    }

    /// Puts records of zero where none are written; written ones stay.
    fn fill_with_zeros(&mut self, start: u64, end: u64, epoch: Epoch, effects: &mut Effects) {
        let mut gaps = Vec::new();
        let mut at = start;
        for (index, extent) in self.from(start).take_while(|(index, _)| *index < end) {
            if index > at {
                gaps.push((at, index - at));
            }
            at = index + extent.count;
        }
        if at < end {
            gaps.push((at, end - at));
        }
        for (index, count) in gaps {
            effects.scm += cost::EXTENT as i64;
            self.extents.insert_new(index, Extent { count, epoch, place: Place::Zero });
        }
    }

    /// Removes records; the caller has checked that the end does not overflow.
    pub(crate) fn punch(&mut self, index: u64, count: u64, epoch: Epoch, effects: &mut Effects) {
        if count > 0 {
            self.epoch = epoch;
            self.carve(index, index + count, epoch, effects);
        }
    }

    /// Makes one extent of those that cover `[index, index + count)`, with its bytes at `at`; no
    /// effect unless extents with bytes begin and end there and cover all of it. What is read
    /// stays the same, and so do all epochs but those of the extents, of which the greatest
    /// counts. When `at` is where the first extent is, the bytes are there already, one
    /// extent's after the other's, on whole blocks.
    pub(crate) fn join_range(&mut self, index: u64, count: u64, at: u64, effects: &mut Effects) {
        let end = index.saturating_add(count);
        let (mut next, mut epoch) = (index, Epoch::ZERO);
        let mut in_place = false;
        for (start, extent) in self.from(index).take_while(|(start, _)| *start < end) {
            if start != next || matches!(extent.place, Place::Zero | Place::Coded(_)) {
                return;
            }
            in_place |= start == index && extent.place == Place::Blocks(at);
            next = start + extent.count;
            epoch = epoch.max(extent.epoch);
        }
        if next != end || count == 0 {
            return;
        }
        if in_place {
            loop {
                let last = self.below(end).next().map(|(start, _)| start);
                let Some(last) = last.filter(|last| *last >= index) else { break };
                let Some(extent) = self.extents.remove(&last) else { break };
                effects.scm -= (cost::EXTENT + extent.inline_bytes()) as i64;
                effects.bytes -= extent.stored_bytes(self.record_bytes) as i64;
            }
        } else {
            // Not kept: the new extent shows what these did.
            self.carve(index, end, Epoch::ZERO, effects);
        }
        let extent = Extent { count, epoch, place: Place::Blocks(at) };
        effects.scm += cost::EXTENT as i64;
        effects.bytes += extent.stored_bytes(self.record_bytes) as i64;
        self.extents.insert_new(index, extent);
    }

    /// The newest epoch of the records `[first, first + count)`, if all of them have bytes and no snapshot lies between them;
    /// and whether they are one folded stripe already.
    pub(crate) fn foldable(
        &self,
        first: u64,
        count: u64,
        versions: &Versions,
    ) -> Option<(Epoch, bool)> {
        let end = first.checked_add(count)?;
        let (mut next, mut oldest, mut newest) = (first, Epoch::MAX, Epoch::ZERO);
        let mut is_folded = true;
        for (start, extent) in self.from(first).take_while(|(start, _)| *start < end) {
            if start > next || extent.place == Place::Zero {
                return None;
            }
            next = start + extent.count;
            (oldest, newest) = (oldest.min(extent.epoch), newest.max(extent.epoch));
            is_folded &= matches!(&extent.place, Place::Coded(stripe)
                if stripe.first == first && start == first && next == end);
        }
        let is_whole = next >= end && count > 0;
        (is_whole && !versions.sees(oldest, newest)).then_some((newest, is_folded))
    }

    /// Lets the records of a stripe, which are [`ArrayValue::foldable`], give way to its name. What is read stays the same, and
    /// no epoch changes but those of the records, of which the greatest counts.
    pub(crate) fn fold(&mut self, stripe: Stripe, count: u64, effects: &mut Effects) {
        // Not kept: the name shows what these did.
        self.carve(stripe.first, stripe.first + count, Epoch::ZERO, effects);
        let extent = Extent { count, epoch: stripe.version, place: Place::Coded(stripe) };
        effects.scm += cost::EXTENT as i64;
        effects.bytes += extent.stored_bytes(self.record_bytes) as i64;
        self.extents.insert_new(stripe.first, extent);
    }

    /// Appends a small inline extent to an inline neighbour that ends where it begins. Two that a
    /// snapshot lies between stay apart: it sees one of them only.
    fn join(&mut self, index: u64, extent: &Extent, effects: &mut Effects) -> bool {
        let Place::Inline(more) = &extent.place else { return false };
        let Some(before) = self
            .extents
            .range(Bound::Unbounded, Bound::Excluded(&index))
            .next_back()
            .filter(|(start, before)| {
                *start + before.count == index
                    && !effects.sees(before.epoch, extent.epoch)
                    && matches!(&before.place, Place::Inline(bytes)
                        if bytes.len() + more.len() <= JOINED_BYTES_MAX)
            })
            .map(|(&start, _)| start)
        else {
            return false;
        };
        let Some(neighbour) = self.extents.get_mut(&before) else { return false };
        let Place::Inline(bytes) = &mut neighbour.place else { return false };
        let mut joined = Vec::with_capacity(bytes.len() + more.len());
        joined.extend_from_slice(bytes);
        joined.extend_from_slice(more);
        *bytes = joined.into_boxed_slice();
        neighbour.count += extent.count;
        neighbour.epoch = neighbour.epoch.max(extent.epoch);
        effects.scm -= cost::EXTENT as i64;
        true
    }

    /// Makes `[start, end)` a hole.
    fn carve(&mut self, start: u64, end: u64, epoch: Epoch, effects: &mut Effects) {
        loop {
            let Some(index) = self
                .extents
                .range(Bound::Unbounded, Bound::Excluded(&end))
                .next_back()
                .filter(|(index, extent)| **index + extent.count > start)
                .map(|(&index, _)| index)
            else {
                return;
            };
            let Some(extent) = self.extents.remove(&index) else { return };
            effects.scm -= (cost::EXTENT + extent.inline_bytes()) as i64;
            effects.bytes -= extent.stored_bytes(self.record_bytes) as i64;
            self.keep_outside(index, extent, (start, end), epoch, effects);
            if index < start {
                return;
            }
        }
    }

    /// Puts back the parts of a removed extent that lie outside the hole; what lies in it is freed,
    /// or kept for the snapshots that see it.
    fn keep_outside(
        &mut self,
        index: u64,
        extent: Extent,
        (start, end): (u64, u64),
        epoch: Epoch,
        effects: &mut Effects,
    ) {
        let record = self.record_bytes as u64;
        let extent_end = index + extent.count;
        let left = start.saturating_sub(index);
        let right = extent_end.saturating_sub(end);
        let skip = extent.count - right;
        let keeps = effects.sees(extent.epoch, epoch);
        effects.unnames |= !keeps && matches!(extent.place, Place::Coded(_));
        if let (Place::Blocks(at), true) = (&extent.place, keeps) {
            // Three extents instead of one: a block that two of them touch has one more.
            for (cut, is_inside) in
                [(at + left * record, left > 0), (at + skip * record, right > 0)]
            {
                if is_inside && !cut.is_multiple_of(crate::blocks::BLOCK_BYTES) {
                    effects.blocks.push(BlockChange::Ref(cut / crate::blocks::BLOCK_BYTES));
                }
            }
        } else if let Place::Blocks(at) = extent.place {
            let whole = Run { at, bytes: extent.count * record };
            let left_end = Run { at, bytes: left * record }.end_block();
            let right_first = (at + skip * record) / crate::blocks::BLOCK_BYTES;
            let gap_first = if left > 0 { left_end } else { whole.first_block() };
            let gap_end = if right > 0 { right_first } else { whole.end_block() };
            if gap_first < gap_end {
                effects
                    .blocks
                    .push(BlockChange::Unref { first: gap_first, count: gap_end - gap_first });
            } else if left > 0 && right > 0 && gap_first > gap_end {
                effects.blocks.push(BlockChange::Ref(right_first));
            }
        }
        let part = |from: u64, count: u64| Extent {
            count,
            epoch: extent.epoch,
            place: match &extent.place {
                Place::Inline(bytes) => {
                    let from = (from * record) as usize;
                    Place::Inline(bytes[from..from + (count * record) as usize].into())
                }
                Place::Blocks(at) => Place::Blocks(at + from * record),
                Place::Zero => Place::Zero,
                Place::Coded(stripe) => Place::Coded(*stripe),
            },
        };
        for (from, count) in [(0, left), (skip, right)] {
            if count > 0 {
                let kept = part(from, count);
                effects.scm += (cost::EXTENT + kept.inline_bytes()) as i64;
                effects.bytes += kept.stored_bytes(self.record_bytes) as i64;
                self.extents.insert_new(index + from, kept);
            }
        }
        if keeps {
            let Extent { count, place, .. } = part(left, skip - left);
            let record_bytes = self.record_bytes;
            let value = PastValue::Extent { record_bytes, index: index + left, count, place };
            effects.keep(b"", extent.epoch, epoch, value);
        }
    }

    /// Reports every extent as removed at `epoch`.
    pub(crate) fn remove(&self, akey: &[u8], epoch: Epoch, effects: &mut Effects) {
        let record_bytes = self.record_bytes;
        for (index, extent) in self.iter() {
            if effects.sees(extent.epoch, epoch) {
                let (count, place) = (extent.count, extent.place.clone());
                let value = PastValue::Extent { record_bytes, index, count, place };
                effects.keep(akey, extent.epoch, epoch, value);
            } else if let Some(run) = self.run_of(extent) {
                effects.release(run);
            } else {
                effects.unnames |= matches!(extent.place, Place::Coded(_));
            }
        }
    }

    /// Reports everything as released.
    #[cfg(test)]
    pub(crate) fn release(&self, effects: &mut Effects) {
        for (_, extent) in self.extents.iter() {
            effects.scm -= (cost::EXTENT + extent.inline_bytes()) as i64;
            effects.bytes -= extent.stored_bytes(self.record_bytes) as i64;
            if let Some(run) = self.run_of(extent) {
                effects.release(run);
            }
        }
    }

    /// The extents' places in the data area.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Run> {
        self.extents.iter().filter_map(|(_, extent)| self.run_of(extent))
    }

    fn run_of(&self, extent: &Extent) -> Option<Run> {
        match extent.place {
            Place::Blocks(at) => Some(Run { at, bytes: extent.count * self.record_bytes as u64 }),
            _ => None,
        }
    }

    /// Reads records `[index, index + count)`, holes as zero; the caller has checked that
    /// neither the end nor the size in bytes overflows.
    pub(crate) fn read<'a>(&'a self, index: u64, count: u64, part: impl FnMut(ReadPart<'a>)) {
        let shown = self.from(index).map(|(start, extent)| (start, extent.count, &extent.place));
        read_parts(shown, self.record_bytes, index, count, part);
    }
}

/// Reads records `[index, index + count)` from extents (first record, count, place) that are in
/// order, do not overlap and end after `index`.
pub(crate) fn read_parts<'a>(
    extents: impl Iterator<Item = (u64, u64, &'a Place)>,
    record_bytes: u32,
    index: u64,
    count: u64,
    mut part: impl FnMut(ReadPart<'a>),
) {
    let record = record_bytes as u64;
    let end = index + count;
    let mut at = index;
    for (start, length, place) in extents {
        if start >= end || at >= end {
            break;
        }
        if start > at {
            part(ReadPart::Hole((start - at) * record));
            at = start;
        }
        let stop = end.min(start + length);
        let (skip, bytes) = ((at - start) * record, (stop - at) * record);
        part(match place {
            Place::Inline(all) => ReadPart::Inline(&all[skip as usize..(skip + bytes) as usize]),
            Place::Blocks(block) => ReadPart::Blocks(Run { at: block + skip, bytes }),
            Place::Zero => ReadPart::Zero(bytes),
            Place::Coded(stripe) => {
                ReadPart::Coded(*stripe, Run { at: (at - stripe.first) * record, bytes })
            }
        });
        at = stop;
    }
    if at < end {
        part(ReadPart::Hole((end - at) * record));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lsn;
    use crate::space::Space;
    use proptest::prelude::*;

    proptest! {
        /// The model is one optional byte per record byte, plus a "device" array. The allocator
        /// follows along and must agree with what the extents still touch.
        #[test]
        fn agrees_with_an_array_of_bytes(
            record_bytes in 1u32..4,
            steps in prop::collection::vec((0u8..5, 0u64..9000, 1u64..5000), 1..60),
        ) {
            const RECORDS: usize = 16_000;
            let record = record_bytes as usize;
            let mut space = Space::new(4 << 20);
            let mut device = vec![0u8; 4 << 20];
            let mut model: Vec<Option<(u8, Epoch)>> = vec![None; RECORDS];
            let mut array = ArrayValue::new(record_bytes);
            let mut effects = Effects::default();
            for (n, (kind, index, count)) in steps.into_iter().enumerate() {
                let epoch = Epoch(n as u64 + 1);
                let fill = n as u8 + 1;
                let count = if kind == 1 { count % 60 + 1 } else { count };
                let place = match kind {
                    0 | 4 => {
                        let run = space.take(count * record as u64).unwrap();
                        device[run.at as usize..(run.at + run.bytes) as usize].fill(fill);
                        Some(Place::Blocks(run.at))
                    }
                    1 => Some(Place::Inline(vec![fill; count as usize * record].into())),
                    2 => Some(Place::Zero),
                    _ => None,
                };
                let slot = match &place {
                    None => None,
                    Some(Place::Zero) => Some((0, epoch)),
                    Some(_) => Some((fill, epoch)),
                };
                match place {
                    Some(place) => array.write(index, count, place, epoch, &mut effects),
                    None => array.punch(index, count, epoch, &mut effects),
                }
                for change in effects.blocks.drain(..) {
                    space.follow(change, Lsn(0));
                }
                for record in &mut model[index as usize..(index + count) as usize] {
                    // Zeros only fill holes.
                    if kind != 2 || record.is_none() {
                        *record = slot;
                    }
                }
                let end = model.iter().rposition(Option::is_some).map_or(0, |at| at as u64 + 1);
                prop_assert_eq!(array.end(), end);
            }
            let mut read = Vec::new();
            array.read(0, RECORDS as u64, |part| match part {
                ReadPart::Inline(bytes) => read.extend_from_slice(bytes),
                ReadPart::Blocks(run) => {
                    read.extend_from_slice(&device[run.at as usize..(run.at + run.bytes) as usize])
                }
                ReadPart::Zero(bytes) | ReadPart::Hole(bytes) => read.resize(read.len() + bytes as usize, 0),
                ReadPart::Coded(..) => unreachable!("nothing is folded"),
            });
            prop_assert_eq!(read.len(), RECORDS * record);
            for (at, slot) in model.iter().enumerate() {
                let want = slot.map_or(0, |(byte, _)| byte);
                prop_assert!(read[at * record..(at + 1) * record].iter().all(|&b| b == want));
            }
            // Written ranges are exactly the model's.
            let mut written = vec![false; RECORDS];
            for (index, extent) in array.iter() {
                written[index as usize..(index + extent.count) as usize].fill(true);
            }
            for (at, slot) in model.iter().enumerate() {
                prop_assert_eq!(written[at], slot.is_some());
            }
            prop_assert_eq!(effects.scm, array.scm_bytes() as i64);
            prop_assert_eq!(effects.bytes, array.stored_bytes() as i64);
            // Blocks still held are exactly those the extents touch.
            let mut rebuilt = Space::new(4 << 20);
            for run in array.runs() {
                rebuilt.claim(run).unwrap();
            }
            prop_assert_eq!(rebuilt.free_bytes(), space.free_bytes());
            let mut effects = Effects::default();
            array.release(&mut effects);
            for change in effects.blocks {
                space.follow(change, Lsn(0));
            }
            prop_assert_eq!(space.free_bytes(), 4 << 20);
        }
    }

    #[test]
    fn tiny_appends_stay_few_extents() {
        let mut array = ArrayValue::new(1);
        let mut effects = Effects::default();
        for n in 0..1000u64 {
            array.write(n * 10, 10, Place::Inline([7; 10].into()), Epoch(n + 1), &mut effects);
        }
        assert!(array.iter().count() <= 10_000 / JOINED_BYTES_MAX + 1);
        assert_eq!(effects.scm, array.scm_bytes() as i64);
    }
}
