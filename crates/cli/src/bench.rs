//! `azekura bench`: bandwidth and metadata rates, with the access patterns of IOR and mdtest.
//!
//! Short options are those of IOR and mdtest where these have one. The work is done by the crate
//! `bench`; workers are this program again, see `bench::worker_main`.

mod access_paths;
mod durability;
mod heal;
mod ioc;
mod s4;
mod store;
mod tier;
mod weighted;

use crate::exit::{Failure, Outcome};
use crate::session::{Session, absolute};
use crate::url::{Place, Url};
use ::bench::{Where, io, md, suite};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use types::{Error, ObjClass, Result, size};

/// Measure bandwidth and metadata rates.
#[derive(Args, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    verb: BenchVerb,
}

#[derive(Subcommand, Debug)]
enum BenchVerb {
    Io(IoArgs),
    Md(MdArgs),
    Ioc(ioc::IocArgs),
    AccessPaths(access_paths::AccessPathsArgs),
    Store(store::StoreArgs),
    S4(s4::S4Args),
    Weighted(weighted::WeightedArgs),
    Tier(tier::TierArgs),
    Durability(durability::DurabilityArgs),
    Heal(heal::HealArgs),
    #[command(hide = true)]
    Suite(SuiteArgs),
}

/// Bandwidth: the access patterns of IOR
///
/// Each process transfers blocks of one shared file, or of a file of its own. The place is a
/// directory in a container, or one of this machine's, for comparison.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura bench io azk://tank/home/io                       # 2 processes, one file, 1 MiB
  azekura bench io azk://tank/home/io -p 4 -F -b 1GiB -C    # IOR-easy
  azekura bench io azk://tank/home/io -t 47008 -b 47008 -s 10000 -C -R   # IOR-hard, compared
  azekura bench io /dev/shm/io -F -b 1GiB                   # the kernel's tmpfs")]
struct IoArgs {
    /// azk://POOL/CONT/DIR, or a directory of this machine
    place: OsString,
    /// Number of processes
    #[arg(long, short, default_value_t = 2)]
    processes: u32,
    /// Bytes per call
    #[arg(long, short, default_value = "1MiB", value_parser = size::parse)]
    transfer: u64,
    /// Bytes a process writes in a row
    #[arg(long, short, default_value = "64MiB", value_parser = size::parse)]
    block: u64,
    /// Segments: rounds of one block per process
    #[arg(long, short, default_value_t = 1)]
    segments: u64,
    /// A file per process
    #[arg(long, short = 'F')]
    file_per_process: bool,
    /// Read what the next process wrote
    #[arg(long, short = 'C')]
    reorder: bool,
    /// Transfers in random order
    #[arg(long, short = 'z')]
    random: bool,
    /// Write only (with --read: write and read, the default)
    #[arg(long, short)]
    write: bool,
    /// Read only what an earlier run with --keep has written
    #[arg(long, short)]
    read: bool,
    /// After writing read back and compare
    #[arg(long, short = 'W')]
    verify_write: bool,
    /// Compare what is read
    #[arg(long, short = 'R')]
    verify_read: bool,
    /// Make data durable before closing
    #[arg(long, short = 'e')]
    fsync: bool,
    /// Leave the files
    #[arg(long, short)]
    keep: bool,
    /// Repetitions
    #[arg(long, short, default_value_t = 1)]
    iterations: u32,
    /// Writers stop after so many seconds
    #[arg(long, short = 'D', value_name = "SECONDS")]
    stonewall: Option<f64>,
    /// Object class of the files
    #[arg(long, value_name = "CLASS")]
    oclass: Option<ObjClass>,
    /// Chunk size of the files
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    chunk_size: Option<u64>,
    /// Decides data and random order
    #[arg(long, short = 'G', default_value_t = 1)]
    seed: u64,
    /// Use TCP even where shared memory would do
    #[arg(long)]
    tcp: bool,
}

/// Metadata rates: the access patterns of mdtest
///
/// Each process makes, looks at, reads and removes files; without -C, -T, -E, -r all of these.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura bench md azk://tank/home/md -n 50000 -u                    # mdtest-easy
  azekura bench md azk://tank/home/md -n 10000 -w 3901 -e 3901       # mdtest-hard
  azekura bench md /dev/shm/md -n 50000 -u                           # the kernel's tmpfs")]
struct MdArgs {
    /// azk://POOL/CONT/DIR, or a directory of this machine
    place: OsString,
    /// Number of processes
    #[arg(long, short, default_value_t = 2)]
    processes: u32,
    /// Files of each process
    #[arg(long, short = 'n', default_value_t = 10_000)]
    files: u64,
    /// A directory per process
    #[arg(long, short)]
    unique_dir: bool,
    /// Bytes written to each file
    #[arg(long, short, default_value = "0", value_parser = size::parse)]
    write_bytes: u64,
    /// Bytes read from each file
    #[arg(long, short = 'e', default_value = "0", value_parser = size::parse)]
    read_bytes: u64,
    /// Stat and read the files of the process so many ranks further
    #[arg(long, short = 'N', default_value_t = 1)]
    stride: u32,
    /// Make files
    #[arg(long, short = 'C')]
    create: bool,
    /// Ask for their attributes
    #[arg(long, short = 'T')]
    stat: bool,
    /// Open and read them
    #[arg(long, short = 'E')]
    read: bool,
    /// Remove them
    #[arg(long, short)]
    remove: bool,
    /// Compare what is read
    #[arg(long, short = 'X')]
    verify: bool,
    /// Make each file durable before closing it
    #[arg(long, short = 'y')]
    fsync: bool,
    /// Repetitions
    #[arg(long, short, default_value_t = 1)]
    iterations: u32,
    /// Creators stop after so many seconds
    #[arg(long, short = 'W', value_name = "SECONDS")]
    stonewall: Option<f64>,
    /// Number of each process's first file, for a directory that has files
    #[arg(long, default_value_t = 0)]
    first_file: u64,
    /// Object class of the directories
    #[arg(long, value_name = "CLASS")]
    dir_oclass: Option<ObjClass>,
    /// Object class of the files
    #[arg(long, value_name = "CLASS")]
    oclass: Option<ObjClass>,
    /// Decides the files' data
    #[arg(long, short = 'G', default_value_t = 1)]
    seed: u64,
    /// Use TCP even where shared memory would do
    #[arg(long)]
    tcp: bool,
}

/// Hold a system of its own against this machine's tmpfs, and both against the project's goals
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  azekura bench suite\n  azekura bench suite --only rounds --rounds 5 --scale 0.4"
)]
struct SuiteArgs {
    /// Only these parts: growth (directories with many files), rounds (against tmpfs and bare exchanges), protected (copies and codes against neither)
    #[arg(long, value_delimiter = ',', value_name = "PART,...")]
    only: Vec<suite::Part>,
    /// Rounds of alternation
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Client processes
    #[arg(long, short, default_value_t = 2)]
    processes: u32,
    /// Factor on all amounts of work
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// A directory in memory
    #[arg(long, default_value = "/dev/shm", value_name = "DIRECTORY")]
    memory: PathBuf,
    /// Also write the report as JSON into this directory
    #[arg(long, value_name = "DIRECTORY")]
    results: Option<PathBuf>,
    /// Also draw what was reached of each goal
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

pub fn run(session: &Session, args: &BenchArgs) -> Outcome {
    match &args.verb {
        BenchVerb::Io(args) => {
            let place = place(session, &args.place, args.tcp)?;
            with_output(session, |out| io::run(&io_options(args), &place, out)).map(|_| ())
        }
        BenchVerb::Md(args) => {
            let place = place(session, &args.place, args.tcp)?;
            with_output(session, |out| md::run(&md_options(args), &place, out)).map(|_| ())
        }
        BenchVerb::Ioc(args) => ioc::run(session, args),
        BenchVerb::AccessPaths(args) => access_paths::run(session, args),
        BenchVerb::Store(args) => store::run(session, args),
        BenchVerb::S4(args) => s4::run(session, args),
        BenchVerb::Weighted(args) => weighted::run(session, args),
        BenchVerb::Tier(args) => tier::run(session, args),
        BenchVerb::Durability(args) => durability::run(session, args),
        BenchVerb::Heal(args) => heal::run(session, args),
        BenchVerb::Suite(args) => run_suite(session, args),
    }
}

fn run_suite(session: &Session, args: &SuiteArgs) -> Outcome {
    let parts = match args.only.is_empty() {
        true => suite::Part::ALL.to_vec(),
        false => args.only.clone(),
    };
    let options = suite::Options {
        parts,
        rounds: args.rounds,
        processes: args.processes,
        scale: args.scale,
        dir: absolute(&args.memory)?,
        results: args.results.clone(),
        plot: args.plot.clone(),
    };
    let binary = std::env::current_exe()
        .map_err(|error| Error::io("finding this program's own file", error))?;
    let report = with_output(session, |out| suite::run(&options, &binary, out))?;
    // A goal that is missed is a result; a measurement that failed is a failure.
    if report.failures.is_empty() { Ok(()) } else { Err(Failure::Reported(1)) }
}

/// Runs a benchmark whose lines go to standard output, or with `--json` only its report does.
fn with_output<R: Serialize>(
    session: &Session,
    run: impl FnOnce(&mut dyn Write) -> Result<R>,
) -> Outcome<R> {
    if !session.out.json {
        return Ok(run(&mut std::io::stdout().lock())?);
    }
    let report = run(&mut std::io::sink())?;
    session.out.show(&report, |_| Ok(()))?;
    Ok(report)
}

/// What the first argument means.
fn place(session: &Session, text: &OsString, tcp_only: bool) -> Result<Where> {
    let url = match Place::parse(text)? {
        Place::Local(path) => return Ok(Where::Posix(absolute(Path::new(&path))?)),
        Place::Remote(url) => url,
    };
    let Url { pool, cont, path } = url;
    let dir = String::from_utf8(path)
        .map_err(|_| Error::inval("a benchmark's directory must have a UTF-8 name"))?;
    Ok(Where::Dfs {
        system: system(session)?,
        pool: pool.to_string(),
        cont: cont.to_string(),
        dir,
        tcp_only,
    })
}

/// The system in a form that the workers understand wherever they start.
fn system(session: &Session) -> Result<String> {
    match &session.system {
        None => Ok(String::new()),
        Some(text) if text.starts_with("tcp://") || text.starts_with("unix:") => Ok(text.clone()),
        Some(dir) => {
            let dir = absolute(Path::new(dir))?;
            dir.to_str()
                .map(str::to_string)
                .ok_or_else(|| Error::inval(format!("{} is not UTF-8", dir.display())))
        }
    }
}

fn io_options(args: &IoArgs) -> io::Options {
    let both = args.write == args.read;
    io::Options {
        processes: args.processes,
        transfer_bytes: args.transfer,
        block_bytes: args.block,
        segments: args.segments,
        file_per_process: args.file_per_process,
        reorder: args.reorder,
        random: args.random,
        write: both || args.write,
        read: both || args.read,
        verify_write: args.verify_write,
        verify_read: args.verify_read,
        fsync: args.fsync,
        keep: args.keep,
        iterations: args.iterations,
        stonewall_s: args.stonewall,
        class: args.oclass,
        chunk_bytes: args.chunk_size.unwrap_or(0),
        seed: args.seed,
    }
}

fn md_options(args: &MdArgs) -> md::Options {
    let all = !(args.create || args.stat || args.read || args.remove);
    md::Options {
        processes: args.processes,
        files_per_process: args.files,
        unique_dir: args.unique_dir,
        write_bytes: args.write_bytes,
        read_bytes: args.read_bytes,
        stride: args.stride,
        create: all || args.create,
        stat: all || args.stat,
        read: all || args.read,
        remove: all || args.remove,
        verify: args.verify,
        fsync: args.fsync,
        iterations: args.iterations,
        stonewall_s: args.stonewall,
        first_file: args.first_file,
        dir_class: args.dir_oclass,
        class: args.oclass,
        seed: args.seed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn io_of(line: &str) -> io::Options {
        match Line::parse_from(line.split(' ')).bench.verb {
            BenchVerb::Io(args) => io_options(&args),
            _ => panic!("not bench io"),
        }
    }

    fn md_of(line: &str) -> md::Options {
        match Line::parse_from(line.split(' ')).bench.verb {
            BenchVerb::Md(args) => md_options(&args),
            _ => panic!("not bench md"),
        }
    }

    #[test]
    fn short_options_are_those_of_ior() {
        let hard = io_of("bench io azk://p/c/d -t 47008 -b 47008 -s 7 -C");
        assert_eq!(hard, io::Options::hard(2, 7));
        let easy = io_of("bench io azk://p/c/d -p 4 -F -b 1GiB -C");
        assert_eq!(easy, io::Options::easy(4, 1 << 30));
        let writing = io_of("bench io d -w");
        assert!(writing.write && !writing.read);
        let reading = io_of("bench io d -r -R");
        assert!(!reading.write && reading.read && reading.verify_read);
    }

    #[test]
    fn short_options_are_those_of_mdtest() {
        assert_eq!(md_of("bench md d -n 9 -u"), md::Options::easy(2, 9));
        assert_eq!(md_of("bench md d -n 9 -w 3901 -e 3901"), md::Options::hard(2, 9));
        let creating = md_of("bench md d -C");
        assert!(creating.create && !creating.stat && !creating.read && !creating.remove);
    }
}
