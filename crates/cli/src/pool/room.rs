//! Whether a pool has room for what is to move in it: looked at before, and shown meanwhile. The control service looks in the same way.

use super::rebuild::named;
use crate::session::Session;
use client::SpaceInfo;
use placement::{Filled, room_without};
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Duration;
use types::{Code, Error, Result, TargetId, size};
use wire::control::{Name, OpenMode, PoolInfo, TargetAim};
use wire::map::{DownReason, TargetState};
use wire::store::StoreStat;

/// What a target holds is not known when it does not say so within this time.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(3);

/// What targets of a pool hold, and the room that the others have.
pub struct Room {
    /// Of the targets that are meant, bytes; `None`: one gave no answer.
    pub used: Option<u64>,
    /// What the others may take of it, bytes.
    pub free: u64,
}

/// Asks all targets of a pool what they hold, for some that are to be emptied.
pub fn weigh(session: &Session, info: &PoolInfo, targets: &[TargetId]) -> Result<Room> {
    let pool = session.open_pool(&Name::Uuid(info.uuid), OpenMode::ReadOnly)?;
    let client = pool.client();
    let mut filled = Vec::new();
    // Nobody waits for one that is gone.
    let is_live = |target: &TargetId| placement::is_live(*target, &info.map);
    for target in info.map.targets.iter().map(|target| target.id).filter(is_live) {
        let asked = client.env().timeout(ANSWER_TIME_MAX, pool.query_one(target));
        if let Some(Ok(stat)) = client.block_on(asked) {
            filled.push(Filled::of(target, &stat));
        }
    }
    let has_told = |target: &TargetId| filled.iter().any(|of| of.target == *target);
    let room = room_without(&info.map, targets, &filled);
    Ok(Room { used: targets.iter().all(has_told).then_some(room.moving), free: room.free })
}

impl Room {
    /// `NoSpace` where the others have no room for what these targets hold.
    pub fn check(&self, info: &PoolInfo, targets: &[TargetId]) -> Result<()> {
        let Some(used) = self.used.filter(|used| *used > self.free) else { return Ok(()) };
        let numbers: Vec<u32> = targets.iter().map(|id| id.0).collect();
        let text = format!(
            "{} of pool '{}': there are {}, and the others have {} left; take in further targets first: 'azekura pool extend'",
            named(&numbers),
            info.label,
            size::format(used),
            size::format(self.free)
        );
        Err(Error::new(Code::NoSpace, text))
    }
}

/// What is still to move, and has no room.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lacking {
    /// What others are still to get, bytes, about.
    pub moving_bytes: u64,
    /// What they may take.
    pub free_bytes: u64,
    pub lacking_bytes: u64,
}

impl Lacking {
    /// Of what others come to stand in for, or will when it stays away. `has_copies`: what was lost can be made anew. `None`: there is room.
    pub fn of(
        info: &PoolInfo,
        space: &SpaceInfo,
        stats: &[(TargetId, Option<StoreStat>)],
        has_copies: bool,
    ) -> Option<Lacking> {
        let gone: Vec<TargetId> = goes(info, has_copies).into_iter().collect();
        let told = space.targets.iter();
        let filled: Vec<Filled> =
            told.filter_map(|of| Some(Filled::of(of.target, of.stat.as_ref()?))).collect();
        let room = room_without(&info.map, &gone, &filled);
        let got = stats.iter().filter_map(|(_, stat)| stat.as_ref()?.catching_up);
        let got: u64 = got.map(|stat| stat.bytes_mended).sum();
        let moving_bytes = room.moving.saturating_sub(got);
        let lacking_bytes = moving_bytes.saturating_sub(room.free);
        (lacking_bytes > 0).then_some(Lacking {
            moving_bytes,
            free_bytes: room.free,
            lacking_bytes,
        })
    }

    /// In a sentence, without its end.
    pub fn sentence(&self, pool: &str) -> String {
        format!(
            "there is too little room for about {} that are still to move: {} are lacking; take in further targets ('azekura pool extend {pool}'), \
             or remove what is not needed",
            size::format(self.moving_bytes),
            size::format(self.lacking_bytes)
        )
    }
}

/// True when others are to get something of a pool, or had no room for it: it is worth asking what targets hold.
pub fn may_lack(info: &PoolInfo) -> bool {
    !goes(info, true).is_empty() || !info.map.passed.is_empty()
}

/// Targets whose data others are to get.
fn goes(info: &PoolInfo, has_copies: bool) -> BTreeSet<TargetId> {
    let map = &info.map;
    let is_out = |id: TargetId| map.outs.iter().any(|out| out.target == id);
    let next = map.next.iter().flatten().map(|out| out.target);
    let drained = info.aims.iter().filter(|(_, aim)| *aim == TargetAim::Drain).map(|(id, _)| *id);
    let down = map.targets.iter().filter(|target| {
        target.state == TargetState::Down && target.reason != Some(DownReason::Behind)
    });
    let all = next.chain(drained).chain(down.map(|target| target.id));
    let is_up = |id: TargetId| placement::is_live(id, map);
    all.filter(|id| !is_out(*id) && (has_copies || is_up(*id))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::TargetSpace;
    use types::{Durability, PlacementRule, PoolId, Rank};
    use wire::map::{PlacementSet, PoolMap, TargetInfo};
    use wire::obj::PoolShardStat;
    use wire::store::CatchUpStat;

    const MIB: u64 = 1 << 20;

    /// Three targets of 320 MiB each, of which target 2 is down.
    fn pool() -> PoolInfo {
        let target = |id| TargetInfo {
            id: TargetId(id),
            rank: Rank(id),
            state: if id == 2 { TargetState::Down } else { TargetState::Up },
            since: 1,
            reason: (id == 2).then_some(DownReason::Silent),
            left: 0,
            incarnation: 1,
        };
        let weights = (0..3).map(|id| (TargetId(id), 1)).collect();
        let map = PoolMap {
            pool: PoolId(1),
            version: 1,
            engines: Vec::new(),
            targets: (0..3).map(target).collect(),
            placements: vec![PlacementSet { epoch: 0, weights }],
            outs: Vec::new(),
            next: None,
            balanced: 0,
            next_balanced: 0,
            passed: Vec::new(),
            next_passed: Vec::new(),
        };
        PoolInfo {
            id: PoolId(1),
            uuid: uuid::Uuid::nil(),
            label: "tank".into(),
            durability: Durability::Wal,
            placement: PlacementRule::Equal,
            scm_bytes: 0,
            nvme_bytes: 960 * MIB,
            cont_count: 1,
            handle_count: 0,
            map,
            aims: Vec::new(),
            is_rebuild_stopped: false,
            balance_wanted: 0,
            is_move_due: false,
        }
    }

    fn space(used: [u64; 2]) -> SpaceInfo {
        let stat = |used: u64| PoolShardStat {
            nvme_bytes: 320 * MIB,
            nvme_free_bytes: (320 - used) * MIB,
            ..PoolShardStat::default()
        };
        let target = |(id, used)| TargetSpace {
            takes_objects: true,
            target: TargetId(id),
            state: TargetState::Up,
            stat: Some(stat(used)),
        };
        let targets = (0..).zip(used).map(target).collect();
        SpaceInfo { total: PoolShardStat::default(), targets }
    }

    #[test]
    fn what_is_lacking_is_said_from_the_loss_on_until_it_has_moved() {
        let pool = pool();
        assert_eq!(Lacking::of(&pool, &space([100, 100]), &[], true), None);
        let lacking = Lacking::of(&pool, &space([250, 250]), &[], true).unwrap();
        let expected =
            Lacking { moving_bytes: 250 * MIB, free_bytes: 120 * MIB, lacking_bytes: 130 * MIB };
        assert_eq!(lacking, expected);
        let text = lacking.sentence("tank");
        assert!(text.contains("130 MiB are lacking") && text.contains("extend tank"), "{text}");
        assert_eq!(
            Lacking::of(&pool, &space([250, 250]), &[], false),
            None,
            "nothing is made anew"
        );
        // 40 MiB of it are there.
        let catching_up = Some(CatchUpStat { bytes_mended: 40 * MIB, ..CatchUpStat::default() });
        let stats = [(TargetId(0), Some(StoreStat { catching_up, ..StoreStat::default() }))];
        let lacking = Lacking::of(&pool, &space([290, 250]), &stats, true).unwrap();
        assert_eq!((lacking.moving_bytes, lacking.free_bytes), (230 * MIB, 80 * MIB));
    }

    #[test]
    fn what_is_drained_moves_with_and_without_copies() {
        let mut pool = pool();
        pool.map.targets[2] =
            TargetInfo { state: TargetState::Up, reason: None, ..pool.map.targets[2].clone() };
        pool.aims = vec![(TargetId(1), TargetAim::Drain)];
        for has_copies in [false, true] {
            let lacking = Lacking::of(&pool, &space([250, 250]), &[], has_copies).unwrap();
            assert_eq!(lacking.lacking_bytes, 190 * MIB);
        }
    }
}
