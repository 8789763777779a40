//! What the index borrows from the data area, and crashes while it returns.

use super::model::*;
use env::SimWorld;
use std::time::Duration;
use types::{Code, Durability, ObjType};
use vos::PoolShardConfig;
use wire::obj::Cond;

/// Changes of the disk that a checkpoint with its returns takes at most, about.
const CHANGES: u64 = 60;

fn single(kind: ObjType, number: u64, bulk: bool, bytes: usize) -> Step {
    let dkey = format!("dkey-{number:05}").into_bytes();
    let act = Act::Single { bulk, bytes, fill: number as u8 };
    Step { unit: unit(kind, 1), dkey, akey: vec![], cond: Cond::NONE, act }
}

/// Blocks on their way back from the index are written to as soon as they may be, and the power
/// goes at each change of the disk around that moment: nothing acknowledged is lost, no block is in use
/// twice, and in the end all of them come back.
#[test]
fn blocks_on_their_way_back_serve_one_master_at_a_time() {
    let config =
        PoolShardConfig { durability: Durability::Wal, scm_bytes: 64 << 10, nvme_bytes: 1 << 20 };
    let (mut cut, mut after_return) = (0, 0);
    for changes in 0..CHANGES {
        let world = SimWorld::new(changes);
        let mut env = world.node("a");
        let disk = world.disk("a");
        let (mut model, mut epoch) = (Model::default(), 0u64);
        let mut maybe = None;
        world.block_on(async {
            let (_store, shard) = fresh(&env, &config).await.unwrap();
            let mut put = async |step: Step, model: &mut Model| {
                epoch += 1;
                let lsn = run(&shard, epoch, &step).await?;
                model.run(epoch, &step).unwrap();
                shard.durable(lsn).await
            };
            for number in 0..500 {
                put(single(ObjType::MultiHashed, number, false, 600), &mut model).await.unwrap();
            }
            shard.checkpoint().await.unwrap();
            let lent = (1 << 20) - shard.stat().nvme_bytes;
            assert!(lent > 256 << 10, "only {lent} bytes were borrowed");
            for number in 0.. {
                match put(single(ObjType::DkeyLexical, number, true, 30_000), &mut model).await {
                    Ok(()) => {}
                    Err(error) if error.code == Code::NoSpace => break,
                    Err(error) => panic!("{error}"),
                }
            }
            let gone = Step { act: Act::PunchObj, ..single(ObjType::MultiHashed, 0, false, 0) };
            put(gone, &mut model).await.unwrap();
            disk.stop_after(changes);
            let beside = shard.clone();
            env.spawn(async move { beside.checkpoint().await.unwrap_or(()) });
            for number in 100..140 {
                let step = single(ObjType::DkeyLexical, number, true, 30_000);
                let mut then = model.clone();
                match put(step, &mut then).await {
                    Ok(()) => {
                        model = then;
                        after_return += 1;
                    }
                    Err(error) if error.code == Code::NoSpace => {
                        env.sleep(Duration::from_micros(50)).await;
                    }
                    Err(_) => {
                        maybe = Some(then);
                        cut += 1;
                        break;
                    }
                }
            }
        });
        world.kill("a");
        disk.crash();
        env = world.node("a");
        world.block_on(async {
            let store = open(&env, u64::MAX).await.unwrap();
            let shard = store.open_shard(POOL).await.unwrap();
            let found = dump(&shard).await;
            if let Some(maybe) = maybe.filter(|maybe| found == as_dumped(maybe)) {
                model = maybe;
            }
            compare(&shard, &model).await;
            for kind in [ObjType::MultiHashed, ObjType::DkeyLexical] {
                epoch += 1;
                let gone = Step { act: Act::PunchObj, ..single(kind, 0, false, 0) };
                let lsn = run(&shard, epoch, &gone).await.unwrap();
                shard.durable(lsn).await.unwrap();
            }
            env.sleep(Duration::from_secs(1)).await;
            shard.checkpoint().await.unwrap();
            shard.checkpoint().await.unwrap();
            let stat = shard.stat();
            assert_eq!((stat.scm_free_bytes, stat.nvme_free_bytes), (64 << 10, 1 << 20));
        });
        world.clear();
    }
    assert!(cut > CHANGES / 4 && after_return > 0, "{cut} cut, {after_return} written");
}
