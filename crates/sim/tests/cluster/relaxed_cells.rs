//! Stripes of `relaxed` pools, of which two members lose their power at once: what was written a moment ago may be gone, what was there before is not.
//!
//! Cells were kept as all else is in such a pool: acknowledged, and written milliseconds later. What a client or a fold had named by then was named for ever, and
//! two members that had lost their cells of it made a read an error that no older value took the place of.

use client::{ArrayObj, Client, Container};
use sim::{Cluster, ClusterSpec, members, seeds};
use std::time::Duration;
use types::{ContLayout, Durability, ObjType};
use wire::obj::Recx;

const STRIPE: u64 = 128 << 10;
/// Which two of the three engines lose their power.
const PAIRS: [[usize; 2]; 3] = [[0, 1], [0, 2], [1, 2]];

fn file(cont: &Container, number: u64) -> ArrayObj {
    let class = "EC_2P1G1".parse().unwrap();
    let oid = cont.generate_oid(ObjType::ArrayByte, class, 0, number).unwrap();
    ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: 1 << 20 }
}

async fn write(file: &ArrayObj, at: u64, bytes: u64, value: u8) {
    let data = vec![value; bytes as usize];
    file.write(&[Recx { index: at, count: bytes }], &[&data]).await.unwrap();
}

/// What all bytes of the stripe are.
async fn value(file: &ArrayObj, context: &str) -> u8 {
    let mut found = vec![0xee; STRIPE as usize];
    let read = file.read(&[Recx { index: 0, count: STRIPE }], &mut [&mut found]).await;
    assert!(read.is_ok(), "{context}: {}", read.unwrap_err());
    assert!(found.iter().all(|byte| *byte == found[0]), "{context}: of several writes");
    found[0]
}

async fn lose_power(cluster: &Cluster, client: &Client, pair: [usize; 2], context: &str) {
    pair.into_iter().for_each(|engine| cluster.kill_engine(engine));
    for engine in pair {
        cluster.start_engine(engine).await.unwrap();
    }
    assert_eq!(members::await_whole(client).await.unwrap(), None, "{context}");
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A client codes the stripe and has it named over one that was there before.
#[test]
fn a_stripe_that_was_just_named_is_there_or_what_it_was() {
    for seed in seeds(2) {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 3, targets: 1 }).unwrap();
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont = cluster.container(&client, Durability::Relaxed, ContLayout::Plain).await;
            let cont = cont.unwrap();
            for (number, pair) in (1..).zip(PAIRS) {
                for after_ms in [0, 1, 3] {
                    let context = format!("seed {seed}, engines {pair:?}, {after_ms} ms later");
                    let file = file(&cont, 10 * number + after_ms);
                    write(&file, 0, STRIPE, 1).await;
                    // After trouble the client takes the other way for a while.
                    client.env().sleep(millis(10_000)).await;
                    // It hears that all are whole.
                    cont.pool().query().await.unwrap();
                    let named = cont.cell_traffic().written;
                    write(&file, 0, STRIPE, 2).await;
                    assert_eq!(cont.cell_traffic().written, named + 1, "{context}");
                    client.env().sleep(millis(after_ms)).await;
                    lose_power(&cluster, &client, pair, &context).await;
                    let found = value(&file, &context).await;
                    assert!(found == 1 || found == 2, "{context}: {found}");
                }
            }
        });
    }
}

/// What had long been written in copies gave way to cells that were not.
#[test]
fn a_stripe_that_is_folded_just_then_loses_nothing() {
    for seed in seeds(1) {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 3, targets: 1 }).unwrap();
        cluster.block_on(async {
            let client = cluster.client_without_codes("c");
            let cont = cluster.container(&client, Durability::Relaxed, ContLayout::Plain).await;
            let cont = cont.unwrap();
            for (number, pair) in (1..).zip(PAIRS) {
                // A fold begins 50 ms after the first write.
                for after_ms in 48..64 {
                    let context = format!("seed {seed}, engines {pair:?}, {after_ms} ms later");
                    let file = file(&cont, 100 * number + after_ms);
                    write(&file, 0, STRIPE / 2, 3).await;
                    write(&file, STRIPE / 2, STRIPE / 2, 3).await;
                    client.env().sleep(millis(after_ms)).await;
                    lose_power(&cluster, &client, pair, &context).await;
                    assert_eq!(value(&file, &context).await, 3, "{context}");
                }
            }
        });
    }
}
