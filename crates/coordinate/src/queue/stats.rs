//! What a queue tells about itself.

use super::Queue;
use serde::{Deserialize, Serialize};

/// Upper bounds of the wait time classes, microseconds; a last class has no bound.
pub const WAIT_CLASSES_US: [u64; 8] =
    [1_000, 10_000, 100_000, 1_000_000, 10_000_000, 60_000_000, 300_000_000, 1_800_000_000];

/// Sums since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Requests granted.
    pub granted: u64,
    /// Granted requests that were completed.
    pub completed: u64,
    /// Bytes of completed requests.
    pub bytes: u64,
    /// Time granted requests had waited, microseconds.
    pub wait_us: u64,
    /// Longest of these times, microseconds.
    pub wait_us_max: u64,
    /// Time slots were held, microseconds.
    pub held_us: u64,
    /// Granted requests by time waited: not above the bound of their class in
    /// [`WAIT_CLASSES_US`], above that of the one before.
    pub wait_classes: [u64; WAIT_CLASSES_US.len() + 1],
}

impl Totals {
    pub(super) fn grant(&mut self, waited_us: u64) {
        self.granted += 1;
        self.wait_us += waited_us;
        self.wait_us_max = self.wait_us_max.max(waited_us);
        self.wait_classes[WAIT_CLASSES_US.partition_point(|bound| *bound < waited_us)] += 1;
    }

    pub(super) fn end(&mut self, held_us: u64, bytes: Option<u64>) {
        self.held_us += held_us;
        if let Some(bytes) = bytes {
            self.completed += 1;
            self.bytes = self.bytes.saturating_add(bytes);
        }
    }
}

/// A target in one direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneStats {
    /// Most requests at a time now; `None`: any number.
    pub limit: Option<u32>,
    /// The limit is found by itself.
    pub auto: bool,
    /// Requests that are in.
    pub active: u32,
    pub waiting: usize,
    /// How long the longest waiting one does, microseconds.
    pub waiting_us_max: u64,
    #[serde(flatten)]
    pub totals: Totals,
}

/// The queue of one target, by direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetStats {
    pub name: String,
    pub write: LaneStats,
    pub read: LaneStats,
}

/// What one job has asked for and got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStats {
    pub name: String,
    /// Connections.
    pub clients: u32,
    /// Requests that are in.
    pub active: u32,
    pub waiting: u32,
    #[serde(flatten)]
    pub totals: Totals,
}

/// What a group's queue holds and has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStats {
    /// Connections.
    pub clients: usize,
    pub waiting: usize,
    /// Requests that are in.
    pub active: usize,
    /// Completions and cancellations of requests that were not there: mostly crossed messages.
    pub strays: u64,
    /// Targets, those with most waiting and active requests first.
    pub targets: Vec<TargetStats>,
    /// Jobs, in the same order.
    pub jobs: Vec<JobStats>,
    /// Targets and jobs that are not listed.
    pub left_out: usize,
}

impl Queue {
    /// The present state, with at most `rows_max` targets and as many jobs.
    pub fn stats(&self, now_us: u64, rows_max: usize) -> QueueStats {
        let mut targets: Vec<_> = self.targets.values().collect();
        let busy = |target: &super::Target| -> usize {
            target.lanes.iter().map(|lane| lane.waiting() + lane.active() as usize).sum()
        };
        targets.sort_by(|a, b| busy(b).cmp(&busy(a)).then_with(|| a.name.cmp(&b.name)));
        let mut jobs: Vec<_> = self.jobs.values().collect();
        jobs.sort_by(|a, b| {
            let busy = |job: &super::Job| job.waiting + job.active;
            busy(b).cmp(&busy(a)).then_with(|| a.name.cmp(&b.name))
        });
        let lane = |lane: &super::Lane| {
            let oldest = lane.oldest().and_then(|arrival| self.entries.get(&arrival));
            LaneStats {
                limit: lane.limit(),
                auto: lane.is_auto(),
                active: lane.active(),
                waiting: lane.waiting(),
                waiting_us_max: oldest.map_or(0, |entry| now_us.saturating_sub(entry.asked_us)),
                totals: lane.totals.clone(),
            }
        };
        QueueStats {
            clients: self.clients.len(),
            waiting: self.entries.len() - self.held.len(),
            active: self.held.len(),
            strays: self.strays,
            left_out: targets.len().saturating_sub(rows_max) + jobs.len().saturating_sub(rows_max),
            targets: targets
                .into_iter()
                .take(rows_max)
                .map(|target| TargetStats {
                    name: target.name.to_string(),
                    write: lane(&target.lanes[0]),
                    read: lane(&target.lanes[1]),
                })
                .collect(),
            jobs: jobs
                .into_iter()
                .take(rows_max)
                .map(|job| JobStats {
                    name: job.name.to_string(),
                    clients: job.clients,
                    active: job.active,
                    waiting: job.waiting,
                    totals: job.totals.clone(),
                })
                .collect(),
        }
    }
}
