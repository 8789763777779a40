//! A growing array of pointers.

use crate::errno::{DER_INVAL, DER_NOMEM};
use crate::gurt::alloc;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

/// The array; `p_len` of `p_cap` pointers are in use.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct d_vec_pointers {
    p_buf: *mut *mut c_void,
    p_cap: u32,
    p_len: u32,
}

/// Begins an empty array with room for `cap` pointers.
///
/// # Safety
/// The caller gives memory for an array.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_vec_pointers_init(pointers: *mut d_vec_pointers, cap: u32) -> c_int {
    if pointers.is_null() {
        return -DER_INVAL;
    }
    let room: *mut *mut c_void = if cap == 0 { null_mut() } else { alloc::array(cap as usize) };
    if cap > 0 && room.is_null() {
        return -DER_NOMEM;
    }
    // SAFETY: the caller gives memory for an array.
    unsafe { pointers.write(d_vec_pointers { p_buf: room, p_cap: cap, p_len: 0 }) };
    0
}

/// Gives the array's memory back; what the pointers point to stays.
///
/// # Safety
/// The caller gives an array.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_vec_pointers_fini(pointers: *mut d_vec_pointers) {
    if pointers.is_null() {
        return;
    }
    // SAFETY: the caller gives an array.
    unsafe {
        alloc::free((*pointers).p_buf);
        pointers.write(d_vec_pointers { p_buf: null_mut(), p_cap: 0, p_len: 0 });
    }
}

/// One pointer more.
///
/// # Safety
/// The caller gives NULL or an array.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_vec_pointers_append(
    pointers: *mut d_vec_pointers,
    pointer: *mut c_void,
) -> c_int {
    // SAFETY: the caller gives NULL or an array.
    let Some(array) = (unsafe { pointers.as_mut() }) else { return -DER_INVAL };
    if array.p_len == array.p_cap {
        let Some(cap) = array.p_cap.max(1).checked_mul(2) else { return -DER_NOMEM };
        let bytes = cap as usize * size_of::<*mut c_void>();
        // SAFETY: the memory came from the C allocator.
        let grown = unsafe { libc::realloc(array.p_buf.cast(), bytes) };
        if grown.is_null() {
            return -DER_NOMEM;
        }
        array.p_buf = grown.cast();
        array.p_cap = cap;
    }
    // SAFETY: there is room for one more.
    unsafe { array.p_buf.add(array.p_len as usize).write(pointer) };
    array.p_len += 1;
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_stay_in_order() {
        for cap in [0, 1, 7] {
            let mut array = d_vec_pointers { p_buf: null_mut(), p_cap: 9, p_len: 9 };
            // SAFETY: the array is a variable of this test.
            unsafe {
                assert_eq!(d_vec_pointers_init(&mut array, cap), 0);
                for at in 0..100usize {
                    assert_eq!(d_vec_pointers_append(&mut array, at as *mut c_void), 0);
                }
                let kept = std::slice::from_raw_parts(array.p_buf, array.p_len as usize);
                assert!(kept.iter().map(|&pointer| pointer as usize).eq(0..100));
                d_vec_pointers_fini(&mut array);
                assert!(array.p_buf.is_null());
            }
        }
    }
}
