//! Principals: `name@` or `name@domain`, and the special `OWNER@`, `GROUP@`, `EVERYONE@`.

use super::{EVERYONE, GROUP, OWNER, OWNER_GROUP, PRINCIPAL_BYTES_MAX, USER};
use crate::errno::{DER_INVAL, DER_MISC, DER_NOMEM, DER_NONEXIST};
use crate::gurt::{Outcome, alloc, shielded, status};
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::ptr::null_mut;

/// First size of a buffer for an entry of the user database, bytes.
const DATABASE_BYTES: usize = 1024;
/// Entries of groups with very many members are refused from here on, bytes.
const DATABASE_BYTES_MAX: usize = 16 << 20;

/// The name of a principal that needs no other.
pub(super) fn special(principal_type: u8) -> Option<&'static str> {
    match principal_type {
        OWNER => Some("OWNER@"),
        OWNER_GROUP => Some("GROUP@"),
        EVERYONE => Some("EVERYONE@"),
        _ => None,
    }
}

/// The type of a special name.
pub(super) fn special_type(name: &[u8]) -> Option<u8> {
    [OWNER, OWNER_GROUP, EVERYONE]
        .into_iter()
        .find(|&kind| special(kind).is_some_and(|special| special.as_bytes() == name))
}

/// True for 1 to 255 bytes, none of them NUL, with one `@`, which is not the first.
pub(super) fn is_valid(name: &[u8]) -> bool {
    let ats = name.iter().filter(|&&byte| byte == b'@').count();
    let fits = (1..=PRINCIPAL_BYTES_MAX).contains(&name.len());
    fits && ats == 1 && name[0] != b'@' && !name.contains(&0)
}

/// The local name in a principal.
fn local(principal: &[u8]) -> Outcome<CString> {
    if !is_valid(principal) {
        return Err(DER_INVAL);
    }
    let name = principal.split(|&byte| byte == b'@').next().unwrap_or(principal);
    CString::new(name).map_err(|_| DER_INVAL)
}

/// Asks the user database: `ask` fills a record and uses a buffer that grows until it is enough.
fn look_up<T, V>(
    ask: impl Fn(*mut T, *mut c_char, usize, *mut *mut T) -> c_int,
    take: impl Fn(&T) -> V,
) -> Outcome<V> {
    let mut buffer = vec![0 as c_char; DATABASE_BYTES];
    loop {
        let mut record = std::mem::MaybeUninit::<T>::uninit();
        let mut found: *mut T = null_mut();
        let told = ask(record.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &mut found);
        match told {
            libc::ERANGE if buffer.len() < DATABASE_BYTES_MAX => {
                buffer.resize(buffer.len() * 2, 0);
            }
            // SAFETY: when something was found, the record is filled.
            0 => return unsafe { found.as_ref() }.map(&take).ok_or(DER_NONEXIST),
            libc::ENOMEM | libc::ERANGE => return Err(DER_NOMEM),
            // What the manual lists for "not found".
            libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM => return Err(DER_NONEXIST),
            _ => return Err(DER_MISC),
        }
    }
}

/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
unsafe fn principal_of(name: *const c_char) -> Vec<u8> {
    // SAFETY: records of the database have a name, a string.
    let mut name = unsafe { CStr::from_ptr(name) }.to_bytes().to_vec();
    name.push(b'@');
    name
}

pub(super) fn user_of(uid: libc::uid_t) -> Outcome<Vec<u8>> {
    look_up(
        // SAFETY: record, buffer and result are of `look_up`.
        |record, buffer, len, found| unsafe { libc::getpwuid_r(uid, record, buffer, len, found) },
        // SAFETY: see `principal_of`.
        |record: &libc::passwd| unsafe { principal_of(record.pw_name) },
    )
}

pub(super) fn group_of(gid: libc::gid_t) -> Outcome<Vec<u8>> {
    look_up(
        // SAFETY: record, buffer and result are of `look_up`.
        |record, buffer, len, found| unsafe { libc::getgrgid_r(gid, record, buffer, len, found) },
        // SAFETY: see `principal_of`.
        |record: &libc::group| unsafe { principal_of(record.gr_name) },
    )
}

fn uid_of(name: &CStr) -> Outcome<libc::uid_t> {
    look_up(
        // SAFETY: record, buffer and result are of `look_up`; the name is a string.
        |record, buffer, len, found| unsafe {
            libc::getpwnam_r(name.as_ptr(), record, buffer, len, found)
        },
        |record: &libc::passwd| record.pw_uid,
    )
}

fn gid_of(name: &CStr) -> Outcome<libc::gid_t> {
    look_up(
        // SAFETY: record, buffer and result are of `look_up`; the name is a string.
        |record, buffer, len, found| unsafe {
            libc::getgrnam_r(name.as_ptr(), record, buffer, len, found)
        },
        |record: &libc::group| record.gr_gid,
    )
}

/// Hands a text out.
///
/// # Safety
/// The caller gives room for a pointer.
unsafe fn give(text: &[u8], to: *mut *mut c_char) -> Outcome {
    let copy = alloc::string(text);
    if copy.is_null() {
        return Err(DER_NOMEM);
    }
    // SAFETY: the caller gives room for a pointer.
    unsafe { to.write(copy) };
    Ok(())
}

/// # Safety
/// The caller gives a string.
unsafe fn bytes<'a>(text: *const c_char) -> Outcome<&'a [u8]> {
    if text.is_null() {
        return Err(DER_INVAL);
    }
    // SAFETY: the caller gives a string.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// True when a name may stand for a user or group.
///
/// # Safety
/// The caller gives NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_acl_principal_is_valid(name: *const c_char) -> bool {
    // SAFETY: the caller gives NULL or a string.
    shielded(false, || unsafe { bytes(name) }.is_ok_and(is_valid))
}

/// The principal of a local user; the caller frees it. `-DER_NONEXIST` when there is none.
///
/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_acl_uid_to_principal(
    uid: libc::uid_t,
    name: *mut *mut c_char,
) -> c_int {
    status(|| {
        if name.is_null() {
            return Err(DER_INVAL);
        }
        // SAFETY: not NULL; the caller wants the name there.
        unsafe { give(&user_of(uid)?, name) }
    })
}

/// The principal of a local group; the caller frees it. `-DER_NONEXIST` when there is none.
///
/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_acl_gid_to_principal(
    gid: libc::gid_t,
    name: *mut *mut c_char,
) -> c_int {
    status(|| {
        if name.is_null() {
            return Err(DER_INVAL);
        }
        // SAFETY: not NULL; the caller wants the name there.
        unsafe { give(&group_of(gid)?, name) }
    })
}

/// The local user of a principal. `-DER_NONEXIST` when there is none.
///
/// # Safety
/// The caller gives NULL or a string, and room for the number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_acl_principal_to_uid(
    principal: *const c_char,
    uid: *mut libc::uid_t,
) -> c_int {
    status(|| {
        if uid.is_null() {
            return Err(DER_INVAL);
        }
        // SAFETY: the caller gives NULL or a string, and room for the number.
        unsafe { uid.write(uid_of(&local(bytes(principal)?)?)?) };
        Ok(())
    })
}

/// The local group of a principal. `-DER_NONEXIST` when there is none.
///
/// # Safety
/// The caller gives NULL or a string, and room for the number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_acl_principal_to_gid(
    principal: *const c_char,
    gid: *mut libc::gid_t,
) -> c_int {
    status(|| {
        if gid.is_null() {
            return Err(DER_INVAL);
        }
        // SAFETY: the caller gives NULL or a string, and room for the number.
        unsafe { gid.write(gid_of(&local(bytes(principal)?)?)?) };
        Ok(())
    })
}

/// Reads `u:name@`, `g:name@`, or a special name. The name goes out as a copy that the caller
/// frees, NULL for a special one.
///
/// # Safety
/// The caller gives NULL or a string, and room for type and name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_acl_principal_from_str(
    principal_str: *const c_char,
    kind: *mut c_uint,
    name: *mut *mut c_char,
) -> c_int {
    status(|| {
        if kind.is_null() || name.is_null() {
            return Err(DER_INVAL);
        }
        // SAFETY: the caller gives NULL or a string, and room for type and name.
        unsafe {
            let text = bytes(principal_str)?;
            if let Some(special) = special_type(text) {
                kind.write(special as c_uint);
                name.write(null_mut());
                return Ok(());
            }
            let (found, text) = match text {
                [b'u', b':', text @ ..] => (USER, text),
                [b'g', b':', text @ ..] => (GROUP, text),
                _ => return Err(DER_INVAL),
            };
            if !is_valid(text) {
                return Err(DER_INVAL);
            }
            give(text, name)?;
            kind.write(found as c_uint);
            Ok(())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::is_valid;

    #[test]
    fn a_principal_is_a_name_that_c_can_hold() {
        for name in [&b"me@"[..], b"me@there", b"OWNER@"] {
            assert!(is_valid(name));
        }
        // A NUL inside would end the name in memory: text from the catalog may hold one.
        for name in [&b""[..], b"@", b"me", b"me@x@", b"\0@", b"m\0e@", b"me@\0"] {
            assert!(!is_valid(name), "{name:?}");
        }
    }
}
