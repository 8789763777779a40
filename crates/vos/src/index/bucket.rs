//! The objects of a container, in buckets by hash: extendible hashing, so that one bucket at a
//! time can be written, forgotten, read back and split.
//!
//! A directory of 2^depth slots, indexed by the first bits of an object's hash, leads to buckets;
//! a bucket of fewer bits fills several slots. An object that outgrows a bucket has pages of its
//! own ([`super::parts`]) and stands beside the buckets; what is known of it as a whole stays in
//! memory. Where no pages are kept there is one bucket, which is then a plain hash table.
//!
//! R. Fagin et al., "Extendible hashing", ACM TODS 4(3), 1979.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::rc::Rc;

use types::{ContId, Epoch, Key, Unit};

use super::garbage::Garbage;
use super::lost::LostPlace;
use super::object::Object;
use super::page::{Counts, Delta, Ledger, Page, PageId, Probe};
use super::parts::Parts;
use super::snapshot::{encode_object, encode_range};
use super::{Effects, cost};
use crate::index::versions::Versions;
use crate::sums::SumPolicy;

/// A bucket of more counted memory than this is split, bytes: encoded about three quarters.
pub(crate) const BUCKET_BYTES_MAX: u64 = 8 << 10;
/// An object of more counted memory gets pages of its own, bytes.
pub(crate) const SMALL_BYTES_MAX: u64 = 64 << 10;
/// A part of more counted memory is cut in two, bytes.
pub(crate) const PART_BYTES_MAX: u64 = 8 << 10;
/// What could not be made smaller is looked at again after growing by this, bytes.
const GROWTH_BYTES: u64 = 6 << 10;
/// The directory has at most this many slots for each bucket, and for sixteen more.
const SLOTS_PER_BUCKET_MAX: u64 = 64;

pub(crate) type Objects = HashMap<Unit, Box<Object>, foldhash::fast::FixedState>;

/// Small objects that share the first bits of their hash.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    pub depth: u8,
    /// The bits they share, at the top; the others are zero.
    pub prefix: u64,
    pub objects: Objects,
    pub page: Page,
}

#[derive(Debug)]
pub(crate) struct Container {
    pub id: ContId,
    /// Sums over its data in the data area.
    pub sums: SumPolicy,
    depth: u8,
    directory: Vec<u32>,
    buckets: Vec<Bucket>,
    /// Objects with pages of their own, tombstones included.
    pub large: BTreeMap<(u64, Unit), Box<Object>>,
    pub versions: Rc<Versions>,
    /// Objects that have a past.
    pub pasts: BTreeSet<Unit>,
    /// Objects with something that nobody sees, to be swept.
    pub unswept: BTreeSet<Unit>,
    /// All objects with a past from here on are to be swept.
    pub sweep_from: Option<Unit>,
    /// Where pages were that could not be read and were given up.
    pub lost: Vec<LostPlace>,
    pub probe: Rc<Probe>,
}

/// Objects with more dkeys than this are punched by putting them aside whole.
const PUNCH_DKEYS_MAX: u64 = 1024;

/// What a change may touch of an object. A small object is one page, whatever it is.
#[derive(Clone, Copy)]
pub(crate) enum Scope<'a> {
    /// A dkey, and its past.
    Dkey(&'a [u8]),
    /// Some dkeys, and the past.
    Dkeys(&'a [Vec<u8>]),
    Whole,
    /// The past; counts of the head are not followed.
    Past,
}

/// The hash that places an object.
pub(crate) fn hash_of(unit: Unit) -> u64 {
    unit.list_order().0
}

/// The first bit after `depth`.
fn bit_after(depth: u8) -> u64 {
    1 << (63 - depth)
}

impl Bucket {
    pub(crate) fn id(&self, cont: ContId) -> PageId {
        PageId::Bucket { cont, prefix: self.prefix, depth: self.depth }
    }

    /// The records of all objects, in order.
    pub(crate) fn encode(&self, cont: ContId) -> Vec<u8> {
        encode_objects(cont, &self.objects)
    }
}

impl Container {
    pub(crate) fn new(id: ContId, probe: &Rc<Probe>) -> Container {
        Container {
            id,
            sums: SumPolicy::OFF,
            depth: 0,
            directory: vec![0],
            buckets: vec![Bucket::default()],
            large: BTreeMap::new(),
            versions: Rc::default(),
            pasts: BTreeSet::new(),
            unswept: BTreeSet::new(),
            sweep_from: None,
            lost: Vec::new(),
            probe: probe.clone(),
        }
    }

    /// A container of these buckets, which fill the space of hashes; `None` when they do not.
    pub(crate) fn of_buckets(
        id: ContId,
        probe: &Rc<Probe>,
        buckets: Vec<Bucket>,
    ) -> Option<Container> {
        let depth = buckets.iter().map(|bucket| bucket.depth).max()?;
        if !fits_directory(depth, buckets.len()) {
            return None;
        }
        let mut directory = vec![u32::MAX; 1 << depth];
        for (number, &Bucket { depth: bits, prefix, .. }) in buckets.iter().enumerate() {
            let first = if depth == 0 { 0 } else { (prefix >> (64 - depth)) as usize };
            let count = 1usize << (depth - bits);
            if prefix << bits != 0 {
                return None;
            }
            let slots = directory.get_mut(first..first.checked_add(count)?)?;
            if slots.iter().any(|&slot| slot != u32::MAX) {
                return None;
            }
            slots.fill(number as u32);
        }
        if directory.contains(&u32::MAX) {
            return None;
        }
        Some(Container { depth, directory, buckets, ..Container::new(id, probe) })
    }

    fn number_of(&self, hash: u64) -> usize {
        // A shift by 64 is not one.
        let slot = if self.depth == 0 { 0 } else { hash >> (64 - self.depth) };
        self.directory[slot as usize] as usize
    }

    /// The bucket an object belongs to, or would if it were small.
    pub(crate) fn bucket(&self, unit: Unit) -> &Bucket {
        &self.buckets[self.number_of(hash_of(unit))]
    }

    pub(crate) fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    pub(crate) fn buckets_mut(&mut self) -> &mut [Bucket] {
        &mut self.buckets
    }

    /// The bucket of these bits; `None` when it has been split or was never there.
    pub(crate) fn bucket_of(&mut self, prefix: u64, depth: u8) -> Option<&mut Bucket> {
        let number = self.number_of(prefix);
        let bucket = &mut self.buckets[number];
        (bucket.depth == depth && bucket.prefix == prefix).then_some(bucket)
    }

    /// The bucket that holds a hash, and the first hash after it.
    pub(crate) fn bucket_at(&self, hash: u64) -> (&Bucket, Option<u64>) {
        let bucket = &self.buckets[self.number_of(hash)];
        let next = match bucket.depth {
            0 => None,
            depth => bucket.prefix.checked_add(1 << (64 - depth)),
        };
        (bucket, next)
    }

    /// The object, if it holds anything now.
    pub(crate) fn object(&self, unit: Unit) -> Option<&Object> {
        self.whole(unit).filter(|object| object.dkey_count > 0)
    }

    /// The object, tombstones included.
    pub(crate) fn whole(&self, unit: Unit) -> Option<&Object> {
        if !self.large.is_empty()
            && let Some(object) = self.large.get(&unit.list_order())
        {
            return Some(object);
        }
        self.note_refused(unit);
        let bucket = self.bucket(unit);
        if !self.probe.reach(&bucket.page, || bucket.id(self.id)) {
            return None;
        }
        bucket.objects.get(&unit).map(|object| &**object)
    }

    /// Keeps the list of objects with a past.
    pub(crate) fn note_past(&mut self, unit: Unit) {
        let large = self.large.get(&unit.list_order());
        let object = large.or_else(|| self.bucket(unit).objects.get(&unit));
        if object.is_some_and(|object| object.past.is_some()) {
            self.pasts.insert(unit);
        } else {
            self.pasts.remove(&unit);
            self.unswept.remove(&unit);
        }
    }

    /// An object is about to be changed in all its parts.
    pub(crate) fn touch_whole(&self, unit: Unit) {
        self.touch_home(unit);
        let parts = self.large.get(&unit.list_order()).and_then(|object| object.parts.as_ref());
        if let Some(parts) = parts {
            for (start, page) in parts.pages.iter() {
                self.probe.reach(page, || parts.id(start));
            }
        }
    }

    /// An object is about to be punched, or dkeys of it from somewhere on: with snapshots, what
    /// goes is looked at one by one.
    pub(crate) fn touch_punched(&self, unit: Unit) {
        let object = self.large.get(&unit.list_order());
        if object.is_some_and(|object| self.keeps(object)) {
            self.touch_whole(unit);
        } else {
            self.touch_home(unit);
        }
    }

    /// True when what an object loses may be kept, or it has kept something.
    fn keeps(&self, object: &Object) -> bool {
        !self.versions.keeps_nothing() || object.past.is_some()
    }

    /// An object is about to change: what it belongs to, or will when it is made anew.
    pub(crate) fn touch_home(&self, unit: Unit) {
        self.note_refused(unit);
        let bucket = self.bucket(unit);
        self.probe.reach(&bucket.page, || bucket.id(self.id));
    }

    /// All objects that are in memory at least in part.
    pub(crate) fn objects(&self) -> impl Iterator<Item = (Unit, &Object)> {
        let small = self.buckets.iter().flat_map(|bucket| &bucket.objects);
        let small = small.map(|(unit, object)| (*unit, &**object));
        small.chain(self.large.iter().map(|((_, unit), object)| (*unit, &**object)))
    }

    /// Objects with pages of their own, from a hash on.
    pub(crate) fn large_from(&self, hash: u64) -> impl Iterator<Item = Unit> {
        self.large.range((hash, Unit::NIL)..).map(|((_, unit), _)| *unit)
    }

    /// Runs a change of an object at `epoch` (`None`: one that is no change to readers). The object is
    /// made for it if `make`; else it must hold something, unless only its past is changed. It
    /// goes away when nothing is left. What `scope` names must be in memory.
    #[expect(clippy::too_many_arguments, reason = "what a change is, and what follows it")]
    pub(crate) fn change(
        &mut self,
        unit: Unit,
        scope: Scope<'_>,
        make: bool,
        epoch: Option<Epoch>,
        ledger: &mut Ledger,
        effects: &mut Effects,
        run: impl FnOnce(&mut Object, &mut Effects),
    ) -> Delta {
        let wanted =
            |object: &Object| make || object.dkey_count > 0 || matches!(scope, Scope::Past);
        let delta = if let Some(object) = self.large.get_mut(&unit.list_order()) {
            if !wanted(object) {
                return Delta::default();
            }
            let mut delta = change_large(object, scope, epoch, ledger, effects, run);
            if object.is_gone() {
                delta.scm += self.drop_large(unit, ledger, effects);
            }
            delta
        } else {
            let bucket = self.bucket(unit);
            if !bucket.page.absent && !make && !bucket.objects.get(&unit).is_some_and(|o| wanted(o))
            {
                return Delta::default();
            }
            self.change_small(unit, matches!(scope, Scope::Past), epoch, ledger, effects, run)
        };
        if effects.versions.is_some() || !self.pasts.is_empty() {
            self.note_past(unit);
        }
        delta
    }

    fn change_small(
        &mut self,
        unit: Unit,
        past_only: bool,
        epoch: Option<Epoch>,
        ledger: &mut Ledger,
        effects: &mut Effects,
        run: impl FnOnce(&mut Object, &mut Effects),
    ) -> Delta {
        let number = self.number_of(hash_of(unit));
        let bucket = &mut self.buckets[number];
        if ledger.paged {
            let (objects, page) = (&bucket.objects, &mut bucket.page);
            let (prefix, depth, cont) = (bucket.prefix, bucket.depth, self.id);
            ledger.will_change(page, || {
                let id = PageId::Bucket { cont, prefix, depth };
                (id, encode_objects(cont, objects))
            });
        }
        let scm_before = effects.scm;
        let object = bucket.objects.entry(unit).or_insert_with(|| {
            effects.scm += cost::OBJECT as i64;
            Box::new(Object::new(unit.dkey_kind()))
        });
        let mut delta = run_change(object, past_only, epoch, effects, run);
        if object.is_gone() {
            object.forget_facts(effects);
            bucket.objects.remove(&unit);
            effects.scm -= cost::OBJECT as i64;
        }
        delta.scm = effects.scm - scm_before;
        bucket.page.has_blocks |= effects.places_blocks;
        ledger.changed(&mut bucket.page, &delta);
        if ledger.paged && bucket.page.counts.scm > BUCKET_BYTES_MAX.max(bucket.page.settled_bytes)
        {
            self.relieve(number, ledger);
        }
        delta
    }

    /// Removes an object.
    ///
    /// With pages and without snapshots, one with pages of its own becomes garbage. Else a
    /// small one is removed piece by piece; a big one is put aside whole as a *life* at once, and a
    /// sweep gives back what no snapshot sees of it.
    pub(crate) fn punch_object(
        &mut self,
        unit: Unit,
        epoch: Epoch,
        ledger: &mut Ledger,
        garbage: &mut Garbage,
        effects: &mut Effects,
    ) -> Delta {
        let large = self.large.get(&unit.list_order());
        if large.is_some_and(|object| !self.keeps(object)) {
            // It is not looked at, nor all in memory.
            effects.unnames |= unit.object.cells().is_some();
            return self.punch_large(unit, ledger, garbage);
        }
        let small = self.bucket(unit).objects.get(&unit);
        let count = large.or(small).map_or(0, |object| object.dkey_count);
        if count <= PUNCH_DKEYS_MAX {
            let scope = Scope::Whole;
            return self.change(unit, scope, false, Some(epoch), ledger, effects, |o, fx| {
                o.clear(epoch, fx);
            });
        }
        let delta = self.change(unit, Scope::Whole, false, None, ledger, effects, |object, fx| {
            let counts = object.counts();
            object.end_life(epoch, fx);
            // They went with the life.
            fx.bytes -= counts.bytes as i64;
            object.bytes_used += counts.bytes;
        });
        effects.unnames |= unit.object.cells().is_some();
        self.unswept.insert(unit);
        self.note_past(unit);
        delta
    }

    /// Removes integer dkeys from `from` upwards; all of them as [`Container::punch_object`] does.
    pub(crate) fn punch_from(
        &mut self,
        unit: Unit,
        from: u64,
        epoch: Epoch,
        ledger: &mut Ledger,
        garbage: &mut Garbage,
        effects: &mut Effects,
    ) -> Delta {
        let large = self.large.get(&unit.list_order());
        if large.is_some_and(|object| !self.keeps(object)) {
            effects.unnames |= unit.object.cells().is_some();
            return self.punch_large_from(unit, from, epoch, ledger, garbage, effects);
        }
        let object = large.or_else(|| self.bucket(unit).objects.get(&unit));
        if object.is_some_and(|o| o.dkey_count > PUNCH_DKEYS_MAX && o.has_none_below(from)) {
            return self.punch_object(unit, epoch, ledger, garbage, effects);
        }
        self.change(unit, Scope::Whole, false, Some(epoch), ledger, effects, |object, fx| {
            object.punch_from(from, epoch, fx);
        })
    }

    /// Removes an object with pages of its own; what it holds becomes garbage.
    fn punch_large(&mut self, unit: Unit, ledger: &mut Ledger, garbage: &mut Garbage) -> Delta {
        let Some(mut object) = self.large.remove(&unit.list_order()) else {
            return Delta::default();
        };
        let Some(parts) = object.parts.take() else { return Delta::default() };
        let counts = object.counts();
        let mut delta = Delta { scm: -(cost::OBJECT as i64), ..Delta::removing(&counts) };
        ledger.count(-(cost::OBJECT as i64), false);
        delta.scm -= garbage.take_parts(&object, *parts, ledger) as i64;
        garbage.take_object(object, 0);
        delta
    }

    /// As [`Container::punch_from`], of an object with pages of its own: whole parts become
    /// garbage, what is left is in the part of `from`, which must be in memory.
    fn punch_large_from(
        &mut self,
        unit: Unit,
        from: u64,
        epoch: Epoch,
        ledger: &mut Ledger,
        garbage: &mut Garbage,
        effects: &mut Effects,
    ) -> Delta {
        let Some(object) = self.large.get_mut(&unit.list_order()) else { return Delta::default() };
        let Some(parts) = &mut object.parts else { return Delta::default() };
        let place = from.to_be_bytes();
        let first = parts.pages.range::<[u8]>(Bound::Included(&place), Bound::Unbounded).next();
        let first = first.map(|(start, _)| start.clone()).filter(|start| !start.is_empty());
        let mut delta = Delta::default();
        if let Some(first) = first {
            let mut gone = Parts::empty(parts.cont, unit, &self.probe);
            gone.pages = parts.pages.split_off::<[u8]>(&first);
            let mut counts = Counts::default();
            for (_, page) in gone.pages.iter() {
                counts.follow(&Delta::adding(&page.counts));
            }
            let kept = object.counts();
            let gone_scm = garbage.take_parts(object, gone, ledger);
            delta = Delta { scm: -(gone_scm as i64), ..Delta::removing(&counts) };
            let rest = object.split_off(&first);
            garbage.take_object(Box::new(rest), 0);
            object.set_counts(&Counts {
                dkeys: kept.dkeys - counts.dkeys,
                arrays: kept.arrays - counts.arrays,
                links: kept.links - counts.links,
                bytes: kept.bytes - counts.bytes,
                ..kept
            });
            if counts.dkeys > 0 {
                (object.epoch, object.keys_epoch) = (epoch, epoch);
            }
            if object.dkey_count == 0 {
                delta.objects = -1;
                delta.scm += self.drop_large(unit, ledger, effects);
                return delta;
            }
        }
        // Also the part before, if `from` is where one begins.
        let key = from.to_le_bytes();
        let scope = Scope::Dkey(&key);
        let last = self.change(unit, scope, false, Some(epoch), ledger, effects, |object, fx| {
            object.punch_from(from, epoch, fx);
        });
        delta.and(&last)
    }

    /// Takes an object with pages of its own, of which nothing is left, out of the container;
    /// returns the change of the memory counted.
    pub fn drop_large(&mut self, unit: Unit, ledger: &mut Ledger, effects: &mut Effects) -> i64 {
        let Some(mut object) = self.large.remove(&unit.list_order()) else { return 0 };
        let before = effects.scm;
        object.forget_facts(effects);
        let facts = effects.scm - before;
        effects.scm -= cost::OBJECT as i64;
        ledger.count(-(cost::OBJECT as i64), false);
        if let Some(mut parts) = object.parts.take() {
            ledger.changed(&mut parts.past, &Delta { scm: facts, ..Delta::default() });
            ledger.drop_page(std::mem::take(&mut parts.past));
            while let Some((_, page)) = parts.pages.pop_first() {
                ledger.drop_page(page);
            }
        }
        facts - cost::OBJECT as i64
    }

    /// Makes a bucket that has outgrown its size smaller.
    fn relieve(&mut self, number: usize, ledger: &mut Ledger) {
        let mut todo = vec![number];
        while let Some(number) = todo.pop() {
            let cont = self.id;
            let bucket = &mut self.buckets[number];
            let mut outgrown = Vec::new();
            for (unit, object) in &bucket.objects {
                let scm = object.scm_bytes();
                if scm > SMALL_BYTES_MAX {
                    outgrown.push((*unit, scm));
                }
            }
            outgrown.sort_unstable();
            for (unit, scm) in outgrown {
                let Some(mut object) = bucket.objects.remove(&unit) else { continue };
                let counts = Counts { scm, ..object.counts() };
                // All of it leaves the bucket and, but for the head, comes back in pages.
                ledger.changed(&mut bucket.page, &Delta::removing(&counts));
                let mut page =
                    Page { dirty: true, has_blocks: bucket.page.has_blocks, ..Page::default() };
                let past = object.past_scm_bytes();
                let counts = Counts { objects: 0, scm: scm - cost::OBJECT - past, ..counts };
                ledger.changed(&mut page, &Delta::adding(&counts));
                ledger.count(cost::OBJECT as i64, false);
                let mut parts = Parts::new(cont, unit, page, &self.probe);
                parts.past.dirty = true;
                ledger.dirtied_count += 2;
                parts.past.has_blocks = past > 0;
                let delta = Delta { scm: past as i64, ..Delta::default() };
                ledger.changed(&mut parts.past, &delta);
                object.parts = Some(Box::new(parts));
                split_parts(&mut object, &Key::default(), ledger);
                self.large.insert(unit.list_order(), object);
            }
            bucket.page.settled_bytes = bucket.page.counts.scm + GROWTH_BYTES;
            let large = bucket.page.counts.scm > BUCKET_BYTES_MAX;
            let (several, depth) = (bucket.objects.len() > 1, bucket.depth + 1);
            if large && several && fits_directory(depth.max(self.depth), self.buckets.len()) {
                todo.extend([number, self.split(number, ledger)]);
            }
        }
    }

    /// Splits a bucket that has just been changed; returns the number of the new one.
    fn split(&mut self, number: usize, ledger: &mut Ledger) -> usize {
        let new = self.buckets.len();
        let bucket = &mut self.buckets[number];
        let bit = bit_after(bucket.depth);
        bucket.depth += 1;
        bucket.page.settled_bytes = 0;
        ledger.dirtied_count += 1;
        // Under its old name.
        bucket.page.queued = false;
        let mut right = Bucket {
            depth: bucket.depth,
            prefix: bucket.prefix | bit,
            page: Page { dirty: true, has_blocks: bucket.page.has_blocks, ..Page::default() },
            ..Bucket::default()
        };
        let all = std::mem::take(&mut bucket.objects);
        for (unit, object) in all {
            if hash_of(unit) & bit == 0 {
                bucket.objects.insert(unit, object);
                continue;
            }
            let counts = Counts { scm: object.scm_bytes(), ..object.counts() };
            ledger.changed(&mut bucket.page, &Delta::removing(&counts));
            ledger.changed(&mut right.page, &Delta::adding(&counts));
            right.objects.insert(unit, object);
        }
        let (prefix, depth) = (right.prefix, right.depth);
        self.buckets.push(right);
        if depth > self.depth {
            self.directory = self.directory.iter().flat_map(|&slot| [slot, slot]).collect();
            self.depth += 1;
        }
        let first = (prefix >> (64 - self.depth)) as usize;
        self.directory[first..first + (1 << (self.depth - depth))].fill(new as u32);
        new
    }
}

fn encode_objects(cont: ContId, objects: &Objects) -> Vec<u8> {
    let mut units: Vec<&Unit> = objects.keys().collect();
    units.sort_unstable();
    let mut out = Vec::new();
    for unit in units {
        encode_object(cont, *unit, &objects[unit], true, &mut out);
    }
    out
}

/// Runs a change; returns what became of the counts, without memory.
fn run_change(
    object: &mut Object,
    past_only: bool,
    epoch: Option<Epoch>,
    effects: &mut Effects,
    run: impl FnOnce(&mut Object, &mut Effects),
) -> Delta {
    if let Some(epoch) = epoch {
        object.note(epoch, effects);
    }
    let (was, bytes_before) = (object.counts(), effects.bytes);
    run(object, effects);
    if past_only {
        return Delta::default();
    }
    let bytes = effects.bytes - bytes_before;
    object.count_bytes(bytes);
    let is = object.counts();
    let dkeys = is.dkeys as i64 - was.dkeys as i64;
    let links = is.links as i64 - was.links as i64;
    if let Some(epoch) = epoch {
        object.note_late(epoch, bytes, dkeys, links, effects);
    }
    Delta {
        objects: is.objects as i64 - was.objects as i64,
        dkeys,
        arrays: is.arrays as i64 - was.arrays as i64,
        links,
        bytes,
        scm: 0,
    }
}

/// Runs a change of an object with pages of its own.
fn change_large(
    object: &mut Object,
    scope: Scope<'_>,
    epoch: Option<Epoch>,
    ledger: &mut Ledger,
    effects: &mut Effects,
    run: impl FnOnce(&mut Object, &mut Effects),
) -> Delta {
    // Out of the object while it changes: what it needs is in memory.
    let Some(mut parts) = object.parts.take() else { return Delta::default() };
    let (cont, unit) = (parts.cont, parts.unit);
    let past_only = matches!(scope, Scope::Past);
    let keeps = effects.versions.is_some() || object.past.is_some() || past_only;
    if let (Scope::Dkey(dkey), false) = (&scope, keeps)
        && let Some((start, page)) = parts.pages.floor_mut::<[u8]>(&object.place_of(dkey))
        && !page.frozen
    {
        // As below, with one search: nearly every change goes this way.
        ledger.will_change_thawed(page);
        let scm_before = effects.scm;
        let mut delta = run_change(object, false, epoch, effects, run);
        delta.scm = effects.scm - scm_before;
        page.has_blocks |= effects.places_blocks;
        ledger.changed(page, &Delta { objects: 0, ..delta });
        let settled = page.counts.scm <= PART_BYTES_MAX.max(page.settled_bytes);
        let unsettled = (!settled || page.counts == Counts::default()).then(|| start.clone());
        object.parts = Some(parts);
        if let Some(start) = unsettled {
            settle_parts(object, vec![start], ledger);
        }
        return delta;
    }
    let starts: Vec<Key> = match scope {
        Scope::Dkey(dkey) => vec![parts.start_of(&object.place_of(dkey))],
        Scope::Dkeys(dkeys) => {
            let starts = dkeys.iter().map(|dkey| parts.start_of(&object.place_of(dkey)));
            starts.collect::<BTreeSet<Key>>().into_iter().collect()
        }
        Scope::Whole => parts.pages.iter().map(|(start, _)| start.clone()).collect(),
        Scope::Past => Vec::new(),
    };
    for start in &starts {
        let end = parts.end_of(start);
        let Some(page) = parts.pages.get_mut::<[u8]>(start) else { continue };
        ledger.will_change(page, || {
            let mut out = Vec::new();
            encode_range(cont, unit, object, start, end.as_deref(), &mut out);
            (PageId::Part { cont, unit, start: start.clone() }, out)
        });
    }
    if keeps {
        ledger.will_change(&mut parts.past, || {
            let mut out = Vec::new();
            encode_object(cont, unit, object, false, &mut out);
            (PageId::Past { cont, unit }, out)
        });
        parts.past.has_blocks = true;
    }
    let scm_before = effects.scm;
    let mut delta = run_change(object, past_only, epoch, effects, run);
    delta.scm = effects.scm - scm_before;
    // Objects are counted with the head.
    let of_part = Delta { objects: 0, ..delta };
    if !keeps && let [start] = &starts[..] {
        if let Some(page) = parts.pages.get_mut::<[u8]>(start) {
            page.has_blocks |= effects.places_blocks;
            ledger.changed(page, &of_part);
        }
    } else {
        recount(object, &mut parts, &starts, delta.scm, effects.places_blocks, ledger);
    }
    object.parts = Some(parts);
    settle_parts(object, starts, ledger);
    delta
}

/// Cuts changed parts that have become too large, and drops those left empty.
fn settle_parts(object: &mut Object, starts: Vec<Key>, ledger: &mut Ledger) {
    let Some(parts) = object.parts.as_mut() else { return };
    let mut crowded = Vec::new();
    for start in starts {
        let Some(page) = parts.pages.get_mut::<[u8]>(&start) else { continue };
        if page.counts.scm > PART_BYTES_MAX.max(page.settled_bytes) {
            crowded.push(start);
        } else if page.counts == Counts::default()
            && !start.is_empty()
            && let Some(page) = parts.pages.remove::<[u8]>(&start)
        {
            // The part before takes the range over: nothing is in it.
            ledger.drop_page(page);
        }
    }
    for start in crowded {
        split_parts(object, &start, ledger);
    }
}

/// Counts changed parts anew; what is left of the change of memory is of the past.
fn recount(
    object: &Object,
    parts: &mut Parts,
    starts: &[Key],
    scm: i64,
    places_blocks: bool,
    ledger: &mut Ledger,
) {
    let mut past_scm = scm;
    for start in starts {
        let end = parts.end_of(start);
        let is = object.weigh(start, end.as_deref());
        let Some(page) = parts.pages.get_mut::<[u8]>(start) else { continue };
        let was = page.counts;
        let delta = Delta {
            objects: 0,
            dkeys: is.dkeys as i64 - was.dkeys as i64,
            arrays: is.arrays as i64 - was.arrays as i64,
            links: is.links as i64 - was.links as i64,
            bytes: is.bytes as i64 - was.bytes as i64,
            scm: is.scm as i64 - was.scm as i64,
        };
        page.has_blocks |= places_blocks;
        ledger.changed(page, &delta);
        past_scm -= delta.scm;
    }
    if past_scm != 0 {
        ledger.changed(&mut parts.past, &Delta { scm: past_scm, ..Delta::default() });
    }
}

/// True when a directory may be that deep. Hashes that cluster by chance stay far below; more is
/// damage, or somebody's choice of object ids, and must not cost memory without end.
fn fits_directory(depth: u8, bucket_count: usize) -> bool {
    depth < 40 && 1 << depth <= SLOTS_PER_BUCKET_MAX * (bucket_count as u64 + 16)
}

/// Cuts a part that has outgrown its size, as often as it takes. It has just been changed.
fn split_parts(object: &mut Object, start: &Key, ledger: &mut Ledger) {
    let Some(mut parts) = object.parts.take() else { return };
    let mut start = start.clone();
    loop {
        let end = parts.end_of(&start);
        let Some(page) = parts.pages.get_mut::<[u8]>(&start) else { break };
        // Half of a part that is a little too large; a full part of one that is much so.
        let all = page.counts;
        let half = (all.scm / 2).min(PART_BYTES_MAX * 3 / 4);
        let cut = match all.scm > PART_BYTES_MAX {
            true => object.middle(&start, end.as_deref(), half),
            false => None,
        };
        let Some((at, before)) = cut else {
            page.settled_bytes = all.scm + GROWTH_BYTES;
            break;
        };
        let rest = Counts {
            objects: 0,
            dkeys: all.dkeys - before.dkeys,
            arrays: all.arrays - before.arrays,
            links: all.links - before.links,
            bytes: all.bytes - before.bytes,
            scm: all.scm - before.scm,
        };
        page.settled_bytes = 0;
        ledger.changed(page, &Delta::removing(&rest));
        let mut new = Page { dirty: true, has_blocks: page.has_blocks, ..Page::default() };
        ledger.changed(&mut new, &Delta::adding(&rest));
        ledger.dirtied_count += 1;
        parts.pages.insert_new(at.clone(), new);
        start = at;
    }
    object.parts = Some(parts);
}
