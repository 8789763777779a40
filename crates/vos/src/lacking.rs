//! What a shard may lack: since when it has taken changes while it lacked others, and how new the pool map was that its last changes
//! were made by.
//!
//! A member of a group that was away takes orders before it has all that it missed. Keys that these touch look as new as
//! the leader's, and are not the same. Which ones those are is known until the engine ends; after that all that is as new as the
//! first of these orders, or newer, may be such a key.

use crate::Lsn;
use crate::record::RecordDf;
use crate::shard::PoolShard;
use types::{Epoch, Result};
use wire::versions::ALL_IS_HERE;

impl PoolShard {
    /// What is as new as this, or newer, may have been changed while earlier changes were missing. `None`: nothing is missing.
    pub fn lacks_since(&self) -> Option<Epoch> {
        self.state.borrow().lacks_since
    }

    /// Notes that changes from an epoch on come while others are missing, before the first of them is logged.
    pub fn begin_lacking(&self, since: Epoch) -> Result<()> {
        if self.lacks_since().is_some_and(|known| known <= since) {
            return Ok(());
        }
        self.note_lacking(Some(since)).map(|_| ())
    }

    /// Notes that nothing is missing any more.
    pub fn end_lacking(&self) -> Result<()> {
        match self.lacks_since() {
            None => Ok(()),
            Some(_) => self.note_lacking(None).map(|_| ()),
        }
    }

    /// Version of the newest pool map that was noted before the last of what was here when the shard was opened; zero: none was. What was done by newer ones is not
    /// here, whatever was lost with the end of the log. [`ALL_IS_HERE`] when it was ended in good order.
    pub fn kept_map_version(&self) -> u32 {
        self.end_of_log.kept()
    }

    /// Notes by which map changes are made from now on. What cannot be written is not noted: no changes come any more.
    pub fn note_map(&self, version: u32) {
        if version > self.state.borrow().map_version && self.writable().is_ok() {
            self.write_map_version(version);
        }
    }

    /// Notes that nothing is done any more, and all that was done is here; before the shard is closed.
    pub fn note_end(&self) {
        if self.writable().is_ok() {
            self.end_of_log.write(self.write_map_version(ALL_IS_HERE));
        }
    }

    /// Takes back what was noted as the end, if something came after it.
    pub(crate) fn take_back_end(&self) {
        let is_last = |end: Lsn| self.wal.as_ref().is_some_and(|wal| wal.last() == end);
        if self.end_of_log.take().is_some_and(|end| !is_last(end)) {
            self.write_map_version(0);
        }
    }

    /// Takes what was noted before the shard was opened. Changes begin when it is written down that they may.
    pub(crate) async fn begin_maps(&self) -> Result<()> {
        let kept = self.state.borrow().map_version;
        self.end_of_log.find(kept);
        if kept == ALL_IS_HERE
            && let Some(wal) = &self.wal
        {
            let lsn = self.write_map_version(0);
            wal.written(lsn).await?;
        }
        Ok(())
    }

    fn write_map_version(&self, version: u32) -> Lsn {
        self.state.borrow_mut().map_version = version;
        self.log_record(&RecordDf::FollowsMap { version })
    }

    fn note_lacking(&self, since: Option<Epoch>) -> Result<Lsn> {
        self.writable()?;
        self.state.borrow_mut().lacks_since = since;
        Ok(self.log_record(&RecordDf::Lacks { since }))
    }
}
