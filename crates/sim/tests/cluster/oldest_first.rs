//! Moves go by last use, and targets are told how fast clients reach them.

use client::{ArrayObj, Client, Container, ReadFrom};
use engine::StoreConfig;
use sim::{Cluster, ClusterSpec, members, seeds};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{ContProps, Durability, ObjType, PlacementRule, TargetId};
use uuid::Uuid;
use wire::control::{ControlReply, ControlRequest, Name, OpenMode, Subject};
use wire::measure::Standing;
use wire::obj::Recx;

const ARRAYS: u64 = 240;
const BYTES: usize = 16 << 10;
/// Units that a target fetches at the same time.
const AT_ONCE: usize = 16;

fn pool() -> Name {
    Name::Label("p".into())
}

/// A pool on all targets but those of the last engine, with a container.
async fn make(client: &Client, engines: u32) -> Container {
    let create = ControlRequest::PoolCreate {
        label: "p".into(),
        bytes: 1 << 30,
        scm_percent: 20,
        durability: Durability::Wal,
        targets: (0..engines - 1).map(TargetId).collect(),
        placement: PlacementRule::Equal,
    };
    client.pool_create(create).await.unwrap();
    let pool = client.pool_open(&pool(), OpenMode::ReadWrite).await.unwrap();
    pool.cont_create("c", Uuid::nil(), ContProps::default(), BTreeMap::new()).await.unwrap();
    pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await.unwrap()
}

fn array(cont: &Container, class: &str, number: u64) -> ArrayObj {
    let oid = cont.generate_oid(ObjType::ArrayByte, class.parse().unwrap(), 0, number).unwrap();
    ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: 1 << 20 }
}

/// Every tenth array is read again and again, the others were for the last time an hour ago. When a target is added, and takes over its share, what
/// is read comes to it when nearly all the rest is there.
#[test]
fn what_is_used_moves_last() {
    seeds(2).for_each(|seed| move_by_use(seed, "S1", ReadFrom::Leaders));
}

/// The same of arrays with copies that are read from members that follow, too: these told nobody, so that what was read there alone looked unused, and moved first.
#[test]
fn what_is_used_at_members_moves_last() {
    seeds(2).for_each(|seed| move_by_use(seed, "RP_2G1", ReadFrom::Members));
}

fn move_by_use(seed: u64, class: &str, read_from: ReadFrom) {
    let spec = ClusterSpec { seed, engines: 4, targets: 1 };
    let cluster = Cluster::start_healing(spec, StoreConfig::default(), Some(60)).unwrap();
    cluster.block_on(async {
        let client = cluster.client_with("c", |options| options.read_from = read_from);
        let cont = make(&client, 4).await;
        let all: Vec<ArrayObj> = (0..ARRAYS).map(|number| array(&cont, class, number)).collect();
        let range = [Recx { index: 0, count: BYTES as u64 }];
        for (number, array) in all.iter().enumerate() {
            array.write(&range, &[&vec![number as u8; BYTES]]).await.unwrap();
        }
        let is_used = |number: usize| number.is_multiple_of(10);
        let read_used = async || {
            for (number, array) in all.iter().enumerate().filter(|(at, _)| is_used(*at)) {
                let mut memory = vec![0; BYTES];
                array.read(&range, &mut [&mut memory]).await.unwrap();
                assert!(memory == vec![number as u8; BYTES], "seed {seed}: {number}");
            }
        };
        client.env().sleep(Duration::from_secs(3600)).await;
        read_used().await;
        let props = BTreeMap::from([("heal_share".to_string(), "1".to_string())]);
        let subject = Subject::Pool(pool());
        client.control(&ControlRequest::SetProps { subject, props }).await.unwrap();
        let extend = ControlRequest::PoolExtend { pool: pool(), targets: Vec::new() };
        client.control(&extend).await.unwrap();
        client.control(&ControlRequest::PoolBalance { pool: pool() }).await.unwrap();
        let mut map = members::newest_map(&client).await.unwrap();
        while map.next.is_none() {
            assert_eq!(map.balanced, 0, "seed {seed}: it was over at once");
            client.env().sleep(Duration::from_millis(1)).await;
            map = members::newest_map(&client).await.unwrap();
        }
        let from_to = |array: &ArrayObj| {
            let layout = placement::layout(array.oid, &map).unwrap();
            let joiner = layout.joiners(0).next();
            joiner.map(|joiner| [layout.members(0)[0], joiner])
        };
        let mut under_way: Vec<(usize, [TargetId; 2])> = all
            .iter()
            .enumerate()
            .filter_map(|(number, array)| Some((number, from_to(array)?)))
            .collect();
        let of_used = |of: &[(usize, [TargetId; 2])]| {
            of.iter().filter(|(number, _)| is_used(*number)).count()
        };
        let (used, moving) = (of_used(&under_way), under_way.len());
        assert!(used >= 2 && moving - used >= 2 * AT_ONCE, "seed {seed}: {used} of {moving}");
        // Others that were still to come when the first one in use was there.
        let mut still_to_come = None;
        while still_to_come.is_none() && !under_way.is_empty() {
            read_used().await;
            let mut left = Vec::new();
            for &(number, targets) in &under_way {
                let oid = all[number].oid;
                match members::are_same(&client, &map, &cont, oid, targets).await {
                    Ok(true) => {}
                    Ok(false) => left.push((number, targets)),
                    // It is over, under another map.
                    Err(_) => {
                        still_to_come = Some(under_way.len() - of_used(&under_way));
                        break;
                    }
                }
            }
            if still_to_come.is_some() {
                break;
            }
            under_way = left;
            if of_used(&under_way) < used {
                still_to_come = Some(under_way.len() - of_used(&under_way));
            }
        }
        let still_to_come = still_to_come.unwrap();
        assert!(still_to_come < AT_ONCE, "seed {seed}: {still_to_come} of {moving}");
        let is_done = |map: &wire::map::PoolMap| map.balanced > 0 && map.next.is_none();
        assert_eq!(members::await_map(&client, is_done).await.unwrap(), None, "seed {seed}");
        read_used().await;
    });
}

async fn standing(client: &Client) -> Standing {
    let request = ControlRequest::TargetMeasure { target: TargetId(0), ask: None };
    match client.control(&request).await.unwrap() {
        ControlReply::Standing(standing) => standing,
        _ => panic!("not how a target stands"),
    }
}

/// A client that works for a while tells how fast it reaches a target by what it does; one that probes tells at once. What others do is nobody's matter.
#[test]
fn targets_know_how_fast_clients_reach_them() {
    for seed in seeds(2) {
        let spec = ClusterSpec { seed, engines: 2, targets: 1 };
        let cluster = Cluster::start(spec).unwrap();
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont = make(&client, 2).await;
            let array = array(&cont, "S1", 1);
            let data = vec![7; 1 << 20];
            let range = [Recx { index: 0, count: 1 << 20 }];
            let begun = client.env().now();
            while client.env().now() - begun < Duration::from_secs(50) {
                array.write(&range, &[&data]).await.unwrap();
                client.env().sleep(Duration::from_secs(1)).await;
            }
            assert_eq!(standing(&client).await.clients, None, "seed {seed}: too early");
            while client.env().now() - begun < Duration::from_secs(70) {
                array.write(&range, &[&data]).await.unwrap();
                client.env().sleep(Duration::from_secs(1)).await;
            }
            let worked = standing(&client).await.clients.unwrap();
            assert_eq!(worked.link_count, 1, "seed {seed}");
            let speed = worked.speed;
            assert!(0 < speed.kb_s_min && speed.kb_s_min <= speed.kb_s, "seed {seed}: {speed:?}");
            // One that is far away, and does nothing else.
            transport::SimNet::of(cluster.world()).set_far("d", Duration::from_millis(20));
            let far = cluster.client("d");
            let system = far.system_query().await.unwrap();
            let probed = far.probe_link(&system.engines[0].0, TargetId(0)).await.unwrap();
            assert!(probed.kb_s * 4 < speed.kb_s, "seed {seed}: {probed:?} {speed:?}");
            let both = standing(&client).await.clients.unwrap();
            assert_eq!((both.link_count, both.speed.kb_s), (2, speed.kb_s), "seed {seed}");
            assert_eq!(both.speed.kb_s_min, speed.kb_s_min.min(probed.kb_s_min), "seed {seed}");
            assert!(both.at_ns <= client.env().wall_ns(), "seed {seed}");
            array.write(&range, &[&data]).await.unwrap();
        });
    }
}
