//! Fault domains: how much two targets share, and choosing a group's members apart.
//!
//! The distance of two targets is told by their *shared depth*: the number of levels of
//! (domain path, engine) they have in common. A group takes, for each next member, a target
//! whose greatest shared depth with the members so far is least. While some level has at least
//! as many domains as a group has members, no two members share a domain of that level: with k
//! members chosen, at least one domain is untouched.

use crate::draw::Lot;
use types::{Code, Error, Rank, Result, TargetId};
use wire::map::{EngineInfo, PoolMap};

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
        let shared = self.path.iter().zip(other.path).take_while(|(a, b)| a == b).count();
        shared + (self.rank == other.rank) as usize
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
    for _ in 0..group_count {
        members.clear();
        for _ in 0..width {
            let next = best(&candidates, &members, depth_floor);
            candidates[next].used += 1;
            members.push(next);
            emit(candidates[next].target);
        }
    }
    Ok(())
}

fn best(candidates: &[Candidate<'_>], members: &[usize], depth_floor: usize) -> usize {
    let mut best: Option<((usize, u32), usize)> = None;
    for (at, candidate) in candidates.iter().enumerate() {
        if members.contains(&at) {
            continue;
        }
        let shared = members
            .iter()
            .map(|&member| candidate.place.shared_depth(&candidates[member].place))
            .max()
            .unwrap_or(0);
        let rank = (shared, candidate.used);
        if rank.0 <= depth_floor && rank.1 == 0 {
            return at;
        }
        if best.is_none_or(|(least, _)| rank < least) {
            best = Some((rank, at));
        }
    }
    best.expect("a group has fewer members than the pool has targets").1
}
