//! Loans of the data area follow what the index needs ([`crate::loans`]): what it needs no more goes back, around checkpoints.

use std::time::Duration;

use crate::data_area::Medium;
use crate::loans::{Named, step_bytes};
use crate::shard::PoolShard;

/// Loans that the index needs no more go back when they are this many steps, and a checkpoint of their own is worth it.
const STEPS_RETURNED: u64 = 4;
/// After a return that the file system had no room for, the next is tried no earlier.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

impl PoolShard {
    /// Bytes on loan that the index can do without.
    fn surplus_bytes(&self) -> u64 {
        let used = self.state.borrow().index.scm_bytes + self.core.promised.bytes();
        let step = step_bytes(self.core.space.borrow().bytes());
        let spare = self.core.scm_limit().saturating_sub(used + step);
        spare.min(self.core.loans.bytes())
    }

    /// The index has become smaller: what it has on loan may go back.
    pub(crate) fn return_if_due(&self) {
        if self.core.loans.bytes() == 0 || self.is_closed() {
            return;
        }
        let surplus = self.surplus_bytes();
        let step = step_bytes(self.core.space.borrow().bytes());
        let all = surplus >= self.core.loans.bytes();
        if surplus < STEPS_RETURNED * step && !(all && surplus > 0) {
            return;
        }
        if let Medium::Arena(_) = self.core.medium {
            for run in self.core.loans.surplus(surplus) {
                self.core.loans.end(run);
                self.core.space.borrow_mut().give_back(run);
            }
            return;
        }
        let now = self.core.env.now();
        let refused = self.core.loans.refused();
        if refused.is_none_or(|refused| now >= refused + RETRY_PAUSE) {
            self.begin_checkpoint();
        }
    }

    /// Before a checkpoint: what the index can do without gets its room in the data area again.
    pub(crate) async fn begin_returns(&self) {
        let Medium::File(file) = &self.core.medium else { return };
        for run in self.core.loans.surplus(self.surplus_bytes()) {
            if let Err(error) = file.allocate(run.at, run.bytes).await {
                tracing::debug!(pool = %self.pool, %error, "room on loan cannot return yet");
                self.core.loans.note_refused(Some(self.core.env.now()));
                return;
            }
            // The index may have grown meanwhile.
            if self.surplus_bytes() < run.bytes {
                return;
            }
            self.core.loans.begin_return(run);
            self.core.space.borrow_mut().free_in_tables(run);
        }
        self.core.loans.note_refused(None);
    }

    /// A table that names these is durable.
    pub(crate) async fn loans_durable(&self, named: Named) {
        for run in named.returning {
            self.core.loans.returned(run);
            self.core.space.borrow_mut().give_back(run);
        }
        let Medium::File(file) = &self.core.medium else { return };
        for run in named.loans {
            if !self.core.loans.has_room(run) {
                continue;
            }
            if let Err(error) = file.discard(run.at, run.bytes).await {
                // The index counts on it all the same: what the file system lacks it will say.
                tracing::debug!(pool = %self.pool, %error, "room on loan stays in the data area");
                return;
            }
            self.core.loans.gave_room(run);
        }
    }
}
