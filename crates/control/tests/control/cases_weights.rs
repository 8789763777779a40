//! Weights of targets by what was measured of them: the property `placement`.

use crate::fake::{GIB, System, label};
use std::collections::BTreeMap;
use types::{Code, Durability, PlacementRule, TargetId};
use wire::control::{ControlReply, ControlRequest as R, PoolInfo, Subject};
use wire::measure::{MeasureAsk, Standing};

fn wanted(name: &str, placement: PlacementRule, durability: Durability, targets: &[u32]) -> R {
    R::PoolCreate {
        label: name.into(),
        bytes: GIB,
        scm_percent: 10,
        durability,
        placement,
        targets: targets.iter().copied().map(TargetId).collect(),
    }
}

fn made(system: &System, request: R) -> PoolInfo {
    match system.run(request).unwrap() {
        ControlReply::Pool(pool) => pool,
        _ => panic!("not a pool"),
    }
}

fn weights(pool: &PoolInfo) -> Vec<u32> {
    pool.map.placements.last().unwrap().weights.iter().map(|(_, weight)| *weight).collect()
}

fn give_room(system: &System, free: &[u64]) {
    for (id, &free_bytes) in (0..).zip(free) {
        let standing = Standing { free_bytes, measures: None };
        system.targets.standings.borrow_mut().insert(TargetId(id), standing);
    }
}

#[test]
fn targets_are_weighed_by_room_or_by_room_and_speed() {
    let system = System::new(2);
    give_room(&system, &[GIB, GIB, GIB, 3 * GIB]);
    let wal = Durability::Wal;
    let equal = made(&system, wanted("equal", PlacementRule::Equal, wal, &[]));
    assert_eq!(weights(&equal), [65_536; 4]);
    let capacity = made(&system, wanted("capacity", PlacementRule::Capacity, wal, &[]));
    assert_eq!((weights(&capacity)[0], weights(&capacity)[3]), (43_690, 131_072));
    assert!(system.targets.standings.borrow().values().all(|of| of.measures.is_none()));
    // Those that are not measured yet are; the first is twelve times as fast as the others.
    let score = made(&system, wanted("score", PlacementRule::Score, wal, &[]));
    assert_eq!(score.placement, PlacementRule::Score);
    let got = weights(&score);
    let near = |a: u32, b: u32| a.abs_diff(b) <= 2;
    assert!(near(got[0], 12 * got[1]) || got[0] / got[1] == 12, "{got:?}");
    assert!(near(got[3], 3 * got[1]), "{got:?}");
    assert_eq!(got.iter().sum::<u32>() / 65_536, 3, "the norm on average, rounded down");
    // In memory devices do not count.
    let memory = made(&system, wanted("m", PlacementRule::Score, Durability::Memory, &[]));
    assert_eq!(weights(&memory), [65_536; 4]);
}

#[test]
fn what_was_measured_later_changes_no_pool_that_is_there() {
    let system = System::new(2);
    give_room(&system, &[GIB; 4]);
    let request = wanted("tank", PlacementRule::Score, Durability::Wal, &[0, 1]);
    let before = made(&system, request);
    let ask = MeasureAsk { bytes: 1, step_ms_max: 1, once: false };
    let measure = R::TargetMeasure { target: TargetId(1), ask: Some(ask) };
    let ControlReply::Standing(standing) = system.run(measure).unwrap() else {
        panic!("not how a target stands")
    };
    assert_eq!(standing.measures.unwrap().read.kb_s, 200_000);
    give_room(&system, &[GIB, 9 * GIB, GIB, GIB]);
    let ControlReply::Pool(now) = system.run(R::PoolQuery(label("tank"))).unwrap() else {
        panic!("not a pool")
    };
    assert_eq!(now.map.placements, before.map.placements);
    // Those that are taken in begin a placement epoch, with weights of that moment for all.
    let extended = made(&system, R::PoolExtend { pool: label("tank"), targets: Vec::new() });
    assert_eq!(extended.map.placements[0], before.map.placements[0]);
    let of = weights(&extended);
    assert_eq!(of.len(), 4);
    assert!(of[0] > of[1] && of[1] > of[2] && of[2] == of[3], "{of:?}");
}

#[test]
fn what_cannot_be_weighed_makes_no_pool() {
    let system = System::new(2);
    for rule in [PlacementRule::Capacity, PlacementRule::Score] {
        let full = wanted("tank", rule, Durability::Wal, &[]);
        assert_eq!(system.fails(full.clone(), "free room"), Code::NoSpace);
        system.targets.broken.borrow_mut().insert(TargetId(2));
        system.fails(full, "target 2");
        system.targets.broken.borrow_mut().clear();
    }
    assert!(system.pools().is_empty());
    // It is fixed when the pool is made.
    made(&system, wanted("tank", PlacementRule::Equal, Durability::Wal, &[]));
    let props = BTreeMap::from([("placement".to_string(), "score".to_string())]);
    let change = R::SetProps { subject: Subject::Pool(label("tank")), props };
    assert_eq!(system.fails(change, "fixed"), Code::Inval);
}
