//! A process of a host, by a name that no other process gets.

use serde::{Deserialize, Serialize};

/// A process of one boot of one host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct HostProcess {
    /// Where its number means this process: a hash of the host's boot and of its namespace of numbers.
    pub space: u64,
    pub pid: u32,
    /// When it began, clock ticks since the boot: tells it from later ones with its number.
    pub began: u64,
}
