//! `azekura system events`: what the engines have noticed, all together in the order of time.

use crate::exit::Outcome;
use crate::output::{printable, utc, warn_line, write_failure};
use crate::session::Session;
use client::Client;
use futures_util::future::join_all;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use types::{Code, Error, Result};
use wire::event::{Event, EventCode, Severity};
use wire::map::EngineInfo;

/// Between two looks for new events.
const FOLLOW_PAUSE: Duration = Duration::from_secs(1);

/// Show what the engines have noticed: lost engines, rebuilds, damage, pools that are full
///
/// Each engine keeps its own events, the newest 4096 of them also over restarts; all engines are asked. Those of an engine that
/// does not run are read from its directory with --from-dir. docs/monitor.md lists the codes.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura system events
  azekura system events --since 2h --severity warning
  azekura system events --code engine-down --code target-down --json
  azekura system events --follow
  azekura system events --from-dir /var/lib/azekura/engine1")]
pub struct EventsArgs {
    /// Only those since then: a time ago (30s, 10min, 2h, 7d), or a time in UTC (2026-11-25T08:00:00Z)
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,
    /// Only those with this code; may be repeated
    #[arg(long, value_name = "CODE", value_parser = known_code)]
    code: Vec<EventCode>,
    /// Only those that want at least this much attention
    #[arg(long, value_name = "SEVERITY", value_enum)]
    severity: Option<Least>,
    /// Only what engine RANK has noticed
    #[arg(long, value_name = "RANK")]
    engine: Option<u32>,
    /// Go on with what comes, until interrupted; with --json a document a line
    #[arg(long, short)]
    follow: bool,
    /// Read the events in this engine's directory, without asking anybody; may be repeated
    #[arg(long, value_name = "DIR", conflicts_with_all = ["follow", "engine"])]
    from_dir: Vec<PathBuf>,
}

/// [`Severity`], as an argument.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Least {
    Info,
    Warning,
    Error,
}

impl From<Least> for Severity {
    fn from(least: Least) -> Severity {
        match least {
            Least::Info => Severity::Info,
            Least::Warning => Severity::Warning,
            Least::Error => Severity::Error,
        }
    }
}

fn known_code(text: &str) -> std::result::Result<EventCode, String> {
    EventCode::from_name(text).ok_or_else(|| {
        let all: Vec<&str> = EventCode::ALL.iter().map(|code| code.name()).collect();
        format!("no such code; there are {}", all.join(", "))
    })
}

/// A moment, nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Since(u64);

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Since, String> {
        if let Some(time) = time_ns(text) {
            return Ok(Since(time));
        }
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let seconds = match &text[digits.len()..] {
            "s" => 1,
            "m" | "min" => 60,
            "h" => 3600,
            "d" => 86_400,
            _ => 0,
        };
        let ago = digits.parse::<u64>().ok().filter(|_| seconds > 0);
        let ago = ago.and_then(|count| count.checked_mul(seconds)).ok_or_else(|| {
            format!("'{text}' is no time; give 30s, 10min, 2h, 7d or 2026-11-25T08:00:00Z")
        })?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Since(now.saturating_sub(Duration::from_secs(ago)).as_nanos() as u64))
    }
}

/// A time as [`utc`] writes it, nanoseconds since 1970.
fn time_ns(text: &str) -> Option<u64> {
    let number = |at: std::ops::Range<usize>| text.get(at)?.parse::<i64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let (m, y) = if month > 2 { (month - 3, year) } else { (month + 9, year - 1) };
    // Days of a Gregorian date, counting years from March (Howard Hinnant's algorithm).
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let day_of_era =
        year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + (153 * m + 2) / 5 + day - 1;
    let days = era * 146_097 + day_of_era - 719_468;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    let time = seconds.checked_mul(1_000_000_000)?;
    // What reads back as it was written was a time.
    (utc(time) == text).then_some(u64::try_from(time).ok()?)
}

/// An event, as it is shown.
#[derive(Serialize)]
struct Shown<'a> {
    /// UTC.
    time: String,
    time_ns: u64,
    /// `unknown` for codes of another version.
    severity: String,
    code: &'a str,
    /// Rank of the engine that noticed it; missing when it was read from a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<u32>,
    /// Its number there.
    number: u64,
    /// How often it happened since it was told of last.
    count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    engine: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<u32>,
    #[serde(skip_serializing_if = "str::is_empty")]
    object: &'a str,
    what: &'a str,
    /// What somebody should do.
    to_do: &'static str,
}

/// An event with the rank of the engine that noticed it.
type Noticed = (Option<u32>, Event);

fn shown((by, event): &Noticed) -> Shown<'_> {
    let known = event.known();
    Shown {
        time: utc(event.time_ns as i64),
        time_ns: event.time_ns,
        severity: known.map_or("unknown".into(), |code| code.severity().to_string()),
        code: &event.code,
        by: *by,
        number: event.number,
        count: event.count,
        engine: event.engine.map(|rank| rank.0),
        target: event.target.map(|target| target.0),
        pool: event.pool.map(|pool| pool.0),
        object: &event.object,
        what: &event.what,
        to_do: known.map_or("See the documents of the newer version.", EventCode::to_do),
    }
}

fn write_one(out: &mut dyn Write, noticed: &Noticed) -> io::Result<()> {
    let event = shown(noticed);
    let times = if event.count > 1 { format!(" ({} times)", event.count) } else { String::new() };
    let by = event.by.map(|rank| format!("engine {rank}: ")).unwrap_or_default();
    writeln!(
        out,
        "{}  {:<7}  {:<16}  {by}{}{times}",
        event.time,
        event.severity,
        printable(event.code),
        printable(event.what)
    )?;
    if event.severity != "info" {
        writeln!(out, "{:31}{:<16}  -> {}", "", "", event.to_do)?;
    }
    Ok(())
}

impl EventsArgs {
    fn wants(&self, event: &Event) -> bool {
        let known = event.known();
        let least = self.severity.map(Severity::from);
        event.time_ns >= self.since.map_or(0, |since| since.0)
            && (self.code.is_empty() || known.is_some_and(|code| self.code.contains(&code)))
            // What this program does not know may be anything.
            && least.is_none_or(|least| known.is_none_or(|code| code.severity() >= least))
    }
}

/// Runs the command.
pub fn run(session: &Session, args: &EventsArgs) -> Outcome {
    if !args.from_dir.is_empty() {
        let mut all = Vec::new();
        for dir in &args.from_dir {
            let kept = engine::event_log::read_dir(dir)?;
            all.extend(kept.into_iter().filter(|event| args.wants(event)).map(|e| (None, e)));
        }
        return show_all(session, all);
    }
    let client = session.connect()?;
    let mut watch = Watch::default();
    let first = watch.look(&client, args)?;
    if !args.follow {
        return show_all(session, first);
    }
    show_more(session, first)?;
    loop {
        thread::sleep(FOLLOW_PAUSE);
        match watch.look(&client, args) {
            Ok(more) => show_more(session, more)?,
            // They may come again.
            Err(error) => watch.warn("the system", &error.to_string()),
        }
    }
}

fn show_all(session: &Session, mut all: Vec<Noticed>) -> Outcome {
    all.sort_by_key(|(by, event)| (event.time_ns, *by, event.number));
    let report: Vec<Shown<'_>> = all.iter().map(shown).collect();
    session.out.show(&report, |out| all.iter().try_for_each(|one| write_one(out, one)))
}

/// Shows what has come; with `--json` a document a line.
fn show_more(session: &Session, mut more: Vec<Noticed>) -> Outcome {
    more.sort_by_key(|(by, event)| (event.time_ns, *by, event.number));
    let mut out = io::stdout().lock();
    for one in &more {
        let written = match session.out.json {
            true => serde_json::to_writer(&mut out, &shown(one))
                .map_err(io::Error::from)
                .and_then(|()| writeln!(out)),
            false => write_one(&mut out, one),
        };
        written.map_err(write_failure)?;
    }
    out.flush().map_err(write_failure)
}

/// How far each engine's events have been seen.
#[derive(Default)]
struct Watch {
    after: BTreeMap<u32, u64>,
    /// Who gave no answer, so that it is said once.
    silent: BTreeMap<String, String>,
}

impl Watch {
    /// New events of all engines.
    ///
    /// Errors: when no engine tells any.
    fn look(&mut self, client: &Client, args: &EventsArgs) -> Result<Vec<Noticed>> {
        let info = client.block_on(client.system_query())?;
        let engines = info.engines.iter().map(|(engine, ..)| engine);
        let meant: Vec<&EngineInfo> =
            engines.filter(|engine| args.engine.is_none_or(|rank| rank == engine.rank.0)).collect();
        if meant.is_empty() {
            return Err(Error::new(
                Code::NonExist,
                "there is no such engine; 'azekura system list-engines' shows those there are",
            ));
        }
        let since_ns = args.since.map_or(0, |since| since.0);
        let asked = meant.iter().map(|engine| {
            let after = self.after.get(&engine.rank.0).copied().unwrap_or(0);
            async move { (engine.rank.0, told(client, engine, after, since_ns).await) }
        });
        let (mut all, mut last, mut is_any) = (Vec::new(), None, false);
        for (rank, told) in client.block_on(join_all(asked)) {
            match told {
                Ok((events, newest)) => {
                    is_any = true;
                    self.silent.remove(&format!("engine {rank}"));
                    self.after.insert(rank, newest);
                    let wanted = events.into_iter().filter(|event| args.wants(event));
                    all.extend(wanted.map(|event| (Some(rank), event)));
                }
                Err(error) => {
                    self.warn(&format!("engine {rank}"), &error.to_string());
                    last = Some(error);
                }
            }
        }
        match last {
            Some(error) if !is_any => Err(error),
            _ => Ok(all),
        }
    }

    fn warn(&mut self, who: &str, why: &str) {
        let known = self.silent.insert(who.to_string(), why.to_string());
        if known.is_none() {
            warn_line(format_args!("{who} tells nothing: {why}"));
        }
    }
}

/// An engine's events after one, and the number of its newest.
async fn told(
    client: &Client,
    engine: &EngineInfo,
    after: u64,
    since_ns: u64,
) -> Result<(Vec<Event>, u64)> {
    let mut at = after;
    let mut all = Vec::new();
    loop {
        let told = client.engine_events(engine, at, since_ns).await?;
        if told.newest < at {
            // Its directory was made anew, and it counts from the beginning.
            (at, all) = (0, Vec::new());
            continue;
        }
        match told.events.last() {
            Some(last) => at = last.number,
            None => return Ok((all, told.newest)),
        }
        all.extend(told.events);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for seconds in [0, 951_782_400, 1_700_000_000, 4_102_444_799] {
            let time = seconds * 1_000_000_000;
            assert_eq!(time_ns(&utc(time)), Some(time as u64));
        }
        for wrong in [
            "2026-02-30T00:00:00Z",
            "2026-1-1T00:00:00Z",
            "2026-01-01",
            "",
            "é2026-01-01T00:00:00Z",
        ] {
            assert_eq!(time_ns(wrong), None, "{wrong}");
            assert!(wrong.parse::<Since>().is_err(), "{wrong}");
        }
        for wrong in ["h", "5", "5x", "-5s", "99999999999999999999h"] {
            assert!(wrong.parse::<Since>().is_err(), "{wrong}");
        }
        let ago = |text: &str| text.parse::<Since>().unwrap().0;
        assert!(ago("1h") < ago("59min") && ago("2d") < ago("47h") && ago("0s") > ago("1s"));
    }
}
