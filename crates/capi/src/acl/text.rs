//! Entries as text: `A::alice@:rw` and, for people, `Allow::alice@:Read/Write`.

use super::{
    ALARM, ALLOW, AUDIT, Ace, FLAG_FAIL, FLAG_GROUP, FLAG_POOL_INHERIT, FLAG_SUCCESS, GROUP,
    PRINCIPAL_BYTES_MAX, USER, principal,
};
use crate::errno::DER_INVAL;
use crate::gurt::Outcome;

/// `DAOS_ACL_MAX_ACE_STR_LEN`: longest entry as text, bytes.
pub(super) const TEXT_BYTES_MAX: usize = PRINCIPAL_BYTES_MAX + 64;

/// A bit, its letter, its word.
pub(super) type Letter = (u64, char, &'static str);

pub(super) const ACCESS: [Letter; 3] =
    [(ALLOW as u64, 'A', "Allow"), (AUDIT as u64, 'U', "Audit"), (ALARM as u64, 'L', "Alarm")];

pub(super) const FLAGS: [Letter; 4] = [
    (FLAG_GROUP as u64, 'G', "Group"),
    (FLAG_SUCCESS as u64, 'S', "Access-Success"),
    (FLAG_FAIL as u64, 'F', "Access-Failure"),
    (FLAG_POOL_INHERIT as u64, 'P', "Pool-Inherit"),
];

pub(super) const PERMS: [Letter; 9] = [
    (1, 'r', "Read"),
    (1 << 1, 'w', "Write"),
    (1 << 2, 'c', "Create-Container"),
    (1 << 3, 'd', "Delete-Container"),
    (1 << 4, 't', "Get-Prop"),
    (1 << 5, 'T', "Set-Prop"),
    (1 << 6, 'a', "Get-ACL"),
    (1 << 7, 'A', "Set-ACL"),
    (1 << 8, 'o', "Set-Owner"),
];

fn bits(text: &[u8], letters: &[Letter]) -> Outcome<u64> {
    text.iter().try_fold(0, |bits, &byte| {
        let known = letters.iter().find(|letter| letter.1 as u32 == byte as u32);
        known.map(|letter| bits | letter.0).ok_or(DER_INVAL)
    })
}

fn letters(bits: u64, letters: &[Letter]) -> String {
    letters.iter().filter(|letter| bits & letter.0 != 0).map(|letter| letter.1).collect()
}

/// The four parts of an entry's text.
fn parts(text: &[u8]) -> Outcome<[&[u8]; 4]> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(DER_INVAL);
    }
    let parts: Vec<&[u8]> = text.split(|&byte| byte == b':').collect();
    parts.try_into().map_err(|_| DER_INVAL)
}

/// Reads an entry.
pub(super) fn entry(text: &[u8]) -> Outcome<Ace> {
    let [access, flags, name, perms] = parts(text)?;
    let access = bits(access, &ACCESS)? as u8;
    let flags = bits(flags, &FLAGS)? as u16;
    let perms = bits(perms, &PERMS)?;
    if !principal::is_valid(name) {
        return Err(DER_INVAL);
    }
    let named = if flags & FLAG_GROUP != 0 { GROUP } else { USER };
    let mut entry = Ace::new(principal::special_type(name).unwrap_or(named), Some(name))?;
    entry.access_types = access;
    entry.flags = flags;
    let given = |kind: u8| if access & kind != 0 { perms } else { 0 };
    (entry.allow, entry.audit, entry.alarm) = (given(ALLOW), given(AUDIT), given(ALARM));
    if entry.is_valid() { Ok(entry) } else { Err(DER_INVAL) }
}

/// The text of an entry. `Inval` for one that makes no sense, or whose access types have different
/// permissions.
pub(super) fn of_entry(entry: &Ace) -> Outcome<String> {
    if !entry.is_valid() {
        return Err(DER_INVAL);
    }
    let kinds = [(ALLOW, entry.allow), (AUDIT, entry.audit), (ALARM, entry.alarm)];
    let mut given = kinds.iter().filter(|kind| entry.access_types & kind.0 != 0).map(|kind| kind.1);
    let perms = given.next().ok_or(DER_INVAL)?;
    if given.any(|other| other != perms) {
        return Err(DER_INVAL);
    }
    let name = std::str::from_utf8(entry.principal()).map_err(|_| DER_INVAL)?;
    Ok(format!(
        "{}:{}:{name}:{}",
        letters(entry.access_types as u64, &ACCESS),
        letters(entry.flags as u64, &FLAGS),
        letters(perms, &PERMS)
    ))
}

fn words(text: &[u8], letters: &[Letter]) -> Outcome<String> {
    let mut words = Vec::new();
    for &byte in text {
        let known = letters.iter().find(|letter| letter.1 as u32 == byte as u32);
        words.push(known.ok_or(DER_INVAL)?.2);
    }
    Ok(words.join("/"))
}

/// An entry's text with words for letters.
pub(super) fn verbose(text: &[u8]) -> Outcome<String> {
    let [access, flags, name, perms] = parts(text)?;
    if access.is_empty() || !principal::is_valid(name) {
        return Err(DER_INVAL);
    }
    let name = match name {
        b"OWNER@" => "Owner",
        b"GROUP@" => "Owner-Group",
        b"EVERYONE@" => "Everyone",
        name => std::str::from_utf8(name).map_err(|_| DER_INVAL)?,
    };
    let perms = if perms.is_empty() { "No-Access".into() } else { words(perms, &PERMS)? };
    Ok(format!("{}:{}:{name}:{perms}", words(access, &ACCESS)?, words(flags, &FLAGS)?))
}
