//! `azekura top`: what the targets of some engines do just now, from the figures that they tell.

mod figures;

use crate::exit::Outcome;
use crate::output::Table;
use crate::session::Session;
use crate::system::dir::SystemDir;
use engine::EngineConfig;
use figures::{Figures, TargetRates};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use types::{Error, Result, size};

/// How long an engine may take to tell its figures.
const ASK_TIME_MAX: Duration = Duration::from_secs(5);

/// Show what targets do: operations, data, queues, latency
///
/// On a terminal again and again until interrupted; else, with --once and with --json one time, of one interval. Engines tell
/// their figures where `listen` under `[metrics]` of their configuration says.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura top
  azekura top host1:7711 host2:7711 host3:7711 --sort latency
  azekura top --config /etc/azekura/engine.toml --json --interval 5")]
pub struct TopArgs {
    /// Where engines tell their figures [default: the engines of the system's directory]
    #[arg(value_name = "HOST:PORT", conflicts_with = "config")]
    addresses: Vec<String>,
    /// Configuration of an engine, which says where; may be repeated
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// Show it one time
    #[arg(long)]
    once: bool,
    /// Seconds between two looks
    #[arg(long, short, default_value_t = 2, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// What comes first
    #[arg(long, value_enum, default_value_t = Order::Target)]
    sort: Order,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Order {
    Target,
    Ops,
    Bytes,
    Queue,
    Latency,
}

/// An engine's part of the report.
#[derive(Serialize)]
struct EngineReport {
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
    /// It holds the control service.
    leads: bool,
    /// Why it told nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    targets: Vec<TargetRates>,
}

#[derive(Serialize)]
struct Report {
    seconds: f64,
    engines: Vec<EngineReport>,
}

/// One look at all engines.
struct Look {
    at: Instant,
    figures: Vec<Result<Figures>>,
}

/// Runs the command.
pub fn run(session: &Session, args: &TopArgs) -> Outcome {
    let addresses = addresses(session, args)?;
    let repeats = !args.once && !session.out.json && io::stdout().is_terminal();
    let mut before = look(session, &addresses);
    // When nobody tells anything there is nothing to wait for.
    if before.figures.iter().all(Result::is_err)
        && let Some(Err(error)) = before.figures.first()
    {
        return Err(error.clone().into());
    }
    loop {
        thread::sleep(Duration::from_secs(args.interval));
        let now = look(session, &addresses);
        let mut report = compare(&addresses, &before, &now);
        report.engines.iter_mut().for_each(|engine| sort(&mut engine.targets, args.sort));
        session.out.show(&report, |out| {
            if repeats {
                // Home, clear to the end of the screen.
                write!(out, "\x1b[H\x1b[2J")?;
            }
            show(out, &report, args.sort)
        })?;
        if !repeats {
            return Ok(());
        }
        before = now;
    }
}

fn addresses(session: &Session, args: &TopArgs) -> Result<Vec<String>> {
    if !args.addresses.is_empty() {
        return Ok(args.addresses.clone());
    }
    let mut configs = Vec::new();
    if args.config.is_empty() {
        let system = SystemDir::at(session.system_dir().map_err(|error| {
            error.context("give HOST:PORT of each engine's figures, or --config")
        })?);
        let setup = system.require_setup()?;
        for index in 0..setup.engines {
            configs.push(system.engine(index).join("engine.toml"));
        }
    } else {
        configs.clone_from(&args.config);
    }
    let mut addresses = Vec::new();
    for path in &configs {
        if let Some(metrics) = EngineConfig::read(path)?.metrics
            && metrics.address()?.port() != 0
        {
            addresses.push(metrics.listen);
        }
    }
    if addresses.is_empty() {
        return Err(Error::inval(format!(
            "no engine tells figures at a known place: put listen = \"127.0.0.1:7711\" (another port for each engine of a \
             machine) under [metrics] of {} and start it again, or give HOST:PORT",
            configs.first().map(|path| path.display().to_string()).unwrap_or_default()
        )));
    }
    Ok(addresses)
}

/// Asks all engines at the same time.
fn look(session: &Session, addresses: &[String]) -> Look {
    let session = Session { timeout: session.timeout.min(ASK_TIME_MAX), ..session.clone() };
    let ask = |address: &String| crate::metrics::ask(&session, address);
    let figures = thread::scope(|scope| {
        let asked: Vec<_> =
            addresses.iter().map(|address| scope.spawn(move || ask(address))).collect();
        let told = asked.into_iter().map(|asked| match asked.join() {
            Ok(text) => text.map(|text| Figures::parse(&text)),
            Err(panic) => std::panic::resume_unwind(panic),
        });
        told.collect()
    });
    Look { at: Instant::now(), figures }
}

fn compare(addresses: &[String], before: &Look, now: &Look) -> Report {
    let seconds = now.at.duration_since(before.at).as_secs_f64();
    let engines = addresses.iter().zip(&before.figures).zip(&now.figures);
    let engines = engines.map(|((address, before), now)| {
        let (targets, problem) = match (before, now) {
            (Ok(before), Ok(now)) => (now.rates(before, seconds), None),
            (_, Err(error)) => (Vec::new(), Some(error.to_string())),
            (Err(_), Ok(_)) => (Vec::new(), Some("it has just begun to answer".to_string())),
        };
        let one = |name: &str| now.as_ref().ok().and_then(|figures| figures.one(name));
        EngineReport {
            address: address.clone(),
            rank: one("azekura_engine_rank").map(|rank| rank as u32),
            leads: one("azekura_control_service_held") == Some(1.0),
            problem,
            targets,
        }
    });
    Report { seconds, engines: engines.collect() }
}

/// The greatest first, but for targets.
fn sort(targets: &mut [TargetRates], order: Order) {
    targets.sort_by(|a, b| rank(b, order).total_cmp(&rank(a, order)).then(a.target.cmp(&b.target)));
}

/// By what a target is sorted.
fn rank(rates: &TargetRates, order: Order) -> f64 {
    match order {
        Order::Target => 0.0,
        Order::Ops => rates.ops_per_s,
        Order::Bytes => rates.received_bytes_per_s + rates.sent_bytes_per_s,
        Order::Queue => (rates.running + rates.waiting) as f64,
        Order::Latency => rates.latency_mean_s.unwrap_or(0.0),
    }
}

fn show(out: &mut dyn Write, report: &Report, order: Order) -> io::Result<()> {
    let mut table = Table::new(&[
        ">ENGINE",
        ">TARGET",
        ">OPS/S",
        ">FAILED/S",
        ">IN/S",
        ">OUT/S",
        ">RUNNING",
        ">WAITING",
        ">CLIENTS",
        ">MEAN",
        ">P99",
    ]);
    let mut rows: Vec<(&EngineReport, &TargetRates)> = report
        .engines
        .iter()
        .flat_map(|engine| engine.targets.iter().map(move |target| (engine, target)))
        .collect();
    rows.sort_by(|(_, a), (_, b)| rank(b, order).total_cmp(&rank(a, order)));
    for (engine, rates) in rows {
        let mut row = vec![engine_name(engine), rates.target.to_string()];
        row.extend(match rates.answers {
            true => vec![
                format!("{:.0}", rates.ops_per_s),
                format!("{:.0}", rates.failed_per_s),
                size::format(rates.received_bytes_per_s as u64),
                size::format(rates.sent_bytes_per_s as u64),
                rates.running.to_string(),
                rates.waiting.to_string(),
                rates.clients.to_string(),
                time(rates.latency_mean_s),
                time(rates.latency_p99_s),
            ],
            false => {
                [&["no answer"], &["-"; 8][..]].concat().iter().map(|s| s.to_string()).collect()
            }
        });
        table.row(row);
    }
    table.write(out)?;
    let all = || report.engines.iter().flat_map(|engine| &engine.targets);
    writeln!(
        out,
        "\nAll: {:.0} operations/s, {}/s in, {}/s out, over {:.1} s.",
        all().map(|rates| rates.ops_per_s).sum::<f64>(),
        size::format(all().map(|rates| rates.received_bytes_per_s).sum::<f64>() as u64),
        size::format(all().map(|rates| rates.sent_bytes_per_s).sum::<f64>() as u64),
        report.seconds
    )?;
    for engine in &report.engines {
        if let Some(problem) = &engine.problem {
            writeln!(out, "{}: {problem}", engine.address)?;
        }
    }
    Ok(())
}

fn engine_name(engine: &EngineReport) -> String {
    let leads = if engine.leads { "*" } else { "" };
    engine.rank.map_or_else(|| engine.address.clone(), |rank| format!("{rank}{leads}"))
}

fn time(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".into(),
        Some(seconds) if seconds < 1e-3 => format!("{:.0} µs", seconds * 1e6),
        Some(seconds) if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        Some(seconds) => format!("{seconds:.1} s"),
    }
}
