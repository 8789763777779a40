//! The coordinator's state in the text format of Prometheus.

use super::snapshot::{ServerStats, Snapshot};
use crate::queue::{LaneStats, Totals, WAIT_CLASSES_US};
use types::metrics::{Family, seconds};

/// The whole text.
pub(super) fn text(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    let out = &mut text;
    Family::new(out, "azekura_ioc_info", "gauge", "The coordinator's version.").sample(
        "",
        &[("version", &snapshot.version)],
        1,
    );
    let mut up = Family::new(out, "azekura_ioc_uptime_seconds", "gauge", "Time since the start.");
    up.sample("", &[], seconds(snapshot.uptime_us));
    server(out, &snapshot.server);
    let mut clients = Family::new(out, "azekura_ioc_clients", "gauge", "Connected clients.");
    for group in &snapshot.groups {
        clients.sample("", &[("group", &group.name)], group.queue.clients);
    }
    let mut strays = Family::new(
        out,
        "azekura_ioc_strays_total",
        "counter",
        "Completions and cancellations of requests that were not there.",
    );
    for group in &snapshot.groups {
        strays.sample("", &[("group", &group.name)], group.queue.strays);
    }
    lanes(out, snapshot);
    jobs(out, snapshot);
    text
}

fn server(out: &mut String, stats: &ServerStats) {
    let mut one = |name, kind, help, value: u64| {
        Family::new(out, name, kind, help).sample("", &[], value);
    };
    one("azekura_ioc_turns_total", "counter", "Turns of the coordinator's loop.", stats.turns);
    one("azekura_ioc_accepted_total", "counter", "Accepted connections.", stats.accepted);
    let help = "Connections that have not said hello.";
    one("azekura_ioc_strangers", "gauge", help, stats.strangers as u64);
    let help = "Connections closed because they took too long.";
    one("azekura_ioc_timed_out_total", "counter", help, stats.timed_out);
    let help = "Lines of the trace lost because the disk was too slow.";
    one("azekura_ioc_trace_lost_total", "counter", help, stats.trace_lost);
    let help = "Refused connections.";
    let mut refused = Family::new(out, "azekura_ioc_refused_total", "counter", help);
    for (reason, count) in [
        ("version", stats.refused_version),
        ("token", stats.refused_token),
        ("group", stats.refused_group),
        ("full", stats.refused_full),
        ("protocol", stats.refused_protocol),
    ] {
        refused.sample("", &[("reason", reason)], count);
    }
}

/// A metric of a target in one direction: name, kind, help, value.
type LaneMetric = (&'static str, &'static str, &'static str, fn(&LaneStats) -> Option<f64>);

/// What is done for each target and direction, given its labels.
type EachLane<'a> = dyn FnMut(&[(&str, &str)], &LaneStats) + 'a;

fn lanes(out: &mut String, snapshot: &Snapshot) {
    let metrics: [LaneMetric; 8] = [
        ("azekura_ioc_limit", "gauge", "Requests let in at a time.", |lane| {
            lane.limit.map(f64::from)
        }),
        ("azekura_ioc_active", "gauge", "Requests that are in.", |lane| {
            Some(f64::from(lane.active))
        }),
        ("azekura_ioc_waiting", "gauge", "Requests that wait.", |lane| Some(lane.waiting as f64)),
        (
            "azekura_ioc_oldest_wait_seconds",
            "gauge",
            "Wait so far of the oldest waiting.",
            |lane| Some(seconds(lane.waiting_us_max)),
        ),
        ("azekura_ioc_granted_total", "counter", "Requests let in.", |lane| {
            Some(lane.totals.granted as f64)
        }),
        ("azekura_ioc_completed_total", "counter", "Requests let in and done.", |lane| {
            Some(lane.totals.completed as f64)
        }),
        ("azekura_ioc_bytes_total", "counter", "Bytes of these.", |lane| {
            Some(lane.totals.bytes as f64)
        }),
        ("azekura_ioc_held_seconds_total", "counter", "Time requests were in.", |lane| {
            Some(seconds(lane.totals.held_us))
        }),
    ];
    let each = |each: &mut EachLane<'_>| {
        for group in &snapshot.groups {
            for target in &group.queue.targets {
                for (direction, lane) in [("write", &target.write), ("read", &target.read)] {
                    let labels = [
                        ("group", group.name.as_str()),
                        ("target", &target.name),
                        ("direction", direction),
                    ];
                    each(&labels, lane);
                }
            }
        }
    };
    for (name, kind, help, value) in metrics {
        let mut family = Family::new(out, name, kind, help);
        each(&mut |labels, lane| {
            if let Some(value) = value(lane) {
                family.sample("", labels, value);
            }
        });
    }
    let help = "Time from asking to being let in.";
    let mut waits = Family::new(out, "azekura_ioc_wait_seconds", "histogram", help);
    each(&mut |labels, lane| histogram(&mut waits, labels, &lane.totals));
}

fn histogram(family: &mut Family<'_>, labels: &[(&str, &str)], totals: &Totals) {
    let mut below = 0;
    for (at, count) in totals.wait_classes.iter().enumerate() {
        below += count;
        let bound = WAIT_CLASSES_US.get(at);
        let bound = bound.map_or("+Inf".to_string(), |us| seconds(*us).to_string());
        let mut labels = labels.to_vec();
        labels.push(("le", &bound));
        family.sample("_bucket", &labels, below);
    }
    family.sample("_sum", labels, seconds(totals.wait_us));
    family.sample("_count", labels, totals.granted);
}

fn jobs(out: &mut String, snapshot: &Snapshot) {
    type JobMetric = (&'static str, &'static str, &'static str, fn(&crate::queue::JobStats) -> f64);
    let metrics: [JobMetric; 6] = [
        ("azekura_ioc_job_clients", "gauge", "Connected clients of a job.", |job| {
            f64::from(job.clients)
        }),
        ("azekura_ioc_job_active", "gauge", "Requests of a job that are in.", |job| {
            f64::from(job.active)
        }),
        ("azekura_ioc_job_waiting", "gauge", "Requests of a job that wait.", |job| {
            f64::from(job.waiting)
        }),
        ("azekura_ioc_job_granted_total", "counter", "Requests of a job let in.", |job| {
            job.totals.granted as f64
        }),
        ("azekura_ioc_job_bytes_total", "counter", "Bytes of a job's requests.", |job| {
            job.totals.bytes as f64
        }),
        ("azekura_ioc_job_wait_seconds_total", "counter", "Time a job's requests waited.", |job| {
            seconds(job.totals.wait_us)
        }),
    ];
    for (name, kind, help, value) in metrics {
        let mut family = Family::new(out, name, kind, help);
        for group in &snapshot.groups {
            for job in &group.queue.jobs {
                family.sample("", &[("group", &group.name), ("job", &job.name)], value(job));
            }
        }
    }
}
