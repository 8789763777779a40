//! A batch that is sent again after the map has changed: groups that had the same members have them no longer, or have them now, so that it falls into other parts than those that were answered.

use client::{Batch, Container, KvObj};
use engine::StoreConfig;
use futures_util::future::{join, join_all};
use sim::{Cluster, ClusterSpec, members, seeds};
use std::time::Duration;
use transport::SimNet;
use types::{ContLayout, Durability, ObjType, Oid, TargetId};
use wire::map::PoolMap;
use wire::obj::{Cond, Op, OpReply};

const ENGINES: usize = 5;
/// This one is lost: others stand in for it.
const LOST: u32 = 4;

/// Two objects, with the key that a batch removes of each and the one that it reads.
struct Pair([KvObj; 2]);

impl Pair {
    fn value(&self, at: usize) -> Vec<u8> {
        self.0[at].object.oid().lo.to_le_bytes().to_vec()
    }

    async fn fill(&self) {
        for (at, kv) in self.0.iter().enumerate() {
            kv.put(None, Cond::NONE, b"kept", &self.value(at)).await.unwrap();
            kv.put(None, Cond::NONE, b"gone", b"x").await.unwrap();
        }
    }

    /// Removes a key of each object, once, and reads the other: the replies tell which object they are of.
    async fn change(&self, cont: &Container) {
        let mut batch = Batch::new(cont);
        for kv in &self.0 {
            let unit = kv.object.oid().unit(0);
            let dkeys = vec![serde_bytes::Bytes::new(b"gone")];
            batch.op(Op::PunchDkeys { unit, cond: Cond::PUNCH, dkeys });
            batch.op(Op::FetchLink { unit, dkey: b"kept", akey: b"", open: false });
        }
        let result = batch.run().await.unwrap();
        let replies = result.replies().unwrap();
        for (at, replies) in replies.chunks(2).enumerate() {
            let OpReply::Link { value: Some(value), .. } = replies[1] else {
                panic!("{replies:?}")
            };
            assert_eq!((&replies[0], value), (&OpReply::Done, &self.value(at)[..]));
        }
    }

    /// Whether both are of one part by a map.
    fn is_whole(&self, map: &PoolMap) -> bool {
        let everyone = |kv: &KvObj| {
            let layout = placement::layout(kv.object.oid(), map).unwrap();
            (layout.leader(0, map), layout.everyone(0))
        };
        everyone(&self.0[0]) == everyone(&self.0[1])
    }
}

/// Sends the batches of all pairs and loses the answers; while `trouble` lasts nobody is heard by the client, then for some seconds one who tells it the map.
async fn change_during(
    cluster: &Cluster,
    cont: &Container,
    pairs: &[Pair],
    trouble: impl AsyncFnOnce(),
) {
    let net = SimNet::of(cluster.world());
    let engines: Vec<String> = (0..ENGINES).map(Cluster::engine_name).collect();
    engines.iter().for_each(|engine| net.cut_one_way(engine, "c"));
    let changes = join_all(pairs.iter().map(|pair| pair.change(cont)));
    let trouble = async {
        let env = cont.client().env();
        env.sleep(Duration::from_millis(500)).await;
        trouble().await;
        net.heal(&engines[0], "c");
        env.sleep(Duration::from_secs(10)).await;
        engines.iter().for_each(|engine| net.heal(engine, "c"));
    };
    join(changes, trouble).await;
}

/// An answer is lost, and when its client comes again, under the same id, groups of the batch have come to have the same members, or have them no longer. It got the answer that was kept, of as many parts as
/// were asked for first, and took it for a broken one (seed 18841 of the swarm).
#[test]
fn an_answer_is_that_of_the_parts_that_were_asked_for_first() {
    for seed in seeds(2) {
        let spec = ClusterSpec { seed, engines: ENGINES, targets: 1 };
        let cluster = Cluster::start_healing(spec, StoreConfig::default(), Some(1)).unwrap();
        cluster.block_on(async {
            let (client, other) = (cluster.client("c"), cluster.client("other"));
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let class = "RP_2G1".parse().unwrap();
            let oid = |number| cont.generate_oid(ObjType::KvHashed, class, 0, number).unwrap();
            let is_meant =
                |oid: &Oid| cont.layout(*oid).unwrap().members(0).contains(&TargetId(LOST));
            let oids: Vec<Oid> = (0..).map(oid).filter(is_meant).take(160).collect();
            let kv = |oid: &Oid| KvObj { object: cont.object(*oid) };
            let pairs: Vec<Pair> =
                oids.chunks(2).map(|two| Pair([kv(&two[0]), kv(&two[1])])).collect();
            let are_whole = async || {
                let map = members::newest_map(&other).await.unwrap();
                pairs.iter().map(|pair| pair.is_whole(&map)).collect::<Vec<bool>>()
            };
            let changed = |before: &[bool], after: &[bool]| {
                before.iter().zip(after).filter(|(was, is)| was != is).count()
            };
            join_all(pairs.iter().map(Pair::fill)).await;
            let before = are_whole().await;
            change_during(&cluster, &cont, &pairs, async || {
                cluster.kill_engine(LOST as usize);
                let stand_in = |map: &PoolMap| map.next.is_none() && !map.outs.is_empty();
                assert_eq!(members::await_map(&other, stand_in).await.unwrap(), None);
            })
            .await;
            let without = are_whole().await;
            assert!(changed(&before, &without) > 0, "seed {seed}: none has other parts");
            join_all(pairs.iter().map(Pair::fill)).await;
            change_during(&cluster, &cont, &pairs, async || {
                cluster.start_engine(LOST as usize).await.unwrap();
                let is_back = |map: &PoolMap| map.next.is_none() && map.outs.is_empty();
                assert_eq!(members::await_map(&other, is_back).await.unwrap(), None);
            })
            .await;
            assert!(changed(&without, &are_whole().await) > 0, "seed {seed}: none has again");
        });
    }
}
