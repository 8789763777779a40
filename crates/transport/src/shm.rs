//! Streams over shared memory, and the hub through which a thread polls all of its own.
//!
//! A side that goes to sleep raises its flag in every connection; who writes bytes, or makes room
//! that is waited for, rings the connection's doorbell only when the flag is up. While a thread runs its futures it does
//! not ring for each message but at the end, before it copies bulk, or with the first message that
//! comes [`RING_DELAY_MAX`] after one that waits: to wake a thread costs more than most requests, and one that is woken for
//! every message of many goes to sleep between them. Connections that have been silent
//! for a while are *parked*: their flag stays up and they are looked at rarely, so hundreds of idle
//! clients cost a target almost nothing. The Unix socket that introduced the two sides stays open;
//! its hangup tells at once when the peer is gone.

use crate::bell::{self, BellPair};
use crate::ring::{Consumer, Producer, Region, Side};
use env::{BellWatch, Env, FdWatch, Source};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::rc::{Rc, Weak};
use std::sync::atomic::{Ordering, fence};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use types::{Code, Error, Result};

/// Polls without traffic after which a connection is parked.
const IDLE_POLLS_MAX: u32 = 512;
/// Parked connections are looked at in one of this many polls, and after every sleep.
const POLLS_PER_FULL_SCAN: u32 = 64;

/// A bell that has waited this long is rung with the next message, if the futures still run.
const RING_DELAY_MAX: Duration = Duration::from_micros(20);

/// One end of a shared-memory connection.
struct End {
    side: Side,
    region: Rc<Region>,
    producer: Producer,
    consumer: Consumer,
    peer_bell: OwnedFd,
    reader: RefCell<Option<Waker>>,
    writer: RefCell<Option<Waker>>,
    /// The peer is gone or the stream was closed here.
    over: Cell<bool>,
    closed: Cell<bool>,
    parked: Cell<bool>,
    idle_polls: Cell<u32>,
    /// It stands in [`Bells::due`].
    bell_due: Cell<bool>,
}

impl End {
    fn peer(&self) -> Side {
        match self.side {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }

    /// Whether the peer sleeps. Comes after the store the peer shall see.
    fn peer_sleeps(&self) -> bool {
        fence(Ordering::SeqCst);
        self.region.sleeping(self.peer()).load(Ordering::Relaxed) != 0
    }

    /// Rings the peer's doorbell if it sleeps. Comes after the store the peer shall see.
    fn ring_peer(&self) {
        fence(Ordering::SeqCst);
        let sleeping = self.region.sleeping(self.peer());
        if sleeping.load(Ordering::Relaxed) != 0 && sleeping.swap(0, Ordering::SeqCst) != 0 {
            bell::ring(&self.peer_bell);
        }
    }

    /// Wakes whoever can go on; true if anybody can.
    fn wake_ready(&self) -> bool {
        let mut any = false;
        if self.reader.borrow().is_some() && self.consumer.has_bytes() {
            any = true;
            wake(&self.reader);
        }
        if self.writer.borrow().is_some() && self.producer.room(1) != Ok(0) {
            any = true;
            wake(&self.writer);
        }
        any
    }

    fn raise_flag(&self) {
        self.region.sleeping(self.side).store(1, Ordering::SeqCst);
    }

    fn lower_flag(&self) {
        self.region.sleeping(self.side).store(0, Ordering::Relaxed);
    }

    fn set_over(&self) {
        self.over.set(true);
        wake(&self.reader);
        wake(&self.writer);
    }
}

fn wake(slot: &RefCell<Option<Waker>>) {
    let waker = slot.borrow_mut().take();
    if let Some(waker) = waker {
        waker.wake();
    }
}

fn park_waker(slot: &RefCell<Option<Waker>>, cx: &Context<'_>) {
    match &mut *slot.borrow_mut() {
        Some(waker) => waker.clone_from(cx.waker()),
        none => *none = Some(cx.waker().clone()),
    }
}

/// Peers to be woken when the thread's futures have run.
#[derive(Default)]
pub(crate) struct Bells {
    holding: Cell<bool>,
    due: RefCell<Vec<Rc<End>>>,
    /// When the first of them became due.
    since: Cell<Option<Instant>>,
}

impl Bells {
    /// There is something new for the peer: wakes it now or soon.
    fn tell(&self, end: &Rc<End>) {
        if !end.peer_sleeps() {
            return;
        }
        if !self.holding.get() {
            return end.ring_peer();
        }
        match self.since.get() {
            None => self.since.set(Some(Instant::now())),
            Some(since) if since.elapsed() > RING_DELAY_MAX => {
                self.ring();
                return end.ring_peer();
            }
            Some(_) => {}
        }
        if !end.bell_due.replace(true) {
            self.due.borrow_mut().push(end.clone());
        }
    }

    /// Wakes all that are due: the futures have run, or one does something that takes long.
    pub fn ring(&self) {
        if self.since.take().is_some() {
            for end in self.due.borrow_mut().drain(..) {
                end.bell_due.set(false);
                end.ring_peer();
            }
        }
    }
}

/// All shared-memory connections of a thread.
pub(crate) struct Hub {
    bells: Rc<Bells>,
    ends: RefCell<Rc<Vec<Rc<End>>>>,
    polls: Cell<u32>,
    scan_due: Cell<bool>,
}

/// The hub as the run loop's source.
struct HubSource(Rc<Hub>);

/// Holds the registration, so that it happens once per thread.
struct Registered(Rc<Hub>);

impl Hub {
    /// The hub of this thread.
    pub fn of(env: &Env) -> Result<Rc<Hub>> {
        let registered = env.extension(|| {
            let hub = Rc::new(Hub {
                bells: Rc::default(),
                ends: RefCell::default(),
                polls: Cell::new(0),
                scan_due: Cell::new(false),
            });
            env.add_source(Rc::new(HubSource(hub.clone())))?;
            Ok(Registered(hub))
        })?;
        Ok(registered.0.clone())
    }

    fn add(&self, end: Rc<End>) {
        let mut ends = self.ends.borrow().to_vec();
        ends.push(end);
        self.ends.replace(Rc::new(ends));
    }

    fn remove(&self, end: &Rc<End>) {
        let mut ends = self.ends.borrow().to_vec();
        ends.retain(|other| !Rc::ptr_eq(other, end));
        self.ends.replace(Rc::new(ends));
    }

    /// Looks at a parked connection: raises the flag again if it was lowered by a ring.
    fn look_at_parked(end: &End) -> bool {
        if end.region.sleeping(end.side).load(Ordering::Relaxed) == 0 {
            end.raise_flag();
            fence(Ordering::SeqCst);
        }
        let ready = end.wake_ready();
        if ready {
            end.parked.set(false);
            end.idle_polls.set(0);
            end.lower_flag();
        }
        ready
    }
}

impl Source for HubSource {
    fn poll(&self) -> bool {
        let hub = &self.0;
        let ends = hub.ends.borrow().clone();
        let polls = hub.polls.get().wrapping_add(1);
        hub.polls.set(polls);
        let full = hub.scan_due.take() || polls.is_multiple_of(POLLS_PER_FULL_SCAN);
        let mut found = false;
        for end in ends.iter() {
            if end.parked.get() {
                found |= full && Hub::look_at_parked(end);
            } else if end.wake_ready() {
                end.idle_polls.set(0);
                found = true;
            } else {
                let idle = end.idle_polls.get() + 1;
                end.idle_polls.set(idle);
                if idle > IDLE_POLLS_MAX {
                    end.parked.set(true);
                    end.raise_flag();
                    fence(Ordering::SeqCst);
                    found |= Hub::look_at_parked(end);
                }
            }
        }
        found
    }

    fn arm(&self) -> bool {
        let ends = self.0.ends.borrow().clone();
        for end in ends.iter().filter(|end| !end.parked.get()) {
            end.raise_flag();
        }
        fence(Ordering::SeqCst);
        let mut found = false;
        for end in ends.iter() {
            if !end.parked.get() {
                found |= end.wake_ready();
            } else if end.region.sleeping(end.side).load(Ordering::Relaxed) == 0 {
                found |= Hub::look_at_parked(end);
            }
        }
        found
    }

    fn disarm(&self) {
        for end in self.0.ends.borrow().iter().filter(|end| !end.parked.get()) {
            end.lower_flag();
        }
        self.0.scan_due.set(true);
    }

    /// None: each connection's bell is watched by itself, and its event ends the sleep.
    fn fd(&self) -> Option<RawFd> {
        None
    }

    fn hold(&self) {
        self.0.bells.holding.set(true);
    }

    fn release(&self) {
        self.0.bells.holding.set(false);
        self.0.bells.ring();
    }
}

/// A byte stream over shared memory.
pub(crate) struct ShmStream {
    hub: Rc<Hub>,
    end: Rc<End>,
    socket: Rc<FdWatch>,
    /// Ends this thread's sleep.
    _own_bell: BellWatch,
}

impl ShmStream {
    /// A stream over `region`, between the peer and this thread.
    pub fn new(
        env: &Env,
        side: Side,
        region: Rc<Region>,
        bells: BellPair,
        socket: Rc<FdWatch>,
    ) -> Result<ShmStream> {
        let hub = Hub::of(env)?;
        let own_bell = bell::watch(env, bells.own)?;
        let end = Rc::new(End {
            side,
            producer: Producer::new(&region, side),
            consumer: Consumer::new(&region, side),
            region,
            peer_bell: bells.peer,
            reader: RefCell::default(),
            writer: RefCell::default(),
            over: Cell::new(false),
            closed: Cell::new(false),
            parked: Cell::new(false),
            idle_polls: Cell::new(0),
            bell_due: Cell::new(false),
        });
        hub.add(end.clone());
        env.spawn(watch_hangup(socket.clone(), Rc::downgrade(&end)));
        Ok(ShmStream { hub, end, socket, _own_bell: own_bell })
    }

    pub fn poll_read(&self, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<Result<usize>> {
        if self.end.closed.get() {
            return Poll::Ready(Ok(0));
        }
        // Read before the flag is looked at: bytes written before the peer's end still count.
        let over = self.end.over.get();
        match self.end.consumer.read(out)? {
            0 if over => Poll::Ready(Ok(0)),
            0 => {
                park_waker(&self.end.reader, cx);
                Poll::Pending
            }
            count => {
                if self.end.consumer.writer_waits() {
                    self.hub.bells.tell(&self.end);
                }
                Poll::Ready(Ok(count))
            }
        }
    }

    pub fn poll_write(&self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        if self.end.over.get() {
            return Poll::Ready(Err(Error::new(Code::Closed, "the connection is closed")));
        }
        let mut count = self.end.producer.write(parts)?;
        if count == 0 {
            self.end.producer.wait_for_room();
            count = self.end.producer.write(parts)?;
        }
        if count == 0 {
            park_waker(&self.end.writer, cx);
            return Poll::Pending;
        }
        self.hub.bells.tell(&self.end);
        Poll::Ready(Ok(count))
    }

    pub fn close(&self) {
        if !self.end.closed.replace(true) {
            let _ = rustix::net::shutdown(self.socket.fd(), rustix::net::Shutdown::Both);
            self.end.set_over();
        }
    }

    /// The thread's peers to be woken.
    pub fn bells(&self) -> &Rc<Bells> {
        &self.hub.bells
    }

    pub fn region(&self) -> &Rc<Region> {
        &self.end.region
    }

    /// True when the peer process has closed its socket or is gone; asks the kernel.
    pub fn peer_is_gone(&self) -> bool {
        is_hung_up(self.socket.fd())
    }
}

impl Drop for ShmStream {
    fn drop(&mut self) {
        self.close();
        self.hub.bells.ring();
        self.hub.remove(&self.end);
    }
}

fn is_hung_up(socket: BorrowedFd<'_>) -> bool {
    let mut raw = [0u8; 1];
    let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
    match rustix::net::recv(socket, &mut raw[..], flags) {
        Ok((_, count)) => count == 0,
        Err(Errno::WOULDBLOCK | Errno::INTR) => false,
        Err(_) => true,
    }
}

/// Notices the peer's end by the hangup of the socket. Anything the peer sends there after the
/// introduction is a breach of the protocol and counts as its end.
async fn watch_hangup(socket: Rc<FdWatch>, end: Weak<End>) {
    loop {
        socket.readable().await;
        let mut raw = [0u8; 1];
        match rustix::io::read(socket.fd(), &mut raw) {
            Err(Errno::WOULDBLOCK) => socket.clear_readable(),
            Err(Errno::INTR) => {}
            _ => break,
        }
    }
    if let Some(end) = end.upgrade() {
        end.set_over();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::Producer;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    /// A stream of this thread, the shared memory, and the bell that it rings.
    fn stream(env: &Env) -> (ShmStream, Rc<Region>, OwnedFd, OwnedFd) {
        let (_memory, region) = Region::create().unwrap();
        let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
        let bells = crate::bell::BellSet::make().unwrap();
        let bell = bells.answers.try_clone().unwrap();
        let bells = BellPair { own: bells.requests, peer: bells.answers };
        let socket = Rc::new(env.watch_fd(Rc::new(ours)).unwrap());
        let made = ShmStream::new(env, Side::Client, region.clone(), bells, socket).unwrap();
        (made, region, bell, theirs)
    }

    /// How often the bell was rung since it was last asked.
    fn rings(bell: &OwnedFd) -> u64 {
        let mut raw = [0; 8];
        match rustix::io::read(bell, &mut raw) {
            Ok(_) => u64::from_ne_bytes(raw),
            Err(_) => 0,
        }
    }

    #[test]
    fn a_peer_is_woken_once_for_the_messages_of_a_round() {
        let env = Env::real().unwrap();
        let (stream, region, bell, _theirs) = stream(&env);
        let (stream, other) = (Rc::new(stream), region.sleeping(Side::Server));
        let write = |stream: &ShmStream| {
            let mut cx = Context::from_waker(Waker::noop());
            assert!(stream.poll_write(&mut cx, &[IoSlice::new(b"hello")]).is_ready());
        };
        // Outside of a round at once: nobody comes by later.
        other.store(1, Ordering::SeqCst);
        write(&stream);
        assert_eq!(rings(&bell), 1);
        // In futures when they have run, spawned ones and the main one.
        other.store(1, Ordering::SeqCst);
        for _ in 0..2 {
            let stream = stream.clone();
            env.spawn(async move { write(&stream) });
        }
        env.turn(Some(Duration::ZERO));
        assert_eq!(rings(&bell), 1);
        other.store(1, Ordering::SeqCst);
        env.block_on(async { write(&stream) });
        assert_eq!(rings(&bell), 1, "not left to the next round");
        // Soon when they run for long, and before a long copy.
        other.store(1, Ordering::SeqCst);
        env.block_on(async {
            write(&stream);
            assert_eq!(rings(&bell), 0);
            std::thread::sleep(RING_DELAY_MAX * 2);
            write(&stream);
            assert_eq!(rings(&bell), 1);
            other.store(1, Ordering::SeqCst);
            write(&stream);
            stream.bells().ring();
            assert_eq!(rings(&bell), 1);
        });
        // Nobody is woken who is awake.
        env.block_on(async { write(&stream) });
        assert_eq!(rings(&bell), 0);
        drop(stream);
        env.clear();
    }

    /// The run loop looks at descriptors in passing, too, and once took the doorbell's event so. A
    /// connection that was parked was not looked at before the thread slept, and the message
    /// behind the bell lay there until its deadline.
    #[test]
    fn a_bell_taken_in_passing_does_not_hide_a_message() {
        let env = Env::real().unwrap();
        let (stream, region, ..) = stream(&env);
        let side = Side::Client;
        let mut cx = Context::from_waker(Waker::noop());
        let mut out = [0; 8];
        assert!(stream.poll_read(&mut cx, &mut out).is_pending());
        let source = HubSource(stream.hub.clone());
        while !stream.end.parked.get() {
            source.poll();
        }
        let peer = Producer::new(&region, Side::Server);
        assert_eq!(peer.write(&[IoSlice::new(b"hello")]).unwrap(), 5);
        let slept = region.sleeping(side).swap(0, Ordering::SeqCst);
        assert_eq!(slept, 1, "the peer rings for a parked connection");
        // The bell's event is gone; now the thread wants to sleep.
        assert!(source.arm(), "there is a message to read");
        assert!(matches!(stream.poll_read(&mut cx, &mut out), Poll::Ready(Ok(5))));
        drop(stream);
        env.clear();
    }
}
