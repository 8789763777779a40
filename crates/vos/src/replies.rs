//! Replies that a shard keeps for requests that are sent again ([`crate::retry`]).

use types::{ClientId, Result, Unit};
use wire::obj::TxId;

use crate::Lsn;
use crate::record::RecordDf;
use crate::retry::Origin;
use crate::shard::PoolShard;

impl PoolShard {
    /// The reply to a recent update of this transaction, if it was applied here. `Io` when it was,
    /// but the log has failed since, so that it may not last.
    pub fn replayed(&self, tx: TxId) -> Result<Option<Vec<u8>>> {
        let reply = self.state.borrow().retry.find(tx).map(<[u8]>::to_vec);
        if reply.is_some() {
            self.writable()?;
        }
        Ok(reply)
    }

    /// Transactions of which members of groups keep the replies, in order, each with a unit that it has changed.
    pub fn shared_replies(&self) -> Vec<(TxId, Unit)> {
        let state = self.state.borrow();
        let shared = state.retry.iter().filter_map(|origin| Some((origin.tx, origin.of?)));
        let mut shared: Vec<(TxId, Unit)> = shared.collect();
        shared.sort_unstable_by_key(|(tx, _)| *tx);
        shared
    }

    /// Keeps a reply that another member has given, of an update that is here.
    pub fn keep_reply(&self, origin: Origin<'_>) -> Result<Lsn> {
        self.writable()?;
        let origin = origin.durable();
        self.state.borrow_mut().retry.remember(origin);
        Ok(self.log_record(&RecordDf::Reply { origin }))
    }

    /// Forgets a reply to an update that was taken back.
    pub fn forget_reply(&self, tx: TxId) -> Result<Lsn> {
        self.writable()?;
        self.state.borrow_mut().retry.forget_reply(tx);
        Ok(self.log_record(&RecordDf::ForgetReply { tx }))
    }

    /// Forgets the replies to a client that is gone for good. Not logged: after a restart they
    /// are there again, to no harm.
    pub fn forget_client(&self, client: ClientId) {
        self.state.borrow_mut().retry.forget(client);
    }
}
