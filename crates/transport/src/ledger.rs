//! Memory that messages take in an engine, by where they come from.
//!
//! Counted are the bytes of messages that have arrived and are not answered yet, and of answers that
//! are put together (see `answers`), or that their clients have not taken yet. What a header promises is not
//! counted, and takes nothing.
//!
//! Invariants: a frame is begun only while its origin and the engine have room; so each is over its limit by
//! the frames that were under way at most, one for each connection. Who has no room is not refused: the engine does
//! not read on, and the client's stream fills. What one origin holds keeps others waiting only when the whole engine
//! is full, which takes several origins.

use crate::greetings::Origin;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use types::map::HashMap;

/// Memory for messages of an engine whose configuration names none, bytes: some hundred of the largest.
pub const MESSAGE_BYTES_MAX_DEFAULT: u64 = 4 << 30;
/// Parts of an engine's memory for messages; an origin may have one of them.
const PARTS: u64 = 4;
/// What a message takes beside its bytes, about.
const MESSAGE_OVERHEAD_BYTES: u64 = 512;

/// The messages of an engine; all of its threads share it.
pub struct Ledger {
    used: AtomicU64,
    /// Of answers that have room, bytes.
    answers: AtomicU64,
    limit: AtomicU64,
    accounts: Mutex<HashMap<Origin, Weak<Account>>>,
    waiting: Mutex<Vec<Waker>>,
    waiting_count: AtomicU64,
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger {
            used: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            limit: AtomicU64::new(MESSAGE_BYTES_MAX_DEFAULT),
            accounts: Mutex::default(),
            waiting: Mutex::default(),
            waiting_count: AtomicU64::new(0),
        }
    }
}

/// Nothing that is done under these locks can panic half-way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    /// Bytes that messages take now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that they may take.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Sets what they may take, bytes.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
        self.wake_all();
    }

    /// The account of an origin: one for all its connections.
    pub(crate) fn account(self: &Arc<Self>, origin: Origin) -> Arc<Account> {
        let mut accounts = lock(&self.accounts);
        if let Some(account) = accounts.get(&origin).and_then(Weak::upgrade) {
            return account;
        }
        accounts.retain(|_, account| account.strong_count() > 0);
        let account = Arc::new(Account {
            ledger: self.clone(),
            used: AtomicU64::new(0),
            answers: AtomicU64::new(0),
        });
        accounts.insert(origin, Arc::downgrade(&account));
        account
    }

    /// Bytes of answers that have room.
    #[cfg(test)]
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::SeqCst)
    }

    /// Has somebody woken when something is given back.
    fn note_waiting(&self, waker: &Waker) {
        let mut waiting = lock(&self.waiting);
        if !waiting.iter().any(|other| other.will_wake(waker)) {
            waiting.push(waker.clone());
        }
        self.waiting_count.store(waiting.len() as u64, Ordering::SeqCst);
    }

    fn wake_waiting(&self) {
        if self.waiting_count.load(Ordering::SeqCst) > 0 {
            self.wake_all();
        }
    }

    fn wake_all(&self) {
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        self.waiting_count.store(0, Ordering::SeqCst);
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// What the messages of one origin take.
pub(crate) struct Account {
    ledger: Arc<Ledger>,
    used: AtomicU64,
    /// Of answers that have room, bytes.
    answers: AtomicU64,
}

impl Account {
    /// Takes room for an answer if there is some. Answers may have half of what messages may have, and all
    /// of it for a connection of which no answer is under way.
    fn take_answer(&self, bytes: u64, is_idle: bool) -> bool {
        let limit = if is_idle { self.ledger.limit() } else { self.ledger.limit() / 2 };
        let (mine, all) =
            (self.answers.load(Ordering::SeqCst), self.ledger.answers.load(Ordering::SeqCst));
        let has_room = mine == 0
            || mine.saturating_add(bytes) <= limit / PARTS && all.saturating_add(bytes) <= limit;
        if has_room {
            self.answers.fetch_add(bytes, Ordering::SeqCst);
            self.ledger.answers.fetch_add(bytes, Ordering::SeqCst);
        }
        has_room
    }

    /// Ready when room for an answer is taken; `is_idle`: no other of the connection is under way.
    pub fn poll_answer(&self, cx: &mut Context<'_>, bytes: u64, is_idle: bool) -> Poll<()> {
        if self.take_answer(bytes, is_idle) {
            return Poll::Ready(());
        }
        self.ledger.note_waiting(cx.waker());
        // What was given back before our waker was there woke nobody.
        if self.take_answer(bytes, is_idle) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Gives room back and wakes who waits.
    pub fn give_back_answer(&self, bytes: u64) {
        self.answers.fetch_sub(bytes, Ordering::SeqCst);
        self.ledger.answers.fetch_sub(bytes, Ordering::SeqCst);
        self.ledger.wake_waiting();
    }

    fn has_room(&self) -> bool {
        let limit = self.ledger.limit();
        self.used.load(Ordering::SeqCst) < limit / PARTS
            && self.ledger.used.load(Ordering::SeqCst) < limit
    }

    /// Ready when another message may be read.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_room() {
            return Poll::Ready(());
        }
        self.ledger.note_waiting(cx.waker());
        // What was given back before our waker was there woke nobody.
        if self.has_room() { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// What one message takes; given back when this is dropped.
pub(crate) struct Charge {
    /// `None` where nobody counts: on a client's side, in a simulated world.
    account: Option<Arc<Account>>,
    bytes: Cell<u64>,
}

impl Charge {
    /// Who is charged; `None` where nobody counts.
    pub fn account(&self) -> Option<&Arc<Account>> {
        self.account.as_ref()
    }

    /// A message that takes nothing yet.
    pub fn new(account: Option<Arc<Account>>) -> Charge {
        Charge { account, bytes: Cell::new(0) }
    }

    /// It takes `bytes` more.
    pub fn add(&self, bytes: usize) {
        let Some(account) = &self.account else { return };
        let first = if self.bytes.get() == 0 { MESSAGE_OVERHEAD_BYTES } else { 0 };
        let bytes = bytes as u64 + first;
        self.bytes.set(self.bytes.get() + bytes);
        account.used.fetch_add(bytes, Ordering::SeqCst);
        account.ledger.used.fetch_add(bytes, Ordering::SeqCst);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let Some(account) = self.account.as_ref().filter(|_| self.bytes.get() > 0) else { return };
        account.used.fetch_sub(self.bytes.get(), Ordering::SeqCst);
        account.ledger.used.fetch_sub(self.bytes.get(), Ordering::SeqCst);
        account.ledger.wake_waiting();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_over_its_part_waits_alone_and_is_woken() {
        let ledger = Arc::<Ledger>::default();
        ledger.set_limit(400_000);
        let account = |user| ledger.account(Origin::User(user));
        let mut cx = Context::from_waker(Waker::noop());
        let (first, second) = (account(1), account(2));
        assert!(Arc::ptr_eq(&first, &account(1)));
        let charge = Charge::new(Some(first.clone()));
        charge.add(99_000);
        assert!(first.poll_room(&mut cx).is_ready());
        charge.add(1_000);
        assert!(first.poll_room(&mut cx).is_pending());
        assert!(second.poll_room(&mut cx).is_ready());
        assert_eq!(ledger.used(), 100_000 + MESSAGE_OVERHEAD_BYTES);
        // The whole engine is full: everybody waits.
        let more: Vec<Charge> = (3..6).map(|user| Charge::new(Some(account(user)))).collect();
        more.iter().for_each(|charge| charge.add(100_000));
        assert!(second.poll_room(&mut cx).is_pending());
        drop(more);
        assert!(second.poll_room(&mut cx).is_ready());
        assert!(first.poll_room(&mut cx).is_pending());
        drop(charge);
        assert!(first.poll_room(&mut cx).is_ready());
        assert_eq!(ledger.used(), 0);
        drop((first, second));
        account(9);
        assert_eq!(lock(&ledger.accounts).len(), 1, "who is gone is forgotten");
    }

    /// Charges are given back by many threads while one waits: it is always woken.
    #[test]
    fn who_waits_for_room_is_woken_by_another_thread() {
        let ledger = Arc::<Ledger>::default();
        ledger.set_limit(4_000);
        let account = ledger.account(Origin::Unknown);
        let env = env::Env::real().unwrap();
        for _ in 0..2000 {
            let bytes = 1_000u64;
            account.used.fetch_add(bytes, Ordering::SeqCst);
            ledger.used.fetch_add(bytes, Ordering::SeqCst);
            let theirs = account.clone();
            let other = std::thread::spawn(move || {
                let charge = Charge { account: Some(theirs), bytes: Cell::new(bytes) };
                drop(charge);
            });
            env.block_on(std::future::poll_fn(|cx| account.poll_room(cx)));
            other.join().unwrap();
        }
        env.clear();
    }
}
