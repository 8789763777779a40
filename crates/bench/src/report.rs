//! Results: what was run, where, on which machine, and what came out; for people and as JSON.

use crate::crew::{Phase, PhaseSamples, Sample};
use crate::place::Where;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use types::{Error, Result};

/// A finished benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report<O> {
    /// `io` or `md`.
    pub benchmark: String,
    /// All parameters, as they were in force.
    pub options: O,
    pub place: Where,
    /// What it ran on.
    pub machine: Machine,
    /// Every measured phase, in order.
    pub phases: Vec<PhaseResult>,
    /// Over the iterations, by phase, in the order of running.
    pub summary: Vec<PhaseSummary>,
}

impl<O> Report<O> {
    pub(crate) fn new(
        benchmark: &str,
        options: O,
        place: &Where,
        phases: Vec<PhaseResult>,
    ) -> Report<O> {
        Report {
            benchmark: benchmark.to_string(),
            options,
            place: place.clone(),
            machine: Machine::here(),
            summary: summarize(&phases),
            phases,
        }
    }

    /// The summary of a phase, if it was run.
    pub fn phase(&self, phase: Phase) -> Option<&PhaseSummary> {
        self.summary.iter().find(|summary| summary.phase == phase)
    }
}

/// Facts about the machine that figures depend on. What cannot be found out is empty or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the first CPU.
    pub cpu: String,
    /// CPUs this process may use.
    pub cpu_count: usize,
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// Version of this program.
    pub version: String,
    /// Built with optimisation: figures of other builds mean little.
    pub optimized: bool,
}

impl Machine {
    /// The machine this process runs on.
    pub fn here() -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_string())
        };
        let memory_kib = field(&read("/proc/meminfo"), "MemTotal")
            .and_then(|value| value.split(' ').next().and_then(|kib| kib.parse::<u64>().ok()));
        Machine {
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
            cpu_count: std::thread::available_parallelism().map_or(0, |count| count.get()),
            memory_bytes: memory_kib.unwrap_or(0) * 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            optimized: !cfg!(debug_assertions),
        }
    }
}

/// Writes a report as JSON, for people and programs.
///
/// Errors: those of the file system, with its path.
pub(crate) fn write_json(path: &Path, report: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(report)
        .map_err(|error| Error::inval(format!("the report for {}: {error}", path.display())))?;
    write_text(path, &(text + "\n"))
}

/// Writes a file of results.
///
/// Errors: those of the file system, with its path.
pub(crate) fn write_text(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text)
        .map_err(|error| Error::io(format!("writing {}", path.display()), error))
}

/// One phase of one iteration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseResult {
    pub phase: Phase,
    /// From 0.
    pub iteration: u32,
    /// Operations (transfers, or files) of all processes.
    pub ops: u64,
    /// Bytes of all processes.
    pub bytes: u64,
    /// From the earliest start to the latest end.
    pub seconds: f64,
    pub ops_per_s: f64,
    pub bytes_per_s: f64,
    /// CPU time of the benchmark's processes, microseconds per operation.
    pub client_cpu_us_per_op: f64,
    /// CPU time of the server processes on this host, microseconds per operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_cpu_us_per_op: Option<f64>,
    /// Rate of the slowest process over the mean of all: 1 when they are served alike.
    #[serde(default)]
    pub evenness: f64,
}

impl PhaseResult {
    /// From what the workers measured.
    pub(crate) fn from_samples(phase: Phase, iteration: u32, run: &PhaseSamples) -> PhaseResult {
        let samples = &run.samples;
        let start_ns = samples.iter().map(|sample| sample.start_ns).min().unwrap_or(0);
        let end_ns = samples.iter().map(|sample| sample.end_ns).max().unwrap_or(0);
        let ops: u64 = samples.iter().map(|sample| sample.ops).sum();
        let bytes: u64 = samples.iter().map(|sample| sample.bytes).sum();
        let cpu_ns: u64 = samples.iter().map(|sample| sample.cpu_ns).sum();
        // A phase of nothing takes no time worth speaking of, but must not divide by zero.
        let seconds = end_ns.saturating_sub(start_ns).max(1) as f64 / 1e9;
        let us_per_op = |ns: u64| ns as f64 / 1e3 / ops.max(1) as f64;
        PhaseResult {
            phase,
            iteration,
            ops,
            bytes,
            seconds,
            ops_per_s: ops as f64 / seconds,
            bytes_per_s: bytes as f64 / seconds,
            client_cpu_us_per_op: us_per_op(cpu_ns),
            server_cpu_us_per_op: run.server_cpu_ns.map(us_per_op),
            evenness: evenness(samples),
        }
    }

    /// CPU time of clients and servers together, microseconds per operation.
    pub fn cpu_us_per_op(&self) -> f64 {
        self.client_cpu_us_per_op + self.server_cpu_us_per_op.unwrap_or(0.0)
    }
}

/// Rate of the slowest over the mean.
fn evenness(samples: &[Sample]) -> f64 {
    let rate = |sample: &Sample| {
        sample.ops as f64 / sample.end_ns.saturating_sub(sample.start_ns).max(1) as f64
    };
    let rates = || samples.iter().map(rate);
    let mean = rates().sum::<f64>() / samples.len().max(1) as f64;
    // Of nothing everybody has the same share.
    if mean > 0.0 { rates().fold(f64::INFINITY, f64::min) / mean } else { 1.0 }
}

/// One phase over all iterations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseSummary {
    pub phase: Phase,
    pub ops_per_s: Spread,
    pub bytes_per_s: Spread,
    /// CPU time of clients and servers together, microseconds per operation.
    pub cpu_us_per_op: Spread,
    pub seconds: Spread,
}

/// How a figure came out over several runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub min: f64,
    /// Middle; of an even number of runs the mean of the two in the middle.
    pub median: f64,
    pub mean: f64,
    pub max: f64,
    /// Number of runs.
    pub count: usize,
}

impl Spread {
    /// Of these figures; all zero when there are none.
    pub fn of(figures: &[f64]) -> Spread {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else {
            return Spread::default();
        };
        let upper = sorted[sorted.len() / 2];
        let lower = sorted[(sorted.len() - 1) / 2];
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        Spread { min, median: (lower + upper) / 2.0, mean, max, count: sorted.len() }
    }
}

fn summarize(phases: &[PhaseResult]) -> Vec<PhaseSummary> {
    let mut order = Vec::new();
    let mut by_phase: BTreeMap<&str, Vec<&PhaseResult>> = BTreeMap::new();
    for result in phases {
        if !order.contains(&result.phase) {
            order.push(result.phase);
        }
        by_phase.entry(result.phase.name()).or_default().push(result);
    }
    order
        .into_iter()
        .map(|phase| {
            let results = by_phase.get(phase.name()).map(Vec::as_slice).unwrap_or_default();
            let spread = |figure: fn(&PhaseResult) -> f64| {
                Spread::of(&results.iter().map(|&result| figure(result)).collect::<Vec<_>>())
            };
            PhaseSummary {
                phase,
                ops_per_s: spread(|result| result.ops_per_s),
                bytes_per_s: spread(|result| result.bytes_per_s),
                cpu_us_per_op: spread(PhaseResult::cpu_us_per_op),
                seconds: spread(|result| result.seconds),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_count_from_the_earliest_start_to_the_latest_end() {
        let sample =
            |start_ns, end_ns| Sample { start_ns, end_ns, cpu_ns: 4_000, ops: 10, bytes: 80 };
        let run = PhaseSamples {
            samples: vec![sample(1_000_000_000, 2_000_000_000), sample(500_000_000, 1_500_000_000)],
            item_count: 10,
            server_cpu_ns: Some(40_000),
        };
        let result = PhaseResult::from_samples(Phase::Stat, 0, &run);
        assert_eq!(result.seconds, 1.5);
        assert_eq!(result.ops_per_s, 20.0 / 1.5);
        assert_eq!(result.bytes_per_s, 160.0 / 1.5);
        assert_eq!(result.client_cpu_us_per_op, 0.4);
        assert_eq!(result.server_cpu_us_per_op, Some(2.0));
        assert_eq!(result.evenness, 1.0);
        // One needs three times as long as the other: rates of 3 and 1.
        let samples = [sample(0, 1_000), sample(0, 3_000)];
        assert!((evenness(&samples) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn spreads_of_odd_even_and_no_runs() {
        let odd = Spread::of(&[3.0, 1.0, 8.0]);
        assert_eq!((odd.min, odd.median, odd.mean, odd.max), (1.0, 3.0, 4.0, 8.0));
        assert_eq!(Spread::of(&[4.0, 2.0]).median, 3.0);
        assert_eq!(Spread::of(&[]).count, 0);
    }

    #[test]
    fn phases_are_summed_up_in_the_order_of_running() {
        let run = |seconds: u64| PhaseSamples {
            samples: vec![Sample { end_ns: seconds * 1_000_000_000, ops: 12, ..Sample::default() }],
            item_count: 12,
            server_cpu_ns: None,
        };
        let phases: Vec<PhaseResult> = [(Phase::Write, 1), (Phase::Read, 2), (Phase::Write, 3)]
            .into_iter()
            .map(|(phase, seconds)| PhaseResult::from_samples(phase, 0, &run(seconds)))
            .collect();
        let summary = summarize(&phases);
        assert_eq!(
            summary.iter().map(|s| s.phase).collect::<Vec<_>>(),
            [Phase::Write, Phase::Read]
        );
        assert_eq!(summary[0].ops_per_s.max, 12.0);
        assert_eq!(summary[0].ops_per_s.min, 4.0);
    }
}
