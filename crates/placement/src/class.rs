//! Which object classes a container accepts.

use crate::layout::{no_weight, placement_set};
use types::{Code, ContProps, Error, ObjClass, Result};
use wire::map::PoolMap;

/// Checks that objects of `class` may be made in a container with `props`.
///
/// More groups than targets are fine: they are clamped when an object is placed. Fails with
/// `NotSupported` for classes with redundancy (this version does not replicate), with
/// `Redundancy` for a class that survives fewer losses than the container demands, with
/// `NonExist` when the pool has no target to place on.
pub fn check_class(class: ObjClass, props: &ContProps, map: &PoolMap) -> Result<()> {
    let factor = class.scheme.redundancy_factor();
    if factor > 0 {
        return Err(Error::new(
            Code::NotSupported,
            format!("class {class}: replication is not available in this version; use S1 to SX"),
        ));
    }
    if factor < props.rd_fac {
        return Err(Error::new(
            Code::Redundancy,
            format!(
                "class {class} survives the loss of {factor} targets, the container demands {} \
                 (rd_fac)",
                props.rd_fac
            ),
        ));
    }
    let set = placement_set(map.placement_epoch(), map)?;
    if set.weights.iter().all(|(_, weight)| *weight == 0) {
        return Err(no_weight(map));
    }
    Ok(())
}
