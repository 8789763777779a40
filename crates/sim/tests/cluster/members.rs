//! Engines that give no answer are down, and nothing gets worse by it: who asks for what only they have
//! waits, and goes on when they are back.

use client::{Client, Container, KvObj};
use futures_util::future::join;
use sim::{Cluster, ClusterSpec};
use std::time::Duration;
use types::{ContLayout, Durability, ObjType, Rank};
use wire::control::{ControlReply, ControlRequest, MemberState, Name};
use wire::map::{DownReason, PoolMap, TargetState};
use wire::obj::Cond;

const HOUR: Duration = Duration::from_secs(3600);
const ENGINES: usize = 3;
const OBJECTS: u64 = 12;

async fn newest_map(client: &Client) -> PoolMap {
    let query = ControlRequest::PoolQuery(Name::Label("p".into()));
    match client.control(&query).await.unwrap() {
        ControlReply::Pool(pool) => pool.map,
        other => panic!("{other:?}"),
    }
}

async fn until_member(client: &Client, at: usize, state: MemberState) {
    while client.system_query().await.unwrap().members[at].state != state {
        client.env().sleep(Duration::from_millis(100)).await;
    }
}

/// Looks until all targets of an engine have a state, for this reason; the map then.
async fn until(client: &Client, rank: Rank, wanted: (TargetState, Option<DownReason>)) -> PoolMap {
    loop {
        let map = newest_map(client).await;
        let mut own = map.targets.iter().filter(|target| target.rank == rank);
        if own.all(|target| (target.state, target.reason) == wanted) {
            return map;
        }
        client.env().sleep(Duration::from_millis(100)).await;
    }
}

fn objects(cont: &Container) -> Vec<(Rank, KvObj)> {
    let made = (0..OBJECTS).map(|number| {
        let oid = cont.generate_oid(ObjType::KvHashed, "S1".parse().unwrap(), 0, number).unwrap();
        (cont.engines_of(oid).unwrap()[0], KvObj { object: cont.object(oid) })
    });
    made.collect()
}

/// Whoever is away is down; those who need it wait, others notice nothing.
#[test]
fn a_silent_engine_is_down_and_up_again_when_it_is_back() {
    for seed in 0..8 {
        let cluster = Cluster::start(ClusterSpec { seed, engines: ENGINES, targets: 2 }).unwrap();
        let client = cluster.client_within("patient", HOUR);
        let other = cluster.client_within("newcomer", HOUR);
        cluster.block_on(async {
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let (away, at) = (Rank(2), 2);
            let kvs = objects(&cont);
            let (there, here): (Vec<_>, Vec<_>) = kvs.iter().partition(|(rank, _)| *rank == away);
            assert!(!there.is_empty() && !here.is_empty());
            cluster.kill_engine(at);
            let writes = async {
                for (_, kv) in &there {
                    kv.put(None, Cond::NONE, b"k", b"waited").await.unwrap();
                }
            };
            let rest = async {
                until_member(&client, at, MemberState::Down).await;
                for (_, kv) in &here {
                    kv.put(None, Cond::NONE, b"k", b"at once").await.unwrap();
                }
                // One who comes only now waits, too.
                let pool = other
                    .pool_open(&Name::Label("p".into()), wire::control::OpenMode::ReadWrite)
                    .await
                    .unwrap();
                let same = pool
                    .cont_open(&Name::Label("c".into()), wire::control::OpenMode::ReadWrite)
                    .await
                    .unwrap();
                let late = KvObj { object: same.object(there[0].1.object.oid()) };
                let put = late.put(None, Cond::NONE, b"late", b"waited");
                let back = async {
                    client.env().sleep(Duration::from_secs(60)).await;
                    cluster.start_engine(at).await.unwrap();
                    until_member(&client, at, MemberState::Up).await;
                };
                let (put, ()) = join(put, back).await;
                put.unwrap();
            };
            join(writes, rest).await;
            for (rank, kv) in &kvs {
                let text: &[u8] = if *rank == away { b"waited" } else { b"at once" };
                assert_eq!(kv.get(None, b"k").await.unwrap().unwrap(), text, "seed {seed}");
            }
        });
    }
}

/// Excluded, an engine goes on with what only it has.
#[test]
fn an_excluded_engine_serves_what_has_no_copy() {
    let cluster = Cluster::start(ClusterSpec { seed: 3, engines: ENGINES, targets: 2 }).unwrap();
    let client = cluster.client("client");
    cluster.block_on(async {
        let cont = cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
        let kvs = objects(&cont);
        let rank = Rank(1);
        let exclude = ControlRequest::SystemExclude { rank, why: "a bad fan".into() };
        client.control(&exclude).await.unwrap();
        until(&client, rank, (TargetState::Down, Some(DownReason::Excluded))).await;
        for (_, kv) in &kvs {
            kv.put(None, Cond::NONE, b"k", b"v").await.unwrap();
        }
        // It stays out over a restart.
        cluster.kill_engine(1);
        client.env().sleep(Duration::from_secs(30)).await;
        cluster.start_engine(1).await.unwrap();
        for (_, kv) in &kvs {
            assert_eq!(kv.get(None, b"k").await.unwrap().unwrap(), b"v");
        }
        until_member(&client, 1, MemberState::Excluded).await;
        client.control(&ControlRequest::SystemClearExclude { rank }).await.unwrap();
        until_member(&client, 1, MemberState::Up).await;
        // Once it has caught up with what it missed.
        until(&client, rank, (TargetState::Up, None)).await;
        for (_, kv) in &kvs {
            kv.put(None, Cond::NONE, b"k", b"w").await.unwrap();
        }
    });
}

/// A handle of a pool that has seen an engine away hears of it again when it is back, though nothing else is asked of the pool meanwhile.
/// It used to give no figures of that engine's targets any more.
#[test]
fn who_asks_all_targets_hears_of_those_that_are_back() {
    let cluster = Cluster::start(ClusterSpec { seed: 5, engines: ENGINES, targets: 2 }).unwrap();
    let client = cluster.client("client");
    let other = cluster.client("other");
    cluster.block_on(async {
        let cont = cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
        let pool = cont.pool();
        let answers = async || {
            let stats = pool.store_stats().await.unwrap();
            stats.iter().filter(|(_, stat)| stat.is_some()).count()
        };
        assert_eq!(answers().await, 6);
        cluster.kill_engine(2);
        until(&other, Rank(2), (TargetState::Down, Some(DownReason::Silent))).await;
        assert_eq!(answers().await, 4);
        cluster.start_engine(2).await.unwrap();
        until(&other, Rank(2), (TargetState::Up, None)).await;
        assert_eq!(answers().await, 6);
    });
}
