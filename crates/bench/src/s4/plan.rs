//! What the experiments run: systems, and the patterns on each.

use crate::suite::bed::Size;
use crate::{Phase, io, md};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use types::{Durability, Error, ObjClass, Result};

const MIB: u64 = 1 << 20;
/// Transfer of IOR-hard, bytes.
const HARD_BYTES: u64 = 47_008;
/// Sequential transfers of about that size, bytes.
const NEAR_HARD_BYTES: u64 = 64 << 10;
/// Transfers of 5.2, bytes.
const TRANSFERS: [(u64, &str); 3] =
    [(16 * MIB, "16 MiB"), (MIB, "1 MiB"), (NEAR_HARD_BYTES, "64 KiB")];
/// Processes of 5.1 for each of the most devices: with one each, two are at the same device as often as not.
const TASKS_PER_DEVICE: u32 = 2;
/// Engines of 5.2.
const FEW_AND_MANY: [u32; 2] = [1, 4];

/// The seven phases of IO500's mdtest: of mdtest-easy and of mdtest-hard.
pub const EASY_PHASES: &[Phase] = &[Phase::Create, Phase::Stat, Phase::Remove];
pub const HARD_PHASES: &[Phase] = &[Phase::Create, Phase::Stat, Phase::Read, Phase::Remove];

/// The geometric mean; 0 when there is nothing, or something is 0.
pub fn score(rates: &[f64]) -> f64 {
    let logs: f64 = rates.iter().map(|rate| rate.ln()).sum();
    match rates.len() {
        0 => 0.0,
        count => (logs / count as f64).exp(),
    }
}

/// By their sections in the paper. 5.4 is [`classes`](super::classes).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Experiment {
    /// 5.1: bandwidth by devices of an engine.
    Devices,
    /// 5.2: sequential bandwidth by tasks, sizes of transfers, and engines.
    Tasks,
    /// 5.3: IOR-hard by engines.
    HardByEngines,
    /// 6.1: metadata rates by targets of an engine.
    Targets,
    /// 6.2: metadata rates by engines.
    Engines,
}

const NUMBERS: [(Experiment, &str); 5] = [
    (Experiment::Devices, "5.1"),
    (Experiment::Tasks, "5.2"),
    (Experiment::HardByEngines, "5.3"),
    (Experiment::Targets, "6.1"),
    (Experiment::Engines, "6.2"),
];

impl FromStr for Experiment {
    type Err = Error;

    fn from_str(text: &str) -> Result<Experiment> {
        let found = NUMBERS.iter().find(|(_, number)| *number == text);
        found.map(|(experiment, _)| *experiment).ok_or_else(|| {
            Error::inval(format!("experiment {text}: want 5.1, 5.2, 5.3, 5.4, 6.1 or 6.2"))
        })
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = NUMBERS.iter().find(|(experiment, _)| experiment == self);
        f.write_str(number.map_or("", |(_, number)| number))
    }
}

impl Experiment {
    /// What the curves are over.
    pub fn axis(self) -> &'static str {
        match self {
            Experiment::Devices => "devices of the engine",
            Experiment::Tasks => "tasks",
            Experiment::HardByEngines | Experiment::Engines => "engines",
            Experiment::Targets => "targets of the engine",
        }
    }

    /// Numbers along the axis where none are named: what two processors can carry of the paper's.
    fn counts(self) -> &'static [u32] {
        match self {
            Experiment::Engines => &[1, 2, 4],
            _ => &[1, 2, 4, 8],
        }
    }

    /// What the paper shows, in words.
    pub fn published(self) -> &'static str {
        match self {
            Experiment::Devices => {
                "writes grow up to eight devices, where they meet the network; reads meet it at four (3.26 and 6.52 GiB/s a device, 23.28 GiB/s of network)"
            }
            Experiment::Tasks => {
                "all sizes of transfers reach the same bandwidth, small ones with more tasks; four servers reach four times that of one"
            }
            Experiment::HardByEngines => {
                "IOR-hard grows with engines, and is about as fast as sequential transfers of 64 KiB"
            }
            Experiment::Targets => {
                "the score grows with targets (4 to 32), less than in proportion"
            }
            Experiment::Engines => {
                "the score grows with servers (1 to 4), with both ways through the network; of these UCX is 10 to 20 % above verbs"
            }
        }
    }
}

/// What to run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    pub experiment: Experiment,
    /// Rounds, each with all systems anew; at least 1.
    pub rounds: u32,
    /// Numbers along the axis, 1 to 64 each, growing; none: the experiment's own.
    pub counts: Vec<u32>,
    /// Client processes, where they are not what the curves are over; 1 to 4,096.
    pub processes: u32,
    /// Bytes that all processes together write and read sequentially; rounded to whole transfers.
    pub bytes: u64,
    /// Transfers of a process with IOR-hard.
    pub segments: u64,
    /// Files of a process with each of mdtest's patterns.
    pub files_per_process: u64,
    /// Of 5.1: bytes a second that a device writes, or reads. A target has one.
    pub device_rate_max: u64,
    /// A directory in memory for the systems.
    pub dir: PathBuf,
    /// Where to write the plot (SVG); the report goes beside it as JSON. `None`: nowhere.
    pub plot: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            experiment: Experiment::Devices,
            rounds: 3,
            counts: Vec::new(),
            processes: 2,
            bytes: 256 * MIB,
            segments: 2_000,
            files_per_process: 2_000,
            device_rate_max: 64 * MIB,
            dir: "/dev/shm".into(),
            plot: None,
        }
    }
}

/// A system, and what is measured on it.
pub struct Setup {
    pub size: Size,
    /// What each device moves in a second, bytes.
    pub rate_max: Option<u64>,
    pub runs: Vec<Run>,
}

impl Setup {
    /// Pools in memory use no device, so nothing would hold them to its rate.
    pub fn durability(&self) -> Durability {
        if self.rate_max.is_some() { Durability::Wal } else { Durability::Memory }
    }
}

/// A point of a curve.
pub struct Run {
    /// The curve.
    pub series: String,
    /// Where on the axis.
    pub count: u32,
    pub work: Work,
    /// Not through shared memory.
    pub tcp_only: bool,
    /// A target lets one large write at a time go on, as users can have it (`ioc_max_writers`).
    pub one_writer: bool,
}

impl Run {
    pub fn name(&self) -> String {
        format!("{} @{}", self.series, self.count)
    }

    pub fn figure_name(&self, phase: &str) -> String {
        format!("{} {phase} @{}", self.series, self.count)
    }
}

/// A pattern.
pub enum Work {
    Io(io::Options),
    /// Both of mdtest's; their seven phases make the score.
    Md {
        easy: md::Options,
        hard: md::Options,
    },
}

impl Options {
    /// `Inval`, naming the option, when these make no run.
    pub fn check(&self) -> Result<()> {
        if self.rounds == 0 || self.rounds > 1000 {
            return Err(Error::inval("rounds: want 1 to 1,000"));
        }
        if !self.counts.is_sorted_by(|a, b| a < b)
            || !self.counts.iter().all(|count| (1..=64).contains(count))
        {
            return Err(Error::inval("counts: want growing numbers from 1 to 64"));
        }
        if !(MIB..=1 << 40).contains(&self.device_rate_max) {
            return Err(Error::inval("device rate: want 1 MiB to 1 TiB a second"));
        }
        if self.bytes > 1 << 40 {
            return Err(Error::inval("bytes: want at most 1 TiB"));
        }
        for run in self.setups().iter().flat_map(|setup| &setup.runs) {
            match &run.work {
                Work::Io(options) => options.check()?,
                Work::Md { easy, hard } => easy.check().and_then(|()| hard.check())?,
            }
        }
        Ok(())
    }

    /// Numbers along the axis.
    pub fn counts(&self) -> &[u32] {
        if self.counts.is_empty() { self.experiment.counts() } else { &self.counts }
    }

    /// Room for the largest run: half of a pool is for data.
    pub fn pool_bytes(&self, size: Size) -> u64 {
        let hard = self.segments.saturating_mul(HARD_BYTES * u64::from(self.processes));
        let per_target = 256 * MIB * u64::from(size.engines) * u64::from(size.targets);
        (self.bytes.max(hard).saturating_mul(4) + (1 << 30)).max(per_target)
    }

    /// Processes that keep the most devices busy: each has one transfer under way, which one device serves.
    fn device_tasks(&self) -> u32 {
        self.counts().last().map_or(1, |most| most * TASKS_PER_DEVICE).max(self.processes)
    }

    /// One shared file, a block of each process.
    fn sequential(&self, processes: u32, transfer_bytes: u64) -> Work {
        let own = (self.bytes / u64::from(processes) / transfer_bytes).max(1) * transfer_bytes;
        Work::Io(io::Options {
            transfer_bytes,
            file_per_process: false,
            class: Some(ObjClass::SX),
            ..io::Options::easy(processes, own)
        })
    }

    fn hard(&self) -> Work {
        let class = Some(ObjClass::SX);
        Work::Io(io::Options { class, ..io::Options::hard(self.processes, self.segments) })
    }

    /// Directories over all targets, files on one each, as in the paper.
    fn metadata(&self) -> Work {
        let of = |options: md::Options| md::Options {
            dir_class: Some(ObjClass::SX),
            class: Some(ObjClass::S1),
            ..options
        };
        Work::Md {
            easy: of(md::Options::easy(self.processes, self.files_per_process)),
            hard: of(md::Options::hard(self.processes, self.files_per_process)),
        }
    }

    /// All systems of a round, with what is measured on each.
    pub fn setups(&self) -> Vec<Setup> {
        let run = |series: &str, count: u32, work: Work| Run {
            series: series.to_string(),
            count,
            work,
            tcp_only: false,
            one_writer: false,
        };
        let of = |engines: u32, targets: u32, runs: Vec<Run>| Setup {
            size: Size { engines, targets },
            rate_max: None,
            runs,
        };
        let counts = self.counts().iter().copied();
        match self.experiment {
            Experiment::Devices => counts
                .map(|count| {
                    let plain = run("IOR", count, self.sequential(self.device_tasks(), MIB));
                    let work = self.sequential(self.device_tasks(), MIB);
                    let held = Run { one_writer: true, ..run(ONE_WRITER, count, work) };
                    let runs = vec![plain, held];
                    Setup { rate_max: Some(self.device_rate_max), ..of(1, count, runs) }
                })
                .collect(),
            Experiment::Tasks => FEW_AND_MANY
                .iter()
                .map(|&engines| {
                    let mut runs = Vec::new();
                    for (bytes, name) in TRANSFERS {
                        let series = series_of_transfers(name, engines);
                        let at = |count| run(&series, count, self.sequential(count, bytes));
                        runs.extend(self.counts().iter().copied().map(at));
                    }
                    of(engines, 1, runs)
                })
                .collect(),
            Experiment::HardByEngines => counts
                .map(|count| {
                    let near = self.sequential(self.processes, NEAR_HARD_BYTES);
                    of(count, 1, vec![run(HARD, count, self.hard()), run(NEAR_HARD, count, near)])
                })
                .collect(),
            Experiment::Targets => counts
                .map(|count| of(1, count, vec![run("mdtest", count, self.metadata())]))
                .collect(),
            Experiment::Engines => counts
                .map(|count| {
                    let by_tcp = Run { tcp_only: true, ..run("TCP", count, self.metadata()) };
                    of(count, 1, vec![run("shared memory", count, self.metadata()), by_tcp])
                })
                .collect(),
        }
    }

    /// What a point is held against: another curve's point, by its name.
    pub fn base(&self, series: &str) -> (String, u32) {
        let counts = self.counts();
        let (first, last) = (counts.first().copied(), counts.last().copied());
        match self.experiment {
            Experiment::Tasks => {
                (series_of_transfers(TRANSFERS[1].1, FEW_AND_MANY[0]), last.unwrap_or(1))
            }
            Experiment::HardByEngines => (HARD.to_string(), first.unwrap_or(1)),
            Experiment::Devices | Experiment::Targets | Experiment::Engines => {
                (series.to_string(), first.unwrap_or(1))
            }
        }
    }

    /// What the paper shows of that, where it gives a figure.
    pub fn published(&self, series: &str, phase: &str, count: u32) -> Option<f64> {
        let first = self.counts().first().copied().unwrap_or(1);
        match self.experiment {
            Experiment::Devices => {
                let device = if phase == Phase::Write.name() { 3.26 } else { 6.52 };
                let bandwidth = |count: u32| f64::min(device * f64::from(count), 23.28);
                Some(bandwidth(count) / bandwidth(first))
            }
            // Where curves have come to.
            Experiment::Tasks if self.counts().last() == Some(&count) => FEW_AND_MANY
                .iter()
                .find(|engines| series.ends_with(&series_of_transfers("", **engines)))
                .map(|engines| f64::from(*engines)),
            Experiment::HardByEngines => Some(f64::from(count) / f64::from(first)),
            Experiment::Tasks | Experiment::Targets | Experiment::Engines => None,
        }
    }
}

const ONE_WRITER: &str = "IOR, one writer a target";
const HARD: &str = "47,008 bytes in turns";
const NEAR_HARD: &str = "64 KiB in sequence";

fn series_of_transfers(name: &str, engines: u32) -> String {
    let plural = if engines == 1 { "" } else { "s" };
    format!("{name}, {engines} engine{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(experiment: Experiment) -> Options {
        Options { experiment, ..Options::default() }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (options, word) in [
            (Options { rounds: 0, ..Options::default() }, "rounds"),
            (Options { counts: vec![2, 1], ..Options::default() }, "counts"),
            (Options { counts: vec![0], ..Options::default() }, "counts"),
            (Options { processes: 0, ..options(Experiment::Targets) }, "processes"),
            (Options { device_rate_max: 1, ..Options::default() }, "device rate"),
            (Options { files_per_process: 0, ..options(Experiment::Engines) }, "files"),
            (Options { segments: 0, ..options(Experiment::HardByEngines) }, "segments"),
        ] {
            let error = options.check().unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!("5.5".parse::<Experiment>().unwrap_err().to_string().contains("5.5"));
        for (experiment, number) in NUMBERS {
            options(experiment).check().unwrap();
            assert_eq!(number.parse::<Experiment>().unwrap(), experiment);
            assert_eq!(experiment.to_string(), number);
        }
    }

    #[test]
    fn each_point_has_a_base_and_no_two_a_name() {
        for (experiment, number) in NUMBERS {
            let options = options(experiment);
            let setups = options.setups();
            let runs: Vec<&Run> = setups.iter().flat_map(|setup| &setup.runs).collect();
            let mut names: Vec<String> = runs.iter().map(|run| run.name()).collect();
            for run in &runs {
                let (series, count) = options.base(&run.series);
                assert!(names.contains(&format!("{series} @{count}")), "{number}: {series}");
            }
            names.sort();
            names.dedup();
            assert_eq!(names.len(), runs.len(), "{number}");
        }
    }

    /// A pool in memory reads and writes no device: its bandwidth was that of memory at any rate.
    #[test]
    fn devices_that_are_held_are_used() {
        for (experiment, number) in NUMBERS {
            for setup in options(experiment).setups() {
                let uses_devices = setup.durability() != Durability::Memory;
                assert_eq!(uses_devices, setup.rate_max.is_some(), "{number}");
            }
        }
        assert!(options(Experiment::Devices).setups().iter().all(|setup| setup.rate_max.is_some()));
    }

    #[test]
    fn growth_is_what_the_paper_says() {
        let devices = options(Experiment::Devices);
        assert_eq!(devices.published("IOR", "write", 1), Some(1.0));
        assert_eq!(devices.published("IOR", "write", 4), Some(4.0));
        assert!(devices.published("IOR", "read", 8).unwrap() < 3.6, "the network is met");
        let tasks = options(Experiment::Tasks);
        assert_eq!(tasks.published("64 KiB, 4 engines", "read", 8), Some(4.0));
        assert_eq!(tasks.published("16 MiB, 1 engine", "read", 8), Some(1.0));
        assert_eq!(tasks.published("16 MiB, 1 engine", "read", 2), None);
        assert_eq!(options(Experiment::HardByEngines).published(HARD, "read", 8), Some(8.0));
        assert_eq!(options(Experiment::Targets).published("mdtest", "score", 8), None);
    }

    #[test]
    fn a_score_is_the_geometric_mean() {
        assert!((score(&[1.0, 10.0, 100.0]) - 10.0).abs() < 1e-9);
        assert_eq!((score(&[]), score(&[5.0, 0.0])), (0.0, 0.0));
        assert_eq!(EASY_PHASES.len() + HARD_PHASES.len(), 7);
    }
}
