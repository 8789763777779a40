//! One run of a load: fresh processes, each step of output at the same moment, with or without
//! coordination; and what became of it.

use super::coordination::Coordination;
use super::limit::Limit;
use super::load::Load;
use super::stage::Stage;
use crate::crew::{Crew, Job, Phase, Sample, Step};
use crate::place::Where;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use types::{Code, Error, Result};

/// One run under one limit, over all its processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    pub limit: Limit,
    /// Processes for each target.
    pub writers: u32,
    /// Which repetition, from 0.
    pub round: u32,
    /// Bytes of all processes.
    pub bytes: u64,
    /// Of each step from the first start to the last end, added up.
    pub seconds: f64,
    pub bytes_per_s: f64,
    /// Of each step from the first start to the last end, those before the counted ones too.
    pub step_s: Vec<f64>,
    /// Calls that the coordinator granted.
    pub granted: u64,
    /// Each process, by rank.
    pub processes: Vec<Process>,
}

/// What became of one process.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Process {
    /// From 0.
    pub rank: u32,
    pub target: u32,
    /// Of each step from the first start of any process to the end of this one, added up, seconds.
    pub end_s: f64,
    /// Spent in steps, seconds.
    pub output_s: f64,
    /// Of that, waiting for the coordinator, seconds; 0 without one.
    pub wait_s: f64,
}

/// How to run.
#[derive(Clone)]
pub struct Plan<'a> {
    pub stage: &'a Stage,
    /// The `azekura` command.
    pub binary: PathBuf,
    pub preload: PathBuf,
    /// Calls on fewer bytes do not ask.
    pub min_bytes: u64,
    /// Read back and compare after the last step.
    pub verify: bool,
    /// Between steps, as if something was computed.
    pub pause: Duration,
}

impl Plan<'_> {
    /// Runs a load on `writers` processes for each target. Of its steps the first `warm_up` are
    /// not counted.
    ///
    /// Errors: those of the processes and of the coordinator; `Io` when calls should have been
    /// coordinated and none was.
    pub fn run(
        &self,
        load: &Load,
        writers: u32,
        round: u32,
        limit: Limit,
        warm_up: usize,
    ) -> Result<Run> {
        let coordination = match limit {
            Limit::Off => None,
            _ => {
                let scratch = self.stage.scratch();
                Some(Coordination::start(&self.binary, &self.preload, scratch, limit)?)
            }
        };
        let place = Where::Posix(self.stage.dir().to_path_buf());
        let job = Job::Ioc(load.clone());
        let variables = |rank: u32| match &coordination {
            None => Vec::new(),
            Some(there) => there.variables(load.target(rank), self.min_bytes),
        };
        let mut crew = Crew::start_in(&job, &place, writers * load.targets, &variables)?;
        let pids = crew.pids();
        let mut step = |phase, at: usize| {
            let step = Step { phase, iteration: at as u32, item_count: 0, wall_ns: None };
            crew.run(step, &[]).map(|done| done.samples)
        };
        step(Phase::Prepare, 0)?;
        let mut steps: Vec<Vec<Sample>> = Vec::new();
        for at in 0..load.outputs.len() {
            if at > 0 {
                std::thread::sleep(self.pause);
            }
            steps.push(step(Phase::Write, at)?);
        }
        if self.verify {
            step(Phase::CheckWrite, 0)?;
        }
        step(Phase::CleanOwn, 0)?;
        crew.finish()?;
        let mut run = Run::of(limit, writers, round, load, &steps, warm_up);
        if let Some(coordination) = coordination {
            let trace = coordination.finish()?;
            run.granted = trace.granted();
            let asks = load.outputs.iter().flat_map(|output| &output.calls);
            if run.granted == 0 && asks.into_iter().any(|&bytes| bytes >= self.min_bytes) {
                let text = "no call was coordinated: the preload library did not reach the \
                            coordinator (AZEKURA_IOC_LOG=FILE shows why)";
                return Err(Error::new(Code::Io, text));
            }
            if warm_up == 0 {
                for (process, pid) in run.processes.iter_mut().zip(pids) {
                    process.wait_s = trace.waited_s(pid).min(process.output_s);
                }
            }
        }
        Ok(run)
    }
}

impl Run {
    /// From the samples of all steps, by step and rank; the first `warm_up` are not counted.
    fn of(
        limit: Limit,
        writers: u32,
        round: u32,
        load: &Load,
        steps: &[Vec<Sample>],
        warm_up: usize,
    ) -> Run {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let mut processes: Vec<Process> = (0..writers * load.targets)
            .map(|rank| Process { rank, target: load.target(rank), ..Process::default() })
            .collect();
        let (mut bytes, mut total_s, mut step_s) = (0, 0.0, Vec::new());
        for (at, samples) in steps.iter().enumerate() {
            let start_ns = samples.iter().map(|sample| sample.start_ns).min().unwrap_or(0);
            let end_ns = samples.iter().map(|sample| sample.end_ns).max().unwrap_or(0);
            let this_s = seconds(end_ns.saturating_sub(start_ns));
            step_s.push(this_s);
            if at < warm_up {
                continue;
            }
            total_s += this_s;
            for (process, sample) in processes.iter_mut().zip(samples) {
                process.end_s += seconds(sample.end_ns.saturating_sub(start_ns));
                process.output_s += seconds(sample.end_ns.saturating_sub(sample.start_ns));
                bytes += sample.bytes;
            }
        }
        let total_s = f64::max(total_s, 1e-9);
        let bytes_per_s = bytes as f64 / total_s;
        let seconds = total_s;
        Run { limit, writers, round, bytes, seconds, bytes_per_s, step_s, granted: 0, processes }
    }

    /// Mean over the processes of the time spent in output, seconds.
    pub fn output_s_mean(&self) -> f64 {
        let total: f64 = self.processes.iter().map(|process| process.output_s).sum();
        total / self.processes.len().max(1) as f64
    }

    /// The longest time any process spent in output, seconds.
    pub fn output_s_max(&self) -> f64 {
        self.processes.iter().map(|process| process.output_s).fold(0.0, f64::max)
    }

    /// When the last process was done, seconds.
    pub fn last_end_s(&self) -> f64 {
        self.processes.iter().map(|process| process.end_s).fold(0.0, f64::max)
    }

    /// The processes in the order in which they were done.
    pub fn by_end(&self) -> Vec<Process> {
        let mut sorted = self.processes.clone();
        sorted.sort_by(|a, b| a.end_s.total_cmp(&b.end_s));
        sorted
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::Output;
    use super::*;

    #[test]
    fn times_of_steps_add_up() {
        let output = Output { file: 0, fresh: false, calls: vec![4096] };
        let load = Load {
            targets: 1,
            outputs: vec![output.clone(), output],
            direct: false,
            fsync: false,
            seed: 1,
        };
        let sample = |start_s: u64, end_s: u64| Sample {
            start_ns: start_s * 1_000_000_000,
            end_ns: end_s * 1_000_000_000,
            bytes: 4096,
            ..Sample::default()
        };
        let steps = [vec![sample(10, 14), sample(11, 12)], vec![sample(20, 21), sample(20, 23)]];
        let run = Run::of(Limit::Off, 2, 0, &load, &steps, 0);
        assert_eq!((run.bytes, run.seconds), (4 * 4096, 7.0));
        assert_eq!((run.output_s_mean(), run.output_s_max()), (4.5, 5.0));
        let ends: Vec<f64> = run.by_end().iter().map(|process| process.end_s).collect();
        assert_eq!(ends, [5.0, 5.0]);
        assert_eq!((run.processes[1].output_s, run.last_end_s()), (4.0, 5.0));
        let warm = Run::of(Limit::Auto, 2, 0, &load, &steps, 1);
        assert_eq!((warm.bytes, warm.seconds, warm.last_end_s()), (2 * 4096, 3.0, 3.0));
        assert_eq!(warm.step_s, [4.0, 3.0]);
    }
}
