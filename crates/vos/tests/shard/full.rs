//! A file system that others have filled, for real: a small one that the test fills.

use super::model::*;
use env::{DiskFaults, Env, Rng, SimWorld};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use types::{Code, Durability, ObjType, Result};
use vos::{Devices, Lsn, PoolShard, PoolShardConfig, Store, StoreOptions};
use wire::obj::Cond;

/// A small file system, unmounted at the end.
struct Small {
    at: tempfile::TempDir,
}

impl Small {
    /// `None` where nobody may mount.
    fn mount(options: &str) -> Option<Small> {
        let at = tempfile::tempdir().unwrap();
        let args = ["-t", "tmpfs", "-o", options, "none"];
        match Command::new("mount").args(args).arg(at.path()).output() {
            Ok(output) if output.status.success() => Some(Small { at }),
            other => {
                eprintln!("SKIPPED: a full file system: cannot mount a small one: {other:?}");
                None
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.at.path().join(name)
    }

    /// Takes all the room there is.
    fn fill(&self) {
        let mut file =
            File::options().create(true).append(true).open(self.path("ballast")).unwrap();
        for piece in [1 << 20, 4096, 1] {
            let bytes = vec![1; piece];
            while file.write_all(&bytes).is_ok() {}
        }
    }

    fn relieve(&self) {
        std::fs::remove_file(self.path("ballast")).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.at.path()).status();
    }
}

/// A step over 12,000 values of 600 bytes: `puts` of ten put one there, the others remove one.
fn step(rng: &Rng, number: u64, puts: u64) -> Step {
    let act = match rng.below(10) < puts {
        false => Act::PunchDkey,
        true => Act::Single { bulk: false, bytes: 600, fill: number as u8 },
    };
    let unit = unit(ObjType::MultiHashed, rng.below(40));
    let dkey = format!("d{}", rng.below(300)).into_bytes();
    Step { unit, dkey, akey: vec![], cond: Cond::NONE, act }
}

async fn open_in(env: &Env, small: &Small, cache: u64) -> Result<std::rc::Rc<Store>> {
    let options = StoreOptions { metadata_cache: cache, ..StoreOptions::default() };
    Store::open_with(env, &Devices::one(&small.path("target")), options).await
}

/// Runs steps with the file system full; returns how many were refused.
async fn run_full(
    shard: &PoolShard,
    small: &Small,
    model: &mut Model,
    epoch: &mut u64,
    rng: &Rng,
    puts: u64,
) -> u64 {
    let (mut refused, mut last) = (0, Lsn::default());
    for number in 0..8000u64 {
        // The neighbours take at once what is given back.
        if number % 50 == 0 {
            small.fill();
        }
        let step = step(rng, number, puts);
        *epoch += 1;
        match run(shard, *epoch, &step).await {
            Ok(lsn) => {
                model.run(*epoch, &step).unwrap();
                last = lsn;
                shard.durable(lsn).await.unwrap();
            }
            Err(error) => {
                assert_eq!(error.code, Code::NoSpace, "{error}");
                assert!(!matches!(step.act, Act::PunchDkey), "removing was refused: {error}");
                assert!(error.text.contains("is full"), "{error}");
                refused += 1;
            }
        }
        assert!(shard.log_bytes() <= 48 << 20, "the log has {} bytes", shard.log_bytes());
    }
    shard.durable(last).await.unwrap();
    refused
}

/// A file system that others had filled used to stop the log for good, and a restart did not help.
#[test]
fn with_the_file_system_full_updates_are_refused_at_most_also_after_a_crash() {
    let Some(small) = Small::mount("size=128m,mode=700") else { return };
    let config =
        PoolShardConfig { durability: Durability::Wal, scm_bytes: 16 << 20, nvme_bytes: 1 << 20 };
    let (mut model, mut epoch) = (Model::default(), 0);
    let rng = Rng::new(6);
    for (round, cache) in
        [64 << 10, u64::MAX, u64::MAX, 64 << 10, u64::MAX, 64 << 10].into_iter().enumerate()
    {
        let env = Env::real().unwrap();
        env.block_on(async {
            let store = open_in(&env, &small, cache).await.unwrap();
            let shard = match round {
                0 => {
                    let shard = store.create_shard(POOL, &config).await.unwrap();
                    let lsn = shard.create_cont(CONT).unwrap();
                    shard.durable(lsn).await.unwrap();
                    // What is kept ahead comes in the background.
                    while !shard.keeps_reserve() {
                        env.yield_now().await;
                    }
                    shard
                }
                _ => store.open_shard(POOL).await.unwrap(),
            };
            compare(&shard, &model).await;
            // More and more, until there is no room for more; less and less; the same amount.
            let puts = [8, 5, 2, 5, 9, 1][round];
            let refused = run_full(&shard, &small, &mut model, &mut epoch, &rng, puts).await;
            let kept: usize = model.0.values().map(|object| object.dkeys.len()).sum();
            let checkpoints = shard.log_stat().unwrap().checkpoints;
            println!("round {round}: {refused} refused, {kept} values, {checkpoints} checkpoints");
            assert!(puts < 8 || refused > 0, "it was never full");
            compare(&shard, &model).await;
            if round % 2 == 1 {
                shard.close().await.unwrap();
            }
        });
        env.clear();
    }
    small.relieve();
    let env = Env::real().unwrap();
    env.block_on(async {
        let store = open_in(&env, &small, u64::MAX).await.unwrap();
        let shard = store.open_shard(POOL).await.unwrap();
        compare(&shard, &model).await;
        let step =
            Step { act: Act::Single { bulk: false, bytes: 600, fill: 1 }, ..step(&rng, 1, 5) };
        // It is asked for room once in a while.
        while run(&shard, epoch + 1, &step).await.is_err() {
            epoch += 1;
            env.yield_now().await;
        }
        shard.close().await.unwrap();
    });
    env.clear();
}

/// The log of a pool of 8 MiB grew to 256 MiB before it was worth a checkpoint.
#[test]
fn the_log_of_a_small_pool_stays_small() {
    let world = SimWorld::new(4);
    let env = world.node("a");
    world.block_on(async {
        let (_store, shard) = fresh(&env, &config(Durability::Wal)).await.unwrap();
        let mut log_bytes_max = 0;
        for epoch in 1..16_000 {
            let act = Act::Single { bulk: false, bytes: 3999, fill: epoch as u8 };
            let (unit, dkey) = (unit(ObjType::MultiHashed, 1), b"d".to_vec());
            let step = Step { unit, dkey, akey: vec![], cond: Cond::NONE, act };
            let lsn = run(&shard, epoch, &step).await.unwrap();
            shard.durable(lsn).await.unwrap();
            log_bytes_max = log_bytes_max.max(shard.log_bytes());
        }
        assert!(log_bytes_max <= 48 << 20, "{log_bytes_max}");
        assert!(shard.log_stat().unwrap().checkpoints > 0);
    });
    world.clear();
}

/// A shard that had found its file system full looked for room again only when something was changed in it: where everything that was asked
/// of it needed room, it refused all that until it was opened again, though others had given back what they had taken.
#[test]
fn room_that_others_give_back_is_found_by_who_is_refused() {
    let world = SimWorld::new(5);
    let env = world.node("a");
    let disk = world.disk("a");
    // What is set aside is not on the disk yet when the node dies.
    drop(world.block_on(fresh(&env, &config(Durability::Wal))).unwrap());
    world.kill("a");
    let env = world.node("a");
    world.block_on(async {
        // Others have taken all there is.
        disk.set_faults(DiskFaults { space_bytes: disk.used_bytes(), ..DiskFaults::default() });
        let store = open(&env, u64::MAX).await.unwrap();
        let shard = store.open_shard(POOL).await.unwrap();
        let put = async |shard: &PoolShard, number: u64| {
            let act = Act::Single { bulk: false, bytes: 999, fill: number as u8 };
            let (unit, dkey) = (unit(ObjType::MultiHashed, 1), number.to_le_bytes().to_vec());
            let step = Step { unit, dkey, akey: vec![], cond: Cond::NONE, act };
            let lsn = run(shard, number, &step).await?;
            shard.durable(lsn).await
        };
        let mut number = 1;
        while put(&shard, number).await.is_ok() {
            number += 1;
            assert!(number < 100_000, "it is never full");
        }
        for _ in 0..5 {
            env.sleep(Duration::from_secs(2)).await;
            let refused = put(&shard, number).await.unwrap_err();
            assert_eq!(refused.code, Code::NoSpace, "{refused}");
            assert!(refused.text.contains("the file system of"), "{refused}");
        }
        disk.set_faults(DiskFaults::default());
        env.sleep(Duration::from_secs(2)).await;
        put(&shard, number).await.unwrap();
    });
    world.clear();
}
