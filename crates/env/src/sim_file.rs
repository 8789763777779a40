//! Contents of a simulated file: what readers see, and what a crash would leave.
//!
//! A write is seen at once. It is durable when it was synced; until then it is *pending*, and a
//! crash keeps, loses or tears each pending change as the seed says, sector by sector.

use crate::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};

const PAGE_BYTES: usize = 4096;
/// What a disk writes atomically, bytes.
pub(crate) const SECTOR_BYTES: usize = 512;

/// Sparse bytes.
#[derive(Clone, Default)]
struct Bytes {
    pages: BTreeMap<u64, Box<[u8; PAGE_BYTES]>>,
    len: u64,
}

impl Bytes {
    fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        let count = (self.len.saturating_sub(offset)).min(out.len() as u64) as usize;
        for_pages(offset, count, |page, in_page, range| match self.pages.get(&page) {
            Some(bytes) => {
                let n = range.len();
                out[range].copy_from_slice(&bytes[in_page..in_page + n]);
            }
            None => out[range].fill(0),
        });
        count
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        for_pages(offset, data.len(), |page, in_page, range| {
            let bytes = self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE_BYTES]));
            bytes[in_page..in_page + range.len()].copy_from_slice(&data[range]);
        });
        self.len = self.len.max(offset + data.len() as u64);
    }

    fn set_len(&mut self, len: u64) {
        if len < self.len {
            let keep = len.div_ceil(PAGE_BYTES as u64);
            self.pages.split_off(&keep);
            let edge = (len % PAGE_BYTES as u64) as usize;
            if edge > 0
                && let Some(page) = self.pages.get_mut(&(len / PAGE_BYTES as u64))
            {
                page[edge..].fill(0);
            }
        }
        self.len = len;
    }
}

/// Calls `each(page, offset in page, range of the data)` for every page of a byte range.
fn for_pages(offset: u64, count: usize, mut each: impl FnMut(u64, usize, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < count {
        let at = offset + done as u64;
        let in_page = (at % PAGE_BYTES as u64) as usize;
        let n = (PAGE_BYTES - in_page).min(count - done);
        each(at / PAGE_BYTES as u64, in_page, done..done + n);
        done += n;
    }
}

enum Change {
    Write { offset: u64, data: Box<[u8]> },
    SetLen(u64),
    ExtendTo(u64),
}

impl Change {
    fn apply(&self, bytes: &mut Bytes) {
        match self {
            Change::Write { offset, data } => bytes.write(*offset, data),
            Change::SetLen(len) => bytes.set_len(*len),
            Change::ExtendTo(len) => bytes.len = bytes.len.max(*len),
        }
    }

    /// The parts of a write outside a range; other changes unchanged.
    fn without(self, over: &std::ops::Range<u64>) -> Vec<Change> {
        let Change::Write { offset, data } = self else { return vec![self] };
        let end = offset + data.len() as u64;
        if end <= over.start || over.end <= offset {
            return vec![Change::Write { offset, data }];
        }
        let mut parts = Vec::new();
        if offset < over.start {
            let data = data[..(over.start - offset) as usize].into();
            parts.push(Change::Write { offset, data });
        }
        if over.end < end {
            let data = data[(over.end - offset) as usize..].into();
            parts.push(Change::Write { offset: over.end, data });
        }
        parts
    }

    /// What a crash in the middle of it leaves.
    fn apply_torn(&self, bytes: &mut Bytes, rng: &Rng) {
        match (rng.below(4), self) {
            (0, _) => {}
            (1, _) => self.apply(bytes),
            (_, Change::Write { offset, data }) => {
                let first = SECTOR_BYTES - (*offset % SECTOR_BYTES as u64) as usize;
                let mut at = 0;
                while at < data.len() {
                    let end = if at == 0 { first } else { at + SECTOR_BYTES }.min(data.len());
                    if rng.below(2) == 0 {
                        bytes.write(offset + at as u64, &data[at..end]);
                    }
                    at = end;
                }
            }
            (2, _) => self.apply(bytes),
            _ => {}
        }
    }
}

/// What can befall a page of a file on a medium that says nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decay {
    /// Bits are not what was written: these of this byte of the page.
    Flipped { byte: usize, mask: u8 },
    /// A write to another page, of which this is the offset, went here.
    Misdirected { other: u64 },
    /// It cannot be read until it is written again.
    Unreadable,
}

/// A simulated file's contents.
#[derive(Default)]
pub(crate) struct SimContents {
    live: Bytes,
    durable: Bytes,
    pending: Vec<(u64, Change)>,
    change_last: u64,
    /// Pages that cannot be read.
    unreadable: BTreeSet<u64>,
}

impl SimContents {
    /// Offsets of pages that have something else than zeros.
    pub fn filled_pages(&self) -> Vec<u64> {
        let is_filled = |bytes: &[u8; PAGE_BYTES]| bytes.iter().any(|byte| *byte != 0);
        let filled = self.live.pages.iter().filter(|(_, bytes)| is_filled(bytes));
        filled.map(|(page, _)| page * PAGE_BYTES as u64).collect()
    }

    /// The page at an offset decays, as it is now and as a crash would leave it; writes that are not durable yet may still undo that.
    pub fn decay(&mut self, offset: u64, decay: Decay) {
        let page = offset / PAGE_BYTES as u64;
        for bytes in [&mut self.live, &mut self.durable] {
            match decay {
                Decay::Flipped { byte, mask } => {
                    if let Some(bytes) = bytes.pages.get_mut(&page) {
                        bytes[byte % PAGE_BYTES] ^= mask;
                    }
                }
                Decay::Misdirected { other } => {
                    let other = bytes.pages.get(&(other / PAGE_BYTES as u64)).cloned();
                    if let (Some(bytes), Some(other)) = (bytes.pages.get_mut(&page), other) {
                        *bytes = other;
                    }
                }
                Decay::Unreadable => {}
            }
        }
        if decay == Decay::Unreadable {
            self.unreadable.insert(page);
        }
    }

    /// Whether some of a range cannot be read.
    pub fn is_unreadable(&self, offset: u64, bytes: u64) -> bool {
        let (first, end) =
            (offset / PAGE_BYTES as u64, (offset + bytes).div_ceil(PAGE_BYTES as u64));
        self.unreadable.range(first..end.max(first)).next().is_some()
    }

    pub fn len(&self) -> u64 {
        self.live.len
    }

    pub fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        self.live.read(offset, out)
    }

    fn change(&mut self, change: Change) -> u64 {
        if !self.unreadable.is_empty()
            && let Change::Write { offset, data } = &change
        {
            let end = (offset + data.len() as u64).div_ceil(PAGE_BYTES as u64);
            let written = offset / PAGE_BYTES as u64..end;
            self.unreadable.retain(|page| !written.contains(page));
        }
        change.apply(&mut self.live);
        self.change_last += 1;
        self.pending.push((self.change_last, change));
        self.change_last
    }

    /// Writes; the number returned is for [`SimContents::make_durable`].
    pub fn write(&mut self, offset: u64, data: &[u8]) -> u64 {
        self.change(Change::Write { offset, data: data.into() })
    }

    pub fn set_len(&mut self, len: u64) {
        self.change(Change::SetLen(len));
    }

    pub fn extend_to(&mut self, len: u64) {
        self.change(Change::ExtendTo(len));
    }

    /// Pages that a write of this range would add.
    pub fn new_page_count(&self, offset: u64, bytes: u64) -> u64 {
        if bytes == 0 {
            return 0;
        }
        let (first, last) = (offset / PAGE_BYTES as u64, (offset + bytes - 1) / PAGE_BYTES as u64);
        (last - first + 1) - self.live.pages.range(first..=last).count() as u64
    }

    pub fn page_count(&self) -> u64 {
        self.live.pages.len() as u64
    }

    /// Makes one write durable. Older writes that are still pending stay so, but where they
    /// overlap it they can no longer come back after a crash.
    pub fn make_durable(&mut self, number: u64) {
        let at = self.pending.partition_point(|(other, _)| *other < number);
        // More than one part when a newer durable write has cut it.
        let end = self.pending.partition_point(|(other, _)| *other <= number);
        let resized = |(_, change): &(u64, Change)| !matches!(change, Change::Write { .. });
        if self.pending[..at].iter().any(resized) {
            // The length is metadata that a durable write takes along, and order matters to it.
            return self.make_all_durable(number);
        }
        let parts: Vec<_> = self.pending.drain(at..end).collect();
        let mut older: Vec<_> = self.pending.drain(..at).collect();
        for (_, change) in parts {
            change.apply(&mut self.durable);
            let Change::Write { offset, data } = &change else { continue };
            let over = *offset..*offset + data.len() as u64;
            older = older
                .into_iter()
                .flat_map(|(number, change)| {
                    change.without(&over).into_iter().map(move |rest| (number, rest))
                })
                .collect();
        }
        self.pending.splice(..0, older);
    }

    /// Number of the last change.
    pub fn last_change(&self) -> u64 {
        self.change_last
    }

    /// Makes everything up to a change durable.
    pub fn make_all_durable(&mut self, up_to: u64) {
        let count = self.pending.partition_point(|(number, _)| *number <= up_to);
        for (_, change) in self.pending.drain(..count) {
            change.apply(&mut self.durable);
        }
    }

    /// The machine lost power.
    pub fn crash(&mut self, rng: &Rng) {
        for (_, change) in std::mem::take(&mut self.pending) {
            change.apply_torn(&mut self.durable, rng);
        }
        self.live = self.durable.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::{Rng, SimContents};
    use proptest::prelude::*;

    proptest! {
        /// Reads like a plain vector; after a crash every sector of a durable write is there, and
        /// every other byte is one that was once written there.
        #[test]
        fn like_a_vector_and_durable_after_a_crash(
            seed in any::<u64>(),
            writes in prop::collection::vec((0u64..20_000, 1usize..9_000, 0u8..4), 1..20),
        ) {
            let mut file = SimContents::default();
            let mut model = Vec::new();
            let mut history: Vec<Vec<u8>> = Vec::new();
            let mut durable_since: Vec<Option<u8>> = Vec::new();
            for (count, (offset, bytes, sync)) in writes.into_iter().enumerate() {
                let fill = count as u8 + 1;
                let end = offset as usize + bytes;
                if model.len() < end {
                    model.resize(end, 0);
                    history.resize(end, vec![0]);
                    durable_since.resize(end, None);
                }
                model[offset as usize..end].fill(fill);
                file.write(offset, &vec![fill; bytes]);
                for at in offset as usize..end {
                    history[at].push(fill);
                    durable_since[at] = None;
                }
                if sync == 0 {
                    file.make_all_durable(file.last_change());
                    for (at, since) in durable_since.iter_mut().enumerate() {
                        *since = Some(model[at]);
                    }
                }
                if sync == 1 {
                    file.make_durable(file.last_change());
                    durable_since[offset as usize..end].fill(Some(fill));
                }
                let mut seen = vec![0; model.len()];
                prop_assert_eq!(file.read(0, &mut seen), model.len());
                prop_assert_eq!(&seen, &model);
            }
            file.crash(&Rng::new(seed));
            let mut seen = vec![0; model.len()];
            let len = file.read(0, &mut seen);
            for at in 0..model.len() {
                match durable_since[at] {
                    Some(byte) => prop_assert!(at < len && seen[at] == byte),
                    None => prop_assert!(history[at].contains(&seen[at])),
                }
            }
        }
    }
}
