//! Engines whose process is gone while their machine runs: it says at once that nobody listens, and others go on earlier than for one of
//! which nothing is heard.

use client::{ArrayObj, Client, Container};
use sim::{Cluster, ClusterSpec, seeds};
use std::time::Duration;
use transport::SimNet;
use types::{ContLayout, Durability, ObjType};
use wire::control::MemberState;
use wire::obj::Recx;

/// As engines have it by default.
const DOWN_AFTER: Duration = Duration::from_secs(5);
/// Others go on within this time when a process is gone.
const GONE_WITHIN: Duration = Duration::from_secs(4);
/// The engine that goes; the first one holds the catalog.
const LOST: usize = 1;

fn name() -> String {
    Cluster::engine_name(LOST)
}

/// A file of two copies one of which is with that engine, which leads or follows.
fn file(cont: &Container, leads: bool) -> ArrayObj {
    let map = cont.pool().map();
    let rank = |target: &_| map.target(*target).unwrap().rank.0 as usize;
    let class = "RP_2G1".parse().unwrap();
    let oids = (0..).map(|number| cont.generate_oid(ObjType::ArrayByte, class, 0, number).unwrap());
    let is_meant = |oid: &_| {
        let layout = cont.layout(*oid).unwrap();
        let leader = layout.leader(0, &map).unwrap();
        layout.members(0).iter().any(|member| rank(member) == LOST)
            && (rank(&leader) == LOST) == leads
    };
    let oid = oids.into_iter().find(is_meant).unwrap();
    ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: 1 << 20 }
}

async fn write(file: &ArrayObj) {
    file.write(&[Recx { index: 0, count: 3 }], &[b"abc"]).await.unwrap();
}

async fn state(client: &Client) -> MemberState {
    client.system_query().await.unwrap().members[LOST].state
}

/// In a cluster of so many engines, one of which goes some time after the start: how long writes to what it leads, or follows in, stand still, from
/// `goes` on.
fn standstill(seed: u64, engines: usize, leads: bool, goes: impl Fn(&Cluster)) -> Duration {
    let cluster = Cluster::start(ClusterSpec { seed, engines, targets: 1 }).unwrap();
    cluster.block_on(async {
        let client = cluster.client("c");
        let cont = cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
        let file = file(&cont, leads);
        write(&file).await;
        let env = client.env();
        // Looks are at full seconds after the start: it goes at any time between two.
        env.sleep(Duration::from_millis(10_000 + env.random_u64() % 1000)).await;
        goes(&cluster);
        let begun = env.now();
        write(&file).await;
        env.now() - begun
    })
}

#[test]
fn a_killed_process_is_missed_within_four_seconds() {
    for seed in seeds(6) {
        for engines in [2, 3, 5] {
            for leads in [true, false] {
                let took = standstill(seed, engines, leads, |cluster| cluster.kill_engine(LOST));
                assert!(
                    took < GONE_WITHIN,
                    "seed {seed}, {engines} engines, leads {leads}: {took:?}"
                );
            }
        }
    }
}

/// Of one that stands still or is cut off nothing is heard: it may come back at any moment.
#[test]
fn who_says_nothing_has_the_whole_time() {
    for seed in seeds(3) {
        for leads in [true, false] {
            let stands = standstill(seed, 3, leads, |cluster| cluster.world().pause(&name()));
            let cut = standstill(seed, 3, leads, |cluster| {
                let net = SimNet::of(cluster.world());
                ["e0", "e2", "c"].into_iter().for_each(|other| net.cut(other, &name()));
            });
            for took in [stands, cut] {
                assert!(took >= DOWN_AFTER, "seed {seed}, leads {leads}: {took:?}");
            }
        }
    }
}

/// One witness at least is refused, too: where the only other engine hears nothing of that machine, the one that leads may be deceived.
#[test]
fn a_refusal_that_nobody_else_hears_is_silence() {
    for seed in seeds(3) {
        let took = standstill(seed, 3, true, |cluster| {
            cluster.kill_engine(LOST);
            SimNet::of(cluster.world()).cut("e2", &name());
        });
        assert!(took >= DOWN_AFTER, "seed {seed}: {took:?}");
        let took = standstill(seed, 4, true, |cluster| {
            cluster.kill_engine(LOST);
            SimNet::of(cluster.world()).cut("e2", &name());
        });
        assert!(took < GONE_WITHIN, "seed {seed}, another one is refused: {took:?}");
    }
}

/// Whoever is back soon, or has said that it stops, is not called down.
#[test]
fn a_restart_is_no_loss() {
    for seed in seeds(3) {
        for (is_killed, away_ms) in [(true, 900), (false, 900), (false, 4_000)] {
            let cluster = Cluster::start(ClusterSpec { seed, engines: 3, targets: 1 }).unwrap();
            cluster.block_on(async {
                let client = cluster.client("c");
                let env = client.env();
                env.sleep(Duration::from_secs(10)).await;
                match is_killed {
                    true => cluster.kill_engine(LOST),
                    false => {
                        cluster.stop_engine(LOST).await.unwrap();
                        cluster.kill_engine(LOST);
                    }
                }
                let back_at = env.now() + Duration::from_millis(away_ms);
                let context = format!("seed {seed}, killed {is_killed}, {away_ms} ms");
                while env.now() < back_at {
                    assert_ne!(state(&client).await, MemberState::Down, "{context}");
                    env.sleep(Duration::from_millis(100)).await;
                }
                cluster.start_engine(LOST).await.unwrap();
                for _ in 0..100 {
                    assert_ne!(state(&client).await, MemberState::Down, "{context}: back");
                    env.sleep(Duration::from_millis(100)).await;
                }
                assert_eq!(state(&client).await, MemberState::Up, "{context}");
            });
        }
    }
}
