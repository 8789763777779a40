//! Containers and their object numbers.

use crate::cases_handles::{RW, ask};
use crate::fake::{OID_FIRST, System, WALL_S, create_cont, destroy_cont, label};
use control::{Catalog, Change};
use std::collections::BTreeMap;
use types::{Code, ContId, ContLayout, ContProps, PoolId, Rank, TargetId};
use uuid::Uuid;
use wire::control::{ControlReply, ControlRequest as R, Name, TargetAim};

fn with_props(props: ContProps) -> R {
    with_props_named("home", props)
}

fn with_props_named(name: &str, props: ContProps) -> R {
    R::ContCreate {
        pool: label("tank"),
        label: name.to_string(),
        uuid: Uuid::nil(),
        props,
        attrs: BTreeMap::new(),
    }
}

fn with_uuid(name: &str, uuid: Uuid) -> R {
    R::ContCreate {
        pool: label("tank"),
        label: name.to_string(),
        uuid,
        props: ContProps::default(),
        attrs: BTreeMap::from([("user.note".to_string(), b"first".to_vec())]),
    }
}

fn alloc(pool: PoolId, cont: ContId, count: u64) -> R {
    R::AllocOids { pool, cont, count }
}

#[test]
fn a_container_is_what_was_asked_for() {
    let system = System::new(2);
    let pool = system.pool("tank");
    let props = ContProps {
        layout: ContLayout::Posix,
        file_oclass: "SX".parse().unwrap(),
        chunk_bytes: 12 << 10,
        ..ContProps::default()
    };
    let ControlReply::Cont(cont) = system.run(with_props(props.clone())).unwrap() else {
        panic!("not a container");
    };
    assert_eq!((cont.id, cont.label.as_str(), &cont.props), (ContId(1), "home", &props));
    assert_eq!(cont.created_ns, 1_700_000_000_000_000_000);
    for name in [label("home"), Name::Uuid(cont.uuid)] {
        let found = system.run(R::ContQuery(Name::Uuid(pool.uuid), name)).unwrap();
        assert_eq!(found, ControlReply::Cont(cont.clone()));
    }
    assert_eq!(system.conts(&label("tank")), [cont]);
    system.assert_in_step();
}

#[test]
fn labels_and_uuids_are_unique_in_a_pool_and_free_in_another() {
    let system = System::new(1);
    system.pool("tank");
    system.pool("other");
    let uuid = Uuid::from_u128(77);
    system.run(with_uuid("home", uuid)).unwrap();
    assert_eq!(system.fails(create_cont("tank", "home"), "choose another"), Code::Exist);
    assert_eq!(system.fails(with_uuid("house", uuid), "choose another"), Code::Exist);
    system.cont("other", "home");
    system.cont("tank", "");
    system.cont("tank", "");
    assert_eq!(system.conts(&label("tank")).len(), 3);
    system.assert_in_step();
    let query = R::ContQuery(label("tank"), label(""));
    assert_eq!(system.run(query).unwrap_err().code, Code::NonExist);
    assert_eq!(system.fails(create_cont("none", "x"), "no pool 'none'"), Code::NonExist);
    assert_eq!(system.fails(create_cont("tank", "a b"), "a b"), Code::Inval);
}

#[test]
fn properties_are_checked() {
    let system = System::new(2);
    system.pool("tank");
    let base = ContProps::default;
    let class = |name: &str| name.parse().unwrap();
    let cases = [
        (ContProps { chunk_bytes: 1000, ..base() }, "chunk size", Code::Inval),
        (ContProps { cell_bytes: 96 << 10, ..base() }, "cell size", Code::Inval),
        (ContProps { rd_fac: 6, ..base() }, "0 to 5", Code::Inval),
        (ContProps { rd_fac: 1, ..base() }, "rd_fac", Code::Redundancy),
        (ContProps { oclass: class("RP_6G1"), ..base() }, "'oclass'", Code::Redundancy),
        (ContProps { dir_oclass: class("EC_8P2GX"), ..base() }, "'dir_oclass'", Code::Redundancy),
        (
            ContProps { file_oclass: class("EC_8P2GX+1MiB"), ..base() },
            "'file_oclass'",
            Code::Redundancy,
        ),
    ];
    for (props, words, code) in cases {
        assert_eq!(system.fails(with_props(props), words), code);
    }
    system.run(with_props(ContProps { oclass: class("S128"), ..base() })).unwrap();
    system.assert_in_step();
}

#[test]
fn a_failed_creation_is_rolled_back_and_can_be_repeated() {
    let system = System::new(2);
    system.pool("tank");
    system.targets.broken.borrow_mut().insert(TargetId(3));
    assert_eq!(system.fails(create_cont("tank", "home"), "target 3: disk failed"), Code::Io);
    system.targets.broken.borrow_mut().clear();
    assert_eq!(system.cont("tank", "home").id, ContId(2), "numbers are not used twice");
    futures_executor::block_on(system.service.resume(&*system.targets)).unwrap();
    system.assert_in_step();
    assert_eq!(system.conts(&label("tank")).len(), 1);
}

/// While an engine was away no container could be destroyed: it stayed, with its name.
#[test]
fn a_container_is_destroyed_while_an_engine_is_away() {
    let system = System::new(2);
    system.pool("tank");
    let old = system.cont("tank", "home");
    system.targets.away.borrow_mut().insert(Rank(0));
    let silent = system.service.engine_is_silent(Rank(0), "", true, &*system.targets);
    futures_executor::block_on(silent).unwrap();
    system.run(destroy_cont("tank", "home", false)).unwrap();
    assert!(system.conts(&label("tank")).is_empty());
    assert_eq!(system.pools()[0].cont_count, 0, "nothing keeps the pool");
    let open = |cont| R::ContOpen { pool: label("tank"), cont, ask: ask(RW) };
    assert_eq!(system.fails(open(label("home")), "no container 'home'"), Code::NonExist);
    assert_eq!(system.fails(open(Name::Uuid(old.uuid)), "being destroyed"), Code::Busy);
    assert_eq!(system.fails(destroy_cont("tank", "home", false), "'home'"), Code::NonExist);
    // Another one has the name at once.
    let new = system.cont("tank", "home");
    assert_ne!(new.id, old.id);
    system.targets.away.borrow_mut().clear();
    let tell = system.service.resume_engine(Rank(0), &*system.targets);
    assert_eq!(futures_executor::block_on(tell).unwrap(), []);
    assert_eq!(system.conts(&label("tank")).len(), 1);
    system.assert_in_step();
    // What a container wanted of its pool, here two engines for its copies, is wanted no longer.
    let exclude = || R::PoolAim {
        pool: label("tank"),
        targets: vec![TargetId(0), TargetId(1)],
        aim: TargetAim::Exclude,
    };
    let class = "RP_2G1".parse().unwrap();
    let classes =
        ContProps { oclass: class, dir_oclass: class, file_oclass: class, ..ContProps::default() };
    let wide = ContProps { rd_fac: 1, ..classes };
    system.run(with_props_named("wide", wide)).unwrap();
    assert_eq!(system.run(exclude()).unwrap_err().code, Code::Busy);
    system.targets.away.borrow_mut().insert(Rank(0));
    system.run(destroy_cont("tank", "wide", false)).unwrap();
    system.run(exclude()).unwrap();
    system.targets.away.borrow_mut().clear();
    // A pool is empty though what was in it waits for somebody.
    system.targets.away.borrow_mut().insert(Rank(0));
    system.run(destroy_cont("tank", "home", false)).unwrap();
    system.run(crate::fake::destroy_pool("tank", false)).unwrap();
    system.targets.away.borrow_mut().clear();
    let tell = system.service.resume_engine(Rank(0), &*system.targets);
    assert_eq!(futures_executor::block_on(tell).unwrap(), []);
    system.assert_in_step();
}

/// Object numbers are in no copy of a catalog, so engines do not see that a backup was put in its place when nothing else had changed: the numbers given out since
/// were given out again, and files read what was written to others. They go on from the time of day, if that goes on.
#[test]
fn a_catalog_of_some_time_ago_gives_no_number_out_again() {
    let system = System::new(1);
    let pool = system.pool("tank").id;
    let cont = system.cont("tank", "a").id;
    let numbers = |system: &System, count: u64| match system.run(alloc(pool, cont, count)).unwrap()
    {
        ControlReply::Oids(first) => first..first + count,
        other => panic!("{other:?}"),
    };
    let backup = system.image();
    let mut given = vec![numbers(&system, 1000), numbers(&system, 2 << 20)];
    // A clock that is put back gives none out again either.
    system.wall_s.set(WALL_S - 3600);
    given.push(numbers(&system, 10));
    system.wall_s.set(WALL_S + 60);
    given.push(numbers(&system, 10));
    let entries = backup.entries.into_iter().map(|(key, bytes)| Change::Put(key, bytes));
    let entries: Vec<Change> = entries.collect();
    assert!(futures_executor::block_on(system.catalog.commit(&[], &entries)).unwrap());
    system.wall_s.set(WALL_S + 120);
    given.push(numbers(&system, 10));
    given.push(numbers(&system, 10));
    assert!(given.windows(2).all(|pair| pair[0].end <= pair[1].start), "{given:?}");
}

#[test]
fn object_numbers_are_given_once_even_over_restarts() {
    let system = System::new(1);
    let pool = system.pool("tank").id;
    let (a, b) = (system.cont("tank", "a").id, system.cont("tank", "b").id);
    assert_eq!(system.run(alloc(pool, a, 10)).unwrap(), ControlReply::Oids(OID_FIRST));
    assert_eq!(system.run(alloc(pool, a, 1)).unwrap(), ControlReply::Oids(OID_FIRST + 10));
    assert_eq!(system.run(alloc(pool, b, 1 << 40)).unwrap(), ControlReply::Oids(OID_FIRST));
    let system = system.restarted();
    assert_eq!(system.run(alloc(pool, a, 5)).unwrap(), ControlReply::Oids(OID_FIRST + 11));
    assert_eq!(system.run(alloc(pool, b, 1)).unwrap(), ControlReply::Oids(OID_FIRST + (1 << 40)));
    assert_eq!(system.fails(alloc(pool, a, 0), "1 or more"), Code::Inval);
    assert_eq!(system.fails(alloc(pool, a, u64::MAX), "left"), Code::NoSpace);
    assert_eq!(system.run(alloc(pool, a, 1)).unwrap(), ControlReply::Oids(OID_FIRST + 16));
    assert_eq!(system.fails(alloc(pool, ContId(9), 1), "no container 9"), Code::NonExist);
    assert_eq!(system.fails(alloc(PoolId(9), a, 1), "pool 9"), Code::NonExist);
}
