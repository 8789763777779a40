//! Directories that spread: in one group while they are small, in all when they are large, and nobody who sees a name twice, or not, or
//! loses one, whenever that happens.

use crate::harness::World;
use client::Container;
use dfs::check::{Mend, Problem};
use dfs::{
    Code, CreateOptions, Credentials, Dfs, DirAnchor, MountFlags, Obj, OpenFlags, RenameFlags,
    Stat, XattrMode,
};
use futures_util::future::join_all;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;
use types::{Durability, Unit};
use wire::obj::{Cond, FetchIod, FetchWant, Fetched, Op, OpReply, UpdateIod, UpdateValue};
use wire::spread::{MARKER, REACHED, Spread};

const NEW: OpenFlags = OpenFlags(OpenFlags::READ_WRITE.0 | OpenFlags::CREATE.0 | OpenFlags::EXCL.0);

async fn make(fs: &Dfs, dir: &Obj, name: &str) -> Obj {
    fs.open(dir, name.as_bytes(), NEW, 0o644, &CreateOptions::default()).await.unwrap()
}

async fn make_all(fs: &Dfs, dir: &Obj, numbers: std::ops::Range<u32>) {
    join_all(numbers.map(|at| async move { drop(make(fs, dir, &format!("f{at}")).await) })).await;
}

async fn settle(fs: &Dfs) {
    fs.sync();
    fs.container().client().env().sleep(Duration::from_secs(5)).await;
}

/// Names in each unit of a directory.
async fn names_by_unit(fs: &Dfs, dir: &Obj) -> Vec<u64> {
    let object = fs.container().object(dir.oid());
    let mut counts = Vec::new();
    for (_, stat) in object.stat().await.unwrap() {
        // Each that has something has a marker.
        counts.push(stat.dkey_count.saturating_sub(1));
    }
    counts
}

async fn assert_whole(fs: &Dfs) {
    settle(fs).await;
    let report = fs.check(Mend::Nothing).await.unwrap();
    assert_eq!((report.findings, report.waiting_count), (vec![], 0));
}

/// All names from an anchor on, a few at a time, over anchors that were kept as bytes.
async fn list_from(fs: &Dfs, dir: &Obj, anchor: DirAnchor, count: u32) -> Vec<Vec<u8>> {
    let (mut names, mut raw) = (Vec::new(), anchor.to_short());
    loop {
        let mut anchor = DirAnchor::from_short(&raw).unwrap();
        if anchor.is_end() {
            return names;
        }
        let page = fs.readdir(dir, &mut anchor, count).await.unwrap();
        names.extend(page.into_iter().map(|entry| entry.name.to_vec()));
        raw = anchor.to_short();
    }
}

#[test]
fn a_directory_is_in_one_unit_while_it_is_small_and_in_all_when_it_is_large() {
    let world = World::new(1, "S1", "S1");
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let root = fs.root().await.unwrap();
        drop(make(&fs, &root, "warm").await);
        let dir = fs.mkdir(&root, b"d", 0o755, Some("SX@64".parse().unwrap())).await.unwrap();
        make_all(&fs, &dir, 0..64).await;
        settle(&fs).await;
        assert_eq!(names_by_unit(&fs, &dir).await, [64, 0, 0]);
        make_all(&fs, &dir, 64..300).await;
        settle(&fs).await;
        let counts = names_by_unit(&fs, &dir).await;
        assert_eq!(counts.iter().sum::<u64>(), 300);
        assert!(counts.iter().all(|count| (70..130).contains(count)), "{counts:?}");
        assert_eq!(list_from(&fs, &dir, DirAnchor::start(), 40).await.len(), 300);
        assert_whole(&fs).await;
    });
}

/// Who knows where the names are asks once for each, in a small directory and in a large one.
#[test]
fn a_call_is_one_request_before_and_after() {
    let world = World::new(2, "S1", "S1");
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let root = fs.root().await.unwrap();
        drop(make(&fs, &root, "warm").await);
        let client = fs.container().client();
        let dir = fs.mkdir(&root, b"d", 0o755, Some("SX@16".parse().unwrap())).await.unwrap();
        for large in [false, true] {
            if large {
                make_all(&fs, &dir, 100..200).await;
                settle(&fs).await;
                // What has moved last may be news.
                assert_eq!(list_from(&fs, &dir, DirAnchor::start(), 500).await.len(), 100);
            }
            let asked = Cell::new(client.request_count());
            let one = |what: &str| {
                let now = client.request_count();
                assert_eq!(now - asked.replace(now), 1, "{what}, large: {large}");
            };
            for at in 0..8 {
                let name = format!("n{at}").into_bytes();
                let file =
                    fs.open(&dir, &name, NEW, 0o644, &CreateOptions::default()).await.unwrap();
                one("create");
                fs.write(&file, 0, b"some").await.unwrap();
                one("write");
                drop(file);
                assert_eq!(fs.stat(&dir, &name).await.unwrap().size, 4);
                one("stat");
                assert_eq!(fs.stat(&dir, b"none").await.unwrap_err().code, Code::NonExist);
                one("look for what is not there");
                fs.unlink(&dir, &name).await.unwrap();
                one("unlink");
            }
        }
        assert_whole(&fs).await;
    });
}

/// Anchors that were given while the directory was in one unit are good when it is in all, and while it gets there.
#[test]
fn a_listing_goes_on_while_names_move() {
    for seed in 0..6 {
        let world = World::new(seed, "S1", "S1");
        world.cluster.block_on(async {
            let fs = world.mount(Credentials::root()).await;
            let other = world.mount_from("other", Credentials::root()).await;
            let root = fs.root().await.unwrap();
            let dir = fs.mkdir(&root, b"d", 0o755, Some("SX@128".parse().unwrap())).await.unwrap();
            make_all(&fs, &dir, 0..120).await;
            let stays: BTreeSet<Vec<u8>> =
                (0..120).map(|at| format!("f{at}").into_bytes()).collect();
            // One begun before at each place, to be gone on with afterwards.
            let (mut before, mut anchors) = (Vec::new(), Vec::new());
            let mut anchor = DirAnchor::start();
            while !anchor.is_end() {
                anchors.push((before.clone(), anchor.to_bytes()));
                let page = fs.readdir(&dir, &mut anchor, 7).await.unwrap();
                before.extend(page.into_iter().map(|entry| entry.name.to_vec()));
            }
            // By somebody else: the first knows nothing of it.
            let root_there = other.root().await.unwrap();
            let there = other.lookup_rel(&root_there, b"d", OpenFlags::READ).await.unwrap();
            let grow = async {
                for at in 120..400 {
                    drop(make(&other, &there, &format!("f{at}")).await);
                    if at % 3 == 0 {
                        other.unlink(&there, format!("f{at}").as_bytes()).await.unwrap();
                    }
                }
            };
            let list = async || {
                for (seen, raw) in &anchors {
                    let anchor = DirAnchor::from_bytes(raw).unwrap();
                    let mut listed = seen.clone();
                    listed.extend(list_from(&fs, &dir, anchor, 5).await);
                    let names: BTreeSet<_> = listed.iter().collect();
                    assert_eq!(names.len(), listed.len(), "seed {seed}: something is listed twice");
                    let missing = stays.iter().find(|name| !names.contains(name));
                    assert_eq!(missing, None, "seed {seed}");
                }
            };
            futures_util::future::join(grow, list()).await;
            settle(&fs).await;
            list().await;
            let counts = names_by_unit(&fs, &dir).await;
            assert!(counts.iter().all(|count| *count > 50), "{counts:?}");
            assert_whole(&fs).await;
        });
    }
}

/// Whoever knows a directory as a small one is right about each name a request later, whatever he asks.
#[test]
fn who_knows_nothing_of_it_is_told() {
    let world = World::new(3, "S1", "S1");
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let root = fs.root().await.unwrap();
        let dir = fs.mkdir(&root, b"d", 0o755, Some("SX@8".parse().unwrap())).await.unwrap();
        let kept = make(&fs, &dir, "open").await;
        fs.setxattr(&kept, b"user.large", &[7; 9000], XattrMode::Set).await.unwrap();
        fs.setxattr(&kept, b"user.small", b"s", XattrMode::Set).await.unwrap();
        fs.write(&kept, 0, b"text").await.unwrap();
        make_all(&fs, &dir, 0..60).await;
        fs.mkdir(&dir, b"sub", 0o755, None).await.unwrap();
        fs.symlink(&dir, b"link", b"f1").await.unwrap();
        settle(&fs).await;
        // Each by a client of its own.
        let fresh = async |name: &str| {
            let fs = world.mount_from(name, Credentials::root()).await;
            let root = fs.root().await.unwrap();
            let dir = fs.lookup_rel(&root, b"d", OpenFlags::READ).await.unwrap();
            (fs, root, dir)
        };
        let (c, _, d) = fresh("reader").await;
        let file =
            c.open(&d, b"open", OpenFlags::READ_WRITE, 0, &Default::default()).await.unwrap();
        assert_eq!(c.getxattr(&file, b"user.large").await.unwrap(), [7; 9000]);
        assert_eq!(c.getxattr(&file, b"user.small").await.unwrap(), b"s");
        assert_eq!(c.lookup(b"/d/link", OpenFlags::PATH).await.unwrap().oid(), {
            c.lookup(b"/d/f1", OpenFlags::PATH).await.unwrap().oid()
        });
        for at in 0..60 {
            let (c, _, d) = fresh(&format!("{at}")).await;
            let (name, new) = (format!("f{at}").into_bytes(), format!("g{at}").into_bytes());
            match at % 6 {
                0 => c.unlink(&d, &name).await.unwrap(),
                1 => c.rename(&d, &name, &d, &new, RenameFlags::NONE).await.unwrap(),
                2 => c.link(&d, &name, &d, &new).await.unwrap(),
                3 => {
                    let made = c.open(&d, &name, NEW, 0o644, &Default::default()).await;
                    assert_eq!(made.map(drop).unwrap_err().code, Code::Exist);
                }
                4 => c.rename(&d, &name, &d, b"sub", RenameFlags::EXCHANGE).await.unwrap(),
                _ => drop(c.mkdir(&d, &new, 0o700, None).await.unwrap()),
            }
        }
        // Who held a file open meanwhile has it still.
        fs.write(&kept, 4, b" more").await.unwrap();
        fs.unlink(&dir, b"open").await.unwrap();
        assert_eq!(fs.size(&kept).await.unwrap(), 9);
        drop((kept, file));
        let names = list_from(&fs, &dir, DirAnchor::start(), 9).await;
        assert_eq!(names.len(), 60 + 2 - 10 + 10 + 10);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        assert_whole(&fs).await;
    });
}

/// A large directory goes when it is empty, and not before, also by the hand of one who takes it for a small one, and leaves nothing.
#[test]
fn a_large_directory_is_removed_when_it_is_empty() {
    let world = World::new(4, "S1", "S1");
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let root = fs.root().await.unwrap();
        for way in 0..3 {
            let dir = fs.mkdir(&root, b"d", 0o755, Some("SX@8".parse().unwrap())).await.unwrap();
            make_all(&fs, &dir, 0..50).await;
            settle(&fs).await;
            let counts = names_by_unit(&fs, &dir).await;
            assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
            let other = world.mount_from(&format!("o{way}"), Credentials::root()).await;
            let there = other.root().await.unwrap();
            assert_eq!(other.rmdir(&there, b"d").await.unwrap_err().code, Code::NotEmpty);
            match way {
                0 => {
                    for at in 0..50 {
                        fs.unlink(&dir, format!("f{at}").as_bytes()).await.unwrap();
                    }
                    world
                        .mount_from("e", Credentials::root())
                        .await
                        .rmdir(&there, b"d")
                        .await
                        .unwrap();
                }
                1 => other.remove(&there, b"d", true).await.unwrap(),
                _ => {
                    for at in 0..50 {
                        fs.unlink(&dir, format!("f{at}").as_bytes()).await.unwrap();
                    }
                    fs.mkdir(&root, b"e", 0o755, None).await.unwrap();
                    let to = RenameFlags::NONE;
                    other.rename(&there, b"e", &there, b"d", to).await.unwrap();
                    fs.rmdir(&root, b"d").await.unwrap();
                }
            }
            let made = fs.open(&dir, b"late", NEW, 0o644, &Default::default()).await;
            assert_eq!(made.map(drop).unwrap_err().code, Code::NonExist);
            assert_eq!(names_by_unit(&fs, &dir).await, [0, 0, 0]);
            assert_whole(&fs).await;
        }
    });
}

/// The time of a directory's last change is that of all its units.
#[test]
fn a_large_directory_has_changed_when_any_of_its_units_has() {
    let world = World::new(5, "S1", "S1");
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let root = fs.root().await.unwrap();
        let dir = fs.mkdir(&root, b"d", 0o755, Some("SX@8".parse().unwrap())).await.unwrap();
        make_all(&fs, &dir, 0..50).await;
        settle(&fs).await;
        for at in 0..10 {
            let before = fs.stat(&root, b"d").await.unwrap().mtime_ns;
            fs.container().client().env().sleep(Duration::from_millis(10)).await;
            drop(make(&fs, &dir, &format!("g{at}")).await);
            let other = world.mount_from(&format!("o{at}"), Credentials::root()).await;
            let there = other.root().await.unwrap();
            let after = other.stat(&there, b"d").await.unwrap().mtime_ns;
            assert!(after > before);
            assert_eq!(fs.stat(&root, b"d").await.unwrap().mtime_ns, after);
        }
    });
}

fn times(stat: &Stat) -> [i64; 3] {
    [stat.atime_ns, stat.mtime_ns, stat.ctime_ns]
}

/// A name that an engine moves is the same name in the same directory: no time of the directory, nor of what the name leads to, is another
/// one afterwards. Backups and caches go by these times.
#[test]
fn names_that_move_change_no_times() {
    let world = World::new(9, "S1", "SX+4KiB");
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let root = fs.root().await.unwrap();
        let dir = fs.mkdir(&root, b"d", 0o755, Some("SX@32".parse().unwrap())).await.unwrap();
        make_all(&fs, &dir, 0..29).await;
        fs.mkdir(&dir, b"sub", 0o755, None).await.unwrap();
        fs.symlink(&dir, b"link", &[b'x'; 4095]).await.unwrap();
        let written = make(&fs, &dir, "written").await;
        fs.write(&written, 0, &[1; 9000]).await.unwrap();
        drop(written);
        fs.link(&dir, b"f0", &root, b"second").await.unwrap();
        let env = fs.container().client().env().clone();
        let mut names: Vec<Vec<u8>> = (0..29).map(|at| format!("f{at}").into_bytes()).collect();
        names.extend([b"sub".to_vec(), b"link".to_vec(), b"written".to_vec()]);
        let stats = async |fs: &Dfs, dir: &Obj| {
            let mut stats = Vec::new();
            for name in &names {
                stats.push(fs.stat(dir, name).await.unwrap());
            }
            stats
        };
        env.sleep(Duration::from_millis(20)).await;
        let before = stats(&fs, &dir).await;
        drop(make(&fs, &dir, "one more").await);
        let of_dir = fs.stat(&root, b"d").await.unwrap();
        assert!(of_dir.mtime_ns > before[31].ctime_ns && of_dir.ctime_ns >= of_dir.mtime_ns);
        settle(&fs).await;
        let counts = names_by_unit(&fs, &dir).await;
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
        for mount in ["a", "b"] {
            let other = world.mount_from(mount, Credentials::root()).await;
            let root = other.root().await.unwrap();
            assert_eq!(times(&other.stat(&root, b"d").await.unwrap()), times(&of_dir));
            let there = other.lookup_rel(&root, b"d", OpenFlags::READ).await.unwrap();
            assert_eq!(stats(&other, &there).await, before);
            assert_eq!(other.readlink_at(&there, b"link").await.unwrap(), [b'x'; 4095]);
        }
        // What does change something shows, of names that have moved and of others.
        for (name, before) in names.iter().zip(before) {
            env.sleep(Duration::from_millis(1)).await;
            if name == b"link" {
                continue;
            }
            fs.chmod(&dir, name, 0o700).await.unwrap();
            let after = fs.stat(&dir, name).await.unwrap();
            assert!(after.ctime_ns > before.ctime_ns);
            assert_eq!(after.mtime_ns, before.mtime_ns);
        }
        assert_whole(&fs).await;
        assert_eq!(times(&fs.stat(&root, b"d").await.unwrap()), times(&of_dir));
    });
}

/// The link count of a directory counts the directories in it, in one unit and in all. While names move it says 1, that it is not known: one
/// that is too small would have `find` skip directories.
#[test]
fn a_directory_counts_its_directories_wherever_their_names_are() {
    let world = World::new(11, "S1", "S1");
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let root = fs.root().await.unwrap();
        let dir = fs.mkdir(&root, b"d", 0o755, Some("SX@32".parse().unwrap())).await.unwrap();
        let links = async |fs: &Dfs| {
            let root = fs.root().await.unwrap();
            let one = fs.stat(&root, b"d").await.unwrap().nlink;
            let mut listed = Vec::new();
            let mut anchor = DirAnchor::start();
            while !anchor.is_end() {
                listed.extend(fs.readdirplus(&root, &mut anchor, 8).await.unwrap());
            }
            let entry = listed.iter().find(|(entry, _)| &entry.name[..] == b"d").unwrap();
            (one, entry.1.nlink)
        };
        assert_eq!(links(&fs).await, (2, 2));
        for at in 0..20 {
            fs.mkdir(&dir, format!("s{at}").as_bytes(), 0o755, None).await.unwrap();
        }
        make_all(&fs, &dir, 0..10).await;
        assert_eq!(links(&fs).await, (22, 22));
        let cont = fs.container().clone();
        let small = cont.pool().snap_create(&cont.name(), "small").await.unwrap();
        let grow = async {
            make_all(&fs, &dir, 10..300).await;
        };
        let mut seen = BTreeSet::new();
        let other = world.mount_from("o", Credentials::root()).await;
        let watch = async {
            let there = other.root().await.unwrap();
            for _ in 0..40_000 {
                seen.insert(other.stat(&there, b"d").await.unwrap().nlink);
                if seen.len() == 2 {
                    break;
                }
                other.container().client().env().sleep(Duration::from_micros(50)).await;
            }
        };
        futures_util::future::join(grow, watch).await;
        settle(&fs).await;
        assert_eq!(seen, BTreeSet::from([1, 22]));
        let counts = names_by_unit(&fs, &dir).await;
        assert!(counts.iter().all(|count| *count > 60), "{counts:?}");
        assert_eq!((links(&fs).await, links(&other).await), ((22, 22), (22, 22)));
        for at in 0..5 {
            fs.rmdir(&dir, format!("s{at}").as_bytes()).await.unwrap();
        }
        let flags = RenameFlags::NONE;
        fs.rename(&dir, b"s5", &root, b"out", flags).await.unwrap();
        fs.rename(&dir, b"s6", &dir, b"s7", flags).await.unwrap();
        fs.chmod(&dir, b"s8", 0o700).await.unwrap();
        assert_eq!((links(&fs).await, links(&other).await), ((15, 15), (15, 15)));
        let past = cont.at_epoch(small.epoch);
        let past = Dfs::mount(&past, MountFlags::READ_ONLY, Credentials::root()).await.unwrap();
        assert_eq!(links(&past).await, (22, 22));
    });
}

/// A crash leaves a directory half spread. It works, but its names would stay on one target for ever if nobody made another one there: so
/// whoever asks for one has it gone on with.
#[test]
fn what_a_crash_left_half_spread_goes_on_when_it_is_looked_at() {
    let world = World::of(10, "S1", "S1", Durability::Wal);
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let root = fs.root().await.unwrap();
        let dir = fs.mkdir(&root, b"d", 0o755, Some("SX@256".parse().unwrap())).await.unwrap();
        make_all(&fs, &dir, 0..256).await;
        make_all(&fs, &dir, 256..260).await;
        let cont = fs.container();
        let state = async || {
            cont.learn_spread(dir.oid()).await.unwrap();
            let has_begun = cont.groups_of_spread(dir.oid()).is_some();
            (has_begun, cont.unit_of_hash(dir.oid(), u64::MAX).unwrap().0.group > 0)
        };
        while !state().await.0 {
            cont.client().env().sleep(Duration::from_micros(200)).await;
        }
        world.cluster.kill_engine(0);
        world.cluster.start_engine(0).await.unwrap();
        assert_eq!(state().await, (true, false), "the crash was to come in between");
        settle(&fs).await;
        assert_eq!(state().await, (true, true));
        let counts = names_by_unit(&fs, &dir).await;
        assert_eq!(counts.iter().sum::<u64>(), 260);
        assert!(counts.iter().all(|count| (60..120).contains(count)), "{counts:?}");
        assert_whole(&fs).await;
    });
}

/// A snapshot shows each name once, wherever it was at the moment.
#[test]
fn snapshots_show_a_directory_on_its_way() {
    let world = World::new(6, "S1", "S1");
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let root = fs.root().await.unwrap();
        let dir = fs.mkdir(&root, b"d", 0o755, Some("SX@128".parse().unwrap())).await.unwrap();
        make_all(&fs, &dir, 0..128).await;
        let grow = async {
            for at in 128..400 {
                drop(make(&fs, &dir, &format!("f{at}")).await);
            }
        };
        let epochs = std::cell::RefCell::new(Vec::new());
        let take = async {
            let cont = world.mount_from("s", Credentials::root()).await.container().clone();
            for at in 0..12 {
                let made = cont.pool().snap_create(&cont.name(), &format!("s{at}")).await.unwrap();
                epochs.borrow_mut().push(made.epoch);
                cont.client().env().sleep(Duration::from_millis(4)).await;
            }
        };
        futures_util::future::join(grow, take).await;
        settle(&fs).await;
        let mut states = BTreeSet::new();
        for epoch in epochs.take() {
            let cont = fs.container().at_epoch(epoch);
            let past = Dfs::mount(&cont, MountFlags::READ_ONLY, Credentials::root()).await.unwrap();
            let root = past.root().await.unwrap();
            let dir = past.lookup_rel(&root, b"d", OpenFlags::READ).await.unwrap();
            let listed = list_from(&past, &dir, DirAnchor::start(), 11).await;
            let names: BTreeSet<_> = listed.iter().cloned().collect();
            assert_eq!(names.len(), listed.len());
            // One was made after the other: what is there is the first of them.
            for at in 0..listed.len() {
                let name = format!("f{at}").into_bytes();
                assert!(names.contains(&name), "{at} of {}", listed.len());
                past.stat(&dir, &name).await.unwrap();
            }
            let mut batch = cont.batch();
            batch.op_of_unit(Container::fetch_spread(dir.oid()));
            let result = batch.run().await.unwrap();
            let replies = result.replies().unwrap();
            states.insert(cont.note_spread(dir.oid(), replies.first()).unwrap().is_some());
        }
        assert!(states.contains(&true), "some of them were on the way, or behind it");
    });
}

#[test]
fn classes_that_spread_are_those_of_directories() {
    let world = World::new(7, "SX@8", "S1");
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let root = fs.root().await.unwrap();
        let options = CreateOptions { class: Some("SX@8".parse().unwrap()), ..Default::default() };
        let made = fs.open(&root, b"f", NEW, 0o644, &options).await;
        assert_eq!(made.map(drop).unwrap_err().code, Code::Inval);
        // The root is one, too.
        make_all(&fs, &root, 0..60).await;
        settle(&fs).await;
        let counts = names_by_unit(&fs, &root).await;
        assert!(counts.iter().all(|count| *count > 5), "{counts:?}");
        assert_whole(&fs).await;
    });
}

/// Puts an entry into a unit, whatever that thinks of it: the unit is told that it has all names, and that this was not so.
async fn put_astray(cont: &Container, unit: Unit, name: &[u8], raw: &[u8]) {
    let update = |dkey, akey, value| {
        let iods = vec![UpdateIod { akey, cond: Cond::NONE, value: UpdateValue::Inline(value) }];
        Op::Update { unit, dkey, cond: Cond::NONE, iods }
    };
    let before = value_of(cont, unit, MARKER, REACHED).await.expect("a unit in use says so");
    let all = Spread { own_first: 0, own_last: u64::MAX, reached: u64::MAX }.encode();
    let mut batch = cont.batch();
    batch.op_of_unit(update(MARKER, REACHED, &all));
    batch.op_of_unit(update(name, b"i", raw));
    batch.run().await.unwrap();
    let mut batch = cont.batch();
    batch.op_of_unit(update(MARKER, REACHED, &before));
    batch.run().await.unwrap();
}

async fn value_of(cont: &Container, unit: Unit, dkey: &[u8], akey: &[u8]) -> Option<Vec<u8>> {
    let want = FetchWant::Single { bytes_max: 4096, inline_bytes_max: 4096 };
    let iods = vec![FetchIod { akey, want }];
    let mut batch = cont.batch();
    batch.op_of_unit(Op::Fetch { unit, dkey, cond: Cond::NONE, iods });
    let result = batch.run().await.unwrap();
    let replies = result.replies().unwrap();
    let OpReply::Fetched(found) = &replies[0] else { panic!("a fetch") };
    match found[0].value {
        Fetched::Inline(raw) => Some(raw.to_vec()),
        _ => None,
    }
}

/// A directory that is half spread is whole by the check; a name that is where nobody looks for it is told, and put where it belongs.
#[test]
fn the_check_counts_names_that_nobody_finds() {
    let world = World::new(8, "S1", "S1");
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let root = fs.root().await.unwrap();
        let dir = fs.mkdir(&root, b"d", 0o755, Some("SX@256".parse().unwrap())).await.unwrap();
        make_all(&fs, &dir, 0..256).await;
        let (is_over, on_the_way) = (Cell::new(false), Cell::new(0));
        // Nobody but engines changes anything while it is checked.
        make_all(&fs, &dir, 256..280).await;
        let grow = async {
            settle(&fs).await;
            is_over.set(true);
        };
        let check = async {
            let other = world.mount_from("checker", Credentials::root()).await;
            let cont = other.container();
            let state = async || {
                cont.learn_spread(dir.oid()).await.unwrap();
                let has_begun = cont.units_in_use(dir.oid()).await.unwrap().len() > 1;
                let last = cont.unit_of_hash(dir.oid(), u64::MAX).unwrap().0;
                (has_begun, last.group > 0)
            };
            while !is_over.get() {
                let (_, was_over) = state().await;
                let report = other.check(Mend::Nothing).await.unwrap();
                assert_eq!(report.findings, []);
                on_the_way.set(on_the_way.get() + (!was_over && state().await.0) as u32);
            }
        };
        futures_util::future::join(grow, check).await;
        assert!(on_the_way.get() > 0, "no name moved while the directory was checked");
        assert_whole(&fs).await;
        // What a defect would leave: an entry in a group that is not its own, of a file that has lost it, and of one that has not.
        let cont = fs.container();
        let units = cont.units(dir.oid()).await.unwrap();
        for (astray, is_lost) in [(b"f7", true), (b"f8", false)] {
            let here = cont.unit_of(dir.oid(), astray).await.unwrap();
            let raw = value_of(cont, here, astray, b"i").await.unwrap();
            if is_lost {
                let dkeys = vec![astray.as_slice().into()];
                let mut batch = cont.batch();
                batch.op_of_unit(Op::PunchDkeys { unit: here, cond: Cond::PUNCH, dkeys });
                batch.run().await.unwrap();
            }
            for elsewhere in units.iter().filter(|unit| **unit != here && unit.group > 0) {
                put_astray(cont, *elsewhere, astray, &raw).await;
            }
        }
        let lost = fs.stat(&dir, b"f7").await.unwrap_err();
        assert_eq!(lost.code, Code::NonExist);
        let report = fs.check(Mend::Nothing).await.unwrap();
        let seen = 279;
        let Problem::Misplaced { stored, .. } = report.findings[0].problem else { panic!("that") };
        assert!(stored > seen);
        assert_eq!(report.findings[0].problem, Problem::Misplaced { stored, seen });
        assert!(!report.is_clean());
        let report = fs.check(Mend::Relink).await.unwrap();
        assert!(report.findings[0].mended, "{:?}", report.findings);
        fs.stat(&dir, b"f7").await.unwrap();
        assert_whole(&fs).await;
        assert_eq!(names_by_unit(&fs, &dir).await.iter().sum::<u64>(), 280);
    });
}
