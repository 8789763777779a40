//! What `azekura top` shows: rates of targets, engines, pools, clients or jobs, sorted and filtered.

use super::figures::{self, Figures, Rates, TargetRates};
use crate::job::{Silent, Told, shown};
use crate::output::{Table, seconds_text};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use types::{ClientId, Histogram, Result, TargetId, size};
use wire::job::{ClientFigures, JobFigures};

/// Whose doings are shown.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum View {
    Targets,
    Engines,
    Pools,
    Clients,
    Jobs,
}

impl View {
    /// In the order in which a key goes through them.
    pub const ALL: [View; 5] =
        [View::Targets, View::Engines, View::Pools, View::Clients, View::Jobs];
}

impl Order {
    /// In the order in which a key goes through them.
    pub const ALL: [Order; 6] =
        [Order::Name, Order::Ops, Order::Bytes, Order::Queue, Order::Latency, Order::Wait];
}

/// What comes first: names in their order, else the greatest.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    #[value(alias = "target")]
    Name,
    Ops,
    Bytes,
    /// Requests under way and waiting
    Queue,
    /// Mean time of operations
    Latency,
    /// Mean wait of operations, of clients and jobs
    Wait,
}

/// An engine's part of the report.
#[derive(Serialize)]
pub struct EngineReport {
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
    /// It holds the control service.
    leads: bool,
    /// Why it told nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    #[serde(flatten)]
    rates: Rates,
    /// Memory that messages take, bytes.
    message_bytes: u64,
    /// Events that want somebody's attention since its start.
    error_events: u64,
    targets: Vec<TargetRates>,
}

/// A pool over all targets that told.
#[derive(Serialize)]
pub struct PoolReport {
    /// Its number; `azekura pool list --json` tells the name.
    pool: String,
    nvme_bytes: u64,
    nvme_free_bytes: u64,
    damaged_bytes: u64,
    #[serde(flatten)]
    rates: Rates,
}

/// What a client or a job did between two looks.
#[derive(Clone, Default, Serialize)]
pub struct Doing {
    ops_per_s: f64,
    received_bytes_per_s: f64,
    sent_bytes_per_s: f64,
    /// Of all operations of the interval, seconds; missing when there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_mean_s: Option<f64>,
}

/// A client.
#[derive(Serialize)]
pub struct ClientReport {
    client: String,
    job: String,
    host: String,
    pid: u32,
    /// Targets where it is connected.
    targets: u64,
    #[serde(flatten)]
    doing: Doing,
}

/// A job.
#[derive(Serialize)]
pub struct JobRates {
    job: String,
    clients: u64,
    failed_per_s: f64,
    #[serde(flatten)]
    doing: Doing,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_p99_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_mean_s: Option<f64>,
    /// Where its operations waited longest; missing when none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    longest_wait_at: Option<u32>,
}

/// What is shown. Of a view only its own part is filled.
#[derive(Default, Serialize)]
pub struct Report {
    seconds: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    engines: Vec<EngineReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pools: Vec<PoolReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    clients: Vec<ClientReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    jobs: Vec<JobRates>,
    /// Who gave no answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    silent: Vec<Silent>,
    /// Clients of which too many are connected to tell all.
    #[serde(skip_serializing_if = "is_zero")]
    clients_left_out: u64,
    #[serde(skip)]
    order: Option<Order>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Report {
    /// What engines did between two looks at their figures.
    pub fn of_figures(
        addresses: &[String],
        before: &[Result<Figures>],
        now: &[Result<Figures>],
        seconds: f64,
    ) -> Report {
        let looks: Vec<(&Figures, &Figures)> = before
            .iter()
            .zip(now)
            .filter_map(|(before, now)| Some((before.as_ref().ok()?, now.as_ref().ok()?)))
            .collect();
        let engines = addresses.iter().zip(before).zip(now);
        let engines = engines.map(|((address, before), now)| {
            let (targets, rates, problem) = match (before, now) {
                (Ok(before), Ok(now)) => {
                    let rates = figures::rates(&[(before, now)], seconds, None);
                    (now.target_rates(before, seconds), rates, None)
                }
                (_, Err(error)) => (Vec::new(), Rates::default(), Some(error.to_string())),
                (Err(_), Ok(_)) => {
                    (Vec::new(), Rates::default(), Some("it has just begun to answer".to_string()))
                }
            };
            let one = |name: &str| now.as_ref().ok().and_then(|figures| figures.one(name));
            let errors = now.as_ref().map_or(0.0, |figures| {
                figures.sum("azekura_events_total", Some(("severity", "error")))
            });
            EngineReport {
                address: address.clone(),
                rank: one("azekura_engine_rank").map(|rank| rank as u32),
                leads: one("azekura_control_service_held") == Some(1.0),
                problem,
                rates,
                message_bytes: one("azekura_message_memory_used_bytes").unwrap_or(0.0) as u64,
                error_events: errors as u64,
                targets,
            }
        });
        let mut pools: Vec<String> = looks
            .iter()
            .flat_map(|(_, now)| now.values("azekura_pool_nvme_bytes", "pool"))
            .collect();
        pools.sort_by_key(|pool| (pool.len(), pool.clone()));
        pools.dedup();
        let pools = pools.into_iter().map(|pool| {
            let by = Some(("pool", &*pool));
            let sum = |name: &str| looks.iter().map(|(_, now)| now.sum(name, by)).sum::<f64>();
            PoolReport {
                nvme_bytes: sum("azekura_pool_nvme_bytes") as u64,
                nvme_free_bytes: sum("azekura_pool_nvme_free_bytes") as u64,
                damaged_bytes: sum("azekura_scrub_bad_bytes") as u64,
                rates: figures::rates(&looks, seconds, by),
                pool,
            }
        });
        let (engines, pools) = (engines.collect(), pools.collect());
        Report { seconds, engines, pools, ..Report::default() }
    }

    /// What clients and jobs did between two answers of the system.
    pub fn of_told(before: &Told, now: &Told, seconds: f64) -> Report {
        Report {
            seconds,
            clients: clients(before, now, seconds),
            jobs: jobs(before, now, seconds),
            silent: now.silent.clone(),
            clients_left_out: now.targets.iter().map(|(.., at)| at.clients_left_out).sum(),
            ..Report::default()
        }
    }

    /// Leaves what the view shows, sorted and filtered.
    pub fn arrange(&mut self, view: View, order: Order, filter: Option<&str>) {
        self.order = Some(order);
        let is_meant = |names: &[&str]| filter.is_none_or(|f| names.iter().any(|n| n.contains(f)));
        match view {
            View::Targets => {
                self.pools.clear();
                for engine in &mut self.engines {
                    let rank = engine.rank.map_or(String::new(), |rank| rank.to_string());
                    let whole = is_meant(&[&engine.address, &rank]) && filter.is_some();
                    engine
                        .targets
                        .retain(|target| whole || is_meant(&[&target.target.to_string()]));
                    sort(&mut engine.targets, |target| of_rates(&target.rates, order));
                }
            }
            View::Engines => {
                self.pools.clear();
                self.engines.retain(|engine| {
                    let rank = engine.rank.map_or(String::new(), |rank| rank.to_string());
                    is_meant(&[&engine.address, &rank])
                });
                sort(&mut self.engines, |engine| of_rates(&engine.rates, order));
            }
            View::Pools => {
                self.engines.clear();
                self.pools.retain(|pool| is_meant(&[&pool.pool]));
                sort(&mut self.pools, |pool| of_rates(&pool.rates, order));
            }
            View::Clients => {
                self.jobs.clear();
                self.clients.retain(|one| is_meant(&[&one.client, &one.job, &one.host]));
                sort(&mut self.clients, |client| of_doing(&client.doing, None, order));
            }
            View::Jobs => {
                self.clients.clear();
                self.jobs.retain(|job| is_meant(&[&job.job]));
                sort(&mut self.jobs, |job| of_doing(&job.doing, job.latency_mean_s, order));
            }
        }
    }
}

/// The greatest first; those that are alike stay as they are.
fn sort<T>(rows: &mut [T], of: impl Fn(&T) -> f64) {
    rows.sort_by(|a, b| of(b).total_cmp(&of(a)));
}

fn of_rates(rates: &Rates, order: Order) -> f64 {
    match order {
        Order::Name | Order::Wait => 0.0,
        Order::Ops => rates.ops_per_s,
        Order::Bytes => rates.received_bytes_per_s + rates.sent_bytes_per_s,
        Order::Queue => (rates.running + rates.waiting) as f64,
        Order::Latency => rates.latency_mean_s.unwrap_or(0.0),
    }
}

fn of_doing(doing: &Doing, latency_mean_s: Option<f64>, order: Order) -> f64 {
    match order {
        Order::Name => 0.0,
        Order::Ops => doing.ops_per_s,
        Order::Bytes => doing.received_bytes_per_s + doing.sent_bytes_per_s,
        Order::Queue | Order::Wait => doing.wait_mean_s.unwrap_or(0.0),
        Order::Latency => latency_mean_s.unwrap_or(0.0),
    }
}

/// What was counted since `before`; all of it when that is of an earlier start of the engine.
fn since(now: &JobFigures, before: Option<&JobFigures>) -> JobFigures {
    let Some(before) = before.filter(|before| before.op_count <= now.op_count) else {
        return now.clone();
    };
    let less = |now: u64, then: u64| now.saturating_sub(then);
    let buckets = now.waits_us.buckets.iter().enumerate();
    let buckets =
        buckets.map(|(at, now)| less(*now, before.waits_us.buckets.get(at).copied().unwrap_or(0)));
    JobFigures {
        op_count: less(now.op_count, before.op_count),
        failed_count: less(now.failed_count, before.failed_count),
        in_bytes: less(now.in_bytes, before.in_bytes),
        out_bytes: less(now.out_bytes, before.out_bytes),
        time_us: less(now.time_us, before.time_us),
        waits_us: Histogram {
            count: less(now.waits_us.count, before.waits_us.count),
            sum: less(now.waits_us.sum, before.waits_us.sum),
            max: now.waits_us.max,
            buckets: buckets.collect(),
        },
        ..now.clone()
    }
}

fn seconds_of(us: u64) -> f64 {
    us as f64 * 1e-6
}

fn jobs(before: &Told, now: &Told, seconds: f64) -> Vec<JobRates> {
    let known: BTreeMap<(TargetId, &str), &JobFigures> = before
        .targets
        .iter()
        .flat_map(|(_, target, at)| at.jobs.iter().map(move |job| ((*target, &*job.job), job)))
        .collect();
    /// The longest mean wait, us, and the target where it was.
    type Longest = Option<(u64, TargetId)>;
    let mut all: BTreeMap<&str, (JobFigures, Longest)> = BTreeMap::new();
    for (_, target, at) in &now.targets {
        for job in &at.jobs {
            let grown = since(job, known.get(&(*target, &*job.job)).copied());
            let (sum, longest) = all.entry(&job.job).or_default();
            let wait = grown.wait_us_mean();
            if wait > longest.map_or(0, |(wait, _)| wait) {
                *longest = Some((wait, *target));
            }
            sum.add(&grown);
        }
    }
    let rates = all.into_iter().map(|(job, (sum, longest))| {
        let did_any = sum.op_count > 0;
        JobRates {
            job: job.to_string(),
            clients: sum.client_count,
            failed_per_s: sum.failed_count as f64 / seconds,
            doing: Doing {
                ops_per_s: sum.op_count as f64 / seconds,
                received_bytes_per_s: sum.in_bytes as f64 / seconds,
                sent_bytes_per_s: sum.out_bytes as f64 / seconds,
                wait_mean_s: did_any.then(|| seconds_of(sum.wait_us_mean())),
            },
            wait_p99_s: did_any.then(|| seconds_of(sum.wait_us_percentile(990))),
            latency_mean_s: did_any.then(|| seconds_of(sum.time_us_mean())),
            longest_wait_at: longest.map(|(_, target)| target.0),
        }
    });
    rates.collect()
}

fn clients(before: &Told, now: &Told, seconds: f64) -> Vec<ClientReport> {
    let known: BTreeMap<(TargetId, ClientId), &ClientFigures> = before
        .targets
        .iter()
        .flat_map(|(_, target, at)| at.clients.iter().map(move |one| ((*target, one.client), one)))
        .collect();
    let mut all: BTreeMap<ClientId, (ClientReport, u64, u64)> = BTreeMap::new();
    for (_, target, at) in &now.targets {
        for one in &at.clients {
            // One that has come again counts from nothing.
            let then = known.get(&(*target, one.client)).copied();
            let then = then.filter(|then| then.op_count <= one.op_count);
            let grown = |of: fn(&ClientFigures) -> u64| of(one).saturating_sub(then.map_or(0, of));
            let (report, ops, wait_us) = all.entry(one.client).or_insert_with(|| {
                let report = ClientReport {
                    client: format!("{:016x}", one.client.0),
                    job: one.job.clone(),
                    host: one.host.clone(),
                    pid: one.pid,
                    targets: 0,
                    doing: Doing::default(),
                };
                (report, 0, 0)
            });
            report.targets += 1;
            *ops += grown(|of| of.op_count);
            *wait_us += grown(|of| of.wait_us);
            report.doing.received_bytes_per_s += grown(|of| of.in_bytes) as f64 / seconds;
            report.doing.sent_bytes_per_s += grown(|of| of.out_bytes) as f64 / seconds;
        }
    }
    let reports = all.into_values().map(|(mut report, ops, wait_us)| {
        report.doing.ops_per_s = ops as f64 / seconds;
        report.doing.wait_mean_s = wait_us.checked_div(ops).map(seconds_of);
        report
    });
    reports.collect()
}

fn time(seconds: Option<f64>) -> String {
    seconds.map_or("-".into(), seconds_text)
}

fn bytes(per_s: f64) -> String {
    size::format(per_s as u64)
}

/// Writes the view's table.
pub fn show(out: &mut dyn Write, report: &Report, view: View) -> io::Result<()> {
    match view {
        View::Targets => show_targets(out, report)?,
        View::Engines => show_engines(out, report)?,
        View::Pools => show_pools(out, report)?,
        View::Clients => show_clients(out, report)?,
        View::Jobs => show_jobs(out, report)?,
    }
    for engine in &report.engines {
        if let Some(problem) = &engine.problem {
            writeln!(out, "{}: {problem}", engine.address)?;
        }
    }
    for silent in &report.silent {
        let target = silent.target.map(|target| format!(", target {target}")).unwrap_or_default();
        writeln!(out, "engine {}{target}: {}", silent.engine, silent.why)?;
    }
    if report.clients_left_out > 0 {
        writeln!(out, "{} more clients are not shown.", report.clients_left_out)?;
    }
    Ok(())
}

/// Operations, data, queues and latency, as all views of figures show them.
const RATES: [&str; 9] =
    [">OPS/S", ">FAILED/S", ">IN/S", ">OUT/S", ">RUNNING", ">WAITING", ">CLIENTS", ">MEAN", ">P99"];

fn cells(rates: &Rates) -> Vec<String> {
    vec![
        format!("{:.0}", rates.ops_per_s),
        format!("{:.0}", rates.failed_per_s),
        bytes(rates.received_bytes_per_s),
        bytes(rates.sent_bytes_per_s),
        rates.running.to_string(),
        rates.waiting.to_string(),
        rates.clients.to_string(),
        time(rates.latency_mean_s),
        time(rates.latency_p99_s),
    ]
}

fn show_targets(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let mut table = Table::new(&[&[">ENGINE", ">TARGET"], &RATES[..]].concat());
    let mut all = Vec::new();
    for engine in &report.engines {
        all.extend(engine.targets.iter().map(|target| (engine, target)));
    }
    if let Some(order) = report.order {
        sort(&mut all, |(_, target)| of_rates(&target.rates, order));
    }
    for (engine, target) in &all {
        let told = match target.answers {
            true => cells(&target.rates),
            false => {
                [&["no answer"], &["-"; 8][..]].concat().iter().map(|s| s.to_string()).collect()
            }
        };
        table.row([vec![engine_name(engine), target.target.to_string()], told].concat());
    }
    table.write(out)?;
    let sum = |of: fn(&Rates) -> f64| all.iter().map(|(_, target)| of(&target.rates)).sum::<f64>();
    writeln!(
        out,
        "\nAll: {:.0} operations/s, {}/s in, {}/s out, over {:.1} s.",
        sum(|rates| rates.ops_per_s),
        bytes(sum(|rates| rates.received_bytes_per_s)),
        bytes(sum(|rates| rates.sent_bytes_per_s)),
        report.seconds
    )
}

fn show_engines(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let titles = [&["ENGINE"], &RATES[..], &[">MESSAGES", ">ERRORS"]].concat();
    let mut table = Table::new(&titles);
    for engine in report.engines.iter().filter(|engine| engine.problem.is_none()) {
        let more = vec![size::format(engine.message_bytes), engine.error_events.to_string()];
        table.row([vec![engine_name(engine)], cells(&engine.rates), more].concat());
    }
    table.write(out)
}

fn show_pools(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let titles = [
        "POOL",
        ">OPS/S",
        ">FAILED/S",
        ">IN/S",
        ">OUT/S",
        ">WAITING",
        ">MEAN",
        ">P99",
        ">FREE",
        ">OF",
        ">DAMAGED",
    ];
    let mut table = Table::new(&titles);
    for pool in &report.pools {
        let rates = &pool.rates;
        table.row(vec![
            pool.pool.clone(),
            format!("{:.0}", rates.ops_per_s),
            format!("{:.0}", rates.failed_per_s),
            bytes(rates.received_bytes_per_s),
            bytes(rates.sent_bytes_per_s),
            rates.waiting.to_string(),
            time(rates.latency_mean_s),
            time(rates.latency_p99_s),
            size::format(pool.nvme_free_bytes),
            size::format(pool.nvme_bytes),
            size::format(pool.damaged_bytes),
        ]);
    }
    table.write(out)
}

fn show_clients(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let titles =
        ["CLIENT", "JOB", "HOST", ">PID", ">TARGETS", ">OPS/S", ">IN/S", ">OUT/S", ">MEAN WAIT"];
    let mut table = Table::new(&titles);
    for client in &report.clients {
        table.row(vec![
            client.client.clone(),
            shown(&client.job),
            client.host.clone(),
            client.pid.to_string(),
            client.targets.to_string(),
            format!("{:.0}", client.doing.ops_per_s),
            bytes(client.doing.received_bytes_per_s),
            bytes(client.doing.sent_bytes_per_s),
            time(client.doing.wait_mean_s),
        ]);
    }
    table.write(out)
}

fn show_jobs(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let titles = [
        "JOB",
        ">CLIENTS",
        ">OPS/S",
        ">FAILED/S",
        ">IN/S",
        ">OUT/S",
        ">MEAN",
        ">MEAN WAIT",
        ">P99 WAIT",
        ">LONGEST AT",
    ];
    let mut table = Table::new(&titles);
    for job in &report.jobs {
        table.row(vec![
            shown(&job.job),
            job.clients.to_string(),
            format!("{:.0}", job.doing.ops_per_s),
            format!("{:.0}", job.failed_per_s),
            bytes(job.doing.received_bytes_per_s),
            bytes(job.doing.sent_bytes_per_s),
            time(job.latency_mean_s),
            time(job.doing.wait_mean_s),
            time(job.wait_p99_s),
            job.longest_wait_at.map_or("-".into(), |target| format!("target {target}")),
        ]);
    }
    table.write(out)
}

fn engine_name(engine: &EngineReport) -> String {
    let leads = if engine.leads { "*" } else { "" };
    engine.rank.map_or_else(|| engine.address.clone(), |rank| format!("{rank}{leads}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Rank;
    use wire::job::TargetJobs;

    fn told(rounds: u64) -> Told {
        let job = |name: &str, target: u64| {
            let mut waits_us = Histogram::default();
            (0..rounds).for_each(|_| waits_us.record(1000 * target));
            JobFigures {
                job: name.into(),
                client_count: 1,
                op_count: 10 * rounds,
                in_bytes: 1000 * rounds * target,
                time_us: 100 * rounds,
                waits_us,
                ..JobFigures::default()
            }
        };
        let client = ClientFigures {
            client: ClientId(7),
            job: "a".into(),
            host: "10.0.0.9".into(),
            pid: 3,
            op_count: rounds,
            in_bytes: 0,
            out_bytes: 100 * rounds,
            wait_us: 50 * rounds,
            seen_ns: 1,
        };
        let at = |target: u64| TargetJobs {
            jobs: vec![job("a", target), job("b", 1)],
            clients: vec![client.clone()],
            clients_left_out: 0,
        };
        let targets = (1..=2).map(|n| (Rank(0), TargetId(n), at(n.into()))).collect();
        Told { targets, silent: Vec::new() }
    }

    #[test]
    fn jobs_and_clients_are_what_has_grown_over_all_targets() {
        let mut report = Report::of_told(&told(2), &told(6), 2.0);
        let job = |report: &Report, name: &str| {
            let job = report.jobs.iter().find(|job| job.job == name).unwrap();
            (job.doing.ops_per_s, job.doing.received_bytes_per_s, job.longest_wait_at)
        };
        assert_eq!(job(&report, "a"), (40.0, 6000.0, Some(2)));
        assert_eq!(job(&report, "b"), (40.0, 4000.0, Some(1)));
        let a = report.jobs[0].doing.wait_mean_s.unwrap();
        assert!((a - 150e-6).abs() < 1e-9, "{a}");
        // One in ten waited, half of these 2 ms.
        assert!(report.jobs[0].wait_p99_s.unwrap() > 1.9e-3);
        let client = &report.clients[0];
        assert_eq!((client.targets, client.doing.ops_per_s), (2, 4.0));
        assert!((client.doing.wait_mean_s.unwrap() - 50e-6).abs() < 1e-9);
        report.arrange(View::Jobs, Order::Bytes, None);
        assert_eq!((&*report.jobs[0].job, report.clients.len()), ("a", 0));
        report.arrange(View::Jobs, Order::Name, Some("b"));
        assert_eq!(report.jobs.len(), 1);
        // The engine was started again.
        let report = Report::of_told(&told(6), &told(2), 1.0);
        assert_eq!(job(&report, "b").0, 40.0);
        let mut report = Report::of_told(&told(6), &told(6), 1.0);
        assert_eq!(report.jobs[0].doing.wait_mean_s, None);
        report.arrange(View::Clients, Order::Wait, Some("10.0.0."));
        assert_eq!(report.clients.len(), 1);
    }
}
