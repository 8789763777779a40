//! The table of a container's objects.
//!
//! The table is of the objects that a snapshot shows, or of those that are there while it is listed,
//! in the order of a hash of their ids. Marks belong to the handle and end with it.

use crate::cont::ContHandle;
use crate::ctx::Local;
use crate::ctypes::{
    d_iov_t, daos_anchor_t, daos_epoch_t, daos_event_t, daos_handle_t, daos_obj_id_t,
};
use crate::errno::Sign;
use crate::event::{fail, launch, settle};
use crate::guard::{self, User};
use crate::handle;
use crate::obj::{anchor, oid_in, oid_out, require_open};
use client::Container;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use types::{Code, Epoch, Error, Oid, Result};

const MARK_BYTES_MAX: usize = 32;

/// A filter of a listing: positive to keep the object, 0 to leave it out, negative to stop.
type Filter = unsafe extern "C" fn(daos_obj_id_t, *mut d_iov_t) -> i32;

/// An open table.
struct OitHandle {
    cont: Arc<ContHandle>,
    /// The snapshot it is of; zero: the present.
    at: Epoch,
    marks: Mutex<HashMap<Oid, Vec<u8>>>,
}

/// Which objects a listing gives.
#[derive(Clone, Copy)]
enum Wanted {
    All,
    Unmarked,
    Filtered(Filter),
}

fn oit_of(oh: daos_handle_t) -> Result<Arc<OitHandle>> {
    let oit = handle::get::<OitHandle>(oh.cookie)?;
    require_open(&oit.cont)?;
    Ok(oit)
}

/// True handles pass.
pub(crate) fn require(oh: daos_handle_t) -> Result<()> {
    oit_of(oh).map(|_| ())
}

/// Opens the table of the objects that a snapshot shows; of what is there now for the epochs 0 and
/// `DAOS_EPOCH_MAX`. `-DER_NONEXIST` when there is no snapshot at `epoch`.
///
/// # Safety
/// `oh` is good for writing until completion; `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_oit_open(
    coh: daos_handle_t,
    epoch: daos_epoch_t,
    oh: *mut daos_handle_t,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        if oh.is_null() {
            return Err(guard::null());
        }
        ContHandle::of(coh)
    });
    let cont = match arguments {
        Ok(cont) => cont,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let oh = User(oh);
    launch(ev, Sign::Der, move |local| async move {
        let at = crate::snap::epoch_in(epoch);
        if at != Epoch::ZERO {
            let name = wire::control::SnapName::Epoch(at);
            cont.mirror(&local)?.at_snapshot(&name).await?;
        }
        let oit = Arc::new(OitHandle { cont, at, marks: Mutex::default() });
        oh.set(daos_handle_t { cookie: handle::add(oit)? });
        Ok(())
    })
}

/// Closes the table; its marks are forgotten.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_oit_close(oh: daos_handle_t, ev: *mut daos_event_t) -> i32 {
    settle(ev, Sign::Der, move || handle::remove::<OitHandle>(oh.cookie).map(|_| ()))
}

/// Lists ids, up to `*oids_nr` of them from the anchor on. An answer may be empty before the end.
///
/// # Safety
/// `oids` has room for `*oids_nr`; all of it is the caller's until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_oit_list(
    oh: daos_handle_t,
    oids: *mut daos_obj_id_t,
    oids_nr: *mut u32,
    anchor: *mut daos_anchor_t,
    ev: *mut daos_event_t,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { list(oh, oids, oids_nr, anchor, Wanted::All, ev) }
}

/// Lists ids that have no mark, as [`daos_oit_list`].
///
/// # Safety
/// As for [`daos_oit_list`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_oit_list_unmarked(
    oh: daos_handle_t,
    oids: *mut daos_obj_id_t,
    oids_nr: *mut u32,
    anchor: *mut daos_anchor_t,
    ev: *mut daos_event_t,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { list(oh, oids, oids_nr, anchor, Wanted::Unmarked, ev) }
}

/// Lists ids for which a function says so, as [`daos_oit_list`]. It gets the object's mark, or
/// NULL, and must not call this library. A negative answer stops the listing with that error.
///
/// # Safety
/// As for [`daos_oit_list`]; `filter` may be called until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_oit_list_filter(
    oh: daos_handle_t,
    oids: *mut daos_obj_id_t,
    oids_nr: *mut u32,
    anchor: *mut daos_anchor_t,
    filter: Option<Filter>,
    ev: *mut daos_event_t,
) -> i32 {
    let Some(filter) = filter else { return guard::told(Sign::Der, &guard::null()) };
    // SAFETY: the caller's promise.
    unsafe { list(oh, oids, oids_nr, anchor, Wanted::Filtered(filter), ev) }
}

/// # Safety
/// As for [`daos_oit_list`].
unsafe fn list(
    oh: daos_handle_t,
    oids: *mut daos_obj_id_t,
    oids_nr: *mut u32,
    anchor: *mut daos_anchor_t,
    wanted: Wanted,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        let oit = oit_of(oh)?;
        if oids.is_null() || oids_nr.is_null() || anchor.is_null() {
            return Err(guard::null());
        }
        // SAFETY: not NULL, and the caller's promise.
        if unsafe { *oids_nr } == 0 {
            return Err(Error::inval("a listing wants room for at least one object"));
        }
        Ok(oit)
    });
    let oit = match arguments {
        Ok(oit) => oit,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let (oids, oids_nr, anchor) = (User(oids), User(oids_nr), User(anchor));
    launch(ev, Sign::Der, move |local| async move {
        // SAFETY: checked not to be NULL, and the caller's promise.
        let (nr, anchor_c) = unsafe { (&mut *oids_nr.0, &mut *anchor.0) };
        let count_max = std::mem::take(nr);
        let Some(after) = anchor::read(anchor_c, None, oid_of)? else { return Ok(()) };
        let page = oit.shown(&local)?.list_all_objects(after, count_max).await?;
        let mut count = 0;
        let mut last = after;
        for oid in page.oids.iter().take(count_max as usize) {
            last = Some(*oid);
            if oit.wants(*oid, wanted)? {
                // SAFETY: `count` is below the room the caller gave.
                unsafe { oids.0.add(count).write(oid_out(*oid)) };
                count += 1;
            }
        }
        *nr = count as u32;
        let done = page.complete && page.oids.len() <= count_max as usize;
        let position = last.filter(|_| !done).map(Oid::to_bytes);
        anchor::write(anchor_c, position.as_ref().map(|raw| &raw[..]));
        Ok(())
    })
}

fn oid_of(raw: &[u8]) -> Result<Option<Oid>> {
    let raw = raw.try_into().map_err(|_| Error::inval("the anchor is not one of a table"))?;
    Ok(Some(Oid::from_bytes(raw)))
}

impl OitHandle {
    fn shown(&self, local: &Local) -> Result<Container> {
        let cont = self.cont.mirror(local)?;
        Ok(if self.at == Epoch::ZERO { (*cont).clone() } else { cont.at_epoch(self.at) })
    }

    fn wants(&self, oid: Oid, wanted: Wanted) -> Result<bool> {
        let mark = self.marks.lock().get(&oid).cloned();
        match wanted {
            Wanted::All => Ok(true),
            Wanted::Unmarked => Ok(mark.is_none()),
            Wanted::Filtered(filter) => {
                let mut iov = mark.as_ref().map(|mark| d_iov_t {
                    iov_buf: mark.as_ptr().cast_mut().cast(),
                    iov_buf_len: mark.len(),
                    iov_len: mark.len(),
                });
                let iov = iov.as_mut().map_or(std::ptr::null_mut(), |iov| iov as *mut d_iov_t);
                // SAFETY: C gave the function for this; the mark lives until it returns.
                let told = unsafe { filter(oid_out(oid), iov) };
                if told < 0 {
                    let text = format!("the filter stopped the listing with {told}");
                    return Err(Error::new(Code::Canceled, text));
                }
                Ok(told > 0)
            }
        }
    }
}

/// Marks an object of the table; NULL takes its mark away. `-DER_NONEXIST` when it is not there.
///
/// # Safety
/// `marker` is NULL or an iov whose buffer is as long as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_oit_mark(
    oh: daos_handle_t,
    oid: daos_obj_id_t,
    marker: *mut d_iov_t,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        let oit = oit_of(oh)?;
        // SAFETY: the caller's promise.
        let Some(iov) = (unsafe { marker.as_ref() }) else { return Ok((oit, None)) };
        if iov.iov_buf.is_null() || iov.iov_len == 0 || iov.iov_len > MARK_BYTES_MAX {
            return Err(Error::inval(format!("a mark has 1 to {MARK_BYTES_MAX} bytes")));
        }
        // SAFETY: not NULL, and the caller's promise.
        let mark = unsafe { std::slice::from_raw_parts(iov.iov_buf.cast::<u8>(), iov.iov_len) };
        Ok((oit, Some(mark.to_vec())))
    });
    let (oit, mark) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let oid = oid_in(oid);
    launch(ev, Sign::Der, move |local| async move {
        oid.class()?;
        let shards = oit.shown(&local)?.object(oid).stat().await?;
        if shards.iter().all(|(_, shard)| shard.dkey_count == 0) {
            return Err(Error::new(Code::NonExist, format!("object {oid} is not in the table")));
        }
        let mut marks = oit.marks.lock();
        match mark {
            Some(mark) => marks.insert(oid, mark),
            None => marks.remove(&oid),
        };
        Ok(())
    })
}
