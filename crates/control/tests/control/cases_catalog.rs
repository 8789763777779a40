//! The embedded catalog: its contract, its file, and crashes at every write to it.

use control::{Catalog, Change, Compare, EmbeddedCatalog, Revision};
use futures_executor::block_on;
use redb::{StorageBackend, backends::InMemoryBackend};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use types::Code;

fn put(key: &str, value: &str) -> Change {
    Change::Put(key.into(), value.as_bytes().to_vec())
}

fn contents(catalog: &EmbeddedCatalog) -> BTreeMap<String, String> {
    let entries = block_on(catalog.list("")).unwrap();
    entries
        .into_iter()
        .map(|(key, stored)| (key, String::from_utf8(stored.bytes).unwrap()))
        .collect()
}

fn commit(catalog: &EmbeddedCatalog, compares: &[Compare], changes: &[Change]) -> bool {
    block_on(catalog.commit(compares, changes)).unwrap()
}

#[test]
fn commits_compare_and_change_all_or_nothing() {
    let catalog = EmbeddedCatalog::in_memory().unwrap();
    let absent = |key: &str| Compare { key: key.into(), revision: Revision::ABSENT };
    assert_eq!(block_on(catalog.get("a")).unwrap(), None);
    assert!(commit(&catalog, &[absent("a")], &[put("a", "1"), put("b", "1")]));
    assert!(!commit(&catalog, &[absent("a")], &[put("a", "2"), put("c", "2")]));
    let a = block_on(catalog.get("a")).unwrap().unwrap();
    assert_eq!(a.bytes, b"1");
    let held = Compare { key: "a".into(), revision: a.revision };
    assert!(!commit(&catalog, &[held.clone(), absent("b")], &[put("a", "3")]));
    assert!(commit(&catalog, std::slice::from_ref(&held), &[put("a", "4")]));
    assert!(!commit(&catalog, &[held], &[put("a", "5")]));
    let newer = block_on(catalog.get("a")).unwrap().unwrap();
    assert!(newer.revision > a.revision);
    // A key that went and came back is not the one that was read.
    assert!(commit(&catalog, &[], &[Change::Delete("a".into()), Change::Delete("none".into())]));
    assert!(commit(&catalog, &[absent("a")], &[put("a", "4")]));
    let held = Compare { key: "a".into(), revision: newer.revision };
    assert!(!commit(&catalog, &[held], &[put("a", "6")]));
    assert_eq!(contents(&catalog), BTreeMap::from([("a", "4"), ("b", "1")].map(owned)));
}

fn owned((key, value): (&str, &str)) -> (String, String) {
    (key.to_string(), value.to_string())
}

#[test]
fn lists_hold_what_begins_with_the_prefix_in_order() {
    let catalog = EmbeddedCatalog::in_memory().unwrap();
    let keys = ["p/2", "p", "p/", "p/1", "p0", "o/9", "p/\u{10ffff}"];
    for key in keys {
        assert!(commit(&catalog, &[], &[put(key, key)]));
    }
    let listed = block_on(catalog.list("p/")).unwrap();
    let listed: Vec<&str> = listed.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(listed, ["p/", "p/1", "p/2", "p/\u{10ffff}"]);
    assert_eq!(block_on(catalog.list("")).unwrap().len(), keys.len());
    assert!(block_on(catalog.list("zz")).unwrap().is_empty());
}

#[test]
fn a_file_is_reopened_as_it_was_and_by_one_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.redb");
    let catalog = EmbeddedCatalog::open(&path).unwrap();
    assert!(commit(&catalog, &[], &[put("k", "v")]));
    let revision = block_on(catalog.get("k")).unwrap().unwrap().revision;

    let error = EmbeddedCatalog::open(&path).unwrap_err();
    assert_eq!(error.code, Code::Busy);
    assert!(error.text.contains("another engine"), "{error}");
    assert!(commit(&catalog, &[], &[put("l", "w")]), "a refused opener does no harm");

    // The power fails: the file as it is now, without a close.
    let torn = directory.path().join("torn.redb");
    std::fs::copy(&path, &torn).unwrap();
    drop(catalog);
    for path in [&path, &torn] {
        let catalog = EmbeddedCatalog::open(path).unwrap();
        assert_eq!(contents(&catalog), BTreeMap::from([("k", "v"), ("l", "w")].map(owned)));
        assert_eq!(block_on(catalog.get("k")).unwrap().unwrap().revision, revision);
        assert!(commit(&catalog, &[], &[put("k", "x")]));
        assert!(block_on(catalog.get("k")).unwrap().unwrap().revision > revision);
    }
}

#[test]
fn newer_formats_and_foreign_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.redb");
    {
        let database = redb::Database::create(&path).unwrap();
        let write = database.begin_write().unwrap();
        let table = redb::TableDefinition::<&str, u64>::new("meta");
        write.open_table(table).unwrap().insert("format", 2).unwrap();
        write.commit().unwrap();
    }
    let error = EmbeddedCatalog::open(&path).unwrap_err();
    assert_eq!(error.code, Code::Version);
    assert!(error.text.contains("format 2"), "{error}");
    let foreign = directory.path().join("foreign");
    std::fs::write(&foreign, vec![7; 100_000]).unwrap();
    assert_eq!(EmbeddedCatalog::open(&foreign).unwrap_err().code, Code::Io);
    let nowhere = directory.path().join("no/such/directory");
    assert_eq!(EmbeddedCatalog::open(&nowhere).unwrap_err().code, Code::Io);
}

/// A disk that dies at a given write, sync or change of length. What was written since the last
/// sync survives in part: each write by the toss of a coin.
#[derive(Clone, Debug)]
struct MortalDisk {
    disk: Arc<Mutex<Disk>>,
    calls_left: Arc<AtomicU64>,
    seed: u64,
}

#[derive(Debug, Default)]
struct Disk {
    synced: Vec<u8>,
    current: Vec<u8>,
    unsynced: Vec<(usize, Vec<u8>)>,
}

impl MortalDisk {
    fn new(calls_left: u64, seed: u64) -> MortalDisk {
        MortalDisk { disk: Arc::default(), calls_left: Arc::new(AtomicU64::new(calls_left)), seed }
    }

    fn live(&self) -> io::Result<()> {
        let left = self.calls_left.load(Ordering::Relaxed);
        if left == 0 {
            return Err(io::Error::other("the disk is dead"));
        }
        self.calls_left.store(left - 1, Ordering::Relaxed);
        Ok(())
    }

    /// What is found after the crash.
    fn remains(&self) -> Vec<u8> {
        let disk = self.disk.lock().unwrap();
        let mut found = disk.synced.clone();
        for (at, (offset, data)) in disk.unsynced.iter().enumerate() {
            if types::hash::mix2(self.seed, at as u64) & 1 == 0 {
                let end = offset + data.len();
                if found.len() < end {
                    found.resize(end, 0);
                }
                found[*offset..end].copy_from_slice(data);
            }
        }
        found
    }
}

impl StorageBackend for MortalDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.lock().unwrap().current.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let disk = self.disk.lock().unwrap();
        let from = offset as usize;
        let data = disk.current.get(from..from + out.len());
        out.copy_from_slice(data.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.live()?;
        let mut disk = self.disk.lock().unwrap();
        disk.current.resize(len as usize, 0);
        // A length is metadata and kept in order by the file system.
        disk.synced.resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.live()?;
        let mut disk = self.disk.lock().unwrap();
        disk.synced = disk.current.clone();
        disk.unsynced.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.live()?;
        let mut disk = self.disk.lock().unwrap();
        let from = offset as usize;
        disk.current[from..from + data.len()].copy_from_slice(data);
        disk.unsynced.push((from, data.to_vec()));
        Ok(())
    }
}

#[test]
fn a_crash_at_any_write_leaves_a_whole_number_of_commits() {
    // Each commit rewrites three keys together; they must never be seen apart, and a commit that
    // was acknowledged must be there.
    const COMMITS: u64 = 6;
    let mut crashes = 0;
    for calls in 1.. {
        let disk = MortalDisk::new(calls, calls);
        let mut acknowledged = 0;
        let mut attempted = 0;
        let opened = EmbeddedCatalog::on_backend(disk.clone());
        if let Ok(catalog) = &opened {
            for number in 1..=COMMITS {
                attempted = number;
                let value = number.to_string().repeat(700);
                let changes = ["x", "y", "z"].map(|key| put(key, &value));
                match block_on(catalog.commit(&[], &changes)) {
                    Ok(done) => assert!(done),
                    Err(error) => {
                        assert_eq!(error.code, Code::Io);
                        break;
                    }
                }
                acknowledged = number;
            }
        }
        let survived_all = acknowledged == COMMITS;
        let had_opened = opened.is_ok();
        // The bytes are taken before the close, which would tidy up.
        let remains = disk.remains();
        disk.calls_left.store(0, Ordering::Relaxed);
        drop(opened);

        let found = InMemoryBackend::new();
        found.set_len(remains.len() as u64).unwrap();
        found.write(0, &remains).unwrap();
        let reopened = EmbeddedCatalog::on_backend(found);
        match reopened {
            Ok(catalog) => {
                let held = contents(&catalog);
                let first = held.get("x").map_or(0, |value| value[..1].parse().unwrap());
                for key in ["x", "y", "z"] {
                    let value = held.get(key).cloned().unwrap_or_default();
                    let whole =
                        if first == 0 { String::new() } else { first.to_string().repeat(700) };
                    assert_eq!(value, whole, "{calls} calls");
                }
                assert!((acknowledged..=attempted).contains(&first), "{calls} calls: {first}");
            }
            // A file whose very making was cut off was never promised to anybody.
            Err(error) => assert!(!had_opened, "{calls} calls: {error}"),
        }
        crashes += 1;
        if survived_all {
            break;
        }
    }
    assert!(crashes > 20, "only {crashes} crashes");
}
