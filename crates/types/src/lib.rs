//! The words every layer shares: ids, epochs, object classes, sizes, properties, errors.
//!
//! This crate knows no I/O, no clock and no wire format. Ids are newtypes so that a
//! target index cannot be passed where a rank is meant.

pub mod class;
pub mod epoch;
pub mod error;
pub mod hash;
pub mod histogram;
pub mod id;
pub mod job;
pub mod key;
pub mod limits;
pub mod map;
pub mod metrics;
pub mod process;
pub mod props;
pub mod size;
pub mod sums;

pub use class::{FIRST_PART_LOG2_MAX, FIRST_PART_LOG2_MIN, GroupCount, ObjClass, Scheme};
pub use epoch::{Epoch, Hlc};
pub use error::{Code, Error, Result};
pub use histogram::Histogram;
pub use id::{ClientId, ContId, DkeyKind, ObjType, Oid, PoolId, Rank, TargetId, Unit};
pub use key::Key;
pub use process::HostProcess;
pub use props::{ContLayout, ContProps, CsumKind, Durability, PlacementRule};
