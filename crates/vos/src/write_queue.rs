//! Data on their way to the devices of a target: no more at a time than these write in a moment.
//!
//! A device that is given many large writes at once works at all of them and ends them together. Processes that write one file in step are then
//! all at one target, and all at the next: devices stand still while one works. Here the first write is through while the others wait; its
//! process goes on to the next device, and after as many steps as there are devices all of them work.
//!
//! Invariants: what is under way is no more than the limit, or one write alone; writes of a kind begin in the order in which they came; while
//! small and large ones wait, either kind gets as many bytes as the other, so that neither waits for all of it.

use crate::volume::traffic::LARGE_BYTES;
use futures_channel::oneshot;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use wire::measure::Measures;

/// So many writes at random places are under way in any case: a disk sorts what it has.
const RANDOM_AT_ONCE: u64 = 10;

/// Most that devices of a target are given at once, bytes, that they may be busy for so long; 0: there is no limit, for nothing is known of
/// them. `rate_max`: what they are held to, bytes a second.
pub(crate) fn limit_bytes(time: Duration, rate_max: Option<u64>, known: Option<&Measures>) -> u64 {
    let measured =
        known.map(|known| known.write.kb_s.saturating_mul(1000)).filter(|rate| *rate > 0);
    let Some(rate) = measured.into_iter().chain(rate_max).min() else { return 0 };
    let in_time = (u128::from(rate) * time.as_nanos() / 1_000_000_000) as u64;
    if in_time == 0 {
        return 0;
    }
    // What could be written while one at a random place is.
    let random = known.map_or(0, |known| rate / known.random_writes_s.max(1));
    in_time.max(random.saturating_mul(RANDOM_AT_ONCE))
}

/// Those who wait with writes of one kind.
#[derive(Default)]
struct Line {
    waiting: VecDeque<(u64, oneshot::Sender<Turn>)>,
    /// Begun by them, bytes; those that come to an empty line begin where the other one is.
    begun: u64,
}

#[derive(Default)]
struct State {
    limit: u64,
    under_way: u64,
    /// Small ones, large ones.
    lines: [Line; 2],
}

impl State {
    fn fits(&self, bytes: u64) -> bool {
        self.limit == 0 || self.under_way == 0 || self.under_way.saturating_add(bytes) <= self.limit
    }

    /// The next to begin, if it may, counted as under way.
    fn next(&mut self) -> Option<(u64, oneshot::Sender<Turn>)> {
        let [small, large] = &self.lines;
        let is_small = match (small.waiting.is_empty(), large.waiting.is_empty()) {
            (true, true) => return None,
            (is_empty, other) if is_empty != other => other,
            _ => small.begun <= large.begun,
        };
        let line = &self.lines[usize::from(!is_small)];
        let bytes = line.waiting.front()?.0;
        if !self.fits(bytes) {
            return None;
        }
        self.under_way += bytes;
        let line = &mut self.lines[usize::from(!is_small)];
        line.begun += bytes;
        line.waiting.pop_front()
    }
}

/// Lets writes begin. Clones are the same queue.
#[derive(Clone, Default)]
pub(crate) struct WriteQueue(Rc<RefCell<State>>);

/// A write that may be under way, until this is dropped.
pub(crate) struct Turn {
    queue: WriteQueue,
    bytes: u64,
}

impl WriteQueue {
    /// From now on no more than this is under way, bytes; 0: as much as there is.
    pub fn set_limit(&self, bytes: u64) {
        self.0.borrow_mut().limit = bytes;
        self.admit();
    }

    /// Waits until a write may begin.
    pub async fn turn(&self, bytes: u64) -> Turn {
        let turned = {
            let state = &mut *self.0.borrow_mut();
            let nobody_waits = state.lines.iter().all(|line| line.waiting.is_empty());
            if nobody_waits && state.fits(bytes) {
                state.under_way += bytes;
                None
            } else {
                let number = usize::from(bytes >= LARGE_BYTES as u64);
                let other = state.lines[1 - number].begun;
                let line = &mut state.lines[number];
                if line.waiting.is_empty() {
                    line.begun = line.begun.max(other);
                }
                let (sender, turned) = oneshot::channel();
                line.waiting.push_back((bytes, sender));
                Some(turned)
            }
        };
        let Some(turned) = turned else { return Turn { queue: self.clone(), bytes } };
        // One of the other kind may be what does not fit.
        self.admit();
        // The queue outlives who waits in it.
        turned.await.unwrap_or_else(|_| Turn { queue: self.clone(), bytes: 0 })
    }

    /// Lets in who may begin.
    fn admit(&self) {
        loop {
            let Some((bytes, sender)) = self.0.borrow_mut().next() else { return };
            if let Err(mut turn) = sender.send(Turn { queue: self.clone(), bytes }) {
                // Nobody waits for it any more.
                turn.bytes = 0;
                self.0.borrow_mut().under_way -= bytes;
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.queue.0.borrow_mut().under_way -= self.bytes;
            self.queue.admit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use futures_util::future::LocalBoxFuture;
    use proptest::prelude::*;
    use wire::measure::Speed;

    const LARGE: u64 = LARGE_BYTES as u64;

    #[test]
    fn a_limit_is_what_devices_write_in_the_time() {
        let time = Duration::from_millis(10);
        let known = |kb_s, random_writes_s| Measures {
            write: Speed { kb_s, ..Speed::default() },
            random_writes_s,
            ..Measures::default()
        };
        assert_eq!(limit_bytes(time, None, None), 0);
        assert_eq!(limit_bytes(time, None, Some(&known(0, 0))), 0);
        assert_eq!(limit_bytes(time, Some(128 << 20), None), (128 << 20) / 100);
        let flash = known(2_000_000, 200_000);
        assert_eq!(limit_bytes(time, None, Some(&flash)), 20_000_000);
        assert_eq!(limit_bytes(time, Some(100_000_000), Some(&flash)), 1_000_000);
        assert_eq!(limit_bytes(Duration::ZERO, None, Some(&flash)), 0);
        // A disk is given ten to sort.
        assert_eq!(limit_bytes(time, None, Some(&known(200_000, 100))), 20_000_000);
    }

    /// The queue, and who asked it: with a turn, or waiting.
    #[derive(Default)]
    struct Asked {
        queue: WriteQueue,
        turns: Vec<(usize, Turn)>,
        waiting: Vec<(usize, LocalBoxFuture<'static, Turn>)>,
    }

    impl Asked {
        fn ask(&mut self, number: usize, bytes: u64) {
            let queue = self.queue.clone();
            let turn = async move { queue.turn(bytes).await };
            self.waiting.push((number, turn.boxed_local()));
            self.look();
        }

        fn look(&mut self) {
            for (number, mut turn) in std::mem::take(&mut self.waiting) {
                match (&mut turn).now_or_never() {
                    Some(turn) => self.turns.push((number, turn)),
                    None => self.waiting.push((number, turn)),
                }
            }
        }

        fn under_way(&self) -> Vec<usize> {
            let mut numbers: Vec<usize> = self.turns.iter().map(|(number, _)| *number).collect();
            numbers.sort_unstable();
            numbers
        }
    }

    /// The same with lists, looked through anew each time.
    #[derive(Default)]
    struct Model {
        limit: u64,
        under_way: Vec<(usize, u64)>,
        waiting: Vec<(usize, u64)>,
        begun: [u64; 2],
    }

    impl Model {
        fn kind(bytes: u64) -> usize {
            usize::from(bytes >= LARGE)
        }

        fn waits(&self, kind: usize) -> Option<usize> {
            self.waiting.iter().position(|(_, bytes)| Model::kind(*bytes) == kind)
        }

        fn ask(&mut self, number: usize, bytes: u64) {
            let kind = Model::kind(bytes);
            let sum: u64 = self.under_way.iter().map(|(_, bytes)| bytes).sum();
            if self.waiting.is_empty() && (self.limit == 0 || sum == 0 || sum + bytes <= self.limit)
            {
                self.under_way.push((number, bytes));
                return;
            }
            if self.waits(kind).is_none() {
                self.begun[kind] = self.begun[kind].max(self.begun[1 - kind]);
            }
            self.waiting.push((number, bytes));
            self.admit();
        }

        fn admit(&mut self) {
            loop {
                let at = match [self.waits(0), self.waits(1)] {
                    [Some(small), Some(large)] => {
                        if self.begun[0] <= self.begun[1] {
                            small
                        } else {
                            large
                        }
                    }
                    [one, other] => match one.or(other) {
                        Some(at) => at,
                        None => return,
                    },
                };
                let (number, bytes) = self.waiting[at];
                let sum: u64 = self.under_way.iter().map(|(_, bytes)| bytes).sum();
                if self.limit != 0 && sum != 0 && sum + bytes > self.limit {
                    return;
                }
                self.waiting.remove(at);
                self.begun[Model::kind(bytes)] += bytes;
                self.under_way.push((number, bytes));
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Ask(u64),
        End(usize),
        GiveUp(usize),
        Limit(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => prop_oneof![1..LARGE, LARGE..20 * LARGE].prop_map(Step::Ask),
            4 => any::<usize>().prop_map(Step::End),
            1 => any::<usize>().prop_map(Step::GiveUp),
            1 => prop_oneof![Just(0), 1..10 * LARGE].prop_map(Step::Limit),
        ]
    }

    proptest! {
        #[test]
        fn writes_begin_as_a_list_says(steps in prop::collection::vec(step(), 1..60)) {
            let (mut asked, mut model) = (Asked::default(), Model::default());
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Ask(bytes) => {
                        asked.ask(number, bytes);
                        model.ask(number, bytes);
                    }
                    Step::End(pick) if !asked.turns.is_empty() => {
                        let (ended, _) = asked.turns.swap_remove(pick % asked.turns.len());
                        model.under_way.retain(|(number, _)| *number != ended);
                        model.admit();
                    }
                    Step::GiveUp(pick) if !asked.waiting.is_empty() => {
                        let (gone, _) = asked.waiting.swap_remove(pick % asked.waiting.len());
                        asked.waiting.sort_by_key(|(number, _)| *number);
                        // It stands in its line until its turn would come.
                        let was = model.waiting.iter_mut().find(|(number, _)| *number == gone);
                        was.unwrap().0 = usize::MAX;
                    }
                    Step::End(_) | Step::GiveUp(_) => {}
                    Step::Limit(bytes) => {
                        asked.queue.set_limit(bytes);
                        model.limit = bytes;
                        model.admit();
                    }
                }
                // Who has given up has no turn.
                while let Some(at) = model.under_way.iter().position(|(number, _)| *number == usize::MAX) {
                    model.under_way.remove(at);
                    model.admit();
                }
                asked.look();
                let mut expected: Vec<usize> = model.under_way.iter().map(|(number, _)| *number).collect();
                expected.sort_unstable();
                prop_assert_eq!(asked.under_way(), expected);
            }
        }
    }

    /// A stream of large writes does not hold small ones up for longer than it takes to write as much.
    #[test]
    fn small_ones_do_not_wait_for_all_large_ones() {
        let mut asked = Asked::default();
        asked.queue.set_limit(16 * LARGE);
        for number in 0..50 {
            asked.ask(number, 16 * LARGE);
        }
        asked.ask(50, 4096);
        asked.turns.clear();
        asked.look();
        assert_eq!(asked.under_way(), [50], "the one after the first");
    }
}
