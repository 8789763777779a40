//! Finds how many requests may be at work at a time so that most bytes per second are moved, and
//! follows that point when it moves.
//!
//! Throughput as a function of requests at work has one peak on all storage targets known to us: it
//! rises, then falls.
//!
//! It measures *windows*: after a change of the limit it lets those go out who went in before,
//! then counts bytes over at least 8 completions (more where rates are noisy) and at least as many as the limit, in whole rounds
//! of the limit (a fair device finishes requests in rounds). The rate of a limit is the mean of its windows,
//! older ones counting less.
//!
//! - *Sweep*: from the present limit up, about doubling, until the rate falls; then down from there
//!   likewise. So it begins, and so it begins again when the rate at the present limit has changed by more than
//!   a fifth.
//! - *Dwell*: at the best limit for some windows, then *probe* a neighbour for one. Better: move there.
//!   Not better: dwell longer the next time. Limits known to be much worse are probed no more until that is
//!   old knowledge; so probing costs a few parts in a hundred.
//!
//! A limit that nobody makes use of is not measured: with fewer requests than the limit the rate says
//! nothing about it. Idle times are not counted.
//!
//! Invariant: the limit is from 1 to the given maximum. No clock, no randomness: the same
//! completions give the same limits.
//!
//! Why not a gradient on latency, as network congestion control does: with few and long requests
//! the time of one says little about what the device could do, its completed bytes say all.

#[cfg(test)]
mod tests;
mod window;

use window::{Verdict, Window};

/// The paper's best point; the search starts here.
const START: u32 = 2;
/// A neighbour must be better by this factor to move there.
const BETTER: f64 = 1.02;
/// While sweeping, below this part of the best rate the limit goes too far.
const FALLS: f64 = 0.93;
/// Below this part of the best rate there is no point in going further.
const FALLS_FAR: f64 = 0.75;
/// Below this part of the best rate a neighbour is not probed while that is known.
const KNOWN_BAD: f64 = 0.92;
/// The rate of a limit has changed when two windows in a row are off by this part.
const CHANGED: f64 = 0.2;
/// Mean deviation up to which windows are as short as can be.
const SPREAD_USUAL: f64 = 0.05;
/// Least completions of a window.
const COMPLETIONS_MIN: u32 = 8;
/// Part of a new deviation in the mean of deviations.
const SPREAD_STEP: f64 = 0.1;
/// Windows at the best limit between two probes, least and most.
const DWELL_MIN: u32 = 3;
const DWELL_MAX: u32 = 12;
/// What a window's weight becomes when the next of the same limit is counted.
const OLDER: f64 = 0.75;
/// What all weights become with every window of any limit.
const FADES: f64 = 0.98;
/// A rate of less weight is not known.
const KNOWN: f64 = 0.2;

/// What is known of one limit.
#[derive(Clone, Copy, Debug, Default)]
struct Arm {
    /// Bytes per microsecond.
    rate: f64,
    weight: f64,
}

impl Arm {
    fn known(&self) -> Option<f64> {
        (self.weight >= KNOWN).then_some(self.rate)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Looking upwards, then downwards.
    Sweep { up: bool, falls: u32, start: usize },
    /// At the best limit, so many windows more.
    Dwell { left: u32 },
    /// Trying a neighbour.
    Probe,
}

/// A limit and what is known of others.
///
/// Times are of any clock that does not go back; a request is *active* from being let in to its end.
#[derive(Clone, Debug)]
pub struct LimitFinder {
    /// Limits that are tried, ascending.
    levels: Vec<u32>,
    arms: Vec<Arm>,
    best: usize,
    at: usize,
    mode: Mode,
    dwell: u32,
    /// Which neighbour is probed next.
    turn: usize,
    /// Deviation of the last window at the best limit, if it was off.
    off: f64,
    /// How much windows at one limit usually deviate.
    spread: f64,
    /// Highest level that was in use when last tried.
    usable: usize,
    window_us_min: u64,
    window: Window,
}

/// Neighbours in the order of probing, in levels.
const NEIGHBOURS: [isize; 4] = [1, -1, 2, -2];

/// All limits up to 8, then steps of about a fifth.
fn levels(max: u32) -> Vec<u32> {
    let mut levels: Vec<u32> = (1..=max.min(8)).collect();
    let mut next = 10;
    while next < max {
        levels.push(next);
        next += (next / 5).max(2);
    }
    if max > 8 {
        levels.push(max);
    }
    levels
}

impl LimitFinder {
    /// A limit to be found between 1 and `max`, by windows of at least `window_us_min`: of two times
    /// in which a target's throughput can be told, the shorter one finds the limit sooner.
    pub fn new(max: u32, window_us_min: u64) -> LimitFinder {
        let levels = levels(max.max(1));
        let at = (START.min(max.max(1)) - 1) as usize;
        let window = Window::new(levels[at], 0, COMPLETIONS_MIN, window_us_min);
        LimitFinder {
            arms: vec![Arm::default(); levels.len()],
            best: at,
            at,
            mode: Mode::Sweep { up: true, falls: 0, start: at },
            dwell: DWELL_MIN,
            turn: 0,
            off: 0.0,
            spread: 0.0,
            usable: levels.len() - 1,
            window_us_min,
            window,
            levels,
        }
    }

    /// How many may be in now.
    pub fn limit(&self) -> u32 {
        self.levels[self.at]
    }

    /// Since the last call `active` requests were in; call before every change of that number.
    pub fn pass_time(&mut self, now_us: u64, active: u32) {
        self.window.pass_time(now_us, active);
    }

    /// A request completed when `active` were in, itself included; it moved `bytes`.
    pub fn completed(&mut self, now_us: u64, bytes: u64, active: u32) {
        match self.window.completed(now_us, bytes, active) {
            Verdict::Open => {}
            Verdict::Rate(rate) => self.measured(rate, active),
            Verdict::Unused => self.unused(active),
        }
    }

    /// Somebody went out without completing: the window is worth nothing.
    pub fn disturbed(&mut self) {
        self.window.restart(0);
    }

    fn go_to(&mut self, level: usize, active: u32) {
        let before = self.levels[self.at];
        self.at = level;
        let limit = self.levels[level];
        // Those in now went in under the old limit; then the first round of the new one.
        let settle = if limit == before { 0 } else { active.saturating_sub(1).max(limit) };
        // Where windows deviate much, longer ones deviate less.
        let stretch = (self.spread / SPREAD_USUAL).powi(2).clamp(1.0, 4.0);
        let completions = (f64::from(COMPLETIONS_MIN) * stretch) as u32;
        self.window = Window::new(limit, settle, completions, self.window_us_min);
    }

    fn measured(&mut self, rate: f64, active: u32) {
        for arm in &mut self.arms {
            arm.weight *= FADES;
        }
        if self.at == self.best
            && !matches!(self.mode, Mode::Sweep { .. })
            && self.has_changed(rate)
        {
            self.start_over(rate, active);
            return;
        }
        let arm = &mut self.arms[self.at];
        let old = arm.weight * OLDER;
        arm.rate = (arm.rate * old + rate) / (old + 1.0);
        arm.weight = old + 1.0;
        match self.mode {
            Mode::Sweep { .. } => self.sweep_on(active),
            Mode::Dwell { left } if left > 1 => {
                self.mode = Mode::Dwell { left: left - 1 };
                self.go_to(self.best, active);
            }
            Mode::Dwell { .. } => self.probe(active),
            Mode::Probe => self.probed(active),
        }
    }

    /// True at the second window in a row that is off in the same direction, by more than windows
    /// usually are.
    fn has_changed(&mut self, rate: f64) -> bool {
        let Some(known) = self.arms[self.best].known() else { return false };
        let deviation = rate / known - 1.0;
        let is_off = deviation.abs() > CHANGED.max(3.0 * self.spread);
        if is_off && deviation * self.off > 0.0 {
            self.off = 0.0;
            return true;
        }
        // What was off alone was noise.
        for noise in [self.off, if is_off { 0.0 } else { deviation }] {
            if noise != 0.0 {
                self.spread += SPREAD_STEP * (noise.abs().min(1.0) - self.spread);
            }
        }
        self.off = if is_off { deviation } else { 0.0 };
        false
    }

    /// What was known holds no longer, except for the rate just measured.
    fn start_over(&mut self, rate: f64, active: u32) {
        self.arms.fill(Arm::default());
        self.arms[self.at] = Arm { rate, weight: 1.0 };
        self.usable = self.levels.len() - 1;
        self.mode = Mode::Sweep { up: true, falls: 0, start: self.at };
        self.sweep_on(active);
    }

    /// The best level that is known.
    fn find_best(&self) -> usize {
        let rate = |level: &usize| self.arms[*level].known().unwrap_or(0.0);
        // Of equals the lowest: fewer in at a time, less for the device to juggle with.
        (0..self.levels.len()).rev().max_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap_or(self.best)
    }

    fn sweep_on(&mut self, active: u32) {
        let Mode::Sweep { up, falls, start } = self.mode else { return };
        self.best = self.find_best();
        let best = self.arms[self.best].rate;
        let here = self.arms[self.at].known().unwrap_or(0.0);
        let falls = if here < best * FALLS { falls + 1 } else { 0 };
        let far = here < best * FALLS_FAR || falls >= 2;
        if up {
            let next = self.levels[self.at].saturating_mul(2);
            let above = self.levels.partition_point(|level| *level < next);
            let above = above.min(self.usable);
            if !far && above > self.at {
                self.mode = Mode::Sweep { up, falls, start };
                return self.go_to(above, active);
            }
            return self.sweep_down(start, 0, active);
        }
        if far {
            return self.settle(active);
        }
        self.sweep_down(self.at, falls, active);
    }

    /// Goes to half the limit of level `from`.
    fn sweep_down(&mut self, from: usize, falls: u32, active: u32) {
        let half = self.levels[from] / 2;
        if half == 0 {
            return self.settle(active);
        }
        let below = self.levels.partition_point(|level| *level <= half) - 1;
        self.mode = Mode::Sweep { up: false, falls, start: from };
        self.go_to(below, active);
    }

    /// The sweep is over.
    fn settle(&mut self, active: u32) {
        self.best = self.find_best();
        self.dwell = DWELL_MIN;
        self.dwell_at_best(1, active);
    }

    fn dwell_at_best(&mut self, windows: u32, active: u32) {
        self.off = 0.0;
        self.mode = Mode::Dwell { left: windows };
        self.go_to(self.best, active);
    }

    /// Tries the next neighbour worth it, or dwells on.
    fn probe(&mut self, active: u32) {
        let best = self.arms[self.best].rate;
        for _ in 0..NEIGHBOURS.len() {
            let step = NEIGHBOURS[self.turn % NEIGHBOURS.len()];
            self.turn += 1;
            let Some(level) = self.best.checked_add_signed(step) else { continue };
            let known_bad = |arm: &Arm| arm.known().is_some_and(|rate| rate < best * KNOWN_BAD);
            if level <= self.usable && !known_bad(&self.arms[level]) {
                self.mode = Mode::Probe;
                return self.go_to(level, active);
            }
        }
        // When everything around is known to be bad, what was unusable may have become usable.
        self.usable = (self.usable + 1).min(self.levels.len() - 1);
        self.dwell_at_best(self.dwell, active);
    }

    fn probed(&mut self, active: u32) {
        let arm = self.arms[self.at];
        if arm.rate > self.arms[self.best].rate * BETTER {
            let up = self.at > self.best;
            self.best = self.at;
            self.dwell = DWELL_MIN;
            // Next the neighbour on the same side.
            self.turn = if up { 0 } else { 1 };
            return self.dwell_at_best(1, active);
        }
        self.dwell = (self.dwell + 2).min(DWELL_MAX);
        self.dwell_at_best(self.dwell, active);
    }

    /// The present limit is more than there are requests for.
    fn unused(&mut self, active: u32) {
        let used = self.levels.partition_point(|level| *level <= active.max(1)).max(1) - 1;
        match self.mode {
            Mode::Sweep { up: true, start, .. } if self.at > start => {
                self.usable = used.max(start);
                self.sweep_down(start, 0, active);
            }
            Mode::Probe if self.at > self.best => {
                self.usable = used.max(self.best);
                self.dwell_at_best(self.dwell, active);
            }
            _ => self.window.restart(0),
        }
    }
}
