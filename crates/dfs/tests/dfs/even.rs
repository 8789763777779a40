//! Files of one directory over the targets of a pool, when nobody names a class: as even as if they had been dealt out.

use crate::harness::World;
use dfs::{CreateOptions, Credentials, Dfs, Obj, OpenFlags};
use futures_util::future::join_all;
use sim::ClusterSpec;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{ContProps, Durability, TargetId};

const NEW: OpenFlags = OpenFlags(OpenFlags::WRITE.0 | OpenFlags::CREATE.0 | OpenFlags::EXCL.0);
const MIB: usize = 1 << 20;

fn world(seed: u64) -> World {
    let spec = ClusterSpec { seed, engines: 2, targets: 4 };
    let props = ContProps::posix(0);
    let [dirs, files] = [props.dir_oclass, props.file_oclass].map(|class| class.to_string());
    World::on(spec, &dirs, &files, Durability::Memory)
}

async fn settle(fs: &Dfs) {
    fs.sync();
    fs.container().client().env().sleep(Duration::from_secs(5)).await;
}

async fn write_file(fs: &Dfs, dir: &Obj, name: &str, bytes: usize) -> Obj {
    let file = fs.open(dir, name.as_bytes(), NEW, 0o644, &CreateOptions::default()).await.unwrap();
    if bytes > 0 {
        fs.write(&file, 0, &vec![7; bytes]).await.unwrap();
    }
    file
}

async fn dirs_of(world: &World, clients: usize) -> Vec<(Dfs, Obj)> {
    let mut dirs = Vec::new();
    for at in 0..clients {
        let fs = world.mount_from(&format!("c{at}"), Credentials::root()).await;
        let root = fs.root().await.unwrap();
        let dir = fs.lookup_rel(&root, b"d", OpenFlags::READ).await.unwrap();
        dirs.push((fs, dir));
    }
    dirs
}

/// Each of some files that are large for their number is with its entry as a rule, and each target has its share of them.
#[test]
fn large_files_of_a_directory_are_even() {
    for (seed, clients) in [(0, 1), (1, 4)] {
        let world = world(seed);
        world.cluster.block_on(async {
            let fs = world.mount(Credentials::root()).await;
            let root = fs.root().await.unwrap();
            drop(fs.mkdir(&root, b"d", 0o777, None).await.unwrap());
            let dirs = dirs_of(&world, clients).await;
            let each = 400 / clients;
            join_all((0..clients).map(|client| {
                let (fs, dir) = &dirs[client];
                async move {
                    for at in 0..each {
                        drop(write_file(fs, dir, &format!("f{client}.{at}"), MIB).await);
                    }
                }
            }))
            .await;
            settle(&fs).await;
            let mut counts: BTreeMap<TargetId, u64> = BTreeMap::new();
            let mut apart = 0;
            let (other, dir) = &dirs_of(&world, clients + 1).await[clients];
            let cont = other.container();
            for client in 0..clients {
                for at in 0..each {
                    let name = format!("f{client}.{at}").into_bytes();
                    let file = other.lookup_rel(dir, &name, OpenFlags::READ).await.unwrap();
                    let first = &cont.copies(file.oid()).unwrap()[0][0];
                    *counts.entry(first.target).or_default() += 1;
                    let entry = cont.unit_of(dir.oid(), &name).await.unwrap();
                    let at_entry = &cont.copies(dir.oid()).unwrap()[entry.group as usize][0];
                    apart += (first.target != at_entry.target) as u64;
                }
            }
            let even = |count: &u64| (45..=55).contains(count);
            assert!(counts.len() == 8 && counts.values().all(even), "{clients}: {counts:?}");
            assert!(apart < 140, "{clients}: {apart} of 400 files are not with their entries");
        });
    }
}

/// Many empty files are in all groups as evenly as their hashes are, though they began in one.
#[test]
fn many_empty_files_are_even() {
    let world = world(2);
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let root = fs.root().await.unwrap();
        let dir = fs.mkdir(&root, b"d", 0o777, None).await.unwrap();
        for lot in 0..120 {
            let names = (0..100).map(|at| format!("f{}", lot * 100 + at));
            let made = names.map(|name| {
                let (fs, dir) = (&fs, &dir);
                async move { drop(write_file(fs, dir, &name, 0).await) }
            });
            join_all(made).await;
        }
        settle(&fs).await;
        let units = fs.container().object(dir.oid()).stat().await.unwrap();
        let counts: Vec<u64> = units.iter().map(|(_, stat)| stat.dkey_count - 1).collect();
        assert_eq!((counts.len(), counts.iter().sum::<u64>()), (8, 12_000));
        assert!(counts.iter().all(|count| (1_350..=1_650).contains(count)), "{counts:?}");
    });
}

/// A directory with little in it stays where it is, however often it is written to, and one with much does not, however few its files are.
#[test]
fn what_is_in_a_directory_counts_and_not_what_was() {
    let world = world(3);
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let root = fs.root().await.unwrap();
        let cont = fs.container();
        let dir = fs.mkdir(&root, b"d", 0o777, None).await.unwrap();
        let has_spread = async || {
            settle(&fs).await;
            cont.learn_spread(dir.oid()).await.unwrap();
            cont.groups_of_spread(dir.oid()).is_some()
        };
        for at in 0..20 {
            drop(write_file(&fs, &dir, "scratch", MIB).await);
            settle(&fs).await;
            assert_eq!(fs.stat(&dir, b"scratch").await.unwrap().size, MIB as u64, "{at}");
            fs.unlink(&dir, b"scratch").await.unwrap();
        }
        for at in 0..3 {
            drop(write_file(&fs, &dir, &format!("f{at}"), MIB).await);
        }
        assert!(!has_spread().await, "3 MiB for 8 groups");
        drop(write_file(&fs, &dir, "f3", MIB).await);
        assert!(has_spread().await, "4 MiB for 8 groups");
        for at in 0..4 {
            fs.stat(&dir, format!("f{at}").as_bytes()).await.unwrap();
        }
    });
}
