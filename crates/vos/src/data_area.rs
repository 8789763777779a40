//! The data area of a shard, and what its payloads and readers share.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use env::{Env, File};
use types::{Code, Error, Result};

use crate::arena::Arena;
use crate::data_cache::DataCache;
use crate::loans::Lending;
use crate::space::Space;
use crate::unsynced::Unsynced;
use crate::write_queue::WriteQueue;

/// Where the data area is.
pub(crate) enum Medium {
    Arena(Arena),
    /// In a file or a part of a device.
    File(Rc<dyn File>),
}

impl fmt::Debug for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Medium::Arena(_) => "Arena",
            Medium::File(_) => "File",
        })
    }
}

/// What payloads and readers of a shard share.
pub(crate) struct Core {
    pub env: Env,
    pub medium: Medium,
    pub space: Rc<RefCell<Space>>,
    /// Of devices; in memory nothing is kept twice.
    pub cache: Rc<DataCache>,
    /// What the index may count without borrowing, bytes.
    pub scm_bytes: u64,
    pub loans: Lending,
    pub promised: Promised,
    /// Smaller values go into the index and the log, bytes.
    pub inline_bytes_max: u64,
    /// Small extents are joined in the background.
    pub aggregate: bool,
    pub activity: Activity,
    pub unsynced: Unsynced,
    /// Of all shards of the target.
    pub writes: WriteQueue,
    pub last_writes: LastWrites,
}

/// How the last writes of data ended. Where there is no room the device is not at fault, and there may be some in a moment.
#[derive(Default)]
pub(crate) struct LastWrites {
    failed: Cell<u64>,
}

impl LastWrites {
    pub(crate) fn note<T>(&self, outcome: &Result<T>) {
        match outcome {
            Ok(_) => self.failed.set(0),
            Err(error) if error.code == Code::NoSpace => {}
            Err(_) => self.failed.set(self.failed.get() + 1),
        }
    }

    /// How many failed since the last one that did not.
    pub(crate) fn failed(&self) -> u64 {
        self.failed.get()
    }
}

/// Reads and updates that somebody waits for: background work yields while their count moves.
#[derive(Default)]
pub(crate) struct Activity(Cell<u64>);

impl Activity {
    pub(crate) fn note(&self) {
        self.0.set(self.0.get() + 1);
    }

    /// How many so far.
    pub(crate) fn count(&self) -> u64 {
        self.0.get()
    }
}

/// What of the index's memory is promised to payloads that are not applied yet.
#[derive(Default)]
pub(crate) struct Promised(Cell<u64>);

impl Promised {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.get()
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.0.set(self.0.get() + bytes);
    }

    /// So much is in the index now, or will not be.
    pub(crate) fn end(&self, bytes: u64) {
        self.0.set(self.0.get() - bytes);
    }
}

impl Core {
    /// Most memory the index may count now, bytes.
    pub(crate) fn scm_limit(&self) -> u64 {
        self.scm_bytes + self.loans.bytes()
    }

    /// Has the index borrow `bytes` at least. `NoSpace` when there is not that much.
    pub(crate) fn borrow_room(&self, bytes: u64) -> Result<()> {
        let taken = self.loans.take(&mut self.space.borrow_mut(), bytes);
        let found: u64 = taken.iter().map(|run| run.bytes).sum();
        if let Medium::Arena(arena) = &self.medium {
            // Nothing survives a crash there, so nothing has to be durable first.
            taken.into_iter().for_each(|run| _ = arena.give_back(run));
        }
        if found >= bytes {
            return Ok(());
        }
        let text = match self.loans.are_possible() {
            true => {
                "the pool is full on this target, index and data; remove something or extend it"
            }
            false => "the pool's index tier is full on this target; remove something or extend it",
        };
        Err(Error::new(Code::NoSpace, text))
    }
}
