//! Targets that stand in for others.
//!
//! A target that is *out* keeps its lots: nothing else moves when it goes or comes back. In each of its groups another
//! target takes its place, behind the members that are left, for these have led the group or followed longer.
//! Which one depends on the members that were drawn, not on the object: objects that share all members
//! go on doing so. Those that went first are replaced first, so what was chosen for them stays chosen when others go.
//!
//! Groups of one member are given to others only when that one is drained: it has what is to move. Which one gets a group
//! depends on the object, too: else all that is alone on a target would have to fit on one other.
//!
//! A target that had no room for what the others had of those that went in a round is passed over for that round
//! ([`wire::map::PassedSpare`]): the next one stands in.
//!
//! A target stands in only where it keeps the group's members as far apart as they were. Where there is none, or all
//! members went at the same time and nobody has what the group held, the place stays with the one that is out.
//! What is drained is taken away, so that somebody gets its place even where too few domains are left: whoever is farthest
//! from the others, as when groups are made ([`crate::domain`]). The map says so for each target that is drained
//! ([`wire::map::PassedSpare`]): for those of older versions, which did not, nothing changes.

use crate::domain::Place;
use crate::share::Decides;
use crate::{draw, share};
use smallvec::SmallVec;
use types::{DkeyKind, Oid, TargetId, hash};
use wire::map::{OutTarget, PassedSpare, PlacementSet, PoolMap};

/// Groups whose members are not, or are to be others than those that were drawn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Changed {
    /// As they would be if no target were out, group by group.
    pub placed: SmallVec<[TargetId; 8]>,
    /// As they are.
    pub members: SmallVec<[TargetId; 8]>,
    /// Group, place that it is to have there, and target.
    pub joiners: SmallVec<[(u32, u8, TargetId); 4]>,
}

impl Changed {
    /// What has become of the groups of `width` members that were drawn for an object; `None` when none of them is touched.
    /// With `keeps_places` who stands in takes the very place of the one that is out.
    pub fn of(
        oid: Oid,
        drawn: &[TargetId],
        width: usize,
        keeps_places: bool,
        map: &PoolMap,
    ) -> Option<Box<Changed>> {
        let (object, epoch) = (oid.placement_key(), oid.placement_epoch());
        let is_older = epoch < map.balanced.max(map.next_balanced);
        let mut outs = map.outs.iter().chain(map.next.iter().flatten());
        let is_touched =
            |out: &OutTarget| (width > 1 || out.is_drained) && drawn.contains(&out.target);
        if !is_older && !outs.any(is_touched) {
            return None;
        }
        let mut changed =
            Changed { placed: SmallVec::new(), members: SmallVec::new(), joiners: SmallVec::new() };
        let now = share::shifts(epoch, map.balanced, map);
        let then = map.next.as_ref().map(|_| share::shifts(epoch, map.next_balanced, map));
        for (group, drawn) in drawn.chunks_exact(width).enumerate() {
            let placed = share::shared(drawn, decides(oid, group, drawn), &now, map);
            let key = key_of(object, group, &placed);
            let members = replaced(&placed, key, keeps_places, (&map.outs, &map.passed), map);
            if let (Some(next), Some(then)) = (&map.next, &then) {
                let later = share::shared(drawn, decides(oid, group, drawn), then, map);
                let key = key_of(object, group, &later);
                let later = replaced(&later, key, keeps_places, (next, &map.next_passed), map);
                let has_its_place = |at: usize, target: &TargetId| match keeps_places {
                    // A member comes to another place, too.
                    true => members[at] == *target,
                    false => members.contains(target),
                };
                let all = later.iter().enumerate();
                let joins = all.filter(|(at, target)| !has_its_place(*at, target));
                changed.joiners.extend(joins.map(|(at, target)| (group as u32, at as u8, *target)));
            }
            changed.placed.extend(placed);
            changed.members.extend(members);
        }
        Some(Box::new(changed))
    }
}

/// What decides for a group: its members, or the object where there is one.
fn key_of(object: u64, group: usize, members: &[TargetId]) -> u64 {
    match members.len() {
        1 => hash::mix2(object, group as u64),
        width => members.iter().fold(width as u64, |key, target| hash::mix2(key, target.0.into())),
    }
}

/// What decides which places of a group are given to targets whose share has grown. Names, which are no numbers, have their files beside
/// them, in the first group: both go by their members. Nothing else has to be where the rest of an array is.
fn decides(oid: Oid, group: usize, members: &[TargetId]) -> Decides {
    let object = oid.placement_key();
    let key = key_of(object, group, members);
    if members.len() == 1 {
        return Decides::Object(key, oid.lo);
    }
    if group > 0 && oid.dkey_kind() == DkeyKind::U64 {
        let of_group = hash::mix2(object, group as u64);
        return Decides::Object(hash::mix2(key, of_group), oid.lo);
    }
    Decides::Members(key)
}

/// The members of a group of which these were drawn, when those targets are out, and those others are passed over. `key` decides
/// among the rest.
fn replaced(
    drawn: &[TargetId],
    key: u64,
    keeps_places: bool,
    (outs, passed): (&[OutTarget], &[PassedSpare]),
    map: &PoolMap,
) -> SmallVec<[TargetId; 6]> {
    let mut members: SmallVec<[TargetId; 6]> = SmallVec::from_slice(drawn);
    let mut seen = 0;
    for round in outs.chunk_by(|a, b| a.round == b.round) {
        seen += round.len();
        // Of a group whose members all go nobody has what it held, but for those that are drained.
        let goes =
            |target: &TargetId| round.iter().any(|out| out.target == *target && !out.is_drained);
        if members.iter().all(goes) {
            continue;
        }
        for out in round {
            let Some(at) = members.iter().position(|member| *member == out.target) else {
                continue;
            };
            if let Some(spare) = choose(&members, at, key, out, (&outs[..seen], passed), map) {
                if keeps_places {
                    members[at] = spare;
                } else {
                    members.remove(at);
                    members.push(spare);
                }
            }
        }
    }
    members
}

/// Who stands in for the member at `at`: of those that share least with the other members, and not more than it does unless it
/// is passed over itself, the one with the smallest lot.
fn choose(
    members: &[TargetId],
    at: usize,
    key: u64,
    out: &OutTarget,
    (outs, passed): (&[OutTarget], &[PassedSpare]),
    map: &PoolMap,
) -> Option<TargetId> {
    let place = |target: TargetId| map.engine_of(target).map(Place::of);
    let others = members.iter().enumerate().filter(|(other, _)| *other != at);
    let others: Option<SmallVec<[Place<'_>; 6]>> =
        others.map(|(_, target)| place(*target)).collect();
    let others = others?;
    let nearness = |target: TargetId| Some(place(target)?.nearness(others.iter()));
    let shared_max = nearness(members[at])?.0;
    let is_passed =
        |target: TargetId| passed.binary_search(&PassedSpare { round: out.round, target }).is_ok();
    let is_free = |target: TargetId| {
        !members.contains(&target)
            && !outs.iter().any(|out| out.target == target)
            && !is_passed(target)
    };
    let leaves_anyway = is_passed(out.target);
    let best = |set: &PlacementSet| {
        let lots = draw::lots(key, set).filter(|lot| is_free(lot.target));
        let ranked = lots.filter_map(|lot| Some((nearness(lot.target)?, lot)));
        let ranked = ranked.filter(|((depth, _), _)| leaves_anyway || *depth <= shared_max);
        ranked.min().map(|(_, lot)| lot.target)
    };
    // Those that were added since have the places only of what is drained, and that nobody else could have: such groups were made later.
    let last = if leaves_anyway { u8::MAX } else { out.epoch };
    let mut sets = map.placements.iter().filter(|set| (out.epoch..=last).contains(&set.epoch));
    sets.find_map(best)
}
