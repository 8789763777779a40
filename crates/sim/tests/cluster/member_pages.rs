//! Pages of directories, and the sizes of the files in them, from a member that follows.

use crate::old_values::name;
use client::{Client, Container, ReadFrom};
use dfs::sys::Sys;
use dfs::{CreateOptions, Credentials, Dfs, DirAnchor, FormatOptions, MountFlags, Obj, OpenFlags};
use futures_util::future::join;
use sim::{Cluster, ClusterSpec, seeds};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use transport::SimNet;
use types::{Code, ContLayout, ContProps, Durability, Error, PlacementRule, TargetId};
use uuid::Uuid;
use wire::control::{ControlRequest, Name, OpenMode};

/// The engine that leads the directory, and the one beside the client, which has it, too; the first one holds the catalog.
const LEADS: usize = 1;
const FOLLOWS: usize = 2;
const ENGINES: usize = 5;
/// A file in the directory, and its size.
const OLD: (&str, u64) = ("old", 5);

/// A file system whose objects have three copies; files go with their directory.
async fn format(client: &Client) {
    let create = ControlRequest::PoolCreate {
        label: "p".into(),
        bytes: 1 << 30,
        scm_percent: 20,
        durability: Durability::Wal,
        targets: (0..ENGINES as u32).map(TargetId).collect(),
        placement: PlacementRule::Equal,
    };
    client.pool_create(create).await.unwrap();
    let class = || "RP_3G1".parse().unwrap();
    let props = ContProps {
        layout: ContLayout::Posix,
        rd_fac: 2,
        oclass: class(),
        dir_oclass: class(),
        file_oclass: class(),
        ..ContProps::default()
    };
    let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await.unwrap();
    pool.cont_create("fs", Uuid::nil(), props, BTreeMap::new()).await.unwrap();
    Dfs::format(&open(client).await, &FormatOptions::default()).await.unwrap();
}

async fn open(client: &Client) -> Container {
    let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await.unwrap();
    pool.cont_open(&Name::Label("fs".into()), OpenMode::ReadWrite).await.unwrap()
}

async fn mount(cont: &Container) -> Sys {
    Sys::new(Dfs::mount(cont, MountFlags::NONE, Credentials::root()).await.unwrap())
}

/// A directory with a file, seen by a client on the machine of an engine that follows, and one elsewhere.
struct Scene {
    cluster: Cluster,
    seed: u64,
    near: Sys,
    far: Sys,
    /// The directory as the first one has it.
    seen: Obj,
    path: String,
}

impl Scene {
    fn begin(seed: u64, read_from: ReadFrom) -> Scene {
        let cluster = Cluster::start(ClusterSpec { seed, engines: ENGINES, targets: 1 }).unwrap();
        let (near, far, seen, path) = cluster.block_on(async {
            let client = cluster.client("far");
            format(&client).await;
            let cont = open(&client).await;
            let far = mount(&cont).await;
            let path = make_dir(&cont, &far).await;
            far.write_file(format!("{path}/{}", OLD.0).as_bytes(), b"bytes", 0o644).await.unwrap();
            let near = cluster.client_beside("near", FOLLOWS, |options| {
                // It finds out soon that nobody answers.
                options.timeout = Duration::from_millis(300);
                options.read_from = read_from;
            });
            let near = mount(&open(&near).await).await;
            let seen = near.lookup(path.as_bytes(), true).await.unwrap();
            // What was granted first may have been so by chance.
            client.env().sleep(Duration::from_secs(10)).await;
            (near, far, seen, path)
        });
        Scene { cluster, seed, near, far, seen, path }
    }

    fn net(&self) -> Rc<SimNet> {
        SimNet::of(self.cluster.world())
    }

    async fn sleep(&self, ms: u64) {
        let node = self.cluster.world().node("clock");
        node.sleep(Duration::from_millis(ms)).await;
    }

    /// The client has the engine beside it, and nobody else.
    fn leave_near_alone(&self) {
        for other in (0..ENGINES).filter(|at| *at != FOLLOWS) {
            self.net().cut("near", &name(other));
        }
    }

    fn told<T>(&self, outcome: Result<T, Error>) -> Option<T> {
        let is_passing =
            |error: &Error| matches!(error.code, Code::TimedOut | Code::Unreach | Code::Closed);
        match outcome {
            Err(error) if is_passing(&error) => None,
            told => Some(told.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed))),
        }
    }

    /// Names in the directory; `None` without an answer.
    async fn names(&self) -> Option<Vec<String>> {
        let mut anchor = DirAnchor::start();
        let page = self.near.fs().readdir(&self.seen, &mut anchor, 100).await;
        let name = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
        let page = self.told(page)?;
        Some(page.iter().map(|entry| name(&entry.name)).collect())
    }

    /// The same with the sizes of the files.
    async fn sizes(&self) -> Option<BTreeMap<String, u64>> {
        let mut anchor = DirAnchor::start();
        let page = self.near.fs().readdirplus(&self.seen, &mut anchor, 100).await;
        let name = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
        let page = self.told(page)?;
        Some(page.iter().map(|(entry, stat)| (name(&entry.name), stat.size)).collect())
    }

    /// The first that are shown.
    async fn first_sizes(&self) -> BTreeMap<String, u64> {
        for _ in 0..100 {
            if let Some(sizes) = self.sizes().await {
                return sizes;
            }
            self.sleep(50).await;
        }
        panic!("seed {}: nobody lists the directory", self.seed);
    }

    async fn make(&self, file: &str, data: &[u8]) {
        let path = format!("{}/{file}", self.path);
        self.far.write_file(path.as_bytes(), data, 0o644).await.unwrap();
    }
}

/// Makes directories until one is led by the engine that is to, and another one beside its client has it.
async fn make_dir(cont: &Container, far: &Sys) -> String {
    for number in 0.. {
        let path = format!("/d{number}");
        far.mkdir(path.as_bytes(), 0o755).await.unwrap();
        let dir = far.lookup(path.as_bytes(), true).await.unwrap();
        let layout = cont.layout(dir.oid()).unwrap();
        let map = cont.pool().map();
        let engine = |target: &TargetId| map.target(*target).unwrap().rank.0 as usize;
        let members: Vec<usize> = layout.members(0).iter().map(engine).collect();
        if members[0] == LEADS && members[1..].contains(&FOLLOWS) && members[1..].contains(&3) {
            return path;
        }
    }
    unreachable!("numbers do not end")
}

/// Who has a member at hand is served by it though nobody else answers, and sees each name, and each size, as soon as it is there. By leaders it is not.
#[test]
fn a_member_lists_a_directory_while_its_leader_does_not() {
    for seed in seeds(2) {
        for read_from in [ReadFrom::Members, ReadFrom::Leaders] {
            let scene = Scene::begin(seed, read_from);
            scene.cluster.block_on(async {
                scene.leave_near_alone();
                let mut shown = 0;
                let mut all = BTreeMap::from([(OLD.0.to_string(), OLD.1)]);
                for round in 0..20 {
                    let file = format!("f{round}");
                    scene.make(&file, &vec![1; round]).await;
                    all.insert(file, round as u64);
                    scene.sleep(50).await;
                    // The first who looks has the leader asked how far its orders are.
                    for _ in 0..3 {
                        if let Some(found) = scene.sizes().await {
                            assert_eq!(found, all, "seed {seed}");
                            shown += 1;
                        }
                    }
                }
                let least = if read_from == ReadFrom::Members { 30 } else { 0 };
                assert!((least..=2 * least).contains(&shown), "seed {seed}: {shown} shown");
            });
        }
    }
}

/// A name that not all members have, and the size of a file that not all have written, may be lost with their leader. Names beside such a file are shown.
#[test]
fn what_not_all_members_have_is_in_no_page() {
    for seed in seeds(4) {
        let scene = Scene::begin(seed, ReadFrom::Members);
        scene.cluster.block_on(async {
            scene.leave_near_alone();
            scene.first_sizes().await;
            scene.net().cut(&name(LEADS), &name(3));
            let looking = async {
                scene.sleep(200).await;
                for _ in 0..4 {
                    assert_eq!(scene.names().await, None, "seed {seed}: not all members have it");
                }
                scene.net().heal(&name(LEADS), &name(3));
            };
            join(scene.make("new", b""), looking).await;
            scene.first_sizes().await;
            let path = format!("{}/{}", scene.path, OLD.0);
            let (flags, options) = (OpenFlags::WRITE, CreateOptions::default());
            let file = scene.far.open(path.as_bytes(), flags, 0, &options).await.unwrap();
            scene.net().cut(&name(LEADS), &name(3));
            let looking = async {
                scene.sleep(200).await;
                for _ in 0..4 {
                    assert_eq!(scene.sizes().await, None, "seed {seed}: not all have written it");
                    let names = scene.names().await.map(|names| names.len());
                    assert_eq!(names, Some(2), "seed {seed}: names are not changed");
                }
                scene.net().heal(&name(LEADS), &name(3));
            };
            let (written, ()) = join(scene.far.fs().write(&file, 0, &[2; 100]), looking).await;
            assert_eq!(written, Ok(100), "seed {seed}");
            let all = [("new", 0), (OLD.0, 100)].map(|(name, size)| (name.to_string(), size));
            assert_eq!(scene.first_sizes().await, BTreeMap::from(all), "seed {seed}");
        });
    }
}
