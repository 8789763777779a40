//! The retry window: what was answered to updates whose answer a client may not have, so that a
//! request sent again after a lost reply is not applied twice.
//!
//! The number of an update says how many before it, of its lane, have no answer yet ([`wire::request_id`]); the replies to
//! earlier ones are dropped. A client has [`UNANSWERED_MAX`] of a lane in doubt at most: no more are kept, whatever
//! numbers say. What is asked for again where another target leads now is of that one's predecessor's lane, and does
//! not go for what is done in other lanes meanwhile.

use std::collections::{HashMap, VecDeque};

use crate::record::OriginDf;
use smallvec::SmallVec;
use types::{ClientId, Unit};
use wire::obj::TxId;
use wire::request_id::{self, UNANSWERED_MAX};

/// Which request an update answers, so that a retry finds the reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin<'a> {
    pub tx: TxId,
    /// A unit that it has changed, of a group of several members, who keep the reply, too; `None` for others.
    pub of: Option<Unit>,
    pub reply: &'a [u8],
}

impl<'a> Origin<'a> {
    pub(crate) fn durable(self) -> OriginDf<'a> {
        OriginDf { tx: self.tx, of: self.of, reply: self.reply }
    }
}

/// Lanes of a client with replies at one target, at most: it is a member of groups with about a hundred others.
const LANES_MAX: usize = 512;

type Replies = VecDeque<Reply>;
type Lanes = HashMap<u16, Replies, foldhash::fast::FixedState>;

#[derive(Debug)]
struct Reply {
    seq: u64,
    /// See [`Origin::of`].
    of: Option<Box<Unit>>,
    bytes: SmallVec<[u8; 32]>,
}

#[derive(Debug, Default)]
pub(crate) struct RetryWindow {
    clients: HashMap<ClientId, Lanes, foldhash::fast::FixedState>,
}

/// Makes room for one more lane, if it has to: the one goes that has had nothing new for longest.
fn make_room(lanes: &mut Lanes, lane: u16) {
    if lanes.len() < LANES_MAX || lanes.contains_key(&lane) {
        return;
    }
    let newest = |(lane, replies): (&u16, &Replies)| (replies.back().map(|last| last.seq), *lane);
    if let Some((_, idle)) = lanes.iter().map(newest).min() {
        lanes.remove(&idle);
    }
}

impl RetryWindow {
    /// Remembers a reply; a second one for the same transaction replaces the first.
    pub(crate) fn remember(&mut self, origin: OriginDf<'_>) {
        let OriginDf { tx: TxId { client, seq }, of, reply } = origin;
        let lanes = self.clients.entry(client).or_default();
        let lane = request_id::lane(seq);
        make_room(lanes, lane);
        let replies = lanes.entry(lane).or_default();
        let reply = Reply { seq, of: of.map(Box::new), bytes: SmallVec::from_slice(reply) };
        let at = match replies.back() {
            Some(last) if last.seq >= seq => {
                let found = replies.binary_search_by_key(&seq, |reply| reply.seq);
                match found {
                    Ok(at) => replies[at] = reply,
                    Err(at) => replies.insert(at, reply),
                }
                found.unwrap_or_else(|at| at)
            }
            _ => {
                replies.push_back(reply);
                replies.len() - 1
            }
        };
        let known = at.saturating_sub(request_id::kept_before(seq));
        let too_many = replies.len().saturating_sub(UNANSWERED_MAX);
        replies.drain(..known.max(too_many));
    }

    /// The reply given to a transaction, if it is in the window.
    pub(crate) fn find(&self, tx: TxId) -> Option<&[u8]> {
        self.origin_of(tx).map(|origin| origin.reply)
    }

    /// The same with what is known of it.
    pub(crate) fn origin_of(&self, tx: TxId) -> Option<OriginDf<'_>> {
        let replies = self.clients.get(&tx.client)?.get(&request_id::lane(tx.seq))?;
        let at = replies.binary_search_by_key(&tx.seq, |reply| reply.seq).ok()?;
        let Reply { of, bytes, .. } = &replies[at];
        Some(OriginDf { tx, of: of.as_deref().copied(), reply: bytes })
    }

    /// Forgets the reply to one transaction, if it is here.
    pub(crate) fn forget_reply(&mut self, tx: TxId) {
        let lane = request_id::lane(tx.seq);
        if let Some(replies) =
            self.clients.get_mut(&tx.client).and_then(|lanes| lanes.get_mut(&lane))
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
        self.clients.iter().flat_map(|(&client, lanes)| {
            lanes.values().flatten().map(move |Reply { seq, of, bytes }| OriginDf {
                tx: TxId { client, seq: *seq },
                of: of.as_deref().copied(),
                reply: bytes,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ClientId = ClientId(4);

    fn tx(seq: u64) -> TxId {
        TxId { client: CLIENT, seq }
    }

    fn origin(seq: u64, reply: &[u8]) -> OriginDf<'_> {
        OriginDf { tx: tx(seq), of: None, reply }
    }

    /// Those without a lane, whose numbers say nothing.
    #[test]
    fn keeps_the_greatest_counts_in_any_order_of_arrival() {
        let mut window = RetryWindow::default();
        let number = request_id::plain;
        for seq in (0..UNANSWERED_MAX as u64 + 10).rev() {
            window.remember(origin(number(seq), &seq.to_le_bytes()));
        }
        assert_eq!(window.find(tx(number(9))), None);
        assert_eq!(window.find(tx(number(10))), Some(&10u64.to_le_bytes()[..]));
        let long = b"long reply that does not fit into the inline room";
        window.remember(origin(number(1000), long));
        assert_eq!(window.find(tx(number(10))), None);
        assert!(window.find(tx(number(1000))).unwrap().starts_with(b"long"));
        window.remember(origin(number(1000), b"again"));
        assert_eq!(window.find(tx(number(1000))), Some(&b"again"[..]));
        window.forget_reply(tx(number(999)));
        window.forget_reply(tx(number(11)));
        let found = |seq| window.find(tx(number(seq))).is_some();
        assert_eq!((found(11), found(12)), (false, true));
        window.forget(CLIENT);
        assert_eq!(window.find(tx(number(1000))), None);
    }

    /// Random clients, which hear of answers in any order, and a target that carries out their updates in any order: whatever has
    /// no answer yet is there.
    #[test]
    fn what_is_in_doubt_is_kept_and_little_else() {
        for seed in 0..200 {
            let rng = env::Rng::new(seed);
            let lanes = 1 + rng.below(3);
            let width = 1 + rng.below(20);
            // By lane: numbers begun, whether each has its answer, from the oldest in doubt on.
            let mut begun: Vec<VecDeque<(u64, bool)>> = vec![VecDeque::new(); lanes as usize];
            let mut window = RetryWindow::default();
            let mut held_back: Vec<u64> = Vec::new();
            let mut told: std::collections::HashSet<u64> = Default::default();
            for count in 1..400 {
                let lane = rng.below(lanes);
                let own = &mut begun[lane as usize];
                if (own.len() as u64) < width {
                    own.push_back((0, false));
                    let seq = request_id::in_lane(count, lane as u16 + 1, own.len());
                    own.back_mut().unwrap().0 = seq;
                    held_back.push(seq);
                }
                while !held_back.is_empty() && rng.below(3) > 0 {
                    let seq = held_back.swap_remove(rng.below(held_back.len() as u64) as usize);
                    window.remember(origin(seq, &seq.to_le_bytes()));
                    told.insert(seq);
                }
                let own = &mut begun[rng.below(lanes) as usize];
                if !own.is_empty() {
                    let at = rng.below(own.len() as u64) as usize;
                    own[at].1 |= told.contains(&own[at].0);
                    while own.front().is_some_and(|(_, is_over)| *is_over) {
                        own.pop_front();
                    }
                }
                for (seq, is_over) in begun.iter().flatten() {
                    if !is_over && told.contains(seq) {
                        assert!(window.find(tx(*seq)).is_some(), "seed {seed}, {count}");
                    }
                }
            }
            // Nothing is in doubt but one of each lane.
            for seq in held_back {
                window.remember(origin(seq, b""));
            }
            for lane in 1..=lanes as u16 {
                window.remember(origin(request_id::in_lane(1000, lane, 1), b"last"));
            }
            assert_eq!(window.iter().count() as u64, lanes, "seed {seed}");
        }
    }

    /// More updates than are kept went elsewhere while one waited for a new leader: it was applied twice.
    #[test]
    fn answers_of_a_lane_outlast_those_of_others() {
        let mut window = RetryWindow::default();
        let waits = request_id::in_lane(1, 7, 1);
        window.remember(origin(waits, b"done"));
        for count in 2..5000 {
            window.remember(origin(request_id::in_lane(count, 8, 1), b"more"));
        }
        assert_eq!(window.find(tx(waits)), Some(&b"done"[..]));
        assert_eq!(window.iter().count(), 2);
        // A client that makes up numbers takes no more room for that.
        for count in 5000..20_000u64 {
            window.remember(origin(request_id::in_lane(count, count as u16 & 0xfff, 256), b""));
        }
        assert!(window.iter().count() <= LANES_MAX * UNANSWERED_MAX);
        assert!(window.clients[&CLIENT].len() <= LANES_MAX);
    }
}
