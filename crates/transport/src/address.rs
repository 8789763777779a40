//! Where an engine listens.

use std::fmt;
use std::path::PathBuf;

/// Address of an engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// Path of its Unix socket: same host, shared memory.
    Unix(PathBuf),
    /// `HOST:PORT`.
    Tcp(String),
    /// Name of a node of the caller's simulated world.
    Sim(String),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix://{}", path.display()),
            Address::Tcp(address) => write!(f, "tcp://{address}"),
            Address::Sim(name) => write!(f, "sim:{name}"),
        }
    }
}
