//! The finder on simulated devices: what matters is how much of the best fixed limit it reaches.
//!
//! A device shares its rate equally among the requests that are in; the rate depends on their number by a
//! curve. Requests take more or less work at random. Time is simulated, so runs are the same
//! everywhere.

use super::LimitFinder;
use std::collections::VecDeque;

const BYTES: u64 = 16 << 20;
/// Bytes per microsecond at the best point.
const RATE: f64 = 200.0;

type Curve = fn(f64) -> f64;

/// The paper's: best at 2, three quarters of it at 16.
fn peaked_at_2(n: f64) -> f64 {
    if n <= 2.0 { 0.7 + 0.15 * n } else { (1.0 - 0.045 * (n - 2.0)).max(0.3).max(1.3 - 0.5 * n) }
}

fn peaked_at_12(n: f64) -> f64 {
    if n <= 12.0 { n / 12.0 } else { 1.0 - 0.02 * (n - 12.0).min(30.0) }
}

fn flat(_: f64) -> f64 {
    1.0
}

fn rising(n: f64) -> f64 {
    n / 32.0
}

/// One at a time is best, more is much worse.
fn falling(n: f64) -> f64 {
    1.0 / n.sqrt()
}

struct Random(u64);

impl Random {
    /// Uniform in [0, 1).
    fn next(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Window of the runs, microseconds.
const WINDOW_US_MIN: u64 = 100_000;

/// What says how many may be in.
enum Limit {
    Fixed(u32),
    Found(LimitFinder),
}

impl Limit {
    fn now(&self) -> u32 {
        match self {
            Limit::Fixed(limit) => *limit,
            Limit::Found(finder) => finder.limit(),
        }
    }
}

struct Run {
    /// Bytes completed in the spans counted.
    bytes: u64,
    /// The limit at the end.
    limit: u32,
}

/// Clients that ask again as soon as they are done, on a device whose curve may change.
struct Site {
    clients: u64,
    /// Requests take from 1 - noise to 1 + noise times their work.
    noise: f64,
    /// Curves, each from a time on, seconds.
    curves: Vec<(u64, Curve)>,
    /// Pause after the phases in which a client makes so many requests, seconds; 0: no phases.
    phase: (u32, u64),
}

impl Site {
    fn of(clients: u64, noise: f64, curve: Curve) -> Site {
        Site { clients, noise, curves: vec![(0, curve)], phase: (0, 0) }
    }

    /// Runs until `end_s`; counts what is completed in the given spans of seconds.
    fn run(&self, mut limit: Limit, seed: u64, counted: &[(u64, u64)], end_s: u64) -> Run {
        let mut random = Random(seed);
        let (mut now, mut bytes) = (0.0_f64, 0);
        // Who waits; work left of those who are in; requests made in this phase, and when to ask
        // next.
        let mut waiting: VecDeque<u64> = VecDeque::new();
        let mut work: Vec<(u64, f64)> = Vec::new();
        let mut made = vec![0_u32; self.clients as usize];
        let mut asks: Vec<(f64, u64)> = (0..self.clients).map(|client| (0.0, client)).collect();
        while now < (end_s * 1_000_000) as f64 {
            let curve =
                self.curves.iter().rev().find(|(from_s, _)| now >= (from_s * 1_000_000) as f64);
            let count = work.len() as f64;
            let each = curve.unwrap().1(count) * RATE / count;
            let done = work.iter().enumerate().min_by(|a, b| a.1.1.total_cmp(&b.1.1));
            let done = done.map(|(at, (_, left))| (now + left / each, at));
            let ask = asks.iter().enumerate().min_by(|a, b| a.1.0.total_cmp(&b.1.0));
            let ask = ask.map(|(at, (time, _))| (time.max(now), at));
            let (time, asking, at) = match (done, ask) {
                (Some((done, at)), Some((ask, _))) if done <= ask => (done, false, at),
                (Some((done, at)), None) => (done, false, at),
                (_, Some((ask, at))) => (ask, true, at),
                (None, None) => panic!("nobody is in and nobody asks"),
            };
            work.iter_mut().for_each(|(_, left)| *left -= (time - now) * each);
            now = time;
            let active = work.len() as u32;
            if let Limit::Found(finder) = &mut limit {
                finder.pass_time(now as u64, active);
            }
            if asking {
                waiting.push_back(asks.swap_remove(at).1);
            } else {
                let client = work.swap_remove(at).0;
                let now_us = now as u64;
                if let Limit::Found(finder) = &mut limit {
                    finder.completed(now_us, BYTES, active);
                }
                if counted
                    .iter()
                    .any(|(from_s, to_s)| (from_s * 1_000_000..to_s * 1_000_000).contains(&now_us))
                {
                    bytes += BYTES;
                }
                made[client as usize] += 1;
                let (length, pause_s) = self.phase;
                let pauses = length > 0 && made[client as usize].is_multiple_of(length);
                asks.push((now + if pauses { (pause_s * 1_000_000) as f64 } else { 0.0 }, client));
            }
            while work.len() < limit.now() as usize
                && let Some(client) = waiting.pop_front()
            {
                let factor = 1.0 + self.noise * (2.0 * random.next() - 1.0);
                work.push((client, BYTES as f64 * factor));
            }
        }
        Run { bytes, limit: limit.now() }
    }

    /// Part of the best fixed limit's bytes that the finder reaches, and its limit at the end.
    fn compare(&self, counted: &[(u64, u64)], end_s: u64) -> (f64, u32) {
        let fixed = [1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32];
        // A best limit for each span, as somebody who knows the future would set it.
        let best: u64 = counted
            .iter()
            .map(|span| {
                let runs =
                    fixed.map(|limit| self.run(Limit::Fixed(limit), 7, &[*span], end_s).bytes);
                runs.into_iter().max().unwrap()
            })
            .sum();
        let mut worst = (f64::MAX, 0);
        for seed in 1..=5 {
            let run =
                self.run(Limit::Found(LimitFinder::new(32, WINDOW_US_MIN)), seed, counted, end_s);
            let part = run.bytes as f64 / best as f64;
            if part < worst.0 {
                worst = (part, run.limit);
            }
        }
        worst
    }
}

#[test]
fn after_warming_up_it_is_as_good_as_the_best_fixed_limit() {
    let curves: [(&str, Curve); 5] = [
        ("peaked at 2", peaked_at_2),
        ("peaked at 12", peaked_at_12),
        ("flat", flat),
        ("rising", rising),
        ("falling", falling),
    ];
    for (name, curve) in curves {
        for noise in [0.0, 0.2, 0.5] {
            let (part, limit) = Site::of(40, noise, curve).compare(&[(300, 900)], 900);
            println!("{name}, noise {noise}: {part:.3}, limit {limit}");
            assert!(part >= 0.95, "{name}, noise {noise}: {part:.3}, limit {limit}");
        }
    }
}

#[test]
fn with_as_many_clients_as_in_the_paper() {
    let (part, limit) = Site::of(16, 0.2, peaked_at_2).compare(&[(120, 600)], 600);
    println!("{part:.3}, limit {limit}");
    assert!(part >= 0.95, "{part:.3}, limit {limit}");
    // With fewer clients than the device could take, too.
    let (part, limit) = Site::of(6, 0.2, rising).compare(&[(120, 600)], 600);
    assert!(part >= 0.95, "{part:.3}, limit {limit}");
}

#[test]
fn it_follows_a_device_that_changes() {
    let changes: [(&str, Vec<(u64, Curve)>); 4] = [
        ("peak to rise", vec![(0, peaked_at_2), (600, rising), (1200, peaked_at_2)]),
        ("peak to peak", vec![(0, peaked_at_12), (600, peaked_at_2), (1200, peaked_at_12)]),
        // The rate at the present limit stays as it was; only neighbours tell.
        (
            "same rate here",
            vec![(0, peaked_at_2), (600, |n| 0.5 + 0.25 * n.min(8.0)), (1200, peaked_at_2)],
        ),
        (
            "slower by half",
            vec![(0, peaked_at_12), (600, |n| 0.5 * peaked_at_12(n)), (1200, falling)],
        ),
    ];
    for (name, curves) in changes {
        let site = Site { curves, ..Site::of(40, 0.2, flat) };
        let spans = [(300, 600), (900, 1200), (1500, 1800)];
        let (part, limit) = site.compare(&spans, 1800);
        println!("{name}: {part:.3}, limit {limit}");
        assert!(part >= 0.95, "{name}: {part:.3}, limit {limit}");
    }
}

/// Checkpoints: everybody writes some variables, then nobody writes for a while.
#[test]
fn it_learns_over_pauses() {
    for (name, curve) in [("peaked at 2", peaked_at_2 as Curve), ("rising", rising)] {
        let site = Site { phase: (12, 30), ..Site::of(24, 0.2, curve) };
        let (part, limit) = site.compare(&[(900, 3000)], 3000);
        println!("{name}: {part:.3}, limit {limit}");
        assert!(part >= 0.95, "{name}: {part:.3}, limit {limit}");
    }
}

#[test]
fn the_limit_stays_in_its_bounds() {
    for max in [0, 1, 2, 3, 7, 8, 9, 64, 1000] {
        let mut finder = LimitFinder::new(max, WINDOW_US_MIN);
        let mut random = Random(u64::from(max));
        let mut now_us = 0;
        for _ in 0..20_000 {
            let active = finder.limit();
            assert!((1..=max.max(1)).contains(&active));
            finder.pass_time(now_us, active);
            now_us += (random.next() * 100_000.0) as u64;
            finder.pass_time(now_us, active);
            match (random.next() * 20.0) as u32 {
                0 => finder.disturbed(),
                1 => finder.pass_time(now_us + 1_000_000, 0),
                _ => finder.completed(now_us, (random.next() * 1e9) as u64, active),
            }
        }
    }
}

/// Bytes per second that a fast device moves from half of `seconds` on, when requests wait all the
/// time and `rate` tells it by the number of those that are in. `from_us`: when that is.
fn fast(finder: &mut LimitFinder, rate: &dyn Fn(f64) -> f64, from_us: u64, seed: u64) -> f64 {
    const SECONDS: f64 = 40.0;
    // Bytes left and bytes in all.
    let mut work: Vec<(f64, u64)> = Vec::new();
    let (mut now, mut done, mut random) = (0.0_f64, 0, Random(seed));
    let us = |now: f64| from_us + (now * 1e6) as u64;
    while now < SECONDS {
        finder.pass_time(us(now), work.len() as u32);
        while work.len() < finder.limit() as usize {
            let bytes = ((0.5 + random.next()) * (1 << 20) as f64) as u64;
            work.push((bytes as f64, bytes));
        }
        let each = rate(work.len() as f64) / work.len() as f64;
        let least = work.iter().map(|(left, _)| *left).fold(f64::MAX, f64::min);
        now += least / each;
        work.iter_mut().for_each(|(left, _)| *left -= least);
        let mut active = work.len() as u32;
        work.retain(|(left, bytes)| {
            let over = *left < 1e-6;
            if over {
                finder.pass_time(us(now), active);
                finder.completed(us(now), *bytes, active);
                active -= 1;
                done += if now >= SECONDS / 2.0 { *bytes } else { 0 };
            }
            !over
        });
    }
    done as f64 / (SECONDS / 2.0)
}

/// As a target of an engine sees it: transfers of 1 MB, short windows, the peak up to 64.
#[test]
fn on_fast_devices_it_follows_the_peak() {
    for speed in [200e6, 2e9] {
        let mut finder = LimitFinder::new(64, 10_000);
        for (run, peak) in (0..).zip([2.0, 24.0, 1.0, 9.0, 64.0, 4.0]) {
            let rate = |n: f64| {
                let x = n / peak;
                speed * if x <= 1.0 { 0.4 + 0.6 * x } else { 1.0 / (0.7 + 0.3 * x) }
            };
            let part = fast(&mut finder, &rate, run * 50_000_000, run + 1) / speed;
            println!("{speed:e}, peak at {peak}: {part:.3}, limit {}", finder.limit());
            assert!(part >= 0.9, "{speed:e}, peak at {peak}: {part:.3}, limit {}", finder.limit());
        }
    }
}

/// With fewer requests than the limit would let in, throughput says nothing about the limit.
#[test]
fn without_a_queue_nothing_is_tried() {
    let mut finder = LimitFinder::new(64, 10_000);
    let first = finder.limit();
    let mut now_us = 0;
    for _ in 0..10_000 {
        finder.pass_time(now_us, 0);
        finder.pass_time(now_us, 1);
        now_us += 1000;
        finder.pass_time(now_us, 1);
        finder.completed(now_us, 1 << 20, 1);
        assert_eq!(finder.limit(), first);
    }
}

#[test]
fn levels_are_close_and_end_at_the_maximum() {
    for max in 1..200 {
        let levels = super::levels(max);
        assert_eq!((levels[0], *levels.last().unwrap()), (1, max));
        let mut pairs = levels.windows(2);
        assert!(
            pairs.all(|pair| pair[0] < pair[1] && pair[1] <= (pair[0] + 1).max(pair[0] * 13 / 10)),
            "{levels:?}"
        );
    }
}
