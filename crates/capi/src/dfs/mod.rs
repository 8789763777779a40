//! Files: `dfs_*`, over the crate that holds the POSIX namespace.
//!
//! A `dfs_t *`, `dfs_obj_t *`, `dfs_sys_t *` or `dfs_pipeline_t *` is a number of the handle table
//! in the shape of a pointer. A mount ([`mount`]) and an open object ([`obj`]) are plain data any
//! thread may use; each context makes itself a mirror of them without asking anybody.
//!
//! Invariants:
//! - Opening a file that exists and releasing it costs one round trip.
//! - What the servers count as open is given back by the context that opened it, with its next
//!   request.
//! - Errors are `errno`s. As with DAOS, a change through something opened or mounted for reading
//!   only is `EPERM`, and a handle that is not one is `EINVAL`.
//!
//! As with DAOS, opening checks no permission bits of files: who may open the container may use all
//! of it. `dfs_access` tells what the bits say.

pub mod attr;
pub mod check;
mod class;
pub mod cont;
pub mod dir;
pub mod global;
pub mod info;
pub mod io;
pub mod lookup;
pub mod mount;
pub mod names;
pub mod obj;
pub mod pipeline;
pub mod sys;
pub mod xattr;

use crate::ctx::{Ctx, Local};
use crate::guard;
use ::dfs::{CreateOptions, Dfs, OpenFlags};
use std::rc::Rc;
use types::{Code, Error, Result};

/// A mounted file system, as C names it.
#[allow(non_camel_case_types)]
pub enum dfs_t {}

/// An open file, directory or symbolic link, as C names it.
#[allow(non_camel_case_types)]
pub enum dfs_obj_t {}

/// The pointer C gets for a handle.
pub(crate) fn pointer_of<T>(cookie: u64) -> *mut T {
    std::ptr::without_provenance_mut(cookie as usize)
}

/// The handle behind a pointer of C's.
pub(crate) fn cookie_of<T>(pointer: *const T) -> u64 {
    pointer.addr() as u64
}

/// A handle that is not one is a bad argument to `dfs_*`.
pub(crate) fn bad_handle(error: Error) -> Error {
    Error::new(Code::Inval, error.text)
}

/// What DAOS callers expect where POSIX, through descriptors, says something else.
pub(crate) fn as_daos(error: Error) -> Error {
    match error.code {
        Code::ReadOnly | Code::BadHandle => Error::new(Code::NoPerm, error.text),
        _ => error,
    }
}

/// Runs an operation to its end in this thread's context.
pub(crate) fn wait<T>(op: impl AsyncFnOnce(&Rc<Local>) -> Result<T>) -> Result<T> {
    let ctx = Ctx::of_thread()?;
    let held = ctx.lock();
    let local = held.local().clone();
    let result = local.client.block_on(op(&local));
    drop(local);
    result.map_err(as_daos)
}

/// The body of a function without an event: 0 or an `errno`.
#[track_caller]
pub(crate) fn now(op: impl AsyncFnOnce(&Rc<Local>) -> Result<()>) -> i32 {
    guard::posix(|| wait(op))
}

/// How to open, from the `O_*` bits of `fcntl.h`. Bits that only descriptors have a use for
/// (`O_CLOEXEC` and the like) mean nothing here; `NotSupported` for `O_APPEND`, since writes name their
/// place. Whoever may write may read.
pub(crate) fn open_flags(bits: i32) -> Result<OpenFlags> {
    if bits & libc::O_APPEND != 0 {
        let text = "O_APPEND: writes say where, there is no end to add to";
        return Err(Error::new(Code::NotSupported, text));
    }
    let mut flags = match bits & libc::O_ACCMODE {
        libc::O_RDONLY => OpenFlags::READ,
        libc::O_RDWR | libc::O_WRONLY => OpenFlags::READ_WRITE,
        _ => return Err(Error::inval(format!("the flags {bits:#o} have no access mode"))),
    };
    for (bit, flag) in [
        (libc::O_CREAT, OpenFlags::CREATE),
        (libc::O_EXCL, OpenFlags::EXCL),
        (libc::O_TRUNC, OpenFlags::TRUNC),
        (libc::O_DIRECTORY, OpenFlags::DIRECTORY),
        (libc::O_NOFOLLOW, OpenFlags::NOFOLLOW),
    ] {
        if bits & bit != 0 {
            flags = flags | flag;
        }
    }
    Ok(flags)
}

/// A chunk size as the store has it: rounded up to whole blocks of 4 KiB. 0 stays 0.
pub(crate) fn chunk_of(bytes: u64) -> Result<u64> {
    let whole = bytes.checked_next_multiple_of(4096).unwrap_or(u64::MAX);
    if whole > 0 {
        types::props::check_chunk_bytes(whole)?;
    }
    Ok(whole)
}

/// Class and chunk size for something new.
pub(crate) fn create_options(fs: &Dfs, class: u32, chunk_bytes: u64) -> Result<CreateOptions> {
    Ok(CreateOptions {
        class: class::of_id(class, fs.container().pool())?,
        chunk_bytes: chunk_of(chunk_bytes)?,
    })
}
