//! Waits for retries: some zeros, then random numbers below a bound that grows up to a limit.

use crate::errno::DER_INVAL;
use crate::gurt::random;
use std::ffi::c_int;

/// The state of a sequence; its memory is the caller's.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct d_backoff_seq {
    bos_flags: u8,
    bos_nzeros: u8,
    bos_factor: u16,
    bos_max: u32,
    bos_next: u32,
}

/// Begins a sequence: `nzeros` zeros, then bounds `next`, `next * factor`, ... up to `max`.
///
/// # Safety
/// The caller gives memory for a sequence.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_backoff_seq_init(
    seq: *mut d_backoff_seq,
    nzeros: u8,
    factor: u16,
    next: u32,
    max: u32,
) -> c_int {
    if seq.is_null() || factor == 0 || next == 0 || next > max {
        return -DER_INVAL;
    }
    let begun = d_backoff_seq {
        bos_flags: 0,
        bos_nzeros: nzeros,
        bos_factor: factor,
        bos_max: max,
        bos_next: next,
    };
    // SAFETY: the caller gives memory for a sequence.
    unsafe { seq.write(begun) };
    0
}

/// Ends a sequence; there is nothing to give back.
#[unsafe(no_mangle)]
pub extern "C" fn d_backoff_seq_fini(_seq: *mut d_backoff_seq) {}

/// The next wait, in the unit of the bounds.
///
/// # Safety
/// The caller gives NULL or a sequence.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_backoff_seq_next(seq: *mut d_backoff_seq) -> u32 {
    // SAFETY: the caller gives NULL or a sequence.
    let Some(seq) = (unsafe { seq.as_mut() }) else { return 0 };
    if seq.bos_nzeros > 0 {
        seq.bos_nzeros -= 1;
        return 0;
    }
    let bound = seq.bos_next;
    seq.bos_next = bound.saturating_mul(seq.bos_factor as u32).min(seq.bos_max);
    // Both ends can be drawn.
    (random::d_randd() * (bound as f64 + 1.0)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_grow_to_the_limit() {
        let mut seq =
            d_backoff_seq { bos_flags: 0, bos_nzeros: 0, bos_factor: 0, bos_max: 0, bos_next: 0 };
        // SAFETY: the sequence is a variable of this test; NULL is allowed.
        unsafe {
            assert_eq!(d_backoff_seq_init(&mut seq, 2, 0, 16, 100), -DER_INVAL);
            assert_eq!(d_backoff_seq_init(&mut seq, 2, 4, 101, 100), -DER_INVAL);
            assert_eq!(d_backoff_seq_init(std::ptr::null_mut(), 2, 4, 16, 100), -DER_INVAL);
            assert_eq!(d_backoff_seq_next(std::ptr::null_mut()), 0);
            assert_eq!(d_backoff_seq_init(&mut seq, 2, 4, 16, 100), 0);
            assert_eq!([d_backoff_seq_next(&mut seq), d_backoff_seq_next(&mut seq)], [0, 0]);
            for bound in [16, 64, 100, 100, 100] {
                assert_eq!(seq.bos_next, bound);
                assert!(d_backoff_seq_next(&mut seq) <= bound);
            }
            d_backoff_seq_fini(&mut seq);
            assert_eq!(d_backoff_seq_init(&mut seq, 0, 65_535, u32::MAX - 1, u32::MAX), 0);
            d_backoff_seq_next(&mut seq);
            assert_eq!(seq.bos_next, u32::MAX);
        }
    }
}
