//! A connection: what has come in part, what is still to be sent, and who is at the other end.

use crate::message::{CoordinatorMessage, FRAME_BYTES_MAX};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::rc::Rc;

/// Bytes not taken by the peer beyond which nothing more is read from it.
const OUTPUT_FULL: usize = 256 << 10;

/// A client that was welcomed.
#[derive(Debug)]
pub(super) struct Peer {
    /// Index of its group.
    pub group: usize,
    pub job: Box<str>,
    pub host: Box<str>,
    pub pid: u32,
    pub rank: Option<u32>,
}

/// Who is at the other end.
#[derive(Clone)]
pub(super) enum Role {
    /// Nobody known; must know the token if there is one.
    Stranger {
        needs_token: bool,
    },
    Client(Rc<Peer>),
    /// Somebody who wants the metrics.
    Http,
    /// Somebody who is told why not: what it sends is thrown away until it closes.
    Refused,
}

pub(super) struct Conn {
    pub socket: OwnedFd,
    pub role: Role,
    /// Number of its acceptance.
    pub accepted: u64,
    /// Begin of a frame whose rest has not come.
    pub input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    /// When it is closed if nothing happens, microseconds.
    pub deadline_us: Option<u64>,
    /// What the loop waits for: to read, to write.
    pub interest: (bool, bool),
    /// To be closed once everything is sent.
    pub ending: bool,
    /// In the list of those with something to send.
    pub listed: bool,
}

/// Result of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    All,
    /// The peer must take some first.
    Some,
    /// The connection is gone.
    Broken,
}

impl Conn {
    pub fn new(socket: OwnedFd, role: Role, accepted: u64) -> Conn {
        Conn {
            socket,
            role,
            accepted,
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            deadline_us: None,
            interest: (true, false),
            ending: false,
            listed: false,
        }
    }

    /// Puts a message behind what is to be sent.
    pub fn push(&mut self, message: &CoordinatorMessage<'_>) {
        let mut room = [0; 512];
        match message.encode(&mut room) {
            Ok(bytes) => self.push_bytes(&room[..bytes]),
            Err(_) => {
                let mut room = vec![0; FRAME_BYTES_MAX];
                match message.encode(&mut room) {
                    Ok(bytes) => self.push_bytes(&room[..bytes]),
                    // The server sends no message that breaks the rules of its own protocol.
                    Err(error) => tracing::error!("message not sent: {error}"),
                }
            }
        }
    }

    /// Puts bytes behind what is to be sent.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    /// Bytes to be sent.
    pub fn unsent(&self) -> usize {
        self.output.len() - self.sent
    }

    /// The peer takes too little to be read any further.
    pub fn is_stuffed(&self) -> bool {
        self.unsent() >= OUTPUT_FULL
    }

    /// Sends what can be sent without waiting.
    pub fn flush(&mut self) -> Sent {
        while self.sent < self.output.len() {
            match send(&self.socket, &self.output[self.sent..], SendFlags::NOSIGNAL) {
                Ok(0) => return Sent::Some,
                Ok(bytes) => self.sent += bytes,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.output.drain(..self.sent);
                    self.sent = 0;
                    return Sent::Some;
                }
                Err(_) => return Sent::Broken,
            }
        }
        self.sent = 0;
        // A client that waits has nothing to send: give the memory back.
        if self.output.capacity() > 1024 {
            self.output = Vec::new();
        } else {
            self.output.clear();
        }
        Sent::All
    }
}
