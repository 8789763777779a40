//! The output of a climate simulation as the paper describes it (its section 4.3, figure 11):
//! NICAM on the K computer, every process writing a history file in five steps and a restart file
//! at the end, variable by variable, each in one call.
//!
//! The paper gives the number of variables, their total, and the sizes that occur: 12.1 or 24.7 MB
//! in three dimensions, 132, 264 or 528 KB in two. The mix here is one that has these totals. All
//! processes begin a step together, as a simulation's do after computing. What the paper reports
//! is the time a process spends in output: mean and maximum over the processes.

use super::device::Done;
use super::limit::Limit;
use super::load::{Load, Output, scaled};
use super::plots;
use super::round::Run;
use super::setting::Setting;
use super::stage::Ground;
use crate::report::{Machine, Spread};
use crate::suite::say;
use crate::suite::verdict::{self, Goal, Verdict};
use crate::table::{Table, bandwidth};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use types::{Error, Result};

/// Variables of a history step: how many, and bytes of each. 15, 146 MB.
const HISTORY: [(usize, u64); 4] = [(10, 12_100_000), (1, 24_700_000), (3, 132_000), (1, 264_000)];
/// Variables of the restart file. 29, 400 MB.
const RESTART: [(usize, u64); 4] = [(2, 12_100_000), (15, 24_700_000), (8, 528_000), (4, 264_000)];
const STEPS: usize = 5;

/// What to run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Where and with what. A modelled device is scaled like the sizes, so that a smaller run has
    /// the schedule of the whole.
    pub setting: Setting,
    /// Processes for each target. The paper's 320 processes had 24 targets.
    pub writers: u32,
    /// Between steps, as if something was computed, seconds.
    pub pause_s: f64,
    /// Where to draw the times.
    pub plot: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        let setting = Setting { scale: 0.125, ..Setting::default() };
        Options { setting, writers: 13, pause_s: 0.1, plot: None }
    }
}

/// What came out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// `ioc nicam`.
    pub benchmark: String,
    /// As it was run, the modelled device as it was scaled.
    pub options: Options,
    /// What it ran on.
    pub machine: Machine,
    /// Every run, in order.
    pub runs: Vec<Run>,
    /// What the modelled targets have done in all runs together; empty on a directory.
    pub device: Vec<Done>,
    /// The goals and what became of them; empty on a directory, where they are not promised.
    pub verdicts: Vec<Verdict>,
}

impl Options {
    /// `Inval`, naming the option, when these make no run.
    pub fn check(&self) -> Result<()> {
        self.setting.check()?;
        self.setting.check_writers("writers", self.writers)?;
        if !(0.0..=3600.0).contains(&self.pause_s) {
            return Err(Error::inval("pause: want 0 to 3,600 seconds"));
        }
        Ok(())
    }

    fn load(&self) -> Load {
        let calls = |variables: &[(usize, u64)]| -> Vec<u64> {
            let sizes = |&(count, bytes): &(usize, u64)| {
                std::iter::repeat_n(scaled(bytes, self.setting.scale), count)
            };
            variables.iter().flat_map(sizes).collect()
        };
        let mut outputs = vec![Output { file: 0, fresh: false, calls: calls(&HISTORY) }; STEPS];
        outputs.push(Output { file: 1, fresh: false, calls: calls(&RESTART) });
        Load {
            targets: self.setting.targets,
            outputs,
            direct: self.setting.direct,
            fsync: self.setting.fsync,
            seed: self.setting.seed,
        }
    }
}

/// Runs the experiment.
///
/// Errors: when options make no sense, the place cannot be prepared, the library or `out` cannot
/// be used, or a run fails. Goals that are missed are in the report.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<Report> {
    let mut options = options.clone();
    options.check()?;
    if let Ground::Model { device, .. } = &mut options.setting.ground {
        *device = device.scaled(options.setting.scale);
    }
    let setting = &options.setting;
    let machine = Machine::here();
    say(out, &setting.header("bench ioc nicam", &machine))?;
    let load = options.load();
    say(
        out,
        &format!(
            "{} processes a target, each {} in {} steps, {} s between them",
            options.writers,
            types::size::format(load.bytes()),
            load.outputs.len(),
            options.pause_s
        ),
    )?;
    let stage = setting.set_stage()?;
    let plan = setting.plan(&stage, Duration::from_secs_f64(options.pause_s))?;
    let mut runs = Vec::new();
    for round in 0..setting.repeat {
        let mut sides = [Limit::Off, setting.limit];
        sides.rotate_left(round as usize % 2);
        for limit in sides {
            let run = plan.run(&load, options.writers, round, limit, 0)?;
            let text = format!(
                "round {}: limit {:>4}: output takes {:.2} s on average, {:.2} s at most, {}",
                round + 1,
                limit,
                run.output_s_mean(),
                run.output_s_max(),
                bandwidth(run.bytes_per_s)
            );
            say(out, &text)?;
            runs.push(run);
        }
    }
    drop(plan);
    let device = stage.strike()?.map(|report| report.targets).unwrap_or_default();
    let mut report = Report {
        benchmark: "ioc nicam".to_string(),
        machine,
        runs,
        device,
        verdicts: Vec::new(),
        options: options.clone(),
    };
    if setting.is_modelled() {
        report.verdicts = report.judge();
    }
    report.print(out)?;
    if let Some(path) = &options.plot {
        plots::nicam(&report, path)?;
    }
    Ok(report)
}

impl Report {
    /// A figure of one side, by rounds.
    pub(super) fn figures(&self, limit: Limit, figure: fn(&Run) -> f64) -> Vec<f64> {
        self.runs.iter().filter(|run| run.limit == limit).map(figure).collect()
    }

    fn judge(&self) -> Vec<Verdict> {
        let kept = self.options.setting.limit;
        let ratios = |figure: fn(&Run) -> f64| -> Vec<f64> {
            let (held, free) = (self.figures(kept, figure), self.figures(Limit::Off, figure));
            held.into_iter().zip(free).map(|(held, free)| held / free).collect()
        };
        let mean = ratios(Run::output_s_mean);
        let max = ratios(Run::output_s_max);
        vec![
            Verdict::of("mean output time, coordinated / not", "x", Goal::AtMost(0.9), &mean),
            Verdict::of("longest output time, coordinated / not", "x", Goal::Below(1.0), &max),
        ]
    }

    fn print(&self, out: &mut dyn Write) -> Result<()> {
        let mut table = Table::new(&["side", "mean", "max", "throughput", "granted calls"]);
        for (name, limit) in
            [("uncoordinated", Limit::Off), ("coordinated", self.options.setting.limit)]
        {
            let median = |figure| Spread::of(&self.figures(limit, figure)).median;
            let granted = self.runs.iter().rev().find(|run| run.limit == limit);
            table.row(vec![
                name.to_string(),
                format!("{:.2} s", median(Run::output_s_mean)),
                format!("{:.2} s", median(Run::output_s_max)),
                bandwidth(median(|run| run.bytes_per_s)),
                granted.map_or(0, |run| run.granted).to_string(),
            ]);
        }
        say(out, &format!("\ntime in output of a process, medians over the rounds\n{table}"))?;
        if self.options.setting.is_modelled() {
            say(out, &verdict::table(&self.verdicts).to_string())?;
            let reached = self.verdicts.iter().filter(|verdict| verdict.reached).count();
            say(out, &format!("{reached} of {} goals reached", self.verdicts.len()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's totals, to its precision.
    #[test]
    fn the_mix_has_the_papers_totals() {
        let total = |variables: &[(usize, u64)]| -> (usize, u64) {
            let bytes: u64 = variables.iter().map(|&(count, bytes)| count as u64 * bytes).sum();
            (variables.iter().map(|variable| variable.0).sum(), (bytes + 500_000) / 1_000_000)
        };
        assert_eq!(total(&HISTORY), (15, 146));
        assert_eq!(total(&RESTART), (29, 400));
        let sizes = [12_100_000, 24_700_000, 132_000, 264_000, 528_000];
        assert!(HISTORY.iter().chain(&RESTART).all(|variable| sizes.contains(&variable.1)));
        let load = Options::default().load();
        assert_eq!(load.outputs.len(), 6);
        let whole = (5.0 * 146.36e6 + 399.98e6) * 0.125;
        assert!((load.bytes() as f64 / whole - 1.0).abs() < 0.01, "{}", load.bytes());
    }

    #[test]
    fn only_variables_in_three_dimensions_ask() {
        let options = Options::default();
        let min = (options.setting.min_bytes as f64 * options.setting.scale) as u64;
        let load = options.load();
        let asking = |output: &Output| output.calls.iter().filter(|&&call| call >= min).count();
        assert_eq!(load.outputs.iter().map(asking).collect::<Vec<_>>(), [11, 11, 11, 11, 11, 17]);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        Options::default().check().unwrap();
        let error = Options { writers: 0, ..Options::default() }.check().unwrap_err();
        assert!(error.to_string().contains("writers"));
        let error = Options { pause_s: f64::NAN, ..Options::default() }.check().unwrap_err();
        assert!(error.to_string().contains("pause"));
    }
}
