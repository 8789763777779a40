//! Advisory locks: what is asked of a target and what it answers, and [`HeldRanges`], the ranges
//! one owner holds, which both sides keep.
//!
//! Locks are on ranges of an object, bytes for files; the target that leads the object's first
//! group decides about all of them. Four kinds live in three spaces that know nothing of each
//! other: `Flock` in one, `Posix` and `Ofd` in another, as on Linux, and `Append`, which clients use
//! among themselves, in the third.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use types::{ClientId, ContId, PoolId, Unit};

/// What kind of lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum LockKind {
    /// Whole file, of an open file description (`flock`).
    Flock,
    /// Byte range, of a process (`fcntl`); a wait that would never end is an error.
    Posix,
    /// Byte range, of an open file description (`fcntl`, `F_OFD_SETLK`).
    Ofd,
    /// The right to write at the end of a file that several targets hold.
    Append,
}

impl LockKind {
    /// The numbers of all spaces.
    pub const SPACES: [u8; 3] = [0, 1, 2];

    /// Number of the space: locks of different spaces do not see each other.
    pub fn space(self) -> u8 {
        match self {
            LockKind::Flock => 0,
            LockKind::Posix | LockKind::Ofd => 1,
            LockKind::Append => 2,
        }
    }
}

/// Shared with others of its like, or not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum LockMode {
    /// "Read lock".
    Shared,
    /// "Write lock".
    Exclusive,
}

impl LockMode {
    /// True when two owners cannot hold these together.
    pub fn excludes(self, other: LockMode) -> bool {
        self == LockMode::Exclusive || other == LockMode::Exclusive
    }
}

/// A range, both ends included; `first <= last`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct LockRange {
    /// First byte.
    pub first: u64,
    /// Last byte; `u64::MAX` for "to the end, wherever it comes to be".
    pub last: u64,
}

impl LockRange {
    pub const WHOLE: LockRange = LockRange { first: 0, last: u64::MAX };

    /// True when the ranges share a byte.
    pub fn overlaps(self, other: LockRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Who holds a lock. Two requests of one owner never exclude each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct LockOwner {
    /// The process (or mount) the owner lives in, a random number.
    pub holder: u64,
    /// Who it is there: a process, an open file description, a task.
    pub id: u64,
}

impl LockOwner {
    /// The holder of owners that several processes share: an open file description that was
    /// inherited. Their `id` is a random number.
    pub const SHARED: u64 = 0;

    /// True for an owner whose locks last until the last client that holds them has gone.
    pub fn is_shared(self) -> bool {
        self.holder == LockOwner::SHARED
    }
}

/// What a [`LockRequest`] does with its owner's locks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LockOp {
    /// Lock the range, in place of what the owner holds of it.
    Set {
        range: LockRange,
        mode: LockMode,
        /// Told to those who ask who is in the way.
        pid: u32,
        /// Wait for it under this number, one of the client's own. A request that comes again with
        /// the same number keeps its place.
        wait: Option<u64>,
    },
    /// Unlock the range.
    Clear { range: LockRange },
    /// Who would be in the way?
    Test { range: LockRange, mode: LockMode },
    /// After the connection was lost or the engine restarted: lock all these again, if nobody has
    /// taken any of them; else none (`Io`).
    Reclaim {
        /// What the owner held.
        locks: Vec<(LockRange, LockMode)>,
        /// As in `Set`.
        pid: u32,
    },
    /// The client holds what the shared owner holds, too. `NonExist` when that is nothing.
    Join,
    /// The client does not hold what the shared owner holds any more. Others do, or will have said so
    /// in two seconds.
    Part,
}

/// A request about one owner's locks on one object. The reply is a [`LockReply`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LockRequest {
    pub pool: PoolId,
    pub cont: ContId,
    pub unit: Unit,
    pub kind: LockKind,
    pub owner: LockOwner,
    pub op: LockOp,
}

/// A lock that is in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LockHolder {
    pub owner: LockOwner,
    /// The client it was locked through.
    pub client: ClientId,
    /// The process id that its owner gave, for people.
    pub pid: u32,
    pub range: LockRange,
    pub mode: LockMode,
}

/// Answer to a [`LockRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LockReply {
    /// Locked, unlocked, or (test) nobody would be in the way.
    Done,
    /// Not locked: this one is in the way.
    Held(LockHolder),
    /// Still waiting; ask again, soon, with the same number.
    Waiting,
    /// What the shared owner holds.
    Joined(Vec<(LockRange, LockMode)>),
}

/// Ranges of one owner: sorted, apart from each other, neighbours of one mode joined.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HeldRanges(SmallVec<[(LockRange, LockMode); 1]>);

impl HeldRanges {
    /// The ranges in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (LockRange, LockMode)> + '_ {
        self.0.iter().copied()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when nothing is held.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first range that another owner's lock would collide with.
    pub fn in_the_way_of(&self, range: LockRange, mode: LockMode) -> Option<(LockRange, LockMode)> {
        let reach = self.0[self.reached(range)..].iter().copied();
        reach.take_while(|(held, _)| held.first <= range.last).find(|(_, how)| how.excludes(mode))
    }

    /// Place of the first range that does not end before this one begins.
    fn reached(&self, range: LockRange) -> usize {
        self.0.partition_point(|(held, _)| held.last < range.first)
    }

    /// Takes a range away.
    pub fn clear(&mut self, range: LockRange) {
        let from = self.reached(range);
        let count = self.0[from..].iter().take_while(|(held, _)| held.first <= range.last).count();
        if count == 0 {
            return;
        }
        let (head, mode_before) = self.0[from];
        let (tail, mode_after) = self.0[from + count - 1];
        self.0.drain(from..from + count);
        if tail.last > range.last {
            let rest = LockRange { first: range.last + 1, last: tail.last };
            self.0.insert(from, (rest, mode_after));
        }
        if head.first < range.first {
            let rest = LockRange { first: head.first, last: range.first - 1 };
            self.0.insert(from, (rest, mode_before));
        }
    }

    /// Puts a range in place of what is there.
    pub fn set(&mut self, mut range: LockRange, mode: LockMode) {
        self.clear(range);
        let at = self.reached(range);
        if let Some(&(next, how)) = self.0.get(at)
            && how == mode
            && range.last.checked_add(1) == Some(next.first)
        {
            range.last = next.last;
            self.0.remove(at);
        }
        match at.checked_sub(1).map(|before| &mut self.0[before]) {
            Some((held, how)) if *how == mode && held.last.checked_add(1) == Some(range.first) => {
                held.last = range.last;
            }
            _ => self.0.insert(at, (range, mode)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(first: u64, last: u64) -> LockRange {
        LockRange { first, last }
    }

    #[test]
    fn ranges_split_join_and_reach_the_last_byte() {
        let mut held = HeldRanges::default();
        held.set(LockRange::WHOLE, LockMode::Shared);
        held.set(range(10, 19), LockMode::Exclusive);
        assert_eq!(held.len(), 3);
        held.set(range(10, 19), LockMode::Shared);
        assert_eq!(held.iter().collect::<Vec<_>>(), [(LockRange::WHOLE, LockMode::Shared)]);
        held.clear(range(u64::MAX, u64::MAX));
        assert_eq!(held.iter().next(), Some((range(0, u64::MAX - 1), LockMode::Shared)));
        held.clear(LockRange::WHOLE);
        assert!(held.is_empty());
    }

    proptest! {
        /// Compared with one mode per byte.
        #[test]
        fn ranges_are_what_a_byte_map_says(
            steps in prop::collection::vec((0u64..20, 0u64..20, 0u8..3), 1..40),
        ) {
            let mut held = HeldRanges::default();
            let mut bytes = [None; 20];
            for (a, b, what) in steps {
                let range = range(a.min(b), a.max(b));
                let mode = [None, Some(LockMode::Shared), Some(LockMode::Exclusive)][what as usize];
                match mode {
                    None => held.clear(range),
                    Some(mode) => held.set(range, mode),
                }
                bytes[range.first as usize..=range.last as usize].fill(mode);
                for (at, byte) in bytes.iter().enumerate() {
                    let at = at as u64;
                    let found = held.iter().find(|(held, _)| held.overlaps(LockRange { first: at, last: at }));
                    prop_assert_eq!(found.map(|(_, mode)| mode), *byte);
                }
                let all: Vec<_> = held.iter().collect();
                for pair in all.windows(2) {
                    prop_assert!(pair[0].0.last < pair[1].0.first);
                    prop_assert!(pair[0].1 != pair[1].1 || pair[0].0.last + 1 < pair[1].0.first);
                }
            }
        }
    }
}
