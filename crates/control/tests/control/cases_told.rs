//! What targets tell of themselves, and whose word counts.

use crate::fake::{GIB, System, label};
use futures_executor::block_on;
use types::{Code, Durability, PlacementRule, Rank, TargetId};
use wire::control::{ControlRequest as R, TargetAim};
use wire::map::{DownReason, LEFT_UNSURE, PoolMap, TargetInfo, TargetState};
use wire::versions::ALL_IS_HERE;

fn map(system: &System) -> PoolMap {
    system.pools()[0].map.clone()
}

fn of(system: &System, target: TargetId) -> TargetInfo {
    map(system).target(target).unwrap().clone()
}

fn caught_up(system: &System, target: TargetId) -> R {
    let PoolMap { pool, version: map_version, .. } = map(system);
    R::TargetCaughtUp { pool, target, map_version }
}

/// Two engines are lost, one after the other: the second one may have what nobody else has. The first one is back, and has compared itself with all who are
/// there: that is not enough.
#[test]
fn who_left_earlier_is_not_whole_while_who_left_later_is_away() {
    let system = System::new(3);
    system.pool("tank");
    let (earlier, later) = (TargetId(2), TargetId(4));
    for rank in [1, 2] {
        let silent = system.service.engine_is_silent(Rank(rank), "gone", true, &*system.targets);
        block_on(silent).unwrap();
    }
    let back = |rank| {
        assert_eq!(
            block_on(system.service.resume_engine(Rank(rank), &*system.targets)).unwrap(),
            []
        );
    };
    back(1);
    assert!(of(&system, earlier).left < of(&system, later).left);
    assert_eq!(system.fails(caught_up(&system, earlier), "may have what nobody"), Code::Busy);
    assert_eq!(of(&system, earlier).reason, Some(DownReason::Behind));
    // Then it can be asked, and who left later does not wait for who left earlier.
    back(2);
    for target in [later, earlier] {
        system.run(caught_up(&system, target)).unwrap();
        assert_eq!(of(&system, target).reason, None);
    }
    system.assert_in_step();
}

fn create_pool(system: &System, durability: Durability) {
    let create = R::PoolCreate {
        label: "tank".into(),
        bytes: 4 * GIB,
        scm_percent: 10,
        durability,
        placement: PlacementRule::Equal,
        targets: Vec::new(),
    };
    system.run(create).unwrap();
}

/// A target that was opened again has all that anybody was told of where that was on stable storage, and only there. It says so when that ends.
#[test]
fn who_was_opened_again_is_trusted_as_far_as_its_pool_promises() {
    for (durability, kept) in [
        (Durability::Wal, 0),
        (Durability::Relaxed, 0),
        // Ended in good order.
        (Durability::Relaxed, ALL_IS_HERE),
        (Durability::Memory, 0),
    ] {
        let system = System::new(2);
        create_pool(&system, durability);
        let opened = TargetId(2);
        system.targets.unsure.borrow_mut().insert(opened);
        system.targets.kept_maps.borrow_mut().insert(opened, kept);
        let before = map(&system);
        let resumed = system.service.resume_engine(Rank(1), &*system.targets);
        assert_eq!(block_on(resumed).unwrap(), []);
        let behind = of(&system, opened);
        assert_eq!(behind.reason, Some(DownReason::Behind), "{durability:?}");
        let left = match durability {
            Durability::Wal => LEFT_UNSURE,
            Durability::Relaxed if kept == ALL_IS_HERE => LEFT_UNSURE,
            Durability::Relaxed | Durability::Memory => before.version + 1,
        };
        assert_eq!(behind.left, left, "{durability:?}");
        assert_eq!(of(&system, TargetId(3)), *before.target(TargetId(3)).unwrap());
        let PoolMap { pool, version: map_version, .. } = map(&system);
        system.run(R::TargetLacks { pool, target: opened, map_version }).unwrap();
        let lacks = of(&system, opened);
        assert_eq!(
            (lacks.reason, lacks.left),
            (behind.reason, map(&system).version),
            "{durability:?}"
        );
        system.run(caught_up(&system, opened)).unwrap();
        assert_eq!(
            (of(&system, opened).reason, of(&system, opened).left),
            (None, 0),
            "{durability:?}"
        );
        system.assert_in_step();
    }
}

/// An engine died with the end of its log and stayed in the map as one that serves; others that had all left after its death, by the map, before it was missed. It counted as the last to leave, led when nobody was whole, and
/// showed a key as it was before an update that the others have (seed 8937 of all trouble).
#[test]
fn who_lost_the_end_of_its_log_left_when_what_it_has_was_done() {
    for (durability, kept) in [
        (Durability::Relaxed, 1),
        (Durability::Relaxed, 0),
        (Durability::Relaxed, 9),
        (Durability::Wal, 1),
    ] {
        let system = System::new(3);
        create_pool(&system, durability);
        let (restarted, dead) = (TargetId(0), TargetId(2));
        assert_eq!(map(&system).version, 1);
        system.targets.unsure.borrow_mut().insert(restarted);
        block_on(system.service.resume_engine(Rank(0), &*system.targets)).unwrap();
        assert_eq!(of(&system, restarted).reason, Some(DownReason::Behind));
        block_on(system.service.engine_is_silent(Rank(1), "gone", true, &*system.targets)).unwrap();
        let (missed, earlier) = (of(&system, dead).left, of(&system, restarted).left);
        assert_eq!(missed, map(&system).version);
        // It is back, with what was kept.
        system.targets.kept_maps.borrow_mut().insert(dead, kept);
        for _ in 0..2 {
            block_on(system.service.resume_engine(Rank(1), &*system.targets)).unwrap();
            let is_lost = durability == Durability::Relaxed && kept == 1;
            let left = if is_lost { kept + 1 } else { missed };
            let back = of(&system, dead);
            assert_eq!((back.reason, back.left), (Some(DownReason::Behind), left), "{kept}");
            // Of another target of the same engine nothing is known.
            assert_eq!(of(&system, TargetId(3)).left, missed);
            // Both were there under the same map, and one of them lost the end: it is not as good as the other one.
            let other = if is_lost { left + 1 } else { earlier };
            assert_eq!(of(&system, restarted).left, other);
        }
        system.assert_in_step();
    }
}

/// Three of a `relaxed` pool. One was called down, another one died before that and was put in front of it, so that it moved up by one; then the third, which had gone on
/// alone, died and lost what it did last. It was put in front of the first as well, which had left long before it, and led with what was older (seed 37137 of all trouble).
#[test]
fn who_was_moved_up_has_no_more_than_before() {
    let system = System::new(3);
    create_pool(&system, Durability::Relaxed);
    let [last, unnoticed, first] = [TargetId(0), TargetId(2), TargetId(4)];
    block_on(system.service.engine_is_silent(Rank(2), "gone", true, &*system.targets)).unwrap();
    assert_eq!(of(&system, first).left, 2);
    let comes_back = |target: TargetId, rank, kept| {
        system.targets.unsure.borrow_mut().insert(target);
        system.targets.kept_maps.borrow_mut().insert(target, kept);
        block_on(system.service.resume_engine(Rank(rank), &*system.targets)).unwrap();
        assert_eq!(of(&system, target).reason, Some(DownReason::Behind));
    };
    comes_back(unnoticed, 1, 1);
    assert!(of(&system, unnoticed).left < of(&system, first).left);
    let before = of(&system, first).left;
    comes_back(last, 0, 2);
    assert_eq!(of(&system, first).left, before);
    assert!(of(&system, last).left > before);
    system.assert_in_step();
}

/// A target was excluded, or its engine's disk exchanged, before it had compared itself after a restart. It was still said to have all that anybody was told of; what the others did while it was
/// out it was believed to have when it was back, and with one of them away it led, with what was as old as that (seed 781 of the swarm with targets that are excluded).
#[test]
fn who_goes_before_it_has_compared_itself_left_then() {
    type Go = fn(&System, TargetId);
    let exclude: Go = |system, target| {
        let aim = |aim| R::PoolAim { pool: label("tank"), targets: vec![target], aim };
        system.run(aim(TargetAim::Exclude)).unwrap();
    };
    let exclude_engine: Go = |system, _| {
        system.run(R::SystemExclude { rank: Rank(1), why: String::new() }).unwrap();
    };
    let die: Go = |system, _| {
        block_on(system.service.engine_is_silent(Rank(1), "gone", true, &*system.targets)).unwrap();
    };
    let lose: Go = |system, target| {
        system.targets.wipe(target);
        block_on(system.service.resume_engine(Rank(1), &*system.targets)).unwrap();
    };
    for go in [exclude, exclude_engine, die, lose] {
        let system = System::new(2);
        system.pool("tank");
        let opened = TargetId(2);
        system.targets.unsure.borrow_mut().insert(opened);
        block_on(system.service.resume_engine(Rank(1), &*system.targets)).unwrap();
        assert_eq!(of(&system, opened).left, LEFT_UNSURE);
        system.targets.unsure.borrow_mut().clear();
        go(&system, opened);
        let gone = of(&system, opened);
        assert_eq!((gone.state, gone.left), (TargetState::Down, map(&system).version));
        assert_ne!(gone.reason, Some(DownReason::Behind));
    }
}
