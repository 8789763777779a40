//! The paper's micro-benchmark (its section 4.2, figures 9 and 10): each process writes a file of
//! its own, all at the same time, for a growing number of processes per target.
//!
//! Each number of writers is run without and with coordination, one right after the other, the
//! first of the two changing from round to round. At the largest number the limits are compared:
//! fixed ones and the one that the coordinator finds itself, there with many smaller calls, since
//! nothing can be learnt from a process that asks once.

use super::device::Done;
use super::limit::Limit;
use super::load::{Load, Output, scaled};
use super::plots;
use super::round::{Plan, Run};
use super::setting::Setting;
use crate::report::{Machine, Spread};
use crate::suite::say;
use crate::suite::verdict::{self, Goal, Verdict};
use crate::table::{Table, bandwidth};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use types::{Error, Result};

/// The paper's file size.
const FILE_BYTES: u64 = 1_000_000_000;
/// Calls when limits are compared: the smallest that the paper coordinates. Less would fit into
/// what a client has on its way, and the call would be over before its data are.
const CALL_BYTES: u64 = 8_000_000;
/// Calls of a file when limits are compared, at most and at least.
const CALLS: (u64, u64) = (16, 2);
/// Steps that are counted when limits are compared.
const STEPS: usize = 3;

/// What to run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Where and with what.
    pub setting: Setting,
    /// Numbers of processes for each target.
    pub writers: Vec<u32>,
    /// Bytes each process writes, before scaling.
    pub bytes: u64,
    /// Bytes of a call, before scaling; `None`: all in one call, as in the paper.
    pub call_bytes: Option<u64>,
    /// Fixed limits that `auto` is compared with; empty: no comparison.
    pub limits: Vec<u32>,
    /// When limits are compared, how many times each process writes its file before it is
    /// counted, while the coordinator finds its limit. Fixed limits have nothing to learn.
    pub warm_up: u32,
    /// Where to draw throughput against writers; completion times go beside it.
    pub plot: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            setting: Setting::default(),
            writers: vec![1, 2, 4, 8, 16],
            bytes: FILE_BYTES,
            call_bytes: None,
            limits: vec![1, 2, 4, 8],
            warm_up: 8,
            plot: None,
        }
    }
}

/// What came out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// `ioc micro`.
    pub benchmark: String,
    /// As it was run.
    pub options: Options,
    /// What it ran on.
    pub machine: Machine,
    /// Every run, in order.
    pub runs: Vec<Run>,
    /// Runs at the largest number of writers with different limits.
    pub limits: Vec<Run>,
    /// What the modelled targets have done in all runs together; empty on a directory.
    pub device: Vec<Done>,
    /// The goals and what became of them; empty on a directory, where they are not promised.
    pub verdicts: Vec<Verdict>,
}

impl Options {
    /// `Inval`, naming the option, when these make no run.
    pub fn check(&self) -> Result<()> {
        self.setting.check()?;
        if self.writers.is_empty() || self.writers.len() > 100 {
            return Err(Error::inval("writers: want 1 to 100 numbers"));
        }
        for &writers in &self.writers {
            self.setting.check_writers("writers", writers)?;
        }
        if self.limits.contains(&0) || self.limits.len() > 100 {
            return Err(Error::inval("limits: want at most 100 numbers, 1 or more each"));
        }
        if self.warm_up > 1000 {
            return Err(Error::inval("warm-up: want at most 1,000"));
        }
        if self.bytes == 0 || self.call_bytes == Some(0) {
            return Err(Error::inval("size and call: want 1 or more bytes"));
        }
        Ok(())
    }

    /// Files in calls of `call` bytes, `steps` times over.
    fn load(&self, call: u64, steps: usize) -> Load {
        let file = scaled(self.bytes, self.setting.scale);
        let call = call.min(file);
        let mut calls = vec![call; (file / call) as usize];
        if !file.is_multiple_of(call) {
            calls.push(file % call);
        }
        let output = Output { file: 0, fresh: true, calls };
        Load {
            targets: self.setting.targets,
            outputs: vec![output; steps],
            direct: self.setting.direct,
            fsync: self.setting.fsync,
            seed: self.setting.seed,
        }
    }

    fn writers_max(&self) -> u32 {
        self.writers.iter().copied().max().unwrap_or(0)
    }

    /// The limits to compare at the largest number of writers.
    fn rivals(&self) -> Vec<Limit> {
        let below = self.limits.iter().filter(|&&limit| limit < self.writers_max());
        let mut rivals: Vec<Limit> = below.map(|&limit| Limit::Writers(limit)).collect();
        if !rivals.is_empty() {
            rivals.push(Limit::Auto);
        }
        rivals
    }
}

/// Runs the experiment.
///
/// Errors: when options make no sense, the place cannot be prepared, the library or `out` cannot
/// be used, or a run fails. Goals that are missed are in the report.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<Report> {
    options.check()?;
    let setting = &options.setting;
    let machine = Machine::here();
    say(out, &setting.header("bench ioc micro", &machine))?;
    let stage = setting.set_stage()?;
    let plan = setting.plan(&stage, Duration::ZERO)?;
    let mut runs = Vec::new();
    let mut limits = Vec::new();
    for round in 0..setting.repeat {
        measure(options, &plan, round, &mut runs, out)?;
        compare(options, &plan, round, &mut limits, out)?;
    }
    drop(plan);
    let device = stage.strike()?.map(|report| report.targets).unwrap_or_default();
    let mut report = Report {
        benchmark: "ioc micro".to_string(),
        options: options.clone(),
        machine,
        runs,
        limits,
        device,
        verdicts: Vec::new(),
    };
    if setting.is_modelled() {
        report.verdicts = report.judge();
    }
    report.print(out)?;
    if let Some(path) = &options.plot {
        plots::micro(&report, path)?;
    }
    Ok(report)
}

/// All numbers of writers, without and with coordination.
fn measure(
    options: &Options,
    plan: &Plan<'_>,
    round: u32,
    runs: &mut Vec<Run>,
    out: &mut dyn Write,
) -> Result<()> {
    let file = scaled(options.bytes, options.setting.scale);
    let call = options.call_bytes.map_or(file, |call| scaled(call, options.setting.scale));
    let load = options.load(call, 1);
    for &writers in &options.writers {
        let mut sides = [Limit::Off, options.setting.limit];
        sides.rotate_left(round as usize % 2);
        for limit in sides {
            let run = plan.run(&load, writers, round, limit, 0)?;
            say(out, &line(&run))?;
            runs.push(run);
        }
    }
    Ok(())
}

/// The largest number of writers with each of the limits.
fn compare(
    options: &Options,
    plan: &Plan<'_>,
    round: u32,
    runs: &mut Vec<Run>,
    out: &mut dyn Write,
) -> Result<()> {
    let file = scaled(options.bytes, options.setting.scale);
    let call = scaled(CALL_BYTES.clamp(file / CALLS.0, file / CALLS.1), 1.0);
    // Calls may be smaller here than elsewhere; all of them are to ask.
    let plan = Plan { min_bytes: 0, ..plan.clone() };
    for limit in options.rivals() {
        let warm_up = if limit == Limit::Auto { options.warm_up as usize } else { 0 };
        let load = options.load(call, warm_up + STEPS);
        let run = plan.run(&load, options.writers_max(), round, limit, warm_up)?;
        say(out, &format!("{}, in calls of {}", line(&run), types::size::format(call)))?;
        runs.push(run);
    }
    Ok(())
}

fn line(run: &Run) -> String {
    format!(
        "round {}: {:>2} writers, limit {:>4}: {}, last after {:.2} s",
        run.round + 1,
        run.writers,
        run.limit,
        bandwidth(run.bytes_per_s),
        run.last_end_s()
    )
}

impl Report {
    /// A figure of the runs with so many writers and this limit, by rounds.
    fn figures(&self, writers: u32, limit: Limit, figure: fn(&Run) -> f64) -> Vec<f64> {
        let runs = self.runs.iter().filter(|run| run.writers == writers && run.limit == limit);
        runs.map(figure).collect()
    }

    /// Throughput by rounds.
    pub(super) fn throughputs(&self, writers: u32, limit: Limit) -> Vec<f64> {
        self.figures(writers, limit, |run| run.bytes_per_s)
    }

    /// The best throughput of any number of writers without coordination, by rounds.
    fn best_free(&self) -> Vec<f64> {
        let of = |round| {
            let free = |run: &&Run| run.round == round && run.limit == Limit::Off;
            self.runs.iter().filter(free).map(|run| run.bytes_per_s).fold(0.0, f64::max)
        };
        (0..self.options.setting.repeat).map(of).collect()
    }

    /// The goals, applied.
    fn judge(&self) -> Vec<Verdict> {
        let most = self.options.writers_max();
        let kept = self.options.setting.limit;
        let ratios = |over: Vec<f64>, under: Vec<f64>| -> Vec<f64> {
            over.into_iter().zip(under).map(|(over, under)| over / under).collect()
        };
        let held = self.throughputs(most, kept);
        let mut verdicts = vec![
            Verdict::of(
                &format!("throughput, {most} coordinated / best uncoordinated"),
                "x",
                Goal::AtLeast(0.97),
                &ratios(held.clone(), self.best_free()),
            ),
            Verdict::of(
                &format!("throughput, {most} coordinated / uncoordinated"),
                "x",
                Goal::AtLeast(1.25),
                &ratios(held, self.throughputs(most, Limit::Off)),
            ),
            Verdict::of(
                &format!("last of {most} done, coordinated / uncoordinated"),
                "x",
                Goal::Below(1.0),
                &ratios(
                    self.figures(most, kept, Run::last_end_s),
                    self.figures(most, Limit::Off, Run::last_end_s),
                ),
            ),
        ];
        if self.options.writers.contains(&1) {
            verdicts.push(Verdict::of(
                "throughput, 1 writer a target, coordinated / uncoordinated",
                "x",
                Goal::AtLeast(0.98),
                &ratios(self.throughputs(1, kept), self.throughputs(1, Limit::Off)),
            ));
        }
        if !self.options.rivals().is_empty() {
            verdicts.push(Verdict::of(
                &format!("throughput, {most} writers, limit auto / best fixed"),
                "x",
                Goal::AtLeast(0.95),
                &ratios(self.rival(true), self.rival(false)),
            ));
        }
        verdicts
    }

    /// Throughput by rounds when limits were compared: of `auto`, or of the best fixed one.
    fn rival(&self, auto: bool) -> Vec<f64> {
        let of = |round| {
            let side = |run: &&Run| run.round == round && (run.limit == Limit::Auto) == auto;
            self.limits.iter().filter(side).map(|run| run.bytes_per_s).fold(0.0, f64::max)
        };
        (0..self.options.setting.repeat).map(of).collect()
    }

    fn print(&self, out: &mut dyn Write) -> Result<()> {
        let kept = self.options.setting.limit;
        let mut table = Table::new(&[
            "writers a target",
            "uncoordinated",
            "coordinated",
            "ratio",
            "last done",
            "coordinated",
        ]);
        for &writers in &self.options.writers {
            let median = |figures: Vec<f64>| Spread::of(&figures).median;
            let free = median(self.throughputs(writers, Limit::Off));
            let held = median(self.throughputs(writers, kept));
            let last = |limit| median(self.figures(writers, limit, Run::last_end_s));
            table.row(vec![
                writers.to_string(),
                bandwidth(free),
                bandwidth(held),
                format!("{:.2}", held / free),
                format!("{:.2} s", last(Limit::Off)),
                format!("{:.2} s", last(kept)),
            ]);
        }
        say(out, &format!("\nmedians over the rounds\n{table}"))?;
        self.print_completions(out)?;
        if !self.limits.is_empty() {
            let mut table = Table::new(&["limit", "median", "min", "max"]);
            for limit in self.options.rivals() {
                let runs = self.limits.iter().filter(|run| run.limit == limit);
                let spread = Spread::of(&runs.map(|run| run.bytes_per_s).collect::<Vec<_>>());
                let cells = [spread.median, spread.min, spread.max].map(bandwidth);
                table.row([vec![limit.to_string()], cells.to_vec()].concat());
            }
            let writers = self.options.writers_max();
            say(out, &format!("{writers} writers, in smaller calls\n{table}"))?;
        }
        for (target, done) in self.device.iter().enumerate() {
            let mean = done.bytes.checked_div(done.runs).unwrap_or(0);
            say(
                out,
                &format!(
                    "target {target}: {} in {} runs of {} on average, {} seeks, busy {:.1} s",
                    types::size::format(done.bytes),
                    done.runs,
                    types::size::format(mean),
                    done.seeks,
                    done.busy_ns as f64 / 1e9
                ),
            )?;
        }
        if self.options.setting.is_modelled() {
            say(out, &verdict::table(&self.verdicts).to_string())?;
            let reached = self.verdicts.iter().filter(|verdict| verdict.reached).count();
            say(out, &format!("{reached} of {} goals reached", self.verdicts.len()))?;
        }
        Ok(())
    }

    /// When each process was done, in order, at the largest number of writers in the last round.
    fn print_completions(&self, out: &mut dyn Write) -> Result<()> {
        let kept = self.options.setting.limit;
        let mut table = Table::new(&["done", "uncoordinated", "coordinated", "waited", "wrote"]);
        let (Some(free), Some(held)) = (self.last_run(Limit::Off), self.last_run(kept)) else {
            return Ok(());
        };
        for (at, (free, held)) in free.by_end().iter().zip(held.by_end()).enumerate() {
            table.row(vec![
                (at + 1).to_string(),
                format!("{:.2} s", free.end_s),
                format!("{:.2} s", held.end_s),
                format!("{:.2} s", held.wait_s),
                format!("{:.2} s", held.output_s - held.wait_s),
            ]);
        }
        say(out, &format!("processes in the order in which they were done, last round\n{table}"))
    }

    /// The last run with the largest number of writers.
    pub(super) fn last_run(&self, limit: Limit) -> Option<&Run> {
        let most = self.options.writers_max();
        self.runs.iter().rev().find(|run| run.writers == most && run.limit == limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(round: u32, writers: u32, limit: Limit, bytes_per_s: f64) -> Run {
        Run {
            limit,
            writers,
            round,
            bytes: 1,
            seconds: 1.0 / bytes_per_s,
            bytes_per_s,
            step_s: Vec::new(),
            granted: 1,
            processes: vec![super::super::round::Process {
                end_s: 1.0 / bytes_per_s,
                ..Default::default()
            }],
        }
    }

    /// The goals as the issue states them, on made-up figures of two rounds.
    #[test]
    fn verdicts_follow_from_the_runs() {
        let (off, two) = (Limit::Off, Limit::Writers(2));
        let mut report = Report {
            benchmark: String::new(),
            options: Options {
                writers: vec![1, 2, 16],
                setting: Setting { repeat: 2, ..Setting::default() },
                ..Options::default()
            },
            machine: Machine::default(),
            runs: Vec::new(),
            limits: Vec::new(),
            device: Vec::new(),
            verdicts: Vec::new(),
        };
        for round in 0..2 {
            for (writers, limit, rate) in [
                (1, off, 130.0),
                (1, two, 129.0),
                (2, off, 200.0),
                (2, two, 198.0),
                (16, off, 150.0),
                (16, two, 196.0),
            ] {
                report.runs.push(run(round, writers, limit, rate));
            }
            report.limits.push(run(round, 16, two, 190.0));
            report.limits.push(run(round, 16, Limit::Writers(4), 180.0));
            report.limits.push(run(round, 16, Limit::Auto, 171.0));
        }
        let verdicts = report.judge();
        let medians: Vec<f64> = verdicts.iter().map(|verdict| verdict.measured.median).collect();
        let wanted = [0.98, 196.0 / 150.0, 150.0 / 196.0, 129.0 / 130.0, 0.9];
        assert!(medians.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-9), "{medians:?}");
        let reached: Vec<bool> = verdicts.iter().map(|verdict| verdict.reached).collect();
        assert_eq!(reached, [true, true, true, true, false]);
        let mut text = Vec::new();
        report.verdicts = verdicts;
        report.print(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("MISSED") && text.contains("4 of 5 goals reached"), "{text}");
    }

    #[test]
    fn files_are_cut_into_calls() {
        let setting = Setting { scale: 1.0, ..Setting::default() };
        let options = Options { setting, bytes: 1 << 20, ..Options::default() };
        assert_eq!(options.load(1 << 20, 1).outputs[0].calls, [1 << 20]);
        let load = options.load(400 << 10, 2);
        assert_eq!(load.outputs[0].calls, [400 << 10, 400 << 10, 224 << 10]);
        assert_eq!(load.bytes(), 2 << 20);
        assert_eq!(options.load(1 << 30, 1).bytes(), 1 << 20);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        Options::default().check().unwrap();
        let with = |change: fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            options.check().unwrap_err().to_string()
        };
        assert!(with(|options| options.writers.clear()).contains("writers"));
        assert!(with(|options| options.writers.push(0)).contains("writers"));
        assert!(with(|options| options.limits.push(0)).contains("limits"));
        assert!(with(|options| options.bytes = 0).contains("size"));
        assert!(with(|options| options.setting.targets = 0).contains("targets"));
    }
}
