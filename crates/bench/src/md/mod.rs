//! `bench md`: the access patterns of mdtest.
//!
//! Every process makes, asks for, reads and removes its number of files, in a directory of its
//! own (mdtest-easy of IO500: empty files) or all in one (mdtest-hard: files of 3,901 bytes).
//! Attributes and data are those of a neighbour's files, so that nobody profits from what it
//! just made itself.

mod task;

pub(crate) use task::MdTask;

use crate::crew::{Crew, Job, Phase, Step};
use crate::io::PROCESSES_MAX;
use crate::place::Where;
use crate::report::{self, PhaseResult};
use crate::{servers, table};
use serde::{Deserialize, Serialize};
use std::io::Write;
use types::{Error, ObjClass, Result};

/// Result of a run.
pub type Report = report::Report<Options>;

/// What to run; mdtest's options in brackets.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Number of processes, 1 to 4,096.
    pub processes: u32,
    /// Files of each process [-n].
    pub files_per_process: u64,
    /// A directory per process instead of one for all [-u].
    pub unique_dir: bool,
    /// Bytes written to each new file; at most 16 MiB [-w].
    pub write_bytes: u64,
    /// Bytes read from each file; at most `write_bytes` [-e].
    pub read_bytes: u64,
    /// Stat and read the files of the process so many ranks further; 0: one's own [-N].
    pub stride: u32,
    /// Make files [-C].
    pub create: bool,
    /// Ask for their attributes [-T].
    pub stat: bool,
    /// Open and read them [-E].
    pub read: bool,
    /// Remove them, and then the directories if those are empty [-r].
    pub remove: bool,
    /// Compare what is read with what was written [-X].
    pub verify: bool,
    /// Make each file durable before closing it [-y].
    pub fsync: bool,
    /// Repetitions [-i].
    pub iterations: u32,
    /// Creators stop after so many seconds, all at the same number of files [-W].
    pub stonewall_s: Option<f64>,
    /// Number in the name of each process's first file, for runs in a directory that has files.
    pub first_file: u64,
    /// Object class of the directories; `None`: the container's choice.
    pub dir_class: Option<ObjClass>,
    /// Object class of the files; `None`: the container's choice.
    pub class: Option<ObjClass>,
    /// Decides the files' data.
    pub seed: u64,
}

impl Default for Options {
    /// Two processes, 10,000 empty files each, in directories of their own.
    fn default() -> Options {
        Options {
            processes: 2,
            files_per_process: 10_000,
            unique_dir: true,
            write_bytes: 0,
            read_bytes: 0,
            stride: 1,
            create: true,
            stat: true,
            read: true,
            remove: true,
            verify: false,
            fsync: false,
            iterations: 1,
            stonewall_s: None,
            first_file: 0,
            dir_class: None,
            class: None,
            seed: 1,
        }
    }
}

impl Options {
    /// IO500's mdtest-easy: empty files, a directory per process.
    pub fn easy(processes: u32, files_per_process: u64) -> Options {
        Options { processes, files_per_process, ..Options::default() }
    }

    /// IO500's mdtest-hard: files of 3,901 bytes, all in one directory.
    pub fn hard(processes: u32, files_per_process: u64) -> Options {
        Options {
            unique_dir: false,
            write_bytes: 3901,
            read_bytes: 3901,
            ..Options::easy(processes, files_per_process)
        }
    }

    /// `Inval`, naming the option, when these make no run.
    pub fn check(&self) -> Result<()> {
        let wrong = |text: String| Err(Error::inval(text));
        if self.processes == 0 || self.processes > PROCESSES_MAX {
            return wrong(format!("{} processes: want 1 to {PROCESSES_MAX}", self.processes));
        }
        if self.files_per_process == 0 || self.iterations == 0 {
            return wrong("files per process and iterations must be at least 1".into());
        }
        if self.files_per_process > 1 << 40 || self.first_file > 1 << 40 {
            return wrong("files per process and the first file's number go up to 2^40".into());
        }
        if self.write_bytes > 16 << 20 {
            return wrong(format!("{} bytes per file: want at most 16 MiB", self.write_bytes));
        }
        if self.read_bytes > self.write_bytes {
            return wrong(format!(
                "reading {} bytes of files of {} bytes is not possible",
                self.read_bytes, self.write_bytes
            ));
        }
        if !(self.create || self.stat || self.read || self.remove) {
            return wrong("no phase was asked for".into());
        }
        if self.stonewall_s.is_some_and(|seconds| !(seconds > 0.0 && seconds < 1e6)) {
            return wrong("the time limit must be more than 0 seconds".into());
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
    say(
        out,
        format!(
            "md: {} processes, {} files of {} each, {}, at {place}",
            options.processes,
            options.files_per_process,
            table::bytes(options.write_bytes),
            if options.unique_dir { "a directory per process" } else { "one directory" },
        ),
    )?;
    let pids = servers::local_pids(place)?;
    let job = Job::Md(options.clone());
    let mut crew = Crew::start(&job, place, options.processes)?;
    let mut results = Vec::new();
    let mut item_count = options.files_per_process;
    for iteration in 0..options.iterations {
        item_count = if options.create { options.files_per_process } else { item_count };
        for (phase, wanted) in [
            (Phase::Prepare, true),
            (Phase::PrepareOwn, true),
            (Phase::Create, options.create),
            (Phase::Stat, options.stat),
            (Phase::Read, options.read),
            (Phase::Remove, options.remove),
            (Phase::CleanOwn, options.remove),
            (Phase::Clean, options.remove),
        ] {
            if !wanted {
                continue;
            }
            let wall_ns = options.stonewall_s.filter(|_| phase == Phase::Create);
            let wall_ns = wall_ns.map(|seconds| (seconds * 1e9) as u64);
            let done = crew.run(Step { phase, iteration, item_count, wall_ns }, &pids)?;
            item_count = done.item_count;
            if phase.is_measured() {
                results.push(PhaseResult::from_samples(phase, iteration, &done));
            }
        }
    }
    crew.finish()?;
    let report = Report::new("md", options.clone(), place, results);
    say(out, report_table(&report).to_string())?;
    Ok(report)
}

/// mdtest's summary: rates per phase, over the iterations.
fn report_table(report: &Report) -> table::Table {
    let mut table =
        table::Table::new(&["phase", "max op/s", "min op/s", "mean op/s", "CPU µs/op", "seconds"]);
    for phase in &report.summary {
        table.row(vec![
            phase.phase.name().to_string(),
            table::rate(phase.ops_per_s.max),
            table::rate(phase.ops_per_s.min),
            table::rate(phase.ops_per_s.mean),
            format!("{:.2}", phase.cpu_us_per_op.mean),
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
        Options::easy(2, 100).check().unwrap();
        let hard = Options::hard(2, 100);
        hard.check().unwrap();
        assert_eq!((hard.write_bytes, hard.unique_dir), (3901, false));
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let good = Options::default;
        let none = Options { create: false, stat: false, read: false, remove: false, ..good() };
        for (options, word) in [
            (Options { processes: 5000, ..good() }, "processes"),
            (Options { files_per_process: 0, ..good() }, "files"),
            (Options { first_file: u64::MAX, ..good() }, "first"),
            (Options { write_bytes: 1 << 30, ..good() }, "16 MiB"),
            (Options { read_bytes: 1, ..good() }, "reading"),
            (Options { stonewall_s: Some(-1.0), ..good() }, "limit"),
            (none, "phase"),
        ] {
            let error = options.check().unwrap_err().to_string();
            assert!(error.contains(word), "{error} does not name {word}");
        }
    }
}
