//! Kernels for the vector instructions of x86-64.
//!
//! One loop, written out for each instruction set by a macro, since a function can have the instructions
//! of one set only: for two vectors of each of up to eight sources, in turn, the products are summed into two vectors
//! of each output, which stay in registers (three outputs take six of sixteen).

use super::scalar;
use crate::factors::{Factor, Factors};
use std::arch::x86_64::*;
use std::ops::Range;

/// Outputs that are summed at once.
const ROWS_MAX: usize = 3;
/// Sources that are read in turn. Cells are often a power of two apart, so that the same places of all of them meet in
/// one set of a cache, which has 8 to 16 ways; reading 16 such sources in turn takes three times as long.
const SOURCES_MAX: usize = 8;
/// Bytes of the outputs that stay in the first cache while group after group of sources is added to them.
const BLOCK_BYTES: usize = 4096;

/// The loop, in a module that has `Vector`, `BYTES`, `Multiplier`, `load`, `store`, `zero`, `xor`,
/// `multiplier` and `times`, all for the instruction set `$features`.
macro_rules! kernel {
    ($features:literal) => {
        /// See `Kernel::combine`, which has checked that the cells fit and the machine has the instructions.
        pub fn combine(factors: &Factors, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
            let length = outputs.first().map_or(0, |cell| cell.len());
            let whole = length - length % (2 * BYTES);
            let sum = match (outputs.len(), factors.is_xor(0)) {
                (1, false) => sum_block::<1, false>,
                (1, true) => sum_block::<1, true>,
                (2, false) => sum_block::<2, false>,
                (2, true) => sum_block::<2, true>,
                (3, false) => sum_block::<3, false>,
                (3, true) => sum_block::<3, true>,
                (rows, _) => unreachable!("{rows} outputs; `Code` asks for 1 to {ROWS_MAX}"),
            };
            for start in (0..whole).step_by(BLOCK_BYTES) {
                let block = start..whole.min(start + BLOCK_BYTES);
                for first in (0..sources.len()).step_by(SOURCES_MAX) {
                    let columns = first..sources.len().min(first + SOURCES_MAX);
                    // SAFETY: the machine has the instructions, and all cells have the same length, by the checks
                    // of the one caller, `Kernel::combine`; `block` is whole pairs of vectors within it.
                    unsafe { sum(factors, columns, sources, outputs, block.clone()) };
                }
            }
            scalar::combine(factors, sources, outputs, whole);
        }

        /// Sums the products of the sources `columns` into the bytes `block` of the outputs: the first source's anew,
        /// others' onto what is there. With `XOR_FIRST` the factors of the first output are all 1.
        ///
        /// # Safety
        /// The machine has the instructions; every cell has the bytes of `block`, whose length is a
        /// multiple of two vectors.
        #[target_feature(enable = $features)]
        unsafe fn sum_block<const ROWS: usize, const XOR_FIRST: bool>(
            factors: &Factors,
            columns: Range<usize>,
            sources: &[&[u8]],
            outputs: &mut [&mut [u8]],
            block: Range<usize>,
        ) {
            let rows: [&[Factor]; ROWS] =
                std::array::from_fn(|row| &factors.row(row)[columns.clone()]);
            let anew = columns.start == 0;
            let sources = &sources[columns];
            for at in block.step_by(2 * BYTES) {
                let mut sums = [[zero(); 2]; ROWS];
                if !anew {
                    for (sum, output) in sums.iter_mut().zip(outputs.iter()) {
                        // SAFETY: `at + 2 * BYTES` is at most the length of every cell.
                        *sum = unsafe {
                            let here = output.as_ptr().add(at);
                            [load(here), load(here.add(BYTES))]
                        };
                    }
                }
                for (column, source) in sources.iter().enumerate() {
                    // SAFETY: as above.
                    let (low, high) = unsafe {
                        let here = source.as_ptr().add(at);
                        (load(here), load(here.add(BYTES)))
                    };
                    for row in 0..ROWS {
                        let sum = &mut sums[row];
                        if XOR_FIRST && row == 0 {
                            *sum = [xor(sum[0], low), xor(sum[1], high)];
                        } else {
                            let by = multiplier(&rows[row][column]);
                            *sum = [xor(sum[0], times(by, low)), xor(sum[1], times(by, high))];
                        }
                    }
                }
                for (sum, output) in sums.iter().zip(outputs.iter_mut()) {
                    // SAFETY: as above.
                    unsafe {
                        let here = output.as_mut_ptr().add(at);
                        store(here, sum[0]);
                        store(here.add(BYTES), sum[1]);
                    }
                }
            }
        }
    };
}

pub mod ssse3 {
    //! 16 bytes at a time, by shuffles of two tables.
    use super::*;

    type Vector = __m128i;
    const BYTES: usize = size_of::<Vector>();
    /// Products of low and of high halves of bytes.
    type Multiplier = (Vector, Vector);

    /// # Safety
    /// `BYTES` bytes are there to be read.
    #[target_feature(enable = "ssse3")]
    unsafe fn load(from: *const u8) -> Vector {
        // SAFETY: by the caller; no alignment is asked for.
        unsafe { _mm_loadu_si128(from.cast()) }
    }

    /// # Safety
    /// `BYTES` bytes are there to be written.
    #[target_feature(enable = "ssse3")]
    unsafe fn store(to: *mut u8, vector: Vector) {
        // SAFETY: by the caller; no alignment is asked for.
        unsafe { _mm_storeu_si128(to.cast(), vector) }
    }

    #[target_feature(enable = "ssse3")]
    fn zero() -> Vector {
        _mm_setzero_si128()
    }

    #[target_feature(enable = "ssse3")]
    fn xor(a: Vector, b: Vector) -> Vector {
        _mm_xor_si128(a, b)
    }

    #[target_feature(enable = "ssse3")]
    fn multiplier(factor: &Factor) -> Multiplier {
        let tables = factor.nibbles.as_ptr();
        // SAFETY: the tables are of 16 bytes each, one after the other.
        unsafe { (load(tables), load(tables.add(16))) }
    }

    #[target_feature(enable = "ssse3")]
    fn times((low, high): Multiplier, bytes: Vector) -> Vector {
        let half = _mm_set1_epi8(0x0f);
        let of_low = _mm_shuffle_epi8(low, _mm_and_si128(bytes, half));
        let of_high = _mm_shuffle_epi8(high, _mm_and_si128(_mm_srli_epi64::<4>(bytes), half));
        _mm_xor_si128(of_low, of_high)
    }

    kernel!("ssse3");
}

/// What vectors of 32 bytes have in common.
macro_rules! wide {
    ($features:literal) => {
        type Vector = __m256i;
        const BYTES: usize = size_of::<Vector>();

        /// # Safety
        /// `BYTES` bytes are there to be read.
        #[target_feature(enable = $features)]
        unsafe fn load(from: *const u8) -> Vector {
            // SAFETY: by the caller; no alignment is asked for.
            unsafe { _mm256_loadu_si256(from.cast()) }
        }

        /// # Safety
        /// `BYTES` bytes are there to be written.
        #[target_feature(enable = $features)]
        unsafe fn store(to: *mut u8, vector: Vector) {
            // SAFETY: by the caller; no alignment is asked for.
            unsafe { _mm256_storeu_si256(to.cast(), vector) }
        }

        #[target_feature(enable = $features)]
        fn zero() -> Vector {
            _mm256_setzero_si256()
        }

        #[target_feature(enable = $features)]
        fn xor(a: Vector, b: Vector) -> Vector {
            _mm256_xor_si256(a, b)
        }
    };
}

pub mod avx2 {
    //! 32 bytes at a time, by shuffles of two tables.
    use super::*;

    /// Products of low and of high halves of bytes, each twice.
    type Multiplier = (Vector, Vector);

    #[target_feature(enable = "avx2")]
    fn multiplier(factor: &Factor) -> Multiplier {
        let tables = factor.nibbles.as_ptr().cast::<__m128i>();
        // SAFETY: the tables are of 16 bytes each, one after the other; no alignment is asked for.
        let (low, high) = unsafe { (_mm_loadu_si128(tables), _mm_loadu_si128(tables.add(1))) };
        (_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high))
    }

    #[target_feature(enable = "avx2")]
    fn times((low, high): Multiplier, bytes: Vector) -> Vector {
        let half = _mm256_set1_epi8(0x0f);
        let of_low = _mm256_shuffle_epi8(low, _mm256_and_si256(bytes, half));
        let high_halves = _mm256_and_si256(_mm256_srli_epi64::<4>(bytes), half);
        _mm256_xor_si256(of_low, _mm256_shuffle_epi8(high, high_halves))
    }

    wide!("avx2");
    kernel!("avx2");
}

pub mod gfni {
    //! 32 bytes at a time, by an instruction that multiplies by a matrix of bits. (The instruction that
    //! multiplies in a field knows another polynomial, 0x11b, only.)
    use super::*;

    /// The matrix, four times.
    type Multiplier = Vector;

    #[target_feature(enable = "gfni,avx2")]
    fn multiplier(factor: &Factor) -> Multiplier {
        _mm256_set1_epi64x(factor.bits.cast_signed())
    }

    #[target_feature(enable = "gfni,avx2")]
    fn times(by: Multiplier, bytes: Vector) -> Vector {
        _mm256_gf2p8affine_epi64_epi8::<0>(bytes, by)
    }

    wide!("gfni,avx2");
    kernel!("gfni,avx2");
}
