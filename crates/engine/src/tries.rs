//! Requests that are being run: another try of one waits for the first.

use crate::waiters::Waiters;
use std::cell::RefCell;
use types::map::HashSet;
use wire::obj::TxId;

/// By their transaction ids.
#[derive(Default)]
pub(crate) struct Tries {
    running: RefCell<HashSet<TxId>>,
    ends: Waiters<TxId>,
}

impl Tries {
    pub fn begin(&self, tx: TxId) {
        self.running.borrow_mut().insert(tx);
    }

    /// It has been run: those who wait for that go on.
    pub fn end(&self, tx: TxId) {
        self.running.borrow_mut().remove(&tx);
        self.ends.wake(&tx);
    }

    /// Waits until it is not being run.
    pub async fn over(&self, tx: TxId) {
        while self.running.borrow().contains(&tx) {
            self.ends.wait_long(tx).await;
        }
    }
}
