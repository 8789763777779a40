//! What becomes of the distance between members of groups when targets are drained.

use client::Pool;
use std::collections::BTreeSet;
use types::{Result, TargetId};
use wire::map::{PoolMap, TargetInfo};

/// A word of warning where targets are drained whose fault domains are needed: groups that had a member in each go on
/// with several in one. `None`: all are as far apart as before.
///
/// Errors: those of asking for the pool's containers.
pub fn warning(pool: &Pool, targets: &[TargetId]) -> Result<Option<String>> {
    let conts = pool.client().block_on(pool.cont_list())?;
    let members = conts.iter().map(|cont| {
        let props = &cont.props;
        let classes = [props.oclass, props.dir_oclass, props.file_oclass];
        let widest = classes.iter().map(|class| class.scheme.members()).max().unwrap_or(1);
        widest.max(usize::from(props.rd_fac) + 1)
    });
    let members = members.max().unwrap_or(1);
    Ok(lost(&pool.map(), targets, members).map(|(left, of)| {
        format!(
            "Warning: {left} fault {} left beside '{of}', and groups of the pool's containers have up to {members} members: \
             some will have several in one, which are lost together with it.",
            if left == 1 { "domain is" } else { "domains are" }
        )
    }))
}

/// The outermost level at which a domain is left without targets though it takes more than are left to keep `members` apart: how many are left, and the
/// one that goes.
fn lost(map: &PoolMap, targets: &[TargetId], members: usize) -> Option<(usize, String)> {
    let is_out =
        |id: TargetId| map.outs.iter().chain(map.next.iter().flatten()).any(|out| out.target == id);
    let serving = || map.targets.iter().filter(|target| !is_out(target.id));
    let at = |level: usize, target: &TargetInfo| -> Option<Vec<String>> {
        let path = &map.engine_of(target.id)?.domain;
        Some(path.get(..=level)?.to_vec())
    };
    let levels = map.engines.iter().map(|engine| engine.domain.len()).max().unwrap_or(0);
    (0..levels).find_map(|level| {
        let before: BTreeSet<_> = serving().filter_map(|target| at(level, target)).collect();
        let stays = serving().filter(|target| !targets.contains(&target.id));
        let after: BTreeSet<_> = stays.filter_map(|target| at(level, target)).collect();
        let goes = before.difference(&after).next().filter(|_| after.len() < members)?;
        Some((after.len(), goes.join("/")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{PoolId, Rank};
    use wire::map::{EngineInfo, TargetState};

    /// An engine of one target for each, in a rack and on a host of its own.
    fn map(racks: &[&str]) -> PoolMap {
        let engine = |(at, rack): (u32, &&str)| EngineInfo {
            rank: Rank(at),
            tcp: String::new(),
            unix: String::new(),
            host: String::new(),
            domain: vec![rack.to_string(), format!("host{at}")],
        };
        let target = |at: u32| TargetInfo {
            id: TargetId(at),
            rank: Rank(at),
            state: TargetState::Up,
            since: 0,
            reason: None,
            left: 0,
            incarnation: 0,
        };
        PoolMap {
            pool: PoolId(1),
            version: 1,
            engines: (0..).zip(racks).map(engine).collect(),
            targets: (0..racks.len() as u32).map(target).collect(),
            placements: Vec::new(),
            outs: Vec::new(),
            next: None,
            balanced: 0,
            next_balanced: 0,
            passed: Vec::new(),
            next_passed: Vec::new(),
        }
    }

    #[test]
    fn the_last_of_a_rack_is_missed_where_racks_are_few() {
        let map = map(&["a", "a", "b", "b", "c"]);
        let drained = |of: &[u32], members| {
            let of: Vec<TargetId> = of.iter().copied().map(TargetId).collect();
            lost(&map, &of, members)
        };
        assert_eq!(drained(&[4], 3), Some((2, "c".into())));
        assert_eq!(drained(&[4], 2), None, "two racks are enough");
        assert_eq!(drained(&[0], 3), None, "another one of its rack is left");
        assert_eq!(drained(&[0], 5), Some((4, "a/host0".into())));
        assert_eq!(drained(&[0, 1, 4], 2), Some((1, "a".into())));
    }
}
