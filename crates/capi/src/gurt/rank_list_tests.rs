//! Lists of ranks against vectors of numbers.

use super::*;
use crate::gurt::rank_range::*;
use proptest::prelude::*;
use std::ffi::CStr;

/// A list that gives itself back.
struct List(*mut d_rank_list_t);

impl List {
    fn of(numbers: &[u32]) -> List {
        List(make(numbers))
    }

    fn get(&self) -> Vec<u32> {
        // SAFETY: the list is ours.
        unsafe { ranks(self.0) }.to_vec()
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the list is ours and goes now.
        unsafe { d_rank_list_free(self.0) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn lists_do_what_vectors_do(
        one in prop::collection::vec(0u32..20, 0..12),
        other in prop::collection::vec(0u32..20, 0..12),
        rank in 0u32..20,
    ) {
        let (list, more) = (List::of(&one), List::of(&other));
        // SAFETY: the lists are alive, all other pointers are to variables.
        unsafe {
            let mut copy = null_mut();
            prop_assert_eq!(d_rank_list_dup_sort_uniq(&mut copy, list.0), 0);
            let mut uniq = one.clone();
            uniq.sort_unstable();
            uniq.dedup();
            let copy = List(copy);
            prop_assert_eq!(copy.get(), uniq.clone());
            let mut at = -1;
            let present = one.contains(&rank);
            prop_assert_eq!(d_rank_list_bsearch(copy.0, rank, &mut at), present);
            prop_assert_eq!(d_rank_in_rank_list(list.0, rank), present);
            prop_assert_eq!(d_rank_list_find(list.0, rank, &mut at), present);
            let mut index = 0;
            let wanted = one.iter().position(|&each| each == rank);
            let told = d_idx_in_rank_list(list.0, rank, &mut index);
            match wanted {
                Some(wanted) => prop_assert_eq!((told, index as usize, at as usize), (0, wanted, wanted)),
                None => prop_assert_eq!(told, -DER_NONEXIST),
            }
            for exclude in [true, false] {
                let filtered = List::of(&other);
                d_rank_list_filter(list.0, filtered.0, exclude);
                let keep = |rank: &u32| one.contains(rank) != exclude;
                prop_assert_eq!(filtered.get(), other.iter().copied().filter(keep).collect::<Vec<_>>());
            }
            let merged = List::of(&one);
            prop_assert_eq!(d_rank_list_merge(merged.0, more.0), 0);
            let mut wanted = one.clone();
            wanted.extend(other.iter().filter(|rank| !one.contains(rank)));
            prop_assert_eq!(merged.get(), wanted.clone());
            d_rank_list_shuffle(merged.0);
            let unshuffled = List::of(&wanted);
            prop_assert!(d_rank_list_identical(merged.0, unshuffled.0));
            prop_assert_eq!(d_rank_list_append(merged.0, 99), 0);
            prop_assert!(!d_rank_list_identical(merged.0, unshuffled.0));
            prop_assert_eq!(d_rank_list_del(merged.0, 99), 0);
            prop_assert_eq!(d_rank_list_del(merged.0, 98), 0);
            d_rank_list_sort(merged.0);
            wanted.sort_unstable();
            prop_assert_eq!(merged.get(), wanted);
            prop_assert_eq!(d_rank_list_copy(merged.0, more.0), 0);
            prop_assert_eq!(merged.get(), other.clone());
            let mut array = null_mut();
            let mut len = 0;
            prop_assert_eq!(rank_list_to_uint32_array(more.0, &mut array, &mut len), 0);
            let back = List(uint32_array_to_rank_list(array, len));
            alloc::free(array);
            prop_assert_eq!(back.get(), other.clone());

            // The text of a list names its ranks.
            let mut text = null_mut();
            prop_assert_eq!(d_rank_list_to_str(list.0, &mut text), 0);
            let named = CStr::from_ptr(text).to_str().unwrap().to_owned();
            alloc::free(text);
            let inner = named.strip_prefix('[').unwrap().strip_suffix(']').unwrap();
            let mut read = Vec::new();
            for part in inner.split(',').filter(|part| !part.is_empty()) {
                let (lo, hi) = part.split_once('-').unwrap_or((part, part));
                read.extend(lo.parse::<u32>().unwrap()..=hi.parse().unwrap());
            }
            prop_assert_eq!(read, uniq);
            prop_assert_eq!(list.get(), one);
        }
    }
}

#[test]
fn texts_and_ranges() {
    // SAFETY: all strings are literals, all lists are alive.
    unsafe {
        let parse = |text: &CStr| {
            let list = daos_rank_list_parse(text.as_ptr(), c":,".as_ptr());
            (!list.is_null()).then(|| List(list).get())
        };
        assert_eq!(parse(c"0:3:2"), Some(vec![0, 3, 2]));
        assert_eq!(parse(c":4,,5:"), Some(vec![4, 5]));
        for bad in [c"", c":", c"a", c"1:-2", c"4294967296"] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
        let list = List::of(&[7, 1, 2, 3, 3, u32::MAX]);
        let ranges = d_rank_range_list_create_from_ranks(list.0);
        let mut text = null_mut();
        assert_eq!(d_rank_range_list_str(ranges, &mut text), 0);
        assert_eq!(CStr::from_ptr(text), c"[1-3,7,4294967295]");
        alloc::free(text);
        let ranges = d_rank_range_list_realloc(ranges, 4);
        assert_eq!(d_rank_range_list_str(ranges, &mut text), 0);
        assert_eq!(CStr::from_ptr(text), c"[1-3,7,4294967295,0]");
        alloc::free(text);
        assert!(d_rank_range_list_realloc(ranges, 0).is_null());
        d_rank_range_list_free(d_rank_range_list_realloc(null_mut(), 3));
        let eight = List(d_rank_list_alloc(8));
        assert_eq!(eight.get(), (0..8).collect::<Vec<_>>());
        assert_eq!(d_rank_list_dump(eight.0, c"eight".as_ptr(), 5), 0);
        assert_eq!(d_rank_list_dump(eight.0, c"eight".as_ptr(), 4), -DER_INVAL);
        d_rank_list_del_at(eight.0, 8);
        d_rank_list_del_at(eight.0, -1);
        d_rank_list_del_at(eight.0, 7);
        assert_eq!(eight.get(), (0..7).collect::<Vec<_>>());
        assert_eq!(d_rank_list_resize(eight.0, 8), 0);
        assert_eq!(eight.get()[7], 0);
    }
}

#[test]
fn null_is_told_as_such() {
    let none = null_mut();
    // SAFETY: NULL is what is tested.
    unsafe {
        let old = List::of(&[1]);
        let mut copy = old.0;
        assert_eq!(d_rank_list_dup(&mut copy, none), 0);
        assert!(copy.is_null());
        assert_eq!(d_rank_list_dup(null_mut(), old.0), -DER_INVAL);
        assert_eq!(d_rank_list_merge(none, old.0), -DER_INVAL);
        assert_eq!(d_rank_list_merge(old.0, none), 0);
        assert_eq!(d_rank_list_resize(none, 1), -DER_INVAL);
        assert_eq!(d_rank_list_copy(none, old.0), -DER_INVAL);
        assert_eq!(d_rank_list_append(none, 1), -DER_INVAL);
        assert_eq!(d_rank_list_del(none, 1), -DER_INVAL);
        assert!(!d_rank_list_find(none, 1, null_mut()));
        assert!(d_rank_list_identical(none, none));
        assert!(!d_rank_list_identical(none, old.0));
        assert!(daos_rank_list_parse(std::ptr::null(), c":".as_ptr()).is_null());
        d_rank_list_filter(none, old.0, true);
        d_rank_list_sort(none);
        d_rank_list_shuffle(none);
        d_rank_list_free(none);
        d_rank_range_list_free(null_mut());
        assert_eq!(d_rank_range_list_str(null_mut(), null_mut()), -DER_INVAL);
    }
}
