//! Page-aligned byte buffers, as direct I/O wants them.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use types::{Code, Error, Result};

/// Alignment of [`AlignedBuf`] and granularity of direct I/O, bytes.
pub const ALIGN_BYTES: usize = 4096;

/// Bytes that a thread keeps at most of buffers that are done with, for the next
/// [`AlignedBuf::try_scratch`]: the kernel takes longer to find fresh pages, and to clear them, than
/// a device takes to fill them.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// Most buffers looked at for one of the wanted size, from the newest.
const LOOK_MAX: usize = 64;

/// Buffers that a thread keeps, the newest last, and their bytes.
#[derive(Default)]
struct Kept {
    bufs: VecDeque<AlignedBuf>,
    bytes: usize,
}

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::default();
}

/// A byte buffer whose address and capacity are multiples of [`ALIGN_BYTES`].
pub struct AlignedBuf {
    start: NonNull<u8>,
    bytes: usize,
    capacity: usize,
}

// SAFETY: the buffer owns its memory alone, like a Vec<u8>.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access is read-only, like a Vec<u8>.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// A buffer of `bytes` zeros. `NoMem` when there is no memory.
    pub fn try_zeroed(bytes: usize) -> Result<AlignedBuf> {
        let full = || Error::new(Code::NoMem, format!("no memory for a buffer of {bytes} bytes"));
        let capacity = bytes.max(1).checked_next_multiple_of(ALIGN_BYTES).ok_or_else(full)?;
        let layout = Layout::from_size_align(capacity, ALIGN_BYTES).map_err(|_| full())?;
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(full)?;
        Ok(AlignedBuf { start, bytes, capacity })
    }

    /// A buffer of `bytes` of anything: zeros, or what was in an earlier buffer of this thread. For
    /// who fills all of it or gives nothing of it away. `NoMem` when there is no memory.
    pub fn try_scratch(bytes: usize) -> Result<AlignedBuf> {
        let wanted = bytes.max(1).checked_next_multiple_of(ALIGN_BYTES);
        let found = KEPT.try_with(|kept| {
            let kept = &mut *kept.try_borrow_mut().ok()?;
            let newest = kept.bufs.iter().enumerate().rev().take(LOOK_MAX);
            let (at, _) = newest.into_iter().find(|(_, buf)| Some(buf.capacity) == wanted)?;
            let buf = kept.bufs.remove(at)?;
            kept.bytes -= buf.capacity;
            Some(buf)
        });
        match found {
            Ok(Some(mut buf)) => {
                buf.bytes = bytes;
                Ok(buf)
            }
            _ => AlignedBuf::try_zeroed(bytes),
        }
    }

    /// Hands the memory to the next one that wants as much of it, in place of the oldest kept;
    /// false when it is too much, or the thread ends.
    fn keep(&self) -> bool {
        let kept = KEPT.try_with(|kept| {
            let Ok(mut kept) = kept.try_borrow_mut() else { return false };
            if self.capacity > KEPT_BYTES_MAX {
                return false;
            }
            while kept.bytes + self.capacity > KEPT_BYTES_MAX {
                let Some(oldest) = kept.bufs.pop_front() else { break };
                kept.bytes -= oldest.capacity;
                oldest.free();
            }
            kept.bytes += self.capacity;
            kept.bufs.push_back(AlignedBuf { ..*self });
            true
        });
        kept.unwrap_or(false)
    }

    /// Gives the memory back.
    fn free(self) {
        let this = std::mem::ManuallyDrop::new(self);
        if let Ok(layout) = Layout::from_size_align(this.capacity, ALIGN_BYTES) {
            // SAFETY: allocated with this layout; nobody uses it any more.
            unsafe { dealloc(this.start.as_ptr(), layout) };
        }
    }

    /// A buffer of `bytes` zeros; aborts when there is no memory, like `Vec`.
    pub fn zeroed(bytes: usize) -> AlignedBuf {
        match AlignedBuf::try_zeroed(bytes) {
            Ok(buf) => buf,
            Err(_) => std::alloc::handle_alloc_error(
                Layout::from_size_align(ALIGN_BYTES, ALIGN_BYTES).unwrap_or(Layout::new::<u8>()),
            ),
        }
    }

    /// A copy of `data`.
    pub fn copy_of(data: &[u8]) -> AlignedBuf {
        let mut buf = AlignedBuf::zeroed(data.len());
        buf.copy_from_slice(data);
        buf
    }

    /// Bytes it can hold without a new allocation; a multiple of [`ALIGN_BYTES`].
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes the length within the capacity. Bytes that come into view are what was there
    /// before, at first zeros. Panics when `bytes` is over the capacity.
    pub fn set_len(&mut self, bytes: usize) {
        assert!(bytes <= self.capacity, "{bytes} bytes do not fit a buffer of {}", self.capacity);
        self.bytes = bytes;
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `bytes` is within the allocation, which is initialised and ours.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and access is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if !self.keep() {
            AlignedBuf { ..*self }.free();
        }
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} of {})", self.bytes, self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_and_zero() {
        for bytes in [0, 1, 4095, 4096, 4097] {
            let mut buf = AlignedBuf::zeroed(bytes);
            assert_eq!(buf.as_ptr() as usize % ALIGN_BYTES, 0);
            assert_eq!(buf.capacity() % ALIGN_BYTES, 0);
            assert_eq!(buf.len(), bytes);
            buf.set_len(buf.capacity());
            assert!(buf.iter().all(|&byte| byte == 0));
        }
        assert_eq!(AlignedBuf::try_zeroed(usize::MAX).unwrap_err().code, Code::NoMem);
        assert_eq!(&*AlignedBuf::copy_of(b"abc"), b"abc");
    }

    #[test]
    fn buffers_are_used_again_and_zeros_are_zeros() {
        let bytes = (64 << 10) + 1;
        let mut first = AlignedBuf::try_scratch(bytes).unwrap();
        first.fill(7);
        let at = first.as_ptr();
        drop(first);
        assert_eq!(AlignedBuf::zeroed(bytes).iter().max(), Some(&0));
        // The one of zeros was kept, too: the last one kept comes first.
        let (one, two) =
            (AlignedBuf::try_scratch(bytes).unwrap(), AlignedBuf::try_scratch(bytes - 1).unwrap());
        assert_eq!((one.len(), two.len()), (bytes, bytes - 1));
        assert!([one.as_ptr(), AlignedBuf::try_scratch(bytes).unwrap().as_ptr()].contains(&at));
        drop((one, two));
        // No more than so much is kept, and nothing is lost when the thread ends.
        let many: Vec<_> = (0..100).map(|_| AlignedBuf::zeroed(1 << 20)).collect();
        drop(many);
        KEPT.with(|kept| {
            let kept = kept.borrow();
            assert!(kept.bytes <= KEPT_BYTES_MAX && !kept.bufs.is_empty());
            assert_eq!(kept.bytes, kept.bufs.iter().map(|buf| buf.capacity).sum::<usize>());
        });
        // What is wanted now pushes out what was wanted once.
        (0..LOOK_MAX).for_each(|_| drop(AlignedBuf::zeroed(4096)));
        let found = AlignedBuf::try_scratch(4096).unwrap();
        KEPT.with(|kept| {
            let small = kept.borrow().bufs.iter().filter(|buf| buf.capacity == 4096).count();
            assert_eq!(small, LOOK_MAX - 1, "one was used again");
        });
        drop(found);
        drop(AlignedBuf::zeroed(KEPT_BYTES_MAX));
        KEPT.with(|kept| assert_eq!(kept.borrow().bufs.len(), 1));
        drop(AlignedBuf::zeroed(KEPT_BYTES_MAX + 1));
        KEPT.with(|kept| assert_eq!(kept.borrow().bytes, KEPT_BYTES_MAX));
        let moved = std::thread::spawn(|| AlignedBuf::try_scratch(1 << 20).unwrap());
        assert_eq!(moved.join().unwrap().iter().max(), Some(&0));
    }
}
