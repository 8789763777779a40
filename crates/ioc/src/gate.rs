//! The sizes from which a call asks. Every call passes here, so this is two loads and a compare.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// No call is as large: coordination is off, or not ready yet.
const SHUT: usize = usize::MAX;

static WRITE_BYTES_MIN: AtomicUsize = AtomicUsize::new(SHUT);
static READ_BYTES_MIN: AtomicUsize = AtomicUsize::new(SHUT);

/// Least bytes of a write that asks.
#[inline]
pub fn write_bytes_min() -> usize {
    WRITE_BYTES_MIN.load(Relaxed)
}

/// Least bytes of a read that asks.
#[inline]
pub fn read_bytes_min() -> usize {
    READ_BYTES_MIN.load(Relaxed)
}

/// Sets the least bytes of writes. A call on nothing never asks.
pub fn open_for_writes(bytes: u64) {
    WRITE_BYTES_MIN.store(usize::try_from(bytes).unwrap_or(SHUT).max(1), Relaxed);
}

/// Sets the least bytes of reads.
pub fn open_for_reads(bytes: u64) {
    READ_BYTES_MIN.store(usize::try_from(bytes).unwrap_or(SHUT).max(1), Relaxed);
}

/// Nothing asks from now on.
pub fn shut() {
    WRITE_BYTES_MIN.store(SHUT, Relaxed);
    READ_BYTES_MIN.store(SHUT, Relaxed);
}
