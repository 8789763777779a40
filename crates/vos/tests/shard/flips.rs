//! Every bit of a small store, flipped one at a time: it is noticed, or nothing is different.
//!
//! Files of index and log are tried by opening the store, with nothing of the index in memory, and
//! reading all of it. Of what is behind the last byte that is not zero only some bits are tried.

use super::model::*;
use super::sums::{put, read};
use env::{AlignedBuf, Env, File, OpenOptions, SimWorld};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use types::{Code, Durability, Epoch, ObjType, Unit};
use vos::{PoolShard, PoolShardConfig};
use wire::obj::*;
use wire::versions::ContVersions;

const BLOCK: usize = 4096;
const SECTOR: usize = 512;
/// In the zeros at the end of a sector, one bit of so many bytes.
const SPARSE: usize = 128;

fn object() -> Unit {
    unit(ObjType::MultiHashed, 1)
}

/// What the present and the snapshot show.
#[derive(Clone, PartialEq, Debug)]
struct Shown {
    now: Model,
    /// `None`: there is no snapshot.
    then: Option<Model>,
}

async fn shown(shard: &PoolShard) -> types::Result<Shown> {
    let now = try_dump_at(shard, 0).await?;
    let snapshots = shard.versions(CONT)?.snapshots;
    let then = match snapshots.first() {
        Some(at) => Some(try_dump_at(shard, at.0).await?),
        None => None,
    };
    Ok(Shown { now, then })
}

async fn set(shard: &PoolShard, epoch: u64, unit: Unit, dkey: &[u8], value: &[u8]) {
    let value = UpdateValue::Inline(value);
    let iods = vec![UpdateIod { akey: b"v", cond: Cond::NONE, value }];
    let ops = [Op::Update { unit, dkey, cond: Cond::NONE, iods }];
    let lsn = write(shard, epoch, &ops, b"", None).await.unwrap();
    shard.durable(lsn).await.unwrap();
}

/// A store with a checkpoint, a snapshot and a log of `later` batches since, killed or closed; what it
/// shows.
async fn small(env: &Env, later: u64) -> Shown {
    let config =
        PoolShardConfig { durability: Durability::Wal, scm_bytes: 1 << 20, nvme_bytes: 16 * 4096 };
    let (_store, shard) = fresh_with(env, &config, 0).await.unwrap();
    set(&shard, 1, object(), b"one", b"before the snapshot").await;
    put(&shard, 2, object(), 0, &[5; 5000]).await;
    let versions = ContVersions { revision: 1, snapshots: vec![Epoch(2)], ..Default::default() };
    shard.durable(shard.set_versions(CONT, &versions).unwrap()).await.unwrap();
    set(&shard, 3, object(), b"one", b"after it").await;
    set(&shard, 4, unit(ObjType::ArrayByte, 2), &7u64.to_le_bytes(), b"seven").await;
    shard.checkpoint().await.unwrap();
    for n in 0..later {
        set(&shard, 5 + n, object(), b"two", format!("in the log, {n}").as_bytes()).await;
    }
    let after = shown(&shard).await.unwrap();
    if later == 0 {
        shard.close().await.unwrap();
    }
    after
}

/// A file and what it held.
struct Whole {
    path: PathBuf,
    file: Rc<dyn File>,
    content: AlignedBuf,
}

impl Whole {
    /// Opens a file, and cuts what was only set aside but for a block.
    async fn open(env: &Env, path: PathBuf) -> Whole {
        let file = env.disk().open(&path, OpenOptions::default()).await.unwrap();
        let bytes = file.len().unwrap() as usize;
        let (mut content, read) = file.read_at(0, AlignedBuf::zeroed(bytes)).await;
        read.unwrap();
        let used = content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let used = (used.next_multiple_of(BLOCK) + BLOCK).min(bytes);
        if used < bytes {
            content.set_len(used);
            file.set_len(used as u64).await.unwrap();
        }
        file.sync().await.unwrap();
        Whole { path, file, content }
    }

    async fn write(&self, content: AlignedBuf) {
        self.file.write_at(0, content).await.1.unwrap();
        self.file.sync().await.unwrap();
    }

    /// Bits to try.
    fn bits(&self) -> Vec<usize> {
        let mut bits = Vec::new();
        for (number, sector) in self.content.chunks(SECTOR).enumerate() {
            // The end of a sector may be a stamp.
            let (body, stamp) = sector.split_at(sector.len() - 8);
            let used = body.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            let first = number * SECTOR;
            bits.extend((first * 8)..(first + used) * 8);
            if stamp.iter().any(|byte| *byte != 0) {
                bits.extend((first + body.len()) * 8..(first + sector.len()) * 8);
            }
            let sparse = (used..sector.len()).step_by(SPARSE);
            bits.extend(sparse.map(|at| (first + at) * 8 + at / SPARSE % 8));
        }
        // Five and eight have no common divisor: bits of every number in their bytes, and of most bytes.
        bits.retain(|bit| is_flipped(*bit));
        bits
    }
}

async fn files_of(env: &Env) -> Vec<Whole> {
    let home = format!("/target/pool.{POOL}");
    let mut paths = vec![PathBuf::from("/target/superblock")];
    for entry in env.disk().list(Path::new(&home)).await.unwrap() {
        if entry.name != "data" {
            paths.push(Path::new(&home).join(entry.name));
        }
    }
    let mut files = Vec::new();
    for path in paths {
        files.push(Whole::open(env, path).await);
    }
    files
}

/// What a store with a flipped bit shows; an error when it says that it is damaged.
async fn look(env: &Env) -> types::Result<Shown> {
    let store = open(env, 0).await?;
    let shard = store.open_shard(POOL).await?;
    if !shard.has_cont(CONT) {
        // The container was made and never changed.
        return Ok(Shown { now: Model::default(), then: None });
    }
    shown(&shard).await
}

/// All bits are flipped with `AZEKURA_ALL_FLIPS` set; without, one in so many, which comes to each bit of a byte.
const FLIP_STRIDE: usize = 21;

/// Whether a bit is flipped.
pub fn is_flipped(bit: usize) -> bool {
    bit.is_multiple_of(FLIP_STRIDE) || std::env::var_os("AZEKURA_ALL_FLIPS").is_some()
}

/// What a file is, for the table in `docs/reliability.md`.
fn region(path: &Path) -> &'static str {
    let name = path.file_name().unwrap().to_str().unwrap();
    match name.split('.').next().unwrap() {
        "superblock" => "superblock",
        "shard" => "settings of a shard",
        "wal" => "log",
        "pages" => "index pages and table",
        _ if name == "head" => "head of the log",
        _ => "files set aside",
    }
}

/// Flips of one store; how many were noticed. Prints a line for each region.
fn flip_all(later: u64) -> (u64, u64) {
    let world = SimWorld::new(later);
    let env = world.node("a");
    let after = world.block_on(small(&env, later));
    world.kill("a");
    world.disk("a").crash();
    let env = world.node("a");
    let (mut noticed, mut tried) = (0, 0);
    let mut regions: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    world.block_on(async {
        let files = files_of(&env).await;
        assert_eq!(look(&env).await.unwrap(), after);
        for (number, file) in files.iter().enumerate() {
            for bit in file.bits() {
                let mut damaged = AlignedBuf::copy_of(&file.content);
                damaged[bit / 8] ^= 1 << (bit % 8);
                file.write(damaged).await;
                let name = || format!("bit {bit} of {}", file.path.display());
                tried += 1;
                let counts = regions.entry(region(&file.path)).or_default();
                counts.0 += 1;
                match look(&env).await {
                    Ok(shown) if shown == after => {}
                    Ok(shown) => panic!("{}: {shown:?}", name()),
                    Err(error) => {
                        assert_eq!(error.code, Code::Csum, "{}: {error}", name());
                        noticed += 1;
                        counts.1 += 1;
                    }
                }
                for other in &files[..=number] {
                    other.write(AlignedBuf::copy_of(&other.content)).await;
                }
            }
        }
        assert_eq!(look(&env).await.unwrap(), after);
    });
    world.clear();
    println!(
        "| region | bits flipped | reported | nothing changed | undone silently | wrong bytes |"
    );
    for (region, (tried, noticed)) in regions {
        println!("| {region} | {tried} | {noticed} | {} | 0 | 0 |", tried - noticed);
    }
    (noticed, tried)
}

#[test]
fn any_flipped_bit_of_a_closed_store_is_noticed_or_harmless() {
    let (noticed, tried) = flip_all(0);
    println!("{noticed} of {tried} noticed");
    assert!(noticed > 200, "{noticed} of {tried} noticed");
}

/// A flip in the last batch of a log used to undo it silently: it looked like one that a crash had cut
/// off, and the tools called the target whole.
#[test]
fn any_flipped_bit_of_a_log_is_noticed_or_harmless() {
    let (noticed, tried) = flip_all(4);
    println!("{noticed} of {tried} noticed");
    assert!(noticed > 200, "{noticed} of {tried} noticed");
}

#[test]
fn any_flipped_bit_of_data_is_noticed() {
    let world = SimWorld::new(1);
    let env = world.node("a");
    world.block_on(async {
        small(&env, 0).await;
        let store = open(&env, 0).await.unwrap();
        let shard = store.open_shard(POOL).await.unwrap();
        let path = format!("/target/pool.{POOL}/data");
        let data = env.disk().open(Path::new(&path), OpenOptions::default()).await.unwrap();
        assert_eq!(read(&shard, object(), 0, 5000).await.unwrap(), [5; 5000]);
        let (content, _) = data.read_at(0, AlignedBuf::zeroed(16 * BLOCK)).await;
        let blocks = content.chunks(BLOCK).filter(|block| block.iter().any(|byte| *byte != 0));
        assert_eq!(blocks.count(), 2);
        let first = content.iter().position(|byte| *byte != 0).unwrap() / BLOCK;
        for bit in 0..2 * BLOCK * 8 {
            let at = first * BLOCK + bit / 8;
            let flipped = [content[at] ^ 1 << (bit % 8)];
            data.write_at(at as u64, AlignedBuf::copy_of(&flipped)).await.1.unwrap();
            let found = read(&shard, object(), 0, 5000).await;
            assert_eq!(found.err(), Some(Code::Csum), "bit {bit}");
            data.write_at(at as u64, AlignedBuf::copy_of(&content[at..=at])).await.1.unwrap();
            if bit % 4096 == 0 {
                data.sync().await.unwrap();
            }
        }
        assert_eq!(read(&shard, object(), 0, 5000).await.unwrap(), [5; 5000]);
    });
    world.clear();
}

/// One bad page used to keep the whole engine from starting, if the log had changes of it.
#[test]
fn a_bad_page_costs_its_objects_and_nothing_comes_back() {
    const OBJECTS: u64 = 300;
    let world = SimWorld::new(8);
    let mut env = world.node("a");
    let config =
        PoolShardConfig { durability: Durability::Wal, scm_bytes: 1 << 20, nvme_bytes: 1 << 20 };
    let small = |number: u64| unit(ObjType::MultiHashed, 100 + number);
    let pages = format!("/target/pool.{POOL}/pages");
    let (old, new) = (b"before the checkpoint".repeat(4), b"after it".repeat(4));
    world.block_on(async {
        // One checkpoint only: every image there is counts.
        let (_store, shard) = fresh_with(&env, &config, 1 << 20).await.unwrap();
        for number in 0..OBJECTS {
            set(&shard, 1 + number, small(number), b"d", &old).await;
        }
        shard.checkpoint().await.unwrap();
        for number in 0..OBJECTS {
            set(&shard, 1 + OBJECTS + number, small(number), b"d", &new).await;
        }
    });
    // A bit of the page of the first bucket that is found, or this one.
    let flip = async |env: &Env, at: Option<usize>| {
        let file = env.disk().open(Path::new(&pages), OpenOptions::default()).await.unwrap();
        let bytes = file.len().unwrap() as usize;
        let (raw, _) = file.read_at(0, AlignedBuf::zeroed(bytes)).await;
        let mut blocks = raw.chunks(BLOCK);
        let mut first = || blocks.position(|block| &block[..4] == b"AZKP" && block[32] == 0);
        let at = at.unwrap_or_else(|| first().unwrap() * BLOCK + 100);
        let flipped = AlignedBuf::copy_of(&[raw[at] ^ 4]);
        file.write_at(at as u64, flipped).await.1.unwrap();
        file.sync().await.unwrap();
        at
    };
    let mut flipped = None;
    let mut lost_first = None;
    for round in 0..3 {
        world.kill("a");
        world.disk("a").crash();
        env = world.node("a");
        world.block_on(async {
            if round == 0 {
                flipped = Some(flip(&env, None).await);
            }
            let store = open(&env, 0).await.unwrap();
            let shard = store.open_shard(POOL).await.unwrap();
            let mut lost = Vec::new();
            for number in 0..OBJECTS {
                let iods = [FetchIod {
                    akey: b"v",
                    want: FetchWant::Single { bytes_max: 100, inline_bytes_max: 100 },
                }];
                let unit = small(number);
                let touched =
                    [Op::Fetch { unit, dkey: b"d", cond: Cond::NONE, iods: iods.to_vec() }];
                match shard.ready(CONT, &[], &touched).await {
                    Ok(()) => {
                        let view = shard.view(CONT).unwrap();
                        let (_, value) = view.value(unit, b"d", b"v").unwrap();
                        assert_eq!(value, new, "object {number}");
                    }
                    Err(error) => {
                        assert_eq!(error.code, Code::Csum, "{error}");
                        assert!(error.text.contains("objects of hash"), "{error}");
                        lost.push(number);
                        let iods = vec![UpdateIod {
                            akey: b"v",
                            cond: Cond::NONE,
                            value: UpdateValue::Inline(b"x"),
                        }];
                        let op = Op::Update { unit, dkey: b"d", cond: Cond::NONE, iods };
                        let refused = shard.ready(CONT, &[], &[op]).await.unwrap_err();
                        assert_eq!(refused.code, Code::Csum, "{refused}");
                    }
                }
            }
            assert!(!lost.is_empty() && lost.len() < OBJECTS as usize / 2, "{}", lost.len());
            assert_eq!(&lost, lost_first.get_or_insert(lost.clone()), "round {round}");
            if round == 1 {
                shard.checkpoint().await.unwrap();
                // The bit flips back: what the page held is older than what was acknowledged.
                flip(&env, flipped).await;
            }
        });
    }
    world.clear();
}
