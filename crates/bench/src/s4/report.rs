//! What came out of an experiment, as a table, a plot and sentences.

use super::plan::{Experiment, Options};
use crate::report::Machine;
use crate::suite::Figure;
use crate::suite::collect::{Collector, median, ratios, values};
use crate::svg::{Lines, Series};
use crate::table::{Table, rate};
use serde::{Deserialize, Serialize};

/// What came out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// As it was run.
    pub options: Options,
    /// What it ran on.
    pub machine: Machine,
    /// All values, one per round.
    pub figures: Vec<Figure>,
    pub points: Vec<Point>,
    /// Measurements that failed: name and error.
    pub failures: Vec<(String, String)>,
}

/// A point of a curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub series: String,
    /// `write`, `read` or `score`.
    pub phase: String,
    /// Where on the axis.
    pub count: u32,
    /// Median over the rounds.
    pub value: f64,
    pub unit: String,
    /// Of the base in the same round, median over the rounds; `None` when a round lacks it.
    pub growth: Option<f64>,
    /// `None` where the paper gives no figure.
    pub published: Option<f64>,
}

impl Report {
    pub(super) fn new(options: &Options, all: Collector) -> Report {
        let (figures, failures) = all.into_parts();
        let mut points = Vec::new();
        for run in options.setups().iter().flat_map(|setup| &setup.runs) {
            for phase in ["write", "read", "score"] {
                let name = run.figure_name(phase);
                let Some(value) = median(values(&figures, &name)) else { continue };
                let (base, at) = options.base(&run.series);
                points.push(Point {
                    series: run.series.clone(),
                    phase: phase.to_string(),
                    count: run.count,
                    value,
                    unit: if phase == "score" { "K/s" } else { "MiB/s" }.to_string(),
                    growth: median(&ratios(&figures, &name, &format!("{base} {phase} @{at}"))),
                    published: options.published(&run.series, phase, run.count),
                });
            }
        }
        let (options, machine) = (options.clone(), Machine::here());
        Report { options, machine, figures, points, failures }
    }

    /// For people: a line per point.
    pub fn table(&self) -> Table {
        let axis = self.options.experiment.axis();
        let mut table =
            Table::new(&["curve", "phase", axis, "value", "unit", "/ base", "published"]);
        let two = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
        for point in &self.points {
            table.row(vec![
                point.series.clone(),
                point.phase.clone(),
                point.count.to_string(),
                rate(point.value),
                point.unit.clone(),
                two(point.growth),
                two(point.published),
            ]);
        }
        table
    }

    /// The published shape in words, what each figure is held against, and what this machine cannot show.
    pub fn sentences(&self) -> Vec<String> {
        let experiment = self.options.experiment;
        let base = match experiment {
            Experiment::Tasks => "transfers of 1 MiB of the most tasks, one engine",
            Experiment::HardByEngines => "transfers of 47,008 bytes with the fewest engines",
            _ => "the first point of the curve",
        };
        let mut all = vec![
            format!("published: {}", experiment.published()),
            format!("base: {base}, in the same round"),
        ];
        let setups = self.options.setups();
        let most = setups.iter().map(|setup| setup.size.engines * setup.size.targets).max();
        let (most, cpus) = (u64::from(most.unwrap_or(0)), self.machine.cpu_count as u64);
        let at_work = most + u64::from(self.options.processes);
        if at_work > cpus {
            all.push(match experiment {
                Experiment::Devices => format!(
                    "{cpus} processors here: devices are made slow ({} MiB/s each), so that they and not the processors are the limit; no network stops reads",
                    self.options.device_rate_max >> 20
                ),
                _ => format!(
                    "{cpus} processors here for up to {most} targets and their clients: beyond {cpus} of all these together nothing can grow, and what is seen is what sharing them costs"
                ),
            });
        }
        all
    }

    /// The plot: growth of each curve, and the published one.
    pub fn svg(&self) -> String {
        let mut series: Vec<Series> = Vec::new();
        let mut put = |name: String, point: &Point, value: Option<f64>| {
            let Some(value) = value else { return };
            let at = (f64::from(point.count), value);
            match series.iter_mut().find(|known| known.name == name) {
                Some(known) => known.points.push(at),
                None => series.push(Series { name, points: vec![at] }),
            }
        };
        for point in &self.points {
            put(format!("{} {}", point.series, point.phase), point, point.growth);
        }
        for point in &self.points {
            put(format!("{} {}, published", point.series, point.phase), point, point.published);
        }
        let lines = Lines {
            title: format!(
                "Growth by {} (S4, {})",
                self.options.experiment.axis(),
                self.options.experiment
            ),
            x_label: self.options.experiment.axis().to_string(),
            y_label: "of the base in the same round".to_string(),
            series,
        };
        lines.svg()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_taken_within_rounds() {
        let mut all = Collector::default();
        for (few, many) in [(100.0, 200.0), (10.0, 19.0), (1000.0, 2100.0)] {
            all.put("IOR write @1", "MiB/s", few);
            all.put("IOR write @2", "MiB/s", many);
        }
        all.put("IOR read @2", "MiB/s", 5.0);
        let options = Options { counts: vec![1, 2], ..Options::default() };
        let report = Report::new(&options, all);
        let growth = |phase: &str, count| {
            let found = report.points.iter().find(|p| p.phase == phase && p.count == count);
            found.map(|point| (point.growth, point.published))
        };
        assert_eq!(growth("write", 2), Some((Some(2.0), Some(2.0))));
        assert_eq!(growth("read", 2), Some((None, Some(2.0))), "its base was not measured");
        assert_eq!(growth("read", 1), None);
        let text = report.table().to_string();
        assert!(text.contains("devices of the engine") && text.contains("2.00"), "{text}");
        let svg = report.svg();
        assert!(svg.contains("IOR write, published"), "{svg}");
        assert!(report.sentences()[0].contains("eight devices"));
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap().points, report.points);
    }
}
