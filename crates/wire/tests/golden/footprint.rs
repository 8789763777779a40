//! What each operation is said to touch.

use crate::samples::ops::{UNIT, ops};
use std::collections::BTreeMap;
use types::Unit;
use wire::footprint::{Brings, Changes, Extent, Footprint, Opens, Reads};
use wire::obj::{Cond, Op};

/// Of each sample: kind, what it changes, what it reads, how much of the unit that is; then what else there is to say. Frozen: locks, what is in memory
/// before an operation runs, and what waits for stable storage follow from it.
const TOLD: &[(&str, &str)] = &[
    ("update.inline", "update, dkey, nothing, dkey 'dkey', needs object, takes room"),
    ("update.single", "update, dkey, nothing, dkey 'dkey', needs object, takes room"),
    ("update.array", "update, dkey, nothing, dkey 'dkey', needs object, takes room"),
    ("update.zero", "update, dkey, nothing, dkey 'dkey', needs object, takes room"),
    ("update.punch_records", "update, dkey, nothing, dkey 'dkey', needs object, takes room"),
    ("update.coded", "update, dkey, nothing, dkey 'dkey', needs object, takes room"),
    ("fetch.single", "fetch, nothing, dkey, dkey 'dkey'"),
    ("fetch.array", "fetch, nothing, dkey, dkey 'dkey'"),
    ("fetch.probe", "fetch, nothing, dkey, dkey 'dkey'"),
    ("fetch.sparse", "fetch, nothing, dkey, dkey 'dkey'"),
    ("punch_obj", "punch, all, nothing, all"),
    ("punch_dkeys", "punch, dkeys, nothing, dkeys 'one' ''"),
    ("punch_dkeys_from", "punch, dkeys from 17, nothing, all"),
    ("punch_akeys", "punch, akeys 'a' 'b', nothing, dkey 'dkey'"),
    ("list.dkeys", "list, nothing, list, all, follows, walks, lists 10"),
    ("list.dkeys_bare", "list, nothing, list, all, walks, lists 10"),
    ("list.akeys", "list, nothing, list, dkey 'dkey', walks, lists 10"),
    ("list.recxs", "list, nothing, list, dkey 'dkey', walks, lists 10"),
    ("query", "query, nothing, query, all"),
    ("stat", "query, nothing, facts, all"),
    ("fetch_link", "lookup, nothing, link, dkey 'd', opens linked, follows"),
    ("remove_link", "remove, dkey, link to free, dkey 'd', is replaced, follows"),
    ("open", "open, nothing, existence, existence, opens own"),
    ("punch_unless_open", "punch, all, reach, all, is replaced"),
    ("append", "append, unnamed, end, all, takes room, is replaced"),
    ("list_runs", "list, nothing, runs, all, walks"),
    ("adopt", "open, unnamed, nothing, all, is replaced"),
    ("free_closed", "punch, unnamed, nothing, all, is replaced"),
];

fn named(what: &str, keys: &[&serde_bytes::Bytes]) -> String {
    let keys: Vec<_> = keys.iter().map(|key| format!("'{}'", key.escape_ascii())).collect();
    format!("{what} {}", keys.join(" "))
}

fn told(at: &Footprint<'_>) -> String {
    let changes = match at.changes {
        Changes::Nothing => "nothing".into(),
        Changes::Dkey(_) => "dkey".into(),
        Changes::Akeys { akeys, .. } => named("akeys", akeys),
        Changes::Dkeys(_) => "dkeys".into(),
        Changes::DkeysFrom(from) => format!("dkeys from {from}"),
        Changes::All => "all".into(),
        Changes::Unnamed => "unnamed".into(),
    };
    let reads = match at.reads {
        Reads::Nothing => "nothing",
        Reads::Dkey(_) => "dkey",
        Reads::Link { frees: false, .. } => "link",
        Reads::Link { frees: true, .. } => "link to free",
        Reads::List { .. } => "list",
        Reads::Runs { .. } => "runs",
        Reads::Query { .. } => "query",
        Reads::Facts => "facts",
        Reads::Existence => "existence",
        Reads::Reach => "reach",
        Reads::End => "end",
    };
    let extent = match at.extent() {
        Extent::Nothing => "nothing".into(),
        Extent::Existence => "existence".into(),
        Extent::Dkey(dkey) => named("dkey", &[serde_bytes::Bytes::new(dkey)]),
        Extent::Dkeys(dkeys) => named("dkeys", dkeys),
        Extent::All => "all".into(),
    };
    let mut told = vec![at.kind.name().to_string(), changes, reads.into(), extent];
    let lists = format!("lists {}", at.listed_bytes_max());
    for (is_so, what) in [
        (at.needs_object, "needs object"),
        (at.takes_room(), "takes room"),
        (at.is_replaced, "is replaced"),
        (at.opens == Opens::Own, "opens own"),
        (at.opens == Opens::Linked, "opens linked"),
        (at.follows(), "follows"),
        (at.walks(), "walks"),
        (at.listed_bytes_max() > 0, &lists[..]),
    ] {
        if is_so {
            told.push(what.into());
        }
    }
    told.join(", ")
}

#[test]
fn footprints_are_the_frozen_ones() {
    let made: BTreeMap<_, _> =
        ops().iter().map(|(name, op)| (*name, told(&op.footprint()))).collect();
    let frozen: BTreeMap<_, _> =
        TOLD.iter().map(|(name, told)| (*name, told.to_string())).collect();
    assert_eq!(made, frozen);
}

#[test]
fn what_an_operation_reads_of_its_unit_lies_within_what_it_changes() {
    for (name, op) in ops() {
        let at = op.footprint();
        assert_eq!(at.is_write(), op.is_write(), "{name}");
        // Values that come with nothing to change would be lost.
        assert!(at.is_write() || (at.brings == Brings::Nothing && !at.is_replaced), "{name}");
        if !at.is_write() {
            assert_ne!(at.extent(), Extent::Nothing, "{name}");
            continue;
        }
        match (at.reads.extent(), at.extent()) {
            (Extent::Nothing | Extent::Existence, _) | (_, Extent::All) => {}
            (Extent::Dkey(read), Extent::Dkey(changed)) => assert_eq!(read, changed, "{name}"),
            (read, changed) => panic!("{name}: {read:?} is not within {changed:?}"),
        }
    }
}

#[test]
fn an_operation_on_another_unit_is_the_same_otherwise() {
    let other = Unit { group: 7, cell: 1, ..Unit::NIL };
    for (name, op) in ops() {
        let mut moved = op.clone();
        moved.set_unit(other);
        assert_eq!((op.unit(), moved.unit()), (UNIT, other), "{name}");
        assert_eq!(moved.footprint(), Footprint { unit: other, ..op.footprint() }, "{name}");
        moved.set_unit(UNIT);
        assert_eq!(moved, op, "{name}");
    }
}

#[test]
fn conditions_on_the_object_need_it_whatever_else_is_asked() {
    let mut seen = 0;
    for (name, mut op) in ops() {
        for asked in [Cond::OBJ_EXISTS, Cond(!Cond::OBJ_EXISTS.0), Cond(u16::MAX)] {
            match &mut op {
                Op::Update { cond, .. }
                | Op::Fetch { cond, .. }
                | Op::PunchObj { cond, .. }
                | Op::PunchDkeys { cond, .. }
                | Op::PunchAkeys { cond, .. } => *cond = asked,
                _ => continue,
            }
            assert_eq!(op.footprint().needs_object, asked.has(Cond::OBJ_EXISTS), "{name}");
            seen += 1;
        }
    }
    assert_eq!(seen, 3 * 13);
}
