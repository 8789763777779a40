//! Property lists of C's as properties of pools and containers, and back.

use crate::ctypes::daos_prop_t;
use types::{Code, ContProps, Error, Result};
use wire::control::{ContInfo, PoolInfo};

/// The properties, and the label if one is named, of a container to be made. NULL: the defaults.
///
/// # Safety
/// `list` is NULL or a property list.
pub unsafe fn cont_props(list: *const daos_prop_t) -> Result<(ContProps, Option<String>)> {
    if list.is_null() { Ok((ContProps::default(), None)) } else { Err(unsupported()) }
}

/// Fills in the entries a list asks for; NULL asks for nothing.
///
/// # Safety
/// `list` is NULL or a property list.
pub unsafe fn fill_cont(list: *mut daos_prop_t, _info: &ContInfo) -> Result<()> {
    if list.is_null() { Ok(()) } else { Err(unsupported()) }
}

/// As [`fill_cont`], for a pool.
///
/// # Safety
/// `list` is NULL or a property list.
pub unsafe fn fill_pool(list: *mut daos_prop_t, _info: &PoolInfo) -> Result<()> {
    if list.is_null() { Ok(()) } else { Err(unsupported()) }
}

fn unsupported() -> Error {
    Error::new(Code::NotSupported, "property lists are not read yet")
}
