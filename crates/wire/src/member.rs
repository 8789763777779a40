//! What members of a group ask each other, to find out and mend where they differ.

use crate::obj::TxId;
use serde::{Deserialize, Serialize};
use types::{ContId, Epoch, PoolId, TargetId, Unit};

/// A question to a target about groups that it leads, or just has a part in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemberRequest<'a> {
    pub pool: PoolId,
    /// The asker's map: a target with a newer one refuses with `Stale`, and one with an older takes it first.
    pub map_version: u32,
    /// Who asks.
    pub member: TargetId,
    /// The newest epoch of anything that it has: what comes from now on is newer.
    pub newest: Epoch,
    #[serde(borrow)]
    pub ask: MemberAsk<'a>,
}

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MemberAsk<'a> {
    /// Units of groups that the target leads and the asker is in, after `after`, in [`Unit::list_order`]. The reply is a
    /// [`UnitList`]. Parts of transactions that the asker was not told of are decided before it.
    Units {
        cont: ContId,
        after: Option<Unit>,
        /// Most units in the answer.
        count_max: u32,
    },
    /// Dkeys of a unit, in an order of the unit's. The reply is a [`KeyList`].
    Keys {
        cont: ContId,
        unit: Unit,
        #[serde(with = "serde_bytes", borrow)]
        after: Option<&'a [u8]>,
        /// Most keys in the answer.
        count_max: u32,
    },
    /// Send these dkeys of a unit whole, among the orders, and what is known of the unit; to a unit that the target
    /// leads. The reply is `()`, when the asker has them.
    Mend {
        cont: ContId,
        unit: Unit,
        #[serde(borrow)]
        dkeys: Vec<&'a serde_bytes::Bytes>,
        /// After the last ones of a unit.
        with_facts: bool,
    },
    /// Send the notes of groups that the target leads and the asker is in: decisions that participants may not know, and
    /// objects without a name. The reply is a [`Notes`].
    Notes,
    /// Send the answers for retries that the target keeps of groups that it leads and the asker is in, after `after`, among the
    /// orders. The reply is a list of their transactions ([`TxId`]), when the asker has them: it drops others of these groups. Those that a lost leader left are
    /// in the list, and sent when all members have what they are about.
    Answers {
        after: Option<TxId>,
        /// Most answers sent; fewer are the last ones.
        count_max: u32,
        /// Tell which they are, and send none.
        is_list: bool,
    },
    /// The digest of what readers are shown of a unit, whoever leads it. The reply is a `u64`.
    Digest { cont: ContId, unit: Unit },
    /// Units with cells, of which the asker has or is to have some, of groups that the target leads, after `after`, in
    /// [`Unit::list_order`]. The reply is a [`UnitList`].
    CellUnits {
        cont: ContId,
        after: Option<Unit>,
        /// Most units in the answer.
        count_max: u32,
    },
    /// The stripes of a unit that the target leads, of dkeys after `after` in an order of the unit's: all that its array values
    /// name, and those of what snapshots see. The reply is a [`crate::cell::StripeList`].
    Stripes {
        cont: ContId,
        unit: Unit,
        #[serde(with = "serde_bytes", borrow)]
        after: Option<&'a [u8]>,
        /// Most dkeys looked at.
        count_max: u32,
    },
    /// The image of a dkey of a unit of whose group both are members, for one whose own data of it are damaged: that of a whole member takes the place of his, and that
    /// of one who is behind fills it. The reply is the number of its bytes, `u64`; they are the reply's bulk where they are not more than `bytes_max`.
    Image {
        cont: ContId,
        unit: Unit,
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
        bytes_max: u64,
    },
    /// The same in parts: `bytes_max` bytes of it at most, from `at` on, as the reply's bulk. It is made anew for each part; who puts
    /// them together finds out by its checksum whether it was another one meanwhile. The reply is the number of all its bytes, `u64`.
    ImagePart {
        cont: ContId,
        unit: Unit,
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
        at: u64,
        bytes_max: u64,
    },
    /// The same as [`MemberAsk::Units`], of a target that refuses that because pages of its index are damaged: without units of which something was in these.
    /// What is not in the answer may be there, or have been.
    UnitsAtHand {
        cont: ContId,
        after: Option<Unit>,
        /// Most units in the answer.
        count_max: u32,
    },
    /// To a follower, of its leader: whether it has settled what an earlier leader left it of their groups. The reply is `()`, when nothing is left.
    Settled,
    /// To whoever keeps cells, of the leader of their groups: drop those that have lost their names and were kept no later than at `until`, which is
    /// an earlier answer to this question. The reply is the epoch that it is at the target, when it has begun: with no units that is all
    /// there is to it. Cells that are kept once more are kept later, so that an order that comes late drops none of them.
    DropCells { until: Epoch, units: Vec<crate::cell::UnnamedCells> },
    /// To a follower, of its leader: whether it knows of no newer map than the asker's, by which another may lead. The reply is `()`, when
    /// it knows of none.
    Follows,
    /// To the leader of a stream of orders to the asker: up to which order all members have what it did. The reply is a [`SettledOrders`].
    SettledOrders,
    /// To a follower, of the leader of a coordinator's group, which is about to tell a participant how a transaction ends: note the same, for who leads later is asked,
    /// too. The reply is `()`, when it is on stable storage. Not among the orders: who follows may hold these up until it is told.
    Outcome {
        tx: TxId,
        /// `None`: it is aborted. The answer to who asked for the transaction goes, too.
        decision: Option<Decided>,
    },
    /// To any member: when clients last wanted something of these units of it, as [`ListedUnit::asked_s`]. The reply is a list of that.
    LastAsked { cont: ContId, units: Vec<Unit> },
    /// To a follower that is behind, of its leader: have a unit as the leader has it, where the newest epoch of anything in it is this one; [`Epoch::MAX`] where
    /// that tells nothing. The reply is `()`, when it is so.
    Compare { cont: ContId, unit: Unit, newest: Epoch },
}

/// That a transaction is committed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Decided {
    pub epoch: Epoch,
    /// As in [`crate::order::Order::Decision`].
    pub participants: Vec<Unit>,
}

/// What came of a leader's orders.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SettledOrders {
    /// Which numbering of the stream to the asker: see [`crate::order::Orders::stream`]; 0: there is none.
    pub stream: u64,
    /// See [`crate::order::Orders::settled`].
    pub number: u64,
}

/// What a leader has beside units.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Notes {
    /// Containers that it knows: the asker must know them before it compares.
    pub conts: Vec<ContId>,
    /// Parts that wait for a decision, and decisions that participants may not know, of groups that it leads and the asker
    /// is in: the asker drops others of these groups.
    pub parts: Vec<TxId>,
    pub decisions: Vec<TxId>,
}

/// A unit in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListedUnit {
    pub unit: Unit,
    /// The newest epoch of anything in it.
    pub newest: Epoch,
    /// When clients last wanted something of it, about, seconds since 1970; 0: the target does not remember.
    pub asked_s: u32,
}

impl ListedUnit {
    /// When it was last used, read or written, as far as is known, seconds since 1970.
    pub fn used_s(&self) -> u32 {
        self.asked_s.max(u32::try_from(self.newest.0 / 1_000_000_000).unwrap_or(u32::MAX))
    }
}

/// Units of a target.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct UnitList {
    pub units: Vec<ListedUnit>,
    /// Where to go on; `None`: these are all.
    pub next: Option<Unit>,
}

/// Dkeys with the newest epoch of anything under each; of one that only snapshots see, with the highest bit set.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct KeyList {
    pub keys: Vec<(serde_bytes::ByteBuf, Epoch)>,
    /// No more follow.
    pub complete: bool,
}
