//! The coordinator's decisions: who may go when. A state machine without I/O, clock or threads:
//! [`Queue::step`] takes the time and an event and appends what is to be done.
//!
//! A *lane* is a target and a direction (write or read); it lets as many requests in as its limit
//! says. A request enters all its lanes at once or none, so nobody holds one target while waiting
//! for another, and there is no deadlock.
//!
//! Order in a lane: higher priority first; within a priority, jobs share by weight; within a job,
//! first come first served ([`admit::FairQueue`]). With one job and one priority that is the paper's FIFO.
//!
//! Two counters keep anybody from waiting for ever. Both count grants, not time: a bound in time would be
//! exceeded by everybody under overload, and order would end just when it matters.
//! - A request in several lanes may be passed over while some of them are full, but only
//!   [`Settings::passes_max`] times. Then it *reserves*: it goes first, and keeps one slot free in each of
//!   its lanes until all of them have one.
//! - A lane's oldest request may be overtaken by [`Settings::overtakes_max`] younger ones (of a higher
//!   priority, or of jobs with a larger share). Then it reserves, too.
//!
//! Invariants ([`Queue::check`]):
//! - a lane never holds more granted requests than its limit, except right after the limit fell;
//! - a granted request holds one slot in each of its lanes until it ends, whatever ends it;
//! - when `step` returns, no waiting request could be let in (among the first
//!   [`LOOKAHEAD`] of each lane).

mod lane;
mod stats;
#[cfg(test)]
mod tests;

pub use lane::{Limit, Limits};
pub use stats::{JobStats, LaneStats, QueueStats, TargetStats, Totals, WAIT_CLASSES_US};

use crate::message::IoKind;
use lane::{Lane, Waiter};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// Waiting requests of a lane that are looked at when a slot is free. Only requests in several
/// lanes make it look beyond the first.
pub const LOOKAHEAD: usize = 128;
/// Most requests of one client that have not ended.
pub const OUTSTANDING_MAX: usize = 256;
/// Targets remembered while nobody uses them; what `auto` learnt about others is forgotten.
const IDLE_TARGETS_MAX: usize = 4096;
/// Jobs remembered while they have no client.
const IDLE_JOBS_MAX: usize = 1024;

/// A connection of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// How a queue decides.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Limits by target; the first pattern that matches counts.
    pub targets: Vec<(crate::pattern::Pattern, Limits)>,
    /// Limits of all other targets.
    pub limits: Limits,
    /// Weights by job, instead of those clients tell; the first pattern that matches counts.
    pub weights: Vec<(crate::pattern::Pattern, u16)>,
    /// Times a request in several lanes is passed over before it reserves.
    pub passes_max: u32,
    /// Younger requests that overtake a lane's oldest before it reserves.
    pub overtakes_max: u32,
    /// A slot held longer is taken back, microseconds; 0: never.
    pub hold_us_max: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            targets: Vec::new(),
            limits: Limits::default(),
            weights: Vec::new(),
            passes_max: 4,
            overtakes_max: 64,
            hold_us_max: 600_000_000,
        }
    }
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A client said hello.
    Joined {
        /// The client; new.
        client: ClientId,
        job: &'a str,
        /// Its job's share, unless the settings say another.
        weight: u16,
        priority: u8,
    },
    /// A client's connection ended.
    Left { client: ClientId },
    Asked {
        client: ClientId,
        /// The client's number for the request.
        id: u64,
        kind: IoKind,
        /// Bytes it will transfer.
        bytes: u64,
        /// Names of the targets; repeated ones count once.
        targets: &'a [&'a str],
    },
    /// A client is done.
    Completed {
        client: ClientId,
        id: u64,
        bytes: u64,
        /// Microseconds of the transfer.
        io_us: u64,
    },
    /// A client gives a request up.
    Cancelled { client: ClientId, id: u64 },
    /// Time has passed; see [`Queue::deadline_us`].
    Tick,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Granted and done.
    Completed {
        bytes: u64,
        /// Microseconds of the transfer, as the client measured.
        io_us: u64,
    },
    /// Done without having been granted: the client did not wait for so long.
    Unasked {
        bytes: u64,
        /// Microseconds of the transfer, as the client measured.
        io_us: u64,
    },
    /// The client gave it up.
    Cancelled,
    /// The client is gone.
    Gone,
    /// It held its slots for too long.
    Overheld,
}

/// What is to be done, or told.
#[derive(Clone, Debug)]
pub enum Action {
    /// Tell the client that it may go.
    Grant(Grant),
    /// Nothing to do; for the trace.
    Ended {
        /// The request as it was asked and granted.
        request: Grant,
        /// False: it never was granted.
        granted: bool,
        end: End,
    },
}

/// A request and its times, microseconds on the clock of [`Queue::step`].
#[derive(Clone, Debug)]
pub struct Grant {
    pub client: ClientId,
    /// The client's number for it.
    pub id: u64,
    pub kind: IoKind,
    /// Bytes asked for.
    pub bytes: u64,
    /// Names of its targets.
    pub targets: SmallVec<[Rc<str>; 2]>,
    /// When it was asked.
    pub asked_us: u64,
    /// When it was granted; when it ended, if it never was.
    pub granted_us: u64,
}

/// An event that makes no sense; nothing has changed, and the client should be cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// The client has not joined, or joined twice.
    #[error("the client is not known, or known already")]
    Client,
    /// The client has an outstanding request of this number.
    #[error("request {0} is outstanding already")]
    Repeated(u64),
    /// The client has [`OUTSTANDING_MAX`] outstanding requests.
    #[error("more than {OUTSTANDING_MAX} outstanding requests")]
    TooMany,
    /// A request without a target.
    #[error("a request without a target")]
    NoTarget,
}

#[derive(Clone)]
struct Client {
    job: usize,
    weight: u16,
    priority: u8,
    /// Its requests that have not ended, by its numbers.
    outstanding: Vec<(u64, u64)>,
}

#[derive(Clone)]
struct Job {
    name: Rc<str>,
    clients: u32,
    waiting: u32,
    active: u32,
    totals: stats::Totals,
}

#[derive(Clone)]
struct Target {
    name: Rc<str>,
    /// By [`IoKind`].
    lanes: [Lane; 2],
    used_us: u64,
}

/// Index of a target, and direction.
type LaneNo = (usize, usize);

#[derive(Clone)]
struct Entry {
    client: ClientId,
    id: u64,
    job: usize,
    kind: IoKind,
    bytes: u64,
    priority: u8,
    lanes: SmallVec<[LaneNo; 2]>,
    asked_us: u64,
    /// Set while it is granted.
    granted_us: Option<u64>,
    /// Times it was passed over.
    passes: u32,
    /// Its turn among those that reserve.
    reserves: Option<u64>,
}

impl Entry {
    fn waiter(&self, arrival: u64) -> Waiter {
        Waiter { arrival, job: self.job, priority: self.priority, reserves: self.reserves }
    }
}

/// The requests of a group, their lanes and jobs.
#[derive(Clone)]
pub struct Queue {
    settings: Settings,
    clients: HashMap<ClientId, Client>,
    /// By number of arrival.
    entries: HashMap<u64, Entry>,
    arrivals: u64,
    reservations: u64,
    targets: BTreeMap<usize, Target>,
    target_names: HashMap<Rc<str>, usize>,
    targets_made: usize,
    jobs: BTreeMap<usize, Job>,
    job_names: HashMap<Rc<str>, usize>,
    jobs_made: usize,
    /// Granted requests by when they were granted.
    held: BTreeSet<(u64, u64)>,
    /// Lanes in which somebody may be let in.
    dirty: BTreeSet<LaneNo>,
    strays: u64,
}

impl Queue {
    /// A queue with nobody in it.
    pub fn new(settings: Settings) -> Queue {
        Queue {
            settings,
            clients: HashMap::new(),
            entries: HashMap::new(),
            arrivals: 0,
            reservations: 0,
            targets: BTreeMap::new(),
            target_names: HashMap::new(),
            targets_made: 0,
            jobs: BTreeMap::new(),
            job_names: HashMap::new(),
            jobs_made: 0,
            held: BTreeSet::new(),
            dirty: BTreeSet::new(),
            strays: 0,
        }
    }

    /// Takes in an event at `now_us`, which never goes back, and appends what follows from it.
    pub fn step(
        &mut self,
        now_us: u64,
        event: Event<'_>,
        actions: &mut Vec<Action>,
    ) -> Result<(), Misuse> {
        match event {
            Event::Joined { client, job, weight, priority } => {
                self.join(client, job, weight, priority)?;
            }
            Event::Left { client } => {
                let gone = self.clients.remove(&client).ok_or(Misuse::Client)?;
                for (_, arrival) in gone.outstanding {
                    self.end(now_us, arrival, End::Gone, actions);
                }
                if let Some(job) = self.jobs.get_mut(&gone.job) {
                    job.clients -= 1;
                }
                self.forget_jobs();
            }
            Event::Asked { client, id, kind, bytes, targets } => {
                self.ask(now_us, client, id, kind, bytes, targets)?;
            }
            Event::Completed { client, id, bytes, io_us } => {
                match self.take_outstanding(client, id)? {
                    Some(arrival) => {
                        let granted =
                            self.entries.get(&arrival).is_some_and(|e| e.granted_us.is_some());
                        let end = if granted {
                            End::Completed { bytes, io_us }
                        } else {
                            End::Unasked { bytes, io_us }
                        };
                        self.end(now_us, arrival, end, actions);
                    }
                    None => self.strays += 1,
                }
            }
            Event::Cancelled { client, id } => match self.take_outstanding(client, id)? {
                Some(arrival) => self.end(now_us, arrival, End::Cancelled, actions),
                None => self.strays += 1,
            },
            Event::Tick => self.take_back(now_us, actions),
        }
        self.let_in(now_us, actions);
        Ok(())
    }

    /// When [`Event::Tick`] is due, if nothing else happens.
    pub fn deadline_us(&self) -> Option<u64> {
        let (granted_us, _) = self.held.first()?;
        (self.settings.hold_us_max > 0).then(|| granted_us + self.settings.hold_us_max)
    }

    fn join(
        &mut self,
        client: ClientId,
        job: &str,
        weight: u16,
        priority: u8,
    ) -> Result<(), Misuse> {
        if self.clients.contains_key(&client) {
            return Err(Misuse::Client);
        }
        let set = self.settings.weights.iter().find(|(pattern, _)| pattern.matches(job));
        let weight = set.map_or(weight, |(_, weight)| *weight).max(1);
        let job = self.job(job);
        if let Some(job) = self.jobs.get_mut(&job) {
            job.clients += 1;
        }
        let outstanding = Vec::new();
        self.clients.insert(client, Client { job, weight, priority, outstanding });
        Ok(())
    }

    fn job(&mut self, name: &str) -> usize {
        if let Some(no) = self.job_names.get(name) {
            return *no;
        }
        let (no, name) = (self.jobs_made, Rc::<str>::from(name));
        self.jobs_made += 1;
        self.job_names.insert(name.clone(), no);
        let totals = stats::Totals::default();
        self.jobs.insert(no, Job { name, clients: 0, waiting: 0, active: 0, totals });
        no
    }

    /// Keeps the list of jobs from growing for ever: those that began first go first.
    fn forget_jobs(&mut self) {
        if self.jobs.len() <= IDLE_JOBS_MAX {
            return;
        }
        let idle = self.jobs.iter().find(|(_, job)| job.clients == 0).map(|(no, _)| *no);
        if let Some(job) = idle.and_then(|no| self.jobs.remove(&no)) {
            self.job_names.remove(&job.name);
        }
    }

    fn target(&mut self, now_us: u64, name: &str) -> usize {
        if let Some(no) = self.target_names.get(name) {
            if let Some(target) = self.targets.get_mut(no) {
                target.used_us = now_us;
            }
            return *no;
        }
        if self.targets.len() >= IDLE_TARGETS_MAX {
            self.forget_a_target();
        }
        let set = self.settings.targets.iter().find(|(pattern, _)| pattern.matches(name));
        let limits = set.map_or(self.settings.limits, |(_, limits)| *limits);
        let (no, name) = (self.targets_made, Rc::<str>::from(name));
        self.targets_made += 1;
        self.target_names.insert(name.clone(), no);
        let lanes = [Lane::new(limits.write), Lane::new(limits.read)];
        self.targets.insert(no, Target { name, lanes, used_us: now_us });
        no
    }

    fn forget_a_target(&mut self) {
        let idle = self.targets.iter().filter(|(_, target)| target.lanes.iter().all(Lane::is_idle));
        let oldest = idle.min_by_key(|(_, target)| target.used_us).map(|(no, _)| *no);
        if let Some(target) = oldest.and_then(|no| self.targets.remove(&no)) {
            self.target_names.remove(&target.name);
        }
    }

    fn lane(&mut self, lane: LaneNo) -> &mut Lane {
        let target = self.targets.get_mut(&lane.0).expect("a target in use is not forgotten");
        &mut target.lanes[lane.1]
    }

    fn ask(
        &mut self,
        now_us: u64,
        client: ClientId,
        id: u64,
        kind: IoKind,
        bytes: u64,
        targets: &[&str],
    ) -> Result<(), Misuse> {
        let known = self.clients.get(&client).ok_or(Misuse::Client)?;
        if known.outstanding.iter().any(|(other, _)| *other == id) {
            return Err(Misuse::Repeated(id));
        }
        if known.outstanding.len() >= OUTSTANDING_MAX {
            return Err(Misuse::TooMany);
        }
        if targets.is_empty() {
            return Err(Misuse::NoTarget);
        }
        let (job, weight, priority) = (known.job, known.weight, known.priority);
        let arrival = self.arrivals;
        self.arrivals += 1;
        let mut numbers: SmallVec<[usize; 2]> = SmallVec::new();
        for name in targets {
            let no = self.target(now_us, name);
            if !numbers.contains(&no) {
                // At once, so that making the next one does not forget it.
                numbers.push(no);
                self.lane((no, kind as usize)).pin();
            }
        }
        let waiter = Waiter { arrival, job, priority, reserves: None };
        let lanes: SmallVec<[LaneNo; 2]> = numbers.iter().map(|no| (*no, kind as usize)).collect();
        for at in &lanes {
            self.lane(*at).enqueue(now_us, waiter, weight, bytes);
            self.dirty.insert(*at);
        }
        let entry = Entry {
            client,
            id,
            job,
            kind,
            bytes,
            priority,
            lanes,
            asked_us: now_us,
            granted_us: None,
            passes: 0,
            reserves: None,
        };
        self.entries.insert(arrival, entry);
        if let Some(known) = self.clients.get_mut(&client) {
            known.outstanding.push((id, arrival));
        }
        if let Some(job) = self.jobs.get_mut(&job) {
            job.waiting += 1;
        }
        Ok(())
    }

    fn take_outstanding(&mut self, client: ClientId, id: u64) -> Result<Option<u64>, Misuse> {
        let known = self.clients.get_mut(&client).ok_or(Misuse::Client)?;
        let at = known.outstanding.iter().position(|(other, _)| *other == id);
        Ok(at.map(|at| known.outstanding.swap_remove(at).1))
    }

    /// Removes a request in whatever state it is.
    fn end(&mut self, now_us: u64, arrival: u64, end: End, actions: &mut Vec<Action>) {
        let Some(entry) = self.entries.remove(&arrival) else { return };
        let done_bytes = match end {
            End::Completed { bytes, .. } => Some(bytes),
            _ => None,
        };
        let share = entry.lanes.len() as u64;
        let waiter = entry.waiter(arrival);
        for at in &entry.lanes {
            let lane = self.lane(*at);
            match entry.granted_us {
                Some(granted_us) => {
                    let held_us = now_us.saturating_sub(granted_us);
                    lane.release(now_us, held_us, done_bytes.map(|bytes| bytes / share));
                }
                None => lane.give_up(waiter),
            }
            self.dirty.insert(*at);
        }
        if let Some(granted_us) = entry.granted_us {
            self.held.remove(&(granted_us, arrival));
        }
        if let Some(job) = self.jobs.get_mut(&entry.job) {
            match entry.granted_us {
                Some(granted_us) => {
                    job.active -= 1;
                    job.totals.end(now_us.saturating_sub(granted_us), done_bytes);
                }
                None => job.waiting -= 1,
            }
        }
        let granted = entry.granted_us.is_some();
        let request = self.describe(&entry, now_us);
        actions.push(Action::Ended { request, granted, end });
    }

    /// Ends what has held its slots for too long.
    fn take_back(&mut self, now_us: u64, actions: &mut Vec<Action>) {
        while self.deadline_us().is_some_and(|deadline_us| deadline_us <= now_us) {
            let Some(&(_, arrival)) = self.held.first() else { return };
            if let Some(entry) = self.entries.get(&arrival) {
                let (client, id) = (entry.client, entry.id);
                // The client is known as long as it has a request.
                let _ = self.take_outstanding(client, id);
            }
            self.end(now_us, arrival, End::Overheld, actions);
        }
    }

    /// Lets in whoever may go.
    fn let_in(&mut self, now_us: u64, actions: &mut Vec<Action>) {
        while let Some(at) = self.dirty.pop_first() {
            // A lane that was forgotten has nobody waiting.
            while self.targets.contains_key(&at.0) && self.let_one_in(now_us, at, actions) {}
        }
    }

    /// Lets in the first request of a lane that may go; false when there is none.
    fn let_one_in(&mut self, now_us: u64, at: LaneNo, actions: &mut Vec<Action>) -> bool {
        let lane = self.lane(at);
        if lane.is_full(0) {
            return false;
        }
        let first = lane.first();
        let mut passed: SmallVec<[u64; 8]> = SmallVec::new();
        let mut chosen = first.filter(|first| self.may_go(*first));
        if chosen.is_none() && first.is_some() {
            // The usual case is done; now the whole window.
            let window: Vec<u64> = self.lane(at).candidates().take(LOOKAHEAD).collect();
            for arrival in window {
                if self.may_go(arrival) {
                    chosen = Some(arrival);
                    break;
                }
                passed.push(arrival);
            }
        }
        let Some(arrival) = chosen else { return false };
        self.grant(now_us, arrival, actions);
        for arrival in passed {
            let Some(entry) = self.entries.get_mut(&arrival) else { continue };
            entry.passes = entry.passes.saturating_add(1);
            if entry.passes >= self.settings.passes_max {
                self.reserve(arrival);
            }
        }
        true
    }

    /// True when a waiting request finds room in all its lanes.
    fn may_go(&self, arrival: u64) -> bool {
        let Some(entry) = self.entries.get(&arrival) else { return false };
        entry.lanes.iter().all(|at| {
            let lane = &self.targets[&at.0].lanes[at.1];
            !lane.is_full(lane.reserved_before(entry.reserves))
        })
    }

    fn grant(&mut self, now_us: u64, arrival: u64, actions: &mut Vec<Action>) {
        let overtakes_max = self.settings.overtakes_max;
        let Some(entry) = self.entries.get_mut(&arrival) else { return };
        entry.granted_us = Some(now_us);
        let entry = entry.clone();
        let waited_us = now_us.saturating_sub(entry.asked_us);
        let waiter = entry.waiter(arrival);
        for at in &entry.lanes {
            let lane = self.lane(*at);
            lane.admit(now_us, waiter, waited_us);
            let overtaken = lane.overtaken(overtakes_max);
            self.dirty.insert(*at);
            if let Some(oldest) = overtaken {
                self.reserve(oldest);
            }
        }
        self.held.insert((now_us, arrival));
        if let Some(job) = self.jobs.get_mut(&entry.job) {
            job.waiting -= 1;
            job.active += 1;
            job.totals.grant(waited_us);
        }
        let request = self.describe(&entry, now_us);
        actions.push(Action::Grant(request));
    }

    /// Puts a waiting request in front of all others that do not reserve yet.
    fn reserve(&mut self, arrival: u64) {
        let Some(entry) = self.entries.get_mut(&arrival) else { return };
        if entry.reserves.is_some() || entry.granted_us.is_some() {
            return;
        }
        let turn = self.reservations;
        self.reservations += 1;
        entry.reserves = Some(turn);
        for at in entry.lanes.clone() {
            self.lane(at).reserve(turn, arrival);
            self.dirty.insert(at);
        }
    }

    fn describe(&self, entry: &Entry, now_us: u64) -> Grant {
        Grant {
            client: entry.client,
            id: entry.id,
            kind: entry.kind,
            bytes: entry.bytes,
            targets: entry
                .lanes
                .iter()
                .filter_map(|(target, _)| Some(self.targets.get(target)?.name.clone()))
                .collect(),
            asked_us: entry.asked_us,
            granted_us: entry.granted_us.unwrap_or(now_us),
        }
    }

    /// Asserts the invariants; for tests, as slow as it is thorough.
    ///
    /// # Panics
    ///
    /// When one is broken.
    pub fn check(&self) {
        assert!(self.dirty.is_empty(), "no decision is left open");
        let mut granted: HashMap<LaneNo, u32> = HashMap::new();
        let mut waiting: HashMap<LaneNo, usize> = HashMap::new();
        for (arrival, entry) in &self.entries {
            let client = &self.clients[&entry.client];
            assert!(client.outstanding.contains(&(entry.id, *arrival)), "a request has a client");
            for at in &entry.lanes {
                let lane = &self.targets[&at.0].lanes[at.1];
                if entry.granted_us.is_some() {
                    *granted.entry(*at).or_default() += 1;
                } else {
                    *waiting.entry(*at).or_default() += 1;
                    assert!(lane.holds(entry.waiter(*arrival)), "a waiting request waits");
                }
            }
            let held = entry.granted_us.map(|granted_us| (granted_us, *arrival));
            assert!(held.is_none_or(|held| self.held.contains(&held)));
            if entry.granted_us.is_none() {
                assert!(!self.is_free(*arrival), "who may go has gone");
            }
        }
        let outstanding: usize = self.clients.values().map(|client| client.outstanding.len()).sum();
        assert_eq!(outstanding, self.entries.len(), "every outstanding request exists");
        assert_eq!(
            self.held.len(),
            self.entries.values().filter(|entry| entry.granted_us.is_some()).count(),
            "no slot is held by nobody"
        );
        for (no, target) in &self.targets {
            for (kind, lane) in target.lanes.iter().enumerate() {
                let at = (*no, kind);
                lane.check(
                    granted.get(&at).copied().unwrap_or(0),
                    waiting.get(&at).copied().unwrap_or(0),
                );
            }
        }
        for (no, job) in &self.jobs {
            let of_job = |granted: bool| {
                let entries = self.entries.values().filter(|entry| entry.job == *no);
                entries.filter(|entry| entry.granted_us.is_some() == granted).count() as u32
            };
            assert_eq!((job.active, job.waiting), (of_job(true), of_job(false)));
        }
    }

    /// True when a waiting request may go and is near enough to be seen.
    fn is_free(&self, arrival: u64) -> bool {
        let Some(entry) = self.entries.get(&arrival) else { return false };
        let seen = entry.lanes.iter().any(|at| {
            self.targets[&at.0].lanes[at.1].candidates().take(LOOKAHEAD).any(|one| one == arrival)
        });
        seen && self.may_go(arrival)
    }
}
