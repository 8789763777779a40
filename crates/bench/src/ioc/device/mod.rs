//! A storage target whose throughput falls when many write at once, for any machine.
//!
//! Real disks, arrays and parallel file systems show the effect each in its own way, and many
//! machines (a page cache, an SSD) do not show it at all. So the target is modelled: a file
//! system in user space keeps the data, and answers when a model of the target's queue says so.
//! Time is real; rates are chosen so low that the machine's own speed does not matter.
//!
//! - [`Params`]: the figures of a target; their defaults give the curve of the paper.
//! - `model`: the queue discipline, pure, tested against schedules computed by hand.
//! - `clockwork`: the model in real time.
//! - `tree`, `fs`: names, data, and the door to the kernel.
//! - [`Mount`]: the whole at a directory.
//!
//! Source of the effect: Ohno, Hori, Ishikawa, *I/O request coordination for parallel file
//! systems*, sections 2.3 and 4.2: requests of many clients merge badly in the queue of the device.

mod clockwork;
mod fs;
mod model;
#[cfg(test)]
mod model_tests;
mod mount;
mod params;
mod tree;

pub use model::Done;
pub use mount::{Mount, TARGETS_MAX, check_fuse};
pub use params::Params;
