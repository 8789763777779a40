//! Files get another class while they are in use: nothing of them changes but that, whoever reads, writes, names
//! and removes them meanwhile, and whatever dies.

use crate::harness::World;
use client::{Client, Container};
use dfs::check::Mend;
use dfs::migrate::{MigrateOptions, Migrated, Migrating};
use dfs::{
    Code, CreateOptions, Credentials, Dfs, FormatOptions, MountFlags, Obj, OpenFlags, RenameFlags,
    SetAttr, SetTime, XattrMode,
};
use futures_util::future::{join, join_all};
use sim::{Cluster, ClusterSpec, seeds};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{ContLayout, ContProps, Durability, ObjClass};
use uuid::Uuid;
use wire::control::{Name, OpenMode};

const RW: OpenFlags = OpenFlags::READ_WRITE;
const SECOND: Duration = Duration::from_secs(1);

fn class(name: &str) -> ObjClass {
    name.parse().unwrap()
}

async fn make(fs: &Dfs, dir: &Obj, name: &[u8]) -> Obj {
    let flags = RW | OpenFlags::CREATE | OpenFlags::EXCL;
    fs.open(dir, name, flags, 0o644, &CreateOptions::default()).await.unwrap()
}

async fn open(fs: &Dfs, dir: &Obj, name: &[u8]) -> Obj {
    fs.open(dir, name, RW, 0, &CreateOptions::default()).await.unwrap()
}

fn data(seed: u64, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|i| ((i + seed) % 251) as u8 | 1).collect()
}

/// What became of all files at and below an object: paths with a new class, and with an error.
async fn migrate(
    fs: &Dfs,
    top: &Obj,
    to: &str,
    wait: Duration,
) -> (Vec<Vec<u8>>, BTreeMap<Vec<u8>, Code>) {
    let (mut done, mut failed) = (Vec::new(), BTreeMap::new());
    let options = MigrateOptions { class: class(to), wait, parallel: 3 };
    let tell = |news| match news {
        Migrating::File { path, outcome: Ok(Migrated::Done) } => done.push(path),
        Migrating::File { path, outcome: Err(error) } | Migrating::Dir { path, error } => {
            failed.insert(path, error.code);
        }
        Migrating::Found { .. } | Migrating::File { outcome: Ok(Migrated::HadIt), .. } => {}
    };
    fs.migrate(top, &options, &|_| (), tell).await.unwrap();
    (done, failed)
}

/// Objects of files that there are.
async fn file_objects(cont: &Container) -> usize {
    let oids = cont.list_all_objects(None, 4096).await.unwrap().oids;
    oids.iter().filter(|oid| oid.dkey_kind() == types::DkeyKind::U64).count()
}

async fn assert_whole(fs: &Dfs) {
    fs.sync();
    fs.container().client().env().sleep(60 * SECOND).await;
    let report = fs.check(Mend::Nothing).await.unwrap();
    assert_eq!((report.findings, report.waiting_count), (vec![], 0));
}

/// All that there is to see of a file by a name.
#[derive(PartialEq)]
struct Looks {
    bytes: Vec<u8>,
    runs: Vec<(u64, u64)>,
    mode: u32,
    owners: (u32, u32),
    nlink: u32,
    times: (i64, i64),
    chunk_bytes: u64,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

async fn looks(fs: &Dfs, dir: &Obj, name: &[u8]) -> Looks {
    let file = fs.open(dir, name, OpenFlags::READ, 0, &CreateOptions::default()).await.unwrap();
    let stat = fs.stat(dir, name).await.unwrap();
    let mut bytes = vec![0; stat.size as usize + 10];
    let count = fs.read(&file, 0, &mut bytes).await.unwrap();
    bytes.truncate(count);
    assert_eq!(count as u64, stat.size);
    let (mut runs, mut at) = (Vec::new(), 0);
    while let Ok(from) = fs.seek_data(&file, at).await {
        at = fs.seek_hole(&file, from).await.unwrap();
        runs.push((from, at));
    }
    let mut xattrs = Vec::new();
    for name in fs.listxattr(&file).await.unwrap() {
        let value = fs.getxattr(&file, &name).await.unwrap();
        xattrs.push((name, value));
    }
    Looks {
        bytes,
        runs,
        mode: stat.mode,
        owners: (stat.uid, stat.gid),
        nlink: stat.nlink,
        times: (stat.atime_ns, stat.mtime_ns),
        chunk_bytes: stat.chunk_bytes,
        xattrs,
    }
}

#[test]
fn a_file_keeps_all_but_its_class() {
    for (seed, classes) in
        [["S1", "SX", "S2", "SX+4KiB"], ["SX+8KiB", "S1", "SX+4KiB", "SX"]].into_iter().enumerate()
    {
        let world = World::new(seed as u64, "SX", classes[0]);
        world.cluster.block_on(async {
            let fs = world.mount(Credentials::root()).await;
            let root = fs.root().await.unwrap();
            let dir = fs.mkdir(&root, b"d", 0o755, None).await.unwrap();
            let below = fs.mkdir(&dir, b"e", 0o755, None).await.unwrap();
            let full = make(&fs, &dir, b"full").await;
            fs.write(&full, 0, &data(1, 30_000)).await.unwrap();
            let sparse = make(&fs, &dir, b"sparse").await;
            fs.write(&sparse, 5_000, &data(2, 100)).await.unwrap();
            fs.write(&sparse, 40_000_000, &data(3, 9_000)).await.unwrap();
            fs.truncate(&sparse, 60_000).await.unwrap();
            fs.write(&sparse, 20_000, b"x").await.unwrap();
            drop(make(&fs, &dir, b"empty").await);
            let hole = make(&fs, &below, b"hole").await;
            fs.truncate(&hole, 12_345).await.unwrap();
            let linked = make(&fs, &dir, b"one").await;
            fs.write(&linked, 100, &data(4, 10_000)).await.unwrap();
            for file in [&full, &linked] {
                let value = data(5, 3_000);
                fs.setxattr(file, b"user.large", &value, XattrMode::Set).await.unwrap();
                fs.setxattr(file, b"user.small", b"v", XattrMode::Set).await.unwrap();
                let (atime, mtime) = (Some(SetTime::At(77)), Some(SetTime::At(99)));
                let set = SetAttr { atime, mtime, mode: Some(0o4751), ..SetAttr::default() };
                fs.setattr(file, &set).await.unwrap();
            }
            drop((full, sparse, hole, linked));
            fs.link(&dir, b"one", &below, b"two").await.unwrap();
            fs.link(&dir, b"one", &below, b"three").await.unwrap();
            let names: [(&Obj, &[u8]); 7] = [
                (&dir, b"full"),
                (&dir, b"sparse"),
                (&dir, b"empty"),
                (&below, b"hole"),
                (&dir, b"one"),
                (&below, b"two"),
                (&below, b"three"),
            ];
            let all =
                async |fs: &Dfs| join_all(names.map(|(dir, name)| looks(fs, dir, name))).await;
            let before = all(&fs).await;
            let cont = fs.container();
            let snapshot = cont.pool().snap_create(&Name::Label("fs".into()), "s").await.unwrap();
            for to in &classes[1..] {
                let (done, failed) = migrate(&fs, &dir, to, SECOND).await;
                assert_eq!((done.len(), failed.len()), (5, 0), "{to}: {done:?}, {failed:?}");
                for (dir, name) in names {
                    let stat = fs.stat(dir, name).await.unwrap();
                    assert_eq!(stat.oid.class().unwrap(), class(to));
                }
                assert!(all(&fs).await == before, "{to}");
                // Again: all is there.
                assert_eq!(migrate(&fs, &dir, to, SECOND).await.0.len(), 0);
                assert_whole(&fs).await;
                // The empty one has none.
                assert_eq!(file_objects(cont).await, 4, "{to}: old objects are left");
            }
            let then = cont.at_epoch(snapshot.epoch);
            let then = Dfs::mount(&then, MountFlags::NONE, Credentials::root()).await.unwrap();
            // Of objects that are gone since it tells all there was, also where it was: dkey 0 of a file with several names
            // once ended the look for data, before the first chunk.
            assert!(all(&then).await == before, "in the snapshot");
            // A change after it shows.
            let file = open(&fs, &dir, b"full").await;
            fs.write(&file, 0, b"new").await.unwrap();
            let now = looks(&fs, &dir, b"full").await;
            assert!(now.times.1 > 99 && now.bytes[..3] == *b"new");
        });
    }
}

#[test]
fn what_cannot_be_switched_stays_as_it_is_and_is_told() {
    let world = World::new(7, "S1", "S1");
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let other = world.mount_from("other", Credentials::root()).await;
        let (root, of_other) = (fs.root().await.unwrap(), other.root().await.unwrap());
        let dir = fs.mkdir(&root, b"d", 0o755, None).await.unwrap();
        for name in [b"open", b"away", b"free"] {
            let file = make(&fs, &dir, name).await;
            fs.write(&file, 0, &data(1, 5_000)).await.unwrap();
        }
        fs.link(&dir, b"away", &root, b"outside").await.unwrap();
        let there = other.lookup_rel(&of_other, b"d", OpenFlags::PATH).await.unwrap();
        let held = open(&other, &there, b"open").await;
        let (done, failed) = migrate(&fs, &dir, "SX", 3 * SECOND).await;
        assert_eq!(done, [b"free".to_vec()]);
        let told = [(b"open".to_vec(), Code::Busy), (b"away".to_vec(), Code::NotSupported)];
        assert_eq!(failed, BTreeMap::from(told));
        // It goes on being written to, and gets its class when it is closed.
        other.write(&held, 4_000, &data(9, 3_000)).await.unwrap();
        let closing = async {
            other.container().client().env().sleep(2 * SECOND).await;
            other.write(&held, 0, b"last").await.unwrap();
            drop(held);
            other.sync();
        };
        let ((done, _), ()) = join(migrate(&fs, &dir, "SX", 30 * SECOND), closing).await;
        assert_eq!(done, [b"open".to_vec()]);
        let bytes = looks(&fs, &dir, b"open").await.bytes;
        assert!(bytes.len() == 7_000 && bytes[..4] == *b"last");
        assert!(bytes[4_000..] == data(9, 3_000)[..]);
        // By all its names.
        let (done, failed) = migrate(&fs, &root, "SX", SECOND).await;
        assert_eq!((done.len(), failed.len()), (1, 0));
        // What cannot be had is refused before anything is copied; others may not.
        let to = MigrateOptions { class: class("EC_8P2GX"), wait: SECOND, parallel: 1 };
        assert!(fs.migrate(&root, &to, &|_| (), |_| ()).await.is_err());
        let user = fs.with_credentials(Credentials { uid: 5, gid: 5, ..Credentials::root() });
        assert_eq!(migrate(&user, &dir, "S1", SECOND).await.1[&b"free"[..]], Code::NoPerm);
        assert_whole(&fs).await;
    });
}

/// A truncation by name opens nothing, and looked up the old object just before another one took its place.
#[test]
fn a_truncation_by_name_is_not_lost() {
    let world = World::new(8, "S1", "S1");
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let other = world.mount_from("other", Credentials::root()).await;
        let (root, of_other) = (fs.root().await.unwrap(), other.root().await.unwrap());
        let file = make(&fs, &root, b"f").await;
        fs.write(&file, 0, &data(1, 9_000)).await.unwrap();
        drop(file);
        let known = other.lookup_rel(&of_other, b"f", OpenFlags::PATH).await.unwrap();
        assert_eq!(migrate(&fs, &root, "SX", SECOND).await.0.len(), 1);
        let set = SetAttr { size: Some(10), ..SetAttr::default() };
        assert_eq!(other.setattr(&known, &set).await.unwrap_err().code, Code::NonExist);
        assert_eq!(other.truncate(&known, 10).await.unwrap_err().code, Code::NonExist);
        assert_eq!(fs.stat(&root, b"f").await.unwrap().size, 9_000);
        // By path it is looked up again.
        let sys = dfs::sys::Sys::new(other.clone());
        sys.truncate(b"/f", 10).await.unwrap();
        assert_eq!(fs.stat(&root, b"f").await.unwrap().size, 10);
        drop(known);
        assert_whole(&fs).await;
    });
}

/// Files of one writer, who knows what is in them.
struct Writer {
    fs: Dfs,
    dir: Obj,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Names of one file, which it has all the time.
    pair: [Vec<u8>; 2],
}

impl Writer {
    fn random(&self, below: u64) -> u64 {
        self.fs.container().client().env().random_u64() % below
    }

    /// One change or look; errors that trouble makes end it without an effect that is not known.
    async fn step(&mut self) {
        let names: Vec<Vec<u8>> = self.model.keys().cloned().collect();
        let name = &names[self.random(names.len() as u64) as usize];
        let (fs, dir) = (self.fs.clone(), self.dir.clone());
        let (at, count) = (self.random(30_000), 1 + self.random(9_000));
        match self.random(10) {
            0..=3 => {
                let file = open(&fs, &dir, name).await;
                for _ in 0..1 + self.random(3) {
                    let bytes = data(self.random(1000), count);
                    fs.write(&file, at, &bytes).await.unwrap();
                    self.change(name, |model| write_to(model, at, &bytes));
                    fs.container().client().env().sleep(SECOND / 50).await;
                }
            }
            4 => {
                let file = open(&fs, &dir, name).await;
                let bytes = data(self.random(1000), count);
                let end = fs.append(&file, &[&bytes]).await.unwrap();
                assert_eq!(end, self.model[name].len() as u64, "{}", text(name));
                self.change(name, |model| model.extend_from_slice(&bytes));
            }
            5 => {
                let file = open(&fs, &dir, name).await;
                fs.punch_hole(&file, at, count).await.unwrap();
                self.change(name, |model| {
                    let end = model.len().min((at + count) as usize);
                    if (at as usize) < end {
                        model[at as usize..end].fill(0);
                    }
                });
            }
            6 => {
                let set = SetAttr { size: Some(at), ..SetAttr::default() };
                loop {
                    let found = fs.lookup_rel(&dir, name, OpenFlags::PATH).await.unwrap();
                    match fs.setattr(&found, &set).await {
                        // It got another object just now.
                        Err(error) if error.code == Code::NonExist => {}
                        outcome => break outcome.map(drop).unwrap(),
                    }
                }
                self.change(name, |model| model.resize(at as usize, 0));
            }
            7 if !self.pair.contains(name) => {
                let to = [name, &b"+"[..]].concat();
                fs.rename(&dir, name, &dir, &to, RenameFlags::NOREPLACE).await.unwrap();
                let bytes = self.model.remove(name).unwrap();
                self.model.insert(to, bytes);
            }
            8 if !self.pair.contains(name) => {
                fs.unlink(&dir, name).await.unwrap();
                drop(make(&fs, &dir, name).await);
                self.model.insert(name.clone(), Vec::new());
            }
            _ => self.look(&fs, &dir, name).await,
        }
    }

    fn change(&mut self, name: &[u8], act: impl FnOnce(&mut Vec<u8>)) {
        let model = self.model.get_mut(name).unwrap();
        act(model);
        if self.pair.iter().any(|one| one == name) {
            let bytes = model.clone();
            self.pair.iter().for_each(|one| drop(self.model.insert(one.clone(), bytes.clone())));
        }
    }

    async fn look(&self, fs: &Dfs, dir: &Obj, name: &[u8]) {
        let want = &self.model[name];
        let stat = fs.stat(dir, name).await.unwrap();
        assert_eq!(stat.size, want.len() as u64, "{}", text(name));
        let file = fs.open(dir, name, OpenFlags::READ, 0, &CreateOptions::default()).await.unwrap();
        let mut bytes = vec![0; want.len() + 7];
        let count = fs.read(&file, 0, &mut bytes).await.unwrap();
        assert!(count == want.len() && bytes[..count] == want[..], "{}", text(name));
    }
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn write_to(model: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let end = at as usize + bytes.len();
    if model.len() < end {
        model.resize(end, 0);
    }
    model[at as usize..end].copy_from_slice(bytes);
}

/// Engines on two nodes, and a file system that outlives their deaths.
async fn file_system(cluster: &Cluster, setup: &Client, dir_class: &str) -> Dfs {
    let first = cluster.container(setup, Durability::Wal, ContLayout::Posix).await.unwrap();
    let props = ContProps {
        layout: ContLayout::Posix,
        dir_oclass: class(dir_class),
        chunk_bytes: 4096,
        ..ContProps::default()
    };
    first.pool().cont_create("fs", Uuid::nil(), props, BTreeMap::new()).await.unwrap();
    let cont = mounted(setup).await;
    let options = FormatOptions { mode: 0o777, ..FormatOptions::default() };
    Dfs::format(&cont, &options).await.unwrap();
    Dfs::mount(&cont, MountFlags::NONE, Credentials::root()).await.unwrap()
}

async fn mounted(client: &Client) -> Container {
    let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await.unwrap();
    pool.cont_open(&Name::Label("fs".into()), OpenMode::ReadWrite).await.unwrap()
}

async fn mount_from(cluster: &Cluster, name: &str) -> Dfs {
    let cont = mounted(&cluster.client(name)).await;
    Dfs::mount(&cont, MountFlags::NONE, Credentials::root()).await.unwrap()
}

/// Writers know what is in their files; others change the class of all files all the time, one of them dies
/// again and again in the middle of it, and engines, too. Seed 5: a file with two names is cut while it gets another object. Who knew the old one
/// by a name found it still there, took that for other names, and cut what nobody saw any more.
#[test]
fn writers_go_on_whatever_dies() {
    let switched = Cell::new(0);
    for seed in seeds(6) {
        let spec = ClusterSpec { seed, engines: 2, targets: 2 };
        let cluster = Cluster::start(spec).unwrap();
        let kills = seed % 3 > 0;
        cluster.block_on(async {
            let setup = cluster.client("setup");
            let fs = file_system(&cluster, &setup, ["S1", "SX"][seed as usize % 2]).await;
            let root = fs.root().await.unwrap();
            let mut writers = Vec::new();
            for at in 0..3 {
                let fs = mount_from(&cluster, &format!("w{at}")).await;
                let dir = fs.root().await.unwrap();
                let mut model = BTreeMap::new();
                for name in ["a", "b", "c"] {
                    let name = format!("{at}{name}").into_bytes();
                    drop(make(&fs, &dir, &name).await);
                    model.insert(name, Vec::new());
                }
                let pair = [format!("{at}c").into_bytes(), format!("{at}d").into_bytes()];
                fs.link(&dir, &pair[0], &dir, &pair[1]).await.unwrap();
                model.insert(pair[1].clone(), Vec::new());
                writers.push(Writer { fs, dir, model, pair });
            }
            let left = Cell::new(writers.len());
            let work = join_all(writers.iter_mut().map(|writer| async {
                for _ in 0..60 {
                    writer.step().await;
                    let pause = Duration::from_micros(writer.random(200_000));
                    writer.fs.container().client().env().sleep(pause).await;
                }
                left.set(left.get() - 1);
            }));
            let migration = async {
                let mut round = seed;
                while left.get() > 0 {
                    let to = ["SX", "S2", "S1", "SX+4KiB"][round as usize % 4];
                    let (done, failed) = migrate(&fs, &root, to, SECOND / 5).await;
                    switched.set(switched.get() + done.len());
                    for (path, code) in failed {
                        let known = [Code::Busy, Code::NonExist, Code::NotSupported];
                        assert!(known.contains(&code), "{}: {code:?}", text(&path));
                    }
                    round += 1;
                }
            };
            let trouble = async {
                let env = cluster.world().node("trouble");
                let mut round = 0;
                while left.get() > 0 {
                    let name = format!("m{round}");
                    let second = mount_from(&cluster, &name).await;
                    let own = second.container().client().env().clone();
                    own.spawn(async move {
                        let top = second.root().await.unwrap();
                        loop {
                            let to = MigrateOptions {
                                class: class("SX+8KiB"),
                                wait: SECOND,
                                parallel: 2,
                            };
                            let _ = second.migrate(&top, &to, &|_| (), |_| ()).await;
                        }
                    });
                    env.sleep(Duration::from_micros(env.random_u64() % 800_000)).await;
                    cluster.world().kill(&name);
                    if kills && round % 3 == 2 {
                        let at = env.random_u64() as usize % 2;
                        cluster.kill_engine(at);
                        env.sleep(Duration::from_micros(env.random_u64() % 300_000)).await;
                        cluster.start_engine(at).await.unwrap();
                    }
                    round += 1;
                }
            };
            join(join(work, migration), trouble).await;
            for writer in &writers {
                for name in writer.model.keys() {
                    writer.look(&fs, &root, name).await;
                }
            }
            drop(writers);
            // Who died is given up first.
            assert_whole(&fs).await;
            let left = file_objects(fs.container()).await;
            assert!(left <= 9, "{left} objects of 9 files");
        });
    }
    assert!(switched.get() > 30, "only {} switches", switched.get());
}
