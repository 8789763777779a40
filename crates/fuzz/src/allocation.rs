//! A global allocator that counts what each thread holds, to catch decoders that believe a
//! length field before they have seen the bytes.
//!
//! Invariant: counting never allocates and never panics, so it may run inside any allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes this thread allocated minus bytes it freed; negative when it frees another's.
    static HELD: Cell<isize> = const { Cell::new(0) };
    /// Highest value of `HELD` since the last reset.
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(change: isize) {
    // A thread that is going away has no counters any more; its last frees do not matter.
    let _ = HELD.try_with(|held| {
        let now = held.get() + change;
        held.set(now);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now)));
    });
}

// SAFETY: every call goes to the system allocator with its arguments unchanged; counting does
// not touch the memory.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's contract is passed on.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc_zeroed`.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's contract is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`.
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's contract is passed on.
        unsafe { System.dealloc(memory, layout) }
    }

    // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`.
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: the caller's contract is passed on.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Runs `work` and returns its result and the most bytes this thread held at once, above what
/// it held before.
pub fn peak_bytes<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.with(Cell::get);
    PEAK.with(|peak| peak.set(before));
    let result = work();
    let peak = PEAK.with(Cell::get);
    (result, (peak - before).max(0) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_counts_what_is_held_at_once() {
        let (_, bytes) = peak_bytes(|| {
            for _ in 0..10 {
                std::hint::black_box(vec![1u8; 10_000]);
            }
        });
        assert!((10_000..20_000).contains(&bytes), "{bytes}");
        let (_, bytes) = peak_bytes(|| std::hint::black_box(vec![0u8; 1 << 20]).len());
        assert!(bytes >= 1 << 20, "{bytes}");
        let (_, bytes) = peak_bytes(|| ());
        assert_eq!(bytes, 0);
    }
}
