//! Fault domains: how much two targets share, and choosing a group's members apart.
//!
//! The distance of two targets is told by their *shared depth*: the number of levels of
//! (domain path, engine) they have in common. A group takes, for each next member, a target
//! whose greatest shared depth with the members so far is least. While some level has at least
//! as many domains as a group has members, no two members share a domain of that level: with k
//! members chosen, at least one domain is untouched. Where there are fewer, domains get members
//! in turn, so that the loss of one takes as few of a group as can be: six members on three
//! engines are two on each.

use crate::draw::Lot;
use types::{Code, Error, Rank, Result, TargetId};
use wire::map::{EngineInfo, PoolMap};

/// The depth of targets that share their engine: more than any levels of a path, for paths may differ in length.
const ENGINE_DEPTH: usize = usize::MAX;

/// Levels that are counted by [`Place::nearness`], and bits of each count: groups have at most 19 members.
const LEVELS: usize = 8;
const COUNT_BITS: usize = 8;

/// Where one target is: its engine's domain path, then the engine itself.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    path: &'a [String],
    rank: Rank,
}

impl<'a> Place<'a> {
    /// That of an engine's targets.
    pub fn of(engine: &'a EngineInfo) -> Place<'a> {
        Place { path: &engine.domain, rank: engine.rank }
    }

    pub fn shared_depth(&self, other: &Place<'_>) -> usize {
        if self.rank == other.rank {
            return ENGINE_DEPTH;
        }
        self.path.iter().zip(other.path).take_while(|(a, b)| a == b).count()
    }

    /// How near a target is to others; of two the smaller one is farther away. The greatest depth shared with one
    /// of them, and then, from the widest level down, with how many of them each level is shared.
    pub fn nearness<'b>(&self, others: impl Iterator<Item = &'b Place<'b>>) -> (usize, u64) {
        let (mut deepest, mut shared_by) = (0, 0);
        for depth in others.map(|other| self.shared_depth(other)) {
            deepest = deepest.max(depth);
            for level in 0..depth.min(LEVELS) {
                shared_by += 1 << (COUNT_BITS * (LEVELS - 1 - level));
            }
        }
        (deepest, shared_by)
    }
}

struct Candidate<'a> {
    target: TargetId,
    place: Place<'a>,
    used: u32,
}

/// Fills `group_count` groups of `width` members from `lots`, smallest lot first, calling `emit`
/// for each member in order.
///
/// Separation comes first; then targets that the object uses least; then the order of the lots.
/// `lots` must hold at least `width` targets. Fails with `Inval` when the map does not say where
/// one of them is.
pub fn spread(
    lots: &[Lot],
    width: usize,
    group_count: usize,
    map: &PoolMap,
    mut emit: impl FnMut(TargetId),
) -> Result<()> {
    assert!(lots.len() >= width, "the caller checks that a group fits the pool");
    let mut candidates = Vec::with_capacity(lots.len());
    for lot in lots {
        let engine = map.engine_of(lot.target).ok_or_else(|| {
            Error::new(
                Code::Inval,
                format!(
                    "pool map {} places objects on target {} but names no engine for it",
                    map.version, lot.target
                ),
            )
        })?;
        candidates.push(Candidate { target: lot.target, place: Place::of(engine), used: 0 });
    }
    // Nobody can share less than what all targets share, so a search may stop there.
    let common = |place: &Place<'_>| place.shared_depth(&candidates[0].place);
    let depth_floor = candidates.iter().map(|one| common(&one.place)).min().unwrap_or(0);

    let mut members: Vec<usize> = Vec::with_capacity(width);
    let mut first_unused = 0;
    for _ in 0..group_count {
        members.clear();
        for _ in 0..width {
            let next = next(&candidates, &members, depth_floor, first_unused);
            candidates[next].used += 1;
            first_unused +=
                candidates[first_unused..].iter().take_while(|one| one.used > 0).count();
            members.push(next);
            emit(candidates[next].target);
        }
    }
    Ok(())
}

/// The next member. Most often it is the first unused one that shares nothing, of which there are few before it: looking at
/// all targets for each member of all groups would take the square of their number.
fn next(
    candidates: &[Candidate<'_>],
    members: &[usize],
    depth_floor: usize,
    first_unused: usize,
) -> usize {
    let unused = candidates.iter().enumerate().skip(first_unused).filter(|(_, one)| one.used == 0);
    let mut far = unused.filter(|(_, candidate)| {
        let others = members.iter().map(|&member| &candidates[member].place);
        candidate.place.nearness(others).0 <= depth_floor
    });
    far.next().map_or_else(|| best(candidates, members), |(at, _)| at)
}

/// The candidate that comes first of all.
fn best(candidates: &[Candidate<'_>], members: &[usize]) -> usize {
    let all = candidates.iter().enumerate().filter(|(at, _)| !members.contains(at));
    let ranked = all.map(|(at, candidate)| {
        let others = members.iter().map(|&member| &candidates[member].place);
        let (shared, shared_by) = candidate.place.nearness(others);
        (shared, shared_by, candidate.used, at)
    });
    ranked.min().expect("a group has fewer members than the pool has targets").3
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use types::PoolId;
    use wire::map::PoolMap;

    /// Engines of racks, a few targets each.
    fn map_of(engines: &[(u8, u32)]) -> PoolMap {
        let mut map = PoolMap {
            pool: PoolId(1),
            version: 1,
            engines: Vec::new(),
            targets: Vec::new(),
            placements: Vec::new(),
            outs: Vec::new(),
            next: None,
            balanced: 0,
            next_balanced: 0,
            passed: Vec::new(),
            next_passed: Vec::new(),
        };
        for (at, (rack, targets)) in engines.iter().enumerate() {
            let rank = Rank(at as u32);
            map.engines.push(EngineInfo {
                rank,
                tcp: String::new(),
                unix: String::new(),
                host: String::new(),
                domain: vec![rack.to_string()],
            });
            for _ in 0..*targets {
                map.targets.push(wire::map::TargetInfo {
                    id: TargetId(map.targets.len() as u32),
                    rank,
                    state: wire::map::TargetState::Up,
                    since: 0,
                    reason: None,
                    left: 0,
                    incarnation: 0,
                });
            }
        }
        map
    }

    proptest! {
        #[test]
        fn a_short_look_finds_what_a_long_one_does(
            engines in prop::collection::vec((0u8..4, 1u32..4), 1..10),
            width in 1usize..6,
            key: u64,
        ) {
            let map = map_of(&engines);
            let weights = map.targets.iter().map(|target| (target.id, 65_536)).collect();
            let set = wire::map::PlacementSet { epoch: 0, weights };
            let mut lots: Vec<Lot> = crate::draw::lots(key, &set).collect();
            lots.sort_unstable();
            prop_assume!(lots.len() >= width);
            let count = lots.len() / width;
            let mut found = Vec::new();
            spread(&lots, width, count, &map, |target| found.push(target)).unwrap();

            let mut candidates: Vec<Candidate<'_>> = Vec::new();
            for lot in &lots {
                let place = Place::of(map.engine_of(lot.target).unwrap());
                candidates.push(Candidate { target: lot.target, place, used: 0 });
            }
            let mut expected = Vec::new();
            for _ in 0..count {
                let mut members = Vec::new();
                for _ in 0..width {
                    let next = best(&candidates, &members);
                    candidates[next].used += 1;
                    members.push(next);
                    expected.push(candidates[next].target);
                }
            }
            prop_assert_eq!(found, expected);
        }
    }
}
