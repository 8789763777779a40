//! Objects, arrays and transactions from the user's side.
//!
//! A [`Client`] belongs to one thread: it owns one connection per target, opened when first
//! used, and computes from (object, dkey, pool map) which target to ask. It never talks to a
//! metadata server and knows nothing of how targets store things (`vos`, `engine`).
//!
//! Invariants:
//! - A request keeps its id over retries, so an update whose reply was lost is applied once.
//! - Ops of one [`Batch`] take effect together or not at all, on one target in one round trip,
//!   on several by a two-phase commit that the first target coordinates.
//! - Everything here is a future of [`env::Env`]; only [`Client::block_on`] blocks.

mod append;
mod array;
mod array_attrs;
mod attempt;
mod batch;
mod cells;
mod chunk_epochs;
mod client;
mod cont;
mod control;
mod copies;
mod event;
mod fan_out;
mod first_part;
pub mod fuzz;
mod health;
mod held;
mod in_doubt;
mod kv;
mod leader;
mod link_speed;
mod lock;
mod moved;
mod object;
mod patience;
mod pool;
mod read_from;
mod rebuild;
mod route;
mod runs;
mod snaps;
mod sparse;
mod spread;
mod sums;
mod system;
mod target;
mod tx;
mod users;

pub use array::ArrayObj;
pub use batch::{Batch, BatchResult};
pub use cells::CellTraffic;
pub use chunk_epochs::ChunkPart;
pub use client::{Client, ConnectOptions};
pub use cont::{Container, Objects};
pub use copies::ObjectCopy;
pub use event::{Event, EventQueue};
pub use health::{ContHealth, HealthState, MissingTarget, PoolHealth};
pub use kv::KvObj;
pub use lock::{LockAsk, LockBook, LockInterrupt};
pub use object::{Anchor, FetchedValue, KeyRange, Object};
pub use patience::Patience;
pub use pool::{ContOpenOptions, Pool, SpaceInfo, TargetSpace};
pub use read_from::ReadFrom;
pub use rebuild::{RebuildState, lacks_drains};
pub use sparse::{Hole, Present};
pub use system::{SystemAddress, SystemEngine, SystemFile};
pub use transport::for_job;
pub use tx::{SharedTx, Tx};
pub use types::{Code, Error, Result};
pub use wire::lock::{LockHolder, LockKind, LockMode, LockOwner, LockRange};
