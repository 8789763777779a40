//! Room of the data area that the index has on loan.
//!
//! A pool is made with so much for its index and so much for data. Where both are on one device
//! that takes room back (memory, a file system), an index that needs more than its part takes blocks
//! of the data area: nothing is stored in them, they count for the index, and their room goes back to the device,
//! where the index grows (the page area, or memory). What it does not need any more it returns.
//!
//! Invariants:
//! - Blocks on loan are in use to the allocator. Tables of checkpoints name them; those that no
//!   durable table names are free after a crash, as if never taken.
//! - Only blocks that a durable table names as on loan lose their room in the data area. Else a crash
//!   would make them free, and a write there could meet a full file system.
//! - Blocks that return have their room again, and nobody gets them before a table without them is
//!   durable: else a crash would bring back a table that has them on loan and a log that has data in them.

use std::cell::RefCell;
use std::time::Duration;

use types::{Code, Error, Result};

use crate::blocks::{BLOCK_BYTES, Run};
use crate::space::Space;

/// Section of a table that names the blocks on loan: first block and count of each run.
pub(crate) const SECTION: u32 = 1;
/// A loan is this share of the data area, within these bounds, bytes.
const STEP_SHARE: u64 = 256;
const STEP_BYTES_MIN: u64 = 64 << 10;
const STEP_BYTES_MAX: u64 = 64 << 20;
/// A free run shorter than this is not taken on loan, bytes: each is named in every table.
const RUN_BYTES_MIN: u64 = 64 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Loan {
    run: Run,
    /// Its room was given back, since the shard was opened.
    is_hole: bool,
}

/// What the index of a shard has on loan.
#[derive(Debug, Default)]
struct Loans {
    /// Both tiers are on one device that takes room back.
    possible: bool,
    loans: Vec<Loan>,
    bytes: u64,
    returning: Vec<Run>,
    /// When the file system last had no room for blocks that were to return.
    refused: Option<Duration>,
}

/// The blocks that a table names and those it has free though they are not yet.
#[derive(Debug, Default)]
pub(crate) struct Named {
    pub loans: Vec<Run>,
    pub returning: Vec<Run>,
}

impl Loans {
    fn new(possible: bool, runs: Vec<Run>) -> Loans {
        let bytes = runs.iter().map(|run| run.bytes).sum();
        let loans = runs.into_iter().map(|run| Loan { run, is_hole: false }).collect();
        Loans { possible, loans, bytes, ..Loans::default() }
    }

    /// Blocks on loan or on their way back: in use, and nothing of the index refers to them.
    fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.loans.iter().map(|loan| loan.run).chain(self.returning.iter().copied())
    }

    /// Takes `want` bytes or more on loan; less when there is not that much. The runs taken.
    fn take(&mut self, space: &mut Space, want: u64) -> Vec<Run> {
        let step = step_bytes(space.bytes());
        let mut left = want.next_multiple_of(step);
        let mut taken = Vec::new();
        while self.possible && left > 0 {
            if space.longest_free().is_none_or(|run| run.bytes < RUN_BYTES_MIN) {
                break;
            }
            let Ok(run) = space.take(left.min(step)) else { break };
            left = left.saturating_sub(run.bytes);
            self.bytes += run.bytes;
            self.loans.push(Loan { run, is_hole: false });
            taken.push(run);
        }
        taken
    }

    /// What a table of this moment says.
    fn named(&self) -> Named {
        let loans = self.loans.iter().map(|loan| loan.run).collect();
        Named { loans, returning: self.returning.clone() }
    }

    /// The last loans of `bytes` at most, so that others remain.
    fn surplus(&self, bytes: u64) -> Vec<Run> {
        let mut left = bytes;
        let fits = |loan: &&Loan| {
            let fits = loan.run.bytes <= left;
            left -= if fits { loan.run.bytes } else { 0 };
            fits
        };
        self.loans.iter().rev().filter(fits).map(|loan| loan.run).collect()
    }

    /// No longer on loan.
    fn end(&mut self, run: Run) {
        if let Some(at) = self.loans.iter().position(|loan| loan.run == run) {
            self.loans.remove(at);
            self.bytes -= run.bytes;
        }
    }
}

/// How much is taken on loan, or returned, in one go, bytes.
pub(crate) fn step_bytes(area_bytes: u64) -> u64 {
    let step = (area_bytes / STEP_SHARE).clamp(STEP_BYTES_MIN, STEP_BYTES_MAX);
    step.next_multiple_of(BLOCK_BYTES)
}

/// The section of a table.
pub(crate) fn encode(named: &Named) -> Vec<u8> {
    let block_runs = named.loans.iter().map(|run| (run.first_block(), run.bytes / BLOCK_BYTES));
    let mut block_runs: Vec<(u64, u64)> = block_runs.collect();
    block_runs.sort_unstable();
    wire::encode(&block_runs)
}

/// The blocks that a section names, all of which `space` has in use. `Csum` when they are not.
pub(crate) fn decode(raw: &[u8], space: &Space) -> Result<Vec<Run>> {
    let bad = || Error::new(Code::Csum, "table of pages: impossible blocks on loan");
    let block_runs: Vec<(u64, u64)> = wire::decode(raw).map_err(|_| bad())?;
    let mut runs = Vec::with_capacity(block_runs.len());
    let mut end = 0;
    for (first, count) in block_runs {
        let stop = first.checked_add(count).filter(|&stop| stop <= space.bytes() / BLOCK_BYTES);
        let stop = stop.filter(|_| first >= end && count > 0).ok_or_else(bad)?;
        let run = Run { at: first * BLOCK_BYTES, bytes: count * BLOCK_BYTES };
        if space.next_free(run.at).is_some_and(|free| free.first_block() < stop) {
            return Err(bad());
        }
        end = stop;
        runs.push(run);
    }
    Ok(runs)
}

/// The loans of a shard.
pub(crate) struct Lending(RefCell<Loans>);

impl Lending {
    /// Loans are made if it is `possible`; `runs` are on loan already.
    pub(crate) fn new(possible: bool, runs: Vec<Run>) -> Lending {
        Lending(RefCell::new(Loans::new(possible, runs)))
    }

    /// True when tiers lend each other room.
    pub(crate) fn are_possible(&self) -> bool {
        self.0.borrow().possible
    }

    /// On loan now, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.borrow().bytes
    }

    /// Counts blocks on loan or on their way back: in use, and nothing of the index refers to them.
    pub(crate) fn claim(&self, space: &mut Space) -> Result<()> {
        self.0.borrow().runs().try_for_each(|run| space.claim(run))
    }

    /// Takes `want` bytes or more on loan; less when there is not that much. The runs taken.
    pub(crate) fn take(&self, space: &mut Space, want: u64) -> Vec<Run> {
        self.0.borrow_mut().take(space, want)
    }

    /// The last loans of `bytes` at most, so that others remain.
    pub(crate) fn surplus(&self, bytes: u64) -> Vec<Run> {
        self.0.borrow().surplus(bytes)
    }

    /// No longer on loan.
    pub(crate) fn end(&self, run: Run) {
        self.0.borrow_mut().end(run);
    }

    /// No longer on loan, but not free before the next table is durable.
    pub(crate) fn begin_return(&self, run: Run) {
        let mut loans = self.0.borrow_mut();
        loans.end(run);
        loans.returning.push(run);
    }

    /// It is free.
    pub(crate) fn returned(&self, run: Run) {
        self.0.borrow_mut().returning.retain(|other| *other != run);
    }

    /// When the file system last had no room for blocks that were to return.
    pub(crate) fn refused(&self) -> Option<Duration> {
        self.0.borrow().refused
    }

    /// The file system had no room for such blocks, or has some again.
    pub(crate) fn note_refused(&self, refused: Option<Duration>) {
        self.0.borrow_mut().refused = refused;
    }

    /// What a table of this moment says.
    pub(crate) fn named(&self) -> Named {
        self.0.borrow().named()
    }

    /// True when blocks are on loan and still have their room in the data area.
    pub(crate) fn has_room(&self, run: Run) -> bool {
        self.0.borrow().loans.iter().any(|loan| loan.run == run && !loan.is_hole)
    }

    /// They have it no more.
    pub(crate) fn gave_room(&self, run: Run) {
        let mut loans = self.0.borrow_mut();
        loans.loans.iter_mut().filter(|loan| loan.run == run).for_each(|loan| loan.is_hole = true);
    }
}
