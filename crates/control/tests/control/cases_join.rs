//! Engines that join, come back, move and restart.

use crate::fake::{System, create_pool, engine_info, label};
use control::Catalog;
use futures_executor::block_on;
use std::collections::BTreeSet;
use types::{Code, Durability, Rank, TargetId};
use uuid::Uuid;
use wire::control::{ControlReply, ControlRequest as R};

#[test]
fn an_engine_gets_the_same_rank_and_targets_for_ever() {
    let system = System::new(0);
    let first = system.join(7).unwrap();
    let ControlReply::Joined { rank, targets, system: uuid } = first.clone() else {
        panic!("not joined");
    };
    assert_eq!((rank, targets), (Rank(0), vec![TargetId(0), TargetId(1)]));
    let ControlReply::Joined { rank, targets, .. } = system.join(3).unwrap() else {
        panic!("not joined");
    };
    assert_eq!((rank, targets), (Rank(1), vec![TargetId(2), TargetId(3)]));
    let system = system.restarted();
    assert_eq!(system.join(7).unwrap(), first);
    assert_eq!(block_on(system.service.system_uuid()).unwrap(), uuid);
    assert!(!uuid.is_nil());
    let engines = block_on(system.service.engines()).unwrap();
    let ranks: Vec<Rank> = engines.iter().map(|(info, _)| info.rank).collect();
    assert_eq!(ranks, [Rank(0), Rank(1)]);
}

#[test]
fn bad_engines_are_refused() {
    let system = System::new(1);
    let mut shrunk = engine_info(0);
    shrunk.target_count = 1;
    assert_eq!(system.fails(R::Join(shrunk), "none may go"), Code::Inval);
    for target_count in [0, 5000] {
        let bad = wire::control::JoinInfo { target_count, ..engine_info(1) };
        assert_eq!(system.fails(R::Join(bad), "1 to 4096"), Code::Inval);
    }
    let nobody = wire::control::JoinInfo { engine: Uuid::nil(), ..engine_info(1) };
    assert_eq!(system.fails(R::Join(nobody), "identity"), Code::Inval);
    let mut mute = engine_info(1);
    mute.info.tcp.clear();
    mute.info.unix.clear();
    assert_eq!(system.fails(R::Join(mute), "reach"), Code::Inval);
    assert_eq!(block_on(system.service.engines()).unwrap().len(), 1);
}

/// An engine was held to the devices that it had when it joined first: one more meant another engine. It keeps its targets and gets further
/// ones, which pools take in when they are extended.
#[test]
fn an_engine_gets_further_targets_and_keeps_those_it_had() {
    let system = System::new(2);
    let pool = system.pool("tank");
    let grown = || wire::control::JoinInfo { target_count: 4, ..engine_info(0) };
    let ControlReply::Joined { rank, targets, .. } = system.run(R::Join(grown())).unwrap() else {
        panic!("not joined");
    };
    let ids = |of: [u32; 4]| of.map(TargetId).to_vec();
    assert_eq!((rank, targets), (Rank(0), ids([0, 1, 4, 5])), "others have 2 and 3");
    assert_eq!(system.pools()[0].map.targets, pool.map.targets, "no pool is on them");
    // Neither a restart of it nor one of the catalog gives it more.
    let system = system.restarted();
    let ControlReply::Joined { targets, .. } = system.run(R::Join(grown())).unwrap() else {
        panic!("not joined");
    };
    assert_eq!(targets, ids([0, 1, 4, 5]));
    assert_eq!(system.fails(R::Join(engine_info(0)), "none may go"), Code::Inval);
    let ControlReply::Joined { targets, .. } = system.join(7).unwrap() else {
        panic!("not joined");
    };
    assert_eq!(targets, [6, 7].map(TargetId), "numbers are given out once");
}

/// An engine with the directory and the devices of one system was taken into another by a wrong address, as a new one.
#[test]
fn an_engine_of_another_system_is_refused() {
    let system = System::new(1);
    let uuid = block_on(system.service.system_uuid()).unwrap();
    let of = |engine: u32, system: Uuid| {
        R::Join(wire::control::JoinInfo { system: Some(system), ..engine_info(engine) })
    };
    let before = block_on(system.catalog.list("")).unwrap();
    for engine in [0, 1] {
        assert_eq!(system.fails(of(engine, Uuid::from_u128(9)), "of system"), Code::Inval);
    }
    assert_eq!(block_on(system.catalog.list("")).unwrap(), before, "nothing has changed");
    system.run(of(0, uuid)).unwrap();
    system.run(of(1, uuid)).unwrap();

    // Nor does one take part in a catalog of another system, or begin one.
    let known = |known: Option<Uuid>, catalog: &dyn Catalog| {
        block_on(control::check_system(catalog, known)).map_err(|error| error.code)
    };
    let empty = control::EmbeddedCatalog::in_memory().unwrap();
    assert_eq!(known(None, &empty), Ok(()));
    assert_eq!(known(Some(uuid), &empty), Err(Code::Inval));
    assert_eq!(known(None, &*system.catalog), Ok(()));
    assert_eq!(known(Some(uuid), &*system.catalog), Ok(()));
    assert_eq!(known(Some(Uuid::from_u128(9)), &*system.catalog), Err(Code::Inval));
}

#[test]
fn a_query_tells_which_engines_answer() {
    let system = System::new(2);
    system.targets.away.borrow_mut().insert(Rank(1));
    let ControlReply::System(info) = system.run(R::SystemQuery).unwrap() else {
        panic!("not a system");
    };
    let reachable: Vec<bool> = info.engines.iter().map(|(_, _, reachable)| *reachable).collect();
    assert_eq!(reachable, [true, false]);
    assert_eq!(info.engines[1].0.tcp, "node1:10301");
    assert_eq!(info.engines[1].1, [TargetId(2), TargetId(3)]);
    assert_eq!(info.version, env!("CARGO_PKG_VERSION"));
}

#[test]
fn a_new_address_reaches_the_maps_of_its_pools() {
    let system = System::new(3);
    let both = system.pool("both");
    let other = R::PoolCreate {
        placement: types::PlacementRule::default(),
        label: "other".to_string(),
        bytes: crate::fake::GIB,
        scm_percent: 10,
        durability: Durability::Wal,
        targets: vec![TargetId(4)],
    };
    system.run(other).unwrap();
    let mut moved = engine_info(1);
    moved.info.tcp = "elsewhere:1".to_string();
    system.run(R::Join(moved.clone())).unwrap();
    let ControlReply::Map(map) = system.run(R::PoolMap(both.id)).unwrap() else {
        panic!("not a map");
    };
    assert_eq!(map.version, 2);
    assert_eq!(map.engines[1].tcp, "elsewhere:1");
    assert_eq!(system.pools()[1].map.version, 1, "a pool without the engine is left alone");
    // Other engines have it at once, the engine itself when it can take orders.
    let version_at = |target: u32| {
        let shards = system.targets.shards.borrow();
        shards[&(TargetId(target), both.id)].map.as_ref().map(|map| map.version)
    };
    assert_eq!([0, 1, 2, 3, 4, 5].map(version_at), [2, 2, 1, 1, 2, 2].map(Some));
    assert_eq!(block_on(system.service.resume_engine(Rank(1), &*system.targets)).unwrap(), []);
    system.assert_in_step();
    // Joining again from the same place changes nothing.
    system.run(R::Join(moved)).unwrap();
    assert_eq!(system.pools()[0].map.version, 2);
}

#[test]
fn an_engine_that_lost_its_memory_gets_everything_again() {
    let system = System::new(2);
    for (name, durability) in [("ram", Durability::Memory), ("disk", Durability::Wal)] {
        let R::PoolCreate { label, bytes, scm_percent, targets, .. } = create_pool(name) else {
            panic!("not a creation");
        };
        system
            .run(R::PoolCreate {
                placement: types::PlacementRule::default(),
                label,
                bytes,
                scm_percent,
                durability,
                targets,
            })
            .unwrap();
        system.cont(name, "a");
        system.cont(name, "b");
    }
    system.targets.restart(Rank(1));
    assert_eq!(system.targets.shards.borrow().len(), 6);
    system.join(1).unwrap();
    assert_eq!(block_on(system.service.resume_engine(Rank(1), &*system.targets)).unwrap(), []);
    system.assert_in_step();
}

#[test]
fn a_restarted_service_resumes_those_that_answer() {
    let system = System::new(2);
    let R::PoolCreate { label, bytes, scm_percent, targets, .. } = create_pool("tank") else {
        panic!("not a creation");
    };
    let durability = Durability::Memory;
    system
        .run(R::PoolCreate {
            placement: types::PlacementRule::default(),
            label,
            bytes,
            scm_percent,
            durability,
            targets,
        })
        .unwrap();
    system.cont("tank", "home");
    system.targets.shards.borrow_mut().clear();
    system.targets.away.borrow_mut().insert(Rank(0));
    system.targets.broken.borrow_mut().insert(TargetId(3));
    let system = system.restarted();
    let failures = block_on(system.service.resume(&*system.targets)).unwrap();
    let failed: Vec<_> = failures.iter().map(|(target, error)| (*target, error.code)).collect();
    assert_eq!(failed, [(TargetId(3), Code::Io)]);
    let held: Vec<_> = system.targets.shards.borrow().keys().map(|(target, _)| *target).collect();
    assert_eq!(held, [TargetId(2)]);
    system.targets.away.borrow_mut().clear();
    system.targets.broken.borrow_mut().clear();
    assert_eq!(block_on(system.service.resume(&*system.targets)).unwrap(), []);
    system.assert_in_step();
}

#[test]
fn a_destruction_that_waited_for_an_engine_ends_when_it_returns() {
    let system = System::new(2);
    for name in ["tank", "lake"] {
        system.pool(name);
        system.cont(name, "home");
    }
    system.targets.away.borrow_mut().insert(Rank(1));
    system.run(crate::fake::destroy_pool("tank", true)).unwrap();
    system.run(crate::fake::destroy_cont("lake", "home", true)).unwrap();
    assert_eq!(system.service.take_untold(), BTreeSet::from([Rank(1)]));
    system.targets.away.borrow_mut().clear();
    block_on(system.service.resume_engine(Rank(1), &*system.targets)).unwrap();
    assert_eq!(system.pools().len(), 1);
    assert!(system.conts(&label("lake")).is_empty());
    system.assert_in_step();
}
