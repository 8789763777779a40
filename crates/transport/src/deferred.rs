//! Bulk that a client keeps until the engine asks for it: the engine's side.
//!
//! A request with [`FLAG_DEFERRED_BULK`](wire::header::FLAG_DEFERRED_BULK) tells how long its bulk
//! is and leaves it at the client. When the engine begins to read it, the client is asked for it,
//! and the bulk follows in a frame of its own. So a held transfer neither blocks the stream for
//! requests behind it nor fills the engine's memory.
//!
//! Invariants: data that was not asked for is a breach of the protocol; data whose reader has
//! gone is thrown away. A wait ends when the connection does.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::Waker;
use types::map::HashMap;
use types::{Code, Error, Result};

/// Most requests of one connection whose bulk is deferred.
pub(crate) const DEFERRED_COUNT_MAX: usize = 4096;

/// Where a deferred bulk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// At the client, which waits to be asked.
    Kept,
    /// On its way: the client was asked for it.
    Going,
    /// Next in the stream.
    Arrived,
    /// The client has given up.
    Canceled,
}

pub(crate) struct Deferred {
    pub request_id: u64,
    bytes: u32,
    stage: Cell<Stage>,
    reader: RefCell<Option<Waker>>,
}

impl Deferred {
    pub fn stage(&self) -> Stage {
        self.stage.get()
    }

    /// The client is about to be asked for it.
    pub fn set_going(&self) {
        self.stage.set(Stage::Going);
    }

    pub fn note_reader(&self, waker: &Waker) {
        self.reader.replace(Some(waker.clone()));
    }

    fn move_to(&self, stage: Stage) {
        self.stage.set(stage);
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }
}

/// The deferred bulks of a connection, and who wants to know of clients that give up.
#[derive(Default)]
pub(crate) struct DeferredTable {
    kept: RefCell<HashMap<u64, Rc<Deferred>>>,
    watchers: RefCell<BTreeMap<u64, Waker>>,
    watcher_last: Cell<u64>,
}

impl DeferredTable {
    /// Notes a request whose bulk is deferred.
    pub fn add(&self, request_id: u64, bytes: u32) -> Result<Rc<Deferred>> {
        let mut kept = self.kept.borrow_mut();
        if kept.len() >= DEFERRED_COUNT_MAX {
            return Err(Error::new(Code::Proto, "too many requests wait to send their data"));
        }
        if kept.contains_key(&request_id) {
            return Err(Error::new(
                Code::Proto,
                format!("request {request_id:#x} waits to send its data already"),
            ));
        }
        let stage = Cell::new(Stage::Kept);
        let deferred = Rc::new(Deferred { request_id, bytes, stage, reader: RefCell::default() });
        kept.insert(request_id, deferred.clone());
        Ok(deferred)
    }

    /// Takes in a data frame; true when somebody reads it, false when it is to be thrown away.
    pub fn arrived(&self, request_id: u64, bytes: u32) -> Result<bool> {
        let mut kept = self.kept.borrow_mut();
        let Some(deferred) = kept.get(&request_id) else {
            // Its reader has gone after asking for it.
            return Ok(false);
        };
        if deferred.stage() != Stage::Going || deferred.bytes != bytes {
            return Err(Error::new(
                Code::Proto,
                format!("{bytes} bytes for request {request_id:#x} were not asked for"),
            ));
        }
        if let Some(deferred) = kept.remove(&request_id) {
            deferred.move_to(Stage::Arrived);
        }
        Ok(true)
    }

    /// The client has given up a request. One that is not known was answered meanwhile.
    pub fn cancel(&self, request_id: u64) {
        let deferred = self.kept.borrow_mut().remove(&request_id);
        if let Some(deferred) = deferred {
            deferred.move_to(Stage::Canceled);
            self.wake_watchers();
        }
    }

    /// The reader of a bulk has gone.
    pub fn forget(&self, deferred: &Rc<Deferred>) {
        let mut kept = self.kept.borrow_mut();
        if kept.get(&deferred.request_id).is_some_and(|held| Rc::ptr_eq(held, deferred)) {
            kept.remove(&deferred.request_id);
        }
    }

    /// The connection has ended.
    pub fn close(&self) {
        for deferred in self.kept.take().into_values() {
            deferred.move_to(Stage::Canceled);
        }
        self.wake_watchers();
    }

    /// A place for one who watches.
    pub fn new_watcher(&self) -> u64 {
        self.watcher_last.set(self.watcher_last.get() + 1);
        self.watcher_last.get()
    }

    pub fn watch(&self, watcher: u64, waker: &Waker) {
        self.watchers.borrow_mut().insert(watcher, waker.clone());
    }

    pub fn unwatch(&self, watcher: u64) {
        self.watchers.borrow_mut().remove(&watcher);
    }

    fn wake_watchers(&self) {
        for waker in self.watchers.take().into_values() {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_comes_once_as_long_as_said_and_only_when_asked_for() {
        let table = DeferredTable::default();
        let first = table.add(1, 100).unwrap();
        assert_eq!(table.add(1, 100).err().unwrap().code, Code::Proto);
        assert_eq!(table.arrived(1, 100).unwrap_err().code, Code::Proto, "nobody said go");
        first.set_going();
        assert_eq!(table.arrived(1, 99).unwrap_err().code, Code::Proto, "another length");
        assert!(table.arrived(1, 100).unwrap());
        assert_eq!(first.stage(), Stage::Arrived);
        assert!(!table.arrived(1, 100).unwrap(), "nobody waits any more");
        let second = table.add(2, 5).unwrap();
        table.cancel(2);
        table.cancel(2);
        assert_eq!(second.stage(), Stage::Canceled);
        // The same number again: the old reader's end does not touch the new one.
        let third = table.add(2, 6).unwrap();
        table.forget(&second);
        third.set_going();
        assert!(table.arrived(2, 6).unwrap());
        let last = table.add(9, 1).unwrap();
        table.close();
        assert_eq!(last.stage(), Stage::Canceled);
        for id in 0..DEFERRED_COUNT_MAX as u64 {
            table.add(id, 1).unwrap();
        }
        assert_eq!(table.add(u64::MAX, 1).err().unwrap().code, Code::Proto);
    }
}
