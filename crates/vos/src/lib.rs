//! Versioning object store of one target.
//!
//! A [`Store`] is the devices of a target: directories, or raw block devices. A [`PoolShard`] is one pool's part
//! in it: an index in memory, a log that makes it durable, and a data area for large values.
//! Owned by one thread; nothing here is `Send`.
//!
//! One write: [`PoolShard::stage`] reserves everything it needs, the bulk goes into
//! [`Payload::buffers`], [`Payload::write`] puts it on the device, [`PoolShard::check`] looks at the
//! conditions, [`PoolShard::apply`] changes the index and appends one log record in the same step,
//! [`PoolShard::durable`] waits for it. One read: [`PoolShard::view`], [`View::fetch`], then
//! [`Segments`] go out while later writes proceed, once what they can show is durable ([`PoolShard::newest_seen`]).
//!
//! Invariants:
//! - Everything that touches the index is synchronous; only device I/O awaits.
//! - Data is never overwritten in place; a log record makes new data visible.
//! - What is acknowledged survives a crash (durability `wal`); what was not may or may not, but
//!   each record is there whole or not at all, and in order.
//! - After a failed log write a shard refuses writes.
//!
//! What is assumed of the device: a write with dsync survives once acknowledged; a torn write
//! leaves each sector of 512 bytes old or new, and changes only the blocks it covers. This crate knows no network and no placement.

mod aggregate;
mod arena;
mod arrival;
mod at_work;
mod blocks;
mod change_df;
mod changes;
mod check;
mod checkpoint;
mod checkpoints;
mod completing;
mod contents;
mod damaged_pages;
mod data_area;
mod data_cache;
mod discard;
mod end_of_log;
mod ending;
pub mod erase;
mod figures;
mod fold;
mod fold_notes;
mod fragments;
pub mod fuzz;
mod give_back;
mod image;
mod image_df;
mod index;
mod index_memory;
mod inventory;
mod keys;
mod lacking;
mod lending;
mod likeness;
mod listing;
mod loans;
mod locks;
mod log;
mod lost;
mod measure;
mod needs;
pub mod offline;
#[cfg(test)]
#[path = "../../wire/tests/samples/ops.rs"]
mod op_samples;
mod openers;
mod orphans;
mod overlay;
mod pages;
mod payload;
mod reclaim;
mod record;
mod recovery;
mod replies;
mod reserve;
mod residency;
mod retry;
mod room;
mod runs;
mod scrub;
mod scrub_progress;
mod sealed;
mod segments;
mod settling;
mod shard;
mod space;
mod space_count;
mod spread;
mod stats;
mod store;
mod summary;
mod sums;
mod table;
mod transactions;
mod unit_facts;
mod unnamed;
mod unsettled;
mod unsynced;
mod updates;
mod upkeep;
mod versions;
mod view;
mod volume;
mod write_queue;
pub use figures::IndexStat;

pub use fold::Foldable;
pub use image_df::{image_epoch, image_of_nothing};
pub use index_memory::METADATA_CACHE_DEFAULT;
pub use likeness::Closeness;
pub use listing::Listing;
pub use openers::Opener;
pub use payload::Payload;
pub use record::OrphanChange;
pub use retry::Origin;
pub use scrub::{Holder, Scrubbed};
pub use scrub_progress::ScrubProgress;
pub use segments::{BulkSumsOwned, CodedPart, Segments};
pub use shard::{PoolShard, PoolShardConfig};
pub use store::{INLINE_BYTES_LIMIT, INLINE_BYTES_MIN, Store, StoreOptions, WRITE_QUEUE_DEFAULT};
pub use summary::{Named, Summary};
pub use sums::{BadMark, SumPolicy};
pub use unsettled::{Unsettled, changed_places};
pub use view::{FetchedOwned, FetchedValue, FoundOwned, View};
pub use volume::tier::{DATA_DEVICES_MAX, DataDevice, Devices, Owner};
pub use volume::traffic::Traffic;

/// Number of a log record in its shard; 0 is before the first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Lsn(pub u64);
