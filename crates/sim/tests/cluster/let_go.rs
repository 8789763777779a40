//! Parts of pools that targets have let go of: nothing goes on in them.

use client::{ArrayObj, Client, Container};
use sim::{Cluster, ClusterSpec, seeds};
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;
use transport::SimNet;
use types::{ContLayout, Durability, ObjType, TargetId};
use wire::control::Name;
use wire::map::DownReason;
use wire::obj::Recx;

/// The engine that has missed something.
const AWAY: usize = 1;

/// What engines say.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Said {
    /// How often it was said since the last question.
    fn count(&self, what: &str) -> usize {
        let said = std::mem::take(&mut *self.0.lock().unwrap());
        String::from_utf8(said).unwrap().matches(what).count()
    }
}

/// Files of two copies, all of them on the engines that do not hold the catalog.
fn files(cont: &Container, count: usize) -> Vec<ArrayObj> {
    let map = cont.pool().map();
    let rank = |target: &TargetId| map.target(*target).unwrap().rank.0;
    let class = "RP_2G1".parse().unwrap();
    let oids = (0..).map(|number| cont.generate_oid(ObjType::ArrayByte, class, 0, number).unwrap());
    let is_meant = |oid: &types::Oid| {
        cont.layout(*oid).unwrap().members(0).iter().all(|member| rank(member) != 0)
    };
    let array = |oid| ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: 1 << 20 };
    oids.filter(is_meant).map(array).take(count).collect()
}

async fn is_behind(client: &Client) -> bool {
    let pool = client.pool_open(&Name::Label("p".into()), wire::control::OpenMode::ReadOnly).await;
    let map = pool.unwrap().map();
    let is_away = |target: &&wire::map::TargetInfo| target.rank.0 as usize == AWAY;
    map.targets.iter().find(is_away).unwrap().reason == Some(DownReason::Behind)
}

/// A pool is destroyed while a target catches up with what it has missed of it. It was let go of, and the target went on asking others for what was missing, and said
/// every two seconds why it could not have it, until its engine stopped.
#[test]
fn nobody_catches_up_with_a_pool_that_is_destroyed() {
    for seed in seeds(3) {
        let said = Said::default();
        // As long as a process has one subscriber, what another test meets first is heard by nobody.
        let beside = tracing_subscriber::registry().set_default();
        let to = said.clone();
        let listening = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new("engine=info"))
            .with_ansi(false)
            .with_writer(move || to.clone())
            .set_default();
        let cluster = Cluster::start(ClusterSpec { seed, engines: 3, targets: 1 }).unwrap();
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let files = files(&cont, 8);
            let env = client.env();
            let write = async |byte: u8| {
                for file in &files {
                    file.write(&[Recx { index: 0, count: 3 }], &[&[byte; 3]]).await.unwrap();
                }
            };
            write(1).await;
            cluster.kill_engine(AWAY);
            write(2).await;
            SimNet::of(cluster.world()).cut("e1", "e2");
            cluster.start_engine(AWAY).await.unwrap();
            while !is_behind(&client).await {
                env.sleep(Duration::from_millis(100)).await;
            }
            env.sleep(Duration::from_secs(20)).await;
            assert!(said.count(": catching up: ") > 0, "seed {seed}: it is not at it");
            client.pool_destroy(Name::Label("p".into()), true).await.unwrap();
            SimNet::of(cluster.world()).heal("e1", "e2");
            // A try that has begun ends.
            env.sleep(Duration::from_secs(60)).await;
            said.count(": catching up: ");
            env.sleep(Duration::from_secs(60)).await;
            assert_eq!(said.count(": catching up: "), 0, "seed {seed}: it goes on");
        });
        drop((listening, beside));
    }
}
