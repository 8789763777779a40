//! The same store on a raw device.

use super::flips::is_flipped;
use super::model::*;
use env::{AlignedBuf, Env, File, OpenOptions, Rng, SimWorld};
use std::path::Path;
use std::rc::Rc;
use types::{Code, Durability, PoolId};

const DEVICE: &str = "/device";

async fn make_device(env: &Env, bytes: u64, first: &[u8]) {
    let options = OpenOptions { create: true, ..OpenOptions::default() };
    let file = env.disk().open(Path::new(DEVICE), options).await.unwrap();
    file.set_len(bytes).await.unwrap();
    if !first.is_empty() {
        file.write_at(0, AlignedBuf::copy_of(first)).await.1.unwrap();
    }
    file.sync().await.unwrap();
    env.disk().sync_dir(Path::new("/")).await.unwrap();
}

#[test]
fn a_store_on_a_device_survives_crashes_like_one_in_a_directory() {
    for seed in 0..6u64 {
        let world = SimWorld::new(seed);
        let mut env = world.node("a");
        world.block_on(make_device(&env, 96 << 20, b""));
        let mut model = Model::default();
        let rng = Rng::new(seed);
        for life in 0..4u64 {
            world.block_on(async {
                let store = vos::Store::open(&env, Path::new(DEVICE)).await.unwrap();
                let busy = vos::Store::open(&env, Path::new(DEVICE)).await.unwrap_err();
                assert_eq!(busy.code, Code::Busy);
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
                if life % 2 == 0 {
                    shard.checkpoint().await.unwrap();
                }
                // Another pool comes and goes: its units come back.
                for _ in 0..3 {
                    let other =
                        store.create_shard(PoolId(9), &config(Durability::Wal)).await.unwrap();
                    let lsn = other.create_cont(CONT).unwrap();
                    other.durable(lsn).await.unwrap();
                    store.destroy_shard(PoolId(9)).await.unwrap();
                }
            });
            world.kill("a");
            env = world.node("a");
        }
        world.clear();
    }
}

#[test]
fn a_device_with_foreign_data_is_refused_untouched() {
    let world = SimWorld::new(3);
    let env = world.node("a");
    world.block_on(async {
        let mut data = vec![0; 8192];
        data[5000] = 1;
        make_device(&env, 8 << 20, &data).await;
        let refused = vos::Store::open(&env, Path::new(DEVICE)).await.unwrap_err();
        assert_eq!(refused.code, Code::Exist);
        let file = env.disk().open(Path::new(DEVICE), OpenOptions::default()).await.unwrap();
        let (read, _) = file.read_at(0, AlignedBuf::zeroed(8192)).await;
        assert_eq!(&read[..], &data[..]);
    });
    world.clear();
}

#[test]
fn a_full_device_refuses_a_shard_and_stays_usable() {
    let world = SimWorld::new(3);
    let env = world.node("a");
    world.block_on(async {
        make_device(&env, 20 << 20, b"").await;
        let store = vos::Store::open(&env, Path::new(DEVICE)).await.unwrap();
        let large = vos::PoolShardConfig { nvme_bytes: 64 << 20, ..config(Durability::Wal) };
        assert_eq!(store.create_shard(POOL, &large).await.unwrap_err().code, Code::NoSpace);
        assert!(store.shards().is_empty());
        let small = vos::PoolShardConfig { nvme_bytes: 1 << 20, ..large };
        let shard = store.create_shard(POOL, &small).await.unwrap();
        let lsn = shard.create_cont(CONT).unwrap();
        shard.durable(lsn).await.unwrap();
    });
    world.clear();
}

/// Where the second copy of a device's table begins, bytes.
const SECOND: usize = 512 << 10;

async fn open_device(env: &Env) -> Rc<dyn File> {
    env.disk().open(Path::new(DEVICE), OpenOptions::default()).await.unwrap()
}

/// The first MiB of the device.
async fn tables(file: &Rc<dyn File>) -> Vec<u8> {
    let (raw, read) = file.read_at(0, AlignedBuf::zeroed(2 * SECOND)).await;
    assert_eq!(read.unwrap(), 2 * SECOND);
    raw.to_vec()
}

async fn flip(file: &Rc<dyn File>, raw: &[u8], bit: usize) {
    let flipped = AlignedBuf::copy_of(&[raw[bit / 8] ^ 1 << (bit % 8)]);
    file.write_at((bit / 8) as u64, flipped).await.1.unwrap();
}

/// The newest table of names was in one copy only: with a flipped bit in it a device showed the names it had had before, and
/// a pool that had just been made was gone without a word.
#[test]
fn any_flipped_bit_of_a_devices_table_is_mended_from_the_other_copy() {
    let pools = [POOL, PoolId(9)];
    let world = SimWorld::new(11);
    let env = world.node("a");
    world.block_on(async {
        make_device(&env, 96 << 20, b"").await;
        let store = vos::Store::open(&env, Path::new(DEVICE)).await.unwrap();
        for pool in pools {
            let shard = store.create_shard(pool, &config(Durability::Wal)).await.unwrap();
            shard.durable(shard.create_cont(CONT).unwrap()).await.unwrap();
        }
    });
    world.kill("a");
    let env = world.node("a");
    world.block_on(async {
        let file = open_device(&env).await;
        let whole = tables(&file).await;
        let (first, second) = whole.split_at(SECOND);
        assert!(first == second, "the copies differ");
        let used = first.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        let bits = || (0..used * 8).filter(|bit| is_flipped(*bit));
        let open = async || vos::Store::open(&env, Path::new(DEVICE)).await;
        for bit in bits().chain(bits().map(|bit| SECOND * 8 + bit)) {
            flip(&file, &whole, bit).await;
            let mut shown = open().await.unwrap().shards();
            shown.sort_unstable();
            assert_eq!(shown, pools, "bit {bit}");
            assert!(tables(&file).await == whole, "bit {bit}: not mended");
        }
        // The same bit of both copies: it is said.
        for bit in bits() {
            flip(&file, &whole, bit).await;
            flip(&file, &whole, SECOND * 8 + bit).await;
            let code = open().await.err().map(|error| error.code);
            // What is damaged at its very beginning looks like somebody else's.
            let said = if bit < 64 { Code::Exist } else { Code::Csum };
            assert_eq!(code, Some(said), "bit {bit} of both");
            file.write_at(0, AlignedBuf::copy_of(&whole)).await.1.unwrap();
        }
        println!(
            "{} bits of a table of names, one copy: all mended; both: refused",
            bits().count()
        );
    });
    world.clear();
}
