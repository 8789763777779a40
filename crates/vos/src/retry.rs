//! The retry window: what was answered to recent updates, so that a request sent again after a
//! lost reply is not applied twice.
//!
//! Per client the last [`WINDOW`] replies by the client's own count. Older ones are dropped: a
//! client never has that many requests of one target in doubt.

use std::collections::{HashMap, VecDeque};

use crate::shard::PoolShard;
use smallvec::SmallVec;
use types::{ClientId, Result};
use wire::obj::TxId;

/// Replies kept per client.
pub(crate) const WINDOW: usize = 256;

type Replies = VecDeque<(u64, SmallVec<[u8; 32]>)>;

#[derive(Debug, Default)]
pub(crate) struct RetryWindow {
    clients: HashMap<ClientId, Replies, foldhash::fast::FixedState>,
}

impl RetryWindow {
    /// Remembers a reply; a second one for the same transaction replaces the first.
    pub(crate) fn remember(&mut self, tx: TxId, reply: &[u8]) {
        let replies = self.clients.entry(tx.client).or_default();
        let reply = SmallVec::from_slice(reply);
        match replies.back() {
            Some((last, _)) if *last >= tx.seq => {
                match replies.binary_search_by_key(&tx.seq, |(seq, _)| *seq) {
                    Ok(at) => replies[at].1 = reply,
                    Err(at) => replies.insert(at, (tx.seq, reply)),
                }
            }
            _ => replies.push_back((tx.seq, reply)),
        }
        if replies.len() > WINDOW {
            replies.pop_front();
        }
    }

    /// The reply given to a transaction, if it is in the window.
    pub(crate) fn find(&self, tx: TxId) -> Option<&[u8]> {
        let replies = self.clients.get(&tx.client)?;
        let at = replies.binary_search_by_key(&tx.seq, |(seq, _)| *seq).ok()?;
        Some(&replies[at].1)
    }

    /// Forgets a client that is gone for good.
    pub(crate) fn forget(&mut self, client: ClientId) {
        self.clients.remove(&client);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (TxId, &[u8])> {
        self.clients.iter().flat_map(|(&client, replies)| {
            replies.iter().map(move |(seq, reply)| (TxId { client, seq: *seq }, &reply[..]))
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
        for seq in (0..WINDOW as u64 + 10).rev() {
            window.remember(tx(seq), &seq.to_le_bytes());
        }
        assert_eq!(window.find(tx(9)), None);
        assert_eq!(window.find(tx(10)), Some(&10u64.to_le_bytes()[..]));
        window.remember(tx(1000), b"long reply that does not fit into the inline room of a reply");
        assert_eq!(window.find(tx(10)), None);
        assert!(window.find(tx(1000)).unwrap().starts_with(b"long"));
        window.remember(tx(1000), b"again");
        assert_eq!(window.find(tx(1000)), Some(&b"again"[..]));
        window.forget(ClientId(4));
        assert_eq!(window.find(tx(1000)), None);
    }
}
