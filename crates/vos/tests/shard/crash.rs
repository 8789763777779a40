//! A power cut at every change of the disk: what was acknowledged is there, what was not is
//! there whole or not at all.

use super::model::*;
use super::places;
use env::{Rng, SimWorld};
use std::path::Path;
use types::{Code, Durability};

/// Runs steps until the disk stops after `changes`; returns the models before and after the
/// step in flight, or `None` when all steps went through.
fn cut_after(seed: u64, changes: u64, durability: Durability) -> bool {
    let world = SimWorld::new(seed);
    let env = world.node("a");
    let disk = world.disk("a");
    let mut acked = Model::default();
    let mut in_flight = Model::default();
    let finished = world.block_on(async {
        let (_store, shard) = fresh(&env, &config(durability)).await.unwrap();
        disk.stop_after(changes);
        let rng = Rng::new(seed);
        for n in 0..40 {
            let step = Step::random(&rng);
            let expected = in_flight.run(n + 1, &step);
            let outcome = async {
                let lsn = run(&shard, n + 1, &step).await?;
                shard.durable(lsn).await
            };
            match outcome.await {
                Err(error) if error.code == Code::Io => return false,
                other => assert_eq!(other.map_err(|e| e.code), expected),
            }
            acked = in_flight.clone();
            // Both a checkpoint that is waited for, and one that runs beside updates.
            if n == 12 && shard.checkpoint().await.is_err() {
                return false;
            }
            if n == 20 {
                let beside = shard.clone();
                env.spawn(async move { beside.checkpoint().await.unwrap_or(()) });
            }
        }
        true
    });
    world.kill("a");
    disk.crash();
    let env = world.node("a");
    world.block_on(async {
        let store = vos::Store::open(&env, Path::new("/target")).await.unwrap();
        let shard = store.open_shard(POOL).await.unwrap();
        let found = dump(&shard).await;
        let which = if found == as_dumped(&acked) { &acked } else { &in_flight };
        compare(&shard, which).await;
        // It goes on working.
        let step = Step::random(&Rng::new(1));
        let mut model = which.clone();
        let expected = model.run(500, &step);
        assert_eq!(run(&shard, 500, &step).await.map(|_| ()).map_err(|e| e.code), expected);
        compare(&shard, &model).await;
    });
    world.clear();
    finished
}

#[test]
fn nothing_acknowledged_is_lost_wherever_the_power_goes() {
    for seed in 0..2 {
        let mut changes = 0;
        while !cut_after(seed, changes, Durability::Wal) {
            changes = places::next(changes, seed);
            assert!(changes < 2000, "the steps never finish");
        }
        assert!(changes > 20, "the power was cut at {changes} places only");
    }
}
