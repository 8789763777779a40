//! What a run loop waits for beside timers: polled sources and file descriptors.

use crate::real::Real;
use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use types::Result;

/// I/O that is looked at without a system call: shared-memory rings, completion queues.
///
/// The run loop calls `poll` often. Before it sleeps it calls `arm`, and `disarm` when it wakes.
/// While armed, work must make [`Source::fd`] readable. The descriptor is watched edge-triggered,
/// so nobody needs to read it empty; it must not change while the source is registered.
pub trait Source {
    /// Looks for work and wakes the futures concerned; true if there was any.
    fn poll(&self) -> bool;
    /// The thread is about to sleep. True when work raced in: then it does not sleep.
    fn arm(&self) -> bool;
    /// The thread is awake.
    fn disarm(&self);
    /// What becomes readable when there is work while armed.
    fn fd(&self) -> Option<RawFd>;
    /// Its work comes from a device, which needs no core to bring it; else from other threads,
    /// which may wait for ours.
    fn is_device(&self) -> bool {
        false
    }
    /// Futures run now: what the source would tell others may wait for [`Source::release`], which
    /// comes before the loop looks for work, sleeps or ends. Neither may add or remove sources.
    fn hold(&self) {}
    /// Futures have run.
    fn release(&self) {}
}

/// Readiness of one descriptor, kept by the run loop.
#[derive(Default)]
pub(crate) struct Readiness {
    readable: Cell<bool>,
    writable: Cell<bool>,
    /// The peer sends no more, or there was an error.
    hung_up: Cell<bool>,
    reader: RefCell<Option<Waker>>,
    writer: RefCell<Option<Waker>>,
    pub probe: RefCell<Option<Probe>>,
}

/// Tries to read what somebody waits for; see [`FdWatch::probe_with`].
pub(crate) type Probe = Rc<dyn Fn() -> Option<bool>>;

impl Readiness {
    /// Takes an event from the kernel. `hung_up` tells that no other event may follow.
    pub fn post(&self, readable: bool, writable: bool, hung_up: bool) {
        if hung_up {
            self.hung_up.set(true);
        }
        if readable {
            self.readable.set(true);
            if let Some(waker) = self.reader.take() {
                waker.wake();
            }
        }
        if writable {
            self.writable.set(true);
            if let Some(waker) = self.writer.take() {
                waker.wake();
            }
        }
    }
}

/// What of a descriptor is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    Both,
    /// Reading, of something that other threads watch too: an event wakes one of those that
    /// sleep, not all. Told as long as it is so.
    SharedRead,
}

/// A nonblocking descriptor whose readiness the run loop tracks.
///
/// Edge-triggered: try the operation; on `WouldBlock` clear the direction, then wait for it. Hangup
/// and errors count as ready in both directions, so that the operation reports them. One task may
/// wait per direction.
pub struct FdWatch {
    fd: Rc<OwnedFd>,
    readiness: Rc<Readiness>,
    slot: usize,
    real: Rc<Real>,
}

impl FdWatch {
    pub(crate) fn new(real: Rc<Real>, fd: Rc<OwnedFd>, interest: Interest) -> Result<FdWatch> {
        let readiness = Rc::new(Readiness::default());
        readiness.readable.set(true);
        readiness.writable.set(interest == Interest::Both);
        let slot = real.watch(fd.as_raw_fd(), readiness.clone(), interest)?;
        Ok(FdWatch { fd, readiness, slot, real })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Ready when a read may succeed.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        poll_direction(&self.readiness.readable, &self.readiness.reader, cx)
    }

    /// Ready when a write may succeed.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        poll_direction(&self.readiness.writable, &self.readiness.writer, cx)
    }

    /// A read said `WouldBlock`.
    pub fn clear_readable(&self) {
        self.readiness.readable.set(false);
    }

    /// A read took less than it had room for, so there is nothing more; what comes from now on is
    /// another event. For what gives all it has at once, as a TCP socket does. After a hangup it
    /// stays readable: the end is still to be read, and it may have come with the event of the last
    /// bytes.
    pub fn drained(&self) {
        if !self.readiness.hung_up.get() {
            self.readiness.readable.set(false);
        }
    }

    /// How to read what a reader waits for. While waits end with this descriptor and no other, the
    /// run loop tries that instead of asking the kernel whether it can be read: it costs the same,
    /// and is done when it can.
    ///
    /// The probe says whether it found something, and then wakes the reader
    /// ([`FdWatch::wake_reader`]); `None` when nobody waits to read.
    pub fn probe_with(&self, probe: impl Fn() -> Option<bool> + 'static) {
        self.readiness.probe.replace(Some(Rc::new(probe)));
    }

    /// Wakes who waits to read: it finds elsewhere what it waits for.
    pub fn wake_reader(&self) {
        let waker = self.readiness.reader.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// A read may succeed, whatever the last event said; wakes who waits for it.
    pub fn assume_readable(&self) {
        self.readiness.post(true, false, false);
    }

    /// A write may succeed, as far as known.
    pub fn is_writable(&self) -> bool {
        self.readiness.writable.get()
    }

    /// A write said `WouldBlock`.
    pub fn clear_writable(&self) {
        self.readiness.writable.set(false);
    }

    /// Waits until a read may succeed.
    pub async fn readable(&self) {
        std::future::poll_fn(|cx| self.poll_readable(cx)).await;
    }

    /// Waits until a write may succeed.
    pub async fn writable(&self) {
        std::future::poll_fn(|cx| self.poll_writable(cx)).await;
    }
}

/// A doorbell that this thread is woken by; see [`crate::Env::watch_bell`].
pub struct BellWatch {
    bell: OwnedFd,
    real: Rc<Real>,
}

impl BellWatch {
    pub(crate) fn new(real: Rc<Real>, bell: OwnedFd) -> Result<BellWatch> {
        real.add_wake(bell.as_fd())?;
        Ok(BellWatch { bell, real })
    }
}

impl Drop for BellWatch {
    fn drop(&mut self) {
        self.real.remove_wake(self.bell.as_fd());
    }
}

fn poll_direction(
    ready: &Cell<bool>,
    waiting: &RefCell<Option<Waker>>,
    cx: &mut Context<'_>,
) -> Poll<()> {
    if ready.get() {
        return Poll::Ready(());
    }
    match &mut *waiting.borrow_mut() {
        Some(waker) => waker.clone_from(cx.waker()),
        none => *none = Some(cx.waker().clone()),
    }
    Poll::Pending
}

impl Drop for FdWatch {
    fn drop(&mut self) {
        self.real.unwatch(self.fd.as_raw_fd(), self.slot);
    }
}
