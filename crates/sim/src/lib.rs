//! Whole systems for tests.
//!
//! [`Cluster`] runs several engines and clients on one thread under a virtual clock, with faults
//! from a seed: the same seed gives the same run. [`LocalSystem`] runs real engines in threads
//! of the test process, over real sockets, shared memory and files.

mod cluster;
mod local;

pub use cluster::{Cluster, ClusterSpec};

pub use local::LocalSystem;
