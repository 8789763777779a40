//! Listings of dkeys, akeys and ranges of records.

use super::{ObjHandle, akey_in, akey_out, anchor, enter};
use crate::ctypes::{
    d_sg_list_t, daos_anchor_t, daos_epoch_range_t, daos_event_t, daos_handle_t, daos_key_desc_t,
    daos_key_t, daos_recx_t, daos_size_t,
};
use crate::errno::Sign;
use crate::event::{fail, launch};
use crate::guard::{self, User};
use crate::sgl;
use crate::tx::TxHandle;
use client::{FetchedValue, Object, Tx};
use types::{Code, Error, Result};
use wire::obj::{Cond, FetchIod, FetchWant};

/// Where C wants a listing.
#[derive(Clone, Copy)]
pub(crate) struct Page {
    /// Room in descriptors, then number of keys.
    pub nr: User<u32>,
    /// Length of each key.
    pub kds: User<daos_key_desc_t>,
    /// The keys, one after the other.
    pub sgl: User<d_sg_list_t>,
    pub anchor: User<daos_anchor_t>,
}

impl Page {
    /// `Inval` when something is NULL or there is no room for a single key.
    pub fn check(&self) -> Result<()> {
        if self.nr.0.is_null()
            || self.kds.0.is_null()
            || self.sgl.0.is_null()
            || self.anchor.0.is_null()
        {
            return Err(guard::null());
        }
        // SAFETY: not NULL, and the caller's promise.
        if unsafe { *self.nr.0 } == 0 {
            return Err(Error::inval("a listing wants room for at least one key"));
        }
        Ok(())
    }

    /// Lists dkeys, or akeys of `dkey`, until there is at least one, or the end.
    ///
    /// # Safety
    /// All of it is the caller's memory until completion.
    pub async unsafe fn fill(
        self,
        object: &Object,
        tx: Option<&Tx>,
        dkey: Option<&[u8]>,
    ) -> Result<()> {
        // SAFETY: checked not to be NULL, and the caller's promise.
        let (nr, anchor_c) = unsafe { (&mut *self.nr.0, &mut *self.anchor.0) };
        let count_max = *nr;
        // SAFETY: the caller's promise: room for `nr`.
        let kds = unsafe { std::slice::from_raw_parts_mut(self.kds.0, count_max as usize) };
        // SAFETY: the caller's promise.
        let mut room = unsafe { sgl::room(self.sgl.0) }?;
        let room_bytes: usize = room.iter().map(|piece| piece.len()).sum();
        *nr = 0;
        let Some(mut position) = anchor::position(anchor_c)? else { return Ok(()) };
        let (mut count, mut used, mut too_big) = (0usize, 0usize, None);
        while count == 0 && !position.is_end() {
            let bytes_max = room_bytes.min(u32::MAX as usize) as u32;
            let take = |key: &[u8]| {
                let key = if dkey.is_some() { akey_out(object.oid(), key) } else { key };
                if used + key.len() > room_bytes || count == kds.len() {
                    too_big = Some(key.len());
                    return;
                }
                sgl::scatter(&mut room, used, key);
                kds[count] = daos_key_desc_t { kd_key_len: key.len() as u64, kd_val_type: 0 };
                used += key.len();
                count += 1;
            };
            object.list_keys(tx, dkey, &mut position, count_max, bytes_max, take).await?;
            if let Some(bytes) = too_big {
                // The anchor stays, so that the key comes again.
                kds[0].kd_key_len = bytes as u64;
                return Err(Error::new(
                    Code::KeyTooBig,
                    format!("the next key has {bytes} bytes, the memory {room_bytes}"),
                ));
            }
        }
        drop(room);
        *nr = count as u32;
        anchor::put_position(anchor_c, &position);
        // SAFETY: the caller's promise; no slice is held.
        unsafe { sgl::note_filled(self.sgl.0, used) };
        Ok(())
    }
}

/// Lists dkeys from the anchor on: as many as fit, in the order of the object's type.
/// `-DER_KEY2BIG` when the next one alone does not fit; its length is in `kds[0]`.
///
/// # Safety
/// All that is pointed to is there, used by nobody else, until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_obj_list_dkey(
    oh: daos_handle_t,
    th: daos_handle_t,
    nr: *mut u32,
    kds: *mut daos_key_desc_t,
    sgl: *mut d_sg_list_t,
    anchor: *mut daos_anchor_t,
    ev: *mut daos_event_t,
) -> i32 {
    let page = Page { nr: User(nr), kds: User(kds), sgl: User(sgl), anchor: User(anchor) };
    // SAFETY: the caller's promise.
    unsafe { list(oh, th, None, page, ev) }
}

/// Lists akeys of a dkey, as [`daos_obj_list_dkey`].
///
/// # Safety
/// As for [`daos_obj_list_dkey`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_obj_list_akey(
    oh: daos_handle_t,
    th: daos_handle_t,
    dkey: *mut daos_key_t,
    nr: *mut u32,
    kds: *mut daos_key_desc_t,
    sgl: *mut d_sg_list_t,
    anchor: *mut daos_anchor_t,
    ev: *mut daos_event_t,
) -> i32 {
    let page = Page { nr: User(nr), kds: User(kds), sgl: User(sgl), anchor: User(anchor) };
    // SAFETY: the caller's promise.
    unsafe { list(oh, th, Some(dkey), page, ev) }
}

/// # Safety
/// As for [`daos_obj_list_dkey`].
unsafe fn list(
    oh: daos_handle_t,
    th: daos_handle_t,
    dkey: Option<*mut daos_key_t>,
    page: Page,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        let handle = ObjHandle::of(oh)?;
        let tx = TxHandle::of(th, &handle.cont)?;
        page.check()?;
        // SAFETY: the caller's promise.
        let dkey = dkey.map(|dkey| unsafe { sgl::key::<'static>(dkey) }).transpose()?;
        Ok((handle, tx, dkey))
    });
    let (handle, tx, dkey) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    launch(ev, Sign::Der, move |local| async move {
        let (object, tx) = enter(&handle, &tx, &local)?;
        // SAFETY: the caller's promise.
        unsafe { page.fill(&object, tx.as_ref(), dkey) }.await
    })
}

/// Lists ranges of records under an akey, upwards or downwards, with the epoch of each in both
/// ends of `eprs`. Nothing for a single value. `eprs` may be NULL.
///
/// # Safety
/// As for [`daos_obj_list_dkey`]; `recxs`, and `eprs` if not NULL, have room for `*nr`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_obj_list_recx(
    oh: daos_handle_t,
    th: daos_handle_t,
    dkey: *mut daos_key_t,
    akey: *mut daos_key_t,
    size: *mut daos_size_t,
    nr: *mut u32,
    recxs: *mut daos_recx_t,
    eprs: *mut daos_epoch_range_t,
    anchor: *mut daos_anchor_t,
    incr_order: bool,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        let handle = ObjHandle::of(oh)?;
        let tx = TxHandle::of(th, &handle.cont)?;
        if nr.is_null() || recxs.is_null() || anchor.is_null() {
            return Err(guard::null());
        }
        // SAFETY: not NULL, and the caller's promise.
        if unsafe { *nr } == 0 {
            return Err(Error::inval("a listing wants room for at least one range"));
        }
        // SAFETY: the caller's promise.
        let (dkey, akey) = unsafe { (sgl::key::<'static>(dkey)?, sgl::key::<'static>(akey)?) };
        Ok((handle, tx, dkey, akey))
    });
    let (handle, tx, dkey, akey) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let (size, nr, recxs) = (User(size), User(nr), User(recxs));
    let (eprs, anchor) = (User(eprs), User(anchor));
    launch(ev, Sign::Der, move |local| async move {
        let (object, tx) = enter(&handle, &tx, &local)?;
        let akey = akey_in(handle.oid, akey);
        // SAFETY: checked not to be NULL, and the caller's promise.
        let (nr, anchor_c) = unsafe { (&mut *nr.0, &mut *anchor.0) };
        let count_max = std::mem::take(nr);
        let Some(mut position) = anchor::position(anchor_c)? else { return Ok(()) };
        let page =
            object.list_recxs(tx.as_ref(), dkey, akey, !incr_order, &mut position, count_max);
        let page = match page.await {
            Err(error) if error.code == Code::Inval => {
                return match single_bytes(&object, dkey, akey).await? {
                    Some(bytes) => {
                        size.set(bytes);
                        anchor::write(anchor_c, None);
                        Ok(())
                    }
                    None => Err(error),
                };
            }
            page => page?,
        };
        for (at, (recx, record_bytes, epoch)) in page.iter().take(count_max as usize).enumerate() {
            size.set(u64::from(*record_bytes));
            let recx = daos_recx_t { rx_idx: recx.index, rx_nr: recx.count };
            // SAFETY: `at` is below the room the caller gave.
            unsafe { recxs.0.add(at).write(recx) };
            if !eprs.0.is_null() {
                let epochs = daos_epoch_range_t { epr_lo: epoch.0, epr_hi: epoch.0 };
                // SAFETY: as above.
                unsafe { eprs.0.add(at).write(epochs) };
            }
        }
        *nr = page.len() as u32;
        anchor::put_position(anchor_c, &position);
        Ok(())
    })
}

/// Size of the single value at an akey; `None` when there is none.
async fn single_bytes(object: &Object, dkey: &[u8], akey: &[u8]) -> Result<Option<u64>> {
    let iods = vec![FetchIod { akey, want: FetchWant::Probe }];
    let found = object.fetch(None, Cond::NONE, dkey, iods, &mut []).await?;
    Ok(match found.first() {
        Some(FetchedValue::Single { bytes, .. }) => Some(*bytes),
        _ => None,
    })
}
