//! Full tiers, and readers that hold extents.

use super::model::*;
use env::SimWorld;
use types::{Code, Durability, Epoch, Error, ObjType, Unit};
use vos::{PoolShard, PoolShardConfig, Segments};
use wire::obj::*;

fn array(dkey: &[u8], bytes: u64) -> Op<'_> {
    let recxs = vec![Recx { index: 0, count: bytes }];
    let value = UpdateValue::Array { record_bytes: 1, recxs };
    let iods = vec![UpdateIod { akey: b"", cond: Cond::NONE, value }];
    Op::Update { unit: unit(ObjType::ArrayByte, 1), dkey, cond: Cond::NONE, iods }
}

#[test]
fn a_full_data_tier_refuses_cleanly_and_deleting_helps() {
    for durability in [Durability::Memory, Durability::Wal, Durability::Relaxed] {
        let world = SimWorld::new(4);
        let env = world.node("a");
        world.block_on(async {
            let config = PoolShardConfig { durability, scm_bytes: 1 << 20, nvme_bytes: 1 << 20 };
            let (_store, shard) = fresh(&env, &config).await.unwrap();
            let data = vec![5; 100_000];
            let mut stored = 0u64;
            let full = loop {
                let dkey = stored.to_le_bytes();
                match write(&shard, stored + 1, &[array(&dkey, 100_000)], &data, None).await {
                    Ok(_) => stored += 1,
                    Err(error) => break error,
                }
            };
            assert_eq!(full.code, Code::NoSpace);
            assert_eq!(stored, (1 << 20) / 102_400);
            let before = shard.stat();
            assert_eq!(
                shard.stage(&[array(&99u64.to_le_bytes(), 100_000)]).unwrap_err().code,
                Code::NoSpace
            );
            assert_eq!(shard.stat(), before, "a refused update must give everything back");
            let punch = [Op::PunchDkeysFrom { unit: unit(ObjType::ArrayByte, 1), from: 1 }];
            let lsn = write(&shard, 900, &punch, b"", None).await.unwrap();
            shard.durable(lsn).await.unwrap();
            // A relaxed log needs a moment before freed blocks may be used again.
            env.sleep(std::time::Duration::from_millis(50)).await;
            write(&shard, 901, &[array(&1u64.to_le_bytes(), 100_000)], &data, None).await.unwrap();
        });
        world.clear();
    }
}

/// Puts names into a directory until there is no space; returns how many, and the error.
async fn fill_index(shard: &PoolShard, dir: Unit, from: u64) -> (u64, Error) {
    let mut count = 0;
    loop {
        let name = format!("file-{count}");
        let value = UpdateValue::Inline(&[7; 100]);
        let iods = vec![UpdateIod { akey: b"i", cond: Cond::NONE, value }];
        let ops = [Op::Update { unit: dir, dkey: name.as_bytes(), cond: Cond::NONE, iods }];
        match write(shard, from + count, &ops, b"", None).await {
            Ok(_) => count += 1,
            Err(error) => return (count, error),
        }
    }
}

async fn empty_index(shard: &PoolShard, dir: Unit, count: u64, at: u64) {
    for number in 0..count {
        let name = format!("file-{number}");
        let dkeys = vec![serde_bytes::Bytes::new(name.as_bytes())];
        let ops = [Op::PunchDkeys { unit: dir, cond: Cond::PUNCH, dkeys }];
        write(shard, at, &ops, b"", None).await.unwrap();
    }
}

#[test]
fn a_full_index_tier_of_its_own_refuses_updates_but_not_punches() {
    let world = SimWorld::new(4);
    let env = world.node("a");
    world.block_on(async {
        let config = PoolShardConfig {
            durability: Durability::Wal,
            scm_bytes: 64 << 10,
            nvme_bytes: 1 << 20,
        };
        let nvme = vec![vos::DataDevice::whole(std::path::Path::new("/nvme"))];
        let devices = vos::Devices { scm: "/target".into(), nvme };
        let options = vos::StoreOptions::default();
        let store = vos::Store::open_with(&env, &devices, options).await.unwrap();
        let shard = store.create_shard(POOL, &config).await.unwrap();
        shard.create_cont(CONT).unwrap();
        let dir = unit(ObjType::MultiHashed, 1);
        let (count, error) = fill_index(&shard, dir, 1).await;
        assert_eq!(error.code, Code::NoSpace);
        assert!((200..1000).contains(&count), "{count} entries in 64 KiB");
        empty_index(&shard, dir, count, 5000).await;
        let stat = shard.stat();
        assert_eq!((stat.scm_free_bytes, stat.object_count, stat.dkey_count), (64 << 10, 0, 0));
        assert!(!stat.tiers_share_room && stat.nvme_bytes == 1 << 20);
    });
    world.clear();
}

/// A pool for small files was full when its index tier was, with all of its data tier free beside
/// it on the same device.
#[test]
fn an_index_larger_than_its_tier_borrows_from_the_data_beside_it() {
    for durability in [Durability::Memory, Durability::Wal, Durability::Relaxed] {
        let world = SimWorld::new(4);
        let env = world.node("a");
        world.block_on(async {
            let config = PoolShardConfig { durability, scm_bytes: 64 << 10, nvme_bytes: 1 << 20 };
            let (_store, shard) = fresh(&env, &config).await.unwrap();
            let dir = unit(ObjType::MultiHashed, 1);
            for round in 0..3 {
                let at = round * 100_000;
                let (count, error) = fill_index(&shard, dir, at + 1).await;
                assert_eq!(error.code, Code::NoSpace);
                assert!(error.text.contains("index and data"), "{error}");
                assert!(count > 3000, "{count} entries in all of the pool");
                let full = shard.stat();
                assert_eq!(full.scm_bytes + full.nvme_bytes, (64 << 10) + (1 << 20));
                assert!(full.tiers_share_room && full.nvme_bytes < 100_000, "{full:?}");
                let refused = shard.stage(&[array(&0u64.to_le_bytes(), 100_000)]).unwrap_err();
                assert_eq!(refused.code, Code::NoSpace);
                empty_index(&shard, dir, count, at + 50_000).await;
                // A checkpoint may run that began before the end of it.
                env.sleep(std::time::Duration::from_secs(1)).await;
                shard.checkpoint().await.unwrap();
                shard.checkpoint().await.unwrap();
                let empty = shard.stat();
                assert_eq!((empty.scm_free_bytes, empty.nvme_free_bytes), (64 << 10, 1 << 20));
                let data = vec![5; 100_000];
                for n in 0..10u64 {
                    let dkey = n.to_le_bytes();
                    let op = [array(&dkey, 100_000)];
                    write(&shard, at + 60_000 + n, &op, &data, None).await.unwrap();
                }
                let punch = [Op::PunchDkeysFrom { unit: unit(ObjType::ArrayByte, 1), from: 0 }];
                let lsn = write(&shard, at + 70_000, &punch, b"", None).await.unwrap();
                shard.durable(lsn).await.unwrap();
                env.sleep(std::time::Duration::from_millis(50)).await;
            }
        });
        world.clear();
    }
}

#[test]
fn fetched_segments_stay_whole_while_their_extents_are_replaced() {
    for durability in [Durability::Memory, Durability::Wal] {
        let world = SimWorld::new(4);
        let env = world.node("a");
        world.block_on(async {
            let config = PoolShardConfig { durability, scm_bytes: 1 << 20, nvme_bytes: 3 << 12 };
            let (_store, shard) = fresh(&env, &config).await.unwrap();
            let dkey = 0u64.to_le_bytes();
            let object = unit(ObjType::ArrayByte, 1);
            write(&shard, 1, &[array(&dkey, 8192)], &[1; 8192], None).await.unwrap();
            let mut segments = Segments::new();
            let recxs = vec![Recx { index: 0, count: 9000 }];
            let iods = [FetchIod { akey: b"", want: FetchWant::Array { record_bytes: 1, recxs } }];
            shard
                .view(CONT)
                .unwrap()
                .fetch(object, &dkey, Cond::NONE, &iods, &mut segments)
                .unwrap();
            let punch = [Op::PunchObj { unit: object, cond: Cond::PUNCH, besides: b"" }];
            let lsn = write(&shard, 2, &punch, b"", None).await.unwrap();
            shard.durable(lsn).await.unwrap();
            // Two of three blocks wait for the reader: a large write must not get them.
            let refused = write(&shard, 3, &[array(&dkey, 8192)], &[2; 8192], None).await;
            assert_eq!(refused.unwrap_err().code, Code::NoSpace);
            write(&shard, 4, &[array(&dkey, 4096)], &[3; 4096], None).await.unwrap();
            segments.load().await.unwrap();
            let read = segments.slices().concat();
            assert!(read[..8192].iter().all(|&b| b == 1) && read[8192..].iter().all(|&b| b == 0));
            assert_eq!(read.len(), 9000);
            drop(segments);
            write(&shard, 5, &[array(&1u64.to_le_bytes(), 8192)], &[2; 8192], None).await.unwrap();
        });
        world.clear();
    }
}

#[test]
fn a_destroyed_container_gives_its_space_back() {
    let world = SimWorld::new(4);
    let env = world.node("a");
    world.block_on(async {
        let (_store, shard) = fresh(&env, &config(Durability::Wal)).await.unwrap();
        for n in 0..5000u64 {
            let value = UpdateValue::Inline(b"x");
            let iods = vec![UpdateIod { akey: b"", cond: Cond::NONE, value }];
            let ops = [Op::Update {
                unit: unit(ObjType::MultiHashed, n),
                dkey: b"d",
                cond: Cond::NONE,
                iods,
            }];
            let payload = shard.stage(&ops).unwrap();
            shard.apply(CONT, Epoch(n + 1), &ops, payload, None, &[]).unwrap();
        }
        let lsn = shard.destroy_cont(CONT).unwrap();
        assert!(!shard.has_cont(CONT));
        assert_eq!(shard.view(CONT).err().unwrap().code, Code::NonExist);
        shard.durable(lsn).await.unwrap();
        env.sleep(std::time::Duration::from_secs(1)).await;
        let stat = shard.stat();
        assert_eq!(
            (stat.scm_free_bytes, stat.object_count, stat.dkey_count),
            (stat.scm_bytes, 0, 0)
        );
    });
    world.clear();
}

/// What was punched is told to the device and can be used again; what is in use is not touched.
/// The simulated disk destroys what it is told of.
#[test]
fn freed_runs_are_discarded_and_nothing_else() {
    for (seed, discard) in [(1u64, Some(true)), (2, Some(true)), (3, None)] {
        let world = SimWorld::new(seed);
        let env = world.node("a");
        world.block_on(async {
            let options = vos::StoreOptions { discard, ..vos::StoreOptions::default() };
            let devices = vos::Devices::one(std::path::Path::new("/target"));
            let store = vos::Store::open_with(&env, &devices, options).await.unwrap();
            let large = PoolShardConfig { nvme_bytes: 24 << 20, ..config(Durability::Wal) };
            let shard = store.create_shard(POOL, &large).await.unwrap();
            shard.durable(shard.create_cont(CONT).unwrap()).await.unwrap();
            let rng = env::Rng::new(seed);
            let mut model = Model::default();
            for n in 0..150u64 {
                let step = if rng.below(3) > 0 {
                    Step::random(&rng)
                } else {
                    // Large pieces that come and go.
                    let recx = Recx { index: 0, count: (1 + rng.below(3)) << 8 };
                    let kind = rng.below(2);
                    Step {
                        unit: unit(ObjType::ArrayByte, 1),
                        dkey: rng.below(3).to_le_bytes().to_vec(),
                        akey: b"large".to_vec(),
                        cond: Cond::NONE,
                        act: match kind {
                            0 => Act::PunchRecords(recx),
                            _ => Act::Array { record_bytes: 4096, recx, fill: n as u8 },
                        },
                    }
                };
                let got = run(&shard, n + 1, &step).await.map(|_| ()).map_err(|e| e.code);
                if got == Err(Code::NoSpace) {
                    continue;
                }
                assert_eq!(got, model.run(n + 1, &step), "{step:?}");
                env.sleep(std::time::Duration::from_millis(rng.below(400))).await;
            }
            env.sleep(std::time::Duration::from_secs(3)).await;
            compare(&shard, &model).await;
            let told = shard.aggregation_stat().discarded_bytes;
            assert_eq!(told > 4 << 20, discard.is_some(), "{told}");
            for unit in model.0.keys() {
                let op = [Op::PunchObj { unit: *unit, cond: Cond::NONE, besides: b"" }];
                let lsn = write(&shard, 1000, &op, b"", None).await.unwrap();
                shard.durable(lsn).await.unwrap();
            }
            env.sleep(std::time::Duration::from_secs(3)).await;
            let stat = shard.stat();
            assert_eq!(stat.nvme_free_bytes, stat.nvme_bytes);
        });
        world.clear();
    }
}
