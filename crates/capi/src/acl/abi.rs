//! The functions on lists and entries that C programs call.

use super::{
    Ace, Acl, ENTRY_BYTES, EVERYONE, HEAD_BYTES, give_texts, needs_name, principal, text, texts_of,
};
use crate::ctypes::{daos_ace, daos_acl};
use crate::errno::{DER_INVAL, DER_NOMEM, DER_NONEXIST, DER_TRUNC};
use crate::gurt::{Outcome, alloc, shielded, status};
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr::null_mut;

fn given<T>(memory: *mut T) -> Outcome<*mut T> {
    if memory.is_null() { Err(DER_NOMEM) } else { Ok(memory) }
}

/// # Safety
/// The caller gives NULL or a string.
unsafe fn bytes<'a>(text: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: the caller gives NULL or a string.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// A principal type from C, and the name that goes with it.
///
/// # Safety
/// The caller gives NULL or a string.
unsafe fn who<'a>(kind: c_uint, name: *const c_char) -> Outcome<(u8, &'a [u8])> {
    let kind = u8::try_from(kind).ok().filter(|&kind| kind <= EVERYONE).ok_or(DER_INVAL)?;
    if !needs_name(kind) {
        return Ok((kind, &[]));
    }
    // SAFETY: the caller gives NULL or a string.
    let name = unsafe { bytes(name) };
    Ok((kind, name.filter(|name| !name.is_empty()).ok_or(DER_INVAL)?))
}

/// Puts another list in the place of one.
///
/// # Safety
/// The caller gives a list of the C allocator, and it goes now.
unsafe fn replace(place: *mut *mut daos_acl, list: &Acl) -> Outcome {
    let new = given(list.give())?;
    // SAFETY: the caller gives a list of the C allocator, and it goes now.
    unsafe {
        alloc::free(*place);
        place.write(new);
    }
    Ok(())
}

/// A list of entries, put in order; NULL when one is NULL or there is no memory. The caller frees
/// it with `daos_acl_free`.
///
/// # Safety
/// The caller gives `num_aces` pointers, each NULL or an entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_acl_create(aces: *mut *mut daos_ace, num_aces: u16) -> *mut daos_acl {
    shielded(null_mut(), || {
        if aces.is_null() && num_aces > 0 {
            return null_mut();
        }
        // SAFETY: the caller gives `num_aces` pointers, each NULL or an entry.
        let entries: Outcome<Vec<Ace>> =
            (0..num_aces as usize).map(|at| unsafe { Ace::read(*aces.add(at)) }).collect();
        entries.map_or(null_mut(), |entries| Acl::new(entries).give())
    })
}

/// A copy; NULL for NULL.
///
/// # Safety
/// The caller gives NULL or a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_acl_dup(acl: *mut daos_acl) -> *mut daos_acl {
    // SAFETY: the caller gives NULL or a list.
    unsafe {
        match usize::try_from(daos_acl_get_size(acl)) {
            Ok(size) => alloc::bytes(std::slice::from_raw_parts(acl.cast(), size)).cast(),
            Err(_) => null_mut(),
        }
    }
}

/// Gives a list back. NULL is fine.
///
/// # Safety
/// The caller gives back what a function here gave.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_acl_free(acl: *mut daos_acl) {
    // SAFETY: the caller gives back what a function here gave.
    unsafe { alloc::free(acl) }
}

/// Bytes of a list with its entries; `-DER_INVAL` for NULL.
///
/// # Safety
/// The caller gives NULL or a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_acl_get_size(acl: *mut daos_acl) -> isize {
    // SAFETY: the caller gives NULL or a list.
    match unsafe { acl.as_ref() } {
        Some(list) => (HEAD_BYTES + list.dal_len as usize) as isize,
        None => -DER_INVAL as isize,
    }
}

/// The entry behind one, the first for NULL; NULL behind the last.
///
/// # Safety
/// The caller gives a list, and NULL or an entry of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_acl_get_next_ace(
    acl: *mut daos_acl,
    current_ace: *mut daos_ace,
) -> *mut daos_ace {
    if acl.is_null() {
        return null_mut();
    }
    // SAFETY: the caller gives a list, and NULL or an entry of it.
    unsafe {
        let first = acl.cast::<u8>().wrapping_add(HEAD_BYTES);
        let end = first as usize + (*acl).dal_len as usize;
        let at = match current_ace.is_null() {
            true => first,
            false => {
                let at = current_ace as usize;
                // Not an entry of this list.
                if at < first as usize || at.saturating_add(ENTRY_BYTES) > end {
                    return null_mut();
                }
                let name = current_ace.read_unaligned().dae_principal_len as usize;
                current_ace.cast::<u8>().wrapping_add(ENTRY_BYTES + name)
            }
        };
        // An entry that is cut off is not one.
        if (at as usize).saturating_add(ENTRY_BYTES) > end {
            return null_mut();
        }
        let entry = at.cast::<daos_ace>();
        let length = ENTRY_BYTES + entry.read_unaligned().dae_principal_len as usize;
        if at as usize + length > end { null_mut() } else { entry }
    }
}

/// The entry about a principal, inside the list. `-DER_NONEXIST` when there is none.
///
/// # Safety
/// The caller gives a list, NULL or a string, and room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_acl_get_ace_for_principal(
    acl: *mut daos_acl,
    kind: c_uint,
    principal: *const c_char,
    ace: *mut *mut daos_ace,
) -> c_int {
    status(|| {
        if acl.is_null() || ace.is_null() {
            return Err(DER_INVAL);
        }
        // SAFETY: the caller gives a list, NULL or a string, and room for a pointer.
        unsafe {
            let (kind, name) = who(kind, principal)?;
            let mut at = daos_acl_get_next_ace(acl, null_mut());
            while !at.is_null() {
                if Ace::read(at)?.is_about(kind, name) {
                    ace.write(at);
                    return Ok(());
                }
                at = daos_acl_get_next_ace(acl, at);
            }
            Err(DER_NONEXIST)
        }
    })
}

/// Puts an entry in its place in the list, instead of an older one about the same principal. The
/// list may move.
///
/// # Safety
/// The caller gives NULL or a list of the C allocator, and NULL or an entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_acl_add_ace(
    acl: *mut *mut daos_acl,
    new_ace: *mut daos_ace,
) -> c_int {
    status(|| {
        if acl.is_null() {
            return Err(DER_INVAL);
        }
        // SAFETY: the caller gives NULL or a list of the C allocator, and NULL or an entry.
        unsafe {
            let (mut list, new) = (Acl::read(*acl)?, Ace::read(new_ace)?);
            match list.position(new.principal_type, &new.name) {
                Ok(at) => list.entries[at] = new,
                Err(_) => {
                    let later = |entry: &Ace| entry.principal_type > new.principal_type;
                    let at = list.entries.iter().position(later).unwrap_or(list.entries.len());
                    list.entries.insert(at, new);
                }
            }
            replace(acl, &list)
        }
    })
}

/// Takes the entry about a principal out. The list moves. `-DER_NONEXIST` when there is none.
///
/// # Safety
/// The caller gives NULL or a list of the C allocator, and NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_acl_remove_ace(
    acl: *mut *mut daos_acl,
    kind: c_uint,
    principal_name: *const c_char,
) -> c_int {
    status(|| {
        if acl.is_null() {
            return Err(DER_INVAL);
        }
        // SAFETY: the caller gives NULL or a list of the C allocator, and NULL or a string.
        unsafe {
            let (kind, name) = who(kind, principal_name)?;
            let mut list = Acl::read(*acl)?;
            list.position(kind, name)?;
            list.entries.retain(|entry| !entry.is_about(kind, name));
            replace(acl, &list)
        }
    })
}

/// 0 for a list that makes sense, `-DER_INVAL` for any other and for NULL.
///
/// # Safety
/// The caller gives NULL or a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_acl_validate(acl: *mut daos_acl) -> c_int {
    status(|| {
        // SAFETY: the caller gives NULL or a list.
        let list = unsafe { Acl::read(acl) }?;
        if list.is_valid() { Ok(()) } else { Err(DER_INVAL) }
    })
}

/// An entry that says nothing yet; NULL for a type that is none, or that misses its name. The
/// caller frees it with `daos_ace_free`.
///
/// # Safety
/// The caller gives NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_ace_create(
    kind: c_uint,
    principal_name: *const c_char,
) -> *mut daos_ace {
    shielded(null_mut(), || {
        // SAFETY: the caller gives NULL or a string.
        let name = unsafe { bytes(principal_name) };
        let entry = u8::try_from(kind).map_err(|_| DER_INVAL).and_then(|kind| Ace::new(kind, name));
        entry.map_or(null_mut(), |entry| entry.give())
    })
}

/// Gives an entry back. NULL is fine.
///
/// # Safety
/// The caller gives back what a function here gave.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_ace_free(ace: *mut daos_ace) {
    // SAFETY: the caller gives back what a function here gave.
    unsafe { alloc::free(ace) }
}

/// Bytes of an entry with its name; `-DER_INVAL` for NULL.
///
/// # Safety
/// The caller gives an entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_ace_get_size(ace: *mut daos_ace) -> isize {
    if ace.is_null() {
        return -DER_INVAL as isize;
    }
    // SAFETY: the caller gives an entry.
    (ENTRY_BYTES + unsafe { ace.read_unaligned() }.dae_principal_len as usize) as isize
}

/// True for an entry that makes sense.
///
/// # Safety
/// The caller gives NULL or an entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_ace_is_valid(ace: *mut daos_ace) -> bool {
    // SAFETY: the caller gives NULL or an entry.
    shielded(false, || unsafe { Ace::read(ace) }.is_ok_and(|entry| entry.is_valid()))
}

/// The name in an entry, or the special name of its type; NULL for NULL.
///
/// # Safety
/// The caller gives an entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_ace_get_principal_str(ace: *mut daos_ace) -> *const c_char {
    if ace.is_null() {
        return std::ptr::null();
    }
    // SAFETY: the caller gives an entry.
    let head = unsafe { ace.read_unaligned() };
    match principal::special(head.dae_principal_type) {
        Some("OWNER@") => c"OWNER@".as_ptr(),
        Some("GROUP@") => c"GROUP@".as_ptr(),
        Some(_) => c"EVERYONE@".as_ptr(),
        // An entry without a name has nothing behind its head.
        None if head.dae_principal_len == 0 => c"".as_ptr(),
        None => ace.cast::<c_char>().wrapping_add(ENTRY_BYTES),
    }
}

/// Reads an entry from text; the caller frees it with `daos_ace_free`.
///
/// # Safety
/// The caller gives NULL or a string, and room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_ace_from_str(str: *const c_char, ace: *mut *mut daos_ace) -> c_int {
    status(|| {
        if ace.is_null() {
            return Err(DER_INVAL);
        }
        // SAFETY: the caller gives NULL or a string, and room for a pointer.
        unsafe { ace.write(given(text::entry(bytes(str).ok_or(DER_INVAL)?)?.give())?) };
        Ok(())
    })
}

/// Writes as much of a text as fits, with a NUL; `Trunc` when that is not all.
///
/// # Safety
/// The caller gives a buffer of `buf_len` bytes, at least one.
unsafe fn put(text: &str, buf: *mut c_char, buf_len: usize) -> Outcome {
    let kept = text.len().min(buf_len - 1);
    // SAFETY: the caller gives a buffer of `buf_len` bytes, at least one.
    unsafe {
        buf.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), kept);
        buf.add(kept).write(0);
    }
    if kept < text.len() { Err(DER_TRUNC) } else { Ok(()) }
}

/// Writes an entry as text. `-DER_TRUNC` when the buffer is too small; `-DER_INVAL` for an entry
/// that makes no sense, or whose access types have different permissions.
///
/// # Safety
/// The caller gives NULL or an entry, and `buf_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_ace_to_str(
    ace: *mut daos_ace,
    buf: *mut c_char,
    buf_len: usize,
) -> c_int {
    status(|| {
        if buf.is_null() || buf_len == 0 {
            return Err(DER_INVAL);
        }
        // SAFETY: the caller gives NULL or an entry, and `buf_len` bytes.
        unsafe { put(&text::of_entry(&Ace::read(ace)?)?, buf, buf_len) }
    })
}

/// Writes an entry's text with words for letters. `-DER_TRUNC` when the buffer is too small.
///
/// # Safety
/// The caller gives NULL or a string, and `buf_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_ace_str_get_verbose(
    ace_str: *const c_char,
    buf: *mut c_char,
    buf_len: usize,
) -> c_int {
    status(|| {
        if buf.is_null() || buf_len == 0 {
            return Err(DER_INVAL);
        }
        // SAFETY: the caller gives NULL or a string, and `buf_len` bytes.
        unsafe { put(&text::verbose(bytes(ace_str).ok_or(DER_INVAL)?)?, buf, buf_len) }
    })
}

/// A list from entries as text; the caller frees it with `daos_acl_free`.
///
/// # Safety
/// The caller gives `ace_nr` pointers, each NULL or a string, and room for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_acl_from_strs(
    ace_strs: *const *const c_char,
    ace_nr: usize,
    acl: *mut *mut daos_acl,
) -> c_int {
    status(|| {
        if ace_strs.is_null() || ace_nr == 0 || acl.is_null() {
            return Err(DER_INVAL);
        }
        // SAFETY: the caller gives `ace_nr` pointers, each NULL or a string, and room for one.
        unsafe {
            let texts: Option<Vec<&[u8]>> =
                (0..ace_nr).map(|at| bytes(*ace_strs.add(at))).collect();
            acl.write(give_texts(&texts.ok_or(DER_INVAL)?)?);
        }
        Ok(())
    })
}

/// A list as texts; the caller frees each and the array. NULL for a list without entries.
///
/// # Safety
/// The caller gives NULL or a list, and room for a pointer and a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_acl_to_strs(
    acl: *mut daos_acl,
    ace_strs: *mut *mut *mut c_char,
    ace_nr: *mut usize,
) -> c_int {
    status(|| {
        if ace_strs.is_null() || ace_nr.is_null() {
            return Err(DER_INVAL);
        }
        // SAFETY: the caller gives NULL or a list, and room for a pointer and a number.
        unsafe {
            let texts = texts_of(acl)?;
            let mut array: *mut *mut c_char = null_mut();
            if !texts.is_empty() {
                array = given(alloc::array(texts.len()))?;
            }
            for (at, text) in texts.iter().enumerate() {
                let copy = alloc::string(text.as_bytes());
                if copy.is_null() {
                    (0..at).for_each(|made| alloc::free(*array.add(made)));
                    alloc::free(array);
                    return Err(DER_NOMEM);
                }
                array.add(at).write(copy);
            }
            ace_strs.write(array);
            ace_nr.write(texts.len());
        }
        Ok(())
    })
}
