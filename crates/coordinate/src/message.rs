//! The frames between a client (a process that does I/O) and its coordinator.
//!
//! A frame is a header of 8 bytes and a payload; all numbers are little-endian.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | payload bytes |
//! | 4 | 1 | kind |
//! | 5 | 3 | zero |
//!
//! A *name* in a payload is one byte of length and so many bytes of UTF-8 without control
//! characters. Payloads by kind; client to coordinator:
//!
//! | kind | name | payload |
//! |---|---|---|
//! | 1 | `HELLO` | magic `AZIO`, version u16, priority u8, 0 u8, weight u16, 0 u16, pid u32, rank u32 (all ones: none), token (a name of any bytes), group, job, host |
//! | 2 | `WRITE_REQUEST`, or the same for a read | id u64, bytes u64, 0 write or 1 read u8, number of targets u8, the targets' names |
//! | 3 | `COMPLETION` | id u64, bytes u64, io time µs u64 |
//! | 4 | `CANCEL` | id u64 |
//! | 5 | `STATS` | empty |
//! | 6 | `PING` | empty; a waiting client asks whether the coordinator is still alive |
//!
//! Coordinator to client:
//!
//! | kind | name | payload |
//! |---|---|---|
//! | 129 | `HELLO_ACK` | version u16, 0 u16, 0 u32, least bytes of a coordinated write u64, of a read u64 (all ones: as the client likes) |
//! | 130 | `REFUSED` | reason u16, a name for people; the connection is closed afterwards |
//! | 131 | `ACK_REQUEST` | id u64 |
//! | 132 | `STATS_PART` | 1 when it is the last part u8, bytes of a JSON text to the payload's end |
//! | 133 | `PONG` | empty; sent at once for each `PING` |
//!
//! Invariants: the header, the first six bytes of `HELLO` and all of `REFUSED` are the same in
//! every version, so that two versions can at least tell each other so. Nothing is trusted: a
//! frame is refused by its header when it is longer than its kind can be. Encoding and decoding
//! allocate nothing, because the client side runs inside signal handlers of other programs.
//!
//! Why not the engine's frames (`wire`): these are for sites without an engine, and must be easy
//! to write in any language.

mod cursor;
#[cfg(test)]
mod tests;

use cursor::{Reader, Writer};

/// Version of these messages. 1: the first.
pub const VERSION: u16 = 1;
/// Size of a frame's header.
pub const HEADER_BYTES: usize = 8;
/// Longest frame with its header, of any kind and direction.
pub const FRAME_BYTES_MAX: usize = 64 << 10;
/// Longest frame a client sends, with its header.
pub const CLIENT_FRAME_BYTES_MAX: usize = 8 << 10;
/// Longest `HELLO` with its header, of this version or a later one: all that a coordinator reads
/// from a stranger.
pub const HELLO_FRAME_BYTES_MAX: usize = 2 << 10;
/// Longest name of a target, group, job or host, and longest token.
pub const NAME_BYTES_MAX: usize = 255;
/// Most targets of one request.
pub const TARGETS_MAX: usize = 16;
/// Bytes of JSON in one `STATS_PART`.
pub const STATS_PART_BYTES_MAX: usize = 32 << 10;

const MAGIC: [u8; 4] = *b"AZIO";
const NONE_32: u32 = u32::MAX;
const NONE_64: u64 = u64::MAX;

/// What a process wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum IoKind {
    /// Write to the targets.
    Write = 0,
    Read = 1,
}

impl IoKind {
    /// `write` or `read`.
    pub fn name(self) -> &'static str {
        match self {
            IoKind::Write => "write",
            IoKind::Read => "read",
        }
    }
}

/// Who a client is: the first frame of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// Shared secret, at most [`NAME_BYTES_MAX`] bytes; empty over a Unix socket.
    pub token: &'a [u8],
    /// Group of processes and targets; empty for the coordinator's first one.
    pub group: &'a str,
    /// Job the process belongs to, for fairness among jobs; may be empty.
    pub job: &'a str,
    /// Name of the client's host, for people.
    pub host: &'a str,
    /// Process id, for people.
    pub pid: u32,
    /// MPI rank, if there is one.
    pub rank: Option<u32>,
    /// Share of the job among others, ≥ 1, unless the coordinator's settings say another.
    pub weight: u16,
    /// Requests of a higher priority go first; 0 is usual.
    pub priority: u8,
}

/// `WRITE_REQUEST`, or the same for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Chosen by the client; different from its other requests that are not completed.
    pub id: u64,
    pub kind: IoKind,
    /// Bytes it will transfer, as far as known.
    pub bytes: u64,
    /// Where to; it is granted on all of them at once.
    pub targets: Targets<'a>,
}

/// What a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientMessage<'a> {
    /// First frame.
    Hello(Hello<'a>),
    Request(Request<'a>),
    /// A granted request is done.
    Completion {
        id: u64,
        /// Bytes that were transferred.
        bytes: u64,
        /// How long the transfer took, microseconds.
        io_us: u64,
    },
    /// The request is given up, whether it was granted or still waits.
    Cancel {
        id: u64,
    },
    /// Asks for the coordinator's state.
    Stats,
    /// Asks for a [`CoordinatorMessage::Pong`]: a long wait in a queue is no reason to give up on
    /// the coordinator, silence is.
    Ping,
}

/// Why a coordinator refuses a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Reason {
    /// It speaks another version.
    Version = 1,
    /// The token is wrong.
    Token = 2,
    /// It has no such group.
    Group = 3,
    /// It has as many clients as it may.
    Full = 4,
    /// A message that makes no sense here.
    Protocol = 5,
    /// A reason that this version does not know.
    Other = 0xffff,
}

impl Reason {
    fn from_number(number: u16) -> Reason {
        use Reason::*;
        [Version, Token, Group, Full, Protocol]
            .into_iter()
            .find(|reason| *reason as u16 == number)
            .unwrap_or(Other)
    }
}

/// What a coordinator sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoordinatorMessage<'a> {
    /// The client is welcome.
    HelloAck {
        /// Writes of fewer bytes need not ask; `None`: the client's own setting.
        write_bytes_min: Option<u64>,
        /// The same for reads.
        read_bytes_min: Option<u64>,
    },
    /// The client is not; the connection is closed.
    Refused {
        /// For the program.
        reason: Reason,
        /// For people.
        text: &'a str,
    },
    /// `ACK_REQUEST`: the request is granted.
    Ack { id: u64 },
    /// A part of the answer to [`ClientMessage::Stats`].
    StatsPart {
        /// No part follows.
        last: bool,
        /// The next bytes of a JSON text; at most [`STATS_PART_BYTES_MAX`].
        json: &'a [u8],
    },
    /// The answer to [`ClientMessage::Ping`], sent at once.
    Pong,
}

/// A frame that makes no sense; the connection cannot be used further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// No frame begins like this.
    #[error("not a frame of the coordination protocol")]
    NotAFrame,
    /// A length no frame of the kind can have.
    #[error("a frame of kind {kind} with {bytes} bytes of payload")]
    Length {
        /// Kind of the frame.
        kind: u8,
        /// What its header says.
        bytes: u32,
    },
    /// A client of another version says hello.
    #[error("protocol version {theirs}; this side speaks {VERSION}")]
    Version { theirs: u16 },
    /// A payload that is no message.
    #[error("a frame of kind {kind} whose {what}")]
    Payload {
        /// Kind of the frame.
        kind: u8,
        /// What is wrong, continuing "whose".
        what: &'static str,
    },
}

/// A message that cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The room given is too small; [`CLIENT_FRAME_BYTES_MAX`] or [`FRAME_BYTES_MAX`] never is.
    #[error("the message needs more room")]
    Room,
    /// A name or token is too long, or empty where it may not be, or has control characters.
    #[error("a name of more than {NAME_BYTES_MAX} bytes, or with control characters, or empty")]
    Name,
    /// No target, or more than [`TARGETS_MAX`].
    #[error("a request has 1 to {TARGETS_MAX} targets")]
    TargetCount,
    /// A weight of 0, or a part of more than [`STATS_PART_BYTES_MAX`] bytes.
    #[error("a number out of its range")]
    Number,
}

/// Names of the targets of a request, in their encoded form: 1 to [`TARGETS_MAX`] of them.
///
/// Made once per file and kept, by [`Targets::encode`] or [`TargetList`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Targets<'a> {
    count: u8,
    encoded: &'a [u8],
}

impl<'a> Targets<'a> {
    /// Encodes names into `room`, which need not be larger than [`Targets::BYTES_MAX`]. Names
    /// have 1 to [`NAME_BYTES_MAX`] bytes without control characters.
    pub fn encode(names: &[&str], room: &'a mut [u8]) -> Result<Targets<'a>, EncodeError> {
        if names.is_empty() || names.len() > TARGETS_MAX {
            return Err(EncodeError::TargetCount);
        }
        let mut writer = Writer::new(room);
        for name in names {
            if name.is_empty() {
                return Err(EncodeError::Name);
            }
            writer.name(name)?;
        }
        let bytes = writer.written();
        let room: &'a [u8] = room;
        Ok(Targets { count: names.len() as u8, encoded: &room[..bytes] })
    }

    /// Bytes the longest list takes.
    pub const BYTES_MAX: usize = TARGETS_MAX * (1 + NAME_BYTES_MAX);

    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Never true; here because [`Targets::len`] is.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let mut reader = Reader::new(self.encoded);
        // Both ways to make a `Targets` have checked every name.
        std::iter::from_fn(move || reader.name().ok())
    }
}

impl std::fmt::Debug for Targets<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// [`Targets`] that own their bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct TargetList {
    count: u8,
    encoded: Box<[u8]>,
}

impl TargetList {
    /// A list of these names; see [`Targets::encode`].
    pub fn new<S: AsRef<str>>(names: &[S]) -> Result<TargetList, EncodeError> {
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        let mut room = vec![0; names.iter().map(|name| 1 + name.len()).sum()];
        let Targets { count, encoded } = Targets::encode(&names, &mut room)?;
        Ok(TargetList { count, encoded: encoded.into() })
    }

    /// The list, to put into a request.
    pub fn as_targets(&self) -> Targets<'_> {
        Targets { count: self.count, encoded: &self.encoded }
    }
}

impl std::fmt::Debug for TargetList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_targets().fmt(f)
    }
}

mod kind {
    pub const HELLO: u8 = 1;
    pub const REQUEST: u8 = 2;
    pub const COMPLETION: u8 = 3;
    pub const CANCEL: u8 = 4;
    pub const STATS: u8 = 5;
    pub const PING: u8 = 6;
    pub const HELLO_ACK: u8 = 129;
    pub const REFUSED: u8 = 130;
    pub const ACK: u8 = 131;
    pub const STATS_PART: u8 = 132;
    pub const PONG: u8 = 133;
}

/// Payload bytes a frame of this kind may have; `None`: there is no such kind.
fn payload_bounds(kind: u8) -> Option<std::ops::RangeInclusive<usize>> {
    let bounds = match kind {
        // A later version's may be longer.
        kind::HELLO => 6..=HELLO_FRAME_BYTES_MAX - HEADER_BYTES,
        kind::REQUEST => 20..=18 + Targets::BYTES_MAX,
        kind::COMPLETION => 24..=24,
        kind::CANCEL => 8..=8,
        kind::STATS | kind::PING | kind::PONG => 0..=0,
        kind::HELLO_ACK => 24..=24,
        kind::REFUSED => 3..=3 + NAME_BYTES_MAX,
        kind::ACK => 8..=8,
        kind::STATS_PART => 1..=1 + STATS_PART_BYTES_MAX,
        _ => return None,
    };
    Some(bounds)
}

/// A frame at the front of `bytes`: its kind, payload and size; `None` when more bytes are needed.
type Split<'a> = Option<(u8, &'a [u8], usize)>;

fn split(bytes: &[u8], from_client: bool) -> Result<Split<'_>, DecodeError> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let payload_bytes = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    let kind = header[4];
    if header[5..] != [0; 3] || from_client != (kind < 128) {
        return Err(DecodeError::NotAFrame);
    }
    let bounds = payload_bounds(kind).ok_or(DecodeError::NotAFrame)?;
    if !bounds.contains(&(payload_bytes as usize)) {
        return Err(DecodeError::Length { kind, bytes: payload_bytes });
    }
    let end = HEADER_BYTES + payload_bytes as usize;
    Ok(bytes.get(HEADER_BYTES..end).map(|payload| (kind, payload, end)))
}

/// Writes the header and what `payload` writes; returns the frame's size.
fn frame(
    room: &mut [u8],
    kind: u8,
    payload: impl FnOnce(&mut Writer<'_>) -> Result<(), EncodeError>,
) -> Result<usize, EncodeError> {
    let (header, rest) = room.split_first_chunk_mut::<HEADER_BYTES>().ok_or(EncodeError::Room)?;
    let mut writer = Writer::new(rest);
    payload(&mut writer)?;
    let bytes = writer.written();
    debug_assert!(payload_bounds(kind).is_some_and(|bounds| bounds.contains(&bytes)));
    header[..4].copy_from_slice(&(bytes as u32).to_le_bytes());
    header[4..].copy_from_slice(&[kind, 0, 0, 0]);
    Ok(HEADER_BYTES + bytes)
}

impl<'a> ClientMessage<'a> {
    /// Encodes into `room`; returns the number of bytes written.
    pub fn encode(&self, room: &mut [u8]) -> Result<usize, EncodeError> {
        match self {
            ClientMessage::Hello(hello) => frame(room, kind::HELLO, |to| {
                if hello.weight == 0 {
                    return Err(EncodeError::Number);
                }
                to.bytes(&MAGIC)?;
                to.u16(VERSION)?;
                to.bytes(&[hello.priority, 0])?;
                to.u16(hello.weight)?;
                to.u16(0)?;
                to.u32(hello.pid)?;
                to.u32(hello.rank.unwrap_or(NONE_32))?;
                to.blob(hello.token)?;
                to.name(hello.group)?;
                to.name(hello.job)?;
                to.name(hello.host)
            }),
            ClientMessage::Request(request) => frame(room, kind::REQUEST, |to| {
                to.u64(request.id)?;
                to.u64(request.bytes)?;
                to.bytes(&[request.kind as u8, request.targets.count])?;
                to.bytes(request.targets.encoded)
            }),
            ClientMessage::Completion { id, bytes, io_us } => frame(room, kind::COMPLETION, |to| {
                to.u64(*id)?;
                to.u64(*bytes)?;
                to.u64(*io_us)
            }),
            ClientMessage::Cancel { id } => frame(room, kind::CANCEL, |to| to.u64(*id)),
            ClientMessage::Stats => frame(room, kind::STATS, |_| Ok(())),
            ClientMessage::Ping => frame(room, kind::PING, |_| Ok(())),
        }
    }

    /// The message at the front of `bytes`, which a client sent, and the bytes it takes; `None`
    /// when it is not whole yet.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(ClientMessage<'a>, usize)>, DecodeError> {
        let Some((kind, payload, taken)) = split(bytes, true)? else { return Ok(None) };
        let mut from = Reader::new(payload);
        let message = Self::read(kind, &mut from).map_err(|fault| fault.at(kind))?;
        from.end().map_err(|fault| fault.at(kind))?;
        Ok(Some((message, taken)))
    }

    fn read(kind: u8, from: &mut Reader<'a>) -> Result<ClientMessage<'a>, cursor::Fault> {
        use cursor::Fault;
        Ok(match kind {
            kind::HELLO => {
                if from.bytes(4)? != MAGIC {
                    return Err(Fault::Stranger);
                }
                let theirs = from.u16()?;
                if theirs != VERSION {
                    return Err(Fault::Version(theirs));
                }
                let priority = from.u8()?;
                from.zero(1)?;
                let weight = from.u16()?;
                if weight == 0 {
                    return Err(Fault::What("weight is 0"));
                }
                from.zero(2)?;
                let pid = from.u32()?;
                let rank = Some(from.u32()?).filter(|rank| *rank != NONE_32);
                ClientMessage::Hello(Hello {
                    token: from.blob()?,
                    group: from.name()?,
                    job: from.name()?,
                    host: from.name()?,
                    pid,
                    rank,
                    weight,
                    priority,
                })
            }
            kind::REQUEST => {
                let (id, bytes) = (from.u64()?, from.u64()?);
                let kind = match from.u8()? {
                    0 => IoKind::Write,
                    1 => IoKind::Read,
                    _ => return Err(Fault::What("direction is neither write nor read")),
                };
                let count = from.u8()?;
                if count == 0 || count as usize > TARGETS_MAX {
                    return Err(Fault::What("number of targets is not 1 to 16"));
                }
                let encoded = from.rest();
                for _ in 0..count {
                    if from.name()?.is_empty() {
                        return Err(Fault::What("target has no name"));
                    }
                }
                ClientMessage::Request(Request {
                    id,
                    kind,
                    bytes,
                    targets: Targets { count, encoded },
                })
            }
            kind::COMPLETION => ClientMessage::Completion {
                id: from.u64()?,
                bytes: from.u64()?,
                io_us: from.u64()?,
            },
            kind::CANCEL => ClientMessage::Cancel { id: from.u64()? },
            kind::STATS => ClientMessage::Stats,
            kind::PING => ClientMessage::Ping,
            _ => return Err(Fault::Stranger),
        })
    }
}

impl<'a> CoordinatorMessage<'a> {
    /// Encodes into `room`; returns the number of bytes written. The text of a refusal is cut to
    /// [`NAME_BYTES_MAX`] bytes.
    pub fn encode(&self, room: &mut [u8]) -> Result<usize, EncodeError> {
        match self {
            CoordinatorMessage::HelloAck { write_bytes_min, read_bytes_min } => {
                frame(room, kind::HELLO_ACK, |to| {
                    to.u16(VERSION)?;
                    to.u16(0)?;
                    to.u32(0)?;
                    to.u64(write_bytes_min.unwrap_or(NONE_64))?;
                    to.u64(read_bytes_min.unwrap_or(NONE_64))
                })
            }
            CoordinatorMessage::Refused { reason, text } => frame(room, kind::REFUSED, |to| {
                to.u16(*reason as u16)?;
                let mut end = text.len().min(NAME_BYTES_MAX);
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                to.name(&text[..end])
            }),
            CoordinatorMessage::Ack { id } => frame(room, kind::ACK, |to| to.u64(*id)),
            CoordinatorMessage::StatsPart { last, json } => frame(room, kind::STATS_PART, |to| {
                if json.len() > STATS_PART_BYTES_MAX {
                    return Err(EncodeError::Number);
                }
                to.bytes(&[u8::from(*last)])?;
                to.bytes(json)
            }),
            CoordinatorMessage::Pong => frame(room, kind::PONG, |_| Ok(())),
        }
    }

    /// The message at the front of `bytes`, which a coordinator sent, and the bytes it takes;
    /// `None` when it is not whole yet.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(CoordinatorMessage<'a>, usize)>, DecodeError> {
        let Some((kind, payload, taken)) = split(bytes, false)? else { return Ok(None) };
        let mut from = Reader::new(payload);
        let message = Self::read(kind, &mut from).map_err(|fault| fault.at(kind))?;
        from.end().map_err(|fault| fault.at(kind))?;
        Ok(Some((message, taken)))
    }

    fn read(kind: u8, from: &mut Reader<'a>) -> Result<CoordinatorMessage<'a>, cursor::Fault> {
        use cursor::Fault;
        let wanted = |bytes: u64| Some(bytes).filter(|bytes| *bytes != NONE_64);
        Ok(match kind {
            kind::HELLO_ACK => {
                let theirs = from.u16()?;
                if theirs != VERSION {
                    return Err(Fault::Version(theirs));
                }
                from.zero(6)?;
                CoordinatorMessage::HelloAck {
                    write_bytes_min: wanted(from.u64()?),
                    read_bytes_min: wanted(from.u64()?),
                }
            }
            kind::REFUSED => CoordinatorMessage::Refused {
                reason: Reason::from_number(from.u16()?),
                text: from.name()?,
            },
            kind::ACK => CoordinatorMessage::Ack { id: from.u64()? },
            kind::STATS_PART => {
                let last = match from.u8()? {
                    0 => false,
                    1 => true,
                    _ => return Err(Fault::What("first byte is neither 0 nor 1")),
                };
                let json = from.rest();
                from.bytes(json.len())?;
                CoordinatorMessage::StatsPart { last, json }
            }
            kind::PONG => CoordinatorMessage::Pong,
            _ => return Err(Fault::Stranger),
        })
    }
}
