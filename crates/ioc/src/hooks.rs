//! The functions that stand in for the C library's, one family per file.
//!
//! Each has the same shape: a call below the gate's size goes straight to the real function; a
//! larger one asks, goes, and reports. In between nothing on the stack needs dropping, because
//! the real function is where a thread may be cancelled.

mod copy;
mod read;
mod start;
mod stdio;
mod write;

use libc::{c_int, iovec};

/// The caller wants an answer at once, so it must not wait for a coordinator.
const AT_ONCE: c_int = libc::RWF_NOWAIT;
/// Most pieces a vectored call may have; one with more fails.
const PIECES_MAX: usize = 1024;

/// Bytes of a vectored call.
///
/// # Safety
///
/// As for the call itself: `count` valid elements at `pieces`.
unsafe fn bytes_of(pieces: *const iovec, count: c_int) -> usize {
    match usize::try_from(count) {
        Ok(count) if count <= PIECES_MAX && !pieces.is_null() => {
            // SAFETY: by the caller's promise.
            let pieces = unsafe { std::slice::from_raw_parts(pieces, count) };
            pieces.iter().fold(0, |sum, piece| sum.saturating_add(piece.iov_len))
        }
        // The call will fail by itself.
        _ => 0,
    }
}
