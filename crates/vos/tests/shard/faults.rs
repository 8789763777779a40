//! Every call of the disk fails once, in turn: errors, no panic, and nothing acknowledged lost.

use super::model::*;
use super::places;
use env::{Rng, SimWorld};
use std::rc::Rc;
use types::{Code, CsumKind, Durability};
use vos::{PoolShard, Store, SumPolicy};

/// Steps of a run, with a checkpoint that is waited for and one beside updates.
const STEPS: u64 = 40;

/// What a run with one failing call came to.
struct Run {
    /// All that was acknowledged, and that with the step whose end nobody knows.
    acked: Model,
    in_flight: Model,
    /// The failing call was reached.
    reached: bool,
}

async fn steps(
    store: &Rc<Store>,
    seed: u64,
    env: &env::Env,
    run: &mut Run,
) -> Option<Rc<PoolShard>> {
    let shard = store.create_shard(POOL, &config(Durability::Wal)).await.ok()?;
    let sums = SumPolicy { kind: CsumKind::Xxh3, verify: true };
    let lsn = shard.create_summed_cont(CONT, sums).ok()?;
    shard.durable(lsn).await.ok()?;
    let rng = Rng::new(seed);
    for n in 0..STEPS {
        let step = Step::random(&rng);
        let mut after = run.acked.clone();
        let expected = after.run(n + 1, &step);
        let outcome = async {
            let lsn = super::model::run(&shard, n + 1, &step).await?;
            shard.durable(lsn).await
        };
        match outcome.await {
            Ok(()) => {
                assert_eq!(expected, Ok(()), "{step:?}");
                run.acked = after;
            }
            Err(error) if Err(error.code) == expected => {}
            Err(error) => {
                assert!(
                    matches!(error.code, Code::Io | Code::NoSpace),
                    "a failing disk shows as {error}"
                );
                // Data that could not be written changes nothing. A log that could not be
                // written ends all writing, and says so.
                run.in_flight = after;
                let next = shard.create_cont(types::ContId(99));
                match next {
                    Ok(lsn) if shard.durable(lsn).await.is_ok() => {
                        run.in_flight = run.acked.clone();
                        compare(&shard, &run.acked).await;
                    }
                    Ok(_) => return Some(shard),
                    Err(error) => {
                        assert!(error.to_string().contains("takes no more writes"), "{error}");
                        return Some(shard);
                    }
                }
            }
        }
        if n == 12 {
            // Whether it worked or not, nothing is different for anybody.
            let _ = shard.checkpoint().await;
        }
        if n == 20 {
            let beside = shard.clone();
            env.spawn(async move { beside.checkpoint().await.unwrap_or(()) });
        }
    }
    run.in_flight = run.acked.clone();
    Some(shard)
}

/// One run; false when it was over before the failing call.
fn one_call_fails(seed: u64, cache: u64, call: u64, code: Code) -> bool {
    let world = SimWorld::new(seed);
    let env = world.node("a");
    let disk = world.disk("a");
    let mut run = Run { acked: Model::default(), in_flight: Model::default(), reached: false };
    world.block_on(async {
        disk.fail_call_after(call, code);
        if let Ok(store) = open(&env, cache).await
            && let Some(shard) = steps(&store, seed, &env, &mut run).await
        {
            let _ = shard.close().await;
        }
        run.reached = disk.call_count() > call;
    });
    world.kill("a");
    disk.crash();
    // Calls that failed are over; what is there must be one of the two states.
    disk.fail_call_after(u64::MAX / 2, code);
    let env = world.node("a");
    world.block_on(async {
        let store = open(&env, cache).await.unwrap();
        if store.shards().is_empty() {
            // The failure hit its making, before which nothing was acknowledged.
            assert!(run.acked.0.is_empty());
            fresh_shard(&store).await;
            return;
        }
        let shard = store.open_shard(POOL).await.unwrap();
        if !shard.has_cont(CONT) {
            assert!(run.acked.0.is_empty());
            return;
        }
        let found = dump(&shard).await;
        let which = if found == as_dumped(&run.acked) { &run.acked } else { &run.in_flight };
        compare(&shard, which).await;
    });
    world.clear();
    run.reached
}

async fn fresh_shard(store: &Rc<Store>) {
    store.create_shard(POOL, &config(Durability::Wal)).await.unwrap();
}

/// Each call of the steps of a seed fails once.
fn any_one_call_fails(seed: u64, cache: u64, code: Code) {
    let mut call = 0;
    while one_call_fails(seed, cache, call, code) {
        call = places::next(call, seed);
        assert!(call < 3000, "the steps never finish");
    }
    assert!(call > 60, "only {call} calls were made");
}

#[test]
fn an_error_of_any_one_call_loses_nothing() {
    any_one_call_fails(1, u64::MAX, Code::Io);
}

#[test]
fn a_disk_that_is_full_at_any_one_call_loses_nothing() {
    any_one_call_fails(2, u64::MAX, Code::NoSpace);
}

#[test]
fn an_error_of_any_one_call_loses_nothing_with_next_to_no_index_in_memory() {
    any_one_call_fails(4, 0, Code::Io);
}

#[test]
fn a_disk_that_is_full_at_any_one_call_loses_nothing_with_next_to_no_index_in_memory() {
    any_one_call_fails(5, 0, Code::NoSpace);
}

/// Reading back with a disk whose reads fail one after the other: an error or the right thing.
#[test]
fn an_error_of_any_one_call_while_opening_and_reading_is_an_error_and_no_more() {
    reading_fails(u64::MAX);
    reading_fails(0);
}

fn reading_fails(cache: u64) {
    let seed = 3;
    let mut call = 0;
    loop {
        let world = SimWorld::new(seed);
        let env = world.node("a");
        let disk = world.disk("a");
        let reached = world.block_on(async {
            let mut model = Model::default();
            let (store, shard) = fresh_with(&env, &config(Durability::Wal), cache).await.unwrap();
            let rng = Rng::new(seed);
            for n in 0..30 {
                let step = Step::random(&rng);
                let expected = model.run(n + 1, &step);
                let got = run(&shard, n + 1, &step).await;
                assert_eq!(got.map(|_| ()).map_err(|error| error.code), expected);
            }
            shard.close().await.unwrap();
            drop((shard, store));
            let before = disk.call_count();
            disk.fail_call_after(call, Code::Io);
            let mut tries = 0;
            // At most one call fails, so the second try of anything works.
            let shard = loop {
                tries += 1;
                assert!(tries < 4, "opening fails with a disk that works");
                let Ok(store) = open(&env, cache).await else { continue };
                match store.open_shard(POOL).await {
                    Ok(shard) => break (store, shard),
                    Err(error) => assert_eq!(error.code, Code::Io, "{error}"),
                }
            };
            // Pages are read while looking; and again, since a page that could not be read is not
            // held against it.
            match try_dump_at(&shard.1, 0).await {
                Ok(found) => assert_eq!(found, as_dumped(&model)),
                Err(error) => assert_eq!(error.code, Code::Io, "{error}"),
            }
            let reached = disk.call_count() - before > call;
            if reached {
                compare(&shard.1, &model).await;
            }
            reached
        });
        world.clear();
        if !reached {
            break;
        }
        call = places::next(call, seed);
    }
    assert!(call > 5, "opening takes only {call} calls");
}
