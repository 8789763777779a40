//! Lists of ranges of ranks, and their text: `[0-3,7]`.

use crate::ctypes::{d_rank_list_t, d_rank_t};
use crate::errno::{DER_INVAL, DER_NOMEM};
use crate::gurt::{alloc, rank_list, shielded, status};
use std::ffi::{c_char, c_int};
use std::fmt::Write;
use std::ptr::null_mut;

/// The ranks from `lo` to `hi`, both included.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(non_camel_case_types)]
pub struct d_rank_range_t {
    lo: d_rank_t,
    hi: d_rank_t,
}

/// A list of ranges.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct d_rank_range_list_t {
    rrl_ranges: *mut d_rank_range_t,
    rrl_nr: u32,
}

/// # Safety
/// The caller gives NULL, or a list that nobody changes meanwhile.
unsafe fn ranges<'a>(list: *const d_rank_range_list_t) -> &'a [d_rank_range_t] {
    // SAFETY: the caller gives NULL, or a list that nobody changes meanwhile.
    unsafe {
        match list.as_ref() {
            Some(list) if !list.rrl_ranges.is_null() => {
                std::slice::from_raw_parts(list.rrl_ranges, list.rrl_nr as usize)
            }
            _ => &[],
        }
    }
}

fn of_ranks(ranks: &[d_rank_t]) -> Vec<d_rank_range_t> {
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut ranges: Vec<d_rank_range_t> = Vec::new();
    for rank in sorted {
        match ranges.last_mut() {
            Some(last) if last.hi + 1 == rank => last.hi = rank,
            _ => ranges.push(d_rank_range_t { lo: rank, hi: rank }),
        }
    }
    ranges
}

fn text_of(ranges: &[d_rank_range_t]) -> String {
    let mut text = String::from("[");
    for (at, range) in ranges.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let written = match range.lo == range.hi {
            true => write!(text, "{comma}{}", range.lo),
            false => write!(text, "{comma}{}-{}", range.lo, range.hi),
        };
        debug_assert!(written.is_ok());
    }
    text.push(']');
    text
}

/// A list of `size` ranges, all zero.
#[unsafe(no_mangle)]
pub extern "C" fn d_rank_range_list_alloc(size: u32) -> *mut d_rank_range_list_t {
    let list: *mut d_rank_range_list_t = alloc::array(1);
    if list.is_null() || size == 0 {
        return list;
    }
    let ranges: *mut d_rank_range_t = alloc::array(size as usize);
    // SAFETY: the list is new.
    unsafe {
        if ranges.is_null() {
            alloc::free(list);
            return null_mut();
        }
        list.write(d_rank_range_list_t { rrl_ranges: ranges, rrl_nr: size });
    }
    list
}

/// Gives a list back. NULL is fine.
///
/// # Safety
/// The caller gives back a list of the C allocator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_rank_range_list_free(list: *mut d_rank_range_list_t) {
    if list.is_null() {
        return;
    }
    // SAFETY: the caller gives back a list of the C allocator.
    unsafe {
        alloc::free((*list).rrl_ranges);
        alloc::free(list);
    }
}

/// The list with another length: a new one for NULL, none for `size` 0. On NULL for any other
/// reason the old list is as it was.
///
/// # Safety
/// The caller gives NULL or a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_rank_range_list_realloc(
    list: *mut d_rank_range_list_t,
    size: u32,
) -> *mut d_rank_range_list_t {
    // SAFETY: the caller gives NULL or a list.
    unsafe {
        let Some(old) = list.as_mut() else { return d_rank_range_list_alloc(size) };
        if size == 0 {
            d_rank_range_list_free(list);
            return null_mut();
        }
        let bytes = size as usize * size_of::<d_rank_range_t>();
        let grown: *mut d_rank_range_t = libc::realloc(old.rrl_ranges.cast(), bytes).cast();
        if grown.is_null() {
            return null_mut();
        }
        let count = if old.rrl_ranges.is_null() { 0 } else { old.rrl_nr };
        for at in count..size {
            grown.add(at as usize).write(d_rank_range_t { lo: 0, hi: 0 });
        }
        *old = d_rank_range_list_t { rrl_ranges: grown, rrl_nr: size };
        list
    }
}

/// The ranges of a list of ranks, which is not changed.
///
/// # Safety
/// The caller gives NULL or a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_rank_range_list_create_from_ranks(
    ranks: *mut d_rank_list_t,
) -> *mut d_rank_range_list_t {
    shielded(null_mut(), || {
        // SAFETY: the caller gives NULL or a list.
        let ranges = of_ranks(unsafe { rank_list::ranks(ranks) });
        let list = d_rank_range_list_alloc(ranges.len() as u32);
        if !list.is_null() && !ranges.is_empty() {
            // SAFETY: the new list has room for as many ranges.
            unsafe {
                (*list).rrl_ranges.copy_from_nonoverlapping(ranges.as_ptr(), ranges.len());
            }
        }
        list
    })
}

/// The text of a list; the caller frees it.
///
/// # Safety
/// The caller gives a list and room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_rank_range_list_str(
    list: *mut d_rank_range_list_t,
    ranks_str: *mut *mut c_char,
) -> c_int {
    status(|| {
        if list.is_null() || ranks_str.is_null() {
            return Err(DER_INVAL);
        }
        // SAFETY: the caller gives a list and room for a pointer.
        unsafe { give(text_of(ranges(list)), ranks_str) }
    })
}

/// The text of a list of ranks, NULL for NULL; the caller frees it.
///
/// # Safety
/// The caller gives NULL or a list, and room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_rank_list_to_str(
    ranks: *mut d_rank_list_t,
    ranks_str: *mut *mut c_char,
) -> c_int {
    status(|| {
        if ranks_str.is_null() {
            return Err(DER_INVAL);
        }
        // SAFETY: the caller gives NULL or a list, and room for a pointer.
        unsafe {
            if ranks.is_null() {
                ranks_str.write(null_mut());
                return Ok(());
            }
            give(text_of(&of_ranks(rank_list::ranks(ranks))), ranks_str)
        }
    })
}

/// # Safety
/// The caller gives room for a pointer.
unsafe fn give(text: String, to: *mut *mut c_char) -> Result<(), c_int> {
    let copy = alloc::string(text.as_bytes());
    if copy.is_null() {
        return Err(DER_NOMEM);
    }
    // SAFETY: the caller gives room for a pointer.
    unsafe { to.write(copy) };
    Ok(())
}
