//! Pools: what they are made of, and what is refused.

use crate::fake::{GIB, System, create_pool, destroy_pool, label};
use futures_executor::block_on;
use std::collections::BTreeSet;
use types::{Code, Durability, PoolId, Rank, TargetId, limits};
use wire::control::{ControlReply, ControlRequest as R, Name};
use wire::map::TargetState;

fn sized(name: &str, bytes: u64, scm_percent: u8, targets: &[u32]) -> R {
    R::PoolCreate {
        placement: types::PlacementRule::default(),
        label: name.to_string(),
        bytes,
        scm_percent,
        durability: Durability::Memory,
        targets: targets.iter().copied().map(TargetId).collect(),
    }
}

#[test]
fn a_new_pool_spans_all_targets_evenly() {
    let system = System::new(2);
    let pool = system.pool("tank");
    assert_eq!((pool.id, pool.label.as_str()), (PoolId(1), "tank"));
    assert_eq!(pool.map.version, 1);
    assert_eq!(pool.map.targets.len(), 4);
    assert!(pool.map.targets.iter().all(|target| target.state == TargetState::Up));
    assert_eq!(pool.map.engines.len(), 2);
    assert_eq!(pool.map.placements.len(), 1);
    let weights: Vec<_> = (0..4).map(|id| (TargetId(id), 65_536)).collect();
    assert_eq!(pool.map.placements[0].weights, weights);
    assert!(pool.scm_bytes + pool.nvme_bytes <= GIB);
    assert!(pool.scm_bytes + pool.nvme_bytes > GIB - 4 * 4096);
    let tenth = GIB / 10;
    assert!((tenth - 4 * 4096..=tenth).contains(&pool.scm_bytes));
    assert_eq!((pool.cont_count, pool.handle_count), (0, 0));
    system.assert_in_step();
    let by_uuid = system.run(R::PoolQuery(Name::Uuid(pool.uuid))).unwrap();
    let by_label = system.run(R::PoolQuery(label("tank"))).unwrap();
    assert_eq!(by_uuid, ControlReply::Pool(pool.clone()));
    assert_eq!(by_label, by_uuid);
    assert_eq!(system.run(R::PoolMap(pool.id)).unwrap(), ControlReply::Map(pool.map));
}

#[test]
fn a_pool_over_named_targets_knows_only_their_engines() {
    let system = System::new(3);
    let ControlReply::Pool(pool) = system.run(sized("part", GIB, 50, &[5, 0, 5])).unwrap() else {
        panic!("not a pool");
    };
    let ids: Vec<u32> = pool.map.targets.iter().map(|target| target.id.0).collect();
    assert_eq!(ids, [0, 5]);
    let ranks: Vec<u32> = pool.map.engines.iter().map(|engine| engine.rank.0).collect();
    assert_eq!(ranks, [0, 2]);
    assert_eq!(pool.durability, Durability::Memory);
    assert_eq!(pool.scm_bytes, pool.nvme_bytes);
    system.assert_in_step();
}

#[test]
fn bad_pools_are_refused_and_leave_nothing() {
    let system = System::new(2);
    system.pool("tank");
    assert_eq!(system.fails(create_pool("tank"), "another label"), Code::Exist);
    assert_eq!(system.fails(create_pool("a/b"), "a/b"), Code::Inval);
    assert_eq!(system.fails(create_pool(""), "label"), Code::Inval);
    assert_eq!(system.fails(sized("p", GIB, 0, &[]), "1 to 99"), Code::Inval);
    assert_eq!(system.fails(sized("p", GIB, 100, &[]), "1 to 99"), Code::Inval);
    let least = limits::SHARD_BYTES_MIN * 4;
    assert_eq!(system.fails(sized("p", least - 1, 50, &[]), "64 MiB or more"), Code::Inval);
    assert_eq!(system.fails(sized("p", GIB, 50, &[9]), "target 9"), Code::NonExist);
    system.run(sized("least", least, 1, &[])).unwrap();
    system.run(sized("greatest", u64::MAX, 99, &[])).unwrap();
    assert_eq!(system.pools().len(), 3);
    system.assert_in_step();

    let empty = System::new(0);
    assert_eq!(empty.fails(create_pool("tank"), "start one"), Code::NonExist);
}

#[test]
fn a_pool_needs_all_its_engines_while_it_is_made() {
    let system = System::new(2);
    system.targets.away.borrow_mut().insert(Rank(1));
    assert_eq!(system.fails(create_pool("tank"), "engine 1"), Code::Unreach);
    system.run(sized("tank", GIB, 10, &[0, 1])).unwrap();
    system.assert_in_step();
}

#[test]
fn a_failed_creation_is_rolled_back_and_can_be_repeated() {
    let system = System::new(2);
    system.targets.broken.borrow_mut().insert(TargetId(2));
    assert_eq!(system.fails(create_pool("tank"), "target 2"), Code::Io);
    // The broken target could not be told, so the remains wait, and nobody sees them.
    assert!(system.pools().is_empty());
    assert_eq!(system.keys_of("pool/"), ["pool/00000001"]);
    assert!(system.keys_of("pool-label/").is_empty());

    system.targets.broken.borrow_mut().clear();
    let pool = system.pool("tank");
    assert_eq!(pool.id, PoolId(2), "numbers are not used twice");
    futures_executor::block_on(system.service.resume(&*system.targets)).unwrap();
    assert_eq!(system.pools().len(), 1);
    system.assert_in_step();
}

#[test]
fn destroying_needs_force_while_there_are_containers() {
    let system = System::new(1);
    system.pool("tank");
    system.cont("tank", "home");
    assert_eq!(system.fails(destroy_pool("tank", false), "1 containers"), Code::Busy);
    system.assert_in_step();
    assert_eq!(system.run(destroy_pool("tank", true)).unwrap(), ControlReply::Done);
    assert!(system.pools().is_empty());
    system.assert_in_step();
    assert_eq!(system.fails(destroy_pool("tank", true), "no pool 'tank'"), Code::NonExist);
    assert_eq!(system.pool("tank").id, PoolId(2));
}

/// While an engine was away, for good perhaps, no pool could be destroyed: it stayed, with its name, and whoever asked was told to ask again.
#[test]
fn a_pool_is_destroyed_while_an_engine_is_away() {
    let system = System::new(2);
    let pool = system.pool("tank");
    system.cont("tank", "home");
    system.targets.away.borrow_mut().insert(Rank(1));
    system.run(destroy_pool("tank", true)).unwrap();
    assert!(system.pools().is_empty());
    let held = |system: &System| -> Vec<TargetId> {
        system.targets.shards.borrow().keys().map(|(target, _)| *target).collect()
    };
    assert_eq!(held(&system), [TargetId(2), TargetId(3)]);
    let open = |pool| R::PoolOpen { pool, mode: crate::cases_handles::RW };
    assert_eq!(system.fails(open(label("tank")), "no pool 'tank'"), Code::NonExist);
    assert_eq!(system.fails(open(Name::Uuid(pool.uuid)), "being destroyed"), Code::Busy);
    // Its map does not follow the engine any more: nobody has it.
    let silent = system.service.engine_is_silent(Rank(1), "", true, &*system.targets);
    block_on(silent).unwrap();
    let ControlReply::Map(map) = system.run(R::PoolMap(pool.id)).unwrap() else { panic!() };
    assert_eq!(map.version, pool.map.version);
    // Also after the service was started again, and where its engine is away for long.
    let system = system.restarted();
    block_on(system.service.resume(&*system.targets)).unwrap();
    assert_eq!(held(&system), [TargetId(2), TargetId(3)]);
    // Whoever comes back removes what it has.
    system.targets.away.borrow_mut().clear();
    assert_eq!(block_on(system.service.resume_engine(Rank(1), &*system.targets)).unwrap(), []);
    assert!(held(&system).is_empty());
    assert_eq!(system.fails(R::PoolMap(pool.id), "no pool number"), Code::NonExist);
    assert_eq!(system.pool("tank").id, PoolId(2));
    system.assert_in_step();
}

/// What a target that is there could not remove stayed until somebody asked once more, or its engine was started again.
#[test]
fn what_could_not_be_removed_is_tried_again_by_itself() {
    let system = System::new(2);
    system.pool("tank");
    system.pool("lake");
    system.cont("lake", "home");
    system.targets.broken.borrow_mut().insert(TargetId(2));
    assert_eq!(system.fails(destroy_pool("tank", false), "target 2: disk failed"), Code::Io);
    let home = crate::fake::destroy_cont("lake", "home", false);
    assert_eq!(system.fails(home.clone(), "tried again by itself"), Code::Io);
    assert_eq!(system.fails(home, "no container 'home'"), Code::NonExist);
    assert_eq!(system.pools().len(), 1);
    assert_eq!(system.service.take_untold(), BTreeSet::from([Rank(1)]));
    // Whoever tells it goes on until it can.
    let tell = || block_on(system.service.resume_engine(Rank(1), &*system.targets)).unwrap();
    assert!(tell().iter().all(|(target, _)| *target == TargetId(2)));
    assert!(!tell().is_empty());
    system.targets.broken.borrow_mut().clear();
    assert_eq!(tell(), []);
    system.assert_in_step();
    assert_eq!(system.keys_of("pool/"), ["pool/00000002"]);
    assert!(system.keys_of("cont/").is_empty());
}

#[test]
fn pools_are_listed_and_counted() {
    let system = System::new(1);
    for name in ["a", "b", "c"] {
        system.pool(name);
    }
    let labels: BTreeSet<String> = system.pools().into_iter().map(|pool| pool.label).collect();
    assert_eq!(labels, ["a", "b", "c"].map(String::from).into());
    let ControlReply::System(info) = system.run(R::SystemQuery).unwrap() else {
        panic!("not a system");
    };
    assert_eq!(info.pool_count, 3);
}
