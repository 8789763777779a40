//! Answers of targets to requests; see [`crate::obj`].

use crate::obj::Recx;
use crate::sums::BulkSums;
use serde::{Deserialize, Serialize};
use types::{Epoch, Unit};

/// Size of an array object as far as one shard knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Tail {
    /// Greatest integer dkey with records under the empty akey; `None` when there is none.
    pub dkey_max: Option<u64>,
    /// One past the last record in it.
    pub end: u64,
    /// Newest change of the shard.
    pub epoch: Epoch,
    pub bytes_used: u64,
}

/// Facts about an object's shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ObjectStat {
    /// Size as an array.
    pub tail: Tail,
    pub dkey_count: u64,
    /// Links that ask to be counted; see [`crate::link`].
    pub counted_links: u64,
    /// Last change of the set of dkeys.
    pub keys_epoch: Epoch,
}

/// What was found at one akey.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FetchedIod<'a> {
    /// Epoch of the newest change; [`Epoch::ZERO`] when absent.
    pub epoch: Epoch,
    #[serde(borrow)]
    pub value: Fetched<'a>,
}

/// The value found at one akey, or where its bytes are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Fetched<'a> {
    /// No such akey (an array fetch still fills the bulk with zeros).
    Absent,
    /// A single value, here.
    #[serde(borrow)]
    Inline(#[serde(with = "serde_bytes")] &'a [u8]),
    /// A single value of this size; its bytes are in the bulk unless it did not fit.
    Single {
        bytes: u64,
        /// False when it was longer than the caller's room.
        in_bulk: bool,
    },
    /// Records; all asked-for records are in the bulk (none for `Probe`).
    Array {
        /// Size of a record.
        record_bytes: u32,
        /// One past the last written record of the akey.
        end: u64,
    },
    /// Records, for [`FetchWant::Sparse`](crate::obj::FetchWant::Sparse).
    Sparse {
        /// Size of a record.
        record_bytes: u32,
        /// One past the last written record of the akey.
        end: u64,
        /// What of the asked-for ranges was never written, in their order.
        holes: Vec<Recx>,
    },
}

/// One item of an [`OpReply::Listed`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Listed<'a> {
    Key {
        #[serde(with = "serde_bytes", borrow)]
        key: &'a [u8],
    },
    /// A dkey with the value asked for.
    Entry {
        /// The dkey.
        #[serde(with = "serde_bytes", borrow)]
        key: &'a [u8],
        /// The value; empty when absent.
        #[serde(with = "serde_bytes", borrow)]
        value: &'a [u8],
        /// Epoch of the value.
        epoch: Epoch,
        /// Of the linked object, when held here.
        tail: Option<Tail>,
    },
    /// A range of written records.
    Recx {
        recx: Recx,
        /// Size of a record.
        record_bytes: u32,
        /// When it was written.
        epoch: Epoch,
    },
}

/// What became of a link's object in [`crate::obj::Op::RemoveLink`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Linked {
    /// There was none to free.
    None,
    /// Freed, or bound to be when its last handle closes.
    Freed,
    /// Held by other targets: the caller must send them `PunchUnlessOpen`.
    Elsewhere,
}

/// Result of one op.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OpReply<'a> {
    /// A write took effect.
    Done,
    /// [`crate::obj::Op::Fetch`]: one per iod.
    Fetched(#[serde(borrow)] Vec<FetchedIod<'a>>),
    /// [`crate::obj::Op::List`].
    Listed {
        /// Items, in the shard's order.
        #[serde(borrow)]
        items: Vec<Listed<'a>>,
        /// Where to go on; empty at the end.
        #[serde(with = "serde_bytes", borrow)]
        anchor: &'a [u8],
        /// Epoch of the last change of the key set listed.
        keys_epoch: Epoch,
    },
    /// [`crate::obj::Op::Query`]: `None` when there is nothing.
    Found(#[serde(borrow)] Option<FoundKey<'a>>),
    /// [`crate::obj::Op::Stat`].
    Stat(ObjectStat),
    /// [`crate::obj::Op::FetchLink`].
    Link {
        /// The value; `None` when absent.
        #[serde(with = "serde_bytes", borrow)]
        value: Option<&'a [u8]>,
        epoch: Epoch,
        /// Of the linked object, when held here.
        tail: Option<Tail>,
        /// A handle was registered.
        opened: bool,
    },
    /// [`crate::obj::Op::RemoveLink`].
    Removed {
        /// The value that was (or, if protected, still is) there; `None` when absent.
        #[serde(with = "serde_bytes", borrow)]
        value: Option<&'a [u8]>,
        /// False when the link was protected or absent.
        removed: bool,
        /// What became of the object.
        linked: Linked,
    },
    /// [`crate::obj::Op::Append`].
    Appended {
        /// The first record written.
        index: u64,
    },
    /// [`crate::obj::Op::ListRuns`].
    Runs {
        /// Written ranges, ascending.
        runs: Vec<Recx>,
        /// They are all up to here; less than the end of what was asked for when there was no room.
        to: u64,
    },
}

/// Answer to [`crate::obj::Op::Query`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FoundKey<'a> {
    /// The dkey found or given.
    #[serde(with = "serde_bytes", borrow)]
    pub dkey: &'a [u8],
    /// The akey found or given.
    #[serde(with = "serde_bytes", borrow)]
    pub akey: &'a [u8],
    pub recx: Option<Recx>,
    /// Size of its records.
    pub record_bytes: u32,
}

/// Answer to [`crate::obj::Request::Batch`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BatchReply<'a> {
    /// Epoch of the writes, or of reading when there were none.
    pub epoch: Epoch,
    /// One per op.
    #[serde(borrow)]
    pub ops: Vec<OpReply<'a>>,
    /// Sums of the bulk; last, for they are known last.
    #[serde(borrow)]
    pub sums: BulkSums<'a>,
}

/// Answer to [`crate::obj::Request::Commit`]: encoded [`BatchReply`]s, in the order of the parts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TxReply<'a> {
    /// Epoch of the transaction.
    pub epoch: Epoch,
    /// One per part.
    #[serde(borrow)]
    pub parts: Vec<&'a serde_bytes::Bytes>,
}

/// Answer to [`crate::obj::Request::Prepare`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Prepared<'a> {
    /// The least epoch at which this target can commit.
    pub epoch_min: Epoch,
    /// The encoded [`BatchReply`] of the part.
    #[serde(with = "serde_bytes", borrow)]
    pub reply: &'a [u8],
}

/// Space and counts of a pool's shard in one target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PoolShardStat {
    /// Index and log tier, bytes in all.
    pub scm_bytes: u64,
    pub scm_free_bytes: u64,
    /// Data tier, bytes in all.
    pub nvme_bytes: u64,
    pub nvme_free_bytes: u64,
    /// The index borrows from what is free for data when its own tier is full.
    pub tiers_share_room: bool,
    /// Objects in the shard.
    pub object_count: u64,
    /// Dkeys in the shard.
    pub dkey_count: u64,
}

/// A tier with less than this part of it free is short of space...
const SHORT_PART: u64 = 8;
/// ... unless it has this much, bytes: an eighth of a very large tier lasts for long.
const SHORT_BYTES_MAX: u64 = 64 << 30;

/// The same for who is to take over what others held: of a pool that is 95 % full something can be moved still.
const JOIN_PART: u64 = 32;
const JOIN_BYTES_MAX: u64 = 16 << 30;

/// What who takes over what others held leaves free of so many bytes.
pub fn kept_when_joining(bytes: u64) -> u64 {
    (bytes / JOIN_PART).min(JOIN_BYTES_MAX)
}

/// What is left of so many bytes when a target is short of space.
fn kept_from_copies(bytes: u64) -> u64 {
    (bytes / SHORT_PART).min(SHORT_BYTES_MAX)
}

impl PoolShardStat {
    /// Bytes that data of new files may take: none where the index has no room for a file more.
    pub fn available_bytes(&self) -> u64 {
        match self.tiers_share_room || self.scm_free_bytes >= FILE_INDEX_BYTES {
            true => self.nvme_free_bytes,
            false => 0,
        }
    }

    /// The same where other targets have copies of them: leaders refuse what is to be kept by one that is nearly full ([`Self::is_short`]).
    pub fn available_with_copies(&self) -> u64 {
        let index_is_short = self.scm_free_bytes < kept_from_copies(self.scm_bytes);
        match index_is_short && !self.tiers_share_room {
            true => 0,
            false => self.available_bytes().saturating_sub(kept_from_copies(self.nvme_bytes)),
        }
    }

    /// What is taken of both tiers.
    pub fn used_bytes(&self) -> u64 {
        (self.scm_bytes + self.nvme_bytes)
            .saturating_sub(self.scm_free_bytes + self.nvme_free_bytes)
    }

    /// One of the tiers is nearly full: new files are better off elsewhere.
    pub fn is_short(&self) -> bool {
        let short = |free, bytes: u64| free < kept_from_copies(bytes);
        let index_is_short = short(self.scm_free_bytes, self.scm_bytes);
        index_is_short && !self.tiers_share_room || short(self.nvme_free_bytes, self.nvme_bytes)
    }

    /// So little is left that a target should not take over what others held: who has groups there goes on writing.
    pub fn is_too_full_to_join(&self) -> bool {
        let full = |free, bytes: u64| free < kept_when_joining(bytes);
        let index_is_full = full(self.scm_free_bytes, self.scm_bytes);
        index_is_full && !self.tiers_share_room || full(self.nvme_free_bytes, self.nvme_bytes)
    }

    /// How much of the fuller tier is free, in 65,536ths of the tier.
    pub fn free_share(&self) -> u64 {
        let share = |free: u64, bytes: u64| (free as u128 * 65_536 / bytes.max(1) as u128) as u64;
        let data = share(self.nvme_free_bytes, self.nvme_bytes);
        match self.tiers_share_room {
            true => data,
            false => data.min(share(self.scm_free_bytes, self.scm_bytes)),
        }
    }
}

/// What a small file takes of the index at least, bytes, about.
const FILE_INDEX_BYTES: u64 = 1024;

/// Answer to [`crate::obj::Request::ListObjects`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ObjectList {
    /// Objects in [`Unit::list_order`].
    pub units: Vec<Unit>,
    /// False when there are more.
    pub complete: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `df` showed 59 % of a pool of two copies as available of which not a byte could be written: a member of each group was nearly full.
    #[test]
    fn what_copies_are_refused_on_is_not_available_to_them() {
        let stat = |nvme_free_bytes, scm_free_bytes, tiers_share_room| PoolShardStat {
            scm_bytes: 8 << 20,
            scm_free_bytes,
            nvme_bytes: 80 << 20,
            nvme_free_bytes,
            tiers_share_room,
            ..PoolShardStat::default()
        };
        for shares in [false, true] {
            for data in [0, 9 << 20, 10 << 20, 30 << 20, 80 << 20] {
                for index in [0, 1 << 19, 1 << 20, 8 << 20] {
                    let stat = stat(data, index, shares);
                    let room = stat.available_with_copies();
                    assert!(room <= stat.available_bytes());
                    assert!(!stat.is_short() || room == 0, "{stat:?}: {room}");
                    assert!(room > 0 || stat.is_short() || data == 10 << 20, "{stat:?}");
                }
            }
        }
    }
}
