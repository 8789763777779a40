//! Messages between clients and engines, and between engines. Pure: no I/O, no clock.
//!
//! A frame is a fixed [`Header`], a body (postcard-encoded message) and bulk bytes. Bulk bytes
//! are user data; they never pass through the serializer. On one host the bulk may instead be
//! a list of memory ranges of the client ([`hello::RemoteRange`]), read and written in place.
//!
//! Invariants: decoding any bytes returns a message or an error, never panics, and allocates
//! no more than a small multiple of the input. Every change of a message bumps
//! [`WIRE_VERSION`]; golden bytes in `tests/golden.rs` catch a change that forgets to.

pub mod admin;
pub mod admission;
pub mod cache;
pub mod cell;
pub mod control;
pub mod event;
pub mod footprint;
pub mod header;
mod held;
pub mod hello;
pub mod job;
pub mod link;
pub mod lock;
pub mod map;
pub mod map_change;
pub mod measure;
pub mod member;
pub mod obj;
pub mod order;
pub mod proof;
pub mod reply;
pub mod request_id;
mod request_kind;
pub mod scrub;
pub mod spread;
pub mod stale;
pub mod store;
mod sums;
pub mod versions;
pub mod walk;

pub use header::{HEADER_BYTES, Header, Kind};
pub use held::HeldBatch;

use serde::{Deserialize, Serialize};
use types::{Code, Error, Result};

/// Version of all messages. 1: first release; 2: figures of stores, sums of bulk data, locks, appends, written ranges,
/// files without a name, snapshots; 3: on one host the engine makes the shared memory and the doorbells, and the client
/// keeps its word; 4: secrets are proved, the engine speaks first, engines say which system they are of, containers have a
/// cell size; 5: stand-ins without room, figures of healing, images in parts, refusals with maps, lists of orphans in pages, engines
/// that are joining, containers' placement epochs; 6: numbers of requests say which answers are kept,
/// connections ask for several jobs.
pub const WIRE_VERSION: u16 = 6;

/// Encodes a message body.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(160);
    encode_into(message, &mut out);
    out
}

/// How many bytes [`encode_into`] appends for it; byte strings are not looked at.
pub fn encoded_bytes<T: Serialize>(message: &T) -> usize {
    let size = postcard::ser_flavors::Size::default();
    postcard::serialize_with_flavor(message, size).expect("our messages always serialize")
}

/// Appends an encoded message body to `out`.
pub fn encode_into<T: Serialize>(message: &T, out: &mut Vec<u8>) {
    let taken = std::mem::take(out);
    *out = postcard::to_extend(message, taken).expect("our messages always serialize");
}

/// Decodes a message body; the result borrows from `body`.
pub fn decode<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T> {
    #[cfg(debug_assertions)]
    walk::counted::decoded::<T>();
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => {
            Err(Error::new(Code::Proto, format!("{} stray bytes after a message", rest.len())))
        }
        Err(error) => Err(Error::new(Code::Proto, format!("malformed message: {error}"))),
    }
}

/// Decodes what a message body begins with and ignores the rest.
pub fn decode_prefix<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T> {
    postcard::take_from_bytes(body)
        .map(|(message, _)| message)
        .map_err(|error| Error::new(Code::Proto, format!("malformed message: {error}")))
}
