//! `azekura bench heal`: how fast what is lost is made anew, and what users notice of it.

use super::with_output;
use crate::exit::{Failure, Outcome};
use crate::session::{Session, absolute};
use bench::heal::{self, Goal, Options};
use clap::Args;
use std::path::PathBuf;
use types::{Error, size};

/// How fast copies are made anew, and what users notice of it
///
/// Starts a system of its own in memory. A target is left out and taken back again and again, alone and beside users who read and write;
/// at the end an engine is added and takes over its share. Exit code 1 when a goal is missed: a rebuild of half of the bandwidth of
/// writing, users who lose a fifth at most, with a 99th percentile of small reads at most twice what it was, 3 % that come back with a target after
/// 1 % has changed, and an extension that moves 1.1 times the share of the new engine.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura bench heal
  azekura bench heal --rounds 5 --data 4GiB --json
  azekura bench heal --heal-share 20               # what another share is worth
  azekura bench heal --binary /opt/old/azekura      # engines of another version")]
pub struct HealArgs {
    /// How often a target goes and comes back, in each way
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Engines at first, of one target each
    #[arg(long, default_value_t = 4)]
    engines: u32,
    /// Bytes of files, of which there are two copies
    #[arg(long, default_value = "1GiB", value_name = "SIZE", value_parser = size::parse)]
    data: u64,
    /// Users are watched for so many seconds before each rebuild
    #[arg(long, default_value_t = 3.0, value_name = "SECONDS")]
    watch: f64,
    /// Of the time of each target beside users, percent; the pool's default where none is given
    #[arg(long, value_name = "PERCENT")]
    heal_share: Option<u8>,
    /// The command whose engines are measured; this one where none is given
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// A directory in memory
    #[arg(long, default_value = "/dev/shm", value_name = "DIRECTORY")]
    memory: PathBuf,
}

pub fn run(session: &Session, args: &HealArgs) -> Outcome {
    let binary = match &args.binary {
        Some(binary) => absolute(binary)?,
        None => std::env::current_exe()
            .map_err(|error| Error::io("finding this program's own file", error))?,
    };
    let options = Options {
        rounds: args.rounds,
        engines: args.engines,
        data_bytes: args.data,
        watch_s: args.watch,
        heal_share: args.heal_share,
        dir: absolute(&args.memory)?,
    };
    let report = with_output(session, |out| heal::run(&options, &binary, out))?;
    if report.goals.iter().all(Goal::is_met) { Ok(()) } else { Err(Failure::Reported(1)) }
}
