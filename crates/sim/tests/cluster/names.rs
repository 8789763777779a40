//! Names and files while the targets of their groups change.

use client::Client;
use dfs::check::Mend;
use dfs::migrate::{MigrateOptions, Migrating};
use dfs::sys::Sys;
use dfs::{
    AllocateFlags, CreateOptions, Credentials, Dfs, DirAnchor, FormatOptions, LockAsk, LockKind,
    LockMode, LockRange, MountFlags, OpenFlags, RenameFlags, SharedObj, XattrMode,
};
use engine::StoreConfig;
use futures_util::future::join;
use sim::{Cluster, ClusterSpec, members, seeds};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Code, ContLayout, ContProps, Durability, ObjClass, PlacementRule};
use uuid::Uuid;
use wire::control::{ControlRequest, Name, OpenMode};

/// A pool on the first engines of a system, and a file system in it whose files and directories have two copies.
async fn file_system(client: &Client, engines: u32) -> Sys {
    file_system_of(client, engines, "RP_2G1").await
}

/// The same with objects of a class.
async fn file_system_of(client: &Client, engines: u32, class: &str) -> Sys {
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
    let class = || class.parse::<ObjClass>().unwrap();
    let props = ContProps {
        layout: ContLayout::Posix,
        rd_fac: u8::from(class().scheme.copies() > 1),
        oclass: class(),
        dir_oclass: class(),
        file_oclass: class(),
        ..ContProps::default()
    };
    pool.cont_create("fs", Uuid::nil(), props, BTreeMap::new()).await.unwrap();
    let name = Name::Label("fs".into());
    let cont = pool.cont_open(&name, OpenMode::ReadWrite).await.unwrap();
    Dfs::format(&cont, &FormatOptions::default()).await.unwrap();
    mount(client).await
}

/// The file system, for another client.
async fn mount(client: &Client) -> Sys {
    let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await.unwrap();
    let cont = pool.cont_open(&Name::Label("fs".into()), OpenMode::ReadWrite).await.unwrap();
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

/// Directory, and a file and an empty directory in it.
type Handed = [SharedObj; 3];

/// What a thread of a mount does with objects that another one has made and the kernel names by number.
async fn use_handed(fs: &Dfs, at: usize, [dir, file, empty]: &Handed) -> dfs::Result<()> {
    let flags = OpenFlags(OpenFlags::READ.0 | OpenFlags::WRITE.0);
    let dir = fs.attach(&dir.clone().with_flags(OpenFlags::PATH));
    let file = fs.attach(&file.clone().with_flags(flags));
    let empty = fs.attach(&empty.clone().with_flags(OpenFlags::PATH));
    let ask = LockAsk {
        owner: 1,
        kind: LockKind::Flock,
        range: LockRange::WHOLE,
        mode: LockMode::Exclusive,
        wait: false,
        pid: 1,
    };
    match at {
        0 => fs.list(&dir).await.map(drop),
        1 => fs.create_stat(&dir, b"new", NEW, 0o644).await.map(drop),
        2 => fs.mkdir(&dir, b"below", 0o755, None).await.map(drop),
        3 => fs.read(&file, 0, &mut [0; 10]).await.map(drop),
        4 => fs.rename(&dir, b"file", &empty, b"renamed", RenameFlags::NONE).await,
        5 => fs.symlink(&dir, b"link", b"file").await.map(drop),
        6 => fs.unlink(&dir, b"file").await,
        7 => fs.rmdir(&dir, b"empty").await,
        8 => fs.link_obj(&file, &empty, b"second").await,
        9 => fs.readdirplus(&dir, &mut DirAnchor::start(), 10).await.map(drop),
        10 => fs.truncate(&file, 3).await,
        11 => fs.ostat(&dir).await.map(drop),
        12 => fs.lock(&file, &ask, None).await.map(drop),
        13 => fs.open_obj(&file, flags, dfs::Unnamed::Linked).await.map(drop),
        14 => fs.setxattr(&file, b"user.a", b"b", XattrMode::Set).await,
        15 => fs.fallocate(&file, AllocateFlags::default(), 0, 10).await,
        16 => fs.tmpfile(&dir, OpenFlags::WRITE, 0o600, &CreateOptions::default()).await.map(drop),
        17 => fs.split(&dir, 3).await.map(drop),
        18 => fs.write(&file, 5, b"more").await.map(drop),
        19 => fs.lookup_stat(&dir, b"file").await.map(drop),
        _ => fs.remove(&dir, b"empty", true).await,
    }
}

const USES: usize = 21;

/// Threads of a mount have pool maps of their own: one made a directory in the placement epoch of a pool just extended, another was
/// handed its number by the kernel and said EIO, for its map did not know the epoch.
#[test]
fn what_was_made_after_an_extension_is_used_by_threads_that_were_there_before() {
    for seed in seeds(2) {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 4, targets: 1 }).unwrap();
        cluster.block_on(async {
            let admin = cluster.client("c");
            file_system(&admin, 3).await;
            let mut before = Vec::new();
            for at in 0..USES {
                before.push(mount(&cluster.client(&format!("before{at}"))).await);
            }
            let pool = Name::Label("p".into());
            admin.control(&ControlRequest::PoolExtend { pool, targets: vec![] }).await.unwrap();
            let after = mount(&cluster.client("after")).await;
            for (at, old) in before.iter().enumerate() {
                let dir = format!("/d{at}");
                let (file, empty) = (format!("{dir}/file"), format!("{dir}/empty"));
                after.mkdir(dir.as_bytes(), 0o755).await.unwrap();
                after.mkdir(empty.as_bytes(), 0o755).await.unwrap();
                after.write_file(file.as_bytes(), b"content", 0o644).await.unwrap();
                let mut handed = Vec::new();
                for path in [dir, file, empty] {
                    handed.push(after.lookup(path.as_bytes(), true).await.unwrap().share());
                }
                let oid = handed[0].oid();
                let of_old = old.fs().container().pool().map();
                assert!(!placement::knows_epoch(oid, &of_old), "seed {seed}: it has learned");
                let used = use_handed(old.fs(), at, &handed.try_into().unwrap()).await;
                used.unwrap_or_else(|error| panic!("seed {seed}, use {at}: {error}"));
            }
        });
    }
}

/// A file that got a name in another directory stays where it was. When the name goes it is freed by a second request, and its engine was away for longer than its client waits: who
/// removed it was told that it failed, did so again, and there was no name. So the file stayed for ever.
#[test]
fn a_file_whose_engine_is_away_when_its_name_goes_is_freed_later() {
    for seed in seeds(3) {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 4, targets: 1 }).unwrap();
        cluster.block_on(async {
            file_system_of(&cluster.client("patient"), 4, "S1").await;
            let client = cluster.client_within("c", Duration::from_secs(1));
            let sys = mount(&client).await;
            let cont = sys.fs().container();
            let map = cont.pool().map();
            let engine_of = |oid| {
                let leader = cont.layout(oid).unwrap().members(0)[0];
                map.target(leader).unwrap().rank.0 as usize
            };
            let mut dirs = BTreeMap::new();
            for number in 0.. {
                let path = format!("/d{number}");
                sys.mkdir(path.as_bytes(), 0o755).await.unwrap();
                let dir = sys.lookup(path.as_bytes(), true).await.unwrap();
                dirs.insert(engine_of(dir.oid()), path);
                // The first engine holds the catalog.
                if dirs.contains_key(&1) && dirs.contains_key(&2) {
                    break;
                }
            }
            let (made, moved) = (format!("{}/f", dirs[&1]), format!("{}/f", dirs[&2]));
            sys.write_file(made.as_bytes(), b"bytes", 0o644).await.unwrap();
            let file = sys.lookup(made.as_bytes(), true).await.unwrap();
            assert_eq!(engine_of(file.oid()), 1, "seed {seed}: it is with its directory");
            drop(file);
            sys.rename(made.as_bytes(), moved.as_bytes(), RenameFlags::NONE).await.unwrap();
            let whole = sys.fs().check(Mend::Nothing).await.unwrap();
            cluster.kill_engine(1);
            assert_eq!(sys.unlink(moved.as_bytes()).await, Ok(()), "seed {seed}: its name is gone");
            let again = sys.unlink(moved.as_bytes()).await.unwrap_err();
            assert_eq!(again.code, Code::NonExist, "seed {seed}");
            cluster.start_engine(1).await.unwrap();
            client.env().sleep(Duration::from_secs(120)).await;
            let left = sys.fs().check(Mend::Nothing).await.unwrap();
            assert_eq!(left.findings, Vec::new(), "seed {seed}: nothing names it");
            assert_eq!(left.object_count + 1, whole.object_count, "seed {seed}");
        });
    }
}

/// `fs check` within seconds of an engine's death asked its targets for their lists, and went on asking when all others had long done without it: for as long as it was told to have patience.
#[test]
fn a_check_begun_right_after_an_engines_death_ends_with_the_next_map() {
    for seed in seeds(4) {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 3, targets: 1 }).unwrap();
        cluster.block_on(async {
            let client = cluster.client_within("c", Duration::from_secs(600));
            let sys = file_system(&client, 3).await;
            for number in 0..20 {
                let path = format!("/f{number}");
                sys.write_file(path.as_bytes(), b"bytes", 0o644).await.unwrap();
            }
            let whole = sys.fs().check(Mend::Nothing).await.unwrap();
            cluster.kill_engine(1);
            let begun = client.env().now();
            let report = sys.fs().check(Mend::Nothing).await.unwrap();
            let took = client.env().now() - begun;
            assert_eq!(report, whole, "seed {seed}");
            // Its leases run out first, and the others settle what it led.
            assert!(took < Duration::from_secs(30), "seed {seed}: {took:?}");
        });
    }
}

/// For half a minute after an engine's death who leads in its place does not know what clients hold open: migrations said of each file that it is open all the time,
/// and failed.
#[test]
fn files_get_another_class_right_after_an_engines_death() {
    for seed in seeds(4) {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 3, targets: 1 }).unwrap();
        cluster.block_on(async {
            let client = cluster.client("c");
            let sys = file_system(&client, 3).await;
            for number in 0..10 {
                // Directories are on all engines, and their files with them.
                sys.mkdir(format!("/d{number}").as_bytes(), 0o755).await.unwrap();
                let path = format!("/d{number}/f");
                sys.write_file(path.as_bytes(), b"bytes", 0o644).await.unwrap();
            }
            let open = sys
                .open(b"/d3/f", OpenFlags::READ_WRITE, 0, &CreateOptions::default())
                .await
                .unwrap();
            cluster.kill_engine(1);
            let wait = Duration::from_secs(5);
            let to = MigrateOptions { class: "RP_2GX".parse().unwrap(), wait, parallel: 2 };
            let top = sys.lookup(b"/", true).await.unwrap();
            let mut refused = Vec::new();
            let tell = |news| {
                if let Migrating::File { path, outcome: Err(error) } = news {
                    refused.push((path, error.code));
                }
            };
            sys.fs().migrate(&top, &to, &|_| (), tell).await.unwrap();
            assert_eq!(
                refused,
                [(b"d3/f".to_vec(), Code::Busy)],
                "seed {seed}: the one that is open"
            );
            drop(open);
        });
    }
}
