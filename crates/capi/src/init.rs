//! `daos_init`, `daos_fini`, `daos_reinit`, and the functions of events and queues.

use crate::ctx::{self, Ctx};

use crate::ctypes::{daos_event_t, daos_handle_t};
use crate::event::{Callback, Event, Queue, wait_of};
use crate::{guard, handle};
use client::SystemAddress;
use parking_lot::Mutex;
use std::sync::Arc;
use types::{Code, Error};

/// How many `daos_init`s have no `daos_fini` yet.
static USERS: Mutex<u64> = Mutex::new(0);

/// Finds the system (`AZEKURA_SYSTEM`, or the default of `azekura up`) and connects to it.
/// Counted: each call wants a `daos_fini`.
///
/// Errors: `-DER_NONEXIST` when there is no system, `-DER_UNREACH` when it does not answer.
#[unsafe(no_mangle)]
pub extern "C" fn daos_init() -> i32 {
    guard::daos(|| {
        let mut users = USERS.lock();
        if *users == 0 {
            crate::log_setup();
            ctx::open(SystemAddress::discover()?);
            let greeted = Ctx::of_thread().and_then(|ctx| {
                let held = ctx.lock();
                let client = held.local().client.clone();
                let greeted = client.block_on(client.system_query()).map(|_| ());
                drop(client);
                greeted
            });
            if let Err(error) = greeted {
                ctx::close();
                return Err(error);
            }
        }
        *users += 1;
        Ok(())
    })
}

/// Undoes one `daos_init`; the last one closes all connections. `-DER_UNINIT` without one.
#[unsafe(no_mangle)]
pub extern "C" fn daos_fini() -> i32 {
    guard::daos(|| {
        let mut users = USERS.lock();
        if *users == 0 {
            return Err(Error::new(Code::Closed, "daos_init has not been called"));
        }
        *users -= 1;
        if *users == 0 {
            ctx::close();
        }
        Ok(())
    })
}

/// After a fork, in the child: connections are made anew. Handles stay good, event queues do not.
/// `-DER_UNINIT` before `daos_init`.
#[unsafe(no_mangle)]
pub extern "C" fn daos_reinit() -> i32 {
    guard::daos(|| {
        if !ctx::is_open() {
            return Err(Error::new(Code::Closed, "daos_init has not been called"));
        }
        ctx::start_anew();
        Ok(())
    })
}

/// Makes an event queue.
///
/// # Safety
/// `eqh` is NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_eq_create(eqh: *mut daos_handle_t) -> i32 {
    guard::daos(|| {
        let cookie = handle::add(Arc::new(Queue::new()?))?;
        // SAFETY: the caller's promise.
        unsafe { guard::put(eqh, daos_handle_t { cookie }) }
    })
}

/// Removes an event queue. `-DER_BUSY` when an event runs or waits to be polled, unless `flags`
/// has `DAOS_EQ_DESTROY_FORCE` (1), which waits for what runs.
#[unsafe(no_mangle)]
pub extern "C" fn daos_eq_destroy(eqh: daos_handle_t, flags: i32) -> i32 {
    guard::daos(|| {
        let queue = handle::get::<Queue>(eqh.cookie)?;
        if queue.is_busy() {
            if flags & 1 == 0 {
                return Err(Error::new(Code::Busy, "events are running or not yet polled"));
            }
            queue.drain();
        }
        handle::remove::<Queue>(eqh.cookie).map(|_| ())
    })
}

/// Takes finished events out of a queue; see `daos_event.h`. Returns how many.
///
/// # Safety
/// `events` is good for writing `nevents` pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_eq_poll(
    eqh: daos_handle_t,
    wait_running: i32,
    timeout: i64,
    nevents: u32,
    events: *mut *mut daos_event_t,
) -> i32 {
    guard::count(|| {
        let queue = handle::get::<Queue>(eqh.cookie)?;
        if events.is_null() || nevents == 0 {
            return Err(guard::null());
        }
        let count_max = nevents.min(i32::MAX as u32) as usize;
        let taken = queue.poll(count_max, wait_running != 0, wait_of(timeout))?;
        for (at, event) in taken.iter().enumerate() {
            // SAFETY: `at` is below `nevents`.
            unsafe { events.add(at).write(*event) };
        }
        Ok(taken.len() as i32)
    })
}

/// Counts, and lists, events of a queue: those done for bit 0 of `query`, those running for
/// bit 1. Returns how many there are.
///
/// # Safety
/// `events` is NULL or good for writing `nevents` pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_eq_query(
    eqh: daos_handle_t,
    query: u32,
    nevents: u32,
    events: *mut *mut daos_event_t,
) -> i32 {
    guard::count(|| {
        let queue = handle::get::<Queue>(eqh.cookie)?;
        let mut found = Vec::new();
        if query & 1 != 0 {
            found.extend(queue.completed());
        }
        if query & 2 != 0 {
            found.extend(queue.running());
        }
        if !events.is_null() && nevents > 0 {
            found.truncate(nevents as usize);
            for (at, event) in found.iter().enumerate() {
                // SAFETY: `at` is below `nevents`.
                unsafe { events.add(at).write(*event) };
            }
        }
        Ok(found.len() as i32)
    })
}

/// Initializes an event. It belongs to `eqh` (0: to none), or to `parent`.
///
/// # Safety
/// `ev` is NULL or memory for an event that stays where it is; `parent` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_event_init(
    ev: *mut daos_event_t,
    eqh: daos_handle_t,
    parent: *mut daos_event_t,
) -> i32 {
    guard::daos(|| {
        let queue = if parent.is_null() && eqh.cookie != 0 {
            let found = handle::get::<Queue>(eqh.cookie);
            Some(found.map_err(|error| Error::new(Code::NonExist, error.text))?)
        } else {
            None
        };
        Event::init(ev, queue, parent)
    })
}

/// Finalizes an event and its children. `-DER_BUSY` while it runs.
///
/// # Safety
/// `ev` is NULL or memory for an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_event_fini(ev: *mut daos_event_t) -> i32 {
    guard::daos(|| Event::fini(ev))
}

/// The child of `parent` after `child` (the first for NULL), or NULL.
///
/// # Safety
/// Both are NULL or events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_event_next(
    parent: *mut daos_event_t,
    child: *mut daos_event_t,
) -> *mut daos_event_t {
    guard::catch(|| Event::next_child(parent, child)).unwrap_or(std::ptr::null_mut())
}

/// Tells whether an event is finished, waiting at most `timeout` microseconds (-1: for ever).
///
/// # Safety
/// `ev` is NULL or an event, `flag` NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_event_test(
    ev: *mut daos_event_t,
    timeout: i64,
    flag: *mut bool,
) -> i32 {
    guard::daos(|| {
        if flag.is_null() {
            return Err(guard::null());
        }
        let finished = Event::test(ev, wait_of(timeout))?;
        // SAFETY: not NULL, and the caller's promise.
        unsafe { guard::put(flag, finished) }
    })
}

/// Has `cb(arg, ev, result)` called when the event's next operation completes, by the thread
/// that polls or tests, before the event is seen as finished.
///
/// # Safety
/// `ev` is NULL or an event; `cb` may be called with `arg` until then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_event_register_comp_cb(
    ev: *mut daos_event_t,
    cb: Option<Callback>,
    arg: *mut libc::c_void,
) -> i32 {
    guard::daos(|| Event::register(ev, cb.ok_or_else(guard::null)?, arg as usize))
}

/// Closes a parent for more children; it finishes when they have.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_event_parent_barrier(ev: *mut daos_event_t) -> i32 {
    guard::daos(|| Event::barrier(ev))
}

/// Asks for an operation to be given up; the event must still be polled or tested.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_event_abort(ev: *mut daos_event_t) -> i32 {
    guard::daos(|| Event::abort(ev))
}
