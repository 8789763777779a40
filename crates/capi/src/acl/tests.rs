//! Lists: texts there and back, order, nonsense from outside.

use super::abi::*;
use super::dump::*;
use super::principal::*;
use super::*;
use crate::errno::DER_TRUNC;
use proptest::prelude::*;
use std::ffi::{CStr, CString, c_char};
use std::ptr::null;

/// A list that gives itself back.
struct Owned(*mut daos_acl);

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the list is ours and goes now.
        unsafe { daos_acl_free(self.0) }
    }
}

fn parse(texts: &[&str]) -> Result<Owned, i32> {
    give_texts(texts).map(Owned)
}

#[test]
fn texts_go_there_and_back() {
    let texts = [
        "A::OWNER@:rwdtTaAo",
        "A::alice@:rw",
        "UL:SF:bob@example.org:r",
        "A:G:GROUP@:rt",
        "AL:GF:staff@:rwc",
        "A::EVERYONE@:",
    ];
    let list = parse(&texts).unwrap();
    // SAFETY: the list is alive; outputs are variables.
    unsafe {
        assert_eq!(texts_of(list.0).unwrap(), texts);
        assert_eq!(daos_acl_validate(list.0), 0);
        let (mut array, mut count) = (null_mut(), 0);
        assert_eq!(daos_acl_to_strs(list.0, &mut array, &mut count), 0);
        for (at, text) in texts.iter().enumerate() {
            let found = *array.add(at);
            assert_eq!(CStr::from_ptr(found).to_str().unwrap(), *text);
            alloc::free(found);
        }
        assert_eq!(count, texts.len());
        alloc::free(array);
        let copy = Owned(daos_acl_dup(list.0));
        assert_eq!(texts_of(copy.0).unwrap(), texts);
        assert_eq!(daos_acl_get_size(copy.0), daos_acl_get_size(list.0));
    }
    // The order of a list is by kind of principal, stable otherwise.
    let mixed = parse(&["A::EVERYONE@:r", "A::zoe@:r", "A::OWNER@:rw", "A::adam@:r"]).unwrap();
    // SAFETY: the list is alive.
    let ordered = unsafe { texts_of(mixed.0) }.unwrap();
    assert_eq!(ordered, ["A::OWNER@:rw", "A::zoe@:r", "A::adam@:r", "A::EVERYONE@:r"]);
}

#[test]
fn nonsense_in_texts_is_refused() {
    let long = format!("A::{}@:r", "x".repeat(255));
    for bad in [
        "",
        "A",
        "A::alice@",
        "A::alice@:r:",
        "X::alice@:r",
        "A:X:alice@:r",
        "A::alice@:x",
        "A::alice:r",
        "A::@alice:r",
        "A::al@i@ce:r",
        "A:::r",
        "::alice@:r",
        "A:G:OWNER@:r",
        "A::GROUP@:r",
        "A:S:alice@:r",
        "U::alice@:r",
        "A:GG:EVERYONE@:r",
        &long,
    ] {
        assert!(parse(&[bad]).is_err(), "{bad}");
    }
    assert!(parse(&["A::OWNER@:r", "A::OWNER@:w"]).is_err());
    // A user and a group may have one name.
    assert!(parse(&["A::alice@:r", "A:G:alice@:r"]).is_ok());
    assert!(parse(&["A::alice@:r", "U:S:alice@:r"]).is_err());
}

#[test]
fn entries_are_added_replaced_and_removed() {
    let mut list = parse(&["A::OWNER@:rw", "A::EVERYONE@:r"]).unwrap();
    // SAFETY: the list and the entries are alive; strings are literals.
    unsafe {
        let add = |list: &mut Owned, text: &CStr| {
            let mut entry = null_mut();
            assert_eq!(daos_ace_from_str(text.as_ptr(), &mut entry), 0);
            assert!(daos_ace_is_valid(entry));
            assert_eq!(daos_acl_add_ace(&mut list.0, entry), 0);
            daos_ace_free(entry);
        };
        add(&mut list, c"A:G:staff@:r");
        add(&mut list, c"A::alice@:r");
        add(&mut list, c"A::alice@:rw");
        add(&mut list, c"A::al@:r");
        let wanted = ["A::OWNER@:rw", "A::alice@:rw", "A::al@:r", "A:G:staff@:r", "A::EVERYONE@:r"];
        assert_eq!(texts_of(list.0).unwrap(), wanted);

        // A name that begins like another is another.
        let mut found = null_mut();
        let user = USER as u32;
        assert_eq!(daos_acl_get_ace_for_principal(list.0, user, c"al@".as_ptr(), &mut found), 0);
        assert_eq!(CStr::from_ptr(daos_ace_get_principal_str(found)), c"al@");
        let missing = c"alice@x".as_ptr();
        let told = daos_acl_get_ace_for_principal(list.0, user, missing, &mut found);
        assert_eq!(told, -DER_NONEXIST);
        let told = daos_acl_get_ace_for_principal(list.0, user, null(), &mut found);
        assert_eq!(told, -DER_INVAL);
        assert_eq!(daos_acl_get_ace_for_principal(list.0, 9, null(), &mut found), -DER_INVAL);

        let everyone = EVERYONE as u32;
        assert_eq!(daos_acl_remove_ace(&mut list.0, everyone, null()), 0);
        assert_eq!(daos_acl_remove_ace(&mut list.0, everyone, null()), -DER_NONEXIST);
        assert_eq!(daos_acl_remove_ace(&mut list.0, user, c"alice@".as_ptr()), 0);
        assert_eq!(texts_of(list.0).unwrap(), ["A::OWNER@:rw", "A::al@:r", "A:G:staff@:r"]);
        let mut at = null_mut();
        let mut kinds = Vec::new();
        loop {
            at = daos_acl_get_next_ace(list.0, at);
            let Some(head) = at.as_ref() else { break };
            kinds.push(head.dae_principal_type);
        }
        assert_eq!(kinds, [OWNER, USER, GROUP]);
    }
}

#[test]
fn buffers_that_are_too_small_are_told() {
    let mut entry = null_mut();
    let mut buffer = [1 as c_char; 64];
    // SAFETY: the entry is alive, the buffer as long as said.
    unsafe {
        assert_eq!(daos_ace_from_str(c"A::alice@:rw".as_ptr(), &mut entry), 0);
        assert_eq!(daos_ace_to_str(entry, buffer.as_mut_ptr(), 13), 0);
        assert_eq!(CStr::from_ptr(buffer.as_ptr()), c"A::alice@:rw");
        assert_eq!(daos_ace_to_str(entry, buffer.as_mut_ptr(), 12), -DER_TRUNC);
        assert_eq!(CStr::from_ptr(buffer.as_ptr()), c"A::alice@:r");
        assert_eq!(daos_ace_to_str(entry, buffer.as_mut_ptr(), 0), -DER_INVAL);
        let verbose = |text: &CStr, buffer: &mut [c_char]| {
            daos_ace_str_get_verbose(text.as_ptr(), buffer.as_mut_ptr(), buffer.len())
        };
        assert_eq!(verbose(c"UL:GSF:GROUP@:rA", &mut buffer), -DER_TRUNC);
        assert_eq!(verbose(c"A:G:GROUP@:rA", &mut buffer), 0);
        assert_eq!(CStr::from_ptr(buffer.as_ptr()), c"Allow:Group:Owner-Group:Read/Set-ACL");
        assert_eq!(verbose(c"A::EVERYONE@:", &mut buffer), 0);
        assert_eq!(CStr::from_ptr(buffer.as_ptr()), c"Allow::Everyone:No-Access");
        for bad in [c"", c"::a@:r", c"A::a:r", c"A::a@:z", c"A::a@", c"A:Z:a@:r"] {
            assert_eq!(verbose(bad, &mut buffer), -DER_INVAL, "{bad:?}");
        }
        (*entry).dae_audit_perms = 1;
        (*entry).dae_access_types = ALLOW | AUDIT;
        (*entry).dae_access_flags = FLAG_FAIL;
        assert!(daos_ace_is_valid(entry));
        assert_eq!(daos_ace_to_str(entry, buffer.as_mut_ptr(), 64), -DER_INVAL);
        daos_ace_free(entry);
    }
}

#[test]
fn the_users_of_this_machine_are_principals() {
    let (mut name, mut uid, mut gid, mut kind) = (null_mut(), 77, 77, 77);
    // SAFETY: outputs are variables, strings literals.
    unsafe {
        assert_eq!(daos_acl_uid_to_principal(0, &mut name), 0);
        assert_eq!(CStr::from_ptr(name), c"root@");
        assert_eq!(daos_acl_principal_to_uid(name, &mut uid), 0);
        assert_eq!(uid, 0);
        alloc::free(name);
        assert_eq!(daos_acl_gid_to_principal(0, &mut name), 0);
        assert_eq!(daos_acl_principal_to_gid(name, &mut gid), 0);
        assert_eq!(gid, 0);
        alloc::free(name);
        let nobody = c"no-such-user-anywhere@".as_ptr();
        assert_eq!(daos_acl_principal_to_uid(nobody, &mut uid), -DER_NONEXIST);
        assert_eq!(daos_acl_principal_to_gid(nobody, &mut gid), -DER_NONEXIST);
        assert_eq!(daos_acl_uid_to_principal(4_000_000_123, &mut name), -DER_NONEXIST);
        assert_eq!(daos_acl_principal_to_uid(c"root".as_ptr(), &mut uid), -DER_INVAL);

        let mut read = |text: &CStr| {
            let told = daos_acl_principal_from_str(text.as_ptr(), &mut kind, &mut name);
            if told != 0 {
                return Err(told);
            }
            let text = (!name.is_null()).then(|| CStr::from_ptr(name).to_owned());
            alloc::free(name);
            Ok((kind, text))
        };
        assert_eq!(read(c"u:bob@"), Ok((1, Some(c"bob@".into()))));
        assert_eq!(read(c"g:staff@x"), Ok((3, Some(c"staff@x".into()))));
        assert_eq!(read(c"OWNER@"), Ok((0, None)));
        assert_eq!(read(c"GROUP@"), Ok((2, None)));
        assert_eq!(read(c"EVERYONE@"), Ok((4, None)));
        for bad in [c"", c"bob@", c"u:bob", c"u:", c"x:bob@"] {
            assert_eq!(read(bad), Err(-DER_INVAL));
        }
    }
}

#[test]
fn null_is_told_as_such() {
    let mut list = null_mut();
    // SAFETY: NULL is what is tested.
    unsafe {
        assert!(daos_acl_create(null_mut(), 1).is_null());
        let empty = Owned(daos_acl_create(null_mut(), 0));
        assert_eq!(daos_acl_validate(empty.0), 0);
        assert!(daos_acl_get_next_ace(empty.0, null_mut()).is_null());
        let (mut array, mut count) = (null_mut(), 7);
        assert_eq!(daos_acl_to_strs(empty.0, &mut array, &mut count), 0);
        assert!(array.is_null() && count == 0);
        assert!(daos_acl_dup(null_mut()).is_null());
        assert_eq!(daos_acl_get_size(null_mut()), -DER_INVAL as isize);
        assert_eq!(daos_ace_get_size(null_mut()), -DER_INVAL as isize);
        assert_eq!(daos_acl_validate(null_mut()), -DER_INVAL);
        assert_eq!(daos_acl_add_ace(&mut list, null_mut()), -DER_INVAL);
        assert_eq!(daos_acl_remove_ace(null_mut(), 0, null()), -DER_INVAL);
        assert_eq!(daos_acl_from_strs(null(), 1, &mut list), -DER_INVAL);
        assert_eq!(daos_acl_from_strs(&null(), 1, &mut list), -DER_INVAL);
        assert!(daos_ace_create(USER as u32, null()).is_null());
        assert!(daos_ace_create(5, c"a@".as_ptr()).is_null());
        assert!(!daos_ace_is_valid(null_mut()));
        assert!(!daos_acl_principal_is_valid(null()));
        assert!(daos_ace_get_principal_str(null_mut()).is_null());
        assert_eq!(daos_acl_to_stream(null_mut(), null_mut(), false), -DER_INVAL);
        daos_acl_free(null_mut());
        daos_ace_free(null_mut());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Any bytes as a list: told as nonsense or read, never beyond their end.
    #[test]
    fn bytes_from_outside_are_read_within_their_length(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        lengths in prop::collection::vec(0u16..40, 3),
    ) {
        // Some lengths that could be true, so that more than the first entry is reached.
        for (at, length) in lengths.into_iter().enumerate() {
            let at = at * ENTRY_BYTES + 2;
            if bytes.len() > at + 2 {
                bytes[at..at + 2].copy_from_slice(&length.to_ne_bytes());
            }
        }
        let head = daos_acl { dal_ver: VERSION, dal_reserv: 0, dal_len: bytes.len() as u32 };
        let memory: *mut u8 = alloc::array(HEAD_BYTES + bytes.len());
        // SAFETY: the memory is exactly as long as the list says.
        unsafe {
            memory.cast::<daos_acl>().write(head);
            memory.add(HEAD_BYTES).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            let list = Owned(memory.cast());
            let told = daos_acl_validate(list.0);
            prop_assert_eq!(texts_of(list.0).is_ok() && told != 0, false);
            let mut found = null_mut();
            daos_acl_get_ace_for_principal(list.0, USER as u32, c"a@".as_ptr(), &mut found);
            let mut at = daos_acl_get_next_ace(list.0, null_mut());
            while !at.is_null() {
                let end = at as usize + daos_ace_get_size(at) as usize;
                prop_assert!(end <= memory as usize + HEAD_BYTES + bytes.len());
                at = daos_acl_get_next_ace(list.0, at);
            }
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[AULGSFP:@a-z]{0,24}") {
        if let Ok(entry) = text::entry(text.as_bytes()) {
            let written = text::of_entry(&entry).unwrap();
            prop_assert_eq!(text::entry(written.as_bytes()).unwrap(), entry);
            let text = CString::new(written).unwrap();
            let mut buffer = [0 as c_char; 512];
            // SAFETY: the buffer is as long as said.
            let told = unsafe {
                daos_ace_str_get_verbose(text.as_ptr(), buffer.as_mut_ptr(), buffer.len())
            };
            prop_assert_eq!(told, 0);
        }
    }
}
