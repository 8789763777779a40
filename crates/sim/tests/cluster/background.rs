//! Jobs in the background give way to all others of an engine, and wait for nobody where there are none.

use client::{ArrayObj, Client, Container};
use futures_util::future::{Either, join_all, select};
use sim::{Cluster, ClusterSpec, seeds};
use std::cell::Cell;
use std::pin::pin;
use std::time::Duration;
use types::{ContLayout, Durability, ObjType, Oid, TargetId};
use wire::control::{Name, OpenMode};
use wire::obj::Recx;

const LENGTH: Duration = Duration::from_millis(500);
const BLOCK: u64 = 256 << 10;

/// A file of one target each, on all of them.
fn files(cont: &Container, first: u64) -> Vec<ArrayObj> {
    let mut found: Vec<(TargetId, ArrayObj)> = Vec::new();
    for number in first.. {
        let class = "S1".parse().unwrap();
        let oid = cont.generate_oid(ObjType::ArrayByte, class, 0, number).unwrap();
        let at = cont.layout(oid).unwrap().targets()[0];
        if found.iter().all(|(target, _)| *target != at) {
            let file =
                ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: 1 << 20 };
            found.push((at, file));
        }
        if found.len() == 2 {
            break;
        }
    }
    found.sort_by_key(|(target, _)| *target);
    found.into_iter().map(|(_, file)| file).collect()
}

/// Writes and reads blocks until the time is over; counts them.
async fn work_on(client: &Client, file: &ArrayObj, count: &Cell<u64>) {
    let (data, mut room) = (vec![7; BLOCK as usize], vec![0; BLOCK as usize]);
    let end = client.env().now() + LENGTH;
    while client.env().now() < end {
        let range = [Recx { index: count.get() % 8 * BLOCK, count: BLOCK }];
        file.write(&range, &[&data]).await.unwrap();
        file.read(&range, &mut [&mut room]).await.unwrap();
        assert!(room == data);
        count.set(count.get() + 1);
    }
}

/// Blocks that a user of the first target moves, and those of a job on both targets beside it; without a user: of the job alone.
fn moved(seed: u64, durability: Durability, user: bool, job: &str) -> (u64, u64) {
    let cluster = Cluster::start(ClusterSpec { seed, engines: 1, targets: 2 }).unwrap();
    cluster.block_on(async {
        let setup = cluster.client("setup");
        let cont = cluster.container(&setup, durability, ContLayout::Plain).await.unwrap();
        let (ours, theirs) = (files(&cont, 0), files(&cont, 1000));
        let (by_user, by_job) = (Cell::new(0), Cell::new(0));
        let client = cluster.client_in_job("mover", job);
        let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await.unwrap();
        let own = pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await.unwrap();
        let theirs: Vec<ArrayObj> =
            theirs.into_iter().map(|file| ArrayObj { cont: own.clone(), ..file }).collect();
        client.env().sleep(Duration::from_millis(200)).await;
        let mover = join_all(theirs.iter().map(|file| work_on(&client, file, &by_job)));
        match user {
            true => {
                let user = work_on(&setup, &ours[0], &by_user);
                // What the job has begun may wait for longer than the user is there.
                match select(pin!(user), pin!(mover)).await {
                    Either::Left(_) => {}
                    Either::Right((_, user)) => user.await,
                }
            }
            false => drop(mover.await),
        }
        (by_user.get(), by_job.get())
    })
}

/// A job of another name has as much as the user beside it. That holds for the target that the user does not use, too: it is on the same machine.
#[test]
fn jobs_in_the_background_give_way() {
    for seed in seeds(1) {
        for durability in [Durability::Memory, Durability::Wal] {
            let beside = |job| moved(seed, durability, true, job);
            let ((user, job), (before, other)) = (beside("background-copy"), beside("copy"));
            let told = format!(
                "seed {seed}, {durability:?}: user {user} beside {job}, {before} beside {other}"
            );
            assert!(job > 0, "{told}");
            assert!(job * 4 < other, "{told}");
            // Simulated processors are never busy, and devices hardly are.
            assert!(user * 100 >= before * 95, "{told}");
            // Nobody else is there.
            let alone = |job| moved(seed, durability, false, job).1;
            let (job, other) = (alone("background"), alone("copy"));
            assert!(job * 10 >= other * 9, "seed {seed}: {job} alone, {other} as another job");
        }
    }
}

/// Steps of a job that asks an engine for a block and then does something that no engine has a part in: while a user works on another target, and after that.
fn steps(seed: u64, job: &str) -> (u64, u64) {
    let cluster = Cluster::start(ClusterSpec { seed, engines: 1, targets: 2 }).unwrap();
    cluster.block_on(async {
        let setup = cluster.client("setup");
        let cont = cluster.container(&setup, Durability::Memory, ContLayout::Plain).await.unwrap();
        let (ours, theirs) = (files(&cont, 0), files(&cont, 1000));
        let client = cluster.client_in_job("mover", job);
        let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await.unwrap();
        let own = pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await.unwrap();
        let file = ArrayObj { cont: own, ..theirs[1].clone() };
        let range = [Recx { index: 0, count: BLOCK }];
        file.write(&range, &[&vec![7; BLOCK as usize]]).await.unwrap();
        let count = Cell::new(0);
        let steps = async {
            let mut room = vec![0; BLOCK as usize];
            loop {
                file.read(&range, &mut [&mut room]).await.unwrap();
                let works = async { client.env().sleep(Duration::from_millis(10)).await };
                client.beside_users(works).await;
                count.set(count.get() + 1);
            }
        };
        let watch = async {
            let by_user = Cell::new(0);
            for _ in 0..4 {
                work_on(&setup, &ours[0], &by_user).await;
            }
            let beside = count.replace(0);
            // It rests for the last time, and has heard of nobody for a while.
            setup.env().sleep(Duration::from_secs(4)).await;
            count.set(0);
            setup.env().sleep(4 * LENGTH).await;
            (beside, count.get())
        };
        match select(pin!(watch), pin!(steps)).await {
            Either::Left((counts, _)) => counts,
            Either::Right((never, _)) => never,
        }
    })
}

/// What a mover computes, and what it has a store do on the same machine, no engine holds back: it did that all the time that users were there.
#[test]
fn what_no_engine_holds_back_rests_beside_users() {
    for seed in seeds(1) {
        let (beside, alone) = steps(seed, types::job::TIER_MOVER);
        let (other, _) = steps(seed, "copy");
        let told =
            format!("seed {seed}: {beside} beside a user, {alone} alone, {other} of another job");
        assert!(beside > 5 && beside * 5 < alone, "{told}");
        assert!(other * 10 > alone * 9, "{told}");
    }
}

/// A file that these targets have, their leader first.
fn file_at(cont: &Container, class: &str, targets: &[TargetId]) -> ArrayObj {
    let oids = (0..).map(|number| {
        cont.generate_oid(ObjType::ArrayByte, class.parse().unwrap(), 0, number).unwrap()
    });
    let is_there = |oid: &Oid| cont.layout(*oid).unwrap().targets() == targets;
    let oid = oids.take(1000).find(is_there).unwrap();
    ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: 1 << 20 }
}

/// Writes and reads a block of each file again and again; returns after how many of so many requests users were there.
async fn heard(client: &Client, files: &[ArrayObj], rounds: u32) -> u32 {
    let (range, data) = ([Recx { index: 0, count: BLOCK }], vec![7; BLOCK as usize]);
    let (mut room, mut heard) = (vec![0; BLOCK as usize], 0);
    for _ in 0..rounds {
        for file in files {
            file.write(&range, &[&data]).await.unwrap();
            heard += u32::from(client.gives_way());
            file.read(&range, &mut [&mut room]).await.unwrap();
            heard += u32::from(client.gives_way());
        }
    }
    heard
}

/// A mover in a pool that nobody used heard of users: of those of long before, where a target had not been asked since, and of itself, where what it writes has
/// copies. So it rested beside nobody.
#[test]
fn a_mover_does_not_hear_of_itself_or_of_long_before() {
    for seed in seeds(2) {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 2, targets: 1 }).unwrap();
        let told = cluster.block_on(async {
            let setup = cluster.client("setup");
            let cont = cluster.container(&setup, Durability::Wal, ContLayout::Plain).await.unwrap();
            let client = cluster.client_in_job("mover", types::job::TIER_MOVER);
            let pool =
                client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await.unwrap();
            let own = pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await.unwrap();
            let (a, b) = (TargetId(0), TargetId(1));
            let theirs = [file_at(&own, "RP_2G1", &[a, b]), file_at(&own, "RP_2G1", &[b, a])];
            let of_user = file_at(&cont, "RP_2G1", &[a, b]);
            let at_member = [file_at(&own, "S1", &[b])];
            let nap = || client.env().sleep(Duration::from_secs(5));
            let mut told = Vec::new();
            for _ in 0..2 {
                heard(&setup, std::slice::from_ref(&of_user), 3).await;
                nap().await;
                told.push(heard(&client, &theirs, 20).await);
                nap().await;
                // The user has nothing of the target that the mover asks but copies of what is written.
                let mut beside = 0;
                for _ in 0..10 {
                    heard(&setup, std::slice::from_ref(&of_user), 3).await;
                    beside += heard(&client, &at_member, 1).await;
                }
                told.push(beside);
                nap().await;
            }
            told
        });
        assert_eq!((told[0], told[2]), (0, 0), "seed {seed}: {told:?}");
        assert!(told[1] >= 10 && told[3] >= 10, "seed {seed}: {told:?}");
    }
}
