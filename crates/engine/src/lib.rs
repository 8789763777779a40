//! Engines: server processes that own targets.
//!
//! One thread per target, one for control. A target's state is touched by its own thread alone;
//! connections are accepted on the control thread and handed to the thread of the target they
//! are for. A request is received, checked, applied and answered by [`target::Target`] without
//! any lock.
//!
//! The engine knows nothing of the `client` crate: the two meet on the wire only.

mod admin;
mod admission;
mod append;
mod astray;
mod batch;
mod catalog_config;
mod catalog_copy;
mod catalog_disk;
mod catch_up;
mod cell_audit;
mod cells;
mod census;
mod client_cells;
mod clock;
mod commit;
mod condition;
pub mod config;
mod control_host;
mod cores;
mod damage;
mod decay;
mod doors;
pub mod event_log;
mod events;
mod every_unit;
mod figures;
mod first_parts;
mod fold;
mod follow;
mod give_way;
mod gossip;
mod group;
mod growth;
mod home;
mod in_progress;
mod jobs;
mod joining;
mod kept_maps;
mod known_map;
mod last_asked;
mod left;
mod leftovers;
mod link_speed;
mod links;
mod locks;
mod lost_pages;
mod map_changes;
mod measure;
mod mend;
mod metrics;
mod metrics_config;
mod metrics_door;
mod newer_map;
mod office;
mod openers;
mod opens;
mod owners;
mod parity;
mod peers;
mod pools;
mod portions;
pub mod process;
mod reply;
pub mod rights;
mod scrub;
mod seats;
mod session;
mod spread;
mod stopped;
mod streams;
mod summed_line;
mod suspects;
mod takeover;
pub mod target;
mod target_pool;
mod target_start;
mod tokens;
mod tries;
mod versions;
mod waiters;
mod watch;

pub use catalog_config::{CatalogConfig, CatalogKind};
pub use config::{Bytes, EngineConfig, StoreConfig, TargetConfig};
pub use cores::usable_cores;
pub use metrics_config::MetricsConfig;
pub use metrics_door::{Limits as MetricsLimits, MetricsDoor, Source as MetricsSource};
pub use portions::Portions;
pub use process::{Engine, EngineHandle};
pub use stopped::{StoppedEngine, catalog_files, hand_over};
