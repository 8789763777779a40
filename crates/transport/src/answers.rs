//! Memory that answers take in an engine before they are sent, by whom they are for.
//!
//! A short request may ask for much, and many may be on their way before the first is answered. So an
//! answer is put together only when there is room for it: for those of its origin, and for those of the
//! engine. Answers of one connection take turns.
//!
//! Invariants: an origin of which no answer is under way gets room, whatever its answer takes and others
//! hold, so everybody goes on. A connection of which none is under way has twice the room, so that one whose
//! client takes nothing does not stop the others of its origin.

use crate::ledger::Account;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The answers of a connection.
#[derive(Default)]
pub(crate) struct Answers {
    /// How many have room.
    under_way: Cell<usize>,
    /// Who waits for room, by number.
    queue: RefCell<VecDeque<(u64, Waker)>>,
    number_last: Cell<u64>,
}

impl Answers {
    /// Waits for room for an answer of `bytes`.
    pub async fn take_room(self: &Rc<Self>, account: &Arc<Account>, bytes: u64) -> AnswerRoom {
        let mut place = Place { answers: self, number: None };
        std::future::poll_fn(|cx| place.poll(cx, account, bytes)).await;
        self.under_way.set(self.under_way.get() + 1);
        AnswerRoom { account: account.clone(), answers: self.clone(), bytes }
    }

    fn wake_first(&self) {
        let first = self.queue.borrow().front().map(|(_, waker)| waker.clone());
        if let Some(waker) = first {
            waker.wake();
        }
    }
}

/// What one answer takes; given back when this is dropped.
pub(crate) struct AnswerRoom {
    account: Arc<Account>,
    answers: Rc<Answers>,
    bytes: u64,
}

impl Drop for AnswerRoom {
    fn drop(&mut self) {
        self.answers.under_way.set(self.answers.under_way.get() - 1);
        self.account.give_back_answer(self.bytes);
        self.answers.wake_first();
    }
}

/// A place among those who wait.
struct Place<'a> {
    answers: &'a Answers,
    number: Option<u64>,
}

impl Place<'_> {
    fn poll(&mut self, cx: &mut Context<'_>, account: &Account, bytes: u64) -> Poll<()> {
        let answers = self.answers;
        let is_first = match self.number {
            None => answers.queue.borrow().is_empty(),
            Some(number) => answers.queue.borrow().front().is_some_and(|(at, _)| *at == number),
        };
        let is_idle = answers.under_way.get() == 0;
        if is_first && account.poll_answer(cx, bytes, is_idle).is_ready() {
            self.leave();
            return Poll::Ready(());
        }
        let mut queue = answers.queue.borrow_mut();
        match self.number {
            None => {
                let number = answers.number_last.get() + 1;
                answers.number_last.set(number);
                queue.push_back((number, cx.waker().clone()));
                self.number = Some(number);
            }
            Some(number) => {
                if let Ok(at) = queue.binary_search_by_key(&number, |(number, _)| *number) {
                    queue[at].1.clone_from(cx.waker());
                }
            }
        }
        Poll::Pending
    }

    /// Lets the next one look.
    fn leave(&mut self) {
        let Some(number) = self.number.take() else { return };
        let mut queue = self.answers.queue.borrow_mut();
        if let Ok(at) = queue.binary_search_by_key(&number, |(number, _)| *number) {
            queue.remove(at);
        }
        drop(queue);
        self.answers.wake_first();
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::greetings::Origin;
    use crate::ledger::Ledger;
    use std::pin::pin;

    #[test]
    fn answers_of_a_connection_take_turns_and_each_origin_goes_on() {
        let ledger = Arc::<Ledger>::default();
        ledger.set_limit(800_000);
        let (account, other) = (ledger.account(Origin::User(1)), ledger.account(Origin::User(2)));
        let (conn, stuck) = (Rc::<Answers>::default(), Rc::<Answers>::default());
        let mut cx = Context::from_waker(Waker::noop());
        let first = conn.take_room(&account, 5_000_000);
        let Poll::Ready(first) = pin!(first).poll(&mut cx) else { panic!("the only one waits") };
        let mut large = Box::pin(conn.take_room(&account, 90_000));
        let mut small = Box::pin(conn.take_room(&account, 20_000));
        let mut last = Box::pin(conn.take_room(&account, 10_000));
        for waiting in [&mut large, &mut small, &mut last] {
            assert!(waiting.as_mut().poll(&mut cx).is_pending());
        }
        // The engine is full, but this one has nothing yet.
        let theirs = stuck.take_room(&other, 1_000_000);
        let Poll::Ready(theirs) = pin!(theirs).poll(&mut cx) else { panic!("another one waits") };
        drop((first, theirs));
        assert!(small.as_mut().poll(&mut cx).is_pending(), "it is not its turn");
        let Poll::Ready(held) = large.as_mut().poll(&mut cx) else { panic!("the first waits") };
        // Together they are over an eighth.
        assert!(small.as_mut().poll(&mut cx).is_pending());
        assert!(last.as_mut().poll(&mut cx).is_pending());
        // Who gives up waiting is in nobody's way.
        drop(small);
        let Poll::Ready(more) = last.as_mut().poll(&mut cx) else { panic!("the last waits") };
        drop((held, more));
        // One whose client takes nothing, and another of the same origin.
        let stays = stuck.take_room(&account, 100_000);
        let Poll::Ready(stays) = pin!(stays).poll(&mut cx) else { panic!("the only one waits") };
        let mut again = Box::pin(stuck.take_room(&account, 1_000));
        assert!(again.as_mut().poll(&mut cx).is_pending());
        for _ in 0..3 {
            let goes_on = conn.take_room(&account, 100_000);
            assert!(pin!(goes_on).poll(&mut cx).is_ready(), "stopped by another connection");
        }
        drop((again, stays));
        assert_eq!(ledger.answers(), 0);
        assert_eq!((conn.under_way.get(), stuck.under_way.get()), (0, 0));
    }

    /// Room is given back by many threads while one waits: it is always woken.
    #[test]
    fn who_waits_for_room_for_an_answer_is_woken_by_another_thread() {
        let ledger = Arc::<Ledger>::default();
        ledger.set_limit(8_000);
        let account = ledger.account(Origin::Unknown);
        let env = env::Env::real().unwrap();
        let conn = Rc::<Answers>::default();
        for _ in 0..2000 {
            let mut cx = Context::from_waker(Waker::noop());
            assert!(account.poll_answer(&mut cx, 2_000, true).is_ready());
            let theirs = account.clone();
            let other = std::thread::spawn(move || theirs.give_back_answer(2_000));
            drop(env.block_on(conn.take_room(&account, 500)));
            other.join().unwrap();
        }
        env.clear();
    }
}
