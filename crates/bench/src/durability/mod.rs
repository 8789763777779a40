//! How long the loss of a target, an engine or a rack leaves data with fewer copies, and how likely data are lost: a simulation
//! with the placement that clients and engines use.
//!
//! A pool of any size exists as its map only. It is filled with groups of objects of a class; something is lost, the map is told so, and what
//! placement answers then says who copies what to whom. The target or the link with the most to do decides how long it
//! takes. From that and from how often things fail follows the chance of losing data ([`loss`] has the formula).
//!
//! Not in it: what users do meanwhile (the rate is what healing gets), failures that have one cause, copies that are damaged without anybody's
//! knowledge, people.

#[cfg(test)]
mod events;
mod loss;
mod pool;
mod rebuild;

use crate::report::{write_json, write_text};
use crate::suite::say;
use crate::svg::{Lines, Series};
use crate::table::Table;
use loss::Failing;
use pool::{Groups, Kind, Shape};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::PathBuf;
use types::{Error, ObjClass, Result, size};

const MIB: u64 = 1 << 20;
const HOUR_S: f64 = 3600.0;
const YEAR_S: f64 = 365.25 * 24.0 * HOUR_S;
/// Groups of a pool, at most: more only make it slower.
const GROUPS_MAX: u64 = 50_000_000;
/// Of targets and of engines so many are lost, one after the other, and the slowest rebuild counts; racks are all alike, so one is.
const SAMPLES: [u32; 3] = [3, 2, 1];

/// What to simulate.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    pub racks: u32,
    pub engines_per_rack: u32,
    pub targets_per_engine: u32,
    /// Room of a target, bytes.
    pub target_bytes: u64,
    /// How much of it is in use, percent, 1 to 100.
    pub fill_percent: u32,
    /// What a group has on each of its members, bytes: files are about as large as this.
    pub member_bytes: u64,
    /// What a target reads and writes for healing a second; at least one.
    pub rates_bytes_s: Vec<u64>,
    /// What an engine sends and receives for healing a second, each.
    pub link_bytes_s: u64,
    /// From a loss until its rebuild begins, seconds: `down_after_s` and `rebuild_after_s`.
    pub delay_s: f64,
    /// Losses for good of one target, engine, rack in a year.
    pub target_losses_per_year: f64,
    pub engine_losses_per_year: f64,
    pub rack_losses_per_year: f64,
    /// Classes to compare; at least one.
    pub classes: Vec<ObjClass>,
    /// Where to write the plot (SVG) of the chances; hours of a rebuild go beside it as `NAME-hours.svg`, the report as JSON. `None`:
    /// nowhere.
    pub plot: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        let class = |name: &str| name.parse::<ObjClass>();
        let classes = ["RP_2GX", "RP_3GX", "EC_4P1GX", "EC_4P2GX", "EC_8P2GX"];
        Options {
            racks: 10,
            engines_per_rack: 10,
            targets_per_engine: 10,
            target_bytes: 16 << 40,
            fill_percent: 80,
            member_bytes: 8 << 30,
            rates_bytes_s: [25, 50, 100, 200, 400].map(|rate| rate * MIB).to_vec(),
            link_bytes_s: 2_500 * MIB,
            delay_s: 65.0,
            target_losses_per_year: 0.01,
            engine_losses_per_year: 0.005,
            rack_losses_per_year: 0.0001,
            classes: classes.into_iter().filter_map(|name| class(name).ok()).collect(),
            plot: None,
        }
    }
}

impl Options {
    /// `Inval`, naming the option, when these make no pool.
    pub fn check(&self) -> Result<()> {
        let inval = |text: &str| Err(Error::inval(text));
        let shape = [self.racks, self.engines_per_rack, self.targets_per_engine];
        if shape.iter().any(|count| !(1..=1_000).contains(count)) || self.target_count() > 100_000 {
            return inval(
                "racks, engines, targets: want 1 to 1,000 each, and no more than 100,000 targets",
            );
        }
        if !(1..=100).contains(&self.fill_percent) {
            return inval("fill: want 1 to 100 percent");
        }
        if self.member_bytes < MIB || self.member_bytes > self.target_bytes {
            return inval("member-size: want at least 1MiB, and no more than a target's size");
        }
        if self.target_bytes > 1 << 60 {
            return inval("target-size: want no more than 1EiB");
        }
        if self.used_bytes() / u128::from(self.member_bytes) > GROUPS_MAX.into() {
            return inval(
                "member-size: too small for so large a pool; want fewer than 50,000,000 groups",
            );
        }
        if self.rates_bytes_s.is_empty() || self.rates_bytes_s.contains(&0) {
            return inval("rates: want at least one, and none that is 0");
        }
        if self.link_bytes_s == 0 {
            return inval("link: want more than 0");
        }
        let is_rate = |rate: f64| rate.is_finite() && (0.0..=1_000.0).contains(&rate);
        let failures =
            [self.target_losses_per_year, self.engine_losses_per_year, self.rack_losses_per_year];
        if !failures.into_iter().all(is_rate) {
            return inval("target-losses, engine-losses, rack-losses: want 0 to 1,000 a year");
        }
        if !self.delay_s.is_finite() || self.delay_s < 0.0 {
            return inval("delay: want 0 seconds or more");
        }
        if self.classes.is_empty() {
            return inval("class: want at least one");
        }
        Ok(())
    }

    fn target_count(&self) -> u64 {
        [self.racks, self.engines_per_rack, self.targets_per_engine].map(u64::from).iter().product()
    }

    /// Bytes in the pool, copies and parity counted.
    fn used_bytes(&self) -> u128 {
        u128::from(self.target_count())
            * u128::from(self.target_bytes)
            * u128::from(self.fill_percent)
            / 100
    }

    fn shape(&self) -> Shape {
        Shape {
            racks: self.racks,
            engines_per_rack: self.engines_per_rack,
            targets_per_engine: self.targets_per_engine,
        }
    }
}

/// What came out for a class.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClassReport {
    pub class: ObjClass,
    /// Bytes stored for each byte of users.
    pub stored_per_byte: f64,
    /// Groups in the pool.
    pub groups: u64,
    /// Of all members lost with a target, an engine, a rack: those that nobody could stand in for, percent.
    pub stranded_percent: [f64; 3],
    /// What is more than the fullest target has room for, after the loss of a target, an engine, a rack; bytes.
    pub lacking_bytes: [u64; 3],
    /// One for each rate.
    pub rates: Vec<RateReport>,
}

/// What came out for a class and a rate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RateReport {
    /// What a target reads and writes for healing, bytes a second.
    pub rate_bytes_s: u64,
    /// Until a lost target, engine, rack is rebuilt, from when the rebuild began; seconds.
    pub rebuild_s: [f64; 3],
    /// The chance that data are lost within a year.
    pub loss_chance_per_year: f64,
}

/// What came out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// As it was run.
    pub options: Options,
    pub classes: Vec<ClassReport>,
}

/// Simulates all classes and prints the table.
///
/// Errors: `Inval` for options that make no pool, `Redundancy` for classes that need more targets than there are, those of
/// writing the plot.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<Report> {
    options.check()?;
    let mut classes = Vec::new();
    for class in &options.classes {
        say(out, &format!("{class}: placing and losing"))?;
        classes.push(simulate(options, *class)?);
    }
    let report = Report { options: options.clone(), classes };
    say(out, &report.table().to_string())?;
    for line in report.warnings() {
        say(out, &line)?;
    }
    if let Some(path) = &options.plot {
        write_text(path, &report.chances().svg())?;
        let stem = path.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
        let beside = path.with_file_name(format!("{stem}-hours.svg"));
        write_text(&beside, &report.hours().svg())?;
        write_json(&path.with_extension("json"), &report)?;
    }
    Ok(report)
}

fn simulate(options: &Options, class: ObjClass) -> Result<ClassReport> {
    let (shape, map) = (options.shape(), options.shape().map());
    let width = class.scheme.members() as u128;
    let count = options.used_bytes() / u128::from(options.member_bytes) / width;
    let groups = Groups::place(class, (count as u64).max(1), &map)?;
    let used = used_bytes(&groups, shape, options.member_bytes);
    let mut loads = Vec::new();
    let (mut stranded_percent, mut lacking_bytes) = ([0.0; 3], [0; 3]);
    for (at, kind) in pool::KINDS.into_iter().enumerate() {
        let of_kind = shape.count(kind);
        let mut of_samples = Vec::new();
        for sample in 0..SAMPLES[at].min(of_kind) {
            let lost = sample * of_kind / SAMPLES[at].min(of_kind);
            let found = rebuild::loads(&groups, &map, shape, (kind, lost), options.member_bytes)?;
            let gone = (found.stranded + found.replaced).max(1) as f64;
            let stranded = found.stranded as f64 / gone * 100.0;
            stranded_percent[at] = f64::max(stranded_percent[at], stranded);
            let fullest = found.written.iter().zip(&used).map(|(new, used)| new + used).max();
            let lacks = fullest.unwrap_or(0).saturating_sub(options.target_bytes);
            lacking_bytes[at] = lacks.max(lacking_bytes[at]);
            of_samples.push(found);
        }
        loads.push(of_samples);
    }
    let sets = loss::fatal_sets(&groups, shape);
    let survives = usize::from(class.scheme.redundancy_factor());
    let apart = groups.apart(shape);
    let yearly = [
        options.target_losses_per_year,
        options.engine_losses_per_year,
        options.rack_losses_per_year,
    ];
    let rates = options.rates_bytes_s.iter().map(|&rate_bytes_s| {
        let slowest = |samples: &Vec<rebuild::Loads>| {
            let all = samples.iter().map(|loads| loads.seconds(rate_bytes_s, options.link_bytes_s));
            all.fold(0.0, f64::max)
        };
        let rebuild_s: [f64; 3] = [slowest(&loads[0]), slowest(&loads[1]), slowest(&loads[2])];
        let failing: [Failing; 3] = std::array::from_fn(|at| Failing {
            per_year: yearly[at],
            delay_years: options.delay_s / YEAR_S,
            rebuild_years: rebuild_s[at] / YEAR_S,
        });
        let losses = loss::losses_per_year(&sets, survives, shape, apart, &failing);
        RateReport { rate_bytes_s, rebuild_s, loss_chance_per_year: -(-losses).exp_m1() }
    });
    Ok(ClassReport {
        class,
        stored_per_byte: stored_per_byte(class),
        groups: groups.len() as u64,
        stranded_percent,
        lacking_bytes,
        rates: rates.collect(),
    })
}

fn stored_per_byte(class: ObjClass) -> f64 {
    let members = class.scheme.members() as f64;
    match class.scheme {
        types::Scheme::ErasureCoded { data, .. } => members / f64::from(data),
        types::Scheme::Striped | types::Scheme::Replicated { .. } => members,
    }
}

/// What each target holds, bytes.
fn used_bytes(groups: &Groups, shape: Shape, member_bytes: u64) -> Vec<u64> {
    let mut used = vec![0; shape.count(Kind::Target) as usize];
    groups.members.iter().for_each(|target| used[target.0 as usize] += member_bytes);
    used
}

impl Report {
    /// For people: a line per class and rate.
    pub fn table(&self) -> Table {
        let heads = ["class", "stored", "rate/target", "target", "engine", "rack"];
        let mut table = Table::new(&[&heads[..], &["loss/year"]].concat());
        for class in &self.classes {
            for rate in &class.rates {
                let mut cells = vec![
                    class.class.to_string(),
                    format!("{:.2} x", class.stored_per_byte),
                    format!("{}/s", size::format(rate.rate_bytes_s)),
                ];
                cells.extend(rate.rebuild_s.map(duration));
                cells.push(chance(rate.loss_chance_per_year));
                table.row(cells);
            }
        }
        table
    }

    /// What does not go well, in words.
    fn warnings(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for class in &self.classes {
            for (at, what) in ["a target", "an engine", "a rack"].into_iter().enumerate() {
                let name = class.class;
                if class.lacking_bytes[at] > 0 {
                    let lacking = size::format(class.lacking_bytes[at]);
                    lines.push(format!(
                        "{name}: after the loss of {what} the fullest target lacks {lacking}"
                    ));
                }
                if class.stranded_percent[at] >= 0.05 {
                    let part = class.stranded_percent[at];
                    lines.push(format!("{name}: after the loss of {what} nobody is far enough apart to stand in for {part:.1} % of it"));
                }
            }
        }
        lines
    }

    fn lines(&self, title: &str, y_label: &str, y: impl Fn(&RateReport) -> f64) -> Lines {
        let series = |class: &ClassReport| Series {
            name: class.class.to_string(),
            points: class
                .rates
                .iter()
                .map(|rate| (rate.rate_bytes_s as f64 / MIB as f64, y(rate)))
                .collect(),
        };
        Lines {
            title: title.to_string(),
            x_label: "what a target reads and writes for healing, MiB/s".to_string(),
            y_label: y_label.to_string(),
            series: self.classes.iter().map(series).collect(),
        }
    }

    /// The plot of the chances, as powers of ten: 3 is one in a thousand.
    fn chances(&self) -> Lines {
        let title = format!(
            "Data loss within a year, {} targets of {}",
            self.options.target_count(),
            size::format(self.options.target_bytes)
        );
        let nines = |rate: &RateReport| -rate.loss_chance_per_year.max(1e-300).log10();
        self.lines(&title, "one in 10^n pools loses data; n", nines)
    }

    /// The plot of how long a target takes.
    fn hours(&self) -> Lines {
        let title = format!("Rebuild of one target of {}", self.options.target_count());
        self.lines(&title, "hours", |rate| rate.rebuild_s[0] / HOUR_S)
    }
}

/// `4.2 min`, `3.1 h`, `2.5 d`.
fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 2.0 * HOUR_S => format!("{:.1} min", s / 60.0),
        s if s < 48.0 * HOUR_S => format!("{:.1} h", s / HOUR_S),
        s => format!("{:.1} d", s / HOUR_S / 24.0),
    }
}

/// `12 %`, `3.4e-7`.
fn chance(chance: f64) -> String {
    if chance >= 0.01 { format!("{:.1} %", chance * 100.0) } else { format!("{chance:.1e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Options {
        Options {
            racks: 4,
            engines_per_rack: 2,
            targets_per_engine: 2,
            target_bytes: 1 << 40,
            member_bytes: 4 << 30,
            classes: ["SX", "RP_2GX", "RP_3GX", "EC_2P1GX"].map(|c| c.parse().unwrap()).to_vec(),
            ..Options::default()
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        Options::default().check().unwrap();
        let of = Options::default;
        for (options, word) in [
            (Options { racks: 0, ..of() }, "racks"),
            (Options { racks: 1_000, engines_per_rack: 1_000, ..of() }, "targets"),
            (Options { fill_percent: 101, ..of() }, "fill"),
            (Options { member_bytes: 1, ..of() }, "member-size"),
            (Options { member_bytes: MIB, ..of() }, "member-size"),
            (Options { target_bytes: u64::MAX, ..of() }, "target-size"),
            (Options { rates_bytes_s: vec![1, 0], ..of() }, "rates"),
            (Options { link_bytes_s: 0, ..of() }, "link"),
            (Options { rack_losses_per_year: f64::NAN, ..of() }, "rack-losses"),
            (Options { delay_s: -1.0, ..of() }, "delay"),
            (Options { classes: Vec::new(), ..of() }, "class"),
        ] {
            let error = options.check().unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn more_copies_and_faster_rebuilds_lose_less() {
        let report = run(&small(), &mut std::io::sink()).unwrap();
        let chances: Vec<f64> =
            report.classes.iter().map(|class| class.rates[2].loss_chance_per_year).collect();
        assert!(chances[0] > 0.1, "without copies each loss is one: {chances:?}");
        assert!(chances[1] < 0.01 && chances[2] < chances[1] / 50.0, "{chances:?}");
        for class in &report.classes[1..] {
            let falls = |pair: &[RateReport]| {
                pair[1].loss_chance_per_year < pair[0].loss_chance_per_year
                    && pair[1].rebuild_s[0] <= pair[0].rebuild_s[0]
            };
            assert!(class.rates.windows(2).all(falls), "{class:?}");
            let [target, engine, rack] = class.rates[0].rebuild_s;
            assert!(target > 0.0 && target < engine && engine < rack, "{class:?}");
        }
        // Two copies of 0.8 TiB, read and written once by 12 to 14 targets at 25 MiB/s, and not quite evenly.
        let even_s = 2.0 * 0.8 * 1024.0 * 1024.0 / 25.0 / 14.0;
        let target_s = report.classes[1].rates[0].rebuild_s[0];
        assert!((even_s..even_s * 2.5).contains(&target_s), "{target_s}, even {even_s}");
        let text = report.table().to_string();
        assert!(text.contains("EC_2P1GX") && text.contains("1.50 x"), "{text}");
        assert!(report.chances().svg().contains("RP_3GX"));
    }

    #[test]
    fn lack_of_room_and_of_others_is_told() {
        let full =
            Options { fill_percent: 97, classes: vec!["RP_2GX".parse().unwrap()], ..small() };
        let mut text = Vec::new();
        run(&full, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("after the loss of a rack the fullest target lacks"), "{text}");
        // Three racks for three members: no other rack can stand in for one.
        let few = Options { racks: 3, classes: vec!["RP_3GX".parse().unwrap()], ..small() };
        let mut text = Vec::new();
        run(&few, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("after the loss of a rack nobody is far enough apart"), "{text}");
    }

    #[test]
    fn figures_read_well() {
        assert_eq!(duration(90.0), "90 s");
        assert_eq!(duration(3600.0), "60.0 min");
        assert_eq!(duration(36_000.0), "10.0 h");
        assert_eq!(duration(864_000.0), "10.0 d");
        assert_eq!(chance(0.25), "25.0 %");
        assert_eq!(chance(0.000_012_3), "1.2e-5");
    }
}
