//! The queue beside a naive one, its shares, and what it forgets.

use super::*;
use proptest::prelude::*;

/// The same rule without any structure: every question is answered by looking at all.
#[derive(Default)]
struct Naive {
    /// Ticket, job, priority, cost.
    waiting: Vec<(Ticket, u8, u8, u128)>,
    /// Start tags by priority and job.
    starts: BTreeMap<(u8, u8), u128>,
    /// Virtual times by priority.
    now: BTreeMap<u8, u128>,
}

impl Naive {
    fn push(&mut self, ticket: Ticket, job: u8, priority: u8, cost: u128) {
        if !self.waiting.iter().any(|one| (one.1, one.2) == (job, priority)) {
            let now = *self.now.entry(priority).or_default();
            let start = self.starts.entry((priority, job)).or_default();
            *start = now.max(*start);
        }
        self.waiting.push((ticket, job, priority, cost));
    }

    fn first(&self) -> Option<Ticket> {
        let key = |one: &(Ticket, u8, u8, u128)| {
            let (ticket, job, priority, _) = *one;
            let oldest = self.waiting.iter().find(|one| (one.1, one.2) == (job, priority));
            (Reverse(priority), self.starts[&(priority, job)], oldest.map(|one| one.0), ticket)
        };
        self.waiting.iter().min_by_key(|one| key(one)).map(|one| one.0)
    }

    fn remove(&mut self, at: usize, goes: bool) -> Ticket {
        let (ticket, job, priority, cost) = self.waiting.remove(at);
        if goes {
            let start = self.starts.entry((priority, job)).or_default();
            let now = self.now.entry(priority).or_default();
            *now = (*now).max(*start);
            *start += cost;
        }
        ticket
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push {
        job: u8,
        priority: u8,
        bytes: u64,
    },
    Pass {
        job: u8,
        bytes: u64,
    },
    Pop,
    /// Out of order, charged or not.
    Remove {
        at: usize,
        goes: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || 1u64..1 << 25;
    prop_oneof![
        4 => (0u8..5, 0u8..3, bytes())
            .prop_map(|(job, priority, bytes)| Step::Push { job, priority, bytes }),
        1 => (0u8..5, bytes()).prop_map(|(job, bytes)| Step::Pass { job, bytes }),
        4 => Just(Step::Pop),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(at, goes)| Step::Remove { at, goes }),
    ]
}

/// Jobs 1 and 2 weigh more.
fn weight(job: u8) -> u16 {
    [1, 2, 7, 1, 1][job as usize]
}

proptest! {
    #[test]
    fn the_queue_and_a_naive_one_agree(steps in prop::collection::vec(step(), 0..200)) {
        let mut queue = FairQueue::default();
        let mut naive = Naive::default();
        let mut ticket = 0;
        for step in steps {
            match step {
                Step::Push { job, priority, bytes } => {
                    ticket += 1;
                    let cost = cost(bytes, weight(job));
                    queue.push(ticket, job, priority, cost, ticket);
                    naive.push(ticket, job, priority, cost);
                }
                Step::Pass { job, bytes } => {
                    if queue.is_empty() {
                        let cost = cost(bytes, weight(job));
                        queue.pass(job, 1, cost);
                        naive.push(0, job, 1, cost);
                        naive.remove(0, true);
                    }
                }
                Step::Pop => {
                    let expected = naive.first().map(|first| {
                        let at = naive.waiting.iter().position(|one| one.0 == first).unwrap();
                        naive.remove(at, true)
                    });
                    prop_assert_eq!(queue.pop(), expected);
                }
                Step::Remove { at, goes } => {
                    let ticket = match naive.waiting.len() {
                        0 => 0,
                        len => naive.remove(at % len, goes),
                    };
                    let expected = (ticket != 0).then_some(ticket);
                    prop_assert_eq!(queue.contains(ticket), expected.is_some());
                    let taken = if goes { queue.take(ticket) } else { queue.withdraw(ticket) };
                    prop_assert_eq!(taken, expected);
                }
            }
            prop_assert_eq!(queue.len(), naive.waiting.len());
            prop_assert_eq!(queue.first(), naive.first());
            let by_job = (0..3).flat_map(|priority| queue.waiting_by_job(priority));
            prop_assert_eq!(by_job.map(|(_, count)| count).sum::<usize>(), queue.len());
        }
        let order: Vec<Ticket> = queue.iter().collect();
        let popped: Vec<Ticket> = std::iter::from_fn(|| queue.pop()).collect();
        prop_assert_eq!(order, popped);
    }
}

#[test]
fn jobs_share_by_weight_whatever_the_size_of_their_requests() {
    let mut queue = FairQueue::default();
    // One job sends 8 MiB at a time, one 1 MiB; both always have some waiting.
    let (big, small) = ((0, cost(8 << 20, 3), true), (1, cost(1 << 20, 1), false));
    let mut ticket = 0;
    let mut push = |queue: &mut FairQueue<u8, bool>, (job, cost, is_big)| {
        ticket += 1;
        queue.push(ticket, job, 0, cost, is_big);
    };
    for _ in 0..4 {
        push(&mut queue, big);
        push(&mut queue, small);
    }
    let mut given = (0u64, 0u64);
    while given.0 + given.1 < 4 << 30 {
        if queue.pop().unwrap() {
            given.0 += 8 << 20;
            push(&mut queue, big);
        } else {
            given.1 += 1 << 20;
            push(&mut queue, small);
        }
        // Three bytes to one, but for a request of each.
        assert!(given.0.abs_diff(3 * given.1) <= (8 << 20) + 3 * (1 << 20), "{given:?}");
    }
}

#[test]
fn a_newcomer_neither_waits_for_the_past_nor_profits_from_it() {
    let mut queue = FairQueue::default();
    for _ in 0..100 {
        queue.pass("old", 0, cost(1 << 20, 1));
    }
    for number in 0..10 {
        queue.push(2 * number, "old", 0, cost(1 << 20, 1), "old");
        queue.push(2 * number + 1, "new", 0, cost(1 << 20, 1), "new");
    }
    let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
    // The newcomer is at most one ahead at any time.
    for end in 0..=order.len() {
        let new = order[..end].iter().filter(|job| **job == "new").count();
        assert!(new.abs_diff(end - new) <= 2, "{order:?}");
    }
}

#[test]
fn new_weights_hold_for_who_waits_already() {
    let mut queue = FairQueue::default();
    for number in 0..20 {
        let job = if number < 10 { "a" } else { "b" };
        queue.push(number, job, 0, cost(1 << 20, 1), job);
    }
    queue.set_costs(|job, _| cost(1 << 20, if *job == "b" { 4 } else { 1 }));
    let first: Vec<_> = std::iter::from_fn(|| queue.pop()).take(10).collect();
    assert_eq!(first.iter().filter(|job| **job == "b").count(), 8, "{first:?}");
}

#[test]
fn names_without_end_are_forgotten() {
    let jobs = |queue: &FairQueue<usize, ()>| queue.levels[&Reverse(0)].lines.len();
    let mut queue = FairQueue::default();
    for number in 0..10 * IDLE_JOBS_MAX {
        queue.pass(number, 0, 1);
        assert!(jobs(&queue) <= 2 * IDLE_JOBS_MAX, "{}", jobs(&queue));
    }
    for number in 0..3 * IDLE_JOBS_MAX {
        queue.push(number as u64, number, 0, 1, ());
    }
    assert_eq!(queue.len(), 3 * IDLE_JOBS_MAX, "who waits is never forgotten");
    assert_eq!(std::iter::from_fn(|| queue.pop()).count(), 3 * IDLE_JOBS_MAX);
}
