//! The control service: systems, pools, containers. Any engine answers; engines that do not
//! hold the catalog pass the request on to the one that does.

use crate::event::Events;
use crate::job::TargetJobs;
use crate::map::PoolMap;
use crate::measure::{MeasureAsk, Standing};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use types::{ContId, ContProps, Durability, Epoch, PlacementRule, PoolId, TargetId};
use uuid::Uuid;

/// What an engine says of itself when it joins.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JoinInfo {
    /// Identity kept in the engine's directory; the same engine gets the same rank again.
    pub engine: Uuid,
    /// How to reach it; its `rank` is not used.
    pub info: crate::map::EngineInfo,
    /// Number of targets; may grow, never shrinks.
    pub target_count: u32,
    /// Which start of it this is; random.
    pub start: u64,
    /// The system that it is in, as it knows; `None` when it was in none.
    pub system: Option<Uuid>,
}

/// Which pool or container is meant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Name {
    Label(String),
    Uuid(Uuid),
}

impl Name {
    /// A UUID if the text is one, else a label.
    pub fn parse(text: &str) -> Name {
        Uuid::try_parse(text).map_or_else(|_| Name::Label(text.to_string()), Name::Uuid)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Name::Label(label) => f.write_str(label),
            Name::Uuid(uuid) => uuid.fmt(f),
        }
    }
}

/// How a handle is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OpenMode {
    ReadOnly,
    ReadWrite,
    /// Reads and writes, and nobody else has a handle.
    Exclusive,
}

/// Whose handles are closed so that another can be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Evict {
    #[default]
    Nobody,
    /// Those that the same user has on the container.
    User,
    /// All on the container.
    All,
}

/// How a container is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ContAsk {
    pub mode: OpenMode,
    /// A handle that is closed no longer counts and excludes nobody; who goes on with it is not
    /// stopped.
    pub evict: Evict,
    /// The caller's user id.
    pub user: u32,
    /// A handle for reading is left out of the container's times.
    pub leaves_times: bool,
}

/// Whose properties or attributes are meant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Subject {
    Pool(Name),
    /// A container, after its pool.
    Cont(Name, Name),
    /// The system; it has attributes only.
    System,
}

/// A request to the control service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ControlRequest {
    /// An engine joins. Reply: `Joined`.
    Join(JoinInfo),
    /// Engines, versions. Reply: `System`.
    SystemQuery,
    /// Make a pool. Reply: `Pool`.
    PoolCreate {
        label: String,
        /// Space over all targets, both tiers together, bytes.
        bytes: u64,
        /// Part of `bytes` for the index and log tier, percent (1 to 99).
        scm_percent: u8,
        /// When updates are acknowledged.
        durability: Durability,
        /// What its targets are weighed by.
        placement: PlacementRule,
        /// Use these targets; empty: all.
        targets: Vec<TargetId>,
    },
    /// All pools. Reply: `Pools`.
    PoolList,
    /// One pool. Reply: `Pool`.
    PoolQuery(Name),
    /// Remove a pool. Without `force` it fails while it has containers or handles. Reply: `Done`.
    PoolDestroy {
        pool: Name,
        /// Even if in use.
        force: bool,
    },
    /// Open a handle, freed with the caller's connection. Reply: `PoolOpened`.
    PoolOpen { pool: Name, mode: OpenMode },
    /// Close a handle. Reply: `Done`.
    PoolClose { handle: u64 },
    /// The current map. Reply: `Map`.
    PoolMap(PoolId),
    /// Make a container. Reply: `Cont`.
    ContCreate {
        pool: Name,
        /// Its label; empty for none.
        label: String,
        /// Its UUID; nil: choose one.
        uuid: Uuid,
        props: ContProps,
        /// User attributes it has from the start.
        attrs: BTreeMap<String, Vec<u8>>,
    },
    /// Containers of a pool. Reply: `Conts`.
    ContList(Name),
    /// One container. Reply: `Cont`.
    ContQuery(Name, Name),
    /// Remove a container. Without `force` it fails while it has handles. Reply: `Done`.
    ContDestroy {
        pool: Name,
        cont: Name,
        /// Even if in use.
        force: bool,
    },
    /// Open a handle, freed with the caller's connection. Reply: `ContOpened`.
    ContOpen { pool: Name, cont: Name, ask: ContAsk },
    /// Close a handle. Reply: `Done`.
    ContClose { handle: u64 },
    /// Reserve a range of object numbers. Reply: `Oids`.
    AllocOids { pool: PoolId, cont: ContId, count: u64 },
    /// Change properties by name. Reply: `Done`.
    SetProps {
        subject: Subject,
        /// Name and new value, as a user types them.
        props: BTreeMap<String, String>,
    },
    /// Change user attributes; `None` removes one. Reply: `Done`.
    SetAttrs {
        subject: Subject,
        /// Name and new value.
        attrs: BTreeMap<String, Option<Vec<u8>>>,
    },
    /// Read user attributes. Reply: `Attrs`.
    GetAttrs { subject: Subject },
    /// Read the properties that can be changed. Reply: `Props`.
    GetProps { subject: Subject },
    /// Make a snapshot of a container. Reply: `Snap`.
    SnapCreate {
        pool: Name,
        cont: Name,
        /// Its name; empty for none.
        name: String,
    },
    /// Snapshots of a container. Reply: `Snaps`.
    SnapList(Name, Name),
    /// Remove a snapshot. Reply: `Done`.
    SnapDestroy { pool: Name, cont: Name, snap: SnapName },
    /// Make a container what a snapshot shows. Without `force` it fails while the container has
    /// handles. Reply: `Done`, at the end; `SnapList` tells of one under way.
    Rollback {
        pool: Name,
        cont: Name,
        snap: SnapName,
        /// Even if in use.
        force: bool,
    },
    /// Measure the data devices of a target, or with `None` tell what is known of them. Reply: `Standing`.
    TargetMeasure { target: TargetId, ask: Option<MeasureAsk> },
    /// How the engine that is asked does, itself. Reply: `Engine`.
    EngineQuery,
    /// Make a target's part of a pool anew, empty, where what it held is lost. Fails with `Busy`
    /// unless the target is down. Reply: `Done`.
    PoolResetTarget {
        pool: Name,
        /// Which.
        target: TargetId,
    },
    /// What targets of a pool are to do from now on: see [`TargetAim`]. Nothing changes for those that do it already.
    /// Fails with `Busy` when too few others would be left. Reply: `Done`, as soon as it is begun.
    PoolAim { pool: Name, targets: Vec<TargetId>, aim: TargetAim },
    /// Take further targets into a pool, all of the system that are not in it when none is named. New objects are placed over
    /// them, too; what is there stays where it is. Reply: `Pool`.
    PoolExtend { pool: Name, targets: Vec<TargetId> },
    /// Whether others come to stand in for targets of a pool, and these come back. What has begun when it is stopped is given up.
    /// Reply: `Done`.
    PoolRebuild { pool: Name, runs: bool },
    /// Have targets that were added to a pool take over their share of what is there. Reply: `Done`, as soon as it is wanted.
    PoolBalance { pool: Name },
    /// Take an engine out: its targets are down in all pool maps until `SystemClearExclude`. Reply: `Done`.
    SystemExclude {
        rank: types::Rank,
        /// Why, for people; may be empty.
        why: String,
    },
    /// Take an excluded engine back; its targets are up once they have caught up. Reply: `Done`.
    SystemClearExclude { rank: types::Rank },
    /// Have others get all that an engine holds, in all pools, and leave it out of new ones; or, with `drains` false, have it
    /// serve again. Fails with `Busy`, and nothing is begun, where a pool has too few others. Reply: `Done`, as soon as it
    /// is begun.
    SystemDrain { rank: types::Rank, drains: bool },
    /// A target that was behind under a map holds all that it should: it is up. `Stale` when that is not the newest map;
    /// `Busy` when another one is away that may have more. Reply: `Done`.
    TargetCaughtUp { pool: PoolId, target: TargetId, map_version: u32 },
    /// A target that is behind under a map, and lacked nothing that anybody was told of, is about to miss something for want
    /// of room. Once the map says so, it may. `Stale` when that is not the newest map. Reply: `Done`.
    TargetLacks { pool: PoolId, target: TargetId, map_version: u32 },
    /// Under this map a target has all that the groups have that it is to join ([`crate::map::PoolMap::next`]). When all that are up
    /// say so, they are members. `Stale` when that is not the newest map. Reply: `Done`.
    TargetJoined { pool: PoolId, target: TargetId, map_version: u32 },
    /// Under this map a target has no room for what groups have that it is to have. Where it was to stand in for others that are lost,
    /// the next ones are tried. `Stale` when that is not the newest map. Reply: `Done`.
    TargetFull { pool: PoolId, target: TargetId, map_version: u32 },
    /// A copy of what the catalog holds of engines, pools and containers, page by page, for engines
    /// that go on with it when the catalog is away. Reply: `CatalogCopy`.
    CatalogCopy {
        /// What the caller has; 0 for nothing.
        generation: u64,
        /// Begin after this key.
        after: String,
    },
    /// An engine stops, and others are to go on without it at once; it comes back by joining. Reply: `Done`.
    Leave {
        engine: Uuid,
        /// The one it joined with; a word about an earlier start is too late, and changes nothing.
        start: u64,
        /// Its targets are down in the maps of pools that have others.
        fails_over: bool,
    },
    /// Stop the engine that is asked. Reply: `Done`, when it has begun to.
    EngineStop {
        /// All engines stop: none tells that it leaves.
        with_all: bool,
    },
    /// Weigh the targets of a pool by how they stand now. When shares have changed, a placement epoch begins with them: new
    /// objects are placed by it, older ones as soon as that is wanted ([`ControlRequest::PoolBalance`]). Reply: `Reweighed`.
    PoolReweigh {
        pool: Name,
        /// Only tell what would come of it.
        is_trial: bool,
    },
    /// What jobs, and with `with_clients` also clients, do at a target of the engine that is asked, itself. Reply: `Jobs`.
    EngineJobs { target: TargetId, with_clients: bool },
    /// What the engine that is asked has noticed, itself: events with numbers after `after` of a time from `since_ns` on, the oldest
    /// first. Reply: `Events`.
    EngineEvents {
        after: u64,
        /// Nanoseconds since 1970.
        since_ns: u64,
    },
    /// The maps that the engine that is asked knows, itself, in newer versions than these. Reply: `Maps`.
    EngineMaps { known: Vec<(PoolId, u32)> },
    /// Under this map a target has lost part of its index, or has to tell others what a lost leader did last and has it damaged: it is behind from the next map on, may
    /// lack what was acknowledged, and others lead. `Stale` when that is not the newest map. Reply: `Done`.
    TargetDamaged { pool: PoolId, target: TargetId, map_version: u32 },
    /// Whether the machine at this address of an engine tells the engine that is asked, itself, that nobody listens there. Reply:
    /// `Refused`.
    EngineRefuses { tcp: String },
    /// An engine wants to show for a term what its targets lead in pools, without asking those who follow: it counts the term from
    /// before it asked. `known`: the oldest versions of maps that one of these targets has. Reply: `Granted`.
    LeadGrant { targets: Vec<TargetId>, known: Vec<(PoolId, u32)> },
    /// Under this map the device of a target takes no more writes: where others have what it holds, it counts as away until its engine is started again. `Busy` where
    /// nobody else has, `Stale` when that is not the newest map. Reply: `Done`.
    TargetFailed { pool: PoolId, target: TargetId, map_version: u32 },
}

impl ControlRequest {
    /// True for requests that read, or whose second run finds the first one's result harmless.
    pub fn is_repeatable(&self) -> bool {
        matches!(
            self,
            ControlRequest::Join(_)
                | ControlRequest::SystemQuery
                | ControlRequest::EngineQuery
                | ControlRequest::PoolList
                | ControlRequest::PoolQuery(_)
                | ControlRequest::PoolMap(_)
                | ControlRequest::PoolOpen { .. }
                | ControlRequest::ContList(_)
                | ControlRequest::ContQuery(..)
                | ControlRequest::ContOpen { .. }
                | ControlRequest::AllocOids { .. }
                | ControlRequest::SetProps { .. }
                | ControlRequest::SetAttrs { .. }
                | ControlRequest::GetAttrs { .. }
                | ControlRequest::GetProps { .. }
                | ControlRequest::SnapList(..)
                | ControlRequest::Rollback { .. }
                | ControlRequest::PoolAim { .. }
                | ControlRequest::PoolExtend { .. }
                | ControlRequest::PoolRebuild { .. }
                | ControlRequest::PoolBalance { .. }
                | ControlRequest::PoolReweigh { .. }
                | ControlRequest::SystemExclude { .. }
                | ControlRequest::SystemClearExclude { .. }
                | ControlRequest::SystemDrain { .. }
                | ControlRequest::TargetCaughtUp { .. }
                | ControlRequest::TargetJoined { .. }
                | ControlRequest::TargetLacks { .. }
                | ControlRequest::TargetFull { .. }
                | ControlRequest::TargetDamaged { .. }
                | ControlRequest::TargetFailed { .. }
                | ControlRequest::TargetMeasure { .. }
                | ControlRequest::CatalogCopy { .. }
                | ControlRequest::Leave { .. }
                | ControlRequest::EngineStop { .. }
                | ControlRequest::EngineJobs { .. }
                | ControlRequest::EngineEvents { .. }
                | ControlRequest::EngineMaps { .. }
                | ControlRequest::EngineRefuses { .. }
                | ControlRequest::LeadGrant { .. }
        )
    }

    /// True for those of them that ask no target: their answer comes soon, or not at all.
    pub fn is_brief(&self) -> bool {
        let asks_targets = matches!(
            self,
            ControlRequest::Join(_)
                | ControlRequest::SetProps { .. }
                | ControlRequest::Rollback { .. }
                | ControlRequest::PoolAim { .. }
                | ControlRequest::PoolExtend { .. }
                | ControlRequest::PoolRebuild { .. }
                | ControlRequest::PoolBalance { .. }
                | ControlRequest::PoolReweigh { .. }
                | ControlRequest::SystemExclude { .. }
                | ControlRequest::SystemClearExclude { .. }
                | ControlRequest::SystemDrain { .. }
                | ControlRequest::TargetCaughtUp { .. }
                | ControlRequest::TargetJoined { .. }
                | ControlRequest::TargetLacks { .. }
                | ControlRequest::TargetFull { .. }
                | ControlRequest::TargetDamaged { .. }
                | ControlRequest::TargetFailed { .. }
                | ControlRequest::TargetMeasure { .. }
                | ControlRequest::Leave { .. }
        );
        self.is_repeatable() && !asks_targets
    }

    /// True for what engines ask of each other, and what changes the system or a pool as a whole: who asks must have
    /// shown the secret of engines and administrators. Whoever works with files and objects needs none of these.
    pub fn is_for_admins(&self) -> bool {
        match self {
            ControlRequest::Join(_)
            | ControlRequest::PoolCreate { .. }
            | ControlRequest::PoolDestroy { .. }
            | ControlRequest::PoolResetTarget { .. }
            | ControlRequest::PoolAim { .. }
            | ControlRequest::PoolExtend { .. }
            | ControlRequest::PoolRebuild { .. }
            | ControlRequest::PoolBalance { .. }
            | ControlRequest::PoolReweigh { .. }
            | ControlRequest::SystemExclude { .. }
            | ControlRequest::SystemClearExclude { .. }
            | ControlRequest::SystemDrain { .. }
            | ControlRequest::TargetCaughtUp { .. }
            | ControlRequest::TargetJoined { .. }
            | ControlRequest::TargetLacks { .. }
            | ControlRequest::TargetFull { .. }
            | ControlRequest::TargetDamaged { .. }
            | ControlRequest::TargetFailed { .. }
            | ControlRequest::CatalogCopy { .. }
            | ControlRequest::Leave { .. }
            | ControlRequest::EngineEvents { .. }
            | ControlRequest::EngineMaps { .. }
            | ControlRequest::EngineRefuses { .. }
            | ControlRequest::LeadGrant { .. }
            | ControlRequest::EngineStop { .. } => true,
            ControlRequest::EngineJobs { with_clients, .. } => *with_clients,
            ControlRequest::TargetMeasure { ask, .. } => ask.is_some(),
            ControlRequest::SetProps { subject, .. } => !matches!(subject, Subject::Cont(..)),
            ControlRequest::SetAttrs { subject, .. } => matches!(subject, Subject::System),
            ControlRequest::SystemQuery
            | ControlRequest::EngineQuery
            | ControlRequest::PoolList
            | ControlRequest::PoolQuery(_)
            | ControlRequest::PoolOpen { .. }
            | ControlRequest::PoolClose { .. }
            | ControlRequest::PoolMap(_)
            | ControlRequest::ContCreate { .. }
            | ControlRequest::ContList(_)
            | ControlRequest::ContQuery(..)
            | ControlRequest::ContDestroy { .. }
            | ControlRequest::ContOpen { .. }
            | ControlRequest::ContClose { .. }
            | ControlRequest::AllocOids { .. }
            | ControlRequest::GetAttrs { .. }
            | ControlRequest::GetProps { .. }
            | ControlRequest::SnapCreate { .. }
            | ControlRequest::SnapList(..)
            | ControlRequest::SnapDestroy { .. }
            | ControlRequest::Rollback { .. } => false,
        }
    }
}

/// How an engine does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EngineState {
    /// Memory that messages take now, bytes.
    pub message_bytes: u64,
    /// Memory that messages may take, bytes.
    pub message_bytes_max: u64,
    /// It lets everybody in who reaches its address, from other machines too.
    pub is_exposed: bool,
}

/// What a target is to do in a pool.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetAim {
    /// Serve what is placed on it.
    #[default]
    Serve,
    /// Give all it has to others, and serve until they have it.
    Drain,
    /// Serve nothing: what it has is not to be used. Others get what has other copies.
    Exclude,
}

/// What share of a pool a target has, and would have by what is known now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TargetShare {
    pub target: TargetId,
    /// Its weight in the newest placement epoch; 0: not in it.
    pub now: u32,
    /// By how it stands now.
    pub then: u32,
}

/// Answer to [`ControlRequest::PoolReweigh`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reweighed {
    /// The shares differ by enough for a placement epoch of their own, which has begun unless it was a trial.
    pub is_news: bool,
    /// By target.
    pub shares: Vec<TargetShare>,
}

/// A pool as the catalog knows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolInfo {
    pub id: PoolId,
    pub uuid: Uuid,
    pub label: String,
    /// When updates are acknowledged.
    pub durability: Durability,
    /// What its targets were weighed by.
    pub placement: PlacementRule,
    /// Index and log tier over all targets, bytes.
    pub scm_bytes: u64,
    /// Data tier over all targets, bytes.
    pub nvme_bytes: u64,
    pub cont_count: u64,
    pub handle_count: u64,
    pub map: PoolMap,
    /// Targets that are to do something else than to serve.
    pub aims: Vec<(TargetId, TargetAim)>,
    /// Nobody comes to stand in for others, or back, until this ends.
    pub is_rebuild_stopped: bool,
    /// The placement epoch up to which targets that were added are to take over their share: see [`PoolMap::balanced`].
    pub balance_wanted: u8,
    /// By who is missing and what is wanted something else is to move than does ([`PoolMap::next`]); that is planned in a moment.
    pub is_move_due: bool,
}

/// A container as the catalog knows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ContInfo {
    pub id: ContId,
    pub uuid: Uuid,
    /// Label; may be empty.
    pub label: String,
    pub props: ContProps,
    pub handle_count: u64,
    /// Creation time, nanoseconds since 1970.
    pub created_ns: u64,
    /// The pool's newest placement epoch when it was made: that of ids which its users make of numbers of their own.
    pub placement_epoch: u8,
    /// When it was last opened, nanoseconds since 1970; 0: never.
    pub opened_ns: u64,
    /// When it was last changed (properties, attributes, snapshots) or a handle on it closed,
    /// nanoseconds since 1970.
    pub changed_ns: u64,
    pub snapshot_count: u64,
    /// The newest of them; [`Epoch::ZERO`] when there is none.
    pub snapshot_last: Epoch,
}

/// Which snapshot is meant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SnapName {
    /// By the moment it shows.
    Epoch(Epoch),
    Name(String),
}

impl SnapName {
    /// An epoch if the text is a number, else a name.
    pub fn parse(text: &str) -> SnapName {
        match text.parse() {
            Ok(epoch) => SnapName::Epoch(Epoch(epoch)),
            Err(_) => SnapName::Name(text.to_string()),
        }
    }
}

impl std::fmt::Display for SnapName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SnapName::Epoch(epoch) => epoch.fmt(f),
            SnapName::Name(name) => f.write_str(name),
        }
    }
}

/// A snapshot as the catalog knows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SnapInfo {
    /// The moment it shows.
    pub epoch: Epoch,
    /// Name; may be empty.
    pub name: String,
    /// When it was made, nanoseconds since 1970.
    pub created_ns: u64,
}

/// Where an engine stands in the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    #[default]
    Up,
    /// It gives no answer.
    Down,
    /// It has stopped in order, and comes back by joining.
    Stopped,
    /// An administrator has excluded it; its targets are down until that is taken back.
    Excluded,
    /// It has started after it had stopped or was down, and its targets are being told what they hold. It is up when they know.
    Joining,
}

impl MemberState {
    /// True while an engine is away, or on its way back: it is up when its targets have been told what they hold.
    pub fn is_to_be_told(self) -> bool {
        match self {
            MemberState::Down | MemberState::Joining => true,
            MemberState::Up | MemberState::Stopped | MemberState::Excluded => false,
        }
    }
}

/// An engine's state in the system.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    pub rank: types::Rank,
    pub state: MemberState,
    /// Why it has this state, for people; may be empty.
    pub why: String,
    /// Which change of the system's members this was; each has a number.
    pub since: u32,
    /// When that was, nanoseconds since 1970; 0: not known.
    pub changed_ns: u64,
    /// Others are to get all that it holds.
    pub drains: bool,
}

/// A system as its catalog knows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SystemInfo {
    pub uuid: Uuid,
    /// Version of the engine that holds the catalog.
    pub version: String,
    /// Engines, by rank, with the ids of their targets and whether they are reachable.
    pub engines: Vec<(crate::map::EngineInfo, Vec<TargetId>, bool)>,
    /// The states of these engines, in the same order.
    pub members: Vec<Member>,
    /// Number of the newest change of members.
    pub members_version: u32,
    pub pool_count: u64,
    /// The engine that holds the control service.
    pub leader: Option<types::Rank>,
}

/// Answer of the control service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ControlReply {
    Done,
    /// The engine's rank and its targets' ids, and the system.
    Joined {
        rank: types::Rank,
        /// Targets, in the engine's own order.
        targets: Vec<TargetId>,
        system: Uuid,
    },
    System(SystemInfo),
    Pool(PoolInfo),
    Pools(Vec<PoolInfo>),
    PoolOpened {
        handle: u64,
        pool: PoolInfo,
    },
    Map(PoolMap),
    Cont(ContInfo),
    Conts(Vec<ContInfo>),
    ContOpened {
        handle: u64,
        /// The pool that it is in.
        pool: PoolId,
        cont: ContInfo,
    },
    /// First number of the range.
    Oids(u64),
    Attrs(BTreeMap<String, Vec<u8>>),
    /// Names and values, as [`ControlRequest::SetProps`] takes them.
    Props(BTreeMap<String, String>),
    Snap(SnapInfo),
    Snaps {
        /// Ascending by epoch.
        snaps: Vec<SnapInfo>,
        /// The container is being rolled back to this one.
        rolling_back: Option<Epoch>,
    },
    /// How an engine does.
    Engine(EngineState),
    /// How a target stands.
    Standing(Standing),
    CatalogCopy {
        /// Another one after each change.
        generation: u64,
        /// Keys in order with their values; none when the caller has this generation.
        entries: Vec<(String, Vec<u8>)>,
        /// No more follow.
        is_complete: bool,
    },
    Reweighed(Reweighed),
    /// Who does what at a target.
    Jobs(TargetJobs),
    /// What an engine has noticed.
    Events(Events),
    /// Newer maps of pools, one of each at most.
    Maps(Vec<PoolMap>),
    /// Nobody listens there; `false` also where nothing can be heard.
    Refused(bool),
    /// Pools in which what targets lead may be shown for the term: those of whose maps they have the newest.
    Granted(Vec<PoolId>),
}
