//! Whole systems for tests.
//!
//! [`Cluster`] runs several engines and clients on one thread under a virtual clock, with faults
//! from a seed: the same seed gives the same run. [`LocalSystem`] runs real engines in threads
//! of the test process, over real sockets, shared memory and files.
//!
//! [`swarm`] draws a whole run from a seed: a cluster, its settings, faults, and clients whose calls are
//! noted in a [`history`]. [`linearizable`] and [`serializable`] say whether a history is one
//! that one copy of the data could have given; [`members`], [`parity`] and [`stores`], whether what targets hold fits together.

mod cluster;
pub mod history;
pub mod hostile;
pub mod linearizable;
mod local;
pub mod members;
pub mod pages;
pub mod parity;
pub mod register;
pub mod serializable;
pub mod stores;
pub mod swarm;

pub use cluster::{Cluster, ClusterSpec};

pub use local::{LocalSystem, make_container_with};

/// Seeds of a test: from 0 on, so many; `AZEKURA_SIM_SEEDS` asks for more, `AZEKURA_SIM_SEED` for one, of which
/// engines tell what `RUST_LOG` says.
pub fn seeds(default: u64) -> std::ops::Range<u64> {
    let one = std::env::var("AZEKURA_SIM_SEED").ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = one {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        let said = tracing_subscriber::fmt().with_env_filter(filter).without_time();
        // Another test of the program may have done it.
        let _ = said.with_writer(std::io::stderr).with_ansi(false).try_init();
        return seed..seed + 1;
    }
    let count = std::env::var("AZEKURA_SIM_SEEDS").ok().and_then(|text| text.parse().ok());
    0..count.unwrap_or(default)
}

/// Where bytes differ first, if they do; of as many as both have. Quick where they do not, also in code that is hardly optimised.
pub fn first_difference(found: &[u8], known: &[u8]) -> Option<usize> {
    let count = found.len().min(known.len());
    match found[..count] == known[..count] {
        true => None,
        false => found.iter().zip(known).position(|(a, b)| a != b),
    }
}
