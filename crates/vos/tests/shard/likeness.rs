//! Members tell of the same changes of a key, wherever their extents begin and end; what one of them has alone shows.

use super::model::*;
use super::pages::{ROOMY, wide_step};
use super::sums::flip;
use env::{Rng, SimWorld};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use types::{Code, Epoch, ObjType, Unit};
use vos::Closeness::{Joined, Written};
use vos::{Closeness, PoolShard, Store};
use wire::obj::*;
use wire::versions::{ContStage, ContVersions};

const DKEY: &[u8] = &7u64.to_le_bytes();

struct Two {
    a: Rc<PoolShard>,
    b: Rc<PoolShard>,
    /// Of both; they go with this.
    _stores: [Rc<Store>; 2],
}

impl Two {
    async fn new(world: &SimWorld) -> Two {
        let (store_a, a) = fresh(&world.node("a"), &ROOMY).await.unwrap();
        let (store_b, b) = fresh(&world.node("b"), &ROOMY).await.unwrap();
        Two { a, b, _stores: [store_a, store_b] }
    }

    /// What each says of the other; they must agree.
    async fn are_alike(&self, (unit, dkey): (Unit, &[u8]), closeness: Closeness) -> bool {
        let (a, b) = (&self.a, &self.b);
        let images = [a.dkey_image(CONT, unit, dkey).await, b.dkey_image(CONT, unit, dkey).await];
        let [of_a, of_b] = images.map(Result::unwrap);
        let here = a.tells_the_same(CONT, unit, dkey, &of_b, closeness).await.unwrap();
        let there = b.tells_the_same(CONT, unit, dkey, &of_a, closeness).await.unwrap();
        assert_eq!(here, there, "{unit}, {dkey:?}, {closeness:?}");
        here
    }
}

fn array() -> Unit {
    unit(ObjType::ArrayByte, 4)
}

/// Writes records of one key, in these pieces by one op.
async fn put(shard: &PoolShard, epoch: u64, pieces: &[(u64, u64)]) {
    let recxs: Vec<Recx> = pieces.iter().map(|&(index, count)| Recx { index, count }).collect();
    let bulk: Vec<u8> = recxs
        .iter()
        .flat_map(|recx| recx.index..recx.index + recx.count)
        .map(|record| (record * 7 + epoch) as u8)
        .collect();
    let value = UpdateValue::Array { record_bytes: 1, recxs };
    let iods = vec![UpdateIod { akey: b"", cond: Cond::NONE, value }];
    let ops = [Op::Update { unit: array(), dkey: DKEY, cond: Cond::NONE, iods }];
    let lsn = write(shard, epoch, &ops, &bulk, None).await.unwrap();
    shard.durable(lsn).await.unwrap();
}

/// Story: a new leader with damage in a key takes the data of a member that tells of the same changes. Members with the same changes in extents
/// that were cut elsewhere were taken for others, and the key stayed as it was, for good.
#[test]
fn extents_that_are_cut_elsewhere_tell_the_same() {
    let world = SimWorld::new(1);
    world.block_on(async {
        let two = Two::new(&world).await;
        let Two { a, b, .. } = &two;
        put(a, 4, &[(0, 60_000)]).await;
        put(b, 4, &[(0, 20_000), (20_000, 15_000), (35_000, 25_000)]).await;
        for shard in [a, b] {
            let wanted = ContVersions {
                revision: 1,
                snapshots: vec![Epoch(5)],
                held: false,
                stage: ContStage::Open,
            };
            shard.set_versions(CONT, &wanted).unwrap();
        }
        // What a snapshot sees is cut by it, too.
        put(a, 6, &[(10_000, 5_000), (15_000, 15_000)]).await;
        put(b, 6, &[(10_000, 20_000)]).await;
        let key = (array(), DKEY);
        let lengths = [
            a.dkey_image(CONT, key.0, key.1).await.unwrap().len(),
            b.dkey_image(CONT, key.0, key.1).await.unwrap().len(),
        ];
        assert_ne!(lengths[0], lengths[1], "their extents are the same");
        assert!(two.are_alike(key, Written).await && two.are_alike(key, Joined).await);
        // Nothing that one has can be read any more: it tells the same still.
        let env = world.node("a");
        for block in 0..40 {
            flip(&env, 8 * (block * 4096 + 99)).await;
        }
        assert_eq!(a.dkey_image(CONT, key.0, key.1).await.unwrap_err().code, Code::Csum);
        let image = b.dkey_image(CONT, key.0, key.1).await.unwrap();
        for closeness in [Written, Joined] {
            assert!(a.tells_the_same(CONT, key.0, key.1, &image, closeness).await.unwrap());
        }
        // One record more of the same change is another change.
        put(a, 8, &[(20_000, 4_000)]).await;
        put(b, 8, &[(20_000, 4_001)]).await;
        let image = b.dkey_image(CONT, key.0, key.1).await.unwrap();
        assert!(!a.tells_the_same(CONT, key.0, key.1, &image, Written).await.unwrap());
    });
    world.clear();
}

/// What one has alone does not vanish behind what both have later, nor where small extents are joined as they are written.
#[test]
fn what_one_has_alone_shows_under_what_both_have() {
    for alone in [(2_000, 500), (1_000, 8)] {
        let world = SimWorld::new(2);
        world.block_on(async {
            let two = Two::new(&world).await;
            let Two { a, b, .. } = &two;
            let key = (array(), DKEY);
            for shard in [a, b] {
                put(shard, 2, &[(0, 990), (1_500, 30_000)]).await;
                put(shard, 4, &[(990, 18)]).await;
            }
            assert!(two.are_alike(key, Written).await);
            put(b, 5, &[alone]).await;
            assert!(!two.are_alike(key, Written).await && !two.are_alike(key, Joined).await);
            for shard in [a, b] {
                put(shard, 6, &[(1_008, 10)]).await;
                put(shard, 8, &[(25_000, 100)]).await;
            }
            let [ours, theirs] = [a, b].map(|shard| shard.list_keys(CONT, key.0, None, 9));
            assert_eq!(ours.await.unwrap(), theirs.await.unwrap(), "they are equally new");
            assert!(!two.are_alike(key, Written).await, "{alone:?}");
            assert!(!two.are_alike(key, Joined).await, "{alone:?}");
        });
        world.clear();
    }
}

/// What one wrote once more has the same bytes and ends where it did: only who wrote it tells.
#[test]
fn what_one_wrote_again_alone_shows_though_its_bytes_are_the_same() {
    let world = SimWorld::new(4);
    world.block_on(async {
        let two = Two::new(&world).await;
        let Two { a, b, .. } = &two;
        let key = (array(), DKEY);
        for shard in [a, b] {
            put(shard, 4, &[(0, 1_000), (2_000, 1_000)]).await;
        }
        assert!(two.are_alike(key, Written).await && two.are_alike(key, Joined).await);
        // The bytes of 4: see `put`.
        put(b, 4 + 256, &[(0, 1_000)]).await;
        for shard in [a, b] {
            put(shard, 300, &[(5_000, 10)]).await;
        }
        let [ours, theirs] = [a, b].map(|shard| shard.list_keys(CONT, key.0, None, 9));
        assert_eq!(ours.await.unwrap(), theirs.await.unwrap(), "they are equally new");
        assert!(!two.are_alike(key, Written).await);
        assert!(!two.are_alike(key, Joined).await);
    });
    world.clear();
}

/// One has joined its small extents, the other has not: the newest of each row is the same.
#[test]
fn extents_that_were_joined_tell_the_same_but_for_what_is_older() {
    let world = SimWorld::new(3);
    world.block_on(async {
        let two = Two::new(&world).await;
        let Two { a, b, .. } = &two;
        let key = (array(), DKEY);
        for shard in [a, b] {
            for (n, epoch) in (2..42).step_by(2).enumerate() {
                put(shard, epoch, &[(n as u64 * 3_000, 3_000)]).await;
            }
        }
        a.aggregate().await.unwrap();
        assert!(a.aggregation_stat().joined > 0);
        assert!(!two.are_alike(key, Written).await);
        assert!(two.are_alike(key, Joined).await);
        put(a, 50, &[(1_000, 100)]).await;
        put(b, 50, &[(1_100, 100)]).await;
        assert!(!two.are_alike(key, Joined).await);
    });
    world.clear();
}

/// Values of all keys; `None`: it is not there.
fn values_of<'a>(
    model: &'a Model,
    (unit, dkey): (Unit, &[u8]),
) -> Option<BTreeMap<&'a [u8], &'a Value>> {
    let found = model.0.get(&unit)?.dkeys.get(dkey)?;
    Some(found.1.iter().map(|(akey, (_, value))| (&akey[..], value)).collect())
}

/// Histories of two, of which one has steps now and then that the other has not. Keys without such steps are alike; keys that show something
/// else by the naive model are not.
#[test]
fn histories_are_alike_where_nobody_went_alone() {
    let (mut alike_count, mut other_count) = (0, 0);
    for seed in 0..6 {
        let world = SimWorld::new(seed);
        world.block_on(async {
            let rng = Rng::new(seed ^ 0x11ce);
            let two = Two::new(&world).await;
            let mut models = [Model::default(), Model::default()];
            let mut alone: BTreeSet<(Unit, Vec<u8>)> = BTreeSet::new();
            for n in 0..160 {
                let step = if rng.below(2) == 0 { Step::random(&rng) } else { wide_step(&rng) };
                let step = Step { cond: Cond::NONE, ..step };
                let is_alone = rng.below(8) == 0
                    && matches!(
                        step.act,
                        Act::Array { .. } | Act::Single { .. } | Act::Zero { .. }
                    );
                let epoch = 2 * n + 2 + u64::from(is_alone);
                let shards = [&two.a, &two.b];
                let mut done = Vec::new();
                for (shard, model) in shards.into_iter().zip(&mut models).skip(is_alone.into()) {
                    let got = run(shard, epoch, &step).await.map(|_| ()).map_err(|e| e.code);
                    assert_eq!(got, model.run(epoch, &step), "{step:?}");
                    done.push(got.is_ok());
                }
                if is_alone || done[0] != done[1] {
                    alone.insert((step.unit, step.dkey.clone()));
                }
            }
            let keys: BTreeSet<(Unit, Vec<u8>)> = models
                .iter()
                .flat_map(|model| &model.0)
                .flat_map(|(unit, object)| {
                    object.dkeys.keys().map(move |dkey| (*unit, dkey.clone()))
                })
                .collect();
            for (unit, dkey) in &keys {
                let key = (*unit, &dkey[..]);
                let differs = values_of(&models[0], key) != values_of(&models[1], key);
                for closeness in [Written, Joined] {
                    let context = format!("seed {seed}, {unit}, {dkey:?}, {closeness:?}");
                    let is_alike = two.are_alike(key, closeness).await;
                    assert!(!differs || !is_alike, "{context}: they show other values");
                    assert!(is_alike || alone.contains(&(*unit, dkey.clone())), "{context}");
                }
                alike_count += u64::from(!differs);
                other_count += u64::from(differs);
            }
            two.a.aggregate().await.unwrap();
            for (unit, dkey) in keys.difference(&alone) {
                assert!(two.are_alike((*unit, &dkey[..]), Joined).await, "seed {seed}, {unit}");
            }
        });
        world.clear();
    }
    assert!(alike_count > 100 && other_count > 20, "{alike_count}, {other_count}");
}
