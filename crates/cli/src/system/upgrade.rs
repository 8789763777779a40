//! `azekura system upgrade`: engines start again with another program, one after the other, each when all data are whole.

use super::dir::SystemDir;
use super::process::{Running, log_tail, own_program, spawn};
use super::stop::stop_engine;
use crate::exit::Outcome;
use crate::output::{spinner, warn_line};
use crate::pool::health::HealthReport;
use crate::pool::page_waits;
use crate::pool::rebuild::RebuildReport;
use crate::session::{Session, absolute};
use crate::version::Versions;
use client::{Client, HealthState};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use types::{Code, Error, Result};
use wire::control::{Member, MemberState};
use wire::map::EngineInfo;

/// Pause between two looks whether all is whole.
const LOOK_PAUSE: Duration = Duration::from_millis(250);
/// Looks in a row that must find all whole: the first may come before anybody has noticed that an engine was away.
const WHOLE_LOOKS: u32 = 4;
/// What is done where engines cannot be upgraded one by one.
const ALL_AT_ONCE: &str = "between wire versions all engines are stopped first ('azekura system stop --all' of the program before), then all are \
     started with the new one";
/// Lines of a failed engine's log that are shown.
const LOG_LINES_SHOWN: usize = 8;

/// Start engines again with another program, one after the other
///
/// The engine that leads is the last one. Each step waits until the engine answers and all pools are whole: where there are copies nobody
/// notices. Files without copies wait for their engine. Nothing begins unless all is whole. An engine of this machine's own system
/// ('azekura up') is started with the program that runs this command, or that of '--program'; all others by the command of '--restart'. Programs
/// of another wire version do not understand the engines that still run: they are refused before anything stops.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura system upgrade --plan
  azekura system upgrade                       # engines that 'azekura up' started here, with this program
  azekura system upgrade --program /opt/azekura-1.2/bin/azekura
  azekura system upgrade --restart 'ssh \"$AZEKURA_HOST\" systemctl restart azekura-engine'
  azekura system upgrade --engine 2 --engine 0 --wait 3600")]
pub struct UpgradeArgs {
    /// Say what would be done in which order, and what would wait; do nothing
    #[arg(long)]
    plan: bool,
    /// Rank of an engine; may be repeated [default: all]
    #[arg(long = "engine", value_name = "RANK")]
    engines: Vec<u32>,
    /// Shell command that stops an engine, by TERM, and starts it with the new program; it finds AZEKURA_RANK, AZEKURA_HOST and
    /// AZEKURA_ADDRESS in its environment
    #[arg(long, value_name = "COMMAND")]
    restart: Option<String>,
    /// The new program, a file on this machine [default: this one]. Engines of this machine's own system start with it; with '--restart' it is only
    /// asked which messages it speaks
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Seconds to wait in each step until the engine answers and all pools are whole
    #[arg(long = "wait", value_name = "SECONDS", default_value_t = 600)]
    wait_s: u64,
}

/// How an engine is started again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum How {
    /// By this command: the directory of an engine that `azekura up` made on this machine, and the program.
    Here(PathBuf, PathBuf),
    /// By the command of `--restart`.
    Restart,
    /// Not at all: it is on another machine, or something else runs it, and there is no `--restart`.
    Unknown,
}

#[derive(Serialize)]
struct Step {
    rank: u32,
    address: String,
    domain: String,
    leads: bool,
    /// `here`, `restart` or `unknown`.
    how: &'static str,
    /// How long it took until all was whole again, seconds; missing in a plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    took_s: Option<f64>,
}

/// What engines are started with.
#[derive(Serialize)]
struct Program {
    path: PathBuf,
    #[serde(flatten)]
    versions: Versions,
}

#[derive(Serialize)]
struct Report {
    /// `null`: only the command of `--restart` knows it.
    program: Option<Program>,
    /// Why it cannot be done with this program.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    /// In this order.
    steps: Vec<Step>,
    /// Ranks of engines that are excluded and were not named.
    left_out: Vec<u32>,
    /// `POOL/CONTAINER` of those whose files without copies wait while their engine starts again.
    waits: Vec<String>,
    /// What is not whole, a line for each pool: nothing begins while there is one.
    not_whole: Vec<String>,
}

/// What the pools say.
#[derive(Default)]
struct Pools {
    not_whole: Vec<String>,
    waits: Vec<String>,
}

pub fn run(session: &Session, args: &UpgradeArgs) -> Outcome {
    let client = session.connect().map_err(|error| match error.code {
        Code::Version => error.context(ALL_AT_ONCE),
        _ => error,
    })?;
    let program = new_program(args)?;
    let info = client.block_on(client.system_query())?;
    let known = |rank: &u32| info.engines.iter().any(|(engine, ..)| engine.rank.0 == *rank);
    if let Some(rank) = args.engines.iter().find(|rank| !known(rank)) {
        let text = format!("there is no engine {rank}; list the engines to see their ranks");
        return Err(Error::new(Code::NonExist, text).into());
    }
    // One that is excluded serves nothing, and most often is gone for good; it may be named.
    let is_meant = |engine: &EngineInfo, member: &Member| match args.engines.is_empty() {
        true => member.state != MemberState::Excluded,
        false => args.engines.contains(&engine.rank.0),
    };
    let all = info.engines.iter().map(|(engine, ..)| engine).zip(&info.members);
    let (meant, others): (Vec<_>, Vec<_>) =
        all.partition(|(engine, member)| is_meant(engine, member));
    let mut engines: Vec<&EngineInfo> = meant.into_iter().map(|(engine, _)| engine).collect();
    let excluded = others.iter().filter(|(_, member)| member.state == MemberState::Excluded);
    let left_out = excluded.map(|(engine, _)| engine.rank.0).collect();
    // One fault domain after the other: a mishap is in one of them.
    let leads = |engine: &EngineInfo| info.leader == Some(engine.rank);
    engines.sort_by_key(|engine| (leads(engine), engine.domain.clone(), engine.rank));
    let system = session.system_dir().ok().map(SystemDir::at);
    let path = program.as_ref().map(|program| program.path.as_path());
    let hows: Vec<How> =
        engines.iter().map(|engine| how(engine, args, system.as_ref(), path)).collect();
    let pools = look(&client)?;
    let mut report = Report {
        refused: program.as_ref().and_then(refusal),
        program,
        steps: engines
            .iter()
            .zip(&hows)
            .map(|(engine, how)| step(engine, how, leads(engine)))
            .collect(),
        left_out,
        waits: pools.waits,
        not_whole: pools.not_whole,
    };
    if args.plan {
        return session.out.show(&report, |out| show_plan(&report, out));
    }
    if let Some(why) = &report.refused {
        return Err(Error::new(Code::Version, format!("nothing was stopped: {why}")).into());
    }
    if let Some(line) = report.not_whole.first() {
        let text = format!("nothing was started again: not all is whole: {line}");
        return Err(Error::new(Code::Busy, text).into());
    }
    if let Some(at) = hows.iter().position(|how| *how == How::Unknown) {
        return Err(Error::inval(format!(
            "nothing was started again: 'azekura up' did not start engine {} here; say with --restart how that is done",
            report.steps[at].rank
        ))
        .into());
    }
    let _held = match &system {
        Some(system) if hows.iter().any(|how| matches!(how, How::Here(..))) => Some(system.lock()?),
        _ => None,
    };
    let progress = spinner(session.out.shows_progress());
    let wait = Duration::from_secs(args.wait_s);
    for (at, (engine, how)) in engines.iter().zip(&hows).enumerate() {
        let began = Instant::now();
        progress.set_message(format!("engine {} starts again", engine.rank.0));
        progress.tick();
        let done = restart(&client, engine, how, args, began + wait)
            .and_then(|()| wait_whole(&client, engine, began + wait, &progress));
        if let Err(error) = done {
            progress.finish_and_clear();
            let left: Vec<String> =
                report.steps[at..].iter().map(|step| format!("--engine {}", step.rank)).collect();
            return Err(error
                .context(format!(
                    "engine {}; what is left to do: {}",
                    engine.rank.0,
                    left.join(" ")
                ))
                .into());
        }
        let took_s = (began.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        report.steps[at].took_s = Some(took_s);
        if session.out.shows_progress() {
            progress.suspend(|| {
                warn_line(format_args!("engine {}: all is whole after {took_s} s", engine.rank.0));
            });
        }
    }
    progress.finish_and_clear();
    let quiet = session.out.quiet;
    session.out.show(&report, |out| {
        if quiet {
            return Ok(());
        }
        for step in &report.steps {
            let took_s = step.took_s.unwrap_or_default();
            writeln!(
                out,
                "Engine {} was started again; all was whole after {took_s} s.",
                step.rank
            )?;
        }
        Ok(())
    })
}

/// What engines are to start with, as far as it is known: it is asked what it speaks.
fn new_program(args: &UpgradeArgs) -> Result<Option<Program>> {
    let path = match (&args.program, &args.restart) {
        (Some(path), _) => absolute(path)?,
        (None, None) => own_program()?,
        (None, Some(_)) => return Ok(None),
    };
    let versions = Versions::of(&path)?;
    Ok(Some(Program { path, versions }))
}

/// Why a program cannot work beside engines of the one before: these speak as this program does, for it has asked them something.
fn refusal(new: &Program) -> Option<String> {
    let (then, now) = (new.versions.wire_version, Versions::own().wire_version);
    let path = new.path.display();
    (then != now).then(|| {
        format!(
            "{path} speaks wire version {then}, and the engines that run speak {now}: {ALL_AT_ONCE}"
        )
    })
}

/// How an engine is to be started again.
fn how(
    engine: &EngineInfo,
    args: &UpgradeArgs,
    system: Option<&SystemDir>,
    program: Option<&Path>,
) -> How {
    if args.restart.is_some() {
        return How::Restart;
    }
    let dir = super::process::directory_here(engine);
    match (dir, system, program) {
        (Some(dir), Some(system), Some(program))
            if dir.parent() == Some(&system.path)
                && system.setup().is_ok_and(|setup| setup.is_some()) =>
        {
            How::Here(dir.to_path_buf(), program.to_path_buf())
        }
        _ => How::Unknown,
    }
}

fn step(engine: &EngineInfo, how: &How, leads: bool) -> Step {
    let how = match how {
        How::Here(..) => "here",
        How::Restart => "restart",
        How::Unknown => "unknown",
    };
    let domain = format!("/{}", engine.domain.join("/"));
    Step { rank: engine.rank.0, address: engine.tcp.clone(), domain, leads, how, took_s: None }
}

fn show_plan(report: &Report, out: &mut dyn std::io::Write) -> std::io::Result<()> {
    if let Some(Program { path, versions }) = &report.program {
        let Versions { version, wire_version } = versions;
        writeln!(out, "With {}: version {version}, wire version {wire_version}", path.display())?;
    }
    for (at, step) in report.steps.iter().enumerate() {
        let leads = if step.leads { ", which leads" } else { "" };
        let how = match step.how {
            "here" => "by this command",
            "restart" => "by the command of --restart",
            _ => "give --restart COMMAND",
        };
        writeln!(
            out,
            "{}. Engine {} at {} in {}{leads}: {how}; wait until all is whole",
            at + 1,
            step.rank,
            step.address,
            step.domain
        )?;
    }
    for rank in &report.left_out {
        writeln!(out, "Engine {rank} is excluded, and left out: --engine {rank} names it.")?;
    }
    for cont in &report.waits {
        writeln!(out, "Files of {cont} without copies wait while their engine starts again.")?;
    }
    if let Some(why) = &report.refused {
        return writeln!(out, "It cannot be done: {why}.");
    }
    match report.not_whole.is_empty() {
        true => writeln!(out, "All is whole: it can begin."),
        false => {
            for line in &report.not_whole {
                writeln!(out, "Not whole: {line}")?;
            }
            writeln!(out, "It does not begin before all is whole.")
        }
    }
}

/// Which pools are not whole, and what has no copies.
fn look(client: &Client) -> Result<Pools> {
    let mut found = Pools::default();
    for pool in client.block_on(client.pool_list())? {
        let health = client.block_on(client.pool_health(&pool))?;
        let report = HealthReport::of(&pool, &health, &page_waits::of_pool(client, &pool));
        let is_busy = RebuildReport::of_pool(&pool).state == "busy" && !pool.is_rebuild_stopped;
        if health.state != HealthState::Healthy || is_busy {
            found.not_whole.push(format!("pool {}: {}", pool.label, report.summary()));
        }
        let alone = health.conts.iter().filter(|cont| cont.copies == 1);
        found.waits.extend(alone.map(|cont| format!("{}/{}", pool.label, cont.name)));
    }
    Ok(found)
}

/// Starts an engine again.
fn restart(
    client: &Client,
    engine: &EngineInfo,
    how: &How,
    args: &UpgradeArgs,
    give_up_at: Instant,
) -> Result<()> {
    let (dir, program) = match (how, &args.restart) {
        (How::Here(dir, program), _) => (dir, program),
        (_, Some(command)) => return restart_by(command, engine),
        _ => return Err(Error::inval("--restart is missing")),
    };
    let wait = give_up_at.saturating_duration_since(Instant::now());
    stop_engine(client, (engine, &[]), false, wait)?;
    let (mut child, log_start) = spawn(dir, program)?;
    while Running::find(dir).is_none() {
        if let Ok(Some(status)) = child.try_wait() {
            let said = log_tail(dir, log_start, LOG_LINES_SHOWN);
            let text = format!(
                "it ended while starting ({status}); {}/engine.log says:\n{said}",
                dir.display()
            );
            return Err(Error::new(Code::Io, text));
        }
        if Instant::now() >= give_up_at {
            let text = format!("it does not start in time; see {}/engine.log", dir.display());
            return Err(Error::new(Code::TimedOut, text));
        }
        std::thread::sleep(LOOK_PAUSE / 10);
    }
    Ok(())
}

fn restart_by(command: &str, engine: &EngineInfo) -> Result<()> {
    let host = engine.tcp.rsplit_once(':').map_or(engine.tcp.as_str(), |(host, _)| host);
    let status = Command::new("sh")
        .arg("-c")
        .arg(command)
        .env("AZEKURA_RANK", engine.rank.0.to_string())
        .env("AZEKURA_HOST", host.trim_matches(['[', ']']))
        .env("AZEKURA_ADDRESS", &engine.tcp)
        .stdin(std::process::Stdio::null())
        // Standard output is the report's.
        .stdout(std::io::stderr())
        .status()
        .map_err(|error| Error::io("running the command of --restart", error))?;
    match status.success() {
        true => Ok(()),
        false => Err(Error::new(Code::Io, format!("the command of --restart failed ({status})"))),
    }
}

/// Waits until an engine answers and all pools are whole.
fn wait_whole(
    client: &Client,
    engine: &EngineInfo,
    give_up_at: Instant,
    progress: &indicatif::ProgressBar,
) -> Result<()> {
    let mut looks = 0;
    loop {
        let answered = client.block_on(client.engine_query(engine));
        if let Err(error) = &answered
            && error.code == Code::Version
        {
            let text = format!(
                "it was started with a program of another wire version ({error}); start it with the one before: {ALL_AT_ONCE}"
            );
            return Err(Error::new(Code::Version, text));
        }
        // While the engine that leads starts again nobody may answer: that is not the end of it.
        let problem = match answered.and_then(|_| look(client)) {
            Ok(pools) => pools.not_whole.into_iter().next(),
            Err(error) => Some(error.to_string()),
        };
        looks = if problem.is_none() { looks + 1 } else { 0 };
        if looks >= WHOLE_LOOKS {
            return Ok(());
        }
        if let Some(problem) = problem {
            if Instant::now() >= give_up_at {
                let text = format!("not all is whole in time: {problem}");
                return Err(Error::new(Code::TimedOut, text));
            }
            progress.set_message(format!("engine {}: {problem}", engine.rank.0));
        }
        progress.tick();
        std::thread::sleep(LOOK_PAUSE);
    }
}
