//! Progressive files: one request while they are small, all targets when they are large, and nobody who misses what another
//! client has written, whatever becomes of names.

use crate::harness::World;
use dfs::check::{Mend, Problem};
use dfs::{Code, CreateOptions, Credentials, Dfs, DirAnchor, Obj, OpenFlags, RenameFlags};
use std::time::Duration;
use types::Oid;
use wire::obj::{ARRAY_RECORD, BEYOND, Cond, Op};

const RW: OpenFlags = OpenFlags::READ_WRITE;
/// Of the first part, and of a chunk.
const FIRST: u64 = 4096;

fn world(seed: u64) -> World {
    World::new(seed, "S1", "SX+4KiB")
}

async fn make(fs: &Dfs, dir: &Obj, name: &[u8]) -> Obj {
    let flags = RW | OpenFlags::CREATE | OpenFlags::EXCL;
    fs.open(dir, name, flags, 0o644, &CreateOptions::default()).await.unwrap()
}

async fn open(fs: &Dfs, dir: &Obj, name: &[u8]) -> Obj {
    fs.open(dir, name, RW, 0, &CreateOptions::default()).await.unwrap()
}

fn data(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|i| (i % 251) as u8 | 1).collect()
}

/// Units of files that the targets hold.
async fn units_of_files(fs: &Dfs) -> Vec<(Oid, u32)> {
    let cont = fs.container();
    let mut units = Vec::new();
    for target in cont.listers() {
        for unit in cont.list_objects(target, None, 4096).await.unwrap().units {
            if unit.object.first_part_bytes().is_some() {
                units.push((unit.object, unit.group));
            }
        }
    }
    units.sort_unstable();
    units
}

/// Waits until engines have freed what is to be freed.
async fn settle(fs: &Dfs) {
    fs.sync();
    fs.container().client().env().sleep(Duration::from_secs(5)).await;
}

async fn assert_whole(fs: &Dfs) {
    let report = fs.check(Mend::Nothing).await.unwrap();
    assert_eq!((report.findings, report.waiting_count), (vec![], 0));
}

#[test]
fn a_small_file_is_one_request_a_call() {
    let world = world(1);
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let root = fs.root().await.unwrap();
        drop(make(&fs, &root, b"warm").await);
        let client = fs.container().client();
        let asked = std::cell::Cell::new(client.request_count());
        let one = |what: &str| {
            let now = client.request_count();
            assert_eq!(now - asked.replace(now), 1, "{what}");
        };
        let file = make(&fs, &root, b"f").await;
        one("create");
        fs.write(&file, 0, &data(FIRST)).await.unwrap();
        one("write");
        let mut room = vec![0; 9000];
        assert_eq!(fs.read_to_end(&file, 0, &mut room).await.unwrap(), 4096);
        one("read to the end");
        assert_eq!(fs.ostat(&file).await.unwrap().size, FIRST);
        one("fstat");
        drop(file);
        assert_eq!(fs.stat(&root, b"f").await.unwrap().size, FIRST);
        one("stat");
        let mut anchor = DirAnchor::start();
        let listed = fs.readdirplus(&root, &mut anchor, 100).await.unwrap();
        assert_eq!(listed.iter().map(|(_, stat)| stat.size).sum::<u64>(), FIRST);
        one("list");
        let file = open(&fs, &root, b"f").await;
        one("open");
        drop(file);
        fs.unlink(&root, b"f").await.unwrap();
        one("unlink");
        settle(&fs).await;
        assert_eq!(units_of_files(&fs).await, []);
    });
}

/// What one client writes beyond the first part is seen by one that had the file open when it was small, and the
/// other way round after the name has changed: the mark is with the object, wherever its name is.
#[test]
fn nobody_misses_what_was_written_beyond() {
    let world = world(2);
    world.cluster.block_on(async {
        let a = world.mount(Credentials::root()).await;
        let b = world.mount_from("b", Credentials::root()).await;
        let (root_a, root_b) = (a.root().await.unwrap(), b.root().await.unwrap());
        let dir = a.mkdir(&root_a, b"d", 0o755, None).await.unwrap();
        let of_a = make(&a, &root_a, b"f").await;
        a.write(&of_a, 0, b"small").await.unwrap();
        let of_b = open(&b, &root_b, b"f").await;
        assert_eq!(b.size(&of_b).await.unwrap(), 5);
        let body = data(9000);
        a.write(&of_a, 6000, &body).await.unwrap();
        assert_eq!(b.size(&of_b).await.unwrap(), 15_000);
        assert_eq!(b.stat(&root_b, b"f").await.unwrap().size, 15_000);
        let mut back = vec![0; 20_000];
        assert_eq!(b.read(&of_b, 0, &mut back).await.unwrap(), 15_000);
        assert!(back[..5] == *b"small" && back[5..6000].iter().all(|b| *b == 0));
        assert!(back[6000..15_000] == body[..]);

        // A small file that another client renames under one who then makes it large.
        let of_b = make(&b, &root_b, b"g").await;
        b.write(&of_b, 0, b"g").await.unwrap();
        a.rename(&root_a, b"g", &dir, b"moved", RenameFlags::NONE).await.unwrap();
        b.write(&of_b, FIRST - 1, b"across").await.unwrap();
        assert_eq!(a.stat(&dir, b"moved").await.unwrap().size, FIRST + 5);
        a.link(&dir, b"moved", &root_a, b"second").await.unwrap();
        assert_eq!(a.stat(&root_a, b"second").await.unwrap().size, FIRST + 5);
        // Of a file that has had two names, too.
        a.unlink(&dir, b"moved").await.unwrap();
        b.append(&of_b, &[&body]).await.unwrap();
        assert_eq!(a.stat(&root_a, b"second").await.unwrap().size, FIRST + 5 + 9000);
        drop((of_a, of_b));
        settle(&b).await;
        assert_whole(&a).await;
    });
}

#[test]
fn all_of_a_large_file_is_freed() {
    let world = world(3);
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let root = fs.root().await.unwrap();
        let body = data(40_000);
        for name in [&b"gone"[..], b"open", b"over", b"cut"] {
            let file = make(&fs, &root, name).await;
            fs.write(&file, 0, &body).await.unwrap();
        }
        assert_eq!(units_of_files(&fs).await.len(), 4 * 3, "each is on all three targets");
        fs.unlink(&root, b"gone").await.unwrap();
        let small = make(&fs, &root, b"small").await;
        fs.write(&small, 0, b"s").await.unwrap();
        fs.rename(&root, b"small", &root, b"over", RenameFlags::NONE).await.unwrap();
        let cut = open(&fs, &root, b"cut").await;
        fs.truncate(&cut, 100).await.unwrap();
        assert_eq!(fs.stat(&root, b"cut").await.unwrap().size, 100);
        // Small again, and large again.
        fs.write(&cut, 20_000, b"x").await.unwrap();
        assert_eq!(fs.stat(&root, b"cut").await.unwrap().size, 20_001);
        let mut room = vec![7; 30_000];
        assert_eq!(fs.read(&cut, 0, &mut room).await.unwrap(), 20_001);
        assert!(room[..100] == body[..100] && room[100..20_000].iter().all(|b| *b == 0));
        fs.truncate(&cut, 0).await.unwrap();
        let held = open(&fs, &root, b"open").await;
        fs.unlink(&root, b"open").await.unwrap();
        settle(&fs).await;
        assert_eq!(
            units_of_files(&fs).await.iter().filter(|(oid, _)| *oid == held.oid()).count(),
            3
        );
        let mut back = vec![0; 40_000];
        assert_eq!(fs.read(&held, 0, &mut back).await.unwrap(), 40_000);
        assert!(back == body);
        // Small while it has a name, large without one.
        let nameless = make(&fs, &root, b"nameless").await;
        fs.unlink(&root, b"nameless").await.unwrap();
        fs.write(&nameless, 0, &body).await.unwrap();
        let (held, nameless) = ([held.oid(), nameless.oid()], (held, nameless));
        drop(nameless);
        settle(&fs).await;
        let left = units_of_files(&fs).await;
        assert!(left.iter().all(|(oid, group)| !held.contains(oid) && *group == 0), "{left:?}");
        assert_whole(&fs).await;
    });
}

/// A client that dies between the mark and the data leaves a file that is asked about everywhere, and nothing else; one that
/// lost its mark (its target was made anew, or rolled back under a writer) is found by the checker.
#[test]
fn marks_without_data_do_no_harm_and_data_without_mark_are_found() {
    let world = world(4);
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let root = fs.root().await.unwrap();
        let file = make(&fs, &root, b"marked").await;
        fs.write(&file, 0, b"1234").await.unwrap();
        let array = client::ArrayObj {
            cont: fs.container().clone(),
            oid: file.oid(),
            record_bytes: 1,
            chunk_records: FIRST,
        };
        array.mark().await.unwrap();
        array.mark().await.unwrap();
        drop(file);
        assert_eq!(fs.stat(&root, b"marked").await.unwrap().size, 4);
        fs.unlink(&root, b"marked").await.unwrap();
        settle(&fs).await;
        assert_eq!(units_of_files(&fs).await, []);

        let file = make(&fs, &root, b"lost").await;
        let mut body = data(40_000);
        fs.write(&file, 0, &body).await.unwrap();
        let mut batch = fs.container().batch();
        let (unit, dkey, cond) = (file.oid().first_unit(), &ARRAY_RECORD, Cond::NONE);
        let akeys = vec![BEYOND.into()];
        batch.op_of_unit(Op::PunchAkeys { unit, dkey, cond, akeys });
        batch.run().await.unwrap();
        let other = world.mount_from("other", Credentials::root()).await;
        let root = other.root().await.unwrap();
        if other.stat(&root, b"lost").await.unwrap().size == 40_000 {
            // The last chunk has come to lie in the file's home, as one of several does: one more.
            body.extend(data(8_000));
            fs.write(&file, 40_000, &body[40_000..]).await.unwrap();
        }
        let bytes = body.len() as u64;
        drop(file);
        assert!(other.stat(&root, b"lost").await.unwrap().size < bytes);
        let found = other.check(Mend::Nothing).await.unwrap().findings;
        assert_eq!(found.len(), 1);
        assert_eq!((&found[0].problem, &found[0].path[..]), (&Problem::Hidden, &b"/lost"[..]));
        assert!(other.check(Mend::Remove).await.unwrap().is_clean());
        assert_whole(&other).await;
        assert_eq!(other.stat(&root, b"lost").await.unwrap().size, bytes);
        let file = open(&other, &root, b"lost").await;
        let mut back = vec![0; body.len()];
        assert_eq!(other.read(&file, 0, &mut back).await.unwrap(), body.len());
        assert!(back == body);
    });
}

#[test]
fn snapshots_show_files_as_large_as_they_were() {
    let world = world(5);
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let root = fs.root().await.unwrap();
        let file = make(&fs, &root, b"f").await;
        fs.write(&file, 0, b"then").await.unwrap();
        let (pool, name) = (world.cont.pool(), world.cont.name());
        let small = pool.snap_create(&name, "small").await.unwrap().epoch;
        fs.write(&file, 0, &data(30_000)).await.unwrap();
        let large = pool.snap_create(&name, "large").await.unwrap().epoch;
        fs.truncate(&file, 2).await.unwrap();
        fs.unlink(&root, b"f").await.unwrap();
        drop(file);
        for (epoch, size) in [(small, 4), (large, 30_000)] {
            let cont = world.cont.at_epoch(epoch);
            let then = Dfs::mount(&cont, dfs::MountFlags::NONE, Credentials::root()).await.unwrap();
            let root = then.root().await.unwrap();
            assert_eq!(then.stat(&root, b"f").await.unwrap().size, size);
            let options = CreateOptions::default();
            let file = then.open(&root, b"f", OpenFlags::READ, 0, &options).await.unwrap();
            let mut room = vec![0; 50_000];
            assert_eq!(then.read(&file, 0, &mut room).await.unwrap() as u64, size);
        }
    });
}

/// Two large files in one directory ended with "no space" when the target of the directory was full, and all others were
/// empty.
#[test]
fn a_full_target_does_not_stop_large_files_while_others_have_room() {
    let fill = |class: &str| {
        let world = World::new(6, "S1", class);
        world.cluster.block_on(async {
            let fs = world.mount(Credentials::root()).await;
            let root = fs.root().await.unwrap();
            let block = vec![5; 8 << 20];
            let options = CreateOptions { chunk_bytes: 1 << 20, ..CreateOptions::default() };
            let (mut written, mut files) = (0u64, Vec::new());
            let space = fs.statfs().await.unwrap();
            for name in [&b"one"[..], b"two"] {
                let flags = RW | OpenFlags::CREATE;
                let file = fs.open(&root, name, flags, 0o644, &options).await.unwrap();
                for at in 0..35u64 {
                    match fs.write(&file, at * block.len() as u64, &block).await {
                        Err(error) if error.code == Code::NoSpace => return (written, space),
                        other => written += other.unwrap() as u64,
                    }
                }
                files.push(file);
            }
            (written, space)
        })
    };
    let wanted = 2 * 35 * (8 << 20);
    let (written, space) = fill("SX+1MiB");
    assert_eq!(written, wanted);
    assert!(wanted < space.available_bytes);
    let (written, _) = fill("S1");
    assert!(written < wanted, "the pool is too large for this test: {space:?}");
}

/// Files larger than their first part take as much of each target, whatever directory they are in.
#[test]
fn what_is_beyond_lies_evenly() {
    let world = world(7);
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let root = fs.root().await.unwrap();
        for number in 0..60 {
            let file = make(&fs, &root, format!("f{number}").as_bytes()).await;
            fs.write(&file, 0, &data(8192)).await.unwrap();
        }
        // The second chunk of each is on one target; file after file it goes round.
        let mut second = [0; 3];
        for (oid, _) in units_of_files(&fs).await.iter().filter(|(_, group)| *group == 0) {
            let layout = fs.container().layout(*oid).unwrap();
            let group = layout.group_of(*oid, &2u64.to_le_bytes());
            let target = layout.members(group)[0];
            second[target.0 as usize % 3] += 1;
        }
        assert!(second.iter().all(|count| (18..=22).contains(count)), "{second:?}");
    });
}
