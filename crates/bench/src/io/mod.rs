//! `bench io`: the access patterns of IOR.
//!
//! A file (or one per process) is made of *segments*; a segment holds one *block* per process;
//! a block is written in *transfers*. With a block of one transfer and many segments the
//! processes take turns through the file: the cyclic pattern of IOR-hard. Opening and closing
//! count as part of a phase, as in IOR.

mod layout;
mod task;

pub use layout::Layout;
pub(crate) use task::IoTask;

use crate::crew::{Crew, Job, Phase, Step};
use crate::place::Where;
use crate::report::{self, PhaseResult};
use crate::{servers, table, verify};
use serde::{Deserialize, Serialize};
use std::io::Write;
use types::{Error, ObjClass, Result};

/// Result of a run.
pub type Report = report::Report<Options>;

/// Most processes of a run.
pub(crate) const PROCESSES_MAX: u32 = 4096;

/// What to run; IOR's options in brackets.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Number of processes, 1 to 4,096.
    pub processes: u32,
    /// Bytes per call, a multiple of 8 [-t].
    pub transfer_bytes: u64,
    /// Bytes a process writes in a row, a multiple of the transfer [-b].
    pub block_bytes: u64,
    /// Number of segments [-s].
    pub segments: u64,
    /// A file per process instead of one for all [-F].
    pub file_per_process: bool,
    /// A process reads what its neighbour wrote, so that no cache of its own helps [-C].
    pub reorder: bool,
    /// Transfers in random order [-z].
    pub random: bool,
    /// Write [-w].
    pub write: bool,
    /// Read [-r]. Without `write` the files must be there from a run with `keep`.
    pub read: bool,
    /// After writing read back and compare, as a phase of its own [-W].
    pub verify_write: bool,
    /// Compare what is read [-R]. A run that reads files of an earlier one needs its `seed`.
    pub verify_read: bool,
    /// Make data durable before closing [-e].
    pub fsync: bool,
    /// Leave the files [-k].
    pub keep: bool,
    /// Repetitions [-i].
    pub iterations: u32,
    /// Writers stop after so many seconds, all at the same transfer [-D, wear-out on].
    pub stonewall_s: Option<f64>,
    /// Object class of the files; `None`: the container's choice.
    pub class: Option<ObjClass>,
    /// Chunk size of the files in bytes; 0: the container's choice.
    pub chunk_bytes: u64,
    /// Decides data and random order [-G].
    pub seed: u64,
}

impl Default for Options {
    /// Two processes write and read 64 MiB each in one file, 1 MiB at a time.
    fn default() -> Options {
        Options {
            processes: 2,
            transfer_bytes: 1 << 20,
            block_bytes: 64 << 20,
            segments: 1,
            file_per_process: false,
            reorder: true,
            random: false,
            write: true,
            read: true,
            verify_write: false,
            verify_read: false,
            fsync: false,
            keep: false,
            iterations: 1,
            stonewall_s: None,
            class: None,
            chunk_bytes: 0,
            seed: 1,
        }
    }
}

impl Options {
    /// IO500's IOR-easy: a file per process, large transfers in sequence.
    pub fn easy(processes: u32, bytes_per_process: u64) -> Options {
        Options {
            processes,
            block_bytes: bytes_per_process,
            file_per_process: true,
            ..Options::default()
        }
    }

    /// IO500's IOR-hard: one file, 47,008 bytes at a time, the processes taking turns.
    pub fn hard(processes: u32, segments: u64) -> Options {
        Options {
            processes,
            transfer_bytes: 47_008,
            block_bytes: 47_008,
            segments,
            ..Options::default()
        }
    }

    pub fn layout(&self) -> Layout {
        Layout {
            processes: self.processes,
            transfer_bytes: self.transfer_bytes,
            transfers_per_block: self.block_bytes / self.transfer_bytes.max(1),
            segments: self.segments,
            file_per_process: self.file_per_process,
        }
    }

    /// `Inval`, naming the option, when these make no run.
    pub fn check(&self) -> Result<()> {
        let wrong = |text: String| Err(Error::inval(text));
        if self.processes == 0 || self.processes > PROCESSES_MAX {
            return wrong(format!("{} processes: want 1 to {PROCESSES_MAX}", self.processes));
        }
        if self.transfer_bytes == 0
            || !self.transfer_bytes.is_multiple_of(verify::WORD_BYTES as u64)
        {
            return wrong(format!(
                "transfer size {} must be a multiple of 8 bytes, and not 0",
                self.transfer_bytes
            ));
        }
        if self.transfer_bytes > 1 << 30 {
            return wrong(format!("transfer size {} is over 1 GiB", self.transfer_bytes));
        }
        if self.block_bytes == 0 || !self.block_bytes.is_multiple_of(self.transfer_bytes) {
            return wrong(format!(
                "block size {} must be a multiple of the transfer size {}",
                self.block_bytes, self.transfer_bytes
            ));
        }
        if self.segments == 0 || self.iterations == 0 {
            return wrong("segments and iterations must be at least 1".into());
        }
        let total =
            u128::from(self.block_bytes) * u128::from(self.segments) * u128::from(self.processes);
        if total > i64::MAX as u128 {
            return wrong("block size x segments x processes is more than a file can hold".into());
        }
        if !self.write && !self.read {
            return wrong("neither writing nor reading leaves nothing to do".into());
        }
        if self.verify_write && !self.write {
            return wrong("checking what was written needs writing".into());
        }
        if self.stonewall_s.is_some_and(|seconds| !(seconds > 0.0 && seconds < 1e6)) {
            return wrong("the time limit must be more than 0 seconds".into());
        }
        if self.chunk_bytes != 0 {
            types::props::check_chunk_bytes(self.chunk_bytes)?;
        }
        Ok(())
    }
}

/// Runs a benchmark; lines for people go to `out` as they come up.
///
/// Errors: those of [`Options::check`]; the first error of a process; `Csum` when data read are
/// not what was written. Processes that are still running then are stopped, and what they left
/// behind stays.
pub fn run(options: &Options, place: &Where, out: &mut dyn Write) -> Result<Report> {
    options.check()?;
    let say = |out: &mut dyn Write, text: String| {
        writeln!(out, "{text}").map_err(|error| Error::io("printing results", error))
    };
    let layout = options.layout();
    say(
        out,
        format!(
            "io: {} processes, {} x {} transfers of {} in {} segments, {}{}: {} in all, at {place}",
            options.processes,
            layout.transfers_per_process(),
            if options.random { "random" } else { "sequential" },
            table::bytes(options.transfer_bytes),
            options.segments,
            if options.file_per_process { "file per process" } else { "shared file" },
            if options.reorder { ", reordered reads" } else { "" },
            table::bytes(layout.bytes_in_all()),
        ),
    )?;
    let pids = servers::local_pids(place)?;
    let job = Job::Io(options.clone());
    let mut crew = Crew::start(&job, place, options.processes)?;
    let mut results = Vec::new();
    let mut item_count = layout.transfers_per_process();
    for iteration in 0..options.iterations {
        item_count = if options.write { layout.transfers_per_process() } else { item_count };
        for (phase, wanted) in [
            (Phase::Prepare, true),
            (Phase::Write, options.write),
            (Phase::CheckWrite, options.verify_write),
            (Phase::Read, options.read),
            (Phase::CleanOwn, !options.keep),
            (Phase::Clean, !options.keep),
        ] {
            if !wanted {
                continue;
            }
            let wall_ns = options.stonewall_s.filter(|_| phase == Phase::Write);
            let wall_ns = wall_ns.map(|seconds| (seconds * 1e9) as u64);
            let done = crew.run(Step { phase, iteration, item_count, wall_ns }, &pids)?;
            item_count = done.item_count;
            if phase.is_measured() {
                let result = PhaseResult::from_samples(phase, iteration, &done);
                results.push(result);
            }
        }
    }
    crew.finish()?;
    let report = Report::new("io", options.clone(), place, results);
    say(out, report_table(&report).to_string())?;
    Ok(report)
}

/// IOR's summary: bandwidth and rates per phase, over the iterations.
fn report_table(report: &Report) -> table::Table {
    let mut table =
        table::Table::new(&["phase", "max", "min", "mean", "op/s", "CPU µs/op", "seconds"]);
    for phase in &report.summary {
        table.row(vec![
            phase.phase.name().to_string(),
            table::bandwidth(phase.bytes_per_s.max),
            table::bandwidth(phase.bytes_per_s.min),
            table::bandwidth(phase.bytes_per_s.mean),
            table::rate(phase.ops_per_s.mean),
            format!("{:.1}", phase.cpu_us_per_op.mean),
            format!("{:.3}", phase.seconds.mean),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_presets_are_sound() {
        Options::default().check().unwrap();
        Options::easy(2, 64 << 20).check().unwrap();
        let hard = Options::hard(2, 100);
        hard.check().unwrap();
        assert_eq!(hard.layout().bytes_in_all(), 2 * 100 * 47_008);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let good = Options::default;
        for (options, word) in [
            (Options { processes: 0, ..good() }, "processes"),
            (Options { transfer_bytes: 0, ..good() }, "transfer"),
            (Options { transfer_bytes: 100, ..good() }, "transfer"),
            (Options { block_bytes: (1 << 20) + 8, ..good() }, "block"),
            (Options { block_bytes: 0, ..good() }, "block"),
            (Options { segments: 0, ..good() }, "segments"),
            (Options { segments: u64::MAX, ..good() }, "segments"),
            (Options { write: false, read: false, ..good() }, "reading"),
            (Options { write: false, verify_write: true, ..good() }, "writing"),
            (Options { stonewall_s: Some(f64::NAN), ..good() }, "limit"),
            (Options { chunk_bytes: 1000, ..good() }, "chunk"),
        ] {
            let error = options.check().unwrap_err().to_string();
            assert!(error.contains(word), "{error} does not name {word}");
        }
    }

    #[test]
    fn options_survive_json_and_typos_are_named() {
        let options = Options { class: Some(ObjClass::SX), ..Options::hard(3, 7) };
        let text = serde_json::to_string(&options).unwrap();
        assert_eq!(serde_json::from_str::<Options>(&text).unwrap(), options);
        let error = serde_json::from_str::<Options>(r#"{"procs":1}"#).unwrap_err();
        assert!(error.to_string().contains("procs"));
    }
}
