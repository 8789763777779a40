//! What C programs are told of a pool's rebuild.
//!
//! DAOS counts a rebuild from its beginning to its end and remembers the last one. Here a pool is on its way to what its
//! map is to become, or is there, and targets tell what they have compared and got, also how it was when that ended last. So the
//! state is DAOS's; objects to be rebuilt are those known to differ and still to be compared, not all. A target that has no room for
//! what it lacks is told with its engine's rank and `-DER_NOSPACE`, though the rebuild goes on with others in its place.

use crate::ctypes::daos_rebuild_status;
use crate::errno::{DER_NOSPACE, DER_OP_CANCELED};
use client::{Pool, RebuildState, lacks_drains};
use types::Result;
use wire::control::PoolInfo;

/// Members move, or a target that was away catches up.
const DRS_IN_PROGRESS: i32 = 0;
/// Something is to move, and does not because it was stopped.
const DRS_NOT_STARTED: i32 = 1;
/// All is where it is to be.
const DRS_COMPLETED: i32 = 2;

/// The status of a pool of which the catalog said `known`. Asks the targets only while something moves; one without an answer counts
/// nothing.
///
/// Errors: those of asking targets.
pub async fn status(pool: &Pool, known: &PoolInfo) -> Result<daos_rebuild_status> {
    let version = known.map.version;
    if known.is_rebuild_stopped && lacks_drains(known) {
        return Ok(daos_rebuild_status {
            rs_version: version,
            rs_errno: -DER_OP_CANCELED,
            rs_state: DRS_NOT_STARTED,
            ..Default::default()
        });
    }
    let state = RebuildState::of(known);
    let mut status = daos_rebuild_status {
        rs_version: if state == RebuildState::Idle { 0 } else { version },
        rs_state: if state == RebuildState::Busy { DRS_IN_PROGRESS } else { DRS_COMPLETED },
        ..Default::default()
    };
    if state == RebuildState::Idle && known.map.outs.is_empty() {
        return Ok(status);
    }
    for (target, stat) in &pool.store_stats().await? {
        let Some(stat) = stat else { continue };
        let is_busy = state == RebuildState::Busy;
        let Some(stat) = (if is_busy { stat.catching_up } else { stat.caught_up }) else {
            continue;
        };
        if is_busy {
            status.rs_toberb_obj_nr += stat.units_left;
        }
        status.rs_obj_nr += stat.units_mended;
        status.rs_rec_nr += stat.keys_mended;
        status.rs_size += stat.bytes_mended;
        // They do it at the same time.
        status.rs_seconds = status.rs_seconds.max((stat.time_ms / 1000) as u32);
        if is_busy && stat.is_full && status.rs_errno == 0 {
            status.rs_errno = -DER_NOSPACE;
            let rank = known.map.target(*target).map(|target| target.rank.0);
            status.rs_fail_rank = rank.map_or(-1, |rank| rank as i32);
        }
    }
    Ok(status)
}
