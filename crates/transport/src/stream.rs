//! Byte streams: sockets, shared memory, simulated. Everything above is written against
//! [`Stream`] and does not know which it has.
//!
//! Invariants: one reader and one writer at a time (a second one that waits would take the first
//! one's place in the wait slot). Bytes that arrived before the peer closed are still read.

use crate::shm::ShmStream;
use crate::sim::SimStream;
use env::{Env, FdWatch};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use types::{Code, Error, Result};

/// Bytes read ahead from a socket.
const READ_AHEAD_BYTES: usize = 16 << 10;

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

/// A TCP or Unix stream socket.
pub(crate) struct SocketStream {
    watch: FdWatch,
    ahead: RefCell<ReadAhead>,
    closed: Cell<bool>,
}

struct ReadAhead {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

fn is_retry(errno: Errno) -> bool {
    errno == Errno::WOULDBLOCK || errno == Errno::INTR
}

fn broken(errno: Errno) -> Error {
    Error::new(Code::Closed, format!("the connection broke: {errno}"))
}

impl SocketStream {
    /// A stream over a connected nonblocking socket, beginning with bytes read before.
    pub fn new(env: &Env, fd: OwnedFd, early: &[u8]) -> Result<SocketStream> {
        let mut bytes = vec![0; READ_AHEAD_BYTES.max(early.len())].into_boxed_slice();
        bytes[..early.len()].copy_from_slice(early);
        Ok(SocketStream {
            watch: env.watch_fd(Rc::new(fd))?,
            ahead: RefCell::new(ReadAhead { bytes, start: 0, end: early.len() }),
            closed: Cell::new(false),
        })
    }

    fn poll_read(&self, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<Result<usize>> {
        let mut ahead = self.ahead.borrow_mut();
        let ahead = &mut *ahead;
        if ahead.start < ahead.end {
            let count = out.len().min(ahead.end - ahead.start);
            out[..count].copy_from_slice(&ahead.bytes[ahead.start..ahead.start + count]);
            ahead.start += count;
            return Poll::Ready(Ok(count));
        }
        loop {
            if self.closed.get() {
                return Poll::Ready(Ok(0));
            }
            ready!(self.watch.poll_readable(cx));
            let wanted = out.len();
            let mut rooms = [IoSliceMut::new(out), IoSliceMut::new(&mut ahead.bytes)];
            match rustix::io::readv(self.watch.fd(), &mut rooms) {
                Ok(count) => {
                    let direct = count.min(wanted);
                    ahead.start = 0;
                    ahead.end = count - direct;
                    return Poll::Ready(Ok(direct));
                }
                Err(Errno::WOULDBLOCK) => self.watch.clear_readable(),
                Err(errno) if is_retry(errno) => {}
                Err(Errno::CONNRESET) => return Poll::Ready(Ok(0)),
                Err(errno) => return Poll::Ready(Err(broken(errno))),
            }
        }
    }

    fn poll_write(&self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        loop {
            if self.closed.get() {
                return Poll::Ready(Err(Error::new(Code::Closed, "the connection is closed")));
            }
            ready!(self.watch.poll_writable(cx));
            match send_parts(&self.watch, parts) {
                Ok(count) => return Poll::Ready(Ok(count)),
                Err(Errno::WOULDBLOCK) => self.watch.clear_writable(),
                Err(errno) if is_retry(errno) => {}
                Err(errno) => return Poll::Ready(Err(broken(errno))),
            }
        }
    }

    fn close(&self) {
        if !self.closed.replace(true) {
            // The hangup this causes wakes a waiting reader and writer.
            let _ = rustix::net::shutdown(self.watch.fd(), rustix::net::Shutdown::Both);
        }
    }
}

fn send_parts(watch: &FdWatch, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
    let mut control = rustix::net::SendAncillaryBuffer::default();
    let flags = rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT;
    rustix::net::sendmsg(watch.fd(), parts, &mut control, flags)
}
