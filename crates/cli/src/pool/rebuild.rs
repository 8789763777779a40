//! `azekura pool rebuild`: which targets others stand in for, and how far those are that come to.

use super::members::{self, TargetMembers};
use super::room::{self, Lacking};
use crate::exit::Outcome;
use crate::output::{spinner, utc, write_pairs};
use crate::props;
use crate::session::Session;
use clap::Subcommand;
use client::{PoolHealth, RebuildState, SpaceInfo};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Code, Error, Rank, Result, TargetId, size};
use wire::control::{ControlRequest, Member, MemberState, Name, OpenMode, PoolInfo};
use wire::map::{DownReason, OutTarget, PoolMap, TargetInfo};
use wire::store::StoreStat;

/// Pause between two looks of `--wait`.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

#[derive(Subcommand, Debug)]
pub enum RebuildVerb {
    /// Show which targets others stand in for, and how far those are that come to
    ///
    /// Objects with copies have others than those that are away once these have what was lost. It begins by itself when a target was
    /// down for 'rebuild_after_s' of the engines' configuration (60), and goes back by itself when it returns.
    #[command(
        after_help = "Examples:\n  azekura pool rebuild status tank\n  azekura pool rebuild status tank --wait"
    )]
    Status {
        /// Label or UUID
        pool: String,
        /// Wait until nothing moves and nobody catches up; fails where a drain needs further targets
        #[arg(long, short)]
        wait: bool,
    },
    /// Give up what moves, and begin nothing until 'start'
    #[command(after_help = "Example:\n  azekura pool rebuild stop tank")]
    Stop {
        /// Label or UUID
        pool: String,
    },
    /// Go on after 'stop'
    #[command(after_help = "Example:\n  azekura pool rebuild start tank")]
    Start {
        /// Label or UUID
        pool: String,
    },
}

/// What `--json` has.
#[derive(Serialize)]
pub struct RebuildReport {
    /// `idle`: all members are those that were drawn, which may be away; `busy`; `done`: others stand in.
    pub state: &'static str,
    /// Targets that others stand in for.
    pub out: Vec<u32>,
    /// What that is to become; `null`: nothing moves.
    pub next: Option<Vec<u32>>,
    /// Targets that are back, and compare what they have.
    pub behind: Vec<u32>,
    /// Of `out` and `next`, those that others took what they had from.
    pub drained: Vec<u32>,
    /// Targets that were added come to take over their share of what is there.
    pub is_balancing: bool,
    /// Something else is to move than does, and begins in a moment.
    pub is_due: bool,
    /// Targets that had no room to stand in: the next ones do, as far as there are any.
    pub full: Vec<u32>,
    /// Targets whose drain waits: all others have a part of the same groups already. Not known without asking targets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keeping: Vec<Keeping>,
    /// What is still to move, and has no room. Not known without asking targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacking: Option<Lacking>,
    /// Lost targets that nobody stands in for in some groups, for want of room. Not known without asking for containers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unplaced: Vec<u32>,
}

/// A target that is drained, and has nobody to give some groups to.
#[derive(Serialize, Clone)]
pub struct Keeping {
    pub target: u32,
    pub groups: u64,
}

impl RebuildReport {
    pub fn of(map: &PoolMap) -> RebuildReport {
        let ids = |outs: &[OutTarget]| {
            let ids: BTreeSet<u32> = outs.iter().map(|out| out.target.0).collect();
            ids.into_iter().collect::<Vec<u32>>()
        };
        let behind = map.targets.iter().filter(|target| target.reason == Some(DownReason::Behind));
        let behind: Vec<u32> = behind.map(|target| target.id.0).collect();
        RebuildReport {
            state: word(RebuildState::of_map(map)),
            out: ids(&map.outs),
            next: map.next.as_deref().map(ids),
            behind,
            drained: {
                let outs = map.outs.iter().chain(map.next.iter().flatten());
                let drained: Vec<OutTarget> = outs.filter(|out| out.is_drained).copied().collect();
                ids(&drained)
            },
            is_balancing: map.next.is_some() && map.next_balanced != map.balanced,
            is_due: false,
            full: {
                let full: BTreeSet<u32> = map.passed_for_want_of_room().map(|id| id.0).collect();
                full.into_iter().collect()
            },
            keeping: Vec::new(),
            lacking: None,
            unplaced: Vec::new(),
        }
    }

    /// The same, with what there is no room for, as its targets tell.
    pub fn with_room(
        self,
        info: &PoolInfo,
        space: &SpaceInfo,
        stats: &[(TargetId, Option<StoreStat>)],
        health: &PoolHealth,
    ) -> RebuildReport {
        let unplaced = placement::lost_for_want_of_room(health.members, &info.map);
        RebuildReport {
            lacking: Lacking::of(info, space, stats, health.has_copies()),
            unplaced: unplaced.iter().map(|target| target.0).collect(),
            ..self
        }
    }

    /// What there is no room for, and what is to be done, sentences; `None`: there is room.
    pub fn room_text(&self, pool: &str) -> Option<String> {
        let lacking = self.lacking.map(|lacking| lacking.sentence(pool));
        let unplaced = (!self.unplaced.is_empty()).then(|| {
            format!(
                "some groups of {} have a copy less, for the others had no room; remove what is not needed, or take in further targets \
                 ('azekura pool extend {pool}'): it is tried again by itself then",
                named(&self.unplaced)
            )
        });
        let all: Vec<String> = lacking.into_iter().chain(unplaced).collect();
        (!all.is_empty()).then(|| format!("{}.", all.join("; ")))
    }

    /// The same, with what targets tell of groups that they cannot give away.
    pub fn with_kept(
        self,
        map: &PoolMap,
        stats: &[(TargetId, Option<StoreStat>)],
    ) -> RebuildReport {
        let is_new = |out: &&OutTarget| out.is_drained && !map.outs.contains(out);
        let going: BTreeSet<TargetId> =
            map.next.iter().flatten().filter(is_new).map(|out| out.target).collect();
        let kept = |(target, stat): &(TargetId, Option<StoreStat>)| {
            let stat = stat.as_ref()?.catching_up?;
            // It has compared with all others: what is left is no work that is still to be done.
            let groups = if stat.targets_left == 0 { stat.units_left } else { 0 };
            (groups > 0 && going.contains(target)).then_some(Keeping { target: target.0, groups })
        };
        RebuildReport { keeping: stats.iter().filter_map(kept).collect(), ..self }
    }

    /// Why what moves has no end, and what is to be done; `None`: it has one.
    pub fn waits(&self, pool: &str) -> Option<String> {
        let one = |of: &Keeping| {
            let Keeping { target, groups } = of;
            format!(
                "target {target} cannot be emptied: all other targets that serve have a part of {groups} of its groups already; \
                 take in further ones ('azekura pool extend {pool}'), or take it back ('azekura pool reintegrate {pool} --target {target}')"
            )
        };
        let all: Vec<String> = self.keeping.iter().map(one).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// The same of a pool, with what is wanted and has not begun yet.
    pub fn of_pool(info: &PoolInfo) -> RebuildReport {
        let is_wanted = info.balance_wanted > info.map.balanced && !info.is_rebuild_stopped;
        let of_map = RebuildReport::of(&info.map);
        let is_balancing = of_map.is_balancing || is_wanted;
        let is_due = info.is_move_due && !info.is_rebuild_stopped;
        RebuildReport { state: word(RebuildState::of(info)), is_balancing, is_due, ..of_map }
    }

    /// In one line; `None` when there is nothing to say.
    pub fn line(&self) -> Option<String> {
        let mut parts = Vec::new();
        if let Some(next) = &self.next {
            let not_in = |ids: &[u32], of: &[u32]| {
                of.iter().copied().filter(|id| !ids.contains(id)).collect::<Vec<u32>>()
            };
            let (new, back) = (not_in(&self.out, next), not_in(next, &self.out));
            if !new.is_empty() {
                parts.push(format!("others come to stand in for {}", named(&new)));
            }
            if !back.is_empty() {
                parts.push(format!("{} {} back", named(&back), verb(&back, "come")));
            }
        }
        if self.is_due {
            parts.push("what is to move begins to in a moment".into());
        }
        if self.is_balancing {
            parts.push("targets come to their share".into());
        }
        if !self.out.is_empty() {
            parts.push(format!("others stand in for {}", named(&self.out)));
        }
        if !self.behind.is_empty() {
            parts.push(format!("{} {} up", named(&self.behind), verb(&self.behind, "catch")));
        }
        if !self.full.is_empty() {
            let have = if self.full.len() == 1 { "has" } else { "have" };
            parts.push(format!("{} {have} no room for more", named(&self.full)));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// A state as it is printed.
fn word(state: RebuildState) -> &'static str {
    match state {
        RebuildState::Idle => "idle",
        RebuildState::Busy => "busy",
        RebuildState::Done => "done",
    }
}

/// `target 3`, `targets 3, 4`.
pub fn named(ids: &[u32]) -> String {
    let list: Vec<String> = ids.iter().map(u32::to_string).collect();
    format!("{} {}", if ids.len() == 1 { "target" } else { "targets" }, list.join(", "))
}

/// In the present, as many do it.
fn verb(ids: &[u32], verb: &str) -> String {
    match (ids.len(), verb.ends_with('h')) {
        (1, true) => format!("{verb}es"),
        (1, false) => format!("{verb}s"),
        _ => verb.into(),
    }
}

#[derive(Serialize)]
struct StatusReport {
    pool: String,
    map_version: u32,
    #[serde(flatten)]
    rebuild: RebuildReport,
    /// Nothing begins to move until 'rebuild start'.
    is_stopped: bool,
    /// Targets that are away, and that nobody comes to stand in for yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    away: Vec<Away>,
    /// Of the targets that compare and get.
    targets: Vec<TargetMembers>,
}

/// A target that others do not stand in for yet.
#[derive(Serialize)]
struct Away {
    target: u32,
    /// When its engine got the state that it has, UTC; missing when that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
}

/// Targets of a pool that are away, and that nobody comes to stand in for yet.
fn away(info: &PoolInfo, members: &[Member]) -> Vec<Away> {
    let is_out = |id: TargetId| {
        info.map.outs.iter().chain(info.map.next.iter().flatten()).any(|out| out.target == id)
    };
    let since = |rank: Rank| {
        let member = members.iter().find(|member| member.rank == rank)?;
        (member.state != MemberState::Up && member.changed_ns > 0)
            .then(|| utc(member.changed_ns as i64))
    };
    let is_away = |target: &&TargetInfo| {
        let is_there = matches!(target.reason, None | Some(DownReason::Behind));
        !is_there && !is_out(target.id)
    };
    let of = |target: &TargetInfo| Away { target: target.id.0, since: since(target.rank) };
    info.map.targets.iter().filter(is_away).map(of).collect()
}

/// That nobody stands in for these yet, and when that changes; `None`: there are none.
fn away_text(pool: &str, away: &[Away], is_stopped: bool) -> Option<String> {
    let mut by_time: BTreeMap<Option<&str>, Vec<u32>> = BTreeMap::new();
    for one in away {
        by_time.entry(one.since.as_deref()).or_default().push(one.target);
    }
    let told = by_time.iter().map(|(since, ids)| {
        let since = since.map_or(String::new(), |since| format!(" since {since}"));
        format!("{} {} away{since}", named(ids), if ids.len() == 1 { "is" } else { "are" })
    });
    let told: Vec<String> = told.collect();
    let then = match is_stopped {
        true => format!("nobody comes to stand in until 'azekura pool rebuild start {pool}'"),
        false => "nobody stands in yet; others come to after 'rebuild_after_s' of the engines' files (60 s where it is not set), as \
                  far as enough engines are left"
            .into(),
    };
    (!told.is_empty()).then(|| format!("{}: {then}", told.join(", ")))
}

pub fn run(session: &Session, verb: &RebuildVerb) -> Outcome {
    let (pool, wait) = match verb {
        RebuildVerb::Status { pool, wait } => (pool, wait),
        RebuildVerb::Stop { pool } => return run_or_stop(session, pool, false),
        RebuildVerb::Start { pool } => return run_or_stop(session, pool, true),
    };
    let mut seen = look(session, pool)?;
    let progress = spinner(*wait && session.out.shows_progress());
    while *wait && seen.rebuild.state == "busy" {
        if let Some(why) = seen.rebuild.waits(pool) {
            progress.finish_and_clear();
            return Err(Error::new(Code::Busy, why).into());
        }
        progress.set_message(progress_text(&seen.targets));
        progress.tick();
        std::thread::sleep(LOOK_PAUSE);
        seen = look(session, pool)?;
    }
    progress.finish_and_clear();
    let report = seen;
    session.out.show(&report, |out| {
        let waits = away_text(&report.pool, &report.away, report.is_stopped);
        let parts: Vec<String> = report.rebuild.line().into_iter().chain(waits).collect();
        let line = match parts.is_empty() {
            true => "all members are in their places".into(),
            false => parts.join("; "),
        };
        write_pairs(
            out,
            &[
                ("Pool", report.pool.clone()),
                ("Rebuild", {
                    let stopped = if report.is_stopped { ", stopped" } else { "" };
                    format!("{}{stopped}", report.rebuild.state)
                }),
                ("Members", line),
                ("Map version", report.map_version.to_string()),
            ],
        )?;
        members::show(&report.targets, false, out)?;
        if let Some(why) = report.rebuild.waits(&report.pool) {
            writeln!(out, "\nWaits: {why}.")?;
        }
        match report.rebuild.room_text(&report.pool) {
            Some(text) => writeln!(out, "\nRoom: {text}"),
            None => Ok(()),
        }
    })
}

/// What comes, how fast, and for how long still: that of the target that takes longest.
fn progress_text(targets: &[TargetMembers]) -> String {
    let keys: u64 = targets.iter().map(TargetMembers::keys_mended).sum();
    let bytes: u64 = targets.iter().map(TargetMembers::bytes_mended).sum();
    let bytes_s: u64 = targets.iter().map(TargetMembers::bytes_s).sum();
    let left: Option<Vec<u64>> = targets.iter().map(TargetMembers::left_ms).collect();
    let left = left.and_then(|left| left.into_iter().max()).map_or(String::new(), |left_ms| {
        format!(", about {} left", members::time_text(left_ms.div_ceil(1000)))
    });
    format!(
        "{} targets compare, {keys} keys mended, {} at {} a second{left}",
        targets.len(),
        size::format(bytes),
        size::format(bytes_s)
    )
}

fn run_or_stop(session: &Session, pool: &str, runs: bool) -> Outcome {
    props::run(session, ControlRequest::PoolRebuild { pool: Name::parse(pool), runs })?;
    session.out.done(&match runs {
        true => format!("Others come to stand in for targets of pool '{pool}' again."),
        false => format!(
            "Nobody comes to stand in for targets of pool '{pool}', or back, until 'azekura pool rebuild start {pool}'."
        ),
    })
}

/// The pool as the catalog has it, and what is left to compare.
fn look(session: &Session, pool: &str) -> Result<StatusReport> {
    let info = super::info(session, pool)?;
    let opened = session.open_pool(&Name::Uuid(info.uuid), OpenMode::ReadOnly)?;
    let client = opened.client();
    let stats = client.block_on(opened.store_stats())?;
    let targets = stats.iter().filter_map(TargetMembers::of).filter(TargetMembers::is_busy);
    let mut rebuild = RebuildReport::of_pool(&info).with_kept(&info.map, &stats);
    if room::may_lack(&info) {
        let space = client.block_on(opened.query())?;
        let health = client.block_on(client.pool_health(&info))?;
        rebuild = rebuild.with_room(&info, &space, &stats, &health);
    }
    let mut lost = away(&info, &[]);
    if !lost.is_empty() {
        lost = away(&info, &client.block_on(client.system_query())?.members);
    }
    Ok(StatusReport {
        rebuild,
        away: lost,
        pool: info.label,
        map_version: info.map.version,
        is_stopped: info.is_rebuild_stopped,
        targets: targets.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the minute before others come it was said that all members are in their places.
    #[test]
    fn who_is_away_without_others_in_his_place_is_told() {
        let one = |target, since: Option<&str>| Away { target, since: since.map(String::from) };
        assert_eq!(away_text("tank", &[], false), None);
        let away = [one(1, Some("t1")), one(2, Some("t1")), one(5, None)];
        let text = away_text("tank", &away, false).unwrap();
        assert!(text.starts_with("target 5 is away, targets 1, 2 are away since t1: "), "{text}");
        assert!(
            text.contains("nobody stands in yet") && text.contains("rebuild_after_s"),
            "{text}"
        );
        let text = away_text("tank", &away[..1], true).unwrap();
        assert!(text.ends_with("until 'azekura pool rebuild start tank'"), "{text}");
    }
}
