//! `azekura down`: stops a system's engines, the one with the catalog last, then its own etcd.

use super::dir::SystemDir;
use super::process::Running;
use crate::exit::{Failure, Outcome};
use crate::output::warn_line;
use crate::session::Session;
use rustix::process::Signal;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Stop the system on this machine.
///
/// Engines finish what is in progress. What was acknowledged in pools of durability 'wal' is
/// there again after the next 'azekura up'.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura down
  azekura down --dir /scratch/azk --wait 5")]
pub struct DownArgs {
    /// Seconds to wait for each engine before it is killed
    #[arg(long = "wait", value_name = "SECONDS", default_value_t = 30)]
    wait_s: u64,
}

#[derive(Serialize)]
struct DownReport {
    dir: String,
    /// Engines that stopped as asked.
    stopped: Vec<u32>,
    /// Engines that had to be killed.
    killed: Vec<u32>,
}

/// Runs the command. Exit code 1 when an engine had to be killed.
pub fn run(session: &Session, args: &DownArgs) -> Outcome {
    let system = SystemDir::at(session.system_dir()?);
    let setup = system.require_setup()?;
    let _held = system.lock()?;
    let mut report = DownReport {
        dir: system.path.display().to_string(),
        stopped: Vec::new(),
        killed: Vec::new(),
    };
    // Engines without the catalog may need the one with it to finish.
    for round in [1..setup.engines, 0..1] {
        let engines: Vec<(u32, Running)> = round
            .filter_map(|index| Some((index, Running::find(&system.engine(index))?)))
            .collect();
        for (index, engine) in &engines {
            // Without the note it tells the others, which then have to catch up for nothing.
            let note = system.engine(*index).join(crate::engine::STOPS_WITH_ALL);
            let _ = std::fs::write(note, "");
            engine.signal(Signal::TERM)?;
        }
        let deadline = Instant::now() + Duration::from_secs(args.wait_s);
        for (index, engine) in engines {
            if engine.wait(deadline.saturating_duration_since(Instant::now())) {
                report.stopped.push(index);
                continue;
            }
            warn_line(format_args!(
                "azekura: engine {index} (process {}) does not stop; killing it",
                engine.identity.pid
            ));
            engine.signal(Signal::KILL)?;
            // A process in an uninterruptible wait may outlive even that.
            engine.wait(Duration::from_secs(10));
            report.killed.push(index);
        }
    }
    super::etcd::stop(&system)?;
    let quiet = session.out.quiet;
    session.out.show(&report, |out| {
        if quiet {
            return Ok(());
        }
        match report.stopped.len() + report.killed.len() {
            0 => writeln!(out, "System at {} was not running.", report.dir),
            _ => writeln!(out, "System at {} is stopped.", report.dir),
        }
    })?;
    if report.killed.is_empty() { Ok(()) } else { Err(Failure::Reported(1)) }
}
