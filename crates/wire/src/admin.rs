//! Orders of the control service to targets. All may be repeated without harm.

use crate::admission::Admission;
use crate::cache::DataCache;
use crate::map::PoolMap;
use crate::map_change::MapChange;
use crate::measure::MeasureAsk;
use crate::scrub::Scrub;
use crate::versions::ContVersions;
use serde::{Deserialize, Serialize};
use types::{ContId, CsumKind, Durability, PoolId, TargetId};

/// Orders of the control service to a target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AdminOp {
    /// Make a shard of a pool; succeeds if it is there already with the same settings.
    CreateShard {
        pool: PoolId,
        /// When updates are acknowledged.
        durability: Durability,
        /// Share of the index and log tier, bytes.
        scm_bytes: u64,
        /// Share of the data tier, bytes.
        nvme_bytes: u64,
    },
    /// Remove a shard and all it holds; succeeds if it is not there.
    DestroyShard { pool: PoolId },
    /// Make a container known; succeeds if it is known.
    CreateCont {
        pool: PoolId,
        cont: ContId,
        /// Sums over its data.
        csum: CsumKind,
        /// Compare data with their sums when they arrive.
        server_verify: bool,
    },
    /// Remove a container and all it holds; succeeds if it is not there.
    DestroyCont { pool: PoolId, cont: ContId },
    /// Take a newer pool map.
    SetMap(PoolMap),
    /// Take the map that comes of a change of the one that is known. `Stale` when another one is.
    ChangeMap(MapChange),
    /// Take newer settings of admission.
    SetAdmission { pool: PoolId, admission: Admission },
    /// Take newer settings of the scrubber.
    SetScrub { pool: PoolId, scrub: Scrub },
    /// Keep these versions of a container, and carry out what follows. The answer tells the
    /// greatest epoch of the shard; `under_way` until a freeze or a rollback is complete.
    SetVersions { pool: PoolId, cont: ContId, versions: ContVersions },
    /// Serve a shard that was made before, if it is this making of it. Succeeds otherwise, too: the
    /// answer tells what is there, which is not served then.
    ServeShard {
        pool: PoolId,
        /// From the answer to [`AdminOp::CreateShard`].
        incarnation: u64,
    },
    /// The target has been told of all it holds: what it does not know does not exist.
    Introduced,
    /// Measure the data devices, or with `None` tell what is known. The answer has [`AdminReply::standing`](crate::versions::AdminReply).
    Measure {
        ask: Option<MeasureAsk>,
        /// The answer tells what this pool has there, too.
        pool: Option<PoolId>,
    },
    /// Take newer settings of the data cache.
    SetCache { pool: PoolId, cache: DataCache },
    /// Succeeds where the target that is asked has all that `target` can tell it under this map; asked of `target` itself, where damaged
    /// pages of its index are all that it lacks. `Busy` otherwise. From then on it misses nothing under that map.
    HasAllOf { pool: PoolId, target: TargetId, map_version: u32 },
    /// Others may come to lead what the target leads: show nothing of it any more without asking those who follow, until that is granted
    /// anew ([`crate::control::ControlRequest::LeadGrant`]).
    GiveLeadBack { pool: PoolId },
}
