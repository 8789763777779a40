//! Property lists: made, read, merged, answered, and nonsense.

use super::abi::*;
use super::*;
use crate::errno::{DER_MISMATCH, DER_NONEXIST};
use proptest::prelude::*;
use std::ptr::{null, null_mut};

/// A list that gives itself back.
struct List(*mut daos_prop_t);

impl List {
    fn of(values: &[(u32, Value)]) -> List {
        let list = List(daos_prop_alloc(values.len() as u32));
        // SAFETY: the list is ours.
        for (entry, (property, value)) in unsafe { entries(list.0) }.iter_mut().zip(values) {
            entry.dpe_type = *property;
            put(entry, value).unwrap();
        }
        list
    }

    fn read(&self, of_pool: bool) -> Outcome<Vec<(u32, Value)>> {
        // SAFETY: the list is ours.
        unsafe { super::read(self.0, of_pool) }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the list is ours and goes now.
        unsafe { daos_prop_free(self.0) }
    }
}

fn samples() -> Vec<(u32, Value)> {
    vec![
        (cont::LABEL, Value::Text("mine".into())),
        (cont::REDUN_FAC, Value::Number(2)),
        (cont::ACL, Value::Acl(vec!["A::OWNER@:rw".into(), "A::EVERYONE@:r".into()])),
        (cont::OWNER, Value::Text("alice@".into())),
        (cont::ROOTS, Value::Roots([(1, 2), (3, 4), (0, 0), (u64::MAX, 5)])),
    ]
}

#[test]
fn values_go_in_and_out() {
    let list = List::of(&samples());
    assert_eq!(list.read(false).unwrap(), samples());
    assert_eq!(list.read(true), Err(DER_INVAL));
    let ranks =
        [(pool::SVC_LIST, Value::Ranks(vec![3, 1])), (pool::LABEL, Value::Text("p".into()))];
    assert_eq!(List::of(&ranks).read(true).unwrap(), ranks);
    // SAFETY: the list is alive.
    unsafe {
        let copy = List(daos_prop_dup(list.0, false, true));
        assert_eq!(copy.read(false).unwrap(), samples());
        assert!(daos_prop_dup(list.0, true, true).is_null());
        assert!(daos_prop_valid(list.0, false, true));
        // What is not set is not copied.
        (*daos_prop_entry_get(copy.0, cont::ACL)).dpe_flags |= NOT_SET;
        let fewer = List(daos_prop_dup(copy.0, false, true));
        assert_eq!(fewer.read(false).unwrap().len(), samples().len() - 1);
        let acl = |list: &List| daos_prop_entry_get(list.0, cont::ACL);
        assert_eq!(daos_prop_entry_cmp_acl(acl(&list), acl(&copy)), 0);
        let label = daos_prop_entry_get(list.0, cont::LABEL);
        assert_eq!(daos_prop_entry_cmp_acl(acl(&list), label), -DER_INVAL);
        let other = List::of(&[(cont::ACL, Value::Acl(vec!["A::OWNER@:r".into()]))]);
        assert_eq!(daos_prop_entry_cmp_acl(acl(&list), acl(&other)), -DER_MISMATCH);
        assert_eq!(daos_prop_entry_copy(acl(&list), acl(&other)), 0);
        assert_eq!(daos_prop_entry_cmp_acl(acl(&list), acl(&other)), 0);
    }
}

#[test]
fn later_entries_win_a_merge() {
    let old = List::of(&samples());
    let new =
        List::of(&[(cont::LABEL, Value::Text("yours".into())), (cont::CSUM, Value::Number(3))]);
    // SAFETY: the lists are alive.
    let merged = unsafe { List(daos_prop_merge(old.0, new.0)) };
    let mut wanted = samples();
    wanted[0].1 = Value::Text("yours".into());
    wanted.push((cont::CSUM, Value::Number(3)));
    assert_eq!(merged.read(false).unwrap(), wanted);
    // SAFETY: the lists are alive; NULL is told.
    unsafe {
        let empty = List(daos_prop_alloc(0));
        let both = List(daos_prop_merge(empty.0, empty.0));
        assert_eq!((*both.0).dpp_nr, 0);
        assert!(daos_prop_merge(null_mut(), new.0).is_null());
        assert_eq!(daos_prop_merge2(old.0, null_mut(), &mut null_mut()), -DER_INVAL);
    }
}

#[test]
fn queries_fill_in_what_was_asked_for() {
    let known = samples();
    // SAFETY: the lists are alive.
    unsafe {
        // By type; what is not known is marked.
        let asked = List(daos_prop_alloc(2));
        entries(asked.0)[0].dpe_type = cont::OWNER;
        entries(asked.0)[1].dpe_type = cont::EC_PDA;
        answer(asked.0, &known).unwrap();
        assert_eq!(asked.read(false).unwrap(), [known[3].clone()]);
        assert_eq!(entries(asked.0)[1].dpe_flags, NOT_SET);
        // Everything, into a list without entries.
        let all = List(daos_prop_alloc(0));
        answer(all.0, &known).unwrap();
        assert_eq!(all.read(false).unwrap(), known);
        // Everything, as far as entries without a type reach.
        let some = List(daos_prop_alloc(3));
        answer(some.0, &known).unwrap();
        assert_eq!(some.read(false).unwrap(), known[..3]);
        let more = List(daos_prop_alloc(9));
        answer(more.0, &known).unwrap();
        assert_eq!(entries(more.0)[5].dpe_type, 0);
        let copied = List(daos_prop_alloc(0));
        assert_eq!(daos_prop_copy(copied.0, all.0), 0);
        assert_eq!(copied.read(false).unwrap(), known);
        assert_eq!(daos_prop_copy(copied.0, null_mut()), -DER_INVAL);
        assert_eq!(answer(null_mut(), &known), Err(DER_INVAL));
        // A value that cannot be made leaves nothing behind.
        let bad = [known[0].clone(), (cont::ACL, Value::Acl(vec!["nonsense".into()]))];
        let list = List(daos_prop_alloc(0));
        assert_eq!(answer(list.0, &bad), Err(DER_INVAL));
        assert!((*list.0).dpp_entries.is_null());
    }
}

#[test]
fn values_are_set_by_type() {
    let list = List::of(&samples());
    // SAFETY: the list is alive; strings are literals.
    unsafe {
        let set = |property, text: &std::ffi::CStr, len| {
            daos_prop_set_str(list.0, property, text.as_ptr(), len)
        };
        assert_eq!(set(cont::LABEL, c"longer", 4), 0);
        assert_eq!(list.read(false).unwrap()[0].1, Value::Text("long".into()));
        assert_eq!(set(cont::REDUN_FAC, c"1", 1), -DER_INVAL);
        assert_eq!(set(cont::CSUM, c"1", 1), -DER_NONEXIST);
        assert_eq!(daos_prop_set_str(list.0, cont::LABEL, null(), 0), 0);
        assert_eq!(list.read(false), Err(DER_INVAL));
        assert_eq!(set(cont::LABEL, c"ok", 100), 0);
        let roots = daos_prop_co_roots { cr_oids: [daos_obj_id_t { lo: 7, hi: 8 }; 4] };
        let size = size_of_val(&roots) as u64;
        let told = daos_prop_set_ptr(list.0, cont::ROOTS, (&raw const roots).cast(), size);
        assert_eq!(told, 0);
        assert_eq!(list.read(false).unwrap()[4].1, Value::Roots([(8, 7); 4]));
        let told = daos_prop_set_ptr(list.0, cont::LABEL, (&raw const roots).cast(), size);
        assert_eq!(told, -DER_INVAL);
        let roots = daos_prop_entry_get(list.0, cont::ROOTS);
        let other = List::of(&[(cont::ROOTS, Value::Roots([(0, 0); 4]))]);
        let place = daos_prop_entry_get(other.0, cont::ROOTS);
        assert_eq!(daos_prop_entry_dup_co_roots(place, roots), 0);
        assert_eq!(other.read(false).unwrap()[0].1, Value::Roots([(8, 7); 4]));
        assert!(daos_prop_has_str(daos_prop_entry_get(list.0, cont::OWNER)));
        assert!(daos_prop_has_ptr(roots) && !daos_prop_has_str(roots));
        assert!(!daos_prop_has_byteval(roots));
        assert_eq!(daos_prop_set_byteval(list.0, cont::LABEL, null(), 0), -DER_INVAL);
        assert_eq!(daos_prop_set_byteval(list.0, cont::CSUM, null(), 0), -DER_NONEXIST);
        assert_eq!(daos_prop_entry_set_byteval(roots, null(), 0), -DER_INVAL);
    }
}

#[test]
fn texts_become_lists() {
    let parse = |text: &str| {
        let mut list = null_mut();
        // SAFETY: the text is as long as said.
        let told =
            unsafe { daos_prop_from_str(text.as_ptr().cast(), text.len() as u64, &mut list) };
        if told == 0 { List(list).read(false).map_err(|der| -der) } else { Err(told) }
    };
    let text = "label:mine;cksum:crc64;rd_fac:2;srv_cksum:on;ec_cell_sz:0x10000;dedup:off;";
    let number = |property, number| (property, Value::Number(number));
    let wanted = [
        (cont::LABEL, Value::Text("mine".into())),
        number(cont::CSUM, 3),
        number(cont::REDUN_FAC, 2),
        number(cont::CSUM_SERVER_VERIFY, 1),
        number(cont::EC_CELL_SZ, 65_536),
        number(cont::DEDUP, 0),
    ];
    assert_eq!(parse(text).unwrap(), wanted);
    assert_eq!(parse("rf:4").unwrap(), [number(cont::REDUN_FAC, 4)]);
    assert_eq!(parse("compression:lz4").unwrap(), [number(cont::COMPRESS, 1)]);
    for bad in [
        "",
        ";",
        "label",
        "label:",
        "rd_fac:5",
        "rd_fac:-1",
        "cksum:md5",
        "owner:me",
        "color:red",
        "layout_type:posix",
        "ec_cell_sz:12k",
        "label:a b",
        "rf:1;rf:2",
    ] {
        assert_eq!(parse(bad), Err(-DER_INVAL), "{bad}");
    }
    let many = "rf:1;".repeat(129);
    assert_eq!(parse(&many), Err(-DER_INVAL));
}

#[test]
fn nonsense_is_told_as_such() {
    assert!(daos_prop_alloc(129).is_null());
    // SAFETY: the lists are alive; NULL is what is tested.
    unsafe {
        daos_prop_free(null_mut());
        daos_prop_fini(null_mut());
        assert!(daos_prop_entry_get(null_mut(), 1).is_null());
        assert!(!daos_prop_valid(null_mut(), true, true));
        assert!(!daos_prop_has_str(null_mut()));
        assert_eq!(daos_prop_set_str(null_mut(), 1, null(), 0), -DER_NONEXIST);
        assert_eq!(daos_prop_entry_set_str(null_mut(), null(), 0), -DER_INVAL);
        assert_eq!(daos_prop_entry_set_ptr(null_mut(), null(), 0), -DER_INVAL);
        assert_eq!(daos_prop_entry_dup_ptr(null_mut(), null_mut(), 1), -DER_INVAL);
        assert_eq!(daos_prop_entry_dup_byteval(null_mut(), null_mut()), -DER_INVAL);
        assert_eq!(daos_prop_entry_copy(null_mut(), null_mut()), -DER_INVAL);
        assert_eq!(daos_prop_from_str(null(), 3, &mut null_mut()), -DER_INVAL);
        assert_eq!(super::read(null(), false), Ok(Vec::new()));
    }
    for (property, number) in [
        (cont::REDUN_FAC, 5),
        (cont::REDUN_LVL, 0),
        (cont::LAYOUT_TYPE, 10),
        (cont::CSUM, 8),
        (cont::DEDUP_THRESHOLD, 10),
        (cont::STATUS, 2 << 32),
        (cont::MIN, 0),
        (cont::MAX, 0),
        (7, 0),
    ] {
        let list = List(daos_prop_alloc(1));
        // SAFETY: the list is alive. A number as a pointer is never followed: the type is refused.
        unsafe {
            entries(list.0)[0].dpe_type = property;
            entries(list.0)[0].value.dpe_val = number;
        }
        assert_eq!(list.read(false), Err(DER_INVAL), "{property:#x}");
        // SAFETY: as above.
        unsafe { entries(list.0)[0].value.dpe_val = 0 };
    }
    let uuid = "67e55044-10b1-426f-9247-bb680e5fe0c8";
    for label in ["", "a/b", uuid, &"x".repeat(128)] {
        let list = List::of(&[(cont::LABEL, Value::Text(label.into()))]);
        assert_eq!(list.read(false), Err(DER_INVAL), "{label}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "[a-z_:;0-9x]{0,40}") {
        if let Ok(values) = text::parse(&text) {
            prop_assert!(!values.is_empty());
            let list = List::of(&values);
            // SAFETY: the list is alive.
            let found: Vec<_> = unsafe { entries(list.0) }.iter().map(|e| e.dpe_type).collect();
            prop_assert_eq!(found, values.iter().map(|value| value.0).collect::<Vec<_>>());
        }
    }
}
