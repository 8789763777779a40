//! Pools: connect, hand over, query.

use crate::cont::ContHandle;
use crate::ctx::{Ctx, Local};
use crate::ctypes::{
    DAOS_MEDIA_MAX, d_iov_t, d_rank_list_t, daos_event_t, daos_handle_t, daos_pool_info_t,
    daos_prop_t, daos_space,
};
use crate::errno::Sign;
use crate::event::{fail, launch, settle};
use crate::guard::{self, User};
use crate::{global, handle, rebuild};
use client::{Pool, TargetSpace};
use std::rc::Rc;
use std::sync::Arc;
use types::{Code, Error, Result};
use wire::control::{Name, OpenMode, PoolInfo};
use wire::map::TargetState;

/// `DAOS_PC_RO`, `DAOS_PC_RW`, `DAOS_PC_EX`.
const PC_RO: u32 = 1;
const PC_RW: u32 = 2;
const PC_EX: u32 = 4;
/// `DPI_SPACE` of `pi_bits`: ask the targets for their space.
const DPI_SPACE: u64 = 1;
/// `DPI_REBUILD_STATUS` of `pi_bits`: ask the catalog, and while something moves the targets.
const DPI_REBUILD_STATUS: u64 = 1 << 1;

/// An open pool.
pub struct PoolHandle {
    /// Its own number.
    pub cookie: u64,
    /// What the catalog said.
    pub info: PoolInfo,
    /// How it was opened.
    pub mode: OpenMode,
    /// The context that holds the server's handle; `None` for one that was handed over.
    pub home: Option<Arc<Ctx>>,
}

impl PoolHandle {
    /// The open pool behind a handle of C's.
    pub fn of(handle: daos_handle_t) -> Result<Arc<PoolHandle>> {
        handle::get(handle.cookie)
    }

    /// The pool as a context sees it.
    pub fn mirror(&self, local: &Local) -> Result<Rc<Pool>> {
        local.mirror(self.cookie, || Ok(Pool::attach(&local.client, self.info.clone())))
    }

    /// `NoPerm` when it was opened for reading only.
    pub fn require_writable(&self) -> Result<()> {
        match self.mode {
            OpenMode::ReadOnly => Err(Error::new(Code::NoPerm, "the pool was opened read-only")),
            _ => Ok(()),
        }
    }
}

/// A pool or container by UUID or label, as text.
pub fn name_of(text: &str) -> Result<Name> {
    if text.is_empty() {
        return Err(Error::inval("the name is empty"));
    }
    Ok(match uuid::Uuid::try_parse(text) {
        Ok(uuid) if text.len() == 36 => Name::Uuid(uuid),
        _ => Name::Label(text.to_string()),
    })
}

/// The open mode in flags of which `read`, `write` and `exclusive` are bits; exactly one of them.
pub fn mode_of(flags: u32, read: u32, write: u32, exclusive: u32) -> Result<OpenMode> {
    match (flags & read != 0, flags & write != 0, flags & exclusive != 0) {
        (true, false, false) => Ok(OpenMode::ReadOnly),
        (false, true, false) => Ok(OpenMode::ReadWrite),
        (false, false, true) => Ok(OpenMode::Exclusive),
        _ => Err(Error::inval(format!(
            "the flags {flags:#x} want one of read-only, read-write, exclusive"
        ))),
    }
}

/// Opens a pool by label or UUID. `sys` is ignored: the system is the one of the environment.
///
/// # Safety
/// `pool` is a C string; `poh` and `info` (or NULL) are good for writing until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_pool_connect(
    pool: *const libc::c_char,
    _sys: *const libc::c_char,
    flags: u32,
    poh: *mut daos_handle_t,
    info: *mut daos_pool_info_t,
    ev: *mut daos_event_t,
) -> i32 {
    // SAFETY: the caller's promise.
    let arguments = guard::catch(|| {
        if poh.is_null() {
            return Err(guard::null());
        }
        // SAFETY: the caller's promise.
        let name = name_of(unsafe { guard::utf8(pool) }?)?;
        Ok((name, mode_of(flags, PC_RO, PC_RW, PC_EX)?))
    });
    let (name, mode) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let (poh, info) = (User(poh), User(info));
    launch(ev, Sign::Der, move |local| async move {
        let opened = local.client.pool_open(&name, mode).await?;
        fill_info(&opened, opened.info(), info).await?;
        let home = Some(local.ctx()?);
        let (cookie, _) = handle::add_with(|cookie| {
            Arc::new(PoolHandle { cookie, info: opened.info().clone(), mode, home })
        })?;
        local.keep(cookie, Rc::new(opened));
        poh.set(daos_handle_t { cookie });
        Ok(())
    })
}

/// Closes a pool. `-DER_BUSY`, and no effect, while containers are open that were opened by this handle.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_pool_disconnect(poh: daos_handle_t, ev: *mut daos_event_t) -> i32 {
    settle(ev, Sign::Der, {
        let closed = guard::catch(|| match has_conts(poh.cookie) {
            true => Err(Error::new(Code::Busy, "containers of the pool are open")),
            false => close(poh.cookie),
        });
        move || closed
    })
}

/// True while containers are open that were opened by this handle of a pool.
fn has_conts(cookie: u64) -> bool {
    handle::any(|cont: &ContHandle| cont.pool.cookie == cookie)
}

/// Closes a pool at the place it was opened.
pub(crate) fn close(cookie: u64) -> Result<()> {
    let pool = handle::remove::<PoolHandle>(cookie)?;
    let Some(home) = pool.home.as_ref().filter(|home| home.is_current()) else { return Ok(()) };
    let held = home.lock();
    let local = held.local().clone();
    let closed = match local.mirrored::<Pool>(cookie) {
        Some(mirror) => gone_is_closed(local.client.block_on((*mirror).clone().close())),
        None => Ok(()),
    };
    local.forget(cookie);
    drop(local);
    closed
}

/// The catalog forgets open handles when its engine stops; one that it does not know any more is
/// closed all the same.
pub(crate) fn gone_is_closed(told: Result<()>) -> Result<()> {
    match told {
        Err(error) if error.code == Code::BadHandle => {
            tracing::debug!("closing: {error}");
            Ok(())
        }
        told => told,
    }
}

/// Writes an open pool as bytes that another process can open without asking; with `iov_buf`
/// NULL only says how many. `-DER_TRUNC` when the buffer is too small.
///
/// # Safety
/// `glob` points to an iov whose buffer is as long as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_pool_local2global(poh: daos_handle_t, glob: *mut d_iov_t) -> i32 {
    guard::daos(|| {
        let pool = PoolHandle::of(poh)?;
        let raw = global::encode(global::Kind::Pool, &(pool.info.clone(), pool.mode))?;
        // SAFETY: the caller's promise.
        unsafe { global::export(&raw, glob, Code::Range) }
    })
}

/// Opens a pool from bytes of [`daos_pool_local2global`].
///
/// # Safety
/// The buffer of `glob` is as long as `iov_len` says; `poh` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_pool_global2local(glob: d_iov_t, poh: *mut daos_handle_t) -> i32 {
    guard::daos(|| {
        // SAFETY: the caller's promise.
        let raw = unsafe { global::import(&glob) }?;
        let (info, mode): (PoolInfo, OpenMode) = global::decode(global::Kind::Pool, raw)?;
        if poh.is_null() {
            return Err(guard::null());
        }
        let (cookie, _) =
            handle::add_with(|cookie| Arc::new(PoolHandle { cookie, info, mode, home: None }))?;
        // SAFETY: the caller's promise.
        unsafe { guard::put(poh, daos_handle_t { cookie }) }
    })
}

/// Fills in what is known of a pool: sizes, state, its engines, its properties. Each of the
/// results may be NULL. `*ranks` is to be freed with `d_rank_list_free`.
///
/// # Safety
/// Results that are not NULL are good for writing until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_pool_query(
    poh: daos_handle_t,
    ranks: *mut *mut d_rank_list_t,
    info: *mut daos_pool_info_t,
    pool_prop: *mut daos_prop_t,
    ev: *mut daos_event_t,
) -> i32 {
    let pool = match PoolHandle::of(poh) {
        Ok(pool) => pool,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let (ranks, info, prop) = (User(ranks), User(info), User(pool_prop));
    launch(ev, Sign::Der, move |local| async move {
        let mirror = pool.mirror(&local)?;
        // SAFETY: the caller gives it until completion; bits say what is asked for.
        let bits = (!info.0.is_null()).then(|| unsafe { (*info.0).pi_bits });
        let wants_news = bits.is_some_and(|bits| bits == 0 || bits & DPI_REBUILD_STATUS != 0);
        let known = if wants_news || !prop.0.is_null() {
            local.client.pool_query(&mirror.name()).await?
        } else {
            PoolInfo { map: (*mirror.map()).clone(), ..pool.info.clone() }
        };
        fill_info(&mirror, &known, info).await?;
        if !ranks.0.is_null() {
            let all: Vec<u32> = known.map.engines.iter().map(|engine| engine.rank.0).collect();
            ranks.set(rank_list(&all));
        }
        if !prop.0.is_null() {
            // SAFETY: the caller gives a live property list until completion.
            unsafe { crate::prop_map::fill_pool(prop.0, &known) }?;
        }
        Ok(())
    })
}

/// Space of a target: what has been written and what is free, by media.
pub fn space_of(target: &TargetSpace) -> daos_space {
    let Some(stat) = target.stat else { return daos_space::default() };
    daos_space {
        s_total: [stat.scm_bytes, stat.nvme_bytes],
        s_free: [stat.scm_free_bytes, stat.nvme_free_bytes],
    }
}

/// Tells C of a pool what the catalog says (`known`), and what its targets do.
async fn fill_info(pool: &Pool, known: &PoolInfo, user: User<daos_pool_info_t>) -> Result<()> {
    if user.0.is_null() {
        return Ok(());
    }
    // SAFETY: the caller gives it until completion; bits say what is asked for.
    let bits = unsafe { (*user.0).pi_bits };
    let map = &known.map;
    let down = |state: TargetState| !matches!(state, TargetState::Up);
    let mut info = daos_pool_info_t {
        pi_uuid: *known.uuid.as_bytes(),
        pi_ntargets: map.targets.len() as u32,
        pi_nnodes: map.engines.len() as u32,
        pi_ndisabled: map.targets.iter().filter(|target| down(target.state)).count() as u32,
        pi_map_ver: map.version,
        pi_bits: bits,
        ..daos_pool_info_t::default()
    };
    // Without the bit, too: zeros would say that a rebuild is in progress, and programs wait for it to end.
    info.pi_rebuild_st = rebuild::status(pool, known).await?;
    // Callers that leave the bits 0 read the space all the same.
    if bits == 0 || bits & DPI_SPACE != 0 {
        let space = pool.query().await?;
        let answered = space.targets.iter().filter(|target| target.stat.is_some()).count();
        let total = &mut info.pi_space;
        total.ps_ntargets = answered as u32;
        total.ps_free_min = [u64::MAX; DAOS_MEDIA_MAX];
        for target in space.targets.iter().filter(|target| target.stat.is_some()) {
            let one = space_of(target);
            for media in 0..DAOS_MEDIA_MAX {
                total.ps_space.s_total[media] += one.s_total[media];
                total.ps_space.s_free[media] += one.s_free[media];
                total.ps_free_min[media] = total.ps_free_min[media].min(one.s_free[media]);
                total.ps_free_max[media] = total.ps_free_max[media].max(one.s_free[media]);
            }
        }
        for media in 0..DAOS_MEDIA_MAX {
            if answered == 0 {
                total.ps_free_min[media] = 0;
            } else {
                total.ps_free_mean[media] = total.ps_space.s_free[media] / answered as u64;
            }
        }
    }
    user.set(info);
    Ok(())
}

/// A list of ranks for C, which frees it with `d_rank_list_free`.
fn rank_list(ranks: &[u32]) -> *mut d_rank_list_t {
    // SAFETY: memory of `malloc` of the sizes written, or NULL.
    unsafe {
        let list = libc::malloc(size_of::<d_rank_list_t>()).cast::<d_rank_list_t>();
        let array = libc::malloc(size_of_val(ranks).max(1)).cast::<u32>();
        if list.is_null() || array.is_null() {
            libc::free(list.cast());
            libc::free(array.cast());
            return std::ptr::null_mut();
        }
        std::ptr::copy_nonoverlapping(ranks.as_ptr(), array, ranks.len());
        list.write(d_rank_list_t { rl_ranks: array, rl_nr: ranks.len() as u32 });
        list
    }
}
