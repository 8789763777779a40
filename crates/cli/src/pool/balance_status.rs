//! `azekura pool balance status`: what of a pool is to move so that targets have their share, and how far that is.

use super::members::{TargetMembers, time_text};
use super::rebuild::RebuildReport;
use crate::exit::Outcome;
use crate::measures::TargetMeasures;
use crate::output::{Table, spinner, write_pairs};
use crate::props::{self, wrong_reply};
use crate::session::Session;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;
use types::{Result, TargetId, size};
use wire::control::{ControlReply, ControlRequest, Name, OpenMode, PoolInfo, Subject};
use wire::map::PoolMap;

/// Pause between two looks of `--wait`.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// How far a pool is with its balance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// What is there is where the newest shares say.
    Even,
    /// It is not, and nobody wants it to be.
    Due,
    /// It is wanted, and has not begun.
    Wanted,
    Moving,
}

/// Least and most of all targets, and what is between them.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
struct Spread {
    least: f64,
    most: f64,
    spread: f64,
}

impl Spread {
    fn of(all: impl Iterator<Item = f64> + Clone) -> Spread {
        let Some(least) = all.clone().reduce(f64::min) else { return Spread::default() };
        let most = all.fold(least, f64::max);
        Spread { least, most, spread: most - least }
    }
}

/// A target's part of it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct TargetPart {
    target: u32,
    rank: Option<u32>,
    /// Of what was placed before the newest shares, percent: as it is, as it becomes.
    share_percent: f64,
    share_percent_then: f64,
    /// What the pool has there, and will have by these shares, bytes.
    used_bytes: u64,
    used_bytes_then: u64,
    /// Of the pool's room there, percent.
    fill_percent: f64,
    fill_percent_then: f64,
    /// What it has, of what is its share by these; percent. `null`: it has no share.
    of_share_percent: Option<f64>,
    of_share_percent_then: Option<f64>,
    /// What its devices and links are worth; `null`: not measured.
    score: Option<u64>,
}

/// What `--json` has.
#[derive(Serialize)]
struct BalanceStatus {
    pool: String,
    state: State,
    /// None begins until 'balance start'.
    is_stopped: bool,
    /// It begins by itself.
    is_auto: bool,
    /// Why it does not move though it is wanted, or due.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits: Option<String>,
    /// Placement epochs: up to which it is done, is to be done, and could be.
    balanced_epoch: u8,
    wanted_epoch: u8,
    newest_epoch: u8,
    /// About as much has still to move.
    bytes_left: u64,
    /// Groups that are known to differ, and are still to be compared; `null` while nothing moves.
    groups_left: Option<u64>,
    /// What has come since it began.
    bytes_moved: u64,
    bytes_s: u64,
    /// `null`: not known.
    left_s: Option<u64>,
    /// Percent of the pool's room on each target.
    fill: Spread,
    fill_then: Spread,
    /// What targets have, percent of what is their share: fill over weight, the same everywhere once what is there lies as shares say.
    of_share: Spread,
    of_share_then: Spread,
    /// Of targets' scores; a pool's room is taken when it is made, so what moves in it does not change them. `null`: none is known.
    scores: Option<Spread>,
    /// Targets that gave no answer.
    silent: Vec<u32>,
    targets: Vec<TargetPart>,
}

/// What a target has of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    used_bytes: u64,
    total_bytes: u64,
}

/// The epoch that data move to, or would.
fn goal(info: &PoolInfo) -> u8 {
    let (map, newest) = (&info.map, newest(&info.map));
    match state(info) {
        State::Moving => map.next_balanced,
        State::Wanted => info.balance_wanted,
        State::Even | State::Due => newest,
    }
}

fn newest(map: &PoolMap) -> u8 {
    map.placements.last().map_or(0, |set| set.epoch)
}

fn state(info: &PoolInfo) -> State {
    let map = &info.map;
    if map.next.is_some() && map.next_balanced != map.balanced {
        State::Moving
    } else if info.balance_wanted > map.balanced {
        State::Wanted
    } else if newest(map) > map.balanced {
        State::Due
    } else {
        State::Even
    }
}

/// Shares of targets in a placement epoch, of 1. Others have those of who was drained.
fn shares(map: &PoolMap, epoch: u8) -> BTreeMap<TargetId, f64> {
    let set = map.placements.iter().find(|set| set.epoch == epoch);
    let all = set.map_or(&[][..], |set| &set.weights).iter();
    let weights = all.filter(|(target, _)| !placement::has_given_all(*target, map));
    let whole: f64 = weights.clone().map(|(_, weight)| f64::from(*weight)).sum();
    let share = |weight: u32| f64::from(weight) / whole.max(1.0);
    weights.map(|(target, weight)| (*target, share(*weight))).collect()
}

/// What each target has and will have. `on_the_way`: bytes that some have and others still have, too.
fn parts(
    info: &PoolInfo,
    held: &BTreeMap<TargetId, Held>,
    scores: &BTreeMap<TargetId, u64>,
    on_the_way: u64,
) -> Vec<TargetPart> {
    let map = &info.map;
    let (now, then) = (shares(map, map.balanced), shares(map, goal(info)));
    let is_even = state(info) == State::Even;
    let all: u64 = held.values().map(|held| held.used_bytes).sum();
    let all = all.saturating_sub(on_the_way) as f64;
    let percent = |part: u64, of: u64| part as f64 * 100.0 / of.max(1) as f64;
    let part = |(&target, held): (&TargetId, &Held)| {
        let share = |of: &BTreeMap<TargetId, f64>| of.get(&target).copied().unwrap_or(0.0);
        let used_bytes_then = match is_even {
            true => held.used_bytes,
            false => (all * share(&then)) as u64,
        };
        let whole = Some(all * share(&then)).filter(|whole| *whole >= 1.0);
        let of_share = |bytes: u64| whole.map(|whole| bytes as f64 * 100.0 / whole);
        TargetPart {
            target: target.0,
            rank: map.target(target).map(|target| target.rank.0),
            share_percent: share(&now) * 100.0,
            share_percent_then: share(&then) * 100.0,
            used_bytes: held.used_bytes,
            used_bytes_then,
            fill_percent: percent(held.used_bytes, held.total_bytes),
            fill_percent_then: percent(used_bytes_then, held.total_bytes),
            of_share_percent: of_share(held.used_bytes),
            of_share_percent_then: of_share(used_bytes_then),
            score: scores.get(&target).copied(),
        }
    };
    held.iter().map(part).collect()
}

/// Why nothing moves, where something is to.
fn waits(info: &PoolInfo, is_stopped: bool) -> Option<String> {
    let label = &info.label;
    match state(info) {
        State::Even | State::Moving => None,
        State::Due if is_stopped => {
            Some(format!("it was stopped; 'azekura pool balance start {label}' begins it"))
        }
        State::Due => Some(format!("'azekura pool balance start {label}' begins it")),
        State::Wanted if info.is_rebuild_stopped => Some(format!(
            "all that moves was stopped; 'azekura pool rebuild start {label}' lets it go on"
        )),
        State::Wanted => {
            let others = RebuildReport::of(&info.map).line();
            Some(others.map_or("it begins in a moment".into(), |line| {
                format!("targets are missing, or come and go: {line}")
            }))
        }
    }
}

fn look(session: &Session, pool: &str) -> Result<BalanceStatus> {
    let info = super::info(session, pool)?;
    let subject = Subject::Pool(Name::Uuid(info.uuid));
    let ControlReply::Props(props) = props::run(session, ControlRequest::GetProps { subject })?
    else {
        return Err(wrong_reply());
    };
    let is = |name: &str, value: &str| props.get(name).is_some_and(|is| is == value);
    let opened = session.open_pool(&Name::Uuid(info.uuid), OpenMode::ReadOnly)?;
    let (space, stats) = opened.client().block_on(async {
        let space = opened.query().await?;
        Ok::<_, types::Error>((space, opened.store_stats().await?))
    })?;
    let mut held = BTreeMap::new();
    let mut silent = Vec::new();
    for of in &space.targets {
        match of.stat {
            Some(stat) => {
                let total_bytes = stat.scm_bytes + stat.nvme_bytes;
                held.insert(of.target, Held { used_bytes: stat.used_bytes(), total_bytes });
            }
            None => silent.push(of.target.0),
        }
    }
    let score = |(target, stat): &(TargetId, Option<wire::store::StoreStat>)| {
        let measures = TargetMeasures::of(*target, 0, &stat.as_ref()?.standing());
        Some((*target, measures.score()?))
    };
    let scores = stats.iter().filter_map(score).collect();
    let state = state(&info);
    let is_moving = state == State::Moving;
    let members: Vec<TargetMembers> = stats.iter().filter_map(TargetMembers::of).collect();
    let members: Vec<&TargetMembers> =
        members.iter().filter(|of| is_moving && of.is_busy()).collect();
    let bytes_moved = members.iter().map(|of| of.bytes_mended()).sum();
    let left: Option<Vec<u64>> = members.iter().map(|of| of.left_ms()).collect();
    let targets = parts(&info, &held, &scores, bytes_moved);
    let scored: Vec<f64> = targets.iter().filter_map(|of| of.score).map(|of| of as f64).collect();
    let missing = |of: &TargetPart| of.used_bytes_then.saturating_sub(of.used_bytes);
    let is_stopped = is("balance_stopped", "yes");
    Ok(BalanceStatus {
        state,
        is_stopped,
        is_auto: is("balance", "auto"),
        waits: waits(&info, is_stopped),
        balanced_epoch: info.map.balanced,
        wanted_epoch: info.balance_wanted.max(info.map.balanced),
        newest_epoch: newest(&info.map),
        bytes_left: targets.iter().map(missing).sum(),
        groups_left: is_moving.then(|| members.iter().map(|of| of.groups_left()).sum()),
        bytes_moved,
        bytes_s: members.iter().map(|of| of.bytes_s()).sum(),
        left_s: left.and_then(|left| left.into_iter().max()).map(|ms| ms.div_ceil(1000)),
        fill: Spread::of(targets.iter().map(|of| of.fill_percent)),
        fill_then: Spread::of(targets.iter().map(|of| of.fill_percent_then)),
        of_share: Spread::of(targets.iter().filter_map(|of| of.of_share_percent)),
        of_share_then: Spread::of(targets.iter().filter_map(|of| of.of_share_percent_then)),
        scores: (!scored.is_empty()).then(|| Spread::of(scored.iter().copied())),
        silent,
        targets,
        pool: info.label,
    })
}

/// Runs the command.
pub fn run(session: &Session, pool: &str, wait: bool) -> Outcome {
    let mut seen = look(session, pool)?;
    let progress = spinner(wait && session.out.shows_progress());
    while wait && matches!(seen.state, State::Wanted | State::Moving) {
        progress.set_message(moves_line(&seen));
        progress.tick();
        std::thread::sleep(LOOK_PAUSE);
        seen = look(session, pool)?;
    }
    progress.finish_and_clear();
    session.out.show(&seen, |out| write(&seen, out))
}

fn moves_line(of: &BalanceStatus) -> String {
    let bytes = size::format(of.bytes_left);
    match of.state {
        State::Even => "nothing: all targets have their share".into(),
        State::Due | State::Wanted => format!("about {bytes} would move"),
        State::Moving => {
            let groups = of.groups_left.unwrap_or(0);
            let left = of.left_s.map(|left_s| format!(", about {} left", time_text(left_s)));
            format!(
                "about {bytes} and {groups} groups are left, {} have come, {} a second{}",
                size::format(of.bytes_moved),
                size::format(of.bytes_s),
                left.unwrap_or_default()
            )
        }
    }
}

fn write(of: &BalanceStatus, out: &mut dyn Write) -> std::io::Result<()> {
    let state = match of.state {
        State::Even => "even",
        State::Due => "due",
        State::Wanted => "wanted",
        State::Moving => "moving",
    };
    let how = if of.is_auto { "by itself" } else { "when an administrator says so" };
    let stopped = if of.is_stopped { ", stopped" } else { "" };
    let spread = |of: Spread| format!("{:.1} % to {:.1} %", of.least, of.most);
    let mut pairs = vec![
        ("Pool", of.pool.clone()),
        ("Balance", format!("{state}{stopped} ({how})")),
        ("Moves", moves_line(of)),
        ("Fill", format!("{} now, {} then", spread(of.fill), spread(of.fill_then))),
        (
            "Of their share",
            format!("{} now, {} then", spread(of.of_share), spread(of.of_share_then)),
        ),
    ];
    let scores = |of: Spread| format!("{:.3e} to {:.3e}", of.least, of.most);
    pairs.extend(of.scores.map(|of| ("Scores", scores(of))));
    pairs.extend(of.waits.clone().map(|why| ("Waits", why)));
    if !of.silent.is_empty() {
        pairs.push(("No answer", super::rebuild::named(&of.silent)));
    }
    write_pairs(out, &pairs)?;
    writeln!(out)?;
    let mut table = Table::new(&[
        ">TARGET",
        ">RANK",
        ">SHARE",
        ">THEN",
        ">USED",
        ">THEN",
        ">FILL",
        ">THEN",
        ">OF SHARE",
        ">THEN",
        ">SCORE",
    ]);
    for part in &of.targets {
        let percent = |of: f64| format!("{of:.1} %");
        let or_none = |of: Option<f64>| of.map_or("-".into(), percent);
        table.row(vec![
            part.target.to_string(),
            part.rank.map_or("-".into(), |rank| rank.to_string()),
            percent(part.share_percent),
            percent(part.share_percent_then),
            size::format(part.used_bytes),
            size::format(part.used_bytes_then),
            percent(part.fill_percent),
            percent(part.fill_percent_then),
            or_none(part.of_share_percent),
            or_none(part.of_share_percent_then),
            part.score.map_or("-".into(), |score| format!("{:.3e}", score as f64)),
        ]);
    }
    table.write(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Durability, PlacementRule, PoolId};
    use uuid::Uuid;
    use wire::map::PlacementSet;

    const GIB: u64 = 1 << 30;

    /// Two targets, and a third one since epoch 1.
    fn pool() -> PoolInfo {
        let set = |epoch: u8, weights: &[u32]| PlacementSet {
            epoch,
            weights: (0..).map(TargetId).zip(weights.iter().copied()).collect(),
        };
        PoolInfo {
            id: PoolId(1),
            uuid: Uuid::nil(),
            label: "tank".into(),
            durability: Durability::Wal,
            placement: PlacementRule::Equal,
            scm_bytes: 0,
            nvme_bytes: 0,
            cont_count: 0,
            handle_count: 0,
            map: PoolMap {
                pool: PoolId(1),
                version: 1,
                engines: Vec::new(),
                targets: Vec::new(),
                placements: vec![set(0, &[10, 10]), set(1, &[10, 10, 20])],
                outs: Vec::new(),
                next: None,
                balanced: 0,
                next_balanced: 0,
                passed: Vec::new(),
                next_passed: Vec::new(),
            },
            aims: Vec::new(),
            is_rebuild_stopped: false,
            balance_wanted: 0,
            is_move_due: false,
        }
    }

    fn parts_of(of: &PoolInfo, bytes: [u64; 3], on_the_way: u64) -> Vec<TargetPart> {
        let held = |used_bytes| Held { used_bytes, total_bytes: 8 * GIB };
        let held = (0..).map(TargetId).zip(bytes.map(held)).collect();
        parts(of, &held, &BTreeMap::new(), on_the_way)
    }

    fn used(of: &PoolInfo, bytes: [u64; 3], on_the_way: u64) -> Vec<(u64, f64)> {
        let parts = parts_of(of, bytes, on_the_way);
        parts.iter().map(|part| (part.used_bytes_then, part.fill_percent_then)).collect()
    }

    /// Fill alone says nothing where shares differ: a target with half of the share is even with half of the fill.
    #[test]
    fn how_even_it_is_is_told_by_weight() {
        let mut info = pool();
        let of_share = |info: &PoolInfo, bytes| {
            let parts = parts_of(info, bytes, 0);
            let now = parts.iter().map(|part| part.of_share_percent).collect::<Vec<_>>();
            let then = Spread::of(parts.iter().filter_map(|part| part.of_share_percent_then));
            (now, then)
        };
        let even = Spread { least: 100.0, most: 100.0, spread: 0.0 };
        let some = |of: [f64; 3]| of.map(Some).to_vec();
        let (now, then) = of_share(&info, [2 * GIB, 2 * GIB, 0]);
        assert_eq!((now, then), (some([200.0, 200.0, 0.0]), even));
        info.map.balanced = 1;
        let (now, then) = of_share(&info, [GIB, GIB, 2 * GIB]);
        assert_eq!((now, then), (some([100.0; 3]), even));
        // It is as even as chance has made it, and stays so.
        let (now, then) = of_share(&info, [GIB, 2 * GIB, GIB]);
        assert_eq!((now, then.spread), (some([100.0, 200.0, 50.0]), 150.0));
        // What has no share, and a pool with nothing in it, have no part of it.
        info.map.placements[1].weights.pop();
        let (now, _) = of_share(&info, [GIB, GIB, GIB]);
        assert_eq!(now[2], None);
        assert_eq!(of_share(&info, [0; 3]), (vec![None; 3], Spread::default()));
    }

    #[test]
    fn what_is_to_be_is_told_by_shares() {
        let mut info = pool();
        assert_eq!(state(&info), State::Due);
        assert!(waits(&info, false).unwrap().contains("balance start tank"));
        assert!(waits(&info, true).unwrap().contains("stopped"));
        let then = [(GIB, 12.5), (GIB, 12.5), (2 * GIB, 25.0)];
        assert_eq!(used(&info, [2 * GIB, 2 * GIB, 0], 0), then);
        info.balance_wanted = 1;
        assert_eq!(state(&info), State::Wanted);
        info.is_rebuild_stopped = true;
        assert!(waits(&info, false).unwrap().contains("rebuild start tank"));
        info.is_rebuild_stopped = false;
        assert!(waits(&info, false).unwrap().contains("in a moment"));
        // Who gives has still what another one has got already.
        (info.map.next, info.map.next_balanced) = (Some(Vec::new()), 1);
        assert_eq!((state(&info), waits(&info, false)), (State::Moving, None));
        assert_eq!(used(&info, [2 * GIB, 2 * GIB, GIB], GIB), then);
        // Something else moves, and this does not.
        info.map.next_balanced = 0;
        assert_eq!(state(&info), State::Wanted);
        (info.map.next, info.map.balanced, info.map.next_balanced) = (None, 1, 1);
        assert_eq!(state(&info), State::Even);
        let as_it_is = [(GIB, 12.5), (3 * GIB, 37.5), (0, 0.0)];
        assert_eq!(used(&info, [GIB, 3 * GIB, 0], 0), as_it_is);
    }
}
