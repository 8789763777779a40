//! `azekura bench s4`: experiments of the evaluation of DAOS with the patterns of IO500.

use super::with_output;
use crate::exit::{Failure, Outcome};
use crate::session::{Session, absolute};
use bench::s4::{self, classes};
use clap::Args;
use std::path::PathBuf;
use types::{Error, ObjClass, size};

/// Experiments of the evaluation of DAOS, by their sections in the paper
///
/// 5.1: bandwidth by devices; 5.2: by tasks, sizes of transfers and engines; 5.3: IOR-hard by engines; 5.4: IOR-easy (1 MiB) and IOR-hard (47,008
/// bytes) by object class; 6.1: mdtest's score by targets of an engine; 6.2: by engines, through shared memory and TCP. Each starts systems of its
/// own in memory; what was published stands beside what is measured.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura bench s4 --experiment 5.4
  azekura bench s4 --experiment 5.4 --classes RP_2GX --rounds 1 --bytes 64MiB --segments 200
  azekura bench s4 --experiment 5.1 --counts 1,2,4 --device-rate 64MiB
  azekura bench s4 --experiment 6.2 --plot engines.svg --json")]
pub struct S4Args {
    /// Section of the paper: 5.1, 5.2, 5.3, 5.4, 6.1 or 6.2
    #[arg(long, default_value = "5.4", value_parser = ["5.1", "5.2", "5.3", "5.4", "6.1", "6.2"])]
    experiment: String,
    /// Client processes (5.2 has its own, 5.1 two or more for each device)
    #[arg(long, short, default_value_t = 2)]
    processes: u32,
    /// Rounds of alternation
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// 5.4: engines
    #[arg(long, default_value_t = 4)]
    engines: u32,
    /// 5.4: targets of each engine
    #[arg(long, default_value_t = 1)]
    targets: u32,
    /// 5.4: classes beside SX, no wider than there are engines [default: RP_2GX, RP_3GX, EC_2P1GX, EC_2P2GX]
    #[arg(long, value_delimiter = ',', value_name = "CLASS,...")]
    classes: Vec<ObjClass>,
    /// All others: numbers of devices, tasks, engines or targets [default: 1,2,4,8; 6.2: 1,2,4]
    #[arg(long, value_delimiter = ',', value_name = "N,...")]
    counts: Vec<u32>,
    /// Bytes that processes write and read in sequence: each one in 5.4, all together elsewhere
    #[arg(long, default_value = "256MiB", value_parser = size::parse)]
    bytes: u64,
    /// Transfers of a process with IOR-hard
    #[arg(long, default_value_t = 2_000)]
    segments: u64,
    /// 6.1, 6.2: files of a process with each of mdtest's patterns
    #[arg(long, default_value_t = 2_000)]
    files: u64,
    /// 5.1: what a device writes, or reads, in a second
    #[arg(long, default_value = "64MiB", value_parser = size::parse, value_name = "SIZE")]
    device_rate: u64,
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
    let dir = absolute(&args.memory)?;
    let failures = match args.experiment.as_str() {
        "5.4" => {
            let options = class_options(args, dir);
            with_output(session, |out| classes::run(&options, &binary, out))?.failures
        }
        number => {
            let options = s4::Options {
                experiment: number.parse()?,
                rounds: args.rounds,
                counts: args.counts.clone(),
                processes: args.processes,
                bytes: args.bytes,
                segments: args.segments,
                files_per_process: args.files,
                device_rate_max: args.device_rate,
                dir,
                plot: args.plot.clone(),
            };
            with_output(session, |out| s4::run(&options, &binary, out))?.failures
        }
    };
    if failures.is_empty() { Ok(()) } else { Err(Failure::Reported(1)) }
}

fn class_options(args: &S4Args, dir: PathBuf) -> classes::Options {
    let classes = match &args.classes[..] {
        [] => classes::PUBLISHED.to_vec(),
        named => named.to_vec(),
    };
    classes::Options {
        processes: args.processes,
        rounds: args.rounds,
        engines: args.engines,
        targets: args.targets,
        classes,
        bytes_per_process: args.bytes,
        segments: args.segments,
        dir,
        plot: args.plot.clone(),
    }
}
