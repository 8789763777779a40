//! Shared memory of one connection: two byte rings, sleeping flags, request state words.
//!
//! | offset | what |
//! |---|---|
//! | 0 | the server sleeps (u32) |
//! | 64 | the client sleeps (u32) |
//! | 128 | client to server: bytes written (u64), the writer waits for room (u32) |
//! | 192 | client to server: bytes read (u64) |
//! | 256 | server to client: bytes written (u64), the writer waits for room (u32) |
//! | 320 | server to client: bytes read (u64) |
//! | 4096 | state words of requests (u64 each) |
//! | 8192 | client-to-server ring, then server-to-client ring |
//!
//! Invariants: the file is sealed against shrinking, so an access never faults. The peer may write
//! anything anywhere at any time: each side keeps its own position privately, reads the other's
//! position once, checks it against the ring's size, and copies bytes out before it looks at them.

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::cell::Cell;
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use types::{Code, Error, Result};

/// Bytes of each ring; a power of two.
pub(crate) const RING_BYTES: usize = 256 << 10;
/// Requests with remote bulk in flight at once.
pub(crate) const SLOT_COUNT: usize = 256;
const SLOTS_AT: usize = 4096;
const RINGS_AT: usize = 8192;
/// Size of the shared file.
pub(crate) const REGION_BYTES: usize = RINGS_AT + 2 * RING_BYTES;
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Which end of a connection this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Client,
    Server,
}

/// The mapped file.
pub(crate) struct Region {
    start: *mut u8,
}

impl Region {
    /// False when the process may not make a file of this size (`ulimit -f`): to try would end it.
    pub fn is_allowed() -> bool {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize);
        limit.current.is_none_or(|limit| limit >= REGION_BYTES as u64)
    }

    /// Makes a sealed file and maps it.
    pub fn create() -> Result<(OwnedFd, Rc<Region>)> {
        let doing = "making shared memory";
        let failed = |errno: rustix::io::Errno| Error::io(doing, errno.into());
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("azekura", flags).map_err(failed)?;
        rustix::fs::ftruncate(&fd, REGION_BYTES as u64).map_err(failed)?;
        rustix::fs::fcntl_add_seals(&fd, SEALS).map_err(failed)?;
        let region = Region::map(&fd)?;
        Ok((fd, region))
    }

    /// Maps a file the engine made, after checking that it cannot shrink under us.
    pub fn open(fd: &OwnedFd) -> Result<Rc<Region>> {
        let bad = |what: &str| Error::new(Code::Proto, format!("shared memory of the peer {what}"));
        let seals = rustix::fs::fcntl_get_seals(fd).map_err(|_| bad("is not a memory file"))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(bad("is not sealed"));
        }
        let stat = rustix::fs::fstat(fd).map_err(|_| bad("cannot be examined"))?;
        if stat.st_size != REGION_BYTES as i64 {
            return Err(bad("has a wrong size"));
        }
        Region::map(fd)
    }

    fn map(fd: &impl AsFd) -> Result<Rc<Region>> {
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                REGION_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )
        };
        let start = start.map_err(|errno| Error::io("mapping shared memory", errno.into()))?;
        Ok(Rc::new(Region { start: start.cast() }))
    }

    fn word32(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at + 4 <= RINGS_AT && at.is_multiple_of(4));
        // SAFETY: aligned, within the mapping, which lives as long as `self`.
        unsafe { AtomicU32::from_ptr(self.start.add(at).cast()) }
    }

    fn word64(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at + 8 <= RINGS_AT && at.is_multiple_of(8));
        // SAFETY: aligned, within the mapping, which lives as long as `self`.
        unsafe { AtomicU64::from_ptr(self.start.add(at).cast()) }
    }

    /// Flag: the thread of `side` sleeps and wants its doorbell rung.
    pub fn sleeping(&self, side: Side) -> &AtomicU32 {
        self.word32(match side {
            Side::Server => 0,
            Side::Client => 64,
        })
    }

    /// State word of a request. `slot` must be below [`SLOT_COUNT`].
    pub fn slot(&self, slot: usize) -> &AtomicU64 {
        assert!(slot < SLOT_COUNT, "state word {slot} is out of range");
        self.word64(SLOTS_AT + slot * 8)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and nobody refers into it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), REGION_BYTES) };
    }
}

/// Where one direction's control words and bytes are.
#[derive(Clone, Copy)]
struct Lane {
    written_at: usize,
    waits_at: usize,
    read_at: usize,
    bytes_at: usize,
}

impl Lane {
    fn from(side: Side) -> Lane {
        let (control, ring) = match side {
            Side::Client => (128, 0),
            Side::Server => (256, RING_BYTES),
        };
        Lane {
            written_at: control,
            waits_at: control + 8,
            read_at: control + 64,
            bytes_at: RINGS_AT + ring,
        }
    }
}

fn hostile() -> Error {
    Error::new(Code::Proto, "the peer wrote nonsense into the shared memory")
}

/// The writing end of a ring.
pub(crate) struct Producer {
    region: Rc<Region>,
    lane: Lane,
    written: Cell<u64>,
    read_seen: Cell<u64>,
}

impl Producer {
    pub fn new(region: &Rc<Region>, side: Side) -> Producer {
        Producer {
            region: region.clone(),
            lane: Lane::from(side),
            written: Cell::new(0),
            read_seen: Cell::new(0),
        }
    }

    /// Bytes that can be written now. The reader's position is looked at only when what is known
    /// of it gives less than `wanted`.
    pub fn room(&self, wanted: usize) -> Result<usize> {
        let known = RING_BYTES - (self.written.get() - self.read_seen.get()) as usize;
        if known >= wanted {
            return Ok(known);
        }
        let read = self.region.word64(self.lane.read_at).load(Ordering::Acquire);
        let used = self.written.get().wrapping_sub(read);
        if used > RING_BYTES as u64 || read < self.read_seen.get() {
            return Err(hostile());
        }
        self.read_seen.set(read);
        Ok(RING_BYTES - used as usize)
    }

    /// Writes what there is room for and publishes it; 0 when there is no room.
    pub fn write(&self, parts: &[IoSlice<'_>]) -> Result<usize> {
        let wanted: usize = parts.iter().map(|part| part.len()).sum();
        let room = self.room(wanted)?;
        let mut written = self.written.get();
        let mut left = room;
        for part in parts {
            let bytes = part.len().min(left);
            self.copy_in(written, &part[..bytes]);
            written += bytes as u64;
            left -= bytes;
            if left == 0 {
                break;
            }
        }
        if left < room {
            self.written.set(written);
            self.region.word64(self.lane.written_at).store(written, Ordering::Release);
        }
        Ok(room - left)
    }

    fn copy_in(&self, position: u64, data: &[u8]) {
        let at = position as usize % RING_BYTES;
        let first = data.len().min(RING_BYTES - at);
        // SAFETY: both pieces are within the ring of `bytes_at`; our own data does not overlap
        // the mapping. The peer may read or write these bytes meanwhile; then it gets garbage.
        unsafe {
            let ring = self.region.start.add(self.lane.bytes_at);
            std::ptr::copy_nonoverlapping(data.as_ptr(), ring.add(at), first);
            std::ptr::copy_nonoverlapping(data.as_ptr().add(first), ring, data.len() - first);
        }
    }

    /// Asks the reader to ring when it has made room. The caller must look at the room again.
    pub fn wait_for_room(&self) {
        self.region.word32(self.lane.waits_at).store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}

/// The reading end of a ring.
pub(crate) struct Consumer {
    region: Rc<Region>,
    lane: Lane,
    read: Cell<u64>,
    written_seen: Cell<u64>,
}

impl Consumer {
    /// The end that reads what the other side of `side` writes.
    pub fn new(region: &Rc<Region>, side: Side) -> Consumer {
        let writer = match side {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        };
        Consumer {
            region: region.clone(),
            lane: Lane::from(writer),
            read: Cell::new(0),
            written_seen: Cell::new(0),
        }
    }

    /// True when there may be something to read: bytes, or nonsense to report.
    pub fn has_bytes(&self) -> bool {
        self.region.word64(self.lane.written_at).load(Ordering::Acquire) != self.read.get()
    }

    /// Copies bytes out; 0 when there are none.
    pub fn read(&self, out: &mut [u8]) -> Result<usize> {
        let mut available = self.written_seen.get() - self.read.get();
        if available < out.len() as u64 {
            let written = self.region.word64(self.lane.written_at).load(Ordering::Acquire);
            available = written.wrapping_sub(self.read.get());
            if available > RING_BYTES as u64 || written < self.written_seen.get() {
                return Err(hostile());
            }
            self.written_seen.set(written);
        }
        let bytes = out.len().min(available as usize);
        if bytes == 0 {
            return Ok(0);
        }
        let at = self.read.get() as usize % RING_BYTES;
        let first = bytes.min(RING_BYTES - at);
        // SAFETY: both pieces are within the ring; `out` is ours and holds `bytes`. The peer may
        // write meanwhile; whoever parses the copy checks it.
        unsafe {
            let ring = self.region.start.add(self.lane.bytes_at);
            std::ptr::copy_nonoverlapping(ring.add(at), out.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(ring, out.as_mut_ptr().add(first), bytes - first);
        }
        self.read.set(self.read.get() + bytes as u64);
        self.region.word64(self.lane.read_at).store(self.read.get(), Ordering::Release);
        Ok(bytes)
    }

    /// After a read: true when the writer waits for room and must be told.
    pub fn writer_waits(&self) -> bool {
        fence(Ordering::SeqCst);
        let waits = self.region.word32(self.lane.waits_at);
        waits.load(Ordering::Relaxed) != 0 && waits.swap(0, Ordering::SeqCst) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn ends() -> (Rc<Region>, Producer, Consumer) {
        let (fd, region) = Region::create().unwrap();
        let other = Region::open(&fd).unwrap();
        let consumer = Consumer::new(&other, Side::Server);
        (region.clone(), Producer::new(&region, Side::Client), consumer)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        /// Any mix of writes and reads, many times around the ring, is a first-in first-out queue
        /// of limited size.
        #[test]
        fn like_a_queue(steps in prop::collection::vec((any::<bool>(), 1usize..RING_BYTES + 5000), 1..60)) {
            let (_region, producer, consumer) = ends();
            let mut model: VecDeque<u8> = VecDeque::new();
            let mut next = 0u8;
            for (write, bytes) in steps {
                if write {
                    let data: Vec<u8> = (0..bytes).map(|n| next.wrapping_add(n as u8)).collect();
                    let (a, b) = data.split_at(bytes / 3);
                    let count = producer.write(&[IoSlice::new(a), IoSlice::new(b)]).unwrap();
                    prop_assert_eq!(count, bytes.min(RING_BYTES - model.len()));
                    model.extend(&data[..count]);
                    next = next.wrapping_add(count as u8);
                } else {
                    let mut out = vec![0; bytes];
                    let count = consumer.read(&mut out).unwrap();
                    prop_assert_eq!(count, bytes.min(model.len()));
                    prop_assert!(model.drain(..count).eq(out[..count].iter().copied()));
                }
                prop_assert_eq!(consumer.has_bytes(), !model.is_empty());
            }
        }
    }

    /// A hostile client once could make the engine copy past its ring by moving its counters.
    #[test]
    fn nonsense_counters_are_errors() {
        let (region, producer, consumer) = ends();
        producer.write(&[IoSlice::new(&[1; 100])]).unwrap();
        let mut out = [0; 10];
        assert_eq!(consumer.read(&mut out).unwrap(), 10);
        let written = region.word64(Lane::from(Side::Client).written_at);
        for bad in [u64::MAX, RING_BYTES as u64 + 11, 0, 5] {
            written.store(bad, Ordering::SeqCst);
            let mut big = vec![0; RING_BYTES * 2];
            assert_eq!(consumer.read(&mut big).unwrap_err().code, Code::Proto, "{bad}");
        }
        let (region, producer, _consumer) = ends();
        producer.write(&[IoSlice::new(&vec![1; RING_BYTES])]).unwrap();
        let read = region.word64(Lane::from(Side::Client).read_at);
        for bad in [u64::MAX, RING_BYTES as u64 + 1] {
            read.store(bad, Ordering::SeqCst);
            assert_eq!(producer.write(&[IoSlice::new(b"x")]).unwrap_err().code, Code::Proto);
        }
    }

    #[test]
    fn files_that_could_shrink_or_are_too_small_are_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("bad", flags).unwrap();
        rustix::fs::ftruncate(&fd, REGION_BYTES as u64).unwrap();
        assert_eq!(Region::open(&fd).err().unwrap().code, Code::Proto);
        let fd = rustix::fs::memfd_create("bad", flags).unwrap();
        rustix::fs::ftruncate(&fd, REGION_BYTES as u64 - 4096).unwrap();
        rustix::fs::fcntl_add_seals(&fd, SEALS).unwrap();
        assert_eq!(Region::open(&fd).err().unwrap().code, Code::Proto);
        let (pipe, _) = rustix::pipe::pipe().unwrap();
        assert_eq!(Region::open(&pipe).err().unwrap().code, Code::Proto);
    }
}
