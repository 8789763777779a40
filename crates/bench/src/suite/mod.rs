//! `make bench`: what the project promises of its speed, measured on this machine in one run.
//!
//! The suite starts systems of its own (one engine, two targets, durability `memory`) on
//! `/dev/shm` and holds them against the kernel's tmpfs there, through the very same pattern code. What copies and codes cost is seen on
//! another one, of three engines, by turns with the class that has neither.
//! Absolute rates mean little on a shared machine, so every promise is a ratio of two runs of
//! the same round: rounds alternate between the sides, and of the rounds' ratios the median
//! counts. A measurement that fails is reported and does not stop the others.

pub(crate) mod bed;
pub(crate) mod collect;
mod growth;
pub(crate) mod hop;
mod pattern;
mod protected;
mod rounds;
mod stream;
pub(crate) mod verdict;

pub use collect::Figure;
pub use verdict::{Goal, Verdict};

use crate::clock;
use crate::report::{Machine, write_json};
use bed::Bed;
use collect::Collector;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use types::{Error, Result};

/// A part of the suite, with a system of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Directories with many files.
    Growth,
    /// Files and metadata against tmpfs and bare exchanges, in shared memory and over TCP.
    Rounds,
    /// Copies and codes against the class without them.
    Protected,
}

impl Part {
    /// In the order in which they are run.
    pub const ALL: [Part; 3] = [Part::Growth, Part::Rounds, Part::Protected];

    /// As the options of the command have it.
    pub fn name(self) -> &'static str {
        match self {
            Part::Growth => "growth",
            Part::Rounds => "rounds",
            Part::Protected => "protected",
        }
    }
}

impl std::str::FromStr for Part {
    type Err = Error;

    /// `Inval`, naming the parts there are.
    fn from_str(text: &str) -> Result<Part> {
        let found = Part::ALL.into_iter().find(|part| part.name() == text);
        found.ok_or_else(|| {
            Error::inval(format!("{text}: want one of {}", Part::ALL.map(Part::name).join(", ")))
        })
    }
}

/// What to measure, and how long.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// What of the suite, at least one part.
    pub parts: Vec<Part>,
    /// Rounds of alternation, at least 1.
    pub rounds: u32,
    /// Client processes, at least 2.
    pub processes: u32,
    /// Factor on all amounts of work: 1 for figures worth reading, less to try the suite.
    pub scale: f64,
    /// A directory in memory for the system and for the yardstick.
    pub dir: PathBuf,
    /// Where to write the report as JSON; `None`: nowhere.
    pub results: Option<PathBuf>,
    /// Where to draw what was reached of each goal, as SVG; `None`: nowhere.
    pub plot: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            parts: Part::ALL.to_vec(),
            rounds: 3,
            processes: 2,
            scale: 1.0,
            dir: "/dev/shm".into(),
            results: None,
            plot: None,
        }
    }
}

impl Options {
    /// `Inval`, naming the option, when these make no run.
    pub fn check(&self) -> Result<()> {
        if self.parts.is_empty() {
            return Err(Error::inval("parts: want one at least"));
        }
        if self.rounds == 0 || self.rounds > 1000 {
            return Err(Error::inval("rounds: want 1 to 1,000"));
        }
        if self.processes < 2 || self.processes > crate::io::PROCESSES_MAX {
            return Err(Error::inval("processes: want 2 to 4,096"));
        }
        if !(self.scale > 0.0 && self.scale <= 1000.0) {
            return Err(Error::inval("scale: want more than 0, at most 1,000"));
        }
        Ok(())
    }

    /// An amount of work at this scale, at least `min`.
    pub(crate) fn scaled(&self, amount: u64, min: u64) -> u64 {
        ((amount as f64 * self.scale) as u64).max(min)
    }
}

/// Everything the suite found out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// As it was run.
    pub options: Options,
    /// What it ran on.
    pub machine: Machine,
    /// Start, seconds since 1970.
    pub started_s: u64,
    /// All figures, by name.
    pub figures: Vec<Figure>,
    /// The promises and what became of them.
    pub verdicts: Vec<Verdict>,
    /// Measurements that failed: name and error.
    pub failures: Vec<(String, String)>,
}

impl Report {
    /// True when every measurement worked and every promise was kept.
    pub fn all_kept(&self) -> bool {
        self.failures.is_empty() && self.verdicts.iter().all(|verdict| verdict.reached)
    }
}

/// Runs the suite. `binary` is the `azekura` command: it starts and stops the system, and is
/// expected to be this very program, so that workers and engines are of one build.
///
/// Errors: when no system can be started, or `out` or the results cannot be written. Failed
/// measurements and broken promises are in the report.
pub fn run(options: &Options, binary: &Path, out: &mut dyn Write) -> Result<Report> {
    options.check()?;
    let started_s =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let machine = Machine::here();
    say(out, &header(options, &machine))?;
    let mut all = Collector::default();
    let has = |part| options.parts.contains(&part);
    // Each has a system of its own: memory that an earlier benchmark freed would be used again unseen.
    if has(Part::Growth) {
        let bed = Bed::start(&options.dir, binary)?;
        all.put("up seconds", "s", bed.up_seconds());
        growth::measure(options, &bed, &mut all, out)?;
    }
    if has(Part::Rounds) {
        let bed = Bed::start(&options.dir, binary)?;
        all.put("up seconds", "s", bed.up_seconds());
        rounds::measure(options, &bed, &mut all, out)?;
        match idle_percent(&bed, options) {
            Ok(percent) => all.put("idle cpu", "%", percent),
            Err(error) => all.fail("idle cpu", &error),
        }
    }
    if has(Part::Protected) {
        protected::measure(options, binary, &mut all, out)?;
    }
    let verdicts = verdict::judge(&options.parts, &all);
    let (figures, failures) = all.into_parts();
    let report =
        Report { options: options.clone(), machine, started_s, figures, verdicts, failures };
    say(out, &collect::table(&report.figures).to_string())?;
    say(out, &verdict::table(&report.verdicts).to_string())?;
    for (name, error) in &report.failures {
        say(out, &format!("failed: {name}: {error}"))?;
    }
    let kept = report.verdicts.iter().filter(|verdict| verdict.reached).count();
    say(out, &format!("{kept} of {} goals reached", report.verdicts.len()))?;
    if let Some(dir) = &options.results {
        write_results(dir, &report)?;
    }
    if let Some(path) = &options.plot {
        std::fs::write(path, verdict::picture(&report.verdicts).svg())
            .map_err(|error| Error::io(format!("writing {}", path.display()), error))?;
    }
    Ok(report)
}

/// CPU use of the engines while nothing happens, percent of one CPU.
fn idle_percent(bed: &Bed, options: &Options) -> Result<f64> {
    let pids = bed.engine_pids()?;
    // What the last measurement left to do is not idleness.
    std::thread::sleep(Duration::from_millis(500));
    let cpu_ns = || pids.iter().map(|&pid| clock::process_cpu_ns(pid)).sum::<Result<u64>>();
    let (cpu_before, before) = (cpu_ns()?, clock::monotonic_ns());
    std::thread::sleep(Duration::from_secs_f64((5.0 * options.scale).clamp(0.2, 5.0)));
    let (cpu_after, after) = (cpu_ns()?, clock::monotonic_ns());
    Ok((cpu_after - cpu_before) as f64 * 100.0 / (after - before) as f64)
}

fn header(options: &Options, machine: &Machine) -> String {
    let mut text = format!(
        "azekura {} on {} x {}, {} memory, kernel {}\n\
         {} rounds, {} client processes, 1 engine with 2 targets (copies: 3 with 1), durability memory, yardstick {}",
        machine.version,
        machine.cpu_count,
        machine.cpu,
        types::size::format(machine.memory_bytes),
        machine.kernel,
        options.rounds,
        options.processes,
        options.dir.display(),
    );
    if !machine.optimized {
        text.push_str("\nthis is an unoptimized build: its figures say nothing about speed");
    }
    if options.scale < 1.0 {
        text.push_str("\nreduced amounts of work: the figures are rough");
    }
    text
}

fn write_results(dir: &Path, report: &Report) -> Result<()> {
    let path = dir.join(format!("suite-{}.json", report.started_s));
    std::fs::create_dir_all(dir)
        .map_err(|error| Error::io(format!("making {}", dir.display()), error))?;
    write_json(&path, report)
}

/// Prints a line at once: a suite takes minutes and people look for signs of life.
pub(crate) fn say(out: &mut dyn Write, text: &str) -> Result<()> {
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(|error| Error::io("printing results", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_by_name() {
        Options::default().check().unwrap();
        for (options, word) in [
            (Options { parts: Vec::new(), ..Options::default() }, "parts"),
            (Options { rounds: 0, ..Options::default() }, "rounds"),
            (Options { processes: 1, ..Options::default() }, "processes"),
            (Options { scale: 0.0, ..Options::default() }, "scale"),
            (Options { scale: f64::NAN, ..Options::default() }, "scale"),
        ] {
            assert!(options.check().unwrap_err().to_string().contains(word));
        }
    }

    #[test]
    fn parts_are_known_by_their_names() {
        for part in Part::ALL {
            assert_eq!(part.name().parse::<Part>().unwrap(), part);
        }
        let error = "copies".parse::<Part>().unwrap_err().to_string();
        assert!(error.contains("copies") && error.contains("protected"), "{error}");
    }

    #[test]
    fn results_are_written_where_asked_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut all = Collector::default();
        all.put("up seconds", "s", 0.3);
        all.fail("idle cpu", &Error::inval("no"));
        let verdicts = verdict::judge(&Part::ALL, &all);
        let (figures, failures) = all.into_parts();
        let report = Report {
            options: Options::default(),
            machine: Machine::here(),
            started_s: 77,
            figures,
            verdicts,
            failures,
        };
        write_results(&dir.path().join("new"), &report).unwrap();
        let text = std::fs::read_to_string(dir.path().join("new/suite-77.json")).unwrap();
        let again: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(again.figures[0].values, [0.3]);
        assert!(!again.all_kept());
    }
}
