//! Object classes by the number C uses.
//!
//! A number is the redundancy (upper byte) and the group count (lower two bytes, 65535 for "all
//! targets"). Source of the numbers: DAOS's `daos_obj_class.h`.

use crate::ctypes::daos_oclass_id_t;
use types::{Code, Error, GroupCount, ObjClass, Result, Scheme};

const REDUNDANCY_SHIFT: u32 = 24;
const GROUPS_ALL: u32 = 0xffff;
const STRIPED: u32 = 1;
/// Redundancy of two copies; each copy more is one more.
const TWO_COPIES: u32 = 8;
/// Erasure codes (data, parity) and their redundancy numbers.
const CODES: [(u8, u8, u32); 11] = [
    (2, 1, 32),
    (2, 2, 33),
    (4, 1, 34),
    (4, 2, 35),
    (8, 1, 36),
    (8, 2, 37),
    (16, 1, 38),
    (16, 2, 39),
    (4, 3, 40),
    (8, 3, 41),
    (16, 3, 42),
];

/// The class of a number; `None` for 0, which means "whatever is the default here".
///
/// Errors: `Inval` for a number that is no class, `NotSupported` for one we do not have.
pub fn of_id(id: daos_oclass_id_t) -> Result<Option<ObjClass>> {
    if id == 0 {
        return Ok(None);
    }
    let (redundancy, groups) = (id >> REDUNDANCY_SHIFT, id & 0xff_ffff);
    let scheme = match redundancy {
        STRIPED => Scheme::Striped,
        TWO_COPIES..=12 => Scheme::Replicated { copies: (redundancy - TWO_COPIES + 2) as u8 },
        13..=20 => {
            let text = format!("object class {id:#x}: at most 6 copies are made");
            return Err(Error::new(Code::NotSupported, text));
        }
        _ => match CODES.iter().find(|(_, _, number)| *number == redundancy) {
            Some(&(data, parity, _)) => Scheme::ErasureCoded { data, parity },
            None => return Err(Error::inval(format!("{id:#x} is not an object class"))),
        },
    };
    let groups = match groups {
        GROUPS_ALL => GroupCount::All,
        0 => return Err(Error::inval(format!("object class {id:#x} has no groups"))),
        count => {
            let groups = GroupCount::Count(count);
            if GroupCount::from_code(groups.code()) != Some(groups) {
                let text =
                    format!("object class {id:#x}: {count} groups are neither 2^k nor 3*2^k");
                return Err(Error::new(Code::NotSupported, text));
            }
            groups
        }
    };
    Ok(Some(ObjClass { scheme, groups }))
}

/// The number of a class; 0 for one C has no number for.
pub fn id_of(class: ObjClass) -> daos_oclass_id_t {
    let redundancy = match class.scheme {
        Scheme::Striped => STRIPED,
        Scheme::Replicated { copies } => TWO_COPIES + copies as u32 - 2,
        Scheme::ErasureCoded { data, parity } => {
            match CODES.iter().find(|(d, p, _)| (*d, *p) == (data, parity)) {
                Some(&(_, _, number)) => number,
                None => return 0,
            }
        }
    };
    let groups = match class.groups {
        GroupCount::All => GROUPS_ALL,
        GroupCount::Count(count) => count,
    };
    redundancy << REDUNDANCY_SHIFT | groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_and_numbers_round_trip() {
        for class in ObjClass::named() {
            match id_of(class) {
                0 => assert_eq!(class.scheme, Scheme::ErasureCoded { data: 2, parity: 3 }),
                id => assert_eq!(of_id(id).unwrap(), Some(class)),
            }
        }
        assert_eq!(of_id(0).unwrap(), None);
        assert_eq!(id_of(ObjClass::S1), 1 << 24 | 1);
        assert_eq!(id_of(ObjClass::SX), 1 << 24 | 0xffff);
    }

    #[test]
    fn numbers_without_a_meaning_are_refused() {
        for bad in [1, 2 << 24 | 1, 1 << 24, 0xff00_0001, 43 << 24 | 1] {
            assert_eq!(of_id(bad).unwrap_err().code, Code::Inval, "{bad:#x}");
        }
        for unknown in [13 << 24 | 1, 1 << 24 | 5] {
            assert_eq!(of_id(unknown).unwrap_err().code, Code::NotSupported, "{unknown:#x}");
        }
    }
}
