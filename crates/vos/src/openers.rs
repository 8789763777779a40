//! Clients that hold objects open, as the log knows them: after a restart they are waited for.
//!
//! The handles themselves live in memory, above this crate. A client is noted before its first handle
//! is answered, and forgotten some time after its last one is closed, so that the log sees few of both.

use types::ClientId;

use crate::Lsn;
use crate::record::RecordDf;
use crate::shard::PoolShard;

impl PoolShard {
    /// Clients noted, ascending. None in a shard without a log.
    pub fn openers(&self) -> Vec<ClientId> {
        self.state.borrow().openers.keys().copied().collect()
    }

    /// True when the client is noted.
    pub fn is_opener(&self, client: ClientId) -> bool {
        self.state.borrow().openers.contains_key(&client)
    }

    /// Notes a client that is about to hold something open. What is logged from now on is behind the
    /// note; [`PoolShard::noted`] waits for the note itself.
    pub fn note_opener(&self, client: ClientId) -> Lsn {
        let known = self.state.borrow().openers.get(&client).copied();
        known.unwrap_or_else(|| self.change_opener(client, true))
    }

    /// Waits until a crash cannot undo a note, however durable the pool is otherwise. Not where the log
    /// takes nothing: what can be read stays readable, and nothing is removed meanwhile.
    pub async fn noted(&self, note: Lsn) {
        if let Some(wal) = &self.wal
            && !wal.is_stuck()
        {
            // Who writes is told of a log that has failed.
            let _ = wal.written(note).await;
        }
    }

    /// Forgets a client that holds nothing open any more; no effect when it is not noted.
    pub fn forget_opener(&self, client: ClientId) {
        if self.is_opener(client) {
            self.change_opener(client, false);
        }
    }

    /// Not by [`PoolShard::change`]: that may give memory back, and the caller may be in the middle of a
    /// step that counts on what it has made ready.
    fn change_opener(&self, client: ClientId, holds: bool) -> Lsn {
        if self.wal.is_none() || self.writable().is_err() {
            return Lsn(0);
        }
        let lsn = self.log_record(&RecordDf::Opener { client, holds });
        self.state.borrow_mut().note_opener(client, holds, lsn);
        lsn
    }
}
