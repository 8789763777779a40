//! The functions on property lists that C programs call.

use super::{ENTRIES_MAX, Kind, Value, entries, kind_of, put, text, valid};
use crate::ctypes::{
    d_rank_list_t, daos_acl, daos_prop_byteval, daos_prop_co_roots, daos_prop_entry, daos_prop_t,
};
use crate::errno::{DER_INVAL, DER_MISMATCH, DER_NOMEM, DER_NONEXIST};
use crate::gurt::rank_list::{self, d_rank_list_free};
use crate::gurt::{Outcome, alloc, shielded, status};
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

/// Gives back what an entry's value points to, and forgets it.
///
/// # Safety
/// The value is what the type says, and the list's own.
pub(super) unsafe fn free_value(entry: &mut daos_prop_entry) {
    // SAFETY: the caller's promise.
    unsafe {
        let memory = entry.value.dpe_val_ptr;
        match kind_of(entry.dpe_type) {
            Kind::Number => return,
            Kind::Ranks => d_rank_list_free(memory.cast()),
            Kind::Text | Kind::Acl | Kind::Roots => alloc::free(memory),
        }
    }
    entry.value.dpe_val_ptr = null_mut();
}

/// Copies an entry's value, which may be NULL, into another that is empty.
///
/// # Safety
/// The caller's value is what the type says.
unsafe fn copy(from: &daos_prop_entry, to: &mut daos_prop_entry) -> Outcome {
    to.dpe_type = from.dpe_type;
    to.dpe_flags = from.dpe_flags;
    // SAFETY: the caller's value is what the type says.
    unsafe {
        let memory = from.value.dpe_val_ptr;
        let copied = match kind_of(from.dpe_type) {
            Kind::Number => {
                to.value = from.value;
                return Ok(());
            }
            _ if memory.is_null() => {
                to.value.dpe_val_ptr = null_mut();
                return Ok(());
            }
            Kind::Text => {
                let text = std::ffi::CStr::from_ptr(from.value.dpe_str);
                alloc::string(text.to_bytes()).cast::<c_void>()
            }
            Kind::Acl => acl_bytes(memory.cast()).map_or(null_mut(), |b| alloc::bytes(b).cast()),
            Kind::Roots => {
                let size = size_of::<daos_prop_co_roots>();
                alloc::bytes(std::slice::from_raw_parts(memory.cast(), size)).cast()
            }
            Kind::Ranks => {
                let list: *const d_rank_list_t = memory.cast();
                rank_list::make(rank_list::ranks(list)).cast()
            }
        };
        to.value.dpe_val_ptr = copied;
        if copied.is_null() { Err(DER_NOMEM) } else { Ok(()) }
    }
}

/// # Safety
/// The caller gives NULL or a list with `dal_len` bytes behind it.
unsafe fn acl_bytes<'a>(list: *const daos_acl) -> Option<&'a [u8]> {
    // SAFETY: the caller gives NULL or a list with `dal_len` bytes behind it.
    unsafe {
        let length = size_of::<daos_acl>() + list.as_ref()?.dal_len as usize;
        Some(std::slice::from_raw_parts(list.cast(), length))
    }
}

/// A list of `entries_nr` empty entries; NULL for more than 128. The caller frees it with
/// `daos_prop_free`.
#[unsafe(no_mangle)]
pub extern "C" fn daos_prop_alloc(entries_nr: u32) -> *mut daos_prop_t {
    if entries_nr > ENTRIES_MAX {
        return null_mut();
    }
    let list: *mut daos_prop_t = alloc::array(1);
    if list.is_null() || entries_nr == 0 {
        return list;
    }
    let entries: *mut daos_prop_entry = alloc::array(entries_nr as usize);
    // SAFETY: the list is new.
    unsafe {
        if entries.is_null() {
            alloc::free(list);
            return null_mut();
        }
        list.write(daos_prop_t { dpp_nr: entries_nr, dpp_reserv: 0, dpp_entries: entries });
    }
    list
}

/// Gives back the entries of a list, but not the list.
///
/// # Safety
/// The caller gives a list whose values are its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_prop_fini(prop: *mut daos_prop_t) {
    if prop.is_null() {
        return;
    }
    // SAFETY: the caller gives a list whose values are its own.
    unsafe {
        entries(prop).iter_mut().for_each(|entry| free_value(entry));
        alloc::free((*prop).dpp_entries);
        (*prop).dpp_entries = null_mut();
        (*prop).dpp_nr = 0;
    }
}

/// Gives a list back. NULL is fine.
///
/// # Safety
/// The caller gives back a list of the C allocator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_prop_free(prop: *mut daos_prop_t) {
    // SAFETY: the caller gives back a list of the C allocator.
    unsafe {
        daos_prop_fini(prop);
        alloc::free(prop);
    }
}

/// Copies entries into a new list; those of later lists replace earlier ones of the same type.
///
/// # Safety
/// The caller gives lists whose values are what the types say.
unsafe fn joined(
    lists: &[*mut daos_prop_t],
    keep: impl Fn(&daos_prop_entry) -> bool,
) -> Outcome<*mut daos_prop_t> {
    let mut chosen: Vec<daos_prop_entry> = Vec::new();
    // SAFETY: the caller gives lists whose values are what the types say.
    unsafe {
        for &list in lists {
            for entry in entries(list).iter().filter(|entry| keep(entry)) {
                match chosen.iter_mut().find(|old| old.dpe_type == entry.dpe_type) {
                    Some(old) => *old = *entry,
                    None => chosen.push(*entry),
                }
            }
        }
        if chosen.len() > ENTRIES_MAX as usize {
            return Err(DER_INVAL);
        }
        let made = daos_prop_alloc(chosen.len() as u32);
        if made.is_null() {
            return Err(DER_NOMEM);
        }
        for (from, to) in chosen.iter().zip(entries(made)) {
            if let Err(der) = copy(from, to) {
                daos_prop_free(made);
                return Err(der);
            }
        }
        Ok(made)
    }
}

/// A new list with the entries of both, where those of `new_prop` win.
///
/// # Safety
/// The caller gives two lists and room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_prop_merge2(
    old_prop: *mut daos_prop_t,
    new_prop: *mut daos_prop_t,
    out_prop: *mut *mut daos_prop_t,
) -> c_int {
    status(|| {
        if old_prop.is_null() || new_prop.is_null() || out_prop.is_null() {
            return Err(DER_INVAL);
        }
        // SAFETY: the caller gives two lists and room for a pointer.
        unsafe { out_prop.write(joined(&[old_prop, new_prop], |_| true)?) };
        Ok(())
    })
}

/// As `daos_prop_merge2`; NULL on any error.
///
/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_prop_merge(
    old_prop: *mut daos_prop_t,
    new_prop: *mut daos_prop_t,
) -> *mut daos_prop_t {
    let mut merged = null_mut();
    // SAFETY: as for the function above.
    unsafe { daos_prop_merge2(old_prop, new_prop, &mut merged) };
    merged
}

/// A copy of the entries that are set, of a list that makes sense for a pool or container. NULL for
/// one that does not, or that sets nothing.
///
/// # Safety
/// The caller gives NULL or a list whose values are what the types say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_prop_dup(
    prop: *mut daos_prop_t,
    pool: bool,
    input: bool,
) -> *mut daos_prop_t {
    shielded(null_mut(), || {
        // SAFETY: the caller gives NULL or a list whose values are what the types say.
        unsafe {
            let is_set = |entry: &daos_prop_entry| entry.dpe_flags & super::NOT_SET == 0;
            if valid::check(prop, pool, input).is_err() || !entries(prop).iter().any(&is_set) {
                return null_mut();
            }
            joined(&[prop], is_set).unwrap_or(null_mut())
        }
    })
}

/// True for a list that makes sense for a pool or container; with `input`, its values too.
///
/// # Safety
/// The caller gives NULL or a list whose values are what the types say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_prop_valid(prop: *mut daos_prop_t, pool: bool, input: bool) -> bool {
    // SAFETY: the caller gives NULL or a list whose values are what the types say.
    shielded(false, || unsafe { valid::check(prop, pool, input) }.is_ok())
}

/// Reads `name:value;...` of at most `len` bytes into a new list.
///
/// # Safety
/// The caller gives a string, or `len` bytes, and room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_prop_from_str(
    str: *const c_char,
    len: u64,
    prop: *mut *mut daos_prop_t,
) -> c_int {
    status(|| {
        if str.is_null() || len == 0 || prop.is_null() {
            return Err(DER_INVAL);
        }
        let len = usize::try_from(len).map_err(|_| DER_INVAL)?;
        // SAFETY: the caller gives a string, or `len` bytes, and room for a pointer.
        unsafe {
            let bytes = std::slice::from_raw_parts(str.cast(), libc::strnlen(str, len));
            let values = text::parse(std::str::from_utf8(bytes).map_err(|_| DER_INVAL)?)?;
            let count = u32::try_from(values.len()).map_err(|_| DER_INVAL)?;
            if count > ENTRIES_MAX {
                return Err(DER_INVAL);
            }
            let made = daos_prop_alloc(count);
            if made.is_null() {
                return Err(DER_NOMEM);
            }
            for (entry, (property, value)) in entries(made).iter_mut().zip(&values) {
                entry.dpe_type = *property;
                if let Err(der) = put(entry, value) {
                    daos_prop_free(made);
                    return Err(der);
                }
            }
            prop.write(made);
        }
        Ok(())
    })
}

/// The entry of a type, inside the list; NULL when there is none.
///
/// # Safety
/// The caller gives NULL or a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_prop_entry_get(
    prop: *mut daos_prop_t,
    property: u32,
) -> *mut daos_prop_entry {
    // SAFETY: the caller gives NULL or a list.
    let mut entries = unsafe { entries(prop) }.iter_mut();
    entries.find(|entry| entry.dpe_type == property).map_or(null_mut(), |entry| entry)
}

/// # Safety
/// The caller gives NULL or a list.
unsafe fn entry_of<'a>(prop: *mut daos_prop_t, property: u32) -> Outcome<&'a mut daos_prop_entry> {
    // SAFETY: the caller gives NULL or a list.
    unsafe { daos_prop_entry_get(prop, property).as_mut() }.ok_or(DER_NONEXIST)
}

unsafe fn set_str(entry: &mut daos_prop_entry, str: *const c_char, len: u64) -> Outcome {
    if !valid::is_text(entry.dpe_type) {
        return Err(DER_INVAL);
    }
    // SAFETY: the caller gives NULL or a string, or `len` bytes; the old value is the list's own.
    unsafe {
        let copy = match str.is_null() || len == 0 {
            true => null_mut(),
            false => libc::strndup(str, usize::try_from(len).unwrap_or(usize::MAX)),
        };
        if copy.is_null() && !str.is_null() && len != 0 {
            return Err(DER_NOMEM);
        }
        free_value(entry);
        entry.value.dpe_str = copy;
    }
    Ok(())
}

/// # Safety
/// The caller gives NULL or `size` bytes.
unsafe fn set_ptr(entry: &mut daos_prop_entry, ptr: *const c_void, size: u64) -> Outcome {
    if !valid::is_memory(entry.dpe_type) {
        return Err(DER_INVAL);
    }
    let size = usize::try_from(size).map_err(|_| DER_INVAL)?;
    // SAFETY: the caller gives NULL or `size` bytes; the old value is the list's own.
    unsafe {
        let copy: *mut c_void = match ptr.is_null() || size == 0 {
            true => null_mut(),
            // A list of ranks is two pieces of memory.
            false if kind_of(entry.dpe_type) == Kind::Ranks => {
                let ranks = rank_list::ranks(ptr.cast());
                rank_list::make(ranks).cast()
            }
            false => alloc::bytes(std::slice::from_raw_parts(ptr.cast(), size)).cast(),
        };
        if copy.is_null() && !ptr.is_null() && size != 0 {
            return Err(DER_NOMEM);
        }
        free_value(entry);
        entry.value.dpe_val_ptr = copy;
    }
    Ok(())
}

/// Gives the entry of a type a copy of at most `len` bytes of a string; NULL for none.
///
/// # Safety
/// The caller gives NULL or a list, and NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_prop_set_str(
    prop: *mut daos_prop_t,
    property: u32,
    str: *const c_char,
    len: u64,
) -> c_int {
    // SAFETY: the caller gives NULL or a list, and NULL or a string.
    status(|| unsafe { set_str(entry_of(prop, property)?, str, len) })
}

/// Gives an entry a copy of at most `len` bytes of a string; NULL for none.
///
/// # Safety
/// The caller gives NULL or an entry, and NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_prop_entry_set_str(
    entry: *mut daos_prop_entry,
    str: *const c_char,
    len: u64,
) -> c_int {
    // SAFETY: the caller gives NULL or an entry, and NULL or a string.
    status(|| unsafe { set_str(entry.as_mut().ok_or(DER_INVAL)?, str, len) })
}

/// Gives the entry of a type a copy of `size` bytes; NULL for none.
///
/// # Safety
/// The caller gives NULL or a list, and NULL or `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_prop_set_ptr(
    prop: *mut daos_prop_t,
    property: u32,
    ptr: *const c_void,
    size: u64,
) -> c_int {
    // SAFETY: the caller gives NULL or a list, and NULL or `size` bytes.
    status(|| unsafe { set_ptr(entry_of(prop, property)?, ptr, size) })
}

/// Gives an entry a copy of `size` bytes; NULL for none.
///
/// # Safety
/// The caller gives NULL or an entry, and NULL or `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_prop_entry_set_ptr(
    entry: *mut daos_prop_entry,
    ptr: *const c_void,
    size: u64,
) -> c_int {
    // SAFETY: the caller gives NULL or an entry, and NULL or `size` bytes.
    status(|| unsafe { set_ptr(entry.as_mut().ok_or(DER_INVAL)?, ptr, size) })
}

/// Gives `entry_dst` a copy of the `len` bytes that `entry_src` points to.
///
/// # Safety
/// The caller gives NULL or two entries, the second with `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_prop_entry_dup_ptr(
    entry_dst: *mut daos_prop_entry,
    entry_src: *mut daos_prop_entry,
    len: usize,
) -> c_int {
    status(|| {
        // SAFETY: the caller gives NULL or two entries, the second with `len` bytes.
        unsafe {
            let (dst, src) = (entry_dst.as_mut(), entry_src.as_ref());
            let (Some(dst), Some(src)) = (dst, src) else { return Err(DER_INVAL) };
            let from = src.value.dpe_val_ptr;
            if from.is_null() {
                return Err(DER_INVAL);
            }
            let copy = alloc::bytes(std::slice::from_raw_parts(from.cast(), len));
            if copy.is_null() {
                return Err(DER_NOMEM);
            }
            dst.value.dpe_val_ptr = copy.cast();
        }
        Ok(())
    })
}

/// Gives `dst` a copy of the well-known objects of `src`.
///
/// # Safety
/// The caller gives NULL or two entries, the values NULL or such objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_prop_entry_dup_co_roots(
    dst: *mut daos_prop_entry,
    src: *mut daos_prop_entry,
) -> c_int {
    status(|| {
        // SAFETY: the caller gives NULL or two entries, the values NULL or such objects.
        unsafe {
            let (Some(dst), Some(src)) = (dst.as_mut(), src.as_ref()) else {
                return Err(DER_INVAL);
            };
            let from: *const daos_prop_co_roots = src.value.dpe_val_ptr.cast();
            if from.is_null() {
                return Err(DER_INVAL);
            }
            let roots = from.read_unaligned();
            if dst.value.dpe_val_ptr.is_null() {
                let made: *mut daos_prop_co_roots = alloc::array(1);
                if made.is_null() {
                    return Err(DER_NOMEM);
                }
                dst.value.dpe_val_ptr = made.cast();
            }
            dst.value.dpe_val_ptr.cast::<daos_prop_co_roots>().write_unaligned(roots);
        }
        Ok(())
    })
}

/// 0 when two access control lists are the same byte for byte, or both missing; else
/// `-DER_MISMATCH`.
///
/// # Safety
/// The caller gives NULL or entries whose values are what the types say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_prop_entry_cmp_acl(
    entry1: *mut daos_prop_entry,
    entry2: *mut daos_prop_entry,
) -> c_int {
    status(|| {
        // SAFETY: the caller gives NULL or entries whose values are what the types say.
        unsafe {
            let (one, other) = (entry1.as_ref(), entry2.as_ref());
            let (Some(one), Some(other)) = (one, other) else { return Err(DER_INVAL) };
            if [one, other].iter().any(|entry| kind_of(entry.dpe_type) != Kind::Acl) {
                return Err(DER_INVAL);
            }
            let one = acl_bytes(one.value.dpe_val_ptr.cast());
            let other = acl_bytes(other.value.dpe_val_ptr.cast());
            if one == other { Ok(()) } else { Err(DER_MISMATCH) }
        }
    })
}

/// True when the value of the entry's type is a string.
///
/// # Safety
/// The caller gives NULL or an entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_prop_has_str(entry: *mut daos_prop_entry) -> bool {
    // SAFETY: the caller gives NULL or an entry.
    unsafe { entry.as_ref() }.is_some_and(|entry| valid::is_text(entry.dpe_type))
}

/// True when the value of the entry's type is memory.
///
/// # Safety
/// The caller gives NULL or an entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_prop_has_ptr(entry: *mut daos_prop_entry) -> bool {
    // SAFETY: the caller gives NULL or an entry.
    unsafe { entry.as_ref() }.is_some_and(|entry| valid::is_memory(entry.dpe_type))
}

/// False: no type has bytes for a value yet.
#[unsafe(no_mangle)]
pub extern "C" fn daos_prop_has_byteval(_entry: *mut daos_prop_entry) -> bool {
    false
}

/// `-DER_INVAL`: no type has bytes for a value yet. `-DER_NONEXIST` when the list does not have the
/// type at all.
///
/// # Safety
/// The caller gives NULL or a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_prop_set_byteval(
    prop: *mut daos_prop_t,
    property: u32,
    _data: *const c_void,
    _len: usize,
) -> c_int {
    // SAFETY: the caller gives NULL or a list.
    status(|| unsafe { entry_of(prop, property) }.and(Err(DER_INVAL)))
}

/// `-DER_INVAL`: no type has bytes for a value yet.
#[unsafe(no_mangle)]
pub extern "C" fn daos_prop_entry_set_byteval(
    _entry: *mut daos_prop_entry,
    _data: *const c_void,
    _len: usize,
) -> c_int {
    -DER_INVAL
}

/// Gives `entry_dst` a copy of the bytes that `entry_src` has; none when it has none.
///
/// # Safety
/// The caller gives NULL or two entries, the second's value NULL or bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_prop_entry_dup_byteval(
    entry_dst: *mut daos_prop_entry,
    entry_src: *mut daos_prop_entry,
) -> c_int {
    status(|| {
        // SAFETY: the caller gives NULL or two entries, the second's value NULL or bytes.
        unsafe {
            let (dst, src) = (entry_dst.as_mut(), entry_src.as_ref());
            let (Some(dst), Some(src)) = (dst, src) else { return Err(DER_INVAL) };
            let bytes: *const daos_prop_byteval = src.value.dpe_val_ptr.cast();
            match bytes.as_ref() {
                Some(bytes) if !bytes.dpb_data.is_null() && bytes.dpb_len > 0 => Err(DER_INVAL),
                _ => {
                    dst.value.dpe_val_ptr = null_mut();
                    Ok(())
                }
            }
        }
    })
}

/// Copies one entry into another, whose value is given back first.
///
/// # Safety
/// The caller gives NULL or two entries whose values are what the types say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_prop_entry_copy(
    entry: *mut daos_prop_entry,
    entry_dup: *mut daos_prop_entry,
) -> c_int {
    status(|| {
        // SAFETY: the caller gives NULL or two entries whose values are what the types say.
        unsafe {
            if entry == entry_dup {
                return if entry.is_null() { Err(DER_INVAL) } else { Ok(()) };
            }
            let (from, to) = (entry.as_ref(), entry_dup.as_mut());
            let (Some(from), Some(to)) = (from, to) else { return Err(DER_INVAL) };
            free_value(to);
            copy(from, to)
        }
    })
}

/// Fills `prop_req` in from `prop_reply`, as a query does.
///
/// # Safety
/// The caller gives NULL or lists whose values are what the types say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_prop_copy(
    prop_req: *mut daos_prop_t,
    prop_reply: *mut daos_prop_t,
) -> c_int {
    status(|| {
        // SAFETY: the caller gives NULL or lists whose values are what the types say.
        unsafe {
            if prop_req.is_null() || entries(prop_reply).is_empty() {
                return Err(DER_INVAL);
            }
            let mut values: Vec<(u32, Value)> = Vec::new();
            for entry in entries(prop_reply) {
                if let Some(value) = super::value(entry)? {
                    values.push((entry.dpe_type, value));
                }
            }
            super::answer(prop_req, &values)
        }
    })
}
