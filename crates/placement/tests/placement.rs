//! Properties of placement, against naive statements of what it promises.

use placement::{
    HintTable, Layout, cell_layout, check_class, hint_beside, hint_for, is_live, layout, losses,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use types::{Code, ContProps, ObjClass, ObjType, Oid, PoolId, Rank, TargetId, hash};
use wire::map::{
    DownReason, EngineInfo, OutTarget, PassedSpare, PlacementSet, PoolMap, TargetInfo, TargetState,
};

const NORM: u32 = 65_536;

/// One engine per entry: its domain path and the number of its targets.
fn map_of(engines: &[(&[&str], u32)]) -> PoolMap {
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
    for (at, (domain, target_count)) in engines.iter().enumerate() {
        let rank = Rank(at as u32);
        map.engines.push(EngineInfo {
            rank,
            tcp: format!("node{at}:10301"),
            unix: String::new(),
            host: format!("host{at}"),
            domain: domain.iter().map(|level| level.to_string()).collect(),
        });
        for _ in 0..*target_count {
            let id = TargetId(map.targets.len() as u32);
            map.targets.push(TargetInfo {
                id,
                rank,
                state: TargetState::Up,
                incarnation: 0,
                since: 0,
                reason: None,
                left: 0,
            });
            map.placements[0].weights.push((id, NORM));
        }
    }
    map
}

fn flat(target_count: u32) -> PoolMap {
    map_of(&[(&[], target_count)])
}

fn oid(number: u64, class: &str, epoch: u8) -> Oid {
    Oid::generate(0, number, ObjType::DkeyU64, class.parse().unwrap(), epoch)
}

fn domain_of(target: TargetId, map: &PoolMap, depth: usize) -> Vec<String> {
    let engine = map.engine_of(target).unwrap();
    let mut path = engine.domain.clone();
    path.push(engine.rank.to_string());
    path.truncate(depth);
    path
}

#[test]
fn targets_get_objects_in_proportion_to_their_weights() {
    let mut map = flat(8);
    for (at, (_, weight)) in map.placements[0].weights.iter_mut().enumerate() {
        *weight = NORM / 2 * (at as u32 + 1);
    }
    let object_count = 200_000;
    let mut counts = [0u64; 8];
    for number in 0..object_count {
        counts[layout(oid(number, "S1", 0), &map).unwrap().home().0 as usize] += 1;
    }
    for (at, &count) in counts.iter().enumerate() {
        let fair = object_count as f64 * (at + 1) as f64 / 36.0;
        let error = (count as f64 - fair).abs() / fair;
        assert!(error < 0.04, "target {at}: {count} objects, fair {fair}");
    }
}

#[test]
fn a_target_of_weight_zero_gets_nothing_and_no_weight_at_all_is_an_error() {
    let mut map = flat(3);
    map.placements[0].weights[1].1 = 0;
    for number in 0..2_000 {
        let layout = layout(oid(number, "SX", 0), &map).unwrap();
        assert_eq!(layout.group_count(), 2);
        assert!(!layout.targets().contains(&TargetId(1)));
    }
    map.placements[0].weights.iter_mut().for_each(|(_, weight)| *weight = 0);
    for class in ["S1", "S2", "SX", "RP_2G1"] {
        assert_eq!(layout(oid(1, class, 0), &map).unwrap_err().code, Code::NonExist);
    }
    let error = check_class(ObjClass::S1, &ContProps::default(), &map).unwrap_err();
    assert_eq!(error.code, Code::NonExist);
}

#[test]
fn a_new_placement_epoch_moves_no_old_object_and_takes_only_its_share_of_new_ones() {
    let before = flat(8);
    let mut after = flat(9);
    after.placements.insert(0, before.placements[0].clone());
    after.placements[1].epoch = 1;
    after.targets[8].state = TargetState::New;
    let (object_count, added) = (40_000, TargetId(8));
    let mut moved = 0;
    for number in 0..object_count {
        let old = oid(number, "S1", 0);
        assert_eq!(layout(old, &before).unwrap(), layout(old, &after).unwrap());
        // The rendezvous property between the two sets: an object is where it was, or on the
        // target that was added.
        let (then, now) = (
            layout(old, &before).unwrap().home(),
            layout(oid(number, "S1", 1), &after).unwrap().home(),
        );
        assert!(now == then || now == added);
        moved += (now == added) as u64;
    }
    let fair = object_count as f64 / 9.0;
    assert!((moved as f64 - fair).abs() / fair < 0.05, "{moved} of {object_count}");
}

#[test]
fn a_lost_target_changes_the_leader_and_nothing_else() {
    let mut map = map_of(&[(&["a"], 2), (&["b"], 2)]);
    let mirrored = oid(5, "RP_2G1", 0);
    let before = layout(mirrored, &map).unwrap();
    let first = before.home();
    map.targets[first.0 as usize].state = TargetState::Down;
    let after = layout(mirrored, &map).unwrap();
    assert_eq!(before, after);
    assert_eq!(after.leader(0, &map), Some(after.members(0)[1]));
    for target in &mut map.targets {
        target.state = TargetState::DownOut;
    }
    assert_eq!(after.leader(0, &map), None);
    for state in [TargetState::Up, TargetState::Drain, TargetState::New] {
        map.targets[first.0 as usize].state = state;
        assert_eq!(after.leader(0, &map), Some(first));
    }
}

/// Of an object without copies nobody else could tell anything: who asks waits for the target, unless what it
/// held is lost.
#[test]
fn the_only_member_is_asked_until_it_is_lost() {
    let mut map = map_of(&[(&["a"], 2), (&["b"], 2)]);
    for class in ["S1", "SX"] {
        let placed = layout(oid(5, class, 0), &map).unwrap();
        let first = placed.home();
        let down = |reason| (TargetState::Down, reason);
        for ((state, reason), leader) in [
            (down(Some(DownReason::Silent)), Some(first)),
            (down(Some(DownReason::Excluded)), Some(first)),
            (down(Some(DownReason::Behind)), Some(first)),
            (down(Some(DownReason::Lost)), None),
            (down(None), None),
            ((TargetState::DownOut, None), None),
            ((TargetState::Up, None), Some(first)),
        ] {
            let target = &mut map.targets[first.0 as usize];
            (target.state, target.reason) = (state, reason);
            assert_eq!(placed.leader(0, &map), leader, "{state:?} {reason:?}");
        }
    }
}

#[test]
fn striped_objects_are_clamped_to_the_targets() {
    for (class, target_count, groups) in [
        ("S4", 2, 2),
        ("S4", 4, 4),
        ("S4", 9, 4),
        ("SX", 7, 7),
        ("S6", 5, 5),
        ("S1", 5, 1),
        ("S128", 1, 1),
    ] {
        let map = flat(target_count);
        let layout = layout(oid(3, class, 0), &map).unwrap();
        assert_eq!(layout.group_count(), groups, "{class} over {target_count}");
        let distinct: BTreeSet<_> = layout.targets().iter().collect();
        assert_eq!(distinct.len(), groups, "{class} over {target_count}");
    }
}

#[test]
fn the_groups_of_narrow_classes_begin_those_of_wide_ones() {
    let map = flat(16);
    for number in 0..500 {
        let all = layout(oid(number, "SX", 0), &map).unwrap();
        for class in ["S1", "S2", "S6", "S12"] {
            let some = layout(oid(number, class, 0), &map).unwrap();
            assert_eq!(some.targets(), &all.targets()[..some.group_count()]);
        }
    }
}

#[test]
fn integer_dkeys_go_round_and_others_spread() {
    let map = flat(6);
    let array = Oid::generate(0, 1, ObjType::ArrayByte, "SX".parse().unwrap(), 0);
    let layout = layout(array, &map).unwrap();
    for chunk in 0..100u64 {
        let dkey = (chunk + 1).to_le_bytes();
        assert_eq!(layout.group_of(array, &dkey), (chunk % 6) as usize);
    }
    assert!(layout.group_of(array, &0u64.to_le_bytes()) < 6);
    assert!(layout.group_of(array, b"not an integer") < 6);

    let directory = Oid::generate(0, 1, ObjType::MultiHashed, "SX".parse().unwrap(), 0);
    let mut counts = [0u64; 6];
    for number in 0..60_000 {
        counts[layout.group_of(directory, format!("file.{number}").as_bytes())] += 1;
    }
    for count in counts {
        assert!((9_600..10_400).contains(&count), "{counts:?}");
    }
}

#[test]
fn layouts_and_groups_are_frozen() {
    // Stored objects are found by these functions: a change here loses them.
    let map = map_of(&[(&["r0"], 4), (&["r1"], 4), (&["r2"], 4)]);
    let mut seen = BTreeMap::new();
    for class in ["S1", "S4", "SX", "RP_2G1", "RP_3GX", "EC_2P1G2"] {
        let mut sum = 0;
        for number in 0..1_000 {
            for target in layout(oid(number, class, 0), &map).unwrap().targets() {
                sum = hash::mix2(sum, target.0 as u64);
            }
        }
        seen.insert(class, sum);
    }
    let wide = layout(oid(7, "SX", 0), &map).unwrap();
    let order: Vec<u32> = wide.targets().iter().map(|target| target.0).collect();
    assert_eq!(order, [11, 4, 2, 8, 0, 6, 1, 10, 3, 5, 7, 9]);
    let lexical = Oid::generate(0, 7, ObjType::DkeyLexical, ObjClass::SX, 0);
    let groups: Vec<usize> =
        ["a", "b", "c", "dkey", ""].map(|dkey| wide.group_of(lexical, dkey.as_bytes())).to_vec();
    assert_eq!(groups, [9, 10, 2, 11, 7]);
    let frozen = BTreeMap::from([
        ("S1", 17_367_404_615_061_583_674),
        ("S4", 1_466_431_945_787_190_678),
        ("SX", 5_144_934_119_153_069_220),
        ("RP_2G1", 4_445_911_613_800_794_918),
        ("RP_3GX", 14_401_425_988_316_359_637),
        ("EC_2P1G2", 4_292_381_700_227_482_480),
    ]);
    assert_eq!(seen, frozen);
}

#[test]
fn hints_land_where_asked() {
    let mut map = flat(16);
    map.placements[0].weights[3].1 = NORM / 20;
    map.placements[0].weights[5].1 = 0;
    let table = HintTable::new(&map);
    assert_eq!(table.epoch(), 0);
    for target in (0..16).map(TargetId) {
        if target == TargetId(5) {
            assert_eq!(hint_for(target, 0, &map, 0), None);
            assert_ne!(table.pick(target, 1), table.pick(target, 2));
            continue;
        }
        let mut distinct = BTreeSet::new();
        for random in 0..200u64 {
            let hint = table.pick(target, hash::mix(random));
            distinct.insert(hint);
            for class in ["S1", "SX"] {
                let hinted = oid(random, class, 0).with_placement_hint(hint);
                assert_eq!(layout(hinted, &map).unwrap().home(), target);
            }
        }
        assert!(distinct.len() >= 3, "{target}: {distinct:?}");
        for nth in 0..3 {
            let hint = hint_for(target, 0, &map, nth).unwrap();
            let hinted = oid(1, "S4", 0).with_placement_hint(hint);
            assert_eq!(layout(hinted, &map).unwrap().home(), target);
        }
        assert_ne!(hint_for(target, 0, &map, 0), hint_for(target, 0, &map, 1));
    }
    assert_eq!(hint_for(TargetId(99), 0, &map, 0), None);
    assert_eq!(hint_for(TargetId(1), 7, &map, 0), None);
}

#[test]
fn classes_are_checked_against_the_container() {
    let map = flat(2);
    let code = |class: &str, rd_fac| {
        let props = ContProps { rd_fac, ..ContProps::default() };
        check_class(class.parse().unwrap(), &props, &map).map_err(|error| error.code)
    };
    assert_eq!(code("S1", 0), Ok(()));
    assert_eq!(code("S128", 0), Ok(()));
    assert_eq!(code("SX", 1), Err(Code::Redundancy));
    assert_eq!(code("RP_2GX", 1), Ok(()));
    assert_eq!(code("RP_2G1", 2), Err(Code::Redundancy), "weaker than demanded");
    assert_eq!(code("RP_3G1", 1), Err(Code::Redundancy), "more copies than targets");
    assert_eq!(code("EC_2P1G1", 0), Err(Code::Redundancy), "more cells than targets");
    assert_eq!(
        code("EC_2P1GX+1MiB", 0),
        Err(Code::Redundancy),
        "the same of what follows a first part"
    );
}

/// A drained target is to be taken away, and placement epochs go on naming it: objects of classes with more members than there are other
/// targets had one on it. They are refused; of those that fit none has one there, also where targets were added since.
#[test]
fn a_class_needs_enough_targets_that_are_not_drained() {
    let mut map = flat(4);
    let out = |is_drained| OutTarget { target: TargetId(1), round: 2, epoch: 0, is_drained };
    let code = |map: &PoolMap, class: &str| {
        check_class(class.parse().unwrap(), &ContProps::default(), map).map_err(|error| error.code)
    };
    map.outs = vec![out(false)];
    assert_eq!(code(&map, "RP_4G1"), Ok(()), "one that was lost may come back");
    map.outs = vec![out(true)];
    map.passed = vec![PassedSpare { round: 2, target: TargetId(1) }];
    for class in ["RP_4G1", "EC_2P2GX", "RP_5G1"] {
        assert_eq!(code(&map, class), Err(Code::Redundancy), "{class}");
    }
    assert_eq!(code(&map, "RP_3G1"), Ok(()));
    let mut grown = flat(5);
    grown.placements.insert(0, map.placements[0].clone());
    grown.placements[1].epoch = 1;
    (grown.outs, grown.passed) = (map.outs.clone(), map.passed.clone());
    assert_eq!(code(&grown, "RP_4G1"), Ok(()));
    assert_eq!(code(&grown, "RP_5G1"), Err(Code::Redundancy));
    for (map, class, epoch) in [(&map, "RP_3G1", 0), (&grown, "RP_4G1", 1), (&grown, "EC_2P2G1", 1)]
    {
        for number in 0..500 {
            let oid = oid(number, class, epoch);
            assert!(
                !layout(oid, map).unwrap().targets().contains(&TargetId(1)),
                "{class} {number}"
            );
            let is_coded = class.starts_with("EC");
            let cells = is_coded.then(|| cell_layout(oid, map).unwrap());
            assert!(cells.is_none_or(|cells| !cells.targets().contains(&TargetId(1))), "{number}");
        }
    }
}

/// A file is made where its name is: on all members of the group, in their order. A hint for the first member alone
/// would make most removals transactions.
#[test]
fn hints_are_found_for_whole_groups() {
    for (map, class) in [
        (map_of(&[(&["a"], 1), (&["b"], 1), (&["c"], 1)]), "RP_2G1"),
        (map_of(&[(&["a"], 4), (&["b"], 4), (&["c"], 4)]), "RP_3GX"),
        (flat(8), "RP_2GX"),
    ] {
        let class: ObjClass = class.parse().unwrap();
        for number in 0..20 {
            let entry = layout(oid(number, &class.to_string(), 0), &map).unwrap();
            for group in 0..entry.group_count() {
                let members = entry.members(group);
                let Some(hint) = hint_beside(members, class, &map, number as u32) else {
                    // Groups behind the first may combine targets that no first group does.
                    assert!(group > 0, "no hint for {members:?}");
                    continue;
                };
                let file = oid(77, &class.to_string(), 0).with_placement_hint(hint);
                assert_eq!(layout(file, &map).unwrap().members(0), members);
            }
        }
        assert_eq!(hint_beside(&[map.targets[0].id], class, &map, 0), None, "another width");
    }
}

#[test]
fn bad_ids_and_unknown_epochs_are_errors() {
    let map = flat(2);
    assert_eq!(layout(oid(1, "S1", 4), &map).unwrap_err().code, Code::Stale);
    assert_eq!(layout(oid(1, "RP_3G1", 0), &map).unwrap_err().code, Code::Redundancy);
    let nonsense = Oid { hi: 0x0055_4000_0000_0000, lo: 1 };
    assert_eq!(layout(nonsense, &map).unwrap_err().code, Code::Inval);
    let mut torn = flat(2);
    torn.engines.clear();
    assert_eq!(layout(oid(1, "RP_2G1", 0), &torn).unwrap_err().code, Code::Inval);
}

#[test]
fn uneven_racks_keep_replicas_apart() {
    // Taking unused targets first would at the end leave two targets of the large rack for one
    // group.
    let map = map_of(&[(&["a"], 6), (&["b"], 2), (&["c"], 2)]);
    for number in 0..500 {
        let layout = layout(oid(number, "RP_2GX", 0), &map).unwrap();
        assert_eq!(layout.group_count(), 5);
        assert_apart(&layout, &map);
    }
}

/// Six cells of which two may go were three, two and one on three engines: the loss of one took data with it.
#[test]
fn where_domains_are_too_few_each_gets_members_in_turn() {
    let racks: Vec<[&str; 1]> = vec![["a"], ["b"], ["c"], ["a"], ["b"], ["c"]];
    let engines: Vec<(&[&str], u32)> = racks.iter().map(|rack| (&rack[..], 3)).collect();
    for (map, depth) in [
        (map_of(&[(&[], 4), (&[], 2), (&[], 3)]), 1),
        (map_of(&engines), 1),
        (map_of(&engines), 2),
        (map_of(&[(&["a"], 8), (&["b"], 4), (&["b"], 4)]), 1),
    ] {
        let domains: BTreeSet<_> =
            map.targets.iter().map(|target| domain_of(target.id, &map, depth)).collect();
        for (number, class) in (0..300).zip(["EC_4P2GX", "EC_4P2G1", "RP_4GX"].iter().cycle()) {
            let oid = oid(number, class, 0);
            let layout = cell_layout(oid, &map).or_else(|_| layout(oid, &map)).unwrap();
            let width = layout.members(0).len();
            for group in 0..layout.group_count() {
                let mut held = BTreeMap::new();
                for target in layout.members(group) {
                    *held.entry(domain_of(*target, &map, depth)).or_insert(0) += 1;
                }
                let most = held.values().max().unwrap();
                let even = width.div_ceil(domains.len());
                assert_eq!(*most, even, "{class}, group {:?}", layout.members(group));
            }
        }
    }
}

/// Members of a group share no domain of any level that has enough domains.
fn assert_apart(layout: &Layout, map: &PoolMap) {
    let width = layout.members(0).len();
    // The engine is the last level.
    let deepest = map.engines.iter().map(|engine| engine.domain.len() + 1).max().unwrap_or(1);
    for depth in 1..=deepest {
        let domains: BTreeSet<_> = map.placements[0]
            .weights
            .iter()
            .map(|&(target, _)| domain_of(target, map, depth))
            .collect();
        if domains.len() < width {
            continue;
        }
        for group in 0..layout.group_count() {
            let used: BTreeSet<_> =
                layout.members(group).iter().map(|&target| domain_of(target, map, depth)).collect();
            assert_eq!(used.len(), width, "depth {depth}, group {:?}", layout.members(group));
        }
    }
}

proptest! {
    #[test]
    fn groups_are_well_formed_in_any_pool(
        shape in prop::collection::vec((0u8..3, 0u8..4, 1u32..5), 1..9),
        number: u64,
        class in prop::sample::select(vec!["S1", "S8", "SX", "RP_2G1", "RP_2GX", "RP_3G4", "RP_6GX", "EC_4P2GX"]),
    ) {
        let names: Vec<[String; 2]> =
            shape.iter().map(|(rack, node, _)| [format!("rack{rack}"), format!("node{node}")]).collect();
        let paths: Vec<[&str; 2]> = names.iter().map(|[rack, node]| [rack.as_str(), node.as_str()]).collect();
        let engines: Vec<(&[&str], u32)> =
            paths.iter().zip(&shape).map(|(path, (_, _, count))| (&path[..], *count)).collect();
        let map = map_of(&engines);
        let class: ObjClass = class.parse().unwrap();
        let width = class.scheme.members();
        let object = Oid::generate(1, number, ObjType::DkeyU64, class, 0);
        match layout(object, &map) {
            Err(error) => {
                prop_assert_eq!(error.code, Code::Redundancy);
                prop_assert!(map.targets.len() < width);
            }
            Ok(layout) => {
                let groups_max = map.targets.len() / width;
                let groups = match class.groups {
                    types::GroupCount::All
                    | types::GroupCount::AllBeyond { .. }
                    | types::GroupCount::AllPast { .. } => groups_max,
                    types::GroupCount::Count(count) => groups_max.min(count as usize),
                };
                prop_assert_eq!(layout.group_count(), groups);
                for group in 0..groups {
                    let distinct: BTreeSet<_> = layout.members(group).iter().collect();
                    prop_assert_eq!(distinct.len(), class.scheme.copies());
                }
                assert_apart(&layout, &map);
                if let Ok(cells) = cell_layout(object, &map) {
                    prop_assert_eq!(cells.group_count(), groups);
                    for group in 0..groups {
                        let distinct: BTreeSet<_> = cells.members(group).iter().collect();
                        prop_assert_eq!(distinct.len(), width);
                        prop_assert!(cells.members(group).starts_with(layout.members(group)));
                    }
                    assert_apart(&cells, &map);
                }
            }
        }
    }

    /// Paths of domains are of any depth, also in one pool: hall, row, rack, chassis, node; and some engines say less of where
    /// they are than others.
    #[test]
    fn domains_of_any_depth_keep_members_apart(
        shape in prop::collection::vec((prop::collection::vec(0u8..3, 0..8), 1u32..4), 1..14),
        number: u64,
        class in prop::sample::select(vec!["RP_2G1", "RP_2GX", "RP_3GX", "RP_4G2", "RP_6GX", "EC_2P1GX", "EC_4P2GX"]),
    ) {
        let names: Vec<Vec<String>> = shape
            .iter()
            .map(|(path, _)| path.iter().enumerate().map(|(level, at)| format!("l{level}d{at}")).collect())
            .collect();
        let paths: Vec<Vec<&str>> =
            names.iter().map(|path| path.iter().map(String::as_str).collect()).collect();
        let engines: Vec<(&[&str], u32)> =
            paths.iter().zip(&shape).map(|(path, (_, count))| (&path[..], *count)).collect();
        let map = map_of(&engines);
        let class: ObjClass = class.parse().unwrap();
        let object = Oid::generate(1, number, ObjType::DkeyU64, class, 0);
        match layout(object, &map) {
            Err(error) => prop_assert_eq!(error.code, Code::Redundancy),
            Ok(layout) => assert_apart(&layout, &map),
        }
        if let Ok(cells) = cell_layout(object, &map) {
            assert_apart(&cells, &map);
        }
    }

    /// The groups of an object that spreads have the hashes one after the other, each as many as the others.
    #[test]
    fn groups_of_what_spreads_are_ranges_of_hashes(targets in 1..40u32, number: u64, name: Vec<u8>) {
        let object = Oid::generate(1, number, ObjType::MultiHashed, "SX@8".parse().unwrap(), 0);
        let layout = layout(object, &flat(targets)).unwrap();
        prop_assert_eq!(layout.group_count(), targets as usize);
        let mut next = 0u128;
        for group in 0..layout.group_count() {
            let (first, last) = layout.hashes_of(group);
            prop_assert_eq!(first as u128, next);
            prop_assert_eq!((layout.group_of_hash(first), layout.group_of_hash(last)), (group, group));
            let even = (1u128 << 64) / targets as u128;
            prop_assert!(last as u128 + 1 - next - even <= 1);
            next = last as u128 + 1;
        }
        prop_assert_eq!(next, 1 << 64);
        let (first, last) = layout.hashes_of(layout.group_of(object, &name));
        prop_assert!((first..=last).contains(&hash::bytes(&name)));
    }

    /// What many progressive files have beyond their first parts is the same on each target, wherever their first
    /// parts are, and one file goes round all targets.
    #[test]
    fn progressive_files_take_the_same_of_each_target(
        targets in 1..20u32, seed: u64, first in 0..1u64 << 40, file_count in 1..100u64,
    ) {
        let map = flat(targets);
        let mut chunks = BTreeMap::<TargetId, u64>::new();
        for number in first..first + file_count {
            let hint = hash::mix2(seed, number) as u32;
            let oid = oid(number, "SX+1MiB", 0).with_placement_hint(hint);
            let near = layout(oid.first_unit().placed_as(), &map).unwrap();
            let layout = layout(oid, &map).unwrap();
            prop_assert_eq!(near.members(0), layout.members(0));
            prop_assert_eq!(layout.group_of(oid, &0u64.to_le_bytes()), 0);
            let round = (2..2 + targets as u64).map(|dkey| {
                layout.members(layout.group_of(oid, &dkey.to_le_bytes()))[0]
            });
            let round: Vec<TargetId> = round.collect();
            prop_assert_eq!(round.iter().collect::<BTreeSet<_>>().len(), targets as usize);
            *chunks.entry(round[0]).or_default() += 1;
        }
        let even = file_count / targets as u64;
        for target in 0..targets {
            let count = chunks.get(&TargetId(target)).copied().unwrap_or(0);
            prop_assert!((even..=even + 1).contains(&count), "{count} of {file_count}");
        }
    }

    #[test]
    fn the_order_of_the_set_does_not_matter(number: u64, seed: u64) {
        let map = flat(12);
        let mut shuffled = map.clone();
        shuffled.placements[0].weights.sort_by_key(|(id, _)| hash::mix2(seed, id.0 as u64));
        for class in ["S1", "S4", "SX", "RP_3GX"] {
            prop_assert_eq!(
                layout(oid(number, class, 0), &map).unwrap(),
                layout(oid(number, class, 0), &shuffled).unwrap()
            );
        }
    }

    #[test]
    fn removing_a_target_moves_only_what_it_held(number: u64, gone in 0u32..12) {
        let map = flat(12);
        let mut less = map.clone();
        less.placements[0].weights.retain(|(id, _)| *id != TargetId(gone));
        let before = layout(oid(number, "SX", 0), &map).unwrap();
        let after = layout(oid(number, "SX", 0), &less).unwrap();
        let rest: Vec<_> =
            before.targets().iter().copied().filter(|id| *id != TargetId(gone)).collect();
        prop_assert_eq!(after.targets(), &rest[..]);
    }
}

/// What is said of the worst group holds for all that are drawn, and some are that bad.
#[test]
fn losses_are_those_of_the_worst_object() {
    let reasons = [DownReason::Silent, DownReason::Behind, DownReason::Lost, DownReason::Excluded];
    for seed in 0..400u64 {
        let mut random = (0..).map(|at| hash::mix2(seed, at) as usize);
        let mut map = match seed % 3 {
            0 => map_of(&[(&["a"], 2), (&["b"], 1), (&["c"], 1), (&["d"], 1)]),
            1 => map_of(&[(&["a", "x"], 1), (&["a", "y"], 2), (&["b", "z"], 1), (&["c", "w"], 1)]),
            _ => map_of(&[(&[], 2), (&[], 2)]),
        };
        let lost = random.next().unwrap() % 4;
        for _ in 0..lost {
            let at = random.next().unwrap() % map.targets.len();
            let target = &mut map.targets[at];
            target.state = TargetState::Down;
            target.reason = Some(reasons[random.next().unwrap() % 4]);
            target.left = 1 + (random.next().unwrap() % 3) as u32;
        }
        let silent = Rank((random.next().unwrap() % 8) as u32);
        let answers = |rank: Rank| rank != silent;
        for (class, width) in [("S1", 1), ("RP_2G1", 2), ("RP_3G1", 3), ("RP_4G1", 4)] {
            let told = losses(width, &map, answers);
            let (mut least, mut is_unavailable) = (width, false);
            for number in 0..600 {
                let layout = layout(oid(number, class, 0), &map).unwrap();
                let answers_for = |&target: &TargetId| answers(map.target(target).unwrap().rank);
                let leader = layout.leader(0, &map);
                let is_whole = |target: &&TargetId| {
                    answers_for(target)
                        && match width {
                            1 => leader == Some(**target),
                            _ => is_live(**target, &map),
                        }
                };
                let left = layout.members(0).iter().filter(is_whole).count();
                least = least.min(left);
                // While somebody whole does not answer, the others wait until that one is called down.
                let candidates = layout.members(0).iter().filter(is_whole).count();
                is_unavailable |= candidates == 0 && !leader.is_some_and(|one| answers_for(&one));
            }
            assert_eq!(told.copies_left, least, "seed {seed}, {class}: {map:?}, silent {silent}");
            assert_eq!(
                told.is_unavailable, is_unavailable,
                "seed {seed}, {class}: {map:?}, silent {silent}"
            );
        }
    }
}
