//! Placement by what was measured, side by side with placement by capacity and with none (the experiment of Higa, Ichikawa and
//! Yamaguchi, "A distributed file system for NVMe SSDs and IEEE 802.3an/bz", 2022).
//!
//! Three engines, each with a fast and a slow device (2,400 and 200 MB/s in the paper, twelve to one), three copies, files of six sizes that
//! are written and read. The devices are modelled: targets on one memory file system that are held to a rate. So any machine shows
//! the same, and what differs is placement alone. Each file is in a directory of its own: it lies beside its name, and
//! all files of one directory would be in one place.
//!
//! A figure is the bandwidth of one run of one size, by one process that does one thing at a time. Beside that each round reads a file twice from slow devices alone
//! ([`again`]), and looks what users get while targets are measured and while data move ([`beside`]).

mod again;
mod beside;

use crate::backend::{Backend, DfsBackend, NewFile};
use crate::place::Where;
use crate::report::{Machine, write_json, write_text};
use crate::suite::Figure;
use crate::suite::bed::{Bed, Files, Size};
use crate::suite::collect::{Collector, median, ratios, values};
use crate::suite::say;
use crate::svg::{Bars, Panel};
use crate::table::{Table, rate};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;
use types::{Durability, Error, ObjClass, PlacementRule, Result, TargetId};

const MIB: u64 = 1 << 20;
/// A call moves so much.
const TRANSFER_BYTES: usize = 4 << 20;
const ENGINES: u32 = 3;
const CLASS: &str = "RP_3G1";
/// The speeds' ratio for which there is a goal.
const PUBLISHED_RATIO: u64 = 12;

/// Files of a size, and how many runs with them a round has.
struct Kind {
    files: u64,
    /// Hundredths of the unit.
    hundredths: u64,
    runs: u32,
    name: &'static str,
    /// What the paper shows for these: Ceph, which weighs by capacity, and placement by score, MB/s.
    published: (f64, f64),
}

const KINDS: [Kind; 6] = [
    Kind { files: 1, hundredths: 100, runs: 8, name: "1 x 1", published: (690.9, 791.6) },
    Kind { files: 1, hundredths: 1_000, runs: 8, name: "1 x 10", published: (720.0, 721.0) },
    Kind { files: 1, hundredths: 30_000, runs: 3, name: "1 x 300", published: (485.8, 492.4) },
    Kind { files: 100, hundredths: 1, runs: 2, name: "100 x 0.01", published: (676.6, 830.8) },
    Kind { files: 100, hundredths: 10, runs: 2, name: "100 x 0.1", published: (705.8, 739.9) },
    Kind { files: 100, hundredths: 300, runs: 1, name: "100 x 3", published: (487.5, 525.9) },
];

/// Of what slower devices have all is kept in memory when it is read, bytes a second; large pieces from faster ones only at their second reading.
const KEPT_BELOW_BYTES_S: u64 = 200 * MIB;
/// Second readings are to be so many times as fast as first ones, and users are to keep so much of their bandwidth.
const AGAIN_GOAL: f64 = 3.0;
const USERS_GOAL: f64 = 0.9;
const FIRST_READ: &str = "slow devices first read";
const SECOND_READ: &str = "slow devices second read";
const USERS_ALONE: &str = "users alone";
const USERS_MEASURING: &str = "users while measuring";
const USERS_MOVING: &str = "users while moving";

const RULES: [PlacementRule; 3] =
    [PlacementRule::Equal, PlacementRule::Capacity, PlacementRule::Score];

/// What to run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Rounds of alternation, at least 1.
    pub rounds: u32,
    /// What a fast device moves, bytes a second; from 1 MiB.
    pub fast_bytes_s: u64,
    /// What a slow one moves.
    pub slow_bytes_s: u64,
    /// What stands for the paper's gigabyte, bytes; from 100 KiB.
    pub unit_bytes: u64,
    /// How long users are watched with nothing else going on, and while targets are measured, seconds; 0: they are not.
    pub watch_s: f64,
    /// A directory in memory for the system.
    pub dir: PathBuf,
    /// Where to write the plot (SVG); the report goes beside it as JSON. `None`: nowhere.
    pub plot: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            rounds: 3,
            fast_bytes_s: 960 * MIB,
            slow_bytes_s: 80 * MIB,
            unit_bytes: MIB / 2,
            watch_s: 3.0,
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
        if self.slow_bytes_s < MIB || self.fast_bytes_s < self.slow_bytes_s {
            return Err(Error::inval("fast, slow: want at least 1MiB, and fast no less than slow"));
        }
        if self.unit_bytes < 100 << 10 || self.unit_bytes > 1 << 30 {
            return Err(Error::inval("unit: want 100KiB to 1GiB"));
        }
        if self.watch_s != 0.0 && !(0.1..=3600.0).contains(&self.watch_s) {
            return Err(Error::inval("watch: want 0, or 0.1 to 3,600 seconds"));
        }
        Ok(())
    }

    /// Bytes of each file of a kind.
    fn file_bytes(&self, kind: &Kind) -> u64 {
        self.unit_bytes * kind.hundredths / 100
    }

    /// Placement by score moves what has equal shares.
    fn has_moves(&self) -> bool {
        self.fast_bytes_s >= 2 * self.slow_bytes_s
    }

    /// What placement by score is to reach of that by capacity.
    fn goal(&self) -> Option<f64> {
        match self.fast_bytes_s / self.slow_bytes_s {
            1 => Some(0.98),
            ratio if ratio >= PUBLISHED_RATIO => Some(1.5),
            _ => None,
        }
    }
}

/// What came out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// As it was run.
    pub options: Options,
    /// What it ran on.
    pub machine: Machine,
    /// Bandwidths, MiB/s, one value for each run; names are made by [`figure_name`].
    pub figures: Vec<Figure>,
    /// Mean reading bandwidth by score as a multiple of that by capacity; geometric mean over the sizes.
    pub read_ratio: Option<f64>,
    /// The same of writing.
    pub write_ratio: Option<f64>,
    /// Deviations of the reading bandwidth, as parts of its mean, by score over those by capacity; geometric mean over the sizes.
    pub deviation_ratio: Option<f64>,
    /// Bandwidth of second readings from slow devices as a multiple of that of first ones; median over the rounds.
    pub again_ratio: Option<f64>,
    /// Users' bandwidth while targets are measured, as a part of what they have alone; median over the rounds.
    pub measuring_ratio: Option<f64>,
    /// The same while data move to where scores say.
    pub moving_ratio: Option<f64>,
    /// Goals that were missed, in words.
    pub missed: Vec<String>,
    /// Measurements that failed: name and error.
    pub failures: Vec<(String, String)>,
}

/// Name of a bandwidth; `phase` is `write` or `read`.
fn figure_name(rule: PlacementRule, kind: &Kind, phase: &str) -> String {
    format!("{rule} {} {phase}", kind.name)
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Deviation of the values from their mean, as a part of it.
fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|mean| *mean > 0.0)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / values.len() as f64).sqrt() / mean)
}

/// `None` when one is missing.
fn geometric_mean(of: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let logs: Vec<f64> = of.map(|value| value.map(f64::ln)).collect::<Option<_>>()?;
    mean(&logs).map(f64::exp)
}

impl Report {
    fn new(options: &Options, all: Collector) -> Report {
        let (figures, failures) = all.into_parts();
        let of = |rule, kind: &Kind, phase: &str| values(&figures, &figure_name(rule, kind, phase));
        let ratio = |phase: &str, part: fn(&[f64]) -> Option<f64>| {
            geometric_mean(KINDS.iter().map(|kind| {
                let over = part(of(PlacementRule::Score, kind, phase))?;
                Some(over / part(of(PlacementRule::Capacity, kind, phase))?.max(1e-9))
            }))
        };
        let (read_ratio, write_ratio) = (ratio("read", mean), ratio("write", mean));
        // A size whose runs did not differ at all would make all of it nothing.
        let deviation_ratio = ratio("read", |values| Some(deviation(values)?.max(1e-6)));
        let mut missed = Vec::new();
        if let Some(goal) = options.goal() {
            if read_ratio.is_none_or(|ratio| ratio < goal) {
                missed.push(format!("reading by score is to reach {goal} x that by capacity"));
            }
            if goal > 1.0 && deviation_ratio.is_none_or(|ratio| ratio >= 1.0) {
                missed.push("reading by score is to vary less than by capacity".to_string());
            }
        }
        let part = |over: &str, under: &str| median(&ratios(&figures, over, under));
        let again_ratio = part(SECOND_READ, FIRST_READ);
        if options.slow_bytes_s <= KEPT_BELOW_BYTES_S
            && again_ratio.is_none_or(|ratio| ratio < AGAIN_GOAL)
        {
            missed.push(format!(
                "second readings from slow devices are to reach {AGAIN_GOAL} x first ones"
            ));
        }
        let measuring_ratio = part(USERS_MEASURING, USERS_ALONE);
        let moving_ratio = part(USERS_MOVING, USERS_ALONE);
        for (ratio, what, is_meant) in [
            (measuring_ratio, "targets are measured", true),
            // Between devices of one speed nothing moves.
            (moving_ratio, "data move", options.has_moves()),
        ] {
            let is_meant = is_meant && options.watch_s > 0.0;
            if is_meant && ratio.is_none_or(|ratio| ratio < USERS_GOAL) {
                missed
                    .push(format!("users are to keep {USERS_GOAL} x their bandwidth while {what}"));
            }
        }
        let (options, machine) = (options.clone(), Machine::here());
        let ratios = (read_ratio, write_ratio, deviation_ratio);
        let (read_ratio, write_ratio, deviation_ratio) = ratios;
        Report {
            options,
            machine,
            figures,
            read_ratio,
            write_ratio,
            deviation_ratio,
            again_ratio,
            measuring_ratio,
            moving_ratio,
            missed,
            failures,
        }
    }

    fn of(&self, rule: PlacementRule, kind: &Kind, phase: &str) -> &[f64] {
        values(&self.figures, &figure_name(rule, kind, phase))
    }

    /// For people: a line per size and rule.
    pub fn table(&self) -> Table {
        let heads = ["files", "placement", "write MiB/s", "read MiB/s", "deviation", "/ capacity"];
        let mut table = Table::new(&[&heads[..], &["published"]].concat());
        for kind in &KINDS {
            for rule in RULES {
                let read = self.of(rule, kind, "read");
                let base = mean(self.of(PlacementRule::Capacity, kind, "read"));
                let ratio = mean(read).zip(base).map(|(read, base)| read / base.max(1e-9));
                let published = match rule {
                    PlacementRule::Equal => "-".to_string(),
                    PlacementRule::Capacity => "1.00".to_string(),
                    PlacementRule::Score => {
                        format!("{:.2}", kind.published.1 / kind.published.0)
                    }
                };
                let or_none = |text: Option<String>| text.unwrap_or("-".into());
                table.row(vec![
                    kind.name.to_string(),
                    rule.to_string(),
                    or_none(mean(self.of(rule, kind, "write")).map(rate)),
                    or_none(mean(read).map(rate)),
                    or_none(deviation(read).map(|part| format!("{:.0} %", part * 100.0))),
                    or_none(ratio.map(|ratio| format!("{ratio:.2}"))),
                    published,
                ]);
            }
        }
        table
    }

    /// The plot: for each size its reading bandwidths by rule as parts of that by capacity, and what the paper shows.
    pub fn svg(&self) -> String {
        let names = ["equal", "capacity", "score", "score, published"];
        let panel = |kind: &Kind| {
            let base = mean(self.of(PlacementRule::Capacity, kind, "read")).unwrap_or(0.0);
            let of = |rule| mean(self.of(rule, kind, "read")).unwrap_or(0.0) / base.max(1e-9);
            let published = kind.published.1 / kind.published.0;
            let heights = RULES.into_iter().map(of).chain([published]);
            let bar = |(at, height): (usize, f64)| {
                let mut parts = vec![0.0; names.len()];
                parts[at] = height;
                parts
            };
            Panel { title: kind.name.to_string(), bars: heights.enumerate().map(bar).collect() }
        };
        let (fast, slow) = (self.options.fast_bytes_s / MIB, self.options.slow_bytes_s / MIB);
        Bars {
            title: format!("Reading three copies from devices of {fast} and {slow} MiB/s"),
            x_label: "files x units".to_string(),
            y_label: "as a multiple of placement by capacity".to_string(),
            parts: names.map(str::to_string).to_vec(),
            panels: KINDS.iter().map(panel).collect(),
        }
        .svg()
    }
}

/// Runs the experiment. `binary` is the `azekura` command, expected to be this very program.
///
/// Errors: when no system can be started, or the results cannot be written. Failed measurements are
/// in the report.
pub fn run(options: &Options, binary: &Path, out: &mut dyn Write) -> Result<Report> {
    options.check()?;
    let mut all = Collector::default();
    let size = Size { engines: ENGINES, targets: 2 };
    let rates = [options.fast_bytes_s, options.slow_bytes_s];
    let bed = Bed::start_held(size, &rates, &options.dir, binary, Durability::Wal)?;
    // Most of what is stored may be on half of the targets; what was removed comes back later.
    let largest = KINDS.iter().map(|kind| options.file_bytes(kind) * kind.files).max().unwrap_or(0);
    let pool_bytes = (largest * 24).max(2 << 30);
    say(out, "making three pools; targets are measured for it")?;
    let slow = slow_targets(&bed)?;
    let small = |label: &str| Files { rd_fac: 2, ..Files::new(label, 1 << 30) };
    let again = bed.make(&Files { targets: slow, ..small("again") })?;
    let mut places = Vec::new();
    for rule in RULES {
        let files =
            Files { placement: rule, rd_fac: 2, ..Files::new(&rule.to_string(), pool_bytes) };
        places.push((rule, bed.make(&files)?));
    }
    for round in 1..=options.rounds {
        say(out, &format!("round {round} of {}", options.rounds))?;
        for kind in &KINDS {
            for (rule, place) in &places {
                let mut line = format!("  {} {rule}:", kind.name);
                for run in 0..kind.runs {
                    let dir = format!("r{round}-{run}-{}-{}", kind.files, kind.hundredths);
                    match one(options, kind, &place.join(&dir)) {
                        Ok((write, read)) => {
                            all.put(&figure_name(*rule, kind, "write"), "MiB/s", write);
                            all.put(&figure_name(*rule, kind, "read"), "MiB/s", read);
                            line.push_str(&format!(" {}", rate(read)));
                        }
                        Err(error) => all.fail(&figure_name(*rule, kind, "run"), &error),
                    }
                }
                say(out, &line)?;
            }
        }
        match again::twice(&again, options.unit_bytes, round) {
            Ok((first, second)) => {
                all.put(FIRST_READ, "MiB/s", first);
                all.put(SECOND_READ, "MiB/s", second);
                let text = format!("  slow devices: read {}, again {}", rate(first), rate(second));
                say(out, &text)?;
            }
            Err(error) => all.fail("second readings", &error),
        }
        if options.watch_s > 0.0 {
            let label = format!("moving{round}");
            // What moves lies in both places for a while, on three of six targets at last.
            let files = Files { rd_fac: 2, ..Files::new(&label, 2 << 30) };
            let place = bed.make(&files)?;
            match beside::run(&bed, &label, &place, options) {
                Ok(of) => {
                    all.put(USERS_ALONE, "MiB/s", of.alone);
                    all.put(USERS_MEASURING, "MiB/s", of.measuring);
                    let mut text = format!(
                        "  users: {} alone, {} while targets are measured",
                        rate(of.alone),
                        rate(of.measuring)
                    );
                    if let Some((moving, seconds)) = of.moving {
                        all.put(USERS_MOVING, "MiB/s", moving);
                        text += &format!(", {} while data move ({seconds:.1} s)", rate(moving));
                    }
                    say(out, &text)?;
                }
                Err(error) => all.fail("users", &error),
            }
            bed.remove_files(&label)?;
        }
    }
    drop(bed);
    let report = Report::new(options, all);
    say(out, &report.table().to_string())?;
    let two = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
    say(
        out,
        &format!(
            "by score over by capacity: reads {} x, writes {} x, deviation of reads {} x",
            two(report.read_ratio),
            two(report.write_ratio),
            two(report.deviation_ratio)
        ),
    )?;
    say(
        out,
        &format!(
            "second readings from slow devices {} x first ones; users keep {} x while targets are measured, {} x while data move",
            two(report.again_ratio),
            two(report.measuring_ratio),
            two(report.moving_ratio)
        ),
    )?;
    for missed in &report.missed {
        say(out, &format!("missed: {missed}"))?;
    }
    for (name, error) in &report.failures {
        say(out, &format!("failed: {name}: {error}"))?;
    }
    if let Some(path) = &options.plot {
        write_text(path, &report.svg())?;
        write_json(&path.with_extension("json"), &report)?;
    }
    Ok(report)
}

/// The targets that are held to the lower speed: every other one of each engine.
fn slow_targets(bed: &Bed) -> Result<Vec<TargetId>> {
    let client = bed.client()?;
    let info = client.block_on(client.system_query())?;
    let of_engine = |targets: Vec<TargetId>| targets.into_iter().skip(1).step_by(2);
    Ok(info.engines.into_iter().flat_map(|(_, targets, _)| of_engine(targets)).collect())
}

/// One run: writes the files of a kind, reads them, and removes them; bandwidths of both, MiB/s.
fn one(options: &Options, kind: &Kind, place: &Where) -> Result<(f64, f64)> {
    let Where::Dfs { dir, .. } = place else { return Err(Error::inval("no file system")) };
    let mut files = DfsBackend::connect(place)?;
    let class: ObjClass = CLASS.parse()?;
    files.make_dir(dir, Some(class))?;
    let home = |number: u64| format!("{dir}/d{number}");
    let path = |number: u64| format!("{}/file", home(number));
    (0..kind.files).try_for_each(|number| files.make_dir(&home(number), Some(class)))?;
    let bytes = options.file_bytes(kind);
    let data = vec![0x5a_u8; TRANSFER_BYTES];
    let mut memory = vec![0_u8; TRANSFER_BYTES];
    let steps = || (0..bytes).step_by(TRANSFER_BYTES);
    let length = |offset: u64| (bytes - offset).min(TRANSFER_BYTES as u64) as usize;
    let new = NewFile { class: Some(class), ..NewFile::default() };
    let rate = |begun: Instant| {
        (bytes * kind.files) as f64 / MIB as f64 / begun.elapsed().as_secs_f64().max(1e-9)
    };
    let begun = Instant::now();
    for number in 0..kind.files {
        let file = files.create(&path(number), &new)?;
        for offset in steps() {
            files.write_at(&file, offset, &data[..length(offset)])?;
        }
    }
    let write = rate(begun);
    let begun = Instant::now();
    for number in 0..kind.files {
        let file = files.open(&path(number))?;
        for offset in steps() {
            let wanted = length(offset);
            let count = files.read_at(&file, offset, &mut memory[..wanted])?;
            if count != wanted || memory[..wanted] != data[..wanted] {
                let text = format!("{} holds something else at {offset}", path(number));
                return Err(Error::new(types::Code::Csum, text));
            }
        }
    }
    let read = rate(begun);
    for number in 0..kind.files {
        files.remove(&path(number))?;
        files.remove_dir(&home(number))?;
    }
    files.remove_dir(dir)?;
    Ok((write, read))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_by_name() {
        Options::default().check().unwrap();
        for (options, word) in [
            (Options { rounds: 0, ..Options::default() }, "rounds"),
            (Options { slow_bytes_s: 1000, ..Options::default() }, "slow"),
            (Options { fast_bytes_s: 2 * MIB, ..Options::default() }, "fast"),
            (Options { unit_bytes: 1, ..Options::default() }, "unit"),
            (Options { watch_s: -1.0, ..Options::default() }, "watch"),
        ] {
            let error = options.check().unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    /// What reads and writes do by score and by capacity; second readings from slow devices as multiples of first ones, and what users keep while targets are
    /// measured and while data move.
    fn report_with(
        options: Options,
        score: &[f64],
        capacity: &[f64],
        beside: Option<[f64; 3]>,
    ) -> Report {
        let mut all = Collector::default();
        if let Some([again, measuring, moving]) = beside {
            for (name, value) in [
                (FIRST_READ, 80.0),
                (SECOND_READ, 80.0 * again),
                (USERS_ALONE, 300.0),
                (USERS_MEASURING, 300.0 * measuring),
                (USERS_MOVING, 300.0 * moving),
            ] {
                all.put(name, "MiB/s", value);
            }
        }
        for kind in &KINDS {
            for (rule, reads) in
                [(PlacementRule::Score, score), (PlacementRule::Capacity, capacity)]
            {
                for read in reads {
                    all.put(&figure_name(rule, kind, "read"), "MiB/s", *read);
                    all.put(&figure_name(rule, kind, "write"), "MiB/s", read / 2.0);
                }
            }
        }
        Report::new(&options, all)
    }

    fn report(options: Options, score: &[f64], capacity: &[f64]) -> Report {
        report_with(options, score, capacity, Some([3.1, 0.91, 0.92]))
    }

    #[test]
    fn second_readings_and_users_have_goals() {
        let of = |options: &Options, beside| {
            let missed = report_with(options.clone(), &[9.0, 10.0], &[1.0, 9.0], beside).missed;
            missed.join("; ")
        };
        let usual = Options::default();
        assert_eq!(of(&usual, Some([3.1, 0.91, 0.92])), "");
        assert!(of(&usual, Some([2.9, 0.91, 0.92])).contains("second readings"));
        assert!(of(&usual, Some([3.1, 0.89, 0.92])).contains("targets are measured"));
        assert!(of(&usual, Some([3.1, 0.91, 0.89])).contains("data move"));
        assert_eq!(of(&usual, None).split("; ").count(), 3, "nothing was measured");
        // Nothing is said of what was not to be measured, or is not there.
        let unwatched = Options { watch_s: 0.0, ..usual.clone() };
        assert_eq!(of(&unwatched, None).split("; ").count(), 1);
        let equal = Options { fast_bytes_s: 900 * MIB, slow_bytes_s: 900 * MIB, ..usual };
        assert!(!of(&equal, None).contains("second") && !of(&equal, None).contains("move"));
        assert!(of(&equal, None).contains("targets are measured"));
    }

    #[test]
    fn goals_are_met_or_named() {
        let good = report(Options::default(), &[900.0, 1000.0], &[80.0, 960.0]);
        assert!(good.missed.is_empty(), "{:?}", good.missed);
        assert!((good.read_ratio.unwrap() - 950.0 / 520.0).abs() < 1e-9);
        assert_eq!(good.read_ratio, good.write_ratio);
        assert!(good.deviation_ratio.unwrap() < 0.1);
        let slow = report(Options::default(), &[500.0, 510.0], &[500.0, 400.0]);
        assert_eq!(slow.missed.len(), 1, "{:?}", slow.missed);
        let wild = report(Options::default(), &[100.0, 4000.0], &[500.0, 510.0]);
        assert!(wild.missed[0].contains("vary"), "{:?}", wild.missed);
        // With devices of one speed it is to cost nothing.
        let same = Options { fast_bytes_s: 80 * MIB, ..Options::default() };
        assert!(report(same.clone(), &[100.0, 90.0], &[95.0, 96.0]).missed.is_empty());
        assert_eq!(report(same, &[90.0], &[100.0]).missed.len(), 1);
        assert_eq!(report(Options::default(), &[], &[]).missed.len(), 2, "nothing was measured");
        let text = good.table().to_string();
        assert!(text.contains("100 x 0.01") && text.contains("1.83"), "{text}");
        assert!(good.svg().contains("score, published"));
    }
}
