//! The retry window: what was answered to recent updates, so that a request sent again after a
//! lost reply is not applied twice.
//!
//! Per client the last [`WINDOW`] replies by the client's own count. Older ones are dropped: a
//! client never has that many requests of one target in doubt.

use std::collections::{HashMap, VecDeque};

use crate::Lsn;
use crate::record::{OriginDf, RecordDf};
use crate::shard::{Origin, PoolShard};
use smallvec::SmallVec;
use types::{ClientId, Result, Unit};
use wire::obj::TxId;

/// Replies kept per client.
pub(crate) const WINDOW: usize = 256;

type Replies = VecDeque<Reply>;

#[derive(Debug)]
struct Reply {
    seq: u64,
    /// See [`Origin::of`].
    of: Option<Box<Unit>>,
    bytes: SmallVec<[u8; 32]>,
}

#[derive(Debug, Default)]
pub(crate) struct RetryWindow {
    clients: HashMap<ClientId, Replies, foldhash::fast::FixedState>,
}

impl RetryWindow {
    /// Remembers a reply; a second one for the same transaction replaces the first.
    pub(crate) fn remember(&mut self, origin: OriginDf<'_>) {
        let OriginDf { tx: TxId { client, seq }, of, reply } = origin;
        let replies = self.clients.entry(client).or_default();
        let reply = Reply { seq, of: of.map(Box::new), bytes: SmallVec::from_slice(reply) };
        match replies.back() {
            Some(last) if last.seq >= seq => {
                match replies.binary_search_by_key(&seq, |reply| reply.seq) {
                    Ok(at) => replies[at] = reply,
                    Err(at) => replies.insert(at, reply),
                }
            }
            _ => replies.push_back(reply),
        }
        if replies.len() > WINDOW {
            replies.pop_front();
        }
    }

    /// The reply given to a transaction, if it is in the window.
    pub(crate) fn find(&self, tx: TxId) -> Option<&[u8]> {
        let replies = self.clients.get(&tx.client)?;
        let at = replies.binary_search_by_key(&tx.seq, |reply| reply.seq).ok()?;
        Some(&replies[at].bytes)
    }

    /// Forgets the reply to one transaction, if it is here.
    pub(crate) fn forget_reply(&mut self, tx: TxId) {
        if let Some(replies) = self.clients.get_mut(&tx.client)
            && let Ok(at) = replies.binary_search_by_key(&tx.seq, |reply| reply.seq)
        {
            replies.remove(at);
        }
    }

    /// Forgets a client that is gone for good.
    pub(crate) fn forget(&mut self, client: ClientId) {
        self.clients.remove(&client);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = OriginDf<'_>> {
        self.clients.iter().flat_map(|(&client, replies)| {
            replies.iter().map(move |Reply { seq, of, bytes }| OriginDf {
                tx: TxId { client, seq: *seq },
                of: of.as_deref().copied(),
                reply: bytes,
            })
        })
    }
}

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
        let origin = OriginDf { tx: origin.tx, of: origin.of, reply: origin.reply };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_greatest_counts_in_any_order_of_arrival() {
        let mut window = RetryWindow::default();
        let tx = |seq| TxId { client: ClientId(4), seq };
        fn origin(seq: u64, reply: &[u8]) -> OriginDf<'_> {
            OriginDf { tx: TxId { client: ClientId(4), seq }, of: None, reply }
        }
        for seq in (0..WINDOW as u64 + 10).rev() {
            window.remember(origin(seq, &seq.to_le_bytes()));
        }
        assert_eq!(window.find(tx(9)), None);
        assert_eq!(window.find(tx(10)), Some(&10u64.to_le_bytes()[..]));
        window.remember(origin(1000, b"long reply that does not fit into the inline room"));
        assert_eq!(window.find(tx(10)), None);
        assert!(window.find(tx(1000)).unwrap().starts_with(b"long"));
        window.remember(origin(1000, b"again"));
        assert_eq!(window.find(tx(1000)), Some(&b"again"[..]));
        window.forget_reply(tx(999));
        window.forget_reply(tx(11));
        assert_eq!((window.find(tx(11)), window.find(tx(12)).is_some()), (None, true));
        window.forget(ClientId(4));
        assert_eq!(window.find(tx(1000)), None);
    }
}
