//! The life of a worker process: read an assignment, connect, carry out steps until the parent
//! closes the pipe.

use crate::backend::{Backend, DfsBackend, PosixBackend};
use crate::clock;
use crate::crew::{Answer, Assignment, Job, Order, Sample, Step, send_line};
use crate::io::IoTask;
use crate::ioc::LoadTask;
use crate::md::MdTask;
use crate::place::Where;
use crate::store::StoreTask;
use crate::suite::hop::HopTask;
use serde::de::DeserializeOwned;
use std::io::{BufRead, StdinLock, StdoutLock};
use std::process::ExitCode;
use types::{Code, Error, Result};

/// Set in the environment of worker processes. A program that runs benchmarks calls
/// [`worker_main`] first thing in `main` when [`is_worker`] says so.
pub const WORKER_ENV: &str = "AZEKURA_BENCH_WORKER";

/// True in a process that was started as a worker.
pub fn is_worker() -> bool {
    std::env::var_os(WORKER_ENV).is_some()
}

/// The whole of a worker process; its standard streams belong to the protocol with the parent.
pub fn worker_main() -> ExitCode {
    let mut line = Line {
        orders: std::io::stdin().lock(),
        answers: std::io::stdout().lock(),
        text: String::new(),
    };
    match serve(&mut line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If the parent is gone, nobody wants to know.
            let _ = send_line(&mut line.answers, &Answer::Failed(error));
            ExitCode::FAILURE
        }
    }
}

/// What a step amounted to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    pub ops: u64,
    pub bytes: u64,
}

/// A benchmark's part in a worker.
pub(crate) trait Task {
    /// Carries out a step. With a time limit it must call `wall` exactly once, with the number
    /// of items done by then, and go on to the number it gets back.
    fn run(&mut self, step: &Step, wall: &mut dyn FnMut(u64) -> Result<u64>) -> Result<Work>;
}

/// The pipes to and from the parent.
struct Line {
    orders: StdinLock<'static>,
    answers: StdoutLock<'static>,
    text: String,
}

impl Line {
    /// The next message; `None` when the parent has closed the pipe.
    fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        self.text.clear();
        let count = self
            .orders
            .read_line(&mut self.text)
            .map_err(|error| Error::io("reading orders", error))?;
        if count == 0 {
            return Ok(None);
        }
        serde_json::from_str(&self.text)
            .map(Some)
            .map_err(|error| Error::new(Code::Proto, format!("unknown order: {error}")))
    }

    fn say(&mut self, answer: &Answer) -> Result<()> {
        send_line(&mut self.answers, answer).map_err(|error| Error::io("answering", error))
    }
}

fn serve(line: &mut Line) -> Result<()> {
    let Some(assignment) = line.next::<Assignment>()? else {
        return Err(Error::inval("a benchmark worker is started by the benchmark, not by hand"));
    };
    if let Job::Store(load) = &assignment.job {
        return steps(line, StoreTask::connect(load.clone(), assignment.rank, &assignment.place)?);
    }
    if let Job::Hop(load) = &assignment.job {
        return steps(line, HopTask::connect(load, assignment.rank)?);
    }
    match &assignment.place {
        Where::Dfs { .. } => {
            let backend = DfsBackend::connect(&assignment.place)?;
            obey(line, &assignment, backend)
        }
        Where::Posix(_) | Where::PosixWith { .. } => obey(line, &assignment, PosixBackend),
    }
}

fn obey<B: Backend>(line: &mut Line, assignment: &Assignment, backend: B) -> Result<()> {
    let dir = match &assignment.place {
        Where::Dfs { dir, .. } => dir.trim_end_matches('/').to_string(),
        Where::Posix(dir) | Where::PosixWith { dir, .. } => dir
            .to_str()
            .ok_or_else(|| Error::inval(format!("{} is not UTF-8", dir.display())))?
            .to_string(),
    };
    match &assignment.job {
        Job::Io(options) => {
            steps(line, IoTask::new(options.clone(), assignment.rank, dir, backend))
        }
        Job::Md(options) => {
            steps(line, MdTask::new(options.clone(), assignment.rank, dir, backend))
        }
        // Taken care of before: they need no backend.
        Job::Hop(_) => Err(Error::inval("a round trip has no place")),
        Job::Store(_) => Err(Error::inval("a load of the store goes to a container")),
        // Coordination hooks the calls of the operating system, so that is what it uses.
        Job::Ioc(load) => steps(line, LoadTask::new(load.clone(), assignment.rank, &dir)),
    }
}

fn steps(line: &mut Line, mut task: impl Task) -> Result<()> {
    while let Some(order) = line.next::<Order>()? {
        let Order::Step(step) = order else {
            return Err(Error::new(Code::Proto, "order out of turn"));
        };
        line.say(&Answer::Ready)?;
        let Some(Order::Go) = line.next::<Order>()? else { return Ok(()) };
        let cpu_ns = clock::own_cpu_ns();
        let start_ns = clock::monotonic_ns();
        let work = task.run(&step, &mut |count| {
            line.say(&Answer::Wall(count))?;
            match line.next::<Order>()? {
                Some(Order::Until(count)) => Ok(count),
                _ => Err(Error::new(Code::Closed, "the benchmark was stopped")),
            }
        })?;
        let end_ns = clock::monotonic_ns();
        let cpu_ns = clock::own_cpu_ns() - cpu_ns;
        let Work { ops, bytes } = work;
        line.say(&Answer::Done(Sample { start_ns, end_ns, cpu_ns, ops, bytes }))?;
    }
    Ok(())
}
