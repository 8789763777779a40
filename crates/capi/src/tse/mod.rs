//! Tasks: functions that run after each other as a scheduler finds them ready, and operations of
//! the API among them.
//!
//! Unlike handles, tasks are memory, as in DAOS: programs read `dt_result` of one. It is ours, and
//! ends when the task is complete and nobody holds a reference. What we know of a task, and of a
//! scheduler, is behind a number of the table that their memory holds, so that one that is over is
//! refused as such as long as its memory lasts.
//!
//! Which operation a task runs is known to the header: a function in place (`daos_task_create`)
//! calls the operation with the task's arguments and an event of ours ([`azk_task_event`]).
//!
//! Source of the semantics: DAOS's `daos/tse.h`.

mod list;
mod sched;

use crate::ctypes::{d_list_t, daos_event_t};
use crate::errno::{DER_INVAL, DER_NO_HDL, DER_NO_PERM};
use crate::event::wait_of;
use crate::guard::{self, User};
use crate::handle;
use sched::{ARGUMENT_BYTES, Callback, Sched, Task};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;
use types::{Code, Error, Result};

/// Marks the memory of a task and of a scheduler.
const MARK: u64 = 0x617a_6b5f_7473_6b31;

/// A task as C sees it.
#[repr(C)]
pub struct tse_task_t {
    /// 0 or the first error.
    pub dt_result: c_int,
    dt_pad32: c_int,
    /// Mark and number.
    dt_private: [u64; 2],
    /// Its place in a list of tasks.
    dt_list: d_list_t,
}

/// A scheduler as C sees it; in C's memory.
#[repr(C)]
pub struct tse_sched_t {
    /// 0 or the first error of a task.
    pub ds_result: c_int,
    /// The user's.
    pub ds_udata: *mut c_void,
    /// Mark and number.
    ds_private: [u64; 48],
}

/// What a task does.
pub type TaskFunction = unsafe extern "C" fn(*mut tse_task_t) -> c_int;
/// What is called before or after it.
pub type TaskCallback = unsafe extern "C" fn(*mut tse_task_t, *mut c_void) -> c_int;
/// What is called after all tasks: argument, result.
pub type SchedFunction = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;

fn sched_of(user: *const tse_sched_t) -> Result<Arc<Sched>> {
    // SAFETY: the API demands a scheduler.
    let user = unsafe { guard::get(user) }?;
    if user.ds_private[0] != MARK {
        return Err(Error::inval("the scheduler was not initialized"));
    }
    handle::get(user.ds_private[1])
}

fn task_of(user: *const tse_task_t) -> Result<Arc<Task>> {
    // SAFETY: the API demands a task.
    let user = unsafe { guard::get(user) }?;
    if user.dt_private[0] != MARK {
        return Err(Error::inval("this is no task"));
    }
    handle::get(user.dt_private[1])
}

/// Gives back a reference; with the last one the task's memory goes.
fn release(task: &Arc<Task>) {
    if task.drop_reference() {
        // SAFETY: it was made by `create`, and nobody has it any more.
        let user = unsafe { Box::from_raw(task.user.0) };
        let _ = handle::remove::<Task>(user.dt_private[1]);
    }
}

/// Makes a scheduler in C's memory. `comp_cb` (or NULL) is called with `udata` when it has ended.
///
/// # Safety
/// `sched` is good for writing and stays where it is until `tse_sched_fini`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_sched_init(
    sched: *mut tse_sched_t,
    comp_cb: Option<SchedFunction>,
    udata: *mut c_void,
) -> c_int {
    guard::daos(|| {
        if sched.is_null() {
            return Err(guard::null());
        }
        let state = Arc::new(Sched::new(User(sched)));
        if let Some(function) = comp_cb {
            state.add_callback(function, User(udata));
        }
        let mut fresh = tse_sched_t { ds_result: 0, ds_udata: udata, ds_private: [0; 48] };
        fresh.ds_private[0] = MARK;
        fresh.ds_private[1] = handle::add(state)?;
        User(sched).set(fresh);
        Ok(())
    })
}

/// Forgets a scheduler. Tasks that are left do not run any more.
///
/// # Safety
/// `sched` is a scheduler or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_sched_fini(sched: *mut tse_sched_t) {
    let _ = guard::catch(|| {
        sched_of(sched)?.forget();
        // SAFETY: not NULL: it was found.
        handle::remove::<Sched>(unsafe { (*sched).ds_private[1] }).map(|_| ())
    });
}

/// Another function to be called when the scheduler has ended. The last one comes first.
///
/// # Safety
/// `sched` is a scheduler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_sched_register_comp_cb(
    sched: *mut tse_sched_t,
    comp_cb: Option<SchedFunction>,
    arg: *mut c_void,
) -> c_int {
    guard::daos(|| {
        let function = comp_cb.ok_or_else(guard::null)?;
        sched_of(sched)?.add_callback(function, User(arg));
        Ok(())
    })
}

/// There are no more tasks: what is left is run, or cancelled (`-DER_CANCELED`).
///
/// # Safety
/// `sched` is a scheduler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_sched_complete(sched: *mut tse_sched_t, ret: c_int, cancel: bool) {
    let _ = guard::daos(|| sched_of(sched)?.end(ret, cancel));
}

/// Runs what can run, without waiting.
///
/// # Safety
/// `sched` is a scheduler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_sched_progress(sched: *mut tse_sched_t) {
    let _ = guard::daos(|| sched_of(sched)?.progress());
}

/// True when nothing that was scheduled is left.
///
/// # Safety
/// `sched` is a scheduler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_sched_check_complete(sched: *mut tse_sched_t) -> bool {
    guard::catch(|| Ok(sched_of(sched)?.is_idle())).unwrap_or(true)
}

/// Runs tasks until none is left, or for `timeout_us` microseconds (negative: for ever).
/// `*is_empty` tells which.
///
/// # Safety
/// `sched` is a scheduler; `is_empty` is NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_progress(
    sched: *mut tse_sched_t,
    timeout_us: i64,
    is_empty: *mut bool,
) -> c_int {
    guard::daos(|| {
        let found = sched_of(sched)?;
        found.progress_for(wait_of(timeout_us))?;
        User(is_empty).set(found.is_idle());
        Ok(())
    })
}

/// Makes a task. It runs when it was scheduled; without a function it is complete then.
///
/// # Safety
/// `sched` is a scheduler; `taskp` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_create(
    task_func: Option<TaskFunction>,
    sched: *mut tse_sched_t,
    private: *mut c_void,
    taskp: *mut *mut tse_task_t,
) -> c_int {
    guard::daos(|| {
        let sched = sched_of(sched)?;
        if taskp.is_null() {
            return Err(guard::null());
        }
        let dt_list = d_list_t { next: null_mut(), prev: null_mut() };
        let dt_private = [MARK, 0];
        let user = Box::new(tse_task_t { dt_result: 0, dt_pad32: 0, dt_private, dt_list });
        let user = Box::into_raw(user);
        // SAFETY: just made.
        unsafe {
            (*user).dt_list.next = &raw mut (*user).dt_list;
            (*user).dt_list.prev = &raw mut (*user).dt_list;
        }
        let task = Arc::new(Task::new(User(user), sched, task_func, User(private)));
        match handle::add(task) {
            // SAFETY: just made.
            Ok(number) => unsafe { (*user).dt_private[1] = number },
            Err(error) => {
                // SAFETY: just made, and nobody has it.
                drop(unsafe { Box::from_raw(user) });
                return Err(error);
            }
        }
        User(taskp).set(user);
        Ok(())
    })
}

/// Lets a task begin when all it depends on is complete; with `instant` at once, if it is.
///
/// # Safety
/// `task` is a task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_schedule(task: *mut tse_task_t, instant: bool) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { tse_task_schedule_with_delay(task, instant, 0) }
}

/// [`tse_task_schedule`] of a task that does not begin before `delay` microseconds have gone by.
/// `-DER_INVAL` for a delay of one that is to begin at once.
///
/// # Safety
/// `task` is a task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_schedule_with_delay(
    task: *mut tse_task_t,
    instant: bool,
    delay: u64,
) -> c_int {
    guard::daos(|| {
        let task = task_of(task)?;
        if instant && delay > 0 {
            return Err(Error::inval("a task that is to begin at once cannot be delayed"));
        }
        task.schedule(instant, Duration::from_micros(delay));
        Ok(())
    })
}

/// Ends a task with a result, unless it has one already.
///
/// # Safety
/// `task` is a task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_complete(task: *mut tse_task_t, ret: c_int) {
    let _ = guard::daos(|| {
        task_of(task)?.complete(ret);
        Ok(())
    });
}

/// # Safety
/// `data` is NULL or `bytes` bytes.
unsafe fn callback(
    function: Option<TaskCallback>,
    data: *mut c_void,
    bytes: usize,
) -> Result<Option<Callback>> {
    let Some(function) = function else { return Ok(None) };
    if bytes > ARGUMENT_BYTES {
        return Err(Error::inval(format!("an argument of {bytes} bytes, over {ARGUMENT_BYTES}")));
    }
    let copied = bytes > 0 && !data.is_null();
    let argument = copied.then(|| {
        let mut copy: Box<[u64]> = vec![0; bytes.div_ceil(8)].into();
        let to = copy.as_mut_ptr().cast::<u8>();
        // SAFETY: the caller's promise; the copy has room.
        unsafe { std::ptr::copy_nonoverlapping(data.cast::<u8>(), to, bytes) };
        copy
    });
    Ok(Some(Callback { function, argument, plain: User(data) }))
}

/// What is called before a task runs and after it is complete, each with a copy of its data, or
/// with the pointer when the size is 0. The last one registered for the end comes first.
/// `-DER_NO_PERM` for a complete task.
///
/// # Safety
/// `task` is a task; data are NULL or as long as said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_register_cbs(
    task: *mut tse_task_t,
    prep_cb: Option<TaskCallback>,
    prep_data: *mut c_void,
    prep_data_size: usize,
    comp_cb: Option<TaskCallback>,
    comp_data: *mut c_void,
    comp_data_size: usize,
) -> c_int {
    guard::daos(|| {
        // SAFETY: the caller's promise.
        let prepare = unsafe { callback(prep_cb, prep_data, prep_data_size) }?;
        // SAFETY: the caller's promise.
        let complete = unsafe { callback(comp_cb, comp_data, comp_data_size) }?;
        match task_of(task)?.add_callbacks(prepare, complete) {
            true => Ok(()),
            false => Err(Error::new(Code::NoPerm, "the task is complete")),
        }
    })
}

/// [`tse_task_register_cbs`] for the end only.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_register_comp_cb(
    task: *mut tse_task_t,
    comp_cb: Option<TaskCallback>,
    arg: *mut c_void,
    arg_size: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { tse_task_register_cbs(task, None, null_mut(), 0, comp_cb, arg, arg_size) }
}

/// A task waits for others: to begin or, when it runs already, to end. Their errors are its errors.
///
/// # Safety
/// `task` is a task, `dep_tasks` holds `num_deps` of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_register_deps(
    task: *mut tse_task_t,
    num_deps: c_int,
    dep_tasks: *mut *mut tse_task_t,
) -> c_int {
    guard::daos(|| {
        let task = task_of(task)?;
        if num_deps < 0 || num_deps > 0 && dep_tasks.is_null() {
            return Err(guard::null());
        }
        for at in 0..num_deps as usize {
            // SAFETY: the caller's promise.
            let other = task_of(unsafe { *dep_tasks.add(at) })?;
            if Arc::ptr_eq(&other, &task) {
                return Err(Error::inval("a task cannot wait for itself"));
            }
            task.depend_on(&other);
        }
        Ok(())
    })
}

/// Has a task run once more, from its function or one of its callbacks.
///
/// # Safety
/// `task` is a task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_reinit(task: *mut tse_task_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { tse_task_reinit_with_delay(task, 0) }
}

/// [`tse_task_reinit`] of a task that does not begin before `delay` microseconds have gone by.
///
/// # Safety
/// `task` is a task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_reinit_with_delay(task: *mut tse_task_t, delay: u64) -> c_int {
    match task_of(task) {
        Ok(task) if task.begin_anew(None, Duration::from_micros(delay)) => 0,
        Ok(_) => -DER_NO_PERM,
        Err(_) => -DER_NO_HDL,
    }
}

/// [`tse_task_register_comp_cb`] and [`tse_task_reinit_with_delay`] together: without the second there
/// is not the first.
///
/// # Safety
/// As for both.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_register_comp_cb_and_reinit(
    task: *mut tse_task_t,
    comp_cb: Option<TaskCallback>,
    arg: *mut c_void,
    arg_size: usize,
    delay: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let Ok(Some(callback)) = (unsafe { callback(comp_cb, arg, arg_size) }) else {
        return -DER_INVAL;
    };
    match task_of(task) {
        Ok(task) if task.begin_anew(Some(callback), Duration::from_micros(delay)) => 0,
        Ok(_) => -DER_NO_PERM,
        Err(_) => -DER_NO_HDL,
    }
}

/// Makes a complete task, to which there is a reference, a new one that is to be scheduled.
///
/// # Safety
/// `task` is a task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_reset(
    task: *mut tse_task_t,
    task_func: Option<TaskFunction>,
    private: *mut c_void,
) -> c_int {
    match task_of(task) {
        Ok(task) if task.reset(task_func, User(private)) => 0,
        Ok(_) => -DER_NO_PERM,
        Err(_) => -DER_NO_HDL,
    }
}

/// Keeps the memory of a task.
///
/// # Safety
/// `task` is a task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_addref(task: *mut tse_task_t) {
    if let Ok(task) = task_of(task) {
        task.add_reference();
    }
}

/// Gives back a reference.
///
/// # Safety
/// `task` is a task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_decref(task: *mut tse_task_t) {
    if let Ok(task) = task_of(task) {
        release(&task);
    }
}

/// Errors of this task are not errors of those that wait for it.
///
/// # Safety
/// `task` is a task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_disable_propagate(task: *mut tse_task_t) {
    if let Ok(task) = task_of(task) {
        task.keep_errors_here();
    }
}

/// The user's data of a task.
///
/// # Safety
/// `task` is a task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_get_priv(task: *mut tse_task_t) -> *mut c_void {
    task_of(task).map_or(null_mut(), |task| task.private().0)
}

/// Sets the user's data of a task; returns what it was.
///
/// # Safety
/// `task` is a task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_set_priv(
    task: *mut tse_task_t,
    private: *mut c_void,
) -> *mut c_void {
    task_of(task).map_or(null_mut(), |task| task.set_private(User(private)).0)
}

/// Memory of a task for `size` bytes of arguments, zeros at first; NULL for more than 1024.
///
/// # Safety
/// `task` is a task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_buf_embedded(task: *mut tse_task_t, size: c_int) -> *mut c_void {
    let fits = usize::try_from(size).is_ok_and(|bytes| bytes <= ARGUMENT_BYTES);
    task_of(task).ok().filter(|_| fits).map_or(null_mut(), |task| task.arguments())
}

/// The scheduler of a task.
///
/// # Safety
/// `task` is a task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task2sched(task: *mut tse_task_t) -> *mut tse_sched_t {
    task_of(task).map_or(null_mut(), |task| task.sched.user.0)
}

/// The arguments of a task that is an operation.
///
/// # Safety
/// `task` is a task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_task_get_args(task: *mut tse_task_t) -> *mut c_void {
    task_of(task).map_or(null_mut(), |task| task.arguments())
}

/// The user's data of a task.
///
/// # Safety
/// `task` is a task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_task_get_priv(task: *mut tse_task_t) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { tse_task_get_priv(task) }
}

/// Sets the user's data of a task; returns what it was.
///
/// # Safety
/// `task` is a task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_task_set_priv(
    task: *mut tse_task_t,
    private: *mut c_void,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { tse_task_set_priv(task, private) }
}

/// An event for the operation that a task is about to launch; NULL when there can be none. For the
/// functions in `daos_task.h`.
///
/// # Safety
/// `task` is a task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn azk_task_event(task: *mut tse_task_t) -> *mut daos_event_t {
    guard::catch(|| task_of(task)?.operation()).unwrap_or(null_mut())
}

/// What the launch with this event returned: an error is the task's result.
///
/// # Safety
/// `task` is a task, `ev` its event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn azk_task_launched(
    task: *mut tse_task_t,
    ev: *mut daos_event_t,
    rc: c_int,
) -> c_int {
    match task_of(task) {
        Ok(task) => {
            task.launched(ev, rc);
            rc
        }
        Err(_) => -DER_INVAL,
    }
}
