//! Asking a coordinator for its state.

use crate::message::{
    CLIENT_FRAME_BYTES_MAX, ClientMessage, CoordinatorMessage, Hello, STATS_PART_BYTES_MAX,
};
use crate::rules::choice::Endpoint;
use crate::server::snapshot::Snapshot;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use types::{Code, Error, Result};

/// Longest JSON text that is taken from a coordinator, bytes.
const JSON_BYTES_MAX: usize = 64 << 20;

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// A connection for asking again and again.
pub struct Monitor {
    stream: Stream,
    endpoint: Endpoint,
    patience: Duration,
    input: Vec<u8>,
}

impl Monitor {
    /// Connects. Errors: `Unreach` when nobody is there, `Access` when the token is wrong,
    /// `TimedOut` when no answer comes within `patience`.
    pub fn connect(endpoint: &Endpoint, token: &[u8], patience: Duration) -> Result<Monitor> {
        let unreachable = |error: std::io::Error| {
            Error::new(Code::Unreach, format!("no coordinator at {endpoint}: {error}"))
        };
        let stream = match endpoint {
            Endpoint::Unix(path) => Stream::Unix(UnixStream::connect(path).map_err(unreachable)?),
            Endpoint::Tcp(host, port) => {
                let addresses = (host.as_str(), *port).to_socket_addrs().map_err(unreachable)?;
                let mut last = std::io::Error::other("the host has no address");
                let mut found = None;
                for address in addresses {
                    match TcpStream::connect_timeout(&address, patience) {
                        Ok(stream) => {
                            found = Some(stream);
                            break;
                        }
                        Err(error) => last = error,
                    }
                }
                Stream::Tcp(found.ok_or(last).map_err(unreachable)?)
            }
        };
        let endpoint = endpoint.clone();
        let mut monitor = Monitor { stream, endpoint, patience, input: Vec::new() };
        let hello = Hello {
            token,
            group: "",
            job: "azekura-ioc-top",
            host: "",
            pid: std::process::id(),
            rank: None,
            weight: 1,
            priority: 0,
        };
        let deadline = Instant::now() + patience;
        monitor.send(&ClientMessage::Hello(hello), deadline)?;
        Ok(monitor)
    }

    /// The coordinator's state now.
    pub fn ask(&mut self) -> Result<Snapshot> {
        let deadline = Instant::now() + self.patience;
        self.send(&ClientMessage::Stats, deadline)?;
        let mut json = Vec::new();
        loop {
            let mut taken = 0;
            let mut whole = false;
            while let Some((message, bytes)) = CoordinatorMessage::decode(&self.input[taken..])
                .map_err(|error| Error::new(Code::Io, format!("{}: {error}", self.endpoint)))?
            {
                taken += bytes;
                match message {
                    CoordinatorMessage::Refused { text, .. } => {
                        let text = format!("{} refuses: {text}", self.endpoint);
                        return Err(Error::new(Code::Access, text));
                    }
                    CoordinatorMessage::StatsPart { last, json: part } => {
                        json.extend_from_slice(part);
                        whole |= last;
                    }
                    _ => {}
                }
            }
            self.input.drain(..taken);
            if whole {
                return serde_json::from_slice(&json).map_err(|error| {
                    Error::new(Code::Io, format!("{} says nonsense: {error}", self.endpoint))
                });
            }
            if json.len() > JSON_BYTES_MAX {
                return Err(Error::new(Code::Io, format!("{} says too much", self.endpoint)));
            }
            self.receive(deadline)?;
        }
    }

    /// Time left for the next system call; never zero, which would mean for ever.
    fn left(&self, deadline: Instant) -> Result<Duration> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::new(Code::TimedOut, format!("{} does not answer", self.endpoint)));
        }
        Ok(left)
    }

    fn failed(&self, error: &std::io::Error) -> Error {
        use std::io::ErrorKind::{TimedOut, WouldBlock};
        let code = if matches!(error.kind(), TimedOut | WouldBlock) {
            Code::TimedOut
        } else {
            Code::Unreach
        };
        Error::new(code, format!("{}: {error}", self.endpoint))
    }

    fn send(&mut self, message: &ClientMessage<'_>, deadline: Instant) -> Result<()> {
        let mut room = [0; CLIENT_FRAME_BYTES_MAX];
        let bytes = message.encode(&mut room).map_err(|error| Error::inval(error.to_string()))?;
        let left = Some(self.left(deadline)?);
        let sent = match &mut self.stream {
            Stream::Unix(to) => {
                to.set_write_timeout(left).and_then(|()| to.write_all(&room[..bytes]))
            }
            Stream::Tcp(to) => {
                to.set_write_timeout(left).and_then(|()| to.write_all(&room[..bytes]))
            }
        };
        // A refusal may have come before the door was closed: reading tells.
        match sent {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(self.failed(&error))
            }
            _ => Ok(()),
        }
    }

    fn receive(&mut self, deadline: Instant) -> Result<()> {
        let mut room = vec![0; STATS_PART_BYTES_MAX];
        let left = Some(self.left(deadline)?);
        let got = match &mut self.stream {
            Stream::Unix(from) => from.set_read_timeout(left).and_then(|()| from.read(&mut room)),
            Stream::Tcp(from) => from.set_read_timeout(left).and_then(|()| from.read(&mut room)),
        };
        match got {
            Ok(0) => {
                let text = format!("{} closed the connection", self.endpoint);
                Err(Error::new(Code::Closed, text))
            }
            Ok(bytes) => {
                self.input.extend_from_slice(&room[..bytes]);
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(self.failed(&error)),
        }
    }
}
