//! The order of waiting requests: by priority, then jobs by weight, then by arrival.
//!
//! Each job has a *start tag*, its virtual time: it grows by [`cost`], bytes / weight, with every
//! request of the job that goes. The job with the smallest tag is next. The virtual time of a
//! priority is the largest tag that went; a job that begins to wait gets at least this, so silence
//! earns nothing. This is start-time fair queueing (Goyal, Vin, Cheng, 1996) with several requests
//! in service, SFQ(D), from "Interposed proportional sharing for a storage service utility" (Jin,
//! Chase, Kaur, 2004). Tags belong to jobs and not to requests, unlike there: what is withdrawn
//! then costs nothing.
//!
//! Invariants: a request is in the queue exactly once, from [`FairQueue::push`] until it is taken or
//! withdrawn. Of two jobs of one priority that both always wait and whose requests are taken in
//! order, with weights v and w, the bytes given differ by at most one request's bytes each, divided
//! by the weights.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::fmt::Debug;
use std::hash::Hash;

/// A request counts as no more than this, so that sums cannot overflow.
const BYTES_MAX: u64 = 1 << 50;
/// With this many jobs, those whose tag is of no more use are forgotten.
const JOBS_SWEEP: usize = 64;
/// Jobs remembered though they have nothing in the queue. More are all forgotten, which forgives
/// them what they had too much.
const IDLE_JOBS_MAX: usize = 1024;

/// Names a request in a queue; a request that comes later has a larger number.
pub type Ticket = u64;

/// Virtual cost of a request of so many bytes of a job of this weight.
pub fn cost(bytes: u64, weight: u16) -> u128 {
    // Scaled so that the largest weight still makes a difference of a byte.
    u128::from(bytes.min(BYTES_MAX)) * u128::from(u16::MAX) / u128::from(weight.max(1))
}

#[derive(Clone, Debug)]
struct Request<T> {
    cost: u128,
    item: T,
}

/// The requests of a job.
#[derive(Clone, Debug)]
struct Line<T> {
    start: u128,
    waiting: BTreeMap<Ticket, Request<T>>,
}

impl<T> Line<T> {
    fn head<J: Clone>(&self, job: &J) -> Option<(u128, Ticket, J)> {
        self.waiting.keys().next().map(|ticket| (self.start, *ticket, job.clone()))
    }
}

/// The jobs of a priority.
#[derive(Clone, Debug)]
struct Level<J, T> {
    /// Virtual time.
    now: u128,
    lines: HashMap<J, Line<T>>,
    /// Start tag, oldest request and name of each job that waits.
    heads: BTreeSet<(u128, Ticket, J)>,
    /// Number of jobs at which some are forgotten.
    sweep_at: usize,
}

impl<J, T> Default for Level<J, T> {
    fn default() -> Level<J, T> {
        Level { now: 0, lines: HashMap::new(), heads: BTreeSet::new(), sweep_at: JOBS_SWEEP }
    }
}

impl<J: Clone + Ord + Hash, T> Level<J, T> {
    /// The line of a job that has a request now.
    fn line(&mut self, job: &J) -> &mut Line<T> {
        if self.lines.len() >= self.sweep_at {
            self.sweep();
        }
        let new = || Line { start: 0, waiting: BTreeMap::new() };
        let line = self.lines.entry(job.clone()).or_insert_with(new);
        if line.waiting.is_empty() {
            line.start = line.start.max(self.now);
        }
        line
    }

    fn sweep(&mut self) {
        let now = self.now;
        self.lines.retain(|_, line| line.start > now || !line.waiting.is_empty());
        if self.lines.len() - self.heads.len() > IDLE_JOBS_MAX {
            self.lines.retain(|_, line| !line.waiting.is_empty());
        }
        // So that sweeping costs little for each job that comes.
        self.sweep_at = JOBS_SWEEP.max(2 * self.lines.len());
    }
}

/// Waiting requests of many jobs in the order in which they should go. `J` names a job, `T` is kept
/// with a request.
#[derive(Clone, Debug)]
pub struct FairQueue<J, T> {
    levels: BTreeMap<Reverse<u8>, Level<J, T>>,
    /// Priority and job of each waiting request.
    places: HashMap<Ticket, (u8, J)>,
}

impl<J, T> Default for FairQueue<J, T> {
    fn default() -> FairQueue<J, T> {
        FairQueue { levels: BTreeMap::new(), places: HashMap::new() }
    }
}

impl<J: Clone + Ord + Hash, T> FairQueue<J, T> {
    /// Number of waiting requests.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Between two busy periods nobody owes anything. Nobody may be waiting.
    pub fn forget(&mut self) {
        debug_assert!(self.is_empty(), "who waits is not forgotten");
        self.levels.clear();
    }

    /// A request of a [`cost`] begins to wait; its ticket is larger than all before. Higher
    /// priorities go first.
    pub fn push(&mut self, ticket: Ticket, job: J, priority: u8, cost: u128, item: T) {
        let level = self.levels.entry(Reverse(priority)).or_default();
        let line = level.line(&job);
        line.waiting.insert(ticket, Request { cost, item });
        if line.waiting.len() == 1 {
            let head = (line.start, ticket, job.clone());
            level.heads.insert(head);
        }
        self.places.insert(ticket, (priority, job));
    }

    /// Charges a request that goes without waiting, as if it had been pushed and popped. Only while
    /// nobody waits.
    pub fn pass(&mut self, job: J, priority: u8, cost: u128) {
        debug_assert!(self.is_empty(), "nobody passes those who wait");
        let level = self.levels.entry(Reverse(priority)).or_default();
        let line = level.line(&job);
        let start = line.start;
        line.start += cost;
        level.now = level.now.max(start);
    }

    /// Takes out the request that is next.
    pub fn pop(&mut self) -> Option<T> {
        self.take(self.first()?)
    }

    /// Takes out a request that goes now, be it its turn or not; its job is charged.
    pub fn take(&mut self, ticket: Ticket) -> Option<T> {
        self.remove(ticket, true)
    }

    /// Takes out a request that will not go; nobody is charged.
    pub fn withdraw(&mut self, ticket: Ticket) -> Option<T> {
        self.remove(ticket, false)
    }

    fn remove(&mut self, ticket: Ticket, goes: bool) -> Option<T> {
        let (priority, job) = self.places.remove(&ticket)?;
        let level = self.levels.get_mut(&Reverse(priority))?;
        let line = level.lines.get_mut(&job)?;
        if let Some(head) = line.head(&job) {
            level.heads.remove(&head);
        }
        let request = line.waiting.remove(&ticket);
        if let Some(request) = request.as_ref().filter(|_| goes) {
            level.now = level.now.max(line.start);
            line.start += request.cost;
        }
        level.heads.extend(line.head(&job));
        request.map(|request| request.item)
    }

    /// Costs of waiting requests from now on, by job and item.
    pub fn set_costs(&mut self, cost_of: impl Fn(&J, &T) -> u128) {
        for level in self.levels.values_mut() {
            for (job, line) in &mut level.lines {
                for request in line.waiting.values_mut() {
                    request.cost = cost_of(job, &request.item);
                }
            }
        }
    }

    /// True while a request waits.
    pub fn contains(&self, ticket: Ticket) -> bool {
        self.places.contains_key(&ticket)
    }

    /// The request that is next.
    pub fn first(&self) -> Option<Ticket> {
        let mut heads = self.levels.values().filter_map(|level| level.heads.first());
        heads.next().map(|(_, ticket, _)| *ticket)
    }

    /// All waiting requests in the order in which they would go.
    pub fn iter(&self) -> impl Iterator<Item = Ticket> + '_ {
        self.levels.values().flat_map(|level| {
            let heads = level.heads.iter().map(|(start, ticket, job)| (*start, *ticket, job));
            let mut next: BinaryHeap<_> = heads.map(Reverse).collect();
            std::iter::from_fn(move || {
                let Reverse((start, ticket, job)) = next.pop()?;
                let line = &level.lines[job];
                let start = start + line.waiting[&ticket].cost;
                if let Some((after, _)) = line.waiting.range(ticket + 1..).next() {
                    next.push(Reverse((start, *after, job)));
                }
                Some(ticket)
            })
        })
    }

    /// The jobs that wait at a priority, with the number of their requests.
    pub fn waiting_by_job(&self, priority: u8) -> impl Iterator<Item = (&J, usize)> {
        let lines = self.levels.get(&Reverse(priority)).into_iter().flat_map(|level| &level.lines);
        let lines = lines.filter(|(_, line)| !line.waiting.is_empty());
        lines.map(|(job, line)| (job, line.waiting.len()))
    }

    /// What decides the future, without absolute numbers: for comparing states. `number_of` names
    /// requests.
    pub fn signature(&self, number_of: &dyn Fn(Ticket) -> usize) -> String
    where
        J: Debug,
    {
        let level = |(priority, level): (&Reverse<u8>, &Level<J, T>)| {
            let mut lines: Vec<_> = level
                .lines
                .iter()
                .filter(|(_, line)| line.start > level.now || !line.waiting.is_empty())
                .map(|(job, line)| {
                    let waiting: Vec<_> = line.waiting.keys().map(|one| number_of(*one)).collect();
                    (job, line.start as i128 - level.now as i128, waiting)
                })
                .collect();
            lines.sort();
            let heads: Vec<_> = level.heads.iter().map(|(_, _, job)| job).collect();
            format!("{} {lines:?} {heads:?}", priority.0)
        };
        self.levels.iter().map(level).collect::<Vec<_>>().join("; ")
    }
}
