//! Pieces of copies in memory or on their way there, and where files are read.

use futures_util::future::{BoxFuture, Shared};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use types::Result;

use super::lanes::Lanes;

/// Files of which is remembered where they were read.
const FILES_MAX: usize = 4096;
/// Reads so near each other, in any order, are one reading in order: several threads do it.
const NEAR_BYTES: u64 = 8 << 20;
/// So many times what was read in order is fetched ahead: who reads two blocks may want no third.
const AHEAD_PER_READ: u64 = 16;

/// A piece that is there or on its way.
pub(super) type Fetch = Shared<BoxFuture<'static, Result<Arc<Vec<u8>>>>>;

/// A piece: the key of the file's manifest, and where in the file it begins.
pub(super) type Name = (String, u64);

pub(super) struct Held {
    fetch: Fetch,
    /// Of the part that it is of.
    key: String,
    /// Where in the file it ends.
    end: u64,
    used: u64,
    /// Nobody has wanted it yet.
    is_ahead: bool,
}

impl Held {
    pub(super) fn new(fetch: Fetch, key: String, end: u64, is_ahead: bool) -> Held {
        Held { fetch, key, end, used: 0, is_ahead }
    }

    pub(super) fn fetch(&self) -> Fetch {
        self.fetch.clone()
    }
}

/// Where a file is read.
struct Reading {
    end: u64,
    /// Read in order up to there.
    run_bytes: u64,
    lanes: Arc<Lanes>,
}

#[derive(Default)]
pub(super) struct Pieces {
    held: BTreeMap<Name, Held>,
    bytes: u64,
    /// Grows with each use.
    clock: u64,
    /// By manifest.
    readings: HashMap<String, Reading>,
    /// Of each file, if somebody has said how many.
    lanes: Option<usize>,
}

/// A piece that was found.
pub(super) struct Found {
    pub name: Name,
    pub fetch: Fetch,
    pub end: u64,
    /// It was fetched ahead, and this is its first use.
    pub was_ahead: bool,
}

impl Pieces {
    pub(super) fn new(lanes: Option<usize>) -> Pieces {
        Pieces { lanes, ..Pieces::default() }
    }

    /// A piece that has all of a range, used once more; of the part with a key, if that is known.
    pub(super) fn find(
        &mut self,
        file: &str,
        range: &Range<u64>,
        key: Option<&str>,
    ) -> Option<Found> {
        self.clock += 1;
        let before = (file.to_string(), 0)..=(file.to_string(), range.start);
        let mut before = self.held.range_mut(before).rev();
        let (name, held) = before
            .find(|(_, held)| held.end >= range.end && key.is_none_or(|key| key == held.key))?;
        held.used = self.clock;
        let was_ahead = std::mem::take(&mut held.is_ahead);
        Some(Found { name: name.clone(), fetch: held.fetch.clone(), end: held.end, was_ahead })
    }

    /// Where a piece ends that has a byte of a file.
    pub(super) fn end_of(&self, file: &str, at: u64) -> Option<u64> {
        let before = self.held.range((file.to_string(), 0)..=(file.to_string(), at));
        before.map(|(_, held)| held.end).filter(|end| *end > at).max()
    }

    /// Notes a read, for which bytes up to `got_end` are fetched that count as read; returns how many bytes are to be fetched ahead of it, at most
    /// so many, and what they wait for. None unless it goes on with what was read before; `far` bytes between them are no gap.
    pub(super) fn reading(
        &mut self,
        file: &str,
        read: &Range<u64>,
        got_end: u64,
        far: u64,
        ahead_max: u64,
    ) -> (u64, Arc<Lanes>) {
        let goes_on = self.goes_on(file, read, far);
        let new_bytes = got_end - read.start;
        let reading = self.reading_of(file);
        match Some(reading.end).filter(|_| goes_on) {
            Some(end) => {
                reading.run_bytes = reading.run_bytes.saturating_add(got_end.saturating_sub(end));
                reading.end = end.max(got_end);
            }
            None => (reading.run_bytes, reading.end) = (new_bytes, got_end),
        }
        let ahead = reading.run_bytes.saturating_mul(AHEAD_PER_READ).min(ahead_max);
        (if goes_on { ahead } else { 0 }, reading.lanes.clone())
    }

    /// True when a read goes on with what was read before.
    pub(super) fn goes_on(&self, file: &str, read: &Range<u64>, far: u64) -> bool {
        let (far, reading) = (far.max(NEAR_BYTES), self.readings.get(file));
        reading.map(|reading| reading.end).filter(|end| *end < u64::MAX).is_some_and(|end| {
            read.start <= end.saturating_add(far) && end <= read.start.saturating_add(far)
        })
    }

    /// True when it is known where a file was read.
    pub(super) fn is_read(&self, file: &str) -> bool {
        self.readings.contains_key(file)
    }

    /// Notes that a file is going to be read in order from there to its end.
    pub(super) fn announce(&mut self, file: &str, from: u64) {
        let reading = self.reading_of(file);
        (reading.end, reading.run_bytes) = (from, u64::MAX);
    }

    fn reading_of(&mut self, file: &str) -> &mut Reading {
        if self.readings.len() >= FILES_MAX && !self.readings.contains_key(file) {
            self.readings.clear();
        }
        let lanes = self.lanes;
        self.readings.entry(file.to_string()).or_insert_with(|| Reading {
            end: u64::MAX,
            run_bytes: 0,
            lanes: Arc::new(Lanes::new(lanes)),
        })
    }

    /// Keeps a piece; those least recently used go while there are more than `bytes_max` bytes beside it.
    pub(super) fn insert(&mut self, name: Name, held: Held, bytes_max: u64) {
        self.clock += 1;
        self.remove(&name);
        let bytes_max = bytes_max + (held.end - name.1);
        self.bytes += held.end - name.1;
        self.held.insert(name, Held { used: self.clock, ..held });
        while self.bytes > bytes_max && self.held.len() > 1 {
            let oldest = self.held.iter().min_by_key(|(_, held)| held.used);
            let Some(name) = oldest.map(|(name, _)| name.clone()) else { break };
            self.remove(&name);
        }
    }

    pub(super) fn remove(&mut self, name: &Name) {
        if let Some(old) = self.held.remove(name) {
            self.bytes -= old.end - name.1;
        }
    }

    /// Forgets a piece if it is of the part with that key.
    pub(super) fn remove_of(&mut self, name: &Name, key: &str) {
        if self.held.get(name).is_some_and(|held| held.key == key) {
            self.remove(name);
        }
    }

    /// Forgets all pieces, and where files were read.
    pub(super) fn clear(&mut self) {
        *self = Pieces::new(self.lanes);
    }

    /// Forgets all pieces that begin in a range of a file.
    pub(super) fn remove_within(&mut self, file: &str, range: &Range<u64>) {
        let within = (file.to_string(), range.start)..(file.to_string(), range.end);
        let names: Vec<Name> = self.held.range(within).map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| self.remove(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const MIB: u64 = 1 << 20;

    fn held(end: u64) -> Held {
        let fetch = async { Ok(Arc::new(Vec::new())) }.boxed().shared();
        Held::new(fetch, "k".into(), end, true)
    }

    fn name(at: u64) -> Name {
        ("m".into(), at)
    }

    #[test]
    fn what_was_least_recently_used_goes_first() {
        let mut pieces = Pieces::default();
        for at in [0, 10, 20] {
            pieces.insert(name(at), held(at + 10), 20);
        }
        let first =
            |pieces: &mut Pieces| pieces.find("m", &(0..10), None).map(|found| found.was_ahead);
        assert_eq!(first(&mut pieces), Some(true), "fetched ahead, and used for the first time");
        assert_eq!(first(&mut pieces), Some(false));
        pieces.insert(name(30), held(40), 20);
        assert!(pieces.find("m", &(10..20), None).is_none() && first(&mut pieces).is_some());
        assert_eq!(pieces.bytes, 30);
        // One that is larger than all others may be.
        pieces.insert(name(40), held(140), 0);
        assert_eq!((pieces.bytes, pieces.held.len()), (100, 1));
        pieces.insert(name(40), held(45), 20);
        pieces.remove(&name(40));
        assert_eq!((pieces.bytes, pieces.held.len()), (0, 0));
    }

    #[test]
    fn a_range_is_found_in_the_piece_that_has_all_of_it() {
        let mut pieces = Pieces::default();
        // A block that was read first, and the piece that came when the reader went on.
        for (at, end) in [(0, 10), (5, 40), (40, 80)] {
            pieces.insert(name(at), held(end), 1000);
        }
        let mut at =
            |from: u64, to: u64| pieces.find("m", &(from..to), Some("k")).map(|found| found.name.1);
        assert_eq!([at(0, 10), at(8, 12), at(40, 80)], [Some(0), Some(5), Some(40)]);
        assert_eq!([at(0, 11), at(30, 41), at(79, 81), at(80, 81)], [None; 4]);
        for other in ["l", "n"] {
            assert!(pieces.find(other, &(0..1), None).is_none());
        }
        assert!(pieces.find("m", &(0..10), Some("where it was thought to be")).is_none());
        assert_eq!([pieces.end_of("m", 7), pieces.end_of("m", 79)], [Some(40), Some(80)]);
        assert_eq!([pieces.end_of("m", 80), pieces.end_of("n", 0)], [None; 2]);
        pieces.remove_within("m", &(5..41));
        assert_eq!((pieces.bytes, pieces.end_of("m", 10)), (10, None));
    }

    #[test]
    fn reading_in_order_is_told_from_reading_about() {
        let mut pieces = Pieces::default();
        let mut ahead = |file: &str, from: u64, to: u64| {
            let (read, far) = (from * MIB..to * MIB, 4 * MIB);
            pieces.reading(file, &read, read.end, far, 64 * MIB).0 / MIB
        };
        assert_eq!(ahead("m", 0, 1), 0, "the first read may be the only one");
        assert_eq!(ahead("m", 1, 2), 32, "two were read");
        assert_eq!(ahead("m", 2, 3), 48);
        assert_eq!(ahead("m", 8, 9), 64, "as much as may be");
        assert_eq!(ahead("m", 4, 5), 64, "another thread");
        assert_eq!(ahead("m", 500, 501), 0);
        assert_eq!(ahead("m", 300, 301), 0);
        assert_eq!(ahead("m", 301, 302), 32, "one was read before, and one now");
        assert_eq!(ahead("other", 302, 303), 0);
        // Who says that all of it is wanted has the most at once.
        pieces.announce("all", 5 * MIB);
        let ahead = |pieces: &mut Pieces, from: u64| {
            let read = from * MIB..(from + 1) * MIB;
            pieces.reading("all", &read, read.end, 4 * MIB, 64 * MIB).0 / MIB
        };
        assert_eq!([ahead(&mut pieces, 5), ahead(&mut pieces, 6)], [64, 64]);
        assert_eq!(ahead(&mut pieces, 500), 0);
    }
}
