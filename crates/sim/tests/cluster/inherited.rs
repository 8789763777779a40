//! Groups that come from another target after a change of leaders: whom who leads them now waits for, and who waits for nobody.

use client::{ArrayObj, Client, Container, LockAsk, LockKind, LockMode, LockRange};
use sim::{Cluster, ClusterSpec, members, seeds};
use std::time::Duration;
use types::{ContLayout, ContProps, Durability, ObjType, PlacementRule, TargetId};
use uuid::Uuid;
use wire::control::{ControlRequest, Name, OpenMode};
use wire::map::{PoolMap, TargetState};
use wire::obj::{Op, Recx};

const ARRAY_BYTES: usize = 512 << 10;
const SECOND: Duration = Duration::from_secs(1);

fn pool() -> Name {
    Name::Label("p".into())
}

async fn open(client: &Client) -> Container {
    let pool = client.pool_open(&pool(), OpenMode::ReadWrite).await.unwrap();
    pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await.unwrap()
}

/// An array whose first leader, or one that has not, is a target.
fn array(cont: &Container, class: &str, target: TargetId, leads: bool, nth: usize) -> ArrayObj {
    let map = cont.pool().map();
    let of_number = |number: u64| {
        cont.generate_oid(ObjType::ArrayByte, class.parse().unwrap(), 0, number).unwrap()
    };
    let is_wanted = |oid: &_| (cont.layout(*oid).unwrap().leader(0, &map) == Some(target)) == leads;
    let oid = (0..).map(of_number).filter(is_wanted).nth(nth).unwrap();
    ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: 1 << 20 }
}

async fn put(array: &ArrayObj) {
    let all = [Recx { index: 0, count: ARRAY_BYTES as u64 }];
    array.write(&all, &[&[7; ARRAY_BYTES]]).await.unwrap();
}

/// As who removes a file's last name.
async fn unlink(array: &ArrayObj) {
    let mut batch = array.cont.batch();
    batch.op(Op::PunchUnlessOpen { unit: array.oid.first_unit() });
    batch.run().await.unwrap();
}

async fn is_freed(array: &ArrayObj) -> bool {
    array.size().await.unwrap() == 0
}

/// Waits for a map in which a target is up, or is not.
async fn await_state(client: &Client, target: TargetId, is_up: bool) {
    let is_there = |map: &PoolMap| {
        map.target(target).is_some_and(|known| (known.state == TargetState::Up) == is_up)
    };
    while !is_there(&members::newest_map(client).await.unwrap()) {
        client.env().sleep(SECOND / 10).await;
    }
}

/// Nothing that was removed anywhere in a pool was freed for half a minute after any change of leaders, and nobody got a lock for five seconds: who makes and removes
/// much was told that a pool is full in which next to nothing was.
#[test]
fn who_led_a_group_all_along_waits_for_nobody() {
    for seed in seeds(6) {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 3, targets: 1 }).unwrap();
        cluster.block_on(async {
            let client = cluster.client("a");
            cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let cont = open(&client).await;
            let lost = TargetId(1);
            let [its, again] = [0, 1].map(|nth| array(&cont, "RP_2G1", lost, true, nth));
            let others: Vec<_> =
                (0..12).map(|nth| array(&cont, "RP_2G1", lost, false, nth)).collect();
            for array in others.iter().chain([&its]) {
                put(array).await;
            }
            cluster.kill_engine(1);
            await_state(&client, lost, false).await;
            let begun = client.env().now();
            let lock = LockAsk {
                kind: LockKind::Posix,
                owner: 1,
                range: LockRange::WHOLE,
                mode: LockMode::Exclusive,
                pid: 1,
                wait: false,
            };
            for array in &others {
                cont.lock(array.oid, &lock, None).await.unwrap();
                unlink(array).await;
                assert!(is_freed(array).await, "seed {seed}: {}", array.oid);
            }
            let took = client.env().now() - begun;
            assert!(took < SECOND, "seed {seed}: the lock of what had its leader: {took:?}");
            unlink(&its).await;
            client.env().sleep(20 * SECOND).await;
            assert!(!is_freed(&its).await, "seed {seed}: somebody may have it open");
            client.env().sleep(15 * SECOND).await;
            assert!(is_freed(&its).await, "seed {seed}: nobody has it open");
            // Who was away knows of nothing, whatever it led before.
            cluster.start_engine(1).await.unwrap();
            await_state(&client, lost, true).await;
            put(&again).await;
            unlink(&again).await;
            client.env().sleep(10 * SECOND).await;
            assert!(!is_freed(&again).await, "seed {seed}: somebody may have opened it meanwhile");
            client.env().sleep(25 * SECOND).await;
            assert!(is_freed(&again).await, "seed {seed}");
        });
    }
}

/// In a full pool whatever was removed took its room for half a minute after a change of leaders, and writers stood still or were refused.
#[test]
fn where_room_is_short_what_was_removed_goes_after_a_moment() {
    for seed in seeds(3) {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 3, targets: 1 }).unwrap();
        cluster.block_on(async {
            let client = cluster.client("a");
            let create = ControlRequest::PoolCreate {
                label: "p".into(),
                bytes: 3 * (48 << 20),
                scm_percent: 20,
                durability: Durability::Wal,
                placement: PlacementRule::Equal,
                targets: Vec::new(),
            };
            client.pool_create(create).await.unwrap();
            let opened = client.pool_open(&pool(), OpenMode::ReadWrite).await.unwrap();
            let props = Default::default();
            opened.cont_create("c", Uuid::nil(), ContProps::default(), props).await.unwrap();
            let cont = open(&client).await;
            let lost = TargetId(1);
            let (held, its) =
                (array(&cont, "RP_2G1", lost, true, 0), array(&cont, "RP_2G1", lost, true, 1));
            put(&held).await;
            put(&its).await;
            let mut batch = cont.batch();
            batch.op(Op::Open { unit: held.oid.first_unit() });
            batch.run().await.unwrap();
            for target in (0..3).map(TargetId) {
                let is_short = async || opened.query_one(target).await.unwrap().is_short();
                let mut nth = 0;
                while !is_short().await {
                    put(&array(&cont, "S1", target, true, nth)).await;
                    nth += 1;
                }
            }
            cluster.kill_engine(1);
            await_state(&client, lost, false).await;
            unlink(&its).await;
            unlink(&held).await;
            client.env().sleep(2 * SECOND).await;
            assert!(!is_freed(&its).await, "seed {seed}: somebody may have it open");
            client.env().sleep(6 * SECOND).await;
            assert!(is_freed(&its).await, "seed {seed}: it takes room that is wanted");
            client.env().sleep(60 * SECOND).await;
            assert!(!is_freed(&held).await, "seed {seed}: it is open");
        });
    }
}
