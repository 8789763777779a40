//! Space of what nobody sees any more comes back, whenever the power goes: before, in or after the
//! sweep or the digging, with a checkpoint anywhere between.

use super::model::*;
use super::places;
use env::{Env, SimWorld};
use std::rc::Rc;
use std::time::Duration;
use types::{Durability, Epoch, ObjType, Unit};
use vos::{PoolShard, PoolShardConfig};
use wire::obj::*;
use wire::versions::{ContStage, ContVersions};

const BIG: PoolShardConfig =
    PoolShardConfig { durability: Durability::Wal, scm_bytes: 16 << 20, nvme_bytes: 16 << 20 };
/// More than what is removed dkey by dkey.
const COUNT: u64 = 1200;
/// Small objects: enough for some buckets, none of which stay in memory, so that a sweep takes
/// its time.
const SMALL_COUNT: u64 = 150;

fn big() -> Unit {
    unit(ObjType::ArrayByte, 5)
}

fn small() -> impl Iterator<Item = Unit> {
    (0..SMALL_COUNT).map(|n| unit(ObjType::MultiHashed, 100 + n))
}

fn punches() -> Vec<Op<'static>> {
    let punch = |unit| Op::PunchObj { unit, cond: Cond::NONE, besides: b"" };
    small().chain([big()]).map(punch).collect()
}

/// Writes dkeys of one object, each with a value in the index, every tenth with a block; then
/// the small objects.
async fn fill(shard: &PoolShard, epoch: u64) {
    let value = [7; 40];
    for first in (0..COUNT).step_by(200) {
        let keys: Vec<[u8; 8]> = (first..first + 200).map(u64::to_le_bytes).collect();
        let mut bulk = Vec::new();
        let mut ops = Vec::new();
        for (n, dkey) in keys.iter().enumerate() {
            let cond = Cond::NONE;
            let value = UpdateValue::Inline(&value);
            let mut iods = vec![UpdateIod { akey: b"v", cond, value }];
            if n % 10 == 0 {
                let recxs = vec![Recx { index: 0, count: 4096 }];
                let value = UpdateValue::Array { record_bytes: 1, recxs };
                iods.push(UpdateIod { akey: b"", cond, value });
                bulk.extend_from_slice(&[3; 4096]);
            }
            ops.push(Op::Update { unit: big(), dkey, cond, iods });
        }
        write(shard, epoch, &ops, &bulk, None).await.unwrap();
    }
    let value = [8; 300];
    let mut bulk = Vec::new();
    let ops: Vec<Op<'_>> = small()
        .enumerate()
        .map(|(n, unit)| {
            let value = match n % 10 {
                0 => UpdateValue::Single { bytes: 5000 },
                _ => UpdateValue::Inline(&value),
            };
            bulk.resize(bulk.len() + if n % 10 == 0 { 5000 } else { 0 }, 9);
            let iods = vec![UpdateIod { akey: b"v", cond: Cond::NONE, value }];
            Op::Update { unit, dkey: b"d", cond: Cond::NONE, iods }
        })
        .collect();
    write(shard, epoch, &ops, &bulk, None).await.unwrap();
}

async fn order(
    shard: &PoolShard,
    revision: u64,
    held: bool,
    snapshots: &[u64],
) -> types::Result<()> {
    let snapshots = snapshots.iter().map(|&at| Epoch(at)).collect();
    let wanted = ContVersions { revision, snapshots, held, stage: ContStage::Open };
    let lsn = shard.set_versions(CONT, &wanted)?;
    shard.durable(lsn).await
}

async fn punch(shard: &PoolShard, epoch: u64) -> types::Result<()> {
    let lsn = write(shard, epoch, &punches(), b"", None).await?;
    shard.durable(lsn).await
}

/// How the object goes.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Nobody keeps it: it becomes garbage, in memory or not.
    Plain,
    /// Everything was kept when it was punched; a moment later nothing is.
    Held,
    /// It was punched in one snapshot's time, which goes.
    Snapshot,
    /// Its container is destroyed with a snapshot that shows it, and an end that none shows.
    Destroyed,
}

/// What comes before the power may go.
async fn prepare(shard: &PoolShard, way: Way) -> types::Result<()> {
    fill(shard, 5).await;
    match way {
        Way::Plain => {}
        Way::Held => order(shard, 1, true, &[]).await?,
        Way::Snapshot => {
            order(shard, 1, false, &[5]).await?;
            punch(shard, 6).await?;
        }
        Way::Destroyed => {
            order(shard, 1, false, &[5]).await?;
            punch(shard, 6).await?;
            fill(shard, 7).await;
        }
    }
    shard.checkpoint().await
}

/// Makes it go, and begins a checkpoint some steps of the sweep later.
async fn go(env: &Env, shard: &Rc<PoolShard>, way: Way, steps: u64) -> types::Result<()> {
    let all_gone = ContVersions { revision: 2, ..ContVersions::default() };
    match way {
        Way::Plain => {
            write(shard, 10, &punches(), b"", None).await?;
        }
        Way::Held => {
            write(shard, 10, &punches(), b"", None).await?;
            shard.set_versions(CONT, &all_gone)?;
        }
        Way::Snapshot => {
            shard.set_versions(CONT, &all_gone)?;
        }
        Way::Destroyed => {
            shard.destroy_cont(CONT)?;
        }
    }
    for _ in 0..steps {
        env.yield_now().await;
    }
    shard.checkpoint().await
}

/// True when the power was cut.
fn cut_after(way: Way, reopened: bool, changes: u64) -> bool {
    let world = SimWorld::new(changes);
    let env = world.node("a");
    let disk = world.disk("a");
    let cut = world.block_on(async {
        let (mut store, mut shard) = fresh_with(&env, &BIG, 0).await.unwrap();
        prepare(&shard, way).await.unwrap();
        if reopened {
            shard.close().await.unwrap();
            drop((shard, store));
            store = open(&env, 0).await.unwrap();
            shard = store.open_shard(POOL).await.unwrap();
        }
        assert!(shard.stat().nvme_free_bytes < shard.stat().nvme_bytes);
        disk.stop_after(changes);
        let gone = go(&env, &shard, way, changes % 6).await;
        // Whatever the background was about to do has not been done.
        drop(store);
        gone.is_err()
    });
    world.kill("a");
    disk.crash();
    let env = world.node("a");
    world.block_on(async {
        let store = open(&env, 0).await.unwrap();
        let shard = store.open_shard(POOL).await.unwrap();
        // A second crash right after a start changes nothing, and a checkpoint in the midst does not.
        if changes.is_multiple_of(2) {
            shard.checkpoint().await.unwrap();
        }
        drop((store, shard));
    });
    world.kill("a");
    disk.crash();
    let env = world.node("a");
    world.block_on(async {
        let store = open(&env, 0).await.unwrap();
        let shard = store.open_shard(POOL).await.unwrap();
        everything_comes_back(&env, &shard).await;
        shard.close().await.unwrap();
        drop(store);
    });
    world.clear();
    cut
}

/// Does what may not have been done, and waits for the space.
async fn everything_comes_back(env: &Env, shard: &Rc<PoolShard>) {
    if shard.has_cont(CONT) {
        if shard.stat().object_count > 0 {
            punch(shard, 90).await.unwrap();
        }
        order(shard, 90, false, &[]).await.unwrap();
    }
    let mut tries = 0;
    while shard.has_cont(CONT) && shard.is_unswept(CONT) {
        env.sleep(Duration::from_millis(1)).await;
        tries += 1;
        assert!(tries < 100_000, "the sweep never ends");
    }
    env.sleep(Duration::from_secs(1)).await;
    let stat = shard.stat();
    assert_eq!((stat.object_count, stat.dkey_count), (0, 0));
    assert_eq!(stat.scm_free_bytes, stat.scm_bytes);
    assert_eq!(stat.nvme_free_bytes, stat.nvme_bytes);
}

#[test]
fn space_of_a_big_object_comes_back_wherever_the_power_goes() {
    let ways = [Way::Plain, Way::Held, Way::Snapshot, Way::Destroyed];
    for (seed, way) in ways.into_iter().enumerate() {
        for reopened in [false, true] {
            let seed = 2 * seed as u64 + u64::from(reopened);
            let mut changes = 0;
            while cut_after(way, reopened, changes) {
                changes = places::next(changes, seed);
                assert!(changes < 1000, "it never ends");
            }
            // With each number of steps before the checkpoint.
            for more in 1..6 {
                cut_after(way, reopened, changes + more);
            }
            assert!(changes > 5, "{way:?}: the power was cut at {changes} places only");
        }
    }
}
