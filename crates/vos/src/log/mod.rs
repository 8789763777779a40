//! The log: records of a shard, one after the other, on stable storage.
//!
//! It takes encoded records and gives them back after a restart. What they say it does not know, nor what they change: that is
//! [`crate::record`]'s and the index's.

pub(crate) mod batch;
pub(crate) mod sectors;
pub(crate) mod spares;
pub(crate) mod table_ref;
pub(crate) mod wal;
