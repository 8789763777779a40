//! The loop: sockets in, queues in the middle, grants out.

use super::config::Patience;
use super::conn::{Conn, Peer, Role, Sent};
use super::listen::{Listener, SocketFile, Sockets, tune_tcp};
use super::snapshot::{GroupStats, ServerStats, Snapshot};
use super::trace::{self, What};
use super::{Listen, STRANGERS_MAX, metrics};
use crate::message::{
    ClientMessage, CoordinatorMessage, DecodeError, Hello, Reason, STATS_PART_BYTES_MAX,
};
use crate::queue::{Action, ClientId, End, Event, Grant, Queue, Settings};
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, SocketFlags, accept_with, recv, shutdown};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use types::metrics::{self as asked, Asked};
use types::{Error, Result};

/// Pause in accepting when there are no more files.
const ACCEPT_PAUSE_US: u64 = 500_000;
/// Connections accepted in one turn of the loop from one socket.
const ACCEPTS_PER_TURN: usize = 64;
/// Bytes read from one connection in one turn.
const READ_BYTES: usize = 64 << 10;
/// Sockets looked at in one turn.
const EVENTS_PER_TURN: usize = 256;
/// Files kept for other things than clients.
const SPARE_FILES: u64 = 64;
/// Targets, and jobs, in an answer to `STATS`.
const STATS_ROWS: usize = 500;
/// The same in the metrics.
const METRICS_ROWS: usize = 4096;

/// Tokens from here on are not connections.
const WAKE: u64 = u64::MAX;
const LISTENERS: u64 = u64::MAX - 1;

/// What a [`Core`] is made of.
pub(super) struct Parts {
    pub sockets: Sockets,
    pub settings: Vec<(String, Settings)>,
    pub token: Option<Vec<u8>>,
    pub trace: Option<trace::Writer>,
    pub minimums: (Option<u64>, Option<u64>),
    pub clients_max: Option<usize>,
    pub patience: Patience,
    pub wake: Arc<OwnedFd>,
}

struct Group {
    name: String,
    queue: Queue,
}

#[derive(Default)]
struct Slot {
    /// Told apart from earlier connections in the same slot by this.
    generation: u32,
    conn: Option<Conn>,
}

/// Why a client is refused.
struct Refusal(Reason, String);

pub(super) struct Core {
    epoll: OwnedFd,
    _wake: Arc<OwnedFd>,
    listeners: Vec<(Listener, bool)>,
    _files: Vec<SocketFile>,
    groups: Vec<Group>,
    token: Option<Vec<u8>>,
    trace: Option<trace::Writer>,
    minimums: (Option<u64>, Option<u64>),
    clients_max: usize,
    patience: Patience,
    slots: Vec<Slot>,
    free: Vec<usize>,
    clients: usize,
    /// Deadline and token of connections that have one.
    timers: BTreeSet<(u64, u64)>,
    /// Number of acceptance and token of those who have not said hello.
    strangers: BTreeSet<(u64, u64)>,
    /// Connections with something to send.
    unsent: Vec<u64>,
    buffer: Vec<u8>,
    actions: Vec<Action>,
    /// Set while accepting is paused.
    accepts_again_us: Option<u64>,
    stats: ServerStats,
    start: Instant,
    start_unix_us: u64,
}

impl Core {
    pub fn new(parts: Parts) -> Result<Core> {
        let io = |error: Errno| Error::io("starting the coordinator", error.into());
        let files = raise_file_limit();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io)?;
        let wanted = epoll::EventFlags::IN;
        epoll::add(&epoll, &parts.wake, epoll::EventData::new_u64(WAKE), wanted).map_err(io)?;
        let Sockets { listeners, metrics, metrics_address: _, files: socket_files } = parts.sockets;
        let mut listeners: Vec<_> = listeners.into_iter().map(|one| (one, false)).collect();
        if let Some(socket) = metrics {
            let listen = Listen::Tcp(String::new());
            listeners.push((Listener { socket, listen }, true));
        }
        for (at, (listener, _)) in listeners.iter().enumerate() {
            let token = epoll::EventData::new_u64(LISTENERS - at as u64);
            epoll::add(&epoll, &listener.socket, token, wanted).map_err(io)?;
        }
        let groups = parts.settings.into_iter();
        let groups = groups.map(|(name, settings)| Group { name, queue: Queue::new(settings) });
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let by_files = files.saturating_sub(SPARE_FILES) as usize;
        Ok(Core {
            epoll,
            _wake: parts.wake,
            listeners,
            _files: socket_files,
            groups: groups.collect(),
            token: parts.token,
            trace: parts.trace,
            minimums: parts.minimums,
            clients_max: parts.clients_max.unwrap_or(by_files).min(by_files),
            patience: parts.patience,
            slots: Vec::new(),
            free: Vec::new(),
            clients: 0,
            timers: BTreeSet::new(),
            strangers: BTreeSet::new(),
            unsent: Vec::new(),
            buffer: vec![0; READ_BYTES],
            actions: Vec::new(),
            accepts_again_us: None,
            stats: ServerStats::default(),
            start: Instant::now(),
            start_unix_us: unix.as_micros() as u64,
        })
    }

    /// Microseconds since the start.
    fn now_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    /// Runs until it is told to stop.
    pub fn run(mut self) -> Result<()> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS_PER_TURN);
        loop {
            let timeout = self.timeout();
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, room, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::io("waiting for messages", errno.into())),
            }
            self.stats.turns += 1;
            for event in &events {
                let (token, flags) = (event.data.u64(), event.flags);
                if token == WAKE {
                    return Ok(());
                }
                if token > LISTENERS - self.listeners.len() as u64 {
                    self.accept((LISTENERS - token) as usize);
                    continue;
                }
                let ended = epoll::EventFlags::HUP | epoll::EventFlags::ERR;
                if flags.intersects(epoll::EventFlags::IN | ended) {
                    self.read(token, flags.intersects(ended));
                }
                if flags.contains(epoll::EventFlags::OUT) {
                    self.list(token);
                }
            }
            self.pass_time();
            self.flush();
            if let Some(trace) = &mut self.trace {
                trace.end_turn();
                self.stats.trace_lost = trace.lost;
            }
        }
    }

    /// Time until something is due; `None`: nothing is.
    fn timeout(&self) -> Option<Timespec> {
        let timers = self.timers.first().map(|(deadline_us, _)| *deadline_us);
        let holds = self.groups.iter().filter_map(|group| group.queue.deadline_us());
        let due_us = timers.into_iter().chain(holds).chain(self.accepts_again_us).min()?;
        // Up to the next microsecond, so as not to wake just before.
        let wait_us = due_us.saturating_sub(self.now_us()) + 1;
        let (seconds, rest_us) = (wait_us / 1_000_000, wait_us % 1_000_000);
        Some(Timespec { tv_sec: seconds as i64, tv_nsec: (rest_us * 1000) as i64 })
    }

    /// Does what is due.
    fn pass_time(&mut self) {
        let now_us = self.now_us();
        while let Some(&(deadline_us, token)) = self.timers.first() {
            if deadline_us > now_us {
                break;
            }
            self.timers.remove(&(deadline_us, token));
            let lingers = self.conn(token).is_some_and(|conn| matches!(conn.role, Role::Refused));
            self.stats.timed_out += u64::from(!lingers);
            self.close(token);
        }
        for group in 0..self.groups.len() {
            if self.groups[group].queue.deadline_us().is_some_and(|due_us| due_us <= now_us) {
                // A tick is never a misuse.
                let _ = self.step(group, Event::Tick);
            }
        }
        if self.accepts_again_us.is_some_and(|again_us| again_us <= now_us) {
            self.accepts_again_us = None;
            self.listen_for(epoll::EventFlags::IN);
        }
    }

    fn listen_for(&self, flags: epoll::EventFlags) {
        for (at, (listener, _)) in self.listeners.iter().enumerate() {
            let token = epoll::EventData::new_u64(LISTENERS - at as u64);
            if let Err(error) = epoll::modify(&self.epoll, &listener.socket, token, flags) {
                tracing::error!("{}: {error}", listener.listen);
            }
        }
    }

    fn accept(&mut self, at: usize) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some((listener, is_http)) = self.listeners.get(at) else { return };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match accept_with(&listener.socket, flags) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(error) => {
                    tracing::warn!("{}: accepting: {error}", listener.listen);
                    self.accepts_again_us = Some(self.now_us() + ACCEPT_PAUSE_US);
                    self.listen_for(epoll::EventFlags::empty());
                    return;
                }
            };
            self.stats.accepted += 1;
            let tcp = matches!(listener.listen, Listen::Tcp(_));
            let (role, patience) = if *is_http {
                (Role::Http, self.patience.http)
            } else {
                (Role::Stranger { needs_token: tcp }, self.patience.hello)
            };
            if tcp {
                tune_tcp(&socket);
            }
            if let Some(token) = self.add(Conn::new(socket, role, self.stats.accepted)) {
                self.strangers.insert((self.stats.accepted, token));
                self.set_deadline(token, Some(self.now_us() + patience.as_micros() as u64));
            }
            if self.strangers.len() > STRANGERS_MAX
                && let Some(&(_, oldest)) = self.strangers.first()
            {
                self.stats.timed_out += 1;
                self.close(oldest);
            }
        }
    }

    fn add(&mut self, conn: Conn) -> Option<u64> {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        let token = u64::from(self.slots[slot].generation) << 32 | slot as u64;
        let data = epoll::EventData::new_u64(token);
        if let Err(error) = epoll::add(&self.epoll, &conn.socket, data, epoll::EventFlags::IN) {
            tracing::warn!("a connection: {error}");
            self.free.push(slot);
            return None;
        }
        self.slots[slot].conn = Some(conn);
        Some(token)
    }

    fn conn(&mut self, token: u64) -> Option<&mut Conn> {
        let slot = self.slots.get_mut((token & 0xffff_ffff) as usize)?;
        if u64::from(slot.generation) != token >> 32 {
            return None;
        }
        slot.conn.as_mut()
    }

    fn set_deadline(&mut self, token: u64, deadline_us: Option<u64>) {
        let Some(conn) = self.conn(token) else { return };
        let before = std::mem::replace(&mut conn.deadline_us, deadline_us);
        if let Some(before_us) = before {
            self.timers.remove(&(before_us, token));
        }
        if let Some(deadline_us) = deadline_us {
            self.timers.insert((deadline_us, token));
        }
    }

    /// Gives a deadline to a connection without one.
    fn arm(&mut self, token: u64, patience: Duration) {
        let now_us = self.now_us();
        if self.conn(token).is_some_and(|conn| conn.deadline_us.is_none()) {
            self.set_deadline(token, Some(now_us + patience.as_micros() as u64));
        }
    }

    /// Ends a connection and all that its client held or waited for.
    fn close(&mut self, token: u64) {
        self.leave(token);
        self.set_deadline(token, None);
        let slot = (token & 0xffff_ffff) as usize;
        if self.conn(token).is_some() {
            self.slots[slot].conn = None;
            // The top bits stay clear of the tokens of listeners.
            self.slots[slot].generation = (self.slots[slot].generation + 1) & 0x7fff_ffff;
            self.free.push(slot);
        }
    }

    /// The peer is a client or stranger no longer.
    fn leave(&mut self, token: u64) {
        let Some(conn) = self.conn(token) else { return };
        match &conn.role {
            Role::Client(peer) => {
                let group = peer.group;
                if self.step(group, Event::Left { client: ClientId(token) }).is_ok() {
                    self.clients -= 1;
                }
            }
            Role::Stranger { .. } | Role::Http => {
                let accepted = conn.accepted;
                self.strangers.remove(&(accepted, token));
            }
            Role::Refused => {}
        }
    }

    fn refuse(&mut self, token: u64, refusal: &Refusal) {
        let Refusal(reason, text) = refusal;
        let count = match reason {
            Reason::Version => &mut self.stats.refused_version,
            Reason::Token => &mut self.stats.refused_token,
            Reason::Group => &mut self.stats.refused_group,
            Reason::Full => &mut self.stats.refused_full,
            Reason::Protocol | Reason::Other => &mut self.stats.refused_protocol,
        };
        *count += 1;
        tracing::debug!("refused: {text}");
        let message = CoordinatorMessage::Refused { reason: *reason, text };
        self.leave(token);
        if let Some(conn) = self.conn(token) {
            conn.push(&message);
        }
        self.say_farewell(token);
    }

    /// Sends what is left to send, closes when the peer has read it.
    fn say_farewell(&mut self, token: u64) {
        if let Some(conn) = self.conn(token) {
            conn.role = Role::Refused;
            conn.ending = true;
            conn.input = Vec::new();
        }
        self.set_deadline(token, Some(self.now_us() + self.patience.linger.as_micros() as u64));
        self.list(token);
    }

    /// Puts a connection on the list of those with something to send.
    fn list(&mut self, token: u64) {
        if let Some(conn) = self.conn(token)
            && !std::mem::replace(&mut conn.listed, true)
        {
            self.unsent.push(token);
        }
    }

    /// Sends to everybody on the list. Whoever turns out to be gone makes room for others, who
    /// then are on the list, too.
    fn flush(&mut self) {
        let mut at = 0;
        while let Some(&token) = self.unsent.get(at) {
            at += 1;
            let Some(conn) = self.conn(token) else { continue };
            conn.listed = false;
            let before = conn.unsent();
            let sent = conn.flush();
            let progress = conn.unsent() < before;
            match sent {
                Sent::Broken => {
                    self.close(token);
                    continue;
                }
                Sent::All if conn.ending => {
                    // The peer reads to the end before it sees the connection closed.
                    if shutdown(&conn.socket, Shutdown::Write).is_err() {
                        self.close(token);
                        continue;
                    }
                }
                Sent::All | Sent::Some => {}
            }
            self.await_client(token, progress);
            self.set_interest(token);
        }
        self.unsent.clear();
    }

    /// Sets a client's deadline by what it owes: the rest of a frame, or taking what is sent.
    fn await_client(&mut self, token: u64, progress: bool) {
        let Some(conn) = self.conn(token) else { return };
        if !matches!(conn.role, Role::Client(_)) {
            return;
        }
        let (has_input, has_output) = (!conn.input.is_empty(), conn.unsent() > 0);
        if progress || !has_input && !has_output {
            self.set_deadline(token, None);
        }
        if has_input {
            self.arm(token, self.patience.frame);
        } else if has_output {
            self.arm(token, self.patience.stall);
        }
    }

    fn set_interest(&mut self, token: u64) {
        let Some(conn) = self.conn(token) else { return };
        let wanted = (!conn.is_stuffed(), conn.unsent() > 0);
        if wanted == conn.interest {
            return;
        }
        conn.interest = wanted;
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, wanted.0);
        flags.set(epoll::EventFlags::OUT, wanted.1);
        let slot = &self.slots[(token & 0xffff_ffff) as usize];
        let data = epoll::EventData::new_u64(token);
        let outcome =
            slot.conn.as_ref().map(|conn| epoll::modify(&self.epoll, &conn.socket, data, flags));
        if let Some(Err(error)) = outcome {
            tracing::warn!("a connection: {error}");
            self.close(token);
        }
    }

    fn read(&mut self, token: u64, ended: bool) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let read = match self.conn(token) {
            // One that does not take its answers is read no further, but its end is seen.
            Some(conn) if conn.is_stuffed() && !ended => Err(Errno::AGAIN),
            Some(conn) => recv(&conn.socket, &mut buffer[..], RecvFlags::DONTWAIT),
            None => Err(Errno::AGAIN),
        };
        match read {
            Ok((0, _)) => self.close(token),
            Ok((bytes, _)) => self.take(token, &buffer[..bytes.min(buffer.len())]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.close(token),
        }
        self.buffer = buffer;
    }

    /// Takes bytes that have come.
    fn take(&mut self, token: u64, bytes: &[u8]) {
        let Some(conn) = self.conn(token) else { return };
        match conn.role {
            Role::Refused => {}
            Role::Http => {
                conn.input.extend_from_slice(bytes);
                let asked = asked::look(&conn.input);
                self.answer_http(token, asked);
            }
            Role::Stranger { .. } | Role::Client(_) if conn.input.is_empty() => {
                self.take_frames(token, bytes);
            }
            Role::Stranger { .. } | Role::Client(_) => {
                let mut whole = std::mem::take(&mut conn.input);
                whole.extend_from_slice(bytes);
                self.take_frames(token, &whole);
            }
        }
    }

    fn take_frames(&mut self, token: u64, bytes: &[u8]) {
        let mut rest = bytes;
        let outcome = loop {
            let talks = self.conn(token).is_some_and(|conn| !matches!(conn.role, Role::Refused));
            if !talks {
                return;
            }
            match ClientMessage::decode(rest) {
                Ok(None) => break Ok(()),
                Ok(Some((message, taken))) => {
                    rest = &rest[taken..];
                    if let Err(refusal) = self.message(token, message) {
                        break Err(refusal);
                    }
                }
                Err(error @ DecodeError::Version { .. }) => {
                    break Err(Refusal(Reason::Version, error.to_string()));
                }
                Err(error) => break Err(Refusal(Reason::Protocol, error.to_string())),
            }
        };
        match outcome {
            Err(refusal) => self.refuse(token, &refusal),
            Ok(()) => {
                if let Some(conn) = self.conn(token) {
                    conn.input = rest.to_vec();
                }
                self.await_client(token, rest.len() < bytes.len());
            }
        }
    }

    fn message(
        &mut self,
        token: u64,
        message: ClientMessage<'_>,
    ) -> std::result::Result<(), Refusal> {
        let Some(conn) = self.conn(token) else { return Ok(()) };
        let protocol = |text: &str| Refusal(Reason::Protocol, text.to_string());
        let group = match (&conn.role, &message) {
            (Role::Stranger { needs_token }, ClientMessage::Hello(hello)) => {
                let needs_token = *needs_token;
                return self.welcome(token, hello, needs_token);
            }
            (Role::Client(peer), _) => peer.group,
            _ => return Err(protocol("a message before HELLO")),
        };
        let client = ClientId(token);
        let outcome = match message {
            ClientMessage::Hello(_) => return Err(protocol("a second HELLO")),
            ClientMessage::Request(request) => {
                let targets: SmallVec<[&str; 16]> = request.targets.names().collect();
                let (id, kind, bytes) = (request.id, request.kind, request.bytes);
                self.step(group, Event::Asked { client, id, kind, bytes, targets: &targets })
            }
            ClientMessage::Completion { id, bytes, io_us } => {
                self.step(group, Event::Completed { client, id, bytes, io_us })
            }
            ClientMessage::Cancel { id } => self.step(group, Event::Cancelled { client, id }),
            ClientMessage::Ping => {
                conn.push(&CoordinatorMessage::Pong);
                self.list(token);
                Ok(())
            }
            ClientMessage::Stats => {
                self.send_stats(token);
                Ok(())
            }
        };
        outcome.map_err(|misuse| protocol(&misuse.to_string()))
    }

    fn welcome(
        &mut self,
        token: u64,
        hello: &Hello<'_>,
        needs_token: bool,
    ) -> std::result::Result<(), Refusal> {
        if let Some(wanted) = self.token.as_ref().filter(|_| needs_token)
            && !same_secret(wanted, hello.token)
        {
            return Err(Refusal(Reason::Token, "wrong token".into()));
        }
        let named = |group: &Group| hello.group.is_empty() || group.name == hello.group;
        let Some(group) = self.groups.iter().position(named) else {
            return Err(Refusal(Reason::Group, format!("no group '{}' here", hello.group)));
        };
        if self.clients >= self.clients_max {
            let text = format!("{} clients are connected already", self.clients);
            return Err(Refusal(Reason::Full, text));
        }
        let Hello { job, weight, priority, .. } = *hello;
        let joined = Event::Joined { client: ClientId(token), job, weight, priority };
        self.step(group, joined).map_err(|e| Refusal(Reason::Protocol, e.to_string()))?;
        self.clients += 1;
        if let Some(accepted) = self.conn(token).map(|conn| conn.accepted) {
            self.strangers.remove(&(accepted, token));
        }
        self.set_deadline(token, None);
        let (write_bytes_min, read_bytes_min) = self.minimums;
        let peer = Peer {
            group,
            job: hello.job.into(),
            host: hello.host.into(),
            pid: hello.pid,
            rank: hello.rank,
        };
        if let Some(conn) = self.conn(token) {
            conn.role = Role::Client(Rc::new(peer));
            conn.push(&CoordinatorMessage::HelloAck { write_bytes_min, read_bytes_min });
        }
        self.list(token);
        Ok(())
    }

    /// Puts an event through a group's queue and does what follows from it.
    fn step(
        &mut self,
        group: usize,
        event: Event<'_>,
    ) -> std::result::Result<(), crate::queue::Misuse> {
        let now_us = self.now_us();
        let mut actions = std::mem::take(&mut self.actions);
        let outcome = self.groups[group].queue.step(now_us, event, &mut actions);
        for action in actions.drain(..) {
            if self.trace.is_some() {
                self.write_trace(group, &action, now_us);
            }
            if let Action::Grant(grant) = action
                && let Some(conn) = self.conn(grant.client.0)
            {
                conn.push(&CoordinatorMessage::Ack { id: grant.id });
                self.list(grant.client.0);
            }
        }
        self.actions = actions;
        outcome
    }

    fn write_trace(&mut self, group: usize, action: &Action, now_us: u64) {
        let (what, request, granted, end): (_, &Grant, _, _) = match action {
            Action::Grant(request) => (What::Grant, request, true, None),
            Action::Ended { request, granted, end } => {
                let what = match end {
                    End::Completed { .. } => What::Completed,
                    End::Unasked { .. } => What::Unasked,
                    End::Cancelled => What::Cancelled,
                    End::Gone => What::Gone,
                    End::Overheld => What::Overheld,
                };
                (what, request, *granted, Some(*end))
            }
        };
        let peer = match self.conn(request.client.0).map(|conn| conn.role.clone()) {
            Some(Role::Client(peer)) => peer,
            _ => return,
        };
        let (bytes, io_us) = match end {
            Some(End::Completed { bytes, io_us } | End::Unasked { bytes, io_us }) => {
                (bytes, Some(io_us))
            }
            _ => (request.bytes, None),
        };
        let held_us = now_us.saturating_sub(request.granted_us);
        let line = trace::Line {
            what,
            time_us: self.start_unix_us + now_us,
            group: self.groups[group].name.clone(),
            job: peer.job.to_string(),
            host: peer.host.to_string(),
            pid: peer.pid,
            rank: peer.rank,
            client: request.client.0,
            id: request.id,
            kind: request.kind.name().to_string(),
            bytes,
            targets: request.targets.iter().map(|name| name.to_string()).collect(),
            wait_us: request.granted_us.saturating_sub(request.asked_us),
            held_us: (granted && end.is_some()).then_some(held_us),
            io_us,
        };
        if let Some(trace) = &mut self.trace {
            trace.add(&line);
        }
    }

    fn snapshot(&self, rows_max: usize) -> Snapshot {
        let now_us = self.now_us();
        let mut server = self.stats.clone();
        server.strangers = self.strangers.len();
        let groups = self.groups.iter().map(|group| GroupStats {
            name: group.name.clone(),
            queue: group.queue.stats(now_us, rows_max),
        });
        Snapshot {
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_us: now_us,
            server,
            groups: groups.collect(),
        }
    }

    fn send_stats(&mut self, token: u64) {
        let json = match serde_json::to_vec(&self.snapshot(STATS_ROWS)) {
            Ok(json) => json,
            Err(error) => return tracing::error!("statistics: {error}"),
        };
        let Some(conn) = self.conn(token) else { return };
        let mut parts = json.chunks(STATS_PART_BYTES_MAX).peekable();
        while let Some(part) = parts.next() {
            let last = parts.peek().is_none();
            conn.push(&CoordinatorMessage::StatsPart { last, json: part });
        }
        self.list(token);
    }

    fn answer_http(&mut self, token: u64, asked: Asked) {
        let answer = match asked {
            Asked::Incomplete => return,
            Asked::Metrics(with_body) => {
                let text = metrics::text(&self.snapshot(METRICS_ROWS));
                asked::answer("200 OK", &text, with_body)
            }
            Asked::Other(status) => asked::answer(status, &format!("{status}\n"), true),
        };
        self.leave(token);
        if let Some(conn) = self.conn(token) {
            conn.push_bytes(&answer);
        }
        self.say_farewell(token);
    }
}

/// Compares in a time that does not depend on where they differ.
fn same_secret(wanted: &[u8], given: &[u8]) -> bool {
    let mut difference = wanted.len() ^ given.len();
    for (at, byte) in wanted.iter().enumerate() {
        let other = given.get(at).copied().unwrap_or(0);
        difference = std::hint::black_box(difference | usize::from(byte ^ other));
    }
    difference == 0
}

/// Allows as many open files as may be allowed; returns how many.
pub(crate) fn raise_file_limit() -> u64 {
    let now = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: now.maximum, maximum: now.maximum };
    let outcome = setrlimit(Resource::Nofile, raised);
    let limit = if outcome.is_ok() { now.maximum } else { now.current };
    limit.unwrap_or(u64::MAX)
}
