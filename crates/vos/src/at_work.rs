//! Whether somebody is at something that one at a time does.

use std::cell::Cell;

/// Set from [`AtWork::begin`] until [`AtWork::end`].
#[derive(Debug, Default)]
pub(crate) struct AtWork(Cell<bool>);

impl AtWork {
    /// False when somebody is at it already.
    #[must_use = "who is not to begin does not end it either"]
    pub fn begin(&self) -> bool {
        !self.0.replace(true)
    }

    pub fn end(&self) {
        self.0.set(false);
    }

    /// True while somebody is at it.
    pub fn is_on(&self) -> bool {
        self.0.get()
    }
}
