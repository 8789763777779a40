//! What the control plane costs those who work with data: how often a client asks when it starts, how often the catalog is
//! asked while files are made and read, how soon who needs a new map has it, and what clocks that jump do.

use client::{Client, Container, KvObj};
use dfs::{CreateOptions, Credentials, Dfs, FormatOptions, MountFlags, OpenFlags};
use futures_util::future::{join, join_all};
use sim::{Cluster, ClusterSpec, seeds};
use std::cell::{Cell, RefCell};
use std::time::Duration;
use transport::SimNet;
use types::{ContLayout, Durability, ObjType, Rank};
use wire::control::{ControlReply, ControlRequest, Name, OpenMode};
use wire::map::{DownReason, PoolMap};
use wire::obj::{Cond, Request};

const ENGINES: usize = 3;
/// How long a message is on its way, where that is counted.
const WAY: Duration = Duration::from_millis(1);

fn label(text: &str) -> Name {
    Name::Label(text.into())
}

async fn open(client: &Client) -> Container {
    let pool = client.pool_open(&label("p"), OpenMode::ReadWrite).await.unwrap();
    pool.cont_open(&label("c"), OpenMode::ReadWrite).await.unwrap()
}

fn cluster(seed: u64, targets: usize) -> Cluster {
    Cluster::start(ClusterSpec { seed, engines: ENGINES, targets }).unwrap()
}

/// One request for the pool with its map, one for the container, both at once to whichever engine answers; then targets are asked,
/// and nobody else. With all other engines gone, the one with the catalog too, the copy of the one that is left is enough.
#[test]
fn a_client_that_starts_asks_one_engine_once_for_each_thing_it_opens() {
    let cluster = cluster(1, 2);
    cluster.block_on(async {
        let setup = cluster.client("setup");
        cluster.container(&setup, Durability::Wal, ContLayout::Plain).await.unwrap();
        SimNet::of(cluster.world()).set_delay(WAY, WAY);
        // As long as an engine takes to have a copy of the catalog.
        setup.env().sleep(Duration::from_secs(10)).await;
        for is_alone in [false, true] {
            if is_alone {
                cluster.kill_engine(0);
                cluster.kill_engine(2);
            }
            let client = cluster.client(if is_alone { "late" } else { "early" });
            let begun = client.env().now();
            let mode = OpenMode::ReadWrite;
            let cont = client.open(&label("p"), mode, &label("c"), mode).await.unwrap();
            let took = client.env().now() - begun;
            assert_eq!(
                client.request_count(),
                2,
                "for the pool with its map, and for the container"
            );
            // To connect, and for the challenge, the introduction and its answer: four ways. Two more are one round trip.
            assert!(is_alone || took < WAY * 7, "{took:?}");
            println!("opened after {took:?}");
            // From here on targets are asked, and nobody else.
            let oid = (0..)
                .map(|number| {
                    cont.generate_oid(ObjType::KvHashed, "S1".parse().unwrap(), 0, number).unwrap()
                })
                .find(|oid| cont.engines_of(*oid).unwrap()[0] == Rank(1));
            let kv = KvObj { object: cont.object(oid.unwrap()) };
            kv.put(None, Cond::NONE, b"k", b"v").await.unwrap();
            assert_eq!(client.request_count(), 3, "one operation, one request");
            if is_alone {
                return;
            }
        }
    });
}

/// How often the catalog is asked in some time in which `work` is done, if it takes no longer.
async fn asked_in(cluster: &Cluster, time: Duration, work: impl Future<Output = ()>) -> u64 {
    let before = cluster.catalog_call_count(0).unwrap();
    let env = cluster.world().node("watcher");
    join(env.sleep(time), work).await;
    cluster.catalog_call_count(0).unwrap() - before
}

/// The engine with the catalog looks into it each second for what it does unasked. Four thousand operations on files add nothing.
#[test]
fn files_cost_the_catalog_nothing() {
    let cluster = cluster(2, 2);
    cluster.block_on(async {
        let client = cluster.client("client");
        let cont = cluster.container(&client, Durability::Wal, ContLayout::Posix).await.unwrap();
        Dfs::format(&cont, &FormatOptions::default()).await.unwrap();
        let dfs = Dfs::mount(&cont, MountFlags::NONE, Credentials::root()).await.unwrap();
        let flags = OpenFlags::READ | OpenFlags::DIRECTORY;
        let root = dfs.lookup(b"/", flags).await.unwrap();
        // The first file fetches a range of object numbers, which lasts for very many.
        let make = async |number: u32| {
            let (name, options) = (format!("f{number}"), CreateOptions::default());
            let flags = OpenFlags::READ_WRITE | OpenFlags::CREATE | OpenFlags::EXCL;
            let made = dfs.open(&root, name.as_bytes(), flags, 0o644, &options).await.unwrap();
            assert_eq!(dfs.write(&made, 0, b"some bytes").await.unwrap(), 10);
        };
        make(0).await;
        let time = Duration::from_secs(10);
        let idle = asked_in(&cluster, time, async {}).await;
        let before = client.request_count();
        let operations = async {
            for number in 1..1000 {
                make(number).await;
                let name = format!("f{number}");
                assert_eq!(dfs.stat(&root, name.as_bytes()).await.unwrap().size, 10);
                dfs.unlink(&root, name.as_bytes()).await.unwrap();
            }
        };
        let busy = asked_in(&cluster, time, operations).await;
        let requests = client.request_count() - before;
        assert!(requests >= 3900, "{requests}");
        println!("catalog asked {idle} times in {time:?} idle, {busy} under {requests} requests");
        // Times of use are written now and then, whatever was done.
        assert!(busy < idle + 10, "{busy} against {idle}");
    });
}

/// The time that a change of a map takes to all clients that work with its targets. The bound is a second.
#[test]
fn a_new_map_is_with_all_who_touch_it_within_a_second() {
    const CLIENTS: usize = 16;
    for seed in seeds(5) {
        let cluster = cluster(seed, 2);
        cluster.block_on(async {
            let setup = cluster.client("setup");
            cluster.container(&setup, Durability::Wal, ContLayout::Plain).await.unwrap();
            let (is_over, changed) = (Cell::new(false), Cell::new(None));
            let delays = RefCell::new(Vec::new());
            let work = (0..CLIENTS).map(|at| {
                let (cluster, is_over, changed, delays) = (&cluster, &is_over, &changed, &delays);
                async move {
                    let client = cluster.client(&format!("c{at}"));
                    let cont = open(&client).await;
                    let old = cont.pool().map().version;
                    let mut number = 0;
                    while !is_over.get() {
                        number += 1;
                        let class = "S1".parse().unwrap();
                        let oid = cont.generate_oid(ObjType::KvHashed, class, at as u32, number);
                        let kv = KvObj { object: cont.object(oid.unwrap()) };
                        kv.put(None, Cond::NONE, b"k", b"v").await.unwrap();
                        if cont.pool().map().version > old {
                            let since: Duration = changed.get().expect("nothing else changes it");
                            delays.borrow_mut().push(client.env().now() - since);
                            break;
                        }
                        client.env().sleep(Duration::from_millis(50)).await;
                    }
                }
            });
            let change = async {
                let env = setup.env();
                env.sleep(Duration::from_secs(2)).await;
                changed.set(Some(env.now()));
                let rank = Rank(seed as u32 % ENGINES as u32);
                let exclude = ControlRequest::SystemExclude { rank, why: String::new() };
                setup.control(&exclude).await.unwrap();
                env.sleep(Duration::from_secs(5)).await;
                is_over.set(true);
            };
            join(join_all(work), change).await;
            let delays = delays.borrow();
            assert_eq!(delays.len(), CLIENTS, "seed {seed}: all have it");
            let longest = delays.iter().max().unwrap();
            println!("seed {seed}: the last of {CLIENTS} clients after {longest:?}");
            assert!(*longest < Duration::from_secs(1), "seed {seed}: {longest:?}");
        });
    }
}

/// Who is refused for an old map gets the newer one with the refusal, and sends the same request again: nobody is asked for the map.
#[test]
fn a_refusal_for_an_old_map_has_the_newer_one_with_it() {
    for seed in seeds(2) {
        let cluster = cluster(seed, 2);
        cluster.block_on(async {
            let (setup, client) = (cluster.client("setup"), cluster.client("client"));
            cluster.container(&setup, Durability::Wal, ContLayout::Plain).await.unwrap();
            let cont = open(&client).await;
            let class = "S1".parse().unwrap();
            let oid = (0..)
                .map(|number| cont.generate_oid(ObjType::KvHashed, class, 0, number).unwrap())
                .find(|oid| cont.engines_of(*oid).unwrap()[0] == Rank(1))
                .unwrap();
            let kv = KvObj { object: cont.object(oid) };
            kv.put(None, Cond::NONE, b"k", b"v").await.unwrap();
            let mut is_out = false;
            // One change, then more of them than targets remember.
            for changes in [1, 40] {
                for _ in 0..changes {
                    let (rank, why) = (Rank(2), String::new());
                    let request = match is_out {
                        false => ControlRequest::SystemExclude { rank, why },
                        true => ControlRequest::SystemClearExclude { rank },
                    };
                    is_out = !is_out;
                    setup.control(&request).await.unwrap();
                    // Until all have the last one.
                    setup.env().sleep(Duration::from_secs(5)).await;
                }
                let (old, before) = (cont.pool().map().version, client.request_count());
                kv.put(None, Cond::NONE, b"k", b"w").await.unwrap();
                assert!(cont.pool().map().version > old, "seed {seed}");
                assert_eq!(client.request_count() - before, 1, "seed {seed}: one question");
                let newest = sim::members::newest_map(&setup).await.unwrap();
                assert_eq!(*cont.pool().map(), *newest, "seed {seed}");
            }
        });
    }
}

/// The holder of the control service cannot reach one of the engines, and that one not the holder. Others see both: through them it
/// gets each new map, also the one that says that it is down itself; and a client that reaches this engine alone has it from there.
#[test]
fn maps_reach_an_engine_that_the_holder_cannot_reach() {
    const AWAY: usize = 2;
    for seed in seeds(5) {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 4, targets: 2 }).unwrap();
        cluster.block_on(async {
            let (setup, far) = (cluster.client("setup"), cluster.client("far"));
            cluster.container(&setup, Durability::Wal, ContLayout::Plain).await.unwrap();
            // As long as engines take to have a copy of the catalog.
            setup.env().sleep(Duration::from_secs(10)).await;
            let cont = open(&far).await;
            let class = "S1".parse().unwrap();
            let oid = (0..)
                .map(|number| cont.generate_oid(ObjType::KvHashed, class, 0, number).unwrap())
                .find(|oid| cont.engines_of(*oid).unwrap()[0] == Rank(AWAY as u32))
                .unwrap();
            let kv = KvObj { object: cont.object(oid) };
            kv.put(None, Cond::NONE, b"k", b"v").await.unwrap();
            let (net, away) = (SimNet::of(cluster.world()), Cluster::engine_name(AWAY));
            net.cut(&Cluster::engine_name(0), &away);
            for at in [0, 1, 3] {
                net.cut("far", &Cluster::engine_name(at));
            }
            // Until all targets of the engine know this version, or a newer one.
            let arrived = async |version: u32| {
                let map = cont.pool().map();
                for target in map.targets.iter().filter(|target| target.rank.0 == AWAY as u32) {
                    loop {
                        let request = Request::PoolMap { pool: map.pool };
                        let answer = sim::members::ask(&setup, &map, target.id, &request).await;
                        let known = wire::decode::<types::Result<PoolMap>>(&answer.unwrap());
                        if known.unwrap().unwrap().version >= version {
                            break;
                        }
                        setup.env().sleep(Duration::from_millis(50)).await;
                    }
                }
            };
            let exclude = ControlRequest::SystemExclude { rank: Rank(3), why: String::new() };
            let (old, begun) = (cont.pool().map().version, setup.env().now());
            // The order does not wait for an engine that gives no answer as for others: it took ten seconds. Its targets know before.
            let others = async {
                arrived(old + 1).await;
                setup.env().now() - begun
            };
            let order = async {
                setup.control(&exclude).await.unwrap();
                setup.env().now() - begun
            };
            let (done_after, known_after) = join(order, others).await;
            println!("seed {seed}: done after {done_after:?}, known after {known_after:?}");
            assert!(done_after < Duration::from_secs(4), "seed {seed}: {done_after:?}");
            kv.put(None, Cond::NONE, b"k", b"w").await.unwrap();
            assert!(cont.pool().map().version > old, "seed {seed}");
            // Then the engine itself is down, for whoever believes the holder.
            let is_down = |map: &PoolMap| {
                let mut own = map.targets.iter().filter(|target| target.rank.0 == AWAY as u32);
                own.all(|target| target.reason == Some(DownReason::Silent))
            };
            assert_eq!(sim::members::await_map(&setup, is_down).await.unwrap(), None);
            let newest = sim::members::newest_map(&setup).await.unwrap();
            arrived(newest.version).await;
            let asked = far.control(&ControlRequest::PoolMap(newest.pool)).await.unwrap();
            let ControlReply::Map(map) = asked else { panic!("{asked:?}") };
            assert!(map.version >= newest.version && is_down(&map), "seed {seed}");
            net.heal_all();
            let back = |map: &PoolMap| {
                map.targets.iter().all(|target| target.rank == Rank(3) || target.reason.is_none())
            };
            assert_eq!(sim::members::await_map(&setup, back).await.unwrap(), None, "seed {seed}");
        });
    }
}

/// A client opens a pool by way of an engine that does not reach the control service and answers other questions: another engine is asked beside it, and answers. Of the two handles that
/// this comes to one is the client's, and the other one was nobody's: it counted for as long as the client lived.
#[test]
fn who_opens_by_way_of_two_engines_has_one_handle() {
    for seed in seeds(5) {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 2, targets: 1 }).unwrap();
        cluster.block_on(async {
            let setup = cluster.client("setup");
            cluster.container(&setup, Durability::Wal, ContLayout::Plain).await.unwrap();
            let client = cluster.client_with("client", |options| options.system.engines.reverse());
            let net = SimNet::of(cluster.world());
            let [holder, asked] = [0, 1].map(Cluster::engine_name);
            net.cut(&holder, &asked);
            let query = ControlRequest::PoolQuery(label("p"));
            let handles = async || match setup.control(&query).await.unwrap() {
                ControlReply::Pool(pool) => pool.handle_count,
                other => panic!("{other:?}"),
            };
            let before = handles().await;
            let pool = label("p");
            let opened = client.pool_open(&pool, OpenMode::ReadWrite);
            let meanwhile = async {
                client.env().sleep(Duration::from_millis(500)).await;
                let events = ControlRequest::EngineEvents { after: 0, since_ns: 0 };
                client.control(&events).await.unwrap();
                // The other engine has been asked, too.
                client.env().sleep(Duration::from_secs(2)).await;
                net.heal_all();
            };
            let (pool, ()) = join(opened, meanwhile).await;
            let pool = pool.unwrap();
            // Which may have begun with a handle from a copy of the catalog, asked for again since.
            client.env().sleep(Duration::from_secs(60)).await;
            assert_eq!(handles().await, before + 1, "seed {seed}");
            pool.close().await.unwrap();
            assert_eq!(handles().await, before, "seed {seed}");
        });
    }
}

/// Clocks of engines step by an hour, ahead and back, while objects with copies are written, and engines are killed. Nothing is
/// decided by them: no error, and all members hold the same.
#[test]
fn clocks_that_step_by_an_hour_are_not_noticed() {
    const HOUR_NS: i64 = 3_600_000_000_000;
    for seed in seeds(5) {
        let cluster = cluster(seed, 1);
        cluster.block_on(async {
            let client = cluster.client_within("client", Duration::from_secs(600));
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let objects: Vec<_> = (0..6)
                .map(|number| {
                    let class = ["RP_2G1", "S1"][number as usize % 2].parse().unwrap();
                    cont.generate_oid(ObjType::KvHashed, class, 0, number).unwrap()
                })
                .collect();
            let mut written = 0u32;
            let mut work = async || {
                written += 1;
                for oid in &objects {
                    let kv = KvObj { object: cont.object(*oid) };
                    kv.put(None, Cond::NONE, b"k", &written.to_le_bytes()).await.unwrap();
                    let found = kv.get(None, b"k").await.unwrap().unwrap();
                    assert_eq!(found, written.to_le_bytes(), "seed {seed}");
                }
            };
            for round in 0..12u64 {
                let at = types::hash::mix2(seed, round) as usize % ENGINES;
                let off = [HOUR_NS, -HOUR_NS, 0][round as usize % 3];
                cluster.world().set_wall_off(&Cluster::engine_name(at), off);
                work().await;
                if round % 4 == 3 {
                    // With the clock that it has now. The one with the catalog too.
                    cluster.kill_engine(at);
                    client.env().sleep(Duration::from_secs(1)).await;
                    cluster.start_engine(at).await.unwrap();
                    work().await;
                }
            }
            assert_eq!(sim::members::await_whole(&client).await.unwrap(), None, "seed {seed}");
            work().await;
            for oid in objects {
                let differ = sim::members::difference(&client, &cont, oid).await.unwrap();
                assert_eq!(differ, None, "seed {seed}");
            }
            // Pools and containers are made as ever.
            let (pool, props) = (cont.pool(), types::ContProps::default());
            let none = std::collections::BTreeMap::new();
            pool.cont_create("more", uuid::Uuid::nil(), props, none).await.unwrap();
        });
    }
}

/// An engine that is away, for good perhaps, kept pools and containers from being destroyed. What it has goes when it is back, and nobody has to ask
/// again.
#[test]
fn what_is_destroyed_while_an_engine_is_away_goes_when_it_is_back() {
    const AWAY: usize = 2;
    for seed in seeds(6) {
        let cluster = cluster(seed, 1);
        cluster.block_on(async {
            let client = cluster.client_within("client", Duration::from_secs(60));
            let made = cluster.container(&client, Durability::Wal, ContLayout::Plain).await;
            let cont = made.unwrap();
            let pool = cont.pool().clone();
            let put = async |cont: &Container| {
                let class = "RP_3G1".parse().unwrap();
                let oid = cont.generate_oid(ObjType::KvHashed, class, 0, 1).unwrap();
                let kv = KvObj { object: cont.object(oid) };
                kv.put(None, Cond::NONE, b"k", &[1; 100_000]).await.unwrap();
            };
            put(&cont).await;
            let disk = cluster.world().disk(&Cluster::engine_name(AWAY));
            let full = disk.used_bytes();
            drop(cont);
            cluster.kill_engine(AWAY);
            // Nobody has noticed yet, or everybody has.
            client.env().sleep(Duration::from_secs(if seed % 2 == 0 { 0 } else { 30 })).await;
            pool.cont_destroy(label("c"), true).await.unwrap();
            let none = std::collections::BTreeMap::new();
            let props = types::ContProps::default();
            pool.cont_create("c", uuid::Uuid::nil(), props, none).await.unwrap();
            put(&pool.cont_open(&label("c"), OpenMode::ReadWrite).await.unwrap()).await;
            let is_all = seed % 3 != 0;
            if is_all {
                client.pool_destroy(label("p"), true).await.unwrap();
                assert!(client.pool_list().await.unwrap().is_empty(), "seed {seed}");
            }
            client.env().sleep(Duration::from_secs(20)).await;
            cluster.start_engine(AWAY).await.unwrap();
            client.env().sleep(Duration::from_secs(60)).await;
            match is_all {
                true => assert!(disk.used_bytes() < full / 2, "seed {seed}: {}", disk.used_bytes()),
                false => {
                    assert_eq!(sim::members::await_whole(&client).await.unwrap(), None);
                    let conts = pool.cont_list().await.unwrap();
                    assert_eq!(conts.len(), 1, "seed {seed}");
                }
            }
        });
    }
}
