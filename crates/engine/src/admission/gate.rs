//! One direction of admission: who is at work, who waits, what has happened.
//!
//! Invariants: at most the limit are at work, except transfers that were so when the limit fell
//! or was set, and forced ones. While fewer are at work, nobody waits. A place in the queue ends
//! with the future that holds it, a slot when it is dropped.

use super::finder::Finder;
use super::queue::{FairQueue, Ticket};
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

/// Lets transfers of one direction in.
pub(crate) struct Gate {
    env: Env,
    on: Cell<bool>,
    staged_bytes: Cell<u64>,
    state: RefCell<State>,
}

struct State {
    limit: Limit,
    finder: Finder,
    at_work: u32,
    queue: FairQueue<Waiter>,
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

impl State {
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

    /// Counts one that goes to work.
    fn note_granted(&mut self, job: &Rc<str>, bytes: u64, waited: Option<Duration>) {
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
            state: RefCell::new(State {
                limit: Limit::Off,
                finder: Finder::new(),
                at_work: 0,
                queue: FairQueue::new(Weights::default()),
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
            let mut state = self.state.borrow_mut();
            if state.closed {
                return;
            }
            if limit == Limit::Auto && state.limit != Limit::Auto {
                state.finder = Finder::new();
            }
            state.limit = limit;
            state.queue.set_weights(weights.clone());
            self.on.set(limit != Limit::Off);
        }
        self.let_in();
    }

    /// A slot, if one is free and nobody waits.
    pub fn try_enter(self: &Rc<Self>, job: &Rc<str>, bytes: u64) -> Option<Slot> {
        let mut state = self.state.borrow_mut();
        if !state.queue.is_empty() || state.at_work >= state.limit_now() {
            return None;
        }
        state.queue.pass(job, bytes);
        state.note_granted(job, bytes, None);
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
        let (place, admitted) =
            self.line_up(|queue, waiter| queue.push(job, bytes, waiter), job, bytes)?;
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
            let mut state = self.state.borrow_mut();
            if state.at_work < state.limit_now() {
                state.note_granted(&nobody, bytes, None);
                return Slot::new(self, bytes);
            }
        }
        let lined_up =
            self.line_up(|queue, waiter| queue.push_first(bytes, waiter), &nobody, bytes);
        if let Ok((_place, admitted)) = lined_up
            && let Some(Ok(Ok(slot))) = self.env.timeout(patience, admitted).await
        {
            return slot;
        }
        let mut state = self.state.borrow_mut();
        state.total.forced += 1;
        state.note_granted(&nobody, bytes, None);
        Slot::new(self, bytes)
    }

    fn line_up(
        self: &Rc<Self>,
        push: impl FnOnce(&mut FairQueue<Waiter>, Waiter) -> Ticket,
        job: &Rc<str>,
        bytes: u64,
    ) -> Result<(Place<'_>, oneshot::Receiver<Result<Slot>>)> {
        let mut state = self.state.borrow_mut();
        if state.closed {
            return Err(closed());
        }
        let (admit, admitted) = oneshot::channel();
        let waiter = Waiter { admit, since: self.env.now(), job: job.clone(), bytes };
        let ticket = push(&mut state.queue, waiter);
        Ok((Place { gate: self, ticket }, admitted))
    }

    /// Lets in as many as may be.
    fn let_in(self: &Rc<Self>) {
        loop {
            let waiter = {
                let mut state = self.state.borrow_mut();
                if state.at_work >= state.limit_now() {
                    return;
                }
                let Some(waiter) = state.queue.pop() else { return };
                let waited = self.env.now().saturating_sub(waiter.since);
                state.note_granted(&waiter.job, waiter.bytes, Some(waited));
                waiter
            };
            // One that has gone just now gives its slot back by dropping it.
            let _ = waiter.admit.send(Ok(Slot::new(self, waiter.bytes)));
        }
    }

    fn leave(self: &Rc<Self>, bytes: u64, moved: bool) {
        {
            let mut state = self.state.borrow_mut();
            state.at_work -= 1;
            if moved && state.limit == Limit::Auto {
                let now_us = self.env.now().as_micros() as u64;
                let saturated = !state.queue.is_empty();
                state.finder.completed(now_us, bytes, saturated);
            }
        }
        self.let_in();
    }

    /// Turns away who waits and holds nobody from now on.
    pub fn close(&self) {
        let mut waiting = Vec::new();
        {
            let mut state = self.state.borrow_mut();
            state.closed = true;
            state.limit = Limit::Off;
            self.on.set(false);
            waiting.extend(std::iter::from_fn(|| state.queue.pop()));
            state.total.left += waiting.len() as u64;
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
        let state = self.state.borrow();
        let free = state.limit_now().saturating_sub(state.at_work);
        Some(if state.queue.is_empty() { free } else { 0 })
    }

    /// What has happened since the start.
    pub fn stat(&self) -> GateStat {
        let state = self.state.borrow();
        let mut jobs: HashMap<&str, JobStat> = HashMap::new();
        for (name, stat) in &state.jobs {
            jobs.insert(name, JobStat { job: name.to_string(), ..stat.clone() });
        }
        for (name, count) in state.queue.waiting_by_job() {
            let name: &str = if jobs.contains_key(&**name) { name } else { OTHER_JOBS };
            let stat = jobs.entry(name).or_default();
            stat.job = name.to_string();
            stat.waiting += count as u64;
        }
        let mut jobs: Vec<JobStat> = jobs.into_values().collect();
        jobs.sort_unstable_by(|a, b| (b.bytes, &a.job).cmp(&(a.bytes, &b.job)));
        jobs.truncate(JOBS_REPORTED_MAX);
        let limit_now = if state.limit == Limit::Off { 0 } else { state.limit_now() };
        GateStat {
            limit: state.limit,
            limit_now,
            at_work: state.at_work,
            waiting: state.queue.len() as u64,
            jobs,
            ..state.total.clone()
        }
    }
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
            let mut state = self.gate.state.borrow_mut();
            let waiter = state.queue.remove(self.ticket);
            state.total.left += u64::from(waiter.is_some());
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
        self.gate.state.borrow_mut().total.lapsed += 1;
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
