//! A file system on a simulated cluster, for the tests of this crate.

use client::{Client, Container};
use dfs::{Credentials, Dfs, FormatOptions, MountFlags};
use sim::{Cluster, ClusterSpec};
use std::collections::BTreeMap;
use types::{ContLayout, ContProps, Durability};
use uuid::Uuid;
use wire::control::{Name, OpenMode};

/// Classes that the tests run with: everything on one target; everything striped; files whose first part, of
/// one chunk or two, is near their entry; directories that spread early.
pub const LAYOUTS: [(&str, &str); 6] = [
    ("S1", "S1"),
    ("SX", "SX"),
    ("S1", "SX+4KiB"),
    ("SX", "SX+8KiB"),
    ("SX@2", "S1"),
    ("SX@4", "SX+4KiB"),
];

/// A cluster with an empty file system.
pub struct World {
    pub cluster: Cluster,
    #[allow(dead_code)] // not every test file needs its clock
    pub client: Client,
    pub cont: Container,
}

impl World {
    /// Formats a file system whose directories and files have these classes.
    pub fn new(seed: u64, dir_class: &str, file_class: &str) -> World {
        World::of(seed, dir_class, file_class, Durability::Memory)
    }

    /// The same in a pool that keeps what it has so well.
    pub fn of(seed: u64, dir_class: &str, file_class: &str, durability: Durability) -> World {
        World::on(ClusterSpec { seed, engines: 1, targets: 3 }, dir_class, file_class, durability)
    }

    /// The same on a cluster of some size.
    pub fn on(
        spec: ClusterSpec,
        dir_class: &str,
        file_class: &str,
        durability: Durability,
    ) -> World {
        let cluster = Cluster::start(spec).unwrap();
        let client = cluster.client("first");
        let cont = cluster.block_on(async {
            let first = cluster.container(&client, durability, ContLayout::Posix).await.unwrap();
            let props = ContProps {
                layout: ContLayout::Posix,
                dir_oclass: dir_class.parse().unwrap(),
                file_oclass: file_class.parse().unwrap(),
                chunk_bytes: 4096,
                ..ContProps::default()
            };
            let pool = first.pool();
            pool.cont_create("fs", Uuid::nil(), props, BTreeMap::new()).await.unwrap();
            let name = Name::Label("fs".into());
            let cont = pool.cont_open(&name, OpenMode::ReadWrite).await.unwrap();
            let options = FormatOptions { mode: 0o777, ..FormatOptions::default() };
            Dfs::format(&cont, &options).await.unwrap();
            cont
        });
        World { cluster, client, cont }
    }

    /// A mount by the first client.
    pub async fn mount(&self, cred: Credentials) -> Dfs {
        Dfs::mount(&self.cont, MountFlags::NONE, cred).await.unwrap()
    }

    /// A mount by a client of its own.
    #[allow(dead_code)] // not every test needs a second client
    pub async fn mount_from(&self, client: &str, cred: Credentials) -> Dfs {
        let client = self.cluster.client(client);
        let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await.unwrap();
        let cont = pool.cont_open(&Name::Label("fs".into()), OpenMode::ReadWrite).await.unwrap();
        Dfs::mount(&cont, MountFlags::NONE, cred).await.unwrap()
    }
}

/// Runs a test on an empty file system of every layout, as the superuser.
#[allow(dead_code)] // not every test file needs it
pub fn with_fs(test: impl AsyncFn(&World, Dfs)) {
    with_fs_of(&LAYOUTS, test);
}

/// The same for some layouts.
#[allow(dead_code)] // not every test file needs it
pub fn with_fs_of(layouts: &[(&str, &str)], test: impl AsyncFn(&World, Dfs)) {
    for (seed, (dir_class, file_class)) in layouts.iter().enumerate() {
        let world = World::new(seed as u64, dir_class, file_class);
        world.cluster.block_on(async {
            let fs = world.mount(Credentials::root()).await;
            test(&world, fs).await;
        });
    }
}
