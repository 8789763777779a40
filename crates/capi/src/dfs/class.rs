//! Object classes of files and directories, by the number C uses.

use crate::ctypes::daos_oclass_id_t;
use crate::oclass;
use client::Pool;
use types::{Error, ObjClass, Result};

pub(crate) use crate::oclass::id_of;

/// The class of a number in a pool; `None` for 0, which means "whatever is the default here".
/// `Inval` for a number that is no class, or none we have.
pub(crate) fn of_id(id: daos_oclass_id_t, pool: &Pool) -> Result<Option<ObjClass>> {
    if id == oclass::UNKNOWN {
        return Ok(None);
    }
    let map = pool.map();
    let class = oclass::resolve(id, map.engines.len() as u32, map.targets.len() as u32);
    match class {
        Some(class) => Ok(Some(class)),
        None => Err(Error::inval(format!("{id:#x} is not an object class that can be had here"))),
    }
}
