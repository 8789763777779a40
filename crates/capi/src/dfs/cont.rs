//! Containers that hold a file system: make, connect to by name, remove.

use super::mount::{MountHandle, Origin, credentials, end, mount_flags};
use super::{bad_handle, class, dfs_t, now};
use crate::cont::ContHandle;
use crate::ctx::Local;
use crate::ctypes::{daos_event_t, daos_handle_t, dfs_attr_t, uuid_t};
use crate::errno::{self, Sign};
use crate::event::launch;
use crate::guard;
use crate::handle;
use crate::init::{daos_fini, daos_init};
use crate::pool::{PoolHandle, name_of};
use crate::prop::cont;
use ::dfs::{Dfs, FormatOptions, MountFlags};
use client::{Container, Pool};
use libc::c_char;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{Code, ContLayout, ContProps, Epoch, Error, Result};
use uuid::Uuid;
use wire::control::{ContInfo, Name, OpenMode};

/// How long one that comes second waits for a container to be made.
const CREATION_WAIT_MAX: Duration = Duration::from_secs(30);
const CREATION_PAUSE_MIN: Duration = Duration::from_millis(2);
const CREATION_PAUSE_MAX: Duration = Duration::from_millis(200);

/// How many `dfs_init`s have no `dfs_fini` yet.
static USERS: Mutex<u64> = Mutex::new(0);

/// Makes `dfs_connect` and the like usable; as `daos_init`, which it calls. Counted.
#[unsafe(no_mangle)]
pub extern "C" fn dfs_init() -> i32 {
    let mut users = USERS.lock();
    let failed = daos_init();
    if failed != 0 {
        return errno_of(failed);
    }
    *users += 1;
    0
}

/// Undoes one `dfs_init`. `EINVAL` without one.
#[unsafe(no_mangle)]
pub extern "C" fn dfs_fini() -> i32 {
    let mut users = USERS.lock();
    if *users == 0 {
        return libc::EINVAL;
    }
    *users -= 1;
    errno_of(daos_fini())
}

/// The `errno` for what `daos_init` and `daos_fini` can say.
fn errno_of(der: i32) -> i32 {
    match -der {
        0 => 0,
        errno::DER_NONEXIST => libc::ENOENT,
        errno::DER_NO_PERM => libc::EPERM,
        errno::DER_UNREACH => libc::EHOSTUNREACH,
        errno::DER_TIMEDOUT => libc::ETIMEDOUT,
        errno::DER_INVAL | errno::DER_UNINIT => libc::EINVAL,
        errno::DER_PROTO => libc::EPROTO,
        errno::DER_NOMEM => libc::ENOMEM,
        _ => libc::EIO,
    }
}

/// `Access` before `dfs_init`, as DAOS says it.
fn require_init() -> Result<()> {
    match *USERS.lock() {
        0 => Err(Error::new(Code::Access, "dfs_init has not been called")),
        _ => Ok(()),
    }
}

/// Class, properties and label of a container to be made.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub props: ContProps,
    pub label: String,
    /// What else the property list says, to be kept.
    pub attrs: BTreeMap<String, Vec<u8>>,
}

impl Wanted {
    /// From what C gives; NULL asks for the defaults.
    ///
    /// # Safety
    /// `attr` is NULL or attributes with a property list, or NULL, in them.
    pub unsafe fn of(attr: *const dfs_attr_t, pool: &Pool) -> Result<Wanted> {
        // SAFETY: the caller's promise.
        let Some(attr) = (unsafe { attr.as_ref() }) else {
            let props = ContProps::posix(0);
            return Ok(Wanted { props, label: String::new(), attrs: BTreeMap::new() });
        };
        // SAFETY: the caller's promise.
        let mut spec = unsafe { crate::prop_map::cont_spec(attr.da_props) }?;
        // Of a list copied from another container: its well-known objects and its layout.
        spec.kept.retain(|property, _| ![cont::ROOTS, cont::LAYOUT_TYPE].contains(property));
        let attrs = spec.attrs()?;
        let mut props = spec.props;
        props.layout = ContLayout::Posix;
        let hints = super::info::hints_of(&text_of(&attr.da_hints))?;
        let all = class::of_id(attr.da_oclass_id, pool)?;
        let default = ContProps::posix(props.rd_fac);
        let of_hint = |hint| super::info::class_of_hint(hint, props.rd_fac);
        let file = class::of_id(attr.da_file_oclass_id, pool)?.or(all);
        let file = file.or(hints.file.map(of_hint));
        let dir = class::of_id(attr.da_dir_oclass_id, pool)?.or(all);
        let dir = dir.or(hints.dir.map(of_hint));
        props.file_oclass = file.unwrap_or(default.file_oclass);
        props.dir_oclass = dir.unwrap_or(default.dir_oclass);
        props.oclass = all.unwrap_or(default.oclass);
        if attr.da_chunk_size != 0 {
            props.chunk_bytes = super::chunk_of(attr.da_chunk_size)?;
        }
        for class in [props.file_oclass, props.dir_oclass] {
            if class.scheme.redundancy_factor() < props.rd_fac {
                let text = format!("class {class} is weaker than redundancy {}", props.rd_fac);
                return Err(Error::new(Code::Redundancy, text));
            }
        }
        Ok(Wanted { props, label: spec.label.unwrap_or_default(), attrs })
    }
}

/// The text in an array of C's, up to its NUL.
pub(crate) fn text_of(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|c| *c as u8).take_while(|b| *b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Makes a container with an empty file system, and opens it. When formatting fails, the
/// container goes again.
pub(crate) async fn create(pool: &Pool, wanted: Wanted) -> Result<Container> {
    let Wanted { props, label, attrs } = wanted;
    let made = pool.cont_create(&label, Uuid::nil(), props, attrs).await?;
    let name = Name::Uuid(made.uuid);
    let formatted = async {
        let cont = pool.cont_open(&name, OpenMode::ReadWrite).await?;
        match Dfs::format(&cont, &format_options()).await {
            Ok(()) => Ok(cont),
            // Somebody who opened it by its label meanwhile has done it: see `mount_or_format`.
            Err(error) if error.code == Code::Exist => Ok(cont),
            Err(error) => {
                let _ = cont.close().await;
                Err(error)
            }
        }
    }
    .await;
    if formatted.is_err() {
        let _ = pool.cont_destroy(name, true).await;
    }
    formatted
}

fn format_options() -> FormatOptions {
    let who = credentials();
    FormatOptions { mode: 0o755, uid: who.uid, gid: who.gid }
}

/// Mounts a container that somebody may have made just now and not formatted yet; then it is done
/// here, for only one of several succeeds with it.
async fn mount_or_format(cont: &Container, how: MountFlags) -> Result<Dfs> {
    match Dfs::mount(cont, how, credentials()).await {
        Err(error) if error.code == Code::NonExist && !cont.is_read_only() => {
            match Dfs::format(cont, &format_options()).await {
                Err(error) if error.code != Code::Exist => Err(error),
                _ => Dfs::mount(cont, how, credentials()).await,
            }
        }
        outcome => outcome,
    }
}

/// Enters a container opened in this context.
pub(crate) fn enter_cont(
    local: &Rc<Local>,
    pool: Arc<PoolHandle>,
    opened: Container,
) -> Result<Arc<ContHandle>> {
    let home = Some(local.ctx()?);
    let (info, mode): (ContInfo, OpenMode) = (opened.info().clone(), opened.mode());
    let (cookie, cont) = handle::add_with(|cookie| {
        Arc::new(ContHandle { cookie, pool, info, mode, at: Epoch::ZERO, home })
    })?;
    local.keep(cookie, Rc::new(opened));
    Ok(cont)
}

/// # Safety
/// `uuid`, `coh`, `dfs` are NULL or good for writing; `attr` as for [`Wanted::of`].
unsafe fn create_for_c(
    poh: daos_handle_t,
    label: Option<String>,
    attr: *const dfs_attr_t,
    uuid: *mut uuid_t,
    coh: *mut daos_handle_t,
    dfs: *mut *mut dfs_t,
) -> i32 {
    now(async |local| {
        if !dfs.is_null() && coh.is_null() {
            return Err(Error::inval("a mount needs a place for the container's handle"));
        }
        let pool = PoolHandle::of(poh).map_err(bad_handle)?;
        pool.require_writable()?;
        let mirror = pool.mirror(local)?;
        // SAFETY: the caller's promise.
        let mut wanted = unsafe { Wanted::of(attr, &mirror) }?;
        if let Some(label) = label {
            wanted.label = label;
        }
        let made = create(&mirror, wanted).await?;
        guard::User(uuid).set(*made.info().uuid.as_bytes());
        if coh.is_null() {
            return made.close().await;
        }
        let fs = match dfs.is_null() {
            true => None,
            false => {
                let how = MountFlags::NO_PERM_CHECK;
                Some(Dfs::mount(&made, how, credentials()).await?)
            }
        };
        let cont = enter_cont(local, pool, made)?;
        guard::User(coh).set(daos_handle_t { cookie: cont.cookie });
        if let Some(fs) = fs {
            let mount = MountHandle::give(local, cont, fs, libc::O_RDWR, Origin::Mounted).await?;
            guard::User(dfs).set(mount);
        }
        Ok(())
    })
}

/// Makes a container with an empty file system. `uuid` gets its UUID; `coh` (or NULL) the opened
/// container; `dfs` (or NULL) a mount of it. The label may be among `attr`'s properties.
///
/// # Safety
/// `uuid` is good for writing, `coh` and `dfs` too or NULL; `attr` is NULL or attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_cont_create(
    poh: daos_handle_t,
    uuid: *mut uuid_t,
    attr: *mut dfs_attr_t,
    coh: *mut daos_handle_t,
    dfs: *mut *mut dfs_t,
) -> i32 {
    if uuid.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: the caller's promise.
    unsafe { create_for_c(poh, None, attr, uuid, coh, dfs) }
}

/// [`dfs_cont_create`] with a label. `uuid` may be NULL. `EEXIST` when the label is taken.
///
/// # Safety
/// `label` is a C string; else as for [`dfs_cont_create`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_cont_create_with_label(
    poh: daos_handle_t,
    label: *const c_char,
    attr: *mut dfs_attr_t,
    uuid: *mut uuid_t,
    coh: *mut daos_handle_t,
    dfs: *mut *mut dfs_t,
) -> i32 {
    let checked = guard::catch(|| {
        // SAFETY: the caller's promise.
        let label = unsafe { guard::utf8(label) }?;
        types::limits::check_label(label)?;
        Ok(label.to_string())
    });
    match checked {
        // SAFETY: the caller's promise.
        Ok(label) => unsafe { create_for_c(poh, Some(label), attr, uuid, coh, dfs) },
        Err(error) => guard::told(Sign::Errno, &error),
    }
}

/// Opens a pool and a container by name and mounts the file system in it; with `O_CREAT` makes the
/// container if it is not there. Wants `dfs_init` (`EACCES`). Ends with `dfs_disconnect`.
///
/// # Safety
/// Names are C strings (`sys` may be NULL); `attr` is NULL or attributes; `dfs` is good for
/// writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_connect(
    pool: *const c_char,
    _sys: *const c_char,
    cont: *const c_char,
    flags: i32,
    attr: *mut dfs_attr_t,
    dfs: *mut *mut dfs_t,
) -> i32 {
    now(async |local| {
        if dfs.is_null() {
            return Err(guard::null());
        }
        // SAFETY: the caller's promise.
        let (pool, cont) = unsafe { (guard::utf8(pool)?, guard::utf8(cont)?) };
        require_init()?;
        let mode = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => OpenMode::ReadOnly,
            libc::O_RDWR => OpenMode::ReadWrite,
            _ => return Err(Error::inval("a mount is O_RDONLY or O_RDWR")),
        };
        let creates = flags & libc::O_CREAT != 0;
        let pool_mode = if creates { OpenMode::ReadWrite } else { mode };
        let opened = local.client.pool_open(&name_of(pool)?, pool_mode).await?;
        let of_pool = opened.clone();
        let connected = async {
            let made = if creates {
                // SAFETY: the caller's promise.
                let wanted = unsafe { Wanted::of(attr, &of_pool) }?;
                open_or_create(&of_pool, cont, mode, flags & libc::O_EXCL != 0, wanted).await?
            } else {
                of_pool.cont_open(&name_of(cont)?, mode).await?
            };
            let home = Some(local.ctx()?);
            let info = of_pool.info().clone();
            let (cookie, handle) = handle::add_with(|cookie| {
                Arc::new(PoolHandle { cookie, info, mode: pool_mode, home })
            })?;
            local.keep(cookie, Rc::new(of_pool.clone()));
            let entered = enter_cont(local, handle, made)?;
            let mounted = async {
                let how = mount_flags(flags, &entered)?;
                let cont = entered.mirror(local)?;
                let fs = match creates {
                    true => mount_or_format(&cont, how).await?,
                    false => Dfs::mount(&cont, how, credentials()).await?,
                };
                MountHandle::give(local, entered.clone(), fs, flags, Origin::Connected).await
            };
            match mounted.await {
                Ok(mount) => Ok(mount),
                Err(error) => {
                    close_cont(local, &entered).await;
                    let _ = handle::remove::<PoolHandle>(cookie);
                    local.forget(cookie);
                    Err(error)
                }
            }
        };
        match connected.await {
            // SAFETY: the caller's promise.
            Ok(mount) => unsafe { guard::put(dfs, mount) },
            Err(error) => {
                let _ = opened.close().await;
                Err(error)
            }
        }
    })
}

async fn close_cont(local: &Rc<Local>, cont: &ContHandle) {
    if handle::remove::<ContHandle>(cont.cookie).is_ok()
        && let Some(mirror) = local.mirrored::<Container>(cont.cookie)
    {
        let _ = (*mirror).clone().close().await;
        local.forget(cont.cookie);
    }
}

/// `O_CREAT`: of several processes that come here together one makes it, the others wait for it.
async fn open_or_create(
    pool: &Pool,
    cont: &str,
    mode: OpenMode,
    excl: bool,
    mut wanted: Wanted,
) -> Result<Container> {
    let name = name_of(cont)?;
    let env = pool.client().env().clone();
    let until = env.now() + CREATION_WAIT_MAX;
    let mut pause = CREATION_PAUSE_MIN;
    let mut made_here = false;
    loop {
        let failed = match excl && !made_here {
            true => Error::from(Code::NonExist),
            false => match pool.cont_open(&name, mode).await {
                Err(error) => error,
                opened => return opened,
            },
        };
        match failed.code {
            Code::NonExist => {
                let Name::Label(label) = &name else {
                    let text = "a container is made by label, not by UUID";
                    return Err(Error::new(Code::NonExist, text));
                };
                wanted.label = label.clone();
                match create(pool, wanted.clone()).await {
                    Ok(made) if mode == OpenMode::ReadWrite => return Ok(made),
                    Ok(made) => {
                        made_here = true;
                        made.close().await?;
                    }
                    Err(error) if error.code == Code::Exist && !excl => {}
                    Err(error) => return Err(error),
                }
            }
            // Somebody is making it.
            Code::Busy if env.now() < until => {
                env.sleep(pause).await;
                pause = (pause * 2).min(CREATION_PAUSE_MAX);
            }
            _ => return Err(failed),
        }
    }
}

/// Connects to a container and mounts what a snapshot of it shows, to read only: `flags` is
/// `O_RDONLY`. The snapshot is of this epoch or, when that is 0, of this name. Ends with
/// `dfs_disconnect`. `ENOENT` when there is no such snapshot.
///
/// # Safety
/// Names are C strings (`sys` and `name` may be NULL); `dfs` is NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_connect_snap(
    pool: *const c_char,
    sys: *const c_char,
    cont: *const c_char,
    flags: i32,
    epoch: u64,
    name: *const c_char,
    dfs: *mut *mut dfs_t,
) -> i32 {
    if flags & (libc::O_ACCMODE | libc::O_CREAT) != libc::O_RDONLY {
        return guard::posix(|| Err(Error::inval("a snapshot is mounted O_RDONLY")));
    }
    let mut present = std::ptr::null_mut();
    // SAFETY: the caller's promise; no attributes are needed without O_CREAT.
    let connected =
        unsafe { dfs_connect(pool, sys, cont, flags, std::ptr::null_mut(), &raw mut present) };
    if connected != 0 {
        return connected;
    }
    let mounted = now(async |local| {
        if dfs.is_null() {
            return Err(guard::null());
        }
        let base = MountHandle::of(present)?;
        // SAFETY: the caller's promise.
        let shown = unsafe { super::mount::snapshot_of(&base.cont, local, epoch, name) }.await?;
        let mount = super::mount::mount_shown(local, shown, flags, Origin::Connected).await?;
        // What the present was reached through is the snapshot's now.
        MountHandle::of(mount)?.take_over(&base.cont);
        // SAFETY: the caller's promise.
        unsafe { guard::put(dfs, mount) }
    });
    if mounted != 0 {
        // SAFETY: a number.
        unsafe { dfs_disconnect(present) };
        return mounted;
    }
    // The present is of no use any more. Not above: the thread's context was in use there.
    guard::posix(|| end(present).map(|_| ()))
}

/// Ends a mount of `dfs_connect` or `dfs_global2local_all`, and closes what was opened for it.
///
/// # Safety
/// None is needed: `dfs` is a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_disconnect(dfs: *mut dfs_t) -> i32 {
    guard::posix(|| {
        if MountHandle::of(dfs)?.origin != Origin::Connected {
            return Err(Error::inval("this mount ends with dfs_umount"));
        }
        let mount = end(dfs)?;
        let base = mount.base().unwrap_or_else(|| mount.cont.clone());
        let closed = crate::cont::close(base.cookie);
        let disconnected = crate::pool::close(base.pool.cookie);
        closed.and(disconnected)
    })
}

/// Removes a container by name; one that is open only with `force`. Wants `dfs_init`.
///
/// # Safety
/// Names are C strings (`sys` may be NULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_destroy(
    pool: *const c_char,
    _sys: *const c_char,
    cont: *const c_char,
    force: i32,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        // SAFETY: the caller's promise.
        let (pool, cont) = unsafe { (guard::utf8(pool)?, guard::utf8(cont)?) };
        require_init()?;
        Ok((name_of(pool)?, name_of(cont)?))
    });
    let (pool, cont) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return guard::told(Sign::Errno, &error),
    };
    launch(ev, Sign::Errno, move |local| async move {
        let pool = local.client.pool_open(&pool, OpenMode::ReadWrite).await?;
        let destroyed = pool.cont_destroy(cont, force != 0).await;
        pool.close().await?;
        destroyed
    })
}

/// The mount's pool, to be given back with `dfs_pool_put`.
///
/// # Safety
/// `poh` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_pool_get(dfs: *mut dfs_t, poh: *mut daos_handle_t) -> i32 {
    guard::posix(|| {
        let cookie = MountHandle::of(dfs)?.cont.pool.cookie;
        // SAFETY: the caller's promise.
        unsafe { guard::put(poh, daos_handle_t { cookie }) }
    })
}

/// Gives back what `dfs_pool_get` gave; the pool stays open as long as the mount needs it.
///
/// # Safety
/// None is needed: handles are numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_pool_put(dfs: *mut dfs_t, poh: daos_handle_t) -> i32 {
    guard::posix(|| same(MountHandle::of(dfs)?.cont.pool.cookie, poh))
}

/// The mount's container, to be given back with `dfs_cont_put`.
///
/// # Safety
/// `coh` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_cont_get(dfs: *mut dfs_t, coh: *mut daos_handle_t) -> i32 {
    guard::posix(|| {
        let cookie = MountHandle::of(dfs)?.cont.cookie;
        // SAFETY: the caller's promise.
        unsafe { guard::put(coh, daos_handle_t { cookie }) }
    })
}

/// Gives back what `dfs_cont_get` gave; the container stays open as long as the mount needs it.
///
/// # Safety
/// None is needed: handles are numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_cont_put(dfs: *mut dfs_t, coh: daos_handle_t) -> i32 {
    guard::posix(|| same(MountHandle::of(dfs)?.cont.cookie, coh))
}

fn same(cookie: u64, given: daos_handle_t) -> Result<()> {
    if cookie == given.cookie { Ok(()) } else { Err(Error::inval("the handle is not the mount's")) }
}
