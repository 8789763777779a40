//! How long clients wait for engines that are away: for ever, or as long as they were told.

use client::{Client, ConnectOptions, Container, KvObj, Patience};
use sim::{Cluster, ClusterSpec};
use std::time::Duration;
use types::{Code, ContLayout, Durability, ObjType};
use wire::control::{Name, OpenMode};
use wire::obj::Cond;

fn patient(cluster: &Cluster, name: &str, patience: Patience) -> Client {
    let timeout = patience.limit();
    let options = ConnectOptions { timeout, ..cluster.client(name).options().clone() };
    Client::new(cluster.world().node(name), name.to_string(), options)
}

async fn open(client: &Client) -> (Container, KvObj) {
    let name = |text: &str| Name::Label(text.into());
    let pool = client.pool_open(&name("p"), OpenMode::ReadWrite).await.unwrap();
    let cont = pool.cont_open(&name("c"), OpenMode::ReadWrite).await.unwrap();
    let oid = cont.generate_oid(ObjType::KvHashed, "S1".parse().unwrap(), 0, 1).unwrap();
    let kv = KvObj { object: cont.object(oid) };
    (cont, kv)
}

/// A minute without an engine once was an error for every program, whatever it was ready to wait.
#[test]
fn the_patient_wait_for_an_hour_and_others_as_long_as_they_said() {
    let cluster = Cluster::start(ClusterSpec { seed: 11, engines: 1, targets: 2 }).unwrap();
    let maker = cluster.client("maker");
    cluster.block_on(cluster.container(&maker, Durability::Wal, ContLayout::Plain)).unwrap();
    let (hard, soft) = (
        patient(&cluster, "hard", Patience::Hard),
        patient(&cluster, "soft", Patience::Soft(Duration::from_secs(7))),
    );
    let late = patient(&cluster, "late", Patience::Hard);
    cluster.block_on(async {
        let ((_a, first), (_b, second)) = (open(&hard).await, open(&soft).await);
        first.put(None, Cond::NONE, b"k", b"before").await.unwrap();
        second.put(None, Cond::NONE, b"l", b"before").await.unwrap();
        cluster.kill_engine(0);
        let env = cluster.world().node("clock");
        let begun = env.now();
        let error = second.put(None, Cond::NONE, b"l", b"lost?").await.unwrap_err();
        assert_eq!(error.code, Code::TimedOut, "{error}");
        let waited = env.now() - begun;
        assert!(waited <= Duration::from_secs(11), "virtual time: {waited:?}");
        let waiting = first.put(None, Cond::NONE, b"k", b"after");
        // Somebody who only begins now, with the control service.
        let coming = open(&late);
        let back = async {
            env.sleep(Duration::from_secs(3600)).await;
            cluster.start_engine(0).await.unwrap();
        };
        let (put, (_c, third), ()) = futures_util::join!(waiting, coming, back);
        put.unwrap();
        assert_eq!(third.get(None, b"k").await.unwrap().unwrap(), b"after");
        let found = third.get(None, b"l").await.unwrap().unwrap();
        assert!(found == b"before" || found == b"lost?");
    });
}
