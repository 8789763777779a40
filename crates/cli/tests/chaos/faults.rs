//! Trouble: rounds of faults drawn from the seed, no more at a time than the classes allow. A round ends when everything is whole
//! again and all loads have gone on.

use crate::work::{Outcome, POOL, Role, Work, when};
use client::{Client, RebuildState};
use dfs::{CreateOptions, OpenFlags};
use env::Rng;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};
use types::{Code, TargetId};
use wire::control::{Name, OpenMode, PoolInfo};
use wire::map::{TargetInfo, TargetState};

/// What is not whole after so long, with all faults undone, never will be.
const WHOLE_TIME_MAX: Duration = Duration::from_secs(240);
/// Pause between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// What happens to an engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// It dies, and is started again at once.
    Restart,
    /// It dies, and is down for a while.
    Kill,
    /// It stands still, for less time than makes it down.
    ShortStop,
    /// It stands still for long.
    Stop,
    /// Nobody hears it, nor it anybody.
    Cut,
    /// The engines do not hear it, but it hears them.
    Mute,
    /// It hears no engine, but they hear it.
    Deaf,
    /// It and one other engine do not hear each other.
    CutPair,
    /// It does not hear the clients, or they do not hear it.
    CutClients,
    /// It dies, and its target is lost.
    Wipe,
    /// Others stand in for it, and another one dies then.
    StandIn,
    /// It is emptied, and taken back.
    Drain,
    /// It is left out, and taken back.
    Exclude,
    /// One more engine, which takes over its share.
    Extend,
    /// Somebody fills targets, and removes what he has written.
    Fill,
    /// The catalog is away for a while: etcd dies.
    Etcd,
}

use Fault::*;

const SMOKE: [Fault; 3] = [Restart, Kill, Wipe];
const LONG: [Fault; 18] = [
    Restart, Restart, Kill, Kill, ShortStop, Stop, Cut, Mute, Deaf, CutPair, CutClients, Wipe,
    StandIn, Drain, Exclude, Extend, Fill, Etcd,
];

/// One fault of a round.
#[derive(Clone, Debug)]
struct Event {
    fault: Fault,
    engine: usize,
    /// The other engine of those that concern two.
    other: usize,
    /// When in the round it begins, and how long it lasts.
    start: Duration,
    length: Duration,
    /// One of two ways.
    is_other_way: bool,
}

/// Makes trouble.
pub struct Trouble<'a> {
    work: &'a Work<'a>,
    rng: Rng,
    admin: Client,
    /// How many of each there were.
    pub happened: BTreeMap<Fault, u64>,
    has_extended: bool,
}

impl<'a> Trouble<'a> {
    pub fn new(work: &'a Work<'a>) -> Outcome<Trouble<'a>> {
        let admin = work.connect(Role::Administrator)?;
        let rng = Rng::new(types::hash::mix2(work.plan.seed, 1));
        Ok(Trouble { work, rng, admin, happened: BTreeMap::new(), has_extended: false })
    }

    /// Rounds until its time is over, or the script is.
    pub fn run(&mut self) -> Outcome {
        let begun = Instant::now();
        for (at, fault) in self.work.plan.script.iter().enumerate() {
            // The first one holds the catalog.
            let victim = |at: usize| 1 + at % (self.work.plan.engines.0 - 1);
            let (engine, other) = (victim(at), victim(at + 1));
            let (start, length) = (Duration::ZERO, self.length_of(*fault));
            let event = Event { fault: *fault, engine, other, start, length, is_other_way: false };
            self.round(&[event])?;
        }
        while begun.elapsed() < self.work.plan.length {
            let events = self.draw();
            self.round(&events)?;
        }
        Ok(())
    }

    fn time(&self, least_ms: u64, most_ms: u64) -> Duration {
        Duration::from_millis(least_ms + self.rng.below(most_ms - least_ms + 1))
    }

    /// The faults of a round: on different engines, and together not more than are allowed.
    fn draw(&mut self) -> Vec<Event> {
        let plan = self.work.plan;
        let kinds: &[Fault] = if plan.is_smoke { &SMOKE } else { &LONG };
        let count = 1 + self.rng.below(plan.budget as u64) as usize;
        let mut events: Vec<Event> = Vec::new();
        let mut engines: Vec<usize> = (0..plan.engines.0).collect();
        while events.len() < count {
            let fault = kinds[self.rng.below(kinds.len() as u64) as usize];
            let is_alone = matches!(fault, StandIn | Drain | Exclude | Extend | Fill);
            let is_possible = match fault {
                Extend => !self.has_extended,
                Fill => !plan.has_programs,
                Etcd => plan.has_etcd && events.iter().all(|event| event.fault != Etcd),
                _ => true,
            };
            if !is_possible || is_alone && !events.is_empty() {
                continue;
            }
            let engine = engines.remove(self.rng.below(engines.len() as u64) as usize);
            let other = engines[self.rng.below(engines.len() as u64) as usize];
            let length = self.length_of(fault);
            let start = self.time(0, 3_000);
            let is_other_way = self.rng.below(2) == 1;
            // The holder of the catalog comes back: nobody can stand in for it meanwhile.
            let fault = match fault {
                StandIn if !plan.has_etcd && (engine == 0 || other == 0) => Restart,
                fault => fault,
            };
            events.push(Event { fault, engine, other, start, length, is_other_way });
            if is_alone {
                break;
            }
        }
        events
    }

    /// How long a fault lasts.
    fn length_of(&self, fault: Fault) -> Duration {
        let down_ms = 1000 * self.work.plan.down_after_s;
        match fault {
            Restart => self.time(0, 300),
            ShortStop => self.time(200, down_ms.saturating_sub(500).max(300)),
            Stop if self.rng.below(8) == 0 => Duration::from_secs(120),
            CutClients => self.time(500, 3_000),
            StandIn | Drain | Exclude | Extend | Fill => Duration::ZERO,
            _ => self.time(down_ms / 2, down_ms * 3),
        }
    }

    fn round(&mut self, events: &[Event]) -> Outcome {
        for event in events {
            *self.happened.entry(event.fault).or_default() += 1;
        }
        if events.iter().any(|event| event.fault == Wipe) {
            // What somebody missed and was not noticed yet would be lost with it.
            self.until_settled()?;
        }
        let mut steps: Vec<(Duration, bool, &Event)> = Vec::new();
        for event in events {
            steps.push((event.start, true, event));
            steps.push((event.start + event.length, false, event));
        }
        steps.sort_by_key(|(at, begins, _)| (*at, !*begins));
        let begun = Instant::now();
        for (at, begins, event) in steps {
            self.pause(at.saturating_sub(begun.elapsed()))?;
            match begins {
                true => self.begin(event)?,
                false => self.end(event)?,
            }
        }
        for event in events {
            self.settle(event)?;
        }
        self.until_whole()?;
        self.work.until_further()?;
        let took = begun.elapsed().as_secs_f64();
        self.work.tell(&format!("whole, and all go on, after {took:.1} s"));
        Ok(())
    }

    /// Waits, unless something has failed.
    fn pause(&self, time: Duration) -> Outcome {
        let end = Instant::now() + time;
        loop {
            self.work.failure()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(LOOK_PAUSE));
        }
    }

    /// All other hosts: those of engines, those of clients.
    fn others(&self, engine: usize, with_clients: bool) -> Vec<usize> {
        let hosts = self.work.hosts;
        let all = if with_clients { hosts.count() } else { hosts.client_host() };
        (0..all).filter(|at| *at != engine).collect()
    }

    /// The links that a fault cuts, from one host to another.
    fn links(&self, event: &Event) -> Vec<(usize, usize)> {
        let (at, other) = (event.engine, event.other);
        let from: Vec<_> = self.others(at, false).into_iter().map(|other| (at, other)).collect();
        let back =
            |links: &[(usize, usize)]| links.iter().map(|(a, b)| (*b, *a)).collect::<Vec<_>>();
        match event.fault {
            Cut => {
                let all: Vec<_> =
                    self.others(at, true).into_iter().map(|other| (at, other)).collect();
                [&all[..], &back(&all)].concat()
            }
            Mute => from,
            Deaf => back(&from),
            CutPair => vec![(at, other), (other, at)],
            CutClients if event.is_other_way => vec![(self.work.hosts.client_host(), at)],
            CutClients => vec![(at, self.work.hosts.client_host())],
            _ => Vec::new(),
        }
    }

    fn begin(&mut self, event: &Event) -> Outcome {
        let (hosts, at) = (self.work.hosts, event.engine);
        let (fault, length) = (event.fault, event.length.as_secs_f64());
        self.work.tell(&format!("{fault:?} of engine {at} for {length:.1} s"));
        match fault {
            Restart | Kill | Wipe => hosts.kill(at),
            ShortStop | Stop => hosts.signal(at, Signal::STOP),
            Cut | Mute | Deaf | CutPair | CutClients => {
                self.links(event).into_iter().for_each(|(from, to)| hosts.cut(from, to));
            }
            StandIn => {
                hosts.kill(at);
                let targets = self.targets(at)?;
                self.until("others stand in", |pool| {
                    let map = &pool.map;
                    let is_out =
                        |target: &TargetId| map.outs.iter().any(|out| out.target == *target);
                    map.next.is_none() && targets.iter().all(is_out)
                })?;
                self.work.tell(&format!("others stand in; engine {} is killed, too", event.other));
                hosts.kill(event.other);
                self.pause(self.time(1_000, 8_000))?;
            }
            Drain | Exclude => {
                let verb = if fault == Drain { "drain" } else { "exclude" };
                self.command(&["pool", verb, POOL, "--rank", &self.rank(at)?])?;
                self.until_moved()?;
                self.work.tell(&format!("engine {at} is needed no more"));
            }
            Extend => {
                self.has_extended = true;
                let rank = self.rank(self.work.plan.engines.0)?;
                self.command(&["pool", "extend", POOL, "--rank", &rank])?;
                self.command(&["pool", "balance", POOL])?;
            }
            Fill => self.fill()?,
            Etcd => hosts.kill_etcd(),
        }
        Ok(())
    }

    fn end(&mut self, event: &Event) -> Outcome {
        let (hosts, at) = (self.work.hosts, event.engine);
        match event.fault {
            Restart | Kill => hosts.spawn(at),
            ShortStop | Stop => hosts.signal(at, Signal::CONT),
            Cut | Mute | Deaf | CutPair | CutClients => {
                self.links(event).into_iter().for_each(|(from, to)| hosts.mend(from, to));
            }
            Wipe => {
                let target = hosts.dir(at).join("t");
                let wiped = fs::remove_dir_all(&target).and_then(|()| fs::create_dir(&target));
                wiped.map_err(|error| format!("wiping {}: {error}", target.display()))?;
                hosts.spawn(at);
            }
            StandIn => [at, event.other].into_iter().for_each(|at| hosts.spawn(at)),
            Etcd => hosts.start_etcd(),
            Drain | Exclude | Extend | Fill => {}
        }
        Ok(())
    }

    /// Writes until there is no room, and removes it.
    fn fill(&self) -> Outcome {
        self.work.fill();
        let cont = self.work.plan.conts[0].label;
        let (client, sys) = self.work.mount(cont)?;
        let flags = OpenFlags::WRITE | OpenFlags::CREATE;
        let bytes = client.block_on(async {
            let file = sys.open(b"/fill", flags, 0o644, &CreateOptions::default()).await?;
            let piece = crate::harness::noise(1, 4 << 20);
            let mut end = 0;
            while !self.work.is_over() {
                match sys.fs().write(&file, end, &piece).await {
                    Err(error) if error.code == Code::NoSpace => break,
                    written => end += written? as u64,
                }
            }
            drop(file);
            sys.unlink(b"/fill").await.map(|()| end)
        });
        let bytes = bytes.map_err(when(|| format!("filling {cont}")))?;
        self.work.tell(&format!("no room after {} MiB", bytes >> 20));
        Ok(())
    }

    /// What is to be done once everybody answers again.
    fn settle(&mut self, event: &Event) -> Outcome {
        match event.fault {
            Restart | Kill | Wipe => self.work.hosts.until_serves(event.engine),
            StandIn => {
                self.work.hosts.until_serves(event.engine);
                self.work.hosts.until_serves(event.other);
            }
            _ => {}
        }
        match event.fault {
            Wipe => {
                for target in self.targets(event.engine)? {
                    let target = target.to_string();
                    self.command(&["pool", "reset-target", POOL, &target, "--lose-data"])?;
                }
            }
            Drain | Exclude => {
                self.command(&["pool", "reintegrate", POOL, "--rank", &self.rank(event.engine)?])?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A command that must work, sooner or later.
    fn command(&self, args: &[&str]) -> Outcome {
        let begun = Instant::now();
        loop {
            let output = self.work.hosts.client(args);
            if output.status.success() {
                return Ok(());
            }
            if begun.elapsed() > WHOLE_TIME_MAX {
                return Err(format!("{args:?}: {}", crate::harness::all_text(&output)));
            }
            self.pause(Duration::from_millis(500))?;
        }
    }

    /// What the catalog says of the pool.
    fn pool(&self) -> Outcome<PoolInfo> {
        loop {
            self.work.failure()?;
            let pool = Name::Label(POOL.into());
            match self.admin.block_on(self.admin.pool_open(&pool, OpenMode::ReadOnly)) {
                Ok(pool) => return Ok(pool.info().clone()),
                Err(error) => {
                    self.work.tell(&format!("looking at the map: {error}"));
                    thread::sleep(LOOK_PAUSE);
                }
            }
        }
    }

    /// The rank of an engine.
    fn rank(&self, at: usize) -> Outcome<String> {
        let reach = self.work.hosts.reach(at);
        loop {
            self.work.failure()?;
            match self.admin.block_on(self.admin.system_query()) {
                Ok(system) => {
                    let found = system.engines.iter().find(|(engine, ..)| engine.tcp == reach);
                    let rank = found.map(|(engine, ..)| engine.rank.to_string());
                    return rank.ok_or_else(|| format!("no engine at {reach}"));
                }
                Err(error) => {
                    self.work.tell(&format!("asking for engines: {error}"));
                    thread::sleep(LOOK_PAUSE);
                }
            }
        }
    }

    /// The targets of an engine in the pool.
    fn targets(&self, at: usize) -> Outcome<Vec<TargetId>> {
        let map = self.pool()?.map;
        let reach = self.work.hosts.reach(at);
        let engine = map.engines.iter().find(|engine| engine.tcp == reach);
        let rank = engine.ok_or_else(|| format!("no engine at {reach} in the map"))?.rank;
        let own = map.targets.iter().filter(|target| target.rank == rank);
        Ok(own.map(|target| target.id).collect())
    }

    fn until(&self, what: &str, is_so: impl Fn(&PoolInfo) -> bool) -> Outcome {
        let begun = Instant::now();
        loop {
            let pool = self.pool()?;
            if is_so(&pool) {
                return Ok(());
            }
            let map = &pool.map;
            if begun.elapsed() > WHOLE_TIME_MAX {
                let (targets, outs, next) = (&map.targets, &map.outs, &map.next);
                return Err(format!(
                    "waiting that {what} has no end: version {}, {targets:?}, out: {outs:?}, next: {next:?}",
                    map.version
                ));
            }
            self.pause(LOOK_PAUSE)?;
        }
    }

    /// Waits until nothing moves, whoever is out.
    fn until_moved(&self) -> Outcome {
        self.pause(LOOK_PAUSE)?;
        self.until("what was to move has moved", |pool| {
            RebuildState::of(pool) == RebuildState::Done
        })
    }

    /// Waits until all targets are up and in their places.
    pub fn until_whole(&self) -> Outcome {
        self.until("all is whole", is_whole)
    }

    /// Waits until they have been for as long as it takes to notice that somebody is away.
    fn until_settled(&self) -> Outcome {
        loop {
            self.until_whole()?;
            let since = self.pool()?.map.version;
            self.pause(Duration::from_secs(self.work.plan.down_after_s + 2))?;
            let pool = self.pool()?;
            if pool.map.version == since && is_whole(&pool) {
                return Ok(());
            }
        }
    }
}

fn is_whole(pool: &PoolInfo) -> bool {
    let is_up = |target: &TargetInfo| target.state == TargetState::Up;
    RebuildState::of(pool) == RebuildState::Idle && pool.map.targets.iter().all(is_up)
}
