//! Units of one object in one shard.
//!
//! Story: the index knew objects only. A target that came to hold two groups of one object, as one
//! does after a rebuild, would have made one of them: keys listed twice, a punch of one group that
//! takes the other's keys, a directory that is never empty.

use super::model::*;
use super::pages::ROOMY;
use env::{Env, SimWorld};
use std::path::Path;
use std::rc::Rc;
use types::{ClientId, Code, Durability, Epoch, ObjClass, ObjType, Oid, Unit};
use vos::offline::{DumpFilter, DumpItem, Offline};
use vos::{Devices, OrphanChange, PoolShard, Store};
use wire::obj::*;
use wire::versions::{ContStage, ContVersions};

fn object() -> Oid {
    Oid::generate(0, 9, ObjType::MultiHashed, ObjClass::S1, 0)
}

/// Units of that object: of two groups, and a second cell of one of them.
fn units() -> [Unit; 3] {
    let object = object();
    [object.first_unit(), object.unit(1), Unit { object, group: 1, cell: 2 }]
}

fn step(unit: Unit, dkey: &str, act: Act) -> Step {
    Step { unit, dkey: dkey.into(), akey: vec![], cond: Cond::NONE, act }
}

fn value(fill: u64) -> Act {
    Act::Single { bulk: fill.is_multiple_of(9), bytes: 1100, fill: fill as u8 }
}

/// A shard and what must be in it.
struct Bed {
    shard: Rc<PoolShard>,
    model: Model,
    epoch: u64,
}

impl Bed {
    async fn run(&mut self, step: Step) {
        self.epoch += 1;
        let got = run(&self.shard, self.epoch, &step).await;
        let want = self.model.run(self.epoch, &step);
        assert_eq!(got.clone().map(|_| ()).map_err(|error| error.code), want, "{step:?}");
        if let Ok(lsn) = got {
            self.shard.durable(lsn).await.unwrap();
        }
    }

    /// The same dkeys in all units, with other values.
    async fn fill(&mut self, count: u64) {
        for number in 0..count {
            for (at, unit) in units().into_iter().enumerate() {
                let act = value(3 * number + at as u64);
                self.run(step(unit, &format!("dkey-{number:05}"), act)).await;
            }
        }
    }

    async fn versions(&self, revision: u64, snapshots: &[u64], held: bool) {
        let snapshots = snapshots.iter().map(|&at| Epoch(at)).collect();
        let wanted = ContVersions { revision, snapshots, held, stage: ContStage::Open };
        let lsn = self.shard.set_versions(CONT, &wanted).unwrap();
        self.shard.durable(lsn).await.unwrap();
    }
}

async fn reopen(env: &Env) -> (Rc<Store>, Rc<PoolShard>) {
    let store = open(env, 0).await.unwrap();
    let shard = store.open_shard(POOL).await.unwrap();
    (store, shard)
}

#[test]
fn what_happens_to_one_unit_leaves_the_others() {
    let world = SimWorld::new(1);
    let env = world.node("a");
    world.block_on(async {
        let (_store, shard) = fresh(&env, &config(Durability::Memory)).await.unwrap();
        let mut bed = Bed { shard, model: Model::default(), epoch: 0 };
        let [first, second, cell] = units();
        bed.run(step(first, "d", value(1))).await;
        bed.run(step(second, "d", value(2))).await;
        compare(&bed.shard, &bed.model).await;

        // Conditions and checks look at the unit they name.
        let exists = |unit| [Op::PunchObj { unit, cond: Cond::OBJ_EXISTS, besides: b"" }];
        bed.shard.check(CONT, &[], &exists(second)).unwrap();
        let refused = bed.shard.check(CONT, &[], &exists(cell)).unwrap_err();
        assert_eq!(refused.code, Code::NonExist);
        let check = |unit, seen| [ReadCheck { unit, of: ReadScope::Keys, seen: Epoch(seen) }];
        for (unit, seen) in [(first, 1), (second, 2), (cell, 0)] {
            bed.shard.check(CONT, &check(unit, seen), &[]).unwrap();
        }

        // A unit is empty whatever the others hold.
        bed.run(step(first, "e", value(3))).await;
        let empty = |unit| [Op::PunchObj { unit, cond: Cond::OBJ_EMPTY, besides: b"d" }];
        bed.shard.check(CONT, &[], &empty(second)).unwrap();
        let refused = bed.shard.check(CONT, &[], &empty(first)).unwrap_err();
        assert_eq!(refused.code, Code::NotEmpty);

        // Listings go from unit to unit, those of an object one after the other.
        bed.run(step(cell, "d", value(4))).await;
        bed.run(step(unit(ObjType::MultiHashed, 1), "d", value(5))).await;
        let mut listed = Vec::new();
        loop {
            let after = listed.last().copied();
            let page = bed.shard.list_objects(CONT, Epoch::ZERO, after, 1).await.unwrap();
            listed.extend(page.units);
            if page.complete {
                break;
            }
        }
        let mut sorted = listed.clone();
        sorted.sort_by_key(|unit| unit.list_order());
        assert_eq!(listed, sorted);
        listed.retain(|unit| unit.object == object());
        assert_eq!(listed, units());
        let after = Some(Unit::last_of(object()));
        let rest = bed.shard.list_objects(CONT, Epoch::ZERO, after, 9).await.unwrap();
        assert!(rest.complete && rest.units.iter().all(|unit| unit.object != object()));

        // Locks and orphans are a unit's.
        let ops = |unit, dkey| {
            let iods = vec![UpdateIod {
                akey: b"",
                cond: Cond::NONE,
                value: UpdateValue::Inline(b"held"),
            }];
            [Op::Update { unit, dkey, cond: Cond::NONE, iods }]
        };
        let (pool, cont) = (POOL, CONT);
        let ops_held = ops(first, b"d").to_vec();
        let payload = bed.shard.stage(&ops_held).unwrap();
        let batch =
            Batch { pool, cont, at: Epoch::ZERO, checks: vec![], ops: ops_held, sums: Sums::NONE };
        let tx = TxId { client: ClientId(5), seq: 44 };
        bed.shard.prepare(tx, Unit::NIL, CONT, wire::encode(&batch), payload).unwrap();
        assert!(bed.shard.conflicts(CONT, &[], &ops(first, b"d")));
        assert!(bed.shard.conflicts(CONT, &[], &exists(first)));
        for other in [second, cell] {
            assert!(!bed.shard.conflicts(CONT, &[], &ops(other, b"d")));
            assert!(!bed.shard.conflicts(CONT, &[], &exists(other)));
        }
        bed.shard.decide(tx, TxOutcome::Aborted, None, &[]).unwrap();
        let payload = bed.shard.stage(&[]).unwrap();
        let add = [OrphanChange::Add(first)];
        bed.epoch += 1;
        bed.shard.apply(CONT, Epoch(bed.epoch), &[], payload, None, &add).unwrap();
        assert!(bed.shard.is_orphan(CONT, first) && !bed.shard.is_orphan(CONT, second));
        assert_eq!(bed.shard.orphans(), [(CONT, first)]);

        // Punches of all kinds.
        bed.run(step(second, "d", Act::PunchDkey)).await;
        compare(&bed.shard, &bed.model).await;
        bed.run(step(first, "", Act::PunchObj)).await;
        compare(&bed.shard, &bed.model).await;
        assert_eq!(bed.shard.stat().object_count, 2);
        bed.run(step(cell, "d", Act::PunchAkey)).await;
        compare(&bed.shard, &bed.model).await;
        assert_eq!(bed.shard.stat().object_count, 1);
    });
    world.clear();
}

/// Small units share a page, large ones have pages of their own; both come back from log and
/// checkpoint, and snapshots keep what each of them was.
#[test]
fn units_outlive_crashes_checkpoints_and_punches_of_their_siblings() {
    for count in [3, 90] {
        let world = SimWorld::new(count);
        let env = world.node("a");
        let (snapshot, at, mut model, epoch) = world.block_on(async {
            let (_store, shard) = fresh_with(&env, &ROOMY, 0).await.unwrap();
            let mut bed = Bed { shard, model: Model::default(), epoch: 0 };
            bed.versions(1, &[], true).await;
            bed.fill(count).await;
            let (snapshot, at) = (bed.model.clone(), bed.epoch);
            bed.versions(2, &[at], false).await;
            let [first, second, cell] = units();
            bed.run(step(second, "", Act::PunchObj)).await;
            bed.run(step(first, "dkey-00001", Act::PunchDkey)).await;
            bed.run(step(cell, "dkey-00002", value(7))).await;
            compare(&bed.shard, &bed.model).await;
            compare_at(&bed.shard, &snapshot, at).await;
            (snapshot, at, bed.model, bed.epoch)
        });
        let crash = || {
            world.kill("a");
            world.disk("a").crash();
            world.node("a")
        };
        let env = crash();
        world.block_on(async {
            let (_store, shard) = reopen(&env).await;
            compare(&shard, &model).await;
            compare_at(&shard, &snapshot, at).await;
            shard.checkpoint().await.unwrap();
            compare(&shard, &model).await;
            let mut bed = Bed { shard, model: std::mem::take(&mut model), epoch };
            // Behind the checkpoint.
            bed.run(step(units()[1], "new", value(8))).await;
            model = bed.model;
        });
        let env = crash();
        world.block_on(async {
            let (store, shard) = reopen(&env).await;
            compare(&shard, &model).await;
            compare_at(&shard, &snapshot, at).await;
            shard.close().await.unwrap();
            drop((shard, store));
            let devices = Devices::one(Path::new("/target"));
            let offline = Offline::open(&env, &devices, false).await.unwrap();
            assert_eq!(offline.check(true).await.unwrap(), []);
            let mut found = Vec::new();
            let filter = DumpFilter { oid: Some(object()), ..DumpFilter::default() };
            let mut each = |item: DumpItem| {
                if let DumpItem::Object { oid, group, cell, dkeys, .. } = item {
                    found.push((oid, group, cell, dkeys));
                }
                Ok(())
            };
            offline.dump(&filter, &mut each).await.unwrap();
            let [first, second, cell] = units();
            let held = |unit: Unit, dkeys| (object().to_string(), unit.group, unit.cell, dkeys);
            assert_eq!(found, [held(first, count - 1), held(second, 1), held(cell, count)]);
        });
        world.clear();
    }
}
