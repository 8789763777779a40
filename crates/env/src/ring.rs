//! io_uring of one thread, as a polled source.
//!
//! Invariants: the kernel may touch an operation's buffer and descriptor until its completion is
//! seen; both live in the operation's slot until then, whatever becomes of the future. A ring is
//! dropped only after all its operations have completed. Operations of one loop round are
//! submitted together, with one system call.

use crate::AlignedBuf;
use crate::source::Source;
use io_uring::{IoUring, squeue};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Submission queue entries; more operations than that are submitted in several steps.
const ENTRY_COUNT: u32 = 256;

/// What an operation in flight refers to.
pub(crate) struct Keep {
    /// Held open until the kernel is done with it.
    pub _fd: Rc<OwnedFd>,
    pub buf: Option<AlignedBuf>,
}

enum Slot {
    Free,
    InFlight { keep: Keep, waker: Option<Waker>, abandoned: bool },
    Done { keep: Keep, result: i32 },
}

pub(crate) struct Ring {
    ring: RefCell<IoUring>,
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<usize>>,
    /// Pushed to the queue, not yet handed to the kernel.
    unsubmitted: Cell<usize>,
    in_flight: Cell<usize>,
}

impl Ring {
    pub fn new() -> std::io::Result<Ring> {
        let ring = IoUring::builder()
            .setup_coop_taskrun()
            .setup_single_issuer()
            .build(ENTRY_COUNT)
            .or_else(|_| IoUring::new(ENTRY_COUNT))?;
        Ok(Ring {
            ring: RefCell::new(ring),
            slots: RefCell::default(),
            free: RefCell::default(),
            unsubmitted: Cell::new(0),
            in_flight: Cell::new(0),
        })
    }

    /// Starts an operation. It is handed to the kernel with the next poll of the ring.
    ///
    /// # Safety
    /// All memory and descriptors that `entry` refers to must be owned by `keep`, at stable
    /// addresses.
    pub unsafe fn start(self: &Rc<Self>, entry: squeue::Entry, keep: Keep) -> RingOp {
        let index = {
            let mut slots = self.slots.borrow_mut();
            let state = Slot::InFlight { keep, waker: None, abandoned: false };
            match self.free.borrow_mut().pop() {
                Some(index) => {
                    slots[index] = state;
                    index
                }
                None => {
                    slots.push(state);
                    slots.len() - 1
                }
            }
        };
        let entry = entry.user_data(index as u64);
        // SAFETY: the caller's promise; `keep` is in its slot until the completion.
        while unsafe { self.ring.borrow_mut().submission().push(&entry) }.is_err() {
            self.submit();
        }
        self.unsubmitted.set(self.unsubmitted.get() + 1);
        self.in_flight.set(self.in_flight.get() + 1);
        RingOp { ring: self.clone(), index: Some(index) }
    }

    fn submit(&self) {
        // Completions that did not fit the queue are handed over only by a system call.
        let overflowed = self.ring.borrow_mut().submission().cq_overflow();
        if self.unsubmitted.get() > 0 || overflowed {
            // Busy, interrupted: entries stay in the queue for the next poll.
            if let Ok(count) = self.ring.borrow().submit() {
                self.unsubmitted.set(self.unsubmitted.get().saturating_sub(count));
            }
        }
    }

    fn reap(&self) -> bool {
        let mut any = false;
        loop {
            let Some(done) = self.ring.borrow_mut().completion().next() else { break };
            any = true;
            self.in_flight.set(self.in_flight.get() - 1);
            let index = done.user_data() as usize;
            let mut slots = self.slots.borrow_mut();
            let state = std::mem::replace(&mut slots[index], Slot::Free);
            let Slot::InFlight { keep, waker, abandoned } = state else {
                unreachable!("a completion of an operation that is not in flight");
            };
            if abandoned {
                drop(slots);
                self.free.borrow_mut().push(index);
                continue;
            }
            slots[index] = Slot::Done { keep, result: done.result() };
            drop(slots);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        any
    }
}

impl Source for Ring {
    fn poll(&self) -> bool {
        if self.in_flight.get() == 0 {
            return false;
        }
        self.submit();
        self.reap()
    }

    fn arm(&self) -> bool {
        self.in_flight.get() > 0 && {
            self.submit();
            !self.ring.borrow_mut().completion().is_empty()
        }
    }

    fn disarm(&self) {}

    fn fd(&self) -> Option<RawFd> {
        Some(self.ring.borrow().as_raw_fd())
    }

    fn is_device(&self) -> bool {
        true
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.in_flight.get() > 0 {
            let waited = self.ring.borrow().submit_and_wait(1);
            if !self.reap() && waited.is_err_and(|e| e.kind() != std::io::ErrorKind::Interrupted) {
                // The kernel may still write to the buffers: they must outlive the process's use
                // of the ring, so they are leaked rather than freed.
                for state in self.slots.borrow_mut().drain(..) {
                    std::mem::forget(state);
                }
                break;
            }
        }
    }
}

/// An operation of the ring. Dropping it does not stop the operation; it lets go of the result.
pub(crate) struct RingOp {
    ring: Rc<Ring>,
    index: Option<usize>,
}

impl Future for RingOp {
    type Output = (Keep, i32);
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<(Keep, i32)> {
        let index = self.index.expect("polled after completion");
        let ring = self.ring.clone();
        let mut slots = ring.slots.borrow_mut();
        match std::mem::replace(&mut slots[index], Slot::Free) {
            Slot::Done { keep, result } => {
                self.index = None;
                ring.free.borrow_mut().push(index);
                Poll::Ready((keep, result))
            }
            Slot::InFlight { keep, abandoned, .. } => {
                let waker = Some(cx.waker().clone());
                slots[index] = Slot::InFlight { keep, waker, abandoned };
                Poll::Pending
            }
            Slot::Free => unreachable!("an operation without a slot"),
        }
    }
}

impl Drop for RingOp {
    fn drop(&mut self) {
        let Some(index) = self.index else { return };
        let mut slots = self.ring.slots.borrow_mut();
        match &mut slots[index] {
            Slot::InFlight { abandoned, waker, .. } => {
                *abandoned = true;
                *waker = None;
            }
            Slot::Done { .. } => {
                let state = std::mem::replace(&mut slots[index], Slot::Free);
                drop(slots);
                drop(state);
                self.ring.free.borrow_mut().push(index);
            }
            Slot::Free => {}
        }
    }
}
