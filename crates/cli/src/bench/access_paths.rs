//! `azekura bench access-paths`: library, mount, and mount with the preloaded library.

use super::with_output;
use crate::exit::{Failure, Outcome};
use crate::session::{Session, absolute};
use bench::access_paths::{self, Options};
use clap::Args;
use std::path::{Path, PathBuf};
use types::{Error, Result, size};

/// File name of the library that takes a program's calls.
const LIBRARY: &str = "libazekura_intercept.so";

/// Ways in, side by side: library, mount, mount with the preloaded library
///
/// Starts a system of its own in memory, mounts it without caches, and measures bandwidth against
/// transfer size, and metadata rates, through each way in turn.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura bench access-paths
  azekura bench access-paths --rounds 1 --bytes 64MiB --transfers 64KiB,1MiB
  azekura bench access-paths --plot access-paths.svg --json")]
pub struct AccessPathsArgs {
    /// Client processes
    #[arg(long, short, default_value_t = 2)]
    processes: u32,
    /// Rounds of alternation
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Bytes per call
    #[arg(long, value_delimiter = ',', value_parser = size::parse,
          default_value = "16KiB,64KiB,256KiB,1MiB,4MiB")]
    transfers: Vec<u64>,
    /// Bytes that a process writes and reads with each transfer size
    #[arg(long, default_value = "256MiB", value_parser = size::parse)]
    bytes: u64,
    /// Files of each process for the metadata rates; 0 leaves them out
    #[arg(long, default_value_t = 5_000)]
    files: u64,
    /// A directory in memory
    #[arg(long, default_value = "/dev/shm", value_name = "DIRECTORY")]
    memory: PathBuf,
    /// The library to preload [default: libazekura_intercept.so beside the program or in ../lib]
    #[arg(long, value_name = "FILE")]
    preload: Option<PathBuf>,
    /// Write the plots (SVG: this file, and one for reading beside it) and the report (JSON)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

pub fn run(session: &Session, args: &AccessPathsArgs) -> Outcome {
    let binary = std::env::current_exe()
        .map_err(|error| Error::io("finding this program's own file", error))?;
    let options = Options {
        processes: args.processes,
        rounds: args.rounds,
        transfers: args.transfers.clone(),
        bytes_per_process: args.bytes,
        files: args.files,
        dir: absolute(&args.memory)?,
        preload: library(args.preload.as_deref(), &binary)?,
        plot: args.plot.clone(),
    };
    if options.preload.is_none() && !session.out.json {
        println!("no {LIBRARY} beside {}: only library and mount", binary.display());
    }
    let report = with_output(session, |out| access_paths::run(&options, &binary, out))?;
    if report.failures.is_empty() { Ok(()) } else { Err(Failure::Reported(1)) }
}

/// The library to preload: the one given must be there; one that is found is used.
fn library(given: Option<&Path>, binary: &Path) -> Result<Option<PathBuf>> {
    if let Some(given) = given {
        let path = absolute(given)?;
        return match path.is_file() {
            true => Ok(Some(path)),
            false => Err(Error::inval(format!("--preload {}: no such file", path.display()))),
        };
    }
    let beside = binary.parent();
    let near =
        beside.into_iter().flat_map(|dir| [dir.join(LIBRARY), dir.join("../lib").join(LIBRARY)]);
    Ok(near.into_iter().find(|path| path.is_file()))
}
