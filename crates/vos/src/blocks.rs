//! Blocks of the data area, and runs of bytes in it: what everybody who stores, finds or sends data names places by.

/// Unit of allocation, bytes; also the alignment of direct I/O.
pub(crate) const BLOCK_BYTES: u64 = 4096;

/// Bytes in the data area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// Byte offset in the data area.
    pub at: u64,
    pub bytes: u64,
}

impl Run {
    /// First block touched.
    pub(crate) fn first_block(&self) -> u64 {
        self.at / BLOCK_BYTES
    }

    /// One past the last block touched.
    pub(crate) fn end_block(&self) -> u64 {
        (self.at + self.bytes).div_ceil(BLOCK_BYTES)
    }
}
