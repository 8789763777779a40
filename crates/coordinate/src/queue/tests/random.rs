//! Long random runs. With one job and one priority the queue must do exactly what a naive one
//! does; with everything mixed its invariants must hold, and all must drain in the end.

use super::*;
use proptest::prelude::*;

/// The paper's coordinator: a list and a counter for each lane, one target per request.
struct Naive {
    limit: usize,
    waiting: Vec<(u64, usize)>,
    inside: Vec<(u64, usize)>,
}

impl Naive {
    fn let_in(&mut self) -> Vec<u64> {
        let mut granted = Vec::new();
        let mut at = 0;
        while at < self.waiting.len() {
            let (client, target) = self.waiting[at];
            let inside = self.inside.iter().filter(|(_, other)| *other == target).count();
            if inside < self.limit {
                self.inside.push(self.waiting.remove(at));
                granted.push(client);
            } else {
                at += 1;
            }
        }
        granted
    }

    fn forget(&mut self, client: u64) {
        self.waiting.retain(|(other, _)| *other != client);
        self.inside.retain(|(other, _)| *other != client);
    }
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const CLIENTS: u64 = 8;

#[derive(Clone, Debug)]
enum Step {
    Ask { client: u64, target: usize },
    Complete(u64),
    Cancel(u64),
    Crash(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let client = || 0..CLIENTS;
    let step = prop_oneof![
        4 => (client(), 0..NAMES.len()).prop_map(|(client, target)| Step::Ask { client, target }),
        3 => client().prop_map(Step::Complete),
        1 => client().prop_map(Step::Cancel),
        1 => client().prop_map(Step::Crash),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #[test]
    fn one_job_is_served_as_the_naive_queue_does(limit_ in 1..4_u32, steps in steps()) {
        let mut bench = Bench::new(limit(limit_));
        let mut naive = Naive { limit: limit_ as usize, waiting: Vec::new(), inside: Vec::new() };
        (0..CLIENTS).for_each(|client| bench.join(client, "", 1, 0));
        for step in steps {
            let busy = |naive: &Naive, client: u64| {
                naive.waiting.iter().chain(&naive.inside).any(|(other, _)| *other == client)
            };
            match step {
                Step::Ask { client, target } if !busy(&naive, client) => {
                    bench.ask(client, 0, &[NAMES[target]]);
                    naive.waiting.push((client, target));
                }
                Step::Ask { .. } => {}
                Step::Complete(client) => {
                    bench.complete(client, 0);
                    naive.forget(client);
                }
                Step::Cancel(client) => {
                    bench.step(Event::Cancelled { client: ClientId(client), id: 0 }).unwrap();
                    naive.forget(client);
                }
                Step::Crash(client) => {
                    bench.step(Event::Left { client: ClientId(client) }).unwrap();
                    bench.join(client, "", 1, 0);
                    naive.forget(client);
                }
            }
            let mut expected = naive.let_in();
            let mut granted = bench.granted();
            // Lanes are independent; their order among each other means nothing.
            expected.sort_unstable();
            granted.sort_unstable();
            prop_assert_eq!(granted, expected);
        }
    }

    #[test]
    fn anything_drains(
        limit_ in 1..4_u32, passes_max in 1..5_u32, overtakes_max in 1..6_u32,
        clients in prop::collection::vec((0..3_usize, 1..5_u16, 0..3_u8), CLIENTS as usize),
        steps in prop::collection::vec((0..CLIENTS, 0..4_u64, 0..10_u8, 1..32_usize, any::<bool>()), 1..150),
    ) {
        let mut bench = Bench::new(Settings { passes_max, overtakes_max, ..limit(limit_) });
        bench.queue.settings.limits.read = Limit::Fixed(1);
        for (client, (job, weight, priority)) in clients.iter().enumerate() {
            bench.join(client as u64, NAMES[*job], *weight, *priority);
        }
        for (client, id, what, targets, read) in steps {
            let mut names: Vec<&str> = Vec::new();
            names.extend((0..NAMES.len()).filter(|at| targets >> at & 1 == 1).map(|at| NAMES[at]));
            bench.now_us += 1;
            let (client, targets) = (ClientId(client), &names[..]);
            let kind = if read { IoKind::Read } else { IoKind::Write };
            let outcome = match what {
                0..6 => bench.step(Event::Asked { client, id, kind, bytes: id << 20, targets }),
                6..9 => bench.step(Event::Completed { client, id, bytes: 1, io_us: 1 }),
                _ => bench.step(Event::Cancelled { client, id }),
            };
            prop_assert!(matches!(outcome, Ok(()) | Err(Misuse::Repeated(_))), "{:?}", outcome);
        }
        // Now everybody who is in goes out until nobody is left.
        while !bench.queue.entries.is_empty() {
            let done = bench.queue.held.first().copied();
            let (_, arrival) = done.expect("somebody is in as long as somebody waits");
            let entry = &bench.queue.entries[&arrival];
            let (client, id) = (entry.client, entry.id);
            bench.step(Event::Completed { client, id, bytes: 1, io_us: 1 }).unwrap();
        }
        let idle = bench.queue.targets.values().all(|target| target.lanes.iter().all(Lane::is_idle));
        prop_assert!(idle);
    }
}
