//! Targets taken off their devices: what refuses it, and what is there afterwards.

use super::model::*;
use super::places;
use env::{Env, OpenOptions, SimWorld};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use types::{Code, Durability, PoolId, Result};
use vos::erase::erase;
use vos::{DataDevice, Devices, Owner, Store, StoreOptions};

const MINE: [u8; 16] = [7; 16];

fn part(path: &str, part: u32, part_count: u32) -> DataDevice {
    DataDevice { path: PathBuf::from(path), part, part_count }
}

async fn make_raw(env: &Env, path: &str) {
    let options = OpenOptions { create: true, ..OpenOptions::default() };
    let file = env.disk().open(Path::new(path), options).await.unwrap();
    file.set_len(96 << 20).await.unwrap();
    file.sync().await.unwrap();
    env.disk().sync_dir(Path::new("/")).await.unwrap();
}

async fn open(env: &Env, devices: &Devices, engine: [u8; 16]) -> Result<Rc<Store>> {
    let owner = Some(Owner { engine, number: 0 });
    Store::open_with(env, devices, StoreOptions { owner, ..StoreOptions::default() }).await
}

#[test]
fn what_was_erased_serves_another_engine_as_if_new() {
    let layouts: [(&str, &[DataDevice]); 5] = [
        ("/dir", &[]),
        ("/raw", &[]),
        ("/dir", &[part("/n0", 0, 1), part("/raw", 1, 2)]),
        ("/raw", &[part("/n0", 1, 2)]),
        ("/raw2", &[part("/raw", 0, 1)]),
    ];
    for (seed, (scm, nvme)) in layouts.into_iter().enumerate() {
        let world = SimWorld::new(seed as u64);
        let mut env = world.node("a");
        world.block_on(async {
            make_raw(&env, "/raw").await;
            make_raw(&env, "/raw2").await;
        });
        let devices = Devices { scm: scm.into(), nvme: nvme.to_vec() };
        world.block_on(async {
            let store = open(&env, &devices, MINE).await.unwrap();
            let shard = store.create_shard(POOL, &config(Durability::Wal)).await.unwrap();
            let busy = erase(&env, &devices, Some(MINE)).await.unwrap_err();
            assert_eq!(busy.code, Code::Busy, "{busy}");
            shard.close().await.unwrap();
        });
        world.kill("a");
        env = world.node("a");
        world.block_on(async {
            let foreign = erase(&env, &devices, Some([8; 16])).await.unwrap_err();
            assert_eq!(foreign.code, Code::Inval, "{foreign}");
            let erased = erase(&env, &devices, Some(MINE)).await.unwrap();
            assert_eq!(erased.len(), 1 + devices.nvme.len());
            for device in &erased {
                assert_eq!((&device.pools[..], device.was_empty), (&[POOL.0][..], false));
            }
        });
        // It is durable.
        world.kill("a");
        env = world.node("a");
        world.block_on(async {
            let again = erase(&env, &devices, Some(MINE)).await.unwrap();
            assert!(again.iter().all(|device| device.was_empty), "{again:?}");
            let store = open(&env, &devices, [9; 16]).await.unwrap();
            assert!(store.shards().is_empty());
            store.create_shard(POOL, &config(Durability::Wal)).await.unwrap();
        });
    }
}

/// Wherever it is cut off, what is left is no pool that could be served in part, and it can be done again.
#[test]
fn one_that_is_cut_off_is_done_again() {
    let (mut cuts, mut step) = (0, 0);
    loop {
        let world = SimWorld::new(step);
        let mut env = world.node("a");
        let devices =
            Devices { scm: "/dir".into(), nvme: vec![part("/n0", 0, 1), part("/raw", 0, 1)] };
        world.block_on(async {
            make_raw(&env, "/raw").await;
            let store = open(&env, &devices, MINE).await.unwrap();
            for pool in [POOL, PoolId(4)] {
                let shard = store.create_shard(pool, &config(Durability::Wal)).await.unwrap();
                shard.close().await.unwrap();
            }
        });
        world.kill("a");
        env = world.node("a");
        let time = Duration::from_micros(step * 20);
        let outcome =
            world.block_on(async { env.timeout(time, erase(&env, &devices, Some(MINE))).await });
        let is_done = outcome.transpose().unwrap().is_some();
        world.kill("a");
        env = world.node("a");
        if !is_done {
            cuts += 1;
            world.block_on(async {
                // A device may be missing by now.
                let Ok(store) = open(&env, &devices, MINE).await else { return };
                for pool in store.shards() {
                    store.open_shard(pool).await.unwrap();
                }
            });
            world.kill("a");
            env = world.node("a");
        }
        world.block_on(async {
            erase(&env, &devices, Some(MINE)).await.unwrap();
            let store = open(&env, &devices, [9; 16]).await.unwrap();
            assert!(store.shards().is_empty());
        });
        if is_done {
            break;
        }
        step = places::next(step, 0);
    }
    assert!(cuts > 10, "{cuts}");
}

#[test]
fn what_is_not_known_to_be_ones_own_stays() {
    let world = SimWorld::new(1);
    let env = world.node("a");
    world.block_on(async {
        let devices = Devices { scm: "/s".into(), nvme: vec![part("/n", 0, 1)] };
        drop(open(&env, &devices, MINE).await.unwrap());
        // The device of the index is another one: nobody tells whose data these are.
        let half = Devices { scm: "/other".into(), nvme: devices.nvme.clone() };
        let refused = erase(&env, &half, Some(MINE)).await.unwrap_err();
        assert!(
            refused.code == Code::Inval && refused.text.contains("cannot be told"),
            "{refused}"
        );
        let other = Devices { scm: "/s2".into(), nvme: vec![part("/n2", 0, 1)] };
        drop(open(&env, &other, MINE).await.unwrap());
        let mixed = Devices { scm: "/s".into(), nvme: other.nvme.clone() };
        let refused = erase(&env, &mixed, Some(MINE)).await.unwrap_err();
        assert!(refused.text.contains("another target"), "{refused}");
        open(&env, &devices, MINE).await.unwrap();
        open(&env, &other, MINE).await.unwrap();
        // Somebody's data.
        make_raw(&env, "/foreign").await;
        let file = env.disk().open(Path::new("/foreign"), OpenOptions::default()).await.unwrap();
        file.write_at(0, env::AlignedBuf::copy_of(&[1; 4096])).await.1.unwrap();
        for engine in [Some(MINE), None] {
            let devices = Devices::one(Path::new("/foreign"));
            assert_eq!(erase(&env, &devices, engine).await.unwrap_err().code, Code::Exist);
        }
        // Whoever says so may have it all.
        assert_eq!(erase(&env, &half, None).await.unwrap().len(), 1);
    });
}
