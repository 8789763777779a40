//! Snapshots: making, listing, destroying, rolling back, and their tables of objects.
//!
//! A snapshot is an epoch, and may have a name. What one shows is read through `dfs_mount_snap`,
//! `daos_tx_open_snap` and `daos_oit_open`.

use crate::cont::ContHandle;
use crate::ctypes::{
    DAOS_SNAPSHOT_MAX_LEN, daos_anchor_t, daos_epoch_range_t, daos_epoch_t, daos_event_t,
    daos_handle_t,
};
use crate::errno::Sign;
use crate::event::{fail, launch};
use crate::guard::{self, User};
use std::ffi::{c_char, c_int, c_uint};
use std::sync::Arc;
use types::{Code, Epoch, Error, Result};
use wire::control::{Name, SnapName};

/// `DAOS_SNAP_OPT_CR`, `DAOS_SNAP_OPT_OIT`.
const OPT_CR: c_uint = 1;
const OPT_OIT: c_uint = 2;
/// `DAOS_EPOCH_MAX`.
const EPOCH_MAX: u64 = u64::MAX;

fn name_of(cont: &ContHandle) -> Name {
    Name::Uuid(cont.info.uuid)
}

/// Makes a snapshot. `epoch` (or NULL) gets its epoch; `name` is NULL or its name.
/// `-DER_EXIST` when the name is taken.
///
/// # Safety
/// `name` is NULL or a C string; `epoch` is NULL or good for writing until completion; `ev` is
/// NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_create_snap(
    coh: daos_handle_t,
    epoch: *mut daos_epoch_t,
    name: *mut c_char,
    ev: *mut daos_event_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { daos_cont_create_snap_opt(coh, epoch, name, OPT_CR, ev) }
}

/// Makes a snapshot. Its table of objects needs no making, so `DAOS_SNAP_OPT_OIT` changes nothing.
///
/// # Safety
/// As for [`daos_cont_create_snap`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_create_snap_opt(
    coh: daos_handle_t,
    epoch: *mut daos_epoch_t,
    name: *mut c_char,
    opts: c_uint,
    ev: *mut daos_event_t,
) -> c_int {
    let arguments = guard::catch(|| {
        if opts & OPT_CR == 0 || opts & !(OPT_CR | OPT_OIT) != 0 {
            return Err(Error::inval(format!("the options {opts:#x} are not of a snapshot")));
        }
        let name = match name.is_null() {
            true => String::new(),
            // SAFETY: the caller's promise.
            false => unsafe { guard::utf8(name) }?.to_string(),
        };
        let cont = ContHandle::of(coh)?;
        cont.require_writable()?;
        Ok((cont, name))
    });
    let (cont, name) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let epoch = User(epoch);
    launch(ev, Sign::Der, move |local| async move {
        let made = cont.pool.mirror(&local)?.snap_create(&name_of(&cont), &name).await?;
        epoch.set(made.epoch.0);
        Ok(())
    })
}

/// Lists snapshots, oldest first: up to `*nr` epochs, and names if `names` is not NULL. `*nr` gets
/// how many there are. The anchor is at its end afterwards: a listing is one call.
///
/// # Safety
/// `epochs` (or NULL) has room for `*nr`; `names` (or NULL) points to `*nr` buffers of
/// `DAOS_SNAPSHOT_MAX_LEN` bytes, each NULL or good; all of it is the caller's until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_list_snap(
    coh: daos_handle_t,
    nr: *mut c_int,
    epochs: *mut daos_epoch_t,
    names: *mut *mut c_char,
    anchor: *mut daos_anchor_t,
    ev: *mut daos_event_t,
) -> c_int {
    let arguments = guard::catch(|| {
        if nr.is_null() || anchor.is_null() {
            return Err(guard::null());
        }
        // SAFETY: not NULL, and the caller's promise.
        let room = unsafe { *nr };
        let room = usize::try_from(room).map_err(|_| Error::inval("room for less than none"))?;
        Ok((ContHandle::of(coh)?, room))
    });
    let (cont, room) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let (nr, epochs, names, anchor) = (User(nr), User(epochs), User(names), User(anchor));
    launch(ev, Sign::Der, move |local| async move {
        let (snaps, _) = cont.pool.mirror(&local)?.snap_list(&name_of(&cont)).await?;
        for (at, snap) in snaps.iter().take(room).enumerate() {
            if !epochs.0.is_null() {
                // SAFETY: `at` is below the room the caller gave.
                unsafe { epochs.0.add(at).write(snap.epoch.0) };
            }
            if names.0.is_null() {
                continue;
            }
            // SAFETY: `at` is below the room the caller gave.
            let name = unsafe { *names.0.add(at) };
            if name.is_null() {
                continue;
            }
            let count = snap.name.len().min(DAOS_SNAPSHOT_MAX_LEN - 1);
            // SAFETY: the buffer has DAOS_SNAPSHOT_MAX_LEN bytes.
            unsafe {
                name.copy_from_nonoverlapping(snap.name.as_ptr().cast(), count);
                name.add(count).write(0);
            }
        }
        nr.set(c_int::try_from(snaps.len()).unwrap_or(c_int::MAX));
        // SAFETY: checked not to be NULL, and the caller's promise.
        crate::obj::anchor::write(unsafe { &mut *anchor.0 }, None);
        Ok(())
    })
}

/// The snapshots in a range of epochs, both ends included.
async fn in_range(
    cont: &ContHandle,
    local: &crate::ctx::Local,
    range: daos_epoch_range_t,
) -> Result<Vec<Epoch>> {
    let (snaps, _) = cont.pool.mirror(local)?.snap_list(&name_of(cont)).await?;
    let epochs = snaps.into_iter().map(|snap| snap.epoch);
    Ok(epochs.filter(|epoch| (range.epr_lo..=range.epr_hi).contains(&epoch.0)).collect())
}

/// Destroys the snapshots in a range of epochs, both ends included (`epr_hi` may be
/// `DAOS_EPOCH_MAX`). `-DER_NONEXIST` when there is none in it.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_destroy_snap(
    coh: daos_handle_t,
    epr: daos_epoch_range_t,
    ev: *mut daos_event_t,
) -> c_int {
    let arguments = guard::catch(|| {
        if epr.epr_lo > epr.epr_hi {
            return Err(Error::inval("a range of epochs that ends before it begins"));
        }
        let cont = ContHandle::of(coh)?;
        cont.require_writable()?;
        Ok(cont)
    });
    let cont = match arguments {
        Ok(cont) => cont,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    launch(ev, Sign::Der, move |local| async move {
        let found = in_range(&cont, &local, epr).await?;
        if found.is_empty() {
            return Err(Error::new(Code::NonExist, "there is no snapshot at these epochs"));
        }
        let pool = cont.pool.mirror(&local)?;
        for epoch in found {
            pool.snap_destroy(&name_of(&cont), &SnapName::Epoch(epoch)).await?;
        }
        Ok(())
    })
}

/// Makes the container what a snapshot shows. Nobody else may have it open: `-DER_BUSY`. Open
/// objects and mounts of it go on, on what is there then.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_rollback(
    coh: daos_handle_t,
    epoch: daos_epoch_t,
    ev: *mut daos_event_t,
) -> c_int {
    let arguments = guard::catch(|| {
        let cont = ContHandle::of(coh)?;
        cont.require_writable()?;
        Ok(cont)
    });
    let cont = match arguments {
        Ok(cont) => cont,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    launch(ev, Sign::Der, move |local| async move {
        let pool = cont.pool.mirror(&local)?;
        let now = pool.cont_query(&name_of(&cont)).await?;
        // One of the handles is the caller's.
        if now.handle_count > 1 {
            return Err(Error::new(Code::Busy, "others have the container open"));
        }
        pool.roll_back(&name_of(&cont), &SnapName::Epoch(Epoch(epoch)), true).await
    })
}

/// The container as a snapshot shows it: an entry of its own in the table of handles, which C never
/// sees. To be taken out with what it was made for.
pub(crate) async fn at_snapshot(
    cont: &ContHandle,
    local: &crate::ctx::Local,
    epoch: u64,
    name: Option<&str>,
) -> Result<Arc<ContHandle>> {
    let (snaps, _) = cont.pool.mirror(local)?.snap_list(&name_of(cont)).await?;
    let found = snaps.iter().find(|snap| match name {
        Some(name) if epoch == 0 => snap.name == name,
        _ => snap.epoch.0 == epoch,
    });
    let found = found.ok_or_else(|| {
        Error::new(Code::NonExist, "the container has no snapshot of that epoch or name")
    })?;
    let at = found.epoch;
    let (_, shown) = crate::handle::add_with(|cookie| {
        Arc::new(ContHandle {
            cookie,
            pool: cont.pool.clone(),
            info: cont.info.clone(),
            mode: wire::control::OpenMode::ReadOnly,
            at,
            home: None,
        })
    })?;
    Ok(shown)
}

/// The epoch that C means: 0 and `DAOS_EPOCH_MAX` are the present.
pub(crate) fn epoch_in(epoch: daos_epoch_t) -> Epoch {
    if epoch == EPOCH_MAX { Epoch::ZERO } else { Epoch(epoch) }
}

/// Makes the table of objects of a snapshot. It needs no making: this only looks whether the
/// snapshot is there.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_snap_oit_create(
    coh: daos_handle_t,
    epoch: daos_epoch_t,
    _name: *mut c_char,
    ev: *mut daos_event_t,
) -> c_int {
    let cont = match guard::catch(|| ContHandle::of(coh)) {
        Ok(cont) => cont,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    launch(ev, Sign::Der, move |local| async move {
        let range = daos_epoch_range_t { epr_lo: epoch, epr_hi: epoch };
        match in_range(&cont, &local, range).await?.is_empty() {
            true => Err(Error::new(Code::NonExist, "there is no snapshot at this epoch")),
            false => Ok(()),
        }
    })
}

/// Removes the table of objects of a snapshot: it goes with the snapshot, so this only checks the
/// handles.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_snap_oit_destroy(
    coh: daos_handle_t,
    oh: daos_handle_t,
    ev: *mut daos_event_t,
) -> c_int {
    crate::event::settle(ev, Sign::Der, move || {
        ContHandle::of(coh)?;
        crate::oit::require(oh)
    })
}
