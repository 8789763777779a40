//! Which pages of the index are known to be damaged, and who is told of them.

use std::cell::RefCell;
use std::collections::BTreeSet;

use types::PoolId;

use crate::index::page::PageId;

/// Damaged pages that were found since the shard was opened, or when it was.
#[derive(Default)]
pub(crate) struct DamagedPages {
    found: RefCell<BTreeSet<PageId>>,
    tell: RefCell<Option<Box<dyn Fn()>>>,
}

impl DamagedPages {
    pub(crate) fn new(found: &BTreeSet<PageId>) -> DamagedPages {
        DamagedPages { found: RefCell::new(found.clone()), tell: RefCell::default() }
    }

    /// A page that was read twice is not what it should be.
    pub(crate) fn note(&self, pool: PoolId, id: &PageId) {
        if self.found.borrow_mut().insert(id.clone()) {
            tracing::error!(%pool, "{id}: the page of the index is damaged");
            if let Some(tell) = &*self.tell.borrow() {
                tell();
            }
        }
    }

    /// Calls `tell` whenever another one is found, and at once when there is one already.
    pub(crate) fn on_found(&self, tell: Box<dyn Fn()>) {
        if !self.found.borrow().is_empty() {
            tell();
        }
        self.tell.replace(Some(tell));
    }

    /// All that are known.
    pub(crate) fn known(&self) -> BTreeSet<PageId> {
        self.found.borrow().clone()
    }

    /// It was given up.
    pub(crate) fn forget(&self, id: &PageId) {
        self.found.borrow_mut().remove(id);
    }
}
