//! The experiments of the paper that put a storage cloud behind a file system: block size, threads, depth, a cache that is smaller than the data, and when
//! fsync returns. Each of them is a table of runs, and a curve each kind of run.
//!
//! A run writes or reads the same number of bytes, or as many as it can in a time, in files of its own, one for each thread, which are removed after it.

mod beside;

use crate::exit::Outcome;
use crate::fs::remote::Remote;
use crate::output::Table;
use crate::session::{Session, absolute};
use crate::tier::of_cont;
use crate::url::{self, Url};
use bench::svg::{Lines, Series};
use beside::Load;
use clap::ValueEnum;
use dfs::tier::{Mark, TierNotice};
use dfs::{CreateOptions, Obj, OpenFlags};
use futures_util::future::ready;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use std::cell::Cell;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use tier::{Mover, Source, Store};
use types::{Code, Error, Result, size};
use wire::control::OpenMode;

/// Block sizes, bytes; those that a thread's file is not smaller than.
const BLOCKS: [u64; 10] = [
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
    64 << 20,
    256 << 20,
    1 << 30,
];
/// Threads, and operations at a time of one thread.
const COUNTS: [u32; 5] = [1, 2, 4, 8, 15];
/// Where something else is looked at.
const BLOCK: u64 = 1 << 20;
/// Files of the runs with a small cache, of which the pool may keep a quarter.
const CACHED_FILES: u32 = 8;
/// A run with blocks of 4 KiB ends after so long: each write is a step of its own in the pool's log.
const BLOCK_RUN_TIME: Duration = Duration::from_secs(2);
/// Work beside moves is done again and again for so long: what is over in a second tells of one step of the mover, or of none.
const BESIDE_RUN_TIME: Duration = Duration::from_secs(3);

/// What is varied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Experiment {
    /// Bytes per call, 4 KiB to 1 GiB
    Block,
    /// Threads, 1 to 15
    Threads,
    /// Operations at a time of one thread, 1 to 15
    Depth,
    /// A pool that keeps all, and one that keeps a quarter
    Cache,
    /// Work on the pool's files alone, while others are copied, evicted and fetched without a pause, and while only the store has as much to do
    Foreground,
}

impl Experiment {
    /// How long each run lasts at most, or at least beside moves, unless somebody says otherwise.
    fn run_time(self) -> Option<Duration> {
        match self {
            Experiment::Block => Some(BLOCK_RUN_TIME),
            Experiment::Foreground => Some(BESIDE_RUN_TIME),
            Experiment::Threads | Experiment::Depth | Experiment::Cache => None,
        }
    }
}

/// What a run does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Write, and fsync that returns when the pool has it.
    WriteAsync,
    /// Write, and fsync that returns when the tier has it.
    WritePosix,
    /// Read what the pool has.
    ReadPool,
    /// Read what the tier has only.
    ReadTier,
    /// Read a second time, after the pool has had to let go of all but a quarter.
    ReadSmallCache,
    /// As [`Kind::WriteAsync`], while other files are moved.
    WriteBeside,
    /// As [`Kind::ReadPool`], while other files are moved.
    ReadBeside,
    /// As [`Kind::WriteAsync`], while the store has as much to do as in the run before.
    WriteBesideStore,
    /// As [`Kind::ReadPool`], while the store has as much to do as in the run before.
    ReadBesideStore,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::WriteAsync => "write, async",
            Kind::WritePosix => "write, posix",
            Kind::ReadPool => "read, in the pool",
            Kind::ReadTier => "read, in the tier only",
            Kind::ReadSmallCache => "read again, pool keeps a quarter",
            Kind::WriteBeside => "write, while others are moved",
            Kind::ReadBeside => "read, while others are moved",
            Kind::WriteBesideStore => "write, while the store has as much to do",
            Kind::ReadBesideStore => "read, while the store has as much to do",
        }
    }

    fn writes(self) -> bool {
        use Kind::{WriteAsync, WriteBeside, WriteBesideStore, WritePosix};
        matches!(self, WriteAsync | WritePosix | WriteBeside | WriteBesideStore)
    }
}

/// One run.
#[derive(Clone, Copy, Debug)]
struct Case {
    kind: Kind,
    block: u64,
    threads: u32,
    depth: u32,
    /// Again and again for so long; zero: once.
    lasts: Duration,
    /// Nothing is begun after so long.
    time: Option<Duration>,
}

/// What was written or read.
#[derive(Clone, Copy, Default)]
struct Done {
    operations: u64,
    bytes: u64,
    /// Until the last thread had its last byte, or its fsync.
    seconds: f64,
}

impl Done {
    fn add(&mut self, other: Done) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.seconds += other.seconds;
    }
}

/// What came of it.
#[derive(Serialize)]
struct Row {
    kind: &'static str,
    block: u64,
    threads: u32,
    depth: u32,
    operations: u64,
    bytes: u64,
    /// Until the last thread had its last byte, or its fsync.
    seconds: f64,
    bytes_s: u64,
    /// Of a write: until the tier had all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    safe_seconds: Option<f64>,
    /// What the store took and gave meanwhile for others, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    moved_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Report {
    experiment: Experiment,
    rows: Vec<Row>,
}

/// Where the runs' files are.
struct Place<'a> {
    session: &'a Session,
    url: &'a Url,
    /// In the container.
    dir: Vec<u8>,
}

/// What all runs share.
struct Bench<'a> {
    place: Place<'a>,
    remote: Remote,
    tier: String,
    store: Store,
    source: Source,
    bytes: u64,
    /// What the store had to do in the last run beside moves.
    load: Cell<Load>,
}

/// Of an experiment, bytes.
pub struct Sizes {
    /// Written or read in each run.
    pub moved: u64,
    /// At most, in each run.
    pub time: Option<Duration>,
    /// Fetched ahead.
    pub ahead: u64,
    /// Of these in one request, if not the usual ones.
    pub piece: Option<u64>,
}

/// Runs an experiment below a directory of a container with a tier.
pub fn run(
    session: &Session,
    url: &Url,
    experiment: Experiment,
    sizes: Sizes,
    plot: Option<&Path>,
) -> Outcome {
    let bytes = sizes.moved;
    let plot = plot.map(absolute).transpose()?;
    let (tier, _, store) = of_cont(session, &url.pool, &url.cont)?;
    let source = crate::tier::install_source(session);
    source.set_ahead_bytes(sizes.ahead);
    if let Some(piece) = sizes.piece {
        source.set_piece_bytes(piece);
    }
    let remote = Remote::open(session, url, OpenMode::ReadWrite)?;
    let dir = url::join(&url.path, format!(".bench-tier-{}", std::process::id()).as_bytes());
    remote.wait(&dir, remote.sys.mkdir(&dir, 0o700))?;
    let place = Place { session, url, dir };
    let bench = Bench { place, remote, tier, store, source, bytes, load: Cell::default() };
    let mut rows = Vec::new();
    let time = sizes.time.or(experiment.run_time());
    let (time, lasts) = match experiment {
        Experiment::Foreground => (None, time.unwrap_or_default()),
        _ => (time, Duration::ZERO),
    };
    let outcome = cases(experiment, bytes).into_iter().try_for_each(|case| {
        rows.push(bench.run(Case { time, lasts, ..case })?);
        Ok(())
    });
    let dir = &bench.place.dir;
    let removed = bench.remote.wait(dir, bench.remote.sys.rmdir(dir));
    let outcome: Result<()> = outcome;
    outcome?;
    removed?;
    let report = Report { experiment, rows };
    if let Some(file) = plot {
        let drawn = lines(&report).svg();
        std::fs::write(&file, drawn)
            .map_err(|error| Error::io(format!("writing {}", file.display()), error))?;
    }
    session.out.show(&report, |out| {
        let mut table = Table::new(&[
            "RUN",
            ">BLOCK",
            ">THREADS",
            ">DEPTH",
            ">CALLS",
            ">RATE",
            ">SAFE AFTER",
            ">MOVED",
        ]);
        for row in &report.rows {
            table.row(vec![
                row.kind.to_string(),
                size::format(row.block),
                row.threads.to_string(),
                row.depth.to_string(),
                row.operations.to_string(),
                format!("{}/s", size::format(row.bytes_s)),
                row.safe_seconds.map_or("-".into(), |seconds| format!("{seconds:.2} s")),
                row.moved_bytes.map_or("-".into(), size::format),
            ]);
        }
        table.write(out)
    })
}

/// The runs of an experiment.
fn cases(experiment: Experiment, bytes: u64) -> Vec<Case> {
    use Kind::{
        ReadBeside, ReadBesideStore, ReadPool, ReadSmallCache, ReadTier, WriteAsync, WriteBeside,
        WriteBesideStore, WritePosix,
    };
    let mut cases = Vec::new();
    let mut add = |kinds: &[Kind], block, threads, depth| {
        cases.extend(kinds.iter().map(|&kind| Case {
            kind,
            block,
            threads,
            depth,
            lasts: Duration::ZERO,
            time: None,
        }));
    };
    match experiment {
        Experiment::Block => {
            for block in BLOCKS.into_iter().filter(|block| *block <= bytes) {
                add(&[WriteAsync, WritePosix, ReadPool, ReadTier], block, 1, 1);
            }
        }
        Experiment::Threads => {
            for threads in COUNTS {
                add(&[WriteAsync, WritePosix, ReadPool, ReadTier], BLOCK, threads, 1);
            }
        }
        Experiment::Depth => {
            for depth in COUNTS {
                add(&[WriteAsync, WritePosix, ReadPool, ReadTier], BLOCK, 1, depth);
            }
        }
        Experiment::Cache => {
            for block in [64 << 10, BLOCK, 4 << 20] {
                add(&[ReadPool, ReadSmallCache, ReadTier], block, 1, 1);
            }
        }
        Experiment::Foreground => {
            for block in [64 << 10, BLOCK, 4 << 20] {
                add(&[WriteAsync, WriteBeside, WriteBesideStore], block, 1, 1);
                add(&[ReadPool, ReadBeside, ReadBesideStore], block, 1, 1);
            }
        }
    }
    cases
}

/// A curve for each kind of run.
fn lines(report: &Report) -> Lines {
    let x_label = match report.experiment {
        Experiment::Block | Experiment::Cache | Experiment::Foreground => {
            "doublings of the block size from 4 KiB on"
        }
        Experiment::Threads => "threads",
        Experiment::Depth => "operations at a time",
    };
    let x = |row: &Row| match report.experiment {
        Experiment::Block | Experiment::Cache | Experiment::Foreground => {
            (row.block as f64 / 4096.0).log2()
        }
        Experiment::Threads => row.threads as f64,
        Experiment::Depth => row.depth as f64,
    };
    let mut series: Vec<Series> = Vec::new();
    for row in &report.rows {
        let point = (x(row), row.bytes_s as f64 / 1e6);
        match series.iter_mut().find(|one| one.name == row.kind) {
            Some(one) => one.points.push(point),
            None => series.push(Series { name: row.kind.into(), points: vec![point] }),
        }
    }
    Lines {
        title: "A container with a tier".into(),
        x_label: x_label.into(),
        y_label: "MB/s".into(),
        series,
    }
}

impl Place<'_> {
    fn path(&self, file: u32) -> Vec<u8> {
        url::join(&self.dir, file.to_string().as_bytes())
    }

    fn open(&self, remote: &Remote, file: u32, flags: OpenFlags) -> Result<Obj> {
        let path = self.path(file);
        remote.wait(&path, remote.sys.open(&path, flags, 0o600, &CreateOptions::default()))
    }

    /// Writes or reads some files, when all threads are ready; returns what of them.
    fn move_some(
        &self,
        case: Case,
        files: impl Iterator<Item = u32>,
        per_file: u64,
        writes: bool,
        begin: &Barrier,
    ) -> Result<Done> {
        let opened = Remote::open(self.session, self.url, OpenMode::ReadWrite);
        let data = Arc::new(noise(case.block.min(per_file) as usize));
        // Whatever became of it: the others wait.
        begin.wait();
        let begun = Instant::now();
        let has_time = || case.time.is_none_or(|time| begun.elapsed() < time);
        let remote = opened?;
        let fs = remote.dfs();
        let mut done = Done::default();
        for number in files.take_while(|_| has_time()) {
            let flags = match writes {
                true => OpenFlags::READ_WRITE | OpenFlags::CREATE,
                false => OpenFlags::READ_WRITE,
            };
            let file = self.open(&remote, number, flags)?;
            let count = per_file.div_ceil(case.block);
            let calls = (0..count).take_while(|_| has_time());
            let calls = stream::iter(calls).map(|call| {
                let (at, data, file) = (call * case.block, data.clone(), &file);
                let bytes = case.block.min(per_file - at) as usize;
                async move {
                    match writes {
                        true => fs.write(file, at, &data[..bytes]).await.map(|_| bytes as u64),
                        false => fs.read(file, at, &mut vec![0; bytes]).await.map(|_| bytes as u64),
                    }
                }
            });
            let path = self.path(number);
            let moved = calls.buffer_unordered(case.depth as usize).try_for_each(|bytes| {
                done.add(Done { operations: 1, bytes, seconds: 0.0 });
                ready(Ok(()))
            });
            remote.wait(&path, moved)?;
            if writes {
                remote.wait(&path, fs.fsync(&file))?;
            }
        }
        Ok(done)
    }
}

impl Bench<'_> {
    fn run(&self, case: Case) -> Result<Row> {
        // Files that may go one after the other.
        let files = match case.kind {
            Kind::ReadSmallCache => CACHED_FILES,
            _ => case.threads,
        };
        let measured = self.measured(case, files);
        let removed = self.remove(files);
        let row = measured?;
        removed?;
        Ok(row)
    }

    fn measured(&self, case: Case, files: u32) -> Result<Row> {
        let Case { kind, block, threads, depth, .. } = case;
        let per_file = self.bytes / files as u64;
        let (mut safe_seconds, mut moved_bytes) = (None, None);
        let fill =
            Case { block: BLOCK, depth: 4, threads: 1, lasts: Duration::ZERO, time: None, ..case };
        let done = match kind {
            Kind::WriteAsync | Kind::WritePosix => {
                self.say(kind == Kind::WritePosix)?;
                let begin = Instant::now();
                let done = self.move_all(case, files, per_file, true)?;
                if kind == Kind::WriteAsync {
                    self.sync(files)?;
                }
                safe_seconds = Some(begin.elapsed().as_secs_f64());
                done
            }
            Kind::WriteBeside
            | Kind::ReadBeside
            | Kind::WriteBesideStore
            | Kind::ReadBesideStore => {
                self.say(false)?;
                let writes = kind.writes();
                if !writes {
                    self.move_all(fill, files, per_file, true)?;
                    // As what it is compared with: that was read once.
                    self.sync(files)?;
                    self.source.drop_parts();
                }
                let work = || self.move_all(case, files, per_file, writes);
                let (done, load) = match kind {
                    Kind::WriteBeside | Kind::ReadBeside => self.beside_moves(work)?,
                    _ => self.beside_store(self.load.get(), work)?,
                };
                self.load.set(load);
                moved_bytes = Some(load.bytes());
                done
            }
            Kind::ReadPool | Kind::ReadTier | Kind::ReadSmallCache => {
                self.say(false)?;
                self.move_all(fill, files, per_file, true)?;
                self.sync(files)?;
                if kind == Kind::ReadSmallCache {
                    self.keep_a_quarter()?;
                }
                if kind == Kind::ReadTier {
                    self.evict(files)?;
                }
                self.source.drop_parts();
                self.move_all(case, files, per_file, false)?
            }
        };
        let Done { operations, bytes, seconds } = done;
        let bytes_s = (bytes as f64 / seconds.max(1e-9)) as u64;
        Ok(Row {
            kind: kind.word(),
            block,
            threads,
            depth,
            operations,
            bytes,
            seconds,
            bytes_s,
            safe_seconds,
            moved_bytes,
        })
    }

    /// Says when fsync of the runs' files is to return.
    fn say(&self, is_posix: bool) -> Result<()> {
        let (remote, fs) = (&self.remote, self.remote.dfs());
        let dir = remote.lookup(&self.place.dir, true)?;
        let word = if is_posix { "posix" } else { "async" };
        remote.wait(&self.place.dir, fs.set_tier_mark(&dir, Mark::Sync, Some(word.as_bytes())))?;
        if is_posix {
            let notice = TierNotice { tier: self.tier.clone(), has_posix: true };
            remote.wait(&self.place.dir, fs.set_tier_notice(&notice))?;
        }
        Ok(())
    }

    /// Writes or reads all files, each thread those of its own, as often as the case says.
    fn move_all(&self, case: Case, files: u32, per_file: u64, writes: bool) -> Result<Done> {
        let mut all = Done::default();
        loop {
            all.add(self.move_once(case, files, per_file, writes)?);
            if all.seconds >= case.lasts.as_secs_f64() {
                return Ok(all);
            }
        }
    }

    fn move_once(&self, case: Case, files: u32, per_file: u64, writes: bool) -> Result<Done> {
        let (begin, place) = (Barrier::new(case.threads as usize + 1), &self.place);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..case.threads)
                .map(|thread| {
                    let begin = &begin;
                    let mine = (0..files).filter(move |file| file % case.threads == thread);
                    scope.spawn(move || place.move_some(case, mine, per_file, writes, begin))
                })
                .collect();
            begin.wait();
            let since = Instant::now();
            let mut all = Done::default();
            for thread in threads {
                let panicked = |_| Error::new(Code::Io, "a thread of the measurement panicked");
                all.add(thread.join().map_err(panicked)??);
            }
            all.seconds = since.elapsed().as_secs_f64();
            Ok(all)
        })
    }

    fn sync(&self, files: u32) -> Result<()> {
        let fs = self.remote.dfs();
        for number in 0..files {
            let file = self.place.open(&self.remote, number, OpenFlags::READ_WRITE)?;
            let sync = tier::sync_file(fs, &file, &self.store, &self.tier, &|_| {});
            self.remote.wait(&self.place.path(number), sync)?;
        }
        Ok(())
    }

    fn evict(&self, files: u32) -> Result<()> {
        for number in 0..files {
            let file = self.place.open(&self.remote, number, OpenFlags::READ_WRITE)?;
            let evict =
                tier::evict_file(self.remote.dfs(), &file, &self.store, &self.tier, &|_| {});
            self.remote.wait(&self.place.path(number), evict)?;
        }
        Ok(())
    }

    /// Applies a policy to the runs' files by which the pool keeps a quarter of them.
    fn keep_a_quarter(&self) -> Result<()> {
        let (remote, fs) = (&self.remote, self.remote.dfs());
        let dir = remote.lookup(&self.place.dir, true)?;
        let policy = format!("cache max={}", self.bytes / 4);
        remote
            .wait(&self.place.dir, fs.set_tier_mark(&dir, Mark::Policy, Some(policy.as_bytes())))?;
        let mut mover = Mover::new(fs, &self.store, &self.tier);
        let pass = async {
            let room = tier::room(fs).await?;
            mover.pass(room, false, &mut |_| {}).await
        };
        let passed = remote.wait(&self.place.dir, pass);
        remote.wait(&self.place.dir, fs.set_tier_mark(&dir, Mark::Policy, None))?;
        match passed?.failed_files {
            0 => Ok(()),
            count => Err(Error::new(Code::Io, format!("{count} files could not be moved"))),
        }
    }

    fn remove(&self, files: u32) -> Result<()> {
        for number in 0..files {
            let path = self.place.path(number);
            match self.remote.wait(&path, self.remote.sys.unlink(&path)) {
                Err(error) if error.code == Code::NonExist => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }
}

/// What a compressing tier cannot make smaller.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut data = vec![0; bytes];
    data.fill_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    });
    data
}
