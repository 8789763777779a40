//! Lists of ranks. The lists and their memory belong to C programs.
//!
//! A list with `rl_nr` 0 may have a NULL pointer. NULL for a list gives the function's error.

use crate::ctypes::{d_rank_list_t, d_rank_t};
use crate::errno::{DER_INVAL, DER_NOMEM, DER_NONEXIST};
use crate::gurt::{Outcome, alloc, log, random, shielded, status};
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

/// The ranks of a list; none for NULL.
///
/// # Safety
/// NULL, or a list that nobody changes meanwhile.
pub(crate) unsafe fn ranks<'a>(list: *const d_rank_list_t) -> &'a [d_rank_t] {
    // SAFETY: the caller's promise.
    unsafe {
        match list.as_ref() {
            Some(list) if !list.rl_ranks.is_null() => {
                std::slice::from_raw_parts(list.rl_ranks, list.rl_nr as usize)
            }
            _ => &[],
        }
    }
}

/// # Safety
/// The caller gives NULL, or a list that nobody else uses meanwhile.
unsafe fn ranks_mut<'a>(list: *mut d_rank_list_t) -> &'a mut [d_rank_t] {
    // SAFETY: the caller gives NULL, or a list that nobody else uses meanwhile.
    unsafe {
        match list.as_mut() {
            Some(list) if !list.rl_ranks.is_null() => {
                std::slice::from_raw_parts_mut(list.rl_ranks, list.rl_nr as usize)
            }
            _ => &mut [],
        }
    }
}

/// A new list, or NULL when there is no memory.
pub(crate) fn make(ranks: &[d_rank_t]) -> *mut d_rank_list_t {
    let list: *mut d_rank_list_t = alloc::array(1);
    if list.is_null() {
        return list;
    }
    // SAFETY: the list is new.
    unsafe {
        if set(list, ranks).is_err() {
            alloc::free(list);
            return null_mut();
        }
    }
    list
}

/// Gives a list other ranks, in memory of its own.
///
/// # Safety
/// The caller gives a list.
unsafe fn set(list: *mut d_rank_list_t, ranks: &[d_rank_t]) -> Outcome {
    let copy: *mut d_rank_t = match ranks.len() {
        0 => null_mut(),
        count => alloc::array(count),
    };
    if copy.is_null() && !ranks.is_empty() {
        return Err(DER_NOMEM);
    }
    // SAFETY: the caller gives a list; the copy has room.
    unsafe {
        if !copy.is_null() {
            copy.copy_from_nonoverlapping(ranks.as_ptr(), ranks.len());
        }
        alloc::free((*list).rl_ranks);
        (*list).rl_ranks = copy;
        (*list).rl_nr = ranks.len() as u32;
    }
    Ok(())
}

/// A list of `size` ranks, 0 to `size` - 1.
#[unsafe(no_mangle)]
pub extern "C" fn d_rank_list_alloc(size: u32) -> *mut d_rank_list_t {
    let list: *mut d_rank_list_t = alloc::array(1);
    if list.is_null() || size == 0 {
        return list;
    }
    let ranks: *mut d_rank_t = alloc::array(size as usize);
    // SAFETY: both pieces of memory are new and have room.
    unsafe {
        if ranks.is_null() {
            alloc::free(list);
            return null_mut();
        }
        for rank in 0..size {
            ranks.add(rank as usize).write(rank);
        }
        list.write(d_rank_list_t { rl_ranks: ranks, rl_nr: size });
    }
    list
}

/// Gives a list back. NULL is fine.
///
/// # Safety
/// The caller gives back a list of the C allocator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_rank_list_free(list: *mut d_rank_list_t) {
    if list.is_null() {
        return;
    }
    // SAFETY: the caller gives back a list of the C allocator.
    unsafe {
        alloc::free((*list).rl_ranks);
        alloc::free(list);
    }
}

/// A copy; of NULL, NULL.
///
/// # Safety
/// The caller gives NULL or a list, and room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_rank_list_dup(
    dst: *mut *mut d_rank_list_t,
    src: *const d_rank_list_t,
) -> c_int {
    if dst.is_null() {
        return -DER_INVAL;
    }
    // SAFETY: the caller gives NULL or a list, and room for a pointer.
    unsafe {
        let copy = if src.is_null() { null_mut() } else { make(ranks(src)) };
        if copy.is_null() && !src.is_null() {
            return -DER_NOMEM;
        }
        dst.write(copy);
    }
    0
}

/// A sorted copy without repetition.
///
/// # Safety
/// The caller gives NULL or a list, and room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_rank_list_dup_sort_uniq(
    dst: *mut *mut d_rank_list_t,
    src: *const d_rank_list_t,
) -> c_int {
    status(|| {
        // SAFETY: the caller gives NULL or a list, and room for a pointer.
        unsafe {
            if dst.is_null() {
                return Err(DER_INVAL);
            }
            if src.is_null() {
                dst.write(null_mut());
                return Ok(());
            }
            let mut sorted = ranks(src).to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            let copy = make(&sorted);
            if copy.is_null() {
                return Err(DER_NOMEM);
            }
            dst.write(copy);
            Ok(())
        }
    })
}

/// Removes from `dst` the ranks that are in `src` (`exclude`), or those that are not.
///
/// # Safety
/// The caller gives two lists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_rank_list_filter(
    src: *mut d_rank_list_t,
    dst: *mut d_rank_list_t,
    exclude: bool,
) {
    if src.is_null() || dst.is_null() {
        return;
    }
    // SAFETY: the caller gives two lists.
    unsafe {
        let mut kept = 0;
        let from = ranks(src);
        let into = ranks_mut(dst);
        for at in 0..into.len() {
            if from.contains(&into[at]) != exclude {
                into[kept] = into[at];
                kept += 1;
            }
        }
        (*dst).rl_nr = kept as u32;
    }
}

/// Appends to `src` the ranks of `more` that it does not have.
///
/// # Safety
/// The caller gives a list, and NULL or another.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_rank_list_merge(
    src: *mut d_rank_list_t,
    more: *mut d_rank_list_t,
) -> c_int {
    status(|| {
        if src.is_null() {
            return Err(DER_INVAL);
        }
        // SAFETY: the caller gives a list, and NULL or another.
        unsafe {
            let old = ranks(src);
            let new = ranks(more).iter().filter(|rank| !old.contains(rank));
            let merged: Vec<d_rank_t> = old.iter().chain(new).copied().collect();
            if merged.len() == old.len() {
                return Ok(());
            }
            set(src, &merged)
        }
    })
}

/// Changes the length; new ranks are 0.
///
/// # Safety
/// The caller gives NULL or a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_rank_list_resize(list: *mut d_rank_list_t, size: u32) -> c_int {
    status(|| {
        // SAFETY: the caller gives NULL or a list.
        unsafe {
            let Some(list) = list.as_mut() else { return Err(DER_INVAL) };
            if size == 0 {
                alloc::free(list.rl_ranks);
                *list = d_rank_list_t { rl_ranks: null_mut(), rl_nr: 0 };
                return Ok(());
            }
            let bytes = size as usize * size_of::<d_rank_t>();
            let old = if list.rl_ranks.is_null() { 0 } else { list.rl_nr };
            let grown: *mut d_rank_t = libc::realloc(list.rl_ranks.cast(), bytes).cast();
            if grown.is_null() {
                return Err(DER_NOMEM);
            }
            for at in old..size {
                grown.add(at as usize).write(0);
            }
            *list = d_rank_list_t { rl_ranks: grown, rl_nr: size };
            Ok(())
        }
    })
}

/// Gives `dst` the ranks of `src`.
///
/// # Safety
/// The caller gives two lists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_rank_list_copy(
    dst: *mut d_rank_list_t,
    src: *mut d_rank_list_t,
) -> c_int {
    if dst.is_null() || src.is_null() {
        return -DER_INVAL;
    }
    if dst == src {
        return 0;
    }
    // SAFETY: the caller gives two lists.
    status(|| unsafe { set(dst, ranks(src)) })
}

/// Puts the ranks in order.
///
/// # Safety
/// The caller gives NULL or a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_rank_list_sort(list: *mut d_rank_list_t) {
    // SAFETY: the caller gives NULL or a list.
    unsafe { ranks_mut(list) }.sort_unstable();
}

/// Puts the ranks in a random order (Fisher and Yates).
///
/// # Safety
/// The caller gives NULL or a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_rank_list_shuffle(list: *mut d_rank_list_t) {
    // SAFETY: the caller gives NULL or a list.
    let ranks = unsafe { ranks_mut(list) };
    for last in (1..ranks.len()).rev() {
        ranks.swap(last, random::d_rand() as usize % (last + 1));
    }
}

/// Looks a rank up in a sorted list.
///
/// # Safety
/// The caller gives NULL or a list, and NULL or room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_rank_list_bsearch(
    list: *mut d_rank_list_t,
    rank: d_rank_t,
    idx: *mut c_int,
) -> bool {
    // SAFETY: the caller gives NULL or a list, and NULL or room for a number.
    unsafe { found(ranks(list).binary_search(&rank).ok(), idx) }
}

/// Looks a rank up.
///
/// # Safety
/// The caller gives NULL or a list, and NULL or room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_rank_list_find(
    list: *mut d_rank_list_t,
    rank: d_rank_t,
    idx: *mut c_int,
) -> bool {
    // SAFETY: the caller gives NULL or a list, and NULL or room for a number.
    unsafe { found(ranks(list).iter().position(|&each| each == rank), idx) }
}

unsafe fn found(at: Option<usize>, idx: *mut c_int) -> bool {
    if let Some(at) = at
        && !idx.is_null()
    {
        // SAFETY: not NULL; the caller wants the index there.
        unsafe { idx.write(at as c_int) };
    }
    at.is_some()
}

/// Removes the rank at an index; nothing happens when there is none.
///
/// # Safety
/// The caller gives NULL or a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_rank_list_del_at(list: *mut d_rank_list_t, idx: c_int) {
    // SAFETY: the caller gives NULL or a list.
    unsafe {
        let ranks = ranks_mut(list);
        let Some(at) = usize::try_from(idx).ok().filter(|&at| at < ranks.len()) else {
            return log::line(log::ERR, "rank list: no rank at the index to remove");
        };
        ranks.copy_within(at + 1.., at);
        (*list).rl_nr -= 1;
    }
}

/// Removes the first occurrence of a rank, if there is one.
///
/// # Safety
/// The caller gives a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_rank_list_del(list: *mut d_rank_list_t, rank: d_rank_t) -> c_int {
    if list.is_null() {
        return -DER_INVAL;
    }
    let mut at = 0;
    // SAFETY: the caller gives a list.
    unsafe {
        if !d_rank_list_find(list, rank, &mut at) {
            return 0;
        }
        d_rank_list_del_at(list, at);
        d_rank_list_resize(list, (*list).rl_nr)
    }
}

/// One rank more at the end.
///
/// # Safety
/// The caller gives NULL or a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_rank_list_append(list: *mut d_rank_list_t, rank: d_rank_t) -> c_int {
    // SAFETY: the caller gives NULL or a list.
    unsafe {
        let Some(old) = list.as_ref().map(|list| list.rl_nr) else { return -DER_INVAL };
        let Some(new) = old.checked_add(1) else { return -DER_NOMEM };
        let status = d_rank_list_resize(list, new);
        if status == 0 {
            (*list).rl_ranks.add(old as usize).write(rank);
        }
        status
    }
}

/// True when both lists have the same ranks, in any order. Neither list is changed.
///
/// # Safety
/// The caller gives two lists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_rank_list_identical(
    one: *mut d_rank_list_t,
    other: *mut d_rank_list_t,
) -> bool {
    if one.is_null() || other.is_null() {
        return one == other;
    }
    shielded(false, || {
        // SAFETY: the caller gives two lists.
        let [mut one, mut other] = unsafe { [ranks(one).to_vec(), ranks(other).to_vec()] };
        one.sort_unstable();
        other.sort_unstable();
        one == other
    })
}

/// True when the list has the rank.
///
/// # Safety
/// The caller gives NULL or a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_rank_in_rank_list(list: *mut d_rank_list_t, rank: d_rank_t) -> bool {
    // SAFETY: the caller gives NULL or a list.
    unsafe { ranks(list) }.contains(&rank)
}

/// The index of a rank; `-DER_NONEXIST` when the list does not have it.
///
/// # Safety
/// The caller gives a list and room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_idx_in_rank_list(
    list: *mut d_rank_list_t,
    rank: d_rank_t,
    idx: *mut u32,
) -> c_int {
    if list.is_null() || idx.is_null() {
        return -DER_INVAL;
    }
    // SAFETY: the caller gives a list and room for a number.
    unsafe {
        match ranks(list).iter().position(|&each| each == rank) {
            Some(at) => {
                idx.write(at as u32);
                0
            }
            None => -DER_NONEXIST,
        }
    }
}

/// Writes a list to the log, under a name of at most `name_len` bytes.
///
/// # Safety
/// The caller gives a list and a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_rank_list_dump(
    list: *mut d_rank_list_t,
    name: *const c_char,
    name_len: c_int,
) -> c_int {
    status(|| {
        if list.is_null() || name.is_null() || name_len < 0 {
            return Err(DER_INVAL);
        }
        // SAFETY: the caller gives a list and a string.
        let (name, ranks) =
            unsafe { (std::ffi::CStr::from_ptr(name).to_string_lossy(), ranks(list)) };
        if name.len() > name_len as usize {
            return Err(DER_INVAL);
        }
        log::line(log::DEBUG, &format!("{name}, {} ranks: {ranks:?}", ranks.len()));
        Ok(())
    })
}

/// A list of `len` ranks; NULL when there is no memory.
///
/// # Safety
/// The caller gives `len` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uint32_array_to_rank_list(
    ints: *mut u32,
    len: usize,
) -> *mut d_rank_list_t {
    if ints.is_null() || len == 0 {
        return make(&[]);
    }
    if len > u32::MAX as usize {
        return null_mut();
    }
    // SAFETY: the caller gives `len` numbers.
    make(unsafe { std::slice::from_raw_parts(ints, len) })
}

/// A copy of the ranks as an array.
///
/// # Safety
/// The caller gives a list and room for a pointer and a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rank_list_to_uint32_array(
    list: *mut d_rank_list_t,
    ints: *mut *mut u32,
    len: *mut usize,
) -> c_int {
    if list.is_null() || ints.is_null() || len.is_null() {
        return -DER_INVAL;
    }
    // SAFETY: the caller gives a list and room for a pointer and a number.
    unsafe {
        let ranks = ranks(list);
        let copy: *mut u32 = alloc::array(ranks.len());
        if copy.is_null() {
            return -DER_NOMEM;
        }
        copy.copy_from_nonoverlapping(ranks.as_ptr(), ranks.len());
        ints.write(copy);
        len.write(ranks.len());
    }
    0
}

/// The list that a text such as `1:2:3` names; `sep` holds the separators. NULL for an empty or
/// malformed text. The caller frees it with `d_rank_list_free`.
///
/// # Safety
/// The caller gives two strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_rank_list_parse(
    str: *const c_char,
    sep: *const c_char,
) -> *mut d_rank_list_t {
    if str.is_null() || sep.is_null() {
        return null_mut();
    }
    shielded(null_mut(), || {
        // SAFETY: the caller gives two strings.
        let (text, separators) =
            unsafe { (std::ffi::CStr::from_ptr(str), std::ffi::CStr::from_ptr(sep)) };
        let (Ok(text), Ok(separators)) = (text.to_str(), separators.to_str()) else {
            return null_mut();
        };
        let parts = text.split(|c| separators.contains(c)).map(str::trim);
        let ranks: Result<Vec<d_rank_t>, _> =
            parts.filter(|part| !part.is_empty()).map(str::parse).collect();
        match ranks {
            Ok(ranks) if !ranks.is_empty() => make(&ranks),
            _ => null_mut(),
        }
    })
}

#[cfg(test)]
#[path = "rank_list_tests.rs"]
mod tests;
