//! `azekura pool exclude|drain|reintegrate|extend`: which targets a pool is on, and what they are to do.

use super::domains;
use super::estimate::{Estimate, Move};
use super::rebuild::named;
use super::room::{Room, weigh};
use crate::exit::{Failure, Outcome};
use crate::props::{self, wrong_reply};
use crate::session::Session;
use clap::Args;
use serde::Serialize;
use types::{Code, Error, Rank, Result, TargetId, size};
use wire::control::{
    ControlReply, ControlRequest, MemberState, Name, OpenMode, PoolInfo, TargetAim,
};
use wire::map::{TargetInfo, TargetState};

/// Some targets of a pool.
#[derive(Args, Debug)]
pub struct SomeTargets {
    /// Label or UUID
    pool: String,
    /// All targets of these engines, by rank: 'azekura system list-engines'
    #[arg(long, value_delimiter = ',', value_name = "RANK", required_unless_present = "target")]
    rank: Vec<u32>,
    /// These targets, by the numbers that 'azekura pool query' shows
    #[arg(long, value_delimiter = ',', value_name = "NUMBER")]
    target: Vec<u32>,
    /// Say what would happen, and change nothing
    #[arg(long)]
    dry_run: bool,
}

impl SomeTargets {
    fn of(&self, info: &PoolInfo) -> Result<Vec<TargetId>> {
        let mut ids: Vec<TargetId> = self.target.iter().copied().map(TargetId).collect();
        for rank in &self.rank {
            let before = ids.len();
            let of = info.map.targets.iter().filter(|target| target.rank == Rank(*rank));
            ids.extend(of.map(|target| target.id));
            if ids.len() == before {
                let text = format!("pool '{}' has no target on engine {rank}", info.label);
                return Err(Error::new(Code::NonExist, text));
            }
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }
}

/// What `--json` has.
#[derive(Serialize)]
struct AimReport {
    pool: String,
    aim: TargetAim,
    targets: Vec<u32>,
    dry_run: bool,
    /// Of the targets, bytes; `null`: one gave no answer.
    used_bytes: Option<u64>,
    /// Of those that are left to serve, bytes.
    free_bytes_elsewhere: u64,
    /// With `--dry-run`: what would move, at most, and how long that would take.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate: Option<Estimate>,
    /// Members of groups come nearer to each other than they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

/// How long it takes until targets have done what is wanted of them, with what they hold. What comes back to some is no more than that.
pub fn estimate(
    session: &Session,
    info: &PoolInfo,
    targets: &[TargetId],
    used: Option<u64>,
    aim: TargetAim,
) -> Result<Estimate, Failure> {
    let others = info.map.targets.iter().map(|target| target.id);
    let others = others.filter(|id| !targets.contains(id) && placement::is_live(*id, &info.map));
    let others: Vec<TargetId> = others.collect();
    let weights = info.map.placements.last().map_or(&[][..], |set| &set.weights);
    let part = |id: &TargetId| {
        let of = weights.iter().find(|(of, _)| of == id);
        (*id, of.map_or(0.0, |(_, weight)| f64::from(*weight)))
    };
    let (from, to) = match aim {
        TargetAim::Drain => (targets, &others[..]),
        TargetAim::Exclude => (&others[..], &others[..]),
        TargetAim::Serve => (&others[..], targets),
    };
    let to: Vec<(TargetId, f64)> = to.iter().map(part).collect();
    Estimate::of(session, info, used, &Move { from, to: &to, gives_way: true })
}

pub fn run(session: &Session, some: &SomeTargets, aim: TargetAim) -> Outcome {
    let info = super::info(session, &some.pool)?;
    let targets = some.of(&info)?;
    if let Some(strange) = targets.iter().find(|id| info.map.target(**id).is_none()) {
        let text = format!("target {} is not in pool '{}'", strange.0, info.label);
        return Err(Error::new(Code::NonExist, text).into());
    }
    let room = weigh(session, &info, &targets)?;
    let Room { used, free } = room;
    let serves = targets.iter().all(|id| {
        let outs = info.map.outs.iter().chain(info.map.next.iter().flatten());
        let is_up =
            |target: &TargetInfo| target.state == TargetState::Up && target.reason.is_none();
        info.map.target(*id).is_some_and(is_up) && !outs.map(|out| out.target).any(|out| out == *id)
    });
    let numbers: Vec<u32> = targets.iter().map(|id| id.0).collect();
    let report = AimReport {
        pool: info.label.clone(),
        aim,
        targets: numbers.clone(),
        dry_run: some.dry_run,
        used_bytes: used,
        free_bytes_elsewhere: free,
        estimate: match some.dry_run {
            true => Some(estimate(session, &info, &targets, used, aim)?),
            false => None,
        },
        warning: match aim {
            TargetAim::Drain => {
                let pool = session.open_pool(&Name::Uuid(info.uuid), OpenMode::ReadOnly)?;
                domains::warning(&pool, &targets)?
            }
            TargetAim::Exclude | TargetAim::Serve => None,
        },
    };
    if aim == TargetAim::Drain {
        room.check(&info, &targets)?;
    }
    if !some.dry_run {
        let request = ControlRequest::PoolAim { pool: Name::Uuid(info.uuid), targets, aim };
        props::run(session, request)?;
    }
    session.out.show(&report, |out| {
        let held = used.map_or("an unknown amount".into(), size::format);
        let (pool, what) = (&info.label, named(&numbers));
        let will = if some.dry_run { "would" } else { "will" };
        let hold = if numbers.len() == 1 { "holds" } else { "hold" };
        match aim {
            TargetAim::Drain => writeln!(
                out,
                "Others of pool '{pool}' {will} get what {what} {hold} ({held}; {} are free there); until then it is served where it is.",
                size::format(free)
            ),
            TargetAim::Exclude => writeln!(
                out,
                "What {what} of pool '{pool}' {hold} ({held}) {will} be used no more; others {will} get it from its copies."
            ),
            TargetAim::Serve if serves => {
                return writeln!(out, "Pool '{pool}' is served by {what} already; nothing is changed.");
            }
            TargetAim::Serve => {
                let missed = if numbers.len() == 1 { "it has what it" } else { "they have what they" };
                writeln!(out, "Pool '{pool}' {will} be served by {what} again when {missed} missed.")
            }
        }?;
        if let Some(warning) = &report.warning {
            writeln!(out, "{warning}")?;
        }
        if let Some(estimate) = &report.estimate {
            let is_most = aim == TargetAim::Serve;
            let most = if is_most { " That is the most: only what has changed comes back." } else { "" };
            return writeln!(out, "{}{most}", estimate.sentence());
        }
        writeln!(out, "See 'azekura pool rebuild status {pool} --wait'.")
    })
}

/// Further targets for a pool.
#[derive(Args, Debug)]
pub struct ExtendArgs {
    /// Label or UUID
    pool: String,
    /// All targets of these engines, by rank; of all engines when neither is given
    #[arg(long, value_delimiter = ',', value_name = "RANK")]
    rank: Vec<u32>,
    /// These targets, by number
    #[arg(long, value_delimiter = ',', value_name = "NUMBER")]
    target: Vec<u32>,
    /// Say what would happen, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// What `--json` has with `--dry-run`.
#[derive(Serialize)]
struct ExtendTrial {
    pool: String,
    dry_run: bool,
    /// That would be new.
    added: Vec<u32>,
    /// What 'pool balance' would move to them then, if they are like the others.
    estimate: Estimate,
}

/// What `--json` has.
#[derive(Serialize)]
struct ExtendReport {
    pool: String,
    /// That are new.
    added: Vec<u32>,
    target_count: usize,
    scm_bytes: u64,
    nvme_bytes: u64,
}

pub fn extend(session: &Session, args: &ExtendArgs) -> Outcome {
    let before = super::info(session, &args.pool)?;
    let client = session.connect()?;
    let system = client.block_on(client.system_query())?;
    let mut targets: Vec<TargetId> = args.target.iter().copied().map(TargetId).collect();
    for rank in &args.rank {
        let found = system.engines.iter().find(|(engine, ..)| engine.rank == Rank(*rank));
        let (_, of, _) = found.ok_or_else(|| {
            Error::new(Code::NonExist, format!("there is no engine {rank}; list the engines"))
        })?;
        targets.extend(of.iter().copied());
    }
    if args.dry_run {
        let is_up = |rank: Rank| {
            let member = system.members.iter().find(|member| member.rank == rank);
            member.is_some_and(|member| member.state == MemberState::Up)
        };
        if targets.is_empty() {
            let up = system.engines.iter().filter(|(engine, ..)| is_up(engine.rank));
            targets.extend(up.flat_map(|(_, of, _)| of.iter().copied()));
        }
        return try_extend(session, &before, targets);
    }
    let pool = Name::Uuid(before.uuid);
    let after = match props::run(session, ControlRequest::PoolExtend { pool, targets })? {
        ControlReply::Pool(info) => info,
        _ => return Err(wrong_reply().into()),
    };
    let is_new = |id: &TargetId| !before.map.targets.iter().any(|target| target.id == *id);
    let ids = after.map.targets.iter().map(|target| target.id);
    let report = ExtendReport {
        pool: after.label.clone(),
        added: ids.filter(is_new).map(|id| id.0).collect(),
        target_count: after.map.targets.len(),
        scm_bytes: after.scm_bytes,
        nvme_bytes: after.nvme_bytes,
    };
    session.out.show(&report, |out| {
        writeln!(
            out,
            "Pool '{}' is on {} targets now, {} in all; {} new. New objects are placed over all of them.",
            report.pool,
            report.target_count,
            size::format(report.scm_bytes + report.nvme_bytes),
            report.added.len()
        )?;
        writeln!(out, "'azekura pool balance {}' gives them their share of what is there.", report.pool)
    })
}

/// Says what would come of it. What is there moves with 'pool balance' only.
fn try_extend(session: &Session, info: &PoolInfo, mut targets: Vec<TargetId>) -> Outcome {
    let map = &info.map;
    targets.retain(|id| map.target(*id).is_none());
    targets.sort_unstable();
    targets.dedup();
    if targets.is_empty() {
        let text = format!("pool '{}' is on all of these targets already", info.label);
        return Err(Error::new(Code::Exist, text).into());
    }
    let opened = session.open_pool(&Name::Uuid(info.uuid), OpenMode::ReadOnly)?;
    let space = opened.client().block_on(opened.query())?.total;
    let now: Vec<TargetId> = map.targets.iter().map(|target| target.id).collect();
    let (new, all) = (targets.len() as u64, (targets.len() + now.len()) as u64);
    let bytes = (u128::from(space.used_bytes()) * u128::from(new) / u128::from(all)) as u64;
    // New ones have told this pool nothing of themselves: as fast as those that it has.
    let to: Vec<(TargetId, f64)> = now.iter().map(|id| (*id, 1.0)).collect();
    let estimate =
        Estimate::of(session, info, Some(bytes), &Move { from: &now, to: &to, gives_way: true })?;
    let slower =
        |time: Option<u64>| time.map(|time| time.saturating_mul(now.len() as u64).div_ceil(new));
    let estimate =
        Estimate { idle_s: slower(estimate.idle_s), busy_s: slower(estimate.busy_s), ..estimate };
    let added = targets.iter().map(|id| id.0).collect();
    let report = ExtendTrial { pool: info.label.clone(), dry_run: true, added, estimate };
    session.out.show(&report, |out| {
        writeln!(
            out,
            "Pool '{}' would be on {all} targets, {} of them new: {}. What is there would stay where it is.",
            report.pool,
            report.added.len(),
            named(&report.added)
        )?;
        writeln!(
            out,
            "With 'azekura pool balance {}' after that: {}",
            report.pool,
            report.estimate.sentence()
        )
    })
}
