//! `azekura ioc serve`: a coordinator in the foreground.

use crate::engine::BlockedSignals;
use crate::exit::Outcome;
use crate::session::Session;
use clap::Args;
use coordinate::queue::Limit;
use coordinate::rules::settings::parse_duration;
use coordinate::server::config::{GroupConfig, parse_limit, parse_mode};
use coordinate::server::{Listen, Server, ServerConfig};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;
use types::{Error, Result, size};

/// Run a coordinator in the foreground
///
/// Prints where it listens, then coordinates until TERM or INT. Flags go over the file; a flag
/// that may be repeated replaces the file's list.
#[derive(Args, Debug)]
#[command(after_help = "\
A limit is a number of requests at a time and target, 'auto' (found by itself), 'auto:MAX', or 'off'.

Examples:
  azekura ioc serve --listen unix:/run/azekura/ioc.sock
  azekura ioc serve --listen tcp:0.0.0.0:7720 --token-file token --max-writers auto
  azekura ioc serve --config /etc/azekura/coordinator.toml --trace /var/tmp/trace.jsonl")]
pub struct ServeArgs {
    /// Settings (TOML), see docs/coordination.md
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Only check the settings
    #[arg(long)]
    check: bool,
    /// tcp:ADDRESS:PORT (port 0: a free one) or unix:PATH; may be repeated
    #[arg(long, short, value_name = "PLACE")]
    listen: Vec<Listen>,
    /// What clients over TCP must know: the first line of this file
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Let anybody in over TCP
    #[arg(long, conflicts_with = "token_file")]
    no_token: bool,
    /// File mode of Unix sockets [default: 0600]
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    socket_mode: Option<u32>,
    /// Name of a group; may be repeated, the first is for clients that name none
    #[arg(long, short, value_name = "NAME")]
    group: Vec<String>,
    /// Writers per target [default: 2]
    #[arg(long, short = 'w', value_name = "LIMIT", value_parser = parse_limit)]
    max_writers: Option<Limit>,
    /// Readers per target [default: off]
    #[arg(long, short = 'r', value_name = "LIMIT", value_parser = parse_limit)]
    max_readers: Option<Limit>,
    /// Writes of fewer bytes need not ask [default: as clients are set]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    min_write_size: Option<u64>,
    /// Reads of fewer bytes need not ask [default: as clients are set]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    min_read_size: Option<u64>,
    /// A slot held longer is taken back, as 500ms, 5min; 0: never [default: 10min]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    hold_max: Option<Duration>,
    /// Answer for metrics (Prometheus) at this TCP address
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<String>,
    /// Append a JSON line for each grant and each end of a request
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

#[derive(Serialize)]
struct Started {
    listening: Vec<String>,
    metrics: Option<String>,
}

/// Runs the command; returns when the coordinator has stopped.
pub fn run(session: &Session, args: &ServeArgs) -> Outcome {
    let config = config(args)?;
    config.groups()?;
    config.token()?;
    if args.check {
        return session.out.done("No mistakes found.");
    }
    let signals = BlockedSignals::block()?;
    let server = Server::start(&config)?;
    let started = Started {
        listening: server.listening.iter().map(Listen::to_string).collect(),
        metrics: server.metrics.map(|address| address.to_string()),
    };
    session.out.show(&started, |out| {
        for place in &started.listening {
            writeln!(out, "Coordinating at {place}")?;
        }
        if let Some(address) = &started.metrics {
            writeln!(out, "Metrics at http://{address}/metrics")?;
        }
        Ok(())
    })?;
    let stopper = server.stopper();
    std::thread::Builder::new()
        .name("azk-signals".into())
        .spawn(move || {
            match signals.wait() {
                Ok(signal) => tracing::info!("signal {signal}: stopping"),
                Err(error) => tracing::error!("{error}"),
            }
            stopper.stop();
        })
        .map_err(|error| Error::io("starting a thread for signals", error))?;
    Ok(server.join()?)
}

/// The file's settings with the flags over them.
fn config(args: &ServeArgs) -> Result<ServerConfig> {
    let mut config = match &args.config {
        Some(path) => ServerConfig::read(path)?,
        None => ServerConfig::default(),
    };
    if !args.listen.is_empty() {
        config.listen.clone_from(&args.listen);
    }
    if !args.group.is_empty() {
        let named = |name: &String| {
            let known = config.groups.iter().find(|group| group.name == *name).cloned();
            known.unwrap_or_else(|| GroupConfig { name: name.clone(), ..GroupConfig::default() })
        };
        config.groups = args.group.iter().map(named).collect();
    }
    config.no_token |= args.no_token;
    fn over<T: Clone>(config: &mut Option<T>, flag: &Option<T>) {
        if flag.is_some() {
            config.clone_from(flag);
        }
    }
    over(&mut config.token_file, &args.token_file);
    over(&mut config.socket_mode, &args.socket_mode);
    over(&mut config.max_writers, &args.max_writers);
    over(&mut config.max_readers, &args.max_readers);
    over(&mut config.min_write_size, &args.min_write_size);
    over(&mut config.min_read_size, &args.min_read_size);
    over(&mut config.hold_max, &args.hold_max);
    over(&mut config.metrics, &args.metrics);
    over(&mut config.trace, &args.trace);
    if args.max_writers.is_some() || args.max_readers.is_some() {
        // What is said on the command line is meant for every group.
        for group in &mut config.groups {
            over(&mut group.max_writers, &args.max_writers);
            over(&mut group.max_readers, &args.max_readers);
        }
    }
    Ok(config)
}
