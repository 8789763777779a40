//! `azekura system reload`: an engine that runs reads its configuration again, and serves the targets that were added to it.

use super::process::Running;
use crate::exit::Outcome;
use crate::output::spinner;
use crate::session::{Session, absolute};
use client::Client;
use engine::{EngineConfig, event_log};
use rustix::process::Signal;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use types::{Code, Error, Result, TargetId};
use wire::control::ControlRequest;
use wire::event::EventCode;
use wire::map::EngineInfo;

/// Pause between two looks whether the targets serve.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// Have an engine of this machine read its configuration again, and serve the targets that were added to it
///
/// For a device that has come to a machine: write a further [[target]] section at the end of the file, and run this. What the engine has
/// served goes on meanwhile; other changes count after a restart. The new targets are measured after some seconds, or now with 'azekura
/// system measure'. Pools take them in with 'azekura pool extend POOL', and data come with 'azekura pool balance POOL', or by
/// themselves where 'balance=auto' is set.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  printf '[[target]]\\ndevice = \"/mnt/disk3\"\\n' >> /etc/azekura/engine.toml
  azekura system reload --config /etc/azekura/engine.toml
  azekura system measure
  azekura pool extend tank --rank 2")]
pub struct ReloadArgs {
    /// The engine's configuration file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Seconds to wait until the targets serve
    #[arg(long = "wait", value_name = "SECONDS", default_value_t = 60)]
    wait_s: u64,
}

#[derive(Serialize)]
struct Report {
    rank: u32,
    /// All targets of the engine.
    targets: Vec<u32>,
    /// Those that were added.
    added: Vec<u32>,
}

/// Runs the command.
pub fn run(session: &Session, args: &ReloadArgs) -> Outcome {
    let config = EngineConfig::read(&args.config)?;
    crate::config::check(&config)?;
    let dir = absolute(&config.dir)?;
    let process = Running::find(&dir).ok_or_else(|| {
        let text = format!("no engine runs in {} on this machine; start it", dir.display());
        Error::new(Code::NonExist, text)
    })?;
    let client = session.connect()?;
    let own = || own_engine(&client, &dir);
    let (engine, before) = own()?;
    let wanted = config.targets.len();
    if wanted < before.len() {
        let text = format!(
            "{}: {wanted} targets, but engine {} has {}: none may go; to give one up, drain it",
            args.config.display(),
            engine.rank,
            before.len()
        );
        return Err(Error::inval(text).into());
    }
    let seen = newest_event(&dir)?;
    process.signal(Signal::HUP)?;
    let progress = spinner(session.out.shows_progress());
    let until = Instant::now() + Duration::from_secs(args.wait_s);
    let targets = loop {
        let (_, targets) = own()?;
        let added = targets.iter().skip(before.len());
        // One that serves says how it stands.
        let serves = |target: &TargetId| {
            let ask = ControlRequest::TargetMeasure { target: *target, ask: None };
            client.block_on(client.control(&ask)).is_ok()
        };
        if targets.len() == wanted && added.clone().all(serves) {
            break targets;
        }
        if let Some(why) = failure_since(&dir, seen)? {
            progress.finish_and_clear();
            return Err(Error::new(Code::Inval, format!("engine {}: {why}", engine.rank)).into());
        }
        if Instant::now() >= until || process.wait(Duration::ZERO) {
            progress.finish_and_clear();
            let text = format!(
                "engine {} does not serve the new targets after {} s; see its log",
                engine.rank, args.wait_s
            );
            return Err(Error::new(Code::TimedOut, text).into());
        }
        progress.set_message("targets are being added".to_string());
        progress.tick();
        std::thread::sleep(LOOK_PAUSE);
    };
    progress.finish_and_clear();
    let ids = |of: &[TargetId]| of.iter().map(|target| target.0).collect::<Vec<u32>>();
    let added = ids(&targets[before.len()..]);
    let report = Report { rank: engine.rank.0, targets: ids(&targets), added };
    session.out.show(&report, |out| {
        let named = crate::pool::rebuild::named(&report.added);
        match report.added.is_empty() {
            true => writeln!(out, "Engine {} serves all targets of its configuration already.", report.rank),
            false => writeln!(
                out,
                "Engine {} serves {named} now. 'azekura pool extend POOL --rank {}' has a pool use what is new.",
                report.rank, report.rank
            ),
        }
    })
}

/// The engine of a directory of this machine, and its targets.
fn own_engine(client: &Client, dir: &Path) -> Result<(EngineInfo, Vec<TargetId>)> {
    let info = client.block_on(client.system_query())?;
    let is_own = |engine: &EngineInfo| super::process::directory_here(engine) == Some(dir);
    let found = info.engines.into_iter().find(|(engine, ..)| is_own(engine));
    let (engine, targets, _) = found.ok_or_else(|| {
        let text = format!(
            "the engine in {} is not in this system; say with --system which one is its own",
            dir.display()
        );
        Error::new(Code::NonExist, text)
    })?;
    Ok((engine, targets))
}

/// Number of the newest event of an engine; 0: none.
fn newest_event(dir: &Path) -> Result<u64> {
    Ok(event_log::read_dir(dir)?.last().map_or(0, |event| event.number))
}

/// Why a target is not served, if that was said after an event.
fn failure_since(dir: &Path, seen: u64) -> Result<Option<String>> {
    let events = event_log::read_dir(dir)?;
    let mut later = events.into_iter().filter(|event| event.number > seen);
    Ok(later.find(|event| event.known() == Some(EventCode::TargetUnserved)).map(|event| event.what))
}
