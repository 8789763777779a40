//! What happened to a system that somebody may want to know of, or has to do something about: events with codes.
//!
//! An engine keeps what it has noticed itself; whoever wants to know all asks all engines.

use serde::{Deserialize, Serialize};
use std::fmt;
use types::{PoolId, Rank, TargetId};

/// Events in one answer at most.
pub const EVENTS_TOLD_MAX: usize = 500;
/// Longest text of an event, bytes; longer ones are cut.
pub const EVENT_TEXT_BYTES_MAX: usize = 1024;

/// How much of somebody's attention an event wants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Good to know.
    Info,
    /// Something is not as it should be, and the system copes.
    Warning,
    /// Somebody should do something.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}

/// What is known of a code.
struct Facts {
    name: &'static str,
    severity: Severity,
    /// What somebody should do; a sentence or two.
    to_do: &'static str,
}

/// The table of codes: variant, name, severity, what somebody should do.
macro_rules! codes {
    ($($variant:ident, $name:literal, $severity:ident, $to_do:literal;)+) => {
        /// What happened. Codes are for ever: one that is no longer used is not given to something else.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum EventCode {
            $($variant),+
        }

        impl EventCode {
            /// All codes.
            pub const ALL: &'static [EventCode] = &[$(EventCode::$variant),+];

            fn facts(self) -> Facts {
                match self {
                    $(EventCode::$variant => {
                        Facts { name: $name, severity: Severity::$severity, to_do: $to_do }
                    })+
                }
            }
        }
    };
}

codes! {
    EngineStarted, "engine-started", Info, "Nothing.";
    EngineStopping, "engine-stopping", Info, "Nothing, if somebody asked it to stop.";
    EngineJoined, "engine-joined", Info,
        "Nothing; 'azekura pool extend' takes its targets into a pool.";
    EngineUp, "engine-up", Info, "Nothing; its targets catch up by themselves.";
    EngineDown, "engine-down", Error,
        "Look whether its machine runs and can be reached, then at its log; start it again.";
    EngineStopped, "engine-stopped", Info, "Start it again when it is to serve.";
    EngineExcluded, "engine-excluded", Warning,
        "'azekura system clear-exclude' takes it back when it is in order.";
    TargetUp, "target-up", Info, "Nothing.";
    TargetDown, "target-down", Warning,
        "'azekura pool query' says what can be done; with copies others stand in for it.";
    TargetBehind, "target-behind", Info,
        "Nothing: it catches up by itself. Keep the other engines running until it is up.";
    TargetUnserved, "target-unserved", Error,
        "Look at the device. If what it held is lost, 'azekura pool reset-target' makes it \
         anew.";
    TargetEnded, "target-ended", Error,
        "A defect: keep the log ('azekura system support collect'), then start the engine \
         again.";
    RebuildBegun, "rebuild-begun", Info, "Nothing; 'azekura pool rebuild status' shows how far it is.";
    RebuildEnded, "rebuild-ended", Info, "Nothing.";
    SpareFull, "spare-full", Warning,
        "Make room on the target that is named, or add targets ('azekura pool extend'): it is \
         tried again by itself, at once after 'azekura pool rebuild stop' and 'start'.";
    RoomLacking, "room-lacking", Warning,
        "Add targets ('azekura pool extend'), or remove what is not needed; it goes on by itself \
         then. What finds no place has a copy less until there is room, and what is drained waits.";
    PoolNearFull, "pool-near-full", Warning,
        "Remove what is not needed, or add targets ('azekura pool extend').";
    PoolFull, "pool-full", Error,
        "Writes fail there. Remove what is not needed, or add targets and balance ('azekura \
         pool extend', 'azekura pool balance').";
    PoolRoom, "pool-room", Info, "Nothing: there is room again.";
    DamageFound, "damage-found", Warning,
        "Look at the device: one that damages data once may do so again.";
    DamageMended, "damage-mended", Info, "Nothing more; look at the device.";
    DamageStays, "damage-stays", Error,
        "Write the data anew or restore them; 'azekura pool health' names the files.";
    PagesAwaited, "pages-awaited", Error,
        "Start the engines that are away. When none is, 'azekura pool health' says how to go on \
         without what was in the pages.";
    DeviceSlow, "device-slow", Error,
        "Look at the device; 'azekura pool drain' takes the target's data away if it stays \
         slow.";
    DeviceRecovered, "device-recovered", Info, "Nothing.";
    LogFailed, "log-failed", Error,
        "The target takes no more updates. Look at the device of index and log, then start the \
         engine again.";
    CatalogAway, "catalog-away", Error,
        "See to etcd. What is open goes on meanwhile; making pools and containers fails.";
    CatalogBack, "catalog-back", Info, "Nothing.";
    ServiceTaken, "service-taken", Info, "Nothing.";
    ServiceLost, "service-lost", Warning,
        "Nothing, if the engine was to stop; else look why it or etcd gave no answer.";
    ServiceDeaf, "service-deaf", Error,
        "Look at the network of the engine that tells this. If the others have died with their machines, 'azekura \
         system exclude' says so, and the rest goes on without them.";
    ServiceHears, "service-hears", Info, "Nothing.";
    CallerRefused, "caller-refused", Warning,
        "If it should be let in, give it the system's token; if not, keep it off the network.";
}

impl EventCode {
    /// What it is called, in logs, messages and documents.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// The code of that name.
    pub fn from_name(name: &str) -> Option<EventCode> {
        EventCode::ALL.iter().copied().find(|code| code.name() == name)
    }

    /// How much attention it wants.
    pub fn severity(self) -> Severity {
        self.facts().severity
    }

    /// What somebody should do.
    pub fn to_do(self) -> &'static str {
        self.facts().to_do
    }
}

impl fmt::Display for EventCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Something that has just happened, as it is told to the engine's book of events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Happened {
    pub code: EventCode,
    /// Which engine it is about, if not the one that tells it.
    pub engine: Option<Rank>,
    pub target: Option<TargetId>,
    pub pool: Option<PoolId>,
    /// Anything else that it is about: a device, an object, an address.
    pub object: String,
    /// What happened, for people.
    pub what: String,
}

impl Happened {
    /// Something about the engine itself that tells it.
    pub fn new(code: EventCode, what: impl Into<String>) -> Happened {
        let (engine, target, pool) = (None, None, None);
        Happened { code, engine, target, pool, object: String::new(), what: what.into() }
    }

    /// It is about another engine.
    pub fn of_engine(self, rank: Rank) -> Happened {
        Happened { engine: Some(rank), ..self }
    }

    /// It is about a target.
    pub fn of_target(self, target: TargetId) -> Happened {
        Happened { target: Some(target), ..self }
    }

    /// It is about a pool, or a target's part of one.
    pub fn of_pool(self, pool: PoolId) -> Happened {
        Happened { pool: Some(pool), ..self }
    }

    /// It is about something that is named.
    pub fn of_object(self, object: impl Into<String>) -> Happened {
        Happened { object: object.into(), ..self }
    }
}

/// An event as an engine tells it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Grows by one from event to event of an engine, also over its restarts.
    pub number: u64,
    /// When it happened, nanoseconds since 1970.
    pub time_ns: u64,
    /// How often it happened since it was told of last; 1 if once.
    pub count: u32,
    /// [`EventCode::name`]. An engine of another version may tell of codes that this program does not know.
    pub code: String,
    /// Which engine it is about, if not the one that tells it.
    pub engine: Option<Rank>,
    pub target: Option<TargetId>,
    pub pool: Option<PoolId>,
    /// Anything else that it is about: a device, an object, an address; may be empty.
    pub object: String,
    /// What happened, for people.
    pub what: String,
}

impl Event {
    /// What kind of event it is, if this program knows.
    pub fn known(&self) -> Option<EventCode> {
        EventCode::from_name(&self.code)
    }
}

/// Events of one engine.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Events {
    /// In the order of their numbers; those that follow the one asked for, as many as fit into an answer.
    pub events: Vec<Event>,
    /// Number of the engine's newest; 0: it has none.
    pub newest: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_code_has_a_name_of_its_own_and_advice() {
        let names: BTreeSet<&str> = EventCode::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(names.len(), EventCode::ALL.len());
        for &code in EventCode::ALL {
            assert_eq!(EventCode::from_name(code.name()), Some(code));
            assert!(code.to_do().ends_with('.'), "{code}");
            assert!(code.name().bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{code}");
        }
        assert_eq!(EventCode::from_name("engine"), None);
    }
}
