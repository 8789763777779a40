//! Functions that have nothing to do here: `-DER_NOSYS`, at once and without touching an event.
//!
//! Pipelines, buckets, orders to a pool's service, and switches of DAOS's own tests. Each is in the
//! table of `docs/c-api.md`.

use crate::ctypes::{daos_epoch_t, daos_event_t, daos_handle_t};
use crate::errno::DER_NOSYS;
use std::ffi::{c_char, c_int, c_uint};

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

/// Functions of which not even the arguments are looked at.
macro_rules! none_of {
    ($said:expr, $why:expr, $($name:ident)*) => {
        $(
            #[doc = $why]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> c_int {
                $said
            }
        )*
    };
}

none_of! {
    -DER_NOSYS, "Engines run no pipelines.",
    daos_pipeline_add
    daos_filter_add
    daos_pipeline_check
    daos_pipeline_free
    daos_pipeline_run
}

none_of! {
    libc::ENOTSUP, "There are no buckets here.",
    ds3_init ds3_fini ds3_connect ds3_disconnect ds3_user_set ds3_user_remove ds3_user_get
    ds3_user_get_by_email ds3_user_get_by_key ds3_bucket_list ds3_bucket_create ds3_bucket_destroy
    ds3_bucket_open ds3_bucket_close ds3_bucket_get_info ds3_bucket_set_info ds3_bucket_list_obj
    ds3_obj_create ds3_obj_open ds3_obj_close ds3_obj_get_info ds3_obj_set_info ds3_obj_read
    ds3_obj_destroy ds3_obj_write ds3_obj_mark_latest ds3_bucket_list_multipart
    ds3_upload_list_parts ds3_upload_init ds3_upload_remove ds3_upload_get_info ds3_part_open
    ds3_part_close ds3_part_write ds3_part_read ds3_part_set_info
}
