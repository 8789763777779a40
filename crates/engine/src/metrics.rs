//! An engine's figures for Prometheus: gathered on the control thread, as text.

use crate::control_host::ControlHost;
use crate::figures::{OpFigures, PoolFigures, REQUEST_KINDS, TargetFigures};
use crate::office::Role;
use crate::process::Order;
use futures_channel::{mpsc, oneshot};
use futures_util::StreamExt;
use futures_util::future::join_all;
use std::rc::Rc;
use std::time::Duration;
use types::TargetId;
use types::metrics::{Family, seconds};
use wire::admission::{GateStat, JobStat};
use wire::event::EventCode;
use wire::footprint::OpKind;
use wire::job::JobFigures;
use wire::store::{DeviceRole, LogStat};

/// A target that says nothing for so long is left out.
const TARGET_TIME_MAX: Duration = Duration::from_secs(4);

/// Somebody who wants the text.
pub(crate) type Asker = std::sync::mpsc::Sender<String>;

/// What the control thread adds to its targets' figures.
pub(crate) struct EngineFigures {
    pub rank: u32,
    pub holds_control_service: bool,
    pub is_etcd_away: bool,
    pub message_bytes: u64,
    pub message_bytes_max: u64,
    /// How often each happened.
    pub events: Vec<(EventCode, u64)>,
}

impl ControlHost {
    fn figures(&self) -> EngineFigures {
        let state = self.state();
        EngineFigures {
            rank: self.rank().0,
            holds_control_service: matches!(self.role(), Role::Holder(_)),
            is_etcd_away: self.standing.away().is_some(),
            message_bytes: state.message_bytes,
            message_bytes_max: state.message_bytes_max,
            events: self.events.counts(),
        }
    }
}

/// Answers all who ask, for ever; those who ask meanwhile get one text.
pub(crate) async fn answer_all(
    control: Rc<ControlHost>,
    mut asked: mpsc::UnboundedReceiver<Asker>,
) {
    while let Some(first) = asked.next().await {
        let mut askers = vec![first];
        while let Ok(more) = asked.try_recv() {
            askers.push(more);
        }
        let of_targets = control.own_targets().into_iter().map(|(id, inbox)| {
            let control = &control;
            async move {
                let (sender, figures) = oneshot::channel();
                let is_asked = inbox.unbounded_send(Order::Figures(sender)).is_ok();
                let figures = match is_asked {
                    true => control.env.timeout(TARGET_TIME_MAX, figures).await,
                    false => None,
                };
                (id, figures.and_then(Result::ok))
            }
        });
        let targets = join_all(of_targets).await;
        let text = text(&control.figures(), &targets);
        for asker in askers {
            // It may have given up waiting.
            let _ = asker.send(text.clone());
        }
    }
}

/// The whole text.
fn text(engine: &EngineFigures, targets: &[(TargetId, Option<TargetFigures>)]) -> String {
    let mut text = String::new();
    let out = &mut text;
    let mut one =
        |name, help, value: u64| Family::new(out, name, "gauge", help).sample("", &[], value);
    one("azekura_engine_rank", "The engine's number in the system.", engine.rank.into());
    let help = "1: this engine holds the control service.";
    one("azekura_control_service_held", help, engine.holds_control_service.into());
    one(
        "azekura_etcd_away",
        "1: etcd, which holds the catalog, is away.",
        engine.is_etcd_away.into(),
    );
    let help = "Memory that messages take.";
    one("azekura_message_memory_used_bytes", help, engine.message_bytes);
    let help = "Memory that messages may take.";
    one("azekura_message_memory_limit_bytes", help, engine.message_bytes_max);
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    Family::new(out, "azekura_engine_info", "gauge", "The engine's version.")
        .sample("", &version, 1);
    let help = "Events of the engine, by code.";
    let mut events = Family::new(out, "azekura_events_total", "counter", help);
    for (code, count) in &engine.events {
        let severity = code.severity().to_string();
        events.sample("", &[("code", code.name()), ("severity", &severity)], count);
    }
    let mut answers =
        Family::new(out, "azekura_target_answers", "gauge", "1: the target has told its figures.");
    for (id, figures) in targets {
        let value = u32::from(figures.is_some());
        answers.sample("", &[("target", &id.0.to_string())], value);
    }
    let targets: Vec<Labelled<'_, TargetFigures>> = targets
        .iter()
        .filter_map(|(id, figures)| Some((vec![id.0.to_string()], figures.as_ref()?)))
        .collect();
    of_targets(out, &targets);
    of_jobs(out, &targets);
    let pools: Vec<Labelled<'_, PoolFigures>> = targets
        .iter()
        .flat_map(|(id, target)| target.pools.iter().map(|pool| (named(id, pool.pool), pool)))
        .collect();
    of_pools(out, &pools);
    of_operations(out, &pools);
    of_admission(out, &pools);
    of_logs(out, &pools);
    text
}

/// Figures with the values of their labels: the target, the pool, and what else tells them apart.
type Labelled<'a, T> = (Vec<String>, &'a T);

fn named(before: &[String], more: impl ToString) -> Vec<String> {
    before.iter().cloned().chain([more.to_string()]).collect()
}

/// A metric: name, kind, help, value; without a value there is no sample.
type Metric<T> = (&'static str, &'static str, &'static str, fn(&T) -> Option<f64>);

fn pairs<'a>(names: &[&'a str], values: &'a [String]) -> Vec<(&'a str, &'a str)> {
    names.iter().copied().zip(values.iter().map(String::as_str)).collect()
}

fn families<T>(out: &mut String, names: &[&str], all: &[Labelled<'_, T>], metrics: &[Metric<T>]) {
    for (name, kind, help, value) in metrics {
        let mut family = Family::new(out, name, kind, help);
        for (values, figures) in all {
            if let Some(value) = value(figures) {
                family.sample("", &pairs(names, values), value);
            }
        }
    }
}

fn of_targets(out: &mut String, all: &[Labelled<'_, TargetFigures>]) {
    let help = "Requests that have arrived.";
    let mut requests = Family::new(out, "azekura_target_requests_total", "counter", help);
    for (id, target) in all {
        for (kind, count) in REQUEST_KINDS.iter().zip(target.requests) {
            requests.sample("", &[("target", &id[0]), ("kind", kind)], count);
        }
    }
    families(
        out,
        &["target"],
        all,
        &[
            ("azekura_target_requests_running", "gauge", "Requests under way.", |target| {
                Some(target.in_progress as f64)
            }),
            ("azekura_target_clients", "gauge", "Connected clients and other targets.", |target| {
                Some(target.clients as f64)
            }),
            (
                "azekura_target_pools_unserved",
                "gauge",
                "Pools whose part cannot be served.",
                |target| Some(target.unserved.len() as f64),
            ),
        ],
    );
    let mut devices = Vec::new();
    for (id, target) in all {
        for device in &target.devices {
            let role = match device.role {
                DeviceRole::Both => "both",
                DeviceRole::Scm => "scm",
                DeviceRole::Nvme => "nvme",
            };
            devices.push((named(&named(id, &device.name), role), device));
        }
    }
    let names = ["target", "device", "role"];
    families(
        out,
        &names,
        &devices,
        &[
            (
                "azekura_device_size_bytes",
                "gauge",
                "Size of a device or its file system.",
                |device| Some(device.total_bytes as f64),
            ),
            ("azekura_device_free_bytes", "gauge", "What is free there.", |device| {
                Some(device.free_bytes as f64)
            }),
        ],
    );
}

fn of_jobs(out: &mut String, targets: &[Labelled<'_, TargetFigures>]) {
    let jobs: Vec<Labelled<'_, JobFigures>> = targets
        .iter()
        .flat_map(|(id, target)| target.jobs.iter().map(|job| (named(id, &job.job), job)))
        .collect();
    families(
        out,
        // `job` is a name of Prometheus's own.
        &["target", "application"],
        &jobs,
        &[
            ("azekura_job_clients", "gauge", "Connected clients of a job.", |job| {
                Some(job.client_count as f64)
            }),
            ("azekura_job_operations_total", "counter", "Its operations.", |job| {
                Some(job.op_count as f64)
            }),
            ("azekura_job_operations_failed_total", "counter", "Of these, failed.", |job| {
                Some(job.failed_count as f64)
            }),
            ("azekura_job_received_bytes_total", "counter", "Data that came with them.", |job| {
                Some(job.in_bytes as f64)
            }),
            ("azekura_job_sent_bytes_total", "counter", "Data of their answers.", |job| {
                Some(job.out_bytes as f64)
            }),
            ("azekura_job_operation_seconds_total", "counter", "Time they took.", |job| {
                Some(seconds(job.time_us))
            }),
            ("azekura_job_queued_total", "counter", "Of these, had to wait for others.", |job| {
                Some(job.waits_us.count as f64)
            }),
            ("azekura_job_queued_seconds_total", "counter", "Time they waited.", |job| {
                Some(seconds(job.waits_us.sum))
            }),
        ],
    );
}

fn of_pools(out: &mut String, all: &[Labelled<'_, PoolFigures>]) {
    let metrics: [Metric<PoolFigures>; 24] = [
        ("azekura_pool_scm_bytes", "gauge", "Tier of index and log.", |pool| {
            Some(pool.space.scm_bytes as f64)
        }),
        ("azekura_pool_scm_free_bytes", "gauge", "What is free of it.", |pool| {
            Some(pool.space.scm_free_bytes as f64)
        }),
        ("azekura_pool_nvme_bytes", "gauge", "Tier of data.", |pool| {
            Some(pool.space.nvme_bytes as f64)
        }),
        ("azekura_pool_nvme_free_bytes", "gauge", "What is free of it.", |pool| {
            Some(pool.space.nvme_free_bytes as f64)
        }),
        ("azekura_pool_objects", "gauge", "Objects.", |pool| Some(pool.space.object_count as f64)),
        ("azekura_pool_dkeys", "gauge", "Dkeys.", |pool| Some(pool.space.dkey_count as f64)),
        ("azekura_index_resident_bytes", "gauge", "Memory of the index.", |pool| {
            Some(pool.index.resident_bytes as f64)
        }),
        ("azekura_index_dirty_bytes", "gauge", "Of that, in no page on the device yet.", |pool| {
            Some(pool.index.dirty_bytes as f64)
        }),
        ("azekura_index_pages_loaded_total", "counter", "Pages read back.", |pool| {
            Some(pool.index.loaded_pages as f64)
        }),
        ("azekura_index_pages_bytes", "gauge", "Pages of the index on the device.", |pool| {
            Some(pool.index.area_bytes as f64)
        }),
        ("azekura_sums_bytes", "gauge", "Memory of the checksums.", |pool| {
            Some(pool.index.sums_bytes as f64)
        }),
        ("azekura_cache_used_bytes", "gauge", "Data of devices in memory.", |pool| {
            Some(pool.cache.used_bytes as f64)
        }),
        ("azekura_cache_limit_bytes", "gauge", "What they may take.", |pool| {
            Some(pool.cache.limit_bytes as f64)
        }),
        ("azekura_cache_hits_total", "counter", "Reads of data from memory.", |pool| {
            Some(pool.cache.hits as f64)
        }),
        ("azekura_cache_misses_total", "counter", "Reads of data from devices.", |pool| {
            Some(pool.cache.misses as f64)
        }),
        ("azekura_cache_hit_bytes_total", "counter", "Their bytes, from memory.", |pool| {
            Some(pool.cache.hit_bytes as f64)
        }),
        ("azekura_cache_miss_bytes_total", "counter", "Their bytes, from devices.", |pool| {
            Some(pool.cache.miss_bytes as f64)
        }),
        (
            "azekura_aggregation_moved_bytes_total",
            "counter",
            "Bytes moved to join extents.",
            |pool| Some(pool.aggregation.moved_bytes as f64),
        ),
        ("azekura_scrub_summed_bytes", "gauge", "Data with checksums.", |pool| {
            Some(pool.scrub.summed_bytes as f64)
        }),
        ("azekura_scrub_bad_bytes", "gauge", "Data known to be damaged.", |pool| {
            Some(pool.scrub.bad_bytes as f64)
        }),
        ("azekura_scrub_found_total", "counter", "Times damage was found.", |pool| {
            Some(pool.scrub.found_count as f64)
        }),
        (
            "azekura_scrub_mended_total",
            "counter",
            "Keys with damaged data put right from other members.",
            |pool| Some(pool.scrub.mended_count as f64),
        ),
        ("azekura_scrub_passes_total", "counter", "Full passes of the scrubber.", |pool| {
            Some(pool.scrub.passes as f64)
        }),
        (
            "azekura_scrub_pass_end_timestamp_seconds",
            "gauge",
            "When the last full pass ended.",
            |pool| (pool.scrub.pass_end_ns > 0).then_some(pool.scrub.pass_end_ns as f64 / 1e9),
        ),
    ];
    families(out, &["target", "pool"], all, &metrics);
    of_healing(out, all);
}

fn of_healing(out: &mut String, all: &[Labelled<'_, PoolFigures>]) {
    let metrics: [Metric<PoolFigures>; 8] = [
        (
            "azekura_heal_running",
            "gauge",
            "1: it compares what it has with others, and gets what it lacks.",
            |pool| Some(f64::from(u8::from(pool.healing.tries > 0))),
        ),
        ("azekura_heal_full", "gauge", "1: there is no room for what it lacks.", |pool| {
            Some(f64::from(u8::from(pool.healing.is_full)))
        }),
        (
            "azekura_heal_objects_left",
            "gauge",
            "Objects known to differ, still to be compared.",
            |pool| Some(pool.healing.units_left as f64),
        ),
        ("azekura_heal_objects_total", "counter", "Objects compared to the end.", |pool| {
            Some(pool.healed.units_mended as f64)
        }),
        ("azekura_heal_keys_total", "counter", "Keys that it has got from others.", |pool| {
            Some(pool.healed.keys_mended as f64)
        }),
        ("azekura_heal_bytes_total", "counter", "Bytes that it has got from others.", |pool| {
            Some(pool.healed.bytes_mended as f64)
        }),
        (
            "azekura_lead_granted",
            "gauge",
            "1 while it may show what it leads without asking those who follow.",
            |pool| Some(f64::from(u8::from(pool.is_lead_granted))),
        ),
        (
            "azekura_lead_questions_total",
            "counter",
            "Questions to those who follow whether it leads still.",
            |pool| Some(pool.words_asked as f64),
        ),
    ];
    families(out, &["target", "pool"], all, &metrics);
    let help = "Requests that asked it for what it follows: answered, refused as dirty, or because it was not sure to have all.";
    let mut reads = Family::new(out, "azekura_member_reads_total", "counter", help);
    for (values, pool) in all {
        for (outcome, count) in ["shown", "dirty", "refused"].iter().zip(pool.member_reads) {
            let values = named(values, outcome);
            reads.sample("", &pairs(&["target", "pool", "outcome"], &values), count);
        }
    }
    let help = "Groups that it leads and that lack members, by copies left.";
    let mut groups = Family::new(out, "azekura_groups_lacking", "gauge", help);
    for (values, pool) in all {
        let stat = pool.groups;
        for (left, count) in [("1", stat.one_left), ("2", stat.two_left), ("3+", stat.more_left)] {
            let values = named(values, left);
            groups.sample("", &pairs(&["target", "pool", "left"], &values), count);
        }
    }
}

fn of_operations(out: &mut String, pools: &[Labelled<'_, PoolFigures>]) {
    let mut all: Vec<Labelled<'_, OpFigures>> = Vec::new();
    for (values, pool) in pools {
        let used =
            OpKind::ALL.iter().zip(&pool.ops).filter(|(_, figures)| figures.latency_us.count > 0);
        all.extend(used.map(|(kind, figures)| (named(values, kind.name()), figures)));
    }
    let names = ["target", "pool", "op"];
    let help = "From arrival until the answer has left.";
    let mut times = Family::new(out, "azekura_operation_seconds", "histogram", help);
    for (values, figures) in &all {
        times.histogram_us(&pairs(&names, values), &figures.latency_us);
    }
    families(
        out,
        &names,
        &all,
        &[
            ("azekura_operations_failed_total", "counter", "Answered with an error.", |figures| {
                Some(figures.failed as f64)
            }),
            ("azekura_received_bytes_total", "counter", "Data that came with them.", |figures| {
                Some(figures.in_bytes as f64)
            }),
            ("azekura_sent_bytes_total", "counter", "Data of their answers.", |figures| {
                Some(figures.out_bytes as f64)
            }),
        ],
    );
}

fn of_admission(out: &mut String, pools: &[Labelled<'_, PoolFigures>]) {
    let mut gates: Vec<Labelled<'_, GateStat>> = Vec::new();
    let mut jobs: Vec<Labelled<'_, JobStat>> = Vec::new();
    for (values, pool) in pools {
        let stat = &pool.admission;
        for (direction, gate) in [("write", &stat.writers), ("read", &stat.readers)] {
            let values = named(values, direction);
            jobs.extend(gate.jobs.iter().map(|job| (named(&values, &job.job), job)));
            gates.push((values, gate));
        }
    }
    families(
        out,
        &["target", "pool", "direction"],
        &gates,
        &[
            (
                "azekura_admission_limit",
                "gauge",
                "Transfers let in at a time; 0: any number.",
                |gate| Some(gate.limit_now.into()),
            ),
            ("azekura_admission_active", "gauge", "Transfers at work.", |gate| {
                Some(gate.at_work.into())
            }),
            ("azekura_admission_waiting", "gauge", "Transfers that wait.", |gate| {
                Some(gate.waiting as f64)
            }),
            ("azekura_admission_granted_total", "counter", "Transfers let in.", |gate| {
                Some(gate.granted as f64)
            }),
            ("azekura_admission_held_total", "counter", "Of these, had to wait.", |gate| {
                Some(gate.held as f64)
            }),
            ("azekura_admission_bytes_total", "counter", "Bytes let in.", |gate| {
                Some(gate.bytes as f64)
            }),
            ("azekura_admission_wait_seconds_total", "counter", "Time transfers waited.", |gate| {
                Some(seconds(gate.wait_us))
            }),
        ],
    );
    families(
        out,
        // `job` is a name of Prometheus's own.
        &["target", "pool", "direction", "application"],
        &jobs,
        &[
            ("azekura_job_waiting", "gauge", "Transfers of a job that wait.", |job| {
                Some(job.waiting as f64)
            }),
            ("azekura_job_granted_total", "counter", "Transfers of a job let in.", |job| {
                Some(job.granted as f64)
            }),
            ("azekura_job_bytes_total", "counter", "Their bytes.", |job| Some(job.bytes as f64)),
            ("azekura_job_wait_seconds_total", "counter", "Time they waited.", |job| {
                Some(seconds(job.wait_us))
            }),
        ],
    );
}

fn of_logs(out: &mut String, pools: &[Labelled<'_, PoolFigures>]) {
    let logs: Vec<Labelled<'_, LogStat>> = pools
        .iter()
        .filter_map(|(values, pool)| Some((values.clone(), pool.log.as_ref()?)))
        .collect();
    let names = ["target", "pool"];
    families(
        out,
        &names,
        &logs,
        &[
            ("azekura_log_bytes", "gauge", "Log that a restart would read.", |log| {
                Some(log.bytes as f64)
            }),
            (
                "azekura_log_failed",
                "gauge",
                "1: a write has failed, no updates are taken.",
                |log| Some(u32::from(log.failed).into()),
            ),
            ("azekura_log_records_total", "counter", "Records written.", |log| {
                Some(log.batch_records.sum as f64)
            }),
            ("azekura_log_written_bytes_total", "counter", "Their bytes.", |log| {
                Some(log.batch_bytes.sum as f64)
            }),
            ("azekura_log_replay_seconds", "gauge", "Time the last start took to replay.", |log| {
                Some(seconds(log.replay_time_us))
            }),
            ("azekura_checkpoints_total", "counter", "Checkpoints completed.", |log| {
                Some(log.checkpoints as f64)
            }),
            ("azekura_checkpoint_seconds", "gauge", "Time the last one took.", |log| {
                (log.checkpoints > 0).then_some(seconds(log.checkpoint_time_us))
            }),
        ],
    );
    let help = "From the first record of a batch to stable storage.";
    let mut commits = Family::new(out, "azekura_log_commit_seconds", "histogram", help);
    for (values, log) in &logs {
        commits.histogram_us(&pairs(&names, values), &log.commit_latency_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Names of all metrics, without those of a histogram's parts.
    fn names() -> BTreeSet<String> {
        let engine = EngineFigures {
            rank: 0,
            holds_control_service: true,
            is_etcd_away: false,
            message_bytes: 1,
            message_bytes_max: 2,
            events: vec![(EventCode::EngineDown, 3)],
        };
        let text = text(&engine, &[(TargetId(7), None)]);
        assert!(text.contains("azekura_target_answers{target=\"7\"} 0\n"), "{text}");
        let event = "azekura_events_total{code=\"engine-down\",severity=\"error\"} 3\n";
        assert!(text.contains(event), "{text}");
        let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        names.map(|line| line.split(' ').next().unwrap().to_string()).collect()
    }

    /// Words of a text that look like metrics of an engine.
    fn named_in(text: &str) -> BTreeSet<String> {
        let words = text.split(|one: char| !one.is_ascii_alphanumeric() && one != '_');
        let words = words.filter(|word| word.starts_with("azekura_"));
        let histograms = ["azekura_operation_seconds", "azekura_log_commit_seconds"];
        let whole = |word: &str| {
            let part = histograms.iter().find(|name| word.starts_with(&format!("{name}_")));
            part.map_or(word.to_string(), |name| name.to_string())
        };
        words.map(whole).collect()
    }

    #[test]
    fn the_dashboard_asks_for_what_there_is() {
        let dashboard = include_str!("../../../packaging/grafana-azekura.json");
        let (asked, names) = (named_in(dashboard), names());
        assert!(asked.len() > 15, "{asked:?}");
        let missing: Vec<&String> = asked.difference(&names).collect();
        assert!(missing.is_empty(), "no such metrics: {missing:?}");
    }

    /// Codes are in the table of events with their severity and what to do, each once, and nothing else is.
    #[test]
    fn every_event_is_documented_and_no_other() {
        let text = include_str!("../../../docs/monitor.md");
        let (_, table) = text.split_once("## Events\n").expect("a chapter on events");
        let (table, _) = table.split_once("\n## ").unwrap_or((table, ""));
        let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
        let documented: Vec<&str> = rows.collect();
        let wanted = EventCode::ALL.iter().map(|code| {
            let to_do = code.to_do().replace('|', "\\|");
            (code.name(), format!("` | {} | ", code.severity()), format!(" | {to_do} |"))
        });
        for (name, severity, to_do) in wanted {
            let of_code = |row: &&&str| row.strip_prefix(name).is_some_and(|r| r.starts_with('`'));
            let rows: Vec<&&str> = documented.iter().filter(of_code).collect();
            assert_eq!(rows.len(), 1, "{name} is documented {} times", rows.len());
            assert!(rows[0][name.len()..].starts_with(&severity), "{name}: not '{severity}'");
            assert!(rows[0].ends_with(&to_do), "{name}: does not end with '{to_do}'");
        }
        assert_eq!(documented.len(), EventCode::ALL.len(), "{documented:?}");
    }

    #[test]
    fn every_metric_is_documented_and_no_other() {
        let documented = named_in(include_str!("../../../docs/monitor.md"));
        assert_eq!(documented, names());
    }
}
