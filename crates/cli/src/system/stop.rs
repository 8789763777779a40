//! `azekura system stop`: engines stop in order, wherever they run.

use super::process::Running;
use crate::exit::Outcome;
use crate::session::Session;
use client::Client;
use serde::Serialize;
use std::time::{Duration, Instant};
use types::{Code, Error, Result, TargetId};
use wire::map::EngineInfo;

/// Pause between two looks whether an engine still answers.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// Which engines stop.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura system stop --engine 2
  azekura system stop --engine 1 --engine 2 --wait 60
  azekura system stop --all")]
pub struct StopArgs {
    /// Rank of an engine to stop; may be repeated
    #[arg(long = "engine", value_name = "RANK", required_unless_present = "all")]
    engines: Vec<u32>,
    /// Stop all engines
    #[arg(long, conflicts_with = "engines")]
    all: bool,
    /// Seconds to wait until each gives no answer any more
    #[arg(long = "wait", value_name = "SECONDS", default_value_t = 60)]
    wait_s: u64,
}

#[derive(Serialize)]
struct Report {
    /// Ranks of engines that have stopped.
    stopped: Vec<u32>,
    /// Ranks of engines that gave no answer before.
    silent: Vec<u32>,
}

/// Runs the command. Engines stop one after the other, the one that leads last.
pub fn run(session: &Session, args: &StopArgs) -> Outcome {
    let client = session.connect()?;
    let info = client.block_on(client.system_query())?;
    let known: Vec<u32> = info.engines.iter().map(|(engine, ..)| engine.rank.0).collect();
    if let Some(rank) = args.engines.iter().find(|rank| !known.contains(rank)) {
        let text = format!("there is no engine {rank}; list the engines to see their ranks");
        return Err(Error::new(Code::NonExist, text).into());
    }
    let is_meant = |rank: &u32| args.all || args.engines.contains(rank);
    let mut engines: Vec<_> = info.engines.iter().collect();
    engines.retain(|(engine, ..)| is_meant(&engine.rank.0));
    engines.sort_by_key(|(engine, ..)| info.leader == Some(engine.rank));
    let with_all = engines.len() == known.len();
    let mut report = Report { stopped: Vec::new(), silent: Vec::new() };
    for (engine, targets, _) in engines {
        let wait = Duration::from_secs(args.wait_s);
        let list = match stop_engine(&client, (engine, targets), with_all, wait)? {
            true => &mut report.stopped,
            false => &mut report.silent,
        };
        list.push(engine.rank.0);
    }
    let quiet = session.out.quiet;
    session.out.show(&report, |out| {
        if quiet {
            return Ok(());
        }
        for rank in &report.silent {
            writeln!(out, "Engine {rank} gives no answer.")?;
        }
        for rank in &report.stopped {
            writeln!(out, "Engine {rank} is stopped.")?;
        }
        Ok(())
    })
}

/// True when who answers at an engine's address says that it has none of its targets: a former engine was there.
pub fn is_another(client: &Client, engine: &EngineInfo, targets: &[TargetId]) -> bool {
    targets.first().is_some_and(|target| client.block_on(client.is_another(engine, *target)))
}

/// Has an engine stop, and waits until it has; false when it gave no answer before. `with_all`: all others do, too.
/// Errors: `TimedOut` when it is still there after `wait`.
pub fn stop_engine(
    client: &Client,
    (engine, targets): (&EngineInfo, &[TargetId]),
    with_all: bool,
    wait: Duration,
) -> Result<bool> {
    let rank = engine.rank.0;
    if is_another(client, engine, targets) {
        return Ok(false);
    }
    // On this machine it has stopped when its process has gone.
    let dir = super::process::directory_here(engine);
    let process = dir.and_then(Running::find);
    match client.block_on(client.engine_stop(engine, with_all)) {
        Ok(()) => {}
        Err(error) if matches!(error.code, Code::Unreach | Code::Closed) => return Ok(false),
        Err(error) => return Err(error.context(format!("stopping engine {rank}"))),
    }
    let give_up_at = Instant::now() + wait;
    let is_there = || match &process {
        Some(process) => !process.wait(LOOK_PAUSE),
        None => client.block_on(client.engine_query(engine)).is_ok(),
    };
    while is_there() {
        if Instant::now() >= give_up_at {
            let text =
                format!("engine {rank} has not stopped after {} s; see its log", wait.as_secs());
            return Err(Error::new(Code::TimedOut, text));
        }
        if process.is_none() {
            std::thread::sleep(LOOK_PAUSE);
        }
    }
    Ok(true)
}
