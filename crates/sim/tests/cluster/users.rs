//! Who has a pool or a container open, when the engine with the control service is started again: it knows of nobody, and those who have it open say so.

use client::{Client, Container};
use sim::{Cluster, ClusterSpec, seeds};
use std::time::Duration;
use types::{Code, ContLayout, Durability};
use wire::control::{Name, OpenMode};

const SECOND: Duration = Duration::from_secs(1);
const RW: OpenMode = OpenMode::ReadWrite;

fn label(text: &str) -> Name {
    Name::Label(text.into())
}

/// A client that asks this engine first.
fn client_of(cluster: &Cluster, name: &str, engine: usize) -> Client {
    cluster.client_with(name, |options| options.system.engines.rotate_left(engine))
}

async fn open(client: &Client, mode: OpenMode) -> Container {
    client.open(&label("p"), RW, &label("c"), mode).await.unwrap()
}

async fn close(cont: Container) {
    let pool = cont.pool().clone();
    cont.close().await.unwrap();
    pool.close().await.unwrap();
}

/// Handles on the pool, and on the container.
async fn counts(client: &Client) -> (u64, u64) {
    let pool = client.pool_query(&label("p")).await.unwrap();
    let handles = pool.handle_count;
    let pool = client.pool_open(&label("p"), RW).await.unwrap();
    let cont = pool.cont_query(&label("c")).await.unwrap();
    pool.close().await.unwrap();
    (handles, cont.handle_count)
}

async fn destroy(client: &Client) -> types::Result<()> {
    let pool = client.pool_open(&label("p"), RW).await?;
    let destroyed = pool.cont_destroy(label("c"), false).await;
    pool.close().await?;
    destroyed
}

/// Mounts of before were not known after a restart: a container was destroyed under them without `--force`, rolled back, and checked as if nobody used it.
#[test]
fn who_has_a_container_open_is_known_after_a_restart() {
    for (seed, away) in seeds(9).zip([0, 1, 8].into_iter().cycle()) {
        let spec = ClusterSpec { seed, engines: 3, targets: 1 };
        let cluster = Cluster::start(spec).unwrap();
        cluster.block_on(async {
            let setup = cluster.client("setup");
            let cont = cluster.container(&setup, Durability::Wal, ContLayout::Plain).await.unwrap();
            close(cont).await;
            // As long as an engine takes to have a copy of the catalog.
            setup.env().sleep(5 * SECOND).await;
            let mut users = Vec::new();
            for engine in 0..3 {
                users.push(open(&client_of(&cluster, &format!("u{engine}"), engine), RW).await);
            }
            assert_eq!(counts(&setup).await, (3, 3));
            cluster.kill_engine(0);
            setup.env().sleep(away * SECOND).await;
            // Given from a copy while nobody is there.
            let late = open(&client_of(&cluster, "late", 1), RW).await;
            // Not given back to anybody.
            let gone = users.pop().unwrap();
            close(gone).await;
            cluster.start_engine(0).await.unwrap();
            // Who comes at once is kept waiting until it is known.
            let error = destroy(&setup).await.unwrap_err();
            assert_eq!(error.code, Code::Busy, "seed {seed}: {error}");
            setup.env().sleep(5 * SECOND).await;
            assert_eq!(counts(&setup).await, (3, 3), "seed {seed}");
            // Nothing is asked for again that nobody has lost.
            let asked = |users: &[Container]| -> u64 {
                users.iter().map(|user| user.client().request_count()).sum()
            };
            let before = asked(&users);
            setup.env().sleep(60 * SECOND).await;
            assert_eq!(asked(&users), before, "seed {seed}");
            users.push(late);
            for user in users {
                close(user).await;
            }
            assert_eq!(counts(&setup).await, (0, 0), "seed {seed}");
            destroy(&setup).await.unwrap();
        });
    }
}

/// The same with one who has it alone; and who was given back what he lost can give it back himself.
#[test]
fn who_has_a_container_alone_has_it_after_a_restart() {
    for seed in seeds(6) {
        let engine = seed as usize % 3;
        let cluster = Cluster::start(ClusterSpec { seed, engines: 3, targets: 1 }).unwrap();
        cluster.block_on(async {
            let setup = cluster.client("setup");
            let cont = cluster.container(&setup, Durability::Wal, ContLayout::Plain).await.unwrap();
            close(cont).await;
            let alone = open(&client_of(&cluster, "alone", engine), OpenMode::Exclusive).await;
            cluster.kill_engine(0);
            setup.env().sleep(SECOND).await;
            cluster.start_engine(0).await.unwrap();
            setup.env().sleep(20 * SECOND).await;
            let other = client_of(&cluster, "other", 1);
            let refused = other.open(&label("p"), RW, &label("c"), RW).await;
            assert_eq!(refused.err().map(|error| error.code), Some(Code::Busy), "seed {seed}");
            close(alone).await;
            close(open(&other, OpenMode::Exclusive).await).await;
        });
    }
}

/// A container that was destroyed by force is not asked for for ever; and who drops all that he has needs no handle.
#[test]
fn what_is_gone_is_not_asked_for_again() {
    for seed in seeds(4) {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 3, targets: 1 }).unwrap();
        cluster.block_on(async {
            let setup = cluster.client("setup");
            let cont = cluster.container(&setup, Durability::Wal, ContLayout::Plain).await.unwrap();
            close(cont).await;
            let user = open(&client_of(&cluster, "user", 1), RW).await;
            let dropped = open(&client_of(&cluster, "dropped", 1), RW).await;
            let client = dropped.client().clone();
            drop(dropped);
            let pool = setup.pool_open(&label("p"), RW).await.unwrap();
            pool.cont_destroy(label("c"), true).await.unwrap();
            cluster.kill_engine(0);
            setup.env().sleep(SECOND).await;
            cluster.start_engine(0).await.unwrap();
            // For a minute it may be what a catalog tells that was emptied.
            setup.env().sleep(90 * SECOND).await;
            let asked = || (user.client().request_count(), client.request_count());
            let before = asked();
            setup.env().sleep(60 * SECOND).await;
            assert_eq!(asked(), before, "seed {seed}");
        });
    }
}
