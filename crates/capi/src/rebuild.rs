//! What C programs are told of a pool's rebuild.
//!
//! DAOS counts a rebuild from its beginning to its end and remembers the last one. Here a pool is on its way to what its
//! map is to become, or is there, and targets tell what they have compared while they do; when they have, nothing is kept of it. So
//! the state is DAOS's, records and objects are counted while it is in progress, and objects are those known to differ, not all.

use crate::ctypes::daos_rebuild_status;
use crate::errno::DER_OP_CANCELED;
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
    if state == RebuildState::Busy {
        let stats = pool.store_stats().await?;
        for stat in stats.iter().filter_map(|(_, stat)| stat.as_ref()?.catching_up) {
            status.rs_toberb_obj_nr += stat.units_left;
            status.rs_rec_nr += stat.keys_mended;
        }
    }
    Ok(status)
}
