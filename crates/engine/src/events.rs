//! The events of an engine: what it has noticed, numbered and kept.
//!
//! The control thread has the book. Others tell it through a channel. The newest events are in memory for those who ask; all are
//! on their way to a file ([`crate::event_log`]), from which the next start takes them up again.
//!
//! What may happen thousands of times a second (a caller without a token that comes again and again) is written once, and then
//! once a minute with how often it was.

use crate::event_log::{self, Writer};
use env::Env;
use futures_channel::mpsc;
use futures_util::StreamExt;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use types::{PoolId, Rank, TargetId};
use wire::event::{EVENT_TEXT_BYTES_MAX, EVENTS_TOLD_MAX, Event, EventCode, Events, Happened};

/// Events in memory.
const KEPT_MAX: usize = 4096;
/// Bytes of the texts of the events in an answer, about.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// What happens again within this is counted.
const REPEAT_TIME: Duration = Duration::from_secs(60);
/// Different things that are watched for repetitions; beyond that those of a code are one.
const REPEATS_MAX: usize = 256;

/// Tells the book; any thread may have one. Those of simulated targets tell nobody.
#[derive(Clone, Default)]
pub(crate) struct Teller(Option<mpsc::UnboundedSender<Happened>>);

impl Teller {
    /// One, and what it tells.
    pub fn new() -> (Teller, mpsc::UnboundedReceiver<Happened>) {
        let (sender, told) = mpsc::unbounded();
        (Teller(Some(sender)), told)
    }

    pub fn tell(&self, happened: Happened) {
        if let Some(sender) = &self.0 {
            // An engine that ends notes nothing more.
            let _ = sender.unbounded_send(happened);
        }
    }
}

/// What an event is about: the same again is a repetition.
type Subject = (EventCode, Option<Rank>, Option<TargetId>, Option<PoolId>, String);

/// What has happened lately and may happen again.
struct Repeat {
    /// Until then it is counted only.
    until: Duration,
    /// How often it was, beside what is written.
    count: u32,
    last: Happened,
}

#[derive(Default)]
struct Kept {
    events: VecDeque<Event>,
    /// Number of the newest; 0: none yet.
    newest: u64,
    repeats: BTreeMap<Subject, Repeat>,
    /// How often each code happened since the start.
    counts: BTreeMap<EventCode, u64>,
}

/// What an engine has noticed.
pub(crate) struct Book {
    env: Env,
    kept: RefCell<Kept>,
    writer: RefCell<Option<Writer>>,
}

/// True for what may happen in any number, without anybody having to do with it.
fn repeats(code: EventCode) -> bool {
    match code {
        EventCode::CallerRefused
        | EventCode::DamageFound
        | EventCode::DamageMended
        | EventCode::DamageStays => true,
        EventCode::EngineStarted
        | EventCode::EngineStopping
        | EventCode::EngineJoined
        | EventCode::EngineUp
        | EventCode::EngineDown
        | EventCode::EngineStopped
        | EventCode::EngineExcluded
        | EventCode::TargetUp
        | EventCode::TargetDown
        | EventCode::TargetBehind
        | EventCode::TargetUnserved
        | EventCode::TargetEnded
        | EventCode::RebuildBegun
        | EventCode::RebuildEnded
        | EventCode::SpareFull
        | EventCode::RoomLacking
        | EventCode::PoolNearFull
        | EventCode::PoolFull
        | EventCode::PoolRoom
        | EventCode::PagesAwaited
        | EventCode::DeviceSlow
        | EventCode::DeviceRecovered
        | EventCode::LogFailed
        | EventCode::CatalogAway
        | EventCode::CatalogBack
        | EventCode::ServiceTaken
        | EventCode::ServiceLost
        | EventCode::ServiceDeaf
        | EventCode::ServiceHears => false,
    }
}

fn short(mut text: String) -> String {
    if text.len() > EVENT_TEXT_BYTES_MAX {
        let end = (0..=EVENT_TEXT_BYTES_MAX).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or(0));
    }
    text
}

impl Book {
    /// A book that goes on with what is kept in the engine's directory; without one, of a simulated engine, in memory only. An
    /// engine whose events cannot be kept goes on without that.
    pub fn open(env: &Env, dir: Option<&Path>) -> Rc<Book> {
        let mut kept = Kept::default();
        let mut writer = None;
        if let Some(dir) = dir {
            match event_log::read_dir(dir) {
                Ok(events) => {
                    kept.newest = events.last().map_or(0, |event| event.number);
                    let older = events.len().saturating_sub(KEPT_MAX);
                    kept.events = events.into_iter().skip(older).collect();
                }
                Err(error) => tracing::warn!("earlier events: {error}"),
            }
            match Writer::start(dir) {
                Ok(started) => writer = Some(started),
                Err(error) => tracing::warn!("events are kept in memory only: {error}"),
            }
        }
        let (env, kept, writer) = (env.clone(), RefCell::new(kept), RefCell::new(writer));
        Rc::new(Book { env, kept, writer })
    }

    /// Notes what is told, until nobody is left to tell.
    pub async fn listen(self: Rc<Self>, mut told: mpsc::UnboundedReceiver<Happened>) {
        while let Some(happened) = told.next().await {
            self.note(happened);
        }
    }

    /// Notes something.
    pub fn note(self: &Rc<Self>, happened: Happened) {
        *self.kept.borrow_mut().counts.entry(happened.code).or_default() += 1;
        if !repeats(happened.code) {
            return self.keep(happened, 1);
        }
        let now = self.env.now();
        let Happened { code, engine, target, pool, .. } = happened;
        let mut subject = (code, engine, target, pool, happened.object.clone());
        {
            let mut kept = self.kept.borrow_mut();
            if kept.repeats.len() >= REPEATS_MAX && !kept.repeats.contains_key(&subject) {
                kept.repeats.retain(|_, repeat| repeat.until > now || repeat.count > 0);
                if kept.repeats.len() >= REPEATS_MAX {
                    subject = (code, None, None, None, String::new());
                }
            }
            if let Some(repeat) = kept.repeats.get_mut(&subject)
                && (repeat.until > now || repeat.count > 0)
            {
                repeat.count = repeat.count.saturating_add(1);
                repeat.last = happened;
                if repeat.count == 1 {
                    let (book, pause) = (self.clone(), repeat.until.saturating_sub(now));
                    self.env.spawn(async move {
                        // timer: what repeats is told of once in this time.
                        book.env.sleep(pause).await;
                        book.keep_repeated(&subject);
                    });
                }
                return;
            }
            let last = happened.clone();
            kept.repeats.insert(subject, Repeat { until: now + REPEAT_TIME, count: 0, last });
        }
        self.keep(happened, 1);
    }

    /// Writes what has happened again since it was written last.
    fn keep_repeated(&self, subject: &Subject) {
        let again = {
            let mut kept = self.kept.borrow_mut();
            let Some(repeat) = kept.repeats.get_mut(subject) else { return };
            repeat.until = self.env.now() + REPEAT_TIME;
            (repeat.last.clone(), std::mem::take(&mut repeat.count))
        };
        if again.1 > 0 {
            self.keep(again.0, again.1);
        }
    }

    fn keep(&self, happened: Happened, count: u32) {
        let mut kept = self.kept.borrow_mut();
        kept.newest += 1;
        let event = Event {
            number: kept.newest,
            time_ns: self.env.wall_ns(),
            count,
            code: happened.code.name().to_string(),
            engine: happened.engine,
            target: happened.target,
            pool: happened.pool,
            object: short(happened.object),
            what: short(happened.what),
        };
        if let Some(writer) = &*self.writer.borrow() {
            writer.write(&event);
        }
        if kept.events.len() >= KEPT_MAX {
            kept.events.pop_front();
        }
        kept.events.push_back(event);
    }

    /// Events after one, of a time from `since_ns` on.
    pub fn told(&self, after: u64, since_ns: u64) -> Events {
        let kept = self.kept.borrow();
        let mut bytes = 0;
        let wanted = kept.events.iter().filter(|event| event.number > after);
        let wanted = wanted.filter(|event| event.time_ns >= since_ns);
        let fitting = wanted.take(EVENTS_TOLD_MAX).take_while(|event| {
            bytes += event.what.len() + event.object.len();
            bytes <= ANSWER_BYTES_MAX
        });
        Events { events: fitting.cloned().collect(), newest: kept.newest }
    }

    /// How often each code happened since the engine's start.
    pub fn counts(&self) -> Vec<(EventCode, u64)> {
        let kept = self.kept.borrow();
        let count = |code: EventCode| kept.counts.get(&code).copied().unwrap_or(0);
        EventCode::ALL.iter().map(|&code| (code, count(code))).collect()
    }

    /// Writes what has not been written yet; what is noted from now on is in memory only.
    pub fn close(&self) {
        let repeated: Vec<Subject> = self.kept.borrow().repeats.keys().cloned().collect();
        for subject in &repeated {
            self.keep_repeated(subject);
        }
        drop(self.writer.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;

    fn refused(from: &str) -> Happened {
        Happened::new(EventCode::CallerRefused, "no token").of_object(from)
    }

    fn simulated<F: Future<Output = ()>>(test: impl FnOnce(Env) -> F) {
        let world = env::SimWorld::new(7);
        world.block_on(test(world.node("engine")));
    }

    #[test]
    fn numbers_go_on_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let env = Env::real().unwrap();
        let book = Book::open(&env, Some(dir.path()));
        assert_eq!(book.told(0, 0), Events::default());
        book.note(Happened::new(EventCode::EngineStarted, "first"));
        book.note(Happened::new(EventCode::EngineDown, "second").of_engine(Rank(2)));
        book.close();
        let book = Book::open(&env, Some(dir.path()));
        book.note(Happened::new(EventCode::EngineStarted, "third"));
        let told = book.told(0, 0);
        let numbers: Vec<u64> = told.events.iter().map(|event| event.number).collect();
        assert_eq!((numbers, told.newest), (vec![1, 2, 3], 3));
        assert_eq!(told.events[1].engine, Some(Rank(2)));
        assert_eq!(book.told(2, 0).events.len(), 1);
        assert_eq!(book.told(0, u64::MAX).events.len(), 0);
        let started = |(code, count): &(EventCode, u64)| {
            (*code == EventCode::EngineStarted).then_some(*count)
        };
        assert_eq!(book.counts().iter().find_map(started), Some(1), "since the start");
    }

    /// Somebody without a token who calls a thousand times a second would push everything else out.
    #[test]
    fn what_happens_again_and_again_is_counted() {
        simulated(|env| async move {
            let book = Book::open(&env, None);
            for _ in 0..5000 {
                book.note(refused("10.0.0.1"));
            }
            book.note(refused("10.0.0.2"));
            let counts = || -> Vec<(String, u32)> {
                let told = book.told(0, 0).events.into_iter();
                told.map(|event| (event.object, event.count)).collect()
            };
            let (one, two) = ("10.0.0.1".to_string(), "10.0.0.2".to_string());
            assert_eq!(counts(), [(one.clone(), 1), (two.clone(), 1)]);
            env.sleep(REPEAT_TIME + Duration::from_secs(1)).await;
            assert_eq!(counts()[2..], [(one.clone(), 4999)]);
            // Again in the minute after that, and once more long after.
            book.note(refused("10.0.0.1"));
            assert_eq!(counts().len(), 3);
            env.sleep(2 * REPEAT_TIME).await;
            assert_eq!(counts()[3..], [(one.clone(), 1)]);
            env.sleep(2 * REPEAT_TIME).await;
            book.note(refused("10.0.0.1"));
            assert_eq!(counts().len(), 5);
        });
    }

    #[test]
    fn many_different_ones_are_bounded() {
        simulated(|env| async move {
            let book = Book::open(&env, None);
            for at in 0..100_000 {
                book.note(refused(&format!("host{at}")));
            }
            let told = book.told(0, 0);
            assert_eq!(told.newest, REPEATS_MAX as u64 + 1);
            assert!(book.kept.borrow().repeats.len() <= REPEATS_MAX + 1);
            for _ in 0..2 * KEPT_MAX {
                book.note(Happened::new(EventCode::EngineUp, "x".repeat(5000)));
            }
            assert_eq!(book.kept.borrow().events.len(), KEPT_MAX);
            let told = book.told(0, 0);
            assert_eq!(told.events.len(), EVENTS_TOLD_MAX);
            assert_eq!(told.events[0].what.len(), EVENT_TEXT_BYTES_MAX);
            // The next ones follow those.
            let last = told.events[EVENTS_TOLD_MAX - 1].number;
            assert_eq!(book.told(last, 0).events[0].number, last + 1);
        });
    }
}
