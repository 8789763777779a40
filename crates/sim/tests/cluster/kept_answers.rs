//! Answers that a leader has kept of updates that nobody else has.

use client::{ArrayObj, Container, KvObj, Tx};
use env::DiskFaults;
use futures_util::future::join;
use sim::{Cluster, ClusterSpec, members, seeds};
use std::time::Duration;
use transport::SimNet;
use types::{Code, ContLayout, Durability, ObjType, Oid, TargetId};
use wire::map::{LEFT_UNSURE, PoolMap};
use wire::obj::{Cond, Recx};

/// An object whose group is these targets, and its leader.
fn object_of(
    cont: &Container,
    map: &PoolMap,
    class: &str,
    meant: &[TargetId],
) -> (KvObj, TargetId) {
    let class = class.parse().unwrap();
    let oid = |number| cont.generate_oid(ObjType::KvHashed, class, 0, number).unwrap();
    let members = |oid: &Oid| placement::layout(*oid, map).unwrap().members(0).to_vec();
    let is_meant = |oid: &Oid| members(oid).iter().all(|member| meant.contains(member));
    let oid = (1..).map(oid).find(is_meant).unwrap();
    (KvObj { object: cont.object(oid) }, members(&oid)[0])
}

/// Who asks again after the power of all members has gone while an update was with their leader alone, and come back.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Asks {
    /// The leader, which is lost for good as soon as it has answered.
    Leader,
    /// One of the others, when the leader is lost for good.
    Others,
}

/// Nobody has compared himself with the leader before it is lost.
fn run(seed: u64, asks: Asks) {
    let spec = ClusterSpec { seed, engines: 5, targets: 1 };
    let cluster = Cluster::start(spec).unwrap();
    cluster.block_on(async {
        let client = cluster.client("c");
        let cont = cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
        let map = members::newest_map(&client).await.unwrap();
        let group = [1, 2, 3].map(TargetId);
        let (kv, leader) = object_of(&cont, &map, "RP_3G1", &group);
        kv.put(None, Cond::NONE, b"before", b"all have it").await.unwrap();
        let name = |target: TargetId| Cluster::engine_name(target.0 as usize);
        let net = SimNet::of(cluster.world());
        let followers = group.into_iter().filter(|target| *target != leader);
        let followers: Vec<TargetId> = followers.collect();
        for follower in &followers {
            net.cut_one_way(&name(leader), &name(*follower));
        }
        let env = cluster.world().node("trouble");
        let lose_leader = || {
            cluster.kill_engine(leader.0 as usize);
            net.heal_all();
        };
        let put = async {
            kv.put(None, Cond::DKEY_INSERT, b"key", b"value").await.unwrap();
            if asks == Asks::Leader {
                lose_leader();
            }
        };
        let trouble = async {
            env.sleep(Duration::from_millis(100)).await;
            group.iter().for_each(|target| cluster.kill_engine(target.0 as usize));
            net.heal_all();
            // They cannot compare themselves with all others.
            for follower in &followers {
                net.cut(&name(*follower), "e4");
            }
            if asks == Asks::Others {
                net.cut("c", &name(leader));
            }
            for target in group {
                cluster.start_engine(target.0 as usize).await.unwrap();
            }
            if asks == Asks::Others {
                env.sleep(Duration::from_secs(3)).await;
                lose_leader();
            }
        };
        join(put, trouble).await;
        let context = format!("seed {seed}, {asks:?}");
        let found = kv.get(None, b"key").await.unwrap();
        assert_eq!(found.as_deref(), Some(&b"value"[..]), "{context}");
        kv.put(None, Cond::NONE, b"after", b"others go on").await.unwrap();
    });
}

/// A leader told who asked again that it was done, by the answer that it had kept, and was lost for good before anybody had what it was about.
#[test]
fn what_is_told_again_after_all_were_killed_is_with_others() {
    seeds(6).for_each(|seed| run(seed, Asks::Leader));
}

/// Who compared himself with a leader got its answers first: when that was lost before the keys were compared, he told who asked again that it was done.
#[test]
fn answers_come_after_what_they_are_about() {
    seeds(6).for_each(|seed| run(seed, Asks::Others));
}

/// Power goes while the leader, whose device is slow, has not written down what the others have. They get what it has of the key, and while they compare other things it is
/// lost for good. Who led then told who asked again, by the answer that was to go when all had been compared, that what had been taken back was done.
#[test]
fn answers_go_with_what_is_taken_back_while_others_are_compared() {
    for at in 0..20 {
        let cluster = Cluster::start(ClusterSpec { seed: at, engines: 5, targets: 1 }).unwrap();
        cluster.block_on(take_back(&cluster, at));
    }
}

/// `at` says when the leader is lost.
async fn take_back(cluster: &Cluster, at: u64) {
    let client = cluster.client("c");
    let cont = cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
    let map = members::newest_map(&client).await.unwrap();
    let group = [1, 2, 3].map(TargetId);
    let (kv, leader) = object_of(&cont, &map, "RP_3G1", &group);
    kv.put(None, Cond::NONE, b"before", b"all have it").await.unwrap();
    let name = |target: TargetId| Cluster::engine_name(target.0 as usize);
    let (net, env) = (SimNet::of(cluster.world()), cluster.world().node("trouble"));
    let followers = group.into_iter().filter(|target| *target != leader);
    for follower in followers.clone() {
        // What may be folded is compared key by key whatever its epochs say, with a leader that is far from all.
        let oids = (100..).map(|number| {
            let class = "EC_2P1G1".parse().unwrap();
            cont.generate_oid(ObjType::ArrayByte, class, 0, number).unwrap()
        });
        let is_meant = |oid: &Oid| {
            let layout = placement::layout(*oid, &map).unwrap();
            layout.members(0) == [TargetId(4), follower]
        };
        let oid = oids.into_iter().find(is_meant).unwrap();
        let array = ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: 65_536 };
        array.write(&[Recx { index: 0, count: 5 }], &[b"bytes"]).await.unwrap();
    }
    let takes = Duration::from_millis(20);
    let slow = DiskFaults { latency_min: takes, latency_max: takes, ..DiskFaults::default() };
    cluster.world().disk(&name(leader)).set_faults(slow);
    let put = kv.put(None, Cond::DKEY_INSERT, b"key", b"value");
    let trouble = async {
        env.sleep(Duration::from_millis(10)).await;
        group.iter().for_each(|target| cluster.kill_engine(target.0 as usize));
        cluster.world().disk(&name(leader)).set_faults(DiskFaults::default());
        net.set_far("e4", Duration::from_millis(300));
        net.cut("c", &name(leader));
        for target in group {
            cluster.start_engine(target.0 as usize).await.unwrap();
        }
        env.sleep(Duration::from_millis(200 * at)).await;
        cluster.kill_engine(leader.0 as usize);
        net.heal_all();
    };
    let (told, ()) = join(put, trouble).await;
    told.unwrap();
    let found = kv.get(None, b"key").await.unwrap();
    assert_eq!(found.as_deref(), Some(&b"value"[..]), "at {at}");
}

/// Power goes while the decision of a transaction is with some members, and its leader, whose device is slow, has not written it down. By the leader's notes there is none, so
/// the others dropped it at once, and their answer to its client when all else had been compared. The leader was lost for good in between, and who led then told who asked
/// again that what had been taken back was done.
#[test]
fn an_answer_about_a_decision_goes_with_it() {
    for at in 0..30 {
        let cluster = Cluster::start(ClusterSpec { seed: at, engines: 6, targets: 1 }).unwrap();
        cluster.block_on(lose_a_decision(&cluster, at, true));
    }
}

/// Power goes while a part of a transaction is with some members, and their leader, whose device is slow, has not written it down. By the leader's notes it was decided, so
/// the others dropped it, and said that they may lack what it has changed. When the leader was lost for good they waited for it, though nothing was with it alone.
#[test]
fn a_part_that_a_lost_leader_never_had_holds_nobody_up() {
    for at in 0..10 {
        let cluster = Cluster::start(ClusterSpec { seed: at, engines: 6, targets: 1 }).unwrap();
        cluster.block_on(lose_a_decision(&cluster, at, false));
    }
}

/// `at` says when power goes. `is_coordinator`: in the group that coordinates the transaction, else in another one.
async fn lose_a_decision(cluster: &Cluster, at: u64, is_coordinator: bool) {
    let client = cluster.client("c");
    let cont = cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
    let map = members::newest_map(&client).await.unwrap();
    let group = [1, 2, 3].map(TargetId);
    let (one, leader) = object_of(&cont, &map, "RP_3G1", &group);
    let (other, _) = object_of(&cont, &map, "RP_2G1", &[0, 5].map(TargetId));
    for kv in [&one, &other] {
        kv.put(None, Cond::NONE, b"k", b"before").await.unwrap();
    }
    let name = |target: TargetId| Cluster::engine_name(target.0 as usize);
    let (net, env) = (SimNet::of(cluster.world()), cluster.world().node("trouble"));
    let takes = Duration::from_millis(20);
    let slow = DiskFaults { latency_min: takes, latency_max: takes, ..DiskFaults::default() };
    cluster.world().disk(&name(leader)).set_faults(slow);
    let commit = async {
        loop {
            let tx = Tx::open(&cont, false);
            let (first, second) = if is_coordinator { (&one, &other) } else { (&other, &one) };
            for kv in [first, second] {
                kv.put(Some(&tx), Cond::NONE, b"k", b"after").await.unwrap();
            }
            match tx.commit().await {
                Ok(_) => break,
                Err(error) => {
                    let may_be = matches!(error.code, Code::TxRestart | Code::Unreach);
                    assert!(may_be, "at {at}: {error}");
                    client.env().sleep(Duration::from_millis(200)).await;
                }
            }
        }
    };
    let trouble = async {
        env.sleep(Duration::from_millis(10 + 3 * at)).await;
        group.iter().for_each(|target| cluster.kill_engine(target.0 as usize));
        cluster.world().disk(&name(leader)).set_faults(DiskFaults::default());
        for follower in group.iter().filter(|target| **target != leader) {
            // They cannot compare themselves with all others.
            net.cut(&name(*follower), "e4");
        }
        net.cut("c", &name(leader));
        for target in group {
            cluster.start_engine(target.0 as usize).await.unwrap();
        }
        env.sleep(Duration::from_secs(3)).await;
        cluster.kill_engine(leader.0 as usize);
        net.heal_all();
    };
    let both = client.env().timeout(Duration::from_secs(120), join(commit, trouble)).await;
    assert!(both.is_some(), "at {at}: nobody leads");
    for kv in [&one, &other] {
        let found = kv.get(None, b"k").await.unwrap();
        assert_eq!(found.as_deref(), Some(&b"after"[..]), "at {at}");
    }
}

/// Power goes while a part of a transaction is with those who follow, and their leader, which coordinates it and whose device is slow, has not written it down. Before they can
/// compare themselves with it, it changes a key of the part. They wait for its word on the part, and it waited, before it said anything, until they had what it had
/// ordered: after five seconds they said that they may lack something, and nobody counted on them any more.
#[test]
fn a_leader_that_is_asked_about_a_part_does_not_wait_for_who_asks() {
    for at in 0..20 {
        let cluster = Cluster::start(ClusterSpec { seed: at, engines: 6, targets: 1 }).unwrap();
        cluster.block_on(ask_who_is_held_up(&cluster, at));
    }
}

/// `at` says when power goes.
async fn ask_who_is_held_up(cluster: &Cluster, at: u64) {
    let client = cluster.client("c");
    let cont = cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
    let map = members::newest_map(&client).await.unwrap();
    let class = "RP_3G1".parse().unwrap();
    let oids = (1..).map(|number| cont.generate_oid(ObjType::KvHashed, class, 0, number).unwrap());
    let is_meant = |oid: &Oid| {
        let members = placement::layout(*oid, &map).unwrap().members(0).to_vec();
        members[0] == TargetId(4) && !members.iter().any(|of| [0, 1].contains(&of.0))
    };
    let oid = oids.into_iter().find(is_meant).unwrap();
    let group = placement::layout(oid, &map).unwrap().members(0).to_vec();
    let one = KvObj { object: cont.object(oid) };
    let (other, _) = object_of(&cont, &map, "RP_2G1", &[0, 1].map(TargetId));
    for kv in [&one, &other] {
        kv.put(None, Cond::NONE, b"k", b"before").await.unwrap();
    }
    let name = |target: TargetId| Cluster::engine_name(target.0 as usize);
    let (net, env) = (SimNet::of(cluster.world()), cluster.world().node("trouble"));
    let takes = Duration::from_millis(20);
    let slow = DiskFaults { latency_min: takes, latency_max: takes, ..DiskFaults::default() };
    cluster.world().disk(&name(group[0])).set_faults(slow);
    let tx = Tx::open(&cont, false);
    for kv in [&one, &other] {
        kv.put(Some(&tx), Cond::NONE, b"k", b"part").await.unwrap();
    }
    let power = async {
        env.sleep(Duration::from_millis(2 + at)).await;
        group.iter().for_each(|target| cluster.kill_engine(target.0 as usize));
        cluster.world().disk(&name(group[0])).set_faults(DiskFaults::default());
        for follower in &group[1..] {
            // Whom they are to compare themselves with first.
            net.cut(&name(*follower), "e1");
        }
        for target in &group {
            cluster.start_engine(target.0 as usize).await.unwrap();
        }
    };
    let (committed, ()) = join(tx.commit(), power).await;
    let context = format!("at {at}, {committed:?}");
    one.put(None, Cond::NONE, b"k", b"after").await.unwrap();
    let map = members::newest_map(&client).await.unwrap();
    let left = |target: &TargetId| map.target(*target).unwrap().left;
    for target in &group[1..] {
        assert_eq!(
            left(target),
            LEFT_UNSURE,
            "{context}: {target} said that it may lack something"
        );
    }
}
