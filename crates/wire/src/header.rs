//! The fixed frame header: 40 bytes, little-endian.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `AZK1` |
//! | 4 | 2 | wire version |
//! | 6 | 1 | kind |
//! | 7 | 1 | flags |
//! | 8 | 8 | request id, chosen by the asking side, echoed in the reply |
//! | 16 | 4 | pool map version the sender knows (0: none) |
//! | 20 | 4 | requests: deadline, milliseconds from sending (0: none); answers: bulk credit |
//! | 24 | 4 | body bytes |
//! | 28 | 4 | bulk bytes that follow the body |
//! | 32 | 4 | CRC-32C of the body |
//! | 36 | 4 | CRC-32C of bytes 0..36 |
//!
//! The *bulk credit* of an answer says how many bulk writes the client may have under way with
//! their data in the stream: 0 any number, else one less than it says. A client over its credit
//! sends the request alone ([`FLAG_DEFERRED_BULK`]), waits for [`Kind::Go`] and sends the data in
//! a [`Kind::Data`] frame. Credit is advice: an engine takes data that comes without it, too.

use crate::WIRE_VERSION;
use types::{Code, Error, Result, limits};

/// Size of an encoded [`Header`].
pub const HEADER_BYTES: usize = 40;
const MAGIC: u32 = u32::from_le_bytes(*b"AZK1");

/// What a frame holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A caller's first frame: [`crate::hello::ProvenHello`].
    Hello = 1,
    /// Answer to it: [`crate::hello::HelloReply`] in a [`crate::obj::Reply`]-like result.
    HelloReply = 2,
    /// [`crate::obj::Request`] to a target.
    Request = 3,
    /// Answer to a request; the body is `Result<message, Error>`.
    Reply = 4,
    /// [`crate::obj::Notice`]: no answer is sent.
    Notice = 5,
    /// [`crate::control::ControlRequest`].
    Control = 6,
    /// Answer to it: `Result<ControlReply, Error>`.
    ControlReply = 7,
    /// Are you there; empty body.
    Ping = 8,
    /// Answer to a ping; empty body.
    Pong = 9,
    /// The engine asks for the deferred bulk of the request with this id; empty body.
    Go = 10,
    /// The bulk asked for, as long as the request said; empty body.
    Data = 11,
    /// The client has given up the request with this id, whose bulk it has deferred; empty body.
    Cancel = 12,
    /// First frame of a connection, by the engine: [`crate::hello::Challenge`].
    Challenge = 13,
}

impl Kind {
    fn from_number(number: u8) -> Option<Kind> {
        use Kind::*;
        let all = [
            Hello,
            HelloReply,
            Request,
            Reply,
            Notice,
            Control,
            ControlReply,
            Ping,
            Pong,
            Go,
            Data,
            Cancel,
            Challenge,
        ];
        all.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// The same request was sent before on a connection that broke. Receivers do not rely on it: of two tries the first
/// may arrive last, without the flag.
pub const FLAG_RETRY: u8 = 1;
/// The bulk is not in the frame: the body ends with the client's memory ranges.
pub const FLAG_REMOTE_BULK: u8 = 2;
/// The bulk is not in the frame: it comes in a [`Kind::Data`] frame after a [`Kind::Go`].
pub const FLAG_DEFERRED_BULK: u8 = 4;
/// In answers: the target is nearly full, and new files are better off elsewhere. Advice.
pub const FLAG_SHORT: u8 = 8;
/// In requests: the answer to fetches whose data are all in cells may name these instead ([`crate::cell::NamedPart`]).
pub const FLAG_CELLS: u8 = 16;

/// In requests and their frames to targets: the body ends, before memory ranges, with the number of the job that is asked for, one byte
/// ([`crate::obj::Notice::Job`]).
pub const FLAG_JOB: u8 = 32;
/// In answers to jobs in the background ([`types::job::is_background`]): users want something of the engine, too. In messages with orders of a leader: users want
/// some of them. Advice.
pub const FLAG_USERS: u8 = 64;
/// In requests: a target that follows in the groups of what is only looked at may answer by what it has, if it knows that no other member shows more or
/// less. Else it refuses: `Busy` when it may the next moment, something else when that may take longer.
pub const FLAG_MEMBER: u8 = 128;

/// A decoded frame header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What the frame holds.
    pub kind: Kind,
    /// `FLAG_*` bits.
    pub flags: u8,
    /// Chosen by the asking side, echoed in the reply.
    pub request_id: u64,
    /// Pool map version the sender knows; 0 for none.
    pub map_version: u32,
    /// In requests: how long the sender will wait, milliseconds; 0 for no limit. In answers: see
    /// [`Header::bulk_credit`].
    pub deadline_ms: u32,
    /// Length of the body.
    pub body_bytes: u32,
    /// Length of the bulk that follows the body.
    pub bulk_bytes: u32,
    /// CRC-32C of the body.
    pub body_crc: u32,
}

impl Header {
    /// A header for `body`, followed by `bulk_bytes` of bulk.
    pub fn new(kind: Kind, request_id: u64, body: &[u8], bulk_bytes: usize) -> Header {
        Header {
            kind,
            flags: 0,
            request_id,
            map_version: 0,
            deadline_ms: 0,
            body_bytes: body.len() as u32,
            bulk_bytes: bulk_bytes as u32,
            body_crc: crc(body),
        }
    }

    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut raw = [0; HEADER_BYTES];
        raw[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        raw[4..6].copy_from_slice(&WIRE_VERSION.to_le_bytes());
        raw[6] = self.kind as u8;
        raw[7] = self.flags;
        raw[8..16].copy_from_slice(&self.request_id.to_le_bytes());
        raw[16..20].copy_from_slice(&self.map_version.to_le_bytes());
        raw[20..24].copy_from_slice(&self.deadline_ms.to_le_bytes());
        raw[24..28].copy_from_slice(&self.body_bytes.to_le_bytes());
        raw[28..32].copy_from_slice(&self.bulk_bytes.to_le_bytes());
        raw[32..36].copy_from_slice(&self.body_crc.to_le_bytes());
        let sum = crc(&raw[..36]);
        raw[36..40].copy_from_slice(&sum.to_le_bytes());
        raw
    }

    /// Decodes and checks magic, checksum, version, kind and length limits.
    ///
    /// A wrong version is [`Code::Version`], everything else [`Code::Proto`].
    pub fn decode(raw: &[u8; HEADER_BYTES]) -> Result<Header> {
        let u32_at =
            |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        let proto = |text: String| Error::new(Code::Proto, text);
        if u32_at(0) != MAGIC {
            return Err(proto("not an Azekura frame".into()));
        }
        let version = u16::from_le_bytes([raw[4], raw[5]]);
        if version != WIRE_VERSION {
            return Err(Error::new(
                Code::Version,
                format!(
                    "the other side speaks wire version {version}, this one {WIRE_VERSION}; upgrade the older"
                ),
            ));
        }
        if u32_at(36) != crc(&raw[..36]) {
            return Err(proto("frame header checksum mismatch".into()));
        }
        let kind = Kind::from_number(raw[6])
            .ok_or_else(|| proto(format!("unknown frame kind {}", raw[6])))?;
        let mut id = [0; 8];
        id.copy_from_slice(&raw[8..16]);
        let header = Header {
            kind,
            flags: raw[7],
            request_id: u64::from_le_bytes(id),
            map_version: u32_at(16),
            deadline_ms: u32_at(20),
            body_bytes: u32_at(24),
            bulk_bytes: u32_at(28),
            body_crc: u32_at(32),
        };
        if header.body_bytes as usize > limits::BODY_BYTES_MAX {
            return Err(proto(format!("body of {} bytes is over the limit", header.body_bytes)));
        }
        if header.bulk_bytes as usize > limits::BULK_BYTES_MAX {
            return Err(proto(format!("bulk of {} bytes is over the limit", header.bulk_bytes)));
        }
        Ok(header)
    }

    /// Of an answer: bulk writes the client may have under way with their data in the stream;
    /// `None` for any number.
    pub fn bulk_credit(&self) -> Option<u32> {
        self.deadline_ms.checked_sub(1)
    }

    pub fn set_bulk_credit(&mut self, credit: Option<u32>) {
        self.deadline_ms = credit.map_or(0, |count| count.saturating_add(1));
    }

    /// Checks a received body against the header.
    pub fn check_body(&self, body: &[u8]) -> Result<()> {
        if crc(body) != self.body_crc {
            return Err(Error::new(Code::Proto, "frame body checksum mismatch"));
        }
        Ok(())
    }
}

/// CRC-32C of `bytes`.
pub fn crc(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}
