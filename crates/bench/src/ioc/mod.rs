//! The experiments of the coordination paper, with and without coordination, on a directory of
//! any file system or on a modelled device.
//!
//! - [`micro`]: throughput and completion times of 1, 2, … 16 writers for each target.
//! - [`nicam`]: the output of a climate simulation.
//! - [`device`]: a storage target whose throughput falls under concurrency.
//!
//! Writers are real processes with nothing but calls of the operating system; coordinated ones are
//! started with the preload library, and a coordinator of their own is started for each run: the
//! same programs that a site uses. This module knows the commands and the format of the
//! coordinator's trace, not its code. Both sides of a comparison run one right after the other, and
//! only ratios of one round are judged.
//!
//! Source: Ohno, Hori, Ishikawa, *I/O request coordination for parallel file systems*, section 4.

mod child;
mod coordination;
pub mod device;
mod limit;
mod load;
pub mod micro;
pub mod nicam;
mod plots;
mod round;
mod setting;
mod stage;
mod trace;

pub use limit::Limit;
pub(crate) use load::{Load, LoadTask};
pub use round::{Process, Run};
pub use setting::Setting;
pub use stage::{DeviceReady, DeviceReport, Ground};
