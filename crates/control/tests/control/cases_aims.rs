//! Targets that are drained, excluded, taken back and added.

use crate::fake::{System, create_cont, create_pool, label};
use futures_executor::block_on;
use std::time::Duration;
use types::{Code, Rank, TargetId};
use wire::control::{ControlReply, ControlRequest as R, TargetAim};
use wire::map::{DownReason, PoolMap, TargetState};

const AWAY: Rank = Rank(1);

fn map(system: &System) -> PoolMap {
    system.pools()[0].map.clone()
}

fn of(map: &PoolMap, rank: Rank) -> Vec<TargetId> {
    let of = map.targets.iter().filter(|target| target.rank == rank);
    of.map(|target| target.id).collect()
}

fn aim(system: &System, aim: TargetAim) {
    let targets = of(&map(system), AWAY);
    system.run(R::PoolAim { pool: label("tank"), targets, aim }).unwrap();
}

fn look(system: &System) {
    let after = Some(Duration::from_secs(60));
    block_on(system.service.stand_in(Duration::ZERO, after, &*system.targets)).unwrap();
}

/// All targets say that they have what they are to have, whether they are asked or not.
fn all_join(system: &System) {
    let (pool, map) = (system.pools()[0].id, map(system));
    for target in &map.targets {
        let joined = R::TargetJoined { pool, target: target.id, map_version: map.version };
        // Only until the change is made.
        let _ = system.run(joined);
    }
}

fn outs(system: &System) -> Vec<(TargetId, bool)> {
    map(system).outs.iter().map(|out| (out.target, out.is_drained)).collect()
}

#[test]
fn a_drained_target_gives_what_it_has_while_it_is_up() {
    let system = System::new(3);
    system.pool("tank");
    let away = of(&map(&system), AWAY);
    let drained: Vec<(TargetId, bool)> = away.iter().map(|id| (*id, true)).collect();
    aim(&system, TargetAim::Drain);
    look(&system);
    assert!(map(&system).moves_single_members());
    // It dies: nobody may take its places, whatever they say, for what it alone had is not there.
    system.targets.away.borrow_mut().insert(AWAY);
    block_on(system.service.engine_is_silent(AWAY, "gone", true, &*system.targets)).unwrap();
    all_join(&system);
    look(&system);
    all_join(&system);
    assert_eq!((outs(&system), map(&system).next), (vec![], None));
    // It is back, and has not caught up yet.
    system.targets.away.borrow_mut().clear();
    assert_eq!(block_on(system.service.resume_engine(AWAY, &*system.targets)).unwrap(), []);
    look(&system);
    all_join(&system);
    assert_eq!(outs(&system), []);
    let pool = system.pools()[0].id;
    for target in &away {
        let map_version = map(&system).version;
        system.run(R::TargetCaughtUp { pool, target: *target, map_version }).unwrap();
    }
    look(&system);
    all_join(&system);
    assert_eq!(outs(&system), drained);
    // It stays out whatever becomes of its engine, and comes back when it is wanted, while nobody else is missing.
    block_on(system.service.engine_is_silent(AWAY, "gone", true, &*system.targets)).unwrap();
    look(&system);
    assert_eq!((outs(&system), map(&system).next), (drained.clone(), None));
    assert_eq!(block_on(system.service.resume_engine(AWAY, &*system.targets)).unwrap(), []);
    aim(&system, TargetAim::Serve);
    look(&system);
    assert_eq!(outs(&system), drained, "it catches up first");
    for target in &away {
        let map_version = map(&system).version;
        system.run(R::TargetCaughtUp { pool, target: *target, map_version }).unwrap();
    }
    block_on(system.service.engine_is_silent(Rank(2), "gone", true, &*system.targets)).unwrap();
    look(&system);
    all_join(&system);
    let moves = (outs(&system), map(&system).next);
    assert_eq!(moves, (drained, None), "another one may have what it gave away");
}

/// The drain is over when the one that is drained says so, too: it may have what nobody else could be given. That it is to keep nothing
/// is in the map, and goes with it.
#[test]
fn a_drained_target_says_itself_that_it_keeps_nothing() {
    let system = System::new(3);
    system.pool("tank");
    let away = of(&map(&system), AWAY);
    aim(&system, TargetAim::Drain);
    look(&system);
    let (pool, moving) = (system.pools()[0].id, map(&system));
    let passed: Vec<TargetId> = moving.next_passed.iter().map(|passed| passed.target).collect();
    assert_eq!(passed, away);
    assert_eq!(moving.passed_for_want_of_room().count(), 0);
    let others = moving.targets.iter().filter(|target| target.rank != AWAY);
    let tell = |target: TargetId| {
        let map_version = moving.version;
        system.run(R::TargetJoined { pool, target, map_version }).unwrap();
    };
    others.for_each(|target| tell(target.id));
    look(&system);
    assert_eq!(
        (outs(&system), map(&system).version),
        (vec![], moving.version),
        "it has not said so"
    );
    away.iter().for_each(|target| tell(*target));
    assert_eq!(outs(&system), away.iter().map(|id| (*id, true)).collect::<Vec<_>>());
    look(&system);
    let drained = map(&system);
    assert_eq!((drained.next, &drained.passed), (None, &moving.next_passed));
    // It is not tried again like one that had no room, whoever stops and starts what moves.
    for runs in [false, true] {
        system.run(R::PoolRebuild { pool: label("tank"), runs }).unwrap();
        look(&system);
    }
    assert_eq!(map(&system).next, None);
    aim(&system, TargetAim::Serve);
    look(&system);
    all_join(&system);
    assert_eq!((outs(&system), map(&system).passed), (vec![], vec![]));
}

#[test]
fn who_is_drained_leaves_enough_targets_for_a_group() {
    let system = System::new(3);
    system.pool("tank");
    let mut wanted = create_cont("tank", "home");
    let others = map(&system).targets.iter().filter(|target| target.rank != AWAY).count();
    if let R::ContCreate { props, .. } = &mut wanted {
        // One parity: two engines are enough for that.
        props.rd_fac = 1;
        props.oclass = "RP_2G1".parse().unwrap();
        props.dir_oclass = props.oclass;
        props.file_oclass = format!("EC_{others}P1G1").parse().unwrap();
    }
    system.run(wanted).unwrap();
    let targets = of(&map(&system), AWAY);
    let drain = R::PoolAim { pool: label("tank"), targets: targets.clone(), aim: TargetAim::Drain };
    assert_eq!(system.fails(drain, "take in others"), Code::Busy);
    // What is lost anyway may be left out.
    system.run(R::PoolAim { pool: label("tank"), targets, aim: TargetAim::Exclude }).unwrap();
}

#[test]
fn excluded_targets_stay_out_until_they_are_wanted() {
    let system = System::new(3);
    system.pool("tank");
    let away = of(&map(&system), AWAY);
    aim(&system, TargetAim::Exclude);
    let reasons = |system: &System| {
        let map = map(system);
        let of = map.targets.iter().filter(|target| target.rank == AWAY);
        of.map(|target| (target.state, target.reason)).collect::<Vec<_>>()
    };
    let excluded = (TargetState::Down, Some(DownReason::Excluded));
    assert!(reasons(&system).iter().all(|reason| *reason == excluded));
    // Its engine comes and goes, and changes nothing of that.
    block_on(system.service.engine_is_silent(AWAY, "gone", true, &*system.targets)).unwrap();
    assert_eq!(block_on(system.service.resume_engine(AWAY, &*system.targets)).unwrap(), []);
    assert!(reasons(&system).iter().all(|reason| *reason == excluded));
    look(&system);
    all_join(&system);
    assert_eq!(outs(&system), away.iter().map(|id| (*id, false)).collect::<Vec<_>>());
    aim(&system, TargetAim::Serve);
    let behind = (TargetState::Down, Some(DownReason::Behind));
    assert!(reasons(&system).iter().all(|reason| *reason == behind));
}

/// Somebody who asks right after an exclusion, or when a target is whole again that others stand in for, is not told that nothing is to move. What is
/// planned, stopped, or not to be done, is not due.
#[test]
fn what_is_to_move_is_due_until_it_is_planned() {
    let system = System::new(3);
    system.pool("tank");
    let is_due = || system.pools()[0].is_move_due;
    assert!(!is_due());
    look(&system);
    assert!(!is_due());
    aim(&system, TargetAim::Exclude);
    assert!(is_due());
    look(&system);
    assert!(!is_due() && map(&system).next.is_some());
    all_join(&system);
    assert!(!is_due() && map(&system).next.is_none());
    aim(&system, TargetAim::Serve);
    look(&system);
    assert!(!is_due(), "it catches up first");
    let pool = system.pools()[0].id;
    for target in of(&map(&system), AWAY) {
        let map_version = map(&system).version;
        system.run(R::TargetCaughtUp { pool, target, map_version }).unwrap();
    }
    assert!(is_due());
    system.run(R::PoolRebuild { pool: label("tank"), runs: false }).unwrap();
    assert!(!is_due(), "it is stopped");
    system.run(R::PoolRebuild { pool: label("tank"), runs: true }).unwrap();
    look(&system);
    all_join(&system);
    assert!(!is_due() && outs(&system).is_empty());
    // One that is away for a moment comes back.
    block_on(system.service.engine_is_silent(AWAY, "gone", true, &*system.targets)).unwrap();
    look(&system);
    assert!(!is_due());
}

/// Others come to stand in for a target that was away for long, when the service is taken over. The next holder does not know since when it is away, and
/// gave up what moved, to begin anew a minute later.
#[test]
fn what_moves_goes_on_under_another_holder() {
    let system = System::new(3);
    system.pool("tank");
    let away = of(&map(&system), AWAY);
    system.targets.away.borrow_mut().insert(AWAY);
    block_on(system.service.engine_is_silent(AWAY, "gone", true, &*system.targets)).unwrap();
    look(&system);
    assert_eq!(map(&system).next, None, "it is not away for long");
    let (later, after) = (Duration::from_secs(60), Some(Duration::from_secs(60)));
    block_on(system.service.stand_in(later, after, &*system.targets)).unwrap();
    let moving = map(&system);
    assert!(moving.next.is_some());
    let system = system.restarted();
    assert!(!system.pools()[0].is_move_due);
    look(&system);
    assert_eq!(map(&system).version, moving.version, "it was given up");
    all_join(&system);
    assert_eq!(outs(&system), away.iter().map(|id| (*id, false)).collect::<Vec<_>>());
}

#[test]
fn copies_are_not_drained_onto_one_engine_and_stopped_moves_stay_stopped() {
    let system = System::new(2);
    system.pool("tank");
    let mut wanted = create_cont("tank", "home");
    if let R::ContCreate { props, .. } = &mut wanted {
        props.rd_fac = 1;
        props.oclass = "RP_2G1".parse().unwrap();
        (props.dir_oclass, props.file_oclass) = (props.oclass, props.oclass);
    }
    system.run(wanted).unwrap();
    let targets = of(&map(&system), AWAY);
    let drain = R::PoolAim { pool: label("tank"), targets, aim: TargetAim::Drain };
    assert_eq!(system.fails(drain, "take in others"), Code::Busy);
    let unknown = vec![TargetId(99)];
    let unknown = R::PoolAim { pool: label("tank"), targets: unknown, aim: TargetAim::Drain };
    assert_eq!(system.fails(unknown, "not on target 99"), Code::NonExist);

    let system = System::new(2);
    system.run(create_pool("tank")).unwrap();
    system.run(R::PoolRebuild { pool: label("tank"), runs: false }).unwrap();
    aim(&system, TargetAim::Drain);
    look(&system);
    assert_eq!(map(&system).next, None);
    system.run(R::PoolRebuild { pool: label("tank"), runs: true }).unwrap();
    look(&system);
    assert!(map(&system).next.is_some());
    system.run(R::PoolRebuild { pool: label("tank"), runs: false }).unwrap();
    look(&system);
    assert_eq!(map(&system).next, None, "what has begun is given up");
}

#[test]
fn a_pool_is_extended_by_what_joined_later() {
    let system = System::new(2);
    system.pool("tank");
    system.cont("tank", "home");
    let extend = || R::PoolExtend { pool: label("tank"), targets: Vec::new() };
    assert_eq!(system.fails(extend(), "already"), Code::Exist);
    system.join(2).unwrap();
    let before = map(&system);
    let ControlReply::Pool(after) = system.run(extend()).unwrap() else { panic!("no pool") };
    assert_eq!(after.map.placements.len(), 2);
    assert_eq!(after.map.placements[0], before.placements[0], "what is there stays");
    let ids = |map: &PoolMap| map.targets.iter().map(|target| target.id).collect::<Vec<_>>();
    let placed: Vec<TargetId> = after.map.placements[1].weights.iter().map(|(id, _)| *id).collect();
    assert_eq!(placed, ids(&after.map));
    assert!(ids(&after.map).len() > ids(&before).len());
    system.assert_in_step();
}

/// Targets of a pool that are to be emptied.
fn emptied(system: &System, pool: &str) -> Vec<TargetId> {
    let ControlReply::Pool(info) = system.run(R::PoolQuery(label(pool))).unwrap() else { panic!() };
    info.aims.iter().filter(|(_, aim)| *aim == TargetAim::Drain).map(|(id, _)| *id).collect()
}

#[test]
fn a_whole_engine_is_emptied_and_new_pools_leave_it_out() {
    let system = System::new(3);
    let drain = |drains| R::SystemDrain { rank: AWAY, drains };
    for pool in ["one", "two"] {
        system.pool(pool);
    }
    let other = R::PoolCreate {
        placement: types::PlacementRule::default(),
        label: "elsewhere".into(),
        bytes: 1 << 30,
        scm_percent: 10,
        durability: types::Durability::Wal,
        targets: vec![TargetId(0)],
    };
    system.run(other).unwrap();
    let aims = |system: &System| ["one", "two", "elsewhere"].map(|pool| emptied(system, pool));
    let member = |system: &System| {
        let ControlReply::System(info) = system.run(R::SystemQuery).unwrap() else { panic!() };
        info.members[AWAY.0 as usize].clone()
    };
    let all = vec![TargetId(2), TargetId(3)];
    assert_eq!(aims(&system), [vec![], vec![], vec![]]);
    system.run(drain(true)).unwrap();
    assert_eq!(aims(&system), [all.clone(), all.clone(), vec![]]);
    assert!(member(&system).drains);
    // It stays so whatever becomes of it, and over a restart of everything.
    block_on(system.service.engine_is_silent(AWAY, "gone", true, &*system.targets)).unwrap();
    let system = system.restarted();
    assert_eq!(block_on(system.service.resume_engine(AWAY, &*system.targets)).unwrap(), []);
    assert!(member(&system).drains);
    // New pools leave it out, and so do pools that take in what there is; who names it is told.
    let made = system.pool("three");
    assert!(of(&made.map, AWAY).is_empty());
    let named = |targets: &[u32]| R::PoolExtend {
        pool: label("elsewhere"),
        targets: targets.iter().copied().map(TargetId).collect(),
    };
    assert_eq!(system.fails(named(&[2]), "is being emptied"), Code::Busy);
    let ControlReply::Pool(grown) = system.run(named(&[])).unwrap() else { panic!("no pool") };
    assert!(of(&grown.map, AWAY).is_empty() && !of(&grown.map, Rank(2)).is_empty());
    let again = system.run(drain(true)).unwrap();
    assert_eq!(again, ControlReply::Done);
    system.run(drain(false)).unwrap();
    assert_eq!(aims(&system), [vec![], vec![], vec![]]);
    assert!(!member(&system).drains);
    assert!(!of(&system.pool("four").map, AWAY).is_empty());
    let nobody = R::SystemDrain { rank: Rank(9), drains: true };
    assert_eq!(system.fails(nobody, "no engine 9"), Code::NonExist);
}

/// One pool that cannot do without it, and nothing begins in the others either.
#[test]
fn an_engine_is_not_emptied_where_copies_would_be_on_one() {
    let system = System::new(2);
    system.pool("free");
    system.pool("tank");
    let mut wanted = create_cont("tank", "home");
    if let R::ContCreate { props, .. } = &mut wanted {
        props.rd_fac = 1;
        props.oclass = "RP_2G1".parse().unwrap();
        (props.dir_oclass, props.file_oclass) = (props.oclass, props.oclass);
    }
    system.run(wanted).unwrap();
    let drain = R::SystemDrain { rank: AWAY, drains: true };
    assert_eq!(system.fails(drain, "pool 'tank' would be left"), Code::Busy);
    for pool in ["free", "tank"] {
        assert_eq!(emptied(&system, pool), []);
    }
    assert!(!of(&system.pool("more").map, AWAY).is_empty());
}

/// A target that is to stand in has no room: the next ones are tried, and it is told once. Who is full under an older map is told to
/// look again. When targets are added those that had nobody are tried once more.
#[test]
fn who_has_no_room_is_passed_over_until_targets_are_added() {
    let system = System::new(3);
    system.pool("tank");
    let away = of(&map(&system), AWAY);
    block_on(system.service.engine_is_silent(AWAY, "gone", true, &*system.targets)).unwrap();
    look(&system);
    let after = Some(Duration::from_secs(60));
    let later = Duration::from_secs(100);
    block_on(system.service.stand_in(later, after, &*system.targets)).unwrap();
    let moving = map(&system);
    let next = moving.next.clone().expect("others come to stand in");
    let full = of(&moving, Rank(2));
    let tell = |target: TargetId, map_version: u32| {
        let pool = system.pools()[0].id;
        system.run(R::TargetFull { pool, target, map_version })
    };
    assert_eq!(tell(full[0], moving.version - 1).unwrap_err().code, Code::Stale);
    tell(full[0], moving.version).unwrap();
    let passed = map(&system);
    assert_eq!(passed.version, moving.version + 1);
    let of_it: Vec<(u32, TargetId)> =
        passed.next_passed.iter().map(|of| (of.round, of.target)).collect();
    assert_eq!(of_it, [(next[0].round, full[0])]);
    assert_eq!((passed.passed.len(), &passed.next), (0, &Some(next.clone())));
    // It is passed over already: nothing is new.
    tell(full[0], passed.version).unwrap();
    assert_eq!(map(&system).version, passed.version);
    all_join(&system);
    let done = map(&system);
    assert_eq!((done.next, done.next_passed.len()), (None, 0));
    assert_eq!(done.passed, passed.next_passed);
    assert_eq!(done.outs, next);
    // Who stands in already stays, whatever else moves: nothing does.
    tell(full[0], done.version).unwrap();
    assert_eq!(map(&system).version, done.version);
    // An administrator has made room: all are tried, and the old answer holds until they have what they are to have.
    for runs in [false, true] {
        system.run(R::PoolRebuild { pool: label("tank"), runs }).unwrap();
    }
    block_on(system.service.stand_in(later, after, &*system.targets)).unwrap();
    let again = map(&system);
    assert_eq!((again.next.as_ref(), again.next_passed.len()), (Some(&next), 0));
    assert_eq!(again.passed, passed.next_passed);
    // It is full still.
    tell(full[0], again.version).unwrap();
    assert_eq!(map(&system).next_passed, passed.next_passed);
    all_join(&system);
    assert_eq!((map(&system).passed, map(&system).next), (passed.next_passed.clone(), None));
    block_on(system.service.stand_in(later, after, &*system.targets)).unwrap();
    assert_eq!(map(&system).next, None, "it is not tried for ever");
    assert_eq!(outs(&system), away.iter().map(|id| (*id, false)).collect::<Vec<_>>());
}

/// What is drained is taken away afterwards: there must be somebody left who gets it.
#[test]
fn of_those_who_get_what_is_drained_one_is_not_passed_over() {
    let system = System::new(3);
    system.pool("tank");
    aim(&system, TargetAim::Drain);
    look(&system);
    let pool = system.pools()[0].id;
    let others: Vec<TargetId> =
        map(&system).targets.iter().filter(|held| held.rank != AWAY).map(|held| held.id).collect();
    for target in &others {
        let map_version = map(&system).version;
        system.run(R::TargetFull { pool, target: *target, map_version }).unwrap();
    }
    let passed: Vec<TargetId> = map(&system).passed_for_want_of_room().collect();
    assert!(!passed.is_empty() && passed.len() < others.len(), "{passed:?}");
    assert!(map(&system).next.is_some(), "it waits for room");
}

/// Others stand in for a target that was lost; then the pool is extended, and it is drained when it is back. The spares that it was to have
/// were still those of before the extension, and for that the move began anew with each look: it had no end.
#[test]
fn a_drain_of_who_was_replaced_before_an_extension_begins_once() {
    let system = System::new(4);
    system.pool("tank");
    let away = of(&map(&system), AWAY);
    block_on(system.service.engine_is_silent(AWAY, "gone", true, &*system.targets)).unwrap();
    look(&system);
    let look_later = || {
        let (later, after) = (Duration::from_secs(100), Some(Duration::from_secs(60)));
        block_on(system.service.stand_in(later, after, &*system.targets)).unwrap();
    };
    look_later();
    all_join(&system);
    assert_eq!(outs(&system), away.iter().map(|id| (*id, false)).collect::<Vec<_>>());
    system.join(4).unwrap();
    system.run(R::PoolExtend { pool: label("tank"), targets: Vec::new() }).unwrap();
    aim(&system, TargetAim::Drain);
    assert_eq!(block_on(system.service.resume_engine(AWAY, &*system.targets)).unwrap(), []);
    let pool = system.pools()[0].id;
    for target in &away {
        let map_version = map(&system).version;
        system.run(R::TargetCaughtUp { pool, target: *target, map_version }).unwrap();
    }
    look_later();
    let begun = map(&system);
    let kinds = |map: &PoolMap| {
        let next = map.next.iter().flatten();
        next.map(|out| (out.target, out.is_drained, out.epoch)).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&begun), away.iter().map(|id| (*id, true, 1)).collect::<Vec<_>>());
    for _ in 0..3 {
        look_later();
    }
    assert_eq!(map(&system), begun, "nothing is new");
    // One that is to get something has no room: it is passed over, and that is all.
    let full = of(&begun, Rank(2))[0];
    system.run(R::TargetFull { pool, target: full, map_version: begun.version }).unwrap();
    let passed = map(&system);
    assert_eq!(passed.passed_for_want_of_room().collect::<Vec<_>>(), [full]);
    look_later();
    assert_eq!(map(&system), passed);
    // A further extension counts, once.
    system.join(5).unwrap();
    system.run(R::PoolExtend { pool: label("tank"), targets: Vec::new() }).unwrap();
    look_later();
    let again = map(&system);
    assert_eq!(again.passed_for_want_of_room().count(), 0);
    look_later();
    assert_eq!(map(&system), again);
    all_join(&system);
    assert_eq!(outs(&system), away.iter().map(|id| (*id, true)).collect::<Vec<_>>());
    look_later();
    assert_eq!(map(&system).next, None);
}
