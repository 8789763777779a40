//! The data area of a pool that lives in memory: one anonymous mapping, touched ahead of its use.
//!
//! Reserving address space costs nothing, so the whole share is mapped at once and an extent's
//! offset is its address for ever: no copying when a pool fills. What is next to be used is
//! touched in advance ([`env::Env::touch_ahead`]); what is free for a while goes back to the
//! kernel ([`crate::give_back`]).
//!
//! Invariant on which the `unsafe` of this crate rests: a range of the arena is written only
//! through the payload that holds it reserved, before the index refers to it; from then on it is
//! only read until the allocator hands it out again, which it does not while a
//! [`crate::space::ReadGuard`] from before its release lives.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;

use env::{Env, Memory};
use types::Result;

use crate::blocks::Run;

/// Most bytes that are touched ahead of their use.
const AHEAD_BYTES_MAX: u64 = 512 << 20;
/// Of the area, one in this many bytes at most.
const AHEAD_SHARE: u64 = 8;

#[derive(Debug)]
pub(crate) struct Arena {
    memory: Arc<Memory>,
    /// Everything before is touched, is going to be, or was given back.
    touched_to: Cell<u64>,
    /// Bytes ever reserved.
    reserved_bytes: Cell<u64>,
}

impl Arena {
    /// Maps `bytes`, at least one block. `NoMem` when the address space is refused.
    pub(crate) fn map(bytes: u64) -> Result<Arena> {
        let memory =
            Memory::map(bytes.max(4096)).map_err(|error| error.context("making a pool"))?;
        Ok(Arena {
            memory: Arc::new(memory),
            touched_to: Cell::new(0),
            reserved_bytes: Cell::new(0),
        })
    }

    /// Address of a run, which must lie inside.
    pub(crate) fn address(&self, run: Run) -> NonNull<u8> {
        let end = run.at.checked_add(run.bytes);
        let inside = end.is_some_and(|end| end <= self.memory.bytes());
        assert!(inside, "a run at byte {} lies outside the arena", run.at);
        // SAFETY: the offset is inside the mapping.
        unsafe { self.memory.start().add(run.at as usize) }
    }

    /// A run was reserved: what comes after it is touched while it is being filled.
    pub(crate) fn reserved(&self, env: &Env, run: Run) {
        self.reserved_bytes.set(self.reserved_bytes.get() + run.bytes);
        let ahead = AHEAD_BYTES_MAX.min(self.memory.bytes() / AHEAD_SHARE);
        let end = run.at + run.bytes;
        let touched_to = self.touched_to.get();
        // In pieces of some size: a request costs the other thread a look at the free memory.
        if end + ahead / 2 > touched_to {
            self.touch(env, touched_to.max(end), end + ahead);
        }
    }

    /// Touches what will be used first.
    pub(crate) fn begin(&self, env: &Env) {
        self.touch(env, 0, AHEAD_BYTES_MAX.min(self.memory.bytes() / AHEAD_SHARE));
    }

    fn touch(&self, env: &Env, from: u64, to: u64) {
        let to = to.min(self.memory.bytes());
        if from < to {
            env.touch_ahead(&self.memory, from..to);
            self.touched_to.set(to);
        }
    }

    /// Bytes ever reserved: it moves while the pool is written to.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes.get()
    }

    /// Everything at or behind it was never used or touched.
    pub(crate) fn touched_to(&self) -> u64 {
        self.touched_to.get()
    }

    /// Everything free was given back: what is used next, from `next` on, is to be touched anew.
    pub(crate) fn gave_back(&self, next: u64) {
        self.touched_to.set(self.touched_to.get().min(next));
    }

    /// Gives the memory of a free run back; it reads as zeros afterwards. Returns the bytes.
    pub(crate) fn give_back(&self, run: Run) -> u64 {
        // SAFETY: the run is free: by the invariant of the module nobody reads or writes it.
        unsafe { self.memory.give_back(run.at..run.at + run.bytes) }
    }
}
