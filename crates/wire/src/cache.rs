//! The data cache of engines: settings of a pool, and what a target reports.
//!
//! What was read from data devices stays in the engine's memory, within these limits, for who reads it again: those of Higa, Ichikawa and
//! Yamaguchi, where each node keeps at most 128 MB of a file and 16 GB in all. Pools in memory have none.

use serde::{Deserialize, Serialize};

/// What a pool wants of the caches of each of its engines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DataCache {
    /// Grows with every change; a target keeps the newest.
    pub version: u64,
    /// Most that an engine keeps of the pool, bytes; 0: nothing. An engine keeps less where its share of memory is smaller.
    pub bytes_max: u64,
    /// Most that it keeps of one object, bytes; 0: nothing.
    pub object_bytes_max: u64,
}

impl Default for DataCache {
    fn default() -> DataCache {
        DataCache { version: 0, bytes_max: 16 << 30, object_bytes_max: 128 << 20 }
    }
}

/// Answer to [`crate::obj::Request::CacheStat`]. Counts are since the engine's start; of reads of data devices for clients, each run of
/// blocks for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CacheStat {
    /// Version of the settings in force; 0: the defaults.
    pub version: u64,
    /// Memory that it may take at this target now, bytes; 0: nothing is kept.
    pub limit_bytes: u64,
    /// Of that, for one object whose data are all here, bytes.
    pub object_bytes_max: u64,
    /// What it takes, bytes.
    pub used_bytes: u64,
    /// Runs of blocks that were in memory, and their bytes.
    pub hits: u64,
    pub hit_bytes: u64,
    /// Runs of blocks that came from a device, and their bytes.
    pub misses: u64,
    pub miss_bytes: u64,
}
