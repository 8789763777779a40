//! Key-value stores: strings to values, each one single value of an object.

use crate::cont::ContHandle;
use crate::ctypes::{
    d_sg_list_t, daos_anchor_t, daos_event_t, daos_handle_t, daos_key_desc_t, daos_obj_id_t,
    daos_size_t,
};
use crate::errno::Sign;
use crate::event::{fail, launch, settle};
use crate::guard::{self, User};
use crate::handle;
use crate::obj::list::Page;
use crate::obj::{conds, judge, oid_in, require_open, writable_mode};
use crate::tx::TxHandle;
use client::{Container, FetchedValue, KvObj, Tx};
use std::sync::Arc;
use types::{Code, Error, ObjType, Oid, Result, limits};
use wire::obj::{Cond, FetchIod, FetchWant};

/// Values up to this size come in the message.
const INLINE_BYTES_MAX: u32 = 1024;
/// Where values are.
const VALUE: &[u8] = b"";

/// An open key-value store.
struct KvHandle {
    cont: Arc<ContHandle>,
    oid: Oid,
    writable: bool,
}

/// What an operation on a key needs.
struct Call {
    kv: Arc<KvHandle>,
    tx: Option<Arc<TxHandle>>,
    key: &'static [u8],
    cond: Cond,
}

impl KvHandle {
    fn of(oh: daos_handle_t) -> Result<Arc<KvHandle>> {
        let kv = handle::get::<KvHandle>(oh.cookie)?;
        require_open(&kv.cont)?;
        Ok(kv)
    }

    fn enter(
        &self,
        tx: &Option<Arc<TxHandle>>,
        local: &crate::ctx::Local,
    ) -> Result<(KvObj, Option<Tx>)> {
        let cont: Container = TxHandle::look(tx, &*self.cont.mirror(local)?);
        let tx = tx.as_ref().map(|tx| tx.attach(&cont));
        Ok((KvObj { object: cont.object(self.oid) }, tx))
    }

    fn require_writable(&self) -> Result<()> {
        if self.writable {
            return Ok(());
        }
        Err(Error::new(Code::NoPerm, "the key-value store was opened read-only"))
    }
}

impl Call {
    /// # Safety
    /// `key` is NULL or a C string that is there until completion.
    unsafe fn new(
        oh: daos_handle_t,
        th: daos_handle_t,
        flags: u64,
        allowed: Cond,
        key: *const libc::c_char,
    ) -> Result<Call> {
        let kv = KvHandle::of(oh)?;
        let tx = TxHandle::of(th, &kv.cont)?;
        // SAFETY: the caller's promise.
        let key: &'static [u8] = unsafe { guard::text(key) }?;
        if key.is_empty() {
            return Err(Error::inval("the key is empty"));
        }
        if key.len() > limits::KEY_BYTES_MAX {
            return Err(Error::new(Code::KeyTooBig, format!("key of {} bytes", key.len())));
        }
        Ok(Call { kv, tx, key, cond: conds(flags, allowed)? })
    }
}

/// Opens a key-value store, which need not exist. Asks nobody. `-DER_INVAL` for an id of another
/// type.
///
/// # Safety
/// `oh` is good for writing until completion; `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_kv_open(
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
        oid.class()?;
        if !matches!(oid.obj_type(), Some(ObjType::KvHashed | ObjType::KvU64 | ObjType::KvLexical))
        {
            return Err(Error::inval(format!("object {oid} is not a key-value store")));
        }
        let kv = Arc::new(KvHandle { cont, oid, writable });
        oh.set(daos_handle_t { cookie: handle::add(kv)? });
        Ok(())
    })
}

/// Closes a key-value store.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_kv_close(oh: daos_handle_t, ev: *mut daos_event_t) -> i32 {
    settle(ev, Sign::Der, move || handle::remove::<KvHandle>(oh.cookie).map(|_| ()))
}

/// Removes all keys. The handle stays open.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_kv_destroy(
    oh: daos_handle_t,
    th: daos_handle_t,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        let kv = KvHandle::of(oh)?;
        kv.require_writable()?;
        let tx = TxHandle::of(th, &kv.cont)?;
        Ok((kv, tx))
    });
    let (kv, tx) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    launch(ev, Sign::Der, move |local| async move {
        let (store, tx) = kv.enter(&tx, &local)?;
        store.object.punch_in(tx.as_ref(), Cond::NONE).await
    })
}

/// Stores a value. `DAOS_COND_KEY_INSERT`: the key must be new (`-DER_EXIST`);
/// `DAOS_COND_KEY_UPDATE`: it must not (`-DER_NONEXIST`).
///
/// # Safety
/// `key` is a C string and `buf` holds `size` bytes, unchanged, until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_kv_put(
    oh: daos_handle_t,
    th: daos_handle_t,
    flags: u64,
    key: *const libc::c_char,
    size: daos_size_t,
    buf: *const libc::c_void,
    ev: *mut daos_event_t,
) -> i32 {
    let allowed = Cond::DKEY_INSERT.and(Cond::DKEY_UPDATE);
    let arguments = guard::catch(|| {
        // SAFETY: the caller's promise.
        let call = unsafe { Call::new(oh, th, flags, allowed, key) }?;
        call.kv.require_writable()?;
        if buf.is_null() && size > 0 {
            return Err(guard::null());
        }
        if size > limits::BULK_BYTES_MAX as u64 {
            return Err(Error::new(Code::RecordTooBig, format!("a value of {size} bytes")));
        }
        let value: &'static [u8] = match size {
            0 => &[],
            // SAFETY: not NULL, and the caller's promise.
            _ => unsafe { std::slice::from_raw_parts(buf.cast::<u8>(), size as usize) },
        };
        Ok((call, value))
    });
    let (call, value) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    launch(ev, Sign::Der, move |local| async move {
        let (store, tx) = call.kv.enter(&call.tx, &local)?;
        judge(&store.object, tx.as_ref(), call.cond, call.key, &[]).await?;
        store.put(tx.as_ref(), call.cond, call.key, value).await
    })
}

/// Reads a value. `*size` is the room in `buf`, then the value's length; 0 when there is no such
/// key. With `buf` NULL only the length is returned. `-DER_REC2BIG` when the value is longer than the
/// room; `-DER_NONEXIST` with `DAOS_COND_KEY_GET` when there is none.
///
/// # Safety
/// `key` is a C string, `buf` NULL or good for writing `*size` bytes, until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_kv_get(
    oh: daos_handle_t,
    th: daos_handle_t,
    flags: u64,
    key: *const libc::c_char,
    size: *mut daos_size_t,
    buf: *mut libc::c_void,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        // SAFETY: the caller's promise.
        let call = unsafe { Call::new(oh, th, flags, Cond::DKEY_FETCH, key) }?;
        // SAFETY: the caller's promise.
        let given = *unsafe { guard::get(size) }?;
        let bytes = if buf.is_null() { 0 } else { given.min(limits::BULK_BYTES_MAX as u64) };
        Ok((call, bytes as usize))
    });
    let (call, bytes) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let (size, buf) = (User(size), User(buf.cast::<u8>()));
    launch(ev, Sign::Der, move |local| async move {
        let (store, tx) = call.kv.enter(&call.tx, &local)?;
        let mut none = [];
        let room: &mut [u8] = if bytes == 0 {
            &mut none
        } else {
            // SAFETY: not NULL, and the caller's promise.
            unsafe { std::slice::from_raw_parts_mut(buf.0, bytes) }
        };
        let want = if buf.0.is_null() {
            FetchWant::Probe
        } else {
            FetchWant::Single { bytes_max: bytes as u64, inline_bytes_max: INLINE_BYTES_MAX }
        };
        let iods = vec![FetchIod { akey: VALUE, want }];
        let found = {
            let mut room = [&mut *room];
            store.object.fetch(tx.as_ref(), call.cond, call.key, iods, &mut room).await?
        };
        match found.first() {
            Some(FetchedValue::Inline(value)) => {
                room[..value.len()].copy_from_slice(value);
                size.set(value.len() as u64);
            }
            Some(FetchedValue::Single { bytes, fitted }) => {
                size.set(*bytes);
                if !fitted && !buf.0.is_null() {
                    let text = format!("the value has {bytes} bytes, the memory {}", room.len());
                    return Err(Error::new(Code::RecordTooBig, text));
                }
            }
            Some(FetchedValue::Array { .. } | FetchedValue::Sparse { .. }) => {
                return Err(Error::inval("the key holds an array, not a value"));
            }
            Some(FetchedValue::Absent) | None => size.set(0),
        }
        Ok(())
    })
}

/// Removes a key. With `DAOS_COND_KEY_REMOVE` it must exist.
///
/// # Safety
/// `key` is a C string until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_kv_remove(
    oh: daos_handle_t,
    th: daos_handle_t,
    flags: u64,
    key: *const libc::c_char,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        // SAFETY: the caller's promise.
        let call = unsafe { Call::new(oh, th, flags, Cond::PUNCH, key) }?;
        call.kv.require_writable()?;
        Ok(call)
    });
    let call = match arguments {
        Ok(call) => call,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    launch(ev, Sign::Der, move |local| async move {
        let (store, tx) = call.kv.enter(&call.tx, &local)?;
        if call.cond.has(Cond::PUNCH) {
            judge(&store.object, tx.as_ref(), Cond::DKEY_UPDATE, call.key, &[]).await?;
        }
        store.remove(tx.as_ref(), call.cond, call.key).await
    })
}

/// Lists keys, as [`crate::obj::list::daos_obj_list_dkey`].
///
/// # Safety
/// All that is pointed to is there, used by nobody else, until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_kv_list(
    oh: daos_handle_t,
    th: daos_handle_t,
    nr: *mut u32,
    kds: *mut daos_key_desc_t,
    sgl: *mut d_sg_list_t,
    anchor: *mut daos_anchor_t,
    ev: *mut daos_event_t,
) -> i32 {
    let page = Page { nr: User(nr), kds: User(kds), sgl: User(sgl), anchor: User(anchor) };
    let arguments = guard::catch(|| {
        let kv = KvHandle::of(oh)?;
        page.check()?;
        let tx = TxHandle::of(th, &kv.cont)?;
        Ok((kv, tx))
    });
    let (kv, tx) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    launch(ev, Sign::Der, move |local| async move {
        let (store, tx) = kv.enter(&tx, &local)?;
        // SAFETY: the caller's promise.
        unsafe { page.fill(&store.object, tx.as_ref(), None) }.await
    })
}
