//! Engines that are silent, excluded, and back.

use crate::fake::{System, create_cont, create_pool, engine_info, label};
use futures_executor::block_on;
use std::time::Duration;
use types::{Code, Rank, TargetId};
use wire::control::{ControlReply, ControlRequest as R, MemberState, SystemInfo};
use wire::map::{DownReason, TargetState};

const AWAY: Rank = Rank(1);

type Standing = (TargetState, Option<DownReason>, u32);
const UP: Standing = (TargetState::Up, None, 0);

fn down(reason: DownReason, since: u32) -> Standing {
    (TargetState::Down, Some(reason), since)
}

/// States of the targets of the first pool, and the version of its map.
fn map(system: &System) -> (Vec<Standing>, u32) {
    let map = system.pools()[0].map.clone();
    (
        map.targets.iter().map(|target| (target.state, target.reason, target.since)).collect(),
        map.version,
    )
}

fn query(system: &System) -> SystemInfo {
    match system.run(R::SystemQuery).unwrap() {
        ControlReply::System(info) => info,
        other => panic!("{other:?}"),
    }
}

fn state(system: &System) -> (MemberState, String) {
    let member = query(system).members[1].clone();
    (member.state, member.why)
}

fn is_silent(system: &System) {
    system.targets.away.borrow_mut().insert(AWAY);
    block_on(system.service.engine_is_silent(AWAY, "no answer for 5 s", true, &*system.targets))
        .unwrap();
}

fn is_back(system: &System) {
    system.targets.away.borrow_mut().clear();
    assert_eq!(block_on(system.service.resume_engine(AWAY, &*system.targets)).unwrap(), []);
}

/// A map of many targets was sent whole to each of them at each change.
#[test]
fn targets_are_told_what_has_changed_and_all_of_it_where_they_missed_some() {
    let system = System::new(4);
    system.pool("tank");
    let others = [0, 1, 4, 5, 6, 7];
    let in_step = |system: &System| {
        let (version, pool) = (map(system).1, system.pools()[0].id);
        let shards = system.targets.shards.borrow();
        let of = |at: u32| shards[&(TargetId(at), pool)].map.clone().unwrap();
        for at in others {
            assert_eq!((of(at).version, of(at)), (version, of(0)), "target {at}");
        }
    };
    is_silent(&system);
    // One target does not hear of what comes then, and gets the next map whole.
    system.targets.broken.borrow_mut().insert(TargetId(5));
    is_back(&system);
    system.targets.broken.borrow_mut().clear();
    assert!(version_at(&system, 5) < version_at(&system, 4));
    system.targets.changes.set(0);
    is_silent(&system);
    assert_eq!(system.targets.changes.get(), 5, "all but the one");
    in_step(&system);
    // Who serves from now on does not know what was told.
    let system = system.restarted();
    is_back(&system);
    in_step(&system);
}

/// The version of the map that a target has of the first pool.
fn version_at(system: &System, target: u32) -> u32 {
    let pool = system.pools()[0].id;
    let shards = system.targets.shards.borrow();
    shards[&(TargetId(target), pool)].map.as_ref().unwrap().version
}

fn exclude() -> R {
    R::SystemExclude { rank: AWAY, why: "a bad fan".into() }
}

#[test]
fn the_targets_of_a_silent_engine_are_down_until_it_is_back() {
    let system = System::new(2);
    system.pool("tank");
    system.cont("tank", "home");
    let joined = query(&system).members[1].clone();
    assert_eq!((joined.state, joined.since), (MemberState::Up, 2));
    is_silent(&system);
    let silent = down(DownReason::Silent, 2);
    assert_eq!(map(&system), (vec![UP, UP, silent, silent], 2));
    assert_eq!(state(&system), (MemberState::Down, "no answer for 5 s".into()));
    assert_eq!([0, 1, 2, 3].map(|target| version_at(&system, target)), [2, 2, 1, 1]);
    // Told once, and not forgotten.
    is_silent(&system);
    let system = system.restarted();
    assert_eq!(map(&system).1, 2);
    is_back(&system);
    // What others did meanwhile it has not.
    let behind = down(DownReason::Behind, 3);
    assert_eq!(map(&system), (vec![UP, UP, behind, behind], 3));
    assert_eq!(state(&system).0, MemberState::Up);
    system.assert_in_step();
    let pool = system.pools()[0].id;
    let caught_up = |target, map_version| {
        let target = TargetId(target);
        R::TargetCaughtUp { pool, target, map_version }
    };
    for (bad, why) in [
        (caught_up(2, 2), "has map 3, not 2"),
        (caught_up(0, 3), "not behind"),
        (caught_up(9, 3), "not behind"),
    ] {
        assert_eq!(system.fails(bad, why), Code::Stale);
    }
    system.run(caught_up(2, 3)).unwrap();
    let back = (TargetState::Up, None, 4);
    assert_eq!(map(&system), (vec![UP, UP, back, behind], 4));
    // Silent once more before it was through: that is another time.
    is_silent(&system);
    is_back(&system);
    assert_eq!(map(&system).0[3], down(DownReason::Behind, 6));
    assert_eq!(system.fails(caught_up(3, 3), "has map 6, not 3"), Code::Stale);
    // Somebody else may lead since the last map.
    system.run(caught_up(2, 6)).unwrap();
    assert_eq!(system.fails(caught_up(3, 6), "has map 7, not 6"), Code::Stale);
    system.run(caught_up(3, 7)).unwrap();
    assert!(map(&system).0.iter().all(|target| target.0 == TargetState::Up));
    assert_eq!(query(&system).members_version, 6);
    system.assert_in_step();
}

/// Without failover nothing changes in the maps: who needs a target that is away waits for it.
#[test]
fn targets_stay_as_they_are_where_nothing_is_to_go_on_without_them() {
    let system = System::new(2);
    system.pool("tank");
    system.targets.away.borrow_mut().insert(AWAY);
    let silent = system.service.engine_is_silent(AWAY, "no answer", false, &*system.targets);
    block_on(silent).unwrap();
    assert_eq!(state(&system).0, MemberState::Down);
    system.cont("tank", "home");
    assert_eq!(map(&system), (vec![UP; 4], 1));
    is_back(&system);
    assert_eq!(map(&system), (vec![UP; 4], 1));
    assert_eq!(state(&system).0, MemberState::Up);
    system.assert_in_step();
}

/// With one engine of several away, no pool could be made without naming targets, and no container in a pool that
/// had a target there.
#[test]
fn pools_and_containers_can_be_made_without_an_engine_that_is_down() {
    let system = System::new(2);
    let pool = system.pool("tank");
    is_silent(&system);
    system.cont("tank", "home");
    system.run(create_pool("small")).unwrap();
    let small = system.pools()[1].clone();
    assert!(small.map.targets.iter().all(|target| target.rank == Rank(0)));
    let conts =
        |target: u32| system.targets.shards.borrow()[&(TargetId(target), pool.id)].conts.len();
    assert_eq!([conts(0), conts(2)], [1, 0]);
    is_back(&system);
    assert_eq!([conts(0), conts(2)], [1, 1]);
    system.assert_in_step();
}

/// Until an engine that had died was called down, which takes some seconds, no container could be made.
#[test]
fn a_container_is_made_once_an_engine_that_gives_no_answer_is_called_down() {
    for seed in 0..50 {
        let system = System::new(2);
        system.pool("tank");
        system.targets.away.borrow_mut().insert(AWAY);
        system.targets.jitter.set(Some(seed));
        let silent = system.service.engine_is_silent(AWAY, "", true, &*system.targets);
        let create = system.ask(create_cont("tank", "home"));
        let (created, silent) = block_on(futures_util::future::join(create, silent));
        created.unwrap();
        silent.unwrap();
        is_back(&system);
        system.assert_in_step();
    }
    // Where nobody calls it down somebody has to know.
    let system = System::new(2);
    system.pool("tank");
    system.targets.away.borrow_mut().insert(AWAY);
    assert_eq!(system.fails(create_cont("tank", "home"), "engine is away"), Code::Unreach);
    assert!(system.targets.now.get() >= Duration::from_secs(15));
    assert!(system.conts(&label("tank")).is_empty());
}

/// It may also be that the engine comes back while the container is made: told of all that is ready, which the
/// container is not yet.
#[test]
fn an_engine_that_is_back_knows_what_was_made_meanwhile() {
    for seed in 0..200 {
        let system = System::new(2);
        system.pool("tank");
        let fails_over = seed % 2 == 0;
        let silent = system.service.engine_is_silent(AWAY, "", fails_over, &*system.targets);
        block_on(silent).unwrap();
        system.targets.jitter.set(Some(seed));
        let create = system.service.handle(
            control::SessionId(1),
            create_cont("tank", "home"),
            &*system.targets,
        );
        let resume = system.service.resume_engine(AWAY, &*system.targets);
        let (created, resumed) = block_on(futures_util::future::join(create, resume));
        created.unwrap();
        assert_eq!(resumed.unwrap(), []);
        system.assert_in_step();
    }
}

#[test]
fn an_excluded_engine_is_out_until_that_is_taken_back() {
    let system = System::new(2);
    system.pool("tank");
    system.run(exclude()).unwrap();
    let excluded = down(DownReason::Excluded, 2);
    assert_eq!(map(&system), (vec![UP, UP, excluded, excluded], 2));
    assert_eq!(state(&system), (MemberState::Excluded, "a bad fan".into()));
    // It answers, and knows.
    system.assert_in_step();
    // Again, silent, back, started anew: it stays out.
    system.run(exclude()).unwrap();
    is_silent(&system);
    is_back(&system);
    system.join(1).unwrap();
    is_back(&system);
    assert_eq!(map(&system).1, 2);
    let named = |targets: &[u32]| R::PoolCreate {
        placement: types::PlacementRule::default(),
        label: "two".into(),
        bytes: crate::fake::GIB,
        scm_percent: 10,
        durability: types::Durability::Wal,
        targets: targets.iter().copied().map(TargetId).collect(),
    };
    assert_eq!(system.fails(named(&[2]), "excluded"), Code::Busy);
    system.run(named(&[])).unwrap();
    assert_eq!(system.pools()[1].map.targets.len(), 2);
    system.cont("tank", "home");
    system.assert_in_step();
    system.run(R::SystemClearExclude { rank: AWAY }).unwrap();
    assert_eq!(state(&system).0, MemberState::Up);
    assert_eq!(map(&system).0[3].1, Some(DownReason::Behind));
    system.assert_in_step();
    assert_eq!(
        system.fails(R::SystemClearExclude { rank: Rank(9) }, "no engine 9"),
        Code::NonExist
    );
    let nobody = R::SystemExclude { rank: Rank(9), why: String::new() };
    assert_eq!(system.fails(nobody, "no engine 9"), Code::NonExist);
}

#[test]
fn one_that_is_taken_back_while_it_is_away_is_down() {
    let system = System::new(2);
    system.pool("tank");
    is_silent(&system);
    system.run(exclude()).unwrap();
    assert_eq!(map(&system).0[2], down(DownReason::Excluded, 3));
    system.run(R::SystemClearExclude { rank: AWAY }).unwrap();
    assert_eq!(map(&system).0[2], down(DownReason::Silent, 4));
    assert_eq!(state(&system).0, MemberState::Down);
    is_back(&system);
    assert_eq!(state(&system).0, MemberState::Up);
    system.assert_in_step();
}

/// A store that is lost is lost whatever becomes of its engine, and is not given up for a silence.
#[test]
fn what_is_lost_stays_lost_and_what_is_silent_is_not_reset() {
    let system = System::new(2);
    system.pool("tank");
    is_silent(&system);
    let reset = R::PoolResetTarget { pool: crate::fake::label("tank"), target: TargetId(2) };
    assert_eq!(system.fails(reset, "nothing there is known to be lost"), Code::Busy);
    system.targets.wipe(TargetId(2));
    is_back(&system);
    let (targets, _) = map(&system);
    assert_eq!([targets[2].1, targets[3].1], [Some(DownReason::Lost), Some(DownReason::Behind)]);
    is_silent(&system);
    system.run(exclude()).unwrap();
    assert_eq!(map(&system).0[2], targets[2]);
    system.run(R::SystemClearExclude { rank: AWAY }).unwrap();
    is_back(&system);
    assert_eq!(map(&system).0[2], targets[2]);
    system.assert_in_step();
}

fn leave(engine: u32, start: u64) -> R {
    R::Leave { engine: engine_info(engine).engine, start, fails_over: true }
}

fn join_again(system: &System, start: u64) {
    system.run(R::Join(wire::control::JoinInfo { start, ..engine_info(1) })).unwrap();
}

/// Whose engine was stopped for an upgrade found that out by its silence: clients waited five seconds for its copies.
#[test]
fn the_targets_of_an_engine_that_leaves_are_down_at_once_until_it_has_started_again() {
    let system = System::new(2);
    system.pool("tank");
    system.run(leave(1, 1)).unwrap();
    let stopped = down(DownReason::Stopped, 2);
    assert_eq!(map(&system), (vec![UP, UP, stopped, stopped], 2));
    assert_eq!(state(&system), (MemberState::Stopped, "stopped".into()));
    // Still there, it is told of it, too, and nothing brings it back: it answers because it has not gone yet.
    assert_eq!([0, 1, 2, 3].map(|target| version_at(&system, target)), [2; 4]);
    is_back(&system);
    is_silent(&system);
    join_again(&system, 1);
    is_back(&system);
    block_on(system.service.engine_stays_away(AWAY, &*system.targets)).unwrap();
    assert_eq!(map(&system), (vec![UP, UP, stopped, stopped], 2));
    assert_eq!(state(&system).0, MemberState::Stopped);
    // What was made meanwhile it does not have, and is told.
    system.cont("tank", "home");
    let system = system.restarted();
    join_again(&system, 2);
    let joining = (MemberState::Joining, "it has started, and is told what it holds".to_string());
    assert_eq!(state(&system), joining);
    let joined_as = query(&system).members_version;
    assert_eq!(query(&system).members[AWAY.0 as usize].since, joined_as);
    // It ends once more before it has been told, and starts again.
    is_silent(&system);
    assert_eq!(state(&system).0, MemberState::Down);
    join_again(&system, 3);
    assert_eq!(state(&system), joining);
    assert_eq!(query(&system).members_version, joined_as + 2);
    is_back(&system);
    let behind = down(DownReason::Behind, 3);
    assert_eq!(map(&system), (vec![UP, UP, behind, behind], 3));
    assert_eq!(state(&system).0, MemberState::Up);
    system.assert_in_step();
    // Behind, it does not count as somebody who goes on; and one that leaves while behind is stopped.
    system.run(leave(0, 1)).unwrap();
    assert_eq!(map(&system).1, 3);
    system.run(leave(1, 3)).unwrap();
    assert_eq!(map(&system).0[3], down(DownReason::Behind, 3));
}

/// An engine does not wait long for the answer to its farewell: one that the catalog held up is carried out when the
/// engine has started again.
#[test]
fn a_farewell_that_comes_late_takes_nobody_down() {
    for seed in 0..300 {
        let system = System::new(2);
        system.pool("tank");
        system.targets.jitter.set(Some(seed));
        let run = |request| system.service.handle(control::SessionId(1), request, &*system.targets);
        let join = async {
            crate::fake::Yield(seed as u32 % 60).await;
            run(R::Join(wire::control::JoinInfo { start: 2, ..engine_info(1) })).await.unwrap();
            system.service.resume_engine(AWAY, &*system.targets).await.unwrap();
        };
        let (left, ()) = block_on(futures_util::future::join(run(leave(1, 1)), join));
        left.unwrap();
        // Down it may be for a moment: who looks whether it answers has it told.
        assert_ne!(state(&system).0, MemberState::Stopped, "seed {seed}");
        is_back(&system);
        assert_eq!(state(&system).0, MemberState::Up, "seed {seed}");
        system.assert_in_step();
        system.run(leave(1, 1)).unwrap();
        assert_eq!(state(&system).0, MemberState::Up, "seed {seed}");
    }
}

#[test]
fn an_engine_leaves_no_pool_that_nobody_else_serves() {
    let system = System::new(1);
    system.pool("tank");
    system.run(leave(0, 1)).unwrap();
    assert_eq!(query(&system).members[0].state, MemberState::Up);
    assert_eq!(map(&system), (vec![UP; 2], 1));

    let system = System::new(2);
    system
        .run(R::PoolCreate {
            placement: types::PlacementRule::default(),
            label: "own".into(),
            bytes: crate::fake::GIB,
            scm_percent: 10,
            durability: types::Durability::Wal,
            targets: vec![TargetId(2), TargetId(3)],
        })
        .unwrap();
    system.run(leave(1, 1)).unwrap();
    assert_eq!(state(&system).0, MemberState::Stopped);
    assert_eq!(map(&system), (vec![UP; 2], 1));
    // Back soon, nothing has changed for the pool.
    join_again(&system, 2);
    is_back(&system);
    assert_eq!((state(&system).0, map(&system)), (MemberState::Up, (vec![UP; 2], 1)));
    system.run(leave(1, 2)).unwrap();
    block_on(system.service.engine_stays_away(AWAY, &*system.targets)).unwrap();
    assert_eq!(map(&system), (vec![down(DownReason::Stopped, 2); 2], 2));
    system.run(exclude()).unwrap();
    system.run(R::SystemClearExclude { rank: AWAY }).unwrap();
    is_back(&system);
    assert_eq!(map(&system).0[0].1, Some(DownReason::Behind));
    system.assert_in_step();
    assert_eq!(system.fails(leave(7, 1), "not in the system"), Code::NonExist);
}
