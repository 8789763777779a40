//! Snapshots: the store has none yet, so these functions say `-DER_NOSYS`. Handles are checked
//! all the same, and events complete.

use crate::cont::ContHandle;
use crate::ctypes::{daos_anchor_t, daos_epoch_range_t, daos_epoch_t, daos_event_t, daos_handle_t};
use crate::errno::Sign;
use crate::event::settle;
use std::ffi::{c_char, c_int, c_uint};
use types::{Code, Error};

fn none(coh: daos_handle_t, ev: *mut daos_event_t) -> c_int {
    settle(ev, Sign::Der, move || {
        ContHandle::of(coh)?;
        Err(Error::new(Code::NotSupported, "there are no snapshots"))
    })
}

/// Makes a snapshot: not offered.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_create_snap(
    coh: daos_handle_t,
    _epoch: *mut daos_epoch_t,
    _name: *mut c_char,
    ev: *mut daos_event_t,
) -> c_int {
    none(coh, ev)
}

/// Makes a snapshot, with or without a table of objects: not offered.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_create_snap_opt(
    coh: daos_handle_t,
    _epoch: *mut daos_epoch_t,
    _name: *mut c_char,
    _opts: c_uint,
    ev: *mut daos_event_t,
) -> c_int {
    none(coh, ev)
}

/// Lists snapshots: not offered.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_list_snap(
    coh: daos_handle_t,
    _nr: *mut c_int,
    _epochs: *mut daos_epoch_t,
    _names: *mut *mut c_char,
    _anchor: *mut daos_anchor_t,
    ev: *mut daos_event_t,
) -> c_int {
    none(coh, ev)
}

/// Removes snapshots: not offered.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_destroy_snap(
    coh: daos_handle_t,
    _epr: daos_epoch_range_t,
    ev: *mut daos_event_t,
) -> c_int {
    none(coh, ev)
}

/// Goes back to a snapshot: not offered.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_rollback(
    coh: daos_handle_t,
    _epoch: daos_epoch_t,
    ev: *mut daos_event_t,
) -> c_int {
    none(coh, ev)
}

/// Makes the table of objects of a snapshot: not offered.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_snap_oit_create(
    coh: daos_handle_t,
    _epoch: daos_epoch_t,
    _name: *mut c_char,
    ev: *mut daos_event_t,
) -> c_int {
    none(coh, ev)
}

/// Removes the table of objects of a snapshot: not offered.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_snap_oit_destroy(
    coh: daos_handle_t,
    _oh: daos_handle_t,
    ev: *mut daos_event_t,
) -> c_int {
    none(coh, ev)
}
