//! All engines are stopped in order, and not all are started again.

use client::{Client, Container, KvObj};
use sim::{Cluster, ClusterSpec};
use std::time::Duration;
use types::{ContLayout, Durability, ObjType};
use wire::control::{Name, OpenMode};
use wire::obj::Cond;

const OBJECTS: u64 = 12;
const ENGINES: usize = 3;

fn objects(cont: &Container) -> impl Iterator<Item = (u64, KvObj)> {
    (0..OBJECTS).map(|number| {
        let class = "RP_2G1".parse().unwrap();
        let oid = cont.generate_oid(ObjType::KvHashed, class, 0, number).unwrap();
        (number, KvObj { object: cont.object(oid) })
    })
}

async fn opened(client: &Client) -> Container {
    let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await.unwrap();
    pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await.unwrap()
}

/// Those that were there again waited for the one that was not: it was called down last, so it could have what nobody else has, as after a loss of power. In a
/// `relaxed` pool nothing of what has copies was served until it was back.
#[test]
fn who_was_ended_in_order_has_all_whoever_is_not_back() {
    for durability in [Durability::Wal, Durability::Relaxed] {
        for missing in 1..ENGINES {
            let spec = ClusterSpec { seed: 3, engines: ENGINES, targets: 1 };
            let cluster = Cluster::start(spec).unwrap();
            cluster.block_on(async {
                let client = cluster.client("before");
                let made = cluster.container(&client, durability, ContLayout::Plain).await;
                for (number, object) in objects(&made.unwrap()) {
                    object.put(None, Cond::NONE, b"key", &number.to_le_bytes()).await.unwrap();
                }
                client.env().sleep(Duration::from_secs(10)).await;
                for (number, object) in objects(&opened(&client).await) {
                    object.put(None, Cond::NONE, b"late", &number.to_le_bytes()).await.unwrap();
                }
                cluster.stop_all().await.unwrap();
                (0..ENGINES).for_each(|at| cluster.kill_engine(at));
                for at in (0..ENGINES).filter(|at| *at != missing) {
                    cluster.start_engine(at).await.unwrap();
                }
                let client = cluster.client_within("after", Duration::from_secs(60));
                for (number, object) in objects(&opened(&client).await) {
                    let what = format!("{durability:?}, {number} without engine {missing}");
                    for key in [b"key".as_slice(), b"late"] {
                        let value = object.get(None, key).await.expect(&what);
                        assert_eq!(value, Some(number.to_le_bytes().to_vec()), "{what}");
                    }
                    object.put(None, Cond::NONE, b"key", b"changed").await.expect(&what);
                }
            });
        }
    }
}
