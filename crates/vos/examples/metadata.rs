//! More metadata than memory: inserts, lookups, restart and replay of a target whose index is
//! several times what it may keep in memory, in one large object or in as many objects.
//!
//! `cargo run --release -p vos --example metadata DIRECTORY [KEYS] [CACHE_MIB] [one|many]
//! [fill|restart|recover]`

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use env::Env;
use types::{ContId, Durability, Epoch, ObjClass, ObjType, Oid, PoolId, Result, Unit};
use vos::{Devices, PoolShard, PoolShardConfig, Store, StoreOptions};
use wire::obj::*;

/// As in the engine.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CONT: ContId = ContId(1);
const POOL: PoolId = PoolId(1);
const DEPTH: u64 = 64;

#[derive(Clone, Copy, PartialEq)]
enum Shape {
    /// One object of many dkeys.
    One,
    /// Many objects of one dkey.
    Many,
}

fn name_of(shape: Shape, n: u64) -> (Unit, [u8; 20]) {
    let mut name = *b"file.mdtest.00000000";
    let mut rest = n;
    for at in (12..20).rev() {
        name[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let user = match shape {
        Shape::One => 0,
        Shape::Many => n + 1,
    };
    (Oid::generate(0, user, ObjType::MultiHashed, ObjClass::S1, 0).first_unit(), name)
}

async fn insert(shard: &PoolShard, shape: Shape, n: u64, epoch: u64, cond: Cond) -> Result<()> {
    let (unit, name) = name_of(shape, n);
    let value = UpdateValue::Inline(&[7; 100]);
    let iods = vec![UpdateIod { akey: b"i", cond: Cond::NONE, value }];
    let ops = [Op::Update { unit, dkey: &name, cond, iods }];
    let payload = shard.stage(&ops)?;
    shard.ready(CONT, &[], &ops).await?;
    shard.check(CONT, &[], &ops)?;
    let lsn = shard.apply(CONT, Epoch(epoch), &ops, payload, None, &[])?;
    shard.durable(lsn).await
}

async fn lookup(shard: &PoolShard, shape: Shape, n: u64) -> Result<()> {
    let (unit, name) = name_of(shape, n);
    let iods = vec![FetchIod { akey: b"i", want: FetchWant::Probe }];
    let ops = [Op::Fetch { unit, dkey: &name, cond: Cond::NONE, iods }];
    shard.ready(CONT, &[], &ops).await?;
    let found = shard.view(CONT)?.value(unit, &name, b"i").map(|(_, value)| value.len());
    assert_eq!(found, Some(100), "key {n}");
    Ok(())
}

/// Resident memory of the process and the most there was, MiB.
fn memory_mib() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let of = |what: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(what));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or(0) / 1024
    };
    (of("VmRSS:"), of("VmHWM:"))
}

fn cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Runs `count` operations, some at a time, and reports.
async fn run(
    env: &Env,
    shard: &Rc<PoolShard>,
    what: &str,
    count: u64,
    op: impl AsyncFn(Rc<PoolShard>, u64) -> Result<()> + 'static,
) {
    let (began, cpu_began) = (Instant::now(), cpu());
    let left = Rc::new(Cell::new(DEPTH));
    let latency_us = Rc::new(RefCell::new(Vec::with_capacity(count as usize)));
    let op = Rc::new(op);
    for part in 0..DEPTH {
        let (shard, left, latency_us, op) =
            (shard.clone(), left.clone(), latency_us.clone(), op.clone());
        env.spawn(async move {
            for n in (part..count).step_by(DEPTH as usize) {
                let began = Instant::now();
                op(shard.clone(), n).await.expect(WHAT_WENT_WRONG);
                latency_us.borrow_mut().push(began.elapsed().as_micros() as u32);
            }
            left.set(left.get() - 1);
        });
    }
    while left.get() > 0 {
        env.sleep(Duration::from_millis(20)).await;
    }
    let taken = began.elapsed().as_secs_f64();
    let cpu_us = (cpu() - cpu_began).as_micros() as f64 / count as f64;
    let mut latency_us = latency_us.borrow_mut();
    latency_us.sort_unstable();
    let at = |share: f64| latency_us[((latency_us.len() - 1) as f64 * share) as usize];
    let (rss, peak) = memory_mib();
    let stat = shard.index_stat();
    println!(
        "{what:<36} {:>8.0}/s  CPU {cpu_us:>5.1} us  p50 {:>6} p99.9 {:>7} max {:>8} us  \
         resident {:>4} MiB of {:>5} counted, RSS {rss} MiB, peak {peak} MiB, pages read {}",
        count as f64 / taken,
        at(0.5),
        at(0.999),
        at(1.0),
        stat.resident_bytes >> 20,
        (shard.stat().scm_bytes - shard.stat().scm_free_bytes) >> 20,
        stat.loaded_pages,
    );
}

const WHAT_WENT_WRONG: &str = "an operation failed";
const USAGE: &str =
    "usage: metadata DIRECTORY [KEYS] [CACHE_MIB] [one|many] [fill|restart|recover]";

async fn open(env: &Env, dir: &Path, cache: u64) -> Result<Rc<Store>> {
    let options = StoreOptions { metadata_cache: cache, ..StoreOptions::default() };
    Store::open_with(env, &Devices::one(dir), options).await
}

/// Makes the target.
async fn fill(env: &Env, dir: &Path, shape: Shape, keys: u64, cache: u64) -> Result<()> {
    let config = PoolShardConfig {
        durability: Durability::Wal,
        scm_bytes: keys * 600 + (64 << 20),
        nvme_bytes: 64 << 20,
    };
    let store = open(env, dir, cache).await?;
    let shard = store.create_shard(POOL, &config).await?;
    let lsn = shard.create_cont(CONT)?;
    shard.durable(lsn).await?;
    run(env, &shard, "insert", keys, async move |shard, n| {
        insert(&shard, shape, n, n + 1, Cond::DKEY_INSERT).await
    })
    .await;
    let any = move |n: u64| types::hash::mix(n) % keys;
    let looked = keys.min(200_000);
    run(env, &shard, "look up, any order", looked, async move |shard, n| {
        lookup(&shard, shape, any(n)).await
    })
    .await;
    let began = Instant::now();
    shard.close().await?;
    println!("{:<36} {:>8.2} s", "clean stop", began.elapsed().as_secs_f64());
    Ok(())
}

/// Opens it again and changes some of it; nothing is closed.
async fn restart(env: &Env, dir: &Path, shape: Shape, keys: u64, cache: u64) -> Result<()> {
    let began = Instant::now();
    let store = open(env, dir, cache).await?;
    let shard = store.open_shard(POOL).await?;
    println!("{:<36} {:>8.2} s", "start after it", began.elapsed().as_secs_f64());
    assert_eq!(shard.stat().dkey_count, keys);
    let updates = keys.min(1_000_000);
    run(env, &shard, "update, in order", updates, async move |shard, n| {
        insert(&shard, shape, n, keys + n + 1, Cond::DKEY_UPDATE).await
    })
    .await;
    println!("{:<36} {:>8} MiB", "log", shard.log_bytes() >> 20);
    Ok(())
}

/// Opens what was left behind as after a crash: nothing was closed.
async fn recover(env: &Env, dir: &Path, cache: u64) -> Result<()> {
    let began = Instant::now();
    let store = open(env, dir, cache).await?;
    let shard = store.open_shard(POOL).await?;
    let stat = shard.log_stat().unwrap_or_default();
    println!(
        "{:<36} {:>8.2} s, {} records",
        "start after a crash",
        began.elapsed().as_secs_f64(),
        stat.replay_records,
    );
    shard.close().await?;
    drop(shard);
    store.destroy_shard(POOL).await
}

/// Runs one part of the life of a target.
fn part(name: &str, dir: &Path, shape: Shape, keys: u64, cache: u64) -> Result<()> {
    let env = Env::real()?;
    let outcome = match name {
        "fill" => env.block_on(fill(&env, dir, shape, keys, cache)),
        "restart" => env.block_on(restart(&env, dir, shape, keys, cache)),
        "recover" => env.block_on(recover(&env, dir, cache)),
        _ => Err(types::Error::inval(USAGE)),
    };
    env.clear();
    outcome
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(dir) = args.first().map(PathBuf::from) else {
        return Err(types::Error::inval(USAGE));
    };
    let number = |at: usize, or: u64| args.get(at).and_then(|text| text.parse().ok()).unwrap_or(or);
    let (keys, cache_mib) = (number(1, 10_000_000), number(2, 512));
    let root = dir.join("vos-metadata");
    for (what, shape) in [("one object", Shape::One), ("many objects", Shape::Many)] {
        if args.get(3).is_some_and(|only| !what.starts_with(only)) {
            continue;
        }
        if let Some(name) = args.get(4) {
            return part(name, &root, shape, keys, cache_mib << 20);
        }
        println!("{keys} keys in {what}, metadata_cache {cache_mib} MiB");
        // Each in a process of its own, as engines come and go: memory starts from nothing.
        for name in ["fill", "restart", "recover"] {
            let failed = |error| types::Error::io(format!("running the part {name}"), error);
            let program = std::env::current_exe().map_err(failed)?;
            let status = std::process::Command::new(program)
                .arg(&dir)
                .args([&keys.to_string(), &cache_mib.to_string(), &what[..3], name])
                .status()
                .map_err(failed)?;
            if !status.success() {
                return Err(types::Error::inval(format!("the part {name} has failed: {status}")));
            }
        }
    }
    std::fs::remove_dir_all(&root).map_err(|error| types::Error::io("cleaning up", error))
}
