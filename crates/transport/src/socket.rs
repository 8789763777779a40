//! Streams over sockets, and the hub through which a thread's small frames leave.
//!
//! A system call costs as much as the rest of a small request. So what is written while futures
//! run is kept if it is small, and what was kept for one connection leaves together when they
//! have run, when something large follows, or with the first frame that comes
//! [`KEEP_TIME_MAX`] after one that waits. And a read that leaves room in its buffers has taken
//! all there is: the next one waits for the kernel to say that more has come.
//!
//! Invariants: bytes leave in the order they were written in. What was kept and the socket does
//! not take leaves as soon as it does, whether or not anybody writes or waits.

use env::{Env, FdWatch, Source};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{OwnedFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use types::{Code, Error, Result};

/// Bytes read ahead from a socket.
const READ_AHEAD_BYTES: usize = 16 << 10;
/// Larger writes are not kept.
const KEPT_WRITE_BYTES_MAX: usize = 4 << 10;
/// Most bytes kept for a connection.
const KEPT_BYTES_MAX: usize = 16 << 10;
/// What was kept this long leaves with the next frame, if the futures still run.
const KEEP_TIME_MAX: Duration = Duration::from_micros(20);
/// Parts of one write beside what was kept.
const PART_COUNT_MAX: usize = 64;

/// A TCP or Unix stream socket.
pub(crate) struct SocketStream {
    hub: Rc<Hub>,
    end: Rc<End>,
}

/// One end of a connection.
struct End {
    watch: FdWatch,
    ahead: RefCell<ReadAhead>,
    /// A read that is short has taken all there was.
    gives_all: bool,
    closed: Cell<bool>,
    /// A reader waits for a message, not for bulk, and nothing is read ahead.
    awaits_frame: Cell<bool>,
    /// Written by futures, not by us yet.
    kept: RefCell<Vec<u8>>,
    /// It stands in [`Hub::due`].
    is_due: Cell<bool>,
    /// It stands in [`Hub::stuck`].
    is_stuck: Cell<bool>,
    /// Writing what was kept failed.
    broken: Cell<Option<Errno>>,
}

struct ReadAhead {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

/// All socket connections of a thread that have something to send.
#[derive(Default)]
struct Hub {
    holding: Cell<bool>,
    due: RefCell<Vec<Rc<End>>>,
    /// When the first of them became due.
    since: Cell<Option<Instant>>,
    /// Those whose socket has not taken all.
    stuck: RefCell<Vec<Rc<End>>>,
}

/// The hub as the run loop's source.
struct HubSource(Rc<Hub>);

/// Holds the registration, so that it happens once per thread.
struct Registered(Rc<Hub>);

impl Hub {
    /// The hub of this thread.
    fn of(env: &Env) -> Result<Rc<Hub>> {
        let registered = env.extension(|| {
            let hub = Rc::<Hub>::default();
            env.add_source(Rc::new(HubSource(hub.clone())))?;
            Ok(Registered(hub))
        })?;
        Ok(registered.0.clone())
    }

    /// Something was kept for `end`: it leaves soon.
    fn note(&self, end: &Rc<End>) {
        if !end.is_due.replace(true) {
            self.due.borrow_mut().push(end.clone());
        }
        match self.since.get() {
            None => self.since.set(Some(Instant::now())),
            Some(since) if since.elapsed() > KEEP_TIME_MAX => self.flush(),
            Some(_) => {}
        }
    }

    /// Sends what was kept.
    fn flush(&self) {
        if self.since.take().is_some() {
            let mut due = self.due.borrow_mut();
            for end in due.drain(..) {
                end.is_due.set(false);
                if !end.flush() && !end.is_stuck.replace(true) {
                    self.stuck.borrow_mut().push(end);
                }
            }
        }
    }
}

impl Source for HubSource {
    fn poll(&self) -> bool {
        if self.0.stuck.borrow().is_empty() {
            return false;
        }
        let mut stuck = self.0.stuck.borrow_mut();
        let before = stuck.len();
        stuck.retain(|end| {
            let stays = !end.flush();
            end.is_stuck.set(stays);
            stays
        });
        stuck.len() < before
    }

    fn arm(&self) -> bool {
        false
    }

    fn disarm(&self) {}

    fn fd(&self) -> Option<RawFd> {
        None
    }

    fn hold(&self) {
        self.0.holding.set(true);
    }

    fn release(&self) {
        self.0.holding.set(false);
        self.0.flush();
    }
}

fn is_retry(errno: Errno) -> bool {
    errno == Errno::WOULDBLOCK || errno == Errno::INTR
}

fn broken(errno: Errno) -> Error {
    Error::new(Code::Closed, format!("the connection broke: {errno}"))
}

impl End {
    /// Sends what was kept and then `parts`, once; the bytes of `parts` that were taken.
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let mut kept = self.kept.borrow_mut();
        if kept.is_empty() {
            return send_parts(&self.watch, parts);
        }
        let mut all = [IoSlice::new(&[]); PART_COUNT_MAX + 1];
        let count = parts.len().min(PART_COUNT_MAX);
        all[0] = IoSlice::new(&kept);
        all[1..=count].copy_from_slice(&parts[..count]);
        let sent = send_parts(&self.watch, &all[..=count])?;
        let of_kept = sent.min(kept.len());
        kept.drain(..of_kept);
        Ok(sent - of_kept)
    }

    /// Reads ahead if somebody waits for it; whether there was something.
    fn probe(&self) -> Option<bool> {
        if !self.awaits_frame.get() {
            return None;
        }
        let mut ahead = self.ahead.borrow_mut();
        // Most looks find nothing, and to the kernel this is less work than a read of a file that is a socket.
        let flags = rustix::net::RecvFlags::DONTWAIT;
        match rustix::net::recv(self.watch.fd(), &mut ahead.bytes[..], flags) {
            Err(errno) if is_retry(errno) => return Some(false),
            Ok((count, _)) if count > 0 => {
                (ahead.start, ahead.end) = (0, count);
                if count == ahead.bytes.len() || !self.gives_all {
                    self.watch.assume_readable();
                }
                self.watch.wake_reader();
            }
            // The socket itself gives the reader the end or the error.
            _ => self.watch.assume_readable(),
        }
        self.awaits_frame.set(false);
        Some(true)
    }

    /// Sends what was kept; false when the socket does not take all of it now.
    fn flush(&self) -> bool {
        while !self.kept.borrow().is_empty() {
            if !self.watch.is_writable() {
                return false;
            }
            match self.send(&[]) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => self.watch.clear_writable(),
                Err(errno) => {
                    // Readers hear of it from the socket, writers from us.
                    self.broken.set(Some(errno));
                    self.kept.borrow_mut().clear();
                }
            }
        }
        true
    }
}

impl SocketStream {
    /// A stream over a connected nonblocking socket, beginning with bytes read before.
    pub fn new(env: &Env, fd: OwnedFd, early: &[u8]) -> Result<SocketStream> {
        let mut bytes = vec![0; READ_AHEAD_BYTES.max(early.len())].into_boxed_slice();
        bytes[..early.len()].copy_from_slice(early);
        // A Unix socket stops a read where descriptors were sent, with more behind.
        let gives_all = rustix::net::sockopt::socket_domain(&fd)
            .is_ok_and(|domain| domain != rustix::net::AddressFamily::UNIX);
        let hub = Hub::of(env)?;
        let end = Rc::new(End {
            watch: env.watch_fd(Rc::new(fd))?,
            ahead: RefCell::new(ReadAhead { bytes, start: 0, end: early.len() }),
            gives_all,
            closed: Cell::new(false),
            awaits_frame: Cell::new(false),
            kept: RefCell::default(),
            is_due: Cell::new(false),
            is_stuck: Cell::new(false),
            broken: Cell::new(None),
        });
        let weak = Rc::downgrade(&end);
        end.watch.probe_with(move || weak.upgrade()?.probe());
        Ok(SocketStream { hub, end })
    }

    /// Reads at least one byte; 0 means the peer has closed.
    pub fn poll_read(&self, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<Result<usize>> {
        let end = &*self.end;
        let mut ahead = end.ahead.borrow_mut();
        let ahead = &mut *ahead;
        if ahead.start < ahead.end {
            let count = out.len().min(ahead.end - ahead.start);
            out[..count].copy_from_slice(&ahead.bytes[ahead.start..ahead.start + count]);
            ahead.start += count;
            end.awaits_frame.set(false);
            return Poll::Ready(Ok(count));
        }
        if out.len() > KEPT_BYTES_MAX {
            // To copy much takes long; who waits for a small answer need not wait for it.
            self.hub.flush();
        }
        loop {
            if end.closed.get() {
                return Poll::Ready(Ok(0));
            }
            if end.watch.poll_readable(cx).is_pending() {
                end.awaits_frame.set(out.len() <= READ_AHEAD_BYTES);
                return Poll::Pending;
            }
            end.awaits_frame.set(false);
            let wanted = out.len();
            let room = wanted + ahead.bytes.len();
            let mut rooms = [IoSliceMut::new(out), IoSliceMut::new(&mut ahead.bytes)];
            match rustix::io::readv(end.watch.fd(), &mut rooms) {
                Ok(count) => {
                    if end.gives_all && count > 0 && count < room {
                        end.watch.drained();
                    }
                    let direct = count.min(wanted);
                    ahead.start = 0;
                    ahead.end = count - direct;
                    return Poll::Ready(Ok(direct));
                }
                Err(Errno::WOULDBLOCK) => end.watch.clear_readable(),
                Err(errno) if is_retry(errno) => {}
                Err(Errno::CONNRESET) => return Poll::Ready(Ok(0)),
                Err(errno) => return Poll::Ready(Err(broken(errno))),
            }
        }
    }

    /// Writes at least one byte of `parts`, which are not empty.
    pub fn poll_write(&self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        let end = &*self.end;
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        loop {
            if end.closed.get() {
                return Poll::Ready(Err(Error::new(Code::Closed, "the connection is closed")));
            }
            if let Some(errno) = end.broken.get() {
                return Poll::Ready(Err(broken(errno)));
            }
            let kept_bytes = end.kept.borrow().len();
            if self.hub.holding.get()
                && bytes <= KEPT_WRITE_BYTES_MAX
                && kept_bytes + bytes <= KEPT_BYTES_MAX
            {
                let mut kept = end.kept.borrow_mut();
                parts.iter().for_each(|part| kept.extend_from_slice(part));
                drop(kept);
                self.hub.note(&self.end);
                return Poll::Ready(Ok(bytes));
            }
            ready!(end.watch.poll_writable(cx));
            match end.send(parts) {
                // What was kept has filled the socket.
                Ok(0) => {}
                Ok(count) => return Poll::Ready(Ok(count)),
                Err(Errno::WOULDBLOCK) => end.watch.clear_writable(),
                Err(errno) if is_retry(errno) => {}
                Err(errno) => return Poll::Ready(Err(broken(errno))),
            }
        }
    }

    /// Closes both directions, after what was kept as far as the socket takes it, and wakes who
    /// waits.
    pub fn close(&self) {
        if !self.end.closed.replace(true) {
            self.end.flush();
            // The hangup this causes wakes a waiting reader and writer.
            let _ = rustix::net::shutdown(self.end.watch.fd(), rustix::net::Shutdown::Both);
        }
    }
}

impl Drop for SocketStream {
    fn drop(&mut self) {
        self.close();
    }
}

fn send_parts(watch: &FdWatch, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
    let mut control = rustix::net::SendAncillaryBuffer::default();
    let flags = rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT;
    if let [part] = parts {
        return rustix::net::send(watch.fd(), part, flags);
    }
    rustix::net::sendmsg(watch.fd(), parts, &mut control, flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::task::Waker;

    fn tcp_pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let ours = listener.accept().unwrap().0;
        ours.set_nonblocking(true).unwrap();
        (ours, theirs)
    }

    fn write(stream: &SocketStream, bytes: &[u8]) -> Poll<Result<usize>> {
        let mut cx = Context::from_waker(Waker::noop());
        stream.poll_write(&mut cx, &[IoSlice::new(bytes)])
    }

    async fn read(stream: &SocketStream, room: usize) -> Vec<u8> {
        let mut out = vec![0; room];
        let count = std::future::poll_fn(|cx| stream.poll_read(cx, &mut out)).await.unwrap();
        out.truncate(count);
        out
    }

    /// A socket that keeps the borders between writes shows what left together.
    #[test]
    fn small_frames_of_a_round_leave_together_and_in_order() {
        let env = Env::real().unwrap();
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
                .unwrap();
        let stream = SocketStream::new(&env, ours, &[]).unwrap();
        let received = || {
            let mut out = vec![0; 1 << 16];
            rustix::io::read(&theirs, &mut out[..]).ok().map(|count| out[..count].to_vec())
        };
        // Outside of a round at once: nobody comes by later.
        assert!(write(&stream, b"alone").is_ready());
        assert_eq!(received().unwrap(), b"alone");
        env.block_on(async {
            assert!(write(&stream, b"one").is_ready());
            assert_eq!(received(), None);
            assert!(write(&stream, b"two").is_ready());
        });
        let together = received().unwrap();
        // Unless the machine took its time between the two.
        assert!(together == b"onetwo" || (together == b"one" && received().unwrap() == b"two"));
        // Something large goes at once, behind what was kept.
        env.block_on(async {
            assert!(write(&stream, b"first").is_ready());
            let large = [7; KEPT_WRITE_BYTES_MAX + 1];
            assert!(write(&stream, &large).is_ready());
            assert_eq!(received().unwrap(), [b"first".as_slice(), &large].concat());
        });
        // And so does what a long future leaves behind, with the next frame.
        env.block_on(async {
            assert!(write(&stream, b"early").is_ready());
            std::thread::sleep(KEEP_TIME_MAX * 2);
            assert!(write(&stream, b"late").is_ready());
            assert_eq!(received().unwrap(), b"earlylate");
        });
        // Nothing that was taken is lost by closing.
        env.block_on(async {
            assert!(write(&stream, b"farewell").is_ready());
            stream.close();
            assert_eq!(received().unwrap(), b"farewell");
            assert!(matches!(write(&stream, b"x"), Poll::Ready(Err(_))));
        });
        drop(stream);
        env.clear();
    }

    /// A reader that takes a short read for the end of what there is must not take the event of
    /// the last bytes for theirs alone: the end may have come with them.
    #[test]
    fn the_end_is_seen_behind_the_last_bytes() {
        let env = Env::real().unwrap();
        for round in 0..100 {
            let (ours, mut theirs) = tcp_pair();
            let stream = SocketStream::new(&env, ours.into(), &[]).unwrap();
            assert!(stream.end.gives_all);
            theirs.write_all(b"hello").unwrap();
            if round % 2 == 0 {
                // Both are there before the first look.
                drop(theirs);
                env.turn(Some(Duration::ZERO));
                assert_eq!(env.block_on(read(&stream, 100)), b"hello");
            } else {
                assert_eq!(env.block_on(read(&stream, 100)), b"hello");
                theirs.write_all(b"again").unwrap();
                assert_eq!(env.block_on(read(&stream, 3)), b"aga");
                drop(theirs);
                assert_eq!(env.block_on(read(&stream, 100)), b"in");
            }
            assert_eq!(env.block_on(read(&stream, 100)), b"");
        }
        env.clear();
    }

    /// What the run loop reads while a reader waits comes before what the reader reads itself, and
    /// the end comes last.
    #[test]
    fn what_was_read_while_waiting_arrives_in_order() {
        const ROUNDS: usize = 2000;
        let env = Env::real().unwrap();
        let (ours, mut theirs) = tcp_pair();
        let stream = SocketStream::new(&env, ours.into(), &[]).unwrap();
        let bytes_of = |round: usize| 1 + round * 37 % 5000;
        let answers = std::thread::spawn(move || {
            for round in 0..ROUNDS {
                let mut question = [0];
                theirs.read_exact(&mut question).unwrap();
                theirs.write_all(&vec![round as u8; bytes_of(round)]).unwrap();
            }
        });
        env.block_on(async {
            for round in 0..ROUNDS {
                assert!(write(&stream, b"?").is_ready());
                let (mut missing, mut room) = (bytes_of(round), 8);
                while missing > 0 {
                    let got = read(&stream, missing.min(room)).await;
                    assert!(!got.is_empty() && got.iter().all(|&byte| byte == round as u8));
                    missing -= got.len();
                    room = usize::MAX;
                }
            }
            answers.join().unwrap();
            assert_eq!(read(&stream, 1).await, b"");
        });
        drop(stream);
        env.clear();
    }

    /// The writer of a kept frame has gone when the socket turns out to be full.
    #[test]
    fn what_a_full_socket_does_not_take_leaves_later_by_itself() {
        let env = Env::real().unwrap();
        let (ours, mut theirs) = tcp_pair();
        let stream = SocketStream::new(&env, ours.into(), &[]).unwrap();
        let mut sent = 0;
        env.block_on(async {
            while let Poll::Ready(count) = write(&stream, &[1; 1 << 16]) {
                sent += count.unwrap();
            }
            for _ in 0..3 {
                let count = write(&stream, &[2; KEPT_WRITE_BYTES_MAX]);
                assert!(matches!(count, Poll::Ready(Ok(KEPT_WRITE_BYTES_MAX))));
            }
        });
        let kept = 3 * KEPT_WRITE_BYTES_MAX;
        assert_eq!(stream.hub.stuck.borrow().len(), 1);
        let reader = std::thread::spawn(move || {
            let mut all = vec![0; sent + kept];
            theirs.read_exact(&mut all).unwrap();
            all
        });
        while !reader.is_finished() {
            env.turn(Some(Duration::from_millis(10)));
        }
        let all = reader.join().unwrap();
        assert!(all[..sent].iter().all(|&byte| byte == 1));
        assert!(all[sent..].iter().all(|&byte| byte == 2));
        assert!(stream.hub.stuck.borrow().is_empty());
        drop(stream);
        env.clear();
    }
}
