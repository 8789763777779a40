//! Jobs in the background give way to all others of an engine, and wait for nobody where there are none.

use client::{ArrayObj, Client, Container};
use futures_util::future::{Either, join_all, select};
use sim::{Cluster, ClusterSpec, seeds};
use std::cell::Cell;
use std::pin::pin;
use std::time::Duration;
use types::{ContLayout, Durability, ObjType, TargetId};
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
        // A target that has not looked for long takes what was before, here the making of the container, for something that is now.
        let range = [Recx { index: 0, count: BLOCK }];
        for file in &theirs {
            file.write(&range, &[&vec![7; BLOCK as usize]]).await.unwrap();
        }
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
