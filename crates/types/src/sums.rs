//! Sums over data in chunks: what is told about which bytes of a bulk.
//!
//! The bytes of a value are cut in chunks of [`SUM_CHUNK_BYTES`] from its beginning, each with a sum of
//! its own, so that a part can be read and checked without the rest. A value of at least one
//! chunk is summed as if zeros filled its last chunk; a shorter value is summed as it is.

use crate::CsumKind;
use serde::{Deserialize, Serialize};

/// Bytes under one sum: a block of a device.
pub const SUM_CHUNK_BYTES: usize = 4096;
/// Bytes of the widest sum.
pub const SUM_BYTES_MAX: usize = 32;

impl CsumKind {
    pub const ALL: [CsumKind; 5] =
        [CsumKind::Off, CsumKind::Crc32c, CsumKind::Crc64, CsumKind::Xxh3, CsumKind::Sha256];

    /// Bytes of one sum; 0 for [`CsumKind::Off`].
    pub const fn width(self) -> usize {
        match self {
            CsumKind::Off => 0,
            CsumKind::Crc32c => 4,
            CsumKind::Crc64 | CsumKind::Xxh3 => 8,
            CsumKind::Sha256 => SUM_BYTES_MAX,
        }
    }

    /// Number of sums of a value of `bytes`; 0 for [`CsumKind::Off`].
    pub const fn sum_count(self, bytes: u64) -> u64 {
        match self {
            CsumKind::Off => 0,
            _ => bytes.div_ceil(SUM_CHUNK_BYTES as u64),
        }
    }
}

/// What is known of the next bytes of a bulk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SumRun {
    /// A sum for each chunk, over exactly the chunk's bytes: the first has `first` bytes (or
    /// fewer if that is all), the others [`SUM_CHUNK_BYTES`], the last what is left.
    Summed {
        /// Bytes covered; at least 1.
        bytes: u32,
        /// Bytes of the first chunk, 1 to [`SUM_CHUNK_BYTES`].
        first: u16,
    },
    /// Nothing is stored there: zeros.
    Zeros {
        /// Bytes covered.
        bytes: u32,
    },
    /// Stored without sums.
    Bare {
        /// Bytes covered.
        bytes: u32,
    },
}

impl SumRun {
    /// Bytes covered.
    pub const fn bytes(&self) -> u32 {
        match self {
            SumRun::Summed { bytes, .. } | SumRun::Zeros { bytes } | SumRun::Bare { bytes } => {
                *bytes
            }
        }
    }
}
