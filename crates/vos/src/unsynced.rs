//! Whether data were written that the device may not hold yet: told by who writes them, asked by the log.

use std::cell::Cell;
use std::rc::Rc;

/// Something was written to the data area that the device may not hold yet. The log syncs it before the next batch, which may name it.
#[derive(Clone, Default)]
pub(crate) struct Unsynced(Rc<Cell<bool>>);

impl Unsynced {
    pub(crate) fn note(&self) {
        self.0.set(true);
    }

    /// True when something was noted since it was last asked.
    pub(crate) fn take(&self) -> bool {
        self.0.take()
    }
}
