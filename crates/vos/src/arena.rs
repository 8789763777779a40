//! The data area of a pool that lives in memory: one anonymous mapping, populated as touched.
//!
//! Reserving address space costs nothing, so the whole share is mapped at once and an extent's
//! offset is its address for ever: no copying when a pool fills. Huge pages are asked for; a
//! kernel that has none gives small ones.
//!
//! Invariant on which the `unsafe` of this crate rests: a range of the arena is written only
//! through the payload that holds it reserved, before the index refers to it; from then on it is
//! only read until the allocator hands it out again, which it does not while a
//! [`crate::space::ReadGuard`] from before its release lives.

use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use types::{Code, Error, Result};

use crate::space::Run;

/// See the module.
#[derive(Debug)]
pub(crate) struct Arena {
    start: NonNull<u8>,
    bytes: usize,
}

impl Arena {
    /// Maps `bytes`, at least one block. `NoMem` when the address space is refused.
    pub(crate) fn map(bytes: u64) -> Result<Arena> {
        let full = |why: String| {
            Error::new(
                Code::NoMem,
                format!(
                    "cannot reserve {} of memory for a pool: {why}",
                    types::size::format(bytes)
                ),
            )
        };
        let bytes_wanted = usize::try_from(bytes)
            .map_err(|_| full("more than the address space".into()))?
            .max(4096);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes_wanted,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|error| full(error.to_string()))?;
        // SAFETY: the range is the mapping just made. Advice may be refused without harm.
        let _ = unsafe { madvise(start, bytes_wanted, Advice::LinuxHugepage) };
        let start = NonNull::new(start.cast()).ok_or_else(|| full("mapped at zero".into()))?;
        Ok(Arena { start, bytes: bytes_wanted })
    }

    /// Address of a run, which must lie inside.
    pub(crate) fn address(&self, run: Run) -> NonNull<u8> {
        let inside = run.at.checked_add(run.bytes).is_some_and(|end| end <= self.bytes as u64);
        assert!(inside, "a run at byte {} lies outside the arena", run.at);
        // SAFETY: the offset is inside the mapping.
        unsafe { self.start.add(run.at as usize) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours; payloads and segments hold the arena by reference count,
        // so no pointer into it is left.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
