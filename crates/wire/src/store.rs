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
    /// What it has still to compare, when it was away, or joins groups; `None`: nothing.
    pub catching_up: Option<CatchUpStat>,
    /// How it was when that ended last, since the engine's start; `None`: it has not.
    pub caught_up: Option<CatchUpStat>,
    /// Groups that it leads and that lack members.
    pub groups: GroupStat,
    /// What was measured of the target's data devices.
    pub measures: Option<Measures>,
    /// How fast other engines are reached from it.
    pub network: Option<Network>,
    /// How fast clients reach it, as they have seen it.
    pub clients: Option<Network>,
}

impl StoreStat {
    /// What counts of it when targets are weighed.
    pub fn standing(&self) -> Standing {
        let data = self.devices.iter().filter(|device| device.role != DeviceRole::Scm);
        let free_bytes = data.map(|device| device.free_bytes).sum();
        let (measures, network, clients) = (self.measures, self.network, self.clients);
        Standing { free_bytes, measures, used_bytes: 0, network, clients }
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

/// Groups that lack members, as they were found last, by the copies that are left of them; with an erasure code one more than the
/// losses that they still stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GroupStat {
    /// One is left, or less: the next loss is one too many.
    pub one_left: u64,
    pub two_left: u64,
    pub more_left: u64,
    /// They were counted under the newest map that the target knows.
    pub is_counted: bool,
}

/// How far a target has come that was away. Counts begin when it is back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CatchUpStat {
    /// How often it has begun; anew whenever the pool's map has changed meanwhile.
    pub tries: u64,
    /// Other targets that it has not yet compared with in this try.
    pub targets_left: u64,
    /// Units known to differ, which it has still to compare key by key in this try.
    pub units_left: u64,
    /// Keys that it has got.
    pub keys_mended: u64,
    /// Units that it has compared to the end in this try, and for how long it has done so, milliseconds.
    pub units_done: u64,
    pub try_ms: u64,
    /// Units that it has compared to the end in all tries.
    pub units_mended: u64,
    /// Bytes of what it has got: images of keys, and cells.
    pub bytes_mended: u64,
    /// Since it began, milliseconds.
    pub time_ms: u64,
    /// There is no room for what it lacks.
    pub is_full: bool,
}

impl CatchUpStat {
    /// What it has got a second, bytes.
    pub fn bytes_s(&self) -> u64 {
        self.bytes_mended.saturating_mul(1000) / self.time_ms.max(1)
    }

    /// How long the units that are left will take, if they are like those before, milliseconds; `None`: not known yet.
    pub fn left_ms(&self) -> Option<u64> {
        match (self.targets_left, self.units_left, self.units_done) {
            (0, 0, _) => Some(0),
            (0, left, done) if done > 0 => {
                Some((u128::from(self.try_ms) * u128::from(left) / u128::from(done)) as u64)
            }
            _ => None,
        }
    }
}

/// What a target waits for that is behind, or joins groups, and has all else.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PageWait {
    /// The target whose index has damaged pages, itself or one that leads it: nobody who is there and whole can tell what was in them.
    pub damaged: TargetId,
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
