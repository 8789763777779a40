//! Object classes by number, as C programs know them.
//!
//! A class id is DAOS's: the redundancy's code in bits 31 to 24, the number of groups in bits 15 to
//! 0, where 65535 is "as many as the pool has targets for". Programs compute with it, so the codes
//! below are part of the interface. Ids below 2^24 are not layouts but wishes (`OC_RP_XSF`,
//! `OC_SMALL`, ...); [`resolve`] turns those into classes.

use types::{GroupCount, ObjClass, Scheme};

mod abi;

/// `OC_UNKNOWN`: no class; the container's default is meant.
pub const UNKNOWN: u32 = 0;
/// `MAX_NUM_GROUPS`: as many groups as there are targets for.
pub const GROUPS_ALL: u32 = 65_535;

const REDUNDANCY_SHIFT: u32 = 24;
const OR_RP_1: u32 = 1;
const OR_RP_2: u32 = 8;

/// Codes of the erasure codes, from 32 on, by position. The last is ours: DAOS has no 2+3.
const OR_RS_BASE: u32 = 32;
const ERASURE_CODES: [(u8, u8); 12] = [
    (2, 1),
    (2, 2),
    (4, 1),
    (4, 2),
    (8, 1),
    (8, 2),
    (16, 1),
    (16, 2),
    (4, 3),
    (8, 3),
    (16, 3),
    (2, 3),
];

/// The code of a redundancy, `enum daos_obj_redun`.
pub fn redundancy_of(scheme: Scheme) -> u32 {
    match scheme {
        Scheme::Striped => OR_RP_1,
        Scheme::Replicated { copies } => OR_RP_2 + copies as u32 - 2,
        Scheme::ErasureCoded { data, parity } => {
            let at = ERASURE_CODES.iter().position(|&code| code == (data, parity));
            OR_RS_BASE + at.unwrap_or(0) as u32
        }
    }
}

/// The redundancy with this code, or `None` for one that is not offered (8 and more copies).
pub fn scheme_of(redundancy: u32) -> Option<Scheme> {
    match redundancy {
        OR_RP_1 => Some(Scheme::Striped),
        OR_RP_2..=12 => Some(Scheme::Replicated { copies: (redundancy - OR_RP_2 + 2) as u8 }),
        _ => {
            let at = redundancy.checked_sub(OR_RS_BASE)? as usize;
            ERASURE_CODES.get(at).map(|&(data, parity)| Scheme::ErasureCoded { data, parity })
        }
    }
}

/// The number of groups as 16 bits of a class id or object id.
pub fn groups_number(groups: GroupCount) -> u32 {
    match groups {
        // DAOS has no word for a first part; without one it is the same class.
        GroupCount::All | GroupCount::AllBeyond { .. } | GroupCount::AllPast { .. } => GROUPS_ALL,
        GroupCount::Count(count) => count,
    }
}

/// The group count with this number, or `None` for one that is not offered.
pub fn groups_of(number: u32) -> Option<GroupCount> {
    match number {
        GROUPS_ALL => Some(GroupCount::All),
        0 | 32_769.. => None,
        count => {
            let odd = count >> count.trailing_zeros();
            (odd == 1 || odd == 3).then_some(GroupCount::Count(count))
        }
    }
}

/// The id of a class.
pub fn id_of(class: ObjClass) -> u32 {
    redundancy_of(class.scheme) << REDUNDANCY_SHIFT | groups_number(class.groups)
}

/// The class with this id, or `None` for wishes (see [`resolve`]), classes that are not offered,
/// and numbers that mean nothing.
pub fn class_of(id: u32) -> Option<ObjClass> {
    if id & 0x00ff_0000 != 0 {
        return None;
    }
    Some(ObjClass { scheme: scheme_of(id >> REDUNDANCY_SHIFT)?, groups: groups_of(id & 0xffff)? })
}

/// The class for an id that may be a wish, in a pool of `engines` engines and `targets` targets.
/// `None` as for [`class_of`], and for 0.
///
/// `OC_RP_XSF` is as many copies as engines, up to 6. "Small" is up to 4 groups, "large" up to 32,
/// "max" all; replicated ones have 2 copies, "SF" ones 3, erasure coded ones 2+1, or 4+1 and 8+1
/// where there are engines enough.
pub fn resolve(id: u32, engines: u32, targets: u32) -> Option<ObjClass> {
    if id >> REDUNDANCY_SHIFT != 0 {
        return class_of(id);
    }
    let copies = |most: u32| match engines.clamp(1, most) {
        1 => Scheme::Striped,
        copies => Scheme::Replicated { copies: copies as u8 },
    };
    let coded = || {
        let data = [8u8, 4, 2].into_iter().find(|&data| engines > data as u32);
        data.map_or(Scheme::Striped, |data| Scheme::ErasureCoded { data, parity: 1 })
    };
    let (scheme, size) = match id {
        51..=54 => (Scheme::Striped, id - 51),
        60..=63 => (copies(2), id - 60),
        70..=73 => (copies(3), id - 70),
        80 => (copies(6), 0),
        100..=103 => (coded(), id - 100),
        _ => return None,
    };
    let most = (targets / scheme.members() as u32).max(1);
    // The largest power of two within both bounds.
    let power = |bound: u32| GroupCount::Count(1 << bound.min(most).max(1).ilog2());
    let groups = match size {
        0 => GroupCount::Count(1),
        1 => power(4),
        2 => power(32),
        _ => GroupCount::All,
    };
    Some(ObjClass { scheme, groups })
}

/// The name of an id, or `None` when it has no meaning.
pub fn name_of(id: u32) -> Option<String> {
    if id == XSF { Some("RP_XSF".into()) } else { class_of(id).map(|class| class.to_string()) }
}

/// The id for a name, or [`UNKNOWN`].
pub fn id_for(name: &str) -> u32 {
    if name.eq_ignore_ascii_case("RP_XSF") {
        return XSF;
    }
    name.parse().map_or(UNKNOWN, id_of)
}

/// `OC_RP_XSF`.
const XSF: u32 = 80;

/// Every class that has a name in lists.
fn listed() -> Vec<u32> {
    ObjClass::named().into_iter().map(id_of).chain([XSF]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_ones_programs_compute_with() {
        for (name, id) in [
            ("S1", 1 << 24 | 1),
            ("SX", 1 << 24 | 65_535),
            ("RP_2G1", 8 << 24 | 1),
            ("RP_3GX", 9 << 24 | 65_535),
            ("RP_6G32", 12 << 24 | 32),
            ("EC_2P1G1", 32 << 24 | 1),
            ("EC_4P2GX", 35 << 24 | 65_535),
            ("EC_8P2G12", 37 << 24 | 12),
            ("EC_16P2GX", 39 << 24 | 65_535),
            ("EC_4P3G6", 40 << 24 | 6),
            ("EC_16P3GX", 42 << 24 | 65_535),
            ("EC_2P3G1", 43 << 24 | 1),
            ("RP_XSF", 80),
        ] {
            assert_eq!(id_for(name), id, "{name}");
            assert_eq!(name_of(id).as_deref(), Some(name));
        }
    }

    #[test]
    fn every_class_has_an_id_of_its_own() {
        let mut ids = std::collections::HashSet::new();
        for class in ObjClass::named() {
            let id = id_of(class);
            assert_eq!(class_of(id), Some(class));
            assert_eq!(resolve(id, 1, 1), Some(class));
            assert_eq!(id_for(&class.to_string()), id);
            assert!(ids.insert(id) && id < 1 << 30);
        }
    }

    #[test]
    fn nonsense_is_no_class() {
        for id in [0, 1, 50, 81, 1 << 24, 1 << 24 | 5, 1 << 24 | 40_000, 2 << 24 | 1, 13 << 24 | 1]
        {
            assert_eq!(class_of(id), None, "{id:#x}");
            assert_eq!(resolve(id, 9, 9), None, "{id:#x}");
        }
        for id in [44 << 24 | 1, 1 << 24 | 1 << 16 | 1, u32::MAX] {
            assert_eq!(class_of(id), None, "{id:#x}");
        }
        for name in ["", "S", "S5", "RP_1G1", "XSF", "EC_3P1G1"] {
            assert_eq!(id_for(name), UNKNOWN, "{name}");
        }
    }

    #[test]
    fn wishes_fit_the_pool() {
        for id in (51..=54).chain(60..=63).chain(70..=73).chain([80]).chain(100..=103) {
            assert_eq!(class_of(id), None);
            for engines in 1..20u32 {
                for per_engine in [1u32, 2, 16] {
                    let class = resolve(id, engines, engines * per_engine).unwrap();
                    assert!(class.scheme.members() as u32 <= engines.max(1), "{id} {class}");
                    if let GroupCount::Count(count) = class.groups {
                        let targets = count * class.scheme.members() as u32;
                        assert!(targets <= engines * per_engine, "{id} {class} {engines}");
                        assert_eq!(class_of(id_of(class)), Some(class));
                    }
                }
            }
        }
        assert_eq!(resolve(80, 4, 8).unwrap().to_string(), "RP_4G1");
        assert_eq!(resolve(62, 8, 256).unwrap().to_string(), "RP_2G32");
        assert_eq!(resolve(103, 5, 40).unwrap().to_string(), "EC_4P1GX");
    }
}
