//! Directories that spread over all groups while engines are killed, and clients make, remove and list names in them.

use client::{Client, Container};
use dfs::check::Mend;
use dfs::{CreateOptions, Credentials, Dfs, DirAnchor, FormatOptions, MountFlags, Obj, OpenFlags};
use futures_util::future::{join, join_all};
use sim::{Cluster, ClusterSpec, seeds};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Code, ContLayout, ContProps, Durability, ObjClass};
use uuid::Uuid;
use wire::control::{Name, OpenMode};

/// Entries of the directory before it is too large to be in one group.
const FEW: u32 = 500;
/// Names made after that, of which some are removed.
const MORE: u32 = 300;

async fn mount(client: &Client) -> Dfs {
    let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await.unwrap();
    let cont = pool.cont_open(&Name::Label("fs".into()), OpenMode::ReadWrite).await.unwrap();
    Dfs::mount(&cont, MountFlags::NONE, Credentials::root()).await.unwrap()
}

/// A file system of which files and directories have a class, but those that it names.
async fn make(cluster: &Cluster, class: ObjClass) -> Dfs {
    let client = cluster.client("setup");
    let made = cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
    let props = ContProps {
        layout: ContLayout::Posix,
        oclass: class,
        dir_oclass: class,
        file_oclass: class,
        rd_fac: class.scheme.redundancy_factor(),
        ..ContProps::default()
    };
    made.pool().cont_create("fs", Uuid::nil(), props, BTreeMap::new()).await.unwrap();
    let name = Name::Label("fs".into());
    let cont = made.pool().cont_open(&name, OpenMode::ReadWrite).await.unwrap();
    Dfs::format(&cont, &FormatOptions::default()).await.unwrap();
    mount(&client).await
}

fn name(at: u32) -> Vec<u8> {
    format!("f{at}").into_bytes()
}

/// What clients know of the names.
#[derive(Default)]
struct Known {
    /// Made, and nobody has begun to remove them.
    there: RefCell<BTreeSet<Vec<u8>>>,
    /// Removed, and not made again.
    removed: RefCell<BTreeSet<Vec<u8>>>,
    is_over: Cell<bool>,
}

/// Makes names and removes one of three; a call without an answer is asked again.
async fn change(fs: &Dfs, dir: &Obj, known: &Known, numbers: impl Iterator<Item = u32>, seed: u64) {
    const NEW: OpenFlags = OpenFlags(OpenFlags::WRITE.0 | OpenFlags::CREATE.0 | OpenFlags::EXCL.0);
    let env = fs.container().client().env().clone();
    for at in numbers {
        let name = name(at);
        let mut tries = 0;
        loop {
            match fs.open(dir, &name, NEW, 0o644, &CreateOptions::default()).await {
                Ok(_) => break,
                // An earlier try was not answered.
                Err(error) if error.code == Code::Exist && tries > 0 => break,
                Err(error) if is_of_trouble(error.code) => tries += 1,
                Err(error) => panic!("seed {seed}: making {at}: {error}"),
            }
            env.sleep(Duration::from_millis(20)).await;
        }
        known.there.borrow_mut().insert(name);
        if at % 3 == 0 {
            let gone = self::name(at / 3 * 2);
            if !known.there.borrow_mut().remove(&gone) {
                continue;
            }
            let mut tries = 0;
            loop {
                match fs.unlink(dir, &gone).await {
                    Ok(()) => break,
                    Err(error) if error.code == Code::NonExist && tries > 0 => break,
                    Err(error) if is_of_trouble(error.code) => tries += 1,
                    Err(error) => {
                        panic!("seed {seed}: removing {}: {error}", gone.escape_ascii())
                    }
                }
                env.sleep(Duration::from_millis(20)).await;
            }
            known.removed.borrow_mut().insert(gone);
        }
    }
}

fn is_of_trouble(code: Code) -> bool {
    matches!(code, Code::Unreach | Code::TimedOut | Code::Closed | Code::Stale | Code::Busy)
}

/// Lists the directory again and again, and looks whether that is what is known.
async fn look(fs: &Dfs, dir: &Obj, known: &Known, seed: u64) -> u32 {
    let env = fs.container().client().env().clone();
    let mut passes = 0;
    while !known.is_over.get() {
        let (before, gone) = (known.there.borrow().clone(), known.removed.borrow().clone());
        let (mut anchor, mut listed) = (DirAnchor::start(), Vec::new());
        while !anchor.is_end() {
            match fs.readdir(dir, &mut anchor, 16).await {
                Ok(page) => listed.extend(page.into_iter().map(|entry| entry.name.to_vec())),
                Err(error) if is_of_trouble(error.code) => {}
                Err(error) => panic!("seed {seed}: listing: {error}"),
            }
            env.sleep(Duration::from_millis(1)).await;
        }
        let names: BTreeSet<_> = listed.iter().cloned().collect();
        assert_eq!(names.len(), listed.len(), "seed {seed}: a name is listed twice");
        let there = known.there.borrow();
        let lost = before.intersection(&there).find(|name| !names.contains(*name));
        assert_eq!(lost.map(|name| name.escape_ascii().to_string()), None, "seed {seed}");
        let risen = gone.iter().find(|name| names.contains(*name));
        assert_eq!(risen.map(|name| name.escape_ascii().to_string()), None, "seed {seed}");
        passes += 1;
    }
    passes
}

/// True when some names have moved and others have not.
async fn is_half_spread(fs: &Dfs, dir: &Obj) -> bool {
    let cont = fs.container();
    let mut batch = cont.batch();
    batch.op_of_unit(Container::fetch_spread(dir.oid()));
    let Ok(result) = batch.run().await else { return false };
    let begun = cont.note_spread(dir.oid(), result.replies().unwrap().first()).unwrap();
    begun.is_some() && cont.unit_of_hash(dir.oid(), u64::MAX).unwrap().0.group == 0
}

/// Kills engines, one at a time and the leader of the first group often, and starts them again. How often that was while the
/// directory was half spread.
async fn kill(cluster: &Cluster, fs: &Dfs, dir: &Obj, known: &Known) -> u32 {
    let env = fs.container().client().env().clone();
    let mut killed = 0;
    while !known.is_over.get() {
        for _ in 0..20 {
            if is_half_spread(fs, dir).await {
                break;
            }
            env.sleep(Duration::from_millis(1)).await;
        }
        env.sleep(Duration::from_micros(env.random_u64() % 3000)).await;
        let ranks = fs.container().engines_of(dir.oid()).unwrap_or_default();
        let first = ranks.first().map_or(0, |rank| rank.0 as usize);
        let at = match env.random_u64() % 2 {
            0 => first,
            _ => env.random_u64() as usize % cluster.spec().engines,
        };
        killed += is_half_spread(fs, dir).await as u32;
        cluster.kill_engine(at);
        env.sleep(Duration::from_millis(env.random_u64() % 500)).await;
        cluster.start_engine(at).await.unwrap();
    }
    killed
}

fn spread_under_trouble(class: &str, seed_count: u64) {
    let spreads: ObjClass = format!("{class}X@512").parse().unwrap();
    let alone = if class == "S" { "S1" } else { "RP_2G1" }.parse().unwrap();
    let (mut killed, mut passes) = (0, 0);
    for seed in seeds(seed_count) {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 4, targets: 1 }).unwrap();
        cluster.block_on(async {
            let setup = make(&cluster, alone).await;
            let root = setup.root().await.unwrap();
            let dir = setup.mkdir(&root, b"d", 0o755, Some(spreads)).await.unwrap();
            let known = Known::default();
            for at in 0..FEW / 50 {
                let made = (at * 50..(at + 1) * 50).map(|at| {
                    let (setup, dir, known) = (&setup, &dir, &known);
                    async move {
                        let (name, options) = (format!("p{at}").into_bytes(), Default::default());
                        let flags = OpenFlags::WRITE | OpenFlags::CREATE;
                        setup.open(dir, &name, flags, 0o644, &options).await.unwrap();
                        known.there.borrow_mut().insert(name);
                    }
                });
                join_all(made).await;
            }
            let sites = ["a", "b", "c"].map(|name| cluster.client(name));
            let there = async |client: &Client| {
                let fs = mount(client).await;
                let root = fs.root().await.unwrap();
                let dir = fs.lookup_rel(&root, b"d", OpenFlags::READ).await.unwrap();
                (fs, dir)
            };
            let (a, b, c) =
                (there(&sites[0]).await, there(&sites[1]).await, there(&sites[2]).await);
            let work = async {
                let of = |part: u32| (0..MORE).filter(move |at| at % 2 == part);
                let one = change(&a.0, &a.1, &known, of(0), seed);
                join(one, change(&b.0, &b.1, &known, of(1), seed)).await;
                known.is_over.set(true);
            };
            let watch = join(look(&c.0, &c.1, &known, seed), kill(&cluster, &setup, &dir, &known));
            let ((), (looked, died)) = join(work, watch).await;
            (killed, passes) = (killed + died, passes + looked);
            // It is gone on with by whoever leads then, with the next name.
            let env = setup.container().client().env().clone();
            let options = CreateOptions::default();
            for at in 0..60 {
                let name = format!("late{at}").into_bytes();
                while setup
                    .open(&dir, &name, OpenFlags::WRITE | OpenFlags::CREATE, 0o644, &options)
                    .await
                    .is_err()
                {
                    env.sleep(Duration::from_millis(100)).await;
                }
                known.there.borrow_mut().insert(name);
            }
            env.sleep(Duration::from_secs(40)).await;
            let mut counts = Vec::new();
            for (_, stat) in setup.container().object(dir.oid()).stat().await.unwrap() {
                counts.push(stat.dkey_count.saturating_sub(1));
            }
            let known = known.there.take();
            assert_eq!(counts.iter().sum::<u64>(), known.len() as u64, "seed {seed}: {counts:?}");
            let even = known.len() as u64 / counts.len() as u64;
            assert!(counts.iter().all(|count| *count > even / 2), "seed {seed}: {counts:?}");
            for name in known.iter() {
                setup.stat(&dir, name).await.unwrap();
            }
            let report = setup.check(Mend::Nothing).await.unwrap();
            assert_eq!(report.findings, [], "seed {seed}");
        });
    }
    assert!(killed > 0 && passes > 0, "killed on the way: {killed}, listings: {passes}");
}

#[test]
fn names_move_once_whatever_dies() {
    spread_under_trouble("S", 3);
}

#[test]
fn names_with_copies_move_once_whatever_dies() {
    spread_under_trouble("RP_2G", 3);
}

/// Requests to make and write files, to look at them, to open and read them, to remove them.
async fn cost(fs: &Dfs, dir: (&str, &str), file: &str, count: u32) -> [u64; 4] {
    const BYTES: usize = 3901;
    let client = fs.container().client().clone();
    let class = |name: &str| -> Option<ObjClass> { Some(name.parse().unwrap()) };
    let root = fs.root().await.unwrap();
    let dir = fs.mkdir(&root, dir.0.as_bytes(), 0o755, class(dir.1)).await.unwrap();
    let mut costs = [0; 4];
    for (phase, cost) in costs.iter_mut().enumerate() {
        let before = client.request_count();
        for at in 0..count {
            let name = name(at);
            let options = CreateOptions { class: class(file), ..CreateOptions::default() };
            match phase {
                0 => {
                    let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCL;
                    let made = fs.open(&dir, &name, flags, 0o644, &options).await.unwrap();
                    assert_eq!(fs.write(&made, 0, &[7; BYTES]).await.unwrap(), BYTES);
                }
                1 => assert_eq!(fs.stat(&dir, &name).await.unwrap().size, BYTES as u64),
                2 => {
                    let open = fs.open(&dir, &name, OpenFlags::READ, 0, &options).await.unwrap();
                    let mut room = [0; BYTES];
                    assert_eq!(fs.read(&open, 0, &mut room).await.unwrap(), BYTES);
                }
                _ => fs.remove(&dir, &name, false).await.unwrap(),
            }
        }
        *cost = client.request_count() - before;
    }
    costs
}

/// Progressive files in a directory that may spread cost as many requests as files on one target in a directory on one, while it is small. In
/// one that has spread names have moved away from the files that were made before, and from no others.
#[test]
fn small_files_cost_as_many_requests_wherever_they_may_go() {
    let cluster = Cluster::start(ClusterSpec { seed: 5, engines: 1, targets: 2 }).unwrap();
    cluster.block_on(async {
        let fs = make(&cluster, "S1".parse().unwrap()).await;
        // Connections are made.
        cost(&fs, ("first", "SX"), "SX", 8).await;
        let few = 100;
        let one = cost(&fs, ("one", "S1"), "S1", few).await;
        let two = cost(&fs, ("two", "SX@8192"), "SX+1MiB", few).await;
        assert_eq!(one, two);
        let many = 2000;
        let one = cost(&fs, ("many", "S1"), "S1", many).await;
        let two = cost(&fs, ("more", "SX@8192"), "SX+1MiB", many).await;
        for (one, two) in one.into_iter().zip(two) {
            assert!(two <= one + one / 8, "{two} requests instead of {one}");
        }
    });
}
