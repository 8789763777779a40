//! `azekura pool health`: in one line for each pool what is lost, what that means, and what to do.

use super::rebuild::RebuildReport;
use crate::exit::{Failure, Outcome, UNREACHABLE};
use crate::session::Session;
use client::{ContHealth, HealthState, MissingTarget, PoolHealth};
use serde::Serialize;
use std::collections::BTreeMap;
use types::{Error, Result};
use wire::control::{Name, PoolInfo};
use wire::map::DownReason;

/// What `--json` has for a pool.
#[derive(Serialize)]
pub struct HealthReport {
    pool: String,
    uuid: String,
    /// `healthy`, `degraded`, `at risk` or `unavailable`. Healthy is also a pool in which others stand in for all that is away.
    state: &'static str,
    /// The line for people.
    summary: String,
    targets: usize,
    missing: Vec<Missing>,
    pub containers: Vec<ContReport>,
    #[serde(skip)]
    exit: u8,
}

#[derive(Serialize)]
struct Missing {
    target: u32,
    rank: u32,
    /// `silent`, `behind`, `lost` or `excluded`.
    reason: DownReason,
}

/// What losses mean for a container.
#[derive(Serialize)]
pub struct ContReport {
    pub name: String,
    pub rd_fac: u8,
    /// Copies of its objects, of its weakest default class.
    pub copies: usize,
    /// Of them those of the worst object that are whole and answer.
    pub copies_left: usize,
    pub available: bool,
}

impl HealthReport {
    pub fn of(pool: &PoolInfo, health: &PoolHealth) -> HealthReport {
        let (state, exit) = match health.state {
            HealthState::Healthy => ("healthy", 0),
            HealthState::Degraded => ("degraded", 1),
            HealthState::AtRisk => ("at risk", 1),
            HealthState::Unavailable => ("unavailable", UNREACHABLE),
        };
        let missing = |missing: &MissingTarget| Missing {
            target: missing.target.0,
            rank: missing.rank.0,
            reason: missing.reason,
        };
        let cont = |cont: &ContHealth| ContReport {
            name: cont.name.clone(),
            rd_fac: cont.rd_fac,
            copies: cont.copies,
            copies_left: cont.copies_left,
            available: !cont.is_unavailable,
        };
        HealthReport {
            pool: pool.label.clone(),
            uuid: pool.uuid.to_string(),
            state,
            summary: summary(pool, health),
            targets: pool.map.targets.len(),
            missing: health.missing.iter().map(missing).collect(),
            containers: health.conts.iter().map(cont).collect(),
            exit,
        }
    }

    /// The line without the pool's name.
    pub fn summary(&self) -> &str {
        &self.summary
    }
}

/// Shows one pool, or all.
pub fn run(session: &Session, pool: Option<&str>) -> Outcome {
    let client = session.connect()?;
    let mut pools = client.block_on(client.pool_list())?;
    if let Some(pool) = pool {
        let name = Name::parse(pool);
        let is_meant = |info: &PoolInfo| match &name {
            Name::Label(label) => info.label == *label,
            Name::Uuid(uuid) => info.uuid == *uuid,
        };
        pools.retain(is_meant);
        if pools.is_empty() {
            let text = format!("no pool '{pool}'");
            return Err(Error::new(types::Code::NonExist, text).into());
        }
    }
    let report = |pool: &PoolInfo| {
        let health = client.block_on(client.pool_health(pool))?;
        Ok(HealthReport::of(pool, &health))
    };
    let reports = pools.iter().map(report).collect::<Result<Vec<HealthReport>>>()?;
    session.out.show(&reports, |out| {
        let width = reports.iter().map(|report| report.pool.chars().count()).max().unwrap_or(0);
        for report in &reports {
            writeln!(out, "{:<width$}  {}", report.pool, report.summary)?;
        }
        Ok(())
    })?;
    match reports.iter().map(|report| report.exit).max() {
        None | Some(0) => Ok(()),
        Some(exit) => Err(Failure::Reported(exit)),
    }
}

/// The state, what is missing, what that means, what to do.
fn summary(pool: &PoolInfo, health: &PoolHealth) -> String {
    let (label, targets) = (&pool.label, pool.map.targets.len());
    let missing = health.missing.len();
    let moves = match RebuildReport::of(&pool.map).line() {
        Some(line) => format!("; {line}"),
        None => String::new(),
    };
    if missing == 0 {
        return format!("HEALTHY: all {targets} targets are up{moves}");
    }
    if health.state == HealthState::Healthy {
        let verb = if missing == 1 { "is" } else { "are" };
        return format!(
            "HEALTHY: all objects have all copies; {missing} of {targets} targets {verb} away{moves}"
        );
    }
    let word = match health.state {
        HealthState::Healthy | HealthState::Degraded => "DEGRADED",
        HealthState::AtRisk => "AT RISK",
        HealthState::Unavailable => "DATA UNAVAILABLE",
    };
    let mut by_engine: BTreeMap<(u32, &str), Vec<u32>> = BTreeMap::new();
    for one in &health.missing {
        by_engine.entry((one.rank.0, reason_key(one.reason))).or_default().push(one.target.0);
    }
    let why: Vec<String> =
        by_engine.iter().map(|((rank, key), ids)| reason(*rank, key, ids)).collect();
    let todo: Vec<String> =
        by_engine.iter().map(|((rank, key), ids)| advice(label, *rank, key, ids)).collect();
    let verb = if missing == 1 { "is" } else { "are" };
    format!(
        "{word}: {missing} of {targets} targets {verb} not whole ({}); {}; {}{moves}",
        why.join(", "),
        meaning(health),
        todo.join("; ")
    )
}

/// What it means for the containers.
fn meaning(health: &PoolHealth) -> String {
    let names = |chosen: &dyn Fn(&&ContHealth) -> bool| {
        let names: Vec<&str> =
            health.conts.iter().filter(chosen).map(|cont| cont.name.as_str()).collect();
        match names.len() {
            0 => None,
            1..=4 => Some(names.join(", ")),
            count => Some(format!("{} and {} others", names[..3].join(", "), count - 3)),
        }
    };
    if let Some(names) = names(&|cont| cont.is_unavailable) {
        return format!("some objects of {names} cannot be reached");
    }
    if let Some(names) = names(&|cont| cont.copies > 1 && cont.copies_left <= 1) {
        return format!("some objects of {names} have one copy left");
    }
    match health
        .conts
        .iter()
        .filter(|cont| cont.copies_left < cont.copies)
        .map(|cont| cont.copies_left)
        .min()
    {
        Some(left) => format!("all objects have {left} copies or more"),
        None => "no container is concerned".into(),
    }
}

fn reason_key(reason: DownReason) -> &'static str {
    match reason {
        DownReason::Silent => "silent",
        DownReason::Stopped => "stopped",
        DownReason::Behind => "behind",
        DownReason::Lost => "lost",
        DownReason::Excluded => "excluded",
    }
}

fn list(ids: &[u32]) -> String {
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    format!("{} {}", if ids.len() == 1 { "target" } else { "targets" }, ids.join(", "))
}

fn reason(rank: u32, key: &str, ids: &[u32]) -> String {
    match key {
        "silent" => format!("engine {rank} gives no answer"),
        "stopped" => format!("engine {rank} has stopped"),
        "behind" => format!("engine {rank} is back and catches up"),
        "excluded" => format!("engine {rank} is excluded"),
        _ => format!("{} of engine {rank} lost what it held", list(ids)),
    }
}

fn advice(label: &str, rank: u32, key: &str, ids: &[u32]) -> String {
    match key {
        "silent" | "stopped" => format!("start engine {rank} again"),
        "behind" => "it will be whole by itself".into(),
        "excluded" => format!("'azekura system clear-exclude {rank}' takes it back"),
        _ => format!(
            "bring back the store of {}, or give it up: 'azekura pool reset-target {label} {} --lose-data'",
            list(ids),
            ids.first().copied().unwrap_or_default()
        ),
    }
}
