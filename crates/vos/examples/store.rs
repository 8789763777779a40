//! What operations of the store cost: directory entries in a memory shard, large array values,
//! and synced inserts into a log in the directory given as the first argument, if any.
//!
//! `cargo run --release -p vos --example store [DIRECTORY]`

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use env::Env;
use types::{ContId, Durability, Epoch, ObjClass, ObjType, Oid, PoolId, Result, Unit};
use vos::{PoolShard, PoolShardConfig, Segments, Store};
use wire::obj::*;

/// As in the engine.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CONT: ContId = ContId(1);

fn name(n: u64) -> [u8; 20] {
    let mut name = *b"file.mdtest.00000000";
    for (at, digit) in name[12..].iter_mut().rev().scan(n, |rest, at| {
        let digit = (*rest % 10) as u8;
        *rest /= 10;
        Some((at, digit))
    }) {
        *at = b'0' + digit;
    }
    name
}

fn insert(shard: &PoolShard, unit: Unit, n: u64) -> Result<vos::Lsn> {
    let name = name(n);
    let iods =
        vec![UpdateIod { akey: b"i", cond: Cond::NONE, value: UpdateValue::Inline(&[7; 100]) }];
    let ops = [Op::Update { unit, dkey: &name, cond: Cond::DKEY_INSERT, iods }];
    let payload = shard.stage(&ops)?;
    shard.check(CONT, &[], &ops)?;
    shard.apply(CONT, Epoch(n + 1), &ops, payload, None, &[])
}

/// A moment in wall time and in CPU time of this thread.
#[derive(Clone, Copy)]
struct Moment {
    wall: Instant,
    cpu_ns: u64,
}

impl Moment {
    fn now() -> Moment {
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let cpu_ns = cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64;
        Moment { wall: Instant::now(), cpu_ns }
    }
}

fn report(what: &str, count: u64, began: Moment) {
    let ended = Moment::now();
    let wall_ns = (ended.wall - began.wall).as_nanos() as f64 / count as f64;
    let cpu_ns = (ended.cpu_ns - began.cpu_ns) as f64 / count as f64;
    println!("{what:<44} {wall_ns:>9.0} ns/op, CPU {cpu_ns:>6.0}");
}

/// Memory of the process, bytes: the allocator has no counter of its own that is exact and cheap.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// The same numbers in an order without pattern.
fn shuffled(count: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..count).collect();
    order.sort_by_key(|&n| types::hash::mix(n));
    order
}

fn entries(shard: &PoolShard, count: u64) -> Result<()> {
    let unit = Oid::generate(0, count, ObjType::MultiHashed, ObjClass::S1, 0).first_unit();
    let before = resident_bytes();
    let began = Moment::now();
    for n in 0..count {
        insert(shard, unit, n)?;
    }
    report(&format!("insert, {count} entries"), count, began);
    // Few entries fit in what the process has already.
    if count >= 1_000_000 {
        let bytes = resident_bytes().saturating_sub(before) / count;
        println!("{:<44} {bytes:>9} bytes/entry", "");
    }
    let order = shuffled(count);
    let began = Moment::now();
    let mut found = 0;
    for &n in &order {
        let view = shard.view(CONT)?;
        found += view.value(unit, &name(n), b"i").map_or(0, |(_, value)| value.len());
    }
    assert_eq!(found as u64, 100 * count);
    report(&format!("lookup, {count} entries, any order"), count, began);
    let began = Moment::now();
    let mut anchor = Vec::new();
    let scope = ListScope::Dkeys { value_of: Some(b"i"), follow: false, hash_range: (0, u64::MAX) };
    let mut listed = 0;
    loop {
        let page = shard.view(CONT)?.list(unit, scope, &anchor, 1000, u32::MAX)?;
        listed += page.items().len() as u64;
        anchor = page.anchor;
        if anchor.is_empty() {
            break;
        }
    }
    assert_eq!(listed, count);
    report(&format!("list with values, {count} entries"), count, began);
    let began = Moment::now();
    for &n in &order {
        let name = name(n);
        let dkeys = vec![serde_bytes::Bytes::new(&name)];
        let ops = [Op::PunchDkeys { unit, cond: Cond::PUNCH, dkeys }];
        let payload = shard.stage(&ops)?;
        shard.check(CONT, &[], &ops)?;
        shard.apply(CONT, Epoch(count + n), &ops, payload, None, &[])?;
    }
    report(&format!("remove, {count} entries, any order"), count, began);
    assert_eq!(shard.stat().dkey_count, 0);
    Ok(())
}

async fn arrays(shard: &PoolShard, pass: &str) -> Result<()> {
    const BYTES: u64 = 1 << 20;
    const COUNT: u64 = 512;
    let unit = Oid::generate(0, 1, ObjType::ArrayByte, ObjClass::S1, 0).first_unit();
    let data = vec![3u8; BYTES as usize];
    let began = Moment::now();
    for n in 0..COUNT {
        let dkey = n.to_le_bytes();
        let recxs = vec![Recx { index: 0, count: BYTES }];
        let value = UpdateValue::Array { record_bytes: 1, recxs };
        let iods = vec![UpdateIod { akey: b"", cond: Cond::NONE, value }];
        let ops = [Op::Update { unit, dkey: &dkey, cond: Cond::NONE, iods }];
        let mut payload = shard.stage(&ops)?;
        let mut rest = &data[..];
        for buffer in payload.buffers() {
            let (now, later) = rest.split_at(buffer.len());
            buffer.copy_from_slice(now);
            rest = later;
        }
        payload.write().await?;
        shard.check(CONT, &[], &ops)?;
        let lsn = shard.apply(CONT, Epoch(n + 1), &ops, payload, None, &[])?;
        shard.durable(lsn).await?;
    }
    let rate = (BYTES * COUNT) as f64 / began.wall.elapsed().as_secs_f64() / (1u64 << 30) as f64;
    println!("{:<44} {rate:>9.2} GiB/s", format!("write 1 MiB array values, {pass}"));
    let mut out = vec![0u8; BYTES as usize];
    let began = Moment::now();
    for n in 0..COUNT {
        let mut segments = Segments::new();
        let recxs = vec![Recx { index: 0, count: BYTES }];
        let iods = [FetchIod { akey: b"", want: FetchWant::Array { record_bytes: 1, recxs } }];
        shard.view(CONT)?.fetch(unit, &n.to_le_bytes(), Cond::NONE, &iods, &mut segments)?;
        segments.load().await?;
        let mut at = 0;
        for slice in segments.slices() {
            out[at..at + slice.len()].copy_from_slice(slice);
            at += slice.len();
        }
        assert_eq!(at as u64, BYTES);
    }
    let rate = (BYTES * COUNT) as f64 / began.wall.elapsed().as_secs_f64() / (1u64 << 30) as f64;
    println!("{:<44} {rate:>9.2} GiB/s", format!("read and copy 1 MiB array values, {pass}"));
    Ok(())
}

/// `depth` inserters that each wait for their insert to be durable.
async fn synced(env: &Env, shard: &Rc<PoolShard>, depth: u64) -> Result<()> {
    const COUNT: u64 = 8000;
    let unit = Oid::generate(0, 100 + depth, ObjType::MultiHashed, ObjClass::S1, 0).first_unit();
    let left = Rc::new(std::cell::Cell::new(depth));
    let began = Moment::now();
    for part in 0..depth {
        let (shard, left) = (shard.clone(), left.clone());
        env.spawn(async move {
            for n in (part..COUNT).step_by(depth as usize) {
                let lsn = insert(&shard, unit, n).expect("insert");
                shard.durable(lsn).await.expect("durable");
            }
            left.set(left.get() - 1);
        });
    }
    while left.get() > 0 {
        env.yield_now().await;
    }
    report(&format!("durable insert, {depth} at a time"), COUNT, began);
    Ok(())
}

fn main() -> Result<()> {
    let env = Env::real()?;
    let given = std::env::args().nth(1).map(PathBuf::from);
    let scratch = std::env::temp_dir().join(format!("vos-example-{}", std::process::id()));
    let root = given.as_ref().map_or(scratch.clone(), |dir| dir.join("vos-example"));
    env.block_on(async {
        let store = Store::open(&env, Path::new(&root)).await?;
        let memory = PoolShardConfig {
            durability: Durability::Memory,
            scm_bytes: 2 << 30,
            nvme_bytes: 1 << 30,
        };
        let shard = store.create_shard(PoolId(1), &memory).await?;
        shard.create_cont(CONT)?;
        for count in [10_000, 1_000_000] {
            entries(&shard, count)?;
        }
        arrays(&shard, "memory, first touch").await?;
        arrays(&shard, "memory, again").await?;
        store.destroy_shard(PoolId(1)).await?;
        if given.is_some() {
            let durable = PoolShardConfig { durability: Durability::Wal, ..memory };
            let shard = store.create_shard(PoolId(2), &durable).await?;
            let lsn = shard.create_cont(CONT)?;
            shard.durable(lsn).await?;
            for depth in [1, 16, 128] {
                synced(&env, &shard, depth).await?;
            }
            arrays(&shard, "device").await?;
            store.destroy_shard(PoolId(2)).await?;
        }
        Ok::<(), types::Error>(())
    })?;
    // What is left is this program's own: a lock file and a superblock.
    std::fs::remove_dir_all(&root).map_err(|error| types::Error::io("cleaning up", error))
}
