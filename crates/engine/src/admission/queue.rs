//! Who waits, and who is next: fair among jobs by bytes. Pure.
//!
//! Start-time fair queueing (Goyal, Vin, Cheng 1996): each job has a *virtual time*, the bytes it
//! was given divided by its weight. The job with the least goes next; inside a job, first come
//! first served. A job that was away begins at the present (the virtual time of the last
//! grant), so idleness is not saved up. A few requests go before all others: they wait in a line
//! of their own.
//!
//! Invariants: a request is in the queue exactly once, from `push` until `pop` or `remove`. Of two
//! jobs that both always wait, with weights v and w, the bytes given differ by at most one
//! request's bytes each, divided by the weights.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::Rc;
use wire::admission::Weights;

/// Jobs remembered though they have nothing in the queue; beyond it they are forgotten, which
/// forgives them what they had too much.
const IDLE_JOB_COUNT_MAX: usize = 1024;
/// Virtual time has this many steps per byte at weight 1.
const STEPS_PER_BYTE: u128 = 1 << 10;

/// Names a request in the queue.
pub(crate) type Ticket = u64;

struct Entry<T> {
    ticket: Ticket,
    bytes: u64,
    item: T,
}

struct Job<T> {
    /// Where its next request starts.
    start: u128,
    weight: u16,
    waiting: VecDeque<Entry<T>>,
}

/// Requests that wait, of many jobs.
pub(crate) struct FairQueue<T> {
    weights: Weights,
    jobs: HashMap<Rc<str>, Job<T>>,
    /// Jobs with waiting requests by who is next: virtual start, then age of the first request.
    heads: BTreeSet<(u128, Ticket, Rc<str>)>,
    /// Goes before all jobs.
    first: VecDeque<Entry<T>>,
    /// Where each waiting request is; `None`: in `first`.
    places: BTreeMap<Ticket, Option<Rc<str>>>,
    ticket_last: Ticket,
    /// Virtual start of the last grant.
    now: u128,
}

impl<T> FairQueue<T> {
    pub fn new(weights: Weights) -> FairQueue<T> {
        FairQueue {
            weights,
            jobs: HashMap::new(),
            heads: BTreeSet::new(),
            first: VecDeque::new(),
            places: BTreeMap::new(),
            ticket_last: 0,
            now: 0,
        }
    }

    /// Requests in the queue.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Jobs from now on weigh this.
    pub fn set_weights(&mut self, weights: Weights) {
        for (name, job) in &mut self.jobs {
            job.weight = weights.of(name);
        }
        self.weights = weights;
    }

    /// Appends a request of a job.
    pub fn push(&mut self, job: &Rc<str>, bytes: u64, item: T) -> Ticket {
        let ticket = self.next_ticket();
        let start_min = self.now;
        let entry = self.job(job);
        entry.start = entry.start.max(start_min);
        let was_empty = entry.waiting.is_empty();
        entry.waiting.push_back(Entry { ticket, bytes, item });
        let start = entry.start;
        if was_empty {
            self.heads.insert((start, ticket, job.clone()));
        }
        self.places.insert(ticket, Some(job.clone()));
        ticket
    }

    /// Appends a request that goes before all jobs.
    pub fn push_first(&mut self, bytes: u64, item: T) -> Ticket {
        let ticket = self.next_ticket();
        self.first.push_back(Entry { ticket, bytes, item });
        self.places.insert(ticket, None);
        ticket
    }

    /// Counts a request that did not have to wait, as if it had been pushed and popped. Only while
    /// nobody waits.
    pub fn pass(&mut self, job: &Rc<str>, bytes: u64) {
        debug_assert!(self.is_empty(), "nobody passes those who wait");
        let now = self.now;
        let entry = self.job(job);
        let start = entry.start.max(now);
        entry.start = start + cost(bytes, entry.weight);
        self.now = start;
    }

    /// Takes out who is next.
    pub fn pop(&mut self) -> Option<T> {
        if let Some(entry) = self.first.pop_front() {
            self.places.remove(&entry.ticket);
            return Some(entry.item);
        }
        let (start, _, name) = self.heads.pop_first()?;
        let job = self.jobs.get_mut(&name)?;
        let entry = job.waiting.pop_front()?;
        self.places.remove(&entry.ticket);
        self.now = start;
        job.start = start + cost(entry.bytes, job.weight);
        if let Some(next) = job.waiting.front() {
            self.heads.insert((job.start, next.ticket, name));
        }
        Some(entry.item)
    }

    /// Takes out one that waits no more; it is not charged for.
    pub fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let Some(name) = self.places.remove(&ticket)? else {
            let at = self.first.iter().position(|entry| entry.ticket == ticket)?;
            return self.first.remove(at).map(|entry| entry.item);
        };
        let job = self.jobs.get_mut(&name)?;
        // Tickets of a job ascend.
        let at = job.waiting.binary_search_by_key(&ticket, |entry| entry.ticket).ok()?;
        let entry = job.waiting.remove(at)?;
        if at == 0 {
            self.heads.remove(&(job.start, ticket, name.clone()));
            if let Some(next) = job.waiting.front() {
                self.heads.insert((job.start, next.ticket, name));
            }
        }
        Some(entry.item)
    }

    /// Waiting requests of each job that has any.
    pub fn waiting_by_job(&self) -> impl Iterator<Item = (&Rc<str>, usize)> {
        let jobs = self.jobs.iter().filter(|(_, job)| !job.waiting.is_empty());
        jobs.map(|(name, job)| (name, job.waiting.len()))
    }

    fn next_ticket(&mut self) -> Ticket {
        self.ticket_last += 1;
        self.ticket_last
    }

    fn job(&mut self, name: &Rc<str>) -> &mut Job<T> {
        if !self.jobs.contains_key(name) {
            if self.jobs.len() >= IDLE_JOB_COUNT_MAX + self.heads.len() {
                self.jobs.retain(|_, job| !job.waiting.is_empty());
            }
            let weight = self.weights.of(name);
            let job = Job { start: self.now, weight, waiting: VecDeque::new() };
            self.jobs.insert(name.clone(), job);
        }
        self.jobs.get_mut(name).expect("it was just put there")
    }
}

fn cost(bytes: u64, weight: u16) -> u128 {
    bytes as u128 * STEPS_PER_BYTE / weight.max(1) as u128
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same rule without any structure: every question is answered by looking at all.
    #[derive(Default)]
    struct Naive {
        waiting: Vec<(Ticket, Option<String>, u64)>,
        starts: Vec<(String, u128)>,
        now: u128,
    }

    impl Naive {
        fn start(&mut self, job: &str) -> &mut u128 {
            let now = self.now;
            let at = self.starts.iter().position(|(name, _)| name == job);
            let at = at.unwrap_or_else(|| {
                self.starts.push((job.to_string(), now));
                self.starts.len() - 1
            });
            &mut self.starts[at].1
        }

        fn push(&mut self, ticket: Ticket, job: Option<&str>, bytes: u64) {
            if let Some(job) = job {
                let now = self.now;
                let start = self.start(job);
                *start = now.max(*start);
            }
            self.waiting.push((ticket, job.map(str::to_string), bytes));
        }

        fn pop(&mut self, weights: &Weights) -> Option<Ticket> {
            let mut best: Option<(u128, Ticket)> = None;
            for (ticket, job, _) in self.waiting.clone() {
                let Some(job) = job else {
                    self.waiting.retain(|(other, ..)| *other != ticket);
                    return Some(ticket);
                };
                let key = (*self.start(&job), ticket);
                best = Some(best.map_or(key, |best| best.min(key)));
            }
            let (start, ticket) = best?;
            let at = self.waiting.iter().position(|(other, ..)| *other == ticket).unwrap();
            let (_, job, bytes) = self.waiting.remove(at);
            let job = job.unwrap();
            self.now = start;
            *self.start(&job) = start + bytes as u128 * STEPS_PER_BYTE / weights.of(&job) as u128;
            Some(ticket)
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(u8, u32),
        PushFirst(u32),
        Pop,
        Remove(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u8..5, 1u32..1 << 25).prop_map(|(job, bytes)| Step::Push(job, bytes)),
            1 => (1u32..1 << 25).prop_map(Step::PushFirst),
            4 => Just(Step::Pop),
            1 => any::<usize>().prop_map(Step::Remove),
        ]
    }

    proptest! {
        #[test]
        fn the_queue_and_a_naive_one_agree(steps in prop::collection::vec(step(), 0..200)) {
            let weights: Weights = "1:2,2:7".parse().unwrap();
            let names: Vec<Rc<str>> = (0..5).map(|job| job.to_string().into()).collect();
            let mut queue = FairQueue::new(weights.clone());
            let mut naive = Naive::default();
            let mut count = 0;
            for step in steps {
                match step {
                    Step::Push(job, bytes) => {
                        count += 1;
                        let ticket = queue.push(&names[job as usize], bytes as u64, count);
                        prop_assert_eq!(ticket, count);
                        naive.push(ticket, Some(&names[job as usize]), bytes as u64);
                    }
                    Step::PushFirst(bytes) => {
                        count += 1;
                        prop_assert_eq!(queue.push_first(bytes as u64, count), count);
                        naive.push(count, None, bytes as u64);
                    }
                    Step::Pop => prop_assert_eq!(queue.pop(), naive.pop(&weights)),
                    Step::Remove(at) => {
                        let ticket = match naive.waiting.len() {
                            0 => 999,
                            len => naive.waiting.remove(at % len).0,
                        };
                        let expected = (ticket != 999).then_some(ticket);
                        prop_assert_eq!(queue.remove(ticket), expected);
                    }
                }
                prop_assert_eq!(queue.len(), naive.waiting.len());
                let by_job: usize = queue.waiting_by_job().map(|(_, count)| count).sum();
                prop_assert_eq!(by_job + queue.first.len(), queue.len());
            }
        }
    }

    fn name(text: &str) -> Rc<str> {
        text.into()
    }

    #[test]
    fn jobs_share_by_weight_whatever_the_size_of_their_requests() {
        let mut queue = FairQueue::new("big:3".parse().unwrap());
        let (big, small) = (name("big"), name("small"));
        // One job sends 8 MiB at a time, one 1 MiB; both always have some waiting.
        let mut given = (0u64, 0u64);
        for _ in 0..4 {
            queue.push(&big, 8 << 20, true);
            queue.push(&small, 1 << 20, false);
        }
        while given.0 + given.1 < 4 << 30 {
            if queue.pop().unwrap() {
                given.0 += 8 << 20;
                queue.push(&big, 8 << 20, true);
            } else {
                given.1 += 1 << 20;
                queue.push(&small, 1 << 20, false);
            }
            // Three bytes to one, but for a request of each.
            assert!(given.0.abs_diff(3 * given.1) <= (8 << 20) + 3 * (1 << 20), "{given:?}");
        }
    }

    #[test]
    fn a_newcomer_neither_waits_for_the_past_nor_profits_from_it() {
        let mut queue = FairQueue::new(Weights::default());
        let (old, new) = (name("old"), name("new"));
        for _ in 0..100 {
            queue.pass(&old, 1 << 20);
        }
        for _ in 0..10 {
            queue.push(&old, 1 << 20, "old");
            queue.push(&new, 1 << 20, "new");
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        // The newcomer is at most one ahead at any time.
        for end in 0..=order.len() {
            let new = order[..end].iter().filter(|job| **job == "new").count();
            assert!(new.abs_diff(end - new) <= 2, "{order:?}");
        }
    }

    #[test]
    fn names_without_end_are_forgotten() {
        let mut queue = FairQueue::new(Weights::default());
        for number in 0..10 * IDLE_JOB_COUNT_MAX {
            queue.pass(&name(&number.to_string()), 1 << 20);
        }
        assert!(queue.jobs.len() <= IDLE_JOB_COUNT_MAX);
        for number in 0..3 * IDLE_JOB_COUNT_MAX {
            queue.push(&name(&number.to_string()), 1, number);
        }
        assert_eq!(queue.len(), 3 * IDLE_JOB_COUNT_MAX, "who waits is never forgotten");
    }
}
