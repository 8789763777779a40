//! Ways into one file system, side by side: library, mount, mount with the preloaded library
//! (as in the fourth experiment of the DAOS evaluation: bandwidth against transfer size, 16 KiB to 4 MiB, write and read).
//!
//! The experiment starts a system of its own in memory, mounts it without caches, and runs the
//! very same patterns through each way, in turn, round by round: ratios are taken within a round.

mod mounted;
mod plot;

use crate::place::Where;
use crate::report::Machine;
use crate::suite::Figure;
use crate::suite::bed::Bed;
use crate::suite::collect::{Collector, median, ratios, values};
use crate::suite::say;
use crate::table::{Table, bytes, rate};
use crate::{Phase, io, md};
use mounted::Mounted;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use types::{Code, Error, Result};

const MIB: u64 = 1 << 20;

/// A way into the file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// The library, in the process.
    Library,
    /// The mount, through the kernel.
    Mount,
    /// Paths on the mount, calls taken by the preloaded library.
    Intercept,
}

impl Way {
    pub const ALL: [Way; 3] = [Way::Library, Way::Mount, Way::Intercept];
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Library => "library",
            Way::Mount => "mount",
            Way::Intercept => "mount+intercept",
        })
    }
}

/// What to run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Client processes, 1 to 4,096.
    pub processes: u32,
    /// Rounds of alternation, at least 1.
    pub rounds: u32,
    /// Bytes per call, each a multiple of 8.
    pub transfers: Vec<u64>,
    /// Bytes that a process writes and reads with each transfer size; rounded down to transfers.
    pub bytes_per_process: u64,
    /// Files of each process for the metadata rates; 0 leaves them out.
    pub files: u64,
    /// A directory in memory for the system and the mount.
    pub dir: PathBuf,
    /// The library to preload; `None` leaves the third way out.
    pub preload: Option<PathBuf>,
    /// Where to write the plot (SVG); the report goes beside it as JSON. `None`: nowhere.
    pub plot: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            processes: 2,
            rounds: 3,
            transfers: vec![16 << 10, 64 << 10, 256 << 10, MIB, 4 * MIB],
            bytes_per_process: 256 * MIB,
            files: 5_000,
            dir: "/dev/shm".into(),
            preload: None,
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
        if self.transfers.is_empty() {
            return Err(Error::inval("transfers: want at least one size"));
        }
        for &transfer in &self.transfers {
            if transfer > self.bytes_per_process {
                return Err(Error::inval(format!(
                    "transfers: {transfer} bytes are more than the {} of a process",
                    self.bytes_per_process
                )));
            }
            self.io(transfer).check()?;
        }
        Ok(())
    }

    fn io(&self, transfer_bytes: u64) -> io::Options {
        let transfers = self.bytes_per_process / transfer_bytes.max(1);
        // Files are of the container's class in every way: programs cannot ask for another.
        io::Options {
            transfer_bytes,
            ..io::Options::easy(self.processes, transfers * transfer_bytes)
        }
    }

    fn ways(&self) -> impl Iterator<Item = Way> + '_ {
        Way::ALL.into_iter().filter(|way| *way != Way::Intercept || self.preload.is_some())
    }
}

/// What came out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// As it was run.
    pub options: Options,
    /// What it ran on.
    pub machine: Machine,
    /// All figures: names are made by [`figure_name`] and [`rate_name`].
    pub figures: Vec<Figure>,
    /// Measurements that failed: name and error.
    pub failures: Vec<(String, String)>,
}

/// Name of a bandwidth, MiB/s.
pub fn figure_name(way: Way, transfer_bytes: u64, phase: Phase) -> String {
    format!("{way} {} {}", bytes(transfer_bytes), phase.name())
}

/// Name of a metadata rate, operations per second.
pub fn rate_name(way: Way, phase: Phase) -> String {
    format!("{way} {}", phase.name())
}

impl Report {
    /// The median of a figure; `None` when it was never measured.
    pub fn median(&self, name: &str) -> Option<f64> {
        median(values(&self.figures, name))
    }

    /// The median over the rounds of one figure divided by another; `None` when a round lacks
    /// either.
    pub fn ratio(&self, over: &str, under: &str) -> Option<f64> {
        median(&ratios(&self.figures, over, under))
    }

    /// For people: one line per pattern, one column per way, ratios to the library.
    pub fn table(&self) -> Table {
        let mut heads = vec!["pattern".to_string(), "unit".to_string()];
        for way in self.options.ways() {
            heads.push(way.to_string());
            if way != Way::Library {
                heads.push("/ library".to_string());
            }
        }
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        let mut table = Table::new(&heads);
        let mut row = |pattern: String, unit: &str, name: &dyn Fn(Way) -> String| {
            let mut cells = vec![pattern, unit.to_string()];
            for way in self.options.ways() {
                cells.push(self.median(&name(way)).map_or("-".into(), rate));
                if way != Way::Library {
                    let ratio = self.ratio(&name(way), &name(Way::Library));
                    cells.push(ratio.map_or("-".into(), |ratio| format!("{ratio:.2}")));
                }
            }
            table.row(cells);
        };
        for phase in [Phase::Write, Phase::Read] {
            for &transfer in &self.options.transfers {
                row(format!("{} {}", phase.name(), bytes(transfer)), "MiB/s", &|way| {
                    figure_name(way, transfer, phase)
                });
            }
        }
        if self.options.files > 0 {
            for phase in METADATA {
                row(phase.name().to_string(), "op/s", &|way| rate_name(way, phase));
            }
        }
        table
    }
}

const METADATA: [Phase; 3] = [Phase::Create, Phase::Stat, Phase::Remove];

/// Runs the experiment. `binary` is the `azekura` command, expected to be this very program.
///
/// Errors: when no system can be started or mounted (`NotSupported` without `/dev/fuse`), or the
/// results cannot be written. Failed measurements are in the report.
pub fn run(options: &Options, binary: &Path, out: &mut dyn Write) -> Result<Report> {
    options.check()?;
    if !Path::new("/dev/fuse").exists() {
        return Err(Error::new(Code::NotSupported, "no /dev/fuse here: nothing can be mounted"));
    }
    let mut all = Collector::default();
    let bed = Bed::start(&options.dir, binary)?;
    let per_run = options.bytes_per_process * u64::from(options.processes);
    // Half of a pool is for data. What one way has removed comes back while the next writes.
    let library = bed.make_files("paths", (per_run * 6 + (1 << 30)).max(4 << 30), false)?;
    let mounted = Mounted::start(&bed, "paths", "files")?;
    for round in 1..=options.rounds {
        say(out, &format!("round {round} of {}", options.rounds))?;
        for &transfer in &options.transfers {
            for way in options.ways() {
                let place = place(way, &library, &mounted, options).join("io");
                let what = format!("{way} {}", bytes(transfer));
                let name = |phase| figure_name(way, transfer, phase);
                all.bandwidths(&what, &name, &options.io(transfer), &place, out)?;
            }
        }
        for way in options.ways().filter(|_| options.files > 0) {
            let place = place(way, &library, &mounted, options).join("md");
            rates(options, way, &place, &mut all, out)?;
        }
    }
    mounted.end()?;
    drop(bed);
    let (figures, failures) = all.into_parts();
    let report = Report { options: options.clone(), machine: Machine::here(), figures, failures };
    say(out, &report.table().to_string())?;
    for (name, error) in &report.failures {
        say(out, &format!("failed: {name}: {error}"))?;
    }
    if let Some(path) = &options.plot {
        plot::write(&report, path)?;
    }
    Ok(report)
}

fn place(way: Way, library: &Where, mounted: &Mounted, options: &Options) -> Where {
    match (way, &options.preload) {
        (Way::Library, _) => library.clone(),
        (Way::Intercept, Some(file)) => Where::PosixWith {
            dir: mounted.dir().to_path_buf(),
            variables: vec![
                ("LD_PRELOAD".into(), file.display().to_string()),
                ("AZEKURA_SYSTEM".into(), mounted.system().display().to_string()),
            ],
        },
        (Way::Mount | Way::Intercept, _) => Where::Posix(mounted.dir().to_path_buf()),
    }
}

fn rates(
    options: &Options,
    way: Way,
    place: &Where,
    all: &mut Collector,
    out: &mut dyn Write,
) -> Result<()> {
    let what = format!("{way} metadata");
    let pattern = md::Options::easy(options.processes, options.files);
    let report = match md::run(&pattern, place, &mut std::io::sink()) {
        Ok(report) => report,
        Err(error) => {
            all.fail(&what, &error);
            return say(out, &format!("  {what}: {error}"));
        }
    };
    let mut line = format!("  {what}:");
    for phase in report.summary {
        let value = phase.ops_per_s.median;
        all.put(&rate_name(way, phase.phase), "op/s", value);
        line.push_str(&format!(" {} {} op/s", phase.phase.name(), rate(value)));
    }
    say(out, &line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_by_name() {
        Options::default().check().unwrap();
        for (options, word) in [
            (Options { rounds: 0, ..Options::default() }, "rounds"),
            (Options { transfers: vec![], ..Options::default() }, "transfers"),
            (Options { bytes_per_process: 4096, ..Options::default() }, "transfers"),
            (Options { transfers: vec![12], ..Options::default() }, "transfer size"),
            (Options { processes: 0, ..Options::default() }, "processes"),
        ] {
            let error = options.check().unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        let mut all = Collector::default();
        let name = |way| figure_name(way, MIB, Phase::Write);
        for (library, mount) in [(100.0, 50.0), (10.0, 9.0), (1000.0, 700.0)] {
            all.put(&name(Way::Library), "MiB/s", library);
            all.put(&name(Way::Mount), "MiB/s", mount);
        }
        let (figures, failures) = all.into_parts();
        let options = Options { transfers: vec![MIB], files: 0, ..Options::default() };
        let report = Report { options, machine: Machine::here(), figures, failures };
        assert_eq!(report.ratio(&name(Way::Mount), &name(Way::Library)), Some(0.7));
        assert_eq!(report.ratio(&name(Way::Intercept), &name(Way::Library)), None);
        let text = report.table().to_string();
        assert!(text.contains("0.70") && !text.contains("intercept"), "{text}");
        assert!(plot::svg(&report).contains("<svg"));
    }
}
