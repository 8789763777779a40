//! Balance where targets are weighed by what was measured of them: half of them twelve times as fast as the others, as in
//! the experiment of the paper that the score is from.

use placement::{Measured, layout, score, weights};
use proptest::prelude::*;
use std::collections::BTreeMap;
use types::{ObjType, Oid, PoolId, Rank, TargetId};
use wire::map::{EngineInfo, PlacementSet, PoolMap, TargetInfo, TargetState};

const FAST_KB_S: u64 = 2_400_000;
const SLOW_KB_S: u64 = 200_000;

/// Every second target is fast, the first is.
fn is_fast(target: TargetId) -> bool {
    target.0.is_multiple_of(2)
}

/// A pool with an engine for each target, weighed by score.
fn pool(target_count: u32) -> PoolMap {
    let ids = || (0..target_count).map(TargetId);
    let worth: Vec<(TargetId, u64)> = ids()
        .map(|id| {
            let rate = if is_fast(id) { FAST_KB_S } else { SLOW_KB_S };
            let of = Measured {
                free_kb: 200_000_000,
                read_kb_s: rate,
                write_kb_s: rate,
                network_kb_s: None,
            };
            (id, score(of))
        })
        .collect();
    let engine = |id: TargetId| EngineInfo {
        rank: Rank(id.0),
        tcp: format!("node{id}:10301"),
        unix: String::new(),
        host: format!("host{id}"),
        domain: Vec::new(),
    };
    let target = |id: TargetId| TargetInfo {
        id,
        rank: Rank(id.0),
        state: TargetState::Up,
        since: 0,
        reason: None,
        left: 0,
        incarnation: 0,
    };
    PoolMap {
        pool: PoolId(1),
        version: 1,
        engines: ids().map(engine).collect(),
        targets: ids().map(target).collect(),
        placements: vec![PlacementSet { epoch: 0, weights: weights(&worth) }],
        outs: Vec::new(),
        next: None,
        balanced: 0,
        next_balanced: 0,
        passed: Vec::new(),
        next_passed: Vec::new(),
    }
}

/// How many of these objects each target has the first group of, or leads it.
fn counts(map: &PoolMap, class: &str, numbers: std::ops::Range<u64>) -> BTreeMap<TargetId, u64> {
    let mut counts = BTreeMap::new();
    for number in numbers {
        let oid = Oid::generate(0, number, ObjType::DkeyU64, class.parse().unwrap(), 0);
        *counts.entry(layout(oid, map).unwrap().home()).or_insert(0) += 1;
    }
    counts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    /// Single copies, and leaders of groups of three: a target gets what its weight is of all weights, give or take
    /// five standard deviations.
    #[test]
    fn targets_get_what_they_are_worth(first in 0u64..1 << 40, size in 0usize..3, copies in any::<bool>()) {
        let (target_count, object_count) = [(3, 20_000), (30, 20_000), (1_000, 10_000)][size];
        let map = pool(target_count);
        let class = if copies { "RP_3G1" } else { "S1" };
        let counts = counts(&map, class, first..first + object_count);
        let all: u64 = map.placements[0].weights.iter().map(|(_, weight)| *weight as u64).sum();
        for &(target, weight) in &map.placements[0].weights {
            let share = weight as f64 / all as f64;
            let fair = object_count as f64 * share;
            let sigma = (fair * (1.0 - share)).sqrt();
            let got = counts.get(&target).copied().unwrap_or(0) as f64;
            // Few expected: the tail of so small a count is longer than a normal one's.
            let slack = 5.0 * sigma + 5.0;
            prop_assert!((got - fair).abs() <= slack, "target {target}: {got} objects, fair {fair}");
        }
    }

    /// Fast targets together get twelve times what slow ones do, for each of theirs.
    #[test]
    fn twelve_times_as_fast_is_twelve_times_as_much(first in 0u64..1 << 40, size in 0usize..3) {
        let target_count = [3u32, 30, 1_000][size];
        let map = pool(target_count);
        let counts = counts(&map, "S1", first..first + 40_000);
        let of = |fast: bool| -> (f64, f64) {
            let some = counts.iter().filter(|(target, _)| is_fast(**target) == fast);
            let targets = (0..target_count).filter(|id| is_fast(TargetId(*id)) == fast).count();
            (some.map(|(_, count)| *count as f64).sum(), targets as f64)
        };
        let ((fast, fast_targets), (slow, slow_targets)) = (of(true), of(false));
        let ratio = fast / fast_targets / (slow / slow_targets);
        prop_assert!((10.5..13.7).contains(&ratio), "{ratio}");
    }
}

/// Who leads serves all reads of its group and has them in its memory. Leaders go by weight; of groups from before the weights changed, too, once the
/// pool is balanced.
#[test]
fn leaders_follow_weights_that_change() {
    let weighed = pool(30);
    let mut map = weighed.clone();
    map.placements[0].weights.iter_mut().for_each(|(_, weight)| *weight = 65_536);
    map.placements.push(PlacementSet { epoch: 1, ..weighed.placements[0].clone() });
    let fast_part = |map: &PoolMap| {
        let counts = counts(map, "RP_3G1", 0..20_000);
        let fast = counts.iter().filter(|(target, _)| is_fast(**target));
        fast.map(|(_, count)| *count as f64).sum::<f64>() / 20_000.0
    };
    let fair = 12.0 / 13.0;
    assert!((fast_part(&weighed) - fair).abs() < 0.02, "{}", fast_part(&weighed));
    assert!((fast_part(&map) - 0.5).abs() < 0.02, "{}", fast_part(&map));
    map.balanced = 1;
    map.next_balanced = 1;
    // A little less than is fair: what would go to a member of the same group stays.
    let followed = fast_part(&map);
    assert!((0.84..fair + 0.02).contains(&followed), "{followed}");
}
