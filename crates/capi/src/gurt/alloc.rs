//! Memory from the C allocator, for everything whose owner is a C program.
//!
//! Programs free what they got with `free`, `d_free` or `D_FREE`; all are the same here.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

/// Zeroed memory for `count` values, or NULL. At least one byte is taken, so that NULL always
/// means that there was no memory.
pub(crate) fn array<T>(count: usize) -> *mut T {
    // SAFETY: calloc checks the product; the memory is new.
    unsafe { libc::calloc(count.max(1), size_of::<T>().max(1)).cast() }
}

/// A copy of `bytes`, or NULL.
pub(crate) fn bytes(bytes: &[u8]) -> *mut u8 {
    let copy = array::<u8>(bytes.len());
    if !copy.is_null() {
        // SAFETY: the new memory has room for as many bytes.
        unsafe { copy.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
    copy
}

/// A copy of `text` with a NUL behind it, or NULL.
pub(crate) fn string(text: &[u8]) -> *mut c_char {
    let copy = array::<u8>(text.len().saturating_add(1));
    if !copy.is_null() {
        // SAFETY: the new memory has one byte more, and is zeroed.
        unsafe { copy.copy_from_nonoverlapping(text.as_ptr(), text.len()) };
    }
    copy.cast()
}

/// Gives memory back. NULL is fine.
///
/// # Safety
/// `memory` came from the C allocator and is given back once.
pub(crate) unsafe fn free<T>(memory: *mut T) {
    // SAFETY: the caller's promise.
    unsafe { libc::free(memory.cast()) }
}

/// Gives memory back. NULL is fine.
///
/// # Safety
/// The caller gives back memory of the C allocator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_free(ptr: *mut c_void) {
    // SAFETY: the caller gives back memory of the C allocator.
    unsafe { libc::free(ptr) }
}

/// Zeroed memory for `nmemb` values of `size` bytes.
///
/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_calloc(nmemb: usize, size: usize) -> *mut c_void {
    // SAFETY: no pointer goes in.
    unsafe { libc::calloc(nmemb, size) }
}

/// Memory as it comes.
///
/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_malloc(size: usize) -> *mut c_void {
    // SAFETY: no pointer goes in.
    unsafe { libc::malloc(size) }
}

/// Resizes memory; on NULL the old memory is still there.
///
/// # Safety
/// The caller owns the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_realloc(ptr: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller owns the memory.
    unsafe { libc::realloc(ptr, size) }
}

/// A copy of at most `n` bytes of a string, with a NUL behind. NULL for NULL.
///
/// # Safety
/// The caller gives a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_strndup(s: *const c_char, n: usize) -> *mut c_char {
    if s.is_null() {
        return null_mut();
    }
    // SAFETY: the caller gives a string.
    unsafe { libc::strndup(s, n) }
}

/// The path without links, `.` and `..`; NULL and `errno` when there is none.
///
/// # Safety
/// The caller gives a string, and NULL or PATH_MAX bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_realpath(path: *const c_char, resolved: *mut c_char) -> *mut c_char {
    // SAFETY: the caller gives a string, and NULL or PATH_MAX bytes; NULL for `path` is EINVAL.
    unsafe { libc::realpath(path, resolved) }
}

/// Memory at a multiple of `alignment` (a power of two), zeroed if asked.
///
/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_aligned_alloc(alignment: usize, size: usize, zero: bool) -> *mut c_void {
    let mut memory = null_mut();
    let alignment = alignment.max(size_of::<*mut c_void>());
    // SAFETY: the result is written to a variable of ours.
    let failed: c_int = unsafe { libc::posix_memalign(&mut memory, alignment, size) };
    if failed != 0 {
        return null_mut();
    }
    if zero {
        // SAFETY: the new memory has `size` bytes.
        unsafe { memory.cast::<u8>().write_bytes(0, size) };
    }
    memory
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn memory_goes_out_and_comes_back() {
        // SAFETY: each piece is given back once and used within its size.
        unsafe {
            let text = string(b"abc");
            assert_eq!(CStr::from_ptr(text).to_bytes(), b"abc");
            let cut = d_strndup(text, 2);
            assert_eq!(CStr::from_ptr(cut).to_bytes(), b"ab");
            assert!(d_strndup(null_mut(), 2).is_null());
            let aligned = d_aligned_alloc(4096, 100, true);
            assert_eq!(aligned as usize % 4096, 0);
            assert!(std::slice::from_raw_parts(aligned.cast::<u8>(), 100).iter().all(|&b| b == 0));
            assert!(d_aligned_alloc(24, 100, false).is_null());
            let root = d_realpath(c"/tmp/..".as_ptr(), null_mut());
            assert_eq!(CStr::from_ptr(root).to_bytes(), b"/");
            d_free(root.cast());
            d_free(aligned);
            free(cut);
            d_free(text.cast());
            d_free(null_mut());
        }
    }
}
