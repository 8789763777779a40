//! The hash table against a list of (key, record) pairs, in all its modes.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::mem::offset_of;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// A user's record; the link is not at its beginning.
#[repr(C)]
struct Record {
    key: u64,
    refs: AtomicI32,
    freed: AtomicI32,
    link: d_list_t,
}

fn record_of(link: Link) -> *mut Record {
    link.wrapping_byte_sub(offset_of!(Record, link)).cast()
}

fn new_record(key: u64) -> *mut Record {
    let none = d_list_t { next: null_mut(), prev: null_mut() };
    let record = Record { key, refs: AtomicI32::new(1), freed: AtomicI32::new(0), link: none };
    let record = Box::into_raw(Box::new(record));
    // SAFETY: the record is new.
    unsafe {
        let link = &raw mut (*record).link;
        (*link).next = link;
        (*link).prev = link;
    }
    record
}

fn hash_of(key: u64) -> u32 {
    hashing::djb2(&key.to_ne_bytes())
}

/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
unsafe extern "C" fn key_cmp(_: Table, link: Link, key: *const c_void, size: c_uint) -> bool {
    assert_eq!(size, 8);
    // SAFETY: the table gives a record of this test and the key it was given.
    unsafe { (*record_of(link)).key == key.cast::<u64>().read() }
}

unsafe extern "C" fn key_init(table: Table, link: Link, arg: *mut c_void) {
    // SAFETY: the table gives a record of this test; `arg` is a number of it.
    unsafe {
        assert!((*table).ht_priv.is_null());
        (*record_of(link)).key = arg.cast::<u64>().read();
    }
}

/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
unsafe extern "C" fn rec_hash(_: Table, link: Link) -> u32 {
    // SAFETY: the table gives a record of this test.
    hash_of(unsafe { (*record_of(link)).key })
}

unsafe extern "C" fn rec_addref(_: Table, link: Link) {
    // SAFETY: the table gives a record of this test.
    unsafe { (*record_of(link)).refs.fetch_add(1, Ordering::SeqCst) };
}

unsafe extern "C" fn rec_decref(_: Table, link: Link) -> bool {
    // SAFETY: the table gives a record of this test.
    let before = unsafe { (*record_of(link)).refs.fetch_sub(1, Ordering::SeqCst) };
    assert!(before > 0);
    before == 1
}

/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
unsafe extern "C" fn rec_ndecref(_: Table, link: Link, count: c_int) -> c_int {
    // SAFETY: the table gives a record of this test.
    let refs = unsafe { &(*record_of(link)).refs };
    if refs.load(Ordering::SeqCst) < count {
        return -DER_INVAL;
    }
    (refs.fetch_sub(count, Ordering::SeqCst) == count) as c_int
}

/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
unsafe extern "C" fn rec_free(_: Table, link: Link) {
    // SAFETY: the table gives a record of this test, in no chain. Its memory stays to be looked at.
    unsafe {
        assert!(is_unlinked(link));
        assert_eq!((*record_of(link)).refs.load(Ordering::SeqCst), 0);
        assert_eq!((*record_of(link)).freed.fetch_add(1, Ordering::SeqCst), 0);
    }
}

fn callbacks(with_rec_hash: bool, with_ndecref: bool) -> d_hash_table_ops_t {
    d_hash_table_ops_t {
        hop_key_cmp: Some(key_cmp),
        hop_key_init: Some(key_init),
        hop_key_hash: None,
        hop_rec_hash: with_rec_hash.then_some(rec_hash as _),
        hop_rec_addref: Some(rec_addref),
        hop_rec_decref: Some(rec_decref),
        hop_rec_ndecref: with_ndecref.then_some(rec_ndecref as _),
        hop_rec_free: Some(rec_free),
    }
}

/// What a user does.
#[derive(Clone, Debug)]
enum Act {
    Find(u64),
    Insert(u64, bool),
    InsertAnonymous(u64),
    FindInsert(u64),
    Delete(u64),
    DeleteAt(prop::sample::Index),
    Evict(u64),
    EvictAt(prop::sample::Index),
    Addref(prop::sample::Index),
    Decref(prop::sample::Index),
    Ndecref(prop::sample::Index, c_int),
    Traverse(usize),
}

fn act() -> impl Strategy<Value = Act> {
    let key = 0u64..12;
    let index = any::<prop::sample::Index>;
    prop_oneof![
        4 => key.clone().prop_map(Act::Find),
        4 => (key.clone(), any::<bool>()).prop_map(|(key, only)| Act::Insert(key, only)),
        1 => key.clone().prop_map(Act::InsertAnonymous),
        2 => key.clone().prop_map(Act::FindInsert),
        1 => key.clone().prop_map(Act::Delete),
        1 => index().prop_map(Act::DeleteAt),
        1 => key.prop_map(Act::Evict),
        1 => index().prop_map(Act::EvictAt),
        1 => index().prop_map(Act::Addref),
        4 => index().prop_map(Act::Decref),
        1 => (index(), 1..4i32).prop_map(|(at, count)| Act::Ndecref(at, count)),
        1 => (0usize..10).prop_map(Act::Traverse),
    ]
}

/// The naive table: records in an order that matters among equal keys only.
struct Model {
    feats: u32,
    linked: VecDeque<usize>,
    keys: Vec<u64>,
    /// References, without the table's own.
    refs: Vec<i32>,
    gone: Vec<bool>,
}

impl Model {
    fn find(&mut self, key: u64) -> Option<usize> {
        let at = self.linked.iter().position(|&record| self.keys[record] == key)?;
        Some(self.linked[at])
    }

    fn unlink(&mut self, record: usize) -> bool {
        let before = self.linked.len();
        self.linked.retain(|&each| each != record);
        let was = self.linked.len() < before;
        if was && self.feats & D_HASH_FT_EPHEMERAL == 0 && self.refs[record] == 0 {
            self.gone[record] = true;
        }
        was
    }

    fn drop_refs(&mut self, record: usize, count: i32) {
        self.refs[record] -= count;
        let held = self.linked.contains(&record) && self.feats & D_HASH_FT_EPHEMERAL == 0;
        if self.refs[record] == 0 && !held {
            self.linked.retain(|&each| each != record);
            self.gone[record] = true;
        }
    }
}

/// The real table and the naive one side by side.
struct Pair {
    table: Table,
    model: Model,
    records: Vec<*mut Record>,
}

impl Pair {
    fn link(&self, record: usize) -> Link {
        let record = self.records[record];
        // SAFETY: records stay until the end of the test.
        unsafe { &raw mut (*record).link }
    }

    fn make(&mut self, key: u64) -> usize {
        self.records.push(new_record(key));
        self.model.keys.push(key);
        self.model.refs.push(1);
        self.model.gone.push(false);
        self.records.len() - 1
    }

    /// One of the records that are not freed.
    fn pick(&self, index: &prop::sample::Index, also: impl Fn(usize) -> bool) -> Option<usize> {
        let living = (0..self.records.len()).filter(|&at| !self.model.gone[at] && also(at));
        let living: Vec<usize> = living.collect();
        (!living.is_empty()).then(|| *index.get(&living))
    }

    /// # Safety
    /// The caller gives pointers that are NULL or good for what they are used for.
    unsafe fn step(&mut self, act: &Act) {
        let recent = self.model.feats & D_HASH_FT_LRU != 0;
        let named = |key: &u64| (&raw const *key).cast::<c_void>();
        // SAFETY: table and records are alive.
        unsafe {
            match act {
                Act::Find(key) => {
                    let found = d_hash_rec_find(self.table, named(key), 8);
                    let wanted = self.model.find(*key);
                    assert_eq!(found, wanted.map_or(null_mut(), |at| self.link(at)));
                    if let Some(at) = wanted {
                        self.model.refs[at] += 1;
                    }
                }
                Act::Insert(key, exclusive) => {
                    let at = self.make(*key);
                    let told =
                        d_hash_rec_insert(self.table, named(key), 8, self.link(at), *exclusive);
                    if *exclusive && self.model.find(*key).is_some() {
                        assert_eq!(told, -DER_EXIST);
                    } else {
                        assert_eq!(told, 0);
                        self.model.linked.push_front(at);
                    }
                }
                Act::InsertAnonymous(key) => {
                    let at = self.make(*key);
                    (*self.records[at]).key = u64::MAX;
                    let key = named(key).cast_mut();
                    let told = d_hash_rec_insert_anonym(self.table, self.link(at), key);
                    if (*(*self.table).ht_ops).hop_rec_hash.is_none() {
                        assert_eq!(told, -DER_INVAL);
                        (*self.records[at]).key = self.model.keys[at];
                    } else {
                        assert_eq!(told, 0);
                        self.model.linked.push_front(at);
                    }
                }
                Act::FindInsert(key) => {
                    let new = self.make(*key);
                    let found = d_hash_rec_find_insert(self.table, named(key), 8, self.link(new));
                    match self.model.find(*key) {
                        Some(at) => {
                            assert_eq!(found, self.link(at));
                            self.model.refs[at] += 1;
                        }
                        None => {
                            assert_eq!(found, self.link(new));
                            self.model.linked.push_front(new);
                        }
                    }
                }
                Act::Delete(key) => {
                    let wanted = self.model.find(*key);
                    assert_eq!(d_hash_rec_delete(self.table, named(key), 8), wanted.is_some());
                    if let Some(at) = wanted {
                        self.model.unlink(at);
                    }
                }
                Act::DeleteAt(index) => {
                    let Some(at) = self.pick(index, |_| true) else { return };
                    let told = d_hash_rec_delete_at(self.table, self.link(at));
                    assert_eq!(told, self.model.unlink(at));
                }
                Act::Evict(key) => {
                    let wanted = self.model.find(*key).filter(|_| recent);
                    assert_eq!(d_hash_rec_evict(self.table, named(key), 8), wanted.is_some());
                    if let Some(at) = wanted {
                        self.model.linked.retain(|&each| each != at);
                        self.model.linked.push_back(at);
                    }
                }
                Act::EvictAt(index) => {
                    let Some(at) = self.pick(index, |_| true) else { return };
                    let told = d_hash_rec_evict_at(self.table, self.link(at));
                    let can = recent && (*(*self.table).ht_ops).hop_rec_hash.is_some();
                    assert!(!told || can && self.model.linked.contains(&at));
                    if can && self.model.linked.contains(&at) {
                        self.model.linked.retain(|&each| each != at);
                        self.model.linked.push_back(at);
                    }
                }
                Act::Addref(index) => {
                    let Some(at) = self.pick(index, |at| self.model.refs[at] > 0) else { return };
                    d_hash_rec_addref(self.table, self.link(at));
                    self.model.refs[at] += 1;
                }
                Act::Decref(index) => {
                    let Some(at) = self.pick(index, |at| self.model.refs[at] > 0) else { return };
                    d_hash_rec_decref(self.table, self.link(at));
                    self.model.drop_refs(at, 1);
                }
                Act::Ndecref(index, count) => {
                    let enough = |at: usize| self.model.refs[at] >= *count;
                    let Some(at) = self.pick(index, enough) else { return };
                    assert_eq!(d_hash_rec_ndecref(self.table, *count, self.link(at)), 0);
                    self.model.drop_refs(at, *count);
                }
                Act::Traverse(stop) => {
                    let mut left = *stop as c_int + 1;
                    let told =
                        d_hash_table_traverse(self.table, Some(count_down), (&raw mut left).cast());
                    let stopped = self.model.linked.len() > *stop;
                    assert_eq!(told, if stopped { 77 } else { 0 });
                }
            }
        }
    }

    /// # Safety
    /// The caller gives pointers that are NULL or good for what they are used for.
    unsafe fn check(&self) {
        let own = (self.model.feats & D_HASH_FT_EPHEMERAL == 0) as i32;
        let mut seen: Vec<Link> = Vec::new();
        // SAFETY: table and records are alive.
        unsafe {
            assert_eq!(d_hash_table_traverse(self.table, Some(gather), (&raw mut seen).cast()), 0);
            for (at, &record) in self.records.iter().enumerate() {
                let linked = self.model.linked.contains(&at);
                let refs = self.model.refs[at] + if linked { own } else { 0 };
                assert_eq!((*record).refs.load(Ordering::SeqCst), refs);
                assert_eq!((*record).freed.load(Ordering::SeqCst), self.model.gone[at] as i32);
                assert_eq!(d_hash_rec_unlinked(self.link(at)), !linked);
                assert_eq!(seen.contains(&self.link(at)), linked);
            }
            assert_eq!(seen.len(), self.model.linked.len());
            let first = d_hash_rec_first(self.table);
            assert_eq!(first, seen.first().copied().unwrap_or(null_mut()));
        }
    }
}

/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
unsafe extern "C" fn gather(link: Link, seen: *mut c_void) -> c_int {
    // SAFETY: the argument is the test's vector.
    unsafe { (*seen.cast::<Vec<Link>>()).push(link) };
    0
}

/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
unsafe extern "C" fn count_down(_: Link, left: *mut c_void) -> c_int {
    // SAFETY: the argument is the test's number.
    unsafe {
        *left.cast::<c_int>() -= 1;
        if *left.cast::<c_int>() == 0 { 77 } else { 0 }
    }
}

const LOCKS: [u32; 4] = [D_HASH_FT_NOLOCK, 0, D_HASH_FT_MUTEX, D_HASH_FT_RWLOCK];

fn feats() -> impl Strategy<Value = u32> {
    let flag = |bit: u32| any::<bool>().prop_map(move |on| if on { bit } else { 0 });
    let flags = (
        flag(D_HASH_FT_EPHEMERAL),
        flag(D_HASH_FT_LRU),
        flag(D_HASH_FT_GLOCK),
        flag(D_HASH_FT_NO_KEYINIT_LOCK),
    );
    (prop::sample::select(&LOCKS[..]), flags).prop_map(|(lock, (a, b, c, d))| lock | a | b | c | d)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_table_does_what_a_list_of_pairs_does(
        feats in feats(),
        bits in 0u32..6,
        with_rec_hash in any::<bool>(),
        with_ndecref in any::<bool>(),
        acts in prop::collection::vec(act(), 0..120),
    ) {
        let mut ops = callbacks(with_rec_hash, with_ndecref);
        let mut table = null_mut();
        // SAFETY: callbacks, table and records live to the end of the block.
        unsafe {
            prop_assert_eq!(d_hash_table_create(feats, bits, null_mut(), &mut ops, &mut table), 0);
            let (linked, keys, refs, gone) = Default::default();
            let model = Model { feats, linked, keys, refs, gone };
            let mut pair = Pair { table, model, records: Vec::new() };
            for act in &acts {
                pair.step(act);
                pair.check();
            }
            let busy = !pair.model.linked.is_empty();
            if busy {
                prop_assert_eq!(d_hash_table_destroy(table, false), -DER_BUSY);
                pair.check();
            }
            for at in pair.model.linked.clone() {
                pair.model.unlink(at);
            }
            prop_assert_eq!(d_hash_table_destroy(table, busy), 0);
            for (at, record) in pair.records.into_iter().enumerate() {
                let gone = pair.model.gone[at] as i32;
                prop_assert_eq!((*record).freed.load(Ordering::SeqCst), gone);
                drop(Box::from_raw(record));
            }
        }
    }
}

/// How IOR and ROMIO use it: a table without references of its own, emptied by `first`.
#[test]
fn an_ephemeral_table_is_emptied_by_dropping_references() {
    let mut ops = callbacks(false, false);
    let feats = D_HASH_FT_EPHEMERAL | D_HASH_FT_NOLOCK | D_HASH_FT_LRU;
    let mut table = null_mut();
    // SAFETY: callbacks, table and records live to the end of the block.
    unsafe {
        assert_eq!(d_hash_table_create(feats, 16, null_mut(), &mut ops, &mut table), 0);
        let records: Vec<_> = (0..100).map(new_record).collect();
        for &record in &records {
            let key = (&raw const (*record).key).cast();
            assert_eq!(d_hash_rec_insert(table, key, 8, &raw mut (*record).link, true), 0);
        }
        loop {
            let first = d_hash_rec_first(table);
            if first.is_null() {
                break;
            }
            d_hash_rec_decref(table, first);
        }
        assert_eq!(d_hash_table_destroy(table, false), 0);
        for record in records {
            assert_eq!((*record).freed.load(Ordering::SeqCst), 1);
            drop(Box::from_raw(record));
        }
    }
}

#[test]
fn too_many_references_dropped_is_told_and_keeps_the_table_whole() {
    for with_ndecref in [false, true] {
        let mut ops = callbacks(true, with_ndecref);
        let mut table = null_mut();
        // SAFETY: callbacks, table and records live to the end of the block.
        unsafe {
            let feats = D_HASH_FT_EPHEMERAL;
            assert_eq!(d_hash_table_create(feats, 2, null_mut(), &mut ops, &mut table), 0);
            let record = new_record(3);
            let (key, link) = ((&raw const (*record).key).cast(), &raw mut (*record).link);
            assert_eq!(d_hash_rec_insert(table, key, 8, link, true), 0);
            assert_eq!(d_hash_rec_ndecref(table, 2, link), -DER_INVAL);
            assert_eq!(d_hash_rec_ndecref(table, 0, link), -DER_INVAL);
            if with_ndecref {
                // The user's function refused, and nothing happened.
                assert_eq!(d_hash_rec_ndecref(table, 1, link), 0);
            }
            assert_eq!((*record).freed.load(Ordering::SeqCst), 1);
            assert!(d_hash_rec_first(table).is_null());
            assert_eq!(d_hash_table_destroy(table, false), 0);
            drop(Box::from_raw(record));
        }
    }
}

/// Threads find, insert and drop the same keys; at the end every record is freed or linked.
#[test]
fn locked_tables_hold_under_threads() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    struct Shared(Table);
    // SAFETY: the table has locks.
    unsafe impl Sync for Shared {}
    for (lock, glock) in [0, D_HASH_FT_MUTEX, D_HASH_FT_RWLOCK]
        .into_iter()
        .flat_map(|lock| [(lock, 0), (lock, D_HASH_FT_GLOCK)])
    {
        let mut ops = callbacks(true, false);
        let mut table = null_mut();
        let feats = lock | glock | D_HASH_FT_LRU;
        // SAFETY: callbacks and table live to the end of the block.
        unsafe {
            assert_eq!(d_hash_table_create(feats, 2, null_mut(), &mut ops, &mut table), 0);
        }
        let shared = Shared(table);
        let made: Vec<Vec<usize>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4u64)
                .map(|thread| {
                    let shared = &shared;
                    scope.spawn(move || {
                        let mut made = Vec::new();
                        for round in 0..2000u64 {
                            let key = (round * 7 + thread) % 16;
                            // SAFETY: the table is alive; each record is used while referenced.
                            unsafe {
                                let named = (&raw const key).cast();
                                let record = new_record(key);
                                MADE.fetch_add(1, Ordering::SeqCst);
                                made.push(record as usize);
                                let link = &raw mut (*record).link;
                                let found = d_hash_rec_find_insert(shared.0, named, 8, link);
                                if found != link {
                                    d_hash_rec_decref(shared.0, found);
                                }
                                d_hash_rec_decref(shared.0, link);
                                if round % 3 == 0 {
                                    d_hash_rec_delete(shared.0, named, 8);
                                }
                            }
                        }
                        made
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        // SAFETY: the threads are gone.
        unsafe {
            assert_eq!(d_hash_table_destroy(table, true), 0);
            for record in made.into_iter().flatten() {
                let record = record as *mut Record;
                assert_eq!((*record).freed.load(Ordering::SeqCst), 1);
                assert_eq!((*record).refs.load(Ordering::SeqCst), 0);
                drop(Box::from_raw(record));
            }
        }
    }
}

#[test]
fn nonsense_is_told_as_such() {
    let mut ops = callbacks(true, false);
    let mut table = null_mut();
    let none: Table = null_mut();
    let key = 5u64;
    let named = (&raw const key).cast::<c_void>();
    // SAFETY: NULL is what is tested; the table lives to the end of the block.
    unsafe {
        assert_eq!(d_hash_table_create(0, 29, null_mut(), &mut ops, &mut table), -DER_INVAL);
        assert!(table.is_null());
        assert_eq!(d_hash_table_create(0, 2, null_mut(), null_mut(), &mut table), -DER_INVAL);
        assert_eq!(d_hash_table_create(0, 2, null_mut(), &mut ops, null_mut()), -DER_INVAL);
        let mut deaf = callbacks(true, false);
        deaf.hop_key_cmp = None;
        assert_eq!(d_hash_table_create(0, 2, null_mut(), &mut deaf, &mut table), -DER_INVAL);

        let mut place = std::mem::MaybeUninit::<d_hash_table>::zeroed();
        let place = place.as_mut_ptr();
        assert_eq!(d_hash_table_traverse(place, Some(count_down), null_mut()), -DER_UNINIT);
        assert_eq!(d_hash_table_destroy_inplace(place, true), -DER_UNINIT);
        assert_eq!(d_hash_table_create_inplace(0, 2, null_mut(), &mut ops, place), 0);
        assert_eq!(d_hash_table_traverse(place, None, null_mut()), -DER_INVAL);
        assert!(d_hash_rec_find(place, named, 0).is_null());
        assert!(d_hash_rec_find(place, std::ptr::null(), 8).is_null());
        assert_eq!(d_hash_rec_insert(place, named, 8, null_mut(), true), -DER_INVAL);
        d_hash_rec_decref(place, null_mut());
        assert_eq!(d_hash_table_destroy_inplace(place, false), 0);
        assert!((*place).ht_buckets.is_null());

        assert!(d_hash_rec_find(none, named, 8).is_null());
        assert!(!d_hash_rec_delete(none, named, 8));
        assert!(!d_hash_rec_delete_at(none, null_mut()));
        assert!(!d_hash_rec_evict(none, named, 8));
        assert!(d_hash_rec_first(none).is_null());
        assert_eq!(d_hash_table_destroy(none, true), -DER_INVAL);
        assert!(d_hash_rec_unlinked(null_mut()));
        d_hash_rec_addref(none, null_mut());
        d_hash_table_debug(none);
    }
}
