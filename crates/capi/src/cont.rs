//! Containers: make, open, hand over, query, remove.

use crate::ctx::{Ctx, Local};
use crate::ctypes::{d_iov_t, daos_cont_info_t, daos_event_t, daos_handle_t, daos_prop_t, uuid_t};
use crate::errno::Sign;
use crate::event::{fail, launch, settle};
use crate::guard::{self, User};
use crate::pool::{PoolHandle, gone_is_closed, mode_of, name_of};
use crate::prop_map::ContSpec;
use crate::{global, handle};
use client::{ContOpenOptions, Container};
use std::rc::Rc;
use std::sync::Arc;
use types::{Code, Epoch, Error, Result};
use uuid::Uuid;
use wire::control::{ContInfo, ControlRequest, Evict, Name, OpenMode};

/// `DAOS_COO_RO`, `DAOS_COO_RW`, `DAOS_COO_EX`.
const COO_RO: u32 = 1;
const COO_RW: u32 = 2;
const COO_EX: u32 = 4;
/// `DAOS_COO_RO_MDSTATS`.
const COO_RO_MDSTATS: u32 = 16;
/// `DAOS_COO_EVICT`, `DAOS_COO_EVICT_ALL`.
const COO_EVICT: u32 = 32;
const COO_EVICT_ALL: u32 = 64;
/// All bits of `DAOS_COO_*`.
const COO_ALL: u32 = 255;

/// How to open, from `DAOS_COO_*` bits. `Inval` for ones that do not go together: the user's own
/// handles are not evicted for an exclusive one, and others' only for that.
fn open_options(flags: u32) -> Result<(OpenMode, ContOpenOptions)> {
    let mode = mode_of(flags, COO_RO, COO_RW, COO_EX)?;
    let evict = match (flags & (COO_EVICT | COO_EVICT_ALL), mode) {
        (0, _) => Some(Evict::Nobody),
        (COO_EVICT, OpenMode::ReadOnly | OpenMode::ReadWrite) => Some(Evict::User),
        (COO_EVICT_ALL, OpenMode::Exclusive) => Some(Evict::All),
        _ => None,
    };
    match evict.filter(|_| flags & !COO_ALL == 0) {
        Some(evict) => {
            Ok((mode, ContOpenOptions { evict, leaves_times: flags & COO_RO_MDSTATS != 0 }))
        }
        None => Err(Error::inval(format!("the flags {flags:#x} do not go together"))),
    }
}

/// An open container.
pub struct ContHandle {
    /// Its own number.
    pub cookie: u64,
    /// Its pool. That handle is not closed by programs as long as this one is open.
    pub pool: Arc<PoolHandle>,
    /// What the catalog said.
    pub info: ContInfo,
    /// How it was opened.
    pub mode: OpenMode,
    /// The snapshot it shows; zero: the present.
    pub at: Epoch,
    /// The context that holds the server's handle; `None` for one that was handed over.
    pub home: Option<Arc<Ctx>>,
}

impl ContHandle {
    /// The open container behind a handle of C's.
    pub fn of(handle: daos_handle_t) -> Result<Arc<ContHandle>> {
        handle::get(handle.cookie)
    }

    /// The container as a context sees it.
    pub fn mirror(&self, local: &Local) -> Result<Rc<Container>> {
        local.mirror(self.cookie, || {
            let pool = self.pool.mirror(local)?;
            let cont = Container::attach(&pool, self.info.clone(), self.mode);
            Ok(if self.at == Epoch::ZERO { cont } else { cont.at_epoch(self.at) })
        })
    }

    /// `NoPerm` when it was opened for reading only.
    pub fn require_writable(&self) -> Result<()> {
        match self.mode {
            OpenMode::ReadOnly => {
                Err(Error::new(Code::NoPerm, "the container was opened read-only"))
            }
            _ => Ok(()),
        }
    }
}

/// Makes a container. Returns what the catalog says of it.
async fn create(
    local: Rc<Local>,
    pool: Arc<PoolHandle>,
    label: String,
    uuid: Uuid,
    spec: ContSpec,
) -> Result<ContInfo> {
    pool.require_writable()?;
    let (attrs, count) = (spec.attrs()?, spec.numbers_used());
    let pool = pool.mirror(&local)?;
    let made = pool.cont_create(&label, uuid, spec.props, attrs).await?;
    if count > 0 {
        // Nobody has had one of its numbers yet.
        let numbers = ControlRequest::AllocOids { pool: pool.info().id, cont: made.id, count };
        if let Err(error) = pool.client().control(&numbers).await {
            // Else it would be there without what was asked for; where that fails, too, the first error says more.
            let _ = pool.cont_destroy(Name::Uuid(made.uuid), true).await;
            return Err(error);
        }
    }
    Ok(made)
}

/// Makes a container, with the label that the properties may name. `uuid` (or NULL) gets its
/// UUID.
///
/// # Safety
/// `uuid` is NULL or good for writing until completion, `cont_prop` NULL or a property list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_create(
    poh: daos_handle_t,
    uuid: *mut uuid_t,
    cont_prop: *mut daos_prop_t,
    ev: *mut daos_event_t,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { create_labeled(poh, None, cont_prop, uuid, ev) }
}

/// Makes a container with a label. `uuid` (or NULL) gets its UUID.
///
/// # Safety
/// `label` is a C string; else as for [`daos_cont_create`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_create_with_label(
    poh: daos_handle_t,
    label: *const libc::c_char,
    cont_prop: *mut daos_prop_t,
    uuid: *mut uuid_t,
    ev: *mut daos_event_t,
) -> i32 {
    // SAFETY: the caller's promise.
    let label = match guard::catch(|| Ok(unsafe { guard::utf8(label) }?.to_string())) {
        Ok(label) if label.is_empty() => {
            return guard::told(Sign::Der, &Error::inval("the label is empty"));
        }
        Ok(label) => label,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    // SAFETY: the caller's promise.
    unsafe { create_labeled(poh, Some(label), cont_prop, uuid, ev) }
}

/// # Safety
/// As for [`daos_cont_create`].
unsafe fn create_labeled(
    poh: daos_handle_t,
    label: Option<String>,
    cont_prop: *mut daos_prop_t,
    uuid: *mut uuid_t,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        // SAFETY: the caller's promise.
        let mut spec = unsafe { crate::prop_map::cont_spec(cont_prop) }?;
        let named = spec.label.take();
        Ok((PoolHandle::of(poh)?, label.or(named).unwrap_or_default(), spec))
    });
    let (pool, label, spec) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let uuid = User(uuid);
    launch(ev, Sign::Der, move |local| async move {
        let made = create(local, pool, label, Uuid::nil(), spec).await?;
        uuid.set(*made.uuid.as_bytes());
        Ok(())
    })
}

/// Opens a container by label or UUID; for writing too in a pool that was opened read-only.
/// `DAOS_COO_EVICT` closes this user's other handles on it first, `DAOS_COO_EVICT_ALL` all; who goes
/// on with one is not stopped. `DAOS_COO_RO_MDSTATS` leaves the container's times alone.
///
/// # Safety
/// `cont` is a C string; `coh` and `info` (or NULL) are good for writing until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_open(
    poh: daos_handle_t,
    cont: *const libc::c_char,
    flags: u32,
    coh: *mut daos_handle_t,
    info: *mut daos_cont_info_t,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        if coh.is_null() {
            return Err(guard::null());
        }
        // SAFETY: the caller's promise.
        let name = name_of(unsafe { guard::utf8(cont) }?)?;
        Ok((PoolHandle::of(poh)?, name, open_options(flags)?))
    });
    let (pool, name, (mode, options)) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let (coh, info) = (User(coh), User(info));
    launch(ev, Sign::Der, move |local| async move {
        let opened = pool.mirror(&local)?.cont_open_with(&name, mode, options).await?;
        info.set(info_of(opened.info()));
        let home = Some(local.ctx()?);
        let known = opened.info().clone();
        let (cookie, _) = handle::add_with(|cookie| {
            Arc::new(ContHandle { cookie, pool, info: known, mode, at: Epoch::ZERO, home })
        })?;
        local.keep(cookie, Rc::new(opened));
        coh.set(daos_handle_t { cookie });
        Ok(())
    })
}

/// Closes a container.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_close(coh: daos_handle_t, ev: *mut daos_event_t) -> i32 {
    let closed = guard::catch(|| close(coh.cookie));
    settle(ev, Sign::Der, move || closed)
}

/// Closes a container at the place it was opened.
pub(crate) fn close(cookie: u64) -> Result<()> {
    let cont = handle::remove::<ContHandle>(cookie)?;
    let Some(home) = cont.home.as_ref().filter(|home| home.is_current()) else { return Ok(()) };
    let held = home.lock();
    let local = held.local().clone();
    let closed = match local.mirrored::<Container>(cookie) {
        Some(mirror) => gone_is_closed(local.client.block_on((*mirror).clone().close())),
        None => Ok(()),
    };
    local.forget(cookie);
    drop(local);
    closed
}

/// Removes a container by label or UUID; one that is open only with `force`.
///
/// # Safety
/// `cont` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_destroy(
    poh: daos_handle_t,
    cont: *const libc::c_char,
    force: i32,
    ev: *mut daos_event_t,
) -> i32 {
    // SAFETY: the caller's promise.
    let arguments =
        guard::catch(|| Ok((PoolHandle::of(poh)?, name_of(unsafe { guard::utf8(cont) }?)?)));
    let (pool, name) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    launch(ev, Sign::Der, move |local| async move {
        pool.require_writable()?;
        pool.mirror(&local)?.cont_destroy(name, force != 0).await
    })
}

/// Writes an open container as bytes that another process can open without asking; as
/// [`crate::pool::daos_pool_local2global`].
///
/// # Safety
/// `glob` points to an iov whose buffer is as long as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_local2global(coh: daos_handle_t, glob: *mut d_iov_t) -> i32 {
    guard::daos(|| {
        let cont = ContHandle::of(coh)?;
        let value = (cont.pool.info.uuid, cont.info.clone(), cont.mode);
        let raw = global::encode(global::Kind::Cont, &value)?;
        // SAFETY: the caller's promise.
        unsafe { global::export(&raw, glob, Code::Range) }
    })
}

/// Opens a container from bytes of [`daos_cont_local2global`], of a pool opened here.
/// `-DER_INVAL` when it is another pool's.
///
/// # Safety
/// The buffer of `glob` is as long as `iov_len` says; `coh` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_global2local(
    poh: daos_handle_t,
    glob: d_iov_t,
    coh: *mut daos_handle_t,
) -> i32 {
    guard::daos(|| {
        let pool = PoolHandle::of(poh)?;
        // SAFETY: the caller's promise.
        let raw = unsafe { global::import(&glob) }?;
        let (of, info, mode): (Uuid, ContInfo, OpenMode) = global::decode(global::Kind::Cont, raw)?;
        if of != pool.info.uuid {
            return Err(Error::inval("the container belongs to another pool"));
        }
        if coh.is_null() {
            return Err(guard::null());
        }
        let (cookie, _) = handle::add_with(|cookie| {
            Arc::new(ContHandle { cookie, pool, info, mode, at: Epoch::ZERO, home: None })
        })?;
        // SAFETY: the caller's promise.
        unsafe { guard::put(coh, daos_handle_t { cookie }) }
    })
}

/// Fills in what is known of a container, and the properties asked for. Each may be NULL.
///
/// # Safety
/// Results that are not NULL are good for writing until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_query(
    coh: daos_handle_t,
    info: *mut daos_cont_info_t,
    cont_prop: *mut daos_prop_t,
    ev: *mut daos_event_t,
) -> i32 {
    let cont = match ContHandle::of(coh) {
        Ok(cont) => cont,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let (info, prop) = (User(info), User(cont_prop));
    launch(ev, Sign::Der, move |local| async move {
        let mirror = cont.mirror(&local)?;
        let fresh = cont.pool.mirror(&local)?.cont_query(&mirror.name()).await?;
        info.set(info_of(&fresh));
        // SAFETY: the caller gives a live property list until completion.
        unsafe { crate::cont_prop::fill(&local, &cont, prop.0, &fresh) }.await
    })
}

/// Reserves `num_oids` object numbers that nobody else gets; `*oid` is the first.
///
/// # Safety
/// `oid` is good for writing until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_alloc_oids(
    coh: daos_handle_t,
    num_oids: u64,
    oid: *mut u64,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        if oid.is_null() || num_oids == 0 {
            return Err(Error::inval("at least one number must be asked for, and a place for it"));
        }
        ContHandle::of(coh)
    });
    let cont = match arguments {
        Ok(cont) => cont,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let oid = User(oid);
    launch(ev, Sign::Der, move |local| async move {
        oid.set(cont.mirror(&local)?.alloc_oids(num_oids).await?);
        Ok(())
    })
}

/// A container's facts in C's form.
pub fn info_of(info: &ContInfo) -> daos_cont_info_t {
    daos_cont_info_t {
        ci_uuid: *info.uuid.as_bytes(),
        ci_lsnapshot: info.snapshot_last.0,
        ci_nhandles: info.handle_count as u32,
        ci_nsnapshots: info.snapshot_count as u32,
        ci_md_otime: info.opened_ns,
        ci_md_mtime: info.changed_ns,
    }
}
