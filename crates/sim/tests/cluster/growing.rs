//! Engines that get further targets while they run.

use client::{ArrayObj, Client, Container, KvObj};
use engine::StoreConfig;
use sim::{Cluster, ClusterSpec, members, seeds};
use std::time::Duration;
use types::{ContLayout, Durability, ObjType, Rank, TargetId};
use wire::control::{ControlReply, ControlRequest, Name, Subject};
use wire::map::PoolMap;
use wire::obj::{Cond, Recx};

const KVS: u64 = 40;
const ARRAYS: u64 = 6;
const BYTES: usize = 300_000;

struct Work {
    kvs: Vec<KvObj>,
    arrays: Vec<ArrayObj>,
}

impl Work {
    fn new(cont: &Container) -> Work {
        let oid = |kind, class: &str, number| {
            cont.generate_oid(kind, class.parse().unwrap(), 0, number).unwrap()
        };
        let class = |number: u64| ["S1", "RP_2G1"][number as usize % 2];
        let kv = |number| KvObj {
            object: cont.object(oid(ObjType::KvHashed, class(number), 100 + number)),
        };
        let array = |number| ArrayObj {
            cont: cont.clone(),
            oid: oid(ObjType::ArrayByte, "EC_2P1G1", 500 + number),
            record_bytes: 1,
            chunk_records: 1 << 20,
        };
        Work { kvs: (0..KVS).map(kv).collect(), arrays: (0..ARRAYS).map(array).collect() }
    }

    async fn write(&self, round: u8) {
        for (number, kv) in self.kvs.iter().enumerate() {
            kv.put(None, Cond::NONE, b"key", &[round, number as u8]).await.unwrap();
        }
        for (number, array) in self.arrays.iter().enumerate() {
            let data = vec![round ^ number as u8; BYTES];
            let all = [Recx { index: 0, count: BYTES as u64 }];
            array.write(&all, &[&data]).await.unwrap();
        }
    }

    async fn check(&self, round: u8, context: &str) {
        for (number, kv) in self.kvs.iter().enumerate() {
            let found = kv.get(None, b"key").await.unwrap();
            assert_eq!(found.as_deref(), Some(&[round, number as u8][..]), "{context}");
        }
        for (number, array) in self.arrays.iter().enumerate() {
            let mut data = vec![0xee; BYTES];
            let all = [Recx { index: 0, count: BYTES as u64 }];
            array.read(&all, &mut [&mut data]).await.unwrap();
            assert!(data == vec![round ^ number as u8; BYTES], "{context}: array {number}");
        }
    }
}

/// Room that a target counts as its own.
async fn free_bytes(client: &Client, target: TargetId) -> u64 {
    let request = ControlRequest::TargetMeasure { target, ask: None };
    match client.control(&request).await.unwrap() {
        ControlReply::Standing(standing) => standing.free_bytes,
        other => panic!("{other:?}"),
    }
}

/// The pool takes the new target in, and data come to it by themselves while everybody goes on writing. Killed right after it was told, or later, the engine
/// comes back with all of its targets. In half of the seeds these have their data in one directory, which the first had alone; then they share
/// its room.
///
/// Seed 1: who was to come to a group of two had an update that the other member refused, for it knew already that the leader leads no more. Who was to come
/// led next, answered the client that it was done, and did not compare; with it killed the update was lost.
#[test]
fn an_engine_gets_a_target_and_data_come_to_it() {
    for seed in seeds(4) {
        // That of the catalog, too.
        let grown = (seed % 3) as usize;
        let is_killed_at_once = seed % 2 == 1;
        let is_shared = seed / 2 % 2 == 1;
        let spec = ClusterSpec { seed, engines: 3, targets: 1 };
        let nvme = if is_shared { vec!["/shared".into()] } else { Vec::new() };
        let store = StoreConfig { nvme, ..StoreConfig::default() };
        let cluster = Cluster::start_healing(spec, store, Some(60)).unwrap();
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let pool = || Name::Label("p".into());
            let props = [("balance".to_string(), "auto".to_string())].into();
            let subject = Subject::Pool(pool());
            client.control(&ControlRequest::SetProps { subject, props }).await.unwrap();
            let work = Work::new(&cont);
            work.write(1).await;
            let first = {
                let map = members::newest_map(&client).await.unwrap();
                map.targets.iter().find(|held| held.rank == Rank(grown as u32)).unwrap().id
            };
            let alone = free_bytes(&client, first).await;
            cluster.grow_engine(grown).await.unwrap();
            let together = free_bytes(&client, first).await;
            assert_eq!(together < alone / 3 * 2, is_shared, "seed {seed}: {together} of {alone}");
            let restart = async || {
                cluster.kill_engine(grown);
                client.env().sleep(Duration::from_millis(client.env().random_u64() % 9_000)).await;
                cluster.start_engine(grown).await.unwrap();
            };
            if is_killed_at_once {
                restart().await;
            }
            work.write(2).await;
            // As soon as the engine is up again.
            let extend = ControlRequest::PoolExtend { pool: pool(), targets: Vec::new() };
            while let Err(error) = client.control(&extend).await {
                assert!(error.code != types::Code::Inval, "seed {seed}: {error}");
                client.env().sleep(Duration::from_millis(500)).await;
            }
            let is_over = |map: &PoolMap| map.balanced == 1 && map.next.is_none();
            let mut round = 2;
            while !is_over(&members::newest_map(&client).await.unwrap()) {
                round += 1;
                assert!(round < 200, "seed {seed}: it has no end");
                work.write(round).await;
                client.env().sleep(Duration::from_millis(200)).await;
            }
            let context = format!("seed {seed}");
            work.check(round, &context).await;
            let map = members::newest_map(&client).await.unwrap();
            let of_grown = map.targets.iter().filter(|held| held.rank == Rank(grown as u32));
            assert_eq!((map.targets.len(), of_grown.count()), (4, 2), "{context}");
            let new = map.targets.iter().map(|held| held.id).max().unwrap();
            let has_new = |kv: &&KvObj| {
                let layout = placement::layout(kv.object.oid(), &map).unwrap();
                layout.targets().contains(&new)
            };
            assert!(work.kvs.iter().filter(has_new).count() > 0, "{context}: nothing has come");
            restart().await;
            assert_eq!(members::await_whole(&client).await.unwrap(), None, "{context}");
            if is_shared {
                let (old, new) = (free_bytes(&client, first).await, free_bytes(&client, new).await);
                assert!(old.abs_diff(new) < alone / 100 && old < alone / 3 * 2, "{context}");
            }
            work.check(round, &context).await;
            for array in &work.arrays {
                let differs = members::difference(&client, &cont, array.oid).await.unwrap();
                assert_eq!(differs, None, "{context}");
            }
        });
    }
}
