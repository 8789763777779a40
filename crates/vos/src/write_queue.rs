//! Data on their way to the devices of a target: no more at a time than these write in a moment.
//!
//! A device that is given many large writes at once works at all of them and ends them together. Processes that write one file in step are then
//! all at one target, and all at the next: devices stand still while one works. Here the first write is through while the others wait; its
//! process goes on to the next device, and after as many steps as there are devices all of them work.
//!
//! What is known of devices may have been measured in a slow moment of theirs. While somebody waits all the time, they have as much as they are given,
//! and what they write of it is what they can at least: if that is more than is known of them, they are given more.
//!
//! Invariants: what is under way is no more than the limit, or one write alone; writes of a kind begin in the order in which they came; while
//! small and large ones wait, either kind gets as many bytes as the other, so that neither waits for all of it; the limit falls only when devices
//! are measured again, and never rises beyond what they are held to.

use crate::volume::traffic::LARGE_BYTES;
use env::Env;
use futures_channel::oneshot;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use wire::measure::Measures;

/// So many writes at random places are under way in any case: a disk sorts what it has.
const RANDOM_AT_ONCE: u64 = 10;
/// Somebody waits for so many times of the queue before the devices are judged by it: what is under way at the end, and does not count, is a
/// tenth then.
const TIMES_TO_JUDGE: u32 = 10;

/// What the devices of a target are given at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Limit {
    /// They may be busy for so long with it.
    pub time: Duration,
    /// At most so much, bytes; 0: as much as there is, for nothing is known of them.
    pub bytes: u64,
    /// What they are held to, bytes a second.
    pub rate_max: Option<u64>,
}

impl Limit {
    /// By what is known of the devices.
    pub fn of(time: Duration, rate_max: Option<u64>, known: Option<&Measures>) -> Limit {
        let measured =
            known.map(|known| known.write.kb_s.saturating_mul(1000)).filter(|rate| *rate > 0);
        let rate = measured.into_iter().chain(rate_max).min();
        let bytes = rate.map_or(0, |rate| match bytes_in(rate, time) {
            0 => 0,
            // What could be written while one at a random place is.
            bytes => {
                let random = known.map_or(0, |known| rate / known.random_writes_s.max(1));
                bytes.max(random.saturating_mul(RANDOM_AT_ONCE))
            }
        });
        Limit { time, bytes, rate_max }
    }

    /// The devices have written so much while somebody waited for them for `took`. They are given twice as much at most as before: what failed
    /// counts as written.
    fn learn(&mut self, bytes: u64, took: Duration) {
        if took.is_zero() {
            return;
        }
        let rate = (u128::from(bytes) * 1_000_000_000 / took.as_nanos()) as u64;
        let rate = self.rate_max.map_or(rate, |rate_max| rate.min(rate_max));
        self.bytes = self.bytes.max(bytes_in(rate, self.time).min(2 * self.bytes));
    }
}

/// What is written at a rate, bytes.
fn bytes_in(rate: u64, time: Duration) -> u64 {
    (u128::from(rate) * time.as_nanos() / 1_000_000_000) as u64
}

/// Those who wait with writes of one kind.
#[derive(Default)]
struct Line {
    waiting: VecDeque<(u64, oneshot::Sender<Turn>)>,
    /// Begun by them, bytes; those that come to an empty line begin where the other one is.
    begun: u64,
}

/// A time in which somebody waits.
#[derive(Default)]
struct Stretch {
    number: u64,
    /// `None`: nobody waits.
    since: Option<Duration>,
    /// Of writes that began in it and have ended.
    bytes: u64,
}

#[derive(Default)]
struct State {
    limit: Limit,
    under_way: u64,
    /// Small ones, large ones.
    lines: [Line; 2],
    stretch: Stretch,
}

impl State {
    fn fits(&self, bytes: u64) -> bool {
        let limit = self.limit.bytes;
        limit == 0 || self.under_way == 0 || self.under_way.saturating_add(bytes) <= limit
    }

    fn somebody_waits(&self) -> bool {
        self.lines.iter().any(|line| !line.waiting.is_empty())
    }

    /// Learns from a stretch that is over, or long enough to judge by.
    fn judge(&mut self, now: Duration) {
        let waits = self.somebody_waits();
        if let Some(since) = self.stretch.since {
            let took = now.saturating_sub(since);
            let is_enough = took >= TIMES_TO_JUDGE * self.limit.time;
            if is_enough {
                self.limit.learn(self.stretch.bytes, took);
            }
            if waits && !is_enough {
                return;
            }
        } else if !waits {
            return;
        }
        let number = self.stretch.number + 1;
        self.stretch = Stretch { number, since: waits.then_some(now), bytes: 0 };
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
#[derive(Clone)]
pub(crate) struct WriteQueue {
    env: Env,
    state: Rc<RefCell<State>>,
}

/// A write that may be under way, until this is dropped.
pub(crate) struct Turn {
    queue: WriteQueue,
    bytes: u64,
    /// In which it began.
    stretch: u64,
}

impl WriteQueue {
    /// A queue without a limit.
    pub fn new(env: &Env) -> WriteQueue {
        WriteQueue { env: env.clone(), state: Rc::default() }
    }

    /// From now on this is how much is under way at most.
    pub fn set_limit(&self, limit: Limit) {
        self.state.borrow_mut().limit = limit;
        self.admit();
    }

    /// A turn that is counted already.
    fn given(&self, bytes: u64) -> Turn {
        Turn { queue: self.clone(), bytes, stretch: self.state.borrow().stretch.number }
    }

    /// Waits until a write may begin.
    pub async fn turn(&self, bytes: u64) -> Turn {
        let turned = {
            let state = &mut *self.state.borrow_mut();
            if !state.somebody_waits() && state.fits(bytes) {
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
        let Some(turned) = turned else { return self.given(bytes) };
        // One of the other kind may be what does not fit.
        self.admit();
        // The queue outlives who waits in it.
        turned.await.unwrap_or_else(|_| self.given(0))
    }

    /// Lets in who may begin.
    fn admit(&self) {
        loop {
            let next = self.state.borrow_mut().next();
            let Some((bytes, sender)) = next else { break };
            if let Err(mut turn) = sender.send(self.given(bytes)) {
                // Nobody waits for it any more.
                turn.bytes = 0;
                self.state.borrow_mut().under_way -= bytes;
            }
        }
        let state = &mut *self.state.borrow_mut();
        if state.stretch.since.is_some() || state.somebody_waits() {
            state.judge(self.env.now());
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        {
            let state = &mut *self.queue.state.borrow_mut();
            state.under_way -= self.bytes;
            if state.stretch.number == self.stretch {
                state.stretch.bytes += self.bytes;
            }
        }
        self.queue.admit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::SimWorld;
    use futures_util::FutureExt;
    use futures_util::future::LocalBoxFuture;
    use futures_util::future::join_all;
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
        let limit =
            |time, rate_max, known: Option<&Measures>| Limit::of(time, rate_max, known).bytes;
        assert_eq!(limit(time, None, None), 0);
        assert_eq!(limit(time, None, Some(&known(0, 0))), 0);
        assert_eq!(limit(time, Some(128 << 20), None), (128 << 20) / 100);
        let flash = known(2_000_000, 200_000);
        assert_eq!(limit(time, None, Some(&flash)), 20_000_000);
        assert_eq!(limit(time, Some(100_000_000), Some(&flash)), 1_000_000);
        assert_eq!(limit(Duration::ZERO, None, Some(&flash)), 0);
        // A disk is given ten to sort.
        assert_eq!(limit(time, None, Some(&known(200_000, 100))), 20_000_000);
    }

    /// A device that has two writes at a time done after the same time as one.
    async fn write_for(env: &Env, queue: &WriteQueue, each: Duration, count: usize) {
        let writers = (0..16).map(|_| async {
            for _ in 0..count {
                let _turn = queue.turn(LARGE).await;
                env.sleep(each).await;
            }
        });
        join_all(writers).await;
    }

    /// A device that was measured in a slow moment is given what it really writes in the time, and no more than it is held to.
    #[test]
    fn a_device_that_writes_more_than_was_measured_is_given_more() {
        let time = Duration::from_millis(10);
        // One write at a time would be 100 a second; it does 1,000 of each of those who write.
        let measured = Limit { time, bytes: LARGE, rate_max: None };
        let each = Duration::from_millis(1);
        for (rate_max, at_most) in [(None, 160 * LARGE), (Some(LARGE * 500), 5 * LARGE)] {
            let world = SimWorld::new(1);
            let env = world.node("a");
            let queue = WriteQueue::new(&env);
            world.block_on(async {
                queue.set_limit(Limit { rate_max, ..measured });
                write_for(&env, &queue, each, 200).await;
            });
            let bytes = queue.state.borrow().limit.bytes;
            assert!(bytes > 4 * LARGE && bytes <= at_most, "{bytes}, {rate_max:?}");
            queue.set_limit(measured);
            assert_eq!(queue.state.borrow().limit.bytes, LARGE, "measured again");
        }
        // As slow as was measured: nothing changes.
        let world = SimWorld::new(1);
        let env = world.node("a");
        let queue = WriteQueue::new(&env);
        queue.set_limit(measured);
        world.block_on(write_for(&env, &queue, time, 20));
        assert_eq!(queue.state.borrow().limit.bytes, LARGE);
    }

    /// The queue, and who asked it: with a turn, or waiting.
    struct Asked {
        queue: WriteQueue,
        turns: Vec<(usize, Turn)>,
        waiting: Vec<(usize, LocalBoxFuture<'static, Turn>)>,
    }

    impl Asked {
        /// In a world where time stands still.
        fn new(world: &SimWorld) -> Asked {
            let queue = WriteQueue::new(&world.node("a"));
            Asked { queue, turns: Vec::new(), waiting: Vec::new() }
        }

        fn limit(&mut self, bytes: u64) {
            self.queue.set_limit(Limit { bytes, ..Limit::default() });
        }

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
            let world = SimWorld::new(1);
            let (mut asked, mut model) = (Asked::new(&world), Model::default());
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
                        asked.limit(bytes);
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
        let world = SimWorld::new(1);
        let mut asked = Asked::new(&world);
        asked.limit(16 * LARGE);
        for number in 0..50 {
            asked.ask(number, 16 * LARGE);
        }
        asked.ask(50, 4096);
        asked.turns.clear();
        asked.look();
        assert_eq!(asked.under_way(), [50], "the one after the first");
    }
}
