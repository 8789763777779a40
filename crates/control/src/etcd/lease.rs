//! Keeps the writer's lease, from a thread of its own.
//!
//! The writer's requests go one after the other. Where etcd is slow, a lease that was kept between them would end: with
//! answers of five seconds two requests take as long as it lasts.

use super::EtcdConfig;
use super::answers::Kept;
use super::gateway::{Failure, Gateway};
use parking_lot::{Condvar, Mutex};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use types::{Error, Result};

/// What is known of the lease.
struct State {
    /// 0: there is none.
    lease: u64,
    /// Until then nobody else can have taken over, as far as clocks run alike.
    sure_until: Instant,
    /// When it was kept last, by a clock that goes on while the machine sleeps.
    kept_at: SystemTime,
    /// etcd has said that the lease has ended.
    has_ended: bool,
    /// The leader's key is bound to it.
    is_bound: bool,
    is_over: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The lease of a writer; it is kept as long as this lives.
pub struct LeaseKeeper {
    shared: Arc<Shared>,
    length: Duration,
}

impl LeaseKeeper {
    /// One without a lease yet. Errors: those of [`Gateway::new`], `Io`.
    pub fn start(config: &EtcdConfig) -> Result<LeaseKeeper> {
        let gateway = Gateway::new(config.access.clone(), config.attempt_time)?;
        let state = State {
            lease: 0,
            sure_until: Instant::now(),
            kept_at: SystemTime::now(),
            has_ended: false,
            is_bound: false,
            is_over: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let (length, attempt_time) = (config.lease, config.attempt_time);
        let of_thread = shared.clone();
        std::thread::Builder::new()
            .name("lease".to_string())
            .spawn(move || keep(&of_thread, gateway, length, attempt_time))
            .map_err(|error| Error::io("starting the thread of the catalog's lease", error))?;
        Ok(LeaseKeeper { shared, length })
    }

    /// The lease that is kept; 0: none.
    pub fn lease(&self) -> u64 {
        self.shared.state.lock().lease
    }

    /// This one is to be kept, which etcd has given or kept itself when it was asked at `asked`.
    pub fn hold(&self, lease: u64, asked: Instant) {
        let mut state = self.shared.state.lock();
        if state.lease != lease {
            (state.lease, state.sure_until) = (lease, asked + self.length);
        }
        state.sure_until = state.sure_until.max(asked + self.length);
        state.kept_at = by_the_wall(asked);
        state.has_ended = false;
        drop(state);
        self.shared.changed.notify_all();
    }

    /// None is kept any more: it was for nothing.
    pub fn release(&self) {
        self.shared.state.lock().lease = 0;
    }

    /// True while it is sure that nobody else has taken over.
    pub fn is_sure(&self) -> bool {
        let state = self.shared.state.lock();
        !state.has_ended && Instant::now() < state.sure_until
    }

    /// Whether the leader's key is bound to the lease that is kept.
    pub fn bind(&self, is_bound: bool) {
        self.shared.state.lock().is_bound = is_bound;
    }

    /// Tells others, for as long as they like, whether it is sure that nobody else has taken over.
    pub fn watch(&self) -> LeaseWatch {
        LeaseWatch { shared: self.shared.clone(), length: self.length }
    }

    /// Keeps it no more.
    pub fn end(&self) {
        self.shared.state.lock().is_over = true;
        self.shared.changed.notify_all();
    }
}

/// What a lease says to who does not keep it.
pub struct LeaseWatch {
    shared: Arc<Shared>,
    length: Duration,
}

impl LeaseWatch {
    /// True while its writer is the writer, as far as clocks run alike.
    pub fn is_held(&self) -> bool {
        let state = self.shared.state.lock();
        // One that was put back says nothing.
        let has_slept = state.kept_at.elapsed().is_ok_and(|passed| passed >= self.length);
        let is_kept = !state.has_ended && !state.is_over && Instant::now() < state.sure_until;
        state.is_bound && is_kept && !has_slept
    }
}

/// What the clock on the wall showed at a moment that is not long ago.
fn by_the_wall(at: Instant) -> SystemTime {
    let now = SystemTime::now();
    now.checked_sub(at.elapsed()).unwrap_or(now)
}

impl Drop for LeaseKeeper {
    fn drop(&mut self) {
        // The thread ends when its request is over, and nobody waits for that.
        self.end();
    }
}

/// Asks that a lease be kept; its seconds left, 0 when there is none of this number any more.
pub fn ask(gateway: &mut Gateway, lease: u64, until: Instant) -> Result<u64> {
    let body = json!({ "ID": lease.to_string() });
    let kept: Kept =
        gateway.call("/v3/lease/keepalive", &body, until).map_err(Failure::into_error)?;
    Ok(kept.result.seconds)
}

fn keep(shared: &Shared, mut gateway: Gateway, length: Duration, attempt_time: Duration) {
    let beat = length / 3;
    let mut next = Instant::now() + beat;
    loop {
        let lease = {
            let mut state = shared.state.lock();
            while !state.is_over && (state.lease == 0 || state.has_ended || Instant::now() < next) {
                if state.lease == 0 || state.has_ended {
                    shared.changed.wait(&mut state);
                } else {
                    // Whether the time is over is looked at above.
                    let _ = shared.changed.wait_until(&mut state, next);
                }
            }
            if state.is_over {
                return;
            }
            state.lease
        };
        let asked = Instant::now();
        let outcome = ask(&mut gateway, lease, asked + attempt_time);
        next = asked + beat;
        let mut state = shared.state.lock();
        if state.lease != lease {
            continue;
        }
        match outcome {
            Ok(0) => state.has_ended = true,
            Ok(_) => {
                state.sure_until = state.sure_until.max(asked + length);
                state.kept_at = by_the_wall(asked);
            }
            // The writer finds out when it is not sure any more, and says so.
            Err(error) => {
                tracing::debug!("catalog: keeping the lease: {error}");
                // No busy loop where nobody listens.
                next = Instant::now() + beat.min(Duration::from_secs(1));
            }
        }
    }
}
