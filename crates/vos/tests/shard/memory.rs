//! What lives in memory only, and stores opened twice.

use super::model::*;
use env::SimWorld;
use std::path::Path;
use std::time::Duration;
use types::{Code, Durability, ObjType};
use vos::PoolShardConfig;
use wire::obj::*;

#[test]
fn a_memory_shard_comes_back_empty_and_usable() {
    let world = SimWorld::new(1);
    let env = world.node("a");
    world.block_on(async {
        let (_store, shard) = fresh(&env, &config(Durability::Memory)).await.unwrap();
        let value = UpdateValue::Inline(b"v");
        let iods = vec![UpdateIod { akey: b"i", cond: Cond::NONE, value }];
        let ops = [Op::Update {
            unit: unit(ObjType::MultiHashed, 1),
            dkey: b"d",
            cond: Cond::NONE,
            iods,
        }];
        write(&shard, 1, &ops, b"", None).await.unwrap();
        shard.close().await.unwrap();
        assert_eq!(shard.stage(&ops).unwrap_err().code, Code::Closed);
    });
    world.kill("a");
    let env = world.node("a");
    world.block_on(async {
        let store = vos::Store::open(&env, Path::new("/target")).await.unwrap();
        let shard = store.open_shard(POOL).await.unwrap();
        assert!(!shard.has_cont(CONT));
        shard.create_cont(CONT).unwrap();
        compare(&shard, &Model::default()).await;
    });
    world.clear();
}

#[test]
fn a_store_in_use_is_refused() {
    let world = SimWorld::new(1);
    let env = world.node("a");
    world.block_on(async {
        let (store, shard) = fresh(&env, &config(Durability::Wal)).await.unwrap();
        let second = vos::Store::open(&env, Path::new("/target")).await.unwrap_err();
        assert_eq!(second.code, Code::Busy);
        assert!(second.to_string().contains("in use"), "{second}");
        let other = config(Durability::Memory);
        assert_eq!(store.create_shard(POOL, &other).await.unwrap_err().code, Code::Exist);
        let same = store.create_shard(POOL, &config(Durability::Wal)).await.unwrap();
        assert!(std::rc::Rc::ptr_eq(&same, &shard));
        store.destroy_shard(POOL).await.unwrap();
        store.destroy_shard(POOL).await.unwrap();
        assert!(store.shards().is_empty());
        assert_eq!(shard.create_cont(CONT).unwrap_err().code, Code::Closed);
        assert_eq!(store.open_shard(POOL).await.unwrap_err().code, Code::NonExist);
        let again = store.create_shard(POOL, &other).await.unwrap();
        assert!(!again.has_cont(CONT));
    });
    world.clear();
}

/// An engine kept 1.1 GiB after all files of a pool in memory were removed. What is free goes back,
/// which destroys it; what is in use stays as it is.
#[test]
fn free_memory_is_given_back_and_nothing_else() {
    for seed in 1u64..4 {
        let world = SimWorld::new(seed);
        let env = world.node("a");
        world.block_on(async {
            let large = PoolShardConfig { nvme_bytes: 64 << 20, ..config(Durability::Memory) };
            let (_store, shard) = fresh(&env, &large).await.unwrap();
            let rng = env::Rng::new(seed);
            let mut model = Model::default();
            for n in 0..150u64 {
                let step = if rng.below(3) > 0 {
                    Step::random(&rng)
                } else {
                    // Large pieces that come and go.
                    let recx = Recx { index: 0, count: (1 + rng.below(6)) << 8 };
                    let act = match rng.below(2) {
                        0 => Act::PunchRecords(recx),
                        _ => Act::Array { record_bytes: 4096, recx, fill: n as u8 },
                    };
                    let dkey = rng.below(3).to_le_bytes().to_vec();
                    let akey = b"large".to_vec();
                    Step { unit: unit(ObjType::ArrayByte, 1), dkey, akey, cond: Cond::NONE, act }
                };
                let got = run(&shard, n + 1, &step).await.map(|_| ()).map_err(|e| e.code);
                if got == Err(Code::NoSpace) {
                    continue;
                }
                assert_eq!(got, model.run(n + 1, &step), "{step:?}");
                env.sleep(Duration::from_secs(rng.below(60))).await;
            }
            env.sleep(Duration::from_secs(60)).await;
            compare(&shard, &model).await;
            let before = shard.aggregation_stat().discarded_bytes;
            assert!(before > 64 << 20, "{before}");
            for unit in model.0.keys() {
                let op = [Op::PunchObj { unit: *unit, cond: Cond::NONE, besides: b"" }];
                write(&shard, 1000, &op, b"", None).await.unwrap();
            }
            // Within a minute, all but what was never touched.
            env.sleep(Duration::from_secs(60)).await;
            assert!(shard.aggregation_stat().discarded_bytes > before);
            compare(&shard, &Model::default()).await;
        });
        world.clear();
    }
}
