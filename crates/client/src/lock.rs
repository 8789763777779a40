//! Advisory locks on objects.
//!
//! The target that leads an object's first group decides. A lock belongs to an owner (a number the
//! caller chooses) within a process; the process's clients share a [`LockBook`] of what is held,
//! so that a lock taken through one may be given back through another. Invariants:
//! - What the book lists was granted, through the client it names; when that client has to connect
//!   anew it locks all of that again before anything else.
//! - A wait that its caller gives up (interrupt or drop) leaves no lock behind.
//!
//! A client that is driven only while somebody calls it (not a mount's, which always runs, nor a preloaded program's, which is kept
//! awake) notices a lost connection with its next call; what it held may be somebody else's by then.

use crate::client::Client;
use crate::cont::Container;
use crate::leader::LedAsk;
use async_recursion::async_recursion as boxed;
use futures_util::future::{Either, select};
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use types::map::{HashMap, HashSet};
use types::{ClientId, Code, ContId, Error, Oid, PoolId, Result, TargetId, Unit};
use wire::lock::{
    HeldRanges, LockHolder, LockKind, LockMode, LockOp, LockOwner, LockRange, LockReply,
    LockRequest,
};
use wire::obj::{Notice, Request};

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockAsk {
    pub kind: LockKind,
    /// The owner, a number of the caller's within its process.
    pub owner: u64,
    /// Which bytes; [`LockRange::WHOLE`] for `flock`.
    pub range: LockRange,
    pub mode: LockMode,
    /// Told to those who ask who is in the way.
    pub pid: u32,
    /// Wait as long as it takes.
    pub wait: bool,
}

/// Ends a wait from outside, as a signal does. Clones are the same one.
#[derive(Clone, Default)]
pub struct LockInterrupt(Rc<Interrupt>);

#[derive(Default)]
struct Interrupt {
    wanted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl LockInterrupt {
    /// Ends the wait soon: [`Container::lock`] says `Canceled`, or that the lock came first.
    pub fn interrupt(&self) {
        self.0.wanted.set(true);
        if let Some(waker) = self.0.waker.take() {
            waker.wake();
        }
    }

    async fn wanted(&self) {
        std::future::poll_fn(|cx| {
            if self.0.wanted.get() {
                return Poll::Ready(());
            }
            self.0.waker.replace(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}

/// What the clients of one process hold. Clones are the same book; clients whose options are
/// clones of each other share theirs.
#[derive(Clone, Default)]
pub struct LockBook(Arc<Mutex<Book>>);

type Key = (PoolId, ContId, Unit, u8, u64);

#[derive(Default)]
struct Book {
    /// This process, as targets know it; 0: not chosen yet.
    holder: u64,
    held: HashMap<Key, Entry>,
    /// Ranges that are being asked for: a target may have given them already.
    asked: HashMap<Key, Vec<LockRange>>,
    /// Owners that other processes have, too.
    shared: HashSet<u64>,
}

impl Book {
    fn owner(&self, id: u64) -> LockOwner {
        let is_shared = self.shared.contains(&id);
        LockOwner { holder: if is_shared { LockOwner::SHARED } else { self.holder }, id }
    }
}

/// What is locked of a unit is with another target from now on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Moved {
    pub from: TargetId,
    pub to: TargetId,
    pub handle: (PoolId, ContId, Unit),
}

/// See [`LockBook::asking`].
struct Asking<'a> {
    book: &'a LockBook,
    key: Key,
    range: LockRange,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let asked = &mut self.book.lock().asked;
        if let Some(ranges) = asked.get_mut(&self.key) {
            if let Some(at) = ranges.iter().position(|range| *range == self.range) {
                ranges.swap_remove(at);
            }
            if ranges.is_empty() {
                asked.remove(&self.key);
            }
        }
    }
}

struct Entry {
    kind: LockKind,
    /// Through which it was locked last: the target ties the lock's life to it.
    client: ClientId,
    target: TargetId,
    pid: u32,
    ranges: HeldRanges,
    /// Version of the map by which it was taken to another target last; 0: it never was.
    moved_under: u32,
    /// A target has given it to somebody else.
    lost: bool,
}

impl LockBook {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of this process among those that lock; see [`LockHolder::owner`].
    pub fn holder(&self, client: &Client) -> u64 {
        let mut book = self.lock();
        while book.holder == 0 {
            book.holder = client.env().random_u64();
        }
        book.holder
    }

    /// Says that an owner is one that other processes have, too: a random number. What it holds
    /// lasts until the last client that holds it has gone ([`Container::join_lock`]).
    pub fn share(&self, owner: u64) {
        self.lock().shared.insert(owner);
    }

    /// Forgets a shared owner.
    pub fn unshare(&self, owner: u64) {
        self.lock().shared.remove(&owner);
    }

    fn is_shared(&self, owner: u64) -> bool {
        self.lock().shared.contains(&owner)
    }

    /// A range is being asked for, as long as the answer lives.
    fn asking(&self, key: Key, range: LockRange) -> Asking<'_> {
        self.lock().asked.entry(key).or_default().push(range);
        Asking { book: self, key, range }
    }

    fn granted(&self, key: Key, target: TargetId, client: ClientId, ask: &LockAsk) {
        let mut book = self.lock();
        let entry = book.held.entry(key).or_insert_with(|| Entry {
            kind: ask.kind,
            client,
            target,
            pid: ask.pid,
            ranges: HeldRanges::default(),
            moved_under: 0,
            lost: false,
        });
        entry.ranges.set(ask.range, ask.mode);
        (entry.kind, entry.client, entry.target, entry.pid) = (ask.kind, client, target, ask.pid);
    }

    /// Says what [`LockBook::moved_under`] has said until now.
    fn cleared(&self, key: Key, range: LockRange) -> u32 {
        let mut book = self.lock();
        let Some(entry) = book.held.get_mut(&key) else { return 0 };
        let moved_under = entry.moved_under;
        entry.ranges.clear(range);
        if entry.ranges.is_empty() {
            book.held.remove(&key);
        }
        moved_under
    }

    /// Version of the map by which what an owner holds was taken to another target last. Whoever asks under an older one finds
    /// who led before: that one may answer, and nothing changes where it counts.
    fn moved_under(&self, key: &Key) -> u32 {
        self.lock().held.get(key).map_or(0, |entry| entry.moved_under)
    }

    /// True when an owner holds something of an object, or did until it was lost.
    fn holds(&self, key: &Key) -> bool {
        self.lock().held.contains_key(key)
    }

    /// True when a client holds something that a target decides about.
    pub(crate) fn is_needed(&self, client: ClientId, target: TargetId) -> bool {
        let book = self.lock();
        let mut entries = book.held.values();
        entries.any(|entry| entry.client == client && entry.target == target && !entry.lost)
    }

    /// True when a client holds something.
    pub(crate) fn is_held_by(&self, client: ClientId) -> bool {
        self.lock().held.values().any(|entry| entry.client == client && !entry.lost)
    }

    /// The same of what has several copies.
    pub(crate) fn is_needed_of_several(&self, client: ClientId, target: TargetId) -> bool {
        let book = self.lock();
        let mut entries = book.held.iter().filter(|((_, _, unit, ..), _)| !unit.object.is_alone());
        entries.any(|(_, entry)| entry.client == client && entry.target == target && !entry.lost)
    }

    /// `Io`, once, when what an owner held was lost.
    fn check_lost(&self, key: &Key) -> Result<()> {
        let mut book = self.lock();
        if book.held.get(key).is_some_and(|entry| entry.lost) {
            book.held.remove(key);
            return Err(Error::new(
                Code::Io,
                "the lock was lost: its engine was away and gave it to somebody else meanwhile",
            ));
        }
        Ok(())
    }

    /// Requests that lock again what a client holds at a target, in a fixed order.
    pub(crate) fn reclaims(&self, client: ClientId, target: TargetId) -> Vec<LockRequest> {
        let book = self.lock();
        let mine = book
            .held
            .iter()
            .filter(|(_, entry)| entry.client == client && entry.target == target && !entry.lost);
        let mut keys: Vec<(&Key, &Entry)> = mine.collect();
        keys.sort_unstable_by_key(|(key, _)| **key);
        keys.into_iter()
            .map(|(&(pool, cont, unit, _, id), entry)| LockRequest {
                pool,
                cont,
                unit,
                kind: entry.kind,
                owner: book.owner(id),
                op: LockOp::Reclaim { locks: entry.ranges.iter().collect(), pid: entry.pid },
            })
            .collect()
    }

    /// What a client holds in a pool is with the targets that lead it under this map; says what is with another one than before, in a fixed
    /// order.
    pub(crate) fn follow_leaders(
        &self,
        client: ClientId,
        pool: PoolId,
        map: &wire::map::PoolMap,
    ) -> Vec<Moved> {
        let mut moved = Vec::new();
        let mut book = self.lock();
        for ((of, cont, unit, ..), entry) in &mut book.held {
            if *of == pool
                && entry.client == client
                && let Some(leader) = crate::moved::leader_of(*unit, map)
                && leader != entry.target
            {
                let from = std::mem::replace(&mut entry.target, leader);
                entry.moved_under = map.version;
                moved.push(Moved { from, to: leader, handle: (pool, *cont, *unit) });
            }
        }
        moved.sort_unstable();
        moved.dedup();
        moved
    }

    /// After locks were taken again: notices that give back what was given back through another client meanwhile, and is not asked for
    /// again.
    pub(crate) fn given_back(&self, request: &LockRequest) -> Vec<Notice> {
        let &LockRequest { pool, cont, unit, kind, owner, .. } = request;
        let LockOp::Reclaim { locks, .. } = &request.op else { return Vec::new() };
        let mut gone = HeldRanges::default();
        for (range, mode) in locks {
            gone.set(*range, *mode);
        }
        let (book, key) = (self.lock(), (pool, cont, unit, kind.space(), owner.id));
        if let Some(entry) = book.held.get(&key) {
            entry.ranges.iter().for_each(|(range, _)| gone.clear(range));
        }
        book.asked.get(&key).into_iter().flatten().for_each(|range| gone.clear(*range));
        let leave = |(range, _)| Notice::LockLeave {
            pool,
            cont,
            unit,
            kind,
            owner,
            range,
            wait: None,
            release: true,
        };
        gone.iter().map(leave).collect()
    }

    /// Somebody else has what was to be locked again.
    pub(crate) fn note_lost(&self, request: &LockRequest) {
        let LockRequest { pool, cont, unit, kind, owner, .. } = request;
        let key = (*pool, *cont, *unit, kind.space(), owner.id);
        if let Some(entry) = self.lock().held.get_mut(&key) {
            entry.lost = true;
        }
    }
}

impl std::fmt::Debug for LockBook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockBook").field("held", &self.lock().held.len()).finish()
    }
}

/// Tells the target, should the caller go before the answer comes.
struct Leave<'a> {
    cont: &'a Container,
    /// The one that was asked last.
    target: &'a Cell<TargetId>,
    key: Key,
    range: LockRange,
    notice: Option<Notice>,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        if let Some(notice) = &self.notice {
            self.cont.client().options().locks.cleared(self.key, self.range);
            self.cont.client().target(self.target.get()).tell(wire::encode(notice));
        }
    }
}

impl Container {
    fn lock_key(&self, oid: Oid, kind: LockKind, owner: u64) -> Key {
        (self.pool().info().id, self.id(), oid.first_unit(), kind.space(), owner)
    }

    fn lock_owner(&self, owner: u64) -> LockOwner {
        let book = &self.client().options().locks;
        book.holder(self.client());
        book.lock().owner(owner)
    }

    /// Asks the target that leads the object's first group, and whoever leads it next; notes in `asked` which one. `since`: the version
    /// of the map by which another client of this process took what the owner holds to the one who leads.
    async fn ask_lock(
        &self,
        asked: &Cell<TargetId>,
        oid: Oid,
        (kind, owner): (LockKind, u64),
        op: LockOp,
        since: u32,
    ) -> Result<LockReply> {
        let (pool, cont) = (self.pool().info().id, self.id());
        let (unit, owner) = (oid.first_unit(), self.lock_owner(owner));
        let may_take_long = matches!(op, LockOp::Set { wait: Some(_), .. });
        let request = Request::Lock(LockRequest { pool, cont, unit, kind, owner, op });
        let body = wire::encode(&request);
        let answer =
            self.ask_leader(asked, LedAsk { unit, body: &body, may_take_long, since }).await?;
        wire::decode(&answer.body[1..])
    }

    /// Locks a range of an object, in place of what the owner holds of it, or waits for that.
    ///
    /// Errors: `WouldBlock` (with `wait` unset); `Deadlock` for a [`LockKind::Posix`] wait that
    /// would never end, as far as one target knows; `NoLocks`; `Canceled` by `interrupt`; `Io`,
    /// once, when what the owner held on the object was lost.
    #[boxed(?Send)]
    pub async fn lock(
        &self,
        oid: Oid,
        ask: &LockAsk,
        interrupt: Option<&LockInterrupt>,
    ) -> Result<()> {
        let book = &self.client().options().locks;
        let key = self.lock_key(oid, ask.kind, ask.owner);
        book.check_lost(&key)?;
        let wait = ask.wait.then(|| self.client().next_request());
        let op = LockOp::Set { range: ask.range, mode: ask.mode, pid: ask.pid, wait };
        // Until it is written down as held, or will not be.
        let _asking = book.asking(key, ask.range);
        self.learn(oid).await;
        let target = &Cell::new(self.layout(oid)?.home());
        loop {
            let notice = |release| Notice::LockLeave {
                pool: key.0,
                cont: key.1,
                unit: key.2,
                kind: ask.kind,
                owner: self.lock_owner(ask.owner),
                range: ask.range,
                wait,
                release,
            };
            let mut leave =
                Leave { cont: self, target, key, range: ask.range, notice: Some(notice(true)) };
            let since = book.moved_under(&key);
            let asked = self.ask_lock(target, oid, (ask.kind, ask.owner), op.clone(), since);
            let reply = match interrupt.filter(|_| ask.wait) {
                None => asked.await,
                Some(interrupt) => match select(pin!(asked), pin!(interrupt.wanted())).await {
                    Either::Left((reply, _)) => reply,
                    Either::Right(((), asked)) => {
                        // The answer tells which came first.
                        self.client().target(target.get()).tell_now(&wire::encode(&notice(false)));
                        asked.await
                    }
                },
            };
            match reply {
                Ok(LockReply::Done) => {
                    leave.notice = None;
                    let target = target.get();
                    book.granted(key, target, self.client().id(), ask);
                    if ask.kind != LockKind::Append {
                        self.client().target(target).keep_connected(self.client(), self.pool());
                    }
                    return Ok(());
                }
                Ok(LockReply::Held(_)) => {
                    leave.notice = None;
                    return Err(Error::bare(Code::WouldBlock));
                }
                Ok(LockReply::Joined(_)) => {
                    return Err(Error::new(
                        Code::Proto,
                        "an answer to another request about locks",
                    ));
                }
                Ok(LockReply::Waiting) => {
                    if interrupt.is_some_and(|interrupt| interrupt.0.wanted.get()) {
                        return Err(Error::bare(Code::Canceled));
                    }
                    leave.notice = None;
                }
                // Nobody knows what became of it.
                Err(error) if matches!(error.code, Code::TimedOut | Code::Unreach) => {
                    return Err(error);
                }
                Err(error) => {
                    leave.notice = None;
                    return Err(error);
                }
            }
        }
    }

    /// Holds what a shared owner holds, too, which outlives then the client that took it. Of `ask` only
    /// kind, owner and process count. `NonExist` when the owner holds nothing.
    #[boxed(?Send)]
    pub async fn join_lock(&self, oid: Oid, ask: &LockAsk) -> Result<()> {
        self.learn(oid).await;
        let target = Cell::new(self.layout(oid)?.home());
        let reply = self.ask_lock(&target, oid, (ask.kind, ask.owner), LockOp::Join, 0).await?;
        let target = target.get();
        let LockReply::Joined(held) = reply else {
            return Err(Error::new(Code::Proto, "a lock that was joined has no ranges"));
        };
        let key = self.lock_key(oid, ask.kind, ask.owner);
        for (range, mode) in held {
            let ask = LockAsk { range, mode, ..*ask };
            self.client().options().locks.granted(key, target, self.client().id(), &ask);
        }
        self.client().target(target).keep_connected(self.client(), self.pool());
        Ok(())
    }

    /// Holds no more what a shared owner holds; other processes may.
    #[boxed(?Send)]
    pub async fn part_lock(&self, oid: Oid, kind: LockKind, owner: u64) -> Result<()> {
        let key = self.lock_key(oid, kind, owner);
        let since = self.client().options().locks.cleared(key, LockRange::WHOLE);
        self.learn(oid).await;
        let target = Cell::new(self.layout(oid)?.home());
        self.ask_lock(&target, oid, (kind, owner), LockOp::Part, since).await.map(|_| ())
    }

    /// Unlocks a range of an object. Asks nobody when the owner holds nothing of it, unless it is
    /// a shared one.
    #[boxed(?Send)]
    pub async fn unlock(
        &self,
        oid: Oid,
        kind: LockKind,
        owner: u64,
        range: LockRange,
    ) -> Result<()> {
        let book = &self.client().options().locks;
        let key = self.lock_key(oid, kind, owner);
        if !book.holds(&key) && !book.is_shared(owner) {
            return Ok(());
        }
        book.check_lost(&key)?;
        // Before the answer: a target that comes back must not be told that it is held.
        let since = book.cleared(key, range);
        self.learn(oid).await;
        let target = Cell::new(self.layout(oid)?.home());
        self.ask_lock(&target, oid, (kind, owner), LockOp::Clear { range }, since).await.map(|_| ())
    }

    /// Unlocks a range with the next request to its target, or very soon. Nobody waits for it.
    pub fn unlock_later(&self, oid: Oid, kind: LockKind, owner: u64, range: LockRange) {
        let key = self.lock_key(oid, kind, owner);
        let book = &self.client().options().locks;
        if !book.holds(&key) {
            return;
        }
        book.cleared(key, range);
        let Ok(target) = self.home(oid) else { return };
        let (pool, cont, unit) = (key.0, key.1, key.2);
        let owner = self.lock_owner(owner);
        let notice =
            Notice::LockLeave { pool, cont, unit, kind, owner, range, wait: None, release: true };
        self.client().target(target).tell_now(&wire::encode(&notice));
    }

    /// Who would be in the way of a lock; `None`: nobody. Like the others of its kind, a lock of
    /// the same owner is not.
    #[boxed(?Send)]
    pub async fn test_lock(&self, oid: Oid, ask: &LockAsk) -> Result<Option<LockHolder>> {
        self.learn(oid).await;
        let target = Cell::new(self.layout(oid)?.home());
        let op = LockOp::Test { range: ask.range, mode: ask.mode };
        match self.ask_lock(&target, oid, (ask.kind, ask.owner), op, 0).await? {
            LockReply::Held(holder) => Ok(Some(holder)),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While a client locks again what it held, another one of its process gives back a part: the target had that for good, held by
    /// nobody.
    #[test]
    fn what_is_given_back_while_it_is_locked_again_is_given_back_there() {
        let (book, client, target) = (LockBook::default(), ClientId(1), TargetId(3));
        let unit = Unit { object: Oid { hi: 0, lo: 1 }, group: 0, cell: 0 };
        let kind = LockKind::Posix;
        let key = (PoolId(1), ContId(1), unit, kind.space(), 7);
        let range = |first, last| LockRange { first, last };
        for (range, mode) in [(range(0, 9), LockMode::Exclusive), (range(20, 29), LockMode::Shared)]
        {
            let ask = LockAsk { kind, owner: 7, range, mode, pid: 1, wait: false };
            book.granted(key, target, client, &ask);
        }
        let asked = book.reclaims(client, target);
        let [request] = &asked[..] else { panic!("{asked:?}") };
        assert!(book.given_back(request).is_empty(), "all of it is held still");
        book.cleared(key, range(5, 24));
        let gone = |notices: Vec<Notice>| -> Vec<LockRange> {
            let range = |notice| match notice {
                Notice::LockLeave { range, wait: None, release: true, .. } => range,
                other => panic!("{other:?}"),
            };
            notices.into_iter().map(range).collect()
        };
        assert_eq!(gone(book.given_back(request)), [range(5, 9), range(20, 24)]);
        // What is asked for again may be held already, for all that is known.
        let asking = book.asking(key, range(0, 6));
        assert_eq!(gone(book.given_back(request)), [range(7, 9), range(20, 24)]);
        drop(asking);
        book.cleared(key, LockRange::WHOLE);
        assert_eq!(gone(book.given_back(request)), [range(0, 9), range(20, 29)]);
        assert!(book.lock().asked.is_empty());
    }
}
