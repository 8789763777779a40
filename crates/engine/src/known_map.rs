//! The newest pool map that a target knows, and how it came to it.

use crate::map_changes::MapChanges;
use std::cell::RefCell;
use std::rc::Rc;
use wire::map::PoolMap;
use wire::stale::NewerMap;

/// A pool's map as one target knows it: nothing until the first one has come.
#[derive(Default)]
pub(crate) struct KnownMap {
    newest: RefCell<Option<Rc<PoolMap>>>,
    changes: MapChanges,
}

impl KnownMap {
    pub fn get(&self) -> Option<Rc<PoolMap>> {
        self.newest.borrow().clone()
    }

    /// Zero before the first one.
    pub fn version(&self) -> u32 {
        self.newest.borrow().as_ref().map_or(0, |map| map.version)
    }

    /// True when objects that are alone may move.
    pub fn moves_single_members(&self) -> bool {
        self.newest.borrow().as_ref().is_some_and(|map| map.moves_single_members())
    }

    /// Takes a newer one; that before it.
    pub fn take(&self, map: Rc<PoolMap>) -> Option<Rc<PoolMap>> {
        let before = self.newest.replace(Some(map.clone()));
        self.changes.note(before.as_deref(), &map);
        before
    }

    /// See [`MapChanges::since`].
    pub fn since(&self, version: u32) -> Option<NewerMap> {
        self.changes.since(version, self.newest.borrow().as_deref()?)
    }
}
