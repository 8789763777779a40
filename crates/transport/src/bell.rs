//! Doorbells of a shared-memory connection. The engine makes all of them.
//!
//! | bell | the engine has | the client has |
//! |---|---|---|
//! | for requests | an eventfd that it only watches | the same eventfd, which it writes |
//! | for answers | an eventfd of its own, which it writes | an epoll descriptor in which that one is |
//!
//! Invariants: the engine never reads or writes a descriptor that a client has. Its flags (whether a
//! write waits) and its counter belong to whoever has it, so a write to it could wait for ever. Each
//! connection has its own bells: a client that empties or fills one is not woken, and nobody else
//! is concerned.
//!
//! Nobody reads a bell empty: watched edge-triggered, each write is an event, and a counter that
//! grows by one for each does not overflow in the life of a machine.

use env::Env;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fd::OwnedFd;
use types::{Error, Result};

/// The bells of a connection, as the engine makes them.
pub(crate) struct BellSet {
    /// For the engine to watch, and for the client to ring.
    pub requests: OwnedFd,
    /// For the engine to ring.
    pub answers: OwnedFd,
    /// For the client to watch.
    pub answers_seen: OwnedFd,
}

impl BellSet {
    /// New bells, on the engine's side.
    pub fn make() -> Result<BellSet> {
        let failed = |errno: rustix::io::Errno| Error::io("making doorbells", errno.into());
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let requests = eventfd(0, flags).map_err(failed)?;
        let answers = eventfd(0, flags).map_err(failed)?;
        let answers_seen = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let events = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&answers_seen, &answers, data, events).map_err(failed)?;
        Ok(BellSet { requests, answers, answers_seen })
    }
}

/// The bells of a connection, as one side uses them.
pub(crate) struct BellPair {
    /// Watched by this thread.
    pub own: OwnedFd,
    /// Rung for the peer.
    pub peer: OwnedFd,
}

/// Rings a bell. A full counter means that its owner is being woken already.
pub(crate) fn ring(bell: &OwnedFd) {
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

/// Has the thread of `env` woken by a bell.
pub(crate) fn watch(env: &Env, bell: OwnedFd) -> Result<env::BellWatch> {
    env.watch_bell(bell)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::time::Duration;

    /// What a hostile client does with every descriptor that it was given: has writes wait, empties
    /// it, fills it.
    fn abuse(fd: &OwnedFd) {
        rustix::fs::fcntl_setfl(fd, rustix::fs::OFlags::empty()).unwrap();
        let number = fd.as_raw_fd();
        for value in [u64::MAX - 1, 1] {
            // SAFETY: the descriptor is open for the whole call; an eventfd that is full is not
            // written to, because poll says so first.
            let file = std::mem::ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(number) });
            let mut fds = [rustix::event::PollFd::new(fd, rustix::event::PollFlags::OUT)];
            let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            rustix::event::poll(&mut fds, Some(&zero)).unwrap();
            if fds[0].revents().contains(rustix::event::PollFlags::OUT) {
                let _ = std::io::Write::write(&mut &*file, &value.to_ne_bytes());
            }
        }
    }

    /// A client once gave the engine a bell whose counter was full and whose writes wait: the first
    /// answer hung the target.
    #[test]
    fn whatever_a_client_does_to_its_ends_the_engine_rings_without_waiting() {
        let bells = BellSet::make().unwrap();
        abuse(&bells.requests);
        abuse(&bells.answers_seen);
        for _ in 0..1000 {
            ring(&bells.answers);
        }
        // Each ring is an event for who watches from outside, though nobody empties anything.
        let env = Env::real().unwrap();
        let watch = env.watch_fd(std::rc::Rc::new(bells.answers_seen)).unwrap();
        env.block_on(async {
            for _ in 0..3 {
                watch.clear_readable();
                // The event of having begun to watch may still come.
                env.sleep(Duration::from_millis(1)).await;
                watch.clear_readable();
                ring(&bells.answers);
                watch.readable().await;
            }
        });
        drop(watch);
        env.clear();
    }
}
