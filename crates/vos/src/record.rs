//! What a log record holds. Structs that end in `Df` are the durable form; a change of any of
//! them changes [`RECORD_VERSION`], and golden bytes catch a change that forgets to.
//!
//! A record is one atomic step of the shard. Records are made by the same walk over
//! [`ChangeDf`]s that changes the index, so replay cannot differ from what happened. Changes
//! carry the placement of data, never the data of extents. They are a form of their own and not
//! the wire's ops: the wire may change without making old logs unreadable. The one exception is
//! the batch of a prepared transaction, kept as it came together with its wire version.

use serde::{Deserialize, Serialize};
use types::{Code, ContId, Epoch, Error, Oid, Result, TargetId};
use wire::obj::{TxId, TxOutcome};

/// Version of all records. 1: first release.
pub(crate) const RECORD_VERSION: u16 = 1;

/// A run of bytes of the data area.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct RunDf {
    /// Byte offset.
    pub at: u64,
    /// Length, bytes.
    pub bytes: u64,
}

/// One change of the index.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum ChangeDf<'a> {
    /// A single value kept in the index.
    Single {
        oid: Oid,
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
        #[serde(with = "serde_bytes", borrow)]
        akey: &'a [u8],
        #[serde(with = "serde_bytes", borrow)]
        value: &'a [u8],
    },
    /// A single value kept in the data area.
    SingleRuns {
        oid: Oid,
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
        #[serde(with = "serde_bytes", borrow)]
        akey: &'a [u8],
        runs: Vec<RunDf>,
    },
    /// Records of an array.
    Records {
        oid: Oid,
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
        oid: Oid,
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
        #[serde(with = "serde_bytes", borrow)]
        akey: &'a [u8],
        index: u64,
        count: u64,
    },
    /// A whole object goes away.
    PunchObj { oid: Oid },
    /// A dkey goes away.
    PunchDkey {
        oid: Oid,
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
    },
    /// Integer dkeys from here upwards go away.
    PunchDkeysFrom { oid: Oid, from: u64 },
    /// An akey goes away.
    PunchAkey {
        oid: Oid,
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
        #[serde(with = "serde_bytes", borrow)]
        akey: &'a [u8],
    },
}

/// Where records of an array are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum PlaceDf<'a> {
    /// Here.
    #[serde(borrow)]
    Inline(#[serde(with = "serde_bytes")] &'a [u8]),
    /// In the data area from this byte offset.
    Blocks(u64),
    /// They read as zero.
    Zero,
}

/// A piece of a prepared transaction's bulk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum PieceDf<'a> {
    /// Here.
    #[serde(borrow)]
    Inline(#[serde(with = "serde_bytes")] &'a [u8]),
    /// In the data area.
    Run(RunDf),
}

/// Which request a change answers, for the retry window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct OriginDf<'a> {
    pub tx: TxId,
    #[serde(with = "serde_bytes", borrow)]
    pub reply: &'a [u8],
}

/// A change of the list of orphans.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OrphanChange {
    /// The object has lost its last link but is held open: punch it later.
    Add(Oid),
    /// It is punched or linked again.
    Remove(Oid),
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
    /// Of a dkey.
    Dkey(#[serde(with = "serde_bytes", borrow)] &'a [u8], Epoch),
}

/// A record of the log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum RecordDf<'a> {
    /// A container comes to be, if it is not there.
    CreateCont { cont: ContId },
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
    },
    /// A transaction's part is held.
    Prepare {
        tx: TxId,
        coordinator: TargetId,
        cont: ContId,
        wire_version: u16,
        #[serde(with = "serde_bytes", borrow)]
        batch: &'a [u8],
        #[serde(borrow)]
        pieces: Vec<PieceDf<'a>>,
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
        participants: Vec<TargetId>,
        #[serde(borrow)]
        origin: Option<OriginDf<'a>>,
    },
    /// All participants know it.
    ForgetDecision { tx: TxId },
    /// Compaction: a reply of the retry window.
    Reply {
        #[serde(borrow)]
        origin: OriginDf<'a>,
    },
    /// Compaction: an orphan.
    Orphan { cont: ContId, oid: Oid },
    /// Compaction: the greatest epoch of the shard.
    LastEpoch { epoch: Epoch },
    /// Compaction: all dkeys of an object after the position `from` (empty: from the start) up to
    /// and including `to` (empty: to the end) are exactly these. With the whole log before it, it
    /// changes nothing; without, it makes the state.
    Snapshot {
        cont: ContId,
        oid: Oid,
        #[serde(with = "serde_bytes", borrow)]
        from: &'a [u8],
        #[serde(with = "serde_bytes", borrow)]
        to: &'a [u8],
        #[serde(borrow)]
        changes: Vec<(Epoch, ChangeDf<'a>)>,
        #[serde(borrow)]
        touches: Vec<TouchDf<'a>>,
        /// Epoch of the object's last change and of that of its set of dkeys.
        epochs: (Epoch, Epoch),
    },
}

/// Appends the durable form of a record, with its length in front.
pub(crate) fn encode_into(record: &RecordDf<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    wire::encode_into(record, out);
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
