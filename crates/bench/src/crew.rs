//! The worker processes of a run, led from outside.
//!
//! Parent and workers speak lines of JSON over the workers' standard input and output. A phase:
//! the parent sends [`Order::Step`] to all, waits until all say [`Answer::Ready`], sends
//! [`Order::Go`], waits until all say [`Answer::Done`]. With a time limit, each worker says
//! [`Answer::Wall`] when its time or its work is over; the parent answers [`Order::Until`] with
//! the largest count, and all go on to that: so later phases find the same work everywhere
//! (IOR and mdtest call it stonewalling with wear-out).
//!
//! Invariant: no worker outlives its crew. Dropping the crew kills and reaps them; a worker
//! whose parent is gone reads the end of its input, and ends.

use crate::place::Where;
use crate::suite::hop;
use crate::worker::WORKER_ENV;
use crate::{clock, io, ioc, md, store};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use types::{Code, Error, Result};

/// Which benchmark a worker takes part in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    Io(io::Options),
    Md(md::Options),
    Ioc(ioc::Load),
    Store(store::Load),
    /// The yardsticks of [`crate::suite`].
    Hop(hop::Load),
}

/// The first thing a worker reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub job: Job,
    pub place: Where,
    /// 0 to processes - 1.
    pub rank: u32,
}

/// A part of a run that all workers do at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Makes directories; not measured.
    Prepare,
    /// Makes the workers' own directories; not measured.
    PrepareOwn,
    /// `io`: writes.
    Write,
    /// `io`: reads back what the worker itself wrote, and compares.
    CheckWrite,
    Read,
    /// `md`: makes files.
    Create,
    /// `md`: asks for attributes of files.
    Stat,
    /// `md`: removes files.
    Remove,
    /// Removes the workers' own files and directories; not measured.
    CleanOwn,
    /// Removes what the workers share; not measured.
    Clean,
}

impl Phase {
    /// The name in tables and reports.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Prepare => "prepare",
            Phase::PrepareOwn => "prepare-own",
            Phase::Write => "write",
            Phase::CheckWrite => "check-write",
            Phase::Read => "read",
            Phase::Create => "create",
            Phase::Stat => "stat",
            Phase::Remove => "remove",
            Phase::CleanOwn => "clean-own",
            Phase::Clean => "clean",
        }
    }

    /// True for phases whose time is part of the result.
    pub fn is_measured(self) -> bool {
        use Phase::*;
        matches!(self, Write | CheckWrite | Read | Create | Stat | Remove)
    }
}

/// One phase, as ordered.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Step {
    pub phase: Phase,
    pub iteration: u32,
    /// Items (transfers or files) per worker.
    pub item_count: u64,
    /// Time after which a worker asks how far to go.
    pub wall_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    Step(Step),
    Go,
    Until(u64),
}

/// What one worker did in a phase.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Monotonic clock, nanoseconds.
    pub start_ns: u64,
    pub end_ns: u64,
    /// Of the worker process between the two.
    pub cpu_ns: u64,
    pub ops: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Ready,
    Wall(u64),
    Done(Sample),
    Failed(Error),
}

/// Running workers.
pub(crate) struct Crew {
    workers: Vec<Worker>,
}

struct Worker {
    rank: u32,
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// What all workers did in a phase.
#[derive(Clone, Debug)]
pub(crate) struct PhaseSamples {
    pub samples: Vec<Sample>,
    /// Items per worker after a time limit was reached; else as ordered.
    pub item_count: u64,
    /// CPU time of the server processes over the phase.
    pub server_cpu_ns: Option<u64>,
}

impl Crew {
    /// Starts one worker per process.
    pub fn start(job: &Job, place: &Where, process_count: u32) -> Result<Crew> {
        Crew::start_in(job, place, process_count, &|_| Vec::new())
    }

    /// Starts one worker per process, with these variables of the environment set for a rank.
    pub fn start_in(
        job: &Job,
        place: &Where,
        process_count: u32,
        variables: &dyn Fn(u32) -> Vec<(&'static str, OsString)>,
    ) -> Result<Crew> {
        let binary = std::env::current_exe()
            .map_err(|error| Error::io("finding this program's own file", error))?;
        let mut crew = Crew { workers: Vec::with_capacity(process_count as usize) };
        for rank in 0..process_count {
            let mut child = Command::new(&binary)
                .arg("bench-worker")
                .env(WORKER_ENV, "1")
                .envs(variables(rank))
                .envs(place.variables().iter().map(|(name, value)| (name, value)))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(|error| Error::io(format!("starting {}", binary.display()), error))?;
            let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
                return Err(Error::new(Code::Io, "a worker was started without pipes"));
            };
            crew.workers.push(Worker { rank, child, orders, answers: BufReader::new(answers) });
        }
        for worker in &mut crew.workers {
            let assignment =
                Assignment { job: job.clone(), place: place.clone(), rank: worker.rank };
            send_line(&mut worker.orders, &assignment).map_err(|error| worker.lost(error))?;
        }
        Ok(crew)
    }

    /// The workers' process ids, by rank.
    pub fn pids(&self) -> Vec<u32> {
        self.workers.iter().map(|worker| worker.child.id()).collect()
    }

    /// Runs one phase on all workers at the same time.
    ///
    /// Errors: the first worker's error, with its rank; the crew is of no use afterwards.
    pub fn run(&mut self, step: Step, servers: &[u32]) -> Result<PhaseSamples> {
        self.tell(&Order::Step(step))?;
        for worker in &mut self.workers {
            match worker.answer()? {
                Answer::Ready => {}
                other => return Err(worker.confused(&other)),
            }
        }
        let server_cpu_ns = cpu_ns_of(servers);
        self.tell(&Order::Go)?;
        let mut item_count = step.item_count;
        if step.wall_ns.is_some() {
            item_count = 0;
            for worker in &mut self.workers {
                match worker.answer()? {
                    Answer::Wall(count) => item_count = item_count.max(count),
                    other => return Err(worker.confused(&other)),
                }
            }
            self.tell(&Order::Until(item_count))?;
        }
        let mut samples = Vec::with_capacity(self.workers.len());
        for worker in &mut self.workers {
            match worker.answer()? {
                Answer::Done(sample) => samples.push(sample),
                other => return Err(worker.confused(&other)),
            }
        }
        let server_cpu_ns = match (server_cpu_ns, cpu_ns_of(servers)) {
            (Some(before), Some(after)) => Some(after.saturating_sub(before)),
            _ => None,
        };
        Ok(PhaseSamples { samples, item_count, server_cpu_ns })
    }

    /// Lets the workers go and waits for them, so that they close what they have open.
    ///
    /// Errors: when one of them ends badly.
    pub fn finish(mut self) -> Result<()> {
        // Their pipes go with the workers, which tells the processes that it is over.
        let workers = std::mem::take(&mut self.workers);
        let children: Vec<(u32, Child)> =
            workers.into_iter().map(|worker| (worker.rank, worker.child)).collect();
        let mut outcome = Ok(());
        for (rank, mut child) in children {
            let text = match child.wait() {
                Ok(status) if status.success() => continue,
                Ok(status) => format!("benchmark process {rank} ended badly ({status})"),
                Err(error) => format!("waiting for benchmark process {rank}: {error}"),
            };
            outcome = outcome.and(Err(Error::new(Code::Io, text)));
        }
        outcome
    }

    fn tell(&mut self, order: &Order) -> Result<()> {
        for worker in &mut self.workers {
            if let Err(error) = send_line(&mut worker.orders, order) {
                // It may have said why before it went.
                worker.answer()?;
                return Err(worker.lost(error));
            }
        }
        Ok(())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // One that has ended cannot be killed, which is as good.
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}

impl Worker {
    /// The next answer; a reported failure is an error.
    fn answer(&mut self) -> Result<Answer> {
        let mut line = String::new();
        let count = self.answers.read_line(&mut line).map_err(|error| self.lost(error))?;
        if count == 0 {
            let how = match self.child.wait() {
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            };
            let text = format!("benchmark process {} ended early ({how})", self.rank);
            return Err(Error::new(Code::Io, text));
        }
        match serde_json::from_str(&line) {
            Ok(Answer::Failed(error)) => {
                Err(error.context(format!("benchmark process {}", self.rank)))
            }
            Ok(answer) => Ok(answer),
            Err(error) => {
                let text = format!("benchmark process {}: {error} in {line:?}", self.rank);
                Err(Error::new(Code::Proto, text))
            }
        }
    }

    fn lost(&self, error: std::io::Error) -> Error {
        Error::io(format!("talking to benchmark process {}", self.rank), error)
    }

    fn confused(&self, answer: &Answer) -> Error {
        let text = format!("benchmark process {} answered out of turn: {answer:?}", self.rank);
        Error::new(Code::Proto, text)
    }
}

/// CPU time of all these processes together; `None` without any, or when one cannot be read.
fn cpu_ns_of(pids: &[u32]) -> Option<u64> {
    if pids.is_empty() {
        return None;
    }
    pids.iter().map(|&pid| clock::process_cpu_ns(pid).ok()).sum()
}

/// Sends one value as a line of JSON.
pub(crate) fn send_line(to: &mut impl Write, value: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}
