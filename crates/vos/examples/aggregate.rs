//! What aggregation gains for IOR's hard case: one file written by many in pieces of 47,008
//! bytes, in the directory given as the first argument. Extents, index memory, and the rate of
//! sequential reading, as written and joined.
//!
//! `cargo run --release -p vos --example aggregate DIRECTORY`

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use env::{Env, Rng};
use futures_util::stream::{self, StreamExt};
use types::{ContId, Durability, Epoch, Error, ObjClass, ObjType, Oid, PoolId, Result, Unit};
use vos::{Devices, PoolShard, PoolShardConfig, Segments, Store, StoreOptions};
use wire::obj::*;

const CONT: ContId = ContId(1);
const PIECE: u64 = 47_008;
const PIECES: u64 = 5_000;
const CHUNK: u64 = 1 << 20;
/// Chunks read at a time.
const AT_ONCE: usize = 8;
const ROUNDS: usize = 9;

fn file() -> Unit {
    Oid::generate(0, 1, ObjType::ArrayByte, ObjClass::S1, 0).first_unit()
}

/// Writes one range of the file, cut at chunks.
async fn write(shard: &PoolShard, epoch: &mut u64, start: u64, end: u64) -> Result<()> {
    let mut at = start;
    while at < end {
        let stop = end.min((at / CHUNK + 1) * CHUNK);
        let dkey = (at / CHUNK).to_le_bytes();
        let recxs = vec![Recx { index: at % CHUNK, count: stop - at }];
        let value = UpdateValue::Array { record_bytes: 1, recxs };
        let iods = vec![UpdateIod { akey: b"", cond: Cond::NONE, value }];
        let ops = [Op::Update { unit: file(), dkey: &dkey, cond: Cond::NONE, iods }];
        let mut payload = shard.stage(&ops)?;
        payload.buffers().for_each(|buffer| buffer.fill(at as u8));
        payload.write().await?;
        *epoch += 1;
        let lsn = shard.apply(CONT, Epoch(*epoch), &ops, payload, None, &[])?;
        shard.durable(lsn).await?;
        at = stop;
    }
    Ok(())
}

/// Reads one chunk; returns its bytes.
async fn read_chunk(shard: &PoolShard, chunk: u64) -> Result<usize> {
    let recxs = vec![Recx { index: 0, count: CHUNK }];
    let iods = [FetchIod { akey: b"", want: FetchWant::Array { record_bytes: 1, recxs } }];
    let mut segments = Segments::new();
    let dkey = chunk.to_le_bytes();
    shard.view(CONT)?.fetch(file(), &dkey, Cond::NONE, &iods, &mut segments)?;
    segments.load().await?;
    Ok(segments.slices().iter().map(|slice| slice.len()).sum())
}

/// Reads the file from start to end, some chunks at a time; MiB/s.
async fn read(shard: &PoolShard) -> Result<f64> {
    let began = Instant::now();
    let chunks = stream::iter(0..PIECE * PIECES / CHUNK).map(|chunk| read_chunk(shard, chunk));
    let sizes: Vec<Result<usize>> = chunks.buffered(AT_ONCE).collect().await;
    let bytes = sizes.into_iter().sum::<Result<usize>>()?;
    Ok(bytes as f64 / began.elapsed().as_secs_f64() / (1 << 20) as f64)
}

fn extents(shard: &PoolShard) -> Result<usize> {
    let mut count = 0;
    for chunk in 0..PIECE * PIECES / CHUNK {
        let dkey = chunk.to_le_bytes();
        let scope = ListScope::Recxs { dkey: &dkey, akey: b"", descending: false };
        count += shard.view(CONT)?.list(file(), scope, b"", 10_000, u32::MAX)?.items().count();
    }
    Ok(count)
}

fn show(shard: &PoolShard, which: &str) -> Result<()> {
    let stat = shard.stat();
    println!(
        "{which}: {} extents, {} bytes of index, {} MiB of data",
        extents(shard)?,
        stat.scm_bytes - stat.scm_free_bytes,
        (stat.nvme_bytes - stat.nvme_free_bytes) >> 20,
    );
    Ok(())
}

/// A shard with the file in it.
async fn filled(store: &Rc<Store>, pool: PoolId) -> Result<Rc<PoolShard>> {
    let (scm_bytes, nvme_bytes) = (64 << 20, 1 << 30);
    let config = PoolShardConfig { durability: Durability::Wal, scm_bytes, nvme_bytes };
    let shard = store.create_shard(pool, &config).await?;
    shard.durable(shard.create_cont(CONT)?).await?;
    // Writers go at paces of their own: pieces come in order only about.
    let rng = Rng::new(1);
    let mut order: Vec<u64> = (0..PIECES).collect();
    for window in order.chunks_mut(32) {
        for at in (1..window.len()).rev() {
            window.swap(at, rng.below(at as u64 + 1) as usize);
        }
    }
    let mut epoch = 0;
    for piece in order {
        write(&shard, &mut epoch, piece * PIECE, (piece + 1) * PIECE).await?;
    }
    Ok(shard)
}

fn main() -> Result<()> {
    let Some(given) = std::env::args().nth(1).map(PathBuf::from) else {
        return Err(Error::inval("which directory?"));
    };
    let env = Env::real()?;
    let root = given.join("vos-aggregate");
    env.block_on(async {
        let options = StoreOptions { aggregate: false, ..StoreOptions::default() };
        let store = Store::open_with(&env, &Devices::one(Path::new(&root)), options).await?;
        let as_written = filled(&store, PoolId(1)).await?;
        let joined = filled(&store, PoolId(2)).await?;
        let began = Instant::now();
        joined.aggregate().await?;
        let took = began.elapsed().as_secs_f64();
        println!("aggregation: {took:.2} s, {:?}", joined.aggregation_stat());
        show(&as_written, "as written")?;
        show(&joined, "joined    ")?;
        // In turn, so that what else the machine does meets both.
        let mut ratios = Vec::new();
        for _ in 0..ROUNDS {
            let (a, b) = (read(&as_written).await?, read(&joined).await?);
            println!("read as written {a:>6.0} MiB/s, joined {b:>6.0} MiB/s");
            ratios.push(b / a);
        }
        ratios.sort_by(f64::total_cmp);
        println!("joined / as written: {:.2} (median of {ROUNDS})", ratios[ROUNDS / 2]);
        store.destroy_shard(PoolId(1)).await?;
        store.destroy_shard(PoolId(2)).await
    })?;
    std::fs::remove_dir_all(&root).map_err(|error| Error::io("cleaning up", error))
}
