//! Object classes side by side (as in experiment 5.4 of the DAOS evaluation on IO500 patterns: IOR-easy and IOR-hard on
//! one shared file, write and read, by class).
//!
//! The experiment starts a system of its own in memory, of several engines, and runs the very same patterns with each class
//! in turn, round by round. What counts is the share of what the first class, the one without protection, reaches in the same round; the
//! published shares stand beside it.

use crate::report::{Machine, write_json, write_text};
use crate::suite::Figure;
use crate::suite::bed::{Bed, Size};
use crate::suite::collect::{Collector, median, ratios, values};
use crate::suite::say;
use crate::svg::{Bars, Panel};
use crate::table::{Table, rate};
use crate::{Phase, io};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};
use types::{Durability, Error, GroupCount, ObjClass, Result, Scheme};

const MIB: u64 = 1 << 20;

const fn copied(copies: u8) -> ObjClass {
    ObjClass { scheme: Scheme::Replicated { copies }, groups: GroupCount::All }
}

const fn coded(data: u8, parity: u8) -> ObjClass {
    ObjClass { scheme: Scheme::ErasureCoded { data, parity }, groups: GroupCount::All }
}

/// The paper's classes.
pub const PUBLISHED: [ObjClass; 4] = [copied(2), copied(3), coded(2, 1), coded(2, 2)];

/// A pattern of IO500, as the paper has it: one shared file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pattern {
    /// 1 MiB at a time, a block per process.
    Easy,
    /// 47,008 bytes at a time, the processes taking turns.
    Hard,
}

impl Pattern {
    const ALL: [Pattern; 2] = [Pattern::Easy, Pattern::Hard];

    fn name(self) -> &'static str {
        match self {
            Pattern::Easy => "easy",
            Pattern::Hard => "hard",
        }
    }
}

const PHASES: [Phase; 2] = [Phase::Write, Phase::Read];

/// What to run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Client processes, 1 to 4,096.
    pub processes: u32,
    /// Rounds of alternation, at least 1.
    pub rounds: u32,
    /// Engines, 1 to 64.
    pub engines: u32,
    /// Targets of each engine, at least 1.
    pub targets: u32,
    /// Classes beside the one without protection; no wider than there are engines.
    pub classes: Vec<ObjClass>,
    /// Bytes that a process writes and reads with the easy pattern; rounded down to MiB.
    pub bytes_per_process: u64,
    /// Transfers of a process with the hard pattern.
    pub segments: u64,
    /// A directory in memory for the system.
    pub dir: PathBuf,
    /// Where to write the plot (SVG); the report goes beside it as JSON. `None`: nowhere.
    pub plot: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            processes: 2,
            rounds: 3,
            engines: 4,
            targets: 1,
            classes: PUBLISHED.to_vec(),
            bytes_per_process: 256 * MIB,
            segments: 2_000,
            dir: "/dev/shm".into(),
            plot: None,
        }
    }
}

impl Options {
    /// `Inval`, naming the option, when these make no run.
    pub fn check(&self) -> Result<()> {
        if self.rounds == 0 || self.rounds > 1000 {
            return Err(Error::inval("rounds: want 1 to 1,000"));
        }
        if !(1..=64).contains(&self.engines) || !(1..=64).contains(&self.targets) {
            return Err(Error::inval("engines, targets: want 1 to 64 each"));
        }
        for class in &self.classes {
            if class.groups != GroupCount::All || *class == ObjClass::SX {
                return Err(Error::inval(format!(
                    "classes: {class} is not a protected class over all targets, such as RP_2GX or EC_2P1GX"
                )));
            }
            if class.scheme.members() > self.engines as usize {
                return Err(Error::inval(format!(
                    "classes: {class} has {} members, and there are {} engines",
                    class.scheme.members(),
                    self.engines
                )));
            }
        }
        Pattern::ALL.into_iter().try_for_each(|pattern| self.io(pattern, ObjClass::SX).check())
    }

    /// The one without protection, and those with.
    fn classes(&self) -> Vec<ObjClass> {
        [ObjClass::SX].into_iter().chain(self.classes.iter().copied()).collect()
    }

    fn io(&self, pattern: Pattern, class: ObjClass) -> io::Options {
        let options = match pattern {
            Pattern::Easy => io::Options {
                file_per_process: false,
                ..io::Options::easy(self.processes, self.bytes_per_process / MIB * MIB)
            },
            Pattern::Hard => io::Options::hard(self.processes, self.segments),
        };
        io::Options { class: Some(class), ..options }
    }

    /// Bytes of the largest file, all members counted: what is coded is kept in copies first.
    fn stored_bytes_max(&self) -> u64 {
        let hard = self.segments.saturating_mul(47_008);
        let members = self.classes.iter().map(|class| class.scheme.members() as u64).max();
        self.bytes_per_process
            .max(hard)
            .saturating_mul(u64::from(self.processes))
            .saturating_mul(members.unwrap_or(1))
    }
}

/// What came out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// As it was run.
    pub options: Options,
    /// What it ran on.
    pub machine: Machine,
    /// Bandwidths, MiB/s; names are made by [`figure_name`].
    pub figures: Vec<Figure>,
    /// The share of the class without protection that each figure is, median over the rounds.
    pub shares: Vec<Share>,
    /// Measurements that failed: name and error.
    pub failures: Vec<(String, String)>,
}

/// A figure as a share of that of the class without protection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Of the figure.
    pub name: String,
    /// `None` when a round lacks it.
    pub measured: Option<f64>,
    pub published: f64,
}

/// Name of a bandwidth.
fn figure_name(class: ObjClass, pattern: Pattern, phase: Phase) -> String {
    format!("{class} {} {}", pattern.name(), phase.name())
}

/// What the paper shows: reads do not feel protection, writes are paid for by the bytes that it takes.
fn published(class: ObjClass, phase: Phase) -> f64 {
    match (phase, class.scheme) {
        (Phase::Write, Scheme::ErasureCoded { data, .. }) => {
            f64::from(data) / class.scheme.members() as f64
        }
        (Phase::Write, _) => 1.0 / class.scheme.members() as f64,
        _ => 1.0,
    }
}

impl Report {
    fn new(options: &Options, all: Collector) -> Report {
        let (figures, failures) = all.into_parts();
        let mut shares = Vec::new();
        for class in options.classes() {
            for (pattern, phase) in measured() {
                let name = figure_name(class, pattern, phase);
                let whole = figure_name(ObjClass::SX, pattern, phase);
                let measured = median(&ratios(&figures, &name, &whole));
                shares.push(Share { name, measured, published: published(class, phase) });
            }
        }
        let (options, machine) = (options.clone(), Machine::here());
        Report { options, machine, figures, shares, failures }
    }

    fn share(&self, name: &str) -> Option<&Share> {
        self.shares.iter().find(|share| share.name == name)
    }

    /// For people: a line per pattern and class.
    pub fn table(&self) -> Table {
        let heads = ["pattern", "class", "write MiB/s", "/ SX", "published"];
        let mut table = Table::new(&[&heads[..], &["read MiB/s", "/ SX", "published"]].concat());
        for pattern in Pattern::ALL {
            for class in self.options.classes() {
                let mut cells = vec![pattern.name().to_string(), class.to_string()];
                for phase in PHASES {
                    let name = figure_name(class, pattern, phase);
                    let share = self.share(&name);
                    let two = |value: Option<f64>| value.map_or("-".into(), |v| format!("{v:.2}"));
                    cells.push(median(values(&self.figures, &name)).map_or("-".into(), rate));
                    cells.push(two(share.and_then(|share| share.measured)));
                    cells.push(two(share.map(|share| share.published)));
                }
                table.row(cells);
            }
        }
        table
    }

    /// The plot: for each class its shares, measured and published.
    pub fn svg(&self) -> String {
        // A bar each: all parts but its own are nothing.
        let kinds: Vec<(String, Option<Pattern>, Phase)> = PHASES
            .into_iter()
            .flat_map(|phase| {
                let own = Pattern::ALL.map(|pattern| {
                    (format!("{} {}", pattern.name(), phase.name()), Some(pattern), phase)
                });
                own.into_iter().chain([(format!("{} published", phase.name()), None, phase)])
            })
            .collect();
        let panel = |class: ObjClass| {
            let height = |(_, pattern, phase): &(String, Option<Pattern>, Phase)| match pattern {
                None => published(class, *phase),
                Some(pattern) => self
                    .share(&figure_name(class, *pattern, *phase))
                    .and_then(|share| share.measured)
                    .unwrap_or(0.0),
            };
            let bar = |(at, kind): (usize, _)| {
                let mut parts = vec![0.0; kinds.len()];
                parts[at] = height(kind);
                parts
            };
            Panel { title: class.to_string(), bars: kinds.iter().enumerate().map(bar).collect() }
        };
        let bars = Bars {
            title: format!(
                "IOR by object class, {} engines, {} processes",
                self.options.engines, self.options.processes
            ),
            x_label: "object class".to_string(),
            y_label: "share of SX in the same round".to_string(),
            parts: kinds.iter().map(|(name, ..)| name.clone()).collect(),
            panels: self.options.classes().into_iter().map(panel).collect(),
        };
        bars.svg()
    }
}

fn measured() -> impl Iterator<Item = (Pattern, Phase)> {
    Pattern::ALL.into_iter().flat_map(|pattern| PHASES.map(|phase| (pattern, phase)))
}

/// Runs the experiment. `binary` is the `azekura` command, expected to be this very program.
///
/// Errors: when no system can be started, or the results cannot be written. Failed measurements are
/// in the report.
pub fn run(options: &Options, binary: &Path, out: &mut dyn Write) -> Result<Report> {
    options.check()?;
    let mut all = Collector::default();
    let size = Size { engines: options.engines, targets: options.targets };
    let bed = Bed::start_of(size, &options.dir, binary, Durability::Memory)?;
    // Half of a pool is for data. What one class has removed comes back while the next writes.
    let pool_bytes = (options.stored_bytes_max().saturating_mul(6) + (1 << 30)).max(4 << 30);
    let place = bed.make_files("classes", pool_bytes, false)?;
    // One before the first is not counted: whoever comes first would pay for memory that was never used.
    for round in 0..=options.rounds {
        match round {
            0 => say(out, "warming up")?,
            _ => say(out, &format!("round {round} of {}", options.rounds))?,
        }
        let mut figures = Collector::default();
        let figures = if round == 0 { &mut figures } else { &mut all };
        for pattern in Pattern::ALL {
            for class in options.classes() {
                let what = format!("{class} {}", pattern.name());
                let name = |phase| figure_name(class, pattern, phase);
                let io = options.io(pattern, class);
                figures.bandwidths(&what, &name, &io, &place, out)?;
            }
        }
    }
    drop(bed);
    let report = Report::new(options, all);
    say(out, &report.table().to_string())?;
    for (name, error) in &report.failures {
        say(out, &format!("failed: {name}: {error}"))?;
    }
    if let Some(path) = &options.plot {
        write_text(path, &report.svg())?;
        write_json(&path.with_extension("json"), &report)?;
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_by_name() {
        Options::default().check().unwrap();
        for (options, word) in [
            (Options { rounds: 0, ..Options::default() }, "rounds"),
            (Options { engines: 0, ..Options::default() }, "engines"),
            (Options { classes: vec![ObjClass::SX], ..Options::default() }, "classes"),
            (Options { classes: vec![ObjClass::S1], ..Options::default() }, "classes"),
            (Options { engines: 3, ..Options::default() }, "4 members"),
            (Options { bytes_per_process: 4096, ..Options::default() }, "block size"),
            (Options { segments: 0, ..Options::default() }, "segments"),
            (Options { processes: 0, ..Options::default() }, "processes"),
        ] {
            let error = options.check().unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn both_patterns_are_one_shared_file_of_the_class() {
        let options = Options::default();
        for class in options.classes() {
            for pattern in Pattern::ALL {
                let io = options.io(pattern, class);
                assert!(!io.file_per_process && io.class == Some(class));
            }
        }
        let names: Vec<String> = options.classes().iter().map(ObjClass::to_string).collect();
        assert_eq!(names, ["SX", "RP_2GX", "RP_3GX", "EC_2P1GX", "EC_2P2GX"]);
    }

    #[test]
    fn shares_are_taken_within_rounds_and_stand_beside_the_published_ones() {
        let mut all = Collector::default();
        let two: ObjClass = "RP_2GX".parse().unwrap();
        let published = |class: &str| published(class.parse().unwrap(), Phase::Write);
        assert_eq!((published("RP_3GX"), published("EC_2P2GX")), (1.0 / 3.0, 0.5));
        assert_eq!((published("SX"), published("EC_2P1GX")), (1.0, 2.0 / 3.0));
        for (whole, copied) in [(100.0, 50.0), (10.0, 9.0), (1000.0, 450.0)] {
            all.put(&figure_name(ObjClass::SX, Pattern::Hard, Phase::Write), "MiB/s", whole);
            all.put(&figure_name(two, Pattern::Hard, Phase::Write), "MiB/s", copied);
        }
        let options = Options { classes: vec![two], ..Options::default() };
        let report = Report::new(&options, all);
        let share = report.share("RP_2GX hard write").unwrap();
        assert_eq!((share.measured, share.published), (Some(0.5), 0.5));
        let read = report.share("RP_2GX easy read").unwrap();
        assert_eq!((read.measured, read.published), (None, 1.0));
        let text = report.table().to_string();
        assert!(text.contains("RP_2GX") && text.contains("0.50") && text.contains("-"), "{text}");
        let svg = report.svg();
        assert!(svg.contains("RP_2GX") && svg.contains("write published"), "{svg}");
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap().shares, report.shares);
    }
}
