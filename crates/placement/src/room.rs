//! Whether a pool has room for what is to move, told from what its targets hold.
//!
//! No object is looked at, so it is told from sums. Where these lack room, it is lacking. Where they have it, one tier of a target may still be full, or
//! those targets that are far enough from a group's other members; that is found out on the way.

use types::TargetId;
use wire::map::PoolMap;
use wire::obj::{PoolShardStat, kept_when_joining};

/// What a target holds of a pool, and what it may take over of what others held, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Filled {
    pub target: TargetId,
    pub used: u64,
    /// Some of what is free is kept: those that have objects there go on writing.
    pub free: u64,
}

/// What is to move, and the room for it, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Room {
    pub moving: u64,
    /// What those may take who are to get it.
    pub free: u64,
    pub lacking: u64,
}

impl Filled {
    /// As the target tells it itself, by tiers: it takes nothing over once one is full.
    pub fn of(target: TargetId, stat: &PoolShardStat) -> Filled {
        let sum = Filled::of_sum(target, stat.used_bytes(), stat.scm_bytes + stat.nvme_bytes);
        Filled { free: if stat.is_too_full_to_join() { 0 } else { sum.free }, ..sum }
    }

    /// Of one of which only this is known: what it holds, and what there may be of the pool, of both tiers.
    pub fn of_sum(target: TargetId, used: u64, bytes: u64) -> Filled {
        let free = (bytes - kept_when_joining(bytes)).saturating_sub(used);
        Filled { target, used, free }
    }
}

/// The room for what `gone` hold at those of `filled` that are to stay, and were not found to have none. One of `gone` that is not in `filled` is taken
/// to hold as much as the others, by weight.
pub fn room_without(map: &PoolMap, gone: &[TargetId], filled: &[Filled]) -> Room {
    let moving = held_by(map, gone, filled);
    let takes = |of: &&Filled| stays(map, gone, of.target) && !is_passed(map, gone, of.target);
    let free: u64 = filled.iter().filter(takes).map(|of| of.free).sum();
    Room { moving, free, lacking: moving.saturating_sub(free) }
}

/// True when a target has room for its part of what `gone` hold or held, as far as that is known.
pub fn has_room_for_part(
    map: &PoolMap,
    gone: &[TargetId],
    filled: &[Filled],
    target: TargetId,
) -> bool {
    let Some(of) = filled.iter().find(|of| of.target == target) else { return false };
    let (moving, shares) = (held_by(map, gone, filled), Shares::of(map, gone, filled));
    stays(map, gone, target) && shares.part(map, moving, target) <= of.free
}

/// What some hold, or held, if it was as much as the others do.
fn held_by(map: &PoolMap, gone: &[TargetId], filled: &[Filled]) -> u64 {
    let shares = Shares::of(map, gone, filled);
    let used = filled.iter().filter(|of| stays(map, gone, of.target)).map(|of| of.used).sum();
    let held = |target: &TargetId| {
        let known = filled.iter().find(|of| of.target == *target);
        known.map_or_else(|| shares.part(map, used, *target), |of| of.used)
    };
    gone.iter().map(held).sum()
}

/// How much those that stay have together.
struct Shares {
    count: u64,
    weight: u64,
}

impl Shares {
    fn of(map: &PoolMap, gone: &[TargetId], filled: &[Filled]) -> Shares {
        let stay: Vec<&Filled> = filled.iter().filter(|of| stays(map, gone, of.target)).collect();
        let weight = stay.iter().map(|of| weight(map, of.target)).sum();
        Shares { count: stay.len() as u64, weight }
    }

    /// A target's part of so many bytes, which is as large as that of one that stays with the same weight.
    fn part(&self, map: &PoolMap, bytes: u64, target: TargetId) -> u64 {
        match self.weight {
            0 => bytes / self.count.max(1),
            _ => part(bytes, weight(map, target), self.weight),
        }
    }
}

/// The room for the shares of the newest placement epoch; `None`: of one of those that have a share nothing is known.
pub fn room_for_shares(map: &PoolMap, filled: &[Filled]) -> Option<Room> {
    let set = map.placements.last()?;
    let shares: Vec<(TargetId, u64)> = set
        .weights
        .iter()
        .filter(|(id, weight)| *weight > 0 && stays(map, &[], *id))
        .map(|(id, weight)| (*id, u64::from(*weight)))
        .collect();
    let weighed: u64 = shares.iter().map(|(_, weight)| weight).sum();
    let used: u64 = filled.iter().map(|of| of.used).sum();
    let mut room = Room::default();
    for (target, weight) in shares {
        let of = filled.iter().find(|of| of.target == target)?;
        let gain = part(used, weight, weighed).saturating_sub(of.used);
        if gain > 0 {
            room.moving += gain;
            room.free += of.free;
            room.lacking += gain.saturating_sub(of.free);
        }
    }
    Some(room)
}

/// Nobody stands in for it, or comes to.
fn stays(map: &PoolMap, gone: &[TargetId], target: TargetId) -> bool {
    let mut outs = map.outs.iter().chain(map.next.iter().flatten());
    !gone.contains(&target) && !outs.any(|out| out.target == target)
}

/// It has said already that it has no room for what those held that are about to go.
fn is_passed(map: &PoolMap, gone: &[TargetId], target: TargetId) -> bool {
    let going = map.next.iter().flatten().filter(|out| gone.contains(&out.target));
    let mut rounds = going.map(|out| out.round);
    rounds.any(|round| {
        map.next_passed.iter().any(|passed| passed.round == round && passed.target == target)
    })
}

/// In the newest placement epoch.
fn weight(map: &PoolMap, target: TargetId) -> u64 {
    let set = map.placements.last();
    let of = set.and_then(|set| set.weights.iter().find(|(id, _)| *id == target));
    of.map_or(0, |(_, weight)| u64::from(*weight))
}

fn part(of: u64, share: u64, whole: u64) -> u64 {
    (u128::from(of) * u128::from(share) / u128::from(whole.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::PoolId;
    use wire::map::{OutTarget, PassedSpare, PlacementSet};

    const MIB: u64 = 1 << 20;

    fn map(weights: &[u32]) -> PoolMap {
        let weights = (0..).map(TargetId).zip(weights.iter().copied()).collect();
        PoolMap {
            pool: PoolId(1),
            version: 1,
            engines: Vec::new(),
            targets: Vec::new(),
            placements: vec![PlacementSet { epoch: 0, weights }],
            outs: Vec::new(),
            next: None,
            balanced: 0,
            next_balanced: 0,
            passed: Vec::new(),
            next_passed: Vec::new(),
        }
    }

    /// Targets of 320 MiB, of which 10 are kept free.
    fn filled(used: &[(u32, u64)]) -> Vec<Filled> {
        let of = |&(id, used)| Filled::of_sum(TargetId(id), used * MIB, 320 * MIB);
        used.iter().map(of).collect()
    }

    #[test]
    fn what_leaves_must_fit_at_those_that_stay() {
        let (map, gone) = (map(&[1, 1, 1]), [TargetId(0)]);
        let room = room_without(&map, &gone, &filled(&[(0, 200), (1, 200), (2, 210)]));
        assert_eq!((room.moving, room.free, room.lacking), (200 * MIB, 210 * MIB, 0));
        let room = room_without(&map, &gone, &filled(&[(0, 200), (1, 250), (2, 260)]));
        assert_eq!((room.free, room.lacking), (110 * MIB, 90 * MIB));
        // Fuller than it may be when it takes something over: that is no room, and no debt.
        let room = room_without(&map, &gone, &filled(&[(0, 20), (1, 319), (2, 290)]));
        assert_eq!((room.free, room.lacking), (20 * MIB, 0));
    }

    #[test]
    fn one_that_is_lost_held_as_much_as_the_others_by_weight() {
        let room = room_without(&map(&[2, 1, 1]), &[TargetId(0)], &filled(&[(1, 100), (2, 140)]));
        assert_eq!((room.moving, room.free, room.lacking), (240 * MIB, 380 * MIB, 0));
        let nameless = room_without(&map(&[]), &[TargetId(0)], &filled(&[(1, 100), (2, 140)]));
        assert_eq!(nameless.moving, 120 * MIB);
        assert_eq!(room_without(&map(&[]), &[TargetId(0)], &[]), Room::default());
    }

    /// Others stand in for target 1 already, and come to stand in for target 2: neither takes anything.
    #[test]
    fn who_goes_as_well_takes_nothing() {
        let out = |id| OutTarget { target: TargetId(id), round: 1, epoch: 0, is_drained: true };
        let map = PoolMap { outs: vec![out(1)], next: Some(vec![out(1), out(2)]), ..map(&[1; 4]) };
        let room =
            room_without(&map, &[TargetId(0)], &filled(&[(0, 200), (1, 0), (2, 10), (3, 210)]));
        assert_eq!((room.free, room.lacking), (100 * MIB, 100 * MIB));
    }

    /// What a target said when it was asked to take something counts for more than what sums say.
    #[test]
    fn who_had_no_room_has_none() {
        let next =
            Some(vec![OutTarget { target: TargetId(0), round: 7, epoch: 0, is_drained: true }]);
        let passed = |round| vec![PassedSpare { round, target: TargetId(2) }];
        let used = filled(&[(0, 200), (1, 200), (2, 100)]);
        let room = |next_passed| {
            let map = PoolMap { next: next.clone(), next_passed, ..map(&[1; 3]) };
            room_without(&map, &[TargetId(0)], &used)
        };
        assert_eq!((room(passed(6)).free, room(passed(6)).lacking), (320 * MIB, 0));
        assert_eq!((room(passed(7)).free, room(passed(7)).lacking), (110 * MIB, 90 * MIB));
    }

    #[test]
    fn each_takes_its_part_by_weight() {
        let (map, gone) = (map(&[1, 1, 3]), [TargetId(0)]);
        let fits = |used: &[(u32, u64)], target| {
            has_room_for_part(&map, &gone, &filled(used), TargetId(target))
        };
        // A quarter, and three of them, of what target 0 holds.
        assert!(fits(&[(0, 100), (1, 285), (2, 300)], 1));
        assert!(!fits(&[(0, 100), (1, 286), (2, 300)], 1));
        assert!(fits(&[(0, 100), (1, 300), (2, 235)], 2));
        assert!(!fits(&[(0, 100), (1, 300), (2, 236)], 2));
        // It is gone: it held 40 MiB, a third of what target 2 does.
        assert!(fits(&[(1, 40), (2, 120)], 1));
        assert!(!fits(&[(1, 290), (2, 120)], 1));
        assert!(!fits(&[(1, 40)], 2), "nothing is known of it");
        assert!(!fits(&[(0, 0), (1, 0)], 0), "it is gone itself");
    }

    #[test]
    fn a_target_with_a_full_tier_takes_nothing() {
        let stat = PoolShardStat {
            scm_bytes: 64 * MIB,
            scm_free_bytes: 40 * MIB,
            nvme_bytes: 640 * MIB,
            nvme_free_bytes: 20 * MIB,
            ..PoolShardStat::default()
        };
        let of = |stat: &PoolShardStat| Filled::of(TargetId(1), stat);
        let free = 60 * MIB - 22 * MIB;
        assert_eq!(of(&stat), Filled { target: TargetId(1), used: 644 * MIB, free });
        let full = PoolShardStat { nvme_free_bytes: 20 * MIB - 1, ..stat };
        assert_eq!((of(&full).used, of(&full).free), (644 * MIB + 1, 0));
    }

    #[test]
    fn each_must_have_room_for_its_own_share() {
        let room = room_for_shares(&map(&[1, 1, 1]), &filled(&[(0, 300), (1, 300), (2, 0)]));
        assert_eq!(room, Some(Room { moving: 200 * MIB, free: 310 * MIB, lacking: 0 }));
        // The room of one does not help another.
        let room = room_for_shares(&map(&[1, 1, 4]), &filled(&[(0, 200), (1, 200), (2, 200)]));
        assert_eq!(room, Some(Room { moving: 200 * MIB, free: 110 * MIB, lacking: 90 * MIB }));
        assert_eq!(room_for_shares(&map(&[1, 1, 1]), &filled(&[(0, 300), (1, 300)])), None);
    }
}
