//! Objects that are kept more than once.

use client::{ArrayObj, Client, Container, KvObj, Tx};
use sim::{Cluster, ClusterSpec, seeds};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{ContLayout, Durability, ObjType, Result};
use wire::control::{Name, OpenMode};
use wire::obj::{Cond, Recx};

async fn open(client: &Client) -> Result<Container> {
    let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await?;
    pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await
}

fn kv(cont: &Container, class: &str, number: u64) -> KvObj {
    let oid = cont.generate_oid(ObjType::KvHashed, class.parse().unwrap(), 0, number).unwrap();
    KvObj { object: cont.object(oid) }
}

fn array(cont: &Container, class: &str, number: u64) -> ArrayObj {
    let oid = cont.generate_oid(ObjType::ArrayByte, class.parse().unwrap(), 0, number).unwrap();
    ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: 65_536 }
}

/// Values, arrays, appends, removals and transactions over groups, in each class and durability.
#[test]
fn objects_with_copies_are_objects_like_others() {
    for (seed, durability) in [(1, Durability::Memory), (2, Durability::Wal)] {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 3, targets: 2 }).unwrap();
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont = cluster.container(&client, durability, ContLayout::Plain).await.unwrap();
            for (number, class) in ["RP_2G1", "RP_2GX", "RP_3G1", "RP_3GX"].iter().enumerate() {
                let kv = kv(&cont, class, number as u64);
                for key in 0..40u64 {
                    let value = vec![key as u8; if key % 4 == 0 { 20_000 } else { 30 }];
                    kv.put(None, Cond::DKEY_INSERT, &key.to_le_bytes(), &value).await.unwrap();
                }
                kv.remove(None, Cond::PUNCH, &7u64.to_le_bytes()).await.unwrap();
                assert!(kv.get(None, &7u64.to_le_bytes()).await.unwrap().is_none());
                let large = kv.get(None, &8u64.to_le_bytes()).await.unwrap().unwrap();
                assert!(large == vec![8; 20_000]);
                let array = array(&cont, class, 100 + number as u64);
                let data: Vec<u8> = (0..300_000u32).map(|at| (at % 251) as u8).collect();
                let all = [Recx { index: 10, count: data.len() as u64 }];
                array.write(&all, &[&data]).await.unwrap();
                assert_eq!(array.append(&[b"behind"]).await.unwrap(), 300_010);
                let mut read = vec![1; 300_016];
                let whole = [Recx { index: 0, count: 300_016 }];
                array.read(&whole, &mut [&mut read]).await.unwrap();
                assert!(read[..10] == [0; 10] && read[10..300_010] == data[..]);
                assert!(&read[300_010..] == b"behind");
                array.set_size(100_000).await.unwrap();
                assert_eq!(array.size().await.unwrap(), 100_000);
                // Over groups, all or nothing.
                let tx = Tx::open(&cont, false);
                for key in 0..40u64 {
                    kv.put(Some(&tx), Cond::NONE, &key.to_le_bytes(), b"together").await.unwrap();
                }
                tx.commit().await.unwrap();
                for key in 0..40u64 {
                    let found = kv.get(None, &key.to_le_bytes()).await.unwrap();
                    assert_eq!(found.as_deref(), Some(&b"together"[..]));
                }
                array.destroy().await.unwrap();
                assert_eq!(array.size().await.unwrap(), 0);
            }
        });
    }
}

/// Engines die and come back; what was acknowledged stays, and is applied once.
#[test]
fn acknowledged_updates_of_copies_survive_engines_that_die() {
    for seed in seeds(10) {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 3, targets: 1 }).unwrap();
        cluster.block_on(async {
            let setup = cluster.client("setup");
            cluster.container(&setup, Durability::Wal, ContLayout::Plain).await.unwrap();
            let stop = Cell::new(false);
            let known: RefCell<BTreeMap<Vec<u8>, Vec<u8>>> = RefCell::default();
            let writer = async |number: u64| {
                let client = cluster.client(&format!("w{number}"));
                let cont = open(&client).await.unwrap();
                let kv = kv(&cont, if number == 0 { "RP_2GX" } else { "RP_3GX" }, number);
                for round in 0..40u64 {
                    let key = format!("w{number}-{round}").into_bytes();
                    let mut value = format!("{number}.{round}.").into_bytes();
                    value.resize(if round % 5 == 0 { 10_000 } else { 50 }, b'v');
                    kv.put(None, Cond::DKEY_INSERT, &key, &value).await.unwrap();
                    known.borrow_mut().insert(key, value);
                }
            };
            let work = async {
                futures_util::future::join3(writer(0), writer(1), writer(2)).await;
                stop.set(true);
            };
            let trouble = async {
                let env = cluster.world().node("trouble");
                while !stop.get() {
                    env.sleep(Duration::from_micros(env.random_u64() % 40_000)).await;
                    let at = (env.random_u64() % 3) as usize;
                    cluster.kill_engine(at);
                    env.sleep(Duration::from_micros(env.random_u64() % 30_000)).await;
                    cluster.start_engine(at).await.unwrap();
                }
            };
            futures_util::future::join(work, trouble).await;
            let reader = cluster.client("reader");
            let cont = open(&reader).await.unwrap();
            for (key, value) in &known.take() {
                let number = u64::from(key[1] - b'0');
                let kv = kv(&cont, if number == 0 { "RP_2GX" } else { "RP_3GX" }, number);
                let found = kv.get(None, key).await.unwrap();
                assert!(
                    found.as_deref() == Some(&value[..]),
                    "seed {seed}: {}",
                    key.escape_ascii()
                );
            }
        });
    }
}
