//! `azekura bench weighted`: placement by measured speed, beside placement by capacity.

use super::with_output;
use crate::exit::{Failure, Outcome};
use crate::session::{Session, absolute};
use bench::weighted::{self, Options};
use clap::Args;
use std::path::PathBuf;
use types::{Error, size};

/// Placement by measured speed, by capacity, and equal shares, side by side
///
/// Starts a system of its own in memory: three engines, each with a target that is held to the speed of a fast device and one that is held to
/// that of a slow one. Writes and reads three copies of files of six sizes in pools of each placement. Exit code 1 when placement by score misses
/// a goal: at twelve to one 1.5 times the reading bandwidth of placement by capacity, and less deviation; at equal speeds 0.98 times. Further
/// goals: second readings from slow devices three times as fast as first ones, which engines keep in memory; nine tenths of users' bandwidth
/// while targets are measured, and while data move because shares have changed.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura bench weighted
  azekura bench weighted --fast 400MiB --slow 400MiB    # what it costs where devices are equal
  azekura bench weighted --rounds 10 --plot weighted.svg --json")]
pub struct WeightedArgs {
    /// Rounds of alternation
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Bytes that a fast device moves a second
    #[arg(long, default_value = "960MiB", value_name = "SIZE", value_parser = size::parse)]
    fast: u64,
    /// Bytes that a slow device moves a second
    #[arg(long, default_value = "80MiB", value_name = "SIZE", value_parser = size::parse)]
    slow: u64,
    /// What stands for the gigabyte of the published sizes
    #[arg(long, default_value = "512KiB", value_name = "SIZE", value_parser = size::parse)]
    unit: u64,
    /// How long users are watched with nothing else going on, and beside measurements, seconds; 0: they are not
    #[arg(long, default_value_t = 3.0, value_name = "SECONDS")]
    watch: f64,
    /// A directory in memory
    #[arg(long, default_value = "/dev/shm", value_name = "DIRECTORY")]
    memory: PathBuf,
    /// Write the plot (SVG) and, beside it, the report (JSON)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

pub fn run(session: &Session, args: &WeightedArgs) -> Outcome {
    let binary = std::env::current_exe()
        .map_err(|error| Error::io("finding this program's own file", error))?;
    let options = Options {
        rounds: args.rounds,
        fast_bytes_s: args.fast,
        slow_bytes_s: args.slow,
        unit_bytes: args.unit,
        watch_s: args.watch,
        dir: absolute(&args.memory)?,
        plot: args.plot.clone(),
    };
    let report = with_output(session, |out| weighted::run(&options, &binary, out))?;
    let is_good = report.failures.is_empty() && report.missed.is_empty();
    if is_good { Ok(()) } else { Err(Failure::Reported(1)) }
}
