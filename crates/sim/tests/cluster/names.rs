//! Names and files while the targets of their groups change.

use client::Client;
use dfs::sys::Sys;
use dfs::{CreateOptions, Credentials, Dfs, FormatOptions, MountFlags, OpenFlags};
use engine::StoreConfig;
use futures_util::future::join;
use sim::{Cluster, ClusterSpec, members, seeds};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{ContLayout, ContProps, Durability, PlacementRule};
use uuid::Uuid;
use wire::control::{ControlRequest, Name, OpenMode};

/// A pool on the first engines of a system, and a file system in it whose files and directories have two copies.
async fn file_system(client: &Client, engines: u32) -> Sys {
    let label = || Name::Label("p".into());
    let system = client.system_query().await.unwrap();
    let first = system.engines.iter().filter(|(info, ..)| info.rank.0 < engines);
    let create = ControlRequest::PoolCreate {
        label: "p".into(),
        bytes: 1 << 30,
        scm_percent: 20,
        durability: Durability::Wal,
        targets: first.flat_map(|(_, targets, _)| targets.clone()).collect(),
        placement: PlacementRule::Equal,
    };
    client.pool_create(create).await.unwrap();
    let pool = client.pool_open(&label(), OpenMode::ReadWrite).await.unwrap();
    let class = || "RP_2G1".parse().unwrap();
    let props = ContProps {
        layout: ContLayout::Posix,
        rd_fac: 1,
        oclass: class(),
        dir_oclass: class(),
        file_oclass: class(),
        ..ContProps::default()
    };
    pool.cont_create("fs", Uuid::nil(), props, BTreeMap::new()).await.unwrap();
    let name = Name::Label("fs".into());
    let cont = pool.cont_open(&name, OpenMode::ReadWrite).await.unwrap();
    Dfs::format(&cont, &FormatOptions::default()).await.unwrap();
    Sys::new(Dfs::mount(&cont, MountFlags::NONE, Credentials::root()).await.unwrap())
}

const NEW: OpenFlags = OpenFlags(OpenFlags::WRITE.0 | OpenFlags::CREATE.0 | OpenFlags::EXCL.0);

/// A file is made by one request when it is with its directory entry. While added targets take over their share, an older directory
/// moves and a new file beside it does not: they are placed together and are apart. Making a file failed then, with "a
/// transaction over several targets cannot open handles".
#[test]
fn files_are_made_while_shares_move() {
    for seed in seeds(6) {
        let spec = ClusterSpec { seed, engines: 6, targets: 1 };
        let cluster = Cluster::start_healing(spec, StoreConfig::default(), Some(4)).unwrap();
        cluster.block_on(async {
            let client = cluster.client("c");
            let label = || Name::Label("p".into());
            let sys = file_system(&client, 3).await;
            let dir = |at: u64| format!("/d{at}");
            for at in 0..20 {
                sys.mkdir(dir(at).as_bytes(), 0o755).await.unwrap();
                // Something to move.
                let path = format!("{}/old", dir(at));
                sys.write_file(path.as_bytes(), &[at as u8; 300_000], 0o644).await.unwrap();
            }
            let is_over = Cell::new(false);
            let make = async {
                let mut made = 0u64;
                while !is_over.get() || made < 200 {
                    let path = format!("{}/f{made}", dir(made % 20));
                    let options = CreateOptions::default();
                    let file = sys.open(path.as_bytes(), NEW, 0o644, &options).await;
                    let file = file.unwrap_or_else(|error| panic!("seed {seed}: {path}: {error}"));
                    sys.fs().write(&file, 0, path.as_bytes()).await.unwrap();
                    drop(file);
                    made += 1;
                    let pause = client.env().random_u64() % 20_000;
                    client.env().sleep(Duration::from_micros(pause)).await;
                }
                made
            };
            let share = async {
                let admin = cluster.client("admin");
                let extend = ControlRequest::PoolExtend { pool: label(), targets: vec![] };
                admin.control(&extend).await.unwrap();
                admin.control(&ControlRequest::PoolBalance { pool: label() }).await.unwrap();
                let is_done = |map: &wire::map::PoolMap| map.balanced == 1 && map.next.is_none();
                let lacking = members::await_map(&admin, is_done).await.unwrap();
                assert_eq!(lacking, None, "seed {seed}");
                is_over.set(true);
            };
            let (made, ()) = join(make, share).await;
            for at in 0..made {
                let path = format!("{}/f{at}", dir(at % 20));
                let found = sys.read_file(path.as_bytes()).await.unwrap();
                assert_eq!(found, path.as_bytes(), "seed {seed}");
            }
        });
    }
}

/// Who makes a file waits, as for everything else, while all engines that hold its directory are away. It was an error at once: where
/// the file was to be was looked up before anything was asked.
#[test]
fn who_makes_a_file_waits_for_its_directory() {
    for seed in seeds(3) {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 4, targets: 1 }).unwrap();
        cluster.block_on(async {
            let client = cluster.client("c");
            let sys = file_system(&client, 4).await;
            let cont = sys.fs().container().clone();
            let map = cont.pool().map();
            // One that the engine with the catalog has a part of, and one that it has not.
            let (mut there, mut away) = (None, None);
            for number in 0.. {
                let path = format!("/d{number}");
                sys.mkdir(path.as_bytes(), 0o755).await.unwrap();
                let dir = sys.lookup(path.as_bytes(), true).await.unwrap();
                let layout = cont.layout(dir.oid()).unwrap();
                let rank = |target: &types::TargetId| map.target(*target).unwrap().rank.0 as usize;
                let ranks: Vec<usize> = layout.members(0).iter().map(rank).collect();
                let place = if ranks.contains(&0) { &mut there } else { &mut away };
                *place = Some((path, ranks));
                if there.is_some() && away.is_some() {
                    break;
                }
            }
            let ((other, _), (path, ranks)) = (there.unwrap(), away.unwrap());
            ranks.iter().for_each(|rank| cluster.kill_engine(*rank));
            client.env().sleep(Duration::from_secs(10)).await;
            // It learns who is away.
            sys.list(other.as_bytes()).await.unwrap();
            let path = format!("{path}/file");
            let options = CreateOptions::default();
            let made = sys.open(path.as_bytes(), NEW, 0o644, &options);
            let back = async {
                client.env().sleep(Duration::from_secs(2)).await;
                for rank in &ranks {
                    cluster.start_engine(*rank).await.unwrap();
                }
            };
            let (made, ()) = join(made, back).await;
            made.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        });
    }
}
