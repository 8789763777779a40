//! Work for the threads of a copy.
//!
//! One thread walks the tree and adds jobs; the others take them, and may add pieces of what
//! they took. Invariants: a piece is taken before any new job, so that big files are finished
//! and not merely begun; the walker waits while many jobs are queued, the takers never wait to
//! add; `take` returns `None` only when no job can come any more.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Jobs queued before the walker waits.
const QUEUED_MAX: usize = 2048;

/// A queue of jobs, shared by threads.
pub struct Queue<J> {
    state: Mutex<Work<J>>,
    changed: Condvar,
}

struct Work<J> {
    jobs: VecDeque<J>,
    pieces: VecDeque<J>,
    /// Taken, not yet done: they may still add pieces.
    running: usize,
    /// The walker has finished.
    complete: bool,
    /// Everything stops.
    stopped: bool,
}

impl<J> Queue<J> {
    pub fn new() -> Queue<J> {
        let state = Work {
            jobs: VecDeque::new(),
            pieces: VecDeque::new(),
            running: 0,
            complete: false,
            stopped: false,
        };
        Queue { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Work<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From the walker: adds a job, waiting for room. False when everything stops.
    pub fn add(&self, job: J) -> bool {
        let mut state = self.lock();
        while state.jobs.len() >= QUEUED_MAX && !state.stopped {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.stopped {
            return false;
        }
        state.jobs.push_back(job);
        self.changed.notify_all();
        true
    }

    /// From a taker: adds pieces of the job it is at.
    pub fn add_pieces(&self, pieces: impl IntoIterator<Item = J>) {
        self.lock().pieces.extend(pieces);
        self.changed.notify_all();
    }

    /// From the walker: there will be no more jobs.
    pub fn complete(&self) {
        self.lock().complete = true;
        self.changed.notify_all();
    }

    /// Stops everything: queued jobs are dropped.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        state.jobs.clear();
        state.pieces.clear();
        self.changed.notify_all();
    }

    /// True when everything stops.
    pub fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    /// The next job, or `None` at the end. Each taken job must be followed by a `done`.
    pub fn take(&self) -> Option<J> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(job) = state.pieces.pop_front() {
                state.running += 1;
                return Some(job);
            }
            if let Some(job) = state.jobs.pop_front() {
                state.running += 1;
                self.changed.notify_all();
                return Some(job);
            }
            if state.complete && state.running == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// From a taker: the job it took is done.
    pub fn done(&self) {
        let mut state = self.lock();
        state.running -= 1;
        if state.running == 0 {
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn every_job_and_piece_is_done_once() {
        let queue = Queue::new();
        let sum = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while let Some(number) = queue.take() {
                        sum.fetch_add(number, Ordering::Relaxed);
                        // Multiples of a thousand fall into ten pieces of one.
                        if number > 0 && number % 1000 == 0 {
                            queue.add_pieces((0..10).map(|_| 1));
                        }
                        queue.done();
                    }
                });
            }
            for number in 0..=10_000 {
                assert!(queue.add(number));
            }
            queue.complete();
        });
        assert_eq!(sum.into_inner(), 10_000 * 10_001 / 2 + 100);
    }

    #[test]
    fn a_stop_frees_the_walker_and_the_takers() {
        let queue = Queue::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _ = queue.take();
                queue.stop();
                queue.done();
            });
            let mut added = 0;
            while queue.add(added) {
                added += 1;
            }
        });
        assert!(queue.is_stopped());
        assert_eq!(queue.take(), None);
    }
}
