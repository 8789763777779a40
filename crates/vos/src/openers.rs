//! Clients that hold objects open, as the log knows them: after a restart they are waited for.
//!
//! The handles themselves live in memory, above this crate. A client is noted before its first handle
//! is answered, and forgotten some time after its last one is closed, so that the log sees few of both.

use types::{ClientId, HostProcess};

use crate::Lsn;
use crate::record::RecordDf;
use crate::shard::PoolShard;

/// A client that is noted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opener {
    pub client: ClientId,
    /// Its process, if it was on this host.
    pub process: Option<HostProcess>,
    /// How long it was waited for in vain, over all restarts since it was last there, seconds.
    pub awaited_s: u32,
}

impl PoolShard {
    /// Clients noted, ascending. None in a shard without a log.
    pub fn openers(&self) -> Vec<Opener> {
        self.state.borrow().openers.keys().filter_map(|client| self.opener(*client)).collect()
    }

    /// What is known of a client; `None` when it is not noted.
    pub fn opener(&self, client: ClientId) -> Option<Opener> {
        let noted = self.state.borrow().openers.get(&client).copied();
        noted.map(|noted| Opener { client, process: noted.process, awaited_s: noted.awaited_s })
    }

    /// True when the client is noted.
    pub fn is_opener(&self, client: ClientId) -> bool {
        self.state.borrow().openers.contains_key(&client)
    }

    /// Notes a client that is about to hold something open; `process` finds its process on this host. What is logged
    /// from now on is behind the note; [`PoolShard::noted`] waits for the note itself.
    pub fn note_opener(
        &self,
        client: ClientId,
        process: impl FnOnce() -> Option<HostProcess>,
    ) -> Lsn {
        let known = self.state.borrow().openers.get(&client).map(|noted| noted.lsn);
        known.unwrap_or_else(|| {
            let lsn = self.change_opener(client, true);
            // Finding a process reads several files: not again and again where nobody is noted, as in pools in memory.
            if self.is_opener(client) {
                self.trace_opener(client, process(), 0);
            }
            lsn
        })
    }

    /// Notes how long a client has been waited for in vain, seconds; no effect when it is not noted.
    pub fn note_awaited(&self, client: ClientId, awaited_s: u32) {
        if let Some(opener) = self.opener(client) {
            self.trace_opener(client, opener.process, awaited_s);
        }
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

    /// The same.
    fn trace_opener(&self, client: ClientId, process: Option<HostProcess>, awaited_s: u32) {
        let is_news = self
            .opener(client)
            .is_some_and(|known| (known.process, known.awaited_s) != (process, awaited_s));
        if is_news && self.wal.is_some() && self.writable().is_ok() {
            self.log_record(&RecordDf::OpenerTrace { client, process, awaited_s });
            self.state.borrow_mut().trace_opener(client, process, awaited_s);
        }
    }
}
