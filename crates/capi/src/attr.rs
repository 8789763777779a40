//! User attributes of pools and containers: names and bytes that mean nothing to us.
//!
//! Names that begin with [`RESERVED`] are the library's own: they are not listed, not found, and
//! cannot be set.

use crate::cont::ContHandle;
use crate::ctx::Local;
use crate::ctypes::{daos_event_t, daos_handle_t};
use crate::errno::Sign;
use crate::event::{fail, launch};
use crate::guard::{self, User};
use crate::pool::PoolHandle;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use types::{Code, Error, Result};
use wire::control::{ControlReply, ControlRequest, Name, Subject};

/// How the names of the library's own attributes begin.
const RESERVED: &str = "azekura.c.";

/// All attributes of a pool or container, the library's own among them.
pub(crate) async fn read(local: &Local, subject: Subject) -> Result<BTreeMap<String, Vec<u8>>> {
    match local.client.control(&ControlRequest::GetAttrs { subject }).await? {
        ControlReply::Attrs(attrs) => Ok(attrs),
        _ => Err(Error::new(Code::Proto, "the control service gave no attributes")),
    }
}

/// Changes attributes, all or none; `None` removes one.
pub(crate) async fn change(
    local: &Local,
    subject: Subject,
    attrs: BTreeMap<String, Option<Vec<u8>>>,
) -> Result<()> {
    local.client.control(&ControlRequest::SetAttrs { subject, attrs }).await.map(|_| ())
}

/// A container as requests to the control service name it.
pub(crate) fn cont_subject(cont: &ContHandle) -> Subject {
    Subject::Cont(Name::Uuid(cont.pool.info.uuid), Name::Uuid(cont.info.uuid))
}

fn pool_subject(pool: &PoolHandle) -> Subject {
    Subject::Pool(Name::Uuid(pool.info.uuid))
}

fn pool_of(poh: daos_handle_t, writes: bool) -> Result<Subject> {
    let pool = PoolHandle::of(poh)?;
    if writes {
        pool.require_writable()?;
    }
    Ok(pool_subject(&pool))
}

fn cont_of(coh: daos_handle_t, writes: bool) -> Result<Subject> {
    let cont = ContHandle::of(coh)?;
    if writes {
        cont.require_writable()?;
    }
    Ok(cont_subject(&cont))
}

/// # Safety
/// `names` holds `n` C strings.
unsafe fn names_of(n: c_int, names: *const *const c_char) -> Result<Vec<String>> {
    let count = usize::try_from(n).ok().filter(|count| *count > 0);
    let count = count.ok_or_else(|| Error::inval("at least one attribute must be named"))?;
    if names.is_null() {
        return Err(guard::null());
    }
    let named = (0..count).map(|at| {
        // SAFETY: the caller's promise.
        let name = unsafe { guard::utf8(*names.add(at)) }?;
        if name.is_empty() {
            return Err(Error::inval("an attribute's name is empty"));
        }
        Ok(name.to_string())
    });
    named.collect()
}

fn refuse_reserved(names: &[String]) -> Result<()> {
    match names.iter().find(|name| name.starts_with(RESERVED)) {
        Some(name) => Err(Error::inval(format!("names like '{name}' are kept for the library"))),
        None => Ok(()),
    }
}

/// # Safety
/// `buffer` is NULL or good for writing `*size` bytes, `size` for reading and writing.
unsafe fn list(
    subject: Result<Subject>,
    buffer: *mut c_char,
    size: *mut usize,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        // SAFETY: the caller's promise.
        let room = *unsafe { guard::get(size) }?;
        Ok((subject?, if buffer.is_null() { 0 } else { room }))
    });
    let (subject, room) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let (buffer, size) = (User(buffer.cast::<u8>()), User(size));
    launch(ev, Sign::Der, move |local| async move {
        let attrs = read(&local, subject).await?;
        let (mut total, mut at) = (0, 0);
        let mut names: Vec<&String> = attrs.keys().collect();
        names.retain(|name| !name.starts_with(RESERVED));
        // In little room there are then as many as can be.
        names.sort_by_key(|name| name.len());
        for name in names {
            let bytes = name.len() + 1;
            total += bytes;
            if at + bytes <= room {
                // SAFETY: the room is the caller's until completion, and long enough.
                unsafe {
                    std::ptr::copy_nonoverlapping(name.as_ptr(), buffer.0.add(at), name.len());
                    buffer.0.add(at + name.len()).write(0);
                }
                at += bytes;
            }
        }
        size.set(total);
        Ok(())
    })
}

/// # Safety
/// `names`, `buffers` (or NULL) and `sizes` hold `n` entries; each buffer (or NULL) is as long as
/// its size says.
unsafe fn get(
    subject: Result<Subject>,
    n: c_int,
    names: *const *const c_char,
    buffers: *const *mut c_void,
    sizes: *mut usize,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        // SAFETY: the caller's promise.
        let names = unsafe { names_of(n, names) }?;
        if sizes.is_null() { Err(guard::null()) } else { Ok((subject?, names)) }
    });
    let (subject, names) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let (buffers, sizes) = (User(buffers.cast_mut()), User(sizes));
    launch(ev, Sign::Der, move |local| async move {
        let attrs = read(&local, subject).await?;
        for (at, name) in names.iter().enumerate() {
            let found = attrs.get(name).filter(|_| !name.starts_with(RESERVED));
            let value = found.map_or(&[][..], |value| value);
            // SAFETY: `at` is below `n`; the memory is the caller's until completion.
            unsafe {
                let size = &mut *sizes.0.add(at);
                let buffer = if buffers.0.is_null() {
                    std::ptr::null_mut()
                } else {
                    buffers.0.add(at).read()
                };
                if !buffer.is_null() {
                    let bytes = value.len().min(*size);
                    std::ptr::copy_nonoverlapping(value.as_ptr(), buffer.cast::<u8>(), bytes);
                }
                *size = value.len();
            }
        }
        Ok(())
    })
}

/// # Safety
/// `names`, `values` and `sizes` hold `n` entries; each value is as long as its size says.
unsafe fn set(
    subject: Result<Subject>,
    n: c_int,
    names: *const *const c_char,
    values: *const *const c_void,
    sizes: *const usize,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        // SAFETY: the caller's promise.
        let names = unsafe { names_of(n, names) }?;
        refuse_reserved(&names)?;
        if values.is_null() || sizes.is_null() {
            return Err(guard::null());
        }
        let mut attrs = BTreeMap::new();
        for (at, name) in names.into_iter().enumerate() {
            // SAFETY: `at` is below `n`, and the caller's promise.
            let (value, bytes) = unsafe { (*values.add(at), *sizes.add(at)) };
            if value.is_null() || bytes > isize::MAX as usize {
                return Err(guard::null());
            }
            // SAFETY: not NULL, and the caller's promise.
            let value = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), bytes) };
            attrs.insert(name, Some(value.to_vec()));
        }
        Ok((subject?, attrs))
    });
    let (subject, attrs) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    launch(ev, Sign::Der, move |local| async move { change(&local, subject, attrs).await })
}

/// # Safety
/// `names` holds `n` C strings.
unsafe fn del(
    subject: Result<Subject>,
    n: c_int,
    names: *const *const c_char,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        // SAFETY: the caller's promise.
        let names = unsafe { names_of(n, names) }?;
        refuse_reserved(&names)?;
        Ok((subject?, names))
    });
    let (subject, names) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    launch(ev, Sign::Der, move |local| async move {
        let there = read(&local, subject.clone()).await?;
        let gone = names.into_iter().filter(|name| there.contains_key(name));
        change(&local, subject, gone.map(|name| (name, None)).collect()).await
    })
}

/// Names of a pool's attributes, each with a NUL at its end, as many whole ones as fit into
/// `*size` bytes. `*size` becomes the bytes of all.
///
/// # Safety
/// `buffer` is NULL or good for writing `*size` bytes until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_pool_list_attr(
    poh: daos_handle_t,
    buffer: *mut c_char,
    size: *mut usize,
    ev: *mut daos_event_t,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { list(pool_of(poh, false), buffer, size, ev) }
}

/// Reads attributes of a pool. A value longer than its room is cut; its size becomes the whole
/// length, 0 for one that is not there.
///
/// # Safety
/// All arrays have `n` entries; each buffer (or NULL) is as long as its size says, until
/// completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_pool_get_attr(
    poh: daos_handle_t,
    n: c_int,
    names: *const *const c_char,
    buffers: *const *mut c_void,
    sizes: *mut usize,
    ev: *mut daos_event_t,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { get(pool_of(poh, false), n, names, buffers, sizes, ev) }
}

/// Sets attributes of a pool, all or none.
///
/// # Safety
/// All arrays have `n` entries; each value is as long as its size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_pool_set_attr(
    poh: daos_handle_t,
    n: c_int,
    names: *const *const c_char,
    values: *const *const c_void,
    sizes: *const usize,
    ev: *mut daos_event_t,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { set(pool_of(poh, true), n, names, values, sizes, ev) }
}

/// Removes attributes of a pool, those of them that are there.
///
/// # Safety
/// `names` holds `n` C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_pool_del_attr(
    poh: daos_handle_t,
    n: c_int,
    names: *const *const c_char,
    ev: *mut daos_event_t,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { del(pool_of(poh, true), n, names, ev) }
}

/// As [`daos_pool_list_attr`], for a container.
///
/// # Safety
/// As for [`daos_pool_list_attr`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_list_attr(
    coh: daos_handle_t,
    buffer: *mut c_char,
    size: *mut usize,
    ev: *mut daos_event_t,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { list(cont_of(coh, false), buffer, size, ev) }
}

/// As [`daos_pool_get_attr`], for a container.
///
/// # Safety
/// As for [`daos_pool_get_attr`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_get_attr(
    coh: daos_handle_t,
    n: c_int,
    names: *const *const c_char,
    buffers: *const *mut c_void,
    sizes: *mut usize,
    ev: *mut daos_event_t,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { get(cont_of(coh, false), n, names, buffers, sizes, ev) }
}

/// As [`daos_pool_set_attr`], for a container.
///
/// # Safety
/// As for [`daos_pool_set_attr`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_set_attr(
    coh: daos_handle_t,
    n: c_int,
    names: *const *const c_char,
    values: *const *const c_void,
    sizes: *const usize,
    ev: *mut daos_event_t,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { set(cont_of(coh, true), n, names, values, sizes, ev) }
}

/// As [`daos_pool_del_attr`], for a container.
///
/// # Safety
/// As for [`daos_pool_del_attr`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_del_attr(
    coh: daos_handle_t,
    n: c_int,
    names: *const *const c_char,
    ev: *mut daos_event_t,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { del(cont_of(coh, true), n, names, ev) }
}
