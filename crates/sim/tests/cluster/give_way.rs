//! What lost copies are made anew from gives way to clients.

use client::{Client, Container, KvObj};
use engine::StoreConfig;
use sim::{Cluster, ClusterSpec, members, seeds};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{ContProps, Durability, ObjType, PlacementRule, TargetId};
use uuid::Uuid;
use wire::control::{ControlRequest, Name, OpenMode, Subject, TargetAim};
use wire::obj::Cond;

const OBJECTS: u64 = 100;
const KEYS: u64 = 24;
const LOST: TargetId = TargetId(1);

fn pool() -> Name {
    Name::Label("p".into())
}

/// A pool on all targets, with a container.
async fn make(client: &Client) -> Container {
    let create = ControlRequest::PoolCreate {
        label: "p".into(),
        bytes: 1 << 30,
        scm_percent: 20,
        durability: Durability::Wal,
        targets: Vec::new(),
        placement: PlacementRule::Equal,
    };
    client.pool_create(create).await.unwrap();
    let pool = client.pool_open(&pool(), OpenMode::ReadWrite).await.unwrap();
    pool.cont_create("c", Uuid::nil(), ContProps::default(), BTreeMap::new()).await.unwrap();
    pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await.unwrap()
}

/// How long it takes until others have the copies of a target that is lost, with `heal_share` as it is said, and beside a client that reads all the time, or
/// none.
fn time_of(seed: u64, class: &str, share: &str, is_busy: bool) -> Duration {
    let spec = ClusterSpec { seed, engines: 5, targets: 1 };
    let cluster = Cluster::start_healing(spec, StoreConfig::default(), Some(3600)).unwrap();
    cluster.block_on(async {
        let client = cluster.client("c");
        let cont = make(&client).await;
        let kv = |number: u64| {
            let class = class.parse().unwrap();
            let oid = cont.generate_oid(ObjType::KvHashed, class, 0, number).unwrap();
            KvObj { object: cont.object(oid) }
        };
        let kvs: Vec<KvObj> = (0..OBJECTS).map(kv).collect();
        let value = |number: usize| vec![number as u8; 2_000];
        for (number, kv) in kvs.iter().enumerate() {
            for key in 0..KEYS {
                kv.put(None, Cond::NONE, &key.to_le_bytes(), &value(number)).await.unwrap();
            }
        }
        let props = BTreeMap::from([("heal_share".to_string(), share.to_string())]);
        let subject = Subject::Pool(pool());
        client.control(&ControlRequest::SetProps { subject, props }).await.unwrap();
        let (targets, aim) = (vec![LOST], TargetAim::Exclude);
        client.control(&ControlRequest::PoolAim { pool: pool(), targets, aim }).await.unwrap();
        let moves = async || {
            let map = members::newest_map(&client).await.unwrap();
            map.next.is_some() || map.outs.is_empty()
        };
        while members::newest_map(&client).await.unwrap().next.is_none() {
            client.env().sleep(Duration::from_millis(1)).await;
        }
        let begun = client.env().now();
        let mut asked = 0;
        while moves().await {
            let number = asked % kvs.len();
            match is_busy {
                true => {
                    let key = (asked as u64 % KEYS).to_le_bytes();
                    let found = kvs[number].get(None, &key).await.unwrap();
                    assert!(found == Some(value(number)), "seed {seed}, {class}: object {number}");
                }
                false => client.env().sleep(Duration::from_millis(1)).await,
            }
            asked += 1;
        }
        let took = client.env().now() - begun;
        for kv in &kvs {
            let differs = members::difference(&client, &cont, kv.object.oid()).await.unwrap();
            assert_eq!(differs, None, "seed {seed}, {class}");
        }
        took
    })
}

/// Where two copies are left, they are made anew in the part of the time that the pool says, and in all of it with nobody else there. It used to be all of it in
/// both cases. Where one is left it is twice that part.
#[test]
fn lost_copies_give_way_to_clients() {
    for seed in seeds(1) {
        let of_three = |share, is_busy| time_of(seed, "RP_3G1", share, is_busy);
        let (alone, all, little) =
            (of_three("1", false), of_three("100", true), of_three("1", true));
        println!("seed {seed}: {little:?} of three, {alone:?} alone, {all:?} with all of it");
        assert!(little * 2 > all * 3, "seed {seed}: {little:?} with 1 %, {all:?} with all of it");
        assert!(little * 2 > alone * 3, "seed {seed}: {little:?} beside clients, {alone:?} alone");
        let of_two = |share| time_of(seed, "RP_2G1", share, true);
        let (all, last) = (of_two("100"), of_two("1"));
        println!("seed {seed}: {last:?} of two, {all:?} with all of it");
        assert!(last * 2 > all * 3, "seed {seed}: {last:?} with 2 %, {all:?} with all of it");
        // Two thirds of the work of the others, in twice the part of the time: a third; in the same part it would be more than half.
        assert!(last * 2 < little, "seed {seed}: {last:?} where one is left, {little:?} of two");
    }
}
