//! The I/O seam: executor, clock, randomness, disk; real and simulated.
//!
//! Everything above this crate runs as `!Send` futures on an [`Env`] and asks it, never the
//! operating system, for time, randomness and storage. One `Env` per thread; a [`SimWorld`] makes
//! any number of simulated ones that share a thread, a virtual clock and a seed.
//!
//! Invariants:
//! - A future is polled and dropped on the thread of its `Env`; its wakers may go anywhere.
//! - A thread that has nothing to do sleeps in the kernel after a short adaptive spin.
//! - Nothing in a simulated world depends on the real clock, addresses or hash seeds.
//!
//! This crate knows no messages and no storage formats.

mod buf;
mod disk;
mod disk_real;
mod env;
mod exec;
mod idle;
mod keep;
mod memory;
mod real;
mod ring;
mod rng;
mod signal;
mod sim;
mod sim_disk;
mod sim_file;
mod source;
mod timer;

pub use buf::{ALIGN_BYTES, AlignedBuf};
pub use disk::{DirEntry, Disk, File, Lock, OpenOptions, Room};
pub use env::{Env, host_identity, host_of, is_here, socket_place, user_id};
pub use keep::{keep, set_keeper};
pub use memory::{Memory, PAGE_BYTES_MAX};
pub use rng::Rng;
pub use signal::Signal;
pub use sim::{SimNode, SimWorld};
pub use sim_disk::{DiskFaults, SimDisk};
pub use sim_file::Decay;
pub use source::{BellWatch, FdWatch, Source};
pub use timer::Sleep;
