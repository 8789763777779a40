//! Hash functions that programs name: djb2 (Bernstein), MurmurHash64A (Appleby), 64-bit and 96-bit
//! integer mixes (Wang; Jenkins), jump consistent hash (Lamping and Veach, 2014).
//!
//! Their values are part of the interface: programs store them and compare between processes.

use std::ffi::{c_char, c_uint};

pub(super) fn djb2(bytes: &[u8]) -> u32 {
    bytes.iter().fold(5381, |hash: u32, &byte| hash.wrapping_mul(33).wrapping_add(byte as u32))
}

/// MurmurHash64A over `bytes`.
fn murmur64(bytes: &[u8], seed: u32) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    const R: u32 = 47;
    let mut hash = seed as u64 ^ (bytes.len() as u64).wrapping_mul(M);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(M);
        word ^= word >> R;
        hash = (hash ^ word.wrapping_mul(M)).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(M);
    }
    hash = (hash ^ hash >> R).wrapping_mul(M);
    hash ^ hash >> R
}

/// The `len` bytes behind a pointer; none for NULL.
///
/// # Safety
/// The caller gives `len` bytes.
unsafe fn bytes<'a>(pointer: *const u8, len: c_uint) -> &'a [u8] {
    if pointer.is_null() {
        return &[];
    }
    // SAFETY: the caller gives `len` bytes.
    unsafe { std::slice::from_raw_parts(pointer, len as usize) }
}

/// djb2 over `len` bytes.
///
/// # Safety
/// The caller gives NULL or `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hash_string_u32(string: *const c_char, len: c_uint) -> u32 {
    // SAFETY: the caller gives NULL or `len` bytes.
    djb2(unsafe { bytes(string.cast(), len) })
}

/// MurmurHash64A over `key_len` bytes.
///
/// # Safety
/// The caller gives NULL or `key_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hash_murmur64(key: *const u8, key_len: c_uint, seed: c_uint) -> u64 {
    // SAFETY: the caller gives NULL or `key_len` bytes.
    murmur64(unsafe { bytes(key, key_len) }, seed)
}

/// A permutation of the 64-bit numbers.
#[unsafe(no_mangle)]
pub extern "C" fn d_hash_mix64(key: u64) -> u64 {
    let key = (!key).wrapping_add(key << 21);
    let key = key ^ key >> 24;
    let key = key.wrapping_add(key << 3).wrapping_add(key << 8);
    let key = key ^ key >> 14;
    let key = key.wrapping_add(key << 2).wrapping_add(key << 4);
    let key = key ^ key >> 28;
    key.wrapping_add(key << 31)
}

/// Three 32-bit numbers into one.
#[unsafe(no_mangle)]
pub extern "C" fn d_hash_mix96(mut a: u32, mut b: u32, mut c: u32) -> u32 {
    for (right, left, down) in [(13, 8, 13), (12, 16, 5), (3, 10, 15)] {
        a = a.wrapping_sub(b).wrapping_sub(c) ^ c >> right;
        b = b.wrapping_sub(c).wrapping_sub(a) ^ a << left;
        c = c.wrapping_sub(a).wrapping_sub(b) ^ b >> down;
    }
    c
}

/// Where `value` belongs in `nhashes` ascending numbers: the last that is not above it, or 0.
///
/// # Safety
/// The caller gives `nhashes` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_hash_srch_u64(hashes: *mut u64, nhashes: c_uint, value: u64) -> c_uint {
    if hashes.is_null() || nhashes == 0 {
        return 0;
    }
    // SAFETY: the caller gives `nhashes` numbers.
    let hashes = unsafe { std::slice::from_raw_parts(hashes, nhashes as usize) };
    hashes.partition_point(|&hash| hash <= value).saturating_sub(1) as c_uint
}

/// The bucket of a key; growing by one bucket moves 1/n of the keys. 0 for no buckets.
#[unsafe(no_mangle)]
pub extern "C" fn d_hash_jump(mut key: u64, num_buckets: u32) -> u32 {
    let (mut bucket, mut next) = (0i64, 0i64);
    while next < num_buckets as i64 {
        bucket = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let spread = (1u64 << 31) as f64 / ((key >> 33) + 1) as f64;
        next = ((bucket + 1) as f64 * spread) as i64;
    }
    bucket as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers were taken from upstream's functions, run on the same input.
    #[test]
    fn values_are_the_ones_programs_know() {
        let text = b"The quick brown fox jumps over the lazy dog";
        assert_eq!(djb2(b""), 5381);
        assert_eq!(djb2(text), 885799134);
        assert_eq!(murmur64(b"", 0), 0);
        assert_eq!(murmur64(text, 0), 6163679885495272987);
        assert_eq!(murmur64(&text[..13], 2077), 9935781472344438893);
        assert_eq!(d_hash_mix64(1), 6614235796240398542);
        assert_eq!(d_hash_mix96(1, 2, 3), 3082062082);
        assert_eq!(d_hash_jump(12345, 1000), 938);
        assert_eq!(d_hash_jump(u64::MAX, 7), 2);
        assert_eq!(d_hash_jump(5, 0), 0);
    }

    #[test]
    fn search_finds_the_last_that_is_not_above() {
        let mut hashes = [10u64, 20, 20, 30];
        for (value, at) in [(0, 0), (10, 0), (19, 0), (20, 2), (29, 2), (30, 3), (u64::MAX, 3)] {
            // SAFETY: the numbers are there.
            assert_eq!(unsafe { d_hash_srch_u64(hashes.as_mut_ptr(), 4, value) }, at);
        }
        // SAFETY: NULL and no numbers are allowed.
        unsafe {
            assert_eq!(d_hash_srch_u64(std::ptr::null_mut(), 4, 1), 0);
            assert_eq!(d_hash_string_u32(std::ptr::null(), 9), 5381);
            assert_eq!(d_hash_murmur64(std::ptr::null(), 9, 0), 0);
        }
    }
}
