//! Who may lose what it leads by a change of a pool's map.
//!
//! A target that leads shows what it has without asking those who follow, while that is granted to it ([`super::grants`]); so does a whole member that
//! follows. So whoever may lose a group, or be a whole member of one no more, gives its grant back before the change is committed. Named are rather too
//! many than too few.

use crate::records::PoolDf;
use types::TargetId;
use wire::map::{PoolMap, TargetInfo};

/// The targets that may lead a group, or be a whole member of one, by the map before, and not by the one after it.
pub(super) fn who_may_lose(before: &PoolDf, after: &PoolDf) -> Vec<TargetId> {
    if before.map_version == after.map_version {
        return Vec::new();
    }
    between(&before.map(&[]), &after.map(&[]))
}

fn between(then: &PoolMap, now: &PoolMap) -> Vec<TargetId> {
    let was_live = |id: TargetId| placement::is_live(id, then);
    let is_live = |id: TargetId| placement::is_live(id, now);
    let comes = |info: &TargetInfo| {
        is_live(info.id) && then.target(info.id).is_some() && !was_live(info.id)
    };
    if move_places(then, now) || now.targets.iter().any(comes) {
        return leading(then);
    }
    // Of a group nobody is whole of, whoever left last leads: others that are behind may lose it to one that is not what it was.
    let is_other = |info: &&TargetInfo| {
        let rank = |map: &PoolMap| {
            map.target(info.id)
                .map(|info| (info.left, info.holds_its_part(), placement::follows(info.id, map)))
        };
        !was_live(info.id) && rank(then) != rank(now)
    };
    let are_ranked_anew = now.targets.iter().any(|info| is_other(&info));
    let may_lose = |id: &TargetId| match was_live(*id) {
        true => !is_live(*id),
        false => are_ranked_anew,
    };
    leading(then).into_iter().filter(may_lose).collect()
}

/// All that may lead something.
pub(super) fn leading(map: &PoolMap) -> Vec<TargetId> {
    let all = map.targets.iter().map(|info| info.id);
    all.filter(|id| placement::follows(*id, map)).collect()
}

/// True when groups may have other members.
fn move_places(then: &PoolMap, now: &PoolMap) -> bool {
    // What is drained may go to targets that were added since.
    let may_be_chosen =
        then.placements != now.placements && now.outs.iter().any(|out| out.is_drained);
    may_be_chosen
        || (&then.outs, &then.passed, then.balanced) != (&now.outs, &now.passed, now.balanced)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{ObjType, Oid, PoolId, Rank, hash};
    use wire::map::{DownReason, EngineInfo, LEFT_UNSURE, OutTarget, PlacementSet, TargetState};

    const ENGINES: u32 = 6;

    /// Draws numbers below others.
    struct Draw(u64);

    impl Draw {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = hash::mix(self.0.wrapping_add(1));
            self.0 % end
        }
    }

    fn engine(rank: u32) -> EngineInfo {
        EngineInfo {
            rank: Rank(rank),
            tcp: String::new(),
            unix: String::new(),
            host: String::new(),
            domain: vec![format!("e{rank}")],
        }
    }

    fn target(id: u32, draw: &mut Draw) -> TargetInfo {
        let reasons = [
            None,
            None,
            None,
            Some(DownReason::Behind),
            Some(DownReason::Behind),
            Some(DownReason::Silent),
            Some(DownReason::Lost),
        ];
        let reason = reasons[draw.below(7) as usize];
        let left = match reason {
            None => 0,
            Some(_) => [1, 2, 3, LEFT_UNSURE][draw.below(4) as usize],
        };
        let state = if reason.is_none() { TargetState::Up } else { TargetState::Down };
        let (id, rank) = (TargetId(id), Rank(id));
        TargetInfo { id, rank, state, since: 0, reason, left, incarnation: 7 }
    }

    fn outs(draw: &mut Draw) -> Vec<OutTarget> {
        let gone = (0..ENGINES).filter(|_| draw.below(8) == 0).map(TargetId).collect::<Vec<_>>();
        let out = |(at, target)| OutTarget {
            target,
            round: 1 + at as u32,
            epoch: 0,
            is_drained: target.0 % 2 == 0,
        };
        gone.into_iter().enumerate().map(out).collect()
    }

    fn map(draw: &mut Draw) -> PoolMap {
        let weights = (0..ENGINES).map(|id| (TargetId(id), 65_536)).collect();
        PoolMap {
            pool: PoolId(1),
            version: 1,
            engines: (0..ENGINES).map(engine).collect(),
            targets: (0..ENGINES).map(|id| target(id, draw)).collect(),
            placements: vec![PlacementSet { epoch: 0, weights }],
            outs: if draw.below(3) == 0 { outs(draw) } else { Vec::new() },
            next: None,
            balanced: 0,
            next_balanced: 0,
            passed: Vec::new(),
            next_passed: Vec::new(),
        }
    }

    /// A map that may follow.
    fn changed(before: &PoolMap, draw: &mut Draw) -> PoolMap {
        let mut after = before.clone();
        after.version += 1;
        for _ in 0..1 + draw.below(2) {
            match draw.below(5) {
                0 => after.outs = outs(draw),
                1 => after.next = Some(outs(draw)),
                _ => {
                    let id = draw.below(ENGINES.into()) as u32;
                    after.targets[id as usize] = target(id, draw);
                }
            }
        }
        after
    }

    /// Of groups of many objects, those that have another leader are led before by one that is named, if by one that serves. Those who were
    /// whole members are so still, or are named.
    #[test]
    fn whoever_loses_a_group_is_named() {
        let mut draw = Draw(11);
        let classes = ["RP_2G1", "RP_3GX", "RP_4G1", "EC_2P1G1", "S1"];
        let (mut lost, mut left, mut spared) = (0, 0, 0);
        for _ in 0..2_000 {
            let before = map(&mut draw);
            let after = changed(&before, &mut draw);
            let named = between(&before, &after);
            spared += leading(&before).len() - named.len();
            for class in classes {
                let number = draw.below(1 << 30);
                let oid = Oid::generate(0, number, ObjType::KvHashed, class.parse().unwrap(), 0);
                let leader = |map: &PoolMap| {
                    let layout = placement::layout(oid, map).unwrap();
                    let of = |group| layout.leader(group, map);
                    (0..layout.group_count()).map(of).collect::<Vec<_>>()
                };
                let whole = |map: &PoolMap| {
                    let layout = placement::layout(oid, map).unwrap();
                    let of = |group| layout.members(group).to_vec();
                    let all = (0..layout.group_count()).map(of);
                    let is_whole = |id: &TargetId| placement::is_live(*id, map);
                    all.map(|of| of.into_iter().filter(is_whole).collect()).collect::<Vec<Vec<_>>>()
                };
                for (then, now) in whole(&before).into_iter().zip(whole(&after)) {
                    for member in then.into_iter().filter(|member| !now.contains(member)) {
                        assert!(named.contains(&member), "{member}: {before:?}\n{after:?}");
                        left += 1;
                    }
                }
                for (then, now) in leader(&before).into_iter().zip(leader(&after)) {
                    let Some(leads) = then.filter(|id| placement::follows(*id, &before)) else {
                        continue;
                    };
                    if now != Some(leads) {
                        assert!(named.contains(&leads), "{leads}: {before:?}\n{after:?}");
                        lost += 1;
                    }
                }
            }
        }
        let counts = [lost, left, spared];
        assert!(counts.iter().all(|count| *count > 1_000), "lost, left, spared: {counts:?}");
    }
}
