//! Changing a container's properties, its owner and its access control list.
//!
//! What has no place in the catalog's properties is kept in one attribute and told again (see
//! [`crate::prop_map`]). It is read, changed and written back, so of two programs that change it
//! at the same time the last one wins. Owners and lists are kept only: no server asks for them.

use crate::attr::{change, cont_subject, read};
use crate::cont::ContHandle;
use crate::ctx::Local;
use crate::ctypes::{daos_acl, daos_event_t, daos_handle_t, daos_prop_entry, daos_prop_t};
use crate::errno::{DER_NOMEM, Sign};
use crate::event::{fail, launch, settle};
use crate::guard::{self, User};
use crate::prop::{self, Value, cont};
use crate::prop_map::{KEPT_ATTR, cont_values, encode_kept, fill_cont_kept, kept_in};
use std::collections::BTreeMap;
use std::ffi::{c_char, c_uint};
use std::sync::Arc;
use types::{Code, Error, Result};
use wire::control::{ContInfo, ControlRequest};

/// What is kept of a container.
type Kept = BTreeMap<u32, Value>;

fn told(der: i32) -> Error {
    match der {
        DER_NOMEM => Error::from(Code::NoMem),
        _ => Error::inval("the property or access control list has no meaning"),
    }
}

async fn catalog(local: &Local, handle: &ContHandle) -> Result<ContInfo> {
    let mirror = handle.mirror(local)?;
    handle.pool.mirror(local)?.cont_query(&mirror.name()).await
}

async fn kept(local: &Local, handle: &ContHandle) -> Result<Kept> {
    let attrs = read(local, cont_subject(handle)).await?;
    Ok(kept_in(attrs.get(KEPT_ATTR).map(Vec::as_slice)))
}

async fn keep(local: &Local, handle: &ContHandle, kept: &Kept) -> Result<()> {
    let attrs = BTreeMap::from([(KEPT_ATTR.to_string(), Some(encode_kept(kept)?))]);
    change(local, cont_subject(handle), attrs).await
}

/// Fills in the entries of a list of C's from the catalog and from what is kept. NULL asks for
/// nothing, and nobody is asked.
///
/// # Safety
/// `list` is NULL or a property list that is the caller's until completion.
pub(crate) async unsafe fn fill(
    local: &Local,
    handle: &ContHandle,
    list: *mut daos_prop_t,
    info: &ContInfo,
) -> Result<()> {
    if list.is_null() {
        return Ok(());
    }
    let mut kept = kept(local, handle).await?;
    // SAFETY: the caller's promise.
    if unsafe { prop::asks_for(list, cont::ALLOCED_OID) } {
        // Whoever copies objects under their ids makes the copy with this, so that none is given there a second time. How far it is
        // shows a number that nobody else gets any more.
        let last = handle.mirror(local)?.alloc_oids(1).await?;
        kept.insert(cont::ALLOCED_OID, Value::Number(last));
    }
    // SAFETY: the caller's promise.
    unsafe { fill_cont_kept(list, info, kept) }
}

/// Changes properties. The label is the catalog's; what is fixed when a container is made may be
/// named with the value it has (else `-DER_NO_PERM`); the rest is kept.
///
/// # Safety
/// `prop` is NULL or a property list until the function returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_set_prop(
    coh: daos_handle_t,
    prop: *mut daos_prop_t,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        let handle = ContHandle::of(coh)?;
        handle.require_writable()?;
        if prop.is_null() {
            return Err(guard::null());
        }
        // SAFETY: the caller's promise.
        let values = unsafe { prop::read(prop, false) }.map_err(told)?;
        Ok((handle, values))
    });
    let (handle, values) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    launch(ev, Sign::Der, move |local| async move { set(&local, &handle, values).await })
}

async fn set(local: &Local, handle: &ContHandle, values: Vec<(u32, Value)>) -> Result<()> {
    let info = catalog(local, handle).await?;
    let mut kept = kept(local, handle).await?;
    let now = cont_values(&info, kept.clone());
    let (mut label, mut changed) = (None, false);
    for (property, value) in values {
        match (property, value) {
            (cont::LABEL, Value::Text(text)) => label = Some(text),
            // It is healthy, and has given out so many numbers or more: a program that says so changes nothing.
            (cont::STATUS | cont::ALLOCED_OID, _) => {}
            (cont::OWNER | cont::OWNER_GROUP | cont::ACL | cont::ROOTS, value)
            | (cont::SNAPSHOT_MAX | cont::DEDUP_THRESHOLD, value) => {
                kept.insert(property, value);
                changed = true;
            }
            (property, value) => {
                if !now.contains(&(property, value)) {
                    let text = format!("property {property:#x} is fixed when a container is made");
                    return Err(Error::new(Code::NoPerm, text));
                }
            }
        }
    }
    if let Some(label) = label {
        let subject = cont_subject(handle);
        let props = BTreeMap::from([("label".to_string(), label)]);
        local.client.control(&ControlRequest::SetProps { subject, props }).await?;
    }
    if changed { keep(local, handle, &kept).await } else { Ok(()) }
}

/// Marks a container healthy, which it is.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_status_clear(coh: daos_handle_t, ev: *mut daos_event_t) -> i32 {
    settle(ev, Sign::Der, move || ContHandle::of(coh).map(|_| ()))
}

/// Frees what old versions of data take, up to an epoch. Nothing keeps old versions, so there is
/// nothing to do.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_aggregate(
    coh: daos_handle_t,
    _epoch: u64,
    ev: *mut daos_event_t,
) -> i32 {
    settle(ev, Sign::Der, move || ContHandle::of(coh)?.require_writable())
}

/// The access control list, owner and owner's group, in a list to be freed with `daos_prop_free`.
///
/// # Safety
/// `acl_prop` is good for writing until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_get_acl(
    coh: daos_handle_t,
    acl_prop: *mut *mut daos_prop_t,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments =
        guard::catch(|| if acl_prop.is_null() { Err(guard::null()) } else { ContHandle::of(coh) });
    let handle = match arguments {
        Ok(handle) => handle,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let acl_prop = User(acl_prop);
    launch(ev, Sign::Der, move |local| async move {
        let info = catalog(&local, &handle).await?;
        let now = cont_values(&info, kept(&local, &handle).await?);
        let wanted = [cont::ACL, cont::OWNER, cont::OWNER_GROUP];
        let list = prop::daos_prop_alloc(wanted.len() as u32);
        if list.is_null() {
            return Err(Error::from(Code::NoMem));
        }
        // SAFETY: just made, with this many entries.
        let entries: &mut [daos_prop_entry] =
            unsafe { std::slice::from_raw_parts_mut((*list).dpp_entries, wanted.len()) };
        for (entry, property) in entries.iter_mut().zip(wanted) {
            entry.dpe_type = property;
        }
        // SAFETY: the list is ours until it is handed out.
        if let Err(der) = unsafe { prop::answer(list, &now) } {
            // SAFETY: as above; nobody has it.
            unsafe { prop::daos_prop_free(list) };
            return Err(told(der));
        }
        acl_prop.set(list);
        Ok(())
    })
}

/// A change of an access control list, as text.
type Change = Box<dyn FnOnce(&mut Vec<String>) -> Result<()>>;

fn change_acl(
    coh: daos_handle_t,
    ev: *mut daos_event_t,
    make: impl FnOnce() -> Result<Change>,
) -> i32 {
    let arguments = guard::catch(|| {
        let handle = ContHandle::of(coh)?;
        handle.require_writable()?;
        Ok((handle, make()?))
    });
    let (handle, apply): (Arc<ContHandle>, Change) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    launch(ev, Sign::Der, move |local| async move {
        let info = catalog(&local, &handle).await?;
        let mut kept = kept(&local, &handle).await?;
        let mut texts = cont_values(&info, kept.clone())
            .into_iter()
            .find_map(|(property, value)| match value {
                Value::Acl(texts) if property == cont::ACL => Some(texts),
                _ => None,
            })
            .unwrap_or_default();
        apply(&mut texts)?;
        kept.insert(cont::ACL, Value::Acl(texts));
        keep(&local, &handle, &kept).await
    })
}

/// Who an entry is about: whether it is a group, and the principal.
fn about(entry: &str) -> (bool, &str) {
    let mut fields = entry.splitn(4, ':').skip(1);
    let group = fields.next().is_some_and(|flags| flags.contains('G'));
    (group, fields.next().unwrap_or_default())
}

/// # Safety
/// `acl` is NULL or a list with `dal_len` bytes behind it.
unsafe fn texts_of(acl: *const daos_acl) -> Result<Vec<String>> {
    if acl.is_null() {
        return Err(guard::null());
    }
    // SAFETY: the caller's promise.
    unsafe { crate::acl::texts_of(acl) }.map_err(told)
}

/// Puts a list in the place of the one that is there. Kept and told again; see the module.
///
/// # Safety
/// `acl` is NULL or a list with `dal_len` bytes behind it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_overwrite_acl(
    coh: daos_handle_t,
    acl: *mut daos_acl,
    ev: *mut daos_event_t,
) -> i32 {
    change_acl(coh, ev, || {
        // SAFETY: the caller's promise.
        let given = unsafe { texts_of(acl) }?;
        Ok(Box::new(|texts: &mut Vec<String>| {
            *texts = given;
            Ok(())
        }))
    })
}

/// Adds entries to the list, in the place of those about the same principals.
///
/// # Safety
/// `acl` is NULL or a list with `dal_len` bytes behind it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_update_acl(
    coh: daos_handle_t,
    acl: *mut daos_acl,
    ev: *mut daos_event_t,
) -> i32 {
    change_acl(coh, ev, || {
        // SAFETY: the caller's promise.
        let given = unsafe { texts_of(acl) }?;
        Ok(Box::new(|texts: &mut Vec<String>| {
            for entry in given {
                match texts.iter_mut().find(|text| about(text) == about(&entry)) {
                    Some(text) => *text = entry,
                    None => texts.push(entry),
                }
            }
            Ok(())
        }))
    })
}

/// Removes the entry about a principal. `-DER_NONEXIST` when there is none.
///
/// # Safety
/// `name` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_delete_acl(
    coh: daos_handle_t,
    r#type: c_uint,
    name: *mut c_char,
    ev: *mut daos_event_t,
) -> i32 {
    change_acl(coh, ev, || {
        // SAFETY: the caller's promise.
        let named = || unsafe { guard::utf8(name) }.map(str::to_string);
        let (group, principal): (bool, String) = match r#type {
            0 => (false, "OWNER@".into()),
            1 => (false, named()?),
            2 => (true, "GROUP@".into()),
            3 => (true, named()?),
            4 => (false, "EVERYONE@".into()),
            other => return Err(Error::inval(format!("{other} is no type of principal"))),
        };
        Ok(Box::new(move |texts: &mut Vec<String>| {
            let before = texts.len();
            texts.retain(|text| about(text) != (group, &*principal));
            if texts.len() == before {
                let text = format!("the list has no entry about '{principal}'");
                return Err(Error::new(Code::NonExist, text));
            }
            Ok(())
        }))
    })
}

/// Changes the owner, the owner's group or both (NULL leaves one). They must be known here.
///
/// # Safety
/// `user` and `group` are NULL or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_set_owner(
    coh: daos_handle_t,
    user: *mut c_char,
    group: *mut c_char,
    ev: *mut daos_event_t,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { set_owner(coh, user, group, true, ev) }
}

/// The same without looking whether they are known here.
///
/// # Safety
/// As for [`daos_cont_set_owner`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_cont_set_owner_no_check(
    coh: daos_handle_t,
    user: *mut c_char,
    group: *mut c_char,
    ev: *mut daos_event_t,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { set_owner(coh, user, group, false, ev) }
}

/// # Safety
/// As for [`daos_cont_set_owner`].
unsafe fn set_owner(
    coh: daos_handle_t,
    user: *mut c_char,
    group: *mut c_char,
    must_be_known: bool,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        let handle = ContHandle::of(coh)?;
        handle.require_writable()?;
        let mut changes = Vec::new();
        for (property, name, find) in [
            (cont::OWNER, user, crate::acl::knows_user as fn(&str) -> bool),
            (cont::OWNER_GROUP, group, crate::acl::knows_group),
        ] {
            if name.is_null() {
                continue;
            }
            // SAFETY: the caller's promise.
            let name = unsafe { guard::utf8(name) }?;
            if !name.contains('@') || name.len() > crate::acl::PRINCIPAL_BYTES_MAX {
                return Err(Error::inval(format!("'{name}' is not a principal (NAME@)")));
            }
            if must_be_known && !find(name) {
                return Err(Error::new(Code::NonExist, format!("'{name}' is not known here")));
            }
            changes.push((property, Value::Text(name.to_string())));
        }
        if changes.is_empty() {
            return Err(Error::inval("neither a user nor a group is given"));
        }
        Ok((handle, changes))
    });
    let (handle, changes) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    launch(ev, Sign::Der, move |local| async move {
        let mut kept = kept(&local, &handle).await?;
        kept.extend(changes);
        keep(&local, &handle, &kept).await
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_told_apart_by_principal_and_kind() {
        assert_eq!(about("A::OWNER@:rw"), (false, "OWNER@"));
        assert_eq!(about("A:G:builders@:r"), (true, "builders@"));
        assert_ne!(about("A:G:x@:r"), about("A::x@:r"));
        assert_eq!(about("nonsense"), (false, ""));
    }
}
