//! Is there an order of the calls, each between its invocation and its answer, in which one copy
//! of the data, asked one call after the other, gives these answers?
//!
//! The search is that of Wing and Gong with the memory of Lowe: calls are put in order one by one,
//! and a set of placed calls with the state they lead to is tried once. It is exponential in the
//! number of calls that overlap, so histories are cut by key first, and the number of tries is
//! bounded.
//!
//! Where what is seen can be lost, a *crash* may take back the last calls in the order, as far as the durability of the
//! data allows it: those that had no answer at a given moment. What has no answer at the crash itself and is taken
//! back may be placed once more, as a client that asks again has it done once more. Where a crash may take back
//! what was answered, the answer may also have been on its way.
//!
//! G. Lowe: Testing for linearizability, 2017. Crashes are ours.

use crate::history::{Call, Moment};
use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

/// The one copy that is asked one call after the other.
pub trait Spec {
    /// What it holds.
    type State: Clone + Eq + Hash;
    /// What it can be asked.
    type Op: Debug;
    /// What it answers.
    type Ret: Debug;

    /// The state after a call. `None` when it would not answer this. Of a call without an answer,
    /// whatever the answer would have been.
    fn step(
        &self,
        state: &Self::State,
        op: &Self::Op,
        ret: Option<&Self::Ret>,
    ) -> Option<Self::State>;

    /// True when a crash takes back nothing of such a call once it is answered.
    fn is_kept(&self, op: &Self::Op) -> bool;

    /// True when a call with this answer changes no state.
    fn is_read(&self, op: &Self::Op, ret: &Self::Ret) -> bool;
}

/// A crash, and what survives it.
#[derive(Clone, Copy, Debug)]
pub struct Crash {
    /// When.
    pub at: Moment,
    /// What was answered by then is kept, with all that comes before it in the order.
    pub keeps_until: Moment,
}

/// Outcome of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is such an order.
    Linearizable,
    /// There is none: the calls of the longest order that was found, by number, and the call that
    /// had to come next and could not.
    Violation(Vec<usize>, String),
    /// Not decided within the bound.
    Undecided,
}

/// Tries before a search gives up.
const TRIES_MAX: usize = 200_000;
const NO_ANSWER: Moment = Moment::MAX;

#[derive(Clone, PartialEq, Eq, Hash)]
struct Placed(Vec<u64>);

impl Placed {
    fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }

    fn set(&mut self, at: usize, placed: bool) {
        let bit = 1 << (at % 64);
        if placed {
            self.0[at / 64] |= bit;
        } else {
            self.0[at / 64] &= !bit;
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Node<T> {
    placed: Placed,
    crashes: usize,
    state: T,
    /// Changes that a crash to come may take back: the call, and the state before it.
    trail: Vec<(usize, T)>,
}

struct Search<'a, S: Spec> {
    spec: &'a S,
    calls: &'a [Call<S::Op, S::Ret>],
    crashes: &'a [Crash],
    seen: HashSet<Node<S::State>>,
    /// The longest order.
    best: Vec<usize>,
    order: Vec<usize>,
}

/// Looks for an order of `calls`, from the state `start` on. `crashes` are in order of time.
pub fn check<S: Spec>(
    spec: &S,
    start: S::State,
    calls: &[Call<S::Op, S::Ret>],
    crashes: &[Crash],
) -> Verdict {
    let node = Node {
        placed: Placed(vec![0; calls.len().div_ceil(64)]),
        crashes: 0,
        state: start,
        trail: Vec::new(),
    };
    let mut search =
        Search { spec, calls, crashes, seen: HashSet::new(), best: Vec::new(), order: Vec::new() };
    match search.run(node) {
        Some(true) => Verdict::Linearizable,
        Some(false) => {
            let missing = (0..calls.len())
                .filter(|at| !search.best.contains(at) && calls[*at].returned.is_some())
                .min_by_key(|at| search.returned(*at));
            let text = missing.map(|at| format!("{:?}", calls[at])).unwrap_or_default();
            Verdict::Violation(search.best, text)
        }
        None => Verdict::Undecided,
    }
}

impl<S: Spec> Search<'_, S> {
    fn returned(&self, at: usize) -> Moment {
        self.calls[at].returned.as_ref().map_or(NO_ANSWER, |(at, _)| *at)
    }

    /// True when the calls that are left can be put in order; `None` when it gave up.
    fn run(&mut self, node: Node<S::State>) -> Option<bool> {
        if self.seen.len() >= TRIES_MAX {
            return None;
        }
        if !self.seen.insert(node.clone()) {
            return Some(false);
        }
        let left: Vec<usize> = (0..self.calls.len()).filter(|at| !node.placed.has(*at)).collect();
        if left.iter().all(|at| self.returned(*at) == NO_ANSWER) {
            return Some(true);
        }
        if self.order.len() > self.best.len() {
            self.best.clone_from(&self.order);
        }
        // Whatever comes next was invoked before the first of the answers that are still to come.
        let mut bound = left.iter().map(|at| self.returned(*at)).min().unwrap_or(NO_ANSWER);
        if let Some(crash) = self.crashes.get(node.crashes).copied() {
            if crash.at < bound && self.crash(&node, crash)? {
                return Some(true);
            }
            bound = bound.min(crash.at);
        }
        let mut next: Vec<usize> =
            left.into_iter().filter(|at| self.calls[*at].invoked < bound).collect();
        next.sort_by_key(|at| (self.returned(*at), *at));
        let mut steps = Vec::new();
        for at in next {
            let call = &self.calls[at];
            let ret = call.returned.as_ref().map(|(_, ret)| ret);
            match self.spec.step(&node.state, &call.op, ret) {
                // No order is lost: whatever can come next can come after it, too.
                Some(state) if ret.is_some_and(|ret| self.spec.is_read(&call.op, ret)) => {
                    steps = vec![(at, state)];
                    break;
                }
                // As good as left out.
                Some(state) if state == node.state && ret.is_none() => {}
                Some(state) => steps.push((at, state)),
                None => {}
            }
        }
        for (at, state) in steps {
            let mut after = node.clone();
            after.placed.set(at, true);
            if state != node.state {
                after.trail.push((at, node.state.clone()));
            }
            after.state = state;
            self.forget(&mut after);
            self.order.push(at);
            let found = self.run(after)?;
            self.order.pop();
            if found {
                return Some(true);
            }
        }
        Some(false)
    }

    /// True when a crash does not take a call back.
    fn is_kept(&self, at: usize, crash: Crash) -> bool {
        let until = match self.spec.is_kept(&self.calls[at].op) {
            true => crash.at,
            false => crash.keeps_until,
        };
        self.returned(at) <= until
    }

    /// Forgets changes that no crash to come takes back.
    fn forget(&self, node: &mut Node<S::State>) {
        let kept = match self.crashes.get(node.crashes) {
            Some(crash) => {
                let is_kept = |(at, _): &(usize, _)| self.is_kept(*at, *crash);
                node.trail.iter().rposition(is_kept).map_or(0, |last| last + 1)
            }
            None => node.trail.len(),
        };
        node.trail.drain(..kept);
    }

    /// Goes on behind a crash, whatever it took back.
    fn crash(&mut self, node: &Node<S::State>, crash: Crash) -> Option<bool> {
        let mut after = node.clone();
        after.crashes += 1;
        self.take_back(after, crash)
    }

    /// Goes on with what is left, or with one change less.
    fn take_back(&mut self, after: Node<S::State>, crash: Crash) -> Option<bool> {
        let mut next = after.clone();
        self.forget(&mut next);
        if self.run(next)? {
            return Some(true);
        }
        let mut less = after;
        let Some((at, state)) = less.trail.pop() else { return Some(false) };
        if self.is_kept(at, crash) {
            return Some(false);
        }
        let returned = self.returned(at);
        less.state = state;
        let was_asked_again = returned > crash.at;
        if was_asked_again {
            let mut again = less.clone();
            again.placed.set(at, false);
            if self.take_back(again, crash)? {
                return Some(true);
            }
        }
        // Its answer came before the crash, or was on its way.
        let is_lost = returned != NO_ANSWER && crash.keeps_until < crash.at;
        Some(is_lost && self.take_back(less, crash)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::register::{Asked, Register, Said};

    fn call(op: Asked, invoked: Moment, returned: Option<(Moment, Said)>) -> Call<Asked, Said> {
        Call { client: 0, op, invoked, returned }
    }

    fn put(value: u64, invoked: Moment, returned: Moment) -> Call<Asked, Said> {
        call(Asked::Put(value), invoked, Some((returned, Said::Done)))
    }

    fn get(value: Option<u64>, invoked: Moment, returned: Moment) -> Call<Asked, Said> {
        call(Asked::Get, invoked, Some((returned, Said::Found(value))))
    }

    fn is_good(calls: &[Call<Asked, Said>], crashes: &[Crash]) -> bool {
        match check(&Register, None, calls, crashes) {
            Verdict::Linearizable => true,
            Verdict::Violation(..) => false,
            Verdict::Undecided => panic!("undecided"),
        }
    }

    #[test]
    fn known_good_histories() {
        assert!(is_good(&[], &[]));
        assert!(is_good(&[put(1, 1, 2), get(Some(1), 3, 4)], &[]));
        // Overlapping reads may see either.
        assert!(is_good(&[put(1, 1, 10), get(None, 2, 3), get(Some(1), 4, 5)], &[]));
        // A pending write shows up late, or never.
        let pending = call(Asked::Put(1), 1, None);
        assert!(is_good(&[pending.clone(), get(None, 2, 3), get(Some(1), 40, 50)], &[]));
        assert!(is_good(&[pending, get(None, 2, 3), get(None, 40, 50)], &[]));
        // Two inserts of which one may win.
        let insert = |value, said| call(Asked::Insert(value), 1, Some((9, said)));
        assert!(is_good(&[insert(1, Said::Exist), insert(2, Said::Done)], &[]));
    }

    #[test]
    fn known_bad_histories() {
        // A read of the past, of the future, of nothing, and of two orders at once.
        assert!(!is_good(&[put(1, 1, 2), put(2, 3, 4), get(Some(1), 5, 6)], &[]));
        assert!(!is_good(&[get(Some(1), 1, 2), put(1, 3, 4)], &[]));
        assert!(!is_good(&[put(1, 1, 2), get(None, 3, 4)], &[]));
        let (a, b) = (put(1, 1, 20), put(2, 1, 20));
        let reads = |first, second| [get(Some(first), 2, 3), get(Some(second), 4, 5)];
        assert!(is_good(&[&[a.clone(), b.clone()][..], &reads(1, 2)].concat(), &[]));
        let back = [&reads(1, 2)[..], &[get(Some(1), 6, 7)]].concat();
        assert!(!is_good(&[&[a, b][..], &back].concat(), &[]));
        // An insert that was done twice.
        let insert = |value, from, to, said| call(Asked::Insert(value), from, Some((to, said)));
        assert!(!is_good(&[insert(1, 1, 2, Said::Exist)], &[]));
        assert!(!is_good(&[insert(1, 1, 2, Said::Done), insert(2, 3, 4, Said::Done)], &[]));
        // A pending write that comes back after it was overwritten by somebody who saw it.
        let pending = call(Asked::Put(1), 1, None);
        let seen = [pending, get(Some(1), 2, 3), put(2, 4, 5), get(Some(1), 6, 7)];
        assert!(!is_good(&seen, &[]));
    }

    #[test]
    fn crashes_take_back_what_they_may() {
        let crash = |at, keeps_until| [Crash { at, keeps_until }];
        // Acknowledged, and gone.
        let lost = [put(1, 1, 2), get(None, 7, 8)];
        assert!(!is_good(&lost, &[]));
        assert!(!is_good(&lost, &crash(5, 5)));
        assert!(is_good(&lost, &crash(5, 0)));
        assert!(is_good(&lost, &crash(5, 1)), "answered after what is kept");
        assert!(!is_good(&lost, &crash(5, 2)));
        // Seen before its answer, gone, and done again by the client that had no answer.
        let again = [put(1, 1, 20), get(Some(1), 2, 3), get(None, 7, 8), get(Some(1), 21, 22)];
        assert!(!is_good(&again, &[]));
        assert!(is_good(&again, &crash(5, 5)));
        assert!(!is_good(&again, &crash(9, 9)), "it was gone before the crash");
        // The answer was on its way when all was lost.
        let late = [put(1, 1, 6), get(None, 7, 8)];
        assert!(is_good(&late, &crash(5, 0)));
        assert!(!is_good(&late, &crash(5, 5)));
        // A crash elsewhere took nothing; the next one does.
        let elsewhere = [Crash { at: 5, keeps_until: 0 }, Crash { at: 9, keeps_until: 0 }];
        assert!(is_good(&[put(1, 1, 2), get(Some(1), 7, 8), get(None, 10, 11)], &elsewhere));
        // Some calls are kept where others are not, with what lies before them.
        let swap = |from, invoked, returned| {
            let op = Asked::Swap { from: Some(from), to: Some(9), is_kept: true };
            call(op, invoked, Some((returned, Said::Done)))
        };
        let kept = [put(1, 1, 2), swap(1, 3, 4)];
        assert!(is_good(&[&kept[..], &[get(Some(9), 7, 8)]].concat(), &crash(5, 0)));
        assert!(!is_good(&[&kept[..], &[get(Some(1), 7, 8)]].concat(), &crash(5, 0)));
        assert!(!is_good(&[&kept[..], &[get(None, 7, 8)]].concat(), &crash(5, 0)));
        // What lies before an answered call is kept with it.
        let below = [put(1, 1, 20), get(Some(1), 2, 3), put(2, 4, 5), get(Some(1), 7, 8)];
        assert!(!is_good(&below, &crash(6, 6)));
    }

    /// Histories that are good because they were made by one copy stay decidable when they are long.
    #[test]
    fn long_histories_of_one_copy() {
        let rng = env::Rng::new(5);
        for _ in 0..50 {
            let mut state = None;
            let mut calls = Vec::new();
            for at in 0..200u64 {
                // It takes effect at `10 * at`, within an interval that overlaps others.
                let invoked = (10 * at + 1).saturating_sub(rng.below(40)).max(1);
                let op = match rng.below(4) {
                    0 => Asked::Get,
                    1 => Asked::Put(at),
                    2 => Asked::Insert(at),
                    _ => Asked::Remove,
                };
                let said = match op {
                    Asked::Get => Said::Found(state),
                    Asked::Insert(_) if state.is_some() => Said::Exist,
                    _ => Said::Done,
                };
                state = Register.step(&state, &op, Some(&said)).unwrap();
                let returned = (rng.below(20) > 0).then(|| (10 * at + 2 + rng.below(40), said));
                let returned = returned.filter(|_| !matches!(op, Asked::Get) || at % 2 == 0);
                calls.push(call(op, invoked, returned));
            }
            assert!(is_good(&calls, &[]));
        }
    }
}
