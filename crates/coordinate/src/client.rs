//! The side of a coordination that does I/O: one connection to a coordinator.
//!
//! [`Client::connect`], then for each call [`Client::ask`], the I/O, [`Client::done`]. A client
//! asks for one permission at a time. When anything goes wrong the connection is given up, which
//! gives back what was granted; the caller does its I/O all the same. When to try again is the
//! caller's business.
//!
//! The preload library uses it in other people's programs and signal handlers. Therefore nothing
//! here allocates after [`Remote::resolve`], buffers are in the client and not on a possibly small
//! stack, and the socket
//!
//! - is numbered high, so that it is not in the way of programs that reckon with low numbers, and
//!   is closed on `exec`;
//! - is looked at before each use: a program may have closed it together with all others and got
//!   its number for something else. It is told by its inode number, and then neither written
//!   to nor closed.
//!
//! A coordinator that is alive may let a client wait long; one that says nothing for the time
//! [`Patience::silence`] is given up. A waiting client asks with `PING` at half that time.
//!
//! A new client is all zeros, so that a table of them takes no memory until it is used.

use crate::message::{
    CLIENT_FRAME_BYTES_MAX, ClientMessage, CoordinatorMessage, Hello, IoKind, Reason, Request,
    Targets,
};
use crate::rules::choice::Endpoint;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, ipproto,
};
use rustix::time::{ClockId, clock_gettime};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;
use types::{Error, Result};

/// Most addresses of one host that are tried.
const ADDRESSES_MAX: usize = 4;
/// The longest frame a coordinator sends to a client that asks for no statistics.
const INPUT_BYTES: usize = 512;
/// Pause before a full Unix socket is tried again.
const FULL_PAUSE: Duration = Duration::from_millis(5);

/// Where a coordinator is, ready to connect to.
#[derive(Clone, Debug)]
pub enum Remote {
    Unix(rustix::net::SocketAddrUnix),
    /// Addresses of a TCP service, tried in order.
    Tcp(Vec<SocketAddr>),
}

impl Remote {
    /// Finds out the addresses. Numeric addresses and `localhost` are known; any other name asks
    /// the system's name service, which may take its time.
    pub fn resolve(endpoint: &Endpoint) -> Result<Self> {
        match endpoint {
            Endpoint::Unix(path) => rustix::net::SocketAddrUnix::new(path)
                .map(Self::Unix)
                .map_err(|error| Error::io(endpoint, error.into())),
            Endpoint::Tcp(host, port) => {
                let host = if host == "localhost" { "127.0.0.1" } else { host };
                let found = (host, *port).to_socket_addrs().map_err(|e| Error::io(endpoint, e))?;
                let found: Vec<SocketAddr> = found.take(ADDRESSES_MAX).collect();
                if found.is_empty() {
                    return Err(Error::inval(format!("{endpoint}: the host has no address")));
                }
                Ok(Self::Tcp(found))
            }
        }
    }
}

/// How long to wait for a coordinator.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Longest silence before it is given up, also while connecting.
    pub silence: Duration,
    /// Longest wait for a permission.
    pub wait: Duration,
}

/// Why there is no (more) connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The system refused or the network failed.
    #[error("{doing}: {errno}")]
    System {
        /// What was being done.
        doing: &'static str,
        errno: Errno,
    },
    /// The coordinator closed the connection.
    #[error("the coordinator closed the connection")]
    Closed,
    /// The coordinator does not want this client.
    #[error("the coordinator refuses: {0:?}")]
    Refused(Reason),
    /// The coordinator says nothing.
    #[error("the coordinator does not answer")]
    Silent,
    /// What came is not of this protocol.
    #[error("not a coordinator, or of another version")]
    Protocol,
    /// A setting that no message can hold.
    #[error("the request cannot be expressed")]
    Inexpressible,
    /// The program closed the socket.
    #[error("the program closed the connection")]
    Taken,
}

fn system(doing: &'static str) -> impl Fn(Errno) -> Fault {
    move |errno| Fault::System { doing, errno }
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Go ahead, and say [`Client::done`] afterwards.
    Granted,
    /// It took longer than [`Patience::wait`]; the request has been given up.
    WaitedTooLong,
}

/// Minimum sizes a coordinator wishes, in bytes; they go over the client's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Minimums {
    pub write: Option<u64>,
    pub read: Option<u64>,
}

/// Identity of a socket, and its number.
#[derive(Clone, Copy)]
struct Socket {
    number: RawFd,
    device: u64,
    inode: u64,
}

/// A connection to a coordinator, or none.
pub struct Client {
    socket: Option<Socket>,
    /// Id of the last request.
    id: u64,
    /// The coordinator has answered the introduction.
    welcome: bool,
    minimums: Minimums,
    filled: usize,
    input: [u8; INPUT_BYTES],
    output: [u8; CLIENT_FRAME_BYTES_MAX],
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

impl Client {
    /// A client without a connection.
    pub const fn new() -> Self {
        Self {
            socket: None,
            id: 0,
            welcome: false,
            minimums: Minimums { write: None, read: None },
            filled: 0,
            input: [0; INPUT_BYTES],
            output: [0; CLIENT_FRAME_BYTES_MAX],
        }
    }

    /// True when there is a connection and its socket is still ours. A socket that is not is
    /// forgotten.
    pub fn is_connected(&mut self) -> bool {
        let Some(socket) = self.socket else { return false };
        // SAFETY: the number is only looked at; whatever it stands for now is left alone.
        let found = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(socket.number) });
        let ours = found.is_ok_and(|s| (s.st_dev, s.st_ino) == (socket.device, socket.inode));
        if !ours {
            self.socket = None;
        }
        ours
    }

    /// What the coordinator wishes; none before its first answer.
    pub fn minimums(&self) -> Option<Minimums> {
        self.welcome.then_some(self.minimums)
    }

    /// Connects and introduces itself, in place of any connection there was. The answer to the
    /// introduction is awaited together with that to the first request. The socket gets a number
    /// of at least `number_min` if the process may have one.
    pub fn connect(
        &mut self,
        remote: &Remote,
        hello: &Hello<'_>,
        number_min: RawFd,
        silence: Duration,
    ) -> Result<(), Fault> {
        self.close();
        let deadline = now() + silence;
        let socket = match remote {
            Remote::Unix(address) => {
                open(AddressFamily::UNIX, |socket| rustix::net::connect(socket, address), deadline)
            }
            Remote::Tcp(addresses) => connect_tcp(addresses, deadline),
        }?;
        let socket = match rustix::io::fcntl_dupfd_cloexec(&socket, number_min) {
            Ok(high) => high,
            // The process may not have such numbers.
            Err(_) => socket,
        };
        let status = rustix::fs::fstat(&socket).map_err(system("looking at the socket"))?;
        let number = socket.into_raw_fd();
        self.socket = Some(Socket { number, device: status.st_dev, inode: status.st_ino });
        (self.id, self.filled, self.welcome) = (0, 0, false);
        self.send(&ClientMessage::Hello(*hello), deadline)
    }

    /// Asks for a permission and waits for it. An error has closed the connection.
    pub fn ask(
        &mut self,
        kind: IoKind,
        bytes: u64,
        targets: Targets<'_>,
        patience: Patience,
    ) -> Result<Answer, Fault> {
        let answer = self.converse(kind, bytes, targets, patience);
        if answer.is_err() {
            self.close();
        }
        answer
    }

    fn converse(
        &mut self,
        kind: IoKind,
        bytes: u64,
        targets: Targets<'_>,
        patience: Patience,
    ) -> Result<Answer, Fault> {
        let began = now();
        let (give_up, ping_after) = (began + patience.wait, patience.silence / 2);
        self.id += 1;
        let request = Request { id: self.id, kind, bytes, targets };
        self.send(&ClientMessage::Request(request), began + patience.silence)?;
        let (mut last_received, mut pinged) = (began, false);
        loop {
            if self.granted()? {
                return Ok(Answer::Granted);
            }
            let time = now();
            if time >= give_up {
                // An answer that crosses this is for an id that nobody waits for.
                self.send(&ClientMessage::Cancel { id: self.id }, time + ping_after)?;
                return Ok(Answer::WaitedTooLong);
            }
            if time >= last_received + patience.silence {
                return Err(Fault::Silent);
            }
            if !pinged && time >= last_received + ping_after {
                self.send(&ClientMessage::Ping, last_received + patience.silence)?;
                pinged = true;
            }
            let quiet = if pinged { patience.silence } else { ping_after };
            if self.receive(give_up.min(last_received + quiet))? {
                (last_received, pinged) = (now(), false);
            }
        }
    }

    /// Says that the granted I/O is done: bytes transferred and how long it took. An error has
    /// closed the connection, which says the same with less detail.
    pub fn done(&mut self, bytes: u64, io: Duration) -> Result<(), Fault> {
        let io_us = u64::try_from(io.as_micros()).unwrap_or(u64::MAX);
        // A connection that takes not even these few bytes at once is not worth a wait.
        let sent = self.send(&ClientMessage::Completion { id: self.id, bytes, io_us }, now());
        if sent.is_err() {
            self.close();
        }
        sent
    }

    /// Ends the connection if there is one, also for those who have inherited it.
    pub fn close(&mut self) {
        if let Ok(socket) = self.socket() {
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
        }
        self.let_go();
    }

    /// Closes the socket without ending the connection: for a process that has inherited it from
    /// one that still uses it.
    pub fn let_go(&mut self) {
        if self.is_connected()
            && let Some(socket) = self.socket.take()
        {
            // SAFETY: the number was just seen to stand for our socket, and is not used again.
            unsafe { rustix::io::close(socket.number) };
        }
    }

    /// The socket, if it is still ours.
    fn socket(&mut self) -> Result<BorrowedFd<'static>, Fault> {
        if !self.is_connected() {
            return Err(Fault::Taken);
        }
        let socket = self.socket.ok_or(Fault::Taken)?;
        // SAFETY: the number was just seen to stand for our socket. Another thread may close it
        // from now on; then the next look tells, and until then system calls fail.
        Ok(unsafe { BorrowedFd::borrow_raw(socket.number) })
    }

    /// Takes frames that have arrived; true when the request is granted.
    fn granted(&mut self) -> Result<bool, Fault> {
        let mut at = 0;
        let mut granted = false;
        while !granted {
            let rest = self.input.get(at..self.filled).unwrap_or_default();
            let decoded = CoordinatorMessage::decode(rest).map_err(|_| Fault::Protocol)?;
            let Some((message, taken)) = decoded else { break };
            at += taken;
            match message {
                CoordinatorMessage::HelloAck { write_bytes_min, read_bytes_min } => {
                    self.minimums = Minimums { write: write_bytes_min, read: read_bytes_min };
                    self.welcome = true;
                }
                CoordinatorMessage::Refused { reason, .. } => return Err(Fault::Refused(reason)),
                CoordinatorMessage::Ack { id } => granted = id == self.id,
                CoordinatorMessage::Pong => {}
                CoordinatorMessage::StatsPart { .. } => return Err(Fault::Protocol),
            }
        }
        self.input.copy_within(at..self.filled, 0);
        self.filled -= at;
        Ok(granted)
    }

    /// Waits for bytes; false when the deadline passed first.
    fn receive(&mut self, deadline: Duration) -> Result<bool, Fault> {
        loop {
            let socket = self.socket()?;
            let room = self.input.get_mut(self.filled..).filter(|room| !room.is_empty());
            let room = room.ok_or(Fault::Protocol)?;
            match rustix::net::recv(socket, &mut *room, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(Fault::Closed),
                Ok((got, _)) => {
                    self.filled += got.min(room.len());
                    return Ok(true);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if !wait(socket, PollFlags::IN, deadline)? {
                        return Ok(false);
                    }
                }
                Err(Errno::CONNRESET) => return Err(Fault::Closed),
                Err(Errno::NOTSOCK | Errno::BADF) => return Err(Fault::Taken),
                Err(errno) => return Err(system("receiving")(errno)),
            }
        }
    }

    fn send(&mut self, message: &ClientMessage<'_>, deadline: Duration) -> Result<(), Fault> {
        let bytes = message.encode(&mut self.output).map_err(|_| Fault::Inexpressible)?;
        let socket = self.socket()?;
        let mut rest = self.output.get(..bytes).unwrap_or_default();
        while !rest.is_empty() {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match rustix::net::send(socket, rest, flags) {
                Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if !wait(socket, PollFlags::OUT, deadline)? {
                        return Err(Fault::Silent);
                    }
                }
                // A refusal may be waiting behind the closed door: it says more.
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(self.last_words()),
                Err(Errno::NOTSOCK | Errno::BADF) => return Err(Fault::Taken),
                Err(errno) => return Err(system("sending")(errno)),
            }
        }
        Ok(())
    }

    /// Why a connection was closed, if the coordinator said so.
    fn last_words(&mut self) -> Fault {
        while let Ok(true) = self.receive(now()) {
            if let Err(fault) = self.granted() {
                return fault;
            }
        }
        Fault::Closed
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.close();
    }
}

/// Time of the monotonic clock.
pub fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    Duration::new(part(time.tv_sec), part(time.tv_nsec) as u32)
}

/// Waits until the socket is ready; false when the deadline passed first.
fn wait(socket: BorrowedFd<'_>, events: PollFlags, deadline: Duration) -> Result<bool, Fault> {
    loop {
        let left = deadline.saturating_sub(now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut polled = [PollFd::from_borrowed_fd(socket, events)];
        match poll(&mut polled, Some(&timeout)) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) if polled[0].revents().contains(PollFlags::NVAL) => return Err(Fault::Taken),
            Ok(_) => return Ok(true),
            Err(errno) => return Err(system("waiting")(errno)),
        }
    }
}

fn connect_tcp(addresses: &[SocketAddr], deadline: Duration) -> Result<OwnedFd, Fault> {
    let mut last = Err(Fault::Closed);
    for (tried, address) in addresses.iter().enumerate() {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        // What is left of the time is shared by the addresses that are left.
        let left = deadline.saturating_sub(now());
        let until = now() + left / (addresses.len() - tried) as u32;
        last = open(family, |socket| rustix::net::connect(socket, address), until);
        if let Ok(socket) = &last {
            // Small frames to and fro: nothing is gained by holding them back.
            let _ = rustix::net::sockopt::set_tcp_nodelay(socket, true);
            break;
        }
    }
    last
}

/// Makes a socket and connects it without being held up longer than the deadline.
fn open(
    family: AddressFamily,
    connect: impl Fn(BorrowedFd<'_>) -> Result<(), Errno>,
    deadline: Duration,
) -> Result<OwnedFd, Fault> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let protocol = (family != AddressFamily::UNIX).then_some(ipproto::TCP);
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, protocol)
        .map_err(system("making a socket"))?;
    loop {
        match connect(socket.as_fd()) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR) => {}
            // A Unix socket with more callers than its queue holds.
            Err(Errno::AGAIN) if now() < deadline => {
                let pause = FULL_PAUSE.min(deadline.saturating_sub(now()));
                let pause = Timespec { tv_sec: 0, tv_nsec: pause.subsec_nanos().into() };
                let _ = poll(&mut [], Some(&pause));
            }
            Err(Errno::AGAIN) => return Err(Fault::Silent),
            Err(Errno::INPROGRESS | Errno::ALREADY) => break,
            Err(Errno::ISCONN) => return Ok(socket),
            Err(errno) => return Err(system("connecting")(errno)),
        }
    }
    if !wait(socket.as_fd(), PollFlags::OUT, deadline)? {
        return Err(Fault::Silent);
    }
    match rustix::net::sockopt::socket_error(&socket) {
        Ok(Ok(())) => Ok(socket),
        Ok(Err(errno)) | Err(errno) => Err(system("connecting")(errno)),
    }
}

#[cfg(test)]
mod tests;
