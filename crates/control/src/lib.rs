//! The control plane: what exists (engines, pools, containers), and where.
//!
//! [`Service`] answers [`wire::control::ControlRequest`]s. It keeps its facts in a [`Catalog`] and
//! has targets carry out orders through [`Targets`]. It knows no transport, no clock and no
//! random source of its own: the engine lends it all three.
//!
//! Invariants:
//! - Nothing per file or object is here, except one counter of object numbers per container.
//! - Every change of state is one catalog transaction that compares what it was decided on.
//!   So the catalog is consistent after a crash at any point, and two requests that
//!   overlap cannot both win what only one may have.
//! - What spans targets goes in three steps: record the intent, order the targets, record the
//!   end. Orders are idempotent, so [`Service::resume`] finishes whatever was cut off.
//! - Numbers of pools, containers, targets and objects are never given out twice.

mod catalog;
mod catalog_copy;
mod closed;
mod copies;
mod embedded;
mod etcd;
mod frame;
pub mod fuzz;
mod image;
mod keys;
mod moved;
mod older;
mod records;
mod recover;
mod service;
mod store;

pub use catalog::{Catalog, Change, Compare, Revision, Versioned};
pub use catalog_copy::CatalogCopy;
pub use closed::{ClosedDf, check_open, check_system, is_lost};
pub use copies::CatalogFiles;
pub use embedded::EmbeddedCatalog;
pub use etcd::{Candidate, ElectionNews, EtcdAccess, EtcdCatalog, EtcdConfig, check_access};
pub use image::{CatalogImage, Standing};
pub use moved::{CatalogCounts, Named, make_catalog, move_catalog};
pub use older::check_not_older;
pub use records::{
    AdmissionDf, BalanceDf, CacheDf, ContDf, ContPropsDf, EngineDf, MemberDf, OidsDf, OutDf,
    PassedDf, PlacementDf, PoolDf, RollbackDf, RollbackStageDf, ScrubDf, SnapDf, SnapsDf, StageDf,
    SystemDf, TargetDf, TimesDf,
};
pub use recover::{Recovered, newest, recover};
pub use service::{LEAD_TERM, Service, SessionId, Targets, Teller};
