//! The coordinator's state as JSON: what `STATS` answers with and `azekura ioc top` shows.

use crate::queue::QueueStats;
use serde::{Deserialize, Serialize};

/// What a coordinator tells of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub version: String,
    /// Time since its start, microseconds.
    pub uptime_us: u64,
    /// Counts of the server.
    pub server: ServerStats,
    pub groups: Vec<GroupStats>,
}

/// The queue of one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStats {
    pub name: String,
    #[serde(flatten)]
    pub queue: QueueStats,
}

/// What the server itself counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStats {
    /// Turns of its loop: it makes none unless something happens.
    pub turns: u64,
    /// Connections that were accepted.
    pub accepted: u64,
    /// Connections that have not said hello.
    pub strangers: usize,
    /// Clients that were refused, by the reason they were told.
    pub refused_version: u64,
    /// Wrong tokens.
    pub refused_token: u64,
    /// Unknown groups.
    pub refused_group: u64,
    /// More clients than allowed.
    pub refused_full: u64,
    /// Messages that make no sense.
    pub refused_protocol: u64,
    /// Connections closed because they took too long: over hello, a frame, or taking answers.
    pub timed_out: u64,
    /// Lines of the trace that were lost because the disk was too slow.
    pub trace_lost: u64,
}
