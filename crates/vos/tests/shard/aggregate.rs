//! Joining of small extents: it changes nothing that can be read, survives every crash, and
//! leaves few extents behind.

use super::model::*;
use super::places;
use env::{Decay, Env, Rng, SimWorld};
use std::path::Path;
use std::rc::Rc;
use types::{Code, Durability, ObjType};
use vos::{PoolShard, PoolShardConfig, Store, StoreOptions};
use wire::obj::*;

const DATA: &str = "/target/pool.3/data";

/// Steps that mostly write small pieces of few arrays.
fn step(rng: &Rng) -> Step {
    if rng.below(4) == 0 {
        return Step::random(rng);
    }
    let index = rng.below(30) * 1000 + rng.below(2) * rng.below(500);
    let recx = Recx { index, count: 1000 + rng.below(2) * rng.below(8000) };
    Step {
        unit: unit(ObjType::ArrayByte, rng.below(2)),
        dkey: rng.below(3).to_le_bytes().to_vec(),
        akey: Vec::new(),
        cond: Cond::NONE,
        act: Act::Array { record_bytes: 1, recx, fill: rng.below(250) as u8 },
    }
}

fn small(durability: Durability) -> PoolShardConfig {
    PoolShardConfig { nvme_bytes: 24 << 20, ..config(durability) }
}

#[test]
fn joined_extents_read_like_the_model_in_every_durability() {
    let durabilities = [Durability::Memory, Durability::Wal, Durability::Relaxed];
    for (seed, durability) in places::seeds(3, 9).zip(durabilities.into_iter().cycle()) {
        let world = SimWorld::new(seed);
        let env = world.node("a");
        world.block_on(async {
            let rng = Rng::new(seed);
            let (_store, shard) = fresh(&env, &small(durability)).await.unwrap();
            let mut model = Model::default();
            for n in 0..240 {
                let step = step(&rng);
                let got = run(&shard, n + 1, &step).await.map(|_| ()).map_err(|e| e.code);
                assert_eq!(got, model.run(n + 1, &step), "{step:?}");
                if n % 20 == 19 {
                    // Updates go on while it reads and writes.
                    let beside = shard.clone();
                    env.spawn(async move { beside.aggregate().await.unwrap() });
                }
                if n % 60 == 59 {
                    shard.aggregate().await.unwrap();
                    compare(&shard, &model).await;
                }
            }
            shard.aggregate().await.unwrap();
            let stat = shard.aggregation_stat();
            assert!(stat.joined > stat.made && stat.made > 0 && stat.moved_bytes > 0, "{stat:?}");
            compare(&shard, &model).await;
            // Every block and byte comes back.
            for unit in model.0.keys() {
                let op = [Op::PunchObj { unit: *unit, cond: Cond::NONE, besides: b"" }];
                let lsn = write(&shard, 1000, &op, b"", None).await.unwrap();
                shard.durable(lsn).await.unwrap();
            }
            env.sleep(std::time::Duration::from_millis(50)).await;
            let stat = shard.stat();
            assert_eq!(stat.scm_free_bytes, stat.scm_bytes);
            assert_eq!(stat.nvme_free_bytes, stat.nvme_bytes);
        });
        world.clear();
    }
}

/// Runs steps with aggregation until the disk stops; what aggregation did when all went through.
fn cut_after(seed: u64, changes: u64) -> Option<wire::store::AggregationStat> {
    let world = SimWorld::new(seed);
    let env = world.node("a");
    let disk = world.disk("a");
    let mut acked = Model::default();
    let mut in_flight = Model::default();
    let finished = world.block_on(async {
        let (_store, shard) = fresh(&env, &small(Durability::Wal)).await.unwrap();
        disk.stop_after(changes);
        let rng = Rng::new(seed);
        for n in 0..24 {
            let step = step(&rng);
            let expected = in_flight.run(n + 1, &step);
            let outcome = async {
                let lsn = run(&shard, n + 1, &step).await?;
                shard.durable(lsn).await
            };
            match outcome.await {
                Err(error) if error.code == Code::Io => return None,
                other => assert_eq!(other.map_err(|e| e.code), expected),
            }
            acked = in_flight.clone();
            if n % 12 == 11 && shard.aggregate().await.is_err() {
                return None;
            }
            if n == 16 {
                let beside = shard.clone();
                env.spawn(async move { beside.aggregate().await.unwrap_or(()) });
            }
            if n == 18 && shard.checkpoint().await.is_err() {
                return None;
            }
        }
        Some(shard.aggregation_stat())
    });
    world.kill("a");
    disk.crash();
    let env = world.node("a");
    world.block_on(async {
        let store = Store::open(&env, Path::new("/target")).await.unwrap();
        let shard = store.open_shard(POOL).await.unwrap();
        let found = dump(&shard).await;
        let which = if found == as_dumped(&acked) { &acked } else { &in_flight };
        compare(&shard, which).await;
        shard.aggregate().await.unwrap();
        compare(&shard, which).await;
    });
    world.clear();
    finished
}

#[test]
fn a_power_cut_anywhere_in_aggregation_loses_nothing() {
    // A seed whose steps give it something to copy.
    let works = |seed: &u64| {
        cut_after(*seed, u64::MAX).is_some_and(|stat| stat.made > 1 && stat.moved_bytes > 0)
    };
    let seed = (1..40).find(works).expect("no seed has anything to aggregate");
    let mut changes = 0;
    while cut_after(seed, changes).is_none() {
        changes = places::next(changes, seed);
        assert!(changes < 2000, "the steps never finish");
    }
    assert!(changes > 20, "the power was cut at {changes} places only");
}

async fn hard_case(env: &Env, aggregate: bool) -> (Rc<Store>, Rc<PoolShard>) {
    let options = StoreOptions { aggregate, ..StoreOptions::default() };
    let devices = vos::Devices::one(Path::new("/target"));
    let store = Store::open_with(env, &devices, options).await.unwrap();
    let shard = store.create_shard(POOL, &small(Durability::Wal)).await.unwrap();
    shard.durable(shard.create_cont(CONT).unwrap()).await.unwrap();
    // Two writers in turn, each 47,008 bytes after one another, cut at chunks of 1 MiB.
    let mut epoch = 0;
    for n in 0..100u64 {
        let place = (n % 2) * 50 + n / 2;
        let (mut at, end) = (place * 47_008, (place + 1) * 47_008);
        while at < end {
            let chunk = at >> 20;
            let stop = end.min((chunk + 1) << 20);
            epoch += 1;
            let step = Step {
                unit: unit(ObjType::ArrayByte, 1),
                dkey: chunk.to_le_bytes().to_vec(),
                akey: Vec::new(),
                cond: Cond::NONE,
                act: Act::Array {
                    record_bytes: 1,
                    recx: Recx { index: at & ((1 << 20) - 1), count: stop - at },
                    fill: (n % 250) as u8,
                },
            };
            let lsn = run(&shard, epoch, &step).await.unwrap();
            shard.durable(lsn).await.unwrap();
            at = stop;
        }
    }
    (store, shard)
}

async fn extents(shard: &PoolShard) -> usize {
    let mut count = 0;
    for chunk in 0..5u64 {
        let dkey = chunk.to_le_bytes();
        let scope = ListScope::Recxs { dkey: &dkey, akey: b"", descending: false };
        list_all(shard, 0, unit(ObjType::ArrayByte, 1), scope, 50, |_| count += 1).await;
    }
    count
}

/// The task does by itself, after some seconds, what the IOR's hard case needs; and not before.
#[test]
fn the_hard_case_leaves_one_extent_a_chunk_after_some_quiet_seconds() {
    for aggregate in [true, false] {
        let world = SimWorld::new(3);
        let env = world.node("a");
        world.block_on(async {
            let (_store, shard) = hard_case(&env, aggregate).await;
            assert_eq!(extents(&shard).await, 104);
            let before = shard.stat();
            env.sleep(std::time::Duration::from_secs(12)).await;
            let after = shard.stat();
            if aggregate {
                assert_eq!(extents(&shard).await, 5);
                assert!(after.nvme_free_bytes > before.nvme_free_bytes, "shared blocks are joined");
                assert!(after.scm_free_bytes > before.scm_free_bytes);
                let stat = shard.aggregation_stat();
                assert_eq!((stat.joined, stat.made, stat.extents > 0), (104, 5, true), "{stat:?}");
            } else {
                assert_eq!((extents(&shard).await, after), (104, before));
            }
        });
        world.clear();
    }
}

/// A sector that the device does not give keeps its own array as it is, and no other: all of them stayed in pieces until something else was written.
#[test]
fn an_unreadable_sector_stops_the_joining_of_its_array_alone() {
    let world = SimWorld::new(3);
    let env = world.node("a");
    world.block_on(async {
        let (_store, shard) = hard_case(&env, true).await;
        assert_eq!(extents(&shard).await, 104);
        let (disk, area) = (world.disk("a"), Path::new(DATA));
        // Of what was written first, which is in the first chunk.
        disk.decay(area, disk.filled_pages(area)[3], Decay::Unreadable);
        env.sleep(std::time::Duration::from_secs(12)).await;
        let left = extents(&shard).await;
        assert!((5 + 1..4 + 24).contains(&left), "{left} extents are left");
        let stat = shard.aggregation_stat();
        assert_eq!(stat.made, 4, "{stat:?}");
    });
    world.clear();
}

/// Large pieces written one after the other lie one after the other: no byte is moved.
#[test]
fn pieces_that_lie_in_a_row_are_joined_without_copying() {
    let world = SimWorld::new(3);
    let env = world.node("a");
    world.block_on(async {
        let (store, shard) = fresh(&env, &small(Durability::Wal)).await.unwrap();
        let mut model = Model::default();
        for n in 0..16u64 {
            let step = Step {
                unit: unit(ObjType::ArrayByte, 1),
                dkey: 0u64.to_le_bytes().to_vec(),
                akey: Vec::new(),
                cond: Cond::NONE,
                act: Act::Array {
                    record_bytes: 1,
                    recx: Recx { index: n << 16, count: 1 << 16 },
                    fill: n as u8,
                },
            };
            run(&shard, n + 1, &step).await.unwrap();
            model.run(n + 1, &step).unwrap();
        }
        let before = shard.stat();
        shard.aggregate().await.unwrap();
        let stat = shard.aggregation_stat();
        assert_eq!((stat.joined, stat.made, stat.moved_bytes), (16, 1, 0));
        assert_eq!(shard.stat().nvme_free_bytes, before.nvme_free_bytes);
        compare(&shard, &model).await;
        let stat = shard.stat();
        shard.close().await.unwrap();
        drop((shard, store));
        let store = Store::open(&env, Path::new("/target")).await.unwrap();
        let shard = store.open_shard(POOL).await.unwrap();
        assert_eq!(shard.stat(), stat);
        compare(&shard, &model).await;
    });
    world.clear();
}
