//! Whether a pool has room for what is to move in it.

use crate::fake::{System, create_cont, label};
use futures_executor::block_on;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use types::{Code, Durability, PlacementRule, TargetId};
use wire::control::{ControlReply, ControlRequest as R, PoolInfo, Subject, TargetAim};
use wire::event::{EventCode, Happened};

const MIB: u64 = 1 << 20;
/// What there may be of the pool on a target, bytes.
const TARGET_BYTES: u64 = 320 * MIB;

fn pool_on(system: &System, targets: &[u32]) -> PoolInfo {
    let create = R::PoolCreate {
        label: "tank".into(),
        bytes: targets.len() as u64 * TARGET_BYTES,
        scm_percent: 10,
        durability: Durability::Wal,
        placement: PlacementRule::Equal,
        targets: targets.iter().copied().map(TargetId).collect(),
    };
    match system.run(create).unwrap() {
        ControlReply::Pool(pool) => pool,
        other => panic!("{other:?}"),
    }
}

/// What targets hold of it, MiB.
fn hold(system: &System, used: &[u64]) {
    for (id, mib) in (0..).zip(used) {
        let mut standings = system.targets.standings.borrow_mut();
        standings.entry(TargetId(id)).or_default().used_bytes = mib * MIB;
    }
}

/// What is told of room from now on.
fn listen(system: &System) -> Rc<RefCell<Vec<String>>> {
    let told = Rc::new(RefCell::new(Vec::new()));
    let heard = told.clone();
    system.service.tell_to(Rc::new(move |happened: Happened| {
        if happened.code == EventCode::RoomLacking {
            heard.borrow_mut().push(happened.what);
        }
    }));
    told
}

fn stand_in(system: &System) {
    let targets = &*system.targets;
    block_on(system.service.stand_in(Duration::ZERO, Some(Duration::ZERO), targets)).unwrap();
}

fn aim(system: &System, target: u32, aim: TargetAim) {
    let targets = vec![TargetId(target)];
    system.run(R::PoolAim { pool: label("tank"), targets, aim }).unwrap();
}

/// A balance that could not end held up everything that moves after it, and nobody was told.
#[test]
fn a_balance_without_room_does_not_begin() {
    let system = System::new(2);
    pool_on(&system, &[0, 1, 2]);
    let extend = R::PoolExtend { pool: label("tank"), targets: Vec::new() };
    system.run(extend).unwrap();
    // The pool is 98 % full, and who gets something leaves the thirty-second part of its room.
    hold(&system, &[318, 318, 318, 305]);
    let balance = || R::PoolBalance { pool: label("tank") };
    assert_eq!(system.fails(balance(), "lacking"), Code::NoSpace);
    assert_eq!(system.pools()[0].balance_wanted, 0);
    // By itself neither, and that is told once.
    let told = listen(&system);
    let props = [("balance".to_string(), "auto".to_string())].into();
    let subject = Subject::Pool(label("tank"));
    system.run(R::SetProps { subject, props }).unwrap();
    let follow = |seconds| {
        let now = Duration::from_secs(seconds);
        block_on(system.service.follow_worth(now, &*system.targets)).unwrap();
        system.pools()[0].balance_wanted
    };
    assert_eq!((follow(0), follow(60)), (0, 0));
    let said = told.borrow().clone();
    assert!(said.len() == 1 && said[0].contains("lacking"), "{said:?}");
    // Somebody has removed something.
    hold(&system, &[310, 310, 310, 0]);
    assert_eq!(follow(120), 1);
    assert_eq!(told.borrow().len(), 1);
}

#[test]
fn a_rebuild_without_room_begins_and_says_what_is_lacking() {
    let system = System::new(2);
    pool_on(&system, &[0, 1, 2, 3]);
    let told = listen(&system);
    hold(&system, &[100, 100, 100, 100]);
    // There is room.
    system.run(copies()).unwrap();
    aim(&system, 3, TargetAim::Exclude);
    stand_in(&system);
    assert!(system.pools()[0].map.next.is_some());
    assert!(told.borrow().is_empty(), "{:?}", told.borrow());
    aim(&system, 3, TargetAim::Serve);
    let pool = system.pools()[0].id;
    let map_version = system.pools()[0].map.version;
    system.run(R::TargetCaughtUp { pool, target: TargetId(3), map_version }).unwrap();
    stand_in(&system);
    assert_eq!(system.pools()[0].map.next, None);
    // It held as much as the others do, and these have 3 x 10 MiB that they would take.
    hold(&system, &[300, 300, 300, 300]);
    aim(&system, 3, TargetAim::Exclude);
    stand_in(&system);
    assert!(system.pools()[0].map.next.is_some(), "as far as there is room");
    let said = told.borrow().clone();
    assert!(said.len() == 1 && said[0].contains("270 MiB are lacking"), "{said:?}");
    stand_in(&system);
    assert_eq!(told.borrow().len(), 1, "once");
}

fn all_join(system: &System) {
    let (pool, map) = (system.pools()[0].id, system.pools()[0].map.clone());
    for target in &map.targets {
        let joined = R::TargetJoined { pool, target: target.id, map_version: map.version };
        // Only until the change is made.
        let _ = system.run(joined);
    }
}

/// Others come to stand in for target 0, and these of them have no room.
fn lose_with_full(system: &System, full: &[u32]) {
    aim(system, 0, TargetAim::Exclude);
    stand_in(system);
    all_are_full(system, full);
}

fn all_are_full(system: &System, full: &[u32]) {
    let pool = system.pools()[0].id;
    for target in full {
        let map_version = system.pools()[0].map.version;
        system.run(R::TargetFull { pool, target: TargetId(*target), map_version }).unwrap();
    }
    all_join(system);
    assert_eq!(system.pools()[0].map.next, None);
}

/// A look at who has room again: those that come to stand in then, or `None`, with what is still passed over.
fn retry(system: &System) -> Option<usize> {
    block_on(system.service.retry_spares(&*system.targets)).unwrap();
    stand_in(system);
    let map = &system.pools()[0].map;
    map.next.as_ref().map(|_| map.next_passed.len())
}

fn copies() -> R {
    let mut cont = create_cont("tank", "home");
    let R::ContCreate { props, .. } = &mut cont else { panic!("not a container") };
    props.rd_fac = 1;
    props.oclass = "RP_2G1".parse().unwrap();
    (props.dir_oclass, props.file_oclass) = (props.oclass, props.oclass);
    cont
}

/// Somebody made room, and groups went on with one copy until an administrator stopped and started the rebuild.
#[test]
fn who_had_no_room_is_tried_again_when_there_is_some() {
    let system = System::new(3);
    pool_on(&system, &[0, 2, 4]);
    system.run(copies()).unwrap();
    hold(&system, &[300, 0, 300, 0, 300]);
    lose_with_full(&system, &[2, 4]);
    assert_eq!(system.pools()[0].map.passed.len(), 2);
    assert_eq!(retry(&system), None, "nothing has changed");
    // Less, but each would get half of what was there, 215 MiB by what they hold themselves.
    hold(&system, &[0, 0, 215, 0, 215]);
    assert_eq!(retry(&system), None);
    hold(&system, &[0, 0, 200, 0, 300]);
    assert_eq!(retry(&system), None, "for it is half of 250 MiB");
    hold(&system, &[0, 0, 150, 0, 250]);
    assert_eq!(retry(&system), Some(0), "one of them has room");
    // It was not so: names and cells do not part as sums do. It is not tried for ever.
    all_are_full(&system, &[2, 4]);
    assert_eq!(retry(&system), None);
    hold(&system, &[0, 0, 145, 0, 250]);
    assert_eq!(retry(&system), None, "next to nothing");
    hold(&system, &[0, 0, 290, 0, 250]);
    assert_eq!(retry(&system), None);
    hold(&system, &[0, 0, 140, 0, 250]);
    assert_eq!(retry(&system), Some(0));
    all_join(&system);
    assert!(system.pools()[0].map.passed.is_empty());
    assert_eq!(retry(&system), None);
}

/// Who holds the service since a moment ago does not know what was tried, and looks whether there is room.
#[test]
fn another_holder_tries_once() {
    let system = System::new(3);
    pool_on(&system, &[0, 2, 4]);
    system.run(copies()).unwrap();
    hold(&system, &[100, 0, 100, 0, 100]);
    lose_with_full(&system, &[2, 4]);
    assert_eq!(retry(&system), None);
    let system = system.restarted();
    assert_eq!(retry(&system), Some(0));
    all_are_full(&system, &[2, 4]);
    assert_eq!(retry(&system), None);
    let system = system.restarted();
    hold(&system, &[0, 0, 300, 0, 300]);
    assert_eq!(retry(&system), None, "there is no room");
}

#[test]
fn nobody_is_tried_again_where_nothing_is_lacking() {
    let system = System::new(4);
    pool_on(&system, &[0, 2, 4, 6]);
    system.run(copies()).unwrap();
    hold(&system, &[300, 0, 0, 0, 300, 0, 300]);
    lose_with_full(&system, &[4]);
    hold(&system, &[0; 7]);
    assert_eq!(system.pools()[0].map.passed.len(), 1);
    assert_eq!(retry(&system), None, "another one has what it had no room for");
    let stop = |runs| system.run(R::PoolRebuild { pool: label("tank"), runs }).unwrap();
    stop(false);
    stop(true);
    assert_eq!(retry(&system), Some(0), "an administrator wants it");
}

/// Without copies a loss moves nothing; a drain does.
#[test]
fn what_has_no_copies_needs_room_when_it_is_drained() {
    let system = System::new(2);
    pool_on(&system, &[0, 1, 2, 3]);
    system.cont("tank", "home");
    let told = listen(&system);
    hold(&system, &[300, 300, 300, 300]);
    aim(&system, 3, TargetAim::Exclude);
    stand_in(&system);
    assert!(told.borrow().is_empty(), "{:?}", told.borrow());
    aim(&system, 2, TargetAim::Drain);
    stand_in(&system);
    let said = told.borrow().clone();
    assert!(said.len() == 1 && said[0].contains("targets [2]"), "{said:?}");
}
