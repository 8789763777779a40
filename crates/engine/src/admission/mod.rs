//! Admission of bulk transfers: at most so many of a pool are at work at a target at a time,
//! others wait at their clients, fairly among jobs: the I/O request coordination of Ohno, Hori and
//! Ishikawa, inside the engine.
//!
//! A transfer holds a [`Slot`] while data moves between client and device, and nothing else:
//! before that it holds nothing, after that it checks, logs and answers without a slot. So who
//! holds a slot waits for a client's data or for a device, never for another slot, for a
//! prepared transaction or for a decision; therefore there is no deadlock, whatever waits for it.
//! Where a client sets the pace, the slot *lapses* after [`CLIENT_PACE_MAX`]. Parts of
//! transactions go before all others and after [`PREPARE_WAIT_MAX`] over the limit: their
//! coordinator must not time out.
//!
//! Off, the default, is one comparison for a bulk request and nothing for others.

mod gate;

pub(crate) use gate::{Gate, Slot, Staged};

use env::Env;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use wire::admission as settings;

/// Longest time a transfer keeps its slot while the client is to move data.
pub(crate) const CLIENT_PACE_MAX: Duration = Duration::from_secs(5);
/// Longest wait of a transaction's part. Far below the time its coordinator gives it.
pub(crate) const PREPARE_WAIT_MAX: Duration = Duration::from_secs(1);

/// Admission to one pool's share of a target.
pub(crate) struct Admission {
    version: Cell<u64>,
    pub writers: Rc<Gate>,
    pub readers: Rc<Gate>,
}

impl Admission {
    /// Lets everything in.
    pub fn new(env: &Env) -> Admission {
        Admission { version: Cell::new(0), writers: Gate::new(env), readers: Gate::new(env) }
    }

    /// Takes settings unless they are older than those in force. Transfers under way go on.
    pub fn set(&self, wanted: &settings::Admission) {
        if wanted.version < self.version.get() {
            return;
        }
        self.version.set(wanted.version);
        self.writers.set(wanted.max_writers, &wanted.weights);
        self.readers.set(wanted.max_readers, &wanted.weights);
    }

    /// Turns away who waits (`Closed`) and holds nobody from now on.
    pub fn close(&self) {
        self.writers.close();
        self.readers.close();
    }

    pub fn stat(&self) -> settings::AdmissionStat {
        settings::AdmissionStat {
            version: self.version.get(),
            writers: self.writers.stat(),
            readers: self.readers.stat(),
        }
    }
}

/// Runs work whose pace a client sets. A slot is given back when it takes too long; the work
/// goes on.
pub(crate) async fn at_clients_pace<W: Future>(
    env: &Env,
    slot: &mut Option<Slot>,
    mut work: Pin<&mut W>,
) -> W::Output {
    if slot.is_none() {
        return work.await;
    }
    if let Some(output) = env.timeout(CLIENT_PACE_MAX, work.as_mut()).await {
        return output;
    }
    if let Some(slot) = slot.take() {
        slot.lapse();
    }
    work.await
}
