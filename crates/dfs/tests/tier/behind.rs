//! Chunks that go back into the pool behind their readers: nobody waits for that, nobody sees anything but what was written, and the file's times stay.

use super::*;
use dfs::{SetAttr, SetTime};
use futures_util::future::{join, join_all, join3};
use std::cell::Cell;
use std::pin::pin;
use std::time::Duration;
use types::Durability;

/// A file of which the tier has all but the end, and its bytes.
async fn cold(fs: &Dfs, path: &str, key: &str, chunks: usize) -> (Obj, TierRecord, Vec<u8>) {
    let data = noise(chunks as u8, chunks * CHUNK + 1);
    let file = make(&Sys::new(fs.clone()), path, &data).await;
    let record = copy(fs, &file, key).await;
    assert_eq!(evict(fs, &file, &record).await, chunks as u64);
    (file, record, data)
}

async fn open(fs: &Dfs, path: &str) -> Obj {
    let flags = OpenFlags::READ_WRITE;
    let opened =
        Sys::new(fs.clone()).open(path.as_bytes(), flags, 0, &CreateOptions::default()).await;
    opened.unwrap()
}

/// The disk stops at the first sync of a chunk that goes back, and the engine dies: the reader has its bytes, and the file all of them.
#[test]
fn a_reader_does_not_wait_for_the_pool() {
    let world = World::of(21, "S1", "S1", Durability::Wal);
    let disk = world.cluster.world().disk(&sim::Cluster::engine_name(0));
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let (file, _, data) = cold(&fs, "/f", "no wait", 8).await;
        let hung = pin!(disk.hang_at_sync(0, false));
        let read = async {
            let mut some = vec![0; CHUNK + 7];
            assert_eq!(fs.read(&file, 3, &mut some).await.unwrap(), some.len());
            assert!(some == data[3..CHUNK + 10]);
        };
        join(hung, read).await;
        world.cluster.kill_engine(0);
        world.cluster.start_engine(0).await.unwrap();
        let after = world.mount_from("after", Credentials::root()).await;
        let file = open(&after, "/f").await;
        assert!(all(&after, &file).await == data);
        assert_eq!(state(&after, &file).await, "both");
    });
}

/// What had come of a file that is brought back went into the pool only when the part after it had come as well.
#[test]
fn what_came_goes_back_while_the_next_part_is_waited_for() {
    with_fs(async |_, fs| {
        let key = format!("next part {:?}", fs.superblock().file_class);
        let (file, _, data) = cold(&fs, "/f", &key, 12).await;
        let (say, held_back) = oneshot::channel();
        HELD_BACK.lock().unwrap().insert((key, PART as u64), held_back);
        let say = Cell::new(Some(say));
        let is_back = |_: u64| {
            if let Some(say) = say.take() {
                // Who had it held back may have gone.
                let _ = say.send(());
            }
        };
        let env = fs.container().client().env();
        let fetch = fs.tier_fetch(&file, &is_back);
        let fetched = env.timeout(Duration::from_secs(600), fetch).await;
        let fetched = fetched.expect("some of the first part is back before the second comes");
        assert_eq!(fetched.unwrap(), 12 * CHUNK as u64);
        assert_eq!(state(&fs, &file).await, "both");
        assert!(all(&fs, &file).await == data);
    });
}

/// Two mounts that brought chunks of one file back at the same time took what the other had just done for a change, and noted that as the file's time of
/// modification.
#[test]
fn two_mounts_that_read_leave_the_time_of_modification() {
    with_fs(async |world, fs| {
        let key = format!("two mounts {:?}", fs.superblock().file_class);
        let (file, record, data) = cold(&fs, "/f", &key, 40).await;
        let before = fs.ostat(&file).await.unwrap();
        let mut mounts = Vec::new();
        for number in 0..3 {
            let other = world.mount_from(&format!("reader {number}"), Credentials::root()).await;
            mounts.push((open(&other, "/f").await, other));
        }
        for round in 0..4 {
            let reads = mounts.iter().enumerate().map(async |(number, (theirs, other))| {
                for step in 0..40 {
                    let chunk = (step * [1, 3, 7][number] + number * 13) % 40;
                    let mut some = vec![0; CHUNK];
                    other.read(theirs, (chunk * CHUNK) as u64, &mut some).await.unwrap();
                    assert!(some == data[chunk * CHUNK..][..CHUNK]);
                }
            });
            join_all(reads).await;
            // Each knows of what it has brought itself.
            for (theirs, other) in &mounts {
                other.tier_survey(theirs).await.unwrap();
            }
            for (theirs, other) in &mounts {
                let stat = other.ostat(theirs).await.unwrap();
                assert_eq!(stat.mtime_ns, before.mtime_ns, "round {round}");
            }
            assert_eq!(state(&fs, &file).await, "both");
            assert_eq!(evict(&fs, &file, &record).await, 40);
        }
    });
}

/// While chunks go back into the pool the file's data are newer than the file.
#[test]
fn who_asks_for_times_meanwhile_is_told_those_of_before() {
    with_fs(async |_, fs| {
        let key = format!("times {:?}", fs.superblock().file_class);
        let (file, record, _) = cold(&fs, "/f", &key, 12).await;
        let sys = Sys::new(fs.clone());
        let mut mtime_ns = fs.ostat(&file).await.unwrap().mtime_ns;
        for at in [0, 5, 9] {
            fs.read(&file, (at * CHUNK) as u64, &mut [0; 10]).await.unwrap();
            assert_eq!(sys.stat(b"/f").await.unwrap().mtime_ns, mtime_ns);
            assert_eq!(fs.ostat(&file).await.unwrap().mtime_ns, mtime_ns);
        }
        // Set by somebody meanwhile.
        assert_eq!(evict(&fs, &file, &record).await, 12);
        mtime_ns = 1_000_000_007;
        fs.read(&file, 0, &mut [0; 10]).await.unwrap();
        let set = SetAttr { mtime: Some(SetTime::At(mtime_ns)), ..SetAttr::default() };
        fs.setattr(&file, &set).await.unwrap();
        assert_eq!(fs.ostat(&file).await.unwrap().mtime_ns, mtime_ns);
        assert_eq!(fs.tier_survey(&file).await.unwrap().mtime_ns, mtime_ns);
        // Changed meanwhile: that shows.
        assert_eq!(evict(&fs, &file, &record).await, 4, "the part that was read");
        fs.read(&file, 0, &mut [0; 10]).await.unwrap();
        fs.write(&file, (7 * CHUNK) as u64, b"x").await.unwrap();
        assert!(fs.ostat(&file).await.unwrap().mtime_ns > mtime_ns);
        assert_eq!(state(&fs, &file).await, "dirty");
    });
}

/// Two mounts read and a third writes, while what is read goes back into the pool and all goes away again: each byte is the one of before or one that was written
/// since, and what was written stays.
#[test]
fn two_readers_and_a_writer_agree_with_the_model() {
    const CHUNKS: usize = 20;
    with_fs(async |world, fs| {
        let key = format!("model {:?}", fs.superblock().file_class);
        let (file, mut record, mut data) = cold(&fs, "/f", &key, CHUNKS).await;
        let mut mounts = Vec::new();
        for name in ["one", "two", "writer"] {
            let other = world.mount_from(name, Credentials::root()).await;
            mounts.push((open(&other, "/f").await, other));
        }
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        let mut draw = |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 33) as usize % below
        };
        for round in 0..30u8 {
            let mut plan = |count: usize, bytes_max: usize| -> Vec<(usize, usize)> {
                let at = (0..count).map(|_| draw(CHUNKS * CHUNK));
                let starts: Vec<usize> = at.collect();
                let cut = |at: usize, bytes: usize| bytes.min(CHUNKS * CHUNK - at);
                starts.into_iter().map(|at| (at, cut(at, 1 + draw(bytes_max)))).collect()
            };
            let writes = plan(6, CHUNK + CHUNK / 2);
            let reads = [plan(12, 3 * CHUNK), plan(12, 100)];
            let mut later = data.clone();
            for (at, bytes) in &writes {
                later[*at..at + bytes].fill(round);
            }
            let (before, after) = (&data, &later);
            let reader = async |number: usize| {
                let (file, fs) = &mounts[number];
                for (at, bytes) in &reads[number] {
                    let mut some = vec![0xee; *bytes];
                    assert_eq!(fs.read(file, *at as u64, &mut some).await.unwrap(), *bytes);
                    for (at, byte) in (*at..).zip(&some) {
                        let is_known = *byte == before[at] || *byte == after[at];
                        assert!(is_known, "round {round}, byte {at}: {byte:#x}");
                    }
                }
            };
            let writer = async {
                let (file, fs) = &mounts[2];
                for (at, bytes) in &writes {
                    fs.write(file, *at as u64, &vec![round; *bytes]).await.unwrap();
                }
            };
            join3(reader(0), reader(1), writer).await;
            assert!(all(&fs, &file).await == later, "round {round}");
            for (theirs, other) in &mounts {
                assert!(all(other, theirs).await == later, "round {round}");
                other.tier_survey(theirs).await.unwrap();
            }
            data = later;
            assert_eq!(state(&fs, &file).await, "dirty");
            if round % 3 == 0 {
                record = copy(&fs, &file, &key).await;
                assert_eq!(state(&fs, &file).await, "both");
            }
            evict(&fs, &file, &record).await;
        }
    });
}
