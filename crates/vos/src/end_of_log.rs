//! What is known of the end of a shard's log: as it was found, and as it is left.

use crate::Lsn;
use std::cell::Cell;

/// The end of a log.
#[derive(Default)]
pub(crate) struct EndOfLog {
    kept_map_version: Cell<u32>,
    written: Cell<Option<Lsn>>,
}

impl EndOfLog {
    /// See [`crate::PoolShard::kept_map_version`].
    pub fn kept(&self) -> u32 {
        self.kept_map_version.get()
    }

    /// The log that was found tells this.
    pub fn find(&self, kept_map_version: u32) {
        self.kept_map_version.set(kept_map_version);
    }

    /// The record of an end in good order is written.
    pub fn write(&self, lsn: Lsn) {
        self.written.set(Some(lsn));
    }

    /// That record, once.
    pub fn take(&self) -> Option<Lsn> {
        self.written.take()
    }
}
