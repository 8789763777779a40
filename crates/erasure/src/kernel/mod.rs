//! Kernels: code that computes sums of products over whole cells, one per instruction set, and ISA-L.
//!
//! All give the same bytes. Those for vector instructions go over the cells once, a block at a time: of
//! every source some vectors are read, all outputs (up to three) are summed in registers, and written.
//!
//! GFNI goes before ISA-L: on a machine with both (EPYC, ISA-L 2.30) it was the faster one, up to 2.7 times with cells
//! in the cache and equal where memory was the limit. ISA-L goes before the shuffles, since it knows more kinds of processors.

mod isal;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::factors::Factors;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// What computes; see [`Kernel::best`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Any processor, a byte at a time.
    Scalar,
    /// Split tables and byte shuffles, 16 bytes at a time.
    Ssse3,
    /// The same, 32 bytes at a time.
    Avx2,
    /// An instruction that multiplies 32 bytes at a time by a matrix of bits.
    Gfni,
    /// Intel's ISA-L, `libisal.so.2`, where the machine has it; opened when it is first asked for.
    Isal,
}

/// All, the best first.
const ALL: [Kernel; 5] = [Kernel::Gfni, Kernel::Isal, Kernel::Avx2, Kernel::Ssse3, Kernel::Scalar];

impl Kernel {
    /// The kernels that this machine can run, the best first; never empty.
    pub fn available() -> Vec<Kernel> {
        ALL.into_iter().filter(|kernel| kernel.is_available()).collect()
    }

    /// True when this machine can run it.
    pub fn is_available(self) -> bool {
        match self {
            Kernel::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Kernel::Ssse3 => is_x86_feature_detected!("ssse3"),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Kernel::Gfni => is_x86_feature_detected!("gfni") && is_x86_feature_detected!("avx2"),
            #[cfg(not(target_arch = "x86_64"))]
            Kernel::Ssse3 | Kernel::Avx2 | Kernel::Gfni => false,
            Kernel::Isal => isal::library().is_some(),
        }
    }

    /// The kernel that the environment variable `AZEKURA_ERASURE` names (`scalar`, `ssse3`, `avx2`, `gfni`,
    /// `isal`), else the first of those available. Found once per process. A name that means
    /// nothing here is warned of and passed over.
    pub fn best() -> Kernel {
        static BEST: OnceLock<Kernel> = OnceLock::new();
        *BEST.get_or_init(|| {
            // Only as far as needed: ISA-L is not opened where something better is found.
            let first = ALL.into_iter().find(|kernel| kernel.is_available());
            let first = first.unwrap_or(Kernel::Scalar);
            let Ok(name) = std::env::var("AZEKURA_ERASURE") else { return first };
            match name.parse::<Kernel>() {
                Ok(kernel) if kernel.is_available() => kernel,
                Ok(kernel) => {
                    tracing::warn!(
                        "AZEKURA_ERASURE={kernel}: this machine lacks it; using {first}"
                    );
                    first
                }
                Err(unknown) => {
                    tracing::warn!("AZEKURA_ERASURE: {unknown}; using {first}");
                    first
                }
            }
        })
    }

    /// The best kernel that is part of this crate, for what another cannot do.
    fn best_built_in() -> Kernel {
        static BEST: OnceLock<Kernel> = OnceLock::new();
        let find =
            || ALL.into_iter().find(|&kernel| kernel != Kernel::Isal && kernel.is_available());
        *BEST.get_or_init(|| find().unwrap_or(Kernel::Scalar))
    }

    /// Writes to each output the sum of the products of the sources with its row of `factors`. Panics when the
    /// numbers or lengths of the cells do not fit, or the machine lacks the kernel.
    pub(crate) fn combine(self, factors: &Factors, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert_eq!(factors.columns(), sources.len(), "a factor for each source");
        assert_eq!(factors.rows(), outputs.len(), "a row for each output");
        let Some(first) = outputs.first() else { return };
        let length = first.len();
        assert!(sources.iter().all(|cell| cell.len() == length), "cells of unequal length");
        assert!(outputs.iter().all(|cell| cell.len() == length), "cells of unequal length");
        assert!(self.is_available(), "this machine lacks the kernel {self}");
        // Lengths and numbers are those that the kernels below ask for.
        match self {
            Kernel::Scalar => scalar::combine(factors, sources, outputs, 0),
            // ISA-L would multiply by 1; its own XOR wants aligned memory.
            Kernel::Isal if factors.rows() == 1 && factors.is_xor(0) => {
                Kernel::best_built_in().combine(factors, sources, outputs);
            }
            Kernel::Isal => isal::combine(factors, sources, outputs),
            #[cfg(target_arch = "x86_64")]
            Kernel::Ssse3 => x86::ssse3::combine(factors, sources, outputs),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => x86::avx2::combine(factors, sources, outputs),
            #[cfg(target_arch = "x86_64")]
            Kernel::Gfni => x86::gfni::combine(factors, sources, outputs),
            #[cfg(not(target_arch = "x86_64"))]
            Kernel::Ssse3 | Kernel::Avx2 | Kernel::Gfni => unreachable!("not available"),
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Kernel::Scalar => "scalar",
            Kernel::Ssse3 => "ssse3",
            Kernel::Avx2 => "avx2",
            Kernel::Gfni => "gfni",
            Kernel::Isal => "isal",
        })
    }
}

/// A name that is not one of a kernel.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("'{0}' is no kernel; there are gfni, isal, avx2, ssse3, scalar")]
pub struct UnknownKernel(String);

impl FromStr for Kernel {
    type Err = UnknownKernel;

    fn from_str(name: &str) -> Result<Kernel, UnknownKernel> {
        let found = ALL.into_iter().find(|kernel| kernel.to_string() == name);
        found.ok_or_else(|| UnknownKernel(name.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_printed() {
        for kernel in ALL {
            assert_eq!(kernel.to_string().parse(), Ok(kernel));
        }
        let error = "AVX2".parse::<Kernel>().unwrap_err().to_string();
        assert_eq!(error, "'AVX2' is no kernel; there are gfni, isal, avx2, ssse3, scalar");
    }
}
