//! Questions about objects: extreme keys, epochs, placement; listings in parts.

use super::{ObjHandle, akey_in, anchor, enter, oid_in, require_open};
use crate::cont::ContHandle;
use crate::ctypes::{
    d_rank_list_t, daos_anchor_t, daos_epoch_t, daos_event_t, daos_handle_t, daos_key_t,
    daos_obj_attr, daos_obj_id_t, daos_recx_t,
};
use crate::errno::Sign;
use crate::event::{fail, launch, settle};
use crate::guard::{self, User};
use crate::sgl;
use crate::tx::TxHandle;
use types::{Code, DkeyKind, Error, Result};
use wire::obj::QueryFlags;

/// `DAOS_GET_*`.
const GET_MAX: u64 = 1 << 0;
const GET_MIN: u64 = 1 << 1;
const GET_DKEY: u64 = 1 << 2;
const GET_AKEY: u64 = 1 << 3;
const GET_RECX: u64 = 1 << 4;
const GET_ALL: u64 = (1 << 5) - 1;

/// What an object is: the rank of the engine that leads its first group, and the ranks of all
/// that hold some of it. `ranks` gets as many as it has room for, and their number.
///
/// # Safety
/// `oa` and `ranks` are NULL or good for writing until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_obj_query(
    oh: daos_handle_t,
    oa: *mut daos_obj_attr,
    ranks: *mut d_rank_list_t,
    ev: *mut daos_event_t,
) -> i32 {
    let handle = match ObjHandle::of(oh) {
        Ok(handle) => handle,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let (oa, ranks) = (User(oa), User(ranks));
    launch(ev, Sign::Der, move |local| async move {
        let cont = handle.cont.mirror(&local)?;
        cont.learn(handle.oid).await;
        let held = cont.engines_of(handle.oid)?;
        // SAFETY: the caller's promise.
        if let (Some(oa), Some(first)) = (unsafe { oa.0.as_mut() }, held.first()) {
            oa.oa_rank = first.0;
        }
        // SAFETY: the caller's promise.
        if let Some(ranks) = unsafe { ranks.0.as_mut() } {
            let room = if ranks.rl_ranks.is_null() { 0 } else { ranks.rl_nr as usize };
            for (at, rank) in held.iter().take(room).enumerate() {
                // SAFETY: `at` is below the room the list says it has.
                unsafe { ranks.rl_ranks.add(at).write(rank.0) };
            }
            ranks.rl_nr = held.len() as u32;
        }
        Ok(())
    })
}

/// Finds the greatest or least integer dkey, akey, or range of records; what is not to be found
/// is given. Where there is nothing, the keys asked for get length 0, and the range too.
///
/// # Safety
/// The keys' buffers and `recx` are there, used by nobody else, until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_obj_query_key(
    oh: daos_handle_t,
    th: daos_handle_t,
    flags: u64,
    dkey: *mut daos_key_t,
    akey: *mut daos_key_t,
    recx: *mut daos_recx_t,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        let handle = ObjHandle::of(oh)?;
        let tx = TxHandle::of(th, &handle.cont)?;
        let wanted = query_flags(flags)?;
        let finds = |bit| flags & bit != 0;
        if finds(GET_DKEY) && handle.oid.dkey_kind() != DkeyKind::U64 {
            return Err(Error::inval("the object's dkeys are not integers"));
        }
        if finds(GET_RECX) && recx.is_null() {
            return Err(guard::null());
        }
        // SAFETY: the caller's promise.
        let dkey_given = unsafe { given(dkey, finds(GET_DKEY), true) }?;
        // SAFETY: the caller's promise.
        let akey_given = unsafe { given(akey, finds(GET_AKEY), finds(GET_RECX)) }?;
        Ok((handle, tx, wanted, dkey_given, akey_given))
    });
    let (handle, tx, wanted, dkey_given, akey_given) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let (dkey, akey, recx) = (User(dkey), User(akey), User(recx));
    launch(ev, Sign::Der, move |local| async move {
        let (object, tx) = enter(&handle, &tx, &local)?;
        let akey_given = akey_in(handle.oid, akey_given);
        let found = object.query(tx.as_ref(), wanted, dkey_given, akey_given).await?;
        if wanted.has(QueryFlags::DKEY) {
            let found = found.as_ref().map_or(&[][..], |found| &found.dkey);
            // SAFETY: the caller's promise.
            unsafe { give(dkey.0, found) }?;
        }
        if wanted.has(QueryFlags::AKEY) {
            let found = found.as_ref().map_or(&[][..], |found| &found.akey);
            // SAFETY: the caller's promise.
            unsafe { give(akey.0, found) }?;
        }
        if wanted.has(QueryFlags::RECX) {
            let range = found.and_then(|found| found.recx);
            recx.set(daos_recx_t {
                rx_idx: range.map_or(0, |range| range.index),
                rx_nr: range.map_or(0, |range| range.count),
            });
        }
        Ok(())
    })
}

/// The flags as the store knows them. `Inval` unless one of greatest and least, and something to
/// find, is named.
fn query_flags(flags: u64) -> Result<QueryFlags> {
    let one_way = (flags & GET_MAX != 0) != (flags & GET_MIN != 0);
    if flags & !GET_ALL != 0 || !one_way || flags & (GET_DKEY | GET_AKEY | GET_RECX) == 0 {
        return Err(Error::inval(format!("the flags {flags:#x} do not say what to find")));
    }
    let bits = [
        (GET_DKEY, QueryFlags::DKEY),
        (GET_AKEY, QueryFlags::AKEY),
        (GET_RECX, QueryFlags::RECX),
        (GET_MAX, QueryFlags::MAX),
    ];
    let named = bits.into_iter().filter(|(bit, _)| flags & bit != 0);
    Ok(named.fold(QueryFlags::default(), |all, (_, one)| all.and(one)))
}

/// The key that C gives, or an empty one where it is to be found (then there must be a place for
/// it) or does not matter.
///
/// # Safety
/// `key` is NULL or a key that is there for `'a`.
unsafe fn given<'a>(key: *mut daos_key_t, found: bool, needed: bool) -> Result<&'a [u8]> {
    if !found {
        // SAFETY: the caller's promise.
        return if needed { unsafe { sgl::key(key) } } else { Ok(&[]) };
    }
    // SAFETY: the caller's promise.
    let room = unsafe { guard::get(key) }?;
    if room.iov_buf.is_null() {
        return Err(guard::null());
    }
    Ok(&[])
}

/// Writes a key that was found.
///
/// # Safety
/// `key` points to a key whose buffer is as long as it says.
unsafe fn give(key: *mut daos_key_t, found: &[u8]) -> Result<()> {
    // SAFETY: the caller's promise; checked before the launch.
    let key = unsafe { &mut *key };
    if found.len() > key.iov_buf_len {
        let text = format!("the key has {} bytes, its buffer {}", found.len(), key.iov_buf_len);
        key.iov_len = found.len();
        return Err(Error::new(Code::KeyTooBig, text));
    }
    // SAFETY: the buffer is long enough.
    unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), key.iov_buf.cast(), found.len()) };
    key.iov_len = found.len();
    Ok(())
}

/// The epoch of an object's last change; 0 when there is nothing of it.
///
/// # Safety
/// `epoch` is good for writing until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_obj_query_max_epoch(
    oh: daos_handle_t,
    th: daos_handle_t,
    epoch: *mut daos_epoch_t,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        let handle = ObjHandle::of(oh)?;
        let tx = TxHandle::of(th, &handle.cont)?;
        if epoch.is_null() { Err(guard::null()) } else { Ok((handle, tx)) }
    });
    let (handle, tx) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let epoch = User(epoch);
    launch(ev, Sign::Der, move |local| async move {
        let shards = super::enter(&handle, &tx, &local)?.0.stat().await?;
        epoch.set(shards.iter().map(|(_, shard)| shard.tail.epoch.0).max().unwrap_or(0));
        Ok(())
    })
}

/// Whether all copies of an object are the same. There is one copy of each shard, so this checks
/// that all of them answer. What is stored is verified against its checksums when it is read.
#[unsafe(no_mangle)]
pub extern "C" fn daos_obj_verify(
    coh: daos_handle_t,
    oid: daos_obj_id_t,
    _epoch: daos_epoch_t,
) -> i32 {
    let cont = match ContHandle::of(coh) {
        Ok(cont) => cont,
        Err(error) => return guard::told(Sign::Der, &error),
    };
    launch(std::ptr::null_mut(), Sign::Der, move |local| async move {
        require_open(&cont)?;
        cont.mirror(&local)?.object(oid_in(oid)).stat().await.map(|_| ())
    })
}

/// Anchors that divide a listing of dkeys into `*nr` parts; 0 asks how many are best (one for
/// each group). With `anchors` NULL only the number is told. Parts that cannot be made smaller
/// leave others empty.
///
/// # Safety
/// `anchors` is NULL or has room for as many as `*nr` says (or will say).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_obj_anchor_split(
    oh: daos_handle_t,
    nr: *mut u32,
    anchors: *mut daos_anchor_t,
) -> i32 {
    let handle = match ObjHandle::of(oh) {
        Ok(handle) if !nr.is_null() => handle,
        Ok(_) => return guard::told(Sign::Der, &guard::null()),
        Err(error) => return guard::told(Sign::Der, &error),
    };
    let (nr, anchors) = (User(nr), User(anchors));
    launch(std::ptr::null_mut(), Sign::Der, move |local| async move {
        let object = handle.object(&local)?;
        // SAFETY: not NULL, and the caller's promise.
        let nr = unsafe { &mut *nr.0 };
        if *nr == 0 {
            object.cont().learn(handle.oid).await;
            *nr = object.cont().layout(handle.oid)?.group_count() as u32;
        }
        if anchors.0.is_null() {
            return Ok(());
        }
        let parts = object.split(*nr)?;
        for at in 0..*nr as usize {
            // SAFETY: `at` is below the room the caller has.
            let anchor = unsafe { &mut *anchors.0.add(at) };
            match parts.get(at) {
                Some(part) => anchor::put_position(anchor, part),
                None => anchor::write(anchor, None),
            }
        }
        Ok(())
    })
}

/// The anchor number `index` of those that [`daos_obj_anchor_split`] makes by itself.
///
/// # Safety
/// `anchor` is NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_obj_anchor_set(
    oh: daos_handle_t,
    index: u32,
    anchor: *mut daos_anchor_t,
) -> i32 {
    let handle = match ObjHandle::of(oh) {
        Ok(handle) if !anchor.is_null() => handle,
        Ok(_) => return guard::told(Sign::Der, &guard::null()),
        Err(error) => return guard::told(Sign::Der, &error),
    };
    let anchor = User(anchor);
    launch(std::ptr::null_mut(), Sign::Der, move |local| async move {
        let object = handle.object(&local)?;
        object.cont().learn(handle.oid).await;
        let groups = object.cont().layout(handle.oid)?.group_count() as u32;
        let parts = object.split(groups)?;
        let part = parts.get(index as usize).ok_or_else(|| {
            Error::inval(format!("the object has {groups} parts; {index} is not one of them"))
        })?;
        // SAFETY: not NULL, and the caller's promise.
        anchor::put_position(unsafe { &mut *anchor.0 }, part);
        Ok(())
    })
}

/// Listings from a given key on are not offered: `-DER_NOSYS`.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_obj_key2anchor(
    oh: daos_handle_t,
    _th: daos_handle_t,
    _dkey: *mut daos_key_t,
    _akey: *mut daos_key_t,
    _anchor: *mut daos_anchor_t,
    ev: *mut daos_event_t,
) -> i32 {
    settle(ev, Sign::Der, move || {
        ObjHandle::of(oh)?;
        Err(Error::new(Code::NotSupported, "listings from a given key on are not offered"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_says_which_end_and_what() {
        for bad in [0, 1, 3, 4, 4 | 3, 8, 32 | 5, 1 << 40] {
            assert!(query_flags(bad).is_err(), "{bad:#x}");
        }
        let max = query_flags(GET_MAX | GET_DKEY | GET_RECX).unwrap();
        assert!(max.has(QueryFlags::MAX.and(QueryFlags::DKEY).and(QueryFlags::RECX)));
        assert!(!max.has(QueryFlags::AKEY));
        assert!(!query_flags(GET_MIN | GET_AKEY).unwrap().has(QueryFlags::MAX));
    }
}
