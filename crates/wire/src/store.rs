//! What a target tells of its store: devices, log, aggregation. For operators.

use crate::measure::{Measures, Network, Standing};
use serde::{Deserialize, Serialize};
use types::{Histogram, TargetId};

/// Answer to [`crate::obj::Request::StoreStat`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StoreStat {
    /// The target's devices, that of index and log first.
    pub devices: Vec<DeviceStat>,
    /// The log of the pool's shard; `None` for durability `memory`.
    pub log: Option<LogStat>,
    /// Joining of small extents since the engine's start.
    pub aggregation: AggregationStat,
    /// Orders on their way to other members of the groups that the target leads, by member.
    pub streams: Vec<StreamStat>,
    /// What it has still to compare, when it was away; `None`: nothing.
    pub catching_up: Option<CatchUpStat>,
    /// What was measured of the target's data devices.
    pub measures: Option<Measures>,
    /// How fast other engines are reached from it.
    pub network: Option<Network>,
}

impl StoreStat {
    /// What counts of it when targets are weighed.
    pub fn standing(&self) -> Standing {
        let data = self.devices.iter().filter(|device| device.role != DeviceRole::Scm);
        let free_bytes = data.map(|device| device.free_bytes).sum();
        Standing { free_bytes, measures: self.measures, used_bytes: 0, network: self.network }
    }
}

/// Orders that a member has not answered yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StreamStat {
    /// Whom they are for.
    pub member: TargetId,
    pub orders: u64,
    /// With their data.
    pub bytes: u64,
}

/// How far a target has come that was away. Counts begin when it is back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CatchUpStat {
    /// How often it has begun; anew whenever the pool's map has changed meanwhile.
    pub tries: u64,
    /// Other targets that it has not yet compared with in this try.
    pub targets_left: u64,
    /// Units known to differ from those of the target that it compares with now.
    pub units_left: u64,
    /// Keys that it has got.
    pub keys_mended: u64,
}

/// What a device is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceRole {
    /// Index, log and data.
    #[default]
    Both,
    /// Index and log.
    Scm,
    /// Data.
    Nvme,
}

/// A device of a target, with everything that is on it or on its file system.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DeviceStat {
    /// What the configuration calls it.
    pub name: String,
    /// What it is for.
    pub role: DeviceRole,
    pub total_bytes: u64,
    /// Bytes that nothing has reserved or used.
    pub free_bytes: u64,
}

/// A shard's log. Counts begin with the engine's start.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LogStat {
    /// Bytes of log that a restart would read now.
    pub bytes: u64,
    /// A write has failed: the target takes no more.
    pub failed: bool,
    /// Records in each batch written at once.
    pub batch_records: Histogram,
    /// Bytes of each batch, without padding.
    pub batch_bytes: Histogram,
    /// From the first record of a batch to its being on stable storage, microseconds.
    pub commit_latency_us: Histogram,
    /// Records replayed when the shard was opened.
    pub replay_records: u64,
    /// Time from opening to being ready, microseconds.
    pub replay_time_us: u64,
    /// Checkpoints (or compactions) completed.
    pub checkpoints: u64,
    /// When the last one was completed, nanoseconds since 1970; 0: none yet.
    pub checkpoint_ns: u64,
    /// How long it took, microseconds.
    pub checkpoint_time_us: u64,
}

/// Joining of small extents into large ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AggregationStat {
    /// Passes over all objects completed.
    pub passes: u64,
    /// Extents seen in the last complete pass.
    pub extents: u64,
    /// Extents that went into larger ones.
    pub joined: u64,
    /// Larger ones made of them.
    pub made: u64,
    /// Bytes read and written for it.
    pub moved_bytes: u64,
    /// Freed bytes given back to the devices by discards.
    pub discarded_bytes: u64,
}
