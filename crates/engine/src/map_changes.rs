//! The last changes of a pool's map: they go with each refusal of a request that was sent with an older one, so that
//! the client needs no further round trip, and nobody else, to go on.

use std::cell::RefCell;
use std::collections::VecDeque;
use wire::map::PoolMap;
use wire::map_change::MapChange;
use wire::stale::NewerMap;

/// So many changes are remembered.
const KEPT_MAX: usize = 16;
/// Changes that are larger together than this, encoded, are not sent with a refusal: many requests of one client may be refused
/// at once.
const CHANGES_BYTES_MAX: usize = 32 << 10;
/// A whole map is sent with a refusal if it has no more targets; each takes some twenty bytes.
const WHOLE_TARGETS_MAX: usize = 1024;

/// Each made from the map that the one before leads to; the last leads to the map that is known.
#[derive(Default)]
pub(crate) struct MapChanges(RefCell<VecDeque<MapChange>>);

impl MapChanges {
    /// `map` has come in the place of `before`.
    pub fn note(&self, before: Option<&PoolMap>, map: &PoolMap) {
        let mut kept = self.0.borrow_mut();
        match before.and_then(|before| before.change_to(map)) {
            Some(change) => {
                kept.push_back(change);
                if kept.len() > KEPT_MAX {
                    kept.pop_front();
                }
            }
            // Nothing leads there from any earlier one.
            None => kept.clear(),
        }
    }

    /// The way from the map of a version to `map`, which is the newest known; `None` when there is none, or it is long.
    pub fn since(&self, version: u32, map: &PoolMap) -> Option<NewerMap> {
        if version >= map.version {
            return None;
        }
        let kept = self.0.borrow();
        if let Some(at) = kept.iter().position(|change| change.from == version) {
            let changes = NewerMap::Changes(kept.range(at..).cloned().collect());
            if wire::encode(&changes).len() <= CHANGES_BYTES_MAX {
                return Some(changes);
            }
        }
        (map.targets.len() <= WHOLE_TARGETS_MAX).then(|| NewerMap::Whole(map.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{PoolId, Rank, TargetId};
    use wire::map::{EngineInfo, TargetInfo, TargetState};

    /// A map with so many targets, one more of which is down with each version.
    fn map(version: u32, targets: u32) -> PoolMap {
        let target = |at: u32| TargetInfo {
            id: TargetId(at),
            rank: Rank(0),
            state: if at < version { TargetState::Down } else { TargetState::Up },
            since: 0,
            reason: None,
            left: 0,
            incarnation: 1,
        };
        let engine = EngineInfo {
            rank: Rank(0),
            tcp: "a:1".into(),
            unix: String::new(),
            host: String::new(),
            domain: Vec::new(),
        };
        PoolMap {
            pool: PoolId(1),
            version,
            engines: vec![engine],
            targets: (0..targets).map(target).collect(),
            placements: Vec::new(),
            outs: Vec::new(),
            next: None,
            balanced: 0,
            next_balanced: 0,
            passed: Vec::new(),
            next_passed: Vec::new(),
        }
    }

    /// Whoever has one of the last maps gets changes, others the whole map where it is small, and both come to the newest.
    #[test]
    fn each_older_map_leads_to_the_newest_unless_that_is_much() {
        for targets in [100, 5000] {
            let changes = MapChanges::default();
            let newest = 40;
            for version in 1..=newest {
                let before = (version > 1).then(|| map(version - 1, targets));
                changes.note(before.as_ref(), &map(version, targets));
            }
            let now = map(newest, targets);
            assert_eq!(changes.since(newest, &now), None);
            for version in 1..newest {
                let is_kept = version + KEPT_MAX as u32 >= newest;
                match changes.since(version, &now) {
                    Some(newer) => {
                        assert_eq!(matches!(newer, NewerMap::Changes(_)), is_kept, "{version}");
                        assert_eq!(newer.from_known(&map(version, targets)), Some(now.clone()));
                    }
                    None => assert!(!is_kept && targets > 1024, "{version}"),
                }
            }
        }
    }

    /// A target left the map: no change says that, so none of before leads to what is now.
    #[test]
    fn what_no_change_can_say_is_told_whole() {
        let changes = MapChanges::default();
        changes.note(None, &map(1, 10));
        changes.note(Some(&map(1, 10)), &map(2, 10));
        changes.note(Some(&map(2, 10)), &map(3, 9));
        let whole = NewerMap::Whole(map(3, 9));
        assert_eq!(changes.since(1, &map(3, 9)), Some(whole.clone()));
        assert_eq!(changes.since(2, &map(3, 9)), Some(whole));
    }
}
