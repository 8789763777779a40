//! Data that were read from devices, kept in memory for who reads them again.
//!
//! The cache goes by place on the device. Blocks are never written in place: what an extent names stays as it is until the blocks are free, and
//! an update makes other blocks the truth in its own step. So nothing in here is ever stale, if it forgets blocks when they become free; the
//! allocator, which alone knows when that is, has it do so in the same step ([`Space`](crate::space::Space)).
//!
//! Invariants:
//! - An entry is what the device has at its blocks. Who adds one holds a [`ReadGuard`](crate::space::ReadGuard) over its blocks.
//! - Entries do not overlap. No object has more than its limit, and all have no more than theirs.
//!
//! Which entries stay is up to `quick_cache`: new ones are on trial (a cold queue, as in S3-FIFO), so that who reads much once does not drive out
//! what is read often. What is large and came quickly stays at its second reading only ([`Sights`]): memory that is kept is never the next read's, and to fill
//! fresh memory costs more than a fast device does. Of an object that has reached its limit the oldest that was not read since goes, for one in [`FULL_PARTS`] of what is new only: who
//! reads a file from end to end again and again finds most of what there is room for.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::{Rc, Weak};
use std::time::Duration;

use env::AlignedBuf;
use foldhash::fast::FixedState;
use quick_cache::unsync::Cache;
use quick_cache::{Lifecycle, Weighter};
use smallvec::SmallVec;
use types::{ContId, GroupCount, Oid};
use wire::cache::{CacheStat, DataCache as Settings};

use crate::blocks::{BLOCK_BYTES, Run};

/// Most of one entry, bytes: longer reads make several.
pub(crate) const ENTRY_BYTES_MAX: u64 = 1 << 20;
/// What an entry takes beside its blocks, about, bytes.
const ENTRY_COST_BYTES: u64 = 256;
/// Less than this is no cache, bytes.
const LIMIT_BYTES_MIN: u64 = 2 << 20;
/// Of what is new of an object that has reached its limit one part in so many takes the place of what is there.
const FULL_PARTS: u64 = 8;
/// What the library expects of entries, bytes: for so many it remembers what it has just forgotten.
const ENTRY_BYTES_USUAL: u64 = 64 << 10;

/// From so many bytes on, and if it came at least as fast as [`QUICK_PER_MIB`] says, what is read for the first time is not kept: its memory is the next
/// read's. Smaller reads cost more than their memory does.
const LARGE_BYTES: u64 = 128 << 10;
/// Time for 1 MiB at which a device is fast.
const QUICK_PER_MIB: Duration = Duration::from_millis(4);
/// Of so many times what the cache has room for it is known whether it was read.
const SEEN_TIMES: u64 = 4;

/// Whose data are in an entry.
pub(crate) type Owner = (ContId, Oid);

/// Blocks in memory.
#[derive(Clone)]
pub(crate) struct Loaded {
    buf: Rc<AlignedBuf>,
    /// Where they begin in `buf`.
    skip: usize,
}

impl Loaded {
    pub(crate) fn new(buf: AlignedBuf) -> Loaded {
        Loaded { buf: Rc::new(buf), skip: 0 }
    }

    /// The blocks and what comes after them.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buf[self.skip..]
    }

    /// Without the first `blocks`.
    fn from(&self, blocks: u64) -> Loaded {
        Loaded { buf: self.buf.clone(), skip: self.skip + (blocks * BLOCK_BYTES) as usize }
    }
}

struct Entry {
    /// One past the last block.
    end: u64,
    data: Loaded,
    owner: Owner,
    /// Memory it takes, bytes.
    weight: u64,
    /// Tells it from others that were at the same place.
    number: u64,
    /// It was read since its object reached the limit and it was looked at.
    was_read: Cell<bool>,
}

/// What is here of an object.
#[derive(Default)]
struct ObjectUse {
    bytes: u64,
    count: usize,
    /// Times that something of it came while it had reached its limit.
    refused: u64,
    /// First block and number of its entries, the oldest first; some may be gone.
    order: VecDeque<(u64, u64)>,
}

/// Weight as it is given.
struct ByBytes;

impl Weighter<u64, u64> for ByBytes {
    fn weight(&self, _first: &u64, bytes: &u64) -> u64 {
        *bytes
    }
}

/// Collects what has to go.
#[derive(Default)]
struct Gone(Rc<RefCell<Vec<u64>>>);

impl Lifecycle<u64, u64> for Gone {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), first: u64, _bytes: u64) {
        self.0.borrow_mut().push(first);
    }
}

/// Memory for the data caches of all pools of a target.
pub(crate) struct CacheRoom {
    bytes: u64,
    /// Targets of the engine, which share what an engine may keep of a pool.
    target_count: u32,
    caches: RefCell<Vec<Weak<DataCache>>>,
}

impl CacheRoom {
    pub(crate) fn new(bytes: u64, target_count: u32) -> Rc<CacheRoom> {
        let target_count = target_count.max(1);
        Rc::new(CacheRoom { bytes, target_count, caches: RefCell::default() })
    }

    /// No memory.
    pub(crate) fn none() -> Rc<CacheRoom> {
        CacheRoom::new(0, 1)
    }

    /// Gives each cache its part: the same for all, but no more than it is to have.
    fn share_out(&self) {
        let mut caches = self.caches.borrow_mut();
        caches.retain(|cache| cache.upgrade().is_some_and(|cache| !cache.is_closed.get()));
        let part = self.bytes / caches.len().max(1) as u64;
        for cache in caches.iter().filter_map(Weak::upgrade) {
            let of_target = cache.settings.get().bytes_max / u64::from(self.target_count);
            let limit = part.min(of_target);
            cache.state.borrow_mut().limit(if limit < LIMIT_BYTES_MIN { 0 } else { limit });
        }
    }
}

/// The data cache of a pool on one target; see the module.
pub(crate) struct DataCache {
    room: Rc<CacheRoom>,
    settings: Cell<Settings>,
    is_closed: Cell<bool>,
    state: RefCell<State>,
}

impl std::fmt::Debug for DataCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DataCache({:?})", self.stat())
    }
}

/// Where something large was read lately, by parts of the device of [`LARGE_BYTES`]: two such reads that do not overlap never begin in the same one. Each part has
/// one place, which others share; who comes last has it.
#[derive(Default)]
struct Sights {
    /// The part, and one, so that zero is none. A power of two of them.
    last: Vec<u32>,
}

impl Sights {
    const PART_BLOCKS: u64 = LARGE_BYTES / BLOCK_BYTES;

    fn resize(&mut self, limit_bytes: u64) {
        let count = (SEEN_TIMES * limit_bytes / LARGE_BYTES).next_power_of_two();
        self.last = if limit_bytes == 0 { Vec::new() } else { vec![0; count as usize] };
    }

    fn place(&mut self, part: u64) -> Option<&mut u32> {
        let mask = (self.last.len() as u64).wrapping_sub(1);
        self.last.get_mut((part & mask) as usize)
    }

    /// Notes a read that begins at a block; true if it was noted before.
    fn note(&mut self, first: u64) -> bool {
        let part = first / Self::PART_BLOCKS;
        let name = part as u32 + 1;
        self.place(part).is_some_and(|place| std::mem::replace(place, name) == name)
    }

    /// Something else will be there.
    fn forget(&mut self, first: u64, end: u64) {
        for part in first / Self::PART_BLOCKS..end.div_ceil(Self::PART_BLOCKS) {
            if let Some(place) = self.place(part) {
                *place = 0;
            }
        }
    }
}

struct State {
    limit_bytes: u64,
    sights: Sights,
    /// By first block.
    entries: BTreeMap<u64, Entry>,
    objects: HashMap<Owner, ObjectUse, FixedState>,
    used_bytes: u64,
    last_number: u64,
    policy: Cache<u64, u64, ByBytes, FixedState, Gone>,
    gone: Rc<RefCell<Vec<u64>>>,
    stat: CacheStat,
}

impl DataCache {
    /// A cache with the settings of a pool that never set any.
    pub(crate) fn new(room: &Rc<CacheRoom>) -> Rc<DataCache> {
        let gone = Gone::default();
        let state = State {
            limit_bytes: 0,
            sights: Sights::default(),
            entries: BTreeMap::new(),
            objects: HashMap::default(),
            used_bytes: 0,
            last_number: 0,
            gone: gone.0.clone(),
            policy: Cache::with(
                (LIMIT_BYTES_MIN / ENTRY_BYTES_USUAL) as usize,
                LIMIT_BYTES_MIN,
                ByBytes,
                FixedState::default(),
                gone,
            ),
            stat: CacheStat::default(),
        };
        let cache = Rc::new(DataCache {
            room: room.clone(),
            settings: Cell::default(),
            is_closed: Cell::new(false),
            state: RefCell::new(state),
        });
        room.caches.borrow_mut().push(Rc::downgrade(&cache));
        room.share_out();
        cache
    }

    /// Takes settings unless they are older than those in force.
    pub(crate) fn set(&self, settings: &Settings) {
        if settings.version < self.settings.get().version {
            return;
        }
        self.settings.set(*settings);
        self.state.borrow_mut().keep_to(|owner| self.object_max(owner));
        self.room.share_out();
    }

    /// Most of one object on this target, bytes: an engine's limit is shared by as many of its targets as may have a part of it.
    fn object_max(&self, (_, object): &Owner) -> u64 {
        let targets = self.room.target_count;
        let parts = match object.class().map(|class| class.groups) {
            Ok(GroupCount::Count(groups)) => groups.clamp(1, targets),
            Ok(GroupCount::All | GroupCount::AllBeyond { .. } | GroupCount::AllPast { .. })
            | Err(_) => targets,
        };
        self.settings.get().object_bytes_max / u64::from(parts)
    }

    /// Nothing is kept from now on.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        self.state.borrow_mut().limit(0);
        self.room.share_out();
    }

    pub(crate) fn stat(&self) -> CacheStat {
        let (state, settings) = (self.state.borrow(), self.settings.get());
        CacheStat {
            version: settings.version,
            limit_bytes: state.limit_bytes,
            object_bytes_max: settings.object_bytes_max.min(state.limit_bytes),
            used_bytes: state.used_bytes,
            ..state.stat
        }
    }

    /// All blocks that a run touches, with the first block of each part, if all are here. Counts.
    pub(crate) fn find(&self, run: Run) -> Option<SmallVec<[(u64, Loaded); 1]>> {
        let state = &mut *self.state.borrow_mut();
        if state.limit_bytes == 0 {
            return None;
        }
        let found = state.find(run.first_block(), run.end_block());
        if found.is_some() {
            state.stat.hits += 1;
            state.stat.hit_bytes += run.bytes;
        } else {
            state.stat.misses += 1;
            state.stat.miss_bytes += run.bytes;
        }
        found
    }

    /// Keeps blocks that were read, from the first block of `run` on: whoever calls has held a guard over them since before that. `took`: how long the
    /// device needed.
    pub(crate) fn keep(&self, run: Run, data: &Loaded, owner: Owner, took: Duration) {
        let max = self.object_max(&owner);
        let state = &mut *self.state.borrow_mut();
        let is_quick =
            took.as_nanos() * (1 << 20) < QUICK_PER_MIB.as_nanos() * u128::from(run.bytes);
        if run.bytes >= LARGE_BYTES && !state.sights.note(run.first_block()) && is_quick {
            return;
        }
        state.keep(run.first_block(), run.end_block(), data, owner, max);
    }

    /// These blocks become free, or what is here of them is in doubt.
    pub(crate) fn forget(&self, first: u64, count: u64) {
        self.state.borrow_mut().forget(first, first + count);
    }
}

impl State {
    fn limit(&mut self, bytes: u64) {
        if bytes == self.limit_bytes {
            return;
        }
        self.limit_bytes = bytes;
        self.sights.resize(bytes);
        if bytes == 0 {
            return self.clear();
        }
        self.policy.set_capacity(bytes);
        self.drop_gone();
    }

    fn clear(&mut self) {
        self.policy.clear();
        self.entries.clear();
        self.objects.clear();
        self.used_bytes = 0;
    }

    fn find(&self, first: u64, end: u64) -> Option<SmallVec<[(u64, Loaded); 1]>> {
        let mut parts = SmallVec::new();
        let mut at = first;
        let (&begin, _) = self.entries.range(..=first).next_back()?;
        for (&start, entry) in self.entries.range(begin..end) {
            if start > at || entry.end <= at {
                return None;
            }
            parts.push((at, entry.data.from(at - start)));
            at = entry.end;
        }
        if at < end {
            return None;
        }
        for (&start, entry) in self.entries.range(begin..end) {
            entry.was_read.set(true);
            self.policy.get(&start);
        }
        Some(parts)
    }

    fn keep(&mut self, first: u64, end: u64, data: &Loaded, owner: Owner, object_max: u64) {
        if self.limit_bytes == 0 {
            return;
        }
        // Of what is here in part, the rest is added.
        let (mut from, mut to) = (first, end);
        if let Some((&start, entry)) = self.entries.range(..=first).next_back()
            && entry.end > first
            && (start < first || entry.end >= end)
        {
            from = entry.end;
        }
        if let Some((&start, entry)) = self.entries.range(first..end).next_back()
            && entry.end > end
        {
            to = start;
        }
        if from >= to {
            return;
        }
        let bytes = (to - from) * BLOCK_BYTES;
        // A part does not keep much more than itself in memory.
        let is_most = bytes * 2 > data.buf.capacity() as u64;
        let weight = if is_most { data.buf.capacity() as u64 } else { bytes } + ENTRY_COST_BYTES;
        if weight > object_max || weight > self.limit_bytes {
            return;
        }
        if let Some(object) = self.objects.get_mut(&owner)
            && object.bytes + weight > object_max
        {
            object.refused += 1;
            if !object.refused.is_multiple_of(FULL_PARTS) {
                return;
            }
        }
        let inside: SmallVec<[u64; 4]> =
            self.entries.range(from..to).map(|(&start, _)| start).collect();
        inside.iter().for_each(|&start| self.remove(start));
        let rest = data.from(from - first);
        let data = match is_most {
            true => rest,
            false => Loaded::new(AlignedBuf::copy_of(&rest.bytes()[..bytes as usize])),
        };
        self.make_room(&owner, object_max - weight);
        self.last_number += 1;
        let number = self.last_number;
        let object = self.objects.entry(owner).or_default();
        object.bytes += weight;
        object.count += 1;
        object.order.push_back((from, number));
        self.used_bytes += weight;
        let was_read = Cell::new(false);
        self.entries.insert(from, Entry { end: to, data, owner, weight, number, was_read });
        self.policy.insert(from, weight);
        self.drop_gone();
    }

    /// Has all objects keep to their limits.
    fn keep_to(&mut self, limit: impl Fn(&Owner) -> u64) {
        let over = |(owner, object): (&Owner, &ObjectUse)| {
            (object.bytes > limit(owner)).then(|| (*owner, limit(owner)))
        };
        let over: Vec<(Owner, u64)> = self.objects.iter().filter_map(over).collect();
        over.iter().for_each(|(owner, limit)| self.make_room(owner, *limit));
    }

    /// Forgets of an object until no more than `bytes` are here: the oldest, but what was read since has another turn.
    fn make_room(&mut self, owner: &Owner, bytes: u64) {
        while let Some(object) = self.objects.get_mut(owner) {
            if object.bytes <= bytes {
                return;
            }
            let Some((first, number)) = object.order.pop_front() else { return };
            if !is_there(&self.entries, first, number) {
                continue;
            }
            if self.entries.get(&first).is_some_and(|entry| entry.was_read.replace(false)) {
                object.order.push_back((first, number));
                continue;
            }
            self.remove(first);
        }
    }

    fn forget(&mut self, first: u64, end: u64) {
        self.sights.forget(first, end);
        if self.entries.is_empty() {
            return;
        }
        if let Some((&start, entry)) = self.entries.range(..first).next_back()
            && entry.end > first
        {
            self.remove(start);
        }
        while let Some((&start, _)) = self.entries.range(first..end).next() {
            self.remove(start);
        }
    }

    fn remove(&mut self, first: u64) {
        self.policy.remove(&first);
        self.take_out(first);
    }

    fn take_out(&mut self, first: u64) {
        let Some(entry) = self.entries.remove(&first) else { return };
        self.used_bytes -= entry.weight;
        if let Some(object) = self.objects.get_mut(&entry.owner) {
            object.bytes -= entry.weight;
            object.count -= 1;
            if object.count == 0 {
                self.objects.remove(&entry.owner);
            } else if object.order.len() > 2 * object.count + 16 {
                // Those that are gone do not pile up.
                let entries = &self.entries;
                object.order.retain(|&(first, number)| is_there(entries, first, number));
            }
        }
    }

    /// What the library has dropped goes from here, too.
    fn drop_gone(&mut self) {
        let gone = self.gone.take();
        gone.into_iter().for_each(|first| self.take_out(first));
    }
}

fn is_there(entries: &BTreeMap<u64, Entry>, first: u64, number: u64) -> bool {
    entries.get(&first).is_some_and(|entry| entry.number == number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use types::{ObjClass, ObjType};

    const WIDE: u64 = 64 << 20;
    /// What this long takes is kept at once.
    const SLOW: Duration = Duration::from_secs(1);

    fn cache(limit: u64, object_max: u64) -> Rc<DataCache> {
        let cache = DataCache::new(&CacheRoom::new(WIDE, 1));
        cache.set(&Settings { version: 1, bytes_max: limit, object_bytes_max: object_max });
        cache
    }

    fn owner(n: u64) -> Owner {
        (ContId(1), Oid { hi: 0, lo: n })
    }

    fn run(first: u64, count: u64) -> Run {
        Run { at: first * BLOCK_BYTES, bytes: count * BLOCK_BYTES }
    }

    /// Blocks whose first bytes tell their place and what was written there.
    fn data(first: u64, written: &[u64]) -> Loaded {
        let mut buf = AlignedBuf::zeroed(written.len() * BLOCK_BYTES as usize);
        for (at, version) in written.iter().enumerate() {
            let start = at * BLOCK_BYTES as usize;
            buf[start..start + 8].copy_from_slice(&(first + at as u64).to_le_bytes());
            buf[start + 8..start + 16].copy_from_slice(&version.to_le_bytes());
        }
        Loaded::new(buf)
    }

    /// Place and version of each block found.
    fn shown(parts: &[(u64, Loaded)], end: u64) -> Vec<(u64, u64, u64)> {
        let mut out = Vec::new();
        for (at, (first, loaded)) in parts.iter().enumerate() {
            let stop = parts.get(at + 1).map_or(end, |(next, _)| *next);
            for block in *first..stop {
                let start = ((block - first) * BLOCK_BYTES) as usize;
                let word = |at: usize| {
                    let raw = loaded.bytes()[start + at..start + at + 8].try_into().unwrap();
                    u64::from_le_bytes(raw)
                };
                out.push((block, word(0), word(8)));
            }
        }
        out
    }

    fn check(cache: &DataCache) {
        let state = cache.state.borrow();
        let mut end = 0;
        let mut by_owner: BTreeMap<Owner, (u64, usize)> = BTreeMap::new();
        for (&first, entry) in &state.entries {
            assert!(first >= end && entry.end > first, "entries overlap at {first}");
            end = entry.end;
            assert!(entry.data.bytes().len() as u64 >= (entry.end - first) * BLOCK_BYTES);
            let of = by_owner.entry(entry.owner).or_default();
            *of = (of.0 + entry.weight, of.1 + 1);
        }
        assert_eq!(state.used_bytes, state.entries.values().map(|entry| entry.weight).sum());
        assert!(state.used_bytes <= state.limit_bytes);
        assert_eq!(
            (state.policy.len(), state.policy.weight()),
            (state.entries.len(), state.used_bytes)
        );
        let held: BTreeSet<u64> = state.policy.iter().map(|(first, _)| *first).collect();
        assert_eq!(held, state.entries.keys().copied().collect());
        let counted: BTreeMap<Owner, (u64, usize)> =
            state.objects.iter().map(|(owner, of)| (*owner, (of.bytes, of.count))).collect();
        assert_eq!(counted, by_owner);
        for (owner, object) in &state.objects {
            assert!(object.bytes <= cache.object_max(owner));
            assert!(object.order.len() <= 2 * object.count + 17, "names of what is gone pile up");
        }
    }

    proptest! {
        /// The model is a device of 400 blocks with a version each: whatever is found is what is there now.
        #[test]
        fn what_is_found_is_what_the_device_has(
            steps in prop::collection::vec((0u8..10, 0u64..400, 1u64..40, 0u64..3), 1..200),
            limit in prop::sample::select(vec![2u64 << 20, 3 << 20, 8 << 20]),
            object_max in prop::sample::select(vec![40u64 << 10, 300 << 10, 8 << 20]),
        ) {
            let cache = cache(limit, object_max);
            let mut device = vec![0u64; 440];
            for (at, (step, first, count, of)) in steps.into_iter().enumerate() {
                let end = first + count;
                let now = |first: u64, end: u64| device[first as usize..end as usize].to_vec();
                match step {
                    0..=6 => match cache.find(run(first, count)) {
                        Some(parts) => {
                            let want: Vec<(u64, u64, u64)> =
                                (first..end).map(|at| (at, at, device[at as usize])).collect();
                            prop_assert_eq!(shown(&parts, end), want);
                        }
                        None => {
                            let took = if at % 2 == 0 { SLOW } else { Duration::ZERO };
                            cache.keep(run(first, count), &data(first, &now(first, end)), owner(of), took);
                        }
                    },
                    7 | 8 => {
                        // Freed, and written by somebody else.
                        cache.forget(first, count);
                        device[first as usize..end as usize].fill(at as u64 + 1);
                    }
                    _ => {
                        let version = at as u64 + 2;
                        let bytes_max = if of == 0 { 0 } else { limit };
                        let settings = Settings { version, bytes_max, object_bytes_max: object_max };
                        cache.set(&settings);
                    }
                }
                check(&cache);
            }
        }
    }

    /// Reads half of the cache's size again and again, and now and then something that is read once.
    #[test]
    fn who_reads_much_once_does_not_drive_out_what_is_read_often() {
        let cache = cache(8 << 20, 8 << 20);
        let read = |first: u64| {
            if cache.find(run(first, 16)).is_none() {
                cache.keep(run(first, 16), &data(first, &[0; 16]), owner(first), SLOW);
                return false;
            }
            true
        };
        for _ in 0..3 {
            (0..64).for_each(|at| _ = read(at * 16));
        }
        // Eight times as much as there is room for.
        (0..1024).for_each(|at| _ = read(100_000 + at * 16));
        let kept = (0..64).filter(|at| read(at * 16)).count();
        assert!(kept >= 60, "{kept} of 64 are left");
        check(&cache);
    }

    /// Memory that is kept is not the next read's: reading a file once from a fast device must not fill fresh memory all the way.
    #[test]
    fn what_is_large_and_came_quickly_stays_at_its_second_reading() {
        let cache = cache(8 << 20, 8 << 20);
        let read = |first: u64, count: u64, took: Duration| {
            let found = cache.find(run(first, count)).is_some();
            if !found {
                let written = vec![0; count as usize];
                cache.keep(run(first, count), &data(first, &written), owner(1), took);
            }
            found
        };
        let quick = Duration::from_micros(500);
        assert_eq!([0; 3].map(|_| read(1000, 256, quick)), [false, false, true]);
        assert_eq!([0; 2].map(|_| read(2000, 256, Duration::from_millis(5))), [false, true]);
        assert_eq!([0; 2].map(|_| read(3000, 31, quick)), [false, true], "small reads stay");
        // Between two readings the blocks became free and others were written there: that is a first reading.
        assert!(!read(4000, 256, quick));
        cache.forget(4100, 1);
        cache.forget(3990, 300);
        assert_eq!([0; 3].map(|_| read(4000, 256, quick)), [false, false, true]);
        // Other places have taken the name since: nothing is known of it, and it stays out once more.
        assert!(!read(5000, 256, quick));
        (0..256).for_each(|at| _ = read(100_000 + at * 32, 32, quick));
        assert_eq!([0; 2].map(|_| read(5000, 256, quick)), [false, false]);
        check(&cache);
    }

    #[test]
    fn an_object_has_no_more_than_its_limit_and_keeps_what_it_reads_again() {
        let limit = 10 * (64 << 10) + 10 * ENTRY_COST_BYTES;
        let cache = cache(32 << 20, limit);
        let read = |first: u64, of: u64| {
            let found = cache.find(run(first, 16)).is_some();
            if !found {
                cache.keep(run(first, 16), &data(first, &[0; 16]), owner(of), SLOW);
            }
            found
        };
        read(5000, 2);
        for at in 0..100 {
            read(at * 16, 1);
            // The first is read all the time.
            assert!(read(0, 1));
        }
        assert_eq!(cache.stat().used_bytes, limit + (64 << 10) + ENTRY_COST_BYTES);
        assert!(read(5000, 2), "another object's data are left alone");
        // From end to end again and again, twice as much as there is room for: a queue would never have what comes next.
        let hits = |count: u64| (0..count).filter(|at| read(at * 16, 1)).count();
        hits(20);
        assert!((0..4).map(|_| hits(20)).sum::<usize>() >= 4 * 6);
        // What is read from now on comes in time.
        let mut rounds = 0;
        while (0..8).filter(|at| read(2000 + at * 16, 1)).count() < 8 {
            rounds += 1;
            assert!(rounds < 200, "what is read now stays out");
        }
        check(&cache);
    }

    #[test]
    fn neighbours_answer_together_and_share_a_border_block() {
        let cache = cache(8 << 20, 8 << 20);
        cache.keep(run(10, 5), &data(10, &[0; 5]), owner(1), SLOW);
        // Begins in the last block of the other, as transfers of odd lengths do.
        cache.keep(run(14, 5), &data(14, &[0; 5]), owner(1), SLOW);
        let odd = Run { at: 12 * BLOCK_BYTES + 100, bytes: 6 * BLOCK_BYTES };
        let parts = cache.find(odd).expect("both have it");
        assert_eq!(parts.iter().map(|(first, _)| *first).collect::<Vec<_>>(), [12, 15]);
        assert!(cache.find(run(9, 3)).is_none() && cache.find(run(17, 3)).is_none());
        // A part that is over does not keep the whole in memory.
        cache.keep(run(19, 100), &data(19, &[0; 100]), owner(1), SLOW);
        cache.keep(run(118, 2), &data(118, &[0; 2]), owner(1), SLOW);
        cache.forget(50, 1);
        assert_eq!(cache.find(run(119, 1)).map(|parts| parts.len()), Some(1));
        let stat = cache.stat();
        assert_eq!(stat.used_bytes, (5 + 4 + 1) * BLOCK_BYTES + 3 * ENTRY_COST_BYTES + BLOCK_BYTES);
        assert_eq!((stat.hits, stat.misses), (2, 2));
    }

    #[test]
    fn pools_share_the_memory_of_a_target_and_targets_that_of_an_engine() {
        let room = CacheRoom::new(30 << 20, 4);
        let one = DataCache::new(&room);
        assert_eq!(one.stat().limit_bytes, 30 << 20);
        let two = DataCache::new(&room);
        assert_eq!((one.stat().limit_bytes, two.stat().limit_bytes), (15 << 20, 15 << 20));
        let settings = Settings { version: 3, bytes_max: 16 << 20, object_bytes_max: 4 << 20 };
        one.set(&settings);
        assert_eq!(one.stat().limit_bytes, 4 << 20);
        // Objects of one group have an engine's limit to themselves, others share it with its other targets.
        for (groups, limit_mib) in [
            (GroupCount::Count(1), 4),
            (GroupCount::Count(2), 2),
            (GroupCount::Count(64), 1),
            (GroupCount::All, 1),
            (GroupCount::AllBeyond { first_log2: 20 }, 1),
        ] {
            let class = ObjClass { groups, ..ObjClass::S1 };
            let object = Oid::generate(0, 1, ObjType::KvHashed, class, 0);
            assert_eq!(one.object_max(&(ContId(1), object)), limit_mib << 20);
        }
        // Older words do not count, and what is off is off.
        one.set(&Settings { version: 2, ..Settings::default() });
        assert_eq!(one.stat().limit_bytes, 4 << 20);
        one.set(&Settings { version: 4, bytes_max: 0, object_bytes_max: 1 });
        assert_eq!(one.stat().limit_bytes, 0);
        one.keep(run(0, 1), &data(0, &[0]), owner(1), SLOW);
        assert!(one.find(run(0, 1)).is_none());
        assert_eq!(one.stat().misses, 0);
        two.close();
        one.set(&Settings { version: 5, ..Settings::default() });
        assert_eq!((one.stat().limit_bytes, two.stat().limit_bytes), (30 << 20, 0));
    }
}
