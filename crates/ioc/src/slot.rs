//! A table of connections and what belongs to them. A call takes a slot for as long as it lasts,
//! preferably the one its thread had last, so that there are as many connections as calls at a
//! time and not as threads.
//!
//! Taking and giving back is one atomic operation each: no lock, so that a signal handler can do
//! it at any moment, and a `fork` leaves nothing locked behind. What a slot holds is touched by the
//! one who has taken it only; after a `fork`, by the child's only thread.
//!
//! The table is all zeros at first and takes no memory until slots are used.

use crate::file::Mounts;
use coordinate::client::Client;
use coordinate::message::Targets;
use coordinate::rules::text::Names;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU8, Ordering};

/// Most coordinated calls at a time in one process; what is more goes by.
pub const SLOTS: usize = 256;
/// The longest Lustre layout is shorter, and so is any path.
const SCRATCH_BYTES: usize = 64 << 10;

/// Room for what the system answers, mapped when first asked for and then kept.
pub struct Scratch {
    address: Option<std::ptr::NonNull<u8>>,
}

impl Scratch {
    pub const NONE: Self = Self { address: None };

    /// The room; none when the system has no memory.
    pub fn bytes(&mut self) -> Option<&mut [u8]> {
        if self.address.is_none() {
            let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            // SAFETY: a new mapping at no particular address overlaps nothing.
            let made =
                unsafe { mmap_anonymous(std::ptr::null_mut(), SCRATCH_BYTES, access, flags) };
            self.address = std::ptr::NonNull::new(made.ok()?.cast());
        }
        let address = self.address?;
        // SAFETY: the mapping has this size, is readable and writable, is never unmapped, and
        // belongs to this scratch alone.
        Some(unsafe { std::slice::from_raw_parts_mut(address.as_ptr(), SCRATCH_BYTES) })
    }
}

/// What a call works with.
pub struct Slot {
    pub client: Client,
    /// Process that made it; another one has inherited it by `fork`.
    pub pid: u32,
    /// Targets of the call.
    pub names: Names,
    /// The same as messages have them.
    pub encoded: [u8; Targets::BYTES_MAX],
    /// Room for what the system answers.
    pub scratch: Scratch,
    pub mounts: Mounts,
}

/// One slot of the table.
struct Place(UnsafeCell<Slot>);

// SAFETY: the slot is reached only by the one thread that has taken it, see `take`.
unsafe impl Sync for Place {}

static TABLE: [Place; SLOTS] = [const {
    Place(UnsafeCell::new(Slot {
        client: Client::new(),
        pid: 0,
        names: Names::new(),
        encoded: [0; Targets::BYTES_MAX],
        scratch: Scratch::NONE,
        mounts: Mounts::NONE,
    }))
}; SLOTS];

/// Which slots are taken and which have ever been; apart from the table, so that looking for one
/// touches little memory.
static MARKS: [AtomicU8; SLOTS] = [const { AtomicU8::new(0) }; SLOTS];
const TAKEN: u8 = 1;
const USED: u8 = 2;

/// Number of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Index(usize);

impl Index {
    /// For keeping in a cell: never 0.
    pub fn to_mark(self) -> usize {
        self.0 + 1
    }

    /// Back from [`Index::to_mark`].
    pub fn from_mark(mark: usize) -> Option<Self> {
        mark.checked_sub(1).filter(|at| *at < SLOTS).map(Self)
    }
}

/// Takes a free slot: this one if possible, else the first, which is likely to have a connection.
pub fn take(liked: Option<Index>) -> Option<Index> {
    let free = |at: &usize| MARKS[*at].fetch_or(TAKEN | USED, Ordering::Acquire) & TAKEN == 0;
    liked.map(|liked| liked.0).into_iter().chain(0..SLOTS).find(free).map(Index)
}

/// Gives a slot back.
pub fn give_back(index: Index) {
    MARKS[index.0].fetch_and(!TAKEN, Ordering::Release);
}

/// Reaches what a slot holds.
///
/// # Safety
///
/// The caller's thread has taken the slot, has not given it back, and holds no other reference.
pub unsafe fn reach<'a>(index: Index) -> &'a mut Slot {
    // SAFETY: by the caller's promise nobody else reaches it.
    unsafe { &mut *TABLE[index.0].0.get() }
}

/// In a child made by `fork`: lets the parent's connections go and frees the slots of threads that
/// are not in this process. `kept` is the slot of the forking thread, whose call goes on in the
/// child when a signal handler has forked.
///
/// # Safety
///
/// The process has one thread.
pub unsafe fn after_fork(kept: Option<Index>) {
    let used = |at: &usize| MARKS[*at].load(Ordering::Relaxed) & USED != 0;
    for at in (0..SLOTS).filter(used) {
        // SAFETY: the only thread is here. The one call that may go on, in `kept`, sees its
        // connection closed when it next looks.
        unsafe { (*TABLE[at].0.get()).client.let_go() };
        if kept != Some(Index(at)) {
            give_back(Index(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_is_taken_once_and_the_liked_one_first() {
        let all: Vec<Index> = (0..SLOTS).filter_map(|_| take(None)).collect();
        assert_eq!(all.len(), SLOTS);
        assert_eq!(take(None), None);
        assert_eq!(take(Some(Index(9))), None);
        give_back(Index(9));
        give_back(Index(200));
        assert_eq!(take(Some(Index(9))), Some(Index(9)));
        assert_eq!(take(Some(Index(9))), Some(Index(200)), "another one when it is taken");
        all.into_iter().for_each(give_back);
    }

    #[test]
    fn scratch_is_mapped_once() {
        let mut scratch = Scratch::NONE;
        scratch.bytes().unwrap()[SCRATCH_BYTES - 1] = 7;
        assert_eq!(scratch.bytes().unwrap()[SCRATCH_BYTES - 1], 7);
    }

    #[test]
    fn marks() {
        assert_eq!(Index::from_mark(0), None);
        assert_eq!(Index::from_mark(Index(3).to_mark()), Some(Index(3)));
        assert_eq!(Index::from_mark(SLOTS + 1), None);
    }
}
