//! Who works meanwhile: what all loads share, how far each is, and how they find the system.

use crate::hosts::Hosts;
use crate::plan::Plan;
use client::{Client, ConnectOptions, Container, Patience, SystemAddress};
use dfs::sys::Sys;
use dfs::{Credentials, Dfs, MountFlags};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use transport::Address;
use types::Error;
use wire::control::{Name, OpenMode};

/// The pool under test.
pub const POOL: &str = "tank";
/// Who has done nothing for so long, though everything is whole, hangs.
const STANDSTILL: Duration = Duration::from_secs(240);

/// What went wrong, for people.
pub type Outcome<T = ()> = Result<T, String>;

/// Adds what was done to an error.
pub fn when(what: impl FnOnce() -> String) -> impl FnOnce(Error) -> String {
    move |error| format!("{}: {error}", what())
}

/// How far one load is.
pub struct Progress {
    pub name: String,
    done: AtomicU64,
    /// When it did something last, and the longest time until then that it did nothing.
    last: Mutex<(Instant, Duration)>,
}

impl Progress {
    /// Notes that an operation has been done.
    pub fn step(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
        let mut last = self.last.lock().unwrap();
        let now = Instant::now();
        last.1 = last.1.max(now - last.0);
        last.0 = now;
    }

    /// Operations so far.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// The longest time between two operations.
    pub fn longest(&self) -> Duration {
        self.last.lock().unwrap().1
    }
}

/// Whom a client is to the system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A user, who waits as long as it takes.
    User,
    /// An administrator, who is told after a while that nobody answers.
    Administrator,
}

/// Shared by all threads of a run.
pub struct Work<'a> {
    pub plan: &'a Plan,
    pub hosts: &'a Hosts,
    enough: AtomicBool,
    was_full: AtomicBool,
    failure: Mutex<Option<String>>,
    loads: Mutex<Vec<std::sync::Arc<Progress>>>,
}

impl<'a> Work<'a> {
    pub fn new(plan: &'a Plan, hosts: &'a Hosts) -> Work<'a> {
        let (enough, was_full, failure, loads) = Default::default();
        Work { plan, hosts, enough, was_full, failure, loads }
    }

    /// Loads are to come to an end.
    pub fn stop(&self) {
        self.enough.store(true, Ordering::Relaxed);
        // Programs look for it.
        if let Err(error) = std::fs::write(self.hosts.path("stop"), "") {
            self.tell(&format!("telling programs that it is enough: {error}"));
        }
    }

    pub fn is_over(&self) -> bool {
        self.enough.load(Ordering::Relaxed)
    }

    /// Somebody fills the pool from now on: others may be told that there is no room.
    pub fn fill(&self) {
        self.was_full.store(true, Ordering::Relaxed);
    }

    /// There may be no room, or have been none.
    pub fn was_full(&self) -> bool {
        self.was_full.load(Ordering::Relaxed)
    }

    /// Notes the first thing that went wrong, and ends the run.
    pub fn fail(&self, why: String) {
        let mut failure = self.failure.lock().unwrap();
        if failure.is_none() {
            self.tell(&format!("FAILED: {why}"));
            *failure = Some(why);
        }
        self.stop();
    }

    /// What went wrong.
    pub fn failure(&self) -> Outcome {
        self.failure.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    /// A line for whoever watches.
    pub fn tell(&self, what: &str) {
        let at = self.plan.begun.elapsed();
        eprintln!("{:4}.{} s  {what}", at.as_secs(), at.subsec_millis() / 100);
    }

    /// A new load.
    pub fn progress(&self, name: &str) -> std::sync::Arc<Progress> {
        let last = Mutex::new((Instant::now(), Duration::ZERO));
        let progress = Progress { name: name.into(), done: AtomicU64::new(0), last };
        let progress = std::sync::Arc::new(progress);
        self.loads.lock().unwrap().push(progress.clone());
        progress
    }

    /// Waits until each load has done something after now.
    pub fn until_further(&self) -> Outcome {
        let loads = self.loads.lock().unwrap().clone();
        let known: Vec<u64> = loads.iter().map(|load| load.done()).collect();
        let begun = Instant::now();
        for (load, known) in loads.iter().zip(known) {
            while load.done() < known + 2 {
                self.failure()?;
                if begun.elapsed() > STANDSTILL {
                    return Err(format!("{} stands still, though everything is whole", load.name));
                }
                thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }

    /// What each load did.
    pub fn report(&self) -> String {
        let line = |load: &std::sync::Arc<Progress>| {
            let longest = load.longest().as_secs_f64();
            format!("{}: {} operations, the longest wait {longest:.1} s", load.name, load.done())
        };
        self.loads.lock().unwrap().iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Connects this thread, which is on a client's host from now on.
    pub fn connect(&self, role: Role) -> Outcome<Client> {
        self.hosts.enter(self.hosts.client_host());
        let (secret, timeout) = match role {
            Role::User => ("token", Patience::Hard.limit()),
            Role::Administrator => ("admin-token", Duration::from_secs(10)),
        };
        let token = std::fs::read(self.hosts.path(secret)).map_err(|error| error.to_string())?;
        let engines = 0..self.plan.engines();
        let engines = engines.map(|at| Address::Tcp(self.hosts.reach(at))).collect();
        let mut options = ConnectOptions::new(SystemAddress { engines, token });
        (options.tcp_only, options.timeout) = (true, timeout);
        loop {
            match Client::connect(options.clone()) {
                Ok(client) => return Ok(client),
                // Nobody listens at the moment.
                Err(error) => {
                    self.failure()?;
                    self.tell(&format!("connecting: {error}"));
                    thread::sleep(Duration::from_millis(500));
                }
            }
        }
    }

    /// Connects this thread and opens a container.
    pub fn open(&self, cont: &str) -> Outcome<Container> {
        let client = self.connect(Role::User)?;
        let name = |text: &str| Name::Label(text.into());
        let opened = client.block_on(async {
            let pool = client.pool_open(&name(POOL), OpenMode::ReadWrite).await?;
            pool.cont_open(&name(cont), OpenMode::ReadWrite).await
        });
        opened.map_err(when(|| format!("opening {cont}")))
    }

    /// Connects this thread and mounts a container.
    pub fn mount(&self, cont: &str) -> Outcome<(Client, Sys)> {
        let cont = self.open(cont)?;
        let client = cont.client().clone();
        let mounted = client.block_on(Dfs::mount(&cont, MountFlags::NONE, Credentials::root()));
        let fs = mounted.map_err(when(|| format!("mounting {}", cont.info().label)))?;
        Ok((client, Sys::new(fs)))
    }
}
