//! Who does what at a target: figures of jobs and of clients, and how long they waited.
//!
//! Each session holds the counts of its job, so that counting an answered request is a few additions to numbers of the target's own
//! thread: nothing is searched for, locked or allocated. They are put together when somebody asks.

use crate::session::Session;
use crate::target::Target;
use env::Env;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use types::Histogram;
use types::histogram::HISTOGRAM_BUCKETS_MAX;
use types::map::HashMap;
use wire::job::{CLIENTS_TOLD_MAX, ClientFigures, JobFigures, OTHER_JOBS, TargetJobs};

/// Jobs with counts of their own. Beyond that the one that was seen last the longest time ago, and is not connected, joins the others.
const JOB_COUNT_MAX: usize = 1024;

/// A request that has been answered.
#[derive(Clone, Copy)]
pub(crate) struct Answered {
    /// When, by the target's clock.
    pub at: Duration,
    /// Since it arrived.
    pub time: Duration,
    /// Of that, because of others: see [`wire::job`].
    pub waited: Duration,
    pub in_bytes: u64,
    /// Of an answer that is no error.
    pub out_bytes: Option<u64>,
}

#[derive(Clone, Default)]
struct Totals {
    op_count: u64,
    failed_count: u64,
    in_bytes: u64,
    out_bytes: u64,
    time_us: u64,
    waits_us: Histogram,
    /// When the last was answered, by the target's clock.
    seen: Option<Duration>,
}

impl Totals {
    fn count(&mut self, done: &Answered) {
        self.op_count += 1;
        self.in_bytes += done.in_bytes;
        match done.out_bytes {
            Some(bytes) => self.out_bytes += bytes,
            None => self.failed_count += 1,
        }
        self.time_us += done.time.as_micros() as u64;
        if done.waited > Duration::ZERO {
            self.waits_us.record(done.waited.as_micros() as u64);
        }
        self.seen = Some(done.at);
    }

    fn add(&mut self, other: &Totals) {
        self.op_count += other.op_count;
        self.failed_count += other.failed_count;
        self.in_bytes += other.in_bytes;
        self.out_bytes += other.out_bytes;
        self.time_us += other.time_us;
        self.waits_us.add(&other.waits_us);
        self.seen = self.seen.max(other.seen);
    }
}

/// Counts of one job.
pub(crate) struct JobCounts(RefCell<Totals>);

impl Default for JobCounts {
    fn default() -> JobCounts {
        // Room for all there may ever be: counting allocates nothing.
        let buckets = Vec::with_capacity(HISTOGRAM_BUCKETS_MAX);
        let waits_us = Histogram { buckets, ..Histogram::default() };
        JobCounts(RefCell::new(Totals { waits_us, ..Totals::default() }))
    }
}

/// Counts of one client since it connected.
#[derive(Default)]
pub(crate) struct ClientCounts {
    op_count: Cell<u64>,
    in_bytes: Cell<u64>,
    out_bytes: Cell<u64>,
    wait_us: Cell<u64>,
    seen: Cell<Duration>,
}

impl ClientCounts {
    fn count(&self, done: &Answered) {
        let add = |to: &Cell<u64>, more: u64| to.set(to.get() + more);
        add(&self.op_count, 1);
        add(&self.in_bytes, done.in_bytes);
        add(&self.out_bytes, done.out_bytes.unwrap_or(0));
        add(&self.wait_us, done.waited.as_micros() as u64);
        self.seen.set(done.at);
    }
}

/// Counts of all jobs of a target.
#[derive(Default)]
pub(crate) struct Jobs {
    by_name: RefCell<HashMap<Rc<str>, Rc<JobCounts>>>,
    others: Rc<JobCounts>,
}

impl Jobs {
    /// The counts of a job, for a session of it to keep.
    pub fn of(&self, name: &Rc<str>) -> Rc<JobCounts> {
        let mut by_name = self.by_name.borrow_mut();
        if let Some(known) = by_name.get(name) {
            return known.clone();
        }
        if by_name.len() >= JOB_COUNT_MAX {
            // Only the table has it: nobody of it is connected.
            let idle = by_name.iter().filter(|(_, counts)| Rc::strong_count(counts) == 1);
            let oldest = idle.min_by_key(|(_, counts)| counts.0.borrow().seen);
            let Some(oldest) = oldest.map(|(name, _)| name.clone()) else {
                return self.others.clone();
            };
            if let Some(gone) = by_name.remove(&oldest) {
                self.others.0.borrow_mut().add(&gone.0.borrow());
            }
        }
        by_name.entry(name.clone()).or_default().clone()
    }

    /// What each did, by name; those that did nothing are left out.
    fn told(&self, wall_ns_at: impl Fn(Duration) -> u64) -> Vec<JobFigures> {
        let by_name = self.by_name.borrow();
        let named = by_name.iter().map(|(name, counts)| (&**name, counts));
        let all = named.chain([(OTHER_JOBS, &self.others)]);
        let mut told: Vec<JobFigures> = all
            .filter_map(|(name, counts)| {
                let totals = counts.0.borrow().clone();
                Some(JobFigures {
                    job: name.to_string(),
                    client_count: 0,
                    op_count: totals.op_count,
                    failed_count: totals.failed_count,
                    in_bytes: totals.in_bytes,
                    out_bytes: totals.out_bytes,
                    time_us: totals.time_us,
                    waits_us: totals.waits_us,
                    seen_ns: wall_ns_at(totals.seen?),
                })
            })
            .collect();
        told.sort_unstable_by(|a, b| a.job.cmp(&b.job));
        told
    }
}

impl Session {
    /// Counts a request of it that has been answered.
    pub fn count(&self, done: &Answered) {
        self.job_counts.0.borrow_mut().count(done);
        self.counts.count(done);
    }

    fn figures(&self, wall_ns_at: impl Fn(Duration) -> u64) -> ClientFigures {
        ClientFigures {
            client: self.client,
            job: self.job.to_string(),
            host: self.host.clone(),
            pid: self.pid,
            op_count: self.counts.op_count.get(),
            in_bytes: self.counts.in_bytes.get(),
            out_bytes: self.counts.out_bytes.get(),
            wait_us: self.counts.wait_us.get(),
            seen_ns: wall_ns_at(self.counts.seen.get()),
        }
    }
}

impl Target {
    /// Who does what here.
    pub(crate) fn told_jobs(&self, with_clients: bool) -> TargetJobs {
        let (now, wall_ns) = (self.env.now(), self.env.wall_ns());
        let wall_ns_at =
            |at: Duration| wall_ns.saturating_sub(now.saturating_sub(at).as_nanos() as u64);
        let mut jobs = self.jobs.told(wall_ns_at);
        let mut clients = Vec::new();
        for session in self.seats.connected() {
            if session.counts.op_count.get() == 0 {
                continue;
            }
            // One that has no counts of its own by now is among the others.
            let named = jobs.binary_search_by(|job| job.job.as_str().cmp(&session.job));
            let others = || jobs.binary_search_by(|job| job.job.as_str().cmp(OTHER_JOBS));
            if let Ok(at) = named.or_else(|_| others()) {
                jobs[at].client_count += 1;
            }
            for other in session.other_jobs() {
                let named = jobs.binary_search_by(|job| (*job.job).cmp(&*other));
                if let Ok(at) = named {
                    jobs[at].client_count += 1;
                }
            }
            if with_clients {
                clients.push(session.figures(wall_ns_at));
            }
        }
        clients.sort_unstable_by(|a, b| (b.op_count, a.client).cmp(&(a.op_count, b.client)));
        let clients_left_out = clients.len().saturating_sub(CLIENTS_TOLD_MAX) as u64;
        clients.truncate(CLIENTS_TOLD_MAX);
        TargetJobs { jobs, clients, clients_left_out }
    }
}

/// How long a request has waited for others.
#[derive(Clone, Default)]
pub(crate) struct Waited(Cell<Duration>);

impl Waited {
    /// In all, so far.
    pub fn time(&self) -> Duration {
        self.0.get()
    }
}

/// Runs what may have to wait for others, and adds the time it waited. What goes on at once costs no look at the clock.
pub(crate) async fn wait<W: Future>(env: &Env, waited: &Waited, work: W) -> W::Output {
    let mut work = pin!(work);
    let mut since = None;
    let output = std::future::poll_fn(|cx| {
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() && since.is_none() {
            since = Some(env.now());
        }
        polled
    })
    .await;
    if let Some(since) = since {
        waited.0.set(waited.0.get() + env.now().saturating_sub(since));
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(at_s: u64, waited_us: u64) -> Answered {
        Answered {
            at: Duration::from_secs(at_s),
            time: Duration::from_micros(waited_us + 5),
            waited: Duration::from_micros(waited_us),
            in_bytes: 3,
            out_bytes: (waited_us < 1000).then_some(2),
        }
    }

    #[test]
    fn what_is_counted_is_told_by_job() {
        let jobs = Jobs::default();
        let (a, b) = (jobs.of(&"a".into()), jobs.of(&"b".into()));
        assert!(Rc::ptr_eq(&a, &jobs.of(&"a".into())));
        a.0.borrow_mut().count(&answered(1, 0));
        a.0.borrow_mut().count(&answered(2, 400));
        b.0.borrow_mut().count(&answered(3, 1000));
        let _idle = jobs.of(&"c".into());
        let told = jobs.told(|at| at.as_secs());
        let names: Vec<&str> = told.iter().map(|job| job.job.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let (a, b) = (&told[0], &told[1]);
        assert_eq!((a.op_count, a.failed_count, a.in_bytes, a.out_bytes), (2, 0, 6, 4));
        assert_eq!((a.time_us, a.waits_us.count, a.wait_us_mean(), a.seen_ns), (410, 1, 200, 2));
        assert_eq!((b.op_count, b.failed_count, b.out_bytes, b.waits_us.max), (1, 1, 0, 1000));
    }

    /// A thousand short jobs a day: what is kept of them is bounded, and nothing that was counted is lost.
    #[test]
    fn of_too_many_jobs_the_one_not_seen_longest_joins_the_others() {
        let jobs = Jobs::default();
        let connected = jobs.of(&"0".into());
        connected.0.borrow_mut().count(&answered(0, 1));
        for at in 1..JOB_COUNT_MAX as u64 + 10 {
            jobs.of(&at.to_string().into()).0.borrow_mut().count(&answered(at, 1));
        }
        let told = jobs.told(|at| at.as_secs());
        assert_eq!(told.len(), JOB_COUNT_MAX + 1);
        assert_eq!(told.iter().map(|job| job.op_count).sum::<u64>(), JOB_COUNT_MAX as u64 + 10);
        let of = |name: &str| told.iter().find(|job| job.job == name);
        assert_eq!(of(OTHER_JOBS).map(|job| (job.op_count, job.seen_ns)), Some((10, 10)));
        assert!(of("0").is_some(), "it is connected");
        assert!(of("10").is_none() && of("11").is_some());
        // All are connected: who comes is counted with the others.
        let jobs = Jobs::default();
        let held: Vec<_> = (0..JOB_COUNT_MAX).map(|at| jobs.of(&at.to_string().into())).collect();
        assert!(Rc::ptr_eq(&jobs.of(&"late".into()), &jobs.others));
        drop(held);
        assert!(!Rc::ptr_eq(&jobs.of(&"later".into()), &jobs.others));
    }

    #[test]
    fn only_what_cannot_go_on_waits() {
        let env = Env::real().unwrap();
        let waited = Waited::default();
        env.block_on(async {
            assert_eq!(wait(&env, &waited, async { 7 }).await, 7);
            assert_eq!(waited.time(), Duration::ZERO);
            wait(&env, &waited, env.sleep(Duration::from_millis(2))).await;
        });
        assert!(waited.time() >= Duration::from_millis(2));
    }
}
