//! Stripes whose records give way to their names: with their cells at hand, everything is read as it was, now and in every
//! snapshot, over restarts, and by another member that gets images.

use super::model::*;
use super::places;
use env::{Rng, SimWorld};
use std::collections::BTreeMap;
use types::{Durability, Epoch, ObjType, Oid, Unit};
use vos::{PoolShard, Segments};
use wire::cell::Stripe;
use wire::obj::*;
use wire::versions::{ContStage, ContVersions};

const DKEY: &[u8] = &1u64.to_le_bytes();
const CELL_BYTES: u32 = 4096;
const STRIPE_BYTES: u64 = 2 * CELL_BYTES as u64;
const END: u64 = 4 * STRIPE_BYTES;

fn unit() -> Unit {
    let class = "EC_2P1G1".parse().unwrap();
    Oid::generate(0, 1, ObjType::ArrayByte, class, 0).unit(0)
}

fn touched() -> Op<'static> {
    Op::PunchAkeys { unit: unit(), dkey: DKEY, cond: Cond::NONE, akeys: Vec::new() }
}

/// What was written, and what was folded.
#[derive(Clone, Default)]
struct Known {
    epoch: u64,
    now: Vec<u8>,
    snapshots: BTreeMap<u64, Vec<u8>>,
    revision: u64,
    cells: BTreeMap<Stripe, Vec<u8>>,
}

impl Known {
    async fn write(&mut self, shard: &PoolShard, at: u64, data: &[u8]) {
        self.epoch += 2;
        let recxs = vec![Recx { index: at, count: data.len() as u64 }];
        let value = UpdateValue::Array { record_bytes: 1, recxs };
        let iods = vec![UpdateIod { akey: b"", cond: Cond::NONE, value }];
        let op = Op::Update { unit: unit(), dkey: DKEY, cond: Cond::NONE, iods };
        write(shard, self.epoch, &[op], data, None).await.unwrap();
        let end = at as usize + data.len();
        self.now.resize(self.now.len().max(end), 0);
        self.now[at as usize..end].copy_from_slice(data);
    }

    async fn cut(&mut self, shard: &PoolShard, at: u64, count: u64) {
        self.epoch += 2;
        let value = UpdateValue::PunchRecords { recxs: vec![Recx { index: at, count }] };
        let iods = vec![UpdateIod { akey: b"", cond: Cond::NONE, value }];
        let op = Op::Update { unit: unit(), dkey: DKEY, cond: Cond::NONE, iods };
        write(shard, self.epoch, &[op], b"", None).await.unwrap();
        let end = ((at + count) as usize).min(self.now.len());
        if (at as usize) < end {
            self.now[at as usize..end].fill(0);
        }
    }

    async fn fold(&mut self, shard: &PoolShard) -> usize {
        let found = shard.stripes_to_fold(CONT, unit(), DKEY, 2, CELL_BYTES).await.unwrap();
        for found in &found {
            let first = found.stripe.first as usize;
            let bytes = self.now[first..first + STRIPE_BYTES as usize].to_vec();
            assert_eq!(found.count, STRIPE_BYTES);
            self.cells.insert(found.stripe, bytes);
            shard.ready(CONT, &[], &[touched()]).await.unwrap();
            let version = shard.fold_version((CONT, unit()), DKEY, b"", &found.stripe, found.count);
            assert_eq!(version, Some(found.stripe.version));
            let done = shard.fold(CONT, unit(), DKEY, b"", found.stripe, found.count).unwrap();
            assert!(done.is_some());
        }
        let left = shard.stripes_to_fold(CONT, unit(), DKEY, 2, CELL_BYTES).await.unwrap();
        assert_eq!(left, []);
        found.len()
    }

    fn snapshot(&mut self, shard: &PoolShard) {
        if self.snapshots.len() == 2 {
            self.snapshots.pop_first();
        } else {
            self.snapshots.insert(self.epoch, self.now.clone());
        }
        self.revision += 1;
        let snapshots = self.snapshots.keys().map(|&at| Epoch(at)).collect();
        let versions = ContVersions {
            revision: self.revision,
            snapshots,
            held: false,
            stage: ContStage::Open,
        };
        shard.set_versions(CONT, &versions).unwrap();
    }

    async fn check(&self, shard: &PoolShard) {
        let now = [(0, &self.now)];
        for (at, expected) in self.snapshots.iter().map(|(at, all)| (*at, all)).chain(now) {
            let recxs = vec![Recx { index: 0, count: END }];
            let iods = [FetchIod { akey: b"", want: FetchWant::Array { record_bytes: 1, recxs } }];
            let fetch = Op::Fetch { unit: unit(), dkey: DKEY, cond: Cond::NONE, iods: iods.into() };
            shard.ready_at(CONT, Epoch(at), &[], std::slice::from_ref(&fetch)).await.unwrap();
            let mut segments = Segments::new();
            let Op::Fetch { iods, .. } = &fetch else { unreachable!() };
            let view = shard.view_at(CONT, Epoch(at)).unwrap();
            view.fetch(unit(), DKEY, Cond::NONE, iods, &mut segments).unwrap();
            drop(view);
            for (part, bytes) in segments.coded() {
                let stripe = &self.cells[&part.stripe];
                *bytes = Some(stripe[part.at as usize..][..part.bytes as usize].to_vec());
            }
            segments.load().await.unwrap();
            let found = segments.slices().concat();
            let mut expected = expected.clone();
            expected.resize(END as usize, 0);
            assert!(found == expected || found.is_empty() && self.now.is_empty(), "at {at}");
            if !found.is_empty() {
                assert!(segments.sums().is_ok());
            }
        }
        let named = shard.stripes_of(CONT, unit(), DKEY).await.unwrap();
        assert!(named.iter().all(|named| self.cells.contains_key(&named.stripe)));
    }
}

#[test]
fn what_is_folded_is_read_as_it_was() {
    let (mut folds, mut reopened) = (0, 0);
    let seeds = places::seeds(12, 60);
    for seed in seeds.clone() {
        let world = SimWorld::new(seed);
        let env = world.node("a");
        world.block_on(async {
            let durability = if seed % 3 == 0 { Durability::Memory } else { Durability::Wal };
            let (mut store, mut shard) = fresh(&env, &config(durability)).await.unwrap();
            let mut known = Known { epoch: 10, ..Known::default() };
            let rng = Rng::new(seed);
            for step in 0..60u64 {
                match rng.below(12) {
                    0..=4 => {
                        let at = rng.below(END / 512) * 512;
                        let bytes = (512 << rng.below(6)).min(END - at);
                        let data: Vec<u8> =
                            (0..bytes).map(|i| (step * 31 + i * 7 + (i >> 8)) as u8).collect();
                        known.write(&shard, at, &data).await;
                    }
                    5 => {
                        let at = rng.below(END - 40);
                        known.write(&shard, at, &[step as u8; 40]).await;
                    }
                    6 => known.cut(&shard, rng.below(END), 1 + rng.below(3_000)).await,
                    7..=8 => folds += known.fold(&shard).await,
                    9 => known.snapshot(&shard),
                    10 => shard.aggregate().await.unwrap(),
                    _ if durability == Durability::Memory => {}
                    _ => {
                        shard.close().await.unwrap();
                        drop((shard, store));
                        store = open(&env, u64::MAX).await.unwrap();
                        shard = store.open_shard(POOL).await.unwrap();
                        reopened += 1;
                    }
                }
                known.check(&shard).await;
            }
            known.fold(&shard).await;
            assert_eq!(
                shard.space_audit().unwrap().map(|(a, b)| a == b),
                Some(true),
                "seed {seed}"
            );
            // Another member that gets images names the same.
            let other_env = world.node("b");
            let (_store, other) = fresh(&other_env, &config(durability)).await.unwrap();
            let snapshots = known.snapshots.keys().map(|&at| Epoch(at)).collect();
            let (revision, stage) = (1, ContStage::Open);
            let versions = ContVersions { revision, snapshots, held: false, stage };
            other.set_versions(CONT, &versions).unwrap();
            let image = shard.dkey_image(CONT, unit(), DKEY).await.unwrap();
            other.install_dkey(CONT, unit(), DKEY, &image).await.unwrap();
            let facts = shard.unit_facts(CONT, unit()).await.unwrap();
            other.install_unit_facts(CONT, unit(), &facts).await.unwrap();
            known.check(&other).await;
            assert_eq!(
                shard.digest(CONT, unit()).await.unwrap(),
                other.digest(CONT, unit()).await.unwrap(),
                "seed {seed}"
            );
        });
        world.clear();
    }
    let count = seeds.end as usize;
    assert!(folds > count && reopened > count / 2, "{folds} folds, {reopened} reopened");
}
