//! What a target must keep of a container's history.
//!
//! The control service tells targets the whole of it each time ([`ContVersions`]), so an order may
//! be repeated, and one that comes too late is known by its revision.

use crate::measure::Standing;
use serde::{Deserialize, Serialize};
use types::Epoch;

/// Whether a container may be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum ContStage {
    /// Yes.
    #[default]
    Open,
    /// No: it is about to be rolled back. The order is carried out when no prepared transaction
    /// is left, and members have what was ordered before.
    Frozen,
    /// No: it is being made what it was at this snapshot.
    RollingBack(Epoch),
    /// No: it is being made what it was at the snapshot `to`, as a change at `epoch`, which is newer than all that any target has
    /// of it: the same for all members of a group.
    RollingTo {
        /// The snapshot.
        to: Epoch,
        /// When it is so, for who has all that its groups have.
        epoch: Epoch,
    },
}

impl ContStage {
    /// The snapshot that a container is being rolled back to.
    pub fn rolls_to(self) -> Option<Epoch> {
        match self {
            ContStage::Open | ContStage::Frozen => None,
            ContStage::RollingBack(to) | ContStage::RollingTo { to, .. } => Some(to),
        }
    }
}

/// The versions of a container that a target must keep, told whole each time.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ContVersions {
    /// Grows with each change; an order with an older one than a target has seen is ignored.
    pub revision: u64,
    /// Snapshots, ascending. A target's clock goes beyond the last.
    pub snapshots: Vec<Epoch>,
    /// Keep everything that is removed from now on: a snapshot is about to be made.
    pub held: bool,
    /// Whether it may be changed.
    pub stage: ContStage,
}

/// Answer of a target to an order of the control service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AdminReply {
    /// For [`crate::obj::AdminOp::SetVersions`] the greatest epoch of the shard: [`AdminReply::epoch`]. For [`crate::obj::AdminOp::CreateShard`] and
    /// [`crate::obj::AdminOp::ServeShard`] a version of the pool map: [`AdminReply::kept_map_version`].
    pub number: u64,
    /// True when the order is still being carried out: ask again.
    pub under_way: bool,
    /// Which making of the pool's part is there, for [`crate::obj::AdminOp::CreateShard`] and
    /// [`crate::obj::AdminOp::ServeShard`]; zero: none.
    pub incarnation: u64,
    /// It was opened again since the control service has last been told that: what the last moments before left
    /// of what others have, too, is not known. For the same two orders.
    pub is_unsure: bool,
    /// For [`crate::obj::AdminOp::Measure`].
    pub standing: Option<Standing>,
}

/// In place of the version of a map: a part that was opened again has lost nothing.
pub const ALL_IS_HERE: u32 = u32::MAX;

impl AdminReply {
    /// The greatest epoch of a shard that was told of versions.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.number)
    }

    /// Version of the newest pool map by which anything was done that a part of a pool still had when it was opened again and may have
    /// lost the end of its log; zero: not known, or it has caught up since. [`ALL_IS_HERE`]: it was ended in good order.
    pub fn kept_map_version(&self) -> u32 {
        u32::try_from(self.number).unwrap_or(0)
    }
}
