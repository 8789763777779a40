//! Targets on several devices: every kind of device, and every way to mix them up.

use super::model::*;
use env::{DiskFaults, Env, OpenOptions, Rng, SimWorld};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use types::{Code, Durability, PoolId};
use vos::{DataDevice, Devices, Owner, Store, StoreOptions};

async fn make_raw(env: &Env, path: &str, bytes: u64) {
    let options = OpenOptions { create: true, ..OpenOptions::default() };
    let file = env.disk().open(Path::new(path), options).await.unwrap();
    file.set_len(bytes).await.unwrap();
    file.sync().await.unwrap();
    env.disk().sync_dir(Path::new("/")).await.unwrap();
}

fn part(path: &str, part: u32, part_count: u32) -> DataDevice {
    DataDevice { path: PathBuf::from(path), part, part_count }
}

fn devices(scm: &str, nvme: &[&str]) -> Devices {
    Devices { scm: scm.into(), nvme: nvme.iter().map(|path| part(path, 0, 1)).collect() }
}

async fn open(env: &Env, devices: &Devices) -> types::Result<Rc<Store>> {
    Store::open_with(env, devices, StoreOptions::default()).await
}

/// Every combination of directory and raw device, with a power cut between lives.
#[test]
fn a_split_store_survives_crashes_on_every_kind_of_device() {
    let layouts: [(&str, &[DataDevice]); 5] = [
        ("/scm", &[part("/n0", 0, 1)]),
        ("/raw", &[part("/n0", 0, 1)]),
        ("/scm", &[part("/raw", 0, 1)]),
        ("/scm", &[part("/n0", 0, 1), part("/raw", 0, 1), part("/n1", 1, 2)]),
        ("/scm", &[part("/raw", 1, 2)]),
    ];
    for (seed, (scm, nvme)) in layouts.into_iter().enumerate() {
        let world = SimWorld::new(seed as u64);
        let mut env = world.node("a");
        world.block_on(make_raw(&env, "/raw", 96 << 20));
        let devices = Devices { scm: scm.into(), nvme: nvme.to_vec() };
        let mut model = Model::default();
        let rng = Rng::new(seed as u64 + 9);
        for life in 0..3u64 {
            world.block_on(async {
                let store = open(&env, &devices).await.unwrap();
                assert_eq!(open(&env, &devices).await.unwrap_err().code, Code::Busy);
                let shard = store.create_shard(POOL, &config(Durability::Wal)).await.unwrap();
                if life == 0 {
                    let lsn = shard.create_cont(CONT).unwrap();
                    shard.durable(lsn).await.unwrap();
                }
                compare(&shard, &model).await;
                for n in 0..40 {
                    let (step, epoch) = (Step::random(&rng), life * 100 + n + 1);
                    let got = run(&shard, epoch, &step).await;
                    let code = got.clone().map(|_| ()).map_err(|error| error.code);
                    assert_eq!(code, model.run(epoch, &step));
                    if let Ok(lsn) = got {
                        shard.durable(lsn).await.unwrap();
                    }
                }
                let other = store.create_shard(PoolId(9), &config(Durability::Wal)).await.unwrap();
                let lsn = other.create_cont(CONT).unwrap();
                other.durable(lsn).await.unwrap();
                store.destroy_shard(PoolId(9)).await.unwrap();
            });
            world.kill("a");
            world.disk("a").crash();
            env = world.node("a");
        }
        world.clear();
    }
}

/// Making a target is cut off at every change of the disk; the next try always succeeds.
#[test]
fn a_target_half_made_is_finished_by_the_next_open() {
    for changes in 0..60 {
        let world = SimWorld::new(changes);
        let mut env = world.node("a");
        let devices = devices("/scm", &["/n0", "/n1"]);
        world.disk("a").stop_after(changes);
        let done = world.block_on(open(&env, &devices)).is_ok();
        world.kill("a");
        world.disk("a").crash();
        env = world.node("a");
        let target = world.block_on(async {
            let target = open(&env, &devices).await.unwrap().target_id();
            assert_eq!(open(&env, &devices).await.unwrap().target_id(), target);
            target
        });
        assert_ne!(target, [0; 16]);
        world.clear();
        if done {
            assert!(changes > 10, "{changes}");
            return;
        }
    }
    panic!("making a target never ended");
}

fn refused(outcome: types::Result<Rc<Store>>, code: Code, words: &[&str]) {
    let error = outcome.expect_err("a wrong device was taken");
    let text = error.to_string();
    assert_eq!(error.code, code, "{text}");
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}

#[test]
fn wrong_swapped_and_missing_devices_are_refused_by_name() {
    let world = SimWorld::new(5);
    let env = world.node("a");
    world.block_on(async {
        for (scm, n0, n1) in [("/s0", "/a0", "/a1"), ("/s1", "/b0", "/b1")] {
            open(&env, &devices(scm, &[n0, n1])).await.unwrap();
        }
        open(&env, &devices("/whole", &[])).await.unwrap();
        let asked = |scm, nvme: &[&str]| {
            let devices = devices(scm, nvme);
            let env = env.clone();
            async move { open(&env, &devices).await }
        };
        let wrong = Code::Inval;
        refused(asked("/s0", &["/a1", "/a0"]).await, wrong, &["/a1", "is data device 1", "/a0"]);
        refused(asked("/s0", &["/a0", "/b1"]).await, wrong, &["/b1", "/s1", "made as /a1"]);
        refused(asked("/s0", &["/a0"]).await, wrong, &["/a0, /a1", "1 are given"]);
        refused(asked("/s0", &[]).await, wrong, &["2 device(s)"]);
        refused(asked("/a0", &["/s0", "/a1"]).await, wrong, &["/a0", "cannot be used for index"]);
        refused(asked("/whole", &["/a0"]).await, wrong, &["/whole", "cannot be split later"]);
        refused(asked("/new", &["/a0", "/a1"]).await, wrong, &["/a0", "is empty"]);
        refused(asked("/s0", &["/a0", "/gone"]).await, Code::NonExist, &["/gone", "is not there"]);
        env.disk().create_dir(Path::new("/bare")).await.unwrap();
        refused(asked("/s0", &["/a0", "/bare"]).await, Code::NonExist, &["/bare", "made as /a1"]);
        refused(asked("/dev/nvme7n1", &[]).await, Code::NonExist, &["/dev/nvme7n1", "attached"]);
        // The right ones still open.
        asked("/s0", &["/a0", "/a1"]).await.unwrap();
        asked("/s1", &["/b0", "/b1"]).await.unwrap();
    });
    world.clear();
}

#[test]
fn targets_of_an_engine_are_not_mixed_up() {
    let world = SimWorld::new(5);
    let env = world.node("a");
    world.block_on(async {
        let as_owner = |engine: u8, number| StoreOptions {
            owner: Some(Owner { engine: [engine; 16], number }),
            ..StoreOptions::default()
        };
        let one = Devices::one(Path::new("/t"));
        // A store that nobody owns is taken by the first who comes.
        Store::open_with(&env, &one, StoreOptions::default()).await.unwrap();
        Store::open_with(&env, &one, as_owner(1, 0)).await.unwrap();
        Store::open_with(&env, &one, as_owner(1, 0)).await.unwrap();
        Store::open_with(&env, &one, StoreOptions::default()).await.unwrap();
        refused(
            Store::open_with(&env, &one, as_owner(1, 1)).await,
            Code::Inval,
            &["/t", "number 0", "given as number 1"],
        );
        refused(
            Store::open_with(&env, &one, as_owner(2, 0)).await,
            Code::Inval,
            &["of engine 01010101", "02020202"],
        );
    });
    world.clear();
}

#[test]
fn a_raw_device_is_shared_in_parts_and_cut_in_one_way_only() {
    let world = SimWorld::new(5);
    let env = world.node("a");
    world.block_on(async {
        make_raw(&env, "/raw", 64 << 20).await;
        let split =
            |n, count| Devices { scm: format!("/s{n}").into(), nvme: vec![part("/raw", n, count)] };
        let mut stores = Vec::new();
        for n in 0..3 {
            let store = open(&env, &split(n, 3)).await.unwrap();
            let devices = store.device_stats().await.unwrap();
            assert_eq!(devices[1].total_bytes, 21 << 20);
            let wide = vos::PoolShardConfig { nvme_bytes: 8 << 20, ..config(Durability::Wal) };
            let shard = store.create_shard(POOL, &wide).await.unwrap();
            let lsn = shard.create_cont(CONT).unwrap();
            shard.durable(lsn).await.unwrap();
            stores.push((store, shard, Model::default(), Rng::new(n as u64)));
        }
        for n in 0..120u64 {
            let (_, shard, model, rng) = &mut stores[n as usize % 3];
            let step = Step::random(rng);
            let got = run(shard, n + 1, &step).await.map(|_| ()).map_err(|error| error.code);
            assert_eq!(got, model.run(n + 1, &step));
        }
        for (_, shard, model, _) in &stores {
            compare(shard, model).await;
        }
        drop(stores);
        // The device grows: it stays cut as it was.
        make_raw(&env, "/raw", 128 << 20).await;
        assert_eq!(open(&env, &split(2, 3)).await.unwrap().shards(), [POOL]);
        let other = Devices { scm: "/s9".into(), nvme: vec![part("/raw", 1, 2)] };
        refused(open(&env, &other).await, Code::Exist, &["/raw", "cut into 3 parts"]);
        make_raw(&env, "/raw", 60 << 20).await;
        refused(open(&env, &split(0, 3)).await, Code::Io, &["smaller", "60 MiB"]);
    });
    world.clear();
}

/// Further targets come to a directory that one has had alone: it stays where it is, under its new name, and each counts a part of the room
/// that is one for all of them.
/// Each pool that was refused for want of room left an empty directory with its number.
#[test]
fn what_is_refused_for_want_of_room_leaves_nothing() {
    let world = SimWorld::new(5);
    let env = world.node("a");
    world.disk("a").set_faults(DiskFaults { space_bytes: 1 << 20, ..DiskFaults::default() });
    world.block_on(async {
        let devices = Devices::one(Path::new("/target"));
        let store = open(&env, &devices).await.unwrap();
        let before = env.disk().list(Path::new("/target")).await.unwrap().len();
        let refused = store.create_shard(POOL, &config(Durability::Wal)).await.err().unwrap();
        assert_eq!(refused.code, Code::NoSpace, "{refused}");
        assert_eq!(env.disk().list(Path::new("/target")).await.unwrap().len(), before);
        world.disk("a").set_faults(DiskFaults::default());
        store.create_shard(POOL, &config(Durability::Wal)).await.unwrap();
    });
    world.clear();
}

#[test]
fn a_directory_takes_further_targets() {
    let world = SimWorld::new(5);
    let mut env = world.node("a");
    let split = |n: u32, count| Devices {
        scm: format!("/s{n}").into(),
        nvme: vec![part("/shared", n, count)],
    };
    let faults = DiskFaults { space_bytes: 1 << 30, ..DiskFaults::default() };
    world.disk("a").set_faults(faults);
    let rngs: Vec<Rng> = (0..3).map(Rng::new).collect();
    let mut models: Vec<Model> = (0..3).map(|_| Model::default()).collect();
    for count in 1..=3u32 {
        world.block_on(async {
            let mut stores: Vec<Rc<Store>> = Vec::new();
            // Those that were there are open when another one comes, as they were before.
            for n in 0..count {
                let parts = if n + 1 < count { count - 1 } else { count };
                let store = open(&env, &split(n, parts)).await.unwrap();
                if n + 1 == count {
                    let shard = store.create_shard(POOL, &config(Durability::Wal)).await.unwrap();
                    shard.durable(shard.create_cont(CONT).unwrap()).await.unwrap();
                }
                stores.push(store);
            }
            stores.iter().for_each(|store| store.share_data_devices(&[count]));
            let all = 1u64 << 30;
            for store in &stores {
                let free = store.standing().await.unwrap().free_bytes;
                assert!(free <= all / u64::from(count), "{free} of {count}");
                assert!(free > all / u64::from(count + 1), "{free} of {count}");
                let devices = store.device_stats().await.unwrap();
                assert_eq!(devices[1].total_bytes, all / u64::from(count));
            }
            let device = &split(0, count).nvme[0];
            assert!(device.takes_further_parts(&env).await.unwrap());
        });
        world.kill("a");
        world.disk("a").crash();
        env = world.node("a");
        world.block_on(async {
            for n in 0..count {
                let store = open(&env, &split(n, count)).await.unwrap();
                let free = store.standing().await.unwrap().free_bytes;
                assert!(free <= (1 << 30) / u64::from(count), "{free} of {count}");
                let shard = store.create_shard(POOL, &config(Durability::Wal)).await.unwrap();
                let (model, rng) = (&mut models[n as usize], &rngs[n as usize]);
                compare(&shard, model).await;
                for step in 0..60u64 {
                    let epoch = u64::from(count) * 100 + step;
                    let step = Step::random(rng);
                    let got = run(&shard, epoch, &step).await.map_err(|error| error.code);
                    assert_eq!(got.map(|_| ()), model.run(epoch, &step));
                    if let Ok(lsn) = got {
                        shard.durable(lsn).await.unwrap();
                    }
                }
            }
        });
        world.kill("a");
        env = world.node("a");
    }
    world.block_on(async {
        let names = |path: &'static str| {
            let env = env.clone();
            async move {
                let listed = env.disk().list(Path::new(path)).await.unwrap();
                listed.into_iter().map(|entry| entry.name).collect::<Vec<_>>()
            }
        };
        let there = names("/shared").await;
        assert!(!there.contains(&"part.0".to_string()), "the first one has moved: {there:?}");
        // It goes alone, too.
        vos::erase::erase(&env, &split(0, 3), None).await.unwrap();
        assert!(!names("/shared").await.contains(&"superblock".to_string()));
        assert_eq!(open(&env, &split(1, 3)).await.unwrap().shards(), [POOL]);
        // A directory of somebody else is no part.
        open(&env, &Devices::one(Path::new("/other"))).await.unwrap();
        let other = Devices { scm: "/s9".into(), nvme: vec![part("/other", 0, 2)] };
        refused(open(&env, &other).await, Code::Inval, &["/other", "is empty"]);
        make_raw(&env, "/raw", 64 << 20).await;
        assert!(!part("/raw", 0, 1).takes_further_parts(&env).await.unwrap());
        let gone = part("/gone", 0, 1).takes_further_parts(&env).await.unwrap_err();
        assert_eq!(gone.code, Code::NonExist, "{gone}");
    });
    world.clear();
}

#[test]
fn a_pool_that_a_tier_has_no_room_for_is_refused() {
    let world = SimWorld::new(5);
    let env = world.node("a");
    world.block_on(async {
        make_raw(&env, "/n", 24 << 20).await;
        let store = open(&env, &devices("/s", &["/n"])).await.unwrap();
        let wide = vos::PoolShardConfig { nvme_bytes: 32 << 20, ..config(Durability::Wal) };
        let error = store.create_shard(POOL, &wide).await.unwrap_err();
        assert_eq!(error.code, Code::NoSpace);
        assert!(error.to_string().contains("/n has 22 MiB free"), "{error}");
        let space_bytes = 8 << 20;
        world.disk("a").set_faults(DiskFaults { space_bytes, ..DiskFaults::default() });
        let error = store.create_shard(POOL, &config(Durability::Wal)).await.unwrap_err();
        assert_eq!(error.code, Code::NoSpace);
        assert!(error.to_string().contains("index and log tier at /s"), "{error}");
        world.disk("a").set_faults(DiskFaults::default());
        store.create_shard(POOL, &config(Durability::Wal)).await.unwrap();
    });
    world.clear();
}

#[test]
fn the_border_between_the_tiers_moves_with_the_setting() {
    for (inline_bytes_max, inline) in [(512, false), (8192, true)] {
        let world = SimWorld::new(5);
        let env = world.node("a");
        world.block_on(async {
            let options = StoreOptions { inline_bytes_max, ..StoreOptions::default() };
            let wide = StoreOptions { inline_bytes_max: 1 << 20, ..options };
            let refused = Store::open_with(&env, &devices("/s", &["/n"]), wide).await;
            assert_eq!(refused.unwrap_err().code, Code::Inval);
            let store = Store::open_with(&env, &devices("/s", &["/n"]), options).await.unwrap();
            for (pool, durability, inline) in
                [(POOL, Durability::Wal, inline), (PoolId(8), Durability::Memory, true)]
            {
                let shard = store.create_shard(pool, &config(durability)).await.unwrap();
                shard.durable(shard.create_cont(CONT).unwrap()).await.unwrap();
                let step = Step {
                    unit: unit(types::ObjType::MultiHashed, 1),
                    dkey: b"d".to_vec(),
                    akey: b"a".to_vec(),
                    cond: wire::obj::Cond::NONE,
                    act: Act::Single { bulk: true, bytes: 3000, fill: 7 },
                };
                run(&shard, 1, &step).await.unwrap();
                let stat = shard.stat();
                assert_eq!(stat.nvme_free_bytes == stat.nvme_bytes, inline);
                let mut model = Model::default();
                model.run(1, &step).unwrap();
                compare(&shard, &model).await;
            }
        });
        world.clear();
    }
}
