//! Access control lists, as C programs make and read them.
//!
//! A list is one piece of memory: a head and entries one after the other, each with its principal's
//! name behind it. The form is DAOS's, because programs walk it. Here a list is read into plain
//! values ([`Acl`]), worked on, and written back; no code walks C memory but [`Acl::read`] and the
//! two functions that hand out pointers into a list.
//!
//! An entry as text: `A::OWNER@:rw`: access types, flags, principal, permissions.
//!
//! Invariant: a list that was checked has its entries in the order owner, users, owner's group,
//! groups, everyone, and no principal twice.

use crate::ctypes::{daos_ace, daos_acl};
use crate::errno::{DER_INVAL, DER_NOMEM, DER_NONEXIST};
use crate::gurt::{Outcome, alloc};
use std::ptr::null_mut;

mod abi;
mod dump;
mod principal;
mod text;

/// `DAOS_ACL_VERSION`.
const VERSION: u16 = 1;
/// `DAOS_ACL_MAX_PRINCIPAL_LEN`: longest name, bytes.
pub(crate) const PRINCIPAL_BYTES_MAX: usize = 255;
/// `DAOS_ACL_MAX_ACE_LEN`: longest list of entries, bytes.
const ENTRIES_BYTES_MAX: usize = 65_536;
/// Bytes of an entry without its name.
const ENTRY_BYTES: usize = size_of::<daos_ace>();
/// Bytes of a list without its entries.
const HEAD_BYTES: usize = size_of::<daos_acl>();

/// Who: the numbers are the order in a list.
const OWNER: u8 = 0;
const USER: u8 = 1;
const OWNER_GROUP: u8 = 2;
const GROUP: u8 = 3;
const EVERYONE: u8 = 4;

/// Access types of an entry.
const ALLOW: u8 = 1;
const AUDIT: u8 = 1 << 1;
const ALARM: u8 = 1 << 2;

/// Flags of an entry.
const FLAG_GROUP: u16 = 1;
const FLAG_POOL_INHERIT: u16 = 1 << 1;
const FLAG_FAIL: u16 = 1 << 2;
const FLAG_SUCCESS: u16 = 1 << 3;

/// One entry.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Ace {
    access_types: u8,
    principal_type: u8,
    flags: u16,
    allow: u64,
    audit: u64,
    alarm: u64,
    /// Without the zeros behind it; empty for a principal that needs no name.
    name: Vec<u8>,
    /// Bytes of the name in memory.
    name_room: usize,
    /// A name that has no zero behind it in its room.
    is_unterminated: bool,
}

fn needs_name(principal_type: u8) -> bool {
    matches!(principal_type, USER | GROUP)
}

fn is_group(principal_type: u8) -> bool {
    matches!(principal_type, OWNER_GROUP | GROUP)
}

impl Ace {
    /// An entry that says nothing yet. `Inval` when a name is needed and missing.
    fn new(principal_type: u8, name: Option<&[u8]>) -> Outcome<Ace> {
        if principal_type > EVERYONE {
            return Err(DER_INVAL);
        }
        let mut kept = Vec::new();
        if needs_name(principal_type) {
            let name = name.filter(|name| !name.is_empty()).ok_or(DER_INVAL)?;
            if name.len() > u16::MAX as usize - 8 {
                return Err(DER_INVAL);
            }
            kept.extend_from_slice(name);
        }
        Ok(Ace {
            access_types: 0,
            principal_type,
            flags: if is_group(principal_type) { FLAG_GROUP } else { 0 },
            allow: 0,
            audit: 0,
            alarm: 0,
            name_room: if kept.is_empty() { 0 } else { (kept.len() + 1).next_multiple_of(8) },
            name: kept,
            is_unterminated: false,
        })
    }

    /// Bytes in memory.
    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.name_room
    }

    /// An entry of C's. `Inval` for NULL.
    ///
    /// # Safety
    /// NULL, or an entry with its name behind it.
    unsafe fn read(entry: *const daos_ace) -> Outcome<Ace> {
        if entry.is_null() {
            return Err(DER_INVAL);
        }
        // SAFETY: the caller's promise; entries need not be aligned.
        let (head, room) = unsafe {
            let head = entry.read_unaligned();
            let room = head.dae_principal_len as usize;
            (head, std::slice::from_raw_parts(entry.cast::<u8>().add(ENTRY_BYTES), room))
        };
        let end = room.iter().position(|&byte| byte == 0);
        Ok(Ace {
            access_types: head.dae_access_types,
            principal_type: head.dae_principal_type,
            flags: head.dae_access_flags,
            allow: head.dae_allow_perms,
            audit: head.dae_audit_perms,
            alarm: head.dae_alarm_perms,
            name: room[..end.unwrap_or(room.len())].to_vec(),
            name_room: room.len(),
            is_unterminated: end.is_none() && !room.is_empty(),
        })
    }

    /// Writes an entry.
    ///
    /// # Safety
    /// `to` has room for [`Ace::bytes`], zeroed.
    unsafe fn write(&self, to: *mut u8) {
        let head = daos_ace {
            dae_access_types: self.access_types,
            dae_principal_type: self.principal_type,
            dae_principal_len: self.name_room as u16,
            dae_access_flags: self.flags,
            dae_reserv: 0,
            dae_allow_perms: self.allow,
            dae_audit_perms: self.audit,
            dae_alarm_perms: self.alarm,
        };
        // SAFETY: the caller's promise.
        unsafe {
            to.cast::<daos_ace>().write_unaligned(head);
            to.add(ENTRY_BYTES).copy_from_nonoverlapping(self.name.as_ptr(), self.name.len());
        }
    }

    /// A copy in memory of C's, or NULL.
    fn give(&self) -> *mut daos_ace {
        let memory: *mut u8 = alloc::array(self.bytes());
        if !memory.is_null() {
            // SAFETY: the memory is new, zeroed, and has room.
            unsafe { self.write(memory) };
        }
        memory.cast()
    }

    /// True when the entry makes sense.
    fn is_valid(&self) -> bool {
        let all = ALLOW | AUDIT | ALARM;
        let perms = [(ALLOW, self.allow), (AUDIT, self.audit), (ALARM, self.alarm)];
        let alerts = self.access_types & (AUDIT | ALARM) != 0;
        self.access_types != 0
            && self.access_types & !all == 0
            && self.principal_type <= EVERYONE
            && needs_name(self.principal_type) == (self.name_room != 0)
            && is_group(self.principal_type) == (self.flags & FLAG_GROUP != 0)
            && self.name_room.is_multiple_of(8)
            && !self.is_unterminated
            && (self.name_room == 0 || principal::is_valid(&self.name))
            && perms.iter().all(|&(access, perms)| self.access_types & access != 0 || perms == 0)
            && alerts == (self.flags & (FLAG_FAIL | FLAG_SUCCESS) != 0)
    }

    fn is_about(&self, principal_type: u8, name: &[u8]) -> bool {
        self.principal_type == principal_type && (!needs_name(principal_type) || self.name == name)
    }

    /// The principal's name, or the special name of one that has none.
    fn principal(&self) -> &[u8] {
        principal::special(self.principal_type).map_or(&self.name, str::as_bytes)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Acl {
    version: u16,
    entries: Vec<Ace>,
}

impl Acl {
    /// A list of entries, put in order.
    fn new(mut entries: Vec<Ace>) -> Acl {
        entries.sort_by_key(|entry| entry.principal_type);
        Acl { version: VERSION, entries }
    }

    /// A list of C's. `Inval` for NULL, or for a list whose entries do not fill its length.
    ///
    /// # Safety
    /// NULL, or a list with `dal_len` bytes behind it.
    unsafe fn read(list: *const daos_acl) -> Outcome<Acl> {
        if list.is_null() {
            return Err(DER_INVAL);
        }
        // SAFETY: the caller's promise.
        let (head, bytes) = unsafe {
            let head = list.read_unaligned();
            let first = list.cast::<u8>().add(HEAD_BYTES);
            (head, std::slice::from_raw_parts(first, head.dal_len as usize))
        };
        let mut entries = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let entry = Self::split(&mut rest).ok_or(DER_INVAL)?;
            // SAFETY: the entry and its name are inside the list.
            entries.push(unsafe { Ace::read(entry.as_ptr().cast()) }?);
        }
        Ok(Acl { version: head.dal_ver, entries })
    }

    /// Cuts the first entry off; `None` when it is not all there.
    fn split<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
        let name = rest.get(std::mem::offset_of!(daos_ace, dae_principal_len)..)?.first_chunk()?;
        let length = ENTRY_BYTES + u16::from_ne_bytes(*name) as usize;
        let (entry, behind) = rest.split_at_checked(length)?;
        *rest = behind;
        Some(entry)
    }

    /// A copy in memory of C's, or NULL.
    fn give(&self) -> *mut daos_acl {
        let length: usize = self.entries.iter().map(Ace::bytes).sum();
        if u32::try_from(length).is_err() {
            return null_mut();
        }
        let memory: *mut u8 = alloc::array(HEAD_BYTES + length);
        if memory.is_null() {
            return null_mut();
        }
        let head = daos_acl { dal_ver: self.version, dal_reserv: 0, dal_len: length as u32 };
        // SAFETY: the memory is new, zeroed, and has room for all.
        unsafe {
            memory.cast::<daos_acl>().write(head);
            let mut at = memory.add(HEAD_BYTES);
            for entry in &self.entries {
                entry.write(at);
                at = at.add(entry.bytes());
            }
        }
        memory.cast()
    }

    /// True when the list makes sense.
    fn is_valid(&self) -> bool {
        let length: usize = self.entries.iter().map(Ace::bytes).sum();
        let in_order = self.entries.is_sorted_by_key(|entry| entry.principal_type);
        let mut seen = std::collections::HashSet::new();
        let once =
            self.entries.iter().all(|entry| seen.insert((entry.principal_type, &entry.name)));
        self.version == VERSION
            && length <= ENTRIES_BYTES_MAX
            && in_order
            && once
            && self.entries.iter().all(Ace::is_valid)
    }

    fn position(&self, principal_type: u8, name: &[u8]) -> Outcome<usize> {
        let found = self.entries.iter().position(|entry| entry.is_about(principal_type, name));
        found.ok_or(DER_NONEXIST)
    }
}

/// The list as text, one line an entry, or an error for one that makes no sense.
///
/// # Safety
/// NULL, or a list with `dal_len` bytes behind it.
pub(crate) unsafe fn texts_of(list: *const daos_acl) -> Outcome<Vec<String>> {
    // SAFETY: the caller's promise.
    let list = unsafe { Acl::read(list) }?;
    if !list.is_valid() {
        return Err(DER_INVAL);
    }
    list.entries.iter().map(text::of_entry).collect()
}

/// A list in memory of C's, from text.
pub(crate) fn give_texts(texts: &[impl AsRef<[u8]>]) -> Outcome<*mut daos_acl> {
    let entries: Outcome<Vec<Ace>> = texts.iter().map(|text| text::entry(text.as_ref())).collect();
    let list = Acl::new(entries?);
    if !list.is_valid() {
        return Err(DER_INVAL);
    }
    let memory = list.give();
    if memory.is_null() { Err(DER_NOMEM) } else { Ok(memory) }
}

/// The principal of a local user, if there is one.
pub(crate) fn user(uid: u32) -> Option<String> {
    String::from_utf8(principal::user_of(uid).ok()?).ok()
}

/// The principal of a local group, if there is one.
pub(crate) fn group(gid: u32) -> Option<String> {
    String::from_utf8(principal::group_of(gid).ok()?).ok()
}

/// True when a principal is a local user.
pub(crate) fn knows_user(name: &str) -> bool {
    let Ok(name) = std::ffi::CString::new(name) else { return false };
    let mut uid = 0;
    // SAFETY: a C string, and a place for the answer.
    unsafe { principal::daos_acl_principal_to_uid(name.as_ptr(), &mut uid) == 0 }
}

/// True when a principal is a local group.
pub(crate) fn knows_group(name: &str) -> bool {
    let Ok(name) = std::ffi::CString::new(name) else { return false };
    let mut gid = 0;
    // SAFETY: a C string, and a place for the answer.
    unsafe { principal::daos_acl_principal_to_gid(name.as_ptr(), &mut gid) == 0 }
}

#[cfg(test)]
#[path = "acl/tests.rs"]
mod tests;
