//! `azekura system`: the engines of a system, as the control service knows them.

use crate::exit::Outcome;
use crate::output::{Table, utc};
use crate::props;
use crate::session::Session;
use serde::Serialize;
use types::{Rank, TargetId};
use wire::control::{ControlRequest, Member, MemberState, TargetAim};
use wire::map::EngineInfo;

/// An engine, its targets, and whether it answered when last asked.
type Reached = (EngineInfo, Vec<TargetId>, bool);

/// Show the system and its engines.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura system query
  azekura system exclude 2 --why 'a bad fan'
  azekura system clear-exclude 2
  azekura system drain 2
  azekura system drain 2 --undo
  azekura system measure --now
  azekura system stop --engine 2
  azekura system upgrade --plan
  azekura system reload --config /etc/azekura/engine.toml
  azekura system erase --config /etc/azekura/engine.toml
  azekura system migrate-catalog --config /etc/azekura/engine.toml --to etcd://host1:2379,host2:2379,host3:2379
  azekura system recover --config /etc/azekura/engine.toml --from /var/lib/azekura/engine1
  azekura system support collect
  azekura system events --since 2h
  azekura system list-engines --json")]
pub struct SystemArgs {
    #[command(subcommand)]
    verb: SystemVerb,
}

#[derive(clap::Subcommand, Debug)]
enum SystemVerb {
    /// Show which system it is and which engine leads
    #[command(after_help = "Example:\n  azekura system query")]
    Query,
    /// Show the engines with state, address, fault domain and targets
    #[command(
        after_help = "Examples:\n  azekura system list-engines\n  azekura system list-engines --json"
    )]
    ListEngines,
    /// Take an engine out: its targets are down in all pools until clear-exclude
    ///
    /// Objects without a copy elsewhere are still read and written there while the engine runs: nobody else could.
    #[command(after_help = "Example:\n  azekura system exclude 2 --why 'disk fails'")]
    Exclude {
        /// The engine's rank
        rank: u32,
        /// The reason, for those who list the engines
        #[arg(long, value_name = "TEXT", default_value = "")]
        why: String,
    },
    /// Take an excluded engine back
    ///
    /// Its targets catch up with what was done to objects with copies meanwhile; then they are up.
    #[command(after_help = "Example:\n  azekura system clear-exclude 2")]
    ClearExclude {
        /// The engine's rank
        rank: u32,
    },
    /// Have others get all that an engine holds, in all pools
    ///
    /// It serves until they have it, and new pools leave it out. Nothing begins where a pool has too few other engines for its
    /// copies, or too little room. See 'azekura pool rebuild status POOL --wait'; then the engine can be stopped and erased.
    #[command(
        after_help = "Examples:\n  azekura system drain 2 --dry-run\n  azekura system drain 2\n  azekura system drain 2 --undo"
    )]
    Drain {
        /// The engine's rank
        rank: u32,
        /// Have it serve again, and get its share back
        #[arg(long)]
        undo: bool,
        /// Say what would happen, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Stop engines in order
    ///
    /// One that stops alone tells the others first: what it led others lead at once, and clients do not wait where
    /// there are copies. With --all none tells, and nothing has to catch up at the next start.
    Stop(super::stop::StopArgs),
    Reload(super::reload::ReloadArgs),
    Upgrade(super::upgrade::UpgradeArgs),
    Measure(super::measure::MeasureArgs),
    Events(super::events::EventsArgs),
    Erase(super::erase::EraseArgs),
    MigrateCatalog(super::catalog::MigrateArgs),
    Recover(super::recover::RecoverArgs),
    Support(crate::support::SupportArgs),
}

#[derive(Serialize)]
struct Engine {
    rank: u32,
    /// `up`, `draining` (up, and others are to get what it holds), `down`, `stopped` or `excluded`; `no answer` when it is up, but did
    /// not answer when the leader last asked.
    state: &'static str,
    /// Why, for people.
    why: String,
    /// Which change of members this was.
    since_version: u32,
    /// When that was, UTC; missing when it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    /// It holds the control service.
    leads: bool,
    tcp: String,
    domain: Vec<String>,
    targets: Vec<u32>,
}

#[derive(Serialize)]
struct Report {
    uuid: String,
    /// Of the program that the leader runs.
    version: String,
    /// Rank of the engine that holds the control service; missing while the catalog is away.
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<u32>,
    /// Number of the newest change of members.
    members_version: u32,
    pools: u64,
    engines: Vec<Engine>,
}

pub fn run(session: &Session, args: &SystemArgs) -> Outcome {
    match &args.verb {
        SystemVerb::Drain { rank, undo, dry_run } => {
            return super::drain::run(session, *rank, *undo, *dry_run);
        }
        SystemVerb::Measure(measure) => return super::measure::run(session, measure),
        SystemVerb::Events(events) => return super::events::run(session, events),
        SystemVerb::Stop(stop) => return super::stop::run(session, stop),
        SystemVerb::Reload(reload) => return super::reload::run(session, reload),
        SystemVerb::Upgrade(upgrade) => return super::upgrade::run(session, upgrade),
        SystemVerb::Erase(erase) => return super::erase::run(session, erase),
        SystemVerb::MigrateCatalog(migrate) => return super::catalog::run(session, migrate),
        SystemVerb::Recover(recover) => return super::recover::run(session, recover),
        SystemVerb::Support(support) => return crate::support::run(session, support),
        _ => {}
    }
    let client = session.connect()?;
    match &args.verb {
        SystemVerb::Exclude { rank, why } => {
            let order = ControlRequest::SystemExclude { rank: Rank(*rank), why: why.clone() };
            props::run(session, order)?;
            return session.out.done(&format!("Engine {rank} is excluded."));
        }
        SystemVerb::ClearExclude { rank } => return clear_exclude(session, *rank),
        _ => {}
    }
    let info = client.block_on(client.system_query())?;
    let leader = info.leader.map(|rank| rank.0);
    let engine = |((engine, targets, reachable), member): (&Reached, &Member)| Engine {
        rank: engine.rank.0,
        state: match (member.state, *reachable) {
            (MemberState::Up, true) if member.drains => "draining",
            (MemberState::Up, true) => "up",
            (MemberState::Up, false) => "no answer",
            (MemberState::Down, _) => "down",
            (MemberState::Stopped, _) => "stopped",
            (MemberState::Excluded, _) => "excluded",
            (MemberState::Joining, _) => "joining",
        },
        why: member.why.clone(),
        since_version: member.since,
        since: (member.changed_ns > 0).then(|| utc(member.changed_ns as i64)),
        leads: leader == Some(engine.rank.0),
        tcp: engine.tcp.clone(),
        domain: engine.domain.clone(),
        targets: targets.iter().map(|target: &TargetId| target.0).collect(),
    };
    let report = Report {
        uuid: info.uuid.to_string(),
        version: info.version.clone(),
        leader,
        pools: info.pool_count,
        engines: info.engines.iter().zip(&info.members).map(engine).collect(),
        members_version: info.members_version,
    };
    match args.verb {
        SystemVerb::Query => session.out.show(&report, |out| {
            writeln!(out, "System {}, version {}", report.uuid, report.version)?;
            let serves = |engine: &&Engine| ["up", "draining"].contains(&engine.state);
            let up = report.engines.iter().filter(serves).count();
            writeln!(
                out,
                "{up} of {} engines are up; {} pools.",
                report.engines.len(),
                report.pools
            )?;
            for engine in report.engines.iter().filter(|engine| engine.state != "up") {
                let why = reason(engine);
                writeln!(out, "Engine {} is {}{why}.", engine.rank, said(engine.state))?;
            }
            match leader {
                Some(rank) => writeln!(out, "Engine {rank} leads."),
                None => writeln!(out, "No engine leads: the catalog is away."),
            }
        }),
        SystemVerb::ListEngines => session.out.show(&report.engines, |out| {
            let titles =
                [">RANK", "STATE", "ADDRESS", "DOMAIN", "TARGETS", ">VERSION", "SINCE", "WHY"];
            let mut table = Table::new(&titles);
            for engine in &report.engines {
                let leads = if engine.leads { ", leads" } else { "" };
                let targets: Vec<String> = engine.targets.iter().map(u32::to_string).collect();
                table.row(vec![
                    engine.rank.to_string(),
                    format!("{}{leads}", engine.state),
                    engine.tcp.clone(),
                    format!("/{}", engine.domain.join("/")),
                    targets.join(","),
                    engine.since_version.to_string(),
                    engine.since.clone().unwrap_or_else(|| "-".into()),
                    engine.why.clone(),
                ]);
            }
            table.write(out)
        }),
        // Done above.
        _ => Ok(()),
    }
}

/// Takes an engine back. One that was not excluded is told what it holds all the same; where pools have excluded its targets by
/// themselves, that stays as it is.
fn clear_exclude(session: &Session, rank: u32) -> Outcome {
    let client = session.connect()?;
    let members = client.block_on(client.system_query())?.members;
    let is_it = |member: &&Member| member.rank == Rank(rank);
    let was = members.iter().find(is_it).map(|member| member.state);
    props::run(session, ControlRequest::SystemClearExclude { rank: Rank(rank) })?;
    let mut text = match was {
        Some(MemberState::Excluded) => format!("Engine {rank} is not excluded any more."),
        _ => format!("Engine {rank} was not excluded; nothing is changed."),
    };
    for pool in client.block_on(client.pool_list())? {
        let targets = pool.map.targets.iter().filter(|target| target.rank == Rank(rank));
        let mut ids = targets.map(|target| target.id);
        if ids.any(|id| pool.aims.contains(&(id, TargetAim::Exclude))) {
            let label = &pool.label;
            text += &format!(
                "\nPool '{label}' has excluded targets of it: 'azekura pool reintegrate {label} --rank {rank}' takes them back."
            );
        }
    }
    session.out.done(&text)
}

/// How a state is said in a sentence.
fn said(state: &str) -> &str {
    if state == "no answer" { "up, but did not answer when last asked" } else { state }
}

/// Why an engine is what it is, in parentheses.
fn reason(engine: &Engine) -> String {
    match engine.state {
        "no answer" => String::new(),
        _ => format!(" since change {} of the members ({})", engine.since_version, engine.why),
    }
}
