//! Functions that have nothing to do here: `-DER_NOSYS`, at once and without touching an event.
//!
//! The task scheduler, orders to a pool's service, and switches of DAOS's own tests. Each is in the
//! table of `docs/c-api.md`.

use crate::ctypes::{daos_epoch_t, daos_event_t, daos_handle_t};
use crate::errno::DER_NOSYS;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

/// An operation as a task.
#[unsafe(no_mangle)]
pub extern "C" fn daos_task_create(
    _opc: c_int,
    _sched: *mut c_void,
    _num_deps: c_uint,
    _dep_tasks: *mut *mut c_void,
    _task: *mut *mut c_void,
) -> c_int {
    -DER_NOSYS
}

/// Another operation for a task.
#[unsafe(no_mangle)]
pub extern "C" fn daos_task_reset(_task: *mut c_void, _opc: c_int) -> c_int {
    -DER_NOSYS
}

/// The arguments of a task: NULL.
#[unsafe(no_mangle)]
pub extern "C" fn daos_task_get_args(_task: *mut c_void) -> *mut c_void {
    null_mut()
}

/// The user's data of a task: NULL.
#[unsafe(no_mangle)]
pub extern "C" fn daos_task_get_priv(_task: *mut c_void) -> *mut c_void {
    null_mut()
}

/// Sets the user's data of a task; what it was before: NULL.
#[unsafe(no_mangle)]
pub extern "C" fn daos_task_set_priv(_task: *mut c_void, _data: *mut c_void) -> *mut c_void {
    null_mut()
}

/// Runs the tasks of a scheduler.
#[unsafe(no_mangle)]
pub extern "C" fn daos_progress(
    _sched: *mut c_void,
    _timeout_us: i64,
    _is_empty: *mut bool,
) -> c_int {
    -DER_NOSYS
}

/// Waits for a change of a container.
#[unsafe(no_mangle)]
pub extern "C" fn daos_cont_subscribe(
    _coh: daos_handle_t,
    _epoch: *mut daos_epoch_t,
    _ev: *mut daos_event_t,
) -> c_int {
    -DER_NOSYS
}

/// Stops the service of a pool.
#[unsafe(no_mangle)]
pub extern "C" fn daos_pool_stop_svc(_poh: daos_handle_t, _ev: *mut daos_event_t) -> c_int {
    -DER_NOSYS
}

/// Sets a switch of engines.
#[unsafe(no_mangle)]
pub extern "C" fn daos_debug_set_params(
    _grp: *const c_char,
    _rank: u32,
    _key_id: c_uint,
    _value: u64,
    _value_extra: u64,
    _ev: *mut daos_event_t,
) -> c_int {
    -DER_NOSYS
}

/// Marks the logs of engines.
#[unsafe(no_mangle)]
pub extern "C" fn daos_debug_add_mark(_mark: *const c_char) -> c_int {
    -DER_NOSYS
}

/// State of a device.
#[unsafe(no_mangle)]
pub extern "C" fn daos_mgmt_get_bs_state(
    _group: *const c_char,
    _blobstore_uuid: *const u8,
    _state: *mut c_int,
    _ev: *mut daos_event_t,
) -> c_int {
    -DER_NOSYS
}
