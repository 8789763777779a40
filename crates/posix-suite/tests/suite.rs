//! The suite through `dfs`, unstriped and striped, and on the machine's own file system, which
//! checks the suite.

use client::{Client, Container};
use dfs::{Credentials, Dfs, FormatOptions, MountFlags};
use posix_suite::{DfsSystem, LibcSystem, Report, Wait, all, run};
use sim::{Cluster, ClusterSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use types::{ContLayout, ContProps, Durability};
use uuid::Uuid;
use wire::control::{Name, OpenMode};

#[test]
fn there_are_enough_cases_and_their_names_differ() {
    let cases = all();
    assert!(cases.len() >= 250, "{}", cases.len());
    let names: BTreeSet<&str> = cases.iter().map(|case| &case.name[..]).collect();
    assert_eq!(names.len(), cases.len(), "two cases of one name");
}

#[test]
fn the_suite_notices_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let mut system = LibcSystem::new(dir.path().to_str().unwrap(), &[]);
    for (number, script) in [
        "stat missing",
        "create x\n stat x mode=600",
        "create x\n ENOENT stat x",
        "create x\n EACCES stat y",
        "create x\n list . y",
        "create x\n mark x\n tick\n newer x mtime",
        "open f x creat,rw\n write f 0 abc\n read f 0 3 abd",
        "nonsense",
        "open f x unheard-of",
    ]
    .into_iter()
    .enumerate()
    {
        let outcome = posix_suite::run_script(&mut system, &format!("bad{number}"), script);
        assert!(outcome.is_err(), "{script}");
    }
}

#[test]
fn the_machines_own_file_system() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    // Others must be able to come here.
    let public = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path, public).unwrap();
    let mut system = LibcSystem::new(path, &[]);
    run(&mut system, "").demand("the machine's own file system");
}

struct OnCluster(Rc<Cluster>);

impl Wait for OnCluster {
    fn on<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.block_on(future)
    }
}

async fn format(client: &Client, cluster: &Cluster, class: &str) -> Container {
    let durability = Durability::Memory;
    let first = cluster.container(client, durability, ContLayout::Posix).await.unwrap();
    let props = ContProps {
        layout: ContLayout::Posix,
        dir_oclass: class.parse().unwrap(),
        file_oclass: class.parse().unwrap(),
        chunk_bytes: 4096,
        ..ContProps::default()
    };
    let pool = first.pool();
    pool.cont_create("fs", Uuid::nil(), props, BTreeMap::new()).await.unwrap();
    let cont = pool.cont_open(&Name::Label("fs".into()), OpenMode::ReadWrite).await.unwrap();
    let options = FormatOptions { mode: 0o755, ..FormatOptions::default() };
    Dfs::format(&cont, &options).await.unwrap();
    cont
}

fn through_dfs(class: &str) -> Report {
    let cluster = Rc::new(Cluster::start(ClusterSpec { seed: 1, engines: 1, targets: 3 }).unwrap());
    let fs = cluster.block_on(async {
        let cont = format(&cluster.client("suite"), &cluster, class).await;
        Dfs::mount(&cont, MountFlags::NONE, Credentials::root()).await.unwrap()
    });
    let clock = cluster.clone();
    let tick = move || {
        let env = clock.world().node("tick");
        clock.block_on(env.sleep(Duration::from_millis(5)));
    };
    let mut system = DfsSystem::new(fs, OnCluster(cluster), tick);
    run(&mut system, "")
}

#[test]
fn dfs_unstriped() {
    through_dfs("S1").demand("dfs, unstriped");
}

#[test]
fn dfs_striped() {
    through_dfs("SX").demand("dfs, striped");
}
