//! `azekura bench ioc coordinator`: memory of a coordinator with many waiting clients, and how
//! many grants a second one core of it makes.

use crate::exit::{Failure, Outcome};
use crate::output::Table;
use crate::session::Session;
use clap::Args;
use coordinate::load::{Load, Usage};
use coordinate::monitor::Monitor;
use coordinate::rules::choice::Endpoint;
use serde::Serialize;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use types::{Code, Error, Result, size};

/// Wanted: less memory than this with [`CLIENTS`] waiting, bytes.
const RESIDENT_BYTES_MAX: u64 = 100_000_000;
/// Wanted: so many grants in a second of processor time.
const GRANTS_PER_S_MIN: f64 = 50_000.0;
/// Wanted: less than this part of a core while nothing happens.
const IDLE_MAX: f64 = 0.01;
const CLIENTS: usize = 10_000;
/// How long the coordinator is watched while nothing happens.
const IDLE: Duration = Duration::from_secs(2);

/// Measure the coordinator itself
///
/// Starts a coordinator, has clients wait in it, then lets them ask, complete and ask again as fast
/// as they can. No file is touched. Ends with exit code 1 when a goal is missed.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura bench ioc coordinator
  azekura bench ioc coordinator --clients 1000 --grants 20000 --tcp")]
pub struct CoordinatorArgs {
    /// Clients that wait
    #[arg(long, short, default_value_t = CLIENTS)]
    clients: usize,
    /// Targets they share
    #[arg(long, short, default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    targets: u32,
    /// Writers per target at a time
    #[arg(long, short = 'w', default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    max_writers: u32,
    /// Requests to let through
    #[arg(long, short, default_value_t = 500_000)]
    grants: u64,
    /// Over TCP
    #[arg(long)]
    tcp: bool,
}

#[derive(Serialize)]
struct Figures {
    clients_waiting: usize,
    resident_bytes: u64,
    idle_cores: f64,
    grants: u64,
    grants_per_s: f64,
    grants_per_cpu_s: f64,
    cpu_us_per_grant: f64,
    goals: Vec<Goal>,
}

#[derive(Serialize)]
struct Goal {
    name: &'static str,
    wanted: String,
    measured: String,
    met: bool,
}

/// A coordinator's process; ended when dropped.
struct Coordinator {
    child: Child,
    dir: PathBuf,
    endpoint: Endpoint,
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        // It is ours and still a child, so the number is its own.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

pub fn run(session: &Session, args: &CoordinatorArgs) -> Outcome {
    let coordinator = start(args)?;
    let pid = coordinator.child.id();
    let inside = (args.targets * args.max_writers) as usize;
    let clients = args.clients + inside;
    let endpoint = &coordinator.endpoint;
    let mut load = Load::start(endpoint, b"", clients, args.targets as usize)?;
    let mut monitor = Monitor::connect(endpoint, b"", session.timeout)?;
    let begin = Instant::now();
    let clients_waiting = loop {
        let queue = &monitor.ask()?.groups[0].queue;
        if queue.waiting + queue.active == clients {
            break queue.waiting;
        }
        if begin.elapsed() > session.timeout {
            return Err(Error::new(Code::TimedOut, "clients are still connecting").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let before = Usage::of(pid)?;
    std::thread::sleep(IDLE);
    let idle = Usage::of(pid)?;
    let took = load.run(args.grants, session.timeout)?;
    let after = Usage::of(pid)?;
    let cpu_s = (after.cpu - idle.cpu).as_secs_f64();
    let grants = args.grants as f64;
    let resident_bytes = idle.resident_bytes.max(after.resident_bytes);
    let idle_cores = (idle.cpu - before.cpu).as_secs_f64() / IDLE.as_secs_f64();
    let grants_per_cpu_s = grants / cpu_s.max(1e-9);
    let goals = vec![
        Goal {
            name: "memory",
            wanted: format!("< {}", size::format(RESIDENT_BYTES_MAX)),
            measured: size::format(resident_bytes),
            met: resident_bytes < RESIDENT_BYTES_MAX,
        },
        Goal {
            name: "grants per second of one core",
            wanted: format!("≥ {GRANTS_PER_S_MIN}"),
            measured: format!("{grants_per_cpu_s:.0}"),
            met: grants_per_cpu_s >= GRANTS_PER_S_MIN,
        },
        Goal {
            name: "idle, cores",
            wanted: format!("< {IDLE_MAX}"),
            measured: format!("{idle_cores:.4}"),
            met: idle_cores < IDLE_MAX,
        },
    ];
    let figures = Figures {
        clients_waiting,
        resident_bytes,
        idle_cores,
        grants: args.grants,
        grants_per_s: grants / took.as_secs_f64(),
        grants_per_cpu_s,
        cpu_us_per_grant: cpu_s * 1e6 / grants,
        goals,
    };
    session.out.show(&figures, |out| {
        writeln!(
            out,
            "{} clients wait; {} grants in {:.1} s: {:.0} grants/s, {:.1} us of processor time each",
            figures.clients_waiting,
            figures.grants,
            took.as_secs_f64(),
            figures.grants_per_s,
            figures.cpu_us_per_grant
        )?;
        let mut table = Table::new(&["GOAL", ">WANTED", ">MEASURED", ""]);
        for goal in &figures.goals {
            let verdict = if goal.met { "met" } else { "missed" };
            table.row(vec![
                goal.name.into(),
                goal.wanted.clone(),
                goal.measured.clone(),
                verdict.into(),
            ]);
        }
        table.write(out)
    })?;
    if figures.goals.iter().all(|goal| goal.met) { Ok(()) } else { Err(Failure::Reported(1)) }
}

/// Starts a coordinator that is this program again.
fn start(args: &CoordinatorArgs) -> Result<Coordinator> {
    let io = |error| Error::io("starting a coordinator", error);
    let dir = std::env::temp_dir().join(format!("azekura-ioc-{}", std::process::id()));
    std::fs::create_dir(&dir).map_err(io)?;
    let place =
        if args.tcp { "tcp:127.0.0.1:0".into() } else { format!("unix:{}/s", dir.display()) };
    let mut command = Command::new(std::env::current_exe().map_err(io)?);
    command.args(["ioc", "serve", "--no-token", "--listen", &place]);
    command.args(["--max-writers", &args.max_writers.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let child = command.spawn().map_err(io)?;
    let endpoint = Endpoint::Unix(String::new());
    let mut coordinator = Coordinator { child, dir, endpoint };
    let mut line = String::new();
    if let Some(out) = coordinator.child.stdout.take() {
        BufReader::new(out).read_line(&mut line).map_err(io)?;
    }
    let place = line.trim().strip_prefix("Coordinating at ");
    let place = place.ok_or_else(|| Error::new(Code::Io, "the coordinator did not start"))?;
    coordinator.endpoint = place.parse()?;
    Ok(coordinator)
}
