//! FUSE over io_uring: requests arrive in memory that the kernel was shown beforehand, and one
//! submission carries an answer out and asks for the next request.
//!
//! The kernel has one queue per possible CPU and puts a request on the queue of the CPU its
//! caller runs on; a worker serves some of the queues, on those CPUs. Each queue has *entries*: a
//! header (`in_out`: the request's header, later the answer's; `op_in`: the fixed struct) and a
//! payload for everything else, both ways. Nothing goes over the queues before each of them has
//! an entry. FORGET and INTERRUPT come over the device still.
//!
//! Invariants:
//! - An entry is the kernel's from its submission to its completion, ours from the completion to
//!   the next submission; we touch its memory only while it is ours.
//! - Its memory stays mapped until the kernel has given it back; if it does not, it is leaked.
//! - A request that waits holds its entry, and the kernel hands out what it has queued up only
//!   when an entry comes back. So a queue gets more entries before its last ones are in use.
//!   Requests that come faster than that, more at once than half of what a queue has, wait in the kernel
//!   for the next answer on their CPU, though there are free entries by then.

use super::abi::{self, InHeader, OutHeader, UringCmdReq, UringEntInOut, UringReqHeader};
use super::carrier::Carrier;
use super::decode::Body;
use super::init::PAGE_BYTES;
use env::{Env, Source};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::mm::{MapFlags, ProtFlags};
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::{Rc, Weak};
use types::{Code, Error, Result};

/// Submission queue entries; more are submitted in several steps.
const SUBMISSION_COUNT: u32 = 256;
/// Completion queue entries; more than that wait in the kernel.
const COMPLETION_COUNT: u32 = 4096;
/// Entries of one queue.
const ENTRY_COUNT_MAX: usize = 2048;
/// Address space of a header in an arena.
const HEADER_BYTES: usize = 512;
/// Where `len` is in a submission, bytes; the library has no name for it in commands.
const SUBMISSION_LEN_AT: usize = 24;

type Deliver = Box<dyn Fn(Carrier)>;

/// Memory of some entries: headers, then payloads. Untouched pages cost nothing.
struct Arena {
    start: *mut c_void,
    bytes: usize,
}

impl Arena {
    fn new(entry_count: usize, payload_bytes: usize) -> Result<Arena> {
        let bytes = (entry_count * HEADER_BYTES).next_multiple_of(PAGE_BYTES)
            + entry_count * payload_bytes.next_multiple_of(PAGE_BYTES);
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|error| Error::io("memory for FUSE over io_uring", error.into()))?;
        Ok(Arena { start, bytes })
    }

    fn header(&self, at: usize) -> *mut UringReqHeader {
        // SAFETY: the arena begins with as many headers as it has entries.
        unsafe { self.start.cast::<u8>().add(at * HEADER_BYTES).cast() }
    }

    fn payload(&self, at: usize, entry_count: usize, payload_bytes: usize) -> *mut u8 {
        let base = (entry_count * HEADER_BYTES).next_multiple_of(PAGE_BYTES);
        // SAFETY: after the headers there are as many payloads as there are entries.
        unsafe {
            self.start.cast::<u8>().add(base + at * payload_bytes.next_multiple_of(PAGE_BYTES))
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: our mapping, and nobody has pointers into it any more (see `Uring::drop`).
        let _ = unsafe { rustix::mm::munmap(self.start, self.bytes) };
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Kernel,
    Us,
    /// Refused by the kernel, or given back when the session ended.
    Nobody,
}

struct Slot {
    queue: usize,
    header: *mut UringReqHeader,
    payload: *mut u8,
    owner: Owner,
    /// Number by which the kernel finds the request when it is answered.
    commit_id: u64,
    /// What REGISTER points to.
    _pieces: Box<[libc::iovec; 2]>,
}

struct Queue {
    id: u16,
    entry_count: usize,
    busy_count: usize,
}

/// The queues that one worker serves, in one io_uring of its own.
pub(crate) struct Uring {
    ring: RefCell<IoUring<squeue::Entry128, cqueue::Entry>>,
    dev: RawFd,
    payload_bytes: usize,
    slots: RefCell<Vec<Slot>>,
    queues: RefCell<Vec<Queue>>,
    arenas: RefCell<Vec<Arena>>,
    entries_at_start: usize,
    /// Pushed, not yet handed to the kernel.
    unsubmitted: Cell<usize>,
    /// Entries that are the kernel's.
    in_flight: Cell<usize>,
    deliver: RefCell<Option<Rc<Deliver>>>,
    this: Weak<Uring>,
}

impl Uring {
    /// Sets up a ring with the memory for its first entries; nothing is registered yet. To be
    /// called on the thread that uses it. `NotSupported` where io_uring is off.
    pub fn new(
        dev: &OwnedFd,
        queue_ids: &[u16],
        entry_count: u16,
        payload_bytes: usize,
    ) -> Result<Rc<Uring>> {
        let failed = |error: std::io::Error| {
            Error::new(Code::NotSupported, format!("setting up io_uring for FUSE: {error}"))
        };
        let ring = IoUring::<squeue::Entry128, cqueue::Entry>::builder()
            .setup_cqsize(COMPLETION_COUNT)
            .setup_coop_taskrun()
            .setup_single_issuer()
            .build(SUBMISSION_COUNT)
            .map_err(failed)?;
        let queues =
            queue_ids.iter().map(|&id| Queue { id, entry_count: 0, busy_count: 0 }).collect();
        let uring = Rc::new_cyclic(|this| Uring {
            ring: RefCell::new(ring),
            dev: dev.as_raw_fd(),
            payload_bytes,
            slots: RefCell::default(),
            queues: RefCell::new(queues),
            arenas: RefCell::default(),
            entries_at_start: usize::from(entry_count.max(1)),
            unsubmitted: Cell::new(0),
            in_flight: Cell::new(0),
            deliver: RefCell::new(None),
            this: this.clone(),
        });
        Ok(uring)
    }

    /// Registers the entries and begins to deliver requests. The kernel must have taken the
    /// answer to INIT.
    pub fn start(&self, env: &Env, deliver: Deliver) -> Result<()> {
        *self.deliver.borrow_mut() = Some(Rc::new(deliver));
        let queue_count = self.queues.borrow().len();
        for queue in 0..queue_count {
            self.add_entries(queue, self.entries_at_start)?;
        }
        let this = self.this.upgrade().ok_or_else(|| Error::bare(Code::Closed))?;
        env.add_source(this)?;
        self.submit();
        Ok(())
    }

    /// Delivers no more, and waits a little for the kernel to give back its entries.
    pub fn stop(self: &Rc<Self>, env: &Env) {
        let this: Rc<dyn Source> = self.clone();
        env.remove_source(&this);
        self.deliver.replace(None);
        // After the end of the connection each entry comes back with an error, but for those
        // that the kernel is working on; it looks at these again after some milliseconds.
        for _ in 0..50 {
            self.poll();
            if self.in_flight.get() == 0 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    fn add_entries(&self, queue: usize, count: usize) -> Result<()> {
        let arena = Arena::new(count, self.payload_bytes)?;
        for at in 0..count {
            let header = arena.header(at);
            let payload = arena.payload(at, count, self.payload_bytes);
            let piece = |start: *mut u8, bytes: usize| libc::iovec {
                iov_base: start.cast(),
                iov_len: bytes,
            };
            let pieces = Box::new([
                piece(header.cast(), size_of::<UringReqHeader>()),
                piece(payload, self.payload_bytes),
            ]);
            let address = pieces.as_ptr() as u64;
            let slot = Slot {
                queue,
                header,
                payload,
                owner: Owner::Kernel,
                commit_id: 0,
                _pieces: pieces,
            };
            let index = {
                let mut slots = self.slots.borrow_mut();
                slots.push(slot);
                slots.len() - 1
            };
            let id = self.queues.borrow()[queue].id;
            self.push(index, abi::uring::REGISTER, id, 0, Some(address));
        }
        self.arenas.borrow_mut().push(arena);
        self.queues.borrow_mut()[queue].entry_count += count;
        Ok(())
    }

    fn push(&self, slot: usize, operation: u32, qid: u16, commit_id: u64, pieces: Option<u64>) {
        let request = UringCmdReq { flags: 0, commit_id, qid, padding: [0; 6] };
        let mut area = [0u8; 80];
        area[..size_of::<UringCmdReq>()].copy_from_slice(abi::bytes_of(&request));
        let mut entry = opcode::UringCmd80::new(io_uring::types::Fd(self.dev), operation)
            .cmd(area)
            .addr(pieces)
            .build()
            .user_data(slot as u64);
        if pieces.is_some() {
            let count: u32 = 2;
            // SAFETY: a submission is 128 plain bytes, and `len` is the word at this offset.
            unsafe {
                (&raw mut entry).cast::<u8>().add(SUBMISSION_LEN_AT).cast::<u32>().write(count);
            }
        }
        // SAFETY: the memory that the command refers to (header, payload, pieces) is in its slot
        // and arena until the completion; `Uring::drop` sees to that. The device stays open.
        while unsafe { self.ring.borrow_mut().submission().push(&entry) }.is_err() {
            self.submit();
        }
        self.unsubmitted.set(self.unsubmitted.get() + 1);
        self.in_flight.set(self.in_flight.get() + 1);
    }

    fn submit(&self) {
        let overflowed = self.ring.borrow_mut().submission().cq_overflow();
        if self.unsubmitted.get() > 0 || overflowed {
            // Busy, interrupted: what is left is handed over with the next poll.
            if let Ok(count) = self.ring.borrow().submit() {
                self.unsubmitted.set(self.unsubmitted.get().saturating_sub(count));
            }
        }
    }

    fn reap(&self) -> bool {
        let mut any = false;
        loop {
            let Some(done) = self.ring.borrow_mut().completion().next() else { return any };
            any = true;
            self.in_flight.set(self.in_flight.get() - 1);
            self.completed(done.user_data() as usize, done.result());
        }
    }

    fn completed(&self, index: usize, result: i32) {
        let queue = {
            let mut slots = self.slots.borrow_mut();
            let Some(slot) = slots.get_mut(index) else { return };
            if result < 0 {
                slot.owner = Owner::Nobody;
                let over = [-libc::ENOTCONN, -libc::ECONNABORTED, -libc::ECANCELED];
                if !over.contains(&result) {
                    let error = std::io::Error::from_raw_os_error(-result);
                    tracing::error!(queue = slot.queue, "FUSE over io_uring: {error}");
                }
                return;
            }
            slot.owner = Owner::Us;
            // SAFETY: the entry is ours, and the header is plain bytes.
            slot.commit_id = unsafe { (*slot.header).ent.commit_id };
            slot.queue
        };
        self.took(queue);
        let deliver = self.deliver.borrow().clone();
        match (deliver, self.this.upgrade()) {
            (Some(deliver), Some(this)) => deliver(Carrier::from_uring(this, index)),
            // Nobody serves any more: its answer is `EIO`.
            (None, Some(this)) => drop(Carrier::from_uring(this, index)),
            (_, None) => {}
        }
    }

    /// An entry of the queue came into use: sees that there are free ones.
    fn took(&self, queue: usize) {
        let wanted = {
            let mut queues = self.queues.borrow_mut();
            let queue = &mut queues[queue];
            queue.busy_count += 1;
            let free = queue.entry_count.saturating_sub(queue.busy_count);
            let more = free <= queue.entry_count / 2 && queue.entry_count < ENTRY_COUNT_MAX;
            if more { queue.entry_count } else { 0 }
        };
        if wanted > 0
            && let Err(error) = self.add_entries(queue, wanted)
        {
            tracing::warn!("no more requests at a time than now: {error}");
        }
    }

    /// The header of the request in an entry of ours.
    pub fn in_header(&self, slot: usize) -> InHeader {
        let header = self.ours(slot).0;
        // SAFETY: the entry is ours; the header begins with an `InHeader`.
        unsafe { header.cast::<InHeader>().read() }
    }

    /// The request in an entry of ours.
    pub fn body(&self, slot: usize) -> Body<'_> {
        let (header, payload) = self.ours(slot);
        // SAFETY: the entry is ours until `commit`, which needs the carrier that borrows this.
        unsafe {
            let bytes = ((*header).ent.payload_size as usize).min(self.payload_bytes);
            let fixed = &raw const (*header).op_in.0;
            Body { fixed: &*fixed, rest: std::slice::from_raw_parts(payload, bytes) }
        }
    }

    /// The payload of an entry of ours. A carrier calls it when nothing borrows the request.
    #[allow(clippy::mut_from_ref, reason = "each entry has one carrier, which hands it out once")]
    pub fn payload_mut(&self, slot: usize) -> &mut [u8] {
        let payload = self.ours(slot).1;
        // SAFETY: the entry is ours, and its one carrier is borrowed exclusively by the caller.
        unsafe { std::slice::from_raw_parts_mut(payload, self.payload_bytes) }
    }

    fn ours(&self, slot: usize) -> (*mut UringReqHeader, *mut u8) {
        let slots = self.slots.borrow();
        let slot = &slots[slot];
        assert_eq!(slot.owner, Owner::Us, "an entry is used that the kernel has");
        (slot.header, slot.payload)
    }

    /// Answers the request of an entry and gives the entry back.
    pub fn commit(&self, slot: usize, unique: u64, error: i32, payload_bytes: usize) {
        let (header, _) = self.ours(slot);
        let len = (size_of::<OutHeader>() + payload_bytes) as u32;
        let (queue, commit_id) = {
            let mut slots = self.slots.borrow_mut();
            slots[slot].owner = Owner::Kernel;
            (slots[slot].queue, slots[slot].commit_id)
        };
        // SAFETY: the entry is ours until it is submitted below.
        unsafe {
            header.cast::<OutHeader>().write(OutHeader { len, error, unique });
            (&raw mut (*header).ent).write(UringEntInOut {
                flags: 0,
                commit_id,
                payload_size: payload_bytes as u32,
                padding: 0,
                reserved: 0,
            });
        }
        let id = {
            let mut queues = self.queues.borrow_mut();
            queues[queue].busy_count -= 1;
            queues[queue].id
        };
        self.push(slot, abi::uring::COMMIT_AND_FETCH, id, commit_id, None);
    }
}

impl Source for Uring {
    fn poll(&self) -> bool {
        self.submit();
        self.reap()
    }

    fn arm(&self) -> bool {
        self.submit();
        !self.ring.borrow_mut().completion().is_empty()
    }

    fn disarm(&self) {}

    fn fd(&self) -> Option<RawFd> {
        Some(self.ring.borrow().as_raw_fd())
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if self.in_flight.get() > 0 {
            // The kernel may still write to the entries. Closing the ring cancels them, but not
            // at once.
            for arena in self.arenas.take() {
                std::mem::forget(arena);
            }
        }
    }
}

/// How many queues the kernel has: its possible CPUs.
pub(crate) fn queue_count() -> Result<u16> {
    let path = "/sys/devices/system/cpu/possible";
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::io(format!("counting CPUs in {path}"), error))?;
    count_cpus(text.trim())
        .ok_or_else(|| Error::new(Code::Proto, format!("{path} is not understood: {text}")))
}

/// `0-3,6` is five.
fn count_cpus(text: &str) -> Option<u16> {
    text.split(',').try_fold(0u16, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_counted() {
        assert_eq!(count_cpus("0"), Some(1));
        assert_eq!(count_cpus("0-3,6,8-9"), Some(7));
        assert_eq!(count_cpus("3-1"), None);
        assert_eq!(count_cpus(""), None);
    }

    #[test]
    fn arenas_hold_their_entries_apart() {
        let arena = Arena::new(3, 8192).unwrap();
        let ends: Vec<usize> = (0..3).map(|at| arena.payload(at, 3, 8192) as usize).collect();
        assert!(ends[0] >= arena.header(2) as usize + HEADER_BYTES);
        assert_eq!((ends[1] - ends[0], ends[2] - ends[1]), (8192, 8192));
        assert_eq!(arena.start as usize + arena.bytes, ends[2] + 8192);
        assert!(ends.iter().all(|end| end % PAGE_BYTES == 0));
        const { assert!(HEADER_BYTES >= size_of::<UringReqHeader>()) };
    }
}
