//! What a request came in, and what takes its answer back: a buffer of `/dev/fuse` or an entry of
//! an io_uring queue. It answers exactly once; when nobody does, it answers `EIO` itself.

use super::abi::{self, InHeader, OutHeader, bytes_of};
use super::decode::{Body, Dialect, Malformed};
use super::uring::Uring;
use super::worker::Core;
use env::AlignedBuf;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::io::IoSlice;
use std::rc::Rc;

/// Requests up to this many bytes are moved out of the large buffer they arrive in.
const SMALL_BYTES: usize = 4096;
/// Large buffers kept for reuse.
const SPARE_COUNT_MAX: usize = 16;
/// The data of a WRITE begins on a page: that far into the buffer a request begins.
const REQUEST_AT: usize = env::ALIGN_BYTES - size_of::<InHeader>() - size_of::<abi::WriteIn>();

/// Buffers of one worker.
pub(crate) struct Buffers {
    payload_bytes: usize,
    spare: RefCell<Vec<AlignedBuf>>,
}

impl Buffers {
    pub fn new(payload_bytes: usize) -> Buffers {
        Buffers { payload_bytes, spare: RefCell::default() }
    }

    fn large(&self) -> AlignedBuf {
        let spare = self.spare.borrow_mut().pop();
        // Room for the header and names, too: a page before the data, and a page after it.
        spare.unwrap_or_else(|| AlignedBuf::zeroed(self.payload_bytes + 2 * env::ALIGN_BYTES))
    }

    fn put(&self, buf: AlignedBuf) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_COUNT_MAX {
            spare.push(buf);
        }
    }

    /// Where the next request may go.
    pub fn for_request(&self) -> Arriving {
        Arriving { buf: self.large(), bytes: 0 }
    }

    /// Takes back one that no request came in.
    pub fn give_back(&self, arriving: Arriving) {
        self.put(arriving.buf);
    }
}

/// A buffer that a request is read into.
pub(crate) struct Arriving {
    buf: AlignedBuf,
    bytes: usize,
}

impl Arriving {
    pub fn space(&mut self) -> &mut [u8] {
        &mut self.buf[REQUEST_AT..]
    }

    pub fn filled(&mut self, bytes: usize) {
        self.bytes = bytes;
    }
}

enum Held {
    Small(SmallVec<[u8; 128]>),
    Large(AlignedBuf, usize),
}

impl Held {
    fn bytes(&self) -> &[u8] {
        match self {
            Held::Small(raw) => raw,
            Held::Large(buf, bytes) => &buf[REQUEST_AT..REQUEST_AT + bytes],
        }
    }
}

enum Via {
    Device { core: Rc<Core>, request: Held, room: Option<AlignedBuf> },
    Uring { ring: Rc<Uring>, slot: usize },
}

/// One request and the way its answer goes.
pub(crate) struct Carrier {
    header: InHeader,
    via: Via,
    answered: bool,
}

impl Carrier {
    /// A request as it was read; `None` when it is not even a header.
    pub fn from_device(core: Rc<Core>, arrived: Arriving) -> Option<Carrier> {
        let Arriving { buf, bytes } = arrived;
        let (header, _) = abi::take::<InHeader>(&buf[REQUEST_AT..REQUEST_AT + bytes])?;
        let request = if bytes <= SMALL_BYTES {
            let small = SmallVec::from_slice(&buf[REQUEST_AT..REQUEST_AT + bytes]);
            core.buffers.put(buf);
            Held::Small(small)
        } else {
            Held::Large(buf, bytes)
        };
        let via = Via::Device { core, request, room: None };
        Some(Carrier { header, via, answered: false })
    }

    /// A request in an entry of a queue, which is ours until it is answered.
    pub fn from_uring(ring: Rc<Uring>, slot: usize) -> Carrier {
        let header = ring.in_header(slot);
        Carrier { header, via: Via::Uring { ring, slot }, answered: false }
    }

    pub fn header(&self) -> &InHeader {
        &self.header
    }

    pub fn body(&self, dialect: Dialect) -> Result<Body<'_>, Malformed> {
        match &self.via {
            Via::Device { request, .. } => {
                let raw = request.bytes().get(size_of::<InHeader>()..).unwrap_or_default();
                Body::split(self.header.opcode, dialect, raw)
            }
            Via::Uring { ring, slot } => Ok(ring.body(*slot)),
        }
    }

    /// Memory for an answer of at most `bytes`, sent by [`Carrier::answer_room`]. What it holds
    /// at first is unspecified.
    pub fn room(&mut self, bytes: u32) -> &mut [u8] {
        match &mut self.via {
            Via::Device { core, room, .. } => {
                let payload_bytes = core.buffers.payload_bytes;
                let buf = room.get_or_insert_with(|| core.buffers.large());
                &mut buf[..payload_bytes.min(bytes as usize)]
            }
            Via::Uring { ring, slot } => {
                let whole = ring.payload_mut(*slot);
                let bytes = whole.len().min(bytes as usize);
                &mut whole[..bytes]
            }
        }
    }

    /// Sends the first `bytes` of the room. False when the kernel no longer wanted it.
    pub fn answer_room(&mut self, bytes: usize) -> bool {
        self.answered = true;
        match &self.via {
            Via::Device { core, room, .. } => {
                let data = room.as_ref().and_then(|room| room.get(..bytes)).unwrap_or_default();
                write_device(core, self.header.unique, 0, &[data])
            }
            Via::Uring { ring, slot } => {
                ring.commit(*slot, self.header.unique, 0, bytes);
                true
            }
        }
    }

    /// Sends an answer. False when the kernel no longer wanted it.
    pub fn answer(&mut self, parts: &[&[u8]]) -> bool {
        self.send(0, parts)
    }

    /// Sends an error (negative).
    pub fn answer_error(&mut self, error: i32) {
        self.send(error, &[]);
    }

    fn send(&mut self, error: i32, parts: &[&[u8]]) -> bool {
        self.answered = true;
        match &self.via {
            Via::Device { core, .. } => write_device(core, self.header.unique, error, parts),
            Via::Uring { ring, slot } => {
                let payload = ring.payload_mut(*slot);
                let mut used = 0;
                for part in parts {
                    let Some(space) = payload.get_mut(used..used + part.len()) else {
                        ring.commit(*slot, self.header.unique, -libc::EIO, 0);
                        return false;
                    };
                    space.copy_from_slice(part);
                    used += part.len();
                }
                ring.commit(*slot, self.header.unique, error, used);
                true
            }
        }
    }

    /// The request wants no answer.
    pub fn no_answer(&mut self) {
        self.answered = true;
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        if !self.answered {
            self.answer_error(-libc::EIO);
        }
        if let Via::Device { core, request, room } = &mut self.via {
            if let Held::Large(buf, _) = std::mem::replace(request, Held::Small(SmallVec::new())) {
                core.buffers.put(buf);
            }
            if let Some(buf) = room.take() {
                core.buffers.put(buf);
            }
        }
    }
}

/// Writes an answer. False when the kernel no longer wanted it.
fn write_device(core: &Core, unique: u64, error: i32, parts: &[&[u8]]) -> bool {
    let bytes = size_of::<OutHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
    let header = OutHeader { len: bytes as u32, error, unique };
    let mut pieces: SmallVec<[IoSlice<'_>; 4]> = SmallVec::new();
    pieces.push(IoSlice::new(bytes_of(&header)));
    pieces.extend(parts.iter().map(|part| IoSlice::new(part)));
    loop {
        match rustix::io::writev(&core.dev, &pieces) {
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => continue,
            // The request was given up, or the session is over.
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NODEV) => return false,
            Err(failure) => {
                tracing::error!(unique, bytes, error, "the kernel refused an answer: {failure}");
                return false;
            }
        }
    }
}
