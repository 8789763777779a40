//! `azekura bench ioc`: the experiments of the coordination paper, and the modelled device.

mod coordinator;

use super::with_output;
use crate::exit::{Failure, Outcome};
use crate::session::{Session, absolute};
use ::bench::ioc::device::{Done, Mount, Params};
use ::bench::ioc::{DeviceReady, DeviceReport, Ground, Limit, Setting, micro, nicam};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use types::{Error, Result, size};

/// What I/O request coordination gains
#[derive(Args, Debug)]
pub struct IocArgs {
    #[command(subcommand)]
    verb: IocVerb,
}

#[derive(Subcommand, Debug)]
enum IocVerb {
    Micro(MicroArgs),
    Nicam(NicamArgs),
    Device(DeviceArgs),
    Coordinator(coordinator::CoordinatorArgs),
}

/// Where and with what; for both experiments
#[derive(Args, Debug)]
struct SettingArgs {
    /// A directory of the file system to measure
    #[arg(value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
    /// Measure a modelled device, mounted for this run
    #[arg(long, conflicts_with = "dir")]
    model: bool,
    /// Storage targets; on a directory: subdirectories
    #[arg(long, default_value_t = 1)]
    targets: u32,
    /// Rounds of alternation
    #[arg(long, default_value_t = 3)]
    repeat: u32,
    /// Limit of the coordinated side: a number or auto
    #[arg(long, default_value = "2", value_name = "NUMBER")]
    max_writers: Limit,
    /// Calls on fewer bytes do not ask; scaled like all sizes
    #[arg(long, default_value = "8000000", value_name = "SIZE", value_parser = size::parse)]
    min_size: u64,
    /// Bypass the page cache
    #[arg(long)]
    direct: bool,
    /// Do not wait at the end until the data are on the device
    #[arg(long)]
    no_fsync: bool,
    /// Read everything back and compare
    #[arg(long)]
    verify: bool,
    /// Decides the data
    #[arg(long, short = 'G', default_value_t = 1)]
    seed: u64,
    /// The preload library, if it is not beside the program or in ../lib
    #[arg(long = "library", value_name = "FILE")]
    preload: Option<PathBuf>,
    /// Draw the result into this file (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    device: ParamArgs,
}

/// A modelled target
#[derive(Args, Debug)]
#[command(next_help_heading = "Modelled device")]
struct ParamArgs {
    /// What a target moves while it does not seek, a second
    #[arg(long, value_name = "SIZE", value_parser = size::parse,
          default_value_t = Params::default().rate_bytes_per_s)]
    rate: u64,
    /// What one client's link moves, a second
    #[arg(long, value_name = "SIZE", value_parser = size::parse,
          default_value_t = Params::default().client_bytes_per_s)]
    client_rate: u64,
    /// Cost of a change from one file or place to another, microseconds
    #[arg(long, value_name = "US", default_value_t = Params::default().seek_ns as f64 / 1e3)]
    seek_us: f64,
    /// Most bytes in one request of the kernel
    #[arg(long, value_name = "SIZE", value_parser = size::parse,
          default_value_t = Params::default().piece_bytes)]
    piece: u64,
    /// Merge window: most bytes served without a break
    #[arg(long, value_name = "SIZE", value_parser = size::parse,
          default_value_t = Params::default().merge_bytes)]
    merge: u64,
    /// Bytes one client may have on their way
    #[arg(long, value_name = "SIZE", value_parser = size::parse,
          default_value_t = Params::default().window_bytes)]
    window: u64,
    /// Queue of a target
    #[arg(long, value_name = "SIZE", value_parser = size::parse,
          default_value_t = Params::default().queue_bytes)]
    queue: u64,
    /// Keep data in this directory, not in memory
    #[arg(long, value_name = "DIRECTORY")]
    store: Option<PathBuf>,
}

/// Throughput and completion times of 1, 2, … 16 writers for each target
///
/// Every process writes a file of its own, without and with coordination in turn. At the largest
/// number, fixed limits are compared with the one the coordinator finds.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura bench ioc micro --model                        # the effect, on any machine with FUSE
  azekura bench ioc micro --model --scale 1 --store /data   # files of 1 GB, as in the paper
  azekura bench ioc micro /lustre/me --direct --scale 1 --plot fig9.svg")]
struct MicroArgs {
    #[command(flatten)]
    setting: SettingArgs,
    /// Factor on all sizes
    #[arg(long, default_value_t = 0.0625)]
    scale: f64,
    /// Processes for each target
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16", value_name = "NUMBERS")]
    writers: Vec<u32>,
    /// Bytes each process writes, before scaling
    #[arg(long, default_value = "1000000000", value_parser = size::parse)]
    size: u64,
    /// Bytes of a call, before scaling [default: the whole file]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    call: Option<u64>,
    /// Fixed limits to hold against auto
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8", value_name = "NUMBERS")]
    limits: Vec<u32>,
    /// Times each process writes its file before auto is counted
    #[arg(long, default_value_t = 8, value_name = "NUMBER")]
    warm_up: u32,
    /// Do not compare limits
    #[arg(long, conflicts_with = "limits")]
    no_auto: bool,
}

/// Output of a climate simulation: history and restart files, variable by variable
///
/// Sizes and order are those of NICAM in the paper. With --model the device is scaled like them.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura bench ioc nicam --model
  azekura bench ioc nicam /lustre/me --scale 1 --targets 4 --pause 10")]
struct NicamArgs {
    #[command(flatten)]
    setting: SettingArgs,
    /// Factor on all sizes
    #[arg(long, default_value_t = 0.125)]
    scale: f64,
    /// Processes for each target
    #[arg(long, default_value_t = 13, value_name = "NUMBER")]
    writers: u32,
    /// Seconds between steps
    #[arg(long, default_value_t = 0.1, value_name = "SECONDS")]
    pause: f64,
}

/// Mount modelled storage targets at a directory until interrupted
///
/// t0, t1, … appear in it. Reads and writes take the time the model says; names take none.
#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 3 when the machine has no FUSE, 8 when it may not be used.

Examples:
  azekura bench ioc device /mnt/slow &
  azekura bench ioc device /mnt/slow --targets 2 --rate 100MiB --seek-us 2000")]
struct DeviceArgs {
    /// An empty directory
    dir: PathBuf,
    /// Storage targets
    #[arg(long, default_value_t = 1)]
    targets: u32,
    #[command(flatten)]
    device: ParamArgs,
    /// Say in lines of JSON when it is mounted and what it has done
    #[arg(long, hide = true)]
    serving: bool,
}

pub fn run(session: &Session, args: &IocArgs) -> Outcome {
    match &args.verb {
        IocVerb::Micro(args) => {
            let options = micro_options(args)?;
            with_output(session, |out| micro::run(&options, out)).map(|_| ())
        }
        IocVerb::Nicam(args) => {
            let options = nicam_options(args)?;
            with_output(session, |out| nicam::run(&options, out)).map(|_| ())
        }
        IocVerb::Device(args) => serve_device(session, args),
        IocVerb::Coordinator(args) => coordinator::run(session, args),
    }
}

fn micro_options(args: &MicroArgs) -> Result<micro::Options> {
    Ok(micro::Options {
        setting: setting(&args.setting, args.scale)?,
        writers: args.writers.clone(),
        bytes: args.size,
        call_bytes: args.call,
        warm_up: args.warm_up,
        limits: if args.no_auto { Vec::new() } else { args.limits.clone() },
        plot: args.setting.plot.clone(),
    })
}

fn nicam_options(args: &NicamArgs) -> Result<nicam::Options> {
    Ok(nicam::Options {
        setting: setting(&args.setting, args.scale)?,
        writers: args.writers,
        pause_s: args.pause,
        plot: args.setting.plot.clone(),
    })
}

fn setting(args: &SettingArgs, scale: f64) -> Result<Setting> {
    let ground = match &args.dir {
        Some(dir) => Ground::Dir(absolute(dir)?),
        None if !args.model => {
            return Err(Error::inval("where? Name a directory, or give --model"));
        }
        None => Ground::Model {
            device: params(&args.device)?,
            store: args.device.store.as_deref().map(absolute).transpose()?,
        },
    };
    let binary = std::env::current_exe()
        .map_err(|error| Error::io("finding this program's own file", error))?;
    Ok(Setting {
        ground,
        targets: args.targets,
        scale,
        repeat: args.repeat,
        limit: args.max_writers,
        min_bytes: args.min_size,
        direct: args.direct,
        fsync: !args.no_fsync,
        verify: args.verify,
        seed: args.seed,
        binary,
        preload: args.preload.clone(),
    })
}

fn params(args: &ParamArgs) -> Result<Params> {
    if !(0.0..=1e6).contains(&args.seek_us) {
        return Err(Error::inval("seek-us: want at most a second"));
    }
    let params = Params {
        rate_bytes_per_s: args.rate,
        client_bytes_per_s: args.client_rate,
        seek_ns: (args.seek_us * 1e3).round() as u64,
        piece_bytes: args.piece,
        merge_bytes: args.merge,
        window_bytes: args.window,
        queue_bytes: args.queue,
    };
    params.check()?;
    Ok(params)
}

/// Mounts, waits for a signal, unmounts, tells what was done.
fn serve_device(session: &Session, args: &DeviceArgs) -> Outcome {
    let params = params(&args.device)?;
    // Before any thread is started: they inherit it, and the signals wait for this one.
    let signals = EndSignals::hold()?;
    let dir = absolute(&args.dir)?;
    let store = args.device.store.as_deref().map(absolute).transpose()?;
    let mount = Mount::start(&dir, &params, args.targets, store.as_deref())?;
    if args.serving {
        print_line(&DeviceReady { mounted: dir })?;
    } else if !session.out.json && !session.out.quiet {
        println!("{} targets at {}: {}", args.targets, dir.display(), params.text());
        println!("end with Ctrl-C");
    }
    signals.wait()?;
    let report = DeviceReport { device: params, targets: mount.done() };
    drop(mount);
    if args.serving {
        return print_line(&report);
    }
    session.out.show(&report, |out| {
        report
            .targets
            .iter()
            .enumerate()
            .try_for_each(|(at, done)| writeln!(out, "{}", done_text(at, done)))
    })
}

fn done_text(target: usize, done: &Done) -> String {
    format!(
        "target {target}: {} in {} runs, {} seeks, busy {:.1} s",
        size::format(done.bytes),
        done.runs,
        done.seeks,
        done.busy_ns as f64 / 1e9
    )
}

fn print_line(value: &impl Serialize) -> Outcome {
    let failed = |error| Failure::Error(Error::io("printing", error));
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, value).map_err(|error| failed(error.into()))?;
    out.write_all(b"\n").and_then(|()| out.flush()).map_err(failed)
}

/// The signals that end a program, held back until somebody waits for them.
struct EndSignals {
    set: libc::sigset_t,
}

impl EndSignals {
    fn hold() -> Result<EndSignals> {
        // SAFETY: a set of zeros is valid to be filled by `sigemptyset`; all pointers are to it.
        let (set, failed) = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&mut set, signal);
            }
            (set, libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()))
        };
        match failed {
            0 => Ok(EndSignals { set }),
            code => Err(Error::io("holding signals", std::io::Error::from_raw_os_error(code))),
        }
    }

    fn wait(&self) -> Result<()> {
        let mut signal = 0;
        // SAFETY: both point to what they should.
        match unsafe { libc::sigwait(&self.set, &mut signal) } {
            0 => Ok(()),
            code => {
                let error = std::io::Error::from_raw_os_error(code);
                Err(Error::io("waiting for a signal", error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        ioc: IocArgs,
    }

    fn parse(line: &str) -> Result<IocVerb, clap::Error> {
        Line::try_parse_from(line.split(' ')).map(|line| line.ioc.verb)
    }

    #[test]
    fn without_options_the_defaults_of_the_library_hold() {
        let Ok(IocVerb::Micro(args)) = parse("ioc micro --model") else { panic!("micro") };
        let options = micro_options(&args).unwrap();
        let setting = Setting { binary: options.setting.binary.clone(), ..Setting::default() };
        assert_eq!(options, micro::Options { setting, ..micro::Options::default() });
        let Ok(IocVerb::Nicam(args)) = parse("ioc nicam --model") else { panic!("nicam") };
        let options = nicam_options(&args).unwrap();
        let binary = options.setting.binary.clone();
        let mut usual = nicam::Options::default();
        usual.setting.binary = binary;
        assert_eq!(options, usual);
    }

    #[test]
    fn options_arrive() {
        let line = "ioc micro /tmp --writers 1,3 --scale 2 --max-writers auto --no-auto \
                    --no-fsync --direct --min-size 1MiB --call 4k --targets 3";
        let Ok(IocVerb::Micro(args)) = parse(line) else { panic!("micro") };
        let options = micro_options(&args).unwrap();
        assert_eq!(options.writers, [1, 3]);
        assert_eq!((options.call_bytes, options.limits.len()), (Some(4096), 0));
        let setting = options.setting;
        assert_eq!((setting.scale, setting.targets, setting.limit), (2.0, 3, Limit::Auto));
        assert_eq!((setting.min_bytes, setting.direct, setting.fsync), (1 << 20, true, false));
        assert_eq!(setting.ground, Ground::Dir("/tmp".into()));
        let Ok(IocVerb::Nicam(args)) = parse("ioc nicam --model --seek-us 0.5 --rate 1GiB") else {
            panic!("nicam")
        };
        let Ground::Model { device, store } = nicam_options(&args).unwrap().setting.ground else {
            panic!("modelled")
        };
        assert_eq!((device.seek_ns, device.rate_bytes_per_s, store), (500, 1 << 30, None));
    }

    #[test]
    fn a_place_is_needed_and_only_one() {
        let Ok(IocVerb::Micro(args)) = parse("ioc micro") else { panic!("micro") };
        assert!(micro_options(&args).unwrap_err().to_string().contains("--model"));
        assert!(parse("ioc micro --model /tmp").is_err());
        assert!(parse("ioc micro --model --max-writers many").is_err());
    }
}
