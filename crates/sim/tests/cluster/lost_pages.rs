//! Damaged pages of the index: what has copies or a code is whole again, from other members; what has not is refused, never
//! taken for something that was not there.

use client::{ArrayObj, Client, Container, KvObj, LockAsk, LockKind, LockMode, LockRange};
use engine::StoreConfig;
use sim::pages::flip_pages;
use sim::{Cluster, ClusterSpec, members, parity, seeds};
use std::time::Duration;
use transport::SimNet;
use types::{Code, ContLayout, Durability, ObjType, Oid, TargetId};
use wire::control::{ControlRequest, Name, OpenMode};
use wire::event::{Event, EventCode};
use wire::map::{DownReason, PoolMap, TargetInfo};
use wire::obj::{Cond, Recx};
use wire::store::PageWait;

const ARRAY_BYTES: u64 = 300_000;
/// Keys of a small object, which shares a page with others, and of one with pages of its own.
const KEYS: u64 = 12;
const MANY_KEYS: u64 = 500;

/// Objects of a container, and what is in them.
struct Things {
    kvs: Vec<(KvObj, u64, u8)>,
    /// Of one copy.
    alone: Vec<(KvObj, u8)>,
    arrays: Vec<(ArrayObj, u8)>,
}

fn oid(cont: &Container, kind: ObjType, class: &str, number: u64) -> Oid {
    cont.generate_oid(kind, class.parse().unwrap(), 0, number).unwrap()
}

fn value(key: u64, round: u8) -> Vec<u8> {
    let mut value = vec![round; 60 + (key % 7) as usize * 40];
    value[..8].copy_from_slice(&types::hash::mix2(key, round.into()).to_le_bytes());
    value
}

fn content(number: usize, round: u8) -> Vec<u8> {
    let word = |at: u64| types::hash::mix2(number as u64 + 1, at / 8 + u64::from(round) * 9_999);
    (0..ARRAY_BYTES).map(|at| (word(at) >> (at % 8 * 8)) as u8).collect()
}

impl Things {
    async fn new(cont: &Container) -> Things {
        let kv = |class, number| KvObj {
            object: cont.object(oid(cont, ObjType::KvHashed, class, number)),
        };
        let array = |class, number| ArrayObj {
            cont: cont.clone(),
            oid: oid(cont, ObjType::ArrayByte, class, number),
            record_bytes: 1,
            chunk_records: 65_536,
        };
        let class = |number: u64| ["RP_2G1", "RP_3G1"][number as usize % 2];
        let small = (1..60).map(|number| (kv(class(number), number), KEYS, 0));
        let large = (100..104).map(|number| (kv(class(number), number), MANY_KEYS, 0));
        let things = Things {
            kvs: small.chain(large).collect(),
            alone: (200..240).map(|number| (kv("S1", number), 0)).collect(),
            arrays: (300..308)
                .map(|number| (array(["RP_2G1", "EC_2P1G1"][number as usize % 2], number), 0))
                .collect(),
        };
        for (kv, keys, round) in &things.kvs {
            for key in 0..*keys {
                put(kv, key, *round).await;
            }
        }
        for (kv, round) in &things.alone {
            put(kv, 1, *round).await;
        }
        for (number, (array, round)) in things.arrays.iter().enumerate() {
            write(array, number, *round).await;
        }
        things
    }

    /// Writes all that has copies once more, in part.
    async fn write_some(&mut self, round: u8) {
        for (kv, keys, now) in self.kvs.iter_mut().step_by(3) {
            for key in 0..*keys {
                put(kv, key, round).await;
            }
            *now = round;
        }
        for (number, (array, now)) in self.arrays.iter_mut().enumerate().step_by(2) {
            write(array, number, round).await;
            *now = round;
        }
    }

    async fn check(&self, context: &str) {
        for (kv, keys, round) in &self.kvs {
            let of = kv.object.oid();
            for key in 0..*keys {
                let found = kv.get(None, &key.to_le_bytes()).await;
                let found = found.unwrap_or_else(|error| panic!("{context}: {of}, {key}: {error}"));
                assert!(found == Some(value(key, *round)), "{context}: {of}, {key}: {found:?}");
            }
        }
        for (number, (array, round)) in self.arrays.iter().enumerate() {
            let mut found = vec![0xee; ARRAY_BYTES as usize];
            let all = [Recx { index: 0, count: ARRAY_BYTES }];
            array.read(&all, &mut [&mut found]).await.unwrap();
            let is = content(number, *round);
            let differs = sim::first_difference(&found, &is);
            assert_eq!(differs, None, "{context}: array {number}");
        }
    }

    /// How many objects of one copy are refused; all others are as they were.
    async fn refused(&self, context: &str) -> usize {
        let mut refused = 0;
        for (kv, round) in &self.alone {
            match kv.get(None, &1u64.to_le_bytes()).await {
                Ok(found) => assert!(found == Some(value(1, *round)), "{context}: {found:?}"),
                Err(error) => {
                    assert_eq!(error.code, Code::Csum, "{context}: {error}");
                    refused += 1;
                }
            }
        }
        refused
    }

    async fn must_be_equal(&self, client: &Client, cont: &Container, context: &str) {
        let of_arrays = self.arrays.iter().map(|(array, _)| array.oid);
        for oid in self.kvs.iter().map(|(kv, ..)| kv.object.oid()).chain(of_arrays) {
            let mut differs = None;
            // Folds tell members one after the other.
            for _ in 0..10 {
                // This may be who meets a damaged page first.
                let looked = members::difference(client, cont, oid).await;
                differs = looked.unwrap_or_else(|error| Some(error.to_string()));
                if differs.is_none() {
                    break;
                }
                client.env().sleep(Duration::from_secs(2)).await;
            }
            assert_eq!(differs, None, "{context}");
            let stripes = parity::compare(client, cont, oid).await.unwrap();
            stripes.unwrap_or_else(|what| panic!("{context}: {what}"));
        }
    }
}

async fn put(kv: &KvObj, key: u64, round: u8) {
    kv.put(None, Cond::NONE, &key.to_le_bytes(), &value(key, round)).await.unwrap();
}

async fn write(array: &ArrayObj, number: usize, round: u8) {
    let all = [Recx { index: 0, count: ARRAY_BYTES }];
    array.write(&all, &[&content(number, round)]).await.unwrap();
}

async fn keys_mended(cont: &Container) -> u64 {
    let stats = cont.pool().store_stats().await.unwrap();
    let mended = stats.into_iter().filter_map(|(_, stat)| stat?.caught_up);
    mended.map(|stat| stat.keys_mended).sum()
}

/// An engine is stopped, pages of its index are damaged, and it starts again: it gets back what it lacks, also where it leads, and
/// others can do without their copies afterwards. It used to stay behind for ever, with a copy less of all its groups.
#[test]
fn what_was_in_damaged_pages_comes_back() {
    for seed in seeds(2) {
        let spec = ClusterSpec { seed, engines: 4, targets: 1 };
        let cluster = Cluster::start_healing(spec, StoreConfig::default(), Some(600)).unwrap();
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let mut things = Things::new(&cont).await;
            client.env().sleep(Duration::from_secs(2)).await;
            let engine = 1 + seed as usize % 3;
            for round in 1..3u8 {
                let context = format!("seed {seed}, round {round}, engine {engine}");
                cluster.stop_engine(engine).await.unwrap();
                cluster.kill_engine(engine);
                assert!(flip_pages(&cluster, engine, 4).await.unwrap() > 3, "{context}");
                if round == 2 {
                    things.write_some(round).await;
                }
                cluster.start_engine(engine).await.unwrap();
                let lacking = members::await_whole(&client).await.unwrap();
                assert_eq!(lacking, None, "{context}");
                assert!(keys_mended(&cont).await > 0, "{context}: nothing was damaged");
                things.check(&context).await;
                let refused = things.refused(&context).await;
                assert!(refused < things.alone.len(), "{context}");
                things.must_be_equal(&client, &cont, &context).await;
                // It did not come back for that moment only.
                cluster.kill_engine(engine);
                cluster.start_engine(engine).await.unwrap();
                assert_eq!(members::await_whole(&client).await.unwrap(), None, "{context}");
                assert_eq!(things.refused(&context).await, refused, "{context}");
            }
            // What it has got back is all there is of some.
            let other = 1 + engine % 3;
            cluster.kill_engine(other);
            things.check(&format!("seed {seed}, without engine {other}")).await;
        });
    }
}

/// The same while the engine serves, with little of its index in memory: readers and writers meet the damage, and are told of none.
#[test]
fn damaged_pages_are_met_while_the_engine_serves() {
    let mut mended = 0;
    for seed in seeds(2) {
        let spec = ClusterSpec { seed, engines: 4, targets: 1 };
        let store = StoreConfig {
            metadata_cache: Some(engine::config::Bytes(1 << 20)),
            ..StoreConfig::default()
        };
        let cluster = Cluster::start_healing(spec, store, Some(600)).unwrap();
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let mut things = Things::new(&cont).await;
            for engine in 1..4 {
                // All of it is in pages, and none of that in memory.
                cluster.stop_engine(engine).await.unwrap();
                cluster.kill_engine(engine);
                cluster.start_engine(engine).await.unwrap();
                let context = format!("seed {seed}, engine {engine}");
                assert_eq!(members::await_whole(&client).await.unwrap(), None, "{context}");
                assert!(flip_pages(&cluster, engine, 3).await.unwrap() > 3, "{context}");
                if (seed + engine as u64).is_multiple_of(2) {
                    things.write_some(engine as u8).await;
                }
                things.check(&context).await;
                assert_eq!(members::await_whole(&client).await.unwrap(), None, "{context}");
                things.check(&format!("{context}, whole")).await;
                things.must_be_equal(&client, &cont, &context).await;
                mended += keys_mended(&cont).await;
            }
        });
    }
    assert!(mended > 0, "nobody has met any damage");
}

/// An engine is away, so another one with damaged pages cannot get back what only the two of them had, and stays behind. A third that starts again
/// meanwhile lacks nothing that either could tell it, and is whole again: it used to wait for the damaged one, which waited for the one that was away.
#[test]
fn who_left_later_does_not_wait_for_what_a_damaged_one_lacks() {
    for seed in seeds(2) {
        let spec = ClusterSpec { seed, engines: 4, targets: 1 };
        let cluster = Cluster::start_healing(spec, StoreConfig::default(), Some(600)).unwrap();
        cluster.block_on(async {
            let context = format!("seed {seed}");
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let things = Things::new(&cont).await;
            // Until stripes are cells.
            client.env().sleep(Duration::from_secs(90)).await;
            let (away, damaged, later) = (TargetId(1), TargetId(2), TargetId(3));
            let info = async |target: TargetId| {
                members::newest_map(&client).await.unwrap().target(target).unwrap().clone()
            };
            let await_that =
                async |target: TargetId, what: &str, is: &dyn Fn(&TargetInfo) -> bool| {
                    for _ in 0..600 {
                        if is(&info(target).await) {
                            return;
                        }
                        client.env().sleep(Duration::from_millis(200)).await;
                    }
                    panic!("{context}: target {target} is not {what} after two minutes");
                };
            let is_behind = |info: &TargetInfo| info.reason == Some(DownReason::Behind);
            cluster.kill_engine(1);
            await_that(away, "away", &|info| info.reason == Some(DownReason::Silent)).await;
            cluster.stop_engine(2).await.unwrap();
            cluster.kill_engine(2);
            assert!(flip_pages(&cluster, 2, 4).await.unwrap() > 3, "{context}");
            cluster.start_engine(2).await.unwrap();
            await_that(damaged, "behind", &is_behind).await;
            // Until it has given up what is damaged.
            client.env().sleep(Duration::from_secs(5)).await;
            let before = info(later).await.since;
            cluster.kill_engine(3);
            cluster.start_engine(3).await.unwrap();
            let is_back = |info: &TargetInfo| info.since > before && info.reason.is_none();
            await_that(later, "whole again", &is_back).await;
            assert!(is_behind(&info(damaged).await), "{context}: nothing was damaged");
            // What only those two have may be gone; all else is served.
            let map = members::newest_map(&client).await.unwrap();
            let mut read = 0;
            for (kv, _, round) in &things.kvs {
                let layout = placement::layout(kv.object.oid(), &map).unwrap();
                if layout.members(0).iter().all(|member| [away, damaged].contains(member)) {
                    continue;
                }
                let found = kv.get(None, &0u64.to_le_bytes()).await.unwrap();
                assert!(found == Some(value(0, *round)), "{context}: {}", kv.object.oid());
                read += 1;
            }
            assert!(read > 0, "{context}");
        });
    }
}

/// The target whose pages are damaged below, and the one that left before.
const DAMAGED: TargetId = TargetId(2);
const AWAY: TargetId = TargetId(3);

/// Why the two are down.
async fn reasons(client: &Client) -> [Option<DownReason>; 2] {
    let map = members::newest_map(client).await.unwrap();
    [DAMAGED, AWAY].map(|target| map.target(target).unwrap().reason)
}

async fn await_reasons(client: &Client, wanted: [Option<DownReason>; 2], context: &str) {
    for _ in 0..600 {
        if reasons(client).await == wanted {
            return;
        }
        client.env().sleep(Duration::from_millis(200)).await;
    }
    let found = reasons(client).await;
    panic!("{context}: not {wanted:?} after two minutes: {found:?}");
}

/// An engine is away, some is written, and pages of another one, which is the only one that knows some of it, are damaged. What of all
/// this there is.
async fn with_one_away_and_one_damaged(
    cluster: &Cluster,
    client: &Client,
    cont: &Container,
    context: &str,
) -> Things {
    let mut things = Things::new(cont).await;
    let map = members::newest_map(client).await.unwrap();
    // One with pages of its own, of which some are damaged: what is left tells of it.
    let large =
        |number| KvObj { object: cont.object(oid(cont, ObjType::KvHashed, "RP_2G1", number)) };
    let large = (1..).step_by(2).map(large).find(|kv| is_theirs(kv, &map)).unwrap();
    for key in 0..MANY_KEYS {
        put(&large, key, 0).await;
    }
    things.kvs.push((large, MANY_KEYS, 0));
    client.env().sleep(Duration::from_secs(2)).await;
    cluster.kill_engine(3);
    await_reasons(client, [None, Some(DownReason::Silent)], context).await;
    things.write_some(1).await;
    client.env().sleep(Duration::from_secs(2)).await;
    cluster.stop_engine(2).await.unwrap();
    cluster.kill_engine(2);
    assert!(flip_pages(cluster, 2, 3).await.unwrap() > 3, "{context}");
    cluster.start_engine(2).await.unwrap();
    let behind = [Some(DownReason::Behind), Some(DownReason::Silent)];
    await_reasons(client, behind, context).await;
    // Until it has given up what is damaged.
    client.env().sleep(Duration::from_secs(5)).await;
    things
}

/// Objects of the two alone.
fn is_theirs(kv: &KvObj, map: &PoolMap) -> bool {
    let layout = placement::layout(kv.object.oid(), map).unwrap();
    let mut members = layout.members(0).to_vec();
    members.sort_unstable();
    members == [DAMAGED, AWAY]
}

/// An engine that was away comes back, and the only other one that knows what it has missed has damaged pages: nobody else has what was in these, so both stay behind. It gets
/// what the other one has beside, which was all in one place until then: it used to get nothing, for the other one refused all questions.
#[test]
fn what_a_damaged_one_has_beside_does_not_stay_alone() {
    for seed in seeds(2) {
        let spec = ClusterSpec { seed, engines: 4, targets: 1 };
        let cluster = Cluster::start_healing(spec, StoreConfig::default(), Some(600)).unwrap();
        cluster.block_on(async {
            let context = format!("seed {seed}");
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let things = with_one_away_and_one_damaged(&cluster, &client, &cont, &context).await;
            cluster.start_engine(3).await.unwrap();
            let both_behind = [Some(DownReason::Behind); 2];
            await_reasons(&client, both_behind, &context).await;
            let map = members::newest_map(&client).await.unwrap();
            let theirs: Vec<&(KvObj, u64, u8)> =
                things.kvs.iter().filter(|(kv, ..)| is_theirs(kv, &map)).collect();
            // How many are refused, and of the others how many are the same with both, and were written meanwhile.
            let (mut refused, mut same, mut written) = (0, 0, 0);
            for _ in 0..120 {
                (refused, same, written) = (0, 0, 0);
                let map = members::newest_map(&client).await.unwrap();
                for (kv, _, round) in &theirs {
                    let two = [DAMAGED, AWAY];
                    match members::are_same(&client, &map, &cont, kv.object.oid(), two).await {
                        Ok(is_same) => {
                            same += usize::from(is_same);
                            written += usize::from(is_same && *round == 1);
                        }
                        Err(error) if error.code == Code::Csum => refused += 1,
                        // The map has changed.
                        Err(error) => assert_eq!(error.code, Code::Stale, "{context}: {error}"),
                    }
                }
                if refused + same == theirs.len() {
                    break;
                }
                client.env().sleep(Duration::from_secs(1)).await;
            }
            assert_eq!(
                refused + same,
                theirs.len(),
                "{context}: {refused} refused, {same} the same"
            );
            assert!(refused > 0 && written > 0, "{context}: {refused} refused, {written} written");
            assert_eq!(reasons(&client).await, both_behind, "{context}");
        });
    }
}

/// One with damaged pages leads, for want of anybody else, and a client has a lock there. By an administrator's word the other one leads: the lock is the client's
/// there, too, though the one before is not gone.
#[test]
fn a_lock_is_kept_where_one_with_damaged_pages_is_passed_by() {
    for seed in seeds(2) {
        let spec = ClusterSpec { seed, engines: 4, targets: 1 };
        let cluster = Cluster::start_healing(spec, StoreConfig::default(), Some(600)).unwrap();
        cluster.block_on(async {
            let context = format!("seed {seed}");
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let things = with_one_away_and_one_damaged(&cluster, &client, &cont, &context).await;
            cluster.start_engine(3).await.unwrap();
            await_reasons(&client, [Some(DownReason::Behind); 2], &context).await;
            let map = members::newest_map(&client).await.unwrap();
            let mut locked = None;
            for (kv, ..) in things.kvs.iter().filter(|(kv, ..)| is_theirs(kv, &map)) {
                if kv.get(None, &0u64.to_le_bytes()).await.is_ok() {
                    locked = Some(kv.object.oid());
                }
            }
            let oid = locked.expect("some of what they have is not damaged");
            let other = cluster.client("d");
            let theirs = open(&other).await;
            cont.lock(oid, &whole_lock(1), None).await.unwrap();
            let refused = async || theirs.lock(oid, &whole_lock(2), None).await.unwrap_err().code;
            assert_eq!(refused().await, Code::WouldBlock, "{context}");
            let reset =
                ControlRequest::PoolResetTarget { pool: Name::Label("p".into()), target: DAMAGED };
            let waits = async || {
                let waits = cont.pool().page_waits().await.unwrap();
                waits.into_iter().filter(|(_, wait)| wait.flatten().is_some()).count()
            };
            let mut looks = 0;
            while waits().await < 2 {
                looks += 1;
                assert!(looks < 120, "{context}: they do not wait for each other");
                client.env().sleep(Duration::from_secs(1)).await;
            }
            // It has forgotten that it was opened again, and is not whole soon when it leads.
            client.env().sleep(Duration::from_secs(120)).await;
            SimNet::of(cluster.world()).cut("e1", "e3");
            client.control(&reset).await.unwrap();
            assert_eq!(refused().await, Code::WouldBlock, "{context}: where the other leads");
            cont.unlock(oid, LockKind::Posix, 1, LockRange::WHOLE).await.unwrap();
            theirs.lock(oid, &whole_lock(2), None).await.unwrap();
        });
    }
}

async fn open(client: &Client) -> Container {
    let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await.unwrap();
    pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await.unwrap()
}

fn whole_lock(owner: u64) -> LockAsk {
    LockAsk {
        kind: LockKind::Posix,
        owner,
        range: LockRange::WHOLE,
        mode: LockMode::Exclusive,
        pid: owner as u32,
        wait: false,
    }
}

/// Both wait for each other then, and that is told. Once an administrator has given up what was in the damaged pages, the one that was away leads: all is
/// whole again, with what was in the pages as it was when that one left, and nothing else lost. They waited for ever.
#[test]
fn who_left_earlier_leads_when_what_was_in_damaged_pages_is_given_up() {
    let mut older = 0;
    for seed in seeds(2) {
        let spec = ClusterSpec { seed, engines: 4, targets: 1 };
        let cluster = Cluster::start_healing(spec, StoreConfig::default(), Some(600)).unwrap();
        cluster.block_on(async {
            let context = format!("seed {seed}");
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let mut things =
                with_one_away_and_one_damaged(&cluster, &client, &cont, &context).await;
            let reset = |target| {
                let pool = Name::Label("p".into());
                ControlRequest::PoolResetTarget { pool, target }
            };
            let refused = async |target| client.control(&reset(target)).await.unwrap_err();
            // What the damaged one has beside nobody else has yet.
            let mut error = refused(DAMAGED).await;
            for _ in 0..60 {
                if error.to_string().contains("start the engines that are away") {
                    break;
                }
                client.env().sleep(Duration::from_secs(1)).await;
                error = refused(DAMAGED).await;
            }
            assert_eq!(error.code, Code::Busy, "{context}: {error}");
            assert!(error.to_string().contains("engines that are away"), "{context}: {error}");
            let waits = async || {
                let waits = cont.pool().page_waits().await.unwrap();
                let named = |(target, wait): (TargetId, Option<Option<PageWait>>)| {
                    Some((target, wait.flatten()?.damaged))
                };
                waits.into_iter().filter_map(named).collect::<Vec<_>>()
            };
            assert_eq!(waits().await, [(DAMAGED, DAMAGED)], "{context}");
            cluster.start_engine(3).await.unwrap();
            await_reasons(&client, [Some(DownReason::Behind); 2], &context).await;
            let both = [(DAMAGED, DAMAGED), (AWAY, DAMAGED)];
            for _ in 0..120 {
                if waits().await == both {
                    break;
                }
                client.env().sleep(Duration::from_secs(1)).await;
            }
            assert_eq!(waits().await, both, "{context}");
            // Only of the one whose pages are damaged.
            let error = refused(AWAY).await;
            assert!(error.to_string().contains("known to be lost"), "{context}: {error}");
            client.control(&reset(DAMAGED)).await.unwrap();
            assert_eq!(members::await_whole(&client).await.unwrap(), None, "{context}");
            assert!(waits().await.is_empty(), "{context}");
            let engines = client.system_query().await.unwrap().engines;
            let events = client.engine_events(&engines[0].0, 0, 0).await.unwrap().events;
            let is_told = |event: &Event| event.known() == Some(EventCode::DamageStays);
            assert_eq!(events.iter().filter(|event| is_told(event)).count(), 1, "{context}");
            // What the two alone have is as new as it was, or as it was when the one left; all else is as it was.
            let map = members::newest_map(&client).await.unwrap();
            for (kv, keys, round) in &things.kvs {
                let of = kv.object.oid();
                for key in 0..*keys {
                    let found = kv.get(None, &key.to_le_bytes()).await.unwrap();
                    let is_old = *round > 0 && found == Some(value(key, 0));
                    older += usize::from(is_old);
                    let is_well =
                        found == Some(value(key, *round)) || is_old && is_theirs(kv, &map);
                    assert!(is_well, "{context}: {of}, {key}: {found:?}");
                }
            }
            let refused = things.refused(&context).await;
            assert!(refused < things.alone.len(), "{context}: what it has alone it keeps");
            things.must_be_equal(&client, &cont, &context).await;
            // And it goes on.
            things.write_some(2).await;
            things.check(&context).await;
            things.must_be_equal(&client, &cont, &context).await;
            let other = 2 + seed as usize % 2;
            cluster.kill_engine(other);
            things.check(&format!("{context}, without engine {other}")).await;
        });
    }
    assert!(older > 0, "nothing of what was given up had been changed");
}
