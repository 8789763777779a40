//! `azekura pool`: pools of space.

pub mod aims;
mod balance;
mod balance_status;
mod cache;
mod domains;
pub mod estimate;
pub mod health;
mod members;
pub mod page_waits;
pub mod rebuild;
mod reset;
pub mod room;
mod store;

use crate::damaged::{self, DamagedObject};
use crate::exit::Outcome;
use crate::measures::{self, TargetMeasures};
use crate::output::{Table, plural, write_pairs};
use crate::props::{self, Assignment, wrong_reply};
use crate::scrub::{self, TargetScrub};
use crate::session::Session;
use crate::system::dir::SystemDir;
use aims::{ExtendArgs, SomeTargets};
use cache::TargetCache;
use clap::{Args, Subcommand};
use health::HealthReport;
use members::TargetMembers;
use rebuild::{RebuildReport, RebuildVerb};
use serde::Serialize;
use std::io::Write;
pub use store::role_text;
use store::{TargetStore, TargetTiers};
use types::{Durability, PlacementRule, Rank, Result, TargetId, limits, size};
use wire::admission::{AdmissionStat, GateStat, Limit};
use wire::control::{ControlReply, ControlRequest, Name, OpenMode, PoolInfo, Subject, TargetAim};
use wire::map::{DownReason, TargetInfo, TargetState};
use wire::store::GroupStat;

/// Create, list and change pools.
#[derive(Args, Debug)]
pub struct PoolArgs {
    #[command(subcommand)]
    verb: PoolVerb,
}

#[derive(Subcommand, Debug)]
enum PoolVerb {
    Create(CreateArgs),
    /// List pools
    #[command(visible_alias = "ls")]
    #[command(after_help = "Example:\n  azekura pool list")]
    List,
    /// Show a pool: space by tier, targets, containers
    #[command(
        after_help = "Examples:\n  azekura pool query tank --json\n  azekura pool query tank --verbose"
    )]
    Query {
        /// Label or UUID
        pool: String,
        /// Devices, log and aggregation of each target, too
        #[arg(long, short)]
        verbose: bool,
    },
    /// Show in one line how a pool does, and what to do; all pools without a name
    ///
    /// HEALTHY, DEGRADED (fewer copies, still more than one), AT RISK (one copy left) or DATA UNAVAILABLE. Exit code
    /// 0 when healthy, 1 when degraded or at risk, 6 when some objects cannot be reached.
    #[command(
        after_help = "Examples:\n  azekura pool health\n  azekura pool health tank --json | jq -r '.[].state'"
    )]
    Health {
        /// Label or UUID
        pool: Option<String>,
    },
    /// Where others stand in for targets that are away
    #[command(subcommand)]
    Rebuild(RebuildVerb),
    /// Compare all data of a pool with their checksums now
    #[command(
        after_help = "Examples:\n  azekura pool scrub tank --wait\n  azekura pool set-prop tank scrub=64MiB/s"
    )]
    Scrub {
        /// Label or UUID
        pool: String,
        /// Wait for the end; the exit code is 1 when data are damaged
        #[arg(long, short)]
        wait: bool,
    },
    /// Remove a pool and all it holds
    #[command(after_help = "Example:\n  azekura pool destroy tank --force")]
    Destroy {
        /// Label or UUID
        pool: String,
        /// Even if it has containers or is in use
        #[arg(long, short)]
        force: bool,
    },
    /// Have others take all that targets hold, so that these may be taken away
    ///
    /// They serve what they have until others have it; 'azekura pool reintegrate' takes it back.
    #[command(
        after_help = "Examples:\n  azekura pool drain tank --rank 3 --dry-run\n  azekura pool drain tank --rank 3\n  azekura pool rebuild status tank --wait"
    )]
    Drain(SomeTargets),
    /// Use no more what targets hold: others get it from its copies
    ///
    /// What has no other copy cannot be read until 'azekura pool reintegrate'. To leave out a whole engine in all pools: 'azekura system
    /// exclude'.
    #[command(after_help = "Example:\n  azekura pool exclude tank --target 5")]
    Exclude(SomeTargets),
    /// Have targets serve again that were drained or excluded
    #[command(after_help = "Example:\n  azekura pool reintegrate tank --rank 3")]
    Reintegrate(SomeTargets),
    /// Take further targets into a pool
    ///
    /// Each gives as much room as those that the pool has. New objects are placed over all; what is there stays where it is
    /// until 'azekura pool balance'.
    #[command(
        after_help = "Examples:\n  azekura pool extend tank --rank 4,5\n  azekura pool extend tank --dry-run"
    )]
    Extend(ExtendArgs),
    /// Give targets their share of what is there: those that were added, and those that are worth more than before
    ///
    /// With placement 'capacity' or 'score' targets are weighed again by how they stand now. Where a share has grown, groups of older objects give
    /// members their places there, and no more of them than that takes. It goes on in the background; users notice no stop. To have it done by
    /// itself: 'azekura pool set-prop POOL balance=auto'. With a pool and no verb: 'start'.
    #[command(
        after_help = "Examples:\n  azekura pool balance start tank --dry-run\n  azekura pool balance start tank\n  azekura pool balance status tank --wait\n  azekura pool balance stop tank"
    )]
    Balance(balance::BalanceArgs),
    ResetTarget(reset::ResetArgs),
    /// Print properties
    #[command(
        after_help = "Examples:\n  azekura pool get-prop tank\n  azekura pool get-prop tank durability"
    )]
    GetProp {
        /// Label or UUID
        pool: String,
        /// Properties to print; all when none is given
        names: Vec<String>,
    },
    /// Change properties
    #[command(
        after_help = "Examples:\n  azekura pool set-prop tank label=scratch\n  azekura pool set-prop tank ioc_max_writers=4 ioc_max_readers=auto\n  azekura pool set-prop tank ioc_weights=climate:3,test:1"
    )]
    SetProp {
        /// Label or UUID
        pool: String,
        /// New values
        #[arg(required = true, value_name = "NAME=VALUE")]
        changes: Vec<Assignment>,
    },
    /// Print user attributes
    #[command(after_help = "Example:\n  azekura pool get-attr tank owner")]
    GetAttr {
        /// Label or UUID
        pool: String,
        /// Attributes to print; all when none is given
        names: Vec<String>,
    },
    /// Set user attributes
    #[command(after_help = "Example:\n  azekura pool set-attr tank owner=climate")]
    SetAttr {
        /// Label or UUID
        pool: String,
        /// New values
        #[arg(required = true, value_name = "NAME=VALUE")]
        changes: Vec<Assignment>,
    },
    /// Remove user attributes
    #[command(after_help = "Example:\n  azekura pool del-attr tank owner")]
    DelAttr {
        /// Label or UUID
        pool: String,
        /// Attributes to remove
        #[arg(required = true)]
        names: Vec<String>,
    },
}

/// Create a pool
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura pool create tank --size 8GiB
  azekura pool create fast --size 2GiB --durability memory --scm-percent 20
  azekura pool create small --size 512MiB --targets 0,1
  azekura pool create mixed --size 8GiB --placement score")]
struct CreateArgs {
    /// Its name: letters, digits, '_', '-', '.' and ':'
    label: String,
    /// Space over all targets (4GiB, 512MiB, ...)
    #[arg(long, short, value_parser = size::parse)]
    size: u64,
    /// When an update is acknowledged: wal (on stable storage), relaxed (written within
    /// milliseconds) or memory (gone when an engine stops) [default: what 'up' was given]
    #[arg(long)]
    durability: Option<Durability>,
    /// How objects are shared out over the targets: equal, capacity (by the room free on their devices) or score (by room and
    /// measured speed: 'azekura system measure'). Fixed at creation; targets that 'pool extend' adds begin with weights of
    /// that moment
    #[arg(long, default_value_t)]
    placement: PlacementRule,
    /// Part of the space for the index and log tier, percent
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=99))]
    scm_percent: u8,
    /// Use these targets only (see 'azekura status')
    #[arg(long, value_delimiter = ',', value_name = "ID,...")]
    targets: Vec<u32>,
}

#[derive(Serialize)]
struct PoolReport {
    label: String,
    uuid: String,
    id: u32,
    durability: Durability,
    placement: PlacementRule,
    total_bytes: u64,
    scm_bytes: u64,
    nvme_bytes: u64,
    containers: u64,
    handles: u64,
    map_version: u32,
    targets: Vec<TargetReport>,
    /// Which targets others stand in for.
    rebuild: RebuildReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    space: Option<SpaceReport>,
    /// How it does, by container, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    health: Option<HealthReport>,
    /// What is on its way between members of groups, by target; when some are behind, or with `--verbose`.
    #[serde(skip_serializing_if = "Option::is_none")]
    members: Option<Vec<TargetMembers>>,
    /// Groups that lack members, by copies left; while some target is not up.
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<GroupStat>,
    /// How bulk transfers are admitted, by target, once it was set.
    #[serde(skip_serializing_if = "Option::is_none")]
    admission: Option<Vec<TargetAdmission>>,
    /// What of the data is in memory, by target; not of pools that are in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<Vec<TargetCache>>,
    /// With `--verbose`.
    #[serde(skip_serializing_if = "Option::is_none")]
    stores: Option<Vec<TargetStore>>,
    /// How fast devices are and what targets are worth, with `--verbose`.
    #[serde(skip_serializing_if = "Option::is_none")]
    measures: Option<Vec<TargetMeasures>>,
    /// How data are compared with their checksums, and damage, by target.
    #[serde(skip_serializing_if = "Option::is_none")]
    scrub: Option<Vec<TargetScrub>>,
    /// With `--verbose`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    damaged: Vec<DamagedObject>,
}

#[derive(Serialize)]
struct TargetAdmission {
    target: u32,
    /// `null`: no answer.
    #[serde(flatten)]
    stat: Option<AdmissionStat>,
}

#[derive(Serialize)]
struct TargetReport {
    id: u32,
    rank: u32,
    state: String,
    /// Its weight for new objects; 65,536 is the norm.
    weight: u32,
    /// Version of the map in which it got this state; 0: it has had it from the start.
    since_map_version: u32,
    /// Why it is down: `silent`, `behind`, `lost` or `excluded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<DownReason>,
}

#[derive(Serialize)]
struct SpaceReport {
    scm_free_bytes: u64,
    nvme_free_bytes: u64,
    objects: u64,
    dkeys: u64,
    /// Targets that gave no answer.
    silent: Vec<u32>,
    /// The others, by tier.
    targets: Vec<TargetTiers>,
}

impl PoolReport {
    fn of(info: &PoolInfo) -> PoolReport {
        let target = |target: &wire::map::TargetInfo| TargetReport {
            id: target.id.0,
            rank: target.rank.0,
            state: format!("{:?}", target.state).to_lowercase(),
            weight: weight_of(info, target.id),
            since_map_version: target.since,
            reason: target.reason,
        };
        PoolReport {
            label: info.label.clone(),
            uuid: info.uuid.to_string(),
            id: info.id.0,
            durability: info.durability,
            placement: info.placement,
            total_bytes: info.scm_bytes + info.nvme_bytes,
            scm_bytes: info.scm_bytes,
            nvme_bytes: info.nvme_bytes,
            containers: info.cont_count,
            // Asking takes a handle of its own.
            handles: info.handle_count,
            map_version: info.map.version,
            targets: info.map.targets.iter().map(target).collect(),
            rebuild: RebuildReport::of(&info.map),
            space: None,
            health: None,
            members: None,
            groups: None,
            admission: None,
            cache: None,
            stores: None,
            measures: None,
            scrub: None,
            damaged: Vec::new(),
        }
    }
}

pub fn run(session: &Session, args: &PoolArgs) -> Outcome {
    let subject = |pool: &str| Subject::Pool(Name::parse(pool));
    match &args.verb {
        PoolVerb::Create(args) => create(session, args),
        PoolVerb::List => list(session),
        PoolVerb::Query { pool, verbose } => query(session, pool, *verbose),
        PoolVerb::Health { pool } => health::run(session, pool.as_deref()),
        PoolVerb::Drain(some) => aims::run(session, some, TargetAim::Drain),
        PoolVerb::Exclude(some) => aims::run(session, some, TargetAim::Exclude),
        PoolVerb::Reintegrate(some) => aims::run(session, some, TargetAim::Serve),
        PoolVerb::Extend(args) => aims::extend(session, args),
        PoolVerb::Balance(args) => balance::run(session, args),
        PoolVerb::Rebuild(verb) => rebuild::run(session, verb),
        PoolVerb::Scrub { pool, wait } => {
            let pool = session.open_pool(&Name::parse(pool), OpenMode::ReadOnly)?;
            scrub::run(session, &pool, *wait)
        }
        PoolVerb::Destroy { pool, force } => {
            let client = session.connect()?;
            client.block_on(client.pool_destroy(Name::parse(pool), *force))?;
            session.out.done(&format!("Pool '{pool}' is removed."))
        }
        PoolVerb::ResetTarget(args) => reset::run(session, args),
        PoolVerb::GetProp { pool, names } => {
            let info = info(session, pool)?;
            let subject = Subject::Pool(Name::Uuid(info.uuid));
            let more = match props::run(session, ControlRequest::GetProps { subject })? {
                ControlReply::Props(props) => props,
                _ => return Err(wrong_reply().into()),
            };
            let mut all = properties(&info);
            let more = more.iter().filter(|(name, _)| *name != "label");
            all.extend(more.map(|(name, value)| (name.as_str(), value.clone())));
            props::show_props(session.out, &all, names)
        }
        PoolVerb::SetProp { pool, changes } => props::set_props(session, subject(pool), changes),
        PoolVerb::GetAttr { pool, names } => props::show_attrs(session, subject(pool), names),
        PoolVerb::SetAttr { pool, changes } => props::set_attrs(session, subject(pool), changes),
        PoolVerb::DelAttr { pool, names } => props::del_attrs(session, subject(pool), names),
    }
}

fn create(session: &Session, args: &CreateArgs) -> Outcome {
    limits::check_label(&args.label)?;
    let mut targets: Vec<TargetId> = args.targets.iter().copied().map(TargetId).collect();
    targets.sort();
    targets.dedup();
    let is_over_all = targets.is_empty();
    let client = session.connect()?;
    let request = ControlRequest::PoolCreate {
        label: args.label.clone(),
        bytes: args.size,
        scm_percent: args.scm_percent,
        durability: args.durability.unwrap_or_else(|| default_durability(session)),
        placement: args.placement,
        targets,
    };
    let info = client.block_on(client.pool_create(request))?;
    // It is made already: who is left out is said if that can be found out.
    let known = if is_over_all { client.block_on(client.system_query()).ok() } else { None };
    let left_out: Vec<String> = known.map_or_else(Vec::new, |known| {
        let is_out = |rank: &Rank| !info.map.engines.iter().any(|engine| engine.rank == *rank);
        let members = known.members.iter().filter(|member| is_out(&member.rank));
        members.map(|member| member.rank.to_string()).collect()
    });
    session.out.show(&PoolReport::of(&info), |out| {
        writeln!(
            out,
            "Pool '{}' is ready: {} over {}, durability {}.",
            info.label,
            size::format(info.scm_bytes + info.nvme_bytes),
            plural(info.map.targets.len(), "target"),
            info.durability
        )?;
        if !left_out.is_empty() {
            let which = if left_out.len() == 1 { "Engine" } else { "Engines" };
            writeln!(out, "{which} {} left out: not up.", left_out.join(", "))?;
        }
        Ok(())
    })
}

/// What `azekura up` was given, when the system is one of this machine.
fn default_durability(session: &Session) -> Durability {
    session
        .system_dir()
        .ok()
        .and_then(|dir| SystemDir::at(dir).setup().ok().flatten())
        .map(|setup| setup.durability)
        .unwrap_or_default()
}

fn list(session: &Session) -> Outcome {
    let client = session.connect()?;
    let pools = client.block_on(client.pool_list())?;
    let reports: Vec<PoolReport> = pools.iter().map(PoolReport::of).collect();
    session.out.show(&reports, |out| {
        let mut table = Table::new(&["LABEL", "UUID", ">SIZE", "DURABILITY", ">CONTAINERS"]);
        for pool in &reports {
            table.row(vec![
                pool.label.clone(),
                pool.uuid.clone(),
                size::format(pool.total_bytes),
                pool.durability.to_string(),
                pool.containers.to_string(),
            ]);
        }
        table.write(out)
    })
}

fn query(session: &Session, pool: &str, verbose: bool) -> Outcome {
    let info = info(session, pool)?;
    let mut report = PoolReport::of(&info);
    let opened = session.open_pool(&Name::Uuid(info.uuid), OpenMode::ReadOnly)?;
    let space = opened.client().block_on(opened.query())?;
    let client = opened.client();
    let health = client.block_on(client.pool_health(&info))?;
    let is_missing = |target: &TargetInfo| target.state != TargetState::Up;
    let are_missing = info.map.targets.iter().any(is_missing);
    if verbose || info.map.next.is_some() || are_missing {
        let stats = members::counted_stats(&opened)?;
        report.rebuild = report.rebuild.with_kept(&info.map, &stats);
        report.rebuild = report.rebuild.with_room(&info, &space, &stats, &health);
        report.groups = are_missing.then(|| members::groups_of(&stats));
        report.members = Some(stats.iter().filter_map(TargetMembers::of).collect());
        if verbose {
            report.measures = Some(measures_of(&info, &stats));
            report.stores = Some(stats.into_iter().map(TargetStore::of).collect());
        }
    }
    report.space = Some(SpaceReport {
        targets: space.targets.iter().filter_map(TargetTiers::of).collect(),
        scm_free_bytes: space.total.scm_free_bytes,
        nvme_free_bytes: space.total.nvme_free_bytes,
        objects: space.total.object_count,
        dkeys: space.total.dkey_count,
        silent: space
            .targets
            .iter()
            .filter(|target| target.stat.is_none())
            .map(|target| target.target.0)
            .collect(),
    });
    report.admission = admission(&opened)?;
    report.cache = cache::report(&opened)?;
    let scrub = scrub::report(&opened)?;
    if verbose {
        report.damaged = damaged::objects(session, &opened, &scrub);
    }
    report.scrub = Some(scrub);
    let waits = page_waits::of_pool(client, &info);
    report.health = Some(HealthReport::of(&info, &health, &waits));
    session.out.show(&report, |out| {
        write_pairs(
            out,
            &[
                ("Label", report.label.clone()),
                ("UUID", report.uuid.clone()),
                ("Health", report.health.as_ref().map_or("", HealthReport::summary).to_string()),
                ("Durability", report.durability.to_string()),
                ("Placement", report.placement.to_string()),
                ("Index and log tier", of(space.total.scm_free_bytes, space.total.scm_bytes)),
                ("Data tier", of(space.total.nvme_free_bytes, space.total.nvme_bytes)),
                ("Objects", space.total.object_count.to_string()),
                ("Keys", space.total.dkey_count.to_string()),
                ("Groups lacking copies", report.groups.map_or("0".into(), members::groups_text)),
                ("Containers", report.containers.to_string()),
                ("Map version", report.map_version.to_string()),
            ],
        )?;
        writeln!(out)?;
        let mut table = Table::new(&[
            ">TARGET",
            ">RANK",
            "STATE",
            ">SCM FREE",
            ">SCM SIZE",
            ">NVME FREE",
            ">NVME SIZE",
            ">OBJECTS",
            ">WEIGHT",
        ]);
        for target in &space.targets {
            let rank = info.map.engine_of(target.target).map(|engine| engine.rank.to_string());
            let mut row = vec![
                target.target.to_string(),
                rank.unwrap_or_else(|| "-".into()),
                format!("{:?}", target.state).to_lowercase(),
            ];
            row.extend(match &target.stat {
                Some(stat) => [
                    size::format(stat.scm_free_bytes),
                    size::format(stat.scm_bytes),
                    size::format(stat.nvme_free_bytes),
                    size::format(stat.nvme_bytes),
                    stat.object_count.to_string(),
                ],
                None => ["no answer", "-", "-", "-", "-"].map(String::from),
            });
            let weight = weight_of(&info, target.target) as f64 / placement::WEIGHT_NORM as f64;
            row.push(format!("{weight:.2}"));
            table.row(row);
        }
        table.write(out)?;
        if let Some(health) = &report.health {
            members::show_containers(&health.containers, out)?;
        }
        if let Some(line) = report.rebuild.line() {
            writeln!(out, "\nRebuild: {line}.")?;
        }
        if let Some(why) = report.rebuild.waits(&info.label) {
            writeln!(out, "It waits: {why}.")?;
        }
        if let Some(text) = report.rebuild.room_text(&info.label) {
            writeln!(out, "Room: {text}")?;
        }
        let down = info.map.targets.iter().filter(|target| target.state == TargetState::Down);
        for target in down {
            if target.holds_its_part() {
                let why = match (target.reason, waits.get(&target.id)) {
                    (Some(DownReason::Excluded), _) => "was excluded".into(),
                    (Some(DownReason::Stopped), _) => "has stopped".into(),
                    (Some(DownReason::Behind), None) => {
                        "is back, and it catches up with what it missed".into()
                    }
                    (Some(DownReason::Behind), Some(of)) if *of == target.id => {
                        "is back; pages of the target's index are damaged, and nobody who is there and whole has what was in them"
                            .into()
                    }
                    (Some(DownReason::Behind), Some(of)) => format!(
                        "is back; the target has all but what was in damaged pages of target {of}"
                    ),
                    _ => "gives no answer".to_string(),
                };
                writeln!(
                    out,
                    "\nTarget {} is down since map version {}: engine {} {why}.",
                    target.id, target.since, target.rank
                )?;
                continue;
            }
            writeln!(
                out,
                "\nTarget {0} is down: it does not hold what it held, its store was wiped or exchanged.\nBring \
                 the store back and restart its engine; or, if that cannot be, give up what was there with\n\
                 'azekura pool reset-target {1} {0} --lose-data'.",
                target.id, report.label
            )?;
        }
        if let Some(members) = &report.members {
            members::show(members, verbose, out)?;
        }
        if let Some(stores) = &report.stores {
            store::show(stores, out)?;
        }
        if let Some(measures) = &report.measures {
            writeln!(out)?;
            measures::show(measures, out)?;
        }
        if let Some(admission) = &report.admission {
            show_admission(admission, out)?;
        }
        if let Some(cache) = &report.cache {
            cache::show(cache, out)?;
        }
        scrub::show(report.scrub.as_deref().unwrap_or_default(), &report.damaged, out)
    })
}

/// Weight of a target for new objects.
fn weight_of(info: &PoolInfo, target: TargetId) -> u32 {
    let newest = info.map.placements.last();
    let of = newest.and_then(|set| set.weights.iter().find(|(id, _)| *id == target));
    of.map_or(0, |(_, weight)| *weight)
}

/// What was measured of the targets.
fn measures_of(
    info: &PoolInfo,
    stats: &[(TargetId, Option<wire::store::StoreStat>)],
) -> Vec<TargetMeasures> {
    let measures = stats.iter().map(|(target, stat)| {
        let rank = info.map.target(*target).map_or(0, |target| target.rank.0);
        match stat {
            Some(stat) => TargetMeasures::of(*target, rank, &stat.standing()),
            None => TargetMeasures::failed(*target, rank, "no answer".into()),
        }
    });
    measures.collect()
}

/// What the targets report of admission; `None` where it was never set.
fn admission(pool: &client::Pool) -> Result<Option<Vec<TargetAdmission>>> {
    let asked = pool.client().block_on(pool.admission())?;
    let is_set = |stat: &Option<AdmissionStat>| stat.as_ref().is_some_and(|stat| stat.version > 0);
    if !asked.iter().any(|(_, stat)| is_set(stat)) {
        return Ok(None);
    }
    let report = |(target, stat): (TargetId, _)| TargetAdmission { target: target.0, stat };
    Ok(Some(asked.into_iter().map(report).collect()))
}

fn show_admission(admission: &[TargetAdmission], out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out)?;
    let mut table = Table::new(&[
        ">TARGET",
        "BULK",
        ">LIMIT",
        ">AT WORK",
        ">WAITING",
        ">LET IN",
        ">HELD",
        ">MEAN WAIT",
    ]);
    for target in admission {
        let Some(stat) = &target.stat else { continue };
        for (name, gate) in [("writes", &stat.writers), ("reads", &stat.readers)] {
            table.row(vec![
                target.target.to_string(),
                name.into(),
                limit_text(gate),
                gate.at_work.to_string(),
                gate.waiting.to_string(),
                gate.granted.to_string(),
                gate.held.to_string(),
                format!("{} us", gate.wait_us / gate.held.max(1)),
            ]);
        }
    }
    table.write(out)
}

fn limit_text(gate: &GateStat) -> String {
    match gate.limit {
        Limit::Auto => format!("auto ({})", gate.limit_now),
        limit => limit.to_string(),
    }
}

fn of(free: u64, total: u64) -> String {
    format!("{} free of {}", size::format(free), size::format(total))
}

fn info(session: &Session, pool: &str) -> Result<PoolInfo> {
    match props::run(session, ControlRequest::PoolQuery(Name::parse(pool)))? {
        ControlReply::Pool(info) => Ok(info),
        _ => Err(wrong_reply()),
    }
}

fn properties(info: &PoolInfo) -> Vec<(&str, String)> {
    vec![
        ("label", info.label.clone()),
        ("uuid", info.uuid.to_string()),
        ("durability", info.durability.to_string()),
        ("scm_size", info.scm_bytes.to_string()),
        ("nvme_size", info.nvme_bytes.to_string()),
    ]
}
