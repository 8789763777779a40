//! Targets for layouts: a pool map and an object id both come from outside, and a layout is
//! computed from them before anybody has looked at them.

use crate::target::Target;
use placement::layout;
use types::{Oid, PoolId, Rank, TargetId};
use wire::map::{EngineInfo, OutTarget, PlacementSet, PoolMap, TargetInfo, TargetState};

/// A layout may name every target of the map several times over, and tables are made on the way.
const AMPLIFICATION: usize = 512;

/// All targets of the `placement` crate.
pub fn all() -> Vec<Target> {
    vec![Target { name: "layout", run: lay_out, seeds, amplification_max: AMPLIFICATION }]
}

/// Object ids of every kind of class in front of a map with room for all of them.
fn seeds() -> Vec<Vec<u8>> {
    let target = |id| {
        let (rank, state) = (Rank(id / 2), TargetState::Up);
        TargetInfo {
            id: TargetId(id),
            rank,
            state,
            incarnation: 0,
            since: 0,
            reason: None,
            left: 0,
        }
    };
    let engine = |rank| EngineInfo {
        rank: Rank(rank),
        tcp: String::new(),
        unix: String::new(),
        host: String::new(),
        domain: vec![format!("rack{}", rank / 2), format!("node{rank}")],
    };
    let map = wire::encode(&PoolMap {
        pool: PoolId(1),
        version: 3,
        engines: (0..4).map(engine).collect(),
        targets: (0..8).map(target).collect(),
        placements: (1..4)
            .map(|epoch| PlacementSet {
                epoch,
                weights: (0..4 + 2 * epoch as u32)
                    .map(|id| (TargetId(id), 60_000 + 1_000 * id))
                    .collect(),
            })
            .collect(),
        outs: vec![OutTarget { target: TargetId(1), round: 2, epoch: 1, is_drained: false }],
        next: Some(
            (1..3)
                .map(|id| OutTarget {
                    target: TargetId(id),
                    round: id,
                    epoch: 1,
                    is_drained: id == 1,
                })
                .collect(),
        ),
        balanced: 2,
        next_balanced: 3,
        passed: Vec::new(),
        next_passed: Vec::new(),
    });
    let ids = ["S1", "S4", "SX", "RP_3GX", "EC_4P2G2"].iter().zip(1..).map(|(class, at)| {
        let class = class.parse().expect("a class");
        Oid::generate(at, 7, types::ObjType::ArrayByte, class, 1)
    });
    ids.map(|oid| [&oid.to_bytes()[..], &map].concat()).collect()
}

/// Whatever the map and the id, a layout is an error or names targets of the map only.
fn lay_out(bytes: &[u8]) {
    let Some((raw, map)) = bytes.split_first_chunk::<16>() else { return };
    let Ok(map) = wire::decode::<PoolMap>(map) else { return };
    let oid = Oid::from_bytes(*raw);
    let Ok(made) = layout(oid, &map) else { return };
    assert!(made.group_count() > 0, "a layout without a group");
    for dkey in [&b""[..], b"name", &1u64.to_le_bytes(), &u64::MAX.to_le_bytes()] {
        let group = made.group_of(oid, dkey);
        for member in made.members(group) {
            let known = map.placements.iter().flat_map(|set| &set.weights);
            assert!(known.into_iter().any(|(id, _)| id == member), "a target of no set");
        }
        let _ = (made.leader(group, &map), map.engine_of(made.home()));
    }
}
