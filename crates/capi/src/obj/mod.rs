//! Objects: dkeys, akeys and what is under them.
//!
//! An object handle is plain data; opening one asks nobody. An operation is one request to the
//! target that holds its dkey, and data goes straight between that request and the caller's
//! memory.
//!
//! Arrays and key-value stores keep their data under the empty akey, which C cannot name. For
//! objects of their types the C name of that akey is `"0"`, as in DAOS, so that programs which copy
//! objects by key see all of it ([`akey_in`], [`akey_out`]).

pub mod anchor;
pub mod fetch;
mod iod;
pub mod list;
pub mod oid;
pub mod query;
pub mod update;

use crate::cont::ContHandle;
use crate::ctx::Local;
use crate::ctypes::{daos_event_t, daos_handle_t, daos_key_t, daos_obj_id_t};
use crate::errno::Sign;
use crate::event::{fail, launch, settle};
use crate::guard::{self, User};
use crate::tx::TxHandle;
use crate::{handle, sgl};
use client::{FetchedValue, Object, Tx};
use std::sync::Arc;
use types::{Code, Error, ObjType, Oid, Result};
use wire::obj::{Cond, FetchIod, FetchWant};

/// Bits of `DAOS_OO_*`: read-only, read-write, exclusive, and the two kinds of advice.
const OO_RO: u32 = 1 << 1;
const OO_RW: u32 = 1 << 2;
const OO_EXCL: u32 = 1 << 3;
const OO_ALL: u32 = OO_RO | OO_RW | OO_EXCL | 1 << 4 | 1 << 5;

/// `DAOS_COND_PER_AKEY`: conditions on akeys are in the iods.
pub(crate) const COND_PER_AKEY: u64 = 1 << 7;
/// `DAOS_COND_*` by bit, and what they are here.
const CONDS: [(u64, Cond); 7] = [
    (1 << 0, Cond::PUNCH),
    (1 << 1, Cond::DKEY_INSERT),
    (1 << 2, Cond::DKEY_UPDATE),
    (1 << 3, Cond::DKEY_FETCH),
    (1 << 4, Cond::AKEY_INSERT),
    (1 << 5, Cond::AKEY_UPDATE),
    (1 << 6, Cond::AKEY_FETCH),
];

/// What the akey of arrays and key-value stores is called in C.
const DATA_NAME: &[u8] = b"0";

/// An open object.
pub struct ObjHandle {
    /// Its container. Closing that handle makes this one useless.
    pub cont: Arc<ContHandle>,
    pub oid: Oid,
    writable: bool,
}

impl ObjHandle {
    /// The open object behind a handle of C's. `BadHandle` too when its container was closed.
    pub fn of(oh: daos_handle_t) -> Result<Arc<ObjHandle>> {
        let object = handle::get::<ObjHandle>(oh.cookie)?;
        require_open(&object.cont)?;
        Ok(object)
    }

    /// The same, for changing it. `NoPerm` when it was opened for reading only.
    pub fn writable(oh: daos_handle_t) -> Result<Arc<ObjHandle>> {
        let object = ObjHandle::of(oh)?;
        if !object.writable {
            return Err(Error::new(Code::NoPerm, "the object was opened read-only"));
        }
        Ok(object)
    }

    /// The object as a context sees it.
    pub fn object(&self, local: &Local) -> Result<Object> {
        Ok(self.cont.mirror(local)?.object(self.oid))
    }
}

/// An object and, maybe, a transaction, as a context sees them.
pub(crate) fn enter(
    handle: &ObjHandle,
    tx: &Option<Arc<TxHandle>>,
    local: &Local,
) -> Result<(Object, Option<Tx>)> {
    let object = TxHandle::look(tx, &*handle.cont.mirror(local)?).object(handle.oid);
    let tx = tx.as_ref().map(|tx| tx.attach(object.cont()));
    Ok((object, tx))
}

/// Judges the conditions of a write in a transaction when it is added, as DAOS does; the commit
/// judges them again. What the transaction itself has written is not seen. `akeys` are those that
/// the conditions on akeys are about, each with its own conditions beside `cond`.
pub(crate) async fn judge(
    object: &Object,
    tx: Option<&Tx>,
    cond: Cond,
    dkey: &[u8],
    akeys: &[(&[u8], Cond)],
) -> Result<()> {
    if tx.is_none() || cond == Cond::NONE && akeys.iter().all(|(_, own)| *own == Cond::NONE) {
        return Ok(());
    }
    let iods = akeys.iter().map(|(akey, _)| FetchIod { akey, want: FetchWant::Probe }).collect();
    let exist = Error::new(Code::Exist, "the key is there already");
    let absent = Error::new(Code::NonExist, "the key is not there");
    let found = match object.fetch(None, Cond::DKEY_FETCH, dkey, iods, &mut []).await {
        Ok(_) if cond.has(Cond::DKEY_INSERT) => return Err(exist),
        Ok(found) => found,
        Err(error) if error.code == Code::NonExist => {
            if cond.has(Cond::DKEY_UPDATE) {
                return Err(absent);
            }
            vec![FetchedValue::Absent; akeys.len()]
        }
        Err(error) => return Err(error),
    };
    for (value, (_, own)) in found.iter().zip(akeys) {
        let (cond, there) = (cond.and(*own), *value != FetchedValue::Absent);
        if there && cond.has(Cond::AKEY_INSERT) {
            return Err(exist);
        }
        if !there && (cond.has(Cond::AKEY_UPDATE) || cond.has(Cond::PUNCH)) {
            return Err(absent);
        }
    }
    Ok(())
}

/// `BadHandle` when the container's handle was closed while something in it was still open.
pub(crate) fn require_open(cont: &ContHandle) -> Result<()> {
    if !handle::is_live(cont.cookie) {
        return Err(Error::new(Code::BadHandle, "the container was closed"));
    }
    Ok(())
}

/// True when the mode of an open asks for writing. `Inval` for a mode that means nothing,
/// `NoPerm` when the container is open for reading only.
pub(crate) fn writable_mode(mode: u32, cont: &ContHandle) -> Result<bool> {
    let ways = [OO_RO, OO_RW, OO_EXCL].iter().filter(|way| mode & **way != 0).count();
    if mode & !OO_ALL != 0 || ways > 1 {
        return Err(Error::inval(format!("the mode {mode:#x} wants one of read-only, read-write")));
    }
    let writable = mode & (OO_RW | OO_EXCL) != 0;
    if writable {
        cont.require_writable()?;
    }
    Ok(writable)
}

/// The conditions in flags; `Inval` for bits that are not in `allowed`, for akey conditions both
/// here and in the iods, and for a key that must and must not exist.
pub(crate) fn conds(flags: u64, allowed: Cond) -> Result<Cond> {
    let unknown = || Error::inval(format!("the flags {flags:#x} do not fit this operation"));
    let mut cond = Cond::NONE;
    let mut left = flags & !COND_PER_AKEY;
    for (bit, one) in CONDS {
        if left & bit != 0 {
            left &= !bit;
            cond = cond.and(one);
        }
    }
    if left != 0 || !allowed.has(cond) {
        return Err(unknown());
    }
    let akeys = Cond::AKEY_INSERT.and(Cond::AKEY_UPDATE).and(Cond::AKEY_FETCH);
    if flags & COND_PER_AKEY != 0 && cond.0 & akeys.0 != 0
        || cond.has(Cond::DKEY_INSERT.and(Cond::DKEY_UPDATE))
        || cond.has(Cond::AKEY_INSERT.and(Cond::AKEY_UPDATE))
    {
        return Err(unknown());
    }
    Ok(cond)
}

fn keeps_data_in_one_akey(oid: Oid) -> bool {
    use ObjType::{Array, ArrayAttr, ArrayByte, KvHashed, KvLexical, KvU64};
    let ones = [Array, ArrayAttr, ArrayByte, KvHashed, KvLexical, KvU64];
    oid.obj_type().is_some_and(|kind| ones.contains(&kind))
}

/// The akey that C means.
pub(crate) fn akey_in(oid: Oid, akey: &[u8]) -> &[u8] {
    if akey == DATA_NAME && keeps_data_in_one_akey(oid) { b"" } else { akey }
}

/// The same of a value.
///
/// Errors: `Inval` for an akey that is no integer, where the object has integer akeys.
pub(crate) fn value_akey_in(oid: Oid, akey: &[u8]) -> Result<&[u8]> {
    let is_integer = matches!(oid.obj_type(), Some(ObjType::AkeyU64 | ObjType::MultiU64));
    if is_integer && akey.len() != 8 {
        let text =
            format!("object {oid} has integer akeys of 8 bytes; this one has {}", akey.len());
        return Err(Error::inval(text));
    }
    Ok(akey_in(oid, akey))
}

/// What an akey is called in C.
pub(crate) fn akey_out(oid: Oid, akey: &[u8]) -> &[u8] {
    if akey.is_empty() && keeps_data_in_one_akey(oid) { DATA_NAME } else { akey }
}

/// The id that C writes as two words.
pub fn oid_in(oid: daos_obj_id_t) -> Oid {
    Oid { hi: oid.hi, lo: oid.lo }
}

/// An id as C writes it.
pub fn oid_out(oid: Oid) -> daos_obj_id_t {
    daos_obj_id_t { lo: oid.lo, hi: oid.hi }
}

/// Opens an object, which need not exist. Asks nobody. `-DER_INVAL` for an id that
/// `daos_obj_generate_oid` did not make, or whose class is weaker than the container demands.
///
/// # Safety
/// `oh` is good for writing until completion; `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_obj_open(
    coh: daos_handle_t,
    oid: daos_obj_id_t,
    mode: u32,
    oh: *mut daos_handle_t,
    ev: *mut daos_event_t,
) -> i32 {
    let oh = User(oh);
    settle(ev, Sign::Der, move || {
        if oh.0.is_null() {
            return Err(guard::null());
        }
        let cont = ContHandle::of(coh)?;
        let writable = writable_mode(mode, &cont)?;
        let oid = oid_in(oid);
        let (class, rd_fac) = (oid.class()?, cont.info.props.rd_fac);
        if class.scheme.redundancy_factor() < rd_fac {
            // Made for another container; here it would hold less than was promised.
            let text =
                format!("object {oid} is of class {class}, the container demands rd_fac {rd_fac}");
            return Err(Error::inval(text));
        }
        let object = Arc::new(ObjHandle { cont, oid, writable });
        oh.set(daos_handle_t { cookie: handle::add(object)? });
        Ok(())
    })
}

/// Closes an object.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_obj_close(oh: daos_handle_t, ev: *mut daos_event_t) -> i32 {
    settle(ev, Sign::Der, move || handle::remove::<ObjHandle>(oh.cookie).map(|_| ()))
}

/// Removes all of an object. With `DAOS_COND_PUNCH` there must be something of it, else
/// `-DER_NONEXIST`.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_obj_punch(
    oh: daos_handle_t,
    th: daos_handle_t,
    flags: u64,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        let handle = ObjHandle::writable(oh)?;
        let tx = TxHandle::of(th, &handle.cont)?;
        Ok((handle, tx, conds(flags, Cond::PUNCH)?))
    });
    let (handle, tx, cond) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    launch(ev, Sign::Der, move |local| async move {
        let (object, tx) = enter(&handle, &tx, &local)?;
        // An object need not have something on each of its targets, so they are asked first.
        if cond.has(Cond::PUNCH)
            && object.stat().await?.iter().all(|(_, shard)| shard.dkey_count == 0)
        {
            return Err(Error::new(Code::NonExist, "there is nothing of the object"));
        }
        object.punch_in(tx.as_ref(), Cond::NONE).await
    })
}

/// Removes dkeys, all of them or none.
///
/// # Safety
/// `dkeys` holds `nr` keys until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_obj_punch_dkeys(
    oh: daos_handle_t,
    th: daos_handle_t,
    flags: u64,
    nr: u32,
    dkeys: *mut daos_key_t,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        let handle = ObjHandle::writable(oh)?;
        let tx = TxHandle::of(th, &handle.cont)?;
        // SAFETY: the caller's promise.
        let dkeys = unsafe { keys(dkeys, nr) }?;
        Ok((handle, tx, conds(flags, Cond::PUNCH)?, dkeys))
    });
    let (handle, tx, cond, dkeys) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    launch(ev, Sign::Der, move |local| async move {
        let (object, tx) = enter(&handle, &tx, &local)?;
        for dkey in dkeys.iter().filter(|_| cond.has(Cond::PUNCH)) {
            judge(&object, tx.as_ref(), Cond::DKEY_UPDATE, dkey, &[]).await?;
        }
        object.punch_dkeys(tx.as_ref(), cond, &dkeys).await
    })
}

/// Removes akeys of a dkey, all of them or none.
///
/// # Safety
/// `dkey` is a key, `akeys` holds `nr` keys, until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_obj_punch_akeys(
    oh: daos_handle_t,
    th: daos_handle_t,
    flags: u64,
    dkey: *mut daos_key_t,
    nr: u32,
    akeys: *mut daos_key_t,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        let handle = ObjHandle::writable(oh)?;
        let tx = TxHandle::of(th, &handle.cont)?;
        // SAFETY: the caller's promise.
        let (dkey, akeys) = unsafe { (sgl::key::<'static>(dkey)?, keys(akeys, nr)?) };
        let akeys: Vec<&[u8]> = akeys.into_iter().map(|akey| akey_in(handle.oid, akey)).collect();
        Ok((handle, tx, conds(flags, Cond::PUNCH)?, dkey, akeys))
    });
    let (handle, tx, cond, dkey, akeys) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    launch(ev, Sign::Der, move |local| async move {
        let (object, tx) = enter(&handle, &tx, &local)?;
        let judged: Vec<(&[u8], Cond)> = akeys.iter().map(|akey| (*akey, Cond::NONE)).collect();
        judge(&object, tx.as_ref(), cond, dkey, &judged).await?;
        object.punch_akeys(tx.as_ref(), cond, dkey, &akeys).await
    })
}

/// # Safety
/// `first` is NULL or the first of `count` keys that live for `'a`.
unsafe fn keys<'a>(first: *const daos_key_t, count: u32) -> Result<Vec<&'a [u8]>> {
    if first.is_null() || count == 0 {
        return Err(Error::inval("at least one key must be given"));
    }
    // SAFETY: the caller's promise.
    (0..count as usize).map(|at| unsafe { sgl::key(first.add(at)) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::ObjClass;

    #[test]
    fn flags_become_conditions_or_are_refused() {
        let fetch = Cond::DKEY_FETCH.and(Cond::AKEY_FETCH);
        assert_eq!(conds(0, Cond::NONE).unwrap(), Cond::NONE);
        assert_eq!(conds(1 << 3 | 1 << 6, fetch).unwrap(), fetch);
        assert_eq!(conds(COND_PER_AKEY | 1 << 3, fetch).unwrap(), Cond::DKEY_FETCH);
        let update = Cond(0x7f & !Cond::PUNCH.0);
        for bad in [1 << 8, 1 << 63, 1, 1 << 1 | 1 << 2, 1 << 4 | 1 << 5, COND_PER_AKEY | 1 << 4] {
            assert!(conds(bad, update).is_err(), "{bad:#x}");
        }
        assert!(conds(1 << 1, fetch).is_err());
    }

    #[test]
    fn the_nameless_akey_has_a_name_where_it_is_used() {
        for kind in ObjType::ALL {
            let oid = Oid::generate(1, 2, kind, ObjClass::S1, 0);
            for akey in [&b"0"[..], b"", b"00", b"x"] {
                let named = akey_out(oid, akey);
                if kind as u8 >= 8 && akey == b"" {
                    assert_eq!(named, b"0");
                    assert_eq!(akey_in(oid, named), akey);
                } else {
                    assert_eq!(named, akey);
                }
            }
        }
        let plain = Oid::generate(1, 2, ObjType::MultiHashed, ObjClass::S1, 0);
        assert_eq!(akey_in(plain, b"0"), b"0");
    }
}
