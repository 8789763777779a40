//! `azekura status`: processes, engines, pools and space at a glance.

use super::dir::SystemDir;
use super::process::Running;
use super::stop::is_another;
use crate::exit::{FORBIDDEN, Failure, Outcome, UNREACHABLE, USAGE, exit_code};
use crate::output::Table;
use crate::session::Session;
use client::{Client, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Code, Error, TargetId, size};
use wire::control::{EngineState, Name, OpenMode, SystemInfo};
use wire::map::EngineInfo;
use wire::obj::PoolShardStat;

/// Show engines, pools and space.
///
/// Exit code 0 when every engine answers, 6 when one or all do not, 3 when there is no system, 8 when it lets nobody in with this secret.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura status
  azekura status --json | jq -r .state")]
pub struct StatusArgs {}

#[derive(Serialize)]
struct StatusReport {
    /// `running`, `degraded`, `stopped` (no engine runs in its directory) or `silent`: it gave no answer, or none that is of use, which says nothing of how it is.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dir: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uuid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// Rank of the engine that holds the control service.
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<u32>,
    engines: Vec<EngineStatus>,
    pools: Vec<PoolStatus>,
    /// Why the system gave no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

#[derive(Serialize)]
struct EngineStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
    /// `up`, `starting` (has a process, is not in the system yet) or `down`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    tcp: String,
    targets: Vec<u32>,
    /// It lets everybody in, from other machines too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    insecure: bool,
    /// Memory that messages take and may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    message_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_bytes_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<String>,
}

/// A target with little room in one of its tiers.
#[derive(Serialize)]
struct ShortTarget {
    target: u32,
    index_free_bytes: u64,
    data_free_bytes: u64,
}

#[derive(Serialize)]
struct PoolStatus {
    label: String,
    uuid: String,
    durability: String,
    total_bytes: u64,
    used_bytes: u64,
    /// What data of new files may take.
    free_bytes: u64,
    /// Targets that are nearly full.
    short: Vec<ShortTarget>,
    containers: u64,
    targets: usize,
    targets_silent: usize,
}

/// An engine, its targets, and whether it answers.
type Reached = (EngineInfo, Vec<TargetId>, bool);

/// An engine that takes longer is shown as silent.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

pub fn run(session: &Session, _args: &StatusArgs) -> Outcome {
    let local = match session.system_dir() {
        Ok(dir) => {
            let system = SystemDir::at(dir);
            let setup = system.require_setup()?;
            Some((system, setup))
        }
        // An address, or no place at all.
        Err(_) => session.address().map(|_| None)?,
    };
    // With no engine of our own alive there is nobody to wait for.
    let is_dead = local.as_ref().is_some_and(|(system, setup)| {
        (0..setup.engines).all(|index| Running::find(&system.engine(index)).is_none())
    });
    let connected = match is_dead {
        true => Err(Error::new(Code::Unreach, "no engine is running")),
        // Whoever asks for the state has reason to: silence is an answer soon enough.
        false => {
            let timeout = session.timeout.min(ANSWER_TIME_MAX);
            Session { timeout, ..session.clone() }.connect()
        }
    };
    let asked = connected.and_then(|client| {
        let info = told_apart(&client, client.block_on(client.system_query())?);
        let pools = pools(&client)?;
        let states = engine_states(&client, &info);
        Ok((info, pools, states))
    });
    let (info, pools, states, problem) = match asked {
        Ok((info, pools, states)) => (Some(info), pools, states, None),
        Err(error) => (None, Vec::new(), BTreeMap::new(), Some(error)),
    };
    let mut engines = match &local {
        Some((system, setup)) => {
            let configs = system.configs(setup)?;
            let known = |(index, config): (usize, &engine::EngineConfig)| {
                let dir = system.engine(index as u32);
                let pid = Running::find(&dir).map(|engine| engine.identity.pid);
                let unix = config.unix_path().display().to_string();
                let reached = info.as_ref().and_then(|info| engine_here(info, &unix));
                let mut engine = engine_status(reached);
                engine.tcp = config.listen.clone();
                engine.state = match (pid, engine.state) {
                    (None, _) => "down",
                    (Some(_), "up") => "up",
                    (Some(_), _) => "starting",
                };
                engine.pid = pid;
                engine.log = Some(dir.join("engine.log").display().to_string());
                engine
            };
            configs.iter().enumerate().map(known).collect()
        }
        None => info
            .iter()
            .flat_map(|info| &info.engines)
            .map(|reached| engine_status(Some(reached)))
            .collect::<Vec<_>>(),
    };
    for engine in &mut engines {
        if let Some(state) = engine.rank.and_then(|rank| states.get(&rank)) {
            engine.insecure = state.is_exposed;
            engine.message_bytes = Some(state.message_bytes);
            engine.message_bytes_max = Some(state.message_bytes_max);
        }
    }
    let up = engines.iter().filter(|engine| engine.state == "up").count();
    let state = match up {
        0 if is_dead => "stopped",
        0 => "silent",
        _ if up == engines.len() => "running",
        _ => "degraded",
    };
    let report = StatusReport {
        state,
        dir: local.as_ref().map(|(system, _)| system.path.display().to_string()),
        uuid: info.as_ref().map(|info| info.uuid.to_string()),
        version: info.as_ref().map(|info| info.version.clone()),
        leader: info.as_ref().and_then(|info| info.leader).map(|rank| rank.0),
        engines,
        pools,
        problem: problem.as_ref().map(Error::to_string),
    };
    session.out.show(&report, |out| write_human(out, &report))?;
    match problem {
        // Not that it does not answer: the caller asks wrongly, or may not ask.
        Some(error) if [USAGE, FORBIDDEN].contains(&exit_code(error.code)) => {
            Err(Failure::Reported(exit_code(error.code)))
        }
        _ if state == "running" => Ok(()),
        _ => Err(Failure::Reported(UNREACHABLE)),
    }
}

/// The engine with this Unix socket. A former one that was erased had the same: it answers no more, and its rank is lower.
fn engine_here<'a>(info: &'a SystemInfo, unix: &str) -> Option<&'a Reached> {
    let here = info.engines.iter().filter(|(engine, ..)| engine.unix == unix);
    here.max_by_key(|(engine, _, reachable)| (*reachable, engine.rank))
}

/// What the system knows, where an engine does not count as reachable whose address is another one's by now.
fn told_apart(client: &Client, mut info: SystemInfo) -> SystemInfo {
    let all: Vec<EngineInfo> = info.engines.iter().map(|(engine, ..)| engine.clone()).collect();
    for (engine, targets, reachable) in info.engines.iter_mut().filter(|(.., there)| *there) {
        let is_shared = |other: &EngineInfo| {
            let by_socket = other.host == engine.host && other.unix == engine.unix;
            other.rank != engine.rank && (by_socket || other.tcp == engine.tcp)
        };
        *reachable = !all.iter().any(is_shared) || !is_another(client, engine, targets);
    }
    info
}

/// What the system says of an engine.
fn engine_status(known: Option<&Reached>) -> EngineStatus {
    EngineStatus {
        rank: known.map(|(engine, ..)| engine.rank.0),
        state: if known.is_some_and(|(.., reachable)| *reachable) { "up" } else { "down" },
        pid: None,
        tcp: known.map(|(engine, ..)| engine.tcp.clone()).unwrap_or_default(),
        targets: known.map_or_else(Vec::new, |(_, ids, _)| ids.iter().map(|id| id.0).collect()),
        insecure: false,
        message_bytes: None,
        message_bytes_max: None,
        log: None,
    }
}

/// What engines that answer say of themselves, by rank.
fn engine_states(client: &Client, info: &SystemInfo) -> BTreeMap<u32, EngineState> {
    let reachable = info.engines.iter().filter(|(.., reachable)| *reachable);
    let state_of = |(engine, ..): &Reached| {
        // One that has gone meanwhile is shown without.
        let state = client.block_on(client.engine_query(engine)).ok()?;
        Some((engine.rank.0, state))
    };
    reachable.filter_map(state_of).collect()
}

fn pools(client: &Client) -> Result<Vec<PoolStatus>> {
    let mut pools = Vec::new();
    for info in client.block_on(client.pool_list())? {
        let name = Name::Uuid(info.uuid);
        // A pool that is held exclusively, or on its way out, still has a line.
        let space = client.block_on(async {
            let pool = client.pool_open(&name, OpenMode::ReadOnly).await?;
            let space = pool.query().await?;
            pool.close().await?;
            Ok::<_, types::Error>(space)
        });
        let space = space.unwrap_or_default();
        let total_bytes = info.scm_bytes + info.nvme_bytes;
        let total = &space.total;
        let used = (total.scm_bytes + total.nvme_bytes)
            .saturating_sub(total.scm_free_bytes + total.nvme_free_bytes);
        let short = space.targets.iter().filter_map(|target| {
            let stat = target.stat.filter(PoolShardStat::is_short)?;
            Some(ShortTarget {
                target: target.target.0,
                index_free_bytes: stat.scm_free_bytes,
                data_free_bytes: stat.nvme_free_bytes,
            })
        });
        let answered = space.targets.iter().filter(|target| target.stat.is_some()).count();
        pools.push(PoolStatus {
            label: info.label,
            uuid: info.uuid.to_string(),
            durability: info.durability.to_string(),
            total_bytes,
            used_bytes: used,
            free_bytes: space.available_bytes(),
            short: short.collect(),
            containers: info.cont_count,
            targets: info.map.targets.len(),
            targets_silent: info.map.targets.len().saturating_sub(answered),
        });
    }
    Ok(pools)
}

fn write_human(out: &mut dyn std::io::Write, report: &StatusReport) -> std::io::Result<()> {
    let system = match &report.dir {
        Some(dir) => format!("System at {dir}"),
        None => "System".to_string(),
    };
    match (report.state, &report.problem) {
        ("silent", Some(problem)) => {
            writeln!(out, "{system} gives no answer that says how it is: {problem}")?;
        }
        (state, _) => writeln!(out, "{system} is {state}.")?,
    }
    writeln!(out)?;
    let mut table = Table::new(&[">RANK", "STATE", ">PID", "ADDRESS", "TARGETS", "MESSAGES"]);
    let dash = || "-".to_string();
    for engine in &report.engines {
        table.row(vec![
            engine.rank.map_or_else(dash, |rank| rank.to_string()),
            match engine.rank.is_some() && engine.rank == report.leader {
                true => format!("{}, leads", engine.state),
                false => engine.state.to_string(),
            },
            engine.pid.map_or_else(dash, |pid| pid.to_string()),
            engine.tcp.clone(),
            engine.targets.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
            engine.message_bytes.zip(engine.message_bytes_max).map_or_else(dash, |(now, most)| {
                format!("{} of {}", size::format(now), size::format(most))
            }),
        ]);
    }
    table.write(out)?;
    for engine in report.engines.iter().filter(|engine| engine.insecure) {
        let rank = engine.rank.unwrap_or_default();
        writeln!(out, "INSECURE: engine {rank} lets everybody in who reaches {}.", engine.tcp)?;
    }
    if report.pools.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let mut table =
        Table::new(&["POOL", ">SIZE", ">FREE", ">USED", "DURABILITY", ">CONTAINERS", "TARGETS"]);
    for pool in &report.pools {
        let silent = match pool.targets_silent {
            0 => String::new(),
            count => format!(" ({count} silent)"),
        };
        table.row(vec![
            pool.label.clone(),
            size::format(pool.total_bytes),
            size::format(pool.free_bytes),
            format!(
                "{}%",
                (pool.used_bytes as f64 * 100.0 / pool.total_bytes.max(1) as f64).round()
            ),
            pool.durability.clone(),
            pool.containers.to_string(),
            format!("{}{silent}", pool.targets),
        ]);
    }
    table.write(out)?;
    for pool in &report.pools {
        for short in &pool.short {
            writeln!(
                out,
                "NEARLY FULL: target {} of pool {}: {} free for data, {} for the index.",
                short.target,
                pool.label,
                size::format(short.data_free_bytes),
                size::format(short.index_free_bytes)
            )?;
        }
    }
    Ok(())
}
