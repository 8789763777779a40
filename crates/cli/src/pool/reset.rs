//! `azekura pool reset-target`: what targets held is given up, and their parts of pools are made anew.

use crate::exit::Outcome;
use crate::props;
use crate::session::Session;
use clap::Args;
use client::Client;
use serde::Serialize;
use types::{Code, Error, Rank, Result, TargetId};
use wire::control::{ControlRequest, Name, PoolInfo};
use wire::map::DownReason;

/// Give up what a target held that is down, and make its part of the pool anew, empty
///
/// A target is down when its store was wiped or exchanged. Bring the right store back and restart the
/// engine, if you can: then nothing is lost. Files and directories that had a part there are damaged
/// after this; 'azekura fs check' names them.
///
/// With --rank all targets of an engine that lost what they held, or are excluded, are meant, in one pool or, when none is
/// named, in all of them.
///
/// Of a target whose engine is excluded nobody waits any more for what it may have alone: others go on with
/// what they have. If its engine is there, with another store, it is made anew at once, and stays out; else when that is back, and this is asked once more.
///
/// Of a target that is behind, with damaged pages of its index that nobody can tell the content of
/// ('azekura pool health' says so), only that content is given up: other targets that left earlier lead
/// with what they have of it, and it gets that from them. What was written to it since they left is lost.
/// Such a target is named by its number.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura pool reset-target tank 3 --lose-data
  azekura pool reset-target tank --rank 2 --lose-data
  azekura pool reset-target --rank 2 --lose-data")]
pub struct ResetArgs {
    /// Label or UUID; with --rank all pools are meant when it is left out
    #[arg(required_unless_present = "rank")]
    pool: Option<String>,
    /// Number of the target, as 'azekura pool query' shows it
    #[arg(required_unless_present = "rank")]
    target: Option<u32>,
    /// All targets of this engine that lost what they held, by its rank
    #[arg(long, value_name = "RANK", conflicts_with = "target")]
    rank: Option<u32>,
    /// I know that what it held is lost for good
    #[arg(long, required = true)]
    lose_data: bool,
}

/// What `--json` has with `--rank`.
#[derive(Serialize)]
struct Report {
    rank: u32,
    /// Pools with targets whose parts are made anew.
    pools: Vec<Part>,
}

#[derive(Serialize)]
struct Part {
    pool: String,
    /// Made anew.
    targets: Vec<u32>,
    /// Of an excluded engine: nobody waits for what they may have alone.
    given_up: Vec<u32>,
}

pub fn run(session: &Session, args: &ResetArgs) -> Outcome {
    match (&args.pool, args.target, args.rank) {
        (pool, _, Some(rank)) => run_all(session, pool.as_deref(), Rank(rank)),
        (Some(pool), Some(target), None) => run_one(session, pool, TargetId(target)),
        _ => Err(Error::inval("give a pool and a target, or --rank").into()),
    }
}

fn run_one(session: &Session, pool: &str, target: TargetId) -> Outcome {
    let before = super::info(session, pool)?;
    let reason = before.map.target(target).and_then(|of| of.reason);
    let name = Name::Uuid(before.uuid);
    props::run(session, ControlRequest::PoolResetTarget { pool: name, target })?;
    let is_anew = reason == Some(DownReason::Excluded) && {
        let now = super::info(session, pool)?;
        now.map.target(target).is_some_and(|of| of.reason != Some(DownReason::Lost))
    };
    session.out.done(&match reason {
        Some(DownReason::Excluded) if is_anew => format!(
            "What target {target} of pool '{pool}' held is not there any more: it is made anew, empty, and serves when it is not excluded any more."
        ),
        Some(DownReason::Behind) => format!(
            "Others lead before target {target} of pool '{pool}': what was in its damaged pages is as they have it."
        ),
        Some(DownReason::Excluded) => format!(
            "Nobody waits for what excluded target {target} of pool '{pool}' may have alone any more: others go on with what they have."
        ),
        _ => format!("Target {target} serves pool '{pool}' again, empty."),
    })
}

/// Resets what an engine lost, in one pool or all. What was cut off is ended by the same order.
fn run_all(session: &Session, pool: Option<&str>, rank: Rank) -> Outcome {
    let client = session.connect()?;
    let pools = match pool {
        Some(pool) => vec![super::info(session, pool)?],
        None => client.block_on(client.pool_list())?,
    };
    let engines = client.block_on(client.system_query())?.engines;
    if !engines.iter().any(|(engine, ..)| engine.rank == rank) {
        let text = format!("there is no engine {rank}; list the engines to see their ranks");
        return Err(Error::new(Code::NonExist, text).into());
    }
    let mut report = Report { rank: rank.0, pools: Vec::new() };
    for info in &pools {
        let [lost, excluded] =
            [DownReason::Lost, DownReason::Excluded].map(|reason| down(info, rank, reason));
        for target in lost.iter().chain(&excluded) {
            reset(&client, info, *target)?;
        }
        if !lost.is_empty() || !excluded.is_empty() {
            // Whose store is there, and is not what it was, is made anew also where it is excluded.
            let now = super::info(session, &info.uuid.to_string())?;
            let is_lost = |target: &TargetId| {
                now.map.target(*target).is_some_and(|of| of.reason == Some(DownReason::Lost))
            };
            let (given_up, anew): (Vec<_>, Vec<_>) = excluded.into_iter().partition(is_lost);
            let mut targets: Vec<u32> = lost.iter().chain(&anew).map(|target| target.0).collect();
            targets.sort_unstable();
            let given_up = given_up.iter().map(|target| target.0).collect();
            report.pools.push(Part { pool: info.label.clone(), targets, given_up });
        }
    }
    let quiet = session.out.quiet;
    session.out.show(&report, |out| {
        if report.pools.is_empty() && !quiet {
            return writeln!(
                out,
                "No target of engine {rank} has lost what it held; nothing is changed."
            );
        }
        for part in report.pools.iter().filter(|_| !quiet) {
            let pool = &part.pool;
            for (targets, done) in
                [(&part.targets, "made anew, empty"), (&part.given_up, "given up")]
            {
                if !targets.is_empty() {
                    let what = super::rebuild::named(targets);
                    writeln!(out, "Pool '{pool}': {what} of engine {rank} {done}.")?;
                }
            }
        }
        Ok(())
    })
}

/// The targets of an engine that are down for this reason.
fn down(info: &PoolInfo, rank: Rank, reason: DownReason) -> Vec<TargetId> {
    let of = info.map.targets.iter().filter(|target| target.rank == rank);
    of.filter(|target| target.reason == Some(reason)).map(|target| target.id).collect()
}

fn reset(client: &Client, info: &PoolInfo, target: TargetId) -> Result<()> {
    let order = ControlRequest::PoolResetTarget { pool: Name::Uuid(info.uuid), target };
    let done = client.block_on(client.control(&order));
    done.map(|_| ())
        .map_err(|error| error.context(format!("target {target}, pool '{}'", info.label)))
}
