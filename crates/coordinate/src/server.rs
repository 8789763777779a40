//! The coordinator: one thread, one loop over all its sockets, around the state machine of
//! [`crate::queue`].
//!
//! The loop waits for sockets, reads what has come, takes the frames apart, puts them through the
//! queue of the client's group, sends the grants. Nothing happens unless something comes: an idle
//! coordinator uses no processor time.
//!
//! Nobody can hold up the others: sockets never block, each is read a little at a time, what a client does
//! not take is kept up to a bound and then it is not read any further. A stranger (nobody before a valid `HELLO`) costs
//! one small buffer for some seconds, and there are at most [`STRANGERS_MAX`] of them. A frame that is begun must end
//! soon; a client may be silent between frames as long as it likes.
//!
//! Invariants:
//! - what a client holds or waits for is given back in the same turn of the loop in which its
//!   connection is seen to have ended;
//! - bytes of a stranger change nothing but its own connection;
//! - the loop never waits for a disk: the trace is written by a thread of its own.
//!
//! Why not an asynchronous runtime: one loop over one state machine needs none, and memory per
//! client stays small (10,000 waiting clients take some tens of megabytes at most).

pub mod config;
mod conn;
mod core;
mod listen;
mod metrics;
pub mod snapshot;
#[cfg(test)]
mod tests;
pub mod trace;

pub(crate) use self::core::raise_file_limit;
pub use config::{Listen, ServerConfig};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use types::{Error, Result};

/// Most connections that have not said a valid `HELLO` yet; beyond, the oldest is closed.
pub const STRANGERS_MAX: usize = 1024;

/// A running coordinator. Dropping it stops it.
pub struct Server {
    /// Where it listens, in the order of the configuration, with the ports that were chosen.
    pub listening: Vec<Listen>,
    /// Where it answers for its metrics.
    pub metrics: Option<SocketAddr>,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<()>>>,
}

/// Stops a [`Server`] from elsewhere.
#[derive(Clone)]
pub struct Stopper(Arc<OwnedFd>);

impl Stopper {
    /// Asks the coordinator to stop; it closes all connections, and everybody goes on without it.
    pub fn stop(&self) {
        // Fails only when it was asked 2^64 times already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl Server {
    /// Opens the sockets and starts the loop in a thread of its own. Errors are those of opening
    /// sockets and files.
    pub fn start(config: &ServerConfig) -> Result<Server> {
        let io = |error: rustix::io::Errno| Error::io("starting the coordinator", error.into());
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io)?;
        let stopper = Stopper(Arc::new(wake));
        let sockets = listen::open(config)?;
        let listening = sockets.listeners.iter().map(|listener| listener.listen.clone()).collect();
        let metrics = sockets.metrics_address;
        let settings = config.groups()?;
        let token = config.token()?;
        let trace = config.trace.as_deref().map(trace::Writer::start).transpose()?;
        let parts = core::Parts {
            sockets,
            settings,
            token,
            trace,
            minimums: config.minimums(),
            clients_max: config.clients_max,
            patience: config.patience,
            wake: stopper.0.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("azk-ioc".into())
            .spawn(move || core::Core::new(parts)?.run())
            .map_err(|error| Error::io("starting the coordinator's thread", error))?;
        Ok(Server { listening, metrics, stopper, thread: Some(thread) })
    }

    /// For stopping it from another thread.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits until it ends: when it is stopped, or cannot go on.
    pub fn join(mut self) -> Result<()> {
        self.end()
    }

    /// Stops it and waits for its end.
    pub fn stop(mut self) -> Result<()> {
        self.stopper.stop();
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) => Err(Error::new(types::Code::Io, "the coordinator's thread panicked")),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Err(error) = self.end() {
            tracing::warn!("coordinator: {error}");
        }
    }
}
