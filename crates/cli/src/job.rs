//! `azekura job`: what jobs do, and how long they wait at each target.
//!
//! Engines count; this asks all of them, each for its own targets.

use crate::exit::Outcome;
use crate::output::{Table, printable, seconds_text, utc, warn_line};
use crate::session::Session;
use client::Client;
use futures_util::future::join_all;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};
use types::{Code, Error, Rank, Result, TargetId, size};
use wire::job::{JobFigures, TargetJobs};

/// Show jobs: what they do, and how long they wait at each target
///
/// A client belongs to the job that AZEKURA_JOB names, else to that of its scheduler (SLURM_JOB_ID, PBS_JOBID, …), else to the run
/// that its MPI launcher names. A mount belongs to the job that mounts. Counts begin with an engine's start.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura job list
  azekura job list --sort wait
  azekura job show 4711
  AZEKURA_JOB=nightly azekura fs cp -r data azk://tank/home/")]
pub struct JobArgs {
    #[command(subcommand)]
    verb: JobVerb,
}

#[derive(clap::Subcommand, Debug)]
enum JobVerb {
    /// Show all jobs, over all targets
    #[command(after_help = "Example:\n  azekura job list --sort wait")]
    List {
        /// What comes first
        #[arg(long, value_enum, default_value_t = Order::Ops)]
        sort: Order,
    },
    /// Show what one job does at each target, and how long it waits there
    #[command(after_help = "Example:\n  azekura job show 4711")]
    Show {
        /// Its name; '-' for clients that name no job
        job: String,
    },
}

/// What a list of jobs is sorted by, the greatest first but for names.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    Job,
    Ops,
    Bytes,
    Wait,
    Seen,
}

/// What a job did at one target, or at all together. Times in seconds.
#[derive(Clone, Serialize)]
pub struct JobReport {
    /// Empty for clients that name none.
    pub job: String,
    pub clients: u64,
    pub operations: u64,
    pub failed: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    /// Operations that had to wait for others.
    pub waited: u64,
    /// Of all operations.
    pub wait_mean_s: f64,
    pub wait_p99_s: f64,
    pub wait_max_s: f64,
    pub wait_total_s: f64,
    /// From the arrival of an operation until its answer has left.
    pub time_mean_s: f64,
    /// When the last was answered, UTC.
    pub seen: String,
    #[serde(skip)]
    pub seen_ns: u64,
}

/// The same with where.
#[derive(Clone, Serialize)]
pub struct AtTarget {
    pub target: u32,
    pub engine: u32,
    #[serde(flatten)]
    pub job: JobReport,
}

/// A job over all targets, and at each.
#[derive(Serialize)]
struct WholeJob {
    #[serde(flatten)]
    all: JobReport,
    /// Those where it did anything, the one with the longest mean wait first.
    targets: Vec<AtTarget>,
}

/// Who gave no answer.
#[derive(Clone, Serialize)]
pub struct Silent {
    pub engine: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<u32>,
    pub why: String,
}

#[derive(Serialize)]
struct Report {
    jobs: Vec<WholeJob>,
    /// What is missing in it.
    silent: Vec<Silent>,
}

/// What all targets have told.
pub struct Told {
    pub targets: Vec<(Rank, TargetId, TargetJobs)>,
    pub silent: Vec<Silent>,
}

const US: f64 = 1e-6;

impl JobReport {
    /// What figures say.
    pub fn of(figures: &JobFigures) -> JobReport {
        JobReport {
            job: figures.job.clone(),
            clients: figures.client_count,
            operations: figures.op_count,
            failed: figures.failed_count,
            received_bytes: figures.in_bytes,
            sent_bytes: figures.out_bytes,
            waited: figures.waits_us.count,
            wait_mean_s: figures.wait_us_mean() as f64 * US,
            wait_p99_s: figures.wait_us_percentile(990) as f64 * US,
            wait_max_s: figures.waits_us.max as f64 * US,
            wait_total_s: figures.waits_us.sum as f64 * US,
            time_mean_s: figures.time_us_mean() as f64 * US,
            seen: utc(figures.seen_ns as i64),
            seen_ns: figures.seen_ns,
        }
    }
}

/// Asks all engines for the jobs at all of their targets.
///
/// Errors: those of asking which engines there are. Engines that give no answer are named in what is returned.
pub fn ask(client: &Client, with_clients: bool) -> Result<Told> {
    let info = client.block_on(client.system_query())?;
    let all = info.engines.iter().flat_map(|(engine, targets, _)| {
        targets.iter().map(move |target| async move {
            let told = client.engine_jobs(engine, *target, with_clients).await;
            (engine.rank, *target, told)
        })
    });
    let (mut targets, mut silent) = (Vec::new(), Vec::new());
    let mut refused = None;
    for (rank, target, told) in client.block_on(join_all(all)) {
        match told {
            Ok(jobs) => targets.push((rank, target, jobs)),
            Err(error) => {
                if error.code == Code::NoPerm {
                    refused = Some(error.clone());
                }
                silent.push(Silent {
                    engine: rank.0,
                    target: Some(target.0),
                    why: error.to_string(),
                });
            }
        }
    }
    match refused {
        Some(error) if targets.is_empty() => Err(error),
        _ => Ok(Told { targets, silent }),
    }
}

/// Each job over all targets, and at each of them.
fn whole_jobs(told: &Told) -> Vec<WholeJob> {
    let mut jobs: BTreeMap<&str, (JobFigures, Vec<AtTarget>)> = BTreeMap::new();
    for (rank, target, at) in &told.targets {
        for figures in &at.jobs {
            let (all, targets) = jobs.entry(&figures.job).or_default();
            all.add(figures);
            let job = JobReport::of(figures);
            targets.push(AtTarget { target: target.0, engine: rank.0, job });
        }
    }
    let whole = jobs.into_iter().map(|(name, (figures, mut targets))| {
        targets.sort_by(|a, b| b.job.wait_mean_s.total_cmp(&a.job.wait_mean_s));
        let all = JobReport { job: name.to_string(), ..JobReport::of(&figures) };
        WholeJob { all, targets }
    });
    whole.collect()
}

/// Compares two jobs for a list.
pub fn compare(a: &JobReport, b: &JobReport, order: Order) -> std::cmp::Ordering {
    let bytes = |job: &JobReport| job.received_bytes + job.sent_bytes;
    let by = match order {
        Order::Job => std::cmp::Ordering::Equal,
        Order::Ops => b.operations.cmp(&a.operations),
        Order::Bytes => bytes(b).cmp(&bytes(a)),
        Order::Wait => b.wait_mean_s.total_cmp(&a.wait_mean_s),
        Order::Seen => b.seen_ns.cmp(&a.seen_ns),
    };
    by.then_with(|| a.job.cmp(&b.job))
}

/// Runs the command.
pub fn run(session: &Session, args: &JobArgs) -> Outcome {
    let client = session.connect()?;
    let told = ask(&client, false)?;
    for silent in &told.silent {
        let target = silent.target.map(|target| format!(", target {target}")).unwrap_or_default();
        warn_line(format_args!("engine {}{target}: {}", silent.engine, silent.why));
    }
    let mut jobs = whole_jobs(&told);
    match &args.verb {
        JobVerb::List { sort } => {
            jobs.sort_by(|a, b| compare(&a.all, &b.all, *sort));
            let report = Report { jobs, silent: told.silent };
            session.out.show(&report, |out| show_list(out, &report.jobs))
        }
        JobVerb::Show { job } => {
            let name = if job == "-" { "" } else { job };
            let at = jobs.iter().position(|whole| whole.all.job == name);
            let Some(at) = at else {
                return Err(Error::new(
                    Code::NonExist,
                    format!(
                        "no engine knows a job '{job}' since it started; 'azekura job list' shows those there are"
                    ),
                )
                .into());
            };
            let whole = jobs.swap_remove(at);
            session.out.show(&whole, |out| show_targets(out, &whole))
        }
    }
}

/// How a job is called in a table.
pub fn shown(job: &str) -> String {
    if job.is_empty() { "-".to_string() } else { printable(job) }
}

/// How long ago something was.
pub fn ago(time_ns: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = now.as_nanos().saturating_sub(u128::from(time_ns)) / 1_000_000_000;
    match seconds {
        0..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

fn cells(job: &JobReport) -> Vec<String> {
    vec![
        job.clients.to_string(),
        job.operations.to_string(),
        job.failed.to_string(),
        size::format(job.received_bytes),
        size::format(job.sent_bytes),
        seconds_text(job.time_mean_s),
        job.waited.to_string(),
        seconds_text(job.wait_mean_s),
        seconds_text(job.wait_p99_s),
        seconds_text(job.wait_max_s),
        ago(job.seen_ns),
    ]
}

/// Titles of [`cells`].
const TITLES: [&str; 11] = [
    ">CLIENTS",
    ">OPS",
    ">FAILED",
    ">IN",
    ">OUT",
    ">MEAN TIME",
    ">WAITED",
    ">MEAN WAIT",
    ">P99 WAIT",
    ">MAX WAIT",
    ">SEEN",
];

fn show_list(out: &mut dyn Write, jobs: &[WholeJob]) -> io::Result<()> {
    let titles = [&["JOB"], &TITLES[..], &[">LONGEST AT"]].concat();
    let mut table = Table::new(&titles);
    for whole in jobs {
        let longest = whole.targets.first().filter(|at| at.job.waited > 0);
        let longest = longest.map_or("-".to_string(), |at| format!("target {}", at.target));
        table.row([vec![shown(&whole.all.job)], cells(&whole.all), vec![longest]].concat());
    }
    table.write(out)
}

fn show_targets(out: &mut dyn Write, whole: &WholeJob) -> io::Result<()> {
    let titles = [&[">TARGET", ">ENGINE"], &TITLES[..]].concat();
    let mut table = Table::new(&titles);
    for at in &whole.targets {
        let place = vec![at.target.to_string(), at.engine.to_string()];
        table.row([place, cells(&at.job)].concat());
    }
    let all = vec!["all".to_string(), "-".to_string()];
    table.row([all, cells(&whole.all)].concat());
    table.write(out)
}
