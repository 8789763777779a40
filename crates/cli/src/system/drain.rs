//! `azekura system drain`: an engine is emptied, or serves again.

use crate::exit::Outcome;
use crate::pool::aims;
use crate::pool::estimate::Estimate;
use crate::pool::room;
use crate::props;
use crate::session::Session;
use serde::Serialize;
use types::{Code, Error, Rank, size};
use wire::control::{ControlRequest, TargetAim};

/// What is to leave the engine in one pool.
#[derive(Serialize)]
struct Part {
    pool: String,
    targets: Vec<u32>,
    /// Of these targets, bytes; `null`: one gave no answer.
    used_bytes: Option<u64>,
    /// Of those of other engines that serve, bytes.
    free_bytes_elsewhere: u64,
    /// With `--dry-run`: what would move, at most, and how long that would take.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate: Option<Estimate>,
}

/// What `--json` has.
#[derive(Serialize)]
struct Report {
    rank: u32,
    undo: bool,
    dry_run: bool,
    pools: Vec<Part>,
}

pub fn run(session: &Session, rank: u32, undo: bool, dry_run: bool) -> Outcome {
    let client = session.connect()?;
    let aim = if undo { TargetAim::Serve } else { TargetAim::Drain };
    let system = client.block_on(client.system_query())?;
    if !system.engines.iter().any(|(engine, ..)| engine.rank == Rank(rank)) {
        let text = format!("there is no engine {rank}; list the engines to see their ranks");
        return Err(Error::new(Code::NonExist, text).into());
    }
    let mut drains = system.members.iter().any(|one| one.rank == Rank(rank) && one.drains);
    let mut pools = Vec::new();
    for info in client.block_on(client.pool_list())? {
        let of = info.map.targets.iter().filter(|target| target.rank == Rank(rank));
        let targets: Vec<_> = of.map(|target| target.id).collect();
        if targets.is_empty() {
            continue;
        }
        drains |= info.aims.iter().any(|(target, _)| targets.contains(target));
        let found = room::weigh(session, &info, &targets)?;
        if !undo {
            found.check(&info, &targets)?;
        }
        pools.push(Part {
            pool: info.label.clone(),
            targets: targets.iter().map(|id| id.0).collect(),
            used_bytes: found.used,
            free_bytes_elsewhere: found.free,
            estimate: match dry_run {
                true => Some(aims::estimate(session, &info, &targets, found.used, aim)?),
                false => None,
            },
        });
    }
    if !dry_run {
        props::run(session, ControlRequest::SystemDrain { rank: Rank(rank), drains: !undo })?;
    }
    if undo && !drains {
        pools.clear();
    }
    let report = Report { rank, undo, dry_run, pools };
    session.out.show(&report, |out| {
        let will = if dry_run { "would" } else { "will" };
        match undo {
            true if !drains => {
                let is = if dry_run { "would be" } else { "is" };
                writeln!(out, "Engine {rank} is not being emptied; nothing {is} changed.")?
            }
            true => writeln!(out, "Engine {rank} {will} serve again, and get its share back.")?,
            false => writeln!(
                out,
                "Others {will} get what engine {rank} holds; until then it serves. New pools {will} leave it out."
            )?,
        }
        for part in &report.pools {
            let held = part.used_bytes.map_or("an unknown amount".into(), size::format);
            let (pool, free) = (&part.pool, size::format(part.free_bytes_elsewhere));
            let see = match &part.estimate {
                Some(estimate) => format!(" {}", estimate.sentence()),
                None => format!(" See 'azekura pool rebuild status {pool} --wait'."),
            };
            writeln!(out, "Pool '{pool}': {held} there, {free} free elsewhere.{see}")?;
        }
        Ok(())
    })
}
