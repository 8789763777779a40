//! Random steps, with clean reopening and checkpoints between.

use super::model::*;
use super::places;
use env::{Rng, SimWorld};
use std::path::Path;
use types::Durability;

#[test]
fn random_steps_in_memory_agree_with_the_model() {
    for seed in places::seeds(10, 40) {
        let world = SimWorld::new(seed);
        let env = world.node("a");
        world.block_on(async {
            let rng = Rng::new(seed);
            let (_store, shard) = fresh(&env, &config(Durability::Memory)).await.unwrap();
            let mut model = Model::default();
            for n in 0..300 {
                let step = Step::random(&rng);
                let got = run(&shard, n + 1, &step).await.map(|_| ()).map_err(|e| e.code);
                assert_eq!(got, model.run(n + 1, &step), "{step:?}");
                if n % 50 == 49 {
                    compare(&shard, &model).await;
                }
            }
            // Everything removed: every block and byte comes back.
            for unit in model.0.keys() {
                let op = [wire::obj::Op::PunchObj {
                    unit: *unit,
                    cond: wire::obj::Cond::NONE,
                    besides: b"",
                }];
                write(&shard, 1000, &op, b"", None).await.unwrap();
            }
            let stat = shard.stat();
            assert_eq!(stat.scm_free_bytes, stat.scm_bytes);
            assert_eq!(stat.nvme_free_bytes, stat.nvme_bytes);
        });
        world.clear();
    }
}

fn reopened(durability: Durability, checkpoints: bool, seeds: u64) {
    for seed in places::seeds(seeds.div_ceil(3), seeds) {
        let world = SimWorld::new(seed);
        let env = world.node("a");
        world.block_on(async {
            let rng = Rng::new(seed ^ 77);
            let (mut store, mut shard) = fresh(&env, &config(durability)).await.unwrap();
            let mut model = Model::default();
            for n in 0..240 {
                let step = Step::random(&rng);
                let got = run(&shard, n + 1, &step).await;
                assert_eq!(got.clone().map(|_| ()).map_err(|e| e.code), model.run(n + 1, &step));
                if let Ok(lsn) = got {
                    shard.durable(lsn).await.unwrap();
                }
                if n % 60 == 40 && checkpoints {
                    shard.checkpoint().await.unwrap();
                }
                if n % 60 == 59 {
                    let free = shard.stat();
                    shard.close().await.unwrap();
                    drop((shard, store));
                    store = vos::Store::open(&env, Path::new("/target")).await.unwrap();
                    assert_eq!(store.shards(), [POOL]);
                    shard = store.open_shard(POOL).await.unwrap();
                    assert_eq!(shard.stat(), free);
                    assert!(shard.last_epoch().0 > 0);
                    compare(&shard, &model).await;
                }
            }
        });
        world.clear();
    }
}

#[test]
fn a_closed_shard_comes_back_as_it_was() {
    reopened(Durability::Wal, false, 6);
}

#[test]
fn a_relaxed_shard_that_was_closed_comes_back_as_it_was() {
    reopened(Durability::Relaxed, false, 3);
}

#[test]
fn a_checkpoint_makes_the_same_state() {
    reopened(Durability::Wal, true, 6);
}
