//! The simulated network: byte streams between nodes of one [`SimWorld`], with seeded delays,
//! cuts and breaks. It is found through [`SimNet::of`].
//!
//! Invariants: bytes of one stream arrive in order; streams delay independently of each other, so
//! messages of different connections overtake each other. A cut holds everything between two nodes
//! back until it heals, as a network that retransmits does; it may be of one direction. A break ends a
//! connection on both sides. A connection that one side *abandons* is over for that side; what it has
//! written arrives all the same, later.

use env::{Env, SimWorld, Sleep};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::io::IoSlice;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use types::{Code, Error, Result};

/// Bytes in flight in one direction before the writer must wait, unless it is said otherwise.
const FLIGHT_BYTES_MAX: usize = 256 << 10;
/// Writes shorter than this hold no bulk, or little of it.
const FLIP_BYTES_MIN: usize = 8 << 10;

/// How the network of a world behaves. Clones of the [`Rc`] are the same one.
pub struct SimNet {
    delay_min: Cell<Duration>,
    delay_max: Cell<Duration>,
    /// Bytes in flight in one direction before the writer must wait.
    flight_bytes_max: Cell<usize>,
    break_ppm: Cell<u32>,
    /// How much longer everything from and to a node travels.
    far: RefCell<BTreeMap<String, Duration>>,
    /// Pieces that take much longer than others, per million.
    tail_ppm: Cell<u32>,
    /// Bulk pieces still to be damaged, by sender and receiver.
    flips: RefCell<BTreeMap<(String, String), u32>>,
    cuts: RefCell<BTreeSet<(String, String)>>,
    listeners: RefCell<BTreeMap<String, Weak<Listener>>>,
    pipes: RefCell<Vec<Weak<Pipe>>>,
    handed_off: RefCell<BTreeMap<u64, SimStream>>,
    number_last: Cell<u64>,
    hooked: Cell<bool>,
}

impl Default for SimNet {
    fn default() -> SimNet {
        SimNet {
            delay_min: Cell::new(Duration::from_micros(5)),
            delay_max: Cell::new(Duration::from_micros(200)),
            flight_bytes_max: Cell::new(FLIGHT_BYTES_MAX),
            break_ppm: Cell::new(0),
            tail_ppm: Cell::new(0),
            far: RefCell::default(),
            flips: RefCell::default(),
            cuts: RefCell::default(),
            listeners: RefCell::default(),
            pipes: RefCell::default(),
            handed_off: RefCell::default(),
            number_last: Cell::new(0),
            hooked: Cell::new(false),
        }
    }
}

fn pair(a: &str, b: &str) -> (String, String) {
    (a.into(), b.into())
}

impl SimNet {
    /// The network of a world.
    pub fn of(world: &SimWorld) -> Rc<SimNet> {
        let net = world.extension::<SimNet>();
        if !net.hooked.replace(true) {
            let (weak, clock) = (Rc::downgrade(&net), world.clone());
            world.on_kill(move |name| {
                if let Some(net) = weak.upgrade() {
                    net.end_streams_of(&clock, name);
                }
            });
        }
        net
    }

    /// A node was killed: its peers see the end of its streams, whoever holds them.
    fn end_streams_of(&self, world: &SimWorld, name: &str) {
        for pipe in self.live_pipes() {
            if pipe.from == name && pipe.ends_at.get().is_none() {
                let end = world.now() + self.delay(world);
                pipe.ends_at.set(Some(end.max(pipe.arrival_last.get())));
                wake(&pipe.reader);
            }
            if pipe.to == name {
                pipe.break_off();
            }
        }
    }

    /// Sets the least and the most time a piece of data travels.
    pub fn set_delay(&self, min: Duration, max: Duration) {
        self.delay_min.set(min);
        self.delay_max.set(max.max(min));
    }

    /// Sets how much may be on its way in one direction of a connection before the writer must wait, bytes; at least one.
    pub fn set_flight_bytes_max(&self, bytes: usize) {
        self.flight_bytes_max.set(bytes.max(1));
    }

    /// Sets how much longer all that goes to a node or comes from it travels. As no more than some is under way at a time, that makes its links slow.
    pub fn set_far(&self, node: &str, longer: Duration) {
        self.far.borrow_mut().insert(node.into(), longer);
    }

    /// How much longer pieces travel between two nodes.
    fn longer(&self, pipe: &Pipe) -> Duration {
        let far = self.far.borrow();
        let of = |node: &String| far.get(node).copied().unwrap_or_default();
        if far.is_empty() { Duration::ZERO } else { of(&pipe.from) + of(&pipe.to) }
    }

    /// Sets how many of a million pieces travel up to a thousand times as long as others may.
    pub fn set_tail_ppm(&self, ppm: u32) {
        self.tail_ppm.set(ppm);
    }

    /// Sets how many of a million writes break their connection.
    pub fn set_break_ppm(&self, ppm: u32) {
        self.break_ppm.set(ppm);
    }

    /// Flips a bit in each of the next `count` pieces of bulk from one node to another: in the
    /// last byte of what is written in one go, where that is much.
    pub fn flip_bulk(&self, from: &str, to: &str, count: u32) {
        self.flips.borrow_mut().insert((from.into(), to.into()), count);
    }

    /// Pieces of bulk that are still to be damaged.
    pub fn flips_left(&self, from: &str, to: &str) -> u32 {
        self.flips.borrow().get(&(from.into(), to.into())).copied().unwrap_or(0)
    }

    fn damage(&self, pipe: &Pipe, piece: &mut [u8]) {
        let mut flips = self.flips.borrow_mut();
        if flips.is_empty() || piece.len() < FLIP_BYTES_MIN {
            return;
        }
        if let Some(left) = flips.get_mut(&(pipe.from.clone(), pipe.to.clone()))
            && *left > 0
            && let Some(last) = piece.last_mut()
        {
            *left -= 1;
            *last ^= 0x10;
        }
    }

    /// Holds back everything between two nodes.
    pub fn cut(&self, a: &str, b: &str) {
        self.cut_one_way(a, b);
        self.cut_one_way(b, a);
    }

    /// Holds back everything from one node to another.
    pub fn cut_one_way(&self, from: &str, to: &str) {
        self.cuts.borrow_mut().insert(pair(from, to));
    }

    /// Undoes cuts of either direction; what was held back goes on.
    pub fn heal(&self, a: &str, b: &str) {
        let mut cuts = self.cuts.borrow_mut();
        cuts.remove(&pair(a, b));
        cuts.remove(&pair(b, a));
        drop(cuts);
        self.wake_all();
    }

    /// Undoes all cuts, stops breaking connections and delaying them beyond the usual.
    pub fn heal_all(&self) {
        self.cuts.borrow_mut().clear();
        self.break_ppm.set(0);
        self.tail_ppm.set(0);
        self.wake_all();
    }

    /// Breaks all connections between two nodes.
    pub fn break_connections(&self, a: &str, b: &str) {
        for pipe in self.live_pipes() {
            if (pipe.from == a && pipe.to == b) || (pipe.from == b && pipe.to == a) {
                pipe.break_off();
            }
        }
    }

    /// Has `from` give up all its connections to `to`; what is on its way there arrives so much later.
    pub fn abandon_connections(&self, from: &str, to: &str, later: Duration) {
        for pipe in self.live_pipes() {
            if pipe.from == from && pipe.to == to {
                pipe.abandon(later);
            } else if pipe.from == to && pipe.to == from {
                pipe.break_off();
            }
        }
    }

    fn is_cut(&self, from: &str, to: &str) -> bool {
        let cuts = self.cuts.borrow();
        !cuts.is_empty() && cuts.contains(&pair(from, to))
    }

    fn live_pipes(&self) -> Vec<Rc<Pipe>> {
        let mut pipes = self.pipes.borrow_mut();
        pipes.retain(|pipe| pipe.strong_count() > 0);
        pipes.iter().filter_map(Weak::upgrade).collect()
    }

    fn wake_all(&self) {
        for pipe in self.live_pipes() {
            wake(&pipe.reader);
        }
    }

    fn delay(&self, world: &SimWorld) -> Duration {
        let (min, max) = (self.delay_min.get(), self.delay_max.get());
        let delay =
            min + Duration::from_nanos(world.random_u64() % ((max - min).as_nanos() as u64 + 1));
        let tail = self.tail_ppm.get();
        if tail > 0 && world.random_u64() % 1_000_000 < u64::from(tail) {
            // Each power of two is as likely as the next.
            return delay * (1 << (world.random_u64() % 11));
        }
        delay
    }

    pub(crate) fn hand_off(&self, stream: SimStream) -> u64 {
        let number = self.number_last.get() + 1;
        self.number_last.set(number);
        self.handed_off.borrow_mut().insert(number, stream);
        number
    }

    pub(crate) fn take(&self, number: u64) -> Option<SimStream> {
        self.handed_off.borrow_mut().remove(&number)
    }
}

fn wake(slot: &RefCell<Option<Waker>>) {
    let waker = slot.borrow_mut().take();
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Streams that wait to be accepted by a node.
pub(crate) struct Listener {
    queue: RefCell<VecDeque<SimStream>>,
    waiting: RefCell<Option<Waker>>,
}

impl Listener {
    /// Listens under the name of the node that `env` is.
    pub fn bind(env: &Env) -> Result<Rc<Listener>> {
        let node = sim_node(env)?;
        let net = SimNet::of(node.world());
        let name = node.name().to_string();
        let mut listeners = net.listeners.borrow_mut();
        if listeners.get(&name).is_some_and(|old| old.strong_count() > 0) {
            return Err(Error::new(Code::Busy, format!("node {name} is listening already")));
        }
        let listener = Rc::new(Listener { queue: RefCell::default(), waiting: RefCell::default() });
        listeners.insert(name, Rc::downgrade(&listener));
        Ok(listener)
    }

    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<SimStream> {
        match self.queue.borrow_mut().pop_front() {
            Some(stream) => Poll::Ready(stream),
            None => {
                self.waiting.replace(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }
}

fn sim_node(env: &Env) -> Result<&env::SimNode> {
    env.sim_node()
        .ok_or_else(|| Error::inval("simulated addresses exist only in a simulated world"))
}

/// Connects to the node `name`.
pub(crate) async fn connect(env: &Env, name: &str) -> Result<SimStream> {
    let node = sim_node(env)?;
    let net = SimNet::of(node.world());
    env.sleep(net.delay(node.world())).await;
    while net.is_cut(node.name(), name) || net.is_cut(name, node.name()) {
        env.sleep(net.delay_max.get().max(Duration::from_millis(1))).await;
    }
    let listener = net.listeners.borrow().get(name).and_then(Weak::upgrade);
    let listener = listener
        .ok_or_else(|| Error::new(Code::Unreach, format!("node {name} does not listen")))?;
    let (there, back) = (Pipe::new(&net, node.name(), name), Pipe::new(&net, name, node.name()));
    let theirs = SimStream::new(node.world().node(name), net.clone(), there.clone(), back.clone());
    let ours = SimStream::new(env.clone(), net, back, there);
    listener.queue.borrow_mut().push_back(theirs);
    wake(&listener.waiting);
    Ok(ours)
}

/// One direction of a stream.
struct Pipe {
    from: String,
    to: String,
    flight: RefCell<VecDeque<(Duration, Vec<u8>)>>,
    flight_bytes: Cell<usize>,
    /// Bytes taken of the first piece.
    taken: Cell<usize>,
    arrival_last: Cell<Duration>,
    /// When the writer's end becomes known to the reader.
    ends_at: Cell<Option<Duration>>,
    broken: Cell<bool>,
    /// The writer has given it up; what it wrote arrives all the same.
    abandoned: Cell<bool>,
    reader: RefCell<Option<Waker>>,
    writer: RefCell<Option<Waker>>,
}

impl Pipe {
    fn new(net: &Rc<SimNet>, from: &str, to: &str) -> Rc<Pipe> {
        let pipe = Rc::new(Pipe {
            from: from.into(),
            to: to.into(),
            flight: RefCell::default(),
            flight_bytes: Cell::new(0),
            taken: Cell::new(0),
            arrival_last: Cell::new(Duration::ZERO),
            ends_at: Cell::new(None),
            broken: Cell::new(false),
            abandoned: Cell::new(false),
            reader: RefCell::default(),
            writer: RefCell::default(),
        });
        net.pipes.borrow_mut().push(Rc::downgrade(&pipe));
        pipe
    }

    /// The writer goes; what it wrote arrives so much later, and then the end.
    fn abandon(&self, later: Duration) {
        if self.abandoned.replace(true) {
            return;
        }
        for (arrival, _) in self.flight.borrow_mut().iter_mut() {
            *arrival += later;
        }
        self.arrival_last.set(self.arrival_last.get() + later);
        self.ends_at.set(Some(self.arrival_last.get()));
        wake(&self.reader);
        wake(&self.writer);
    }

    fn break_off(&self) {
        self.broken.set(true);
        wake(&self.reader);
        wake(&self.writer);
    }
}

/// One end of a simulated stream.
pub(crate) struct SimStream {
    env: RefCell<Env>,
    net: Rc<SimNet>,
    incoming: Rc<Pipe>,
    outgoing: Rc<Pipe>,
    arrival: RefCell<Option<(Duration, Sleep)>>,
    closed: Cell<bool>,
}

impl SimStream {
    fn new(env: Env, net: Rc<SimNet>, incoming: Rc<Pipe>, outgoing: Rc<Pipe>) -> SimStream {
        SimStream {
            env: RefCell::new(env),
            net,
            incoming,
            outgoing,
            arrival: RefCell::default(),
            closed: Cell::new(false),
        }
    }

    fn is_dead(&self) -> bool {
        self.env.borrow().sim_node().is_none_or(|node| node.is_dead())
    }

    /// Waits for virtual time `at`, by the world's clock: the network knows none of a node.
    fn poll_until(&self, cx: &mut Context<'_>, at: Duration) -> Poll<()> {
        let env = self.env.borrow();
        let mut arrival = self.arrival.borrow_mut();
        while let Some(now) = env.sim_node().map(|node| node.world().now())
            && now < at
        {
            if arrival.as_ref().is_none_or(|(set_for, _)| *set_for != at) {
                *arrival = Some((at, env.sleep(at - now)));
            }
            if let Some((_, sleep)) = &mut *arrival
                && Pin::new(sleep).poll(cx).is_pending()
            {
                return Poll::Pending;
            }
            // A clock that runs faster has shown that too early.
            *arrival = None;
        }
        Poll::Ready(())
    }

    pub fn poll_read(&self, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<Result<usize>> {
        let pipe = &self.incoming;
        if self.closed.get() || pipe.broken.get() || self.is_dead() {
            return Poll::Ready(Ok(0));
        }
        pipe.reader.replace(Some(cx.waker().clone()));
        if self.net.is_cut(&pipe.from, &pipe.to) {
            return Poll::Pending;
        }
        let first_at = pipe.flight.borrow().front().map(|(at, _)| *at);
        let Some(at) = first_at.or(pipe.ends_at.get()) else { return Poll::Pending };
        if self.poll_until(cx, at).is_pending() {
            return Poll::Pending;
        }
        let mut flight = pipe.flight.borrow_mut();
        let Some((_, piece)) = flight.front() else { return Poll::Ready(Ok(0)) };
        let taken = pipe.taken.get();
        let count = out.len().min(piece.len() - taken);
        out[..count].copy_from_slice(&piece[taken..taken + count]);
        pipe.taken.set(taken + count);
        pipe.flight_bytes.set(pipe.flight_bytes.get() - count);
        if pipe.taken.get() == piece.len() {
            flight.pop_front();
            pipe.taken.set(0);
        }
        drop(flight);
        wake(&pipe.writer);
        Poll::Ready(Ok(count))
    }

    pub fn poll_write(&self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        let pipe = &self.outgoing;
        let env = self.env.borrow();
        let Some(node) = env.sim_node() else {
            return Poll::Ready(Err(Error::bare(Code::Closed)));
        };
        if self.net.break_ppm.get() > 0
            && node.world().random_u64() % 1_000_000 < self.net.break_ppm.get() as u64
        {
            pipe.break_off();
            self.incoming.break_off();
        }
        let now = node.world().now();
        let peer_gone = self.incoming.ends_at.get().is_some_and(|at| at <= now);
        let is_over = pipe.broken.get() || pipe.abandoned.get();
        if self.closed.get() || is_over || node.is_dead() || peer_gone {
            return Poll::Ready(Err(Error::new(Code::Closed, "the connection broke")));
        }
        let room = self.net.flight_bytes_max.get().saturating_sub(pipe.flight_bytes.get());
        if room == 0 {
            pipe.writer.replace(Some(cx.waker().clone()));
            return Poll::Pending;
        }
        let mut piece = Vec::new();
        for part in parts {
            let count = part.len().min(room - piece.len());
            piece.extend_from_slice(&part[..count]);
        }
        let count = piece.len();
        self.net.damage(pipe, &mut piece);
        let arrival = now + self.net.delay(node.world()) + self.net.longer(pipe);
        let arrival = arrival.max(pipe.arrival_last.get());
        pipe.arrival_last.set(arrival);
        node.world().trace(count as u64);
        pipe.flight_bytes.set(pipe.flight_bytes.get() + count);
        pipe.flight.borrow_mut().push_back((arrival, piece));
        wake(&pipe.reader);
        Poll::Ready(Ok(count))
    }

    pub fn close(&self) {
        if self.closed.replace(true) {
            return;
        }
        let env = self.env.borrow();
        if let Some(node) = env.sim_node() {
            // What is in flight arrives first; then the peer sees the end.
            let end = node.world().now() + self.net.delay(node.world());
            let end = end.max(self.outgoing.arrival_last.get());
            if !self.outgoing.abandoned.get() {
                self.outgoing.ends_at.set(Some(end));
            }
        }
        wake(&self.outgoing.reader);
        // A peer that waits for room would wait for ever.
        self.incoming.broken.set(true);
        wake(&self.incoming.writer);
        wake(&self.incoming.reader);
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.close();
    }
}
