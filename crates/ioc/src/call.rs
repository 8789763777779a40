//! A call that asks: [`begin`] before its I/O, [`end`] after it.
//!
//! A thread remembers the slot of the call it is in. A second call in the same thread can only
//! come from a signal handler; it goes by. When a handler has left by `siglongjmp` the first call
//! is still remembered though its stack frame is gone; that is seen from the addresses, and its
//! permission given back. (Seen, that is, by the next call that is no deeper in the stack.)
//!
//! A thread that ends within a call, cancelled for instance, gives its slot back by a destructor
//! of thread-specific data.

use crate::report::{COUNTERS, Coordinated, Passed};
use crate::setup::{self, Setup};
use crate::slot::{self, Index, Slot};
use crate::{file, gate};
use coordinate::client::{Answer, Fault, Patience, now};
use coordinate::message::{IoKind, Targets};
use coordinate::rules::targets_of;
use libc::c_int;
use preload::errno;
use rustix::fd::BorrowedFd;
use std::cell::Cell;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// What a thread remembers of the call it is in.
#[derive(Clone, Copy)]
struct Frame {
    /// Address in the stack; 0: in no call.
    address: usize,
    /// The stack was one made for signal handlers.
    alternate: bool,
    /// The slot's mark; 0: none taken yet.
    mark: usize,
}

const NO_FRAME: Frame = Frame { address: 0, alternate: false, mark: 0 };

thread_local! {
    static FRAME: Cell<Frame> = const { Cell::new(NO_FRAME) };
    /// Mark of the slot the thread had last.
    static LIKED: Cell<usize> = const { Cell::new(0) };
    /// The thread has told the system to call `thread_ended`.
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}

/// A permission, to be handed to [`end`]. It is plain data: nothing happens when it is lost.
#[derive(Clone, Copy)]
pub struct Permit {
    index: Index,
    wait: Duration,
    began: Duration,
    kind: IoKind,
}

/// Asks for permission if the call is one to ask. `errno` stays as it is.
pub fn begin(fd: c_int, kind: IoKind, bytes: u64) -> Option<Permit> {
    aside(|| try_begin(fd, kind, bytes))
}

/// Reports the end of the I/O: what the real function returned, negative for an error.
pub fn end(permit: Option<Permit>, transferred: isize) {
    let Some(permit) = permit else { return };
    aside(|| {
        finish(permit, u64::try_from(transferred).unwrap_or(0));
        Some(())
    });
}

/// Runs one of the two halves: with `errno` as it was afterwards, and without being cancelled on the
/// way, for there are values on the stack that need dropping. A panic in it would be a mistake of
/// ours, for which the program must not pay: coordination ends there.
fn aside<T: Copy>(half: impl FnOnce() -> Option<T>) -> Option<T> {
    let before = errno::get();
    let cancelling = cancel_state(CANCEL_DISABLE);
    let result = catch_unwind(AssertUnwindSafe(half)).unwrap_or_else(|_| {
        gate::shut();
        None
    });
    cancel_state(cancelling);
    errno::set(before);
    result
}

/// Makes the thread one that cannot be cancelled.
pub const CANCEL_DISABLE: c_int = 1;

/// Sets whether the thread can be cancelled; returns what it was.
pub fn cancel_state(new: c_int) -> c_int {
    // SAFETY: the form is that of the C library.
    unsafe extern "C-unwind" {
        fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    }
    let mut old = 0;
    // SAFETY: the place is valid.
    unsafe { pthread_setcancelstate(new, &mut old) };
    old
}

fn try_begin(fd: c_int, kind: IoKind, bytes: u64) -> Option<Permit> {
    let state = setup::get()?;
    if state.retry.pausing(now) {
        COUNTERS.passed(Passed::Pausing);
        return None;
    }
    if fd < 0 {
        return None;
    }
    // SAFETY: looked at only, and not negative; when it stands for nothing the call fails.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let status = file::regular(fd)?;
    let frame = Frame { address: here(), alternate: on_alternate_stack(), mark: 0 };
    if !enter(frame) {
        COUNTERS.passed(Passed::Interrupting);
        return None;
    }
    watch_thread();
    let Some(index) = slot::take(Index::from_mark(LIKED.get())) else {
        FRAME.set(NO_FRAME);
        COUNTERS.passed(Passed::NoSlot);
        return None;
    };
    LIKED.set(index.to_mark());
    FRAME.set(Frame { mark: index.to_mark(), ..frame });
    // SAFETY: this thread has just taken the slot, and `FRAME` keeps it from reaching it twice.
    let slot = unsafe { slot::reach(index) };
    let began = now();
    let granted = name_targets(state, fd, &status, slot)
        && permission(state, slot, kind, bytes, std::process::id());
    if !granted {
        leave(index);
        return None;
    }
    let time = now();
    Some(Permit { index, wait: time - began, began: time, kind })
}

fn name_targets(
    state: &Setup,
    fd: BorrowedFd<'_>,
    status: &rustix::fs::Statx,
    slot: &mut Slot,
) -> bool {
    let Slot { names, scratch, mounts, .. } = slot;
    let mut open = file::Open { fd, status, scratch, mounts };
    targets_of(&state.settings.rules, &mut open, names)
}

/// Waits for permission; false when the call shall go by.
fn permission(state: &Setup, slot: &mut Slot, kind: IoKind, bytes: u64, pid: u32) -> bool {
    let mut list = [""; coordinate::message::TARGETS_MAX];
    let mut count = 0;
    for (place, name) in list.iter_mut().zip(slot.names.iter()) {
        *place = name;
        count += 1;
    }
    let Ok(targets) = Targets::encode(&list[..count], &mut slot.encoded) else { return false };
    let settings = &state.settings;
    let patience = Patience { silence: settings.timeout, wait: settings.wait_max };
    if slot.pid != pid {
        // A process made without `fork`'s handlers: the connection is its parent's.
        slot.client.let_go();
        slot.pid = pid;
    }
    // A connection from an earlier call may have ended since; a new one says more.
    let mut fresh = !slot.client.is_connected();
    loop {
        let asked = if fresh {
            let token = slot.scratch.bytes().map_or(&[][..], |room| state.token(room));
            let (remote, hello) = (&state.remote, state.hello(token, pid));
            COUNTERS.connected();
            slot.client.connect(remote, &hello, setup::number_min(), settings.timeout)
        } else {
            Ok(())
        };
        let answer = asked.and_then(|()| slot.client.ask(kind, bytes, targets, patience));
        if let Some(minimums) = slot.client.minimums() {
            minimums.write.into_iter().for_each(gate::open_for_writes);
            let reads = minimums.read.filter(|_| settings.reads);
            reads.into_iter().for_each(gate::open_for_reads);
        }
        return match answer {
            Ok(Answer::Granted) => {
                state.retry.succeeded();
                true
            }
            Ok(Answer::WaitedTooLong) => {
                COUNTERS.passed(Passed::WaitedTooLong);
                state.log.event("waited_too_long", format_args!("{:?}", settings.wait_max));
                false
            }
            Err(Fault::Closed | Fault::Taken | Fault::System { .. }) if !fresh => {
                fresh = true;
                continue;
            }
            Err(fault) => {
                COUNTERS.passed(Passed::Failed);
                let (first, max) = (settings.backoff, settings.backoff_max);
                let seed = u64::from(pid) ^ std::ptr::from_ref(slot).addr() as u64;
                let pause = state.retry.failed(now(), first, max, seed);
                state
                    .log
                    .event("failed", format_args!("{fault}; pausing {} ms", pause.as_millis()));
                false
            }
        };
    }
}

fn finish(permit: Permit, bytes: u64) {
    let Permit { index, wait, began, kind } = permit;
    let io = now().saturating_sub(began);
    // SAFETY: taken by `begin` in this thread and not given back since.
    let slot = unsafe { slot::reach(index) };
    // A failure has ended the connection, which gives the permission back as well.
    let _ = slot.client.done(bytes, io);
    leave(index);
    let call = Coordinated { read: kind == IoKind::Read, bytes, wait, io };
    COUNTERS.coordinated(&call);
    if let Some(state) = setup::get().filter(|state| state.settings.log_calls) {
        state.log.call(&call);
    }
}

/// Remembers the call, unless the thread is in one that is alive.
fn enter(frame: Frame) -> bool {
    let before = FRAME.get();
    if before.address != 0 {
        let gone = if before.alternate != frame.alternate {
            // Only a handler runs on the other stack; when it is over, so are its calls.
            before.alternate
        } else {
            frame.address >= before.address
        };
        if !gone {
            return false;
        }
        abandon(before);
    }
    FRAME.set(frame);
    true
}

/// Gives back the slot of a call whose stack frame is gone.
fn abandon(frame: Frame) {
    if let Some(index) = Index::from_mark(frame.mark) {
        // SAFETY: taken by this thread, and the frame that used it is gone.
        unsafe { slot::reach(index) }.client.close();
        slot::give_back(index);
    }
}

fn leave(index: Index) {
    FRAME.set(NO_FRAME);
    slot::give_back(index);
}

/// An address in the current stack frame.
#[inline(never)]
fn here() -> usize {
    let local = 0u8;
    std::hint::black_box(&raw const local).addr()
}

fn on_alternate_stack() -> bool {
    let mut stack = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: 0, ss_size: 0 };
    // SAFETY: asks only, into a valid place.
    let asked = unsafe { libc::sigaltstack(std::ptr::null(), &mut stack) };
    asked == 0 && stack.ss_flags & libc::SS_ONSTACK != 0
}

/// Key of the thread-specific data whose destructor is `thread_ended`.
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// Makes ready what calls need of the C library. Called once, when the library is loaded.
pub fn prepare() {
    let mut key = 0;
    // SAFETY: the place is valid, and the function has the form asked for.
    if unsafe { libc::pthread_key_create(&mut key, Some(thread_ended)) } == 0 {
        KEY.store(key, Relaxed);
    }
    // SAFETY: the function has the form asked for and may run in any child.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}

fn watch_thread() {
    let key = KEY.load(Relaxed);
    if !WATCHED.get() && key != u32::MAX {
        WATCHED.set(true);
        // Keys made this early are kept in the thread's own block: nothing is allocated.
        // SAFETY: the key is valid; the value is not null, so that the destructor is called.
        unsafe { libc::pthread_setspecific(key, (&raw const KEY).cast()) };
    }
}

// SAFETY: called by the C library only, at the end of a thread that has asked for it.
unsafe extern "C" fn thread_ended(_: *mut c_void) {
    let frame = FRAME.replace(NO_FRAME);
    if frame.address != 0 {
        abandon(frame);
    }
    WATCHED.set(false);
}

// SAFETY: called by the C library only, in a child made by `fork`.
unsafe extern "C" fn forked() {
    let kept = Index::from_mark(FRAME.get().mark);
    // SAFETY: a child made by `fork` has one thread.
    unsafe { slot::after_fork(kept) };
    COUNTERS.reset();
}
