//! What the catalog stores: durable structs, told from the messages of `wire` by their `Df`.
//!
//! They are JSON, so that an administrator can read a catalog and later versions can add fields.
//! Each carries the version of its layout; one from the future is refused, not guessed at.
//! Invariant: a change of a struct bumps [`RECORD_VERSION`]; `tests/control/golden.rs` has their bytes.
//!
//! They are not the structs of `wire`: a change of a message must not change what is on disk.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use types::{
    Code, ContId, ContLayout, ContProps, CsumKind, Durability, Epoch, Error, ObjClass,
    PlacementRule, PoolId, Rank, Result, TargetId,
};
use uuid::Uuid;
use wire::cache::DataCache;
use wire::control::{Member, MemberState, TargetAim};
use wire::map::{
    DownReason, EngineInfo, LEFT_UNSURE, OutTarget, PassedSpare, PlacementSet, PoolMap, TargetInfo,
    TargetState,
};
use wire::scrub::{HealShare, Scrub, ScrubRate};

/// Version of all durable structs. 1: milestone 1. 2: `server_verify` of containers, `scrub` of
/// pools; both have defaults where they are missing.
pub const RECORD_VERSION: u32 = 2;

/// The system: its identity and the next free numbers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SystemDf {
    /// Layout of this struct.
    pub version: u32,
    pub uuid: Uuid,
    pub pool_next: u32,
    pub target_next: u32,
    pub rank_next: u32,
    /// Number of the newest change of an engine's state.
    #[serde(default)]
    pub members_version: u32,
}

/// An engine that has joined the system.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EngineDf {
    /// Layout of this struct.
    pub version: u32,
    pub rank: Rank,
    pub tcp: String,
    pub unix: String,
    /// Identity of the host (boot id).
    pub host: String,
    /// Fault domains from the root down.
    pub domain: Vec<String>,
    /// Its targets, in its own order.
    pub targets: Vec<TargetId>,
    /// Where it stands.
    #[serde(default)]
    pub member: MemberDf,
}

/// Where an engine stands in the system, since when, and why.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MemberDf {
    pub state: MemberState,
    /// For people; may be empty.
    pub why: String,
    /// Number of the change ([`SystemDf::members_version`]).
    pub since: u32,
    /// When that was, nanoseconds since 1970.
    pub changed_ns: u64,
    /// Others are to get all that it holds, and new pools leave it out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drains: bool,
}

/// Where a pool or container is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StageDf {
    /// Targets are getting the order to make it; undone if that is cut off.
    Creating,
    /// In use.
    Ready,
    /// Targets are getting the order to remove it; done again if that is cut off.
    Destroying,
}

/// A target in a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TargetDf {
    pub id: TargetId,
    /// The engine that owns it.
    pub rank: Rank,
    /// State in the pool.
    pub state: TargetState,
    /// Version of the map in which it got this state.
    #[serde(default)]
    pub since: u32,
    /// Why it is down.
    #[serde(default)]
    pub reason: Option<DownReason>,
    /// Version of the map with which it ceased to be whole; zero while it is.
    #[serde(default)]
    pub left: u32,
    /// For which version `left` stands, if it had to make room for another one: see the module `lost_ends`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<Moved>,
    /// Which making of the pool's part it is to hold; zero: not known yet.
    #[serde(default)]
    pub incarnation: u64,
    /// Version of the map under which it has all of the groups that it is to join; zero: not since others joined.
    #[serde(default)]
    pub joined: u32,
    /// What an administrator wants of it.
    #[serde(default)]
    pub aim: TargetAim,
}

/// A number in the place of another one, as long as nothing else is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Moved {
    pub from: u32,
    pub to: u32,
}

/// [`TargetDf::left`] of a target that is empty where others have something: everybody has more.
pub const LEFT_EMPTY: u32 = 1;

impl TargetDf {
    /// One of a new pool.
    pub fn new(id: TargetId, rank: Rank) -> TargetDf {
        let state = TargetState::Up;
        let (since, reason, left, incarnation) = (0, None, 0, 0);
        let aim = TargetAim::Serve;
        let (joined, moved) = (0, None);
        TargetDf { id, rank, state, since, reason, left, moved, incarnation, joined, aim }
    }

    /// The form for maps.
    pub fn info(&self) -> TargetInfo {
        let TargetDf { id, rank, state, since, reason, left, incarnation, .. } = *self;
        TargetInfo { id, rank, state, since, reason, left, incarnation }
    }

    /// Takes a state with the map of this version; true if that is news. Who goes while nobody knows whether it lacks anything has done all that the others did up
    /// to now, and does no more of it.
    pub fn turn(&mut self, state: TargetState, reason: Option<DownReason>, version: u32) -> bool {
        if (self.state, self.reason) == (state, reason) {
            return false;
        }
        (self.state, self.reason, self.since) = (state, reason, version);
        self.left = match (state, self.left) {
            (TargetState::Up | TargetState::Drain | TargetState::New, _) => 0,
            (TargetState::Down | TargetState::DownOut, 0) => version,
            (TargetState::Down | TargetState::DownOut, LEFT_UNSURE)
                if reason != Some(DownReason::Behind) =>
            {
                version
            }
            (TargetState::Down | TargetState::DownOut, left) => left,
        };
        true
    }
}

/// What objects of one placement epoch are placed over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlacementDf {
    pub epoch: u8,
    pub weights: Vec<(TargetId, u32)>,
}

/// A target that others stand in for: see [`OutTarget`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutDf {
    pub target: TargetId,
    pub round: u32,
    pub epoch: u8,
    #[serde(default)]
    pub is_drained: bool,
}

impl OutDf {
    /// The form for maps.
    fn out(&self) -> OutTarget {
        let OutDf { target, round, epoch, is_drained } = *self;
        OutTarget { target, round, epoch, is_drained }
    }
}

/// A target that had no room to stand in, or is drained: see [`PassedSpare`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct PassedDf {
    pub round: u32,
    pub target: TargetId,
}

impl PassedDf {
    /// The form for maps.
    fn passed(&self) -> PassedSpare {
        let PassedDf { round, target } = *self;
        PassedSpare { round, target }
    }
}

/// A pool: its names, sizes and targets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolDf {
    /// Layout of this struct.
    pub version: u32,
    pub id: PoolId,
    pub uuid: Uuid,
    /// Label; empty once a failed creation has given it up.
    pub label: String,
    pub stage: StageDf,
    /// When updates are acknowledged.
    pub durability: Durability,
    /// What its targets are weighed by when a placement epoch begins.
    #[serde(default)]
    pub placement: PlacementRule,
    /// Index and log tier of each target, bytes.
    pub shard_scm_bytes: u64,
    /// Data tier of each target, bytes.
    pub shard_nvme_bytes: u64,
    pub cont_next: u64,
    /// Version of the pool map.
    pub map_version: u32,
    /// Targets, by id.
    pub targets: Vec<TargetDf>,
    /// Placement epochs, oldest first.
    pub placements: Vec<PlacementDf>,
    /// Targets that others stand in for, ascending by round and id.
    #[serde(default)]
    pub outs: Vec<OutDf>,
    /// It stays as it is until somebody says otherwise.
    #[serde(default)]
    pub is_rebuild_stopped: bool,
    /// What that is to become; `None` when nothing moves.
    #[serde(default)]
    pub next: Option<Vec<OutDf>>,
    /// Who had no room to stand in, of `outs` and of `next`; ascending.
    #[serde(default)]
    pub passed: Vec<PassedDf>,
    #[serde(default)]
    pub next_passed: Vec<PassedDf>,
    /// Those of `outs` that some had no room to stand in for are to be tried once more.
    #[serde(default)]
    pub tries_spares_again: bool,
    /// See [`PoolMap::balanced`]: as it is, as it becomes with `next`, as it is wanted.
    #[serde(default)]
    pub balanced: u8,
    #[serde(default)]
    pub next_balanced: u8,
    #[serde(default)]
    pub balance_wanted: u8,
    /// Whether shares and data follow by themselves.
    #[serde(default)]
    pub balance: BalanceDf,
    /// Settings of the scrubber.
    #[serde(default)]
    pub scrub: ScrubDf,
    /// Settings of the data caches of engines.
    #[serde(default)]
    pub cache: CacheDf,
}

/// What engines keep of a pool's data in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CacheDf {
    /// Grows with every change; 0: never changed.
    pub revision: u64,
    /// Most that an engine keeps, bytes; 0: nothing.
    pub bytes_max: u64,
    /// Most that it keeps of one object, bytes; 0: nothing.
    pub object_bytes_max: u64,
}

impl Default for CacheDf {
    fn default() -> CacheDf {
        let DataCache { version, bytes_max, object_bytes_max } = DataCache::default();
        CacheDf { revision: version, bytes_max, object_bytes_max }
    }
}

impl CacheDf {
    /// The form that targets get.
    pub fn settings(&self) -> DataCache {
        let CacheDf { revision, bytes_max, object_bytes_max } = *self;
        DataCache { version: revision, bytes_max, object_bytes_max }
    }
}

/// How a pool's shares follow what its targets are worth, and its data the shares.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BalanceDf {
    /// By itself; else only when an administrator says so.
    pub is_auto: bool,
    /// A share has to change by this much for a placement epoch that begins by itself, percent.
    pub threshold_percent: u32,
    /// The newest placement epoch has to be so old, seconds.
    pub interval_s: u32,
    /// A target whose devices have been slow for so long is drained, seconds; 0: never.
    #[serde(default)]
    pub drain_slow_after_s: u32,
    /// An administrator has stopped it: no balance begins, by itself or for what was added, until somebody begins one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_stopped: bool,
}

impl Default for BalanceDf {
    fn default() -> BalanceDf {
        BalanceDf {
            is_auto: false,
            threshold_percent: 15,
            interval_s: 600,
            drain_slow_after_s: 0,
            is_stopped: false,
        }
    }
}

/// Settings of what the targets of a pool do in the background.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScrubDf {
    /// Grows with every change; 0: never changed.
    pub revision: u64,
    /// Bytes per second; 0: off.
    pub rate: u64,
    /// See [`HealShare`], percent.
    #[serde(default = "heal_share")]
    pub heal_share: u8,
}

fn heal_share() -> u8 {
    HealShare::default().0
}

impl Default for ScrubDf {
    fn default() -> ScrubDf {
        ScrubDf { revision: 0, rate: ScrubRate::default().0, heal_share: heal_share() }
    }
}

impl ScrubDf {
    /// The form that targets get.
    pub fn settings(&self) -> Scrub {
        let heal_share = HealShare(self.heal_share);
        Scrub { version: self.revision, rate: ScrubRate(self.rate), heal_share }
    }
}

/// Admission of bulk transfers to the targets of a pool, in a record of its own: pools that never
/// set it have none.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AdmissionDf {
    /// Layout of this struct.
    pub version: u32,
    /// Grows with every change.
    pub revision: u64,
    /// `off`, `auto` or a number.
    pub max_writers: String,
    /// `off`, `auto` or a number.
    pub max_readers: String,
    /// `JOB:WEIGHT,…`.
    pub weights: String,
}

/// Properties of a container.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ContPropsDf {
    /// What the objects mean.
    pub layout: ContLayout,
    /// Class of objects whose creator names none.
    pub oclass: ObjClass,
    pub dir_oclass: ObjClass,
    pub file_oclass: ObjClass,
    /// Chunk of files, bytes.
    pub chunk_bytes: u64,
    /// Least redundancy factor.
    pub rd_fac: u8,
    pub csum: CsumKind,
    /// Compare data with it when they arrive.
    #[serde(default)]
    pub server_verify: bool,
    /// Cell of stripes, bytes.
    #[serde(default = "cell_bytes_default")]
    pub cell_bytes: u32,
}

fn cell_bytes_default() -> u32 {
    types::props::CELL_BYTES_DEFAULT
}

/// A container: its names, stage and properties.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ContDf {
    /// Layout of this struct.
    pub version: u32,
    pub id: ContId,
    pub uuid: Uuid,
    /// Label; may be empty.
    pub label: String,
    pub stage: StageDf,
    pub props: ContPropsDf,
    /// Creation time, nanoseconds since 1970.
    pub created_ns: u64,
    /// The pool's newest placement epoch at that time.
    #[serde(default)]
    pub placement_epoch: u8,
}

/// The counter of a container's object numbers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OidsDf {
    /// Layout of this struct.
    pub version: u32,
    /// Next free number.
    pub next: u64,
}

/// When a container was last used, in a record of its own: one that nobody has opened has none.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TimesDf {
    /// Layout of this struct.
    pub version: u32,
    /// The last open, nanoseconds since 1970; 0: never.
    pub opened_ns: u64,
    /// The last change of the container itself, or close of a handle, nanoseconds since 1970.
    pub changed_ns: u64,
}

/// The snapshots of a container, in a record of their own: one that never had any has none.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SnapsDf {
    /// Layout of this struct.
    pub version: u32,
    /// Grows with every change; targets ignore orders of an older one.
    pub revision: u64,
    /// By epoch.
    pub snapshots: Vec<SnapDf>,
    /// One is being made: targets keep everything. Undone if that is cut off.
    pub making: bool,
    /// A rollback under way; gone on with if it is cut off.
    pub rollback: Option<RollbackDf>,
}

/// One snapshot of a container.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SnapDf {
    /// The moment it shows.
    pub epoch: Epoch,
    /// May be empty.
    pub name: String,
    /// When it was made, nanoseconds since 1970.
    pub created_ns: u64,
}

/// A rollback under way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RollbackDf {
    /// The snapshot it goes back to.
    pub to: Epoch,
    /// How far it is.
    pub stage: RollbackStageDf,
    /// When all becomes what it was, newer than all that any target has; known once all are frozen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
}

/// How far a rollback is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RollbackStageDf {
    /// Targets are getting the order to change nothing any more.
    Freezing,
    /// Targets make the present what the snapshot shows.
    Rolling,
}

/// Every durable struct says which layout it has.
#[derive(Deserialize)]
struct VersionOnly {
    version: u32,
}

/// The stored form of a durable struct.
pub fn encode<T: Serialize>(record: &T) -> Vec<u8> {
    serde_json::to_vec(record).expect("durable structs have text keys only")
}

/// Reads a durable struct; `what` names it in errors.
///
/// `Version` when it is of a newer layout, `Io` when it cannot be understood.
pub fn decode<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T> {
    let corrupt = |error: serde_json::Error| {
        Error::new(Code::Io, format!("catalog entry '{what}' is corrupt: {error}"))
    };
    let head: VersionOnly = serde_json::from_slice(bytes).map_err(corrupt)?;
    if head.version > RECORD_VERSION {
        return Err(Error::new(
            Code::Version,
            format!(
                "catalog entry '{what}' has layout {}, this program knows up to {RECORD_VERSION}: \
                 use the version that wrote it or a newer one",
                head.version
            ),
        ));
    }
    serde_json::from_slice(bytes).map_err(corrupt)
}

impl EngineDf {
    /// How others reach it.
    pub fn info(&self) -> EngineInfo {
        EngineInfo {
            rank: self.rank,
            tcp: self.tcp.clone(),
            unix: self.unix.clone(),
            host: self.host.clone(),
            domain: self.domain.clone(),
        }
    }

    /// Its state, for those who ask.
    pub fn member(&self) -> Member {
        let MemberDf { state, why, since, changed_ns, drains } = self.member.clone();
        Member { rank: self.rank, state, why, since, changed_ns, drains }
    }

    /// Takes over addresses and domain; true if anything changed.
    pub fn update(&mut self, info: &EngineInfo) -> bool {
        let before = self.info();
        self.tcp = info.tcp.clone();
        self.unix = info.unix.clone();
        self.host = info.host.clone();
        self.domain = info.domain.clone();
        before != self.info()
    }
}

impl PoolDf {
    /// The pool map, given all engines by rank.
    pub fn map(&self, engines: &[EngineDf]) -> PoolMap {
        let holds = |rank: Rank| self.targets.iter().any(|target| target.rank == rank);
        PoolMap {
            pool: self.id,
            version: self.map_version,
            engines: engines.iter().filter(|e| holds(e.rank)).map(EngineDf::info).collect(),
            targets: self.targets.iter().map(TargetDf::info).collect(),
            placements: self
                .placements
                .iter()
                .map(|set| PlacementSet { epoch: set.epoch, weights: set.weights.clone() })
                .collect(),
            outs: self.outs.iter().map(OutDf::out).collect(),
            next: self.next.as_ref().map(|next| next.iter().map(OutDf::out).collect()),
            balanced: self.balanced,
            next_balanced: if self.next.is_some() { self.next_balanced } else { self.balanced },
            passed: self.passed.iter().map(PassedDf::passed).collect(),
            next_passed: match self.next.is_some() {
                true => self.next_passed.iter().map(PassedDf::passed).collect(),
                false => Vec::new(),
            },
        }
    }

    /// How to call it in messages to people.
    pub fn name(&self) -> String {
        if self.label.is_empty() { self.uuid.to_string() } else { self.label.clone() }
    }
}

impl ContDf {
    /// How to call it in messages to people.
    pub fn name(&self) -> String {
        if self.label.is_empty() { self.uuid.to_string() } else { self.label.clone() }
    }
}

impl From<&ContProps> for ContPropsDf {
    fn from(props: &ContProps) -> ContPropsDf {
        ContPropsDf {
            layout: props.layout,
            oclass: props.oclass,
            dir_oclass: props.dir_oclass,
            file_oclass: props.file_oclass,
            chunk_bytes: props.chunk_bytes,
            rd_fac: props.rd_fac,
            csum: props.csum,
            server_verify: props.server_verify,
            cell_bytes: props.cell_bytes,
        }
    }
}

impl From<&ContPropsDf> for ContProps {
    fn from(props: &ContPropsDf) -> ContProps {
        ContProps {
            layout: props.layout,
            oclass: props.oclass,
            dir_oclass: props.dir_oclass,
            file_oclass: props.file_oclass,
            chunk_bytes: props.chunk_bytes,
            rd_fac: props.rd_fac,
            csum: props.csum,
            server_verify: props.server_verify,
            cell_bytes: props.cell_bytes,
        }
    }
}
