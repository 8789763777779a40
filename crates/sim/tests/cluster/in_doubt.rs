//! Parts of transactions that were in doubt when their target ended, and that others have decided meanwhile.

use client::{Client, Container, KvObj, Tx};
use futures_util::future::join;
use sim::{Cluster, ClusterSpec, seeds};
use std::path::Path;
use std::time::Duration;
use transport::SimNet;
use types::{ContLayout, Durability, ObjType, TargetId};
use wire::control::{Name, OpenMode, SnapName};
use wire::map::PoolMap;
use wire::obj::{Cond, Op, UpdateIod, UpdateValue};

/// The member that is not to hear all while it catches up is kept from this engine, which it asks last.
const LAST: usize = 3;

/// An object of two copies on the targets of two engines, the first of which leads.
fn object(cont: &Container, ranks: [u32; 2]) -> KvObj {
    let map = cont.pool().map();
    let rank = |target: &TargetId| map.target(*target).unwrap().rank.0;
    let class = "RP_2G1".parse().unwrap();
    let oids = (0..).map(|number| cont.generate_oid(ObjType::KvHashed, class, 0, number).unwrap());
    let is_meant = |oid: &types::Oid| {
        let layout = cont.layout(*oid).unwrap();
        let members: Vec<u32> = layout.members(0).iter().map(rank).collect();
        members == ranks
    };
    KvObj { object: cont.object(oids.into_iter().find(is_meant).unwrap()) }
}

async fn open(client: &Client) -> Container {
    let name = |text: &str| Name::Label(text.into());
    let pool = client.pool_open(&name("p"), OpenMode::ReadWrite).await.unwrap();
    pool.cont_open(&name("c"), OpenMode::ReadWrite).await.unwrap()
}

async fn newest(client: &Client) -> PoolMap {
    let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadOnly).await.unwrap();
    PoolMap::clone(&pool.map())
}

/// A leader ends while it holds a part of a transaction, and does not know when it is back how that was decided. The other member of the group does, and
/// has no note of it any more: so the part was dropped, for what it has changed is compared later. Before that was done the other member ended for a
/// moment, too. Of two that were opened again the first one led, and what had been acknowledged was gone: names that moved to another group of a
/// directory, for one.
#[test]
fn a_part_that_others_have_decided_is_not_dropped_by_who_may_lead() {
    for seed in seeds(1) {
        for at in 0..40 {
            let cluster = Cluster::start(ClusterSpec { seed, engines: 4, targets: 1 }).unwrap();
            cluster.block_on(async {
                let client = cluster.client("c");
                let cont =
                    cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
                let (one, other) = (object(&cont, [0, LAST as u32]), object(&cont, [1, 2]));
                for kv in [&one, &other] {
                    kv.put(None, Cond::NONE, b"k", b"before").await.unwrap();
                }
                let env = client.env();
                let commit = async {
                    loop {
                        let tx = Tx::open(&cont, false);
                        one.put(Some(&tx), Cond::NONE, b"k", b"after").await.unwrap();
                        other.put(Some(&tx), Cond::NONE, b"k", b"after").await.unwrap();
                        match tx.commit().await {
                            Ok(_) => break,
                            Err(error) => assert_eq!(error.code, types::Code::TxRestart),
                        }
                    }
                };
                let net = SimNet::of(cluster.world());
                let trouble = async {
                    env.sleep(Duration::from_micros(50 * at)).await;
                    net.cut("e1", &Cluster::engine_name(LAST));
                    cluster.kill_engine(1);
                    cluster.start_engine(1).await.unwrap();
                };
                join(commit, trouble).await;
                env.sleep(Duration::from_secs(2)).await;
                cluster.kill_engine(2);
                cluster.start_engine(2).await.unwrap();
                env.sleep(Duration::from_secs(1)).await;
                for kv in [&one, &other] {
                    let found = kv.get(None, b"k").await.unwrap();
                    let context = format!("seed {seed}, at {at}: {:?}", newest(&client).await);
                    assert_eq!(found.as_deref(), Some(&b"after"[..]), "{context}");
                }
            });
        }
    }
}

/// A key is held by a transaction that nobody can decide for a while, longer than one target of several is waited for at first. Its leader gave up
/// when that time was over by its own clock, which was a moment before the client's: that was told to the caller, who had minutes left.
#[test]
fn who_meets_a_doubt_that_lasts_longer_than_a_try_waits_on() {
    for seed in seeds(1) {
        let longest = std::cell::Cell::new(Duration::ZERO);
        for (at, is_first) in (4..8).flat_map(|at| [(at, false), (at, true)]) {
            let cluster = Cluster::start(ClusterSpec { seed, engines: 4, targets: 1 }).unwrap();
            for rank in 0..4 {
                cluster.world().set_monotonic_gain(&Cluster::engine_name(rank), 500);
            }
            cluster.block_on(async {
                let client = cluster.client("c");
                let cont =
                    cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
                let (one, other) = (object(&cont, [0, LAST as u32]), object(&cont, [1, 2]));
                for kv in [&one, &other] {
                    kv.put(None, Cond::NONE, b"k", b"before").await.unwrap();
                }
                let env = client.env();
                let parts = if is_first { [&one, &other] } else { [&other, &one] };
                let commit = async {
                    let tx = Tx::open(&cont, false);
                    for kv in parts {
                        kv.put(Some(&tx), Cond::NONE, b"k", b"after").await.unwrap();
                    }
                    // It may have lost to the one who looks.
                    let _ = tx.commit().await;
                };
                let trouble = async {
                    env.sleep(Duration::from_micros(100 * at)).await;
                    cluster.kill_engine(1);
                    cluster.kill_engine(2);
                    env.sleep(Duration::from_secs(10)).await;
                    cluster.start_engine(1).await.unwrap();
                    cluster.start_engine(2).await.unwrap();
                };
                let look = async {
                    env.sleep(Duration::from_secs(1)).await;
                    let found = one.get(None, b"k").await.map(|_| ());
                    longest.set(longest.get().max(env.now()));
                    let put = one.put(None, Cond::NONE, b"k", b"last").await;
                    found.and(put).unwrap_or_else(|error| panic!("seed {seed}, at {at}: {error}"));
                };
                futures_util::join!(commit, trouble, look);
                // Either of the two that were under way may have come last.
                let found = one.get(None, b"k").await.unwrap().unwrap();
                assert!(
                    [b"last".as_slice(), b"after"].contains(&&found[..]),
                    "seed {seed}, at {at}"
                );
            });
        }
        assert!(longest.get() > Duration::from_secs(5), "seed {seed}: nobody met the doubt");
    }
}

/// A transaction was committed, and its leader lost its store before the client heard of it. Back, and not known yet to have lost anything, it said that it does not hold the pool; that was taken for
/// a transaction that came to nothing, and tried once more as another one, which met what the first had written: the client was told that it had lost a conflict (seed 3313 of the swarm
/// with targets that are excluded).
#[test]
fn what_was_committed_before_its_leader_lost_its_store_is_told_as_committed() {
    let mut committed = 0;
    for at in seeds(4) {
        let cluster = Cluster::start(ClusterSpec { seed: at, engines: 4, targets: 2 }).unwrap();
        committed += cluster.block_on(async {
            let (client, other) = (cluster.client("c"), cluster.client("o"));
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let env = other.env();
            // Of two groups, so that one of them coordinates.
            let (one, two) = (object(&cont, [1, 2]), object(&cont, [1, 3]));
            for kv in [&one, &two] {
                kv.put(None, Cond::NONE, b"k", b"before").await.unwrap();
            }
            let tx = Tx::open(&cont, false);
            for kv in [&one, &two] {
                assert_eq!(kv.get(Some(&tx), b"k").await.unwrap().unwrap(), b"before");
                kv.put(Some(&tx), Cond::NONE, b"k", b"after").await.unwrap();
            }
            let (net, lost) = (SimNet::of(cluster.world()), Cluster::engine_name(1));
            net.cut_one_way(&lost, "c");
            let trouble = async {
                env.sleep(Duration::from_millis(20)).await;
                // What is held up on its way would come when the link is there again.
                net.break_connections(&lost, "c");
                cluster.kill_engine(1);
                let disk = cluster.world().disk(&lost);
                (0..2).for_each(|target| disk.wipe(Path::new(&format!("/target{target}"))));
                net.heal_all();
                // The client hears from it alone for a while.
                [0, 2, 3].iter().for_each(|at| net.cut("c", &Cluster::engine_name(*at)));
                cluster.start_engine(1).await.unwrap();
                env.sleep(Duration::from_secs(2)).await;
                net.heal_all();
            };
            let (told, ()) = join(tx.commit(), trouble).await;
            let seen = KvObj { object: open(&other).await.object(one.object.oid()) };
            let found = seen.get(None, b"k").await.unwrap().unwrap();
            match told {
                Ok(_) => assert_eq!(found, b"after", "at {at}"),
                Err(error) => assert_eq!(found, b"before", "at {at}: {error}"),
            }
            u32::from(found == b"after")
        });
    }
    assert!(committed > 0, "none was committed");
}

/// A part of a transaction that comes to nothing, as when a file that never got a byte is replaced. Its coordinator ended before it had decided; the part names no group then, so nobody
/// asked how that had ended, and a rollback, which waits for all parts, waited for ever (seed 5718 of the swarm's names).
#[test]
fn a_part_that_comes_to_nothing_is_decided_when_its_coordinator_ends() {
    for (at, is_other) in (0..40).flat_map(|at| [(at, false), (at, true)]) {
        let cluster = Cluster::start(ClusterSpec { seed: at, engines: 2, targets: 1 }).unwrap();
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let class = "S1".parse().unwrap();
            let on = |target: u32| {
                let oids =
                    (0..).map(|number| cont.generate_oid(ObjType::KvHashed, class, 0, number));
                let mut oids = oids.map(Result::unwrap);
                let leads =
                    |oid: &types::Oid| cont.layout(*oid).unwrap().members(0) == [TargetId(target)];
                oids.find(leads).unwrap()
            };
            let (entry, empty) = (KvObj { object: cont.object(on(0)) }, on(1));
            entry.put(None, Cond::NONE, b"k", b"before").await.unwrap();
            let snapshot = cont.pool().snap_create(&Name::Label("c".into()), "").await.unwrap();
            let env = client.env();
            let replace = async {
                let mut batch = cont.batch();
                let value = UpdateValue::Inline(b"after");
                let iods = vec![UpdateIod { akey: b"", cond: Cond::NONE, value }];
                let unit = entry.object.oid().first_unit();
                batch.op(Op::Update { unit, dkey: b"k", cond: Cond::NONE, iods });
                batch.op(Op::PunchUnlessOpen { unit: empty.first_unit() });
                // It may be rolled back before it is there.
                let _ = batch.run().await;
            };
            let trouble = async {
                env.sleep(Duration::from_micros(50 * at)).await;
                for rank in if is_other { vec![0, 1] } else { vec![0] } {
                    cluster.kill_engine(rank);
                }
                env.sleep(Duration::from_secs(1)).await;
                for rank in if is_other { vec![0, 1] } else { vec![0] } {
                    cluster.start_engine(rank).await.unwrap();
                }
            };
            join(replace, trouble).await;
            let back = SnapName::Epoch(snapshot.epoch);
            let name = Name::Label("c".into());
            let rolled = cont.pool().roll_back(&name, &back, true);
            let rolled = env.timeout(Duration::from_secs(20), rolled).await;
            rolled.unwrap_or_else(|| panic!("at {at}: it waits for something")).unwrap();
            let found = entry.get(None, b"k").await.unwrap();
            assert_eq!(found.as_deref(), Some(&b"before"[..]), "at {at}");
        });
    }
}
