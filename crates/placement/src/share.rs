//! What targets that were added take over of objects that are older than they are.
//!
//! A pool is *balanced* up to a placement epoch ([`PoolMap::balanced`]) when objects of earlier epochs are placed as if the targets added
//! until then had been there: each member of a group gives its place to one of those that an epoch added with the
//! chance that these have among all targets of that epoch, by weight. Nothing else moves, groups keep their number, and keys their groups.
//!
//! Which places are given depends on the members that were drawn, or for groups of one member on the object: what
//! shares all members goes on doing so.

use crate::domain::Place;
use crate::draw;
use smallvec::SmallVec;
use types::{TargetId, hash};
use wire::map::{PlacementSet, PoolMap};

/// A placement epoch that added targets.
pub(crate) struct Addition {
    /// The targets that are new in it, with their weights there.
    added: PlacementSet,
    /// Of what all targets of the epoch weigh, those that are new: as a fraction of 2^64.
    share: u64,
}

/// What a pool that is balanced from `after` up to `until` has added meanwhile, oldest first.
pub(crate) fn additions(after: u8, until: u8, map: &PoolMap) -> SmallVec<[Addition; 2]> {
    let mut all = SmallVec::new();
    for pair in map.placements.windows(2) {
        let [older, set] = pair else { continue };
        if set.epoch <= after || set.epoch > until {
            continue;
        }
        // Both are in the order of targets.
        let is_new = |target: TargetId| {
            older.weights.binary_search_by_key(&target, |(known, _)| *known).is_err()
        };
        let weights: Vec<(TargetId, u32)> =
            set.weights.iter().filter(|(id, weight)| *weight > 0 && is_new(*id)).copied().collect();
        let sum =
            |of: &[(TargetId, u32)]| of.iter().map(|(_, weight)| *weight as u128).sum::<u128>();
        let (new, whole) = (sum(&weights), sum(&set.weights));
        if new > 0 {
            let share = ((new << 64) / whole.max(1)).min(u64::MAX as u128) as u64;
            all.push(Addition { added: PlacementSet { epoch: set.epoch, weights }, share });
        }
    }
    all
}

/// The members of a group of which these were drawn, when targets that were added have their share. `key` decides.
pub(crate) fn shared(
    drawn: &[TargetId],
    key: u64,
    additions: &[Addition],
    map: &PoolMap,
) -> SmallVec<[TargetId; 8]> {
    let mut members: SmallVec<[TargetId; 8]> = SmallVec::from_slice(drawn);
    for Addition { added, share } in additions {
        for at in 0..members.len() {
            let lot = hash::mix2(hash::mix2(key, members[at].0.into()), added.epoch.into());
            if hash::mix(lot) >= *share {
                continue;
            }
            let Some(winner) = draw::winner(hash::mix2(lot, 1), added) else { continue };
            if !members.contains(&winner) && is_as_far(&members, at, winner, map) {
                members[at] = winner;
            }
        }
    }
    members
}

/// True when a target shares no more of the fault domains with the other members than the one at `at` does.
fn is_as_far(members: &[TargetId], at: usize, target: TargetId, map: &PoolMap) -> bool {
    if members.len() == 1 {
        return true;
    }
    let place = |target: TargetId| map.engine_of(target).map(Place::of);
    let depth = |target: TargetId| {
        let own = place(target)?;
        let others = members.iter().enumerate().filter(|(other, _)| *other != at);
        let others = others.filter_map(|(_, other)| Some(own.shared_depth(&place(*other)?)));
        Some(others.max().unwrap_or(0))
    };
    match (depth(target), depth(members[at])) {
        (Some(new), Some(old)) => new <= old,
        _ => false,
    }
}
