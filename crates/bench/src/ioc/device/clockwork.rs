//! Models in real time: requests enter when they come, answers leave when they are due.
//!
//! One thread serves all targets; it sleeps until the next thing happens. It may wake late: the
//! models compute with the moments at which things are due, so no time is lost by that.

use super::model::{Answer, Done, Kind, Model, Request};
use super::params::Params;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Answers a request; it may take its time, no lock is held.
pub type Reply = Box<dyn FnOnce() + Send>;

/// What is asked of a target, see [`Request`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// The client: an open file.
    pub client: u64,
    pub kind: Kind,
    /// The file, by inode.
    pub file: u64,
    pub offset: u64,
    /// Number of bytes, at least 1 (but for a flush).
    pub bytes: u64,
}

/// Running targets.
pub struct Targets {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    start: Instant,
    state: Mutex<Clockwork>,
    wake: Condvar,
}

struct Clockwork {
    models: Vec<Model>,
    /// By request id, which is unique over all targets.
    pending: HashMap<u64, Reply>,
    next_id: u64,
    /// When the thread wakes by itself, nanoseconds; `u64::MAX`: not at all.
    alarm_ns: u64,
    stop: bool,
}

impl Targets {
    /// Starts so many targets.
    pub fn start(params: Params, count: u32) -> std::io::Result<Targets> {
        let state = Clockwork {
            models: (0..count).map(|_| Model::new(params)).collect(),
            pending: HashMap::new(),
            next_id: 0,
            alarm_ns: 0,
            stop: false,
        };
        let shared = Arc::new(Shared {
            start: Instant::now(),
            state: Mutex::new(state),
            wake: Condvar::new(),
        });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("storage-model".to_string())
            .spawn(move || theirs.serve())?;
        Ok(Targets { shared, thread: Some(thread) })
    }

    /// Asks a target; `reply` is called once, when the model says so, perhaps before this
    /// returns. A target that there is not answers never.
    pub fn ask(&self, target: u32, ask: Ask, reply: Reply) {
        let mut state = self.shared.lock();
        let now_ns = self.shared.now_ns();
        state.next_id += 1;
        let id = state.next_id;
        state.pending.insert(id, reply);
        let Ask { client, kind, file, offset, bytes } = ask;
        let mut answers = Vec::new();
        if let Some(model) = state.models.get_mut(target as usize) {
            let request = Request { id, client, kind, file, offset, bytes };
            model.submit(now_ns, request, &mut answers);
        }
        let due = state.take(&answers);
        let sleeps_too_long = state.next_ns() < state.alarm_ns;
        drop(state);
        if sleeps_too_long {
            self.shared.wake.notify_one();
        }
        for reply in due {
            reply();
        }
    }

    /// Forgets a client that will ask for nothing more.
    pub fn close(&self, target: u32, client: u64) {
        if let Some(model) = self.shared.lock().models.get_mut(target as usize) {
            model.close(client);
        }
    }

    /// What each target has done so far.
    pub fn done(&self) -> Vec<Done> {
        self.shared.lock().models.iter().map(Model::done).collect()
    }
}

impl Drop for Targets {
    /// Requests that are not yet answered are dropped.
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic in a reply has been reported by the thread itself.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Clockwork> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn serve(&self) {
        let mut state = self.lock();
        while !state.stop {
            let now_ns = self.now_ns();
            let mut answers = Vec::new();
            for model in &mut state.models {
                model.advance(now_ns, &mut answers);
            }
            let due = state.take(&answers);
            if !due.is_empty() {
                drop(state);
                for reply in due {
                    reply();
                }
                state = self.lock();
                continue;
            }
            state.alarm_ns = state.next_ns();
            state = match state.alarm_ns {
                u64::MAX => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                alarm_ns => {
                    let pause = Duration::from_nanos(alarm_ns.saturating_sub(self.now_ns()));
                    self.wake.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl Clockwork {
    fn take(&mut self, answers: &[Answer]) -> Vec<Reply> {
        answers.iter().filter_map(|answer| self.pending.remove(&answer.id)).collect()
    }

    fn next_ns(&self) -> u64 {
        self.models.iter().filter_map(Model::next_ns).min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn every_reply_is_called_once_on_every_target() {
        let fast = Params { rate_bytes_per_s: 1 << 30, seek_ns: 1000, ..Params::default() };
        let targets = Targets::start(fast, 2).unwrap();
        let (send, receive) = mpsc::channel();
        for number in 0..40u64 {
            let send = send.clone();
            let client = number % 4;
            let kind = if number < 36 { Kind::Write } else { Kind::Flush };
            let bytes = if kind == Kind::Flush { 0 } else { 64 << 10 };
            let ask = Ask { client, kind, file: client, offset: number / 4 * (64 << 10), bytes };
            let reply = Box::new(move || send.send(number).unwrap());
            targets.ask((client % 2) as u32, ask, reply);
        }
        drop(send);
        let mut seen: Vec<u64> = receive.iter().collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..40).collect::<Vec<u64>>());
        let done = targets.done();
        assert_eq!(done.iter().map(|done| done.bytes).collect::<Vec<_>>(), [18 * (64 << 10); 2]);
        for client in 0..4 {
            targets.close((client % 2) as u32, client);
        }
    }

    #[test]
    fn what_is_not_answered_is_dropped_with_the_targets() {
        let slow = Params { rate_bytes_per_s: 1 << 10, ..Params::default() };
        let targets = Targets::start(slow, 1).unwrap();
        let (send, receive) = mpsc::channel();
        let ask = Ask { client: 1, kind: Kind::Read, file: 1, offset: 0, bytes: 1 << 20 };
        targets.ask(0, ask, Box::new(move || send.send(()).unwrap()));
        drop(targets);
        assert!(receive.recv().is_err());
    }
}
