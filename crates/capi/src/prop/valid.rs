//! Which lists and values make sense.

use super::{ENTRIES_MAX, Kind, NOT_SET, Value, cont, kind_of, pool, value};
use crate::acl::PRINCIPAL_BYTES_MAX;
use crate::ctypes::{daos_prop_entry, daos_prop_t};
use crate::errno::DER_INVAL;
use crate::gurt::Outcome;
use types::limits;

/// True for a type of pools or containers.
fn is_type(property: u32, of_pool: bool) -> bool {
    match of_pool {
        true => property > 0 && property < pool::MAX,
        false => property > cont::MIN && property < cont::MAX,
    }
}

/// True when a number may be the value of a type.
fn is_number(property: u32, number: u64) -> bool {
    match property {
        pool::SPACE_RB => number <= 100,
        // Reclaim, redundancy factor, upgrade status, scrub mode, service redundancy factor.
        5 | 11 | 19 => number <= 4,
        15 | 16 | 22 | 25 => number <= 2,
        26 => number <= 1,
        27 => (60..=600).contains(&number),
        // The performance domain is the root or a group.
        21 | cont::PERF_DOMAIN => number == 255 || number == 200,
        cont::LAYOUT_TYPE => number <= 9,
        cont::CSUM => number <= 7,
        cont::CSUM_CHUNK_SIZE => number < 1 << 32,
        cont::CSUM_SERVER_VERIFY => number <= 1,
        cont::REDUN_FAC => number <= 4,
        cont::REDUN_LVL => (1..=254).contains(&number),
        cont::COMPRESS => number <= 6,
        cont::ENCRYPT => number <= 7,
        cont::DEDUP => number <= 2,
        cont::DEDUP_THRESHOLD => (4096..1 << 32).contains(&number),
        // Healthy or unclean, in the middle 16 bits.
        cont::STATUS => number >> 32 & 0xffff <= 1,
        _ => true,
    }
}

/// Checks a value. `Inval` also for a string or memory that is missing.
///
/// # Safety
/// The caller's values are what the types say.
unsafe fn check_value(entry: &daos_prop_entry) -> Outcome {
    // SAFETY: the caller's values are what the types say.
    let value = unsafe { value(entry) }?.ok_or(DER_INVAL)?;
    let good = match &value {
        Value::Number(number) => is_number(entry.dpe_type, *number),
        Value::Text(label) if matches!(entry.dpe_type, pool::LABEL | cont::LABEL) => {
            limits::check_label(label).is_ok()
        }
        Value::Text(owner) => (1..=PRINCIPAL_BYTES_MAX).contains(&owner.len()),
        Value::Acl(_) | Value::Roots(_) | Value::Ranks(_) => true,
    };
    if good { Ok(()) } else { Err(DER_INVAL) }
}

/// Checks a list; with `values`, what its entries hold as well.
///
/// # Safety
/// NULL, or a list; when values are to be checked, they are what the types say.
pub(super) unsafe fn check(list: *mut daos_prop_t, of_pool: bool, values: bool) -> Outcome {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(head) = list.as_ref() else { return Err(DER_INVAL) };
        if head.dpp_nr > ENTRIES_MAX || (head.dpp_nr == 0) != head.dpp_entries.is_null() {
            return Err(DER_INVAL);
        }
        let mut seen = Vec::new();
        for entry in super::entries(list) {
            if !is_type(entry.dpe_type, of_pool) || seen.contains(&entry.dpe_type) {
                return Err(DER_INVAL);
            }
            seen.push(entry.dpe_type);
            if values && entry.dpe_flags & NOT_SET == 0 {
                check_value(entry)?;
            }
        }
    }
    Ok(())
}

/// True for types whose value is a string.
pub(super) fn is_text(property: u32) -> bool {
    kind_of(property) == Kind::Text
}

/// True for types whose value is memory.
pub(super) fn is_memory(property: u32) -> bool {
    matches!(kind_of(property), Kind::Acl | Kind::Roots | Kind::Ranks)
}
