//! Mounts.

use super::{bad_handle, class, cookie_of, dfs_t, now, pointer_of};
use crate::cont::ContHandle;
use crate::ctx::Local;
use crate::ctypes::{DAOS_CONT_HINT_MAX_LEN, daos_handle_t, dfs_attr_t};
use crate::pool::PoolHandle;
use crate::{guard, handle};
use ::dfs::{Credentials, Dfs, FileKind, MountFlags, Obj, SharedObj};
use parking_lot::Mutex;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use types::{Code, Epoch, Error, Result};
use wire::control::OpenMode;

/// `DFS_BALANCED`.
pub(crate) const BALANCED: i32 = 4;

/// Plain data of an object, that threads change and contexts follow.
pub(crate) struct Known {
    version: AtomicU64,
    data: Mutex<SharedObj>,
}

impl Known {
    pub fn new(data: SharedObj) -> Known {
        Known { version: AtomicU64::new(0), data: Mutex::new(data) }
    }

    pub fn get(&self) -> SharedObj {
        self.data.lock().clone()
    }

    /// What kind of object it is; without a copy, for every read and write asks.
    pub fn kind(&self) -> FileKind {
        self.data.lock().kind()
    }

    /// Changes what is known; other contexts see it when they next look.
    pub fn set(&self, data: SharedObj) {
        *self.data.lock() = data;
        self.version.fetch_add(1, Ordering::Release);
    }
}

/// A context's object made from plain data, and the version it was made or renewed from.
pub(crate) struct Follower {
    obj: Obj,
    version: Cell<u64>,
}

impl Follower {
    /// For an object this context has just opened.
    pub fn of(obj: Obj, known: &Known) -> Follower {
        Follower { obj, version: Cell::new(known.version.load(Ordering::Acquire)) }
    }

    /// From plain data; asks nobody.
    pub fn attach(fs: &Dfs, known: &Known) -> Follower {
        let version = known.version.load(Ordering::Acquire);
        Follower { obj: fs.attach(&known.get()), version: Cell::new(version) }
    }

    /// The object, up to date with what other threads of this process did.
    pub fn follow(&self, fs: &Dfs, known: &Known) -> Obj {
        let version = known.version.load(Ordering::Acquire);
        if version != self.version.get() {
            fs.refresh(&self.obj, &known.get());
            self.version.set(version);
        }
        self.obj.clone()
    }
}

/// How a mount came about, and so how it is to be ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// Pool and container are the caller's: `dfs_umount`.
    Mounted,
    /// They were opened with it: `dfs_disconnect`.
    Connected,
}

/// A mounted file system.
pub struct MountHandle {
    /// Its own number.
    pub cookie: u64,
    pub cont: Arc<ContHandle>,
    /// As `Dfs::to_global` has it.
    pub(crate) raw: Vec<u8>,
    pub(crate) root: Known,
    /// `DFS_BALANCED` or `DFS_RELAXED`, as given; everything is balanced.
    pub(crate) mode: i32,
    pub(crate) read_only: bool,
    pub(crate) origin: Origin,
    /// What was opened for the mount of a snapshot, to be closed with it.
    base: Mutex<Option<Arc<ContHandle>>>,
    prefix: Mutex<Vec<u8>>,
    prefix_version: AtomicU64,
}

/// A mount as a context sees it.
pub struct MountMirror {
    pub fs: Dfs,
    root: Follower,
    prefix_version: Cell<u64>,
}

impl MountHandle {
    /// The mount behind a pointer of C's. `Inval` when it is none, or not any more.
    pub fn of(pointer: *const dfs_t) -> Result<Arc<MountHandle>> {
        handle::get(cookie_of(pointer)).map_err(bad_handle)
    }

    /// The mount as a context sees it.
    pub fn mirror(&self, local: &Local) -> Result<Rc<MountMirror>> {
        let mirror = match local.mirrored::<MountMirror>(self.cookie) {
            Some(mirror) => mirror,
            None => {
                let cont = self.cont.mirror(local)?;
                let fs = Dfs::from_global(&cont, &self.raw, credentials())?;
                let root = Follower::attach(&fs, &self.root);
                let mirror = Rc::new(MountMirror { fs, root, prefix_version: Cell::new(0) });
                local.keep(self.cookie, mirror.clone());
                mirror
            }
        };
        let version = self.prefix_version.load(Ordering::Acquire);
        if mirror.prefix_version.get() != version {
            mirror.fs.set_prefix(&self.prefix.lock())?;
            mirror.prefix_version.set(version);
        }
        Ok(mirror)
    }

    /// The root directory in a context.
    pub fn root(&self, mirror: &MountMirror) -> Obj {
        mirror.root.follow(&mirror.fs, &self.root)
    }

    /// Enters a mount made in this context, and gives it to C.
    pub(crate) async fn give(
        local: &Rc<Local>,
        cont: Arc<ContHandle>,
        fs: Dfs,
        mode: i32,
        origin: Origin,
    ) -> Result<*mut dfs_t> {
        let root = fs.root().await?;
        MountHandle::give_known(local, cont, fs, root, mode, origin)
    }

    /// [`MountHandle::give`] with the root known already.
    pub(crate) fn give_known(
        local: &Rc<Local>,
        cont: Arc<ContHandle>,
        fs: Dfs,
        root: Obj,
        mode: i32,
        origin: Origin,
    ) -> Result<*mut dfs_t> {
        let known = Known::new(root.share());
        let (cookie, mount) = handle::add_with(|cookie| {
            Arc::new(MountHandle {
                cookie,
                cont,
                raw: fs.to_global(),
                root: known,
                mode: mode & BALANCED,
                read_only: fs.flags().has(MountFlags::READ_ONLY),
                origin,
                base: Mutex::default(),
                prefix: Mutex::default(),
                prefix_version: AtomicU64::new(0),
            })
        })?;
        let root = Follower::of(root, &mount.root);
        local.keep(cookie, Rc::new(MountMirror { fs, root, prefix_version: Cell::new(0) }));
        Ok(pointer_of(cookie))
    }

    /// A container that this mount is now to close.
    pub(crate) fn take_over(&self, base: &Arc<ContHandle>) {
        *self.base.lock() = Some(base.clone());
    }

    /// The container that goes with this mount and is not the one it shows.
    pub(crate) fn base(&self) -> Option<Arc<ContHandle>> {
        self.base.lock().clone()
    }

    pub(crate) fn set_prefix(&self, prefix: &[u8]) {
        *self.prefix.lock() = prefix.to_vec();
        self.prefix_version.fetch_add(1, Ordering::Release);
    }
}

/// Who is calling: owner of what is made. Modes are stored as given, without a umask.
pub(crate) fn credentials() -> Credentials {
    // SAFETY: these calls cannot fail and touch no memory.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    Credentials::new(uid, gid)
}

/// The flags of a mount on a container, from those of C. `NoPerm` for writing where the container
/// was opened for reading only.
pub(crate) fn mount_flags(flags: i32, cont: &ContHandle) -> Result<MountFlags> {
    let trusting = MountFlags::NO_PERM_CHECK;
    match flags & libc::O_ACCMODE {
        libc::O_RDONLY => Ok(trusting | MountFlags::READ_ONLY),
        libc::O_RDWR if cont.mode == OpenMode::ReadOnly => {
            Err(Error::new(Code::NoPerm, "the container was opened read-only"))
        }
        libc::O_RDWR => Ok(trusting),
        _ => Err(Error::inval("a mount is O_RDONLY or O_RDWR")),
    }
}

/// Mounts the file system of an open container. Errors: `EINVAL` for a container that is no
/// POSIX one, `ENOENT` for one that was never formatted, `EPERM` for `O_RDWR` on a container
/// opened read-only.
///
/// # Safety
/// `dfs` is NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_mount(
    poh: daos_handle_t,
    coh: daos_handle_t,
    flags: i32,
    dfs: *mut *mut dfs_t,
) -> i32 {
    now(async |local| {
        if dfs.is_null() {
            return Err(guard::null());
        }
        PoolHandle::of(poh).map_err(bad_handle)?;
        let cont = ContHandle::of(coh).map_err(bad_handle)?;
        let how = mount_flags(flags, &cont)?;
        let fs = Dfs::mount(&*cont.mirror(local)?, how, credentials()).await?;
        let mount = MountHandle::give(local, cont, fs, flags, Origin::Mounted).await?;
        // SAFETY: the caller's promise.
        unsafe { guard::put(dfs, mount) }
    })
}

/// Mounts what a snapshot shows, to read only: `flags` is `O_RDONLY`. The snapshot is of this
/// epoch or, when that is 0, of this name. `ENOENT` when there is none.
///
/// # Safety
/// `name` is NULL or a C string; `dfs` is NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_mount_snap(
    poh: daos_handle_t,
    coh: daos_handle_t,
    flags: i32,
    epoch: u64,
    name: *const libc::c_char,
    dfs: *mut *mut dfs_t,
) -> i32 {
    now(async |local| {
        if dfs.is_null() {
            return Err(guard::null());
        }
        if flags & libc::O_ACCMODE != libc::O_RDONLY {
            return Err(Error::inval("a snapshot is mounted O_RDONLY"));
        }
        PoolHandle::of(poh).map_err(bad_handle)?;
        let cont = ContHandle::of(coh).map_err(bad_handle)?;
        // SAFETY: the caller's promise.
        let shown = unsafe { snapshot_of(&cont, local, epoch, name) }.await?;
        let mount = mount_shown(local, shown, flags, Origin::Mounted).await?;
        // SAFETY: the caller's promise.
        unsafe { guard::put(dfs, mount) }
    })
}

/// The container as a snapshot shows it.
///
/// # Safety
/// `name` is NULL or a C string.
pub(crate) async unsafe fn snapshot_of(
    cont: &ContHandle,
    local: &Rc<Local>,
    epoch: u64,
    name: *const libc::c_char,
) -> Result<Arc<ContHandle>> {
    let name = match name.is_null() {
        true => None,
        // SAFETY: the caller's promise.
        false => Some(unsafe { guard::utf8(name) }?),
    };
    crate::snap::at_snapshot(cont, local, epoch, name).await
}

/// Mounts a container that shows a snapshot; takes it out of the table when that fails.
pub(crate) async fn mount_shown(
    local: &Rc<Local>,
    shown: Arc<ContHandle>,
    flags: i32,
    origin: Origin,
) -> Result<*mut dfs_t> {
    let mounted = async {
        let how = MountFlags::NO_PERM_CHECK | MountFlags::READ_ONLY;
        let fs = Dfs::mount(&*shown.mirror(local)?, how, credentials()).await?;
        MountHandle::give(local, shown.clone(), fs, flags, origin).await
    };
    let outcome = mounted.await;
    if outcome.is_err() {
        let _ = handle::remove::<ContHandle>(shown.cookie);
        local.forget(shown.cookie);
    }
    outcome
}

/// Ends a mount. Objects still open in it are of no more use but to be released. `EBUSY` for a
/// mount of `dfs_connect`.
///
/// # Safety
/// None is needed: `dfs` is a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_umount(dfs: *mut dfs_t) -> i32 {
    guard::posix(|| {
        if MountHandle::of(dfs)?.origin == Origin::Connected {
            return Err(Error::new(Code::Busy, "this mount ends with dfs_disconnect"));
        }
        end(dfs).map(|_| ())
    })
}

/// Takes a mount out of the table.
pub(crate) fn end(dfs: *mut dfs_t) -> Result<Arc<MountHandle>> {
    let mount = handle::remove::<MountHandle>(cookie_of(dfs)).map_err(bad_handle)?;
    let shows_snapshot = mount.cont.at != Epoch::ZERO;
    if shows_snapshot {
        // Nobody else knows of it.
        handle::remove::<ContHandle>(mount.cont.cookie).map_err(bad_handle)?;
    }
    super::wait(async |local| {
        local.forget(mount.cookie);
        if shows_snapshot {
            local.forget(mount.cont.cookie);
        }
        local.client.flush();
        Ok(())
    })?;
    Ok(mount)
}

/// Paths given to `dfs_lookup` lose this prefix first. NULL: none.
///
/// # Safety
/// `prefix` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_set_prefix(dfs: *mut dfs_t, prefix: *const libc::c_char) -> i32 {
    guard::posix(|| {
        let mount = MountHandle::of(dfs)?;
        if prefix.is_null() {
            mount.set_prefix(b"");
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let prefix = unsafe { guard::text(prefix) }?;
        if prefix.first() != Some(&b'/') || prefix.len() >= types::limits::PATH_BYTES_MAX {
            return Err(Error::inval("a prefix must be an absolute path"));
        }
        mount.set_prefix(prefix);
        Ok(())
    })
}

/// Returns when all that was written before is as durable as the pool promises: writes are, when
/// they return; what is held back (closed files) is sent.
///
/// # Safety
/// None is needed: `dfs` is a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_sync(dfs: *mut dfs_t) -> i32 {
    now(async |local| {
        let mount = MountHandle::of(dfs)?;
        if mount.read_only {
            return Err(Error::bare(Code::NoPerm));
        }
        mount.mirror(local)?.fs.sync();
        Ok(())
    })
}

/// What was fixed when the file system was made. `da_props` is left as it is.
///
/// # Safety
/// `attr` is NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_query(dfs: *mut dfs_t, attr: *mut dfs_attr_t) -> i32 {
    now(async |local| {
        let mount = MountHandle::of(dfs)?;
        // SAFETY: the caller's promise.
        let attr = unsafe { attr.as_mut() }.ok_or_else(guard::null)?;
        let mirror = mount.mirror(local)?;
        let superblock = mirror.fs.superblock();
        attr.da_id = 0;
        attr.da_chunk_size = superblock.chunk_bytes as u64;
        attr.da_oclass_id = class::id_of(mount.cont.info.props.oclass);
        attr.da_mode = mount.mode as u32;
        attr.da_dir_oclass_id = class::id_of(superblock.dir_class);
        attr.da_file_oclass_id = class::id_of(superblock.file_class);
        attr.da_hints = [0; DAOS_CONT_HINT_MAX_LEN];
        Ok(())
    })
}
