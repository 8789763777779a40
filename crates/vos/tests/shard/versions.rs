//! Snapshots against a naive model: a full copy of the state at each of them.

use super::model::*;
use env::{Env, Rng, SimWorld};
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use types::{Code, Durability, Epoch, ObjType};
use vos::{Shard, Store};
use wire::obj::*;
use wire::versions::{ContStage, ContVersions};

/// A shard and what must be in it.
struct Bed {
    env: Env,
    store: Option<Rc<Store>>,
    shard: Rc<Shard>,
    now: Model,
    snapshots: BTreeMap<u64, Model>,
    revision: u64,
    epoch: u64,
}

impl Bed {
    async fn new(env: &Env, durability: Durability) -> Bed {
        let (store, shard) = fresh(env, &config(durability)).await.unwrap();
        Bed {
            env: env.clone(),
            store: Some(store),
            shard,
            now: Model::default(),
            snapshots: BTreeMap::new(),
            revision: 0,
            epoch: 0,
        }
    }

    async fn step(&mut self, step: &Step) {
        self.epoch += 1;
        let got = run(&self.shard, self.epoch, step).await;
        let want = self.now.run(self.epoch, step);
        assert_eq!(got.clone().map(|_| ()).map_err(|e| e.code), want, "{step:?}");
        if let Ok(lsn) = got {
            self.shard.durable(lsn).await.unwrap();
        }
    }

    async fn order(&mut self, held: bool, stage: ContStage) {
        self.revision += 1;
        let snapshots = self.snapshots.keys().map(|&at| Epoch(at)).collect();
        let wanted = ContVersions { revision: self.revision, snapshots, held, stage };
        let lsn = self.shard.set_versions(CONT, &wanted).unwrap();
        self.shard.durable(lsn).await.unwrap();
        // One that comes late changes nothing.
        let late = ContVersions { revision: self.revision - 1, held: true, ..Default::default() };
        self.shard.set_versions(CONT, &late).unwrap();
        assert_eq!(self.shard.versions(CONT).unwrap(), wanted);
    }

    /// Holds, goes on changing, then takes a snapshot of some moment since.
    async fn snapshot(&mut self, rng: &Rng) {
        self.order(true, ContStage::Open).await;
        let moment = rng.below(6);
        let mut taken = None;
        for n in 0..6 {
            if n == moment {
                taken = Some((self.epoch, self.now.clone()));
                // Not every epoch is one of a change.
                self.epoch += rng.below(2);
            }
            self.step(&Step::random(rng)).await;
        }
        let (at, model) = taken.unwrap();
        if at > 0 {
            self.snapshots.insert(at, model);
        }
        self.order(false, ContStage::Open).await;
    }

    async fn destroy_one(&mut self, rng: &Rng) {
        let all: Vec<u64> = self.snapshots.keys().copied().collect();
        if !all.is_empty() {
            self.snapshots.remove(&all[rng.below(all.len() as u64) as usize]);
            self.order(false, ContStage::Open).await;
        }
    }

    async fn roll_back(&mut self, rng: &Rng) {
        let all: Vec<u64> = self.snapshots.keys().copied().collect();
        if all.is_empty() {
            return;
        }
        let to = all[rng.below(all.len() as u64) as usize];
        self.order(false, ContStage::Frozen).await;
        let error = run(&self.shard, self.epoch + 1, &Step::random(rng)).await.unwrap_err();
        assert!([Code::Busy, Code::Exist, Code::NonExist, Code::Inval].contains(&error.code));
        self.order(false, ContStage::RollingBack(Epoch(to))).await;
        assert_eq!(self.shard.view(CONT).unwrap_err().code, Code::Busy);
        self.epoch += 1;
        let lsn = self.shard.roll_back(CONT, Epoch(to), Epoch(self.epoch)).await.unwrap();
        self.shard.durable(lsn).await.unwrap();
        self.order(false, ContStage::Open).await;
        self.adopt(self.snapshots[&to].clone()).await;
    }

    /// The present is what `model` was, at other epochs.
    async fn adopt(&mut self, mut model: Model) {
        let found = dump(&self.shard).await;
        let (mut got, mut want) = (found.clone(), as_dumped(&model));
        forget_epochs(&mut got, true);
        forget_epochs(&mut want, true);
        assert!(got == want, "\n got {got:?}\nwant {want:?}");
        for (oid, object) in &mut model.0 {
            let now = &found.0[oid];
            (object.epoch, object.keys_epoch) = (now.epoch, now.keys_epoch);
            for (dkey, (epoch, akeys)) in &mut object.dkeys {
                *epoch = now.dkeys[dkey].0;
                for (akey, (epoch, _)) in akeys {
                    *epoch = now.dkeys[dkey].1[akey].0;
                }
            }
        }
        self.now = model;
    }

    async fn swept(&self) {
        while self.shard.is_unswept(CONT) {
            self.env.sleep(Duration::from_millis(1)).await;
        }
    }

    async fn compare(&self) {
        compare(&self.shard, &self.now).await;
        for (at, model) in &self.snapshots {
            compare_at(&self.shard, model, *at).await;
        }
    }

    async fn reopen(&mut self) {
        self.swept().await;
        let stat = self.shard.stat();
        self.shard.close().await.unwrap();
        // The old one holds the lock.
        self.store = None;
        let store = Store::open(&self.env, Path::new("/target")).await.unwrap();
        self.shard = store.open_shard(POOL).await.unwrap();
        self.store = Some(store);
        assert_eq!(self.shard.stat(), stat);
    }

    /// Without snapshots and objects everything is free.
    async fn empty(&mut self) {
        self.snapshots.clear();
        self.order(false, ContStage::Open).await;
        for oid in self.now.0.keys() {
            let op = [Op::PunchObj { oid: *oid, cond: Cond::NONE, besides: b"" }];
            self.epoch += 1;
            write(&self.shard, self.epoch, &op, b"", None).await.unwrap();
        }
        self.now = Model::default();
        self.swept().await;
        let lsn = self.shard.create_cont(CONT).unwrap();
        self.shard.durable(lsn).await.unwrap();
        let (counted, recounted) = self.shard.scm_audit();
        assert_eq!((counted, recounted), (0, 0));
        let stat = self.shard.stat();
        assert_eq!(stat.nvme_free_bytes, stat.nvme_bytes);
        assert_eq!((stat.object_count, stat.dkey_count), (0, 0));
    }
}

fn random_history(seed: u64, durability: Durability) {
    let world = SimWorld::new(seed);
    let env = world.node("a");
    world.block_on(async {
        let rng = Rng::new(seed ^ 0x5eed);
        let mut bed = Bed::new(&env, durability).await;
        for round in 0..30 {
            for _ in 0..rng.below(12) {
                bed.step(&Step::random(&rng)).await;
            }
            match rng.below(8) {
                0..=2 if bed.snapshots.len() < 4 => bed.snapshot(&rng).await,
                3 | 4 => bed.destroy_one(&rng).await,
                5 => bed.roll_back(&rng).await,
                6 if durability == Durability::Wal => bed.reopen().await,
                _ => bed.shard.compact().await.unwrap(),
            }
            if round % 3 == 0 {
                bed.compare().await;
            }
        }
        bed.compare().await;
        bed.empty().await;
    });
    world.clear();
}

#[test]
fn snapshots_show_what_was_in_memory() {
    (0..25).for_each(|seed| random_history(seed, Durability::Memory));
}

#[test]
fn snapshots_show_what_was_across_restarts_and_compaction() {
    (100..112).for_each(|seed| random_history(seed, Durability::Wal));
}
