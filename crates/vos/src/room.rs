//! What a shard knows of the room around it on the file system of index and log ([`crate::reserve`]).

use std::cell::Cell;
use std::time::Duration;

use types::{Code, Result};

use crate::blocks::Run;

/// So often a full file system is asked again, and a checkpoint that failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// What a shard knows of the room around it.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Room is kept ahead at all.
    pub keeps: bool,
    /// Less is kept than should be, for want of room.
    short: Cell<bool>,
    growing: Cell<bool>,
    /// When it was last asked for more, and got less.
    refused: Cell<Option<Duration>>,
    /// When the last checkpoint failed.
    failed: Cell<Option<Duration>>,
    /// Length of the last table, bytes.
    table_bytes: Cell<u64>,
    /// What the checkpoint that runs may still write for pages, bytes.
    checkpoint_bytes: Cell<u64>,
}

impl Room {
    /// Something is being set aside.
    pub(crate) fn is_growing(&self) -> bool {
        self.growing.get()
    }

    /// Less is kept than should be.
    pub(crate) fn is_short(&self) -> bool {
        self.short.get()
    }

    /// There is a table there from now on.
    pub(crate) fn note_table(&self, runs: &[Run]) {
        self.table_bytes.set(runs.iter().map(|run| run.bytes).sum());
    }

    /// A checkpoint runs that writes so much for pages at most; 0: it has ended.
    pub(crate) fn note_checkpoint(&self, bytes: u64) {
        self.checkpoint_bytes.set(bytes);
    }

    /// The checkpoint that runs has written this much for a page.
    pub(crate) fn wrote(&self, bytes: u64) {
        self.checkpoint_bytes.set(self.checkpoint_bytes.get().saturating_sub(bytes));
    }

    /// What the checkpoint that runs may still write for pages, bytes.
    pub(crate) fn checkpoint_bytes(&self) -> u64 {
        self.checkpoint_bytes.get()
    }

    /// Length of the last table, bytes.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.table_bytes.get()
    }

    /// As much is kept as should be.
    pub(crate) fn note_enough(&self) {
        self.short.set(false);
    }

    /// True when more was refused a moment ago: it is still short then.
    pub(crate) fn refused_lately(&self, now: Duration) -> bool {
        let lately = self.refused.get().is_some_and(|refused| now < refused + RETRY_PAUSE);
        if lately {
            self.short.set(true);
        }
        lately
    }

    /// More is being set aside.
    pub(crate) fn begin_growing(&self) {
        self.growing.set(true);
    }

    /// That is over.
    pub(crate) fn end_growing(&self) {
        self.growing.set(false);
    }

    /// What came of asking for more at `now`; true when it became short by that.
    pub(crate) fn note_asked(&self, outcome: &Result<()>, now: Duration) -> bool {
        self.refused.set(outcome.is_err().then_some(now));
        let short = outcome.as_ref().is_err_and(|error| error.code == Code::NoSpace);
        !self.short.replace(short)
    }

    /// A checkpoint has ended, at `failed` if it failed.
    pub(crate) fn note_end(&self, failed: Option<Duration>) {
        self.failed.set(failed);
    }

    /// True when the last checkpoint failed a moment ago.
    pub(crate) fn failed_lately(&self, now: Duration) -> bool {
        self.failed.get().is_some_and(|failed| now < failed + RETRY_PAUSE)
    }
}
