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

use crate::index::lost::LostPlaceDf;
use crate::scrub::ScrubProgress;
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
mod tests {
    use super::*;
    use crate::index::lost::LostWhatDf;

    /// Every kind of record and change, with its bytes.
    fn golden() -> Vec<(RecordDf<'static>, Vec<u8>)> {
        let (cont, unit) =
            (ContId(7), Unit { object: types::Oid { hi: 1, lo: 2 }, group: 3, cell: 4 });
        let tx = TxId { client: ClientId(3), seq: 4 };
        let origin = OriginDf { tx, of: None, reply: b"r" };
        let of_group = OriginDf { of: Some(unit), ..origin };
        let (dkey, akey): (&[u8], &[u8]) = (b"d", b"a");
        let runs = vec![RunDf { at: 8, bytes: 9 }];
        let records = |place| ChangeDf::Records {
            unit,
            dkey,
            akey,
            record_bytes: 1,
            index: 5,
            count: 2,
            place,
        };
        let one = |change: ChangeDf<'static>| RecordDf::Apply {
            cont,
            epoch: Epoch(6),
            changes: vec![change],
            origin: None,
            orphans: vec![],
            sums: vec![],
        };
        let framed = |body: &[u8]| [&[7, 6, 1], body, &[0, 0, 0]].concat();
        let block_sums = BlockSumsDf { first: 3, kind: CsumKind::Crc32c, sums: &[1, 2, 3, 4] };
        let mut list = vec![
            (
                RecordDf::CreateCont {
                    cont,
                    sums: SumPolicy { kind: CsumKind::Xxh3, verify: true },
                },
                vec![0, 7, 3, 1],
            ),
            (RecordDf::DestroyCont { cont }, vec![1, 7]),
            (
                RecordDf::Apply {
                    cont,
                    epoch: Epoch(6),
                    changes: vec![],
                    origin: Some(origin),
                    orphans: vec![OrphanChange::Add(unit), OrphanChange::Remove(unit)],
                    sums: vec![block_sums],
                },
                vec![
                    2, 7, 6, 0, 1, 3, 4, 0, 1, b'r', 2, 0, 1, 2, 3, 4, 1, 1, 2, 3, 4, 1, 3, 1, 4,
                    1, 2, 3, 4,
                ],
            ),
            (
                RecordDf::Prepare {
                    tx,
                    coordinator: unit,
                    cont,
                    wire_version: 1,
                    batch: b"b",
                    pieces: vec![PieceDf::Inline(b"i"), PieceDf::Run(runs[0])],
                    sums: vec![block_sums],
                },
                vec![
                    3, 3, 4, 1, 2, 3, 4, 7, 1, 1, b'b', 2, 0, 1, b'i', 1, 8, 9, 1, 3, 1, 4, 1, 2,
                    3, 4,
                ],
            ),
            (
                RecordDf::Decide {
                    tx,
                    outcome: TxOutcome::Committed(Epoch(6)),
                    origin: None,
                    orphans: vec![],
                },
                vec![4, 3, 4, 0, 6, 0, 0],
            ),
            (
                RecordDf::Decision { tx, epoch: Epoch(6), participants: vec![unit], origin: None },
                vec![5, 3, 4, 6, 1, 1, 2, 3, 4, 0],
            ),
            (RecordDf::ForgetDecision { tx }, vec![6, 3, 4]),
            (RecordDf::Reply { origin: of_group }, vec![7, 3, 4, 1, 1, 2, 3, 4, 1, b'r']),
            (RecordDf::Orphan { cont, unit }, vec![8, 7, 1, 2, 3, 4]),
            (RecordDf::LastEpoch { epoch: Epoch(6) }, vec![9, 6]),
            (
                RecordDf::Part(PartDf {
                    cont,
                    unit,
                    life: Epoch(9),
                    is_first: true,
                    changes: vec![(Epoch(6), ChangeDf::PunchObj { unit })],
                    touches: vec![
                        TouchDf::Akey(dkey, akey, Epoch(6)),
                        TouchDf::Dkey(dkey, Epoch(6)),
                    ],
                    epochs: (Epoch(6), Epoch(5), Epoch(4)),
                    facts: vec![FactsDf {
                        until: Epoch(5),
                        epoch: Epoch(3),
                        keys_epoch: Epoch(2),
                        bytes_used: 7,
                        dkey_count: 1,
                    }],
                    past: vec![(Epoch(3), Epoch(5), ChangeDf::PunchObj { unit })],
                }),
                vec![
                    10, 7, 1, 2, 3, 4, 9, 1, 1, 6, 4, 1, 2, 3, 4, 2, 0, 1, b'd', 1, b'a', 6, 1, 1,
                    b'd', 6, 6, 5, 4, 1, 5, 3, 2, 7, 1, 1, 3, 5, 4, 1, 2, 3, 4,
                ],
            ),
            (
                RecordDf::Versions {
                    cont,
                    versions: VersionsDf {
                        revision: 2,
                        snapshots: vec![Epoch(3), Epoch(4)],
                        held: true,
                        stage: StageDf::RollingBack(Epoch(3)),
                    },
                    unswept: true,
                },
                vec![11, 7, 2, 2, 3, 4, 1, 2, 3, 1],
            ),
            (
                RecordDf::Sweep {
                    cont,
                    unit,
                    at: SweepAtDf { life: Epoch(9), in_past: true, after: Some(b"d") },
                    count: 5,
                },
                vec![12, 7, 1, 2, 3, 4, 9, 1, 1, 1, b'd', 5],
            ),
            (
                RecordDf::RollBack {
                    cont,
                    unit,
                    to: Epoch(3),
                    epoch: Epoch(6),
                    after: None,
                    count: 5,
                },
                vec![13, 7, 1, 2, 3, 4, 3, 6, 0, 5],
            ),
            (RecordDf::ForgetOrphans { cont }, vec![14, 7]),
            (
                RecordDf::Join { cont, unit, dkey, akey, index: 5, count: 2, at: 8, copied: None },
                vec![15, 7, 1, 2, 3, 4, 1, b'd', 1, b'a', 5, 2, 8, 0],
            ),
            (
                RecordDf::SumRegion {
                    region: RegionDf {
                        kind: CsumKind::Crc32c,
                        region: 9,
                        present: vec![1, 0].into(),
                        sums: vec![5, 6].into(),
                    },
                },
                vec![16, 1, 9, 2, 1, 0, 2, 5, 6],
            ),
            (
                RecordDf::BadBlocks {
                    blocks: vec![(7, BadMark { found_ns: 8, by_scrubber: true })],
                },
                vec![17, 1, 7, 8, 1],
            ),
            (
                RecordDf::Scrub {
                    progress: ScrubProgress {
                        under_way: true,
                        next_block: 2,
                        bad_count: 3,
                        passes: 4,
                        begin_ns: 5,
                        end_ns: 6,
                        end_bad_count: 7,
                    },
                },
                vec![18, 1, 2, 3, 4, 5, 6, 7],
            ),
            (RecordDf::Opener { client: ClientId(3), holds: true }, vec![19, 3, 1]),
            (
                RecordDf::Install(InstallDf {
                    cont,
                    unit,
                    dkey,
                    epoch: Epoch(6),
                    changes: vec![(Epoch(6), ChangeDf::Single { unit, dkey, akey, value: b"v" })],
                    touches: vec![TouchDf::Akey(dkey, akey, Epoch(6))],
                    past: vec![(Epoch(3), Epoch(5), records(PlaceDf::Zero))],
                    sums: vec![block_sums],
                }),
                [
                    &[20, 7, 1, 2, 3, 4, 1, b'd', 6, 1, 6][..],
                    b"\0\x01\x02\x03\x04\x01d\x01a\x01v",
                    &[1, 0, 1, b'd', 1, b'a', 6, 1, 3, 5],
                    b"\x02\x01\x02\x03\x04\x01d\x01a\x01\x05\x02\x02",
                    &[1, 3, 1, 4, 1, 2, 3, 4],
                ]
                .concat(),
            ),
            (
                RecordDf::InstallFacts {
                    cont,
                    unit,
                    epochs: (Epoch(6), Epoch(5), Epoch(4)),
                    facts: vec![FactsDf {
                        until: Epoch(5),
                        epoch: Epoch(3),
                        keys_epoch: Epoch(2),
                        bytes_used: 7,
                        dkey_count: 1,
                    }],
                },
                vec![21, 7, 1, 2, 3, 4, 6, 5, 4, 1, 5, 3, 2, 7, 1],
            ),
            (RecordDf::HoldsCopies, vec![22]),
            (RecordDf::Lacks { since: Some(Epoch(6)) }, vec![24, 1, 6]),
            (RecordDf::Lacks { since: None }, vec![24, 0]),
            (RecordDf::MovesSingles, vec![25]),
            (
                RecordDf::Fold {
                    cont,
                    unit,
                    dkey,
                    akey,
                    stripe: Stripe { first: 5, version: Epoch(6), cell_bytes: 300 },
                    count: 9,
                },
                vec![26, 7, 1, 2, 3, 4, 1, b'd', 1, b'a', 5, 6, 0xac, 2, 9],
            ),
            (
                RecordDf::OpenerTrace {
                    client: ClientId(3),
                    process: Some(HostProcess { space: 4, pid: 5, began: 6 }),
                    awaited_s: 7,
                },
                vec![27, 3, 1, 4, 5, 6, 7],
            ),
            (
                RecordDf::GiveUp {
                    cont,
                    place: LostPlaceDf {
                        what: LostWhatDf::Bucket { prefix: 64, depth: 3 },
                        is_open: true,
                    },
                },
                vec![28, 7, 0, 64, 3, 1],
            ),
            (
                RecordDf::Lost {
                    cont,
                    place: LostPlaceDf {
                        what: LostWhatDf::Part { unit, start: b"d", end: None },
                        is_open: false,
                    },
                },
                vec![29, 7, 1, 1, 2, 3, 4, 1, b'd', 0, 0],
            ),
            (RecordDf::CloseLost, vec![30]),
            (RecordDf::Reclaim { runs: vec![(3, 5)] }, vec![31, 1, 3, 5]),
            (RecordDf::CopiesSeen { bits: 12 }, vec![32, 12]),
        ];
        let changes: Vec<(ChangeDf<'static>, &[u8])> = vec![
            (
                ChangeDf::Single { unit, dkey, akey, value: b"v" },
                b"\0\x01\x02\x03\x04\x01d\x01a\x01v",
            ),
            (
                ChangeDf::SingleRuns { unit, dkey, akey, runs },
                b"\x01\x01\x02\x03\x04\x01d\x01a\x01\x08\x09",
            ),
            (
                records(PlaceDf::Inline(b"xy")),
                b"\x02\x01\x02\x03\x04\x01d\x01a\x01\x05\x02\0\x02xy",
            ),
            (records(PlaceDf::Blocks(8)), b"\x02\x01\x02\x03\x04\x01d\x01a\x01\x05\x02\x01\x08"),
            (records(PlaceDf::Zero), b"\x02\x01\x02\x03\x04\x01d\x01a\x01\x05\x02\x02"),
            (
                records(PlaceDf::Coded(Stripe { first: 4, version: Epoch(6), cell_bytes: 3 })),
                b"\x02\x01\x02\x03\x04\x01d\x01a\x01\x05\x02\x03\x04\x06\x03",
            ),
            (
                ChangeDf::PunchRecords { unit, dkey, akey, index: 5, count: 2 },
                b"\x03\x01\x02\x03\x04\x01d\x01a\x05\x02",
            ),
            (ChangeDf::PunchObj { unit }, b"\x04\x01\x02\x03\x04"),
            (ChangeDf::PunchDkey { unit, dkey }, b"\x05\x01\x02\x03\x04\x01d"),
            (ChangeDf::PunchDkeysFrom { unit, from: 9 }, b"\x06\x01\x02\x03\x04\x09"),
            (ChangeDf::PunchAkey { unit, dkey, akey }, b"\x07\x01\x02\x03\x04\x01d\x01a"),
        ];
        for (change, bytes) in changes {
            list.push((one(change), [&[2][..], &framed(bytes)].concat()));
        }
        list
    }

    #[test]
    fn golden_bytes_of_every_record() {
        // A change here is a change of format: bump RECORD_VERSION and keep reading the old one.
        for (record, want) in golden() {
            let mut raw = Vec::new();
            encode_into(&record, &mut raw);
            assert_eq!(raw[..4], (want.len() as u32).to_le_bytes(), "{record:?}");
            assert_eq!(raw[4..], want, "{record:?}");
            if let RecordDf::Apply { cont, epoch, changes, origin, orphans, sums } = &record {
                let (cont, epoch, origin, sums) = (*cont, *epoch, *origin, sums.clone());
                let apply = ApplyDf { cont, epoch, changes, origin, orphans, sums };
                let mut of_fields = Vec::new();
                encode_apply_into(&apply, &mut of_fields);
                assert_eq!(of_fields, raw, "{record:?}");
            }
            let mut rest = &raw[..];
            assert_eq!(decode_first(&mut rest).unwrap(), record);
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn damaged_records_are_errors_or_other_records_never_panics() {
        for (_, want) in golden() {
            let mut raw = (want.len() as u32).to_le_bytes().to_vec();
            raw.extend_from_slice(&want);
            for at in 0..raw.len() {
                for flip in [1, 0x10, 0x80, 0xff] {
                    let mut damaged = raw.clone();
                    damaged[at] ^= flip;
                    // Twice: the second replay meets what the first left.
                    crate::fuzz::record(&[&damaged[..], &raw, &damaged].concat());
                }
                crate::fuzz::record(&raw[..at]);
            }
        }
    }
}
