//! How far a shard is compared with its sums, as it is written down and told.

use serde::{Deserialize, Serialize};

/// Where a shard's scrubber is; survives restarts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ScrubProgress {
    /// A pass is under way.
    pub under_way: bool,
    /// Where it goes on.
    pub next_block: u64,
    /// Damaged blocks it has met.
    pub bad_count: u64,
    /// Full passes.
    pub passes: u64,
    /// When the last pass began, nanoseconds since 1970.
    pub begin_ns: u64,
    /// When the last full pass ended, nanoseconds since 1970.
    pub end_ns: u64,
    /// Damaged blocks that the last full pass met.
    pub end_bad_count: u64,
}
