//! What a thread does while it has nothing to do: how long it spins, when it yields, where it looks.
//!
//! When a round finds nothing, the thread yields its core, looking for work in between, for a
//! bounded time; then it sleeps in epoll. Three things follow from the waits before:
//!
//! - *How long.* Waits that end within [`SPIN_MAX`] restore the time, longer ones halve it. So an
//!   idle process sleeps at once, and busy processes that share a core hand it to each other
//!   without any system call but `sched_yield`, which costs less than half of a doorbell and a
//!   wake-up.
//! - *Where.* To look at memory costs nothing, to look at descriptors costs a system call. They
//!   are looked at in every turn of a spin while one of the last 32 waits ended with one,
//!   every [`FDS_EVERY`] otherwise.
//! - *Whether at all.* A yield does not always hand the core to whom we wait for. To a thread that
//!   computes it gives a whole time slice; and to a peer in another scheduling group (another
//!   session, another control group) it may give nothing, as the scheduler weighs groups, not
//!   threads: such a peer runs only once we sleep. A yield that takes longer than [`YIELD_MAX`]
//!   shows the one, a spin in vain before a sleep shorter than [`SLEEP_SHORT`] that a peer ends the
//!   other. Then the next few waits sleep at once, and more of them each time it happens again before
//!   [`SPINS_WELL`] spins have gone well. Not many more of them for the other: who comes when we sleep may
//!   come because we do, as the kernel wakes programs where a core is idle.
//!
//! Who yields and gets the core back at once has it to itself: the next [`TURNS_ALONE`] turns look
//! without yielding.

use std::cell::Cell;
use std::time::Duration;

pub(crate) const SPIN_MAX: Duration = Duration::from_micros(100);
/// Spins shorter than this are not worth their system calls.
const SPIN_MIN: Duration = Duration::from_micros(3);
/// Descriptors that bring no work are looked at this often by a thread that does not sleep.
pub(crate) const FDS_EVERY: Duration = Duration::from_micros(20);
/// Longest yield that peers of ours explain: two or three of them, each handing a write to a device.
/// A thread that computes keeps the core for its slice, 1 ms and more.
const YIELD_MAX: Duration = Duration::from_micros(300);
/// A yield shorter than this has met nobody.
const YIELD_ALONE: Duration = Duration::from_micros(1);
/// Turns without a yield after one that met nobody.
const TURNS_ALONE: u32 = 6;
/// Who comes this soon after we fell asleep may have waited for our core.
const SLEEP_SHORT: Duration = Duration::from_micros(50);
/// Waits without a spin after a bad one: the first time, and where doubling ends for spins that gave a core away, and for those before a short
/// sleep.
const HOLD_OFF_MIN: u32 = 4;
const HOLD_OFF_MAX: u32 = 1024;
const HOLD_OFF_SHORT_MAX: u32 = 8;
/// Good spins that halve the next penalty.
const SPINS_WELL: u32 = 4;

/// What a wait ended with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// A source that other threads fill had work: a ring.
    Source,
    /// A device has completed something.
    Device,
    /// A descriptor became ready.
    Descriptor,
    /// A timer is due.
    Timer,
    /// A task was woken, by another thread.
    Task,
}

/// How many waits sleep at once after the next bad spin of a kind.
struct Penalty {
    waits: Cell<u32>,
    waits_max: u32,
}

impl Penalty {
    fn new(waits_max: u32) -> Penalty {
        Penalty { waits: Cell::new(HOLD_OFF_MIN), waits_max }
    }

    /// As many as it is now; twice as many next time.
    fn take(&self) -> u32 {
        let waits = self.waits.get();
        self.waits.set((waits * 2).min(self.waits_max));
        waits
    }

    fn halve(&self) {
        self.waits.set((self.waits.get() / 2).max(HOLD_OFF_MIN));
    }
}

/// Estimates of this thread, from its waits before.
pub(crate) struct Idle {
    spin: Cell<Duration>,
    /// Waits that sleep at once.
    hold_off: Cell<u32>,
    /// As many as the next spin brings that gives the core away.
    given_away: Penalty,
    /// As many as the next one brings that a short sleep follows.
    short_sleep: Penalty,
    /// Good spins since the penalties last changed.
    spun_well: Cell<u32>,
    /// One bit for each of the last 32 waits: it ended with a descriptor.
    by_descriptor: Cell<u32>,
}

impl Idle {
    pub fn new() -> Idle {
        Idle {
            spin: Cell::new(SPIN_MAX),
            hold_off: Cell::new(0),
            given_away: Penalty::new(HOLD_OFF_MAX),
            short_sleep: Penalty::new(HOLD_OFF_SHORT_MAX),
            spun_well: Cell::new(0),
            by_descriptor: Cell::new(0),
        }
    }

    /// How long to spin now; zero: sleep at once.
    pub fn budget(&self) -> Duration {
        match self.hold_off.get() {
            0 => self.spin.get(),
            left => {
                self.hold_off.set(left - 1);
                Duration::ZERO
            }
        }
    }

    /// Descriptors have brought work lately.
    pub fn descriptors_are_hot(&self) -> bool {
        self.by_descriptor.get() != 0
    }

    /// Learns that a spin has found work in good time.
    pub fn spun_well(&self) {
        let count = self.spun_well.get() + 1;
        if count < SPINS_WELL {
            return self.spun_well.set(count);
        }
        self.spun_well.set(0);
        self.given_away.halve();
        self.short_sleep.halve();
    }

    /// Learns how long a sleep took that followed a spin in vain, and what ended it. Timers and
    /// devices need no core of ours: that they come soon after a spin is chance.
    pub fn slept_after_spin(&self, slept: Duration, found: Option<Found>) {
        let by_peer = matches!(found, Some(Found::Source | Found::Descriptor | Found::Task));
        if by_peer && slept < SLEEP_SHORT {
            self.hold_off(&self.short_sleep);
        }
    }

    /// Learns how a wait ended: when nothing was found in time, with `None`.
    pub fn waited(&self, idle: Duration, found: Option<Found>) {
        let spin = if idle < SPIN_MAX { SPIN_MAX } else { self.spin.get() / 2 };
        self.spin.set(if spin < SPIN_MIN { Duration::ZERO } else { spin });
        self.looked_at_fds(found == Some(Found::Descriptor));
    }

    /// Learns whether a wait ended with a descriptor, or a look at them instead of a wait.
    pub fn looked_at_fds(&self, found: bool) {
        self.by_descriptor.set(self.by_descriptor.get() << 1 | u32::from(found));
    }

    fn hold_off(&self, penalty: &Penalty) {
        self.spun_well.set(0);
        self.hold_off.set(penalty.take());
    }
}

/// One spin: what its next turn does.
pub(crate) struct Spin<'a> {
    idle: &'a Idle,
    /// Its end, or that of the wait; since its start, as all times here.
    end: Duration,
    /// Turns left that do not yield.
    turns_alone: u32,
    /// When descriptors were last looked at.
    fds_seen: Duration,
}

impl<'a> Spin<'a> {
    /// A spin of this length.
    pub fn new(idle: &'a Idle, end: Duration) -> Spin<'a> {
        Spin { idle, end, turns_alone: 0, fds_seen: Duration::ZERO }
    }

    /// Whether the next turn begins with a yield.
    pub fn yields(&mut self) -> bool {
        if self.turns_alone == 0 {
            return true;
        }
        self.turns_alone -= 1;
        false
    }

    /// Learns how long a yield took; false: sleep rather than spin.
    pub fn yielded(&mut self, took: Duration) -> bool {
        if took > YIELD_MAX {
            self.idle.hold_off(&self.idle.given_away);
            return false;
        }
        self.turns_alone = if took < YIELD_ALONE { TURNS_ALONE } else { 0 };
        true
    }

    /// Whether to look at descriptors in this turn; `are_hot`: they bring work, and that was not
    /// found otherwise.
    pub fn looks_at_fds(&mut self, now: Duration, are_hot: bool) -> bool {
        let looks = are_hot || now - self.fds_seen >= FDS_EVERY;
        if looks {
            self.fds_seen = now;
        }
        looks
    }

    /// The spin was in vain.
    pub fn is_over(&self, now: Duration) -> bool {
        now > self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_micros(5);
    const LATE: Duration = Duration::from_millis(1);

    #[test]
    fn descriptors_are_looked_at_in_every_turn_as_long_as_they_bring_work() {
        let idle = Idle::new();
        let turns = |idle: &Idle| {
            let mut spin = Spin::new(idle, SPIN_MAX);
            (1..=100)
                .filter(|&now| {
                    spin.looks_at_fds(Duration::from_micros(now), idle.descriptors_are_hot())
                })
                .count()
        };
        assert_eq!(turns(&idle), 5);
        idle.waited(SOON, Some(Found::Descriptor));
        for _ in 0..31 {
            assert_eq!(turns(&idle), 100);
            idle.waited(SOON, Some(Found::Source));
        }
        assert_eq!(turns(&idle), 100);
        for other in [Found::Timer, Found::Task, Found::Source] {
            idle.waited(SOON, Some(other));
            assert_eq!(turns(&idle), 5);
        }
        idle.waited(LATE, None);
        assert_eq!(turns(&idle), 5);
    }

    #[test]
    fn an_idle_thread_sleeps_at_once_and_a_busy_one_spins() {
        let idle = Idle::new();
        for _ in 0..6 {
            assert!(!idle.budget().is_zero());
            idle.waited(LATE, Some(Found::Descriptor));
        }
        assert!(idle.budget().is_zero());
        idle.waited(SOON, Some(Found::Source));
        assert_eq!(idle.budget(), SPIN_MAX);
    }

    /// Waits until the next spin.
    fn held_off(idle: &Idle) -> u32 {
        let mut count = 0;
        while idle.budget().is_zero() {
            idle.waited(SOON, Some(Found::Source));
            count += 1;
        }
        count
    }

    #[test]
    fn beside_a_thread_that_computes_ever_more_waits_sleep_at_once() {
        let idle = Idle::new();
        let mut want = HOLD_OFF_MIN;
        for _ in 0..12 {
            assert!(!Spin::new(&idle, SPIN_MAX).yielded(YIELD_MAX * 2));
            assert_eq!(held_off(&idle), want);
            want = (want * 2).min(HOLD_OFF_MAX);
        }
        // It takes several good spins to win the trust back.
        for _ in 0..SPINS_WELL {
            idle.spun_well();
        }
        assert!(!Spin::new(&idle, SPIN_MAX).yielded(YIELD_MAX * 2));
        assert_eq!(held_off(&idle), HOLD_OFF_MAX / 2);
        for _ in 0..SPINS_WELL - 1 {
            idle.spun_well();
        }
        assert!(!Spin::new(&idle, SPIN_MAX).yielded(YIELD_MAX * 2));
        assert_eq!(held_off(&idle), HOLD_OFF_MAX, "fewer do not count");
    }

    /// To yield does not hand over between scheduling groups: the client of one session spun its
    /// whole time in vain, per request, while the engine of another waited for that very core.
    #[test]
    fn a_peer_that_comes_as_soon_as_we_sleep_has_waited_for_the_core() {
        let idle = Idle::new();
        idle.slept_after_spin(LATE, Some(Found::Source));
        assert_eq!(held_off(&idle), 0);
        idle.slept_after_spin(SOON, Some(Found::Source));
        assert_eq!(held_off(&idle), HOLD_OFF_MIN);
        idle.slept_after_spin(SOON, Some(Found::Descriptor));
        assert_eq!(held_off(&idle), HOLD_OFF_MIN * 2);
    }

    /// A mount's program was woken on the idle core as soon as its thread there slept, whose next thousand waits then slept at once: the program went
    /// from core to core with each call, and both had to be woken each time.
    #[test]
    fn a_peer_that_comes_when_we_sleep_ends_spinning_for_few_waits_only() {
        let idle = Idle::new();
        for _ in 0..20 {
            idle.slept_after_spin(SOON, Some(Found::Source));
            assert!(held_off(&idle) <= HOLD_OFF_SHORT_MAX);
        }
        // A core given away is another matter.
        assert!(!Spin::new(&idle, SPIN_MAX).yielded(YIELD_MAX * 2));
        assert_eq!(held_off(&idle), HOLD_OFF_MIN);
    }

    /// A device that syncs in a little more than a spin looked like a peer without a core: with
    /// each synced update engines and clients gave up spinning for the next waits, of all kinds.
    #[test]
    fn a_device_that_answers_soon_after_a_spin_says_nothing_about_cores() {
        let idle = Idle::new();
        for found in [Found::Device, Found::Timer] {
            idle.slept_after_spin(SOON, Some(found));
            assert_eq!(held_off(&idle), 0, "{found:?}");
        }
    }

    #[test]
    fn a_yield_that_meets_nobody_spares_the_next_few() {
        let idle = Idle::new();
        let mut spin = Spin::new(&idle, SPIN_MAX);
        assert!(spin.yields());
        assert!(spin.yielded(Duration::from_nanos(300)));
        for _ in 0..TURNS_ALONE {
            assert!(!spin.yields());
        }
        assert!(spin.yields());
        assert!(spin.yielded(SOON));
        assert!(spin.yields(), "somebody else wants the core");
    }
}
