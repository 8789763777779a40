//! `azekura top`: what engines, targets, pools, clients and jobs do just now.
//!
//! Targets, engines and pools: from the figures that engines tell for Prometheus. Clients and jobs: from what engines are asked
//! over their own protocol.

mod figures;
mod keys;
mod screen;
mod views;

use crate::exit::Outcome;
use crate::job::{self, Told};
use crate::session::Session;
use crate::system::dir::SystemDir;
use client::Client;
use engine::EngineConfig;
use figures::Figures;
use keys::{Choice, Keyboard, Step};
use screen::Screen;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use types::{Error, Result};
use views::{Order, Report, View};

/// How long an engine may take to tell its figures.
const ASK_TIME_MAX: Duration = Duration::from_secs(5);

/// Show what targets, engines, pools, clients or jobs do: operations, data, queues, latency
///
/// On a terminal again and again until `q` is pressed (`s` sorts otherwise, `v` shows others, `/` filters); else, with --once and with --json one time, of one interval. Targets, engines
/// and pools: engines tell their figures where `listen` under `[metrics]` of their configuration says. Clients and jobs: the
/// system is asked, as by other commands; clients are for administrators.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura top
  azekura top --view jobs --sort wait
  azekura top --view clients --filter node17
  azekura top host1:7711 host2:7711 host3:7711 --sort latency
  azekura top --config /etc/azekura/engine.toml --json --interval 5")]
pub struct TopArgs {
    /// Where engines tell their figures [default: the engines of the system's directory]
    #[arg(value_name = "HOST:PORT", conflicts_with = "config")]
    addresses: Vec<String>,
    /// Configuration of an engine, which says where; may be repeated
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// Whose doings are shown
    #[arg(long, short = 'v', value_enum, default_value_t = View::Targets)]
    view: View,
    /// Show it one time
    #[arg(long)]
    once: bool,
    /// Seconds between two looks
    #[arg(long, short, default_value_t = 2, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// What comes first
    #[arg(long, value_enum, default_value_t = Order::Name)]
    sort: Order,
    /// Only rows in whose names this occurs: of the engine, target, pool, client, host or job
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
}

/// Who is asked.
enum Source {
    /// Engines, at the addresses where they tell figures.
    Figures(Vec<String>),
    System(Client),
}

/// One look.
enum Seen {
    Figures(Vec<Result<Figures>>),
    System(Told),
}

struct Look {
    at: Instant,
    seen: Seen,
}

/// Runs the command.
pub fn run(session: &Session, args: &TopArgs) -> Outcome {
    let mut chosen = Choice::new(args.view, args.sort, args.filter.as_deref());
    let mut source = source(session, args, chosen.view)?;
    let repeats = !args.once && !session.out.json && io::stdout().is_terminal();
    let mut screen = repeats.then(Screen::default);
    // Opened after all that may ask for a password.
    let keyboard = repeats.then(Keyboard::open).flatten();
    let mut before = look(session, &source, chosen.view)?;
    // When nobody tells anything there is nothing to wait for.
    if let Seen::Figures(all) = &before.seen
        && all.iter().all(Result::is_err)
        && let Some(Err(error)) = all.first()
    {
        return Err(error.clone().into());
    }
    let interval = Duration::from_secs(args.interval);
    // The two looks that are compared now, once there are two.
    let mut latest: Option<Look> = None;
    let mut next_at = Instant::now() + interval;
    loop {
        let left = next_at.saturating_duration_since(Instant::now());
        let step = match &keyboard {
            Some(keyboard) => match keyboard.wait(left).map_err(no_keys)? {
                keys if keys.is_empty() => Step::Nothing,
                keys => chosen.take(&keys),
            },
            None => {
                thread::sleep(left);
                Step::Nothing
            }
        };
        match step {
            Step::Quit => return Ok(()),
            Step::Look => {
                // What cannot be seen from here is passed over.
                let first = loop {
                    let seen = self::source(session, args, chosen.view)
                        .and_then(|found| Ok((look(session, &found, chosen.view)?, found)));
                    match seen {
                        Ok(seen) => break seen,
                        Err(_) if chosen.view != args.view => drop(chosen.take(b"v")),
                        Err(error) => return Err(error.into()),
                    }
                };
                (before, source) = first;
                latest = None;
                next_at = Instant::now() + interval;
                if let Some(screen) = &mut screen {
                    screen.show(chosen.line().as_bytes()).map_err(crate::output::write_failure)?;
                }
                continue;
            }
            Step::Nothing if Instant::now() < next_at => continue,
            Step::Nothing => {
                let now = look(session, &source, chosen.view)?;
                before = latest.replace(now).unwrap_or(before);
                next_at = Instant::now() + interval;
            }
            Step::Arrange => {}
        }
        let mut text = Vec::new();
        if keyboard.is_some() {
            text.extend_from_slice(format!("{}\n", chosen.line()).as_bytes());
        }
        if let Some(now) = &latest {
            let mut report = compare(&source, &before, now);
            let filter = Some(chosen.filter.as_str()).filter(|text| !text.is_empty());
            report.arrange(chosen.view, chosen.order, filter);
            if screen.is_none() {
                return session.out.show(&report, |out| views::show(out, &report, chosen.view));
            }
            views::show(&mut text, &report, chosen.view).map_err(crate::output::write_failure)?;
        }
        if let Some(screen) = &mut screen {
            screen.show(&text).map_err(crate::output::write_failure)?;
        }
    }
}

fn no_keys(error: io::Error) -> Error {
    Error::io("reading the keyboard", error)
}

fn source(session: &Session, args: &TopArgs, view: View) -> Result<Source> {
    Ok(match view {
        View::Targets | View::Engines | View::Pools => Source::Figures(addresses(session, args)?),
        View::Clients | View::Jobs => Source::System(session.connect()?),
    })
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

fn look(session: &Session, source: &Source, view: View) -> Result<Look> {
    let seen = match source {
        Source::Figures(addresses) => Seen::Figures(ask_all(session, addresses)),
        Source::System(client) => Seen::System(job::ask(client, view == View::Clients)?),
    };
    Ok(Look { at: Instant::now(), seen })
}

/// Asks all engines at the same time.
fn ask_all(session: &Session, addresses: &[String]) -> Vec<Result<Figures>> {
    let session = Session { timeout: session.timeout.min(ASK_TIME_MAX), ..session.clone() };
    let ask = |address: &String| crate::metrics::ask(&session, address);
    thread::scope(|scope| {
        let asked: Vec<_> =
            addresses.iter().map(|address| scope.spawn(move || ask(address))).collect();
        let told = asked.into_iter().map(|asked| match asked.join() {
            Ok(text) => text.map(|text| Figures::parse(&text)),
            Err(panic) => std::panic::resume_unwind(panic),
        });
        told.collect()
    })
}

fn compare(source: &Source, before: &Look, now: &Look) -> Report {
    let seconds = now.at.duration_since(before.at).as_secs_f64();
    match (source, &before.seen, &now.seen) {
        (Source::Figures(addresses), Seen::Figures(before), Seen::Figures(now)) => {
            Report::of_figures(addresses, before, now, seconds)
        }
        (_, Seen::System(before), Seen::System(now)) => Report::of_told(before, now, seconds),
        // A source is seen as what it is.
        (_, Seen::Figures(_), _) | (_, _, Seen::Figures(_)) => Report::default(),
    }
}
