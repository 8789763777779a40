//! Files with copies in a tier get another class: what is in the tier only stays there, and the copy is known as before.

use super::*;
use crate::harness::with_fs_of;
use dfs::Stat;
use dfs::migrate::{MigrateOptions, Migrated, Migrating};
use futures_util::future::join;
use std::cell::Cell;
use std::time::Duration;

/// From one of these to all others: on one target, on all, with a first part of a chunk or two; of chunks that are larger it is some of one.
const CLASSES: [&str; 4] = ["S1", "SX", "SX+4KiB", "SX+8KiB"];
const BYTES: usize = 10 * CHUNK + 100;
const LARGE_BYTES: usize = 5 * PART + 10;

/// Gives all files at and below an object a class; returns how many got it, and how many bytes were copied.
async fn migrate(fs: &Dfs, top: &Obj, class: &str, wait: Duration) -> (usize, u64) {
    let options = MigrateOptions { class: class.parse().unwrap(), wait, parallel: 3 };
    let (mut done, bytes) = (0, Cell::new(0));
    let tell = |news| match news {
        Migrating::File { outcome: Ok(Migrated::Done), .. } => done += 1,
        Migrating::File { path, outcome: Err(error) } | Migrating::Dir { path, error } => {
            panic!("{}: {error}", String::from_utf8_lossy(&path))
        }
        Migrating::Found { .. } | Migrating::File { outcome: Ok(Migrated::HadIt), .. } => {}
    };
    fs.migrate(top, &options, &|count| bytes.set(bytes.get() + count), tell).await.unwrap();
    (done, bytes.get())
}

async fn open(sys: &Sys, path: &str) -> Obj {
    let flags = OpenFlags::READ_WRITE;
    sys.open(path.as_bytes(), flags, 0, &CreateOptions::default()).await.unwrap()
}

#[test]
fn what_is_cold_stays_cold_in_another_class() {
    with_fs_of(
        &[("S1", "S1"), ("SX", "SX"), ("S1", "SX+4KiB"), ("SX", "SX+8KiB")],
        async |_, fs| {
            let sys = Sys::new(fs.clone());
            let first = format!("{:?}", fs.superblock().file_class);
            for name in ["cold", "warm", "changed", "linked", "large"] {
                let path = format!("/{name}");
                let file = match name {
                    "large" => {
                        let options =
                            CreateOptions { chunk_bytes: PART as u64, ..CreateOptions::default() };
                        let flags = OpenFlags::READ_WRITE | OpenFlags::CREATE;
                        let file = sys.open(path.as_bytes(), flags, 0o644, &options).await.unwrap();
                        fs.write(&file, 0, &noise(4, LARGE_BYTES)).await.unwrap();
                        file
                    }
                    _ => make(&sys, &path, &noise(3, BYTES)).await,
                };
                if name == "warm" {
                    fs.punch(&file, 2 * CHUNK as u64, 3 * CHUNK as u64).await.unwrap();
                }
                if name == "linked" {
                    sys.link(b"/linked", b"/other").await.unwrap();
                }
                let record = copy(&fs, &file, &format!("moved {first} {name}")).await;
                if name != "warm" {
                    assert!(
                        evict(&fs, &file, &record).await >= if name == "large" { 4 } else { 9 }
                    );
                }
                if name == "changed" {
                    // Two chunks come back for that.
                    fs.write(&file, 3 * CHUNK as u64 - 5, b"0123456789").await.unwrap();
                }
            }
            let names = ["/cold", "/warm", "/changed", "/large", "/linked", "/other"];
            let mut expected = Vec::new();
            for name in names {
                let file = open(&sys, name).await;
                let record = fs.tier_record(&file).await.unwrap().unwrap();
                let stat = fs.ostat(&file).await.unwrap();
                let stubs = fs.tier_survey(&file).await.unwrap().stub_count();
                let told = state(&fs, &file).await;
                expected.push((record, stat, stubs, told));
            }
            let mut data = vec![noise(3, BYTES); 6];
            data[3] = noise(4, LARGE_BYTES);
            data[1][2 * CHUNK..5 * CHUNK].fill(0);
            data[2][3 * CHUNK - 5..3 * CHUNK + 5].copy_from_slice(b"0123456789");
            let told = expected.iter().map(|(_, _, _, told)| &told[..]).collect::<Vec<_>>();
            assert_eq!(told, ["cloud", "both", "dirty", "cloud", "cloud", "cloud"]);
            let root = fs.root().await.unwrap();
            for class in CLASSES.iter().cycle().skip(1).take(5) {
                let oid = fs.stat(&root, b"cold").await.unwrap().oid;
                let had_it = oid.class().unwrap().to_string() == *class;
                let (done, bytes) = migrate(&fs, &root, class, Duration::from_secs(2)).await;
                assert_eq!(done, if had_it { 0 } else { 5 }, "{class}");
                if had_it {
                    continue;
                }
                // What is in the pool, and the chunk of a large file that is in two units now.
                let warm = |(_, stat, stubs, _): &(TierRecord, Stat, usize, String)| {
                    stat.size - *stubs as u64 * stat.chunk_bytes
                };
                let warm: u64 = expected.iter().take(5).map(warm).sum();
                assert!(bytes <= warm + PART as u64, "{class}: {bytes} of {warm}");
                for ((name, before), data) in names.iter().zip(&mut expected).zip(&data) {
                    let (record, stat, stubs, told) = before;
                    let file = open(&sys, name).await;
                    assert_eq!(file.oid().class().unwrap().to_string(), *class);
                    assert_ne!(file.oid(), record.oid);
                    let now = fs.tier_record(&file).await.unwrap().unwrap();
                    assert_eq!(now.manifest, record.manifest);
                    assert_eq!((now.oid, now.version), (file.oid(), record.version));
                    let survey = fs.tier_survey(&file).await.unwrap();
                    let left = *stubs - survey.stub_count();
                    assert!(
                        left <= usize::from(*name == "/large"),
                        "{class}, {name}: {left} came back"
                    );
                    *stubs = survey.stub_count();
                    assert_eq!(state(&fs, &file).await, *told, "{class}, {name}");
                    let there = fs.ostat(&file).await.unwrap();
                    assert_eq!((there.size, there.mtime_ns), (stat.size, stat.mtime_ns));
                    // By who may not bring anything back: nothing of it is.
                    let cont = fs.container();
                    let shown =
                        Dfs::mount(cont, MountFlags::READ_ONLY, Credentials::root()).await.unwrap();
                    let there = Sys::new(shown.clone());
                    let options = CreateOptions::default();
                    let same = there.open(name.as_bytes(), OpenFlags::READ, 0, &options);
                    let same = same.await.unwrap();
                    assert!(all(&shown, &same).await == *data, "{class}, {name}");
                }
            }
            // The copy can be gone on with: brought back, given up again, taken anew.
            for (name, data) in names.iter().zip(&data) {
                let file = open(&sys, name).await;
                let record = fs.tier_record(&file).await.unwrap().unwrap();
                fs.tier_fetch(&file, &|_| {}).await.unwrap();
                assert!(all(&fs, &file).await == *data, "{name}");
                let is_dirty = *name == "/changed";
                assert_eq!(state(&fs, &file).await, if is_dirty { "dirty" } else { "both" });
                let record = match is_dirty {
                    true => copy(&fs, &file, &format!("again {first}")).await,
                    false => record,
                };
                assert!(evict(&fs, &file, &record).await >= 4, "{name}");
                assert_eq!(state(&fs, &file).await, "cloud");
                assert!(all(&fs, &file).await == *data, "{name}");
            }
        },
    );
}

/// Where a chunk goes on beyond the first part its rest has a place of its own, which may be the same unit: then it is one chunk, and can be a stub. Such files
/// could not get another class ("the file is being changed", for ever), and nobody could make a hole of the chunk.
#[test]
fn a_chunk_beyond_a_first_part_may_be_in_one_unit() {
    with_fs_of(&[("SX", "SX+4KiB"), ("S1", "SX+8KiB")], async |_, fs| {
        let sys = Sys::new(fs.clone());
        let options = CreateOptions { chunk_bytes: PART as u64, ..CreateOptions::default() };
        let flags = OpenFlags::READ_WRITE | OpenFlags::CREATE;
        let mut in_one_unit = 0;
        let names: Vec<String> = (0..12).map(|n| format!("/{n}")).collect();
        for name in &names {
            let file = sys.open(name.as_bytes(), flags, 0o644, &options).await.unwrap();
            fs.write(&file, 0, &noise(4, LARGE_BYTES)).await.unwrap();
            let record = copy(&fs, &file, &format!("in one unit {name}")).await;
            evict(&fs, &file, &record).await;
            let is_stub = fs.tier_survey(&file).await.unwrap().stub_count() == LARGE_BYTES / PART;
            in_one_unit += usize::from(is_stub);
        }
        assert!((1..names.len()).contains(&in_one_unit), "{in_one_unit}");
        let mut data = noise(4, LARGE_BYTES);
        for name in &names[..6] {
            let file = open(&sys, name).await;
            fs.punch_hole(&file, 0, PART as u64).await.unwrap();
            assert_eq!(fs.ostat(&file).await.unwrap().size, LARGE_BYTES as u64);
        }
        let root = fs.root().await.unwrap();
        for class in ["SX", "SX+4KiB", "S1"] {
            let (done, _) = migrate(&fs, &root, class, Duration::from_secs(2)).await;
            let had_it = fs.superblock().file_class.to_string() == class;
            assert!(done == names.len() || had_it, "{class}: {done}");
        }
        for name in names.iter().rev() {
            if name == "/5" {
                data[..PART].fill(0);
            }
            let file = open(&sys, name).await;
            assert_eq!(file.oid().class().unwrap().to_string(), "S1");
            assert!(all(&fs, &file).await == data, "{name}");
        }
    });
}

/// Data come and go and change while the class changes again and again: each time the bytes are those that were written, and what the record says the copy has it
/// has.
#[test]
fn a_mover_and_a_migration_do_not_mistake_each_other() {
    for seed in sim::seeds(3) {
        let world = World::new(seed, "SX", "SX+4KiB");
        world.cluster.block_on(async {
            let fs = world.mount(Credentials::root()).await;
            let other = world.mount_from("other", Credentials::root()).await;
            let sys = Sys::new(fs.clone());
            // Every other time in chunks that may be on two units, or in one as two pieces.
            let chunk_bytes = [CHUNK, PART][seed as usize % 2] as u64;
            let options = CreateOptions { chunk_bytes, ..CreateOptions::default() };
            let flags = OpenFlags::READ_WRITE | OpenFlags::CREATE;
            let file = sys.open(b"/f", flags, 0o644, &options).await.unwrap();
            fs.write(&file, 0, &noise(seed as u8, BYTES)).await.unwrap();
            drop(file);
            let is_over = Cell::new(false);
            let moving = async {
                let root = other.root().await.unwrap();
                let env = other.container().client().env().clone();
                let mut count = 0;
                while !is_over.get() {
                    let class = CLASSES[env.random_u64() as usize % CLASSES.len()];
                    let options = MigrateOptions {
                        class: class.parse().unwrap(),
                        wait: Duration::from_millis(300),
                        parallel: 1,
                    };
                    let tell = |news| match news {
                        Migrating::File { outcome: Ok(Migrated::Done), .. } => count += 1,
                        Migrating::File { outcome: Err(error), .. } => {
                            assert_eq!(error.code, Code::Busy, "{error}");
                        }
                        _ => {}
                    };
                    other.migrate(&root, &options, &|_| (), tell).await.unwrap();
                    env.sleep(Duration::from_micros(env.random_u64() % 3_000)).await;
                }
                count
            };
            let using = async {
                let env = fs.container().client().env().clone();
                let mut data = noise(seed as u8, BYTES);
                for round in 0..60u8 {
                    let key = format!("mover {seed} {round}");
                    match env.random_u64() % 4 {
                        0 => {
                            let file = open(&sys, "/f").await;
                            let at = env.random_u64() as usize % (BYTES - 5_000);
                            let some = noise(round, 5_000);
                            fs.write(&file, at as u64, &some).await.unwrap();
                            data[at..at + 5_000].copy_from_slice(&some);
                        }
                        1 => {
                            let file = open(&sys, "/f").await;
                            fs.tier_fetch(&file, &|_| {}).await.unwrap();
                        }
                        _ => {
                            let file = open(&sys, "/f").await;
                            let record = copy(&fs, &file, &key).await;
                            drop(file);
                            fs.sync();
                            // Without a handle, as somebody who was cut off: what is given up and what was copied must fit.
                            env.sleep(Duration::from_micros(env.random_u64() % 30_000)).await;
                            let file = sys.lookup(b"/f", false).await.unwrap();
                            // By now the name may lead to another object.
                            if let Some(now) = fs.tier_record(&file).await.unwrap() {
                                assert_eq!(now.manifest, record.manifest);
                                drop(try_evict(&fs, &file, &now).await);
                            }
                        }
                    }
                    fs.sync();
                    env.sleep(Duration::from_micros(env.random_u64() % 60_000)).await;
                    let file = open(&sys, "/f").await;
                    assert!(all(&fs, &file).await == data, "seed {seed}, round {round}");
                    let record = fs.tier_record(&file).await.unwrap();
                    if let Some(record) = record {
                        let survey = fs.tier_survey(&file).await.unwrap();
                        let copies = COPIES.lock().unwrap();
                        let copied = &copies.as_ref().unwrap()[&record.manifest];
                        for chunk in
                            (0..survey.chunks.len()).filter(|c| survey.is_clean(&record, *c))
                        {
                            let bytes = chunk_bytes as usize;
                            let range = chunk * bytes..((chunk + 1) * bytes).min(BYTES);
                            assert!(copied[range.clone()] == data[range], "seed {seed}, {round}");
                        }
                    }
                }
                is_over.set(true);
            };
            let (count, ()) = join(moving, using).await;
            assert!(count > 5, "seed {seed}: {count} migrations");
        });
    }
}
