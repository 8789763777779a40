//! Election of the catalog's writer among engines.
//!
//! Every candidate looks now and then who the writer is, and tries to take over when there is none.
//! One that has been the writer and is not any more goes on as a candidate.

use super::session::{LeaderDf, Session};
use super::{EtcdCatalog, EtcdConfig, Job, OwnThread, Queued, Served, serve};
use async_recursion::async_recursion as boxed;
use futures_channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures_channel::oneshot;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use types::{Error, Result};
use wire::map::EngineInfo;

/// Longest pause between two looks at who the writer is.
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(1);

/// What a candidate hears.
#[derive(Debug)]
pub enum ElectionNews {
    /// It is the writer of the catalog.
    Elected(EtcdCatalog),
    /// It is the writer no more. Whoever is may be heard next.
    Lost,
    /// Another one is the writer; how to reach it, if it says so.
    Follow(Option<EngineInfo>),
    /// etcd gives no answer, or refuses: who the writer is, is not known.
    Away(Error),
}

/// An engine that stands for election, until this is dropped.
#[derive(Debug)]
pub struct Candidate {
    jobs: mpsc::Sender<Queued>,
    ended: oneshot::Receiver<()>,
}

impl Candidate {
    /// Stands for election, from a thread of its own; what it hears comes in order. Takes no time.
    pub fn stand(config: EtcdConfig) -> Result<(Candidate, UnboundedReceiver<ElectionNews>)> {
        let (jobs, queue) = mpsc::channel();
        let (news, heard) = unbounded();
        let (ending, ended) = oneshot::channel::<()>();
        let campaign = Campaign { config, news, jobs: jobs.clone(), told: None };
        std::thread::Builder::new()
            .name("catalog".to_string())
            .spawn(move || {
                campaign.run(&queue);
                drop(ending);
            })
            .map_err(|error| Error::io("starting the catalog's thread", error))?;
        Ok((Candidate { jobs, ended }, heard))
    }

    /// The writer of a term is it no more, and lets others try for so long before it stands again. It hears
    /// [`ElectionNews::Lost`]. One of another term goes on.
    pub fn give_up(&self, term: u64, pause: Duration) {
        let _ = self.jobs.send((term, Instant::now(), Job::GiveUp(pause)));
    }

    /// Stands no more; whoever is the writer gives up the lease, so that another can take over at
    /// once. Ends when that is done.
    #[boxed(?Send)]
    pub async fn leave(&mut self) {
        let _ = self.jobs.send((0, Instant::now(), Job::Leave));
        let _ = (&mut self.ended).await;
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        let _ = self.jobs.send((0, Instant::now(), Job::Leave));
    }
}

/// What was last said of who the writer is.
#[derive(PartialEq)]
enum Told {
    Follow(LeaderDf),
    Away(String),
}

/// Waits so long; false when it is told to leave meanwhile.
fn is_to_stand_after(pause: Duration, queue: &mpsc::Receiver<Queued>) -> bool {
    let next = Instant::now() + pause;
    loop {
        match queue.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok((.., Job::Leave)) | Err(RecvTimeoutError::Disconnected) => return false,
            // For an earlier term; dropped without an answer.
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => return true,
        }
    }
}

struct Campaign {
    config: EtcdConfig,
    news: UnboundedSender<ElectionNews>,
    jobs: mpsc::Sender<Queued>,
    told: Option<Told>,
}

impl Campaign {
    fn run(mut self, queue: &mpsc::Receiver<Queued>) {
        let beat = self.config.lease / 3;
        let pause = (self.config.lease / 10).min(LOOK_PAUSE_MAX);
        loop {
            let Some(mut session) = self.win(pause, queue) else { return };
            let term = session.fence();
            let deadline = self.config.deadline;
            self.tell(ElectionNews::Elected(EtcdCatalog {
                jobs: self.jobs.clone(),
                term,
                deadline,
                lease: session.watch(),
                // This one, which goes on.
                _thread: OwnThread::default(),
            }));
            let rest = match serve(&mut session, term, beat, queue) {
                Served::Left => return,
                Served::Lost => None,
                Served::GivenUp(rest) => Some(rest),
            };
            self.told = None;
            self.tell(ElectionNews::Lost);
            // Another writer is told from this one by its run.
            self.config.run = self.config.run.wrapping_add(1);
            if rest.is_some_and(|rest| !is_to_stand_after(rest, queue)) {
                return;
            }
        }
    }

    /// Tries until it is the writer; `None` when it is told to leave.
    fn win(&mut self, pause: Duration, queue: &mpsc::Receiver<Queued>) -> Option<Session> {
        let mut session = None;
        loop {
            let outcome = match &mut session {
                None => Session::new(self.config.clone()).and_then(|new| {
                    let new = session.insert(new);
                    new.take_over()
                }),
                Some(session) => session.take_over(),
            };
            match outcome {
                Ok(None) => return session,
                Ok(Some(leader)) => {
                    self.tell_once(Told::Follow(leader.clone()), || ElectionNews::Follow(leader.at))
                }
                Err(error) => self
                    .tell_once(Told::Away(error.to_string()), || ElectionNews::Away(error.clone())),
            }
            if !is_to_stand_after(pause, queue) {
                return None;
            }
        }
    }

    fn tell_once(&mut self, what: Told, news: impl FnOnce() -> ElectionNews) {
        if self.told.as_ref() != Some(&what) {
            self.told = Some(what);
            self.tell(news());
        }
    }

    /// Nobody hears it when the engine is ending; then it is told to leave, too.
    fn tell(&self, news: ElectionNews) {
        let _ = self.news.unbounded_send(news);
    }
}
