//! How often engines decode a batch and go through its operations. Each new question about a batch once was one more pass, until there were
//! ten, and two decodings (`docs/decisions/2026-11-27-one-walk.md`). Whoever adds one has to change a number here.

use client::{Container, KvObj, Tx};
use sim::{Cluster, ClusterSpec};
use std::time::Duration;
use types::{ContLayout, Durability, ObjType, Oid};
use wire::obj::Cond;
use wire::walk::counted::{self, Counts};

/// The least that was counted while something was done several times: other messages come between.
async fn least(cont: &Container, each: impl AsyncFn()) -> (u64, u64) {
    let mut least = Counts { walks: u64::MAX, decodes: u64::MAX };
    for _ in 0..8 {
        counted::take();
        each().await;
        // What is done beside the answer: outcomes of transactions, orders for members.
        cont.client().env().sleep(Duration::from_millis(20)).await;
        let counts = counted::take();
        least.walks = least.walks.min(counts.walks);
        least.decodes = least.decodes.min(counts.decodes);
    }
    (least.decodes, least.walks)
}

fn kv(cont: &Container, class: &str, number: u64) -> KvObj {
    let oid: Oid = cont.generate_oid(ObjType::KvHashed, class.parse().unwrap(), 0, number).unwrap();
    KvObj { object: cont.object(oid) }
}

/// Two keys of different groups.
fn two_groups(cont: &Container, kv: &KvObj) -> [Vec<u8>; 2] {
    let oid = kv.object.oid();
    let layout = cont.layout(oid).unwrap();
    let keys: Vec<Vec<u8>> = (0..64u8).map(|at| vec![b'k', at]).collect();
    let group = |key: &[u8]| layout.group_of(oid, key);
    let other = keys.iter().find(|key| group(key) != group(&keys[0])).unwrap();
    [keys[0].clone(), other.clone()]
}

#[test]
fn a_batch_is_decoded_once_and_gone_through_three_times() {
    for durability in [Durability::Memory, Durability::Wal] {
        let cluster = Cluster::start(ClusterSpec { seed: 3, engines: 2, targets: 2 }).unwrap();
        cluster.block_on(async {
            let client = cluster.client("c0");
            let cont = cluster.container(&client, durability, ContLayout::Plain).await.unwrap();
            let one = kv(&cont, "S1", 1);
            let update = async || one.put(None, Cond::NONE, b"key", b"value").await.unwrap();
            update().await;
            // What it tells, whether its conditions hold and what it answers, what it changes.
            assert_eq!(least(&cont, update).await, (1, 3), "{durability:?}");
            // The first two of them.
            let fetch = async || assert!(one.get(None, b"key").await.unwrap().is_some());
            assert_eq!(least(&cont, fetch).await, (1, 2), "{durability:?}");
        });
    }
}

/// Members get an order, which is written from the operations, and noted until they have it. They decode it and carry it out.
#[test]
fn an_update_of_several_members_is_written_down_for_them_once() {
    let cluster = Cluster::start(ClusterSpec { seed: 3, engines: 2, targets: 2 }).unwrap();
    cluster.block_on(async {
        let client = cluster.client("c0");
        let cont = cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
        let both = kv(&cont, "RP_2G1", 1);
        let update = async || both.put(None, Cond::NONE, b"key", b"value").await.unwrap();
        update().await;
        let (decodes, walks) = least(&cont, update).await;
        assert_eq!((decodes, walks), (2, 9));
    });
}

/// A part of a transaction is gone through as a batch, and written down; then what is held is looked at, its keys are locked, and it
/// takes effect. Messages with it are decoded once, and once what is held.
#[test]
fn parts_of_transactions_are_gone_through_as_often_each() {
    let cluster = Cluster::start(ClusterSpec { seed: 3, engines: 2, targets: 2 }).unwrap();
    cluster.block_on(async {
        let client = cluster.client("c0");
        let cont = cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
        let wide = kv(&cont, "S4", 1);
        let keys = two_groups(&cont, &wide);
        let transaction = async || {
            let tx = Tx::open(&cont, false);
            for key in &keys {
                wide.put(Some(&tx), Cond::NONE, key, b"value").await.unwrap();
            }
            tx.commit().await.unwrap();
        };
        transaction().await;
        let (decodes, walks) = least(&cont, transaction).await;
        // The whole, the coordinator's part, the other's, and both as they are held; and the outcome, which has no batch, twice: what
        // is asked seldom is told apart by that.
        assert_eq!((decodes, walks), (7, 2 * 6));
    });
}
