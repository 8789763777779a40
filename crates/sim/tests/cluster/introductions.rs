//! Engines that come back are told what they hold, whatever befalls the telling.

use client::KvObj;
use sim::{Cluster, ClusterSpec, seeds};
use std::time::Duration;
use transport::SimNet;
use types::{ContLayout, Durability, ObjType};
use wire::obj::Cond;

/// The engine with the catalog tells one that joins which containers it has. When a connection broke in
/// the middle of that, nobody told it again: ten seconds later its targets said for ever that
/// the containers of a `memory` pool do not exist.
#[test]
fn a_target_hears_of_its_containers_in_the_end() {
    for seed in seeds(20) {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 2, targets: 2 }).unwrap();
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Memory, ContLayout::Plain).await.unwrap();
            let net = SimNet::of(cluster.world());
            cluster.kill_engine(1);
            net.set_break_ppm(200_000);
            cluster.start_engine(1).await.unwrap();
            client.env().sleep(Duration::from_millis(20)).await;
            net.set_break_ppm(0);
            // Longer than targets wait for what they may be told yet.
            client.env().sleep(Duration::from_secs(30)).await;
            let class = "SX".parse().unwrap();
            let oid = cont.generate_oid(ObjType::KvHashed, class, 0, 1).unwrap();
            let kv = KvObj { object: cont.object(oid) };
            for key in 0..16u64 {
                let put = kv.put(None, Cond::NONE, &key.to_le_bytes(), b"v").await;
                put.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            }
        });
    }
}
