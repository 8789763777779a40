//! `azekura pool balance`: shares of targets by what they are worth now, and what is there moved to where these say.

use super::balance_status;
use super::estimate::{Estimate, Move};
use crate::exit::{Failure, Outcome};
use crate::props::{self, wrong_reply};
use crate::session::Session;
use clap::{Args, Subcommand};
use serde::Serialize;
use types::{Error, TargetId};
use wire::control::{ControlReply, ControlRequest, Name, OpenMode, PoolInfo, Subject};

/// What is to be done; a pool alone: `start`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct BalanceArgs {
    #[command(subcommand)]
    verb: Option<BalanceVerb>,
    #[command(flatten)]
    start: Option<StartArgs>,
}

#[derive(Subcommand, Debug)]
enum BalanceVerb {
    /// Show what is to move, how far that is and how fast, and how full targets are, now and then
    ///
    /// Bytes that are left follow from shares: which groups move is chance, so they are about right.
    #[command(
        after_help = "Examples:\n  azekura pool balance status tank\n  azekura pool balance status tank --wait\n  azekura pool balance status tank --json | jq .bytes_left"
    )]
    Status {
        /// Label or UUID
        pool: String,
        /// Wait until nothing of it moves, and nothing is about to
        #[arg(long, short)]
        wait: bool,
    },
    /// Weigh targets again, and give them their share of what is there, now
    #[command(
        after_help = "Examples:\n  azekura pool balance start tank --dry-run\n  azekura pool balance start tank\n  azekura pool balance start tank --keep-weights"
    )]
    Start(StartArgs),
    /// Give up a balance that is under way, and begin none until 'start', by itself ('balance=auto') neither
    ///
    /// Nothing else stops: copies that were lost are made anew, what is drained is taken over, and targets come back. To stop these, too:
    /// 'azekura pool rebuild stop'.
    #[command(after_help = "Example:\n  azekura pool balance stop tank")]
    Stop {
        /// Label or UUID
        pool: String,
    },
}

/// Which pool, and how.
#[derive(Args, Debug)]
struct StartArgs {
    /// Label or UUID
    pool: String,
    /// Show what the shares would be, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Leave weights as they are: only what has not its place yet moves
    #[arg(long, conflicts_with = "dry_run")]
    keep_weights: bool,
}

/// What `--json` has.
#[derive(Serialize)]
struct BalanceReport {
    pool: String,
    dry_run: bool,
    /// Shares of new objects have changed, or would.
    has_new_shares: bool,
    /// Data move, or would.
    moves: bool,
    /// All that moves has been stopped ('rebuild stop'): it begins when that ends.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    waits_for_rebuild: bool,
    shares: Vec<ShareReport>,
    /// Of what is placed by the newest shares, as much as would move, percent.
    moved_percent: f64,
    /// With `--dry-run`, when shares would change: what would move, and how long that would take.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate: Option<Estimate>,
}

#[derive(Serialize)]
struct ShareReport {
    target: u32,
    rank: Option<u32>,
    /// Of the pool, percent.
    now_percent: f64,
    then_percent: f64,
}

pub fn run(session: &Session, args: &BalanceArgs) -> Outcome {
    match (&args.verb, &args.start) {
        (Some(BalanceVerb::Status { pool, wait }), _) => balance_status::run(session, pool, *wait),
        (Some(BalanceVerb::Stop { pool }), _) => stop(session, pool),
        (Some(BalanceVerb::Start(args)), _) | (None, Some(args)) => start(session, args),
        (None, None) => Err(Error::inval("no pool is named; see 'azekura pool list'").into()),
    }
}

fn stop(session: &Session, pool: &str) -> Outcome {
    let props = [("balance_stopped".to_string(), "yes".to_string())].into();
    let subject = Subject::Pool(Name::parse(pool));
    props::run(session, ControlRequest::SetProps { subject, props })?;
    session.out.done(&format!(
        "No balance of pool '{pool}' begins until 'azekura pool balance start {pool}'; one that was under way is given up. Whoever stands in \
         for others, or comes back, goes on."
    ))
}

fn start(session: &Session, args: &StartArgs) -> Outcome {
    let before = super::info(session, &args.pool)?;
    let name = Name::Uuid(before.uuid);
    let mut report = BalanceReport {
        pool: before.label.clone(),
        dry_run: args.dry_run,
        has_new_shares: false,
        moves: false,
        waits_for_rebuild: false,
        shares: Vec::new(),
        moved_percent: 0.0,
        estimate: None,
    };
    if !args.keep_weights {
        let request = ControlRequest::PoolReweigh { pool: name.clone(), is_trial: args.dry_run };
        let ControlReply::Reweighed(reweighed) = props::run(session, request)? else {
            return Err(wrong_reply().into());
        };
        report.has_new_shares = reweighed.is_news;
        let (mut now, mut then) = (0.0, 0.0);
        for share in &reweighed.shares {
            now += share.now as f64;
            then += share.then as f64;
        }
        let percent = |weight: u32, whole: f64| weight as f64 * 100.0 / whole.max(1.0);
        for share in &reweighed.shares {
            let rank = before.map.target(share.target).map(|target| target.rank.0);
            report.shares.push(ShareReport {
                target: share.target.0,
                rank,
                now_percent: percent(share.now, now),
                then_percent: percent(share.then, then),
            });
        }
        let gain = |share: &ShareReport| (share.then_percent - share.now_percent).max(0.0);
        report.moved_percent = report.shares.iter().map(gain).sum();
    }
    if args.dry_run {
        let newest = before.map.placements.last().map_or(0, |set| set.epoch);
        report.moves = report.has_new_shares || before.map.balanced < newest;
        if report.has_new_shares {
            report.estimate = Some(estimate(session, &before, &report)?);
        }
    } else {
        props::run(session, ControlRequest::PoolBalance { pool: name.clone() })?;
        let client = session.connect()?;
        let after = client.block_on(client.pool_query(&name))?;
        report.moves = after.balance_wanted > after.map.balanced;
        report.waits_for_rebuild = report.moves && after.is_rebuild_stopped;
    }
    session.out.show(&report, |out| {
        if report.has_new_shares {
            writeln!(out, "{:>6} {:>6} {:>10} {:>10}", "TARGET", "RANK", "SHARE", "THEN")?;
            for share in &report.shares {
                let rank = share.rank.map_or("-".into(), |rank| rank.to_string());
                let (now, then) = (share.now_percent, share.then_percent);
                writeln!(out, "{:>6} {rank:>6} {now:>8.1} % {then:>8.1} %", share.target)?;
            }
        }
        let label = &report.pool;
        match (report.dry_run, report.moves, report.has_new_shares) {
            (true, true, true) => {
                writeln!(out, "About {:.1} % of pool '{label}' would move.", report.moved_percent)?;
                match &report.estimate {
                    Some(estimate) => writeln!(out, "{}", estimate.sentence()),
                    None => Ok(()),
                }
            }
            (true, true, false) => writeln!(out, "Targets that were added would get their share."),
            (false, true, _) if report.waits_for_rebuild => {
                writeln!(out, "It begins with 'azekura pool rebuild start {label}'.")
            }
            (false, true, _) => {
                writeln!(out, "Begun. See 'azekura pool balance status {label} --wait'.")
            }
            (_, false, _) => writeln!(out, "All targets of pool '{label}' have their share."),
        }
    })
}

fn estimate(
    session: &Session,
    info: &PoolInfo,
    report: &BalanceReport,
) -> Result<Estimate, Failure> {
    let opened = session.open_pool(&Name::Uuid(info.uuid), OpenMode::ReadOnly)?;
    let used = opened.client().block_on(opened.query())?.total.used_bytes();
    let gain = |share: &ShareReport| share.then_percent - share.now_percent;
    let to: Vec<(TargetId, f64)> = report
        .shares
        .iter()
        .filter(|share| gain(share) > 0.0)
        .map(|share| (TargetId(share.target), gain(share)))
        .collect();
    let from = report.shares.iter().filter(|share| gain(share) < 0.0);
    let from: Vec<TargetId> = from.map(|share| TargetId(share.target)).collect();
    let bytes = (used as f64 * report.moved_percent / 100.0) as u64;
    Estimate::of(session, info, Some(bytes), &Move { from: &from, to: &to, gives_way: true })
}
