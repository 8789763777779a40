//! The pseudo-random numbers of `d_rand`: the 48-bit linear congruential generator that POSIX
//! specifies for `lrand48`, one sequence for the process.

use std::ffi::c_long;
use std::sync::atomic::{AtomicU64, Ordering};

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const MASK: u64 = (1 << 48) - 1;

static STATE: AtomicU64 = AtomicU64::new(0);

fn next() -> u64 {
    let step = |state: u64| state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & MASK;
    let before =
        STATE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| Some(step(state)));
    step(before.unwrap_or(0))
}

/// Starts the sequence anew.
#[unsafe(no_mangle)]
pub extern "C" fn d_srand(seed: c_long) {
    STATE.store((seed as u64 & 0xffff_ffff) << 16 | 0x330E, Ordering::Relaxed);
}

/// 0 to 2^31 - 1.
#[unsafe(no_mangle)]
pub extern "C" fn d_rand() -> c_long {
    (next() >> 17) as c_long
}

/// 0 to 1, without 1.
#[unsafe(no_mangle)]
pub extern "C" fn d_randd() -> f64 {
    next() as f64 / (1u64 << 48) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_one_of_posix() {
        // SAFETY: the C library's generator is used by this test alone.
        let wanted: Vec<c_long> = unsafe {
            libc::srand48(4711);
            (0..1000).map(|_| libc::lrand48()).collect()
        };
        d_srand(4711);
        // Other tests may draw as well; then the sequence is thinned out, not changed.
        let drawn: Vec<c_long> = (0..200).map(|_| d_rand()).collect();
        let mut at = wanted.iter();
        assert!(drawn.iter().all(|number| at.any(|wanted| wanted == number)));
        assert!((0..1000).all(|_| (0.0..1.0).contains(&d_randd())));
    }
}
