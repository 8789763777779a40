//! Handle tables: records of the user's under numbers that the table makes, or under their address.
//!
//! A number has the record's type in its lowest bits and is never given twice. Types are odd, so that
//! the lowest bit tells a number from an address ([`TYPE_POINTER`]); a table takes addresses once it
//! was told to. Interface: DAOS's `gurt/hash.h`.
//!
//! Who makes a record has the first reference; being in the table is one more.

use crate::ctypes::{d_hash_table, d_hash_table_ops_t, d_list_t};
use crate::errno::{DER_ALREADY, DER_INVAL};
use crate::gurt::hash::{
    D_HASH_FT_NO_KEYINIT_LOCK, d_hash_rec_addref, d_hash_rec_decref, d_hash_rec_delete_at,
    d_hash_rec_find, d_hash_rec_first, d_hash_rec_insert_anonym, d_hash_table_create_inplace,
    d_hash_table_destroy_inplace, d_hash_table_traverse,
};
use crate::gurt::log;
use std::ffi::{c_int, c_uint, c_void};
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Bits of a number that are its type.
const TYPE_BITS: u32 = 4;
/// The type of records that are known by their address.
const TYPE_POINTER: c_int = 0;

/// What a record's user gives.
#[repr(C)]
pub struct d_hlink_ops {
    /// Called when nobody has a reference any more; may be NULL.
    pub hop_free: Option<unsafe extern "C" fn(*mut d_hlink)>,
}

/// A link with a count of references.
#[repr(C)]
pub struct d_rlink {
    /// Where in a chain it is.
    pub rl_link: d_list_t,
    /// References.
    pub rl_ref: u32,
    /// 1 once it was made.
    pub rl_initialized: u32,
}

/// What a record has inside.
#[repr(C)]
pub struct d_hlink {
    /// Its link; at the start.
    pub hl_link: d_rlink,
    /// Its number or address; 0 before it was in a table.
    pub hl_key: u64,
    /// What its user gave.
    pub hl_ops: *mut d_hlink_ops,
}

/// A table. C knows the pointer only.
#[repr(C)]
pub struct d_hhash {
    /// At the start: callbacks find the rest from it.
    table: d_hash_table,
    next: AtomicU64,
    takes_pointers: AtomicBool,
}

type Table = *mut d_hash_table;
type Link = *mut d_list_t;
type Record = *mut d_hlink;
type Handles = *mut d_hhash;

fn record_of(link: Link) -> Record {
    link.cast()
}

/// # Safety
/// `record` is a record.
unsafe fn link_of(record: Record) -> Link {
    // SAFETY: the caller's promise.
    unsafe { &raw mut (*record).hl_link.rl_link }
}

/// # Safety
/// `record` is a record.
unsafe fn references<'a>(record: Record) -> &'a AtomicU32 {
    // SAFETY: the caller's promise; the count is only used through this.
    unsafe { AtomicU32::from_ptr(&raw mut (*record).hl_link.rl_ref) }
}

/// # Safety
/// A record of the table, and a key of this file.
unsafe extern "C" fn key_cmp(_: Table, link: Link, key: *const c_void, size: c_uint) -> bool {
    // SAFETY: called with a record of the table and a key of this file.
    unsafe {
        size == size_of::<u64>() as c_uint
            && (*record_of(link)).hl_key == key.cast::<u64>().read_unaligned()
    }
}

/// # Safety
/// A record, and the argument of `d_hhash_link_insert`.
unsafe extern "C" fn key_init(table: Table, link: Link, kind: *mut c_void) {
    // SAFETY: the table is at the start of ours; the argument is `d_hhash_link_insert`'s.
    unsafe {
        let number = (*table.cast::<d_hhash>()).next.fetch_add(1, Ordering::Relaxed);
        let kind = *kind.cast::<c_int>() as u64;
        (*record_of(link)).hl_key = number << TYPE_BITS | kind;
    }
}

fn hash(key: u64) -> u32 {
    // Numbers follow each other: the type must not take the low bits.
    ((key >> TYPE_BITS).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// # Safety
/// A key of this file.
unsafe extern "C" fn key_hash(_: Table, key: *const c_void, _: c_uint) -> u32 {
    // SAFETY: a key of this file.
    hash(unsafe { key.cast::<u64>().read_unaligned() })
}

/// # Safety
/// A record of the table.
unsafe extern "C" fn rec_hash(_: Table, link: Link) -> u32 {
    // SAFETY: a record of the table.
    hash(unsafe { (*record_of(link)).hl_key })
}

/// # Safety
/// A record of the table.
unsafe extern "C" fn rec_addref(_: Table, link: Link) {
    // SAFETY: a record of the table.
    unsafe { references(record_of(link)) }.fetch_add(1, Ordering::Relaxed);
}

/// # Safety
/// A record of the table.
unsafe extern "C" fn rec_decref(_: Table, link: Link) -> bool {
    // SAFETY: a record of the table.
    let count = unsafe { references(record_of(link)) };
    let fewer = count.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |n| n.checked_sub(1));
    match fewer {
        Ok(before) => before == 1,
        Err(_) => {
            log::line(log::ERR, "handle table: a reference was dropped that nobody had");
            false
        }
    }
}

/// # Safety
/// A record without references.
unsafe extern "C" fn rec_free(_: Table, link: Link) {
    let record = record_of(link);
    // SAFETY: a record without references, which is the user's to free.
    unsafe {
        if let Some(free) = (*record).hl_ops.as_ref().and_then(|ops| ops.hop_free) {
            free(record);
        }
    }
}

static OPS: d_hash_table_ops_t = d_hash_table_ops_t {
    hop_key_cmp: Some(key_cmp),
    hop_key_init: Some(key_init),
    hop_key_hash: Some(key_hash),
    hop_rec_hash: Some(rec_hash),
    hop_rec_addref: Some(rec_addref),
    hop_rec_decref: Some(rec_decref),
    hop_rec_ndecref: None,
    hop_rec_free: Some(rec_free),
};

/// Makes a table of 2^`bits` chains, with features of a hash table.
///
/// # Safety
/// `hhash` is NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hhash_create(feats: u32, bits: u32, hhash: *mut Handles) -> c_int {
    if hhash.is_null() {
        return -DER_INVAL;
    }
    // SAFETY: plain numbers and pointers, filled in below.
    let table = unsafe { std::mem::zeroed() };
    let made = d_hhash { table, next: AtomicU64::new(1), takes_pointers: AtomicBool::new(false) };
    let made = Box::into_raw(Box::new(made));
    let ops = (&raw const OPS).cast_mut();
    let feats = feats | D_HASH_FT_NO_KEYINIT_LOCK;
    // SAFETY: just made; the callbacks are only read. The caller's promise.
    unsafe {
        let rc = d_hash_table_create_inplace(feats, bits, null_mut(), ops, &raw mut (*made).table);
        if rc != 0 {
            drop(Box::from_raw(made));
            *hhash = null_mut();
            return rc;
        }
        *hhash = made;
    }
    0
}

/// Frees a table; records in it lose the table's reference.
///
/// # Safety
/// `hhash` is NULL or a table that nobody uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hhash_destroy(hhash: Handles) {
    // SAFETY: the caller's promise.
    unsafe {
        if !hhash.is_null() {
            d_hash_table_destroy_inplace(&raw mut (*hhash).table, true);
            drop(Box::from_raw(hhash));
        }
    }
}

/// Makes a record ready for a table; the caller has a reference.
///
/// # Safety
/// `hlink` is NULL or good for writing; `hl_ops` is NULL or stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hhash_hlink_init(hlink: Record, hl_ops: *mut d_hlink_ops) {
    // SAFETY: the caller's promise.
    unsafe {
        if hlink.is_null() {
            return;
        }
        let link = link_of(hlink);
        let rl_link = d_list_t { next: link, prev: link };
        let hl_link = d_rlink { rl_link, rl_ref: 1, rl_initialized: 1 };
        hlink.write(d_hlink { hl_link, hl_key: 0, hl_ops });
    }
}

/// Puts a record into a table under a new number of a type: odd, below 16; or [`TYPE_POINTER`], in a
/// table that takes addresses. Another type is logged, and nothing is done.
///
/// # Safety
/// `hhash` is NULL or a table, `hlink` NULL or a record that is in none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hhash_link_insert(hhash: Handles, hlink: Record, type_: c_int) {
    // SAFETY: the caller's promise.
    unsafe {
        if hhash.is_null() || hlink.is_null() {
            return;
        }
        if type_ == TYPE_POINTER && d_hhash_is_ptrtype(hhash) {
            (*hlink).hl_key = hlink.addr() as u64;
            rec_addref(&raw mut (*hhash).table, link_of(hlink));
        } else if type_ & 1 == 1 && (0..1 << TYPE_BITS).contains(&type_) {
            let mut kind = type_;
            let link = link_of(hlink);
            d_hash_rec_insert_anonym(&raw mut (*hhash).table, link, (&raw mut kind).cast());
        } else {
            log::line(log::ERR, "handle table: no record can have this type in it");
        }
    }
}

/// The record of a number or address, with one more reference; NULL when there is none.
///
/// # Safety
/// `hhash` is NULL or a table; an address is that of a record, or of one that was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hhash_link_lookup(hhash: Handles, key: u64) -> Record {
    // SAFETY: the caller's promise.
    unsafe {
        if hhash.is_null() || key == 0 {
            return null_mut();
        }
        if d_hhash_key_isptr(key) {
            let record = key as usize as Record;
            let known = d_hhash_is_ptrtype(hhash) && record.is_aligned() && (*record).hl_key == key;
            if !known {
                return null_mut();
            }
            rec_addref(&raw mut (*hhash).table, link_of(record));
            return record;
        }
        let size = size_of::<u64>() as c_uint;
        record_of(d_hash_rec_find(&raw mut (*hhash).table, (&raw const key).cast(), size))
    }
}

/// One more reference.
///
/// # Safety
/// `hhash` is NULL or a table, `hlink` NULL or a record with a reference.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hhash_link_getref(hhash: Handles, hlink: Record) {
    // SAFETY: the caller's promise.
    unsafe {
        if !hhash.is_null() && !hlink.is_null() {
            d_hash_rec_addref(&raw mut (*hhash).table, link_of(hlink));
        }
    }
}

/// One reference less; with the last one the record is its user's to free.
///
/// # Safety
/// As for [`d_hhash_link_getref`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hhash_link_putref(hhash: Handles, hlink: Record) {
    // SAFETY: the caller's promise.
    unsafe {
        if !hhash.is_null() && !hlink.is_null() {
            d_hash_rec_decref(&raw mut (*hhash).table, link_of(hlink));
        }
    }
}

/// Takes a record out of its table, which gives back its reference. False when it was in none.
///
/// # Safety
/// As for [`d_hhash_link_getref`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hhash_link_delete(hhash: Handles, hlink: Record) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        if hhash.is_null() || hlink.is_null() {
            return false;
        }
        if (*hlink).hl_key != hlink.addr() as u64 {
            return d_hash_rec_delete_at(&raw mut (*hhash).table, link_of(hlink));
        }
        (*hlink).hl_key = 0;
        d_hhash_link_putref(hhash, hlink);
        true
    }
}

/// True for a record that was not made, or is in no table under a number.
///
/// # Safety
/// `hlink` is NULL or memory of a record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hhash_link_empty(hlink: Record) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        if hlink.is_null() || (*hlink).hl_link.rl_initialized & 1 == 0 {
            return true;
        }
        let link = link_of(hlink);
        (*link).next == link
    }
}

/// The number or address of a record.
///
/// # Safety
/// `hlink` is NULL or a record; `key` is NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hhash_link_key(hlink: Record, key: *mut u64) {
    // SAFETY: the caller's promise.
    unsafe {
        if !hlink.is_null() && !key.is_null() {
            *key = (*hlink).hl_key;
        }
    }
}

/// The type that a number has in it.
#[unsafe(no_mangle)]
pub extern "C" fn d_hhash_key_type(key: u64) -> c_int {
    if d_hhash_key_isptr(key) { TYPE_POINTER } else { (key & ((1 << TYPE_BITS) - 1)) as c_int }
}

/// True for what cannot be a number, but an address.
#[unsafe(no_mangle)]
pub extern "C" fn d_hhash_key_isptr(key: u64) -> bool {
    key & 1 == 0
}

/// From now on the table takes records under their address. `-DER_ALREADY` when there are records in it.
///
/// # Safety
/// `hhash` is NULL or a table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hhash_set_ptrtype(hhash: Handles) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if hhash.is_null() {
            return -DER_INVAL;
        }
        if !d_hhash_is_ptrtype(hhash) && !d_hash_rec_first(&raw mut (*hhash).table).is_null() {
            return -DER_ALREADY;
        }
        (*hhash).takes_pointers.store(true, Ordering::Relaxed);
    }
    0
}

/// True for a table that takes records under their address.
///
/// # Safety
/// `hhash` is NULL or a table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hhash_is_ptrtype(hhash: Handles) -> bool {
    // SAFETY: the caller's promise.
    !hhash.is_null() && unsafe { &*hhash }.takes_pointers.load(Ordering::Relaxed)
}

type Visit = unsafe extern "C" fn(Record, *mut c_void) -> c_int;

/// What a traversal looks for.
struct Search {
    kind: c_int,
    visit: Visit,
    argument: *mut c_void,
}

/// # Safety
/// A record of the table, and a [`Search`].
unsafe extern "C" fn visit_kind(link: Link, search: *mut c_void) -> c_int {
    // SAFETY: called with a record of the table, and the search below.
    unsafe {
        let search = &*search.cast::<Search>();
        let record = record_of(link);
        match d_hhash_key_type((*record).hl_key) == search.kind {
            true => (search.visit)(record, search.argument),
            false => 0,
        }
    }
}

/// Calls `cb` with each record of a type that is under a number, until it returns something else than
/// 0, which is returned.
///
/// # Safety
/// `hhash` is NULL or a table, which the callback does not change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hhash_traverse(
    hhash: Handles,
    type_: c_int,
    cb: Option<Visit>,
    arg: *mut c_void,
) -> c_int {
    let Some(visit) = cb.filter(|_| !hhash.is_null()) else { return -DER_INVAL };
    let mut search = Search { kind: type_, visit, argument: arg };
    // SAFETY: the caller's promise.
    unsafe {
        let table = &raw mut (*hhash).table;
        d_hash_table_traverse(table, Some(visit_kind), (&raw mut search).cast())
    }
}

// The callbacks go from the table to what is around it, and from a link to its record.
const _: () = assert!(offset_of!(d_hhash, table) == 0 && offset_of!(d_hlink, hl_link) == 0);
