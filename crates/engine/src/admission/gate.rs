//! One direction of admission: who is at work, who waits, what has happened.
//!
//! Invariants: at most the limit are at work, except transfers that were so when the limit fell
//! or was set, and forced ones. While fewer are at work, nobody waits. A place in the queue ends
//! with the future that holds it, a slot when it is dropped.

use admit::{FairQueue, LimitFinder, Ticket};
use env::Env;
use futures_channel::oneshot;
use futures_util::future::{Either, select};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use types::{Code, Error, Result};
use wire::admission::{BULK_BYTES_MIN, GateStat, JobStat, Limit, Weights};

/// Data taken from connections before its transfer has a slot, bytes at most: then the
/// connection that brings more waits.
const STAGED_BYTES_MAX: u64 = 64 << 20;
/// Jobs with totals of their own; later ones share one total.
const JOB_COUNT_MAX: usize = 1024;
const OTHER_JOBS: &str = "(others)";
/// Jobs in a report.
const JOBS_REPORTED_MAX: usize = 64;
/// Priority of transfers of jobs.
const JOBS: u8 = 0;
/// Priority of transfers that go before all jobs.
const FIRST: u8 = 1;
/// Largest limit that is tried.
const FOUND_LIMIT_MAX: u32 = 64;
/// Least time in which a limit is judged, microseconds.
const WINDOW_US_MIN: u64 = 10_000;

/// Lets transfers of one direction in.
pub(crate) struct Gate {
    env: Env,
    on: Cell<bool>,
    staged_bytes: Cell<u64>,
    traffic: RefCell<Traffic>,
}

struct Traffic {
    limit: Limit,
    finder: LimitFinder,
    at_work: u32,
    queue: FairQueue<Rc<str>, Waiter>,
    ticket_last: Ticket,
    weights: Weights,
    closed: bool,
    /// Totals; those that describe the present are made when asked for.
    total: GateStat,
    jobs: HashMap<Rc<str>, JobStat>,
}

struct Waiter {
    admit: oneshot::Sender<Result<Slot>>,
    since: Duration,
    job: Rc<str>,
    bytes: u64,
}

impl Traffic {
    fn limit_now(&self) -> u32 {
        match self.limit {
            Limit::Off => u32::MAX,
            Limit::Auto => self.finder.limit(),
            Limit::Fixed(number) => number.into(),
        }
    }

    fn job(&mut self, name: &Rc<str>) -> &mut JobStat {
        let known = self.jobs.contains_key(name) || self.jobs.len() < JOB_COUNT_MAX;
        let name = if known { name.clone() } else { OTHER_JOBS.into() };
        self.jobs.entry(name).or_default()
    }

    fn cost(&self, job: &str, bytes: u64) -> u128 {
        admit::cost(bytes, self.weights.of(job))
    }

    /// Tells the finder how many have been at work until now; before every change of that.
    fn pass_time(&mut self, env: &Env) {
        if self.limit == Limit::Auto {
            self.finder.pass_time(now_us(env), self.at_work);
        }
    }

    /// Counts one that goes to work.
    fn note_granted(&mut self, env: &Env, job: &Rc<str>, bytes: u64, waited: Option<Duration>) {
        self.pass_time(env);
        self.at_work += 1;
        self.total.at_work_max = self.total.at_work_max.max(self.at_work);
        let wait_us = waited.map_or(0, |time| time.as_micros() as u64);
        self.total.granted += 1;
        self.total.held += u64::from(waited.is_some());
        self.total.bytes += bytes;
        self.total.wait_us += wait_us;
        self.total.wait_us_max = self.total.wait_us_max.max(wait_us);
        let job = self.job(job);
        job.granted += 1;
        job.bytes += bytes;
        job.wait_us += wait_us;
    }
}

impl Gate {
    /// Open to all.
    pub fn new(env: &Env) -> Rc<Gate> {
        Rc::new(Gate {
            env: env.clone(),
            on: Cell::new(false),
            staged_bytes: Cell::new(0),
            traffic: RefCell::new(Traffic {
                limit: Limit::Off,
                finder: new_finder(),
                at_work: 0,
                queue: FairQueue::default(),
                ticket_last: 0,
                weights: Weights::default(),
                closed: false,
                total: GateStat::default(),
                jobs: HashMap::new(),
            }),
        })
    }

    /// The gate, for a transfer that must pass it: it is on, and the transfer is a bulk one.
    pub fn for_bulk(self: &Rc<Self>, bytes: u64) -> Option<&Rc<Gate>> {
        (bytes >= BULK_BYTES_MIN as u64 && self.on.get()).then_some(self)
    }

    /// Takes a new limit and weights.
    pub fn set(self: &Rc<Self>, limit: Limit, weights: &Weights) {
        {
            let mut traffic = self.traffic.borrow_mut();
            if traffic.closed {
                return;
            }
            if limit == Limit::Auto && traffic.limit != Limit::Auto {
                traffic.finder = new_finder();
            }
            traffic.limit = limit;
            if traffic.weights != *weights {
                traffic.weights = weights.clone();
                traffic.queue.set_costs(|job, waiter| admit::cost(waiter.bytes, weights.of(job)));
            }
            self.on.set(limit != Limit::Off);
        }
        self.let_in();
    }

    /// A slot, if one is free and nobody waits.
    pub fn try_enter(self: &Rc<Self>, job: &Rc<str>, bytes: u64) -> Option<Slot> {
        let mut traffic = self.traffic.borrow_mut();
        if !traffic.queue.is_empty() || traffic.at_work >= traffic.limit_now() {
            return None;
        }
        let cost = traffic.cost(job, bytes);
        traffic.queue.pass(job.clone(), JOBS, cost);
        traffic.note_granted(&self.env, job, bytes, None);
        Some(Slot::new(self, bytes))
    }

    /// Waits for a slot: `TimedOut` after `patience`, `Canceled` when `abandoned` comes first,
    /// `Closed` when the gate closes.
    pub async fn enter(
        self: &Rc<Self>,
        job: &Rc<str>,
        bytes: u64,
        patience: Duration,
        abandoned: impl Future<Output = ()>,
    ) -> Result<Slot> {
        if let Some(slot) = self.try_enter(job, bytes) {
            return Ok(slot);
        }
        let (place, admitted) = self.line_up(job, JOBS, bytes)?;
        let abandoned = pin!(abandoned);
        let admitted = select(admitted, abandoned);
        let outcome = match self.env.timeout(patience, admitted).await {
            Some(Either::Left((outcome, _))) => outcome.unwrap_or_else(|_| Err(closed())),
            Some(Either::Right(_)) => {
                Err(Error::new(Code::Canceled, "the caller has gone or given up"))
            }
            None => Err(Error::new(
                Code::TimedOut,
                format!("a transfer of {bytes} bytes was not let in before its deadline"),
            )),
        };
        drop(place);
        outcome
    }

    /// Goes before all who wait, and after `patience` over the limit. Never fails.
    pub async fn enter_first(self: &Rc<Self>, bytes: u64, patience: Duration) -> Slot {
        let nobody: Rc<str> = "".into();
        {
            let mut traffic = self.traffic.borrow_mut();
            if traffic.at_work < traffic.limit_now() {
                traffic.note_granted(&self.env, &nobody, bytes, None);
                return Slot::new(self, bytes);
            }
        }
        if let Ok((_place, admitted)) = self.line_up(&nobody, FIRST, bytes)
            && let Some(Ok(Ok(slot))) = self.env.timeout(patience, admitted).await
        {
            return slot;
        }
        let mut traffic = self.traffic.borrow_mut();
        traffic.total.forced += 1;
        traffic.note_granted(&self.env, &nobody, bytes, None);
        Slot::new(self, bytes)
    }

    fn line_up(
        self: &Rc<Self>,
        job: &Rc<str>,
        priority: u8,
        bytes: u64,
    ) -> Result<(Place<'_>, oneshot::Receiver<Result<Slot>>)> {
        let mut traffic = self.traffic.borrow_mut();
        if traffic.closed {
            return Err(closed());
        }
        let (admit, admitted) = oneshot::channel();
        let waiter = Waiter { admit, since: self.env.now(), job: job.clone(), bytes };
        let cost = traffic.cost(job, bytes);
        traffic.ticket_last += 1;
        let ticket = traffic.ticket_last;
        traffic.queue.push(ticket, job.clone(), priority, cost, waiter);
        Ok((Place { gate: self, ticket }, admitted))
    }

    /// Lets in as many as may be.
    fn let_in(self: &Rc<Self>) {
        loop {
            let waiter = {
                let mut traffic = self.traffic.borrow_mut();
                if traffic.at_work >= traffic.limit_now() {
                    return;
                }
                let Some(waiter) = traffic.queue.pop() else { return };
                let waited = self.env.now().saturating_sub(waiter.since);
                traffic.note_granted(&self.env, &waiter.job, waiter.bytes, Some(waited));
                waiter
            };
            // One that has gone just now gives its slot back by dropping it.
            let _ = waiter.admit.send(Ok(Slot::new(self, waiter.bytes)));
        }
    }

    fn leave(self: &Rc<Self>, bytes: u64, moved: bool) {
        {
            let mut traffic = self.traffic.borrow_mut();
            traffic.pass_time(&self.env);
            if traffic.limit == Limit::Auto {
                let active = traffic.at_work;
                match moved {
                    true => traffic.finder.completed(now_us(&self.env), bytes, active),
                    false => traffic.finder.disturbed(),
                }
            }
            traffic.at_work -= 1;
        }
        self.let_in();
    }

    /// Turns away who waits and holds nobody from now on.
    pub fn close(&self) {
        let mut waiting = Vec::new();
        {
            let mut traffic = self.traffic.borrow_mut();
            traffic.closed = true;
            traffic.limit = Limit::Off;
            self.on.set(false);
            waiting.extend(std::iter::from_fn(|| traffic.queue.pop()));
            traffic.total.left += waiting.len() as u64;
        }
        for waiter in waiting {
            let _ = waiter.admit.send(Err(closed()));
        }
    }

    /// Room for data of a transfer that has no slot yet, if there is some.
    pub fn try_stage(self: &Rc<Self>, bytes: u64) -> Option<Staged> {
        let staged = self.staged_bytes.get() + bytes;
        // One alone always fits, or it never would.
        if staged > STAGED_BYTES_MAX && staged != bytes {
            return None;
        }
        self.staged_bytes.set(staged);
        Some(Staged { gate: self.clone(), bytes })
    }

    /// How many bulk writes a client may send without being asked for their data; `None` for any
    /// number. Advice, true at this moment.
    pub fn credit(&self) -> Option<u32> {
        if !self.on.get() {
            return None;
        }
        let traffic = self.traffic.borrow();
        let free = traffic.limit_now().saturating_sub(traffic.at_work);
        Some(if traffic.queue.is_empty() { free } else { 0 })
    }

    /// What has happened since the start.
    pub fn stat(&self) -> GateStat {
        let traffic = self.traffic.borrow();
        let mut jobs: HashMap<&str, JobStat> = HashMap::new();
        for (name, stat) in &traffic.jobs {
            jobs.insert(name, JobStat { job: name.to_string(), ..stat.clone() });
        }
        for (name, count) in traffic.queue.waiting_by_job(JOBS) {
            let name: &str = if jobs.contains_key(&**name) { name } else { OTHER_JOBS };
            let stat = jobs.entry(name).or_default();
            stat.job = name.to_string();
            stat.waiting += count as u64;
        }
        let mut jobs: Vec<JobStat> = jobs.into_values().collect();
        jobs.sort_unstable_by(|a, b| (b.bytes, &a.job).cmp(&(a.bytes, &b.job)));
        jobs.truncate(JOBS_REPORTED_MAX);
        let limit_now = if traffic.limit == Limit::Off { 0 } else { traffic.limit_now() };
        GateStat {
            limit: traffic.limit,
            limit_now,
            at_work: traffic.at_work,
            waiting: traffic.queue.len() as u64,
            jobs,
            ..traffic.total.clone()
        }
    }
}

fn new_finder() -> LimitFinder {
    LimitFinder::new(FOUND_LIMIT_MAX, WINDOW_US_MIN)
}

fn now_us(env: &Env) -> u64 {
    env.now().as_micros() as u64
}

fn closed() -> Error {
    Error::new(Code::Closed, "the engine is shutting down")
}

/// A place in the queue.
struct Place<'a> {
    gate: &'a Rc<Gate>,
    ticket: Ticket,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let waiter = {
            let mut traffic = self.gate.traffic.borrow_mut();
            let waiter = traffic.queue.withdraw(self.ticket);
            traffic.total.left += u64::from(waiter.is_some());
            waiter
        };
        drop(waiter);
    }
}

/// Leave for one transfer; given back when dropped.
pub(crate) struct Slot {
    gate: Rc<Gate>,
    bytes: u64,
    moved: bool,
}

impl Slot {
    fn new(gate: &Rc<Gate>, bytes: u64) -> Slot {
        Slot { gate: gate.clone(), bytes, moved: false }
    }

    /// The transfer is over and went well.
    pub fn finish(mut self) {
        self.moved = true;
    }

    /// The transfer takes too long; it goes on without the slot.
    pub fn lapse(self) {
        self.gate.traffic.borrow_mut().total.lapsed += 1;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.gate.leave(self.bytes, self.moved);
    }
}

/// Room for staged data; given back when dropped.
pub(crate) struct Staged {
    gate: Rc<Gate>,
    bytes: u64,
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.gate.staged_bytes.set(self.gate.staged_bytes.get() - self.bytes);
    }
}
