//! How far a pool is with what is to move between its targets.

use types::TargetId;
use wire::control::{PoolInfo, TargetAim};
use wire::map::{DownReason, PoolMap};

/// How far a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebuildState {
    /// All members of groups are those that were drawn.
    Idle,
    /// Members move, or a target that was away catches up.
    Busy,
    /// Others stand in for targets, and have all that those had.
    Done,
}

impl RebuildState {
    /// By the pool's map alone: what is wanted and has not begun is not in it.
    pub fn of_map(map: &PoolMap) -> RebuildState {
        let is_behind = map.targets.iter().any(|target| target.reason == Some(DownReason::Behind));
        match (&map.next, map.outs.is_empty()) {
            (Some(_), _) => RebuildState::Busy,
            _ if is_behind => RebuildState::Busy,
            (None, true) => RebuildState::Idle,
            (None, false) => RebuildState::Done,
        }
    }

    /// With what is to move, or is wanted by an administrator, and has not begun yet, unless it is not to begin.
    pub fn of(pool: &PoolInfo) -> RebuildState {
        let is_balance_wanted = pool.balance_wanted > pool.map.balanced;
        let is_wanted = pool.is_move_due || lacks_drains(pool) || is_balance_wanted;
        match !pool.is_rebuild_stopped && is_wanted {
            true => RebuildState::Busy,
            false => RebuildState::of_map(&pool.map),
        }
    }
}

/// True when targets are drained that are not to be, or are not that are to be.
pub fn lacks_drains(pool: &PoolInfo) -> bool {
    let drains = |id: TargetId| pool.aims.contains(&(id, TargetAim::Drain));
    let is_drained =
        |id: TargetId| pool.map.outs.iter().any(|out| out.target == id && out.is_drained);
    pool.map.targets.iter().any(|target| drains(target.id) != is_drained(target.id))
}
