//! What a durable store costs beside the bare device, in one run: small synced updates against
//! an appender that writes batches of the same size; large writes and reads, as many in flight,
//! and small random reads against direct I/O on files of the same file system.
//!
//! The store's side runs over everything a user's call runs over (client, shared memory, engine,
//! log), with durability `wal`; the yardsticks are threads that do nothing but the I/O.

mod device;
mod load;

pub(crate) use load::StoreTask;
pub use load::{Kind, Load};

use crate::crew::{Crew, Job, Phase, PhaseSamples, Step};
use crate::place::Where;
use crate::report::{Machine, write_json};
use crate::suite::bed::Bed;
use crate::suite::collect::{self, Collector};
use crate::suite::verdict::{self, Goal, Verdict};
use crate::suite::{Figure, say};
use crate::{io, servers};
use client::Client;
use device::Sync;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use types::{Durability, Error, ObjClass, Result};
use wire::control::{Name, OpenMode};

const MIB: u64 = 1 << 20;
/// Bytes of a small value, as a directory entry has.
const VALUE_BYTES: u64 = 150;
/// Bytes of the file that the bare appender goes round in.
const RING_BYTES: u64 = 64 * MIB;

/// What to run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Client processes, and threads of a yardstick.
    pub processes: u32,
    /// Small updates in flight in each process, one measurement for each.
    pub depths: Vec<u32>,
    /// Large transfers in flight in each process, and of each yardstick beside it.
    pub transfers: u32,
    /// Rounds of alternation, at least 1.
    pub rounds: u32,
    /// Factor on all amounts of work.
    pub scale: f64,
    /// A directory of the file system to measure.
    pub dir: PathBuf,
    /// Where to write the report as JSON; `None`: nowhere.
    pub results: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            processes: 2,
            depths: vec![1, 8, 64],
            transfers: 4,
            rounds: 3,
            scale: 1.0,
            dir: std::env::temp_dir(),
            results: None,
        }
    }
}

impl Options {
    /// `Inval`, naming the option, when these make no run.
    pub fn check(&self) -> Result<()> {
        if self.processes == 0 || self.processes > 256 {
            return Err(Error::inval("processes: want 1 to 256"));
        }
        if self.depths.is_empty() || self.depths.iter().any(|depth| !(1..=4096).contains(depth)) {
            return Err(Error::inval("depth: want 1 to 4,096"));
        }
        if self.transfers == 0 || self.transfers > 256 {
            return Err(Error::inval("transfers: want 1 to 256"));
        }
        if self.rounds == 0 || self.rounds > 1000 {
            return Err(Error::inval("rounds: want 1 to 1,000"));
        }
        if !(self.scale > 0.0 && self.scale <= 1000.0) {
            return Err(Error::inval("scale: want more than 0, at most 1,000"));
        }
        Ok(())
    }

    fn scaled(&self, amount: u64, min: u64) -> u64 {
        ((amount as f64 * self.scale) as u64).max(min)
    }

    /// Bytes of each process's file.
    fn file_bytes(&self) -> u64 {
        self.scaled(512, 4) * MIB
    }
}

/// What came out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// As it was run.
    pub options: Options,
    /// What it ran on.
    pub machine: Machine,
    pub figures: Vec<Figure>,
    /// The promises and what became of them.
    pub verdicts: Vec<Verdict>,
    /// Measurements that failed: name and error.
    pub failures: Vec<(String, String)>,
}

/// Over, under, goal; beside the small updates, of which there is one for each depth.
const GOALS: [(&str, &str, &str, f64); 3] = [
    ("1 MiB write / direct", "write 1m store", "write 1m direct", 0.85),
    ("1 MiB read / direct", "read 1m store", "read 1m direct", 0.85),
    ("4 KiB random read / direct", "random read 4k store", "random read 4k direct", 0.7),
];

/// What small updates must reach of the appender.
const UPDATES_GOAL: f64 = 0.7;

/// Runs the experiment. `binary` is the `azekura` command, expected to be this very program.
///
/// Errors: when no system can be started, or `out` or the results cannot be written. Failed
/// measurements and broken promises are in the report.
pub fn run(options: &Options, binary: &Path, out: &mut dyn Write) -> Result<Report> {
    options.check()?;
    let bed = Bed::start_with(&options.dir, binary, Durability::Wal)?;
    let per_run = options.file_bytes() * u64::from(options.processes);
    // Each round writes where nothing was before.
    let pool_bytes = per_run * (2 + u64::from(options.rounds)) + (4 << 30);
    let place = bed.make_files("store", pool_bytes, false)?;
    let mut all = Collector::default();
    for round in 1..=options.rounds {
        say(out, &format!("round {round} of {}", options.rounds))?;
        let mut part = |name: &str, work: &mut dyn FnMut(&mut Collector) -> Result<()>| {
            let outcome = work(&mut all);
            if let Err(error) = outcome {
                all.fail(name, &error);
                return say(out, &format!("  {name}: {error}"));
            }
            say(out, &format!("  {name}"))
        };
        for (index, &depth) in options.depths.iter().enumerate() {
            let name = format!("updates, {depth} in flight");
            let run = round * options.depths.len() as u32 + index as u32;
            part(&name, &mut |all| updates(options, (depth, run), &bed, &place, all))?;
        }
        part("large transfers", &mut |all| large(options, &bed, &place, round, all))?;
        part("random reads", &mut |all| random(options, &bed, &place, round, all))?;
    }
    drop(bed);
    let of_updates = options.depths.iter().map(|depth| {
        let name = format!("small updates / appender, {depth} in flight");
        let [store, appender] = ["store", "appender"].map(|side| updates_name(side, *depth));
        Verdict::of(&name, "x", Goal::AtLeast(UPDATES_GOAL), &all.ratios(&store, &appender))
    });
    let others = GOALS.iter().map(|(name, over, under, goal)| {
        Verdict::of(name, "x", Goal::AtLeast(*goal), &all.ratios(over, under))
    });
    let verdicts = of_updates.chain(others).collect();
    let (figures, failures) = all.into_parts();
    let report =
        Report { options: options.clone(), machine: Machine::here(), figures, verdicts, failures };
    say(out, &collect::table(&report.figures).to_string())?;
    say(out, &verdict::table(&report.verdicts).to_string())?;
    if let Some(path) = &options.results {
        write_json(path, &report)?;
    }
    Ok(report)
}

/// Name of a figure of the small updates.
fn updates_name(what: &str, depth: u32) -> String {
    format!("updates {what}, {depth} in flight")
}

/// Small synced updates of new keys, then the bare appender with the batches that the store has
/// made. `run` tells the runs of a report apart.
fn updates(
    options: &Options,
    (depth, run): (u32, u32),
    bed: &Bed,
    place: &Where,
    all: &mut Collector,
) -> Result<()> {
    // A second or two at any depth.
    let count = options.scaled(200_000, 500).min(options.scaled(10_000, 500) * u64::from(depth));
    let load = Load { kind: Kind::Updates, bytes: VALUE_BYTES, depth };
    let before = batches(bed.client()?)?;
    let mut crew = Crew::start(&Job::Store(load), place, options.processes)?;
    let pids = servers::local_pids(place)?;
    let step = Step { phase: Phase::Write, iteration: run, item_count: count, wall_ns: None };
    let done = crew.run(step, &pids)?;
    crew.finish()?;
    let (ops, seconds) = done_in(&done);
    let name = |what: &str| updates_name(what, depth);
    all.put(&name("store"), "op/s", ops as f64 / seconds);
    if let Some(cpu_ns) = done.server_cpu_ns {
        all.put(&name("engine cpu"), "µs/op", cpu_ns as f64 / 1e3 / ops as f64);
    }
    let after = batches(bed.client()?)?;
    let count = (after.count - before.count).max(1);
    let records = (after.records - before.records) as f64 / count as f64;
    let bytes = (after.bytes - before.bytes) / count;
    all.put(&name("per batch"), "records", records);
    all.put(&name("bytes per batch"), "B", bytes as f64);

    // As many appenders as there are logs.
    let logs = after.logs.max(1);
    let each = (count / u64::from(logs)).max(50);
    let files = (0..logs)
        .map(|index| {
            let path = bed.root().join(format!("appender{index}"));
            let file = device::open(&path, RING_BYTES, Sync::Each)?;
            device::fill(&file, RING_BYTES)?;
            Ok(file)
        })
        .collect::<Result<Vec<_>>>()?;
    let seconds = device::together(logs, |index| {
        device::append(&files[index as usize], RING_BYTES, bytes + 64, each)
    })?;
    let written = each as f64 * f64::from(logs) * records;
    all.put(&name("appender"), "op/s", written / seconds);
    Ok(())
}

/// What the logs of all targets have written.
struct Batches {
    count: u64,
    records: u64,
    bytes: u64,
    logs: u32,
}

fn batches(client: &Client) -> Result<Batches> {
    let stats = client.block_on(async {
        let pool = client.pool_open(&Name::Label("store".into()), OpenMode::ReadOnly).await?;
        let stats = pool.store_stats().await?;
        pool.close().await?;
        Ok::<_, Error>(stats)
    })?;
    let mut sum = Batches { count: 0, records: 0, bytes: 0, logs: 0 };
    for log in stats.iter().filter_map(|(_, stat)| stat.as_ref()?.log.as_ref()) {
        sum.count += log.batch_records.count;
        sum.records += log.batch_records.sum;
        sum.bytes += log.batch_bytes.sum;
        sum.logs += 1;
    }
    Ok(sum)
}

/// Operations of a step, and the time from the first worker's start to the last one's end,
/// seconds.
fn done_in(done: &PhaseSamples) -> (u64, f64) {
    let first = done.samples.iter().map(|sample| sample.start_ns).min().unwrap_or(0);
    let last = done.samples.iter().map(|sample| sample.end_ns).max().unwrap_or(0);
    let ops = done.samples.iter().map(|sample| sample.ops).sum();
    (ops, (last - first) as f64 / 1e9)
}

/// Arrays written and read in transfers of 1 MiB, and the same by direct I/O. Both sides write
/// to places that are reserved and were never written, as new data does: the file system has to
/// note that they are written now, which costs as much as the transfer.
fn large(
    options: &Options,
    bed: &Bed,
    place: &Where,
    round: u32,
    all: &mut Collector,
) -> Result<()> {
    let pieces = options.file_bytes() / MIB;
    let load = Load { kind: Kind::Transfers, bytes: MIB, depth: options.transfers };
    let mut crew = Crew::start(&Job::Store(load), place, options.processes)?;
    let pids = servers::local_pids(place)?;
    for phase in [Phase::Write, Phase::Read] {
        let step = Step { phase, iteration: round, item_count: pieces, wall_ns: None };
        let done = crew.run(step, &pids)?;
        let (ops, seconds) = done_in(&done);
        let name = format!("{} 1m store", phase.name());
        all.put(&name, "MiB/s", ops as f64 / seconds);
        if let Some(cpu_ns) = done.server_cpu_ns {
            all.put(&format!("{name} engine cpu"), "µs/op", cpu_ns as f64 / 1e3 / ops as f64);
        }
    }
    crew.finish()?;
    let files = direct_files(options, bed, "large", false)?;
    let total = (pieces * u64::from(options.processes)) as f64;
    // As many in flight as in the store's processes, on the same number of files.
    let threads = options.processes * options.transfers;
    let passes = [("write 1m direct", true), ("read 1m direct", false), ("write 1m again", true)];
    for (name, write) in passes {
        let cursors: Vec<AtomicU64> = files.iter().map(|_| AtomicU64::new(0)).collect();
        let seconds = device::together(threads, |index| {
            let of = index as usize % files.len();
            device::transfer(&files[of], &cursors[of], MIB, pieces, write)
        })?;
        all.put(name, "MiB/s", total / seconds);
    }
    Ok(())
}

/// 4 KiB at random places of files written before, and the same by direct I/O.
fn random(
    options: &Options,
    bed: &Bed,
    place: &Where,
    round: u32,
    all: &mut Collector,
) -> Result<()> {
    let bytes = (options.file_bytes() / 8 / MIB).max(1) * MIB;
    let written = io::Options {
        keep: true,
        read: false,
        class: Some(ObjClass::SX),
        ..io::Options::easy(options.processes, bytes)
    };
    let place = place.join(&format!("random{round}"));
    io::run(&written, &place, &mut std::io::sink())?;
    let pattern = io::Options {
        transfer_bytes: 4096,
        random: true,
        write: false,
        read: true,
        keep: false,
        ..written
    };
    let report = io::run(&pattern, &place, &mut std::io::sink())?;
    for phase in report.summary.iter().filter(|phase| phase.phase == Phase::Read) {
        all.put("random read 4k store", "op/s", phase.ops_per_s.median);
        all.put("random read 4k store cpu", "µs/op", phase.cpu_us_per_op.median);
    }
    let files = direct_files(options, bed, "random", true)?;
    let count = bytes / 4096;
    let seconds = device::together(options.processes, |index| {
        let seed = u64::from(round) * 1000 + u64::from(index);
        device::read(&files[index as usize], bytes, 4096, count, Some(seed))
    })?;
    all.put(
        "random read 4k direct",
        "op/s",
        (count * u64::from(options.processes)) as f64 / seconds,
    );
    Ok(())
}

/// A new file per process, preallocated; `filled`: and written.
fn direct_files(
    options: &Options,
    bed: &Bed,
    name: &str,
    filled: bool,
) -> Result<Vec<std::fs::File>> {
    let bytes = options.file_bytes();
    (0..options.processes)
        .map(|index| {
            let path = bed.root().join(format!("{name}{index}"));
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io(format!("removing {}", path.display()), error));
                }
                _ => {}
            }
            let file = device::open(&path, bytes, Sync::Late)?;
            if filled {
                device::fill(&file, bytes)?;
            }
            Ok(file)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_by_name() {
        Options::default().check().unwrap();
        for (options, word) in [
            (Options { processes: 0, ..Options::default() }, "processes"),
            (Options { depths: vec![8, 0], ..Options::default() }, "depth"),
            (Options { transfers: 0, ..Options::default() }, "transfers"),
            (Options { rounds: 0, ..Options::default() }, "rounds"),
            (Options { scale: f64::NAN, ..Options::default() }, "scale"),
        ] {
            assert!(options.check().unwrap_err().to_string().contains(word));
        }
    }
}
