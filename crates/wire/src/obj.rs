//! Requests to a target and their answers.
//!
//! A [`Request`] carries a list of [`Op`]s on objects of one container. All conditions and
//! checks of the list are evaluated against the state before it (only the kind that a value has to have heeds akeys that
//! earlier ops of the list punch); if one fails nothing happens
//! and its error is the answer; otherwise all take effect at one epoch. User data of updates is
//! in the bulk, in the order of ops, iods, recxs; fetched data is in the reply's bulk likewise.

pub use crate::admin::AdminOp;
pub use crate::reply::*;
pub use crate::request_kind::RequestKind;
pub use crate::sums::{BulkSums, Sums};
pub use crate::versions::AdminReply;

use crate::cell::Stripe;
use crate::lock::{LockKind, LockOwner, LockRange, LockRequest};
use serde::{Deserialize, Serialize};
use types::{ClientId, ContId, Epoch, PoolId, Unit};

/// Condition bits of an operation. Names follow DAOS's `DAOS_COND_*`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cond(pub u16);

impl Cond {
    pub const NONE: Cond = Cond(0);
    /// Update: the dkey must not exist (else `Exist`).
    pub const DKEY_INSERT: Cond = Cond(1);
    /// Update: the dkey must exist (else `NonExist`).
    pub const DKEY_UPDATE: Cond = Cond(2);
    /// Fetch: the dkey must exist (else `NonExist`).
    pub const DKEY_FETCH: Cond = Cond(4);
    /// Update: no named akey may exist.
    pub const AKEY_INSERT: Cond = Cond(8);
    /// Update: every named akey must exist.
    pub const AKEY_UPDATE: Cond = Cond(16);
    /// Fetch: every named akey must exist.
    pub const AKEY_FETCH: Cond = Cond(32);
    /// Punch: what is punched must exist.
    pub const PUNCH: Cond = Cond(64);
    /// Any operation: the object must hold at least one dkey in this shard (else `NonExist`).
    pub const OBJ_EXISTS: Cond = Cond(128);
    /// Object punch: the object may hold no dkey beside the one named by the op (else `NotEmpty`).
    pub const OBJ_EMPTY: Cond = Cond(256);
    /// Object punch with `OBJ_EMPTY`: the units of all groups go in this batch. Else the first unit of an object whose dkeys have begun
    /// to move to others ([`crate::spread`]) is not punched (`Moved`).
    pub const ALL_GROUPS: Cond = Cond(512);

    /// Both sets of conditions.
    pub const fn and(self, other: Cond) -> Cond {
        Cond(self.0 | other.0)
    }

    /// True when all bits of `other` are set.
    pub const fn has(self, other: Cond) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A range of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recx {
    /// First record.
    pub index: u64,
    pub count: u64,
}

impl Recx {
    /// One past the last record; `None` on overflow.
    pub fn end(&self) -> Option<u64> {
        self.index.checked_add(self.count)
    }
}

/// New value of one akey.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum UpdateValue<'a> {
    /// A single value, here.
    #[serde(borrow)]
    Inline(#[serde(with = "serde_bytes")] &'a [u8]),
    /// A single value of this many bytes, in the bulk.
    Single { bytes: u64 },
    /// Records of an array value, in the bulk.
    Array {
        /// Size of a record; must match the existing records of the akey.
        record_bytes: u32,
        recxs: Vec<Recx>,
    },
    /// Fills the unwritten parts of these ranges with records that read as zero but count as
    /// written (they move the array's end). Written records stay as they are.
    Zero {
        /// Size of a record.
        record_bytes: u32,
        recxs: Vec<Recx>,
    },
    /// Records that go away.
    PunchRecords { recxs: Vec<Recx> },
    /// Whole stripes of an array of a class with an erasure code, whose cells the writer has had kept by all members just
    /// before ([`crate::cell`]). `Busy`, and no effect, when the leader cannot rely on that.
    Coded {
        /// Size of a record; a cell has a whole number of them.
        record_bytes: u32,
        /// Records of a stripe.
        count: u64,
        /// The pool map by which members were found.
        map_version: u32,
        /// Each once; their versions are [`coined`](crate::cell::is_coined).
        stripes: Vec<Stripe>,
    },
}

/// Update of one akey.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UpdateIod<'a> {
    #[serde(with = "serde_bytes", borrow)]
    pub akey: &'a [u8],
    /// Conditions on this akey, beside those of the op.
    pub cond: Cond,
    pub value: UpdateValue<'a>,
}

/// What to read of one akey.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FetchWant {
    /// The single value; in the reply body when it has at most `inline_bytes_max` bytes, else in
    /// the bulk. Longer than `bytes_max`: only its size is returned.
    Single {
        /// Room the caller has.
        bytes_max: u64,
        /// Room in the reply body.
        inline_bytes_max: u32,
    },
    /// Records, into the bulk; holes read as zero.
    Array {
        /// Size of a record as the caller believes; 0: tell me.
        record_bytes: u32,
        recxs: Vec<Recx>,
    },
    /// Only what is known without reading: kind, size, epoch, end.
    Probe,
    /// As `Array`; the answer names the holes. When anything asked for in this way by an op is a
    /// hole, the op has no bulk at all unless `with_holes`: data that come at once for memory
    /// whose holes must stay as they are.
    Sparse {
        /// Size of a record.
        record_bytes: u32,
        recxs: Vec<Recx>,
        /// The data come even if there are holes, which are zeros in them.
        with_holes: bool,
    },
}

/// Fetch from one akey.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FetchIod<'a> {
    #[serde(with = "serde_bytes", borrow)]
    pub akey: &'a [u8],
    pub want: FetchWant,
}

/// What a listing walks over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ListScope<'a> {
    /// Dkeys of the object's shard. With `value_of`, each with the single value of that akey.
    Dkeys {
        /// Akey whose value is wanted.
        #[serde(with = "serde_bytes", borrow)]
        value_of: Option<&'a [u8]>,
        /// Follow each value's link and add the tail of the object if it is held here.
        follow: bool,
        /// Hashed dkeys only: list keys whose hash is in `[from, to]`; `(0, u64::MAX)` is all.
        hash_range: (u64, u64),
    },
    /// Akeys of a dkey.
    Akeys {
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
    },
    /// Written record ranges of an array akey.
    Recxs {
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
        #[serde(with = "serde_bytes", borrow)]
        akey: &'a [u8],
        /// From the highest down.
        descending: bool,
    },
}

/// What an [`Op::Query`] looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QueryFlags(pub u8);

impl QueryFlags {
    pub const DKEY: QueryFlags = QueryFlags(1);
    pub const AKEY: QueryFlags = QueryFlags(2);
    pub const RECX: QueryFlags = QueryFlags(4);
    /// The greatest, not the least.
    pub const MAX: QueryFlags = QueryFlags(8);

    /// True when all bits of `other` are set.
    pub const fn has(self, other: QueryFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets of bits.
    pub const fn and(self, other: QueryFlags) -> QueryFlags {
        QueryFlags(self.0 | other.0)
    }
}

/// One operation on one unit of an object. Units of one object that a target holds have nothing to
/// do with each other: an op sees and changes the one it names. What each touches is told by [`Op::footprint`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Op<'a> {
    /// Write akeys of a dkey.
    Update {
        unit: Unit,
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
        cond: Cond,
        iods: Vec<UpdateIod<'a>>,
    },
    /// Read akeys of a dkey.
    Fetch {
        unit: Unit,
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
        cond: Cond,
        iods: Vec<FetchIod<'a>>,
    },
    /// Remove the whole shard. With `Cond::OBJ_EMPTY`, only if no dkey but `besides` is there.
    PunchObj {
        unit: Unit,
        cond: Cond,
        /// The dkey that does not count.
        #[serde(with = "serde_bytes", borrow)]
        besides: &'a [u8],
    },
    PunchDkeys {
        unit: Unit,
        cond: Cond,
        /// Which; each length-prefixed inside.
        #[serde(borrow)]
        dkeys: Vec<&'a serde_bytes::Bytes>,
    },
    /// Remove integer dkeys from `from` (inclusive) upwards.
    PunchDkeysFrom {
        /// The object; its dkeys must be integers.
        unit: Unit,
        /// First dkey to remove.
        from: u64,
    },
    /// Remove akeys of a dkey.
    PunchAkeys {
        unit: Unit,
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
        cond: Cond,
        #[serde(borrow)]
        akeys: Vec<&'a serde_bytes::Bytes>,
    },
    /// List keys or ranges.
    List {
        unit: Unit,
        /// What to walk over.
        #[serde(borrow)]
        scope: ListScope<'a>,
        /// Where to go on.
        #[serde(with = "serde_bytes", borrow)]
        anchor: &'a [u8],
        /// Most items in the answer.
        count_max: u32,
        /// Most bytes of keys and values in the answer; at least one item is given all the same.
        bytes_max: u32,
    },
    /// Find the least or greatest dkey, akey, recx.
    Query {
        unit: Unit,
        flags: QueryFlags,
        /// The dkey, unless it is to be found.
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
        /// The akey, unless it is to be found.
        #[serde(with = "serde_bytes", borrow)]
        akey: &'a [u8],
    },
    /// Facts about the shard: newest epoch, key count, array tail, bytes used.
    Stat { unit: Unit },
    /// Read the link at (dkey, akey), its tail if the object is held here, and register an open
    /// handle if asked (see [`Op::Open`]).
    FetchLink {
        /// The object that holds the link.
        unit: Unit,
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
        #[serde(with = "serde_bytes", borrow)]
        akey: &'a [u8],
        /// Register an open handle on the linked object if it is held here.
        open: bool,
    },
    /// Remove the dkey that holds a link, unless the link is protected; then free the linked
    /// object if it is held here (or when its last open handle goes).
    RemoveLink {
        /// The object that holds the link.
        unit: Unit,
        /// The dkey, removed whole.
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
        /// The akey with the link.
        #[serde(with = "serde_bytes", borrow)]
        akey: &'a [u8],
    },
    /// Register an open handle of this client: the object outlives its last link until
    /// [`Notice::Release`] or the client's end.
    Open { unit: Unit },
    /// Punch the object, or when a client holds it open, as soon as none does.
    PunchUnlessOpen { unit: Unit },
    /// Write one-byte records behind the last one of an array, all of which must be here; where
    /// that is, is decided when the data take effect. Chunk `i` is dkey `i + 1`, akey empty. The
    /// only op of its batch; in no transaction over several targets.
    Append {
        unit: Unit,
        /// Records in a chunk.
        chunk_records: u64,
        /// How many; they are in the bulk.
        count: u64,
    },
    /// List the written ranges of an array's chunks in this shard, as ranges of the whole array,
    /// neighbours joined. Filled records ([`UpdateValue::Zero`]) count as unwritten.
    ListRuns {
        /// The object; chunk `i` is dkey `i + 1`, akey empty.
        unit: Unit,
        /// Records in a chunk.
        chunk_records: u64,
        /// Range of the whole array, in records.
        within: Recx,
        /// Most ranges in the answer.
        count_max: u32,
    },
    /// Keep an object that [`Op::PunchUnlessOpen`] would free with its last open handle
    /// (`NonExist` when it would not be: it is gone).
    Adopt { unit: Unit },
    /// Punch an object that another one has taken the place of, some seconds later; `Busy`, and no effect, when a client holds
    /// it open, `WouldBlock` when one may say so yet after a restart.
    FreeClosed { unit: Unit },
}

/// Dkey of an array that is none of its chunks, which are dkeys 1, 2, …: facts about the array. Of an array of bytes ([`types::ObjType::ArrayByte`]) changes under it
/// count for the epoch of this dkey alone, not for those of the whole, which tell of the data.
pub const ARRAY_RECORD: [u8; 8] = [0; 8];
/// Akey under [`ARRAY_RECORD`] in the first unit of a progressive array ([`types::Oid::first_part_bytes`]): a single value that
/// is there when other units may hold chunks.
pub const BEYOND: &[u8] = b"+";

/// What a transaction read and relies on: it fails with `TxRestart` if it has changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReadCheck<'a> {
    pub unit: Unit,
    #[serde(borrow)]
    pub of: ReadScope<'a>,
    /// The epoch the reader saw; [`Epoch::ZERO`] for "absent".
    pub seen: Epoch,
}

/// Extent of a [`ReadCheck`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ReadScope<'a> {
    /// The set of dkeys in the shard (after a listing or query): epoch of its last change.
    Keys,
    /// Anything in the shard but the record of an array of bytes ([`ARRAY_RECORD`]): epoch of its last change.
    Object,
    /// Anything under one dkey.
    Dkey(#[serde(with = "serde_bytes", borrow)] &'a [u8]),
    /// The value of one akey.
    Akey(
        /// The dkey.
        #[serde(with = "serde_bytes", borrow)]
        &'a [u8],
        /// The akey.
        #[serde(with = "serde_bytes", borrow)]
        &'a [u8],
    ),
}

/// Ops on one container that take effect together on one target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Batch<'a> {
    pub pool: PoolId,
    pub cont: ContId,
    /// Read what this snapshot of the container shows; [`Epoch::ZERO`]: the present. With a
    /// snapshot there are no writes, no checks, and opening registers nothing.
    pub at: Epoch,
    /// What must not have changed.
    #[serde(borrow)]
    pub checks: Vec<ReadCheck<'a>>,
    #[serde(borrow)]
    pub ops: Vec<Op<'a>>,
    /// Sums of the bulk.
    #[serde(borrow)]
    pub sums: Sums<'a>,
}

/// Names a transaction for ever: its maker and the maker's count.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct TxId {
    pub client: ClientId,
    /// The maker's count over all targets.
    pub seq: u64,
}

impl TxId {
    /// Most parts of a transaction. Coordinators number their transactions in steps of this: what is between are
    /// the parts, so that a target that leads several groups of a transaction tells them apart.
    pub const PARTS_MAX: u64 = 1 << 16;

    /// The name of a part, counted from 0, of a coordinator's transaction.
    pub fn part(self, at: usize) -> TxId {
        TxId { seq: self.seq + at as u64, ..self }
    }

    /// The transaction of a part.
    pub fn whole(self) -> TxId {
        TxId { seq: self.seq - self.seq % Self::PARTS_MAX, ..self }
    }
}

/// What is known of a transaction's outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TxOutcome {
    /// Took effect at this epoch.
    Committed(Epoch),
    Aborted,
    /// Its coordinator is still working on it.
    Pending,
}

/// A request to a target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request<'a> {
    /// Run a batch. The reply is a [`BatchReply`].
    Batch(#[serde(borrow)] Batch<'a>),
    /// Be the coordinator of a transaction over several groups: to the leader of the first one.
    /// `parts` are encoded [`Batch`]es; bulk of all parts follows in order. The reply is a [`TxReply`].
    Commit {
        tx: TxId,
        /// A unit of the group, encoded batch, and bytes of bulk that belong to it.
        #[serde(borrow)]
        parts: Vec<(Unit, &'a serde_bytes::Bytes, u32)>,
    },
    /// From a coordinator: check and hold this part. The reply is a [`Prepared`].
    Prepare {
        /// Of the part ([`TxId::part`]).
        tx: TxId,
        /// Whose group to ask when in doubt.
        coordinator: Unit,
        #[serde(borrow)]
        batch: Batch<'a>,
    },
    /// From a coordinator: the outcome. The reply is [`TxOutcome`].
    Decide {
        /// The pool the transaction is in.
        pool: PoolId,
        /// Of the part.
        tx: TxId,
        /// A unit of the part's group.
        unit: Unit,
        /// Never `Pending`.
        outcome: TxOutcome,
    },
    /// From a participant in doubt. The reply is [`TxOutcome`].
    AskOutcome {
        /// The pool the transaction is in.
        pool: PoolId,
        /// Of the part.
        tx: TxId,
        /// A unit of the coordinator's group.
        coordinator: Unit,
    },
    /// Space and counts of a pool's shard here. The reply is a [`PoolShardStat`].
    PoolShardStat { pool: PoolId },
    /// List objects of a container in this shard, for checkers. The reply is an [`ObjectList`].
    ListObjects {
        pool: PoolId,
        cont: ContId,
        /// As [`Batch::at`].
        at: Epoch,
        /// Start after this object.
        after: Option<Unit>,
        /// Most objects in the answer.
        count_max: u32,
    },
    /// From the control service: see [`AdminOp`]. The reply is an [`AdminReply`].
    Admin {
        /// Of the control service that gives the order: grows with each engine that takes it over.
        term: u64,
        op: AdminOp,
    },
    /// List objects whose home is here and that live only until their last open handle goes.
    /// The reply is an [`ObjectList`].
    ListOrphans {
        pool: PoolId,
        cont: ContId,
        /// Start after this one.
        after: Option<Unit>,
        /// Most of them in the answer.
        count_max: u32,
    },
    /// How bulk transfers of a pool are admitted here. The reply is an
    /// [`crate::admission::AdmissionStat`].
    AdmissionStat { pool: PoolId },
    /// Devices, log and aggregation of a pool's shard here. The reply is a
    /// [`crate::store::StoreStat`].
    StoreStat { pool: PoolId },
    /// Advisory locks. The reply is a [`crate::lock::LockReply`].
    Lock(LockRequest),
    /// Read what the fetches of this batch read, compare it with its sums, and say how many blocks
    /// are damaged. For a reader that got data that differ from their sums. The reply is a `u64`.
    Verify(#[serde(borrow)] Batch<'a>),
    /// How the data of a pool are checked here. The reply is a [`crate::scrub::ScrubStat`].
    ScrubStat { pool: PoolId },
    /// Check all data of a pool now, as fast as it goes. The reply is the number of the pass, a
    /// `u64`: it is over when [`crate::scrub::ScrubStat::passes`] has reached it.
    Scrub { pool: PoolId },
    /// The pool map as the target knows it. The reply is a [`crate::map::PoolMap`].
    PoolMap { pool: PoolId },
    /// From the leader of groups to a member of them. The reply is a [`crate::order::OrdersDone`].
    Orders(#[serde(borrow)] crate::order::Orders<'a>),
    /// From a target to another; see [`crate::member`].
    Member(#[serde(borrow)] crate::member::MemberRequest<'a>),
    /// From a target to another; see [`crate::cell`].
    Cell(#[serde(borrow)] crate::cell::CellRequest<'a>),
    /// What of a pool's data is in this engine's memory. The reply is a [`crate::cache::CacheStat`].
    CacheStat { pool: PoolId },
    /// To learn how fast a target is reached: what comes with it goes back. The reply is `()`.
    Probe {
        /// What a client has found out before; the target keeps it for people to see.
        seen: Option<crate::measure::SeenSpeed>,
    },
    /// Whose damaged pages a target waits for, which has all else that it is to have. The reply is an `Option` of
    /// [`crate::store::PageWait`].
    PageWait { pool: PoolId },
    /// From a checker: move dkeys of a unit that are to be looked for in others ([`crate::spread`]) there, a defect; of such that are there, too,
    /// nothing is left here. The reply is how many these were, a `u64`.
    PutInPlace {
        pool: PoolId,
        cont: ContId,
        /// To the leader of its group.
        unit: Unit,
    },
}

impl Request<'_> {
    /// Encodes a [`Request::Prepare`] of a batch that is encoded already.
    pub fn prepare_encoded(tx: TxId, coordinator: Unit, batch: &[u8]) -> Vec<u8> {
        let mut body = Vec::with_capacity(64 + batch.len());
        crate::encode_into(&(RequestKind::PREPARE_TAG, tx, coordinator), &mut body);
        body.extend_from_slice(batch);
        body
    }

    /// True for what engines ask of each other only: it is taken as the truth, so whoever asks must have shown
    /// the secret of engines and administrators.
    pub fn is_for_engines(&self) -> bool {
        match self {
            Request::Prepare { .. }
            | Request::Decide { .. }
            | Request::AskOutcome { .. }
            | Request::Admin { .. }
            | Request::Orders(_)
            | Request::Member(_)
            | Request::Cell(_) => true,
            Request::Batch(_)
            | Request::Commit { .. }
            | Request::PoolShardStat { .. }
            | Request::ListObjects { .. }
            | Request::ListOrphans { .. }
            | Request::PutInPlace { .. }
            | Request::AdmissionStat { .. }
            | Request::CacheStat { .. }
            | Request::StoreStat { .. }
            | Request::Lock(_)
            | Request::Verify(_)
            | Request::ScrubStat { .. }
            | Request::Scrub { .. }
            | Request::Probe { .. }
            | Request::PageWait { .. }
            | Request::PoolMap { .. } => false,
        }
    }
}

/// A message that needs no answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Notice {
    /// Open handles the client has closed.
    Release {
        pool: PoolId,
        cont: ContId,
        /// One entry per handle.
        units: Vec<Unit>,
    },
    /// Whoever waited for a lock does so no more. With `release`, nor does it want the lock, should
    /// it have been granted already; without a wait this is an unlock that nobody waits for.
    LockLeave {
        pool: PoolId,
        cont: ContId,
        unit: Unit,
        kind: LockKind,
        owner: LockOwner,
        /// What was waited for, or is to be unlocked.
        range: LockRange,
        /// The number of the wait.
        wait: Option<u64>,
        release: bool,
    },
    /// The client has registered again all it held open in an earlier session with this target, and
    /// waits for the answer of no batch sent in one that opens anything.
    Registered,
    /// From now on a number stands for a job in this connection's requests ([`crate::header::FLAG_JOB`]): who asks does so for several.
    Job {
        /// Not 0.
        number: u8,
        /// At most [`types::limits::LABEL_BYTES_MAX`] bytes count.
        name: String,
    },
    /// By this version of the pool's map others lead the groups of these units: the client has gone there with what it held open and locked
    /// here. It is forgotten when the target has that version, and not before: until then it gives locks to others.
    Left { pool: PoolId, map_version: u32, units: Vec<(ContId, Unit)> },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::LockOp;

    #[test]
    fn kinds_are_told_by_the_first_byte() {
        let (pool, cont, unit) = (PoolId(1), ContId(2), Unit::NIL);
        let lock = Request::Lock(LockRequest {
            pool,
            cont,
            unit,
            kind: LockKind::Flock,
            owner: LockOwner { holder: 1, id: 2 },
            op: LockOp::Clear { range: LockRange::WHOLE },
        });
        let batch =
            || Batch { pool, cont, at: Epoch::ZERO, checks: vec![], ops: vec![], sums: Sums::NONE };
        let tx = TxId { client: ClientId(1), seq: 2 };
        let member = crate::member::MemberRequest {
            pool,
            map_version: 1,
            member: types::TargetId(1),
            newest: Epoch::ZERO,
            ask: crate::member::MemberAsk::Notes,
        };
        let orders = crate::order::Orders {
            pool,
            from: types::TargetId(1),
            map_version: 1,
            stream: 2,
            first: 3,
            settled: 0,
            orders: vec![],
        };
        let prepare = Request::Prepare { tx, coordinator: unit, batch: batch() };
        let of_encoded = Request::prepare_encoded(tx, unit, &crate::encode(&batch()));
        assert_eq!(of_encoded, crate::encode(&prepare));
        for (request, kind) in [
            (Request::Batch(batch()), RequestKind::Batch),
            (Request::Commit { tx, parts: vec![] }, RequestKind::Commit),
            (prepare, RequestKind::Prepare),
            (Request::Orders(orders), RequestKind::Orders),
            (Request::Member(member), RequestKind::Member),
            (lock, RequestKind::Lock),
            (Request::PoolShardStat { pool }, RequestKind::Other),
        ] {
            assert_eq!(RequestKind::of(&crate::encode(&request)), kind);
        }
    }
}
