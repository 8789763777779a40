//! What `azekura pool query` tells of the targets' stores: tiers, devices, log, aggregation.

use crate::output::Table;
use client::TargetSpace;
use serde::Serialize;
use std::io::Write;
use types::{Histogram, TargetId, size};
use wire::store::{AggregationStat, DeviceRole, DeviceStat, LogStat, StoreStat};

/// Space of a pool in one target.
#[derive(Serialize)]
pub struct TargetTiers {
    target: u32,
    scm: Tier,
    nvme: Tier,
    objects: u64,
}

#[derive(Serialize)]
struct Tier {
    total_bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
}

fn tier(total_bytes: u64, free_bytes: u64) -> Tier {
    Tier { total_bytes, used_bytes: total_bytes.saturating_sub(free_bytes), free_bytes }
}

impl TargetTiers {
    /// `None` for a target that gave no answer.
    pub fn of(space: &TargetSpace) -> Option<TargetTiers> {
        let stat = space.stat.as_ref()?;
        Some(TargetTiers {
            target: space.target.0,
            scm: tier(stat.scm_bytes, stat.scm_free_bytes),
            nvme: tier(stat.nvme_bytes, stat.nvme_free_bytes),
            objects: stat.object_count,
        })
    }
}

/// The store of one target, as far as this pool is concerned.
#[derive(Serialize)]
pub struct TargetStore {
    target: u32,
    /// `None`: no answer.
    #[serde(flatten)]
    store: Option<StoreReport>,
}

#[derive(Serialize)]
struct StoreReport {
    devices: Vec<DeviceStat>,
    log: Option<LogReport>,
    aggregation: AggregationStat,
}

/// A [`LogStat`] with its histograms in the figures people ask for, and whole.
#[derive(Serialize)]
struct LogReport {
    bytes: u64,
    failed: bool,
    batch_records: Spread,
    batch_bytes: Spread,
    commit_latency_us: Spread,
    replay_records: u64,
    replay_time_us: u64,
    checkpoints: u64,
    checkpoint_ns: u64,
    checkpoint_time_us: u64,
}

#[derive(Serialize)]
struct Spread {
    count: u64,
    mean: u64,
    p50: u64,
    p99: u64,
    p999: u64,
    max: u64,
    /// Greatest value of a bucket, and how many values are in it.
    buckets: Vec<(u64, u64)>,
}

impl Spread {
    fn of(histogram: &Histogram) -> Spread {
        let filled = histogram.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        Spread {
            count: histogram.count,
            mean: histogram.mean(),
            p50: histogram.percentile(500),
            p99: histogram.percentile(990),
            p999: histogram.percentile(999),
            max: histogram.max,
            buckets: filled.map(|(at, &count)| (Histogram::bucket_max(at), count)).collect(),
        }
    }
}

impl LogReport {
    fn of(stat: &LogStat) -> LogReport {
        LogReport {
            bytes: stat.bytes,
            failed: stat.failed,
            batch_records: Spread::of(&stat.batch_records),
            batch_bytes: Spread::of(&stat.batch_bytes),
            commit_latency_us: Spread::of(&stat.commit_latency_us),
            replay_records: stat.replay_records,
            replay_time_us: stat.replay_time_us,
            checkpoints: stat.checkpoints,
            checkpoint_ns: stat.checkpoint_ns,
            checkpoint_time_us: stat.checkpoint_time_us,
        }
    }
}

impl TargetStore {
    /// From what the target answered.
    pub fn of((target, stat): (TargetId, Option<StoreStat>)) -> TargetStore {
        let store = stat.map(|stat| StoreReport {
            log: stat.log.as_ref().map(LogReport::of),
            devices: stat.devices,
            aggregation: stat.aggregation,
        });
        TargetStore { target: target.0, store }
    }
}

/// What a device is for, in words.
pub fn role_text(role: DeviceRole) -> &'static str {
    match role {
        DeviceRole::Both => "all",
        DeviceRole::Scm => "index, log",
        DeviceRole::Nvme => "data",
    }
}

/// Writes the tables of `--verbose`.
pub fn show(stores: &[TargetStore], out: &mut dyn Write) -> std::io::Result<()> {
    let all = || stores.iter().filter_map(|of| Some((of.target, of.store.as_ref()?)));
    writeln!(out)?;
    let mut table = Table::new(&[">TARGET", "DEVICE", "FOR", ">FREE", ">SIZE"]);
    for (target, store) in all() {
        for device in &store.devices {
            table.row(vec![
                target.to_string(),
                device.name.clone(),
                role_text(device.role).into(),
                size::format(device.free_bytes),
                size::format(device.total_bytes),
            ]);
        }
    }
    table.write(out)?;
    writeln!(out)?;
    let mut table = Table::new(&[
        ">TARGET",
        ">LOG",
        ">BATCHES",
        ">RECORDS EACH",
        ">BYTES EACH",
        ">COMMIT MEAN",
        ">99%",
        ">MAX",
        ">REPLAYED",
        ">CHECKPOINTS",
    ]);
    for (target, store) in all() {
        let Some(log) = &store.log else { continue };
        table.row(vec![
            target.to_string(),
            if log.failed { "FAILED".into() } else { size::format(log.bytes) },
            log.batch_records.count.to_string(),
            log.batch_records.mean.to_string(),
            size::format(log.batch_bytes.mean),
            format!("{} us", log.commit_latency_us.mean),
            format!("{} us", log.commit_latency_us.p99),
            format!("{} us", log.commit_latency_us.max),
            format!("{} in {} ms", log.replay_records, log.replay_time_us / 1000),
            log.checkpoints.to_string(),
        ]);
    }
    table.write(out)?;
    writeln!(out)?;
    let mut table = Table::new(&[
        ">TARGET",
        ">AGGREGATION PASSES",
        ">EXTENTS",
        ">JOINED",
        ">INTO",
        ">MOVED",
        ">DISCARDED",
    ]);
    for (target, store) in all() {
        let stat = &store.aggregation;
        table.row(vec![
            target.to_string(),
            stat.passes.to_string(),
            stat.extents.to_string(),
            stat.joined.to_string(),
            stat.made.to_string(),
            size::format(stat.moved_bytes),
            size::format(stat.discarded_bytes),
        ]);
    }
    table.write(out)
}
