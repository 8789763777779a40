//! What is promised, and whether it was kept: one table of goals, applied to the figures.

use super::Part;
use super::collect::Collector;
use crate::report::Spread;
use crate::svg::{Share, Shares};
use crate::table::Table;
use serde::{Deserialize, Serialize};

/// What a figure must be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    AtLeast(f64),
    AtMost(f64),
    Below(f64),
}

impl Goal {
    fn holds(self, value: f64) -> bool {
        match self {
            Goal::AtLeast(limit) => value >= limit,
            Goal::AtMost(limit) => value <= limit,
            Goal::Below(limit) => value < limit,
        }
    }

    fn text(self) -> String {
        match self {
            Goal::AtLeast(limit) => format!("≥ {limit}"),
            Goal::AtMost(limit) => format!("≤ {limit}"),
            Goal::Below(limit) => format!("< {limit}"),
        }
    }
}

/// One promise and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    pub name: String,
    /// Unit of the values; `x` for a ratio.
    pub unit: String,
    pub goal: Goal,
    /// What was measured, over the rounds; a count of 0: nothing was.
    pub measured: Spread,
    /// The median keeps the promise.
    pub reached: bool,
}

impl Verdict {
    /// Whether the median of `values`, one per round, keeps a promise. Without values it is broken.
    pub(crate) fn of(name: &str, unit: &str, goal: Goal, values: &[f64]) -> Verdict {
        let measured = Spread::of(values);
        let reached = measured.count > 0 && goal.holds(measured.median);
        Verdict { name: name.to_string(), unit: unit.to_string(), goal, measured, reached }
    }
}

/// How a promise follows from the figures.
enum Source {
    /// A figure as it is.
    Figure(&'static str),
    /// A quotient of two figures, by rounds.
    Ratio(&'static str, &'static str),
}

/// Figures of directories with many files may be this much above those of small ones: caches of
/// the CPU hold less of a large index, whatever its shape. Anything that searches is far above.
const GROWTH_MAX: f64 = 1.25;

/// Name, unit, goal, and the figures it is judged by.
type Promise = (&'static str, &'static str, Goal, Source);

/// What is promised of directories with many files.
fn growth_goals() -> Vec<Promise> {
    use Goal::AtMost;
    use Source::{Figure, Ratio};
    vec![
        (
            "CPU of create, full / empty directory",
            "x",
            AtMost(GROWTH_MAX),
            Ratio("cpu create full", "cpu create empty"),
        ),
        (
            "CPU of stat, full / empty directory",
            "x",
            AtMost(GROWTH_MAX),
            Ratio("cpu stat full", "cpu stat empty"),
        ),
        (
            "CPU of read, full / empty directory",
            "x",
            AtMost(GROWTH_MAX),
            Ratio("cpu read full", "cpu read empty"),
        ),
        (
            "CPU of remove, full / empty directory",
            "x",
            AtMost(GROWTH_MAX),
            Ratio("cpu remove full", "cpu remove empty"),
        ),
        ("memory per empty file", "bytes", AtMost(400.0), Figure("memory per file")),
    ]
}

/// What is promised of files and metadata without copies.
fn goals() -> Vec<Promise> {
    use Goal::{AtLeast, Below};
    use Source::{Figure, Ratio};
    vec![
        (
            "md easy create / tmpfs",
            "x",
            AtLeast(0.5),
            Ratio("md easy create dfs", "md easy create tmpfs"),
        ),
        (
            "md easy stat / tmpfs",
            "x",
            AtLeast(0.3),
            Ratio("md easy stat dfs", "md easy stat tmpfs"),
        ),
        (
            "md easy remove / tmpfs",
            "x",
            AtLeast(0.5),
            Ratio("md easy remove dfs", "md easy remove tmpfs"),
        ),
        (
            "io 1 MiB write / tmpfs",
            "x",
            AtLeast(0.5),
            Ratio("io 1m write dfs", "io 1m write tmpfs"),
        ),
        ("io 1 MiB read / tmpfs", "x", AtLeast(0.6), Ratio("io 1m read dfs", "io 1m read tmpfs")),
        (
            "io hard write / 64 KiB sequential",
            "x",
            AtLeast(0.8),
            Ratio("io hard write dfs", "io 64k write dfs"),
        ),
        (
            "io hard read / 64 KiB sequential",
            "x",
            AtLeast(0.8),
            Ratio("io hard read dfs", "io 64k read dfs"),
        ),
        (
            "io 1 MiB write over TCP / bare stream",
            "x",
            AtLeast(0.8),
            Ratio("io 1m write tcp", "bare tcp stream"),
        ),
        (
            "io 1 MiB read over TCP / bare stream",
            "x",
            AtLeast(0.8),
            Ratio("io 1m read tcp", "bare tcp stream"),
        ),
        (
            "io shared file / file per process, write",
            "x",
            AtLeast(0.9),
            Ratio("io 1m shared write dfs", "io 1m write dfs"),
        ),
        (
            "io shared file / file per process, read",
            "x",
            AtLeast(0.9),
            Ratio("io 1m shared read dfs", "io 1m read dfs"),
        ),
        (
            "md create, all targets / one target with one process",
            "x",
            AtLeast(1.1),
            Ratio("md easy create dfs", "md easy create one target"),
        ),
        (
            "io write, all targets / one target with one process",
            "x",
            AtLeast(1.1),
            Ratio("io 1m write dfs", "io 1m write one target"),
        ),
        (
            "io read, all targets / one target with one process",
            "x",
            AtLeast(1.1),
            Ratio("io 1m read dfs", "io 1m read one target"),
        ),
        ("md easy stat / bare hop", "x", AtLeast(0.5), Ratio("md easy stat dfs", "bare hop")),
        ("md easy create / bare hop", "x", AtLeast(0.4), Ratio("md easy create dfs", "bare hop")),
        ("md easy remove / bare hop", "x", AtLeast(0.45), Ratio("md easy remove dfs", "bare hop")),
        ("CPU of an idle system", "%", Below(1.0), Figure("idle cpu")),
        ("azekura up answers", "s", Below(2.0), Figure("up seconds")),
    ]
}

/// What is promised over TCP.
fn tcp_goals() -> Vec<Promise> {
    let mut goals = Vec::new();
    let mut at_least = |name, limit, over, under| {
        goals.push((name, "x", Goal::AtLeast(limit), Source::Ratio(over, under)));
    };
    let bare = "bare tcp exchange";
    at_least("TCP stat / bare exchange", 0.9, "md stat tcp x1", bare);
    at_least("TCP remove / bare exchange", 0.9, "md remove tcp x1", bare);
    at_least("TCP create / bare exchange", 0.7, "md create tcp x1", bare);
    at_least("TCP open and close / bare exchange", 0.7, "md read tcp x1", bare);
    at_least("TCP create, 8 clients / one", 1.0, "md create tcp x8", "md create tcp x1");
    at_least("TCP stat, 8 clients / one", 1.0, "md stat tcp x8", "md stat tcp x1");
    at_least("TCP open and close, 8 clients / one", 1.0, "md read tcp x8", "md read tcp x1");
    at_least("TCP remove, 8 clients / one", 1.0, "md remove tcp x8", "md remove tcp x1");
    let (w, r) = ("io 47008 write tcp x1", "io 47008 read tcp x1");
    at_least("TCP write of 47,008 bytes / bare", 0.7, w, "bare tcp 47008 write");
    at_least("TCP read of 47,008 bytes / bare", 0.7, r, "bare tcp 47008 read");
    let (w, r) = ("io 64k write tcp x1", "io 64k read tcp x1");
    at_least("TCP write of 64 KiB / bare", 0.7, w, "bare tcp 64k write");
    at_least("TCP read of 64 KiB / bare", 0.7, r, "bare tcp 64k read");
    let (w, r) = ("io 1m write tcp x1", "io 1m read tcp x1");
    at_least("TCP write of 1 MiB / bare", 0.9, w, "bare tcp 1m write");
    at_least("TCP read of 1 MiB / bare", 0.9, r, "bare tcp 1m read");
    let [one, some, many] =
        ["updates tcp, 1 in flight", "updates tcp, 16 in flight", "updates tcp, 64 in flight"];
    at_least("TCP updates, 16 in flight / one", 2.0, some, one);
    at_least("TCP updates, 64 in flight / one", 2.0, many, one);
    for (name, figure) in [
        ("TCP create, slowest of 8 / mean", "md create tcp x8 evenness"),
        ("TCP stat, slowest of 8 / mean", "md stat tcp x8 evenness"),
    ] {
        goals.push((name, "x", Goal::AtLeast(0.7), Source::Figure(figure)));
    }
    goals
}

/// What is promised of copies and codes: shares of what the class without them reaches.
fn protected_goals() -> Vec<Promise> {
    let mut goals = Vec::new();
    let mut at_least = |name, limit, over, under| {
        goals.push((name, "x", Goal::AtLeast(limit), Source::Ratio(over, under)));
    };
    let (easy, read) = ("io 1m write SX", "io 1m read SX");
    at_least("1 MiB write, RP_2GX / SX", 0.45, "io 1m write RP_2GX", easy);
    at_least("1 MiB write, RP_3GX / SX", 0.3, "io 1m write RP_3GX", easy);
    at_least("1 MiB write, EC_2P1GX / SX", 0.6, "io 1m write EC_2P1GX", easy);
    at_least("1 MiB read, RP_2GX / SX", 0.95, "io 1m read RP_2GX", read);
    at_least("1 MiB read, RP_3GX / SX", 0.95, "io 1m read RP_3GX", read);
    at_least("1 MiB read, EC_2P1GX / SX", 0.95, "io 1m read EC_2P1GX", read);
    let hard = "io hard write SX";
    at_least("IOR-hard write, RP_2GX / SX", 0.4, "io hard write RP_2GX", hard);
    at_least("IOR-hard write, RP_3GX / SX", 0.27, "io hard write RP_3GX", hard);
    at_least("IOR-hard write, EC_2P1GX / SX", 0.47, "io hard write EC_2P1GX", hard);
    let small = "io 4k write SX";
    at_least("4 KiB write, RP_2GX / SX", 0.4, "io 4k write RP_2GX", small);
    at_least("4 KiB write, RP_3GX / SX", 0.28, "io 4k write RP_3GX", small);
    at_least("create, RP_2GX / SX", 0.45, "md create RP_2GX", "md create SX");
    at_least("stat, RP_2GX / SX", 0.95, "md stat RP_2GX", "md stat SX");
    at_least("open and close, RP_2GX / SX", 0.95, "md read RP_2GX", "md read SX");
    at_least("remove, RP_2GX / SX", 0.45, "md remove RP_2GX", "md remove SX");
    let cpu = Source::Ratio("md create RP_2GX engine cpu", "md create SX engine cpu");
    goals.push(("engines' CPU of a create, RP_2GX / SX", "x", Goal::AtMost(2.2), cpu));
    goals
}

fn goals_of(part: Part) -> Vec<Promise> {
    match part {
        Part::Growth => growth_goals(),
        Part::Rounds => goals().into_iter().chain(tcp_goals()).collect(),
        Part::Protected => protected_goals(),
    }
}

/// How the promises were kept, as a picture.
pub fn picture(verdicts: &[Verdict]) -> Shares {
    Shares {
        title: "what was reached of each goal".to_string(),
        rows: verdicts
            .iter()
            .map(|verdict| {
                let (limit, is_floor) = match verdict.goal {
                    Goal::AtLeast(limit) => (limit, true),
                    Goal::AtMost(limit) | Goal::Below(limit) => (limit, false),
                };
                let median = verdict.measured.median;
                // Of a ceiling, so much less is so much better.
                let share = if is_floor { median / limit } else { limit / median };
                Share {
                    name: format!("{} {}", verdict.name, verdict.goal.text()),
                    share: if verdict.measured.count > 0 { share } else { 0.0 },
                    is_reached: verdict.reached,
                }
            })
            .collect(),
    }
}

/// Applies the goals of these parts. A promise without figures counts as broken.
pub fn judge(parts: &[Part], all: &Collector) -> Vec<Verdict> {
    let apply = |(name, unit, goal, source): Promise| {
        let values = match source {
            Source::Figure(figure) => all.values(figure).to_vec(),
            Source::Ratio(over, under) => all.ratios(over, under),
        };
        Verdict::of(name, unit, goal, &values)
    };
    parts.iter().flat_map(|part| goals_of(*part)).map(apply).collect()
}

/// The promises, for people.
pub fn table(verdicts: &[Verdict]) -> Table {
    let mut table = Table::new(&["goal", "wanted", "median", "min", "max", "unit", ""]);
    for verdict in verdicts {
        let measured = verdict.measured;
        let cell = |value: f64| match measured.count {
            0 => "-".to_string(),
            _ if value.abs() >= 100.0 => format!("{value:.0}"),
            _ => format!("{value:.2}"),
        };
        let word = match (measured.count, verdict.reached) {
            (0, _) => "not measured",
            (_, true) => "reached",
            (_, false) => "MISSED",
        };
        table.row(vec![
            verdict.name.clone(),
            verdict.goal.text(),
            cell(measured.median),
            cell(measured.min),
            cell(measured.max),
            verdict.unit.clone(),
            word.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{growth, protected, rounds};

    #[test]
    fn the_median_of_the_rounds_decides() {
        let mut all = Collector::default();
        for (dfs, tmpfs) in [(40.0, 100.0), (55.0, 100.0), (70.0, 100.0)] {
            all.put("md easy create dfs", "op/s", dfs);
            all.put("md easy create tmpfs", "op/s", tmpfs);
        }
        all.put("idle cpu", "%", 1.0);
        let verdicts = judge(&Part::ALL, &all);
        let of = |name: &str| verdicts.iter().find(|v| v.name == name).unwrap();
        let create = of("md easy create / tmpfs");
        assert!(create.reached);
        assert_eq!((create.measured.min, create.measured.max), (0.4, 0.7));
        assert!(!of("CPU of an idle system").reached, "1 % is not below 1 %");
        assert!(!of("md easy stat / tmpfs").reached, "nothing was measured");
        assert!(table(&verdicts).to_string().contains("not measured"));
    }

    /// A goal that names a figure nobody measures would read "not measured" for ever.
    #[test]
    fn every_goal_is_fed() {
        let mut fed = vec!["idle cpu".to_string(), "up seconds".to_string()];
        fed.extend(rounds::figure_names());
        fed.extend(growth::figure_names());
        fed.extend(protected::figure_names());
        for (name, _, _, source) in Part::ALL.into_iter().flat_map(goals_of) {
            let needs = match source {
                Source::Figure(figure) => vec![figure],
                Source::Ratio(over, under) => vec![over, under],
            };
            for need in needs {
                assert!(fed.iter().any(|figure| figure == need), "{name}: nobody measures {need}");
            }
        }
    }
}
