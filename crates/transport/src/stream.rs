//! Byte streams: sockets, shared memory, simulated. Everything above is written against
//! [`Stream`] and does not know which it has.
//!
//! Invariants: one reader and one writer at a time (a second one that waits would take the first
//! one's place in the wait slot). Bytes that arrived before the peer closed are still read.

use crate::shm::ShmStream;
use crate::sim::SimStream;
use crate::socket::SocketStream;
use std::io::IoSlice;
use std::task::{Context, Poll};
use types::{Code, Error, Result};

/// A byte stream in both directions.
pub(crate) enum Stream {
    Socket(SocketStream),
    Shm(ShmStream),
    Sim(SimStream),
}

impl Stream {
    /// Reads at least one byte; 0 means the peer has closed.
    pub fn poll_read(&self, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<Result<usize>> {
        match self {
            Stream::Socket(socket) => socket.poll_read(cx, out),
            Stream::Shm(shm) => shm.poll_read(cx, out),
            Stream::Sim(sim) => sim.poll_read(cx, out),
        }
    }

    /// Writes at least one byte of `parts`, which are not empty.
    pub fn poll_write(&self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        match self {
            Stream::Socket(socket) => socket.poll_write(cx, parts),
            Stream::Shm(shm) => shm.poll_write(cx, parts),
            Stream::Sim(sim) => sim.poll_write(cx, parts),
        }
    }

    /// Closes both directions and wakes who waits. Later reads and writes fail or end.
    pub fn close(&self) {
        match self {
            Stream::Socket(socket) => socket.close(),
            Stream::Shm(shm) => shm.close(),
            Stream::Sim(sim) => sim.close(),
        }
    }

    /// Reads all of `out`; `Closed` when the peer closes first.
    pub async fn read_exact(&self, out: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < out.len() {
            let count = std::future::poll_fn(|cx| self.poll_read(cx, &mut out[done..])).await?;
            if count == 0 {
                return Err(Error::new(Code::Closed, "the peer closed the connection"));
            }
            done += count;
        }
        Ok(())
    }

    /// Writes all of `bytes`.
    pub async fn write_all(&self, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let part = [IoSlice::new(&bytes[done..])];
            done += std::future::poll_fn(|cx| self.poll_write(cx, &part)).await?;
        }
        Ok(())
    }

    /// The shared-memory stream, if it is one.
    pub fn shm(&self) -> Option<&ShmStream> {
        match self {
            Stream::Shm(shm) => Some(shm),
            _ => None,
        }
    }
}

/// Calls `each` with what is left of every part after the first `from` bytes, empty ones left
/// out, until it returns false.
pub(crate) fn rest_of<'a: 'b, 'b>(
    parts: impl Iterator<Item = &'b &'a [u8]>,
    mut from: usize,
    mut each: impl FnMut(&'a [u8]) -> bool,
) {
    for part in parts {
        if from >= part.len() {
            from -= part.len();
        } else if each(&part[std::mem::take(&mut from)..]) {
            continue;
        } else {
            return;
        }
    }
}
