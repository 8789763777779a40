//! `azekura pool health`: in one line for each pool what is lost, what that means, and what to do.

use super::page_waits::{self, PageWaits};
use super::rebuild::RebuildReport;
use crate::exit::{Failure, Outcome, UNREACHABLE};
use crate::output::plural;
use crate::session::Session;
use client::{ContHealth, HealthState, MissingTarget, PoolHealth};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use types::{Error, Rank, Result, TargetId};
use wire::control::{Name, PoolInfo, TargetAim};
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
    /// Targets that were drained and are away: nobody misses them.
    drained: usize,
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
    /// It has all else, and waits for what was in damaged pages of the index of this target, which may be itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for_pages_of: Option<u32>,
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
    pub fn of(pool: &PoolInfo, health: &PoolHealth, waits: &PageWaits) -> HealthReport {
        let (state, exit) = match health.state {
            // Of engines that were started since nobody knows what they miss, and the next one that dies stays in the way.
            HealthState::Healthy | HealthState::Degraded if !health.is_led => ("at risk", 1),
            HealthState::Healthy => ("healthy", 0),
            HealthState::Degraded => ("degraded", 1),
            HealthState::AtRisk => ("at risk", 1),
            HealthState::Unavailable => ("unavailable", UNREACHABLE),
        };
        let missing = |missing: &MissingTarget| Missing {
            target: missing.target.0,
            rank: missing.rank.0,
            reason: missing.reason,
            waits_for_pages_of: waits.get(&missing.target).map(|of| of.0),
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
            summary: summary(pool, health, waits),
            targets: pool.map.targets.len(),
            missing: health.missing.iter().map(missing).collect(),
            drained: health.drained_count,
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
        Ok(HealthReport::of(pool, &health, &page_waits::of_pool(&client, pool)))
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

/// While no engine leads.
const NOT_LED: &str = "no engine leads: the catalog is away; nobody acts on losses, and what engines lead that were started since waits, until \
    the engine that holds it, or etcd, is back ('azekura system query')";

/// The state, what is missing, what that means, what to do.
fn summary(pool: &PoolInfo, health: &PoolHealth, waits: &PageWaits) -> String {
    let (label, targets) = (&pool.label, pool.map.targets.len() - health.drained_count);
    let missing = health.missing.len();
    let moves = match RebuildReport::of(&pool.map).line() {
        Some(line) => format!("; {line}"),
        None => String::new(),
    };
    let moves = match health.is_led {
        true => moves,
        false => format!("{moves}; {NOT_LED}"),
    };
    if missing == 0 {
        let drained = match health.drained_count {
            0 => String::new(),
            count => format!("; {} more, drained and away, had nothing any more", count),
        };
        let (word, known) =
            if health.is_led { ("HEALTHY", "") } else { ("AT RISK", " as far as is known") };
        return match targets {
            1 => format!("{word}: its target is up{known}{drained}{moves}"),
            _ => format!("{word}: all {targets} targets are up{known}{drained}{moves}"),
        };
    }
    if health.state == HealthState::Healthy {
        let verb = if missing == 1 { "is" } else { "are" };
        let word = if health.is_led { "HEALTHY" } else { "AT RISK" };
        return format!(
            "{word}: all objects have all copies; {missing} of {targets} targets {verb} away{moves}"
        );
    }
    let word = match health.state {
        HealthState::Healthy | HealthState::Degraded if !health.is_led => "AT RISK",
        HealthState::Healthy | HealthState::Degraded => "DEGRADED",
        HealthState::AtRisk => "AT RISK",
        HealthState::Unavailable => "DATA UNAVAILABLE",
    };
    let by_engine = by_engine(&health.missing, &Seen { aims: &pool.aims, waits });
    let is_away = by_engine.keys().any(|(_, why)| why.is_away());
    let told: Vec<String> =
        by_engine.iter().map(|((rank, why), ids)| reason(*rank, *why, ids)).collect();
    let mut todo: Vec<String> = Vec::new();
    for ((rank, why), ids) in &by_engine {
        let advice = advice(label, *rank, *why, ids, is_away);
        // Said once.
        if !todo.contains(&advice) {
            todo.push(advice);
        }
    }
    let todo = match health.waits_for.is_empty() {
        true => todo.join("; "),
        false => waiting(label, &health.waits_for),
    };
    let verb = if missing == 1 { "is" } else { "are" };
    format!(
        "{word}: {missing} of {} {verb} not whole ({}); {}; {}{moves}",
        plural(targets, "target"),
        told.join(", "),
        meaning(health),
        todo
    )
}

/// What those who are there wait for, and what to do about it.
fn waiting(label: &str, away: &[(TargetId, Rank)]) -> String {
    let ids: Vec<u32> = away.iter().map(|(id, _)| id.0).collect();
    let ranks: BTreeSet<u32> = away.iter().map(|(_, rank)| rank.0).collect();
    let each = |of: &dyn Fn(&u32) -> String| {
        let all: Vec<String> = ranks.iter().map(of).collect();
        all.join(", ")
    };
    format!(
        "those who are there wait for {}, which left last and may have what nobody else has: start {}; if that is gone for good, go on \
         without what it had alone: {}, then {}",
        list(&ids),
        each(&|rank| format!("engine {rank}")),
        each(&|rank| format!("'azekura system exclude {rank}'")),
        each(&|rank| format!("'azekura pool reset-target {label} --rank {rank} --lose-data'"))
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

/// What is known of targets beside the map.
struct Seen<'a> {
    aims: &'a [(TargetId, TargetAim)],
    waits: &'a PageWaits,
}

impl Seen<'_> {
    fn is_excluded_here(&self, target: TargetId) -> bool {
        self.aims.contains(&(target, TargetAim::Exclude))
    }
}

/// Why targets are not whole.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    Behind,
    /// Its engine is.
    Excluded,
    /// By this pool alone.
    ExcludedHere,
    Lost,
    /// Pages of its index are damaged, and nobody whole can tell what was in them.
    OwnPages,
    /// It has all else, and waits for what was in damaged pages of this target.
    PagesOf(TargetId),
    /// Its engine answers, and it takes no part.
    Refuses,
    Silent,
    Stopped,
}

impl Why {
    fn of(missing: &MissingTarget, seen: &Seen<'_>) -> Why {
        let waits = seen.waits;
        match (missing.reason, waits.get(&missing.target)) {
            (DownReason::Silent | DownReason::Stopped, _) if missing.engine_answers => Why::Refuses,
            (DownReason::Silent, _) => Why::Silent,
            (DownReason::Stopped, _) => Why::Stopped,
            (DownReason::Lost, _) => Why::Lost,
            (DownReason::Excluded, _) => match seen.is_excluded_here(missing.target) {
                true => Why::ExcludedHere,
                false => Why::Excluded,
            },
            (DownReason::Behind, Some(of)) if *of == missing.target => Why::OwnPages,
            (DownReason::Behind, Some(of)) => Why::PagesOf(*of),
            (DownReason::Behind, None) => Why::Behind,
        }
    }

    /// It may know more than those who are there, once it is back.
    fn is_away(self) -> bool {
        matches!(
            self,
            Why::Silent | Why::Stopped | Why::Refuses | Why::Excluded | Why::ExcludedHere
        )
    }
}

/// Targets that are not whole, by engine and reason.
fn by_engine(missing: &[MissingTarget], seen: &Seen<'_>) -> BTreeMap<(u32, Why), Vec<u32>> {
    let mut by_engine: BTreeMap<(u32, Why), Vec<u32>> = BTreeMap::new();
    for one in missing {
        by_engine.entry((one.rank.0, Why::of(one, seen))).or_default().push(one.target.0);
    }
    by_engine
}

fn list(ids: &[u32]) -> String {
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    format!("{} {}", if ids.len() == 1 { "target" } else { "targets" }, ids.join(", "))
}

fn are(ids: &[u32]) -> &'static str {
    if ids.len() == 1 { "is" } else { "are" }
}

fn reason(rank: u32, why: Why, ids: &[u32]) -> String {
    match why {
        Why::Silent => format!("engine {rank} gives no answer"),
        Why::Stopped => format!("engine {rank} has stopped"),
        Why::Refuses => format!("{} of engine {rank} cannot be used, though it answers", list(ids)),
        Why::Behind => format!("engine {rank} is back and catches up"),
        Why::Excluded => format!("engine {rank} is excluded"),
        Why::ExcludedHere => {
            format!("{} of engine {rank} {} excluded in this pool", list(ids), are(ids))
        }
        Why::Lost => format!("{} of engine {rank} lost what it held", list(ids)),
        Why::OwnPages => format!(
            "{} of engine {rank}: pages of the index are damaged, and nobody who is there and whole has what was in them",
            list(ids)
        ),
        Why::PagesOf(of) => format!(
            "{} of engine {rank}: all is there but what was in damaged pages of target {of}",
            list(ids)
        ),
    }
}

/// What to do about it. `is_away`: some targets are not there at all.
fn advice(label: &str, rank: u32, why: Why, ids: &[u32], is_away: bool) -> String {
    let first = ids.first().copied().unwrap_or_default();
    let reset = format!("'azekura pool reset-target {label} {first} --lose-data'");
    match why {
        Why::Silent | Why::Stopped => format!("start engine {rank} again"),
        Why::Refuses => format!(
            "its log, and 'azekura system events', say why (a device that takes no writes, a damaged store, or it has just started): mend that and start engine {rank} again"
        ),
        Why::Behind => "it will be whole by itself".into(),
        Why::Excluded => format!("'azekura system clear-exclude {rank}' takes it back"),
        Why::ExcludedHere => {
            let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
            let (those, it) = (ids.join(","), if ids.len() == 1 { "it" } else { "them" });
            format!("'azekura pool reintegrate {label} --target {those}' takes {it} back")
        }
        Why::Lost => format!("bring back the store of {}, or give it up: {reset}", list(ids)),
        Why::OwnPages if is_away => {
            "who is away may have what was in the pages: what is to be done is told when all are there".into()
        }
        Why::OwnPages => {
            format!("{reset} has the others lead: what was in the pages is then as they have it, as old as when they left")
        }
        Why::PagesOf(of) => format!("it will be whole once target {of} is"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(target: u32, reason: DownReason) -> MissingTarget {
        let (target, rank) = (TargetId(target), Rank(target));
        MissingTarget { target, rank, reason, engine_answers: reason == DownReason::Behind }
    }

    fn told(missing: &[MissingTarget], waits: &PageWaits) -> Vec<(String, String)> {
        told_with(missing, &Seen { aims: &[], waits })
    }

    fn told_with(missing: &[MissingTarget], seen: &Seen<'_>) -> Vec<(String, String)> {
        let by_engine = by_engine(missing, seen);
        let is_away = by_engine.keys().any(|(_, why)| why.is_away());
        let line = |((rank, why), ids): (&(u32, Why), &Vec<u32>)| {
            (reason(*rank, *why, ids), advice("tank", *rank, *why, ids, is_away))
        };
        by_engine.iter().map(line).collect()
    }

    #[test]
    fn who_waits_for_another_one_is_told_how_that_ends() {
        let line = waiting("tank", &[(TargetId(4), Rank(2)), (TargetId(5), Rank(2))]);
        assert!(line.contains("wait for targets 4, 5, which left last"), "{line}");
        assert!(line.contains("start engine 2;"), "{line}");
        let orders = "'azekura system exclude 2', then 'azekura pool reset-target tank --rank 2 --lose-data'";
        assert!(line.ends_with(orders), "{line}");
    }

    /// Two targets waited for each other, and it was said of both that they will be whole by themselves.
    #[test]
    fn who_waits_for_damaged_pages_is_told_and_what_to_do() {
        let behind = [missing(2, DownReason::Behind), missing(3, DownReason::Behind)];
        let by_itself = told(&behind, &PageWaits::new());
        assert!(by_itself.iter().all(|(_, todo)| todo.contains("by itself")), "{by_itself:?}");
        let waits = PageWaits::from([(TargetId(2), TargetId(2)), (TargetId(3), TargetId(2))]);
        let lines = told(&behind, &waits);
        assert!(lines[0].0.starts_with("target 2 of engine 2: pages of the index"), "{lines:?}");
        assert!(lines[0].1.contains("pool reset-target tank 2 --lose-data"), "{lines:?}");
        assert!(lines[1].0.contains("damaged pages of target 2"), "{lines:?}");
        assert!(lines[1].1.contains("once target 2 is"), "{lines:?}");
        // Somebody who is away may have more: nothing is to be given up before.
        let all = [&behind[..], &[missing(1, DownReason::Silent)]].concat();
        let lines = told(&all, &waits);
        assert!(lines.iter().all(|(_, todo)| !todo.contains("reset-target")), "{lines:?}");
        assert!(lines[0].1.contains("start engine 1"), "{lines:?}");
    }

    /// A target whose log had failed was called away: its engine was to be started, which ran.
    #[test]
    fn an_engine_that_answers_is_not_said_to_give_no_answer() {
        let one = MissingTarget { engine_answers: true, ..missing(2, DownReason::Silent) };
        let lines = told(&[one, missing(3, DownReason::Silent)], &PageWaits::new());
        assert!(lines.iter().any(|(why, _)| why == "engine 3 gives no answer"), "{lines:?}");
        let (_, todo) = lines.iter().find(|(why, _)| why.contains("though it answers")).unwrap();
        assert!(todo.contains("its log") && todo.ends_with("start engine 2 again"), "{todo}");
    }

    /// What a pool had excluded by itself was to be taken back by 'system clear-exclude', which changed nothing.
    #[test]
    fn what_a_pool_excluded_itself_is_taken_back_in_the_pool() {
        let missing = [missing(1, DownReason::Excluded), missing(2, DownReason::Excluded)];
        let aims = [(TargetId(2), TargetAim::Exclude)];
        let lines = told_with(&missing, &Seen { aims: &aims, waits: &PageWaits::new() });
        assert_eq!(lines[0].1, "'azekura system clear-exclude 1' takes it back");
        assert_eq!(lines[1].0, "target 2 of engine 2 is excluded in this pool");
        assert_eq!(lines[1].1, "'azekura pool reintegrate tank --target 2' takes it back");
    }
}
