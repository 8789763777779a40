//! Who holds and who awaits which locks: a state machine without time or messages.
//!
//! Rules:
//! - Owners exclude each other where their ranges overlap and one of them is exclusive.
//! - Who waits is served in the order of coming. A newcomer waits behind whoever waits for what it
//!   wants, unless its owner holds a lock here already: then others may wait for it, and to queue
//!   behind them would be a deadlock. Those who do not wait may be lucky at any time.
//! - A wait of a `Posix` owner that would close a circle of waits is refused. Only circles within
//!   this table are seen.
//! - A `Flock` owner gives up what it holds before it waits for another mode, as on Linux.
//! - What a shared owner holds lasts as long as one of the clients that hold it.
//!
//! Invariant: between calls nobody waits who could have what it waits for.

use std::collections::VecDeque;
use types::map::{HashMap, HashSet};
use types::{ClientId, Code, ContId, Error, PoolId, Result, Unit};
use wire::lock::{HeldRanges, LockHolder, LockKind, LockMode, LockOwner, LockRange};

/// Ranges a client may hold and await, bounding its share of the memory.
pub const LOCKS_PER_CLIENT_MAX: u32 = 16_384;

/// An object, named over pools and containers: whoever waits in one pool may hold something in another.
pub type Object = (PoolId, ContId, Unit);

/// An object and a space of lock kinds.
pub type Key = (Object, u8);

/// Names a wait: the client and its own number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Ticket {
    pub client: ClientId,
    /// The client's number.
    pub number: u64,
}

/// Who wants what.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// Kind of lock; its space is that of the key.
    pub kind: LockKind,
    pub owner: LockOwner,
    /// Process id, told to those who ask who is in the way.
    pub pid: u32,
    /// Through which client: the lock ends with it.
    pub client: ClientId,
    pub range: LockRange,
    pub mode: LockMode,
}

/// What became of a wish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The owner holds it.
    Granted,
    /// This one is in the way.
    Refused(LockHolder),
    Waiting,
}

/// What one owner holds on one object.
struct Held {
    owner: LockOwner,
    pid: u32,
    /// Its ranges count among this client's.
    client: ClientId,
    /// Others that hold the same, of a shared owner.
    others: Vec<ClientId>,
    ranges: HeldRanges,
}

struct Waiter {
    ticket: Ticket,
    wish: Wish,
}

#[derive(Default)]
struct Queue {
    held: Vec<Held>,
    waiting: VecDeque<Waiter>,
}

impl Queue {
    fn blocker(&self, wish: &Wish) -> Option<LockHolder> {
        self.held.iter().filter(|held| held.owner != wish.owner).find_map(|held| {
            let (range, mode) = held.ranges.in_the_way_of(wish.range, wish.mode)?;
            Some(LockHolder { owner: held.owner, client: held.client, pid: held.pid, range, mode })
        })
    }
}

/// A wish that somebody else's wish must wait for.
fn collides(earlier: &Wish, later: &Wish) -> bool {
    earlier.owner != later.owner
        && earlier.range.overlaps(later.range)
        && earlier.mode.excludes(later.mode)
}

/// All locks of a target.
#[derive(Default)]
pub struct LockTable {
    queues: HashMap<Key, Queue>,
    /// Where each wait is, and for whom.
    waits: HashMap<Ticket, (Key, LockOwner)>,
    /// Objects each owner holds something of.
    holds: HashMap<(LockOwner, u8), HashSet<Object>>,
    /// Ranges held and awaited through each client.
    counts: HashMap<ClientId, u32>,
    /// Clients that have been among the others of a lock.
    joined: HashSet<ClientId>,
}

impl LockTable {
    /// True when nobody holds or awaits anything.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// True when the wait goes on.
    pub fn is_waiting(&self, ticket: Ticket) -> bool {
        self.waits.contains_key(&ticket)
    }

    /// Locks, or with a ticket waits if it must. Others' waits that end with it (a lock may have
    /// become weaker) go to `granted`.
    ///
    /// Errors: `Deadlock`; `NoLocks` when the client has too many.
    pub fn acquire(
        &mut self,
        key: Key,
        wish: Wish,
        ticket: Option<Ticket>,
        granted: &mut Vec<Ticket>,
    ) -> Result<Outcome> {
        if let Some(ticket) = ticket
            && self.is_waiting(ticket)
        {
            return Ok(Outcome::Waiting);
        }
        // A new range may cut one in two, and so add two.
        if self.counts.get(&wish.client).is_some_and(|count| *count + 2 > LOCKS_PER_CLIENT_MAX) {
            return Err(Error::new(
                Code::NoLocks,
                format!("the client holds {LOCKS_PER_CLIENT_MAX} locks on this target already"),
            ));
        }
        let blocker = self.queues.get(&key).and_then(|queue| queue.blocker(&wish));
        let Some(ticket) = ticket else {
            if let Some(holder) = blocker {
                return Ok(Outcome::Refused(holder));
            }
            self.grant(key, &wish);
            self.settle_after(key, wish.owner, granted);
            return Ok(Outcome::Granted);
        };
        let queue = self.queues.entry(key).or_default();
        let must_wait = blocker.is_some()
            || (!self.holds.contains_key(&(wish.owner, key.1))
                && queue.waiting.iter().any(|earlier| collides(&earlier.wish, &wish)));
        if !must_wait {
            self.grant(key, &wish);
            self.settle_after(key, wish.owner, granted);
            return Ok(Outcome::Granted);
        }
        if wish.kind == LockKind::Posix && self.closes_a_circle(key, &wish) {
            return Err(Error::new(Code::Deadlock, "the holder waits for a lock of this owner"));
        }
        if wish.kind == LockKind::Flock {
            self.clear(key, wish.owner, LockRange::WHOLE);
        }
        let queue = self.queues.entry(key).or_default();
        queue.waiting.push_back(Waiter { ticket, wish });
        self.waits.insert(ticket, (key, wish.owner));
        self.count(wish.client, 1);
        // What a flock gave up may serve others, and then this one as well.
        self.settle(vec![key], granted);
        match granted.iter().position(|done| *done == ticket) {
            Some(at) => {
                granted.remove(at);
                Ok(Outcome::Granted)
            }
            None => Ok(Outcome::Waiting),
        }
    }

    /// Who would be in the way?
    pub fn test(&self, key: Key, wish: &Wish) -> Option<LockHolder> {
        self.queues.get(&key)?.blocker(wish)
    }

    /// Unlocks a range; waits that end with it go to `granted`.
    pub fn release(
        &mut self,
        key: Key,
        owner: LockOwner,
        range: LockRange,
        granted: &mut Vec<Ticket>,
    ) {
        self.clear(key, owner, range);
        self.settle(vec![key], granted);
    }

    /// Locks all of these again for an owner; false, and nothing is locked, when somebody is in
    /// the way of one of them. What the owner holds exclusively stays so: another client of its process has locked it meanwhile.
    pub fn reclaim(
        &mut self,
        key: Key,
        wish: Wish,
        locks: &[(LockRange, LockMode)],
        granted: &mut Vec<Ticket>,
    ) -> bool {
        let wishes = locks.iter().map(|&(range, mode)| Wish { range, mode, ..wish });
        if wishes.clone().any(|wish| self.test(key, &wish).is_some()) {
            return false;
        }
        for wish in wishes {
            let mut wanted = HeldRanges::default();
            wanted.set(wish.range, wish.mode);
            if wish.mode == LockMode::Shared {
                let held = self.held(key, wish.owner).into_iter();
                held.filter(|(_, how)| *how == LockMode::Exclusive)
                    .for_each(|(range, _)| wanted.clear(range));
            }
            wanted.iter().for_each(|(range, _)| self.grant(key, &Wish { range, ..wish }));
        }
        self.settle_after(key, wish.owner, granted);
        true
    }

    /// Ends a wait; waits behind it that end with it go to `granted`. False when there is none.
    pub fn cancel(&mut self, ticket: Ticket, granted: &mut Vec<Ticket>) -> bool {
        let Some((key, _)) = self.waits.remove(&ticket) else { return false };
        if let Some(queue) = self.queues.get_mut(&key)
            && let Some(at) = queue.waiting.iter().position(|waiter| waiter.ticket == ticket)
        {
            queue.waiting.remove(at);
            self.count(ticket.client, -1);
        }
        self.settle(vec![key], granted);
        true
    }

    /// Ends the waits of a client, and takes from it what it holds for `which` owners; waits of others that
    /// end with it go to `granted`.
    pub fn drop_client(
        &mut self,
        client: ClientId,
        which: impl Fn(&LockOwner) -> bool,
        granted: &mut Vec<Ticket>,
    ) {
        if !self.joined.contains(&client) && !self.counts.contains_key(&client) {
            return;
        }
        let mut touched: Vec<Key> = self
            .queues
            .iter()
            .filter(|(_, queue)| {
                queue.held.iter().any(|held| held.client == client || held.others.contains(&client))
                    || queue.waiting.iter().any(|waiter| waiter.ticket.client == client)
            })
            .map(|(key, _)| *key)
            .collect();
        // In a fixed order, so that simulated runs repeat.
        touched.sort_unstable();
        for key in &touched {
            let Some(queue) = self.queues.get_mut(key) else { continue };
            let waited = queue.waiting.len();
            queue.waiting.retain(|waiter| waiter.ticket.client != client);
            let ended = waited - queue.waiting.len();
            let of_client = |held: &&Held| held.client == client || held.others.contains(&client);
            let of_client = queue.held.iter().filter(of_client).map(|held| held.owner);
            let gone: Vec<LockOwner> = of_client.filter(&which).collect();
            self.count(client, -(ended as i64));
            for owner in gone {
                self.part_from(*key, owner, client);
            }
        }
        self.waits.retain(|ticket, _| ticket.client != client);
        let all_held = || self.queues.values().flat_map(|queue| &queue.held);
        if !all_held().any(|held| held.others.contains(&client)) {
            self.joined.remove(&client);
        }
        self.settle(touched, granted);
    }

    /// A client takes elsewhere what it holds of an object; waits of others that end with it go to `granted`. It may wait on.
    pub fn leave(&mut self, key: Key, client: ClientId, granted: &mut Vec<Ticket>) {
        let held = self.queues.get(&key).map_or(&[][..], |queue| &queue.held);
        let of_client = |held: &&Held| held.client == client || held.others.contains(&client);
        let owners: Vec<LockOwner> = held.iter().filter(of_client).map(|held| held.owner).collect();
        for owner in owners {
            self.part_from(key, owner, client);
        }
        self.settle(vec![key], granted);
    }

    /// A client holds what a shared owner holds, too. False when that is nothing.
    pub fn join(&mut self, key: Key, owner: LockOwner, client: ClientId) -> bool {
        let held = self.queues.get_mut(&key).map(|queue| &mut queue.held);
        let held = held.and_then(|all| all.iter_mut().find(|held| held.owner == owner));
        let Some(held) = held.filter(|_| owner.is_shared()) else { return false };
        if held.client != client && !held.others.contains(&client) {
            held.others.push(client);
            self.joined.insert(client);
        }
        true
    }

    /// What an owner holds.
    pub fn held(&self, key: Key, owner: LockOwner) -> Vec<(LockRange, LockMode)> {
        let held = self.queues.get(&key).map_or(&[][..], |queue| &queue.held);
        let held = held.iter().find(|held| held.owner == owner);
        held.map_or_else(Vec::new, |held| held.ranges.iter().collect())
    }

    /// True when a client alone holds what a shared owner holds.
    pub fn is_last(&self, key: Key, owner: LockOwner, client: ClientId) -> bool {
        let held = self.queues.get(&key).map_or(&[][..], |queue| &queue.held);
        let held = held.iter().find(|held| held.owner == owner && owner.is_shared());
        held.is_some_and(|held| held.client == client && held.others.is_empty())
    }

    /// A client holds no more what a shared owner holds; with the last one it is unlocked, and
    /// waits that end with it go to `granted`.
    pub fn part(
        &mut self,
        key: Key,
        owner: LockOwner,
        client: ClientId,
        granted: &mut Vec<Ticket>,
    ) {
        self.part_from(key, owner, client);
        self.settle(vec![key], granted);
    }

    fn part_from(&mut self, key: Key, owner: LockOwner, client: ClientId) {
        let held = self.queues.get_mut(&key).map(|queue| &mut queue.held);
        let held = held.and_then(|all| all.iter_mut().find(|held| held.owner == owner));
        let Some(held) = held else { return };
        if held.client != client {
            held.others.retain(|other| *other != client);
        } else if held.others.is_empty() {
            self.clear(key, owner, LockRange::WHOLE);
        } else {
            held.client = held.others.remove(0);
            let (heir, ranges) = (held.client, held.ranges.len() as i64);
            self.count(client, -ranges);
            self.count(heir, ranges);
        }
    }

    /// Changes a client's count of ranges.
    fn count(&mut self, client: ClientId, delta: i64) {
        let count = self.counts.entry(client).or_insert(0);
        *count = count.saturating_add_signed(delta as i32);
        if *count == 0 {
            self.counts.remove(&client);
        }
    }

    fn grant(&mut self, key: Key, wish: &Wish) {
        let queue = self.queues.entry(key).or_default();
        let at = match queue.held.iter().position(|held| held.owner == wish.owner) {
            Some(at) => at,
            None => {
                let ranges = HeldRanges::default();
                let (owner, pid, client) = (wish.owner, wish.pid, wish.client);
                queue.held.push(Held { owner, pid, client, others: Vec::new(), ranges });
                queue.held.len() - 1
            }
        };
        let held = &mut queue.held[at];
        let (client_before, before) = (held.client, held.ranges.len() as i64);
        held.ranges.set(wish.range, wish.mode);
        (held.client, held.pid) = (wish.client, wish.pid);
        if client_before != wish.client && wish.owner.is_shared() {
            held.others.retain(|other| *other != wish.client);
            held.others.push(client_before);
            self.joined.insert(client_before);
        }
        let after = held.ranges.len() as i64;
        if client_before != wish.client {
            self.count(client_before, -before);
            self.count(wish.client, after);
        } else {
            self.count(wish.client, after - before);
        }
        self.holds.entry((wish.owner, key.1)).or_default().insert(key.0);
    }

    fn clear(&mut self, key: Key, owner: LockOwner, range: LockRange) {
        let Some(queue) = self.queues.get_mut(&key) else { return };
        let Some(at) = queue.held.iter().position(|held| held.owner == owner) else { return };
        let held = &mut queue.held[at];
        let (client, before) = (held.client, held.ranges.len() as i64);
        held.ranges.clear(range);
        let after = held.ranges.len() as i64;
        if held.ranges.is_empty() {
            queue.held.swap_remove(at);
            if let Some(objects) = self.holds.get_mut(&(owner, key.1)) {
                objects.remove(&key.0);
                if objects.is_empty() {
                    self.holds.remove(&(owner, key.1));
                }
            }
        }
        self.count(client, after - before);
    }

    /// Serves those who wait in these queues, and wherever that lets others be served.
    fn settle(&mut self, mut keys: Vec<Key>, granted: &mut Vec<Ticket>) {
        while let Some(key) = keys.pop() {
            let mut served = Vec::new();
            self.pump(key, &mut served, granted);
            for owner in served {
                self.add_waits_of(owner, key, &mut keys);
            }
        }
    }

    /// After a grant: others on the object, and waits of an owner that now holds something.
    fn settle_after(&mut self, key: Key, owner: LockOwner, granted: &mut Vec<Ticket>) {
        let mut keys = vec![key];
        self.add_waits_of(owner, key, &mut keys);
        self.settle(keys, granted);
    }

    /// Adds the other queues of a space in which an owner waits, in a fixed order.
    fn add_waits_of(&self, owner: LockOwner, besides: Key, keys: &mut Vec<Key>) {
        let known = keys.len();
        let of_owner = self
            .waits
            .values()
            .filter(|(at, waiting)| *waiting == owner && at.1 == besides.1 && *at != besides);
        keys.extend(of_owner.map(|(at, _)| *at));
        keys[known..].sort_unstable();
    }

    /// Serves those who wait in a queue, and forgets the queue if it is empty.
    fn pump(&mut self, key: Key, served: &mut Vec<LockOwner>, granted: &mut Vec<Ticket>) {
        let mut at = 0;
        while let Some(queue) = self.queues.get(&key) {
            let Some(waiter) = queue.waiting.get(at) else { break };
            let wish = waiter.wish;
            let holds = self.holds.contains_key(&(wish.owner, key.1));
            let blocked = queue.blocker(&wish).is_some()
                || (!holds
                    && queue.waiting.iter().take(at).any(|first| collides(&first.wish, &wish)));
            if blocked {
                at += 1;
                continue;
            }
            let ticket = waiter.ticket;
            if let Some(queue) = self.queues.get_mut(&key) {
                queue.waiting.remove(at);
            }
            self.waits.remove(&ticket);
            self.count(ticket.client, -1);
            self.grant(key, &wish);
            granted.push(ticket);
            served.push(wish.owner);
            // It may have become weaker, or may no longer stand in the queue's way.
            at = 0;
        }
        let idle = |queue: &Queue| queue.held.is_empty() && queue.waiting.is_empty();
        if self.queues.get(&key).is_some_and(idle) {
            self.queues.remove(&key);
        }
    }

    /// Owners that keep a wish (which may wait already, at place `at`) from being granted.
    fn blockers(&self, key: Key, wish: &Wish, at: usize, found: &mut Vec<LockOwner>) {
        let Some(queue) = self.queues.get(&key) else { return };
        found.extend(
            queue
                .held
                .iter()
                .filter(|held| held.owner != wish.owner)
                .filter(|held| held.ranges.in_the_way_of(wish.range, wish.mode).is_some())
                .map(|held| held.owner),
        );
        if !self.holds.contains_key(&(wish.owner, key.1)) {
            let ahead = queue.waiting.iter().take(at);
            found.extend(ahead.filter(|w| collides(&w.wish, wish)).map(|w| w.wish.owner));
        }
    }

    /// True when some owner that the wish would wait for waits, through others, for this one.
    fn closes_a_circle(&self, key: Key, wish: &Wish) -> bool {
        if self.waits.is_empty() {
            return false;
        }
        // Where every other owner waits, by place in the queue.
        let mut places: HashMap<LockOwner, Vec<(Key, usize)>> = HashMap::default();
        let keys: HashSet<Key> =
            self.waits.values().filter(|(at, _)| at.1 == key.1).map(|(at, _)| *at).collect();
        for at in keys {
            let Some(queue) = self.queues.get(&at) else { continue };
            for (place, waiter) in queue.waiting.iter().enumerate() {
                if waiter.wish.kind == LockKind::Posix {
                    places.entry(waiter.wish.owner).or_default().push((at, place));
                }
            }
        }
        let mut todo = Vec::new();
        self.blockers(key, wish, usize::MAX, &mut todo);
        while let Some(owner) = todo.pop() {
            if owner == wish.owner {
                return true;
            }
            // Taken out, so that each owner is looked at once.
            for (at, place) in places.remove(&owner).unwrap_or_default() {
                if let Some(waiter) = self.queues.get(&at).and_then(|q| q.waiting.get(place)) {
                    self.blockers(at, &waiter.wish, place, &mut todo);
                }
            }
        }
        false
    }

    /// What an owner holds of an object.
    #[cfg(test)]
    pub fn held_by(&self, key: Key, owner: LockOwner) -> Option<&HeldRanges> {
        let held = &self.queues.get(&key)?.held;
        held.iter().find(|held| held.owner == owner).map(|held| &held.ranges)
    }
}

#[cfg(test)]
#[path = "table_test.rs"]
mod tests;
