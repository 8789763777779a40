//! What a target counts of its work, and what an engine gathers of its targets for metrics.
//!
//! Counts belong to the target's thread, like everything of it: plain numbers, no atomics.

use crate::target::{Target, TargetPool};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use types::{Histogram, PoolId};
use vos::IndexStat;
use wire::admission::AdmissionStat;
use wire::cache::CacheStat;
use wire::footprint::OpKind;
use wire::job::JobFigures;
use wire::obj::{PoolShardStat, RequestKind};
use wire::scrub::ScrubStat;
use wire::store::{AggregationStat, CatchUpStat, DeviceStat, GroupStat, LogStat};

/// Kinds of requests, in the order of [`request_index`].
pub(crate) const REQUEST_KINDS: [&str; 8] =
    ["batch", "commit", "prepare", "lock", "orders", "other", "member", "cell"];

/// Jobs of a target in its figures.
const JOBS_MAX: usize = 64;

fn request_index(kind: RequestKind) -> usize {
    match kind {
        RequestKind::Batch => 0,
        RequestKind::Commit => 1,
        RequestKind::Prepare => 2,
        RequestKind::Lock => 3,
        RequestKind::Orders => 4,
        RequestKind::Other => 5,
        RequestKind::Member => 6,
        RequestKind::Cell => 7,
    }
}

/// Requests that have arrived at a target, by kind.
#[derive(Default)]
pub(crate) struct RequestCounts([Cell<u64>; REQUEST_KINDS.len()]);

impl RequestCounts {
    pub fn count(&self, kind: RequestKind) {
        let count = &self.0[request_index(kind)];
        count.set(count.get() + 1);
    }

    fn get(&self) -> [u64; REQUEST_KINDS.len()] {
        self.0.each_ref().map(Cell::get)
    }
}

/// Operations of one kind since the engine's start.
#[derive(Clone, Default)]
pub(crate) struct OpFigures {
    /// From arrival until the answer has left, microseconds; of those that failed, too.
    pub latency_us: Histogram,
    /// Answered with an error, or not at all.
    pub failed: u64,
    /// Bulk bytes that came with them.
    pub in_bytes: u64,
    /// Bulk bytes of their answers.
    pub out_bytes: u64,
}

/// A batch on its way, for its figures.
#[derive(Clone, Copy)]
pub(crate) struct Begun {
    kind: OpKind,
    at: Duration,
    in_bytes: u64,
}

impl Begun {
    /// A batch that has arrived at `at` with so many bulk bytes. Its kind is that of its first op.
    pub fn new(kind: OpKind, at: Duration, in_bytes: u64) -> Begun {
        Begun { kind, at, in_bytes }
    }

    /// Bulk bytes that came with it.
    pub fn in_bytes(self) -> u64 {
        self.in_bytes
    }
}

/// Operations of a pool at a target, by kind.
#[derive(Default)]
pub(crate) struct OpCounts(RefCell<[OpFigures; OpKind::ALL.len()]>);

impl OpCounts {
    /// Counts a batch that is over; `out_bytes`: of an answer that is no error. Returns how long it took.
    pub fn count(&self, begun: Begun, now: Duration, out_bytes: Option<u64>) -> Duration {
        let mut all = self.0.borrow_mut();
        let figures = &mut all[begun.kind as usize];
        let time = now.saturating_sub(begun.at);
        figures.latency_us.record(time.as_micros() as u64);
        figures.in_bytes += begun.in_bytes;
        match out_bytes {
            Some(bytes) => figures.out_bytes += bytes,
            None => figures.failed += 1,
        }
        time
    }
}

/// All that a target tells of itself.
pub(crate) struct TargetFigures {
    pub requests: [u64; REQUEST_KINDS.len()],
    /// Requests that run beside their connections now.
    pub in_progress: u64,
    /// Clients and other targets that are connected.
    pub clients: u64,
    /// Empty when a device did not say.
    pub devices: Vec<DeviceStat>,
    pub pools: Vec<PoolFigures>,
    /// Pools whose part here cannot be served.
    pub unserved: Vec<PoolId>,
    /// What jobs have done, those with most operations first.
    pub jobs: Vec<JobFigures>,
}

/// What a target tells of a pool.
pub(crate) struct PoolFigures {
    pub pool: PoolId,
    pub space: PoolShardStat,
    pub index: IndexStat,
    pub cache: CacheStat,
    pub log: Option<LogStat>,
    pub aggregation: AggregationStat,
    pub admission: AdmissionStat,
    /// What it gets from others, and what it got; zeros when nothing.
    pub healing: CatchUpStat,
    pub healed: CatchUpStat,
    /// Groups that it leads and that lack members.
    pub groups: GroupStat,
    /// Groups that it leads it may show without asking others.
    pub is_lead_granted: bool,
    /// Questions to those who follow, because it was not.
    pub words_asked: u64,
    /// Requests that asked it as a member: answered, refused for what they asked for, refused for another reason.
    pub member_reads: [u64; 3],
    /// Without places.
    pub scrub: ScrubStat,
    /// In the order of [`OpKind::ALL`].
    pub ops: Vec<OpFigures>,
}

impl PoolFigures {
    fn of(pool: PoolId, target: &Rc<Target>, ctx: &Rc<TargetPool>) -> PoolFigures {
        PoolFigures {
            pool,
            space: ctx.shard.stat(),
            index: ctx.shard.index_stat(),
            cache: ctx.shard.cache_stat(),
            log: ctx.shard.log_stat(),
            aggregation: ctx.shard.aggregation_stat(),
            admission: ctx.admission.stat(),
            healing: ctx.joining.stat(target.env.now()).unwrap_or_default(),
            healed: ctx.joining.healed(),
            groups: target.groups_lacking(ctx),
            is_lead_granted: target.is_lead_granted(ctx),
            words_asked: ctx.lead.word_count(),
            member_reads: ctx.member_reads.counts(),
            scrub: ctx.scrub_figures(),
            ops: ctx.ops.0.borrow().to_vec(),
        }
    }
}

impl Target {
    /// For metrics.
    pub(crate) async fn figures(self: &Rc<Self>) -> TargetFigures {
        let devices = self.store.device_stats().await.unwrap_or_else(|error| {
            tracing::warn!("target {}: room on its devices: {error}", self.id);
            Vec::new()
        });
        let pools = self.pools.all();
        let pools = pools.iter().map(|(pool, ctx)| PoolFigures::of(*pool, self, ctx)).collect();
        let mut jobs = self.told_jobs(false).jobs;
        jobs.sort_unstable_by(|a, b| (b.op_count, &a.job).cmp(&(a.op_count, &b.job)));
        jobs.truncate(JOBS_MAX);
        TargetFigures {
            jobs,
            requests: self.requests.get(),
            in_progress: self.in_progress_count() as u64,
            clients: self.seats.connected_count() as u64,
            devices,
            pools,
            unserved: self.pools.refused(),
        }
    }
}
