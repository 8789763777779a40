//! What a shard holds back until it is on stable storage ([`crate::unsettled`]), if its pool promises that.

use types::{ContId, Durability, Result, Unit};
use wire::obj::Op;

use crate::Lsn;
use crate::record::ChangeDf;
use crate::shard::PoolShard;
use crate::summary::Summary;

impl PoolShard {
    /// Reads show only what is on stable storage.
    fn holds_back(&self) -> bool {
        self.config().durability == Durability::Wal
    }

    /// Notes what a record changes, in the step that logs it.
    pub(crate) fn note_unsettled(&self, lsn: Lsn, cont: ContId, ops: &[Op<'_>]) {
        if self.holds_back() {
            self.unsettled.note_ops(self.durable_lsn(), lsn, cont, ops);
        }
    }

    /// Notes what a record changes, by its changes.
    pub(crate) fn note_changes(&self, lsn: Lsn, cont: ContId, changes: &[ChangeDf<'_>]) {
        if self.holds_back() {
            self.unsettled.note_changes(self.durable_lsn(), lsn, cont, changes);
        }
    }

    /// The newest record that is not on stable storage yet and that a batch can see, whether it succeeds or fails; zero
    /// when there is none. To be asked in the step that looks; the answer leaves after [`PoolShard::durable`].
    pub fn newest_seen(&self, cont: ContId, batch: &Summary) -> Lsn {
        self.unsettled.seen(|| self.durable_lsn(), cont, batch)
    }

    /// The same for the size of an array, or what else depends on all of a unit.
    pub fn newest_of_unit(&self, cont: ContId, unit: Unit) -> Lsn {
        self.unsettled.newest_of(|| self.durable_lsn(), cont, unit)
    }

    /// Waits until all that can be seen now is on stable storage, as far as the pool promises that.
    /// `Io` when the log has failed.
    pub async fn settled(&self) -> Result<()> {
        self.durable(self.last_lsn()).await
    }

    /// The newest record up to which everything may be shown: no crash takes it back, or the pool does not promise that.
    pub fn shown_lsn(&self) -> Lsn {
        match self.holds_back() {
            true => self.durable_lsn(),
            false => self.last_lsn(),
        }
    }

    fn durable_lsn(&self) -> Lsn {
        self.wal.as_ref().map_or(Lsn(0), |wal| wal.durable_lsn())
    }
}
