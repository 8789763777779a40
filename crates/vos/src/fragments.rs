//! Which arrays were written in small pieces, for whoever joins these ([`crate::aggregate`]).

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use types::ContId;

use crate::index::fragment::ArrayName;
use crate::record::{ChangeDf, PlaceDf};

/// Arrays noted at most; more are forgotten until they are written again.
const NOTED_MAX: usize = 64 << 10;
/// Writes of at least this many bytes are large enough.
const SMALL_BYTES_MAX: u64 = 256 << 10;

/// Arrays that were written in small pieces, in the order of their first such write.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    queue: VecDeque<(u64, ArrayName)>,
    /// By hash of the name: tick of the last write. A collision costs an entry at worst.
    last: HashMap<u64, u64, FixedState>,
    tick: u64,
}

impl Fragments {
    /// Notes a change of an array, if it is small. `tick` is not known while a log is replayed,
    /// which is as good as now.
    pub(crate) fn note(&mut self, cont: ContId, change: &ChangeDf<'_>) {
        let ChangeDf::Records { unit, dkey, akey, record_bytes, index, count, place } = *change
        else {
            return;
        };
        let bytes = count.saturating_mul(record_bytes as u64);
        // What begins an array has nothing to be joined to yet.
        if index == 0 || bytes >= SMALL_BYTES_MAX || place == PlaceDf::Zero {
            return;
        }
        let hash = FixedState::default().hash_one((cont, unit, dkey, akey));
        let tick = self.tick;
        let full = self.last.len() >= NOTED_MAX;
        match self.last.get_mut(&hash) {
            Some(last) => *last = tick,
            None if full => {}
            None => {
                self.last.insert(hash, tick);
                let name = ArrayName { cont, unit, dkey: dkey.into(), akey: akey.into() };
                self.queue.push_back((hash, name));
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Some time has passed.
    pub(crate) fn tick(&mut self) {
        self.tick += 1;
    }

    /// The next array that was not written for `age` ticks. Younger ones go to the end.
    pub(crate) fn next(&mut self, age: u64, looked_at: &mut usize) -> Option<ArrayName> {
        while *looked_at < self.queue.len() {
            let (hash, name) = self.queue.pop_front()?;
            let last = self.last.get(&hash).copied().unwrap_or(0);
            if last + age <= self.tick {
                self.last.remove(&hash);
                return Some(name);
            }
            *looked_at += 1;
            self.queue.push_back((hash, name));
        }
        None
    }
}
