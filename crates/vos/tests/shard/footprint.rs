//! What operations change and see lies within their footprints: of two that do not claim the same, neither notices the other.

use super::model::*;
use super::places;
use env::{Rng, SimWorld};
use std::collections::BTreeMap;
use types::{ClientId, Durability, Epoch, Unit};
use vos::{PoolShard, Segments};
use wire::footprint::{Changes, Extent, Footprint};
use wire::obj::*;

/// Holds a step as a prepared transaction; false when its conditions do not hold.
async fn hold(shard: &PoolShard, tx: TxId, step: &Step) -> bool {
    let (inline, bulk) = (step.inline(), step.bulk());
    let ops = vec![step.op(&inline)];
    if shard.check(CONT, &[], &ops).is_err() {
        return false;
    }
    let payload = stage(shard, &ops, &bulk).await.unwrap();
    let batch = Batch {
        pool: POOL,
        cont: CONT,
        at: Epoch::ZERO,
        checks: Vec::new(),
        ops,
        sums: Sums::NONE,
    };
    shard.prepare(tx, step.unit, CONT, wire::encode(&batch), payload).unwrap();
    true
}

/// An operation on the keys of a step: one that reads, or the step itself.
fn random_op<'a>(rng: &Rng, step: &'a Step, inline: &'a [u8]) -> Op<'a> {
    let (unit, dkey, akey, cond) = (step.unit, &step.dkey[..], &step.akey[..], step.cond);
    let list = |scope| Op::List { unit, scope, anchor: b"", count_max: 100, bytes_max: u32::MAX };
    let fetch = |want| Op::Fetch { unit, dkey, cond, iods: vec![FetchIod { akey, want }] };
    match rng.below(12) {
        0 => fetch(FetchWant::Probe),
        1 => fetch(FetchWant::Single { bytes_max: 1 << 20, inline_bytes_max: 1 << 12 }),
        2 => {
            fetch(FetchWant::Array { record_bytes: 0, recxs: vec![Recx { index: 0, count: 1000 }] })
        }
        3 => list(ListScope::Dkeys { value_of: None, follow: false, hash_range: (0, u64::MAX) }),
        4 => list(ListScope::Akeys { dkey }),
        5 => list(ListScope::Recxs { dkey, akey, descending: false }),
        6 => Op::Query { unit, flags: QueryFlags::AKEY, dkey, akey },
        7 => Op::Stat { unit },
        8 => Op::FetchLink { unit, dkey, akey, open: false },
        9 => Op::Open { unit },
        _ => step.op(inline),
    }
}

/// All that an operation is told: its answer, or whether its conditions hold.
fn told(shard: &PoolShard, op: &Op<'_>) -> String {
    let view = shard.view(CONT).unwrap();
    let answer = match op {
        Op::Fetch { unit, dkey, cond, iods } => {
            let mut segments = Segments::new();
            let fetched = view.fetch(*unit, dkey, *cond, iods, &mut segments);
            format!("{:?} {:?}", fetched.map_err(|error| error.code), segments.slices().concat())
        }
        Op::List { unit, scope, anchor, count_max, bytes_max } => {
            let listed = view.list(*unit, *scope, anchor, *count_max, *bytes_max);
            format!("{:?}", listed.map_err(|error| error.code))
        }
        Op::Query { unit, flags, dkey, akey } => {
            format!("{:?}", view.query(*unit, *flags, dkey, akey).map_err(|error| error.code))
        }
        Op::Stat { unit } => format!("{:?}", view.stat(*unit)),
        Op::FetchLink { unit, dkey, akey, .. } => format!("{:?}", view.value(*unit, dkey, akey)),
        Op::Open { unit } => format!("{:?}", view.has_object(*unit)),
        _ => String::new(),
    };
    let checked = shard.check(CONT, &[], std::slice::from_ref(op));
    format!("{answer} {:?}", checked.map_err(|error| error.code))
}

/// Whether an operation may have changed a value.
fn may_change(at: &Footprint<'_>, unit: Unit, dkey: &[u8], akey: &[u8]) -> bool {
    unit == at.unit
        && match at.changes {
            Changes::Nothing | Changes::Unnamed => false,
            Changes::Dkey(named) => named == dkey,
            Changes::Akeys { dkey: named, akeys } => {
                named == dkey && akeys.iter().any(|one| one[..] == *akey)
            }
            Changes::Dkeys(dkeys) => dkeys.iter().any(|one| one[..] == *dkey),
            Changes::DkeysFrom(from) => {
                u64::from_le_bytes(dkey.try_into().expect("integer dkey")) >= from
            }
            Changes::All => true,
        }
}

/// A value's unit, dkey and akey.
type Name<'a> = (Unit, &'a [u8], &'a [u8]);

/// Values of a dump, one by one.
fn values(all: &Model) -> BTreeMap<Name<'_>, &(u64, Value)> {
    let mut values = BTreeMap::new();
    for (unit, object) in &all.0 {
        for (dkey, (_, akeys)) in &object.dkeys {
            for (akey, value) in akeys {
                values.insert((*unit, &dkey[..], &akey[..]), value);
            }
        }
    }
    values
}

#[test]
fn operations_that_claim_other_things_do_not_notice_each_other() {
    const ROUNDS: u64 = 100;
    let (mut changed_count, mut unnoticed_count) = (0, 0);
    for seed in places::seeds(1, 20) {
        let world = SimWorld::new(seed);
        let env = world.node("a");
        world.block_on(async {
            let rng = Rng::new(seed ^ 31);
            let (_store, shard) = fresh(&env, &config(Durability::Memory)).await.unwrap();
            for n in 0..ROUNDS {
                let _ = run(&shard, 1 + n, &Step::random(&rng)).await;
            }
            let mut before = dump(&shard).await;
            for n in ROUNDS..2 * ROUNDS {
                let (first, second) = (Step::random(&rng), Step::random(&rng));
                let tx = TxId { client: ClientId(5), seq: n };
                if !hold(&shard, tx, &first).await {
                    continue;
                }
                let inline = second.inline();
                let other = random_op(&rng, &second, &inline);
                let ops = std::slice::from_ref(&other);
                shard.ready(CONT, &[], ops).await.unwrap();
                let is_apart = !shard.conflicts(CONT, &[], ops);
                let answer = told(&shard, &other);
                shard.ready_to_decide(tx).await.unwrap();
                shard.decide(tx, TxOutcome::Committed(Epoch(n + 1)), None, &[]).unwrap();
                let after = dump(&shard).await;

                let inline = first.inline();
                let op = first.op(&inline);
                let at = op.footprint();
                let (old, new) = (values(&before), values(&after));
                let keys = old.keys().chain(new.keys());
                for &(unit, dkey, akey) in keys.filter(|key| old.get(*key) != new.get(*key)) {
                    assert!(may_change(&at, unit, dkey, akey), "{op:?} changed {dkey:?} {akey:?}");
                    changed_count += 1;
                }
                // Who relies on an object does not keep it from losing its last dkey: what others rely on keeps one.
                let there = |all: &Model| all.0.contains_key(&other.unit());
                let touched = other.footprint();
                let relies = touched.needs_object || touched.extent() == Extent::Existence;
                if is_apart && !(relies && there(&before) != there(&after)) {
                    assert_eq!(told(&shard, &other), answer, "{other:?} noticed {op:?}");
                    unnoticed_count += 1;
                }
                before = after;
            }
        });
        world.clear();
    }
    assert!(changed_count > 50 && unnoticed_count > 30, "{changed_count} {unnoticed_count}");
}
