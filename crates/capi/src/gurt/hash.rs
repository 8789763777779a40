//! Hash table with chains whose links are inside the user's records.
//!
//! The table owns no record: the user embeds a `d_list_t` in each, and tells with callbacks how to
//! compare, hash, count references and free. Struct and semantics are DAOS's `gurt/hash.h`.
//!
//! Invariants:
//! - A record is linked in at most one chain; an unlinked record's link points to itself.
//! - Links of a chain change only under its lock. Callbacks that compare, hash, count and (for a
//!   record without key) name run under the lock; freeing runs after it, on an unlinked record.
//! - With `D_HASH_FT_EPHEMERAL` the table holds no reference, and the last one unlinks the record;
//!   without it, being linked counts as one reference.
//!
//! NULL for a table, key or link gives the error of the function, not a crash.

use crate::ctypes::{d_hash_bucket, d_hash_table, d_hash_table_ops_t, d_list_t};
use crate::errno::{DER_BUSY, DER_EXIST, DER_INVAL, DER_NOMEM, DER_UNINIT};
use crate::gurt::hash_lock::{self, Access};
use crate::gurt::{alloc, hashing, log};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

/// No lock: the user sees to it.
pub(crate) const D_HASH_FT_NOLOCK: u32 = 1;
/// Locks are mutexes (default: spin locks).
pub(crate) const D_HASH_FT_MUTEX: u32 = 1 << 1;
/// Locks are reader-writer locks; reference counts must be atomic then.
pub(crate) const D_HASH_FT_RWLOCK: u32 = 1 << 2;
/// The table holds no reference; the last one unlinks and frees.
pub(crate) const D_HASH_FT_EPHEMERAL: u32 = 1 << 3;
/// A record that is found moves to the front of its chain.
pub(crate) const D_HASH_FT_LRU: u32 = 1 << 4;
/// `hop_key_init` runs without locks.
pub(crate) const D_HASH_FT_NO_KEYINIT_LOCK: u32 = 1 << 5;
/// One lock for the table.
pub(crate) const D_HASH_FT_GLOCK: u32 = 1 << 15;

/// 2^28 chains are 4 GiB; more is a mistake.
const BITS_MAX: u32 = 28;

type Table = *mut d_hash_table;
type Link = *mut d_list_t;
type Visit = Option<unsafe extern "C" fn(Link, *mut c_void) -> c_int>;

// ---- links ----

/// # Safety
/// The caller gives a link or a chain's head.
unsafe fn is_unlinked(link: Link) -> bool {
    // SAFETY: the caller gives a link or a chain's head.
    unsafe { (*link).next == link }
}

unsafe fn link_between(link: Link, prev: Link, next: Link) {
    // SAFETY: the caller gives two neighbours of one chain and a link that is in none.
    unsafe {
        (*link).prev = prev;
        (*link).next = next;
        (*prev).next = link;
        (*next).prev = link;
    }
}

/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
unsafe fn link_front(link: Link, head: Link) {
    // SAFETY: as for `link_between`.
    unsafe { link_between(link, head, (*head).next) }
}

unsafe fn link_back(link: Link, head: Link) {
    // SAFETY: as for `link_between`.
    unsafe { link_between(link, (*head).prev, head) }
}

unsafe fn unlink(link: Link) {
    // SAFETY: the caller gives a link; its neighbours are links too.
    unsafe {
        let (prev, next) = ((*link).prev, (*link).next);
        (*prev).next = next;
        (*next).prev = prev;
        (*link).prev = link;
        (*link).next = link;
    }
}

// ---- callbacks ----

/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
unsafe fn ops(table: Table) -> d_hash_table_ops_t {
    // SAFETY: a table has its callbacks from the start to the end.
    unsafe { *(*table).ht_ops }
}

unsafe fn has(table: Table, feature: u32) -> bool {
    // SAFETY: the caller gives a table.
    unsafe { (*table).ht_feats & feature != 0 }
}

unsafe fn chain_of_key(table: Table, key: *const c_void, size: c_uint) -> u32 {
    // SAFETY: the caller gives a table and a key of `size` bytes.
    unsafe {
        let hash = match ops(table).hop_key_hash {
            Some(hash) => hash(table, key, size),
            None => hashing::djb2(std::slice::from_raw_parts(key.cast(), size as usize)),
        };
        hash & ((1 << (*table).ht_bits) - 1)
    }
}

/// The chain of a linked record. Without `hop_rec_hash` there is one lock or none, and any chain
/// stands for it.
///
/// # Safety
/// The caller gives a table and a record's link.
unsafe fn chain_of_record(table: Table, link: Link) -> u32 {
    // SAFETY: the caller gives a table and a record's link.
    unsafe {
        let hash = ops(table).hop_rec_hash.map_or(0, |hash| hash(table, link));
        hash & ((1 << (*table).ht_bits) - 1)
    }
}

/// # Safety
/// The caller gives a chain of the table.
unsafe fn head(table: Table, chain: u32) -> Link {
    // SAFETY: the caller gives a chain of the table.
    unsafe { &raw mut (*(*table).ht_buckets.add(chain as usize)).hb_head }
}

unsafe fn addref(table: Table, link: Link) {
    // SAFETY: the caller gives a table and a record's link.
    unsafe {
        if let Some(addref) = ops(table).hop_rec_addref {
            addref(table, link);
        }
    }
}

/// True when that was the last reference.
///
/// # Safety
/// The caller gives a table and a record's link.
unsafe fn decref(table: Table, link: Link) -> bool {
    // SAFETY: the caller gives a table and a record's link.
    unsafe { ops(table).hop_rec_decref.is_some_and(|decref| decref(table, link)) }
}

unsafe fn free_record(table: Table, link: Link) {
    // SAFETY: the caller gives a record that has no reference and is in no chain.
    unsafe {
        if let Some(free) = ops(table).hop_rec_free {
            free(table, link);
        }
    }
}

// ---- chains, under their lock ----

/// The first record of a chain with this key.
///
/// # Safety
/// The caller holds the chain's lock.
unsafe fn search(table: Table, chain: u32, key: *const c_void, size: c_uint) -> Option<Link> {
    // SAFETY: the caller holds the chain's lock.
    unsafe {
        let compare = ops(table).hop_key_cmp?;
        let head = head(table, chain);
        let mut at = (*head).next;
        while at != head {
            if compare(table, at, key, size) {
                return Some(at);
            }
            at = (*at).next;
        }
        None
    }
}

/// Moves a record to the front of its chain, when the table is one of recent use.
///
/// # Safety
/// The caller holds the chain's lock for writing.
unsafe fn touch(table: Table, chain: u32, link: Link) {
    // SAFETY: the caller holds the chain's lock for writing.
    unsafe {
        let head = head(table, chain);
        if has(table, D_HASH_FT_LRU) && (*head).next != link {
            unlink(link);
            link_front(link, head);
        }
    }
}

/// Moves a record to the back of its chain; false when it is there.
///
/// # Safety
/// The caller holds the chain's lock for writing.
unsafe fn sink(table: Table, chain: u32, link: Link) -> bool {
    // SAFETY: the caller holds the chain's lock for writing.
    unsafe {
        let head = head(table, chain);
        if (*head).prev == link {
            return false;
        }
        unlink(link);
        link_back(link, head);
        true
    }
}

/// # Safety
/// The caller holds the chain's lock for writing.
unsafe fn insert(table: Table, chain: u32, link: Link) {
    // SAFETY: the caller holds the chain's lock for writing.
    unsafe {
        if !has(table, D_HASH_FT_EPHEMERAL) {
            addref(table, link);
        }
        link_front(link, head(table, chain));
    }
}

/// Unlinks a record; true when nobody else has a reference.
///
/// # Safety
/// The caller holds the chain's lock for writing.
unsafe fn remove(table: Table, link: Link) -> bool {
    // SAFETY: the caller holds the chain's lock for writing.
    unsafe {
        unlink(link);
        !has(table, D_HASH_FT_EPHEMERAL) && decref(table, link)
    }
}

/// After references were dropped: unlinks a record that nobody has any more.
///
/// # Safety
/// The caller holds the chain's lock for writing when the table is ephemeral.
unsafe fn retire(table: Table, link: Link) {
    // SAFETY: the caller holds the chain's lock for writing when the table is ephemeral.
    unsafe {
        if is_unlinked(link) {
            return;
        }
        if !has(table, D_HASH_FT_EPHEMERAL) {
            log::line(log::ERR, "hash table: the last reference to a linked record was dropped");
        }
        unlink(link);
    }
}

/// # Safety
/// The caller gives NULL or a table.
unsafe fn is_table(table: Table) -> bool {
    // SAFETY: the caller gives NULL or a table.
    unsafe { !table.is_null() && !(*table).ht_buckets.is_null() && !(*table).ht_ops.is_null() }
}

unsafe fn is_usable(table: Table, key: *const c_void, size: c_uint) -> bool {
    // SAFETY: the caller gives NULL or a table.
    unsafe { is_table(table) && !key.is_null() && size != 0 }
}

// ---- tables ----

/// Makes a table in memory of the caller.
///
/// # Safety
/// The caller gives NULL, or callbacks that stay and memory for a table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hash_table_create_inplace(
    feats: u32,
    bits: u32,
    private: *mut c_void,
    hops: *mut d_hash_table_ops_t,
    htable: Table,
) -> c_int {
    // SAFETY: the caller gives NULL, or callbacks that stay and memory for a table.
    unsafe {
        if htable.is_null() || bits > BITS_MAX || hops.is_null() || (*hops).hop_key_cmp.is_none() {
            return -DER_INVAL;
        }
        htable.write_bytes(0, 1);
        (*htable).ht_feats = feats;
        if (*hops).hop_rec_hash.is_none() && feats & D_HASH_FT_NOLOCK == 0 {
            (*htable).ht_feats |= D_HASH_FT_GLOCK;
        }
        (*htable).ht_bits = bits;
        (*htable).ht_priv = private;
        (*htable).ht_ops = hops;
        let chains: *mut d_hash_bucket = alloc::array(1 << bits);
        if chains.is_null() {
            return -DER_NOMEM;
        }
        if !hash_lock::make(htable) {
            alloc::free(chains);
            return -DER_NOMEM;
        }
        (*htable).ht_buckets = chains;
        for chain in 0..1u32 << bits {
            let head = head(htable, chain);
            (*head).next = head;
            (*head).prev = head;
        }
        0
    }
}

/// Makes a table of 2^bits chains.
///
/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hash_table_create(
    feats: u32,
    bits: u32,
    private: *mut c_void,
    hops: *mut d_hash_table_ops_t,
    htable_pp: *mut Table,
) -> c_int {
    if htable_pp.is_null() {
        return -DER_INVAL;
    }
    // SAFETY: not NULL; the caller wants the table there.
    unsafe { *htable_pp = null_mut() };
    let table: Table = alloc::array(1);
    if table.is_null() {
        return -DER_NOMEM;
    }
    // SAFETY: the memory is new and has room for a table.
    unsafe {
        let status = d_hash_table_create_inplace(feats, bits, private, hops, table);
        match status {
            0 => *htable_pp = table,
            _ => alloc::free(table),
        }
        status
    }
}

/// Calls `cb` for each record until it gives something else than 0, and returns that.
///
/// # Safety
/// The caller gives NULL or a table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hash_table_traverse(
    htable: Table,
    cb: Visit,
    arg: *mut c_void,
) -> c_int {
    // SAFETY: the caller gives NULL or a table; the callback removes at most the record it sees.
    unsafe {
        if !is_table(htable) {
            return if htable.is_null() { -DER_INVAL } else { -DER_UNINIT };
        }
        let Some(visit) = cb else { return -DER_INVAL };
        for chain in 0..1u32 << (*htable).ht_bits {
            hash_lock::lock(htable, chain, Access::Read);
            let head = head(htable, chain);
            let mut at = (*head).next;
            let mut told = 0;
            while at != head && told == 0 {
                let next = (*at).next;
                told = visit(at, arg);
                at = next;
            }
            hash_lock::unlock(htable, chain);
            if told != 0 {
                return told;
            }
        }
        0
    }
}

/// Ends a table in memory of the caller. Records that are still linked: `-DER_BUSY`, or with
/// `force` they are unlinked as by `d_hash_rec_delete_at`.
///
/// # Safety
/// The caller gives NULL or a table that nobody else uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hash_table_destroy_inplace(htable: Table, force: bool) -> c_int {
    // SAFETY: the caller gives NULL or a table that nobody else uses any more.
    unsafe {
        if !is_table(htable) {
            return if htable.is_null() { -DER_INVAL } else { -DER_UNINIT };
        }
        for chain in 0..1u32 << (*htable).ht_bits {
            let head = head(htable, chain);
            while !is_unlinked(head) {
                if !force {
                    return -DER_BUSY;
                }
                d_hash_rec_delete_at(htable, (*head).next);
            }
        }
        hash_lock::unmake(htable);
        alloc::free((*htable).ht_buckets);
        htable.write_bytes(0, 1);
        0
    }
}

/// Ends a table that `d_hash_table_create` made.
///
/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hash_table_destroy(htable: Table, force: bool) -> c_int {
    // SAFETY: as for the function below; the memory came from `d_hash_table_create`.
    unsafe {
        let status = d_hash_table_destroy_inplace(htable, force);
        if status == 0 {
            alloc::free(htable);
        }
        status
    }
}

/// Statistics for developers; there are none.
///
/// # Safety
/// The caller gives NULL or a table, and a key of `ksize` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hash_table_debug(_htable: Table) {}

// ---- records ----

/// The record with a key, with one more reference; NULL when there is none.
///
/// # Safety
/// The caller gives NULL or a table, and a key of `ksize` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hash_rec_find(htable: Table, key: *const c_void, ksize: c_uint) -> Link {
    // SAFETY: the caller gives NULL or a table, and a key of `ksize` bytes.
    unsafe {
        if !is_usable(htable, key, ksize) {
            return null_mut();
        }
        let chain = chain_of_key(htable, key, ksize);
        let moves = has(htable, D_HASH_FT_LRU);
        hash_lock::lock(htable, chain, if moves { Access::Write } else { Access::Read });
        let found = search(htable, chain, key, ksize);
        if let Some(link) = found {
            touch(htable, chain, link);
            addref(htable, link);
        }
        hash_lock::unlock(htable, chain);
        found.unwrap_or(null_mut())
    }
}

/// The record with a key, with one more reference; if there is none, `link` is inserted and
/// returned.
///
/// # Safety
/// The caller gives NULL or a table, a key of `ksize` bytes, an unlinked record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hash_rec_find_insert(
    htable: Table,
    key: *const c_void,
    ksize: c_uint,
    link: Link,
) -> Link {
    // SAFETY: the caller gives NULL or a table, a key of `ksize` bytes, an unlinked record.
    unsafe {
        if !is_usable(htable, key, ksize) || link.is_null() {
            return null_mut();
        }
        let chain = chain_of_key(htable, key, ksize);
        hash_lock::lock(htable, chain, Access::Write);
        let found = search(htable, chain, key, ksize);
        match found {
            Some(link) => {
                touch(htable, chain, link);
                addref(htable, link);
            }
            None => insert(htable, chain, link),
        }
        hash_lock::unlock(htable, chain);
        found.unwrap_or(link)
    }
}

/// Inserts a record; with `exclusive`, `-DER_EXIST` when the key is there.
///
/// # Safety
/// The caller gives NULL or a table, a key of `ksize` bytes, an unlinked record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hash_rec_insert(
    htable: Table,
    key: *const c_void,
    ksize: c_uint,
    link: Link,
    exclusive: bool,
) -> c_int {
    // SAFETY: the caller gives NULL or a table, a key of `ksize` bytes, an unlinked record.
    unsafe {
        if !is_usable(htable, key, ksize) || link.is_null() {
            return -DER_INVAL;
        }
        let chain = chain_of_key(htable, key, ksize);
        hash_lock::lock(htable, chain, Access::Write);
        let taken = exclusive && search(htable, chain, key, ksize).is_some();
        if !taken {
            insert(htable, chain, link);
        }
        hash_lock::unlock(htable, chain);
        if taken { -DER_EXIST } else { 0 }
    }
}

/// Inserts a record whose key `hop_key_init` makes. All chains are locked meanwhile, unless
/// `D_HASH_FT_NO_KEYINIT_LOCK` says otherwise.
///
/// # Safety
/// The caller gives NULL or a table and an unlinked record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hash_rec_insert_anonym(
    htable: Table,
    link: Link,
    arg: *mut c_void,
) -> c_int {
    // SAFETY: the caller gives NULL or a table and an unlinked record.
    unsafe {
        if !is_table(htable) || link.is_null() {
            return -DER_INVAL;
        }
        // Without `hop_rec_hash` nobody knows the chain of a record that has no key yet.
        let (Some(name), Some(_)) = (ops(htable).hop_key_init, ops(htable).hop_rec_hash) else {
            return -DER_INVAL;
        };
        if has(htable, D_HASH_FT_NO_KEYINIT_LOCK) {
            name(htable, link, arg);
            let chain = chain_of_record(htable, link);
            hash_lock::lock(htable, chain, Access::Write);
            insert(htable, chain, link);
            hash_lock::unlock(htable, chain);
            return 0;
        }
        let locks = if has(htable, D_HASH_FT_GLOCK) { 1 } else { 1u32 << (*htable).ht_bits };
        (0..locks).for_each(|chain| hash_lock::lock(htable, chain, Access::Write));
        name(htable, link, arg);
        insert(htable, chain_of_record(htable, link), link);
        (0..locks).for_each(|chain| hash_lock::unlock(htable, chain));
        0
    }
}

/// Unlinks the record with a key; false when there is none.
///
/// # Safety
/// The caller gives NULL or a table, and a key of `ksize` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hash_rec_delete(
    htable: Table,
    key: *const c_void,
    ksize: c_uint,
) -> bool {
    // SAFETY: the caller gives NULL or a table, and a key of `ksize` bytes.
    unsafe {
        if !is_usable(htable, key, ksize) {
            return false;
        }
        let chain = chain_of_key(htable, key, ksize);
        hash_lock::lock(htable, chain, Access::Write);
        let found = search(htable, chain, key, ksize);
        let last = found.is_some_and(|link| remove(htable, link));
        hash_lock::unlock(htable, chain);
        if let (Some(link), true) = (found, last) {
            free_record(htable, link);
        }
        found.is_some()
    }
}

/// Unlinks a record; false when it is not linked.
///
/// # Safety
/// The caller gives NULL or a table, and a record that stays meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hash_rec_delete_at(htable: Table, link: Link) -> bool {
    // SAFETY: the caller gives NULL or a table, and a record that stays meanwhile.
    unsafe {
        if !is_table(htable) || link.is_null() {
            return false;
        }
        let chain = chain_of_record(htable, link);
        hash_lock::lock(htable, chain, Access::Write);
        let linked = !is_unlinked(link);
        let last = linked && remove(htable, link);
        hash_lock::unlock(htable, chain);
        if last {
            free_record(htable, link);
        }
        linked
    }
}

/// Moves the record with a key to the back of its chain; false when there is none, or the table
/// is not one of recent use.
///
/// # Safety
/// The caller gives NULL or a table, and a key of `ksize` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hash_rec_evict(
    htable: Table,
    key: *const c_void,
    ksize: c_uint,
) -> bool {
    // SAFETY: the caller gives NULL or a table, and a key of `ksize` bytes.
    unsafe {
        if !is_usable(htable, key, ksize) || !has(htable, D_HASH_FT_LRU) {
            return false;
        }
        let chain = chain_of_key(htable, key, ksize);
        hash_lock::lock(htable, chain, Access::Write);
        let found = search(htable, chain, key, ksize);
        if let Some(link) = found {
            sink(htable, chain, link);
        }
        hash_lock::unlock(htable, chain);
        found.is_some()
    }
}

/// Moves a record to the back of its chain; false when it is there or not linked, or the table is
/// not one of recent use. Needs `hop_rec_hash`.
///
/// # Safety
/// The caller gives NULL or a table, and a record that stays meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hash_rec_evict_at(htable: Table, link: Link) -> bool {
    // SAFETY: the caller gives NULL or a table, and a record that stays meanwhile.
    unsafe {
        if !is_table(htable) || link.is_null() || !has(htable, D_HASH_FT_LRU) {
            return false;
        }
        if ops(htable).hop_rec_hash.is_none() {
            return false;
        }
        let chain = chain_of_record(htable, link);
        hash_lock::lock(htable, chain, Access::Write);
        let moved = !is_unlinked(link) && sink(htable, chain, link);
        hash_lock::unlock(htable, chain);
        moved
    }
}

/// One more reference.
///
/// # Safety
/// The caller gives NULL or a table, and a record of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hash_rec_addref(htable: Table, link: Link) {
    // SAFETY: the caller gives NULL or a table, and a record of it.
    unsafe {
        if !is_table(htable) || link.is_null() {
            return;
        }
        let chain = chain_of_record(htable, link);
        hash_lock::lock(htable, chain, Access::Read);
        addref(htable, link);
        hash_lock::unlock(htable, chain);
    }
}

/// One reference less; the last one frees the record.
///
/// # Safety
/// The caller gives NULL or a table, and a record it has a reference to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hash_rec_decref(htable: Table, link: Link) {
    // SAFETY: the caller gives NULL or a table, and a record it has a reference to.
    unsafe {
        d_hash_rec_ndecref(htable, 1, link);
    }
}

/// `count` references less; the last one frees the record. `-DER_INVAL` when there were fewer.
///
/// # Safety
/// The caller gives NULL or a table, and a record it has references to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hash_rec_ndecref(htable: Table, count: c_int, link: Link) -> c_int {
    // SAFETY: the caller gives NULL or a table, and a record it has references to.
    unsafe {
        if !is_table(htable) || link.is_null() || count <= 0 {
            return -DER_INVAL;
        }
        let chain = chain_of_record(htable, link);
        hash_lock::lock(htable, chain, Access::Write);
        let (mut status, mut last) = (0, false);
        match ops(htable).hop_rec_ndecref {
            Some(drop_many) if count > 1 || ops(htable).hop_rec_decref.is_none() => {
                let told = drop_many(htable, link, count);
                last = told >= 1;
                status = told.min(0);
            }
            _ => {
                let mut left = count;
                while left > 0 && !last {
                    last = decref(htable, link);
                    left -= 1;
                }
                if left > 0 {
                    status = -DER_INVAL;
                }
            }
        }
        if last {
            retire(htable, link);
        }
        hash_lock::unlock(htable, chain);
        if last {
            free_record(htable, link);
        }
        status
    }
}

/// True for a record that is in no table, and for NULL.
///
/// # Safety
/// The caller gives NULL or a link.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hash_rec_unlinked(link: Link) -> bool {
    // SAFETY: the caller gives NULL or a link.
    link.is_null() || unsafe { is_unlinked(link) }
}

/// Any record, without a reference; NULL when there is none. For emptying a table.
///
/// # Safety
/// The caller gives NULL or a table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hash_rec_first(htable: Table) -> Link {
    /// # Safety
    /// The caller gives pointers that are NULL or good for what they are used for.
    unsafe extern "C" fn keep(link: Link, place: *mut c_void) -> c_int {
        // SAFETY: the place is the variable below.
        unsafe { place.cast::<Link>().write(link) };
        1
    }
    let mut first: Link = null_mut();
    // SAFETY: the caller gives NULL or a table.
    unsafe { d_hash_table_traverse(htable, Some(keep), (&raw mut first).cast()) };
    first
}

#[cfg(test)]
#[path = "hash_tests.rs"]
mod tests;
