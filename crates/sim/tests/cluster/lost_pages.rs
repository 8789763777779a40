//! Damaged pages of the index: what has copies or a code is whole again, from other members; what has not is refused, never
//! taken for something that was not there.

use client::{ArrayObj, Client, Container, KvObj};
use engine::StoreConfig;
use sim::pages::flip_pages;
use sim::{Cluster, ClusterSpec, members, parity, seeds};
use std::time::Duration;
use types::{Code, ContLayout, Durability, ObjType, Oid};
use wire::obj::{Cond, Recx};

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
            let differs = found.iter().zip(&is).position(|(a, b)| a != b);
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
