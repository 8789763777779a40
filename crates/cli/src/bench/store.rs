//! `azekura bench store`: what a durable store costs beside the bare device.

use super::with_output;
use crate::exit::{Failure, Outcome};
use crate::session::{Session, absolute};
use bench::store::{self, Options};
use clap::Args;
use std::path::PathBuf;
use types::Error;

/// Durable store against the bare device
///
/// Starts a system of its own with durability 'wal' in a directory and compares small synced
/// updates with an appender of the same batches, and transfers with direct I/O.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura bench store --on /mnt/nvme0
  azekura bench store --on /mnt/nvme0 --depth 1,16
  azekura bench store --on /var/tmp --scale 0.1 --rounds 1 --json")]
pub struct StoreArgs {
    /// A directory on the device to measure
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/tmp")]
    on: PathBuf,
    /// Client processes, and threads of a yardstick
    #[arg(long, short, default_value_t = 2)]
    processes: u32,
    /// Small updates in flight in each process; several are measured one after the other
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 64])]
    depth: Vec<u32>,
    /// Transfers of 1 MiB in flight in each process, and for each yardstick beside it
    #[arg(long, default_value_t = 4)]
    transfers: u32,
    /// Rounds of alternation
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Factor on all amounts of work
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Also write the report as JSON into this file
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
}

pub fn run(session: &Session, args: &StoreArgs) -> Outcome {
    let binary = std::env::current_exe()
        .map_err(|error| Error::io("finding this program's own file", error))?;
    let options = Options {
        processes: args.processes,
        depths: args.depth.clone(),
        transfers: args.transfers,
        rounds: args.rounds,
        scale: args.scale,
        dir: absolute(&args.on)?,
        results: args.results.clone(),
    };
    let report = with_output(session, |out| store::run(&options, &binary, out))?;
    // A goal that is missed is a result; a measurement that failed is a failure.
    if report.failures.is_empty() { Ok(()) } else { Err(Failure::Reported(1)) }
}
