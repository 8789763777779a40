//! `azekura up`: makes a system if there is none, starts the engines that do not run, waits
//! until all of them answer.

use super::dir::{Setup, SystemDir};
use super::etcd;
use super::process::{Running, log_tail, own_program, spawn};
use crate::exit::Outcome;
use crate::output::{plural, warn_line};
use crate::session::Session;
use client::{Client, ConnectOptions, SystemAddress};
use engine::EngineConfig;
use rustix::process::Signal;
use serde::Serialize;
use std::process::Child;
use std::time::{Duration, Instant};
use transport::Address;
use types::{Code, Durability, Error, Result, size};

/// Most engines and targets of one machine; more is a slip of the finger.
const ENGINES_MAX: u32 = 64;
/// Most targets of an engine that was not told how many.
const TARGETS_DEFAULT_MAX: usize = 8;
/// Lines of a failed engine's log that are shown.
const LOG_LINES_SHOWN: usize = 8;

/// Start a system on this machine, in the background.
///
/// Makes the system if the directory holds none, starts the engines that do not run, and returns
/// when all of them answer. Running it again is harmless. With more engines than the system has, the others are added to it;
/// pools take them in by 'azekura pool extend'.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura up
  azekura up --dir /scratch/azk --engines 2 --targets 4
  azekura up --targets 8 --pin-targets   # on a machine that does nothing else
  azekura up --engines 3 --etcd      # any engine may hold the catalog's service
  azekura up --engines 4             # one more, if there were three
  azekura up --durability memory     # pools forget everything when the system stops")]
pub struct UpArgs {
    /// Number of engine processes; a system can get more later [default: 1; later: as it is]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=ENGINES_MAX as i64))]
    engines: Option<u32>,
    /// Targets (storage threads) of each engine [default: one for two cores of the machine, 8 at most; later: as made]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256))]
    targets: Option<u32>,
    /// Durability of pools that are created without one: wal, relaxed or memory [default: wal]
    #[arg(long)]
    durability: Option<Durability>,
    /// Bind each target's thread to a core: for machines that run little else [later: as made]
    #[arg(long)]
    pin_targets: bool,
    /// Keep the catalog in an etcd of the system's own, to try that out [later: as made]
    #[arg(long)]
    etcd: bool,
    /// Most that the targets of each engine read and write a second, one after the other and again from the first: to try out devices of
    /// different speed [later: as made]
    #[arg(long, value_delimiter = ',', value_name = "SIZE", value_parser = size::parse)]
    rate_max: Vec<u64>,
    /// Seconds to wait for the engines
    #[arg(long = "wait", value_name = "SECONDS", default_value_t = 30)]
    wait_s: u64,
}

#[derive(Serialize)]
struct UpReport {
    dir: String,
    engines: u32,
    targets: u32,
    durability: Durability,
    /// Engines that were running before.
    already_running: u32,
    pids: Vec<u32>,
    tcp: Vec<String>,
}

/// An engine being started, and where in its log this start begins.
struct Starting {
    index: u32,
    child: Child,
    log_start: u64,
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Targets of each engine of a machine that its clients and mounts use, too: each target looks for work without sleeping while there is some,
/// and one for each core has them all take the cores from each other
/// ([why](../../../../docs/decisions/2026-11-30-targets-by-cores.md)).
fn targets_for(cores: usize, engines: u32) -> u32 {
    (cores / 2 / engines as usize).clamp(1, TARGETS_DEFAULT_MAX) as u32
}

pub fn run(session: &Session, args: &UpArgs) -> Outcome {
    let system = SystemDir::at(session.system_dir()?);
    system.create()?;
    let _held = system.lock()?;
    let setup = match system.setup()? {
        Some(setup) => {
            check_unchanged(&system, &setup, args)?;
            match args.engines {
                Some(engines) if engines > setup.engines => system.grow(setup, engines)?,
                _ => setup,
            }
        }
        None => system.make(Setup {
            pin_targets: args.pin_targets,
            rates_max: args.rate_max.clone(),
            etcd: if args.etcd { Some(etcd::choose_addresses()?) } else { None },
            ..{
                let engines = args.engines.unwrap_or(1);
                let targets = args.targets.unwrap_or_else(|| targets_for(cores(), engines));
                Setup::new(engines, targets, args.durability.unwrap_or_default())
            }
        })?,
    };
    let configs = system.configs(&setup)?;
    let deadline = Instant::now() + Duration::from_secs(args.wait_s);
    let mut start = Start {
        system: &system,
        configs: &configs,
        token: system.token()?,
        deadline,
        started: Vec::new(),
    };
    let is_etcd_started = match &setup.etcd {
        Some(addresses) => etcd::start(&system, addresses, deadline)?,
        None => false,
    };
    if let Err(error) = start.run() {
        if is_etcd_started {
            etcd::stop(&system)?;
        }
        stop_started(&system, &mut start.started);
        return Err(error.into());
    }
    let running = setup.engines - start.started.len() as u32;
    system.write_system_file(&configs)?;

    let pids = (0..setup.engines)
        .filter_map(|at| Running::find(&system.engine(at)))
        .map(|engine| engine.identity.pid)
        .collect();
    let report = UpReport {
        dir: system.path.display().to_string(),
        engines: setup.engines,
        targets: setup.targets,
        durability: setup.durability,
        already_running: running,
        pids,
        tcp: configs.iter().map(|config| config.listen.clone()).collect(),
    };
    let out = session.out;
    out.show(&report, |to| {
        if out.quiet {
            return Ok(());
        }
        let state = if running == setup.engines { "already running" } else { "running" };
        let targets = if setup.engines == 1 { "" } else { " each" };
        writeln!(
            to,
            "System at {} is {state}: {}, {}{targets}.",
            report.dir,
            plural(setup.engines as usize, "engine"),
            plural(setup.targets as usize, "target")
        )?;
        if running == setup.engines {
            return Ok(());
        }
        let is_default = SystemAddress::default_dir().is_ok_and(|dir| dir == system.path);
        if !is_default {
            writeln!(to, "  export AZEKURA_SYSTEM={}", report.dir)?;
        }
        writeln!(to, "  azekura pool create tank --size 4GiB")?;
        writeln!(to, "  azekura cont create tank home --type posix")?;
        writeln!(to, "  azekura fs cp -r SOMEDIR azk://tank/home/")?;
        writeln!(to, "  azekura down")
    })
}

fn check_unchanged(system: &SystemDir, setup: &Setup, args: &UpArgs) -> Result<()> {
    if let Some(engines) = args.engines.filter(|engines| *engines < setup.engines) {
        return Err(Error::inval(format!(
            "the system at {} has {} engines, not {engines}; 'azekura pool drain' frees an engine, 'azekura system \
             stop' and 'erase' take it away",
            system.path.display(),
            setup.engines
        )));
    }
    let differs = args.targets.is_some_and(|targets| targets != setup.targets)
        || args.durability.is_some_and(|durability| durability != setup.durability)
        || args.etcd && setup.etcd.is_none()
        || args.pin_targets && !setup.pin_targets
        || !args.rate_max.is_empty() && args.rate_max != setup.rates_max;
    if differs {
        return Err(Error::inval(format!(
            "the system at {} was made with --engines {} --targets {} --durability {}{}{}{}; \
             leave these options out, or use another --dir (cores of targets: engine.toml)",
            system.path.display(),
            setup.engines,
            setup.targets,
            setup.durability,
            if setup.pin_targets { " --pin-targets" } else { "" },
            if setup.etcd.is_some() { " --etcd" } else { "" },
            match &setup.rates_max[..] {
                [] => " and no --rate-max".to_string(),
                rates => {
                    let rates: Vec<String> = rates.iter().map(|rate| size::format(*rate)).collect();
                    format!(" --rate-max {}", rates.join(","))
                }
            }
        )));
    }
    Ok(())
}

/// A start in progress.
struct Start<'a> {
    system: &'a SystemDir,
    configs: &'a [EngineConfig],
    token: Vec<u8>,
    deadline: Instant,
    /// What was started, so that it can be taken back.
    started: Vec<Starting>,
}

impl Start<'_> {
    /// Starts what does not run. The first engine holds the catalog: the others join it, so it
    /// has to answer before they start. Those that never ran get their ranks in the order in which they join: one after the other, so that
    /// rank and directory have the same number.
    fn run(&mut self) -> Result<()> {
        self.wait_answer(0, 1)?;
        for index in 1..self.configs.len() {
            let never_ran = !self.system.engine(index as u32).join("engine.id").exists();
            self.start_if_down(index)?;
            if never_ran {
                self.wait_answer(index, index + 1)?;
            }
        }
        for index in 0..self.configs.len() {
            self.wait_answer(index, self.configs.len())?;
        }
        Ok(())
    }

    /// Starts an engine that does not run and was not started yet.
    fn start_if_down(&mut self, index: usize) -> Result<()> {
        let is_started = self.started.iter().any(|engine| engine.index as usize == index);
        if !is_started && self.running(index).is_none() {
            let (child, log_start) = spawn(&self.system.engine(index as u32), &own_program()?)?;
            self.started.push(Starting { index: index as u32, child, log_start });
        }
        Ok(())
    }

    fn running(&self, index: usize) -> Option<Running> {
        Running::find(&self.system.engine(index as u32))
    }

    /// Waits until an engine says who runs it, answers, and knows of `engines` engines. One that
    /// goes away meanwhile (a killed process takes its time to end) is started.
    fn wait_answer(&mut self, index: usize, engines: usize) -> Result<()> {
        let mut pause = Duration::from_millis(2);
        loop {
            self.start_if_down(index)?;
            let config = &self.configs[index];
            let problem = match (self.running(index), ask(config, &self.token)) {
                (Some(_), Ok(known)) if known >= engines => return Ok(()),
                (Some(_), Ok(known)) => format!("it knows of {known} engines, not {engines}"),
                (None, Ok(_)) => "it does not say who runs it (engine.pid)".to_string(),
                (_, Err(error)) => error.to_string(),
            };
            check_alive(self.system, &mut self.started)?;
            if Instant::now() >= self.deadline {
                return Err(Error::new(
                    Code::TimedOut,
                    format!(
                        "the engine in {} does not answer in time: {problem}; see its engine.log",
                        config.dir.display()
                    ),
                ));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}

/// How many engines an engine knows of.
fn ask(config: &EngineConfig, token: &[u8]) -> Result<usize> {
    let mut options = ConnectOptions::new(SystemAddress {
        engines: vec![Address::Unix(config.unix_path())],
        token: token.to_vec(),
    });
    options.timeout = Duration::from_secs(2);
    let client = Client::connect(options)?;
    Ok(client.block_on(client.system_query())?.engines.len())
}

/// An error when an engine ended instead of serving.
fn check_alive(system: &SystemDir, started: &mut [Starting]) -> Result<()> {
    for engine in started {
        let Ok(Some(status)) = engine.child.try_wait() else { continue };
        let dir = system.engine(engine.index);
        let said = log_tail(&dir, engine.log_start, LOG_LINES_SHOWN);
        return Err(Error::new(
            Code::Io,
            format!(
                "engine {} ended while starting ({status}); {}/engine.log says:\n{said}",
                engine.index,
                dir.display()
            ),
        ));
    }
    Ok(())
}

/// Takes back a start that failed; engines that ran before stay.
fn stop_started(system: &SystemDir, started: &mut [Starting]) {
    for engine in started.iter_mut().rev() {
        match Running::find(&system.engine(engine.index)) {
            Some(running) => {
                let asked = running.signal(Signal::TERM);
                if asked.is_err() || !running.wait(Duration::from_secs(5)) {
                    warn_line(format_args!(
                        "azekura: engine {} (process {}) does not stop; ending it",
                        engine.index, running.identity.pid
                    ));
                    // Our own child: its pid cannot have been given to another.
                    let _ = engine.child.kill();
                }
            }
            None => {
                // It has not come far enough to have anything to finish.
                let _ = engine.child.kill();
            }
        }
        let _ = engine.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_cores_have_targets_where_nobody_says_how_many() {
        let cases = [(1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 1, 2), (8, 1, 4), (64, 1, 8)];
        for (cores, engines, want) in cases {
            assert_eq!(targets_for(cores, engines), want, "{cores} cores, {engines} engines");
        }
        assert_eq!(targets_for(8, 2), 2, "each of two");
        assert_eq!(targets_for(2, 3), 1, "each of three");
    }
}
