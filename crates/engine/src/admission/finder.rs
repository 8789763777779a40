//! Finding the best limit by trying (`auto`). Pure.
//!
//! Throughput as a function of transfers at work has one peak on all devices known to us (S1: it
//! rises, then falls). The finder sits at a limit for a *round* of completions, while requests
//! wait all the time, and notes the bytes per second; it tries others of a fixed ladder, near and
//! far, and moves when one is clearly better. Trying costs what the other is worse, so
//! unsuccessful tries become rarer, one round in 34 in the end; when throughput changes a lot, they
//! become frequent again.
//!
//! Rounds in which the queue ran empty say nothing about the limit and are not counted.

/// Limits that are tried.
const LADDER: [u32; 15] = [1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64];
/// S1's best point; a start like any other.
const FIRST_RUNG: usize = 1;
/// Least completions of a round.
const ROUND_COMPLETIONS_MIN: u32 = 32;
/// Least length of a round, microseconds: shorter ones measure the clock.
const ROUND_US_MIN: u64 = 2_000;
/// A neighbour must be this much better, percent.
const GAIN_PERCENT_MIN: u64 = 2;
/// Change of throughput at one limit that means that the load has changed, percent.
const SHIFT_PERCENT: u64 = 30;
/// What is tried in turn, in rungs: near, and further where the slope is too gentle to be seen
/// from one rung to the next.
const TRIES: [i32; 4] = [1, -1, 4, -4];
/// Rounds between tries: at first, and most.
const PAUSE_MIN: u32 = 1;
const PAUSE_MAX: u32 = 32;

/// Chooses a limit from completions.
#[derive(Debug)]
pub(crate) struct Finder {
    /// Where it stays.
    home: usize,
    /// Where it is: home or another being tried.
    rung: usize,
    /// Throughput at home, smoothed, bytes per second; 0: not known.
    home_rate: u64,
    /// The next try, an index of [`TRIES`].
    next_try: usize,
    /// A try has gained and is being repeated.
    confirming: bool,
    pause: u32,
    pause_left: u32,
    round: Option<Round>,
    /// Completions still to come of transfers that began at the last limit.
    settling: u32,
}

#[derive(Debug)]
struct Round {
    began_us: u64,
    completions: u32,
    bytes: u64,
}

impl Finder {
    pub fn new() -> Finder {
        Finder {
            home: FIRST_RUNG,
            rung: FIRST_RUNG,
            home_rate: 0,
            next_try: 0,
            confirming: false,
            pause: PAUSE_MIN,
            pause_left: 0,
            round: None,
            settling: 0,
        }
    }

    /// The limit now.
    pub fn limit(&self) -> u32 {
        LADDER[self.rung]
    }

    /// A transfer has ended at `now_us`. `saturated`: others wait, so the limit was in force.
    pub fn completed(&mut self, now_us: u64, bytes: u64, saturated: bool) {
        if !saturated {
            self.round = None;
            return;
        }
        if self.settling > 0 {
            self.settling -= 1;
            return;
        }
        let Some(round) = &mut self.round else {
            // This completion is where the round begins.
            self.round = Some(Round { began_us: now_us, completions: 0, bytes: 0 });
            return;
        };
        round.completions += 1;
        round.bytes += bytes;
        let elapsed_us = now_us.saturating_sub(round.began_us);
        let completions_min = ROUND_COMPLETIONS_MIN.max(2 * LADDER[self.rung]);
        if round.completions < completions_min || elapsed_us < ROUND_US_MIN {
            return;
        }
        let rate = (round.bytes as u128 * 1_000_000 / elapsed_us as u128) as u64;
        self.round = None;
        self.round_over(rate);
    }

    fn round_over(&mut self, rate: u64) {
        if self.rung != self.home {
            let needed = self.home_rate / 100 * (100 + GAIN_PERCENT_MIN);
            if rate > needed && !self.confirming {
                // Once may be chance.
                self.confirming = true;
                return;
            }
            self.confirming = false;
            if rate > needed {
                // The way that was right once may go on.
                self.home = self.rung;
                self.home_rate = rate;
                self.pause = PAUSE_MIN;
                self.pause_left = 0;
            } else {
                self.next_way();
                self.pause_left = self.pause;
                self.go_to(self.home);
                return;
            }
        } else if self.home_rate == 0 {
            self.home_rate = rate;
        } else {
            if rate.abs_diff(self.home_rate) > self.home_rate / 100 * SHIFT_PERCENT {
                self.pause = PAUSE_MIN;
                self.pause_left = self.pause_left.min(self.pause);
                self.home_rate = rate;
            }
            self.home_rate = (3 * self.home_rate + rate) / 4;
        }
        if self.pause_left > 0 {
            self.pause_left -= 1;
            return;
        }
        let top = LADDER.len() as i32 - 1;
        let tried = (self.home as i32 + TRIES[self.next_try]).clamp(0, top) as usize;
        if tried == self.home {
            // At an end of the ladder there is nothing on one side.
            self.next_way();
        } else {
            self.go_to(tried);
        }
    }

    fn next_way(&mut self) {
        self.next_try += 1;
        if self.next_try == TRIES.len() {
            self.next_try = 0;
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
    }

    fn go_to(&mut self, rung: usize) {
        // Transfers of the old limit end first; their number tells how long that takes.
        self.settling = LADDER[self.rung].max(LADDER[rung]);
        self.rung = rung;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::hash::mix;

    /// A device that moves `rate(n)` bytes per second when n transfers are at work, each with an
    /// equal share; sizes vary. Returns bytes per second over the second half of `seconds`.
    fn run(finder: &mut Finder, rate: &dyn Fn(u32) -> f64, seconds: f64, seed: u64) -> f64 {
        const BYTES: u64 = 1 << 20;
        let warm_up = seconds / 2.0;
        // Bytes left and bytes in all.
        let mut at_work: Vec<(f64, u64)> = Vec::new();
        let (mut now, mut done, mut noise) = (0.0f64, 0u64, mix(seed));
        while now < seconds {
            while at_work.len() < finder.limit() as usize {
                noise = mix(noise);
                let bytes = BYTES / 2 + noise % BYTES;
                at_work.push((bytes as f64, bytes));
            }
            let speed = rate(at_work.len() as u32) / at_work.len() as f64;
            let least = at_work.iter().map(|(left, _)| *left).fold(f64::MAX, f64::min);
            now += least / speed;
            at_work.iter_mut().for_each(|(left, _)| *left -= least);
            at_work.retain(|(left, bytes)| {
                let over = *left < 1e-6;
                if over {
                    finder.completed((now * 1e6) as u64, *bytes, true);
                    done += if now >= warm_up { *bytes } else { 0 };
                }
                !over
            });
        }
        done as f64 / (seconds - warm_up)
    }

    fn peak(at: f64) -> impl Fn(u32) -> f64 {
        // Rises to the peak, then falls: S1's shape.
        move |n| {
            let x = n as f64 / at;
            200e6 * if x <= 1.0 { 0.4 + 0.6 * x } else { 1.0 / (0.7 + 0.3 * x) }
        }
    }

    fn best(rate: &dyn Fn(u32) -> f64) -> f64 {
        (1..=64).map(rate).fold(0.0, f64::max)
    }

    #[test]
    fn the_found_limit_is_nearly_as_good_as_the_best_one() {
        for (seed, at) in (0..).zip([1.0, 2.0, 4.0, 9.0, 20.0, 64.0]) {
            let rate = peak(at);
            let mut finder = Finder::new();
            let share = run(&mut finder, &rate, 80.0, seed) / best(&rate);
            assert!(share >= 0.9, "peak at {at}: {share:.3}, {finder:?}");
        }
    }

    #[test]
    fn it_follows_a_load_that_changes() {
        let mut finder = Finder::new();
        for (seed, at) in (0..).zip([2.0, 24.0, 1.0, 8.0]) {
            let rate = peak(at);
            // The clock of `run` begins anew; a round that straddles it must not count.
            finder.completed(0, 0, false);
            let share = run(&mut finder, &rate, 80.0, seed) / best(&rate);
            assert!(share >= 0.9, "peak at {at}: {share:.3}, {finder:?}");
        }
    }

    #[test]
    fn without_a_queue_nothing_is_tried() {
        let mut finder = Finder::new();
        let first = finder.limit();
        for at in 0..10_000u64 {
            finder.completed(at * 1000, 1 << 20, false);
            assert_eq!(finder.limit(), first);
        }
    }
}
