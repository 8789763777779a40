//! Trouble: tracks on which one fault follows another, each undone before the next.

use super::run::{Run, client_name};
use super::settings::Fault;
use crate::Cluster;
use env::{DiskFaults, Env};
use futures_util::future::join_all;
use std::rc::Rc;
use std::time::Duration;
use transport::SimNet;
use wire::control::TargetAim;

/// A start that has no end is begun again after this long.
const START_TIME_MAX: Duration = Duration::from_secs(20);
/// Once a disk has failed, participants of transactions have so long to ask what became of them.
const FAILED_TIME: Duration = Duration::from_secs(1);
/// In clusters with copies, half of those that fail go on for up to so long after that.
const FAILED_TIME_MAX: Duration = Duration::from_secs(12);
/// How far a clock jumps: two seconds either way.
const CLOCK_OFF_NS_MAX: i64 = 2_000_000_000;
/// How much a clock gains or loses at most, millionths: it is twice as fast, or stands still.
const CLOCK_GAIN_PPM_MAX: i64 = 1_000_000;
/// For how long.
const DRIFT_TIME_MAX: Duration = Duration::from_secs(2);
/// How much less than another's the clock of an engine shows that hears nobody, at most, millionths.
const SLOW_PPM_MAX: u64 = 10_000;
/// How long it hears nobody: longer than it takes to be called down.
const SPLIT_TIME: std::ops::Range<Duration> = Duration::from_secs(6)..Duration::from_secs(12);

impl Run {
    /// Makes trouble until its time is over or the work is done.
    pub(super) async fn trouble(self: &Rc<Self>) {
        let faults = &self.settings.faults;
        if faults.is_empty() {
            return;
        }
        let env = self.cluster.world().node("trouble");
        let end = env.now() + self.settings.trouble;
        let track = async |_| {
            while env.now() < end && !self.is_done.get() {
                self.pause(&env, self.settings.calm_max).await;
                let fault = faults[env.random_u64() as usize % faults.len()];
                self.happen(&env, fault).await;
            }
        };
        join_all((0..self.settings.tracks).map(track)).await;
    }

    pub(super) async fn pause(&self, env: &Env, most: Duration) {
        env.sleep(Duration::from_nanos(env.random_u64() % (most.as_nanos() as u64 + 1))).await;
    }

    async fn happen(self: &Rc<Self>, env: &Env, fault: Fault) {
        let world = self.cluster.world();
        let net = SimNet::of(world);
        let engine = env.random_u64() as usize % self.settings.engines;
        self.note(|| format!("{fault:?} of e{engine}"));
        *self.happened.borrow_mut().entry(fault).or_insert(0) += 1;
        match fault {
            Fault::Kill => {
                self.outage(env, engine, Duration::ZERO, Duration::from_millis(60)).await
            }
            Fault::Absence => {
                let least = Duration::from_secs(6);
                self.outage(env, engine, least, Duration::from_secs(12)).await;
            }
            Fault::CatalogOutage => {
                self.outage(env, 0, Duration::ZERO, Duration::from_secs(8)).await;
            }
            Fault::Cut => {
                let (a, b) = (Cluster::engine_name(engine), self.node_to_cut(env, engine));
                net.cut(&a, &b);
                self.pause(env, self.settings.cut_max).await;
                net.heal(&a, &b);
            }
            Fault::KillAtSync => self.kill_at_sync(env, engine).await,
            Fault::OneWayCut => {
                let (a, b) = (Cluster::engine_name(engine), self.node_to_cut(env, engine));
                match env.random_u64() % 2 {
                    0 => net.cut_one_way(&a, &b),
                    _ => net.cut_one_way(&b, &a),
                }
                self.pause(env, self.settings.cut_max).await;
                net.heal(&a, &b);
            }
            Fault::Late => {
                for _ in 0..60 {
                    let client = self.any_client(env);
                    let engine = env.random_u64() as usize % self.settings.engines;
                    let later = Duration::from_micros(env.random_u64() % 40_000);
                    net.abandon_connections(&client, &Cluster::engine_name(engine), later);
                    self.pause(env, Duration::from_millis(4)).await;
                }
            }
            Fault::Tail => {
                net.set_tail_ppm(50_000);
                self.pause(env, Duration::from_millis(300)).await;
                net.set_tail_ppm(0);
            }
            Fault::Clock => {
                let off_ns = env.random_u64() as i64 % CLOCK_OFF_NS_MAX;
                world.set_wall_off(&Cluster::engine_name(engine), off_ns);
                self.pause(env, Duration::from_millis(100)).await;
            }
            Fault::Drift => {
                let name = Cluster::engine_name(engine);
                world.set_wall_gain(&name, env.random_u64() as i64 % CLOCK_GAIN_PPM_MAX);
                self.pause(env, DRIFT_TIME_MAX).await;
                world.set_wall_gain(&name, 0);
            }
            Fault::Pause => match env.random_u64() % 4 {
                0 => self.still_client(env).await,
                _ => self.still_engine(env, engine).await,
            },
            Fault::Split => self.split(env, engine).await,
            Fault::Wipe => self.wipe(env, engine).await,
            Fault::Damage => self.damage(env, engine).await,
            Fault::Drain => self.wish(env, engine, TargetAim::Drain).await,
            Fault::Exclude => self.wish(env, engine, TargetAim::Exclude).await,
            Fault::Snapshot | Fault::Rollback => self.take_snapshot(env).await,
            Fault::Grow => self.grow(env, engine).await,
            Fault::Reweigh => self.reweigh(env).await,
            Fault::Migrate => self.migrate_files(env).await,
            Fault::FullDisk => {
                let disk = world.disk(&Cluster::engine_name(engine));
                let room = env.random_u64() % (1 << 20);
                let full =
                    DiskFaults { space_bytes: disk.used_bytes() + room, ..DiskFaults::default() };
                disk.set_faults(full);
                self.pause(env, Duration::from_millis(300)).await;
                disk.set_faults(DiskFaults::default());
            }
            Fault::DiskError => self.disk_error(env, engine).await,
            Fault::Break => {
                net.break_connections(&Cluster::engine_name(engine), &self.other_node(env, engine));
            }
            Fault::Flaky => {
                net.set_break_ppm(50_000);
                self.pause(env, Duration::from_millis(100)).await;
                net.set_break_ppm(0);
            }
            Fault::SlowDisk => {
                let disk = world.disk(&Cluster::engine_name(engine));
                let slow = DiskFaults {
                    latency_min: Duration::from_millis(1),
                    latency_max: Duration::from_millis(50),
                    ..DiskFaults::default()
                };
                disk.set_faults(slow);
                self.pause(env, Duration::from_millis(300)).await;
                disk.set_faults(DiskFaults::default());
            }
        }
    }

    /// A client, or another engine.
    fn other_node(&self, env: &Env, engine: usize) -> String {
        let (engines, clients) = (self.settings.engines as u64, self.settings.clients as u64);
        let at = env.random_u64() % (engines + clients);
        if at < engines && at as usize != engine {
            return Cluster::engine_name(at as usize);
        }
        client_name((at % clients) as u32)
    }

    /// The same; notes when it is an engine.
    fn node_to_cut(&self, env: &Env, engine: usize) -> String {
        let node = self.other_node(env, engine);
        let is_engine = (0..self.settings.engines).any(|at| Cluster::engine_name(at) == node);
        self.engine_cuts.set(self.engine_cuts.get() + u32::from(is_engine));
        node
    }

    fn any_client(&self, env: &Env) -> String {
        client_name((env.random_u64() % u64::from(self.settings.clients)) as u32)
    }

    /// How long somebody stands still: each length is as likely as one of half of it.
    fn still_time(&self, env: &Env) -> Duration {
        let longest = self.settings.still_max / (1 << (env.random_u64() % 6));
        longest / 2 + longest / 2 * (env.random_u64() % 1000) as u32 / 1000
    }

    /// A client stands still, as under `SIGSTOP`.
    async fn still_client(&self, env: &Env) {
        let (world, name) = (self.cluster.world(), self.any_client(env));
        if !self.still_clients.borrow_mut().insert(name.clone()) {
            return;
        }
        self.note(|| format!("{name} stands still"));
        self.still.set((self.still.get().0, self.still.get().1 + 1));
        world.pause(&name);
        env.sleep(self.still_time(env)).await;
        world.resume(&name);
        self.note(|| format!("{name} goes on"));
        self.still_clients.borrow_mut().remove(&name);
    }

    /// An engine stands still; sometimes it is killed before it goes on.
    async fn still_engine(&self, env: &Env, engine: usize) {
        if !self.down.borrow_mut().insert(engine) {
            return;
        }
        let (world, name) = (self.cluster.world(), Cluster::engine_name(engine));
        self.still.set((self.still.get().0 + 1, self.still.get().1));
        world.pause(&name);
        env.sleep(self.still_time(env)).await;
        if env.random_u64().is_multiple_of(8) {
            self.kill(engine);
            self.start(env, engine).await;
        } else {
            world.resume(&name);
            self.note(|| format!("e{engine} goes on"));
        }
        self.down.borrow_mut().remove(&engine);
    }

    /// An engine and a client hear nobody but each other. It counts as down: what it misses meanwhile it cannot give to others.
    async fn split(&self, env: &Env, number: usize) {
        if !self.down.borrow_mut().insert(number) {
            return;
        }
        let (client, engine) = (self.any_client(env), Cluster::engine_name(number));
        self.note(|| format!("{engine} and {client} are alone"));
        let (world, net) = (self.cluster.world(), SimNet::of(self.cluster.world()));
        let engines = (0..self.settings.engines).map(Cluster::engine_name);
        let others: Vec<String> = engines.filter(|other| *other != engine).collect();
        let clients: Vec<String> = (0..self.settings.clients).map(client_name).collect();
        let from_engine = clients.iter().filter(|other| **other != client).chain(&others);
        let pairs: Vec<(&String, &String)> = from_engine
            .map(|other| (&engine, other))
            .chain(others.iter().map(|other| (&client, other)))
            .collect();
        pairs.iter().for_each(|(a, b)| net.cut(a, b));
        world.set_monotonic_gain(&engine, -((env.random_u64() % SLOW_PPM_MAX) as i64));
        env.sleep(SPLIT_TIME.start).await;
        self.pause(env, SPLIT_TIME.end - SPLIT_TIME.start).await;
        pairs.iter().for_each(|(a, b)| net.heal(a, b));
        world.set_monotonic_gain(&engine, 0);
        self.down.borrow_mut().remove(&number);
    }

    async fn outage(&self, env: &Env, engine: usize, least: Duration, longest: Duration) {
        if !self.down.borrow_mut().insert(engine) {
            return;
        }
        self.kill(engine);
        env.sleep(least).await;
        self.pause(env, longest - least).await;
        self.start(env, engine).await;
        self.down.borrow_mut().remove(&engine);
    }

    async fn kill_at_sync(&self, env: &Env, engine: usize) {
        if !self.down.borrow_mut().insert(engine) {
            return;
        }
        let disk = self.cluster.world().disk(&Cluster::engine_name(engine));
        let hang = disk.hang_at_sync(env.random_u64() % 4, env.random_u64().is_multiple_of(4));
        if env.timeout(Duration::from_millis(500), hang).await.is_some() {
            if env.random_u64().is_multiple_of(2) {
                // Clients go on asking what is in memory.
                self.pause(env, Duration::from_millis(300)).await;
            }
            self.kill(engine);
            self.pause(env, Duration::from_millis(60)).await;
            self.start(env, engine).await;
        }
        disk.hang_no_more();
        self.down.borrow_mut().remove(&engine);
    }

    async fn disk_error(&self, env: &Env, engine: usize) {
        if !self.down.borrow_mut().insert(engine) {
            return;
        }
        let disk = self.cluster.world().disk(&Cluster::engine_name(engine));
        disk.set_faults(DiskFaults { write_error_ppm: 200_000, ..DiskFaults::default() });
        self.pause(env, Duration::from_millis(100)).await;
        disk.set_faults(DiskFaults::default());
        env.sleep(FAILED_TIME).await;
        // Others may lead by then.
        if self.settings.class_alone != "S1" && env.random_u64().is_multiple_of(2) {
            self.pause(env, FAILED_TIME_MAX).await;
        }
        self.kill(engine);
        self.start(env, engine).await;
        self.down.borrow_mut().remove(&engine);
    }

    pub(super) fn kill(&self, engine: usize) {
        self.note(|| format!("kill of e{engine}"));
        self.cluster.kill_engine(engine);
        self.crashes.borrow_mut().push((self.moments.next(), self.cluster.world().now()));
    }

    /// Starts an engine, as often as it takes.
    pub(super) async fn start(&self, env: &Env, engine: usize) {
        loop {
            let start = self.cluster.start_engine(engine);
            match env.timeout(START_TIME_MAX, start).await {
                Some(Ok(())) => break,
                Some(Err(error)) => self.note(|| format!("start of e{engine}: {error}")),
                None => self.note(|| format!("start of e{engine} takes too long")),
            }
            self.kill(engine);
            env.sleep(Duration::from_millis(10)).await;
        }
        self.note(|| format!("e{engine} is up"));
    }
}
