//! Which object classes a container accepts.

use crate::layout::{no_weight, placement_set};
use types::{Code, ContProps, Error, ObjClass, Result};
use wire::map::PoolMap;

/// Checks that objects of `class` may be made in a container with `props`.
///
/// More groups than targets are fine: they are clamped when an object is placed. Fails with
/// `Redundancy` for a class that survives fewer losses than the container demands, or has groups of more
/// members than the pool has targets, with `NonExist` when the pool has no target to place on.
pub fn check_class(class: ObjClass, props: &ContProps, map: &PoolMap) -> Result<()> {
    let factor = class.scheme.redundancy_factor();
    if factor < props.rd_fac {
        return Err(Error::new(
            Code::Redundancy,
            format!(
                "class {class} survives the loss of {factor} targets, the container demands {} \
                 (rd_fac); use {} or a stronger one",
                props.rd_fac,
                class.at_least(props.rd_fac)
            ),
        ));
    }
    let set = placement_set(map.placement_epoch(), map)?;
    let targets = set.weights.iter().filter(|(_, weight)| *weight > 0).count();
    if targets == 0 {
        return Err(no_weight(map));
    }
    let members = class.scheme.members();
    if members > targets {
        return Err(Error::new(
            Code::Redundancy,
            format!(
                "class {class} needs {members} targets, the pool has {targets}; use fewer copies or cells"
            ),
        ));
    }
    Ok(())
}
