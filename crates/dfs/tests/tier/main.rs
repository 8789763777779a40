//! Files with chunks in a tier only: nobody sees anything but the bytes that were written, whatever happens meanwhile.
//!
//! The tier is a table in this process that takes copies by hand, as the crate `tier` does over object stores.

mod behind;
#[path = "../harness/mod.rs"]
mod harness;
mod killed;
mod moved;

use dfs::sys::Sys;
use dfs::tier::{
    Chunk, Mark, Slowdown, Survey, SyncPolicy, TierAsk, TierNotice, TierRecord, TierSource,
    TierState, Upload, Uses, set_tier_source,
};
use dfs::{
    Code, CreateOptions, Credentials, Dfs, MountFlags, Obj, OpenFlags, Recx, RenameFlags, XattrMode,
};
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use harness::{World, with_fs};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use types::{Epoch, Error, Result};

const CHUNK: usize = 4096;
const PART: usize = 4 * CHUNK;
/// Classes of directories and files that engines are killed with: all in one place, and in several.
const LAYOUTS_KILLED: [(&str, &str); 2] = [("S1", "S1"), ("SX", "SX+8KiB")];

/// Copies by the key of their manifest.
static COPIES: Mutex<Option<HashMap<String, Vec<u8>>>> = Mutex::new(None);

/// Parts that come when somebody says so: by key of the manifest, and where in the file they begin.
static HELD_BACK: Mutex<BTreeMap<(String, u64), oneshot::Receiver<()>>> =
    Mutex::new(BTreeMap::new());

struct Table;

impl TierSource for Table {
    fn read(&self, ask: TierAsk) -> BoxFuture<'static, Result<Vec<u8>>> {
        let copies = COPIES.lock().unwrap();
        let copy = copies.as_ref().and_then(|copies| copies.get(&ask.record.manifest));
        let Recx { index, count } = ask.range;
        assert_eq!(index % PART as u64, 0, "whole parts are asked for");
        // A mount may ask by the record of an older copy, which here has the same key.
        let range = index as usize..(index + count) as usize;
        let found = match copy.map(|copy| copy.get(range)) {
            Some(Some(bytes)) => Ok(bytes.to_vec()),
            Some(None) => Err(Error::new(Code::Csum, "the copy is shorter")),
            None => Err(Error::new(Code::NonExist, "no such copy")),
        };
        let held_back = HELD_BACK.lock().unwrap().remove(&(ask.record.manifest, index));
        async move {
            if let Some(held_back) = held_back {
                // Who held it back and is gone does so no more.
                let _ = held_back.await;
            }
            found
        }
        .boxed()
    }

    fn sync<'a>(
        &'a self,
        fs: &'a Dfs,
        file: &'a Obj,
        tier: &'a str,
    ) -> LocalBoxFuture<'a, Result<()>> {
        async move {
            if tier == "away" {
                return Err(Error::new(Code::Unreach, "the store is away"));
            }
            copy(fs, file, &format!("synced {}", file.oid())).await;
            Ok(())
        }
        .boxed_local()
    }
}

fn noise(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at as u64 * 2_654_435_761) >> 7) as u8 ^ seed).collect()
}

async fn make(sys: &Sys, path: &str, data: &[u8]) -> Obj {
    let flags = OpenFlags::READ_WRITE | OpenFlags::CREATE | OpenFlags::EXCL;
    let file = sys.open(path.as_bytes(), flags, 0o644, &CreateOptions::default()).await.unwrap();
    sys.fs().write(&file, 0, data).await.unwrap();
    file
}

async fn all(fs: &Dfs, file: &Obj) -> Vec<u8> {
    let mut memory = vec![0xee; fs.size(file).await.unwrap() as usize];
    assert_eq!(fs.read(file, 0, &mut memory).await.unwrap(), memory.len());
    memory
}

/// Takes a copy of the file.
async fn copy(fs: &Dfs, file: &Obj, key: &str) -> TierRecord {
    try_copy(fs, file, key).await.unwrap()
}

async fn try_copy(fs: &Dfs, file: &Obj, key: &str) -> Result<TierRecord> {
    set_tier_source(Arc::new(Table));
    let before = fs.tier_survey(file).await?;
    let mut data = vec![0xee; before.size as usize];
    assert_eq!(fs.read(file, 0, &mut data).await?, data.len());
    let after = fs.tier_survey(file).await?;
    assert!(before.is_same_content(&after));
    COPIES.lock().unwrap().get_or_insert_default().insert(key.into(), data);
    let record = record_of(file, key, &before);
    fs.set_tier_record(file, &record).await?;
    Ok(record)
}

/// The record of a copy of all that was seen.
fn record_of(file: &Obj, key: &str, survey: &Survey) -> TierRecord {
    TierRecord {
        oid: file.oid(),
        version: 1,
        size: survey.size,
        part_bytes: PART as u64,
        upload: None,
        manifest_sum: [0; 32],
        tier: "table".into(),
        manifest: key.into(),
        synced: survey.group_epochs.clone(),
    }
}

/// Gives up what the copy has; returns how many chunks that were.
async fn evict(fs: &Dfs, file: &Obj, record: &TierRecord) -> u64 {
    try_evict(fs, file, record).await.unwrap()
}

async fn try_evict(fs: &Dfs, file: &Obj, record: &TierRecord) -> Result<u64> {
    let survey = fs.tier_survey(file).await?;
    let data = COPIES.lock().unwrap().as_ref().unwrap()[&record.manifest].clone();
    let (mut chunks, mut epoch) = (0, Epoch::ZERO);
    for (at, part) in data.chunks(PART).enumerate() {
        let first = at * PART / survey.chunk_bytes as usize;
        let evicted = fs.tier_evict(file, &survey, record, first, part).await?;
        chunks += evicted.chunks;
        epoch = epoch.max(evicted.epoch);
    }
    fs.tier_keep_mtime(file, survey.mtime_ns, epoch).await?;
    Ok(chunks)
}

async fn state(fs: &Dfs, file: &Obj) -> String {
    let told = fs.getxattr(file, b"user.azekura.tier").await.unwrap();
    assert_eq!(told, fs.tier_state(file).await.unwrap().to_string().into_bytes());
    String::from_utf8(told).unwrap()
}

#[test]
fn a_file_goes_and_comes_back_as_it_was() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        let data = noise(1, 10 * CHUNK + 100);
        let key = format!("goes {:?}", fs.superblock().file_class);
        let file = make(&sys, "/f", &data).await;
        assert_eq!(state(&fs, &file).await, "local");
        let record = copy(&fs, &file, &key).await;
        assert_eq!(state(&fs, &file).await, "both");
        let before = fs.ostat(&file).await.unwrap();
        assert_eq!(evict(&fs, &file, &record).await, 10);
        assert_eq!(state(&fs, &file).await, "cloud");
        let there = fs.ostat(&file).await.unwrap();
        assert_eq!((there.size, there.mtime_ns), (before.size, before.mtime_ns));
        assert!(there.stored_bytes < before.stored_bytes / 4, "{there:?}");
        assert_eq!(evict(&fs, &file, &record).await, 0);
        // An upload by a program whose clock is a day ahead, and that has ended: once it ran for a day.
        let at_ns = fs.container().client().env().wall_ns() + 86_400_000_000_000;
        let upload = Some(Upload { done_bytes: 1, total_bytes: 2, at_ns });
        fs.set_tier_record(&file, &TierRecord { upload, ..record.clone() }).await.unwrap();
        assert_eq!(state(&fs, &file).await, "cloud");

        // A part comes back, whoever opened the file when.
        let mut some = [0; 10];
        assert_eq!(fs.read(&file, CHUNK as u64 - 5, &mut some).await.unwrap(), 10);
        assert_eq!(some, data[CHUNK - 5..CHUNK + 5]);
        assert_eq!(fs.tier_survey(&file).await.unwrap().stub_count(), 6);
        let mut some = vec![0; 2 * PART];
        let got = fs.read_to_end(&file, 2 * PART as u64, &mut some).await.unwrap();
        assert_eq!(some[..got], data[2 * PART..]);
        let told = std::cell::RefCell::new(Vec::new());
        let fetch = fs.tier_fetch(&file, &|bytes| told.borrow_mut().push(bytes)).await;
        assert_eq!(fetch.unwrap(), 4 * CHUNK as u64);
        let told = told.into_inner();
        assert!(told.iter().sum::<u64>() == 4 * CHUNK as u64 && !told.is_empty(), "{told:?}");
        assert_eq!(state(&fs, &file).await, "both");
        assert_eq!(all(&fs, &file).await, data);
        assert_eq!(fs.ostat(&file).await.unwrap().mtime_ns, before.mtime_ns);

        // What came back goes again without another copy; neither is shown or set by programs.
        assert_eq!(evict(&fs, &file, &record).await, 10);
        assert_eq!(fs.listxattr(&file).await.unwrap(), Vec::<Vec<u8>>::new());
        let mut uses = Uses::default();
        uses.add(20_000);
        assert_eq!(fs.tier_uses(&file).await.unwrap(), Uses::default());
        fs.set_tier_uses(&file, uses).await.unwrap();
        assert_eq!(fs.tier_uses(&file).await.unwrap(), uses);
        assert_eq!(fs.listxattr(&file).await.unwrap(), Vec::<Vec<u8>>::new());
        for name in ["user.azekura.tier", "azekura.tier", "azekura.uses"] {
            let set = fs.setxattr(&file, name.as_bytes(), b"x", XattrMode::Set).await;
            assert_eq!(set.unwrap_err().code, Code::NotSupported);
        }

        // Names change, the data are there.
        let root = fs.root().await.unwrap();
        sys.mkdir(b"/d", 0o755).await.unwrap();
        sys.rename(b"/f", b"/d/g", RenameFlags::NONE).await.unwrap();
        let file = sys.lookup(b"/d/g", true).await.unwrap();
        assert_eq!(state(&fs, &file).await, "cloud");
        let dir = sys.lookup(b"/d", true).await.unwrap();
        fs.link(&dir, b"g", &root, b"second").await.unwrap();
        let file = sys.open(b"/second", OpenFlags::READ, 0, &CreateOptions::default()).await;
        let file = file.unwrap();
        assert_eq!(state(&fs, &file).await, "cloud");
        assert_eq!(fs.tier_uses(&file).await.unwrap(), uses);
        assert_eq!(all(&fs, &file).await, data);
    });
}

#[test]
fn changes_bring_back_what_they_need_and_make_dirty() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        let mut data = noise(2, 9 * CHUNK);
        let key = format!("changes {:?}", fs.superblock().file_class);
        let file = make(&sys, "/f", &data).await;
        let record = copy(&fs, &file, &key).await;
        assert_eq!(evict(&fs, &file, &record).await, 8);

        fs.write(&file, 100, b"new").await.unwrap();
        data[100..103].copy_from_slice(b"new");
        assert_eq!(state(&fs, &file).await, "dirty");
        // The changed chunk is not given up, the rest of its part is.
        assert_eq!(evict(&fs, &file, &record).await, 3);
        let survey = fs.tier_survey(&file).await.unwrap();
        assert!(matches!(survey.chunks[0], Chunk::Data { .. }));
        assert_eq!(all(&fs, &file).await, data);

        assert_eq!(evict(&fs, &file, &record).await, 7);
        fs.punch_hole(&file, CHUNK as u64 + 7, 50).await.unwrap();
        data[CHUNK + 7..CHUNK + 57].fill(0);
        assert_eq!(all(&fs, &file).await, data);
        assert_eq!(evict(&fs, &file, &record).await, 6);
        // A whole chunk that is made a hole needs no bytes.
        fs.punch_hole(&file, 5 * CHUNK as u64, CHUNK as u64).await.unwrap();
        data[5 * CHUNK..6 * CHUNK].fill(0);
        assert_eq!(all(&fs, &file).await, data);
        assert_eq!(state(&fs, &file).await, "dirty");

        let record = copy(&fs, &file, &key).await;
        assert_eq!(evict(&fs, &file, &record).await, 8);
        fs.truncate(&file, 3 * CHUNK as u64 + 11).await.unwrap();
        data.truncate(3 * CHUNK + 11);
        assert_eq!(all(&fs, &file).await, data);
        fs.truncate(&file, 2 * CHUNK as u64).await.unwrap();
        fs.truncate(&file, 6 * CHUNK as u64).await.unwrap();
        data.truncate(2 * CHUNK);
        data.resize(6 * CHUNK, 0);
        assert_eq!(all(&fs, &file).await, data);
        assert_eq!(state(&fs, &file).await, "dirty");
        let record = copy(&fs, &file, &key).await;
        evict(&fs, &file, &record).await;
        fs.append(&file, &[b"more"]).await.unwrap();
        data.extend_from_slice(b"more");

        // Holes of a copy of a range are those of the file, not chunks that are elsewhere.
        let other = make(&sys, "/other", b"").await;
        let count = data.len() as u64;
        assert_eq!(fs.copy_range(&file, 0, &other, 0, count).await.unwrap(), count);
        assert_eq!(all(&fs, &other).await, data);
        let record = copy(&fs, &file, &key).await;
        evict(&fs, &file, &record).await;
        assert_eq!(fs.seek_data(&file, 1).await.unwrap(), 1);
        fs.truncate(&file, 0).await.unwrap();
        assert_eq!(state(&fs, &file).await, "dirty");
        sys.unlink(b"/f").await.unwrap();
    });
}

#[test]
fn who_may_not_write_reads_through() {
    let world = World::new(7, "S1", "SX");
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let sys = Sys::new(fs.clone());
        let data = noise(3, 8 * CHUNK + 1);
        let file = make(&sys, "/f", &data).await;
        let record = copy(&fs, &file, "through").await;
        assert_eq!(evict(&fs, &file, &record).await, 8);
        // One chunk is back and changed: the two kinds are told apart.
        fs.write(&file, 5 * CHUNK as u64, b"new").await.unwrap();
        let mut want = data.clone();
        want[5 * CHUNK..5 * CHUNK + 3].copy_from_slice(b"new");
        let stubs = fs.tier_survey(&file).await.unwrap().stub_count();
        assert_eq!(stubs, 4);

        let reader = fs.with_flags(MountFlags::READ_ONLY);
        let open = Sys::new(reader.clone());
        let open = open.open(b"/f", OpenFlags::READ, 0, &CreateOptions::default()).await.unwrap();
        assert_eq!(all(&reader, &open).await, want);
        assert_eq!(fs.tier_survey(&file).await.unwrap().stub_count(), stubs);
        assert_eq!(reader.tier_fetch(&open, &|_| {}).await.unwrap_err().code, Code::ReadOnly);
    });
}

#[test]
fn damaged_or_lost_copies_are_errors_and_cost_nothing_else() {
    let world = World::new(8, "S1", "S1");
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let sys = Sys::new(fs.clone());
        let data = noise(4, 8 * CHUNK + 1);
        let file = make(&sys, "/f", &data).await;
        let record = copy(&fs, &file, "damaged").await;
        assert_eq!(evict(&fs, &file, &record).await, 8);
        let damage = |at: usize| {
            let mut copies = COPIES.lock().unwrap();
            copies.as_mut().unwrap().get_mut("damaged").unwrap()[at] ^= 1;
        };
        damage(2 * CHUNK);
        let mut memory = vec![0; data.len()];
        assert_eq!(fs.read(&file, 0, &mut memory).await.unwrap_err().code, Code::Csum);
        let write = fs.write(&file, 2 * CHUNK as u64, b"x").await;
        assert_eq!(write.unwrap_err().code, Code::Csum);
        // The other part is whole.
        let at = 4 * CHUNK;
        let count = fs.read(&file, at as u64, &mut memory[..CHUNK]).await.unwrap();
        assert_eq!(memory[..count], data[at..at + CHUNK]);
        damage(2 * CHUNK);
        assert_eq!(all(&fs, &file).await, data);

        assert_eq!(evict(&fs, &file, &record).await, 8);
        let taken = COPIES.lock().unwrap().as_mut().unwrap().remove("damaged").unwrap();
        // The file is there, and its data are lost: no program takes it for one that is not there.
        assert_eq!(fs.read(&file, 0, &mut memory).await.unwrap_err().code, Code::Io);
        COPIES.lock().unwrap().as_mut().unwrap().insert("damaged".into(), taken);
        assert_eq!(all(&fs, &file).await, data);
    });
}

/// A hole of a file with several names was called changed as soon as the record of its copy was written, for that is in the
/// file's object; and a chunk that came back and was emptied was called unchanged, for the mark beside it stayed.
#[test]
fn holes_are_clean_until_they_are_made() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        let mut data = vec![0; 9 * CHUNK];
        let key = format!("holes {:?}", fs.superblock().file_class);
        let file = make(&sys, "/f", b"").await;
        for at in [2, 8] {
            let some = noise(at as u8, CHUNK);
            fs.write(&file, (at * CHUNK) as u64, &some).await.unwrap();
            data[at * CHUNK..][..CHUNK].copy_from_slice(&some);
        }
        sys.link(b"/f", b"/g").await.unwrap();
        let file = sys.open(b"/g", OpenFlags::READ_WRITE, 0, &CreateOptions::default()).await;
        let file = file.unwrap();
        let record = copy(&fs, &file, &key).await;
        assert_eq!(state(&fs, &file).await, "both");
        evict(&fs, &file, &record).await;
        assert_eq!(state(&fs, &file).await, "cloud");
        assert_eq!(all(&fs, &file).await, data);
        assert_eq!(state(&fs, &file).await, "both");
        // What was a hole comes back as one: a file that was sparse filled the pool when it was read.
        let hole = fs.seek_hole(&file, 3 * CHUNK as u64).await.unwrap();
        assert!(hole < 4 * CHUNK as u64, "{hole}");
        fs.write(&file, 2 * CHUNK as u64, &[1]).await.unwrap();
        copy(&fs, &file, &key).await;
        for (offset, count) in [(0, 100), (100, CHUNK - 100)] {
            fs.punch_hole(&file, (2 * CHUNK + offset) as u64, count as u64).await.unwrap();
        }
        assert_eq!(state(&fs, &file).await, "dirty");
        let record = copy(&fs, &file, &key).await;
        evict(&fs, &file, &record).await;
        data[2 * CHUNK..3 * CHUNK].fill(0);
        assert_eq!(all(&fs, &file).await, data);
        fs.punch_hole(&file, 2 * CHUNK as u64, CHUNK as u64).await.unwrap();
        assert_eq!(all(&fs, &file).await, data);
    });
}

/// A chunk in which the first part of a progressive file ends is in two units: it is dirty when either piece is, and stays.
#[test]
fn a_chunk_in_two_units_is_told_by_both_and_stays() {
    let world = World::new(11, "S1", "SX+4KiB");
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let sys = Sys::new(fs.clone());
        let options = CreateOptions { chunk_bytes: PART as u64, ..CreateOptions::default() };
        // One file after the other goes on in another unit; in one of them the chunk is whole.
        let mut stayed = Vec::new();
        for number in 0..6 {
            let (path, key) = (format!("/f{number}"), format!("two units {number}"));
            let flags = OpenFlags::READ_WRITE | OpenFlags::CREATE | OpenFlags::EXCL;
            let file = sys.open(path.as_bytes(), flags, 0o644, &options).await.unwrap();
            let mut data = noise(number, 5 * PART + 10);
            fs.write(&file, 0, &data).await.unwrap();
            let record = copy(&fs, &file, &key).await;
            assert_eq!(state(&fs, &file).await, "both");
            let (may, dirty) = fs.tier_survey(&file).await.unwrap().evictable(&record);
            let evicted = evict(&fs, &file, &record).await;
            assert_eq!((may, dirty), (evicted * PART as u64, 0));
            stayed.push(5 - evicted);
            assert_eq!(state(&fs, &file).await, "cloud");
            assert_eq!(all(&fs, &file).await, data);
            for at in [100, CHUNK - 2, CHUNK + 1, PART - 1] {
                fs.write(&file, at as u64, b"new").await.unwrap();
                data[at..at + 3].copy_from_slice(b"new");
                assert_eq!(state(&fs, &file).await, "dirty", "byte {at}");
                assert_eq!(all(&fs, &file).await, data, "byte {at}");
                let record = copy(&fs, &file, &key).await;
                evict(&fs, &file, &record).await;
                assert_eq!(all(&fs, &file).await, data, "byte {at}");
                evict(&fs, &file, &record).await;
            }
            // Down into the first part, and up again.
            fs.truncate(&file, 50).await.unwrap();
            assert_eq!(state(&fs, &file).await, "dirty");
            fs.truncate(&file, 2 * PART as u64).await.unwrap();
            data.truncate(50);
            data.resize(2 * PART, 0);
            let record = copy(&fs, &file, &key).await;
            evict(&fs, &file, &record).await;
            assert_eq!(all(&fs, &file).await, data);
        }
        assert!(stayed.contains(&1) && stayed.iter().all(|count| *count < 2), "{stayed:?}");
    });
}

/// A small progressive file is one target's business; what another client then writes beyond the first part is dirty.
#[test]
fn a_small_progressive_file_has_a_short_record_and_may_grow() {
    let world = World::new(12, "S1", "SX+8KiB");
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let sys = Sys::new(fs.clone());
        let mut data = noise(6, CHUNK + 1);
        let file = make(&sys, "/f", &data).await;
        let asked = world.client.request_count();
        fs.tier_survey(&file).await.unwrap();
        assert!(world.client.request_count() - asked <= 4, "a target each is asked");
        let record = copy(&fs, &file, "small").await;
        assert_eq!(record.synced.len(), 1);
        assert_eq!(evict(&fs, &file, &record).await, 1);
        assert_eq!(state(&fs, &file).await, "cloud");

        let other = world.mount_from("second", Credentials::root()).await;
        let theirs = Sys::new(other.clone());
        let flags = OpenFlags::READ_WRITE;
        let theirs = theirs.open(b"/f", flags, 0, &CreateOptions::default()).await.unwrap();
        other.write(&theirs, 5 * CHUNK as u64, b"beyond").await.unwrap();
        data.resize(5 * CHUNK, 0);
        data.extend_from_slice(b"beyond");
        assert_eq!(state(&fs, &file).await, "dirty");
        // What the copy before had goes, the rest stays: nothing is lost.
        evict(&fs, &file, &record).await;
        assert_eq!(all(&fs, &file).await, data);
        let record = copy(&fs, &file, "small").await;
        assert_eq!(record.synced.len(), 3);
        assert_eq!(evict(&fs, &file, &record).await, 5);
        assert_eq!(all(&other, &theirs).await, data);
    });
}

/// A unit with one chunk is gone with it, and so is when that was: the hole was called clean, and after an eviction the file had again what had been
/// removed.
#[test]
fn a_unit_that_was_emptied_is_not_what_the_copy_has() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        let key = format!("emptied {:?}", fs.superblock().file_class);
        let file = make(&sys, "/f", b"").await;
        let mut data = vec![0; 8 * CHUNK + 3];
        data[8 * CHUNK..].copy_from_slice(b"end");
        data[4 * CHUNK..5 * CHUNK].copy_from_slice(&noise(1, CHUNK));
        for at in [4, 8] {
            let some = &data[at * CHUNK..data.len().min((at + 1) * CHUNK)];
            fs.write(&file, (at * CHUNK) as u64, some).await.unwrap();
        }
        let record = copy(&fs, &file, &key).await;
        fs.punch_hole(&file, 4 * CHUNK as u64, CHUNK as u64).await.unwrap();
        data[4 * CHUNK..5 * CHUNK].fill(0);
        assert_eq!(state(&fs, &file).await, "dirty");
        evict(&fs, &file, &record).await;
        assert_eq!(all(&fs, &file).await, data);
    });
}

/// A copy that was read between a write in a hole and its removal has what the file has no more.
#[test]
fn a_hole_stays_one_whatever_the_copy_has() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        let key = format!("hole {:?}", fs.superblock().file_class);
        let file = make(&sys, "/f", b"").await;
        fs.write(&file, 8 * CHUNK as u64, b"end").await.unwrap();
        let record = copy(&fs, &file, &key).await;
        let data = all(&fs, &file).await;
        COPIES.lock().unwrap().as_mut().unwrap().get_mut(&key).unwrap()[4 * CHUNK + 5] = 1;
        assert_eq!(evict(&fs, &file, &record).await, 7);
        assert_eq!(fs.tier_survey(&file).await.unwrap().stub_count(), 7);
        COPIES.lock().unwrap().as_mut().unwrap().get_mut(&key).unwrap()[4 * CHUNK + 5] = 0;
        assert_eq!(all(&fs, &file).await, data);
    });
}

/// A writer between the copy and the eviction, and one in the middle of it: what it wrote stays.
#[test]
fn a_write_that_comes_between_is_never_lost() {
    with_fs(async |world, fs| {
        let sys = Sys::new(fs.clone());
        let mut data = noise(5, 9 * CHUNK);
        let key = format!("between {:?}", fs.superblock().file_class);
        let file = make(&sys, "/f", &data).await;
        let record = copy(&fs, &file, &key).await;
        let survey = fs.tier_survey(&file).await.unwrap();
        let other = world.mount_from("second", Credentials::root()).await;
        let theirs = Sys::new(other.clone());
        let flags = OpenFlags::READ_WRITE;
        let theirs = theirs.open(b"/f", flags, 0, &CreateOptions::default()).await.unwrap();
        other.write(&theirs, CHUNK as u64, b"late").await.unwrap();
        data[CHUNK..CHUNK + 4].copy_from_slice(b"late");
        let part = COPIES.lock().unwrap().as_ref().unwrap()[&key][..PART].to_vec();
        let evicted = fs.tier_evict(&file, &survey, &record, 0, &part).await.unwrap();
        assert_eq!((evicted.chunks, evicted.changed), (3, 1));
        // The writer's handle is older than the eviction.
        other.write(&theirs, 10, b"later").await.unwrap();
        data[10..15].copy_from_slice(b"later");
        assert_eq!(fs.tier_state(&file).await.unwrap(), TierState::Dirty);
        assert_eq!(all(&fs, &file).await, data);
        assert_eq!(all(&other, &theirs).await, data);
    });
}

/// Marks are found from an object up, whatever its directories are called by then.
#[test]
fn the_nearest_mark_counts() {
    with_fs(async |world, fs| {
        let sys = Sys::new(fs.clone());
        sys.mkdir_p(b"/a/b/c", 0o755).await.unwrap();
        let file = make(&sys, "/a/b/c/f", b"data").await;
        let dir = async |path: &str| sys.lookup(path.as_bytes(), true).await.unwrap();
        let set = async |path: &str, mark, value: Option<&str>| {
            fs.set_tier_mark(&dir(path).await, mark, value.map(str::as_bytes)).await.unwrap();
        };
        let counts = async || fs.tier_marks_for(&file).await.unwrap();
        assert_eq!(counts().await, Default::default());
        set("/", Mark::Policy, Some("of the root")).await;
        set("/a", Mark::Sync, Some("posix")).await;
        set("/a/b", Mark::Pin, Some("1")).await;
        set("/a/b/c", Mark::Policy, Some("of c")).await;
        let marks = counts().await;
        assert_eq!(marks.policy.as_deref(), Some(&b"of c"[..]));
        assert_eq!((marks.sync, marks.is_pinned), (Some(SyncPolicy::Posix), true));
        // Moved away from the pin and the sync policy.
        sys.rename(b"/a/b/c", b"/c", RenameFlags::NONE).await.unwrap();
        let moved = sys.lookup(b"/c/f", true).await.unwrap();
        let marks = fs.tier_marks_for(&moved).await.unwrap();
        assert_eq!(marks.policy.as_deref(), Some(&b"of c"[..]));
        assert_eq!((marks.sync, marks.is_pinned), (None, false));
        set("/c", Mark::Policy, None).await;
        set("/c", Mark::Policy, None).await;
        let marks = fs.tier_marks_for(&moved).await.unwrap();
        assert_eq!(marks.policy.as_deref(), Some(&b"of the root"[..]));
        // A file is pinned by itself, and shows nothing of it.
        set("/c/f", Mark::Pin, Some("1")).await;
        assert!(fs.tier_marks(&moved).await.unwrap().is_pinned);
        assert_eq!(fs.listxattr(&moved).await.unwrap(), Vec::<Vec<u8>>::new());
        set("/c/f", Mark::Pin, None).await;
        set("/c/f", Mark::Pin, None).await;
        assert!(!fs.tier_marks_for(&moved).await.unwrap().is_pinned);
        let refused = fs.set_tier_mark(&moved, Mark::Policy, Some(b"x")).await;
        assert_eq!(refused.unwrap_err().code, Code::Inval);
        let huge = vec![b'x'; 4096];
        let refused = fs.set_tier_mark(&dir("/c").await, Mark::Policy, Some(&huge)).await;
        assert_eq!(refused.unwrap_err().code, Code::RecordTooBig);

        // The owner's business; and a directory that is gone is not made half again.
        let other =
            world.mount_from("second", Credentials { uid: 7, gid: 7, ..Credentials::root() }).await;
        let theirs = Sys::new(other.clone()).lookup(b"/c", true).await.unwrap();
        let refused = other.set_tier_mark(&theirs, Mark::Pin, Some(b"1")).await;
        assert_eq!(refused.unwrap_err().code, Code::NoPerm);
        let gone = dir("/a/b").await;
        sys.rmdir(b"/a/b").await.unwrap();
        let late = fs.set_tier_mark(&gone, Mark::Pin, Some(b"1")).await;
        assert_eq!(late.unwrap_err().code, Code::NonExist);
        assert_eq!(fs.tier_marks(&gone).await.unwrap_err().code, Code::NonExist);
        sys.rmdir(b"/a").await.unwrap();
    });
}

#[test]
fn fsync_waits_for_the_tier_where_a_directory_says_so() {
    let world = World::new(9, "S1", "SX");
    world.cluster.block_on(async {
        set_tier_source(Arc::new(Table));
        let fs = world.mount(Credentials::root()).await;
        let sys = Sys::new(fs.clone());
        sys.mkdir_p(b"/strict/lax", 0o777).await.unwrap();
        let older = world.mount_from("second", Credentials::root()).await;
        let strict = sys.lookup(b"/strict", true).await.unwrap();
        let lax = sys.lookup(b"/strict/lax", true).await.unwrap();
        fs.set_tier_mark(&strict, Mark::Sync, Some(b"posix")).await.unwrap();
        fs.set_tier_mark(&lax, Mark::Sync, Some(b"async")).await.unwrap();
        let notice = |tier: &str| TierNotice { tier: tier.into(), has_posix: true };
        fs.set_tier_notice(&notice("table")).await.unwrap();
        let file = make(&sys, "/strict/f", &noise(1, 3 * CHUNK)).await;
        assert_eq!(state(&fs, &file).await, "local");
        fs.fsync(&file).await.unwrap();
        assert_eq!(state(&fs, &file).await, "both");
        let other = make(&sys, "/strict/lax/f", b"x").await;
        fs.fsync(&other).await.unwrap();
        assert_eq!(state(&fs, &other).await, "local");

        // Somebody who may write the file, and does not own it, syncs by a handle for writing only.
        sys.chmod(b"/strict/f", 0o666).await.unwrap();
        let who = Credentials { uid: 7, gid: 7, ..Credentials::root() };
        let theirs = Sys::new(fs.with_credentials(who.clone()));
        let flags = OpenFlags::WRITE;
        let open = theirs.open(b"/strict/f", flags, 0, &CreateOptions::default()).await.unwrap();
        theirs.fs().write(&open, 0, b"theirs").await.unwrap();
        theirs.fs().fsync(&open).await.unwrap();
        assert_eq!(state(&fs, &file).await, "both");

        // The store is away: an error, and the data are in the pool.
        fs.set_tier_notice(&notice("away")).await.unwrap();
        fs.write(&file, 0, b"new").await.unwrap();
        let refused = fs.fsync(&file).await.unwrap_err();
        assert_eq!(refused.code, Code::Unreach);
        assert!(refused.to_string().contains("not yet in tier 'away'"), "{refused}");
        assert_eq!(state(&fs, &file).await, "dirty");
        assert_eq!(all(&fs, &file).await[..6], *b"newirs");

        // A mount that is older than all of that looks after a minute.
        let open = Sys::new(older.clone());
        let open = open.open(b"/strict/f", OpenFlags::WRITE, 0, &CreateOptions::default()).await;
        let open = open.unwrap();
        fs.set_tier_notice(&notice("table")).await.unwrap();
        older.container().client().env().sleep(std::time::Duration::from_secs(61)).await;
        older.fsync(&open).await.unwrap();
        assert_eq!(state(&fs, &file).await, "both");
    });
}

#[test]
fn writers_slow_down_while_they_are_told_to() {
    let world = World::new(10, "S1", "SX");
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let sys = Sys::new(fs.clone());
        fs.set_tier_notice(&TierNotice { tier: "table".into(), has_posix: false }).await.unwrap();
        let writer = world.mount_from("second", Credentials::root()).await;
        let file = make(&sys, "/f", b"").await;
        let theirs = Sys::new(writer.clone());
        let flags = OpenFlags::READ_WRITE;
        let theirs = theirs.open(b"/f", flags, 0, &CreateOptions::default()).await.unwrap();
        let data = vec![1; 1 << 20];
        let env = writer.container().client().env().clone();
        let took = async |append: bool| {
            // What was known a second ago is looked up again.
            env.sleep(std::time::Duration::from_secs(1)).await;
            let begin = env.now();
            match append {
                true => drop(writer.append(&theirs, &[&data]).await.unwrap()),
                false => drop(writer.write(&theirs, 0, &data).await.unwrap()),
            }
            (env.now() - begin).as_millis()
        };
        // The clock is the simulation's.
        assert!(took(false).await < 400);
        let until_ns = env.wall_ns() + 60_000_000_000;
        let slow = Slowdown { pause_us_per_mib: 500_000, until_ns };
        fs.set_tier_slowdown(slow).await.unwrap();
        assert!((500..900).contains(&took(false).await));
        assert!((500..900).contains(&took(true).await));
        // Nobody says so any more; nor does one whose clock is a day ahead, after whose end all would have waited for a day.
        let until_ns = env.wall_ns() + 86_400_000_000_000;
        fs.set_tier_slowdown(Slowdown { until_ns, ..slow }).await.unwrap();
        assert!(took(false).await < 400);
        fs.set_tier_slowdown(slow).await.unwrap();
        env.sleep(std::time::Duration::from_secs(60)).await;
        assert!(took(false).await < 400);
        assert_eq!(all(&fs, &file).await.len(), 2 << 20);
    });
}
