//! What is different between two maps of a pool: what is sent in the place of the newer one to those who have the older.
//!
//! A map of sixteen thousand targets has half a megabyte, and most changes concern a few of them.

use crate::map::{EngineInfo, OutTarget, PassedSpare, PlacementSet, PoolMap, TargetInfo};
use serde::{Deserialize, Serialize};
use types::PoolId;

/// The way from one version of a map to a later one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MapChange {
    pub pool: PoolId,
    /// Of the map that it is made from.
    pub from: u32,
    /// Of the map that comes of it.
    pub version: u32,
    /// Engines that are new or have changed.
    pub engines: Vec<EngineInfo>,
    /// Targets that are new or have changed.
    pub targets: Vec<TargetInfo>,
    /// Placement epochs that are new or have changed.
    pub placements: Vec<PlacementSet>,
    /// All of them; these are few.
    pub outs: Vec<OutTarget>,
    pub next: Option<Vec<OutTarget>>,
    pub balanced: u8,
    pub next_balanced: u8,
    pub passed: Vec<PassedSpare>,
    pub next_passed: Vec<PassedSpare>,
}

/// Those of `now` that `before` has not, or has otherwise; `None` when it has some that `now` has not. Both are ascending by `key`.
fn changed<T: Clone + PartialEq, K: Ord>(
    before: &[T],
    now: &[T],
    key: impl Fn(&T) -> K,
) -> Option<Vec<T>> {
    let mut known = before.iter().peekable();
    let mut all = Vec::new();
    for one in now {
        match known.peek() {
            Some(old) if key(old) == key(one) => {
                if *old != one {
                    all.push(one.clone());
                }
                known.next();
            }
            _ => all.push(one.clone()),
        }
    }
    known.next().is_none().then_some(all)
}

/// The opposite.
fn merged<T: Clone, K: Ord>(before: &[T], changed: &[T], key: impl Fn(&T) -> K) -> Vec<T> {
    let mut all = before.to_vec();
    for one in changed {
        match all.binary_search_by(|known| key(known).cmp(&key(one))) {
            Ok(at) => all[at] = one.clone(),
            Err(at) => all.insert(at, one.clone()),
        }
    }
    all
}

impl PoolMap {
    /// What leads from this map to a newer one of the same pool; `None` where that is not of this kind: something left it.
    pub fn change_to(&self, newer: &PoolMap) -> Option<MapChange> {
        if self.pool != newer.pool || self.version >= newer.version {
            return None;
        }
        Some(MapChange {
            pool: self.pool,
            from: self.version,
            version: newer.version,
            engines: changed(&self.engines, &newer.engines, |engine| engine.rank)?,
            targets: changed(&self.targets, &newer.targets, |target| target.id)?,
            placements: changed(&self.placements, &newer.placements, |set| set.epoch)?,
            outs: newer.outs.clone(),
            next: newer.next.clone(),
            balanced: newer.balanced,
            next_balanced: newer.next_balanced,
            passed: newer.passed.clone(),
            next_passed: newer.next_passed.clone(),
        })
    }

    /// The map that comes of a change; `None` when that was made from another one.
    pub fn changed(&self, change: &MapChange) -> Option<PoolMap> {
        if (self.pool, self.version) != (change.pool, change.from) {
            return None;
        }
        Some(PoolMap {
            pool: self.pool,
            version: change.version,
            engines: merged(&self.engines, &change.engines, |engine| engine.rank),
            targets: merged(&self.targets, &change.targets, |target| target.id),
            placements: merged(&self.placements, &change.placements, |set| set.epoch),
            outs: change.outs.clone(),
            next: change.next.clone(),
            balanced: change.balanced,
            next_balanced: change.next_balanced,
            passed: change.passed.clone(),
            next_passed: change.next_passed.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::{DownReason, TargetState};
    use proptest::prelude::*;
    use types::{Rank, TargetId};

    /// A map with what the bits of `seed` say: each part is of one of a few kinds, so that two maps have much in common.
    fn map(version: u32, engines: u32, seed: u64) -> PoolMap {
        let word = |what: u64, at: u32| types::hash::mix2(types::hash::mix2(seed, what), at.into());
        let engine = |at: u32| EngineInfo {
            rank: Rank(at),
            tcp: format!("node{at}:{}", word(1, at) % 2),
            unix: String::new(),
            host: format!("host{at}"),
            domain: vec![format!("rack{}", at / 4)],
        };
        let target = |at: u32| TargetInfo {
            id: TargetId(at),
            rank: Rank(at / 3),
            state: if word(2, at) % 4 == 0 { TargetState::Down } else { TargetState::Up },
            since: 0,
            reason: (word(2, at) % 4 == 0).then_some(DownReason::Silent),
            left: 0,
            incarnation: at.into(),
        };
        let targets = engines * 3;
        let set = |epoch: u8| PlacementSet {
            epoch,
            weights: (0..targets).map(|at| (TargetId(at), 65_536)).collect(),
        };
        let out =
            |at: u32| OutTarget { target: TargetId(at), round: 1, epoch: 0, is_drained: false };
        let passed = |at: u32| PassedSpare { round: 1, target: TargetId(at) };
        PoolMap {
            pool: PoolId(7),
            version,
            engines: (0..engines).map(engine).collect(),
            targets: (0..targets).map(target).collect(),
            placements: (0..1 + (word(3, 0) % 3) as u8).map(set).collect(),
            outs: (0..word(4, 0) as u32 % 3).map(out).collect(),
            next: (word(5, 0) % 2 == 0).then(|| vec![out(1)]),
            balanced: (word(6, 0) % 2) as u8,
            next_balanced: (word(7, 0) % 2) as u8,
            passed: (0..word(8, 0) as u32 % 3).map(passed).collect(),
            next_passed: (0..word(9, 0) as u32 % 3).map(passed).collect(),
        }
    }

    proptest! {
        /// Whoever applies a change has the same map as who gets it whole.
        #[test]
        fn a_change_leads_to_the_newer_map(
            before in 1u32..6, more in 0u32..3, one: u64, other: u64, step in 1u32..4,
        ) {
            let (old, new) = (map(3, before, one), map(3 + step, before + more, other));
            let change = old.change_to(&new);
            let leaves = old.placements.len() > new.placements.len();
            let Some(change) = change else {
                prop_assert!(leaves, "only what left is not told");
                return Ok(());
            };
            let bytes = crate::encode(&change);
            let change: MapChange = crate::decode(&bytes).unwrap();
            prop_assert_eq!(old.changed(&change), Some(new.clone()));
            // Nobody else takes it.
            prop_assert_eq!(new.changed(&change), None);
            let other_pool = PoolMap { pool: PoolId(8), ..old.clone() };
            prop_assert_eq!(other_pool.changed(&change), None);
        }
    }

    #[test]
    fn what_leaves_is_not_told_by_a_change() {
        let (old, small) = (map(3, 4, 1), map(4, 3, 1));
        assert_eq!(old.change_to(&small), None);
        assert_eq!(old.change_to(&old), None);
    }

    /// The numbers of `docs/cluster.md`: one engine of a thousand is down.
    #[test]
    fn a_change_of_a_large_map_is_small() {
        let old = map(3, 5000, 0);
        let mut new = PoolMap { version: 4, ..old.clone() };
        for target in new.targets.iter_mut().filter(|target| target.rank == Rank(7)) {
            (target.state, target.since) = (TargetState::New, 4);
        }
        let change = old.change_to(&new).unwrap();
        let (map_bytes, change_bytes) = (crate::encode(&new).len(), crate::encode(&change).len());
        assert!(change_bytes * 1000 < map_bytes, "{change_bytes} of {map_bytes}");
    }
}
