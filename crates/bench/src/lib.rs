//! Access patterns of IOR and mdtest, on an Azekura file system or on any directory, a suite that
//! holds both side by side, and the experiments of the coordination paper ([`ioc`]).
//!
//! The same pattern code drives either backend, so that a ratio between the two says something
//! about the storage and nothing about the benchmark. Each *process* of a benchmark is a real
//! process: the parent starts its own binary again (with [`WORKER_ENV`] set) and leads the
//! workers through the phases over pipes. Rates are computed as IOR and mdtest do: all work
//! divided by the time from the earliest start to the latest end.
//!
//! This crate reads clocks and `/proc` itself, not through the I/O seam: it measures from the
//! outside and never runs under simulation. It does not know how targets store things.

pub mod access_paths;
mod backend;
mod clock;
mod crew;
pub mod durability;
pub mod heal;
pub mod io;
pub mod ioc;
pub mod md;
mod place;
pub mod report;
pub mod s4;
mod servers;
pub mod store;
pub mod suite;
pub mod svg;
mod table;
mod verify;
pub mod weighted;
mod worker;

pub use crew::Phase;
pub use place::Where;
pub use worker::{WORKER_ENV, is_worker, worker_main};
