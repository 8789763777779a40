//! How much of the index may be in memory, over all shards of a store, and which loads of it are under way.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// Memory for the index of a target, if nothing else is said, bytes.
pub const METADATA_CACHE_DEFAULT: u64 = 1 << 30;

/// Memory of the shards `S` of a store together.
pub(crate) struct Cache<S> {
    /// Counted bytes that may be in memory.
    pub limit_bytes: u64,
    shards: RefCell<Vec<Weak<S>>>,
}

impl<S> Cache<S> {
    pub(crate) fn new(limit_bytes: u64) -> Rc<Cache<S>> {
        Rc::new(Cache { limit_bytes, shards: RefCell::default() })
    }

    pub(crate) fn add(&self, shard: &Rc<S>) {
        let mut shards = self.shards.borrow_mut();
        shards.retain(|shard| shard.strong_count() > 0);
        shards.push(Rc::downgrade(shard));
    }

    /// True when there are several shards, or were.
    pub(crate) fn has_several(&self) -> bool {
        self.shards.borrow().len() > 1
    }

    /// What is in memory in all, and the shard with most of it; `bytes_of` is what one has.
    pub(crate) fn usage(&self, bytes_of: impl Fn(&S) -> u64) -> (u64, Option<Rc<S>>) {
        let shards = self.shards.borrow();
        let mut sum = 0;
        let mut largest: Option<(u64, Rc<S>)> = None;
        for shard in shards.iter().filter_map(Weak::upgrade) {
            let bytes = bytes_of(&shard);
            sum += bytes;
            if largest.as_ref().is_none_or(|(most, _)| bytes > *most) {
                largest = Some((bytes, shard));
            }
        }
        (sum, largest.map(|(_, shard)| shard))
    }
}

/// Loads under way in a shard.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    last_ticket: Cell<u64>,
    /// Tickets of loads under way.
    active: RefCell<Vec<u64>>,
}

impl Loads {
    /// Begins a load.
    pub(crate) fn begin(&self) -> Ticket<'_> {
        let number = self.last_ticket.get() + 1;
        self.last_ticket.set(number);
        self.active.borrow_mut().push(number);
        Ticket { loads: self, number }
    }

    /// The load that began last.
    pub(crate) fn last(&self) -> u64 {
        self.last_ticket.get()
    }

    /// Loads with this number or a later one are under way.
    pub(crate) fn oldest(&self) -> u64 {
        self.active.borrow().iter().min().copied().unwrap_or(u64::MAX)
    }
}

/// A load under way: its pages are not forgotten.
pub(crate) struct Ticket<'a> {
    loads: &'a Loads,
    pub number: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.loads.active.borrow_mut().retain(|&number| number != self.number);
    }
}
