//! Load for a coordinator: many clients on one thread that ask, are let in, complete and ask again
//! as fast as they can, without any I/O. For measuring the coordinator, not a device.
//!
//! The coordinator is a process of its own, so that its memory and processor time can be told
//! from those of the clients: see [`Usage`].

use crate::message::{
    CLIENT_FRAME_BYTES_MAX, ClientMessage, CoordinatorMessage, Hello, IoKind, Request, TargetList,
};
use crate::rules::choice::Endpoint;
use crate::server::raise_file_limit;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use types::{Code, Error, Result};

/// Bytes each request pretends to transfer.
const BYTES: u64 = 8 << 20;
/// Sockets looked at in one turn.
const EVENTS_PER_TURN: usize = 256;

/// What a process has used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// Memory it has now, bytes.
    pub resident_bytes: u64,
    /// Processor time of all its threads so far.
    pub cpu: Duration,
}

impl Usage {
    /// Of a live process of this machine.
    pub fn of(pid: u32) -> Result<Usage> {
        let io = |error| Error::io(format!("looking at process {pid}"), error);
        let nonsense = || Error::new(Code::Io, format!("/proc/{pid} is not as expected"));
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).map_err(io)?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = resident.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
        let mut ns = 0;
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).map_err(io)? {
            let path = task.map_err(io)?.path().join("schedstat");
            let text = std::fs::read_to_string(path).map_err(io)?;
            let first = text.split_whitespace().next().and_then(|first| first.parse::<u64>().ok());
            ns += first.ok_or_else(nonsense)?;
        }
        let resident_bytes = kib.ok_or_else(nonsense)? << 10;
        Ok(Usage { resident_bytes, cpu: Duration::from_nanos(ns) })
    }
}

struct One {
    socket: OwnedFd,
    targets: TargetList,
    /// Number of its request.
    id: u64,
    input: Vec<u8>,
}

/// Clients of one coordinator, each with a request.
pub struct Load {
    epoll: OwnedFd,
    clients: Vec<One>,
}

fn failed(doing: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::io(doing, errno.into())
}

impl Load {
    /// Connects so many clients; each has asked once, for one of `targets` targets in turn.
    pub fn start(
        endpoint: &Endpoint,
        token: &[u8],
        clients: usize,
        targets: usize,
    ) -> Result<Load> {
        raise_file_limit();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("starting"))?;
        let mut load = Load { epoll, clients: Vec::with_capacity(clients) };
        for at in 0..clients {
            let name = format!("target{}", at % targets.max(1));
            let list = TargetList::new(&[name]).map_err(|error| Error::inval(error.to_string()))?;
            let socket = connect(endpoint)?;
            let hello = Hello {
                token,
                group: "",
                job: "load",
                host: "load",
                pid: at as u32,
                rank: u32::try_from(at).ok(),
                weight: 1,
                priority: 0,
            };
            let mut room = [0; CLIENT_FRAME_BYTES_MAX];
            let encode = |message: &ClientMessage<'_>, room: &mut [u8]| {
                message.encode(room).map_err(|error| Error::inval(error.to_string()))
            };
            let mut bytes = encode(&ClientMessage::Hello(hello), &mut room)?;
            bytes += encode(&request(0, &list), &mut room[bytes..])?;
            send_all(&socket, &room[..bytes])?;
            rustix::io::ioctl_fionbio(&socket, true).map_err(failed("connecting"))?;
            let token = epoll::EventData::new_u64(at as u64);
            epoll::add(&load.epoll, &socket, token, epoll::EventFlags::IN)
                .map_err(failed("connecting"))?;
            load.clients.push(One { socket, targets: list, id: 0, input: Vec::new() });
        }
        Ok(load)
    }

    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Lets `grants` requests through; who is let in completes and asks again at once. Returns the
    /// time it took. Errors: the coordinator closes a connection, or is silent for `patience`.
    pub fn run(&mut self, grants: u64, patience: Duration) -> Result<Duration> {
        let begin = Instant::now();
        let mut seen = 0;
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS_PER_TURN);
        let patience = rustix::event::Timespec {
            tv_sec: patience.as_secs() as i64,
            tv_nsec: i64::from(patience.subsec_nanos()),
        };
        while seen < grants {
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, room, Some(&patience)) {
                Ok(0) => {
                    let text = format!("no grant any more after {seen} of {grants}");
                    return Err(Error::new(Code::TimedOut, text));
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(failed("waiting")(errno)),
            }
            for event in &events {
                if let Some(client) = self.clients.get_mut(event.data.u64() as usize) {
                    seen += client.turn()?;
                }
            }
        }
        Ok(begin.elapsed())
    }
}

impl One {
    /// Takes what has come; returns the number of grants.
    fn turn(&mut self) -> Result<u64> {
        let mut room = [0; 4096];
        match recv(&self.socket, &mut room[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => {
                return Err(Error::new(Code::Closed, "the coordinator closed a connection"));
            }
            Ok((bytes, _)) => self.input.extend_from_slice(&room[..bytes.min(room.len())]),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(0),
            Err(errno) => return Err(failed("receiving")(errno)),
        }
        let mut grants = 0;
        let mut at = 0;
        while let Some((message, taken)) = CoordinatorMessage::decode(&self.input[at..])
            .map_err(|error| Error::new(Code::Io, error.to_string()))?
        {
            match message {
                CoordinatorMessage::Ack { id } if id == self.id => grants += 1,
                CoordinatorMessage::Refused { text, .. } => {
                    return Err(Error::new(Code::Access, format!("refused: {text}")));
                }
                _ => {}
            }
            at += taken;
        }
        self.input.drain(..at);
        if grants > 0 {
            let mut room = [0; 1024];
            let invalid = |error: crate::message::EncodeError| Error::inval(error.to_string());
            let done = ClientMessage::Completion { id: self.id, bytes: BYTES, io_us: 1 };
            let mut bytes = done.encode(&mut room).map_err(invalid)?;
            self.id += 1;
            let again = request(self.id, &self.targets);
            bytes += again.encode(&mut room[bytes..]).map_err(invalid)?;
            send_all(&self.socket, &room[..bytes])?;
        }
        Ok(grants)
    }
}

fn request(id: u64, targets: &TargetList) -> ClientMessage<'_> {
    let targets = targets.as_targets();
    ClientMessage::Request(Request { id, kind: IoKind::Write, bytes: BYTES, targets })
}

fn connect(endpoint: &Endpoint) -> Result<OwnedFd> {
    let refused = |error| Error::io(format!("connecting to {endpoint}"), error);
    match endpoint {
        Endpoint::Unix(path) => Ok(UnixStream::connect(path).map_err(refused)?.into()),
        Endpoint::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).map_err(refused)?;
            sockopt::set_tcp_nodelay(&stream, true).map_err(failed("connecting"))?;
            Ok(stream.into())
        }
    }
}

/// Sends a few bytes that always fit: a client never has more than two messages on their way.
fn send_all(socket: &OwnedFd, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match send(socket, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => bytes = &bytes[sent.min(bytes.len())..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => std::thread::yield_now(),
            Err(errno) => return Err(failed("sending")(errno)),
        }
    }
    Ok(())
}
