//! What the log promises beside surviving crashes: how it writes, recycled segments, replay
//! that may be repeated, figures.

use super::model::*;
use env::{Env, Rng, SimWorld};
use std::path::Path;
use std::rc::Rc;
use types::{ContId, Durability};
use wire::versions::ALL_IS_HERE;

/// Flags of `O_DSYNC` and `O_DIRECT` as `/proc/self/fdinfo` shows them, octal.
const DSYNC: u32 = 0o10000;
const DIRECT: u32 = 0o40000;

#[test]
fn segments_are_whole_files_written_past_the_cache_and_synced_by_each_write() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let env = Env::real().unwrap();
    env.block_on(async {
        let store = vos::Store::open(&env, &dir.path().join("t")).await.unwrap();
        let shard = store.create_shard(POOL, &config(Durability::Wal)).await.unwrap();
        shard.durable(shard.create_cont(CONT).unwrap()).await.unwrap();
        let mut found = 0;
        for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
            let Ok(entry) = entry else { continue };
            let Ok(path) = std::fs::read_link(entry.path()) else { continue };
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !path.starts_with(dir.path()) || !name.starts_with("wal.") {
                continue;
            }
            found += 1;
            let info = Path::new("/proc/self/fdinfo").join(entry.file_name());
            let text = std::fs::read_to_string(info).unwrap();
            let flags = text.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
            let flags = u32::from_str_radix(flags.trim(), 8).unwrap();
            assert_eq!(flags & DSYNC, DSYNC, "{name}");
            // A file system without direct I/O (tmpfs of old) is used through the cache.
            if std::fs::metadata(&path).unwrap().len() > 0 && flags & DIRECT == 0 {
                eprintln!("{}: no direct I/O here", path.display());
            }
            assert_eq!(std::fs::metadata(&path).unwrap().len(), 16 << 20, "preallocated");
        }
        assert!(found > 0, "no open segment found");
        shard.close().await.unwrap();
    });
    env.clear();
}

/// Segments emptied by a checkpoint come back with old batches of the same shard in them.
#[test]
fn stale_records_in_recycled_segments_are_not_replayed_and_replay_may_be_repeated() {
    for seed in 0..4u64 {
        let world = SimWorld::new(seed);
        let mut env = world.node("a");
        let rng = Rng::new(seed ^ 5);
        let mut model = Model::default();
        world.block_on(async {
            let (_store, shard) = fresh(&env, &config(Durability::Wal)).await.unwrap();
            for n in 0..200 {
                let step = Step::random(&rng);
                let got = run(&shard, n + 1, &step).await;
                assert_eq!(got.clone().map(|_| ()).map_err(|e| e.code), model.run(n + 1, &step));
                if let Ok(lsn) = got {
                    shard.durable(lsn).await.unwrap();
                }
                if n % 25 == 24 {
                    shard.checkpoint().await.unwrap();
                }
            }
            let stat = shard.log_stat().unwrap();
            assert_eq!(stat.checkpoints, 8);
            assert!(stat.checkpoint_ns > 0);
            assert_eq!(stat.batch_records.count, stat.commit_latency_us.count);
            assert!(stat.batch_records.sum >= 100 && stat.batch_bytes.max > 0);
            assert!(stat.commit_latency_us.max > 0 && !stat.failed);
        });
        // Nothing is written between the replays: each meets the same log.
        let mut replayed = None;
        for _ in 0..3 {
            world.kill("a");
            world.disk("a").crash();
            env = world.node("a");
            world.block_on(async {
                let store = vos::Store::open(&env, Path::new("/target")).await.unwrap();
                let shard = store.open_shard(POOL).await.unwrap();
                compare(&shard, &model).await;
                let now = shard.log_stat().unwrap().replay_records;
                assert!(now > 0);
                assert_eq!(*replayed.get_or_insert(now), now);
            });
        }
        world.clear();
    }
}

/// Finding a client's process reads files of the system. Pools in memory note nobody, and once did so for every file that was opened.
#[test]
fn a_clients_process_is_looked_for_once_and_not_where_nobody_is_noted() {
    for (durability, expected) in [(Durability::Wal, 1), (Durability::Memory, 0)] {
        let world = SimWorld::new(1);
        let env = world.node("a");
        let looked = std::cell::Cell::new(0);
        world.block_on(async {
            let (_store, shard) = fresh(&env, &config(durability)).await.unwrap();
            for _ in 0..3 {
                let note = shard.note_opener(types::ClientId(7), || {
                    looked.set(looked.get() + 1);
                    None
                });
                shard.noted(note).await;
            }
        });
        world.clear();
        assert_eq!(looked.get(), expected, "{durability:?}");
    }
}

async fn opened_again(
    env: &Env,
    store: Rc<vos::Store>,
    shard: Rc<vos::PoolShard>,
) -> (Rc<vos::Store>, Rc<vos::PoolShard>) {
    shard.close().await.unwrap();
    drop((shard, store));
    let store = open(env, 0).await.unwrap();
    let shard = store.open_shard(POOL).await.unwrap();
    (store, shard)
}

/// A `relaxed` pool may lose the end of its log with the machine. What is left of it says how new the map was, at least, by which the last of it was done; and that
/// nothing was lost, if it was ended in good order and nothing came after that.
#[test]
fn the_map_of_what_is_left_after_a_crash_is_known() {
    let world = SimWorld::new(5);
    let env = world.node("a");
    let store = world.block_on(async {
        let (store, shard) = fresh(&env, &config(Durability::Relaxed)).await.unwrap();
        assert_eq!(shard.kept_map_version(), 0);
        shard.note_map(7);
        shard.note_map(6);
        let (store, shard) = opened_again(&env, store, shard).await;
        assert_eq!(shard.kept_map_version(), 7, "the newest of them");
        shard.checkpoint().await.unwrap();
        let (store, shard) = opened_again(&env, store, shard).await;
        assert_eq!(shard.kept_map_version(), 7, "from the checkpoint");
        shard.note_end();
        let (store, shard) = opened_again(&env, store, shard).await;
        assert_eq!(shard.kept_map_version(), ALL_IS_HERE);
        let (store, shard) = opened_again(&env, store, shard).await;
        assert_eq!(shard.kept_map_version(), 0, "this time nobody said so");
        shard.note_map(8);
        shard.note_end();
        shard.durable(shard.create_cont(ContId(77)).unwrap()).await.unwrap();
        let (store, shard) = opened_again(&env, store, shard).await;
        assert_eq!(shard.kept_map_version(), 0, "something came after the end");
        shard.note_map(9);
        let (store, shard) = opened_again(&env, store, shard).await;
        shard.note_map(11);
        assert_eq!(shard.kept_map_version(), 9);
        store
    });
    world.kill("a");
    drop(store);
    let env = world.node("a");
    let store = world.block_on(async {
        let store = vos::Store::open(&env, Path::new("/target")).await.unwrap();
        let shard = store.open_shard(POOL).await.unwrap();
        assert_eq!(shard.kept_map_version(), 9, "what nobody waited for is lost");
        shard.note_end();
        let (store, shard) = opened_again(&env, store, shard).await;
        assert_eq!(shard.kept_map_version(), ALL_IS_HERE);
        shard.create_cont(ContId(78)).unwrap();
        store
    });
    world.kill("a");
    drop(store);
    let env = world.node("a");
    world.block_on(async {
        let store = vos::Store::open(&env, Path::new("/target")).await.unwrap();
        let shard = store.open_shard(POOL).await.unwrap();
        assert_eq!(
            shard.kept_map_version(),
            0,
            "all was there when it began, and not when it was killed"
        );
    });
    world.clear();
}
