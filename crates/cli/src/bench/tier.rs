//! `azekura bench tier`: what a tier costs a reader and a writer, beside the store alone.

mod experiment;

use crate::exit::Outcome;
use crate::fs::remote::Remote;
use crate::output::Table;
use crate::session::Session;
use crate::tier::of_cont;
use crate::url::{self, Url};
use clap::Args;
use dfs::{CreateOptions, Obj, OpenFlags};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tier::part::HEADER_BYTES;
use tier::{Counts, Source, Store};
use types::{Error, Result, size};
use wire::control::OpenMode;

/// Reads from the pool, from the tier in order with and without fetching ahead, and at random; beside the store alone
///
/// Writes one file in a directory of a container that has a tier, measures with one thread, and removes it; its parts stay in the store
/// until 'azekura tier gc'. Hits are reads of parts that were in memory or on their way already, misses those that waited for
/// the store from the first byte on.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura bench tier azk://tank/home
  azekura bench tier azk://tank/home --size 1GiB --block 4MiB --ahead 128MiB --json
  azekura bench tier azk://tank/home --experiment threads --plot threads.svg")]
pub struct TierArgs {
    /// A directory in a container with a tier
    #[arg(value_name = "URL", value_parser = crate::fs::url_parser())]
    url: Url,
    /// Size of the file
    #[arg(long, default_value = "256MiB", value_parser = size::parse)]
    size: u64,
    /// Bytes per read
    #[arg(long, default_value = "1MiB", value_parser = size::parse)]
    block: u64,
    /// Bytes that are fetched ahead
    #[arg(long, default_value = "64MiB", value_parser = size::parse)]
    ahead: u64,
    /// Bytes of them that one request asks for [default: AZEKURA_TIER_PREFETCH, or 4MiB]
    #[arg(long, value_parser = size::parse)]
    piece: Option<u64>,
    /// How many of these requests are on their way at a time [default: AZEKURA_TIER_PREFETCH, or 8 and more where the way is long]
    #[arg(long)]
    lanes: Option<usize>,
    /// Reads of 4 KiB at random
    #[arg(long, default_value_t = 32)]
    random: u32,
    /// Instead of that: the same number of bytes (--size) again and again, with fsync that waits for the pool and for the tier, in a container that
    /// nobody else uses
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["block", "random", "lanes"])]
    experiment: Option<experiment::Experiment>,
    /// How long a run of the experiment lasts at most, whatever it has moved by then: small blocks would take minutes [default: 2 for block, else no limit]
    #[arg(long, value_name = "SECONDS", requires = "experiment")]
    seconds: Option<u32>,
    /// Write the experiment's curves (SVG)
    #[arg(long, value_name = "FILE", requires = "experiment")]
    plot: Option<PathBuf>,
}

/// One measurement.
#[derive(Serialize)]
struct Row {
    what: &'static str,
    bytes: u64,
    seconds: f64,
    bytes_s: u64,
    /// Until the first read had its bytes, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_us: Option<u64>,
    /// Of one read on average, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    read_us_mean: Option<u64>,
    #[serde(flatten)]
    counts: Counts,
}

const RANDOM_BYTES: usize = 4096;
/// Times that the first bytes of a file, and of an object, are asked for; of which the medians are told.
const FIRST_COUNT: usize = 15;

/// The file, and what it is measured with.
struct Bench<'a> {
    remote: &'a Remote,
    path: Vec<u8>,
    file: Obj,
    tier: String,
    store: Store,
    source: Source,
    args: &'a TierArgs,
    rows: Vec<Row>,
    /// An object of the store's own, and its bytes.
    first_alone: Option<(String, u64)>,
}

pub fn run(session: &Session, args: &TierArgs) -> Outcome {
    if args.size == 0 || args.block == 0 || args.piece == Some(0) || args.lanes == Some(0) {
        return Err(Error::inval("--size, --block, --piece and --lanes are not 0").into());
    }
    if args.seconds == Some(0) {
        return Err(Error::inval("--seconds is not 0").into());
    }
    let url = &args.url;
    if let Some(what) = args.experiment {
        let sizes = experiment::Sizes {
            moved: args.size,
            time: args.seconds.map(|seconds| Duration::from_secs(seconds.into())),
            ahead: args.ahead,
            piece: args.piece,
        };
        return experiment::run(session, url, what, sizes, args.plot.as_deref());
    }
    let (tier, _, store) = of_cont(session, &url.pool, &url.cont)?;
    let source = crate::tier::install_source(session);
    if let Some(bytes) = args.piece {
        source.set_piece_bytes(bytes);
    }
    if args.lanes.is_some() {
        source.set_lanes(args.lanes);
    }
    let remote = Remote::open(session, url, OpenMode::ReadWrite)?;
    let path = url::join(&url.path, format!(".bench-tier-{}", std::process::id()).as_bytes());
    let flags = OpenFlags::READ_WRITE | OpenFlags::CREATE | OpenFlags::EXCL;
    let options = CreateOptions::default();
    let file = remote.wait(&path, remote.sys.open(&path, flags, 0o600, &options))?;
    let rows = Vec::new();
    let mut bench =
        Bench { remote: &remote, path, file, tier, store, source, args, rows, first_alone: None };
    let measured = bench.measure();
    let removed = remote.wait(&bench.path, remote.sys.unlink(&bench.path));
    measured?;
    removed?;
    let rows = bench.rows;
    session.out.show(&rows, |out| {
        let mut table = Table::new(&[
            "WHAT", ">BYTES", ">RATE", ">FIRST", ">READ", ">HITS", ">MISSES", ">AHEAD", ">USED",
        ]);
        let time =
            |us: Option<u64>| us.map_or("-".into(), |us| format!("{:.1} ms", us as f64 / 1e3));
        for row in &rows {
            table.row(vec![
                row.what.to_string(),
                size::format(row.bytes),
                format!("{}/s", size::format(row.bytes_s)),
                time(row.first_us),
                time(row.read_us_mean),
                row.counts.hits.to_string(),
                row.counts.misses.to_string(),
                size::format(row.counts.ahead_bytes),
                size::format(row.counts.ahead_used_bytes),
            ]);
        }
        table.write(out)
    })
}

impl Bench<'_> {
    fn measure(&mut self) -> Result<()> {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut block = vec![0; 1 << 20];
        let mut at = 0;
        while at < self.args.size {
            // What a compressing tier cannot make smaller.
            block.fill_with(|| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            });
            let count = (self.args.size - at).min(block.len() as u64);
            self.remote.write(&self.path, &self.file, at, &block[..count as usize])?;
            at += count;
        }
        self.read_in_order("read before it was copied")?;
        self.store_alone()?;
        let begin = Instant::now();
        let sync = tier::sync_file(self.remote.dfs(), &self.file, &self.store, &self.tier, &|_| {});
        let sent = self.remote.wait(&self.path, sync)?.sent_bytes;
        self.row("copied to the tier", sent, begin, None, None);
        self.read_in_order("read from the pool")?;
        let begin = Instant::now();
        let evicted = self.evict()?;
        self.row("evicted", evicted, begin, None, None);
        self.source.set_ahead_bytes(self.args.ahead);
        self.read_in_order("read in order")?;
        self.evict()?;
        let begin = Instant::now();
        let before = self.source.counts();
        let fetch = self.remote.dfs().tier_fetch(&self.file, &|_| {});
        let fetched = self.remote.wait(&self.path, fetch)?;
        self.row("fetched", fetched, begin, None, Some(before));
        self.evict()?;
        self.source.set_ahead_bytes(0);
        self.read_in_order("read in order, nothing ahead")?;
        self.evict()?;
        self.read_first()?;
        self.evict()?;
        self.read_at_random(state)
    }

    /// The parts put and got without the pool, as many at a time as a copy has on its way.
    fn store_alone(&mut self) -> Result<()> {
        let part_bytes = self.store.part_bytes();
        let (mut bytes, mut at) = (Vec::new(), 0);
        while at < self.args.size {
            let mut part = vec![0; part_bytes.min(self.args.size - at) as usize];
            let read = self.remote.read(&self.path, &self.file, at, &mut part)?;
            part.truncate(read);
            at += part_bytes;
            bytes.push(part);
        }
        let total = self.args.size;
        let begin = Instant::now();
        let names = self.remote.wait(&self.path, tier::put_parts(&self.store, bytes))?;
        self.row("put to the store alone", total, begin, None, None);
        let begin = Instant::now();
        self.remote.wait(&self.path, tier::get_parts(&self.store, &names))?;
        self.row("got from the store alone", total, begin, None, None);
        // The first one is read by turns with the file's first block.
        for name in names.iter().skip(1) {
            self.remote.wait(&self.path, self.store.delete(&name.key))?;
        }
        self.first_alone = names.into_iter().next().map(|name| (name.key, name.bytes));
        Ok(())
    }

    /// The first block of a file of which this process knows nothing yet, by turns with as much of an object of the store: one after
    /// the other they would meet other machines, one that has just given up a chunk and one that does nothing but answer.
    fn read_first(&mut self) -> Result<()> {
        let count = self.args.block.min(self.args.size);
        let mut memory = vec![0; count as usize];
        let (mut alone, mut of_file) = (Vec::new(), Vec::new());
        for at in 0..FIRST_COUNT {
            if at > 0 {
                self.evict()?;
            }
            for is_alone in [at % 2 == 0, at % 2 == 1] {
                let begin = Instant::now();
                match &self.first_alone {
                    Some((key, bytes)) if is_alone => {
                        let get = self.store.get_range(key, HEADER_BYTES as u64, count.min(*bytes));
                        self.remote.wait(&self.path, get)?;
                        alone.push(begin.elapsed());
                    }
                    None if is_alone => {}
                    _ => {
                        self.remote.read(&self.path, &self.file, 0, &mut memory)?;
                        of_file.push(begin.elapsed());
                    }
                }
            }
        }
        if let Some((key, _)) = self.first_alone.take() {
            self.remote.wait(&self.path, self.store.delete(&key))?;
        }
        self.median("first block of the store alone", count, alone);
        self.median("first block of the file", count, of_file);
        Ok(())
    }

    /// Tells the median of some times.
    fn median(&mut self, what: &'static str, bytes: u64, mut times: Vec<Duration>) {
        times.sort_unstable();
        let Some(&median) = times.get(times.len() / 2) else { return };
        let now = Instant::now();
        self.row(what, bytes, now.checked_sub(median).unwrap_or(now), None, None);
        if let Some(row) = self.rows.last_mut() {
            row.first_us = Some(median.as_micros() as u64);
        }
    }

    fn evict(&self) -> Result<u64> {
        let evict =
            tier::evict_file(self.remote.dfs(), &self.file, &self.store, &self.tier, &|_| {});
        let evicted = self.remote.wait(&self.path, evict)?.evicted_bytes;
        self.source.drop_parts();
        Ok(evicted)
    }

    fn read_in_order(&mut self, what: &'static str) -> Result<()> {
        let mut memory = vec![0; self.args.block as usize];
        let before = self.source.counts();
        let (begin, mut at, mut first_us) = (Instant::now(), 0, None);
        while at < self.args.size {
            let read = self.remote.read(&self.path, &self.file, at, &mut memory)?;
            first_us.get_or_insert(begin.elapsed().as_micros() as u64);
            at += (read as u64).max(1);
        }
        self.row(what, self.args.size, begin, first_us, Some(before));
        Ok(())
    }

    fn read_at_random(&mut self, mut state: u64) -> Result<()> {
        let mut memory = vec![0; RANDOM_BYTES];
        let before = self.source.counts();
        let begin = Instant::now();
        for _ in 0..self.args.random {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let blocks = (self.args.size / RANDOM_BYTES as u64).max(1);
            let at = (state >> 24) % blocks * RANDOM_BYTES as u64;
            self.remote.read(&self.path, &self.file, at, &mut memory)?;
        }
        let bytes = self.args.random as u64 * RANDOM_BYTES as u64;
        let seconds = begin.elapsed().as_secs_f64();
        self.row("read at random", bytes, begin, None, Some(before));
        if let Some(row) = self.rows.last_mut() {
            row.read_us_mean = Some((seconds * 1e6 / self.args.random.max(1) as f64) as u64);
        }
        Ok(())
    }

    fn row(
        &mut self,
        what: &'static str,
        bytes: u64,
        begin: Instant,
        first_us: Option<u64>,
        before: Option<Counts>,
    ) {
        let seconds = begin.elapsed().as_secs_f64().max(1e-9);
        let counts = before.map_or(Counts::default(), |before| self.source.counts().since(before));
        let bytes_s = (bytes as f64 / seconds) as u64;
        self.rows.push(Row { what, bytes, seconds, bytes_s, first_us, read_us_mean: None, counts });
    }
}
