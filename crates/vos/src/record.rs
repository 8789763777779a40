//! What a log record holds. Structs that end in `Df` are the durable form; a change of any of
//! them changes [`RECORD_VERSION`], and golden bytes catch a change that forgets to.
//!
//! A record is one atomic step of the shard. Records are made by the same walk over
//! [`ChangeDf`]s that changes the index, so replay cannot differ from what happened. Changes
//! carry the placement of data, never the data of extents. They are a form of their own and not
//! the wire's ops: the wire may change without making old logs unreadable. The one exception is
//! the batch of a prepared transaction, kept as it came together with its wire version.

use serde::{Deserialize, Serialize};
use types::{ClientId, Code, ContId, CsumKind, Epoch, Error, HostProcess, Result, Unit};
use wire::cell::Stripe;
use wire::obj::{TxId, TxOutcome};

use crate::scrub_progress::ScrubProgress;
use crate::sums::{BadMark, RegionDf, SumPolicy};

/// Version of all records. 1: milestone 1, the whole state in the log. 2: joined extents, sums of
/// blocks, versions of containers; the log begins at a checkpoint in pages. 3: the same records, a
/// stamp in each sector of the log.
pub(crate) const RECORD_VERSION: u16 = 4;

/// A run of bytes of the data area.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct RunDf {
    /// Byte offset.
    pub at: u64,
    pub bytes: u64,
}

/// Sums of blocks that are filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct BlockSumsDf<'a> {
    /// The first block.
    pub first: u64,
    pub kind: CsumKind,
    /// Block after block.
    #[serde(with = "serde_bytes", borrow)]
    pub sums: &'a [u8],
}

/// Where a page was that was given up; see `index::lost`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct LostPlaceDf<'a> {
    #[serde(borrow)]
    pub what: LostWhatDf<'a>,
    pub is_open: bool,
}

/// What it held.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum LostWhatDf<'a> {
    Bucket {
        prefix: u64,
        depth: u8,
    },
    Part {
        unit: Unit,
        #[serde(with = "serde_bytes", borrow)]
        start: &'a [u8],
        #[serde(with = "serde_bytes", borrow)]
        end: Option<&'a [u8]>,
    },
}

/// A copy that aggregation has made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct CopiedDf<'a> {
    /// Length of the run.
    pub bytes: u64,
    #[serde(borrow)]
    pub sums: Option<BlockSumsDf<'a>>,
}

/// One change of the index.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum ChangeDf<'a> {
    /// A single value kept in the index.
    Single {
        unit: Unit,
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
        #[serde(with = "serde_bytes", borrow)]
        akey: &'a [u8],
        #[serde(with = "serde_bytes", borrow)]
        value: &'a [u8],
    },
    /// A single value kept in the data area.
    SingleRuns {
        unit: Unit,
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
        #[serde(with = "serde_bytes", borrow)]
        akey: &'a [u8],
        runs: Vec<RunDf>,
    },
    /// Records of an array.
    Records {
        unit: Unit,
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
        #[serde(with = "serde_bytes", borrow)]
        akey: &'a [u8],
        record_bytes: u32,
        index: u64,
        count: u64,
        #[serde(borrow)]
        place: PlaceDf<'a>,
    },
    /// Records of an array that go away.
    PunchRecords {
        unit: Unit,
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
        #[serde(with = "serde_bytes", borrow)]
        akey: &'a [u8],
        index: u64,
        count: u64,
    },
    /// A whole object goes away.
    PunchObj { unit: Unit },
    /// A dkey goes away.
    PunchDkey {
        unit: Unit,
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
    },
    /// Integer dkeys from here upwards go away.
    PunchDkeysFrom { unit: Unit, from: u64 },
    /// An akey goes away.
    PunchAkey {
        unit: Unit,
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
        #[serde(with = "serde_bytes", borrow)]
        akey: &'a [u8],
    },
}

/// Where records of an array are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum PlaceDf<'a> {
    #[serde(borrow)]
    Inline(#[serde(with = "serde_bytes")] &'a [u8]),
    /// In the data area from this byte offset.
    Blocks(u64),
    /// They read as zero.
    Zero,
    /// In cells of other targets.
    Coded(Stripe),
}

/// A piece of a prepared transaction's bulk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum PieceDf<'a> {
    #[serde(borrow)]
    Inline(#[serde(with = "serde_bytes")] &'a [u8]),
    /// In the data area.
    Run(RunDf),
}

/// Which request a change answers, for the retry window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct OriginDf<'a> {
    pub tx: TxId,
    /// See [`crate::Origin::of`].
    pub of: Option<Unit>,
    #[serde(with = "serde_bytes", borrow)]
    pub reply: &'a [u8],
}

/// A change of the list of orphans.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OrphanChange {
    /// The object has lost its last link but is held open: punch it later.
    Add(Unit),
    /// It is punched or linked again.
    Remove(Unit),
}

/// Explicit epochs, where the last change left no other trace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum TouchDf<'a> {
    /// Of an array.
    Akey(
        #[serde(with = "serde_bytes", borrow)] &'a [u8],
        #[serde(with = "serde_bytes", borrow)] &'a [u8],
        Epoch,
    ),
    Dkey(#[serde(with = "serde_bytes", borrow)] &'a [u8], Epoch),
}

/// A record of the log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum RecordDf<'a> {
    /// A container comes to be, if it is not there.
    CreateCont { cont: ContId, sums: SumPolicy },
    /// A container and all in it goes away.
    DestroyCont { cont: ContId },
    /// Changes at one epoch.
    Apply {
        cont: ContId,
        epoch: Epoch,
        #[serde(borrow)]
        changes: Vec<ChangeDf<'a>>,
        #[serde(borrow)]
        origin: Option<OriginDf<'a>>,
        orphans: Vec<OrphanChange>,
        /// Of the runs that the changes bring; the blocks of the others have none.
        #[serde(borrow)]
        sums: Vec<BlockSumsDf<'a>>,
    },
    /// A transaction's part is held.
    Prepare {
        tx: TxId,
        coordinator: Unit,
        cont: ContId,
        wire_version: u16,
        #[serde(with = "serde_bytes", borrow)]
        batch: &'a [u8],
        #[serde(borrow)]
        pieces: Vec<PieceDf<'a>>,
        /// Of the runs among the pieces.
        #[serde(borrow)]
        sums: Vec<BlockSumsDf<'a>>,
    },
    /// A held part takes effect or is dropped.
    Decide {
        tx: TxId,
        outcome: TxOutcome,
        #[serde(borrow)]
        origin: Option<OriginDf<'a>>,
        orphans: Vec<OrphanChange>,
    },
    /// A coordinator's commit point, and the client's request that it answers.
    Decision {
        tx: TxId,
        epoch: Epoch,
        participants: Vec<Unit>,
        #[serde(borrow)]
        origin: Option<OriginDf<'a>>,
    },
    /// All participants know it.
    ForgetDecision { tx: TxId },
    /// In tables: a reply of the retry window.
    Reply {
        #[serde(borrow)]
        origin: OriginDf<'a>,
    },
    /// In tables: an orphan.
    Orphan { cont: ContId, unit: Unit },
    /// In tables: the greatest epoch of the shard.
    LastEpoch { epoch: Epoch },
    /// In pages only: part of an object. Changes in it name the nil object.
    Part(#[serde(borrow)] PartDf<'a>),
    /// Which versions of a container are kept. `unswept`: what they do not see may still be there.
    Versions { cont: ContId, versions: VersionsDf, unswept: bool },
    /// What nobody sees of an object goes away: `count` dkeys from `at` on are looked at.
    Sweep {
        cont: ContId,
        unit: Unit,
        #[serde(borrow)]
        at: SweepAtDf<'a>,
        count: u32,
    },
    /// An object becomes what the snapshot `to` sees: `count` dkeys after `after` are looked at.
    RollBack {
        cont: ContId,
        unit: Unit,
        to: Epoch,
        epoch: Epoch,
        #[serde(with = "serde_bytes", borrow)]
        after: Option<&'a [u8]>,
        count: u32,
    },
    /// A container has no orphans any more.
    ForgetOrphans { cont: ContId },
    /// Aggregation: the extents of an array that cover a range become one, with its bytes at this
    /// byte of the data area.
    Join {
        cont: ContId,
        unit: Unit,
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
        #[serde(with = "serde_bytes", borrow)]
        akey: &'a [u8],
        index: u64,
        count: u64,
        at: u64,
        /// `None`: the bytes were there already.
        #[serde(borrow)]
        copied: Option<CopiedDf<'a>>,
    },
    /// In tables: the blocks of a region have exactly these sums.
    SumRegion {
        #[serde(borrow)]
        region: RegionDf<'a>,
    },
    /// Blocks are found damaged.
    BadBlocks { blocks: Vec<(u64, BadMark)> },
    /// Where the scrubber is.
    Scrub { progress: ScrubProgress },
    /// A client holds objects open here, or does so no more.
    Opener { client: ClientId, holds: bool },
    /// A dkey becomes what it is at another member of its group.
    Install(#[serde(borrow)] InstallDf<'a>),
    /// What is known of a unit as a whole becomes what it is at another member.
    InstallFacts {
        cont: ContId,
        unit: Unit,
        /// As in [`PartDf`].
        epochs: (Epoch, Epoch, Epoch),
        /// Ascending.
        facts: Vec<FactsDf>,
    },
    /// From here on the shard holds units of groups of several members.
    HoldsCopies,
    /// A reply is no part of the retry window any more.
    ForgetReply { tx: TxId },
    /// From an epoch on changes come while others are missing; `None`: nothing is missing.
    Lacks { since: Option<Epoch> },
    /// From here on groups of one member may have another one than was drawn for them.
    MovesSingles,
    /// The records of a stripe give way to its name.
    Fold {
        cont: ContId,
        unit: Unit,
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
        #[serde(with = "serde_bytes", borrow)]
        akey: &'a [u8],
        stripe: Stripe,
        /// Records of the stripe.
        count: u64,
    },
    /// More of a client that is noted as [`RecordDf::Opener`].
    OpenerTrace {
        client: ClientId,
        /// Its process, if it is on this host.
        process: Option<HostProcess>,
        /// How long it was waited for in vain after restarts, seconds.
        awaited_s: u32,
    },
    /// A page of a container could not be read and is empty from here on.
    GiveUp {
        cont: ContId,
        #[serde(borrow)]
        place: LostPlaceDf<'a>,
    },
    /// In tables: where such a page was.
    Lost {
        cont: ContId,
        #[serde(borrow)]
        place: LostPlaceDf<'a>,
    },
    /// What others have of such pages is here now.
    CloseLost,
    /// Blocks of the data area that nothing referred to any more, one reference each: first block and count.
    Reclaim { runs: Vec<(u64, u64)> },
    /// In tables: numbers of copies that groups here have, or had once, a bit each. Tables without it are of earlier builds.
    CopiesSeen { bits: u32 },
    /// What follows was done by a pool map of this version, or newer ones; [`wire::versions::ALL_IS_HERE`]: nothing follows; zero: nothing is known.
    FollowsMap { version: u32 },
}

/// All of a dkey; what was there goes away, and so does its past.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct InstallDf<'a> {
    pub cont: ContId,
    pub unit: Unit,
    #[serde(with = "serde_bytes", borrow)]
    pub dkey: &'a [u8],
    /// Its last change; zero: it is not there now.
    pub epoch: Epoch,
    /// Values that are there now, and when they were made; of this dkey all.
    #[serde(borrow)]
    pub changes: Vec<(Epoch, ChangeDf<'a>)>,
    /// Last changes of its arrays.
    #[serde(borrow)]
    pub touches: Vec<TouchDf<'a>>,
    /// Values that were removed: made, removed, and what.
    #[serde(borrow)]
    pub past: Vec<(Epoch, Epoch, ChangeDf<'a>)>,
    /// Of the runs that the values bring.
    #[serde(borrow)]
    pub sums: Vec<BlockSumsDf<'a>>,
}

impl<'a> InstallDf<'a> {
    /// Its values, those of the past included.
    pub(crate) fn values(&self) -> impl Iterator<Item = &ChangeDf<'a>> {
        let past = self.past.iter().map(|(.., change)| change);
        self.changes.iter().map(|(_, change)| change).chain(past)
    }

    /// The newest epoch in it.
    pub(crate) fn newest(&self) -> Epoch {
        let past = self.past.iter().map(|(_, destroyed, _)| *destroyed);
        past.fold(self.epoch, Epoch::max)
    }
}

/// Part of an object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct PartDf<'a> {
    pub cont: ContId,
    pub unit: Unit,
    /// The epoch of the punch that ended the life of the object that this is a part of;
    /// [`Epoch::MAX`]: it lives.
    pub life: Epoch,
    /// The first part of the object.
    pub is_first: bool,
    #[serde(borrow)]
    pub changes: Vec<(Epoch, ChangeDf<'a>)>,
    #[serde(borrow)]
    pub touches: Vec<TouchDf<'a>>,
    /// Epochs of the object's last change, of that of its set of dkeys, and of its first.
    pub epochs: (Epoch, Epoch, Epoch),
    /// Numbers of earlier times; with the first part of an object.
    pub facts: Vec<FactsDf>,
    /// Values that were removed: made, removed, and what.
    #[serde(borrow)]
    pub past: Vec<(Epoch, Epoch, ChangeDf<'a>)>,
}

/// Numbers about an object up to an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct FactsDf {
    pub until: Epoch,
    pub epoch: Epoch,
    pub keys_epoch: Epoch,
    pub bytes_used: u64,
    pub dkey_count: u64,
    pub counted_links: u64,
}

/// Which versions of a container are kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct VersionsDf {
    pub revision: u64,
    /// Ascending.
    pub snapshots: Vec<Epoch>,
    pub held: bool,
    pub stage: StageDf,
}

/// Whether a container may be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum StageDf {
    /// Yes.
    Open,
    /// No: it is about to be rolled back.
    Frozen,
    /// No: it is being rolled back to this snapshot.
    RollingBack(Epoch),
}

/// Where a sweep of an object goes on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SweepAtDf<'a> {
    pub life: Epoch,
    pub in_past: bool,
    #[serde(with = "serde_bytes", borrow)]
    pub after: Option<&'a [u8]>,
}

/// Appends the durable form of a record, with its length in front.
pub(crate) fn encode_into(record: &RecordDf<'_>, out: &mut Vec<u8>) {
    frame(out, |out| wire::encode_into(record, out));
}

/// The fields of a [`RecordDf::Apply`], which is written most, where they are.
#[derive(Serialize)]
pub(crate) struct ApplyDf<'r> {
    pub cont: ContId,
    pub epoch: Epoch,
    pub changes: &'r [ChangeDf<'r>],
    pub origin: Option<OriginDf<'r>>,
    pub orphans: &'r [OrphanChange],
    pub sums: Vec<BlockSumsDf<'r>>,
}

/// What the encoding of a [`RecordDf::Apply`] begins with; its fields follow.
const APPLY_TAG: u8 = 2;

/// As [`encode_into`], without gathering a record first.
pub(crate) fn encode_apply_into(apply: &ApplyDf<'_>, out: &mut Vec<u8>) {
    frame(out, |out| {
        out.push(APPLY_TAG);
        wire::encode_into(apply, out);
    });
}

fn frame(out: &mut Vec<u8>, encode: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    encode(out);
    let bytes = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&bytes.to_le_bytes());
}

/// Takes the first record off `bytes`. `Csum` when there is none that makes sense; the bytes
/// have passed their checksum before, so this means a damaged or foreign log.
pub(crate) fn decode_first<'a>(bytes: &mut &'a [u8]) -> Result<RecordDf<'a>> {
    let bad = |why: &str| Error::new(Code::Csum, format!("log record: {why}"));
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(|| bad("cut short"))?;
    let length = u32::from_le_bytes(*length) as usize;
    let body = rest.get(..length).ok_or_else(|| bad("length beyond the batch"))?;
    *bytes = &rest[length..];
    wire::decode(body).map_err(|error| bad(&error.to_string()))
}

#[cfg(test)]
#[path = "record_test.rs"]
mod tests;
