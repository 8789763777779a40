//! What every catalog must do, whatever keeps it: back ends run through [`check`].

use control::{Catalog, Change, Compare, Revision, Versioned};
use futures_executor::block_on;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use types::{Code, Result, hash};

/// Where one catalog is kept.
pub trait Place {
    /// Opens it as the engine of this number, for writing.
    fn open(&self, engine: u32) -> Result<Box<dyn Catalog>>;

    /// False: nothing there keeps a second writer away, as only one is ever made.
    fn has_one_writer(&self) -> bool {
        true
    }
}

/// Runs the contract, each part on a new and empty catalog.
pub fn check(new: impl Fn() -> Box<dyn Place>) {
    for case in [
        commits_compare_and_change_all_or_nothing,
        lists_hold_what_begins_with_the_prefix_in_order,
        prefixes_are_removed_with_what_is_there,
        large_values_and_many_changes_go_through,
        three_hundred_pools_change_at_once,
        what_was_committed_is_there_after_a_restart,
        of_two_writers_one_commits,
        of_decisions_that_overlap_none_is_lost,
        random_commits_do_as_a_map_does,
    ] {
        case(&*new());
    }
}

pub fn put(key: &str, value: &str) -> Change {
    Change::Put(key.into(), value.as_bytes().to_vec())
}

pub fn absent(key: &str) -> Compare {
    Compare { key: key.into(), revision: Revision::ABSENT }
}

pub fn get(catalog: &dyn Catalog, key: &str) -> Option<Versioned> {
    block_on(catalog.get(key)).unwrap()
}

pub fn commit(catalog: &dyn Catalog, compares: &[Compare], changes: &[Change]) -> bool {
    block_on(catalog.commit(compares, changes)).unwrap()
}

/// All that is in it.
pub fn contents(catalog: &dyn Catalog) -> BTreeMap<String, String> {
    let entries = block_on(catalog.list("")).unwrap().into_iter();
    entries.map(|(key, stored)| (key, String::from_utf8(stored.bytes).unwrap())).collect()
}

fn map<const N: usize>(entries: [(&str, &str); N]) -> BTreeMap<String, String> {
    entries.map(|(key, value)| (key.to_string(), value.to_string())).into()
}

fn commits_compare_and_change_all_or_nothing(place: &dyn Place) {
    let catalog = &*place.open(1).unwrap();
    assert_eq!(get(catalog, "a"), None);
    assert!(commit(catalog, &[absent("a")], &[put("a", "1"), put("b", "1")]));
    assert!(!commit(catalog, &[absent("a")], &[put("a", "2"), put("c", "2")]));
    let a = get(catalog, "a").unwrap();
    assert_eq!(a.bytes, b"1");
    let held = Compare { key: "a".into(), revision: a.revision };
    assert!(!commit(catalog, &[held.clone(), absent("b")], &[put("a", "3")]));
    assert!(commit(catalog, std::slice::from_ref(&held), &[put("a", "4")]));
    assert!(!commit(catalog, &[held], &[put("a", "5")]));
    let newer = get(catalog, "a").unwrap();
    assert!(newer.revision > a.revision);
    // A key that went and came back is not the one that was read.
    assert!(commit(catalog, &[], &[Change::Delete("a".into()), Change::Delete("none".into())]));
    assert!(commit(catalog, &[absent("a")], &[put("a", "4")]));
    let held = Compare { key: "a".into(), revision: newer.revision };
    assert!(!commit(catalog, &[held], &[put("a", "6")]));
    assert_eq!(contents(catalog), map([("a", "4"), ("b", "1")]));
    // Nothing to change: the comparisons alone decide.
    assert!(commit(catalog, &[absent("c")], &[]));
    assert!(!commit(catalog, &[absent("b")], &[]));
    // Values are any bytes.
    let raw: Vec<u8> = (0..=255).collect();
    assert!(commit(catalog, &[], &[Change::Put("raw".into(), raw.clone()), put("none", "")]));
    assert_eq!(get(catalog, "raw").unwrap().bytes, raw);
    assert_eq!(get(catalog, "none").unwrap().bytes, b"");
}

fn lists_hold_what_begins_with_the_prefix_in_order(place: &dyn Place) {
    let catalog = &*place.open(1).unwrap();
    let keys = ["p/2", "p", "p/", "p/1", "p0", "o/9", "p/\u{10ffff}"];
    assert!(commit(catalog, &[], &keys.map(|key| put(key, key))));
    let listed = block_on(catalog.list("p/")).unwrap();
    let listed: Vec<&str> = listed.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(listed, ["p/", "p/1", "p/2", "p/\u{10ffff}"]);
    assert_eq!(block_on(catalog.list("")).unwrap().len(), keys.len());
    assert!(block_on(catalog.list("zz")).unwrap().is_empty());
    // A page of an answer is not all of it.
    let many: Vec<Change> = (0..2500).map(|n| put(&format!("many/{n:04}"), "")).collect();
    for part in many.chunks(500) {
        assert!(commit(catalog, &[], part));
    }
    let listed = block_on(catalog.list("many/")).unwrap();
    assert!(
        listed.iter().map(|(key, _)| key.clone()).eq((0..2500).map(|n| format!("many/{n:04}")))
    );
}

fn prefixes_are_removed_with_what_is_there(place: &dyn Place) {
    let catalog = &*place.open(1).unwrap();
    let keys = ["a", "a/", "a/1", "a/2", "a0", "b/1"];
    assert!(commit(catalog, &[], &keys.map(|key| put(key, "1"))));
    let gone = |prefix: &str| Change::DeletePrefix(prefix.into());
    assert!(!commit(catalog, &[absent("a")], &[gone("a/")]));
    assert_eq!(contents(catalog).len(), keys.len());
    assert!(commit(catalog, &[], &[put("a", "2"), gone("a/"), gone("none/")]));
    assert_eq!(contents(catalog), map([("a", "2"), ("a0", "1"), ("b/1", "1")]));
}

fn large_values_and_many_changes_go_through(place: &dyn Place) {
    let catalog = &*place.open(1).unwrap();
    let large = "0123456789abcdef".repeat(64 << 10);
    assert!(commit(catalog, &[], &[put("large", &large), put("beside", "it")]));
    assert!(get(catalog, "large").unwrap().bytes == large.as_bytes());
    let many: Vec<Change> = (0..1000).map(|n| put(&format!("many/{n}"), "x")).collect();
    assert!(commit(catalog, &[absent("many/7")], &many));
    assert_eq!(block_on(catalog.list("many/")).unwrap().len(), many.len());
    assert!(!commit(catalog, &[absent("many/7")], &many));
    let compares: Vec<Compare> = (0..120).map(|n| absent(&format!("none/{n}"))).collect();
    assert!(commit(catalog, &compares, &[put("compared", "x")]));
}

/// An engine that leaves changes the maps of all its pools at once. In etcd that ended at about 120 pools: it takes 128
/// comparisons in a transaction, and as many changes.
fn three_hundred_pools_change_at_once(place: &dyn Place) {
    const POOLS: usize = 300;
    let catalog = &*place.open(1).unwrap();
    let keys: Vec<String> = (0..POOLS).map(|pool| format!("pool/{pool:08x}")).collect();
    let map = |round: usize| move |key: &String| put(key, &format!("{round} ").repeat(400));
    let held = || -> Vec<Compare> {
        let all = block_on(catalog.list("pool/")).unwrap().into_iter();
        all.map(|(key, stored)| Compare { key, revision: stored.revision }).collect()
    };
    let absent: Vec<Compare> = keys.iter().map(|key| absent(key)).collect();
    let changes = |round: usize| -> Vec<Change> {
        keys.iter().map(map(round)).chain([put("system", &round.to_string())]).collect()
    };
    assert!(commit(catalog, &absent, &changes(0)));
    assert!(!commit(catalog, &absent, &changes(1)), "they are there now");
    for round in 1..4 {
        assert!(commit(catalog, &held(), &changes(round)));
    }
    // One that has changed is enough, the first as well as the last.
    for at in [0, 1, 59, 60, 61, 150, 239, 240, 241, POOLS - 1] {
        let before = held();
        assert_eq!(before.len(), POOLS);
        let other = put(&keys[at], "another's");
        assert!(commit(catalog, &before[at..at + 1], std::slice::from_ref(&other)));
        assert!(!commit(catalog, &before, &changes(9)), "pool {at} has changed");
    }
    assert_eq!(get(catalog, "system").unwrap().bytes, b"3");
    assert!(commit(catalog, &held(), &[]));
    assert!(commit(catalog, &held(), &changes(4)));
    assert!(
        block_on(catalog.list("pool/")).unwrap().iter().all(|(_, stored)| stored.bytes[0] == b'4')
    );
}

fn what_was_committed_is_there_after_a_restart(place: &dyn Place) {
    let mut last = Revision::ABSENT;
    for round in 0..5 {
        let catalog = place.open(1).unwrap();
        let found = get(&*catalog, "round");
        assert_eq!(found.as_ref().map_or(Revision::ABSENT, |found| found.revision), last);
        assert_eq!(found.map(|found| found.bytes), (round > 0).then(|| vec![round]));
        let held = Compare { key: "round".into(), revision: last };
        assert!(commit(&*catalog, &[held], &[Change::Put("round".into(), vec![round + 1])]));
        let now = get(&*catalog, "round").unwrap().revision;
        assert!(now > last);
        last = now;
    }
}

fn of_two_writers_one_commits(place: &dyn Place) {
    if !place.has_one_writer() {
        return;
    }
    let mut writer = place.open(1).unwrap();
    let mut value = 0;
    // Another engine; and the same one, which started again while its former self goes on.
    for engine in [2, 1, 1, 2] {
        value += 1;
        let now = value.to_string();
        match place.open(engine) {
            Err(error) => assert_eq!(error.code, Code::Busy, "{error}"),
            Ok(newer) => {
                let late = block_on(writer.commit(&[], &[put("late", &now)])).unwrap_err();
                assert_eq!(late.code, Code::Busy, "{late}");
                // It never may again.
                let late = block_on(writer.commit(&[], &[put("late", &now)])).unwrap_err();
                assert_eq!(late.code, Code::Busy, "{late}");
                writer = newer;
            }
        }
        assert!(commit(&*writer, &[], &[put("value", &now)]));
        assert_eq!(contents(&*writer), map([("value", &now)]));
    }
}

fn of_decisions_that_overlap_none_is_lost(place: &dyn Place) {
    let catalog = &*place.open(1).unwrap();
    let add = |_| async move {
        for _ in 0..10 {
            loop {
                let found = catalog.get("sum").await.unwrap();
                let sum = found.as_ref().map_or(0, |found| found.bytes[0]);
                let revision = found.map_or(Revision::ABSENT, |found| found.revision);
                let held = Compare { key: "sum".into(), revision };
                let change = Change::Put("sum".into(), vec![sum + 1]);
                if catalog.commit(&[held], &[change]).await.unwrap() {
                    break;
                }
            }
        }
    };
    block_on(join_all((0..4).map(add)));
    assert_eq!(get(catalog, "sum").unwrap().bytes, [40]);
}

/// The catalog is compared with a map that keeps the number of each key's last write.
fn random_commits_do_as_a_map_does(place: &dyn Place) {
    let mut model: BTreeMap<String, (u64, Revision)> = BTreeMap::new();
    let mut catalog = place.open(1).unwrap();
    let (mut done, mut refused) = (0, 0);
    for step in 0..200u64 {
        let word = |what: u64| hash::mix2(step, what);
        let key = |what: u64| format!("{}/{}", word(what) % 2, word(what) / 2 % 6);
        if word(0).is_multiple_of(40) {
            drop(catalog);
            catalog = place.open(1).unwrap();
        }
        let read = |key: &String| model.get(key).map_or(Revision::ABSENT, |(_, at)| *at);
        let mut compares: Vec<Compare> = (1..1 + word(9) % 3)
            .map(|what| Compare { key: key(what), revision: read(&key(what)) })
            .collect();
        let is_stale = word(10).is_multiple_of(3) && !compares.is_empty();
        if is_stale {
            compares[0].revision = Revision(compares[0].revision.0 + 1);
        }
        let mut changes = BTreeMap::new();
        for what in 20..20 + word(11) % 4 {
            let value = word(what).is_multiple_of(4).then_some(step);
            changes.insert(key(what), value);
        }
        let gone = word(12).is_multiple_of(16).then(|| "0/".to_string());
        changes.retain(|key, _| gone.as_ref().is_none_or(|gone| !key.starts_with(gone)));
        let all: Vec<Change> = changes
            .iter()
            .map(|(key, value)| match value {
                Some(value) => put(key, &value.to_string()),
                None => Change::Delete(key.clone()),
            })
            .chain(gone.clone().map(Change::DeletePrefix))
            .collect();
        assert_eq!(commit(&*catalog, &compares, &all), !is_stale, "step {step}");
        if is_stale {
            refused += 1;
        } else {
            done += 1;
            model.retain(|key, _| gone.as_ref().is_none_or(|gone| !key.starts_with(gone)));
            for (key, value) in changes {
                match value {
                    Some(value) => model.insert(key, (value, Revision(u64::MAX))),
                    None => model.remove(&key),
                };
            }
        }
        let found = block_on(catalog.list("")).unwrap();
        let values =
            found.iter().map(|(key, stored)| (key, String::from_utf8_lossy(&stored.bytes)));
        let wanted = model.iter().map(|(key, (value, _))| (key, value.to_string()));
        assert!(values.eq(wanted.map(|(key, value)| (key, value.into()))), "step {step}");
        for (key, stored) in found {
            let (_, at) = model.get_mut(&key).unwrap();
            let is_new = *at == Revision(u64::MAX);
            assert!(is_new || *at == stored.revision, "step {step}: {key}");
            *at = stored.revision;
        }
    }
    assert!(done > 100 && refused > 20, "{done} done, {refused} refused");
}
