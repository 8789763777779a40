//! Which object classes a container accepts.

use crate::layout::{no_weight, placement_set};
use types::{Code, ContProps, Error, ObjClass, Result, TargetId};
use wire::map::PoolMap;

/// Checks that objects of `class` may be made in a container with `props`.
///
/// More groups than targets are fine: they are clamped when an object is placed. Fails with
/// `Redundancy` for a class that survives fewer losses than the container demands, or has groups of more
/// members than the pool has targets, those left out that are drained; with `NonExist` when the pool has no target to place on.
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
    let placed = set.weights.iter().filter(|(_, weight)| *weight > 0);
    let targets = placed.clone().count();
    if targets == 0 {
        return Err(no_weight(map));
    }
    let members = class.scheme.members();
    // A drained target is to be taken away: it must not get anything new, and the others must be enough without it.
    if map.outs.iter().any(|out| out.is_drained) {
        let is_out = |id: TargetId| map.outs.iter().any(|out| out.target == id);
        let left = placed.filter(|(id, _)| !is_out(*id)).count();
        if members > left && members <= targets {
            return Err(Error::new(
                Code::Redundancy,
                format!(
                    "class {class} needs {members} targets, and of the {targets} of the pool {left} are neither drained nor \
                     replaced: use fewer copies or cells, or take in others ('azekura pool extend', 'azekura pool reintegrate')"
                ),
            ));
        }
    }
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
