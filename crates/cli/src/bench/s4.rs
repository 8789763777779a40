//! `azekura bench s4`: experiments of the evaluation of DAOS with the patterns of IO500.

use super::with_output;
use crate::exit::{Failure, Outcome};
use crate::session::{Session, absolute};
use bench::classes::{self, Options};
use clap::Args;
use std::path::PathBuf;
use types::{Error, size};

/// Object classes side by side: without copies, with two, with three
///
/// Starts a system of its own in memory, of several engines, and measures IOR-easy (1 MiB) and IOR-hard (47,008 bytes) on
/// one shared file with each class in turn; the published shares stand beside those measured.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura bench s4 --experiment 5.4
  azekura bench s4 --experiment 5.4 --rounds 1 --bytes 64MiB --segments 200
  azekura bench s4 --experiment 5.4 --plot classes.svg --json")]
pub struct S4Args {
    /// Number of the experiment in the paper; 5.4: object classes
    #[arg(long, default_value = "5.4", value_parser = ["5.4"])]
    experiment: String,
    /// Client processes
    #[arg(long, short, default_value_t = 2)]
    processes: u32,
    /// Rounds of alternation
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Engines
    #[arg(long, default_value_t = 3)]
    engines: u32,
    /// Targets of each engine
    #[arg(long, default_value_t = 1)]
    targets: u32,
    /// Copies of each class beside the one without
    #[arg(long, value_delimiter = ',', default_value = "2,3")]
    copies: Vec<u8>,
    /// Bytes that a process writes and reads with IOR-easy
    #[arg(long, default_value = "256MiB", value_parser = size::parse)]
    bytes: u64,
    /// Transfers of a process with IOR-hard
    #[arg(long, default_value_t = 2_000)]
    segments: u64,
    /// A directory in memory
    #[arg(long, default_value = "/dev/shm", value_name = "DIRECTORY")]
    memory: PathBuf,
    /// Write the plot (SVG) and, beside it, the report (JSON)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

pub fn run(session: &Session, args: &S4Args) -> Outcome {
    let binary = std::env::current_exe()
        .map_err(|error| Error::io("finding this program's own file", error))?;
    let options = Options {
        processes: args.processes,
        rounds: args.rounds,
        engines: args.engines,
        targets: args.targets,
        copies: args.copies.clone(),
        bytes_per_process: args.bytes,
        segments: args.segments,
        dir: absolute(&args.memory)?,
        plot: args.plot.clone(),
    };
    let report = with_output(session, |out| classes::run(&options, &binary, out))?;
    if report.failures.is_empty() { Ok(()) } else { Err(Failure::Reported(1)) }
}
