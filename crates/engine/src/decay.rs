//! Devices that become slow, and old measures: when a target is to measure its devices again.
//!
//! A device that fails often does so by becoming slow first. What it does for those that use it shows that ([`vos::Traffic`]); because
//! small or scattered transfers look the same, a suspicion is confirmed by measuring, twice, before it counts. What is kept then
//! says what the device once did, so that weights of pools that follow (`balance=auto`) fall at once, and people are told.
//! When nobody works, targets are measured again now and then.

use crate::target::Target;
use env::Env;
use std::rc::{Rc, Weak};
use std::time::Duration;
use types::Result;
use vos::Traffic;
use wire::measure::{MeasureAsk, Measures, Past};

const LOOK_PAUSE: Duration = Duration::from_secs(10);
/// Less than this of the time between two looks says nothing.
const BUSY_MIN: Duration = Duration::from_millis(200);
/// So many looks in a row that find it slow make a suspicion.
const SLOW_LOOKS: u32 = 3;
/// After a suspicion that was wrong; twice as long after each.
const PATIENCE_MIN: Duration = Duration::from_secs(600);
const PATIENCE_MAX: Duration = Duration::from_secs(86_400);
/// So many looks with no more requests than clients make to be remembered, and nobody works. What a target does by itself (it scrubs, it
/// cleans its log) does not count.
const IDLE_LOOKS: u32 = 6;
const IDLE_REQUESTS_MAX: u64 = 20;
/// One that has become slow is looked at more often whether it still is.
const SLOW_EVERY: Duration = Duration::from_secs(600);
/// Between the two measurements that confirm.
const CONFIRM_PAUSE: Duration = Duration::from_secs(5);
/// Slow is what does less than one part of so many of what it did.
const PARTS: u64 = 4;

/// How targets measure by themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Habit {
    pub ask: MeasureAsk,
    /// How old measures may become; `None`: any age.
    pub every: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Advice {
    Nothing,
    /// It looks slow: measure, and believe it only if it is found twice.
    Confirm,
    /// Nobody works, and the measures are old.
    Renew,
}

/// What was seen so far.
struct Looks {
    last: Traffic,
    last_requests: u64,
    slow: u32,
    idle: u32,
    not_before: Duration,
    patience: Duration,
}

impl Looks {
    fn new(last: Traffic) -> Looks {
        let (not_before, patience) = (Duration::ZERO, PATIENCE_MIN);
        Looks { last, last_requests: 0, slow: 0, idle: 0, not_before, patience }
    }

    /// What follows from the traffic and the requests up to now. `age`: of the measures that are known.
    fn advice(
        &mut self,
        now: Duration,
        traffic: Traffic,
        requests: u64,
        known: &Measures,
        age: Duration,
        every: Option<Duration>,
    ) -> Advice {
        let busy = traffic.busy.saturating_sub(self.last.busy);
        let bytes = traffic.bytes.saturating_sub(self.last.bytes);
        let is_idle = requests.saturating_sub(self.last_requests) <= IDLE_REQUESTS_MAX;
        (self.last, self.last_requests) = (traffic, requests);
        self.idle = if is_idle { self.idle + 1 } else { 0 };
        if busy >= BUSY_MIN {
            let kb_s = bytes / (busy.as_millis() as u64).max(1);
            self.slow = if kb_s * PARTS < slowest(known) { self.slow + 1 } else { 0 };
        }
        if self.slow >= SLOW_LOOKS && known.past.is_none() && now >= self.not_before {
            self.slow = 0;
            return Advice::Confirm;
        }
        let old = if known.past.is_some() { Some(SLOW_EVERY) } else { every };
        if self.idle >= IDLE_LOOKS && old.is_some_and(|old| age >= old) {
            self.idle = 0;
            return Advice::Renew;
        }
        Advice::Nothing
    }

    /// A suspicion was right, or not.
    fn learn(&mut self, now: Duration, was_right: bool) {
        self.patience =
            if was_right { PATIENCE_MIN } else { (self.patience * 2).min(PATIENCE_MAX) };
        self.not_before = now + self.patience;
    }
}

/// What of reading and writing is slower, as far as it was measured past the page cache, KB/s.
fn slowest(of: &Measures) -> u64 {
    if of.is_direct { of.read.kb_s.min(of.write.kb_s) } else { of.write.kb_s }
}

/// New measures, with what is to be remembered of older ones: what devices did before they became slow.
pub(crate) fn judged(known: Option<&Measures>, new: Measures) -> Measures {
    let Some(known) = known else { return new };
    let past = known.past.unwrap_or(Past { read: known.read.kb_s, write: known.write.kb_s });
    // What came out of memory says nothing.
    let counts_reads = known.is_direct && new.is_direct;
    let does_less = |parts: u64| {
        new.write.kb_s * parts < past.write || counts_reads && new.read.kb_s * parts < past.read
    };
    // It has to come half the way back to be as it was.
    let is_slow = does_less(if known.past.is_some() { PARTS / 2 } else { PARTS });
    Measures { past: is_slow.then_some(past), ..new }
}

impl Target {
    /// Measures again when the devices look slow, or the measures are old and nobody works; until the target is gone.
    pub(crate) async fn watch_devices(env: Env, target: Weak<Target>, habit: Habit) {
        let mut looks: Option<Looks> = None;
        loop {
            // timer: looks at what devices do, of which nobody tells, come at intervals.
            env.sleep(LOOK_PAUSE).await;
            let Some(target) = target.upgrade() else { return };
            if target.is_draining() {
                return;
            }
            let Some(known) = target.measuring.last() else { continue };
            let traffic = target.store.traffic();
            let looks = looks.get_or_insert_with(|| Looks::new(traffic));
            let age = Duration::from_nanos(env.wall_ns().saturating_sub(known.at_ns));
            let requests = target.request_count();
            let advice = looks.advice(env.now(), traffic, requests, &known, age, habit.every);
            let done = match advice {
                Advice::Nothing => continue,
                Advice::Renew => {
                    target.stand(Some(MeasureAsk { once: false, ..habit.ask })).await.map(drop)
                }
                Advice::Confirm => {
                    let was_right = target.confirm_slow(habit.ask, &known).await;
                    looks.learn(env.now(), matches!(was_right, Ok(true)));
                    was_right.map(drop)
                }
            };
            if let Err(error) = done {
                tracing::debug!("target {} was not measured again: {error}", target.id);
            }
            looks.last = target.store.traffic();
        }
    }

    /// Measures whether the devices are as slow as they look, and keeps that if so.
    async fn confirm_slow(self: &Rc<Self>, ask: MeasureAsk, known: &Measures) -> Result<bool> {
        for is_second in [false, true] {
            if is_second {
                // timer: what is slow only now is to pass.
                self.env.sleep(CONFIRM_PAUSE).await;
            }
            let found = judged(Some(known), self.measure_now(ask).await?);
            if found.past.is_none() {
                return Ok(false);
            }
            if is_second {
                self.keep_measures(found).await?;
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::measure::Speed;

    fn measures(read: u64, write: u64, is_direct: bool) -> Measures {
        let speed = |kb_s| Speed { kb_s, kb_s_min: kb_s, kb_s_max: kb_s };
        Measures { read: speed(read), write: speed(write), is_direct, ..Measures::default() }
    }

    /// Looks at a device that moves so much while busy for a second of each ten.
    fn looks(known: &Measures, kb_s: &[u64]) -> Vec<Advice> {
        let mut looks = Looks::new(Traffic::default());
        let mut traffic = Traffic::default();
        let look = |(at, kb_s): (usize, &u64)| {
            traffic.bytes += kb_s * 1000;
            traffic.busy += Duration::from_secs(1);
            let now = Duration::from_secs(10 * at as u64);
            let advice = looks.advice(now, traffic, 0, known, Duration::ZERO, None);
            if advice == Advice::Confirm {
                looks.learn(now, false);
            }
            advice
        };
        kb_s.iter().enumerate().map(look).collect()
    }

    #[test]
    fn slow_for_long_is_a_suspicion() {
        let known = measures(500_000, 400_000, true);
        let count = |advice: &[Advice]| advice.iter().filter(|a| **a == Advice::Confirm).count();
        assert_eq!(count(&looks(&known, &[100_001; 100])), 0, "a quarter is not slow");
        let slow = looks(&known, &[90_000; 3]);
        assert_eq!(slow, [Advice::Nothing, Advice::Nothing, Advice::Confirm]);
        let now_and_then: Vec<u64> = (0..99).map(|at| [1, 1, 300_000][at % 3]).collect();
        assert_eq!(count(&looks(&known, &now_and_then)), 0);
        // Who was wrong waits longer each time: twenty minutes, forty, eighty.
        assert_eq!(count(&looks(&known, &[1; 6 * 60 * 4])), 4);
        // Where memory answers readers, what is written counts.
        assert_eq!(count(&looks(&measures(1, 400_000, false), &[90_000; 3])), 1);
        // One that is known to be slow is no news.
        let past = Some(Past { read: 500_000, write: 400_000 });
        let known = Measures { past, ..measures(40_000, 40_000, true) };
        assert_eq!(count(&looks(&known, &[1_000; 10])), 0);
    }

    #[test]
    fn little_traffic_says_nothing() {
        let known = measures(500_000, 400_000, true);
        let mut looks = Looks::new(Traffic::default());
        for at in 1..100 {
            let busy = Duration::from_millis(100 * at);
            let traffic = Traffic { bytes: at, busy };
            let now = Duration::from_secs(10 * at);
            let advice = looks.advice(now, traffic, 0, &known, Duration::ZERO, None);
            assert_eq!(advice, Advice::Nothing);
        }
    }

    #[test]
    fn old_measures_are_renewed_while_nobody_works() {
        let known = measures(500_000, 400_000, true);
        let (day, every) = (Duration::from_secs(86_400), Some(Duration::from_secs(86_400)));
        let advice = |known: &Measures, age, every| {
            let mut looks = Looks::new(Traffic::default());
            let look = |_| looks.advice(Duration::ZERO, Traffic::default(), 0, known, age, every);
            (0..6).map(look).collect::<Vec<_>>()[5]
        };
        assert_eq!(advice(&known, day, every), Advice::Renew);
        assert_eq!(advice(&known, day / 2, every), Advice::Nothing);
        assert_eq!(advice(&known, day * 9, None), Advice::Nothing);
        // Slow ones sooner.
        let past = Some(Past { read: 500_000, write: 400_000 });
        let slow = Measures { past, ..known };
        assert_eq!(advice(&slow, Duration::from_secs(700), None), Advice::Renew);
        // Not beside somebody's work.
        let mut looks = Looks::new(Traffic::default());
        for at in 1..100 {
            let (now, none) = (Duration::ZERO, Traffic::default());
            let advice = looks.advice(now, none, 50 * at, &known, day, every);
            assert_eq!(advice, Advice::Nothing);
        }
    }

    #[test]
    fn what_it_once_did_is_remembered_until_it_does_so_again() {
        let known = measures(500_000, 400_000, true);
        let judge =
            |known: &Measures, read, write| judged(Some(known), measures(read, write, true));
        assert_eq!(judge(&known, 130_000, 110_000).past, None);
        let slow = judge(&known, 500_000, 90_000);
        assert_eq!(slow.past, Some(Past { read: 500_000, write: 400_000 }));
        assert_eq!(judge(&known, 100_000, 400_000).past, slow.past, "reading counts as well");
        // Another measurement, not much better: still slow, and what it once did is not forgotten.
        let still = judge(&slow, 500_000, 150_000);
        assert_eq!(still.past, slow.past);
        assert_eq!(judge(&still, 480_000, 210_000).past, None);
        // Memory that answered faster the first time is no past.
        let cached = measures(9_000_000, 400_000, false);
        assert_eq!(judged(Some(&cached), measures(1_000_000, 390_000, false)).past, None);
        assert_eq!(judged(None, known).past, None);
    }
}
