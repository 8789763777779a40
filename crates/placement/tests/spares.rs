//! Targets that stand in for others, against plain statements of what is promised.

use placement::{cell_layout, has_given_all, is_live, layout, losses, lost_for_want_of_room};
use proptest::prelude::*;
use std::collections::BTreeSet;
use types::{ObjType, Oid, PoolId, Rank, TargetId, hash};
use wire::map::{
    DownReason, EngineInfo, OutTarget, PassedSpare, PlacementSet, PoolMap, TargetInfo, TargetState,
};

/// Engines of so many targets each, in a rack for every two.
fn map_of(engines: &[u32]) -> PoolMap {
    let mut map = PoolMap {
        pool: PoolId(1),
        version: 1,
        engines: Vec::new(),
        targets: Vec::new(),
        placements: vec![PlacementSet { epoch: 0, weights: Vec::new() }],
        outs: Vec::new(),
        next: None,
        balanced: 0,
        next_balanced: 0,
        passed: Vec::new(),
        next_passed: Vec::new(),
    };
    for (at, count) in engines.iter().enumerate() {
        let rank = Rank(at as u32);
        map.engines.push(EngineInfo {
            rank,
            tcp: format!("node{at}:10301"),
            unix: String::new(),
            host: format!("host{at}"),
            // Of several depths.
            domain: match at {
                5 => vec!["hall1".to_string()],
                _ => vec![
                    format!("hall{}", at / 4),
                    format!("row{}", at / 3),
                    format!("rack{}", at / 2),
                ],
            },
        });
        for _ in 0..*count {
            let id = TargetId(map.targets.len() as u32);
            let state = TargetState::Up;
            let (since, reason, left, incarnation) = (0, None, 0, 0);
            map.targets.push(TargetInfo { id, rank, state, since, reason, left, incarnation });
            map.placements[0].weights.push((id, 65_536));
        }
    }
    map
}

fn oid(number: u64, class: &str) -> Oid {
    Oid::generate(0, number, ObjType::DkeyU64, class.parse().unwrap(), 0)
}

/// Some targets of a map, in up to three rounds.
fn outs(map: &PoolMap, seed: u64, count: usize) -> Vec<OutTarget> {
    let mut ids: Vec<TargetId> = map.targets.iter().map(|target| target.id).collect();
    ids.sort_by_key(|id| hash::mix2(seed, id.0.into()));
    let round = |at: usize| 10 + (hash::mix2(seed, at as u64) % 3) as u32;
    let ids = ids.into_iter().take(count).enumerate();
    let mut outs: Vec<OutTarget> = ids
        .map(|(at, target)| OutTarget { target, round: round(at), epoch: 0, is_drained: false })
        .collect();
    outs.sort_by_key(|out| (out.round, out.target));
    outs
}

/// The most levels that a target shares with others, its engine among them.
fn shared(target: TargetId, others: &[TargetId], map: &PoolMap) -> usize {
    let path = |target: TargetId| {
        let engine = map.engine_of(target).unwrap();
        [&engine.domain[..], &[engine.rank.to_string()]].concat()
    };
    let own = path(target);
    let with = |other: &TargetId| own.iter().zip(path(*other)).take_while(|(a, b)| *a == b).count();
    others.iter().filter(|other| **other != target).map(with).max().unwrap_or(0)
}

proptest! {
    #[test]
    fn members_are_apart_and_only_what_was_on_them_moves(
        number: u64, seed: u64, count in 0usize..6, class_at in 0usize..4,
    ) {
        let class = ["RP_2G1", "RP_2GX", "RP_3GX", "RP_4G2"][class_at];
        let mut map = map_of(&[2, 2, 2, 1, 1, 3]);
        let before = layout(oid(number, class), &map).unwrap();
        map.outs = outs(&map, seed, count);
        let after = layout(oid(number, class), &map).unwrap();
        prop_assert_eq!(before.group_count(), after.group_count());
        for group in 0..before.group_count() {
            let (drawn, now) = (before.members(group), after.members(group));
            prop_assert_eq!(drawn, after.placed(group));
            let distinct: BTreeSet<_> = now.iter().collect();
            prop_assert_eq!(distinct.len(), drawn.len());
            let is_out = |target: &TargetId| map.outs.iter().any(|out| out.target == *target);
            let stay: Vec<_> = drawn.iter().filter(|target| now.contains(target)).collect();
            let kept: Vec<_> = now.iter().filter(|target| drawn.contains(target)).collect();
            prop_assert_eq!(&stay, &kept, "whoever stays keeps its order");
            for target in drawn {
                prop_assert!(now.contains(target) || is_out(target));
            }
            for target in now.iter().filter(|target| !drawn.contains(target)) {
                // One may be lost later, and have kept the place.
                let round = |target: &TargetId| {
                    map.outs.iter().find(|out| out.target == *target).map(|out| out.round)
                };
                let first = drawn.iter().filter_map(round).min();
                prop_assert!(round(target).is_none() || round(target) > first);
            }
            let worst = |members: &[TargetId]| {
                members.iter().map(|one| shared(*one, members, &map)).max().unwrap()
            };
            prop_assert!(worst(now) <= worst(drawn), "they are as far apart as before");
        }
        // All back: as if nothing had been.
        map.outs.clear();
        prop_assert_eq!(layout(oid(number, class), &map).unwrap(), before);
    }

    #[test]
    fn who_is_chosen_stays_chosen_when_others_go(number: u64, seed: u64) {
        let mut map = map_of(&[1; 8]);
        let all = outs(&map, seed, 4);
        let first = all[0].round;
        map.outs = all.iter().copied().filter(|out| out.round == first).collect();
        let before = layout(oid(number, "RP_3GX"), &map).unwrap();
        map.outs = all;
        let after = layout(oid(number, "RP_3GX"), &map).unwrap();
        for group in 0..before.group_count() {
            let is_out = |target: &&TargetId| map.outs.iter().any(|out| out.target == **target);
            for member in before.members(group).iter().filter(|target| !is_out(target)) {
                prop_assert!(after.members(group).contains(member));
            }
        }
    }

    #[test]
    fn who_joins_is_a_member_once_that_is_over(number: u64, seed: u64, a in 0usize..5, b in 0usize..5) {
        let mut map = map_of(&[2, 2, 2, 1, 1, 3]);
        let (from, to) = (outs(&map, seed, a), outs(&map, hash::mix(seed), b));
        map.outs = from;
        map.next = Some(to.clone());
        let during = layout(oid(number, "RP_3GX"), &map).unwrap();
        map.outs = to;
        map.next = None;
        let after = layout(oid(number, "RP_3GX"), &map).unwrap();
        for group in 0..during.group_count() {
            let (mut all, joiners): (Vec<_>, Vec<_>) =
                (during.everyone(group).to_vec(), during.joiners(group).collect());
            prop_assert_eq!(all.len(), 3 + joiners.len());
            for member in after.members(group) {
                prop_assert!(all.contains(member));
            }
            prop_assert!(joiners.iter().all(|joiner| after.members(group).contains(joiner)));
            all.sort_unstable();
            all.dedup();
            prop_assert_eq!(all.len(), 3 + joiners.len());
            prop_assert!(after.joiners(group).next().is_none());
        }
    }

    /// One who stands in for another and is to stand in for a third instead has cells of the group, and others are to come: nobody gave it those
    /// before the map said that they were its own.
    #[test]
    fn who_has_a_place_of_cells_had_it_before_or_joined_there(
        number: u64, seed: u64, a in 0usize..5, b in 0usize..5,
    ) {
        let mut map = map_of(&[1; 7]);
        let (mut from, mut to) = (outs(&map, seed, a), outs(&map, seed, b));
        // Some come back, and others go.
        from.retain(|out| !hash::mix2(seed, 77 + u64::from(out.target.0)).is_multiple_of(3));
        to.retain(|out| !hash::mix2(seed, 99 + u64::from(out.target.0)).is_multiple_of(3));
        map.outs = from;
        map.next = Some(to.clone());
        let during = cell_layout(oid(number, "EC_2P1G1"), &map).unwrap();
        map.outs = to;
        map.next = None;
        let after = cell_layout(oid(number, "EC_2P1G1"), &map).unwrap();
        for group in 0..during.group_count() {
            let joined: Vec<(usize, TargetId)> = during.places_to_join(group).collect();
            for (place, member) in after.members(group).iter().enumerate() {
                let is_ready = during.members(group)[place] == *member
                    || joined.contains(&(place, *member));
                prop_assert!(is_ready, "{member} at {place}: {:?}", during.members(group));
            }
        }
    }
}

/// A file and its name are together, and stay together whoever stands in.
#[test]
fn groups_with_the_same_members_keep_the_same_members() {
    let mut map = map_of(&[1; 5]);
    let drawn: Vec<_> =
        (0..300).map(|number| layout(oid(number, "RP_2G1"), &map).unwrap()).collect();
    map.outs = outs(&map, 7, 2);
    let now: Vec<_> = (0..300).map(|number| layout(oid(number, "RP_2G1"), &map).unwrap()).collect();
    let mut equal = 0;
    for (a, b) in (0..300).flat_map(|a| (0..a).map(move |b| (a, b))) {
        if drawn[a].members(0) == drawn[b].members(0) {
            assert_eq!(now[a].members(0), now[b].members(0));
            equal += 1;
        }
    }
    assert!(equal > 100);
}

/// Whoever stood in for all members of a group would have nothing to begin with, and be taken for whole.
#[test]
fn a_group_that_was_lost_as_a_whole_keeps_its_members() {
    let mut map = map_of(&[1; 6]);
    let placed = layout(oid(1, "RP_2G1"), &map).unwrap();
    let out = |target: TargetId, round| OutTarget { target, round, epoch: 0, is_drained: false };
    let (a, b) = (placed.members(0)[0], placed.members(0)[1]);
    map.outs = vec![out(a.min(b), 5), out(a.max(b), 5)];
    assert_eq!(layout(oid(1, "RP_2G1"), &map).unwrap().members(0), placed.members(0));
    // One after the other is another matter.
    map.outs = vec![out(a, 5), out(b, 6)];
    let now = layout(oid(1, "RP_2G1"), &map).unwrap();
    assert!(!now.members(0).contains(&a) && !now.members(0).contains(&b));
    // One that comes back has it all again.
    map.outs = vec![out(b, 5)];
    let now = layout(oid(1, "RP_2G1"), &map).unwrap();
    assert!(now.members(0).contains(&a) && !now.members(0).contains(&b));
}

/// What is said of the worst group is never better than what some group has.
#[test]
fn losses_with_targets_out_are_not_called_smaller_than_they_are() {
    for seed in 0..300u64 {
        let mut map = match seed % 3 {
            0 => map_of(&[1, 1, 1, 1]),
            1 => map_of(&[2, 1, 1, 2, 1]),
            _ => map_of(&[2, 2, 2]),
        };
        map.outs = outs(&map, seed, 1 + (seed % 2) as usize);
        for out in map.outs.clone() {
            let at = map.targets.iter().position(|target| target.id == out.target).unwrap();
            map.targets[at].state = TargetState::Down;
            map.targets[at].reason = Some(DownReason::Silent);
            map.targets[at].left = out.round;
        }
        let silent = Rank((hash::mix(seed) % 9) as u32);
        let answers = |rank: Rank| rank != silent;
        for (class, width) in [("RP_2G1", 2), ("RP_3G1", 3)] {
            let told = losses(width, &map, answers);
            for number in 0..300 {
                let layout = layout(oid(number, class), &map).unwrap();
                let is_whole = |target: &&TargetId| {
                    answers(map.target(**target).unwrap().rank) && is_live(**target, &map)
                };
                let left = layout.members(0).iter().filter(is_whole).count();
                assert!(
                    told.copies_left <= left,
                    "seed {seed}, {class}: {told:?}, {layout:?} of {map:?}"
                );
                assert!(
                    told.is_unavailable || left > 0,
                    "seed {seed}, {class}: {layout:?} of {map:?}"
                );
            }
        }
    }
    // And a pool in which all of it is mended is whole.
    let mut map = map_of(&[1, 1, 1, 1]);
    map.targets[2].state = TargetState::Down;
    map.targets[2].reason = Some(DownReason::Silent);
    map.targets[2].left = 3;
    assert_eq!(losses(2, &map, |_| true).copies_left, 1);
    map.outs = vec![OutTarget { target: TargetId(2), round: 3, epoch: 0, is_drained: false }];
    assert_eq!(losses(2, &map, |_| true).copies_left, 2);
}

/// A pool was called unavailable whose drained engine was stopped, as the documents say, and its objects of one copy were asked for there: of what is alone,
/// too, a drained target has given all it held, unless nobody had room.
#[test]
fn who_has_given_all_is_in_no_group() {
    let drained = TargetId(1);
    let out = |target| OutTarget { target, round: 4, epoch: 0, is_drained: true };
    let answers = |rank: Rank| rank != Rank(1);
    let is_anywhere = |map: &PoolMap| {
        let of_class = |class| (0..300).map(move |number| oid(number, class));
        let mut all = ["S1", "SX", "RP_2G1", "RP_2GX"].into_iter().flat_map(of_class);
        all.any(|oid| {
            let layout = layout(oid, map).unwrap();
            (0..layout.group_count()).any(|group| layout.members(group).contains(&drained))
        })
    };
    let mut map = map_of(&[1, 1, 1, 1]);
    assert!(!has_given_all(drained, &map));
    map.next = Some(vec![out(drained)]);
    assert!(!has_given_all(drained, &map) && losses(1, &map, answers).is_unavailable);
    map.outs = map.next.take().unwrap();
    assert!(has_given_all(drained, &map) && !is_anywhere(&map));
    assert_eq!(losses(1, &map, answers), losses(1, &map, |_| true));
    assert_eq!(losses(1, &map, answers).copies_left, 1);
    // Other moves change nothing of that; its own way back does.
    map.next = Some(vec![out(drained), out(TargetId(3))]);
    assert!(has_given_all(drained, &map));
    map.next = Some(Vec::new());
    assert!(!has_given_all(drained, &map));
    map.next = None;
    map.passed = [0, 2, 3].map(|id| PassedSpare { round: 4, target: TargetId(id) }).to_vec();
    assert!(!has_given_all(drained, &map) && is_anywhere(&map));
    assert!(losses(1, &map, answers).is_unavailable);
}

/// What is alone on a target is given to others when that one is drained, to several of them, and stays where it is when it is lost:
/// nobody else has it.
#[test]
fn groups_of_one_member_leave_drained_targets_only() {
    let mut map = map_of(&[2, 2, 1, 3]);
    let (drained, lost) = (TargetId(2), TargetId(5));
    let out = |target, round, is_drained| OutTarget { target, round, epoch: 0, is_drained };
    let (mut spares, mut stayed) = (BTreeSet::new(), 0);
    for number in 0..400 {
        let oid = oid(number, ["S1", "S4", "SX"][number as usize % 3]);
        map.outs = Vec::new();
        let before = layout(oid, &map).unwrap();
        map.next = Some(vec![out(drained, 4, true), out(lost, 4, false)]);
        let meanwhile = layout(oid, &map).unwrap();
        map.outs = map.next.take().unwrap();
        let after = layout(oid, &map).unwrap();
        for group in 0..before.group_count() {
            let (was, is) = (before.members(group)[0], after.members(group)[0]);
            assert_eq!(
                meanwhile.members(group),
                [was],
                "{oid}: who has it has it until the change"
            );
            let joiners: Vec<TargetId> = meanwhile.joiners(group).collect();
            if was == drained {
                assert!(is != drained && is != lost, "{oid}");
                assert_eq!(joiners, [is], "{oid}");
                spares.insert(is);
            } else {
                assert_eq!((was, joiners.len()), (is, 0), "{oid}");
                stayed += u32::from(was == lost);
            }
        }
    }
    assert!(spares.len() == 6 && stayed > 20, "{spares:?} {stayed}");
}

/// Who has no room stands in for nobody of that round; who was chosen elsewhere stays. When nobody is left the place stays with the
/// one that is out, and that is counted as a copy less.
#[test]
fn who_has_no_room_is_passed_over() {
    let mut map = map_of(&[1; 6]);
    map.outs = vec![OutTarget { target: TargetId(1), round: 7, epoch: 0, is_drained: false }];
    map.targets[1].state = TargetState::Down;
    map.targets[1].reason = Some(DownReason::Silent);
    let members = |map: &PoolMap, number: u64| {
        layout(oid(number, "RP_2G1"), map).unwrap().members(0).to_vec()
    };
    let before: Vec<Vec<TargetId>> = (1..300).map(|number| members(&map, number)).collect();
    assert!(before.iter().all(|group| !group.contains(&TargetId(1))));
    // In the same hall.
    let full = TargetId(3);
    let mut passed = map.clone();
    passed.passed = vec![PassedSpare { round: 7, target: full }];
    let mut moved = 0;
    for (number, before) in (1..300).zip(&before) {
        let now = members(&passed, number);
        let drawn = layout(oid(number, "RP_2G1"), &map).unwrap().placed(0).to_vec();
        if now != *before {
            moved += 1;
            assert!(before.contains(&full) && !drawn.contains(&full), "{number}: {before:?}");
        }
        assert!(!now.contains(&TargetId(1)) && (drawn.contains(&full) || !now.contains(&full)));
    }
    assert!(moved > 5, "{moved}");
    assert_eq!(losses(2, &passed, |_| true).copies_left, 2);
    assert_eq!(lost_for_want_of_room(2, &passed), [], "others have its places");
    // Another round knows nothing of it.
    let mut other = map.clone();
    other.passed = vec![PassedSpare { round: 8, target: full }];
    assert!((1..300).zip(&before).all(|(number, before)| members(&other, number) == *before));
    // What is to become of it is told apart from what is.
    let mut next = map.clone();
    next.next = Some(map.outs.clone());
    next.next_passed = vec![PassedSpare { round: 7, target: full }];
    let joins = (1..300).filter(|number| {
        let layout = layout(oid(*number, "RP_2G1"), &next).unwrap();
        assert_eq!(layout.members(0), &before[*number as usize - 1][..]);
        layout.joiners(0).count() > 0
    });
    assert_eq!(joins.count(), moved);
    // All are full: half of what was there has one copy.
    let others = (0..6).filter(|at| *at != 1).map(TargetId);
    passed.passed = others.map(|target| PassedSpare { round: 7, target }).collect();
    for number in 1..300 {
        let drawn = layout(oid(number, "RP_2G1"), &map).unwrap().placed(0).to_vec();
        assert_eq!(members(&passed, number), drawn);
    }
    assert_eq!(losses(2, &passed, |_| true).copies_left, 1);
    assert_eq!(lost_for_want_of_room(2, &passed), [TargetId(1)]);
    assert_eq!(lost_for_want_of_room(1, &passed), [], "one copy waits for its target");
    // One is full: pairs find another one, and groups of five may have nobody else.
    passed.passed.truncate(1);
    assert_eq!(lost_for_want_of_room(2, &passed), []);
    assert_eq!(lost_for_want_of_room(5, &passed), [TargetId(1)]);
    // What is drained is with somebody.
    passed.outs[0].is_drained = true;
    assert_eq!(lost_for_want_of_room(5, &passed), []);
}

/// Where too few domains are left nobody stands in for what is lost, for it may come back. What is drained is taken away: whoever is
/// farthest from the others has its place, as if the group were made now. It used to stay a member, though the drain was over.
#[test]
fn what_is_drained_leaves_its_groups_also_where_domains_are_few() {
    let mut map = map_of(&[1; 6]);
    // All of the second hall.
    let of_hall = [TargetId(4), TargetId(5)];
    let out = |target| OutTarget { target, round: 7, epoch: 0, is_drained: true };
    map.outs = of_hall.map(out).to_vec();
    let groups = |map: &PoolMap| -> Vec<Vec<TargetId>> {
        let of = |number| layout(oid(number, "RP_2G1"), map).unwrap().members(0).to_vec();
        (1..300).map(of).collect()
    };
    let stays = |group: &Vec<TargetId>| group.iter().any(|target| of_hall.contains(target));
    assert!(groups(&map).iter().all(stays), "each group had a member in each hall");
    map.passed = of_hall.map(|target| PassedSpare { round: 7, target }).to_vec();
    for group in groups(&map) {
        assert!(!stays(&group), "{group:?}");
        // There is another row in the first hall, of one engine.
        assert_eq!(shared(group[0], &group, &map), 1, "{group:?}");
    }
    // Another round's is not meant.
    map.passed = of_hall.map(|target| PassedSpare { round: 8, target }).to_vec();
    assert!(groups(&map).iter().all(stays));
    // As long as there is anybody: two engines cannot hold three members.
    let mut few = map_of(&[1; 3]);
    few.outs = vec![out(TargetId(1))];
    few.passed = vec![PassedSpare { round: 7, target: TargetId(1) }];
    let members = layout(oid(1, "RP_3G1"), &few).unwrap().members(0).to_vec();
    assert!(members.contains(&TargetId(1)), "{members:?}");
}
