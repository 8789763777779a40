//! What a pool holds: its containers, all or those a filter lets through, and its targets.

use crate::cont::info_of;
use crate::ctypes::{
    DAOS_PROP_LABEL_MAX_LEN, daos_cont_info_t, daos_event_t, daos_handle_t,
    daos_pool_cont_filter_part_t, daos_pool_cont_filter_t, daos_pool_cont_info,
    daos_pool_cont_info2, daos_prop_t, daos_size_t, daos_target_info_t,
};
use crate::errno::Sign;
use crate::event::{fail, launch};
use crate::guard::{self, User};
use crate::pool::{PoolHandle, space_of};
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use types::{Code, Error, Result};
use wire::control::ContInfo;
use wire::map::TargetState;

/// Most conditions that a filter can be given.
const PARTS_MAX: u32 = 64;
/// Most conditions of a filter that is used (`DAOS_POOL_CONT_FILTER_MAX_NPARTS`).
const PARTS_USED_MAX: u32 = 8;

fn id_of(info: &ContInfo) -> daos_pool_cont_info {
    let mut label = [0; DAOS_PROP_LABEL_MAX_LEN + 1];
    for (to, from) in label.iter_mut().take(DAOS_PROP_LABEL_MAX_LEN).zip(info.label.bytes()) {
        *to = from as c_char;
    }
    daos_pool_cont_info { pci_uuid: *info.uuid.as_bytes(), pci_label: label }
}

/// Writes as many entries as there is room for; `-DER_TRUNC` when that is not all. The number is
/// told in any case.
///
/// # Safety
/// `room` is good for reading and writing; `entries` is NULL or has that much room.
unsafe fn give<T>(
    room: User<daos_size_t>,
    entries: User<T>,
    found: impl ExactSizeIterator<Item = T>,
) -> Result<()> {
    let count = found.len() as u64;
    // SAFETY: checked not to be NULL before the launch, and the caller's promise.
    let given = unsafe { room.0.read() };
    room.set(count);
    if entries.0.is_null() || given == 0 {
        return Ok(());
    }
    if count > given {
        let text = format!("there are {count} containers, and room for {given}");
        return Err(Error::new(Code::Range, text));
    }
    for (at, entry) in found.enumerate() {
        // SAFETY: `at` is below the room the caller gave.
        unsafe { entries.0.add(at).write(entry) };
    }
    Ok(())
}

/// Lists the containers of a pool. `*ncont` is the room in `cbuf`, then their number; with `cbuf`
/// NULL, or with room for none, only the number. `-DER_TRUNC` when there are more than room.
///
/// # Safety
/// `cbuf` is NULL or has room for `*ncont`, until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_pool_list_cont(
    poh: daos_handle_t,
    ncont: *mut daos_size_t,
    cbuf: *mut daos_pool_cont_info,
    ev: *mut daos_event_t,
) -> c_int {
    let pool =
        match guard::catch(
            || {
                if ncont.is_null() { Err(guard::null()) } else { PoolHandle::of(poh) }
            },
        ) {
            Ok(pool) => pool,
            Err(error) => return fail(ev, Sign::Der, error),
        };
    let (ncont, cbuf) = (User(ncont), User(cbuf));
    launch(ev, Sign::Der, move |local| async move {
        let conts = pool.mirror(&local)?.cont_list().await?;
        // SAFETY: the caller's promise.
        unsafe { give(ncont, cbuf, conts.iter().map(id_of)) }
    })
}

/// Begins a filter without conditions, which lets all through; `combine_func` 0 wants all
/// conditions to hold, 1 any.
///
/// # Safety
/// `filt` is NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_pool_cont_filter_init(
    filt: *mut daos_pool_cont_filter_t,
    combine_func: u32,
) -> c_int {
    guard::daos(|| {
        if combine_func > 1 {
            return Err(Error::inval(format!("{combine_func} does not combine conditions")));
        }
        let empty = daos_pool_cont_filter_t {
            pcf_combine_func: combine_func,
            pcf_nparts: 0,
            pcf_parts: null_mut(),
        };
        // SAFETY: the caller's promise.
        unsafe { guard::put(filt, empty) }
    })
}

/// Adds a copy of a condition to a filter.
///
/// # Safety
/// `filt` is NULL or a filter, `part` NULL or a condition.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_pool_cont_filter_add(
    filt: *mut daos_pool_cont_filter_t,
    part: *mut daos_pool_cont_filter_part_t,
) -> c_int {
    guard::daos(|| {
        // SAFETY: the caller's promise.
        let (filter, part) = unsafe { (filt.as_mut().ok_or_else(guard::null)?, guard::get(part)?) };
        if part.pcfp_func > 5 || part.pcfp_key > 3 || filter.pcf_nparts >= PARTS_MAX {
            return Err(Error::inval("no such condition, or too many"));
        }
        let count = filter.pcf_nparts as usize;
        // SAFETY: the list is NULL or of this allocator, and gets room for one more; the copy is
        // memory of its own.
        unsafe {
            let bytes = (count + 1) * size_of::<*mut daos_pool_cont_filter_part_t>();
            let list = libc::realloc(filter.pcf_parts.cast(), bytes)
                .cast::<*mut daos_pool_cont_filter_part_t>();
            if list.is_null() {
                return Err(Error::from(Code::NoMem));
            }
            filter.pcf_parts = list;
            let copy = libc::malloc(size_of::<daos_pool_cont_filter_part_t>())
                .cast::<daos_pool_cont_filter_part_t>();
            if copy.is_null() {
                return Err(Error::from(Code::NoMem));
            }
            copy.write(*part);
            list.add(count).write(copy);
        }
        filter.pcf_nparts += 1;
        Ok(())
    })
}

/// Gives back the conditions of a filter.
///
/// # Safety
/// `filt` is NULL or a filter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_pool_cont_filter_fini(filt: *mut daos_pool_cont_filter_t) {
    // SAFETY: the caller's promise; parts are of `malloc`.
    unsafe {
        let Some(filter) = filt.as_mut() else { return };
        if !filter.pcf_parts.is_null() {
            for at in 0..filter.pcf_nparts as usize {
                libc::free((*filter.pcf_parts.add(at)).cast());
            }
            libc::free(filter.pcf_parts.cast());
        }
        filter.pcf_parts = null_mut();
        filter.pcf_nparts = 0;
    }
}

/// The conditions of a filter: function, key, value.
type Conditions = (bool, Vec<(u32, u32, u64)>);

/// # Safety
/// `filter` is NULL or a filter.
unsafe fn conditions(filter: *const daos_pool_cont_filter_t) -> Result<Conditions> {
    // SAFETY: the caller's promise.
    let Some(filter) = (unsafe { filter.as_ref() }) else { return Ok((true, Vec::new())) };
    if filter.pcf_nparts > PARTS_USED_MAX {
        return Err(Error::inval(format!("a filter of more than {PARTS_USED_MAX} conditions")));
    }
    if filter.pcf_nparts > 0 && filter.pcf_parts.is_null() {
        return Err(Error::inval("the filter was not initialized"));
    }
    let parts = (0..filter.pcf_nparts as usize).map(|at| {
        // SAFETY: the caller's promise.
        let part = unsafe { guard::get(*filter.pcf_parts.add(at)) }?;
        Ok((part.pcfp_func, part.pcfp_key, part.pcfp_val64))
    });
    Ok((filter.pcf_combine_func == 0, parts.collect::<Result<_>>()?))
}

fn passes((all, conditions): &Conditions, info: &daos_cont_info_t) -> bool {
    let holds = |(func, key, wanted): &(u32, u32, u64)| {
        let value = match key {
            0 => info.ci_md_otime,
            1 => info.ci_md_mtime,
            2 => u64::from(info.ci_nsnapshots),
            _ => u64::from(info.ci_nhandles),
        };
        match func {
            0 => value == *wanted,
            1 => value != *wanted,
            2 => value < *wanted,
            3 => value <= *wanted,
            4 => value > *wanted,
            _ => value >= *wanted,
        }
    };
    if *all || conditions.is_empty() {
        conditions.iter().all(holds)
    } else {
        conditions.iter().any(holds)
    }
}

/// Lists the containers that a filter lets through, with what is known of each; otherwise as
/// [`daos_pool_list_cont`]. NULL lets all through.
///
/// # Safety
/// `filter` is NULL or a filter; `cbuf` is NULL or has room for `*ncont`, until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_pool_filter_cont(
    poh: daos_handle_t,
    filter: *mut daos_pool_cont_filter_t,
    ncont: *mut daos_size_t,
    cbuf: *mut daos_pool_cont_info2,
    ev: *mut daos_event_t,
) -> c_int {
    let arguments = guard::catch(|| {
        if ncont.is_null() {
            return Err(guard::null());
        }
        // SAFETY: the caller's promise.
        Ok((PoolHandle::of(poh)?, unsafe { conditions(filter) }?))
    });
    let (pool, conditions) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let (ncont, cbuf) = (User(ncont), User(cbuf));
    launch(ev, Sign::Der, move |local| async move {
        let conts = pool.mirror(&local)?.cont_list().await?;
        let mut found = Vec::new();
        for cont in &conts {
            let info = info_of(cont);
            if passes(&conditions, &info) {
                found.push(daos_pool_cont_info2 {
                    pci_id: id_of(cont),
                    pci_cinfo: info,
                    pci_reserved: [null_mut(); 2],
                });
            }
        }
        // SAFETY: the caller's promise.
        unsafe { give(ncont, cbuf, found.into_iter()) }
    })
}

/// State and space of a target, by its place among the targets of an engine.
///
/// # Safety
/// `info` is good for writing until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_pool_query_target(
    poh: daos_handle_t,
    tgt: u32,
    rank: u32,
    info: *mut daos_target_info_t,
    ev: *mut daos_event_t,
) -> c_int {
    let pool = match guard::catch(|| {
        if info.is_null() { Err(guard::null()) } else { PoolHandle::of(poh) }
    }) {
        Ok(pool) => pool,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let info = User(info);
    launch(ev, Sign::Der, move |local| async move {
        let mirror = pool.mirror(&local)?;
        let map = mirror.map();
        let of_engine = map.targets.iter().filter(|target| target.rank.0 == rank);
        let target = of_engine.map(|target| target.id).nth(tgt as usize);
        let target = target.ok_or_else(|| {
            Error::new(Code::NonExist, format!("engine {rank} has no target {tgt} in the pool"))
        })?;
        let space = mirror.query().await?;
        let known = space.targets.iter().find(|known| known.target == target);
        let known = known.ok_or_else(|| Error::new(Code::NonExist, "the target has gone"))?;
        info.set(daos_target_info_t {
            ta_padding: 0,
            ta_state: match known.state {
                TargetState::DownOut => 1,
                TargetState::Down => 2,
                TargetState::Up => 4,
                TargetState::New => 5,
                TargetState::Drain => 6,
            },
            ta_perf: 0,
            ta_space: space_of(known),
        });
        Ok(())
    })
}

/// What a user may do with a pool. There are no permissions of pools: whoever can connect may do
/// everything, so this is not offered.
#[unsafe(no_mangle)]
pub extern "C" fn daos_pool_get_perms(
    _pool_prop: *mut daos_prop_t,
    _uid: libc::uid_t,
    _gids: *mut libc::gid_t,
    _nr_gids: usize,
    _perms: *mut u64,
) -> c_int {
    -crate::errno::DER_NOSYS
}

/// What a user may do with a container; as [`daos_pool_get_perms`].
#[unsafe(no_mangle)]
pub extern "C" fn daos_cont_get_perms(
    _cont_prop: *mut daos_prop_t,
    _uid: libc::uid_t,
    _gids: *mut libc::gid_t,
    _nr_gids: usize,
    _perms: *mut u64,
) -> c_int {
    -crate::errno::DER_NOSYS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_joined_by_and_or_by_or() {
        let info = daos_cont_info_t {
            ci_uuid: [0; 16],
            ci_lsnapshot: 0,
            ci_nhandles: 3,
            ci_nsnapshots: 0,
            ci_md_otime: 100,
            ci_md_mtime: 200,
        };
        let (yes, no) = ((4, 0, 50), (4, 0, 100));
        assert!(passes(&(true, vec![]), &info) && passes(&(false, vec![]), &info));
        assert!(passes(&(true, vec![yes, (0, 3, 3)]), &info));
        assert!(!passes(&(true, vec![yes, no]), &info));
        assert!(passes(&(false, vec![yes, no]), &info));
        assert!(!passes(&(false, vec![no]), &info));
        for (func, holds) in [false, true, false, false, true, true].into_iter().enumerate() {
            assert_eq!(passes(&(true, vec![(func as u32, 1, 199)]), &info), holds, "{func}");
        }
    }
}
