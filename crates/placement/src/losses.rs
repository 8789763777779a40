//! What losses mean for objects: how many copies are left of the worst group that may exist.
//!
//! No object is looked at. A group may consist of any targets that [`crate::layout`] keeps apart, so what holds for the worst
//! choice of them holds for all objects.

use crate::layout::{follows, is_live};
use std::collections::{BTreeMap, BTreeSet};
use types::{Rank, TargetId};
use wire::map::{OutTarget, PoolMap, TargetInfo};

/// The worst group of so many members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Losses {
    /// Members that have all and answer.
    pub copies_left: usize,
    /// A group may have nobody who answers for it.
    pub is_unavailable: bool,
}

/// What is left of groups of `width` members, at least one, when only engines that `answers` names do so.
pub fn losses(width: usize, map: &PoolMap, answers: impl Fn(Rank) -> bool) -> Losses {
    let placed: Vec<&TargetInfo> =
        map.targets.iter().filter(|target| is_placed_on(target.id, map)).collect();
    if width == 1 {
        let mut placed = placed.into_iter().filter(|target| !has_given_all(target.id, map));
        let serves = |target: &&TargetInfo| target.holds_its_part() && answers(target.rank);
        let is_unavailable = !placed.all(|target| serves(&target));
        return Losses { copies_left: usize::from(!is_unavailable), is_unavailable };
    }
    let placed = without_replaced(width, placed, map);
    let apart = domains(width, &placed, map).1;
    let is_missing = |target: &&&TargetInfo| !is_live(target.id, map) || !answers(target.rank);
    let missing: Vec<&TargetInfo> = placed.iter().filter(is_missing).copied().collect();
    // A group in which `last` is the one who would know most, and cannot be asked.
    let is_lost_with = |last: &TargetInfo| {
        if follows(last.id, map) && answers(last.rank) {
            return false;
        }
        let knows_no_more = |other: &&&TargetInfo| match (rank_of(other, map), rank_of(last, map)) {
            (None, _) => true,
            (Some(of), Some(least)) if of == least => {
                !(follows(other.id, map) && answers(other.rank))
            }
            (Some(of), Some(least)) => of < least,
            (Some(_), None) => false,
        };
        let others = missing.iter().filter(knows_no_more);
        let mut found: Vec<usize> = others.map(|other| apart[&other.id]).collect();
        found.sort_unstable();
        found.dedup();
        found.len() >= width
    };
    let mut lost: Vec<usize> = missing.iter().map(|target| apart[&target.id]).collect();
    lost.sort_unstable();
    lost.dedup();
    Losses {
        copies_left: width.saturating_sub(lost.len()),
        is_unavailable: missing.iter().any(|last| is_lost_with(last)),
    }
}

/// True when a target is in no group any more, not even in one of a single member: it was drained, and others had room for all that it held.
pub fn has_given_all(target: TargetId, map: &PoolMap) -> bool {
    let is_out = |id: TargetId| map.outs.iter().any(|out| out.target == id);
    let is_taken_over = |out: &OutTarget| {
        let is_passed = |id: TargetId| {
            map.passed.iter().any(|passed| passed.round == out.round && passed.target == id)
        };
        map.targets
            .iter()
            .any(|other| !is_out(other.id) && !is_passed(other.id) && is_placed_on(other.id, map))
    };
    // Of one that is taken back it is on its way.
    let stays_out = |out: &OutTarget| map.next.as_ref().is_none_or(|next| next.contains(out));
    let gave_all = |out: &OutTarget| out.is_drained && is_taken_over(out) && stays_out(out);
    map.outs.iter().any(|out| out.target == target && gave_all(out))
}

/// Lost targets some of whose places in groups of so many members nobody has taken, for others had no room.
pub fn lost_for_want_of_room(width: usize, map: &PoolMap) -> Vec<TargetId> {
    let is_out = |id: TargetId| map.outs.iter().any(|out| out.target == id);
    // What is drained is passed over itself, and somebody has what it gave.
    let lacks = |out: &&OutTarget| {
        let passed = map.passed.iter().filter(|passed| passed.round == out.round);
        !out.is_drained && passed.into_iter().any(|passed| !is_out(passed.target))
    };
    let lost: Vec<TargetId> = map.outs.iter().filter(lacks).map(|out| out.target).collect();
    if lost.is_empty() {
        return lost;
    }
    let with_room = PoolMap { passed: Vec::new(), ..map.clone() };
    let left = |map: &PoolMap| losses(width, map, |_| true).copies_left;
    if left(map) < left(&with_room) { lost } else { Vec::new() }
}

/// How late a member left: who leads when nobody is whole. `None`: it has nothing.
fn rank_of(target: &TargetInfo, map: &PoolMap) -> Option<u32> {
    match target.holds_its_part() {
        true if is_live(target.id, map) => Some(u32::MAX),
        true => Some(target.left),
        false => None,
    }
}

fn is_placed_on(target: TargetId, map: &PoolMap) -> bool {
    let weights = map.placements.iter().flat_map(|set| &set.weights);
    weights.clone().any(|(id, weight)| *id == target && *weight > 0)
}

/// Leaves out targets that others stand in for in all groups: in some they may have kept their places.
fn without_replaced<'a>(
    width: usize,
    mut placed: Vec<&'a TargetInfo>,
    map: &PoolMap,
) -> Vec<&'a TargetInfo> {
    for round in map.outs.chunk_by(|a, b| a.round == b.round) {
        let goes = |target: &&TargetInfo| round.iter().any(|out| out.target == target.id);
        let (going, left): (Vec<&TargetInfo>, Vec<&TargetInfo>) =
            placed.iter().copied().partition(goes);
        let (depth, apart) = domains(width, &placed, map);
        // Members of a group share no domain: of one engine that goes, each group has one at most.
        let going: BTreeSet<usize> = going.iter().map(|target| apart[&target.id]).collect();
        let has_whole_groups = going.len() >= width;
        // Of so many that have room one at least is in no place of a group, and in nobody's domain.
        let number = round.first().map_or(0, |out| out.round);
        let is_passed = |target: &&&TargetInfo| {
            map.passed.iter().any(|of| of.round == number && of.target == target.id)
        };
        let roomy: Vec<&TargetInfo> =
            left.iter().filter(|target| !is_passed(target)).copied().collect();
        let are_enough = roomy.len() >= width && domains(width, &roomy, map).0 == depth;
        if are_enough && domains(width, &left, map).0 == depth && !has_whole_groups {
            placed = left;
        }
    }
    placed
}

/// Numbers of the domains that members of groups of `width` do not share: of the widest kind of which there are enough, and how
/// deep those are.
fn domains(
    width: usize,
    placed: &[&TargetInfo],
    map: &PoolMap,
) -> (usize, BTreeMap<TargetId, usize>) {
    let path =
        |target: &TargetInfo| map.engine_of(target.id).map_or(&[][..], |engine| &engine.domain[..]);
    let depth_max = placed.iter().map(|target| path(target).len()).max().unwrap_or(0);
    for depth in 1..=depth_max + 1 {
        let mut known = BTreeMap::new();
        let mut numbers = BTreeMap::new();
        for target in placed {
            let path = path(target);
            let rank = (depth > path.len()).then_some(target.rank);
            let count = known.len();
            let number = *known.entry((&path[..depth.min(path.len())], rank)).or_insert(count);
            numbers.insert(target.id, number);
        }
        if known.len() >= width {
            return (depth, numbers);
        }
    }
    (usize::MAX, placed.iter().enumerate().map(|(at, target)| (target.id, at)).collect())
}
