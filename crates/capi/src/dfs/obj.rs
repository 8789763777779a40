//! Open objects.

use super::mount::{Follower, Known, MountHandle, MountMirror};
use super::{bad_handle, cookie_of, dfs_obj_t, dfs_t, pointer_of};
use crate::ctx::{Ctx, Local};
use crate::{guard, handle};
use ::dfs::{Dfs, FileKind, Obj, SharedObj};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use types::{Error, Result};

/// An open file, directory or symbolic link.
pub struct ObjHandle {
    /// Its own number.
    pub cookie: u64,
    /// The mount it was opened in.
    pub mount: Arc<MountHandle>,
    known: Known,
    /// The context whose mirror the servers count.
    home: Arc<Ctx>,
    /// Parts the directory was last split into; 0: never.
    pub(crate) parts: AtomicU32,
}

/// An open object as a context sees it.
struct ObjMirror {
    // Before the mount: the object gives back through it what the servers count.
    follower: Follower,
    mount: Rc<MountMirror>,
}

/// An object and its file system, in a context.
pub(crate) struct Here {
    pub fs: Dfs,
    pub obj: Obj,
    pub handle: Arc<ObjHandle>,
}

impl Here {
    /// Tells other contexts what is known of the object now.
    pub fn publish(&self) {
        self.handle.known.set(self.obj.share());
    }
}

impl ObjHandle {
    /// The open object behind a pointer of C's. `Inval` when it is none, or not any more.
    pub fn of(pointer: *const dfs_obj_t) -> Result<Arc<ObjHandle>> {
        handle::get(cookie_of(pointer)).map_err(bad_handle)
    }

    /// The same, opened in this mount, which is still there.
    pub fn of_mount(dfs: *const dfs_t, pointer: *const dfs_obj_t) -> Result<Arc<ObjHandle>> {
        let found = ObjHandle::of(pointer)?;
        if found.mount.cookie != cookie_of(dfs) || !handle::is_live(found.mount.cookie) {
            return Err(Error::inval("the object was opened in another mount, or one that ended"));
        }
        Ok(found)
    }

    /// What is known of it.
    pub fn shared(&self) -> SharedObj {
        self.known.get()
    }

    /// What kind of object it is.
    pub fn kind(&self) -> FileKind {
        self.known.kind()
    }

    /// The object in a context.
    pub(crate) fn here(self: Arc<Self>, local: &Local) -> Result<Here> {
        let mirror = local.mirror(self.cookie, || {
            let mount = self.mount.mirror(local)?;
            let follower = Follower::attach(&mount.fs, &self.known);
            Ok(ObjMirror { follower, mount })
        })?;
        let fs = mirror.mount.fs.clone();
        let obj = mirror.follower.follow(&fs, &self.known);
        Ok(Here { fs, obj, handle: self })
    }

    /// Enters an object opened in this context, and gives it to C.
    pub(crate) fn give(
        local: &Rc<Local>,
        mount: &Arc<MountHandle>,
        obj: Obj,
        out: *mut *mut dfs_obj_t,
    ) -> Result<()> {
        let home = local.ctx()?;
        let known = Known::new(obj.share());
        let (cookie, opened) = handle::add_with(|cookie| {
            let mount = mount.clone();
            Arc::new(ObjHandle { cookie, mount, known, home, parts: AtomicU32::new(0) })
        })?;
        let mount = mount.mirror(local)?;
        let follower = Follower::of(obj, &opened.known);
        local.keep(cookie, Rc::new(ObjMirror { follower, mount }));
        // SAFETY: the function that opened it checked the pointer, or does not care.
        unsafe { guard::put(out, pointer_of(cookie)) }
    }

    /// True when this context holds what the servers count.
    pub(crate) fn is_home(&self, local: &Local) -> bool {
        local.ctx().is_ok_and(|ctx| Arc::ptr_eq(&ctx, &self.home))
    }
}

/// A directory given as a parent; NULL is the root.
pub(crate) fn parent_of(
    local: &Local,
    dfs: *const dfs_t,
    parent: *const dfs_obj_t,
) -> Result<(Arc<MountHandle>, Dfs, Obj)> {
    if parent.is_null() {
        let mount = MountHandle::of(dfs)?;
        let mirror = mount.mirror(local)?;
        let root = mount.root(&mirror);
        return Ok((mount, mirror.fs.clone(), root));
    }
    let here = ObjHandle::of_mount(dfs, parent)?.here(local)?;
    Ok((here.handle.mount.clone(), here.fs, here.obj))
}

/// Closes an object. The file goes when it has no name any more and this was the last handle.
///
/// # Safety
/// None is needed: `obj` is a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_release(obj: *mut dfs_obj_t) -> i32 {
    guard::posix(|| release(obj))
}

/// [`dfs_release`].
pub(crate) fn release(obj: *mut dfs_obj_t) -> Result<()> {
    let closed = handle::remove::<ObjHandle>(cookie_of(obj)).map_err(bad_handle)?;
    if closed.home.is_current() {
        let cookie = closed.cookie;
        let elsewhere = Ctx::of_thread().is_ok_and(|ctx| !Arc::ptr_eq(&ctx, &closed.home));
        closed.home.defer(move |local| {
            local.forget(cookie);
            // Its own thread may have no further request to tell it with.
            if elsewhere {
                local.client.flush();
            }
        });
    }
    Ok(())
}
