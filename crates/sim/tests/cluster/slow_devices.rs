//! Devices that become slow while they still do all they are asked (gray failures).

use client::{ArrayObj, Client};
use engine::StoreConfig;
use env::DiskFaults;
use sim::{Cluster, ClusterSpec, members, seeds};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{ContProps, Durability, ObjType, PlacementRule, TargetId};
use uuid::Uuid;
use wire::control::{ControlReply, ControlRequest, Name, OpenMode, Subject};
use wire::map::PoolMap;
use wire::measure::{MeasureAsk, Measures};
use wire::obj::Recx;

const BYTES: usize = 256 << 10;

fn pool() -> Name {
    Name::Label("p".into())
}

async fn measured(client: &Client, target: u32, ask: Option<MeasureAsk>) -> Measures {
    let request = ControlRequest::TargetMeasure { target: TargetId(target), ask };
    match client.control(&request).await.unwrap() {
        ControlReply::Standing(standing) => standing.measures.unwrap(),
        _ => panic!("not how a target stands"),
    }
}

/// One device becomes slow under load: that is found by what it does, the target's share falls at once, data leave it, and nothing
/// comes back before it is as fast again.
#[test]
fn a_device_that_becomes_slow_loses_its_share() {
    for seed in seeds(2) {
        let spec = ClusterSpec { seed, engines: 4, targets: 1 };
        let cluster = Cluster::start_healing(spec, StoreConfig::default(), Some(60)).unwrap();
        let slow = |is_slow: bool| {
            let (latency_min, latency_max) = match is_slow {
                true => (Duration::from_millis(25), Duration::from_millis(35)),
                false => (Duration::from_micros(50), Duration::from_micros(60)),
            };
            let faults = DiskFaults {
                latency_min,
                latency_max,
                space_bytes: 64 << 30,
                ..DiskFaults::default()
            };
            cluster.world().disk(&Cluster::engine_name(2)).set_faults(faults);
        };
        for at in 0..4 {
            let (latency_min, latency_max) = (Duration::from_micros(50), Duration::from_micros(60));
            let space_bytes = 64 << 30;
            let faults = DiskFaults { latency_min, latency_max, space_bytes, ..Default::default() };
            cluster.world().disk(&Cluster::engine_name(at)).set_faults(faults);
        }
        cluster.block_on(async {
            let client = cluster.client("c");
            let env = client.env().clone();
            let ask = MeasureAsk { bytes: 8 << 20, step_ms_max: 250, once: false };
            for target in 0..4 {
                assert_eq!(measured(&client, target, Some(ask)).await.past, None);
            }
            let create = ControlRequest::PoolCreate {
                label: "p".into(),
                bytes: 1 << 30,
                scm_percent: 20,
                durability: Durability::Wal,
                targets: Vec::new(),
                placement: PlacementRule::Score,
            };
            client.pool_create(create).await.unwrap();
            let props = BTreeMap::from([("balance".to_string(), "auto".to_string())]);
            let subject = Subject::Pool(pool());
            client.control(&ControlRequest::SetProps { subject, props }).await.unwrap();
            let pool = client.pool_open(&pool(), OpenMode::ReadWrite).await.unwrap();
            pool.cont_create("c", Uuid::nil(), ContProps::default(), BTreeMap::new())
                .await
                .unwrap();
            let name = Name::Label("c".into());
            let cont = pool.cont_open(&name, OpenMode::ReadWrite).await.unwrap();
            let array = |number: u64| {
                let class = "S1".parse().unwrap();
                let oid = cont.generate_oid(ObjType::ArrayByte, class, 0, number).unwrap();
                ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: 1 << 20 }
            };
            let content = |number: u64| vec![number as u8; BYTES];
            let range = [Recx { index: 0, count: BYTES as u64 }];
            let arrays: Vec<ArrayObj> = (0..64).map(array).collect();
            let write_all = async || {
                for (number, array) in arrays.iter().enumerate() {
                    array.write(&range, &[&content(number as u64)]).await.unwrap();
                }
            };
            let read_all = async || {
                for (number, array) in arrays.iter().enumerate() {
                    let mut memory = vec![0; BYTES];
                    array.read(&range, &mut [&mut memory]).await.unwrap();
                    assert!(memory == content(number as u64), "seed {seed}: {number}");
                }
            };
            let of = |map: &PoolMap| -> (TargetId, usize) {
                let rank = |id| map.target(id).unwrap().rank.0;
                let slow = map.targets.iter().find(|target| target.rank.0 == 2).unwrap().id;
                let on = |array: &&ArrayObj| {
                    let layout = placement::layout(array.oid, map).unwrap();
                    rank(layout.targets()[0]) == 2
                };
                (slow, arrays.iter().filter(on).count())
            };
            write_all().await;
            let map = members::newest_map(&client).await.unwrap();
            let (target, before) = of(&map);
            assert!(before >= 6, "seed {seed}: {before}");
            slow(true);
            let mut rounds = 0;
            while members::newest_map(&client).await.unwrap().balanced == 0 {
                write_all().await;
                read_all().await;
                rounds += 1;
                assert!(rounds < 500, "seed {seed}: nobody notices");
            }
            let past = measured(&client, target.0, None).await.past;
            assert!(past.is_some(), "seed {seed}");
            let map = members::newest_map(&client).await.unwrap();
            let after = of(&map).1;
            assert!(after * 4 <= before, "seed {seed}: {after} of {before} are left");
            write_all().await;
            read_all().await;
            // Nothing goes to and fro, however long it is.
            env.sleep(Duration::from_secs(3600)).await;
            assert_eq!(members::newest_map(&client).await.unwrap().placements.len(), 2, "{seed}");
            // It is exchanged for a good one, as it were. Found when nobody works, and data come back.
            slow(false);
            let is_back = |map: &PoolMap| map.balanced > 1 && map.next.is_none();
            for _ in 0..20 {
                if members::await_map(&client, is_back).await.unwrap().is_none() {
                    break;
                }
            }
            let map = members::newest_map(&client).await.unwrap();
            assert!(is_back(&map), "seed {seed}: {:?}", map.placements);
            assert_eq!(measured(&client, target.0, None).await.past, None, "seed {seed}");
            let back = of(&map).1;
            assert!(back * 2 >= before, "seed {seed}: {back} of {before} have come back");
            read_all().await;
        });
    }
}
