//! The order of a lane's waiting requests: by priority, then jobs by weight, then by arrival.
//!
//! Each job has a *start tag*, its virtual time in the lane: it grows by bytes / weight with every
//! request of the job that goes. The job with the smallest tag is next. The lane's virtual time is
//! the largest tag that went; a job that begins to wait gets at least this, so silence earns
//! nothing. This is start-time fair queueing with several requests in service, SFQ(D), from
//! "Interposed proportional sharing for a storage service utility" (Jin, Chase, Kaur, 2004). Tags
//! belong to jobs and not to requests, unlike there: what is cancelled then costs nothing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

/// What a request costs beside its bytes, bytes: one without any is not free.
const REQUEST_BYTES: u64 = 64 << 10;
/// A request counts as no more than this, so that sums cannot overflow.
const BYTES_MAX: u64 = 1 << 50;
/// With this many jobs, those whose tag is of no more use are forgotten.
const JOBS_SWEEP: usize = 64;

/// Virtual cost of a request.
pub(super) fn cost(bytes: u64, weight: u16) -> u128 {
    // Scaled so that the largest weight still makes a difference of a byte.
    u128::from(bytes.min(BYTES_MAX) + REQUEST_BYTES) * u128::from(u16::MAX)
        / u128::from(weight.max(1))
}

#[derive(Clone, Debug, Default)]
struct Line {
    start: u128,
    /// Arrival and cost.
    waiting: BTreeMap<u64, u128>,
}

impl Line {
    fn head(&self, job: usize) -> Option<(u128, u64, usize)> {
        self.waiting.keys().next().map(|arrival| (self.start, *arrival, job))
    }
}

#[derive(Clone, Debug, Default)]
struct Level {
    /// Virtual time.
    now: u128,
    lines: HashMap<usize, Line>,
    /// Start tag, oldest request and number of each job that waits.
    heads: BTreeSet<(u128, u64, usize)>,
}

/// The waiting requests of a lane in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    levels: BTreeMap<Reverse<u8>, Level>,
    count: usize,
}

impl Order {
    /// Number of waiting requests.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Between two busy periods nobody owes anything. Nobody may be waiting.
    pub fn forget(&mut self) {
        debug_assert_eq!(self.count, 0);
        self.levels.clear();
    }

    /// A request begins to wait; its number is larger than all before.
    pub fn insert(&mut self, arrival: u64, job: usize, priority: u8, cost: u128) {
        let level = self.levels.entry(Reverse(priority)).or_default();
        if level.lines.len() >= JOBS_SWEEP {
            let now = level.now;
            level.lines.retain(|_, line| line.start > now || !line.waiting.is_empty());
        }
        let line = level.lines.entry(job).or_default();
        if line.waiting.is_empty() {
            line.start = line.start.max(level.now);
        }
        line.waiting.insert(arrival, cost);
        if line.waiting.len() == 1 {
            level.heads.insert((line.start, arrival, job));
        }
        self.count += 1;
    }

    /// A request waits no more; `goes` when it was let in.
    pub fn remove(&mut self, arrival: u64, job: usize, priority: u8, goes: bool) {
        let Some(level) = self.levels.get_mut(&Reverse(priority)) else { return };
        let Some(line) = level.lines.get_mut(&job) else { return };
        if let Some(head) = line.head(job) {
            level.heads.remove(&head);
        }
        if let Some(cost) = line.waiting.remove(&arrival) {
            self.count -= 1;
            if goes {
                level.now = level.now.max(line.start);
                line.start += cost;
            }
        }
        level.heads.extend(line.head(job));
    }

    pub fn contains(&self, arrival: u64, job: usize, priority: u8) -> bool {
        let line = self.levels.get(&Reverse(priority)).and_then(|level| level.lines.get(&job));
        line.is_some_and(|line| line.waiting.contains_key(&arrival))
    }

    /// The request that is next.
    pub fn first(&self) -> Option<u64> {
        let mut heads = self.levels.values().filter_map(|level| level.heads.first());
        heads.next().map(|(_, arrival, _)| *arrival)
    }

    /// All waiting requests in the order in which they would go.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.levels.values().flat_map(|level| {
            let mut next: BinaryHeap<_> = level.heads.iter().copied().map(Reverse).collect();
            std::iter::from_fn(move || {
                let Reverse((start, arrival, job)) = next.pop()?;
                let line = &level.lines[&job];
                let start = start + line.waiting[&arrival];
                if let Some((after, _)) = line.waiting.range(arrival + 1..).next() {
                    next.push(Reverse((start, *after, job)));
                }
                Some(arrival)
            })
        })
    }

    /// What decides the future, without absolute numbers: for comparing states in tests.
    #[cfg(test)]
    pub fn signature(&self, number_of: &dyn Fn(u64) -> usize) -> String {
        let level = |(priority, level): (&Reverse<u8>, &Level)| {
            let mut lines: Vec<_> = level
                .lines
                .iter()
                .filter(|(_, line)| line.start > level.now || !line.waiting.is_empty())
                .map(|(job, line)| {
                    let waiting: Vec<_> = line.waiting.keys().map(|one| number_of(*one)).collect();
                    (*job, line.start as i128 - level.now as i128, waiting)
                })
                .collect();
            lines.sort();
            let heads: Vec<_> = level.heads.iter().map(|(_, _, job)| *job).collect();
            format!("{} {lines:?} {heads:?}", priority.0)
        };
        self.levels.iter().map(level).collect::<Vec<_>>().join("; ")
    }
}
