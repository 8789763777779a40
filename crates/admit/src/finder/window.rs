//! Measuring the rate over some completions at one limit.

/// A window ends after so many completions however short it was.
const COMPLETIONS_MAX: u32 = 4096;
/// The limit is in use when on average so many of its slots are.
const IN_USE: f64 = 0.75;

/// What a completion says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Nothing yet.
    Open,
    /// The window is complete: bytes per microsecond.
    Rate(f64),
    /// The window is complete, but the limit was not in use.
    Unused,
}

#[derive(Clone, Debug)]
pub(super) struct Window {
    limit: u32,
    /// Least completions it takes.
    completions_min: u32,
    /// Least time it takes.
    time_us_min: u64,
    /// Completions to let pass before it begins.
    settle: u32,
    /// Set when it has begun.
    begin_us: Option<u64>,
    completions: u32,
    bytes: u64,
    /// Slots in use, summed over time.
    slot_us: u64,
    last_us: u64,
}

impl Window {
    /// A window at a limit over some completions, beginning after `settle` others.
    pub fn new(limit: u32, settle: u32, completions_min: u32, time_us_min: u64) -> Window {
        Window {
            limit,
            completions_min,
            time_us_min,
            settle,
            begin_us: None,
            completions: 0,
            bytes: 0,
            slot_us: 0,
            last_us: 0,
        }
    }

    /// Begins again after `settle` completions.
    pub fn restart(&mut self, settle: u32) {
        let new = Window::new(self.limit, settle, self.completions_min, self.time_us_min);
        *self = Window { last_us: self.last_us, ..new };
    }

    /// Since the last call `active` slots were in use.
    pub fn pass_time(&mut self, now_us: u64, active: u32) {
        let passed_us = now_us.saturating_sub(self.last_us);
        self.last_us = self.last_us.max(now_us);
        if self.begin_us.is_none() {
            return;
        }
        if active == 0 && passed_us > 0 {
            // Idle: whatever comes now begins from nothing, with a round that is not typical.
            self.restart(self.limit);
        } else {
            self.slot_us += passed_us * u64::from(active);
        }
    }

    /// A request completed when `active` were in, itself included.
    pub fn completed(&mut self, now_us: u64, bytes: u64, _active: u32) -> Verdict {
        let Some(begin_us) = self.begin_us else {
            if self.settle > 0 {
                self.settle -= 1;
            }
            if self.settle == 0 {
                self.begin_us = Some(now_us);
                self.last_us = now_us;
            }
            return Verdict::Open;
        };
        self.completions += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        let whole_round = self.completions.is_multiple_of(self.limit);
        let passed_us = now_us.saturating_sub(begin_us);
        let enough = self.completions >= self.completions_min && passed_us >= self.time_us_min;
        if !(whole_round && enough || self.completions >= COMPLETIONS_MAX) {
            return Verdict::Open;
        }
        let time_us = passed_us.max(1) as f64;
        if (self.slot_us as f64) < IN_USE * time_us * f64::from(self.limit) {
            return Verdict::Unused;
        }
        Verdict::Rate(self.bytes as f64 / time_us)
    }
}
