//! What an engine has measured of the devices of a target.

use serde::{Deserialize, Serialize};

/// A speed, with its spread: what was measured in slices of about a sixteenth of the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Speed {
    /// All bytes by all time, KB/s (1,000 bytes).
    pub kb_s: u64,
    /// Of the slowest slice.
    pub kb_s_min: u64,
    /// Of the fastest slice.
    pub kb_s_max: u64,
}

/// What was measured of the data devices of a target, all of them together: data are striped over them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Measures {
    /// When, nanoseconds since 1970.
    pub at_ns: u64,
    /// Written and read, one after the other, to measure it.
    pub bytes: u64,
    /// The page cache was bypassed. If not, what was read may have come out of memory.
    pub is_direct: bool,
    /// Reading one after the other, 4 pieces of 1 MiB at a time.
    pub read: Speed,
    /// The same for writing; until it is on stable storage.
    pub write: Speed,
    /// Reads of 4 KiB at random places a second, 8 at a time.
    pub random_reads_s: u64,
    /// The same for writes; until they are on stable storage.
    pub random_writes_s: u64,
    /// Copying in memory: what a pool of durability `memory` has instead of devices.
    pub memory: Speed,
    /// What they did before they became slow; `None`: they did not.
    pub past: Option<Past>,
}

/// What devices once did, KB/s.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Past {
    pub read: u64,
    pub write: u64,
}

/// What is to be measured of a target, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MeasureAsk {
    /// Bytes to write and read, fewer where not so much is free.
    pub bytes: u64,
    /// How long each of writing and reading may take, milliseconds; a quarter of that is for each of the random ones.
    pub step_ms_max: u32,
    /// Nothing is measured where there are measures.
    pub once: bool,
}

/// How fast a client reaches a target, as it sees that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SeenSpeed {
    pub speed: Speed,
    /// It was probed. If not, it is the best of what was read and written anyway: devices had to do with that, too.
    pub is_probed: bool,
}

/// How fast a target and other engines, or clients, reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Network {
    /// When the oldest of what counts here was measured, nanoseconds since 1970.
    pub at_ns: u64,
    /// Engines, or clients, at the other end.
    pub link_count: u32,
    /// Of the link in the middle, both ways together; least and most of all of them.
    pub speed: Speed,
}

/// How a target stands: answer to [`crate::obj::AdminOp::Measure`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Standing {
    /// Room on its data devices that nothing has reserved or used, bytes.
    pub free_bytes: u64,
    /// `None`: not measured yet.
    pub measures: Option<Measures>,
    /// What the pool that was named has there, index and data, bytes; 0 when none was.
    pub used_bytes: u64,
    /// `None`: there is no other engine, or none was reached yet.
    pub network: Option<Network>,
    /// Of clients, as they have seen it; `None`: none has told.
    pub clients: Option<Network>,
}
