//! A thread that keeps what a program holds while it makes no call: `flock FILE -c 'long job'` sits in `waitpid`.
//!
//! A client moves on only while somebody is in its context. Who holds a lock and calls nothing for longer than servers wait for those
//! who were locked in (five seconds after a leader's death) would lose it, and not know. So from its first lock on a process has one thread
//! that looks into its contexts every [`PAUSE`], and stays for as long as connections have to be made anew. It ends when nothing is
//! held any more.
//!
//! Not for what is merely open: a program that computes is not to be disturbed for files that have their names.
//!
//! A child made by `fork` has no such thread; it begins one with its own first lock.

use crate::{Ctx, ForkLock, GENERATION, USER};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use types::{Error, Result};

/// Between two looks: clients look as often for an engine that has gone.
const PAUSE: Duration = Duration::from_millis(500);
/// How long each look takes: an exchange or two, asleep for most of it.
const STAY: Duration = Duration::from_millis(5);
/// And how long while connections are being made.
const STAY_MAX: Duration = Duration::from_millis(400);
/// What is moved on is no deeper here than under a program's calls.
const STACK_BYTES: usize = 1 << 20;

/// The contexts that are looked into.
struct Kept {
    contexts: Vec<Weak<Ctx>>,
    /// The generation of contexts that has a thread; 0: none has.
    thread_of: u64,
    /// Counts calls of [`Ctx::keep_awake`].
    asked: u64,
}

static KEPT: ForkLock<Kept> = ForkLock::new(Kept { contexts: Vec::new(), thread_of: 0, asked: 0 });

/// Before `fork`.
pub(crate) fn hold() {
    KEPT.hold();
}

/// After it, on both sides.
///
/// # Safety
///
/// As for [`ForkLock::release`].
pub(crate) unsafe fn release() {
    // SAFETY: as the caller says.
    unsafe { KEPT.release() };
}

/// In a child, and after `close`: the contexts of before are another's, and the thread ends or is not there.
pub(crate) fn start_anew() {
    let mut kept = KEPT.lock();
    kept.contexts.clear();
    kept.thread_of = 0;
}

impl Ctx {
    /// Has a thread move this context on while nobody calls, as long as its client holds locks.
    ///
    /// Errors: when there cannot be a thread.
    pub fn keep_awake(self: &Arc<Ctx>) -> Result<()> {
        let mut kept = KEPT.lock();
        if !self.is_current() {
            return Ok(());
        }
        kept.asked += 1;
        if !kept.contexts.iter().any(|ctx| std::ptr::eq(ctx.as_ptr(), Arc::as_ptr(self))) {
            kept.contexts.push(Arc::downgrade(self));
        }
        if kept.thread_of != self.generation {
            start(self.generation)?;
            kept.thread_of = self.generation;
        }
        Ok(())
    }

    /// Moves this context on, if nobody is in it. False when there is nothing to keep.
    fn look_into(&self) -> bool {
        let begun = Instant::now();
        loop {
            if self.locked.try_lock().is_none() {
                return true;
            }
            self.wait(Some(STAY), || None::<()>);
            let Some(guard) = self.locked.try_lock() else { return true };
            let client = &guard.0.client;
            let holds_locks = client.holds_locks();
            if !holds_locks || client.is_connected_to_kept() || begun.elapsed() > STAY_MAX {
                return holds_locks;
            }
        }
    }
}

fn start(generation: u64) -> Result<()> {
    // Signals are for the program's own threads; a thread begins with the mask of who makes it.
    let before = block_signals();
    let thread = std::thread::Builder::new().name("azk-awake".into()).stack_size(STACK_BYTES);
    let run = move || match USER.get() {
        Some(user) => (user.as_own_thread)(&mut || stay_awake(generation)),
        None => stay_awake(generation),
    };
    let started = thread.spawn(run);
    // SAFETY: the mask is the one the thread had.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    started.map(drop).map_err(|error| Error::io("a thread that keeps locks", error))
}

fn block_signals() -> libc::sigset_t {
    let mut all = std::mem::MaybeUninit::uninit();
    let mut before = std::mem::MaybeUninit::uninit();
    // SAFETY: both places are valid, and are written by the calls.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

fn stay_awake(generation: u64) {
    loop {
        std::thread::sleep(PAUSE);
        if GENERATION.load(Ordering::SeqCst) != generation {
            return;
        }
        let (contexts, asked) = {
            let kept = KEPT.lock();
            let contexts = kept.contexts.iter().filter_map(Weak::upgrade);
            (contexts.collect::<Vec<Arc<Ctx>>>(), kept.asked)
        };
        let needed: Vec<Weak<Ctx>> =
            contexts.iter().filter(|ctx| ctx.look_into()).map(Arc::downgrade).collect();
        let mut kept = KEPT.lock();
        if kept.thread_of != generation {
            return;
        }
        // Else there are new ones, or new locks.
        if kept.asked == asked {
            kept.contexts = needed;
            if kept.contexts.is_empty() {
                kept.thread_of = 0;
                return;
            }
        }
    }
}
