//! Snapshots against a naive model: a full copy of the state at each of them.

use super::model::*;
use super::places;
use env::{Env, Rng, SimWorld};
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use types::{Code, Durability, Epoch, ObjType, Oid, Unit};
use vos::{PoolShard, Store};
use wire::obj::*;
use wire::spread::{MARKER, REACHED, Spread};
use wire::versions::{ContStage, ContVersions};

/// A shard and what must be in it.
struct Bed {
    env: Env,
    store: Option<Rc<Store>>,
    shard: Rc<PoolShard>,
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
        let epoch = Epoch(self.epoch);
        let lsn = self.shard.roll_back(CONT, Epoch(to), &|_| epoch).await.unwrap();
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
        for (unit, object) in &mut model.0 {
            let now = &found.0[unit];
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
        for unit in self.now.0.keys() {
            let op = [Op::PunchObj { unit: *unit, cond: Cond::NONE, besides: b"" }];
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
                _ => bed.shard.checkpoint().await.unwrap(),
            }
            if round % 5 == 2 {
                bed.shard.aggregate().await.unwrap();
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
    places::seeds(10, 25).for_each(|seed| random_history(seed, Durability::Memory));
}

#[test]
fn snapshots_show_what_was_across_restarts_and_compaction() {
    places::seeds(6, 12).for_each(|seed| random_history(100 + seed, Durability::Wal));
}

/// Writes `count` dkeys of one object, each with one byte and one block.
async fn fill(bed: &mut Bed, unit: types::Unit, count: u64, fill: u8) {
    for first in (0..count).step_by(100) {
        let keys: Vec<Vec<u8>> =
            (first..(first + 100).min(count)).map(|n| n.to_le_bytes().to_vec()).collect();
        let value = [fill];
        let ops: Vec<Op<'_>> = keys
            .iter()
            .map(|dkey| {
                let recxs = vec![Recx { index: 0, count: 4096 }];
                let array = UpdateValue::Array { record_bytes: 1, recxs };
                let iods = [(&b"v"[..], UpdateValue::Inline(&value)), (b"", array)]
                    .map(|(akey, value)| UpdateIod { akey, cond: Cond::NONE, value });
                Op::Update { unit, dkey, cond: Cond::NONE, iods: iods.into() }
            })
            .collect();
        bed.epoch += 1;
        let bulk = vec![fill; 4096 * ops.len()];
        let lsn = write(&bed.shard, bed.epoch, &ops, &bulk, None).await.unwrap();
        bed.shard.durable(lsn).await.unwrap();
    }
}

/// What a snapshot (0: the present) shows of such an object: its number of dkeys, all of one fill.
async fn filled(bed: &Bed, unit: types::Unit, at: u64) -> (u64, Option<u8>) {
    bed.shard.ready_at(CONT, Epoch(at), &[], &[Op::Stat { unit }]).await.unwrap();
    let stat = bed.shard.view_at(CONT, Epoch(at)).unwrap().stat(unit);
    let mut fills: Vec<u8> = Vec::new();
    let mut count = 0;
    let scope = ListScope::Dkeys { value_of: Some(b"v"), follow: false, hash_range: (0, u64::MAX) };
    list_all(&bed.shard, at, unit, scope, 500, |item| match item {
        Listed::Entry { value, .. } => {
            count += 1;
            fills.extend(value);
        }
        other => panic!("{other:?}"),
    })
    .await;
    assert_eq!(stat.dkey_count, count);
    assert_eq!(stat.tail.bytes_used, count * 4097);
    assert_eq!(stat.tail.dkey_max, count.checked_sub(1));
    fills.dedup();
    assert!(fills.len() <= 1, "{fills:?}");
    (count, fills.first().copied())
}

/// A big object is punched by putting it aside whole: snapshots go on showing it, what nobody sees
/// of it comes back in slices, and a log that was compacted in the midst makes the same.
#[test]
fn a_big_object_that_was_punched_is_shown_and_swept() {
    const COUNT: u64 = 1500;
    for durability in [Durability::Memory, Durability::Wal] {
        let world = SimWorld::new(3);
        let env = world.node("a");
        world.block_on(async {
            let big = vos::PoolShardConfig { nvme_bytes: 64 << 20, ..config(durability) };
            let (store, shard) = fresh(&env, &big).await.unwrap();
            let (now, snapshots) = (Model::default(), BTreeMap::new());
            let (env, store) = (env.clone(), Some(store));
            let mut bed = Bed { env, store, shard, now, snapshots, revision: 0, epoch: 0 };
            let unit = unit(ObjType::ArrayByte, 5);
            let punch = [Op::PunchObj { unit, cond: Cond::NONE, besides: b"" }];
            let takes = async |bed: &mut Bed| {
                bed.snapshots.insert(bed.epoch, Model::default());
                bed.order(false, ContStage::Open).await;
                bed.epoch
            };
            // Without snapshots its space comes back.
            fill(&mut bed, unit, COUNT, 1).await;
            bed.epoch += 1;
            write(&bed.shard, bed.epoch, &punch, b"", None).await.unwrap();
            assert!(!bed.shard.view(CONT).unwrap().has_object(unit));
            bed.swept().await;
            bed.empty().await;
            // Nor does it stay when all dkeys are removed from the first one on.
            fill(&mut bed, unit, COUNT, 1).await;
            bed.epoch += 1;
            let all = [Op::PunchDkeysFrom { unit, from: 0 }];
            write(&bed.shard, bed.epoch, &all, b"", None).await.unwrap();
            assert_eq!(filled(&bed, unit, 0).await, (0, None));
            bed.swept().await;
            bed.empty().await;
            // Two lives, each seen in part only: what came after their snapshots is swept.
            fill(&mut bed, unit, COUNT - 300, 2).await;
            let first = takes(&mut bed).await;
            fill(&mut bed, unit, COUNT, 3).await;
            bed.epoch += 1;
            write(&bed.shard, bed.epoch, &punch, b"", None).await.unwrap();
            fill(&mut bed, unit, COUNT, 4).await;
            let second = takes(&mut bed).await;
            bed.epoch += 1;
            write(&bed.shard, bed.epoch, &punch, b"", None).await.unwrap();
            assert_eq!(filled(&bed, unit, 0).await, (0, None));
            for round in 0..3 {
                assert_eq!(
                    filled(&bed, unit, first).await,
                    (COUNT - 300, Some(2)),
                    "round {round}"
                );
                assert_eq!(filled(&bed, unit, second).await, (COUNT, Some(4)), "round {round}");
                let (counted, recounted) = bed.shard.scm_audit();
                assert_eq!(counted, recounted);
                if durability == Durability::Wal {
                    bed.shard.checkpoint().await.unwrap();
                    bed.reopen().await;
                }
            }
            bed.swept().await;
            let used = bed.shard.stat();
            let blocks = (used.nvme_bytes - used.nvme_free_bytes) / 4096;
            assert_eq!(blocks, COUNT - 300 + COUNT);
            // Back to the first, over what the second shows.
            bed.order(false, ContStage::RollingBack(Epoch(first))).await;
            bed.epoch += 1;
            let epoch = Epoch(bed.epoch);
            bed.shard.roll_back(CONT, Epoch(first), &|_| epoch).await.unwrap();
            bed.order(false, ContStage::Open).await;
            assert_eq!(filled(&bed, unit, 0).await, (COUNT - 300, Some(2)));
            assert_eq!(filled(&bed, unit, second).await, (COUNT, Some(4)));
            // Blocks are shared, not copied.
            assert_eq!(bed.shard.stat().nvme_free_bytes, used.nvme_free_bytes);
            bed.snapshots.remove(&first);
            bed.order(false, ContStage::Open).await;
            bed.swept().await;
            assert_eq!(filled(&bed, unit, 0).await, (COUNT - 300, Some(2)));
            assert_eq!(filled(&bed, unit, second).await, (COUNT, Some(4)));
            bed.epoch += 1;
            write(&bed.shard, bed.epoch, &punch, b"", None).await.unwrap();
            bed.empty().await;
        });
        world.clear();
    }
}

/// Parts of an object are logged one after the other while it goes on changing: it is punched and
/// made anew, a snapshot comes and goes, and what a replay from there makes is the same.
#[test]
fn a_compaction_beside_changes_of_big_objects_makes_the_same_state() {
    const COUNT: u64 = 1500;
    for seed in 0..6 {
        let world = SimWorld::new(seed);
        let env = world.node("a");
        world.block_on(async {
            let rng = Rng::new(seed);
            let big = vos::PoolShardConfig { nvme_bytes: 64 << 20, ..config(Durability::Wal) };
            let (store, shard) = fresh(&env, &big).await.unwrap();
            let (now, snapshots) = (Model::default(), BTreeMap::new());
            let (env, store) = (env.clone(), Some(store));
            let mut bed = Bed { env, store, shard, now, snapshots, revision: 0, epoch: 0 };
            let unit = unit(ObjType::ArrayByte, 5);
            let punch = [Op::PunchObj { unit, cond: Cond::NONE, besides: b"" }];
            fill(&mut bed, unit, COUNT, 1).await;
            bed.snapshots.insert(bed.epoch, Model::default());
            let first = bed.epoch;
            bed.order(false, ContStage::Open).await;
            let compacting = bed.shard.clone();
            let done = Rc::new(std::cell::Cell::new(false));
            let told = done.clone();
            bed.env.spawn(async move {
                compacting.checkpoint().await.unwrap();
                told.set(true);
            });
            let mut present = (COUNT, Some(1));
            let mut round = 0;
            while !done.get() || round < 4 {
                round += 1;
                if rng.below(2) == 0 {
                    bed.epoch += 1;
                    let lsn = write(&bed.shard, bed.epoch, &punch, b"", None).await.unwrap();
                    bed.shard.durable(lsn).await.unwrap();
                    present = (0, None);
                } else if round < 40 {
                    let count = 700 + rng.below(800);
                    if present.0 <= count {
                        fill(&mut bed, unit, count, round as u8 + 1).await;
                        present = (count, Some(round as u8 + 1));
                    }
                }
                bed.env.sleep(Duration::from_micros(rng.below(300))).await;
            }
            assert_eq!(filled(&bed, unit, 0).await, present, "seed {seed}");
            bed.swept().await;
            bed.reopen().await;
            assert_eq!(filled(&bed, unit, 0).await, present, "seed {seed}");
            assert_eq!(filled(&bed, unit, first).await, (COUNT, Some(1)), "seed {seed}");
            bed.epoch += 1;
            write(&bed.shard, bed.epoch, &punch, b"", None).await.unwrap();
            bed.empty().await;
        });
        world.clear();
    }
}

/// A file with several names has its inode under dkey 0. A snapshot that looked for data once all keys were gone, after dkey 0, began
/// with dkey 0 itself, took it for the end of the chunks, and found no data.
#[test]
fn a_snapshot_goes_on_after_the_lowest_key() {
    let world = SimWorld::new(1);
    let env = world.node("a");
    world.block_on(async {
        let mut bed = Bed::new(&env, Durability::Wal).await;
        let unit = unit(ObjType::ArrayByte, 2);
        let keys = [0u64, 1, 3].map(u64::to_le_bytes);
        for (dkey, bulk) in keys.iter().zip([&b""[..], b"abcd", b"efgh"]) {
            let (akey, value) = match bulk.len() as u64 {
                0 => (&b"inode"[..], UpdateValue::Inline(b"of all names")),
                count => {
                    let recxs = vec![Recx { index: 0, count }];
                    (&b""[..], UpdateValue::Array { record_bytes: 1, recxs })
                }
            };
            let iods = vec![UpdateIod { akey, cond: Cond::NONE, value }];
            let op = Op::Update { unit, dkey, cond: Cond::NONE, iods };
            bed.epoch += 1;
            write(&bed.shard, bed.epoch, &[op], bulk, None).await.unwrap();
        }
        let at = bed.epoch;
        bed.snapshots.insert(at, Model::default());
        bed.order(false, ContStage::Open).await;
        let dkeys = keys.iter().map(|key| serde_bytes::Bytes::new(key)).collect();
        bed.epoch += 1;
        let gone = [Op::PunchDkeys { unit, cond: Cond::NONE, dkeys }];
        write(&bed.shard, bed.epoch, &gone, b"", None).await.unwrap();
        let (chunk_records, within) = (4, Recx { index: 0, count: 16 });
        let look = [Op::ListRuns { unit, chunk_records, within, count_max: 9 }];
        bed.shard.ready_at(CONT, Epoch(at), &[], &look).await.unwrap();
        let view = bed.shard.view_at(CONT, Epoch(at)).unwrap();
        let runs = view.runs(unit, chunk_records, within, 9).unwrap().0;
        assert_eq!(runs, [0, 8].map(|index| Recx { index, count: 4 }));
        drop(view);
        bed.shard.close().await.unwrap();
    });
    world.clear();
}

/// Sets a value at an epoch.
fn apply(bed: &Bed, at: u64, unit: Unit, dkey: &[u8], akey: &[u8], raw: &[u8]) {
    let iods = vec![UpdateIod { akey, cond: Cond::NONE, value: UpdateValue::Inline(raw) }];
    let ops = [Op::Update { unit, dkey, cond: Cond::NONE, iods }];
    let payload = bed.shard.stage(&ops).unwrap();
    bed.shard.apply(CONT, Epoch(at), &ops, payload, None, &[]).unwrap();
}

/// A unit whose keys had just moved, as a directory that spreads, was rolled back, and the time of its set of keys stayed what it was: the change before was one of a move, and what is done next counted as one, too. After
/// a restart, and at other members, it had another time (seed 73 of names).
#[test]
fn what_is_done_after_keys_have_moved_is_no_move() {
    let digest = |has_moved: bool| {
        let world = SimWorld::new(1);
        let env = world.node("a");
        let digest = world.block_on(async {
            let mut bed = Bed::new(&env, Durability::Wal).await;
            let class = "SX@2".parse().unwrap();
            let unit = Oid::generate(0, 1, ObjType::MultiHashed, class, 0).first_unit();
            let spread = Spread { own_first: 0, own_last: u64::MAX, reached: 0 };
            let note = spread.encode();
            let other = Oid::generate(0, 2, ObjType::MultiHashed, class, 0).first_unit();
            apply(&bed, 1, unit, b"a", b"v", b"1");
            apply(&bed, 2, unit, MARKER, REACHED, &note);
            bed.snapshots.insert(3, Model::default());
            bed.epoch = 3;
            bed.order(false, ContStage::Open).await;
            apply(&bed, 4, unit, b"b", b"v", b"1");
            apply(&bed, 5, unit, MARKER, REACHED, &note);
            if !has_moved {
                apply(&bed, 6, other, b"c", b"v", b"1");
            }
            bed.order(false, ContStage::RollingBack(Epoch(3))).await;
            bed.shard.roll_back(CONT, Epoch(3), &|_| Epoch(9)).await.unwrap();
            bed.order(false, ContStage::Open).await;
            bed.shard.digest(CONT, unit).await.unwrap()
        });
        world.clear();
        digest
    };
    assert_eq!(digest(true), digest(false));
}
