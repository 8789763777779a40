//! Bytes that a stream of the C library's holds and has not written yet.
//!
//! The library tells how many they are, not where. Where is one field of `FILE`, whose place
//! is tried on a stream with a buffer of ours before it is believed.

use libc::{FILE, c_char, c_void, size_t};
use std::sync::OnceLock;

/// Where a stream has the address of its first byte not written: after a number and three
/// addresses, in all versions of the GNU C library with 64 bits.
const WRITE_BASE: usize = 32;

// SAFETY: the forms are those of the C library.
unsafe extern "C" {
    fn __fpending(stream: *mut FILE) -> size_t;
    fn fmemopen(memory: *mut c_void, bytes: size_t, mode: *const c_char) -> *mut FILE;
}

/// What a stream has not written; none when it cannot be known.
///
/// # Safety
/// An open stream that nobody else uses. The bytes are valid until it is used again.
pub unsafe fn of<'a>(stream: *mut FILE) -> Option<&'a [u8]> {
    // SAFETY: by the caller's promise; where the field is, was tried.
    unsafe {
        let pending = __fpending(stream);
        if pending == 0 {
            return Some(&[]);
        }
        if !is_known() {
            return None;
        }
        Some(std::slice::from_raw_parts(base(stream), pending))
    }
}

/// # Safety
/// An open stream.
unsafe fn base(stream: *mut FILE) -> *const u8 {
    // SAFETY: a stream is longer than this in every version.
    unsafe { *stream.byte_add(WRITE_BASE).cast::<*const u8>() }
}

/// Tries the place of the field in the C library that runs.
fn is_known() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let (mut memory, mut buffer) = ([0u8; 64], [0u8; 64]);
        // SAFETY: memory and buffer outlive the stream, which is closed here.
        unsafe {
            let stream = fmemopen(memory.as_mut_ptr().cast(), memory.len(), c"w".as_ptr());
            if stream.is_null() {
                return false;
            }
            let room: *mut c_char = buffer.as_mut_ptr().cast();
            let is_set = libc::setvbuf(stream, room, libc::_IOFBF, buffer.len()) == 0;
            // One by one: what is longer than a small buffer's room goes past it.
            let put = libc::fputc(i32::from(b'a'), stream) >= 0
                && libc::fputc(i32::from(b'b'), stream) >= 0;
            let found = is_set
                && put
                && __fpending(stream) == 2
                && std::ptr::eq(base(stream), buffer.as_ptr());
            libc::fclose(stream);
            found
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The place was taken for granted once, in whatever C library there is.
    #[test]
    fn the_running_c_library_has_the_field_where_it_is_looked_for() {
        assert!(is_known());
        // SAFETY: a stream of this test's own.
        unsafe {
            let stream = libc::tmpfile();
            assert!(!stream.is_null());
            assert_eq!(of(stream), Some(&[][..]));
            assert!(libc::fputs(c"pending".as_ptr(), stream) >= 0);
            assert_eq!(of(stream), Some(&b"pending"[..]));
            libc::fclose(stream);
        }
    }
}
