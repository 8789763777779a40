//! Object ids: class, type and the caller's 96 bits in one.

use super::{oid_in, oid_out};
use crate::cont::ContHandle;
use crate::ctypes::{daos_handle_t, daos_obj_id_t, daos_oclass_hints_t, daos_oclass_id_t};
use crate::errno::Sign;
use crate::event::launch;
use crate::guard::{self, User};
use crate::oclass;
use types::{Code, Error, GroupCount, ObjClass, ObjType, Result, Scheme};
use wire::map::PoolMap;

/// `DAOS_OCH_*` bits for redundancy.
const RDD_NO: u16 = 1 << 1;
const RDD_RP: u16 = 1 << 2;
const RDD_EC: u16 = 1 << 3;
/// `DAOS_OCH_*` bits for the number of groups.
const SHD_TINY: u16 = 1 << 5;
const SHD_REG: u16 = 1 << 6;
const SHD_HI: u16 = 1 << 7;
const SHD_EXT: u16 = 1 << 8;
const SHD_MAX: u16 = 1 << 9;
const HINTS_ALL: u16 = (1 << 10) - 1;

/// Completes an id: its low 96 bits are the caller's, and unique in the container; type, class
/// and placement epoch are filled in above. With class 0 one is chosen by hints, or else by type
/// and the container's properties.
///
/// `-DER_INVAL` for a type or class that is not one, for a class that survives less than the
/// container demands, and for one of more copies than the pool has room for; `-DER_NOSYS` for a
/// class this version does not offer.
///
/// # Safety
/// `oid` is NULL or good for reading and writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_obj_generate_oid(
    coh: daos_handle_t,
    oid: *mut daos_obj_id_t,
    r#type: u32,
    cid: daos_oclass_id_t,
    hints: daos_oclass_hints_t,
    _args: u32,
) -> i32 {
    let arguments = guard::catch(|| {
        let cont = ContHandle::of(coh)?;
        let kind = u8::try_from(r#type).ok().and_then(ObjType::from_number);
        let kind = kind.ok_or_else(|| Error::inval(format!("{type} is not an object type")))?;
        // SAFETY: the caller's promise.
        let user = oid_in(*unsafe { guard::get(oid) }?);
        if hints & !HINTS_ALL != 0 {
            return Err(Error::inval(format!("{hints:#x} are not hints for a class")));
        }
        Ok((cont, kind, user))
    });
    let (cont, kind, user) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return guard::told(Sign::Der, &error),
    };
    let oid = User(oid);
    launch(std::ptr::null_mut(), Sign::Der, move |local| async move {
        let mirror = cont.mirror(&local)?;
        let map = mirror.pool().map();
        let class = class_for(cid, hints, kind, &cont, &map)?;
        let made = mirror.generate_oid(kind, class, user.hi as u32, user.lo)?;
        oid.set(oid_out(made));
        Ok(())
    })
}

/// [`daos_obj_generate_oid`], as DAOS's shared library calls it.
///
/// # Safety
/// As for [`daos_obj_generate_oid`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_obj_generate_oid2(
    coh: daos_handle_t,
    oid: *mut daos_obj_id_t,
    r#type: u32,
    cid: daos_oclass_id_t,
    hints: daos_oclass_hints_t,
    args: u32,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { daos_obj_generate_oid(coh, oid, r#type, cid, hints, args) }
}

fn class_for(
    cid: daos_oclass_id_t,
    hints: daos_oclass_hints_t,
    kind: ObjType,
    cont: &ContHandle,
    map: &PoolMap,
) -> Result<ObjClass> {
    let (engines, targets) = (map.engines.len() as u32, map.targets.len() as u32);
    if cid != oclass::UNKNOWN {
        return oclass::resolve(cid, engines, targets).ok_or_else(|| match oclass::name_of(cid) {
            Some(name) => Error::new(Code::NotSupported, format!("class {name} is not offered")),
            None => Error::inval(format!("{cid:#x} is not an object class")),
        });
    }
    let props = &cont.info.props;
    // The container's own default, unless it was never changed.
    if hints == 0 && props.oclass != ObjClass::S1.at_least(props.rd_fac) {
        return Ok(props.oclass);
    }
    Ok(chosen(hints, kind, props.rd_fac, engines, targets))
}

/// The class that hints, the type and a redundancy factor ask for. No hint takes away what the
/// factor demands; where it demands nothing, copies that are wished for need a second engine.
fn chosen(hints: u16, kind: ObjType, rd_fac: u8, engines: u32, targets: u32) -> ObjClass {
    let scheme = match hints & (RDD_NO | RDD_RP | RDD_EC) {
        RDD_RP if engines > 1 => Scheme::Replicated { copies: 2 },
        RDD_EC => Scheme::ErasureCoded { data: 2, parity: rd_fac.clamp(1, 3) },
        _ => Scheme::Striped,
    };
    let part = |percent: u64, at_least: u64| {
        let wanted = (u64::from(targets) * percent / 100).max(at_least).min(32_768);
        GroupCount::Count(wanted.next_power_of_two().min(32_768) as u32)
    };
    let wide = matches!(
        kind,
        ObjType::Array
            | ObjType::ArrayAttr
            | ObjType::ArrayByte
            | ObjType::KvHashed
            | ObjType::KvU64
            | ObjType::KvLexical
    );
    let groups = if hints & SHD_TINY != 0 {
        GroupCount::Count(1)
    } else if hints & SHD_REG != 0 {
        part(25, 128)
    } else if hints & SHD_HI != 0 {
        part(50, 256)
    } else if hints & SHD_EXT != 0 {
        part(80, 1024)
    } else if hints & SHD_MAX != 0 || wide {
        GroupCount::All
    } else {
        GroupCount::Count(1)
    };
    ObjClass { scheme, groups }.at_least(rd_fac)
}

/// The class of an id; 0 (`OC_UNKNOWN`) for one that was not made by [`daos_obj_generate_oid`].
#[unsafe(no_mangle)]
pub extern "C" fn daos_obj_id2class(oid: daos_obj_id_t) -> daos_oclass_id_t {
    oid_in(oid).class().map_or(oclass::UNKNOWN, oclass::id_of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Oid;

    #[test]
    fn the_class_of_an_id_is_the_one_it_was_made_with() {
        for class in ObjClass::named() {
            let oid = Oid::generate(7, 9, ObjType::KvHashed, class, 3);
            let id = daos_obj_id2class(oid_out(oid));
            assert_eq!(oclass::class_of(id), Some(class));
        }
        assert_eq!(daos_obj_id2class(daos_obj_id_t { lo: 1, hi: 1 << 48 }), 0);
    }

    #[test]
    fn hints_choose_redundancy_and_spread() {
        let name = |hints, kind, rd_fac| chosen(hints, kind, rd_fac, 4, 16).to_string();
        assert_eq!(name(0, ObjType::MultiHashed, 0), "S1");
        assert_eq!(name(0, ObjType::KvHashed, 0), "SX");
        assert_eq!(name(1 | 1 << 4, ObjType::Array, 2), "RP_3GX");
        assert_eq!(name(SHD_TINY, ObjType::Array, 0), "S1");
        assert_eq!(name(SHD_MAX, ObjType::MultiHashed, 0), "SX");
        assert_eq!(name(SHD_REG, ObjType::MultiHashed, 0), "S128");
        assert_eq!(name(SHD_EXT, ObjType::MultiHashed, 0), "S1024");
        assert_eq!(name(RDD_EC | SHD_MAX, ObjType::Array, 2), "EC_2P2GX");
        assert_eq!(name(RDD_RP | SHD_TINY, ObjType::Array, 0), "RP_2G1");
        assert_eq!(name(RDD_EC | SHD_TINY, ObjType::Array, 4), "RP_5G1");
        assert_eq!(name(RDD_NO | SHD_HI, ObjType::Array, 0), "S256");
        // What the container demands is no matter of wishes.
        assert_eq!(name(RDD_NO | SHD_HI, ObjType::Array, 3), "RP_4G256");
        assert_eq!(name(RDD_RP, ObjType::KvHashed, 2), "RP_3GX");
        assert_eq!(chosen(RDD_RP, ObjType::MultiHashed, 0, 1, 16), ObjClass::S1);
    }
}
