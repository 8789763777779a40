//! Writes and holes over several targets of which one has no room: whoever is told so finds the file as long as it was, then and later.
//!
//! The pieces of a write go to their targets at once. The first refusal was the answer while others were on their way: they took effect after
//! it, and the file grew when nobody wrote any more. And what had taken effect beyond the end before stayed, with holes for what had not.
//! A hole up to the end was made first, and where the file ends was written down afterwards: it was shorter where there was no room for that.

use client::{ArrayObj, Client, Container};
use dfs::{CreateOptions, Credentials, Dfs, FormatOptions, MountFlags, OpenFlags};
use engine::StoreConfig;
use futures_util::future::join;
use sim::{Cluster, ClusterSpec, seeds};
use std::collections::BTreeMap;
use std::time::Duration;
use transport::SimNet;
use types::{Code, ContLayout, ContProps, Durability, ObjType, PlacementRule, TargetId};
use uuid::Uuid;
use wire::control::{ControlRequest, Name, OpenMode};
use wire::obj::Recx;

const CHUNK: u64 = 256 << 10;
const TARGETS: u32 = 6;
/// Of the pool on each target.
const TARGET_BYTES: u64 = 60 << 20;
/// The target that is filled.
const FULL: TargetId = TargetId(2);
/// The engine that is far away.
const FAR: &str = "e3";
/// How much farther.
const FARTHER: Duration = Duration::from_millis(40);
/// A file before anything is refused: it ends within a chunk.
const BEFORE: u64 = 5 * CHUNK + 12_345;

/// Classes over all targets, and whether one of them must be full to the last block to refuse a write: copies are refused where one that keeps
/// them is nearly full.
const CLASSES: [(&str, bool); 5] = [
    ("SX", true),
    ("SX+1MiB", true),
    ("RP_2GX", false),
    ("EC_2P1GX", false),
    ("RP_2GX+1MiB", false),
];

fn cluster(seed: u64) -> Cluster {
    let spec = ClusterSpec { seed, engines: TARGETS as usize, targets: 1 };
    let cluster = Cluster::start_healing(spec, StoreConfig::default(), None).unwrap();
    SimNet::of(cluster.world()).set_far(FAR, FARTHER);
    cluster
}

async fn open(client: &Client) -> Container {
    let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await.unwrap();
    pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await.unwrap()
}

async fn container(client: &Client) -> Container {
    container_with(client, ContProps::default()).await
}

async fn container_with(client: &Client, props: ContProps) -> Container {
    let create = ControlRequest::PoolCreate {
        label: "p".into(),
        bytes: u64::from(TARGETS) * TARGET_BYTES,
        scm_percent: 20,
        durability: Durability::Wal,
        placement: PlacementRule::Equal,
        targets: Vec::new(),
    };
    client.pool_create(create).await.unwrap();
    let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await.unwrap();
    pool.cont_create("c", Uuid::nil(), props, BTreeMap::new()).await.unwrap();
    open(client).await
}

fn array(cont: &Container, class: &str, number: u64) -> ArrayObj {
    let oid = cont.generate_oid(ObjType::ArrayByte, class.parse().unwrap(), 0, number).unwrap();
    ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: CHUNK }
}

async fn write(array: &ArrayObj, at: u64, bytes: u64, value: u8) -> Result<(), Code> {
    let data = vec![value; bytes as usize];
    let all = [Recx { index: at, count: bytes }];
    array.write(&all, &[&data]).await.map_err(|error| error.code)
}

/// Files over all targets; who leads a group of one is never the full target, which would see for itself that it has room still. Of what has an
/// erasure code the second member of a group has the copies of what is in no stripe yet, beside the leader.
fn files(cont: &Container, class: &str, count: usize) -> Vec<ArrayObj> {
    let map = cont.pool().map();
    let is_meant = |file: &ArrayObj| {
        let layout = cont.layout(file.oid).unwrap();
        let mut groups = 0..layout.group_count();
        let is_coded = file.oid.cells().is_some();
        let leads = groups.clone().any(|group| layout.leader(group, &map).unwrap() == FULL);
        let keeps = groups.any(|group| layout.members(group)[1..].first() == Some(&FULL));
        file.oid.is_alone() || !leads && (keeps || !is_coded)
    };
    let files = (0..).map(|number| array(cont, class, number)).filter(is_meant);
    files.take(count).collect()
}

/// All that is in it.
async fn all(array: &ArrayObj) -> Vec<u8> {
    let bytes = array.size().await.unwrap();
    let mut found = vec![0xee; bytes as usize];
    array.read(&[Recx { index: 0, count: bytes }], &mut [&mut found]).await.unwrap();
    found
}

/// Numbers of objects on the target that is filled alone.
fn on_full(cont: &Container) -> impl Iterator<Item = u64> + use<> {
    let (cont, map) = (cont.clone(), cont.pool().map());
    (100_000..).filter(move |number| {
        let oid = cont.generate_oid(ObjType::ArrayByte, "S1".parse().unwrap(), 0, *number).unwrap();
        placement::layout(oid, &map).unwrap().targets()[0] == FULL
    })
}

/// Whoever leads a group with the full target hears with the next change how little room that has.
async fn tell(files: &[ArrayObj]) {
    for file in files {
        for chunk in 0..BEFORE.div_ceil(CHUNK) {
            let written = write(file, chunk * CHUNK, 1, 1).await;
            assert!(matches!(written, Ok(()) | Err(Code::NoSpace)), "{written:?}");
        }
    }
}

/// Fills a target with data: nearly, or to the last block.
async fn fill(cont: &Container, numbers: &mut impl Iterator<Item = u64>, to_the_last: bool) {
    fill_with(cont, numbers, &[CHUNK, 4096], to_the_last).await;
}

/// Fills a target with objects of so many bytes, of each size as many as there is room for.
async fn fill_with(
    cont: &Container,
    numbers: &mut impl Iterator<Item = u64>,
    sizes: &[u64],
    to_the_last: bool,
) {
    for &bytes in sizes {
        let mut while_short = 0;
        loop {
            let stat = cont.pool().query_one(FULL).await.unwrap();
            while_short += u32::from(stat.is_short());
            if while_short > 8 && !to_the_last {
                break;
            }
            let written = write(&array(cont, "S1", numbers.next().unwrap()), 0, bytes, 9).await;
            if written == Err(Code::NoSpace) {
                break;
            }
            assert_eq!(written, Ok(()));
        }
    }
}

/// What must be there after a write of `value` from `from` to `end` was refused: as many bytes as before, and they are those of before, or of
/// the write. Nothing else comes later. Returns what is there.
async fn is_as_it_was(
    array: &ArrayObj,
    before: &[u8],
    (from, end, value): (u64, u64, u8),
    context: &str,
) -> Vec<u8> {
    let found = all(array).await;
    assert_eq!(found.len(), before.len(), "{context}: the size");
    let is_fine = |at: usize| {
        found[at] == before[at] || found[at] == value && (from..end).contains(&(at as u64))
    };
    assert_eq!((0..found.len()).position(|at| !is_fine(at)), None, "{context}");
    array.cont.client().env().sleep(Duration::from_secs(3)).await;
    assert!(all(array).await == found, "{context}: it has changed since");
    found
}

#[test]
fn a_refused_write_makes_no_file_longer() {
    for seed in seeds(1) {
        for (class, to_the_last) in CLASSES {
            let cluster = cluster(seed);
            cluster.block_on(async {
                let client = cluster.client("c");
                let cont = container(&client).await;
                let files = files(&cont, class, 6);
                for file in &files {
                    write(file, 0, BEFORE, 1).await.unwrap();
                }
                fill(&cont, &mut on_full(&cont), to_the_last).await;
                tell(&files).await;
                let (mut value, mut refused) = (1, 0);
                for (number, file) in files.iter().enumerate() {
                    let mut known = vec![1; BEFORE as usize];
                    for (from, bytes) in [
                        (BEFORE - 100, 7 * CHUNK),
                        (BEFORE, 6 * CHUNK + 1000),
                        (BEFORE + CHUNK, 8 * CHUNK),
                        (2 * CHUNK, 11 * CHUNK),
                    ] {
                        let context =
                            format!("seed {seed}, {class}: {bytes} bytes at {from} of {number}");
                        value += 1;
                        let written = write(file, from, bytes, value).await;
                        if file.oid.cells().is_some() && written == Ok(()) {
                            // Nothing was left for copies in the full group.
                            file.set_size(BEFORE).await.unwrap();
                            known[from.min(BEFORE) as usize..].fill(value);
                            continue;
                        }
                        assert_eq!(written, Err(Code::NoSpace), "{context}");
                        refused += 1;
                        let what = (from, from + bytes, value);
                        known = is_as_it_was(file, &known, what, &context).await;
                    }
                    // What finds room is written.
                    for chunk in 0..8 {
                        let at = BEFORE + chunk * CHUNK;
                        let end = match write(file, at, 10, 3).await {
                            Ok(()) => at + 10,
                            Err(code) => {
                                assert_eq!(code, Code::NoSpace);
                                BEFORE
                            }
                        };
                        assert_eq!(file.size().await.unwrap(), end, "seed {seed}, {class}");
                        file.set_size(BEFORE).await.unwrap();
                    }
                }
                assert!(refused >= files.len(), "seed {seed}, {class}: refused {refused} times");
            });
        }
    }
}

/// Somebody else writes behind the end meanwhile, also into the chunk in which the refused write ends: nothing of that is taken away.
#[test]
fn a_refused_write_takes_away_nothing_of_others() {
    for seed in seeds(1) {
        for (class, to_the_last) in CLASSES.into_iter().take(3) {
            let cluster = cluster(seed);
            cluster.block_on(async {
                let client = cluster.client("c");
                let cont = container(&client).await;
                let files = files(&cont, class, 30);
                for file in &files {
                    write(file, 0, BEFORE, 1).await.unwrap();
                }
                fill(&cont, &mut on_full(&cont), to_the_last).await;
                tell(&files).await;
                let other = open(&cluster.client("d")).await;
                let mut written = 0;
                for (number, file) in files.iter().enumerate() {
                    let context = format!("seed {seed}, {class}: file {number}");
                    let end = BEFORE + 7 * CHUNK;
                    // In the same chunk, in the one after it, or within what is refused.
                    let at = [end + 100, end + CHUNK, end - CHUNK][number % 3];
                    let beside = ArrayObj { cont: other.clone(), ..file.clone() };
                    let mine = write(file, BEFORE, end - BEFORE, 2);
                    let others = async {
                        // From before anything has arrived until all is over.
                        let later = Duration::from_millis(12 * number as u64);
                        client.env().sleep(later).await;
                        write(&beside, at, 50, 3).await
                    };
                    let (mine, others) = join(mine, others).await;
                    assert_eq!(mine, Err(Code::NoSpace), "{context}");
                    let found = all(file).await;
                    let (at, size) = (at as usize, found.len() as u64);
                    if others.is_err() {
                        assert_eq!(size, BEFORE, "{context}");
                        continue;
                    }
                    written += 1;
                    let is_whole =
                        found.len() >= at + 50 && found[at..at + 50].iter().all(|byte| *byte == 3);
                    // The refused write may have come later than the other one, where both write.
                    let is_mine = |byte: &u8| *byte == 3 || *byte == 2;
                    let may_be_mine = number % 3 == 2
                        && found.len() >= at + 50
                        && found[at..at + 50].iter().all(is_mine);
                    assert!(is_whole || may_be_mine, "{context}: {size} bytes");
                    if number % 3 != 2 {
                        assert_eq!(size, at as u64 + 50, "{context}");
                    }
                }
                assert!(
                    written >= 10,
                    "seed {seed}, {class}: the other one found room {written} times"
                );
            });
        }
    }
}

/// A hole up to the end begins on the full target, which has no room to note it, and ends on another one, where a whole chunk went at once.
#[test]
fn a_refused_hole_makes_no_file_shorter() {
    for seed in seeds(1) {
        let cluster = cluster(seed);
        cluster.block_on(async {
            let client = cluster.client("c");
            let props = ContProps {
                layout: ContLayout::Posix,
                file_oclass: "SX".parse().unwrap(),
                chunk_bytes: CHUNK,
                ..ContProps::default()
            };
            let cont = container_with(&client, props).await;
            Dfs::format(&cont, &FormatOptions::default()).await.unwrap();
            let fs = Dfs::mount(&cont, MountFlags::NONE, Credentials::root()).await.unwrap();
            let root = fs.root().await.unwrap();
            let map = cont.pool().map();
            let (mut files, mut number) = (Vec::new(), 0);
            while files.len() < 4 {
                let (name, options) = (format!("f{number}"), CreateOptions::default());
                number += 1;
                let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
                let file = fs.open(&root, name.as_bytes(), flags, 0o644, &options).await.unwrap();
                let file = (ArrayObj { oid: file.oid(), ..array(&cont, "SX", 0) }, file);
                // A chunk that is followed by one elsewhere.
                let mut on_full = None;
                for chunk in 0..u64::from(TARGETS) {
                    let unit = file.0.unit_of(chunk + 1, 0).await.unwrap();
                    let layout = cont.layout(unit.object).unwrap();
                    if layout.leader(unit.group as usize, &map).unwrap() == FULL {
                        on_full = Some(chunk);
                    }
                }
                let bytes = on_full.unwrap() * CHUNK + 2 * CHUNK;
                fs.write(&file.1, 0, &vec![1; bytes as usize]).await.unwrap();
                files.push((file, bytes));
            }
            let mut numbers = on_full(&cont);
            fill_with(&cont, &mut numbers, &[CHUNK, 4096, 4000, 500, 1], true).await;
            for ((array, file), bytes) in &files {
                let from = bytes - 2 * CHUNK + 1000;
                let refused = fs.punch_hole(file, from, bytes - from).await.unwrap_err();
                assert_eq!(refused.code, Code::NoSpace, "seed {seed}: {refused}");
                let found = all(array).await;
                assert_eq!(found.len() as u64, *bytes, "seed {seed}: the size");
                assert!(found[..from as usize].iter().all(|byte| *byte == 1), "seed {seed}");
                // Elsewhere there is room.
                let from = bytes - CHUNK + 1000;
                fs.punch_hole(file, from, bytes - from).await.unwrap();
                let found = all(array).await;
                assert_eq!(found.len() as u64, *bytes, "seed {seed}: the size");
                assert!(found[from as usize..].iter().all(|byte| *byte == 0), "seed {seed}");
            }
        });
    }
}
