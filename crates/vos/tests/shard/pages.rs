//! Shards whose index does not fit into memory: everything is forgotten and read back all the
//! time, with checkpoints at any moment, crashes and damage.

use super::model::*;
use super::places;
use env::{AlignedBuf, Env, OpenOptions, Rng, SimWorld};
use std::path::Path;
use std::rc::Rc;
use types::{ClientId, Code, Durability, Epoch, ObjType};
use vos::{PoolShard, PoolShardConfig, Store};
use wire::obj::*;

pub const ROOMY: PoolShardConfig =
    PoolShardConfig { durability: Durability::Wal, scm_bytes: 64 << 20, nvme_bytes: 32 << 20 };

/// A step on one of many small objects, or on one of three large ones.
pub fn wide_step(rng: &Rng) -> Step {
    let mut step = Step::random(rng);
    let kind = step.unit.obj_type().expect("a known kind");
    if rng.below(2) == 0 {
        step.unit = unit(kind, 10 + rng.below(300));
        return step;
    }
    step.unit = unit(kind, 5);
    let number = rng.below(500);
    step.dkey = match kind {
        ObjType::ArrayByte => number.to_le_bytes().to_vec(),
        _ => format!("dkey-{number:05}").into_bytes(),
    };
    match &mut step.act {
        // Whole objects go now and then only, or none would be large.
        Act::PunchObj if rng.below(10) > 0 => step.act = Act::PunchDkey,
        Act::PunchFrom(from) => *from = if rng.below(10) == 0 { number } else { 490 },
        _ => {}
    }
    step
}

/// Fills three objects until they have pages of their own, and some small ones.
async fn fill(shard: &PoolShard, model: &mut Model, epoch: &mut u64, dkeys: u64) {
    let mut last = vos::Lsn::default();
    for number in 0..dkeys {
        for kind in [ObjType::MultiHashed, ObjType::ArrayByte, ObjType::DkeyLexical] {
            let dkey = match kind {
                ObjType::ArrayByte => number.to_le_bytes().to_vec(),
                _ => format!("dkey-{number:05}").into_bytes(),
            };
            let act = match number % 7 {
                0 => {
                    let recx = Recx { index: 3, count: 5000 };
                    Act::Array { record_bytes: 1, recx, fill: number as u8 }
                }
                _ => Act::Single { bulk: false, bytes: 1200, fill: number as u8 },
            };
            let step = Step { unit: unit(kind, 5), dkey, akey: vec![], cond: Cond::NONE, act };
            *epoch += 1;
            let got = run(shard, *epoch, &step).await;
            last = got.clone().unwrap_or(last);
            assert_eq!(got.map(|_| ()).map_err(|e| e.code), model.run(*epoch, &step));
        }
    }
    shard.durable(last).await.unwrap();
}

async fn reopen(env: &Env, shard: Rc<PoolShard>, store: Rc<Store>) -> (Rc<Store>, Rc<PoolShard>) {
    shard.close().await.unwrap();
    drop((shard, store));
    let store = open(env, 0).await.unwrap();
    let shard = store.open_shard(POOL).await.unwrap();
    (store, shard)
}

/// A page that changed its name while it stood in the queue of those that can be forgotten was
/// never forgotten again: memory grew with every bucket that was split after it was written.
#[test]
fn buckets_that_were_split_are_forgotten_like_others() {
    let world = SimWorld::new(3);
    let env = world.node("a");
    world.block_on(async {
        let (_store, shard) = fresh_with(&env, &ROOMY, 0).await.unwrap();
        let mut model = Model::default();
        for number in 0..2000u64 {
            let act = Act::Single { bulk: false, bytes: 200, fill: number as u8 };
            let unit = unit(ObjType::MultiHashed, 10 + number);
            let step = Step { unit, dkey: b"d".to_vec(), akey: vec![], cond: Cond::NONE, act };
            let epoch = number + 1;
            let lsn = run(&shard, epoch, &step).await.unwrap();
            model.run(epoch, &step).unwrap();
            if number % 100 == 99 {
                shard.durable(lsn).await.unwrap();
                shard.checkpoint().await.unwrap();
            }
        }
        compare(&shard, &model).await;
        shard.checkpoint().await.unwrap();
        assert!(shard.resident_bytes() < 20 << 10, "{} bytes stay", shard.resident_bytes());
    });
}

/// A large object is kept in many parts, and whoever needs one key of it reads one of them.
#[test]
fn one_key_of_a_large_object_costs_one_part_of_it() {
    let world = SimWorld::new(4);
    let env = world.node("a");
    world.block_on(async {
        let (store, shard) = fresh_with(&env, &ROOMY, 0).await.unwrap();
        let (mut model, mut epoch) = (Model::default(), 0);
        fill(&shard, &mut model, &mut epoch, 300).await;
        let (_store, shard) = reopen(&env, shard, store).await;
        // Three objects of 250 inline values of 1,200 bytes and 50 arrays.
        assert!(shard.index_stat().absent_pages > 3 * 30, "{:?}", shard.index_stat());
        for kind in [ObjType::MultiHashed, ObjType::DkeyLexical] {
            let before = shard.index_stat().loaded_pages;
            let act = Act::Single { bulk: false, bytes: 1200, fill: 1 };
            let (unit, dkey) = (unit(kind, 5), b"dkey-00123".to_vec());
            let step = Step { unit, dkey, akey: vec![], cond: Cond::DKEY_UPDATE, act };
            epoch += 1;
            let lsn = run(&shard, epoch, &step).await.unwrap();
            model.run(epoch, &step).unwrap();
            shard.durable(lsn).await.unwrap();
            let stat = shard.index_stat();
            assert_eq!(stat.loaded_pages, before + 1);
            assert!(stat.resident_bytes < 64 << 10, "{stat:?}");
        }
        compare(&shard, &model).await;
    });
    world.clear();
}

#[test]
fn what_is_always_forgotten_agrees_with_the_model() {
    for seed in 0..2 {
        let world = SimWorld::new(seed);
        let env = world.node("a");
        world.block_on(async {
            let rng = Rng::new(seed ^ 99);
            let (mut store, mut shard) = fresh_with(&env, &ROOMY, 0).await.unwrap();
            let mut model = Model::default();
            let mut epoch = 0;
            fill(&shard, &mut model, &mut epoch, 300).await;
            for n in 0..900u64 {
                let step = wide_step(&rng);
                epoch += 1;
                let got = run(&shard, epoch, &step).await;
                let code = got.clone().map(|_| ()).map_err(|error| error.code);
                assert_eq!(code, model.run(epoch, &step), "{step:?}");
                if rng.below(40) == 0 {
                    shard.durable(got.unwrap_or_default()).await.unwrap();
                    shard.checkpoint().await.unwrap();
                }
                if n % 300 == 299 {
                    compare(&shard, &model).await;
                    let before = shard.stat();
                    (store, shard) = reopen(&env, shard, store).await;
                    assert_eq!(shard.resident_bytes() / (1 << 10), 0, "all but heads is absent");
                    assert_eq!(shard.stat(), before);
                    compare(&shard, &model).await;
                }
            }
            // Everything removed: every block and byte comes back, also of what was absent.
            let units: Vec<_> = model.0.keys().copied().collect();
            for unit in units {
                let op = [Op::PunchObj { unit, cond: Cond::NONE, besides: b"" }];
                write(&shard, 90_000, &op, b"", None).await.unwrap();
            }
            compare(&shard, &Model::default()).await;
            env.sleep(std::time::Duration::from_secs(2)).await;
            let stat = shard.stat();
            assert_eq!(stat.scm_free_bytes, stat.scm_bytes);
            assert_eq!(stat.nvme_free_bytes, stat.nvme_bytes);
            (store, shard) = reopen(&env, shard, store).await;
            assert_eq!(shard.stat(), stat);
            drop((store, shard));
        });
        world.clear();
    }
}

/// Runs steps on a store with absent content until the disk stops; true when it did not.
fn cut_after(seed: u64, changes: u64) -> bool {
    let world = SimWorld::new(seed);
    let env = world.node("a");
    let disk = world.disk("a");
    let mut acked = Model::default();
    let mut in_flight = Model::default();
    let finished = world.block_on(async {
        let (_store, shard) = fresh_with(&env, &ROOMY, 0).await.unwrap();
        let mut epoch = 0;
        fill(&shard, &mut in_flight, &mut epoch, 64).await;
        shard.checkpoint().await.unwrap();
        acked = in_flight.clone();
        disk.stop_after(changes);
        let rng = Rng::new(seed);
        for n in 0..24 {
            let step = wide_step(&rng);
            epoch += 1;
            let expected = in_flight.run(epoch, &step);
            let outcome = async {
                let lsn = run(&shard, epoch, &step).await?;
                shard.durable(lsn).await
            };
            match outcome.await {
                Err(error) if error.code == Code::Io => return false,
                other => assert_eq!(other.map_err(|e| e.code), expected),
            }
            acked = in_flight.clone();
            if n % 8 == 5 {
                let beside = shard.clone();
                env.spawn(async move { beside.checkpoint().await.unwrap_or(()) });
            }
        }
        shard.close().await.is_ok()
    });
    world.kill("a");
    disk.crash();
    let env = world.node("a");
    world.block_on(async {
        // Some pages stay for a while: looking takes less time.
        let store = open(&env, 200 << 10).await.unwrap();
        let shard = store.open_shard(POOL).await.unwrap();
        let found = dump(&shard).await;
        let which = if found == as_dumped(&acked) { &acked } else { &in_flight };
        compare(&shard, which).await;
        // What is in use is exactly what is referred to: all of it comes back.
        for unit in which.0.keys() {
            let op = [Op::PunchObj { unit: *unit, cond: Cond::PUNCH, besides: b"" }];
            write(&shard, 90_000, &op, b"", None).await.unwrap();
        }
        env.sleep(std::time::Duration::from_secs(2)).await;
        let stat = shard.stat();
        assert_eq!(stat.nvme_free_bytes, stat.nvme_bytes);
        assert_eq!(stat.scm_free_bytes, stat.scm_bytes);
    });
    world.clear();
    finished
}

#[test]
fn nothing_is_lost_or_leaked_wherever_the_power_goes() {
    let mut changes = 0;
    while !cut_after(changes % 5, changes) {
        changes = places::next(changes, 0);
        assert!(changes < 4000, "the steps never finish");
    }
    assert!(changes > 40, "the power was cut at {changes} places only");
}

#[test]
fn a_destroyed_container_with_absent_content_gives_everything_back() {
    for crash in [false, true] {
        let world = SimWorld::new(1);
        let env = world.node("a");
        world.block_on(async {
            let (store, shard) = fresh_with(&env, &ROOMY, 0).await.unwrap();
            let mut model = Model::default();
            fill(&shard, &mut model, &mut 0, 120).await;
            let (_store, shard) = reopen(&env, shard, store).await;
            assert!(shard.stat().nvme_free_bytes < shard.stat().nvme_bytes);
            let lsn = shard.destroy_cont(CONT).unwrap();
            assert_eq!(shard.view(CONT).err().unwrap().code, Code::NonExist);
            assert_eq!((shard.stat().object_count, shard.stat().dkey_count), (0, 0));
            shard.durable(lsn).await.unwrap();
            // A container of the same id is another one.
            let lsn = shard.create_cont(CONT).unwrap();
            shard.durable(lsn).await.unwrap();
            compare(&shard, &Model::default()).await;
            if crash {
                shard.checkpoint().await.unwrap();
            } else {
                env.sleep(std::time::Duration::from_secs(1)).await;
                let stat = shard.stat();
                assert_eq!(stat.scm_free_bytes, stat.scm_bytes);
                assert_eq!(stat.nvme_free_bytes, stat.nvme_bytes);
            }
        });
        if crash {
            world.kill("a");
            world.disk("a").crash();
        }
        let env = world.node("a");
        world.block_on(async {
            let store = open(&env, 0).await.unwrap();
            let shard = store.open_shard(POOL).await.unwrap();
            env.sleep(std::time::Duration::from_secs(1)).await;
            let stat = shard.stat();
            assert_eq!(stat.scm_free_bytes, stat.scm_bytes);
            assert_eq!(stat.nvme_free_bytes, stat.nvme_bytes);
            compare(&shard, &Model::default()).await;
        });
        world.clear();
    }
}

#[test]
fn a_transaction_prepared_over_absent_keys_takes_effect_after_a_restart() {
    let world = SimWorld::new(1);
    let env = world.node("a");
    let tx = TxId { client: ClientId(5), seq: 44 };
    let mut model = Model::default();
    let changed = Step {
        unit: unit(ObjType::MultiHashed, 5),
        dkey: b"dkey-00100".to_vec(),
        akey: vec![],
        cond: Cond::DKEY_UPDATE,
        act: Act::Single { bulk: true, bytes: 9000, fill: 77 },
    };
    world.block_on(async {
        let (store, shard) = fresh_with(&env, &ROOMY, 0).await.unwrap();
        fill(&shard, &mut model, &mut 0, 120).await;
        let (_store, shard) = reopen(&env, shard, store).await;
        let ops = vec![changed.op(b"")];
        let mut payload = shard.stage(&ops).unwrap();
        for buffer in payload.buffers() {
            buffer.fill(77);
        }
        let kind = shard.sum_policy(CONT).unwrap().kind;
        let bytes = sums_of(kind, &ops, &changed.bulk());
        shard.take_sums(CONT, &Sums { kind, bytes: &bytes }, &mut payload).unwrap();
        payload.write().await.unwrap();
        assert!(!shard.is_resident(CONT, &[], &ops));
        shard.ready(CONT, &[], &ops).await.unwrap();
        shard.check(CONT, &[], &ops).unwrap();
        let batch = wire::encode(&Batch {
            pool: POOL,
            cont: CONT,
            at: Epoch::ZERO,
            checks: vec![],
            ops,
            sums: Sums::NONE,
        });
        let lsn = shard.prepare(tx, unit(ObjType::MultiHashed, 1), CONT, batch, payload).unwrap();
        shard.durable(lsn).await.unwrap();
    });
    world.kill("a");
    world.disk("a").crash();
    let env = world.node("a");
    world.block_on(async {
        let store = open(&env, 0).await.unwrap();
        let shard = store.open_shard(POOL).await.unwrap();
        compare(&shard, &model).await;
        shard.ready_to_decide(tx).await.unwrap();
        let lsn = shard.decide(tx, TxOutcome::Committed(Epoch(5000)), None, &[]).unwrap();
        shard.durable(lsn).await.unwrap();
        model.run(5000, &changed).unwrap();
        compare(&shard, &model).await;
        let (_store, shard) = reopen(&env, shard, store).await;
        compare(&shard, &model).await;
    });
    world.clear();
}

/// Reads what the model holds; `Csum` is an answer, anything else that differs is not.
async fn read_or_csum(shard: &PoolShard, model: &Model) -> bool {
    for (unit, object) in &model.0 {
        for dkey in object.dkeys.keys() {
            let iods = vec![FetchIod { akey: b"", want: FetchWant::Probe }];
            let ops = [Op::Fetch { unit: *unit, dkey, cond: Cond::NONE, iods }];
            match shard.ready(CONT, &[], &ops).await {
                Ok(()) => {
                    let view = shard.view(CONT).unwrap();
                    assert!(view.has_object(*unit));
                    if let Some((_, value)) = view.value(*unit, dkey, b"") {
                        let Value::Single(want) = &object.dkeys[dkey].1[&b""[..]].1 else {
                            panic!("an array became a value")
                        };
                        assert_eq!(value, want);
                    }
                }
                Err(error) => {
                    assert_eq!(error.code, Code::Csum, "{error}");
                    assert!(error.to_string().contains("page"), "{error}");
                    return false;
                }
            }
        }
    }
    true
}

#[test]
fn a_flipped_bit_of_the_page_area_is_noticed_or_harmless() {
    let world = SimWorld::new(1);
    let env = world.node("a");
    let file = format!("/target/pool.{POOL}/pages");
    world.block_on(async {
        let (store, shard) = fresh_with(&env, &ROOMY, 0).await.unwrap();
        let mut model = Model::default();
        fill(&shard, &mut model, &mut 0, 100).await;
        shard.close().await.unwrap();
        drop((store, shard));
        let area = env.disk().open(Path::new(&file), OpenOptions::default()).await.unwrap();
        let bytes = area.len().unwrap();
        let (mut noticed, mut harmless) = (0, 0);
        let step = if std::env::var_os("AZEKURA_ALL_FLIPS").is_some() { 2999 } else { 29_989 };
        for at in (0..bytes).step_by(step) {
            let block = at / 4096 * 4096;
            let flip = async |bit: u8| {
                let (mut buf, read) = area.read_at(block, AlignedBuf::zeroed(4096)).await;
                read.unwrap();
                buf[(at - block) as usize] ^= bit;
                area.write_at(block, buf).await.1.unwrap();
            };
            flip(1 << (at % 8)).await;
            let store = open(&env, 0).await.unwrap();
            let whole = match store.open_shard(POOL).await {
                Ok(shard) => read_or_csum(&shard, &model).await,
                Err(error) => {
                    assert_eq!(error.code, Code::Csum, "{error}");
                    false
                }
            };
            *(if whole { &mut harmless } else { &mut noticed }) += 1;
            drop(store);
            env.sleep(std::time::Duration::from_millis(50)).await;
            flip(1 << (at % 8)).await;
        }
        assert!(noticed > 8, "{noticed} flips noticed, {harmless} harmless");
    });
    world.clear();
}
