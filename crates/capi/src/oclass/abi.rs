//! The functions on object classes that C programs call.

use super::{GROUPS_ALL, UNKNOWN, class_of, id_for, listed, name_of};
use crate::cont::ContHandle;
use crate::ctypes::{
    daos_anchor_t, daos_ec_attr, daos_event_t, daos_handle_t, daos_oclass_attr, daos_oclass_list,
    daos_oclass_protection, daos_rp_attr,
};
use crate::errno::{DER_INVAL, DER_OVERFLOW, Sign};
use crate::event::settle;
use crate::guard::{self, User};
use crate::gurt::shielded;
use std::ffi::{CStr, c_char, c_int, c_uint};
use types::{Code, Error, GroupCount, ObjClass, Scheme};

/// `MAX_OBJ_CLASS_NAME_LEN`: bytes of a buffer for a name.
const NAME_BYTES: usize = 24;
/// `DAOS_OS_STRIPED`.
const STRIPED: c_uint = 1;
/// `DAOS_RES_EC`.
const ERASURE_CODED: c_uint = 0;
/// `DAOS_RES_REPL`.
const REPLICATED: c_uint = 1;
/// `da_type` of an anchor behind the last entry.
const ANCHOR_EOF: u16 = crate::ctypes::DAOS_ANCHOR_TYPE_EOF;

/// The id for a name; 0 (`OC_UNKNOWN`) when there is none.
///
/// # Safety
/// The caller gives a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_oclass_name2id(name: *const c_char) -> c_int {
    if name.is_null() {
        return UNKNOWN as c_int;
    }
    shielded(UNKNOWN as c_int, || {
        // SAFETY: the caller gives a string.
        let name = unsafe { CStr::from_ptr(name) };
        name.to_str().map_or(UNKNOWN, id_for) as c_int
    })
}

/// Writes the name of an id to a buffer of 24 bytes: 0; or `UNKNOWN` and -1.
///
/// # Safety
/// The caller gives 24 bytes, and no name is longer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_oclass_id2name(oc_id: u32, name: *mut c_char) -> c_int {
    if name.is_null() {
        return -1;
    }
    shielded(-1, || {
        let known = name_of(oc_id);
        let text = known.as_deref().unwrap_or("UNKNOWN");
        debug_assert!(text.len() < NAME_BYTES);
        // SAFETY: the caller gives 24 bytes, and no name is longer.
        unsafe {
            name.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
            name.add(text.len()).write(0);
        }
        if known.is_some() { 0 } else { -1 }
    })
}

/// Writes all names to a buffer, each with `, ` behind it: the length, or `-DER_OVERFLOW` when the
/// buffer is too small.
///
/// # Safety
/// The caller gives a buffer of at least one byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_oclass_names_list(size: usize, str: *mut c_char) -> isize {
    if str.is_null() || size == 0 {
        return -DER_INVAL as isize;
    }
    shielded(-DER_INVAL as isize, || {
        let text: String =
            listed().into_iter().filter_map(name_of).map(|name| name + ", ").collect();
        if text.len() >= size {
            // SAFETY: the caller gives a buffer of at least one byte.
            unsafe { str.write(0) };
            return -DER_OVERFLOW as isize;
        }
        // SAFETY: the text and its NUL fit the caller's buffer.
        unsafe {
            str.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
            str.add(text.len()).write(0);
        }
        text.len() as isize
    })
}

/// The number of classes in the list of names.
#[unsafe(no_mangle)]
pub extern "C" fn daos_oclass_nr(_opts: c_int) -> c_int {
    shielded(-DER_INVAL, || listed().len() as c_int)
}

/// A class in parts.
fn attributes(class: ObjClass) -> daos_oclass_attr {
    let (resilience, protection) = match class.scheme {
        Scheme::ErasureCoded { data, parity } => (
            ERASURE_CODED,
            // The length of a cell is the container's matter.
            daos_oclass_protection {
                ec: daos_ec_attr { e_k: data as u16, e_p: parity as u16, e_len: 0 },
            },
        ),
        scheme => (
            REPLICATED,
            daos_oclass_protection {
                rp: daos_rp_attr { r_proto: 0, r_num: scheme.members() as c_uint },
            },
        ),
    };
    daos_oclass_attr {
        ca_schema: STRIPED,
        ca_resil: resilience,
        ca_resil_degree: class.scheme.redundancy_factor() as c_uint,
        ca_grp_nr: match class.groups {
            GroupCount::All | GroupCount::AllBeyond { .. } | GroupCount::AllPast { .. } => {
                GROUPS_ALL
            }
            GroupCount::Count(count) => count,
        },
        u: protection,
    }
}

/// A class by its parts, made by the caller: there are no such classes.
///
/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_obj_register_class(
    coh: daos_handle_t,
    _cid: u32,
    attr: *mut daos_oclass_attr,
    ev: *mut daos_event_t,
) -> c_int {
    let null = attr.is_null();
    settle(ev, Sign::Der, move || {
        ContHandle::of(coh)?;
        if null {
            return Err(guard::null());
        }
        Err(Error::new(Code::NotSupported, "object classes cannot be registered"))
    })
}

/// The parts of a class; `-DER_NONEXIST` for an id that is none.
///
/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_obj_query_class(
    coh: daos_handle_t,
    cid: u32,
    attr: *mut daos_oclass_attr,
    ev: *mut daos_event_t,
) -> c_int {
    let attr = User(attr);
    settle(ev, Sign::Der, move || {
        ContHandle::of(coh)?;
        if attr.0.is_null() {
            return Err(guard::null());
        }
        let class = class_of(cid);
        let class =
            class.ok_or_else(|| Error::new(Code::NonExist, format!("no class {cid:#x}")))?;
        attr.set(attributes(class));
        Ok(())
    })
}

/// The next classes of the list, as many as fit; the anchor is zeroed for the first call.
///
/// # Safety
/// The caller gives a list and an anchor until the event completes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_obj_list_class(
    coh: daos_handle_t,
    list: *mut daos_oclass_list,
    anchor: *mut daos_anchor_t,
    ev: *mut daos_event_t,
) -> c_int {
    let (list, anchor) = (User(list), User(anchor));
    settle(ev, Sign::Der, move || {
        ContHandle::of(coh)?;
        // SAFETY: the caller gives a list and an anchor until the event completes.
        unsafe { list_classes(list, anchor) }
    })
}

/// # Safety
/// NULL, or a list and an anchor that nobody else uses.
unsafe fn list_classes(
    list: User<daos_oclass_list>,
    anchor: User<daos_anchor_t>,
) -> types::Result<()> {
    // SAFETY: the caller's promise.
    let (list, anchor) = unsafe { (list.0.as_mut(), anchor.0.as_mut()) };
    let (Some(list), Some(anchor)) = (list, anchor) else { return Err(guard::null()) };
    if list.cl_cids.is_null() || list.cl_nr == 0 {
        return Err(Error::inval("the list of classes has no room"));
    }
    let ids: Vec<u32> = listed().into_iter().filter(|&id| class_of(id).is_some()).collect();
    let mut at = [0; 8];
    at.copy_from_slice(&anchor.da_buf[..8]);
    let from = match anchor.da_type == ANCHOR_EOF {
        true => ids.len(),
        false => usize::try_from(u64::from_le_bytes(at)).unwrap_or(usize::MAX).min(ids.len()),
    };
    let to = ids.len().min(from + list.cl_nr as usize);
    for (place, &id) in ids[from..to].iter().enumerate() {
        // SAFETY: the caller's arrays have room for `cl_nr` entries.
        unsafe {
            list.cl_cids.add(place).write(id);
            if let (false, Some(class)) = (list.cl_cattrs.is_null(), class_of(id)) {
                list.cl_cattrs.add(place).write(attributes(class));
            }
        }
    }
    list.cl_nr_out = (to - from) as u32;
    anchor.da_buf[..8].copy_from_slice(&(to as u64).to_le_bytes());
    anchor.da_type = match to == ids.len() {
        true => ANCHOR_EOF,
        false => crate::ctypes::DAOS_ANCHOR_TYPE_HKEY,
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{null, null_mut};

    #[test]
    fn names_go_both_ways() {
        let mut name = [1 as c_char; NAME_BYTES];
        // SAFETY: buffers are as long as they are said to be.
        unsafe {
            for text in [c"SX", c"RP_2G1", c"EC_16P2GX", c"RP_XSF", c"EC_16P3G128"] {
                let id = daos_oclass_name2id(text.as_ptr());
                assert_ne!(id, 0);
                assert_eq!(daos_oclass_id2name(id as u32, name.as_mut_ptr()), 0);
                assert_eq!(CStr::from_ptr(name.as_ptr()), text);
            }
            assert_eq!(daos_oclass_name2id(null()), 0);
            assert_eq!(daos_oclass_name2id(c"\xff".as_ptr()), 0);
            assert_eq!(daos_oclass_id2name(7, name.as_mut_ptr()), -1);
            assert_eq!(CStr::from_ptr(name.as_ptr()), c"UNKNOWN");
            assert_eq!(daos_oclass_id2name(1 << 24 | 1, null_mut()), -1);

            let mut all = vec![1 as c_char; 16 << 10];
            let length = daos_oclass_names_list(all.len(), all.as_mut_ptr());
            let text = CStr::from_ptr(all.as_ptr()).to_str().unwrap();
            assert_eq!(text.len() as isize, length);
            let names: Vec<&str> = text.split(", ").filter(|name| !name.is_empty()).collect();
            assert_eq!(names.len() as c_int, daos_oclass_nr(0));
            assert!(names.iter().all(|name| id_for(name) != UNKNOWN));
            assert_eq!(daos_oclass_names_list(length as usize + 1, all.as_mut_ptr()), length);
            let small = daos_oclass_names_list(length as usize, all.as_mut_ptr());
            assert_eq!(small, -DER_OVERFLOW as isize);
            assert_eq!(daos_oclass_names_list(0, all.as_mut_ptr()), -DER_INVAL as isize);
            assert_eq!(daos_oclass_names_list(9, null_mut()), -DER_INVAL as isize);
        }
    }

    #[test]
    fn a_listing_goes_on_where_it_stopped() {
        let mut anchor = daos_anchor_t {
            da_type: 0,
            da_shard: 0,
            da_flags: 0,
            da_sub_anchors: 0,
            da_buf: [0; crate::ctypes::DAOS_ANCHOR_BUF_MAX],
        };
        let none = attributes(ObjClass::S1);
        let (mut ids, mut parts) = ([0u32; 7], [none; 7]);
        let mut list = daos_oclass_list {
            cl_nr: 7,
            cl_nr_out: 0,
            cl_cids: ids.as_mut_ptr(),
            cl_cattrs: parts.as_mut_ptr(),
        };
        let mut seen = Vec::new();
        while anchor.da_type != ANCHOR_EOF {
            // SAFETY: list and anchor are variables of this test.
            unsafe { list_classes(User(&mut list), User(&mut anchor)) }.unwrap();
            for at in 0..list.cl_nr_out as usize {
                seen.push(ids[at]);
                let class = class_of(ids[at]).unwrap();
                assert_eq!(parts[at].ca_resil_degree, class.scheme.redundancy_factor() as c_uint);
                // SAFETY: both members are plain numbers.
                let members = match (parts[at].ca_resil, unsafe { parts[at].u.ec }) {
                    (ERASURE_CODED, code) => (code.e_k + code.e_p) as usize,
                    // SAFETY: as above.
                    _ => unsafe { parts[at].u.rp.r_num as usize },
                };
                assert_eq!(members, class.scheme.members());
            }
        }
        assert_eq!(seen.len() as c_int + 1, daos_oclass_nr(0));
        // SAFETY: as above; NULL is told as such.
        unsafe {
            list_classes(User(&mut list), User(&mut anchor)).unwrap();
            assert_eq!(list.cl_nr_out, 0);
            assert!(list_classes(User(null_mut()), User(&mut anchor)).is_err());
            list.cl_nr = 0;
            assert!(list_classes(User(&mut list), User(&mut anchor)).is_err());
        }
    }
}
