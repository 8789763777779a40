//! The system: its pools.

use crate::ctypes::{d_rank_list_t, daos_event_t, daos_mgmt_pool_info_t, daos_size_t};
use crate::errno::Sign;
use crate::event::launch;
use crate::guard::{self, User};
use std::ffi::{c_char, c_int, c_void};
use types::{Code, Error};

/// Lists the pools of the system. `*npools` is the room in `pools`, then their number; with
/// `pools` NULL only the number. `-DER_TRUNC` when there are more than room. Labels are freed with
/// `free`, lists of ranks with `d_rank_list_free`. `group` is ignored.
///
/// # Safety
/// `pools` is NULL or has room for `*npools`, until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_mgmt_list_pools(
    _group: *const c_char,
    npools: *mut daos_size_t,
    pools: *mut daos_mgmt_pool_info_t,
    ev: *mut daos_event_t,
) -> c_int {
    if npools.is_null() {
        return guard::told(Sign::Der, &guard::null());
    }
    let (npools, pools) = (User(npools), User(pools));
    launch(ev, Sign::Der, move |local| async move {
        let found = local.client.pool_list().await?;
        // SAFETY: not NULL, and the caller's promise.
        let room = unsafe { npools.0.read() };
        npools.set(found.len() as u64);
        if pools.0.is_null() {
            return Ok(());
        }
        if found.len() as u64 > room {
            let text = format!("there are {} pools, and room for {room}", found.len());
            return Err(Error::new(Code::Range, text));
        }
        for (at, pool) in found.iter().enumerate() {
            let entry = daos_mgmt_pool_info_t {
                mgpi_uuid: *pool.uuid.as_bytes(),
                mgpi_label: crate::gurt::alloc::string(pool.label.as_bytes()),
                mgpi_svc: crate::gurt::rank_list::make(&[0]).cast::<d_rank_list_t>(),
                mgpi_ldr: 0,
            };
            // SAFETY: `at` is below the room the caller gave.
            unsafe { pools.0.add(at).write(entry) };
        }
        Ok(())
    })
}

/// The version of the servers; `*tag` is its text, to be freed with `free`. Each may be NULL.
///
/// # Safety
/// Results that are not NULL are good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dc_mgmt_srv_version(
    major: *mut u32,
    minor: *mut u32,
    patch: *mut u32,
    tag: *mut *mut c_char,
) -> c_int {
    let (numbers, tag) = ([User(major), User(minor), User(patch)], User(tag));
    launch(std::ptr::null_mut(), Sign::Der, move |local| async move {
        let version = local.client.system_query().await?.version;
        for (at, number) in numbers.into_iter().enumerate() {
            number.set(part_of(&version, at));
        }
        if !tag.0.is_null() {
            tag.set(crate::gurt::alloc::string(version.as_bytes()));
        }
        Ok(())
    })
}

/// A number of a version like `1.20.3-rc1`; 0 for one that it lacks.
fn part_of(version: &str, at: usize) -> u32 {
    let part = version.split('.').nth(at).unwrap_or_default();
    let digits = part.bytes().take_while(u8::is_ascii_digit).count();
    part[..digits].parse().unwrap_or(0)
}

/// How clients attach to the system: not offered.
#[unsafe(no_mangle)]
pub extern "C" fn daos_mgmt_get_sys_info(_sys: *const c_char, _info: *mut *mut c_void) -> c_int {
    -crate::errno::DER_NOSYS
}

/// Gives back what [`daos_mgmt_get_sys_info`] would have given.
#[unsafe(no_mangle)]
pub extern "C" fn daos_mgmt_put_sys_info(_info: *mut c_void) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_version() {
        let parts = |version| [0, 1, 2].map(|at| part_of(version, at));
        assert_eq!(parts("1.20.3-rc1"), [1, 20, 3]);
        assert_eq!(parts("0.1"), [0, 1, 0]);
        assert_eq!(parts("x.99999999999.7"), [0, 0, 7]);
        assert_eq!(parts(""), [0, 0, 0]);
    }
}
