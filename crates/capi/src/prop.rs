//! Property lists of pools and containers.
//!
//! A list belongs to a C program: entries with a type, flags, and a value that is a number, a string
//! or memory, by the type. [`read`] takes what was set out of a list as plain values, [`answer`]
//! fills a list in; what the values mean for pools and containers is `prop_map`'s matter.
//!
//! Invariant: strings and memory in a list are the list's own, from the C allocator.

use crate::acl;
use crate::ctypes::{daos_obj_id_t, daos_prop_co_roots, daos_prop_entry, daos_prop_t};
use crate::errno::{DER_INVAL, DER_NOMEM};
use crate::gurt::{Outcome, alloc, rank_list};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, c_void};

mod abi;
pub(crate) use abi::{daos_prop_alloc, daos_prop_free, daos_prop_from_str};
mod text;
mod valid;

/// Most entries of a list.
const ENTRIES_MAX: u32 = 128;
/// `DAOS_PROP_ENTRY_NOT_SET`: the entry has no value.
const NOT_SET: u16 = 1;

/// Types of properties of pools.
pub mod pool {
    pub const LABEL: u32 = 1;
    /// Access control list.
    pub const ACL: u32 = 2;
    /// Space kept for rebuilds, per cent.
    pub const SPACE_RB: u32 = 3;
    /// User who owns it.
    pub const OWNER: u32 = 6;
    /// Group that owns it.
    pub const OWNER_GROUP: u32 = 7;
    /// Ranks of the service.
    pub const SVC_LIST: u32 = 8;
    /// Behind the last one.
    pub const MAX: u32 = 28;
}

/// Types of properties of containers.
pub mod cont {
    /// Behind this come the types.
    pub const MIN: u32 = 0x1000;
    pub const LABEL: u32 = 0x1001;
    /// What the objects mean.
    pub const LAYOUT_TYPE: u32 = 0x1002;
    /// Version of the layout.
    pub const LAYOUT_VER: u32 = 0x1003;
    /// Kind of checksum.
    pub const CSUM: u32 = 0x1004;
    /// Bytes under one checksum.
    pub const CSUM_CHUNK_SIZE: u32 = 0x1005;
    /// Whether servers verify checksums.
    pub const CSUM_SERVER_VERIFY: u32 = 0x1006;
    /// Least redundancy factor of any object.
    pub const REDUN_FAC: u32 = 0x1007;
    /// Fault domain of redundancy.
    pub const REDUN_LVL: u32 = 0x1008;
    pub const SNAPSHOT_MAX: u32 = 0x1009;
    /// Access control list.
    pub const ACL: u32 = 0x100a;
    pub const COMPRESS: u32 = 0x100b;
    pub const ENCRYPT: u32 = 0x100c;
    /// User who owns it.
    pub const OWNER: u32 = 0x100d;
    /// Group that owns it.
    pub const OWNER_GROUP: u32 = 0x100e;
    pub const DEDUP: u32 = 0x100f;
    /// Least bytes to be deduplicated.
    pub const DEDUP_THRESHOLD: u32 = 0x1010;
    /// Well-known objects.
    pub const ROOTS: u32 = 0x1011;
    /// Whether data may be lost.
    pub const STATUS: u32 = 0x1012;
    /// First object number not given out.
    pub const ALLOCED_OID: u32 = 0x1013;
    /// Bytes of a cell of an erasure code.
    pub const EC_CELL_SZ: u32 = 0x1014;
    /// Performance domain affinity of erasure codes.
    pub const EC_PDA: u32 = 0x1015;
    /// Performance domain affinity of replication.
    pub const RP_PDA: u32 = 0x1016;
    /// Version of all formats.
    pub const GLOBAL_VERSION: u32 = 0x1017;
    /// Whether scrubbing is off.
    pub const SCRUBBER_DISABLED: u32 = 0x1018;
    /// Version of the objects' format.
    pub const OBJ_VERSION: u32 = 0x1019;
    pub const PERF_DOMAIN: u32 = 0x101a;
    /// Behind the last one.
    pub const MAX: u32 = 0x101b;
}

/// The value of a property.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Value {
    Number(u64),
    Text(String),
    /// An access control list, one text an entry.
    Acl(Vec<String>),
    /// Ids of well-known objects, (hi, lo).
    Roots([(u64, u64); 4]),
    Ranks(Vec<u32>),
}

/// The kinds of values, by type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Number,
    Text,
    Acl,
    Roots,
    Ranks,
}

fn kind_of(property: u32) -> Kind {
    match property {
        pool::LABEL | pool::OWNER | pool::OWNER_GROUP => Kind::Text,
        cont::LABEL | cont::OWNER | cont::OWNER_GROUP => Kind::Text,
        pool::ACL | cont::ACL => Kind::Acl,
        pool::SVC_LIST => Kind::Ranks,
        cont::ROOTS => Kind::Roots,
        _ => Kind::Number,
    }
}

/// The entries of a list; none for NULL.
///
/// # Safety
/// NULL, or a list that nobody else uses meanwhile.
unsafe fn entries<'a>(list: *mut daos_prop_t) -> &'a mut [daos_prop_entry] {
    // SAFETY: the caller's promise.
    unsafe {
        match list.as_ref() {
            Some(list) if !list.dpp_entries.is_null() => {
                std::slice::from_raw_parts_mut(list.dpp_entries, list.dpp_nr as usize)
            }
            _ => &mut [],
        }
    }
}

/// The value of an entry; `None` when it has none.
///
/// # Safety
/// The value is what the type says.
unsafe fn value(entry: &daos_prop_entry) -> Outcome<Option<Value>> {
    if entry.dpe_flags & NOT_SET != 0 {
        return Ok(None);
    }
    // SAFETY: the caller's promise; pointers are checked for NULL.
    unsafe {
        let memory = entry.value.dpe_val_ptr;
        let kind = kind_of(entry.dpe_type);
        if kind != Kind::Number && memory.is_null() {
            return Ok(None);
        }
        Ok(Some(match kind {
            Kind::Number => Value::Number(entry.value.dpe_val),
            Kind::Text => {
                let text = CStr::from_ptr(entry.value.dpe_str).to_str();
                Value::Text(text.map_err(|_| DER_INVAL)?.to_owned())
            }
            Kind::Acl => Value::Acl(acl::texts_of(memory.cast())?),
            Kind::Roots => {
                let roots = memory.cast::<daos_prop_co_roots>().read_unaligned();
                Value::Roots(roots.cr_oids.map(|oid| (oid.hi, oid.lo)))
            }
            Kind::Ranks => Value::Ranks(rank_list::ranks(memory.cast()).to_vec()),
        }))
    }
}

/// What a list sets, of a container or a pool. `Inval` for a type that is not of them, a type twice,
/// or a value that has no meaning. NULL sets nothing.
///
/// # Safety
/// NULL, or a list whose values are what the types say.
pub unsafe fn read(list: *const daos_prop_t, of_pool: bool) -> Outcome<Vec<(u32, Value)>> {
    if list.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: the caller's promise.
    unsafe {
        valid::check(list.cast_mut(), of_pool, true)?;
        let mut found = Vec::new();
        for entry in entries(list.cast_mut()) {
            if let Some(value) = value(entry)? {
                found.push((entry.dpe_type, value));
            }
        }
        Ok(found)
    }
}

/// Puts a value into an entry, over whatever was there.
fn put(entry: &mut daos_prop_entry, value: &Value) -> Outcome {
    let memory: *mut c_void = match value {
        Value::Number(number) => {
            entry.value.dpe_val = *number;
            entry.dpe_flags &= !NOT_SET;
            return Ok(());
        }
        Value::Text(text) => alloc::string(text.as_bytes()).cast(),
        Value::Acl(texts) => acl::give_texts(texts)?.cast(),
        Value::Roots(roots) => {
            let memory: *mut daos_prop_co_roots = alloc::array(1);
            let cr_oids = roots.map(|(hi, lo)| daos_obj_id_t { lo, hi });
            if !memory.is_null() {
                // SAFETY: the memory is new and has room.
                unsafe { memory.write(daos_prop_co_roots { cr_oids }) };
            }
            memory.cast()
        }
        Value::Ranks(ranks) => rank_list::make(ranks).cast(),
    };
    if memory.is_null() {
        return Err(DER_NOMEM);
    }
    entry.value.dpe_val_ptr = memory;
    entry.dpe_flags &= !NOT_SET;
    Ok(())
}

/// True when a list asks for all there is, or for this by name.
///
/// # Safety
/// NULL, or a list that nobody else uses meanwhile.
pub unsafe fn asks_for(list: *mut daos_prop_t, property: u32) -> bool {
    if list.is_null() {
        return false;
    }
    // SAFETY: the caller's promise.
    let entries = unsafe { entries(list) };
    entries.is_empty() || entries.iter().any(|entry| entry.dpe_type == property)
}

/// Fills a list in: each entry with the value of its type, or marked as not set. Entries without a
/// type get those of `all` in order; a list without entries gets all that there are. What entries
/// held before is overwritten, not freed.
///
/// # Safety
/// NULL, or a list that nobody else uses meanwhile.
pub unsafe fn answer(list: *mut daos_prop_t, all: &[(u32, Value)]) -> Outcome {
    if list.is_null() {
        return Err(DER_INVAL);
    }
    // SAFETY: the caller's promise.
    unsafe {
        let is_empty = (*list).dpp_nr == 0;
        if is_empty {
            let made: *mut daos_prop_entry = alloc::array(all.len());
            if made.is_null() {
                return Err(DER_NOMEM);
            }
            (*list).dpp_entries = made;
            (*list).dpp_nr = all.len() as u32;
        }
        let entries = entries(list);
        for at in 0..entries.len() {
            let entry = &mut entries[at];
            if entry.dpe_type == 0 {
                let Some((property, _)) = all.get(at) else { break };
                entry.dpe_type = *property;
            }
            entry.value.dpe_val = 0;
            entry.dpe_flags = NOT_SET;
            let known = all.iter().find(|(property, _)| *property == entry.dpe_type);
            let Some((_, value)) = known else { continue };
            if let Err(der) = put(entry, value) {
                for entry in &mut entries[..at] {
                    abi::free_value(entry);
                }
                if is_empty {
                    alloc::free((*list).dpp_entries);
                    (*list).dpp_entries = std::ptr::null_mut();
                    (*list).dpp_nr = 0;
                }
                return Err(der);
            }
        }
    }
    Ok(())
}

/// Gives back the entries of a list, but not the list.
///
/// # Safety
/// A list whose values are its own.
pub unsafe fn fini(list: *mut daos_prop_t) {
    // SAFETY: the caller's promise.
    unsafe { abi::daos_prop_fini(list) }
}

#[cfg(test)]
#[path = "prop/tests.rs"]
mod tests;
