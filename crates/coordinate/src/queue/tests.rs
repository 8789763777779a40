//! The queue on its own: order, bounds, ends, misuse. The exhaustive exploration of small cases is
//! in [`explore`], random ones against a naive queue in [`random`].

mod explore;
mod random;

use super::*;
use crate::pattern::Pattern;

/// A queue with short names for what tests do.
#[derive(Clone)]
struct Bench {
    queue: Queue,
    now_us: u64,
    actions: Vec<Action>,
}

impl Bench {
    fn new(settings: Settings) -> Bench {
        Bench { queue: Queue::new(settings), now_us: 0, actions: Vec::new() }
    }

    fn step(&mut self, event: Event<'_>) -> Result<(), Misuse> {
        let outcome = self.queue.step(self.now_us, event, &mut self.actions);
        self.queue.check();
        outcome
    }

    fn join(&mut self, client: u64, job: &str, weight: u16, priority: u8) {
        self.step(Event::Joined { client: ClientId(client), job, weight, priority }).unwrap();
    }

    fn ask(&mut self, client: u64, id: u64, targets: &[&str]) {
        let (client, kind) = (ClientId(client), IoKind::Write);
        self.step(Event::Asked { client, id, kind, bytes: 1 << 20, targets }).unwrap();
    }

    fn complete(&mut self, client: u64, id: u64) {
        let client = ClientId(client);
        self.step(Event::Completed { client, id, bytes: 1 << 20, io_us: 5 }).unwrap();
    }

    /// Clients granted since the last call, in order.
    fn granted(&mut self) -> Vec<u64> {
        let actions = std::mem::take(&mut self.actions);
        let granted = actions.iter().filter_map(|action| match action {
            Action::Grant(grant) => Some(grant.client.0),
            Action::Ended { .. } => None,
        });
        granted.collect()
    }

    fn ends(&mut self) -> Vec<(u64, bool, End)> {
        let actions = std::mem::take(&mut self.actions);
        let ends = actions.into_iter().filter_map(|action| match action {
            Action::Grant(_) => None,
            Action::Ended { request, granted, end } => Some((request.client.0, granted, end)),
        });
        ends.collect()
    }
}

fn limit(write: u32) -> Settings {
    let limits = Limits { write: Limit::Fixed(write), read: Limit::Off };
    Settings { limits, ..Settings::default() }
}

#[test]
fn two_at_a_time_in_the_order_of_asking_as_in_the_paper() {
    let mut bench = Bench::new(Settings::default());
    for client in 0..5 {
        bench.join(client, "", 1, 0);
        bench.ask(client, 1, &["ost0"]);
    }
    assert_eq!(bench.granted(), [0, 1]);
    bench.complete(1, 1);
    assert_eq!(bench.granted(), [2]);
    bench.complete(0, 1);
    bench.complete(2, 1);
    assert_eq!(bench.granted(), [3, 4]);
}

#[test]
fn targets_and_directions_do_not_disturb_each_other() {
    let limits = Limits { write: Limit::Fixed(1), read: Limit::Fixed(2) };
    let mut bench = Bench::new(Settings { limits, ..Settings::default() });
    for client in 0..6 {
        bench.join(client, "", 1, 0);
    }
    bench.ask(0, 1, &["a"]);
    bench.ask(1, 1, &["b"]);
    for client in 2..6 {
        let targets = &["a"];
        let (client, kind) = (ClientId(client), IoKind::Read);
        bench.step(Event::Asked { client, id: 1, kind, bytes: 1, targets }).unwrap();
    }
    assert_eq!(bench.granted(), [0, 1, 2, 3]);
    bench.complete(0, 1);
    assert!(bench.granted().is_empty());
    bench.complete(2, 1);
    assert_eq!(bench.granted(), [4]);
}

#[test]
fn a_repeated_target_takes_one_slot() {
    let mut bench = Bench::new(limit(1));
    bench.join(1, "", 1, 0);
    bench.ask(1, 1, &["a", "a", "b", "a"]);
    assert_eq!(bench.granted(), [1]);
    bench.complete(1, 1);
    bench.ask(1, 2, &["b", "a"]);
    assert_eq!(bench.granted(), [1]);
}

#[test]
fn who_goes_gives_everything_back() {
    let mut bench = Bench::new(limit(1));
    for client in 0..4 {
        bench.join(client, "", 1, 0);
    }
    bench.ask(0, 1, &["a"]);
    bench.ask(0, 2, &["b"]);
    bench.ask(1, 1, &["a"]);
    bench.ask(2, 1, &["a"]);
    bench.ask(3, 1, &["b"]);
    assert_eq!(bench.granted(), [0, 0]);
    bench.step(Event::Left { client: ClientId(1) }).unwrap();
    assert_eq!(bench.ends(), [(1, false, End::Gone)]);
    bench.step(Event::Left { client: ClientId(0) }).unwrap();
    assert_eq!(bench.granted(), [2, 3]);
}

#[test]
fn cancelling_frees_a_slot_or_a_place_and_crossed_messages_do_no_harm() {
    let mut bench = Bench::new(limit(1));
    for client in 0..3 {
        bench.join(client, "", 1, 0);
        bench.ask(client, 7, &["a"]);
    }
    let cancel = |client| Event::Cancelled { client: ClientId(client), id: 7 };
    bench.step(cancel(1)).unwrap();
    bench.step(cancel(0)).unwrap();
    assert_eq!(bench.granted(), [0, 2]);
    // The completion that crossed the cancellation's grant, and a second cancellation.
    bench.complete(0, 7);
    bench.step(cancel(1)).unwrap();
    assert_eq!(bench.queue.stats(0, 9).strays, 2);
    // Done without having been granted.
    bench.ask(0, 8, &["a"]);
    bench.complete(0, 8);
    assert_eq!(bench.ends(), [(0, false, End::Unasked { bytes: 1 << 20, io_us: 5 })]);
}

#[test]
fn a_slot_held_for_too_long_is_taken_back() {
    let mut bench = Bench::new(Settings { hold_us_max: 100, ..limit(1) });
    assert_eq!(bench.queue.deadline_us(), None);
    bench.join(0, "", 1, 0);
    bench.join(1, "", 1, 0);
    bench.now_us = 10;
    bench.ask(0, 1, &["a"]);
    bench.ask(1, 1, &["a"]);
    assert_eq!(bench.queue.deadline_us(), Some(110));
    bench.now_us = 109;
    bench.step(Event::Tick).unwrap();
    assert_eq!(bench.granted(), [0]);
    bench.now_us = 110;
    bench.step(Event::Tick).unwrap();
    assert_eq!(bench.granted(), [1]);
    // The late completion frees nothing that is not its own, and the number can be used again.
    bench.complete(0, 1);
    bench.ask(0, 1, &["a"]);
    assert!(bench.granted().is_empty());
    bench.complete(1, 1);
    assert_eq!(bench.granted(), [0]);
}

#[test]
fn misuse_changes_nothing() {
    let mut bench = Bench::new(limit(1));
    let (client, kind) = (ClientId(1), IoKind::Write);
    let ask = |id, targets| Event::Asked { client, id, kind, bytes: 1, targets };
    assert_eq!(bench.step(ask(1, &["a"])), Err(Misuse::Client));
    assert_eq!(bench.step(Event::Left { client }), Err(Misuse::Client));
    bench.join(1, "", 1, 0);
    let again = Event::Joined { client, job: "", weight: 1, priority: 0 };
    assert_eq!(bench.step(again), Err(Misuse::Client));
    assert_eq!(bench.step(ask(1, &[])), Err(Misuse::NoTarget));
    for id in 0..OUTSTANDING_MAX as u64 {
        bench.ask(1, id, &["a"]);
    }
    assert_eq!(bench.step(ask(5, &["a"])), Err(Misuse::Repeated(5)));
    assert_eq!(bench.step(ask(1000, &["a"])), Err(Misuse::TooMany));
    assert_eq!(bench.queue.stats(0, 9).waiting, OUTSTANDING_MAX - 1);
}

#[test]
fn patterns_choose_limits_and_weights() {
    let off = Limits { write: Limit::Off, read: Limit::Off };
    let one = Limits { write: Limit::Fixed(1), read: Limit::Off };
    let targets = vec![(Pattern::new("fast*"), off), (Pattern::new("*"), one)];
    let weights = vec![(Pattern::new("prod*"), 4)];
    let mut bench = Bench::new(Settings { targets, weights, ..Settings::default() });
    for client in 0..4 {
        bench.join(client, "prod1", 1, 0);
        bench.ask(client, 1, &["fast7"]);
    }
    assert_eq!(bench.granted().len(), 4);
    for client in 0..4 {
        bench.ask(client, 2, &["slow"]);
    }
    assert_eq!(bench.granted().len(), 1);
    assert_eq!(bench.queue.clients[&ClientId(0)].weight, 4);
}

/// Lets `rounds` requests through a lane where every client asks again at once; counts by client.
fn closed_loop(bench: &mut Bench, clients: &[u64], rounds: usize) -> HashMap<u64, u32> {
    let mut granted: std::collections::VecDeque<u64> = bench.granted().into();
    let mut counts = HashMap::new();
    for _ in 0..rounds {
        let client = granted.pop_front().expect("somebody is always in");
        *counts.entry(client).or_default() += 1;
        bench.complete(client, client);
        assert!(clients.contains(&client));
        bench.ask(client, client, &["a"]);
        granted.extend(bench.granted());
    }
    counts
}

#[test]
fn jobs_share_by_weight_however_many_processes_they_have() {
    for slots in [1, 3] {
        let mut bench = Bench::new(limit(slots));
        // Job x has 3 of 4 parts and 4 processes, job y one part and 20 processes.
        let clients: Vec<u64> = (0..24).collect();
        for client in &clients {
            let (job, weight) = if *client < 4 { ("x", 3) } else { ("y", 1) };
            bench.join(*client, job, weight, 0);
            bench.ask(*client, *client, &["a"]);
        }
        let counts = closed_loop(&mut bench, &clients, 4000);
        let of_x: u32 = (0..4).filter_map(|client| counts.get(&client)).sum();
        assert!((2850..=3150).contains(&of_x), "{of_x} of 4000, with {slots} slots");
        // Within a job everybody comes equally often.
        let least = (4..24).map(|client| counts[&client]).min();
        let most = (4..24).map(|client| counts[&client]).max();
        assert!(most.unwrap() - least.unwrap() <= 4, "{counts:?}");
    }
}

#[test]
fn a_job_that_was_silent_has_no_claim_for_it() {
    let mut bench = Bench::new(limit(1));
    let clients: Vec<u64> = (0..4).collect();
    for client in 0..4 {
        bench.join(client, if client < 2 { "early" } else { "late" }, 1, 0);
    }
    bench.ask(0, 0, &["a"]);
    bench.ask(1, 1, &["a"]);
    closed_loop(&mut bench, &clients, 500);
    bench.granted();
    bench.ask(2, 2, &["a"]);
    bench.ask(3, 3, &["a"]);
    let active = (0..2).find(|client| {
        let (_, arrival) = bench.queue.clients[&ClientId(*client)].outstanding[0];
        bench.queue.entries[&arrival].granted_us.is_some()
    });
    let targets: SmallVec<[Rc<str>; 2]> = SmallVec::new();
    let (client, kind) = (ClientId(active.unwrap()), IoKind::Write);
    let grant = Grant { client, id: 0, kind, bytes: 0, targets, asked_us: 0, granted_us: 0 };
    bench.actions.push(Action::Grant(grant));
    let counts = closed_loop(&mut bench, &clients, 100);
    let late: u32 = [2, 3].iter().filter_map(|client| counts.get(client)).sum();
    assert!((45..=55).contains(&late), "{late} of 100");
}

#[test]
fn higher_priorities_go_first_but_nobody_starves() {
    let mut bench = Bench::new(Settings { overtakes_max: 10, ..limit(1) });
    let clients: Vec<u64> = (0..6).collect();
    for client in 0..6 {
        // The last two are of low priority.
        bench.join(client, "", 1, u8::from(client < 4));
        bench.ask(client, client, &["a"]);
    }
    let counts = closed_loop(&mut bench, &clients, 1100);
    let low: u32 = [4, 5].iter().filter_map(|client| counts.get(client)).sum();
    // One of eleven is for the oldest; the others are of high priority.
    assert!((90..=110).contains(&low), "{counts:?}");
    let mut bench = Bench::new(Settings { overtakes_max: u32::MAX, ..limit(1) });
    for client in 0..6 {
        bench.join(client, "", 1, u8::from(client < 4));
        bench.ask(client, client, &["a"]);
    }
    let counts = closed_loop(&mut bench, &clients, 1100);
    assert!(!counts.contains_key(&4) && !counts.contains_key(&5), "strict without the bound");
}

#[test]
fn a_request_for_several_targets_is_passed_over_only_so_often() {
    let mut bench = Bench::new(Settings { passes_max: 3, ..limit(1) });
    for client in 0..3 {
        bench.join(client, "", 1, 0);
    }
    bench.ask(0, 0, &["a"]);
    bench.ask(1, 0, &["b"]);
    bench.ask(2, 0, &["a", "b"]);
    assert_eq!(bench.granted(), [0, 1]);
    // The two take turns so that one target is always in use.
    for round in 1..=3 {
        bench.ask(0, round, &["a"]);
        bench.complete(0, round - 1);
        assert_eq!(bench.granted(), [0], "round {round}: passed over");
    }
    bench.ask(0, 9, &["a"]);
    bench.complete(0, 3);
    assert!(bench.granted().is_empty(), "it reserves now");
    bench.ask(1, 9, &["b"]);
    bench.complete(1, 0);
    assert_eq!(bench.granted(), [2]);
    bench.complete(2, 0);
    assert_eq!(bench.granted(), [0, 1]);
}

#[test]
fn what_nobody_uses_is_forgotten() {
    let mut bench = Bench { ..Bench::new(limit(1)) };
    let mut actions = Vec::new();
    for round in 0..(IDLE_TARGETS_MAX as u64 + 50) {
        let client = ClientId(round);
        let (job, name) = (format!("job{round}"), format!("target{round}"));
        let queue = &mut bench.queue;
        queue
            .step(round, Event::Joined { client, job: &job, weight: 1, priority: 0 }, &mut actions)
            .unwrap();
        let (kind, targets) = (IoKind::Write, [&name[..], "kept"]);
        let ask = Event::Asked { client, id: 0, kind, bytes: 1, targets: &targets };
        queue.step(round, ask, &mut actions).unwrap();
        queue.step(round, Event::Left { client }, &mut actions).unwrap();
    }
    bench.queue.check();
    assert_eq!(bench.queue.targets.len(), IDLE_TARGETS_MAX);
    assert_eq!(bench.queue.jobs.len(), IDLE_JOBS_MAX);
    assert!(bench.queue.target_names.contains_key("kept"));
    assert_eq!(bench.queue.target_names.len(), IDLE_TARGETS_MAX);
    assert_eq!(bench.queue.job_names.len(), IDLE_JOBS_MAX);
}

#[test]
fn statistics_count_what_happened() {
    let mut bench = Bench::new(limit(1));
    for client in 0..3 {
        bench.join(client, "j", 1, 0);
        bench.ask(client, 1, &["a"]);
    }
    bench.now_us = 2_000_000;
    bench.complete(0, 1);
    bench.now_us = 3_000_000;
    let stats = bench.queue.stats(bench.now_us, 10);
    assert_eq!((stats.clients, stats.waiting, stats.active), (3, 1, 1));
    let lane = &stats.targets[0].write;
    assert_eq!((lane.limit, lane.active, lane.waiting), (Some(1), 1, 1));
    assert_eq!(lane.waiting_us_max, 3_000_000);
    let totals = &lane.totals;
    assert_eq!((totals.granted, totals.completed, totals.bytes), (2, 1, 1 << 20));
    assert_eq!(
        (totals.wait_us, totals.wait_us_max, totals.held_us),
        (2_000_000, 2_000_000, 2_000_000)
    );
    assert_eq!(totals.wait_classes, [1, 0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(stats.jobs[0].totals, *totals);
    assert_eq!(bench.queue.stats(0, 0).left_out, 2);
}
