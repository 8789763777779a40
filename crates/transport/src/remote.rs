//! Single-copy bulk on one host: the engine reads and writes the client's memory in place.
//!
//! A request with [`FLAG_REMOTE_BULK`](wire::header::FLAG_REMOTE_BULK) carries no bulk. Its body is followed by a trailer:
//! the client's memory ranges, 16 bytes each (address u64, bytes u64), those to read from first,
//! then those to write to; then 24 bytes: state word u64, slot u32, number of ranges to read u32,
//! number of ranges to write u32, zero u32. All little-endian. The header's body length and
//! checksum cover body and trailer; its bulk length is the sum of the ranges to read. A reply with
//! the flag has its bulk length's worth of bytes already in the ranges to write.
//!
//! Invariant: the engine touches the client's buffers only while the call that owns them is alive.
//! Each such request has a state word in the shared memory. The engine claims it by
//! compare-and-swap before each copy and releases it after. A call that ends revokes it; if a
//! copy is under way it waits for its end, or for the engine process's.

use crate::peer::Process;
use crate::ring::{Region, SLOT_COUNT};
use crate::shm::{Bells, ShmStream};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use types::{Code, Error, Result, limits};
use wire::hello::RemoteRange;

/// Requests that move at least this many bytes in either direction use remote bulk.
pub(crate) const REMOTE_BYTES_MIN: usize = wire::admission::BULK_BYTES_MIN;
/// More ranges than this go through the stream.
pub(crate) const RANGE_COUNT_MAX: usize = 1024;
const RANGE_BYTES: usize = 16;
const FOOTER_BYTES: usize = 24;

/// States of a word, in its low bits; the rest is the number of the request.
const STATE_ACTIVE: u64 = 1;
const STATE_COPYING: u64 = 2;
const STATE_BITS: u32 = 2;
const FREE: u64 = 0;

/// What a trailer says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Trailer {
    pub word: u64,
    pub slot: u32,
    pub read: Vec<RemoteRange>,
    pub write: Vec<RemoteRange>,
}

/// Appends a trailer to a body.
pub(crate) fn append_trailer(
    out: &mut Vec<u8>,
    ticket: &Ticket,
    read: impl Iterator<Item = RemoteRange>,
    write: impl Iterator<Item = RemoteRange>,
) {
    let mut put = |ranges: &mut dyn Iterator<Item = RemoteRange>| {
        let mut count = 0u32;
        for range in ranges {
            out.extend_from_slice(&range.address.to_le_bytes());
            out.extend_from_slice(&range.bytes.to_le_bytes());
            count += 1;
        }
        count
    };
    let (mut read, mut write) = (read, write);
    let (read_count, write_count) = (put(&mut read), put(&mut write));
    out.extend_from_slice(&ticket.word.to_le_bytes());
    for number in [ticket.slot, read_count, write_count, 0] {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

/// Cuts the trailer off a body and checks it. Any bytes give a trailer or `Proto`.
pub(crate) fn split_trailer(body: &mut Vec<u8>, bulk_bytes: u32) -> Result<Trailer> {
    let bad = || Error::new(Code::Proto, "malformed list of memory ranges");
    let footer_at = body.len().checked_sub(FOOTER_BYTES).ok_or_else(bad)?;
    let u32_at = |at: usize| {
        let raw = body.get(at..at + 4).and_then(|raw| raw.try_into().ok());
        raw.map(u32::from_le_bytes).ok_or_else(bad)
    };
    let u64_at = |at: usize| {
        let raw = body.get(at..at + 8).and_then(|raw| raw.try_into().ok());
        raw.map(u64::from_le_bytes).ok_or_else(bad)
    };
    let word = u64_at(footer_at)?;
    let slot = u32_at(footer_at + 8)?;
    let (read_count, write_count) = (u32_at(footer_at + 12)?, u32_at(footer_at + 16)?);
    let count = read_count as usize + write_count as usize;
    if slot as usize >= SLOT_COUNT || count > RANGE_COUNT_MAX || u32_at(footer_at + 20)? != 0 {
        return Err(bad());
    }
    if word & ((1 << STATE_BITS) - 1) != STATE_ACTIVE {
        return Err(bad());
    }
    let ranges_at = footer_at.checked_sub(count * RANGE_BYTES).ok_or_else(bad)?;
    let ranges = |from: usize, count: usize| -> Result<(Vec<RemoteRange>, u64)> {
        let mut all = Vec::with_capacity(count);
        let mut sum = 0u64;
        for number in 0..count {
            let at = ranges_at + (from + number) * RANGE_BYTES;
            let range = RemoteRange { address: u64_at(at)?, bytes: u64_at(at + 8)? };
            range.address.checked_add(range.bytes).ok_or_else(bad)?;
            sum = sum.checked_add(range.bytes).ok_or_else(bad)?;
            all.push(range);
        }
        if sum > limits::BULK_BYTES_MAX as u64 {
            return Err(bad());
        }
        Ok((all, sum))
    };
    let (read, read_bytes) = ranges(0, read_count as usize)?;
    let (write, _) = ranges(read_count as usize, write_count as usize)?;
    if read_bytes != bulk_bytes as u64 {
        return Err(bad());
    }
    body.truncate(ranges_at);
    Ok(Trailer { word, slot, read, write })
}

/// The client's state words.
pub(crate) struct Slots {
    free: RefCell<Vec<u32>>,
    count: Cell<u64>,
}

impl Slots {
    pub fn new() -> Slots {
        Slots { free: RefCell::new((0..SLOT_COUNT as u32).rev().collect()), count: Cell::new(0) }
    }

    /// Takes a word for a new request; `None` when all are in use.
    pub fn take(&self, region: &Region) -> Option<Ticket> {
        let slot = self.free.borrow_mut().pop()?;
        self.count.set(self.count.get() + 1);
        let word = self.count.get() << STATE_BITS | STATE_ACTIVE;
        region.slot(slot as usize).store(word, Ordering::SeqCst);
        Some(Ticket { slot, word })
    }

    /// Revokes a request: after this the engine does not touch its buffers.
    pub fn give_back(&self, ticket: &Ticket, shm: &ShmStream) {
        let state = shm.region().slot(ticket.slot as usize);
        let mut tries = 0u32;
        while let Err(now) =
            state.compare_exchange(ticket.word, FREE, Ordering::SeqCst, Ordering::SeqCst)
        {
            if now != copying(ticket.word) {
                // Not a state of this request: the engine has broken the protocol, and holds
                // no claim that we could wait for.
                break;
            }
            tries += 1;
            // A copy takes milliseconds at most.
            if tries.is_multiple_of(16) {
                if shm.peer_is_gone() {
                    break;
                }
                std::thread::sleep(Duration::from_micros(50));
            } else {
                std::thread::yield_now();
            }
        }
        state.store(FREE, Ordering::SeqCst);
        self.free.borrow_mut().push(ticket.slot);
    }
}

fn copying(word: u64) -> u64 {
    word - STATE_ACTIVE + STATE_COPYING
}

/// A claim on a state word, on the client's side.
pub(crate) struct Ticket {
    pub slot: u32,
    pub word: u64,
}

/// A position in a list of ranges.
pub(crate) struct Cursor {
    ranges: Vec<RemoteRange>,
    at: usize,
    within: u64,
}

impl Cursor {
    fn new(ranges: Vec<RemoteRange>) -> Cursor {
        Cursor { ranges, at: 0, within: 0 }
    }

    /// Ranges of the next `bytes` bytes, as many as `out` holds: their number and bytes. `Proto`
    /// when there are none.
    pub fn fill(&self, bytes: usize, out: &mut [libc::iovec]) -> Result<(usize, usize)> {
        let (mut left, mut count, mut within) = (bytes as u64, 0, self.within);
        for range in &self.ranges[self.at..] {
            if left == 0 || count == out.len() {
                break;
            }
            let take = (range.bytes - within).min(left);
            if take > 0 {
                let start = (range.address + within) as usize as *mut libc::c_void;
                out[count] = libc::iovec { iov_base: start, iov_len: take as usize };
                count += 1;
                left -= take;
            }
            within = 0;
        }
        match count {
            0 => Err(Error::new(Code::Proto, "the client's memory ranges are too short")),
            _ => Ok((count, bytes - left as usize)),
        }
    }

    /// Moves on by `bytes`, which must be in the ranges.
    pub fn advance(&mut self, bytes: usize) {
        let mut left = bytes as u64;
        while left > 0 {
            let rest = self.ranges[self.at].bytes - self.within;
            if left < rest {
                self.within += left;
                return;
            }
            left -= rest;
            self.at += 1;
            self.within = 0;
        }
    }
}

/// A request's remote memory, on the engine's side.
pub(crate) struct RemoteBulk {
    process: Rc<Process>,
    region: Rc<Region>,
    bells: Rc<Bells>,
    word: u64,
    slot: u32,
    read: RefCell<Cursor>,
    write: RefCell<Cursor>,
    room: usize,
}

impl RemoteBulk {
    pub fn new(
        process: Rc<Process>,
        region: Rc<Region>,
        bells: Rc<Bells>,
        trailer: Trailer,
    ) -> RemoteBulk {
        let room = trailer.write.iter().map(|range| range.bytes as usize).sum();
        RemoteBulk {
            process,
            region,
            bells,
            word: trailer.word,
            slot: trailer.slot,
            read: RefCell::new(Cursor::new(trailer.read)),
            write: RefCell::new(Cursor::new(trailer.write)),
            room,
        }
    }

    /// Bytes the client has room for.
    pub fn room(&self) -> usize {
        self.room
    }

    /// False once the call has ended at the client.
    pub fn is_wanted(&self) -> bool {
        self.region.slot(self.slot as usize).load(Ordering::Relaxed) == self.word
    }

    /// Reads the next bytes of the client's data, all of `rooms`. `Closed` and `NoPerm`: its memory can be
    /// reached no more.
    pub fn read_into(&self, rooms: &mut [&mut [u8]]) -> Result<()> {
        let _claim = self.claim()?;
        self.process.read(&mut self.read.borrow_mut(), rooms)
    }

    /// Writes all of `parts` to the client, from the start of its room. Errors as in reading.
    pub fn write_all(&self, parts: &[&[u8]]) -> Result<()> {
        let _claim = self.claim()?;
        self.process.check()?;
        let mut cursor = self.write.borrow_mut();
        (cursor.at, cursor.within) = (0, 0);
        self.process.write(&mut cursor, parts)
    }

    /// Begins a copy. Whoever waits for an answer that is there already need not wait for it.
    fn claim(&self) -> Result<Claim<'_>> {
        self.bells.ring();
        let state = self.region.slot(self.slot as usize);
        state
            .compare_exchange(self.word, copying(self.word), Ordering::SeqCst, Ordering::SeqCst)
            .map_err(|_| Error::new(Code::Canceled, "the caller has given up"))?;
        Ok(Claim(self))
    }
}

/// Held while the client's memory is touched.
struct Claim<'a>(&'a RemoteBulk);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let state = self.0.region.slot(self.0.slot as usize);
        let word = self.0.word;
        // A failure means that the client has broken the protocol; it is its own memory.
        let _ = state.compare_exchange(copying(word), word, Ordering::SeqCst, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Mark;
    use proptest::prelude::*;

    fn range(address: u64, bytes: u64) -> RemoteRange {
        RemoteRange { address, bytes }
    }

    #[test]
    fn golden_trailer() {
        let mut body = b"body".to_vec();
        let ticket = Ticket { slot: 3, word: 0x29 };
        append_trailer(
            &mut body,
            &ticket,
            [range(0x1000, 5)].into_iter(),
            [range(0x2000, 7)].into_iter(),
        );
        let expected: &[u8] = &[
            b'b', b'o', b'd', b'y', //
            0, 0x10, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, //
            0, 0x20, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, //
            0x29, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(body, expected);
        let trailer = split_trailer(&mut body, 5).unwrap();
        assert_eq!(body, b"body");
        assert_eq!((trailer.slot, trailer.word), (3, 0x29));
        assert_eq!(trailer.read, [range(0x1000, 5)]);
        assert_eq!(trailer.write, [range(0x2000, 7)]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_trailer_or_an_error(mut body in prop::collection::vec(any::<u8>(), 0..200), bulk in any::<u32>()) {
            let _ = split_trailer(&mut body, bulk);
        }

        #[test]
        fn damaged_trailers_never_escape_their_limits(
            at in 0usize..80, flip in 1u8.., address in any::<u64>(), bytes in any::<u64>(),
        ) {
            let mut body = b"body".to_vec();
            let ticket = Ticket { slot: 3, word: 0x29 };
            append_trailer(&mut body, &ticket, [range(address, bytes)].into_iter(), [range(0x2000, 7)].into_iter());
            let at = at.min(body.len() - 1);
            body[at] ^= flip;
            if let Ok(trailer) = split_trailer(&mut body, bytes as u32) {
                prop_assert!((trailer.slot as usize) < SLOT_COUNT);
                for side in [&trailer.read, &trailer.write] {
                    let sum: u128 = side.iter().map(|range| range.bytes as u128).sum();
                    prop_assert!(sum <= limits::BULK_BYTES_MAX as u128);
                }
            }
        }
    }

    #[test]
    fn memory_is_reached_in_order_across_ranges_and_not_after_a_revocation() {
        let (_fd, region) = Region::create().unwrap();
        let data: Vec<u8> = (0..100u8).collect();
        let room = [0u8; 50];
        let kept = Box::new(std::sync::atomic::AtomicU64::new(0x1234_5678_9abc_def0));
        let word = kept.load(Ordering::SeqCst);
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = rustix::net::sockopt::socket_peercred(&ours).unwrap();
        let address = kept.as_ptr() as u64;
        let Some(process) = Process::of(&peer, Mark { address, word }) else {
            panic!("a process may always reach its own memory");
        };
        for (address, word) in [(address, word + 1), (0, 0), (8, word)] {
            assert!(Process::of(&peer, Mark { address, word }).is_none());
        }
        let slots = Slots::new();
        let ticket = slots.take(&region).unwrap();
        let start = data.as_ptr() as u64;
        let trailer = Trailer {
            word: ticket.word,
            slot: ticket.slot,
            read: vec![range(start, 10), range(start, 0), range(start + 10, 90)],
            write: vec![range(room.as_ptr() as u64, 20), range(room.as_ptr() as u64 + 30, 20)],
        };
        let bulk = RemoteBulk::new(Rc::new(process), region.clone(), Rc::default(), trailer);
        assert_eq!(bulk.room(), 40);
        let mut out = [0; 60];
        let (first, second) = out.split_at_mut(25);
        let (second, third) = second.split_at_mut(3);
        bulk.read_into(&mut [first]).unwrap();
        bulk.read_into(&mut [second, &mut [], third]).unwrap();
        assert_eq!(out, data[..60]);
        bulk.write_all(&[&[7; 15], &[8; 10]]).unwrap();
        let written = std::hint::black_box(&room);
        assert_eq!(written[..15], [7; 15]);
        assert_eq!((&written[15..20], &written[20..30]), (&[8; 5][..], &[0; 10][..]));
        assert_eq!(written[30..35], [8; 5]);
        assert_eq!(bulk.write_all(&[&[1; 41]]).unwrap_err().code, Code::Proto);
        // Another program's memory does not have the word.
        kept.store(1, Ordering::SeqCst);
        out.fill(3);
        assert_eq!(bulk.read_into(&mut [&mut out[..10]]).unwrap_err().code, Code::Closed);
        assert_eq!(out[..10], [0; 10], "what was read is wiped");
        assert_eq!(bulk.write_all(&[&[9; 40]]).unwrap_err().code, Code::Closed);
        assert_eq!(std::hint::black_box(&room)[..15], [1; 15], "nothing was written");
        region.slot(ticket.slot as usize).store(FREE, Ordering::SeqCst);
        assert_eq!(bulk.read_into(&mut [&mut out[..1]]).unwrap_err().code, Code::Canceled);
        assert_eq!(bulk.write_all(&[&[9; 40]]).unwrap_err().code, Code::Canceled);
    }

    /// More pieces on both sides than the kernel is given at once.
    #[test]
    fn memory_in_many_pieces_arrives_in_order() {
        let (_fd, region) = Region::create().unwrap();
        let kept = Box::new(std::sync::atomic::AtomicU64::new(7));
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = rustix::net::sockopt::socket_peercred(&ours).unwrap();
        let process = Process::of(&peer, Mark { address: kept.as_ptr() as u64, word: 7 }).unwrap();
        let data: Vec<u8> = (0..3000).map(|at| (at * 7 % 251) as u8).collect();
        let mut room = vec![0_u8; 3000];
        let slots = Slots::new();
        let ticket = slots.take(&region).unwrap();
        let pieces = |start: u64, bytes: u64| {
            (0..3000 / bytes).map(move |at| range(start + at * bytes, bytes)).collect()
        };
        let trailer = Trailer {
            word: ticket.word,
            slot: ticket.slot,
            read: pieces(data.as_ptr() as u64, 6),
            write: pieces(room.as_mut_ptr() as u64, 5),
        };
        let bulk = RemoteBulk::new(Rc::new(process), region.clone(), Rc::default(), trailer);
        let mut out = vec![0; 3000];
        let mut rooms: Vec<&mut [u8]> = out.chunks_mut(7).collect();
        let (first, others) = rooms.split_at_mut(200);
        bulk.read_into(first).unwrap();
        bulk.read_into(others).unwrap();
        assert_eq!(out, data);
        let parts: Vec<&[u8]> = data.chunks(11).collect();
        bulk.write_all(&parts).unwrap();
        assert_eq!(std::hint::black_box(&room), &data);
    }
}
