//! `azekura ioc top`: what a coordinator is doing.

use crate::exit::Outcome;
use crate::output::Table;
use crate::session::Session;
use clap::Args;
use coordinate::monitor::Monitor;
use coordinate::queue::{LaneStats, Totals};
use coordinate::rules::choice::Endpoint;
use coordinate::server::snapshot::{GroupStats, Snapshot};
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;
use types::{Error, Result, size};

/// Variable of the preload library that names the coordinator.
const ENDPOINT_VARIABLE: &str = "AZEKURA_IOC";

/// And the one that names the file with its token.
const TOKEN_VARIABLE: &str = "AZEKURA_IOC_TOKEN_FILE";

/// Show what a coordinator is doing
///
/// Queue, limits and wait times by target and by job; on a terminal again and again until
/// interrupted.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura ioc top unix:/run/azekura/ioc.sock
  azekura ioc top tcp:login1:7720 --token-file token --once
  azekura ioc top --json | jq '.groups[].targets[] | select(.write.waiting > 0)'")]
pub struct TopArgs {
    /// The coordinator: tcp:HOST:PORT or unix:PATH [default: $AZEKURA_IOC]
    endpoint: Option<Endpoint>,
    /// File with the coordinator's token [default: $AZEKURA_IOC_TOKEN_FILE]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Show it once
    #[arg(long)]
    once: bool,
    /// Seconds between two looks
    #[arg(long, short, default_value_t = 2, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
}

pub fn run(session: &Session, args: &TopArgs) -> Outcome {
    let endpoint = match &args.endpoint {
        Some(endpoint) => endpoint.clone(),
        None => std::env::var(ENDPOINT_VARIABLE)
            .map_err(|_| {
                Error::inval(format!("which coordinator? Name it, or set {ENDPOINT_VARIABLE}"))
            })?
            .parse()?,
    };
    let mut monitor = Monitor::connect(&endpoint, &token(args)?, session.timeout)?;
    let mut now = monitor.ask()?;
    let repeats = !args.once && !session.out.json && io::stdout().is_terminal();
    if !repeats {
        return session.out.show(&now, |out| show(out, &now, None));
    }
    let mut before: Option<Snapshot> = None;
    loop {
        session.out.show(&now, |out| {
            // Home, clear to the end of the screen.
            write!(out, "\x1b[H\x1b[2J")?;
            show(out, &now, before.as_ref())
        })?;
        std::thread::sleep(Duration::from_secs(args.interval));
        before = Some(now);
        now = monitor.ask()?;
    }
}

fn token(args: &TopArgs) -> Result<Vec<u8>> {
    let from_environment = || std::env::var_os(TOKEN_VARIABLE).map(PathBuf::from);
    let Some(path) = args.token_file.clone().or_else(from_environment) else {
        return Ok(Vec::new());
    };
    let text = std::fs::read(&path).map_err(|error| Error::io(path.display(), error))?;
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(line.trim_ascii().to_vec())
}

/// Bytes per second since the snapshot before, or since the start.
struct Rates<'a> {
    before: Option<&'a Snapshot>,
    passed_us: u64,
}

impl Rates<'_> {
    fn of(&self, now: &Totals, before: Option<&Totals>) -> String {
        let bytes = now.bytes.saturating_sub(before.map_or(0, |totals| totals.bytes));
        let rate = bytes as f64 * 1e6 / self.passed_us.max(1) as f64;
        size::format(rate as u64) + "/s"
    }

    fn group(&self, name: &str) -> Option<&GroupStats> {
        self.before?.groups.iter().find(|group| group.name == name)
    }
}

fn show(out: &mut dyn Write, now: &Snapshot, before: Option<&Snapshot>) -> io::Result<()> {
    let passed_us = now.uptime_us.saturating_sub(before.map_or(0, |before| before.uptime_us));
    let rates = Rates { before, passed_us };
    let since = if before.is_some() { "since the last look" } else { "since the start" };
    writeln!(out, "Coordinator {}, up {}; rates {since}", now.version, time(now.uptime_us))?;
    for group in &now.groups {
        let name = if group.name.is_empty() { String::new() } else { format!(" '{}'", group.name) };
        let queue = &group.queue;
        writeln!(
            out,
            "\nGroup{name}: {} clients, {} requests wait, {} are in",
            queue.clients, queue.waiting, queue.active
        )?;
        let earlier = rates.group(&group.name);
        targets(out, group, earlier, &rates)?;
        jobs(out, group, earlier, &rates)?;
        if queue.left_out > 0 {
            writeln!(out, "and {} more targets and jobs", queue.left_out)?;
        }
    }
    Ok(())
}

fn targets(
    out: &mut dyn Write,
    group: &GroupStats,
    earlier: Option<&GroupStats>,
    rates: &Rates<'_>,
) -> io::Result<()> {
    let mut table = Table::new(&[
        "TARGET",
        "",
        ">LIMIT",
        ">IN",
        ">WAITING",
        ">OLDEST",
        ">MEAN WAIT",
        ">MAX WAIT",
        ">GRANTED",
        ">BYTES",
        ">RATE",
    ]);
    let mut rows = 0;
    for target in &group.queue.targets {
        let of_target = |group: &&GroupStats| {
            group.queue.targets.iter().find(|one| one.name == target.name).cloned()
        };
        let was = earlier.as_ref().and_then(of_target);
        for (direction, lane, was) in [
            ("write", &target.write, was.as_ref().map(|was| &was.write.totals)),
            ("read", &target.read, was.as_ref().map(|was| &was.read.totals)),
        ] {
            if lane.totals.granted == 0 && lane.waiting == 0 {
                continue;
            }
            rows += 1;
            let totals = &lane.totals;
            table.row(vec![
                target.name.clone(),
                direction.into(),
                limit(lane),
                lane.active.to_string(),
                lane.waiting.to_string(),
                time(lane.waiting_us_max),
                time(totals.wait_us / totals.granted.max(1)),
                time(totals.wait_us_max),
                totals.granted.to_string(),
                size::format(totals.bytes),
                rates.of(totals, was),
            ]);
        }
    }
    if rows == 0 { Ok(()) } else { table.write(out) }
}

fn jobs(
    out: &mut dyn Write,
    group: &GroupStats,
    earlier: Option<&GroupStats>,
    rates: &Rates<'_>,
) -> io::Result<()> {
    let mut table = Table::new(&[
        "JOB",
        ">CLIENTS",
        ">IN",
        ">WAITING",
        ">MEAN WAIT",
        ">MAX WAIT",
        ">GRANTED",
        ">BYTES",
        ">RATE",
    ]);
    let mut rows = 0;
    for job in group.queue.jobs.iter().filter(|job| job.totals.granted > 0 || job.waiting > 0) {
        rows += 1;
        let was =
            earlier.and_then(|group| group.queue.jobs.iter().find(|one| one.name == job.name));
        let totals = &job.totals;
        table.row(vec![
            if job.name.is_empty() { "-".into() } else { job.name.clone() },
            job.clients.to_string(),
            job.active.to_string(),
            job.waiting.to_string(),
            time(totals.wait_us / totals.granted.max(1)),
            time(totals.wait_us_max),
            totals.granted.to_string(),
            size::format(totals.bytes),
            rates.of(totals, was.map(|was| &was.totals)),
        ]);
    }
    if rows == 0 {
        return Ok(());
    }
    writeln!(out)?;
    table.write(out)
}

fn limit(lane: &LaneStats) -> String {
    match (lane.limit, lane.auto) {
        (None, _) => "off".into(),
        (Some(limit), true) => format!("auto {limit}"),
        (Some(limit), false) => limit.to_string(),
    }
}

/// A time in the largest unit that leaves a number of at least 1.
fn time(us: u64) -> String {
    let us = us as f64;
    match us {
        us if us < 1e3 => format!("{us} us"),
        us if us < 1e6 => format!("{:.1} ms", us / 1e3),
        us if us < 120e6 => format!("{:.1} s", us / 1e6),
        us if us < 7200e6 => format!("{:.0} min", us / 60e6),
        us => format!("{:.1} h", us / 3600e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_fitting_unit() {
        for (us, text) in [
            (0, "0 us"),
            (999, "999 us"),
            (1_500, "1.5 ms"),
            (61_000_000, "61.0 s"),
            (600_000_000, "10 min"),
            (9_000_000_000, "2.5 h"),
        ] {
            assert_eq!(time(us), text);
        }
    }
}
