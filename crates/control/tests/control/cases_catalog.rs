//! The embedded catalog: the contract of all, its files, crashes at every write to them, any bit of them
//! flipped.

use crate::contract::{self, Place};
use control::{Catalog, CatalogFiles, Change, Compare, EmbeddedCatalog};
use futures_executor::block_on;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
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

fn owned((key, value): (&str, &str)) -> (String, String) {
    (key.to_string(), value.to_string())
}

#[test]
fn files_and_memory_hold_the_contract() {
    struct Files(tempfile::TempDir);
    impl Place for Files {
        fn open(&self, _: u32) -> types::Result<Box<dyn Catalog>> {
            Ok(Box::new(EmbeddedCatalog::open(&self.0.path().join("catalog"))?))
        }
    }
    contract::check(|| Box::new(Files(tempfile::tempdir().unwrap())));

    // What simulations use: two files that another opener finds as they are.
    struct Simulated(MortalDisk);
    impl Place for Simulated {
        fn open(&self, _: u32) -> types::Result<Box<dyn Catalog>> {
            Ok(Box::new(EmbeddedCatalog::on_files(Box::new(self.0.clone()))?))
        }
        fn has_one_writer(&self) -> bool {
            false
        }
    }
    contract::check(|| Box::new(Simulated(MortalDisk::new(u64::MAX, 1))));
}

fn copies_of(path: &Path) -> [PathBuf; 2] {
    [path.with_extension("0"), path.with_extension("1")]
}

#[test]
fn a_file_is_reopened_as_it_was_and_by_one_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog");
    let catalog = EmbeddedCatalog::open(&path).unwrap();
    assert!(commit(&catalog, &[], &[put("k", "v")]));
    let revision = block_on(catalog.get("k")).unwrap().unwrap().revision;

    let error = EmbeddedCatalog::open(&path).unwrap_err();
    assert_eq!(error.code, Code::Busy);
    assert!(error.text.contains("another engine"), "{error}");
    assert!(commit(&catalog, &[], &[put("l", "w")]), "a refused opener does no harm");
    // Others may not read what may be said in attributes.
    for file in copies_of(&path) {
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }

    // The power fails: the files as they are now, without a close.
    let torn = directory.path().join("torn");
    for (from, to) in copies_of(&path).iter().zip(copies_of(&torn)) {
        std::fs::copy(from, to).unwrap();
    }
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
fn older_formats_and_foreign_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("older");
    std::fs::write(path.with_extension("redb"), b"redb").unwrap();
    let error = EmbeddedCatalog::open(&path).unwrap_err();
    assert_eq!(error.code, Code::Version);
    assert!(error.text.contains("earlier release"), "{error}");
    let foreign = directory.path().join("foreign");
    std::fs::write(foreign.with_extension("0"), vec![7; 100_000]).unwrap();
    assert_eq!(EmbeddedCatalog::open(&foreign).unwrap_err().code, Code::Csum);
    let nowhere = directory.path().join("no/such/directory");
    assert_eq!(EmbeddedCatalog::open(&nowhere).unwrap_err().code, Code::Io);
}

#[test]
fn files_stay_in_proportion_to_what_they_hold() {
    let disk = MortalDisk::new(u64::MAX, 1);
    let catalog = EmbeddedCatalog::on_files(Box::new(disk.clone())).unwrap();
    for number in 0..2000 {
        assert!(commit(&catalog, &[], &[put("key", &number.to_string().repeat(300))]));
    }
    let bytes = disk.remains().map(|file| file.unwrap().len());
    assert!(bytes.iter().all(|bytes| *bytes < 500_000), "{bytes:?}");
    drop(catalog);
    let catalog = EmbeddedCatalog::on_files(Box::new(disk)).unwrap();
    assert_eq!(contents(&catalog)["key"], "1999".repeat(300));
}

#[test]
fn a_full_disk_refuses_what_is_large_and_loses_nothing() {
    let disk = MortalDisk::new(u64::MAX, 1);
    let catalog = EmbeddedCatalog::on_files(Box::new(disk.clone())).unwrap();
    assert!(commit(&catalog, &[], &[put("pool", "there")]));
    disk.full.set(true);
    let large = [put("large", &"x".repeat(1 << 20))];
    assert_eq!(block_on(catalog.commit(&[], &large)).unwrap_err().code, Code::NoSpace);
    // What makes room is small, and there is room for it.
    for number in 0..3000 {
        assert!(commit(&catalog, &[], &[put("stage", &number.to_string())]));
    }
    assert!(commit(&catalog, &[], &[Change::Delete("pool".into())]));
    drop(catalog);
    let catalog = EmbeddedCatalog::on_files(Box::new(disk)).unwrap();
    assert_eq!(contents(&catalog), BTreeMap::from([("stage", "2999")].map(owned)));
}

/// Two files that die at a given write or sync. What was written since the last sync survives in
/// part: each piece of 512 bytes by the toss of a coin.
#[derive(Clone)]
struct MortalDisk {
    files: Rc<[RefCell<Contents>; 2]>,
    calls_left: Rc<Cell<u64>>,
    /// Files do not grow.
    full: Rc<Cell<bool>>,
    seed: u64,
}

#[derive(Default)]
struct Contents {
    synced: Option<Vec<u8>>,
    current: Option<Vec<u8>>,
    unsynced: Vec<(usize, Vec<u8>)>,
}

fn write_into(file: &mut Vec<u8>, offset: usize, data: &[u8]) {
    if file.len() < offset + data.len() {
        file.resize(offset + data.len(), 0);
    }
    file[offset..offset + data.len()].copy_from_slice(data);
}

impl MortalDisk {
    fn new(calls_left: u64, seed: u64) -> MortalDisk {
        let (files, full) = (Rc::default(), Rc::default());
        MortalDisk { files, calls_left: Rc::new(Cell::new(calls_left)), full, seed }
    }

    fn holding(files: [Option<Vec<u8>>; 2]) -> MortalDisk {
        let disk = MortalDisk::new(u64::MAX, 0);
        for (file, content) in disk.files.iter().zip(files) {
            let (synced, current) = (content.clone(), content);
            file.replace(Contents { synced, current, unsynced: Vec::new() });
        }
        disk
    }

    fn live(&self) -> io::Result<()> {
        let left = self.calls_left.get();
        if left == 0 {
            return Err(io::Error::other("the disk is dead"));
        }
        self.calls_left.set(left - 1);
        Ok(())
    }

    /// What is found after the crash.
    fn remains(&self) -> [Option<Vec<u8>>; 2] {
        let mut tosses = self.seed;
        [0, 1].map(|copy| {
            let file = self.files[copy].borrow();
            let mut found = file.synced.clone();
            for (offset, data) in &file.unsynced {
                for (at, piece) in data.chunks(512).enumerate() {
                    tosses = types::hash::mix2(tosses, at as u64);
                    if tosses & 1 == 0 {
                        let found = found.get_or_insert_default();
                        write_into(found, offset + at * 512, piece);
                    }
                }
            }
            found
        })
    }
}

impl CatalogFiles for MortalDisk {
    fn name(&self, copy: usize) -> String {
        format!("copy {copy}")
    }

    fn read(&self, copy: usize) -> io::Result<Option<Vec<u8>>> {
        Ok(self.files[copy].borrow().current.clone())
    }

    fn write(&self, copy: usize, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.live()?;
        let file = &mut *self.files[copy].borrow_mut();
        let current = file.current.as_mut().ok_or(io::ErrorKind::NotFound)?;
        if self.full.get() && offset as usize + bytes.len() > current.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        write_into(current, offset as usize, bytes);
        file.unsynced.push((offset as usize, bytes.to_vec()));
        Ok(())
    }

    fn sync(&self, copy: usize) -> io::Result<()> {
        self.live()?;
        let file = &mut *self.files[copy].borrow_mut();
        file.synced = file.current.clone();
        file.unsynced.clear();
        Ok(())
    }

    fn replace(&self, copy: usize, bytes: &[u8]) -> io::Result<()> {
        self.live()?;
        if self.full.get() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let (synced, current) = (Some(bytes.to_vec()), Some(bytes.to_vec()));
        self.files[copy].replace(Contents { synced, current, unsynced: Vec::new() });
        Ok(())
    }
}

#[test]
fn a_crash_at_any_write_leaves_a_whole_number_of_commits() {
    // Each commit rewrites three keys together; they must never be seen apart, and a commit that
    // was acknowledged must be there. Commits are large enough that the files are written anew.
    const COMMITS: u64 = 60;
    let mut crashes = 0;
    for calls in 1.. {
        let disk = MortalDisk::new(calls, calls);
        let mut acknowledged = 0;
        let mut attempted = 0;
        if let Ok(catalog) = EmbeddedCatalog::on_files(Box::new(disk.clone())) {
            for number in 1..=COMMITS {
                attempted = number;
                let value = format!("{number:02}").repeat(3000);
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
        // A crash while the damage of a crash is mended, too.
        let again = MortalDisk::holding(disk.remains());
        again.calls_left.set(calls % 4);
        let _ = EmbeddedCatalog::on_files(Box::new(again.clone()));
        let reopened =
            EmbeddedCatalog::on_files(Box::new(MortalDisk::holding(again.remains()))).unwrap();
        let held = contents(&reopened);
        let first = held.get("x").map_or(0, |value| value[..2].parse().unwrap());
        for key in ["x", "y", "z"] {
            let value = held.get(key).cloned().unwrap_or_default();
            let whole = if first == 0 { String::new() } else { format!("{first:02}").repeat(3000) };
            assert_eq!(value, whole, "{calls} calls");
        }
        assert!((acknowledged..=attempted).contains(&first), "{calls} calls: {first}");
        assert!(commit(&reopened, &[], &[put("w", "on")]));
        crashes += 1;
        if survived_all {
            break;
        }
    }
    assert!(crashes > 200, "only {crashes} crashes");
}

/// Opens two files; what they hold, or the code of the error.
fn look(files: [Vec<u8>; 2]) -> Result<BTreeMap<String, String>, Code> {
    let disk = MortalDisk::holding(files.map(Some));
    let shown = EmbeddedCatalog::on_files(Box::new(disk.clone()));
    let shown = shown.map(|catalog| contents(&catalog)).map_err(|error| error.code)?;
    // What was mended is whole: the first copy alone is enough, and so is the second.
    let [first, second] = disk.remains();
    for files in [[first, None], [None, second]] {
        let one = EmbeddedCatalog::on_files(Box::new(MortalDisk::holding(files))).unwrap();
        assert_eq!(contents(&one), shown);
    }
    Ok(shown)
}

/// A flipped bit used to rename a container silently.
#[test]
fn any_flipped_bit_is_mended_from_the_other_copy() {
    let disk = MortalDisk::new(u64::MAX, 1);
    let catalog = EmbeddedCatalog::on_files(Box::new(disk.clone())).unwrap();
    for number in 0..4 {
        let key = format!("containers/{number}");
        assert!(commit(&catalog, &[], &[put(&key, "home"), put("last", &key)]));
    }
    let shown = contents(&catalog);
    drop(catalog);
    let [first, second] = disk.remains().map(|file| {
        let mut file = file.unwrap();
        let used = file.iter().rposition(|byte| *byte != 0).unwrap() + 64;
        file.truncate(used);
        file
    });
    let mut tried = 0;
    for copy in [0, 1] {
        for bit in 0..first.len() * 8 {
            let mut files = [first.clone(), second.clone()];
            files[copy][bit / 8] ^= 1 << (bit % 8);
            assert_eq!(look(files), Ok(shown.clone()), "bit {bit} of copy {copy}");
            tried += 1;
        }
    }
    // The same bit of both: nothing is made up, and nothing goes missing without a word.
    let mut refused = 0;
    for bit in 0..first.len() * 8 {
        let mut files = [first.clone(), second.clone()];
        files.iter_mut().for_each(|file| file[bit / 8] ^= 1 << (bit % 8));
        match look(files) {
            Ok(found) => assert_eq!(found, shown, "bit {bit} of both"),
            Err(code) => {
                assert_eq!(code, Code::Csum, "bit {bit} of both");
                refused += 1;
            }
        }
    }
    println!("{tried} bits of one copy: all mended; of both copies: {refused} refused, 0 wrong");
    assert!(tried > 4000 && refused > 2000, "{tried} {refused}");
}

#[test]
fn sampled_bits_of_a_large_catalog_are_mended() {
    let disk = MortalDisk::new(u64::MAX, 1);
    let catalog = EmbeddedCatalog::on_files(Box::new(disk.clone())).unwrap();
    for number in 0..500 {
        let value = format!("{{\"label\":\"container-{number}\"}}");
        assert!(commit(&catalog, &[], &[put(&format!("cont/{number}"), &value)]));
    }
    let shown = contents(&catalog);
    drop(catalog);
    let [first, second] = disk.remains().map(Option::unwrap);
    for try_number in 0..200u64 {
        let bit = types::hash::mix2(7, try_number) as usize % (first.len() * 8);
        let mut files = [first.clone(), second.clone()];
        files[try_number as usize % 2][bit / 8] ^= 1 << (bit % 8);
        assert_eq!(look(files), Ok(shown.clone()), "bit {bit}");
    }
}
