//! Damaged pages of the index are given up: what other members have can be installed again, what has no copies stays refused.

use super::model::*;
use env::{AlignedBuf, Env, OpenOptions, SimWorld};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use types::{Code, Durability, Epoch, ObjClass, ObjType, Oid, Unit};
use vos::{PoolShard, PoolShardConfig, Segments, Store};
use wire::obj::*;

const BLOCK: usize = 4096;
const SHARED: u64 = 300;
const ALONE: u64 = 150;
/// Of the one object with pages of its own.
const KEYS: u64 = 1500;
const CONFIG: PoolShardConfig =
    PoolShardConfig { durability: Durability::Wal, scm_bytes: 8 << 20, nvme_bytes: 1 << 20 };

fn shared(number: u64) -> Unit {
    let class: ObjClass = "RP_2G1".parse().unwrap();
    Oid::generate(0, number, ObjType::KvHashed, class, 0).unit(0)
}

fn alone(number: u64) -> Unit {
    Oid::generate(0, 9_000 + number, ObjType::KvHashed, ObjClass::S1, 0).unit(0)
}

fn large() -> Unit {
    shared(100_000)
}

async fn set(shard: &PoolShard, epoch: u64, unit: Unit, dkey: u64) {
    let value = format!("the value of {dkey} at {epoch}, and more of it").repeat(2);
    let iods = vec![UpdateIod {
        akey: b"v",
        cond: Cond::NONE,
        value: UpdateValue::Inline(value.as_bytes()),
    }];
    let dkey = dkey.to_le_bytes();
    let ops = [Op::Update { unit, dkey: &dkey, cond: Cond::NONE, iods }];
    let lsn = write(shard, epoch, &ops, b"", None).await.unwrap();
    shard.durable(lsn).await.unwrap();
}

async fn fill(shard: &PoolShard) {
    for number in 0..SHARED {
        set(shard, 1 + number, shared(number), 1).await;
    }
    for number in 0..ALONE {
        set(shard, 1_000 + number, alone(number), 1).await;
    }
    for key in 0..KEYS {
        set(shard, 2_000 + key, large(), key).await;
    }
    shard.checkpoint().await.unwrap();
}

/// Flips a bit in every third page of the index.
async fn flip(env: &Env) -> u64 {
    let path = format!("/target/pool.{POOL}/pages");
    let file = env.disk().open(Path::new(&path), OpenOptions::default()).await.unwrap();
    let bytes = file.len().unwrap() as usize;
    let (raw, _) = file.read_at(0, AlignedBuf::zeroed(bytes)).await;
    let is_page = |at: &usize| {
        let block = &raw[at * BLOCK..][..BLOCK];
        block[..4] == *b"AZKP" && block[32] < 2
    };
    let mut flipped = 0;
    for at in (0..bytes / BLOCK).filter(is_page).step_by(3) {
        let at = at * BLOCK + 60;
        file.write_at(at as u64, AlignedBuf::copy_of(&[raw[at] ^ 4])).await.1.unwrap();
        flipped += 1;
    }
    file.sync().await.unwrap();
    flipped
}

async fn keys(shard: &PoolShard, unit: Unit) -> types::Result<Vec<(Vec<u8>, Epoch)>> {
    Ok(shard.list_keys(CONT, unit, None, 10_000).await?.0)
}

/// Objects of one copy that are refused; all others are there.
async fn refused(shard: &PoolShard) -> BTreeSet<u64> {
    let mut refused = BTreeSet::new();
    for number in 0..ALONE {
        match keys(shard, alone(number)).await {
            Ok(found) => assert_eq!(found.len(), 1, "object {number} is gone without a word"),
            Err(error) => {
                assert_eq!(error.code, Code::Csum, "{error}");
                refused.insert(number);
            }
        }
    }
    refused
}

async fn open_again(world: &SimWorld) -> (Env, Rc<Store>, Rc<PoolShard>) {
    world.kill("a");
    world.disk("a").crash();
    let env = world.node("a");
    let store = open(&env, 0).await.unwrap();
    let shard = store.open_shard(POOL).await.unwrap();
    (env, store, shard)
}

/// A page that could not be read kept all of its objects from being read, changed or compared with those of others, for good.
#[test]
fn what_others_have_of_damaged_pages_can_be_installed_again() {
    let world = SimWorld::new(5);
    world.block_on(async {
        let (_other_store, other) = fresh(&world.node("b"), &CONFIG).await.unwrap();
        fill(&other).await;
        let (store, shard) = fresh(&world.node("a"), &CONFIG).await.unwrap();
        fill(&shard).await;
        drop((store, shard));
        assert!(flip(&world.node("a")).await > 3);
        let (_, _store, shard) = open_again(&world).await;
        let told = Rc::new(Cell::new(0));
        let tells = told.clone();
        shard.on_damaged_page(move || tells.set(tells.get() + 1));
        let damaged = shard.scrub_pages(async |_| ()).await.unwrap();
        assert!(damaged > 3 && told.get() == damaged, "{damaged}, {}", told.get());
        let lacking = async || {
            let mut lacking = 0;
            for number in 0..SHARED {
                lacking += u64::from(keys(&shard, shared(number)).await.is_err());
            }
            lacking
        };
        assert!(lacking().await > 0);
        let before = refused(&shard).await;
        assert!(!before.is_empty() && before.len() < ALONE as usize);
        let given_up = shard.give_up_pages().await.unwrap();
        assert_eq!(given_up.len() as u64, damaged);
        assert_eq!(shard.pages_to_give_up(), 0);
        assert_eq!(lacking().await, 0, "what has copies can be read, and changed");
        assert_eq!(refused(&shard).await, before, "what has none is not taken for absent");
        assert!(shard.lacks_pages_of(CONT));
        assert!(shard.require_pages_of(CONT, large()).is_err());
        let gone = (0..SHARED).filter(|of| shard.lacks_page_of(CONT, shared(*of), None)).count();
        assert!(gone > 0 && gone < SHARED as usize);
        // As it is after a restart in the middle.
        let (_, _store, shard) = open_again(&world).await;
        assert!(shard.lacks_pages_of(CONT));
        assert!(
            shard.may_have_groups_of(2) && !shard.may_have_groups_of(3),
            "it had of two copies only"
        );
        assert_eq!(refused(&shard).await, before);
        let mut installed = 0;
        for unit in (0..SHARED).map(shared).chain([large()]) {
            let (theirs, mine) =
                (keys(&other, unit).await.unwrap(), keys(&shard, unit).await.unwrap());
            for (dkey, epoch) in &theirs {
                let is_here = mine.contains(&(dkey.clone(), *epoch));
                let number = u64::from_le_bytes(dkey[..].try_into().unwrap());
                assert!(
                    is_here || shard.lacks_page_of(CONT, unit, Some(dkey)),
                    "{unit}, {number}: it is not here, and nobody says so"
                );
                if !is_here {
                    let image = other.dkey_image(CONT, unit, dkey).await.unwrap();
                    shard.install_dkey(CONT, unit, dkey, &image).await.unwrap();
                    installed += 1;
                }
            }
            let facts = other.unit_facts(CONT, unit).await.unwrap();
            shard.install_unit_facts(CONT, unit, &facts).await.unwrap();
        }
        assert!(installed > gone, "{installed}");
        shard.close_lost_pages().unwrap();
        assert!(!shard.lacks_pages_of(CONT) && shard.refuses_objects());
        shard.durable(shard.last_lsn()).await.unwrap();
        let mut shard = shard;
        for round in 0..3 {
            for unit in (0..SHARED).map(shared).chain([large()]) {
                let mine = shard.digest(CONT, unit).await.unwrap();
                let theirs = other.digest(CONT, unit).await.unwrap();
                assert_eq!(mine, theirs, "round {round}: {unit}");
            }
            assert_eq!(refused(&shard).await, before, "round {round}");
            assert!(!shard.lacks_pages_of(CONT), "round {round}");
            if round == 1 {
                shard.checkpoint().await.unwrap();
            }
            let (_, store, opened) = open_again(&world).await;
            drop(store);
            shard = opened;
        }
        let (mine, theirs) = (shard.stat(), other.stat());
        assert_eq!(mine.object_count + before.len() as u64, theirs.object_count);
        assert_eq!(mine.dkey_count + before.len() as u64, theirs.dkey_count);
    });
    world.clear();
}

/// What is in memory needs nobody else: its page is written anew.
#[test]
fn the_page_of_what_is_in_memory_is_written_anew() {
    let world = SimWorld::new(6);
    world.block_on(async {
        let (_store, shard) = fresh(&world.node("a"), &CONFIG).await.unwrap();
        fill(&shard).await;
        assert!(flip(&world.node("a")).await > 3);
        assert!(shard.scrub_pages(async |_| ()).await.unwrap() > 3);
        assert_eq!(shard.pages_to_give_up(), 0);
        shard.checkpoint().await.unwrap();
        assert_eq!(shard.scrub_pages(async |_| ()).await.unwrap(), 0);
        let (_, _store, shard) = open_again(&world).await;
        assert!(refused(&shard).await.is_empty());
        assert_eq!(keys(&shard, large()).await.unwrap().len(), KEYS as usize);
    });
    world.clear();
}

/// What a unit holds in the data area: five blocks, with 14,000 bytes.
async fn set_data(shard: &PoolShard, epoch: u64, unit: Unit, fill: u8) {
    for (index, count) in [(0, 9_000), (9_000, 5_000)] {
        let data: Vec<u8> = (0..count).map(|at| fill.wrapping_add(at as u8)).collect();
        let recxs = vec![Recx { index, count: count as u64 }];
        let value = UpdateValue::Array { record_bytes: 1, recxs };
        let iods = vec![UpdateIod { akey: b"a", cond: Cond::NONE, value }];
        let ops = [Op::Update { unit, dkey: &1u64.to_le_bytes(), cond: Cond::NONE, iods }];
        let lsn = write(shard, epoch, &ops, &data, None).await.unwrap();
        shard.durable(lsn).await.unwrap();
    }
}

async fn data_of(shard: &PoolShard, unit: Unit) -> Vec<u8> {
    let recxs = vec![Recx { index: 0, count: 14_000 }];
    let iods = [FetchIod { akey: b"a", want: FetchWant::Array { record_bytes: 1, recxs } }];
    let dkey = 1u64.to_le_bytes();
    let touched = [Op::Fetch { unit, dkey: &dkey, cond: Cond::NONE, iods: iods.to_vec() }];
    shard.ready(CONT, &[], &touched).await.unwrap();
    let mut segments = Segments::cached();
    let view = shard.view(CONT).unwrap();
    view.fetch(unit, &dkey, Cond::AKEY_FETCH, &iods, &mut segments).unwrap();
    drop(view);
    segments.load().await.unwrap();
    checked_data(&segments)
}

async fn punch(shard: &PoolShard, epoch: u64, unit: Unit) {
    let punch = [Op::PunchObj { unit, cond: Cond::NONE, besides: b"" }];
    write(shard, epoch, &punch, b"", None).await.unwrap();
}

/// Blocks that only damaged pages named stayed in use, so that in a full pool what they held found no room to come back.
#[test]
fn blocks_of_pages_that_were_given_up_are_free_again_while_others_write() {
    const UNITS: u64 = 240;
    for seed in 0..4 {
        let world = SimWorld::new(seed);
        world.block_on(async {
            let config = PoolShardConfig { nvme_bytes: 16 << 20, ..CONFIG };
            let mut env = world.node("a");
            let (store, shard) = fresh(&env, &config).await.unwrap();
            let empty = shard.stat().nvme_free_bytes;
            for number in 0..UNITS {
                set(&shard, 1 + number, shared(number), 7).await;
                set_data(&shard, 1_000 + number, shared(number), number as u8).await;
            }
            for key in 0..KEYS {
                set(&shard, 2_000 + key, large(), key).await;
            }
            shard.checkpoint().await.unwrap();
            drop((store, shard));
            assert!(flip(&env).await > 3);
            let (_, store, shard) = open_again(&world).await;
            assert!(shard.scrub_pages(async |_| ()).await.unwrap() > 3);
            shard.give_up_pages().await.unwrap();
            let mut there = BTreeMap::new();
            for number in 0..UNITS {
                if !keys(&shard, shared(number)).await.unwrap().is_empty() {
                    there.insert(number, number as u8);
                }
            }
            let lost = UNITS - there.len() as u64;
            assert!(lost > 0 && !there.is_empty());
            let used_before = empty - shard.stat().nvme_free_bytes;
            // Some are written again, some go, some come, while blocks are counted.
            let writes = async {
                for round in 0..60 {
                    let number = round * 7 % UNITS;
                    if round % 3 == 0 {
                        punch(&shard, 5_000 + round, shared(number)).await;
                        there.remove(&number);
                    } else {
                        let fill = (round + 100) as u8;
                        set_data(&shard, 5_000 + round, shared(number), fill).await;
                        there.insert(number, fill);
                    }
                }
            };
            let (reclaimed, ()) = futures_util::future::join(shard.reclaim_unnamed(), writes).await;
            let reclaimed = reclaimed.unwrap();
            // Some were written again meanwhile, which changes nothing of what was lost.
            assert!(
                reclaimed >= lost * 5 * 4096 && reclaimed <= used_before,
                "{reclaimed} of {lost}"
            );
            assert_eq!(shard.reclaim_unnamed().await.unwrap(), 0, "nothing is left");
            shard.durable(shard.last_lsn()).await.unwrap();
            let (mut store, mut shard) = (store, shard);
            for round in 0..3 {
                let free = shard.stat().nvme_free_bytes;
                // What is written into all that is free is in nobody else's blocks.
                for number in 0..free / (5 * 4096) * 9 / 10 {
                    set_data(&shard, 9_000, shared(50_000 + number), 0xee).await;
                }
                for (&number, &fill) in &there {
                    let found = data_of(&shard, shared(number)).await;
                    let same = found.iter().enumerate().all(|(at, byte)| {
                        let at = if at < 9_000 { at } else { at - 9_000 };
                        *byte == fill.wrapping_add(at as u8)
                    });
                    assert!(found.len() == 14_000 && same, "round {round}: object {number}");
                }
                for number in 0..free / (5 * 4096) * 9 / 10 {
                    punch(&shard, 9_001, shared(50_000 + number)).await;
                }
                shard.durable(shard.last_lsn()).await.unwrap();
                if round == 1 {
                    shard.checkpoint().await.unwrap();
                }
                drop((store, shard));
                (env, store, shard) = open_again(&world).await;
            }
            for &number in there.keys() {
                punch(&shard, 10_000, shared(number)).await;
            }
            shard.durable(shard.last_lsn()).await.unwrap();
            while shard.stat().nvme_free_bytes < empty {
                let before = shard.stat().nvme_free_bytes;
                env.sleep(Duration::from_secs(1)).await;
                assert!(shard.stat().nvme_free_bytes > before, "{before} of {empty}");
            }
            drop((store, shard));
        });
        world.clear();
    }
}
