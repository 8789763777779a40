//! The catalog in etcd, for systems that outlive any one machine (see `session`).
//!
//! Requests go over etcd's JSON gateway from one thread, one after the other: they are rare, and
//! waiting for them must not hold up the engine. The thread ends with the value; it gives up the
//! lease then, so that another engine can take over at once. Who may become the writer stands for
//! election (see `election`).

mod answers;
mod certificates;
mod election;
mod gateway;
mod lease;
mod session;

pub use answers::parse_all;
pub use election::{Candidate, ElectionNews};
pub use gateway::{EtcdAccess, check_access};

use crate::catalog::{Catalog, Change, Compare, Versioned};
use async_recursion::async_recursion as boxed;
use futures_channel::oneshot;
use futures_util::future::LocalBoxFuture;
use lease::LeaseWatch;
use session::Session;
use std::fmt;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use types::{Code, Error, Result};
use uuid::Uuid;
use wire::map::EngineInfo;

/// Where the catalog is, and who writes it.
#[derive(Clone)]
pub struct EtcdConfig {
    pub access: EtcdAccess,
    /// All keys of the system begin with this and a colon: other systems have other prefixes. Letters,
    /// digits and `-_./`.
    pub prefix: String,
    /// Identity of the engine. It takes over from its own earlier run at the same address without waiting; from another one
    /// of its identity, whose directory was copied, as from any other engine.
    pub engine: Uuid,
    /// Where it runs, for messages.
    pub host: String,
    /// How others reach it while it is the writer.
    pub at: Option<EngineInfo>,
    /// A random number.
    pub run: u64,
    /// How long another engine has after its last sign of life until this one takes over, whole
    /// seconds.
    pub lease: Duration,
    /// How long to wait at the opening for another engine to go.
    pub wait: Duration,
    /// How long a request may take, with all attempts.
    pub deadline: Duration,
    /// How long one attempt at one member may take.
    pub attempt_time: Duration,
}

impl EtcdConfig {
    /// The usual times: a lease of 10 s, 30 s for another engine to go, 20 s for a request, 8 s for
    /// an attempt.
    pub fn new(access: EtcdAccess, prefix: &str, engine: Uuid, host: &str, run: u64) -> EtcdConfig {
        EtcdConfig {
            access,
            prefix: prefix.to_string(),
            engine,
            host: host.to_string(),
            at: None,
            run,
            lease: Duration::from_secs(10),
            wait: Duration::from_secs(30),
            deadline: Duration::from_secs(20),
            attempt_time: Duration::from_secs(8),
        }
    }
}

type Answer<T> = oneshot::Sender<Result<T>>;

enum Job {
    Get(String, Answer<Option<Versioned>>),
    List(String, Answer<Vec<(String, Versioned)>>),
    Commit(Vec<Compare>, Vec<Change>, Answer<bool>),
    /// Be the writer no more, and let others try for so long.
    GiveUp(Duration),
    /// Be the writer no more, and stand for nothing.
    Leave,
}

/// A job, for the writer of which term, and when its time is up.
type Queued = (u64, Instant, Job);

/// A catalog in etcd, and the one that may write it.
pub struct EtcdCatalog {
    jobs: mpsc::Sender<Queued>,
    term: u64,
    deadline: Duration,
    lease: LeaseWatch,
    // Behind the queue, which tells the thread to end.
    _thread: OwnThread,
}

/// A thread that is waited for when this goes: a program that ends before it has left has others wait for the end of its lease.
#[derive(Default)]
struct OwnThread(Option<JoinHandle<()>>);

impl Drop for OwnThread {
    fn drop(&mut self) {
        if self.0.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("catalog: its thread has panicked");
        }
    }
}

impl EtcdCatalog {
    /// Becomes the writer of the catalog, until this is dropped: that waits until etcd has been told, some seconds at most.
    ///
    /// Errors: `Busy` while another engine is, `Unreach` when no member can be reached, `NoPerm` when etcd refuses
    /// the user, `Version` when another version of this program wrote the catalog, `Inval` for settings
    /// without a meaning, `Io` otherwise.
    #[boxed(?Send)]
    pub async fn open(config: EtcdConfig) -> Result<EtcdCatalog> {
        let (jobs, queue) = mpsc::channel();
        let (opened, is_open) = oneshot::channel();
        let deadline = config.deadline;
        let thread = std::thread::Builder::new()
            .name("catalog".to_string())
            .spawn(move || run(config, opened, &queue))
            .map_err(|error| Error::io("starting the catalog's thread", error))?;
        let (term, lease) = is_open.await.map_err(|_| gone())??;
        Ok(EtcdCatalog { jobs, term, deadline, lease, _thread: OwnThread(Some(thread)) })
    }

    fn ask<T: 'static>(
        &self,
        job: impl FnOnce(Answer<T>) -> Job,
    ) -> LocalBoxFuture<'static, Result<T>> {
        let (answer, answered) = oneshot::channel();
        let sent = self.jobs.send((self.term, Instant::now() + self.deadline, job(answer)));
        Box::pin(async move {
            sent.map_err(|_| gone())?;
            answered.await.map_err(|_| gone())?
        })
    }
}

fn gone() -> Error {
    Error::new(Code::Busy, "this engine serves the catalog no more")
}

fn run(config: EtcdConfig, opened: Answer<(u64, LeaseWatch)>, queue: &mpsc::Receiver<Queued>) {
    let beat = config.lease / 3;
    match Session::open(config) {
        Ok(mut session) => {
            let term = session.fence();
            // Whoever waited has gone: so does the queue's other end.
            let _ = opened.send(Ok((term, session.watch())));
            // One that is lost says so to all who ask, to the end.
            if serve(&mut session, term, beat, queue) == Served::Lost {
                while let Ok((.., job)) = queue.recv() {
                    carry_out(&mut session, job, Instant::now());
                }
            }
        }
        Err(error) => drop(opened.send(Err(error))),
    }
}

/// Why a writer's work is over.
#[derive(PartialEq, Eq)]
enum Served {
    /// Another has taken over.
    Lost,
    /// It is to let others try for so long.
    GivenUp(Duration),
    /// Nobody has anything to ask any more, or it is told to leave.
    Left,
}

/// Carries out what the writer of a term is asked, and keeps its lease, until one of them ends.
fn serve(
    session: &mut Session,
    term: u64,
    beat: Duration,
    queue: &mpsc::Receiver<Queued>,
) -> Served {
    let mut next_beat = Instant::now() + beat;
    let mut is_kept = true;
    while !session.is_lost() {
        let now = Instant::now();
        if now >= next_beat {
            let kept = session.keep();
            if let Err(error) = &kept
                && is_kept
            {
                tracing::warn!("catalog: keeping the lease: {error}");
            }
            is_kept = kept.is_ok();
            next_beat = Instant::now() + beat;
            continue;
        }
        match queue.recv_timeout(next_beat.saturating_duration_since(now)) {
            Ok((.., Job::Leave)) | Err(mpsc::RecvTimeoutError::Disconnected) => {
                session.end();
                return Served::Left;
            }
            Ok((of, _, Job::GiveUp(pause))) if of == term => {
                session.end();
                return Served::GivenUp(pause);
            }
            Ok((of, until, job)) if of == term => carry_out(session, job, until),
            // Dropped without an answer: see `gone`.
            Ok(_) | Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
    }
    Served::Lost
}

/// Nobody minds when who asked has gone.
fn carry_out(session: &mut Session, job: Job, until: Instant) {
    match job {
        Job::Get(key, answer) => {
            let _ = answer.send(session.get(&key, until));
        }
        Job::List(prefix, answer) => {
            let _ = answer.send(session.list(&prefix, until));
        }
        Job::Commit(compares, changes, answer) => {
            let _ = answer.send(session.commit(&compares, &changes, until));
        }
        Job::GiveUp(_) | Job::Leave => {}
    }
}

impl Catalog for EtcdCatalog {
    fn term(&self) -> u64 {
        self.term
    }

    fn is_held(&self) -> bool {
        self.lease.is_held()
    }

    fn get<'a>(&'a self, key: &'a str) -> LocalBoxFuture<'a, Result<Option<Versioned>>> {
        self.ask(|answer| Job::Get(key.to_string(), answer))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> LocalBoxFuture<'a, Result<Vec<(String, Versioned)>>> {
        self.ask(|answer| Job::List(prefix.to_string(), answer))
    }

    fn commit<'a>(
        &'a self,
        compares: &'a [Compare],
        changes: &'a [Change],
    ) -> LocalBoxFuture<'a, Result<bool>> {
        self.ask(|answer| Job::Commit(compares.to_vec(), changes.to_vec(), answer))
    }
}

impl fmt::Debug for EtcdCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdCatalog").finish_non_exhaustive()
    }
}
